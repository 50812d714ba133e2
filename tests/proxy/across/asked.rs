//! What reaches the cluster of a request across namespaces, and what never does.

use std::collections::BTreeSet;

use bailiwick::domain::names::uid8;
use bailiwick::records::{Scoped, TokenScopes};
use bailiwick::store::Kind;
use serde_json::{Value, json};

use super::cluster::{Ask, Cluster, Reply, all_of, listed, nothing_is_left, pod_list, start};
use super::reader::{End, NARROW, ROOT, Reader};
use crate::harness::{BILLING_UID, CLUSTER_UID, PROJECT_UID, World, observe, shop_member};

const SHOP: [&str; 2] = ["shop-data", "shop-web"];

/// Each part is asked for in its namespace, in the caller's name, with the groups of that namespace and nothing else.
fn in_the_name_of(asks: &[Ask], user: &str, groups: &[(&str, &str)]) {
    assert_eq!(asks.len(), groups.len(), "{asks:?}");
    for ask in asks {
        let expected = groups.iter().find(|(namespace, _)| *namespace == ask.namespace);
        let (namespace, group) = expected.unwrap_or_else(|| panic!("nobody's: {ask:?}"));
        assert_eq!(ask.method, "GET");
        assert_eq!(ask.path, format!("/api/v1/namespaces/{namespace}/pods"));
        let mut names: Vec<&str> =
            ask.headers.keys().map(|name| name.as_str()).filter(|name| *name != "host").collect();
        names.sort_unstable();
        let extra = "impersonate-extra-bailiwick.dev%2ftoken";
        let all =
            ["accept", "audit-id", "authorization", extra, "impersonate-group", "impersonate-uid", "impersonate-user"];
        assert_eq!(names, all);
        assert_eq!(ask.all("impersonate-user"), [&format!("bailiwick:user:{user}")]);
        assert_eq!(ask.all("impersonate-uid"), [&format!("uid-{user}")]);
        assert_eq!(ask.all("impersonate-group"), [*group]);
        assert_eq!(ask.all("authorization"), ["Bearer forwarding-secret"]);
        assert_eq!(ask.all("accept"), ["application/json"]);
        assert_eq!(ask.all(extra).len(), 1);
    }
}

const HOSTILE: &str = "Connection: Authorization, Impersonate-User, Impersonate-Group\r\n\
    X-Remote-User: admin\r\nX-Remote-Group: system:masters\r\nX-Forwarded-Uri: /api/v1/pods\r\n\
    X-Original-URL: /api/v1/secrets\r\nX-HTTP-Method-Override: DELETE\r\nCookie: session=1\r\n\
    TE: trailers\r\nAudit-ID: forged\r\nAccept-Encoding: gzip\r\nIf-None-Match: \"a\"\r\nIf-Match: *\r\n\
    Content-Type: text/plain\r\nContent-Encoding: gzip\r\n";

