//! From JSON to the types, with the path of what does not fit.

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Causes, MAX_SPEC};

/// Decodes the spec of an object that somebody sent. Unknown fields are errors of the types themselves.
pub(super) fn spec<T: DeserializeOwned>(object: &Value, causes: &mut Causes) -> Option<T> {
    let spec = match object.get("spec") {
        None | Some(Value::Null) => &Value::Object(serde_json::Map::new()),
        Some(spec) => spec,
    };
    if spec.to_string().len() > MAX_SPEC {
        causes.push("FieldValueTooLong", "spec", format!("must be at most {MAX_SPEC} bytes as JSON"));
        return None;
    }
    match serde_path_to_error::deserialize(spec) {
        Ok(spec) => Some(spec),
        Err(error) => {
            let path = match error.path().to_string() {
                path if path == "." => "spec".to_owned(),
                path => format!("spec.{path}"),
            };
            describe(path, &error.inner().to_string(), causes);
            None
        }
    }
}

/// Decodes the stored spec, which an older version may have written.
pub(super) fn stored_spec<T: DeserializeOwned>(old: Option<&Value>) -> Option<Result<T, serde_json::Error>> {
    old.map(|old| T::deserialize(old.get("spec").unwrap_or(&Value::Null)))
}

/// Serde tells the field only in its message for the two commonest mistakes; here it gets into the path.
fn describe(path: String, message: &str, causes: &mut Causes) {
    let named = |prefix: &str| message.strip_prefix(prefix)?.split('`').next().map(str::to_owned);
    let below = |field: &str| {
        let parent = path.strip_suffix(&format!(".{field}")).unwrap_or(&path);
        format!("{}.{}", parent.trim_end_matches(".?"), super::text::shown(field))
    };
    if let Some(field) = named("unknown field `") {
        let expected = message.split_once(", ").map_or("", |(_, expected)| expected);
        causes.push("FieldValueNotSupported", below(&field), format!("unknown field; {expected}"));
    } else if let Some(field) = named("missing field `") {
        causes.required(below(&field), "must be given");
    } else {
        causes.invalid(path, super::metadata::bounded(message));
    }
}
