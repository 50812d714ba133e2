//! The rights of the two accounts and of tenants outside of namespaces.

use serde_json::{Value, json};

use super::{Impersonation, ManifestOptions, labels};
use crate::clusters::names::*;
use crate::clusters::probe::place as probe;
use crate::domain::names::{TENANT_GROUP, TOKEN_EXTRA};
use crate::domain::rbac::VERBS;
use crate::domain::roles::TENANT_READABLE;

const RBAC: &str = "rbac.authorization.k8s.io";
const READ: [&str; 3] = ["get", "list", "watch"];

/// Core kinds of a namespace that roles may name. Proxies reach past RBAC and are left out, as are bindings of Pods to
/// nodes; namespaces, quotas and limit ranges are the project's and stand apart.
const CORE: [&str; 27] = [
    "pods",
    "pods/status",
    "pods/log",
    "pods/exec",
    "pods/attach",
    "pods/portforward",
    "pods/eviction",
    "pods/ephemeralcontainers",
    "pods/resize",
    "podtemplates",
    "services",
    "services/status",
    "endpoints",
    "configmaps",
    "secrets",
    "persistentvolumeclaims",
    "persistentvolumeclaims/status",
    "events",
    "replicationcontrollers",
    "replicationcontrollers/scale",
    "replicationcontrollers/status",
    "serviceaccounts",
    "serviceaccounts/token",
    "pods/finalizers",
    "services/finalizers",
    "configmaps/finalizers",
    "persistentvolumeclaims/finalizers",
];

/// Built-in groups that hold nothing but what a namespace may see of them.
const WHOLE_GROUPS: [&str; 9] = [
    "apps",
    "batch",
    "autoscaling",
    "policy",
    "networking.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "coordination.k8s.io",
    "metrics.k8s.io",
];

pub(super) fn objects(options: &ManifestOptions) -> Vec<Value> {
    let mut objects = vec![];
    let mut bound = |name: &str, rules: Value, subject: Value| {
        objects.push(cluster_role(name, rules));
        objects.push(cluster_role_binding(name, subject));
    };
    match options.impersonation {
        Impersonation::Constrained => bound(WHO, who(), account(FORWARDING)),
        Impersonation::Limited => {
            bound(LEGACY_TENANT, legacy_tenant(), account(FORWARDING));
            // Its rules are housekeeping's: the projects of this cluster.
            objects.push(without_rules(LEGACY_IMPERSONATE));
            objects.push(cluster_role_binding(LEGACY_IMPERSONATE, account(FORWARDING)));
        }
    }
    let mut bound = |name: &str, rules: Value, subject: Value| {
        objects.push(cluster_role(name, rules));
        objects.push(cluster_role_binding(name, subject));
    };
    bound(ON_CLUSTER, on_cluster(), account(FORWARDING));
    bound(TENANT_READ, tenant_read(), json!({"apiGroup": RBAC, "kind": "Group", "name": TENANT_GROUP}));
    bound(HOUSEKEEPING_ROLE, housekeeping(options), account(HOUSEKEEPING));
    objects.push(cluster_role(FORWARD_ON, forward_on(options)));
    objects.push(cluster_role(ADOPTION_ROLE, json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}])));
    objects
}

fn cluster_role(name: &str, rules: Value) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name, "labels": labels()},
        "rules": rules,
    })
}

/// Applied again it leaves the rules alone that housekeeping has written.
fn without_rules(name: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name, "labels": labels()},
    })
}

fn cluster_role_binding(name: &str, subject: Value) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name, "labels": labels()},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": name},
        "subjects": [subject],
    })
}

fn account(name: &str) -> Value {
    json!({"kind": "ServiceAccount", "name": name, "namespace": SYSTEM_NAMESPACE})
}

fn on(verbs: &[&str]) -> Vec<String> {
    verbs.iter().map(|verb| format!("impersonate-on:user-info:{verb}")).collect()
}

/// Whom forwarding may act for: anybody who is no part of the system itself. Group names cannot be limited by prefix;
/// that nothing is reached by it is the matter of *where*.
fn who() -> Value {
    json!([{
        "apiGroups": ["authentication.k8s.io"],
        "resources": ["users", "groups", "uids", format!("userextras/{TOKEN_EXTRA}")],
        "verbs": ["impersonate:user-info"],
    }])
}

