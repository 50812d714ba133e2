//! Tokens and kubeconfigs: each is shown once, when it is made.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::extract::State;
use http::StatusCode;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::json;

use super::super::body::Payload;
use super::super::call::{Call, Place};
use super::super::reach::Reach;
use super::super::view::{View, token_object};
use super::super::{Answer, ApiState, kubeconfig as config};
use super::users::open;
use super::{account_status, json as answer, unprocessable};
use crate::access::{ObjectRef, roles_held};
use crate::identity::tokens::{IssuedToken, NewToken};
use crate::records::{Scoped, TokenScopes};
use crate::resources::User;
use crate::resources::token::{Audience, Scopes};
use crate::status::Status;
use crate::store::{Kind, Revision};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct TokenRequest {
    audience: Audience,
    #[serde(default)]
    scopes: Scopes,
    #[serde(default)]
    expires_in_seconds: Option<u64>,
    #[serde(default)]
    description: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct KubeconfigRequest {
    #[serde(default)]
    clusters: Vec<String>,
    #[serde(default)]
    projects: Vec<String>,
    #[serde(default)]
    expires_in_seconds: Option<u64>,
    #[serde(default)]
    read_only: bool,
    #[serde(default)]
    description: String,
}

/// `POST users/NAME/tokens`.
pub(in crate::api) async fn tokens(
    State(state): State<ApiState>,
    call: Call,
    Place(name): Place<String>,
    payload: Payload,
) -> Answer {
    let (name, TokenRequest { audience, scopes, expires_in_seconds, description }) =
        open(&call, &state, &name, "tokens", &payload)?;
    let view = View { snapshot: &call.snapshot, now: call.now };
    let owner = view.snapshot.users.get(name).ok_or_else(|| Status::not_found("users", name))?;
    let scopes = limits(&state, view, &owner.object, scopes)?;
    call.intend(&state).await?;
    let issued = issue(&state, &call, name, audience, scopes, expires_in_seconds, description).await?;
    let snapshot = state.0.parts.index.snapshot();
    let revision = snapshot.tokens.get(issued.id.as_str()).map_or(Revision(0), |token| token.revision);
    let resource = token_object(&issued.record, revision, None);
    Ok(answer(StatusCode::CREATED, &json!({"token": issued.secret_token.as_str(), "resource": resource})))
}

/// What the names of scopes stand for now. What the owner does not see is not told apart from what does not exist.
fn limits(state: &ApiState, view: View<'_>, owner: &User, scopes: Scopes) -> Result<TokenScopes, Status> {
    let Scopes { clusters, projects, read_only } = scopes;
    let View { snapshot, now } = view;
    let sees = |kind: Kind, object: ObjectRef<'_>| {
        state.0.parts.access.allows(&roles_held(snapshot, owner, object, now), kind.as_str(), "get", "object")
    };
    let user = owner.metadata.name.as_deref().unwrap_or_default();
    let clusters = clusters.into_iter().map(|name| {
        let there = snapshot.clusters.get(name.as_str()).filter(|_| sees(Kind::Cluster, ObjectRef::Cluster(&name)));
        scoped(user, "clusters", name, there.map(|cluster| &cluster.object.metadata))
    });
    let clusters = clusters.collect::<Result<_, _>>()?;
    let projects = projects.into_iter().map(|name| {
        let there = snapshot.projects.get(name.as_str()).filter(|_| sees(Kind::Project, ObjectRef::Project(&name)));
        scoped(user, "projects", name, there.map(|project| &project.object.metadata))
    });
    Ok(TokenScopes { clusters, projects: projects.collect::<Result<_, _>>()?, read_only })
}

fn scoped(user: &str, field: &str, name: String, there: Option<&ObjectMeta>) -> Result<Scoped, Status> {
    match there.and_then(|metadata| metadata.uid.clone()) {
        Some(uid) => Ok(Scoped { name, uid }),
        None => Err(out_of_reach(user, field, &name)),
    }
}

fn out_of_reach(user: &str, field: &str, name: &str) -> Status {
    let message = format!("{user} reaches no {} of the name {name:?}", field.trim_end_matches('s'));
    unprocessable(user, field, &message)
}

async fn issue(
    state: &ApiState,
    call: &Call,
    user: &str,
    audience: Audience,
    scopes: TokenScopes,
    expires_in_seconds: Option<u64>,
    description: String,
) -> Result<IssuedToken, Status> {
    let accounts = &state.0.parts.accounts;
    let now = state.0.parts.index.now();
    let default = || accounts.default_lifetime(Some(&call.caller.token), audience, now);
    let expires_in = expires_in_seconds.map_or_else(default, Duration::from_secs);
    let new = NewToken { audience, scopes, expires_in, description, family: None };
    let issued = accounts.issue_for(&call.caller.token, user, new, now).await;
    issued.map_err(|why| account_status(user, why))
}

/// `POST users/NAME/kubeconfig`.
pub(in crate::api) async fn kubeconfig(
    State(state): State<ApiState>,
    call: Call,
    Place(name): Place<String>,
    payload: Payload,
) -> Answer {
    let (name, KubeconfigRequest { clusters, projects, expires_in_seconds, read_only, description }) =
        open(&call, &state, &name, "kubeconfig", &payload)?;
    let view = View { snapshot: &call.snapshot, now: call.now };
    let user = view.snapshot.users.get(name).ok_or_else(|| Status::not_found("users", name))?;
    let mut reach = Reach::of(view, &user.object);
    for (field, wanted, known) in [
        ("clusters", &clusters, reach.clusters.iter().collect::<BTreeSet<_>>()),
        ("projects", &projects, reach.projects.iter().map(|project| &project.name).collect()),
    ] {
        // What the account does not reach is not told apart from what does not exist.
        if let Some(stranger) = wanted.iter().find(|one| !known.contains(one)) {
            return Err(out_of_reach(name, field, stranger).into());
        }
    }
    if !projects.is_empty() {
        reach.projects.retain(|project| projects.contains(&project.name));
        // Limited to projects, the token opens only the clusters that these live on.
        reach.clusters = reach.projects.iter().flat_map(|p| p.clusters.iter().map(|c| c.name.clone())).collect();
    }
    if !clusters.is_empty() {
        reach.clusters.retain(|cluster| clusters.contains(cluster));
    }
    if reach.clusters.is_empty() {
        let message = format!("{name} has no grant on a project with a place on a cluster, nor on a cluster");
        return Err(unprocessable(name, "clusters", &message).into());
    }
    let scopes = limits(&state, view, &user.object, Scopes { clusters, projects, read_only })?;
    call.intend(&state).await?;
    let issued = issue(&state, &call, name, Audience::Kube, scopes, expires_in_seconds, description).await?;
    let text = config::render(&state.0.parts.public, name, &issued.secret_token, &reach, &reach.clusters);
    Ok(answer(StatusCode::CREATED, &json!({"kubeconfig": text.as_str(), "tokenID": issued.id})))
}
