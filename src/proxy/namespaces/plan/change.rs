//! Changes of a namespace's labels and annotations: read whole, every key checked, and written anew.

use bytes::Bytes;
use serde_json::{Map, Value};

use super::super::metadata::{Part, invalid, may_set, refused, shown};
use super::super::{Asked, Encoding};
use crate::clusters::names::PROJECT;
use crate::status::Status;

/// The body to forward: what was read, where all of it is labels and annotations that members may set.
pub(super) fn checked(asked: &Asked, namespace: &str, project: &str) -> Result<Bytes, Status> {
    let mut object = asked.object.clone();
    match asked.encoding {
        Encoding::JsonPatch => json_patch(&object, namespace)?,
        Encoding::MergePatch | Encoding::StrategicPatch | Encoding::Apply => {
            without_own_project(&mut object, project);
            merge(&object, namespace)?;
        }
        Encoding::Json | Encoding::Protobuf => {
            return Err(Status::new(
                http::StatusCode::METHOD_NOT_ALLOWED,
                "MethodNotAllowed",
                "namespaces are changed by patches here (kubectl label, annotate, apply, edit), not replaced",
            ));
        }
    }
    Ok(Bytes::from(object.to_string()))
}

/// A manifest that chose its project by the label may go on saying so, or stop; the label itself stays ours.
fn without_own_project(object: &mut Value, project: &str) {
    let labels = object.pointer_mut("/metadata/labels").and_then(Value::as_object_mut);
    if let Some(labels) = labels
        && labels.get(PROJECT).is_some_and(|named| named.is_null() || named == project)
    {
        labels.remove(PROJECT);
    }
}

/// A merge patch, a strategic merge patch or an applied object: what is there is set, what is null is taken away.
fn merge(patch: &Value, namespace: &str) -> Result<(), Status> {
    let fields = patch.as_object().ok_or_else(|| Status::bad_request("the patch is an object"))?;
    let empty = Map::new();
    for (field, value) in fields {
        let plain = match field.as_str() {
            "apiVersion" => value == "v1",
            "kind" => value == "Namespace",
            "metadata" => value.is_object(),
            // What an edited or applied manifest says where it says nothing.
            _ => value.as_object().is_some_and(Map::is_empty),
        };
        if !plain {
            return Err(not_for_members(namespace, &shown(field)));
        }
    }
    let metadata = fields.get("metadata").and_then(Value::as_object).unwrap_or(&empty);
    for (field, value) in metadata {
        match field.as_str() {
            "name" if value == namespace => {}
            "labels" => keys(Part::Labels, namespace, value)?,
            "annotations" => keys(Part::Annotations, namespace, value)?,
            // Preconditions.
            "uid" | "resourceVersion" if value.is_string() => {}
            "creationTimestamp" if value.is_null() => {}
            _ => return Err(not_for_members(namespace, &format!("metadata.{}", shown(field)))),
        }
    }
    Ok(())
}

fn keys(part: Part, namespace: &str, given: &Value) -> Result<(), Status> {
    let field = || match part {
        Part::Labels => "metadata.labels",
        Part::Annotations => "metadata.annotations",
    };
    // Null would take all away, ours too.
    let map = given.as_object().ok_or_else(|| invalid(namespace, field(), "must be a map of texts"))?;
    let mut foreign = vec![];
    for (key, value) in map {
        if !value.is_string() && !value.is_null() {
            return Err(invalid(namespace, &format!("{}[{}]", field(), shown(key)), "must be a text"));
        }
        if !may_set(part, namespace, key, value.as_str()) {
            foreign.push(shown(key));
        }
    }
    if foreign.is_empty() { Ok(()) } else { Err(refused(namespace, part, &foreign)) }
}

/// A JSON patch, of which each step sets, takes away or tests one label or annotation.
fn json_patch(patch: &Value, namespace: &str) -> Result<(), Status> {
    let steps = patch.as_array().ok_or_else(|| Status::bad_request("a JSON patch is a list"))?;
    for step in steps {
        let known = step.as_object().is_some_and(|step| {
            step.iter().all(|(field, value)| {
                field == "value" || (matches!(field.as_str(), "op" | "path") && value.is_string())
            })
        });
        let text = |field: &str| step.get(field).and_then(Value::as_str).unwrap_or_default();
        let (op, path, value) = (text("op"), text("path"), step.get("value"));
        let part = path.strip_prefix("/metadata/labels/").map(|key| (Part::Labels, key));
        let part = part.or_else(|| path.strip_prefix("/metadata/annotations/").map(|key| (Part::Annotations, key)));
        let Some((part, key)) = part.filter(|(_, key)| known && !key.contains('/')) else {
            return Err(not_for_members(namespace, &shown(path)));
        };
        let key = key.replace("~1", "/").replace("~0", "~");
        let (sets, value) = match (op, value) {
            ("remove", None) => (true, None),
            ("add" | "replace", Some(Value::String(value))) => (true, Some(value.as_str())),
            ("test", Some(Value::String(_))) => (false, None),
            _ => return Err(invalid(namespace, &shown(path), "is added, replaced or tested as a text, or removed")),
        };
        if sets && !may_set(part, namespace, &key, value) {
            return Err(refused(namespace, part, &[shown(&key)]));
        }
    }
    Ok(())
}

fn not_for_members(namespace: &str, field: &str) -> Status {
    invalid(namespace, field, "members change labels and annotations of a namespace, and nothing else")
}
