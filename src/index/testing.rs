//! Snapshots for tests, made the way in which the index makes them.

use bytes::Bytes;
use serde_json::{Value, json};

use super::Snapshot;
use crate::store::sealed::Sealer;
use crate::store::{Entry, Event, Key, Kind, Revision};

/// The snapshot of a store that holds these objects. None of them may be of a sealed kind.
pub(crate) fn snapshot(objects: &[(Kind, &str, Value)]) -> Snapshot {
    let sealer = Sealer::new("k1", &[7; 32]);
    let mut snapshot = Snapshot::empty();
    for (at, (kind, name, value)) in (1..).zip(objects) {
        let revision = Revision(at);
        let entry = Entry { key: Key::new(*kind, *name), revision, value: Bytes::from(value.to_string()) };
        snapshot.apply(&Event::Put { entry, created: true }, &sealer).unwrap();
    }
    snapshot
}

/// A resource with the UID `uid-<name>`.
pub(crate) fn resource(kind: Kind, name: &str, spec: Value, status: Value) -> (Kind, &str, Value) {
    let object = json!({
        "apiVersion": "bailiwick.dev/v1alpha1", "kind": kind.as_str(),
        "metadata": {"name": name, "uid": format!("uid-{name}")}, "spec": spec, "status": status,
    });
    (kind, name, object)
}
