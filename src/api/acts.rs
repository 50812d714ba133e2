//! What no resource can express: signing in, suspending, handing out credentials, namespaces, checks, the audit log.

mod audit_log;
mod clusters;
mod credentials;
mod explanations;
mod namespaces;
mod session;
mod users;

use axum::Router;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{delete, get, post};
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderValue};
use serde_json::Value;
use tracing::error;

use super::call::Call;
use super::kinds;
use super::read::visible;
use super::rights::Rights;
use super::routes::BASE;
use super::{Answer, ApiState, reach};
use crate::identity::accounts::AccountError;
use crate::status::{Cause, Status};
use crate::store::Kind;

/// The routes of all acts.
pub(super) fn routes() -> Router<ApiState> {
    let under = |path: &str| format!("{BASE}/{path}");
    Router::new()
        .route("/auth/login", post(session::login))
        .route("/auth/logout", post(session::logout))
        .route("/audit", get(audit_log::read))
        .route("/audit/verify", get(audit_log::verify))
        .route(&under("self"), get(whoami))
        .route(&under("explanations/why"), get(explanations::why))
        .route(&under("explanations/who-can"), get(explanations::who_can))
        .route(&under("users/{name}/suspend"), post(users::suspend))
        .route(&under("users/{name}/resume"), post(users::resume))
        .route(&under("users/{name}/password"), post(users::password))
        .route(&under("users/{name}/tokens"), post(credentials::tokens))
        .route(&under("users/{name}/kubeconfig"), post(credentials::kubeconfig))
        .route(&under("clusters/{name}/credential"), post(clusters::credential))
        .route(&under("clusters/{name}/check"), get(clusters::check))
        .route(&under("clusters/{name}/check-upgrade"), get(clusters::check_upgrade))
        .route(&under("clusters/{name}/forget"), post(clusters::forget))
        .route(&under("projects/{name}/namespaces"), post(namespaces::create))
        .route(&under("projects/{name}/namespaces/{cluster}/{namespace}"), delete(namespaces::release))
        .route(
            &under("projects/{name}/namespaces/{cluster}/{namespace}/adoption"),
            get(namespaces::adoption).post(namespaces::adopt).delete(namespaces::give_back),
        )
        .route(&under("projects/{name}/levels/{level}"), get(namespaces::try_level))
}

/// `GET self`.
async fn whoami(call: Call) -> Answer {
    call.describe(|what| "self".clone_into(&mut what.verb));
    let user = &call.caller.user.object;
    Ok(json(StatusCode::OK, &reach::Reach::of(call.view(), user).to_json(user)))
}

/// A JSON answer.
fn json(status: StatusCode, value: &Value) -> Response {
    let mut response = (status, value.to_string()).into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Names an act in the audit record.
fn describe(call: &Call, kind: Kind, act: &str, name: &str) {
    let plural = kinds::by_kind(kind).map_or("", |served| served.plural);
    call.describe(|what| {
        act.clone_into(&mut what.verb);
        crate::resources::GROUP.clone_into(&mut what.group);
        what.resource = format!("{plural}/{act}");
        name.clone_into(&mut what.name);
    });
}

/// Whether the caller may do this to an object: 404 where it may not even see it. Returns the object.
fn permit(call: &Call, state: &ApiState, kind: Kind, act: &str, name: &str) -> Result<Value, Status> {
    describe(call, kind, act, name);
    let served = kinds::by_kind(kind).ok_or_else(|| Status::internal("not a served kind"))?;
    let object = visible(call.view(), state, call, served, name)?;
    let rights = Rights { view: call.view(), caller: &call.caller, access: &state.0.parts.access };
    rights.check_act(kind, act, &object)?;
    Ok(object)
}

/// What an error of accounts means to a client.
pub(super) fn account_status(user: &str, why: AccountError) -> Status {
    match why {
        AccountError::UserNotFound(name) => Status::not_found("users", &name),
        AccountError::TokenNotFound(id) => Status::not_found("tokens", &id),
        AccountError::CallerEnded => Status::unauthorized(),
        AccountError::Wider(_) => Status::forbidden(why.to_string()),
        AccountError::MayNotAct | AccountError::Machine | AccountError::TooManyTokens { .. } => {
            Status::conflict(why.to_string()).about("users", user)
        }
        AccountError::Invalid { field, ref message } => unprocessable(user, field, message),
        AccountError::Lifetime { .. } => unprocessable(user, "expiresInSeconds", &why.to_string()),
        AccountError::Weak(_) => unprocessable(user, "password", &why.to_string()),
        AccountError::Busy | AccountError::Contended => Status::too_many_requests(why.to_string(), 2),
        AccountError::Store(_)
        | AccountError::Stale
        | AccountError::Seal(_)
        | AccountError::NotInForce
        | AccountError::Index(_)
        | AccountError::Failed(_) => {
            error!(user, %why, "an act on an account failed");
            Status::unavailable("the account could not be changed; whether it was in part is unknown")
        }
    }
}

/// 422 for a field of a request.
fn unprocessable(name: &str, field: &str, message: &str) -> Status {
    let cause = Cause { reason: "FieldValueInvalid".to_owned(), message: message.to_owned(), field: field.to_owned() };
    let mut status = Status::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", format!("{field}: {message}"));
    status.details.name = name.to_owned();
    status.details.causes = vec![cause];
    status
}
