//! Budgets: each refuses beyond it and says which it is, there is no way round it, and nobody uses up another's share.

use std::time::{Duration, Instant};

use bailiwick::proxy::ProxySettings;
use bailiwick::records::TokenScopes;
use bailiwick::store::Kind;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::json;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::harness::{Answer, BILLING_UID, DEADLINE, PROJECT_UID, World};
use super::places::{NS, PLACES, begin, each_budget, head_as};

const BILLING: &str = "/k8s/clusters/demo/api/v1/namespaces/billing-api";
const CLUSTER: &str = "/k8s/clusters/demo";

type Held = Vec<TlsStream<TcpStream>>;

fn settings() -> ProxySettings {
    ProxySettings { response_timeout: DEADLINE, ..ProxySettings::default() }
}

/// Begins a GET that goes on, if it is let.
async fn hold(world: &World, token: &str, target: &str) -> Result<TlsStream<TcpStream>, Answer> {
    let raw = head_as(token, &format!("GET {target}"), "Connection: close\r\n");
    let (mut stream, mut answer) = begin(world, &raw, true).await;
    if answer.starts_with("HTTP/1.1 200") {
        return Ok(stream);
    }
    let mut rest = vec![];
    let _ = tokio::time::timeout(DEADLINE, stream.read_to_end(&mut rest)).await.expect("all of it in time");
    answer.push_str(&String::from_utf8_lossy(&rest));
    Err(Answer::read(&answer))
}

/// As many as one is let, and the refusal of the next.
async fn hold_all(world: &World, token: &str, target: &str) -> (Held, Answer) {
    let mut held = vec![];
    loop {
        match hold(world, token, target).await {
            Ok(stream) => held.push(stream),
            Err(answer) => return (held, answer),
        }
        assert!(held.len() < 100, "there is no bound");
    }
}

