//! Informers converge: merged watches and views over a cluster by model. Namespaces join, leave and come back with
//! another UID; streams of members end and break; the service forgets; the cluster compacts; caches answer from before;
//! connections break at any byte. Two clients share one view, as two caches of one program do.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::LazyLock;
use std::task::Waker;

use hyper::body::Frame;
use parking_lot::Mutex;
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};

use super::super::spread::Room;
use super::*;

const NAMESPACES: usize = 4;
const OBJECTS: u8 = 3;
const CLIENTS: usize = 2;
const VIEW: &str = "jane\npods";

/// Time, which does not go on; without it no watch can be made.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Builder::new_current_thread().enable_time().build().unwrap());

#[derive(Debug, Clone)]
enum Step {
    /// An object is written, or deleted where it is there and the flag says so.
    Write { namespace: usize, object: u8, delete: bool },
    /// A namespace enters the caller's set, or leaves it.
    JoinOrLeave { namespace: usize },
    /// A namespace is deleted with what it holds, and made again.
    Recreate { namespace: usize },
    /// A member's stream delivers so many events that it has not delivered yet.
    Deliver { client: usize, member: usize, events: usize },
    /// A member's stream says how far it is.
    Bookmark { client: usize, member: usize },
    /// What waits is written and read.
    Flush { client: usize },
    /// All streams deliver all, and the client's cache has to be the truth.
    Settle { client: usize },
    /// A member's stream ends, in good order or not.
    EndMember { client: usize, member: usize, breaks: bool },
    /// The connection breaks after so many bytes of what waits.
    Tear { client: usize, read: usize },
    /// A watch of another set than is the caller's now is cut.
    Cut { client: usize },
    /// A client that has no connection goes on, or begins as it may.
    Connect { client: usize, initial_events: bool },
    /// A client begins anew, as its process does.
    Forget { client: usize },
    /// The service is started again; connections break after so many bytes.
    LostViews { read: usize },
    /// The cluster forgets what was.
    Compact,
    /// The cluster's cache has come so far that lists see everything there is now.
    CacheCatchesUp,
}

fn step() -> impl Strategy<Value = Step> {
    let (namespace, client, member) = (0..NAMESPACES, 0..CLIENTS, 0..NAMESPACES);
    let read = prop_oneof![0usize..300, Just(usize::MAX)];
    prop_oneof![
        10 => (namespace.clone(), 0..OBJECTS, any::<bool>())
            .prop_map(|(namespace, object, delete)| Step::Write { namespace, object, delete }),
        2 => namespace.clone().prop_map(|namespace| Step::JoinOrLeave { namespace }),
        1 => namespace.prop_map(|namespace| Step::Recreate { namespace }),
        8 => (client.clone(), member.clone(), 1usize..4)
            .prop_map(|(client, member, events)| Step::Deliver { client, member, events }),
        4 => (client.clone(), member.clone()).prop_map(|(client, member)| Step::Bookmark { client, member }),
        6 => client.clone().prop_map(|client| Step::Flush { client }),
        2 => client.clone().prop_map(|client| Step::Settle { client }),
        1 => (client.clone(), member, any::<bool>())
            .prop_map(|(client, member, breaks)| Step::EndMember { client, member, breaks }),
        3 => (client.clone(), read.clone()).prop_map(|(client, read)| Step::Tear { client, read }),
        2 => client.clone().prop_map(|client| Step::Cut { client }),
        6 => (client.clone(), any::<bool>())
            .prop_map(|(client, initial_events)| Step::Connect { client, initial_events }),
        1 => client.prop_map(|client| Step::Forget { client }),
        1 => read.prop_map(|read| Step::LostViews { read }),
        1 => Just(Step::Compact),
        2 => Just(Step::CacheCatchesUp),
    ]
}

/// A member's stream, at our end of it.
#[derive(Default)]
struct Pipe {
    queue: VecDeque<Bytes>,
    // Whether it broke.
    end: Option<bool>,
    waker: Option<Waker>,
}

#[derive(Clone, Default)]
struct Stub(Arc<Mutex<Pipe>>);

impl Stub {
    fn change(&self, change: impl FnOnce(&mut Pipe)) {
        let mut pipe = self.0.lock();
        change(&mut pipe);
        if let Some(waker) = pipe.waker.take() {
            waker.wake();
        }
    }

    fn say(&self, kind: &str, object: &Value) {
        let line = Bytes::from(format!("{}\n", json!({"type": kind, "object": object})));
        self.change(|pipe| pipe.queue.push_back(line));
    }
}

