//! A Namespace in Kubernetes' protobuf, as JSON: field numbers of `Namespace` in k8s.io/api/core/v1/generated.proto and of
//! `ObjectMeta` in k8s.io/apimachinery/pkg/apis/meta/v1/generated.proto.
//!
//! Only what members may give is read into texts. Whatever else has a content is named, so that it is refused by the same
//! rule as in JSON; numbers are never members' to give, and their presence is not seen.

use serde_json::{Map, Value, json};

use crate::proxy::reviews::protobuf::{document, fields, repeated, text};

/// Texts of `ObjectMeta`.
const TEXTS: [(u64, &str); 6] =
    [(1, "name"), (2, "generateName"), (3, "namespace"), (4, "selfLink"), (5, "uid"), (6, "resourceVersion")];
/// Other fields, which have to be empty.
const OTHERS: [(u64, &str); 5] = [
    (8, "creationTimestamp"),
    (9, "deletionTimestamp"),
    (13, "ownerReferences"),
    (14, "finalizers"),
    (17, "managedFields"),
];

/// Reads a `Namespace`.
pub(super) fn namespace(body: &[u8]) -> Result<Value, String> {
    let mut object = json!({"apiVersion": "v1", "kind": "Namespace"});
    for (number, value) in fields(document(body, "Namespace")?)? {
        match number {
            1 => object["metadata"] = Value::Object(metadata(value)?),
            _ if is_blank(value) => {}
            2 => object["spec"] = json!("is not empty"),
            3 => object["status"] = json!("is not empty"),
            other => return Err(format!("a Namespace has no field {other}")),
        }
    }
    Ok(object)
}

/// Go writes messages and texts that are empty, and messages of nothing but these.
fn is_blank(message: &[u8]) -> bool {
    message.is_empty() || repeated(message).is_ok_and(|fields| fields.iter().all(|(_, value)| value.is_empty()))
}

fn metadata(bytes: &[u8]) -> Result<Map<String, Value>, String> {
    let mut metadata = Map::new();
    for (number, value) in repeated(bytes)? {
        let named =
            |list: &[(u64, &'static str)]| list.iter().find(|(known, _)| *known == number).map(|(_, name)| *name);
        if let Some(name) = named(&TEXTS) {
            if metadata.insert(name.to_owned(), text(value)?.into()).is_some() {
                return Err(format!("metadata.{name} comes twice"));
            }
        } else if let 11 | 12 = number {
            let map = metadata.entry(if number == 11 { "labels" } else { "annotations" }).or_insert_with(|| json!({}));
            let (mut key, mut content) = (String::new(), String::new());
            for (number, value) in fields(value)? {
                match number {
                    1 => key = text(value)?,
                    2 => content = text(value)?,
                    other => return Err(format!("an entry of a map has no field {other}")),
                }
            }
            let Some(map) = map.as_object_mut() else { return Err("a map is none".to_owned()) };
            if map.insert(key.clone(), content.into()).is_some() {
                return Err(format!("{key:?} comes twice"));
            }
        } else if is_blank(value) {
        } else if let Some(name) = named(&OTHERS) {
            metadata.insert(name.to_owned(), json!("is not empty"));
        } else {
            return Err(format!("metadata has no field {number}"));
        }
    }
    Ok(metadata)
}
