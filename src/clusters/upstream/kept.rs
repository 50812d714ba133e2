//! Keep-alive HTTP/1.1 connections, each driven by the request that uses it.
//!
//! A connection has no task of its own: whoever sends on it polls it, and while it is idle nobody does. A request, its
//! connection to the cluster and its connection to the client are then one task, so that an answer crosses no queue
//! between threads on its way, and a request that is given up takes its connection with it at once.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::{Body as _, Frame, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::task::unconstrained;
use tokio_rustls::client::TlsStream;

use super::dial::Dialer;
use super::{ClusterBody, MAX_HEADERS, UpstreamError, chain};
use crate::clusters::outgoing::Outgoing;

/// Idle connections are closed after this; the API server closes them after 90 s or more.
const IDLE: Duration = Duration::from_secs(60);
/// Most idle connections a cluster.
const MAX_IDLE: usize = 128;

/// The connections of a cluster that wait for their next request.
pub(super) struct Pool {
    dialer: Dialer,
    // The one used last is used next: it is the least likely to have been closed, and the others can go.
    idle: Mutex<Vec<Idle>>,
}

struct Idle {
    wire: Wire,
    since: Instant,
}

/// A connection and the means to send on it.
struct Wire {
    sender: http1::SendRequest<Outgoing>,
    connection: Pin<Box<http1::Connection<TokioIo<TlsStream<TcpStream>>, Outgoing>>>,
}

impl Wire {
    /// Whether the next request may be sent: the last one is over, and the cluster neither closed nor spoke since.
    fn is_ready(&mut self) -> bool {
        // Nobody waits for this: whoever sends next polls again.
        let ended = self.connection.as_mut().poll(&mut unwoken()).is_ready();
        !ended && self.sender.is_ready()
    }
}

/// For what is polled again anyway: nobody is woken.
fn unwoken() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

impl Pool {
    /// No connection yet. Idle ones are closed by a task that ends with the pool.
    pub(super) fn new(dialer: Dialer) -> Arc<Self> {
        let pool = Arc::new(Self { dialer, idle: Mutex::default() });
        tokio::spawn(close_idle(Arc::downgrade(&pool)));
        pool
    }

    /// Sends a request in origin form with its `Host`. One that was not written because a kept connection had gone is
    /// sent on another; nothing is ever sent twice.
    pub(super) async fn send(
        self: &Arc<Self>,
        mut request: Request<Outgoing>,
    ) -> Result<Response<ClusterBody>, UpstreamError> {
        while let Some(wire) = self.take() {
            match self.exchange(wire, request).await {
                Ok(response) => return Ok(response),
                Err(Failed { unsent: Some(back), .. }) => request = back,
                Err(Failed { why, unsent: None }) => return Err(UpstreamError::Broken(why)),
            }
        }
        let wire = self.dial().await?;
        self.exchange(wire, request).await.map_err(|failed| UpstreamError::Broken(failed.why))
    }

    async fn dial(&self) -> Result<Wire, UpstreamError> {
        let io = TokioIo::new(self.dialer.dial().await?);
        let (sender, connection) = http1::Builder::new().max_headers(MAX_HEADERS).handshake(io).await?;
        Ok(Wire { sender, connection: Box::pin(connection) })
    }

    /// A connection that is still good.
    fn take(&self) -> Option<Wire> {
        loop {
            let Idle { mut wire, since } = self.idle.lock().pop()?;
            if since.elapsed() < IDLE && wire.is_ready() {
                return Some(wire);
            }
        }
    }

    fn give_back(&self, mut wire: Wire) {
        if !wire.is_ready() {
            return;
        }
        let mut idle = self.idle.lock();
        if idle.len() < MAX_IDLE {
            idle.push(Idle { wire, since: Instant::now() });
        }
    }

    async fn exchange(
        self: &Arc<Self>,
        mut wire: Wire,
        request: Request<Outgoing>,
    ) -> Result<Response<ClusterBody>, Failed> {
        let sending = wire.sender.try_send_request(request);
        // The answer comes out of the connection, which is polled here and nowhere else: nobody needs to be woken for it.
        // Hence no waker; and no budget, which would hold a ready answer back and wake nobody.
        let mut sending = std::pin::pin!(unconstrained(sending));
        let mut connection = Some(wire.connection);
        let answer = poll_fn(|cx| {
            if let Some(driven) = &mut connection
                && driven.as_mut().poll(cx).is_ready()
            {
                // Its end answers whoever still waits.
                connection = None;
            }
            sending.as_mut().poll(&mut unwoken())
        });
        match answer.await {
            Ok(response) => {
                let wire = connection.map(|connection| Wire { sender: wire.sender, connection });
                Ok(response.map(|body| ClusterBody::Kept(Kept { body, wire, pool: self.clone() })))
            }
            Err(mut failed) => {
                let unsent = failed.take_message();
                Err(Failed { unsent, why: chain(&failed.into_error()) })
            }
        }
    }
}

/// Why there is no answer, and the request where nothing of it was written.
struct Failed {
    unsent: Option<Request<Outgoing>>,
    why: String,
}

/// An answer's body with the connection that brings it.
pub struct Kept {
    body: Incoming,
    // Until it ends; it may end before the body is read.
    wire: Option<Wire>,
    pool: Arc<Pool>,
}

impl Kept {
    /// The next part of the body. At the end the connection goes back to the pool; dropped before, it is closed.
    pub(super) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        if let Some(wire) = &mut self.wire
            && wire.connection.as_mut().poll(cx).is_ready()
        {
            self.wire = None;
        }
        // As above: the connection fills it, in the line before.
        let frame = Pin::new(&mut self.body).poll_frame(&mut unwoken());
        let over = self.body.is_end_stream() || matches!(frame, Poll::Ready(None));
        if over && let Some(wire) = self.wire.take() {
            self.pool.give_back(wire);
        }
        frame
    }

    pub(super) fn body(&self) -> &Incoming {
        &self.body
    }
}

/// Closes connections that nobody used for a while, until the pool is gone.
async fn close_idle(pool: Weak<Pool>) {
    let mut ticks = tokio::time::interval(IDLE / 2);
    loop {
        ticks.tick().await;
        let Some(pool) = pool.upgrade() else { return };
        let old: Vec<Idle> = pool.idle.lock().extract_if(.., |idle| idle.since.elapsed() >= IDLE).collect();
        // Closed outside of the lock.
        drop(old);
    }
}
