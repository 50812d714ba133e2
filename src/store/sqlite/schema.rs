//! The database file: creation, checks at start, errors.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, Permissions};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use rusqlite::{Connection, ErrorCode, OpenFlags, named_params};
use tracing::info;

use super::super::anchor::{Anchor, AnchorError, Anchored};
use super::super::sealed::key_id_of;
use super::super::{EPOCH, Key, Kind, Revision, StoreError};
use super::{OpenError, migrations, rows};

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

/// Opens the database for the writer, makes it where it is missing, and checks it: that it is ours, of a known version,
/// sound, not behind its anchor, and that its records can be opened.
pub(super) fn open(path: &Path, anchor: Option<&Anchor>) -> Result<(Connection, Start), OpenError> {
    if let Some(anchor) = anchor.filter(|_| !path.exists()) {
        // Before the file is made: SQLite would throw away a log that was left without its database.
        check_nothing_was(path, anchor)?;
    }
    let io = |e: std::io::Error| OpenError::Io { path: path.to_owned(), why: e.to_string() };
    create_private(path).map_err(io)?;
    let classify = |error| classify(path, error);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags).map_err(classify)?;
    configure(&connection).map_err(classify)?;
    prepare(&mut connection, path, anchor)?;
    let start = start(&connection).map_err(classify)?;
    info!(path = %path.display(), revision = %start.newest, events = start.events, "store opened");
    Ok((connection, start))
}

/// SQLite gives its other files the mode of the database.
pub(super) fn create_private(path: &Path) -> std::io::Result<()> {
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

/// Makes the tables, or checks that they are ours, of a known version and sound, and leads older ones to this version.
fn prepare(connection: &mut Connection, path: &Path, anchor: Option<&Anchor>) -> Result<(), OpenError> {
    let classify = |error| classify(path, error);
    let corrupt = |why: String| OpenError::Corrupt { path: path.to_owned(), why };
    let tables = "SELECT count(*), count(*) FILTER (WHERE name = 'meta') FROM sqlite_schema WHERE type = 'table'";
    let (tables, meta): (i64, i64) =
        connection.query_row(tables, [], |row| Ok((row.get(0)?, row.get(1)?))).map_err(classify)?;
    if tables == 0 {
        let store_id = match anchor {
            Some(anchor) => first_anchor(path, anchor, Revision(0), 0)?,
            None => migrations::new_store_id().map_err(|why| corrupt(why.to_string()))?,
        };
        return migrations::create(connection, store_id).map_err(classify);
    }
    if meta == 0 {
        return Err(corrupt("it is a database of another program".into()));
    }
    let found = version(connection).map_err(classify)?;
    if found > migrations::VERSION {
        return Err(OpenError::NewerSchema { path: path.to_owned(), found, known: migrations::VERSION });
    }
    check_sound(connection, path, QUICK)?;
    if let Some(anchor) = anchor {
        check_keys(connection, path, anchor)?;
    }
    if found < migrations::VERSION {
        let store_id = match anchor {
            // A database without an identity has no anchor yet, unless a copy of it was migrated before.
            Some(anchor) => {
                let (newest, epoch) = position(connection, path, anchor)?;
                let store_id = first_anchor(path, anchor, newest, epoch)?;
                check_position(path, anchor, store_id, newest, epoch)?;
                store_id
            }
            None => migrations::new_store_id().map_err(|why| corrupt(why.to_string()))?,
        };
        migrations::migrate(connection, path, found, store_id)?;
    }
    if let Some(anchor) = anchor {
        let (newest, epoch) = position(connection, path, anchor)?;
        let store_id = migrations::store_id(connection).map_err(classify)?;
        let store_id = store_id.ok_or_else(|| corrupt("it has no identity".into()))?;
        check_position(path, anchor, store_id, newest, epoch)?;
        // What is there now is what people see from now on.
        anchor.raise(newest, Some(epoch))?;
    }
    Ok(())
}

/// Version of the schema of a database of ours.
pub(super) fn version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.query_row("SELECT value FROM meta WHERE name = 'schema'", [], |row| row.get(0))
}

/// Looks for damage in pages and rows. `PRAGMA integrity_check` holds indexes against their tables, too.
const QUICK: &str = "PRAGMA quick_check(1)";

