//! Random histories of everything that authority rests on: after each acknowledged change, no request passes and no
//! stream goes on that a fresh evaluation refuses.
//!
//! Three answers are compared: that of the index which followed the history, that of one just built from the store, and
//! that of a model which reads the rules of authority off the documents, one by one, without any index.

mod model;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::decide::{self, Asker, Context, Rules};
use super::resolve::Place;
use super::streams::{Registered, StreamKey, Streams};
use super::target;
use crate::clock::by_hand::Hands;
use crate::identity::tokens;
use crate::index::{Index, Observation, ObservedCluster, Snapshot};
use crate::records::{Account, Claim, ClaimOrigin, Scoped, Suspension, TokenRecord, TokenScopes};
use crate::resources::token::Audience;
use crate::store::sealed::{Binding, Sealer};
use crate::store::sqlite::{SqliteSettings, SqliteStore};
use crate::store::{Key, Kind, Revision, Store};

const CLUSTER: &str = "demo";
const CLUSTER_UID: &str = "uid-demo";
const NAMESPACES: [&str; 3] = ["ns-a", "ns-b", "ns-c"];
/// Roles that a grant may name: the built-in ones first, then those that histories write.
const ROLES: [&str; 7] = ["viewer", "member", "owner", "r0", "r1", "r2", "r3"];
/// What is asked for, as HTTP method, verb and resource. Viewers have the first only, members all.
const ASKED: [(&str, &str, &str); 4] = [
    ("GET", "list", "configmaps"),
    ("POST", "create", "configmaps"),
    ("GET", "list", "secrets"),
    ("POST", "create", "pods"),
];
/// Most streams kept open.
const STREAMS: usize = 24;

#[derive(Debug, Clone)]
enum Step {
    User { user: usize, disabled: bool },
    Suspend { user: usize, suspended: bool },
    Team { team: usize, members: u8 },
    Role { role: usize, view: bool, own: u8, inherits: u8 },
    Project { project: usize, roles: u8 },
    Grant { grant: usize, team: bool, subject: usize, role: usize, target: usize, namespaces: u8, ends: Option<i64> },
    Claim { namespace: usize, project: usize, releasing: bool },
    Observe { there: u8, strangers: bool, usable: bool },
    Token { token: usize, user: usize, project: Option<usize>, read_only: bool, ends: i64 },
    // With the same UID, so that not everything is over.
    Cluster,
    Drop(Kind, usize),
    Pass(i64),
}

fn step() -> impl Strategy<Value = Step> {
    let some = |most: i64| prop_oneof![2 => Just(None), 1 => (1..most).prop_map(Some)];
    let dropped = prop_oneof![
        1 => Just(Kind::User),
        2 => Just(Kind::Team),
        3 => Just(Kind::AccessRole),
        1 => Just(Kind::Project),
        3 => Just(Kind::Grant),
        2 => Just(Kind::Claim),
        2 => Just(Kind::Token),
        1 => Just(Kind::Cluster),
    ];
    prop_oneof![
        2 => (0..3usize, any::<bool>()).prop_map(|(user, disabled)| Step::User { user, disabled }),
        2 => (0..3usize, any::<bool>()).prop_map(|(user, suspended)| Step::Suspend { user, suspended }),
        3 => (0..2usize, 0..8u8).prop_map(|(team, members)| Step::Team { team, members }),
        6 => (0..4usize, any::<bool>(), 0..16u8, 0..128u8)
            .prop_map(|(role, view, own, inherits)| Step::Role { role, view, own, inherits: inherits & (inherits >> 1) }),
        2 => (0..2usize, 0..16u8).prop_map(|(project, roles)| Step::Project { project, roles }),
        6 => (0..6usize, any::<bool>(), 0..3usize, 0..ROLES.len(), 0..3usize, 0..8u8, some(20)).prop_map(
            |(grant, team, subject, role, target, namespaces, ends)| {
                Step::Grant { grant, team, subject, role, target, namespaces, ends }
            },
        ),
        3 => (0..3usize, 0..2usize, prop::bool::weighted(0.2))
            .prop_map(|(namespace, project, releasing)| Step::Claim { namespace, project, releasing }),
        2 => (0..8u8, prop::bool::weighted(0.2), prop::bool::weighted(0.9))
            .prop_map(|(there, strangers, usable)| Step::Observe { there: there | 1, strangers, usable }),
        3 => (0..5usize, 0..3usize, prop::option::weighted(0.3, 0..2usize), prop::bool::weighted(0.2), 1..60i64).prop_map(
            |(token, user, project, read_only, ends)| Step::Token { token, user, project, read_only, ends },
        ),
        2 => Just(Step::Cluster),
        5 => (dropped, 0..6usize).prop_map(|(kind, at)| Step::Drop(kind, at)),
        2 => (1..10i64).prop_map(Step::Pass),
    ]
}

