//! Controllers: what projects want, kept true in every cluster.
//!
//! One task per cluster, so that a slow cluster keeps only itself waiting. A task watches the namespaces of its cluster
//! and the objects of ours, is woken by them and by the index, and brings one namespace after the other to what
//! [`desired`] computes from a snapshot. It is level-triggered: what happened does not matter, only what is there.
//!
//! Everything is applied server-side with field manager `bailiwick` and our label; what is edited is reverted, what is
//! no longer wanted is removed, what others made is left alone. The controllers write nothing to a cluster that the
//! index does not call usable: identity, rights and guards are proven first.

pub mod acts;
mod adoption;
mod calls;
pub mod contest;
pub mod desired;
pub mod kinds;
mod levels;
mod observed;
mod refused;
mod release;
mod shared;
mod status;
mod tend;
mod worker;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::clusters::Clusters;
use crate::index::{Index, Snapshot};
use crate::metrics::Metrics;
use crate::store::{Revision, Store};
use crate::tenancy::Tenancy;

pub use acts::{ActError, NamespaceActs};
pub use contest::Pace;
use shared::Shared;
pub use shared::{NamespaceState, Phase};
use worker::Worker;

/// Pause between two looks at which clusters there are, while nothing wakes the supervisor.
const LOOK: Duration = Duration::from_secs(1);

/// Gives the clients that controllers work with: the housekeeping account of each cluster.
pub trait HousekeepingClients: Send + Sync + 'static {
    /// A client of the cluster, where a credential is there.
    fn housekeeping(&self, cluster: &str) -> Option<kube::Client>;
}

impl HousekeepingClients for Clusters {
    fn housekeeping(&self, cluster: &str) -> Option<kube::Client> {
        Clusters::housekeeping(self, cluster)
    }
}

/// The running controllers.
pub struct Controllers {
    shared: Arc<Shared>,
    clients: Arc<dyn HousekeepingClients>,
    tasks: parking_lot::Mutex<Vec<JoinHandle<()>>>,
    shutdown: CancellationToken,
}

impl Controllers {
    /// Starts the controllers; they end with `shutdown`.
    pub fn start(
        index: Arc<Index>,
        store: Arc<dyn Store>,
        clients: Arc<dyn HousekeepingClients>,
        tenancy: Arc<Tenancy>,
        metrics: Arc<Metrics>,
        shutdown: CancellationToken,
    ) -> Arc<Self> {
        Self::start_with(index, store, clients, tenancy, metrics, Pace::default(), shutdown)
    }

    /// [`Controllers::start`] with another patience towards others who apply what is ours.
    pub fn start_with(
        index: Arc<Index>,
        store: Arc<dyn Store>,
        clients: Arc<dyn HousekeepingClients>,
        tenancy: Arc<Tenancy>,
        metrics: Arc<Metrics>,
        pace: Pace,
        shutdown: CancellationToken,
    ) -> Arc<Self> {
        let shared = Arc::new(Shared::new(index, store, tenancy.clone(), metrics, pace));
        let tasks = vec![
            tokio::spawn(tenancy.run(shutdown.clone())),
            tokio::spawn(status::run(shared.clone(), shutdown.clone())),
            tokio::spawn(supervise(shared.clone(), clients.clone(), shutdown.clone())),
        ];
        Arc::new(Self { shared, clients, tasks: parking_lot::Mutex::new(tasks), shutdown })
    }

    /// Ends everything and waits for it.
    pub async fn stop(&self) {
        self.shutdown.cancel();
        let tasks = std::mem::take(&mut *self.tasks.lock());
        for task in tasks {
            // A task that panicked has said so in the log.
            let _ = task.await;
        }
    }
}

/// What a worker was started for. Another identity means another worker.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Identity {
    cluster_uid: String,
    credential: Revision,
    server: Option<String>,
}

impl Identity {
    fn of(snapshot: &Snapshot, cluster: &str) -> Option<Self> {
        let resource = &snapshot.clusters.get(cluster)?.object;
        let credential = snapshot.credentials.get(cluster)?.revision;
        let server = resource.spec.connection.direct.as_ref();
        let server = server.map(|direct| format!("{} {}", direct.server, direct.certificate_authority));
        Some(Self { cluster_uid: resource.metadata.uid.clone()?, credential, server })
    }
}

/// Runs a task that is only there beside another one.
async fn forever(task: impl Future<Output = ()>) {
    task.await;
    std::future::pending().await
}

/// Keeps one worker for each cluster that has a credential.
async fn supervise(shared: Arc<Shared>, clients: Arc<dyn HousekeepingClients>, shutdown: CancellationToken) {
    let mut changes = shared.index.subscribe();
    let mut workers: HashMap<String, (Identity, CancellationToken, JoinHandle<()>)> = HashMap::new();
    loop {
        let snapshot = shared.index.snapshot();
        let gone: Vec<String> = workers
            .iter()
            .filter(|(name, (identity, _, task))| {
                task.is_finished() || Identity::of(&snapshot, name).as_ref() != Some(identity)
            })
            .map(|(name, _)| name.clone())
            .collect();
        for name in gone {
            if let Some((identity, stop, task)) = workers.remove(&name) {
                stop.cancel();
                let _ = task.await;
                // One that only came back from an outage is followed by another; what is known of it still holds.
                if Identity::of(&snapshot, &name).as_ref() != Some(&identity) {
                    shared.forget(&name);
                }
            }
        }
        for name in snapshot.clusters.keys() {
            if workers.contains_key(&**name) {
                continue;
            }
            let Some(identity) = Identity::of(&snapshot, name) else { continue };
            let Some(client) = clients.housekeeping(name) else { continue };
            info!(cluster = %name, "controllers start");
            let stop = shutdown.child_token();
            let (refused, end) = (shared.refused.clone(), stop.child_token());
            let seeing = refused::watch(name.to_string(), client.clone(), refused, end);
            let worker = Worker::new(name.to_string(), identity.cluster_uid.clone(), client, shared.clone());
            let working = tokio::spawn({
                let stop = stop.clone();
                // The events are seen for as long as the worker works, and no longer.
                async move {
                    tokio::select! {
                        () = worker.run(stop) => {}
                        () = forever(seeing) => {}
                    }
                }
            });
            workers.insert(name.to_string(), (identity, stop, working));
        }
        tokio::select! {
            () = shutdown.cancelled() => break,
            changed = changes.changed() => if changed.is_err() { break },
            () = tokio::time::sleep(LOOK) => {}
        }
    }
    for (_, (_, stop, task)) in workers {
        stop.cancel();
        let _ = task.await;
    }
}
