//! What whoever steals the forwarding account's token can do with it, and what members can do through it outside of
//! their namespaces.

use bailiwick::clusters::names::*;
use bailiwick::domain::names::project_group;
use serde_json::{Value, json};

use super::ask::*;
use super::harness::*;

in_both_forms!(as_itself, tenants_outside_of_namespaces, strong_names_elsewhere);

/// Every refusal of impersonation, or of what forwarding asks for itself, begins like this.
const ITSELF: &str = "User \"system:serviceaccount:bailiwick-system:forwarding\" cannot";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

async fn as_itself(site: &Site) {
    let forwarding = site.forwarding().await;
    let name = format!("games-itself-{}", site.form.as_str());
    let ns = site.project_namespace("games", &name).await;
    let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}});
    let binding = role_binding("owner", json!([]));
    let token = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    forwarding
        .refused(
            ITSELF,
            [
                get("/api/v1/secrets"),
                get("/api/v1/namespaces"),
                get("/api/v1/nodes"),
                get("/api/v1/namespaces/kube-system/secrets"),
                get("/api/v1/namespaces/bailiwick-system/secrets/housekeeping-token"),
                get(format!("/api/v1/namespaces/{ns}")),
                get(format!("/api/v1/namespaces/{ns}/pods")),
                get(format!("/api/v1/namespaces/{ns}/secrets")),
                create(format!("/api/v1/namespaces/{ns}/configmaps"), config.clone()),
                create(format!("/api/v1/namespaces/{ns}/configmaps"), config).dry(),
                create(format!("{RBAC}/namespaces/{ns}/rolebindings"), binding.clone()),
                create(format!("{RBAC}/namespaces/kube-system/rolebindings"), binding),
                merge(format!("/api/v1/namespaces/{ns}"), json!({"metadata": {"labels": {"a": "b"}}})),
                delete(format!("/api/v1/namespaces/{ns}")),
                merge(format!("{RBAC}/clusterroles/{FORWARD_ON}"), json!({"rules": []})),
                create("/api/v1/namespaces/bailiwick-system/serviceaccounts/housekeeping/token", token),
                delete("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/bailiwick-accounts-scope"),
                delete(format!("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/{GROUPS_POLICY}")),
                get("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"),
            ],
        )
        .await;
}

async fn tenants_outside_of_namespaces(site: &Site) {
    let tenant = site.tenant().await;
    let review = |kind: &str, spec: Value| json!({"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec});
    let access = json!({"resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "default"}});
    tenant
        .allowed([
            get("/api"),
            get("/api/v1"),
            get("/apis"),
            get("/apis/apps/v1"),
            get("/version"),
            get("/openapi/v3"),
            get("/openapi/v3/api/v1"),
            get("/apis/storage.k8s.io/v1/storageclasses"),
            get("/apis/networking.k8s.io/v1/ingressclasses"),
            get("/apis/scheduling.k8s.io/v1/priorityclasses"),
            get("/apis/scheduling.k8s.io/v1/priorityclasses/system-node-critical"),
            create("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review("SelfSubjectAccessReview", access)),
            create(
                "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
                review("SelfSubjectRulesReview", json!({"namespace": "default"})),
            ),
            create(
                "/apis/authentication.k8s.io/v1/selfsubjectreviews",
                json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}),
            ),
        ])
        .await;
    tenant
        .refused(
            "forbidden",
            [
                get("/api/v1/namespaces"),
                get("/api/v1/nodes"),
                get("/api/v1/persistentvolumes"),
                get("/api/v1/pods"),
                get("/api/v1/secrets"),
                get("/api/v1/namespaces/default/pods"),
                get(format!("{RBAC}/clusterroles")),
                get(format!("{RBAC}/clusterrolebindings")),
                get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions"),
                get("/metrics"),
                get("/logs/"),
                delete("/apis/scheduling.k8s.io/v1/priorityclasses/system-node-critical"),
                create("/api/v1/namespaces", plain_namespace("x")),
            ],
        )
        .await;
}

/// Names with every right in the cluster, claimed by forwarding: useless where it is not bound.
async fn strong_names_elsewhere(site: &Site) {
    let admin = site.admin().await;
    for (name, kind, subject) in [
        ("strong-user", "User", "bailiwick:user:root"),
        ("strong-group", "Group", "cluster-ops"),
        ("strong-project", "Group", &project_group("games", &uid_of("games"), "owner")),
    ] {
        let object = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": subject}],
        });
        if kind == "User" || subject == "cluster-ops" {
            admin.must(apply(path_of(&object), object)).await;
        }
    }
    let unbound = format!("games-unbound-{}", site.form.as_str());
    site.housekeeping().await.must(create("/api/v1/namespaces", namespace_of("games", &unbound))).await;
    let mut binding = role_binding("owner", json!([group_subject(&project_group("games", &uid_of("games"), "owner"))]));
    binding["kind"] = json!("ClusterRoleBinding");
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}});
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    let asks = |namespace: &str| {
        vec![
            get(format!("/api/v1/namespaces/{namespace}")),
            get(format!("/api/v1/namespaces/{namespace}/secrets")),
            create(format!("/api/v1/namespaces/{namespace}/secrets"), secret.clone()).dry(),
            merge(format!("/api/v1/namespaces/{namespace}"), label.clone()).dry(),
        ]
    };
    let cluster_wide = || {
        vec![
            get("/api/v1/secrets"),
            get("/api/v1/namespaces"),
            get("/api/v1/nodes/x/proxy/pods"),
            create(format!("{RBAC}/clusterrolebindings"), binding.clone()),
            delete("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/bailiwick-accounts-scope"),
            get("/metrics"),
        ]
    };
    for (user, groups) in [
        ("bailiwick:user:root", &[][..]),
        ("bailiwick:user:root", &["cluster-ops"]),
        ("bailiwick:user:jane", &["cluster-ops"]),
        ("bailiwick:user:jane", &["system:masters"]),
        ("bailiwick:user:jane", &["a", "system:masters"]),
        ("bailiwick:user:jane", &["a", "b", "c", "d", "system:masters"]),
        ("bailiwick:user:jane", &["system:nodes"]),
        ("bailiwick:user:jane", &["system:serviceaccounts:kube-system"]),
        ("kubernetes-admin", &[]),
        ("system:admin", &[]),
        ("system:apiserver", &[]),
        ("system:kube-controller-manager", &[]),
        ("system:kube-scheduler", &[]),
        ("system:node:n1", &["system:nodes"]),
        ("system:serviceaccount:kube-system:namespace-controller", &[]),
        (HOUSEKEEPING_USER, &[]),
        (FORWARDING_USER, &[]),
        ("system:anonymous", &[]),
    ] {
        let actor = site.impersonating(user, groups).await;
        for namespace in ["kube-system", "bailiwick-system", "default", STRANGERS, unbound.as_str()] {
            actor.refused(ITSELF, asks(namespace)).await;
        }
        actor.refused(ITSELF, cluster_wide()).await;
    }
    let mut uid_only = site.forwarding().await;
    uid_only = uid_only.with("impersonate-group", "system:masters");
    assert_eq!(uid_only.send(&get("/api/v1/namespaces")).await.status, 400, "a group without a user is no request");
}

