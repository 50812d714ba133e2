//! What is merged, and what is refused.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn event(kind: &str, name: &str, revision: u64) -> Bytes {
    let object = json!({"kind": "Pod", "apiVersion": "v1",
                        "metadata": {"name": name, "resourceVersion": revision.to_string()}});
    Bytes::from(format!("{}\n", json!({"type": kind, "object": object})))
}

fn end_mark(revision: u64) -> Bytes {
    let metadata = json!({"resourceVersion": revision.to_string(),
                          "annotations": {"k8s.io/initial-events-end": "true", "k8s.io/initial-events-list-blueprint": "e30="}});
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
        r#"["ADDED",{"kind":"Pod"}]"#,
        // What would be a mark of the end, and is told no revision by, or is no object to write one into.
        r#"{"type":"BOOKMARK","object":{"metadata":{"annotations":{"k8s.io/initial-events-end":"true"}}}}"#,
        r#"{"type":"BOOKMARK","object":["Pod","v1",["5",["true"]]]}"#,
        r#"{"type":"BOOKMARK","object":{"metadata":["5",["true"]]}}"#,
        &format!(r#"{{"type":"ADDED","object":{{"kind":"{}"}}}}"#, "K".repeat(LONGEST_NAME + 1)),
        &format!(r#"{{"type":"ADDED","object":{{"apiVersion":"{}"}}}}"#, "v".repeat(LONGEST_NAME + 1)),
        // Its objects would take many times its length.
        &format!(
            r#"{{"type":"BOOKMARK","object":{{"x":[0{}],"metadata":{{"resourceVersion":"5","annotations":{{"k8s.io/initial-events-end":"true"}}}}}}}}"#,
            ",0".repeat(LONGEST_MARK / 2)
        ),
    ] {
        let line = Bytes::copy_from_slice(line.as_bytes());
        assert!(Merge::new(1, from(1, true)).take(0, &line).is_err(), "{line:?}");
    }
    let mut lines = Lines::default();
    for _ in 0..=LONGEST / (1024 * 1024) {
        lines.push(&vec![b'x'; 1024 * 1024]);
    }
    assert_eq!(lines.next(), Err(FrameError::TooLong));
}

#[test]
fn a_long_event_leaves_no_memory_behind() {
    let long =
        json!({"type": "ADDED", "object": {"metadata": {"resourceVersion": "11"}, "x": "x".repeat(LONGEST / 2)}});
    let mut lines = Lines::default();
    let mut merge = Merge::new(1, from(10, true));
    for _ in 0..2 {
        for piece in format!("{long}\nrest").as_bytes().chunks(10_000) {
            lines.push(piece);
        }
        let line = lines.next().unwrap().unwrap();
        assert_eq!(line.len(), long.to_string().len() + 1);
        merge.take(0, &line).unwrap();
        assert!(merge.flush().unwrap().len() >= line.len());
        assert!(lines.buffer.capacity() < LONG && merge.out.capacity() < LONG);
        assert_eq!(lines.next(), Ok(None));
        assert_eq!(lines.len(), 4, "what came after it is still there");
        lines.push(b"\n");
        assert_eq!(lines.next().unwrap().unwrap(), "rest\n");
    }
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
