//! Requests that two readers could read differently, over both protocols: refused or read in one way, never cleaned.

use super::hpack;
use super::matrix::{Door, Route, Site, api_routes, cluster_routes, guarded_routes, public_routes};
use super::wire::{Client, END_HEADERS, END_STREAM, End, HEADERS, PROTOCOLS, Protocol, Raw, Reply, frame};

const FORMS: [&str; 2] = ["/k8s/clusters/demo", "/k8s/clusters/demo/projects/shop"];
const BASE: &str = "/apis/bailiwick.dev/v1alpha1";

/// A request that is no good: told so, or its connection or stream is given up; never a part of an answer.
#[track_caller]
fn refused(reply: &Reply, name: &str) {
    assert!(reply.code == 0 || (400..500).contains(&reply.code), "{name}: {reply:?}");
    assert!(reply.code != 0 || matches!(reply.end, End::Cut(_)), "{name}: {reply:?}");
}

/// CVE-2026-41059, CVE-2022-3162, CVE-2025-54576, kube-rbac-proxy's cleaned paths.
#[tokio::test(flavor = "multi_thread")]
async fn ambiguous_targets_are_refused_in_every_form_and_protocol() {
    let site = Site::start().await;
    let tails = [
        "/api/v1//namespaces/shop-web/pods",
        "//api/v1/namespaces/shop-web/pods",
        "/api/v1/namespaces/shop-web/pods/",
        "/api/v1/namespaces/shop-web/../billing-api/pods",
        "/api/v1/namespaces/shop-web/./pods",
        "/api/v1/namespaces/shop-web/%2e%2e/billing-api/pods",
        "/api/v1/namespaces/shop-web/%2E./billing-api/pods",
        "/api/v1/namespaces/shop-web%2f..%2fbilling-api/pods",
        "/api/v1/namespaces/shop-web%2Fpods",
        "/api/v1/namespaces/shop-web/pods/x%2f..%2f..%2fsecrets",
        "/api/v1/namespaces/shop-web/pods/%252e%252e",
        "/api/v1/namespaces/shop-web/pods%5c..%5csecrets",
        "/api/v1/namespaces/shop-web/pods;a=b",
        "/api/v1/namespaces/shop-web;a=b/pods",
        "/api/v1/namespaces/shop-web/pods%3ba=b",
        "/api/v1/namespaces/shop-web/pods%00",
        "/api/v1/namespaces/shop-web/pods%0d%0aX:%20y",
        "/api/v1/namespaces/shop-web/pods%20",
        "/api/v1/namespaces/shop-web/pods%23",
        "/api/v1/namespaces/shop-web/pods%3f",
        "/api/v1/namespaces/shop-web/pods%",
        "/api/v1/namespaces/shop-web/pods%zz",
        "/api/v1/namespaces/shop-web/pods%c0%ae",
        "/api/v1/namespaces/shop-web/pods?watch=0&watch=1",
        "/api/v1/namespaces/shop-web/pods?watch=0&%77atch=1",
        "/api/v1/namespaces/shop-web/pods/p?watch=1",
        "/api/v1/namespaces/shop-web/pods?x=1;watch=1",
        "/api/v1/namespaces/shop-web/pods?fieldSelector=metadata.name%3da&fieldSelector=metadata.name%3db",
        "/api/v1/watch/namespaces/shop-web/pods",
        "/api/v1/proxy/namespaces/shop-web/pods/p",
        "/api/v1/namespaces/shop-web/pods/p/exec/sh",
        "/metrics",
        "/logs/",
        "/debug/pprof/",
        "/healthz",
        "/",
        "",
    ];
    let whole = [
        "/k8s/",
        "/k8s/clusters",
        "/k8s/clusters/",
        "/k8s/clusters/..",
        "/k8s/clusters/demo%2f..%2fdemo/api/v1/namespaces/shop-web/pods",
        "/k8s/clusters/demo/projects/%2e%2e/api/v1/namespaces/shop-web/pods",
        "/k8s/clusters/demo/projects//api/v1/namespaces/shop-web/pods",
        "/k8s/../apis/bailiwick.dev/v1alpha1/users",
        "/k8s/%2e%2e/version",
        "/k8s/clusters/demo/projects/shop/projects/shop/api/v1/namespaces/shop-web/pods",
        "/k8s/clusters/DEMO/api/v1/namespaces/shop-web/pods",
    ];
    let forms = FORMS.iter().flat_map(|form| tails.iter().map(move |tail| format!("{form}{tail}")));
    let targets: Vec<String> = forms.chain(whole.map(str::to_owned)).collect();
    let mut requests = 0;
    for protocol in PROTOCOLS {
        let mut asker = site.asker(protocol);
        for target in &targets {
            for method in ["GET", "POST", "DELETE"] {
                requests += 1;
                let raw = Raw::new(method, target).field("content-length", "0").bearer(&site.world.token);
                let reply = asker.ask(&raw).await;
                let name = format!("{protocol:?} {method} {target}");
                assert!(reply.code == 400 && reply.is_status(), "{name}: {reply:?}");
                let seen = site.world.take_seen();
                assert!(seen.is_empty(), "{name}: {seen:?}");
            }
        }
        // Bytes that are in no URL. A library may refuse them before we do.
        for bad in ["\\", "\t", " ", "\x01", "\x7f", "\r", "\n", "\0", "é", "<", "\"", "{", "|", "^", "`"] {
            for form in FORMS {
                for place in [
                    format!("/api/v1/namespaces/shop-web/pods{bad}x"),
                    format!("/api/v1/namespaces/shop-web/pods?limit=1{bad}"),
                ] {
                    requests += 1;
                    let target = format!("{form}{place}");
                    let reply = asker.ask(&Raw::new("GET", &target).bearer(&site.world.token)).await;
                    let name = format!("{protocol:?} {target:?}");
                    let seen = site.world.take_seen();
                    // In a query, what is plain to every reader may pass as it is.
                    let passed = seen.iter().all(|seen| target.strip_prefix(form) == Some(&seen.target));
                    assert!(passed && (seen.is_empty() || reply.code == 200), "{name}: {reply:?} {seen:?}");
                    if seen.is_empty() {
                        refused(&reply, &name);
                    }
                }
            }
        }
        // A fragment is no part of a request. What is before it is all that is read, decided on and forwarded.
        for form in FORMS {
            for fragment in ["#", "#/../secrets", "#?watch=1", "?limit=1#&watch=1", "%23/../secrets"] {
                requests += 1;
                let target = format!("{form}/api/v1/namespaces/shop-web/pods{fragment}");
                let reply = asker.ask(&Raw::new("GET", &target).bearer(&site.world.token)).await;
                for seen in site.world.take_seen() {
                    assert!(
                        seen.target == "/api/v1/namespaces/shop-web/pods" || seen.target.ends_with("/pods?limit=1"),
                        "{seen:?}"
                    );
                    assert_eq!(reply.code, 200);
                }
                assert!(matches!(reply.code, 200 | 400 | 0), "{target}: {reply:?}");
            }
        }
    }
    println!("ambiguous targets: {requests} requests");
}

