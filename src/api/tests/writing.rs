use http::Method;
use serde_json::json;

use super::harness::{Server, grant, object};
use crate::store::Kind;

#[tokio::test]
async fn create_read_change_delete() {
    let server = Server::start().await;
    let root = server.client("root").await;
    let created = root.post("users", &object("User", "jane", json!({"displayName": "Jane"}))).await;
    assert_eq!(created.status, 201);
    let created = created.ok();
    let metadata = &created["metadata"];
    assert_eq!(metadata["generation"], 1);
    assert!(metadata["uid"].is_string() && metadata["creationTimestamp"].is_string());
    assert_eq!(created["status"]["state"], "Active");
    root.post("users", &object("User", "jane", json!({}))).await.refused(409);

    let changed = root.merge("users/jane", &json!({"spec": {"displayName": "J."}})).await.ok();
    assert_eq!(changed["metadata"]["generation"], 2);
    let labelled = root.merge("users/jane", &json!({"metadata": {"labels": {"team": "a"}}})).await.ok();
    assert_eq!(labelled["metadata"]["generation"], 2);
    assert_eq!(root.get("users?labelSelector=team%3Da").await.ok()["items"].as_array().unwrap().len(), 1);
    // What changes nothing is not written.
    let same = root.merge("users/jane", &json!({"spec": {"displayName": "J."}})).await.ok();
    assert_eq!(same["metadata"]["resourceVersion"], labelled["metadata"]["resourceVersion"]);

    let patch = r#"[{"op":"test","path":"/spec/displayName","value":"J."},{"op":"remove","path":"/spec/displayName"}]"#;
    root.with_body(Method::PATCH, "users/jane", "application/json-patch+json", patch).await.ok();
    root.with_body(Method::PATCH, "users/jane", "application/json-patch+json", patch).await.refused(422);
    for media_type in ["application/strategic-merge-patch+json", "application/apply-patch+yaml"] {
        root.with_body(Method::PATCH, "users/jane", media_type, "{}").await.refused(415);
    }

    let deleted = root.delete("users/jane").await.ok();
    assert_eq!((deleted["status"].as_str(), deleted["details"]["name"].as_str()), (Some("Success"), Some("jane")));
    root.get("users/jane").await.refused(404);
    root.delete("users/jane").await.refused(404);
}

#[tokio::test]
async fn bodies_are_judged() {
    let server = Server::start().await;
    let root = server.client("root").await;
    let mut unknown = object("User", "jane", json!({"dispalyName": "Jane"}));
    unknown["metadata"]["lables"] = json!({});
    for validation in ["Strict", "Warn", "Ignore"] {
        let refused = root.post(&format!("users?fieldValidation={validation}"), &unknown).await.refused(400);
        assert!(refused.contains("unknown field \"spec.dispalyName\""), "{refused}");
        assert!(refused.contains("unknown field \"metadata.lables\""), "{refused}");
    }
    root.post("users?fieldValidation=Maybe", &unknown).await.refused(400);
    root.post("users", &object("Team", "jane", json!({}))).await.refused(400);
    root.post("users", &object("User", "jane", json!({"disabled": "yes"}))).await.refused(422);
    root.post("users", &json!([])).await.refused(400);
    let twice = r#"{"apiVersion":"bailiwick.dev/v1alpha1","kind":"User","metadata":{"name":"a","name":"b"},"spec":{}}"#;
    assert!(root.with_body(Method::POST, "users", "application/json", twice).await.refused(400).contains("duplicate"));
    let yaml = "apiVersion: bailiwick.dev/v1alpha1\nkind: User\nmetadata: {name: yann}\nspec: {}\n";
    root.with_body(Method::POST, "users", "application/yaml", yaml).await.ok();
    root.with_body(Method::POST, "users", "application/vnd.kubernetes.protobuf", "k8s").await.refused(415);
    root.with_body(Method::POST, "users", "application/json", &" ".repeat(1024 * 1024 + 1)).await.refused(413);
    for (member, value) in [
        ("finalizers", json!(["example.com/x"])),
        ("ownerReferences", json!([{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "u"}])),
        ("namespace", json!("default")),
    ] {
        let mut body = object("User", "jane", json!({}));
        body["metadata"][member] = value;
        root.post("users", &body).await.refused(422);
    }
    let mut body = object("User", "jane", json!({}));
    body["metadata"]["resourceVersion"] = json!("5");
    root.post("users", &body).await.refused(400);
    root.get("users/jane").await.refused(404);
}

