use http::Method;
use serde_json::json;

use super::harness::{Server, object};
use crate::audit::Stage;
use crate::records::{Scoped, TokenScopes};
use crate::resources::token::Audience;

#[tokio::test]
async fn nobody_gets_anywhere_without_a_token() {
    let server = Server::start().await;
    let anonymous = server.anonymous();
    let kube = server.client_with("root", Audience::Kube, TokenScopes::default()).await;
    let mut paths = vec![
        "/api",
        "/apis",
        "/apis/bailiwick.dev",
        "/apis/bailiwick.dev/v1alpha1",
        "/openapi/v3",
        "/openapi/v3/apis/bailiwick.dev/v1alpha1",
        "/openapi/v2",
        "/audit",
        "/auth/logout",
        "/nothing/here",
        "/",
        "self",
        "nothing",
        "projects/shop/namespaces",
        "users/root/suspend",
    ];
    for served in super::super::kinds::all() {
        paths.push(served.plural);
    }
    for path in paths {
        for method in [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
            for client in [&anonymous, &kube] {
                let answer = client.with_body(method.clone(), path, "application/json", "{}").await;
                assert_eq!(answer.message(), "Unauthorized", "{method} {path}");
                answer.refused(401);
            }
        }
    }
    for path in ["/version", "/healthz"] {
        assert_eq!(anonymous.get(path).await.status, 200, "{path}");
    }
}

#[tokio::test]
async fn unknown_paths_and_methods_are_told_in_a_status() {
    let server = Server::start().await;
    let root = server.client("root").await;
    root.get("/nothing").await.refused(404);
    root.get("accounts").await.refused(404);
    root.get("claims/a").await.refused(404);
    root.get("/openapi/v2").await.refused(404);
    root.delete("users").await.refused(405);
    root.post("tokens", &object("Token", "x", json!({}))).await.refused(405);
    root.merge("tokens/x", &json!({})).await.refused(405);
    root.get("users/%ff").await.refused(400);
    root.get("users?limit=-1").await.refused(400);
    // What was meant for a cluster is not told to sign in.
    let anonymous = server.anonymous();
    for path in ["/api/v1/pods", "/apis/apps/v1/deployments"] {
        assert!(anonymous.get(path).await.refused(404).contains("/k8s/clusters/CLUSTER"), "{path}");
    }
    anonymous.get("users/jane").await.refused(401);
    anonymous.get("/apis").await.refused(401);
}

#[tokio::test]
async fn lists_are_tables_for_kubectl_and_pages_for_the_patient() {
    let server = Server::start().await;
    let root = server.client("root").await;
    for name in ["anna", "ben", "cleo"] {
        server.user(name).await;
    }
    let table = root.get_as("users", "application/json;as=Table;v=v1;g=meta.k8s.io").await.ok();
    assert_eq!(table["kind"], "Table");
    assert_eq!(table["rows"][0]["cells"][0], "anna");
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    assert_eq!(table["rows"].as_array().unwrap().len(), 4);

    let first = root.get("users?limit=3").await.ok();
    assert_eq!(first["metadata"]["remainingItemCount"], 1);
    // What comes in between is not in a later page: all pages are of one version.
    server.user("dora").await;
    let token = first["metadata"]["continue"].as_str().unwrap();
    let second = root.get(&format!("users?limit=3&continue={token}")).await.ok();
    assert_eq!(second["items"].as_array().unwrap().len(), 1);
    assert_eq!(second["items"][0]["metadata"]["name"], "root");
    assert!(second["metadata"].get("continue").is_none());
    // Another question, another caller.
    root.get(&format!("teams?limit=3&continue={token}")).await.refused(410);
    server.client("anna").await.get(&format!("users?limit=3&continue={token}")).await.refused(410);

    let named = root.get("users?fieldSelector=metadata.name%3Dben").await.ok();
    assert_eq!(named["items"].as_array().unwrap().len(), 1);
    root.get_as("users", "application/vnd.kubernetes.protobuf").await.refused(406);
    let yaml = root.get_as("users/ben", "application/yaml").await;
    assert!(String::from_utf8_lossy(&yaml.bytes).contains("name: ben"));
}

