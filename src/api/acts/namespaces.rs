//! Namespaces of projects: created and given up by members, moved by who owns both projects.

use axum::extract::State;
use http::StatusCode;
use serde::Deserialize;
use serde_json::json;

use super::super::body::Payload;
use super::super::call::{Call, Place as InPath};
use super::super::kinds;
use super::super::read::visible;
use super::super::rights::Rights;
use super::super::{Answer, ApiState};
use super::json as answer;
use crate::controllers::ActError;
use crate::domain::request::{RequestInfo, ResourceRequest};
use crate::proxy::decide::{Asker, Context};
use crate::proxy::namespaces::right;
use crate::proxy::resolve::Place;
use crate::resources::project::PodSecurityLevel;
use crate::status::Status;
use crate::store::Kind;

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
    InPath(project): InPath<String>,
    payload: Payload,
) -> Answer {
    let Create { cluster, name, from } = payload.request()?;
    let verb = if from.is_some() { "move" } else { "create" };
    permit(&call, &state, &project, &cluster, &name, verb)?;
    by_hand(&call, &project, &cluster, verb)?;
    if let Some(from) = &from {
        // To take it out of a project needs the same right there.
        permit(&call, &state, from, &cluster, &name, verb)?;
        by_hand(&call, from, &cluster, verb)?;
        describe(&call, &project, &cluster, &name, verb);
    }
    call.intend(&state).await?;
    let acts = &state.0.parts.namespaces;
    let done = match &from {
        None => acts.create(&project, &cluster, &name, call.user(), state.0.parts.index.now()).await,
        Some(from) => acts.relocate(&cluster, &name, from, &project, call.user(), state.0.parts.index.now()).await,
    };
    let status = match done {
        Ok(state) => {
            json!({"cluster": cluster, "name": name, "state": state.phase.as_str(), "hard": state.hard, "used": state.used})
        }
        // The claim stands and the work goes on: that is no failure, and must not be tried again.
        Err(ActError::NotYet(why)) => json!({"cluster": cluster, "name": name, "state": "Pending", "message": why}),
        Err(why) => return Err(why.status().into()),
    };
    Ok(answer(StatusCode::CREATED, &status))
}

/// `DELETE projects/NAME/namespaces/CLUSTER/NAMESPACE`.
pub(in crate::api) async fn release(
    State(state): State<ApiState>,
    call: Call,
    InPath((project, cluster, namespace)): InPath<(String, String, String)>,
) -> Answer {
    permit(&call, &state, &project, &cluster, &namespace, "delete")?;
    by_hand(&call, &project, &cluster, "delete")?;
    call.intend(&state).await?;
    let done = state.0.parts.namespaces.delete(&project, &cluster, &namespace, call.user()).await;
    given_up(done, &cluster, &namespace)
}

/// `GET projects/NAME/namespaces/CLUSTER/NAMESPACE/adoption`: what adopting would mean.
pub(in crate::api) async fn adoption(
    State(state): State<ApiState>,
    call: Call,
    InPath((project, cluster, namespace)): InPath<(String, String, String)>,
) -> Answer {
    permit(&call, &state, &project, &cluster, &namespace, "adopt")?;
    let report = state.0.parts.namespaces.adoption(&project, &cluster, &namespace).await.map_err(ActError::status)?;
    Ok(answer(StatusCode::OK, &json!(report)))
}

/// `POST projects/NAME/namespaces/CLUSTER/NAMESPACE/adoption`.
pub(in crate::api) async fn adopt(
    State(state): State<ApiState>,
    call: Call,
    InPath((project, cluster, namespace)): InPath<(String, String, String)>,
) -> Answer {
    permit(&call, &state, &project, &cluster, &namespace, "adopt")?;
    by_hand(&call, &project, &cluster, "adopt")?;
    call.intend(&state).await?;
    let acts = &state.0.parts.namespaces;
    let report = acts
        .adopt(&project, &cluster, &namespace, call.user(), state.0.parts.index.now())
        .await
        .map_err(ActError::status)?;
    Ok(answer(StatusCode::OK, &json!(report)))
}

/// `DELETE projects/NAME/namespaces/CLUSTER/NAMESPACE/adoption`: gives back what was adopted.
pub(in crate::api) async fn give_back(
    State(state): State<ApiState>,
    call: Call,
    InPath((project, cluster, namespace)): InPath<(String, String, String)>,
) -> Answer {
    permit(&call, &state, &project, &cluster, &namespace, "delete")?;
    by_hand(&call, &project, &cluster, "delete")?;
    call.intend(&state).await?;
    let done = state.0.parts.namespaces.give_back(&project, &cluster, &namespace, call.user()).await;
    given_up(done, &cluster, &namespace)
}

/// `GET projects/NAME/levels/LEVEL`: what a Pod Security level would refuse of the Pods that are there.
pub(in crate::api) async fn try_level(
    State(state): State<ApiState>,
    call: Call,
    InPath((project, level)): InPath<(String, String)>,
) -> Answer {
    super::describe(&call, Kind::Project, "levels", &project);
    let served = kinds::by_kind(Kind::Project).ok_or_else(|| Status::internal("not a served kind"))?;
    visible(call.view(), &state, &call, served, &project)?;
    let level = PodSecurityLevel::parse(&level)
        .ok_or_else(|| Status::bad_request("the level is one of privileged, baseline, restricted"))?;
    let namespaces = state.0.parts.namespaces.try_level(&project, level).await.map_err(ActError::status)?;
    Ok(answer(StatusCode::OK, &json!({"project": project, "level": level.as_str(), "namespaces": namespaces})))
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

/// Where Git changes what the project has on the cluster, people need a grant that ends here as in the cluster.
fn by_hand(call: &Call, project: &str, cluster: &str, verb: &str) -> Result<(), Status> {
    let asked = ResourceRequest::asked("create", "", "v1", "namespaces", "", "", "");
    let ctx = Context {
        snapshot: call.view().snapshot,
        asker: Asker { user: &call.caller.user.object, scopes: &call.caller.token.record.scopes },
        place: Place { cluster, project: None, namespace: "" },
        request: &RequestInfo::Resource(asked.unwrap_or_default()),
        now: call.view().now,
    };
    match right::held_back(&ctx, project, verb) {
        None => Ok(()),
        Some(by_git) => {
            Err(Status::forbidden(format!("you may not {verb} namespaces here by hand; {}", by_git.instead())))
        }
    }
}

fn given_up(done: Result<(), ActError>, cluster: &str, namespace: &str) -> Answer {
    done.map_err(ActError::status)?;
    Ok(answer(StatusCode::OK, &json!({"cluster": cluster, "name": namespace, "state": "Terminating"})))
}
