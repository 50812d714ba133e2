//! The way to the server: HTTPS/1.1 with exactly the trust that was asked for, bounded in time and size.
//!
//! An unknown certificate is refused; there is no switch to accept it, and a CA is never fetched from an address that
//! cannot be verified yet. Redirects are not followed: they would carry the credential to somewhere else.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue, USER_AGENT};
use http::{Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use zeroize::Zeroizing;

use super::exit::{Failure, Outcome};
use crate::resources::{GROUP, VERSION};
use crate::status::Status;

/// Longest wait for a connection. A LAN answers in milliseconds, a far continent in well under a second.
const CONNECT_DEADLINE: Duration = Duration::from_secs(10);
/// Longest wait for a whole answer. The slowest calls probe a cluster or wait until a namespace can be used.
const ANSWER_DEADLINE: Duration = Duration::from_secs(120);
/// Largest answer. The largest honest ones are lists and audit logs.
const MAX_ANSWER: usize = 64 << 20;
/// Asks for columns as kubectl does.
pub const AS_TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

/// Address of a service: scheme and authority, nothing else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseUrl(String);

impl BaseUrl {
    /// Checks what a person gave. A trailing slash is forgiven.
    pub fn parse(text: &str) -> Outcome<Self> {
        let bad = |why: &str| Failure::Usage(format!("URL {text:?}: {why}; write https://HOST[:PORT]"));
        let uri: Uri = text.parse().map_err(|_| bad("is not a URL"))?;
        match uri.scheme_str() {
            Some("https") => {}
            Some("http") => return Err(bad("plain http would show your password to everybody on the way")),
            _ => return Err(bad("does not begin with https://")),
        }
        let authority = uri.authority().ok_or_else(|| bad("names no host"))?;
        if authority.as_str().contains('@') {
            return Err(bad("must not hold a user name"));
        }
        if uri.host().is_none_or(str::is_empty) {
            return Err(bad("names no host"));
        }
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
            return Err(bad("must have no path"));
        }
        Ok(Self(format!("https://{}", authority.as_str().to_ascii_lowercase().trim_end_matches(":443"))))
    }

    /// `https://host[:port]`, without a slash at the end.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// `host[:port]`.
    pub fn authority(&self) -> &str {
        self.0.trim_start_matches("https://")
    }
}

/// Which certificates are trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trust {
    /// Only those that chain to these CA certificates (PEM).
    Only(String),
    /// The system's.
    System,
}

impl Trust {
    fn roots(&self) -> Outcome<RootCertStore> {
        let mut roots = RootCertStore::empty();
        match self {
            Self::Only(pem) => {
                for (at, certificate) in CertificateDer::pem_slice_iter(pem.as_bytes()).enumerate() {
                    let certificate =
                        certificate.map_err(|e| Failure::Usage(format!("CA file: certificate {}: {e}", at + 1)))?;
                    roots
                        .add(certificate)
                        .map_err(|e| Failure::Usage(format!("CA file: certificate {}: {e}", at + 1)))?;
                }
                if roots.is_empty() {
                    return Err(Failure::Usage("CA file: holds no certificate (PEM, BEGIN CERTIFICATE)".to_owned()));
                }
            }
            Self::System => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
        }
        Ok(roots)
    }
}

/// A connection pool to one service, with the credential for it.
pub struct Client {
    pool: Pool<HttpsConnector<HttpConnector>, Full<Bytes>>,
    base: BaseUrl,
    authorization: Option<HeaderValue>,
    deadline: Duration,
}

/// An answer that is no error.
#[derive(Debug)]
pub struct Reply {
    /// HTTP status, below 300.
    pub status: StatusCode,
    /// Body.
    pub body: Bytes,
}

impl Reply {
    /// The body as JSON.
    pub fn json(&self) -> Outcome<Value> {
        serde_json::from_slice(&self.body)
            .map_err(|e| Failure::Failed(format!("the server's answer is no JSON ({e}); is this a Bailiwick service?")))
    }
}

