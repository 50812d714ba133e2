//! Requests as values, and what they are expected to be answered.

use std::sync::atomic::{AtomicUsize, Ordering};

use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::{Value, json};

/// Pairs of actor and request that were judged, over all tests of the process.
static PAIRS: AtomicUsize = AtomicUsize::new(0);

/// One request.
#[derive(Debug, Clone)]
pub struct Ask {
    pub method: &'static str,
    pub path: String,
    pub content_type: &'static str,
    pub body: Value,
    /// PUT only: what changes in the object that is there.
    pub change: Option<Value>,
}

fn ask(method: &'static str, path: impl Into<String>, content_type: &'static str, body: Value) -> Ask {
    Ask { method, path: path.into(), content_type, body, change: None }
}

pub fn get(path: impl Into<String>) -> Ask {
    ask("GET", path, "application/json", Value::Null)
}

pub fn delete(path: impl Into<String>) -> Ask {
    ask("DELETE", path, "application/json", Value::Null)
}

pub fn create(path: impl Into<String>, body: Value) -> Ask {
    ask("POST", path, "application/json", body)
}

pub fn merge(path: impl Into<String>, change: Value) -> Ask {
    ask("PATCH", path, "application/merge-patch+json", change)
}

pub fn strategic(path: impl Into<String>, change: Value) -> Ask {
    ask("PATCH", path, "application/strategic-merge-patch+json", change)
}

pub fn json_patch(path: impl Into<String>, operations: Value) -> Ask {
    ask("PATCH", path, "application/json-patch+json", operations)
}

/// Server-side apply by force.
pub fn apply(path: impl Into<String>, object: Value) -> Ask {
    let path = with_query(&path.into(), "fieldManager=test&force=true");
    ask("PATCH", path, "application/apply-patch+yaml", object)
}

/// Replaces the object that is there by itself with a change.
pub fn replace(path: impl Into<String>, change: Value) -> Ask {
    Ask { change: Some(change), ..ask("PUT", path, "application/json", Value::Null) }
}

impl Ask {
    /// The same with `dryRun=All`.
    pub fn dry(mut self) -> Self {
        self.path = with_query(&self.path, "dryRun=All");
        self
    }
}

/// Each request, really and as a dry run.
pub fn both(asks: impl IntoIterator<Item = Ask>) -> Vec<Ask> {
    asks.into_iter().flat_map(|ask| [ask.clone().dry(), ask]).collect()
}

fn with_query(path: &str, query: &str) -> String {
    format!("{path}{}{query}", if path.contains('?') { '&' } else { '?' })
}

/// A change in every way the API server knows: PUT, merge, strategic merge and JSON patch, server-side apply; each
/// really and as a dry run. `current` is the object as it is.
pub fn every_way(path: &str, current: &Value, change: &Value) -> Vec<Ask> {
    let mut ways = vec![
        replace(path, change.clone()),
        merge(path, change.clone()),
        strategic(path, change.clone()),
        json_patch(path, operations(current, change)),
    ];
    // Apply can leave out, not remove: what another manager owns stays.
    if !has_null(change) {
        let mut object = change.clone();
        for key in ["apiVersion", "kind"] {
            object[key] = current[key].clone();
        }
        object["metadata"]["name"] = current["metadata"]["name"].clone();
        // A binding without its role is no binding.
        if let (Some(role), None) = (current.get("roleRef"), change.get("roleRef")) {
            object["roleRef"] = role.clone();
        }
        ways.push(apply(path, object));
    }
    both(ways)
}

fn has_null(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.values().any(has_null),
        _ => false,
    }
}

/// JSON merge patch (RFC 7386).
pub fn merged(target: &mut Value, change: &Value) {
    let Value::Object(change) = change else {
        *target = change.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, value) in change {
        if value.is_null() {
            target.as_object_mut().unwrap().remove(key);
        } else {
            merged(&mut target[key.as_str()], value);
        }
    }
}

/// The JSON patch that does the same as a merge patch.
fn operations(current: &Value, change: &Value) -> Value {
    fn walk(current: &Value, change: &Value, path: String, operations: &mut Vec<Value>) {
        let Value::Object(map) = change else { return };
        for (key, value) in map {
            let path = format!("{path}/{}", key.replace('~', "~0").replace('/', "~1"));
            match (current.get(key), value) {
                (None, Value::Null) => {}
                (Some(_), Value::Null) => operations.push(json!({"op": "remove", "path": path})),
                (Some(old), Value::Object(_)) if old.is_object() => walk(old, value, path, operations),
                _ => operations.push(json!({"op": "add", "path": path, "value": value})),
            }
        }
    }
    let mut list = vec![];
    walk(current, change, String::new(), &mut list);
    Value::Array(list)
}

