//! The master key: what the sealed records are encrypted with. It is never in the database and never in a backup.

use std::io;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use crate::store::sealed::Sealer;

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
    #[error("master key {path}: must be 32 bytes in base64, for example from `head -c 32 /dev/urandom | base64`")]
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

/// Reads the given key, or the one in the data directory; makes that at the first start only.
pub fn load(given: Option<&Path>, data_dir: &Path, store_is_new: bool) -> Result<Sealer, MasterKeyError> {
    let path = given.map_or_else(|| data_dir.join(FILE), Path::to_owned);
    let key = match std::fs::read(&path) {
        Ok(text) => decode(&Zeroizing::new(text)).ok_or(MasterKeyError::Malformed { path })?,
        Err(why) if why.kind() == io::ErrorKind::NotFound && given.is_none() => {
            if !store_is_new {
                return Err(MasterKeyError::Lost { path });
            }
            make(&path)?
        }
        Err(source) => return Err(MasterKeyError::Io { path, source }),
    };
    let digest = Sha256::digest(*key);
    let id: String = digest[..4].iter().map(|b| format!("{b:02x}")).collect();
    Ok(Sealer::new(&id, &key))
}

fn decode(text: &[u8]) -> Option<Zeroizing<[u8; 32]>> {
    let bytes = Zeroizing::new(STANDARD.decode(text.trim_ascii()).ok()?);
    Some(Zeroizing::new(bytes.as_slice().try_into().ok()?))
}

fn make(path: &Path) -> Result<Zeroizing<[u8; 32]>, MasterKeyError> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut key = Zeroizing::new([0u8; 32]);
    getrandom::fill(&mut *key).map_err(MasterKeyError::Random)?;
    let text = Zeroizing::new(STANDARD.encode(*key));
    let io = |source| MasterKeyError::Io { path: path.to_owned(), source };
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(io)?;
    file.write_all(text.as_bytes()).and_then(|()| file.write_all(b"\n")).and_then(|()| file.sync_all()).map_err(io)?;
    // The name must survive a crash too, or the first records would have no key.
    let parent = path.parent().unwrap_or(Path::new("."));
    std::fs::File::open(parent).and_then(|dir| dir.sync_all()).map_err(io)?;
    Ok(key)
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
}
