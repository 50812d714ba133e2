//! What an object must satisfy, and what must happen before it changes.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::ApiState;
use super::assemble;
use super::kinds::Served;
use super::view::View;
use crate::resources::{AccessRole, Cluster, Grant, Project, Team, User};
use crate::status::{Cause, Status};
use crate::store::Kind;

/// The object as its type writes it: defaults filled in, nothing else in it.
pub(super) fn decode(served: &Served, _old: Option<&Value>, object: Value, _view: View<'_>) -> Result<Value, Status> {
    let typed = match served.kind {
        Kind::Cluster => typed::<Cluster>(&object),
        Kind::User => typed::<User>(&object),
        Kind::Team => typed::<Team>(&object),
        Kind::AccessRole => typed::<AccessRole>(&object),
        Kind::Grant => typed::<Grant>(&object),
        Kind::Project => typed::<Project>(&object),
        _ => Err("objects of this kind cannot be written".to_owned()),
    };
    let mut typed = typed.map_err(|message| {
        let cause = Cause { reason: "FieldValueInvalid".to_owned(), message, field: "spec".to_owned() };
        Status::invalid(served.name(), assemble::name(&object), vec![cause])
    })?;
    count_generation(_old, &mut typed);
    Ok(typed)
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

/// Checks an object beside all others.
pub(super) fn check(_served: &Served, _old: Option<&Value>, _new: &Value, _view: View<'_>) -> Result<(), Status> {
    Ok(())
}

/// What must have happened before a change is stored.
pub(super) async fn before_update(_state: &ApiState, _kind: Kind, _old: &Value, _new: &Value) -> Result<(), Status> {
    Ok(())
}
