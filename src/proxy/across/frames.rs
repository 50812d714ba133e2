//! Frames: the events of several watches, put together to one.
//!
//! A client remembers the revision of every event and goes on from the last one. In a merged watch that would be wrong:
//! the event of one namespace may be newer than what another namespace has still to say. So what is written ends with a
//! bookmark at the least revision that all members have passed, and that is what the client remembers. It may see
//! events again after going on from there, and never misses one.
//!
//! A connection may break between an event and that bookmark, and some clients take none. So it is told of each event
//! that went ahead of others ([`Ahead`]); who goes on from one begins where all were at that time.
//!
//! Pure: bytes in, bytes out.

use std::borrow::Cow;

use bytes::{Buf as _, Bytes, BytesMut};
use serde::Deserialize;
use serde_json::Value;

use super::merge::brief;

/// Longest event, in bytes. The API server takes objects up to about 3 MiB.
pub const LONGEST: usize = 16 * 1024 * 1024;
/// Longest mark of the end of the initial events. It holds an empty object, or the columns of an empty Table.
const LONGEST_MARK: usize = 256 * 1024;
/// Longest `kind` and `apiVersion`, which are remembered; a group has at most 253 bytes.
const LONGEST_NAME: usize = 512;
/// What is left after a longer line gets memory of its own.
const LONG: usize = 64 * 1024;

/// Why a stream of events is not merged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// An event without end.
    #[error("the cluster sent an event of more than {LONGEST} bytes")]
    TooLong,
    /// No event of a watch.
    #[error("the cluster sent something that is no event: {0}")]
    NoEvent(String),
}

/// Cuts a stream of JSON lines.
#[derive(Debug, Default)]
pub struct Lines {
    buffer: BytesMut,
    // Everything before has been searched.
    searched: usize,
}

impl Lines {
    /// Takes in what arrived.
    pub fn push(&mut self, data: &[u8]) {
        self.buffer.extend_from_slice(data);
    }

    /// The next whole line, with its end.
    pub fn next(&mut self) -> Result<Option<Bytes>, FrameError> {
        loop {
            let Some(at) = self.buffer[self.searched..].iter().position(|b| *b == b'\n') else {
                self.searched = self.buffer.len();
                return if self.buffer.len() > LONGEST { Err(FrameError::TooLong) } else { Ok(None) };
            };
            let line = self.buffer.split_to(self.searched + at + 1);
            self.searched = 0;
            if line.len() > LONG {
                // Else one long event would be held in memory for as long as the watch goes on.
                self.buffer = BytesMut::from(&self.buffer[..]);
            }
            if line.iter().any(|b| !b.is_ascii_whitespace()) {
                return Ok(Some(line.freeze()));
            }
        }
    }

    /// Bytes that wait for the end of their line.
    pub fn len(&self) -> usize {
        self.buffer.len()
    }

    /// Whether nothing is left over.
    pub fn is_empty(&self) -> bool {
        !self.buffer.has_remaining()
    }
}

/// What an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `ADDED`, `MODIFIED` or `DELETED`.
    Change,
    /// `BOOKMARK`; `true` at the end of the initial events.
    Bookmark(bool),
    /// `ERROR`: the watch is over.
    Error,
}

/// What is read of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// What it is.
    pub kind: Kind,
    /// `kind` and `apiVersion` of its object.
    pub form: (String, String),
    /// Revision of its object.
    pub revision: Option<u64>,
}

#[derive(Deserialize)]
struct RawEvent<'a> {
    #[serde(borrow)]
    r#type: Cow<'a, str>,
    #[serde(borrow)]
    object: RawObject<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawObject<'a> {
    #[serde(borrow, default)]
    kind: Cow<'a, str>,
    #[serde(borrow, default)]
    api_version: Cow<'a, str>,
    #[serde(borrow, default)]
    metadata: RawMetadata<'a>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawMetadata<'a> {
    #[serde(borrow)]
    resource_version: Cow<'a, str>,
    #[serde(borrow)]
    annotations: Option<RawAnnotations<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawAnnotations<'a> {
    // Marks the end of the initial events (KEP-3157).
    #[serde(borrow, rename = "k8s.io/initial-events-end")]
    initial_events_end: Option<Cow<'a, str>>,
}

