//! What an object must satisfy, and what must happen around its change.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tracing::error;

use super::ApiState;
use super::assemble;
use super::kinds::Served;
use super::view::View;
use crate::resources::validation::validate;
use crate::resources::{AccessRole, Cluster, Grant, Project, Team, User};
use crate::status::{Cause, Status};
use crate::store::{Key, Kind};

/// The object as its type writes it: defaults filled in, nothing else in it.
pub(super) fn decode(served: &Served, old: Option<&Value>, object: Value, view: View<'_>) -> Result<Value, Status> {
    let mut typed = match whole(served.kind, &object) {
        Ok(typed) => typed,
        Err(message) => {
            // Validation knows which field it is.
            check(served, old, &object, view)?;
            let cause = Cause { reason: "FieldValueInvalid".to_owned(), message, field: "spec".to_owned() };
            return Err(Status::invalid(served.name(), assemble::name(&object), vec![cause]));
        }
    };
    count_generation(old, &mut typed);
    Ok(typed)
}

/// As its type writes it. What is stored goes through this too before it is compared with anything.
pub(super) fn whole(kind: Kind, object: &Value) -> Result<Value, String> {
    match kind {
        Kind::Cluster => typed::<Cluster>(object),
        Kind::User => typed::<User>(object),
        Kind::Team => typed::<Team>(object),
        Kind::AccessRole => typed::<AccessRole>(object),
        Kind::Grant => typed::<Grant>(object),
        Kind::Project => typed::<Project>(object),
        _ => Err("objects of this kind cannot be written".to_owned()),
    }
}

fn typed<T: Serialize + DeserializeOwned>(object: &Value) -> Result<Value, String> {
    let typed: T = serde_json::from_value(object.clone()).map_err(|e| e.to_string())?;
    serde_json::to_value(typed).map_err(|e| e.to_string())
}

/// The generation counts changes of the spec.
fn count_generation(old: Option<&Value>, new: &mut Value) {
    if let Some(old) = old {
        let before = old["metadata"]["generation"].as_i64().unwrap_or(1);
        let after = if old["spec"] == new["spec"] { before } else { before + 1 };
        new["metadata"]["generation"] = Value::from(after);
    }
}

/// Checks an object beside all others. The status must be the stored one.
pub(super) fn check(served: &Served, old: Option<&Value>, new: &Value, view: View<'_>) -> Result<(), Status> {
    validate(served.kind, old, new, view.snapshot)
        .map_err(|causes| Status::invalid(served.name(), assemble::name(new), causes))
}

fn becomes_disabled(kind: Kind, old: &Value, new: &Value) -> bool {
    kind == Kind::User && old["spec"]["disabled"] != true && new["spec"]["disabled"] == true
}

/// What must have happened before a change is stored: an account that becomes disabled loses what it was issued
/// first, so that nothing of it comes back should the account be enabled again.
pub(super) async fn before_update(state: &ApiState, kind: Kind, old: &Value, new: &Value) -> Result<(), Status> {
    if becomes_disabled(kind, old, new) { raise_epoch(state, new).await } else { Ok(()) }
}

/// As before the change: what was issued in between dies too.
pub(super) async fn after_update(state: &ApiState, kind: Kind, old: &Value, new: &Value) -> Result<(), Status> {
    if becomes_disabled(kind, old, new) { raise_epoch(state, new).await } else { Ok(()) }
}

async fn raise_epoch(state: &ApiState, user: &Value) -> Result<(), Status> {
    let name = assemble::name(user);
    state.0.parts.accounts.raise_epoch(name).await.map_err(|why| {
        error!(user = name, %why, "what the account was issued could not be ended");
        Status::unavailable("what the account was issued could not be ended; try again")
    })
}

/// What goes with an object that is gone. The object's UID binds all of it, so that nothing is left in force should
/// this fail; it is only litter then.
pub(super) async fn after_delete(state: &ApiState, kind: Kind, name: &str, uid: &str) {
    let parts = &state.0.parts;
    let mut litter = vec![];
    match kind {
        Kind::User => {
            let snapshot = parts.index.snapshot();
            let tokens = snapshot.tokens_of(name).filter(|token| token.record.user_uid == uid);
            litter.extend(tokens.map(|token| Key::new(Kind::Token, token.record.id.as_str())));
            litter.push(Key::new(Kind::Account, name));
        }
        Kind::Cluster => litter.push(Key::new(Kind::ClusterCredential, name)),
        _ => {}
    }
    for key in litter {
        let removed = match parts.store.get(&key).await {
            Ok(Some(entry)) => parts.store.delete(key.clone(), entry.revision).await.map(|_| ()),
            Ok(None) => Ok(()),
            Err(why) => Err(why),
        };
        if let Err(why) = removed {
            error!(%key, %why, "was left behind by a deletion");
        }
    }
}
