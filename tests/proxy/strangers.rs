//! What is somebody else's stays theirs, on every route and over every protocol: of what was answered before, of what is
//! not there for whoever asks, and of what a token or a role is limited to.

use bailiwick::records::{Scoped, TokenScopes};
use bailiwick::resources::token::Audience;
use bailiwick::store::Kind;
use serde_json::json;

use super::every_route::{nothing_reached, told, tried};
use super::harness::{BILLING_UID, PROJECT_UID};
use super::matrix::{Door, Route, Site, cluster_routes, guarded_routes};
use super::wire::{PROTOCOLS, Protocol, Raw};

/// Later than any test.
const FOREVER: &str = "2100-01-01T00:00:00Z";

/// CVE-2025-14269: what one client was given, over a connection that others share, is not what the next one is given.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_an_answer_is_kept_for_the_next() {
    let site = Site::start().await;
    let stranger = (
        site.world.issue("nobody", TokenScopes::default()).await,
        site.world.issue_for("nobody", TokenScopes::default(), Audience::Api, FOREVER).await,
    );
    let mut requests = 0;
    for protocol in PROTOCOLS {
        for route in guarded_routes().iter().filter(|route| route.protocols().contains(&protocol)) {
            if route.target.ends_with("/logout") || route.target.starts_with("/audit") || route.upgrade.is_some() {
                continue;
            }
            let name = format!("{protocol:?} {}", route.name());
            let token = if route.door == Door::Cluster { &stranger.0 } else { &stranger.1 };
            let (anonymous, by_stranger) = (route.raw(), route.raw().bearer(token));
            let mut cold = site.asker(protocol);
            let before = (told(&cold.ask(&anonymous).await), told(&cold.ask(&by_stranger).await));
            site.world.take_seen();
            // A stream takes its connection along; all others are followed on the same one.
            let mut asker = site.asker(protocol);
            let own = asker.ask(&route.raw().bearer(site.token(route.door))).await;
            site.world.take_seen();
            let known = own.all("etag").first().map_or("*".to_owned(), |tag| (*tag).to_owned());
            for knowing in [false, true] {
                requests += 2;
                let again = |raw: &Raw| match knowing {
                    true => raw.clone().field("if-none-match", &known).field("if-match", &known),
                    false => raw.clone(),
                };
                assert_eq!(told(&asker.ask(&again(&anonymous)).await), before.0, "{name}: nobody, after jane");
                let by_stranger = asker.ask(&again(&by_stranger)).await;
                if !knowing {
                    assert_eq!(told(&by_stranger), before.1, "{name}: a stranger, after jane");
                }
            }
            if route.door == Door::Cluster {
                nothing_reached(&site, &name);
                assert!(before.1.0 >= 400 || before.1.2.contains("SelfSubject"), "{name}: {:?}", before.1);
            }
        }
    }
    tried("after somebody else, on the same connection", requests);
}

/// What is foreign and what does not exist are told in the same words and headers, on every route and protocol.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_foreign_cannot_be_told_from_nothing_on_any_route() {
    let site = Site::start().await;
    let mut requests = 0;
    // Each of them by the name that is replaced in what is told.
    let places = [
        (Door::Cluster, "shop-web", vec!["billing-api", "no-such-ns", "kube-system", "default"]),
        (Door::Cluster, "projects/shop/", vec!["projects/billing/", "projects/no-such/"]),
        (Door::Api, "joe", vec!["joe", "no-such"]),
        (Door::Api, "billing", vec!["billing", "no-such"]),
    ];
    for protocol in PROTOCOLS {
        let mut asker = site.asker(protocol);
        for (door, word, others) in &places {
            let routes = guarded_routes().into_iter().filter(|route| route.door == *door);
            for route in routes.filter(|route| route.protocols().contains(&protocol) && route.target.contains(word)) {
                let mut first = None;
                for other in others {
                    requests += 1;
                    let mut asked = route.clone();
                    asked.target = asked.target.replace(word, other);
                    if let Some((_, body)) = &mut asked.body {
                        *body = body.replace(word, other);
                    }
                    let reply = asker.ask(&asked.raw().bearer(site.token(*door))).await;
                    let name = format!("{protocol:?} {}", asked.name());
                    let bare = |name: &str| name.trim_start_matches("projects/").trim_end_matches('/').to_owned();
                    let (code, fields, body) = told(&reply);
                    let review = asked.target.contains("selfsubject");
                    assert!(code >= 400 || review || *door == Door::Api, "{name}: {reply:?}");
                    assert!(!review || !body.contains("\"allowed\":true"), "{name}: {body}");
                    let told = (code, fields, body.replace(&bare(other), "NAME"));
                    assert_eq!(*first.get_or_insert_with(|| told.clone()), told, "{name}");
                    nothing_reached(&site, &name);
                }
            }
        }
    }
    tried("foreign and missing", requests);
}

fn limited(name: &str, uid: &str) -> Vec<Scoped> {
    vec![Scoped { name: name.into(), uid: uid.into() }]
}

