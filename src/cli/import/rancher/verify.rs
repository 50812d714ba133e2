//! Our own validation over everything that was made, as the service will do it.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::Value;

use super::{Refused, Resource};
use crate::domain::roles::RoleSpec;
use crate::resources::ProjectSpec;
use crate::resources::validation::{ClaimedNamespace, References, ResourceKind, validate};

/// Nothing else exists.
pub struct Alone;

impl References for Alone {
    fn now(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH
    }

    fn cluster_exists(&self, _: &str) -> bool {
        false
    }

    fn access_roles(&self) -> BTreeMap<String, RoleSpec> {
        BTreeMap::new()
    }

    fn project(&self, _: &str) -> Option<&ProjectSpec> {
        None
    }

    fn projects(&self) -> Vec<(&str, &ProjectSpec)> {
        vec![]
    }

    fn claims_on(&self, _: &str) -> Vec<ClaimedNamespace<'_>> {
        vec![]
    }

    fn is_reserved(&self, _: &str) -> bool {
        false
    }
}

/// What was made, and the clusters that it needs.
struct Together<'a> {
    clusters: BTreeSet<&'a str>,
    /// Without their rules: what is asked is whether they exist, and imported ones inherit nothing.
    roles: BTreeMap<String, RoleSpec>,
    projects: BTreeMap<&'a str, ProjectSpec>,
}

impl References for Together<'_> {
    fn now(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH
    }

    fn cluster_exists(&self, name: &str) -> bool {
        self.clusters.contains(name)
    }

    fn access_roles(&self) -> BTreeMap<String, RoleSpec> {
        self.roles.clone()
    }

    fn project(&self, name: &str) -> Option<&ProjectSpec> {
        self.projects.get(name)
    }

    fn projects(&self) -> Vec<(&str, &ProjectSpec)> {
        self.projects.iter().map(|(name, spec)| (*name, spec)).collect()
    }

    fn claims_on(&self, _: &str) -> Vec<ClaimedNamespace<'_>> {
        vec![]
    }

    fn is_reserved(&self, _: &str) -> bool {
        false
    }
}

/// Validates each resource beside all others, as if all were created at once.
pub fn verify(resources: &[Resource], clusters: &BTreeMap<String, String>) -> Result<(), Refused> {
    let mut together = Together {
        clusters: clusters.values().map(String::as_str).collect(),
        roles: BTreeMap::new(),
        projects: BTreeMap::new(),
    };
    let mut seen = BTreeSet::new();
    for resource in resources {
        if !seen.insert((resource.kind, resource.name.as_str())) {
            return Err(Refused::Invalid(format!("{} was made twice", resource.label())));
        }
        match resource.kind {
            ResourceKind::AccessRole => drop(together.roles.insert(resource.name.clone(), RoleSpec::default())),
            ResourceKind::Project => drop(together.projects.insert(&resource.name, spec_of(&resource.value)?)),
            _ => {}
        }
    }
    for resource in resources {
        validate(resource.kind, None, &resource.value, &together).map_err(|causes| {
            let first = causes.first().map_or(String::new(), |cause| format!("{}: {}", cause.field, cause.message));
            Refused::Invalid(format!("{}: {first}", resource.label()))
        })?;
    }
    Ok(())
}

fn spec_of(value: &Value) -> Result<ProjectSpec, Refused> {
    serde_json::from_value(value["spec"].clone()).map_err(|e| Refused::Invalid(e.to_string()))
}
