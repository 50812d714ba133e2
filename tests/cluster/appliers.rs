//! Others who apply in a project's namespaces, as Argo CD does: beside what is ours, and against it.

use std::time::{Duration, Instant};

use bailiwick::clusters::names::*;
use serde_json::{Value, json};

use super::ask::*;
use super::controllers::{Service, project, soon};
use super::harness::*;

/// A server-side apply by force, as another applier's.
fn applied(path: &str, object: Value) -> Ask {
    let mut ask = apply(path, object);
    ask.path = ask.path.replace("fieldManager=test", "fieldManager=another-applier");
    ask
}

/// When housekeeping last wrote an object, and its version.
async fn written(admin: &Actor, path: &str) -> (Value, Value) {
    let object = admin.must(get(path)).await;
    let managers = object["metadata"]["managedFields"].as_array().unwrap().iter();
    let ours = managers.filter(|entry| entry["manager"] == "bailiwick").map(|entry| entry["time"].clone()).collect();
    (Value::Array(ours), object["metadata"]["resourceVersion"].clone())
}

pub async fn another_applier_of_other_fields_is_no_matter(service: &Service) {
    let admin = service.site.admin().await;
    service.put(&project("vale", &["vale"], json!({}))).await;
    service.in_state("vale", "vale", "Ready").await;
    let (namespace, quota) = ("/api/v1/namespaces/vale", "/api/v1/namespaces/vale/resourcequotas/bailiwick");
    let role = "/apis/rbac.authorization.k8s.io/v1/namespaces/vale/roles/app";
    let beside = [
        // Labels of its own, an annotation, and one of ours with the value that it has anyway.
        applied(
            namespace,
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {
                "name": "vale",
                "labels": {"team.example.com/name": "vale", POD_SECURITY[0]: "baseline"},
                "annotations": {"argocd.argoproj.io/tracking-id": "vale:/Namespace:vale/vale"},
            }}),
        ),
        applied(
            quota,
            json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {
                "name": "bailiwick", "labels": {"app.kubernetes.io/instance": "vale"},
            }}),
        ),
        applied(
            role,
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "app"}, "rules": [
                {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]},
            ]}),
        ),
    ];
    let mut before = None;
    for _ in 0..6 {
        for ask in &beside {
            admin.must(ask.clone()).await;
        }
        let now = (written(&admin, namespace).await, written(&admin, quota).await, written(&admin, role).await);
        assert_eq!(before.get_or_insert(now.clone()), &now, "somebody wrote");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let status = service.status("vale", "vale").await;
    assert_eq!((&status["state"], &status["contested"]), (&json!("Ready"), &Value::Null));
    assert_eq!(admin.must(get(namespace)).await["metadata"]["labels"]["team.example.com/name"], "vale");
    // What is beside it is put right as ever, and what the other applied stays.
    admin.must(merge(quota, json!({"spec": {"hard": {"pods": "400"}}}))).await;
    soon("the quota is as before", || async { admin.must(get(quota)).await["spec"]["hard"]["pods"] == "4" }).await;
    assert_eq!(admin.must(get(quota)).await["metadata"]["labels"]["app.kubernetes.io/instance"], "vale");
}

pub async fn another_applier_of_our_fields_is_named_and_left_alone_for_a_while(service: &Service) {
    let admin = service.site.admin().await;
    let quota = "/api/v1/namespaces/vale/resourcequotas/bailiwick";
    let against = applied(
        quota,
        json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "bailiwick"},
               "spec": {"hard": {"pods": "400"}}}),
    );
    let metric = |value: &str| {
        let line = format!("bailiwick_contested{{cluster=\"{CLUSTER}\"}} {value}\n");
        service.metrics.encode().contains(&line)
    };
    assert!(metric("0"));
    let fight = until("the fight is named", || async {
        admin.must(against.clone()).await;
        let contested = service.status("vale", "vale").await["contested"].clone();
        (!contested.is_null()).then_some(contested)
    });
    let named = fight.await;
    assert_eq!(named, json!([{"kind": "ResourceQuota", "name": "bailiwick", "manager": "another-applier"}]));
    let told = service.condition("vale", "Contested", "True").await["message"].clone();
    let wanted = format!(
        "field manager \"another-applier\" keeps changing ResourceQuota bailiwick in namespace vale on {CLUSTER}"
    );
    assert!(told.as_str().unwrap().contains(&wanted), "{told}");
    assert_eq!(service.status("vale", "vale").await["state"], "Ready");
    assert!(metric("1"));
    // While the other goes on we hardly write; without back-off it would be with every one of some thirty applications.
    let (mut reverts, mut applications) = (0, 0);
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(6) {
        admin.must(against.clone()).await;
        applications += 1;
        tokio::time::sleep(Duration::from_millis(200)).await;
        reverts += u32::from(admin.must(get(quota)).await["spec"]["hard"]["pods"] != "400");
    }
    assert!(applications > 15 && (1..=10).contains(&reverts), "{reverts} of {applications}");
    // Everything else in the namespace is kept meanwhile.
    let binding = "/apis/rbac.authorization.k8s.io/v1/namespaces/vale/rolebindings/bailiwick:role:member";
    admin.must(delete(binding)).await;
    soon("the binding is back", || async { admin.send(&get(binding)).await.status == 200 }).await;
    // It ends when the other does.
    let over = service.condition("vale", "Contested", "False").await;
    assert_eq!(over["reason"], "Settled");
    assert_eq!(admin.must(get(quota)).await["spec"]["hard"]["pods"], "4");
    assert_eq!(service.status("vale", "vale").await["contested"], Value::Null);
    soon("the metric says so", || async { metric("0") }).await;
}

pub async fn a_policy_that_opens_isolation_is_named(service: &Service) {
    let admin = service.site.admin().await;
    let policies = "/apis/networking.k8s.io/v1/namespaces/vale/networkpolicies";
    let policy = |name: &str, ingress: Value| {
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": name},
               "spec": {"podSelector": {}, "policyTypes": ["Ingress"], "ingress": ingress}})
    };
    admin.must(create(policies, policy("open", json!([{}])))).await;
    admin.must(create(policies, policy("closed", json!([])))).await;
    service.put(&project("vale", &["vale"], json!({"networkIsolation": "Project"}))).await;
    let told = service.condition("vale", "Isolated", "False").await["message"].clone();
    assert!(told.as_str().unwrap().contains(&format!("vale on {CLUSTER}: open;")), "{told}");
    assert_eq!(service.status("vale", "vale").await["openedBy"], json!(["open"]));
    admin.must(delete(format!("{policies}/open"))).await;
    service.condition("vale", "Isolated", "True").await;
    assert_eq!(admin.send(&get(format!("{policies}/closed"))).await.status, 200, "what others made stays");
    service.put(&project("vale", &["vale"], json!({}))).await;
    soon("it is not isolated any more", || async {
        service.status("vale", "vale").await["openedBy"].is_null()
            && admin.send(&get(format!("{policies}/bailiwick"))).await.status == 404
    })
    .await;
}
