//! Restoring: a database from elsewhere takes the place of the one that is there, as a store with a new identity, far
//! ahead of anything that was ever seen of the old one.
//!
//! Everything is made and checked in a folder of its own within the data directory. What changes the store's own files
//! comes last: first the anchor, so that from there on nothing but the restored database opens, then one renaming. Cut
//! short anywhere, the same command begins anew.

use std::fs::{DirBuilder, File};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use rusqlite::{Connection, TransactionBehavior, named_params};

use super::super::anchor::{Anchor, Anchored};
use super::super::sealed::Sealer;
use super::super::{EPOCH, Kind, Revision};
use super::backup::{self, BackupError, Manifest};
use super::{FILE, OpenError, migrations, rows, schema};

/// The folder in which a restored store is made.
const STAGING: &str = "restoring";
/// How far a restored store goes on ahead of all revisions that are known. More than can have been given since the
/// anchor was written last.
const AHEAD: u64 = 100 * super::writer::ANCHOR_EVERY;
/// The same where the anchor is lost: more than were ever given.
const FAR_AHEAD: u64 = 1 << 40;

/// A restore under way. Whoever holds the data directory's lock may have one.
pub struct Restoring {
    directory: PathBuf,
}

impl Restoring {
    /// Begins anew.
    pub fn begin(directory: &Path) -> Result<Self, BackupError> {
        let restoring = Self { directory: directory.to_owned() };
        let staging = directory.join(STAGING);
        let io = |source| BackupError::Io { path: staging.clone(), source };
        match std::fs::remove_dir_all(&staging) {
            Err(why) if why.kind() != std::io::ErrorKind::NotFound => return Err(io(why)),
            _ => {}
        }
        for folder in [restoring.restored(), restoring.present()] {
            DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(io)?;
        }
        Ok(restoring)
    }

    /// Data directory of the store that is being made.
    pub fn restored(&self) -> PathBuf {
        self.directory.join(STAGING).join("restored")
    }

    /// Data directory of a copy of the store that is there now.
    pub fn present(&self) -> PathBuf {
        self.directory.join(STAGING).join("present")
    }

    /// Checks a backup and takes its content.
    pub fn take_backup(&self, file: &Path, sealer: &Sealer) -> Result<Manifest, BackupError> {
        backup::extract(file, &self.restored().join(FILE), sealer)
    }

    /// Takes the database that is there now, whatever its anchor says.
    pub fn take_present(&self, sealer: &Sealer) -> Result<(), BackupError> {
        self.copy_present(&self.restored(), sealer)
    }

    /// Copies the database that is there now, to be read beside the restored one. Nothing where there is none.
    pub fn look_at_present(&self, sealer: &Sealer) -> Result<bool, BackupError> {
        if !self.directory.join(FILE).exists() {
            return Ok(false);
        }
        self.copy_present(&self.present(), sealer).map(|()| true)
    }

    fn copy_present(&self, to: &Path, sealer: &Sealer) -> Result<(), BackupError> {
        let to = to.join(FILE);
        schema::create_private(&to).map_err(|source| BackupError::Io { path: to.clone(), source })?;
        backup::copy(&self.directory.join(FILE), &to, |_, _| {})?;
        backup::check(&to, sealer)
    }

    /// Identity and newest revision of a staged store that nobody has open.
    pub fn position(&self, staged: &Path) -> Result<(Option<u64>, Revision), BackupError> {
        let path = staged.join(FILE);
        let classify = |error| BackupError::from(schema::classify(&path, error));
        let connection = Connection::open(&path).map_err(classify)?;
        Ok((migrations::store_id(&connection).map_err(classify)?, rows::newest(&connection).map_err(classify)?))
    }