/// No spelling of a path of our API that needs a credential is taken for one that needs none, nor leads elsewhere.
#[tokio::test(flavor = "multi_thread")]
async fn no_spelling_leads_past_the_door_of_the_api() {
    let site = Site::start().await;
    let mut targets: Vec<String> = vec![];
    for secret in ["/audit", "/audit/verify", &format!("{BASE}/users"), &format!("{BASE}/self")] {
        for open in ["/version", "/healthz", "/auth/login", "/k8s/x"] {
            targets.extend([
                format!("{open}/..{secret}"),
                format!("{open}/%2e%2e{secret}"),
                format!("{open}/..;{secret}"),
                format!("{open}/..%2f{}", &secret[1..]),
                format!("{open};{secret}"),
                format!("{open}%00{secret}"),
                format!("{open}%2f..{secret}"),
                format!("{secret};{open}"),
                format!("{secret}?{open}"),
                format!("{secret}#{open}"),
                format!("{secret}/..{open}"),
                format!("{secret}/%2e%2e{open}"),
                format!("{secret}%3f{open}"),
                format!("{secret}%23{open}"),
            ]);
        }
        targets.extend([
            format!("/{secret}"),
            format!("/.{secret}"),
            format!("{secret}/"),
            format!("{secret}//"),
            secret.to_uppercase(),
            secret.replacen('a', "%61", 1),
            secret.replacen('/', "//", 3),
            secret.replacen('/', "/%2f", 1),
            format!("https://proxy{secret}"),
            format!("https://elsewhere.example.com{secret}"),
        ]);
    }
    let mut requests = 0;
    for protocol in PROTOCOLS {
        let mut asker = site.asker(protocol);
        for target in &targets {
            for method in ["GET", "HEAD", "POST", "DELETE"] {
                requests += 1;
                let reply = asker.ask(&Raw::new(method, target).field("content-length", "0")).await;
                let name = format!("{protocol:?} {method} {target}");
                refused(&reply, &name);
                assert!(!reply.body.contains("jane") && !reply.body.contains("\"items\""), "{name}: {reply:?}");
            }
            // The same with a credential leads nowhere else than it says.
            requests += 1;
            let reply = asker.ask(&Raw::new("GET", target).bearer(&site.api_token)).await;
            let plain = target.split(['?', '#']).next().unwrap().trim_start_matches("https://proxy");
            let plain = plain.trim_start_matches("https://elsewhere.example.com").replace("%61", "a");
            let is_route = ["/audit", "/audit/verify"].contains(&&*plain)
                || plain == format!("{BASE}/users")
                || plain == format!("{BASE}/self");
            assert!(is_route || reply.code >= 400 || reply.code == 0, "{protocol:?} {target}: {reply:?}");
        }
    }
    assert!(site.world.take_seen().is_empty());
    println!("spellings of the API: {requests} requests");
}