impl Client {
    /// A client for one service. `token` goes to this service only.
    pub fn new(base: BaseUrl, trust: &Trust, token: Option<&Zeroizing<String>>) -> Outcome<Self> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| Failure::Failed(format!("TLS: {e}")))?
            .with_root_certificates(trust.roots()?)
            .with_no_client_auth();
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_connect_timeout(Some(CONNECT_DEADLINE));
        tcp.set_nodelay(true);
        let https = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_only()
            .enable_http1()
            .wrap_connector(tcp);
        let authorization = match token {
            Some(token) => {
                let mut value = HeaderValue::from_str(&format!("Bearer {}", token.as_str()))
                    .map_err(|_| Failure::Usage("the token holds characters that no token has".to_owned()))?;
                value.set_sensitive(true);
                Some(value)
            }
            None => None,
        };
        Ok(Self {
            pool: Pool::builder(TokioExecutor::new()).build(https),
            base,
            authorization,
            deadline: ANSWER_DEADLINE,
        })
    }

    /// Replaces the deadline of each call.
    pub fn with_deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// The service that is asked.
    pub fn base(&self) -> &BaseUrl {
        &self.base
    }

    /// Reads JSON.
    pub async fn get(&self, path: &str) -> Outcome<Value> {
        self.send(Method::GET, path, "application/json", None).await?.json()
    }

    /// Sends JSON and reads JSON; an empty answer is null.
    pub async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Outcome<Value> {
        let reply = self.send(method, path, "application/json", body).await?;
        if reply.body.is_empty() { Ok(Value::Null) } else { reply.json() }
    }

    /// One request. `path` begins with a slash and is encoded already. Errors of the server become
    /// [`Failure::Server`].
    pub async fn send(&self, method: Method, path: &str, accept: &str, body: Option<&Value>) -> Outcome<Reply> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.base.as_str()))
            .header(ACCEPT, accept)
            .header(USER_AGENT, concat!("bailiwick/", env!("CARGO_PKG_VERSION")));
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        let bytes = match body {
            Some(value) => {
                request = request.header(CONTENT_TYPE, "application/json");
                Bytes::from(value.to_string())
            }
            None => Bytes::new(),
        };
        let request =
            request.body(Full::new(bytes)).map_err(|e| Failure::Usage(format!("cannot ask for {path:?}: {e}")))?;
        match tokio::time::timeout(self.deadline, self.exchange(request)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(Failure::Unreachable(format!(
                "{} did not answer within {} s",
                self.base.as_str(),
                self.deadline.as_secs()
            ))),
        }
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Outcome<Reply> {
        let answer = self.pool.request(request).await.map_err(|e| self.unreachable(&e))?;
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, MAX_ANSWER).collect().await.map_err(|e| {
            Failure::Unreachable(format!("the answer of {} broke off: {}", self.base.as_str(), causes(&*e)))
        })?;
        let body = body.to_bytes();
        if head.status.is_success() {
            return Ok(Reply { status: head.status, body });
        }
        if head.status.is_redirection() {
            return Err(Failure::Unreachable(format!(
                "{} answered with a redirect ({}), which is not followed; is this the address of the service itself?",
                self.base.as_str(),
                head.status
            )));
        }
        Err(Failure::from(error_status(head.status, &body)))
    }

    fn unreachable(&self, error: &hyper_util::client::legacy::Error) -> Failure {
        match tls_error(error) {
            Some(tls) => self.untrusted(tls),
            None => Failure::Unreachable(format!("{} cannot be reached: {}", self.base.as_str(), causes(error))),
        }
    }

    fn untrusted(&self, error: &rustls::Error) -> Failure {
        let url = self.base.as_str();
        Failure::Unreachable(match error {
            rustls::Error::InvalidCertificate(why) => format!(
                "the certificate of {url} is not trusted ({why}); nothing was sent. If the service has a private CA, \
                 give its file with --ca-file or BAILIWICK_CA_FILE; get it from your administrator, not from this \
                 address"
            ),
            other => format!("no TLS connection to {url}: {other}"),
        })
    }
}

/// The path of a collection, or of one object in it.
pub fn resource_path(plural: &str, name: Option<&str>) -> String {
    match name {
        Some(name) => format!("/apis/{GROUP}/{VERSION}/{plural}/{}", encode(name)),
        None => format!("/apis/{GROUP}/{VERSION}/{plural}"),
    }
}

/// Percent-encodes a path segment or query value: everything but RFC 3986's unreserved characters.
pub fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

/// What an error answer says: a Status, or at least its code where something in between has answered.
fn error_status(code: StatusCode, body: &Bytes) -> Status {
    if let Ok(value) = serde_json::from_slice::<Value>(body)
        && value["kind"] == "Status"
        && let Ok(status) = serde_json::from_value::<Status>(value)
    {
        return status;
    }
    let text: String = String::from_utf8_lossy(body).chars().filter(|c| !c.is_control()).take(200).collect();
    let reason = code.canonical_reason().unwrap_or("unknown");
    Status::new(code, "", if text.is_empty() { reason.to_owned() } else { text })
}

/// Finds the TLS error below others. `io::Error` hides what it wraps from `source()`, and may be nested.
fn tls_error<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a rustls::Error> {
    let mut next = Some(error);
    while let Some(at) = next {
        if let Some(tls) = at.downcast_ref::<rustls::Error>() {
            return Some(tls);
        }
        next = match at.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => at.source(),
        };
    }
    None
}

fn causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut all: Vec<String> = Vec::new();
    let mut next = Some(error);
    while let Some(at) = next {
        let text = at.to_string();
        // Several layers repeat what the next one says.
        if !all.iter().any(|said| said.contains(&text)) {
            all.push(text);
        }
        next = at.source();
    }
    all.join(": ")
}

#[cfg(test)]
mod tests;