/// What every history begins with: everybody has something.
fn prelude() -> Vec<Step> {
    let mut steps = vec![];
    steps.extend((0..3).map(|user| Step::User { user, disabled: false }));
    steps.extend((0..2).map(|team| Step::Team { team, members: 0b011 << team }));
    // r3 inherits r1 and r2, and both of them r0.
    steps.push(Step::Role { role: 0, view: false, own: 0b1010, inherits: 0 });
    steps.push(Step::Role { role: 1, view: true, own: 0, inherits: 1 << 3 });
    steps.push(Step::Role { role: 2, view: false, own: 0b0100, inherits: 1 << 3 });
    steps.push(Step::Role { role: 3, view: false, own: 0, inherits: 0b11 << 4 });
    steps.extend((0..2).map(|project| Step::Project { project, roles: 0b1111 }));
    steps.extend((0..3).map(|namespace| Step::Claim { namespace, project: namespace % 2, releasing: false }));
    steps.push(Step::Observe { there: 0b111, strangers: false, usable: true });
    for (grant, (team, subject, role, target, namespaces)) in
        [(true, 0, 6, 0, 0), (true, 1, 4, 1, 0), (false, 2, 5, 0, 1), (false, 0, 0, 2, 0)].into_iter().enumerate()
    {
        steps.push(Step::Grant { grant, team, subject, role, target, namespaces, ends: None });
    }
    steps.extend((0..3).map(|user| Step::Token { token: user, user, project: None, read_only: false, ends: 120 }));
    steps
}

/// The documents as they were written, sealed ones in plain.
type Documents = BTreeMap<(Kind, String), Value>;

struct World {
    store: Arc<dyn Store>,
    sealer: Arc<Sealer>,
    index: Arc<Index>,
    hands: Hands,
    documents: Documents,
    revisions: BTreeMap<(Kind, String), Revision>,
    observed: ObservedCluster,
    /// The whole token by its place; the record is named by its id.
    tokens: BTreeMap<usize, (String, String)>,
    uids: u32,
    _directory: tempfile::TempDir,
}

