//! Spread: one request, made in each of several namespaces under the caller's identity there.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _};
use http::header::{self, HeaderMap, HeaderValue};
use http::uri::PathAndQuery;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tracing::warn;

use super::members::Member;
use crate::clusters::outgoing::Outgoing;
use crate::clusters::upstream::{ClusterBody, Upstream, Way};
use crate::index::Impersonation;
use crate::proxy::rewrite::{self, Identity};
use crate::proxy::service::answers::{refused_answer, unreachable};
use crate::status::Status;

/// Namespaces that are asked at a time.
pub(super) const WAVE: usize = 16;
/// Most bytes of one list, all namespaces together.
const LARGEST: usize = 128 * 1024 * 1024;
/// Most bytes of all lists that are put together at a time.
const ROOM: usize = 512 * 1024 * 1024;
/// Room is taken in pieces of this size.
const PIECE: usize = 64 * 1024;
/// Longest refusal of a cluster that is read.
const REFUSAL: usize = 64 * 1024;
/// Bindings of a new namespace reach the cluster's authorizer within some hundred milliseconds.
const SETTLING: Duration = Duration::from_secs(3);

/// Memory for lists, of the whole process.
#[derive(Clone)]
pub struct Room(Arc<Semaphore>);

impl Default for Room {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(ROOM / PIECE)))
    }
}

/// Memory that a list takes; given back when dropped.
#[derive(Default)]
pub struct Taken {
    pieces: Option<OwnedSemaphorePermit>,
}

impl Taken {
    fn pieces(&self) -> usize {
        self.pieces.as_ref().map_or(0, OwnedSemaphorePermit::num_permits)
    }

    /// Makes it enough for so many bytes, if there is room.
    pub(super) fn grow(&mut self, bytes: usize, room: &Room) -> bool {
        let missing = bytes.div_ceil(PIECE).saturating_sub(self.pieces());
        let Ok(missing) = u32::try_from(missing) else { return false };
        if missing == 0 {
            return true;
        }
        let Ok(more) = room.0.clone().try_acquire_many_owned(missing) else { return false };
        match &mut self.pieces {
            Some(pieces) => pieces.merge(more),
            None => self.pieces = Some(more),
        }
        true
    }
}

/// What all members of a request share.
pub struct Spread<'a> {
    pub(super) upstream: &'a Upstream,
    pub(super) room: &'a Room,
    /// The caller, as the cluster is to know them: groups are each member's.
    pub(super) user: &'a str,
    pub(super) uid: &'a str,
    pub(super) token: &'a str,
    pub(super) impersonation: Impersonation,
    /// What the client's headers allow, with what may be accepted.
    pub(super) headers: HeaderMap,
    /// Path before the namespace and after it: `/api/v1` and `/pods`.
    pub(super) path: (&'a str, &'a str),
    pub(super) id: &'a str,
    /// Bytes of all answers so far.
    pub(super) read: AtomicUsize,
}

/// An answer of 200.
pub struct Answer {
    /// Its head.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
    /// The memory that it takes.
    pub taken: Taken,
}

