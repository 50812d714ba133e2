//! The files of the audit log: names, appending, rotation.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate};

use super::chain::{Head, Link};
use crate::clock;

/// Bytes at the end of a file in which its last whole line is looked for. The longest line is a tenth of it.
const TAIL: u64 = 256 << 10;
/// Name of the file that keeps space free.
const RESERVE: &str = "reserve";

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

/// The end of the chain in the files, and whether the newest file has any line of it.
fn last_link(segments: &[Segment]) -> io::Result<(Option<Head>, bool)> {
    for (at, segment) in segments.iter().rev().enumerate() {
        let mut file = File::open(&segment.path)?;
        let from = file.metadata()?.len().saturating_sub(TAIL);
        file.seek(SeekFrom::Start(from))?;
        let mut tail = vec![];
        file.read_to_end(&mut tail)?;
        let mut links = tail.split_inclusive(|b| *b == b'\n').filter_map(|line| Link::parse(line.strip_suffix(b"\n")?));
        if let Some(link) = links.next_back() {
            return Ok((Some(link.claims), at == 0));
        }
    }
    Ok((None, false))
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
    /// Whether the file has its first line.
    opened: bool,
    file_bytes: u64,
    files: usize,
}

impl Log {
    /// Opens the newest file to go on with it, or the first one; with the end of the chain as the files have it.
    pub(super) fn open(directory: &Path, file_bytes: u64, files: usize) -> io::Result<(Self, Option<Head>)> {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        let mut segments = segments(directory)?;
        let (head, mut opened) = last_link(&segments)?;
        let (number, mut file) = match segments.pop() {
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
        // Before the first whole line of a file there is only half of one.
        opened &= good > 0;
        let directory = directory.to_owned();
        Ok((Self { directory, number, file, good, torn, opened, file_bytes, files: files.max(1) }, head))
    }

    /// Goes on in a new file where this one is full.
    pub(super) fn make_room(&mut self) -> io::Result<()> {
        if self.good >= self.file_bytes { self.rotate() } else { Ok(()) }
    }

    /// The number of the file, where its first line is not written yet.
    pub(super) fn unopened(&self) -> Option<u64> {
        (!self.opened).then_some(self.number)
    }

    /// Appends whole lines, all or none, and syncs them where that is wanted. After an error nothing of them counts as
    /// written, and the next call may succeed.
    pub(super) fn append(&mut self, lines: &[u8], sync: bool) -> io::Result<()> {
        let result = self.write(lines).and_then(|written| {
            if sync {
                self.file.sync_data()?;
            }
            Ok(written)
        });
        match result {
            Ok(written) => {
                self.opened |= written > 0;
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

    /// Goes on in a new file, unless this one is still empty.
    pub(super) fn begin_file(&mut self) -> io::Result<()> {
        if self.good == 0 && !self.opened { Ok(()) } else { self.rotate() }
    }

    /// Goes on with a new file and removes the oldest ones.
    fn rotate(&mut self) -> io::Result<()> {
        let file = create(&self.directory, self.number + 1)?;
        self.file.sync_data()?;
        self.file = file;
        self.number += 1;
        self.good = 0;
        self.torn = false;
        self.opened = false;
        let segments = segments(&self.directory)?;
        for old in &segments[..segments.len().saturating_sub(self.files)] {
            std::fs::remove_file(&old.path)?;
        }
        Ok(())
    }
}

/// Space that is kept free, so that what is under way when the disk fills up can still be recorded.
pub(super) struct Reserve {
    file: Option<File>,
    bytes: u64,
    held: bool,
}

impl Reserve {
    pub(super) fn new(directory: &Path, bytes: u64) -> Self {
        let path = directory.join(RESERVE);
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path).ok();
        let mut reserve = Self { file, bytes, held: false };
        reserve.hold();
        reserve
    }

    /// Takes the space, where it is not taken; returns whether it is.
    pub(super) fn hold(&mut self) -> bool {
        if self.bytes == 0 {
            return true;
        }
        if !self.held
            && let Some(file) = &self.file
        {
            self.held = fallocate(file, FallocateFlags::empty(), 0, self.bytes).is_ok();
        }
        self.held
    }

    /// Gives the space back; returns whether there was any.
    pub(super) fn release(&mut self) -> bool {
        let released = std::mem::take(&mut self.held);
        released && self.file.as_ref().is_some_and(|file| file.set_len(0).is_ok())
    }
}

fn create(directory: &Path, number: u64) -> io::Result<File> {
    let name = format!("audit-{}-{number:06}.jsonl", clock::now().strftime("%Y%m%dT%H%M%SZ"));
    let file = OpenOptions::new().read(true).append(true).create_new(true).mode(0o600).open(directory.join(name))?;
    // A synced line in a file whose name is lost is lost.
    File::open(directory)?.sync_all()?;
    Ok(file)
}
