//! `Project`.

use std::collections::BTreeMap;

use super::{Causes, References, text};
use crate::domain::quantity::{Quantity, Unit, check_quota};
use crate::domain::{names, roles};
use crate::resources::ProjectSpec;
use crate::resources::project::{Changes, ContainerDefaults, GitSource, ProjectCluster};

const MAX_CLUSTERS: usize = 500;
const MAX_NAMESPACES: usize = 1_000;
const MAX_ROLES: usize = 50;
const MAX_QUOTA_KEYS: usize = 100;
/// Longest name of a repository, and longest path in it, in characters.
const MAX_GIT: usize = 256;
/// Longest prefix: what is left of 63 characters must be worth a name.
const MAX_PREFIX: usize = 40;
/// What a LimitRange may set for containers.
const CONTAINER_KEYS: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

/// The project as it is stored now.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredProject<'a> {
    /// Its UID.
    pub uid: &'a str,
    /// Its spec, where it can be read.
    pub spec: Option<ProjectSpec>,
}

/// Checks the spec of a project of this name.
pub fn validate_project(
    name: &str,
    old: Option<&StoredProject<'_>>,
    spec: &ProjectSpec,
    refs: &dyn References,
    causes: &mut Causes,
) {
    let ProjectSpec { display_name, roles, clusters, pod_security: _, network_isolation: _, container_defaults } = spec;
    text::line("spec.displayName", display_name.as_deref(), text::MAX_DISPLAY, causes);
    if old.is_none() && refs.is_reserved(name) {
        let message = "a project of this name was deleted and is not cleaned up on every cluster yet";
        causes.forbidden("metadata.name", message);
    }
    check_roles(roles, refs, causes);
    if let Some(defaults) = container_defaults {
        check_defaults(defaults, causes);
    }
    if !causes.bounded("spec.clusters", clusters.len(), MAX_CLUSTERS) {
        return;
    }
    for (at, cluster) in clusters.iter().enumerate() {
        if clusters[..at].iter().any(|earlier| earlier.cluster == cluster.cluster) {
            causes.duplicate(format!("spec.clusters[{at}].cluster"), &cluster.cluster);
        }
        let before = old.and_then(|old| old.spec.as_ref()).and_then(|spec| spec.on(&cluster.cluster));
        let place = Place { field: format!("spec.clusters[{at}]"), project: name, old, before, refs };
        place.check(cluster, causes);
    }
}

fn check_roles(used: &[String], refs: &dyn References, causes: &mut Causes) {
    if !causes.bounded("spec.roles", used.len(), MAX_ROLES) || used.is_empty() {
        return;
    }
    let known = refs.access_roles();
    for (at, role) in used.iter().enumerate() {
        let field = format!("spec.roles[{at}]");
        if roles::BUILT_IN.contains(&role.as_str()) {
            causes.invalid(field, format!("{role} is in every project; leave it out"));
        } else if !known.contains_key(role) {
            causes.not_found(field, format!("AccessRole {:?} does not exist", text::shown(role)));
        }
    }
    text::distinct("spec.roles", used.iter().map(String::as_str), causes);
}

fn check_defaults(defaults: &ContainerDefaults, causes: &mut Causes) {
    let ContainerDefaults { requests, limits } = defaults;
    let mut read = |list: &str, values: &BTreeMap<String, String>| -> BTreeMap<String, Quantity> {
        let mut amounts = BTreeMap::new();
        for (key, value) in values {
            let field = format!("spec.containerDefaults.{list}[{}]", text::shown(key));
            if !CONTAINER_KEYS.contains(&key.as_str()) {
                causes.invalid(field, "only cpu, memory and ephemeral-storage can have defaults");
                continue;
            }
            let unit = if key == "cpu" { Unit::Milli } else { Unit::One };
            match value.parse::<Quantity>() {
                Err(error) => causes.invalid(field, error.to_string()),
                Ok(amount) if amount.is_negative() => causes.invalid(field, "must not be negative"),
                Ok(amount) if !amount.is_multiple_of(unit) => {
                    causes
                        .invalid(field, if key == "cpu" { "must not be finer than 1m" } else { "must be whole bytes" });
                }
                Ok(amount) => {
                    amounts.insert(key.clone(), amount);
                }
            }
        }
        amounts
    };
    let requests = read("requests", requests);
    let limits = read("limits", limits);
    for (key, request) in &requests {
        if limits.get(key).is_some_and(|limit| request > limit) {
            causes.invalid(
                format!("spec.containerDefaults.requests[{key}]"),
                format!("must not exceed the default limit, {}", limits[key]),
            );
        }
    }
}

