//! The master keys: what the sealed records are encrypted with. They are never in the database and never in a backup.
//!
//! The file has one key a line, 32 bytes in base64. The first one seals, all of them open: to add a line distributes a
//! key, to move it to the top activates it, to remove it retires it.

use std::io;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use crate::store::sealed::{Ring, Sealer};

/// Name of the key that we make ourselves, in the data directory.
const FILE: &str = "master.key";

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub enum MasterKeyError {
    /// The file cannot be read or written.
    #[error("master key {path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file is something else.
    #[error(
        "master key {path}: each line must be 32 bytes in base64, for example from `head -c 32 /dev/urandom | base64`"
    )]
    Malformed {
        /// The file.
        path: PathBuf,
    },
    /// The store has records of a key that is not here.
    #[error(
        "{path} is missing, but the store holds records that were sealed with it. Put the key back from where it was \
         kept; a new one would lose every account, token and cluster credential"
    )]
    Lost {
        /// Where the key should be.
        path: PathBuf,
    },
    /// The system gave no random bytes.
    #[error("no random bytes: {0}")]
    Random(getrandom::Error),
}

/// Where the keys are.
pub fn path(given: Option<&Path>, data_dir: &Path) -> PathBuf {
    given.map_or_else(|| data_dir.join(FILE), Path::to_owned)
}

/// Reads the given file, or the one in the data directory; makes that, with one key, at the first start only.
pub fn load(given: Option<&Path>, data_dir: &Path, store_is_new: bool) -> Result<Sealer, MasterKeyError> {
    let path = path(given, data_dir);
    let keys = match Keys::read(&path) {
        Err(MasterKeyError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound && given.is_none() => {
            if !store_is_new {
                return Err(MasterKeyError::Lost { path });
            }
            let keys = Keys(vec![new_key()?]);
            create(&path, &keys.text())?;
            keys
        }
        read => read?,
    };
    Ok(keys.ring().into())
}

/// A key and its id.
pub(super) type Named = (String, Zeroizing<[u8; 32]>);

/// The keys of a file, the one that seals first.
pub(super) struct Keys(pub(super) Vec<Named>);

impl Keys {
    /// Reads a file. There is at least one key in it.
    pub(super) fn read(path: &Path) -> Result<Self, MasterKeyError> {
        let text = std::fs::read(path).map_err(|source| MasterKeyError::Io { path: path.to_owned(), source })?;
        let text = Zeroizing::new(text);
        let mut keys: Vec<Named> = vec![];
        for line in text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty()) {
            let key = decode(line).ok_or_else(|| MasterKeyError::Malformed { path: path.to_owned() })?;
            let named = (id(&key), key);
            if keys.iter().all(|(known, _)| *known != named.0) {
                keys.push(named);
            }
        }
        if keys.is_empty() { Err(MasterKeyError::Malformed { path: path.to_owned() }) } else { Ok(Self(keys)) }
    }

    /// Replaces the file, all or nothing.
    pub(super) fn write(&self, path: &Path) -> Result<(), MasterKeyError> {
        let io = |source| MasterKeyError::Io { path: path.to_owned(), source };
        // One that another hand maintains, as those that are mounted into containers.
        if path.symlink_metadata().map_err(io)?.is_symlink() {
            let why = "a symbolic link; change the file where it comes from (one key a line, the first one seals)";
            return Err(io(io::Error::new(io::ErrorKind::Unsupported, why)));
        }
        let mut fresh = path.as_os_str().to_owned();
        fresh.push(".new");
        let fresh = PathBuf::from(fresh);
        let _ = std::fs::remove_file(&fresh);
        create(&fresh, &self.text())?;
        std::fs::rename(&fresh, path).and_then(|()| sync_parent(path)).map_err(io)
    }

    /// Writes a file that does not exist yet, or that holds the same.
    pub(super) fn create_beside(&self, path: &Path) -> Result<(), MasterKeyError> {
        match Self::read(path) {
            Ok(there) if there.0 == self.0 => Ok(()),
            _ => create(path, &self.text()),
        }
    }

    /// As the store works with them.
    pub(super) fn ring(&self) -> Ring {
        // There is one by construction.
        let (active, key) = &self.0[0];
        let mut ring = Ring::new(active, key);
        self.0.iter().for_each(|(id, key)| ring.add(id, key));
        ring
    }

    fn text(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::with_capacity(self.0.len() * 45));
        for (_, key) in &self.0 {
            text.push_str(&Zeroizing::new(STANDARD.encode(**key)));
            text.push('\n');
        }
        text
    }
}

