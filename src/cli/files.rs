//! Reading and writing the files of a person: bounded, named in every error, secrets for their owner only.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use super::exit::{Failure, Outcome};

/// Most that is read of one file or of standard input. The largest honest input is a directory's worth of manifests.
pub const MAX_INPUT: u64 = 16 << 20;

/// Reads a text file.
pub fn read_text(path: &Path) -> Outcome<String> {
    let file = File::open(path).map_err(|e| Failure::Usage(format!("{}: {e}", path.display())))?;
    read_bounded(file, &path.display().to_string())
}

/// Reads all of standard input.
pub fn read_stdin() -> Outcome<String> {
    read_bounded(io::stdin().lock(), "standard input")
}

fn read_bounded(from: impl Read, name: &str) -> Outcome<String> {
    let mut bytes = Vec::new();
    let read = from.take(MAX_INPUT + 1).read_to_end(&mut bytes);
    read.map_err(|e| Failure::Usage(format!("{name}: {e}")))?;
    if bytes.len() as u64 > MAX_INPUT {
        return Err(Failure::Usage(format!("{name}: larger than {} MiB", MAX_INPUT >> 20)));
    }
    String::from_utf8(bytes).map_err(|e| {
        let line = e.as_bytes()[..e.utf8_error().valid_up_to()].iter().filter(|b| **b == b'\n').count() + 1;
        Failure::Usage(format!("{name}:{line}: not UTF-8 text"))
    })
}

/// Reads a file that holds one secret, without the newline that editors add.
pub fn read_secret(path: &Path) -> Outcome<Zeroizing<String>> {
    let text = Zeroizing::new(read_text(path)?);
    let secret = text.trim_end_matches(['\r', '\n']);
    if secret.is_empty() || secret.contains('\n') {
        return Err(Failure::Usage(format!("{}: must hold exactly one line", path.display())));
    }
    Ok(Zeroizing::new(secret.to_owned()))
}

/// Writes a file for its owner only (0600), whole or not at all. A symbolic link keeps pointing at the file that is
/// replaced. Missing directories are made for their owner only.
pub fn write_private(path: &Path, text: &str) -> Outcome {
    let write = || -> io::Result<()> {
        let target = match fs::canonicalize(path) {
            Ok(target) => target,
            Err(e) if e.kind() == io::ErrorKind::NotFound => path.to_owned(),
            Err(e) => return Err(e),
        };
        let directory = match target.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        let name = target.file_name().ok_or_else(|| io::Error::from(io::ErrorKind::IsADirectory))?;
        let temporary = directory.join(format!(".{}.{}", name.to_string_lossy(), uuid::Uuid::new_v4().simple()));
        let written = (|| {
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&temporary, &target)
        })();
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        written
    };
    write().map_err(|e| Failure::Failed(format!("{}: {e}", path.display())))
}

/// A lock on a kubeconfig: the file `<path>.lock`, which kubectl uses too. Removed on drop.
#[derive(Debug)]
pub struct KubeconfigLock(PathBuf);

impl KubeconfigLock {
    /// Takes the lock; one that is held is an error, because a lock file says nothing about who is still alive.
    pub fn take(path: &Path) -> Outcome<Self> {
        if let Some(parent) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
            let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(parent);
            made.map_err(|e| Failure::Failed(format!("{}: {e}", parent.display())))?;
        }
        let mut lock = path.as_os_str().to_owned();
        lock.push(".lock");
        let lock = PathBuf::from(lock);
        match OpenOptions::new().write(true).create_new(true).open(&lock) {
            Ok(_) => Ok(Self(lock)),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Err(Failure::Failed(format!(
                "{} is being changed by another program; if none is running, remove {}",
                path.display(),
                lock.display()
            ))),
            Err(e) => Err(Failure::Failed(format!("{}: {e}", lock.display()))),
        }
    }
}

impl Drop for KubeconfigLock {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn private_files_are_for_their_owner_and_replace_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b/config.json");
        write_private(&path, "one").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        write_private(&path, "two").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(dir.path().join("a")).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "no temporary file stays behind");
    }

    #[test]
    fn a_symbolic_link_stays_one() {
        let dir = tempfile::tempdir().unwrap();
        let (real, link) = (dir.path().join("real"), dir.path().join("link"));
        fs::write(&real, "old").unwrap();
        symlink(&real, &link).unwrap();
        write_private(&link, "new").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().file_type().is_symlink());
        assert_eq!(fs::read_to_string(&real).unwrap(), "new");
    }

    #[test]
    fn a_file_that_cannot_be_written_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let failure = write_private(dir.path(), "x").unwrap_err();
        assert!(failure.to_string().contains(&dir.path().display().to_string()), "{failure}");
    }

    #[test]
    fn text_that_is_none_is_refused_with_its_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.yaml");
        fs::write(&path, b"a: 1\nb: \xff\n").unwrap();
        let failure = read_text(&path).unwrap_err();
        assert!(failure.to_string().ends_with("x.yaml:2: not UTF-8 text"), "{failure}");
        assert_eq!(failure.code(), 2);
    }

    #[test]
    fn secrets_are_one_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        fs::write(&path, "bwk_x\n").unwrap();
        assert_eq!(read_secret(&path).unwrap().as_str(), "bwk_x");
        for bad in ["", "\n", "a\nb\n"] {
            fs::write(&path, bad).unwrap();
            assert_eq!(read_secret(&path).unwrap_err().code(), 2, "{bad:?}");
        }
    }

    #[test]
    fn the_lock_is_exclusive_and_released() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config");
        let held = KubeconfigLock::take(&path).unwrap();
        assert!(KubeconfigLock::take(&path).is_err());
        drop(held);
        assert!(KubeconfigLock::take(&path).is_ok());
    }
}