async fn until(what: &str, mut done: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !done().await {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn is_over(answer: &Answer, named: &str, setting: &str) {
    let Answer { code, head, body } = answer;
    assert_eq!(*code, 429, "{body}");
    assert!(body.contains("\"reason\":\"TooManyRequests\"") && head.contains("\r\nretry-after: "), "{head}\r\n{body}");
    assert!(body.contains(named), "{named}: {body}");
    assert!(body.contains("an administrator of the platform") && body.contains(setting), "{setting}: {body}");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_budget_permits_up_to_its_limit_and_names_itself_beyond() {
    let (slow, watch) = (format!("{NS}/configmaps/drips"), format!("{NS}/pods?watch=1"));
    for (budget, settings) in each_budget() {
        for (kind, target) in [("requests", &slow), ("streams", &watch)] {
            let world = World::start_with(settings).await;
            let counted = format!("bailiwick_budget_refusals_total{{budget=\"{budget}\",kind=\"{kind}\"}}");
            let taken = format!("bailiwick_cluster_in_flight{{cluster=\"demo\",kind=\"{kind}\"}}");
            let (held, answer) = hold_all(&world, &world.token, target).await;
            assert_eq!(held.len(), PLACES, "{budget}: {kind}");
            let (named, setting) = match budget {
                "token" => (format!("this token has {PLACES} "), "token"),
                "user" => (format!("you have {PLACES} "), "user"),
                "project-share" => (format!("your share of the {} ", 2 * PLACES), "project"),
                _ => ("which is your share of it".to_owned(), "cluster"),
            };
            is_over(&answer, &named, &format!("proxy.max_{kind}_per_{setting}"));
            assert_eq!(world.metric(&counted), Some(1), "{budget}: {kind}");
            assert_eq!(world.metric(&taken), Some(PLACES as u64), "{budget}: {kind}");
            // Requests and streams have nothing to do with each other.
            let other = if kind == "streams" { &slow } else { &watch };
            assert!(hold(&world, &world.token, other).await.is_ok());
            drop(held);
            until("the places come back", async || world.metric(&taken) == Some(0)).await;
        }
    }
}

/// Whatever a client asks for, by whichever credential, protocol or path: it is in the same budget.
#[tokio::test(flavor = "multi_thread")]
async fn there_is_no_way_round_a_budget() {
    let slow = format!("{NS}/configmaps/drips");
    let narrowed = NS.replace("clusters/demo", "clusters/demo/projects/shop");
    for (budget, settings) in each_budget() {
        let world = World::start_with(settings).await;
        let other = world.issue("jane", TokenScopes { read_only: true, ..TokenScopes::default() }).await;
        let joe = world.issue("joe", TokenScopes::default()).await;
        let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {"namespace": "shop-web", "verb": "get", "resource": "pods"}}});
        let review = review.to_string();
        let in_project = [
            format!("GET {NS}/pods"),
            format!("GET {NS}/pods/p/log"),
            format!("GET {narrowed}/pods"),
            format!("POST {NS}/configmaps?dryRun=All"),
            format!("DELETE {NS}/pods/p?dryRun=All"),
            format!("PATCH {NS}/pods/p"),
            format!("GET {CLUSTER}/api/v1/configmaps?labelSelector=lists"),
            format!("GET {CLUSTER}/api/v1/configmaps?labelSelector=lists&limit=1"),
        ];
        let elsewhere = [
            format!("GET {CLUSTER}/version"),
            format!("GET {CLUSTER}/api/v1/namespaces"),
            format!("POST {CLUSTER}/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"),
        ];
        let asks = async |token: &str, request: &str| {
            let (method, target) = request.split_once(' ').unwrap();
            let (kind, body) = match method {
                "PATCH" => ("application/merge-patch+json", "{}"),
                _ if target.ends_with("reviews") => ("application/json", review.as_str()),
                _ => ("application/json", "{}"),
            };
            let body = if method == "GET" { "" } else { body };
            let more = format!("Connection: close\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n", body.len());
            Answer::read(&world.raw(head_as(token, &format!("{method} {target}"), &more) + body).await)
        };
        let (mut held, _) = hold_all(&world, &world.token, &slow).await;
        world.take_seen();
        // A token of its own has room in the budget of a token.
        let tokens = if budget == "token" { vec![&world.token] } else { vec![&world.token, &other] };
        let everywhere = if budget == "project-share" { &[][..] } else { &elsewhere[..] };
        for token in tokens {
            for request in in_project.iter().chain(everywhere) {
                if *token == other && !request.starts_with("GET") {
                    continue;
                }
                let answer = asks(token, request).await;
                assert_eq!(answer.code, 429, "{budget}: {request}: {}", answer.body);
            }
            assert_eq!(world.code_over_h2(token, &format!("{NS}/pods")).await, 429, "{budget}: h2");
            // As browsers send it, without asking for a WebSocket then.
            let protocol = format!("base64url.bearer.authorization.k8s.io.{}", URL_SAFE_NO_PAD.encode(token));
            let raw = format!(
                "GET {NS}/pods HTTP/1.1\r\nHost: p\r\nConnection: close\r\nSec-WebSocket-Protocol: {protocol}\r\n\r\n"
            );
            let answer = Answer::read(&world.raw(raw).await);
            assert_eq!(answer.code, 429, "{budget}: subprotocol: {}", answer.body);
        }
        assert!(world.take_seen().is_empty(), "{budget}: nothing of it reached the cluster");
        let begun = world.audit_text().await;
        assert!(!begun.contains("\"stage\":\"intent\""), "{budget}: nothing was begun");
        assert!(begun.contains("too-many-requests"), "{budget}: and that is recorded");
        assert_eq!(asks(&joe, &format!("GET {BILLING}/pods")).await.code, 200, "{budget}: others go on");
        // The pair: with one place free, each is let.
        held.pop();
        until("a place comes back", async || asks(&world.token, &in_project[0]).await.code == 200).await;
        for request in in_project.iter().chain(&elsewhere) {
            let answer = asks(&world.token, request).await;
            assert!(answer.code != 429, "{budget}: {request}: {}", answer.body);
        }
        assert_eq!(world.code_over_h2(&world.token, &format!("{NS}/pods")).await, 200, "{budget}: h2");
    }
}

