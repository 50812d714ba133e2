//! The files of the audit log: names, appending, rotation.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use tracing::warn;

use crate::clock;

/// A file of the log. Files sort by their number, which rises over restarts, so that a clock set back disorders nothing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Segment {
    pub(super) number: u64,
    pub(super) path: PathBuf,
}

/// The files of a directory, oldest first. What has another name is no file of the log.
pub(super) fn segments(directory: &Path) -> io::Result<Vec<Segment>> {
    let mut segments = vec![];
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        let stem = name.and_then(|name| name.strip_prefix("audit-")?.strip_suffix(".jsonl"));
        if let Some(number) = stem.and_then(|stem| stem.rsplit_once('-')?.1.parse().ok()) {
            segments.push(Segment { number, path });
        }
    }
    segments.sort();
    Ok(segments)
}

/// The file that is written now.
pub(super) struct Log {
    directory: PathBuf,
    number: u64,
    file: File,
    /// Length up to which the file holds whole lines.
    good: u64,
    /// Whether the file may end in half a line.
    torn: bool,
    file_bytes: u64,
    files: usize,
}

impl Log {
    /// Opens the newest file to go on with it, or the first one.
    pub(super) fn open(directory: &Path, file_bytes: u64, files: usize) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        let (number, mut file) = match segments(directory)?.pop() {
            Some(Segment { number, path }) => (number, OpenOptions::new().read(true).append(true).open(path)?),
            None => (1, create(directory, 1)?),
        };
        let good = file.metadata()?.len();
        // A process that was killed amid a line left it so; readers skip it once a line break separates it.
        let torn = good > 0 && {
            let mut last = [0];
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
            last != *b"\n"
        };
        Ok(Self { directory: directory.to_owned(), number, file, good, torn, file_bytes, files: files.max(1) })
    }

    /// Appends whole lines, all or none, and syncs them where that is wanted. After an error nothing of them counts as
    /// written, and the next call may succeed.
    pub(super) fn append(&mut self, lines: &[u8], sync: bool) -> io::Result<()> {
        if self.good >= self.file_bytes
            && let Err(why) = self.rotate()
        {
            warn!(%why, "the audit log goes on in a file that is already full");
        }
        let result = self.write(lines).and_then(|written| {
            if sync {
                self.file.sync_data()?;
            }
            Ok(written)
        });
        match result {
            Ok(written) => {
                self.good += written;
                if std::mem::take(&mut self.torn)
                    && let Ok(metadata) = self.file.metadata()
                {
                    // Half a line that could not be cut off counts too.
                    self.good = metadata.len();
                }
                Ok(())
            }
            Err(error) => {
                // What is cut off here is written anew, so that a later sync really writes it.
                self.torn = self.file.set_len(self.good).is_err() || self.torn;
                Err(error)
            }
        }
    }

    fn write(&mut self, lines: &[u8]) -> io::Result<u64> {
        let mut written = lines.len() as u64;
        if self.torn {
            self.file.write_all(b"\n")?;
            written += 1;
        }
        self.file.write_all(lines)?;
        Ok(written)
    }

    /// Goes on with a new file and removes the oldest ones.
    fn rotate(&mut self) -> io::Result<()> {
        let file = create(&self.directory, self.number + 1)?;
        self.file.sync_data()?;
        self.file = file;
        self.number += 1;
        self.good = 0;
        self.torn = false;
        let segments = segments(&self.directory)?;
        for old in &segments[..segments.len().saturating_sub(self.files)] {
            std::fs::remove_file(&old.path)?;
        }
        Ok(())
    }
}

fn create(directory: &Path, number: u64) -> io::Result<File> {
    let name = format!("audit-{}-{number:06}.jsonl", clock::now().strftime("%Y%m%dT%H%M%SZ"));
    let file = OpenOptions::new().read(true).append(true).create_new(true).mode(0o600).open(directory.join(name))?;
    // A synced line in a file whose name is lost is lost.
    File::open(directory)?.sync_all()?;
    Ok(file)
}
