//! Judgement of merged watches: equal questions once, others each, and what a pass over many takes.

use rustix::time::{ClockId, clock_gettime};
use serde_json::json;
use std::sync::atomic::AtomicUsize;

use super::*;
use crate::index::ObservedCluster;
use crate::index::testing::{resource, snapshot};
use crate::proxy::decide::{Permit, Refusal, Rules};
use crate::proxy::resolve::Resolved;
use crate::proxy::target;
use crate::records::{Scoped, TokenRecord, TokenScopes};
use crate::resources::token::Audience;
use crate::store::{Kind, Revision};

const WIDTH: usize = 10;
const USERS: usize = 20;

/// The real rules, and how often they are asked.
#[derive(Default)]
struct Counting(AtomicUsize);

impl Decide for Counting {
    fn decide(&self, ctx: &Context<'_>, resolved: Option<&Resolved>) -> Result<Permit, Refusal> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Rules.decide(ctx, resolved)
    }
}

impl Counting {
    fn take(&self) -> usize {
        self.0.swap(0, Ordering::Relaxed)
    }
}

fn token(user: &str, id: &str, scopes: TokenScopes) -> Arc<TokenEntry> {
    let record = TokenRecord {
        id: id.into(),
        hash: String::new(),
        user: user.into(),
        user_uid: format!("uid-{user}"),
        epoch: 0,
        global_epoch: 0,
        audience: Audience::Kube,
        scopes,
        family: id.into(),
        description: String::new(),
        created_at: "2026-01-01T00:00:00Z".into(),
        expires_at: "2100-01-01T00:00:00Z".into(),
    };
    let expires_at = record.expires_at.parse().unwrap();
    Arc::new(TokenEntry { revision: Revision(1), record, hash: [1; 32], expires_at })
}

/// Each user is member of a project of ten namespaces, and viewer of another one of one.
fn platform(namespaces: &[&str]) -> Snapshot {
    let mut objects = vec![resource(Kind::Cluster, "demo", json!({"connection": {}}), json!({}))];
    let names: Vec<[String; 4]> = (0..USERS).map(|n| ["u", "p", "q", "g"].map(|kind| format!("{kind}{n}"))).collect();
    let mut observed = ObservedCluster { cluster_uid: "uid-demo".into(), usable: true, ..ObservedCluster::default() };
    let mut claims = vec![];
    for [user, project, other, _] in &names {
        objects.push(resource(Kind::User, user, json!({}), json!({})));
        for project in [project, other] {
            objects.push(resource(Kind::Project, project, json!({"clusters": [{"cluster": "demo"}]}), json!({})));
        }
        let own = (0..WIDTH).map(|n| (format!("{project}-{n}"), project));
        for (namespace, project) in own.chain([(format!("{other}-0"), other)]) {
            observed.namespaces.insert(namespace.as_str().into(), format!("ns-{namespace}").into());
            let claim = json!({"cluster": "demo", "cluster_uid": "uid-demo", "namespace": namespace,
                "namespace_uid": format!("ns-{namespace}"), "project": project, "project_uid": format!("uid-{project}"),
                "origin": "created", "releasing": false, "created_by": "root", "created_at": "2026-01-01T00:00:00Z"});
            claims.push((format!("demo/{namespace}"), claim));
        }
    }
    let grants: Vec<(String, &String, &str, &String, &[&str])> = names
        .iter()
        .flat_map(|[user, project, other, grant]| {
            [
                (grant.clone(), user, "member", project, namespaces),
                (format!("{grant}-o"), user, "viewer", other, &[] as &[&str]),
            ]
        })
        .collect();
    for (grant, user, role, project, namespaces) in &grants {
        let spec = json!({"subject": {"kind": "User", "name": user}, "role": role, "namespaces": namespaces,
            "target": {"kind": "Project", "name": project}});
        let status = json!({"subjectUID": format!("uid-{user}"), "targetUID": format!("uid-{project}")});
        objects.push(resource(Kind::Grant, grant, spec, status));
    }
    objects.extend(claims.iter().map(|(name, claim)| (Kind::Claim, name.as_str(), claim.clone())));
    let mut snapshot = snapshot(&objects);
    snapshot.observe("demo", Some(Arc::new(observed)));
    for [user, ..] in &names {
        let token = token(user, &format!("t-{user}"), TokenScopes::default());
        snapshot.tokens.insert(token.record.id.as_str().into(), token);
    }
    snapshot
}

