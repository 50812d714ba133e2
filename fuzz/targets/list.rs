//! Lists of clusters, as hostile as they come: what is cut, filtered and merged is what a reader of the whole finds.

use serde_json::Value;

use super::*;
use crate::fuzz;

const WORDS: &[&str] = &[
    "{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"items\":[",
    "\"kind\":\"Table\"",
    "\"kind\":\"PartialObjectMetadataList\"",
    "\"apiVersion\":\"meta.k8s.io/v1\"",
    "\"kind\":\"PartialObjectMetadata\"",
    "\"rows\":[",
    "\"items\":[",
    "\"items\":null",
    "\"columnDefinitions\":[",
    "\"metadata\":{",
    "\"resourceVersion\":\"7\"",
    "\"continue\":\"x\"",
    "{\"metadata\":{\"name\":\"a\"}}",
    "]}",
    "}",
    ",",
    "\"",
    "\\\"",
    "\\u0022",
    "null",
    " ",
    "\n",
    "],\"items\":[",
    "1e5",
    "\u{feff}",
];

/// One of each form.
const OTHERS: [&[u8]; 3] = [
    br#"{"kind":"PodList","apiVersion":"v1","items":[{}]}"#,
    br#"{"kind":"Table","apiVersion":"meta.k8s.io/v1","rows":[{}]}"#,
    br#"{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","items":[{}]}"#,
];

/// Leaves out whatever says `b` somewhere.
fn kept(object: &str) -> bool {
    serde_json::from_str::<Value>(object).is_ok_and(|object| !object.to_string().contains("\"b\""))
}

#[test]
fn fuzz_lists() {
    fuzz::run("list", WORDS, |input| {
        let body = Bytes::copy_from_slice(input);
        let document = Document::filtered(&body, kept).map_err(|why| std::mem::discriminant(&why))?;
        // What is not looked at is not read: it may hold bytes that are no text.
        let Ok(whole) = serde_json::from_slice::<Value>(input) else { return Ok((0, 0, 0, false)) };
        // Whole objects, Tables and lists of metadata; no two of them are put together.
        let form = match (document.form.table, &*document.form.kind) {
            (true, _) => 1,
            (_, "PartialObjectMetadataList") => 2,
            _ => 0,
        };
        for (at, other) in OTHERS.iter().enumerate() {
            let other = Document::cut(&Bytes::from_static(other)).unwrap();
            let mixed = merged(&[document.clone(), other.clone()], "7", "");
            let same = document.form == other.form;
            assert!(same || matches!(mixed, Err(MergeError::Mixed(..))), "{at}: {:?}", document.form);
        }
        let member = if document.form.table { "rows" } else { "items" };
        let objects = whole.get(member).and_then(Value::as_array).cloned().unwrap_or_default();
        let both = [document.clone(), Document::filtered(&body, |_| false).unwrap()];
        let parts = merged(&both, &document.revision, &document.proceed).unwrap();
        let list: Value = serde_json::from_slice(&parts.concat()).expect("what is merged is JSON");
        assert_eq!((&list["kind"], &list["apiVersion"]), (&whole["kind"], &whole["apiVersion"]));
        let listed = list[member].as_array().unwrap();
        assert_eq!(listed.len(), document.count);
        let mut rest = objects.iter();
        assert!(listed.iter().all(|one| rest.any(|object| object == one)), "in order, and nothing that was not there");
        assert!(listed.iter().all(|object| kept(&object.to_string())), "{listed:?}");
        let all = Document::cut(&body).unwrap();
        assert_eq!(all.count, objects.len());
        Ok::<_, std::mem::Discriminant<MergeError>>((
            form,
            document.count.min(4),
            all.count.min(4),
            document.columns.is_some(),
        ))
    });
}
