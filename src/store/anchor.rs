//! The anchor: how far the store had come, kept outside of the database.
//!
//! A file in the data directory holds the identity of the store, its epoch and the revision that was acknowledged last.
//! Whatever takes something from somebody (a suspension, a revocation, a deletion, a narrowed grant) is acknowledged
//! only once this file says so. A database that is behind its anchor is an older copy, and does not open: it would give
//! back what was taken. `bailiwick restore` accepts one deliberately, and ends every credential.
//!
//! The content is sealed as records are, so that only who has the master key can write one. Who can write to the data
//! directory can still put back an older database together with the older anchor: the two are one state then, and only
//! a memory outside of the directory could tell.
//!
//! Two slots are written in turn, in place: a write that is cut leaves the other slot, which is the state before it, and
//! a full disk does not stand in the way of a suspension.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::sealed::{Binding, Opened, SealError, Sealer};
use super::{Key, Kind, Revision};

/// Name of the file.
const FILE: &str = "anchor";
/// Where it is made before it has its name.
const FRESH: &str = "anchor.new";
/// Bytes of a slot: a page of any disk, and more than a state needs.
const SLOT: usize = 4096;
/// Name under which the state is sealed. No record of the store has it.
const SEALED_AS: &str = "anchor";

/// What is anchored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Anchored {
    /// Identity of the store; a restored one has a new identity.
    pub store_id: u64,
    /// Epoch of the installation.
    pub global_epoch: u64,
    /// A change of this revision was acknowledged.
    pub floor: Revision,
}

/// Why a store does not open, or a change is not acknowledged.
#[derive(Debug, thiserror::Error)]
pub enum AnchorError {
    /// The file cannot be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Neither slot opens: damaged, altered, or of another master key.
    #[error(
        "{path} cannot be read ({why}). Put the right master key in its place; if it is, the file is damaged: {RESTORE}"
    )]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        why: SealError,
    },
    /// The database is an older copy.
    #[error(
        "{database} is an older copy: it ends at revision {newest} (epoch {epoch}), and changes up to {} (epoch {}) \
         were acknowledged. Opening it would give back what was taken since. Put the newer file back; if it is lost: {RESTORE}",
        anchored.floor, anchored.global_epoch
    )]
    Behind {
        /// The database.
        database: PathBuf,
        /// Its newest revision.
        newest: Revision,
        /// Its epoch.
        epoch: u64,
        /// What it must have.
        anchored: Anchored,
    },
    /// The database is another store's, or from before a restore.
    #[error("{database} is not the store that {path} belongs to. Put the right file back; if it is lost: {RESTORE}")]
    Foreign {
        /// The database.
        database: PathBuf,
        /// The anchor.
        path: PathBuf,
    },
    /// The database is gone.
    #[error(
        "{database} is missing or empty, and {path} says that there was a store. Put the file back; if it is lost: {RESTORE}"
    )]
    NoStore {
        /// The database.
        database: PathBuf,
        /// The anchor.
        path: PathBuf,
    },
    /// The anchor is gone.
    #[error(
        "{path} is missing, so that nobody can tell whether {database} is an older copy. Put it back; if it is lost: {RESTORE}"
    )]
    Missing {
        /// The anchor.
        path: PathBuf,
        /// The database.
        database: PathBuf,
    },
}

/// The way back, at the end of messages.
const RESTORE: &str = "`bailiwick restore` takes a backup, or with --as-it-is the database that is there, and ends every session and token";

/// The file, and what it says.
pub struct Anchor {
    path: PathBuf,
    sealer: Arc<Sealer>,
    state: Mutex<State>,
}

struct State {
    /// Open for writing, once there is one.
    file: Option<File>,
    anchored: Option<Anchored>,
    /// Counts what was written; says which slot is newer.
    sequence: u64,
}

impl fmt::Debug for Anchor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Anchor").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Whether a data directory has an anchor.
pub fn exists(directory: &Path) -> bool {
    directory.join(FILE).exists()
}

impl Anchor {
    /// Reads the anchor of a data directory, where there is one.
    pub fn open(directory: &Path, sealer: Arc<Sealer>) -> Result<Self, AnchorError> {
        let path = directory.join(FILE);
        let io = |source| AnchorError::Io { path: path.clone(), source };
        let mut state = State { file: None, anchored: None, sequence: 0 };
        match std::fs::read(&path) {
            Ok(bytes) => {
                let opened = newest(&bytes, &sealer);
                let opened = opened.map_err(|why| AnchorError::Unreadable { path: path.clone(), why })?;
                state.sequence = opened.version;
                state.anchored = Some(opened.content);
                state.file = Some(OpenOptions::new().write(true).open(&path).map_err(io)?);
            }
            Err(why) if why.kind() == std::io::ErrorKind::NotFound => {}
            Err(source) => return Err(io(source)),
        }
        Ok(Self { path, sealer, state: Mutex::new(state) })
    }

