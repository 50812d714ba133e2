//! Clusters that answer a list with something else. The client gets a list that is whole, or a `Status`; never a part,
//! nothing of another tenant, and no more than it can read.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bailiwick::proxy::ProxySettings;
use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::cluster::{
    Cluster, Reply, all_of, listed, nothing_is_left, pod, pod_list, sound_list, start, start_with, until,
};
use super::reader::{End, ROOT, Reader};
use crate::harness::World;

const SHOP: [&str; 2] = ["shop-data", "shop-web"];

fn target() -> String {
    format!("{ROOT}/api/v1/pods")
}

/// The others go on, and the same client does once the cluster is sound again.
async fn all_is_well(world: &World, cluster: &Cluster, joe: &str, after: &str) {
    cluster.sound();
    nothing_is_left(world, cluster, after).await;
    assert_eq!(listed(&world.request("GET", &target(), "").await.body), all_of(&SHOP), "after {after}");
    let answer = world.request_as(joe, "GET", &target(), "").await;
    assert_eq!(listed(&answer.body), all_of(&["billing-api"]), "after {after}");
    cluster.take();
}

fn twice(key: &str) -> String {
    let list = pod_list("100", "", vec![pod("shop-web", "x", "5")]).to_string();
    let found: Value = serde_json::from_str(&list).unwrap();
    list.replacen('{', &format!("{{{}:{},", json!(key), found[key]), 1)
}

