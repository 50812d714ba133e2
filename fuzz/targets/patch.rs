//! Patches, and the search for unknown fields: bounded in depth and size, and of one mind with the types.

use super::super::strict::unknown_fields;
use super::*;
use crate::api::kinds;
use crate::fuzz;

const WORDS: &[&str] = &[
    "\"op\":\"add\"",
    "\"op\":\"copy\"",
    "\"op\":\"move\"",
    "\"op\":\"remove\"",
    "\"op\":\"test\"",
    "\"op\":\"replace\"",
    "\"path\":\"/spec\"",
    "\"from\":\"\"",
    "\"from\":\"/spec\"",
    "\"value\":",
    "/spec",
    "/-",
    "/0",
    "~1",
    "~0",
    "{\"a\":",
    "null",
    "{",
    "}",
    "[",
    "]",
    ",",
    "\"clusters\":[",
    "\"quota\":{",
    "\"spec\":{",
    "/spec/displayName",
    "\"status\":",
];

#[test]
fn fuzz_patches() {
    let served = kinds::by_plural("projects").unwrap();
    let current = serde_json::json!({
        "apiVersion": "bailiwick.dev/v1alpha1", "kind": "Project", "metadata": {"name": "shop"},
        "spec": {"displayName": "Shop", "clusters": [{"cluster": "demo", "namespaces": ["shop-web"]}]},
    });
    fuzz::run("patch", WORDS, |input| {
        let mut outcome = vec![];
        for media_type in ["application/merge-patch+json", "application/json-patch+json"] {
            let payload = Payload { media_type: media_type.to_owned(), bytes: input.to_vec().into() };
            let patched = payload.patch().and_then(|(format, patch)| apply(format, &patch, &current, served, "shop"));
            outcome.push(match patched {
                Err(refused) => (refused.code as usize, 0),
                Ok(document) => {
                    // It is written to the store as JSON and must be read back from there.
                    let text = document.to_string();
                    assert!(text.len() <= MAX_BODY && depth(&document) <= 128, "{} deep", depth(&document));
                    assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), document);
                    let unknown = unknown_fields(served, &document);
                    let of_spec = unknown_fields(served, &serde_json::json!({"spec": document["spec"]}));
                    let spec = serde_json::from_value::<crate::resources::ProjectSpec>(document["spec"].clone());
                    if let Err(why) = &spec
                        && why.to_string().starts_with("unknown field")
                    {
                        assert!(
                            !of_spec.is_empty(),
                            "the type knows of an unknown field and the schema does not: {why}"
                        );
                    }
                    assert!(spec.is_err() || of_spec.is_empty(), "the schema refuses what the type takes: {of_spec:?}");
                    (depth(&document), unknown.len().min(5))
                }
            });
        }
        outcome
    });
}

#[test]
fn operations_that_deepen_one_another_are_refused() {
    let served = kinds::by_plural("projects").unwrap();
    let current = serde_json::json!({"spec": {"x": {}}});
    let copy = |levels: usize| serde_json::json!({"op": "copy", "from": "/spec/x", "path": format!("/spec/x{}", "/a".repeat(levels))});
    let apply = |operations: Vec<Value>| apply(Format::JsonPatch, &Value::from(operations), &current, served, "shop");
    // Each doubles the depth: twenty would be a million levels.
    let mut operations = vec![];
    let mut refused = None;
    for doubling in 0..20 {
        operations.push(copy(1 << doubling));
        match apply(operations.clone()) {
            Ok(document) => assert!(depth(&document) <= MAX_DEPTH),
            Err(why) => {
                refused = Some((doubling, why.code));
                break;
            }
        }
    }
    assert_eq!(refused, Some((6, 413)));
}
