//! Cut-off: on each cause an open stream ends at the reading client, and nothing new begins.

use std::time::{Duration, Instant};

use bailiwick::proxy::ProxySettings;
use bailiwick::records::{Account, Suspension};
use bailiwick::resources::token::Audience;
use bailiwick::store::sealed::Binding;
use bailiwick::store::{Key, Kind};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::harness::{DEADLINE, World, observe};

const NS: &str = "/k8s/clusters/demo/api/v1/namespaces/shop-web";

/// The bound of the design for the worst case.
const BOUND: Duration = Duration::from_secs(1);

/// Opens a watch, a followed log, and an upgraded session per protocol; each is proven to carry data.
async fn open_all(world: &World) -> Vec<(&'static str, TlsStream<TcpStream>)> {
    let mut streams = vec![];
    for (what, target, upgrade) in [
        ("watch", "/pods?watch=1", ""),
        ("logs", "/pods/p/log?follow=true", ""),
        ("exec over SPDY", "/pods/p/exec?command=sh", "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"),
        ("exec over WebSocket", "/pods/p/exec?command=sh", "Connection: Upgrade\r\nUpgrade: websocket\r\n"),
        ("port-forward", "/pods/p/portforward?ports=1", "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"),
        ("attach", "/pods/p/attach", "Connection: Upgrade\r\nUpgrade: websocket\r\n"),
    ] {
        let mut stream = world.connect().await;
        let method = if upgrade.contains("SPDY") { "POST" } else { "GET" };
        let length = if method == "POST" { "Content-Length: 0\r\n" } else { "" };
        let head = format!(
            "{method} {NS}{target} HTTP/1.1\r\nHost: p\r\nAuthorization: Bearer {}\r\n{upgrade}{length}\r\n",
            world.token
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut buf = [0; 4096];
        let n = tokio::time::timeout(DEADLINE, stream.read(&mut buf)).await.expect("a head in time").unwrap();
        let text = String::from_utf8_lossy(&buf[..n]).into_owned();
        let expected = if upgrade.is_empty() { "HTTP/1.1 200" } else { "HTTP/1.1 101" };
        assert!(text.starts_with(expected), "{what}: {text}");
        if !upgrade.is_empty() {
            stream.write_all(b"ping").await.unwrap();
            let n = tokio::time::timeout(DEADLINE, stream.read(&mut buf)).await.expect("an echo in time").unwrap();
            assert_eq!(&buf[..n], b"ping", "{what}");
        }
        streams.push((what, stream));
    }
    streams
}

/// Reads until the end and returns when the last byte came, measured from `since`. Sessions are kept busy.
async fn last_byte(mut stream: TlsStream<TcpStream>, since: Instant) -> Duration {
    let mut last = Duration::ZERO;
    let mut buf = [0; 4096];
    let reading = async {
        loop {
            let _ = stream.write_all(b"more").await;
            match stream.read(&mut buf).await {
                Ok(0) | Err(_) => return,
                Ok(_) => last = since.elapsed(),
            }
        }
    };
    tokio::time::timeout(DEADLINE, reading).await.expect("the stream must end");
    last
}

async fn cut_by(cause: &str, world: World, act: impl AsyncFnOnce(&World)) {
    let streams = open_all(&world).await;
    assert_eq!(world.proxy.streams().len(), streams.len());
    act(&world).await;
    let acknowledged = Instant::now();
    for (what, stream) in streams {
        let last = last_byte(stream, acknowledged).await;
        assert!(last < BOUND, "{cause}: {what} went on for {last:?}");
    }
    let answer = world.request("GET", &format!("{NS}/pods"), "").await;
    assert!(matches!(answer.code, 401 | 403 | 503), "{cause}: {} {}", answer.code, answer.body);
    let deadline = Instant::now() + DEADLINE;
    while !world.proxy.streams().is_empty() {
        assert!(Instant::now() < deadline, "{cause}: streams stay in the register");
        tokio::task::yield_now().await;
    }
    let audit = world.audit_text().await;
    assert_eq!(audit.matches("\"stage\":\"closed\"").count(), 6, "{cause}: {audit}");
}

#[tokio::test(flavor = "multi_thread")]
async fn suspension() {
    cut_by("suspension", World::start().await, async |world: &World| {
        let mut account = Account::default();
        account.user_uid = "uid-jane".into();
        account.suspended =
            Some(Suspension { at: "2026-01-01T00:00:00Z".into(), by: "admin".into(), reason: String::new() });
        let key = Key::new(Kind::Account, "jane");
        let sealed = world.sealer.seal(&key, Binding { uid: "uid-jane", version: 1 }, &account).unwrap();
        let revision = world.store.create(key, sealed).await.unwrap();
        world.index.applied(revision).await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disabled_account() {
    cut_by("disabled", World::start().await, async |world: &World| {
        world.change(Kind::User, "jane", |user| user["spec"]["disabled"] = json!(true)).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_account() {
    cut_by("deleted", World::start().await, async |world: &World| {
        world.delete(Kind::User, "jane").await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_token() {
    cut_by("revoked", World::start().await, async |world: &World| {
        let id = world.token.split('_').nth(1).unwrap().to_owned();
        world.delete(Kind::Token, &id).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ended_grant() {
    cut_by("grant", World::start().await, async |world: &World| {
        world.delete(Kind::Grant, "jane-shop").await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_grant() {
    cut_by("expiry", World::start().await, async |world: &World| {
        let soon = jiff::Timestamp::now() + jiff::SignedDuration::from_millis(300);
        world.change(Kind::Grant, "jane-shop", |grant| grant["spec"]["expiresAt"] = json!(soon.to_string())).await;
        while jiff::Timestamp::now() < soon {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_narrowed_to_another_namespace() {
    cut_by("narrowed", World::start().await, async |world: &World| {
        world.change(Kind::Grant, "jane-shop", |grant| grant["spec"]["namespaces"] = json!(["shop-data"])).await;
    })
    .await;
}

/// jane holds `top`, which inherits `middle`, which inherits the built-in member.
async fn by_inheritance() -> World {
    let world = World::start().await;
    for (name, inherits) in [("middle", "member"), ("top", "middle")] {
        world.create(Kind::AccessRole, name, json!({"inherits": [inherits]}), json!({})).await;
    }
    world.change(Kind::Project, "shop", |project| project["spec"]["roles"] = json!(["top"])).await;
    world.change(Kind::Grant, "jane-shop", |grant| grant["spec"]["role"] = json!("top")).await;
    world
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_link_of_inheritance() {
    cut_by("link", by_inheritance().await, async |world: &World| {
        world.change(Kind::AccessRole, "middle", |role| role["spec"]["inherits"] = json!([])).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_that_inherits_what_was_deleted() {
    cut_by("broken", by_inheritance().await, async |world: &World| {
        world.delete(Kind::AccessRole, "middle").await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_that_came_to_inherit_each_other() {
    cut_by("circle", by_inheritance().await, async |world: &World| {
        world.change(Kind::AccessRole, "middle", |role| role["spec"]["inherits"] = json!(["member", "top"])).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_that_the_project_no_longer_uses() {
    cut_by("unused", by_inheritance().await, async |world: &World| {
        world.change(Kind::Project, "shop", |project| project["spec"]["roles"] = json!([])).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn somebody_who_left_the_team() {
    let world = World::start().await;
    let members = json!({"memberUIDs": {"jane": "uid-jane", "joe": "uid-joe"}});
    world.create(Kind::Team, "shop-people", json!({"users": ["jane", "joe"]}), members).await;
    world
        .change(Kind::Grant, "jane-shop", |grant| {
            grant["spec"]["subject"] = json!({"kind": "Team", "name": "shop-people"});
            grant["status"]["subjectUID"] = json!("uid-shop-people");
        })
        .await;
    cut_by("team", world, async |world: &World| {
        world.change(Kind::Team, "shop-people", |team| team["spec"]["users"] = json!(["joe"])).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_moved_namespace() {
    cut_by("moved", World::start().await, async |world: &World| {
        world
            .change(Kind::Claim, "demo/shop-web", |claim| {
                claim["project"] = json!("billing");
                claim["project_uid"] = json!("2b3c4d5e-0000-4000-8000-000000000002");
            })
            .await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_cluster() {
    cut_by("cluster", World::start().await, async |world: &World| {
        world.delete(Kind::Cluster, "demo").await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_that_came_back_as_a_stranger() {
    cut_by("namespace", World::start().await, async |world: &World| {
        observe(&world.index, true, &["shop-data"]).await;
    })
    .await;
}

/// What has nothing to do with the change goes on.
#[tokio::test(flavor = "multi_thread")]
async fn others_go_on() {
    let world = World::start().await;
    let mut streams = open_all(&world).await;
    let joe = world.issue("joe", Default::default()).await;
    let id = joe.split('_').nth(1).unwrap().to_owned();
    world.delete(Kind::Token, &id).await;
    world.proxy.streams().settled(&world.index).await;
    assert_eq!(world.proxy.streams().len(), streams.len());
    let (_, stream) = &mut streams[0];
    let mut buf = [0; 64];
    let n = tokio::time::timeout(DEADLINE, stream.read(&mut buf)).await.expect("more events").unwrap();
    assert!(n > 0);
}

async fn until(what: &str, done: impl Fn() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !done() {
        assert!(Instant::now() < deadline, "{what}");
        tokio::task::yield_now().await;
    }
}

/// Who is about to lose a right could begin writes beforehand, hold back the last byte of each, and finish them later
/// with a content of its choice: the API server authorises a request by its head.
#[tokio::test(flavor = "multi_thread")]
async fn a_write_begun_before_the_cut_is_not_finished_after_it() {
    for (what, headers, first, rest) in [
        ("length", "Content-Length: 10\r\n", "01234", "56789"),
        ("chunks", "Transfer-Encoding: chunked\r\n", "5\r\n01234\r\n", "5\r\n56789\r\n0\r\n\r\n"),
    ] {
        // Time enough: it is not the deadline of the answer that ends it.
        let settings = ProxySettings { response_timeout: DEADLINE, ..ProxySettings::default() };
        let world = World::start_with(settings).await;
        let mut stream = world.connect().await;
        let head = format!(
            "POST {NS}/configmaps HTTP/1.1\r\nHost: p\r\nAuthorization: Bearer {}\r\nConnection: close\r\n{headers}\r\n{first}",
            world.token
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        until("the head must reach the cluster", || !world.seen.lock().is_empty()).await;
        world.delete(Kind::Grant, "jane-shop").await;
        world.proxy.streams().settled(&world.index).await;
        let _ = stream.write_all(rest.as_bytes()).await;
        let mut answer = vec![];
        let _ = tokio::time::timeout(DEADLINE, stream.read_to_end(&mut answer)).await.expect("an answer in time");
        let text = String::from_utf8_lossy(&answer).into_owned();
        assert!(text.starts_with("HTTP/1.1 403"), "{what}: {text}");
        assert!(world.wholes.lock().is_empty(), "{what}: the cluster received the whole write");
        assert_eq!(world.proxy.streams().len(), 0, "{what}: it stays in the register");
    }
}

/// An answer that no parameter calls long-running, and that does not end.
#[tokio::test(flavor = "multi_thread")]
async fn a_short_answer_that_lingers_is_cut_too() {
    let world = World::start().await;
    let mut stream = world.connect().await;
    let head =
        format!("GET {NS}/configmaps/drips HTTP/1.1\r\nHost: p\r\nAuthorization: Bearer {}\r\n\r\n", world.token);
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut buf = [0; 4096];
    let n = tokio::time::timeout(DEADLINE, stream.read(&mut buf)).await.expect("a head in time").unwrap();
    assert!(buf[..n].starts_with(b"HTTP/1.1 200"));
    world.delete(Kind::Grant, "jane-shop").await;
    let acknowledged = Instant::now();
    let last = last_byte(stream, acknowledged).await;
    assert!(last < 2 * BOUND, "it went on for {last:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_in_flight_of_one_account_are_bounded() {
    let world = World::start_with(ProxySettings { max_requests_per_user: 2, ..ProxySettings::default() }).await;
    let open = async || {
        let mut stream = world.connect().await;
        let head =
            format!("GET {NS}/configmaps/drips HTTP/1.1\r\nHost: p\r\nAuthorization: Bearer {}\r\n\r\n", world.token);
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut buf = [0; 4096];
        let n = tokio::time::timeout(DEADLINE, stream.read(&mut buf)).await.expect("a head in time").unwrap();
        assert!(buf[..n].starts_with(b"HTTP/1.1 200"));
        stream
    };
    let (first, _second) = (open().await, open().await);
    // Another credential of the account has no budget of its own.
    let other = world.issue("jane", Default::default()).await;
    for token in [&world.token, &other] {
        let answer = world.request_as(token, "GET", &format!("{NS}/pods"), "").await;
        assert_eq!(answer.code, 429, "{}", answer.body);
        assert!(answer.head.to_lowercase().contains("retry-after: 1"), "{}", answer.head);
        assert!(answer.body.contains("you have 2 requests in flight"), "{}", answer.body);
        assert!(answer.body.contains("\"reason\":\"TooManyRequests\""), "{}", answer.body);
    }
    // Watches have their own budget, and so has everybody else.
    let mut watch = world.connect().await;
    let head = format!("GET {NS}/pods?watch=1 HTTP/1.1\r\nHost: p\r\nAuthorization: Bearer {}\r\n\r\n", world.token);
    watch.write_all(head.as_bytes()).await.unwrap();
    let mut buf = [0; 4096];
    let n = tokio::time::timeout(DEADLINE, watch.read(&mut buf)).await.expect("a head in time").unwrap();
    assert!(buf[..n].starts_with(b"HTTP/1.1 200"));
    let joe = world.issue("joe", Default::default()).await;
    let billing = "/k8s/clusters/demo/api/v1/namespaces/billing-api/pods";
    assert_eq!(world.request_as(&joe, "GET", billing, "").await.code, 200);
    // A place comes back when its client is gone.
    drop(first);
    let deadline = Instant::now() + DEADLINE;
    while world.request("GET", &format!("{NS}/pods"), "").await.code != 200 {
        assert!(Instant::now() < deadline, "the place does not come back");
    }
}

/// Time alone ends a stream, though nothing else happens after it was opened.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_runs_out_while_nothing_else_happens() {
    let world = World::start().await;
    let soon = jiff::Timestamp::now() + jiff::SignedDuration::from_millis(1500);
    let token = world.issue_for("jane", Default::default(), Audience::Kube, &soon.to_string()).await;
    // The judge has seen the token and goes to sleep with nothing to judge.
    world.proxy.streams().settled(&world.index).await;
    let mut stream = world.connect().await;
    let head = format!("GET {NS}/pods?watch=1 HTTP/1.1\r\nHost: p\r\nAuthorization: Bearer {token}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut buf = [0; 4096];
    let n = tokio::time::timeout(DEADLINE, stream.read(&mut buf)).await.expect("a head in time").unwrap();
    assert!(buf[..n].starts_with(b"HTTP/1.1 200"));
    while jiff::Timestamp::now() < soon {
        tokio::task::yield_now().await;
    }
    let last = last_byte(stream, Instant::now()).await;
    assert!(last < BOUND, "it went on for {last:?}");
}