/// Methods that no route has: nothing happens, on any route.
#[tokio::test(flavor = "multi_thread")]
async fn strange_methods_do_nothing_on_any_route() {
    let site = Site::start().await;
    let mut requests = 0;
    let routes = || guarded_routes().into_iter().chain(public_routes()).filter(|route: &Route| route.upgrade.is_none());
    for protocol in PROTOCOLS {
        let mut asker = site.asker(protocol);
        for route in routes() {
            for method in ["TRACE", "CONNECT", "OPTIONS", "PROPFIND", "get", "Post", "GETX", "DELETE-", "LIST", "WATCH"]
            {
                requests += 1;
                let raw = Raw::new(method, &route.target).bearer(site.token(route.door));
                let reply = asker.ask(&raw).await;
                let name = format!("{protocol:?} {method} {}", route.target);
                refused(&reply, &name);
                assert!(site.world.take_seen().is_empty(), "{name}");
            }
        }
    }
    // CONNECT as HTTP/2 has it: an authority and no path; and with a protocol (RFC 8441), which was never offered.
    for (what, fields) in [
        ("plain", vec![(":method", "CONNECT"), (":authority", "kubernetes.default.svc:443")]),
        (
            "extended",
            vec![
                (":method", "CONNECT"),
                (":protocol", "websocket"),
                (":scheme", "https"),
                (":authority", "proxy"),
                (":path", "/k8s/clusters/demo/api/v1/namespaces/shop-web/pods/p/exec?command=sh"),
            ],
        ),
    ] {
        for token in [&site.world.token, &site.api_token] {
            requests += 1;
            let bearer = format!("Bearer {token}");
            let fields: Vec<_> = [fields.clone(), vec![("authorization", bearer.as_str())]].concat();
            let mut client = Client::dial(site.address, &site.pki, Protocol::Http2).await;
            let asked = frame(HEADERS, END_HEADERS, 1, &hpack::block(&fields));
            client.write("CONNECT", &asked).await;
            let reply = client.reply().await;
            refused(&reply, what);
            assert!(site.world.take_seen().is_empty(), "{what}");
        }
    }
    println!("strange methods: {requests} requests");
}

