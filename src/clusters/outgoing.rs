//! Bodies of requests to clusters: streamed as they come, and counted.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};

/// Why a body is not whole.
#[derive(Debug, thiserror::Error)]
pub enum BodyBroke {
    /// Its connection broke, or its stream was reset with an error.
    #[error(transparent)]
    Connection(#[from] hyper::Error),
    /// Its stream was reset without an error, and not ended.
    #[error("the stream was given up before its end")]
    GivenUp,
}

/// The next part of a body. hyper takes a reset without an error (RST_STREAM with NO_ERROR) for the end, which it is not:
/// on HTTP/2, `multiplexed`, a body is whole only where its last frame says so.
pub fn poll_part(
    body: &mut Incoming,
    multiplexed: bool,
    cx: &mut Context<'_>,
) -> Poll<Option<Result<Frame<Bytes>, BodyBroke>>> {
    let polled = Pin::new(&mut *body).poll_frame(cx);
    match polled {
        Poll::Ready(None) if multiplexed && !body.is_end_stream() => Poll::Ready(Some(Err(BodyBroke::GivenUp))),
        polled => polled.map_err(BodyBroke::from),
    }
}

/// Body of a request to a cluster.
#[derive(Debug)]
pub enum Outgoing {
    /// None.
    Empty,
    /// What the client sends, as it comes.
    Streamed {
        /// From the client.
        body: Incoming,
        /// Whether it comes over HTTP/2.
        multiplexed: bool,
        /// Counts the bytes that went.
        sent: Arc<AtomicU64>,
    },
    /// Bytes at hand.
    Whole(Option<Bytes>),
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = BodyBroke;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyBroke>>> {
        match self.get_mut() {
            Outgoing::Empty => Poll::Ready(None),
            Outgoing::Whole(bytes) => Poll::Ready(bytes.take().map(|b| Ok(Frame::data(b)))),
            Outgoing::Streamed { body, multiplexed, sent } => {
                let polled = poll_part(body, *multiplexed, cx);
                if let Poll::Ready(Some(Ok(frame))) = &polled
                    && let Some(data) = frame.data_ref()
                {
                    sent.fetch_add(data.len() as u64, Ordering::Relaxed);
                }
                polled
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Outgoing::Empty => true,
            Outgoing::Whole(bytes) => bytes.is_none(),
            Outgoing::Streamed { body, .. } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Outgoing::Empty => SizeHint::with_exact(0),
            Outgoing::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |b| b.len() as u64)),
            Outgoing::Streamed { body, .. } => body.size_hint(),
        }
    }
}