#[tokio::test]
async fn dry_run_leaves_nothing() {
    let server = Server::start().await;
    let root = server.client("root").await;
    let before = server.store.revision().await.unwrap();
    let shown = root.post("users?dryRun=All", &object("User", "jane", json!({}))).await;
    assert_eq!(shown.status, 201);
    root.get("users/jane").await.refused(404);
    let shown = root.merge("users/root?dryRun=All", &json!({"spec": {"displayName": "R"}})).await.ok();
    assert_eq!(shown["spec"]["displayName"], "R");
    root.delete("grants/root-grant?dryRun=All").await.ok();
    root.post("users?dryRun=Some", &object("User", "jane", json!({}))).await.refused(400);
    assert_eq!(server.store.revision().await.unwrap(), before);
}

#[tokio::test]
async fn what_cannot_change_does_not() {
    let server = Server::start().await;
    let root = server.client("root").await;
    let jane = root.post("users", &object("User", "jane", json!({}))).await.ok();
    for patch in [
        json!({"metadata": {"name": "joe"}}),
        json!({"metadata": {"creationTimestamp": "2001-01-01T00:00:00Z"}}),
        json!({"metadata": {"finalizers": ["example.com/x"]}}),
    ] {
        root.merge("users/jane", &patch).await.refused(422);
    }
    root.merge("users/jane", &json!({"metadata": {"uid": "other"}})).await.refused(409);
    root.post("projects", &object("Project", "shop", json!({"clusters": []}))).await.ok();
    root.post("grants", &object("Grant", "g", grant("jane", "shop"))).await.ok();
    root.merge("grants/g", &json!({"spec": {"role": "owner"}})).await.refused(422);
    root.merge("grants/g", &json!({"spec": {"reason": "vacation"}})).await.ok();
    // What a client says of the status is put aside.
    let shown = root.merge("users/jane", &json!({"status": {"state": "King"}})).await.ok();
    assert_eq!(shown["status"]["state"], "Active");
    assert_eq!(shown["metadata"]["resourceVersion"], jane["metadata"]["resourceVersion"]);
}

#[tokio::test]
async fn the_slower_of_two_replacements_is_told() {
    let server = Server::start().await;
    let root = server.client("root").await;
    let mut jane = root.post("users", &object("User", "jane", json!({}))).await.ok();
    jane["spec"]["displayName"] = json!("first");
    root.put("users/jane", &jane).await.ok();
    jane["spec"]["displayName"] = json!("second");
    let refused = root.put("users/jane", &jane).await.refused(409);
    assert!(
        refused.contains("the object has been modified; please apply your changes to the latest version"),
        "{refused}"
    );
    jane["metadata"]["resourceVersion"] = json!("");
    root.put("users/jane", &jane).await.refused(422);
}

#[tokio::test]
async fn patches_at_the_same_time_all_hold() {
    let server = Server::start().await;
    let root = server.client("root").await;
    root.post("users", &object("User", "jane", json!({}))).await.ok();
    let patches = (0..10).map(|n| {
        let root = root.clone();
        async move { root.merge("users/jane", &json!({"metadata": {"labels": {format!("l{n}"): "x"}}})).await.ok() }
    });
    futures::future::join_all(patches).await;
    let labels = root.get("users/jane").await.ok()["metadata"]["labels"].as_object().unwrap().len();
    assert_eq!(labels, 10);
}

#[tokio::test]
async fn what_is_referred_to_stays() {
    let server = Server::start().await;
    let root = server.client("root").await;
    root.post("users", &object("User", "jane", json!({}))).await.ok();
    root.post("teams", &object("Team", "web", json!({"users": ["jane"]}))).await.ok();
    let refused = root.delete("users/jane").await.refused(409);
    assert!(refused.contains("team \"web\""), "{refused}");
    assert!(root.get("users/jane").await.ok()["metadata"].get("deletionTimestamp").is_none());
    root.merge("teams/web", &json!({"spec": {"users": []}})).await.ok();
    root.delete("users/jane").await.ok();
}

#[tokio::test]
async fn deletions_ask_for_exactly_one_object() {
    let server = Server::start().await;
    let root = server.client("root").await;
    let jane = root.post("users", &object("User", "jane", json!({}))).await.ok();
    let options = |preconditions| json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": preconditions});
    let delete = |body: serde_json::Value| {
        let root = root.clone();
        async move { root.with_body(Method::DELETE, "users/jane", "application/json", &body.to_string()).await }
    };
    delete(options(json!({"uid": "other"}))).await.refused(409);
    delete(options(json!({"resourceVersion": "1"}))).await.refused(409);
    delete(json!({"propagationPolicy": "Sometimes"})).await.refused(400);
    delete(json!({"dryRun": ["All"]})).await.ok();
    let exact =
        options(json!({"uid": jane["metadata"]["uid"], "resourceVersion": jane["metadata"]["resourceVersion"]}));
    delete(exact).await.ok();
}

