//! How many short requests one account may have in flight. Long-running responses have a bound of their own.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

/// Shards, so that the accounts' requests seldom wait for one another. A power of two.
const SHARDS: usize = 32;

/// A shard with fewer counters than this is not tidied.
const TIDY_FROM: usize = 64;

/// Counts the requests in flight of each account.
pub struct Budget {
    most: usize,
    hasher: RandomState,
    shards: [Mutex<Shard>; SHARDS],
}

#[derive(Default)]
struct Shard {
    // Counters stay when they fall to zero, so that an account's next request allocates nothing.
    by_account: HashMap<String, Arc<AtomicUsize>>,
    tidy_at: usize,
}

/// Places for requests in flight; dropping it gives them back.
#[derive(Debug)]
pub struct InFlight {
    counter: Arc<AtomicUsize>,
    places: usize,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.counter.fetch_sub(self.places, Ordering::Relaxed);
    }
}

impl Budget {
    /// At most `most` requests at a time of one account.
    pub fn new(most: usize) -> Self {
        Self { most, hasher: RandomState::new(), shards: std::array::from_fn(|_| Mutex::default()) }
    }

    /// How many requests one account may have in flight.
    pub fn most(&self) -> usize {
        self.most
    }

    /// Takes places for a request of an account, known by its UID: one, or as many as it is spread over. `None` while
    /// so many are not left.
    pub fn enter(&self, uid: &str, places: usize) -> Option<InFlight> {
        let index = self.hasher.hash_one(uid) as usize % SHARDS;
        let mut shard = self.shards[index].lock();
        let counter = match shard.by_account.get(uid) {
            Some(counter) => counter,
            None => shard.add(uid),
        };
        // Counters only grow under the lock of their shard, so that none is exceeded and none in use is tidied away.
        if counter.load(Ordering::Relaxed) + places > self.most {
            return None;
        }
        counter.fetch_add(places, Ordering::Relaxed);
        Some(InFlight { counter: counter.clone(), places })
    }
}

impl Shard {
    fn add(&mut self, uid: &str) -> &Arc<AtomicUsize> {
        if self.by_account.len() >= self.tidy_at.max(TIDY_FROM) {
            self.by_account.retain(|_, counter| counter.load(Ordering::Relaxed) > 0);
            self.tidy_at = 2 * self.by_account.len();
        }
        self.by_account.entry(uid.to_owned()).or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_has_so_many_places_and_no_more() {
        let budget = Budget::new(2);
        let (first, second) = (budget.enter("jane", 1), budget.enter("jane", 1));
        assert!(first.is_some() && second.is_some());
        assert!(budget.enter("jane", 1).is_none());
        assert!(budget.enter("joe", 1).is_some(), "another account has its own");
        drop(first);
        let third = budget.enter("jane", 1);
        assert!(third.is_some());
        assert!(budget.enter("jane", 1).is_none());
    }

    #[test]
    fn counters_in_use_survive_the_tidying_and_others_do_not_pile_up() {
        let budget = Budget::new(1);
        let held = budget.enter("jane", 1).unwrap();
        for n in 0..100 * SHARDS * TIDY_FROM {
            assert!(budget.enter(&format!("user-{n}"), 1).is_some());
        }
        assert!(budget.enter("jane", 1).is_none());
        drop(held);
        assert!(budget.enter("jane", 1).is_some());
        let kept: usize = budget.shards.iter().map(|shard| shard.lock().by_account.len()).sum();
        assert!(kept <= SHARDS * (TIDY_FROM + 1), "{kept}");
    }

    #[test]
    fn threads_never_exceed_it_together() {
        let budget = Budget::new(3);
        let most = AtomicUsize::new(0);
        let now = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..2_000 {
                        let Some(place) = budget.enter("jane", 1) else { continue };
                        most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        now.fetch_sub(1, Ordering::SeqCst);
                        drop(place);
                    }
                });
            }
        });
        assert!((1..=3).contains(&most.into_inner()));
        let places: Vec<_> = (0..4).map(|_| budget.enter("jane", 1)).collect();
        assert_eq!(places.iter().flatten().count(), 3, "all places came back");
    }
}
