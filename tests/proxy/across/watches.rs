//! Clusters that say something else than events, or nothing, in a merged watch.

use std::time::Duration;

use bailiwick::proxy::ProxySettings;
use bailiwick::store::Kind;
use bytes::Bytes;
use serde_json::{Value, json};

use super::cluster::{
    Cluster, REVISION, Reply, added, all_of, bookmark, event, listed, nothing_is_left, pod, start, start_with, until,
};
use super::reader::{End, ROOT, Reader};
use crate::harness::World;

const SHOP: [&str; 2] = ["shop-data", "shop-web"];

fn pods(query: &str) -> String {
    format!("{ROOT}/api/v1/pods{query}")
}

/// Lists, and watches from there.
async fn watch(world: &World, cluster: &Cluster, more: &str) -> Reader {
    assert_eq!(listed(&world.request("GET", &pods(""), "").await.body), all_of(&SHOP));
    let target = pods(&format!("?watch=1&resourceVersion={REVISION}&allowWatchBookmarks=true{more}"));
    let watch = Reader::open(world, &world.token, &target).await;
    assert_eq!(watch.code, 200, "{}", watch.head);
    until("both are watched", || cluster.open() == 2, || cluster.open().to_string()).await;
    watch
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_event_ends_the_watch_and_its_client_lists_anew() {
    let (world, cluster) = start().await;
    let pod_event = |change: &dyn Fn(&mut Value)| {
        let mut object = pod("shop-web", "canary", "102");
        change(&mut object);
        event("ADDED", &object)
    };
    let good = pod_event(&|_| {});
    let mark = |metadata: Value| event("BOOKMARK", &json!({"kind": "Pod", "apiVersion": "v1", "metadata": metadata}));
    let end = || json!({"k8s.io/initial-events-end": "true"});
    let cases: Vec<(&str, Vec<Bytes>)> = vec![
        ("junk", vec!["canary\n".into()]),
        ("a list", vec![format!("{}\n", super::cluster::pod_list("100", "", vec![])).into()]),
        ("an array", vec![format!("[\"ADDED\",{}]\n", pod("shop-web", "canary", "102")).into()]),
        ("two on one line", vec![format!("{}{good}", good.trim()).into()]),
        ("no object", vec!["{\"type\":\"ADDED\"}\n".into()]),
        ("a text for an object", vec!["{\"type\":\"ADDED\",\"object\":\"canary\"}\n".into()]),
        ("an unknown type", vec![good.replace("ADDED", "PATCHED").into()]),
        ("two types", vec![good.replacen('{', "{\"type\":\"DELETED\",", 1).into()]),
        ("two heads", vec![good.replacen("\"metadata\":", "\"metadata\":{},\"metadata\":", 1).into()]),
        ("a number for a revision", vec![good.replace("\"102\"", "102").into()]),
        ("bytes that are no text", vec![Bytes::from_static(b"{\"type\":\"ADDED\",\"object\":{\"kind\":\"\xff\"}}\n")]),
        ("deep", vec![format!("{{\"type\":{}\n", "[".repeat(100_000)).into()]),
        ("a kind without end", vec![pod_event(&|pod| pod["kind"] = "canary".repeat(200).into()).into()]),
        ("an end at no revision", vec![mark(json!({"annotations": end()})).into()]),
        ("an end that is no number", vec![mark(json!({"annotations": end(), "resourceVersion": "x"})).into()]),
        ("a line without end", vec![Bytes::from(vec![b'x'; 1024 * 1024]); 17]),
    ];
    for (what, said) in cases {
        let mut watch = watch(&world, &cluster, "").await;
        cluster.say("shop-data", added("shop-data", "before", 101));
        assert_eq!(watch.change().await.unwrap(), ("ADDED".into(), "before".into()), "{what}");
        for piece in said {
            cluster.say_bytes("shop-web", piece);
        }
        let text = watch.lists_anew(what).await;
        assert!(!text.contains("canary"), "{what}: {text}");
        drop(watch);
        nothing_is_left(&world, &cluster, what).await;
    }
}

/// However a member's stream ends, all end, and the client either goes on from what it remembers or lists anew.
#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_one_is_the_end_of_all() {
    for what in ["reset", "half a line", "a broken connection", "an error", "closed", "closed unknown"] {
        let (world, cluster) = start().await;
        let mut watch = watch(&world, &cluster, "").await;
        cluster.say("shop-data", added("shop-data", "one", 101));
        assert_eq!(watch.change().await.unwrap().1, "one");
        assert_eq!(watch.event().await.unwrap().1["metadata"]["resourceVersion"], "100", "what both have passed");
        match what {
            "reset" => cluster.reset("shop-web"),
            "half a line" => {
                cluster.say("shop-web", "{\"type\":");
                cluster.close("shop-web");
            }
            "a broken connection" => cluster.die(),
            "an error" => {
                let status = json!({"kind": "Status", "apiVersion": "v1", "code": 410, "reason": "Expired"});
                assert_eq!(cluster.say("shop-web", event("ERROR", &status)), 1);
            }
            _ => cluster.close("shop-web"),
        }
        if what.starts_with("closed") {
            assert_eq!(watch.rest().await, (String::new(), End::Whole), "it goes on from 100");
        } else {
            watch.lists_anew(what).await;
        }
        nothing_is_left(&world, &cluster, what).await;
        drop(super::watches::watch(&world, &cluster, "").await);
    }
    // Who takes no bookmarks remembers what not all have passed.
    let (world, cluster) = start().await;
    assert_eq!(world.request("GET", &pods(""), "").await.code, 200);
    let target = pods(&format!("?watch=1&resourceVersion={REVISION}"));
    let mut watch = Reader::open(&world, &world.token, &target).await;
    until("both are watched", || cluster.open() == 2, || cluster.open().to_string()).await;
    cluster.say("shop-data", added("shop-data", "one", 101));
    assert_eq!(watch.change().await.unwrap().1, "one");
    cluster.close("shop-web");
    watch.lists_anew("closed, without bookmarks").await;
}