#[tokio::test]
async fn what_is_foreign_looks_like_what_does_not_exist() {
    let server = Server::start().await;
    server.user("jane").await;
    server.user("joe").await;
    let jane = server.client("jane").await;
    jane.get("users/jane").await.ok();
    let foreign = jane.get("users/joe").await.refused(404);
    let absent = jane.get("users/gone").await.refused(404);
    assert_eq!(foreign.replace("joe", "gone"), absent);
    let foreign = jane.merge("users/joe", &json!({})).await.refused(404);
    let absent = jane.merge("users/gone", &json!({})).await.refused(404);
    assert_eq!(foreign.replace("joe", "gone"), absent);
    let listed = jane.get("users").await.ok();
    assert_eq!(listed["items"].as_array().unwrap().len(), 1);
    // Creating is refused before it is told whether the name is taken.
    assert!(jane.post("users", &object("User", "joe", json!({}))).await.refused(403).contains("cannot create"));
    assert!(jane.post("users", &object("User", "gone", json!({}))).await.refused(403).contains("cannot create"));
}

#[tokio::test]
async fn scopes_take_away() {
    let server = Server::start().await;
    let reader =
        server.client_with("root", Audience::Api, TokenScopes { read_only: true, ..TokenScopes::default() }).await;
    reader.get("users/root").await.ok();
    reader.post("users", &object("User", "jane", json!({}))).await.refused(403);
    let limited = TokenScopes {
        projects: vec![Scoped { name: "shop".into(), uid: "uid-shop".into() }],
        ..TokenScopes::default()
    };
    let limited = server.client_with("root", Audience::Api, limited).await;
    limited.get("users/root").await.refused(404);
    limited.post("users", &object("User", "jane", json!({}))).await.refused(403);
}

#[tokio::test]
async fn documents_have_entity_tags() {
    let server = Server::start().await;
    let root = server.client("root").await;
    let answer = root.get("/openapi/v3/apis/bailiwick.dev/v1alpha1").await;
    let tag = answer.headers["etag"].clone();
    let request = root.request(Method::GET, "/openapi/v3/apis/bailiwick.dev/v1alpha1").header("if-none-match", tag);
    assert_eq!(root.send(request.body(axum::body::Body::empty()).unwrap()).await.status, 304);
    let aggregated = root
        .get_as("/apis", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json")
        .await;
    assert!(aggregated.headers["content-type"].to_str().unwrap().contains("as=APIGroupDiscoveryList"));
    assert_eq!(aggregated.ok()["items"][0]["metadata"]["name"], "bailiwick.dev");
}

#[tokio::test]
async fn every_request_leaves_its_records() {
    let server = Server::start().await;
    let root = server.client("root").await;
    let before = server.records().await.len();
    root.post("users", &object("User", "jane", json!({}))).await.ok();
    root.get("users/jane").await.ok();
    root.get("users/gone").await.refused(404);
    server.anonymous().get("users").await.refused(401);
    let records = server.records().await.split_off(before);
    let stages: Vec<Stage> = records.iter().map(|record| record.stage).collect();
    assert_eq!(stages, [Stage::Intent, Stage::Outcome, Stage::Read, Stage::Refused, Stage::Refused]);
    let intent = &records[0].what;
    assert_eq!((intent.user.as_str(), intent.verb.as_str(), intent.name.as_str()), ("root", "create", "jane"));
    assert_eq!(records[0].id, records[1].id);
    assert_eq!(records[1].what.status, Some(201));
    assert_eq!(records[3].what.status, Some(404));

    // Giving oneself a right is allowed, and stands in the log for what it is.
    root.post("projects", &object("Project", "shop", json!({"clusters": []}))).await.ok();
    root.post("grants", &object("Grant", "own", super::harness::grant("root", "shop"))).await.ok();
    let records = server.records().await;
    let given = records.iter().find(|record| record.what.name == "own").unwrap();
    assert_eq!(given.what.reason, "member on Project shop to User root");
    assert_eq!(given.what.project, "shop");

    // Nothing changes while the intent cannot be written.
    server.audit.close();
    root.post("users", &object("User", "joe", json!({}))).await.refused(503);
    root.merge("users/jane", &json!({"spec": {"displayName": "J"}})).await.refused(503);
    root.delete("users/jane").await.refused(503);
    root.act("users/jane/suspend", json!({"reason": "x"})).await.refused(503);
    root.get("users/joe").await.refused(404);
    let jane = root.get("users/jane").await.ok();
    assert!(jane["spec"].get("displayName").is_none());
    assert_eq!(jane["status"]["state"], "Active");
}
