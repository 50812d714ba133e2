//! Bodies of responses to clients: counted, cut when their right ends, and recorded when they are over.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::time::{Instant, Sleep};
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::service::Finish;
use super::streams::Registered;
use crate::clusters::upstream::Lease;

/// A short response that brings nothing for this long is given up: the cluster hangs.
const STALL: Duration = Duration::from_secs(90);

/// Why a body ended early. The connection or stream ends with it, so that a client cannot take the part for the whole.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// The right to it has ended.
    #[error("cut: {0}")]
    Cut(&'static str),
    /// The cluster brought nothing for too long.
    #[error("the cluster stopped sending")]
    Stalled,
    /// The connection to the cluster broke.
    #[error(transparent)]
    Upstream(#[from] hyper::Error),
}

/// Body of a response.
pub enum ProxyBody {
    /// Ours, at hand.
    Whole(Option<Bytes>),
    /// The cluster's, as it comes.
    Relayed(Box<Relayed>),
}

/// A body that comes from a cluster.
pub struct Relayed {
    inner: Incoming,
    finish: Finish,
    stall: Option<Pin<Box<Sleep>>>,
    long: Option<Long>,
}

struct Long {
    cancelled: Pin<Box<WaitForCancellationFutureOwned>>,
    registered: Registered,
    _lease: Option<Lease>,
}

impl Relayed {
    /// A short response.
    pub fn short(inner: Incoming, finish: Finish) -> Self {
        Self { inner, finish, stall: None, long: None }
    }

    /// A long-running response with its place in the register and on the connection.
    pub fn long(inner: Incoming, finish: Finish, registered: Registered, lease: Option<Lease>) -> Self {
        let cancelled = Box::pin(registered.cut.cancelled_owned());
        Self { inner, finish, stall: None, long: Some(Long { cancelled, registered, _lease: lease }) }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Some(long) = &mut self.long
            && long.cancelled.as_mut().poll(cx).is_ready()
        {
            let cause = long.registered.cut.cause().unwrap_or("cut");
            self.finish.cut(cause);
            return Poll::Ready(Some(Err(BodyError::Cut(cause))));
        }
        match Pin::new(&mut self.inner).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                self.stall = None;
                if let Some(data) = frame.data_ref() {
                    self.finish.count(data.len());
                }
                // A trailer of a cluster is one hop's business.
                if frame.is_trailers() { Poll::Ready(None) } else { Poll::Ready(Some(Ok(frame))) }
            }
            Poll::Ready(Some(Err(why))) => {
                self.finish.broke("the cluster broke off");
                Poll::Ready(Some(Err(why.into())))
            }
            Poll::Ready(None) => {
                self.finish.complete();
                Poll::Ready(None)
            }
            Poll::Pending if self.long.is_some() => Poll::Pending,
            Poll::Pending => {
                let stall =
                    self.stall.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(Instant::now() + STALL)));
                if stall.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
                self.finish.broke("the cluster stopped sending");
                Poll::Ready(Some(Err(BodyError::Stalled)))
            }
        }
    }
}

impl Body for ProxyBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.get_mut() {
            ProxyBody::Whole(bytes) => Poll::Ready(bytes.take().map(|b| Ok(Frame::data(b)))),
            ProxyBody::Relayed(relayed) => relayed.poll(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            ProxyBody::Whole(bytes) => bytes.is_none(),
            // Never before the end is seen: it is what completes the record.
            ProxyBody::Relayed(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            ProxyBody::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |b| b.len() as u64)),
            ProxyBody::Relayed(relayed) => relayed.inner.size_hint(),
        }
    }
}
