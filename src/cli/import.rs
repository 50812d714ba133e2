//! `bailiwick import`: what other platforms export, as resources to apply. Nothing here talks to a server.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::args::{ImportArgs, ImportCommand, ImportFormat, RancherArgs};
use super::exit::{Failure, Outcome};
use super::{documents, output};

pub mod rancher;

use rancher::{Document, Options, Refused, Translation};

/// Most bytes of all files together.
const MAX_TOTAL: usize = 64 << 20;

/// `bailiwick import`.
pub fn run(args: ImportArgs) -> Outcome {
    let ImportArgs { command: ImportCommand::Rancher(args) } = args;
    let RancherArgs { filename, clusters, roles, output: format } = args;
    let clusters = mappings(&clusters)?;
    let mut found = vec![];
    let mut total = 0_usize;
    documents::for_each_text(&filename, |name, text| {
        total += text.len();
        if total > MAX_TOTAL {
            return Err(Failure::Usage(format!("{name}: more than {} MiB in all", MAX_TOTAL >> 20)));
        }
        let objects = documents::objects(name, text)?;
        found.extend(objects.into_iter().map(|(place, value)| Document { place, value }));
        Ok(())
    })?;
    let translation = rancher::translate(found, &Options { roles, clusters }).map_err(failure)?;
    output::print(&match format {
        ImportFormat::Yaml => as_yaml(&translation)?,
        ImportFormat::Json => output::json(&as_json(&translation)),
    })?;
    output::complain(as_text(&translation).trim_end());
    Ok(())
}

fn mappings(given: &[String]) -> Outcome<BTreeMap<String, String>> {
    let mut clusters = BTreeMap::new();
    for text in given {
        let (id, name) =
            text.split_once('=').ok_or_else(|| Failure::Usage(format!("--cluster {text}: write ID=NAME")))?;
        if clusters.insert(id.to_owned(), name.to_owned()).is_some() {
            return Err(Failure::Usage(format!("--cluster {text}: {id} is given twice")));
        }
    }
    Ok(clusters)
}

fn failure(refused: Refused) -> Failure {
    match refused {
        Refused::Input(_) | Refused::Cluster(_) | Refused::TooMany => Failure::Usage(refused.to_string()),
        Refused::Invalid(_) => Failure::Failed(refused.to_string()),
    }
}

/// A stream of documents, each below what was lost on the way to it.
fn as_yaml(translation: &Translation) -> Outcome<String> {
    let Translation { resources, losses, clusters } = translation;
    let mut text = String::from(
        "# Translated from Rancher. Nothing is granted that Rancher did not grant; losses stand beside the resources.\n",
    );
    text.push_str("# Before: each cluster is imported under its name here.\n");
    for cluster in clusters {
        let groups: String =
            cluster.tenant_api_groups.iter().map(|group| format!(" --tenant-api-group {group}")).collect();
        text.push_str(&format!("#   bailiwick cluster import {} --kubeconfig FILE{groups}\n", cluster.name));
    }
    text.push_str("# Then: bailiwick apply -f FILE --dry-run; `configured` there is an object that exists and would be overwritten.\n");
    for loss in losses.iter().filter(|loss| loss.resource.is_none()) {
        text.push_str(&format!("# {loss}\n"));
    }
    let mut beside: BTreeMap<&str, Vec<&rancher::Loss>> = BTreeMap::new();
    for loss in losses {
        if let Some(resource) = &loss.resource {
            beside.entry(resource).or_default().push(loss);
        }
    }
    for resource in resources {
        text.push_str("---\n");
        for loss in beside.get(resource.label().as_str()).into_iter().flatten() {
            text.push_str(&format!("# {loss}\n"));
        }
        text.push_str(&output::yaml(&resource.value)?);
    }
    Ok(text)
}

/// The losses, one a line, and how many there are.
fn as_text(translation: &Translation) -> String {
    let Translation { resources, losses, clusters: _ } = translation;
    let mut text = String::new();
    for loss in losses {
        match loss.place.as_str() {
            "" => text.push_str(&format!("{loss}\n")),
            place => text.push_str(&format!("{place}: {loss}\n")),
        }
    }
    text.push_str(&format!("{} resources; {} losses and things to do, named above\n", resources.len(), losses.len()));
    text
}

/// A List that can be applied as it is; `losses` and `clusters` are for programs.
fn as_json(translation: &Translation) -> Value {
    let Translation { resources, losses, clusters } = translation;
    let items: Vec<&Value> = resources.iter().map(|resource| &resource.value).collect();
    json!({
        "apiVersion": "v1", "kind": "List", "metadata": {}, "items": items, "losses": losses, "clusters": clusters,
    })
}
