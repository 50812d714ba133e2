//! One authenticated request: who, from where, on what grounds, and what is recorded of it.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::{FromRequestParts, Path};
use http::HeaderMap;
use http::request::Parts;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use tracing::error;

use super::params::Query;
use super::view::View;
use super::{ApiState, Failure};
use crate::audit::{Stage, Surface, What};
use crate::identity::tokens::Caller;
use crate::index::Snapshot;
use crate::status::Status;

/// One authenticated request. Cheap to clone.
#[derive(Clone)]
pub(super) struct Call(Arc<Inner>);

pub(super) struct Inner {
    /// Owner of the token, and the token.
    pub(super) caller: Caller,
    /// What the caller was authenticated from; decisions that precede a write use a newer one.
    pub(super) snapshot: Arc<Snapshot>,
    /// When.
    pub(super) now: Timestamp,
    /// Client address, where the listener told.
    pub(super) address: Option<IpAddr>,
    /// Headers.
    pub(super) headers: HeaderMap,
    /// Query parameters.
    pub(super) query: Query,
    /// Ties the audit records together.
    pub(super) id: String,
    started: Instant,
    trail: Mutex<Trail>,
}

/// What is recorded.
#[derive(Default)]
struct Trail {
    what: What,
    surface: Surface,
    intended: bool,
    long_running: bool,
}

impl std::ops::Deref for Call {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

/// What a request was made of, before anything is known of its meaning.
pub(super) struct Arrival {
    pub(super) caller: Caller,
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) now: Timestamp,
    pub(super) address: Option<IpAddr>,
    pub(super) headers: HeaderMap,
    pub(super) query: Query,
    pub(super) id: String,
    pub(super) path: String,
}

impl Call {
    pub(super) fn new(arrival: Arrival) -> Self {
        let Arrival { caller, snapshot, now, address, headers, query, id, path } = arrival;
        let metadata = &caller.user.object.metadata;
        let what = What {
            user: metadata.name.clone().unwrap_or_default(),
            user_uid: metadata.uid.clone().unwrap_or_default(),
            token: caller.token.record.id.clone(),
            address: address.map(|a| a.to_string()).unwrap_or_default(),
            path,
            ..What::default()
        };
        let trail = Mutex::new(Trail { what, ..Trail::default() });
        let started = Instant::now();
        Self(Arc::new(Inner { caller, snapshot, now, address, headers, query, id, started, trail }))
    }

    /// Name of the caller's account.
    pub(super) fn user(&self) -> &str {
        self.caller.user.object.metadata.name.as_deref().unwrap_or_default()
    }

    /// Everything as it was when the request came.
    pub(super) fn view(&self) -> View<'_> {
        View { snapshot: &self.snapshot, now: self.now }
    }

    /// Adds to what is recorded of this request.
    pub(super) fn describe(&self, change: impl FnOnce(&mut What)) {
        let mut trail = self.trail.lock();
        change(&mut trail.what);
        // A path tells nothing more where the object is named.
        if !trail.what.resource.is_empty() {
            trail.what.path.clear();
        }
    }

    /// Which door the request counts for.
    pub(super) fn surface(&self, surface: Surface) {
        self.trail.lock().surface = surface;
    }

    /// Records that a mutation is about to happen. On error it must not happen.
    pub(super) async fn intend(&self, state: &ApiState) -> Result<(), Status> {
        let (what, surface) = {
            let mut trail = self.trail.lock();
            trail.intended = true;
            (trail.what.clone(), trail.surface)
        };
        state.0.parts.audit.intent(&self.id, surface, &what).await.map_err(|why| {
            error!(%why, "the audit record cannot be written; refusing");
            Status::unavailable("the audit record cannot be written; nothing was changed")
        })?;
        // Writing it took a moment, in which the caller may have been suspended.
        let snapshot = state.0.parts.index.snapshot();
        snapshot.still_live(&self.caller.token, state.0.parts.index.now()).map(|_| ()).ok_or_else(Status::unauthorized)
    }

    /// Records that a long-running response begins; the returned guard records its end.
    pub(super) fn open(&self, state: &ApiState) -> Opened {
        let mut trail = self.trail.lock();
        trail.long_running = true;
        let what = What { status: Some(200), ..trail.what.clone() };
        state.0.parts.audit.note(&self.id, Stage::Opened, trail.surface, what.clone());
        Opened { state: state.clone(), call: self.clone(), what, surface: trail.surface }
    }

    /// Records what came of the request.
    pub(super) fn close(&self, state: &ApiState, read: bool, status: u16, reason: Option<String>) {
        let trail = self.trail.lock();
        if trail.long_running {
            return;
        }
        let stage = match (trail.intended, status >= 400, read) {
            (true, _, _) | (false, false, false) => Stage::Outcome,
            (false, true, _) => Stage::Refused,
            (false, false, true) => Stage::Read,
        };
        let mut what = trail.what.clone();
        what.status = Some(status);
        if let Some(reason) = reason {
            what.reason = reason;
        }
        what.duration_ms = Some(self.elapsed());
        state.0.parts.audit.note(&self.id, stage, trail.surface, what);
    }

    fn elapsed(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// Records the end of a long-running response when it is dropped.
pub(super) struct Opened {
    state: ApiState,
    call: Call,
    what: What,
    surface: Surface,
}

impl Opened {
    /// Says why it ends.
    pub(super) fn because(&mut self, reason: &str) {
        reason.clone_into(&mut self.what.reason);
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        let what = What { duration_ms: Some(self.call.elapsed()), ..std::mem::take(&mut self.what) };
        self.state.0.parts.audit.note(&self.call.id, Stage::Closed, self.surface, what);
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Call {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        // The front door puts it there; a route that it let through unauthenticated has none.
        parts.extensions.get::<Call>().cloned().ok_or_else(|| Failure(Status::unauthorized()))
    }
}

/// Path parameters; what cannot be decoded is told in a `Status`.
pub(super) struct Place<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Place<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        match Path::<T>::from_request_parts(parts, state).await {
            Ok(Path(place)) => Ok(Self(place)),
            Err(_) => Err(Failure(Status::bad_request("the path cannot be decoded"))),
        }
    }
}
