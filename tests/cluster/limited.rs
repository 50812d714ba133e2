//! The limited legacy form: whom forwarding may name, and what housekeeping may list for it.

use bailiwick::clusters::names::*;
use bailiwick::domain::names::{TENANT_GROUP, cluster_group, project_group};
use serde_json::{Value, json};

use super::ask::*;
use super::harness::*;

const CANNOT: &str = "User \"system:serviceaccount:bailiwick-system:forwarding\" cannot impersonate resource";
const ROLE: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles/bailiwick:legacy-impersonate";

#[tokio::test]
async fn only_listed_names() {
    let site = Site::limited().await;
    let ns = site.project_namespace("mail", "mail-names").await;
    let pods = || [get(format!("/api/v1/namespaces/{ns}/pods"))];
    let user = legacy_user("mail", &uid_of("mail"));
    let group = |role: &str| project_group("mail", &uid_of("mail"), role);
    let (owner, member) = (group("owner"), group("member"));

    let jane = site.impersonating(&user, &[&member]).await;
    jane.allowed(pods()).await;
    jane.with("impersonate-extra-bailiwick.dev%2Fuser", "jane").allowed(pods()).await;
    jane.with("impersonate-extra-bailiwick.dev%2Ftoken", "tok-1").allowed(pods()).await;
    site.impersonating(&user, &[&owner, &member]).await.allowed(pods()).await;
    site.impersonating(TENANT_GROUP, &[TENANT_GROUP]).await.allowed([get("/version")]).await;
    // Names are limited, not places: a user without its groups holds nothing.
    site.impersonating(&user, &[]).await.refused(&format!("User {user:?} cannot list"), pods()).await;

    for groups in [
        &["system:masters"][..],
        &[&member, "system:masters"],
        &["system:masters", &member],
        &[&member, &owner, &member, &owner, "system:masters"],
        &["cluster-ops"],
        &["system:nodes"],
        &["system:authenticated"],
        &["system:serviceaccounts:kube-system"],
        &["bailiwick:project:mail:00000000:owner"],
        &["bailiwick:project:other:0a2b3c4d:owner"],
        &["bailiwick:project:mail:*:owner"],
        &["bailiwick:root"],
    ] {
        site.impersonating(&user, groups).await.refused(CANNOT, pods()).await;
    }
    for name in [
        "bailiwick:user:jane",
        "bailiwick:project:other:0a2b3c4d",
        "kubernetes-admin",
        "system:kube-controller-manager",
        "system:anonymous",
        "system:node:n1",
        "system:apiserver",
        HOUSEKEEPING_USER,
        FORWARDING_USER,
        "system:serviceaccount:kube-system:namespace-controller",
    ] {
        site.impersonating(name, &[&member]).await.refused(CANNOT, pods()).await;
        site.impersonating(name, &[]).await.refused(CANNOT, pods()).await;
    }
    for (header, value) in [
        ("impersonate-uid", "1"),
        ("impersonate-extra-authentication.kubernetes.io%2Fcredential-id", "X509SHA256=00"),
        ("impersonate-extra-example.com%2Fx", "1"),
        ("impersonate-extra-bailiwick.dev%2Fother", "1"),
    ] {
        jane.with(header, value).refused(CANNOT, pods()).await;
    }
}

#[tokio::test]
async fn what_housekeeping_may_list() {
    let site = Site::limited().await;
    let (admin, housekeeping) = (site.admin().await, site.housekeeping().await);
    let current = admin.must(get(ROLE)).await;
    let with = |rule: Value| {
        let mut rules = current["rules"].as_array().unwrap().clone();
        rules.push(rule);
        json!({"rules": rules})
    };
    let names = |resource: &str, names: Value| {
        with(json!({"apiGroups": [""], "resources": [resource], "verbs": ["impersonate"], "resourceNames": names}))
    };
    for change in [
        names("users", json!(["bailiwick:project:late:0a2b3c4d"])),
        names("users", json!([legacy_cluster_user(CLUSTER, "0a2b3c4d-1")])),
        names(
            "groups",
            json!([project_group("late", "0a2b3c4d-1", "owner"), cluster_group(CLUSTER, "0a2b3c4d-1", "viewer")]),
        ),
    ] {
        housekeeping
            .allowed([replace(ROLE, change.clone()).dry(), merge(ROLE, change.clone()).dry(), merge(ROLE, change)])
            .await;
        housekeeping.allowed([merge(ROLE, json!({"rules": current["rules"]}))]).await;
    }
    for change in [
        names("users", json!(["system:kube-controller-manager"])),
        names("users", json!(["bailiwick:user:jane"])),
        names("users", json!([])),
        names("users", json!([cluster_group(CLUSTER, "0a2b3c4d-1", "viewer")])),
        names("users", json!(["bailiwick:cluster:other:0a2b3c4d"])),
        names("users", json!(["bailiwick:project:late:0a2b3c4d:owner"])),
        names("groups", json!(["bailiwick:project:late:0a2b3c4d"])),
        names("groups", json!(["bailiwick:tenant"])),
        names("groups", json!(["system:masters"])),
        names("groups", json!(["bailiwick:project:late:0a2b3c4d:owner", "cluster-ops"])),
        names("groups", json!([cluster_group("other", "0a2b3c4d-1", "viewer")])),
        names("groups", json!(["bailiwick:project:*"])),
        names("serviceaccounts", json!(["bailiwick:project:late:0a2b3c4d"])),
        with(json!({"apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"]})),
        with(json!({"apiGroups": [""], "resources": ["groups"], "verbs": ["impersonate"]})),
        with(json!({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]})),
        with(json!({"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]})),
        with(json!({"apiGroups": ["authentication.k8s.io"], "resources": ["uids"], "verbs": ["impersonate"]})),
        with(
            json!({"apiGroups": ["authentication.k8s.io"], "resources": ["userextras/authentication.kubernetes.io/credential-id"], "verbs": ["impersonate"]}),
        ),
        with(
            json!({"apiGroups": ["authentication.k8s.io"], "resources": ["users", "groups"], "verbs": ["impersonate:user-info"]}),
        ),
        with(json!({"nonResourceURLs": ["/metrics"], "verbs": ["get"]})),
        json!({"metadata": {"labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}}}),
        json!({"aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}}),
    ] {
        housekeeping.refused_by_guard("bailiwick-housekeeping-roles", every_way(ROLE, &current, &change)).await;
    }
    housekeeping.refused_by_guard("bailiwick-housekeeping-roles", both([delete(ROLE)])).await;
}

#[tokio::test]
async fn the_constrained_form_has_no_such_role() {
    let housekeeping = Site::constrained().await.housekeeping().await;
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": LEGACY_IMPERSONATE, "labels": {MANAGED: "true"}}, "rules": [],
    });
    let path = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    housekeeping
        .refused_by_guard("bailiwick-housekeeping-roles", both([create(path, role.clone()), apply(ROLE, role)]))
        .await;
}