/// Streams, too: merged ones count as often as the cluster is watched.
#[tokio::test(flavor = "multi_thread")]
async fn there_is_no_way_round_a_budget_of_streams() {
    let watch = format!("{NS}/pods?watch=1");
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\n";
    for (budget, settings) in each_budget() {
        let world = World::start_with(settings).await;
        let other = world.issue("jane", TokenScopes::default()).await;
        let (mut held, _) = hold_all(&world, &world.token, &watch).await;
        let tokens = if budget == "token" { vec![&world.token] } else { vec![&world.token, &other] };
        for token in tokens {
            for (request, more) in [
                (format!("GET {NS}/pods?watch=true"), ""),
                (format!("GET {NS}/pods/p/log?follow=1"), ""),
                (format!("GET {NS}/pods/p/exec?command=sh"), upgrade),
                (format!("POST {NS}/pods/p/portforward"), upgrade),
                (format!("GET {NS}/pods?watch=1"), upgrade),
                (format!("GET {CLUSTER}/api/v1/pods?watch=1&labelSelector=quiet"), ""),
            ] {
                let (_, answer) = begin(&world, &head_as(token, &request, more), true).await;
                assert!(answer.starts_with("HTTP/1.1 429"), "{budget}: {request}: {answer}");
            }
            assert_eq!(world.code_over_h2(token, &watch).await, 429, "{budget}: h2");
        }
        // One place is not enough for a watch of two namespaces, and two are.
        held.pop();
        let taken = "bailiwick_cluster_in_flight{cluster=\"demo\",kind=\"streams\"}";
        until("a place comes back", async || world.metric(taken) == Some(PLACES as u64 - 1)).await;
        let wide = format!("{CLUSTER}/api/v1/pods?watch=1&labelSelector=quiet");
        let answer = hold(&world, &world.token, &wide).await.unwrap_err();
        assert!(answer.body.contains("this one would be 2 of them"), "{budget}: {}", answer.body);
        // So it is with a watch of the namespaces themselves, which is judged for each as long as it goes on.
        if matches!(budget, "token" | "user") {
            let answer = hold(&world, &world.token, &format!("{CLUSTER}/api/v1/namespaces?watch=1")).await;
            assert_eq!(answer.unwrap_err().code, 429, "{budget}");
        }
        held.pop();
        until("a place comes back", async || world.metric(taken) == Some(PLACES as u64 - 2)).await;
        let merged = hold(&world, &world.token, &wide).await.unwrap();
        assert_eq!(world.metric(taken), Some(PLACES as u64), "{budget}");
        drop(merged);
        until("its places come back", async || world.metric(taken) == Some(PLACES as u64 - 2)).await;
    }
}

/// Somebody hostile in a project takes what they get, with as many tokens as they like.
#[tokio::test(flavor = "multi_thread")]
async fn a_hostile_member_leaves_a_share_of_the_project_to_the_others() {
    for (target, of) in [(format!("{NS}/configmaps/drips"), "requests"), (format!("{NS}/pods?watch=1"), "streams")] {
        let given = ProxySettings { max_requests_per_project: 12, max_streams_per_project: 12, ..settings() };
        let world = World::start_with(given).await;
        let jill = world.join("jill", "shop", PROJECT_UID).await;
        let mut held = vec![];
        for _ in 0..4 {
            let token = world.issue("jane", TokenScopes::default()).await;
            held.extend(hold_all(&world, &token, &target).await.0);
        }
        assert_eq!(held.len(), 6, "{of}");
        let (of_jill, answer) = hold_all(&world, &jill, &target).await;
        assert_eq!(of_jill.len(), 3, "{of}: half of what is left");
        is_over(&answer, "your share of the 12 ", &format!("proxy.max_{of}_per_project"));
        // As places come and go, all get the same.
        held.truncate(3);
        let taken = format!("bailiwick_cluster_in_flight{{cluster=\"demo\",kind=\"{of}\"}}");
        until("places come back", async || world.metric(&taken) == Some(6)).await;
        held.extend(hold_all(&world, &world.token, &target).await.0);
        assert_eq!(held.len(), 5, "{of}");
    }
}

