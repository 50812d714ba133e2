//! What one account may hold across namespaces: streams, places and memory. Others do not notice, and all of it comes back.

use std::time::Duration;

use bailiwick::listener::Limits;
use bailiwick::proxy::ProxySettings;
use bailiwick::store::Kind;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::cluster::{
    PODS, REVISION, Reply, all_of, event, listed, nothing_is_left, pod, pod_list, start, start_with, until, widen,
};
use super::reader::{NARROW, ROOT, Reader, get};
use crate::connections::{dial, impatient};
use crate::harness::{Answer, PROJECT_UID, World};

const SHOP: [&str; 2] = ["shop-data", "shop-web"];

fn pods(query: &str) -> String {
    format!("{ROOT}/api/v1/pods{query}")
}

/// The connection breaks when it is dropped.
fn without_a_word(stream: &TlsStream<TcpStream>) {
    socket2::SockRef::from(stream.get_ref().0).set_linger(Some(Duration::ZERO)).unwrap();
}

async fn joe_is_served(world: &World, joe: &str) {
    let answer = world.request_as(joe, "GET", &pods(""), "").await;
    assert_eq!(answer.code, 200, "{}", answer.body);
    assert_eq!(listed(&answer.body), all_of(&["billing-api"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_merged_watch_counts_as_many_as_it_is_wide() {
    let settings = ProxySettings { max_streams_per_user: 5, ..ProxySettings::default() };
    let (world, cluster) = start_with(settings).await;
    let joe = world.issue("joe", Default::default()).await;
    let again = world.issue("jane", Default::default()).await;
    for round in 0..3 {
        let first = Reader::open(&world, &world.token, &pods("?watch=1")).await;
        let second = Reader::open(&world, &again, &format!("{NARROW}/api/v1/pods?watch=1")).await;
        assert_eq!((first.code, second.code), (200, 200));
        assert_eq!(world.proxy.streams().count_of("jane"), 4);
        cluster.take();
        // By whichever token, and in whichever form.
        for (token, root) in [(&world.token, ROOT), (&again, NARROW)] {
            let answer = world.request_as(token, "GET", &format!("{root}/api/v1/pods?watch=1"), "").await;
            assert_eq!(answer.code, 429, "{}", answer.body);
            assert!(answer.body.contains("you have 4 long-running responses open"), "{}", answer.body);
            assert!(answer.body.contains("this one would be 2 of them"), "{}", answer.body);
            assert!(answer.head.contains("retry-after"), "{}", answer.head);
        }
        assert!(cluster.take().is_empty(), "nothing is asked for what is refused");
        // What is narrower fits, and then nothing does.
        let third =
            Reader::open(&world, &world.token, &format!("{ROOT}/api/v1/namespaces/shop-web/pods?watch=1")).await;
        assert_eq!(third.code, 200);
        assert_eq!(world.request("GET", &format!("{ROOT}/api/v1/namespaces?watch=1"), "").await.code, 429);
        // Lists have their own budget, and so has everybody else.
        assert_eq!(world.request("GET", &pods(""), "").await.code, 200);
        joe_is_served(&world, &joe).await;
        let theirs = Reader::open(&world, &joe, &pods("?watch=1")).await;
        assert_eq!(theirs.code, 200, "{round}");
        drop((first, second, third, theirs));
        nothing_is_left(&world, &cluster, "watches").await;
    }
}

/// Many at a time: none gets in beside the count.
#[tokio::test(flavor = "multi_thread")]
async fn many_that_ask_at_a_time_are_counted_one_by_one() {
    let settings = ProxySettings { max_streams_per_user: 6, ..ProxySettings::default() };
    let (world, cluster) = start_with(settings).await;
    for _ in 0..5 {
        let target = pods("?watch=1");
        let asked = (0..24).map(|_| Reader::open(&world, &world.token, &target));
        let readers = futures::future::join_all(asked).await;
        let admitted = readers.iter().filter(|reader| reader.code == 200).count();
        let refused = readers.iter().filter(|reader| reader.code == 429).count();
        assert_eq!((admitted, refused), (3, 21), "{}", world.proxy.streams().count_of("jane"));
        assert_eq!(cluster.open(), 6);
        drop(readers);
        nothing_is_left(&world, &cluster, "a crowd").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_takes_a_place_for_each_part_that_is_asked_for_at_a_time() {
    let settings = ProxySettings {
        max_requests_per_user: 4,
        response_timeout: Duration::from_secs(30),
        ..ProxySettings::default()
    };
    let (world, cluster) = start_with(settings).await;
    let joe = world.issue("joe", Default::default()).await;
    for _ in 0..3 {
        cluster.script(|ask| (ask.namespace == "shop-data").then_some(Reply::Never));
        let mut held = vec![];
        for n in 1..=2 {
            let mut stream = world.connect().await;
            stream.write_all(get(&world.token, &pods(""), "").as_bytes()).await.unwrap();
            held.push(stream);
            until("it is under way", || cluster.open() == n, || cluster.open().to_string()).await;
        }
        for target in [pods(""), format!("{ROOT}/api/v1/namespaces/shop-web/pods")] {
            let answer = world.request("GET", &target, "").await;
            assert_eq!(answer.code, 429, "{}", answer.body);
        }
        cluster.sound();
        joe_is_served(&world, &joe).await;
        drop(held);
        nothing_is_left(&world, &cluster, "lists").await;
        assert_eq!(world.request("GET", &pods(""), "").await.code, 200);
    }
    // Wider than all places there are: some are asked after the others.
    widen(&world, 0..4, PROJECT_UID).await;
    let answer = world.request("GET", &pods(""), "").await;
    assert_eq!((answer.code, listed(&answer.body).len()), (200, 6 * PODS), "{}", answer.body);
}

/// Lists that nobody reads hold memory, and it is their own account's.
#[tokio::test(flavor = "multi_thread")]
async fn lists_that_are_not_read_hold_their_own_accounts_memory() {
    const EACH: usize = 12 * 1024 * 1024;
    let (world, cluster) = start_with(ProxySettings::default()).await;
    let joe = world.issue("joe", Default::default()).await;
    let mut large = pod("shop-web", "large", "5");
    large["data"] = "x".repeat(EACH).into();
    let list = pod_list(REVISION, "", vec![large]).to_string();
    cluster.script(move |ask| SHOP.contains(&ask.namespace.as_str()).then(|| Reply::text(list.clone())));
    let limits = Limits { unread: Duration::from_secs(600), ..Limits::default() };
    let (address, pki, _shutdown) = impatient(&world, limits).await;
    let (mut held, mut refused) = (vec![], None);
    for _ in 0..20 {
        let mut stream = dial(address, &pki, b"http/1.1").await;
        stream.write_all(get(&world.token, &pods(""), "").as_bytes()).await.unwrap();
        let mut head = [0; 512];
        let reading = stream.read(&mut head);
        let read = tokio::time::timeout(crate::harness::DEADLINE, reading).await.unwrap().unwrap();
        let answer = Answer::read(&String::from_utf8_lossy(&head[..read]));
        if answer.code != 200 {
            refused = Some(answer);
            break;
        }
        held.push(stream);
    }
    let refused = refused.expect("there is an end to it");
    assert_eq!(refused.code, 429, "{}", refused.body);
    let taken = world.proxy.memory_of_lists();
    assert!((200 << 20..=256 << 20).contains(&taken), "at most half of all: {taken}, by {}", held.len());
    // Not by another token or in another form either; and joe has what he needs.
    let again = world.issue("jane", Default::default()).await;
    let answer = world.request_as(&again, "GET", &format!("{NARROW}/api/v1/pods"), "").await;
    assert_eq!(answer.code, 429, "{}", answer.body);
    // More than would be left for jane.
    let list = pod_list(REVISION, "", vec![json!({"data": "y".repeat(3 * EACH)})]).to_string();
    cluster.script(move |ask| (ask.namespace == "billing-api").then(|| Reply::text(list.clone())));
    let answer = world.request_as(&joe, "GET", &pods(""), "").await;
    assert_eq!(answer.code, 200, "{}", &answer.body[..answer.body.len().min(200)]);
    assert!(answer.body.len() > 3 * EACH);
    // Small ones are answered whatever is held.
    cluster.sound();
    assert_eq!(listed(&world.request("GET", &pods(""), "").await.body), all_of(&SHOP));
    // Some leave in peace, and some without a word.
    for (n, stream) in held.into_iter().enumerate() {
        if n.is_multiple_of(2) {
            without_a_word(&stream);
        }
        drop(stream);
    }
    nothing_is_left(&world, &cluster, "lists that nobody read").await;
}

/// A client that reads nothing of a watch holds up its own stream, within its account's memory.
#[tokio::test(flavor = "multi_thread")]
async fn a_watch_that_is_not_read_holds_little() {
    let (world, cluster) = start().await;
    let joe = world.issue("joe", Default::default()).await;
    let mut large = pod("shop-web", "large", "101");
    large["data"] = "x".repeat(2 * 1024 * 1024).into();
    let large = event("MODIFIED", &large);
    cluster.script(move |ask| {
        (ask.is_watch() && ask.namespace == "shop-web")
            .then(|| Reply::Endless(large.clone().into(), large.clone().into(), Duration::ZERO))
    });
    let unread = Reader::open(&world, &world.token, &pods("?watch=1")).await;
    // The one beside it is read, and gets on.
    let mut read = Reader::open(&world, &world.token, &pods("?watch=1")).await;
    for _ in 0..20 {
        assert_eq!(read.change().await.unwrap().1, "large");
        joe_is_served(&world, &joe).await;
        let taken = world.proxy.memory_of_lists();
        assert!(taken < 16 << 20, "a few events of 2 MiB: {taken}");
    }
    drop((unread, read));
    nothing_is_left(&world, &cluster, "a watch that nobody read").await;
}

/// Begun and left, again and again, at every moment: tasks, streams and memory are what they were.
#[tokio::test(flavor = "multi_thread")]
async fn loops_of_watches_and_lists_leave_nothing() {
    let (world, cluster) = start().await;
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let round = async |n: usize| {
        let target = [pods("?watch=1"), pods(""), format!("{ROOT}/api/v1/namespaces?watch=1")];
        let mut stream = world.connect().await;
        stream.write_all(get(&world.token, &target[n % 3], "").as_bytes()).await.unwrap();
        for _ in 0..n % 40 {
            tokio::task::yield_now().await;
        }
        if n.is_multiple_of(4) {
            let mut part = [0; 64];
            let _ = tokio::time::timeout(Duration::from_millis(20), stream.read(&mut part)).await;
        }
        if n.is_multiple_of(2) {
            without_a_word(&stream);
        }
    };
    for n in 0..20 {
        round(n).await;
    }
    nothing_is_left(&world, &cluster, "the first").await;
    drop(Reader::open(&world, &world.token, &pods("?watch=1")).await);
    nothing_is_left(&world, &cluster, "one more").await;
    let before = tasks();
    for n in 0..300 {
        round(n).await;
    }
    nothing_is_left(&world, &cluster, "all of them").await;
    // Connections to the cluster are kept; these are few.
    until("tasks end", || tasks() <= before + 16, || format!("{} and before {before}", tasks())).await;
    assert_eq!(listed(&world.request("GET", &pods(""), "").await.body), all_of(&SHOP));
}

/// More namespaces than one request may be spread over: refused, and not cut short.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_wide_is_refused_whole() {
    let (world, cluster) = start_with(ProxySettings::default()).await;
    widen(&world, 0..498, PROJECT_UID).await;
    let answer = world.request("GET", &pods(""), "").await;
    assert_eq!(answer.code, 200, "{}", &answer.body[..answer.body.len().min(300)]);
    assert_eq!(listed(&answer.body).len(), 500 * PODS);
    let watch = Reader::open(&world, &world.token, &pods("?watch=1")).await;
    assert_eq!((watch.code, cluster.open(), world.proxy.streams().count_of("jane")), (200, 500, 500));
    drop(watch);
    nothing_is_left(&world, &cluster, "the widest watch").await;
    widen(&world, 498..499, PROJECT_UID).await;
    cluster.take();
    for target in [pods(""), pods("?watch=1"), pods("?limit=1"), format!("{NARROW}/api/v1/pods")] {
        let answer = world.request("GET", &target, "").await;
        assert_eq!(answer.code, 413, "{target}: {}", answer.body);
        assert!(answer.body.contains("501 namespaces, and the most is 500"), "{}", answer.body);
    }
    assert!(cluster.take().is_empty());
    world.change(Kind::Grant, "jane-shop", |grant| grant["spec"]["namespaces"] = json!(["shop-web"])).await;
    assert_eq!(listed(&world.request("GET", &pods(""), "").await.body), all_of(&SHOP[1..]));
}
