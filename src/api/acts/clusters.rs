//! Credentials of clusters, checks, and giving up a cluster that will not come back.

use axum::extract::State;
use http::StatusCode;
use serde::Deserialize;
use serde_json::json;
use zeroize::Zeroizing;

use super::super::assemble;
use super::super::body::Payload;
use super::super::call::{Call, Place};
use super::super::write::applied;
use super::super::{Answer, ApiState};
use super::{json as answer, permit, unprocessable};
use crate::clusters::credential::{self, KeepError};
use crate::clusters::credential_file::is_token;
use crate::clusters::endpoint;
use crate::clusters::version::{self, Version};
use crate::records::ClusterCredential;
use crate::status::Status;
use crate::store::Kind;
use crate::tenancy::TenancyError;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Credential {
    forwarding: Zeroizing<String>,
    housekeeping: Zeroizing<String>,
    #[serde(rename = "kubeSystemUID")]
    kube_system_uid: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Forget {
    #[serde(default)]
    project: Option<String>,
}

/// `POST clusters/NAME/credential`: the two accounts' tokens, bound to the connection that stands in the spec now.
pub(in crate::api) async fn credential(
    State(state): State<ApiState>,
    call: Call,
    Place(name): Place<String>,
    payload: Payload,
) -> Answer {
    permit(&call, &state, Kind::Cluster, "credential", &name)?;
    let Credential { forwarding, housekeeping, kube_system_uid } = payload.request()?;
    for (field, token) in [("forwarding", &forwarding), ("housekeeping", &housekeeping)] {
        if !is_token(token) {
            return Err(unprocessable(&name, field, "must be a bearer token").into());
        }
    }
    if *forwarding == *housekeeping {
        return Err(unprocessable(&name, "housekeeping", "must not be the token of the forwarding account").into());
    }
    if kube_system_uid.is_empty() {
        return Err(unprocessable(&name, "kubeSystemUID", "must be the UID of the namespace kube-system").into());
    }
    call.intend(&state).await?;
    // The connection must not change between its digest and the write.
    let _one_writer = state.0.writes.lock().await;
    let snapshot = state.0.parts.index.snapshot();
    let cluster = snapshot.clusters.get(name.as_str()).ok_or_else(|| Status::not_found("clusters", &name))?;
    let Some(direct) = &cluster.object.spec.connection.direct else {
        return Err(unprocessable(&name, "spec.connection", "the cluster has no direct connection").into());
    };
    if let Some(from) = &direct.credential_from {
        let message = format!("the credential of this cluster comes from the file {:?} in credential_dir", from.file);
        return Err(unprocessable(&name, "spec.connection.direct.credentialFrom", &message).into());
    }
    let uid = cluster.object.metadata.uid.clone().unwrap_or_default();
    let record = ClusterCredential {
        cluster_uid: uid,
        endpoint_digest: endpoint::digest(direct),
        kube_system_uid,
        forwarding: forwarding.to_string(),
        housekeeping: housekeeping.to_string(),
    };
    let parts = &state.0.parts;
    let kept = credential::keep(&*parts.store, &parts.sealer, &name, &record).await;
    let revision = kept.map_err(|why| match why {
        KeepError::Contended => Status::conflict(why.to_string()),
        KeepError::Store(_) | KeepError::Seal(_) => {
            tracing::error!(cluster = name, %why, "a cluster's credential was not stored");
            Status::unavailable("the credential could not be stored")
        }
    })?;
    applied(&state, revision).await?;
    Ok(answer(StatusCode::OK, &json!({})))
}

/// `GET clusters/NAME/check`.
pub(in crate::api) async fn check(State(state): State<ApiState>, call: Call, Place(name): Place<String>) -> Answer {
    permit(&call, &state, Kind::Cluster, "check", &name)?;
    let checks = state.0.parts.clusters.check(&name).await;
    let ok = !checks.is_empty() && checks.iter().all(|check| check.ok || !check.required);
    let checks: Vec<_> =
        checks.into_iter().map(|check| json!({"name": check.name, "ok": check.ok, "message": check.message})).collect();
    Ok(answer(StatusCode::OK, &json!({"ok": ok, "checks": checks})))
}

/// `GET clusters/NAME/check-upgrade?version=`.
pub(in crate::api) async fn check_upgrade(
    State(state): State<ApiState>,
    call: Call,
    Place(name): Place<String>,
) -> Answer {
    permit(&call, &state, Kind::Cluster, "check-upgrade", &name)?;
    let wanted = call.query.get("version");
    let wanted = Version::parse(wanted).map_err(|why| Status::bad_request(format!("version: {why}")))?;
    let cluster = call.snapshot.clusters.get(name.as_str()).ok_or_else(|| Status::not_found("clusters", &name))?;
    let (ok, message) = match version::check_upgrade(cluster.object.spec.accepted_versions.as_ref(), wanted) {
        Ok(()) => (true, format!("Kubernetes {wanted} is accepted")),
        Err(why) => (false, why),
    };
    Ok(answer(StatusCode::OK, &json!({"ok": ok, "message": message})))
}

/// `POST clusters/NAME/forget`: nothing waits any more for this cluster to confirm that deleted projects are gone.
pub(in crate::api) async fn forget(
    State(state): State<ApiState>,
    call: Call,
    Place(name): Place<String>,
    payload: Payload,
) -> Answer {
    let object = permit(&call, &state, Kind::Cluster, "forget", &name)?;
    let Forget { project } = payload.request()?;
    call.describe(|what| {
        assemble::name(&object).clone_into(&mut what.cluster);
        what.project = project.clone().unwrap_or_default();
    });
    call.intend(&state).await?;
    let dropped = state.0.parts.tenancy.forget(&name, project.as_deref(), call.user(), state.0.parts.index.now()).await;
    let dropped = dropped.map_err(TenancyError::status)?;
    Ok(answer(StatusCode::OK, &json!({"namespaces": dropped})))
}
