//! The one writer: takes what waits, commits it together, shows it to watches, then acknowledges it.

use std::sync::Arc;

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension as _, Transaction, TransactionBehavior, ffi, named_params};
use tokio::sync::{mpsc, oneshot};
use tracing::error;

use super::super::anchor::Anchor;
use super::super::lock::DirectoryLock;
use super::super::{EPOCH, Entry, Event, Key, Kind, Revision, StoreError};
use super::history::History;
use super::rows;
use super::schema::{Start, unavailable};

/// Writes that share a transaction. More would delay the first of them.
const BATCH: usize = 256;

/// The anchor follows after so many changes at the latest. A restored store goes on further ahead than this, so that no
/// revision is given twice.
pub(super) const ANCHOR_EVERY: u64 = 10_000;

/// What the writer is asked to do.
pub(super) enum Command {
    Write(Write, Reply),
    /// Forget the history up to now, then say so.
    Forget(oneshot::Sender<Result<(), StoreError>>),
    /// Finish, close, give the lock up, then say so.
    Close(oneshot::Sender<()>),
}

/// A compare-and-swap on one object.
pub(super) enum Write {
    Create { key: Key, value: Bytes },
    Update { key: Key, expected: Revision, value: Bytes },
    Delete { key: Key, expected: Revision },
}

type Reply = oneshot::Sender<Result<Revision, StoreError>>;

/// The writer's side of the engine.
pub(super) struct Writer {
    connection: Connection,
    lock: DirectoryLock,
    history: Arc<History>,
    at: Start,
    history_events: u64,
    history_bytes: u64,
    /// Set when the kernel could not sync: what it dropped it may later report as written, so nothing is acknowledged
    /// until the process has been started again and the log was read from the disk.
    broken: Option<StoreError>,
    pub(super) anchor: Option<Arc<Anchor>>,
    /// What the anchor says, as far as this writer wrote it.
    anchored: Revision,
}

