//! From Rancher's kinds to ours: pure, with every loss named.
//!
//! The rule above all others: nothing is granted that Rancher did not grant. What cannot be read in one way only, what
//! refers to something that the export does not hold, and what is beyond the reach of our roles is left out, and said.
//! Rights are taken apart into single ones ([`rules`]) and put together again, so that a wildcard never survives.

mod bindings;
mod input;
mod names;
mod people;
mod projects;
mod quota;
mod rules;
mod verify;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;
use serde_json::{Value, json};

pub use input::{Document, InputError};

use crate::cli::output;
use crate::domain::{names as domain_names, rbac};
use crate::resources::API_VERSION;
use crate::resources::validation::{ResourceKind, cleaned_line};

/// Annotation that names the Rancher object which a resource was made from.
pub const IMPORTED_FROM: &str = "bailiwick.dev/imported-from";
/// Longest name for people that a resource may have.
const MAX_DISPLAY: usize = 128;
/// Longest text of a loss, in characters.
const MAX_TEXT: usize = 600;
/// Most grants that are made. A role on a cluster becomes one grant per project there, so a small export could
/// otherwise ask for very many.
const MAX_GRANTS: usize = 100_000;

/// Which roles the grants name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum RoleStyle {
    /// AccessRoles with the rights that Rancher gave, and no other.
    #[default]
    Exact,
    /// owner, member and viewer for project-owner, project-member and read-only; what these give beyond is reported.
    BuiltIn,
}

/// How to translate.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Which roles the grants name.
    pub roles: RoleStyle,
    /// Names of our clusters by Rancher's ids; the others are called after their display names.
    pub clusters: BTreeMap<String, String>,
}

/// What came of an export.
#[derive(Debug, Clone)]
pub struct Translation {
    /// In the order of their dependencies.
    pub resources: Vec<Resource>,
    /// All that has no counterpart, was changed or is left to do.
    pub losses: Vec<Loss>,
    /// The clusters that must be there before the resources can be applied.
    pub clusters: Vec<WantedCluster>,
}

/// One of our resources.
#[derive(Debug, Clone)]
pub struct Resource {
    /// Its kind.
    pub kind: ResourceKind,
    /// Its name.
    pub name: String,
    /// The Rancher objects that it was made from.
    pub sources: Vec<String>,
    /// All of it.
    pub value: Value,
}

impl Resource {
    fn new<T: Serialize>(kind: ResourceKind, name: &str, sources: Vec<String>, spec: &T) -> Result<Self, Refused> {
        let spec = serde_json::to_value(spec).map_err(|e| Refused::Invalid(format!("{}: {e}", kind.as_str())))?;
        let from = sources.first().map_or("", String::as_str);
        let value = json!({
            "apiVersion": API_VERSION, "kind": kind.as_str(),
            "metadata": {"name": name, "annotations": {IMPORTED_FROM: format!("rancher {from}")}},
            "spec": spec,
        });
        Ok(Self { kind, name: name.to_owned(), sources, value })
    }

    /// `Project/shop`
    pub fn label(&self) -> String {
        format!("{}/{}", self.kind.as_str(), self.name)
    }
}

/// A cluster that projects or grants refer to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WantedCluster {
    /// Our name.
    pub name: String,
    /// Rancher's.
    pub id: String,
    /// API groups beside the built-in ones that the imported roles name.
    #[serde(rename = "tenantAPIGroups")]
    pub tenant_api_groups: BTreeSet<String>,
}

/// Kinds of loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum What {
    /// A whole object was left out.
    Skipped,
    /// A part was left out.
    Dropped,
    /// A part gives or allows less than it did.
    Narrowed,
    /// A part gives more than it did; only where it was asked for.
    Widened,
    /// A name was changed.
    Renamed,
    /// Nothing is lost if somebody does something.
    Todo,
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Skipped => "skipped",
            Self::Dropped => "dropped",
            Self::Narrowed => "narrowed",
            Self::Widened => "WIDENED",
            Self::Renamed => "renamed",
            Self::Todo => "to do",
        })
    }
}

