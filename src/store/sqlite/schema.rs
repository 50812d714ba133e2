//! The database file: creation, checks at start, errors.

use std::fs::{File, OpenOptions, Permissions};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};
use tracing::info;

use super::super::{Revision, StoreError};
use super::{OpenError, rows};

/// Version of the schema that this program writes.
const VERSION: i64 = 1;

/// Objects are the truth, events how it came about. `STRICT` keeps types; `revision` is the only counter.
const CREATE: &str = "
    CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT;
    CREATE TABLE objects (
        kind TEXT NOT NULL,
        name TEXT NOT NULL,
        revision INTEGER NOT NULL UNIQUE,
        value BLOB NOT NULL,
        PRIMARY KEY (kind, name)
    ) STRICT;
    CREATE TABLE events (
        revision INTEGER PRIMARY KEY,
        kind TEXT NOT NULL,
        name TEXT NOT NULL,
        type TEXT NOT NULL,
        value BLOB,
        previous BLOB
    ) STRICT;
    INSERT INTO meta (name, value) VALUES ('schema', 1), ('compacted', 0);
";

/// Where the history stands at start.
#[derive(Debug, Clone, Copy)]
pub(super) struct Start {
    pub(super) newest: Revision,
    pub(super) compacted: Revision,
    /// Number of events kept.
    pub(super) events: u64,
    /// Bytes of their values.
    pub(super) bytes: u64,
}

/// Opens the database for the writer, makes it where it is missing, and checks it.
pub(super) fn open(path: &Path) -> Result<(Connection, Start), OpenError> {
    let io = |e: std::io::Error| OpenError::Io { path: path.to_owned(), why: e.to_string() };
    create_private(path).map_err(io)?;
    let classify = |error| classify(path, error);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags).map_err(classify)?;
    configure(&connection).map_err(classify)?;
    prepare(&mut connection, path)?;
    let start = start(&connection).map_err(classify)?;
    info!(path = %path.display(), revision = %start.newest, events = start.events, "store opened");
    Ok((connection, start))
}

/// SQLite gives its other files the mode of the database.
fn create_private(path: &Path) -> std::io::Result<()> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
    if file.metadata()?.permissions().mode() & 0o077 != 0 {
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    // The name of a new file is durable only with its directory.
    path.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())
}

fn configure(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_prepared_statement_cache_capacity(32);
    connection.busy_timeout(std::time::Duration::from_secs(5))?;
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    connection.pragma_update_and_check(None, "journal_mode", "wal", |row| {
        let mode: String = row.get(0)?;
        if mode == "wal" { Ok(()) } else { Err(rusqlite::Error::InvalidPath(format!("journal mode {mode}").into())) }
    })?;
    // FULL: the log is synced with every commit, so that a commit survives the loss of power.
    connection.pragma_update(None, "synchronous", "full")?;
    // The log is cut back to this after a burst.
    connection.pragma_update_and_check(None, "journal_size_limit", 64 << 20, |_| Ok(()))
}

/// Makes the tables, or checks that they are ours, of a known version and sound.
fn prepare(connection: &mut Connection, path: &Path) -> Result<(), OpenError> {
    let classify = |error| classify(path, error);
    let corrupt = |why: String| OpenError::Corrupt { path: path.to_owned(), why };
    let tables = "SELECT count(*), count(*) FILTER (WHERE name = 'meta') FROM sqlite_schema WHERE type = 'table'";
    let (tables, meta): (i64, i64) =
        connection.query_row(tables, [], |row| Ok((row.get(0)?, row.get(1)?))).map_err(classify)?;
    if tables == 0 {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(classify)?;
        transaction.execute_batch(CREATE).map_err(classify)?;
        return transaction.commit().map_err(classify);
    }
    if meta == 0 {
        return Err(corrupt("it is a database of another program".into()));
    }
    let version = "SELECT value FROM meta WHERE name = 'schema'";
    let found: i64 = connection.query_row(version, [], |row| row.get(0)).map_err(classify)?;
    if found > VERSION {
        return Err(OpenError::NewerSchema { path: path.to_owned(), found, known: VERSION });
    }
    let check: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(classify)?;
    if check != "ok" {
        return Err(corrupt(check));
    }
    let ahead =
        "SELECT (SELECT coalesce(max(revision), 0) FROM objects) > (SELECT coalesce(max(revision), 0) FROM events)";
    if connection.query_row(ahead, [], |row| row.get(0)).map_err(classify)? {
        return Err(corrupt("objects are newer than the history".into()));
    }
    Ok(())
}

fn start(connection: &Connection) -> rusqlite::Result<Start> {
    let sizes =
        "SELECT count(*), coalesce(sum(coalesce(length(value), 0) + coalesce(length(previous), 0)), 0) FROM events";
    let (events, bytes): (i64, i64) = connection.query_row(sizes, [], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(Start {
        newest: rows::newest(connection)?,
        compacted: rows::compacted(connection)?,
        events: events.unsigned_abs(),
        bytes: bytes.unsigned_abs(),
    })
}

fn classify(path: &Path, error: rusqlite::Error) -> OpenError {
    let path = path.to_owned();
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            OpenError::Corrupt { path, why: error.to_string() }
        }
        _ => OpenError::Io { path, why: error.to_string() },
    }
}

/// An engine error as callers see it. SQLite's messages name tables and conditions, never values.
pub(super) fn unavailable(error: &rusqlite::Error) -> StoreError {
    StoreError::Unavailable(error.to_string())
}
