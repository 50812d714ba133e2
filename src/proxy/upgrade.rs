//! Upgraded connections: bytes copied blindly both ways, SPDY or WebSocket, until either side ends or the right does.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::service::Finish;
use super::streams::Registered;

/// Buffer of each direction.
const BUFFER: usize = 32 * 1024;

/// Copies until the end and records it.
pub async fn relay(client: OnUpgrade, cluster: OnUpgrade, registered: Registered, mut finish: Finish) {
    let counts = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let copied = tokio::select! {
        biased;
        () = registered.cut.cancelled() => Err(None),
        result = copy(client, cluster, &counts) => result.map_err(Some),
    };
    finish.count_both(counts.0.load(Ordering::Relaxed), counts.1.load(Ordering::Relaxed));
    match copied {
        Ok(()) => finish.complete(),
        Err(None) => finish.cut(registered.cut.cause().unwrap_or("cut")),
        // A client that goes away is the usual end of a session.
        Err(Some(_)) => finish.broke("the connection broke off"),
    }
}

async fn copy(client: OnUpgrade, cluster: OnUpgrade, counts: &(Arc<AtomicU64>, Arc<AtomicU64>)) -> Result<(), String> {
    let (client, cluster) = tokio::try_join!(client, cluster).map_err(|why| why.to_string())?;
    let mut client = Counted { inner: TokioIo::new(client), read: counts.0.clone() };
    let mut cluster = Counted { inner: TokioIo::new(cluster), read: counts.1.clone() };
    let copied = tokio::io::copy_bidirectional_with_sizes(&mut client, &mut cluster, BUFFER, BUFFER).await;
    copied.map(|_| ()).map_err(|why| why.to_string())
}

/// Counts what is read, also when the copy is dropped midway.
struct Counted<S> {
    inner: S,
    read: Arc<AtomicU64>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(cx, buf);
        self.read.fetch_add((buf.filled().len() - before) as u64, Ordering::Relaxed);
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
