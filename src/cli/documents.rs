//! Manifests: YAML and JSON documents from files, directories and standard input, each with the place it stands at.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::exit::{Failure, Outcome};
use super::files;
use super::kinds::{self, KindInfo};
use crate::resources::API_VERSION;

/// One object that a file describes.
#[derive(Debug, Clone)]
pub struct Document {
    /// `file:line` of its beginning.
    pub place: String,
    /// Its kind.
    pub kind: &'static KindInfo,
    /// Its name.
    pub name: String,
    /// All of it.
    pub object: Value,
}

/// Reads what `-f` names: files, directories (not those below them), `-`. In order of dependencies; those of one kind
/// stay in the order in which they were read.
pub fn read(sources: &[PathBuf]) -> Outcome<Vec<Document>> {
    let mut documents = Vec::new();
    for_each_text(sources, |name, text| {
        documents.extend(parse(name, text)?);
        Ok(())
    })?;
    if documents.is_empty() {
        return Err(Failure::Usage("the files describe nothing".to_owned()));
    }
    documents.sort_by_key(|document| document.kind.order);
    for (at, document) in documents.iter().enumerate() {
        let same = |other: &&Document| other.kind.plural == document.kind.plural && other.name == document.name;
        if let Some(first) = documents[..at].iter().find(same) {
            return Err(Failure::Usage(format!(
                "{}: {} {:?} is described a second time, first at {}",
                document.place, document.kind.kind, document.name, first.place
            )));
        }
    }
    Ok(documents)
}

/// Reads every text that `-f` names, and hands each over with its name.
pub fn for_each_text(sources: &[PathBuf], mut read: impl FnMut(&str, &str) -> Outcome) -> Outcome {
    for source in sources {
        if source.as_os_str() == "-" {
            read("standard input", &files::read_stdin()?)?;
        } else if source.is_dir() {
            let inside = manifests_in(source)?;
            if inside.is_empty() {
                return Err(Failure::Usage(format!("{}: holds no *.yaml, *.yml or *.json", source.display())));
            }
            for file in inside {
                read(&file.display().to_string(), &files::read_text(&file)?)?;
            }
        } else {
            read(&source.display().to_string(), &files::read_text(source)?)?;
        }
    }
    Ok(())
}