#[tokio::test]
async fn nothing_new_may_name_what_is_being_deleted() {
    let server = Server::start().await;
    let root = server.client("root").await;
    server.user("jane").await;
    let dying = json!({
        "apiVersion": "bailiwick.dev/v1alpha1",
        "kind": "Project",
        "metadata": {"name": "shop", "uid": "shop-0000-uid", "creationTimestamp": "2030-01-01T00:00:00Z",
            "deletionTimestamp": "2030-01-02T00:00:00Z"},
        "spec": {"clusters": []},
    });
    server.put(Kind::Project, "shop", dying).await;
    root.merge("projects/shop", &json!({"spec": {"displayName": "x"}})).await.refused(409);
    let refused = root.post("grants", &object("Grant", "g", grant("jane", "shop"))).await.refused(409);
    assert!(refused.contains("being deleted"), "{refused}");
    // A deletion that was interrupted is finished by the next one.
    root.delete("projects/shop").await.ok();
    root.get("projects/shop").await.refused(404);
    root.post("grants", &object("Grant", "g", grant("jane", "shop"))).await.ok();
}

#[tokio::test]
async fn a_deleted_project_keeps_its_name_until_its_clusters_are_clean() {
    let server = Server::start().await;
    let root = server.client("root").await;
    server.cluster("east").await;
    let place = json!({"clusters": [{"cluster": "east", "namespaces": ["shop-web"]}]});
    root.post("projects", &object("Project", "shop", place)).await.ok();
    server.tenancy.create_namespace("shop", "east", "shop-web", "root", crate::clock::now()).await.unwrap();
    root.delete("projects/shop").await.ok();
    root.get("projects/shop").await.refused(404);
    let refused = root.post("projects", &object("Project", "shop", json!({"clusters": []}))).await.refused(422);
    assert!(refused.contains("metadata.name"), "{refused}");
    assert!(root.delete("clusters/east").await.refused(409).contains("shop"));
    let forgotten = root.act("clusters/east/forget", json!({"project": "shop"})).await.ok();
    assert_eq!(forgotten["namespaces"], json!(["shop-web"]));
    root.post("projects", &object("Project", "shop", json!({"clusters": []}))).await.ok();
    root.delete("clusters/east").await.ok();
}

#[tokio::test]
async fn grants_and_deletions_at_the_same_time_never_leave_a_grant_on_nothing() {
    let server = Server::start().await;
    let root = server.client("root").await;
    for round in 0..20 {
        let (project, user) = (format!("p{round}"), format!("u{round}"));
        root.post("projects", &object("Project", &project, json!({"clusters": []}))).await.ok();
        root.post("users", &object("User", &user, json!({}))).await.ok();
        let grant = object("Grant", &format!("g{round}"), grant(&user, &project));
        let (path, project_path) = (format!("users/{user}"), format!("projects/{project}"));
        let (created, deleted, marked) =
            tokio::join!(root.post("grants", &grant), root.delete(&path), root.delete(&project_path));
        let snapshot = server.index.snapshot();
        let stands = snapshot.grants.get(format!("g{round}").as_str()).is_some();
        assert_eq!(stands, created.status.is_success());
        if stands && (deleted.status.is_success() || marked.status.is_success()) {
            // What it names went first; the grant waits for another one that an administrator creates.
            let grant = root.get(&format!("grants/g{round}")).await.ok();
            assert_eq!(grant["status"]["state"], "Waiting", "{grant}");
        }
    }
}

#[tokio::test]
async fn names_become_uids_once() {
    let server = Server::start().await;
    let root = server.client("root").await;
    root.post("projects", &object("Project", "shop", json!({"clusters": []}))).await.ok();
    let mut body = object("Grant", "", grant("jane", "shop"));
    body["metadata"] = json!({"generateName": "jane-shop-"});
    let waiting = root.post("grants", &body).await.ok();
    let name = waiting["metadata"]["name"].as_str().unwrap().to_owned();
    assert!(name.starts_with("jane-shop-") && name.len() == 15, "{name}");
    assert_eq!(waiting["status"]["state"], "Waiting");
    root.post("teams", &object("Team", "web", json!({"users": ["jane"]}))).await.ok();
    assert_eq!(root.get("teams/web").await.ok()["status"]["unknown"], json!(["jane"]));

    let jane = root.post("users", &object("User", "jane", json!({}))).await.ok();
    let grant = root.get(&format!("grants/{name}")).await.ok();
    assert_eq!(
        (&grant["status"]["state"], &grant["status"]["subjectUID"]),
        (&json!("Active"), &jane["metadata"]["uid"])
    );
    assert_eq!(root.get("teams/web").await.ok()["status"]["members"], json!(["jane"]));

    // A stranger of the same name, past all checks, inherits nothing.
    let key = crate::store::Key::new(Kind::User, "jane");
    let entry = server.store.get(&key).await.unwrap().unwrap();
    let gone = server.store.delete(key, entry.revision).await.unwrap();
    server.index.applied(gone).await.unwrap();
    root.post("users", &object("User", "jane", json!({}))).await.ok();
    assert_eq!(root.get(&format!("grants/{name}")).await.ok()["status"]["state"], "Stale");
    assert_eq!(root.get("teams/web").await.ok()["status"]["unknown"], json!(["jane"]));
}

