//! The LimitRange: what containers get that say nothing.

use serde_json::{Value, json};

use super::{Place, metadata};

/// Name of the LimitRange.
pub const NAME: &str = "bailiwick";

/// The LimitRange as it is applied, where the project has defaults.
pub fn desired(place: &Place<'_>) -> Option<Value> {
    let defaults = place.spec.container_defaults.as_ref()?;
    if defaults.requests.is_empty() && defaults.limits.is_empty() {
        return None;
    }
    // The API server would fill in a request from the limit; said here, so that nothing differs from what is applied.
    let mut requests = defaults.limits.clone();
    requests.extend(defaults.requests.clone());
    let mut item = json!({"type": "Container", "defaultRequest": requests});
    if !defaults.limits.is_empty() {
        item["default"] = json!(defaults.limits);
    }
    Some(json!({
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": metadata(NAME, place.namespace),
        "spec": {"limits": [item]},
    }))
}
