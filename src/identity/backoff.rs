//! Slows down whoever guesses passwords, without a lock that an attacker could close on somebody else.
//!
//! Three counts are kept, each with a number of free attempts and an exponential delay with a cap:
//!
//! - by account *and* address: refuses. Another address is not concerned.
//! - by address: refuses, against trying many accounts from one place.
//! - by account: never refuses, only pauses, so that guesses from many places get slower and its owner still gets in.
//!
//! An address from which the account signed in within the last weeks is exempt from the last two. An attempt is
//! counted when it begins and taken back when it succeeds, so that a burst of parallel attempts is no way round.
//! Attempts refused here do not count. Counts fade with time. Memory is bounded; the oldest entries go first.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, Hash, RandomState};
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;

/// How failures turn into delay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackoffRule {
    /// Failures without consequence; a typing error is no attack.
    pub free: u32,
    /// Delay after the first failure that is not free; doubles with each further one.
    pub base: Duration,
    /// Longest delay.
    pub cap: Duration,
}

impl BackoffRule {
    fn delay(&self, failures: u32) -> Duration {
        let Self { free, base, cap } = self;
        match failures.checked_sub(*free) {
            None | Some(0) => Duration::ZERO,
            Some(over) => base.saturating_mul(1u32.checked_shl(over - 1).unwrap_or(u32::MAX)).min(*cap),
        }
    }
}

/// What guessing costs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackoffPolicy {
    /// By account and address.
    pub pair: BackoffRule,
    /// By address; an IPv6 address counts with its whole /64.
    pub address: BackoffRule,
    /// By account; this delay is a pause before the answer, never a refusal.
    pub account: BackoffRule,
    /// Time after which one failure is forgotten.
    pub fade: Duration,
    /// How long an address counts as the account's own after a success.
    pub familiar: Duration,
    /// Entries kept by each count; one is about 64 bytes.
    pub capacity: usize,
}

impl Default for BackoffPolicy {
    fn default() -> Self {
        let second = Duration::from_secs(1);
        Self {
            pair: BackoffRule { free: 5, base: second, cap: 30 * second },
            address: BackoffRule { free: 20, base: second, cap: 30 * second },
            account: BackoffRule { free: 10, base: Duration::from_millis(250), cap: 2 * second },
            fade: 60 * second,
            familiar: Duration::from_secs(30 * 24 * 3600),
            capacity: 50_000,
        }
    }
}

/// Too many failures; nothing was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many failed attempts; try again in {seconds} s")]
pub struct BackingOff {
    /// Seconds until the next attempt is looked at, at least 1.
    pub seconds: u32,
}

/// An attempt that may be made. It stays counted as a failure unless it is ended otherwise.
#[must_use]
pub struct Attempt<'a> {
    backoff: &'a Backoff,
    pair: u64,
    address: u64,
    account: u64,
    /// How long to wait before the attempt is looked at.
    pub pause: Duration,
}

/// The counts.
pub struct Backoff {
    policy: BackoffPolicy,
    // Names and addresses are kept as keyed hashes: entries have one size whatever is sent, and collisions cannot be
    // searched for.
    hasher: RandomState,
    counts: Mutex<Counts>,
}

#[derive(Default)]
struct Counts {
    pairs: Table,
    addresses: Table,
    accounts: Table,
}

type Table = HashMap<u64, Entry>;

#[derive(Clone, Copy)]
struct Entry {
    failures: u32,
    // When failures were last counted or faded.
    since: Timestamp,
    // When the last attempt was counted.
    last: Timestamp,
    succeeded: Option<Timestamp>,
}

impl Entry {
    fn new(now: Timestamp) -> Self {
        Self { failures: 0, since: now, last: now, succeeded: None }
    }

    /// Brings the entry to `now`. A clock that was set back must not make anybody wait for it to catch up.
    fn fade(&mut self, now: Timestamp, fade: Duration) {
        self.since = self.since.min(now);
        self.last = self.last.min(now);
        let steps = elapsed(self.since, now).as_nanos() / fade.as_nanos().max(1);
        if steps > 0 {
            self.failures = self.failures.saturating_sub(u32::try_from(steps).unwrap_or(u32::MAX));
            self.since = now;
        }
    }

