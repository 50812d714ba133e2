//! Projects and their namespaces.

use std::collections::BTreeMap;

use super::input::{Entry, Export, Namespace, PROJECT_ID, Project, Source};
use super::quota::{self, Amounts};
use super::{Losses, What, display_name, names};
use crate::domain::names::{check_label, is_system_namespace};
use crate::resources::ProjectSpec;
use crate::resources::project::{Changes, NetworkIsolation, PodSecurity, PodSecurityLevel, ProjectCluster};

const NAMESPACE_QUOTA: &str = "field.cattle.io/resourceQuota";
const NAMESPACE_DEFAULTS: &str = "field.cattle.io/containerDefaultResourceLimit";
const SYSTEM: &str = "authz.management.cattle.io/system-project";
const DEFAULT: &str = "authz.management.cattle.io/default-project";
const ENFORCE: &str = "pod-security.kubernetes.io/enforce";
/// Most namespaces of a project on a cluster.
const MAX_NAMESPACES: usize = 1_000;

/// A project in the making.
#[derive(Debug, Clone)]
pub struct Draft {
    /// Our name.
    pub name: String,
    /// Rancher's id of its cluster.
    pub cluster: String,
    /// Where from.
    pub source: Source,
    /// Its namespaces, those left out included.
    pub namespaces: Vec<Source>,
    /// The spec so far.
    pub spec: ProjectSpec,
}

/// Translates the projects with their namespaces, by Rancher's `cluster:project`.
pub fn translate(export: &Export, clusters: &BTreeMap<String, String>, losses: &mut Losses) -> BTreeMap<String, Draft> {
    let mut kept: Vec<(&String, &Entry<Project>)> = vec![];
    for (id, project) in &export.projects {
        if labelled(project, SYSTEM) {
            let message = "Rancher's System project holds the cluster's own namespaces, which no project may have here";
            losses.note(What::Skipped, &project.source, "", message);
        } else if !clusters.contains_key(&project.object.spec.cluster_name) {
            losses.note(What::Skipped, &project.source, "spec.clusterName", "names no cluster");
        } else {
            kept.push((id, project));
        }
    }
    let wanted: Vec<names::Wanted<'_>> = kept
        .iter()
        .map(|(_, project)| {
            let Project { metadata, spec } = &project.object;
            let text = if spec.display_name.is_empty() { &metadata.name } else { &spec.display_name };
            let qualifier = clusters.get(&spec.cluster_name).map_or("", String::as_str);
            names::Wanted { id: &metadata.name, text, qualifier }
        })
        .collect();
    let mut namespaces = namespaces_of(export, losses);
    let mut drafts = BTreeMap::new();
    for ((id, project), name) in kept.into_iter().zip(names::assign(&wanted, &["me", "self"], names::Grammar::Label)) {
        let here = namespaces.remove(id.as_str()).unwrap_or_default();
        drafts.insert(id.clone(), draft(name, project, &here, clusters, losses));
    }
    for (id, here) in namespaces {
        let why = match export.projects.get(id) {
            Some(_) => "its project is Rancher's System project".to_owned(),
            None => format!("its project {id:?} is not in the export"),
        };
        for namespace in here {
            losses.note(What::Skipped, &namespace.source, &annotation(PROJECT_ID), &why);
        }
    }
    drafts
}

fn annotation(key: &str) -> String {
    format!("metadata.annotations[{key}]")
}

fn labelled(project: &Entry<Project>, label: &str) -> bool {
    project.object.metadata.labels.get(label).is_some_and(|value| value == "true")
}

/// A namespace and the project that it says it is in.
type Said<'a> = (&'a str, &'a Entry<Namespace>);

