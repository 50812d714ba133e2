//! The one writer of the index, and the handle that everybody reads by.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures::StreamExt as _;
use jiff::Timestamp;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tracing::{error, warn};

use super::snapshot::{ObservedCluster, Snapshot};
use crate::clock::Clock;
use crate::store::sealed::Sealer;
use crate::store::{Event, Events, Kind, Revision, Store, StoreError};

/// Pause before the watch of the store is tried again.
const RETRY: Duration = Duration::from_millis(200);

/// What was seen of a cluster, to be put into the index.
#[derive(Debug, Clone)]
pub struct Observation {
    /// Name of the cluster.
    pub cluster: String,
    /// What was seen, or nothing where the cluster is no longer watched.
    pub seen: Option<Arc<ObservedCluster>>,
}

/// Why the index cannot answer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum IndexError {
    /// The store could not be read at start.
    #[error("the index cannot be loaded: {0}")]
    Load(#[from] StoreError),
    /// The writer has ended; the process is going down.
    #[error("the index is closed")]
    Closed,
}

/// The handle. Cheap to share by `Arc`.
pub struct Index {
    current: ArcSwap<Snapshot>,
    clock: Arc<Clock>,
    // The revision applied, and whether the store's watch is alive.
    state: watch::Sender<State>,
    observations: mpsc::UnboundedSender<(Observation, Option<tokio::sync::oneshot::Sender<()>>)>,
}

/// Where the index stands; changes with every published snapshot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct State {
    /// Everything up to here is in the snapshot.
    pub applied: Revision,
    /// Counts snapshots; observations change it without changing `applied`.
    pub generation: u64,
    /// Whether the store's changes reach us. Decisions are refused while they do not.
    pub fresh: bool,
}

impl Index {
    /// Loads everything from the store and starts the writer. The clock is the machine's and has no past.
    pub async fn start(store: Arc<dyn Store>, sealer: Arc<Sealer>) -> Result<(Arc<Self>, JoinHandle<()>), IndexError> {
        Self::start_with(store, sealer, Arc::new(Clock::system())).await
    }

    /// As [`Index::start`], with a clock.
    pub async fn start_with(
        store: Arc<dyn Store>,
        sealer: Arc<Sealer>,
        clock: Arc<Clock>,
    ) -> Result<(Arc<Self>, JoinHandle<()>), IndexError> {
        let (snapshot, events) = load(&*store, &sealer).await?;
        let applied = snapshot.revision;
        let (observations, received) = mpsc::unbounded_channel();
        let (state, _) = watch::channel(State { applied, generation: 1, fresh: true });
        let index = Arc::new(Self { current: ArcSwap::from_pointee(snapshot), clock, state, observations });
        let writer = tokio::spawn(run(index.clone(), store, sealer, events, received));
        Ok((index, writer))
    }

    /// The time to judge a snapshot by.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The clock behind [`Index::now`].
    pub fn clock(&self) -> &Arc<Clock> {
        &self.clock
    }

    /// The current version of everything.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.current.load_full()
    }

    /// The current version for the length of one decision, without touching a reference count.
    pub fn load(&self) -> arc_swap::Guard<Arc<Snapshot>> {
        self.current.load()
    }

    /// Whether decisions may rest on the index.
    pub fn is_fresh(&self) -> bool {
        self.state.borrow().fresh
    }

    /// Woken with every published snapshot.
    pub fn subscribe(&self) -> watch::Receiver<State> {
        self.state.subscribe()
    }

    /// Returns once every change up to `revision` is in the snapshot.
    pub async fn applied(&self, revision: Revision) -> Result<(), IndexError> {
        let mut state = self.state.subscribe();
        state.wait_for(|state| state.applied >= revision).await.map(|_| ()).map_err(|_| IndexError::Closed)
    }

    /// Puts into the index what was seen of a cluster.
    pub fn observe(&self, observation: Observation) {
        // The writer only ends with the process; then nobody decides any more.
        let _ = self.observations.send((observation, None));
    }

    /// As [`Index::observe`], and returns once it is in the snapshot.
    pub async fn observe_applied(&self, observation: Observation) -> Result<(), IndexError> {
        let (done, applied) = tokio::sync::oneshot::channel();
        self.observations.send((observation, Some(done))).map_err(|_| IndexError::Closed)?;
        applied.await.map_err(|_| IndexError::Closed)
    }

    fn publish(&self, snapshot: Snapshot, fresh: bool) {
        let applied = snapshot.revision;
        self.current.store(Arc::new(snapshot));
        self.state.send_modify(|state| {
            *state = State { applied, generation: state.generation + 1, fresh };
        });
    }
}

