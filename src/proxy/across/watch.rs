//! Watches across namespaces: one stream for each namespace, put together to one.

use std::fmt::Display;
use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{SelectAll, Stream, StreamExt as _};
use http::Response;
use http::header::{self, HeaderValue};
use hyper::body::Body;
use tokio::time::Sleep;

use super::frames::{self, Lines, Merge, Wishes};
use super::members::{Members, SetId};
use super::query::{Match, Options, add};
use super::spread::{self, Share, Spread, Taken};
use super::views::{Viewed, Views};
use crate::clusters::upstream::ClusterBody;
use crate::status::Status;

/// Written at the latest when so much waits.
const FULL: usize = 64 * 1024;
/// So many events are read at a time, and of one member so many bytes; then others have their turn.
const EVENTS: usize = 1_000;
const TURN: usize = 1024 * 1024;
/// A watch without `timeoutSeconds` ends after this and up to as much again, as the API server's do.
const SHORTEST: u64 = 1800;
/// The members' streams last longer than the whole by this.
const LONGER: u64 = 60;

/// A merged watch.
pub struct MergedWatch<B = ClusterBody> {
    members: SelectAll<Lined<B>>,
    merge: Merge,
    end: Pin<Box<Sleep>>,
    view: Viewed,
    // Memory of long events that wait to be written.
    taken: Vec<Taken>,
    over: bool,
}

/// The head of its answer, and itself.
pub struct Opened {
    /// `Content-Type`, as the cluster said it.
    pub content_type: Option<HeaderValue>,
    /// The body.
    pub watch: MergedWatch,
}

/// What a watch is asked with, as far as it can be merged.
pub fn check(options: &Options) -> Result<(), Status> {
    let wrong = match (options.initial_events, options.matching) {
        (true, Some(Match::NotOlderThan)) | (false, None) => None,
        (true, _) => Some("sendInitialEvents needs resourceVersionMatch=NotOlderThan"),
        (false, Some(_)) => Some("resourceVersionMatch is for watches with sendInitialEvents"),
    };
    match wrong {
        Some(message) => Err(Status::bad_request(message)),
        None if options.proceed.is_some() => Err(Status::bad_request("continue is for lists")),
        None => Ok(()),
    }
}

/// The view that a watch goes on with; `None` where its revision is from another set of namespaces, or unknown.
pub fn viewed(options: &Options, views: &Arc<Views>, name: String, set: SetId) -> Option<Viewed> {
    match options.revision_number() {
        Some(from) if !options.initial_events => views.resumes(&name, set, from).map(Viewed::Known),
        _ => {
            let before = views.before(&name, options);
            Some(Viewed::Beginning { views: views.clone(), name, set, before })
        }
    }
}

/// Opens the streams of all members. `None` where the revision is too old for the caller's set of namespaces.
pub async fn open(
    spread: &Spread<'_>,
    members: &Members,
    options: &Options,
    views: &Arc<Views>,
    name: String,
) -> Result<Option<Opened>, Status> {
    let Some(view) = viewed(options, views, name, members.set) else { return Ok(None) };
    let from = options.revision_number().filter(|_| !options.initial_events).map(|from| view.start(from));
    let seconds = options.timeout_seconds.unwrap_or_else(default_seconds);
    let query = query(options, from, seconds);
    let streams = spread.streams(&members.permitted, &query).await?;
    let content_type = streams.first().and_then(|response| response.headers().get(header::CONTENT_TYPE).cloned());
    let wishes = Wishes { from, initial_events: options.initial_events, bookmarks: options.bookmarks };
    let bodies = streams.into_iter().map(Response::into_body).collect();
    let watch = MergedWatch::over(bodies, wishes, view, seconds, &spread.share);
    Ok(Some(Opened { content_type, watch }))
}

fn query(options: &Options, from: Option<u64>, seconds: u64) -> String {
    let mut query = options.passed_query();
    add(&mut query, "watch", "true");
    // Ours to know how far each has come, whether the client takes them or not.
    add(&mut query, "allowWatchBookmarks", "true");
    add(&mut query, "timeoutSeconds", &seconds.saturating_add(LONGER).to_string());
    match from {
        Some(from) => add(&mut query, "resourceVersion", &from.to_string()),
        None if !options.revision.is_empty() => add(&mut query, "resourceVersion", &options.revision),
        None => {}
    }
    if options.initial_events {
        add(&mut query, "sendInitialEvents", "true");
        add(&mut query, "resourceVersionMatch", "NotOlderThan");
    }
    query
}

/// Seconds of a watch for which the client names none.
pub fn default_seconds() -> u64 {
    let mut bytes = [0; 2];
    // Without randomness all last equally long, which is only less kind to the cluster.
    let _ = getrandom::fill(&mut bytes);
    SHORTEST + u64::from(u16::from_ne_bytes(bytes)) % SHORTEST
}

