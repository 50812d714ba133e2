//! Which labels and annotations of a namespace members may set. The guards in the cluster have the same list
//! (`bailiwick-namespace-metadata` in `clusters/manifest/policies.yaml`).

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::clusters::names::PROJECT;
use crate::domain::names::MAX_NAME;
use crate::status::{Cause, Status};

/// Beginnings of the labels that members may set.
const LABELS: [&str; 2] = ["app.kubernetes.io/", "tenant.bailiwick.dev/"];
/// Beginnings of the annotations that members may set.
const ANNOTATIONS: [&str; 4] =
    ["app.kubernetes.io/", "tenant.bailiwick.dev/", "argocd.argoproj.io/", "kubectl.kubernetes.io/"];
/// Labels that say the namespace's own name: Helm sets the first, the cluster the second.
const OWN_NAME: [&str; 2] = ["name", "kubernetes.io/metadata.name"];

/// What may be in the metadata of a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Labels,
    Annotations,
}

/// Whether members may set a key of the namespace to a value; `None` takes it away.
pub(super) fn may_set(part: Part, namespace: &str, key: &str, value: Option<&str>) -> bool {
    match part {
        Part::Labels => {
            LABELS.iter().any(|prefix| key.starts_with(prefix))
                || (OWN_NAME.contains(&key) && value == Some(namespace))
                || (key == "name" && value.is_none())
        }
        Part::Annotations => ANNOTATIONS.iter().any(|prefix| key.starts_with(prefix)),
    }
}

/// The refusal of keys that members may not set.
pub(super) fn refused(namespace: &str, part: Part, keys: &[String]) -> Status {
    let (what, allowed) = match part {
        Part::Labels => ("labels", LABELS.join(" or ")),
        Part::Annotations => ("annotations", ANNOTATIONS.join(", ")),
    };
    let message = format!(
        "namespaces {namespace:?} is forbidden: {what} of a namespace that members may set begin with {allowed}; refused: {}",
        keys.join(", ")
    );
    about(Status::forbidden(message), namespace)
}

/// Names the namespace in the details.
pub(super) fn about(mut status: Status, namespace: &str) -> Status {
    status.details.kind = "namespaces".to_owned();
    status.details.name = namespace.to_owned();
    status
}

/// 422 for one field.
pub(super) fn invalid(namespace: &str, field: &str, message: impl Into<String>) -> Status {
    let message = message.into();
    let text = format!("Namespace {namespace:?} is invalid: {field}: {message}");
    let mut status = Status::new(http::StatusCode::UNPROCESSABLE_ENTITY, "Invalid", text);
    status.details.causes = vec![Cause { reason: "FieldValueInvalid".to_owned(), message, field: field.to_owned() }];
    about(status, namespace)
}

/// A map of texts in the metadata of a new namespace, of keys that members may set.
pub(super) fn texts(namespace: &str, part: Part, given: Option<&Value>) -> Result<BTreeMap<String, String>, Status> {
    let field = match part {
        Part::Labels => "metadata.labels",
        Part::Annotations => "metadata.annotations",
    };
    let empty = Map::new();
    let given = match given {
        None | Some(Value::Null) => &empty,
        Some(Value::Object(map)) => map,
        Some(_) => return Err(invalid(namespace, field, "must be a map of texts")),
    };
    let mut texts = BTreeMap::new();
    let mut foreign = vec![];
    for (key, value) in given {
        let Some(value) = value.as_str() else {
            return Err(invalid(namespace, &format!("{field}[{}]", shown(key)), "must be a text"));
        };
        if part == Part::Labels && key == PROJECT {
            // Says for which project the namespace is; whether it may, is decided on.
            texts.insert(key.clone(), value.to_owned());
        } else if !may_set(part, namespace, key, Some(value)) {
            foreign.push(shown(key));
        } else if let Err(why) = well_formed(part, key, value) {
            return Err(invalid(namespace, &format!("{field}[{}]", shown(key)), why));
        } else {
            texts.insert(key.clone(), value.to_owned());
        }
    }
    if foreign.is_empty() { Ok(texts) } else { Err(refused(namespace, part, &foreign)) }
}

/// What the API server would say of a key and its value, as far as it would refuse them.
fn well_formed(part: Part, key: &str, value: &str) -> Result<(), &'static str> {
    let name = key.split_once('/').map_or(key, |(_, name)| name);
    if name.is_empty() || !is_word(name) {
        return Err("the part of the key after the slash must be at most 63 letters, digits, '-', '_' and '.', \
                    starting and ending with a letter or digit");
    }
    if part == Part::Labels && !is_word(value) {
        return Err("a label's value must be at most 63 letters, digits, '-', '_' and '.', starting and ending with \
                    a letter or digit");
    }
    Ok(())
}

fn is_word(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() <= MAX_NAME
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
        && bytes.first().is_none_or(u8::is_ascii_alphanumeric)
        && bytes.last().is_none_or(u8::is_ascii_alphanumeric)
}

/// A text of a client's as it may stand in a message.
pub(super) fn shown(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(80).collect()
}
