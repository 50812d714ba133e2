//! `docs/configuration.md` has every key, and its defaults are the real ones.

use std::collections::BTreeSet;

use clap::Args as _;
use serde_json::Value;

use super::{ConfigError, File, Settings};
use crate::cli::args::ServeArgs;

const DOCUMENT: &str = include_str!("../../docs/configuration.md");

/// The file that the document shows.
fn shown() -> &'static str {
    let (_, rest) = DOCUMENT.split_once("\n```toml\n").unwrap();
    let (block, rest) = rest.split_once("\n```\n").unwrap();
    assert!(!rest.contains("```toml"), "the document shows one file");
    block
}

/// The example on a line `#key = …`, of a key that is absent by default.
fn example(line: &str) -> Option<&str> {
    let text = line.strip_prefix('#')?;
    text.starts_with(|c: char| c.is_ascii_lowercase()).then_some(text)
}

/// The same with its examples in force.
fn with_examples() -> String {
    shown().lines().map(|line| example(line).unwrap_or(line)).collect::<Vec<_>>().join("\n")
}

fn load(toml: &str) -> Result<Settings, ConfigError> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config.toml");
    std::fs::write(&path, toml).unwrap();
    Settings::load(&ServeArgs { config: Some(path), ..ServeArgs::default() })
}

/// Paths of all keys that hold values.
fn keys(of: &Value, under: &str, found: &mut BTreeSet<String>) {
    for (key, value) in of.as_object().unwrap() {
        let path = if under.is_empty() { key.clone() } else { format!("{under}.{key}") };
        match value {
            Value::Object(_) => keys(value, &path, found),
            _ => assert!(found.insert(path)),
        }
    }
}

#[test]
fn every_key_is_documented_and_no_other() {
    let (mut known, mut documented) = (BTreeSet::new(), BTreeSet::new());
    keys(&serde_json::to_value(File::default()).unwrap(), "", &mut known);
    keys(&serde_json::to_value(toml::from_str::<toml::Table>(&with_examples()).unwrap()).unwrap(), "", &mut documented);
    assert_eq!(documented, known);
}

#[test]
fn the_documented_defaults_are_the_real_ones() {
    let (real, documented) = (load("").unwrap(), load(shown()).unwrap());
    assert_eq!(format!("{documented:#?}"), format!("{real:#?}"));
    let real = format!("{real:?}");
    for key in shown().lines().filter_map(example).map(|line| line.split_once(" = ").unwrap().0) {
        assert!(real.contains(&format!("{key}: None")), "{key} has a default, which the document does not state");
    }
}

#[test]
fn the_examples_are_accepted() {
    let settings = load(&with_examples()).unwrap();
    assert!(settings.tls.ca_file.is_some() && settings.master_key.file.is_some() && settings.public_url.is_some());
}

#[test]
fn every_key_is_explained() {
    let mut explained = false;
    for line in shown().lines() {
        let key = example(line).or((!line.is_empty() && !line.starts_with(['#', '['])).then_some(line));
        match key {
            Some(key) => assert!(explained, "{key} stands without a comment"),
            // Keys that stand together share their comment.
            None => explained = line.starts_with("# "),
        }
    }
}

#[test]
fn every_option_is_documented() {
    let serve = ServeArgs::augment_args(clap::Command::new("serve"));
    for option in serve.get_arguments() {
        let long = option.get_long().unwrap();
        let variable = option.get_env().map_or("none".to_owned(), |name| format!("`{}`", name.to_str().unwrap()));
        let row = format!("\n| `--{long}` | {variable} |");
        assert!(DOCUMENT.contains(&row), "the table has no row {row:?}");
    }
}
