//! The controllers against a real cluster with the guards in force: what projects want appears, stays and goes.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bailiwick::clock;
use bailiwick::clusters::names::*;
use bailiwick::controllers::{ActError, Controllers, HousekeepingClients, NamespaceActs, Pace};
use bailiwick::domain::names::{cluster_group, kubernetes_user, project_group};
use bailiwick::index::{Index, Observation, ObservedCluster};
use bailiwick::metrics::Metrics;
use bailiwick::records::ClusterCredential;
use bailiwick::store::sealed::{Binding, Sealer};
use bailiwick::store::sqlite::{SqliteSettings, SqliteStore};
use bailiwick::store::{Key, Kind, Store};
use bailiwick::tenancy::{Tenancy, TenancyError};
use bytes::Bytes;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::ask::*;
use super::harness::*;
use super::{adoption, appliers};

const CLUSTER_UID: &str = "c1d2e3f4-0000-4000-8000-000000000000";
/// "Within seconds".
const SOON: Duration = Duration::from_secs(5);

/// The service as far as controllers are concerned, over one real cluster.
pub struct Service {
    pub site: &'static Site,
    pub store: Arc<dyn Store>,
    pub index: Arc<Index>,
    pub tenancy: Arc<Tenancy>,
    pub controllers: Arc<Controllers>,
    pub metrics: Arc<Metrics>,
    pub reachable: Arc<AtomicBool>,
    pub shutdown: CancellationToken,
    _folder: tempfile::TempDir,
}

struct Clients(kube::Client);

impl HousekeepingClients for Clients {
    fn housekeeping(&self, _cluster: &str) -> Option<kube::Client> {
        Some(self.0.clone())
    }
}

