//! Verifying the audit log: whether every line is as it was written, and none is missing.

use std::io;
use std::path::Path;

use serde::Serialize;

use super::chain::{ChainKey, Head, Link, Mac};
use super::files::{Lines, Piece, Segment, oldest_kept, oldest_said, segments};

/// Problems that are told one by one; beyond them they are only counted.
const MAX_PROBLEMS: usize = 100;

/// What a verification found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Verification {
    /// Whether every line is as it was written and none is missing, as far back as the log goes.
    pub intact: bool,
    /// Files read.
    pub files: usize,
    /// Lines that stand where they were written.
    pub lines: u64,
    /// Number of the oldest line; older ones went with their files.
    pub first: u64,
    /// Number of the newest line.
    pub last: u64,
    /// Lines that were cut in half when the process was killed. They were acknowledged to nobody.
    pub torn: u64,
    /// Lines that are lost, and with which somebody accepted to go on: first and last of each range.
    pub accepted_losses: Vec<(u64, u64)>,
    /// What is wrong; the first hundred.
    pub problems: Vec<Problem>,
    /// How much is wrong.
    pub problem_count: usize,
}

/// Something wrong with the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// Name of the file; empty where it is about the whole log.
    pub file: String,
    /// Line in the file, from 1; 0 where it is about the whole file.
    pub line: u64,
    /// What is wrong.
    pub what: String,
}

/// Verifies the files of a directory. `seen` is where the chain was when last it was looked at, and `kept` how many files
/// are kept: older ones go, others do not. Blocks, and reads everything, in bounded memory.
pub fn verify(directory: &Path, key: &ChainKey, seen: Head, kept: usize) -> io::Result<Verification> {
    let mut segments = segments(directory)?;
    if missing_at_the_beginning(&segments, key, kept).is_some() {
        // The writer may have gone on to another file while the directory was read.
        segments = super::files::segments(directory)?;
    }
    let mut walk = Walk { directory, kept, key, seen, head: None, found: Verification::default() };
    if let Some((first, last)) = missing_at_the_beginning(&segments, key, kept) {
        walk.problem("", 0, format!("files {first} to {last} are missing"));
    }
    for (at, segment) in segments.iter().enumerate() {
        if let Some(before) = at.checked_sub(1).map(|at| segments[at].number) {
            let between = segment.number - before;
            if between == 0 {
                walk.problem(&name(segment), 0, format!("there is another file {before}"));
            } else if between > 1 {
                walk.problem("", 0, format!("files {} to {} are missing", before + 1, segment.number - 1));
            }
        }
        walk.file(segment)?;
    }
    walk.end();
    Ok(walk.found)
}

/// The oldest files that should be there and are not: first and last.
fn missing_at_the_beginning(segments: &[Segment], key: &ChainKey, kept: usize) -> Option<(u64, u64)> {
    let (first, last) = (segments.first()?.number, segments.last()?.number);
    // What went while fewer were kept is not missing. Of a file that has no first line yet nothing is said.
    let expected = oldest_kept(last, kept).max(oldest_said(segments, key).unwrap_or_default());
    (first > expected).then(|| (expected, first - 1))
}

fn name(segment: &Segment) -> String {
    segment.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// On the way through the lines.
struct Walk<'a> {
    directory: &'a Path,
    kept: usize,
    key: &'a ChainKey,
    seen: Head,
    // The line before; unknown before the first.
    head: Option<Head>,
    found: Verification,
}