impl Head {
    /// Reads the head of an event.
    pub fn read(line: &[u8]) -> Result<Self, FrameError> {
        // The reader takes an array for an object, field by field in their order.
        if line.trim_ascii_start().first() != Some(&b'{') {
            return Err(FrameError::NoEvent("no object".into()));
        }
        let RawEvent { r#type, object } =
            serde_json::from_slice(line).map_err(|why| FrameError::NoEvent(brief(why)))?;
        let RawObject { kind, api_version, metadata } = object;
        let ends = metadata.annotations.and_then(|a| a.initial_events_end).is_some_and(|v| v == "true");
        let event = match &*r#type {
            "ADDED" | "MODIFIED" | "DELETED" => Kind::Change,
            "BOOKMARK" => Kind::Bookmark(ends),
            "ERROR" => Kind::Error,
            other => return Err(FrameError::NoEvent(brief(format_args!("type {other:?}")))),
        };
        let revision = metadata.resource_version.parse().ok();
        if event == Kind::Bookmark(true) && revision.is_none() {
            return Err(FrameError::NoEvent("the end of the initial events is at no revision".into()));
        }
        if kind.len().max(api_version.len()) > LONGEST_NAME {
            return Err(FrameError::NoEvent("a kind with too long a name".into()));
        }
        Ok(Self { kind: event, form: (kind.into_owned(), api_version.into_owned()), revision })
    }
}

/// Events that went ahead of other members: whoever remembers a revision from `first` to `last` may have seen of some
/// members only what was up to `least`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ahead {
    /// Lowest revision of such an event.
    pub first: u64,
    /// Highest one.
    pub last: u64,
    /// All members had passed this, whichever of the events was the last to arrive.
    pub least: u64,
}

impl Ahead {
    /// Both in one.
    pub fn with(self, other: Self) -> Self {
        Self { first: self.first.min(other.first), last: self.last.max(other.last), least: self.least.min(other.least) }
    }
}

/// Where one member stands.
#[derive(Debug, Clone, Copy, Default)]
struct Member {
    /// It has said everything up to here.
    passed: Option<u64>,
    /// Its initial events are over.
    replayed: bool,
}

/// How a watch is merged.
#[derive(Debug, Clone, Copy)]
pub struct Wishes {
    /// The revision that all members start from, where it is known.
    pub from: Option<u64>,
    /// Whether each member begins with what is there, and says when that is over.
    pub initial_events: bool,
    /// Whether the client takes bookmarks.
    pub bookmarks: bool,
}

/// Puts the events of the members together.
#[derive(Debug)]
pub struct Merge {
    members: Vec<Member>,
    wishes: Wishes,
    // As the events of this watch say it; bookmarks are made in the same form.
    form: Option<(String, String)>,
    // The client remembers a revision that not all members have passed, or an older one than it could.
    remembers: Option<u64>,
    newest: u64,
    ahead: Option<Ahead>,
    out: BytesMut,
    over: bool,
}

impl Merge {
    /// Of so many members.
    pub fn new(members: usize, wishes: Wishes) -> Self {
        let member = Member { passed: wishes.from, replayed: !wishes.initial_events };
        Self {
            members: vec![member; members],
            wishes,
            form: None,
            remembers: wishes.from,
            newest: 0,
            ahead: None,
            out: BytesMut::new(),
            over: false,
        }
    }

    /// Takes in an event of a member.
    pub fn take(&mut self, member: usize, line: &Bytes) -> Result<(), FrameError> {
        let Head { kind, form, revision } = Head::read(line)?;
        match kind {
            Kind::Error => {
                self.out.extend_from_slice(line);
                self.over = true;
            }
            Kind::Change => {
                self.out.extend_from_slice(line);
                self.form = Some(form);
                self.remembers = revision;
                self.newest = self.newest.max(revision.unwrap_or_default());
                // Initial events come in the order of names: their revisions say nothing. Without an end mark nobody can
                // tell them from later ones, until the first bookmark.
                if self.members[member].replayed && self.members[member].passed.is_some() {
                    self.pass(member, revision);
                }
                self.goes_ahead(revision);
            }
            Kind::Bookmark(false) => {
                self.form.get_or_insert(form);
                if self.members[member].replayed {
                    self.pass(member, revision);
                }
            }
            Kind::Bookmark(true) => {
                self.members[member] = Member { passed: revision, replayed: true };
                if self.settled() {
                    self.end_initial(line)?;
                }
            }
        }
        Ok(())
    }