    /// Puts the restored store, which nobody may have open any more, in the place of the one that is there, with this
    /// sealed epoch as its latest change. Returns where the old database is kept, if there was one.
    pub fn finish(
        self,
        anchor: &Anchor,
        seen: Revision,
        global_epoch: u64,
        sealed_epoch: &Bytes,
        stamp: &str,
    ) -> Result<(Revision, Option<PathBuf>), BackupError> {
        let known = anchor.anchored();
        let ahead = if known.is_some() { AHEAD } else { FAR_AHEAD };
        let floor = known.map_or(Revision(0), |known| known.floor);
        let newest = Revision(seen.max(floor).0.saturating_add(ahead));
        let store_id = migrations::new_store_id()
            .map_err(|why| BackupError::Copy { path: self.restored(), why: why.to_string() })?;
        let restored = self.restored().join(FILE);
        let classify = |error| BackupError::from(schema::classify(&restored, error));
        move_on(&restored, store_id, newest, sealed_epoch).map_err(classify)?;
        let io = |source| BackupError::Io { path: restored.clone(), source };
        File::open(&restored).and_then(|file| file.sync_all()).map_err(io)?;

        anchor.make(Anchored { store_id, global_epoch, floor: newest }).map_err(OpenError::from)?;
        let kept =
            self.put_in_place(stamp).map_err(|source| BackupError::Io { path: self.directory.join(FILE), source })?;
        // Left over, it is no more than in the way of the next one, which removes it.
        let _ = std::fs::remove_dir_all(self.directory.join(STAGING));
        Ok((newest, kept))
    }

    fn put_in_place(&self, stamp: &str) -> std::io::Result<Option<PathBuf>> {
        let database = self.directory.join(FILE);
        let kept = self.directory.join(format!("store.before-restore-{stamp}.db"));
        let beside = |path: &Path, suffix: &str| {
            let mut name = path.as_os_str().to_owned();
            name.push(suffix);
            PathBuf::from(name)
        };
        let there = database.exists();
        if there {
            // A log goes with its database; to the new one it would be foreign. Where the database is sound, this leaves
            // none.
            if let Ok(connection) = Connection::open(&database) {
                let _ = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
            }
            if std::fs::hard_link(&database, &kept).is_err() {
                std::fs::copy(&database, &kept)?;
            }
        }
        for suffix in ["-wal", "-shm"] {
            match std::fs::rename(beside(&database, suffix), beside(&kept, suffix)) {
                Err(why) if why.kind() != std::io::ErrorKind::NotFound => return Err(why),
                _ => {}
            }
        }
        std::fs::rename(self.restored().join(FILE), &database)?;
        File::open(&self.directory)?.sync_all()?;
        Ok(there.then_some(kept))
    }
}

/// Gives the store its new identity, its new epoch, and a history that begins at `newest`: whoever watched the old one
/// is told to list again.
fn move_on(path: &Path, store_id: u64, newest: Revision, sealed_epoch: &Bytes) -> rusqlite::Result<()> {
    let mut connection = Connection::open(path)?;
    // One file, without a log.
    connection.pragma_update_and_check(None, "journal_mode", "delete", |_| Ok(()))?;
    connection.pragma_update(None, "synchronous", "full")?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    migrations::put_store_id(&transaction, store_id)?;
    transaction.execute("DELETE FROM events", [])?;
    let at = rows::to_sql(newest);
    let sql = "INSERT INTO objects (kind, name, revision, value) VALUES (:kind, :name, :at, :value)
               ON CONFLICT (kind, name) DO UPDATE SET revision = excluded.revision, value = excluded.value";
    let (kind, value) = (Kind::Platform.as_str(), &**sealed_epoch);
    transaction.execute(sql, named_params! { ":kind": kind, ":name": EPOCH, ":at": at, ":value": value })?;
    let sql = "INSERT INTO events (revision, kind, name, type, value, previous)
               VALUES (:at, :kind, :name, :type, :value, NULL)";
    let type_ = rows::UPDATED;
    transaction
        .execute(sql, named_params! { ":at": at, ":kind": kind, ":name": EPOCH, ":type": type_, ":value": value })?;
    let sql = "UPDATE meta SET value = :before WHERE name = 'compacted'";
    transaction.execute(sql, named_params! { ":before": rows::to_sql(Revision(newest.0 - 1)) })?;
    transaction.commit()
}
