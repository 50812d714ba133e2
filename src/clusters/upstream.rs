//! The data path to a cluster: which connections carry which requests.
//!
//! Short requests share keep-alive HTTP/1.1 connections. Long-running responses share HTTP/2 connections, opened by
//! stream count: the API server allows 100 streams a connection, and one shared connection would let two hundred watches
//! stall a cluster. Windows are such that a client that stops reading holds up its own stream only. Upgrades (exec,
//! attach, port-forward) each get a fresh HTTP/1.1 connection, since HTTP/2 has no `Upgrade`. Redirects are never
//! followed.

mod dial;
mod kept;
mod multiplexed;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::uri::{Authority, PathAndQuery, Scheme, Uri};
use http::{Request, Response};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;

use self::dial::Dialer;
use self::kept::Kept;
use self::multiplexed::{Lease, StreamPool};
use super::endpoint::Endpoint;
use super::outgoing::{BodyBroke, Outgoing, poll_part};

/// Time for a connection to stand, TLS included.
const CONNECT: Duration = Duration::from_secs(5);
/// Most streams of a cluster that share connections.
pub const MOST_STREAMS: usize = multiplexed::MOST;
/// Most headers of an answer.
const MAX_HEADERS: usize = 256;

/// Why a request did not reach the cluster or brought no response.
#[derive(Debug, Clone, thiserror::Error)]
pub enum UpstreamError {
    /// No TCP connection, or no TLS on it.
    #[error("cannot connect: {0}")]
    Connect(String),
    /// Nothing within the deadline.
    #[error("no connection within {} s", CONNECT.as_secs())]
    ConnectTimeout,
    /// All connections for long-running responses are full.
    #[error("too many long-running responses on this cluster")]
    Full,
    /// The connection broke or the answer was no HTTP.
    #[error("no usable answer: {0}")]
    Broken(String),
    /// The request cannot be written.
    #[error("the request cannot be forwarded: {0}")]
    Request(String),
}

impl From<hyper::Error> for UpstreamError {
    fn from(why: hyper::Error) -> Self {
        Self::Broken(chain(&why))
    }
}

impl From<BodyBroke> for UpstreamError {
    fn from(why: BodyBroke) -> Self {
        Self::Broken(chain(&why))
    }
}

/// Where the proxy finds the way to a cluster.
pub trait Upstreams: Send + Sync + 'static {
    /// The data path to a cluster; `None` where there is no such cluster, or no credential for it.
    fn upstream(&self, cluster: &str) -> Option<Arc<Upstream>>;

    /// The same with the service's own account, housekeeping, for the little that it asks for clients by itself.
    fn own(&self, cluster: &str) -> Option<Arc<Upstream>>;
}

/// Which connection carries a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// A kept one, for a response that ends by itself.
    Short,
    /// One shared by many responses that go on.
    Streaming,
    /// A fresh one, for a request with `Upgrade`.
    Upgrade,
}

/// A cluster, reached with the forwarding account.
pub struct Upstream {
    authority: Authority,
    host: HeaderValue,
    credential: HeaderValue,
    dialer: Dialer,
    kept: Arc<kept::Pool>,
    long_running: StreamPool,
}

impl Upstream {
    /// Prepares the connections; dials nothing yet. Must be called within a runtime.
    pub fn new(endpoint: &Endpoint, token: &str) -> Result<Self, UpstreamError> {
        let mut credential = HeaderValue::from_str(&format!("Bearer {token}"))
            .map_err(|_| UpstreamError::Request("the forwarding credential is no header value".into()))?;
        credential.set_sensitive(true);
        let authority = endpoint.authority.clone();
        let host = HeaderValue::from_str(authority.as_str()).map_err(|why| UpstreamError::Request(why.to_string()))?;
        let dialer = Dialer::new(endpoint, b"http/1.1");
        Ok(Self {
            authority,
            host,
            credential,
            kept: kept::Pool::new(dialer.clone()),
            long_running: StreamPool::new(Dialer::new(endpoint, b"h2")),
            dialer,
        })
    }

    /// The `Authorization` of the forwarding account.
    pub fn credential(&self) -> &HeaderValue {
        &self.credential
    }

    /// Sends a request whose target is path and query. One that was not written because a kept connection had gone is
    /// sent on another one; nothing is ever sent twice.
    pub async fn send(&self, way: Way, mut request: Request<Outgoing>) -> Result<Response<ClusterBody>, UpstreamError> {
        if way == Way::Streaming {
            let path = request.uri().path_and_query().cloned();
            *request.uri_mut() = self.url(path)?;
            let (response, lease) = self.long_running.send(request).await?;
            return Ok(response.map(|body| ClusterBody::Multiplexed { body, _lease: lease }));
        }
        request.headers_mut().insert(header::HOST, self.host.clone());
        if way == Way::Upgrade {
            return self.upgrade(request).await;
        }
        self.kept.send(request).await
    }

    fn url(&self, path_and_query: Option<PathAndQuery>) -> Result<Uri, UpstreamError> {
        let mut parts = http::uri::Parts::default();
        parts.scheme = Some(Scheme::HTTPS);
        parts.authority = Some(self.authority.clone());
        parts.path_and_query = path_and_query;
        Uri::from_parts(parts).map_err(|why| UpstreamError::Request(why.to_string()))
    }

    async fn upgrade(&self, request: Request<Outgoing>) -> Result<Response<ClusterBody>, UpstreamError> {
        let io = TokioIo::new(self.dialer.dial().await?);
        let made = http1::Builder::new().max_headers(MAX_HEADERS).handshake(io).await;
        let (mut sender, connection) = made?;
        // Ends when the response is read or the upgrade takes the connection over.
        tokio::spawn(connection.with_upgrades());
        let response = sender.send_request(request).await?;
        Ok(response.map(ClusterBody::Own))
    }
}

/// The body of a cluster's response, with its hold on the connection.
pub enum ClusterBody {
    /// On a kept connection.
    Kept(Kept),
    /// On a shared one.
    Multiplexed {
        /// The body.
        body: Incoming,
        /// Its place, held for as long as the response goes on.
        _lease: Lease,
    },
    /// On its own.
    Own(Incoming),
}

impl ClusterBody {
    fn inner(&self) -> &Incoming {
        match self {
            Self::Kept(kept) => kept.body(),
            Self::Multiplexed { body, .. } | Self::Own(body) => body,
        }
    }
}

impl Body for ClusterBody {
    type Data = Bytes;
    type Error = BodyBroke;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyBroke>>> {
        match self.get_mut() {
            Self::Kept(kept) => kept.poll_frame(cx).map_err(BodyBroke::from),
            Self::Multiplexed { body, .. } => poll_part(body, true, cx),
            Self::Own(body) => poll_part(body, false, cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner().is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner().size_hint()
    }
}

/// The messages of an error and its causes in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}
