//! Self reviews: both decoders, and that each says only what the bytes say.

use serde_json::Value;

use super::*;
use crate::fuzz;

const JSON: &[&str] = &[
    "\"spec\":",
    "\"resourceAttributes\":",
    "\"nonResourceAttributes\":",
    "\"namespace\":",
    "\"verb\":",
    "\"group\":",
    "\"resource\":",
    "\"name\":",
    "null",
    "\"\"",
    "{",
    "}",
    "[",
    "]",
    ",",
    "\\u0000",
    "\"spec\":{}",
];
const PROTOBUF: &[&str] =
    &["k8s\0", "\u{a}\u{4}", "\u{12}", "\u{1a}\0", "\u{22}\0", "SelfSubjectAccessReview", "\u{7f}", "shop"];

/// The attributes in their order, for comparison.
fn listed(review: &AccessReview) -> Vec<&str> {
    let AccessSpec { resource_attributes, non_resource_attributes } = &review.spec;
    let mut all = vec![];
    if let Some(ResourceAttributes { namespace, verb, group, version, resource, subresource, name }) =
        resource_attributes
    {
        all.extend([namespace, verb, group, version, resource, subresource, name].map(String::as_str));
    }
    if let Some(NonResourceAttributes { path, verb }) = non_resource_attributes {
        all.extend([path, verb].map(String::as_str));
    }
    all
}

#[test]
fn fuzz_reviews_in_json() {
    fuzz::run("review-json", JSON, |input| {
        let review: AccessReview = serde_json::from_slice(input).map_err(|why| why.classify() as u8)?;
        // What is not looked at is not read: it may hold bytes that are no text.
        let Ok(whole) = serde_json::from_slice::<Value>(input) else { return Err(u8::MAX) };
        let said = |pointer: &str| whole.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let mut expected = vec![];
        for (object, fields) in [
            ("resourceAttributes", &["namespace", "verb", "group", "version", "resource", "subresource", "name"][..]),
            ("nonResourceAttributes", &["path", "verb"]),
        ] {
            if whole["spec"][object].is_object() {
                expected.extend(fields.iter().map(|field| said(&format!("/spec/{object}/{field}"))));
            }
        }
        // A list stands for its object to serde; it is never sent, and says the same fields in their order.
        if whole["spec"].is_object() && !expected.is_empty() {
            assert_eq!(listed(&review), expected);
        }
        Ok::<_, u8>(listed(&review).iter().map(|text| text.len().min(3)).collect::<Vec<_>>())
    });
}

fn field(number: u8, value: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    let mut length = value.len();
    while length > 0x7f {
        out.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
    out.extend_from_slice(value);
    out
}

#[test]
fn fuzz_reviews_in_protobuf() {
    fuzz::run("review-protobuf", PROTOBUF, |input| {
        let rules = protobuf::rules(input).map(|review| review.spec.namespace.len());
        let review = protobuf::access(input).map_err(|why| (why, rules.is_ok()))?;
        // Written anew from what was read, it reads the same: nothing was made up and nothing merged.
        let AccessSpec { resource_attributes, non_resource_attributes } = &review.spec;
        let mut spec = vec![];
        if let Some(ResourceAttributes { namespace, verb, group, version, resource, subresource, name }) =
            resource_attributes
        {
            let texts = [namespace, verb, group, version, resource, subresource, name];
            let fields = texts.iter().zip(1..).flat_map(|(text, number)| field(number, text.as_bytes()));
            spec.extend(field(1, &fields.collect::<Vec<u8>>()));
        }
        if let Some(NonResourceAttributes { path, verb }) = non_resource_attributes {
            spec.extend(field(2, &[field(1, path.as_bytes()), field(2, verb.as_bytes())].concat()));
        }
        let meta = field(2, b"SelfSubjectAccessReview");
        let document = [b"k8s\0".to_vec(), field(1, &meta), field(2, &field(2, &spec))].concat();
        let again = protobuf::access(&document).unwrap();
        assert_eq!(listed(&again), listed(&review));
        Ok::<_, (String, bool)>(listed(&review).iter().map(|text| text.len().min(3)).collect::<Vec<_>>())
    });
}
