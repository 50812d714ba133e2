//! Bodies of responses to clients: counted, cut when their right ends, and recorded when they are over.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::{Instant, Sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::across::{self, Held, MergedWatch, NamespacesWatch};
use super::service::Finish;
use super::streams::{Registered, StreamKey};
use crate::clusters::outgoing::BodyBroke;
use crate::clusters::upstream::ClusterBody;

/// So much of a short response is waited for before its head is passed on: small ones are then written to the client in
/// one piece.
const GATHERED: usize = 64 * 1024;

/// Longest piece that is handed over for sending. What was handed over goes out even after a cut, so lists and events that
/// lie here whole go piece by piece.
const PIECE: usize = 64 * 1024;

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
    Upstream(#[from] BodyBroke),
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
    flow: Reach,
    // A merged watch tells its client of changes.
    merged: bool,
    over: bool,
    finish: Finish,
    // A long-running response may be silent for as long as it likes.
    may_stall: bool,
    stall: Option<Pin<Box<Sleep>>>,
    right: Watched,
    // Of the register, once the right is entered there.
    cancelled: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
}

/// Who reaches what is still to be sent.
enum Reach {
    /// Only who sends it. A short read needs no more, and pays for no more.
    Alone(Flow),
    /// The register, too: a cut lets go of the cluster and of the memory at once, also where the client reads nothing
    /// and is not asked for.
    Shared(Arc<Mutex<Flow>>),
}

impl Reach {
    fn with<T>(&mut self, act: impl FnOnce(&mut Flow) -> T) -> T {
        match self {
            Self::Alone(flow) => act(flow),
            Self::Shared(flow) => act(&mut flow.lock()),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Alone(flow) => flow.size_hint(),
            Self::Shared(flow) => flow.lock().size_hint(),
        }
    }

    fn share(&mut self) -> Arc<Mutex<Flow>> {
        let shared = match std::mem::replace(self, Self::Alone(Flow::new(vec![], Source::Over))) {
            Self::Alone(flow) => Arc::new(Mutex::new(flow)),
            Self::Shared(flow) => flow,
        };
        *self = Self::Shared(shared.clone());
        shared
    }
}

/// What is still to be sent.
struct Flow {
    // What was read before the head was passed on.
    ahead: std::vec::IntoIter<Bytes>,
    // The rest of what is sent piece by piece.
    rest: Bytes,
    source: Source,
    // It was let go of in the middle of a piece.
    torn: bool,
}

/// What a body gives when it is asked for more.
type Polled = Poll<Option<Result<Frame<Bytes>, BodyBroke>>>;

impl Flow {
    fn new(ahead: Vec<Bytes>, source: Source) -> Self {
        Self { ahead: ahead.into_iter(), rest: Bytes::new(), source, torn: false }
    }

    /// The next piece of what is at hand.
    fn piece(&mut self) -> Option<Bytes> {
        while self.rest.is_empty() {
            self.rest = self.ahead.next()?;
        }
        Some(self.rest.split_to(self.rest.len().min(PIECE)))
    }

