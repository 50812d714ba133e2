//! The embedded engine: SQLite in the data directory, one process, no other service.
//!
//! One thread owns the only writing connection. Writes that wait for it share a transaction and its one fsync; each is
//! still a compare-and-swap of its own with a revision of its own, and none is acknowledged before the commit. A
//! transaction writes objects and events together, so that history and truth cannot part.
//!
//! Reads run on a few read-only connections and return only once watches can see what they saw: no reader is ever
//! ahead of a watch.

pub mod backup;
mod history;
mod migrations;
mod readers;
pub mod restore;
mod rows;
mod schema;
mod writer;

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use tokio::sync::{mpsc, oneshot};

use self::history::History;
use self::readers::Readers;
use self::writer::{Command, Write, Writer};
use super::anchor::{Anchor, AnchorError};
use super::lock::{DirectoryLock, LockError};
use super::sealed::SealError;
use super::{Entry, Events, Freshness, Key, Kind, Revision, Store, StoreError};

/// Name of the database in the data directory.
const FILE: &str = "store.db";

/// Settings of the engine.
#[derive(Debug, Clone)]
pub struct SqliteSettings {
    /// Number of changes that watches can go back.
    pub history_events: u64,
    /// Bytes of values in the history; large values shorten it.
    pub history_bytes: u64,
    /// Read-only connections, each with a page cache of about 2 MiB.
    pub readers: usize,
    /// Writes that may wait for the writer before callers wait to hand theirs over.
    pub queue: usize,
    /// Counts acknowledged writes.
    pub writes: Counter,
    /// What the database must not be behind. Without one, older copies are not found out: only for tests.
    pub anchor: Option<Arc<Anchor>>,
}

impl Default for SqliteSettings {
    fn default() -> Self {
        Self {
            history_events: 100_000,
            history_bytes: 256 << 20,
            readers: 2,
            queue: 1024,
            writes: Counter::default(),
            anchor: None,
        }
    }
}

/// Why the store was not opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process works in the data directory.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// Written by a newer version of the program.
    #[error(
        "{path} has schema version {found}, and this program knows versions up to {known}. Nothing was changed. Use the \
         newer program; to go back, restore a backup that the older one made"
    )]
    NewerSchema {
        /// The database.
        path: PathBuf,
        /// Version found.
        found: i64,
        /// Newest version known.
        known: i64,
    },
    /// The file is damaged, or no database of ours. It is left as it is.
    #[error(
        "{path} is damaged: {why}. Nothing was changed. `bailiwick restore` puts a backup in its place and keeps it beside"
    )]
    Corrupt {
        /// The database.
        path: PathBuf,
        /// What was found.
        why: String,
    },
    /// Records are sealed with a key that is not here.
    #[error(
        "{path} holds {records} records that were sealed with the master key {keys}, which is not here. Nothing was \
         changed. Put the key back from where it was kept; without it those accounts, tokens and cluster credentials \
         are lost"
    )]
    LostKey {
        /// The database.
        path: PathBuf,
        /// Ids of the missing keys.
        keys: String,
        /// Number of records.
        records: u64,
    },
    /// A record that says where the store stands does not open.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// The database is behind its anchor, or one of the two is not there.
    #[error(transparent)]
    Anchor(#[from] AnchorError),
    /// The directory or the file cannot be used.
    #[error("{path}: {why}")]
    Io {
        /// Directory or database.
        path: PathBuf,
        /// Why.
        why: String,
    },
}