/// A key of random bytes.
pub(super) fn new_key() -> Result<Named, MasterKeyError> {
    let mut key = Zeroizing::new([0u8; 32]);
    getrandom::fill(&mut *key).map_err(MasterKeyError::Random)?;
    Ok((id(&key), key))
}

/// The id tells which key it is, and nothing of it.
fn id(key: &[u8; 32]) -> String {
    Sha256::digest(key)[..4].iter().map(|b| format!("{b:02x}")).collect()
}

fn decode(text: &[u8]) -> Option<Zeroizing<[u8; 32]>> {
    let bytes = Zeroizing::new(STANDARD.decode(text).ok()?);
    Some(Zeroizing::new(bytes.as_slice().try_into().ok()?))
}

fn create(path: &Path, text: &str) -> Result<(), MasterKeyError> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let io = |source| MasterKeyError::Io { path: path.to_owned(), source };
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(io)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(io)?;
    // The name must survive a crash too, or the first records would have no key.
    sync_parent(path).map_err(io)
}

fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::File::open(parent)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::sealed::Binding;
    use crate::store::{Key, Kind};

    fn opens(one: &Sealer, other: &Sealer) -> bool {
        let key = Key::new(Kind::Account, "jane");
        let sealed = one.seal(&key, Binding { uid: "u", version: 1 }, &1).unwrap();
        other.open::<i32>(&key, &sealed).is_ok()
    }

    #[test]
    fn made_once_and_then_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let first = load(None, dir.path(), true).unwrap();
        let again = load(None, dir.path(), false).unwrap();
        assert!(opens(&first, &again));
    }

    #[test]
    fn a_lost_key_is_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(load(None, dir.path(), false), Err(MasterKeyError::Lost { .. })));
        assert!(!dir.path().join(FILE).exists());
        let given = dir.path().join("elsewhere");
        assert!(matches!(load(Some(&given), dir.path(), true), Err(MasterKeyError::Io { .. })));
        std::fs::write(&given, "short").unwrap();
        assert!(matches!(load(Some(&given), dir.path(), true), Err(MasterKeyError::Malformed { .. })));
    }

    #[test]
    fn the_first_line_seals_and_all_open() {
        let dir = tempfile::tempdir().unwrap();
        let old = load(None, dir.path(), true).unwrap();
        let path = dir.path().join(FILE);
        let mut keys = Keys::read(&path).unwrap();
        keys.0.push(new_key().unwrap());
        keys.write(&path).unwrap();
        let both = load(None, dir.path(), false).unwrap();
        assert!(opens(&old, &both) && opens(&both, &old), "added, not active");
        keys.0.swap(0, 1);
        keys.write(&path).unwrap();
        let turned = load(None, dir.path(), false).unwrap();
        assert!(opens(&old, &turned) && !opens(&turned, &old));
        keys.0.truncate(1);
        keys.write(&path).unwrap();
        let new = load(None, dir.path(), false).unwrap();
        assert!(opens(&turned, &new) && !opens(&old, &new));
        std::fs::write(&path, "\n\n").unwrap();
        assert!(matches!(load(None, dir.path(), false), Err(MasterKeyError::Malformed { .. })));
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(new_key().is_ok_and(|key| Keys(vec![key]).write(&link).is_err()));
    }
}
