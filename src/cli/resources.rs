//! `get`, `apply`, `delete`.

use http::Method;
use serde_json::{Map, Value, json};

use super::args::{ApplyArgs, DeleteArgs, GetArgs};
use super::client::{AS_TABLE, Client, encode, resource_path};
use super::documents::{self, Document};
use super::exit::{Failure, Outcome};
use super::kinds::{self, KindInfo};
use super::output::{self, Format};
use super::session;

/// How often an update is tried again when somebody else changed the object in between.
const ATTEMPTS: usize = 4;

/// `bailiwick get`.
pub async fn get(args: GetArgs) -> Outcome {
    let GetArgs { kind, names, selector, output: format, connect } = args;
    let (kind, names) = kinds::target(&kind, names)?;
    if !names.is_empty() && selector.is_some() {
        return Err(Failure::Usage("--selector and names exclude each other".to_owned()));
    }
    let client = session::connect(&connect)?;
    let query = selector.map(|s| format!("?labelSelector={}", encode(&s))).unwrap_or_default();
    let paths: Vec<String> = match names.as_slice() {
        [] => vec![resource_path(kind.plural, None) + query.as_str()],
        names => names.iter().map(|name| resource_path(kind.plural, Some(name))).collect(),
    };
    if format == Format::Table {
        return print_tables(&client, &paths).await;
    }
    let mut answers = Vec::new();
    for path in &paths {
        answers.push(client.get(path).await?);
    }
    let value = match answers.len() {
        1 => answers.remove(0),
        _ => json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": answers}),
    };
    output::structured(format, &value, || {
        let one = std::slice::from_ref(&value);
        let items = value["items"].as_array().map_or(one, Vec::as_slice);
        items.iter().map(|i| kind.qualified(&output::text(&i["metadata"]["name"])) + "\n").collect()
    })
}

async fn print_tables(client: &Client, paths: &[String]) -> Outcome {
    let mut all: Option<Value> = None;
    for path in paths {
        let table = client.send(Method::GET, path, AS_TABLE, None).await?.json()?;
        match &mut all {
            None => all = Some(table),
            Some(all) => {
                if let (Some(rows), Some(more)) = (all["rows"].as_array_mut(), table["rows"].as_array()) {
                    rows.extend(more.iter().cloned());
                }
            }
        }
    }
    let all = all.unwrap_or_default();
    if all["rows"].as_array().is_none_or(Vec::is_empty) {
        output::complain("No resources found");
        return Ok(());
    }
    output::print(&output::server_table(&all))
}

/// `bailiwick apply`. Goes on after a refusal, so that all of them are seen at once.
pub async fn apply(args: ApplyArgs) -> Outcome {
    let ApplyArgs { filename, dry_run, output: format, connect } = args;
    let documents = documents::read(&filename)?;
    let client = session::connect(&connect)?;
    let (mut applied, mut failed) = (Vec::new(), 0);
    for document in &documents {
        match apply_one(&client, document, dry_run).await {
            Ok((what, object)) => {
                let dry = if dry_run { " (server dry run)" } else { "" };
                let name = document.kind.qualified(&document.name);
                match format {
                    Format::Table => output::line(&format!("{name} {what}{dry}"))?,
                    Format::Name => output::line(&name)?,
                    Format::Json | Format::Yaml => applied.push(object),
                }
            }
            Err(failure @ (Failure::Unreachable(_) | Failure::OutputClosed)) => return Err(failure),
            Err(failure) if failure.is_status(401) => return Err(failure),
            Err(failure) => {
                failed += 1;
                output::complain(&format!("{}: {failure}", document.place));
            }
        }
    }
    if matches!(format, Format::Json | Format::Yaml) {
        let list = json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": applied});
        output::structured(format, &list, String::new)?;
    }
    match failed {
        0 => Ok(()),
        _ => Err(Failure::Failed(format!("{failed} of {} objects were not applied", documents.len()))),
    }
}