/// The namespaces by the project that they say they are in. One that says two things is in none.
fn namespaces_of<'a>(export: &'a Export, losses: &mut Losses) -> BTreeMap<&'a str, Vec<&'a Entry<Namespace>>> {
    let mut owners: BTreeMap<(&str, &str), Vec<Said<'_>>> = BTreeMap::new();
    for namespace in &export.namespaces {
        let metadata = &namespace.object.metadata;
        let Some(id) = metadata.annotations.get(PROJECT_ID).filter(|id| !id.is_empty()) else {
            losses.note(What::Skipped, &namespace.source, "", "is in no project; nobody gets it here");
            continue;
        };
        let Some((cluster, _)) = id.split_once(':') else {
            let message = format!("{id:?} is not of the form cluster:project");
            losses.note(What::Skipped, &namespace.source, &annotation(PROJECT_ID), message);
            continue;
        };
        owners.entry((cluster, &metadata.name)).or_default().push((id, namespace));
    }
    let mut found: BTreeMap<&str, Vec<&Entry<Namespace>>> = BTreeMap::new();
    for ((cluster, _), said) in owners {
        let Some((id, first)) = said.first().copied() else { continue };
        if said.iter().any(|(other, _)| *other != id) {
            let message = format!("stands in the export with more than one project on cluster {cluster:?}");
            losses.note(What::Skipped, &first.source, &annotation(PROJECT_ID), message);
            continue;
        }
        found.entry(id).or_default().push(first);
    }
    found
}

fn draft(
    name: String,
    project: &Entry<Project>,
    namespaces: &[&Entry<Namespace>],
    clusters: &BTreeMap<String, String>,
    losses: &mut Losses,
) -> Draft {
    let Entry { source, object: Project { metadata, spec } } = project;
    if name != spec.display_name {
        let message = format!("is called {name:?} here; the display name stays {:?}", spec.display_name);
        losses.note(What::Renamed, source, "spec.displayName", message);
    }
    if !spec.description.is_empty() {
        losses.note(What::Dropped, source, "spec.description", "projects have no description here");
    }
    if labelled(project, DEFAULT) {
        let message = "is an ordinary project here: what is created outside of any project does not land in it";
        losses.note(What::Dropped, source, &format!("metadata.labels[{DEFAULT}]"), message);
    }
    for other in metadata.annotations.keys().filter(|key| key.contains("networkpolicy")) {
        losses.note(
            What::Dropped,
            source,
            &annotation(other),
            "is not read; set spec.networkIsolation where it is wanted",
        );
    }
    let declared = declared(source, namespaces, losses);
    let quota = quota::limits(&spec.resource_quota.limit, source, "spec.resourceQuota.limit", losses);
    let shares = shares(project, &declared, &quota, losses);
    let field = "spec.containerDefaultResourceLimit";
    let container_defaults = quota::container_defaults(&spec.container_default_resource_limit, source, field, losses);
    for namespace in &declared {
        if namespace.object.metadata.annotations.get(NAMESPACE_DEFAULTS).is_some_and(|text| !is_empty_json(text)) {
            let message = "defaults of containers are the project's here; those of this namespace are left out";
            losses.note(What::Dropped, &namespace.source, &annotation(NAMESPACE_DEFAULTS), message);
        }
    }
    let pod_security = pod_security(&declared, losses);
    if !declared.is_empty() {
        let message = format!(
            "its namespaces exist ({}): each is adopted with the consent of its cluster's administrator by `bailiwick project adopt {name} CLUSTER/NAMESPACE`; Rancher's RoleBindings stay in force there until Rancher removes them",
            declared.len()
        );
        losses.note(What::Todo, source, "", message);
    }
    let place = ProjectCluster {
        cluster: clusters.get(&spec.cluster_name).cloned().unwrap_or_default(),
        namespaces: declared.iter().map(|namespace| namespace.object.metadata.name.clone()).collect(),
        prefix: None,
        max_namespaces: None,
        quota,
        shares,
        changes: Changes::Anyone,
        git: None,
    };
    let namespaces = namespaces.iter().map(|namespace| namespace.source.clone()).collect();
    let spec = ProjectSpec {
        display_name: display_name(&spec.display_name, source, "spec.displayName", losses),
        roles: vec![],
        clusters: vec![place],
        pod_security,
        network_isolation: NetworkIsolation::default(),
        container_defaults,
    };
    Draft { name, cluster: project.object.spec.cluster_name.clone(), source: source.clone(), namespaces, spec }
}

