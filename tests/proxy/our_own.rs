//! Our own API and the pages for operators under clients that leave, read nothing, or say nothing.

use std::time::{Duration, Instant};

use bailiwick::listener::Limits;
use bailiwick::records::TokenScopes;
use bailiwick::resources::token::Audience;
use bailiwick::store::Kind;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::harness::{DEADLINE, World};
use super::matrix::Site;
use super::wire::{Client, End, PROTOCOLS, Part, Protocol, Raw};

const API: &str = "/apis/bailiwick.dev/v1alpha1";
/// Watches that one account may have open.
const WATCHES: usize = 100;

/// jane administers the platform; a token of hers for the API.
async fn administrator(site: &Site) -> String {
    let target = json!({"kind": "Platform"});
    let spec = json!({"subject": {"kind": "User", "name": "jane"}, "role": "admin", "target": target});
    let status = json!({"state": "Active", "subjectUID": "uid-jane"});
    site.world.create(Kind::Grant, "jane-admin", spec, status).await;
    site.world.issue_for("jane", TokenScopes::default(), Audience::Api, "2100-01-01T00:00:00Z").await
}

async fn open(site: &Site, protocol: Protocol, raw: &Raw) -> (u16, Client) {
    let mut client = Client::dial(site.address, &site.pki, protocol).await;
    client.send(raw).await;
    match client.next().await {
        Part::Head(code, _) => (code, client),
        other => panic!("{protocol:?} {}: {other:?}", raw.target),
    }
}

/// However a watcher leaves, its place comes back; and more than there are places are not had.
#[tokio::test(flavor = "multi_thread")]
async fn places_for_watches_come_back_however_a_watcher_leaves() {
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    for kind in ["users", "grants"] {
        for (protocol, how) in [
            (Protocol::Http1, "closes"),
            (Protocol::Http1, "resets"),
            (Protocol::Http1, "says goodbye"),
            (Protocol::Http2, "closes"),
            (Protocol::Http2, "resets"),
            (Protocol::Http2, "says goodbye"),
            (Protocol::Http2, "vanishes"),
        ] {
            // Of those who vanish nothing comes but that they answer no ping.
            let ping = if how == "vanishes" { Duration::from_millis(700) } else { 6 * DEADLINE };
            let site = Site::around(World::start().await, Limits { ping, ..Limits::default() }).await;
            let token = administrator(&site).await;
            let watch = Raw::new("GET", &format!("{API}/{kind}?watch=1")).bearer(&token);
            let before = tasks();
            let mut held = vec![];
            for _ in 0..if how == "vanishes" { 5 } else { WATCHES } {
                let (code, client) = open(&site, protocol, &watch).await;
                assert_eq!(code, 200, "{protocol:?} {how}, after {}", held.len());
                held.push(client);
            }
            if how != "vanishes" {
                assert_eq!(open(&site, protocol, &watch).await.0, 429, "{protocol:?}: one too many");
            }
            let mut left = vec![];
            for mut client in held {
                match how {
                    "closes" => {}
                    "resets" => {
                        socket2::SockRef::from(client.stream.get_ref().0).set_linger(Some(Duration::ZERO)).unwrap();
                    }
                    "says goodbye" => {
                        let _ = client.stream.shutdown().await;
                        left.push(client);
                    }
                    _ => left.push(client),
                }
            }
            let deadline = Instant::now() + DEADLINE;
            while tasks() > before + 3 {
                assert!(Instant::now() < deadline, "{protocol:?} {how}: {} tasks, {before} before", tasks());
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            assert_eq!(open(&site, protocol, &watch).await.0, 200, "{protocol:?} {how}: their places are there again");
        }
    }
}

/// A large list and the beginning of a watch that nobody reads: given up, and their places come back.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_of_the_api_that_is_never_read_is_given_up() {
    let limits = Limits { unread: Duration::from_millis(500), ..Limits::default() };
    let site = Site::around(World::start().await, limits).await;
    let token = administrator(&site).await;
    let names: Vec<String> = (0..500).map(|n| format!("{n:0>200}")).collect();
    for n in 0..150 {
        site.world.create(Kind::Team, &format!("team-{n}"), json!({"users": names}), json!({})).await;
    }
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    for protocol in PROTOCOLS {
        for target in ["/teams", "/teams?watch=1"] {
            let raw = Raw::new("GET", &format!("{API}{target}")).bearer(&token);
            // The pair: who reads gets it.
            let (code, mut client) = open(&site, protocol, &raw).await;
            assert_eq!(code, 200);
            let mut read = 0;
            while read < 512 << 10 {
                match client.next().await {
                    Part::Data(data) => read += data.len(),
                    other => panic!("{protocol:?} {target}: {other:?} after {read}"),
                }
            }
            drop(client);
            let deadline = Instant::now() + 3 * DEADLINE;
            let settled = async |most: usize| {
                while tasks() > most {
                    assert!(Instant::now() < deadline, "{protocol:?} {target}: {} tasks, at most {most}", tasks());
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            };
            settled(before).await;
            let (code, mut client) = open(&site, protocol, &raw).await;
            assert_eq!(code, 200);
            // Its connection goes, and what was made for it.
            settled(before).await;
            let end = loop {
                match client.next().await {
                    Part::Data(_) => {}
                    Part::End(end) => break end,
                    Part::Head(..) => panic!("two heads"),
                }
            };
            assert!(matches!(end, End::Cut(_)), "{protocol:?} {target}: {end:?}");
        }
    }
}

/// The pages need no credential: whoever can reach them must not have all that the process may have open.
#[tokio::test(flavor = "multi_thread")]
async fn pages_are_shown_whoever_holds_their_connections() {
    let head = Duration::from_millis(500);
    let site = Site::around(World::start().await, Limits { head, ..Limits::default() }).await;
    let shown = async || {
        let mut stream = TcpStream::connect(site.pages).await.unwrap();
        let _ = stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: p\r\nConnection: close\r\n\r\n").await;
        let mut answer = vec![];
        let _ = tokio::time::timeout(DEADLINE, stream.read_to_end(&mut answer)).await;
        answer.starts_with(b"HTTP/1.1 200")
    };
    assert!(shown().await);
    // As many as anybody likes, which say nothing, or a byte now and then, or ask and read nothing.
    let mut held = vec![];
    for n in 0..60 {
        let mut stream = TcpStream::connect(site.pages).await.unwrap();
        let said: &[u8] = [&b""[..], b"G", b"GET /metrics HTTP/1.1\r\nHost: p\r\nX: y"][n % 3];
        let _ = stream.write_all(said).await;
        held.push(stream);
    }
    let began = Instant::now();
    while !shown().await {
        assert!(began.elapsed() < DEADLINE, "the pages are not shown any more");
        for stream in &mut held {
            let _ = stream.write_all(b"x").await;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    for stream in &mut held {
        let mut rest = vec![];
        let ended = tokio::time::timeout(DEADLINE, stream.read_to_end(&mut rest)).await;
        assert!(ended.is_ok(), "it is held");
    }
}