impl Service {
    async fn start() -> Self {
        let site = Site::constrained().await;
        let folder = tempfile::tempdir_in(Path::new(env!("CARGO_TARGET_TMPDIR"))).unwrap();
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(folder.path(), SqliteSettings::default()).unwrap());
        let sealer = Arc::new(Sealer::new("test", &[7; 32]));
        let cluster = json!({
            "apiVersion": "bailiwick.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": CLUSTER, "uid": CLUSTER_UID},
            "spec": {
                "connection": {"direct": {"server": site.server, "certificateAuthority": site.ca}},
                "tenantAPIGroups": [TENANT_API_GROUP, "unlisted.example.com"],
            },
        });
        store.create(Key::new(Kind::Cluster, CLUSTER), Bytes::from(cluster.to_string())).await.unwrap();
        let key = Key::new(Kind::ClusterCredential, CLUSTER);
        let credential = ClusterCredential {
            cluster_uid: CLUSTER_UID.into(),
            endpoint_digest: String::new(),
            kube_system_uid: String::new(),
            forwarding: "not used here".into(),
            housekeeping: "not used here".into(),
        };
        let sealed = sealer.seal(&key, Binding { uid: CLUSTER_UID, version: 1 }, &credential).unwrap();
        store.create(key, sealed).await.unwrap();
        let (index, _writer) = Index::start(store.clone(), sealer).await.unwrap();
        let tenancy = Arc::new(Tenancy::new(store.clone(), index.clone()));
        let reachable = Arc::new(AtomicBool::new(true));
        let shutdown = CancellationToken::new();
        tokio::spawn(observe(site, index.clone(), reachable.clone(), shutdown.clone()));
        let clients = Arc::new(Clients(site.housekeeping().await.client));
        let metrics = Arc::new(Metrics::new());
        // As ever, only with less patience.
        let pace = Pace {
            pause: (Duration::from_millis(500), Duration::from_secs(2)),
            quiet: Duration::from_secs(2),
            ..Pace::default()
        };
        let controllers = Controllers::start_with(
            index.clone(),
            store.clone(),
            clients,
            tenancy.clone(),
            metrics.clone(),
            pace,
            shutdown.clone(),
        );
        Self { site, store, index, tenancy, controllers, metrics, reachable, shutdown, _folder: folder }
    }

    pub async fn put(&self, project: &Value) {
        let key = Key::new(Kind::Project, project["metadata"]["name"].as_str().unwrap());
        loop {
            let mut project = project.clone();
            let written = match self.store.get(&key).await.unwrap() {
                None => self.store.create(key.clone(), Bytes::from(project.to_string())).await,
                Some(old) => {
                    let before: Value = serde_json::from_slice(&old.value).unwrap();
                    project["status"] = before["status"].clone();
                    self.store.update(key.clone(), old.revision, Bytes::from(project.to_string())).await
                }
            };
            // The status writer may be faster.
            if written.is_ok() {
                return;
            }
        }
    }

    pub async fn status(&self, project: &str, namespace: &str) -> Value {
        let entry = self.store.get(&Key::new(Kind::Project, project)).await.unwrap().unwrap();
        let project: Value = serde_json::from_slice(&entry.value).unwrap();
        let namespaces = project["status"]["namespaces"].as_array().cloned().unwrap_or_default();
        namespaces.into_iter().find(|status| status["name"] == namespace).unwrap_or_default()
    }

    /// A condition of a project, once it has this status.
    pub async fn condition(&self, project: &str, type_: &str, status: &str) -> Value {
        until(&format!("{type_} of {project} is {status}"), || async {
            let entry = self.store.get(&Key::new(Kind::Project, project)).await.unwrap().unwrap();
            let found: Value = serde_json::from_slice(&entry.value).unwrap();
            let conditions = found["status"]["conditions"].as_array().cloned().unwrap_or_default();
            conditions.into_iter().find(|condition| condition["type"] == type_ && condition["status"] == status)
        })
        .await
    }

    pub async fn in_state(&self, project: &str, namespace: &str, state: &str) -> Value {
        until(&format!("{namespace} of {project} is {state}"), || async {
            let status = self.status(project, namespace).await;
            (status["state"] == state).then_some(status)
        })
        .await
    }

    /// Somebody with a group, through the forwarding account as the proxy would send it.
    async fn person(&self, group: &str) -> Actor {
        self.site.impersonating(&kubernetes_user("jane"), &[group]).await
    }

    fn cut(&self, reachable: bool) {
        self.reachable.store(reachable, Ordering::SeqCst);
    }
}

