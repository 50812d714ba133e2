//! The tables, and the steps that lead to them from each version that was released. There is no way back: an older
//! program refuses a newer database, and the copy that is kept from before the first step is for it.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, Transaction, TransactionBehavior, named_params};
use tracing::info;

use super::OpenError;
use super::schema::classify;

/// Version of the schema that this program writes.
pub(super) const VERSION: i64 = 2;

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
    INSERT INTO meta (name, value) VALUES ('schema', 2), ('compacted', 0);
";

/// Makes the tables of a store with this identity.
pub(super) fn create(connection: &mut Connection, store_id: u64) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.execute_batch(CREATE)?;
    put_store_id(&transaction, store_id)?;
    transaction.commit()
}

/// Leads a database of an older version to this one, all or nothing. A copy of what it was stays beside it.
pub(super) fn migrate(connection: &mut Connection, path: &Path, found: i64, store_id: u64) -> Result<(), OpenError> {
    let kept = keep(connection, path, found)?;
    let classify = |error| classify(path, error);
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(classify)?;
    for version in found..VERSION {
        match version {
            // The identity of the store, which the anchor is bound to.
            1 => put_store_id(&transaction, store_id).map_err(classify)?,
            other => {
                let why = format!("it has schema version {other}, which was never released");
                return Err(OpenError::Corrupt { path: path.to_owned(), why });
            }
        }
    }
    let sql = "UPDATE meta SET value = :version WHERE name = 'schema'";
    transaction.execute(sql, named_params! { ":version": VERSION }).map_err(classify)?;
    transaction.commit().map_err(classify)?;
    info!(path = %path.display(), from = found, to = VERSION, kept = %kept.display(), "store migrated");
    Ok(())
}

/// Copies the database before it is migrated. A copy that is there already is of an attempt that failed, or of an
/// earlier life; the new one takes its place only when it is whole.
fn keep(connection: &Connection, path: &Path, found: i64) -> Result<PathBuf, OpenError> {
    let kept = path.with_extension(format!("schema-{found}.db"));
    let fresh = path.with_extension("keeping");
    let _ = std::fs::remove_file(&fresh);
    let io = |why: String| OpenError::Io { path: kept.clone(), why: format!("no copy before the migration: {why}") };
    super::schema::create_private(&fresh).map_err(|why| io(why.to_string()))?;
    let copied = connection.execute("VACUUM INTO :to", named_params! { ":to": fresh.to_string_lossy() });
    let copied = copied.map_err(|why| why.to_string()).and_then(|_| {
        let whole = std::fs::File::open(&fresh).and_then(|file| file.sync_all());
        whole.and_then(|()| std::fs::rename(&fresh, &kept)).map_err(|why| why.to_string())
    });
    if let Err(why) = copied {
        let _ = std::fs::remove_file(&fresh);
        return Err(io(why));
    }
    Ok(kept)
}

/// Identity of the store; none in a database from before there were any.
pub(super) fn store_id(connection: &Connection) -> rusqlite::Result<Option<u64>> {
    use rusqlite::OptionalExtension as _;
    let sql = "SELECT value FROM meta WHERE name = 'store'";
    let id: Option<i64> = connection.query_row(sql, [], |row| row.get(0)).optional()?;
    Ok(id.map(i64::unsigned_abs))
}

/// Gives the store an identity, in place of any that it had.
pub(super) fn put_store_id(transaction: &Transaction<'_>, store_id: u64) -> rusqlite::Result<()> {
    let id = i64::try_from(store_id).unwrap_or(i64::MAX);
    let sql = "INSERT INTO meta (name, value) VALUES ('store', :id)
               ON CONFLICT (name) DO UPDATE SET value = excluded.value";
    transaction.execute(sql, named_params! { ":id": id }).map(|_| ())
}

/// A new identity: 63 random bits, so that it fits SQLite's integers.
pub(super) fn new_store_id() -> Result<u64, getrandom::Error> {
    Ok(getrandom::u64()? >> 1)
}
