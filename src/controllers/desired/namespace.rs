//! The Namespace: whose it is, and its Pod Security levels.

use serde_json::{Map, Value, json};

use super::Place;
use crate::clusters::names::{ISOLATION, POD_SECURITY, PROJECT, PROJECT_UID};
use crate::resources::project::NetworkIsolation;

/// The labels of a project's namespace that are ours. All others are left alone.
pub fn labels(place: &Place<'_>) -> Map<String, Value> {
    let isolation = match place.spec.network_isolation {
        NetworkIsolation::None => "none",
        NetworkIsolation::Project => "project",
        NetworkIsolation::Namespace => "namespace",
    };
    let mut labels = Map::new();
    labels.insert(PROJECT.to_owned(), json!(place.project));
    labels.insert(PROJECT_UID.to_owned(), json!(place.project_uid));
    labels.insert(ISOLATION.to_owned(), json!(isolation));
    let levels = &place.spec.pod_security;
    for (key, level) in POD_SECURITY.into_iter().zip([levels.enforce, levels.audit, levels.warn]) {
        labels.insert(key.to_owned(), json!(level.as_str()));
        labels.insert(format!("{key}-version"), json!("latest"));
    }
    labels
}

/// The Namespace as it is applied.
pub fn desired(place: &Place<'_>) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": place.namespace, "labels": labels(place)},
    })
}
