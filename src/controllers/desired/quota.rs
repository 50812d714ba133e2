//! The ResourceQuota: the namespace's share, and a cap on RoleBindings.

use serde_json::{Value, json};

use super::{Place, metadata};
use crate::clusters::names::{MAX_ROLE_BINDINGS, ROLE_BINDINGS_QUOTA_KEY};
use crate::domain::quantity::Quantity;

/// Name of the ResourceQuota.
pub const NAME: &str = "bailiwick";

/// The ResourceQuota as it is applied.
pub fn desired(place: &Place<'_>) -> Value {
    let mut hard = place.share.clone();
    // A project may ask for fewer RoleBindings, never for more.
    let cap = Quantity::whole(i64::from(MAX_ROLE_BINDINGS));
    let own = hard.get(ROLE_BINDINGS_QUOTA_KEY).and_then(|text| text.parse::<Quantity>().ok());
    let cap = own.map_or(cap, |own| own.min(cap));
    hard.insert(ROLE_BINDINGS_QUOTA_KEY.to_owned(), cap.to_string());
    json!({
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": metadata(NAME, place.namespace),
        "spec": {"hard": hard},
    })
}