async fn apply_one(client: &Client, document: &Document, dry_run: bool) -> Outcome<(&'static str, Value)> {
    let query = if dry_run { "?dryRun=All&fieldValidation=Strict" } else { "?fieldValidation=Strict" };
    let path = resource_path(document.kind.plural, Some(&document.name));
    let mut last = None;
    for _ in 0..ATTEMPTS {
        let current = match client.get(&path).await {
            Ok(current) => current,
            Err(failure) if failure.is_status(404) => {
                let collection = resource_path(document.kind.plural, None) + query;
                match client.call(Method::POST, &collection, Some(&document.object)).await {
                    // Somebody was faster: now it is an update.
                    Err(failure) if failure.is_status(409) => {
                        last = Some(failure);
                        continue;
                    }
                    created => return created.map(|object| ("created", object)),
                }
            }
            Err(failure) => return Err(failure),
        };
        let wanted = desired(document.kind, &document.object, &current);
        if wanted["metadata"] == current["metadata"] && document.kind.same_spec(&wanted["spec"], &current["spec"]) {
            return Ok(("unchanged", current));
        }
        match client.call(Method::PUT, &(path.clone() + query), Some(&wanted)).await {
            Err(failure) if failure.is_status(409) => last = Some(failure),
            updated => {
                let updated = updated?;
                let same = updated["metadata"]["resourceVersion"] == current["metadata"]["resourceVersion"];
                return Ok((if same && !dry_run { "unchanged" } else { "configured" }, updated));
            }
        }
    }
    Err(last.unwrap_or_else(|| Failure::Failed("changed by somebody else again and again".to_owned())))
}

/// The object to send: the file's spec, the file's labels and annotations over the present ones, all else as it is.
fn desired(kind: &KindInfo, file: &Value, current: &Value) -> Value {
    let mut wanted = current.clone();
    wanted["apiVersion"] = file["apiVersion"].clone();
    wanted["kind"] = json!(kind.kind);
    wanted["spec"] = match &file["spec"] {
        Value::Null => json!({}),
        spec => spec.clone(),
    };
    for key in ["labels", "annotations"] {
        if let Some(given) = file["metadata"][key].as_object().filter(|given| !given.is_empty()) {
            let mut all = current["metadata"][key].as_object().cloned().unwrap_or_else(Map::new);
            all.extend(given.clone());
            wanted["metadata"][key] = Value::Object(all);
        }
    }
    // Parts that we do not know are the server's to refuse, by name.
    for (key, value) in file.as_object().into_iter().flatten() {
        if !matches!(key.as_str(), "apiVersion" | "kind" | "metadata" | "spec" | "status") {
            wanted[key] = value.clone();
        }
    }
    wanted
}

/// `bailiwick delete`.
pub async fn delete(args: DeleteArgs) -> Outcome {
    let DeleteArgs { kind, names, filename, ignore_not_found, dry_run, connect } = args;
    let targets: Vec<(&KindInfo, String)> = match kind {
        Some(kind) => {
            let (kind, names) = kinds::target(&kind, names)?;
            if names.is_empty() {
                return Err(Failure::Usage(format!("name the {} to delete", kind.plural)));
            }
            names.into_iter().map(|name| (kind, name)).collect()
        }
        None => documents::read(&filename)?.into_iter().rev().map(|d| (d.kind, d.name)).collect(),
    };
    let client = session::connect(&connect)?;
    let query = if dry_run { "?dryRun=All" } else { "" };
    let mut failed = 0;
    for (kind, name) in &targets {
        match client.call(Method::DELETE, &(resource_path(kind.plural, Some(name)) + query), None).await {
            Ok(_) => {
                let dry = if dry_run { " (server dry run)" } else { "" };
                output::line(&format!("{} deleted{dry}", kind.qualified(name)))?;
            }
            Err(failure) if ignore_not_found && failure.is_status(404) => {}
            Err(failure) if targets.len() == 1 => return Err(failure),
            Err(failure @ Failure::Unreachable(_)) => return Err(failure),
            Err(failure) => {
                failed += 1;
                output::complain(&failure.to_string());
            }
        }
    }
    match failed {
        0 => Ok(()),
        _ => Err(Failure::Failed(format!("{failed} of {} objects were not deleted", targets.len()))),
    }
}

#[cfg(test)]
mod tests;
