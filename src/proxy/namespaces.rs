//! Namespaces by kubectl: made, deleted and labelled by those who have the right in a project.
//!
//! In the cluster nobody but housekeeping makes or deletes a project's namespace. A request to do so is therefore not
//! forwarded: it is read here whole, decided by the same rules as the act of our own API, and done by [`OwnNamespaces`]
//! through the claim. Changes of labels and annotations are forwarded, but only as what was read here: written anew, with
//! every key known to be one that members may set. The guards in the cluster judge them once more.

mod body;
mod metadata;
mod plan;
mod protobuf;
pub mod right;

use std::collections::BTreeMap;

use async_trait::async_trait;
use jiff::Timestamp;

pub use self::body::{Asked, Encoding, MAX_BODY, Options};
pub use self::plan::{Creation, Deletion, Plan, plan};
use crate::domain::request::{RequestInfo, Verb};
use crate::tenancy::ActError;

/// An act on a namespace that is not simply forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// POST to the collection.
    Create,
    /// DELETE of one.
    Delete,
    /// PUT or PATCH of one.
    Change,
}

/// Which act a request is, where it is one.
pub fn of(request: &RequestInfo) -> Option<Act> {
    let RequestInfo::Resource(r) = request else { return None };
    if !r.group.is_empty() || r.resource != "namespaces" {
        return None;
    }
    match r.verb {
        Verb::Create if r.namespace.is_empty() => Some(Act::Create),
        Verb::Delete => Some(Act::Delete),
        Verb::Update | Verb::Patch => Some(Act::Change),
        _ => None,
    }
}

/// A namespace that somebody wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewNamespace {
    /// Project that it is for.
    pub project: String,
    /// Cluster.
    pub cluster: String,
    /// Name.
    pub name: String,
    /// What it carries from the beginning, beside what is ours.
    pub metadata: GivenMetadata,
    /// Who wants it.
    pub by: String,
}

/// Labels and annotations that members give a namespace; every key is one that they may set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GivenMetadata {
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// Field manager that they are recorded under, so that the client knows them as its own.
    pub manager: String,
}

impl GivenMetadata {
    /// Whether there is nothing to set.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.annotations.is_empty()
    }
}

/// Makes and deletes the namespaces of projects, down to their effect in the cluster.
#[async_trait]
pub trait OwnNamespaces: Send + Sync + 'static {
    /// Whether [`OwnNamespaces::create`] would begin. Writes nothing.
    ///
    /// # Errors
    /// As [`OwnNamespaces::create`], as far as the store knows.
    async fn check(&self, wanted: &NewNamespace, now: Timestamp) -> Result<(), ActError>;

    /// Creates a namespace, and returns once its members have access, and quota and Pod Security are in force.
    ///
    /// # Errors
    /// [`ActError::Tenancy`] where the project may not have it; [`ActError::Refused`] where the cluster has a namespace of
    /// this name already; [`ActError::NotYet`] where the cluster takes too long.
    async fn create(&self, wanted: &NewNamespace, now: Timestamp) -> Result<(), ActError>;

    /// Gives a namespace up: nobody has access to it any more when this returns, and it is being deleted.
    ///
    /// # Errors
    /// [`ActError::Tenancy`] where the project does not have it, or declares it.
    async fn delete(&self, project: &str, cluster: &str, namespace: &str, by: &str) -> Result<(), ActError>;
}
