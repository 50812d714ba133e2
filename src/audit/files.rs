//! The files of the audit log: names, appending, rotation.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, OFlags, fallocate};

use super::chain::{ChainKey, Head, Link};
use crate::clock;

/// Bytes at the end of a file in which its last whole line is looked for first.
const TAIL: u64 = 256 << 10;
/// Longest line that is read into memory, in bytes. The writer's longest is less than half of it.
pub(super) const MAX_LINE: usize = 128 << 10;
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
        let number = stem.and_then(|stem| stem.rsplit_once('-')).map(|(_, number)| number);
        let Some(number) = number.filter(|number| number.bytes().all(|b| b.is_ascii_digit())) else { continue };
        if let Ok(number) = number.parse() {
            segments.push(Segment { number, path });
        }
    }
    segments.sort();
    Ok(segments)
}

/// Opens a file of the log. What is no regular file (a link, a pipe, a folder) was put there by somebody else: it is
/// neither followed nor waited for, and the error is [`io::ErrorKind::InvalidInput`].
fn open_regular(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let strange = || io::Error::new(io::ErrorKind::InvalidInput, format!("{} is no regular file", path.display()));
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = match options.custom_flags(flags.bits().cast_signed()).open(path) {
        Ok(file) => file,
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Err(why),
        Err(why) if std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_file()) => return Err(why),
        Err(_) => return Err(strange()),
    };
    if file.metadata()?.is_file() { Ok(file) } else { Err(strange()) }
}

/// A line as it stands in a file, without its line break.
pub(super) enum Piece<'a> {
    /// One that ends in a line break.
    Line(&'a [u8]),
    /// What the file ends with after the last line break.
    End(&'a [u8]),
    /// One longer than [`MAX_LINE`], which nobody of us wrote.
    TooLong,
}

/// The lines of a file, one after another in bounded memory.
pub(super) struct Lines {
    reader: BufReader<File>,
    line: Vec<u8>,
}

impl Lines {
    /// From the beginning of a file.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = open_regular(OpenOptions::new().read(true), path)?;
        Ok(Self { reader: BufReader::with_capacity(256 << 10, file), line: vec![] })
    }

    /// The next one; `None` where the file ends.
    pub(super) fn next(&mut self) -> io::Result<Option<Piece<'_>>> {
        self.line.clear();
        let read = (&mut self.reader).take(MAX_LINE as u64 + 1).read_until(b'\n', &mut self.line)?;
        if read == 0 {
            return Ok(None);
        }
        if let Some(line) = self.line.strip_suffix(b"\n") {
            return Ok(Some(Piece::Line(line)));
        }
        if read <= MAX_LINE {
            return Ok(Some(Piece::End(&self.line)));
        }
        self.reader.skip_until(b'\n')?;
        Ok(Some(Piece::TooLong))
    }
}

/// The end of a chain in a file: what is known of it from some place in the file on.
struct Ending {
    /// The last line that was written with the key.
    good: Option<Head>,
    /// Whether there are lines of any chain.
    any: bool,
}

/// Looks for the end of the chain from an offset on. A line counts where its MAC follows from one before it, so that
/// nobody without the key says where the chain goes on.
fn ending(path: &Path, key: &ChainKey, from: u64) -> io::Result<Ending> {
    let mut lines = Lines::open(path)?;
    lines.reader.seek(SeekFrom::Start(from))?;
    let (mut ending, mut before) = (Ending { good: None, any: false }, None::<Head>);
    while let Some(piece) = lines.next()? {
        // The last line may lack nothing but its line break.
        let (Piece::Line(text) | Piece::End(text)) = piece else { continue };
        let Some(link) = Link::parse(text) else { continue };
        ending.any = true;
        let opens = || link.opening().is_some_and(|opening| link.follows(key, opening.previous.mac));
        if [before, ending.good].into_iter().flatten().any(|head| link.follows(key, head.mac)) || opens() {
            ending.good = Some(link.claims);
        }
        before = Some(link.claims);
    }
    Ok(ending)
}

