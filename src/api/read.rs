//! Get and list.

use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response as HttpResponse, StatusCode};
use serde_json::{Value, json};

use super::accept::{self, Accepted};
use super::call::{Call, Place};
use super::kinds::{self, Served};
use super::params::{ListOptions, VersionMatch};
use super::rights::Rights;
use super::view::View;
use super::yaml::to_yaml;
use super::{Answer, ApiState, Failure, table, watch};
use crate::index::Snapshot;
use crate::resources::GROUP;
use crate::status::{Cause, Status};
use crate::store::{Kind, Revision};

/// How long a read waits for a version that is not there yet, as Kubernetes does.
const WAIT_FOR_VERSION: Duration = Duration::from_secs(3);

/// The kind of a path, or 404.
pub(super) fn served(plural: &str) -> Result<&'static Served, Status> {
    kinds::by_plural(plural).ok_or_else(unknown_path)
}

/// 404 for a path of nothing.
pub(super) fn unknown_path() -> Status {
    Status::new(StatusCode::NOT_FOUND, "NotFound", "the server could not find the requested resource")
}

/// Names what is asked for in the audit record.
pub(super) fn describe(call: &Call, served: &Served, verb: &str, name: &str) {
    call.describe(|what| {
        verb.clone_into(&mut what.verb);
        GROUP.clone_into(&mut what.group);
        served.plural.clone_into(&mut what.resource);
        name.clone_into(&mut what.name);
        match served.kind {
            Kind::Cluster => name.clone_into(&mut what.cluster),
            Kind::Project => name.clone_into(&mut what.project),
            _ => {}
        }
    });
}