/// The engine.
pub struct SqliteStore {
    readers: Arc<Readers>,
    history: Arc<History>,
    commands: mpsc::Sender<Command>,
    writes: Counter,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl SqliteStore {
    /// Opens the store in a data directory, which is made where it is missing, and takes the directory's lock.
    ///
    /// Reads the whole file once to find damage. Call it outside of async code, or accept that it blocks.
    pub fn open(directory: &Path, settings: SqliteSettings) -> Result<Self, OpenError> {
        let lock = lock(directory)?;
        Self::open_locked(directory, lock, settings)
    }

    /// As [`SqliteStore::open`], by who holds the lock already.
    pub fn open_locked(directory: &Path, lock: DirectoryLock, settings: SqliteSettings) -> Result<Self, OpenError> {
        let SqliteSettings { history_events, history_bytes, readers, queue, writes, anchor } = settings;
        let path = directory.join(FILE);
        let (connection, start) = schema::open(&path, anchor.as_deref())?;
        let history = Arc::new(History::new(start.newest));
        let readers = Arc::new(Readers::new(path.clone(), readers));
        let (commands, received) = mpsc::channel(queue);
        let mut writer = Writer::new(connection, lock, start, history.clone(), history_events, history_bytes);
        writer.anchor = anchor;
        let thread = std::thread::Builder::new().name("store-writer".into()).spawn(move || writer.run(received));
        let thread = thread.map_err(|e| OpenError::Io { path, why: e.to_string() })?;
        Ok(Self { readers, history, commands, writes, thread: Mutex::new(Some(thread)) })
    }

    /// Finishes the writes that wait, closes the files and gives the lock up. Everything fails afterwards.
    pub async fn close(&self) {
        let (done, closed) = oneshot::channel();
        // The writer may have ended already; then there is nothing to wait for.
        if self.commands.send(Command::Close(done)).await.is_ok() {
            let _ = closed.await;
        }
        self.readers.close();
    }

    /// Forgets the history up to now: older watches have to list again. Every write that was asked for before is done, or
    /// refused, when this returns.
    pub async fn forget_history(&self) -> Result<(), StoreError> {
        let (done, forgotten) = oneshot::channel();
        self.commands.send(Command::Forget(done)).await.map_err(|_| closed())?;
        forgotten.await.map_err(|_| closed())?
    }

    async fn write(&self, write: Write) -> Result<Revision, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.commands.send(Command::Write(write, reply)).await.map_err(|_| closed())?;
        let revision = answer.await.map_err(|_| closed())??;
        self.writes.inc();
        Ok(revision)
    }
}

impl Drop for SqliteStore {
    /// Waits for the writer, so that whoever dropped the store can open it again.
    fn drop(&mut self) {
        let (nobody, _) = mpsc::channel(1);
        drop(std::mem::replace(&mut self.commands, nobody));
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join();
        }
        self.readers.close();
    }
}

/// Makes a data directory where it is missing, and takes its lock.
pub fn lock(directory: &Path) -> Result<DirectoryLock, OpenError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
    made.map_err(|e| OpenError::Io { path: directory.to_owned(), why: e.to_string() })?;
    Ok(DirectoryLock::acquire(directory)?)
}

/// Whether a data directory has a database.
pub fn exists(directory: &Path) -> bool {
    directory.join(FILE).exists()
}

fn closed() -> StoreError {
    StoreError::Unavailable("the store is closed".into())
}

#[async_trait]
impl Store for SqliteStore {
    async fn get(&self, key: &Key) -> Result<Option<Entry>, StoreError> {
        let wanted = key.clone();
        let (entry, revision) = self.readers.read(move |connection| rows::get(connection, &wanted)).await?;
        self.history.published(revision).await?;
        Ok(entry)
    }

    async fn list(&self, kind: Kind) -> Result<(Vec<Entry>, Revision), StoreError> {
        let (entries, revision) = self.readers.read(move |connection| rows::list(connection, kind)).await?;
        self.history.published(revision).await?;
        Ok((entries, revision))
    }

    async fn create(&self, key: Key, value: Bytes) -> Result<Revision, StoreError> {
        self.write(Write::Create { key, value }).await
    }

    async fn update(&self, key: Key, expected: Revision, value: Bytes) -> Result<Revision, StoreError> {
        self.write(Write::Update { key, expected, value }).await
    }

    async fn delete(&self, key: Key, expected: Revision) -> Result<Revision, StoreError> {
        self.write(Write::Delete { key, expected }).await
    }

    async fn watch(&self, from: Revision) -> Result<Events, StoreError> {
        history::watch(self.history.clone(), self.readers.clone(), from).await
    }

    async fn revision(&self) -> Result<Revision, StoreError> {
        self.history.newest()
    }

    /// One process is always current, until its writer has ended.
    fn freshness(&self) -> Freshness {
        match self.history.newest() {
            Ok(_) => Freshness::Fresh,
            Err(_) => Freshness::Stale,
        }
    }

    async fn barrier(&self, revision: Revision) -> Result<(), StoreError> {
        self.history.published(revision).await
    }
}

#[cfg(test)]
mod tests;
