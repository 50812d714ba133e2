//! Clients of a cluster's API server for what the service does itself: probing, observing, housekeeping.
//!
//! Built from the Cluster alone, never from the environment: no kubeconfig, no proxy variables, no other CA than the
//! cluster's. Every request has a deadline for its response to begin; redirects are not followed.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Either, Full, Limited};
use kube::client::{Body, ClientBuilder};
use serde_json::Value;
use tower::{BoxError, Service};
use zeroize::Zeroizing;

use super::endpoint::Endpoint;

/// Deadlines of a client.
#[derive(Debug, Clone, Copy)]
pub struct Deadlines {
    /// For a connection to stand, TLS included.
    pub connect: Duration,
    /// For a response to begin. A list of 10,000 namespaces takes the API server about a second.
    pub response: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self { connect: Duration::from_secs(5), response: Duration::from_secs(20) }
    }
}

/// Time for a small answer to be there as a whole.
const ANSWER: Duration = Duration::from_secs(30);
/// Longest text of a refusal that is read.
const MAX_REFUSAL: usize = 1 << 20;
/// Longest answer read by [`ask`]; the longest expected are the policies, some 40 kB.
const MAX_ANSWER: usize = 4 << 20;

/// A client that speaks as one of the accounts.
pub fn client(endpoint: &Endpoint, token: &str, deadlines: Deadlines) -> Result<kube::Client, kube::Error> {
    let url = format!("https://{}", endpoint.authority);
    let mut config = kube::Config::new(url.parse().map_err(|why| kube::Error::Service(Box::new(why)))?);
    config.root_cert = Some(endpoint.roots.iter().map(|root| root.to_vec()).collect());
    config.tls_server_name = Some(endpoint.server_name.to_str().into_owned());
    config.connect_timeout = Some(deadlines.connect);
    config.write_timeout = Some(deadlines.response);
    config.auth_info.token = Some(token.to_owned().into());
    config.proxy_url = None;
    // Waiting is the caller's decision; a retry inside would hide a failing cluster behind a slow one.
    config.default_retry = false;
    let layer = GuardLayer { response: deadlines.response, token: Arc::new(Zeroizing::new(token.to_owned())) };
    Ok(ClientBuilder::try_from(config)?.with_layer(&layer).build())
}

/// Puts a deadline on the beginning of each response; a watch may stay silent for longer once it has begun. And takes our
/// credential out of refusals: their text goes into conditions and logs, and something on the way may repeat the request.
struct GuardLayer {
    response: Duration,
    token: Arc<Zeroizing<String>>,
}

impl<S> tower::Layer<S> for GuardLayer {
    type Service = Guard<S>;

    fn layer(&self, inner: S) -> Guard<S> {
        Guard { inner, response: self.response, token: self.token.clone() }
    }
}

struct Guard<S> {
    inner: S,
    response: Duration,
    token: Arc<Zeroizing<String>>,
}

impl<S, B> Service<Request<Body>> for Guard<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: Into<BoxError> + 'static,
    B: hyper::body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<Either<B, Full<Bytes>>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (response, deadline, token) = (self.inner.call(request), self.response, self.token.clone());
        let answer = async move {
            let (mut head, body) = response.await.map_err(Into::into)?.into_parts();
            if !head.status.is_client_error() && !head.status.is_server_error() {
                return Ok(Response::from_parts(head, Either::Left(body)));
            }
            let text = Limited::new(body, MAX_REFUSAL).collect().await?.to_bytes();
            head.headers.remove(http::header::CONTENT_LENGTH);
            Ok(Response::from_parts(head, Either::Right(Full::from(without(&text, &token)))))
        };
        Box::pin(async move {
            match tokio::time::timeout(deadline, answer).await {
                Ok(answer) => answer,
                Err(_) => Err(format!("no response within {} s", deadline.as_secs_f32()).into()),
            }
        })
    }
}

/// A text without a secret. What is shorter than any credential stays: it would be words of the language.
fn without(text: &[u8], secret: &str) -> Vec<u8> {
    if secret.len() < 8 || !text.windows(secret.len()).any(|part| part == secret.as_bytes()) {
        return text.to_vec();
    }
    String::from_utf8_lossy(text).replace(secret, "<credential>").into_bytes()
}

/// An answer, whatever its status.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    pub status: u16,
    pub body: Value,
}