impl World {
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(directory.path(), SqliteSettings::default()).unwrap());
        let sealer = Arc::new(Sealer::new("k", &[7; 32]));
        let hands = Hands::at("2030-03-01T12:00:00Z".parse().unwrap());
        let (index, _) = Index::start_with(store.clone(), sealer.clone(), hands.clock(None)).await.unwrap();
        let mut world = Self {
            store,
            sealer,
            index,
            hands,
            documents: Documents::new(),
            revisions: BTreeMap::new(),
            observed: ObservedCluster::default(),
            tokens: BTreeMap::new(),
            uids: 0,
            _directory: directory,
        };
        world.put_cluster().await;
        world
    }

    async fn put_cluster(&mut self) {
        let spec = json!({"connection": {}});
        self.put(Kind::Cluster, CLUSTER, resource("Cluster", CLUSTER, CLUSTER_UID, spec)).await;
    }

    fn fresh_uid(&mut self) -> String {
        self.uids += 1;
        format!("uid-{}", self.uids)
    }

    /// The UID of what is there, or a new one.
    fn uid(&mut self, kind: Kind, name: &str) -> String {
        uid_of(&self.documents, kind, name).unwrap_or_else(|| self.fresh_uid())
    }

    /// Writes and returns once it is acknowledged, as the API does: applied by the index.
    async fn put(&mut self, kind: Kind, name: &str, value: Value) {
        let key = Key::new(kind, name);
        let bytes = match kind {
            Kind::Account | Kind::Token => self.sealer.seal(&key, Binding { uid: "u", version: 1 }, &value).unwrap(),
            _ => value.to_string().into(),
        };
        let place = (kind, name.to_owned());
        let revision = match self.revisions.get(&place) {
            Some(revision) => self.store.update(key, *revision, bytes).await.unwrap(),
            None => self.store.create(key, bytes).await.unwrap(),
        };
        self.index.applied(revision).await.unwrap();
        self.revisions.insert(place.clone(), revision);
        self.documents.insert(place, value);
    }

    async fn delete(&mut self, kind: Kind, name: &str) {
        let place = (kind, name.to_owned());
        let Some(revision) = self.revisions.remove(&place) else { return };
        let revision = self.store.delete(Key::new(kind, name), revision).await.unwrap();
        self.index.applied(revision).await.unwrap();
        self.documents.remove(&place);
    }

    async fn observe(&self) {
        let seen = Some(Arc::new(self.observed.clone()));
        self.index.observe_applied(Observation { cluster: CLUSTER.into(), seen }).await.unwrap();
    }

    async fn take(&mut self, step: Step) {
        let now = self.index.now();
        match step {
            Step::User { user, disabled } => {
                let name = format!("u{user}");
                let uid = self.uid(Kind::User, &name);
                self.put(Kind::User, &name, resource("User", &name, &uid, json!({"disabled": disabled}))).await;
            }
            Step::Suspend { user, suspended } => {
                let name = format!("u{user}");
                let Some(uid) = uid_of(&self.documents, Kind::User, &name) else { return };
                let before = account(&self.documents, &name);
                let mut account = Account::default();
                account.epoch = before.map_or(0, |account| account["epoch"].as_u64().unwrap()) + u64::from(suspended);
                account.user_uid = uid;
                account.suspended =
                    suspended.then(|| Suspension { at: now.to_string(), by: "root".into(), reason: String::new() });
                self.put(Kind::Account, &name, serde_json::to_value(&account).unwrap()).await;
            }
            Step::Team { team, members } => {
                let name = format!("t{team}");
                let uid = self.uid(Kind::Team, &name);
                let users: Vec<String> = chosen(members, 3).map(|user| format!("u{user}")).collect();
                let uids: BTreeMap<&String, String> =
                    users.iter().filter_map(|user| Some((user, uid_of(&self.documents, Kind::User, user)?))).collect();
                let mut object = resource("Team", &name, &uid, json!({"users": users}));
                object["status"] = json!({"memberUIDs": uids});
                self.put(Kind::Team, &name, object).await;
            }
            Step::Role { role, view, own, inherits } => {
                let name = format!("r{role}");
                let uid = self.uid(Kind::AccessRole, &name);
                let rules: Vec<Value> = chosen(own, ASKED.len())
                    .map(|at| json!({"apiGroups": [""], "resources": [ASKED[at].2], "verbs": [ASKED[at].1]}))
                    .collect();
                let inherits: Vec<&str> = chosen(inherits, ROLES.len()).map(|at| ROLES[at]).collect();
                let mut spec = json!({"rules": rules, "inherits": inherits});
                if view {
                    spec["base"] = json!("view");
                }
                self.put(Kind::AccessRole, &name, resource("AccessRole", &name, &uid, spec)).await;
            }
            Step::Project { project, roles } => {
                let name = format!("p{project}");
                let uid = self.uid(Kind::Project, &name);
                let roles: Vec<String> = chosen(roles, 4).map(|role| format!("r{role}")).collect();
                let spec = json!({"roles": roles, "clusters": [{"cluster": CLUSTER}]});
                self.put(Kind::Project, &name, resource("Project", &name, &uid, spec)).await;
            }
            Step::Grant { grant, team, subject, role, target, namespaces, ends } => {
                let name = format!("g{grant}");
                let uid = self.uid(Kind::Grant, &name);
                let (kind, subject) =
                    if team { (Kind::Team, format!("t{}", subject % 2)) } else { (Kind::User, format!("u{subject}")) };
                let (on, target) = if target == 2 {
                    (Kind::Cluster, CLUSTER.to_owned())
                } else {
                    (Kind::Project, format!("p{target}"))
                };
                let namespaces: Vec<&str> = match on {
                    Kind::Project => chosen(namespaces, 3).map(|at| NAMESPACES[at]).collect(),
                    _ => vec![],
                };
                let mut spec = json!({"subject": {"kind": kind.as_str(), "name": subject}, "role": ROLES[role],
                    "target": {"kind": on.as_str(), "name": target}, "namespaces": namespaces});
                if let Some(seconds) = ends {
                    spec["expiresAt"] = json!(in_seconds(now, seconds).to_string());
                }
                let mut object = resource("Grant", &name, &uid, spec);
                object["status"] = json!({"state": "Active", "subjectUID": uid_of(&self.documents, kind, &subject),
                    "targetUID": uid_of(&self.documents, on, &target)});
                self.put(Kind::Grant, &name, object).await;
            }
            Step::Claim { namespace, project, releasing } => {
                let (namespace, project) = (NAMESPACES[namespace], format!("p{project}"));
                let claim = Claim {
                    cluster: CLUSTER.into(),
                    cluster_uid: CLUSTER_UID.into(),
                    namespace: namespace.into(),
                    since: None,
                    namespace_uid: self.observed.namespaces.get(namespace).map(|uid| uid.to_string()),
                    project_uid: uid_of(&self.documents, Kind::Project, &project).unwrap_or_default(),
                    project,
                    origin: ClaimOrigin::Created,
                    releasing,
                    adopt: false,
                    created_by: "root".into(),
                    created_at: now.to_string(),
                };
                let claim = serde_json::to_value(claim).unwrap();
                self.put(Kind::Claim, &Claim::key_name(CLUSTER, namespace), claim).await;
            }
            Step::Observe { there, strangers, usable } => {
                let before = std::mem::take(&mut self.observed.namespaces);
                for at in chosen(there, 3) {
                    let uid = match before.get(NAMESPACES[at]) {
                        Some(uid) if !strangers => uid.clone(),
                        _ => self.fresh_uid().into(),
                    };
                    self.observed.namespaces.insert(NAMESPACES[at].into(), uid);
                }
                self.observed.cluster_uid = CLUSTER_UID.into();
                self.observed.usable = usable;
                self.observe().await;
                // The owner's controllers record what they see, as they do for what they made themselves.
                for namespace in NAMESPACES {
                    let name = Claim::key_name(CLUSTER, namespace);
                    let claim = self.documents.get(&(Kind::Claim, name.clone())).cloned();
                    let seen = self.observed.namespaces.get(namespace).cloned();
                    if let (Some(mut claim), Some(uid)) = (claim, seen)
                        && claim["namespace_uid"].is_null()
                    {
                        claim["namespace_uid"] = json!(&*uid);
                        self.put(Kind::Claim, &name, claim).await;
                    }
                }
            }
            Step::Token { token, user, project, read_only, ends } => {
                let user = format!("u{user}");
                let Some(user_uid) = uid_of(&self.documents, Kind::User, &user) else { return };
                if let Some((_, old)) = self.tokens.remove(&token) {
                    self.delete(Kind::Token, &old).await;
                }
                let made = tokens::generate().unwrap();
                let scoped = project.map(|project| format!("p{project}")).and_then(|name| {
                    let uid = uid_of(&self.documents, Kind::Project, &name)?;
                    Some(Scoped { name, uid })
                });
                let epoch = account(&self.documents, &user).filter(|account| account["user_uid"] == user_uid.as_str());
                let record = TokenRecord {
                    id: made.id.clone(),
                    hash: STANDARD.encode(made.hash),
                    user,
                    user_uid,
                    epoch: epoch.map_or(0, |account| account["epoch"].as_u64().unwrap()),
                    global_epoch: 0,
                    audience: Audience::Kube,
                    scopes: TokenScopes { projects: scoped.into_iter().collect(), read_only, ..TokenScopes::default() },
                    family: made.id.clone(),
                    description: String::new(),
                    created_at: now.to_string(),
                    expires_at: in_seconds(now, ends).to_string(),
                };
                self.put(Kind::Token, &made.id, serde_json::to_value(&record).unwrap()).await;
                self.tokens.insert(token, (made.secret_token.to_string(), made.id));
            }
            Step::Cluster => self.put_cluster().await,
            Step::Drop(kind, at) => match kind {
                Kind::User => self.delete(kind, &format!("u{}", at % 3)).await,
                Kind::Team => self.delete(kind, &format!("t{}", at % 2)).await,
                Kind::AccessRole => self.delete(kind, &format!("r{}", at % 4)).await,
                Kind::Project => self.delete(kind, &format!("p{}", at % 2)).await,
                Kind::Grant => self.delete(kind, &format!("g{at}")).await,
                Kind::Claim => self.delete(kind, &Claim::key_name(CLUSTER, NAMESPACES[at % 3])).await,
                Kind::Token => {
                    let id = self.tokens.get(&(at % 5)).map(|(_, id)| id.clone());
                    self.delete(kind, &id.unwrap_or_default()).await;
                }
                _ => self.delete(Kind::Cluster, CLUSTER).await,
            },
            Step::Pass(seconds) => {
                self.hands.pass(Duration::from_secs(seconds.unsigned_abs()));
                self.index.clock().tick();
                // So that `settled` has something to wait for; by itself time is looked at twice a second.
                self.observe().await;
            }
        }
    }

    /// What an index says that never saw the history.
    async fn rebuilt(&self) -> Snapshot {
        let (index, writer) = Index::start(self.store.clone(), self.sealer.clone()).await.unwrap();
        let mut snapshot = (*index.snapshot()).clone();
        writer.abort();
        snapshot.observe(CLUSTER, Some(Arc::new(self.observed.clone())));
        snapshot
    }
}

