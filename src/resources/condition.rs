//! Conditions, as <https://github.com/kubernetes/community/blob/master/contributors/devel/sig-architecture/api-conventions.md> has them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One observed aspect of a resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Aspect, in CamelCase.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Machine-readable reason, in CamelCase.
    pub reason: String,
    /// For people: what was seen and what to do.
    #[serde(default)]
    pub message: String,
    /// When `status` last changed (RFC 3339, UTC).
    pub last_transition_time: String,
}

/// Puts a condition into a list, keeping the transition time while the status stays the same.
/// Returns whether anything but the time changed.
pub fn set_condition(conditions: &mut Vec<Condition>, mut new: Condition) -> bool {
    match conditions.iter_mut().find(|c| c.type_ == new.type_) {
        Some(old) => {
            if old.status == new.status {
                new.last_transition_time.clone_from(&old.last_transition_time);
            }
            let changed = *old != new;
            *old = new;
            changed
        }
        None => {
            conditions.push(new);
            true
        }
    }
}
