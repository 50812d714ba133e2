//! The service in this process, over real clusters: what watches them, keeps them, and forwards to them.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bailiwick::audit::{Audit, AuditSettings};
use bailiwick::clusters::endpoint::digest;
use bailiwick::clusters::{Clusters, Deadlines, Timing, import};
use bailiwick::controllers::Controllers;
use bailiwick::identity::last_used::LastUsed;
use bailiwick::index::{Index, ObservedCluster};
use bailiwick::listener::{self, Doors};
use bailiwick::metrics::Metrics;
use bailiwick::proxy::{Proxy, ProxyParts, ProxySettings};
use bailiwick::records::ClusterCredential;
use bailiwick::resources::cluster::{Connection, DirectConnection};
use bailiwick::resources::{Cluster, ClusterSpec, ClusterStatus, Condition};
use bailiwick::store::sealed::{Binding, Sealer};
use bailiwick::store::sqlite::{SqliteSettings, SqliteStore};
use bailiwick::store::{Key, Kind, Store};
use bailiwick::tenancy::Tenancy;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::harness::*;
use super::kubernetes::kubectl;
use crate::proxy_harness::{Pki, issue};

const API: &str = "bailiwick.dev/v1alpha1";

/// What watches the clusters, with short intervals.
pub struct World {
    pub store: Arc<dyn Store>,
    pub index: Arc<Index>,
    pub clusters: Arc<Clusters>,
    pub shutdown: CancellationToken,
    sealer: Arc<Sealer>,
    folder: tempfile::TempDir,
}

