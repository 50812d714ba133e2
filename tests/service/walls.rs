//! Two walls: each holds when the other one is open.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use bailiwick::audit::{Audit, AuditSettings};
use bailiwick::clusters::endpoint::Endpoint;
use bailiwick::clusters::upstream::{Upstream, Upstreams};
use bailiwick::domain::names::uid8;
use bailiwick::identity::last_used::LastUsed;
use bailiwick::index::{Index, Observation, ObservedCluster};
use bailiwick::listener::{self, Doors};
use bailiwick::metrics::Metrics;
use bailiwick::proxy::decide::PermitEverything;
use bailiwick::proxy::{Proxy, ProxyParts, ProxySettings};
use bailiwick::records::{Claim, ClaimOrigin};
use bailiwick::resources::cluster::DirectConnection;
use bailiwick::store::sealed::Sealer;
use bailiwick::store::sqlite::{SqliteSettings, SqliteStore};
use bailiwick::store::{Key, Kind, Store};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::process::*;
use super::site::*;
use crate::proxy_harness::{Pki, issue};

/// The cluster's RBAC is open: the proxy refuses.
#[test]
fn an_open_cluster_does_not_open_the_proxy() {
    // Alone: what is opened here is open to everybody.
    let (site, _guard) = site_alone();
    let member = site.machine("open-cluster", &[("member", "work")]);
    let group = format!("bailiwick:project:work:{}:member", uid8(&site.uid("project", "work")));
    let opened = json!({"kind": "List", "apiVersion": "v1", "items": [
        binding("ClusterRoleBinding", "opened-tenants", "", "bailiwick:tenant"),
        binding("RoleBinding", "opened-member", "other-api", &group),
        binding("RoleBinding", "opened-member", "kube-system", &group),
    ]});
    let with = |verb: &[&str]| {
        let mut command = site.cluster_admin_command();
        command.args(verb).args(["-f", "-"]);
        run_with(command, opened.to_string().as_bytes())
    };
    let made = with(&["create"]);
    let refused = open_cluster_refusals(site, &member);
    // Across namespaces one's own are seen, and no others.
    let seen = ["get pods -A", "get secrets -A", "get namespaces"]
        .map(|act| (act, site.run(&member, "demo", &act.split(' ').collect::<Vec<_>>())));
    with(&["delete", "--ignore-not-found"]).ok();
    made.ok();
    for (act, answer) in seen {
        lacks(&answer.ok(), &["other-api", "kube-system"]);
        assert!(!act.is_empty());
    }
    for (act, answer) in refused {
        has(&answer.fails().to_lowercase(), &["forbidden"]);
        assert!(!act.is_empty());
    }
}

fn open_cluster_refusals(site: &Site, member: &Person) -> Vec<(String, Ran)> {
    let acts = [
        "-n other-api get pods",
        "-n other-api get secrets",
        "-n other-api exec busy -- true",
        "-n other-api create configmap x",
        "-n kube-system get secrets",
        "get nodes",
        "get --raw /api/v1/namespaces/other-api/pods/busy/log",
        "create clusterrolebinding mine --clusterrole=cluster-admin --user=bailiwick:user:open-cluster",
        "create namespace stolen",
        "-n work-pods create quota more --hard=pods=1",
        "-n work-pods create rolebinding mine --clusterrole=cluster-admin --user=bailiwick:user:open-cluster",
    ];
    let run = |act: &&str| (act.to_string(), site.run(member, "demo", &act.split(' ').collect::<Vec<_>>()));
    acts.iter().map(run).collect()
}

fn binding(kind: &str, name: &str, namespace: &str, group: &str) -> Value {
    let mut metadata = json!({"name": name});
    if !namespace.is_empty() {
        metadata["namespace"] = namespace.into();
    }
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": metadata,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}],
    })
}

