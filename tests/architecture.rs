//! Holds the code against the order of its modules: a module uses only those above it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Modules of `src/`, bottom first: each may use those before it and itself.
const ORDER: [&str; 21] = [
    "domain",
    "resources",
    "records",
    "status",
    "clock",
    "audit",
    "metrics",
    "store",
    "index",
    "identity",
    "access",
    "clusters",
    "tenancy",
    "proxy",
    "controllers",
    "api",
    "cli",
    "config",
    "tls",
    "listener",
    "serve",
];

/// Words that may not stand in some modules: the invariants of ARCHITECTURE.md that a search can check.
const FORBIDDEN: [(&str, &[&str], &str); 4] = [
    (
        "domain",
        &["tokio", "kube::", "hyper", "std::fs", "std::net::Tcp", "Timestamp::now"],
        "domain does no I/O and takes time as a parameter",
    ),
    ("resources", &["tokio", "hyper", "std::fs", "Timestamp::now"], "resources do no I/O and take time as a parameter"),
    ("api", &["rusqlite", "impersonate-user"], "only the store knows SQL, only rewrite writes identity"),
    ("controllers", &["rusqlite", "impersonate-user"], "only the store knows SQL, only rewrite writes identity"),
];

fn sources() -> Vec<(String, PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = vec![];
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let first = path.strip_prefix(&root).unwrap().components().next().unwrap();
                let module = first.as_os_str().to_str().unwrap().trim_end_matches(".rs").to_owned();
                let text = fs::read_to_string(&path).unwrap();
                found.push((module, path, text));
            }
        }
    }
    found
}

/// Modules named after `crate::` in code, tests at the end of a file left out.
fn uses(text: &str) -> Vec<String> {
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let mut found = vec![];
    for line in lines {
        for after in line.split("crate::").skip(1) {
            found.push(after.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect());
        }
    }
    found
}

#[test]
fn modules_use_only_those_below_them() {
    let rank: BTreeMap<&str, usize> = ORDER.iter().enumerate().map(|(at, name)| (*name, at)).collect();
    let mut wrong = vec![];
    for (module, path, text) in sources() {
        if module == "lib" || module == "main" {
            continue;
        }
        let Some(own) = rank.get(module.as_str()) else {
            wrong.push(format!("{}: module {module} has no place in the order", path.display()));
            continue;
        };
        for used in uses(&text) {
            match rank.get(used.as_str()) {
                Some(other) if other <= own => {}
                Some(_) => wrong.push(format!("{}: {module} uses {used}, which stands above it", path.display())),
                None => {
                    wrong.push(format!("{}: {module} uses {used}, which has no place in the order", path.display()))
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn invariants_that_a_search_can_check() {
    let mut wrong = vec![];
    for (module, path, text) in sources() {
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        for (guarded, words, why) in FORBIDDEN {
            if module == guarded {
                let hits = words
                    .iter()
                    .filter(|word| code.lines().any(|l| !l.trim_start().starts_with("//") && l.contains(**word)));
                wrong.extend(hits.map(|word| format!("{}: {word} ({why})", path.display())));
            }
        }
        // The self-test asks a cluster as identities that it made up, to see that they are refused; no client's request
        // comes near it.
        let may_write = path.ends_with("proxy/rewrite.rs") || path.to_string_lossy().contains("/clusters/probe/");
        let writes_identity = code.contains("\"impersonate-user\"") && !may_write;
        let knows_sql = code.contains("rusqlite::") && module != "store";
        if writes_identity {
            wrong.push(format!("{}: only proxy/rewrite.rs writes identity headers", path.display()));
        }
        if knows_sql {
            wrong.push(format!("{}: only the store knows SQL", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_order_is_checked_by_what_it_would_refuse() {
    assert_eq!(uses("use crate::proxy::x;\n// crate::api\nlet a = crate::index::b();"), ["proxy", "index"]);
}

/// Words in backticks that are names of functions.
fn named_tests(text: &str) -> Vec<&str> {
    let in_backticks = text.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    let is_name = |word: &str| {
        word.contains('_') && word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
    };
    in_backticks.filter(|word| is_name(word) || *word == "suspension").collect()
}

/// Names of functions that are tests: those after an attribute `test`, whatever stands between.
fn tests_of(text: &str, found: &mut Vec<String>) {
    let mut after = false;
    for line in text.lines().map(str::trim_start) {
        after |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
        let function = line.strip_prefix("async fn ").or_else(|| line.strip_prefix("fn "));
        if let Some(rest) = function
            && std::mem::take(&mut after)
        {
            found.push(rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect());
        }
    }
}

#[test]
fn the_tests_named_as_evidence_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut tests = vec![];
    for (_, _, text) in sources() {
        tests_of(&text, &mut tests);
    }
    let mut folders = vec![root.join("tests")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                tests_of(&fs::read_to_string(&path).unwrap(), &mut tests);
            }
        }
    }
    let table = fs::read_to_string(root.join("tests/README.md")).unwrap();
    let named = named_tests(&table);
    assert!(named.len() > 100, "the table is read");
    let missing: Vec<_> = named.into_iter().filter(|name| !tests.iter().any(|test| test == name)).collect();
    assert!(missing.is_empty(), "tests/README.md names tests that do not exist: {missing:?}");
    // Every row of a table has an answer.
    for line in table.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").collect();
        assert!(cells.len() == 3 && !cells[2].trim().is_empty(), "{line}");
    }
}
