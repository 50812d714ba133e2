//! Reading the audit log.

use std::collections::VecDeque;
use std::io;
use std::path::Path;

use jiff::Timestamp;

use super::files::{Lines, Piece, segments};
use super::{Record, Stage};

/// Bytes of lines that are read into records at most; the oldest are left out. Ten thousand usual records are half of it.
const MOST: usize = 16 << 20;

/// How the line begins that a file begins with; it is no record.
const FILE_OPENING: &str = "{\"chain\":";

/// Which records are wanted: those that meet every condition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Account.
    pub user: Option<String>,
    /// Cluster.
    pub cluster: Option<String>,
    /// Project.
    pub project: Option<String>,
    /// Verb.
    pub verb: Option<String>,
    /// Namespace.
    pub namespace: Option<String>,
    /// Only what we refused.
    pub refused: bool,
    /// Not before this.
    pub since: Option<Timestamp>,
    /// Before this.
    pub until: Option<Timestamp>,
    /// The newest so many.
    pub limit: usize,
}

/// Reads the newest records that meet a filter from the directory of the log; the newest comes last. Beyond 16 MiB the
/// oldest are left out.
///
/// Lines that are no records are skipped: a process that was killed may have left half of one, and the last one may
/// just be being written; so is what is no regular file. Records of the last second may still be in memory
/// ([`super::Audit::flush`]). Blocks, and reads whole files: not for async code.
pub fn read(directory: &Path, filter: &Filter) -> io::Result<Vec<Record>> {
    let wanted = Wanted::new(filter);
    let mut found = Found { records: VecDeque::new(), bytes: 0 };
    for segment in segments(directory)?.into_iter().rev() {
        let missing = filter.limit - found.records.len();
        if missing == 0 || found.bytes >= MOST {
            break;
        }
        let lines = match Lines::open(&segment.path) {
            Ok(lines) => lines,
            // Removed by the writer since the directory was read; all older ones are too.
            Err(error) if error.kind() == io::ErrorKind::NotFound => break,
            // Verifying tells of it.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => continue,
            Err(error) => return Err(error),
        };
        let Scan { found: Found { mut records, bytes }, reaches_back } =
            scan(lines, &wanted, missing, MOST - found.bytes)?;
        found.bytes += bytes;
        records.append(&mut found.records);
        found.records = records;
        if reaches_back {
            break;
        }
    }
    Ok(found.records.into_iter().map(|(record, _)| record).collect())
}

/// Records with the bytes of their lines, the newest last.
struct Found {
    records: VecDeque<(Record, usize)>,
    bytes: usize,
}

/// What a file gave.
struct Scan {
    found: Found,
    /// Whether the file begins before `since`, so that older files have nothing to add.
    reaches_back: bool,
}

fn scan(mut lines: Lines, wanted: &Wanted<'_>, limit: usize, most: usize) -> io::Result<Scan> {
    let mut scan = Scan { found: Found { records: VecDeque::new(), bytes: 0 }, reaches_back: false };
    let mut first = true;
    while let Some(piece) = lines.next()? {
        let (Piece::Line(line) | Piece::End(line)) = piece else { continue };
        let Ok(text) = std::str::from_utf8(line) else { continue };
        if text.starts_with(FILE_OPENING) {
            continue;
        }
        if first {
            first = false;
            scan.reaches_back = wanted.begins_before_since(text);
        }
        if !wanted.may_match(text) {
            continue;
        }
        let Ok(record) = serde_json::from_str::<Record>(text) else { continue };
        if wanted.matches(&record) {
            let Found { records, bytes } = &mut scan.found;
            records.push_back((record, text.len()));
            *bytes += text.len();
            while records.len() > limit || *bytes > most {
                let Some((_, length)) = records.pop_front() else { break };
                *bytes -= length;
            }
        }
    }
    Ok(scan)
}

/// A filter with the texts that a line must contain to meet it: parsing every line would take ten times as long.
struct Wanted<'a> {
    filter: &'a Filter,
    needles: Vec<String>,
}

impl<'a> Wanted<'a> {
    fn new(filter: &'a Filter) -> Self {
        let Filter { user, cluster, project, verb, namespace, refused, since: _, until: _, limit: _ } = filter;
        let fields =
            [("user", user), ("cluster", cluster), ("project", project), ("verb", verb), ("namespace", namespace)];
        let mut needles: Vec<String> = fields
            .into_iter()
            .filter_map(|(name, value)| Some(format!("\"{name}\":{}", serde_json::Value::from(value.as_deref()?))))
            .collect();
        if *refused {
            needles.push(format!("\"stage\":\"{}\"", Stage::Refused.as_str()));
        }
        Self { filter, needles }
    }

    fn may_match(&self, line: &str) -> bool {
        self.needles.iter().all(|needle| line.contains(needle.as_str()))
    }

    fn matches(&self, record: &Record) -> bool {
        let Filter { user, cluster, project, verb, namespace, refused, since, until, limit: _ } = self.filter;
        let is = |wanted: &Option<String>, found: &str| wanted.as_deref().is_none_or(|wanted| wanted == found);
        let time_ok = match (since, until) {
            (None, None) => true,
            _ => record
                .time
                .parse::<Timestamp>()
                .is_ok_and(|time| since.is_none_or(|since| time >= since) && until.is_none_or(|until| time < until)),
        };
        time_ok
            && is(user, &record.what.user)
            && is(cluster, &record.what.cluster)
            && is(project, &record.what.project)
            && is(verb, &record.what.verb)
            && is(namespace, &record.what.namespace)
            && (!refused || record.stage == Stage::Refused)
    }

    fn begins_before_since(&self, line: &str) -> bool {
        let Some(since) = self.filter.since else { return false };
        serde_json::from_str::<Record>(line)
            .is_ok_and(|record| record.time.parse::<Timestamp>().is_ok_and(|time| time < since))
    }
}

#[cfg(test)]
mod tests;
