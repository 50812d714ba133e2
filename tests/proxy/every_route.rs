//! What is known to break proxies, on every route and over every protocol.

use bailiwick::records::TokenScopes;
use bailiwick::resources::token::Audience;

use super::harness::shop_member;
use super::matrix::{Door, Site, api_routes, cluster_routes, guarded_routes, public_routes};
use super::wire::{Client, PROTOCOLS, Protocol, Raw, Reply};

const AGENTS: [&str; 5] =
    ["kube-probe/1.36", "GoogleHC/1.0", "ELB-HealthChecker/2.0", "Prometheus/3.0", "HealthChecker"];

/// Prints how much was tried; whoever counts sees it with `--nocapture`.
pub fn tried(what: &str, requests: usize) {
    println!("{what}: {requests} requests");
}

pub fn nothing_reached(site: &Site, what: &str) {
    let seen = site.world.take_seen();
    assert!(seen.is_empty(), "{what}: {seen:?}");
}

/// All of it that could differ between two answers, without what is of the moment.
pub fn told(reply: &Reply) -> (u16, Vec<(String, String)>, String) {
    let passing = ["date", "content-length", "audit-id"];
    let fields = reply.fields.iter().filter(|(name, _)| !passing.contains(&name.as_str())).cloned();
    (reply.code, fields.collect(), reply.body.clone())
}

/// CVE-2026-39429, CVE-2023-48312, CVE-2019-13209, CVE-2026-40575, CVE-2026-34457 and their kin.
#[tokio::test(flavor = "multi_thread")]
async fn no_route_is_had_without_its_credential() {
    let site = Site::start().await;
    let world = &site.world;
    let mut requests = 0;
    let expired = "2020-01-01T00:00:00Z";
    let mut kube = vec![("expired", world.issue_for("jane", TokenScopes::default(), Audience::Kube, expired).await)];
    let mut api = vec![("expired", world.issue_for("jane", TokenScopes::default(), Audience::Api, expired).await)];
    // What opens one door opens no other.
    kube.push(("of the other audience", site.api_token.clone()));
    api.push(("of the other audience", world.token.clone()));
    for (tokens, good) in [(&mut kube, &world.token), (&mut api, &site.api_token)] {
        let mut wrong = good.clone();
        let last = if wrong.pop() == Some('a') { 'b' } else { 'a' };
        wrong.push(last);
        tokens.push(("with a wrong secret", wrong));
        tokens.push(("cut short", good[..good.len() - 1].to_owned()));
        tokens.push(("twice in one line", format!("{good}, Bearer {good}")));
        tokens.push(("empty", String::new()));
    }
    for protocol in PROTOCOLS {
        let mut asker = site.asker(protocol);
        for route in guarded_routes().iter().filter(|route| route.protocols().contains(&protocol)) {
            let good = site.token(route.door);
            let plain = || route.raw();
            let mut attempts: Vec<(String, Raw)> = vec![
                ("nothing".into(), plain()),
                ("the token without a scheme".into(), plain().field("authorization", good)),
                ("another scheme".into(), plain().field("authorization", format!("Basic {good}"))),
                ("two lines".into(), plain().bearer(good).bearer(good)),
                ("a good line after a bad one".into(), plain().bearer("x").bearer(good)),
                ("a good line before a bad one".into(), plain().bearer(good).bearer("x")),
                ("Proxy-Authorization".into(), plain().field("proxy-authorization", format!("Bearer {good}"))),
                ("X-Auth-Token".into(), plain().field("x-auth-token", good).field("x-forwarded-access-token", good)),
                (
                    "a cookie of another site".into(),
                    plain()
                        .field("cookie", format!("token={good}; session={good}; authorization=Bearer {good}"))
                        .field("origin", "https://elsewhere.example.com"),
                ),
                (
                    "names that a front end would vouch for".into(),
                    plain()
                        .field("x-remote-user", "jane")
                        .field("x-remote-group", "system:masters")
                        .field("x-forwarded-user", "jane")
                        .field("x-forwarded-client-cert", "Subject=\"CN=jane\"")
                        .field("x-ssl-client-verify", "SUCCESS"),
                ),
                (
                    "a path that needs none, in headers".into(),
                    plain()
                        .field("x-forwarded-uri", "/version")
                        .field("x-original-url", "/version")
                        .field("x-rewrite-url", "/healthz")
                        .field("x-http-method-override", "GET"),
                ),
                (
                    "an address of the inside".into(),
                    plain().field("x-forwarded-for", "127.0.0.1").field("x-real-ip", "::1"),
                ),
            ];
            let mut asked = plain();
            let joint = if asked.target.contains('?') { '&' } else { '?' };
            asked.target = format!("{}{joint}access_token={good}&token={good}&/version", asked.target);
            attempts.push(("the query".into(), asked));
            for (what, token) in if route.door == Door::Cluster { &kube } else { &api } {
                attempts.push((format!("a token {what}"), plain().bearer(token)));
            }
            for (n, (what, raw)) in attempts.into_iter().enumerate() {
                requests += 1;
                // Names of programs that front ends let in.
                let raw = raw.field("user-agent", AGENTS[n % AGENTS.len()]);
                let reply = asker.ask(&raw).await;
                let name = format!("{protocol:?} {} with {what}", route.name());
                assert!(reply.code == 401 && reply.is_status(), "{name}: {reply:?}");
                assert!(reply.body.contains("\"reason\":\"Unauthorized\""), "{name}: {reply:?}");
                nothing_reached(&site, &name);
            }
        }
    }
    tried("without a credential", requests);
    // The pair: with it, each is answered by what is behind it.
    for protocol in PROTOCOLS {
        let mut asker = site.asker(protocol);
        let routes = guarded_routes().into_iter().filter(|route| route.protocols().contains(&protocol));
        for route in routes.filter(|route| !route.target.ends_with("/logout")) {
            let reply = asker.ask(&route.raw().bearer(site.token(route.door))).await;
            assert!(reply.code != 401 && reply.code != 0, "{protocol:?} {}: {reply:?}", route.name());
        }
        for route in public_routes() {
            let reply = asker.ask(&route.raw()).await;
            let expected = if route.target == "/auth/login" { 401..=429 } else { 200..=200 };
            assert!(expected.contains(&reply.code), "{protocol:?} {}: {reply:?}", route.name());
        }
    }
}

