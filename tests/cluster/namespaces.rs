//! Clean-up passes the guards, and a missing list of API groups harms nobody else.

use bailiwick::clusters::names::*;
use serde_json::json;

use super::ask::*;
use super::harness::*;

in_both_forms!(a_project_namespace_is_deleted_while_the_guards_stand, the_list_of_api_groups);

async fn a_project_namespace_is_deleted_while_the_guards_stand(site: &Site) {
    let housekeeping = site.housekeeping().await;
    let ns = site.project_namespace("gone", "gone-one").await;
    let core = format!("/api/v1/namespaces/{ns}");
    let labels = json!({MANAGED: MANAGED_VALUE});
    let meta = json!({"name": "bailiwick", "labels": labels});
    for (path, object) in [
        (
            format!("{core}/resourcequotas"),
            json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": {"hard": {"pods": "5"}}}),
        ),
        (
            format!("{core}/limitranges"),
            json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": meta,
                "spec": {"limits": [{"type": "Container", "default": {"cpu": "1"}}]}}),
        ),
        (
            format!("/apis/networking.k8s.io/v1/namespaces/{ns}/networkpolicies"),
            json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": meta,
                "spec": {"podSelector": {}}}),
        ),
    ] {
        housekeeping.must(create(path, object)).await;
    }
    let isolated = json!({"metadata": {"labels": {ISOLATION: "project"}}});
    housekeeping.must(merge(&core, isolated)).await;
    let owner = site.member("gone", "owner").await;
    let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}});
    owner.must(create(format!("{core}/configmaps"), config)).await;

    // The quota's controller is let through as well: it has counted.
    let quota = format!("{core}/resourcequotas/bailiwick");
    until("the quota is counted", || async {
        housekeeping.must(get(&quota)).await["status"]["used"]["pods"].as_str().map(str::to_owned)
    })
    .await;
    housekeeping.allowed([delete(&core)]).await;
    until("the namespace is gone", || async { (housekeeping.send(&get(&core)).await.status == 404).then_some(()) })
        .await;
}

async fn the_list_of_api_groups(site: &Site) {
    let (admin, housekeeping) = (site.admin().await, site.housekeeping().await);
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let role = |group: &str| {
        cluster_role("widgets", json!([{"apiGroups": [group], "resources": ["widgets"], "verbs": ["get"]}]))
    };
    housekeeping.allowed([create(roles, role(TENANT_API_GROUP)).dry()]).await;
    housekeeping
        .refused_by_guard("bailiwick-housekeeping-groups", [create(roles, role("late.example.com")).dry()])
        .await;
    let list = format!("/api/v1/namespaces/{SYSTEM_NAMESPACE}/configmaps/{TENANT_GROUPS}");
    let groups = format!("{TENANT_API_GROUP}\n# a remark\n  late.example.com  \n\n");
    admin.must(merge(&list, json!({"data": {"groups": groups}}))).await;
    until("the list is read again", || async {
        (housekeeping.send(&create(roles, role("late.example.com")).dry()).await.status == 201).then_some(())
    })
    .await;
    housekeeping.refused_by_guard("bailiwick-housekeeping-groups", [create(roles, role("# a remark")).dry()]).await;

    // Another binding of the same policy, whose list is missing: the same as if ours had been deleted, without touching
    // the tests that run beside this one.
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "missing-list"},
        "spec": {
            "policyName": "bailiwick-housekeeping-groups", "validationActions": ["Deny"],
            "paramRef": {"name": "missing", "namespace": SYSTEM_NAMESPACE, "parameterNotFoundAction": "Deny"},
            "matchResources": {"objectSelector": {"matchLabels": {"app.kubernetes.io/name": "missing-list"}}},
        },
    });
    let path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";
    admin.must(create(path, binding)).await;
    let mut ours = role(TENANT_API_GROUP);
    ours["metadata"]["labels"]["app.kubernetes.io/name"] = json!("missing-list");
    until("the missing list refuses", || async {
        housekeeping.send(&create(roles, ours.clone()).dry()).await.text.contains("no params found").then_some(())
    })
    .await;
    let mut theirs = ours.clone();
    theirs["metadata"]["name"] = json!("operators-own");
    theirs["metadata"]["labels"] = json!({"app.kubernetes.io/name": "missing-list"});
    admin.allowed([create(roles, theirs).dry()]).await;
}
