use http::Method;
use serde_json::{Value, json};

use super::harness::{Server, grant, object};
use crate::audit::{Stage, Surface};
use crate::records::{ClusterCredential, Scoped, TokenScopes};
use crate::resources::token::Audience;
use crate::store::{Key, Kind};

const GOOD: &str = "correct horse battery staple 42";
const BETTER: &str = "wrong donkey charger paperclip 17";

#[tokio::test]
async fn signing_in_and_out() {
    let server = Server::start().await;
    let anonymous = server.anonymous();
    server.user("jane").await;
    server.accounts.set_password("jane", GOOD, true).await.unwrap();
    let login = |body: Value| {
        let anonymous = anonymous.clone();
        async move { anonymous.act("/auth/login", body).await }
    };
    let wrong = login(json!({"username": "jane", "password": "x"})).await.refused(401);
    let unknown = login(json!({"username": "nobody", "password": "x"})).await.refused(401);
    assert_eq!(wrong, unknown);
    let answer = login(json!({"username": "jane", "password": GOOD})).await;
    assert_eq!((answer.status.as_u16(), &answer.body["reason"]), (403, &json!("PasswordChangeRequired")));
    login(json!({"username": "jane", "password": GOOD, "newPassword": "short"})).await.refused(422);
    login(json!({"username": "jane", "password": GOOD, "more": 1})).await.refused(400);
    let signed_in = login(json!({"username": "jane", "password": GOOD, "newPassword": BETTER})).await.ok();
    assert_eq!(signed_in["user"], "jane");
    let jane = anonymous.with_token(signed_in["token"].as_str().unwrap());
    assert_eq!(jane.get("self").await.ok()["user"], "jane");
    jane.act("/auth/logout", json!({})).await.ok();
    jane.get("self").await.refused(401);

    let records = server.records().await;
    let auth: Vec<_> =
        records.iter().filter(|r| r.surface == Surface::Auth).map(|r| (r.stage, r.what.user.as_str())).collect();
    assert!(auth.contains(&(Stage::Refused, "jane")) && auth.contains(&(Stage::Outcome, "jane")), "{auth:?}");
    assert!(auth.contains(&(Stage::Refused, "")), "a name that nobody has is not recorded: {auth:?}");
    let text = serde_json::to_string(&records).unwrap();
    // Only what wrote something had its intent on disk before; the rest cannot make the disk busy.
    let intents = records.iter().filter(|r| (r.surface, r.stage) == (Surface::Auth, Stage::Intent));
    let verbs: Vec<_> = intents.map(|r| r.what.verb.as_str()).collect();
    assert_eq!(verbs, ["login", "login", "logout"], "a weak new password, the sign-in and the sign-out");
    for secret in [GOOD, BETTER, signed_in["token"].as_str().unwrap()] {
        assert!(!text.contains(secret));
    }
}

#[tokio::test]
async fn suspension_is_at_once_and_for_good() {
    let server = Server::start().await;
    let root = server.client("root").await;
    server.user("jane").await;
    let jane = server.client("jane").await;
    jane.get("self").await.ok();
    jane.act("users/root/suspend", json!({"reason": "x"})).await.refused(404);
    jane.act("users/jane/suspend", json!({"reason": "x"})).await.refused(403);
    let suspended = root.act("users/jane/suspend", json!({"reason": "left"})).await.ok();
    assert_eq!(suspended["status"]["state"], "Suspended");
    jane.get("self").await.refused(401);
    let resumed = root.act("users/jane/resume", json!({})).await.ok();
    assert_eq!(resumed["status"]["state"], "Active");
    jane.get("self").await.refused(401);
    root.act("users/gone/suspend", json!({"reason": "x"})).await.refused(404);
    root.act("users/jane/suspend", json!({"reason": "a\nb"})).await.refused(422);
    root.act("users/jane/suspend", json!({"raeson": "x"})).await.refused(400);
}