/// The namespaces that a project may have here.
fn declared<'a>(
    source: &Source,
    namespaces: &[&'a Entry<Namespace>],
    losses: &mut Losses,
) -> Vec<&'a Entry<Namespace>> {
    let mut declared = vec![];
    for namespace in namespaces {
        let name = namespace.object.metadata.name.as_str();
        let rancher = name.starts_with("cattle-") || name.starts_with("fleet-") || name == "local";
        let why = if is_system_namespace(name) {
            "belongs to the cluster itself and can be in no project".to_owned()
        } else if rancher {
            "belongs to Rancher and is left to it".to_owned()
        } else if let Err(why) = check_label(name) {
            format!("the name {why}")
        } else if declared.len() == MAX_NAMESPACES {
            format!("a project has at most {MAX_NAMESPACES} namespaces")
        } else {
            declared.push(*namespace);
            continue;
        };
        losses.note(What::Skipped, &namespace.source, "", format!("{why} (in {source})"));
    }
    declared
}

fn is_empty_json(text: &str) -> bool {
    matches!(text.trim(), "" | "{}" | "null")
}

/// The share that each namespace has: what its annotation says, else the project's default for namespaces.
fn shares(
    project: &Entry<Project>,
    namespaces: &[&Entry<Namespace>],
    quota: &Amounts,
    losses: &mut Losses,
) -> BTreeMap<String, Amounts> {
    let source = &project.source;
    let theirs = &project.object.spec.namespace_default_resource_quota.limit;
    let default = quota::limits(theirs, source, "spec.namespaceDefaultResourceQuota.limit", losses);
    if quota.is_empty() {
        return BTreeMap::new();
    }
    let mut wanted: BTreeMap<String, Amounts> = BTreeMap::new();
    for namespace in namespaces {
        let metadata = &namespace.object.metadata;
        let mut amounts = default.clone();
        if let Some(text) = metadata.annotations.get(NAMESPACE_QUOTA).filter(|text| !is_empty_json(text)) {
            let at = annotation(NAMESPACE_QUOTA);
            match quota::annotated(text) {
                None => losses.note(What::Dropped, &namespace.source, &at, "is no quota in JSON; the default counts"),
                Some(limit) => {
                    let own = quota::limits(&limit, &namespace.source, &at, losses);
                    // As in Rancher, only what the default names too.
                    amounts.extend(own.into_iter().filter(|(key, _)| default.contains_key(key)));
                }
            }
        }
        wanted.insert(metadata.name.clone(), amounts);
    }
    let (shares, equal) = quota::shares(quota, &wanted);
    if !wanted.is_empty() {
        for (key, why) in equal {
            let message = format!("{key}: {why}; each namespace gets an equal part of the limit");
            losses.note(What::Narrowed, source, "spec.resourceQuota", message);
        }
    }
    shares
}

/// One level for the project: the strictest that one of its namespaces has, and never below ours.
fn pod_security(namespaces: &[&Entry<Namespace>], losses: &mut Losses) -> PodSecurity {
    let level = |namespace: &Entry<Namespace>| match namespace.object.metadata.labels.get(ENFORCE)?.as_str() {
        "privileged" => Some(PodSecurityLevel::Privileged),
        "baseline" => Some(PodSecurityLevel::Baseline),
        "restricted" => Some(PodSecurityLevel::Restricted),
        _ => None,
    };
    let default = PodSecurity::default();
    let enforce = namespaces.iter().filter_map(|namespace| level(namespace)).fold(default.enforce, Ord::max);
    for namespace in namespaces {
        let labels = &namespace.object.metadata.labels;
        let had = level(namespace);
        let field = format!("metadata.labels[{ENFORCE}]");
        match (labels.get(ENFORCE), had) {
            (Some(text), None) => {
                losses.note(What::Dropped, &namespace.source, &field, format!("{text:?} is no Pod Security level"));
            }
            (_, had) if had != Some(enforce) => {
                let had = had.map_or("no level".to_owned(), |level| format!("level {}", level.as_str()));
                let message = format!(
                    "had {had}; the project enforces {} in all its namespaces, and Pods below it are refused",
                    enforce.as_str()
                );
                losses.note(What::Narrowed, &namespace.source, &field, message);
            }
            _ => {}
        }
        for key in labels.keys().filter(|key| key.starts_with("pod-security.kubernetes.io/") && *key != ENFORCE) {
            let message = "the project's own levels take its place";
            losses.note(What::Dropped, &namespace.source, &format!("metadata.labels[{key}]"), message);
        }
    }
    PodSecurity { enforce, ..default }
}