/// Those who are no project's: tenants on requests without a namespace, and the probe's member.
fn legacy_tenant() -> Value {
    json!([
        {
            "apiGroups": [""],
            "resources": ["users"],
            "resourceNames": [TENANT_GROUP, probe::user()],
            "verbs": ["impersonate"],
        },
        {
            "apiGroups": [""],
            "resources": ["groups"],
            "resourceNames": [TENANT_GROUP, probe::group()],
            "verbs": ["impersonate"],
        },
        {
            "apiGroups": ["authentication.k8s.io"],
            "resources": [format!("userextras/{PERSON_EXTRA}"), format!("userextras/{TOKEN_EXTRA}")],
            "verbs": ["impersonate"],
        },
    ])
}

/// What forwarding may do for others outside of namespaces: discovery, self reviews, what tenants read.
fn on_cluster() -> Value {
    let mut rules = vec![
        json!({
            "apiGroups": ["authorization.k8s.io"],
            "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"],
            "verbs": on(&["create"]),
        }),
        json!({
            "apiGroups": ["authentication.k8s.io"],
            "resources": ["selfsubjectreviews"],
            "verbs": on(&["create"]),
        }),
        json!({
            "nonResourceURLs": [
                "/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*", "/version", "/version/"
            ],
            "verbs": on(&["get"]),
        }),
    ];
    rules.extend(
        TENANT_READABLE
            .iter()
            .map(|(group, resource)| json!({"apiGroups": [group], "resources": [resource], "verbs": on(&READ)})),
    );
    json!(rules)
}

fn tenant_read() -> Value {
    TENANT_READABLE
        .iter()
        .map(|(group, resource)| json!({"apiGroups": [group], "resources": [resource], "verbs": READ}))
        .collect()
}

/// What forwarding may do for others in a namespace where it is bound: everything that a role may grant. The person's
/// own role is checked beside it.
pub(super) fn forward_on(options: &ManifestOptions) -> Value {
    let all = on(&VERBS);
    let mut groups = WHOLE_GROUPS.to_vec();
    groups.extend(options.tenant_api_groups.iter().map(String::as_str));
    json!([
        {"apiGroups": [""], "resources": ["namespaces"], "verbs": on(&["get", "update", "patch"])},
        {"apiGroups": [""], "resources": ["resourcequotas", "resourcequotas/status", "limitranges"], "verbs": on(&READ)},
        {"apiGroups": [""], "resources": CORE, "verbs": all},
        {"apiGroups": [RBAC], "resources": ["roles", "rolebindings"], "verbs": all},
        {"apiGroups": groups, "resources": ["*"], "verbs": all},
    ])
}

/// What housekeeping may do. `bind` and `escalate` are without names because AccessRoles are named by people; the guards
/// hold both to `bailiwick:role:*`. Without guards it only reads.
fn housekeeping(options: &ManifestOptions) -> Value {
    let write: &[&str] = if options.guarded() { &["create", "update", "patch", "delete"] } else { &[] };
    let verbs = READ.iter().chain(write).collect::<Vec<_>>();
    let mut rules = vec![
        json!({"apiGroups": [""], "resources": ["namespaces", "resourcequotas", "limitranges"], "verbs": verbs}),
        json!({"apiGroups": ["networking.k8s.io"], "resources": ["networkpolicies"], "verbs": verbs}),
        json!({"apiGroups": [RBAC], "resources": ["rolebindings"], "verbs": verbs}),
        // Refused Pods are told by the events of what wanted to make them.
        json!({"apiGroups": [""], "resources": ["events"], "verbs": READ}),
    ];
    if options.guarded() {
        let more = [&["bind", "escalate"][..], write].concat();
        let verbs = READ.iter().chain(&more).collect::<Vec<_>>();
        rules.push(json!({"apiGroups": [RBAC], "resources": ["clusterroles"], "verbs": verbs}));
        rules.push(json!({
            "apiGroups": ["admissionregistration.k8s.io"],
            "resources": ["validatingadmissionpolicies", "validatingadmissionpolicybindings"],
            "verbs": READ,
        }));
    } else {
        rules.push(json!({"apiGroups": [RBAC], "resources": ["clusterroles"], "verbs": READ}));
    }
    json!(rules)
}
