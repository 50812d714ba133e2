//! Adding our entries to a kubeconfig that holds others'.
//!
//! An entry of the file is *ours* if it is
//! - a cluster whose server is the service's address or below it;
//! - a context on such a cluster;
//! - a user with a token of ours (`bwk_…`) that no context on another server uses.
//!
//! Ours are replaced; any other entry of a name that we need is refused, by name. Everything else keeps its meaning.

use std::fmt;

use serde_json::{Map, Value, json};

/// The three lists of a kubeconfig, with what an entry is called in messages.
const LISTS: [(&str, &str); 3] = [("clusters", "cluster"), ("users", "user"), ("contexts", "context")];
/// How every token of ours begins.
const TOKEN_PREFIX: &str = "bwk_";

/// Why a kubeconfig was left as it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MergeError {
    /// The file is YAML, but no kubeconfig.
    #[error("is no kubeconfig: {0}")]
    NoKubeconfig(String),
    /// Entries of the names that we need belong to somebody else.
    #[error("holds entries of the same name that are not ours: {}; rename or remove them, or write to another file with -o", .0.join(", "))]
    Foreign(Vec<String>),
}

/// Puts the entries of `ours` into `file`. `base` is the address of the service, without a slash at the end.
pub fn merge(file: Value, ours: &Value, base: &str) -> Result<Value, MergeError> {
    let mut file = Kubeconfig::new(file)?;
    let wanted: Vec<_> =
        LISTS.iter().flat_map(|(list, kind)| names(ours, list).map(move |name| (*list, *kind, name))).collect();
    let foreign: Vec<String> = wanted
        .iter()
        .filter(|(list, _, name)| file.holds(list, name) && !file.owns(list, name, base))
        .map(|(_, kind, name)| format!("{kind} {name:?}"))
        .collect();
    if !foreign.is_empty() {
        return Err(MergeError::Foreign(foreign));
    }
    for (list, _, name) in wanted {
        if let Some(entry) = entry(ours, list, name) {
            file.put(list, name, entry.clone());
        }
    }
    file.0.entry("apiVersion").or_insert_with(|| json!("v1"));
    file.0.entry("kind").or_insert_with(|| json!("Config"));
    let unset = file.0.get("current-context").and_then(Value::as_str).is_none_or(str::is_empty);
    if unset && let Some(current) = ours["current-context"].as_str().or_else(|| names(ours, "contexts").next()) {
        file.0.insert("current-context".to_owned(), json!(current));
    }
    Ok(Value::Object(file.0))
}

/// Takes the context, cluster and user called `name` out of `file`, those that are ours.
pub fn remove(file: Value, name: &str, base: &str) -> Result<Value, MergeError> {
    let mut file = Kubeconfig::new(file)?;
    let owned: Vec<&str> = LISTS
        .iter()
        .map(|(list, _)| *list)
        .filter(|list| file.holds(list, name) && file.owns(list, name, base))
        .collect();
    for list in &owned {
        if let Some(entries) = file.0.get_mut(*list).and_then(Value::as_array_mut) {
            entries.retain(|entry| entry["name"] != name);
        }
    }
    if owned.contains(&"contexts") && file.0.get("current-context").is_some_and(|current| current == name) {
        file.0.insert("current-context".to_owned(), json!(""));
    }
    Ok(Value::Object(file.0))
}

struct Kubeconfig(Map<String, Value>);

impl Kubeconfig {
    fn new(file: Value) -> Result<Self, MergeError> {
        let no = |why: fmt::Arguments<'_>| Err(MergeError::NoKubeconfig(why.to_string()));
        let map = match file {
            Value::Null => Map::new(),
            Value::Object(map) => map,
            _ => return no(format_args!("not a mapping")),
        };
        if map.get("kind").is_some_and(|kind| kind != "Config") {
            return no(format_args!("kind is not Config"));
        }
        for (list, _) in LISTS {
            match map.get(list) {
                None | Some(Value::Null) => {}
                Some(Value::Array(entries)) => {
                    if let Some(at) = entries.iter().position(|entry| !entry["name"].is_string()) {
                        return no(format_args!("{list}[{at}] has no name"));
                    }
                }
                Some(_) => return no(format_args!("{list} is not a list")),
            }
        }
        Ok(Self(map))
    }

    fn entries<'a>(&'a self, list: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
        self.0.get(list).and_then(Value::as_array).into_iter().flatten()
    }

    fn holds(&self, list: &str, name: &str) -> bool {
        self.entries(list).any(|entry| entry["name"] == name)
    }

    /// Whether all entries of that name (a file may repeat one) are ours.
    fn owns(&self, list: &str, name: &str, base: &str) -> bool {
        self.entries(list).filter(|entry| entry["name"] == name).all(|entry| match list {
            "clusters" => is_at(&entry["cluster"]["server"], base),
            "contexts" => self.context_is_ours(entry, base),
            _ => {
                let token = entry["user"]["token"].as_str().is_some_and(|t| t.starts_with(TOKEN_PREFIX));
                let mut users = self.entries("contexts").filter(|context| context["context"]["user"] == name);
                token && users.all(|context| self.context_is_ours(context, base))
            }
        })
    }

    fn context_is_ours(&self, context: &Value, base: &str) -> bool {
        let cluster = context["context"]["cluster"].as_str().unwrap_or_default();
        self.holds("clusters", cluster) && self.owns("clusters", cluster, base)
    }

    /// Replaces the entry of that name in its place, or adds it at the end.
    fn put(&mut self, list: &str, name: &str, new: Value) {
        let slot = self.0.entry(list).or_insert_with(|| json!([]));
        if slot.is_null() {
            *slot = json!([]);
        }
        let Some(entries) = slot.as_array_mut() else { return };
        let at = entries.iter().position(|entry| entry["name"] == name);
        entries.retain(|entry| entry["name"] != name);
        entries.insert(at.unwrap_or(entries.len()), new);
    }
}

fn is_at(server: &Value, base: &str) -> bool {
    let server = server.as_str().unwrap_or_default();
    server.strip_prefix(base).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn names<'a>(config: &'a Value, list: &str) -> impl Iterator<Item = &'a str> + use<'a> {
    config[list].as_array().into_iter().flatten().filter_map(|entry| entry["name"].as_str())
}

fn entry<'a>(config: &'a Value, list: &str, name: &str) -> Option<&'a Value> {
    config[list].as_array().into_iter().flatten().find(|entry| entry["name"] == name)
}

#[cfg(test)]
mod tests;