#[tokio::test]
async fn strong_names_where_forwarding_is_bound() {
    let site = Site::constrained().await;
    let ns = site.project_namespace("games", "games-strong").await;
    let rolebindings = format!("{RBAC}/namespaces/{ns}/rolebindings");
    let owners = format!("{rolebindings}/bailiwick:role:owner");
    let current = site.admin().await.must(get(&owners)).await;
    let subject = |kind: &str, name: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name});
    for (kind, name) in
        [("User", "system:kube-controller-manager"), ("Group", "cluster-ops"), ("User", "bailiwick:user:mighty")]
    {
        site.make_mighty(&ns, subject(kind, name)).await;
    }
    for (user, groups) in [
        ("bailiwick:user:mighty", &[][..]),
        ("system:kube-controller-manager", &[]),
        ("bailiwick:user:jane", &["cluster-ops"]),
        ("bailiwick:user:jane", &["cluster-ops", "system:serviceaccounts:ops", "system:nodes"]),
        ("bailiwick:user:mighty", &["system:serviceaccounts:kube-system"]),
    ] {
        let actor = site.impersonating(user, groups).await;
        // What it may do is what any nameable user may do there: that is the reach of a stolen forwarding account.
        actor.allowed([get(format!("/api/v1/namespaces/{ns}/secrets")), get(&rolebindings)]).await;
        // The guards do not take it for who it says it is.
        let more = json!({"subjects": [subject("User", "bailiwick:user:eve")]});
        actor.refused("ValidatingAdmissionPolicy 'bailiwick-", every_way(&owners, &current, &more)).await;
        actor.refused_by_guard("bailiwick-managed-objects", both([delete(&owners)])).await;
        let mut binding = role_binding("owner", json!([subject("User", "bailiwick:user:eve")]));
        binding["metadata"] = json!({"name": "mine"});
        actor.refused_by_guard("bailiwick-tenant-bindings", both([create(&rolebindings, binding.clone())])).await;
        binding["subjects"] = json!([{"kind": "ServiceAccount", "name": FORWARDING, "namespace": SYSTEM_NAMESPACE}]);
        actor.refused_by_guard("bailiwick-tenant-bindings", both([create(&rolebindings, binding)])).await;
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
            "metadata": {"name": "x", "annotations": {"kubernetes.io/service-account.name": "default"}}});
        actor
            .refused_by_guard(
                "bailiwick-tenant-secrets",
                both([create(format!("/api/v1/namespaces/{ns}/secrets"), secret)]),
            )
            .await;
        let label = json!({"metadata": {"labels": {"bailiwick.dev/project": "games2"}}});
        actor
            .refused_by_guard(
                "bailiwick-namespace-metadata",
                both([merge(format!("/api/v1/namespaces/{ns}"), label.clone())]),
            )
            .await;
        // What forwarding may not do for anybody.
        actor
            .refused(
                ITSELF,
                [
                    merge(format!("/api/v1/namespaces/{ns}/status"), label),
                    delete(format!("/api/v1/namespaces/{ns}")),
                    get(format!("/api/v1/namespaces/{ns}/pods/x/proxy/")),
                    get(format!("/api/v1/namespaces/{ns}/services/x/proxy/")),
                    merge(format!("/api/v1/namespaces/{ns}/resourcequotas/x"), json!({"spec": {}})),
                    delete(format!("/api/v1/namespaces/{ns}/limitranges/x")),
                    create(format!("/api/v1/namespaces/{ns}/pods/x/binding"), json!({})),
                    get(format!("/apis/other.example.com/v1/namespaces/{ns}/widgets")),
                ],
            )
            .await;
    }
    let jane = site.impersonating("bailiwick:user:jane", &["cluster-ops"]).await;
    for (header, value) in [
        ("impersonate-extra-authentication.kubernetes.io%2Fcredential-id", "X509SHA256=00"),
        ("impersonate-extra-example.com%2Fx", "1"),
        ("impersonate-extra-bailiwick.dev%2Fuser", "jane"),
        ("impersonate-group", "system:masters"),
    ] {
        jane.with(header, value).refused(ITSELF, [get(format!("/api/v1/namespaces/{ns}/pods"))]).await;
    }
}
