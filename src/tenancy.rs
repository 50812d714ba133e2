//! Tenancy: which project owns which namespace, and how much of its quota each namespace has.
//!
//! Everything here is about the store; no cluster is asked. Two records carry it. A *claim* says who owns a namespace
//! and exists once per cluster and namespace, because the store creates a key only once. A *ledger* per project and
//! cluster holds the share of every namespace, and counts them; it is changed by compare-and-swap only, so that
//! parallel creations cannot oversubscribe.
//!
//! The two are changed one after the other, and any step may be the last before a crash:
//!
//! 1. the share is reserved and marked pending (a refusal ends here, nothing was written),
//! 2. the claim is created (a refusal gives the share back),
//! 3. the share is confirmed, by a write *after* the claim exists.
//!
//! A share is taken out of a ledger only by a compare-and-swap whose revision was read before the claim was found
//! absent. Either that write comes before step 3, which then finds the share missing and reserves again, or it comes
//! after and fails. So repair may run at any time. A claim without a share, which the moment between the two can
//! leave, is not acted upon: controllers create nothing before the ledger has the share.

mod create;
pub mod ledger;
mod moving;
pub mod names;
mod outcome;
mod projects;
mod reconcile;
mod release;
mod shares;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::domain::names::NameError;
use crate::index::Index;
use crate::records::Claim;
use crate::resources::project::ProjectCluster;
use crate::resources::{Cluster, Project};
use crate::store::{Key, Kind, Revision, Store, StoreError};

pub use ledger::Shortage;
pub use outcome::ActError;
pub use reconcile::Problem;

/// Most rounds of one compare-and-swap loop. Each lost round is another caller's progress, so that reaching this
/// number means something other than contention.
const ATTEMPTS: usize = 1000;

/// The claims and ledgers of all projects.
pub struct Tenancy {
    store: Arc<dyn Store>,
    index: Arc<Index>,
    // What the last reconciliation of each project could not do, by project name.
    problems: Mutex<HashMap<String, Vec<Problem>>>,
}

/// Why a namespace was not created, moved or given up.
#[derive(Debug, Clone, thiserror::Error)]
pub enum TenancyError {
    /// There is no such project.
    #[error("project {0:?} does not exist")]
    NoProject(String),
    /// The project is being deleted.
    #[error("project {0:?} is being deleted")]
    ProjectDeleting(String),
    /// The project does not live on the cluster.
    #[error(
        "project {project:?} has no place on cluster {cluster:?}; a platform administrator can add the cluster to its spec.clusters"
    )]
    NotOnCluster {
        /// Project.
        project: String,
        /// Cluster.
        cluster: String,
    },
    /// The cluster is not imported.
    #[error("cluster {0:?} does not exist")]
    NoCluster(String),
    /// The name is no namespace name.
    #[error("namespace {name:?} {why}")]
    BadName {
        /// The name.
        name: String,
        /// The rule.
        why: NameError,
    },
    /// The namespace belongs to the cluster itself.
    #[error("namespace {0:?} belongs to the cluster and cannot be a project's")]
    System(String),
    /// The project may not use the name.
    #[error("namespace {name:?} is not one that project {project:?} may create on cluster {cluster:?}: {allowed}")]
    NotAllowed {
        /// The name.
        name: String,
        /// Project.
        project: String,
        /// Cluster.
        cluster: String,
        /// Which names it may.
        allowed: String,
    },
    /// Somebody else has the name; who, is not said.
    #[error("namespace {namespace:?} on cluster {cluster:?} is not available; choose another name")]
    Taken {
        /// Cluster.
        cluster: String,
        /// Namespace.
        namespace: String,
    },
    /// The project has it already.
    #[error("namespace {namespace:?} on cluster {cluster:?} is already the project's")]
    AlreadyOwned {
        /// Cluster.
        cluster: String,
        /// Namespace.
        namespace: String,
    },
    /// The project has it and is giving it up.
    #[error("namespace {namespace:?} on cluster {cluster:?} is being deleted; try again when it is gone")]
    Releasing {
        /// Cluster.
        cluster: String,
        /// Namespace.
        namespace: String,
    },
    /// The project does not have it.
    #[error("project {project:?} has no namespace {namespace:?} on cluster {cluster:?}")]
    NotOwned {
        /// Project.
        project: String,
        /// Cluster.
        cluster: String,
        /// Namespace.
        namespace: String,
    },
    /// The Project's spec wants it.
    #[error(
        "namespace {namespace:?} on cluster {cluster:?} is declared by project {project:?}; remove it from spec.clusters of the project to delete it"
    )]
    Declared {
        /// Project.
        project: String,
        /// Cluster.
        cluster: String,
        /// Namespace.
        namespace: String,
    },
    /// No place is left.
    #[error(
        "project {project:?} already has the {max} namespaces that it may have on cluster {cluster:?}, declared ones included; a platform administrator can raise maxNamespaces"
    )]
    Full {
        /// Project.
        project: String,
        /// Cluster.
        cluster: String,
        /// Most it may have.
        max: u32,
    },
    /// The namespace's share does not fit into the project's quota.
    #[error(
        "namespace {namespace:?} does not fit into the quota of project {project:?} on cluster {cluster:?}: {shortage}; a platform administrator can raise the quota or lower other shares"
    )]
    Quota {
        /// Project.
        project: String,
        /// Cluster.
        cluster: String,
        /// Namespace.
        namespace: String,
        /// What is missing.
        shortage: Box<Shortage>,
    },
    /// A quota of the project is no quantity.
    #[error("the quota of project {project:?} on cluster {cluster:?} cannot be read: {why}")]
    BadQuota {
        /// Project.
        project: String,
        /// Cluster.
        cluster: String,
        /// Which value, and why.
        why: String,
    },
    /// A record is not what this version writes.
    #[error("{key} cannot be read: {why}")]
    Unreadable {
        /// Which.
        key: Key,
        /// Why.
        why: String,
    },
    /// A record changed under every attempt.
    #[error("{0} is changed too often; try again")]
    Contended(Key),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// An object as read for a compare-and-swap.
