//! What the workers of all clusters share with the status writer and with the API's acts.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::RwLock;
use tokio::sync::watch;

use super::contest::{Contest, Pace};
use super::refused::Refused;
use crate::index::Index;
use crate::metrics::Metrics;
use crate::resources::project::AdoptionReport;
use crate::store::{Revision, Store};
use crate::tenancy::Tenancy;

/// How far a claimed namespace has come in its cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Everything stands.
    Ready,
    /// Being brought about, or tried again.
    Pending,
    /// It will not be: somebody has to decide something first.
    Refused,
    /// It is on its way out.
    Terminating,
}

impl Phase {
    /// As it stands in the status of a project.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "Ready",
            Self::Pending => "Pending",
            Self::Refused => "Refused",
            Self::Terminating => "Terminating",
        }
    }
}

/// What was last seen and done for a claimed namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespaceState {
    /// Project it was done for.
    pub project_uid: String,
    /// Revision of the claim that it was done from.
    pub claim: Revision,
    /// How far it has come.
    pub phase: Phase,
    /// What stands in the way.
    pub message: String,
    /// Hard limits as the cluster enforces them.
    pub hard: BTreeMap<String, String>,
    /// Use against them as the cluster counts it.
    pub used: BTreeMap<String, String>,
    /// Objects of ours that somebody else keeps changing.
    pub contested: Vec<Contest>,
    /// What adopting it would mean, where the cluster's administrator lets the project do that.
    pub adoption: Option<AdoptionReport>,
    /// Where the project is isolated: NetworkPolicies of others that let more through.
    pub opened_by: Vec<String>,
}

/// How a cluster as a whole is doing; becomes its condition `Reconciled`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ClusterState {
    pub(super) cluster_uid: String,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

pub(super) struct Shared {
    pub(super) metrics: Arc<Metrics>,
    pub(super) index: Arc<Index>,
    pub(super) store: Arc<dyn Store>,
    pub(super) tenancy: Arc<Tenancy>,
    pub(super) pace: Pace,
    pub(super) refused: Arc<Refused>,
    namespaces: RwLock<HashMap<String, HashMap<String, NamespaceState>>>,
    clusters: RwLock<HashMap<String, ClusterState>>,
    changes: watch::Sender<u64>,
}

impl Shared {
    pub(super) fn new(
        index: Arc<Index>,
        store: Arc<dyn Store>,
        tenancy: Arc<Tenancy>,
        metrics: Arc<Metrics>,
        pace: Pace,
    ) -> Self {
        let (namespaces, clusters, refused) = Default::default();
        Self { index, store, tenancy, pace, metrics, refused, namespaces, clusters, changes: watch::channel(0).0 }
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    pub(super) fn namespace(&self, cluster: &str, namespace: &str) -> Option<NamespaceState> {
        self.namespaces.read().get(cluster)?.get(namespace).cloned()
    }

    pub(super) fn cluster(&self, cluster: &str) -> Option<ClusterState> {
        self.clusters.read().get(cluster).cloned()
    }

    pub(super) fn set_namespace(&self, cluster: &str, namespace: &str, state: Option<NamespaceState>) {
        let mut all = self.namespaces.write();
        let changed = match state {
            Some(state) => {
                let states = all.entry(cluster.to_owned()).or_default();
                states.insert(namespace.to_owned(), state.clone()).as_ref() != Some(&state)
            }
            None => all.get_mut(cluster).and_then(|states| states.remove(namespace)).is_some(),
        };
        drop(all);
        if changed {
            self.changes.send_modify(|count| *count += 1);
        }
    }

    pub(super) fn set_cluster(&self, cluster: &str, state: ClusterState) {
        let before = self.clusters.write().insert(cluster.to_owned(), state.clone());
        if before.as_ref() != Some(&state) {
            self.changes.send_modify(|count| *count += 1);
        }
    }

    /// Drops what is known of a cluster that is no longer worked on.
    pub(super) fn forget(&self, cluster: &str) {
        self.refused.forget(cluster);
        self.namespaces.write().remove(cluster);
        self.clusters.write().remove(cluster);
        self.changes.send_modify(|count| *count += 1);
    }
}
