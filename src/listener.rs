//! The TLS listener: proxy and API behind one address.
//!
//! Connections are bounded in number, in the size of what they may send before anything is known of them, and in the
//! time they may take for it. Dispatch is by path, before the API's router sees anything: what belongs to the proxy is
//! never cleaned, matched or logged by a web framework.

mod activity;
mod pages;
mod places;

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, Version};
use http_body_util::Either;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use ipnet::IpNet;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;
use tracing::{debug, warn};

use self::activity::{Activity, Busy, Held};
pub use self::pages::serve_pages;
use self::places::Places;
use crate::api::ClientAddress;
use crate::audit::Surface;
use crate::clusters::outgoing::{BodyBroke, poll_part};
use crate::identity::address::client_address;
use crate::metrics::{LoginResult, LoginResultLabel, Metrics, VerbClass};
use crate::proxy::{Proxy, body::ProxyBody, target};

/// How long connections may do nothing, and how many there may be.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Time for the TLS handshake.
    pub handshake: Duration,
    /// Time for the head of a request; for the first one from the handshake on, whatever the protocol.
    pub head: Duration,
    /// Longest silence between two requests on one connection; on HTTP/1.1 it is `head`, where that is shorter. Clients
    /// in Go close theirs after 90 s.
    pub idle: Duration,
    /// Longest that a client may leave a short answer untouched of which more is at hand. It holds a place in its account's
    /// budget, a connection to the cluster and the cluster's attention meanwhile.
    pub unread: Duration,
    /// Pause between pings on HTTP/2, and the time for their answer: they find clients that vanished without a word.
    pub ping: Duration,
    /// Most connections.
    pub connections: usize,
    /// Most connections of one address; trusted proxies, behind which everybody may be, are not counted.
    pub per_address: usize,
}

impl Limits {
    /// The defaults, within what this process may have open: a connection carries at most one long-running answer that
    /// needs another one to a cluster, and files and the store need some as well.
    pub fn within(open_files: u64) -> Self {
        let default = Self::default();
        let room = usize::try_from(open_files.saturating_sub(256) / 2).unwrap_or(usize::MAX);
        let connections = default.connections.min(room.max(16));
        // Whole offices come from one address, but no address takes the last place from all others.
        Self { connections, per_address: connections.div_ceil(4), ..default }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(10),
            head: Duration::from_secs(30),
            idle: Duration::from_secs(300),
            unread: Duration::from_secs(90),
            ping: Duration::from_secs(20),
            connections: 20_000,
            per_address: 5_000,
        }
    }
}

/// Largest head, in bytes.
const MAX_HEAD: usize = 64 * 1024;
/// Streams that one HTTP/2 connection may have open: client-go puts all its watches on one.
const MAX_STREAMS: u32 = 250;
/// Bytes that the kernel may hold unsent for a client. Bounds what still arrives after a cut, without bounding the window.
const NOT_SENT: u32 = 128 * 1024;
/// Bytes that HTTP/2 may hold for one stream of a client that does not read; times [`MAX_STREAMS`] for a connection.
const SEND_BUFFER: usize = 64 * 1024;

/// What is behind the address.
pub struct Doors {
    /// The proxy.
    pub proxy: Arc<Proxy>,
    /// Our own API.
    pub api: axum::Router,
    /// Proxies whose `X-Forwarded-For` is believed.
    pub trusted_proxies: Vec<IpNet>,
    /// Where requests to our own API are counted; the proxy counts its own.
    pub metrics: Arc<Metrics>,
}

impl Doors {
    fn trusts(&self, address: IpAddr) -> bool {
        self.trusted_proxies.iter().any(|net| net.contains(&address.to_canonical()))
    }
}

/// Accepts connections until `shutdown`, then lets the requests in flight finish within `grace`.
pub async fn serve(
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    doors: Arc<Doors>,
    shutdown: CancellationToken,
    grace: Duration,
) {
    serve_within(listener, tls, doors, shutdown, grace, Limits::default()).await;
}

