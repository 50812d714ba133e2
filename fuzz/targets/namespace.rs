//! Namespaces by kubectl: whatever is sent, nothing is planned or forwarded that members may not give.

use super::super::metadata::may_set;
use super::super::{Encoding, Options};
use super::*;
use crate::fuzz;

const NAME: &str = "shop-web";
const WORDS: &[&str] = &[
    "{\"apiVersion\":\"v1\",\"kind\":\"Namespace\",\"metadata\":{\"name\":\"shop-web\"}}",
    "\"metadata\":{",
    "\"labels\":{",
    "\"annotations\":{",
    "\"name\":\"",
    "\"generateName\":\"a-\"",
    "\"finalizers\":[]",
    "\"spec\":{\"finalizers\":[\"kubernetes\"]}",
    "\"status\":{\"phase\":\"Active\"}",
    "\"tenant.bailiwick.dev/a\":\"b\"",
    "\"app.kubernetes.io/name\":null",
    "\"pod-security.kubernetes.io/enforce\":\"privileged\"",
    "\"bailiwick.dev/project\":\"shop\"",
    "\"kubernetes.io/metadata.name\":\"shop-web\"",
    "[{\"op\":\"add\",\"path\":\"/metadata/labels/app.kubernetes.io~1name\",\"value\":\"x\"}]",
    "\"op\":\"remove\"",
    "\"op\":\"replace\"",
    "\"op\":\"test\"",
    "\"path\":\"/metadata/annotations\"",
    "\"$patch\":\"replace\"",
    "\"$retainKeys\":[]",
    "~0",
    "~1",
    "{",
    "}",
    "[",
    "]",
    ",",
    "null",
    "\\u0000",
    "k8s\0",
    "\n\u{f}\n\u{2}v1\u{12}\tNamespace",
    "\u{12}\u{c}\n\n\n\u{8}shop-web",
    "Z\u{6}\n\u{1}a\u{12}\u{1}b",
];

/// What the target does with a body, by its first byte.
const WAYS: [(Act, Encoding); 7] = [
    (Act::Create, Encoding::Json),
    (Act::Create, Encoding::Protobuf),
    (Act::Change, Encoding::JsonPatch),
    (Act::Change, Encoding::MergePatch),
    (Act::Change, Encoding::StrategicPatch),
    (Act::Change, Encoding::Apply),
    (Act::Delete, Encoding::Json),
];

#[test]
fn fuzz_namespaces() {
    fuzz::run("namespace", WORDS, |input| {
        let (way, body) = input.split_first().map_or((0, input), |(first, rest)| (*first, rest));
        // A query is read as well.
        if way == b'?' {
            let query = String::from_utf8_lossy(body);
            let options = Options::read(&query).map_err(|status| status.code)?;
            assert!(options.manager.len() <= 128 && !options.manager.chars().any(char::is_control));
            return Ok((options.dry_run, usize::from(!options.manager.is_empty()), 0));
        }
        let (act, encoding) = WAYS[usize::from(way) % WAYS.len()];
        let asked = Asked::read(act, encoding, Options::default(), &Bytes::copy_from_slice(body));
        let asked = asked.map_err(|status| status.code)?;
        match act {
            Act::Create => {
                let (name, labels, annotations) = new_namespace(&asked.object).map_err(|status| status.code)?;
                check_label(&name).unwrap();
                assert_eq!(name, asked.name());
                for (key, value) in &labels {
                    assert!(key == PROJECT || may_set(Part::Labels, &name, key, Some(value)), "{key}: {value}");
                }
                for (key, value) in &annotations {
                    assert!(may_set(Part::Annotations, &name, key, Some(value)), "{key}: {value}");
                }
                Ok((false, labels.len().min(3), annotations.len().min(3)))
            }
            Act::Change => {
                let forwarded = change::checked(&asked, NAME, "shop").map_err(|status| status.code)?;
                let sent: Value = serde_json::from_slice(&forwarded).unwrap();
                let changed = changes(&sent);
                for (part, key, value) in &changed {
                    assert!(may_set(*part, NAME, key, value.as_deref()), "{key}: {value:?} in {sent}");
                }
                Ok((encoding == Encoding::JsonPatch, changed.len().min(4), 1))
            }
            Act::Delete => Ok::<_, u16>((true, 9, 9)),
        }
    });
}

/// A key with its new value; none where it is taken away.
type Change = (Part, String, Option<String>);

/// What a patch sets and takes away, read without regard for how it is checked. Anything beside is a failure.
fn changes(patch: &Value) -> Vec<Change> {
    if let Value::Array(operations) = patch {
        return operations.iter().filter_map(operation).collect();
    }
    let nothing = |value: &Value| value.as_object().is_some_and(Map::is_empty);
    let mut found = vec![];
    for (field, value) in patch.as_object().expect("a patch") {
        match field.as_str() {
            "apiVersion" | "kind" => assert!(value.is_string(), "{patch}"),
            "metadata" => {}
            _ => assert!(nothing(value), "{field} in {patch}"),
        }
    }
    for (field, value) in patch.get("metadata").and_then(Value::as_object).into_iter().flatten() {
        match field.as_str() {
            "labels" => found.extend(texts(Part::Labels, value)),
            "annotations" => found.extend(texts(Part::Annotations, value)),
            "name" => assert_eq!(value, NAME),
            "resourceVersion" | "uid" => assert!(value.is_string(), "{patch}"),
            "creationTimestamp" => assert!(value.is_null(), "{patch}"),
            _ => panic!("{field} in {patch}"),
        }
    }
    found
}

fn texts(part: Part, given: &Value) -> Vec<Change> {
    let given = given.as_object().expect("anything else would take all away");
    given.iter().map(|(key, value)| (part, key.clone(), text(value))).collect()
}

fn text(value: &Value) -> Option<String> {
    (!value.is_null()).then(|| value.as_str().expect("a text").to_owned())
}

/// One step of a JSON patch; a test changes nothing.
fn operation(operation: &Value) -> Option<Change> {
    let (op, path) = (operation["op"].as_str().unwrap(), operation["path"].as_str().unwrap());
    let names: Vec<String> = path.split('/').map(|name| name.replace("~1", "/").replace("~0", "~")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (part, key) = match names[..] {
        ["", "metadata", "labels", key] => (Part::Labels, key),
        ["", "metadata", "annotations", key] => (Part::Annotations, key),
        _ => panic!("{operation}"),
    };
    let value = match op {
        "test" => return None,
        "remove" => None,
        "add" | "replace" => text(&operation["value"]),
        _ => panic!("{operation}"),
    };
    Some((part, key.to_owned(), value))
}