/// The end of the chain in the files, and what the newest file has of it.
fn last_link(segments: &[Segment], key: &ChainKey) -> io::Result<(Option<Head>, Ending)> {
    let mut newest = None;
    for Segment { path, .. } in segments.iter().rev() {
        let from = std::fs::symlink_metadata(path)?.len().saturating_sub(TAIL);
        let mut found = ending(path, key, from)?;
        if found.good.is_none() && from > 0 {
            found = ending(path, key, 0)?;
        }
        let good = found.good;
        let newest = newest.get_or_insert(found);
        if good.is_some() {
            return Ok((good, Ending { ..*newest }));
        }
    }
    Ok((None, newest.unwrap_or(Ending { good: None, any: false })))
}

/// The oldest file that is kept where the newest has a number.
pub(super) fn oldest_kept(newest: u64, files: usize) -> u64 {
    newest.saturating_sub(files as u64).saturating_add(1)
}

/// The oldest file that is there, by what the newest first line says that was written with the key. What is found in the
/// directory says nothing of it: that is to be judged. A file that cannot be read says nothing either.
pub(super) fn oldest_said(segments: &[Segment], key: &ChainKey) -> Option<u64> {
    segments.iter().rev().find_map(|Segment { number, path }| {
        let mut lines = Lines::open(path).ok()?;
        let (Piece::Line(text) | Piece::End(text)) = lines.next().ok()?? else { return None };
        let link = Link::parse(text)?;
        let opening = link.opening().filter(|said| said.file == *number && link.follows(key, said.previous.mac))?;
        opening.oldest
    })
}

/// The file that is written now.
pub(super) struct Log {
    directory: PathBuf,
    number: u64,
    /// Number of the oldest file that is kept.
    oldest: u64,
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
    pub(super) fn open(
        directory: &Path,
        file_bytes: u64,
        files: usize,
        key: &ChainKey,
    ) -> io::Result<(Self, Option<Head>)> {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        let mut segments = segments(directory)?;
        let (head, newest) = last_link(&segments, key)?;
        let first = || segments.first().map_or(1, |first| first.number);
        let oldest = oldest_said(&segments, key).unwrap_or_else(first);
        let (number, mut file) = match segments.pop() {
            Some(Segment { number, path }) => {
                (number, open_regular(OpenOptions::new().read(true).append(true), &path)?)
            }
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
        let opened = newest.good.is_some();
        let directory = directory.to_owned();
        let files = files.max(1);
        let mut log = Self { directory, number, oldest, file, good, torn, opened, file_bytes, files };
        if newest.any && !opened {
            // Nothing in it was written with the key: it stays as it is.
            log.rotate()?;
        }
        Ok((log, head))
    }

    /// Goes on in a new file where this one is full.
    pub(super) fn make_room(&mut self) -> io::Result<()> {
        if self.good >= self.file_bytes { self.rotate() } else { Ok(()) }
    }

    /// The number of the file and of the oldest one that is kept beside it, where its first line is not written yet.
    pub(super) fn unopened(&self) -> Option<(u64, u64)> {
        (!self.opened).then_some((self.number, self.oldest))
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
        let number = self.number.checked_add(1).ok_or(io::ErrorKind::FileTooLarge)?;
        self.file.sync_data()?;
        // Last of what may fail: no file is left over that a later attempt would make again under another name.
        self.file = create(&self.directory, number)?;
        self.number = number;
        self.oldest = self.oldest.max(oldest_kept(number, self.files));
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
        let file = open_regular(OpenOptions::new().write(true).create(true).truncate(false).mode(0o600), &path).ok();
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
    let path = directory.join(name);
    let file = OpenOptions::new().read(true).append(true).create_new(true).mode(0o600).open(&path)?;
    // A synced line in a file whose name is lost is lost.
    if let Err(why) = File::open(directory).and_then(|directory| directory.sync_all()) {
        // Else the next attempt would make a second file of the same number.
        let _ = std::fs::remove_file(&path);
        return Err(why);
    }
    Ok(file)
}