/// All members of a project together take what they get of a cluster.
#[tokio::test(flavor = "multi_thread")]
async fn a_hostile_project_leaves_a_share_of_the_cluster_to_the_others() {
    for (kind, of) in [("configmaps/drips", "requests"), ("pods?watch=1", "streams")] {
        let given = ProxySettings {
            max_requests_per_project: 20,
            max_streams_per_project: 20,
            max_requests_per_cluster: 20,
            max_streams_per_cluster: 20,
            ..settings()
        };
        let world = World::start_with(given).await;
        let (target, billing) = (format!("{NS}/{kind}"), format!("{BILLING}/{kind}"));
        let mut held = vec![];
        let mut last = None;
        for n in 0..6 {
            let token = world.join(&format!("hostile-{n}"), "shop", PROJECT_UID).await;
            let (more, answer) = hold_all(&world, &token, &target).await;
            held.extend(more);
            last = Some(answer);
        }
        assert_eq!(held.len(), 10, "{of}: half of it");
        is_over(&last.unwrap(), "project \\\"shop\\\" has 10 ", &format!("proxy.max_{of}_per_cluster"));
        let joe = world.issue("joe", TokenScopes::default()).await;
        let (of_joe, _) = hold_all(&world, &joe, &billing).await;
        assert_eq!(of_joe.len(), 5, "{of}: half of what is left");
        let answer = world.request_as(&joe, "GET", &format!("{CLUSTER}/version"), "").await;
        assert_eq!(answer.code, if of == "requests" { 429 } else { 200 }, "{}", answer.body);
        // Somebody else, without any project of it, is not the one who took it.
        let jill = world.join("jill", "billing", BILLING_UID).await;
        assert_eq!(world.request_as(&jill, "GET", &format!("{CLUSTER}/version"), "").await.code, 200);
    }
}

/// A bound of the project's own holds all of its members together.
#[tokio::test(flavor = "multi_thread")]
async fn a_project_has_a_bound_of_its_own() {
    let world = World::start_with(ProxySettings { max_requests_per_project: 2, ..settings() }).await;
    let slow = format!("{NS}/configmaps/drips");
    let _of_jane = hold(&world, &world.token, &slow).await.unwrap();
    let jill = world.join("jill", "shop", PROJECT_UID).await;
    let _of_jill = hold(&world, &jill, &slow).await.unwrap();
    let jack = world.join("jack", "shop", PROJECT_UID).await;
    let answer = hold(&world, &jack, &slow).await.unwrap_err();
    is_over(&answer, "project \\\"shop\\\" has 2 requests in flight", "proxy.max_requests_per_project");
    let joe = world.issue("joe", TokenScopes::default()).await;
    assert_eq!(world.request_as(&joe, "GET", &format!("{BILLING}/pods"), "").await.code, 200);
}

/// Who is in several projects takes of each what is asked there.
#[tokio::test(flavor = "multi_thread")]
async fn what_goes_across_namespaces_counts_in_each_project_its_own() {
    let given = ProxySettings { max_streams_per_project: 6, max_requests_per_project: 6, ..settings() };
    let world = World::start_with(given).await;
    world.join("jane", "billing", BILLING_UID).await;
    let taken = |kind: &str| world.metric(&format!("bailiwick_cluster_in_flight{{cluster=\"demo\",kind=\"{kind}\"}}"));
    // Two namespaces of shop, one of billing.
    let all = format!("{CLUSTER}/api/v1/pods?watch=1&labelSelector=quiet");
    let _merged = hold(&world, &world.token, &all).await.unwrap();
    assert_eq!(taken("streams"), Some(3));
    let (of_shop, answer) = hold_all(&world, &world.token, &format!("{NS}/pods?watch=1")).await;
    assert_eq!(of_shop.len(), 1);
    is_over(&answer, "you have 3 long-running responses open in project \\\"shop\\\"", "proxy.max_streams_per_project");
    let joe = world.issue("joe", TokenScopes::default()).await;
    let (of_joe, _) = hold_all(&world, &joe, &format!("{BILLING}/pods?watch=1")).await;
    assert_eq!(of_joe.len(), 3, "jane has one of six there");

    // A list reserves what it may ask at a time, and gives it back when all is there.
    let hanging = format!("GET {CLUSTER}/api/v1/configmaps?labelSelector=hangs");
    let (hangs, _) = begin(&world, &head_as(&world.token, &hanging, ""), false).await;
    until("the parts have their places", async || taken("requests") == Some(3)).await;
    drop(hangs);
    until("they come back", async || taken("requests") == Some(0)).await;
    let listed = world.request("GET", &format!("{CLUSTER}/api/v1/configmaps?labelSelector=lists"), "").await;
    assert_eq!((listed.code, taken("requests")), (200, Some(0)), "{}", listed.body);
}

