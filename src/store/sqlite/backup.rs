//! Backups: one file, written beside a running service, checked before anybody relies on it.
//!
//! A backup is a SQLite database (SQLite reads it as it is) with one line after it: the manifest, and a seal over it by
//! the master key, so that nobody without that key can make or alter one. It never holds the master key itself.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, named_params};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use super::super::sealed::{Binding, SealError, Sealer};
use super::super::{Key, Kind, Revision};
use super::{FILE, OpenError, migrations, rows, schema};

/// Version of the format that this program writes.
const FORMAT: u32 = 1;
/// Longest line with the manifest.
const LINE: u64 = 16 << 10;
/// Name under which manifests are sealed. No record of the store has it.
const SEALED_AS: &str = "backup";
/// Holds indexes against their tables, too.
const THOROUGH: &str = "PRAGMA integrity_check(1)";
/// Between two words on how far it is.
const TELL: Duration = Duration::from_secs(1);

/// What a backup says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// Version of the format.
    pub format: u32,
    /// Program that made it.
    pub program: String,
    /// When (RFC 3339).
    pub created_at: String,
    /// Version of the schema.
    pub schema: i64,
    /// Identity of the store.
    pub store_id: u64,
    /// Its newest revision.
    pub revision: Revision,
    /// Number of objects.
    pub objects: u64,
    /// Ids of the master keys that it takes to read all of it.
    pub keys: Vec<String>,
    /// Length of the database.
    pub bytes: u64,
    /// SHA-256 of the database, in hexadecimal.
    pub sha256: String,
}

/// The line after the database.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Line {
    bailiwick_backup: Box<RawValue>,
    seal: Box<RawValue>,
}

/// Why a backup was not made, or is not taken.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// A file cannot be read or written.
    #[error("{path}: {source}")]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is there already.
    #[error("{0} exists already; a backup never overwrites anything")]
    Exists(PathBuf),
    /// The store could not be copied.
    #[error("{path}: the copy failed: {why}")]
    Copy {
        /// The backup.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// Not a backup, or not all of one.
    #[error("{path} is no whole backup: {why}")]
    NotWhole {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Written by a newer version of the program.
    #[error("{path} was made by a newer program ({program}): restore it with that one")]
    Newer {
        /// The file.
        path: PathBuf,
        /// Version of that program.
        program: String,
    },
    /// A master key is missing.
    #[error("{path} needs the master key {keys}, which is not here; put it into the key file first")]
    Key {
        /// The file.
        path: PathBuf,
        /// Ids of the missing keys.
        keys: String,
    },
    /// Made or altered by who does not have the master key.
    #[error("{path} was altered, or made with another master key: {why}")]
    Seal {
        /// The file.
        path: PathBuf,
        /// Which part.
        why: SealError,
    },
    /// The database in it is damaged.
    #[error(transparent)]
    Database(#[from] OpenError),
}

/// Copies the store of a data directory into a new file, beside whoever works with the store, and checks the copy.
/// `tell` hears how many bytes of how many are written. Blocks.
pub fn backup(
    directory: &Path,
    to: &Path,
    sealer: &Sealer,
    created_at: String,
    tell: impl FnMut(u64, u64),
) -> Result<Manifest, BackupError> {
    let io = |source| BackupError::Io { path: to.to_owned(), source };
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(to) {
        Ok(_) => {}
        Err(why) if why.kind() == std::io::ErrorKind::AlreadyExists => return Err(BackupError::Exists(to.to_owned())),
        Err(why) => return Err(io(why)),
    }
    let made = fill(&directory.join(FILE), to, sealer, created_at, tell).and_then(|manifest| {
        let parent = to.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(parent).and_then(|parent| parent.sync_all()).map_err(io)?;
        Ok(manifest)
    });
    if made.is_err() {
        // Half a backup helps nobody.
        let _ = std::fs::remove_file(to);
    }
    made
}

fn fill(
    database: &Path,
    to: &Path,
    sealer: &Sealer,
    created_at: String,
    tell: impl FnMut(u64, u64),
) -> Result<Manifest, BackupError> {
    let io = |source| BackupError::Io { path: to.to_owned(), source };
    copy(database, to, tell)?;
    let connection = read_only(to)?;
    let classify = |error| BackupError::from(schema::classify(to, error));
    schema::check_sound(&connection, to, THOROUGH)?;
    check_opens(&connection, to, sealer)?;
    let keys = schema::keys_used(&connection).map_err(classify)?.into_keys().collect();
    let (bytes, sha256) = digest(File::open(to).map_err(io)?, u64::MAX, |_| Ok(())).map_err(io)?;
    let manifest = Manifest {
        format: FORMAT,
        program: env!("CARGO_PKG_VERSION").to_owned(),
        created_at,
        schema: schema::version(&connection).map_err(classify)?,
        store_id: migrations::store_id(&connection).map_err(classify)?.unwrap_or_default(),
        revision: rows::newest(&connection).map_err(classify)?,
        objects: count(&connection).map_err(classify)?,
        keys,
        bytes,
        sha256,
    };
    drop(connection);
    let line = line(&manifest, sealer).map_err(|why| BackupError::Seal { path: to.to_owned(), why })?;
    let mut file = OpenOptions::new().append(true).open(to).map_err(io)?;
    file.write_all(&line).and_then(|()| file.sync_all()).map_err(io)?;
    Ok(manifest)
}

/// Copies a database into an empty file, in one read of it: the copy is of one moment, and needs no other file.
pub(super) fn copy(database: &Path, to: &Path, mut tell: impl FnMut(u64, u64)) -> Result<(), BackupError> {
    let failed = |why: String| BackupError::Copy { path: to.to_owned(), why };
    let connection = read_only(database)?;
    let size = |pragma: &str| connection.query_row(pragma, [], |row| row.get::<_, i64>(0));
    let total = size("PRAGMA page_count").and_then(|pages| Ok(pages * size("PRAGMA page_size")?));
    let total = total.map_err(|why| failed(why.to_string()))?.unsigned_abs();
    let (done, waiting) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let sql = "VACUUM INTO :to";
            // Whoever waits is there until this is said.
            let _ = done.send(connection.execute(sql, named_params! { ":to": to.to_string_lossy() }));
        });
        loop {
            match waiting.recv_timeout(TELL) {
                Ok(copied) => return copied.map(|_| ()).map_err(|why| failed(why.to_string())),
                Err(RecvTimeoutError::Timeout) => tell(to.metadata().map_or(0, |file| file.len()), total),
                Err(RecvTimeoutError::Disconnected) => return Err(failed("the copying thread ended".to_owned())),
            }
        }
    })
}