impl<B: Body<Data = Bytes, Error: Display> + Unpin> MergedWatch<B> {
    /// Of the members' streams, for so many seconds.
    fn over(bodies: Vec<B>, wishes: Wishes, view: Viewed, seconds: u64, share: &Share) -> Self {
        let merge = Merge::new(bodies.len(), wishes);
        let lined = bodies.into_iter().enumerate().map(|(at, body)| Lined::new(at, body, share.clone()));
        Self {
            members: lined.collect(),
            merge,
            end: Box::pin(tokio::time::sleep(Duration::from_secs(seconds))),
            view,
            taken: vec![],
            over: false,
        }
    }

    /// What is to be written next; nothing at the end.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let mut left = EVENTS;
        while !self.over && self.merge.waiting() < FULL {
            if left == 0 {
                cx.waker().wake_by_ref();
                break;
            }
            left -= 1;
            match self.members.poll_next_unpin(cx) {
                Poll::Ready(Some((member, Ok((line, taken))))) => {
                    match self.merge.take(member, &line) {
                        Ok(()) => self.over = self.merge.is_over(),
                        Err(why) => return Poll::Ready(self.broken(&why.to_string())),
                    }
                    if !taken.is_nothing() {
                        self.taken.push(taken);
                    }
                }
                Poll::Ready(Some((_, Err(Ended::Broken(why))))) => return Poll::Ready(self.broken(&why)),
                // One is over, so all are: the client goes on from what all have passed.
                Poll::Ready(Some((_, Err(Ended::Closed))) | None) => {
                    let last = self.flush();
                    return Poll::Ready(self.closed(last, self.merge.resumable()));
                }
                Poll::Pending => break,
            }
        }
        if let Some(bytes) = self.flush() {
            return Poll::Ready(Some(bytes));
        }
        if self.over {
            return Poll::Ready(None);
        }
        if self.end.as_mut().poll(cx).is_ready() {
            return Poll::Ready(self.closed(None, !self.merge.misleads()));
        }
        Poll::Pending
    }

    /// The end. A client that cannot go on from what it remembers without missing something is told to list anew.
    fn closed(&mut self, last: Option<Bytes>, resumable: bool) -> Option<Bytes> {
        self.over = true;
        if resumable {
            return last;
        }
        let end = frames::expired("the watch of a namespace ended; list again");
        Some([last.unwrap_or_default(), end].concat().into())
    }

    fn flush(&mut self) -> Option<Bytes> {
        let taken = std::mem::take(&mut self.taken);
        let bytes = self.merge.flush().map(|bytes| spread::counted(bytes, taken));
        let least = self.merge.least();
        if let (Some(least), true) = (least, self.merge.settled()) {
            self.view.begins(least);
        }
        if let Some(ahead) = self.merge.take_ahead() {
            self.view.goes_ahead(ahead);
        }
        self.view.seen(self.merge.newest());
        bytes
    }

    /// A member's stream cannot be read: the client is told, and lists anew.
    fn broken(&mut self, why: &str) -> Option<Bytes> {
        self.over = true;
        tracing::debug!(why, "merged watch broken");
        let waiting = self.flush().unwrap_or_default();
        Some([waiting, frames::expired("the cluster broke off a watch; list again")].concat().into())
    }
}

/// Why a member's stream is over.
enum Ended {
    Closed,
    Broken(String),
}

/// The lines of one member's stream.
struct Lined<B> {
    at: usize,
    body: B,
    lines: Lines,
    share: Share,
    // For what is longer than most events are; given back with its end.
    taken: Taken,
    over: bool,
}

impl<B> Lined<B> {
    fn new(at: usize, body: B, share: Share) -> Self {
        Self { at, body, lines: Lines::default(), share, taken: Taken::default(), over: false }
    }

    /// Takes in what arrived, if there is memory for it.
    fn push(&mut self, data: &[u8]) -> bool {
        self.lines.push(data);
        match self.lines.len() {
            0..=FULL => {
                self.taken = Taken::default();
                true
            }
            long => self.taken.grow(long, &self.share),
        }
    }
}

impl<B: Body<Data = Bytes, Error: Display> + Unpin> Stream for Lined<B> {
    type Item = (usize, Result<(Bytes, Taken), Ended>);

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if this.over {
            return Poll::Ready(None);
        }
        let mut turn = 0;
        let ended = loop {
            match this.lines.next() {
                Ok(Some(line)) => {
                    let taken = if line.len() > FULL { std::mem::take(&mut this.taken) } else { Taken::default() };
                    return Poll::Ready(Some((this.at, Ok((line, taken)))));
                }
                Ok(None) => {}
                Err(why) => break Ended::Broken(why.to_string()),
            }
            match Pin::new(&mut this.body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    let Some(data) = frame.data_ref() else { continue };
                    if !this.push(data) {
                        break Ended::Broken("too many long events at a time".into());
                    }
                    turn += data.len();
                    if turn > TURN {
                        cx.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                }
                Poll::Ready(Some(Err(why))) => break Ended::Broken(why.to_string()),
                Poll::Ready(None) if this.lines.is_empty() => break Ended::Closed,
                Poll::Ready(None) => break Ended::Broken("an event without end".into()),
                Poll::Pending => return Poll::Pending,
            }
        };
        this.over = true;
        Poll::Ready(Some((this.at, Err(ended))))
    }
}

#[cfg(test)]
mod converges;