impl Answer {
    pub(super) fn ok(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The server's own words, shortened.
    pub(super) fn message(&self) -> String {
        let text = self.body["message"].as_str().unwrap_or("no message");
        format!("{} {}", self.status, shorten(text, 400))
    }
}

/// What a request through [`ask`] is.
#[derive(Debug, Clone)]
pub(super) struct Ask {
    pub method: &'static str,
    pub path: String,
    pub content_type: &'static str,
    pub body: Value,
}

impl Ask {
    pub(super) fn get(path: impl Into<String>) -> Self {
        Self { method: "GET", path: path.into(), content_type: "application/json", body: Value::Null }
    }

    pub(super) fn create(path: impl Into<String>, body: Value) -> Self {
        Self { method: "POST", path: path.into(), content_type: "application/json", body }
    }

    pub(super) fn merge(path: impl Into<String>, body: Value) -> Self {
        Self { method: "PATCH", path: path.into(), content_type: "application/merge-patch+json", body }
    }

    pub(super) fn apply(path: impl Into<String>, body: Value) -> Self {
        let path = format!("{}?fieldManager={}&force=true", path.into(), super::names::FIELD_MANAGER);
        Self { method: "PATCH", path, content_type: "application/apply-patch+yaml", body }
    }

    /// The same without an effect.
    pub(super) fn dry(mut self) -> Self {
        let separator = if self.path.contains('?') { '&' } else { '?' };
        self.path = format!("{}{separator}dryRun=All", self.path);
        self
    }
}

/// Asks and reads the whole answer. An error means that the cluster gave none that can be understood; its text is for
/// people.
pub(super) async fn ask(client: &kube::Client, headers: &[(&str, &str)], ask: &Ask) -> Result<Answer, String> {
    let mut request = Request::builder().method(ask.method).uri(&ask.path).header("accept", "application/json");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let bytes = if ask.body.is_null() {
        vec![]
    } else {
        request = request.header("content-type", ask.content_type);
        ask.body.to_string().into_bytes()
    };
    let request = request.body(Body::from(bytes)).map_err(|why| why.to_string())?;
    let answer = async {
        let response = client.send(request).await.map_err(|why| explain(&why))?;
        let status = response.status().as_u16();
        if (300..400).contains(&status) {
            return Err(format!("answered {status}, a redirect, which is never followed"));
        }
        let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await;
        let bytes: Bytes = body.map_err(|why| format!("the answer broke off: {why}"))?.to_bytes();
        let body = serde_json::from_slice(&bytes).map_err(|_| {
            format!("answered {status} with something that is not JSON; is this a Kubernetes API server?")
        })?;
        Ok(Answer { status, body })
    };
    match tokio::time::timeout(ANSWER, answer).await {
        Ok(answer) => answer,
        Err(_) => Err(format!("no whole answer within {} s", ANSWER.as_secs())),
    }
}

/// The innermost causes of an error in one line: the outer ones say only that something failed.
pub(super) fn explain(error: &dyn std::error::Error) -> String {
    let mut texts: Vec<String> = vec![];
    let mut next = Some(error);
    while let Some(error) = next {
        let text = error.to_string();
        // Wrappers repeat their cause's text.
        if let Some(last) = texts.last_mut()
            && last.contains(&text)
        {
            *last = last.trim_end_matches(&text).trim_end_matches([':', ' ']).to_owned();
        }
        texts.push(text);
        next = error.source();
    }
    texts.retain(|text| !text.is_empty() && text != "ServiceError");
    shorten(&texts.join(": "), 400)
}

/// Cuts a text of somebody else's to a length that fits into a condition.
pub(super) fn shorten(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some((at, _)) => format!("{}…", &text[..at]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_told_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("outer: {0}")]
        struct Outer(#[source] std::io::Error);
        let error = Outer(std::io::Error::other("connection refused"));
        assert_eq!(explain(&error), "outer: connection refused");
    }

    #[test]
    fn refusals_lose_our_credential_and_nothing_else() {
        let secret = "eyJhbGciOi.token";
        let text = br#"{"message":"Bearer eyJhbGciOi.token, eyJhbGciOi.token"}"#;
        assert_eq!(without(text, secret), br#"{"message":"Bearer <credential>, <credential>"}"#);
        assert_eq!(without(b"\xff is no text", secret), b"\xff is no text");
        assert_eq!(without(text, "message"), text);
        assert_eq!(without(text, ""), text);
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(shorten("äöü", 2), "äö…");
        assert_eq!(shorten("äöü", 3), "äöü");
    }
}