/// One difference between the export and what came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Loss {
    /// Which kind of difference.
    pub what: What,
    /// The Rancher object, `Project c-1/p-1`.
    pub source: String,
    /// Where it stands in the export.
    pub place: String,
    /// The field in it; empty for all of it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
    /// Our resource that it concerns, `Project/shop`; absent where none was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// What is different, and what to do.
    pub message: String,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.source)?;
        if !self.field.is_empty() {
            write!(f, ", {}", self.field)?;
        }
        write!(f, ": {}", self.message)
    }
}

/// Why nothing is printed at all.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The export cannot be read.
    #[error(transparent)]
    Input(#[from] InputError),
    /// A mapping of clusters that cannot be meant.
    #[error("--cluster {0}")]
    Cluster(String),
    /// More than can be handled.
    #[error("the export asks for more than {MAX_GRANTS} grants; import its clusters one by one")]
    TooMany,
    /// What came out breaks our own rules: never applied, always a fault of this program.
    #[error("the translation is not valid, which is a fault of this program; nothing is printed: {0}")]
    Invalid(String),
}

/// The losses so far.
#[derive(Debug, Default)]
struct Losses(Vec<Loss>);

impl Losses {
    /// Texts of the export are disarmed here: they end up on terminals and in comments of YAML.
    fn note(&mut self, what: What, source: &input::Source, field: &str, message: impl AsRef<str>) {
        self.0.push(Loss {
            what,
            source: disarmed(&source.to_string()),
            place: disarmed(&source.place),
            field: disarmed(field),
            resource: None,
            message: disarmed(message.as_ref()),
        });
    }
}

/// A text of the export as it may stand in a message: one line, bounded, without anything that drives a terminal.
fn disarmed(text: &str) -> String {
    output::disarmed(&text.chars().take(MAX_TEXT).collect::<String>())
}

/// A name for people, if the text can be made one; a loss where it had to be changed.
fn display_name(text: &str, source: &input::Source, field: &str, losses: &mut Losses) -> Option<String> {
    if text.is_empty() {
        return None;
    }
    let cleaned = cleaned_line(text, MAX_DISPLAY);
    if cleaned.as_deref() != Some(text) {
        let message = "the name for people loses characters that deceive the eye, or is cut at 128 characters";
        losses.note(What::Narrowed, source, field, message);
    }
    cleaned
}

/// Translates an export.
pub fn translate(documents: Vec<Document>, options: &Options) -> Result<Translation, Refused> {
    let mut losses = Losses::default();
    let export = input::read(documents, &mut losses)?;
    let clusters = cluster_names(&export, options, &mut losses)?;
    let mut projects = projects::translate(&export, &clusters, &mut losses);
    let made = bindings::translate(&export, &clusters, &mut projects, options.roles, &mut losses)?;
    let mut resources = made.before;
    for project in projects.values() {
        let sources = std::iter::once(&project.source).chain(&project.namespaces).map(|s| s.to_string()).collect();
        resources.push(Resource::new(ResourceKind::Project, &project.name, sources, &project.spec)?);
    }
    resources.extend(made.grants);
    verify::verify(&resources, &clusters)?;
    let on_clusters = resources.iter().filter(|resource| resource.value["spec"]["target"]["kind"] == "Cluster");
    let granted: Vec<&str> =
        on_clusters.filter_map(|resource| resource.value["spec"]["target"]["name"].as_str()).collect();
    let mut wanted = wanted_clusters(&clusters, &projects, &made.groups);
    wanted
        .retain(|at| granted.contains(&at.name.as_str()) || projects.values().any(|project| project.cluster == at.id));
    for WantedCluster { name, id, .. } in &wanted {
        let source = match export.clusters.get(id) {
            Some(cluster) => cluster.source.clone(),
            None => input::Source { place: String::new(), kind: "Cluster", id: id.clone() },
        };
        let message = format!("must be there as {name:?} before this is applied: bailiwick cluster import {name}");
        losses.note(What::Todo, &source, "", message);
    }
    let mut losses = losses.0;
    let mut by_source: BTreeMap<String, String> = BTreeMap::new();
    for resource in &resources {
        for source in &resource.sources {
            by_source.entry(disarmed(source)).or_insert_with(|| resource.label());
        }
    }
    for loss in &mut losses {
        loss.resource = by_source.get(&loss.source).cloned();
    }
    Ok(Translation { resources, losses, clusters: wanted })
}