    fn goes_ahead(&mut self, revision: Option<u64>) {
        let (Some(revision), Some(least), true) = (revision, self.least(), self.settled()) else { return };
        if revision > least {
            let here = Ahead { first: revision, last: revision, least };
            self.ahead = Some(self.ahead.map_or(here, |ahead| ahead.with(here)));
        }
    }

    /// What went ahead since the last call. To be known before it is written.
    pub fn take_ahead(&mut self) -> Option<Ahead> {
        self.ahead.take()
    }

    fn pass(&mut self, member: usize, revision: Option<u64>) {
        let passed = &mut self.members[member].passed;
        *passed = (*passed).max(revision);
    }

    /// The last member has said what was there: now the client hears that all have, with that member's own words, which
    /// hold what the client's encoding needs.
    fn end_initial(&mut self, line: &Bytes) -> Result<(), FrameError> {
        let (true, Some(least)) = (self.wishes.bookmarks, self.least()) else { return Ok(()) };
        if line.len() > LONGEST_MARK {
            return Err(FrameError::NoEvent("too long a mark of the end of the initial events".into()));
        }
        let mut event: Value = serde_json::from_slice(line).map_err(|why| FrameError::NoEvent(brief(why)))?;
        let metadata = event.get_mut("object").and_then(|object| object.get_mut("metadata"));
        let Some(metadata) = metadata.and_then(Value::as_object_mut) else {
            return Err(FrameError::NoEvent("the end of the initial events has no metadata".into()));
        };
        metadata.insert("resourceVersion".into(), least.to_string().into());
        self.out.extend_from_slice(event.to_string().as_bytes());
        self.out.extend_from_slice(b"\n");
        self.remembers = Some(least);
        Ok(())
    }

    /// The revision that all members have passed.
    pub fn least(&self) -> Option<u64> {
        self.members.iter().map(|member| member.passed).min().flatten()
    }

    /// The newest revision that the client has seen of an object.
    pub fn newest(&self) -> u64 {
        self.newest.max(self.remembers.unwrap_or_default())
    }

    /// Whether an error has ended the watch.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Bytes that wait to be written.
    pub fn waiting(&self) -> usize {
        self.out.len()
    }

    /// What is to be written now. Ends such that the client may go on from what it remembers.
    pub fn flush(&mut self) -> Option<Bytes> {
        self.bookmark();
        // Taken whole: what is left of it would hold the memory of the longest event for as long as the watch goes on.
        (!self.out.is_empty()).then(|| std::mem::take(&mut self.out).freeze())
    }

    fn bookmark(&mut self) {
        if !self.wishes.bookmarks || !self.settled() || self.over {
            return;
        }
        let (Some(least), Some((kind, api_version))) = (self.least(), &self.form) else { return };
        if self.remembers == Some(least) {
            return;
        }
        let rows = if kind == "Table" { serde_json::json!([]) } else { Value::Null };
        let mut object = serde_json::json!({
            "kind": kind,
            "apiVersion": api_version,
            "metadata": {"resourceVersion": least.to_string()},
        });
        if !rows.is_null() {
            object["columnDefinitions"] = serde_json::json!([]);
            object["rows"] = rows;
        }
        let event = serde_json::json!({"type": "BOOKMARK", "object": object});
        self.out.extend_from_slice(event.to_string().as_bytes());
        self.out.extend_from_slice(b"\n");
        self.remembers = Some(least);
    }

    /// Whether all members have said what was there at the beginning.
    pub fn settled(&self) -> bool {
        self.members.iter().all(|member| member.replayed)
    }

    /// Whether the client remembers a revision that not all have passed: going on from there, it would miss something.
    pub fn misleads(&self) -> bool {
        self.remembers.is_some() && !self.resumable()
    }

    /// Whether the client may go on from what it remembers, once everything is written.
    pub fn resumable(&self) -> bool {
        self.settled() && self.remembers.is_some_and(|remembered| self.least() >= Some(remembered))
    }
}

/// The event that tells a client to list anew.
pub fn expired(why: &str) -> Bytes {
    let status = crate::status::Status::expired(why).to_json();
    Bytes::from(format!("{}\n", serde_json::json!({"type": "ERROR", "object": status})))
}

#[cfg(test)]
#[path = "../../../fuzz/targets/watch.rs"]
mod fuzz;

#[cfg(test)]
mod tests;
