//! The lock on a data directory: one process owns it.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// Name of the lock file.
const FILE: &str = "lock";

/// Held for as long as this value lives. The kernel gives the lock up when the process ends, however it ends.
#[derive(Debug)]
pub struct DirectoryLock {
    _file: File,
}

/// Why the lock was not taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process works in the directory.
    #[error("{directory} is in use by {holder}")]
    Held {
        /// Directory.
        directory: PathBuf,
        /// Who holds it, by process id where it is known.
        holder: Holder,
    },
    /// The lock file cannot be opened or written.
    #[error("{path}: {source}")]
    Io {
        /// The lock file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

/// Who holds a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder(pub Option<u32>);

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(pid) => write!(f, "process {pid}"),
            None => write!(f, "another process"),
        }
    }
}

impl DirectoryLock {
    /// Takes the lock on a directory that exists, without waiting.
    pub fn acquire(directory: &Path) -> Result<Self, LockError> {
        let path = directory.join(FILE);
        let io = |source| LockError::Io { path: path.clone(), source };
        // Not truncated: the file may be another process's.
        let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
        let mut file = open.map_err(io)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(LockError::Held { directory: directory.to_owned(), holder: Holder(read_pid(&mut file)) });
            }
            Err(TryLockError::Error(source)) => return Err(io(source)),
        }
        // The file stays when the lock is given up: removing it would let two processes lock two files of one name.
        file.set_len(0).map_err(io)?;
        writeln!(file, "{}", std::process::id()).map_err(io)?;
        Ok(Self { _file: file })
    }
}

/// The process id in a lock file; none in the moment between locking and writing.
fn read_pid(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.rewind().ok()?;
    file.take(16).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_second_holder_is_refused_with_the_pid_of_the_first() {
        let directory = tempfile::tempdir().unwrap();
        let first = DirectoryLock::acquire(directory.path()).unwrap();
        let error = DirectoryLock::acquire(directory.path()).unwrap_err();
        assert!(error.to_string().ends_with(&format!("is in use by process {}", std::process::id())), "{error}");
        drop(first);
        DirectoryLock::acquire(directory.path()).unwrap();
    }

    #[test]
    fn a_pid_left_by_a_dead_process_does_not_hold() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join(FILE), "4194304999\n").unwrap();
        let _lock = DirectoryLock::acquire(directory.path()).unwrap();
        let text = std::fs::read_to_string(directory.path().join(FILE)).unwrap();
        assert_eq!(text, format!("{}\n", std::process::id()));
    }

    #[test]
    fn the_file_is_private_and_a_missing_directory_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let _lock = DirectoryLock::acquire(directory.path()).unwrap();
        let mode = directory.path().join(FILE).metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(matches!(DirectoryLock::acquire(&directory.path().join("no")), Err(LockError::Io { .. })));
    }
}