/// That the file is not damaged and its history goes with its objects.
pub(super) fn check_sound(connection: &Connection, path: &Path, check: &str) -> Result<(), OpenError> {
    let classify = |error| classify(path, error);
    let corrupt = |why: String| OpenError::Corrupt { path: path.to_owned(), why };
    let check: String = connection.query_row(check, [], |row| row.get(0)).map_err(classify)?;
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

/// That every sealed record is of a key that is there.
fn check_keys(connection: &Connection, path: &Path, anchor: &Anchor) -> Result<(), OpenError> {
    let ring = anchor.sealer().ring();
    let used = keys_used(connection).map_err(|error| classify(path, error))?;
    let (lost, records) =
        used.into_iter().filter(|(id, _)| !ring.has(id)).fold((vec![], 0), |(mut lost, records), (id, count)| {
            lost.push(id);
            (lost, records + count)
        });
    if lost.is_empty() {
        Ok(())
    } else {
        Err(OpenError::LostKey { path: path.to_owned(), keys: lost.join(", "), records })
    }
}

/// Ids of the keys that sealed the records, and how many each.
pub(super) fn keys_used(connection: &Connection) -> rusqlite::Result<BTreeMap<String, u64>> {
    let mut used = BTreeMap::new();
    for kind in Kind::ALL.into_iter().filter(|kind| kind.is_sealed()) {
        let mut statement = connection.prepare_cached("SELECT value FROM objects WHERE kind = :kind")?;
        let mut values = statement.query(named_params! { ":kind": kind.as_str() })?;
        while let Some(row) = values.next()? {
            // One that is no sealed record needs no key; who reads it says so.
            if let Some(id) = key_id_of(row.get_ref(0)?.as_blob()?) {
                *used.entry(id).or_default() += 1;
            }
        }
    }
    Ok(used)
}

/// Revision and epoch that the database stands at.
pub(super) fn position(connection: &Connection, path: &Path, anchor: &Anchor) -> Result<(Revision, u64), OpenError> {
    let newest = rows::newest(connection).map_err(|error| classify(path, error))?;
    let key = Key::new(Kind::Platform, EPOCH);
    let epoch = match rows::get(connection, &key).map_err(|error| classify(path, error))?.0 {
        Some(entry) => anchor.sealer().open::<u64>(&key, &entry.value)?.content,
        None => 0,
    };
    Ok((newest, epoch))
}

fn check_position(
    database: &Path,
    anchor: &Anchor,
    store_id: u64,
    newest: Revision,
    epoch: u64,
) -> Result<(), AnchorError> {
    let (database, path) = (database.to_owned(), anchor.path().to_owned());
    let Some(anchored) = anchor.anchored() else { return Err(AnchorError::Missing { path, database }) };
    if anchored.store_id != store_id {
        return Err(AnchorError::Foreign { database, path });
    }
    if newest < anchored.floor || epoch < anchored.global_epoch {
        return Err(AnchorError::Behind { database, newest, epoch, anchored });
    }
    Ok(())
}

/// That there was no store where there is none.
fn check_nothing_was(database: &Path, anchor: &Anchor) -> Result<(), AnchorError> {
    match anchor.anchored() {
        Some(Anchored { floor: Revision(0), global_epoch: 0, .. }) | None => Ok(()),
        Some(_) => Err(AnchorError::NoStore { database: database.to_owned(), path: anchor.path().to_owned() }),
    }
}

/// The identity of a store that is about to get one. The anchor comes first: after a crash in between it is taken up
/// here again, where the other way round there would be a store whose anchor is missing.
fn first_anchor(database: &Path, anchor: &Anchor, floor: Revision, global_epoch: u64) -> Result<u64, OpenError> {
    if floor == Revision(0) {
        check_nothing_was(database, anchor)?;
    }
    if let Some(anchored) = anchor.anchored() {
        return Ok(anchored.store_id);
    }
    let random = migrations::new_store_id();
    let store_id = random.map_err(|why| OpenError::Io { path: database.to_owned(), why: why.to_string() })?;
    anchor.make(Anchored { store_id, global_epoch, floor })?;
    Ok(store_id)
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

pub(super) fn classify(path: &Path, error: rusqlite::Error) -> OpenError {
    let path = path.to_owned();
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            OpenError::Corrupt { path, why: error.to_string() }
        }
        Some(ErrorCode::DiskFull) => OpenError::Io { path, why: format!("{error}; nothing was changed; make room") },
        Some(ErrorCode::ReadOnly) => {
            OpenError::Io { path, why: format!("{error}; the service needs to write to file and directory") }
        }
        _ => OpenError::Io { path, why: error.to_string() },
    }
}

/// An engine error as callers see it. SQLite's messages name tables and conditions, never values.
pub(super) fn unavailable(error: &rusqlite::Error) -> StoreError {
    StoreError::Unavailable(error.to_string())
}
