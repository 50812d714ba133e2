//! Bodies of requests to clusters: streamed as they come, and counted.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};

/// Body of a request to a cluster.
#[derive(Debug)]
pub enum Outgoing {
    /// None.
    Empty,
    /// What the client sends, as it comes.
    Streamed {
        /// From the client.
        body: Incoming,
        /// Counts the bytes that went.
        sent: Arc<AtomicU64>,
    },
    /// Bytes at hand.
    Whole(Option<Bytes>),
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match self.get_mut() {
            Outgoing::Empty => Poll::Ready(None),
            Outgoing::Whole(bytes) => Poll::Ready(bytes.take().map(|b| Ok(Frame::data(b)))),
            Outgoing::Streamed { body, sent } => {
                let polled = Pin::new(body).poll_frame(cx);
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