/// Reads every kind and opens a watch from before the first list, so that nothing falls between the two.
async fn load(store: &dyn Store, sealer: &Sealer) -> Result<(Snapshot, Events), StoreError> {
    let start = store.revision().await?;
    let mut events = store.watch(start).await?;
    let mut newest = start;
    let mut snapshot = Snapshot::empty();
    for kind in Kind::ALL {
        let (entries, revision) = store.list(kind).await?;
        newest = newest.max(revision);
        for entry in entries {
            apply(&mut snapshot, &Event::Put { entry, created: true }, sealer);
        }
    }
    // Objects may be newer than `start`, and the watch brings their past again. Nobody may see that past: an account
    // resumed and suspended meanwhile would live for a moment.
    snapshot.revision = start;
    while snapshot.revision < newest {
        match events.next().await {
            Some(event) => apply(&mut snapshot, &event?, sealer),
            None => return Err(StoreError::Unavailable("the watch ended while loading".into())),
        }
    }
    Ok((snapshot, events))
}

fn apply(snapshot: &mut Snapshot, event: &Event, sealer: &Sealer) {
    if let Err(unreadable) = snapshot.apply(event, sealer) {
        error!(%unreadable, "stored object left out");
    }
}

type Observations = mpsc::UnboundedReceiver<(Observation, Option<tokio::sync::oneshot::Sender<()>>)>;

async fn run(
    index: Arc<Index>,
    store: Arc<dyn Store>,
    sealer: Arc<Sealer>,
    mut events: Events,
    mut seen: Observations,
) {
    loop {
        tokio::select! {
            biased;
            event = events.next() => match event {
                Some(Ok(event)) => {
                    let mut snapshot = (*index.snapshot()).clone();
                    apply(&mut snapshot, &event, &sealer);
                    // Whatever else is already there goes into the same version.
                    while let Some(Some(Ok(event))) = futures::FutureExt::now_or_never(events.next()) {
                        apply(&mut snapshot, &event, &sealer);
                    }
                    index.publish(snapshot, true);
                }
                ended => {
                    let why = ended.map(|e| e.err().map(|e| e.to_string())).unwrap_or_default();
                    error!(why, "the store's watch ended; refusing until it is back");
                    index.publish((*index.snapshot()).clone(), false);
                    events = reload(&index, &*store, &sealer).await;
                }
            },
            observation = seen.recv() => {
                let Some(first) = observation else { return };
                let mut snapshot = (*index.snapshot()).clone();
                let mut waiting = vec![];
                let mut next = Some(first);
                while let Some((observation, done)) = next {
                    snapshot.observe(&observation.cluster, observation.seen);
                    waiting.extend(done);
                    next = seen.try_recv().ok();
                }
                let fresh = index.is_fresh();
                index.publish(snapshot, fresh);
                for done in waiting {
                    let _ = done.send(());
                }
            }
        }
    }
}

/// Loads everything again after the watch was lost, for as long as it takes.
async fn reload(index: &Index, store: &dyn Store, sealer: &Sealer) -> Events {
    loop {
        match load(store, sealer).await {
            Ok((mut snapshot, events)) => {
                for (cluster, seen) in index.snapshot().all_observed() {
                    snapshot.observe(cluster, Some(seen.clone()));
                }
                index.publish(snapshot, true);
                return events;
            }
            Err(why) => {
                warn!(%why, "the store cannot be read; trying again");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}
