//! Connections: who asks nothing holds no place.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bailiwick::listener::{self, Doors, Limits};
use http_body_util::BodyExt as _;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;

use super::harness::{DEADLINE, Pki, World};

const PODS: &str = "/k8s/clusters/demo/api/v1/namespaces/shop-web/pods";

/// A listener of its own with short limits, in front of the same proxy.
pub async fn impatient(world: &World, limits: Limits) -> (SocketAddr, Pki, CancellationToken) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let pki = Pki::new();
    let mut server = pki.server();
    server.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let doors = Arc::new(Doors {
        proxy: world.proxy.clone(),
        api: axum::Router::new(),
        trusted_proxies: vec![],
        metrics: Arc::default(),
    });
    let shutdown = CancellationToken::new();
    let grace = Duration::from_secs(1);
    tokio::spawn(listener::serve_within(listener, Arc::new(server), doors, shutdown.clone(), grace, limits));
    (address, pki, shutdown)
}

pub async fn dial(address: SocketAddr, pki: &Pki, alpn: &[u8]) -> TlsStream<TcpStream> {
    let tcp = TcpStream::connect(address).await.unwrap();
    tcp.set_nodelay(true).unwrap();
    pki.connector(&[alpn]).connect(ServerName::try_from("127.0.0.1").unwrap(), tcp).await.unwrap()
}

/// Places for connections are few, and whoever has no account must not hold them by doing nothing.
#[tokio::test(flavor = "multi_thread")]
async fn connections_that_ask_nothing_are_closed() {
    let world = World::start().await;
    let short = Duration::from_millis(500);
    let limits = Limits { head: short, idle: short, connections: 6, ..Limits::default() };
    let (address, pki, shutdown) = impatient(&world, limits).await;
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00";
    let mut silent = vec![];
    for (alpn, first) in [
        (&b"http/1.1"[..], &b""[..]),
        (b"http/1.1", b"GET / HTTP"),
        (b"http/1.1", b"PRI"),
        (b"h2", b""),
        (b"h2", &PREFACE[..10]),
        (b"h2", PREFACE),
    ] {
        let mut stream = dial(address, &pki, alpn).await;
        stream.write_all(first).await.unwrap();
        silent.push((String::from_utf8_lossy(first).into_owned(), stream));
    }
    // There is no place left until those are closed.
    let waiting = tokio::spawn({
        let connector = pki.connector(&[b"http/1.1"]);
        async move {
            let tcp = TcpStream::connect(address).await.unwrap();
            connector.connect(ServerName::try_from("127.0.0.1").unwrap(), tcp).await.is_ok()
        }
    });
    for (first, mut stream) in silent {
        let mut answer = vec![];
        let read = tokio::time::timeout(DEADLINE, stream.read_to_end(&mut answer)).await;
        assert!(read.is_ok(), "{first:?} is kept");
    }
    assert!(tokio::time::timeout(DEADLINE, waiting).await.expect("a place is free again").unwrap());
    shutdown.cancel();
}

/// What is carried may take as long as it likes, and be as silent.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_with_an_open_answer_is_not_idle() {
    let world = World::start().await;
    let short = Duration::from_millis(300);
    let limits = Limits { head: short, idle: short, ..Limits::default() };
    let (address, pki, _shutdown) = impatient(&world, limits).await;
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(dial(address, &pki, b"h2").await))
            .await
            .unwrap();
    tokio::spawn(connection);
    let request = http::Request::builder()
        .uri(format!("https://proxy{PODS}?watch=1"))
        .header("authorization", format!("Bearer {}", world.token))
        .body(http_body_util::Empty::<bytes::Bytes>::new())
        .unwrap();
    let mut body = sender.send_request(request).await.unwrap().into_body();
    let until = std::time::Instant::now() + 5 * short;
    while std::time::Instant::now() < until {
        let frame = tokio::time::timeout(DEADLINE, body.frame()).await.expect("more events");
        frame.expect("the watch goes on").unwrap();
    }
}

/// Nobody can keep the service from going down by holding all places.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_listener_still_goes_down() {
    let world = World::start().await;
    let (address, pki, shutdown) = impatient(&world, Limits { connections: 1, ..Limits::default() }).await;
    let _held = dial(address, &pki, b"http/1.1").await;
    shutdown.cancel();
    let deadline = std::time::Instant::now() + DEADLINE;
    while TcpStream::connect(address).await.is_ok() {
        assert!(std::time::Instant::now() < deadline, "it goes on listening");
        tokio::task::yield_now().await;
    }
}