/// A project's place on one cluster, while it is being checked.
struct Place<'a> {
    field: String,
    project: &'a str,
    old: Option<&'a StoredProject<'a>>,
    before: Option<&'a ProjectCluster>,
    refs: &'a dyn References,
}

impl Place<'_> {
    fn at(&self, below: &str) -> String {
        format!("{}.{below}", self.field)
    }

    fn check(&self, place: &ProjectCluster, causes: &mut Causes) {
        let ProjectCluster { cluster, namespaces, prefix, max_namespaces, changes, git, quota, shares } = place;
        if text::label(&self.at("cluster"), cluster, causes)
            && self.before.is_none()
            && !self.refs.cluster_exists(cluster)
        {
            causes.not_found(self.at("cluster"), format!("Cluster {cluster:?} does not exist"));
        }
        self.check_namespaces(namespaces, *max_namespaces, causes);
        if let Some(prefix) = prefix
            && check_prefix(&self.at("prefix"), prefix, causes)
        {
            self.check_prefix_is_free(cluster, prefix, causes);
        }
        self.check_namespaces_are_free(cluster, namespaces, causes);
        self.check_git(*changes, git.as_ref(), causes);
        if causes.bounded(&self.at("quota"), quota.len(), MAX_QUOTA_KEYS) {
            for (key, amount) in quota {
                if let Err(error) = check_quota(key, amount) {
                    causes.invalid(self.at(&format!("quota[{}]", text::shown(key))), error.to_string());
                }
            }
            self.check_shares(place, shares, causes);
        }
    }

    fn check_git(&self, changes: Changes, git: Option<&GitSource>, causes: &mut Causes) {
        let field = self.at("git");
        match (changes, git) {
            (Changes::Anyone, None) => {}
            (Changes::Anyone, Some(_)) => causes.invalid(field, "has a meaning with changes: git only"),
            (Changes::Git, None) => {
                causes.required(field, "must say where to change things instead: repository and path");
            }
            (Changes::Git, Some(GitSource { repository, path })) => {
                for (name, value) in [("repository", repository), ("path", path)] {
                    text::line(&format!("{field}.{name}"), Some(value), MAX_GIT, causes);
                }
                let authority =
                    repository.split_once("://").map_or("", |(_, rest)| rest.split('/').next().unwrap_or(""));
                if authority.rsplit_once('@').is_some_and(|(user, _)| user.contains(':')) {
                    causes.invalid(format!("{field}.repository"), "must not contain a password");
                }
            }
        }
    }

    fn check_namespaces(&self, namespaces: &[String], most: Option<u32>, causes: &mut Causes) {
        let field = self.at("namespaces");
        if !causes.bounded(&field, namespaces.len(), MAX_NAMESPACES) {
            return;
        }
        for (at, namespace) in namespaces.iter().enumerate() {
            text::namespace(&format!("{field}[{at}]"), namespace, causes);
        }
        text::distinct(&field, namespaces.iter().map(String::as_str), causes);
        let Some(most) = most else { return };
        if most == 0 || most as usize > MAX_NAMESPACES {
            causes.invalid(self.at("maxNamespaces"), format!("must be from 1 to {MAX_NAMESPACES}"));
        } else if namespaces.len() > most as usize {
            causes.too_many(field, most as usize);
        }
    }

    /// The other projects' places on this cluster, with the projects' names.
    fn neighbours(&self, cluster: &str) -> impl Iterator<Item = (&str, &ProjectCluster)> {
        let others = self.refs.projects().into_iter().filter(|(name, _)| *name != self.project);
        let cluster = cluster.to_owned();
        others
            .flat_map(|(name, spec)| spec.clusters.iter().map(move |place| (name, place)))
            .filter(move |(_, place)| place.cluster == cluster)
    }

    /// Whether a claim is this very project's, not one of a project that had the name before.
    fn owns(&self, claim: &super::ClaimedNamespace<'_>) -> bool {
        claim.project == self.project && self.old.is_some_and(|old| old.uid == claim.project_uid)
    }

    fn check_prefix_is_free(&self, cluster: &str, prefix: &str, causes: &mut Causes) {
        let field = self.at("prefix");
        for (other, place) in self.neighbours(cluster) {
            if let Some(theirs) = &place.prefix
                && (theirs.starts_with(prefix) || prefix.starts_with(theirs.as_str()))
            {
                causes.invalid(&*field, format!("overlaps with the prefix {theirs:?} of project {other:?}"));
            }
            if let Some(theirs) = place.namespaces.iter().find(|theirs| theirs.starts_with(prefix)) {
                causes.invalid(&*field, format!("covers the namespace {theirs:?} of project {other:?}"));
            }
        }
        // A namespace that was moved away keeps its name; it stands in the way of a new prefix only.
        if self.before.is_none_or(|before| before.prefix.as_deref() != Some(prefix)) {
            let claims = self.refs.claims_on(cluster);
            let taken = claims.iter().find(|claim| claim.namespace.starts_with(prefix) && !self.owns(claim));
            if let Some(claim) = taken {
                let message = format!("covers the namespace {:?} of project {:?}", claim.namespace, claim.project);
                causes.invalid(field, message);
            }
        }
    }

    fn check_namespaces_are_free(&self, cluster: &str, namespaces: &[String], causes: &mut Causes) {
        if namespaces.is_empty() {
            return;
        }
        let claims = self.refs.claims_on(cluster);
        for (at, namespace) in namespaces.iter().enumerate() {
            let field = self.at(&format!("namespaces[{at}]"));
            for (other, place) in self.neighbours(cluster) {
                if place.namespaces.contains(namespace) {
                    causes.invalid(&*field, format!("is declared by project {other:?}"));
                } else if let Some(theirs) = place.prefix.as_deref().filter(|theirs| namespace.starts_with(theirs)) {
                    causes.invalid(&*field, format!("begins with the prefix {theirs:?} of project {other:?}"));
                }
            }
            let foreign = claims.iter().find(|claim| claim.namespace == namespace && !self.owns(claim));
            if let Some(claim) = foreign {
                causes.invalid(&*field, format!("belongs to project {:?}", claim.project));
            }
        }
    }

    fn check_shares(
        &self,
        place: &ProjectCluster,
        shares: &BTreeMap<String, BTreeMap<String, String>>,
        causes: &mut Causes,
    ) {
        if !causes.bounded(&self.at("shares"), shares.len(), MAX_NAMESPACES) {
            return;
        }
        let mut sums: BTreeMap<&str, Quantity> = BTreeMap::new();
        for (namespace, amounts) in shares {
            let field = self.at(&format!("shares[{}]", text::shown(namespace)));
            if !text::namespace(&field, namespace, causes) {
                continue;
            }
            if !self.is_ours(place, namespace) {
                causes.not_found(
                    &*field,
                    "is no namespace of this project: neither declared, under its prefix nor its own",
                );
            }
            for (key, amount) in amounts {
                let field = format!("{field}[{}]", text::shown(key));
                if !place.quota.contains_key(key) {
                    causes.not_found(field, "is no key of the quota");
                    continue;
                }
                let sum = sums.entry(key.as_str()).or_insert(Quantity::ZERO);
                match check_quota(key, amount) {
                    Err(error) => causes.invalid(field, error.to_string()),
                    Ok(amount) => match sum.checked_add(amount) {
                        Ok(total) => *sum = total,
                        Err(error) => causes.invalid(field, error.to_string()),
                    },
                }
            }
        }
        for (key, sum) in sums {
            let limit = place.quota.get(key).and_then(|limit| check_quota(key, limit).ok());
            if let Some(limit) = limit
                && sum > limit
            {
                causes.invalid(self.at("shares"), format!("{key} adds up to {sum}, above the quota of {limit}"));
            }
        }
    }

    fn is_ours(&self, place: &ProjectCluster, namespace: &str) -> bool {
        place.declares(namespace)
            || place.prefix.as_deref().is_some_and(|prefix| namespace.starts_with(prefix))
            || self.refs.claims_on(&place.cluster).iter().any(|c| c.namespace == namespace && self.owns(c))
    }
}

fn check_prefix(field: &str, prefix: &str, causes: &mut Causes) -> bool {
    let stem = prefix.strip_suffix('-').unwrap_or_default();
    if prefix.len() > MAX_PREFIX || names::check_label(stem).is_err() {
        causes.invalid(
            field,
            format!("must be lower-case letters, digits and '-', start with a letter or digit, end with '-', and have at most {MAX_PREFIX} characters"),
        );
        return false;
    }
    if prefix == "kube-" || prefix.starts_with("kube-") || "bailiwick-system".starts_with(prefix) {
        causes.forbidden(field, "covers namespaces of the cluster itself");
        return false;
    }
    true
}
