//! History: what was in a namespace before it was its project's is not read by asking for an old resource version.

use bailiwick::store::Kind;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::harness::World;

const FORMS: [&str; 2] = ["/k8s/clusters/demo", "/k8s/clusters/demo/projects/shop"];

fn token(revision: i64) -> String {
    let token = json!({"v": "meta.k8s.io/v1", "rv": revision, "start": "a\u{0}"});
    BASE64_URL_SAFE_NO_PAD.encode(token.to_string())
}

/// What reaches back to a revision, in every way in which the API server answers from history.
fn back_to(revision: i64) -> Vec<(&'static str, String)> {
    let at = |rest: &str| format!("/api/v1/namespaces/shop-web/secrets?{rest}");
    vec![
        ("GET", at(&format!("resourceVersion={revision}&resourceVersionMatch=Exact"))),
        ("GET", at(&format!("%72esourceVersion=0{revision}&limit=5"))),
        ("GET", at(&format!("limit=5&continue={}", token(revision)))),
        ("GET", at(&format!("watch=1&resourceVersion={revision}"))),
        ("GET", at(&format!("watch=1&fieldSelector=metadata.name%3Da&resourceVersion={revision}"))),
        ("DELETE", at(&format!("resourceVersion={revision}&resourceVersionMatch=Exact"))),
        ("GET", format!("/apis/apps/v1/namespaces/shop-web/deployments?watch=1&resourceVersion={revision}")),
    ]
}

async fn since(world: &World, since: Value) {
    for namespace in ["shop-web", "shop-data"] {
        world.change(Kind::Claim, &format!("demo/{namespace}"), |claim| claim["since"] = since.clone()).await;
    }
}

async fn code(world: &World, method: &str, target: &str) -> u16 {
    match method {
        // A watch goes on; its head is enough.
        "GET" => world.code_over_h2(&world.token, target).await,
        _ => world.request(method, target, "").await.code,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_there_before_the_project_has_expired() {
    let world = World::start().await;
    since(&world, json!(20)).await;
    for form in FORMS {
        for (method, target) in back_to(19) {
            world.take_seen();
            let answer = world.request(method, &format!("{form}{target}"), "").await;
            assert_eq!(answer.code, 410, "{method} {target}: {answer:?}");
            assert!(answer.body.contains("\"reason\":\"Expired\""), "{answer:?}");
            let seen = world.take_seen();
            assert!(seen.iter().all(|seen| seen.target.ends_with("?limit=1")), "{target}: {seen:?}");
        }
        for (method, target) in back_to(20) {
            assert_eq!(code(&world, method, &format!("{form}{target}")).await, 200, "{method} {target}");
        }
    }
    // A namespace that has just come to the project, and is not prepared for it yet, has no past at all.
    since(&world, Value::Null).await;
    for (method, target) in back_to(30) {
        assert_eq!(code(&world, method, &format!("{}{target}", FORMS[0])).await, 410, "{method} {target}");
    }
    for present in ["", "?limit=5", "?resourceVersion=0"] {
        let target = format!("{}/api/v1/namespaces/shop-web/secrets{present}", FORMS[0]);
        assert_eq!(code(&world, "GET", &target).await, 200, "{present}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_cannot_be_understood_reaches_no_past() {
    let world = World::start().await;
    since(&world, json!(20)).await;
    let at = |rest: &str| format!("{}/api/v1/namespaces/shop-web/secrets?{rest}", FORMS[0]);
    for unknown in ["resourceVersion=%2b30", "resourceVersion=x", "limit=5&continue=e30", "limit=5&continue=%25"] {
        assert_eq!(code(&world, "GET", &at(unknown)).await, 410, "{unknown}");
    }
    for doubled in ["resourceVersion=30&resourceVersion=1", "resourceVersion=30&%72esourceVersion=1&watch=1"] {
        assert_eq!(code(&world, "GET", &at(doubled)).await, 400, "{doubled}");
    }
    // Across namespaces, too.
    let all = format!("{}/api/v1/secrets?resourceVersion=19&resourceVersionMatch=Exact", FORMS[0]);
    assert_eq!(code(&world, "GET", &all).await, 410);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resource_with_a_counter_of_its_own_begins_where_it_was_first_seen() {
    let world = World::start().await;
    since(&world, json!(20)).await;
    let events = |rest: &str| format!("{}/api/v1/namespaces/shop-web/events?{rest}", FORMS[0]);
    for (from, expected) in [(4, 410), (5, 200), (6, 200), (4, 410)] {
        let target = events(&format!("watch=1&resourceVersion={from}"));
        assert_eq!(code(&world, "GET", &target).await, expected, "{from}");
    }
}