struct Read<T> {
    revision: Revision,
    object: T,
}

impl Tenancy {
    /// The tenancy of a store.
    pub fn new(store: Arc<dyn Store>, index: Arc<Index>) -> Self {
        Self { store, index, problems: Mutex::default() }
    }

    /// What the last reconciliation of a project could not do.
    pub fn problems(&self, project: &str) -> Vec<Problem> {
        self.problems.lock().get(project).cloned().unwrap_or_default()
    }

    async fn read<T: DeserializeOwned>(&self, key: &Key) -> Result<Option<Read<T>>, TenancyError> {
        let Some(entry) = self.store.get(key).await? else { return Ok(None) };
        let object = decode(&entry.key, &entry.value)?;
        Ok(Some(Read { revision: entry.revision, object }))
    }

    async fn claim(&self, cluster: &str, namespace: &str) -> Result<Option<Read<Claim>>, TenancyError> {
        self.read(&claim_key(cluster, namespace)).await
    }

    /// All claims that satisfy a condition, straight from the store.
    async fn claims_where(&self, wanted: impl Fn(&Claim) -> bool) -> Result<Vec<Read<Claim>>, TenancyError> {
        let (entries, _) = self.store.list(Kind::Claim).await?;
        let mut found = vec![];
        for entry in entries {
            let object: Claim = decode(&entry.key, &entry.value)?;
            if wanted(&object) {
                found.push(Read { revision: entry.revision, object });
            }
        }
        Ok(found)
    }

    /// The project, where it exists and is not being deleted.
    async fn living_project(&self, name: &str) -> Result<Owner, TenancyError> {
        let found = self.read::<Project>(&Key::new(Kind::Project, name)).await?;
        let project = found.ok_or_else(|| TenancyError::NoProject(name.to_owned()))?.object;
        if project.metadata.deletion_timestamp.is_some() {
            return Err(TenancyError::ProjectDeleting(name.to_owned()));
        }
        let uid = project.metadata.uid.clone().unwrap_or_default();
        Ok(Owner { name: name.to_owned(), uid, project })
    }

    /// UID of the Cluster resource.
    async fn cluster_uid(&self, name: &str) -> Result<String, TenancyError> {
        let found = self.read::<Cluster>(&Key::new(Kind::Cluster, name)).await?;
        let cluster = found.ok_or_else(|| TenancyError::NoCluster(name.to_owned()))?.object;
        Ok(cluster.metadata.uid.unwrap_or_default())
    }
}

/// A living project with what is needed of its metadata.
struct Owner {
    name: String,
    uid: String,
    project: Project,
}

impl Owner {
    fn place(&self, cluster: &str) -> Result<&ProjectCluster, TenancyError> {
        let missing = || TenancyError::NotOnCluster { project: self.name.clone(), cluster: cluster.to_owned() };
        self.project.spec.on(cluster).ok_or_else(missing)
    }
}

fn claim_key(cluster: &str, namespace: &str) -> Key {
    Key::new(Kind::Claim, Claim::key_name(cluster, namespace))
}

fn ledger_key(project: &str, cluster: &str) -> Key {
    Key::new(Kind::Ledger, format!("{project}/{cluster}"))
}

fn decode<T: DeserializeOwned>(key: &Key, value: &Bytes) -> Result<T, TenancyError> {
    serde_json::from_slice(value).map_err(|error| TenancyError::Unreadable { key: key.clone(), why: error.to_string() })
}

/// The types here serialize without fail: maps have string keys, and nothing else can go wrong.
fn encode<T: Serialize>(key: &Key, object: &T) -> Result<Bytes, TenancyError> {
    serde_json::to_vec(object)
        .map(Bytes::from)
        .map_err(|error| TenancyError::Unreadable { key: key.clone(), why: error.to_string() })
}

/// Hard limits of one namespace by ResourceQuota key, as canonical quantities.
pub type Share = BTreeMap<String, String>;
