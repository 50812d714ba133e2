//! Cut-off across namespaces: a right that ends takes lists and merged watches along, whether they are read or not, and
//! what the cluster says after it reaches nobody.

use std::time::{Duration, Instant};

use bailiwick::listener::Limits;
use bailiwick::proxy::ProxySettings;
use bailiwick::records::{Account, Suspension};
use bailiwick::store::sealed::Binding;
use bailiwick::store::{Key, Kind};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;

use super::cluster::{
    Cluster, REVISION, Reply, added, all_of, event, listed, nothing_is_left, pod, pod_list, start, start_with, until,
};
use super::reader::{End, NARROW, ROOT, Reader, get};
use crate::connections::{dial, impatient};
use crate::harness::{BILLING_UID, DEADLINE, World, observe};

/// The design's bound for the worst case is a second, and `cutoff` holds it to that; here many do much at a time.
const BOUND: Duration = Duration::from_secs(3);
const SHOP: [&str; 2] = ["shop-data", "shop-web"];

/// What ends a right, or changes what it is about.
const CAUSES: [&str; 9] = [
    "suspension",
    "a disabled account",
    "a revoked token",
    "a deleted grant",
    "a deleted project",
    "a deleted cluster",
    "a narrowed grant",
    "a moved namespace",
    "a namespace made anew",
];

/// Whether some of the set is left, so that clients are to list anew.
fn changes_the_set(cause: &str) -> bool {
    matches!(cause, "a narrowed grant" | "a moved namespace" | "a namespace made anew")
}

async fn happens(cause: &str, world: &World) {
    match cause {
        "suspension" => {
            let mut account = Account::default();
            account.user_uid = "uid-jane".into();
            account.suspended =
                Some(Suspension { at: "2026-01-01T00:00:00Z".into(), by: "admin".into(), reason: String::new() });
            let key = Key::new(Kind::Account, "jane");
            let sealed = world.sealer.seal(&key, Binding { uid: "uid-jane", version: 1 }, &account).unwrap();
            let revision = world.store.create(key, sealed).await.unwrap();
            world.index.applied(revision).await.unwrap();
        }
        "a disabled account" => world.change(Kind::User, "jane", |user| user["spec"]["disabled"] = true.into()).await,
        "a revoked token" => {
            world.delete(Kind::Token, world.token.split('_').nth(1).unwrap()).await;
        }
        "a deleted grant" => {
            world.delete(Kind::Grant, "jane-shop").await;
        }
        "a deleted project" => {
            let at = json!("2026-01-01T00:00:00Z");
            world.change(Kind::Project, "shop", |project| project["metadata"]["deletionTimestamp"] = at).await;
        }
        "a deleted cluster" => {
            world.delete(Kind::Cluster, "demo").await;
        }
        "a narrowed grant" => {
            let one = json!(["shop-web"]);
            world.change(Kind::Grant, "jane-shop", |grant| grant["spec"]["namespaces"] = one).await;
        }
        "a moved namespace" => {
            world
                .change(Kind::Claim, "demo/shop-data", |claim| {
                    claim["project"] = json!("billing");
                    claim["project_uid"] = json!(BILLING_UID);
                })
                .await;
        }
        _ => observe(&world.index, true, &["shop-web"]).await,
    }
}