/// Time that is over is no fault; but who remembers what not all have passed would miss something.
#[tokio::test(flavor = "multi_thread")]
async fn a_watch_that_ends_in_time_lets_nobody_miss_anything() {
    let (world, cluster) = start().await;
    for (bookmarks, said, anew) in
        [("", 0, false), ("&allowWatchBookmarks=true", 1, false), ("", 1, true), ("", 2, false)]
    {
        assert_eq!(world.request("GET", &pods(""), "").await.code, 200);
        let target = pods(&format!("?watch=1&resourceVersion={REVISION}&timeoutSeconds=1{bookmarks}"));
        let mut watch = Reader::open(&world, &world.token, &target).await;
        until("both are watched", || cluster.open() == 2, || cluster.open().to_string()).await;
        if said > 0 {
            cluster.say("shop-data", added("shop-data", "one", 101));
            assert_eq!(watch.change().await.unwrap().1, "one");
        }
        if said > 1 {
            cluster.say("shop-web", bookmark("101"));
        }
        match anew {
            true => drop(watch.lists_anew("one of two said something").await),
            false => {
                let (text, end) = watch.rest().await;
                assert_eq!(end, End::Whole);
                assert!(!text.contains("ERROR"), "{said}: {text}");
            }
        }
        nothing_is_left(&world, &cluster, "a watch that ended in time").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_strange_and_harmless_goes_on() {
    let (world, cluster) = start().await;
    let mut watch = watch(&world, &cluster, "&timeoutSeconds=3").await;
    // Blank lines, other line ends, an event in pieces, and one of a mebibyte.
    cluster.say("shop-web", "\n\r\n   \n");
    cluster.say("shop-web", added("shop-web", "crlf", 101).replace('\n', "\r\n"));
    assert_eq!(watch.change().await.unwrap().1, "crlf");
    let text = added("shop-web", "pieces", 102);
    for piece in text.as_bytes().chunks(7) {
        cluster.say("shop-web", std::str::from_utf8(piece).unwrap());
    }
    assert_eq!(watch.change().await.unwrap().1, "pieces");
    let mut large = pod("shop-web", "large", "103");
    large["data"] = "x".repeat(1024 * 1024).into();
    cluster.say("shop-web", event("ADDED", &large));
    let got = loop {
        let (kind, object) = watch.event().await.unwrap();
        if kind == "ADDED" {
            break object;
        }
    };
    assert_eq!(got, large, "no byte is lost");
    // The connection is to be left: what is on it goes on, and new ones come on another.
    cluster.go_away();
    cluster.say("shop-data", added("shop-data", "after", 104));
    assert_eq!(watch.change().await.unwrap().1, "after");
    drop(super::watches::watch_beside(&world, &cluster, 2).await);
    // Silence is no fault, and ends when it was to end.
    let (rest, end) = watch.rest().await;
    assert_eq!(end, End::Whole, "{rest}");
    assert!(!rest.contains("ERROR"), "{rest}");
    nothing_is_left(&world, &cluster, "a watch that ended in time").await;
}

/// One more watch beside what is open.
async fn watch_beside(world: &World, cluster: &Cluster, before: usize) -> Reader {
    let watch = Reader::open(world, &world.token, &pods(&format!("?watch=1&resourceVersion={REVISION}"))).await;
    until("it is watched", || cluster.open() == before + 2, || cluster.open().to_string()).await;
    watch
}

/// What cannot be watched in one namespace is not watched in the others.
#[tokio::test(flavor = "multi_thread")]
async fn a_watch_that_does_not_begin_everywhere_does_not_begin() {
    let settings = ProxySettings { response_timeout: Duration::from_millis(500), ..ProxySettings::default() };
    let (world, cluster) = start_with(settings).await;
    for (what, code) in [
        ("302", 502),
        ("401", 502),
        ("404", 404),
        ("410", 410),
        ("429", 429),
        ("500", 500),
        ("204", 502),
        ("silence", 504),
        ("forbidden for longer than is waited for", 504),
    ] {
        cluster.script(move |ask| match (ask.namespace.as_str(), what.parse()) {
            ("shop-web", Ok(code)) => Some(Reply::code(code)),
            ("shop-web", Err(_)) if what == "silence" => Some(Reply::Never),
            ("shop-web", Err(_)) => Some(Reply::code(403)),
            _ => None,
        });
        let answer = world.request("GET", &pods("?watch=1"), "").await;
        assert_eq!(answer.code, code, "{what}: {}", answer.body);
        assert!(answer.body.contains("\"Status\"") && !answer.body.contains("canary"), "{what}: {}", answer.body);
        nothing_is_left(&world, &cluster, what).await;
    }
    cluster.sound();
    drop(watch(&world, &cluster, "").await);
}

/// A cluster names a revision that it will never reach: for one member it is waited for, and for all of them it is
/// forgotten with the next list.
#[tokio::test(flavor = "multi_thread")]
async fn an_absurd_revision_does_not_poison_the_view() {
    let (world, cluster) = start().await;
    let absurd = u64::MAX.to_string();
    // More than a revision can be is none.
    let mut first = watch(&world, &cluster, "").await;
    cluster.say("shop-web", bookmark("18446744073709551616"));
    cluster.say("shop-web", bookmark(&absurd));
    cluster.say("shop-data", added("shop-data", "one", 101));
    assert_eq!(first.change().await.unwrap().1, "one");
    cluster.say("shop-data", bookmark("105"));
    loop {
        let (kind, object) = first.event().await.unwrap();
        let revision = object["metadata"]["resourceVersion"].as_str().unwrap();
        assert!(kind == "BOOKMARK" && revision.len() == 3, "the least of all: {revision}");
        if revision == "105" {
            break;
        }
    }
    // All of them.
    cluster.say("shop-data", bookmark(&absurd));
    assert_eq!(first.event().await.unwrap().1["metadata"]["resourceVersion"], absurd);
    // An object, too.
    cluster.say("shop-web", event("ADDED", &pod("shop-web", "absurd", &absurd)));
    assert_eq!(first.change().await.unwrap().1, "absurd");
    // The set changes: the client is told, lists anew, and goes on from the cluster's true revision.
    world.change(Kind::Grant, "jane-shop", |grant| grant["spec"]["namespaces"] = json!(["shop-web"])).await;
    first.lists_anew("a changed set").await;
    nothing_is_left(&world, &cluster, "a changed set").await;
    // From a cache an older answer is nothing strange, and heals nothing.
    assert_eq!(world.request("GET", &pods("?resourceVersion=0"), "").await.code, 200);
    let from = pods(&format!("?watch=1&resourceVersion={REVISION}&timeoutSeconds=1"));
    Reader::open(&world, &world.token, &from).await.lists_anew("a list from a cache").await;
    assert_eq!(listed(&world.request("GET", &pods(""), "").await.body), all_of(&SHOP[1..]));
    assert_eq!(Reader::open(&world, &world.token, &from).await.rest().await, (String::new(), End::Whole));
    // And never with a set that was another one at that revision.
    world.change(Kind::Grant, "jane-shop", |grant| grant["spec"]["namespaces"] = json!([])).await;
    Reader::open(&world, &world.token, &from).await.lists_anew("the first set again").await;
}

/// A cluster that came back under its name, or another account's view: what was seen there says nothing here.
#[tokio::test(flavor = "multi_thread")]
async fn a_view_is_of_one_account_and_one_cluster() {
    let (world, cluster) = start().await;
    let from = pods(&format!("?watch=1&resourceVersion={REVISION}&timeoutSeconds=1"));
    Reader::open(&world, &world.token, &from).await.lists_anew("a revision from nowhere").await;
    assert_eq!(world.request("GET", &pods(""), "").await.code, 200);
    assert_eq!(Reader::open(&world, &world.token, &from).await.rest().await, (String::new(), End::Whole));
    for (what, revision) in [("before", 99), ("long before", 1)] {
        let old = pods(&format!("?watch=1&resourceVersion={revision}"));
        Reader::open(&world, &world.token, &old).await.lists_anew(what).await;
    }
    let joe = world.issue("joe", Default::default()).await;
    Reader::open(&world, &joe, &from).await.lists_anew("somebody else's").await;
    let uid = "8b3c4d5e-0000-4000-8000-000000000008";
    world.change(Kind::Cluster, "demo", |cluster| cluster["metadata"]["uid"] = json!(uid)).await;
    for namespace in SHOP {
        world.change(Kind::Claim, &format!("demo/{namespace}"), |claim| claim["cluster_uid"] = json!(uid)).await;
    }
    crate::harness::observe_as(&world.index, uid, true, &SHOP).await;
    cluster.take();
    Reader::open(&world, &world.token, &from).await.lists_anew("another cluster of that name").await;
    assert!(cluster.take().is_empty());
    assert_eq!(world.request("GET", &pods(""), "").await.code, 200);
    assert_eq!(Reader::open(&world, &world.token, &from).await.rest().await, (String::new(), End::Whole));
}

/// Nobody's namespaces are not shown, however loudly they are told of, and what is held back of them is counted.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_held_back_of_namespaces_is_counted_and_not_shown() {
    let (world, cluster) = start().await;
    let namespace = |name: &str, uid: &str| {
        json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": name, "uid": uid, "resourceVersion": "9",
            "annotations": {"canary": "x".repeat(4_000)}}})
    };
    let strangers: String = (0..2_000).map(|n| event("ADDED", &namespace(&format!("other-{n}"), "u"))).collect();
    let known = event("ADDED", &namespace("shop-web", "ns-shop-web"));
    cluster.script(move |_| {
        let text = format!("{strangers}{known}");
        Some(Reply::Endless(text.into(), "\n".into(), Duration::from_millis(20)))
    });
    let target = format!("{ROOT}/api/v1/namespaces?watch=1&timeoutSeconds=600");
    let mut watch = Reader::open(&world, &world.token, &target).await;
    assert_eq!(watch.event().await.unwrap().1["metadata"]["name"], "shop-web", "nothing before it");
    let held = world.proxy.memory_of_lists();
    assert!((4_000_000..8_000_000).contains(&held), "a thousand events of 4 kB: {held}");
    drop(watch);
    nothing_is_left(&world, &cluster, "namespaces").await;
    // What is no event ends this watch, too.
    for (what, said) in [("junk", Bytes::from("canary\n")), ("a line without end", Bytes::from(vec![b'x'; 17 << 20]))] {
        cluster.script(move |_| Some(Reply::Endless(said.clone(), "\n".into(), Duration::from_millis(20))));
        Reader::open(&world, &world.token, &target).await.lists_anew(what).await;
        nothing_is_left(&world, &cluster, what).await;
    }
}
