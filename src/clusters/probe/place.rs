//! A namespace in which members' attacks are tried: labelled and bound like a project's, and nobody's.

use serde_json::{Value, json};

use super::{Accounts, Aspect, Check, NoAnswer};
use crate::clusters::client::{Ask, ask};
use crate::clusters::manifest::Impersonation;
use crate::clusters::names::*;
use crate::domain::names::{kubernetes_user, project_group};

/// Name of the namespace.
pub const PROBE_NAMESPACE: &str = "bailiwick-probe";
/// Name of its project and role. No project and no role can be called so: their names hold no dots.
const NAME: &str = "probe.bailiwick";
/// UID of its project.
const UID: &str = "00000000-0000-0000-0000-000000000000";

/// Headers of the member.
pub(super) fn member(form: Impersonation) -> [(&'static str, String); 2] {
    let user = match form {
        Impersonation::Constrained => kubernetes_user(NAME),
        Impersonation::Limited => legacy_user(NAME, UID),
    };
    [("impersonate-user", user), ("impersonate-group", group())]
}

/// The member's group.
pub(crate) fn group() -> String {
    project_group(NAME, UID, NAME)
}

/// The member's user in the limited form.
pub(crate) fn user() -> String {
    legacy_user(NAME, UID)
}

/// The ClusterRole that the member holds.
pub fn role() -> String {
    role_name(NAME)
}

/// Makes the namespace with what belongs into it, or leaves it as it is.
pub(super) async fn make(accounts: &Accounts) -> Result<Result<(), String>, NoAnswer> {
    for object in objects() {
        let answer = ask(&accounts.housekeeping, &[], &Ask::apply(path(&object), object.clone())).await;
        let answer = answer.map_err(|why| NoAnswer(format!("making the namespace {PROBE_NAMESPACE}: {why}")))?;
        if !answer.ok() {
            return Ok(Err(answer.message()));
        }
    }
    Ok(Ok(()))
}

fn objects() -> Vec<Value> {
    let rbac = "rbac.authorization.k8s.io";
    let managed = |name: &str| json!({"name": name, "namespace": PROBE_NAMESPACE, "labels": {MANAGED: MANAGED_VALUE}});
    let create =
        |group: &str, resource: &str| json!({"apiGroups": [group], "resources": [resource], "verbs": ["create"]});
    let binding = |role: &str, subject: Value| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": managed(role),
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": role}, "subjects": [subject],
        })
    };
    vec![
        json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": PROBE_NAMESPACE, "labels": {
                PROJECT: NAME, PROJECT_UID: UID, ISOLATION: "namespace", POD_SECURITY[0]: "restricted",
            }},
        }),
        // Nothing can ever be made here; admission asks the guards before it counts. Two bindings are ours; the room
        // beside them is for writes of ours that are counted while they turn out to change nothing.
        json!({
            "apiVersion": "v1", "kind": "ResourceQuota", "metadata": managed("bailiwick"),
            "spec": {"hard": {
                "pods": "0", "services": "0", "secrets": "0",
                "count/networkpolicies.networking.k8s.io": "0",
                "count/rolebindings.rbac.authorization.k8s.io": "4",
            }},
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": role(), "labels": {MANAGED: MANAGED_VALUE}},
            "rules": [
                create("", "services"), create("", "secrets"), create("", "serviceaccounts/token"),
                create("networking.k8s.io", "networkpolicies"), create(rbac, "rolebindings"),
            ],
        }),
        binding(&role(), json!({"apiGroup": rbac, "kind": "Group", "name": group()})),
        binding(FORWARD_ON, json!({"kind": "ServiceAccount", "name": FORWARDING, "namespace": SYSTEM_NAMESPACE})),
    ]
}

fn path(object: &Value) -> String {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    match object["kind"].as_str() {
        Some("Namespace") => format!("/api/v1/namespaces/{name}"),
        Some("ResourceQuota") => format!("/api/v1/namespaces/{PROBE_NAMESPACE}/resourcequotas/{name}"),
        Some("ClusterRole") => format!("/apis/rbac.authorization.k8s.io/v1/clusterroles/{name}"),
        _ => format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{PROBE_NAMESPACE}/rolebindings/{name}"),
    }
}

/// A failed check that the namespace could not be made.
pub(super) fn missing(why: String) -> Check {
    Check { name: format!("namespace {PROBE_NAMESPACE}"), ok: false, message: why, aspect: Aspect::Guard }
}
