//! Pages: where a list goes on is bound to who asked, for what, and among which namespaces.

use bailiwick::records::{Scoped, TokenScopes};
use bailiwick::store::Kind;
use serde_json::{Value, json};

use super::cluster::{Ask, PODS, Reply, all_of, listed, names, pod, pod_list, sound_list, start};
use super::reader::{NARROW, ROOT};
use crate::harness::{Answer, PROJECT_UID, World, observe};

const SHOP: [&str; 2] = ["shop-data", "shop-web"];

fn proceed(answer: &Answer) -> String {
    let list: Value = serde_json::from_str(&answer.body).unwrap_or_else(|why| panic!("{why}: {}", answer.body));
    list["metadata"]["continue"].as_str().unwrap_or_default().to_owned()
}

async fn page(world: &World, token: &str, root: &str, limit: usize, from: &str) -> Answer {
    let more = if from.is_empty() { String::new() } else { format!("&continue={from}") };
    world.request_as(token, "GET", &format!("{root}/api/v1/pods?limit={limit}{more}"), "").await
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_every_length_hold_everything_once_at_one_revision() {
    let (world, cluster) = start().await;
    for limit in 1..=2 * PODS + 1 {
        let (mut all, mut from) = (vec![], String::new());
        for n in 0.. {
            assert!(n <= 2 * PODS, "no end");
            let answer = page(&world, &world.token, ROOT, limit, &from).await;
            assert_eq!(answer.code, 200, "{}", answer.body);
            let names = listed(&answer.body);
            assert!(names.len() <= limit);
            all.extend(names);
            let exact = |ask: &Ask| match (ask.param("continue"), ask.param("resourceVersion")) {
                ("", "100") => ask.param("resourceVersionMatch") == "Exact",
                ("", "") => n == 0 && ask.namespace == "shop-data",
                (inner, "") => inner.starts_with("from-"),
                _ => false,
            };
            let asks = cluster.take();
            assert!(!asks.is_empty() && asks.iter().all(exact), "{limit}: {asks:?}");
            from = proceed(&answer);
            if from.is_empty() {
                break;
            }
        }
        assert_eq!(all, all_of(&SHOP), "{limit}");
    }
}

/// Between two pages the world changes. Each change is followed by a fresh start, which shows what is so now.
#[tokio::test(flavor = "multi_thread")]
async fn the_next_page_is_refused_once_the_set_has_changed() {
    const CASES: [(&str, u16, u16, usize); 8] = [
        ("nothing", 200, 200, 2 * PODS),
        ("a narrowed grant", 410, 200, PODS),
        ("a deleted grant", 403, 403, 0),
        ("a suspended account", 401, 401, 0),
        ("a deleted project", 403, 403, 0),
        ("a namespace made anew", 410, 200, PODS),
        ("a grant narrowed to where the page ended", 410, 200, PODS),
        ("a cluster without guards", 503, 503, 0),
    ];
    for (change, next, anew, count) in CASES {
        for root in [ROOT, NARROW] {
            let (world, cluster) = start().await;
            let token = world.token.clone();
            let first = page(&world, &token, root, 1, "").await;
            let from = proceed(&first);
            assert!(!from.is_empty(), "{}", first.body);
            match change {
                "a narrowed grant" => {
                    world.change(Kind::Grant, "jane-shop", |g| g["spec"]["namespaces"] = json!(["shop-web"])).await;
                }
                "a deleted grant" => {
                    world.delete(Kind::Grant, "jane-shop").await;
                }
                "a suspended account" => {
                    world.change(Kind::User, "jane", |u| u["spec"]["disabled"] = true.into()).await
                }
                "a deleted project" => {
                    let at = json!("2026-01-01T00:00:00Z");
                    world.change(Kind::Project, "shop", |p| p["metadata"]["deletionTimestamp"] = at).await;
                }
                "a namespace made anew" => {
                    world.change(Kind::Claim, "demo/shop-web", |c| c["namespace_uid"] = json!("ns-other")).await;
                }
                "a grant narrowed to where the page ended" => {
                    world.change(Kind::Grant, "jane-shop", |g| g["spec"]["namespaces"] = json!(["shop-data"])).await;
                }
                "a cluster without guards" => observe(&world.index, false, &["shop-web", "shop-data"]).await,
                _ => {}
            }
            cluster.take();
            let answer = page(&world, &token, root, 1, &from).await;
            assert_eq!(answer.code, next, "{change}: {}", answer.body);
            assert_eq!(cluster.take().is_empty(), next != 200, "{change}: nothing is asked of the cluster");
            let answer = world.request("GET", &format!("{root}/api/v1/pods"), "").await;
            assert_eq!(answer.code, anew, "{change}: {}", answer.body);
            if anew == 200 {
                assert_eq!(listed(&answer.body).len(), count, "{change}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_continue_token_is_good_for_its_question_only() {
    let (world, cluster) = start().await;
    let spec = json!({"subject": {"kind": "User", "name": "joe"}, "role": "member",
        "target": {"kind": "Project", "name": "shop"}});
    let status = json!({"state": "Active", "subjectUID": "uid-joe", "targetUID": PROJECT_UID});
    world.create(Kind::Grant, "joe-shop", spec, status).await;
    let first = page(&world, &world.token, NARROW, 1, "").await;
    let from = proceed(&first);
    let shop = vec![Scoped { name: "shop".into(), uid: PROJECT_UID.into() }];
    let limited = world.issue("jane", TokenScopes { projects: shop, ..Default::default() }).await;
    let (joe, again) = (world.issue("joe", Default::default()).await, world.issue("jane", Default::default()).await);
    cluster.take();
    let own = "api/v1/pods";
    for (what, token, root, resource, from) in [
        ("somebody else with the same right", &joe, NARROW, own, from.as_str()),
        ("a token with other limits", &limited, NARROW, own, &from),
        ("the other form of URL", &world.token, ROOT, own, &from),
        ("another resource", &world.token, NARROW, "api/v1/configmaps", &from),
        ("another group", &world.token, NARROW, "apis/apps/v1/pods", &from),
        ("another version", &world.token, NARROW, "api/v2/pods", &from),
        ("another selector", &world.token, NARROW, "api/v1/pods?labelSelector=a", &from),
        ("the namespaces", &world.token, NARROW, "api/v1/namespaces", &from),
        ("altered", &world.token, NARROW, own, &from[..from.len() - 1]),
        ("a cluster's own", &world.token, NARROW, own, "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MTAwLCJzdGFydCI6IngifQ"),
        ("long", &world.token, NARROW, own, &"A".repeat(9_000)),
    ] {
        let mark = if resource.contains('?') { '&' } else { '?' };
        let answer =
            world.request_as(token, "GET", &format!("{root}/{resource}{mark}limit=1&continue={from}"), "").await;
        let code = if what == "another group" { 403 } else { 410 };
        assert_eq!(answer.code, code, "{what}: {}", answer.body);
        assert!(cluster.take().is_empty(), "{what}");
    }
    // The pair: the account's own, with any token of the same limits; once and again.
    for token in [&world.token, &again, &again] {
        let answer = page(&world, token, NARROW, 1, &from).await;
        assert_eq!(listed(&answer.body), ["shop-data/shop-data-2"]);
    }
    // And not for a watch.
    let watch = world.request("GET", &format!("{NARROW}/api/v1/pods?watch=1&continue={from}"), "").await;
    assert_eq!(watch.code, 400, "{}", watch.body);
}

/// The cluster's revision moved on between two pages, or its own token is too old: the client lists anew.
#[tokio::test(flavor = "multi_thread")]
async fn a_page_at_another_revision_is_none() {
    let (world, cluster) = start().await;
    let from = proceed(&page(&world, &world.token, ROOT, PODS, "").await);
    for (what, reply) in [
        ("another revision", pod_list("101", "", vec![pod("shop-web", "x", "101")])),
        ("no revision", pod_list("", "", vec![pod("shop-web", "x", "101")])),
    ] {
        cluster.script(move |_| Some(Reply::json(&reply)));
        let answer = page(&world, &world.token, ROOT, PODS, &from).await;
        assert_eq!(answer.code, 410, "{what}: {}", answer.body);
    }
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Expired", "code": 410,
        "message": "the provided continue parameter is too old"});
    cluster.script(move |_| Some(Reply::Whole(410, vec![], status.to_string().into())));
    let answer = page(&world, &world.token, ROOT, PODS, &from).await;
    assert_eq!(answer.code, 410, "{}", answer.body);
    assert!(answer.body.contains("too old") && answer.body.contains("\"Expired\""), "{}", answer.body);
    cluster.sound();
    assert_eq!(listed(&page(&world, &world.token, ROOT, PODS, &from).await.body), all_of(&SHOP[1..]));
}

/// A cluster gives more than was asked for, and another revision when it is asked again for less.
#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_is_asked_for_again_must_be_of_the_same_list() {
    let (world, cluster) = start().await;
    for (revision, code) in [("100", 200), ("101", 410), ("", 410)] {
        let again = std::sync::atomic::AtomicUsize::new(0);
        cluster.script(move |ask| {
            if ask.namespace != "shop-web" {
                return None;
            }
            // Whole at first, whatever was asked for; then a page of another list.
            let mut list = sound_list(ask);
            if again.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 0 {
                list["items"] = names("shop-web").iter().map(|name| pod("shop-web", name, "50")).collect();
            } else {
                list["metadata"]["resourceVersion"] = revision.into();
            }
            Some(Reply::json(&list))
        });
        let from = proceed(&page(&world, &world.token, ROOT, 2, "").await);
        let answer = page(&world, &world.token, ROOT, 2, &from).await;
        assert_eq!(answer.code, code, "{revision}: {}", answer.body);
        if code == 200 {
            assert_eq!(listed(&answer.body), ["shop-data/shop-data-3", "shop-web/shop-web-1"]);
        }
    }
}
