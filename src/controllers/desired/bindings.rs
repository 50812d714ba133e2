//! RoleBindings: one per role, to groups. Their number does not depend on how many people a project has.

use serde_json::{Value, json};

use super::{Place, metadata};
use crate::clusters::names::{FORWARD_ON, FORWARDING, SYSTEM_NAMESPACE, role_name};
use crate::domain::names::{cluster_group, project_group};
use crate::domain::roles::BUILT_IN;

const RBAC: &str = "rbac.authorization.k8s.io";

/// The bindings of the roles, and the one that lets the forwarding account act for people in this namespace.
pub fn desired(place: &Place<'_>) -> impl Iterator<Item = Value> {
    let forwarding = json!([{"kind": "ServiceAccount", "name": FORWARDING, "namespace": SYSTEM_NAMESPACE}]);
    let forwarding = binding(place, FORWARD_ON, forwarding);
    let roles = place.roles.iter().map(|role| {
        let mut subjects = vec![group(&project_group(place.project, place.project_uid, role))];
        // Cluster grants give built-in roles only.
        if BUILT_IN.contains(role) {
            subjects.push(group(&cluster_group(place.cluster, place.cluster_uid, role)));
        }
        binding(place, &role_name(role), json!(subjects))
    });
    roles.chain([forwarding]).collect::<Vec<_>>().into_iter()
}

fn binding(place: &Place<'_>, role: &str, subjects: Value) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": metadata(role, place.namespace),
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
        "subjects": subjects,
    })
}

fn group(name: &str) -> Value {
    json!({"apiGroup": RBAC, "kind": "Group", "name": name})
}
