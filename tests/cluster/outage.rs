//! An API server that stops and comes back while projects are kept on it and streams go through the proxy.

use std::time::{Duration, Instant};

use bailiwick::clusters::manifest::Impersonation;
use serde_json::json;

use super::ask::*;
use super::harness::*;
use super::platform::*;
use super::process::{Running, has, run};
use super::relay::Relay;

const BESIDE: &str = "steady";
/// After the first one. Each round changes the same objects, and after five reverts that would be a contest.
const ROUNDS: usize = 4;
/// Connections that are not used are closed after 60 and 90 seconds; each probe opens some at a time.
const IDLE: Duration = Duration::from_secs(150);
const QUOTA: &str = "/api/v1/namespaces/farm-one/resourcequotas/bailiwick";
const BINDING: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/farm-one/rolebindings/bailiwick:role:member";

/// Tasks of this test's runtime, and connections to the cluster.
fn held(relay: &Relay) -> (usize, usize) {
    (tokio::runtime::Handle::current().metrics().num_alive_tasks(), relay.sockets())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarts_are_survived_and_nothing_accumulates() {
    let (site, other) = tokio::join!(Site::alone(Impersonation::Constrained), Site::beside(BESIDE));
    let relay = Relay::to(&site.server).await;
    let platform = Platform::start().await;
    platform.world.import(CLUSTER, &site, Some(relay.address)).await;
    platform.world.import(BESIDE, &other, None).await;
    platform.project("farm", CLUSTER, &["farm-one"]).await;
    platform.project("mill", BESIDE, &["mill-one"]).await;
    let farmer = platform.person("mara", "owner", ("Project", "farm")).await;
    let miller = platform.person("mike", "owner", ("Project", "mill")).await;
    let on_first = |args: &str| tokio::task::block_in_place(|| run(through(&site, &farmer, CLUSTER, args)));
    let on_second = |args: &str| tokio::task::block_in_place(|| run(through(&site, &miller, BESIDE, args)));
    let (admin, beside) = (site.admin().await, other.admin().await);

    let mut before = None;
    for round in 0..=ROUNDS {
        let watch = Running::start(through(&site, &farmer, CLUSTER, "-n farm-one get configmaps --watch-only"));
        until("the watch goes through the proxy", || async { (!platform.proxy.streams().is_empty()).then_some(()) })
            .await;
        on_first(&format!("-n farm-one create configmap round-{round}")).ok();
        tokio::task::block_in_place(|| watch.prints(&format!("round-{round}")));

        site.stop_api_server();
        relay.cut();
        tokio::task::block_in_place(|| watch.ended());
        let condition = platform.world.condition(CLUSTER, "Reachable", "False").await;
        assert_eq!(condition.reason, "Unreachable");
        platform.world.observed("refused after the grace", CLUSTER, |seen| !seen.usable).await;
        let asked = Instant::now();
        let refused = on_first("-n farm-one get configmaps").fails();
        has(&refused, &["cannot be reached"]);
        assert!(asked.elapsed() < Duration::from_secs(10), "{refused}");

        // The other cluster notices nothing: requests pass, drift is reverted.
        on_second(&format!("-n mill-one create configmap round-{round}")).ok();
        let quota = "/api/v1/namespaces/mill-one/resourcequotas/bailiwick";
        beside.must(merge(quota, json!({"spec": {"hard": {"pods": "400"}}}))).await;
        until("drift beside is reverted", || async {
            (beside.must(get(quota)).await["spec"]["hard"]["pods"] == "2").then_some(())
        })
        .await;
        assert!(platform.world.index.snapshot().observed(BESIDE).unwrap().usable);

        // Drift while the service sees nothing.
        site.start_api_server();
        admin.must(merge(QUOTA, json!({"spec": {"hard": {"pods": "400", "services": "9"}}}))).await;
        admin.must(delete(BINDING)).await;
        let late = format!("late-{round}");
        admin.must(create("/api/v1/namespaces", plain_namespace(&late))).await;
        relay.mend();
        platform.world.condition(CLUSTER, "Reachable", "True").await;
        platform.world.observed("usable again", CLUSTER, |seen| seen.usable).await;
        let back = Instant::now();
        until("drift is reverted", || async {
            let hard = admin.must(get(QUOTA)).await["spec"]["hard"].clone();
            let bound = admin.send(&get(BINDING)).await.status == 200;
            (hard["pods"] == "2" && hard["services"].is_null() && bound).then_some(())
        })
        .await;
        println!("round {round}: reverted {:?} after the cluster was back", back.elapsed());
        let seen = |seen: &bailiwick::index::ObservedCluster| seen.namespaces.contains_key(late.as_str());
        platform.world.observed("what came meanwhile", CLUSTER, seen).await;
        on_first("-n farm-one get configmaps").ok();

        let now = held(&relay);
        println!("round {round}: tasks and connections {now:?}");
        // The first rounds open what is kept open from then on; more of it is idle after one than after another.
        if round < 2 {
            let (tasks, sockets) = *before.get_or_insert(now);
            before = Some((tasks.min(now.0), sockets.min(now.1)));
        }
    }
    let (tasks, sockets) = before.unwrap();
    until_within(IDLE, "nothing has accumulated", || async {
        let (tasks_now, sockets_now) = held(&relay);
        (tasks_now <= tasks && sockets_now <= sockets).then_some(())
    })
    .await;
    assert!(platform.proxy.streams().is_empty(), "no stream is left");
    platform.world.shutdown.cancel();
    platform.controllers.stop().await;
}

/// A firewall that forgets connections tells neither end: what was watched through them must not be believed for long.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_die_without_a_word_are_replaced() {
    let site = Site::alone(Impersonation::Constrained).await;
    let relay = Relay::to(&site.server).await;
    let platform = Platform::start().await;
    platform.world.import(CLUSTER, &site, Some(relay.address)).await;
    platform.project("farm", CLUSTER, &["farm-one"]).await;
    let admin = site.admin().await;

    relay.silence();
    admin.must(delete(BINDING)).await;
    admin.must(merge(QUOTA, json!({"spec": {"hard": {"pods": "400"}}}))).await;
    admin.must(create("/api/v1/namespaces", plain_namespace("unseen"))).await;
    let watches = Duration::from_secs(90);
    until_within(watches, "drift is reverted", || async {
        let bound = admin.send(&get(BINDING)).await.status == 200;
        (bound && admin.must(get(QUOTA)).await["spec"]["hard"]["pods"] == "2").then_some(())
    })
    .await;
    until_within(watches, "the namespace is seen", || async {
        platform.world.index.snapshot().observed(CLUSTER)?.namespaces.contains_key("unseen").then_some(())
    })
    .await;
    platform.world.shutdown.cancel();
    platform.controllers.stop().await;
}
