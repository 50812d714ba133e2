//! Taking over a namespace that is there already, and giving it back.

use bailiwick::clock;
use bailiwick::clusters::names::*;
use bailiwick::controllers::{ActError, NamespaceActs};
use serde_json::{Value, json};

use super::ask::*;
use super::controllers::{Service, project, soon, uid};
use super::harness::*;

const PATH: &str = "/api/v1/namespaces/glade-legacy";

/// What stands in a namespace, as far as anybody wrote it, without versions and managers.
async fn content(admin: &Actor) -> Value {
    let namespace = admin.must(get(PATH)).await;
    let mut all = vec![json!([namespace["metadata"]["labels"], namespace["metadata"]["annotations"]])];
    for path in [
        "apis/rbac.authorization.k8s.io/v1/namespaces/glade-legacy/rolebindings",
        "api/v1/namespaces/glade-legacy/resourcequotas",
        "api/v1/namespaces/glade-legacy/limitranges",
        "api/v1/namespaces/glade-legacy/pods",
        "apis/networking.k8s.io/v1/namespaces/glade-legacy/networkpolicies",
    ] {
        let list = admin.must(get(format!("/{path}"))).await;
        let names = list["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].clone());
        all.push(json!([path, names.collect::<Vec<_>>()]));
    }
    json!(all)
}

fn pod(name: &str, host: bool) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
        "hostNetwork": host, "serviceAccountName": "default", "automountServiceAccountToken": false,
        "containers": [{"name": "main", "image": "registry.example.com/app:1", "resources": {"requests": {"cpu": "800m"}}}],
    }})
}

pub async fn a_namespace_is_adopted_after_a_report_and_given_back_as_it_was(service: &Service) {
    let admin = service.site.admin().await;
    let acts = &service.controllers;
    let isolated = json!({"networkIsolation": "Project", "containerDefaults": {"limits": {"memory": "128Mi"}}});
    service.put(&project("glade", &[], isolated)).await;
    until("the project is known", || async { service.index.snapshot().projects.get("glade").map(|_| ()) }).await;

    // Whether there is a namespace is told to nobody who has no consent.
    let refusal = |name: &'static str| async move {
        let refused = acts.adoption("glade", CLUSTER, name).await.unwrap_err();
        assert!(matches!(refused, ActError::Refused(_)), "{refused}");
        refused.to_string().replace(name, "NAME")
    };
    let absent = refusal("glade-absent").await;
    let mut namespace = plain_namespace("glade-legacy");
    merged(
        &mut namespace,
        &json!({"metadata": {"labels": {
            "team.example.com/name": "old", POD_SECURITY[2]: "privileged", ENFORCE_VERSION: "v1.30",
        }}}),
    );
    admin.must(create("/api/v1/namespaces", namespace)).await;
    assert_eq!(refusal("glade-legacy").await, absent);
    assert!(absent.contains(&format!("kubectl annotate namespace NAME {ADOPT}={}", uid("glade"))), "{absent}");
    // The consent is for one project, and names it by UID.
    admin.must(merge(PATH, json!({"metadata": {"annotations": {ADOPT: uid("orchard")}}}))).await;
    assert_eq!(refusal("glade-legacy").await, absent);

    // What stands there.
    until("the default account is there", || async {
        (admin.send(&get(format!("{PATH}/serviceaccounts/default"))).await.status == 200).then_some(())
    })
    .await;
    for (name, host) in [("web", false), ("debug", true)] {
        admin.must(create(format!("{PATH}/pods"), pod(name, host))).await;
    }
    let bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/glade-legacy/rolebindings";
    let binding = |name: &str, role: &str, subjects: Value| {
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": name},
               "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
               "subjects": subjects})
    };
    admin.must(create(bindings, binding("ops", "edit", json!([group_subject("ops")])))).await;
    let policy = json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "open"},
        "spec": {"podSelector": {}, "policyTypes": ["Egress"], "egress": [{}]}});
    admin.must(create("/apis/networking.k8s.io/v1/namespaces/glade-legacy/networkpolicies", policy)).await;
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "old"},
        "spec": {"hard": {"services": "9"}}});
    admin.must(create(format!("{PATH}/resourcequotas"), quota)).await;
    admin.must(merge(PATH, json!({"metadata": {"annotations": {ADOPT: uid("glade")}}}))).await;

    // The report, without the right to count Pods and with it.
    let report = acts.adoption("glade", CLUSTER, "glade-legacy").await.unwrap();
    assert!(!report.use_counted && report.use_over_share.is_empty());
    let housekeeping = json!([{"kind": "ServiceAccount", "name": HOUSEKEEPING, "namespace": SYSTEM_NAMESPACE}]);
    admin.must(create(bindings, binding("counting", ADOPTION_ROLE, housekeeping))).await;
    let before = content(&admin).await;
    let report = until("we may count", || async {
        acts.adoption("glade", CLUSTER, "glade-legacy").await.ok().filter(|report| report.use_counted)
    })
    .await;
    let found = json!(report);
    assert_eq!(found["roleBindings"], json!([{"name": "ops", "role": "ClusterRole edit", "subjects": ["Group ops"]}]));
    // The API server's own words.
    let pods = report.refused_pods.join("\n");
    assert!(pods.contains("existing pods in namespace \"glade-legacy\" violate"), "{pods}");
    assert!(pods.contains("debug: host namespaces") && !pods.contains("web"), "{pods}");
    assert_eq!(found["openedBy"], json!(["open"]));
    assert_eq!(found["useOverShare"], json!([{"resource": "requests.cpu", "used": "1600m", "share": "1"}]));
    assert_eq!(content(&admin).await, before, "a report changes nothing");

    // One step.
    let adopted = acts.adopt("glade", CLUSTER, "glade-legacy", "jane", clock::now()).await.unwrap();
    assert_eq!(adopted, report);
    let labels = admin.must(get(PATH)).await["metadata"]["labels"].clone();
    assert_eq!((&labels[PROJECT], &labels[POD_SECURITY[0]]), (&json!("glade"), &json!("baseline")));
    assert_eq!(labels["team.example.com/name"], "old");
    let status = service.in_state("glade", "glade-legacy", "Ready").await;
    assert_eq!(status["openedBy"], json!(["open"]));
    until("the use is counted by the cluster itself", || async {
        let status = service.status("glade", "glade-legacy").await;
        (status["used"]["requests.cpu"] == "1600m" && status["hard"]["requests.cpu"] == "1").then_some(())
    })
    .await;
    let again = acts.adopt("glade", CLUSTER, "glade-legacy", "jane", clock::now()).await.unwrap_err();
    assert!(matches!(again, ActError::Refused(_)), "{again}");

    // And back, without deletion.
    acts.give_back("glade", CLUSTER, "glade-legacy", "jane").await.unwrap();
    until("the claim is gone", || async {
        service.index.snapshot().claim(CLUSTER, "glade-legacy").is_none().then_some(())
    })
    .await;
    assert_eq!(content(&admin).await, before);
}