#[tokio::test]
async fn a_disabled_account_loses_what_it_was_issued() {
    let server = Server::start().await;
    let root = server.client("root").await;
    server.user("jane").await;
    let jane = server.client("jane").await;
    let shown = root.merge("users/jane", &json!({"spec": {"disabled": true}})).await.ok();
    assert_eq!(shown["status"]["state"], "Disabled");
    jane.get("self").await.refused(401);
    root.merge("users/jane", &json!({"spec": {"disabled": false}})).await.ok();
    jane.get("self").await.refused(401);
    server.client_with_epoch("jane", 2).await.get("self").await.ok();
}

#[tokio::test]
async fn passwords() {
    let server = Server::start().await;
    let root = server.client("root").await;
    server.user("jane").await;
    root.act("users/jane/password", json!({"password": "short"})).await.refused(422);
    root.act("users/jane/password", json!({"password": GOOD, "mustChange": false})).await.ok();
    let login = |password: &'static str| {
        let anonymous = server.anonymous();
        async move { anonymous.act("/auth/login", json!({"username": "jane", "password": password})).await }
    };
    let token = login(GOOD).await.ok()["token"].as_str().unwrap().to_owned();
    let jane = server.anonymous().with_token(&token);
    jane.act("users/root/password", json!({"password": BETTER})).await.refused(404);
    jane.act("users/me/password", json!({"password": BETTER})).await.refused(422);
    jane.act("users/jane/password", json!({"password": BETTER})).await.refused(422);
    jane.act("users/me/password", json!({"password": BETTER, "oldPassword": "x"})).await.refused(403);
    jane.act("users/me/password", json!({"password": BETTER, "oldPassword": GOOD})).await.ok();
    jane.get("self").await.refused(401);
    login(GOOD).await.refused(401);
    login(BETTER).await.ok();
}

#[tokio::test]
async fn tokens_are_shown_once_and_never_wider() {
    let server = Server::start().await;
    server.user("jane").await;
    server.user("joe").await;
    let jane = server.client("jane").await;
    let issued = jane.act("users/me/tokens", json!({"audience": "api", "description": "ci"})).await.ok();
    let other = jane.with_token(issued["token"].as_str().unwrap());
    other.get("self").await.ok();
    let id = issued["resource"]["metadata"]["name"].as_str().unwrap();
    let read = jane.get(&format!("tokens/{id}")).await.ok();
    assert_eq!((&read["spec"]["owner"], &read["spec"]["description"]), (&json!("jane"), &json!("ci")));
    assert_eq!(read, issued["resource"]);
    assert!(!read.to_string().contains("hash"));
    let joe = server.client("joe").await;
    joe.get(&format!("tokens/{id}")).await.refused(404);
    joe.delete(&format!("tokens/{id}")).await.refused(404);
    joe.act("users/jane/tokens", json!({"audience": "api"})).await.refused(404);
    jane.delete(&format!("tokens/{id}")).await.ok();
    other.get("self").await.refused(401);
    jane.act("users/me/tokens", json!({"audience": "web"})).await.refused(400);
    jane.act("users/me/tokens", json!({"audience": "api", "expiresInSeconds": 0})).await.refused(422);
    let reader =
        server.client_with("jane", Audience::Api, TokenScopes { read_only: true, ..TokenScopes::default() }).await;
    reader.act("users/me/tokens", json!({"audience": "api"})).await.refused(403);
}

