//! Objects that change all the time.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, ObjectMeta, Patch, PatchParams, PostParams};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::place::{Numbers, Place};

/// Between two changes: 200 a second.
const EVERY: Duration = Duration::from_millis(5);
/// Changes that the API server has not answered yet, at most.
const AT_A_TIME: usize = 32;
/// Objects of a namespace.
const OBJECTS: usize = 8;

/// Changes ConfigMaps of namespaces past the service, until it is finished.
pub struct Writer {
    namespaces: Arc<Mutex<BTreeSet<String>>>,
    done: Arc<AtomicU64>,
    begun: Instant,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Writer {
    pub fn start(place: &Place, seed: u64) -> Self {
        let namespaces = Arc::new(Mutex::new(BTreeSet::<String>::new()));
        let done = Arc::new(AtomicU64::new(0));
        let stop = CancellationToken::new();
        let client = place.cluster_admin();
        let work = work(client, Numbers::new(seed), namespaces.clone(), done.clone(), stop.clone());
        Self { namespaces, done, begun: Instant::now(), stop, task: place.runtime.spawn(work) }
    }

    /// From now on it changes objects in this namespace, too.
    pub fn add(&self, namespace: &str) {
        self.namespaces.lock().insert(namespace.to_owned());
    }

    /// From now on it begins nothing in this namespace.
    pub fn leave(&self, namespace: &str) {
        self.namespaces.lock().remove(namespace);
    }

    /// Ends it, and returns how many changes were made and in which time.
    pub fn finish(self, place: &Place) -> (u64, Duration) {
        let took = self.begun.elapsed();
        self.stop.cancel();
        place.runtime.block_on(self.task).unwrap();
        (self.done.load(Ordering::Relaxed), took)
    }
}

async fn work(
    client: kube::Client,
    mut numbers: Numbers,
    namespaces: Arc<Mutex<BTreeSet<String>>>,
    done: Arc<AtomicU64>,
    stop: CancellationToken,
) {
    let places = Arc::new(Semaphore::new(AT_A_TIME));
    let mut tick = tokio::time::interval(EVERY);
    // What was missed while everything was busy is made up for.
    tick.set_missed_tick_behavior(MissedTickBehavior::Burst);
    while stop.run_until_cancelled(tick.tick()).await.is_some() {
        let names: Vec<String> = namespaces.lock().iter().cloned().collect();
        let Some(namespace) = numbers.one_of(&names) else { continue };
        let name = format!("object-{}", numbers.below(OBJECTS));
        let (delete, value) = (numbers.below(6) == 0, numbers.below(1 << 30).to_string());
        let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let done = done.clone();
        tokio::spawn(async move {
            let _place = place;
            // Refused where the namespace is about to go, or while the API server is away.
            if change(&api, &name, delete, &value).await.is_ok() {
                done.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    let _all = places.acquire_many(AT_A_TIME as u32).await;
}

async fn change(api: &Api<ConfigMap>, name: &str, delete: bool, value: &str) -> kube::Result<()> {
    if delete {
        return api.delete(name, &DeleteParams::default()).await.map(drop);
    }
    let patch = Patch::Merge(serde_json::json!({"data": {"value": value}}));
    match api.patch(name, &PatchParams::default(), &patch).await {
        Err(kube::Error::Api(status)) if status.code == 404 => {
            let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
            let object = ConfigMap { metadata, ..ConfigMap::default() };
            api.create(&PostParams::default(), &object).await.map(drop)
        }
        other => other.map(drop),
    }
}