/// As [`serve`], with other limits.
pub async fn serve_within(
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    doors: Arc<Doors>,
    shutdown: CancellationToken,
    grace: Duration,
    limits: Limits,
) {
    let Limits { handshake, head, idle, unread, ping, connections, per_address } = limits;
    let acceptor = TlsAcceptor::from(tls);
    let graceful = GracefulShutdown::new();
    let builder = Arc::new(connection_settings(head, ping));
    let places = Places::new(connections, per_address);
    loop {
        let accepting = async {
            let place = places.one().await;
            (listener.accept().await, place)
        };
        let (accepted, mut place) = tokio::select! {
            () = shutdown.cancelled() => break,
            accepted = accepting => accepted,
        };
        let (tcp, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(why) => {
                // Out of file descriptors, for one: those in use will be given back.
                warn!(%why, "connection not accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        if !doors.trusts(peer.ip()) && !place.count(peer.ip()) {
            // Closed at once: whoever waited here would hold up everybody behind.
            debug!(%peer, "too many connections of one address");
            continue;
        }
        let (acceptor, doors, builder) = (acceptor.clone(), doors.clone(), builder.clone());
        let watcher = graceful.watcher();
        tokio::spawn(async move {
            let _place = place;
            if let Err(why) = prepare(&tcp) {
                debug!(%why, "socket not set up");
            }
            let tls = match tokio::time::timeout(handshake, acceptor.accept(tcp)).await {
                Ok(Ok(tls)) => tls,
                Ok(Err(why)) => return debug!(%why, %peer, "no TLS"),
                Err(_) => return debug!(%peer, "no TLS in time"),
            };
            let activity = Arc::new(Activity::new());
            let service = {
                let activity = activity.clone();
                service_fn(move |request| {
                    let busy = Busy::new(&activity);
                    let answer = dispatch(doors.clone(), request, peer);
                    async move { Ok::<_, Infallible>(answer.await?.map(|body| Held::new(body, busy))) }
                })
            };
            let connection = builder.serve_connection_with_upgrades(TokioIo::new(tls), service);
            tokio::select! {
                ended = watcher.watch(connection.into_owned()) => if let Err(why) = ended {
                    debug!(%why, %peer, "connection ended");
                },
                () = activity.is_idle(head, idle) => debug!(%peer, "an idle connection is closed"),
                () = activity.is_unread(unread) => debug!(%peer, "a client that reads nothing is cut"),
            }
        });
    }
    drop(listener);
    if tokio::time::timeout(grace, graceful.shutdown()).await.is_err() {
        warn!("some requests did not finish in time and are cut");
    }
}

fn connection_settings(head: Duration, ping: Duration) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(head).max_buf_size(MAX_HEAD).max_headers(100);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEAD as u32)
        .max_pending_accept_reset_streams(20)
        // Resets that a client provokes by breaking the protocol on purpose; honest ones provoke none.
        .max_local_error_reset_streams(Some(128))
        .max_send_buf_size(SEND_BUFFER)
        .keep_alive_interval(ping)
        .keep_alive_timeout(ping);
    builder
}

fn prepare(tcp: &TcpStream) -> std::io::Result<()> {
    tcp.set_nodelay(true)?;
    let socket = socket2::SockRef::from(tcp);
    let keepalive =
        socket2::TcpKeepalive::new().with_time(Duration::from_secs(30)).with_interval(Duration::from_secs(10));
    socket.set_tcp_keepalive(&keepalive)?;
    socket.set_tcp_notsent_lowat(NOT_SENT)
}

type Answer = Response<Either<ProxyBody, axum::body::Body>>;

async fn dispatch(doors: Arc<Doors>, mut request: Request<Incoming>, peer: SocketAddr) -> Result<Answer, Infallible> {
    let address = address(&doors, &request, peer);
    if request.uri().path().starts_with(target::ROOT) {
        // On the heap at once: what holds it is moved about by the libraries in between.
        let answer = Box::pin(doors.proxy.clone().handle(request, address)).await;
        return Ok(answer.map(Either::Left));
    }
    request.extensions_mut().insert(ClientAddress(address));
    let counted = Counted::of(&request);
    let multiplexed = request.version() == Version::HTTP_2;
    let request = request.map(|body| axum::body::Body::new(FromClient { body, multiplexed }));
    let response = match doors.api.clone().oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    };
    counted.answered(&doors.metrics, response.status());
    Ok(response.map(Either::Right))
}

/// The body of a request to our own API.
struct FromClient {
    body: Incoming,
    multiplexed: bool,
}

impl Body for FromClient {
    type Data = Bytes;
    type Error = BodyBroke;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyBroke>>> {
        let multiplexed = self.multiplexed;
        poll_part(&mut self.body, multiplexed, cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// What is counted of a request to our own API.
struct Counted {
    surface: Surface,
    class: VerbClass,
    login: bool,
    started: Instant,
}

impl Counted {
    fn of(request: &Request<Incoming>) -> Self {
        let path = request.uri().path();
        let surface = if path.starts_with("/auth/") { Surface::Auth } else { Surface::Api };
        let watches = request.uri().query().is_some_and(|query| query.contains("watch="));
        let class = match *request.method() {
            Method::GET | Method::HEAD if watches => VerbClass::Watch,
            Method::GET | Method::HEAD => VerbClass::Read,
            _ => VerbClass::Write,
        };
        Self { surface, class, login: path == "/auth/login", started: Instant::now() }
    }

    fn answered(self, metrics: &Metrics, status: StatusCode) {
        let seconds = (self.class != VerbClass::Watch).then(|| self.started.elapsed().as_secs_f64());
        metrics.request(self.surface, self.class, status.as_u16(), seconds);
        if self.login {
            let result = match status.as_u16() {
                200 => LoginResult::Ok,
                403 => LoginResult::MustChange,
                429 => LoginResult::BackOff,
                _ => LoginResult::Refused,
            };
            metrics.logins.get_or_create(&LoginResultLabel { result }).inc();
        }
    }
}

fn address(doors: &Doors, request: &Request<Incoming>, peer: SocketAddr) -> IpAddr {
    let forwarded = request.headers().get_all("x-forwarded-for").iter();
    client_address(peer.ip(), forwarded, &doors.trusted_proxies)
}
