//! Bodies of responses to clients: counted, cut when their right ends, and recorded when they are over.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep};
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::across::{self, Held, MergedWatch, NamespacesWatch};
use super::service::Finish;
use super::streams::{Registered, StreamKey};
use crate::clusters::upstream::ClusterBody;

/// A short response that brings nothing for this long is given up: the cluster hangs.
const STALL: Duration = Duration::from_secs(90);

/// So much of a short response is waited for before its head is passed on: small ones are then written to the client in
/// one piece.
const GATHERED: usize = 64 * 1024;

/// Time that a small response has to be there after its head.
const PROMPT: Duration = Duration::from_millis(20);

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

/// Where a body comes from.
pub enum Source {
    /// A cluster, as it is.
    Cluster(ClusterBody),
    /// Watches of several namespaces.
    Merged(Box<MergedWatch>),
    /// A watch of one's own namespaces.
    Namespaces(Box<NamespacesWatch>),
    /// Nowhere: all was read ahead.
    Nothing(Option<Held>),
    /// Nowhere any more: it was cut.
    Over,
}

/// A body that comes from a cluster.
pub struct Relayed {
    // What was read before the head was passed on.
    ahead: std::vec::IntoIter<Bytes>,
    source: Source,
    finish: Finish,
    // A long-running response may be silent for as long as it likes.
    may_stall: bool,
    stall: Option<Pin<Box<Sleep>>>,
    right: Watched,
    // Of the register, once the right is entered there.
    cancelled: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
}

/// The beginning of a body.
pub enum Gathered {
    /// All of it.
    Whole(Bytes),
    /// More is to come.
    Part(Vec<Bytes>),
}

impl Gathered {
    /// Nothing yet.
    pub const NOTHING: Self = Self::Part(Vec::new());
}

/// Reads a small body whole, and of a large or slow one the beginning.
pub async fn gather(body: &mut ClusterBody) -> Result<Gathered, hyper::Error> {
    if body.size_hint().exact().is_some_and(|n| n > GATHERED as u64) {
        return Ok(Gathered::NOTHING);
    }
    let mut frames: Vec<Bytes> = vec![];
    let mut length = 0;
    let reading = async {
        while length <= GATHERED {
            let Some(frame) = body.frame().await else { return Ok::<_, hyper::Error>(true) };
            // A trailer of a cluster is one hop's business.
            let Ok(data) = frame?.into_data() else { return Ok(true) };
            length += data.len();
            frames.push(data);
            if body.is_end_stream() {
                return Ok(true);
            }
        }
        Ok(false)
    };
    // What takes longer is passed on as it comes, and its right is watched over.
    let whole = tokio::time::timeout(PROMPT, reading).await.unwrap_or(Ok(false))?;
    Ok(match (whole, frames.len()) {
        (false, _) => Gathered::Part(frames),
        (true, 0 | 1) => Gathered::Whole(frames.pop().unwrap_or_default()),
        (true, _) => {
            let mut joined = BytesMut::with_capacity(length);
            frames.iter().for_each(|frame| joined.extend_from_slice(frame));
            Gathered::Whole(joined.freeze())
        }
    })
}

/// How the right to a request is watched over while it lasts.
pub enum Watched {
    /// By the register.
    Entered(Registered),
    /// Not yet: a short read, which was admitted as this. It is entered once it lingers.
    Later(Box<StreamKey>),
}

impl Watched {
    /// Why the right has ended, if it has; asked where an answer is at hand. Of a short time nobody asks.
    pub fn ended(&self, finish: &Finish) -> Option<&'static str> {
        match self {
            Watched::Entered(registered) => registered.cut.cause(),
            Watched::Later(_) if !finish.lingers() => None,
            Watched::Later(key) => finish.enter(StreamKey::clone(key)).cut.cause(),
        }
    }

    /// Why it was cut.
    pub fn cause(&self) -> &'static str {
        match self {
            Watched::Entered(registered) => registered.cut.cause().unwrap_or("cut"),
            Watched::Later(_) => "cut",
        }
    }
}

impl Relayed {
    /// A response of which `ahead` was read already.
    pub fn new(ahead: Vec<Bytes>, source: Source, finish: Finish, right: Watched) -> Self {
        let may_stall = finish.is_long();
        Self { ahead: ahead.into_iter(), source, finish, may_stall, stall: None, right, cancelled: None }
    }

    /// Why the right to the rest has ended, if it has.
    fn poll_cut(&mut self, cx: &mut Context<'_>) -> Option<&'static str> {
        if let Watched::Later(key) = &self.right {
            if !self.finish.lingers() {
                return None;
            }
            self.right = Watched::Entered(self.finish.enter(StreamKey::clone(key)));
        }
        let Watched::Entered(registered) = &self.right else { return None };
        let cancelled = self.cancelled.get_or_insert_with(|| Box::pin(registered.cut.cancelled_owned()));
        let cut = cancelled.as_mut().poll(cx).is_ready();
        cut.then(|| self.right.cause())
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if matches!(self.source, Source::Over) {
            return Poll::Ready(None);
        }
        if let Some(cause) = self.poll_cut(cx) {
            return self.end(cause);
        }
        if let Some(data) = self.ahead.next() {
            self.finish.count(data.len());
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        let polled = match &mut self.source {
            Source::Cluster(body) => Pin::new(body).poll_frame(cx),
            Source::Merged(watch) => watch.poll_next(cx).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes)))),
            Source::Namespaces(watch) => watch.poll_next(cx).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes)))),
            Source::Nothing(_) | Source::Over => Poll::Ready(None),
        };
        match polled {
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

    /// Ends early. A merged watch whose namespaces changed says so, and its client begins anew; what else is cut, breaks
    /// off.
    fn end(&mut self, cause: &'static str) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.finish.cut(cause);
        let merged = matches!(self.source, Source::Merged(_));
        self.source = Source::Over;
        if merged && cause == across::MEMBERSHIP {
            let told = across::expired("your namespaces changed; list again");
            return Poll::Ready(Some(Ok(Frame::data(told))));
        }
        Poll::Ready(Some(Err(BodyError::Cut(cause))))
    }

    fn size_hint(&self) -> SizeHint {
        let ahead: u64 = self.ahead.as_slice().iter().map(|data| data.len() as u64).sum();
        let rest = match &self.source {
            Source::Cluster(body) => body.size_hint().exact(),
            Source::Merged(_) | Source::Namespaces(_) => None,
            Source::Nothing(_) | Source::Over => Some(0),
        };
        match rest {
            Some(rest) => SizeHint::with_exact(ahead + rest),
            None => SizeHint::default(),
        }
    }
}

impl ProxyBody {
    /// Whether this goes on for as long as both sides like: a watch, a log that is followed.
    pub fn is_long(&self) -> bool {
        matches!(self, Self::Relayed(relayed) if relayed.may_stall)
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
            ProxyBody::Relayed(relayed) => relayed.size_hint(),
        }
    }
}
