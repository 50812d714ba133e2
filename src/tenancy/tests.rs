//! Claims and ledgers under every order of steps.

mod memory;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::records::{ClaimOrigin, Ledger, Reservation};
use crate::store::sealed::Sealer;
use crate::store::sqlite::{SqliteSettings, SqliteStore};
use memory::Memory;

const LIMIT: i64 = 10;
const MAX: usize = 3;

fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

fn uid(name: &str) -> String {
    format!("{name}-uid-0000-0000")
}

/// A project that may make up to three namespaces with its prefix and share ten Pods among them.
fn project(name: &str, declared: &[&str]) -> serde_json::Value {
    json!({
        "apiVersion": "bailiwick.dev/v1alpha1", "kind": "Project",
        "metadata": {"name": name, "uid": uid(name)},
        "spec": {"clusters": [{
            "cluster": "demo", "namespaces": declared, "prefix": format!("{name}-"), "maxNamespaces": MAX,
            "quota": {"pods": LIMIT.to_string()},
        }]},
    })
}

fn cluster() -> serde_json::Value {
    json!({
        "apiVersion": "bailiwick.dev/v1alpha1", "kind": "Cluster",
        "metadata": {"name": "demo", "uid": "demo-uid"},
        "spec": {"connection": {"direct": {"server": "https://demo.example.com", "certificateAuthority": "none"}}},
    })
}

async fn put(store: &dyn Store, kind: Kind, name: &str, value: &serde_json::Value) {
    let key = Key::new(kind, name);
    let value = Bytes::from(value.to_string());
    match store.get(&key).await.unwrap() {
        Some(old) => store.update(key, old.revision, value).await.unwrap(),
        None => store.create(key, value).await.unwrap(),
    };
}

async fn tenancy(store: Arc<dyn Store>) -> Arc<Tenancy> {
    let sealer = Arc::new(Sealer::new("test", &[7; 32]));
    let (index, _writer) = Index::start(store.clone(), sealer).await.unwrap();
    Arc::new(Tenancy::new(store, index))
}

/// A store with two projects on one cluster.
async fn stage(seed: u64) -> (Arc<Memory>, Arc<Tenancy>) {
    let store = Memory::new(seed, Box::new(check_write));
    put(&*store, Kind::Cluster, "demo", &cluster()).await;
    put(&*store, Kind::Project, "shop", &project("shop", &[])).await;
    put(&*store, Kind::Project, "web", &project("web", &[])).await;
    let tenancy = tenancy(store.clone()).await;
    (store, tenancy)
}

/// No ledger is ever written that gives away more than there is.
fn check_write(key: &Key, value: &Bytes) {
    if key.kind == Kind::Ledger {
        let ledger: Ledger = serde_json::from_slice(value).unwrap();
        let sum: i64 = ledger.shares.values().filter_map(|s| s.get("pods")).map(|s| s.parse::<i64>().unwrap()).sum();
        assert!(sum <= LIMIT, "{sum} Pods of {LIMIT} given away");
        assert!(ledger.shares.len() <= MAX, "{:?}", ledger.shares.keys());
    }
}

/// One pass over what is in the store now.
async fn pass(store: &Arc<dyn Store>, tenancy: &Tenancy, now: Timestamp) {
    let sealer = Arc::new(Sealer::new("test", &[7; 32]));
    let (index, writer) = Index::start(store.clone(), sealer).await.unwrap();
    tenancy.pass(&index.snapshot(), now).await;
    writer.abort();
}

async fn ledger(store: &dyn Store, project: &str) -> Option<Ledger> {
    let entry = store.get(&ledger_key(project, "demo")).await.unwrap()?;
    Some(serde_json::from_slice(&entry.value).unwrap())
}

async fn claims(store: &dyn Store) -> Vec<Claim> {
    let (entries, _) = store.list(Kind::Claim).await.unwrap();
    entries.iter().map(|entry| serde_json::from_slice(&entry.value).unwrap()).collect()
}