/// The proxy permits everything: the cluster refuses.
#[test]
fn an_open_proxy_does_not_open_the_cluster() {
    let (site, _guard) = site();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let open = runtime.block_on(OpenProxy::start(site));
    let kubectl = |act: &str| {
        let mut command = Command::new(site.folder.join("cluster/bin/kubectl"));
        command.args(act.split(' ')).env("KUBECONFIG", &open.kubeconfig).env("HOME", site.folder.join("home"));
        run(command)
    };
    // The way is open: what the role gives works.
    has(&kubectl("-n work-pods get pods").ok(), &["busy"]);
    kubectl("-n work-pods exec busy -- true").ok();
    kubectl("-n work-pods get secrets").ok();
    // Across namespaces the groups come from what is one's own, whatever the permit says.
    lacks(&kubectl("get pods -A").ok(), &["other-api", "kube-system"]);
    for act in [
        "-n other-api get pods",
        "-n other-api get secrets",
        "-n other-api exec busy -- true",
        "-n other-api create configmap x",
        "-n other-api delete pod busy",
        "-n kube-system get secrets",
        "-n kube-system get configmaps",
        "-n bailiwick-system get secrets",
        "-n bailiwick-system create token forwarding",
        "-n default get pods",
        "get nodes",
        "get clusterroles",
        "create namespace stolen",
        "create clusterrolebinding mine --clusterrole=cluster-admin --user=bailiwick:user:forced",
        "-n work-pods create rolebinding mine --clusterrole=view --user=bailiwick:user:forced",
        "-n work-pods create role mine --verb=get --resource=pods",
        "-n work-pods create quota more --hard=pods=1",
        "-n work-pods delete resourcequotas --all",
        "-n work-pods delete rolebindings --all",
        "-n work-pods get --raw /api/v1/namespaces/work-pods/pods/busy/proxy",
        "label namespace work-pods pod-security.kubernetes.io/enforce=privileged --overwrite",
        "delete namespace work-pods",
        "delete validatingadmissionpolicy --all",
    ] {
        has(&kubectl(act).fails().to_lowercase(), &["forbidden"]);
    }
    // The refusals are the cluster's own.
    has(&kubectl("-n other-api get pods").fails(), &["User \"bailiwick:user:forced\" cannot list resource \"pods\""]);
    site.cluster_admin(&["-n", "work-pods", "get", "resourcequota,rolebinding", "-o", "name"]).ok();
    open.shutdown.cancel();
    runtime.shutdown_timeout(Duration::from_secs(5));
}

/// A proxy in this process that permits everything, before the real cluster, with the forwarding account's own token.
struct OpenProxy {
    kubeconfig: PathBuf,
    shutdown: CancellationToken,
    _folder: tempfile::TempDir,
}

struct One(Arc<Upstream>);

impl Upstreams for One {
    fn upstream(&self, cluster: &str) -> Option<Arc<Upstream>> {
        (cluster == CLUSTER).then(|| self.0.clone())
    }

    fn own(&self, _: &str) -> Option<Arc<Upstream>> {
        None
    }
}

impl OpenProxy {
    async fn start(site: &Site) -> Self {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let folder = tempfile::tempdir().unwrap();
        let store: Arc<dyn Store> =
            Arc::new(SqliteStore::open(&folder.path().join("data"), SqliteSettings::default()).unwrap());
        let sealer = Arc::new(Sealer::new("k", &[7; 32]));
        let namespaces = namespaces(site);
        let project = site.uid("project", "work");
        platform(&*store, &project, &namespaces).await;
        let (index, _) = Index::start(store.clone(), sealer.clone()).await.unwrap();
        let observed = ObservedCluster {
            cluster_uid: "cluster".into(),
            usable: true,
            namespaces: namespaces.iter().map(|(name, uid)| (Arc::from(&**name), Arc::from(&**uid))).collect(),
            ..ObservedCluster::default()
        };
        let seen = Some(Arc::new(observed));
        index.observe_applied(Observation { cluster: CLUSTER.into(), seen }).await.unwrap();
        let token = issue(&*store, &sealer, &index, "forced", "uid-forced", |_| {}).await;

        let config = kube::config::Kubeconfig::read_from(&site.kubeconfig).unwrap();
        let cluster = config.clusters[0].cluster.clone().unwrap();
        let ca = match (cluster.certificate_authority_data, cluster.certificate_authority) {
            (Some(data), _) => String::from_utf8(STANDARD.decode(data).unwrap()).unwrap(),
            (None, file) => std::fs::read_to_string(file.unwrap()).unwrap(),
        };
        let direct = DirectConnection {
            server: cluster.server.unwrap(),
            certificate_authority: ca,
            tls_server_name: None,
            credential_from: None,
        };
        let credential =
            ["-n", "bailiwick-system", "get", "secret", "forwarding-token", "-o", "jsonpath={.data.token}"];
        let credential = String::from_utf8(STANDARD.decode(site.cluster_admin(&credential).ok()).unwrap()).unwrap();
        let upstream = Upstream::new(&Endpoint::from_direct(&direct).unwrap(), &credential).unwrap();
        let metrics = Arc::new(Metrics::new());
        let parts = ProxyParts {
            index: index.clone(),
            upstreams: Arc::new(One(Arc::new(upstream))),
            audit: Audit::open(&folder.path().join("audit"), AuditSettings::default()).unwrap(),
            metrics: metrics.clone(),
            last_used: Arc::new(LastUsed::new(store, index)),
            settings: ProxySettings::default(),
            namespaces: None,
        };
        let proxy = Proxy::with_decider(parts, Arc::new(PermitEverything));
        tokio::spawn(proxy.clone().judge());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let pki = Pki::new();
        let mut server = pki.server();
        server.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let doors = Arc::new(Doors { proxy, api: axum::Router::new(), trusted_proxies: vec![], metrics });
        let shutdown = CancellationToken::new();
        tokio::spawn(listener::serve(listener, Arc::new(server), doors, shutdown.clone(), Duration::from_secs(1)));
        let kubeconfig = folder.path().join("kubeconfig");
        std::fs::write(&kubeconfig, kubeconfig_for(address, &pki.ca_pem, &token).to_string()).unwrap();
        Self { kubeconfig, shutdown, _folder: folder }
    }
}

