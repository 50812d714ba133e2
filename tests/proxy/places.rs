//! Places of an account: however a request ends, its place comes back; and none is had twice.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bailiwick::clock::Clock;
use bailiwick::proxy::ProxySettings;
use bailiwick::store::Kind;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::desync::{Lines, careless_cluster};
use super::harness::{DEADLINE, Pki, World};

const NS: &str = "/k8s/clusters/demo/api/v1/namespaces/shop-web";
const PLACES: usize = 3;
/// More than there are places: a single one that leaked each time would be missed at the end.
const ROUNDS: usize = PLACES + 2;

fn settings() -> ProxySettings {
    let response_timeout = Duration::from_millis(300);
    ProxySettings { response_timeout, max_requests_per_user: PLACES, ..ProxySettings::default() }
}

fn head(world: &World, request: &str, more: &str) -> String {
    let (method, target) = request.split_once(' ').unwrap();
    format!("{method} {target} HTTP/1.1\r\nHost: p\r\nAuthorization: Bearer {}\r\n{more}\r\n", world.token)
}

/// Begins a request and says how its answer begins; empty where none comes so soon.
async fn begin(world: &World, raw: &str, wait: bool) -> (TlsStream<TcpStream>, String) {
    let mut stream = world.connect().await;
    stream.write_all(raw.as_bytes()).await.unwrap();
    let mut part = [0; 4096];
    let read = match wait {
        true => tokio::time::timeout(DEADLINE, stream.read(&mut part)).await.expect("an answer in time").unwrap_or(0),
        false => 0,
    };
    (stream, String::from_utf8_lossy(&part[..read]).into_owned())
}

/// All places can be had, and no more.
async fn all_are_there(world: &World, slow: &str, after: &str) {
    let deadline = Instant::now() + DEADLINE;
    let mut held = vec![];
    while held.len() < PLACES {
        let (stream, answer) = begin(world, &head(world, &format!("GET {slow}"), ""), true).await;
        if answer.starts_with("HTTP/1.1 200") {
            held.push(stream);
        } else {
            // Those who left are noticed in a moment; and on a busy machine the short deadline here may pass.
            let soon = ["HTTP/1.1 429", "HTTP/1.1 504"].iter().any(|code| answer.starts_with(code));
            assert!(soon, "after {after}: {answer}");
            assert!(Instant::now() < deadline, "after {after}: only {} places came back", held.len());
        }
    }
    let (_, answer) = begin(world, &head(world, &format!("GET {slow}"), ""), true).await;
    assert!(answer.starts_with("HTTP/1.1 429"), "after {after}: one too many: {answer}");
    assert!(answer.to_ascii_lowercase().contains("retry-after: 1"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_end_of_a_request_gives_its_place_back() {
    let world = World::start_with(settings()).await;
    let slow = format!("{NS}/configmaps/drips");
    let review = "/k8s/clusters/demo/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let asked = |attributes: &str| {
        format!(
            r#"{{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{{"resourceAttributes":{attributes}}}}}"#
        )
    };
    let own = asked(r#"{"namespace":"shop-web","verb":"get","resource":"pods"}"#);
    let foreign = asked(r#"{"namespace":"billing-api","verb":"get","resource":"pods"}"#);
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\n";
    for (what, request, more, body, waits) in [
        ("an answer", format!("GET {NS}/pods"), "", "", true),
        ("a client that left before the answer", format!("GET {NS}/pods/hangs"), "", "", false),
        ("a client that left amid the answer", format!("GET {slow}"), "", "", true),
        ("a client that left a full pipe", format!("GET {NS}/configmaps/pours"), "", "", true),
        ("a client that left amid its body", format!("POST {NS}/configmaps"), "Content-Length: 99\r\n", "{", false),
        ("a cluster that does not answer", format!("GET {NS}/pods/hangs"), "", "", true),
        ("a redirect", format!("GET {NS}/pods/status-302"), "", "", true),
        ("a mutation", format!("POST {NS}/configmaps"), "Content-Length: 2\r\n", "{}", true),
        ("a refusal", "GET /k8s/clusters/demo/api/v1/namespaces/billing-api/pods".to_owned(), "", "", true),
        ("no such cluster", "GET /k8s/clusters/none/api/v1/namespaces/shop-web/pods".to_owned(), "", "", true),
        ("acting as somebody", format!("GET {NS}/pods"), "Impersonate-User: joe\r\n", "", true),
        ("a strange upgrade", format!("GET {NS}/configmaps"), upgrade, "", true),
        ("a session", format!("GET {NS}/pods/p/exec?command=sh"), upgrade, "", true),
        ("a watch", format!("GET {NS}/pods?watch=1"), "", "", true),
        ("a review that is none", format!("POST {review}"), "Content-Length: 3\r\n", "{{{", true),
        ("a review half sent", format!("POST {review}"), "Content-Length: 99\r\n", "{", false),
        ("a review of one's own", format!("POST {review}"), "", own.as_str(), true),
        ("a review of others", format!("POST {review}"), "", foreign.as_str(), true),
    ] {
        let json = "Content-Type: application/json\r\n";
        let length = match body.len() {
            length @ 4.. => format!("Content-Length: {length}\r\n"),
            _ => String::new(),
        };
        let raw = head(&world, &request, &format!("{more}{length}{json}")) + body;
        for _ in 0..ROUNDS {
            let (stream, answer) = begin(&world, &raw, waits).await;
            assert!(!waits || answer.starts_with("HTTP/1.1 "), "{what}: {answer:?}");
            drop(stream);
        }
        all_are_there(&world, &slow, what).await;
    }
    // A right that ends takes its requests along, and their places.
    for _ in 0..ROUNDS {
        let mut held = vec![];
        for _ in 0..PLACES {
            held.push(begin(&world, &head(&world, &format!("GET {slow}"), ""), false).await.0);
        }
        world.change(Kind::Grant, "jane-shop", |grant| grant["spec"]["namespaces"] = json!(["shop-data"])).await;
        world.change(Kind::Grant, "jane-shop", |grant| grant["spec"]["namespaces"] = json!([])).await;
    }
    all_are_there(&world, &slow, "a right that ended").await;
    // No place is kept by what may not begin because it cannot be recorded.
    world.close_audit();
    for _ in 0..ROUNDS {
        let raw = head(&world, &format!("POST {NS}/configmaps"), "Content-Length: 2\r\n") + "{}";
        let (_, answer) = begin(&world, &raw, true).await;
        assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    }
    all_are_there(&world, &slow, "an audit log that cannot be written").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_breaks_off_keeps_no_place() {
    let (pki, lines) = (Pki::new(), Lines::default());
    let cluster = careless_cluster(&pki, lines).await;
    let world = World::start_before(settings(), Arc::new(Clock::system()), pki, cluster).await;
    for name in ["cut-small", "cut-chunk", "shorter-than-told", "two-lengths", "switches-unasked", "heads-without-end"]
    {
        for _ in 0..ROUNDS {
            let (_, answer) = begin(&world, &head(&world, &format!("GET {NS}/pods/{name}"), ""), true).await;
            assert!(answer.starts_with("HTTP/1.1 50"), "{name}: {answer}");
        }
        all_are_there(&world, &format!("{NS}/pods/body-by-drops"), name).await;
    }
}
