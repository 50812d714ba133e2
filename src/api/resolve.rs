//! Names become UIDs once: when a grant or a team first meets the account, team, project or cluster that it names.
//! Whoever takes the name later is a stranger and inherits nothing.

use std::sync::Arc;

use bytes::Bytes;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Map, Value};
use tracing::warn;

use super::ApiState;
use crate::index::Snapshot;
use crate::store::{Key, Kind, StoreError};

/// How often a write is tried again when somebody else was faster.
const TRIES: usize = 5;

/// Completes the stored status of a grant or a team. Returns whether it changed.
pub(super) fn resolve(kind: Kind, snapshot: &Snapshot, object: &mut Value) -> bool {
    match kind {
        Kind::Grant => resolve_grant(snapshot, object),
        Kind::Team => resolve_team(snapshot, object),
        _ => false,
    }
}

fn resolve_grant(snapshot: &Snapshot, object: &mut Value) -> bool {
    let spec = &object["spec"];
    let subject = spec["subject"]["name"].as_str().unwrap_or_default();
    let subject = match spec["subject"]["kind"].as_str() {
        Some("User") => uid(snapshot.users.get(subject).map(|s| &s.object.metadata)),
        Some("Team") => uid(snapshot.teams.get(subject).map(|s| &s.object.metadata)),
        _ => None,
    };
    let target = spec["target"]["name"].as_str().unwrap_or_default();
    let target = match spec["target"]["kind"].as_str() {
        Some("Project") => uid(snapshot.projects.get(target).map(|s| &s.object.metadata)),
        Some("Cluster") => uid(snapshot.clusters.get(target).map(|s| &s.object.metadata)),
        _ => None,
    };
    let found = [("subjectUID", subject), ("targetUID", target)];
    let status = member(object, "status");
    let mut changed = false;
    for (field, uid) in found {
        if let (None, Some(uid)) = (status.get(field), uid) {
            status.insert(field.to_owned(), Value::String(uid));
            changed = true;
        }
    }
    changed
}

fn resolve_team(snapshot: &Snapshot, object: &mut Value) -> bool {
    let users = object["spec"]["users"].as_array().cloned().unwrap_or_default();
    let names: Vec<&str> = users.iter().filter_map(Value::as_str).collect();
    let status = member(object, "status");
    let before = status.get("memberUIDs").and_then(Value::as_object).cloned().unwrap_or_default();
    let mut after = Map::new();
    for name in names {
        // A name that is taken out and put in again is resolved anew: that is an administrator's decision.
        let known = before.get(name).cloned();
        let current = || uid(snapshot.users.get(name).map(|s| &s.object.metadata)).map(Value::String);
        if let Some(uid) = known.or_else(current) {
            after.insert(name.to_owned(), uid);
        }
    }
    let changed = before != after;
    status.insert("memberUIDs".to_owned(), Value::Object(after));
    changed
}

fn member<'a>(object: &'a mut Value, name: &str) -> &'a mut Map<String, Value> {
    if !object.get(name).is_some_and(Value::is_object) {
        object[name] = Value::Object(Map::new());
    }
    // The line above made it an object.
    object[name].as_object_mut().expect("is an object")
}

fn uid(metadata: Option<&ObjectMeta>) -> Option<String> {
    let metadata = metadata?;
    if metadata.deletion_timestamp.is_some() { None } else { metadata.uid.clone() }
}

/// Resolves the grants and teams that have waited for an object which an administrator just created.
pub(super) async fn resolve_waiting(state: &ApiState, kind: Kind, name: &str) {
    let snapshot = state.0.parts.index.snapshot();
    let mut waiting: Vec<Key> = vec![];
    for grant in snapshot.grants.values() {
        let spec = &grant.object.spec;
        let named = spec.subject.name == name || spec.target.name == name;
        if named && matches!(kind, Kind::User | Kind::Team | Kind::Project | Kind::Cluster) {
            waiting.push(Key::new(Kind::Grant, grant.name.clone()));
        }
    }
    for (team, stored) in &snapshot.teams {
        if kind == Kind::User && stored.object.spec.users.iter().any(|user| user == name) {
            waiting.push(Key::new(Kind::Team, team.clone()));
        }
    }
    for key in waiting {
        // The object itself is stored and acknowledged; what could not be resolved says so in its status.
        if let Err(why) = resolve_stored(state, &snapshot, &key).await {
            warn!(%key, %why, "a waiting reference was not resolved");
        }
    }
}

async fn resolve_stored(state: &ApiState, snapshot: &Arc<Snapshot>, key: &Key) -> Result<(), StoreError> {
    let parts = &state.0.parts;
    for _ in 0..TRIES {
        let Some(entry) = parts.store.get(key).await? else { return Ok(()) };
        let Ok(mut object) = serde_json::from_slice::<Value>(&entry.value) else { return Ok(()) };
        if !resolve(key.kind, snapshot, &mut object) {
            return Ok(());
        }
        match parts.store.update(key.clone(), entry.revision, Bytes::from(object.to_string())).await {
            Ok(revision) => {
                // The index only fails when the process goes down.
                let _ = parts.index.applied(revision).await;
                return Ok(());
            }
            Err(StoreError::Conflict { .. }) => {}
            Err(StoreError::NotFound(_)) => return Ok(()),
            Err(other) => return Err(other),
        }
    }
    Err(StoreError::Unavailable("others kept changing it".to_owned()))
}