/// The demo's files, as kubectl goes through them: in their order, both times.
#[tokio::test]
async fn what_is_written_grants_first_is_made_and_deleted_in_one_run() {
    let server = Server::start().await;
    let root = server.client("root").await;
    server.cluster("demo").await;
    server.cluster("prod").await;
    let files = [
        include_str!("../../../deploy/demo/10-grants.yaml"),
        include_str!("../../../deploy/demo/20-projects.yaml"),
        include_str!("../../../deploy/demo/30-people.yaml"),
    ];
    let documents = files.iter().flat_map(|file| file.split("\n---\n"));
    let found: Vec<(String, String, &str)> = documents
        .map(|text| {
            let value = |key: &str| {
                let line = text.lines().find(|line| line.trim_start().starts_with(key)).unwrap();
                line.split_once(':').unwrap().1.trim().to_owned()
            };
            (format!("{}s", value("kind:").to_lowercase()), value("name:"), text)
        })
        .collect();
    for (plural, _, text) in &found {
        root.with_body(Method::POST, plural, "application/yaml", text).await.ok();
    }
    for grant in root.get("grants").await.ok()["items"].as_array().unwrap() {
        assert_eq!(grant["status"]["state"], "Active", "{grant}");
    }
    for (plural, name, _) in &found {
        root.delete(&format!("{plural}/{name}")).await.ok();
    }
    // The other way round it is refused, with the references.
    let (plural, _, text) = &found[0];
    root.with_body(Method::POST, "users", "application/yaml", found.last().unwrap().2).await.ok();
    let user = found.last().unwrap().1.as_str();
    let text = text.replace("subject: {kind: User, name: auditor}", &format!("subject: {{kind: User, name: {user}}}"));
    root.with_body(Method::POST, plural, "application/yaml", &text).await.ok();
    assert!(root.delete(&format!("users/{user}")).await.refused(409).contains("auditor"));
}

#[tokio::test]
async fn granting_shows_no_team_that_one_may_not_see() {
    let server = Server::start().await;
    let root = server.client("root").await;
    root.post("projects", &object("Project", "shop", json!({"clusters": []}))).await.ok();
    for user in ["olga", "mallory"] {
        server.user(user).await;
    }
    root.post("teams", &object("Team", "own", json!({"users": ["olga"]}))).await.ok();
    root.post("teams", &object("Team", "red", json!({"users": ["mallory"]}))).await.ok();
    let to = |kind: &str, name: &str, role: &str| {
        let target = json!({"kind": "Project", "name": "shop"});
        json!({"subject": {"kind": kind, "name": name}, "role": role, "target": target})
    };
    root.post("grants", &object("Grant", "first", to("User", "olga", "owner"))).await.ok();
    let olga = server.client("olga").await;
    let refused = |name: &'static str| {
        let grant = object("Grant", "second", to("Team", name, "viewer"));
        let olga = olga.clone();
        async move { olga.post("grants", &grant).await.refused(422).replace(name, "TEAM") }
    };
    let foreign = refused("red").await;
    assert!(foreign.contains("an administrator can grant"), "{foreign}");
    assert_eq!(foreign, refused("absent").await);
    olga.get("teams/red").await.refused(404);
    // One's own, and people, one may name; and what an administrator has let in.
    olga.post("grants", &object("Grant", "third", to("Team", "own", "viewer"))).await.ok();
    olga.post("grants", &object("Grant", "fourth", to("User", "mallory", "viewer"))).await.ok();
    root.post("grants", &object("Grant", "fifth", to("Team", "red", "viewer"))).await.ok();
    olga.get("teams/red").await.ok();
    olga.post("grants", &object("Grant", "sixth", to("Team", "red", "member"))).await.ok();
    root.post("grants", &object("Grant", "seventh", to("Team", "later", "viewer"))).await.ok();
}
