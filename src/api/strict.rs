//! Unknown fields, found by walking an object along its schema, so that all of them can be named at once.

use serde_json::Value;

use super::kinds::Served;
use super::openapi;

/// Paths of the members that the kind does not have.
pub(super) fn unknown_fields(served: &Served, object: &Value) -> Vec<String> {
    let mut unknown = vec![];
    for (member, value) in object.as_object().into_iter().flatten() {
        match member.as_str() {
            "apiVersion" | "kind" => {}
            "metadata" => walk(openapi::metadata_schema(), value, "metadata", &mut unknown),
            // Status is ours: what a client sends there is put aside unread, as Kubernetes does.
            "status" => {}
            _ => match served.schema["properties"].get(member) {
                Some(schema) => walk(schema, value, member, &mut unknown),
                None => unknown.push(member.clone()),
            },
        }
    }
    unknown
}

fn walk(schema: &Value, value: &Value, path: &str, unknown: &mut Vec<String>) {
    match value {
        Value::Object(object) => {
            // A schema without members describes a map, or leads elsewhere; the type itself judges it later.
            let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
                if let Some(values) = schema.get("additionalProperties").filter(|s| s.is_object()) {
                    object.iter().for_each(|(key, value)| walk(values, value, &format!("{path}.{key}"), unknown));
                }
                return;
            };
            for (member, value) in object {
                let path = format!("{path}.{member}");
                match properties.get(member) {
                    Some(schema) => walk(schema, value, &path, unknown),
                    None => unknown.push(path),
                }
            }
        }
        Value::Array(values) => {
            for (at, value) in values.iter().enumerate() {
                walk(&schema["items"], value, &format!("{path}[{at}]"), unknown);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::kinds;
    use super::*;

    #[test]
    fn all_unknown_fields_are_named() {
        let served = kinds::by_plural("projects").unwrap();
        let project = json!({
            "apiVersion": "bailiwick.dev/v1alpha1",
            "kind": "Project",
            "metadata": {"name": "shop", "labels": {"any": "thing"}, "nmae": "x"},
            "spec": {
                "displayName": "Shop",
                "clusters": [{"cluster": "a", "quota": {"pods": "1"}, "shares": {"ns": {"pods": "1"}}, "max": 3}],
                "podSecurity": {"enforce": "baseline", "enfroce": "baseline"},
                "isolation": "None",
            },
            "spce": {},
        });
        let mut found = unknown_fields(served, &project);
        found.sort();
        assert_eq!(
            found,
            ["metadata.nmae", "spce", "spec.clusters[0].max", "spec.isolation", "spec.podSecurity.enfroce"]
        );
    }
}
