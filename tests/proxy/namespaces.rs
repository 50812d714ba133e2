//! Acts on namespaces with hostile bodies: what is not read whole and understood is not done, and reaches no cluster.

use bailiwick::store::Kind;
use serde_json::json;

use super::harness::{Answer, World};

const PATH: &str = "/k8s/clusters/demo/api/v1/namespaces";

async fn with_prefix() -> World {
    let world = World::start().await;
    world
        .change(Kind::Project, "shop", |project| {
            project["spec"]["clusters"][0]["prefix"] = json!("shop-");
            project["spec"]["clusters"][0]["maxNamespaces"] = json!(9);
        })
        .await;
    // An owner, so that changes of metadata are theirs.
    world.change(Kind::Grant, "jane-shop", |grant| grant["spec"]["role"] = json!("owner")).await;
    world
}

async fn send(world: &World, method: &str, target: &str, content_type: &str, body: &[u8]) -> Answer {
    let token = &world.token;
    let kind = if content_type.is_empty() { String::new() } else { format!("Content-Type: {content_type}\r\n") };
    let head = format!(
        "{method} {target} HTTP/1.1\r\nHost: p\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n{kind}Content-Length: {}\r\n\r\n",
        body.len()
    );
    Answer::read(&world.raw([head.as_bytes(), body].concat()).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_is_made_of_what_was_understood() {
    let world = with_prefix().await;
    let body =
        json!({"kind": "Namespace", "metadata": {"name": "shop-new", "labels": {"tenant.bailiwick.dev/a": "b"}}});
    let answer = send(&world, "POST", PATH, "application/json", body.to_string().as_bytes()).await;
    assert_eq!(answer.code, 504, "it is only recorded: {answer:?}");
    let created = std::mem::take(&mut *world.acts.created.lock());
    assert_eq!(created.len(), 1);
    assert_eq!((created[0].name.as_str(), created[0].project.as_str()), ("shop-new", "shop"));
    // The later of two is what is read, and what is done.
    let twice = br#"{"metadata": {"name": "billing-api", "name": "shop-two"}}"#;
    send(&world, "POST", PATH, "application/json", twice).await;
    let twice = br#"{"metadata": {"name": "shop-two", "name": "billing-x"}}"#;
    assert_eq!(send(&world, "POST", PATH, "application/json", twice).await.code, 403);
    let created = std::mem::take(&mut *world.acts.created.lock());
    assert_eq!(created.iter().map(|new| new.name.as_str()).collect::<Vec<_>>(), ["shop-two"]);
    assert!(world.take_seen().is_empty(), "nothing reaches the cluster");
}

/// `kubectl apply --server-side` makes what is not there: by the same rules as any creation, of the name that both say.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_applied_by_the_server_is_made_where_it_is_not_there() {
    let world = with_prefix().await;
    let apply = "application/apply-patch+yaml";
    let named = |name: &str| json!({"kind": "Namespace", "metadata": {"name": name}}).to_string();
    for (at, content_type, body, code) in [
        ("shop-new", apply, named("shop-new"), 504),
        ("shop-new", apply, named("shop-other"), 400),
        ("shop-new", apply, named("billing-api"), 400),
        ("shop-new", apply, String::new(), 400),
        ("shop-new", "application/merge-patch+json", named("shop-new"), 404),
        ("shop-new", "application/strategic-merge-patch+json", named("shop-new"), 404),
        ("billing-api", apply, named("billing-api"), 403),
        ("billing-new", apply, named("billing-new"), 403),
        ("kube-system", apply, named("kube-system"), 403),
        ("shop-", apply, named("shop-"), 403),
    ] {
        let answer = send(&world, "PATCH", &format!("{PATH}/{at}"), content_type, body.as_bytes()).await;
        assert_eq!(answer.code, code, "{at} {content_type} {body}: {answer:?}");
        let created: Vec<String> = world.acts.created.lock().drain(..).map(|new| new.name).collect();
        assert_eq!(created, if code == 504 { vec![at] } else { vec![] }, "{at} {content_type} {body}");
    }
    // Nor what is applied to a part of one that is not there.
    let status = send(&world, "PATCH", &format!("{PATH}/shop-new/status"), apply, named("shop-new").as_bytes()).await;
    assert!(matches!(status.code, 403 | 404), "{status:?}");
    assert!(world.acts.created.lock().is_empty() && world.take_seen().is_empty());
}

/// Helm looks for what it is going to install before it makes the namespace.
#[tokio::test(flavor = "multi_thread")]
async fn one_object_of_a_namespace_that_could_be_made_is_not_found() {
    let world = with_prefix().await;
    for (method, rest, code) in [
        ("GET", "shop-new/configmaps/web", 404),
        ("GET", "shop-new/pods/web/log", 403),
        ("GET", "shop-new/pods/web/exec?command=sh", 403),
        ("GET", "shop-new/configmaps", 403),
        ("GET", "shop-new/configmaps?watch=true", 403),
        ("POST", "shop-new/configmaps", 403),
        ("PUT", "shop-new/configmaps/web", 403),
        ("DELETE", "shop-new/configmaps/web", 403),
        ("GET", "billing-new/configmaps/web", 403),
        ("GET", "billing-api/configmaps/web", 403),
        ("GET", "kube-system/configmaps/web", 403),
        ("GET", "shop/configmaps/web", 403),
    ] {
        let answer = world.request_as(&world.token, method, &format!("{PATH}/{rest}"), "Content-Length: 0\r\n").await;
        assert_eq!(answer.code, code, "{method} {rest}: {}", answer.body);
        assert_eq!(answer.body.contains("\"reason\":\"NotFound\""), code == 404, "{method} {rest}: {}", answer.body);
    }
    assert!(world.take_seen().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_understood_makes_nothing() {
    let world = with_prefix().await;
    let large = format!(
        r#"{{"metadata": {{"name": "shop-x", "annotations": {{"tenant.bailiwick.dev/a": "{}"}}}}}}"#,
        "x".repeat(70_000)
    );
    let deep = format!("{}{}", "[".repeat(30_000), "]".repeat(30_000));
    let new = |extra: &str| format!(r#"{{"metadata": {{"name": "shop-x"{extra}}}}}"#);
    let bodies = [
        (PATH.to_owned(), "application/json", large, 413),
        (PATH.to_owned(), "application/json", deep, 400),
        (PATH.to_owned(), "application/json", String::new(), 400),
        (PATH.to_owned(), "application/json", "[]".into(), 400),
        (PATH.to_owned(), "application/json", "null".into(), 400),
        (PATH.to_owned(), "application/json", r#"{"metadata": []}"#.into(), 400),
        (PATH.to_owned(), "application/json", r#"{"metadata": {"name": ["shop-x"]}}"#.into(), 422),
        (PATH.to_owned(), "application/json", r#"{"Metadata": {"Name": "shop-x"}}"#.into(), 422),
        (PATH.to_owned(), "application/json", r#"{"metadata": {"generateName": "shop-"}}"#.into(), 422),
        (PATH.to_owned(), "application/json", r#"{"metadata": {"name": "shop-x"}, "kind": "Pod"}"#.into(), 400),
        (
            PATH.to_owned(),
            "application/json",
            r#"{"metadata": {"name": "shop-x"}, "spec": {"finalizers": ["a/b"]}}"#.into(),
            422,
        ),
        (PATH.to_owned(), "application/json", new(r#", "finalizers": ["a/b"]"#), 422),
        (PATH.to_owned(), "application/json", new(r#", "ownerReferences": [{}]"#), 422),
        (PATH.to_owned(), "application/json", new(r#", "resourceVersion": "1""#), 422),
        (PATH.to_owned(), "application/json", new(r#", "labels": {"tenant.bailiwick.dev/a": 1}"#), 422),
        (PATH.to_owned(), "application/json", new(r#", "labels": {"tenant.bailiwick.dev/": "a"}"#), 422),
        (PATH.to_owned(), "application/json", new(r#", "labels": {"tenant.bailiwick.dev/a": "a b"}"#), 422),
        (
            PATH.to_owned(),
            "application/json",
            new(r#", "labels": {"pod-security.kubernetes.io/enforce": "privileged"}"#),
            403,
        ),
        (PATH.to_owned(), "application/json", new(r#", "labels": {"name": "kube-system"}"#), 403),
        (PATH.to_owned(), "application/json", new(r#", "annotations": {"bailiwick.dev/adopt": "x"}"#), 403),
        (PATH.to_owned(), "application/yaml", new(""), 415),
        (PATH.to_owned(), "application/cbor", new(""), 415),
        (PATH.to_owned(), "", new(""), 415),
        (PATH.to_owned(), "application/vnd.kubernetes.protobuf", new(""), 400),
        (PATH.to_owned(), "application/merge-patch+json", new(""), 415),
        (format!("{PATH}?dryRun=None"), "application/json", new(""), 400),
        (format!("{PATH}?surprise=1"), "application/json", new(""), 400),
    ];
    for (target, content_type, body, code) in bodies {
        let answer = send(&world, "POST", &target, content_type, body.as_bytes()).await;
        assert_eq!(
            answer.code,
            code,
            "{target} {content_type} {}: {answer:?}",
            body.chars().take(120).collect::<String>()
        );
    }
    assert!(world.acts.created.lock().is_empty() && world.take_seen().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_is_forwarded_as_it_was_read() {
    let world = with_prefix().await;
    let path = format!("{PATH}/shop-web");
    let good =
        br#"{"metadata": {"labels": {"istio-injection": "enabled"}, "labels": {"tenant.bailiwick.dev/a": "b"}}}"#;
    let answer = send(&world, "PATCH", &path, "application/merge-patch+json", good).await;
    assert_eq!(answer.code, 200, "{answer:?}");
    // The first of the two maps is not there any more.
    let only = br#"{"metadata":{"labels":{"tenant.bailiwick.dev/a":"b"}}}"#.len();
    assert_eq!(*world.wholes.lock(), [only]);
    world.take_seen();
    for (method, content_type, body, code) in [
        ("PATCH", "application/merge-patch+json", r#"{"metadata": {"labels": {"a": "b"}}}"#, 403),
        ("PATCH", "application/merge-patch+json", r#"{"metadata": {"labels": null}}"#, 422),
        ("PATCH", "application/merge-patch+json", r#"{"metadata": null}"#, 422),
        ("PATCH", "application/merge-patch+json", r#"{"status": {"phase": "Terminating"}}"#, 422),
        ("PATCH", "application/strategic-merge-patch+json", r#"{"metadata": {"$retainKeys": ["name"]}}"#, 422),
        (
            "PATCH",
            "application/json-patch+json",
            r#"[{"op": "replace", "path": "/metadata/labels", "value": {}}]"#,
            422,
        ),
        (
            "PATCH",
            "application/json-patch+json",
            r#"[{"op": "move", "from": "/metadata/uid", "path": "/metadata/labels/tenant.bailiwick.dev~1a"}]"#,
            422,
        ),
        (
            "PATCH",
            "application/json-patch+json",
            r#"[{"op": "add", "path": "/metadata/labels/bailiwick.dev~1project", "value": "billing"}]"#,
            403,
        ),
        (
            "PATCH",
            "application/json-patch+json",
            r#"[{"op": "remove", "path": "/metadata/labels/kubernetes.io~1metadata.name"}]"#,
            403,
        ),
        ("PATCH", "application/apply-patch+yaml", "metadata:\n  labels: {tenant.bailiwick.dev/a: b}\n", 400),
        ("PATCH", "application/apply-patch+cbor", "{}", 415),
        ("PATCH", "application/json", "{}", 415),
        ("PUT", "application/json", r#"{"metadata": {"name": "shop-web", "labels": {}}}"#, 405),
        ("PATCH", "application/merge-patch+json", "", 400),
    ] {
        let answer = send(&world, method, &path, content_type, body.as_bytes()).await;
        assert_eq!(answer.code, code, "{method} {content_type} {body}: {answer:?}");
    }
    for sub in ["status", "finalize"] {
        let answer = send(&world, "PUT", &format!("{path}/{sub}"), "application/json", b"{}").await;
        assert_eq!(answer.code, 403, "{sub}: {answer:?}");
    }
    assert!(world.take_seen().is_empty(), "nothing of it reaches the cluster");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_asks_for_nothing_that_is_not_done() {
    let world = with_prefix().await;
    // Declared until now, so that it is refused for that alone.
    let path = format!("{PATH}/shop-web");
    assert_eq!(send(&world, "DELETE", &path, "", b"").await.code, 403);
    world
        .change(Kind::Project, "shop", |project| {
            project["spec"]["clusters"][0]["namespaces"] = json!(["shop-data"]);
        })
        .await;
    for (body, code) in [
        (r#"{"propagationPolicy": "Orphan"}"#, 422),
        (r#"{"dryRun": ["None"]}"#, 422),
        (r#"{"preconditions": {"uid": "another"}}"#, 409),
        (r#"{"preconditions": {"resourceVersion": "1"}}"#, 400),
        (r#"{"preconditions": {"name": "x"}}"#, 422),
        (r#"{"surprise": true}"#, 422),
        ("[]", 400),
        ("{", 400),
    ] {
        let answer = send(&world, "DELETE", &path, "application/json", body.as_bytes()).await;
        assert_eq!(answer.code, code, "{body}: {answer:?}");
    }
    let dry = send(&world, "DELETE", &path, "application/json", br#"{"dryRun": ["All"]}"#).await;
    assert_eq!(dry.code, 200, "{dry:?}");
    assert!(world.acts.deleted.lock().is_empty() && world.take_seen().is_empty());
    send(&world, "DELETE", &path, "application/json", br#"{"preconditions": {"uid": "ns-shop-web"}}"#).await;
    assert_eq!(*world.acts.deleted.lock(), ["shop-web"]);
    for foreign in ["billing-api", "billing-none", "kube-system"] {
        assert_eq!(send(&world, "DELETE", &format!("{PATH}/{foreign}"), "", b"").await.code, 403, "{foreign}");
    }
    assert_eq!(send(&world, "DELETE", &format!("{PATH}/shop-none"), "", b"").await.code, 404);
    assert_eq!(world.acts.deleted.lock().len(), 1);
}
