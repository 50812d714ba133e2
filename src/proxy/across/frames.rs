//! Frames: the events of several watches, put together to one.
//!
//! A client remembers the revision of every event and goes on from the last one. In a merged watch that would be wrong:
//! the event of one namespace may be newer than what another namespace has still to say. So what is written ends with a
//! bookmark at the least revision that all members have passed, and that is what the client remembers. It may see
//! events again after going on from there, and never misses one.
//!
//! Pure: bytes in, bytes out.

use std::borrow::Cow;
use std::collections::BTreeMap;

use bytes::{Buf as _, Bytes, BytesMut};
use serde::Deserialize;

/// Longest event, in bytes. The API server takes objects up to about 3 MiB.
pub const LONGEST: usize = 16 * 1024 * 1024;

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
    annotations: Option<BTreeMap<Cow<'a, str>, Cow<'a, str>>>,
}

/// Marks the end of the initial events (KEP-3157).
const END_OF_INITIAL: &str = "k8s.io/initial-events-end";

impl Head {
    /// Reads the head of an event.
    pub fn read(line: &[u8]) -> Result<Self, FrameError> {
        let RawEvent { r#type, object } =
            serde_json::from_slice(line).map_err(|why| FrameError::NoEvent(why.to_string()))?;
        let RawObject { kind, api_version, metadata } = object;
        let ends = metadata.annotations.is_some_and(|a| a.get(END_OF_INITIAL).is_some_and(|v| v == "true"));
        let event = match &*r#type {
            "ADDED" | "MODIFIED" | "DELETED" => Kind::Change,
            "BOOKMARK" => Kind::Bookmark(ends),
            "ERROR" => Kind::Error,
            other => return Err(FrameError::NoEvent(format!("type {other:?}"))),
        };
        let revision = metadata.resource_version.parse().ok();
        Ok(Self { kind: event, form: (kind.into_owned(), api_version.into_owned()), revision })
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
                    self.end_initial(line);
                }
            }
        }
        Ok(())
    }

    fn pass(&mut self, member: usize, revision: Option<u64>) {
        let passed = &mut self.members[member].passed;
        *passed = (*passed).max(revision);
    }

    /// The last member has said what was there: now the client hears that all have, with that member's own words, which
    /// hold what the client's encoding needs.
    fn end_initial(&mut self, line: &Bytes) {
        if !self.wishes.bookmarks {
            return;
        }
        let Ok(mut event) = serde_json::from_slice::<serde_json::Value>(line) else { return };
        let Some(least) = self.least() else { return };
        event["object"]["metadata"]["resourceVersion"] = least.to_string().into();
        self.out.extend_from_slice(event.to_string().as_bytes());
        self.out.extend_from_slice(b"\n");
        self.remembers = Some(least);
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
        (!self.out.is_empty()).then(|| self.out.split().freeze())
    }

    fn bookmark(&mut self) {
        if !self.wishes.bookmarks || !self.settled() || self.over {
            return;
        }
        let (Some(least), Some((kind, api_version))) = (self.least(), &self.form) else { return };
        if self.remembers == Some(least) {
            return;
        }
        let rows = if kind == "Table" { serde_json::json!([]) } else { serde_json::Value::Null };
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
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn event(kind: &str, name: &str, revision: u64) -> Bytes {
        let object = json!({"kind": "Pod", "apiVersion": "v1",
                            "metadata": {"name": name, "resourceVersion": revision.to_string()}});
        Bytes::from(format!("{}\n", json!({"type": kind, "object": object})))
    }

    fn end_mark(revision: u64) -> Bytes {
        let metadata = json!({"resourceVersion": revision.to_string(),
                              "annotations": {END_OF_INITIAL: "true", "k8s.io/initial-events-list-blueprint": "e30="}});
        let object = json!({"kind": "Pod", "apiVersion": "v1", "metadata": metadata});
        Bytes::from(format!("{}\n", json!({"type": "BOOKMARK", "object": object})))
    }

    fn read(bytes: Option<Bytes>) -> Vec<(String, String, u64)> {
        let text = String::from_utf8(bytes.unwrap_or_default().to_vec()).unwrap();
        let events = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let field = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        events
            .map(|event| {
                let metadata = &event["object"]["metadata"];
                let revision = metadata["resourceVersion"].as_str().map_or(0, |r| r.parse().unwrap());
                (field(&event["type"]), field(&metadata["name"]), revision)
            })
            .collect()
    }

    fn from(from: u64, bookmarks: bool) -> Wishes {
        Wishes { from: Some(from), initial_events: false, bookmarks }
    }

    #[test]
    fn what_is_written_ends_at_the_revision_that_all_have_passed() {
        let mut merge = Merge::new(2, from(10, true));
        merge.take(0, &event("ADDED", "a", 15)).unwrap();
        let own = |kind: &str, name: &str, revision| (kind.to_owned(), name.to_owned(), revision);
        assert_eq!(read(merge.flush()), [own("ADDED", "a", 15), own("BOOKMARK", "", 10)]);
        merge.take(1, &event("BOOKMARK", "", 20)).unwrap();
        assert_eq!(read(merge.flush()), [own("BOOKMARK", "", 15)]);
        assert_eq!(merge.flush(), None);
        merge.take(0, &event("BOOKMARK", "", 30)).unwrap();
        assert_eq!(read(merge.flush()), [own("BOOKMARK", "", 20)]);
        assert!(merge.resumable());
    }

    #[test]
    fn a_client_that_takes_no_bookmarks_may_not_go_on_from_what_it_saw() {
        let mut merge = Merge::new(2, from(10, false));
        assert!(merge.resumable(), "from where it came");
        merge.take(0, &event("ADDED", "a", 15)).unwrap();
        assert_eq!(read(merge.flush()).len(), 1);
        assert!(!merge.resumable());
        merge.take(1, &event("BOOKMARK", "", 15)).unwrap();
        assert_eq!(merge.flush(), None);
        assert!(merge.resumable());
    }

    #[test]
    fn the_end_of_the_initial_events_waits_for_the_last_member() {
        let mut merge = Merge::new(2, Wishes { from: None, initial_events: true, bookmarks: true });
        merge.take(0, &event("ADDED", "a", 5)).unwrap();
        merge.take(0, &end_mark(40)).unwrap();
        merge.take(0, &event("ADDED", "later", 41)).unwrap();
        merge.take(1, &event("ADDED", "b", 39)).unwrap();
        let seen = read(merge.flush());
        assert!(seen.iter().all(|(kind, ..)| kind == "ADDED"), "{seen:?}");
        merge.take(1, &end_mark(38)).unwrap();
        let bytes = merge.flush().unwrap();
        assert!(std::str::from_utf8(&bytes).unwrap().contains("initial-events-list-blueprint"));
        assert_eq!(read(Some(bytes)), [("BOOKMARK".to_owned(), String::new(), 38)]);
    }

    #[test]
    fn an_error_ends_it_and_is_passed_on() {
        let mut merge = Merge::new(2, from(10, true));
        merge.take(1, &expired("too old")).unwrap();
        assert!(merge.is_over());
        assert_eq!(read(merge.flush())[0].0, "ERROR");
    }

    #[test]
    fn what_is_no_event_is_refused() {
        for line in [
            "x",
            "{}",
            r#"{"type":"ADDED"}"#,
            r#"{"type":"OTHER","object":{}}"#,
            r#"{"type":"ADDED","type":"ADDED","object":{}}"#,
        ] {
            assert!(Merge::new(1, from(1, true)).take(0, &Bytes::from_static(line.as_bytes())).is_err(), "{line}");
        }
        let mut lines = Lines::default();
        for _ in 0..=LONGEST / (1024 * 1024) {
            lines.push(&vec![b'x'; 1024 * 1024]);
        }
        assert_eq!(lines.next(), Err(FrameError::TooLong));
    }

    proptest! {
        #[test]
        fn lines_are_the_same_however_they_arrive(cuts in prop::collection::vec(1usize..9, 1..40)) {
            let text = b"{\"a\":1}\n\n{\"b\":\"}\"}\n  \n{}\n";
            let mut lines = Lines::default();
            let mut found = vec![];
            let mut at = 0;
            for cut in cuts.into_iter().chain([text.len()]) {
                let end = text.len().min(at + cut);
                lines.push(&text[at..end]);
                at = end;
                while let Some(line) = lines.next().unwrap() {
                    found.push(line);
                }
            }
            prop_assert_eq!(found, [&b"{\"a\":1}\n"[..], b"{\"b\":\"}\"}\n", b"{}\n"]);
            prop_assert!(lines.is_empty());
        }
    }

    /// What happens to one world of several namespaces, in the order of revisions.
    #[derive(Debug, Clone)]
    enum Step {
        /// An object of a namespace is written, or deleted where it is there and the flag says so.
        Write { namespace: usize, object: u8, delete: bool },
        /// A member's stream delivers so many of the events that it has not delivered yet.
        Deliver { namespace: usize, events: usize },
        /// A member's stream says how far it is.
        Bookmark { namespace: usize },
        /// What waits is written to the client.
        Flush,
        /// The client's connection breaks, and it goes on from what it remembers.
        Reconnect,
    }

    const NAMESPACES: usize = 3;

    fn step() -> impl Strategy<Value = Step> {
        let namespace = 0..NAMESPACES;
        prop_oneof![
            4 => (namespace.clone(), 0u8..4, any::<bool>())
                .prop_map(|(namespace, object, delete)| Step::Write { namespace, object, delete }),
            4 => (namespace.clone(), 1usize..4).prop_map(|(namespace, events)| Step::Deliver { namespace, events }),
            1 => namespace.prop_map(|namespace| Step::Bookmark { namespace }),
            2 => Just(Step::Flush),
            1 => Just(Step::Reconnect),
        ]
    }

    /// A cluster with its history, the streams of the members, the merge, and an informer as client.
    struct World {
        history: Vec<(u64, usize, String, bool)>,
        truth: BTreeMap<String, u64>,
        revision: u64,
        delivered: Vec<u64>,
        merge: Merge,
        cache: BTreeMap<String, u64>,
        remembered: u64,
    }

    impl World {
        fn new(initial: bool) -> Self {
            let mut world = Self {
                history: vec![],
                truth: BTreeMap::new(),
                revision: 100,
                delivered: vec![100; NAMESPACES],
                merge: Merge::new(NAMESPACES, from(100, true)),
                cache: BTreeMap::new(),
                remembered: 100,
            };
            if initial {
                for namespace in 0..NAMESPACES {
                    world.write(namespace, 0, false);
                }
                world.begin();
            }
            world
        }

        /// Opens with initial events: each member at its own revision, in the order of names.
        fn begin(&mut self) {
            self.merge = Merge::new(NAMESPACES, Wishes { from: None, initial_events: true, bookmarks: true });
            for namespace in 0..NAMESPACES {
                for (name, revision) in self.truth.clone() {
                    if name.starts_with(&format!("{namespace}-")) {
                        self.merge.take(namespace, &event("ADDED", &name, revision)).unwrap();
                    }
                }
                self.delivered[namespace] = self.revision;
                self.merge.take(namespace, &end_mark(self.revision)).unwrap();
                // The next member is opened later, and sees more.
                self.write((namespace + 1) % NAMESPACES, 1, false);
            }
            self.flush();
        }

        fn write(&mut self, namespace: usize, object: u8, delete: bool) {
            let name = format!("{namespace}-{object}");
            self.revision += 1;
            let deleted = delete && self.truth.remove(&name).is_some();
            if !deleted {
                self.truth.insert(name.clone(), self.revision);
            }
            self.history.push((self.revision, namespace, name, deleted));
        }

        fn deliver(&mut self, namespace: usize, events: usize) {
            let from = self.delivered[namespace];
            let next = self.history.iter().filter(|(revision, of, ..)| *of == namespace && *revision > from);
            for (revision, _, name, deleted) in next.take(events) {
                let kind = if *deleted { "DELETED" } else { "MODIFIED" };
                self.merge.take(namespace, &event(kind, name, *revision)).unwrap();
                self.delivered[namespace] = *revision;
            }
        }

        fn bookmark(&mut self, namespace: usize) {
            self.deliver(namespace, usize::MAX);
            self.delivered[namespace] = self.revision;
            self.merge.take(namespace, &event("BOOKMARK", "", self.revision)).unwrap();
        }

        fn flush(&mut self) {
            for (kind, name, revision) in read(self.merge.flush()) {
                self.remembered = revision;
                match kind.as_str() {
                    "BOOKMARK" => {}
                    "DELETED" => drop(self.cache.remove(&name)),
                    _ => drop(self.cache.insert(name, revision)),
                }
            }
        }

        fn reconnect(&mut self) {
            self.merge = Merge::new(NAMESPACES, from(self.remembered, true));
            self.delivered = vec![self.remembered; NAMESPACES];
        }

        fn run(&mut self, steps: Vec<Step>) {
            for step in steps {
                match step {
                    Step::Write { namespace, object, delete } => self.write(namespace, object, delete),
                    Step::Deliver { namespace, events } => self.deliver(namespace, events),
                    Step::Bookmark { namespace } => self.bookmark(namespace),
                    Step::Flush => self.flush(),
                    Step::Reconnect => self.reconnect(),
                }
            }
            for namespace in 0..NAMESPACES {
                self.bookmark(namespace);
            }
            self.flush();
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        // Whatever the order in which streams deliver, and wherever connections break: at the end the client's cache is
        // the truth, with no event lost and no ghost left.
        #[test]
        fn an_informer_converges(initial in any::<bool>(), steps in prop::collection::vec(step(), 1..80)) {
            let mut world = World::new(initial);
            world.run(steps);
            prop_assert_eq!(&world.cache, &world.truth);
            prop_assert_eq!(world.remembered, world.revision);
        }
    }
}