/// Checks a backup wholly and puts its database into `to`, which must not exist.
pub(super) fn extract(backup: &Path, to: &Path, sealer: &Sealer) -> Result<Manifest, BackupError> {
    let io = |source| BackupError::Io { path: backup.to_owned(), source };
    let not_whole = |why: &str| BackupError::NotWhole { path: backup.to_owned(), why: why.to_owned() };
    let mut file = File::open(backup).map_err(io)?;
    let (manifest, line_length) = read_manifest(&mut file, backup, sealer)?;
    if file.metadata().map_err(io)?.len() != manifest.bytes + line_length {
        return Err(not_whole("its length is not what it says"));
    }
    let write = |source| BackupError::Io { path: to.to_owned(), source };
    let mut database = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to).map_err(write)?;
    file.rewind().map_err(io)?;
    let (_, sha256) = digest(file, manifest.bytes, |part| database.write_all(part)).map_err(write)?;
    if sha256 != manifest.sha256 {
        return Err(not_whole("its content is not what it says"));
    }
    database.sync_all().map_err(write)?;
    check(to, sealer)?;
    Ok(manifest)
}

/// That a database is sound and every sealed record in it opens.
pub(super) fn check(database: &Path, sealer: &Sealer) -> Result<(), BackupError> {
    let connection = read_only(database)?;
    schema::check_sound(&connection, database, THOROUGH)?;
    check_opens(&connection, database, sealer)
}