    /// What comes next; nothing where it was let go of.
    fn poll(&mut self, cx: &mut Context<'_>) -> Option<Polled> {
        let ready = |piece: Option<Bytes>| Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))));
        if let Some(piece) = self.piece() {
            return Some(ready(Some(piece)));
        }
        let made = match &mut self.source {
            Source::Cluster(body) => return Some(Pin::new(body).poll_frame(cx)),
            Source::Merged(watch) => watch.poll_next(cx),
            Source::Namespaces(watch) => watch.poll_next(cx),
            Source::Nothing(_) => Poll::Ready(None),
            Source::Over => return None,
        };
        Some(match made {
            Poll::Ready(Some(bytes)) => {
                self.rest = bytes;
                let first = self.rest.split_to(self.rest.len().min(PIECE));
                ready(Some(first))
            }
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        })
    }

    fn let_go(&mut self) {
        self.torn |= !self.rest.is_empty();
        (self.ahead, self.rest, self.source) = (vec![].into_iter(), Bytes::new(), Source::Over);
    }

    fn size_hint(&self) -> SizeHint {
        let rest = match &self.source {
            Source::Cluster(body) => body.size_hint().exact(),
            Source::Nothing(_) => Some(0),
            // What was cut before its head was written must not be told to be empty: its client would take that for all.
            Source::Merged(_) | Source::Namespaces(_) | Source::Over => None,
        };
        let Some(rest) = rest else { return SizeHint::default() };
        let ahead: usize = self.ahead.as_slice().iter().map(Bytes::len).sum();
        SizeHint::with_exact((ahead + self.rest.len()) as u64 + rest)
    }
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
pub async fn gather(body: &mut ClusterBody) -> Result<Gathered, BodyBroke> {
    if body.size_hint().exact().is_some_and(|n| n > GATHERED as u64) {
        return Ok(Gathered::NOTHING);
    }
    let mut frames: Vec<Bytes> = vec![];
    let mut length = 0;
    let reading = async {
        while length <= GATHERED {
            let Some(frame) = body.frame().await else { return Ok::<_, BodyBroke>(true) };
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

fn let_go_with(registered: &Registered, flow: &mut Reach) {
    let flow = flow.share();
    registered.cut.then(Box::new(move || flow.lock().let_go()));
}

impl Relayed {
    /// A response of which `ahead` was read already.
    pub fn new(ahead: Vec<Bytes>, source: Source, finish: Finish, right: Watched) -> Self {
        let (may_stall, merged) = (finish.is_long(), matches!(source, Source::Merged(_)));
        let mut flow = Reach::Alone(Flow::new(ahead, source));
        if let Watched::Entered(registered) = &right {
            let_go_with(registered, &mut flow);
        }
        Self { flow, merged, over: false, finish, may_stall, stall: None, right, cancelled: None }
    }

    /// Why the right to the rest has ended, if it has.
    fn poll_cut(&mut self, cx: &mut Context<'_>) -> Option<&'static str> {
        if let Watched::Later(key) = &self.right {
            if !self.finish.lingers() {
                return None;
            }
            let registered = self.finish.enter(StreamKey::clone(key));
            let_go_with(&registered, &mut self.flow);
            self.right = Watched::Entered(registered);
        }
        let Watched::Entered(registered) = &self.right else { return None };
        let cancelled = self.cancelled.get_or_insert_with(|| Box::pin(registered.cut.cancelled_owned()));
        let cut = cancelled.as_mut().poll(cx).is_ready();
        cut.then(|| self.right.cause())
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if self.over {
            return Poll::Ready(None);
        }
        if let Some(cause) = self.poll_cut(cx) {
            return self.end(cause);
        }
        let Some(polled) = self.flow.with(|flow| flow.poll(cx)) else {
            // A cut of this very moment.
            let cause = self.right.cause();
            return self.end(cause);
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
                let longest = self.finish.longest_silence();
                let stall =
                    self.stall.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(Instant::now() + longest)));
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
        self.over = true;
        let torn = self.flow.with(|flow| {
            flow.let_go();
            flow.torn
        });
        // In the middle of an event nothing can be said.
        if self.merged && !torn && cause == across::MEMBERSHIP {
            let told = across::expired("your namespaces changed; list again");
            return Poll::Ready(Some(Ok(Frame::data(told))));
        }
        Poll::Ready(Some(Err(BodyError::Cut(cause))))
    }
}

impl ProxyBody {
    /// Whether this goes on for as long as both sides like: a watch, a log that is followed.
    pub fn is_long(&self) -> bool {
        matches!(self, Self::Relayed(relayed) if relayed.may_stall)
    }

    /// Cancelled when the right to it ends, where that is watched over from the beginning.
    pub fn cut(&self) -> Option<CancellationToken> {
        match self {
            Self::Relayed(relayed) => match &relayed.right {
                Watched::Entered(registered) => Some(registered.cut.token()),
                Watched::Later(_) => None,
            },
            Self::Whole(_) => None,
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
            ProxyBody::Relayed(relayed) => relayed.flow.size_hint(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    fn next(flow: &mut Flow) -> Option<Bytes> {
        match flow.poll(&mut Context::from_waker(Waker::noop())) {
            Some(Poll::Ready(frame)) => frame.map(|frame| frame.unwrap().into_data().unwrap()),
            Some(Poll::Pending) => panic!("pending"),
            None => panic!("let go of"),
        }
    }

    fn parts() -> (Vec<Bytes>, Vec<u8>) {
        let lengths = [1, 0, PIECE, PIECE + 1, 0, 3 * PIECE - 1, 7];
        let parts: Vec<Bytes> = lengths.iter().zip(b'a'..).map(|(n, byte)| Bytes::from(vec![byte; *n])).collect();
        let whole = parts.concat();
        (parts, whole)
    }

    #[test]
    fn what_lies_here_goes_piece_by_piece_and_no_byte_is_lost() {
        let (parts, whole) = parts();
        let mut flow = Flow::new(parts, Source::Nothing(None));
        let (mut sent, length) = (vec![], whole.len() as u64);
        loop {
            assert_eq!(flow.size_hint().exact(), Some(length - sent.len() as u64));
            let Some(piece) = next(&mut flow) else { break };
            assert!((1..=PIECE).contains(&piece.len()));
            sent.extend_from_slice(&piece);
        }
        assert_eq!(sent, whole);
    }

    #[test]
    fn what_was_let_go_of_is_not_sent_and_not_said_to_be_all() {
        for taken in 0..6 {
            let mut reach = Reach::Alone(Flow::new(parts().0, Source::Nothing(None)));
            for _ in 0..taken {
                reach.with(next).unwrap();
            }
            let shared = reach.share();
            assert!(reach.size_hint().exact().is_some());
            shared.lock().let_go();
            assert_eq!(reach.size_hint().exact(), None, "an empty answer would be taken for all of it");
            reach.with(|flow| assert!(flow.poll(&mut Context::from_waker(Waker::noop())).is_none()));
            // Pieces: 1, PIECE, PIECE, 1, PIECE. In the middle of a part after the third and the fifth.
            reach.with(|flow| assert_eq!(flow.torn, matches!(taken, 3 | 5), "after {taken}"));
            shared.lock().let_go();
            reach.with(|flow| assert_eq!(flow.torn, matches!(taken, 3 | 5)));
        }
    }
}