/// Stands in for the observation of clusters.
async fn observe(site: &'static Site, index: Arc<Index>, reachable: Arc<AtomicBool>, shutdown: CancellationToken) {
    let admin = site.admin().await;
    while !shutdown.is_cancelled() {
        let list = admin.must(get("/api/v1/namespaces")).await;
        let mut seen = ObservedCluster {
            cluster_uid: CLUSTER_UID.into(),
            version: Some((1, 36)),
            usable: reachable.load(Ordering::SeqCst),
            reason: "cut off by the test".into(),
            ..ObservedCluster::default()
        };
        for item in list["items"].as_array().unwrap() {
            if item["metadata"]["deletionTimestamp"].is_null() {
                let text = |field: &str| item["metadata"][field].as_str().unwrap().to_owned();
                seen.namespaces.insert(text("name").into(), text("uid").into());
            }
        }
        index.observe(Observation { cluster: CLUSTER.into(), seen: Some(Arc::new(seen)) });
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

pub fn uid(project: &str) -> String {
    let eight = project.bytes().fold(0x811c_9dc5u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    format!("{eight:08x}-0000-4000-8000-000000000000")
}

pub fn project(name: &str, declared: &[&str], more: Value) -> Value {
    let mut project = json!({
        "apiVersion": "bailiwick.dev/v1alpha1", "kind": "Project", "metadata": {"name": name, "uid": uid(name)},
        "spec": {"clusters": [{
            "cluster": CLUSTER, "namespaces": declared, "prefix": format!("{name}-"), "maxNamespaces": 3,
            "quota": {"pods": "12", "requests.cpu": "3"},
        }]},
    });
    merged(&mut project["spec"], &more);
    project
}

fn group_of(project: &str, role: &str) -> String {
    project_group(project, &uid(project), role)
}

fn pods(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/pods")
}

/// Waits no longer than [`SOON`].
pub async fn soon<F: Future<Output = bool>>(what: &str, mut ask: impl FnMut() -> F) {
    let start = Instant::now();
    while !ask().await {
        assert!(start.elapsed() < SOON, "not within {SOON:?}: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn projects_are_kept_true_in_a_real_cluster() {
    let service = Service::start().await;
    a_project_appears(&service).await;
    drift_is_reverted(&service).await;
    isolation_comes_and_goes(&service).await;
    creating_answers_when_access_is_effective(&service).await;
    of_fifty_creations_for_three_places_three_succeed(&service).await;
    what_strangers_made_is_left_alone(&service).await;
    nothing_is_written_while_nothing_changes(&service).await;
    a_deleted_project_is_cleaned_up(&service).await;
    appliers::another_applier_of_other_fields_is_no_matter(&service).await;
    appliers::another_applier_of_our_fields_is_named_and_left_alone_for_a_while(&service).await;
    appliers::a_policy_that_opens_isolation_is_named(&service).await;
    adoption::a_namespace_is_adopted_after_a_report_and_given_back_as_it_was(&service).await;
    adoption::a_declared_namespace_waits_with_its_report_and_what_we_made_is_not_given_back(&service).await;
    a_move_leaves_no_right_behind(&service).await;
    what_is_no_longer_declared_goes(&service).await;
    a_name_is_reserved_while_a_cluster_is_out_of_reach(&service).await;
    after_forgetting_nothing_is_handed_over(&service).await;
    roles_stay_within_reach(&service).await;
    service.shutdown.cancel();
    service.controllers.stop().await;
}

async fn a_project_appears(service: &Service) {
    let defaults = json!({"requests": {"cpu": "100m"}, "limits": {"memory": "128Mi"}});
    service.put(&project("orchard", &["orchard"], json!({"containerDefaults": defaults}))).await;
    service.in_state("orchard", "orchard", "Ready").await;
    let admin = service.site.admin().await;
    let namespace = admin.must(get("/api/v1/namespaces/orchard")).await;
    let labels = &namespace["metadata"]["labels"];
    assert_eq!(labels[PROJECT], "orchard");
    assert_eq!(labels[PROJECT_UID], json!(uid("orchard")));
    assert_eq!(labels[POD_SECURITY[0]], "baseline");
    assert_eq!(labels[POD_SECURITY[1]], "restricted");
    let quota = admin.must(get("/api/v1/namespaces/orchard/resourcequotas/bailiwick")).await;
    assert_eq!((&quota["spec"]["hard"]["pods"], &quota["spec"]["hard"]["requests.cpu"]), (&json!("4"), &json!("1")));
    let limits = admin.must(get("/api/v1/namespaces/orchard/limitranges/bailiwick")).await;
    assert_eq!(limits["spec"]["limits"][0]["default"]["memory"], "128Mi");
    let bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/orchard/rolebindings";
    let names = admin.must(get(bindings)).await;
    let names: Vec<_> = names["items"].as_array().unwrap().iter().map(|b| b["metadata"]["name"].clone()).collect();
    assert_eq!(
        names,
        ["bailiwick:forward:on", "bailiwick:role:member", "bailiwick:role:owner", "bailiwick:role:viewer"]
    );
    // Each role by its group, the cluster's group beside it, and nobody else.
    let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}});
    let configs = "/api/v1/namespaces/orchard/configmaps";
    for group in [group_of("orchard", "member"), cluster_group(CLUSTER, CLUSTER_UID, "member")] {
        let member = service.person(&group).await;
        member.allowed([get(pods("orchard")), create(configs, config.clone()).dry()]).await;
    }
    let viewer = service.person(&group_of("orchard", "viewer")).await;
    viewer.allowed([get(pods("orchard"))]).await;
    viewer.refused("cannot create resource", [create(configs, config.clone()).dry()]).await;
    let stranger = service.person(&project_group("orchard", "ffffffff", "member")).await;
    stranger.refused("cannot list resource", [get(pods("orchard"))]).await;
    until("the quota's use is shown", || async {
        let status = service.status("orchard", "orchard").await;
        (status["hard"]["pods"] == "4" && status["used"]["pods"] == "0").then_some(())
    })
    .await;
}

async fn drift_is_reverted(service: &Service) {
    let admin = service.site.admin().await;
    let quota = "/api/v1/namespaces/orchard/resourcequotas/bailiwick";
    admin.must(merge(quota, json!({"spec": {"hard": {"pods": "400", "services": "9"}}}))).await;
    soon("the quota is as before", || async {
        let hard = admin.must(get(quota)).await["spec"]["hard"].clone();
        hard["pods"] == "4" && hard["services"].is_null()
    })
    .await;
    let binding = "/apis/rbac.authorization.k8s.io/v1/namespaces/orchard/rolebindings/bailiwick:role:member";
    admin.must(delete(binding)).await;
    soon("the binding is back", || async { admin.send(&get(binding)).await.status == 200 }).await;
    let evil = json!({"subjects": [group_subject("everybody")]});
    admin.must(merge(binding, evil)).await;
    soon("the binding names whom it must", || async {
        admin.must(get(binding)).await["subjects"][0]["name"] == json!(group_of("orchard", "member"))
    })
    .await;
    let namespace = "/api/v1/namespaces/orchard";
    let weaker = json!({"metadata": {"labels": {POD_SECURITY[0]: "privileged", "tenant.bailiwick.dev/x": "1"}}});
    admin.must(merge(namespace, weaker)).await;
    soon("Pod Security is as before", || async {
        admin.must(get(namespace)).await["metadata"]["labels"][POD_SECURITY[0]] == "baseline"
    })
    .await;
    // What tenants may set stays.
    assert_eq!(admin.must(get(namespace)).await["metadata"]["labels"]["tenant.bailiwick.dev/x"], "1");
    let role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/bailiwick:role:viewer";
    let all = json!({"rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]});
    admin.must(merge(role, all)).await;
    soon("the role is as before", || async { admin.must(get(role)).await["rules"].as_array().unwrap().len() > 1 })
        .await;
}

async fn isolation_comes_and_goes(service: &Service) {
    let admin = service.site.admin().await;
    let policy = "/apis/networking.k8s.io/v1/namespaces/orchard/networkpolicies/bailiwick";
    service.put(&project("orchard", &["orchard"], json!({"networkIsolation": "Project"}))).await;
    soon("the policy is there", || async { admin.send(&get(policy)).await.status == 200 }).await;
    let found = admin.must(get(policy)).await;
    assert_eq!(found["spec"]["policyTypes"], json!(["Ingress", "Egress"]));
    let label = admin.must(get("/api/v1/namespaces/orchard")).await["metadata"]["labels"][ISOLATION].clone();
    assert_eq!(label, "project");
    // The LimitRange of the spec before is gone with it.
    soon("the limits are gone", || async {
        admin.send(&get("/api/v1/namespaces/orchard/limitranges/bailiwick")).await.status == 404
    })
    .await;
    service.put(&project("orchard", &["orchard"], json!({}))).await;
    soon("the policy is gone", || async { admin.send(&get(policy)).await.status == 404 }).await;
    soon("the label is gone", || async {
        admin.must(get("/api/v1/namespaces/orchard")).await["metadata"]["labels"][ISOLATION] == "none"
    })
    .await;
}

async fn creating_answers_when_access_is_effective(service: &Service) {
    let member = service.person(&group_of("orchard", "member")).await;
    let state = service.controllers.create("orchard", CLUSTER, "orchard-new", "jane", clock::now()).await.unwrap();
    assert_eq!(state.message, "");
    member.allowed([get(pods("orchard-new"))]).await;
    let claim = service.index.snapshot().claim(CLUSTER, "orchard-new").unwrap().object.clone();
    assert!(claim.namespace_uid.is_some());
    service.controllers.delete("orchard", CLUSTER, "orchard-new", "jane").await.unwrap();
    soon("rights are gone", || async { member.send(&get(pods("orchard-new"))).await.status == 403 }).await;
    until("the claim is gone", || async {
        service.index.snapshot().claim(CLUSTER, "orchard-new").is_none().then_some(())
    })
    .await;
    let admin = service.site.admin().await;
    assert_eq!(admin.send(&get("/api/v1/namespaces/orchard-new")).await.status, 404);
}

async fn of_fifty_creations_for_three_places_three_succeed(service: &Service) {
    service.put(&project("hill", &[], json!({}))).await;
    let all = (0..50).map(|at| {
        let acts = service.controllers.clone();
        async move { acts.create("hill", CLUSTER, &format!("hill-{at}"), "jane", clock::now()).await }
    });
    let results = futures::future::join_all(all).await;
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 3);
    for refused in results.iter().filter_map(|result| result.as_ref().err()) {
        assert!(matches!(refused, ActError::Tenancy(TenancyError::Full { max: 3, .. })), "{refused}");
    }
    let admin = service.site.admin().await;
    let selector = format!("/api/v1/namespaces?labelSelector={PROJECT}%3Dhill");
    assert_eq!(admin.must(get(&selector)).await["items"].as_array().unwrap().len(), 3);
    let quotas = format!("/api/v1/resourcequotas?labelSelector={MANAGED}");
    let quotas = admin.must(get(quotas)).await;
    let pods = quotas["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|quota| quota["metadata"]["namespace"].as_str().unwrap().starts_with("hill-"));
    let sum: u32 = pods.map(|quota| quota["spec"]["hard"]["pods"].as_str().unwrap().parse::<u32>().unwrap()).sum();
    assert_eq!(sum, 12);
}

async fn nothing_is_written_while_nothing_changes(service: &Service) {
    let admin = service.site.admin().await;
    let look = || async {
        let mut versions = vec![service.store.revision().await.unwrap().to_string()];
        for path in [
            "/api/v1/namespaces/orchard",
            "/apis/rbac.authorization.k8s.io/v1/namespaces/orchard/rolebindings/bailiwick:role:owner",
        ] {
            versions.push(admin.must(get(path)).await["metadata"]["resourceVersion"].to_string());
        }
        versions
    };
    // Counting may still be under way; two seconds without a write must come.
    let mut before = look().await;
    let mut quiet = Instant::now();
    let start = Instant::now();
    while quiet.elapsed() < Duration::from_secs(2) {
        let now = look().await;
        if now != before {
            (before, quiet) = (now, Instant::now());
        }
        assert!(start.elapsed() < Duration::from_secs(25), "something is written again and again");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn a_deleted_project_is_cleaned_up(service: &Service) {
    service.tenancy.delete_project("hill", None, clock::now()).await.unwrap();
    until("the project is gone from the cluster", || async {
        (!service.tenancy.name_is_reserved("hill").await.unwrap()).then_some(())
    })
    .await;
}

async fn what_strangers_made_is_left_alone(service: &Service) {
    let admin = service.site.admin().await;
    let path = "/api/v1/namespaces/orchard-old";
    admin.must(create("/api/v1/namespaces", plain_namespace("orchard-old"))).await;
    let before = admin.must(get(path)).await["metadata"]["uid"].clone();
    let refused = service.controllers.create("orchard", CLUSTER, "orchard-old", "jane", clock::now()).await;
    assert!(matches!(&refused, Err(ActError::Refused(why)) if why.contains("left alone")), "{refused:?}");
    until("the claim is given up", || async {
        service.index.snapshot().claim(CLUSTER, "orchard-old").is_none().then_some(())
    })
    .await;
    service.put(&project("orchard", &["orchard", "orchard-old"], json!({}))).await;
    service.in_state("orchard", "orchard-old", "Refused").await;
    let after = admin.must(get(path)).await;
    assert_eq!(after["metadata"]["uid"], before);
    assert!(after["metadata"]["labels"][PROJECT].is_null(), "{after}");
    service.put(&project("orchard", &["orchard"], json!({}))).await;
    until("the claim is given up again", || async {
        service.index.snapshot().claim(CLUSTER, "orchard-old").is_none().then_some(())
    })
    .await;
    assert_eq!(admin.must(get(path)).await["metadata"]["uid"], before);
    assert!(admin.must(get(path)).await["metadata"]["deletionTimestamp"].is_null());
}

async fn a_move_leaves_no_right_behind(service: &Service) {
    service.put(&project("meadow", &[], json!({"podSecurity": {"enforce": "restricted"}}))).await;
    until("the project is known", || async { service.index.snapshot().projects.get("meadow").map(|_| ()) }).await;
    service.controllers.create("orchard", CLUSTER, "orchard-moves", "jane", clock::now()).await.unwrap();
    let before = service.person(&group_of("orchard", "owner")).await;
    let after = service.person(&group_of("meadow", "owner")).await;
    before.allowed([get(pods("orchard-moves"))]).await;
    after.refused("cannot list resource", [get(pods("orchard-moves"))]).await;
    let moved = service
        .controllers
        .relocate(CLUSTER, "orchard-moves", "orchard", "meadow", "root", clock::now())
        .await
        .unwrap();
    assert_eq!(moved.project_uid, uid("meadow"));
    before.refused("cannot list resource", [get(pods("orchard-moves"))]).await;
    after.allowed([get(pods("orchard-moves"))]).await;
    let admin = service.site.admin().await;
    let path = "/apis/rbac.authorization.k8s.io/v1/namespaces/orchard-moves/rolebindings";
    assert!(!admin.send(&get(path)).await.text.contains(":orchard:"));
    let labels = admin.must(get("/api/v1/namespaces/orchard-moves")).await["metadata"]["labels"].clone();
    assert_eq!((&labels[PROJECT], &labels[POD_SECURITY[0]]), (&json!("meadow"), &json!("restricted")));
    service.controllers.delete("meadow", CLUSTER, "orchard-moves", "root").await.unwrap();
    until("the moved namespace is gone", || async {
        (admin.send(&get("/api/v1/namespaces/orchard-moves")).await.status == 404).then_some(())
    })
    .await;
}

async fn what_is_no_longer_declared_goes(service: &Service) {
    service.put(&project("orchard", &["orchard", "orchard-two"], json!({}))).await;
    service.in_state("orchard", "orchard-two", "Ready").await;
    service.put(&project("orchard", &["orchard"], json!({}))).await;
    let admin = service.site.admin().await;
    until("the namespace is gone", || async {
        (admin.send(&get("/api/v1/namespaces/orchard-two")).await.status == 404).then_some(())
    })
    .await;
    assert_eq!(admin.send(&get("/api/v1/namespaces/orchard")).await.status, 200);
}

async fn a_name_is_reserved_while_a_cluster_is_out_of_reach(service: &Service) {
    service.cut(false);
    until("the cluster is out of reach", || async {
        (!service.index.snapshot().observed(CLUSTER).unwrap().usable).then_some(())
    })
    .await;
    service.tenancy.delete_project("orchard", None, clock::now()).await.unwrap();
    assert!(service.tenancy.name_is_reserved("orchard").await.unwrap());
    let taken = service.tenancy.create_namespace("meadow", CLUSTER, "orchard", "eve", clock::now()).await;
    assert!(matches!(taken, Err(TenancyError::NotAllowed { .. } | TenancyError::Taken { .. })), "{taken:?}");
    service.put(&project("meadow", &["orchard"], json!({}))).await;
    let status = service.in_state("meadow", "orchard", "Refused").await;
    assert!(status["message"].as_str().unwrap().contains("not available"), "{status}");
    let admin = service.site.admin().await;
    assert_eq!(admin.send(&get("/api/v1/namespaces/orchard")).await.status, 200);
    service.put(&project("meadow", &[], json!({}))).await;
    service.cut(true);
    until("the name is free", || async { (!service.tenancy.name_is_reserved("orchard").await.unwrap()).then_some(()) })
        .await;
    assert_eq!(admin.send(&get("/api/v1/namespaces/orchard")).await.status, 404);
}

async fn after_forgetting_nothing_is_handed_over(service: &Service) {
    service.put(&project("garden", &["garden"], json!({}))).await;
    service.in_state("garden", "garden", "Ready").await;
    service.cut(false);
    until("the cluster is out of reach", || async {
        (!service.index.snapshot().observed(CLUSTER).unwrap().usable).then_some(())
    })
    .await;
    service.tenancy.delete_project("garden", None, clock::now()).await.unwrap();
    let dropped = service.tenancy.forget(CLUSTER, Some("garden"), "root", clock::now()).await.unwrap();
    assert_eq!(dropped, ["garden"]);
    assert!(!service.tenancy.name_is_reserved("garden").await.unwrap());
    // The name comes back as a stranger.
    let mut again = project("garden", &["garden"], json!({}));
    let other = "0badcafe-0000-4000-8000-000000000000";
    again["metadata"]["uid"] = other.into();
    service.put(&again).await;
    service.cut(true);
    service.in_state("garden", "garden", "Refused").await;
    let newcomer = service.person(&project_group("garden", other, "owner")).await;
    newcomer.refused("", [get(pods("garden"))]).await;
    assert!(service.index.snapshot().claim(CLUSTER, "garden").unwrap().object.namespace_uid.is_none());
    let admin = service.site.admin().await;
    let labels = admin.must(get("/api/v1/namespaces/garden")).await["metadata"]["labels"].clone();
    assert_eq!(labels[PROJECT_UID], json!(uid("garden")), "left as it was");
}

async fn roles_stay_within_reach(service: &Service) {
    let rule = |group: &str| json!({"apiGroups": [group], "resources": ["widgets"], "verbs": ["get"]});
    let role = json!({
        "apiVersion": "bailiwick.dev/v1alpha1", "kind": "AccessRole", "metadata": {"name": "tinkerer", "uid": "t"},
        "spec": {"rules": [rule(TENANT_API_GROUP), rule("unlisted.example.com"), rule("elsewhere.example.com")]},
    });
    service.store.create(Key::new(Kind::AccessRole, "tinkerer"), Bytes::from(role.to_string())).await.unwrap();
    service.put(&project("meadow", &["meadow"], json!({"roles": ["tinkerer"]}))).await;
    service.in_state("meadow", "meadow", "Ready").await;
    let admin = service.site.admin().await;
    let path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/bailiwick:role:tinkerer";
    let found = until("the role is there", || async {
        let answer = admin.send(&get(path)).await;
        (answer.status == 200).then(|| answer.json())
    })
    .await;
    assert_eq!(found["rules"], json!([rule(TENANT_API_GROUP)]));
    service.put(&project("meadow", &["meadow"], json!({}))).await;
    soon("the role is gone", || async { admin.send(&get(path)).await.status == 404 }).await;
    let binding = "/apis/rbac.authorization.k8s.io/v1/namespaces/meadow/rolebindings/bailiwick:role:tinkerer";
    soon("its binding is gone", || async { admin.send(&get(binding)).await.status == 404 }).await;
}
