//! Connections to a cluster are used by one request after another, of different people: no answer may reach another one,
//! and nothing of a body may be read as a request.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bailiwick::clock::Clock;
use bailiwick::proxy::ProxySettings;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::harness::{Answer, DEADLINE, Pki, World};

const SHOP: &str = "/k8s/clusters/demo/api/v1/namespaces/shop-web";
const BILLING: &str = "/k8s/clusters/demo/api/v1/namespaces/billing-api";

/// First lines of requests, with the number of their connection.
pub type Lines = Arc<Mutex<Vec<(usize, String)>>>;

/// A cluster that speaks HTTP/1.1 by hand, and wrongly where a name asks for it.
pub async fn careless_cluster(pki: &Pki, lines: Lines) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut config = pki.server();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    tokio::spawn(async move {
        for number in 0.. {
            let Ok((tcp, _)) = listener.accept().await else { return };
            // What is written is there at once: only then can what follows be a test of who looks.
            tcp.set_nodelay(true).unwrap();
            let (acceptor, lines) = (acceptor.clone(), lines.clone());
            tokio::spawn(async move {
                let Ok(tls) = acceptor.accept(tcp).await else { return };
                converse(tls, number, &lines).await;
            });
        }
    });
    address
}

async fn converse(mut tls: TlsStream<TcpStream>, number: usize, lines: &Lines) {
    let mut pending = vec![];
    loop {
        let head_ends = loop {
            if let Some(at) = pending.windows(4).position(|w| w == b"\r\n\r\n") {
                break at + 4;
            }
            let mut buffer = [0; 4096];
            match tls.read(&mut buffer).await {
                Ok(n @ 1..) => pending.extend_from_slice(&buffer[..n]),
                _ => return,
            }
        };
        let rest = pending.split_off(head_ends);
        let head = String::from_utf8(std::mem::replace(&mut pending, rest)).unwrap();
        let line = head.lines().next().unwrap().to_owned();
        let target = line.split(' ').nth(1).unwrap_or_default().to_owned();
        lines.lock().push((number, line));
        let own = format!("own:{target}");
        let good = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{own}", own.len());
        let poison = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison";
        let answer = match target.rsplit('/').next().unwrap_or_default() {
            "one-too-many" => format!("{good}{poison}"),
            "204-with-body" => format!("HTTP/1.1 204 No Content\r\n\r\n{poison}"),
            "304-with-body" => format!("HTTP/1.1 304 Not Modified\r\nContent-Length: {}\r\n\r\n{poison}", poison.len()),
            "longer-than-told" => format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok{poison}"),
            "says-close" => "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok".to_owned(),
            "trailers" => "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: set-cookie\r\n\r\n\
                 2\r\nok\r\n0\r\nSet-Cookie: a=b\r\n\r\n"
                .to_owned(),
            "two-lengths" => {
                format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 44\r\n\r\nok{poison}")
            }
            "length-and-chunks" => format!(
                "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n{poison}"
            ),
            "switches-unasked" => {
                format!("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n{poison}")
            }
            "early" => good,
            "shorter-than-told" => {
                let _ = tls.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nstump").await;
                let _ = tls.shutdown().await;
                return;
            }
            "cut-small" | "cut-chunk" | "cut-without-length" => {
                let cut = match target.rsplit('/').next().unwrap_or_default() {
                    "cut-small" => "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nstump",
                    "cut-chunk" => "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nstump\r\n",
                    _ => "HTTP/1.1 200 OK\r\n\r\nstump",
                };
                let _ = tls.write_all(cut.as_bytes()).await;
                let _ = tls.flush().await;
                // Without a word: TLS does not say that it ends.
                return;
            }
            "ends-with-connection" => {
                let _ = tls.write_all(b"HTTP/1.1 200 OK\r\n\r\nwhole").await;
                let _ = tls.shutdown().await;
                return;
            }
            "late-junk" | "late-answer" => {
                let late = if target.ends_with("junk") { "poison" } else { poison };
                if tls.write_all(good.as_bytes()).await.is_err() {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
                let _ = tls.write_all(late.as_bytes()).await;
                let _ = tls.flush().await;
                lines.lock().push((number, format!("late {target}")));
                continue;
            }
            "hints-before" => "HTTP/1.1 103 Early Hints\r\nSet-Cookie: a=b\r\n\r\n".repeat(20) + good.as_str(),
            "body-by-drops" => {
                let _ = tls.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n").await;
                while tls.write_all(b".").await.is_ok() && tls.flush().await.is_ok() {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                lines.lock().push((number, format!("left {target}")));
                return;
            }
            "heads-without-end" => {
                while tls.write_all("HTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\n".repeat(50).as_bytes()).await.is_ok()
                {
                }
                return;
            }
            _ => good,
        };
        if tls.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

async fn start() -> (World, String, Lines) {
    let (pki, lines) = (Pki::new(), Lines::default());
    let cluster = careless_cluster(&pki, lines.clone()).await;
    let settings = ProxySettings { response_timeout: Duration::from_secs(2), ..ProxySettings::default() };
    let world = World::start_before(settings, Arc::new(Clock::system()), pki, cluster).await;
    let joe = world.issue("joe", Default::default()).await;
    (world, joe, lines)
}

/// joe's next requests are answered by what was said to them.
async fn next_ones_are_sound(world: &World, joe: &str, after: &str) {
    for n in 0..3 {
        let answer = world.request_as(joe, "GET", &format!("{BILLING}/pods/{n}"), "").await;
        assert_eq!(answer.code, 200, "after {after}: {}", answer.body);
        assert_eq!(answer.body, format!("own:/api/v1/namespaces/billing-api/pods/{n}"), "after {after}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_cluster_says_too_much_reaches_nobody() {
    let (world, joe, _) = start().await;
    for (name, code) in [
        ("sound", 200),
        ("one-too-many", 200),
        ("204-with-body", 204),
        ("304-with-body", 304),
        ("longer-than-told", 200),
        ("says-close", 200),
        ("trailers", 200),
        ("two-lengths", 502),
        ("switches-unasked", 502),
        ("heads-without-end", 504),
    ] {
        let answer = world.request("GET", &format!("{SHOP}/pods/{name}"), "").await;
        assert_eq!(answer.code, code, "{name}: {}", answer.body);
        assert!(!answer.body.contains("poison"), "{name}: {}", answer.body);
        assert!(!format!("{}{}", answer.head, answer.body).to_lowercase().contains("set-cookie"), "{name}");
        next_ones_are_sound(&world, &joe, name).await;
    }
    // Two ways to say where it ends: one of them is believed, and nothing goes on after it.
    let answer = world.request("GET", &format!("{SHOP}/pods/length-and-chunks"), "").await;
    assert!(matches!(answer.code, 200 | 502) && !answer.body.contains("poison"), "{}", answer.body);
    next_ones_are_sound(&world, &joe, "length-and-chunks").await;
    // A part is never taken for the whole.
    let answer = world.request("GET", &format!("{SHOP}/pods/shorter-than-told"), "").await;
    assert_eq!(answer.code, 502, "{}", answer.body);
    next_ones_are_sound(&world, &joe, "shorter-than-told").await;
}

/// The cluster answers before it has the body; the rest of the body looks like a request.
#[tokio::test(flavor = "multi_thread")]
async fn a_body_is_never_read_as_a_request() {
    let (world, joe, lines) = start().await;
    let smuggled = "GET /api/v1/namespaces/billing-api/secrets HTTP/1.1\r\nHost: x\r\n\r\n";
    for sent in [0, 1, smuggled.len() / 2, smuggled.len()] {
        let mut stream = world.connect().await;
        let head = format!(
            "POST {SHOP}/configmaps/early HTTP/1.1\r\nHost: p\r\nAuthorization: Bearer {}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            world.token,
            smuggled.len() + 1
        );
        // POST to a name is refused by a real API server; what counts here is the way of the bytes.
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(&smuggled.as_bytes()[..sent]).await.unwrap();
        let mut answer = vec![0; 4096];
        let read = tokio::time::timeout(DEADLINE, stream.read(&mut answer)).await.expect("an answer in time");
        let answer = Answer::read(&String::from_utf8_lossy(&answer[..read.unwrap_or(0)]));
        assert!(answer.code > 0, "{sent}");
        next_ones_are_sound(&world, &joe, &format!("{sent} bytes of a body")).await;
        let _ = stream.write_all(&smuggled.as_bytes()[sent..]).await;
        drop(stream);
        next_ones_are_sound(&world, &joe, &format!("{sent} bytes of a body and its end")).await;
        let seen = std::mem::take(&mut *lines.lock());
        let early: Vec<usize> = seen.iter().filter(|(_, line)| line.contains("early")).map(|(n, _)| *n).collect();
        // The cluster here reads what follows a head as the next one, the body too: on such a connection all is lost.
        for (number, line) in seen.iter().filter(|(_, line)| line.contains("/pods/")) {
            assert!(!early.contains(number), "{line} came over a connection with an unfinished body");
        }
        assert!(seen.iter().any(|(_, line)| line.contains("/pods/")));
    }
}

/// A client that goes away takes its connection along; nobody gets what was meant for it.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_to_somebody_who_left_reaches_nobody() {
    let (world, joe, _) = start().await;
    for n in 0..30 {
        let mut stream = world.connect().await;
        let head =
            format!("GET {SHOP}/pods/left-{n} HTTP/1.1\r\nHost: p\r\nAuthorization: Bearer {}\r\n\r\n", world.token);
        stream.write_all(head.as_bytes()).await.unwrap();
        // Sometimes before the answer and sometimes after it.
        for _ in 0..n {
            tokio::task::yield_now().await;
        }
        drop(stream);
        next_ones_are_sound(&world, &joe, "somebody who left").await;
    }
}

/// A part is never taken for the whole, however the connection ends.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_cut_is_no_answer() {
    let (world, joe, _) = start().await;
    for name in ["cut-small", "cut-chunk", "cut-without-length"] {
        for _ in 0..5 {
            let answer = world.request("GET", &format!("{SHOP}/pods/{name}"), "").await;
            assert_eq!(answer.code, 502, "{name}: {}", answer.body);
            assert!(answer.body.contains("\"kind\":\"Status\"") && !answer.body.contains("stump"), "{}", answer.body);
            next_ones_are_sound(&world, &joe, name).await;
        }
    }
    let answer = world.request("GET", &format!("{SHOP}/pods/ends-with-connection"), "").await;
    assert_eq!((answer.code, answer.body.as_str()), (200, "whole"));
    next_ones_are_sound(&world, &joe, "ends-with-connection").await;
}

/// What comes after an answer, on a connection that nobody uses, is the answer to nobody's request.
#[tokio::test(flavor = "multi_thread")]
async fn what_comes_late_reaches_nobody() {
    let (world, joe, lines) = start().await;
    for round in 0..40 {
        for name in ["late-junk", "late-answer"] {
            let answer = world.request("GET", &format!("{SHOP}/pods/{name}"), "").await;
            assert_eq!((answer.code, answer.body.contains("poison")), (200, false), "{}", answer.body);
            let came = async {
                while !lines.lock().iter().any(|(_, line)| line.starts_with("late")) {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            tokio::time::timeout(DEADLINE, came).await.expect("it never came");
            lines.lock().clear();
            next_ones_are_sound(&world, &joe, &format!("{name} {round}")).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_has_no_body_and_hints_are_the_clusters_own() {
    let (world, joe, _) = start().await;
    for name in ["sound", "longer-than-told", "one-too-many", "hints-before"] {
        // To a HEAD every body is one too many.
        let answer = world.request("HEAD", &format!("{SHOP}/pods/{name}"), "").await;
        assert_eq!((answer.code, answer.body.as_str()), (200, ""), "{name}");
        next_ones_are_sound(&world, &joe, name).await;
    }
    let answer = world.request("GET", &format!("{SHOP}/pods/hints-before"), "").await;
    assert_eq!(answer.code, 200, "{}", answer.body);
    assert!(!answer.head.contains("set-cookie") && !answer.head.contains(" 103 "), "{}", answer.head);
    next_ones_are_sound(&world, &joe, "hints-before").await;
}

/// A slow body is passed on as it comes, for as long as somebody reads it, and goes with them.
#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_comes_by_drops_ends_with_its_reader() {
    let (world, joe, lines) = start().await;
    let mut stream = world.connect().await;
    let head =
        format!("GET {SHOP}/pods/body-by-drops HTTP/1.1\r\nHost: p\r\nAuthorization: Bearer {}\r\n\r\n", world.token);
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut got = String::new();
    while got.matches('.').count() < 20 {
        let mut part = [0; 4096];
        let read = tokio::time::timeout(DEADLINE, stream.read(&mut part)).await.expect("it stopped").unwrap();
        assert!(read > 0, "{got}");
        got += &String::from_utf8_lossy(&part[..read]);
    }
    assert!(got.starts_with("HTTP/1.1 200"), "{got}");
    next_ones_are_sound(&world, &joe, "a body that is still under way").await;
    drop(stream);
    let left = async {
        while !lines.lock().iter().any(|(_, line)| line.starts_with("left")) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(DEADLINE, left).await.expect("the cluster still talks to somebody");
}
