//! What a connection carries, and for how long its client has let it lie.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Either;
use hyper::body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::proxy::body::ProxyBody;

/// So much is handed over for sending at a time. The library keeps what it was given, and asks for more when it has sent
/// most of that: an answer in one piece would be out of our sight, and all of it in memory, while its client reads nothing.
const PIECE: usize = 256 * 1024;

/// Whether a connection carries anything, and since when it does not. The library has a time for each head of HTTP/1.1,
/// but none for the first bytes, which tell the protocol, and HTTP/2 would keep a connection for ever on which nothing
/// is asked.
pub(super) struct Activity(Mutex<Carried>);

struct Carried {
    requests: usize,
    since: Instant,
    any: bool,
    // Answers of which a part was handed over for sending and the next is not asked for yet, and since when.
    handed: Vec<(u64, Instant)>,
    // Answers that may wait for their reader, until they are cut; and since when that is known.
    patient: Vec<(u64, CancellationToken, Option<Instant>)>,
    next: u64,
}

impl Activity {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Carried {
            requests: 0,
            since: Instant::now(),
            any: false,
            handed: vec![],
            patient: vec![],
            next: 0,
        }))
    }

    /// Returns when a client has left an answer untouched for too long. The library asks for more as soon as it can send;
    /// an answer that was cut goes when it does, so one that is still there is not read.
    pub(super) async fn is_unread(&self, longest: Duration) {
        loop {
            let oldest = self.0.lock().oldest();
            let end = oldest.unwrap_or_else(Instant::now) + longest;
            if end <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(end).await;
        }
    }

    /// Returns when nothing was carried for too long.
    pub(super) async fn is_idle(&self, first: Duration, between: Duration) {
        loop {
            let end = {
                let carried = self.0.lock();
                match (carried.requests, carried.any) {
                    (0, false) => carried.since + first,
                    (0, true) => carried.since + between,
                    _ => Instant::now() + between,
                }
            };
            if end <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(end).await;
        }
    }
}

impl Carried {
    /// Since when the answer waits that waits longest.
    fn oldest(&mut self) -> Option<Instant> {
        let cut = self.patient.iter_mut().filter(|(_, cut, _)| cut.is_cancelled());
        let cut = cut.map(|(_, _, since)| *since.get_or_insert_with(Instant::now)).min();
        let handed = self.handed.iter().map(|(_, since)| *since).min();
        cut.into_iter().chain(handed).min()
    }
}

/// A request under way, until its answer is sent or given up.
pub(super) struct Busy(Arc<Activity>);

impl Busy {
    pub(super) fn new(activity: &Arc<Activity>) -> Self {
        let mut carried = activity.0.lock();
        carried.requests += 1;
        carried.any = true;
        Self(activity.clone())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let mut carried = self.0.0.lock();
        carried.requests -= 1;
        carried.since = Instant::now();
    }
}

/// An answer's body, for as long as the connection carries it.
pub(super) struct Held {
    body: Either<ProxyBody, axum::body::Body>,
    // Known by this number while it waits for its client.
    number: u64,
    // It may wait for as long as its reader likes.
    patient: bool,
    busy: Busy,
    // Of a part that is too large to be handed over at once.
    rest: Bytes,
}

impl Held {
    pub(super) fn new(body: Either<ProxyBody, axum::body::Body>, busy: Busy) -> Self {
        // What goes on for long may wait for as long as its reader likes. A client may also not let a first byte come.
        let patient = match &body {
            Either::Left(body) if body.is_long() => Some(body.cut()),
            _ => None,
        };
        let number = {
            let mut carried = busy.0.0.lock();
            carried.next += 1;
            let number = carried.next;
            carried.patient.extend(patient.iter().flatten().map(|cut| (number, cut.clone(), None)));
            number
        };
        let held = Self { body, number, patient: patient.is_some(), busy, rest: Bytes::new() };
        held.handed();
        held
    }

    fn taken(&self) {
        if !self.patient {
            self.busy.0.0.lock().handed.retain(|(handed, _)| *handed != self.number);
        }
    }

    fn handed(&self) {
        if !self.patient {
            self.busy.0.0.lock().handed.push((self.number, Instant::now()));
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.taken();
        if self.patient {
            self.busy.0.0.lock().patient.retain(|(number, ..)| *number != self.number);
        }
    }
}

impl Body for Held {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.taken();
        let mut frame = match self.rest.is_empty() {
            true => Pin::new(&mut self.body).poll_frame(cx),
            false => Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut self.rest))))),
        };
        if let Poll::Ready(Some(Ok(part))) = &mut frame
            && let Some(data) = part.data_mut().filter(|data| data.len() > PIECE)
        {
            self.rest = data.split_off(PIECE);
        }
        if matches!(frame, Poll::Ready(Some(Ok(_)))) {
            self.handed();
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let hint = self.body.size_hint();
        match hint.exact() {
            Some(more) => SizeHint::with_exact(more + self.rest.len() as u64),
            None => hint,
        }
    }
}