/// Every claim has its share and every share its claim.
async fn check_settled(store: &dyn Store) {
    let claims = claims(store).await;
    for name in ["shop", "web"] {
        let ledger = ledger(store, name).await.unwrap_or_default();
        let shares: Vec<&String> = ledger.shares.keys().collect();
        let mut owned: Vec<&String> = claims.iter().filter(|c| c.project == name).map(|c| &c.namespace).collect();
        owned.sort();
        assert_eq!(shares, owned, "{name}");
        assert_eq!(ledger.pending.len(), 0, "{name}");
    }
}

/// Behind an acknowledged creation stands a share, as long as nobody changed the claim since.
async fn check_share(tenancy: &Tenancy, store: &dyn Store, project: &str, namespace: &str) {
    let before = tenancy.claim("demo", namespace).await.unwrap();
    let ledger = ledger(store, project).await.unwrap_or_default();
    let after = tenancy.claim("demo", namespace).await.unwrap();
    if let (Some(before), Some(after)) = (before, after)
        && before.revision == after.revision
        && before.object.project == project
        && !before.object.releasing
    {
        assert!(ledger.shares.contains_key(namespace), "{namespace} of {project} has no share");
    }
}

#[derive(Debug, Clone)]
enum Step {
    Create(&'static str, u8),
    Release(&'static str, u8),
    Move(&'static str, &'static str, u8),
    GiveBack(&'static str, u8),
    CleanUp,
    Pass,
}

fn namespace(of: u8) -> String {
    // Half of the names are of either project, so that moves meet creations.
    format!("{}-{}", if of < 3 { "shop" } else { "web" }, of % 3)
}

async fn perform(tenancy: &Tenancy, store: Arc<dyn Store>, step: Step) {
    match step {
        Step::Create(project, of) => {
            if tenancy.create_namespace(project, "demo", &namespace(of), "alice", now()).await.is_ok() {
                check_share(tenancy, &*store, project, &namespace(of)).await;
            }
        }
        // What repair does, at the worst of times.
        Step::GiveBack(project, of) => {
            tenancy.give_back(project, &uid(project), "demo", &namespace(of)).await.unwrap();
        }
        Step::Release(project, of) => {
            let _ = tenancy.release_namespace(project, "demo", &namespace(of), "alice").await;
        }
        Step::Move(from, to, of) => {
            let _ = tenancy.move_namespace("demo", &namespace(of), from, to, "alice", now()).await;
        }
        Step::CleanUp => {
            for claim in claims(&*store).await.iter().filter(|claim| claim.releasing) {
                tenancy.released(claim).await.unwrap();
            }
        }
        Step::Pass => pass(&store, tenancy, now()).await,
    }
}

/// Runs a future for a number of polls and drops it then, as a crash would.
async fn crash_after(polls: usize, future: impl Future<Output = ()>) {
    let mut future = pin!(future);
    let mut left = polls;
    std::future::poll_fn(move |context| {
        if left == 0 {
            return Poll::Ready(());
        }
        left -= 1;
        future.as_mut().poll(context)
    })
    .await;
}

fn step() -> impl Strategy<Value = Step> {
    let project = prop_oneof![Just("shop"), Just("web")];
    prop_oneof![
        4 => (project.clone(), 0..6u8).prop_map(|(project, of)| Step::Create(project, of)),
        2 => (project.clone(), 0..6u8).prop_map(|(project, of)| Step::Release(project, of)),
        2 => (project, 0..6u8).prop_map(|(from, of)| {
            Step::Move(from, if from == "shop" { "web" } else { "shop" }, of)
        }),
        3 => (prop_oneof![Just("shop"), Just("web")], 0..6u8).prop_map(|(of, at)| Step::GiveBack(of, at)),
        2 => Just(Step::CleanUp),
        1 => Just(Step::Pass),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    // Every write is checked on the way (`check_write`); in the end everything must fit together again.
    #[test]
    fn any_interleaving_with_crashes_stays_within_the_limits_and_settles(
        seed in any::<u64>(),
        steps in prop::collection::vec((step(), prop::option::weighted(0.3, 1..60usize)), 1..14),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (store, tenancy) = stage(seed).await;
            let running = steps.into_iter().map(|(step, crash)| {
                let (store, tenancy) = (store.clone(), tenancy.clone());
                async move { crash_after(crash.unwrap_or(usize::MAX), perform(&tenancy, store, step)).await }
            });
            futures::future::join_all(running).await;
            let store: Arc<dyn Store> = store;
            // What a crash leaves is given back after a minute; two passes, since one may make work for the next.
            for minutes in [5, 10, 15] {
                pass(&store, &tenancy, now() + SignedDuration::from_mins(minutes)).await;
            }
            let problems = (tenancy.problems("shop"), tenancy.problems("web"));
            if problems.0.is_empty() && problems.1.is_empty() {
                check_settled(&*store).await;
            } else {
                // A claim whose share was lost to another is shown, not acted upon.
                let claimed = claims(&*store).await.len();
                assert!(claimed > MAX, "{problems:?} with only {claimed} claims");
            }
        });
    }
}

#[tokio::test]
async fn repair_at_the_worst_of_times_takes_no_share_from_a_creation() {
    for seed in 0..500 {
        let (store, tenancy) = stage(seed * 7919 + 1).await;
        let repair = async {
            for _ in 0..6 {
                tenancy.give_back("shop", &uid("shop"), "demo", "shop-0").await.unwrap();
            }
        };
        let (created, ()) = tokio::join!(tenancy.create_namespace("shop", "demo", "shop-0", "alice", now()), repair);
        created.unwrap();
        check_share(&tenancy, &*store, "shop", "shop-0").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn fifty_parallel_creations_for_three_places_give_exactly_three() {
    let directory = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(directory.path(), SqliteSettings::default()).unwrap());
    put(&*store, Kind::Cluster, "demo", &cluster()).await;
    put(&*store, Kind::Project, "shop", &project("shop", &[])).await;
    let tenancy = tenancy(store.clone()).await;
    let tasks = (0..50).map(|at| {
        let tenancy = tenancy.clone();
        tokio::spawn(
            async move { tenancy.create_namespace("shop", "demo", &format!("shop-{at}"), "alice", now()).await },
        )
    });
    let results = futures::future::join_all(tasks).await;
    let (won, lost): (Vec<_>, Vec<_>) = results.into_iter().map(|result| result.unwrap()).partition(Result::is_ok);
    assert_eq!((won.len(), lost.len()), (3, 47));
    for error in lost {
        assert!(matches!(error, Err(TenancyError::Full { max: 3, .. })), "{error:?}");
    }
    assert_eq!(claims(&*store).await.len(), 3);
    check_settled(&*store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_parallel_creations_of_one_name_by_two_projects_one_wins() {
    let directory = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(directory.path(), SqliteSettings::default()).unwrap());
    put(&*store, Kind::Cluster, "demo", &cluster()).await;
    // The same prefix, which validation refuses elsewhere.
    for name in ["shop", "web"] {
        let mut project = project(name, &[]);
        project["spec"]["clusters"][0]["prefix"] = "x-".into();
        put(&*store, Kind::Project, name, &project).await;
    }
    let tenancy = tenancy(store.clone()).await;
    let tasks = (0..20).map(|at| {
        let tenancy = tenancy.clone();
        let project = if at % 2 == 0 { "shop" } else { "web" };
        tokio::spawn(async move { tenancy.create_namespace(project, "demo", "x-1", "alice", now()).await })
    });
    let results = futures::future::join_all(tasks).await;
    assert_eq!(results.iter().filter(|result| result.as_ref().unwrap().is_ok()).count(), 1);
    assert_eq!(claims(&*store).await.len(), 1);
    check_settled(&*store).await;
}

#[tokio::test]
async fn declared_namespaces_come_and_go_with_the_spec() {
    let (store, tenancy) = stage(1).await;
    let store: Arc<dyn Store> = store;
    put(&*store, Kind::Project, "shop", &project("shop", &["shop", "store"])).await;
    pass(&store, &tenancy, now()).await;
    let owned = claims(&*store).await;
    assert_eq!(
        owned.iter().map(|c| (&*c.namespace, c.origin)).collect::<Vec<_>>(),
        [("shop", ClaimOrigin::Declared), ("store", ClaimOrigin::Declared)]
    );
    let refused = tenancy.release_namespace("shop", "demo", "store", "alice").await;
    assert!(matches!(refused, Err(TenancyError::Declared { .. })), "{refused:?}");
    put(&*store, Kind::Project, "shop", &project("shop", &["shop"])).await;
    pass(&store, &tenancy, now()).await;
    let owned = claims(&*store).await;
    assert_eq!(
        owned.iter().map(|c| (&*c.namespace, c.releasing)).collect::<Vec<_>>(),
        [("shop", false), ("store", true)]
    );
    tenancy.released(&owned[1]).await.unwrap();
    check_settled(&*store).await;
    assert_eq!(claims(&*store).await.len(), 1);
}

#[tokio::test]
async fn a_declared_name_that_another_project_has_is_reported_and_left() {
    let (store, tenancy) = stage(1).await;
    let store: Arc<dyn Store> = store;
    tenancy.create_namespace("web", "demo", "web-1", "bob", now()).await.unwrap();
    put(&*store, Kind::Project, "shop", &project("shop", &["web-1"])).await;
    pass(&store, &tenancy, now()).await;
    let problems = tenancy.problems("shop");
    assert_eq!(problems.len(), 1);
    assert!(!problems[0].message.contains("\"web\""), "the owner is not named: {}", problems[0].message);
    assert_eq!(claims(&*store).await[0].project, "web");
}

#[tokio::test]
async fn a_move_counts_on_both_sides() {
    let (store, tenancy) = stage(1).await;
    for name in ["web-0", "web-1", "web-2"] {
        tenancy.create_namespace("web", "demo", name, "bob", now()).await.unwrap();
    }
    tenancy.create_namespace("shop", "demo", "shop-0", "alice", now()).await.unwrap();
    let full = tenancy.move_namespace("demo", "shop-0", "shop", "web", "root", now()).await;
    assert!(matches!(full, Err(TenancyError::Full { max: 3, .. })), "{full:?}");
    check_settled(&*store).await;
    let moved = tenancy.move_namespace("demo", "web-0", "web", "shop", "root", now()).await.unwrap();
    assert_eq!((moved.project, moved.project_uid), ("shop".to_owned(), uid("shop")));
    check_settled(&*store).await;
    // The place that became free can be used again, and what is gone cannot be moved twice.
    tenancy.create_namespace("web", "demo", "web-3", "bob", now()).await.unwrap();
    let gone = tenancy.move_namespace("demo", "web-0", "web", "shop", "root", now()).await;
    assert!(matches!(gone, Err(TenancyError::NotOwned { .. })), "{gone:?}");
}

#[tokio::test]
async fn a_deleted_projects_name_is_reserved_until_its_clusters_are_clean() {
    let (store, tenancy) = stage(1).await;
    let store: Arc<dyn Store> = store;
    tenancy.create_namespace("shop", "demo", "shop-0", "alice", now()).await.unwrap();
    tenancy.delete_project("shop", None, now()).await.unwrap();
    assert!(store.get(&Key::new(Kind::Project, "shop")).await.unwrap().is_none());
    assert!(tenancy.name_is_reserved("shop").await.unwrap());
    assert!(!tenancy.name_is_reserved("web").await.unwrap());
    let entry = store.get(&Key::new(Kind::Reservation, "shop")).await.unwrap().unwrap();
    let reservation: Reservation = serde_json::from_slice(&entry.value).unwrap();
    assert_eq!(reservation, Reservation { project_uid: uid("shop"), clusters: vec!["demo".into()] });
    // The namespace's name is refused to another team as well, and a pass changes nothing.
    let mut other = project("other", &["shop-0"]);
    other["spec"]["clusters"][0]["prefix"] = "shop-".into();
    put(&*store, Kind::Project, "other", &other).await;
    pass(&store, &tenancy, now()).await;
    let taken = tenancy.create_namespace("other", "demo", "shop-0", "eve", now()).await;
    assert!(matches!(taken, Err(TenancyError::Taken { .. })), "{taken:?}");
    let claim = claims(&*store).await.remove(0);
    assert!(claim.releasing);
    tenancy.released(&claim).await.unwrap();
    assert!(!tenancy.name_is_reserved("shop").await.unwrap());
    assert!(store.get(&Key::new(Kind::Reservation, "shop")).await.unwrap().is_none());
    assert!(ledger(&*store, "shop").await.is_none());
}

#[tokio::test]
async fn forgetting_a_cluster_frees_what_waits_for_it_and_nothing_else() {
    let (store, tenancy) = stage(1).await;
    let store: Arc<dyn Store> = store;
    tenancy.create_namespace("shop", "demo", "shop-0", "alice", now()).await.unwrap();
    tenancy.create_namespace("web", "demo", "web-0", "bob", now()).await.unwrap();
    tenancy.delete_project("shop", None, now()).await.unwrap();
    assert_eq!(tenancy.forget("demo", Some("web"), "root", now()).await.unwrap(), Vec::<String>::new());
    assert!(tenancy.name_is_reserved("shop").await.unwrap());
    assert_eq!(tenancy.forget("demo", None, "root", now()).await.unwrap(), ["shop-0"]);
    assert!(!tenancy.name_is_reserved("shop").await.unwrap());
    assert_eq!(claims(&*store).await.iter().map(|claim| &*claim.namespace).collect::<Vec<_>>(), ["web-0"]);
}

#[tokio::test]
async fn an_interrupted_deletion_is_finished_and_a_project_that_came_back_is_a_stranger() {
    let (store, tenancy) = stage(1).await;
    let store: Arc<dyn Store> = store;
    tenancy.create_namespace("shop", "demo", "shop-0", "alice", now()).await.unwrap();
    let mut marked = project("shop", &[]);
    marked["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    put(&*store, Kind::Project, "shop", &marked).await;
    let refused = tenancy.create_namespace("shop", "demo", "shop-1", "alice", now()).await;
    assert!(matches!(refused, Err(TenancyError::ProjectDeleting(_))), "{refused:?}");
    pass(&store, &tenancy, now()).await;
    assert!(store.get(&Key::new(Kind::Project, "shop")).await.unwrap().is_none());
    let mut again = project("shop", &[]);
    again["metadata"]["uid"] = "another-uid".into();
    put(&*store, Kind::Project, "shop", &again).await;
    let held = tenancy.create_namespace("shop", "demo", "shop-0", "eve", now()).await;
    assert!(matches!(held, Err(TenancyError::Taken { .. })), "{held:?}");
    let not_owned = tenancy.release_namespace("shop", "demo", "shop-0", "eve").await;
    assert!(matches!(not_owned, Err(TenancyError::NotOwned { .. })), "{not_owned:?}");
}

#[tokio::test]
async fn a_uid_is_recorded_for_the_owner_only() {
    let (store, tenancy) = stage(1).await;
    tenancy.create_namespace("shop", "demo", "shop-0", "alice", now()).await.unwrap();
    assert!(!tenancy.record_namespace("demo", "shop-0", &uid("web"), "ns-uid", 7).await.unwrap());
    assert!(tenancy.record_namespace("demo", "shop-0", &uid("shop"), "ns-uid", 7).await.unwrap());
    assert_eq!(claims(&*store).await[0].namespace_uid.as_deref(), Some("ns-uid"));
    // The earliest is kept: what came after it is the project's, too.
    assert!(tenancy.record_namespace("demo", "shop-0", &uid("shop"), "ns-uid", 9).await.unwrap());
    assert_eq!(claims(&*store).await[0].since, Some(7));
    // Made again, it is another one.
    assert!(tenancy.record_namespace("demo", "shop-0", &uid("shop"), "ns-other", 12).await.unwrap());
    assert_eq!(claims(&*store).await[0].since, Some(12));
    tenancy.release_namespace("shop", "demo", "shop-0", "alice").await.unwrap();
    assert!(!tenancy.record_namespace("demo", "shop-0", &uid("shop"), "ns-uid", 7).await.unwrap());
}

#[tokio::test]
async fn claims_of_a_cluster_that_was_replaced_are_dropped() {
    let (store, tenancy) = stage(1).await;
    let store: Arc<dyn Store> = store;
    tenancy.create_namespace("shop", "demo", "shop-0", "alice", now()).await.unwrap();
    pass(&store, &tenancy, now()).await;
    assert_eq!(claims(&*store).await.len(), 1);
    let mut replaced = cluster();
    replaced["metadata"]["uid"] = "another".into();
    put(&*store, Kind::Cluster, "demo", &replaced).await;
    pass(&store, &tenancy, now()).await;
    assert_eq!(claims(&*store).await, []);
    assert!(ledger(&*store, "shop").await.is_none());
}
