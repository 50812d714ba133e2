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
use super::streams::{Registered, StreamKey};
use crate::clusters::upstream::Lease;

/// A short response that brings nothing for this long is given up: the cluster hangs.
const STALL: Duration = Duration::from_secs(90);

/// A short response that lasts longer than this is watched over like a stream from then on.
const LINGERS: Duration = Duration::from_secs(1);

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
    // A long-running response may be silent for as long as it likes.
    may_stall: bool,
    stall: Option<Pin<Box<Sleep>>>,
    right: Watch,
    // The place on a shared connection, held for as long as the response goes on.
    _lease: Option<Lease>,
}

/// How the right to a response is watched over.
enum Watch {
    /// By the register.
    Entered(Entered),
    /// Not yet; it is entered as this if it lingers.
    Later(Box<StreamKey>),
}

struct Entered {
    cancelled: Pin<Box<WaitForCancellationFutureOwned>>,
    registered: Registered,
}

impl Entered {
    fn new(registered: Registered) -> Self {
        Self { cancelled: Box::pin(registered.cut.cancelled_owned()), registered }
    }
}

impl Relayed {
    /// A short response, not entered in the register; `key` is what it was admitted for.
    pub fn short(inner: Incoming, finish: Finish, key: Box<StreamKey>, lease: Option<Lease>) -> Self {
        Self { inner, finish, may_stall: false, stall: None, right: Watch::Later(key), _lease: lease }
    }

    /// A short response with its place in the register.
    pub fn entered(inner: Incoming, finish: Finish, registered: Registered, lease: Option<Lease>) -> Self {
        let right = Watch::Entered(Entered::new(registered));
        Self { inner, finish, may_stall: false, stall: None, right, _lease: lease }
    }

    /// A long-running response with its place in the register and on the connection.
    pub fn long(inner: Incoming, finish: Finish, registered: Registered, lease: Option<Lease>) -> Self {
        let right = Watch::Entered(Entered::new(registered));
        Self { inner, finish, may_stall: true, stall: None, right, _lease: lease }
    }

    /// Why the right to the rest has ended, if it has.
    fn poll_cut(&mut self, cx: &mut Context<'_>) -> Option<&'static str> {
        if let Watch::Later(key) = &self.right {
            if self.finish.age() < LINGERS {
                return None;
            }
            self.right = Watch::Entered(Entered::new(self.finish.enter(StreamKey::clone(key))));
        }
        let Watch::Entered(entered) = &mut self.right else { return None };
        let cut = entered.cancelled.as_mut().poll(cx).is_ready();
        cut.then(|| entered.registered.cut.cause().unwrap_or("cut"))
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Some(cause) = self.poll_cut(cx) {
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
            Poll::Pending if self.may_stall => Poll::Pending,
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
