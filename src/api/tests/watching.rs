use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use futures::StreamExt as _;
use http::Method;
use serde_json::{Value, json};

use super::super::watch::MAX_WATCHES;
use super::harness::{Client, Server, grant, object};
use crate::store::{Key, Kind};

/// Reads events line by line.
struct Stream {
    body: BodyDataStream,
    rest: Vec<u8>,
}

impl Stream {
    async fn open(client: &Client, path: &str) -> Self {
        let request = client.request(Method::GET, path).body(Body::empty()).unwrap();
        let response = client.raw(request).await;
        assert_eq!(response.status(), 200);
        Self { body: response.into_body().into_data_stream(), rest: vec![] }
    }

    /// The next event; `None` at the end.
    async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(at) = self.rest.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=at).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let more = tokio::time::timeout(Duration::from_secs(10), self.body.next()).await;
            self.rest.extend_from_slice(&more.expect("an event or the end within ten seconds")?.unwrap());
        }
    }

    async fn brief(&mut self) -> Option<String> {
        let event = self.next().await?;
        let name = event["object"]["metadata"]["name"].as_str().unwrap_or_default();
        Some(format!("{} {name}", event["type"].as_str().unwrap()))
    }
}

#[tokio::test]
async fn events_come_in_order_and_a_watch_resumes() {
    let server = Server::start().await;
    let root = server.client("root").await;
    let start = root.get("teams").await.ok()["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let mut live = Stream::open(&root, &format!("teams?watch=true&resourceVersion={start}")).await;
    root.post("teams", &object("Team", "web", json!({"users": []}))).await.ok();
    let changed = root.merge("teams/web", &json!({"metadata": {"labels": {"a": "b"}}})).await.ok();
    root.post("teams", &object("Team", "db", json!({"users": []}))).await.ok();
    root.delete("teams/web").await.ok();
    // Deletion shows its mark, then its end.
    let expected = ["ADDED web", "MODIFIED web", "ADDED db", "MODIFIED web", "DELETED web"];
    for event in expected {
        assert_eq!(live.brief().await.as_deref(), Some(event));
    }
    let mut replay = Stream::open(&root, &format!("teams?watch=1&resourceVersion={start}")).await;
    for event in expected {
        assert_eq!(replay.brief().await.as_deref(), Some(event));
    }
    let middle = changed["metadata"]["resourceVersion"].as_str().unwrap();
    let mut replay = Stream::open(&root, &format!("teams?watch=1&resourceVersion={middle}")).await;
    for event in &expected[2..] {
        assert_eq!(replay.brief().await.as_deref(), Some(*event));
    }
    let mut selected =
        Stream::open(&root, &format!("teams?watch=1&resourceVersion={start}&fieldSelector=metadata.name%3Ddb")).await;
    assert_eq!(selected.brief().await.as_deref(), Some("ADDED db"));
}

#[tokio::test]
async fn a_watch_may_begin_with_everything() {
    let server = Server::start().await;
    let root = server.client("root").await;
    root.post("teams", &object("Team", "web", json!({"users": []}))).await.ok();
    let query = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut stream = Stream::open(&root, &format!("teams?{query}")).await;
    assert_eq!(stream.brief().await.as_deref(), Some("ADDED web"));
    let bookmark = stream.next().await.unwrap();
    assert_eq!(bookmark["type"], "BOOKMARK");
    assert_eq!(bookmark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    let version = bookmark["object"]["metadata"]["resourceVersion"].as_str().unwrap();
    assert_eq!(version, server.index.snapshot().revision.to_string());
    root.delete("teams/web").await.ok();
    assert_eq!(stream.brief().await.as_deref(), Some("MODIFIED web"));
    assert_eq!(stream.brief().await.as_deref(), Some("DELETED web"));
}

#[tokio::test]
async fn labels_move_objects_in_and_out() {
    let server = Server::start().await;
    let root = server.client("root").await;
    root.post("teams", &object("Team", "web", json!({"users": []}))).await.ok();
    let mut stream = Stream::open(&root, "teams?watch=true&labelSelector=a%3Db").await;
    root.merge("teams/web", &json!({"metadata": {"labels": {"a": "b"}}})).await.ok();
    root.merge("teams/web", &json!({"metadata": {"labels": {"a": "c"}}})).await.ok();
    assert_eq!(stream.brief().await.as_deref(), Some("ADDED web"));
    assert_eq!(stream.brief().await.as_deref(), Some("DELETED web"));
}

#[tokio::test]
async fn a_watch_ends_when_its_time_is_over() {
    let server = Server::start().await;
    let root = server.client("root").await;
    let mut stream = Stream::open(&root, "teams?watch=true&timeoutSeconds=1").await;
    assert_eq!(stream.next().await, None);
    root.get("teams?watch=true&resourceVersion=999999").await.refused(504);
}

#[tokio::test]
async fn a_watch_ends_with_its_token() {
    let server = Server::start().await;
    let root = server.client("root").await;
    let other = server.client("root").await;
    let mut stream = Stream::open(&other, "teams?watch=true").await;
    let mut stays = Stream::open(&root, "teams?watch=true").await;
    root.delete(&format!("tokens/{}", other.token_id())).await.ok();
    assert_eq!(stream.next().await, None);
    other.get("teams").await.refused(401);
    root.post("teams", &object("Team", "web", json!({"users": []}))).await.ok();
    assert_eq!(stays.brief().await.as_deref(), Some("ADDED web"));
}

#[tokio::test]
async fn a_watch_ends_when_its_caller_sees_less_or_more() {
    let server = Server::start().await;
    let root = server.client("root").await;
    server.user("jane").await;
    for name in ["shop", "other"] {
        root.post("projects", &object("Project", name, json!({"clusters": []}))).await.ok();
    }
    root.post("grants", &object("Grant", "first", grant("jane", "shop"))).await.ok();
    let jane = server.client("jane").await;
    let mut stream = Stream::open(&jane, "projects?watch=true").await;
    assert_eq!(stream.brief().await.as_deref(), Some("ADDED shop"));
    // Somebody else's project is nothing to her.
    root.merge("projects/other", &json!({"spec": {"displayName": "x"}})).await.ok();
    root.merge("projects/shop", &json!({"spec": {"displayName": "x"}})).await.ok();
    assert_eq!(stream.brief().await.as_deref(), Some("MODIFIED shop"));
    root.post("grants", &object("Grant", "second", grant("jane", "other"))).await.ok();
    let end = stream.next().await.unwrap();
    assert_eq!((&end["type"], &end["object"]["code"]), (&json!("ERROR"), &json!(410)));
    assert_eq!(stream.next().await, None);

    let mut stream = Stream::open(&jane, "projects?watch=true").await;
    assert_eq!(stream.brief().await.as_deref(), Some("ADDED other"));
    assert_eq!(stream.brief().await.as_deref(), Some("ADDED shop"));
    let before = jane.get("projects").await.ok()["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    root.delete("grants/second").await.ok();
    assert_eq!(stream.next().await.unwrap()["object"]["code"], 410);
    // Nor does a watch from before the change resume.
    let mut stream = Stream::open(&jane, &format!("projects?watch=true&resourceVersion={before}")).await;
    assert_eq!(stream.next().await.unwrap()["object"]["code"], 410);
}

#[tokio::test]
async fn tokens_that_are_gone_are_told_without_their_secrets() {
    let server = Server::start().await;
    let root = server.client("root").await;
    let other = server.client("root").await;
    let start = root.get("tokens").await.ok()["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let key = Key::new(Kind::Token, other.token_id());
    let entry = server.store.get(&key).await.unwrap().unwrap();
    let revision = server.store.delete(key, entry.revision).await.unwrap();
    server.index.applied(revision).await.unwrap();
    let mut stream = Stream::open(&root, &format!("tokens?watch=true&resourceVersion={start}")).await;
    let gone = stream.next().await.unwrap();
    assert_eq!((&gone["type"], &gone["object"]["metadata"]["name"]), (&json!("DELETED"), &json!(other.token_id())));
    assert!(!gone.to_string().contains("hash"), "{gone}");
}

#[tokio::test]
async fn the_watches_of_an_account_are_bounded() {
    let server = Server::start().await;
    server.user("jane").await;
    server.user("joe").await;
    let (jane, joe) = (server.client("jane").await, server.client("joe").await);
    let mut open = vec![];
    for _ in 0..MAX_WATCHES {
        open.push(Stream::open(&jane, "accessroles?watch=1").await);
    }
    let one_more = async || {
        let request = jane.request(Method::GET, "accessroles?watch=1").body(Body::empty()).unwrap();
        jane.raw(request).await.status().as_u16()
    };
    assert_eq!(one_more().await, 429);
    open.push(Stream::open(&joe, "accessroles?watch=1").await);
    jane.get("accessroles").await.ok();
    open.clear();
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    while one_more().await != 200 {
        assert!(tokio::time::Instant::now() < deadline, "places are given back");
        tokio::task::yield_now().await;
    }
}
