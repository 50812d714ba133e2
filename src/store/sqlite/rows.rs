//! Rows to values and back. All SQL that reads is here; the SQL that writes is in `writer`.

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension as _, Row, named_params};

use super::super::{Entry, Event, Key, Kind, Revision};

/// What an event row says happened.
pub(super) const CREATED: &str = "created";
pub(super) const UPDATED: &str = "updated";
pub(super) const DELETED: &str = "deleted";

/// SQLite's integers are signed; a counter of changes does not reach the sign.
pub(super) fn to_sql(revision: Revision) -> i64 {
    i64::try_from(revision.0).unwrap_or(i64::MAX)
}

pub(super) fn from_sql(value: i64) -> Revision {
    Revision(u64::try_from(value).unwrap_or(0))
}

/// The newest revision. Compaction always leaves the last event, so that this is the counter, after a restart too.
pub(super) fn newest(connection: &Connection) -> rusqlite::Result<Revision> {
    let mut statement = connection.prepare_cached("SELECT coalesce(max(revision), 0) FROM events")?;
    statement.query_row([], |row| row.get(0)).map(from_sql)
}

/// Watches can start from here on.
pub(super) fn compacted(connection: &Connection) -> rusqlite::Result<Revision> {
    let mut statement = connection.prepare_cached("SELECT value FROM meta WHERE name = 'compacted'")?;
    statement.query_row([], |row| row.get(0)).map(from_sql)
}

/// One object, and the revision at which this was the truth.
pub(super) fn get(connection: &Connection, key: &Key) -> rusqlite::Result<(Option<Entry>, Revision)> {
    let transaction = connection.unchecked_transaction()?;
    let sql = "SELECT revision, value FROM objects WHERE kind = :kind AND name = :name";
    let entry = transaction
        .prepare_cached(sql)?
        .query_row(named_params! { ":kind": key.kind.as_str(), ":name": &*key.name }, |row| {
            Ok(Entry { key: key.clone(), revision: from_sql(row.get(0)?), value: bytes(row, 1)? })
        })
        .optional()?;
    Ok((entry, newest(&transaction)?))
}

/// All objects of a kind, and the revision at which this was the truth.
pub(super) fn list(connection: &Connection, kind: Kind) -> rusqlite::Result<(Vec<Entry>, Revision)> {
    let transaction = connection.unchecked_transaction()?;
    let sql = "SELECT name, revision, value FROM objects WHERE kind = :kind ORDER BY name";
    let entries = transaction
        .prepare_cached(sql)?
        .query_map(named_params! { ":kind": kind.as_str() }, |row| {
            let key = Key::new(kind, row.get_ref(0)?.as_str()?);
            Ok(Entry { key, revision: from_sql(row.get(1)?), value: bytes(row, 2)? })
        })?
        .collect::<rusqlite::Result<_>>()?;
    Ok((entries, newest(&transaction)?))
}

/// The events after `after`, up to `until`, at most about `max_bytes` of them but at least one; or, as an error, the
/// oldest revision that one can start from.
pub(super) fn events(
    connection: &Connection,
    after: Revision,
    until: Revision,
    max_bytes: usize,
) -> rusqlite::Result<Result<Vec<Event>, Revision>> {
    let transaction = connection.unchecked_transaction()?;
    let oldest = compacted(&transaction)?;
    if after < oldest {
        return Ok(Err(oldest));
    }
    let sql = "SELECT revision, kind, name, type, value, previous FROM events
               WHERE revision > :after AND revision <= :until ORDER BY revision LIMIT 256";
    let mut statement = transaction.prepare_cached(sql)?;
    let mut rows = statement.query(named_params! { ":after": to_sql(after), ":until": to_sql(until) })?;
    let mut events = vec![];
    let mut size = 0;
    while size < max_bytes
        && let Some(row) = rows.next()?
    {
        let event = event(row)?;
        size += size_of_values(&event);
        events.push(event);
    }
    Ok(Ok(events))
}

fn event(row: &Row<'_>) -> rusqlite::Result<Event> {
    let revision = from_sql(row.get(0)?);
    let kind = row.get_ref(1)?.as_str()?;
    let kind = Kind::parse(kind).ok_or_else(|| unknown(1, format!("unknown kind {kind:?}")))?;
    let key = Key::new(kind, row.get_ref(2)?.as_str()?);
    match row.get_ref(3)?.as_str()? {
        DELETED => Ok(Event::Delete { key, revision, previous: bytes(row, 5)? }),
        CREATED => Ok(Event::Put { entry: Entry { key, revision, value: bytes(row, 4)? }, created: true }),
        UPDATED => Ok(Event::Put { entry: Entry { key, revision, value: bytes(row, 4)? }, created: false }),
        other => Err(unknown(3, format!("unknown event {other:?}"))),
    }
}

/// Bytes that an event holds, in memory and in the history.
pub(super) fn size_of_values(event: &Event) -> usize {
    match event {
        Event::Put { entry, .. } => entry.value.len(),
        Event::Delete { previous, .. } => previous.len(),
    }
}

pub(super) fn bytes(row: &Row<'_>, column: usize) -> rusqlite::Result<Bytes> {
    Ok(Bytes::copy_from_slice(row.get_ref(column)?.as_blob()?))
}

fn unknown(column: usize, why: String) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, why.into())
}
