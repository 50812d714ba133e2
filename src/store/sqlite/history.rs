//! What watches read: the newest changes in memory, older ones from the table.

use std::collections::VecDeque;
use std::sync::Arc;

use futures::{StreamExt as _, stream};
use parking_lot::RwLock;
use tokio::sync::watch as signal;

use super::super::{Event, Events, Revision, StoreError};
use super::readers::Readers;
use super::{closed, rows};

/// Events kept in memory. A watch that lags further behind reads the table.
const RECENT_EVENTS: usize = 1024;
/// Bytes of values kept in memory, and read from the table at a time.
const RECENT_BYTES: usize = 4 << 20;

/// Shared by the writer, who adds, and the watches.
pub(super) struct History {
    state: signal::Sender<State>,
    recent: RwLock<Recent>,
}

#[derive(Debug, Clone, Copy)]
struct State {
    newest: Revision,
    ended: bool,
}

/// The events after `after`, without a gap.
struct Recent {
    after: Revision,
    events: VecDeque<Event>,
    bytes: usize,
}

impl History {
    pub(super) fn new(newest: Revision) -> Self {
        let recent = Recent { after: newest, events: VecDeque::new(), bytes: 0 };
        Self { state: signal::Sender::new(State { newest, ended: false }), recent: RwLock::new(recent) }
    }

    /// The newest revision that watches can see.
    pub(super) fn newest(&self) -> Result<Revision, StoreError> {
        let State { newest, ended } = *self.state.borrow();
        if ended { Err(closed()) } else { Ok(newest) }
    }

    /// Returns once watches can see `revision`.
    pub(super) async fn published(&self, revision: Revision) -> Result<(), StoreError> {
        let mut state = self.state.subscribe();
        let reached = state.wait_for(|state| state.ended || state.newest >= revision).await.map_err(|_| closed())?;
        if reached.newest >= revision { Ok(()) } else { Err(closed()) }
    }

    /// Shows committed events to watches. Only the writer calls this, in the order of revisions.
    pub(super) fn publish(&self, events: Vec<Event>) {
        let Some(newest) = events.last().map(Event::revision) else { return };
        let mut recent = self.recent.write();
        for event in events {
            recent.bytes += rows::size_of_values(&event);
            recent.events.push_back(event);
        }
        while recent.events.len() > RECENT_EVENTS || recent.bytes > RECENT_BYTES {
            let Some(oldest) = recent.events.pop_front() else { break };
            recent.bytes -= rows::size_of_values(&oldest);
            recent.after = oldest.revision();
        }
        drop(recent);
        self.state.send_modify(|state| state.newest = newest);
    }

    /// No more will come. Watches end with an error, so that nobody takes silence for peace.
    pub(super) fn end(&self) {
        self.state.send_modify(|state| state.ended = true);
    }

    /// The events after a revision, where they are still in memory.
    fn recent(&self, after: Revision) -> Option<VecDeque<Event>> {
        let recent = self.recent.read();
        if after < recent.after {
            return None;
        }
        let start = recent.events.partition_point(|event| event.revision() <= after);
        Some(recent.events.range(start..).cloned().collect())
    }
}

/// One watch.
struct Watch {
    history: Arc<History>,
    readers: Arc<Readers>,
    state: signal::Receiver<State>,
    last: Revision,
    ready: VecDeque<Event>,
}

/// Opens a watch.
pub(super) async fn watch(history: Arc<History>, readers: Arc<Readers>, from: Revision) -> Result<Events, StoreError> {
    let newest = history.newest()?;
    if from > newest {
        return Err(StoreError::Future { asked: from, newest });
    }
    let oldest = readers.read(rows::compacted).await?;
    if from < oldest {
        return Err(StoreError::Compacted { asked: from, oldest });
    }
    let state = history.state.subscribe();
    let watch = Watch { history, readers, state, last: from, ready: VecDeque::new() };
    let events = stream::unfold(Some(watch), |watch| async {
        let mut watch = watch?;
        match watch.next().await {
            Ok(event) => Some((Ok(event), Some(watch))),
            Err(error) => Some((Err(error), None)),
        }
    });
    Ok(events.boxed())
}

impl Watch {
    async fn next(&mut self) -> Result<Event, StoreError> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                self.last = event.revision();
                return Ok(event);
            }
            let last = self.last;
            let State { newest, .. } =
                *self.state.wait_for(|state| state.ended || state.newest > last).await.map_err(|_| closed())?;
            if newest <= last {
                return Err(closed());
            }
            self.ready = match self.history.recent(last) {
                Some(events) => events,
                None => self.read_table(newest).await?,
            };
        }
    }

    async fn read_table(&self, newest: Revision) -> Result<VecDeque<Event>, StoreError> {
        let last = self.last;
        let events = self.readers.read(move |connection| rows::events(connection, last, newest, RECENT_BYTES)).await?;
        match events {
            Ok(events) if events.is_empty() => Err(StoreError::Unavailable(format!("no events after revision {last}"))),
            Ok(events) => Ok(events.into()),
            Err(oldest) => Err(StoreError::Compacted { asked: last, oldest }),
        }
    }
}
