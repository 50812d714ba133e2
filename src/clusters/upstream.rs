//! The data path to a cluster: which connections carry which requests.
//!
//! Short requests share keep-alive HTTP/1.1 connections. Lists go over HTTP/2, which moves large bodies for less, and
//! long-running responses over HTTP/2 connections of their own, opened by stream count: the API server allows 100 streams
//! a connection, and one shared connection would let two hundred watches stall a cluster. Windows are such that a client
//! that stops reading holds up its own stream only. Upgrades (exec, attach, port-forward) each get a fresh HTTP/1.1
//! connection, since HTTP/2 has no `Upgrade`. Redirects are never followed.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::HeaderValue;
use http::uri::{Authority, PathAndQuery, Scheme, Uri};
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::endpoint::Endpoint;
use super::outgoing::Outgoing;

/// Time for a connection to stand, TLS included.
const CONNECT: Duration = Duration::from_secs(5);
/// Idle keep-alive connections are closed after this; the API server closes them after 90 s or more.
const IDLE: Duration = Duration::from_secs(60);
/// Most idle keep-alive connections a cluster.
const MAX_IDLE: usize = 128;
/// Connections for long-running responses: the API server refuses the 101st stream, and events are small. Bounds them to
/// 10,000 a cluster.
const LONG_RUNNING: Shape = Shape { streams: 100, window: 64 * 1024, connections: 100 };
/// Connections for lists: few streams with much room, since they may be large.
const LISTS: Shape = Shape { streams: 8, window: 1024 * 1024, connections: 64 };
/// Pings on HTTP/2 connections find a cluster that vanished without a word.
const PING: Duration = Duration::from_secs(15);
/// Time for the answer to a ping.
const PONG: Duration = Duration::from_secs(10);

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

/// Where the proxy finds the way to a cluster.
pub trait Upstreams: Send + Sync + 'static {
    /// The data path to a cluster; `None` where there is no such cluster, or no credential for it.
    fn upstream(&self, cluster: &str) -> Option<Arc<Upstream>>;
}

/// A cluster, reached with the forwarding account.
pub struct Upstream {
    authority: Authority,
    credential: HeaderValue,
    dialer: Dialer,
    short: legacy::Client<Dialer, Outgoing>,
    long_running: StreamPool,
    lists: StreamPool,
}

impl Upstream {
    /// Prepares the connections; dials nothing yet.
    pub fn new(endpoint: &Endpoint, token: &str) -> Result<Self, UpstreamError> {
        let mut credential = HeaderValue::from_str(&format!("Bearer {token}"))
            .map_err(|_| UpstreamError::Request("the forwarding credential is no header value".into()))?;
        credential.set_sensitive(true);
        let dialer = Dialer::new(endpoint, b"http/1.1");
        let short = legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(MAX_IDLE)
            .http1_max_headers(256)
            .build(dialer.clone());
        let multiplexed = Dialer::new(endpoint, b"h2");
        Ok(Self {
            authority: endpoint.authority.clone(),
            credential,
            dialer,
            short,
            long_running: StreamPool::new(multiplexed.clone(), LONG_RUNNING),
            lists: StreamPool::new(multiplexed, LISTS),
        })
    }

    /// The `Authorization` of the forwarding account.
    pub fn credential(&self) -> &HeaderValue {
        &self.credential
    }

    /// The absolute URL of a path and query on this cluster.
    pub fn url(&self, path_and_query: PathAndQuery) -> Result<Uri, UpstreamError> {
        let mut parts = http::uri::Parts::default();
        parts.scheme = Some(Scheme::HTTPS);
        parts.authority = Some(self.authority.clone());
        parts.path_and_query = Some(path_and_query);
        Uri::from_parts(parts).map_err(|why| UpstreamError::Request(why.to_string()))
    }