#[tokio::test(flavor = "multi_thread")]
async fn each_part_is_asked_for_by_itself_in_the_callers_name() {
    let (world, cluster) = start().await;
    let groups = SHOP.map(|namespace| (namespace, shop_member()));
    let groups: Vec<(&str, &str)> = groups.iter().map(|(namespace, group)| (*namespace, group.as_str())).collect();
    for root in [ROOT, NARROW] {
        let target = format!("{root}/api/v1/pods");
        let answer = world.request("GET", &target, HOSTILE).await;
        assert_eq!((answer.code, listed(&answer.body)), (200, all_of(&SHOP)), "{root}");
        in_the_name_of(&cluster.take(), "jane", &groups);
        let mut watch = Reader::open(&world, &world.token, &format!("{target}?watch=1&timeoutSeconds=60")).await;
        assert_eq!(watch.code, 200, "{}", watch.head);
        let asks = cluster.take();
        assert!(asks.iter().all(|ask| ask.param("watch") == "true" && ask.param("allowWatchBookmarks") == "true"));
        in_the_name_of(&asks.into_iter().map(plain).collect::<Vec<_>>(), "jane", &groups);
        cluster.say("shop-web", super::cluster::added("shop-web", "new", 101));
        assert_eq!(watch.change().await.unwrap(), ("ADDED".into(), "new".into()));
        drop(watch);
        nothing_is_left(&world, &cluster, root).await;
        // Who asks to be somebody else is refused, and nothing is asked.
        for header in ["Impersonate-User: joe", "impersonate-group: system:masters", "Impersonate_Uid: 1"] {
            for query in ["", "?watch=1"] {
                let answer = world.request("GET", &format!("{target}{query}"), &format!("{header}\r\n")).await;
                assert_eq!(answer.code, 403, "{header}: {}", answer.body);
            }
        }
        assert!(cluster.take().is_empty());
    }
    // Somebody else has their own, and nobody has nothing.
    let (joe, nobody) = (world.issue("joe", Default::default()).await, world.issue("nobody", Default::default()).await);
    let answer = world.request_as(&joe, "GET", &format!("{ROOT}/api/v1/pods"), HOSTILE).await;
    assert_eq!(listed(&answer.body), all_of(&["billing-api"]));
    let owner = format!("bailiwick:project:billing:{}:owner", uid8(BILLING_UID));
    in_the_name_of(&cluster.take(), "joe", &[("billing-api", &owner)]);
    for token in [&nobody, &joe] {
        for query in ["", "?watch=1"] {
            let answer = world.request_as(token, "GET", &format!("{NARROW}/api/v1/pods{query}"), "").await;
            assert_eq!(answer.code, 403, "{}", answer.body);
            assert!(!answer.body.contains("shop-web") && !answer.body.contains("shop-data"), "{}", answer.body);
        }
    }
    assert!(cluster.take().is_empty());
}

/// A watch is asked for without `Accept`: what else is the same.
fn plain(mut ask: Ask) -> Ask {
    ask.headers.entry("accept").or_insert("application/json".parse().unwrap());
    ask
}