impl Walk<'_> {
    fn problem(&mut self, file: &str, line: u64, what: impl Into<String>) {
        self.found.problem_count += 1;
        if self.found.problems.len() < MAX_PROBLEMS {
            self.found.problems.push(Problem { file: file.to_owned(), line, what: what.into() });
        }
    }

    fn file(&mut self, segment: &Segment) -> io::Result<()> {
        let name = name(segment);
        let mut lines = match Lines::open(&segment.path) {
            Ok(lines) => lines,
            Err(why) if why.kind() == io::ErrorKind::NotFound => {
                // Removed by the writer meanwhile, where it is so old.
                let newest = segments(self.directory)?.last().map_or(0, |newest| newest.number);
                if newest.saturating_sub(self.kept as u64) < segment.number {
                    self.problem(&name, 0, "the file was removed just now");
                } else {
                    // How it ended is said by the next one only.
                    self.head = None;
                }
                return Ok(());
            }
            Err(why) => {
                self.problem(&name, 0, format!("the file cannot be read: {why}"));
                return Ok(());
            }
        };
        self.found.files += 1;
        let (mut number, mut links) = (0, 0);
        loop {
            let (text, ended) = match lines.next() {
                Ok(Some(Piece::Line(text))) => (text, true),
                // It may just be being written.
                Ok(Some(Piece::End(text))) => (text, false),
                Ok(Some(Piece::TooLong)) => {
                    number += 1;
                    self.problem(&name, number, "a line longer than any that is written");
                    continue;
                }
                Ok(None) => break,
                Err(why) => {
                    self.problem(&name, number + 1, format!("the file cannot be read: {why}"));
                    break;
                }
            };
            number += 1;
            match Link::parse(text) {
                Some(link) if links == 0 => self.opening(&name, number, segment.number, link),
                Some(link) => self.link(&name, number, link),
                None if text.is_empty() => continue,
                // A whole object that is no link was put there by somebody else.
                None if serde_json::from_slice::<serde::de::IgnoredAny>(text).is_ok() => {
                    self.problem(&name, number, "a line that is no part of the chain");
                    continue;
                }
                None => {
                    self.found.torn += u64::from(ended);
                    continue;
                }
            }
            links += 1;
        }
        Ok(())
    }

    /// The first line of a file says where the one before ended.
    fn opening(&mut self, name: &str, number: u64, file: u64, link: Link<'_>) {
        let Some(opening) = link.opening() else {
            self.problem(name, number, "the file does not begin with its first line");
            return self.accept(link, link.claims.seq);
        };
        if opening.file != file {
            self.problem(name, number, format!("this is file {}, under the number of another", opening.file));
        }
        let before = self.head.unwrap_or(opening.previous);
        if before != opening.previous {
            let what = format!(
                "the file before ends with line {}, but it ended with line {}",
                before.seq, opening.previous.seq
            );
            self.problem(name, number, what);
        }
        if !link.follows(self.key, opening.previous.mac) {
            self.problem(name, number, "the line was changed, or written with another key");
        } else if let Some(lost) = opening.lost_up_to {
            self.found.accepted_losses.push((opening.previous.seq.saturating_add(1), lost));
        }
        let expected = opening.lost_up_to.unwrap_or(opening.previous.seq).saturating_add(1);
        self.accept(link, expected);
    }

    fn link(&mut self, name: &str, number: u64, link: Link<'_>) {
        let Head { seq, mac } = self.head.unwrap_or_default();
        let claimed = link.claims.seq;
        // Nothing is known of either number yet.
        let next = seq.saturating_add(1);
        if claimed > next {
            self.problem(name, number, format!("lines {next} to {} are missing before this one", claimed - 1));
        } else if claimed < next {
            self.problem(name, number, format!("line {claimed} stands where line {next} belongs"));
        } else if !link.follows(self.key, mac) {
            self.problem(name, number, format!("line {claimed} was changed, or the one before it was"));
        }
        self.accept(link, claimed);
    }

    /// Goes on from a line, whatever was wrong with it.
    fn accept(&mut self, link: Link<'_>, expected: u64) {
        let Head { seq, mac } = link.claims;
        if seq != expected {
            self.problem("", 0, format!("line {seq} stands where line {expected} belongs"));
        }
        if seq == self.seen.seq && mac != self.seen.mac {
            self.problem("", 0, format!("line {seq} is not the one that was written"));
        }
        if self.found.lines == 0 {
            self.found.first = seq;
        }
        self.found.lines += 1;
        self.head = Some(link.claims);
    }

    fn end(&mut self) {
        let last = self.head.map_or(0, |head| head.seq);
        if last < self.seen.seq {
            let what = format!("the log ends with line {last}, but line {} was written: it was cut off", self.seen.seq);
            self.problem("", 0, what);
        }
        self.found.last = last;
        self.found.intact = self.found.problem_count == 0;
        // A chain of nothing is as it should be only where nothing was ever seen.
        debug_assert!(self.head.is_some() || self.seen.mac == Mac::default() || !self.found.intact);
    }
}

#[cfg(test)]
mod tests;