/// Says something in both namespaces, again and again, until nobody hears it.
fn talk(cluster: &Cluster) -> tokio::task::JoinHandle<()> {
    let cluster = cluster.clone();
    tokio::spawn(async move {
        for n in 101.. {
            let heard = SHOP.map(|namespace| cluster.say(namespace, added(namespace, "talk", n)));
            if heard == [0, 0] {
                return;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_merged_watch_that_is_read_ends_with_its_right() {
    for cause in CAUSES {
        for root in [ROOT, NARROW] {
            let (world, cluster) = start().await;
            let mut watch = Reader::open(&world, &world.token, &format!("{root}/api/v1/pods?watch=1")).await;
            until("both are watched", || cluster.open() == 2, || cluster.open().to_string()).await;
            let talk = talk(&cluster);
            assert_eq!(watch.change().await.unwrap().1, "talk");
            happens(cause, &world).await;
            world.proxy.streams().settled(&world.index).await;
            let cut = Instant::now();
            if changes_the_set(cause) {
                watch.lists_anew(cause).await;
            } else {
                let (_, end) = watch.rest().await;
                assert_eq!(end, End::Torn, "{cause}: it must not seem to be complete");
            }
            assert!(cut.elapsed() < BOUND, "{cause}: it went on for {:?}", cut.elapsed());
            nothing_is_left(&world, &cluster, cause).await;
            tokio::time::timeout(DEADLINE, talk).await.expect("nobody hears the cluster").unwrap();
            let answer = world.request("GET", &format!("{root}/api/v1/pods?watch=1&timeoutSeconds=1"), "").await;
            match changes_the_set(cause) {
                true => assert_eq!(answer.code, 200, "{cause}: {}", answer.body),
                false => assert!(matches!(answer.code, 401 | 403), "{cause}: {} {}", answer.code, answer.body),
            }
            let audit = world.audit_text().await;
            assert_eq!(audit.matches("\"stage\":\"opened\"").count(), audit.matches("\"stage\":\"closed\"").count());
        }
    }
}

/// The pair: what has nothing to do with it goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_merged_watch_goes_on_through_what_is_not_about_it() {
    let (world, cluster) = start().await;
    let joe = world.issue("joe", Default::default()).await;
    let mut watch = Reader::open(&world, &world.token, &format!("{ROOT}/api/v1/pods?watch=1")).await;
    until("both are watched", || cluster.open() == 2, || cluster.open().to_string()).await;
    world.delete(Kind::Token, joe.split('_').nth(1).unwrap()).await;
    world.delete(Kind::Grant, "joe-billing").await;
    world.change(Kind::User, "joe", |user| user["spec"]["disabled"] = true.into()).await;
    observe(&world.index, true, &["shop-web", "shop-data", "somebody-elses"]).await;
    let spec = json!({"subject": {"kind": "User", "name": "jane"}, "role": "viewer",
        "target": {"kind": "Project", "name": "shop"}});
    let status = json!({"state": "Active", "subjectUID": "uid-jane", "targetUID": crate::harness::PROJECT_UID});
    world.create(Kind::Grant, "jane-shop-too", spec, status).await;
    world.proxy.streams().settled(&world.index).await;
    cluster.say("shop-web", added("shop-web", "still", 101));
    assert_eq!(watch.change().await.unwrap(), ("ADDED".into(), "still".into()));
    assert_eq!(cluster.open(), 2);
}

/// A watch of long events of which the client reads nothing: what can be on its way to it, is.
async fn unread(world: &World, cluster: &Cluster, limits: Limits) -> (TlsStream<TcpStream>, CancellationToken) {
    let (address, pki, shutdown) = impatient(world, limits).await;
    let mut large = pod("shop-web", "large", "101");
    large["data"] = "x".repeat(8 * 1024 * 1024).into();
    let large = event("ADDED", &large);
    cluster.script(move |ask| {
        ask.is_watch().then(|| Reply::Endless(large.clone().into(), large.clone().into(), Duration::ZERO))
    });
    let mut stream = dial(address, &pki, b"http/1.1").await;
    stream.write_all(get(&world.token, &format!("{ROOT}/api/v1/pods?watch=1"), "").as_bytes()).await.unwrap();
    let memory = || world.proxy.memory_of_lists();
    until("events are in memory", || cluster.open() == 2 && memory() > 8 << 20, || memory().to_string()).await;
    let mut still = (0, Instant::now());
    while still.1.elapsed() < Duration::from_millis(300) {
        tokio::time::sleep(Duration::from_millis(10)).await;
        if memory() != still.0 {
            still = (memory(), Instant::now());
        }
    }
    (stream, shutdown)
}

/// Who reads nothing is not asked: the cluster is let go of at once, and so is the memory but for what is on its way.
#[tokio::test(flavor = "multi_thread")]
async fn a_merged_watch_that_is_not_read_is_let_go_of_at_once() {
    for cause in ["suspension", "a deleted grant", "a narrowed grant"] {
        let (world, cluster) = start().await;
        let limits = Limits { unread: Duration::from_secs(600), ..Limits::default() };
        let (stream, _shutdown) = unread(&world, &cluster, limits).await;
        happens(cause, &world).await;
        until("the cluster is let go of", || cluster.open() == 0, || format!("{cause}: {}", cluster.open())).await;
        let memory = || world.proxy.memory_of_lists();
        until("one event is on its way", || memory() < 9 << 20, || format!("{cause}: {}", memory())).await;
        drop(stream);
        nothing_is_left(&world, &cluster, cause).await;
    }
}

/// And its connection goes with the time that an answer may be left unread.
#[tokio::test(flavor = "multi_thread")]
async fn who_goes_on_reading_nothing_loses_the_connection() {
    let (world, cluster) = start().await;
    let limits = Limits { unread: Duration::from_millis(300), ..Limits::default() };
    let (mut stream, _shutdown) = unread(&world, &cluster, limits).await;
    assert_eq!(world.proxy.streams().len(), 1, "not while it may be read");
    happens("suspension", &world).await;
    nothing_is_left(&world, &cluster, "suspension").await;
    let mut rest = vec![];
    let _ = tokio::time::timeout(DEADLINE, stream.read_to_end(&mut rest)).await.expect("it ends");
    assert!(!rest.ends_with(b"0\r\n\r\n"), "it must not seem to be complete");
}

/// The pair: a watch that is not read and not cut is left alone.
#[tokio::test(flavor = "multi_thread")]
async fn a_watch_whose_client_takes_its_time_is_left_alone() {
    let (world, cluster) = start().await;
    let limits = Limits { unread: Duration::from_millis(200), ..Limits::default() };
    let (address, pki, _shutdown) = impatient(&world, limits).await;
    let mut large = pod("shop-web", "large", "101");
    large["data"] = "x".repeat(1024 * 1024).into();
    let large = event("ADDED", &large);
    cluster.script(move |ask| {
        (ask.namespace == "shop-web" && ask.is_watch())
            .then(|| Reply::Endless(large.clone().into(), large.clone().into(), Duration::ZERO))
    });
    let target = format!("{ROOT}/api/v1/pods?watch=1");
    let mut watch = Reader::begin(dial(address, &pki, b"http/1.1").await, &world.token, &target).await;
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    for _ in 0..40 {
        assert_eq!(watch.change().await.unwrap().1, "large");
    }
}

/// A list under way, while the cluster takes its time: after a second its right is asked for again.
#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_takes_long_is_judged_before_it_is_given() {
    let settings = ProxySettings { response_timeout: Duration::from_secs(20), ..ProxySettings::default() };
    for (cause, code) in [
        ("nothing", 200),
        ("suspension", 401),
        ("a revoked token", 401),
        ("a deleted grant", 403),
        ("a deleted project", 403),
        ("a narrowed grant", 410),
        ("a moved namespace", 410),
    ] {
        let (world, cluster) = start_with(settings).await;
        cluster.script(|ask| {
            let list = super::cluster::sound_list(ask).to_string();
            (ask.namespace == "shop-web").then(|| Reply::Late(Duration::from_millis(1_300), list.into()))
        });
        let target = format!("{ROOT}/api/v1/pods");
        let asking = world.request("GET", &target, "");
        let acting = async {
            until("it is under way", || cluster.open() == 1, || cluster.open().to_string()).await;
            if cause != "nothing" {
                happens(cause, &world).await;
            }
        };
        let (answer, ()) = tokio::join!(asking, acting);
        assert_eq!(answer.code, code, "{cause}: {}", answer.body);
        match code {
            200 => assert_eq!(listed(&answer.body), all_of(&SHOP)),
            _ => assert!(!answer.body.contains("shop-web-1") && !answer.body.contains("shop-data-1")),
        }
        nothing_is_left(&world, &cluster, cause).await;
    }
}

/// A large list lies here whole: what of it was not on its way at the cut stays here.
#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_is_read_slowly_ends_with_its_right() {
    const EACH: usize = 8 * 1024 * 1024;
    for cause in ["nothing", "suspension", "a deleted grant", "a narrowed grant"] {
        let (world, cluster) = start_with(ProxySettings::default()).await;
        cluster.script(|ask| {
            let mut large = pod(&ask.namespace, "large", "5");
            large["data"] = "x".repeat(EACH).into();
            Some(Reply::json(&pod_list(REVISION, "", vec![large])))
        });
        let mut stream = world.connect().await;
        socket2::SockRef::from(stream.get_ref().0).set_recv_buffer_size(64 * 1024).unwrap();
        stream
            .write_all(get(&world.token, &format!("{ROOT}/api/v1/pods"), "Connection: close\r\n").as_bytes())
            .await
            .unwrap();
        let mut first = [0; 1024];
        let read = tokio::time::timeout(DEADLINE, stream.read(&mut first)).await.expect("a head in time").unwrap();
        assert!(first[..read].starts_with(b"HTTP/1.1 200"));
        // Nobody reads, until the answer has lasted for longer than one is trusted for.
        tokio::time::sleep(Duration::from_millis(1_100)).await;
        if cause != "nothing" {
            happens(cause, &world).await;
            world.proxy.streams().settled(&world.index).await;
        }
        let mut rest = vec![];
        let _ = tokio::time::timeout(DEADLINE, stream.read_to_end(&mut rest)).await.expect("it ends");
        match cause {
            "nothing" => assert!(read + rest.len() > 2 * EACH && rest.ends_with(b"]}\n"), "{}", rest.len()),
            _ => assert!(rest.len() < EACH / 2, "{cause}: {} bytes came", rest.len()),
        }
        nothing_is_left(&world, &cluster, cause).await;
    }
}

/// A watch of the namespaces themselves follows their changes; what it cannot follow ends it.
#[tokio::test(flavor = "multi_thread")]
async fn a_watch_of_namespaces_ends_with_its_right() {
    let namespace = |name: &str| {
        json!({"kind": "Namespace", "apiVersion": "v1",
            "metadata": {"name": name, "uid": format!("ns-{name}"), "resourceVersion": "101"}})
    };
    for cause in CAUSES {
        let (world, cluster) = start().await;
        let says = |kind: &str| SHOP.map(|name| event(kind, &namespace(name))).concat();
        let (first, again) = (says("ADDED"), says("MODIFIED"));
        cluster.script(move |ask| {
            let (first, again) = (first.clone().into(), again.clone().into());
            ask.is_watch().then(|| Reply::Endless(first, again, Duration::from_millis(3)))
        });
        let target = format!("{ROOT}/api/v1/namespaces?watch=1");
        let mut watch = Reader::open(&world, &world.token, &target).await;
        while watch.change().await.unwrap() != ("MODIFIED".to_owned(), "shop-data".to_owned()) {}
        happens(cause, &world).await;
        world.proxy.streams().settled(&world.index).await;
        if cause == "a namespace made anew" {
            // The cluster will say so. Until then nothing is shown of what took the name.
            let mut shown = 0;
            for _ in 0..200 {
                let (_, name) = watch.change().await.unwrap();
                shown = if name == "shop-data" { 0 } else { shown + 1 };
            }
            assert!(shown > 50, "{shown} events of the other one in a row");
        } else {
            let (text, end) = watch.rest().await;
            let told = text.lines().last().is_some_and(|last| last.contains("\"ERROR\"") && last.contains("410"));
            // Where nothing at all is left, whichever notices first.
            let nobody = matches!(cause, "suspension" | "a disabled account" | "a revoked token");
            let expected = match (changes_the_set(cause), nobody) {
                (true, _) => end == End::Whole && told,
                (_, true) => end == End::Torn,
                _ => end == End::Torn || told,
            };
            assert!(expected, "{cause}: {end:?}, told: {told}");
            let answer = world.request("GET", &target.replace("?watch=1", ""), "").await;
            assert_eq!(matches!(answer.code, 401 | 403), !changes_the_set(cause), "{cause}: {}", answer.body);
        }
        drop(watch);
        nothing_is_left(&world, &cluster, cause).await;
    }
}
