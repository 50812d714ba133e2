//! Signing in and out.

use std::net::{IpAddr, Ipv4Addr};

use axum::Extension;
use axum::extract::State;
use http::StatusCode;
use serde::Deserialize;
use serde_json::json;
use zeroize::Zeroizing;

use super::super::body::Payload;
use super::super::call::Call;
use super::super::{Answer, ApiState, ClientAddress, Failure};
use super::{account_status, json as answer};
use crate::audit::{Stage, Surface, What};
use crate::domain::names::MAX_NAME;
use crate::identity::accounts::LoginError;
use crate::status::Status;

/// Request of `/auth/login`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Login {
    username: String,
    password: Zeroizing<String>,
    #[serde(default)]
    new_password: Option<Zeroizing<String>>,
}

/// `POST /auth/login`.
pub(in crate::api) async fn login(
    State(state): State<ApiState>,
    address: Option<Extension<ClientAddress>>,
    payload: Payload,
) -> Answer {
    let parts = &state.0.parts;
    let id = parts.audit.request_id();
    // Whoever accepts connections tells the address; without one all sign-ins count as one client's.
    let address = address.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |Extension(ClientAddress(address))| address);
    let mut what = What { verb: "login".to_owned(), address: address.to_string(), ..What::default() };
    let outcome = attempt(&state, &payload, address, &id, &mut what).await;
    let (status, stage) = match &outcome {
        Ok(_) => (200, Stage::Outcome),
        Err(status) => {
            what.reason.clone_from(&status.reason);
            (status.code, Stage::Refused)
        }
    };
    what.status = Some(status);
    parts.audit.note(&id, stage, Surface::Auth, what);
    outcome.map_err(Failure)
}

async fn attempt(
    state: &ApiState,
    payload: &Payload,
    address: IpAddr,
    id: &str,
    what: &mut What,
) -> Result<axum::response::Response, Status> {
    let parts = &state.0.parts;
    let Login { username, password, new_password } = payload.request()?;
    // What is no user's name may be a password that went into the wrong field: it is not recorded.
    if username.len() <= MAX_NAME && parts.index.load().users.contains_key(username.as_str()) {
        what.user.clone_from(&username);
    }
    if !parts.index.is_fresh() {
        return Err(Status::unavailable("the store cannot be reached; nobody can sign in until it is back"));
    }
    let (now, new_password) = (parts.index.now(), new_password.as_ref().map(|new| new.as_str()));
    let proof = parts.accounts.prove(&username, &password, address, now).await;
    let proof = proof.map_err(|why| login_status(&username, why))?;
    if proof.must_change() && new_password.is_none() {
        return Err(login_status(&username, LoginError::PasswordChangeRequired));
    }
    // Only now: an intent waits for the disk, and whoever has no password must not make it busy.
    parts.audit.intent(id, Surface::Auth, what).await.map_err(|why| {
        tracing::error!(%why, "the audit record cannot be written; refusing");
        Status::unavailable("the audit record cannot be written; nobody can sign in")
    })?;
    let issued = parts.accounts.sign_in(proof, &password, new_password, address, now).await;
    let issued = issued.map_err(|why| login_status(&username, why))?;
    what.token.clone_from(&issued.id);
    what.user_uid.clone_from(&issued.record.user_uid);
    Ok(answer(
        StatusCode::OK,
        &json!({
            "token": issued.secret_token.as_str(),
            "tokenID": issued.id,
            "user": issued.record.user,
            "expiresAt": issued.record.expires_at,
        }),
    ))
}

/// What an error of signing in means to a client. All refusals look the same.
pub(super) fn login_status(user: &str, why: LoginError) -> Status {
    match why {
        LoginError::Refused => Status::unauthorized(),
        LoginError::PasswordChangeRequired => {
            Status::new(StatusCode::FORBIDDEN, "PasswordChangeRequired", why.to_string())
        }
        LoginError::BackingOff(wait) => Status::too_many_requests(wait.to_string(), wait.seconds),
        LoginError::Weak(weakness) => super::unprocessable(user, "newPassword", &weakness.to_string()),
        LoginError::Busy => Status::too_many_requests(why.to_string(), 2),
        LoginError::Failed(why) => account_status(user, why),
    }
}

/// `POST /auth/logout`: the presented token ends.
pub(in crate::api) async fn logout(State(state): State<ApiState>, call: Call) -> Answer {
    call.surface(Surface::Auth);
    call.describe(|what| "logout".clone_into(&mut what.verb));
    call.intend(&state).await?;
    let id = call.caller.token.record.id.as_str();
    state.0.parts.accounts.revoke(id).await.map_err(|why| account_status(call.user(), why))?;
    Ok(answer(StatusCode::OK, &json!({})))
}