impl Body for Stub {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        let mut pipe = self.0.lock();
        match (pipe.queue.pop_front(), pipe.end) {
            (Some(line), _) => Poll::Ready(Some(Ok(Frame::data(line)))),
            (None, Some(breaks)) => Poll::Ready(breaks.then_some(Err("reset"))),
            (None, None) => {
                pipe.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

type Name = (usize, u8);
/// Objects and their revisions.
type Objects = BTreeMap<Name, u64>;

fn object((namespace, object): Name, revision: u64) -> Value {
    json!({"kind": "Pod", "apiVersion": "v1", "metadata": {
        "name": object.to_string(), "namespace": namespace.to_string(), "resourceVersion": revision.to_string()}})
}

fn mark(revision: u64, ends: bool) -> Value {
    let annotations = if ends { json!({"k8s.io/initial-events-end": "true"}) } else { json!({}) };
    json!({"kind": "Pod", "apiVersion": "v1",
           "metadata": {"resourceVersion": revision.to_string(), "annotations": annotations}})
}

struct Cluster {
    revision: u64,
    // What happened: revision, object, whether it was deleted.
    history: Vec<(u64, Name, bool)>,
    compacted: u64,
    cache: u64,
}

impl Cluster {
    fn write(&mut self, name: Name, delete: bool) {
        self.revision += 1;
        let deleted = delete && self.at(self.revision).contains_key(&name);
        self.history.push((self.revision, name, deleted));
    }

    fn at(&self, revision: u64) -> Objects {
        let mut objects = Objects::new();
        for (written, name, deleted) in self.history.iter().filter(|(written, ..)| *written <= revision) {
            match deleted {
                true => drop(objects.remove(name)),
                false => drop(objects.insert(*name, *written)),
            }
        }
        objects
    }
}

/// One member of a connection.
struct Side {
    namespace: usize,
    delivered: u64,
    stub: Stub,
}

struct Connection {
    watch: MergedWatch<Stub>,
    sides: Vec<Side>,
    set: SetId,
    /// What is there already while the initial events go on.
    initial: Option<Objects>,
    wire: Vec<u8>,
    over: bool,
}

/// A cache as client-go has it.
#[derive(Default)]
struct Client {
    bookmarks: bool,
    cache: Objects,
    remembered: Option<u64>,
    /// Its last list or watch was refused as too old.
    expired: bool,
    connection: Option<Connection>,
}

impl Client {
    /// Reads whole lines of so many bytes that wait.
    fn read(&mut self, most: usize) {
        let Some(connection) = &mut self.connection else { return };
        let bytes: Vec<u8> = connection.wire.drain(..most.min(connection.wire.len())).collect();
        let ends = connection.over && connection.wire.is_empty();
        for line in bytes.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n")) {
            let event: Value = serde_json::from_slice(line).unwrap();
            let metadata = &event["object"]["metadata"];
            let text = |field: &str| metadata[field].as_str().unwrap_or_default();
            let revision = text("resourceVersion").parse().ok();
            let store = connection.initial.as_mut().unwrap_or(&mut self.cache);
            let name = || (text("namespace").parse().unwrap(), text("name").parse().unwrap());
            match event["type"].as_str().unwrap() {
                "ERROR" => {
                    (self.remembered, self.expired, self.connection) = (None, true, None);
                    return;
                }
                "BOOKMARK" if metadata["annotations"]["k8s.io/initial-events-end"] == "true" => {
                    self.cache = connection.initial.take().unwrap();
                }
                "BOOKMARK" => {}
                "DELETED" => drop(store.remove(&name())),
                _ => drop(store.insert(name(), revision.unwrap())),
            }
            if connection.initial.is_none() {
                self.remembered = revision;
            }
        }
        if ends {
            self.connection = None;
        }
    }
}

struct World {
    cluster: Cluster,
    /// The caller's namespaces.
    own: BTreeSet<usize>,
    uids: [usize; NAMESPACES],
    views: Arc<Views>,
    clients: [Client; CLIENTS],
}

impl World {
    fn new() -> Self {
        let mut cluster = Cluster { revision: 100, history: vec![], compacted: 0, cache: 100 };
        for namespace in 0..NAMESPACES {
            cluster.write((namespace, 0), false);
        }
        let clients = [true, false].map(|bookmarks| Client { bookmarks, ..Client::default() });
        Self { cluster, own: BTreeSet::from([0, 1, 2]), uids: [0; NAMESPACES], views: Arc::default(), clients }
    }

    fn set(&self) -> SetId {
        let named: Vec<(String, String)> =
            self.own.iter().map(|namespace| (namespace.to_string(), self.uids[*namespace].to_string())).collect();
        SetId::of(named.iter().map(|(name, uid)| (name.as_str(), uid.as_str(), None)))
    }

    fn truth(&self) -> Objects {
        self.own_of(self.cluster.at(self.cluster.revision))
    }

    fn own_of(&self, mut objects: Objects) -> Objects {
        objects.retain(|(namespace, _), _| self.own.contains(namespace));
        objects
    }

    /// As lists are made: from a cache at the very beginning, and of the newest after a refusal.
    fn list(&mut self, client: usize) {
        let cached = Options { revision: "0".into(), ..Options::default() };
        let asked = if self.clients[client].expired { Options::default() } else { cached };
        let options = self.views.known_from(VIEW, &asked).into_owned();
        let before = self.views.before(VIEW, &options);
        let revision = if options.revision.is_empty() { self.cluster.revision } else { self.cluster.cache };
        let listed = self.own_of(self.cluster.at(revision));
        let _ = self.views.listed(VIEW, self.set(), revision, before);
        let client = &mut self.clients[client];
        (client.cache, client.remembered, client.expired) = (listed, Some(revision), false);
    }

    /// As [`open`], with streams by model.
    fn connect(&mut self, client: usize, initial_events: bool) {
        if self.clients[client].connection.is_some() {
            return;
        }
        let bookmarks = self.clients[client].bookmarks;
        // Its end is told by a bookmark.
        let initial_events = initial_events && bookmarks && self.clients[client].remembered.is_none();
        if self.clients[client].remembered.is_none() && !initial_events {
            self.list(client);
        }
        let mut options = Options { bookmarks, initial_events, ..Options::default() };
        if let Some(remembered) = self.clients[client].remembered {
            options.revision = remembered.to_string();
        }
        let set = self.set();
        let Some(view) = viewed(&options, &self.views, VIEW.into(), set) else {
            (self.clients[client].remembered, self.clients[client].expired) = (None, true);
            return;
        };
        let from = options.revision_number().map(|from| view.start(from));
        let own: Vec<usize> = self.own.iter().copied().collect();
        let mut sides = vec![];
        for namespace in own {
            let stub = Stub::default();
            if initial_events {
                for (name, revision) in self.cluster.at(self.cluster.revision) {
                    if name.0 == namespace {
                        stub.say("ADDED", &object(name, revision));
                    }
                }
                stub.say("BOOKMARK", &mark(self.cluster.revision, true));
            } else if from < Some(self.cluster.compacted) {
                stub.change(|pipe| pipe.queue.push_back(frames::expired("compacted")));
            }
            sides.push(Side { namespace, delivered: from.unwrap_or(self.cluster.revision), stub });
            if initial_events {
                // The next member is opened later, and sees more.
                self.cluster.write((namespace, 1), false);
            }
        }
        let wishes = Wishes { from, initial_events, bookmarks };
        let bodies = sides.iter().map(|side| side.stub.clone()).collect();
        let watch = MergedWatch::over(bodies, wishes, view, 3600, &Room::default().of("jane"));
        let initial = initial_events.then(Objects::new);
        let connection = Connection { watch, sides, set, initial, wire: vec![], over: false };
        self.clients[client].connection = Some(connection);
    }

    fn deliver(&mut self, client: usize, member: usize, events: usize) {
        let Some(connection) = &mut self.clients[client].connection else { return };
        let many = connection.sides.len();
        let side = &mut connection.sides[member % many];
        let from = side.delivered;
        let next =
            self.cluster.history.iter().filter(|(revision, name, _)| name.0 == side.namespace && *revision > from);
        for (revision, name, deleted) in next.take(events) {
            side.stub.say(if *deleted { "DELETED" } else { "MODIFIED" }, &object(*name, *revision));
            side.delivered = *revision;
        }
    }

    fn bookmark(&mut self, client: usize, member: usize) {
        self.deliver(client, member, usize::MAX);
        let Some(connection) = &mut self.clients[client].connection else { return };
        let many = connection.sides.len();
        let side = &mut connection.sides[member % many];
        side.delivered = self.cluster.revision;
        side.stub.say("BOOKMARK", &mark(self.cluster.revision, false));
    }

    /// What waits goes onto the wire.
    fn write_out(&mut self, client: usize) {
        let Some(connection) = &mut self.clients[client].connection else { return };
        while !connection.over {
            match connection.watch.poll_next(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(Some(bytes)) => connection.wire.extend(bytes),
                Poll::Ready(None) => connection.over = true,
                Poll::Pending => break,
            }
        }
    }

    fn flush(&mut self, client: usize) {
        self.write_out(client);
        self.clients[client].read(usize::MAX);
    }

    fn tear(&mut self, client: usize, read: usize) {
        self.write_out(client);
        self.clients[client].read(read);
        self.clients[client].connection = None;
    }

    /// As the body does it whose right ended because the set is another.
    fn cut(&mut self, client: usize) {
        let set = self.set();
        let Some(connection) = &mut self.clients[client].connection else { return };
        if connection.set != set {
            connection.wire.extend(frames::expired("your namespaces changed"));
            connection.over = true;
            self.clients[client].read(usize::MAX);
        }
    }

    /// Whether the client is connected for what is the caller's now, and has heard everything.
    fn settle(&mut self, client: usize) -> bool {
        self.cut(client);
        for member in 0..NAMESPACES {
            self.bookmark(client, member);
        }
        self.flush(client);
        self.clients[client].connection.is_some()
    }

    fn take(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Write { namespace, object, delete } => self.cluster.write((namespace, object), delete),
            Step::JoinOrLeave { namespace } => {
                // Who has none gets no watch.
                if !self.own.remove(&namespace) || self.own.is_empty() {
                    self.own.insert(namespace);
                }
            }
            Step::Recreate { namespace } => {
                for name in self.cluster.at(self.cluster.revision).into_keys() {
                    if name.0 == namespace {
                        self.cluster.write(name, true);
                    }
                }
                self.uids[namespace] += 1;
            }
            Step::Deliver { client, member, events } => self.deliver(client, member, events),
            Step::Bookmark { client, member } => self.bookmark(client, member),
            Step::Flush { client } => self.flush(client),
            Step::Settle { client } => {
                if self.settle(client) {
                    prop_assert_eq!(&self.clients[client].cache, &self.truth());
                }
            }
            Step::EndMember { client, member, breaks } => {
                if let Some(connection) = &self.clients[client].connection {
                    let side = &connection.sides[member % connection.sides.len()];
                    side.stub.change(|pipe| pipe.end = Some(breaks));
                }
            }
            Step::Tear { client, read } => self.tear(client, read),
            Step::Cut { client } => self.cut(client),
            Step::Connect { client, initial_events } => self.connect(client, initial_events),
            Step::Forget { client } => {
                self.clients[client] = Client { bookmarks: self.clients[client].bookmarks, ..Client::default() };
            }
            Step::LostViews { read } => {
                (0..CLIENTS).for_each(|client| self.tear(client, read));
                self.views = Arc::default();
                // Something goes on in each cluster in the seconds that a start takes.
                self.cluster.revision += 1;
            }
            Step::Compact => self.cluster.compacted = self.cluster.revision,
            Step::CacheCatchesUp => self.cluster.cache = self.cluster.revision,
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    // Whenever a client is connected and has heard everything, and at the end anyway, its cache is the truth of the
    // caller's namespaces: no event lost, no ghost left, and nothing that it remembered let it miss something.
    #[test]
    fn an_informer_converges_whatever_happens(steps in prop::collection::vec(step(), 1..120)) {
        let _time = RUNTIME.enter();
        let mut world = World::new();
        (0..CLIENTS).for_each(|client| world.connect(client, false));
        for step in steps {
            world.take(step)?;
        }
        for client in 0..CLIENTS {
            let mut tries = 0;
            while !world.settle(client) {
                tries += 1;
                prop_assert!(tries < 8, "it lists again and again");
                // The cluster moves on, if by nothing else then by its own leases.
                world.cluster.revision += 1;
                world.connect(client, false);
            }
            prop_assert_eq!(&world.clients[client].cache, &world.truth());
        }
    }
}

/// A client that took bookmarks or none, and that was left after an event that went ahead of another member's.
#[test]
fn whoever_was_left_before_the_bookmark_misses_nothing() {
    let _time = RUNTIME.enter();
    for client in 0..CLIENTS {
        for read in 0..400 {
            let mut world = World::new();
            world.connect(client, false);
            world.cluster.write((1, 0), false);
            world.cluster.write((0, 0), false);
            world.deliver(client, 0, usize::MAX);
            world.tear(client, read);
            world.connect(client, false);
            assert!(world.settle(client));
            assert_eq!(world.clients[client].cache, world.truth(), "after {read} bytes");
        }
    }
}
