//! Namespaces of projects: created and given up by members, moved by who owns both projects.

use std::time::Duration;

use axum::extract::State;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::body::Payload;
use super::super::call::{Call, Place};
use super::super::kinds;
use super::super::read::visible;
use super::super::rights::Rights;
use super::super::{Answer, ApiState};
use super::json as answer;
use crate::clock;
use crate::index::Snapshot;
use crate::status::Status;
use crate::store::Kind;
use crate::tenancy::TenancyError;

/// How long a creation waits until its caller can use the namespace.
const EFFECTIVE_WITHIN: Duration = Duration::from_secs(30);
/// State of a namespace that is as it must be, in `Project.status`.
const READY: &str = "Ready";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Create {
    cluster: String,
    name: String,
    /// Project that has it now; absent: nobody.
    #[serde(default)]
    from: Option<String>,
}

/// `POST projects/NAME/namespaces`: answers when access is effective, or says what it waits for.
pub(in crate::api) async fn create(
    State(state): State<ApiState>,
    call: Call,
    Place(project): Place<String>,
    payload: Payload,
) -> Answer {
    let Create { cluster, name, from } = payload.request()?;
    let verb = if from.is_some() { "move" } else { "create" };
    permit(&call, &state, &project, &cluster, &name, verb)?;
    if let Some(from) = &from {
        // To take it out of a project needs the same right there.
        permit(&call, &state, from, &cluster, &name, verb)?;
        describe(&call, &project, &cluster, &name, verb);
    }
    call.intend(&state).await?;
    let tenancy = &state.0.parts.tenancy;
    let done = match &from {
        None => tenancy.create_namespace(&project, &cluster, &name, call.user(), clock::now()).await,
        Some(from) => tenancy.move_namespace(&cluster, &name, from, &project, call.user(), clock::now()).await,
    };
    let claim = done.map_err(tenancy_status)?;
    let status = effective(&state, &project, &claim.project_uid, &cluster, &name).await?;
    Ok(answer(StatusCode::CREATED, &status))
}

/// `DELETE projects/NAME/namespaces/CLUSTER/NAMESPACE`.
pub(in crate::api) async fn release(
    State(state): State<ApiState>,
    call: Call,
    Place((project, cluster, namespace)): Place<(String, String, String)>,
) -> Answer {
    permit(&call, &state, &project, &cluster, &namespace, "delete")?;
    call.intend(&state).await?;
    let done = state.0.parts.tenancy.release_namespace(&project, &cluster, &namespace, call.user()).await;
    done.map_err(tenancy_status)?;
    Ok(answer(StatusCode::OK, &json!({"cluster": cluster, "name": namespace, "state": "Terminating"})))
}

fn describe(call: &Call, project: &str, cluster: &str, namespace: &str, verb: &str) {
    call.describe(|what| {
        verb.clone_into(&mut what.verb);
        crate::resources::GROUP.clone_into(&mut what.group);
        "projects/namespaces".clone_into(&mut what.resource);
        project.clone_into(&mut what.name);
        project.clone_into(&mut what.project);
        cluster.clone_into(&mut what.cluster);
        namespace.clone_into(&mut what.namespace);
    });
}

fn permit(
    call: &Call,
    state: &ApiState,
    project: &str,
    cluster: &str,
    namespace: &str,
    verb: &str,
) -> Result<(), Status> {
    describe(call, project, cluster, namespace, verb);
    let served = kinds::by_kind(Kind::Project).ok_or_else(|| Status::internal("not a served kind"))?;
    let object = visible(call.view(), state, call, served, project)?;
    let rights = Rights { view: call.view(), caller: &call.caller, access: &state.0.parts.access };
    rights.check_namespace(verb, &object)
}

/// Waits until the namespace exists, is observed, and carries what gives its members their rights. Says how far it is
/// where that takes too long: the claim stands, and the work goes on.
async fn effective(
    state: &ApiState,
    project: &str,
    uid: &str,
    cluster: &str,
    namespace: &str,
) -> Result<Value, Status> {
    let index = &state.0.parts.index;
    let mut versions = index.subscribe();
    let deadline = tokio::time::Instant::now() + EFFECTIVE_WITHIN;
    loop {
        let (ready, status) = look(&index.snapshot(), project, uid, cluster, namespace);
        if ready {
            return Ok(status);
        }
        tokio::select! {
            changed = versions.changed() => {
                changed.map_err(|_| Status::unavailable("the service is going down"))?;
            }
            () = tokio::time::sleep_until(deadline) => return Ok(status),
            () = state.0.parts.shutdown.cancelled() => return Ok(status),
        }
    }
}

fn look(snapshot: &Snapshot, project: &str, uid: &str, cluster: &str, namespace: &str) -> (bool, Value) {
    let pending =
        |message: &str| json!({"cluster": cluster, "name": namespace, "state": "Pending", "message": message});
    let Some(claim) = snapshot.claim(cluster, namespace).filter(|claim| claim.object.project_uid == uid) else {
        return (false, pending("the claim is not in force yet"));
    };
    let observed = snapshot.observed.get(cluster);
    let exists =
        claim.object.namespace_uid.as_deref().is_some_and(|uid| {
            observed.and_then(|seen| seen.namespaces.get(namespace)).is_some_and(|seen| &**seen == uid)
        });
    let status = snapshot.projects.get(project).and_then(|p| p.object.status.as_ref());
    let of_namespace =
        status.and_then(|status| status.namespaces.iter().find(|n| n.cluster == cluster && n.name == namespace));
    match (exists, of_namespace) {
        (true, Some(status)) if status.state == READY => (true, serde_json::to_value(status).unwrap_or_default()),
        (_, Some(status)) if !status.message.is_empty() => (false, serde_json::to_value(status).unwrap_or_default()),
        _ => match observed {
            Some(seen) if !seen.usable => {
                (false, pending(&format!("cluster {cluster} cannot be used: {}", seen.reason)))
            }
            None => (false, pending(&format!("cluster {cluster} has not been seen yet"))),
            Some(_) => (false, pending("it is being set up in the cluster")),
        },
    }
}

/// What an error of tenancy means to a client.
pub(in crate::api) fn tenancy_status(why: TenancyError) -> Status {
    use TenancyError as E;
    let text = why.to_string();
    match why {
        E::NoProject(name) => Status::not_found("projects", &name),
        E::NoCluster(name) => Status::not_found("clusters", &name),
        E::NotOwned { .. } => Status::new(StatusCode::NOT_FOUND, "NotFound", text),
        E::NotOnCluster { .. } | E::NotAllowed { .. } | E::Full { .. } | E::Quota { .. } | E::System(_) => {
            Status::forbidden(text)
        }
        E::BadName { .. } => Status::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", text),
        E::Taken { .. } | E::AlreadyOwned { .. } => Status::new(StatusCode::CONFLICT, "AlreadyExists", text),
        E::ProjectDeleting(_) | E::Releasing { .. } | E::Declared { .. } | E::Contended(_) => Status::conflict(text),
        E::BadQuota { .. } => Status::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", text),
        E::Unreadable { .. } | E::Store(_) => {
            tracing::error!(why = text, "an act on namespaces failed");
            Status::unavailable("the namespace could not be changed; whether it was in part is unknown")
        }
    }
}