#[tokio::test(flavor = "multi_thread")]
async fn each_part_has_the_groups_of_its_own_project() {
    let (world, cluster) = start().await;
    let spec = json!({"subject": {"kind": "User", "name": "jane"}, "role": "viewer",
        "target": {"kind": "Project", "name": "billing"}});
    let status = json!({"state": "Active", "subjectUID": "uid-jane", "targetUID": BILLING_UID});
    world.create(Kind::Grant, "jane-billing", spec, status).await;
    let (member, viewer) = (shop_member(), format!("bailiwick:project:billing:{}:viewer", uid8(BILLING_UID)));
    let groups = [("billing-api", viewer.as_str()), ("shop-data", &member), ("shop-web", &member)];
    let answer = world.request("GET", &format!("{ROOT}/api/v1/pods"), "").await;
    assert_eq!(listed(&answer.body), all_of(&["billing-api", "shop-data", "shop-web"]));
    in_the_name_of(&cluster.take().into_iter().map(plain).collect::<Vec<_>>(), "jane", &groups);
    // Narrowed, the other project is not there.
    let answer = world.request("GET", &format!("{NARROW}/api/v1/pods"), "").await;
    assert_eq!(listed(&answer.body), all_of(&SHOP));
    in_the_name_of(&cluster.take().into_iter().map(plain).collect::<Vec<_>>(), "jane", &groups[1..]);
    // What a viewer may not read is left out, and not asked for.
    let answer = world.request("GET", &format!("{ROOT}/api/v1/secrets"), "").await;
    assert_eq!(answer.code, 200, "{}", answer.body);
    assert!(answer.head.contains("left out") && answer.head.contains("billing-api"), "{}", answer.head);
    assert!(cluster.take().iter().all(|ask| ask.namespace != "billing-api"));
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_can_be_merged_is_accepted() {
    let (world, cluster) = start().await;
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    for (accept, asked) in [
        ("application/json", "application/json"),
        ("*/*", "application/json"),
        ("application/vnd.kubernetes.protobuf, application/json", "application/json"),
        ("application/cbor, application/json;q=0.5", "application/json"),
        (&format!("{table},application/json") as &str, &format!("{table},application/json") as &str),
    ] {
        for query in ["", "?watch=1"] {
            let target = format!("{ROOT}/api/v1/pods{query}");
            if query.is_empty() {
                assert_eq!(world.request("GET", &target, &format!("Accept: {accept}\r\n")).await.code, 200, "{accept}");
            } else {
                let mut stream = world.connect().await;
                let head = super::reader::get(&world.token, &target, &format!("Accept: {accept}\r\n"));
                tokio::io::AsyncWriteExt::write_all(&mut stream, head.as_bytes()).await.unwrap();
                super::cluster::until("both are watched", || cluster.open() == 2, || cluster.open().to_string()).await;
            }
            let asks = cluster.take();
            assert_eq!(asks.len(), 2);
            assert!(asks.iter().all(|ask| ask.all("accept") == [asked]), "{accept}: {asks:?}");
            nothing_is_left(&world, &cluster, accept).await;
        }
    }
    for accept in ["application/vnd.kubernetes.protobuf", "application/cbor", "text/html", "application/json;q=0"] {
        for query in ["", "?watch=1"] {
            let target = format!("{ROOT}/api/v1/pods{query}");
            let answer = world.request("GET", &target, &format!("Accept: {accept}\r\n")).await;
            assert_eq!(answer.code, 406, "{accept}: {}", answer.body);
        }
    }
    assert!(cluster.take().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn other_methods_and_spellings_reach_nobody() {
    let (world, cluster) = start().await;
    for root in [ROOT, NARROW] {
        for (request, code) in [
            ("HEAD /api/v1/pods", 405),
            ("HEAD /api/v1/pods?watch=1", 405),
            ("HEAD /api/v1/namespaces", 405),
            ("OPTIONS /api/v1/pods", 400),
            ("TRACE /api/v1/pods", 400),
            ("LIST /api/v1/pods", 400),
            ("POST /api/v1/pods", 403),
            ("PUT /api/v1/pods", 403),
            ("PATCH /api/v1/pods", 403),
            ("DELETE /api/v1/pods", 403),
            ("DELETE /api/v1/pods?labelSelector=a", 403),
            ("DELETE /api/v1/namespaces", 403),
            // Another spelling of the path, which somebody else might read as a namespace's, or as the whole cluster's.
            ("GET /api/v1/pods/", 400),
            ("GET /api/v1//pods", 400),
            ("GET /api/v1/namespaces//pods", 400),
            ("GET /api/v1/./pods", 400),
            ("GET /api/v1/namespaces/%2e%2e/pods", 400),
            ("GET /api/v1/pods%2f", 400),
            ("GET /api/v1/pods;a=b", 400),
            ("GET /api/v1/watch/pods", 400),
            ("GET /api/v1/watch/namespaces", 400),
            ("GET /api/v1/pods?watch=1&watch=0", 400),
            ("GET /api/v1/pods?limit=1&limit=2", 400),
            ("GET /api/v1/pods?shardSelector=x", 400),
            ("GET /api/v1/pods?resourceVersion=1%26limit=2", 400),
            ("GET /api/v1/pods?labelSelector=%zz", 400),
            // Nobody's namespaces, and kinds that are in none.
            ("GET /api/v1/nodes", 403),
            ("GET /api/v1/nodes?watch=1", 403),
            ("GET /api/v1/persistentvolumes", 403),
            ("GET /apis/rbac.authorization.k8s.io/v1/clusterroles", 403),
            ("GET /api/v1/pods/namespaces/shop-web", 403),
        ] {
            let (method, path) = request.split_once(' ').unwrap();
            let answer = world.request(method, &format!("{root}{path}"), "Content-Length: 0\r\n").await;
            assert_eq!(answer.code, code, "{root}: {request}: {}", answer.body);
            let asks = cluster.take();
            assert!(asks.is_empty(), "{root}: {request}: {asks:?}");
        }
        // Another protocol is none for several namespaces.
        for protocol in ["websocket", "SPDY/3.1"] {
            let upgrade = format!("Connection: Upgrade\r\nUpgrade: {protocol}\r\n");
            let raw = super::reader::get(&world.token, &format!("{root}/api/v1/pods?watch=1"), &upgrade);
            let mut stream = world.connect().await;
            tokio::io::AsyncWriteExt::write_all(&mut stream, raw.as_bytes()).await.unwrap();
            let mut part = [0; 512];
            let reading = tokio::io::AsyncReadExt::read(&mut stream, &mut part);
            let read = tokio::time::timeout(crate::harness::DEADLINE, reading).await.unwrap().unwrap();
            assert!(part[..read].starts_with(b"HTTP/1.1 403"), "{}", String::from_utf8_lossy(&part[..read]));
            assert!(cluster.take().is_empty());
        }
        // The pair.
        assert_eq!(world.request("GET", &format!("{root}/api/v1/pods"), "Content-Length: 0\r\n").await.code, 200);
        assert_eq!(cluster.take().len(), 2);
    }
}

/// What the client selects by goes to each namespace in one spelling, whole, and takes nothing else along.
#[tokio::test(flavor = "multi_thread")]
async fn selectors_go_on_and_nothing_is_smuggled_in_them() {
    let (world, cluster) = start().await;
    let query = "labelSelector=a%3Db%26watch%3D1%26limit%3D9&fieldSelector=metadata.namespace%3Dbilling-api\
                 &%6cimit=2&pretty=true";
    let answer = world.request("GET", &format!("{ROOT}/api/v1/pods?{query}"), "").await;
    assert_eq!(answer.code, 200, "{}", answer.body);
    for ask in cluster.take() {
        assert_eq!(ask.param("labelSelector"), "a=b&watch=1&limit=9");
        assert_eq!(ask.param("fieldSelector"), "metadata.namespace=billing-api");
        assert!(!ask.is_watch());
        assert_eq!(ask.param("limit"), "2");
        assert!(SHOP.contains(&ask.namespace.as_str()));
    }
}

fn namespace(name: &str, uid: &str) -> Value {
    json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": name, "uid": uid, "resourceVersion": "9"}})
}

/// A cluster that shows all its namespaces to the service, strangers under a known name or UID among them.
fn all_namespaces(cluster: &Cluster) {
    cluster.script(|ask| {
        if ask.path != "/api/v1/namespaces" {
            return None;
        }
        let shown = [
            namespace("shop-web", "ns-shop-web"),
            namespace("shop-data", "ns-somebody-else"),
            namespace("stranger", "ns-shop-data"),
            namespace("billing-api", "ns-billing-api"),
            namespace("kube-system", "ns-kube-system"),
            namespace("shop-web", ""),
        ];
        if !ask.is_watch() {
            let mut list = pod_list("100", "", shown.to_vec());
            list["kind"] = "NamespaceList".into();
            return Some(Reply::json(&list));
        }
        let events: String = shown.iter().map(|ns| super::cluster::event("ADDED", ns)).collect();
        Some(Reply::Endless(events.into(), " \n".into(), std::time::Duration::from_millis(50)))
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn namespaces_are_asked_for_by_the_service_and_filtered() {
    let (world, cluster) = start().await;
    all_namespaces(&cluster);
    for root in [ROOT, NARROW] {
        let client = "labelSelector=a%3Db%29%2Cbailiwick.dev%2Fproject-uid&includeObject=None&fieldSelector=status.phase%3DActive";
        let target = format!("{root}/api/v1/namespaces?{client}");
        let answer = world.request("GET", &target, HOSTILE).await;
        assert_eq!(answer.code, 200, "{}", answer.body);
        let list: Value = serde_json::from_str(&answer.body).unwrap();
        assert_eq!(list["items"], json!([namespace("shop-web", "ns-shop-web")]), "by name and by UID");
        let mut watch = Reader::open(&world, &world.token, &format!("{root}/api/v1/namespaces?watch=1")).await;
        assert_eq!(watch.event().await.unwrap().1, namespace("shop-web", "ns-shop-web"));
        drop(watch);
        let asks = cluster.take();
        assert_eq!(asks.len(), 2, "{asks:?}");
        let selector = format!("bailiwick.dev/project-uid in ({PROJECT_UID})");
        assert_eq!(asks[0].param("labelSelector"), format!("{selector},a=b),bailiwick.dev/project-uid"));
        assert_eq!(asks[1].param("labelSelector"), selector);
        assert_eq!(asks[0].param("includeObject"), "", "rows without objects cannot be told apart");
        for ask in &asks {
            assert_eq!(ask.path, "/api/v1/namespaces");
            let mut names: Vec<&str> =
                ask.headers.keys().map(|name| name.as_str()).filter(|name| *name != "host").collect();
            names.sort_unstable();
            assert_eq!(names, ["accept", "audit-id", "authorization"], "nothing of the client, and nobody's name");
        }
        nothing_is_left(&world, &cluster, "namespaces").await;
    }
    // Who has none is not answered from the cluster.
    let nobody = world.issue("nobody", Default::default()).await;
    for query in ["", "?watch=1"] {
        let answer = world.request_as(&nobody, "GET", &format!("{ROOT}/api/v1/namespaces{query}"), "").await;
        assert_eq!(answer.code, 403, "{}", answer.body);
    }
    assert!(cluster.take().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limited_token_sees_what_is_within_its_limits() {
    let (world, cluster) = start().await;
    let spec = json!({"subject": {"kind": "User", "name": "jane"}, "role": "viewer",
        "target": {"kind": "Project", "name": "billing"}});
    let status = json!({"state": "Active", "subjectUID": "uid-jane", "targetUID": BILLING_UID});
    world.create(Kind::Grant, "jane-billing", spec, status).await;
    let scoped = |name: &str, uid: &str| vec![Scoped { name: name.into(), uid: uid.into() }];
    let all = ["billing-api", "shop-data", "shop-web"];
    let none: &[&str] = &[];
    let old = "00000000-0000-4000-8000-00000000000f";
    for (what, scopes, seen) in [
        ("unlimited", TokenScopes::default(), &all[..]),
        ("reading", TokenScopes { read_only: true, ..Default::default() }, &all),
        ("shop", TokenScopes { projects: scoped("shop", PROJECT_UID), ..Default::default() }, &SHOP),
        ("billing", TokenScopes { projects: scoped("billing", BILLING_UID), ..Default::default() }, &all[..1]),
        ("a shop that was", TokenScopes { projects: scoped("shop", old), ..Default::default() }, none),
        ("the cluster", TokenScopes { clusters: scoped("demo", CLUSTER_UID), ..Default::default() }, &all),
        ("a cluster that was", TokenScopes { clusters: scoped("demo", old), ..Default::default() }, none),
    ] {
        let token = world.issue("jane", scopes).await;
        let answer = world.request_as(&token, "GET", &format!("{ROOT}/api/v1/pods"), "").await;
        let asked: BTreeSet<String> = cluster.take().into_iter().map(|ask| ask.namespace).collect();
        assert_eq!(asked, seen.iter().map(|ns| (*ns).to_owned()).collect(), "{what}");
        let watched = format!("{ROOT}/api/v1/pods?watch=1&resourceVersion=100&timeoutSeconds=1");
        if seen.is_empty() {
            assert_eq!(answer.code, 403, "{what}: {}", answer.body);
            assert_eq!(world.request_as(&token, "GET", &watched, "").await.code, 403, "{what}");
            assert!(cluster.take().is_empty());
            continue;
        }
        assert_eq!(listed(&answer.body), all_of(seen), "{what}");
        let mut watch = Reader::open(&world, &token, &watched).await;
        assert_eq!(watch.rest().await, (String::new(), End::Whole), "{what}: what was listed may be watched");
        let asked: BTreeSet<String> = cluster.take().into_iter().map(|ask| ask.namespace).collect();
        assert_eq!(asked.len(), seen.len(), "{what}");
    }
}

/// A namespace that is not what the claim says, is nobody's.
#[tokio::test(flavor = "multi_thread")]
async fn strangers_under_a_known_name_are_left_out() {
    let (world, cluster) = start().await;
    let list = async |world: &World| world.request("GET", &format!("{ROOT}/api/v1/pods"), "").await;
    assert_eq!(listed(&list(&world).await.body), all_of(&SHOP));
    observe(&world.index, true, &["shop-web", "billing-api"]).await;
    assert_eq!(listed(&list(&world).await.body), all_of(&["shop-web"]));
    world
        .change(Kind::Claim, "demo/shop-web", |claim| {
            claim["project"] = json!("billing");
            claim["project_uid"] = json!(BILLING_UID);
        })
        .await;
    cluster.take();
    assert_eq!(list(&world).await.code, 403);
    observe(&world.index, false, &["shop-web", "shop-data"]).await;
    assert_eq!(list(&world).await.code, 503, "its guards are not in force");
    assert!(cluster.take().is_empty());
}