fn kubeconfig_for(address: SocketAddr, ca: &str, token: &str) -> Value {
    let server = format!("https://{address}/k8s/clusters/{CLUSTER}");
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": server, "certificate-authority-data": STANDARD.encode(ca)}}],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    })
}

/// Names and UIDs of all namespaces of the cluster.
fn namespaces(site: &Site) -> Vec<(String, String)> {
    let list = site.cluster_admin(&["get", "namespaces", "-o", "json"]).ok();
    let list: Value = serde_json::from_str(&list).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let items = list["items"].as_array().unwrap().iter();
    items.map(|item| (text(&item["metadata"]["name"]), text(&item["metadata"]["uid"]))).collect()
}

/// The project as the real service has it, and a member of it.
async fn platform(store: &dyn Store, project_uid: &str, namespaces: &[(String, String)]) {
    let api = "bailiwick.dev/v1alpha1";
    let claim = Claim {
        cluster: CLUSTER.into(),
        cluster_uid: "cluster".into(),
        namespace: "work-pods".into(),
        since: None,
        namespace_uid: namespaces.iter().find(|(name, _)| name == "work-pods").map(|(_, uid)| uid.clone()),
        project: "work".into(),
        project_uid: project_uid.into(),
        origin: ClaimOrigin::Declared,
        releasing: false,
        adopt: false,
        created_by: "test".into(),
        created_at: "2026-01-01T00:00:00Z".into(),
    };
    let objects = [
        (
            Kind::Cluster,
            CLUSTER.to_owned(),
            json!({"apiVersion": api, "kind": "Cluster",
            "metadata": {"name": CLUSTER, "uid": "cluster"}, "spec": {"connection": {}}}),
        ),
        (
            Kind::User,
            "forced".to_owned(),
            json!({"apiVersion": api, "kind": "User",
            "metadata": {"name": "forced", "uid": "uid-forced"}, "spec": {}}),
        ),
        (
            Kind::Project,
            "work".to_owned(),
            json!({"apiVersion": api, "kind": "Project",
            "metadata": {"name": "work", "uid": project_uid},
            "spec": {"clusters": [{"cluster": CLUSTER, "namespaces": ["work-pods"]}]}}),
        ),
        (Kind::Claim, Claim::key_name(CLUSTER, "work-pods"), serde_json::to_value(claim).unwrap()),
        (
            Kind::Grant,
            "g".to_owned(),
            json!({"apiVersion": api, "kind": "Grant", "metadata": {"name": "g", "uid": "g"},
            "spec": {"subject": {"kind": "User", "name": "forced"}, "role": "member",
                     "target": {"kind": "Project", "name": "work"}},
            "status": {"state": "Active", "subjectUID": "uid-forced", "targetUID": project_uid}}),
        ),
    ];
    for (kind, name, value) in objects {
        store.create(Key::new(kind, name), value.to_string().into()).await.unwrap();
    }
}
