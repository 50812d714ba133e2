//! Suspending, resuming, passwords.

use std::net::{IpAddr, Ipv4Addr};

use axum::extract::State;
use http::StatusCode;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::super::body::Payload;
use super::super::call::{Call, Place};
use super::super::{Answer, ApiState};
use super::session::login_status;
use super::{account_status, json as answer, permit, unprocessable};
use crate::status::Status;
use crate::store::Kind;

/// Longest reason that is kept.
const MAX_REASON: usize = 500;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Suspend {
    #[serde(default)]
    reason: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Password {
    password: Zeroizing<String>,
    /// Needed for one's own.
    #[serde(default)]
    old_password: Option<Zeroizing<String>>,
    /// Absent: yes, for who resets a password knows it.
    #[serde(default)]
    must_change: Option<bool>,
}

/// The opening of each act on a user: who is meant (`me`, or a name), whether the caller may, and what is asked.
pub(super) fn open<'a, T: DeserializeOwned>(
    call: &'a Call,
    state: &ApiState,
    name: &'a str,
    act: &str,
    payload: &Payload,
) -> Result<(&'a str, T), Status> {
    let name = if name == "me" { call.user() } else { name };
    permit(call, state, Kind::User, act, name)?;
    Ok((name, payload.request()?))
}

/// `POST users/NAME/suspend`.
pub(in crate::api) async fn suspend(
    State(state): State<ApiState>,
    call: Call,
    Place(name): Place<String>,
    payload: Payload,
) -> Answer {
    let (name, Suspend { reason }) = open(&call, &state, &name, "suspend", &payload)?;
    if reason.chars().count() > MAX_REASON || reason.chars().any(char::is_control) {
        let message = format!("must have at most {MAX_REASON} characters and no control characters");
        return Err(unprocessable(name, "reason", &message).into());
    }
    call.describe(|what| what.reason.clone_from(&reason));
    call.intend(&state).await?;
    let done = state.0.parts.accounts.suspend(name, call.user(), &reason, state.0.parts.index.now()).await;
    done.map_err(|why| account_status(name, why))?;
    Ok(answer(StatusCode::OK, &current(&state, name)))
}

/// `POST users/NAME/resume`.
pub(in crate::api) async fn resume(
    State(state): State<ApiState>,
    call: Call,
    Place(name): Place<String>,
    payload: Payload,
) -> Answer {
    let (name, Nothing {}) = open(&call, &state, &name, "resume", &payload)?;
    call.intend(&state).await?;
    let done = state.0.parts.accounts.resume(name, state.0.parts.index.now()).await;
    done.map_err(|why| account_status(name, why))?;
    Ok(answer(StatusCode::OK, &current(&state, name)))
}

/// The user as it is read now.
fn current(state: &ApiState, name: &str) -> Value {
    let snapshot = state.0.parts.index.snapshot();
    let view = super::super::view::View { snapshot: &snapshot, now: state.0.parts.index.now() };
    view.object(Kind::User, name).unwrap_or_default()
}

/// `POST users/NAME/password`. One's own needs the present one, whatever else one may.
pub(in crate::api) async fn password(
    State(state): State<ApiState>,
    call: Call,
    Place(name): Place<String>,
    payload: Payload,
) -> Answer {
    let (name, Password { password, old_password, must_change }) = open(&call, &state, &name, "password", &payload)?;
    let accounts = &state.0.parts.accounts;
    if name == call.user() {
        let Some(old) = old_password else {
            return Err(unprocessable(name, "oldPassword", "your present password is needed").into());
        };
        call.intend(&state).await?;
        let address = call.address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let done = accounts.change_password(name, &old, &password, address, state.0.parts.index.now()).await;
        done.map_err(|why| match login_status(name, why) {
            // The caller is known; what is wrong is the password that it gave.
            refused if refused.code == 401 => Status::forbidden("the present password is wrong"),
            other => other,
        })?;
    } else {
        if old_password.is_some() {
            let message = "is for one's own password only; use the name `me`";
            return Err(unprocessable(name, "oldPassword", message).into());
        }
        call.intend(&state).await?;
        let done = accounts.set_password(name, &password, must_change.unwrap_or(true)).await;
        done.map_err(|why| account_status(name, why))?;
    }
    Ok(answer(StatusCode::OK, &json!({})))
}