#[tokio::test]
async fn limits_of_tokens_are_what_their_owner_sees_now() {
    let server = Server::start().await;
    let root = server.client("root").await;
    server.user("jane").await;
    server.cluster("east").await;
    server.cluster("west").await;
    let place = json!({"clusters": [{"cluster": "east", "namespaces": ["shop-web"]}]});
    root.post("projects", &object("Project", "shop", place.clone())).await.ok();
    root.post("projects", &object("Project", "billing", json!({"clusters": []}))).await.ok();
    root.post("grants", &object("Grant", "g", grant("jane", "shop"))).await.ok();
    root.post(
        "grants",
        &object(
            "Grant",
            "c",
            json!({"subject": {"kind": "User", "name": "jane"}, "role": "viewer",
        "target": {"kind": "Cluster", "name": "east"}}),
        ),
    )
    .await
    .ok();
    let jane = server.client("jane").await;
    let within = |field: &str, name: &str| json!({"audience": "api", "scopes": {field: [name]}});
    let answer = jane.act("users/me/tokens", within("projects", "shop")).await.ok();
    assert_eq!(answer["resource"]["spec"]["scopes"], json!({"projects": ["shop"], "readOnly": false}));
    assert!(!answer.to_string().contains(root.get("projects/shop").await.ok()["metadata"]["uid"].as_str().unwrap()));
    jane.act("users/me/tokens", within("clusters", "east")).await.ok();
    // Nobody is told whether it exists, and neither is an administrator who makes the token for her.
    for (field, stranger, absent) in [("projects", "billing", "nothing"), ("clusters", "west", "nothing")] {
        let texts = [&jane, &root].map(async |client| {
            let foreign = client.act("users/jane/tokens", within(field, stranger)).await.refused(422);
            let gone = client.act("users/jane/tokens", within(field, absent)).await.refused(422);
            assert_eq!(foreign.replace(stranger, absent), gone);
            gone
        });
        for text in texts {
            let text = text.await;
            assert!(text.contains(&format!("jane reaches no {} of the name", field.trim_end_matches('s'))), "{text}");
        }
    }

    let limited = jane.with_token(answer["token"].as_str().unwrap());
    limited.get("projects/shop").await.ok();
    limited.get("grants/g").await.ok();
    limited.get("clusters/east").await.refused(404);
    // Another project under the name, in which jane has the same role.
    server.change(Kind::Project, "shop", |project| project["metadata"]["uid"] = json!("another-uid")).await;
    server.change(Kind::Grant, "g", |grant| grant["status"]["targetUID"] = json!("another-uid")).await;
    limited.get("projects/shop").await.refused(404);
    limited.get("grants/g").await.refused(404);
    jane.get("projects/shop").await.ok();
    let answer = jane.act("users/me/tokens", within("projects", "shop")).await.ok();
    jane.with_token(answer["token"].as_str().unwrap()).get("projects/shop").await.ok();
}

#[tokio::test]
async fn kubeconfigs_open_what_their_owner_reaches() {
    let server = Server::start().await;
    let root = server.client("root").await;
    server.user("jane").await;
    server.cluster("east").await;
    let jane = server.client("jane").await;
    jane.act("users/me/kubeconfig", json!({})).await.refused(422);
    let place =
        json!({"clusters": [{"cluster": "east", "namespaces": ["shop-web"], "prefix": "shop-", "maxNamespaces": 3}]});
    root.post("projects", &object("Project", "shop", place)).await.ok();
    root.post("grants", &object("Grant", "g", grant("jane", "shop"))).await.ok();
    let me = jane.get("self").await.ok();
    assert_eq!(me["clusters"], json!(["east"]));
    assert_eq!(me["projects"][0]["roles"], json!(["member"]));
    assert_eq!(
        me["projects"][0]["clusters"][0],
        json!({"name": "east", "namespaces": ["shop-web"], "prefix": "shop-"})
    );
    let answer = jane.act("users/me/kubeconfig", json!({"readOnly": true, "description": "laptop"})).await.ok();
    let config: Value = serde_saphyr::from_str(answer["kubeconfig"].as_str().unwrap()).unwrap();
    assert_eq!(config["current-context"], "shop@east");
    assert_eq!(config["contexts"][1]["context"]["namespace"], "shop-web");
    let token = jane.get(&format!("tokens/{}", answer["tokenID"].as_str().unwrap())).await.ok();
    assert_eq!((&token["spec"]["audience"], &token["spec"]["scopes"]["readOnly"]), (&json!("kube"), &json!(true)));
    for (field, name) in [("clusters", "west"), ("projects", "other")] {
        jane.act("users/me/kubeconfig", json!({field: [name]})).await.refused(422);
    }
    // A token for clusters opens nothing here.
    let kube = config["users"][0]["user"]["token"].as_str().unwrap();
    jane.with_token(kube).get("self").await.refused(401);
}