/// What a backup says of itself, where its seal holds.
fn read_manifest(file: &mut File, path: &Path, sealer: &Sealer) -> Result<(Manifest, u64), BackupError> {
    let io = |source| BackupError::Io { path: path.to_owned(), source };
    let not_whole = || BackupError::NotWhole { path: path.to_owned(), why: "its end is missing".to_owned() };
    let length = file.metadata().map_err(io)?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LINE))).map_err(io)?;
    let mut end = vec![];
    file.take(LINE).read_to_end(&mut end).map_err(io)?;
    let line = end.strip_suffix(b"\n").ok_or_else(not_whole)?;
    let start = line.iter().rposition(|byte| *byte == b'\n').ok_or_else(not_whole)?;
    let line: Line = serde_json::from_slice(&line[start + 1..]).map_err(|_| not_whole())?;
    #[derive(Deserialize)]
    struct Format {
        format: u32,
        program: String,
        schema: i64,
        keys: Vec<String>,
    }
    let text = line.bailiwick_backup.get();
    let Format { format, program, schema, keys } = serde_json::from_str(text).map_err(|_| not_whole())?;
    if format > FORMAT || schema > migrations::VERSION {
        return Err(BackupError::Newer { path: path.to_owned(), program });
    }
    let ring = sealer.ring();
    let missing: Vec<_> = keys.into_iter().filter(|id| !ring.has(id)).collect();
    if !missing.is_empty() {
        return Err(BackupError::Key { path: path.to_owned(), keys: missing.join(", ") });
    }
    let sealed = sealer.open::<String>(&key(), line.seal.get().as_bytes());
    let seal = |why| BackupError::Seal { path: path.to_owned(), why };
    if sealed.map_err(seal)?.content != hex(&Sha256::digest(text)) {
        return Err(seal(SealError::DoesNotOpen("the manifest".to_owned())));
    }
    let manifest = serde_json::from_str(text).map_err(|_| not_whole())?;
    // With the line break before it.
    Ok((manifest, (end.len() - start) as u64))
}

fn line(manifest: &Manifest, sealer: &Sealer) -> Result<Vec<u8>, SealError> {
    let malformed = |_| SealError::Malformed(SEALED_AS.to_owned());
    let text = serde_json::to_string(manifest).map_err(malformed)?;
    let seal = sealer.seal(&key(), Binding { uid: SEALED_AS, version: 1 }, &hex(&Sha256::digest(&text)))?;
    let seal = String::from_utf8(seal.to_vec()).map_err(|_| SealError::Malformed(SEALED_AS.to_owned()))?;
    let line = Line {
        bailiwick_backup: RawValue::from_string(text).map_err(malformed)?,
        seal: RawValue::from_string(seal).map_err(malformed)?,
    };
    Ok(format!("\n{}\n", serde_json::to_string(&line).map_err(malformed)?).into_bytes())
}

/// That every sealed record opens.
fn check_opens(connection: &Connection, path: &Path, sealer: &Sealer) -> Result<(), BackupError> {
    let classify = |error| BackupError::from(schema::classify(path, error));
    for kind in Kind::ALL.into_iter().filter(|kind| kind.is_sealed()) {
        for entry in rows::list(connection, kind).map_err(classify)?.0 {
            let seal = |why| BackupError::Seal { path: path.to_owned(), why };
            sealer.check(&entry.key, &entry.value).map_err(seal)?;
        }
    }
    Ok(())
}

fn count(connection: &Connection) -> rusqlite::Result<u64> {
    connection.query_row("SELECT count(*) FROM objects", [], |row| row.get::<_, i64>(0)).map(i64::unsigned_abs)
}

fn read_only(path: &Path) -> Result<Connection, OpenError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let classify = |error| schema::classify(path, error);
    let connection = Connection::open_with_flags(path, flags).map_err(classify)?;
    connection.busy_timeout(Duration::from_secs(5)).map_err(classify)?;
    connection.pragma_update(None, "trusted_schema", false).map_err(classify)?;
    Ok(connection)
}

/// Length and SHA-256 of a file up to a length, handing on what it reads.
fn digest(
    file: File,
    length: u64,
    mut take: impl FnMut(&[u8]) -> std::io::Result<()>,
) -> std::io::Result<(u64, String)> {
    let mut sha256 = Sha256::new();
    let mut file = file.take(length);
    let mut buffer = vec![0; 256 << 10];
    let mut bytes = 0;
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            return Ok((bytes, hex(&sha256.finalize())));
        }
        sha256.update(&buffer[..read]);
        take(&buffer[..read])?;
        bytes += read as u64;
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn key() -> Key {
    Key::new(Kind::Platform, SEALED_AS)
}