    /// Sends a short request. A request that was not written because a kept connection had gone is sent on another
    /// one; nothing is ever sent twice.
    pub async fn send(&self, request: Request<Outgoing>) -> Result<Response<Incoming>, UpstreamError> {
        self.short.request(request).await.map_err(|why| {
            if why.is_connect() { UpstreamError::Connect(chain(&why)) } else { UpstreamError::Broken(chain(&why)) }
        })
    }

    /// Sends a request whose response goes on. The lease holds its place and must live as long as the response.
    pub async fn send_streaming(
        &self,
        request: Request<Outgoing>,
    ) -> Result<(Response<Incoming>, Lease), UpstreamError> {
        self.long_running.send(request).await
    }

    /// Sends a request for a list. The lease is as that of [`Upstream::send_streaming`].
    pub async fn send_list(&self, request: Request<Outgoing>) -> Result<(Response<Incoming>, Lease), UpstreamError> {
        self.lists.send(request).await
    }

    /// Sends a request that asks for an upgrade, over a connection of its own.
    pub async fn upgrade(&self, mut request: Request<Outgoing>) -> Result<Response<Incoming>, UpstreamError> {
        let io = self.dialer.dial().await?;
        let (mut sender, connection) = http1::Builder::new()
            .max_headers(256)
            .handshake(TokioIo::new(io))
            .await
            .map_err(|why| UpstreamError::Broken(chain(&why)))?;
        // Ends when the response is read or the upgrade takes the connection over.
        tokio::spawn(connection.with_upgrades());
        let host =
            HeaderValue::from_str(self.authority.as_str()).map_err(|why| UpstreamError::Request(why.to_string()))?;
        request.headers_mut().insert(http::header::HOST, host);
        *request.uri_mut() = request.uri().path_and_query().cloned().map(Uri::from).unwrap_or_default();
        sender.send_request(request).await.map_err(|why| UpstreamError::Broken(chain(&why)))
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

// ===== connections for long-running responses =====

/// How many streams share a connection, and how much of each may be on its way.
#[derive(Debug, Clone, Copy)]
struct Shape {
    streams: usize,
    // The connection's window is the sum of its streams': a client that stops reading holds up nobody else's stream.
    window: u32,
    connections: usize,
}

struct StreamPool {
    dialer: Dialer,
    shape: Shape,
    connections: Mutex<Vec<StreamConnection>>,
    // One dial at a time: a burst of watches waits for the connection that the first of them opens.
    dialing: tokio::sync::Mutex<()>,
}

struct StreamConnection {
    sender: http2::SendRequest<Outgoing>,
    active: Arc<AtomicUsize>,
}

/// A place on an HTTP/2 connection; given back when dropped.
#[derive(Debug)]
pub struct Lease {
    active: Arc<AtomicUsize>,
}

impl Lease {
    fn take(active: &Arc<AtomicUsize>, streams: usize) -> Option<Self> {
        let room = |n| (n < streams).then_some(n + 1);
        active.fetch_update(Ordering::AcqRel, Ordering::Acquire, room).ok().map(|_| Self { active: active.clone() })
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.active.fetch_sub(1, Ordering::AcqRel);
    }
}

impl StreamPool {
    fn new(dialer: Dialer, shape: Shape) -> Self {
        Self { dialer, shape, connections: Mutex::default(), dialing: tokio::sync::Mutex::default() }
    }

    async fn send(&self, request: Request<Outgoing>) -> Result<(Response<Incoming>, Lease), UpstreamError> {
        let (mut sender, lease) = self.lease().await?;
        match sender.try_send_request(request).await {
            Ok(response) => Ok((response, lease)),
            Err(mut failed) => match failed.take_message() {
                // Not written: the connection was on its way out. One fresh connection, then give up.
                Some(request) => {
                    drop(lease);
                    let (mut sender, lease) = self.fresh().await?;
                    let response =
                        sender.send_request(request).await.map_err(|why| UpstreamError::Broken(chain(&why)))?;
                    Ok((response, lease))
                }
                None => Err(UpstreamError::Broken(chain(&failed.into_error()))),
            },
        }
    }

    async fn lease(&self) -> Result<(http2::SendRequest<Outgoing>, Lease), UpstreamError> {
        if let Some(found) = self.find() {
            return Ok(found);
        }
        let _one = self.dialing.lock().await;
        match self.find() {
            Some(found) => Ok(found),
            None => self.dial().await,
        }
    }

    async fn fresh(&self) -> Result<(http2::SendRequest<Outgoing>, Lease), UpstreamError> {
        let _one = self.dialing.lock().await;
        self.dial().await
    }

    fn find(&self) -> Option<(http2::SendRequest<Outgoing>, Lease)> {
        let mut connections = self.connections.lock();
        connections.retain(|c| !c.sender.is_closed());
        connections.iter().find_map(|c| Some((c.sender.clone(), Lease::take(&c.active, self.shape.streams)?)))
    }

    async fn dial(&self) -> Result<(http2::SendRequest<Outgoing>, Lease), UpstreamError> {
        if self.connections.lock().len() >= self.shape.connections {
            return Err(UpstreamError::Full);
        }
        let io = self.dialer.dial().await?;
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(PING)
            .keep_alive_timeout(PONG)
            .max_header_list_size(64 * 1024)
            .initial_stream_window_size(self.shape.window)
            .initial_connection_window_size(self.shape.window * self.shape.streams as u32)
            .handshake(TokioIo::new(io))
            .await
            .map_err(|why| UpstreamError::Broken(chain(&why)))?;
        // Ends when the last sender is gone and the last stream over, or the cluster closes.
        tokio::spawn(async move {
            let _ = connection.await;
        });
        let active = Arc::new(AtomicUsize::new(0));
        let lease = Lease::take(&active, self.shape.streams).ok_or(UpstreamError::Full)?;
        self.connections.lock().push(StreamConnection { sender: sender.clone(), active });
        Ok((sender, lease))
    }
}

// ===== dialling =====

#[derive(Clone)]
struct Dialer {
    host: Arc<str>,
    port: u16,
    server_name: ServerName<'static>,
    tls: TlsConnector,
}

impl Dialer {
    fn new(endpoint: &Endpoint, alpn: &[u8]) -> Self {
        let mut tls = (*endpoint.tls).clone();
        tls.alpn_protocols = vec![alpn.to_vec()];
        Self {
            host: endpoint.host.as_str().into(),
            port: endpoint.port,
            server_name: endpoint.server_name.clone(),
            tls: TlsConnector::from(Arc::new(tls)),
        }
    }

    async fn dial(&self) -> Result<TlsStream<TcpStream>, UpstreamError> {
        let connect = async {
            let tcp = TcpStream::connect((&*self.host, self.port)).await?;
            tcp.set_nodelay(true)?;
            let keepalive =
                socket2::TcpKeepalive::new().with_time(Duration::from_secs(30)).with_interval(Duration::from_secs(10));
            socket2::SockRef::from(&tcp).set_tcp_keepalive(&keepalive)?;
            self.tls.connect(self.server_name.clone(), tcp).await
        };
        match tokio::time::timeout(CONNECT, connect).await {
            Ok(Ok(io)) => Ok(io),
            Ok(Err(why)) => Err(UpstreamError::Connect(why.to_string())),
            Err(_) => Err(UpstreamError::ConnectTimeout),
        }
    }
}

impl tower::Service<Uri> for Dialer {
    type Response = Dialled;
    type Error = UpstreamError;
    type Future = Pin<Box<dyn Future<Output = Result<Dialled, UpstreamError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), UpstreamError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let dialer = self.clone();
        Box::pin(async move { Ok(Dialled(TokioIo::new(dialer.dial().await?))) })
    }
}

/// A connection as the client pool wants it.
struct Dialled(TokioIo<TlsStream<TcpStream>>);

impl Connection for Dialled {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Read for Dialled {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl Write for Dialled {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(cx, bufs)
    }
}