#[tokio::test]
async fn credentials_of_clusters_are_sealed_and_bound() {
    let server = Server::start().await;
    let root = server.client("root").await;
    server.cluster("east").await;
    server.user("jane").await;
    let body = json!({"forwarding": "aaa.bbb", "housekeeping": "ccc.ddd", "kubeSystemUID": "u"});
    server.client("jane").await.act("clusters/east/credential", body.clone()).await.refused(404);
    root.act("clusters/west/credential", body.clone()).await.refused(404);
    for (field, value) in
        [("forwarding", ""), ("housekeeping", "a b"), ("housekeeping", "aaa.bbb"), ("kubeSystemUID", "")]
    {
        let mut wrong = body.clone();
        wrong[field] = json!(value);
        root.act("clusters/east/credential", wrong).await.refused(422);
    }
    for _ in 0..2 {
        root.act("clusters/east/credential", body.clone()).await.ok();
    }
    let snapshot = server.index.snapshot();
    let credential: &ClusterCredential = &snapshot.credentials.get("east").unwrap().object;
    assert_eq!((credential.cluster_uid.as_str(), credential.forwarding.as_str()), ("east-0000-uid", "aaa.bbb"));
    let stored = server.store.get(&Key::new(Kind::ClusterCredential, "east")).await.unwrap().unwrap();
    assert!(!String::from_utf8_lossy(&stored.value).contains("aaa.bbb"));
    let shown = root.get("clusters/east").await.ok().to_string();
    assert!(!shown.contains("aaa.bbb"));
    // It goes with its cluster.
    root.delete("clusters/east").await.ok();
    assert!(server.store.get(&Key::new(Kind::ClusterCredential, "east")).await.unwrap().is_none());
}

#[tokio::test]
async fn a_credential_from_a_file_is_not_given_by_hand() {
    let server = Server::start().await;
    let root = server.client("root").await;
    server.cluster("east").await;
    let source = json!({"file": "east.json"});
    let set = |east: &mut Value| east["spec"]["connection"]["direct"]["credentialFrom"] = source.clone();
    server.change(Kind::Cluster, "east", set).await;
    let body = json!({"forwarding": "aaa.bbb", "housekeeping": "ccc.ddd", "kubeSystemUID": "u"});
    let text = root.act("clusters/east/credential", body).await.refused(422);
    assert!(text.contains("comes from the file \"east.json\""), "{text}");
    let other = json!({"spec": {"connection": {"direct": {"credentialFrom": {"file": "other.json"}}}}});
    // Nobody but administrators says where credentials come from.
    server.user("jane").await;
    server.grant("jane", "User", "jane", "viewer", "Cluster", "east").await;
    server.client("jane").await.merge("clusters/east", &other).await.refused(403);
}

#[tokio::test]
async fn checks_of_clusters() {
    let server = Server::start().await;
    let root = server.client("root").await;
    server.cluster("east").await;
    server.cluster("broken").await;
    server.user("jane").await;
    assert_eq!(root.get("clusters/east/check").await.ok()["ok"], true);
    assert_eq!(root.get("clusters/broken/check").await.ok()["ok"], false);
    server.client("jane").await.get("clusters/east/check").await.refused(404);
    assert_eq!(root.get("clusters/east/check-upgrade?version=1.37.0").await.ok()["ok"], true);
    assert_eq!(root.get("clusters/east/check-upgrade?version=1.20").await.ok()["ok"], false);
    root.get("clusters/east/check-upgrade?version=new").await.refused(400);
    root.get("clusters/east/check-upgrade").await.refused(400);
}