/// Two names for one host, or none that is ours: which cluster is asked depends on the path alone.
#[tokio::test(flavor = "multi_thread")]
async fn the_host_chooses_nothing() {
    let site = Site::start().await;
    let pods = "/k8s/clusters/demo/api/v1/namespaces/shop-web/pods";
    let bearer = format!("Authorization: Bearer {}\r\nConnection: close\r\n", site.world.token);
    for lines in [
        format!("GET {pods} HTTP/1.1\r\nHost: kubernetes.default.svc\r\n{bearer}\r\n"),
        format!("GET https://169.254.169.254{pods} HTTP/1.1\r\nHost: proxy\r\n{bearer}\r\n"),
        format!("GET http://user:password@elsewhere.example.com:1{pods} HTTP/1.1\r\nHost: proxy\r\n{bearer}\r\n"),
        format!("GET {pods} HTTP/1.1\r\nHost: a\r\nHost: b\r\n{bearer}\r\n"),
        format!("GET {pods} HTTP/1.1\r\n{bearer}\r\n"),
        format!("GET {pods} HTTP/1.0\r\n{bearer}\r\n"),
    ] {
        let mut client = Client::dial(site.address, &site.pki, Protocol::Http1).await;
        client.write("GET", lines.as_bytes()).await;
        let reply = client.reply().await;
        let seen = site.world.take_seen();
        assert!(matches!(reply.code, 200 | 400), "{lines}: {reply:?}");
        assert_eq!(seen.len(), usize::from(reply.code == 200), "{lines}");
        for seen in seen {
            assert_eq!(seen.target, "/api/v1/namespaces/shop-web/pods");
            let host = seen.headers["host"].to_str().unwrap();
            assert!(host.starts_with("127.0.0.1:"), "{host}");
        }
    }
    let bearer = format!("Bearer {}", site.world.token);
    for (authority, host) in
        [("elsewhere.example.com", None), ("proxy", Some("elsewhere.example.com")), ("a@b:1", None)]
    {
        let mut fields = vec![(":method", "GET"), (":scheme", "http"), (":authority", authority), (":path", pods)];
        fields.push(("authorization", &bearer));
        fields.extend(host.map(|host| ("host", host)));
        let mut client = Client::dial(site.address, &site.pki, Protocol::Http2).await;
        client.write("GET", &frame(HEADERS, END_HEADERS | END_STREAM, 1, &hpack::block(&fields))).await;
        let reply = client.reply().await;
        for seen in site.world.take_seen() {
            assert_eq!(seen.target, "/api/v1/namespaces/shop-web/pods");
            assert!(seen.headers["host"].to_str().unwrap().starts_with("127.0.0.1:"));
        }
        assert!(matches!(reply.code, 200 | 400 | 0), "{authority}: {reply:?}");
    }
}

/// Heads that are larger than anything of use, many fields, and long targets: on every route and protocol.
#[tokio::test(flavor = "multi_thread")]
async fn heads_are_bounded_on_every_route() {
    let site = Site::start().await;
    let mut requests = 0;
    let routes: Vec<Route> = [cluster_routes(), api_routes(), public_routes()].concat();
    for protocol in PROTOCOLS {
        let mut asker = site.asker(protocol);
        for route in routes.iter().filter(|route| route.protocols().contains(&protocol)) {
            if route.target.ends_with("/logout") || route.door == Door::Public {
                continue;
            }
            let base = || route.raw().bearer(site.token(route.door));
            let long = "a".repeat(70 * 1024);
            let mut groups = base();
            for n in 0..400 {
                groups = groups.field("X-Remote-Group", format!("group-{n}-of-many-with-a-long-name"));
            }
            let mut target = base();
            let joint = if target.target.contains('?') { '&' } else { '?' };
            target.target = format!("{}{joint}x={long}", target.target);
            for (what, raw) in
                [("one long field", base().field("x-junk", &long)), ("a long target", target), ("many", groups)]
            {
                requests += 1;
                let reply = asker.ask(&raw).await;
                let name = format!("{protocol:?} {} with {what}", route.name());
                // HTTP/2 has no bound on the number of fields, but on their size.
                let harmless = what == "many" && protocol == Protocol::Http2;
                assert!(matches!(reply.code, 0 | 400 | 414 | 431) || harmless, "{name}: {reply:?}");
                let seen = site.world.take_seen();
                assert!(harmless || seen.is_empty(), "{name}");
                assert!(seen.iter().all(|seen| !seen.headers.contains_key("x-remote-group")), "{name}");
            }
        }
    }
    println!("large heads: {requests} requests");
    let mut asker = site.asker(Protocol::Http2);
    let pods = Raw::new("GET", "/k8s/clusters/demo/api/v1/namespaces/shop-web/pods").bearer(&site.world.token);
    assert_eq!(asker.ask(&pods).await.code, 200, "the listener goes on");
}