const SPELLINGS: [&str; 10] = [
    "Impersonate-User",
    "impersonate-group",
    "IMPERSONATE-UID",
    "Impersonate-Extra-scopes",
    "Impersonate-Extra-bailiwick.dev%2ftoken",
    "Impersonate_User",
    "impersonate_group",
    "IMPERSONATE_uid",
    "impersonate-extra_scopes",
    "Impersonate-Anything",
];

/// kubectl --as, and every header that could be read as it: refused, and not passed over.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_acts_as_somebody_else_on_any_route() {
    let site = Site::start().await;
    let mut requests = 0;
    for protocol in PROTOCOLS {
        let mut asker = site.asker(protocol);
        for route in guarded_routes().iter().filter(|route| route.protocols().contains(&protocol)) {
            for spelling in SPELLINGS {
                requests += 1;
                let raw = route.raw().bearer(site.token(route.door)).field(spelling, "system:masters");
                let reply = asker.ask(&raw).await;
                let name = format!("{protocol:?} {} with {spelling}", route.name());
                assert!(reply.code == 403 && reply.is_status(), "{name}: {reply:?}");
                assert!(reply.body.contains("--as"), "{name}: {reply:?}");
                nothing_reached(&site, &name);
            }
        }
    }
    tried("as somebody else", requests);
    // jane is still signed in: the request to sign out was refused with the others.
    let own = Raw::new("GET", "/apis/bailiwick.dev/v1alpha1/self").bearer(&site.api_token);
    assert_eq!(site.asker(Protocol::Http1).ask(&own).await.code, 200);
}