#[tokio::test]
async fn members_make_namespaces_under_their_prefix() {
    let server = Server::start().await;
    let root = server.client("root").await;
    server.cluster("east").await;
    server.user("jane").await;
    server.user("joe").await;
    for name in ["shop", "bank"] {
        let place = json!({"clusters": [{"cluster": "east", "prefix": format!("{name}-"), "maxNamespaces": 3}]});
        root.post("projects", &object("Project", name, place)).await.ok();
    }
    root.post("grants", &object("Grant", "g", grant("jane", "shop"))).await.ok();
    let jane = server.client("jane").await;
    let joe = server.client("joe").await;
    let body = json!({"cluster": "east", "name": "shop-web"});
    joe.act("projects/shop/namespaces", body.clone()).await.refused(404);
    jane.act("projects/bank/namespaces", body.clone()).await.refused(404);
    jane.act("projects/shop/namespaces", json!({"cluster": "east", "name": "bank-web"})).await.refused(403);
    jane.act("projects/shop/namespaces", json!({"cluster": "east", "name": "kube-system"})).await.refused(403);
    jane.act("projects/shop/namespaces", json!({"cluster": "east", "name": "Shop"})).await.refused(422);
    let created = jane.act("projects/shop/namespaces", body.clone()).await;
    assert_eq!(created.status, 201);
    assert_eq!(created.ok()["state"], "Ready");
    jane.act("projects/shop/namespaces", body).await.refused(409);
    // What the cluster has not come to yet is recorded all the same.
    let slow = jane.act("projects/shop/namespaces", json!({"cluster": "east", "name": "shop-slow"})).await;
    assert_eq!((slow.status.as_u16(), &slow.body["state"]), (201, &json!("Pending")));
    // Deleting and moving are the owner's.
    jane.delete("projects/shop/namespaces/east/shop-web").await.refused(403);
    let moved = json!({"cluster": "east", "name": "shop-web", "from": "shop"});
    jane.act("projects/bank/namespaces", moved).await.refused(404);
    root.delete("projects/shop/namespaces/east/shop-db").await.refused(404);
    let released = root.delete("projects/shop/namespaces/east/shop-web").await.ok();
    assert_eq!(released["state"], "Terminating");
    let moved = json!({"cluster": "east", "name": "shop-slow", "from": "shop"});
    root.act("projects/bank/namespaces", moved).await.ok();
    let owner = server.index.snapshot().claim("east", "shop-slow").map(|claim| claim.object.project.clone());
    assert_eq!(owner.as_deref(), Some("bank"));
    let claim = server.index.snapshot().claim("east", "shop-web").map(|claim| claim.object.releasing);
    assert_eq!(claim, Some(true));
}

#[tokio::test]
async fn the_audit_log_is_for_administrators_and_auditors() {
    let server = Server::start().await;
    let root = server.client("root").await;
    for name in ["jane", "olga"] {
        server.user(name).await;
    }
    server.grant("olga", "User", "olga", "auditor", "Platform", "").await;
    root.act("users/jane/suspend", json!({"reason": "left"})).await.ok();
    let log = server.client("olga").await.get("/audit?verb=suspend&limit=10").await;
    assert_eq!(log.headers["content-type"], "application/x-ndjson");
    let lines: Vec<Value> =
        String::from_utf8_lossy(&log.bytes).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2);
    assert_eq!(
        (&lines[0]["stage"], &lines[0]["name"], &lines[0]["user"]),
        (&json!("intent"), &json!("jane"), &json!("root"))
    );
    root.act("users/jane/resume", json!({})).await.ok();
    let jane = server.client_with_epoch("jane", 1).await;
    jane.get("/audit").await.refused(403);
    jane.get("/audit/verify").await.refused(403);
    // Nor with a token that is limited, whosever it is.
    let scoped = Scoped { name: "shop".to_owned(), uid: "uid-of-shop".to_owned() };
    let limited = TokenScopes { projects: vec![scoped], ..TokenScopes::default() };
    let limited = server.client_with("olga", Audience::Api, limited).await;
    for path in ["/audit", "/audit/verify"] {
        limited.get(path).await.refused(403);
    }
    assert_eq!(server.client("olga").await.get("/audit/verify").await.ok()["intact"], true);
    root.with_body(Method::POST, "/audit/verify", "application/json", "{}").await.refused(405);
    root.get("/audit?since=yesterday").await.refused(400);
    root.with_body(Method::POST, "/audit", "application/json", "{}").await.refused(405);
}
