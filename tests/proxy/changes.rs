//! `changes: git`: people read; to change something they need a grant that ends, and machines do not.

use std::time::{Duration, Instant};

use bailiwick::records::TokenScopes;
use bailiwick::store::Kind;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::harness::{DEADLINE, PROJECT_UID, World};

const NS: &str = "/k8s/clusters/demo/api/v1/namespaces/shop-web";
const UPGRADE: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\n";
const WHERE: [&str; 3] = ["changed by Git", "prod/web in https://git.example.com/shop", "spec.expiresAt"];

/// One request of each class of verbs that changes something.
const CHANGES: [(&str, &str, &str); 9] = [
    ("POST", "/pods", "Content-Length: 0\r\n"),
    ("PUT", "/pods/p", "Content-Length: 0\r\n"),
    ("PATCH", "/pods/p", "Content-Length: 0\r\nContent-Type: application/merge-patch+json\r\n"),
    ("DELETE", "/pods/p", ""),
    ("DELETE", "/pods", ""),
    ("POST", "/pods/p/eviction", "Content-Length: 0\r\n"),
    ("POST", "/serviceaccounts/default/token?dryRun=All", "Content-Length: 0\r\n"),
    ("POST", "/pods?dryRun=All", "Content-Length: 0\r\n"),
    ("PATCH", "/pods/p/ephemeralcontainers", "Content-Length: 0\r\nContent-Type: application/merge-patch+json\r\n"),
];
const SESSIONS: [&str; 3] = ["/pods/p/exec?command=sh", "/pods/p/attach", "/pods/p/portforward?ports=1"];
const READS: [&str; 4] = ["/pods", "/pods/p", "/secrets/s", "/pods/p/log"];

async fn by_git() -> World {
    let world = World::start().await;
    world
        .change(Kind::Project, "shop", |project| {
            let place = &mut project["spec"]["clusters"][0];
            place["changes"] = json!("git");
            place["git"] = json!({"repository": "https://git.example.com/shop", "path": "prod/web"});
        })
        .await;
    world
}

/// A second grant of jane's role that ends.
async fn ending(world: &World, at: Timestamp) {
    let spec = json!({"subject": {"kind": "User", "name": "jane"}, "role": "member",
        "target": {"kind": "Project", "name": "shop"}, "expiresAt": at.to_string()});
    let status = json!({"state": "Active", "subjectUID": "uid-jane", "targetUID": PROJECT_UID});
    world.create(Kind::Grant, "jane-for-a-while", spec, status).await;
}

fn soon(seconds: i64) -> Timestamp {
    Timestamp::from_second(Timestamp::now().as_second() + seconds).unwrap()
}

/// How an upgraded session is answered.
async fn session(world: &World, target: &str) -> u16 {
    let mut stream = world.connect().await;
    let head =
        format!("GET {NS}{target} HTTP/1.1\r\nHost: p\r\nAuthorization: Bearer {}\r\n{UPGRADE}\r\n", world.token);
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut buf = [0; 512];
    let n = tokio::time::timeout(DEADLINE, stream.read(&mut buf)).await.expect("a head in time").unwrap();
    String::from_utf8_lossy(&buf[..n]).split(' ').nth(1).unwrap().parse().unwrap()
}

async fn every_change_is(world: &World, permitted: bool) {
    for (method, target, headers) in CHANGES {
        world.take_seen();
        let answer = world.request(method, &format!("{NS}{target}"), headers).await;
        let reached = !world.take_seen().is_empty();
        assert_eq!((answer.code == 200, reached), (permitted, permitted), "{method} {target}: {answer:?}");
        if !permitted {
            assert_eq!(answer.code, 403, "{method} {target}");
            for needle in WHERE {
                assert!(answer.body.contains(needle), "{method} {target}: {}", answer.body);
            }
        }
    }
    for target in SESSIONS {
        assert_eq!(session(world, target).await, if permitted { 101 } else { 403 }, "{target}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn people_read_and_change_nothing() {
    let world = by_git().await;
    for target in READS {
        assert_eq!(world.request("GET", &format!("{NS}{target}"), "").await.code, 200, "{target}");
    }
    every_change_is(&world, false).await;
    // A role that does not permit it is refused for that, with or without Git.
    let nodes = world.request("DELETE", &format!("{NS}/resourcequotas/q"), "").await;
    assert!(nodes.code == 403 && !nodes.body.contains("Git"), "{nodes:?}");
    world
        .change(Kind::Project, "shop", |project| {
            let place = &mut project["spec"]["clusters"][0];
            place["changes"] = json!("anyone");
            place["git"] = Value::Null;
        })
        .await;
    every_change_is(&world, true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_that_ends_permits_changes_until_it_does() {
    let world = by_git().await;
    let end = soon(6);
    ending(&world, end).await;
    every_change_is(&world, true).await;
    let deadline = Instant::now() + Duration::from_secs(20);
    while Timestamp::now() < end {
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    every_change_is(&world, false).await;
    assert_eq!(world.request("GET", &format!("{NS}/pods"), "").await.code, 200, "reading goes on");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_cut_when_its_grant_goes_and_a_watch_goes_on() {
    let world = by_git().await;
    ending(&world, soon(3600)).await;
    let open = async |target: &str, upgrade: &str| {
        let mut stream = world.connect().await;
        let head =
            format!("GET {NS}{target} HTTP/1.1\r\nHost: p\r\nAuthorization: Bearer {}\r\n{upgrade}\r\n", world.token);
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut buf = [0; 512];
        let n = tokio::time::timeout(DEADLINE, stream.read(&mut buf)).await.expect("a head in time").unwrap();
        assert!(n > 0);
        stream
    };
    let mut exec = open("/pods/p/exec?command=sh", UPGRADE).await;
    let mut watch = open("/pods?watch=1", "").await;
    world.delete(Kind::Grant, "jane-for-a-while").await;
    let since = Instant::now();
    let mut buf = [0; 512];
    let ended = async { while !matches!(exec.read(&mut buf).await, Ok(0) | Err(_)) {} };
    tokio::time::timeout(DEADLINE, ended).await.expect("the session ends");
    assert!(since.elapsed() < Duration::from_secs(1), "{:?}", since.elapsed());
    let n = tokio::time::timeout(DEADLINE, watch.read(&mut buf)).await.expect("an event in time").unwrap();
    assert!(n > 0, "the watch goes on");
    every_change_is(&world, false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn machines_work_as_their_grants_say() {
    let mut world = by_git().await;
    world.change(Kind::User, "jane", |user| user["spec"]["type"] = json!("Machine")).await;
    world.token = world.issue("jane", TokenScopes::default()).await;
    every_change_is(&world, true).await;
}