/// What a client may say of itself, of its way here and of what it really wants. The values are told apart by `forged`.
fn hostile(raw: Raw, protocol: Protocol) -> Raw {
    let mut raw = raw
        .field("X-Remote-User", "forged-admin")
        .field("X-Remote-Group", "forged-system:masters")
        .field("X-Remote-Extra-Scopes", "forged")
        .field("X_Remote_User", "forged-admin")
        .field("X-Remote_Group", "forged")
        .field("X-Forwarded-For", "192.0.2.1, forged")
        .field("X-Forwarded-User", "forged")
        .field("X-Forwarded-Groups", "forged")
        .field("X-Forwarded-Uri", "/api/v1/forged")
        .field("X-Forwarded-Host", "forged.example.com")
        .field("X_Forwarded_For", "forged")
        .field("Forwarded", "for=192.0.2.1;host=forged")
        .field("Via", "1.1 forged")
        .field("X-Original-URL", "/api/v1/forged")
        .field("X-Rewrite-URL", "/api/v1/forged")
        .field("X-HTTP-Method", "DELETE-forged")
        .field("X-HTTP-Method-Override", "DELETE")
        .field("X-Method-Override", "DELETE")
        .field("X-Http_Method_Override", "DELETE")
        .field("Cookie", "session=forged")
        .field("Proxy-Authorization", "Basic forged")
        .field("Audit-ID", "forged")
        .field("X-Request-Id", "forged")
        .field("Trailer", "forged")
        .field("Origin", "https://forged.example.com")
        .field("Referer", "https://forged.example.com")
        .field("X-Stream-Protocol-Version-Forged", "forged");
    if protocol == Protocol::Http1 && !raw.fields.iter().any(|(name, _)| name == b"connection") {
        raw = raw
            .field(
                "Connection",
                "Authorization, Impersonate-User, Impersonate-Group, Impersonate-Uid, X-Remote-User, Content-Length, \
                 Impersonate-Extra-Bailiwick.dev%2ftoken, Host, Audit-Id",
            )
            .field("Keep-Alive", "timeout=forged")
            .field("TE", "trailers, forged")
            .field("Proxy-Connection", "forged");
    }
    raw
}

/// What may stand in a request to a cluster beside the identity.
const PASSES: [&str; 17] = [
    "accept",
    "accept-encoding",
    "audit-id",
    "authorization",
    "connection",
    "content-length",
    "content-type",
    "host",
    "impersonate-extra-bailiwick.dev%2ftoken",
    "impersonate-group",
    "impersonate-uid",
    "impersonate-user",
    "sec-websocket-key",
    "sec-websocket-protocol",
    "sec-websocket-version",
    "transfer-encoding",
    "upgrade",
];

/// CVE-2026-61682, CVE-2026-17107, CVE-2021-31999, CVE-2021-36776, CVE-2022-23652, CVE-2025-64484 and their kin.
#[tokio::test(flavor = "multi_thread")]
async fn the_identity_is_ours_on_every_route() {
    let site = Site::start().await;
    let (mut requests, mut reached) = (0, 0);
    for protocol in PROTOCOLS {
        let mut asker = site.asker(protocol);
        for route in cluster_routes().iter().filter(|route| route.protocols().contains(&protocol)) {
            requests += 1;
            let name = format!("{protocol:?} {}", route.name());
            let raw = hostile(route.raw().bearer(&site.world.token), protocol);
            let reply = asker.ask(&raw).await;
            assert!(reply.code != 0, "{name}: {reply:?}");
            let expected = route.target.trim_start_matches("/k8s/clusters/demo").trim_start_matches("/projects/shop");
            for seen in site.world.take_seen() {
                reached += 1;
                let headers = &seen.headers;
                for (header, value) in headers {
                    assert!(PASSES.contains(&header.as_str()), "{name}: {header} reached the cluster");
                    let value = String::from_utf8_lossy(value.as_bytes());
                    assert!(!value.contains("forged"), "{name}: {header}: {value}");
                }
                let all =
                    |header: &str| headers.get_all(header).iter().map(|v| v.to_str().unwrap()).collect::<Vec<_>>();
                assert_eq!(all("authorization"), ["Bearer forwarding-secret"], "{name}");
                if seen.target.split('?').next() == Some("/api/v1/namespaces") {
                    // The service asks for namespaces by itself, in nobody's name.
                    assert!(headers.keys().all(|header| !header.as_str().starts_with("impersonate")), "{name}");
                    continue;
                }
                assert_eq!(all("impersonate-user"), ["bailiwick:user:jane"], "{name}");
                assert_eq!(all("impersonate-uid"), ["uid-jane"], "{name}");
                assert_eq!(all("impersonate-extra-bailiwick.dev%2ftoken").len(), 1, "{name}");
                let group =
                    if seen.target.contains("/namespaces/") { shop_member() } else { "bailiwick:tenant".into() };
                let group = if route.target.ends_with("selfsubjectaccessreviews") { shop_member() } else { group };
                assert_eq!(all("impersonate-group"), [group], "{name} {}", seen.target);
                if !expected.starts_with("/api/v1/pods") {
                    assert_eq!(seen.target, expected, "{name}");
                }
            }
        }
    }
    assert!(reached > requests / 2, "{reached} of {requests} requests reached a cluster");
    tried("with forged headers, to clusters", requests);
}

