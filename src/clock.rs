//! The clock, in one place, so that tests have one thing to turn.
//!
//! What people read (records, metadata) bears the wall clock's time, [`now`]. What ends by time is judged by a
//! [`Clock`], because a wall clock can be set:
//!
//! - *Set back*: time goes on from where it was, so that nothing that ran out comes back.
//! - *Set forward*: what the new time ends is refused at once. Only when the wall clock has kept to the new time for
//!   [`STABLE`] is that final; until then all is as before once it returns.
//!
//! Both fall out of one number, the *steady* time: it follows the machine's monotonic clock, is raised to the wall
//! clock's time when that has proven itself, and is never lowered. Judged is by the later of the two.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use jiff::{RoundMode, Timestamp, TimestampRound, Unit};
use parking_lot::Mutex;

/// How long the wall clock must keep to a time that it jumped forward to until it is believed.
pub const STABLE: Duration = Duration::from_secs(5 * 60);
/// A step forward that is believed at once: daemons that keep the time make such ones.
const SMALL: i64 = 2_000_000_000;

/// The wall clock's time.
pub fn now() -> Timestamp {
    Timestamp::now()
}

/// A time as Kubernetes writes it in metadata: RFC 3339, UTC, whole seconds; never one that is still to come.
pub fn rfc3339(time: Timestamp) -> String {
    let whole = TimestampRound::new().smallest(Unit::Second).mode(RoundMode::Floor);
    time.round(whole).unwrap_or(time).to_string()
}

/// Where a [`Clock`] reads the time.
pub trait Source: Send + Sync + 'static {
    /// What the wall clock shows; people may set it.
    fn wall(&self) -> Timestamp;
    /// Time that has passed since some moment; nobody can set it.
    fn monotonic(&self) -> Duration;
}

/// The machine's clocks.
struct Machine {
    started: Instant,
}

impl Source for Machine {
    fn wall(&self) -> Timestamp {
        now()
    }

    fn monotonic(&self) -> Duration {
        self.started.elapsed()
    }
}

/// The time by which credentials and grants end. Read without a lock.
pub struct Clock {
    source: Box<dyn Source>,
    // Nanoseconds: the steady time is this plus the monotonic time. Only ever raised.
    steady: AtomicI64,
    state: Mutex<Wall>,
}

/// How the wall clock stands to the steady time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wall {
    Together,
    Behind,
    /// Ahead by so many nanoseconds, and since when on the monotonic clock.
    Ahead {
        by: i64,
        since: Duration,
    },
}

/// What [`Clock::tick`] found to have happened to the wall clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// It was set back, or the service began behind the time that it once knew; by so much.
    Back(Duration),
    /// It jumped forward by so much. Nothing is final yet.
    Forward(Duration),
    /// It returned from where it had jumped to; nothing happened.
    Returned,
    /// It has kept to the time that it jumped to. What has ended by it has ended for good.
    Believed,
}

impl Clock {
    /// The machine's clocks, with no past.
    pub fn system() -> Self {
        Self::of_machine(None)
    }

    /// The machine's clocks. `mark` is the steady time that was kept before a restart: no earlier one is shown.
    pub fn of_machine(mark: Option<Timestamp>) -> Self {
        Self::new(Box::new(Machine { started: Instant::now() }), mark)
    }

    /// Over any clocks: tests turn theirs by hand.
    pub fn new(source: Box<dyn Source>, mark: Option<Timestamp>) -> Self {
        let begin = mark.unwrap_or_else(|| source.wall());
        let steady = nanos(begin).saturating_sub(passed(source.monotonic()));
        Self { source, steady: AtomicI64::new(steady), state: Mutex::new(Wall::Together) }
    }

    /// The time to judge by. It goes back only where the wall clock returns from a jump forward that was not believed.
    pub fn now(&self) -> Timestamp {
        self.source.wall().max(self.steady())
    }

    /// The time that has proven itself; never goes back. Whatever cannot be taken back (the removal of credentials that
    /// ended) rests on this.
    pub fn steady(&self) -> Timestamp {
        let nanoseconds = self.steady.load(Ordering::Acquire).saturating_add(passed(self.source.monotonic()));
        Timestamp::from_nanosecond(nanoseconds.into()).unwrap_or(Timestamp::MAX)
    }

    /// Compares the two clocks; to be called about twice a second. Says what has happened, once.
    pub fn tick(&self) -> Option<Step> {
        let mut state = self.state.lock();
        let monotonic = self.source.monotonic();
        let wall = nanos(self.source.wall());
        let ahead = wall.saturating_sub(self.steady.load(Ordering::Acquire)).saturating_sub(passed(monotonic));
        let raise = || self.steady.fetch_max(wall.saturating_sub(passed(monotonic)), Ordering::AcqRel);
        let before = *state;
        if ahead < -SMALL {
            *state = Wall::Behind;
            return (before != Wall::Behind).then(|| Step::Back(Duration::from_nanos(ahead.unsigned_abs())));
        }
        if ahead <= SMALL {
            raise();
            *state = Wall::Together;
            return matches!(before, Wall::Ahead { .. }).then_some(Step::Returned);
        }
        match before {
            Wall::Ahead { by, since } if ahead.abs_diff(by) <= SMALL.unsigned_abs() => {
                if monotonic.saturating_sub(since) < STABLE {
                    return None;
                }
                raise();
                *state = Wall::Together;
                Some(Step::Believed)
            }
            Wall::Together | Wall::Behind | Wall::Ahead { .. } => {
                *state = Wall::Ahead { by: ahead, since: monotonic };
                Some(Step::Forward(Duration::from_nanos(ahead.unsigned_abs())))
            }
        }
    }
}

fn nanos(time: Timestamp) -> i64 {
    i64::try_from(time.as_nanosecond()).unwrap_or(i64::MAX)
}

fn passed(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

#[doc(hidden)]
pub mod by_hand;

#[cfg(test)]
mod tests;