impl World {
    pub async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&data, SqliteSettings::default()).unwrap());
        let sealer = Arc::new(Sealer::new("k1", &[7; 32]));
        let (index, _writer) = Index::start(store.clone(), sealer.clone()).await.unwrap();
        let timing = Timing {
            health: Duration::from_millis(200),
            files: Duration::from_secs(1),
            probe: Duration::from_secs(300),
            grace: Duration::from_secs(2),
            backoff: (Duration::from_millis(100), Duration::from_millis(500)),
            probe_deadline: Duration::from_secs(60),
            calls: Deadlines { connect: Duration::from_secs(2), response: Duration::from_secs(10) },
        };
        let shutdown = CancellationToken::new();
        let clusters = Clusters::start_with(index.clone(), store.clone(), timing, shutdown.clone());
        Self { store, index, clusters, shutdown, sealer, folder }
    }

    pub async fn add(&self, name: &str, direct: &DirectConnection, kube_system_uid: &str, tokens: (&str, &str)) {
        let uid = uid(name);
        let mut cluster = Cluster::new(
            name,
            ClusterSpec {
                display_name: None,
                connection: Connection { direct: Some(direct.clone()) },
                accepted_versions: None,
                tenant_api_groups: vec![],
            },
        );
        cluster.metadata.uid = Some(uid.clone());
        self.put(Kind::Cluster, name, serde_json::to_value(&cluster).unwrap()).await;
        let credential = ClusterCredential {
            cluster_uid: uid.clone(),
            endpoint_digest: digest(direct),
            kube_system_uid: kube_system_uid.into(),
            forwarding: tokens.0.into(),
            housekeeping: tokens.1.into(),
        };
        let key = Key::new(Kind::ClusterCredential, name);
        let sealed = self.sealer.seal(&key, Binding { uid: &uid, version: 1 }, &credential).unwrap();
        self.store.create(key, sealed).await.unwrap();
    }

    /// Imports a cluster as `cluster import` does, reached at another address where one is given, and waits until it is
    /// usable.
    pub async fn import(&self, name: &str, site: &Site, at: Option<SocketAddr>) {
        let mut imported = import::read(&site.folder.join("admin.kubeconfig"), None).await.unwrap();
        if let Some(at) = at {
            imported.connection.server = format!("https://{at}");
        }
        self.add(name, &imported.connection, &imported.kube_system_uid, site.tokens()).await;
        self.observed("usable", name, |seen| seen.usable).await;
    }

    /// Creates an object and waits until decisions see it.
    pub async fn put(&self, kind: Kind, name: &str, value: Value) {
        let revision = self.store.create(Key::new(kind, name), value.to_string().into()).await.unwrap();
        self.index.applied(revision).await.unwrap();
    }

    pub async fn observed(
        &self,
        what: &str,
        name: &str,
        is: impl Fn(&ObservedCluster) -> bool,
    ) -> Arc<ObservedCluster> {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let seen = self.index.snapshot().observed(name).cloned();
            if let Some(seen) = seen.clone().filter(|seen| is(seen)) {
                return seen;
            }
            let last = seen.map(|seen| (seen.usable, seen.reason.clone()));
            assert!(Instant::now() < deadline, "waited in vain for {name}: {what}; last seen {last:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub async fn status(&self, name: &str) -> ClusterStatus {
        let entry = self.store.get(&Key::new(Kind::Cluster, name)).await.unwrap().unwrap();
        serde_json::from_slice::<Cluster>(&entry.value).unwrap().status.unwrap_or_default()
    }

    /// Waits until a condition of a cluster has this status.
    pub async fn condition(&self, name: &str, type_: &str, status: &str) -> Condition {
        until(&format!("{type_} of {name} is {status}"), || async {
            let found = self.status(name).await.conditions.into_iter().find(|c| c.type_ == type_)?;
            (found.status == status).then_some(found)
        })
        .await
    }

    /// Changes a spec as the API would, against the manager's own writes.
    pub async fn change(&self, name: &str, change: impl Fn(&mut ClusterSpec)) {
        let key = Key::new(Kind::Cluster, name);
        until("the cluster is changed", || async {
            let entry = self.store.get(&key).await.unwrap().unwrap();
            let mut cluster: Cluster = serde_json::from_slice(&entry.value).unwrap();
            change(&mut cluster.spec);
            let value = serde_json::to_vec(&cluster).unwrap().into();
            self.store.update(key.clone(), entry.revision, value).await.ok()
        })
        .await;
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

/// The whole service: [`World`], the controllers, and the proxy on a port.
pub struct Platform {
    pub world: World,
    pub controllers: Arc<Controllers>,
    pub proxy: Arc<Proxy>,
    address: SocketAddr,
    ca: String,
}

impl Platform {
    pub async fn start() -> Self {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let world = World::new().await;
        let World { store, index, clusters, shutdown, folder, .. } = &world;
        let metrics = Arc::new(Metrics::new());
        let controllers = Controllers::start(
            index.clone(),
            store.clone(),
            clusters.clone(),
            Arc::new(Tenancy::new(store.clone(), index.clone())),
            metrics.clone(),
            shutdown.clone(),
        );
        let proxy = Proxy::new(ProxyParts {
            index: index.clone(),
            upstreams: clusters.clone(),
            audit: Audit::open(&folder.path().join("audit"), AuditSettings::default()).unwrap(),
            metrics: metrics.clone(),
            last_used: Arc::new(LastUsed::new(store.clone(), index.clone())),
            settings: ProxySettings::default(),
            namespaces: None,
        });
        tokio::spawn(proxy.clone().judge());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let pki = Pki::new();
        let mut server = pki.server();
        server.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let doors =
            Arc::new(Doors { proxy: proxy.clone(), api: axum::Router::new(), trusted_proxies: vec![], metrics });
        let grace = Duration::from_secs(1);
        tokio::spawn(listener::serve(listener, Arc::new(server), doors, shutdown.clone(), grace));
        Self { world, controllers, proxy, address, ca: pki.ca_pem }
    }

    /// A project with these namespaces on a cluster.
    pub async fn project(&self, name: &str, cluster: &str, namespaces: &[&str]) {
        let spec = json!({"clusters": [{
            "cluster": cluster, "namespaces": namespaces, "prefix": format!("{name}-"), "maxNamespaces": 4,
            "quota": {"pods": "8"},
        }]});
        let metadata = json!({"name": name, "uid": uid(name)});
        let project = json!({"apiVersion": API, "kind": "Project", "metadata": metadata, "spec": spec});
        self.world.put(Kind::Project, name, project).await;
        for namespace in namespaces {
            self.ready(name, namespace).await;
        }
    }

    /// Waits until a namespace is as its project wants it.
    pub async fn ready(&self, project: &str, namespace: &str) {
        until(&format!("{namespace} of {project} is ready"), || async {
            let entry = self.world.store.get(&Key::new(Kind::Project, project)).await.unwrap().unwrap();
            let project: Value = serde_json::from_slice(&entry.value).unwrap();
            let states = project["status"]["namespaces"].as_array()?;
            states.iter().any(|state| state["name"] == namespace && state["state"] == "Ready").then_some(())
        })
        .await;
    }

    /// An account with a role on something (`Project` or `Cluster`), and the kubeconfig of a new token of its.
    pub async fn person(&self, name: &str, role: &str, target: (&str, &str)) -> PathBuf {
        let user = json!({"apiVersion": API, "kind": "User", "metadata": {"name": name, "uid": uid(name)}, "spec": {}});
        self.world.put(Kind::User, name, user).await;
        let grant = json!({
            "apiVersion": API, "kind": "Grant", "metadata": {"name": name, "uid": format!("grant-{name}")},
            "spec": {
                "subject": {"kind": "User", "name": name}, "role": role,
                "target": {"kind": target.0, "name": target.1},
            },
            "status": {"state": "Active", "subjectUID": uid(name), "targetUID": uid(target.1)},
        });
        self.world.put(Kind::Grant, name, grant).await;
        self.kubeconfig(name).await
    }

    /// The kubeconfig of a new token of an account.
    pub async fn kubeconfig(&self, name: &str) -> PathBuf {
        let token = issue(&*self.world.store, &self.world.sealer, &self.world.index, name, &uid(name), |_| {}).await;

        let clusters: Vec<String> = self.world.index.snapshot().clusters.keys().map(ToString::to_string).collect();
        let ca = STANDARD.encode(&self.ca);
        let place = |cluster: &String| {
            let server = format!("https://{}/k8s/clusters/{cluster}", self.address);
            json!({"name": cluster, "cluster": {"server": server, "certificate-authority-data": ca}})
        };
        let context = |cluster: &String| json!({"name": cluster, "context": {"cluster": cluster, "user": name}});
        let config = json!({
            "apiVersion": "v1", "kind": "Config",
            "clusters": clusters.iter().map(place).collect::<Vec<_>>(),
            "users": [{"name": name, "user": {"token": token}}],
            "contexts": clusters.iter().map(context).collect::<Vec<_>>(),
        });
        let file = self.world.folder.path().join(format!("{name}.kubeconfig"));
        std::fs::write(&file, config.to_string()).unwrap();
        file
    }
}

/// kubectl of a person on a cluster, through the proxy. `site` only lends the program.
pub fn through(site: &Site, person: &std::path::Path, cluster: &str, args: &str) -> Command {
    let mut command = kubectl(&site.folder, person);
    command.args(["--context", cluster]).args(args.split(' '));
    command
}

/// UID of a resource, from its name: the first eight characters differ, since groups carry them.
pub fn uid(name: &str) -> String {
    let eight = name.bytes().fold(0x811c_9dc5u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    format!("{eight:08x}-0000-4000-8000-000000000000")
}
