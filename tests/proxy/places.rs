//! Places in budgets: however a request ends, its places come back; and none is had twice.

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

pub const NS: &str = "/k8s/clusters/demo/api/v1/namespaces/shop-web";
pub const PLACES: usize = 3;
/// More than there are places: a single one that leaked each time would be missed at the end.
const ROUNDS: usize = PLACES + 2;

/// Each budget in turn such that one account has so many places in it, of requests and of streams.
pub fn each_budget() -> Vec<(&'static str, ProxySettings)> {
    let given = ProxySettings { response_timeout: Duration::from_millis(500), ..ProxySettings::default() };
    // Of what is shared, who wants it all gets half.
    let shared = 2 * PLACES;
    vec![
        ("token", ProxySettings { max_requests_per_token: PLACES, max_streams_per_token: PLACES, ..given }),
        ("user", ProxySettings { max_requests_per_user: PLACES, max_streams_per_user: PLACES, ..given }),
        ("project-share", ProxySettings { max_requests_per_project: shared, max_streams_per_project: shared, ..given }),
        ("cluster-share", ProxySettings { max_requests_per_cluster: shared, max_streams_per_cluster: shared, ..given }),
    ]
}

/// A request of jane's.
fn head(world: &World, request: &str, more: &str) -> String {
    head_as(&world.token, request, more)
}

pub fn head_as(token: &str, request: &str, more: &str) -> String {
    let (method, target) = request.split_once(' ').unwrap();
    format!("{method} {target} HTTP/1.1\r\nHost: p\r\nAuthorization: Bearer {token}\r\n{more}\r\n")
}

/// Begins a request and says how its answer begins; empty where none comes so soon.
pub async fn begin(world: &World, raw: &str, wait: bool) -> (TlsStream<TcpStream>, String) {
    let mut stream = world.connect().await;
    stream.write_all(raw.as_bytes()).await.unwrap();
    let mut part = [0; 4096];
    let read = match wait {
        true => tokio::time::timeout(DEADLINE, stream.read(&mut part)).await.expect("an answer in time").unwrap_or(0),
        false => 0,
    };
    (stream, String::from_utf8_lossy(&part[..read]).into_owned())
}

/// All places can be had, and no more. `slow` is a request that goes on.
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
    assert!(answer.to_ascii_lowercase().contains("\r\nretry-after: 1"), "{answer}");
}

/// In each budget.
#[tokio::test(flavor = "multi_thread")]
async fn every_end_of_a_request_gives_its_place_back() {
    let each =
        each_budget().into_iter().map(|(budget, settings)| tokio::spawn(every_end_of_a_request(budget, settings)));
    for done in futures::future::join_all(each).await {
        done.unwrap();
    }
}

async fn every_end_of_a_request(budget: &str, settings: ProxySettings) {
    let world = World::start_with(settings).await;
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
        all_are_there(&world, &slow, &format!("{what}, {budget}")).await;
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

/// In each budget.
#[tokio::test(flavor = "multi_thread")]
async fn every_end_of_a_stream_gives_its_place_back() {
    let each =
        each_budget().into_iter().map(|(budget, settings)| tokio::spawn(every_end_of_a_stream(budget, settings)));
    for done in futures::future::join_all(each).await {
        done.unwrap();
    }
}

async fn every_end_of_a_stream(budget: &str, settings: ProxySettings) {
    let world = World::start_with(settings).await;
    let watch = format!("{NS}/pods?watch=1");
    let all = "/k8s/clusters/demo/api/v1/pods?watch=1";
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\n";
    for (what, request, more, waits) in [
        ("a client that left", format!("GET {watch}"), "", true),
        ("a client that left at once", format!("GET {watch}"), "", false),
        ("a client that left in silence", format!("GET {watch}&labelSelector=quiet"), "", false),
        ("a log", format!("GET {NS}/pods/p/log?follow=1"), "", true),
        ("a log that there is not", format!("GET {NS}/pods/status-404/log?follow=1"), "", true),
        ("a redirect", format!("GET {NS}/pods/status-302/log?follow=1"), "", true),
        ("a cluster that does not answer", format!("GET {watch}&labelSelector=hangs"), "", true),
        ("a session", format!("GET {NS}/pods/p/exec?command=sh"), upgrade, true),
        ("a session that is refused", format!("GET {NS}/pods/status-403/exec?command=sh"), upgrade, true),
        ("a refusal", "GET /k8s/clusters/demo/api/v1/namespaces/billing-api/pods?watch=1".to_owned(), "", true),
        ("no such cluster", "GET /k8s/clusters/none/api/v1/namespaces/shop-web/pods?watch=1".to_owned(), "", true),
        ("a strange upgrade", format!("GET {NS}/configmaps"), upgrade, true),
        ("a merged watch", format!("GET {all}&labelSelector=quiet"), "", true),
        ("a merged watch that cannot be read", format!("GET {all}"), "", true),
        ("a merged watch that does not begin", format!("GET {all}&labelSelector=hangs"), "", true),
        ("a merged watch from the past", format!("GET {all}&resourceVersion=5"), "", true),
        ("a merged watch that is none", format!("GET {all}&resourceVersionMatch=Exact"), "", true),
        (
            "one's namespaces",
            "GET /k8s/clusters/demo/api/v1/namespaces?watch=1&labelSelector=quiet".to_owned(),
            "",
            true,
        ),
    ] {
        let raw = head(&world, &request, more);
        for _ in 0..ROUNDS {
            let (stream, answer) = begin(&world, &raw, waits).await;
            assert!(!waits || answer.starts_with("HTTP/1.1 "), "{what}: {answer:?}");
            drop(stream);
        }
        all_are_there(&world, &watch, &format!("{what}, {budget}")).await;
    }
    for _ in 0..ROUNDS {
        let mut held = vec![];
        for _ in 0..PLACES {
            held.push(begin(&world, &head(&world, &format!("GET {watch}"), ""), false).await.0);
        }
        world.change(Kind::Grant, "jane-shop", |grant| grant["spec"]["namespaces"] = json!(["shop-data"])).await;
        world.change(Kind::Grant, "jane-shop", |grant| grant["spec"]["namespaces"] = json!([])).await;
    }
    all_are_there(&world, &watch, "a right that ended").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_breaks_off_keeps_no_place() {
    let each = each_budget().into_iter().map(|(_, settings)| tokio::spawn(a_cluster_that_breaks_off(settings)));
    for done in futures::future::join_all(each).await {
        done.unwrap();
    }
}

async fn a_cluster_that_breaks_off(settings: ProxySettings) {
    let (pki, lines) = (Pki::new(), Lines::default());
    let cluster = careless_cluster(&pki, lines).await;
    let world = World::start_before(settings, Arc::new(Clock::system()), pki, cluster).await;
    for name in ["cut-small", "cut-chunk", "shorter-than-told", "two-lengths", "switches-unasked", "heads-without-end"]
    {
        for _ in 0..ROUNDS {
            let (_, answer) = begin(&world, &head(&world, &format!("GET {NS}/pods/{name}"), ""), true).await;
            assert!(answer.starts_with("HTTP/1.1 50"), "{name}: {answer}");
        }
        all_are_there(&world, &format!("{NS}/pods/body-by-drops"), name).await;
    }
}
