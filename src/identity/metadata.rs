//! Metadata of a resource that we create ourselves.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

/// What every new resource carries: name, a fresh UID, the time to the second, generation 1.
pub fn new_metadata(name: &str, now: Timestamp) -> ObjectMeta {
    let created = Timestamp::from_second(now.as_second()).unwrap_or(now);
    ObjectMeta {
        name: Some(name.to_owned()),
        uid: Some(uuid::Uuid::new_v4().to_string()),
        creation_timestamp: Some(Time(created)),
        generation: Some(1),
        ..ObjectMeta::default()
    }
}
