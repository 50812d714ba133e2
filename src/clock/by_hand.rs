//! Clocks that tests turn.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;

use super::{Clock, Source};

/// A wall clock and a monotonic one, turned by hand.
#[derive(Clone)]
pub struct Hands(Arc<Mutex<(Timestamp, Duration)>>);

impl Hands {
    /// Both stand still; the wall clock shows `wall`.
    pub fn at(wall: Timestamp) -> Self {
        Self(Arc::new(Mutex::new((wall, Duration::ZERO))))
    }

    /// A clock over these; each is as after a restart.
    pub fn clock(&self, mark: Option<Timestamp>) -> Arc<Clock> {
        Arc::new(Clock::new(Box::new(self.clone()), mark))
    }

    /// Time passes.
    pub fn pass(&self, time: Duration) {
        let mut both = self.0.lock();
        both.0 = both.0.saturating_add(SignedDuration::try_from(time).unwrap_or(SignedDuration::MAX)).unwrap_or(both.0);
        both.1 += time;
    }

    /// Somebody sets the wall clock.
    pub fn set(&self, wall: Timestamp) {
        self.0.lock().0 = wall;
    }
}

impl Source for Hands {
    fn wall(&self) -> Timestamp {
        self.0.lock().0
    }

    fn monotonic(&self) -> Duration {
        self.0.lock().1
    }
}