impl Spread<'_> {
    fn request(&self, member: &Member, query: &str) -> Result<Request<Outgoing>, Status> {
        let (before, after) = self.path;
        let mark = if query.is_empty() { "" } else { "?" };
        let target = format!("{before}/namespaces/{}{after}{mark}{query}", member.namespace);
        let path =
            PathAndQuery::try_from(target).map_err(|_| Status::bad_request("the path or query cannot be forwarded"))?;
        let mut headers = self.headers.clone();
        if let Ok(id) = HeaderValue::from_str(self.id) {
            headers.insert("audit-id", id);
        }
        let identity = Identity {
            user: self.user,
            uid: self.uid,
            groups: &member.decision.groups,
            token: self.token,
            impersonation: self.impersonation,
        };
        rewrite::write_identity(&mut headers, &identity, self.upstream.credential()).map_err(|why| {
            warn!(%why, user = self.user, "identity not written");
            Status::internal("the identity cannot be written safely")
        })?;
        let mut request = Request::new(Outgoing::Empty);
        *request.uri_mut() = path.into();
        *request.headers_mut() = headers;
        Ok(request)
    }

    /// Asks in one namespace, and again for a while where the cluster does not know yet that the caller may.
    pub(super) async fn ask(&self, way: Way, member: &Member, query: &str) -> Result<Response<ClusterBody>, Status> {
        let until = tokio::time::Instant::now() + SETTLING;
        loop {
            let request = self.request(member, query)?;
            let mut response = self.upstream.send(way, request).await.map_err(|why| unreachable(&why))?;
            if let Some(status) = refused_answer(response.status(), way) {
                return Err(status);
            }
            match response.status() {
                StatusCode::OK => return Ok(response),
                StatusCode::FORBIDDEN if tokio::time::Instant::now() < until => {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                code => return Err(refusal(code, &mut response, &member.namespace).await),
            }
        }
    }

    /// Asks in several namespaces, some at a time, each with its query.
    pub(super) async fn answers(&self, members: &[Member], queries: &[String]) -> Result<Vec<Answer>, Status> {
        // Boxed: the compiler does not see that futures which borrow may be sent, where a closure makes them.
        let asked: Vec<BoxFuture<'_, _>> =
            members.iter().zip(queries).map(|(member, query)| self.answer(member, query).boxed()).collect();
        futures::stream::iter(asked).buffered(WAVE).try_collect().await
    }

    /// Opens a stream in each of several namespaces.
    pub(super) async fn streams(&self, members: &[Member], query: &str) -> Result<Vec<Response<ClusterBody>>, Status> {
        let asked: Vec<BoxFuture<'_, _>> =
            members.iter().map(|member| self.ask(Way::Streaming, member, query).boxed()).collect();
        futures::stream::iter(asked).buffered(WAVE).try_collect().await
    }

    /// Asks in one namespace and reads the whole answer.
    pub(super) async fn answer(&self, member: &Member, query: &str) -> Result<Answer, Status> {
        let response = self.ask(Way::Short, member, query).await?;
        read(response, self.room, &self.read).await
    }
}

/// Reads a whole answer, within what one list and all lists may take.
pub(super) async fn read(response: Response<ClusterBody>, room: &Room, total: &AtomicUsize) -> Result<Answer, Status> {
    let (parts, mut body) = response.into_parts();
    let mut taken = Taken::default();
    let mut whole = BytesMut::new();
    let mut one = None;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Status::bad_gateway("the cluster broke off"))?;
        let Ok(data) = frame.into_data() else { continue };
        if total.fetch_add(data.len(), Ordering::Relaxed) + data.len() > LARGEST {
            let most = LARGEST / 1024 / 1024;
            let message = format!("the list is larger than {most} MiB; ask for it in chunks (limit), or by namespace");
            return Err(Status::too_large(message));
        }
        let length = whole.len() + one.as_ref().map_or(0, Bytes::len) + data.len();
        if !taken.grow(length, room) {
            let message = "the service is putting together too many large lists just now";
            return Err(Status::too_many_requests(message, 2));
        }
        match (one.take(), whole.is_empty()) {
            (None, true) => one = Some(data),
            (Some(first), _) => {
                whole.extend_from_slice(&first);
                whole.extend_from_slice(&data);
            }
            (None, false) => whole.extend_from_slice(&data),
        }
    }
    Ok(Answer { headers: parts.headers, body: one.unwrap_or_else(|| whole.freeze()), taken })
}

/// What a cluster said instead of a list.
pub(super) async fn refusal(code: StatusCode, response: &mut Response<ClusterBody>, place: &str) -> Status {
    let limited = http_body_util::Limited::new(response.body_mut(), REFUSAL);
    let text = match tokio::time::timeout(Duration::from_secs(5), limited.collect()).await {
        Ok(Ok(collected)) => collected.to_bytes(),
        _ => Bytes::new(),
    };
    let said = serde_json::from_slice::<Status>(&text).ok().filter(|status| status.code == code.as_u16());
    let mut status = said.unwrap_or_else(|| {
        let reason = code.canonical_reason().unwrap_or("Unknown").replace(' ', "");
        Status::new(code, &reason, format!("the cluster answered {code}"))
    });
    if let Some(seconds) = response.headers().get(header::RETRY_AFTER).and_then(|v| v.to_str().ok()?.parse().ok()) {
        status.details.retry_after_seconds = Some(seconds);
    }
    if code == StatusCode::FORBIDDEN {
        status.message = format!("namespace {place:?}: {}", status.message);
    }
    status
}
