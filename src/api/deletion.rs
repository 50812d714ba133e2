//! Deletion in two phases: a mark that refuses new references, a second look, and only then the end.

use axum::extract::State;
use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};

use super::acts::account_status;
use super::body::Payload;
use super::call::{Call, Place};
use super::kinds::Served;
use super::read::{describe, respond, visible};
use super::rights::Rights;
use super::view::{View, short_uid};
use super::write::{applied, conflict, current, describe_grant, store_status, written};
use super::{Answer, ApiState, accept, rules};
use crate::clock;
use crate::index::references_to;
use crate::resources::GROUP;
use crate::status::Status;
use crate::store::{Key, Kind, Revision};
use crate::tenancy::TenancyError;

/// Most references that a refusal names.
const MAX_NAMED: usize = 10;

/// `DELETE /apis/bailiwick.dev/v1alpha1/RESOURCE/NAME`.
pub(super) async fn delete(
    State(state): State<ApiState>,
    call: Call,
    Place((plural, name)): Place<(String, String)>,
    payload: Payload,
) -> Answer {
    let served = written(&plural, "delete")?;
    describe(&call, served, "delete", &name);
    let options = Options::read(&call, &payload)?;
    call.describe(|what| what.dry_run = options.dry_run);
    let accepted = accept::negotiate(&call.headers, call.query.get("includeObject"))?;
    let object = visible(call.view(), &state, &call, served, &name)?;
    Rights { view: call.view(), caller: &call.caller, access: &state.0.parts.access }
        .check_delete(served.kind, &object)?;
    describe_grant(&call, served, &object);
    call.intend(&state).await?;
    if served.kind == Kind::Token {
        delete_token(&state, served, &object, &options).await?;
    } else {
        let _one_writer = state.0.writes.lock().await;
        delete_object(&state, &call, served, &name, &options).await?;
    }
    let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
    let status = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {"name": name, "group": GROUP, "kind": served.plural, "uid": uid},
    });
    Ok(respond(StatusCode::OK, accepted, &status)?)
}

/// `DeleteOptions`, from query and body.
#[derive(Default)]
struct Options {
    dry_run: bool,
    uid: Option<String>,
    resource_version: Option<String>,
}

impl Options {
    fn read(call: &Call, payload: &Payload) -> Result<Self, Status> {
        let body = payload.options()?;
        let mut dry_run = call.query.dry_run()?;
        for value in body["dryRun"].as_array().into_iter().flatten() {
            if value != "All" {
                return Err(Status::bad_request(format!("dryRun: supported is \"All\", got {value}")));
            }
            dry_run = true;
        }
        let policies = [body["propagationPolicy"].as_str().unwrap_or_default(), call.query.get("propagationPolicy")];
        for policy in policies {
            // Nothing here owns anything, so all of them mean the same.
            if !matches!(policy, "" | "Orphan" | "Background" | "Foreground") {
                return Err(Status::bad_request(format!(
                    "propagationPolicy: expected Orphan, Background or Foreground, got {policy:?}"
                )));
            }
        }
        let precondition = |member: &str| body["preconditions"][member].as_str().map(str::to_owned);
        Ok(Self { dry_run, uid: precondition("uid"), resource_version: precondition("resourceVersion") })
    }

    fn check(&self, served: &Served, object: &Value, revision: Revision) -> Result<(), Status> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
        if let Some(wanted) = self.uid.as_deref().filter(|wanted| *wanted != uid) {
            let why = format!("Precondition failed: UID in precondition: {wanted}, UID in object meta: {uid}");
            return Err(conflict(served, name, &why));
        }
        let version = revision.to_string();
        if let Some(wanted) = self.resource_version.as_deref().filter(|wanted| *wanted != version) {
            let why = format!(
                "Precondition failed: ResourceVersion in precondition: {wanted}, ResourceVersion in object meta: {version}"
            );
            return Err(conflict(served, name, &why));
        }
        Ok(())
    }
}

async fn delete_object(
    state: &ApiState,
    call: &Call,
    served: &'static Served,
    name: &str,
    options: &Options,
) -> Result<(), Status> {
    let store = &state.0.parts.store;
    let key = Key::new(served.kind, name);
    let (entry, mut object) = current(state, served, name).await?;
    let snapshot = state.0.parts.index.snapshot();
    let view = View { snapshot: &snapshot, now: call.now };
    Rights { view, caller: &call.caller, access: &state.0.parts.access }.check_delete(served.kind, &object)?;
    options.check(served, &object, entry.revision)?;
    refuse_referred(served, name, view)?;
    if options.dry_run {
        return Ok(());
    }
    let mut revision = entry.revision;
    let unmarked = object.clone();
    let marked_before = object["metadata"]["deletionTimestamp"].is_string();
    if !marked_before {
        object["metadata"]["deletionTimestamp"] = Value::String(clock::rfc3339(call.now));
        object["metadata"]["deletionGracePeriodSeconds"] = Value::from(0);
        let marked = store.update(key.clone(), revision, Bytes::from(object.to_string())).await;
        revision = marked.map_err(|e| store_status(served, name, e))?;
        applied(state, revision).await?;
    }
    // From here on nobody may refer to it any more; whoever did so a moment before is seen now.
    let snapshot = state.0.parts.index.snapshot();
    let view = View { snapshot: &snapshot, now: call.now };
    if let Err(refused) = refuse_referred(served, name, view) {
        if !marked_before {
            let restored = store.update(key, revision, Bytes::from(unmarked.to_string())).await;
            applied(state, restored.map_err(|e| store_status(served, name, e))?).await?;
        }
        return Err(refused);
    }
    let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
    if served.kind == Kind::Project {
        // Its claims are to be given up and its name kept until every cluster is clean; then it goes.
        let tenancy = &state.0.parts.tenancy;
        tenancy.delete_project(name, Some(uid), call.now).await.map_err(TenancyError::status)?;
        let newest = store.revision().await.map_err(|e| store_status(served, name, e))?;
        applied(state, newest).await?;
    } else {
        let removed = store.delete(key, revision).await.map_err(|e| store_status(served, name, e))?;
        applied(state, removed).await?;
        rules::after_delete(state, served.kind, name, uid).await;
    }
    tracing::info!(kind = served.name(), name, uid = short_uid(&object), "deleted");
    Ok(())
}

fn refuse_referred(served: &Served, name: &str, view: View<'_>) -> Result<(), Status> {
    let mut referrers = references_to(served.kind, name, view.snapshot);
    if referrers.is_empty() {
        return Ok(());
    }
    if referrers.len() > MAX_NAMED {
        let rest = referrers.len() - MAX_NAMED;
        referrers.truncate(MAX_NAMED);
        referrers.push(format!("and {rest} more"));
    }
    Err(conflict(served, name, &format!("it is still referred to by {}", referrers.join(", "))))
}

async fn delete_token(state: &ApiState, served: &Served, object: &Value, options: &Options) -> Result<(), Status> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let key = Key::new(Kind::Token, name);
    let entry = state.0.parts.store.get(&key).await.map_err(|e| store_status(served, name, e))?;
    let entry = entry.ok_or_else(|| Status::not_found(served.plural, name))?;
    options.check(served, object, entry.revision)?;
    if !options.dry_run {
        state.0.parts.accounts.revoke(name).await.map_err(|why| account_status(name, why))?;
    }
    Ok(())
}