fn resource(kind: &str, name: &str, uid: &str, spec: Value) -> Value {
    json!({"apiVersion": "bailiwick.dev/v1alpha1", "kind": kind, "metadata": {"name": name, "uid": uid}, "spec": spec})
}

fn chosen(mask: u8, of: usize) -> impl Iterator<Item = usize> {
    (0..of).filter(move |at| mask & (1 << at) != 0)
}

fn in_seconds(now: Timestamp, seconds: i64) -> Timestamp {
    now + jiff::SignedDuration::from_secs(seconds)
}

fn uid_of(documents: &Documents, kind: Kind, name: &str) -> Option<String> {
    Some(documents.get(&(kind, name.to_owned()))?["metadata"]["uid"].as_str().unwrap().to_owned())
}

fn account<'a>(documents: &'a Documents, user: &str) -> Option<&'a Value> {
    documents.get(&(Kind::Account, user.to_owned()))
}

// ===== what is asked =====

struct Asked {
    at: usize,
    namespace: &'static str,
    narrowed: Option<&'static str>,
}

fn all_asked() -> Vec<Asked> {
    let mut all = vec![];
    for at in 0..ASKED.len() {
        for namespace in NAMESPACES {
            for narrowed in [None, Some("p0")] {
                all.push(Asked { at, namespace, narrowed });
            }
        }
    }
    all
}

