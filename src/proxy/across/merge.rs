//! Lists of several namespaces, put together to one: JSON lists, lists of metadata, and Tables.
//!
//! The objects are not read. Their bytes are cut out of the answers and passed on as they are, so that no field can be
//! lost on the way, and a list costs little more than its copying.

use std::borrow::Cow;

use bytes::Bytes;
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// Most objects of a list that is filtered: more than there are namespaces on any cluster.
const FILTERED: usize = 100_000;
/// Longest `kind`, `apiVersion` and revision; a group has at most 253 bytes.
const LONGEST_NAME: usize = 512;
/// Longest `continue`; a cluster's own is some hundred bytes, and sealed it must fit into a URL.
const LONGEST_TOKEN: usize = 4 * 1024;
/// So much is told of what is wrong.
const TOLD: usize = 200;

/// Why an answer of a cluster is not merged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MergeError {
    /// Not JSON, or not a list.
    #[error("the cluster answered with something that is no list: {0}")]
    NoList(String),
    /// Two namespaces were answered in different forms.
    #[error("the cluster answered in two forms, {0} and {1}")]
    Mixed(String, String),
    /// A custom resource's columns changed between two answers.
    #[error("the columns of this resource changed while it was listed")]
    Columns,
}

/// The answer of one namespace.
#[derive(Debug, Clone)]
pub struct Document {
    /// `kind` and `apiVersion`.
    pub form: Form,
    /// `metadata.resourceVersion`; empty where the server has none.
    pub revision: String,
    /// `metadata.continue`; empty at the end.
    pub proceed: String,
    /// Number of objects.
    pub count: usize,
    /// The objects with the commas between them.
    objects: Bytes,
    /// `columnDefinitions` of a Table.
    columns: Option<Bytes>,
}

/// What a list says that it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Form {
    kind: String,
    api_version: String,
    table: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Raw<'a> {
    #[serde(borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    api_version: Cow<'a, str>,
    #[serde(borrow, default)]
    metadata: Metadata<'a>,
    #[serde(borrow, default)]
    items: Option<Values<'a>>,
    #[serde(borrow, default)]
    rows: Option<Values<'a>>,
    #[serde(borrow, default)]
    column_definitions: Option<&'a RawValue>,
}

/// Where the values of an array stand. Millions of tiny ones take no memory.
struct Values<'a> {
    ends: Option<(&'a RawValue, &'a RawValue)>,
    count: usize,
}

impl<'de: 'a, 'a> Deserialize<'de> for Values<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Values<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an array")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<Values<'de>, A::Error> {
                let mut found = Values { ends: None, count: 0 };
                while let Some(value) = values.next_element::<&'de RawValue>()? {
                    found.ends = Some((found.ends.map_or(value, |(first, _)| first), value));
                    found.count += 1;
                }
                Ok(found)
            }
        }
        from.deserialize_seq(Reader)
    }
}

impl Values<'_> {
    /// They stand side by side in the answer, with the commas between them.
    fn joined(&self, body: &Bytes) -> Bytes {
        let Some((first, last)) = self.ends else { return Bytes::new() };
        let begin = first.get().as_ptr() as usize - body.as_ptr() as usize;
        let end = last.get().as_ptr() as usize + last.get().len() - body.as_ptr() as usize;
        body.slice(begin..end)
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Metadata<'a> {
    #[serde(borrow)]
    resource_version: Cow<'a, str>,
    #[serde(borrow)]
    r#continue: Cow<'a, str>,
}

/// What is wrong, in few words: the reader quotes what it found, which may be as long as a whole list.
pub(super) fn brief(why: impl std::fmt::Display) -> String {
    let mut text = why.to_string();
    text.truncate(text.floor_char_boundary(TOLD));
    text
}

impl Document {
    /// Cuts an answer into its parts.
    pub fn cut(body: &Bytes) -> Result<Self, MergeError> {
        // The reader takes an array for an object, field by field in their order.
        if body.trim_ascii_start().first() != Some(&b'{') {
            return Err(MergeError::NoList("no object".into()));
        }
        let raw: Raw<'_> = serde_json::from_slice(body).map_err(|why| MergeError::NoList(brief(why)))?;
        let Raw { kind, api_version, metadata, items, rows, column_definitions } = raw;
        let Metadata { resource_version, r#continue } = metadata;
        let names = [&kind, &api_version, &resource_version];
        if names.iter().any(|name| name.len() > LONGEST_NAME) || r#continue.len() > LONGEST_TOKEN {
            return Err(MergeError::NoList("a kind, a revision or a continue token of absurd length".into()));
        }
        let table = kind == "Table";
        let is_list = if table { items.is_none() } else { kind.ends_with("List") && rows.is_none() };
        if !is_list {
            return Err(MergeError::NoList(format!("{kind} of {api_version}")));
        }
        let objects = items.or(rows);
        Ok(Self {
            form: Form { kind: kind.into_owned(), api_version: api_version.into_owned(), table },
            revision: resource_version.into_owned(),
            proceed: r#continue.into_owned(),
            count: objects.as_ref().map_or(0, |objects| objects.count),
            objects: objects.map(|objects| objects.joined(body)).unwrap_or_default(),
            columns: column_definitions.map(|columns| body.slice_ref(columns.get().as_bytes())),
        })
    }