/// Our names of the clusters, by Rancher's ids.
fn cluster_names(
    export: &input::Export,
    options: &Options,
    losses: &mut Losses,
) -> Result<BTreeMap<String, String>, Refused> {
    let mut found: BTreeMap<String, String> = BTreeMap::new();
    let ids = export.cluster_ids();
    for (id, name) in &options.clusters {
        if !ids.contains(id.as_str()) {
            let known = ids.iter().copied().collect::<Vec<_>>().join(", ");
            return Err(Refused::Cluster(format!("{id}={name}: the export has no cluster {id:?}; it has {known}")));
        }
        if let Err(why) = domain_names::check_label(name) {
            return Err(Refused::Cluster(format!("{id}={name}: the name {why}")));
        }
        if found.values().any(|other| other == name) {
            return Err(Refused::Cluster(format!("{id}={name}: two of Rancher's clusters cannot be one of ours")));
        }
        found.insert(id.clone(), name.clone());
    }
    let rest: Vec<&str> = ids.into_iter().filter(|id| !found.contains_key(*id)).collect();
    let wanted: Vec<names::Wanted<'_>> = rest
        .iter()
        .map(|id| {
            let called = export.clusters.get(*id).map_or("", |c| c.object.spec.display_name.as_str());
            names::Wanted { id, text: if called.is_empty() { id } else { called }, qualifier: "" }
        })
        .collect();
    let taken: Vec<String> = found.values().cloned().collect();
    let taken: Vec<&str> = taken.iter().map(String::as_str).collect();
    for (id, name) in rest.iter().zip(names::assign(&wanted, &taken, names::Grammar::Label)) {
        match export.clusters.get(*id) {
            Some(cluster) if cluster.object.spec.display_name != name => {
                let message = format!("is called {name:?} here; --cluster {id}=NAME gives it another name");
                losses.note(What::Renamed, &cluster.source, "spec.displayName", message);
            }
            Some(_) => {}
            None => {
                let source = input::Source { place: String::new(), kind: "Cluster", id: id.to_string() };
                let message =
                    format!("is not in the export and is called {name:?} here; --cluster {id}=NAME gives another name");
                losses.note(What::Renamed, &source, "", message);
            }
        }
        found.insert(id.to_string(), name);
    }
    Ok(found)
}

fn wanted_clusters(
    clusters: &BTreeMap<String, String>,
    projects: &BTreeMap<String, projects::Draft>,
    groups: &BTreeMap<String, BTreeSet<String>>,
) -> Vec<WantedCluster> {
    let wanted = clusters.iter().map(|(id, name)| {
        let here = projects.values().filter(|project| project.cluster == *id);
        let used = here.flat_map(|project| &project.spec.roles).filter_map(|role| groups.get(role)).flatten();
        let beyond = used.filter(|group| !rbac::BUILT_IN_GROUPS.contains(&group.as_str()));
        WantedCluster { name: name.clone(), id: id.clone(), tenant_api_groups: beyond.cloned().collect() }
    });
    wanted.collect()
}

#[cfg(test)]
#[path = "../../../fuzz/targets/import.rs"]
mod fuzz;
#[cfg(test)]
mod tests;