    fn remaining(&self, rule: &BackoffRule, now: Timestamp) -> Duration {
        rule.delay(self.failures).saturating_sub(elapsed(self.last, now))
    }

    fn is_familiar(&self, now: Timestamp, familiar: Duration) -> bool {
        self.succeeded.is_some_and(|at| elapsed(at, now) < familiar)
    }
}

impl Backoff {
    /// No failures yet.
    pub fn new(policy: BackoffPolicy) -> Self {
        Self { policy, hasher: RandomState::new(), counts: Mutex::default() }
    }

    /// Asks whether an attempt may be made now, and counts it.
    pub fn begin(&self, account: &str, address: IpAddr, now: Timestamp) -> Result<Attempt<'_>, BackingOff> {
        let BackoffPolicy { pair: pair_rule, address: address_rule, account: account_rule, fade, familiar, capacity } =
            &self.policy;
        let address = network(address);
        let (pair, account) = (self.key((account, address)), self.key(account));
        let address = self.key(address);

        let mut counts = self.counts.lock();
        let Counts { pairs, addresses, accounts } = &mut *counts;
        let own = entry(pairs, pair, now, *capacity, *fade);
        let is_familiar = own.is_familiar(now, *familiar);
        let mut wait = own.remaining(pair_rule, now);
        let place = entry(addresses, address, now, *capacity, *fade);
        if !is_familiar {
            wait = wait.max(place.remaining(address_rule, now));
        }
        if !wait.is_zero() {
            let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            return Err(BackingOff { seconds: u32::try_from(seconds).unwrap_or(u32::MAX) });
        }
        let whole = entry(accounts, account, now, *capacity, *fade);
        let pause = if is_familiar { Duration::ZERO } else { account_rule.delay(whole.failures) };
        for count in [own, place, whole] {
            count.failures = count.failures.saturating_add(1);
            count.last = now;
        }
        Ok(Attempt { backoff: self, pair, address, account, pause })
    }

    fn key(&self, of: impl Hash) -> u64 {
        self.hasher.hash_one(of)
    }
}

impl Attempt<'_> {
    /// The password was right.
    pub fn succeeded(self, now: Timestamp) {
        let mut counts = self.backoff.counts.lock();
        let own = counts.pairs.entry(self.pair).or_insert(Entry::new(now));
        own.failures = 0;
        own.succeeded = Some(now);
        self.take_back(&mut counts);
    }

    /// Nobody can say whether the password was right: we failed ourselves.
    pub fn void(self) {
        let mut counts = self.backoff.counts.lock();
        if let Some(own) = counts.pairs.get_mut(&self.pair) {
            own.failures = own.failures.saturating_sub(1);
        }
        self.take_back(&mut counts);
    }

    // Only this attempt is taken back, not what others did: somebody with an account of their own could otherwise
    // clear the count of their address between guesses at other accounts.
    fn take_back(&self, counts: &mut Counts) {
        for (table, key) in [(&mut counts.addresses, self.address), (&mut counts.accounts, self.account)] {
            if let Some(count) = table.get_mut(&key) {
                count.failures = count.failures.saturating_sub(1);
            }
        }
    }
}

/// The entry of a key, brought to `now`, with room made for it.
fn entry(table: &mut Table, key: u64, now: Timestamp, capacity: usize, fade: Duration) -> &mut Entry {
    if table.len() >= capacity && !table.contains_key(&key) {
        evict(table, capacity);
    }
    let entry = table.entry(key).or_insert(Entry::new(now));
    entry.fade(now, fade);
    entry
}

/// Drops the oldest eighth, so that the cost of looking through the table is shared by many insertions.
fn evict(table: &mut Table, capacity: usize) {
    let mut times: Vec<Timestamp> = table.values().map(|entry| entry.last).collect();
    let last_to_go = (capacity / 8).min(times.len().saturating_sub(1));
    let (_, &mut limit, _) = times.select_nth_unstable(last_to_go);
    table.retain(|_, entry| entry.last > limit);
}

fn elapsed(from: Timestamp, to: Timestamp) -> Duration {
    Duration::try_from(to.duration_since(from)).unwrap_or(Duration::ZERO)
}

