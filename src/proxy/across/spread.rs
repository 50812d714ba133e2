//! Spread: one request, made in each of several namespaces under the caller's identity there.

use std::collections::HashMap;
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
use parking_lot::Mutex;
use tracing::warn;

use super::members::Member;
use crate::clusters::outgoing::Outgoing;
use crate::clusters::upstream::{ClusterBody, Upstream, Way};
use crate::index::Impersonation;
use crate::proxy::rewrite::{self, Identity};
use crate::proxy::service::answers::{refused_answer, unreachable};
use crate::status::Status;

/// Most namespaces that are asked at a time.
pub(super) const WAVE: usize = 16;
/// Most bytes of one list, all namespaces together.
const LARGEST: usize = 128 * 1024 * 1024;
/// Most bytes of all lists that are put together at a time.
const ROOM: usize = 512 * 1024 * 1024;
/// Room is taken in pieces of this size.
const PIECE: usize = 64 * 1024;
/// So many pieces an account may have always.
const LITTLE: usize = 16;
/// Longest refusal of a cluster that is read.
const REFUSAL: usize = 64 * 1024;
/// Bindings of a new namespace reach the cluster's authorizer within some hundred milliseconds. Each time is twice as
/// long, in milliseconds: who is refused for good asks little.
const SETTLING: [u64; 5] = [100, 200, 400, 800, 1600];

/// Memory for lists, of the whole process. An account may take as much as is left then, so that one alone has at most
/// half of all, and a little always: whatever others do, small lists are answered.
#[derive(Clone)]
pub struct Room(Arc<Mutex<Pieces>>);

struct Pieces {
    taken: usize,
    by_account: HashMap<Arc<str>, usize>,
}

impl Default for Room {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Pieces { taken: 0, by_account: HashMap::new() })))
    }
}

impl Room {
    /// Bytes that all accounts have taken.
    pub fn taken(&self) -> usize {
        self.0.lock().taken * PIECE
    }

    /// What an account, known by its UID, may take of it.
    pub fn of(&self, account: &str) -> Share {
        Share { room: self.clone(), account: account.into() }
    }
}

/// An account's share.
#[derive(Clone)]
pub struct Share {
    room: Room,
    account: Arc<str>,
}

impl Share {
    fn take(&self, more: usize) -> bool {
        let mut pieces = self.room.0.lock();
        let own = pieces.by_account.get(&self.account).copied().unwrap_or_default();
        let free = (ROOM / PIECE).saturating_sub(pieces.taken);
        if own + more > LITTLE && own + 2 * more > free {
            return false;
        }
        pieces.taken += more;
        *pieces.by_account.entry(self.account.clone()).or_default() += more;
        true
    }

    fn give_back(&self, count: usize) {
        let mut pieces = self.room.0.lock();
        pieces.taken -= count;
        if let Some(own) = pieces.by_account.get_mut(&self.account) {
            *own -= count;
            if *own == 0 {
                pieces.by_account.remove(&self.account);
            }
        }
    }
}

/// Memory that a list takes; given back when dropped.
#[derive(Default)]
pub struct Taken {
    pieces: usize,
    of: Option<Share>,
}

impl Taken {
    /// Whether it is none.
    pub fn is_nothing(&self) -> bool {
        self.pieces == 0
    }

    /// Makes it enough for so many bytes, if there is room.
    pub(super) fn grow(&mut self, bytes: usize, share: &Share) -> bool {
        let missing = bytes.div_ceil(PIECE).saturating_sub(self.pieces);
        if missing == 0 {
            return true;
        }
        if !share.take(missing) {
            return false;
        }
        self.pieces += missing;
        self.of.get_or_insert_with(|| share.clone());
        true
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if let Some(share) = &self.of {
            share.give_back(self.pieces);
        }
    }
}

/// Bytes with the memory that is counted for them, given back when the last of them is sent.
pub(super) fn counted(bytes: Bytes, taken: Vec<Taken>) -> Bytes {
    struct Counted {
        bytes: Bytes,
        _taken: Vec<Taken>,
    }
    impl AsRef<[u8]> for Counted {
        fn as_ref(&self) -> &[u8] {
            &self.bytes
        }
    }
    match taken.is_empty() {
        true => bytes,
        false => Bytes::from_owner(Counted { bytes, _taken: taken }),
    }
}

/// What all members of a request share.
pub struct Spread<'a> {
    pub(super) upstream: &'a Upstream,
    /// Memory for it.
    pub(super) share: Share,
    /// Lists that are asked for at a time.
    pub(super) at_a_time: usize,
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
        let mut pauses = SETTLING.iter();
        loop {
            let request = self.request(member, query)?;
            let mut response = self.upstream.send(way, request).await.map_err(|why| unreachable(&why))?;
            let code = response.status();
            if let Some(status) = refused_answer(code, way) {
                return Err(status);
            }
            if code == StatusCode::OK {
                return Ok(response);
            }
            // Read in any case, so that the connection can be used again.
            let why = refusal(code, &mut response, &member.namespace).await;
            match pauses.next() {
                Some(pause) if code == StatusCode::FORBIDDEN => {
                    tokio::time::sleep(Duration::from_millis(*pause)).await;
                }
                _ => return Err(why),
            }
        }
    }

    /// Asks in several namespaces, some at a time, each with its query.
    pub(super) async fn answers(&self, members: &[Member], queries: &[String]) -> Result<Vec<Answer>, Status> {
        // Boxed: the compiler does not see that futures which borrow may be sent, where a closure makes them.
        let asked: Vec<BoxFuture<'_, _>> =
            members.iter().zip(queries).map(|(member, query)| self.answer(member, query).boxed()).collect();
        futures::stream::iter(asked).buffered(self.at_a_time).try_collect().await
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
        read(response, &self.share, &self.read).await
    }
}

/// Reads a whole answer, within what one list and all lists may take.
pub(super) async fn read(
    response: Response<ClusterBody>,
    share: &Share,
    total: &AtomicUsize,
) -> Result<Answer, Status> {
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
        if !taken.grow(length, share) {
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
    if !code.is_client_error() && !code.is_server_error() {
        // "No content", "partial content", "not modified": a client would take it for a list without objects.
        return Status::bad_gateway(format!("the cluster answered {code} where a list was asked for"));
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(share: &Share) -> Taken {
        let mut taken = Taken::default();
        let mut bytes = 0;
        while taken.grow(bytes + PIECE, share) {
            bytes += PIECE;
        }
        taken
    }

    #[test]
    fn one_account_takes_half_and_the_next_always_finds_something() {
        let room = Room::default();
        let all = ROOM / PIECE;
        let jane = fill(&room.of("jane"));
        assert_eq!(jane.pieces, all / 2);
        // Also in many small ones.
        assert!(!Taken::default().grow(1, &room.of("jane")));
        let others: Vec<Taken> = (0..50).map(|n| fill(&room.of(&format!("other-{n}")))).collect();
        assert!(others.iter().all(|taken| taken.pieces >= LITTLE));
        assert!(room.0.lock().taken <= all + 50 * LITTLE);
        drop((jane, others));
        let pieces = room.0.lock();
        assert_eq!((pieces.taken, pieces.by_account.len()), (0, 0), "all came back");
    }
}
