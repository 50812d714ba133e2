//! The way back: what of a cluster's answers is not passed on, and what is said in its place.

use std::time::Instant;

use http::{Response, StatusCode};
use http_body_util::BodyExt as _;
use tracing::debug;

use crate::clusters::upstream::{UpstreamError, Way};
use crate::proxy::body::ProxyBody;
use crate::proxy::decide::Refusal;
use crate::status::Status;

/// Answers of a cluster that are not passed on: redirects, which would lead the client's credentials elsewhere; a 401,
/// which is about our credential and would send kubectl to sign in again; a protocol switch that nobody asked for.
pub(in crate::proxy) fn refused_answer(status: StatusCode, way: Way) -> Option<Status> {
    match status.as_u16() {
        101 if way != Way::Upgrade => Some(Status::bad_gateway("the cluster switched protocols unasked")),
        301 | 302 | 303 | 307 | 308 => {
            Some(Status::bad_gateway("the cluster answered with a redirect, which is not followed"))
        }
        401 => Some(Status::bad_gateway(
            "the cluster does not accept the service's credential; its administrator can import it again",
        )),
        _ => None,
    }
}

pub(in crate::proxy) fn unreachable(why: &UpstreamError) -> Status {
    debug!(%why, "cluster not reached");
    match why {
        UpstreamError::Full => Status::too_many_requests(why.to_string(), 5),
        UpstreamError::ConnectTimeout => Status::timeout("the cluster cannot be reached: no connection in time"),
        UpstreamError::Connect(_) => Status::unavailable("the cluster cannot be reached"),
        UpstreamError::Broken(_) => Status::bad_gateway("the cluster broke off, or did not answer in HTTP"),
        UpstreamError::Request(_) => Status::bad_request(why.to_string()),
    }
}

pub(in crate::proxy) fn unauthenticated_or_forbidden(cause: &str) -> Status {
    match cause {
        "account" | "token" | "expired" => Status::unauthorized(),
        cause => Status::forbidden(format!("the right to this ended meanwhile ({cause})")),
    }
}

pub(in crate::proxy) fn refusal(reason: &'static str, status: Status) -> Refusal {
    Refusal { reason, status }
}

pub(in crate::proxy) fn unauthenticated() -> Refusal {
    refusal("unauthenticated", Status::unauthorized())
}

pub(in crate::proxy) fn own(status: Status) -> Response<ProxyBody> {
    status.into_http().map(|body| {
        let bytes = futures::FutureExt::now_or_never(body.collect()).and_then(Result::ok).map(|b| b.to_bytes());
        ProxyBody::Whole(bytes)
    })
}

pub(in crate::proxy) fn millis(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}