/// Tells watches that the writer is gone, by panic too.
struct Ending(Arc<History>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Writer {
    pub(super) fn new(
        connection: Connection,
        lock: DirectoryLock,
        at: Start,
        history: Arc<History>,
        history_events: u64,
        history_bytes: u64,
    ) -> Self {
        Self {
            connection,
            lock,
            history,
            at,
            history_events: history_events.max(1),
            history_bytes,
            broken: None,
            anchor: None,
            anchored: at.newest,
        }
    }

    /// Works until the store is dropped or closed.
    pub(super) fn run(mut self, mut received: mpsc::Receiver<Command>) {
        let ending = Ending(self.history.clone());
        let mut close = None;
        while close.is_none()
            && let Some(first) = received.blocking_recv()
        {
            let mut batch = vec![];
            let mut forget = None;
            let mut next = Some(first);
            while let Some(command) = next {
                match command {
                    Command::Write(write, reply) => batch.push((write, reply)),
                    Command::Forget(done) => {
                        forget = Some(done);
                        break;
                    }
                    Command::Close(done) => {
                        close = Some(done);
                        break;
                    }
                }
                next = if batch.len() < BATCH { received.try_recv().ok() } else { None };
            }
            self.commit(batch);
            if let Some(done) = forget {
                let _ = done.send(self.forget().map_err(|error| self.failed(&error)));
            }
        }
        drop(received);
        drop(ending);
        // Readers may still have the file open; without this the log would stay, and the file alone would be half of it.
        let _ = self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        drop(self.connection);
        drop(self.lock);
        if let Some(done) = close {
            // Whoever asked may have stopped waiting.
            let _ = done.send(());
        }
    }

    /// Commits a batch and answers for each of it. A caller that stopped waiting gets no answer; its write stands.
    fn commit(&mut self, batch: Vec<(Write, Reply)>) {
        if batch.is_empty() {
            return;
        }
        let outcome = match &self.broken {
            Some(error) => Err(error.clone()),
            None => self.transact(&batch).map_err(|error| self.failed(&error)),
        };
        match outcome {
            Ok((results, at)) => {
                self.at = at;
                let anchored = self.anchor(&results);
                self.history.publish(results.iter().filter_map(|result| result.as_ref().ok()).cloned().collect());
                for ((_, reply), result) in batch.into_iter().zip(results) {
                    let result = match (result, &anchored) {
                        (Ok(event), Err(error)) if takes_away(&event) => Err(error.clone()),
                        (result, _) => result.map(|event| event.revision()),
                    };
                    let _ = reply.send(result);
                }
            }
            // Conflicts were found against changes that did not happen, so they are no answer either.
            Err(error) => {
                for (_, reply) in batch {
                    let _ = reply.send(Err(error.clone()));
                }
            }
        }
    }

    /// Raises the anchor where something was taken from somebody, before that is acknowledged. After a failure the
    /// change stands and is seen, and is not acknowledged: a copy of the database from before it would still open.
    fn anchor(&mut self, results: &[Result<Event, StoreError>]) -> Result<(), StoreError> {
        let Some(anchor) = &self.anchor else { return Ok(()) };
        let events = || results.iter().filter_map(|result| result.as_ref().ok());
        if !events().any(takes_away) && self.at.newest.0 - self.anchored.0 < ANCHOR_EVERY {
            return Ok(());
        }
        // An epoch that does not open ends everything by itself.
        let epoch = events().rev().find_map(|event| match event {
            Event::Put { entry, .. } if entry.key.kind == Kind::Platform && &*entry.key.name == EPOCH => {
                anchor.sealer().open::<u64>(&entry.key, &entry.value).ok()
            }
            _ => None,
        });
        match anchor.raise(self.at.newest, epoch.map(|opened| opened.content)) {
            Ok(()) => {
                self.anchored = self.at.newest;
                Ok(())
            }
            Err(why) => {
                error!(%why, "the anchor could not be written");
                Err(StoreError::Unavailable(format!("stored, but the anchor could not be written: {why}")))
            }
        }
    }

    fn failed(&mut self, why: &rusqlite::Error) -> StoreError {
        error!(%why, "the store could not commit");
        let extended = why.sqlite_error().map(|error| error.extended_code);
        if matches!(extended, Some(ffi::SQLITE_IOERR_FSYNC | ffi::SQLITE_IOERR_DIR_FSYNC)) {
            self.broken = Some(StoreError::Unavailable(format!("{why}; writes are refused until the next start")));
        }
        unavailable(why)
    }

    /// Drops all events but the last.
    fn forget(&mut self) -> rusqlite::Result<()> {
        let mut at = self.at;
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        compact(&transaction, &mut at, 1, u64::MAX)?;
        transaction.commit()?;
        self.at = at;
        Ok(())
    }

    /// All or nothing. Gives each write's event or refusal, and where the history stands then.
    fn transact(&mut self, batch: &[(Write, Reply)]) -> rusqlite::Result<(Vec<Result<Event, StoreError>>, Start)> {
        let mut at = self.at;
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut results = Vec::with_capacity(batch.len());
        for (write, _) in batch {
            let revision = Revision(at.newest.0 + 1);
            if let Some(anchor) = &self.anchor
                && !may_be_stored(write, anchor)
            {
                let why = "a sealed record is of a key that is not here to stay; nothing was changed, try again";
                results.push(Err(StoreError::Unavailable(why.to_owned())));
                continue;
            }
            let result = swap(&transaction, write, revision)?;
            if let Ok(event) = &result {
                record(&transaction, event)?;
                at.newest = revision;
                at.events += 1;
                at.bytes += rows::size_of_values(event) as u64;
            }
            results.push(result);
        }
        // Some slack, so that not every write pays.
        let slack = (self.history_events / 10).min(1000);
        if at.events > self.history_events + slack || at.bytes > self.history_bytes + self.history_bytes / 10 {
            compact(&transaction, &mut at, self.history_events, self.history_bytes)?;
        }
        transaction.commit()?;
        Ok((results, at))
    }
}

/// Whether going back behind a change would give somebody what was taken: all but bookkeeping and what is new. An
/// account and the epoch take by being new, too.
fn takes_away(event: &Event) -> bool {
    match (event.key().kind, event) {
        (Kind::TokenUse | Kind::Ledger | Kind::Reservation, _) => false,
        (Kind::Account | Kind::Platform, _) => true,
        (_, Event::Put { created, .. }) => !created,
        (_, Event::Delete { .. }) => true,
    }
}

/// Whether what is to be sealed is sealed, by a key that stays: the last word on keys that are retired meanwhile.
fn may_be_stored(write: &Write, anchor: &Anchor) -> bool {
    match write {
        Write::Create { key, value } | Write::Update { key, value, .. } => {
            !key.kind.is_sealed() || anchor.sealer().may_be_stored(value)
        }
        Write::Delete { .. } => true,
    }
}

/// Changes one object, or says why not. An error fails the whole batch.
fn swap(
    transaction: &Transaction<'_>,
    write: &Write,
    revision: Revision,
) -> rusqlite::Result<Result<Event, StoreError>> {
    match write {
        Write::Create { key, value } => {
            let sql = "INSERT INTO objects (kind, name, revision, value) VALUES (:kind, :name, :revision, :value)
                       ON CONFLICT (kind, name) DO NOTHING";
            let changed = transaction.prepare_cached(sql)?.execute(named_params! {
                ":kind": key.kind.as_str(), ":name": &*key.name, ":revision": rows::to_sql(revision), ":value": &**value,
            })?;
            if changed == 0 {
                return Ok(Err(StoreError::AlreadyExists(key.clone())));
            }
            let entry = Entry { key: key.clone(), revision, value: value.clone() };
            Ok(Ok(Event::Put { entry, created: true }))
        }
        Write::Update { key, expected, value } => {
            let sql = "UPDATE objects SET revision = :revision, value = :value
                       WHERE kind = :kind AND name = :name AND revision = :expected";
            let changed = transaction.prepare_cached(sql)?.execute(named_params! {
                ":kind": key.kind.as_str(), ":name": &*key.name, ":revision": rows::to_sql(revision), ":value": &**value,
                ":expected": rows::to_sql(*expected),
            })?;
            if changed == 0 {
                return lost(transaction, key, *expected).map(Err);
            }
            let entry = Entry { key: key.clone(), revision, value: value.clone() };
            Ok(Ok(Event::Put { entry, created: false }))
        }
        Write::Delete { key, expected } => {
            let sql =
                "DELETE FROM objects WHERE kind = :kind AND name = :name AND revision = :expected RETURNING value";
            let previous = transaction
                .prepare_cached(sql)?
                .query_row(
                    named_params! {
                        ":kind": key.kind.as_str(), ":name": &*key.name, ":expected": rows::to_sql(*expected),
                    },
                    |row| rows::bytes(row, 0),
                )
                .optional()?;
            match previous {
                Some(previous) => Ok(Ok(Event::Delete { key: key.clone(), revision, previous })),
                None => lost(transaction, key, *expected).map(Err),
            }
        }
    }
}

/// Why a swap found nothing.
fn lost(transaction: &Transaction<'_>, key: &Key, expected: Revision) -> rusqlite::Result<StoreError> {
    let sql = "SELECT revision FROM objects WHERE kind = :kind AND name = :name";
    let current = transaction
        .prepare_cached(sql)?
        .query_row(named_params! { ":kind": key.kind.as_str(), ":name": &*key.name }, |row| row.get(0))
        .optional()?
        .map(rows::from_sql);
    Ok(match current {
        Some(current) => StoreError::Conflict { key: key.clone(), expected, current },
        None => StoreError::NotFound(key.clone()),
    })
}

fn record(transaction: &Transaction<'_>, event: &Event) -> rusqlite::Result<()> {
    let (type_, value, previous) = match event {
        Event::Put { entry, created: true } => (rows::CREATED, Some(&*entry.value), None),
        Event::Put { entry, created: false } => (rows::UPDATED, Some(&*entry.value), None),
        Event::Delete { previous, .. } => (rows::DELETED, None, Some(&**previous)),
    };
    let sql = "INSERT INTO events (revision, kind, name, type, value, previous)
               VALUES (:revision, :kind, :name, :type, :value, :previous)";
    let key = event.key();
    transaction.prepare_cached(sql)?.execute(named_params! {
        ":revision": rows::to_sql(event.revision()), ":kind": key.kind.as_str(), ":name": &*key.name,
        ":type": type_, ":value": value, ":previous": previous,
    })?;
    Ok(())
}

/// Drops the oldest events until the history is within its bounds; never the last one, which is the counter.
fn compact(
    transaction: &Transaction<'_>,
    at: &mut Start,
    history_events: u64,
    history_bytes: u64,
) -> rusqlite::Result<()> {
    let sizes =
        "SELECT revision, coalesce(length(value), 0) + coalesce(length(previous), 0) FROM events ORDER BY revision";
    let mut statement = transaction.prepare_cached(sizes)?;
    let mut sized = statement.query([])?;
    while (at.events > history_events || at.bytes > history_bytes)
        && let Some(row) = sized.next()?
    {
        let revision = rows::from_sql(row.get(0)?);
        if revision >= at.newest {
            break;
        }
        at.compacted = revision;
        at.events -= 1;
        at.bytes -= row.get::<_, i64>(1)?.unsigned_abs();
    }
    let cut = rows::to_sql(at.compacted);
    transaction.execute("DELETE FROM events WHERE revision <= :cut", named_params! { ":cut": cut })?;
    transaction.execute("UPDATE meta SET value = :cut WHERE name = 'compacted'", named_params! { ":cut": cut })?;
    Ok(())
}
