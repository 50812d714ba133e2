//! The store: where desired state, claims and sealed records live.
//!
//! One trait, several engines. Nothing outside this module knows which engine runs, and one conformance suite
//! (`store::conformance`) judges all of them. The model is that of etcd and Kubernetes: one global counter is the
//! revision of every change, compare-and-swap is on single objects only, and a watch replays every change after a
//! revision in order.

pub mod anchor;
#[doc(hidden)]
pub mod conformance;
pub mod lock;
pub mod sealed;
pub mod sqlite;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use serde::{Deserialize, Serialize};

/// A point in the history of the store: the value of the global counter after a change. Opaque to API callers, who
/// know it as `resourceVersion`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Revision(pub u64);

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What kind of thing a key names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// Resource `Cluster`.
    Cluster,
    /// Resource `User`.
    User,
    /// Resource `Team`.
    Team,
    /// Resource `AccessRole`.
    AccessRole,
    /// Resource `Grant`.
    Grant,
    /// Resource `Project`.
    Project,
    /// Record: which project owns a namespace. Name: `<cluster>/<namespace>`.
    Claim,
    /// Record: shares of a project's quota on a cluster. Name: `<project>/<cluster>`.
    Ledger,
    /// Record: when a token was last used. Name: the token's id.
    TokenUse,
    /// Record: a project's name that is reserved until its clusters are clean. Name: the project's.
    Reservation,
    /// Sealed: password hash, epoch and suspension of an account. Name: the user's.
    Account,
    /// Sealed: a token's hash, owner, audience and scopes. Name: the token's id.
    Token,
    /// Sealed: the two accounts' tokens of a cluster. Name: the cluster's.
    ClusterCredential,
    /// Sealed: facts of this installation (global epoch, CA key). Name: the fact's.
    Platform,
}

impl Kind {
    /// All kinds, in the order in which the index loads them.
    pub const ALL: [Kind; 14] = [
        Kind::Platform,
        Kind::Cluster,
        Kind::User,
        Kind::Account,
        Kind::Team,
        Kind::AccessRole,
        Kind::Project,
        Kind::Reservation,
        Kind::Ledger,
        Kind::Claim,
        Kind::Grant,
        Kind::Token,
        Kind::TokenUse,
        Kind::ClusterCredential,
    ];

    /// Name in the store.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Cluster => "Cluster",
            Kind::User => "User",
            Kind::Team => "Team",
            Kind::AccessRole => "AccessRole",
            Kind::Grant => "Grant",
            Kind::Project => "Project",
            Kind::Claim => "Claim",
            Kind::Ledger => "Ledger",
            Kind::TokenUse => "TokenUse",
            Kind::Reservation => "Reservation",
            Kind::Account => "Account",
            Kind::Token => "Token",
            Kind::ClusterCredential => "ClusterCredential",
            Kind::Platform => "Platform",
        }
    }

    /// The kind of a name in the store.
    pub fn parse(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.as_str() == name)
    }

    /// Whether values of this kind are sealed: ciphertext that no API returns.
    pub fn is_sealed(self) -> bool {
        matches!(self, Kind::Account | Kind::Token | Kind::ClusterCredential | Kind::Platform)
    }
}

/// Name of the sealed record of kind [`Kind::Platform`] that holds the installation's epoch.
pub const EPOCH: &str = "epoch";

/// Names one object of the store.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// What kind of thing.
    pub kind: Kind,
    /// Its name within the kind.
    pub name: Arc<str>,
}

impl Key {
    /// A key.
    pub fn new(kind: Kind, name: impl Into<Arc<str>>) -> Self {
        Self { kind, name: name.into() }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.kind.as_str(), self.name)
    }
}

/// An object as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its key.
    pub key: Key,
    /// Revision of its last change.
    pub revision: Revision,
    /// JSON, or a sealed record.
    pub value: Bytes,
}

/// One change, in the order of the history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The object was created or changed.
    Put {
        /// The object after the change.
        entry: Entry,
        /// Whether it did not exist before.
        created: bool,
    },
    /// The object was deleted.
    Delete {
        /// Which.
        key: Key,
        /// Revision of the deletion.
        revision: Revision,
        /// Its last value.
        previous: Bytes,
    },
}

impl Event {
    /// Revision of the change.
    pub fn revision(&self) -> Revision {
        match self {
            Event::Put { entry, .. } => entry.revision,
            Event::Delete { revision, .. } => *revision,
        }
    }

    /// What changed.
    pub fn key(&self) -> &Key {
        match self {
            Event::Put { entry, .. } => &entry.key,
            Event::Delete { key, .. } => key,
        }
    }
}

/// Why the store did not do what was asked. After any of these nothing was changed, except after
/// [`StoreError::Unavailable`], when the outcome of a write is unknown.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// Create: the key is taken.
    #[error("{0} already exists")]
    AlreadyExists(Key),
    /// Update, delete: the key names nothing.
    #[error("{0} does not exist")]
    NotFound(Key),
    /// Update, delete: somebody was faster.
    #[error("{key} was changed at revision {current}, after the expected {expected}")]
    Conflict {
        /// Which object.
        key: Key,
        /// Revision the caller had read.
        expected: Revision,
        /// Revision found.
        current: Revision,
    },
    /// Watch: the history no longer reaches back that far; list again.
    #[error("the history before revision {oldest} is compacted; {asked} was asked for")]
    Compacted {
        /// Revision asked for.
        asked: Revision,
        /// Oldest revision a watch can start from.
        oldest: Revision,
    },
    /// Watch: no such revision was ever written; list again.
    #[error("revision {asked} is in the future; the newest is {newest}")]
    Future {
        /// Revision asked for.
        asked: Revision,
        /// Newest revision.
        newest: Revision,
    },
    /// The engine failed.
    #[error("the store is not available: {0}")]
    Unavailable(String),
}

/// How current the store's answers are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    /// Reads see every acknowledged write.
    Fresh,
    /// The engine has lost contact; decisions must be refused.
    Stale,
}

/// Changes after a revision, without end. An error ends the stream.
pub type Events = BoxStream<'static, Result<Event, StoreError>>;

/// The store.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Reads one object.
    async fn get(&self, key: &Key) -> Result<Option<Entry>, StoreError>;
    /// Reads all objects of a kind, sorted by name, and the revision at which this was the whole truth.
    async fn list(&self, kind: Kind) -> Result<(Vec<Entry>, Revision), StoreError>;
    /// Creates an object. Acknowledged writes survive a crash of the process and of the machine.
    async fn create(&self, key: Key, value: Bytes) -> Result<Revision, StoreError>;
    /// Replaces an object that has not changed since `expected`.
    async fn update(&self, key: Key, expected: Revision, value: Bytes) -> Result<Revision, StoreError>;
    /// Deletes an object that has not changed since `expected`.
    async fn delete(&self, key: Key, expected: Revision) -> Result<Revision, StoreError>;
    /// All changes after `from`, of all kinds, in order, without gaps. Fails with [`StoreError::Compacted`] where the
    /// history no longer reaches back to `from` (the stream too, where its reader falls that far behind), and with
    /// [`StoreError::Future`] where `from` was never written.
    async fn watch(&self, from: Revision) -> Result<Events, StoreError>;
    /// The newest revision.
    async fn revision(&self) -> Result<Revision, StoreError>;
    /// Whether decisions may rest on this store now.
    fn freshness(&self) -> Freshness;
    /// Returns once every change up to `revision` is there for watches of this store to take: whoever polls one now
    /// gets it without waiting for the engine. Waits for revisions that are yet to come.
    async fn barrier(&self, revision: Revision) -> Result<(), StoreError>;
}
