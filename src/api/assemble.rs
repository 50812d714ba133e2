//! Puts an object together from what a client sent and from what is the service's own: identity, times, finalizers,
//! status.

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::kinds::Served;
use super::write::{conflict, modified};
use crate::clock;
use crate::resources::API_VERSION;
use crate::status::{Cause, Status};
use crate::store::Revision;

/// Name of an object.
pub(super) fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// Checks that the body is an object of the kind that the path says.
pub(super) fn check_type(served: &Served, input: &Value) -> Result<(), Status> {
    let (api_version, kind) = (input["apiVersion"].as_str(), input["kind"].as_str());
    if api_version == Some(API_VERSION) && kind == Some(served.name()) {
        return Ok(());
    }
    let got = format!("{}, {}", api_version.unwrap_or("none"), kind.unwrap_or("none"));
    Err(Status::bad_request(format!(
        "the body must be of apiVersion {API_VERSION}, kind {} (got {got})",
        served.name()
    )))
}

/// Checks version and UID that a client says it is changing.
pub(super) fn check_preconditions(
    served: &Served,
    input: &Value,
    old: &Value,
    revision: Revision,
) -> Result<(), Status> {
    let name = self::name(old);
    match input["metadata"]["resourceVersion"].as_str().unwrap_or_default() {
        "" => {
            let message = "must be specified for an update";
            return Err(invalid(served, name, "metadata.resourceVersion", message));
        }
        version if version != revision.to_string() => return Err(modified(served, name)),
        _ => {}
    }
    match input["metadata"]["uid"].as_str() {
        Some(uid) if Some(uid) != old["metadata"]["uid"].as_str() => {
            let why = format!(
                "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
                old["metadata"]["uid"].as_str().unwrap_or_default()
            );
            Err(conflict(served, name, &why))
        }
        _ => Ok(()),
    }
}

/// The object as it is to be stored: of the client's metadata only what is the client's to say; the status of before.
pub(super) fn assemble(served: &Served, old: Option<&Value>, input: Value, now: Timestamp) -> Result<Value, Status> {
    let Value::Object(mut input) = input else {
        return Err(Status::bad_request("the body must be an object"));
    };
    let sent = match input.remove("metadata") {
        Some(Value::Object(metadata)) => metadata,
        None | Some(Value::Null) => Map::new(),
        Some(_) => return Err(Status::bad_request("metadata must be an object")),
    };
    let mut metadata = match old {
        None => fresh(served, &sent, now)?,
        Some(old) => kept(served, &sent, old)?,
    };
    for member in ["labels", "annotations"] {
        match sent.get(member) {
            None | Some(Value::Null) => drop(metadata.remove(member)),
            Some(Value::Object(map)) if map.is_empty() => drop(metadata.remove(member)),
            Some(value) => drop(metadata.insert(member.to_owned(), value.clone())),
        }
    }
    let mut object = Map::new();
    object.insert("apiVersion".to_owned(), Value::from(API_VERSION));
    object.insert("kind".to_owned(), Value::from(served.name()));
    object.insert("metadata".to_owned(), Value::Object(metadata));
    if let Some(spec) = input.remove("spec") {
        object.insert("spec".to_owned(), spec);
    }
    if let Some(status) = old.and_then(|old| old.get("status")) {
        object.insert("status".to_owned(), status.clone());
    }
    Ok(Value::Object(object))
}

/// Metadata of a new object.
fn fresh(served: &Served, sent: &Map<String, Value>, now: Timestamp) -> Result<Map<String, Value>, Status> {
    let text = |member: &str| sent.get(member).and_then(Value::as_str).unwrap_or_default();
    let name = match (text("name"), text("generateName")) {
        ("", "") => return Err(invalid(served, "", "metadata.name", "name or generateName is required")),
        ("", prefix) => generate(prefix)?,
        (name, _) => name.to_owned(),
    };
    if !text("resourceVersion").is_empty() {
        return Err(Status::bad_request("resourceVersion should not be set on objects to be created"));
    }
    refuse_foreign(served, &name, sent)?;
    let mut metadata = Map::new();
    metadata.insert("name".to_owned(), Value::String(name));
    metadata.insert("uid".to_owned(), Value::String(uuid::Uuid::new_v4().to_string()));
    metadata.insert("creationTimestamp".to_owned(), Value::String(clock::rfc3339(now)));
    metadata.insert("generation".to_owned(), Value::from(1));
    Ok(metadata)
}

/// Metadata of an object that is changed: what nobody can change stays.
fn kept(served: &Served, sent: &Map<String, Value>, old: &Value) -> Result<Map<String, Value>, Status> {
    let before = old["metadata"].as_object().cloned().unwrap_or_default();
    let name = self::name(old);
    for member in ["name", "creationTimestamp"] {
        match sent.get(member) {
            None | Some(Value::Null) if member != "name" => {}
            value if value != before.get(member) => {
                return Err(invalid(served, name, &format!("metadata.{member}"), "field is immutable"));
            }
            _ => {}
        }
    }
    refuse_foreign(served, name, sent)?;
    Ok(before)
}

/// Refuses metadata that would be kept without an effect.
fn refuse_foreign(served: &Served, name: &str, sent: &Map<String, Value>) -> Result<(), Status> {
    let any = |member: &str| sent.get(member).and_then(Value::as_array).is_some_and(|items| !items.is_empty());
    if any("finalizers") {
        return Err(invalid(served, name, "metadata.finalizers", "this API has no finalizers"));
    }
    if any("ownerReferences") {
        return Err(invalid(served, name, "metadata.ownerReferences", "this API has no garbage collection"));
    }
    if sent.get("namespace").and_then(Value::as_str).is_some_and(|namespace| !namespace.is_empty()) {
        return Err(invalid(served, name, "metadata.namespace", "this kind has no namespaces"));
    }
    Ok(())
}

/// A name from a prefix, with five random characters as Kubernetes adds them.
fn generate(prefix: &str) -> Result<String, Status> {
    // No vowels and no digits that look like letters: no words come about.
    const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut bytes = [0u8; 5];
    getrandom::fill(&mut bytes).map_err(|_| Status::internal("no name could be made"))?;
    let suffix: String = bytes.iter().map(|b| char::from(ALPHABET[usize::from(*b) % ALPHABET.len()])).collect();
    let room = crate::domain::names::MAX_NAME - suffix.len();
    let prefix: String = prefix.chars().take(room).collect();
    Ok(format!("{prefix}{suffix}"))
}

/// 422 for one field.
pub(super) fn invalid(served: &Served, name: &str, field: &str, message: &str) -> Status {
    let cause = Cause { reason: "FieldValueInvalid".to_owned(), message: message.to_owned(), field: field.to_owned() };
    Status::invalid(served.name(), name, vec![cause])
}
