//! Floods: what a client may make us hold, and that others do not notice.

use std::time::{Duration, Instant};

use bailiwick::listener::Limits;
use bailiwick::proxy::ProxySettings;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::connections::{dial, impatient};
use super::harness::{DEADLINE, Pki, World};
use super::hpack::{block, text};
use super::wire::{CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, PING, PREFACE, RST_STREAM, SETTINGS, frame};

const NS: &str = "/k8s/clusters/demo/api/v1/namespaces/shop-web";

const CANCEL: [u8; 4] = [0, 0, 0, 8];

fn get(world: &World, path: &str) -> Vec<u8> {
    let bearer = format!("Bearer {}", world.token);
    block(&[
        (":method", "GET"),
        (":scheme", "https"),
        (":authority", "p"),
        (":path", &format!("{NS}{path}")),
        ("authorization", &bearer),
    ])
}

/// A connection that spoke its preface with these settings.
async fn open(address: std::net::SocketAddr, pki: &Pki, settings: &[u8]) -> TlsStream<TcpStream> {
    let mut stream = dial(address, pki, b"h2").await;
    stream.write_all(PREFACE).await.unwrap();
    stream.write_all(&frame(SETTINGS, 0, 0, settings)).await.unwrap();
    stream
}

/// Writes one piece again and again while what comes back is thrown away; how many went before the end.
async fn flood(stream: TlsStream<TcpStream>, most: usize, mut piece: impl FnMut(usize) -> Vec<u8>) -> usize {
    let (mut read, mut write) = tokio::io::split(stream);
    let reading = async {
        let mut buffer = [0; 16 * 1024];
        while matches!(read.read(&mut buffer).await, Ok(1..)) {}
    };
    let mut written = 0;
    let writing = async {
        for n in 0..most {
            if write.write_all(&piece(n)).await.is_err() {
                return;
            }
            written = n + 1;
        }
        let _ = write.shutdown().await;
    };
    let both = async {
        tokio::select! {
            () = reading => {}
            () = writing => {}
        }
    };
    let _ = tokio::time::timeout(DEADLINE, both).await;
    written
}

/// The slowest but one of forty requests of somebody well behaved.
async fn others(world: &World) -> Duration {
    let mut times = vec![];
    for _ in 0..40 {
        let started = Instant::now();
        let answer = world.request("GET", &format!("{NS}/pods"), "").await;
        assert_eq!(answer.code, 200, "{}", answer.body);
        times.push(started.elapsed());
    }
    times.sort_unstable();
    times[times.len() - 2]
}

/// CVE-2023-44487, CVE-2025-8671, CVE-2024-27316 and their kin.
#[tokio::test(flavor = "multi_thread")]
async fn storms_of_frames_are_ended_and_others_are_served() {
    let world = World::start().await;
    let (address, pki, _shutdown) = impatient(&world, Limits::default()).await;
    let alone = others(&world).await;
    let head = get(&world, "/pods/hangs");
    let reset = |n: usize| {
        let stream = 2 * n as u32 + 1;
        let asked = frame(HEADERS, END_STREAM | END_HEADERS, stream, &head);
        [asked, frame(RST_STREAM, 0, stream, &CANCEL)].concat()
    };
    // Makes the server reset: an update of the window by nothing is an error of its stream.
    let provoked = |n: usize| {
        let stream = 2 * n as u32 + 1;
        [frame(HEADERS, END_HEADERS, stream, &head), frame(8, 0, stream, &[0; 4])].concat()
    };
    let garbage = [b'a'; 16 * 1024];
    let endless = |n: usize| match n {
        0 => frame(HEADERS, END_STREAM, 1, &head),
        _ => frame(CONTINUATION, 0, 1, &block(&[("x-filler", std::str::from_utf8(&garbage[..8000]).unwrap())])),
    };
    let empty_ones = |n: usize| match n {
        0 => frame(HEADERS, END_STREAM, 1, &head),
        _ => frame(CONTINUATION, 0, 1, b"").repeat(64),
    };
    // One field of 4,000 bytes, remembered, and then named by one byte each: 16 MB of fields in 4 kB.
    let mut bomb = head.clone();
    bomb.extend([vec![0x40], text(b"x-bomb"), text(&garbage[..4000])].concat());
    bomb.extend([0xbe; 4000]);
    let bombs = |n: usize| frame(HEADERS, END_STREAM | END_HEADERS, 2 * n as u32 + 1, &bomb);
    let pings = |_: usize| frame(PING, 0, 0, &[0; 8]).repeat(64);
    let settings = |_: usize| frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 255, 255]).repeat(64);

    let ended = async |what: &str, most: usize, piece: &mut dyn FnMut(usize) -> Vec<u8>| {
        let written = flood(open(address, &pki, &[]).await, most, piece).await;
        assert!(written < most, "{what}: all {written} were taken");
    };
    let attacks = async {
        flood(open(address, &pki, &[]).await, 10_000, reset).await;
        ended("resets provoked", 20_000, &mut { provoked }).await;
        ended("a head without end", 20_000, &mut { endless }).await;
        ended("empty parts of a head", 200_000, &mut { empty_ones }).await;
        flood(open(address, &pki, &[]).await, 2_000, bombs).await;
        flood(open(address, &pki, &[]).await, 2_000, pings).await;
        flood(open(address, &pki, &[]).await, 2_000, settings).await;
        ended("data of no stream", 20_000, &mut |_| frame(DATA, 0, 7, &garbage)).await;
    };
    let mut slowest = Duration::ZERO;
    let serving = async {
        loop {
            slowest = slowest.max(others(&world).await);
        }
    };
    tokio::select! {
        () = attacks => {}
        () = serving => {}
    }
    // Twice as slow as before, or what a machine that does much else at the same time makes of it.
    assert!(slowest <= (2 * alone).max(Duration::from_secs(1)), "{slowest:?} instead of {alone:?}");
    // Nothing of it is left: no place in the budget, no stream, and nobody was let through with a bomb.
    let deadline = Instant::now() + DEADLINE;
    while world.proxy.streams().count_of("jane") > 0 {
        assert!(Instant::now() < deadline, "streams are left");
        tokio::task::yield_now().await;
    }
    assert!(world.take_seen().iter().all(|seen| !seen.headers.contains_key("x-bomb")));
    assert_eq!(world.request("GET", &format!("{NS}/pods"), "").await.code, 200);
}

