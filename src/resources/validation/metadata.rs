//! What all kinds have in common: apiVersion, kind, metadata, and no status from people.

use serde_json::{Map, Value};

use super::{Causes, ResourceKind, text};
use crate::domain::{names, roles};
use crate::resources::API_VERSION;

/// Names that mean something else in a URL or on a command line.
const RESERVED: [&str; 2] = ["me", "self"];
const MAX_LABELS: usize = 64;
/// Most bytes of all annotations, keys and values together.
const MAX_ANNOTATIONS: usize = 64 * 1024;
/// Metadata that the service or the client library fills in; known, and of no effect here.
const KEPT: [&str; 9] = [
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generateName",
    "generation",
    "managedFields",
    "resourceVersion",
    "uid",
];

/// The object's name, empty where it has none.
pub(super) fn name(object: &Value) -> &str {
    object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default()
}

/// The object's UID, empty where it has none.
pub(super) fn uid(object: &Value) -> &str {
    object.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default()
}

/// A message of bounded length.
pub(super) fn bounded(message: &str) -> String {
    message.chars().take(300).collect()
}

pub(super) fn check(kind: ResourceKind, old: Option<&Value>, new: &Value, causes: &mut Causes) {
    let Value::Object(fields) = new else {
        causes.invalid("", "must be a JSON object");
        return;
    };
    for field in fields.keys() {
        if !matches!(field.as_str(), "apiVersion" | "kind" | "metadata" | "spec" | "status") {
            let message = "unknown field; expected one of `apiVersion`, `kind`, `metadata`, `spec`";
            causes.push("FieldValueNotSupported", text::shown(field), message);
        }
    }
    for (field, wanted) in [("apiVersion", API_VERSION), ("kind", kind.as_str())] {
        if fields.get(field).and_then(Value::as_str) != Some(wanted) {
            causes.invalid(field, format!("must be {wanted}"));
        }
    }
    let status = |object: &Value| object.get("status").filter(|s| !s.is_null()).cloned();
    if status(new).is_some_and(|new| old.and_then(status) != Some(new)) {
        causes.forbidden("status", "is filled in by the service and cannot be written");
    }
    match fields.get("metadata") {
        Some(Value::Object(metadata)) => check_metadata(kind, old, metadata, causes),
        _ => causes.required("metadata", "must be an object with a name"),
    }
}

fn check_metadata(kind: ResourceKind, old: Option<&Value>, metadata: &Map<String, Value>, causes: &mut Causes) {
    for (field, value) in metadata {
        match field.as_str() {
            "name" | "labels" | "annotations" => {}
            "namespace" if value.as_str() == Some("") => {}
            "namespace" => causes.forbidden("metadata.namespace", "objects of this group have no namespace"),
            "ownerReferences" => {
                causes.forbidden("metadata.ownerReferences", "are not followed here; delete objects by themselves");
            }
            known if KEPT.contains(&known) => {}
            _ => {
                let field = format!("metadata.{}", text::shown(field));
                causes.push("FieldValueNotSupported", field, "unknown field");
            }
        }
    }
    check_name(kind, old, metadata.get("name"), causes);
    if let Some(labels) = map("metadata.labels", metadata.get("labels"), causes)
        && causes.bounded("metadata.labels", labels.len(), MAX_LABELS)
    {
        for (key, value) in labels {
            let field = format!("metadata.labels[{}]", text::shown(key));
            check_key(&field, key, causes);
            match value.as_str() {
                Some(value) if is_label_value(value) => {}
                _ => causes.invalid(
                    field,
                    "must be at most 63 letters, digits, '-', '_' and '.', starting and ending with a letter or digit",
                ),
            }
        }
    }
    if let Some(annotations) = map("metadata.annotations", metadata.get("annotations"), causes) {
        let size: usize = annotations.iter().map(|(k, v)| k.len() + v.as_str().map_or(0, str::len)).sum();
        if size > MAX_ANNOTATIONS {
            let message = format!("must be at most {MAX_ANNOTATIONS} bytes together");
            causes.push("FieldValueTooLong", "metadata.annotations", message);
            return;
        }
        for (key, value) in annotations {
            let field = format!("metadata.annotations[{}]", text::shown(key));
            check_key(&field, &key.to_ascii_lowercase(), causes);
            if !value.is_string() {
                causes.push("FieldValueTypeInvalid", field, "must be a string");
            }
        }
    }
}

fn check_name(kind: ResourceKind, old: Option<&Value>, name: Option<&Value>, causes: &mut Causes) {
    const FIELD: &str = "metadata.name";
    let name = match name {
        None | Some(Value::Null) => "",
        Some(Value::String(name)) => name,
        Some(_) => {
            causes.push("FieldValueTypeInvalid", FIELD, "must be a string");
            return;
        }
    };
    if let Some(old) = old
        && self::name(old) != name
    {
        causes.forbidden(FIELD, "cannot be changed");
    }
    let well_formed = match kind {
        ResourceKind::User | ResourceKind::Grant => text::subdomain(FIELD, name, causes),
        _ => text::label(FIELD, name, causes),
    };
    if !well_formed || old.is_some() {
        return;
    }
    let taken = match kind {
        ResourceKind::User | ResourceKind::Project => RESERVED.contains(&name),
        ResourceKind::AccessRole => {
            if roles::BUILT_IN.contains(&name) || roles::PLATFORM.contains(&name) {
                causes.forbidden(FIELD, format!("{name:?} is the name of a built-in role"));
            }
            false
        }
        _ => false,
    };
    if taken {
        causes.forbidden(FIELD, format!("{name:?} is reserved"));
    }
}

fn map<'a>(field: &str, value: Option<&'a Value>, causes: &mut Causes) -> Option<&'a Map<String, Value>> {
    match value {
        None | Some(Value::Null) => None,
        Some(Value::Object(map)) => Some(map),
        Some(_) => {
            causes.push("FieldValueTypeInvalid", field, "must be an object of strings");
            None
        }
    }
}

/// A qualified name of Kubernetes: an optional DNS prefix and a name of at most 63 characters.
fn check_key(field: &str, key: &str, causes: &mut Causes) {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    if name.is_empty() || !is_label_value(name) || prefix.is_some_and(|prefix| !text::is_dns_name(prefix)) {
        causes.invalid(field, "the key must be a name such as tier or example.com/tier");
    }
}

fn is_label_value(value: &str) -> bool {
    let bytes = value.as_bytes();
    let alnum = |b: &u8| b.is_ascii_alphanumeric();
    bytes.len() <= names::MAX_NAME
        && bytes.iter().all(|b| alnum(b) || matches!(b, b'-' | b'_' | b'.'))
        && bytes.first().is_none_or(alnum)
        && bytes.last().is_none_or(alnum)
}