/// CVE-2026-22806: a limited token is limited on every route.
#[tokio::test(flavor = "multi_thread")]
async fn limits_of_a_token_hold_on_every_route() {
    let site = Site::start().await;
    let world = &site.world;
    let all = TokenScopes::default;
    let elsewhere = [
        world.issue("jane", TokenScopes { clusters: limited("prod", "uid-prod"), ..all() }).await,
        world.issue("jane", TokenScopes { projects: limited("billing", BILLING_UID), ..all() }).await,
        // The names are right, and those who had them are gone.
        world.issue("jane", TokenScopes { clusters: limited("demo", "uid-before"), ..all() }).await,
        world.issue("jane", TokenScopes { projects: limited("shop", "uid-before"), ..all() }).await,
    ];
    let read_only = world.issue("jane", TokenScopes { read_only: true, ..all() }).await;
    let in_shop = world.issue("jane", TokenScopes { projects: limited("shop", PROJECT_UID), ..all() }).await;
    let mut requests = 0;
    for protocol in PROTOCOLS {
        let mut asker = site.asker(protocol);
        for route in cluster_routes().iter().filter(|route| route.protocols().contains(&protocol)) {
            let name = format!("{protocol:?} {}", route.name());
            for token in &elsewhere {
                requests += 1;
                let reply = asker.ask(&route.raw().bearer(token)).await;
                let review = route.target.contains("selfsubject");
                assert!(reply.code == 403 || (review && reply.code == 201), "{name}: {reply:?}");
                assert!(
                    !reply.body.contains("\"allowed\":true") && !reply.body.contains("\"pods\""),
                    "{name}: {reply:?}"
                );
                nothing_reached(&site, &name);
            }
            requests += 2;
            let reply = asker.ask(&route.raw().bearer(&read_only)).await;
            if route.mutates() {
                assert_eq!(reply.code, 403, "{name}: {reply:?}");
                nothing_reached(&site, &name);
            } else {
                assert!(reply.code < 400, "{name}: {reply:?}");
                site.world.take_seen();
            }
            let (own, full) =
                (asker.ask(&route.raw().bearer(&in_shop)).await, asker.ask(&route.raw().bearer(&world.token)).await);
            assert_eq!(own.code, full.code, "{name}: within its limits it is as good as any: {own:?}");
            site.world.take_seen();
        }
    }
    tried("with limited tokens", requests);
}

/// k/k #78741, #133515: a session in a Pod is more than a read, by whatever method and protocol it is asked for.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_may_only_read_has_no_session_by_any_way() {
    let site = Site::start().await;
    let world = &site.world;
    // One that may read all, and one that may `get` sessions and not `create` them.
    let sessions =
        json!([{"apiGroups": [""], "resources": ["pods/exec", "pods/attach", "pods/portforward"], "verbs": ["get"]}]);
    world.create(Kind::AccessRole, "peeker", json!({"base": "view", "rules": sessions}), json!({})).await;
    world.change(Kind::Project, "shop", |project| project["spec"]["roles"] = json!(["peeker"])).await;
    for role in ["viewer", "peeker"] {
        let target = json!({"kind": "Project", "name": "shop"});
        let spec = json!({"subject": {"kind": "User", "name": "nobody"}, "role": role, "target": target});
        let status = json!({"state": "Active", "subjectUID": "uid-nobody", "targetUID": PROJECT_UID});
        world.create(Kind::Grant, &format!("nobody-{role}"), spec, status).await;
    }
    let viewer = site.world.issue("nobody", TokenScopes::default()).await;
    let mut requests = 0;
    let session = |route: &&Route| ["/exec", "/attach", "/portforward"].iter().any(|word| route.target.contains(word));
    for protocol in PROTOCOLS {
        let mut asker = site.asker(protocol);
        for route in cluster_routes().iter().filter(session) {
            for (method, upgrade) in [("GET", None), ("GET", route.upgrade), ("POST", None), ("POST", route.upgrade)] {
                if upgrade.is_some() && protocol == Protocol::Http2 {
                    continue;
                }
                requests += 2;
                let route = Route { method, upgrade, body: None, ..route.clone() };
                let name = format!("{protocol:?} {}", route.name());
                let reply = asker.ask(&route.raw().field("content-length", "0").bearer(&viewer)).await;
                assert!(reply.code == 403 && reply.is_status(), "{name}: {reply:?}");
                nothing_reached(&site, &name);
                let reply = asker.ask(&route.raw().field("content-length", "0").bearer(&site.world.token)).await;
                assert!(matches!(reply.code, 101 | 200), "{name}: {reply:?}");
                site.world.take_seen();
            }
        }
        let pods = Raw::new("GET", "/k8s/clusters/demo/api/v1/namespaces/shop-web/pods").bearer(&viewer);
        assert_eq!(asker.ask(&pods).await.code, 200);
        site.world.take_seen();
    }
    tried("sessions of whoever may read", requests);
}
