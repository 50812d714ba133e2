//! What a resource must satisfy before it is stored, beyond its schema.
//!
//! Every rule names the exact field that breaks it. The rules need to see other objects (roles, projects, claims);
//! they ask through [`References`], so that they can be tested without a store. Two writers may each be valid and
//! contradict one another together (two projects taking one prefix): whoever writes projects must do so one at a time,
//! or validate again against what was stored meanwhile.

mod access_role;
mod accounts;
mod cluster;
mod decode;
mod grant;
mod metadata;
mod project;
mod text;

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{AccessRoleSpec, ClusterSpec, GrantSpec, ProjectSpec, TeamSpec, UserSpec};
use crate::domain::roles::RoleSpec;

pub use access_role::validate_access_role;
pub use accounts::{validate_team, validate_user};
pub use cluster::validate_cluster;
pub use grant::validate_grant;
pub use project::validate_project;
pub use text::{cleaned_line, is_deceptive};

/// Most bytes of a spec, as JSON.
pub const MAX_SPEC: usize = 256 * 1024;

/// The kinds that people write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ResourceKind {
    /// `Cluster`
    Cluster,
    /// `User`
    User,
    /// `Team`
    Team,
    /// `AccessRole`
    AccessRole,
    /// `Grant`
    Grant,
    /// `Project`
    Project,
}

impl ResourceKind {
    /// All of them.
    pub const ALL: [ResourceKind; 6] =
        [Self::Cluster, Self::User, Self::Team, Self::AccessRole, Self::Grant, Self::Project];

    /// The value of the field `kind`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cluster => "Cluster",
            Self::User => "User",
            Self::Team => "Team",
            Self::AccessRole => "AccessRole",
            Self::Grant => "Grant",
            Self::Project => "Project",
        }
    }
}

/// One wrong field, as a cause in the details of a Kubernetes `Status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cause {
    /// `FieldValueInvalid`, `FieldValueRequired`, …
    pub reason: String,
    /// What is wrong.
    pub message: String,
    /// Path, `spec.clusters[0].prefix`.
    pub field: String,
}

/// What validation has to know of everything else.
pub trait References {
    /// The time against which expiries are checked.
    fn now(&self) -> Timestamp;
    /// Whether a Cluster of this name exists.
    fn cluster_exists(&self, name: &str) -> bool;
    /// Every AccessRole.
    fn access_roles(&self) -> BTreeMap<String, RoleSpec>;
    /// One project.
    fn project(&self, name: &str) -> Option<&ProjectSpec>;
    /// Every project, with its name.
    fn projects(&self) -> Vec<(&str, &ProjectSpec)>;
    /// Every namespace of a cluster that a project has claimed.
    fn claims_on(&self, cluster: &str) -> Vec<ClaimedNamespace<'_>>;
    /// Whether a project of this name was deleted and is not cleaned up everywhere.
    fn is_reserved(&self, project: &str) -> bool;
}

/// A namespace and who owns it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClaimedNamespace<'a> {
    /// Name of the namespace.
    pub namespace: &'a str,
    /// Name of the owning project.
    pub project: &'a str,
    /// UID of the owning project.
    pub project_uid: &'a str,
}

/// Checks an object that somebody wants to store. `old` is what is stored now, absent at creation.
///
/// The status belongs to the service: before asking, the caller puts the stored status in place of the one that was
/// sent; a status that differs from the stored one is refused. Kinds that people cannot write are refused as a whole.
pub fn validate(
    kind: impl Into<Option<ResourceKind>>,
    old: Option<&Value>,
    new: &Value,
    refs: &dyn References,
) -> Result<(), Vec<Cause>> {
    let mut causes = Causes::default();
    let Some(kind) = kind.into() else {
        causes.forbidden("kind", "objects of this kind are made by the service and cannot be written");
        return causes.finish();
    };
    metadata::check(kind, old, new, &mut causes);
    // What does not have its type cannot be judged further.
    match kind {
        ResourceKind::Cluster => {
            if let Some(spec) = decode::spec::<ClusterSpec>(new, &mut causes) {
                validate_cluster(&spec, &mut causes);
            }
        }
        ResourceKind::User => {
            if let Some(spec) = decode::spec::<UserSpec>(new, &mut causes) {
                validate_user(&spec, &mut causes);
            }
        }
        ResourceKind::Team => {
            if let Some(spec) = decode::spec::<TeamSpec>(new, &mut causes) {
                validate_team(&spec, &mut causes);
            }
        }
        ResourceKind::AccessRole => {
            if let Some(spec) = decode::spec::<AccessRoleSpec>(new, &mut causes) {
                validate_access_role(metadata::name(new), &spec, refs, &mut causes);
            }
        }
        ResourceKind::Grant => {
            if let Some(spec) = decode::spec::<GrantSpec>(new, &mut causes) {
                validate_grant(decode::stored_spec(old), &spec, refs, &mut causes);
            }
        }
        ResourceKind::Project => {
            if let Some(spec) = decode::spec::<ProjectSpec>(new, &mut causes) {
                let stored = old.map(|old| project::StoredProject {
                    uid: metadata::uid(old),
                    spec: decode::stored_spec::<ProjectSpec>(Some(old)).and_then(Result::ok),
                });
                validate_project(metadata::name(new), stored.as_ref(), &spec, refs, &mut causes);
            }
        }
    }
    causes.finish()
}

pub use project::StoredProject;

/// The causes found so far. Bounded, so that a hostile object cannot make an endless answer.
#[derive(Debug, Default)]
pub struct Causes(Vec<Cause>);

const MOST_CAUSES: usize = 50;

impl Causes {
    fn push(&mut self, reason: &str, field: impl Into<String>, message: impl Into<String>) {
        if self.0.len() < MOST_CAUSES {
            self.0.push(Cause { reason: reason.to_owned(), message: message.into(), field: field.into() });
        }
    }

    /// A value that breaks a rule.
    pub fn invalid(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.push("FieldValueInvalid", field, message);
    }

    /// A value that is missing.
    pub fn required(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.push("FieldValueRequired", field, message);
    }

    /// A value that stands there twice.
    pub fn duplicate(&mut self, field: impl Into<String>, value: &str) {
        self.push("FieldValueDuplicate", field, format!("{:?} stands here twice", text::shown(value)));
    }

    /// A value that may not stand there at all.
    pub fn forbidden(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.push("FieldValueForbidden", field, message);
    }

    /// A name of nothing.
    pub fn not_found(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.push("FieldValueNotFound", field, message);
    }

    /// Too much of something.
    pub fn too_many(&mut self, field: impl Into<String>, most: usize) {
        self.push("FieldValueTooMany", field, format!("must have at most {most} items"));
    }

    /// A list with more than `most` items is reported, and `false` returned: its items are not worth looking at.
    fn bounded(&mut self, field: &str, length: usize, most: usize) -> bool {
        if length > most {
            self.too_many(field, most);
        }
        length <= most
    }

    /// All, or success where there is none.
    pub fn finish(self) -> Result<(), Vec<Cause>> {
        if self.0.is_empty() { Ok(()) } else { Err(self.0) }
    }
}

#[cfg(test)]
mod tests;