fn now() -> Timestamp {
    "2030-01-01T00:00:00Z".parse().unwrap()
}

/// A merged watch of a resource, as it is admitted in this version of everything.
fn key(snapshot: &Snapshot, token: &Arc<TokenEntry>, narrowed: Option<&str>, resource: &str) -> StreamKey {
    let path = format!("/k8s/clusters/demo/api/v1/{resource}");
    let request = target::parse("GET", &path, Some("watch=1")).unwrap().request;
    let ctx = Context {
        snapshot,
        asker: Asker { user: &snapshot.live_owner(token, now()).unwrap().object, scopes: &token.record.scopes },
        place: Place { cluster: "demo", project: narrowed, namespace: "" },
        request: &request,
        now: now(),
    };
    let members = across::members(&Rules, &ctx, across::concerns(&request).unwrap()).unwrap().unwrap();
    let across = Some(Across { set: Some(members.set), width: members.permitted.len() });
    StreamKey { token: token.clone(), cluster: "demo".into(), narrowed: narrowed.map(str::to_owned), request, across }
}

fn causes(registered: &[Registered]) -> Vec<Option<&'static str>> {
    registered.iter().map(|one| one.cut.cause()).collect()
}

#[test]
fn equal_questions_are_judged_once_and_different_ones_each() {
    let (all, narrowed) = (platform(&[]), platform(&["p0-1"]));
    let (streams, decider) = (Streams::new(), Counting::default());
    let pass = |snapshot: &Snapshot| streams.judge_once(&decider, snapshot, now(), true, &|_| {});
    let own = all.tokens.get("t-u0").unwrap().clone();
    let equal: Vec<Registered> = (0..50).map(|_| streams.register(key(&all, &own, None, "pods"))).collect();
    pass(&all);
    assert_eq!(decider.take(), WIDTH + 1, "fifty watches, one question");
    // Each in one point another one.
    let theirs = all.tokens.get("t-u1").unwrap();
    let different = [
        key(&all, &own, Some("p0"), "pods"),
        key(&all, &own, Some("q0"), "pods"),
        key(&all, &own, None, "configmaps"),
        key(&all, theirs, None, "pods"),
    ];
    let different: Vec<Registered> = different.into_iter().map(|key| streams.register(key)).collect();
    pass(&all);
    assert_eq!(decider.take(), (WIDTH + 1) + WIDTH + 1 + (WIDTH + 1) + (WIDTH + 1));
    assert!(causes(&equal).iter().chain(&causes(&different)).all(Option::is_none));
    // One member less for u0, in one of the projects.
    pass(&narrowed);
    assert!(causes(&equal).iter().all(|cause| *cause == Some(across::MEMBERSHIP)));
    let membership = Some(across::MEMBERSHIP);
    assert_eq!(causes(&different), [membership, None, membership, membership], "each user's own grants are narrowed");
    assert_eq!(streams.count_of("u0"), 50 * (WIDTH + 1) + WIDTH + 1 + (WIDTH + 1));
    drop((equal, different));
    assert_eq!((streams.len(), streams.count_of("u0"), streams.count_of("u1")), (0, 0, 0));
}

