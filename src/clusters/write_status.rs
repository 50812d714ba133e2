//! Writes what is known of a cluster into its resource.

use bytes::Bytes;
use serde_json::Value;

use super::health::Health;
use crate::clock;
use crate::resources::ClusterStatus;
use crate::store::{Key, Kind, Store, StoreError};

/// Tries against others who write the same resource: the controllers, a person.
const TRIES: usize = 5;

/// Why a status was not written.
#[derive(Debug, thiserror::Error)]
pub(super) enum StatusError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the resource cannot be read: {0}")]
    Malformed(#[from] serde_json::Error),
}

/// Writes by compare-and-swap, and only what changed. A resource that is gone, or of another UID, is left alone. Only
/// `status` is touched: whatever else stands in the resource stays as it is.
pub(super) async fn write_status(store: &dyn Store, cluster: &str, health: &Health) -> Result<(), StatusError> {
    let key = Key::new(Kind::Cluster, cluster);
    let mut tries = 0;
    loop {
        let Some(entry) = store.get(&key).await? else { return Ok(()) };
        let mut resource: Value = serde_json::from_slice(&entry.value)?;
        if resource["metadata"]["uid"].as_str() != Some(health.uid.as_str()) {
            return Ok(());
        }
        let mut status: ClusterStatus = match resource.get("status") {
            None | Some(Value::Null) => ClusterStatus::default(),
            Some(status) => serde_json::from_value(status.clone())?,
        };
        if !health.write(&mut status, &clock::rfc3339(clock::now())) {
            return Ok(());
        }
        resource["status"] = serde_json::to_value(status)?;
        match store.update(key.clone(), entry.revision, Bytes::from(serde_json::to_vec(&resource)?)).await {
            Ok(_) | Err(StoreError::NotFound(_)) => return Ok(()),
            Err(StoreError::Conflict { .. }) if tries < TRIES => tries += 1,
            Err(why) => return Err(why.into()),
        }
    }
}
