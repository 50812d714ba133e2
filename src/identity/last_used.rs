//! When tokens were last used: noted in memory on every request, written now and then.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::clock::rfc3339;
use crate::index::Index;
use crate::records::TokenUse;
use crate::store::{Key, Kind, Store, StoreError};

/// A token's use is written at most once in this time.
const INTERVAL: SignedDuration = SignedDuration::from_secs(60);

/// How often we look for what is due.
const TICK: Duration = Duration::from_secs(15);

/// Requests of different tokens rarely meet at one of these.
const SHARDS: usize = 32;

/// Notes the use of tokens. Only authenticated tokens are noted, so there are at most as many entries as live tokens.
pub struct LastUsed {
    store: Arc<dyn Store>,
    index: Arc<Index>,
    hasher: RandomState,
    shards: Vec<Mutex<HashMap<String, Entry>>>,
}

#[derive(Clone, Copy)]
struct Entry {
    used: Timestamp,
    address: IpAddr,
    // Whether `used` is not written yet.
    due: bool,
    written: Option<Timestamp>,
}

impl LastUsed {
    /// Nothing noted yet.
    pub fn new(store: Arc<dyn Store>, index: Arc<Index>) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Self { store, index, hasher: RandomState::new(), shards }
    }

    /// Notes a use: a short lock that few share, and no allocation but at a token's first use.
    pub fn record(&self, token_id: &str, address: IpAddr, now: Timestamp) {
        let shard = &self.shards[self.hasher.hash_one(token_id) as usize % SHARDS];
        let mut entries = shard.lock();
        match entries.get_mut(token_id) {
            Some(entry) => {
                // Requests end in any order; the newest counts. A clock that returned from a jump forward is no such
                // matter: nothing would be noted until it comes there again.
                if now >= entry.used || entry.used.duration_since(now) >= INTERVAL {
                    (entry.used, entry.address, entry.due) = (now, address, true);
                }
            }
            None => {
                entries.insert(token_id.to_owned(), Entry { used: now, address, due: true, written: None });
            }
        }
    }

    /// Writes what is due and has not been written within the last minute; returns how many. What cannot be written
    /// is tried again at the next time.
    pub async fn flush(&self, now: Timestamp) -> usize {
        self.write(now, false).await
    }

    /// Writes everything that is due, at the end of the process.
    pub async fn flush_all(&self, now: Timestamp) -> usize {
        self.write(now, true).await
    }

    /// Flushes regularly until `shutdown`, and once more then.
    pub async fn run(self: Arc<Self>, shutdown: CancellationToken) {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = shutdown.cancelled() => break,
                _ = ticks.tick() => {}
            }
            self.flush(self.index.now()).await;
        }
        self.flush_all(self.index.now()).await;
    }

    async fn write(&self, now: Timestamp, all: bool) -> usize {
        let mut written = 0;
        for shard in &self.shards {
            let due = take_due(&mut shard.lock(), now, all);
            for (id, entry) in due {
                match self.write_one(&id, entry).await {
                    Ok(did) => written += usize::from(did),
                    Err(error) => {
                        warn!(%error, "the use of a token is not written; trying again");
                        if let Some(entry) = shard.lock().get_mut(&id) {
                            entry.due = true;
                        }
                    }
                }
            }
        }
        written
    }

    async fn write_one(&self, id: &str, entry: Entry) -> Result<bool, StoreError> {
        let snapshot = self.index.snapshot();
        if !snapshot.tokens.contains_key(id) {
            return Ok(false);
        }
        let content = TokenUse { last_used: rfc3339(entry.used), address: entry.address.to_string() };
        let value = serde_json::to_vec(&content).map_err(|error| StoreError::Unavailable(error.to_string()))?;
        let key = Key::new(Kind::TokenUse, id);
        let result = match snapshot.token_uses.get(id) {
            Some(known) => self.store.update(key, known.revision, value.into()).await,
            None => self.store.create(key, value.into()).await,
        };
        match result {
            Ok(_) => Ok(true),
            // Revoked meanwhile, or the index lags behind our own last write: not worth a second try.
            Err(StoreError::NotFound(_) | StoreError::Conflict { .. } | StoreError::AlreadyExists(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Takes what is to be written now, and forgets what has not been used for a while.
fn take_due(entries: &mut HashMap<String, Entry>, now: Timestamp, all: bool) -> Vec<(String, Entry)> {
    entries.retain(|_, entry| entry.due || now.duration_since(entry.used).abs() < INTERVAL * 2);
    let mut due = vec![];
    for (id, entry) in entries.iter_mut().filter(|(_, entry)| entry.due) {
        // A clock that was set back counts as time that passed, or nothing would be written for as long.
        let waited = entry.written.is_none_or(|at| now.duration_since(at).abs() >= INTERVAL);
        if all || waited {
            (entry.due, entry.written) = (false, Some(now));
            due.push((id.clone(), *entry));
        }
    }
    due
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::testing::{World, at};
    use crate::resources::token::Audience;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    fn of(world: &World) -> LastUsed {
        LastUsed::new(world.store.clone(), world.index.clone())
    }

    async fn stored(world: &World, id: &str) -> Option<TokenUse> {
        let entry = world.store.get(&Key::new(Kind::TokenUse, id)).await.unwrap()?;
        Some(serde_json::from_slice(&entry.value).unwrap())
    }

    #[tokio::test]
    async fn written_once_a_minute() {
        let world = World::new().await;
        world.user("jane").await;
        let token = world.accounts.issue("jane", world.new_token(Audience::Kube), at(0)).await.unwrap();
        let last_used = of(&world);
        for second in 0..30 {
            last_used.record(&token.id, HERE, at(second));
        }
        assert_eq!(last_used.flush(at(30)).await, 1);
        assert_eq!(stored(&world, &token.id).await.unwrap().last_used, rfc3339(at(29)));
        world.settle().await;

        assert_eq!(last_used.flush(at(31)).await, 0, "nothing new");
        last_used.record(&token.id, HERE, at(40));
        assert_eq!(last_used.flush(at(41)).await, 0, "within the minute");
        assert_eq!(last_used.flush(at(90)).await, 1);
        world.settle().await;
        last_used.record(&token.id, HERE, at(91));
        assert_eq!(last_used.flush_all(at(92)).await, 1, "at the end, everything");
        assert_eq!(
            stored(&world, &token.id).await.unwrap(),
            TokenUse { last_used: rfc3339(at(91)), address: HERE.to_string() }
        );
    }

    #[tokio::test]
    async fn an_earlier_use_does_not_replace_a_later_one() {
        let world = World::new().await;
        world.user("jane").await;
        let token = world.accounts.issue("jane", world.new_token(Audience::Kube), at(0)).await.unwrap();
        let last_used = of(&world);
        last_used.record(&token.id, HERE, at(20));
        last_used.record(&token.id, HERE, at(10));
        last_used.flush(at(30)).await;
        assert_eq!(stored(&world, &token.id).await.unwrap().last_used, rfc3339(at(20)));
    }

    #[tokio::test]
    async fn a_clock_that_jumped_and_returned_hides_no_use() {
        let world = World::new().await;
        world.user("jane").await;
        let token = world.accounts.issue("jane", world.new_token(Audience::Kube), at(0)).await.unwrap();
        let last_used = of(&world);
        let day = 24 * 3600;
        last_used.record(&token.id, HERE, at(day));
        assert_eq!(last_used.flush(at(day)).await, 1);
        world.settle().await;
        last_used.record(&token.id, HERE, at(10));
        assert_eq!(last_used.flush(at(11)).await, 1);
        assert_eq!(stored(&world, &token.id).await.unwrap().last_used, rfc3339(at(10)));
    }

    #[tokio::test]
    async fn a_revoked_token_leaves_nothing_behind() {
        let world = World::new().await;
        world.user("jane").await;
        let token = world.accounts.issue("jane", world.new_token(Audience::Kube), at(0)).await.unwrap();
        let last_used = of(&world);
        last_used.record(&token.id, HERE, at(0));
        assert_eq!(last_used.flush(at(0)).await, 1);
        last_used.record(&token.id, HERE, at(1));
        world.accounts.revoke(&token.id).await.unwrap();
        assert_eq!(stored(&world, &token.id).await, None);
        assert_eq!(last_used.flush_all(at(100)).await, 0);
        assert_eq!(stored(&world, &token.id).await, None);
    }

    #[tokio::test]
    async fn unused_entries_are_forgotten() {
        let world = World::new().await;
        let last_used = of(&world);
        for n in 0..100 {
            last_used.record(&format!("t{n}"), HERE, at(0));
        }
        last_used.flush(at(0)).await;
        last_used.flush(at(121)).await;
        assert_eq!(last_used.shards.iter().map(|shard| shard.lock().len()).sum::<usize>(), 0);
    }
}