impl Asked {
    fn target(&self) -> target::Target {
        let (method, _, resource) = ASKED[self.at];
        let narrowed = self.narrowed.map(|project| format!("/projects/{project}")).unwrap_or_default();
        let path = format!("/k8s/clusters/{CLUSTER}{narrowed}/api/v1/namespaces/{}/{resource}", self.namespace);
        target::parse(method, &path, None).unwrap()
    }

    /// The answer of a snapshot: the groups, or the reason of the refusal.
    fn decide(&self, snapshot: &Snapshot, secret: &str, now: Timestamp) -> Result<BTreeSet<String>, &'static str> {
        let caller = tokens::authenticate(snapshot, secret, Audience::Kube, now).map_err(|_| "unauthenticated")?;
        let target = self.target();
        let place = Place { cluster: CLUSTER, project: self.narrowed, namespace: self.namespace };
        let asker = Asker { user: &caller.user.object, scopes: &caller.token.record.scopes };
        let ctx = Context { snapshot, asker, place, request: &target.request, now };
        let decision = decide::authorize(&Rules, &ctx).map_err(|refusal| refusal.reason)?;
        Ok(decision.groups.into_iter().collect())
    }
}

async fn live(steps: Vec<Step>) -> usize {
    let mut world = World::new().await;
    let streams = Streams::new();
    let judge = tokio::spawn(streams.clone().judge(world.index.clone(), Arc::new(Rules), |_| {}));
    let asked = all_asked();
    let mut open: Vec<(String, usize, Registered)> = vec![];
    let mut cut = 0;
    let prelude = prelude();
    let begin = prelude.len();
    for (number, step) in prelude.into_iter().chain(steps).enumerate() {
        let told = format!("step {number}: {step:?}");
        world.take(step).await;
        if number + 1 < begin {
            continue;
        }
        let now = world.index.now();
        assert_eq!(now, world.hands_now());
        let (followed, rebuilt) = (world.index.snapshot(), world.rebuilt().await);
        let mut passing = vec![];
        for (secret, id) in world.tokens.values() {
            for (at, one) in asked.iter().enumerate() {
                let answer = one.decide(&followed, secret, now);
                let question =
                    format!("{id} {:?} in {} (narrowed to {:?})", ASKED[one.at], one.namespace, one.narrowed);
                assert_eq!(
                    answer,
                    one.decide(&rebuilt, secret, now),
                    "{told}: followed and rebuilt differ: {question}"
                );
                assert_eq!(answer.is_ok(), world.ought_to_pass(id, one), "{told}: {question}: {answer:?}");
                if answer.is_ok() {
                    passing.push((id.clone(), at));
                }
            }
        }
        streams.settled(&world.index).await;
        open.retain(|(id, at, stream)| {
            let passes = passing.iter().any(|(other, question)| other == id && question == at);
            assert_eq!(stream.cut.cause().is_none(), passes, "{told}: stream of {id}: {:?}", stream.cut.cause());
            cut += usize::from(!passes);
            passes
        });
        for (at, (id, question)) in passing.iter().enumerate() {
            let known = open.iter().any(|(other, at, _)| other == id && at == question);
            if known || open.len() >= STREAMS || (at + number) % 3 != 0 {
                continue;
            }
            let token = followed.tokens[id.as_str()].clone();
            let target = asked[*question].target();
            let key = {
                let target::Target { cluster, project: narrowed, request, forward: _ } = target;
                StreamKey { token, cluster, narrowed, request, across: None }
            };
            open.push((id.clone(), *question, streams.enter_late(key, &world.index, &Rules)));
        }
    }
    judge.abort();
    cut
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn nothing_passes_that_a_fresh_evaluation_refuses(steps in prop::collection::vec(step(), 1..40)) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.block_on(live(steps));
    }
}

/// The property would hold of a world in which nothing is permitted or nothing ever cut.
#[tokio::test(flavor = "multi_thread")]
async fn histories_open_streams_and_cut_them() {
    for step in [
        Step::Role { role: 0, view: false, own: 0, inherits: 0 },
        Step::Drop(Kind::AccessRole, 1),
        Step::Role { role: 0, view: false, own: 0b1010, inherits: 1 << 6 },
        Step::Team { team: 0, members: 0b010 },
        Step::Drop(Kind::Grant, 0),
        Step::Project { project: 0, roles: 0 },
        Step::User { user: 0, disabled: true },
        Step::Suspend { user: 0, suspended: true },
        Step::Claim { namespace: 0, project: 1, releasing: false },
        Step::Observe { there: 0, strangers: false, usable: true },
        Step::Drop(Kind::Token, 0),
        Step::Drop(Kind::Cluster, 0),
        Step::Pass(120),
    ] {
        let told = format!("{step:?}");
        // Two steps that change nothing, so that there is something to cut.
        assert!(live(vec![Step::Pass(0), Step::Pass(0), step]).await > 0, "{told}");
    }
    assert_eq!(live(vec![Step::Pass(1), Step::Pass(1), Step::Pass(1)]).await, 0);
}
