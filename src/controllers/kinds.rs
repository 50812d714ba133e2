//! The kinds of object that are kept in a cluster, and when an object is as it must be.

use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use serde_json::Value;

use crate::clusters::names::{MANAGED, MANAGED_VALUE};
use crate::domain::quantity::Quantity;

/// A kind of object of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectKind {
    /// v1 Namespace; all of them are watched, ours or not.
    Namespace,
    /// v1 ResourceQuota.
    ResourceQuota,
    /// v1 LimitRange.
    LimitRange,
    /// networking.k8s.io/v1 NetworkPolicy.
    NetworkPolicy,
    /// rbac.authorization.k8s.io/v1 RoleBinding.
    RoleBinding,
    /// rbac.authorization.k8s.io/v1 ClusterRole.
    ClusterRole,
}

impl ObjectKind {
    /// All kinds.
    pub const ALL: [Self; 6] = [
        Self::Namespace,
        Self::ResourceQuota,
        Self::LimitRange,
        Self::NetworkPolicy,
        Self::RoleBinding,
        Self::ClusterRole,
    ];
    /// The kinds inside a namespace.
    pub const NAMESPACED: [Self; 4] = [Self::ResourceQuota, Self::LimitRange, Self::NetworkPolicy, Self::RoleBinding];

    /// What kube needs to know of the kind.
    pub fn resource(self) -> ApiResource {
        let (group, kind, plural) = match self {
            Self::Namespace => ("", "Namespace", "namespaces"),
            Self::ResourceQuota => ("", "ResourceQuota", "resourcequotas"),
            Self::LimitRange => ("", "LimitRange", "limitranges"),
            Self::NetworkPolicy => ("networking.k8s.io", "NetworkPolicy", "networkpolicies"),
            Self::RoleBinding => ("rbac.authorization.k8s.io", "RoleBinding", "rolebindings"),
            Self::ClusterRole => ("rbac.authorization.k8s.io", "ClusterRole", "clusterroles"),
        };
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, "v1", kind), plural)
    }

    /// Top-level fields that say what the object does.
    fn content(self) -> &'static [&'static str] {
        match self {
            Self::Namespace => &[],
            Self::ResourceQuota | Self::LimitRange | Self::NetworkPolicy => &["spec"],
            Self::RoleBinding => &["roleRef", "subjects"],
            Self::ClusterRole => &["rules", "aggregationRule"],
        }
    }

    /// Whether an object says exactly what is desired. Labels that others added do not matter, except that an object
    /// of ours must carry ours and have no owner: garbage collection would be a way round the guards.
    pub fn agrees(self, seen: &DynamicObject, desired: &Value) -> bool {
        let labels = seen.metadata.labels.as_ref();
        let wanted = desired["metadata"]["labels"].as_object();
        let labelled = wanted
            .into_iter()
            .flatten()
            .all(|(key, value)| labels.and_then(|labels| labels.get(key)).map(String::as_str) == value.as_str());
        let unowned = self == Self::Namespace || seen.metadata.owner_references.as_ref().is_none_or(Vec::is_empty);
        let null = Value::Null;
        let same = |field: &&str| same(seen.data.get(field).unwrap_or(&null), desired.get(field).unwrap_or(&null));
        labelled && unowned && self.content().iter().all(same)
    }
}

/// Whether an object carries our label.
pub fn is_managed(object: &DynamicObject) -> bool {
    let labels = object.metadata.labels.as_ref();
    labels.and_then(|labels| labels.get(MANAGED)).is_some_and(|value| value == MANAGED_VALUE)
}

/// Equal as Kubernetes sees it: absent and empty are the same, and so are two spellings of one quantity.
fn same(a: &Value, b: &Value) -> bool {
    let empty = |value: &Value| match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        _ => false,
    };
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            let null = Value::Null;
            a.iter().all(|(key, value)| same(value, b.get(key).unwrap_or(&null)))
                && b.iter().all(|(key, value)| a.contains_key(key) || empty(value))
        }
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::String(x), Value::String(y)) => {
            x == y || matches!((x.parse::<Quantity>(), y.parse::<Quantity>()), (Ok(x), Ok(y)) if x == y)
        }
        _ => a == b || (empty(a) && empty(b)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(value: Value) -> DynamicObject {
        serde_json::from_value(value).unwrap()
    }

    fn quota(hard: Value) -> Value {
        json!({"apiVersion": "v1", "kind": "ResourceQuota",
            "metadata": {"name": "bailiwick", "labels": {MANAGED: MANAGED_VALUE}}, "spec": {"hard": hard}})
    }

    #[test]
    fn quantities_are_equal_by_amount() {
        let desired = quota(json!({"requests.cpu": "1500m", "pods": "10"}));
        assert!(
            ObjectKind::ResourceQuota.agrees(&object(quota(json!({"requests.cpu": "1.5", "pods": "10"}))), &desired)
        );
        for other in [
            json!({"requests.cpu": "2", "pods": "10"}),
            json!({"requests.cpu": "1500m"}),
            json!({"requests.cpu": "1500m", "pods": "10", "services": "1"}),
        ] {
            assert!(!ObjectKind::ResourceQuota.agrees(&object(quota(other.clone())), &desired), "{other}");
        }
    }

    #[test]
    fn an_object_of_ours_carries_our_label_and_has_no_owner() {
        let desired = quota(json!({"pods": "10"}));
        let mut unlabelled = desired.clone();
        unlabelled["metadata"]["labels"] = json!({});
        assert!(!ObjectKind::ResourceQuota.agrees(&object(unlabelled), &desired));
        let mut owned = desired.clone();
        owned["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "1"}]);
        assert!(!ObjectKind::ResourceQuota.agrees(&object(owned), &desired));
        let mut more = desired.clone();
        more["metadata"]["labels"]["app.kubernetes.io/part-of"] = "x".into();
        assert!(ObjectKind::ResourceQuota.agrees(&object(more), &desired));
    }
}
