//! A client decides when its body ends. What it may do is judged then, not when the head came.

use axum::body::Body;
use bytes::Bytes;
use futures::stream;
use http::Method;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::harness::{Answer, Client, Server, grant, object};
use crate::clock;
use crate::store::{Key, Kind};

/// A request that was let in, and whose body has not come yet.
struct HeldBack {
    go: oneshot::Sender<()>,
    answer: JoinHandle<Answer>,
}

impl HeldBack {
    async fn begin(client: &Client, method: Method, path: &str, media_type: &str, body: &Value) -> Self {
        let (asked, waited_for) = oneshot::channel();
        let (go, may_go) = oneshot::channel();
        let text = Bytes::from(body.to_string());
        let chunk = async move {
            asked.send(()).unwrap();
            may_go.await.unwrap();
            Ok::<_, std::convert::Infallible>(text)
        };
        let request = client.request(method, path).header("content-type", media_type);
        let request = request.body(Body::from_stream(stream::once(chunk))).unwrap();
        let client = client.clone();
        let answer = tokio::spawn(async move { client.send(request).await });
        waited_for.await.unwrap();
        Self { go, answer }
    }

    async fn end(self) -> Answer {
        self.go.send(()).unwrap();
        self.answer.await.unwrap()
    }
}

async fn two_administrators() -> (Server, Client) {
    let server = Server::start().await;
    server.user("mallory").await;
    server.user("jane").await;
    server.seed(Kind::Team, "web", json!({"users": []}), json!({})).await;
    server.grant("mallory", "User", "mallory", "admin", "Platform", "").await;
    let mallory = server.client("mallory").await;
    (server, mallory)
}

async fn several(client: &Client) -> Vec<HeldBack> {
    const JSON: &str = "application/json";
    let platform =
        json!({"subject": {"kind": "User", "name": "jane"}, "role": "admin", "target": {"kind": "Platform"}});
    vec![
        HeldBack::begin(client, Method::POST, "users/mallory/resume", JSON, &json!({})).await,
        HeldBack::begin(client, Method::POST, "users/root/suspend", JSON, &json!({"reason": "revenge"})).await,
        HeldBack::begin(client, Method::POST, "grants", JSON, &object("Grant", "door", platform)).await,
        HeldBack::begin(
            client,
            Method::PATCH,
            "teams/web",
            "application/merge-patch+json",
            &json!({"spec": {"users": ["mallory"]}}),
        )
        .await,
        HeldBack::begin(client, Method::DELETE, "users/jane", JSON, &json!({})).await,
    ]
}

async fn nothing_happened(server: &Server) {
    let root = server.client("root").await;
    root.get("self").await.ok();
    root.get("grants/door").await.refused(404);
    root.get("users/jane").await.ok();
    assert_eq!(root.get("teams/web").await.ok()["spec"]["users"], json!([]));
}

#[tokio::test]
async fn who_is_suspended_meanwhile_ends_no_request() {
    let (server, mallory) = two_administrators().await;
    let held_back = several(&mallory).await;
    server.accounts.suspend("mallory", "root", "left", clock::now()).await.unwrap();
    for one in held_back {
        one.end().await.refused(401);
    }
    nothing_happened(&server).await;
    let root = server.client("root").await;
    assert_eq!(root.get("users/mallory").await.ok()["status"]["state"], "Suspended");
}

#[tokio::test]
async fn who_loses_the_right_meanwhile_has_it_no_more() {
    let (server, mallory) = two_administrators().await;
    let held_back = several(&mallory).await;
    let key = Key::new(Kind::Grant, "mallory-grant");
    let entry = server.store.get(&key).await.unwrap().unwrap();
    let revision = server.store.delete(key, entry.revision).await.unwrap();
    server.index.applied(revision).await.unwrap();
    for one in held_back {
        let answer = one.end().await;
        assert!(matches!(answer.status.as_u16(), 403 | 404), "{} {}", answer.status, answer.body);
    }
    nothing_happened(&server).await;
}

#[tokio::test]
async fn who_keeps_the_right_is_served() {
    let (server, mallory) = two_administrators().await;
    let spec = grant("jane", "shop");
    server.seed(Kind::Project, "shop", json!({"clusters": []}), Value::Null).await;
    let body = object("Grant", "door", spec);
    let held_back = HeldBack::begin(&mallory, Method::POST, "grants", "application/json", &body).await;
    assert_eq!(held_back.end().await.ok()["metadata"]["name"], "door");
}
