//! The front door: who is it, may decisions be made at all, and what is recorded in the end.

use std::panic::AssertUnwindSafe;

use axum::body::{Body, HttpBody as _};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use futures::FutureExt as _;
use http::header::{AUTHORIZATION, CACHE_CONTROL, HeaderMap, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use http::{Method, StatusCode};
use tracing::error;

use super::body::collect;
use super::call::{Arrival, Call};
use super::params::Query;
use super::{ApiState, ClientAddress, Failure, Reason};
use crate::audit::{Stage, Surface, What};
use crate::identity::tokens::authenticate;
use crate::proxy::rewrite::{NO_IMPERSONATION, asks_to_impersonate};
use crate::resources::GROUP;
use crate::resources::token::Audience;
use crate::status::Status;

/// Longest path that is recorded.
const MAX_RECORDED_PATH: usize = 256;

/// Paths that need no credential. They tell nothing about anybody, or exist to obtain one.
const PUBLIC: [&str; 3] = ["/version", "/healthz", "/auth/login"];

/// Authenticates, runs the handler so that neither a panic nor a lost client stops it half-way, and records the end.
pub(super) async fn front(State(state): State<ApiState>, mut request: Request, next: Next) -> Response {
    let public = PUBLIC.contains(&request.uri().path());
    let read = matches!(*request.method(), Method::GET | Method::HEAD);
    let mut call = None;
    if !public {
        let admitted = match admit(&state, &request) {
            Ok(admitted) => admitted,
            Err(refusal) => return finish(Failure(*refusal).into_response()),
        };
        let (arrived, admitted) = match arrive(&state, request, admitted, read).await {
            Ok(arrived) => arrived,
            Err(refused) => return finish(refused),
        };
        request = arrived;
        request.extensions_mut().insert(admitted.clone());
        call = Some(admitted);
    }
    let work = AssertUnwindSafe(next.run(request)).catch_unwind();
    let outcome = if read {
        work.await.ok()
    } else {
        // A client that hangs up must not leave a mutation between two of its steps, or without its second record.
        tokio::spawn(work).await.ok().and_then(Result::ok)
    };
    let response = outcome.unwrap_or_else(|| {
        error!("a request handler panicked");
        Failure(Status::internal("the request could not be completed")).into_response()
    });
    if let Some(call) = call {
        let reason = response.extensions().get::<Reason>().map(|Reason(reason)| reason.clone());
        call.close(&state, read, response.status().as_u16(), reason);
    }
    finish(response)
}

/// Waits for the whole body, and looks again then who it is and what there is: the client decides when its body ends,
/// and until then it may have been suspended, or lost the right that it counts on.
async fn arrive(state: &ApiState, request: Request, call: Call, read: bool) -> Result<(Request, Call), Response> {
    if request.body().is_end_stream() {
        return Ok((request, call));
    }
    let (parts, body) = request.into_parts();
    let bytes = match collect(body).await {
        Ok(bytes) => bytes,
        Err(refusal) => {
            call.close(state, read, refusal.code, Some(refusal.message.clone()));
            return Err(Failure(refusal).into_response());
        }
    };
    let request = Request::from_parts(parts, Body::from(bytes));
    match admit(state, &request) {
        Ok(call) => Ok((request, call)),
        Err(refusal) => Err(Failure(*refusal).into_response()),
    }
}

/// Whether a path can only be meant for a cluster.
fn of_a_cluster(path: &str) -> bool {
    let ours = format!("/apis/{GROUP}");
    path.starts_with("/api/") || (path.starts_with("/apis/") && !path.starts_with(&ours))
}

/// kubectl before 1.34 drops the path of the server's URL from what it asks for with `--raw`, and would tell of a 401
/// only that one must sign in.
fn no_cluster_here() -> Status {
    let message = "this is not the API of a cluster: its paths begin with /k8s/clusters/CLUSTER or \
                   /k8s/clusters/CLUSTER/projects/PROJECT (kubectl before 1.34 needs the whole path with --raw)";
    Status::new(StatusCode::NOT_FOUND, "NotFound", message)
}

/// The credential: exactly one bearer token. Of two, another reader could take the other one.
fn presented(headers: &HeaderMap) -> Option<&str> {
    let mut lines = headers.get_all(AUTHORIZATION).iter();
    let (Some(line), None) = (lines.next(), lines.next()) else { return None };
    let (scheme, token) = line.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

fn admit(state: &ApiState, request: &Request) -> Result<Call, Box<Status>> {
    let parts = &state.0.parts;
    let address = request.extensions().get::<ClientAddress>().map(|ClientAddress(address)| *address);
    let path: String = request.uri().path().chars().take(MAX_RECORDED_PATH).collect();
    let id = parts.audit.request_id();
    if !parts.index.is_fresh() {
        return Err(Box::new(Status::unavailable("the store cannot be reached; nothing is decided until it is back")));
    }
    let snapshot = parts.index.snapshot();
    let now = parts.index.now();
    let refused = |refusal: Status, path: String, user: &str| {
        let what = What {
            user: user.to_owned(),
            address: address.map(|a| a.to_string()).unwrap_or_default(),
            path,
            status: Some(refusal.code),
            ..What::default()
        };
        parts.audit.note(&id, Stage::Refused, Surface::Api, what);
        Err(Box::new(refusal))
    };
    let caller = presented(request.headers()).and_then(|token| authenticate(&snapshot, token, Audience::Api, now).ok());
    let Some(caller) = caller else {
        let refusal = if of_a_cluster(&path) { no_cluster_here() } else { Status::unauthorized() };
        return refused(refusal, path, "");
    };
    // Refused and not passed over: who asks with `--as` must not take the answer for somebody else's.
    if asks_to_impersonate(request.headers()) {
        return refused(Status::forbidden(NO_IMPERSONATION), path, &caller.token.record.user);
    }
    if let Some(address) = address {
        parts.last_used.record(&caller.token.record.id, address, now);
    }
    let query = Query::parse(request.uri().query()).map_err(Box::new)?;
    let headers = request.headers().clone();
    Ok(Call::new(Arrival { caller, snapshot, now, address, headers, query, id, path }))
}

/// What every response says.
fn finish(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache, private"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
