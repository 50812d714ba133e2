//! Clocks that somebody sets, at the proxy: what has ended stays so, what only seems to have ended comes back.

use std::time::Duration;

use bailiwick::clock::STABLE;
use bailiwick::clock::by_hand::Hands;
use bailiwick::proxy::ProxySettings;
use bailiwick::resources::token::Audience;
use bailiwick::store::Kind;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::harness::{DEADLINE, World};

const PODS: &str = "/k8s/clusters/demo/api/v1/namespaces/shop-web/pods";

fn noon() -> jiff::Timestamp {
    "2030-03-01T12:00:00Z".parse().unwrap()
}

async fn world(hands: &Hands) -> World {
    World::start_by(ProxySettings::default(), hands.clock(None)).await
}

async fn code(world: &World, token: &str) -> u16 {
    world.request_as(token, "GET", PODS, "").await.code
}

async fn watch(world: &World, token: &str) -> TlsStream<TcpStream> {
    let mut stream = world.connect().await;
    let head = format!("GET {PODS}?watch=1 HTTP/1.1\r\nHost: p\r\nAuthorization: Bearer {token}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut buf = [0; 4096];
    let n = tokio::time::timeout(DEADLINE, stream.read(&mut buf)).await.expect("a head in time").unwrap();
    assert!(buf[..n].starts_with(b"HTTP/1.1 200"));
    stream
}

/// The stream must end though nothing but the clock changes.
async fn ends(mut stream: TlsStream<TcpStream>) {
    let _ = tokio::time::timeout(DEADLINE, stream.read_to_end(&mut vec![])).await.expect("the stream must end");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_ended_is_not_revived_by_a_clock_set_back() {
    let hands = Hands::at(noon());
    let world = world(&hands).await;
    let token = world.issue_for("jane", Default::default(), Audience::Kube, "2030-03-01T14:00:00+01:00").await;
    assert_eq!(code(&world, &token).await, 200);
    let stream = watch(&world, &token).await;
    hands.pass(Duration::from_secs(3600));
    ends(stream).await;
    assert_eq!(code(&world, &token).await, 401);
    hands.set(noon() - Duration::from_secs(86_400));
    world.index.clock().tick();
    assert_eq!(code(&world, &token).await, 401);
    assert_eq!(code(&world, &world.token).await, 200, "others go on");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_ends_by_a_leap_of_a_day_and_lives_again_when_the_clock_returns() {
    let hands = Hands::at(noon());
    let world = world(&hands).await;
    world
        .change(Kind::Grant, "jane-shop", |grant| grant["spec"]["expiresAt"] = json!("2030-03-01T19:30:00+05:30"))
        .await;
    assert_eq!(code(&world, &world.token).await, 200);
    let stream = watch(&world, &world.token).await;
    hands.set(noon() + Duration::from_secs(86_400));
    ends(stream).await;
    assert_eq!(code(&world, &world.token).await, 403);
    world.index.clock().tick();
    hands.set(noon());
    assert_eq!(code(&world, &world.token).await, 200);

    // The same, and it lasts.
    hands.set(noon() + Duration::from_secs(86_400));
    world.index.clock().tick();
    hands.pass(STABLE);
    world.index.clock().tick();
    hands.set(noon());
    assert_eq!(code(&world, &world.token).await, 403);
}
