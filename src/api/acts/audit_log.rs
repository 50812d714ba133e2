//! Reading the audit log.

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http::header::{CONTENT_TYPE, HeaderValue};
use jiff::Timestamp;

use super::super::call::Call;
use super::super::params::Query;
use super::super::rights::Rights;
use super::super::{Answer, ApiState};
use crate::audit::{Filter, ReadError};
use crate::status::Status;

/// Records given where nothing is asked for.
const DEFAULT_LIMIT: u64 = 1000;
/// At most so many; older ones are asked for by `until`.
const MAX_LIMIT: u64 = 10_000;

/// `GET /audit`: one record a line, the newest last.
pub(in crate::api) async fn read(State(state): State<ApiState>, call: Call) -> Answer {
    call.describe(|what| "audit".clone_into(&mut what.verb));
    let parts = &state.0.parts;
    Rights { view: call.view(), caller: &call.caller, access: &parts.access }.check_audit()?;
    let filter = filter(&call.query)?;
    // A log that cannot be written can still be read.
    let _ = parts.audit.flush().await;
    let records = parts.audit.read(filter).await.map_err(unread)?;
    let mut lines = String::new();
    for record in records {
        lines.push_str(&serde_json::to_string(&record).unwrap_or_default());
        lines.push('\n');
    }
    let mut response = Response::new(Body::from(lines));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    Ok(response)
}

/// `GET /audit/verify`: whether every line is as it was written, and none is missing.
pub(in crate::api) async fn verify(State(state): State<ApiState>, call: Call) -> Answer {
    call.describe(|what| "audit-verify".clone_into(&mut what.verb));
    let parts = &state.0.parts;
    Rights { view: call.view(), caller: &call.caller, access: &parts.access }.check_audit()?;
    let _ = parts.audit.flush().await;
    let verified = parts.audit.verify().await.map_err(unread)?;
    if !verified.intact {
        tracing::error!(problems = verified.problem_count, "the audit log is not as it was written");
    }
    Ok(axum::Json(verified).into_response())
}

fn unread(why: ReadError) -> Status {
    match why {
        ReadError::Busy => Status::too_many_requests(why.to_string(), 5),
        ReadError::Io(why) => {
            tracing::error!(%why, "the audit log cannot be read");
            Status::unavailable("the audit log cannot be read")
        }
    }
}

fn filter(query: &Query) -> Result<Filter, Status> {
    let text = |key: &str| Some(query.get(key).to_owned()).filter(|text| !text.is_empty());
    let time = |key: &str| match text(key) {
        None => Ok(None),
        Some(text) => text.parse::<Timestamp>().map(Some).map_err(|_| {
            Status::bad_request(format!("{key}: expected a time like 2030-01-31T12:00:00Z, got {text:?}"))
        }),
    };
    let limit = query.number("limit")?.unwrap_or(DEFAULT_LIMIT).min(MAX_LIMIT);
    Ok(Filter {
        user: text("user"),
        cluster: text("cluster"),
        project: text("project"),
        verb: text("verb"),
        namespace: text("namespace"),
        refused: query.flag("refused")?,
        since: time("since")?,
        until: time("until")?,
        limit: usize::try_from(limit).unwrap_or(usize::MAX),
    })
}