/// The same on our own API: who one is, what is done and where it came from do not change.
#[tokio::test(flavor = "multi_thread")]
async fn the_api_believes_no_header_but_the_token() {
    let site = Site::start().await;
    let mut requests = 0;
    let routes =
        || [api_routes(), public_routes()].concat().into_iter().filter(|route| !route.target.ends_with("/logout"));
    for protocol in PROTOCOLS {
        let mut asker = site.asker(protocol);
        for route in routes() {
            // Sign-ins count against the account and answer later and later.
            if route.target == "/auth/login" {
                continue;
            }
            requests += 1;
            let name = format!("{protocol:?} {}", route.name());
            let plain = asker.ask(&route.raw().bearer(&site.api_token)).await;
            let forged = asker.ask(&hostile(route.raw().bearer(&site.api_token), protocol)).await;
            assert!(plain.code != 0, "{name}: {plain:?}");
            if route.target.starts_with("/audit") {
                // It tells of the requests before.
                assert_eq!(plain.code, forged.code, "{name}");
                continue;
            }
            assert_eq!(told(&plain), told(&forged), "{name}");
        }
        for user in ["jane", "joe", "nobody"] {
            assert!(site.world.index.snapshot().users.contains_key(user), "{user} is gone");
        }
    }
    let audit = site.world.audit_text().await;
    assert!(audit.contains("127.0.0.1") && !audit.contains("192.0.2.1"), "an address was believed");
    assert!(!audit.contains("forged"), "a header is in the audit log");
    nothing_reached(&site, "the API");
    tried("with forged headers, to the API", requests);
}

/// The pages for operators have no credential, so they tell nothing of anybody and do nothing.
#[tokio::test(flavor = "multi_thread")]
async fn the_pages_for_operators_tell_of_nobody_and_do_nothing() {
    let site = Site::start().await;
    let mut asker = site.asker(Protocol::Http1);
    for route in cluster_routes().iter().chain(&api_routes()).filter(|route| !route.target.ends_with("/logout")) {
        asker.ask(&hostile(route.raw().bearer(site.token(route.door)), Protocol::Http1)).await;
    }
    site.world.take_seen();
    let mut texts = String::new();
    for protocol in PROTOCOLS {
        for method in ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT"] {
            let own = ["/metrics", "/healthz", "/readyz"].map(str::to_owned);
            let others = ["/", "/metrics/", "//metrics", "/metrics/../healthz", "/%6detrics", "/debug/pprof"];
            let routes = [cluster_routes(), api_routes(), public_routes()].concat();
            let elsewhere = routes.iter().map(|route| route.target.clone()).filter(|target| target != "/healthz");
            for target in own.iter().cloned().chain(others.map(str::to_owned)).chain(elsewhere) {
                let tcp = tokio::net::TcpStream::connect(site.pages).await.unwrap();
                let mut client = Client::on(tcp, protocol).await;
                let raw = Raw::new(method, &target).bearer(&site.api_token).field("impersonate-user", "forged");
                client.send(&hostile(raw, protocol)).await;
                let reply = client.reply().await;
                // Operators' tools speak HTTP/1.1; what else comes has no answer.
                let expected = match (protocol, method) {
                    (Protocol::Http1, "GET" | "HEAD") if own.contains(&target) => 200..=200,
                    (Protocol::Http1, _) => 400..=499,
                    (Protocol::Http2, _) => 0..=0,
                };
                assert!(expected.contains(&reply.code), "{protocol:?} {method} {target}: {reply:?}");
                texts += &format!("{reply:?}");
            }
        }
    }
    nothing_reached(&site, "the pages");
    for word in ["jane", "forged", "shop-web", "billing", "bwk_", "forwarding-secret"] {
        assert!(!texts.contains(word), "the pages tell of {word}");
    }
    assert!(texts.contains("bailiwick_"), "metrics are shown");
}
