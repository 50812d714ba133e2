//! The NetworkPolicy of an isolated project: who its Pods may talk with, both ways.

use serde_json::{Value, json};

use super::{Place, metadata};
use crate::clusters::names::{PROJECT, PROJECT_UID};
use crate::resources::project::NetworkIsolation;

/// Name of the NetworkPolicy.
pub const NAME: &str = "bailiwick";
/// Address of the node-local DNS cache, where a cluster has one
/// (<https://kubernetes.io/docs/tasks/administer-cluster/nodelocaldns/>).
const NODE_LOCAL_DNS: &str = "169.254.20.10/32";

/// The NetworkPolicy as it is applied; none without isolation.
pub fn desired(place: &Place<'_>) -> Option<Value> {
    let peer = match place.spec.network_isolation {
        NetworkIsolation::None => return None,
        NetworkIsolation::Project => json!({"namespaceSelector": {"matchLabels": {
            PROJECT: place.project,
            PROJECT_UID: place.project_uid,
        }}}),
        NetworkIsolation::Namespace => json!({"podSelector": {}}),
    };
    let dns = json!({
        "ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}],
        "to": [
            {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}},
            {"ipBlock": {"cidr": NODE_LOCAL_DNS}},
        ],
    });
    Some(json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(NAME, place.namespace),
        "spec": {
            "podSelector": {},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"from": [peer]}],
            "egress": [{"to": [peer]}, dns],
        },
    }))
}