/// What the cluster says of one namespace, and how the whole is answered.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_list_is_not_passed_on() {
    let (world, cluster) = start().await;
    let joe = world.issue("joe", Default::default()).await;
    let items = || vec![pod("shop-web", "x", "5")];
    let columns = json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {"resourceVersion": "100"},
        "columnDefinitions": [], "rows": [{"cells": ["canary"]}]});
    let with = |change: &dyn Fn(&mut Value)| {
        let mut list = pod_list("100", "", items());
        change(&mut list);
        list.to_string()
    };
    let long = "canary".repeat(200_000);
    let gzip = Reply::Whole(200, vec![("content-encoding", "gzip".into())], Bytes::from_static(b"\x1f\x8b\x08canary"));
    let cases: Vec<(&str, Reply, u16)> = vec![
        ("nothing", Reply::text(""), 502),
        ("junk", Reply::text("<html>canary</html>"), 502),
        ("half of it", Reply::text(&with(&|_| {})[..60]), 502),
        ("more than it", Reply::text(with(&|_| {}) + "{}"), 502),
        ("an object", Reply::json(&pod("shop-web", "x", "5")), 502),
        ("an array", Reply::text(r#"["PodList","v1",{},[]]"#), 502),
        ("a Status as a list", Reply::text(r#"{"kind":"Status","apiVersion":"v1","items":[]}"#), 502),
        ("another kind", Reply::text(with(&|list| list["kind"] = "SecretList".into())), 502),
        ("another form", Reply::json(&columns), 502),
        ("a page unasked", Reply::json(&pod_list("100", "from-1", items())), 502),
        ("two kinds", Reply::text(twice("kind")), 502),
        ("two heads", Reply::text(twice("metadata")), 502),
        ("two lists", Reply::text(twice("items")), 502),
        ("rows and items", Reply::text(with(&|list| list["rows"] = json!([1]))), 502),
        ("a number for a revision", Reply::text(with(&|list| list["metadata"]["resourceVersion"] = 100.into())), 502),
        ("a text for a head", Reply::text(with(&|list| list["metadata"] = long.clone().into())), 502),
        ("a kind without end", Reply::text(with(&|list| list["kind"] = (long.clone() + "List").into())), 502),
        ("a revision without end", Reply::text(with(&|l| l["metadata"]["resourceVersion"] = long.clone().into())), 502),
        ("a token without end", Reply::text(with(&|list| list["metadata"]["continue"] = long.clone().into())), 502),
        ("gzip unasked", gzip, 502),
        ("no content", Reply::Whole(204, vec![], Bytes::new()), 502),
        ("a part", Reply::Whole(206, vec![], with(&|_| {}).into()), 502),
        ("not modified", Reply::Whole(304, vec![], Bytes::new()), 502),
        (
            "a redirect",
            Reply::Whole(302, vec![("location", "https://elsewhere.example.com/".into())], Bytes::new()),
            502,
        ),
        ("a permanent redirect", Reply::Whole(308, vec![("location", "/api/v1/pods".into())], Bytes::new()), 502),
        ("our credential refused", Reply::code(401), 502),
        ("gone", Reply::code(410), 410),
        ("too many requests", Reply::Whole(429, vec![("retry-after", "7".into())], Bytes::new()), 429),
        ("a failure", Reply::code(500), 500),
        ("unavailable", Reply::code(503), 503),
        ("not found", Reply::code(404), 404),
        ("drops without end", Reply::Endless("{".into(), " ".into(), Duration::from_millis(5)), 504),
        ("nothing ever", Reply::Never, 504),
    ];
    for (what, reply, code) in cases {
        let reply = Mutex::new(Some(reply));
        cluster.script(move |ask| match ask.namespace.as_str() {
            "shop-web" => reply.lock().take(),
            _ => None,
        });
        let answer = world.request("GET", &target(), "").await;
        assert_eq!(answer.code, code, "{what}: {}", answer.body);
        let status: Value = serde_json::from_str(&answer.body).unwrap_or_else(|why| panic!("{what}: {why}"));
        assert_eq!(status["kind"], "Status", "{what}");
        let quotes = ["a text for a head"];
        assert!(answer.body.len() < 1_000, "{what}: {} bytes", answer.body.len());
        assert!(quotes.contains(&what) || !answer.body.contains("canary"), "{what}: {}", answer.body);
        assert!(!answer.head.contains("location") && !answer.body.contains("shop-data-1"), "{what}");
        assert_eq!(answer.head.contains("retry-after: 7"), code == 429, "{what}: {}", answer.head);
        assert_eq!(cluster.take().len(), 2, "{what}: not followed, not repeated");
        all_is_well(&world, &cluster, &joe, what).await;
    }
}

/// Strange, and a list all the same.
#[tokio::test(flavor = "multi_thread")]
async fn strange_lists_are_passed_on_whole() {
    let (world, cluster) = start().await;
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let list = |items: &str| {
        format!(r#"{{"kind":"PodList","apiVersion":"v1","metadata":{{"resourceVersion":"100"}},"items":{items}}}"#)
    };
    for (what, text, items) in [
        ("deep", list(&format!("[{deep}]")), deep.clone()),
        ("deep elsewhere", list("[1]").replacen('{', &format!(r#"{{"x":{deep},"#), 1), "1".into()),
        ("null", list("null"), String::new()),
        ("none", list("[]"), String::new()),
        ("twice within", list(r#"[{"a":1,"a":2}]"#), r#"{"a":1,"a":2}"#.into()),
        ("many", list(&format!("[1{}]", ",1".repeat(200_000))), format!("1{}", ",1".repeat(200_000))),
    ] {
        cluster.script(move |ask| (ask.namespace == "shop-web").then(|| Reply::text(text.clone())));
        let answer = world.request("GET", &target(), "").await;
        assert_eq!(answer.code, 200, "{what}: {}", &answer.body[..answer.body.len().min(200)]);
        let comma = if items.is_empty() { "" } else { "," };
        let ends =
            format!("\"shop-data-3\",\"namespace\":\"shop-data\",\"resourceVersion\":\"50\"}}}}{comma}{items}]}}\n");
        assert!(answer.body.ends_with(&ends), "{what}: {}", &answer.body[answer.body.len().saturating_sub(300)..]);
    }
}

/// Where revisions of a resource mean nothing across namespaces, there is a plain list: no pages, and no revision that a
/// watch could go on from.
#[tokio::test(flavor = "multi_thread")]
async fn without_one_revision_there_are_no_pages_and_no_watch_goes_on() {
    for (what, of_first, of_second) in
        [("none at first", "", "100"), ("none at all", "", ""), ("another", "100", "101"), ("no number", "x", "100")]
    {
        let (world, cluster) = start().await;
        cluster.script(move |ask| {
            let revision = if ask.namespace == "shop-data" { of_first } else { of_second };
            let mut list = sound_list(ask);
            list["metadata"]["resourceVersion"] = revision.into();
            (!ask.is_watch()).then(|| Reply::json(&list))
        });
        for limit in ["", "?limit=500"] {
            let answer = world.request("GET", &format!("{}{limit}", target()), "").await;
            assert_eq!(listed(&answer.body), all_of(&SHOP), "{what}{limit}");
            let list: Value = serde_json::from_str(&answer.body).unwrap();
            assert_eq!(list["metadata"], json!({"resourceVersion": ""}), "{what}");
        }
        cluster.take();
        let exact = format!("{}?resourceVersion=100&resourceVersionMatch=Exact", target());
        let answer = world.request("GET", &exact, "").await;
        let expected = if what == "none at all" || of_first != "100" || of_second != "100" { 410 } else { 200 };
        assert_eq!(answer.code, expected, "{what}: {}", answer.body);
        cluster.take();
        let mut watch = Reader::open(&world, &world.token, &format!("{}?watch=1&resourceVersion=100", target())).await;
        watch.lists_anew(what).await;
        assert!(cluster.take().is_empty(), "{what}: nothing is watched");
    }
    // The pair.
    let (world, cluster) = start().await;
    assert_eq!(world.request("GET", &target(), "").await.code, 200);
    let from = format!("{}?watch=1&resourceVersion=100&timeoutSeconds=1", target());
    assert_eq!(Reader::open(&world, &world.token, &from).await.rest().await, (String::new(), End::Whole));
    assert!(cluster.take().iter().any(|ask| ask.is_watch()));
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_whose_columns_differ_are_asked_for_again_by_the_client() {
    let (world, cluster) = start().await;
    let table = |columns: &str, namespace: &str| {
        json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {"resourceVersion": "100"},
            "columnDefinitions": [{"name": columns}], "rows": [{"cells": [namespace]}]})
    };
    for (second, code) in [("Age", 503), ("Name", 200)] {
        cluster.script(move |ask| {
            let columns = if ask.namespace == "shop-web" { second } else { "Name" };
            Some(Reply::json(&table(columns, &ask.namespace)))
        });
        let accept = "Accept: application/json;as=Table;v=v1;g=meta.k8s.io,application/json\r\n";
        let answer = world.request("GET", &target(), accept).await;
        assert_eq!(answer.code, code, "{}", answer.body);
        if code == 200 {
            let merged: Value = serde_json::from_str(&answer.body).unwrap();
            assert_eq!(merged["rows"], json!([{"cells": ["shop-data"]}, {"cells": ["shop-web"]}]));
        } else {
            assert!(answer.body.contains("list again"), "{}", answer.body);
        }
    }
}

/// A list without end is given up at what one list may take, and its memory is there for the next one.
#[tokio::test(flavor = "multi_thread")]
async fn a_list_without_end_is_given_up() {
    let settings = ProxySettings { response_timeout: Duration::from_secs(60), ..ProxySettings::default() };
    let (world, cluster) = start_with(settings).await;
    let joe = world.issue("joe", Default::default()).await;
    let head = r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"100"},"items":[1"#;
    let more = Bytes::from(",\"canary\"".repeat(64 * 1024));
    for who in SHOP {
        let more = more.clone();
        cluster.script(move |ask| {
            (ask.namespace == who).then(|| Reply::Endless(head.into(), more.clone(), Duration::ZERO))
        });
        let answer = world.request("GET", &target(), "").await;
        assert_eq!(answer.code, 413, "{}", &answer.body[..answer.body.len().min(300)]);
        assert!(answer.body.contains("limit") && !answer.body.contains("canary"), "{}", answer.body);
        all_is_well(&world, &cluster, &joe, "a list without end").await;
    }
}

/// Refused by the cluster's own RBAC, which may just not know a new binding yet: asked again for a while.
#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_of_the_cluster_is_asked_about_again_and_then_passed_on() {
    let settings = ProxySettings { response_timeout: Duration::from_secs(30), ..ProxySettings::default() };
    let (world, cluster) = start_with(settings).await;
    let forbidden = || {
        let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden",
            "code": 403, "message": "pods is forbidden"});
        Some(Reply::Whole(403, vec![], status.to_string().into()))
    };
    let refusals = AtomicUsize::new(3);
    cluster.script(move |ask| {
        let left = || refusals.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n: usize| n.checked_sub(1)).is_ok();
        if ask.namespace == "shop-web" && left() { forbidden() } else { None }
    });
    assert_eq!(listed(&world.request("GET", &target(), "").await.body), all_of(&SHOP));
    cluster.take();
    cluster.script(move |ask| if ask.namespace == "shop-web" { forbidden() } else { None });
    let answer = world.request("GET", &target(), "").await;
    assert_eq!(answer.code, 403, "{}", answer.body);
    assert!(answer.body.contains("namespace \\\"shop-web\\\": pods is forbidden"), "{}", answer.body);
    assert!(cluster.take().len() <= 7, "not without measure");
    nothing_is_left(&world, &cluster, "a refusal").await;
}

/// Who leaves takes along what was asked for them.
#[tokio::test(flavor = "multi_thread")]
async fn a_list_ends_with_its_client() {
    let settings = ProxySettings { response_timeout: Duration::from_secs(60), ..ProxySettings::default() };
    let (world, cluster) = start_with(settings).await;
    let joe = world.issue("joe", Default::default()).await;
    for what in ["before an answer", "amid an answer"] {
        cluster.script(move |ask| match (ask.namespace.as_str(), what) {
            ("shop-web", "before an answer") => Some(Reply::Never),
            ("shop-web", _) => Some(Reply::Endless("{".into(), " ".repeat(99).into(), Duration::from_millis(5))),
            _ => None,
        });
        let mut stream = world.connect().await;
        let raw = super::reader::get(&world.token, &target(), "");
        tokio::io::AsyncWriteExt::write_all(&mut stream, raw.as_bytes()).await.unwrap();
        until("it is asked for", || cluster.open() == 1, || cluster.open().to_string()).await;
        drop(stream);
        all_is_well(&world, &cluster, &joe, what).await;
    }
}