/// A list needs no more than one place at a time; it is only sooner there with more.
#[tokio::test(flavor = "multi_thread")]
async fn a_list_across_namespaces_goes_on_with_one_place() {
    let one = |n| ProxySettings { max_requests_per_token: n, ..settings() };
    for given in [
        one(1),
        ProxySettings { max_requests_per_user: 1, ..settings() },
        ProxySettings { max_requests_per_project: 1, ..settings() },
        ProxySettings { max_requests_per_cluster: 1, ..settings() },
    ] {
        let world = World::start_with(given).await;
        let listed = world.request("GET", &format!("{CLUSTER}/api/v1/configmaps?labelSelector=lists"), "").await;
        assert_eq!(listed.code, 200, "{}", listed.body);
        assert_eq!(world.take_seen().len(), 2, "one for each namespace");
    }
}

/// One that is too wide for the service would not fit later either: it is no 429, which clients repeat.
#[tokio::test(flavor = "multi_thread")]
async fn the_width_of_a_request_is_bounded() {
    let all = format!("{CLUSTER}/api/v1/configmaps?labelSelector=lists");
    for (most, code) in [(2, 200), (1, 413)] {
        let world = World::start_with(ProxySettings { max_namespaces_per_request: most, ..settings() }).await;
        let answer = world.request("GET", &all, "").await;
        assert_eq!(answer.code, code, "{}", answer.body);
        assert_eq!(code == 413, answer.body.contains("proxy.max_namespaces_per_request"), "{}", answer.body);
    }
}

/// How busy others are is told to those only who have something there.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_budget_tells_strangers_nothing() {
    let given = ProxySettings { max_requests_per_project: 1, max_requests_per_cluster: 2, ..settings() };
    let world = World::start_with(given).await;
    let stranger = world.issue("nobody", TokenScopes::default()).await;
    let ask = async |target: &str| {
        let Answer { code, body, .. } = world.request_as(&stranger, "GET", target, "").await;
        (code, body)
    };
    for target in [format!("{NS}/pods"), format!("{CLUSTER}/version"), format!("{CLUSTER}/api/v1/pods")] {
        let idle = ask(&target).await;
        let busy = hold(&world, &world.token, &format!("{NS}/configmaps/drips")).await.unwrap();
        assert_eq!(ask(&target).await, idle);
        assert_eq!(idle.0, 403, "{}", idle.1);
        let taken = "bailiwick_cluster_in_flight{cluster=\"demo\",kind=\"requests\"}";
        drop(busy);
        until("the place comes back", async || world.metric(taken) == Some(0)).await;
    }
}

/// What ends with its right frees its places at once, for whoever is left.
#[tokio::test(flavor = "multi_thread")]
async fn a_suspended_account_holds_no_places() {
    let world = World::start_with(ProxySettings { max_streams_per_project: 6, ..settings() }).await;
    let jill = world.join("jill", "shop", PROJECT_UID).await;
    let watch = format!("{NS}/pods?watch=1");
    let (held, _) = hold_all(&world, &world.token, &watch).await;
    assert_eq!(held.len(), 3);
    world.delete(Kind::Grant, "jane-shop").await;
    let mut rest = vec![];
    for mut stream in held {
        let _ = tokio::time::timeout(DEADLINE, stream.read_to_end(&mut rest)).await.expect("it is cut");
    }
    let taken = "bailiwick_cluster_in_flight{cluster=\"demo\",kind=\"streams\"}";
    until("their places come back", async || world.metric(taken) == Some(0)).await;
    let (of_jill, _) = hold_all(&world, &jill, &watch).await;
    assert_eq!(of_jill.len(), 3, "as if nobody else were there");
}