    /// Of a data directory whose anchor is lost: what it said is unknown, and the next one is made anew.
    pub fn lost(directory: &Path, sealer: Arc<Sealer>) -> Self {
        let state = State { file: None, anchored: None, sequence: 0 };
        Self { path: directory.join(FILE), sealer, state: Mutex::new(state) }
    }

    /// What is anchored.
    pub fn anchored(&self) -> Option<Anchored> {
        self.state.lock().anchored.clone()
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What opens the store's records.
    pub fn sealer(&self) -> &Sealer {
        &self.sealer
    }

    /// Makes the file anew, with this content, in place of any that was there. Durable when this returns.
    pub fn make(&self, anchored: Anchored) -> Result<(), AnchorError> {
        let mut state = self.state.lock();
        let sequence = state.sequence + 1;
        let slot = self.slot(&anchored, sequence)?;
        let directory = self.path.parent().unwrap_or(Path::new("."));
        let fresh = directory.join(FRESH);
        let make = || {
            let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
            file.write_all(&slot)?;
            file.write_all(&slot)?;
            file.sync_all()?;
            std::fs::rename(&fresh, &self.path)?;
            File::open(directory)?.sync_all()?;
            std::io::Result::Ok(file)
        };
        let file = make().map_err(|source| AnchorError::Io { path: self.path.clone(), source })?;
        *state = State { file: Some(file), anchored: Some(anchored), sequence };
        Ok(())
    }

    /// From now on a store that is behind `floor`, or behind `epoch` where one is given, does not open. Durable when
    /// this returns; nothing is ever lowered.
    pub fn raise(&self, floor: Revision, epoch: Option<u64>) -> Result<(), AnchorError> {
        let mut state = self.state.lock();
        let Some(mut anchored) = state.anchored.clone() else { return Ok(()) };
        anchored.floor = anchored.floor.max(floor);
        anchored.global_epoch = anchored.global_epoch.max(epoch.unwrap_or(0));
        self.write(&mut state, anchored)
    }

    /// Seals both slots with the key that is active now.
    pub fn renew(&self) -> Result<(), AnchorError> {
        let mut state = self.state.lock();
        for _ in 0..2 {
            let Some(anchored) = state.anchored.clone() else { return Ok(()) };
            self.write(&mut state, anchored)?;
        }
        Ok(())
    }

    /// From now on nothing can be written.
    #[cfg(test)]
    pub(super) fn break_for_tests(&self) {
        self.state.lock().file = File::open(&self.path).ok();
    }

    fn write(&self, state: &mut State, anchored: Anchored) -> Result<(), AnchorError> {
        let io = |source| AnchorError::Io { path: self.path.clone(), source };
        let Some(file) = &state.file else { return Ok(()) };
        let sequence = state.sequence + 1;
        let slot = self.slot(&anchored, sequence)?;
        file.write_all_at(&slot, (sequence % 2) * SLOT as u64).and_then(|()| file.sync_data()).map_err(io)?;
        // Only now: what could not be written is no more than the next attempt's.
        (state.sequence, state.anchored) = (sequence, Some(anchored));
        Ok(())
    }

    fn slot(&self, anchored: &Anchored, sequence: u64) -> Result<Vec<u8>, AnchorError> {
        let unreadable = |why| AnchorError::Unreadable { path: self.path.clone(), why };
        let sealed = self.sealer.seal(&key(), Binding { uid: SEALED_AS, version: sequence }, anchored);
        let mut slot = sealed.map_err(unreadable)?.to_vec();
        if slot.len() >= SLOT {
            return Err(unreadable(SealError::Malformed(SEALED_AS.to_owned())));
        }
        slot.resize(SLOT - 1, b' ');
        slot.push(b'\n');
        Ok(slot)
    }
}

fn key() -> Key {
    Key::new(Kind::Platform, SEALED_AS)
}

/// The newer of the slots that open.
fn newest(bytes: &[u8], sealer: &Sealer) -> Result<Opened<Anchored>, SealError> {
    let mut newest: Option<Opened<Anchored>> = None;
    let mut why = SealError::Malformed(SEALED_AS.to_owned());
    for slot in bytes.chunks(SLOT).take(2) {
        match sealer.open::<Anchored>(&key(), slot.trim_ascii()) {
            Ok(opened) if newest.as_ref().is_none_or(|known| known.version < opened.version) => newest = Some(opened),
            Ok(_) => {}
            Err(error) => why = error,
        }
    }
    newest.ok_or(why)
}

#[cfg(test)]
mod tests;
