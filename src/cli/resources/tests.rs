use super::*;
use crate::cli::fake::{Fake, status};

#[test]
fn the_file_replaces_the_spec_and_keeps_the_rest() {
    let file = json!({"apiVersion": "bailiwick.dev/v1alpha1", "kind": "User", "metadata": {"name": "a",
        "labels": {"new": "1", "both": "file"}, "resourceVersion": "1"}, "spec": {"email": "a@example.com"},
        "status": {"state": "Active"}, "unknown": 1});
    let current = json!({"apiVersion": "bailiwick.dev/v1alpha1", "kind": "User",
        "metadata": {"name": "a", "uid": "u", "resourceVersion": "7", "labels": {"old": "1", "both": "server"},
            "finalizers": ["x"]},
        "spec": {"disabled": true}, "status": {"state": "Suspended"}});
    let wanted = desired(KindInfo::find("user").unwrap(), &file, &current);
    assert_eq!(wanted["spec"], json!({"email": "a@example.com"}));
    assert_eq!(wanted["status"], json!({"state": "Suspended"}), "status is never taken from a file");
    assert_eq!(
        wanted["metadata"],
        json!({"name": "a", "uid": "u", "resourceVersion": "7", "finalizers": ["x"],
            "labels": {"old": "1", "new": "1", "both": "file"}}),
        "the present version is sent, so that a change in between is noticed"
    );
    assert_eq!(wanted["unknown"], 1, "the server refuses it by name");
}

const USER: &str = "/apis/bailiwick.dev/v1alpha1/users/a";
const USERS: &str = "/apis/bailiwick.dev/v1alpha1/users";

fn document(spec: &str) -> Document {
    let text = format!("apiVersion: bailiwick.dev/v1alpha1\nkind: User\nmetadata: {{name: a}}\nspec: {spec}\n");
    documents::parse("f.yaml", &text).unwrap().remove(0)
}

fn stored(version: &str, spec: Value) -> Value {
    json!({"apiVersion": "bailiwick.dev/v1alpha1", "kind": "User",
        "metadata": {"name": "a", "resourceVersion": version}, "spec": spec})
}

async fn applied(fake: &Fake, spec: &str, dry_run: bool) -> Outcome<&'static str> {
    apply_one(&fake.client, &document(spec), dry_run).await.map(|(what, _)| what)
}

#[tokio::test]
async fn what_is_absent_is_created() {
    let fake = Fake::start(|(method, _, body)| match method.as_str() {
        "GET" => status(404, "NotFound", "not found"),
        _ => (201, body.clone()),
    })
    .await;
    assert_eq!(applied(&fake, "{email: a@example.com}", false).await.unwrap(), "created");
    assert_eq!(fake.asked(), [format!("GET {USER}"), format!("POST {USERS}?fieldValidation=Strict")]);
    assert_eq!(fake.last_body()["spec"], json!({"email": "a@example.com"}));
}

#[tokio::test]
async fn what_is_the_same_is_left_alone() {
    let fake = Fake::start(|_| (200, stored("7", json!({"type": "Human", "disabled": false})))).await;
    assert_eq!(applied(&fake, "{}", false).await.unwrap(), "unchanged");
    assert_eq!(fake.asked(), [format!("GET {USER}")], "nothing is written");
}

#[tokio::test]
async fn what_differs_is_replaced_at_the_version_that_was_read() {
    let fake = Fake::start(|(method, _, body)| match method.as_str() {
        "GET" => (200, stored("7", json!({"disabled": true}))),
        _ => (200, stored("8", body["spec"].clone())),
    })
    .await;
    assert_eq!(applied(&fake, "{disabled: false}", false).await.unwrap(), "configured");
    assert_eq!(fake.last_body()["metadata"]["resourceVersion"], "7");
}

#[tokio::test]
async fn a_dry_run_says_so_to_the_server() {
    let fake = Fake::start(|(method, _, _)| match method.as_str() {
        "GET" => status(404, "NotFound", "not found"),
        _ => (201, json!({})),
    })
    .await;
    assert_eq!(applied(&fake, "{}", true).await.unwrap(), "created");
    assert_eq!(fake.asked()[1], format!("POST {USERS}?dryRun=All&fieldValidation=Strict"));
}

#[tokio::test]
async fn a_change_in_between_is_taken_in_and_not_overwritten() {
    let reads = std::sync::atomic::AtomicU32::new(0);
    let fake = Fake::start(move |(method, _, body)| match method.as_str() {
        "GET" => {
            let version = if reads.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0 { "7" } else { "9" };
            (200, stored(version, json!({"email": "old@example.com"})))
        }
        _ if body["metadata"]["resourceVersion"] == "9" => (200, stored("10", body["spec"].clone())),
        _ => status(409, "Conflict", "changed"),
    })
    .await;
    assert_eq!(applied(&fake, "{email: new@example.com}", false).await.unwrap(), "configured");
    assert_eq!(fake.asked().len(), 4);
}

#[tokio::test]
async fn endless_conflicts_end() {
    let fake = Fake::start(|(method, _, _)| match method.as_str() {
        "GET" => (200, stored("7", json!({"disabled": true}))),
        _ => status(409, "Conflict", "changed"),
    })
    .await;
    let failure = applied(&fake, "{}", false).await.unwrap_err();
    assert_eq!(failure.to_string(), "Error from server (Conflict): changed");
    assert_eq!(fake.asked().len(), 2 * ATTEMPTS);
}

#[tokio::test]
async fn a_refusal_is_not_tried_again() {
    let fake = Fake::start(|_| status(403, "Forbidden", "not yours")).await;
    let failure = applied(&fake, "{}", false).await.unwrap_err();
    assert_eq!((failure.to_string().as_str(), failure.code()), ("Error from server (Forbidden): not yours", 1));
    assert_eq!(fake.asked().len(), 1);
}