/// Somebody who asks a cluster.
#[derive(Clone)]
pub struct Actor {
    pub name: String,
    pub client: kube::Client,
    /// Reads what a PUT changes.
    pub admin: kube::Client,
    pub headers: Vec<(String, String)>,
}

/// An answer.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    pub text: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|why| panic!("{why}: {}", self.text))
    }

    fn message(&self) -> String {
        let message =
            serde_json::from_str::<Value>(&self.text).ok().and_then(|v| Some(v["message"].as_str()?.to_owned()));
        message.unwrap_or_else(|| self.text.chars().take(300).collect())
    }
}

impl Actor {
    /// The same actor with one more header.
    pub fn with(&self, header: &str, value: &str) -> Self {
        let mut other = self.clone();
        other.headers.push((header.to_owned(), value.to_owned()));
        other.name = format!("{} ({header}: {value})", self.name);
        other
    }

    pub async fn send(&self, ask: &Ask) -> Answer {
        let mut body = ask.body.clone();
        if let Some(change) = &ask.change {
            let path = ask.path.split('?').next().unwrap();
            let read = get(path.trim_end_matches("/status").trim_end_matches("/finalize"));
            body = raw(&self.admin, &[], &read, &Value::Null).await.json();
            merged(&mut body, change);
            // Unconditional: the quota controller may have counted meanwhile.
            body["metadata"].as_object_mut().map(|metadata| metadata.remove("resourceVersion"));
        }
        raw(&self.client, &self.headers, ask, &body).await
    }

    /// Every request succeeds.
    pub async fn allowed(&self, asks: impl IntoIterator<Item = Ask>) {
        let mut wrong = vec![];
        for ask in asks {
            PAIRS.fetch_add(1, Ordering::Relaxed);
            let answer = self.send(&ask).await;
            if !(200..300).contains(&answer.status) {
                wrong.push(format!(
                    "{} {} {}\n    {} {}",
                    ask.method,
                    ask.path,
                    ask.body,
                    answer.status,
                    answer.message()
                ));
            }
        }
        self.judge("should be allowed", wrong);
    }

    /// Every request is refused (403, or 422 from a policy), and the text says by what.
    pub async fn refused(&self, by: &str, asks: impl IntoIterator<Item = Ask>) {
        let mut wrong = vec![];
        for ask in asks {
            PAIRS.fetch_add(1, Ordering::Relaxed);
            let answer = self.send(&ask).await;
            if answer.status != 403 || !answer.message().contains(by) {
                let body = ask.change.as_ref().unwrap_or(&ask.body);
                wrong.push(format!(
                    "{} {} {} {body}\n    {} {}",
                    ask.method,
                    ask.path,
                    ask.content_type,
                    answer.status,
                    answer.message()
                ));
            }
        }
        self.judge(&format!("should be refused by {by:?}"), wrong);
    }

    /// As [`Actor::refused`] by the guard policy of this name.
    pub async fn refused_by_guard(&self, policy: &str, asks: impl IntoIterator<Item = Ask>) {
        self.refused(&format!("ValidatingAdmissionPolicy '{policy}'"), asks).await;
    }

    /// The request succeeds; its answer.
    pub async fn must(&self, ask: Ask) -> Value {
        let answer = self.send(&ask).await;
        assert!((200..300).contains(&answer.status), "{}: {ask:?}\n{}", self.name, answer.text);
        answer.json()
    }

    #[track_caller]
    fn judge(&self, what: &str, wrong: Vec<String>) {
        assert!(wrong.is_empty(), "{}: {what}, and was not:\n{}", self.name, wrong.join("\n"));
        println!("{} pairs so far", PAIRS.load(Ordering::Relaxed));
    }
}

async fn raw(client: &kube::Client, headers: &[(String, String)], ask: &Ask, body: &Value) -> Answer {
    let mut request = http::Request::builder().method(ask.method).uri(&ask.path).header("accept", "application/json");
    for (name, value) in headers {
        request = request.header(name, value);
    }
    let bytes = if body.is_null() {
        vec![]
    } else {
        request = request.header("content-type", ask.content_type);
        serde_json::to_vec(body).unwrap()
    };
    let request = request.body(Body::from(bytes)).unwrap();
    let answer = tokio::time::timeout(std::time::Duration::from_secs(30), client.send(request));
    let answer = answer.await.unwrap_or_else(|_| panic!("no answer to {ask:?}")).unwrap();
    let status = answer.status().as_u16();
    let bytes = answer.into_body().collect().await.unwrap().to_bytes();
    Answer { status, text: String::from_utf8_lossy(&bytes).into_owned() }
}