/// What counts as one address: with IPv6 anybody has a whole /64 to choose from.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX))),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use proptest::prelude::*;

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn fail(backoff: &Backoff, account: &str, address: &str, now: Timestamp) -> Result<Duration, BackingOff> {
        backoff.begin(account, ip(address), now).map(|attempt| attempt.pause)
    }

    /// Fails as often as is let through at one moment.
    fn exhaust(backoff: &Backoff, account: &str, address: &str, now: Timestamp) -> u32 {
        (0..1000).take_while(|_| fail(backoff, account, address, now).is_ok()).count() as u32
    }

    #[test]
    fn delays_double_up_to_the_cap() {
        let rule = BackoffPolicy::default().pair;
        let seconds: Vec<u64> = (5..13).map(|failures| rule.delay(failures).as_secs()).collect();
        assert_eq!(seconds, [0, 1, 2, 4, 8, 16, 30, 30]);
        assert_eq!(rule.delay(u32::MAX), rule.cap);
    }

    #[test]
    fn free_attempts_pass_and_then_the_pair_waits() {
        let backoff = Backoff::new(BackoffPolicy::default());
        assert_eq!(exhaust(&backoff, "jane", "192.0.2.1", at(0)), 6);
        assert_eq!(fail(&backoff, "jane", "192.0.2.1", at(0)), Err(BackingOff { seconds: 1 }));
        assert!(fail(&backoff, "jane", "192.0.2.1", at(1)).is_ok());
        assert_eq!(fail(&backoff, "jane", "192.0.2.1", at(1)), Err(BackingOff { seconds: 2 }));
        let half = at(1) + SignedDuration::from_millis(500);
        assert_eq!(fail(&backoff, "jane", "192.0.2.1", half), Err(BackingOff { seconds: 2 }), "rounded up");
    }

    #[test]
    fn the_owner_elsewhere_is_never_refused() {
        let backoff = Backoff::new(BackoffPolicy::default());
        // Guesses from two hundred places.
        for place in 0..200 {
            exhaust(&backoff, "jane", &format!("198.51.100.{place}"), at(0));
        }
        let pause = fail(&backoff, "jane", "192.0.2.1", at(0)).expect("only slowed");
        assert_eq!(pause, Duration::from_secs(2), "the cap");
        // Another account is not concerned at all.
        assert_eq!(fail(&backoff, "joe", "192.0.2.1", at(0)), Ok(Duration::ZERO));
    }

    #[test]
    fn a_familiar_address_is_neither_paused_nor_held_for_its_neighbours() {
        let backoff = Backoff::new(BackoffPolicy::default());
        backoff.begin("jane", ip("192.0.2.1"), at(0)).unwrap().succeeded(at(0));
        for other in 0..100 {
            let _ = fail(&backoff, &format!("user{other}"), "192.0.2.1", at(1));
        }
        for place in 0..200 {
            exhaust(&backoff, "jane", &format!("198.51.100.{place}"), at(1));
        }
        assert!(fail(&backoff, "joe", "192.0.2.1", at(1)).is_err(), "the address as a whole waits");
        assert_eq!(fail(&backoff, "jane", "192.0.2.1", at(1)), Ok(Duration::ZERO));
        // Even there guessing is held back.
        exhaust(&backoff, "jane", "192.0.2.1", at(1));
        assert!(fail(&backoff, "jane", "192.0.2.1", at(1)).is_err());
    }

    #[test]
    fn spraying_accounts_from_one_address_is_refused() {
        let backoff = Backoff::new(BackoffPolicy::default());
        let passed = (0..1000).filter(|n| fail(&backoff, &format!("user{n}"), "192.0.2.1", at(0)).is_ok()).count();
        assert_eq!(passed, 21);
        assert!(fail(&backoff, "user0", "192.0.2.2", at(0)).is_ok(), "the next address is free");
    }

    #[test]
    fn an_attacker_cannot_clear_the_address_with_an_own_account() {
        let backoff = Backoff::new(BackoffPolicy::default());
        let mut passed = 0;
        for n in 0..1000 {
            passed += u32::from(fail(&backoff, &format!("user{n}"), "192.0.2.1", at(0)).is_ok());
            if let Ok(attempt) = backoff.begin("mallory", ip("192.0.2.1"), at(0)) {
                attempt.succeeded(at(0));
            }
        }
        assert_eq!(passed, 21);
    }

    #[test]
    fn success_clears_the_pair_and_void_takes_back_one() {
        let backoff = Backoff::new(BackoffPolicy::default());
        for _ in 0..5 {
            let _ = fail(&backoff, "jane", "192.0.2.1", at(0));
        }
        for _ in 0..100 {
            backoff.begin("jane", ip("192.0.2.1"), at(0)).expect("voided attempts do not count").void();
        }
        backoff.begin("jane", ip("192.0.2.1"), at(0)).unwrap().succeeded(at(0));
        assert_eq!(exhaust(&backoff, "jane", "192.0.2.1", at(0)), 6);
    }

    #[test]
    fn parallel_attempts_are_counted_before_they_end() {
        let backoff = Backoff::new(BackoffPolicy::default());
        let running: Vec<_> = (0..50).filter_map(|_| backoff.begin("jane", ip("192.0.2.1"), at(0)).ok()).collect();
        assert_eq!(running.len(), 6);
    }

    #[test]
    fn failures_fade() {
        let backoff = Backoff::new(BackoffPolicy::default());
        exhaust(&backoff, "jane", "192.0.2.1", at(0));
        assert_eq!(exhaust(&backoff, "jane", "192.0.2.1", at(3600)), 6);
    }

    #[test]
    fn a_clock_set_back_locks_nobody_out() {
        let backoff = Backoff::new(BackoffPolicy::default());
        exhaust(&backoff, "jane", "192.0.2.1", at(1_000_000));
        let waiting = fail(&backoff, "jane", "192.0.2.1", at(0)).unwrap_err();
        assert!(waiting.seconds <= 30);
        assert!(fail(&backoff, "jane", "192.0.2.1", at(31)).is_ok());
    }

    #[test]
    fn ipv6_neighbours_and_mapped_addresses_are_one() {
        let backoff = Backoff::new(BackoffPolicy::default());
        exhaust(&backoff, "jane", "2001:db8::1", at(0));
        assert!(fail(&backoff, "jane", "2001:db8::ffff:2", at(0)).is_err());
        assert!(fail(&backoff, "jane", "2001:db8:0:1::1", at(0)).is_ok());
        exhaust(&backoff, "jane", "192.0.2.1", at(0));
        assert!(fail(&backoff, "jane", "::ffff:192.0.2.1", at(0)).is_err());
    }

    #[test]
    fn memory_is_bounded_and_the_recent_stay() {
        let backoff = Backoff::new(BackoffPolicy { capacity: 64, ..BackoffPolicy::default() });
        for n in 0..5_000 {
            let address = IpAddr::V4(std::net::Ipv4Addr::from_bits(n));
            let _ = backoff.begin(&format!("user{n}"), address, at(i64::from(n)));
        }
        exhaust(&backoff, "jane", "192.0.2.1", at(5_000));
        for n in 0..20 {
            let _ = fail(&backoff, "joe", &format!("198.51.100.{n}"), at(5_000));
        }
        assert!(fail(&backoff, "jane", "192.0.2.1", at(5_000)).is_err());
        let counts = backoff.counts.lock();
        for table in [&counts.pairs, &counts.addresses, &counts.accounts] {
            assert!(table.len() <= 64, "{} entries", table.len());
        }
    }

    proptest! {
        #[test]
        fn nobody_ever_waits_longer_than_the_cap(steps in prop::collection::vec((0..3usize, 0..3usize, -50i64..100), 1..200)) {
            let backoff = Backoff::new(BackoffPolicy::default());
            let mut now = 0;
            for (account, address, passed) in steps {
                now += passed;
                let result = fail(&backoff, ["a", "b", "c"][account], ["192.0.2.1", "192.0.2.2", "::1"][address], at(now));
                match result {
                    Ok(pause) => prop_assert!(pause <= Duration::from_secs(2)),
                    Err(BackingOff { seconds }) => prop_assert!((1..=30).contains(&seconds)),
                }
            }
        }
    }
}