pub async fn a_declared_namespace_waits_with_its_report_and_what_we_made_is_not_given_back(service: &Service) {
    let admin = service.site.admin().await;
    let acts = &service.controllers;
    // It stays refused, with the report in the status, until somebody says so.
    service.put(&project("glade", &["glade-legacy", "glade"], json!({}))).await;
    let status = service.in_state("glade", "glade-legacy", "Refused").await;
    assert!(status["message"].as_str().unwrap().contains("bailiwick project adopt glade"), "{status}");
    assert_eq!(status["adoption"]["roleBindings"][0]["name"], "ops");
    assert!(admin.must(get(PATH)).await["metadata"]["labels"][PROJECT].is_null());
    acts.adopt("glade", CLUSTER, "glade-legacy", "jane", clock::now()).await.unwrap();
    let status = service.in_state("glade", "glade-legacy", "Ready").await;
    assert_eq!(status["adoption"], Value::Null);
    // What we made is deleted or kept, not given back; and an adopted one outlives its project.
    let refused = acts.give_back("glade", CLUSTER, "glade", "jane").await.unwrap_err();
    assert!(matches!(refused, ActError::Refused(_)), "{refused}");
    service.tenancy.delete_project("glade", None, clock::now()).await.unwrap();
    until("the project is gone from the cluster", || async {
        (!service.tenancy.name_is_reserved("glade").await.unwrap()).then_some(())
    })
    .await;
    soon("what we made is gone", || async { admin.send(&get("/api/v1/namespaces/glade")).await.status == 404 }).await;
    let left = admin.must(get(PATH)).await;
    assert!(left["metadata"]["deletionTimestamp"].is_null() && left["metadata"]["labels"][PROJECT].is_null(), "{left}");
    admin.must(delete(PATH)).await;
}