/// kubernetes/kubernetes#139506: who reads nothing of a short answer must not hold the cluster's attention for ever.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_never_read_is_given_up() {
    let settings = ProxySettings { max_requests_per_user: 1, ..ProxySettings::default() };
    let world = World::start_with(settings).await;
    let limits = Limits { unread: Duration::from_millis(500), ..Limits::default() };
    let (address, pki, _shutdown) = impatient(&world, limits).await;
    let joe = world.issue("joe", Default::default()).await;
    let billing = "/k8s/clusters/demo/api/v1/namespaces/billing-api/pods";
    for protocol in ["http/1.1", "h2", "h2 without a window"] {
        let stream = if protocol == "http/1.1" {
            let mut stream = dial(address, &pki, b"http/1.1").await;
            let head =
                format!("GET {NS}/pods/pours HTTP/1.1\r\nHost: p\r\nAuthorization: Bearer {}\r\n\r\n", world.token);
            stream.write_all(head.as_bytes()).await.unwrap();
            stream
        } else {
            let window: &[u8] = if protocol == "h2" { &[] } else { &[0, 4, 0, 0, 0, 0] };
            let mut stream = open(address, &pki, window).await;
            let asked = frame(HEADERS, END_STREAM | END_HEADERS, 1, &get(&world, "/pods/pours"));
            stream.write_all(&asked).await.unwrap();
            stream
        };
        let asks = async || world.request("GET", &format!("{NS}/pods"), "").await.code;
        wait(protocol, "it holds the account's only place", async || asks().await == 429).await;
        assert_eq!(world.request_as(&joe, "GET", billing, "").await.code, 200, "others go on");
        wait(protocol, "the place comes back", async || asks().await == 200).await;
        drop(stream);
    }
}

/// The pair: slowness is no offence.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_read_slowly_goes_on() {
    let world = World::start().await;
    let unread = Duration::from_millis(1500);
    let (address, pki, _shutdown) = impatient(&world, Limits { unread, ..Limits::default() }).await;
    let mut stream = dial(address, &pki, b"http/1.1").await;
    let head = format!("GET {NS}/pods/pours HTTP/1.1\r\nHost: p\r\nAuthorization: Bearer {}\r\n\r\n", world.token);
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut ticks = tokio::time::interval(Duration::from_millis(20));
    let mut buffer = vec![0; 128 * 1024];
    let until = Instant::now() + 2 * unread;
    while Instant::now() < until {
        ticks.tick().await;
        let read = tokio::time::timeout(DEADLINE, stream.read(&mut buffer)).await.expect("more in time");
        assert!(read.unwrap() > 0, "it goes on");
    }
}

async fn wait(protocol: &str, what: &str, mut done: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !done().await {
        assert!(Instant::now() < deadline, "{protocol}: waited in vain until {what}");
    }
}
