//! Clean-up passes the guards; the list of API groups holds housekeeping and nobody else.

use bailiwick::clusters::manifest::Manifest;
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
    // More groups come with a manifest that is rendered with them.
    let mut options = site.options();
    options.tenant_api_groups.push("late.example.com".into());
    let manifest = Manifest::render(&options).unwrap();
    let policy = manifest.objects().find(|object| object["metadata"]["name"] == GROUPS_POLICY).unwrap();
    admin.must(apply(path_of(policy), policy.clone())).await;
    until("the longer list is in force", || async {
        (housekeeping.send(&create(roles, role("late.example.com")).dry()).await.status == 201).then_some(())
    })
    .await;
    housekeeping.refused_by_guard(GROUPS_POLICY, [create(roles, role("later.example.com")).dry()]).await;
    // Nobody else's roles are concerned.
    let mut theirs = role("later.example.com");
    theirs["metadata"] = json!({"name": "operators-own"});
    admin.allowed([create(roles, theirs).dry()]).await;
}