    /// As [`Document::cut`], leaving out the objects that `keep` refuses. It sees each object, or row, as JSON.
    pub fn filtered(body: &Bytes, keep: impl Fn(&str) -> bool) -> Result<Self, MergeError> {
        let mut document = Self::cut(body)?;
        if document.count > FILTERED {
            return Err(MergeError::NoList(format!("{} objects", document.count)));
        }
        let array = [b"[", &document.objects[..], b"]"].concat();
        let all: Vec<&RawValue> = serde_json::from_slice(&array).map_err(|why| MergeError::NoList(brief(why)))?;
        let kept: Vec<&str> = all.into_iter().map(RawValue::get).filter(|object| keep(object)).collect();
        document.count = kept.len();
        document.objects = Bytes::from(kept.join(","));
        Ok(document)
    }
}

/// Puts answers together: one list at `revision` that goes on at `proceed`, in parts to be written one after the other.
pub fn merged(documents: &[Document], revision: &str, proceed: &str) -> Result<Vec<Bytes>, MergeError> {
    let Some(first) = documents.first() else { return Err(MergeError::NoList("nothing".into())) };
    let mut columns: Option<&Bytes> = None;
    for document in documents {
        if document.form != first.form {
            return Err(MergeError::Mixed(document.form.kind.clone(), first.form.kind.clone()));
        }
        match (columns, &document.columns) {
            (Some(known), Some(here)) if known != here => return Err(MergeError::Columns),
            (None, Some(here)) => columns = Some(here),
            _ => {}
        }
    }
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let Form { kind, api_version, table } = &first.form;
    let mut head = format!(r#"{{"kind":{},"apiVersion":{},"metadata":{{"#, quoted(kind), quoted(api_version));
    head.push_str(&format!(r#""resourceVersion":{}"#, quoted(revision)));
    if !proceed.is_empty() {
        head.push_str(&format!(r#","continue":{}"#, quoted(proceed)));
    }
    head.push('}');
    let mut parts = vec![];
    if *table {
        head.push_str(r#","columnDefinitions":"#);
        parts.push(Bytes::from(head));
        parts.push(columns.cloned().unwrap_or(Bytes::from_static(b"[]")));
        parts.push(Bytes::from_static(br#","rows":["#));
    } else {
        head.push_str(r#","items":["#);
        parts.push(Bytes::from(head));
    }
    let mut later = false;
    for document in documents.iter().filter(|document| document.count > 0) {
        if std::mem::replace(&mut later, true) {
            parts.push(Bytes::from_static(b","));
        }
        parts.push(document.objects.clone());
    }
    parts.push(Bytes::from_static(b"]}\n"));
    Ok(parts)
}

#[cfg(test)]
#[path = "../../../fuzz/targets/list.rs"]
mod fuzz;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn document(value: &Value) -> Document {
        Document::cut(&Bytes::from(value.to_string())).unwrap()
    }

    fn joined(parts: &[Bytes]) -> Value {
        serde_json::from_slice(&parts.concat()).unwrap()
    }

    fn pods(names: &[&str], revision: &str) -> Value {
        let items: Vec<Value> = names.iter().map(|name| json!({"metadata": {"name": name, "x": "}],{"}})).collect();
        json!({"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": revision}, "items": items})
    }

    #[test]
    fn lists_become_one_list() {
        let documents = [document(&pods(&["a", "b"], "7")), document(&pods(&[], "7")), document(&pods(&["c"], "7"))];
        let merged = joined(&merged(&documents, "7", "next").unwrap());
        let expected = {
            let mut all = pods(&["a", "b", "c"], "7");
            all["metadata"]["continue"] = "next".into();
            all
        };
        assert_eq!(merged, expected);
    }

    #[test]
    fn tables_keep_their_columns() {
        let table = |rows: Value| {
            json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {"resourceVersion": "7"},
                   "columnDefinitions": [{"name": "Name"}], "rows": rows})
        };
        let documents = [document(&table(json!([]))), document(&table(json!([{"cells": ["a"]}])))];
        assert_eq!(joined(&merged(&documents, "7", "").unwrap()), table(json!([{"cells": ["a"]}])));
        let mut other = table(json!([]));
        other["columnDefinitions"] = json!([{"name": "Age"}]);
        assert_eq!(merged(&[documents[0].clone(), document(&other)], "7", ""), Err(MergeError::Columns));
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for text in [
            "",
            "null",
            "[]",
            r#"{"kind":"Pod","apiVersion":"v1"}"#,
            r#"{"kind":"Status","apiVersion":"v1","items":[]}"#,
            r#"{"kind":"PodList","apiVersion":"v1","items":[1,2}"#,
            r#"{"kind":"PodList","apiVersion":"v1","items":[],"items":[1]}"#,
            r#"{"kind":"PodList","apiVersion":"v1","rows":[]}"#,
            r#"{"kind":"Table","apiVersion":"v1","items":[]}"#,
            r#"{"kind":"PodList","apiVersion":"v1","items":{}}"#,
            r#"["PodList","v1",{},[]]"#,
        ] {
            assert!(Document::cut(&Bytes::from_static(text.as_bytes())).is_err(), "{text}");
        }
        let mixed = [document(&pods(&["a"], "7")), document(&json!({"kind": "JobList", "apiVersion": "batch/v1"}))];
        assert_eq!(merged(&mixed, "7", ""), Err(MergeError::Mixed("JobList".into(), "PodList".into())));
    }

    #[test]
    fn names_of_absurd_length_are_refused_in_few_words() {
        let long = "k".repeat(10_000);
        for (field, value) in [
            ("kind", json!(format!("{long}List"))),
            ("apiVersion", json!(long)),
            ("metadata", json!({"resourceVersion": long})),
            ("metadata", json!({"continue": long})),
            ("metadata", json!(long)),
            ("items", json!(long)),
        ] {
            let mut list = pods(&["a"], "7");
            list[field] = value;
            let why = Document::cut(&Bytes::from(list.to_string())).unwrap_err().to_string();
            assert!(why.len() < 400, "{field}: {} bytes", why.len());
        }
        let mut list = pods(&["a"], &"7".repeat(LONGEST_NAME));
        list["metadata"]["continue"] = "c".repeat(LONGEST_TOKEN).into();
        assert_eq!(document(&list).proceed.len(), LONGEST_TOKEN);
        assert_eq!(brief("ä".repeat(TOLD)).len(), TOLD);
    }

    #[test]
    fn strange_lists_are_taken_as_they_are() {
        let cut = |text: String| Document::cut(&Bytes::from(text));
        let null = cut(r#"{"kind":"PodList","apiVersion":"v1","metadata":{},"items":null}"#.into()).unwrap();
        assert_eq!((null.count, null.objects.len()), (0, 0));
        // However deep, nothing is built of it, and the stack is not used up.
        let deep = format!(
            r#"{{"kind":"PodList","apiVersion":"v1","items":[{}{}]}}"#,
            "[".repeat(200_000),
            "]".repeat(200_000)
        );
        assert_eq!(cut(deep).unwrap().count, 1);
        let many = format!(r#"{{"kind":"PodList","apiVersion":"v1","items":[1{}]}}"#, ",1".repeat(FILTERED));
        assert_eq!(cut(many.clone()).unwrap().count, FILTERED + 1);
        assert!(Document::filtered(&Bytes::from(many), |_| true).is_err());
    }

    #[test]
    fn a_filter_leaves_out_whole_objects() {
        let body = Bytes::from(pods(&["a", "b", "c"], "7").to_string());
        let kept = Document::filtered(&body, |object| !object.contains(r#""b""#)).unwrap();
        assert_eq!(kept.count, 2);
        assert_eq!(joined(&merged(&[kept], "7", "").unwrap()), pods(&["a", "c"], "7"));
        assert_eq!(Document::filtered(&body, |_| false).unwrap().count, 0);
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![Just(Value::Null), any::<i64>().prop_map(Value::from), ".*".prop_map(Value::from)];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::hash_map(".*", inner, 0..4).prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        // Whatever the objects hold, and whatever blanks stand between them: the merged list holds them all, in order.
        #[test]
        fn nothing_is_lost_or_added(lists in prop::collection::vec(prop::collection::vec(any_json(), 0..4), 1..5)) {
            let documents: Vec<Document> = lists.iter().enumerate().map(|(at, items)| {
                let list = json!({"kind": "XList", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}, "items": items});
                let text = if at % 2 == 0 { list.to_string() } else { serde_json::to_string_pretty(&list).unwrap() };
                Document::cut(&Bytes::from(text)).unwrap()
            }).collect();
            let all: Vec<Value> = lists.concat();
            prop_assert_eq!(documents.iter().map(|d| d.count).sum::<usize>(), all.len());
            prop_assert_eq!(&joined(&merged(&documents, "7", "").unwrap())["items"], &Value::from(all));
        }
    }
}
