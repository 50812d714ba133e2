//! HTTP/2 connections that many responses share, opened by stream count.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;

use super::dial::Dialer;
use super::{UpstreamError, chain};
use crate::clusters::outgoing::Outgoing;

/// Pings find a cluster that vanished without a word.
const PING: Duration = Duration::from_secs(15);
/// Time for the answer to a ping.
const PONG: Duration = Duration::from_secs(10);

/// Streams of a connection: the API server refuses the 101st.
const STREAMS: usize = 100;
/// How much of each stream may be on its way; events are small. The connection's window is the sum of its streams': a
/// client that stops reading holds up nobody else's stream.
const WINDOW: u32 = 64 * 1024;
/// Most connections of a cluster.
const CONNECTIONS: usize = 100;
/// Most streams of a cluster.
pub(super) const MOST: usize = CONNECTIONS * STREAMS;

/// The connections of a cluster for long-running responses.
pub(super) struct StreamPool {
    dialer: Dialer,
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
    fn take(active: &Arc<AtomicUsize>) -> Option<Self> {
        let room = |n| (n < STREAMS).then_some(n + 1);
        active.fetch_update(Ordering::AcqRel, Ordering::Acquire, room).ok().map(|_| Self { active: active.clone() })
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.active.fetch_sub(1, Ordering::AcqRel);
    }
}

impl StreamPool {
    pub(super) fn new(dialer: Dialer) -> Self {
        Self { dialer, connections: Mutex::default(), dialing: tokio::sync::Mutex::default() }
    }

    pub(super) async fn send(&self, request: Request<Outgoing>) -> Result<(Response<Incoming>, Lease), UpstreamError> {
        let (mut sender, lease) = self.lease().await?;
        match sender.try_send_request(request).await {
            Ok(response) => Ok((response, lease)),
            Err(mut failed) => match failed.take_message() {
                // Not written: the connection was on its way out. One fresh connection, then give up.
                Some(request) => {
                    drop(lease);
                    let (mut sender, lease) = self.fresh().await?;
                    let response = sender.send_request(request).await?;
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
        connections.iter().find_map(|c| Some((c.sender.clone(), Lease::take(&c.active)?)))
    }

    async fn dial(&self) -> Result<(http2::SendRequest<Outgoing>, Lease), UpstreamError> {
        if self.connections.lock().len() >= CONNECTIONS {
            return Err(UpstreamError::Full);
        }
        let io = self.dialer.dial().await?;
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(PING)
            .keep_alive_timeout(PONG)
            .max_header_list_size(64 * 1024)
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW * STREAMS as u32)
            .handshake(TokioIo::new(io))
            .await?;
        // Ends when the last sender is gone and the last stream over, or the cluster closes.
        tokio::spawn(async move {
            let _ = connection.await;
        });
        let active = Arc::new(AtomicUsize::new(0));
        let lease = Lease::take(&active).ok_or(UpstreamError::Full)?;
        self.connections.lock().push(StreamConnection { sender: sender.clone(), active });
        Ok((sender, lease))
    }
}