/// A document as the client wants it.
pub(super) fn respond(status: StatusCode, accepted: Accepted, value: &Value) -> Result<Response, Status> {
    let (media_type, body) = if accepted.yaml {
        ("application/yaml", Bytes::from(to_yaml(value)))
    } else {
        ("application/json", Bytes::from(value.to_string()))
    };
    let mut response = HttpResponse::new(axum::body::Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    Ok(response.into_response())
}

/// `GET /apis/bailiwick.dev/v1alpha1/RESOURCE/NAME`.
pub(super) async fn get(
    State(state): State<ApiState>,
    call: Call,
    Place((plural, name)): Place<(String, String)>,
) -> Answer {
    let served = served(&plural)?;
    describe(&call, served, "get", &name);
    let accepted = accept::negotiate(&call.headers, call.query.get("includeObject"))?;
    let snapshot = match call.query.number("resourceVersion")? {
        Some(version) if version > call.snapshot.revision.0 => newer(&state, version).await?,
        _ => call.snapshot.clone(),
    };
    let view = View { snapshot: &snapshot, now: call.now };
    let object = visible(view, &state, &call, served, &name)?;
    Ok(respond(StatusCode::OK, accepted, &table::single(served, accepted.shape, object, call.now))?)
}

/// An object that the caller may see; what is foreign is told like what does not exist.
pub(super) fn visible(
    view: View<'_>,
    state: &ApiState,
    call: &Call,
    served: &Served,
    name: &str,
) -> Result<Value, Status> {
    let rights = Rights { view, caller: &call.caller, access: &state.0.parts.access };
    view.object(served.kind, name)
        .filter(|object| rights.sees(served.kind, object))
        .ok_or_else(|| Status::not_found(served.plural, name))
}

/// Waits until the index has a version.
async fn newer(state: &ApiState, version: u64) -> Result<Arc<Snapshot>, Status> {
    let index = &state.0.parts.index;
    match tokio::time::timeout(WAIT_FOR_VERSION, index.applied(Revision(version))).await {
        Ok(Ok(())) => Ok(index.snapshot()),
        _ => {
            let current = index.snapshot().revision;
            let mut status = Status::timeout(format!("Too large resource version: {version}, current: {current}"));
            status.details.causes.push(Cause {
                reason: "ResourceVersionTooLarge".to_owned(),
                message: "Too large resource version".to_owned(),
                field: String::new(),
            });
            status.details.retry_after_seconds = Some(1);
            Err(status)
        }
    }
}

/// `GET /apis/bailiwick.dev/v1alpha1/RESOURCE`: a list, or a watch.
pub(super) async fn list(State(state): State<ApiState>, call: Call, Place(plural): Place<String>) -> Answer {
    let served = served(&plural)?;
    let options = ListOptions::parse(&call.query)?;
    describe(&call, served, if options.watch { "watch" } else { "list" }, "");
    let accepted = accept::negotiate(&call.headers, call.query.get("includeObject"))?;
    if options.watch {
        return watch::start(&state, &call, served, options, accepted).await;
    }
    let page = page(&state, &call, served, &options).await?;
    let value = table::list(served, accepted.shape, page.objects, page.metadata, call.now);
    Ok(respond(StatusCode::OK, accepted, &value)?)
}

struct Page {
    objects: Vec<Value>,
    metadata: Value,
}

async fn page(state: &ApiState, call: &Call, served: &Served, options: &ListOptions) -> Result<Page, Failure> {
    // A continue token is good for the same caller asking the same question.
    let query = format!(
        "{}\0{}\0{}\0{}",
        call.caller.user.object.metadata.uid.as_deref().unwrap_or_default(),
        served.plural,
        call.query.get("labelSelector"),
        call.query.get("fieldSelector"),
    );
    let (snapshot, after) = if options.continue_token.is_empty() {
        (version(state, call, options).await?, None)
    } else {
        if options.resource_version.is_some_and(|version| version != 0) {
            return Err(Failure(Status::bad_request("specifying resource version is not allowed when using continue")));
        }
        let (snapshot, after) = state.0.pages.open(&options.continue_token, &query)?;
        (snapshot, Some(after))
    };
    let view = View { snapshot: &snapshot, now: call.now };
    let then = Rights { view, caller: &call.caller, access: &state.0.parts.access };
    let now = Rights { view: call.view(), caller: &call.caller, access: &state.0.parts.access };
    let same = Arc::ptr_eq(&snapshot, &call.snapshot);
    let from = after.map_or(Bound::Unbounded, |name| Bound::Excluded(Arc::<str>::from(name)));
    let names = view.names(served.kind);
    let mut objects = vec![];
    let mut remaining = 0u64;
    let full = |objects: &Vec<Value>| options.limit > 0 && objects.len() >= options.limit;
    for name in names.range::<Arc<str>, _>((from, Bound::Unbounded)) {
        let Some(object) = view.object(served.kind, name) else { continue };
        // A page of the past shows nothing that the caller may no longer see.
        let visible = then.sees(served.kind, &object) && (same || now.sees(served.kind, &object));
        if !visible || !options.selector.matches(&object) {
            continue;
        }
        if full(&objects) {
            remaining += 1;
        } else {
            objects.push(object);
        }
    }
    let mut metadata = json!({"resourceVersion": snapshot.revision.to_string()});
    if remaining > 0 {
        let last = objects.last().and_then(|object| object["metadata"]["name"].as_str()).unwrap_or_default();
        metadata["continue"] = Value::String(state.0.pages.token(&snapshot, &query, last)?);
        metadata["remainingItemCount"] = Value::from(remaining);
    }
    Ok(Page { objects, metadata })
}

/// The version that a list is to be of.
async fn version(state: &ApiState, call: &Call, options: &ListOptions) -> Result<Arc<Snapshot>, Status> {
    match options.resource_version {
        Some(version) if options.version_match == VersionMatch::Exact && version != call.snapshot.revision.0 => {
            state.0.pages.at(version).ok_or_else(|| {
                Status::expired(format!("The resourceVersion for the provided list is too old: {version}"))
            })
        }
        Some(version) if version > call.snapshot.revision.0 => newer(state, version).await,
        _ => Ok(call.snapshot.clone()),
    }
}