/// A credential that was written anew under its id is judged by its own limits, and lends them to no other.
#[test]
fn limits_are_not_mixed_up() {
    let mut all = platform(&[]);
    let streams = Streams::new();
    let wide = all.tokens.get("t-u0").unwrap().clone();
    let limits =
        TokenScopes { projects: vec![Scoped { name: "q0".into(), uid: "uid-q0".into() }], ..TokenScopes::default() };
    let tight = token("u0", "t-u0", limits);
    all.tokens.insert("t-u0".into(), tight.clone());
    let keys = [key(&all, &wide, None, "pods"), key(&all, &tight, None, "pods")];
    assert_ne!(keys[0].across.unwrap().set, keys[1].across.unwrap().set);
    for order in [[0, 1], [1, 0]] {
        let registered: Vec<Registered> = order.iter().map(|at| streams.register(keys[*at].clone())).collect();
        streams.judge_once(&Rules, &all, now(), true, &|_| {});
        assert_eq!(causes(&registered), [None, None]);
    }
}

#[test]
fn a_cut_lets_go_once_and_keeps_its_first_cause() {
    let (all, streams) = (platform(&[]), Streams::new());
    let key = key(&all, all.tokens.get("t-u0").unwrap(), None, "pods");
    for before in [true, false] {
        let registered = streams.register(key.clone());
        let done = Arc::new(AtomicUsize::new(0));
        let act = || {
            let done = done.clone();
            Box::new(move || {
                done.fetch_add(1, Ordering::Relaxed);
            })
        };
        if before {
            registered.cut.then(act());
        }
        streams.cut_all("first");
        if !before {
            registered.cut.then(act());
        }
        streams.judge_once(&Rules, &all, now(), false, &|_| {});
        streams.cut_all("second");
        assert_eq!((done.load(Ordering::Relaxed), registered.cut.cause()), (1, Some("first")));
        drop(registered);
        assert_eq!(Arc::strong_count(&done), 1, "nothing is kept");
    }
}

#[test]
fn an_account_never_has_more_than_it_may() {
    let (all, streams) = (platform(&[]), Streams::new());
    let key = key(&all, all.tokens.get("t-u0").unwrap(), Some("p0"), "pods");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..500 {
                    let registered = streams.register_within(key.clone(), 3 * WIDTH + 5);
                    assert!(streams.count_of("u0") <= 3 * WIDTH);
                    drop(registered);
                }
            });
        }
    });
    assert_eq!(streams.count_of("u0"), 0);
    let held: Vec<_> = (0..4).map(|_| streams.register_within(key.clone(), 3 * WIDTH + 5)).collect();
    assert_eq!(held.iter().filter(|one| one.is_ok()).count(), 3);
    assert_eq!(held[3].as_ref().err(), Some(&(3 * WIDTH)));
}

/// Time of the processor that this thread has had: a busy machine does not change it.
fn processor() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap())
}

/// Prints what one pass takes over 2,000 merged watches of ten namespaces. `cargo test --release` shows the true figure.
#[test]
fn what_a_pass_over_two_thousand_merged_watches_takes() {
    const WATCHES: usize = 2_000;
    let all = platform(&[]);
    for kinds in [1, 10, WATCHES / USERS] {
        let (streams, decider) = (Streams::new(), Counting::default());
        let mut registered = vec![];
        for n in 0..WATCHES {
            let (user, kind) = (n % USERS, n / USERS % kinds);
            let token = all.tokens.get(format!("t-u{user}").as_str()).unwrap();
            let mut key = key(&all, token, Some(&format!("p{user}")), "pods");
            // As many questions as there would be with so many kinds; of what, does not matter.
            if let RequestInfo::Resource(request) = &mut key.request {
                request.version = format!("v{kind}");
            }
            registered.push(streams.register(key));
        }
        let started = processor();
        streams.judge_once(&decider, &all, now(), true, &|_| {});
        let took = processor() - started;
        println!("{WATCHES} merged watches x {WIDTH} namespaces, {} questions: judged in {took:?}", USERS * kinds);
        assert_eq!(decider.take(), USERS * kinds * WIDTH);
        assert!(causes(&registered).iter().all(Option::is_none));
    }
}
