//! Bodies of our API: JSON and YAML are read alike, and what is written reads back.

use super::*;
use crate::api::yaml::to_yaml;
use crate::fuzz;

const WORDS: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    "\"",
    ":",
    ",",
    "- ",
    "a: ",
    "? ",
    "&a ",
    "*a",
    "<<: ",
    "!!str ",
    "|\n",
    ">-\n",
    "---\n",
    "...\n",
    "# ",
    "null",
    "~",
    "true",
    "yes",
    "0x1f",
    "0o17",
    "1e3",
    "-0",
    ".inf",
    ".nan",
    "1.5",
    "18446744073709551616",
    "\\u0000",
    "\\ud800",
    "'",
    "\t",
    "\r\n",
    "%YAML 1.1\n",
    "\u{feff}",
    "metadata",
    "{\"a\":",
    "2026-01-01",
];

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(map) => 1 + map.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

#[test]
fn fuzz_bodies() {
    fuzz::run("body", WORDS, |input| {
        let json = parse_json(input);
        let yaml = parse_yaml(input);
        for value in [&json, &yaml].into_iter().flatten() {
            assert!(depth(value) <= 128);
            let text = value.to_string();
            assert_eq!(&parse_json(text.as_bytes()).unwrap(), value, "JSON");
            // The reader of YAML stops earlier than that of JSON.
            if depth(value) < 50 {
                let text = to_yaml(value);
                assert_eq!(&parse_yaml(text.as_bytes()).unwrap(), value, "YAML:\n{text}");
            }
        }
        if let (Ok(json), Ok(yaml)) = (&json, &yaml) {
            assert_eq!(json, yaml, "one text, two meanings");
        }
        for refused in [&json, &yaml].into_iter().flat_map(|read| read.as_ref().err()) {
            assert_eq!(refused.code, 400);
        }
        (json.map(|value| depth(&value)).ok(), yaml.map(|value| depth(&value)).ok())
    });
}
