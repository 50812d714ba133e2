//! A store in memory that yields at random points of every operation, so that a seed decides how tasks interleave,
//! and that looks at every write.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt as _;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::store::{Entry, Event, Events, Freshness, Key, Kind, Revision, Store, StoreError};

type Check = Box<dyn Fn(&Key, &Bytes) + Send + Sync>;

pub(super) struct Memory {
    state: Arc<Mutex<State>>,
    newest: watch::Sender<Revision>,
    check: Check,
}

struct State {
    objects: BTreeMap<Key, Entry>,
    history: Vec<Event>,
    random: u64,
}

impl Memory {
    pub(super) fn new(seed: u64, check: Check) -> Arc<Self> {
        let state = State { objects: BTreeMap::new(), history: vec![], random: seed | 1 };
        Arc::new(Self { state: Arc::new(Mutex::new(state)), newest: watch::channel(Revision(0)).0, check })
    }

    async fn pause(&self) {
        let times = {
            let mut state = self.state.lock();
            state.random ^= state.random << 13;
            state.random ^= state.random >> 7;
            state.random ^= state.random << 17;
            state.random % 4
        };
        for _ in 0..times {
            tokio::task::yield_now().await;
        }
    }

    fn put(&self, state: &mut State, key: Key, value: Bytes, created: bool) -> Revision {
        (self.check)(&key, &value);
        let revision = Revision(state.history.len() as u64 + 1);
        let entry = Entry { key: key.clone(), revision, value };
        state.objects.insert(key, entry.clone());
        state.history.push(Event::Put { entry, created });
        self.newest.send_replace(revision);
        revision
    }
}

fn expect(state: &State, key: &Key, expected: Revision) -> Result<Entry, StoreError> {
    let entry = state.objects.get(key).ok_or_else(|| StoreError::NotFound(key.clone()))?;
    if entry.revision != expected {
        return Err(StoreError::Conflict { key: key.clone(), expected, current: entry.revision });
    }
    Ok(entry.clone())
}

#[async_trait]
impl Store for Memory {
    async fn get(&self, key: &Key) -> Result<Option<Entry>, StoreError> {
        self.pause().await;
        Ok(self.state.lock().objects.get(key).cloned())
    }

    async fn list(&self, kind: Kind) -> Result<(Vec<Entry>, Revision), StoreError> {
        self.pause().await;
        let state = self.state.lock();
        let entries = state.objects.values().filter(|entry| entry.key.kind == kind).cloned().collect();
        Ok((entries, Revision(state.history.len() as u64)))
    }

    async fn create(&self, key: Key, value: Bytes) -> Result<Revision, StoreError> {
        self.pause().await;
        let mut state = self.state.lock();
        if state.objects.contains_key(&key) {
            return Err(StoreError::AlreadyExists(key));
        }
        Ok(self.put(&mut state, key, value, true))
    }

    async fn update(&self, key: Key, expected: Revision, value: Bytes) -> Result<Revision, StoreError> {
        self.pause().await;
        let mut state = self.state.lock();
        expect(&state, &key, expected)?;
        Ok(self.put(&mut state, key, value, false))
    }

    async fn delete(&self, key: Key, expected: Revision) -> Result<Revision, StoreError> {
        self.pause().await;
        let mut state = self.state.lock();
        let previous = expect(&state, &key, expected)?.value;
        state.objects.remove(&key);
        let revision = Revision(state.history.len() as u64 + 1);
        state.history.push(Event::Delete { key, revision, previous });
        self.newest.send_replace(revision);
        Ok(revision)
    }

    async fn watch(&self, from: Revision) -> Result<Events, StoreError> {
        let state = self.state.clone();
        let newest = self.newest.subscribe();
        let stream = futures::stream::unfold((from.0 as usize, state, newest), |(at, state, mut newest)| async move {
            newest.wait_for(|newest| newest.0 as usize > at).await.ok()?;
            let event = state.lock().history[at].clone();
            Some((Ok(event), (at + 1, state, newest)))
        });
        Ok(stream.boxed())
    }

    async fn revision(&self) -> Result<Revision, StoreError> {
        Ok(*self.newest.borrow())
    }

    fn freshness(&self) -> Freshness {
        Freshness::Fresh
    }

    async fn barrier(&self, _revision: Revision) -> Result<(), StoreError> {
        Ok(())
    }
}
