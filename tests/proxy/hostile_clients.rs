//! What a client may send, and what of it reaches a cluster.

use bailiwick::records::{Scoped, TokenScopes};
use bailiwick::resources::token::Audience;
use bailiwick::store::Kind;
use serde_json::json;

use super::harness::{BILLING_UID, CLUSTER_UID, PROJECT_UID, World, observe, observe_as, shop_member};

const PODS: &str = "/k8s/clusters/demo/api/v1/namespaces/shop-web/pods";
const NARROW: &str = "/k8s/clusters/demo/projects/shop/api/v1/namespaces/shop-web/pods";

#[tokio::test(flavor = "multi_thread")]
async fn the_identity_is_ours_whatever_is_sent() {
    let world = World::start().await;
    let forged = "Impersonate-User: admin\r\nImpersonate-Group: system:masters\r\n";
    for form in [PODS, NARROW] {
        // Asking to be somebody else is refused, in every spelling, and nothing is sent.
        for header in [
            "Impersonate-User: admin",
            "impersonate-group: system:masters",
            "IMPERSONATE-UID: 1",
            "Impersonate-Extra-scopes: all",
            "Impersonate_User: admin",
            "impersonate_group: system:masters",
        ] {
            let answer = world.request("GET", form, &format!("{header}\r\n")).await;
            assert_eq!(answer.code, 403, "{header}: {}", answer.body);
            assert!(answer.body.contains("--as"), "{}", answer.body);
        }
        let answer = world.request("GET", form, forged).await;
        assert_eq!(answer.code, 403);
        assert!(world.take_seen().is_empty(), "nothing may reach the cluster");

        let hostile = "Connection: Authorization, Impersonate-User, Impersonate-Group\r\n\
            X-Remote-User: admin\r\nX-Remote-Group: system:masters\r\nX-Remote-Extra-a: b\r\nX_Remote_User: admin\r\n\
            X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Uri: /api/v1/secrets\r\nForwarded: for=192.0.2.1\r\n\
            X-Original-URL: /api/v1/secrets\r\nX-HTTP-Method-Override: DELETE\r\nCookie: session=1\r\n\
            Proxy-Authorization: Basic eDp5\r\nTE: trailers\r\nAudit-ID: forged\r\nAccept: application/json\r\n";
        let answer = world.request("GET", form, hostile).await;
        assert_eq!(answer.code, 200, "{}", answer.body);
        let seen = world.take_seen();
        assert_eq!(seen.len(), 1);
        let headers = &seen[0].headers;
        // Over HTTP/2 the host is no header.
        let mut names: Vec<&str> = headers.keys().map(|n| n.as_str()).filter(|n| *n != "host").collect();
        names.sort_unstable();
        assert_eq!(
            names,
            [
                "accept",
                "audit-id",
                "authorization",
                "impersonate-extra-bailiwick.dev%2ftoken",
                "impersonate-group",
                "impersonate-uid",
                "impersonate-user"
            ]
        );
        assert_eq!(headers["impersonate-user"], "bailiwick:user:jane");
        assert_eq!(headers["impersonate-uid"], "uid-jane");
        assert_eq!(headers.get_all("impersonate-group").iter().collect::<Vec<_>>(), [&shop_member()]);
        assert_eq!(headers["authorization"], "Bearer forwarding-secret");
        assert_ne!(headers["audit-id"], "forged");
        assert_eq!(seen[0].target, "/api/v1/namespaces/shop-web/pods");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_live_kube_token_is_a_credential() {
    let world = World::start().await;
    let api = world.issue_for("jane", TokenScopes::default(), Audience::Api, "2100-01-01T00:00:00Z").await;
    let expired = world.issue_for("jane", TokenScopes::default(), Audience::Kube, "2020-01-01T00:00:00Z").await;
    let mut wrong = world.token.clone();
    let last = if wrong.pop() == Some('a') { 'b' } else { 'a' };
    wrong.push(last);
    for (what, header) in [
        ("none", String::new()),
        ("empty", "Authorization: \r\n".into()),
        ("empty bearer", "Authorization: Bearer \r\n".into()),
        ("garbage", "Authorization: Bearer garbage\r\n".into()),
        ("basic", "Authorization: Basic amFuZTp4\r\n".into()),
        ("cookie", format!("Cookie: token={}\r\n", world.token)),
        ("wrong secret", format!("Authorization: Bearer {wrong}\r\n")),
        ("audience api", format!("Authorization: Bearer {api}\r\n")),
        ("expired", format!("Authorization: Bearer {expired}\r\n")),
        ("two", format!("Authorization: Bearer {0}\r\nAuthorization: Bearer {0}\r\n", world.token)),
        ("query", String::new()),
    ] {
        let target = if what == "query" { format!("{PODS}?access_token={}", world.token) } else { PODS.to_owned() };
        let raw = format!("GET {target} HTTP/1.1\r\nHost: p\r\nConnection: close\r\n{header}\r\n");
        let answer = world.raw(raw).await;
        assert!(answer.starts_with("HTTP/1.1 401"), "{what}: {answer}");
        assert!(answer.contains("\"reason\":\"Unauthorized\""), "{what}: {answer}");
    }
    assert!(world.take_seen().is_empty());
    let audit = world.audit_text().await;
    for secret in [&world.token, &api, &expired, &wrong] {
        assert!(!audit.contains(&secret[21..]), "a secret is in the audit log");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ambiguous_targets_are_refused_not_cleaned() {
    let world = World::start().await;
    for target in [
        "/k8s/clusters/demo/api/v1//namespaces/shop-web/pods",
        "/k8s/clusters/demo//api/v1/namespaces/shop-web/pods",
        "/k8s/clusters/demo/api/v1/namespaces/shop-web/pods/",
        "/k8s/clusters/demo/api/v1/namespaces/shop-web/../billing-api/pods",
        "/k8s/clusters/demo/api/v1/namespaces/shop-web/%2e%2e/billing-api/pods",
        "/k8s/clusters/demo/api/v1/namespaces/shop-web%2f..%2fbilling-api/pods",
        "/k8s/clusters/demo/api/v1/namespaces/shop-web/pods/x%2f..%2f..%2fsecrets",
        "/k8s/clusters/demo/api/v1/namespaces/shop-web/pods;a=b",
        "/k8s/clusters/demo/api/v1/namespaces/shop-web/pods\\x",
        "/k8s/clusters/demo/api/v1/namespaces/shop-web/pods%00",
        "/k8s/clusters/demo/api/v1/namespaces/shop-web/pods?watch=0&watch=1",
        "/k8s/clusters/demo/api/v1/watch/namespaces/shop-web/pods",
        "/k8s/clusters/demo/api/v1/namespaces/shop-web/pods?x=1;watch=1",
        "/k8s/clusters/demo/metrics",
        "/k8s/clusters/demo/",
        "/k8s/clusters/demo",
        "/k8s/clusters/..",
        "/k8s/../apis/bailiwick.dev/v1alpha1/users",
    ] {
        let answer = world.request("GET", target, "").await;
        assert_eq!(answer.code, 400, "{target}: {}", answer.body);
        assert!(answer.body.contains("\"kind\":\"Status\""), "{target}: {}", answer.body);
    }
    // A fragment never leaves the HTTP library, and nothing of it reaches the cluster.
    let answer = world.request("GET", &format!("{PODS}#/../secrets"), "").await;
    assert!(matches!(answer.code, 200 | 400), "{}", answer.code);
    for seen in world.take_seen() {
        assert_eq!(seen.target, "/api/v1/namespaces/shop-web/pods");
    }
    for method in ["TRACE", "CONNECT", "OPTIONS", "PROPFIND"] {
        let answer = world.request(method, PODS, "").await;
        assert!(matches!(answer.code, 400 | 404 | 405), "{method}: {}", answer.code);
    }
    assert!(world.take_seen().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn another_tenant_cannot_be_told_from_nothing() {
    let world = World::start().await;
    let mut texts = vec![];
    for namespace in ["billing-api", "no-such-ns", "kube-system", "default"] {
        let answer = world.request("GET", &format!("/k8s/clusters/demo/api/v1/namespaces/{namespace}/pods"), "").await;
        assert_eq!(answer.code, 403, "{}", answer.body);
        assert!(answer.body.contains("yours are: shop-data, shop-web"), "{}", answer.body);
        let without_length = answer
            .head
            .lines()
            .filter(|l| !l.starts_with("content-length") && !l.starts_with("date"))
            .collect::<Vec<_>>()
            .join("\n");
        texts.push((answer.body.replace(namespace, "NAMESPACE"), without_length));
    }
    for other in &texts[1..] {
        assert_eq!(*other, texts[0]);
    }
    // The same for clusters, and for a project that the URL narrows to.
    let foreign = world.issue("nobody", TokenScopes::default()).await;
    let mut clusters = vec![];
    for cluster in ["demo", "no-such-cluster"] {
        let answer = world
            .request_as(&foreign, "GET", &format!("/k8s/clusters/{cluster}/api/v1/namespaces/shop-web/pods"), "")
            .await;
        assert_eq!(answer.code, 403);
        clusters.push(answer.body.replace(cluster, "CLUSTER"));
    }
    assert_eq!(clusters[0], clusters[1]);
    let mut projects = vec![];
    for project in ["billing", "no-such-project"] {
        let answer = world
            .request("GET", &format!("/k8s/clusters/demo/projects/{project}/api/v1/namespaces/billing-api/pods"), "")
            .await;
        assert_eq!(answer.code, 403);
        projects.push(answer.body.replace(project, "PROJECT"));
    }
    assert_eq!(projects[0], projects[1]);
    assert!(world.take_seen().is_empty());
}

fn scoped(name: &str, uid: &str) -> Scoped {
    Scoped { name: name.into(), uid: uid.into() }
}

/// The project, or the cluster, is deleted and another takes its name; jane holds the same role in it.
#[tokio::test(flavor = "multi_thread")]
async fn a_limited_token_does_not_reach_what_takes_the_name() {
    let pods = "/k8s/clusters/demo/api/v1/namespaces/shop-web/pods";
    let narrowed = "/k8s/clusters/demo/projects/shop/api/v1/namespaces/shop-web/pods";
    let discovery = "/k8s/clusters/demo/version";
    let review =
        r#"{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectRulesReview","spec":{"namespace":"shop-web"}}"#;
    let world = World::start().await;
    let project = |uid: &str| TokenScopes { projects: vec![scoped("shop", uid)], ..TokenScopes::default() };
    let cluster = |uid: &str| TokenScopes { clusters: vec![scoped("demo", uid)], ..TokenScopes::default() };
    let old = [world.issue("jane", project(PROJECT_UID)).await, world.issue("jane", cluster(CLUSTER_UID)).await];
    let check = async |token: &String, allowed: bool| {
        for target in [pods, narrowed, discovery] {
            let answer = world.request_as(token, "GET", target, "").await;
            assert_eq!(answer.code, if allowed { 200 } else { 403 }, "{target}: {}", answer.body);
        }
        let target = "/k8s/clusters/demo/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
        let head = format!("Content-Type: application/json\r\nContent-Length: {}\r\n", review.len());
        let raw = format!(
            "POST {target} HTTP/1.1\r\nHost: proxy\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n{head}\r\n{review}"
        );
        let answer = world.raw(raw).await;
        assert_eq!(answer.contains("\"pods\""), allowed, "{answer}");
    };
    for token in &old {
        check(token, true).await;
    }

    let uid = "9b3c4d5e-0000-4000-8000-000000000009";
    world.change(Kind::Project, "shop", |project| project["metadata"]["uid"] = json!(uid)).await;
    world.change(Kind::Grant, "jane-shop", |grant| grant["status"]["targetUID"] = json!(uid)).await;
    world.change(Kind::Claim, "demo/shop-web", |claim| claim["project_uid"] = json!(uid)).await;
    check(&old[0], false).await;
    check(&old[1], true).await;
    check(&world.issue("jane", project(uid)).await, true).await;

    let uid = "8b3c4d5e-0000-4000-8000-000000000008";
    world.change(Kind::Cluster, "demo", |cluster| cluster["metadata"]["uid"] = json!(uid)).await;
    world.change(Kind::Claim, "demo/shop-web", |claim| claim["cluster_uid"] = json!(uid)).await;
    observe_as(&world.index, uid, true, &["shop-web"]).await;
    check(&old[1], false).await;
    check(&world.issue("jane", cluster(uid)).await, true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_scopes_and_reach_limit() {
    let world = World::start().await;
    let read_only = world.issue("jane", TokenScopes { read_only: true, ..TokenScopes::default() }).await;
    let elsewhere =
        world.issue("jane", TokenScopes { clusters: vec![scoped("prod", "uid-prod")], ..TokenScopes::default() }).await;
    let other_project = world
        .issue("jane", TokenScopes { projects: vec![scoped("billing", BILLING_UID)], ..TokenScopes::default() })
        .await;
    let ns = "/k8s/clusters/demo/api/v1/namespaces/shop-web";
    let rbac = "/k8s/clusters/demo/apis/rbac.authorization.k8s.io/v1/namespaces/shop-web";
    for (token, method, target, allowed) in [
        (&world.token, "GET", format!("{ns}/pods"), true),
        (&world.token, "GET", format!("{ns}/secrets/x"), true),
        (&world.token, "DELETE", format!("{ns}/pods/x"), true),
        (&world.token, "POST", format!("{ns}/pods/x/eviction"), true),
        (&world.token, "GET", "/k8s/clusters/demo/apis/apps/v1".to_owned(), true),
        (&world.token, "GET", "/k8s/clusters/demo/version".to_owned(), true),
        (&world.token, "GET", "/k8s/clusters/demo/apis/storage.k8s.io/v1/storageclasses".to_owned(), true),
        // Not of the role.
        (&world.token, "POST", format!("{rbac}/rolebindings"), false),
        (&world.token, "PUT", format!("{ns}/resourcequotas/bailiwick"), false),
        (&world.token, "PATCH", ns.to_owned(), false),
        (&world.token, "PUT", format!("{ns}/finalize"), false),
        (&world.token, "GET", format!("{ns}/pods/x/proxy/metrics"), false),
        (&world.token, "GET", format!("{ns}/services/x/proxy"), false),
        // Open to tenants here, but of no role; and not open at all.
        (&world.token, "GET", "/k8s/clusters/demo/apis/example.com/v1/namespaces/shop-web/widgets".to_owned(), false),
        (
            &world.token,
            "GET",
            "/k8s/clusters/demo/apis/other.example.com/v1/namespaces/shop-web/pods".to_owned(),
            false,
        ),
        // Across namespaces and of the whole cluster.
        (&world.token, "DELETE", "/k8s/clusters/demo/api/v1/pods".to_owned(), false),
        (&world.token, "GET", "/k8s/clusters/demo/api/v1/persistentvolumes".to_owned(), false),
        (&world.token, "GET", "/k8s/clusters/demo/api/v1/nodes".to_owned(), false),
        (&world.token, "GET", "/k8s/clusters/demo/api/v1/nodes/n1/proxy/pods".to_owned(), false),
        (&world.token, "POST", "/k8s/clusters/demo/apis/storage.k8s.io/v1/storageclasses".to_owned(), false),
        (
            &world.token,
            "POST",
            "/k8s/clusters/demo/apis/certificates.k8s.io/v1/certificatesigningrequests".to_owned(),
            false,
        ),
        (&world.token, "POST", "/k8s/clusters/demo/apis/authentication.k8s.io/v1/tokenreviews".to_owned(), false),
        // Limited tokens.
        (&read_only, "GET", format!("{ns}/pods"), true),
        (&read_only, "DELETE", format!("{ns}/pods/x"), false),
        (&read_only, "GET", format!("{ns}/pods/x/exec?command=sh"), false),
        (&read_only, "POST", format!("{ns}/serviceaccounts/x/token?dryRun=All"), false),
        (&elsewhere, "GET", format!("{ns}/pods"), false),
        (&elsewhere, "GET", format!("{ns}/pods/x/exec?command=sh"), false),
        (&other_project, "GET", format!("{ns}/pods"), false),
        (&other_project, "GET", "/k8s/clusters/demo/version".to_owned(), false),
    ] {
        let answer = world.request_as(token, method, &target, "Content-Length: 0\r\n").await;
        let reached = !world.take_seen().is_empty();
        assert_eq!(reached, allowed, "{method} {target}: {} {}", answer.code, answer.body);
        assert_eq!(answer.code, if allowed { 200 } else { 403 }, "{method} {target}: {}", answer.body);
    }
}

/// The strongest role of a project is within the same walls: its namespaces themselves, what is alike by name only, what
/// is of the whole cluster, and what leads traffic elsewhere.
#[tokio::test(flavor = "multi_thread")]
async fn owners_reach_no_further_than_their_namespaces() {
    let world = World::start().await;
    let owner = world.issue("joe", TokenScopes::default()).await;
    let ns = "/k8s/clusters/demo/api/v1/namespaces/billing-api";
    let within = |group: &str, rest: &str| format!("/k8s/clusters/demo/apis/{group}/namespaces/billing-api{rest}");
    for (method, target, code) in [
        ("GET", format!("{ns}/pods"), 200),
        ("POST", within("rbac.authorization.k8s.io/v1", "/rolebindings"), 200),
        ("GET", "/k8s/clusters/demo/apis/storage.k8s.io/v1/storageclasses/fast".to_owned(), 200),
        // Labels and annotations that they may set are read before they go on, and nothing cannot be read.
        ("PATCH", ns.to_owned(), 415),
        ("PUT", ns.to_owned(), 415),
        // Of another project's, the same is refused for its address.
        ("PATCH", "/k8s/clusters/demo/api/v1/namespaces/shop-web".to_owned(), 403),
        ("PUT", "/k8s/clusters/demo/api/v1/namespaces/shop-web".to_owned(), 403),
        ("DELETE", "/k8s/clusters/demo/api/v1/namespaces?labelSelector=a".to_owned(), 403),
        ("PATCH", format!("{ns}/status"), 403),
        ("PUT", format!("{ns}/status"), 403),
        ("PUT", format!("{ns}/finalize"), 403),
        // Kinds of the same name in a group that tenants may reach.
        ("PATCH", within("example.com/v1", ""), 403),
        ("POST", "/k8s/clusters/demo/apis/example.com/v1/namespaces".to_owned(), 403),
        ("GET", within("example.com/v1", "/pods"), 403),
        // Kinds of the whole cluster, as if they were in the namespace.
        ("GET", within("rbac.authorization.k8s.io/v1", "/clusterroles"), 403),
        ("POST", within("rbac.authorization.k8s.io/v1", "/clusterrolebindings"), 403),
        ("GET", within("storage.k8s.io/v1", "/storageclasses"), 403),
        ("GET", within("apiextensions.k8s.io/v1", "/customresourcedefinitions"), 403),
        ("GET", format!("{ns}/nodes"), 403),
        ("GET", format!("{ns}/persistentvolumes"), 403),
        ("GET", format!("{ns}/nodes/n1/proxy"), 403),
        // Where traffic is led: by us, and by addresses that are written.
        ("GET", format!("{ns}/services/x/proxy/admin"), 403),
        ("POST", format!("{ns}/services/https:x:443/proxy"), 403),
        ("GET", format!("{ns}/pods/x/proxy"), 403),
        ("POST", format!("{ns}/endpoints"), 403),
        ("PUT", format!("{ns}/endpoints/x"), 403),
        ("POST", within("discovery.k8s.io/v1", "/endpointslices"), 403),
        ("PATCH", format!("{ns}/services/x/status"), 403),
        ("PUT", "/k8s/clusters/demo/api/v1/nodes/n1/status".to_owned(), 403),
        // Limits of the project.
        ("PATCH", format!("{ns}/resourcequotas/bailiwick"), 403),
        ("DELETE", format!("{ns}/limitranges/bailiwick"), 403),
    ] {
        let answer = world.request_as(&owner, method, &target, "Content-Length: 0\r\n").await;
        let reached = !world.take_seen().is_empty();
        assert_eq!(reached, code == 200, "{method} {target}: {} {}", answer.code, answer.body);
        assert_eq!(answer.code, code, "{method} {target}: {}", answer.body);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_is_not_as_it_must_be_is_not_used() {
    let world = World::start().await;
    observe(&world.index, false, &["shop-web"]).await;
    let answer = world.request("GET", PODS, "").await;
    assert_eq!(answer.code, 503);
    assert!(answer.body.contains("guards"), "{}", answer.body);
    // The namespace is another one than the claim knows: it was deleted and made again by somebody.
    observe(&world.index, true, &["shop-data"]).await;
    let answer = world.request("GET", PODS, "").await;
    assert_eq!(answer.code, 403, "{}", answer.body);
    assert!(world.take_seen().is_empty());
    observe(&world.index, true, &["shop-web"]).await;
    assert_eq!(world.request("GET", PODS, "").await.code, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn heads_and_bodies_are_bounded() {
    let world = World::start().await;
    let huge = format!("X-Junk: {}\r\n", "a".repeat(200 * 1024));
    let answer = world.request("GET", PODS, &huge).await;
    assert!(matches!(answer.code, 431 | 400 | 0), "{}", answer.code);
    let many: String = (0..500).map(|n| format!("X-{n}: a\r\n")).collect();
    let answer = world.request("GET", PODS, &many).await;
    assert!(matches!(answer.code, 431 | 400 | 0), "{}", answer.code);
    let long = format!("{PODS}?labelSelector={}", "a".repeat(70 * 1024));
    let answer = world.request("GET", &long, "").await;
    assert!(matches!(answer.code, 400 | 414 | 431 | 0), "{}", answer.code);
    // Two lengths, or a length and chunks, are one request too many.
    for smuggled in [
        "Content-Length: 4\r\nContent-Length: 5\r\n",
        "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
    ] {
        let raw = format!(
            "POST {PODS} HTTP/1.1\r\nHost: p\r\nAuthorization: Bearer {}\r\n{smuggled}\r\n0\r\n\r\nGET /k8s/clusters/demo/version HTTP/1.1\r\nHost: p\r\n\r\n",
            world.token
        );
        let mut stream = world.connect().await;
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        stream.write_all(raw.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = vec![];
        let _ =
            tokio::time::timeout(super::harness::DEADLINE, stream.read_to_end(&mut answer)).await.expect("an answer");
        let seen = world.take_seen();
        assert!(seen.iter().all(|s| s.target != "/version"), "{smuggled}: a second request was smuggled");
    }
    assert_eq!(world.request("GET", PODS, "").await.code, 200, "the listener goes on");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_in_the_subprotocol_is_used_and_removed() {
    use base64::Engine as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let world = World::start().await;
    let encoded = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(&world.token);
    let token = format!("base64url.bearer.authorization.k8s.io.{encoded}");
    for form in [PODS, NARROW] {
        for tail in ["/p/exec?command=sh", "/p/attach?stdin=1", "/p/portforward?ports=1", "?watch=1"] {
            let asked = async |protocols: &[&str]| {
                let lines: String =
                    protocols.iter().map(|line| format!("Sec-WebSocket-Protocol: {line}\r\n")).collect();
                let head = format!(
                    "GET {form}{tail} HTTP/1.1\r\nHost: p\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                     Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n{lines}\r\n"
                );
                let mut stream = world.connect().await;
                stream.write_all(head.as_bytes()).await.unwrap();
                let mut buf = [0; 2048];
                let read = tokio::time::timeout(super::harness::DEADLINE, stream.read(&mut buf)).await;
                let answer = String::from_utf8_lossy(&buf[..read.unwrap().unwrap()]).into_owned();
                (answer, world.take_seen())
            };
            for protocols in
                [vec![format!("{token}, v5.channel.k8s.io")], vec![token.clone(), "v5.channel.k8s.io".to_owned()]]
            {
                let (answer, seen) = asked(&protocols.iter().map(String::as_str).collect::<Vec<_>>()).await;
                // The recorder answers watches by a plain answer.
                let code = if tail == "?watch=1" { "HTTP/1.1 200" } else { "HTTP/1.1 101" };
                assert!(answer.starts_with(code), "{form}{tail}: {answer}");
                assert_eq!(seen[0].headers["sec-websocket-protocol"], "v5.channel.k8s.io", "{form}{tail}");
                assert!(!format!("{seen:?}").contains(&encoded), "{form}{tail}");
            }
            // Alone it is refused: nothing would be left to speak. So are two, and one that is none.
            for (protocols, code) in [
                (vec![token.clone()], "HTTP/1.1 400"),
                (vec![format!("{token}, {token}, v5.channel.k8s.io")], "HTTP/1.1 401"),
                (vec![format!("{}, v5.channel.k8s.io", &token[..token.len() - 4])], "HTTP/1.1 401"),
                (vec!["v5.channel.k8s.io".to_owned()], "HTTP/1.1 401"),
            ] {
                let (answer, seen) = asked(&protocols.iter().map(String::as_str).collect::<Vec<_>>()).await;
                assert!(answer.starts_with(code), "{form}{tail} {protocols:?}: {answer}");
                assert!(seen.is_empty(), "{form}{tail}");
            }
        }
    }
    assert!(!world.audit_text().await.contains(&encoded));
}