fn manifests_in(directory: &Path) -> Outcome<Vec<PathBuf>> {
    let failed = |e: std::io::Error| Failure::Usage(format!("{}: {e}", directory.display()));
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let manifest = path.extension().is_some_and(|e| e == "yaml" || e == "yml" || e == "json");
        if manifest && path.is_file() {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// The one document of a text; an empty one is null.
pub fn one(name: &str, text: &str) -> Outcome<Value> {
    let mut parts = values(name, text)?;
    match parts.len() {
        0 => Ok(Value::Null),
        1 => Ok(parts.remove(0).1),
        _ => Err(Failure::Usage(format!("{name}:{}: a second document, where one is expected", parts[1].0))),
    }
}

/// All objects of a text of our kinds. Lists are taken apart.
pub fn parse(name: &str, text: &str) -> Outcome<Vec<Document>> {
    objects(name, text)?.into_iter().map(|(place, value)| document(place, value)).collect()
}

/// All objects of a text, of whichever kind, each with its place. Lists are taken apart.
pub fn objects(name: &str, text: &str) -> Outcome<Vec<(String, Value)>> {
    let mut found = Vec::new();
    for (line, mut value) in values(name, text)? {
        let place = format!("{name}:{line}");
        let is_list = value["kind"].as_str().is_some_and(|kind| kind.ends_with("List")) && value["items"].is_array();
        match value.get_mut("items").filter(|_| is_list).map(Value::take) {
            Some(Value::Array(items)) => {
                let placed = items.into_iter().enumerate();
                found.extend(placed.map(|(at, item)| (format!("{place} (items[{at}])"), item)));
            }
            _ => found.push((place, value)),
        }
    }
    Ok(found)
}

fn document(place: String, object: Value) -> Outcome<Document> {
    let bad = |why: String| Err(Failure::Usage(format!("{place}: {why}")));
    if !object.is_object() {
        return bad("is not an object with apiVersion, kind and metadata".to_owned());
    }
    match object["apiVersion"].as_str() {
        Some(API_VERSION) => {}
        Some(other) => return bad(format!("apiVersion {other:?} is not one of this service; expected {API_VERSION}")),
        None => return bad(format!("apiVersion is missing; expected {API_VERSION}")),
    }
    let kind = match object["kind"].as_str() {
        None => return bad("kind is missing".to_owned()),
        Some(kind) => match kinds::KINDS.iter().find(|known| known.kind == kind) {
            Some(known) if known.writable => known,
            Some(_) => return bad(format!("{kind} objects cannot be applied; use `bailiwick token create`")),
            None => return bad(format!("kind {kind:?} is unknown; known are {}", kinds::writable_names())),
        },
    };
    match object["metadata"]["name"].as_str() {
        Some(name) if !name.is_empty() => Ok(Document { name: name.to_owned(), place, kind, object }),
        _ => bad("metadata.name is missing".to_owned()),
    }
}

/// The documents of a YAML stream, with the line at which each begins. Empty ones are left out.
///
/// The stream is cut at the `---` lines first (YAML lets nothing else begin so), so that an error names its line in
/// the file and one document's error is not another's.
fn values(name: &str, text: &str) -> Outcome<Vec<(usize, Value)>> {
    let mut found = Vec::new();
    for (offset, part) in split(text) {
        let value: Value = serde_saphyr::from_str_with_options(part, limits()).map_err(|e| {
            let at = e.location().map_or(0, |l| usize::try_from(l.line()).unwrap_or(1).saturating_sub(1));
            let why = e.without_snippet().to_string();
            Failure::Usage(format!("{name}:{}: {why}", offset + at))
        })?;
        if !value.is_null() {
            let blank = part.lines().take_while(|l| {
                let l = l.trim();
                l.is_empty() || l.starts_with('#') || l == "---"
            });
            found.push((offset + blank.count(), value));
        }
    }
    Ok(found)
}

/// The parser's own limits are those of configuration files; a directory's worth of objects in one list has more parts.
/// How much a text may hold is bounded by its size; what must stay small is how far aliases multiply it.
fn limits() -> serde_saphyr::Options {
    let most = usize::try_from(files::MAX_INPUT).unwrap_or(usize::MAX);
    serde_saphyr::options! {
        budget: serde_saphyr::budget! { max_nodes: most, max_events: most, max_total_scalar_bytes: most },
    }
}

fn split(text: &str) -> Vec<(usize, &str)> {
    let mut parts = Vec::new();
    let (mut start, mut start_line, mut at) = (0, 1, 0);
    for (number, line) in text.split_inclusive('\n').enumerate() {
        let separates =
            line.strip_prefix("---").is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']));
        if separates && at > start {
            parts.push((start_line, &text[start..at]));
            (start, start_line) = (at, number + 1);
        }
        at += line.len();
    }
    parts.push((start_line, &text[start..]));
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(kind: &str, name: &str) -> String {
        format!("apiVersion: bailiwick.dev/v1alpha1\nkind: {kind}\nmetadata: {{name: {name}}}\nspec: {{}}\n")
    }

    #[test]
    fn they_come_in_the_order_of_their_dependencies() {
        let dir = tempfile::tempdir().unwrap();
        let kinds = ["Grant", "Project", "AccessRole", "Team", "User", "Cluster"];
        let first = kinds.map(|k| object(k, "b")).join("---\n");
        std::fs::write(dir.path().join("1.yaml"), first).unwrap();
        std::fs::write(dir.path().join("2.yml"), object("User", "a")).unwrap();
        std::fs::write(dir.path().join("notes.txt"), "not a manifest").unwrap();
        std::fs::create_dir(dir.path().join("below.yaml")).unwrap();
        let read = read(&[dir.path().to_owned()]).unwrap();
        let order: Vec<String> = read.iter().map(|d| format!("{}/{}", d.kind.kind, d.name)).collect();
        assert_eq!(order, ["Cluster/b", "User/b", "User/a", "Team/b", "AccessRole/b", "Project/b", "Grant/b"]);
    }

    #[test]
    fn places_are_those_in_the_file() {
        let text = format!("# head\n\n---\n# comment\n{}---\n\n---\n{}", object("User", "a"), object("Team", "b"));
        let places: Vec<String> = parse("f.yaml", &text).unwrap().into_iter().map(|d| d.place).collect();
        assert_eq!(places, ["f.yaml:5", "f.yaml:12"]);
    }

    #[test]
    fn lists_and_json_are_understood() {
        let text = r#"{"apiVersion":"v1","kind":"List","items":[
            {"apiVersion":"bailiwick.dev/v1alpha1","kind":"User","metadata":{"name":"a"},"spec":{}}]}"#;
        assert_eq!(parse("f", text).unwrap()[0].name, "a");
    }

    #[test]
    fn a_block_text_may_hold_dashes() {
        let text = object("User", "a").replace("spec: {}", "spec:\n  displayName: |\n    ---\n    x");
        assert_eq!(parse("f", &text).unwrap()[0].object["spec"]["displayName"], "---\nx\n");
    }

    #[test]
    fn what_is_wrong_is_named_with_file_and_line() {
        for (text, expected) in [
            ("a: 1\nb: [\n".to_owned(), "f.yaml:"),
            ("apiVersion: x\na: 1\na: 2\n".to_owned(), "f.yaml:3: "),
            (object("User", "a") + "---\n: : :\n- x", "f.yaml:6: "),
            ("- 1\n".to_owned(), "f.yaml:1: is not an object"),
            ("kind: User\n".to_owned(), "f.yaml:1: apiVersion is missing"),
            ("apiVersion: v1\nkind: Pod\n".to_owned(), "f.yaml:1: apiVersion \"v1\" is not one of this service"),
            (object("Widget", "a"), "f.yaml:1: kind \"Widget\" is unknown; known are Cluster, User, Team"),
            (object("Token", "a"), "f.yaml:1: Token objects cannot be applied"),
            (object("User", "''"), "f.yaml:1: metadata.name is missing"),
        ] {
            let failure = parse("f.yaml", &text).unwrap_err();
            assert!(failure.to_string().starts_with(&format!("error: {expected}")), "{text}: {failure}");
            assert_eq!(failure.code(), 2);
        }
    }

    #[test]
    fn one_object_twice_is_refused_and_nothing_is_too() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("x.yaml");
        std::fs::write(&file, format!("{0}---\n{0}", object("User", "a"))).unwrap();
        let failure = read(std::slice::from_ref(&file)).unwrap_err();
        assert!(failure.to_string().contains("x.yaml:6: User \"a\" is described a second time"), "{failure}");
        std::fs::write(&file, "# nothing\n").unwrap();
        assert_eq!(read(&[file]).unwrap_err().code(), 2);
        assert_eq!(read(&[dir.path().join("missing")]).unwrap_err().code(), 2);
    }

    #[test]
    fn a_bomb_of_aliases_is_refused() {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..12 {
            let before = level - 1;
            let many = vec![format!("*a{before}"); 10].join(", ");
            text.push_str(&format!("a{level}: &a{level} [{many}]\n"));
        }
        assert_eq!(parse("f", &text).unwrap_err().code(), 2);
    }
}
