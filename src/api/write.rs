//! Create, replace and patch.

use axum::extract::State;
use axum::response::Response;
use bytes::Bytes;
use http::StatusCode;
use serde_json::Value;

use super::assemble::{self, assemble};
use super::body::{Format, MAX_BODY, Payload};
use super::call::{Call, Place};
use super::kinds::Served;
use super::read::{describe, respond, served, visible};
use super::rights::Rights;
use super::rules;
use super::view::View;
use super::{Answer, ApiState, accept, references, resolve, strict, table};
use crate::resources::GROUP;
use crate::status::Status;
use crate::store::{Entry, Key, Kind, Revision, StoreError};

/// How often a patch is applied anew when somebody else was faster, as Kubernetes does.
const PATCH_TRIES: usize = 5;
/// Most operations of a JSON patch, as Kubernetes has it.
const MAX_PATCH_OPERATIONS: usize = 10_000;
/// Deepest that a JSON patch may make an object, in levels. Ours are far flatter. Bodies are bounded where they are read,
/// but operations add up, and what writes and reads values goes as deep as they are.
const MAX_DEPTH: usize = 100;

/// `POST /apis/bailiwick.dev/v1alpha1/RESOURCE`.
pub(super) async fn create(
    State(state): State<ApiState>,
    call: Call,
    Place(plural): Place<String>,
    payload: Payload,
) -> Answer {
    let served = written(&plural, "create")?;
    let dry_run = begin(&call, served, "create", "")?;
    let accepted = accept::negotiate(&call.headers, call.query.get("includeObject"))?;
    let input = payload.object()?;
    let object = canonical(&call, served, None, input)?;
    let name = assemble::name(&object).to_owned();
    describe(&call, served, "create", &name);
    describe_grant(&call, served, &object);
    let rights = Rights { view: call.view(), caller: &call.caller, access: &state.0.parts.access };
    rights.check_change(served.kind, "create", None, &object)?;
    call.intend(&state).await?;

    let _one_writer = state.0.writes.lock().await;
    let snapshot = state.0.parts.index.snapshot();
    let view = View { snapshot: &snapshot, now: call.now };
    Rights { view, caller: &call.caller, access: &state.0.parts.access }.check_change(
        served.kind,
        "create",
        None,
        &object,
    )?;
    rules::check(served, None, &object, view)?;
    if view.object(served.kind, &name).is_some() {
        return Err(Status::already_exists(served.plural, &name).into());
    }
    let referred = references::referred(served.kind, &object);
    refuse_dying(served, &name, view, &referred)?;
    let mut object = object;
    resolve::resolve(served.kind, &snapshot, &mut object);
    if dry_run {
        let mut shown = view.stored(served.kind, object, Revision(0));
        if let Some(metadata) = shown["metadata"].as_object_mut() {
            metadata.remove("resourceVersion");
        }
        return Ok(respond(StatusCode::CREATED, accepted, &table::single(served, accepted.shape, shown, call.now))?);
    }
    let key = Key::new(served.kind, name.as_str());
    let stored = state.0.parts.store.create(key.clone(), Bytes::from(object.to_string())).await;
    let revision = stored.map_err(|e| store_status(served, &name, e))?;
    applied(&state, revision).await?;
    undo_if_orphaned(&state, served, &key, revision, &referred).await?;
    resolve::resolve_waiting(&state, served.kind, &name).await;
    shown(&state, &call, served, accepted, StatusCode::CREATED, object, revision)
}

/// `PUT /apis/bailiwick.dev/v1alpha1/RESOURCE/NAME`.
pub(super) async fn replace(
    State(state): State<ApiState>,
    call: Call,
    Place((plural, name)): Place<(String, String)>,
    payload: Payload,
) -> Answer {
    let served = written(&plural, "update")?;
    let dry_run = begin(&call, served, "update", &name)?;
    let accepted = accept::negotiate(&call.headers, call.query.get("includeObject"))?;
    let input = payload.object()?;
    visible(call.view(), &state, &call, served, &name)?;
    let mut change =
        Change { state: &state, call: &call, served, name: &name, verb: "update", dry_run, intended: false };
    let (object, revision) = match change.store(&|_| Ok(input.clone())).await {
        Err(ChangeError::Raced(status) | ChangeError::Refused(status)) => return Err(status.into()),
        Ok(done) => done,
    };
    shown(&state, &call, served, accepted, StatusCode::OK, object, revision)
}

/// `PATCH /apis/bailiwick.dev/v1alpha1/RESOURCE/NAME`.
pub(super) async fn patch(
    State(state): State<ApiState>,
    call: Call,
    Place((plural, name)): Place<(String, String)>,
    payload: Payload,
) -> Answer {
    let served = written(&plural, "patch")?;
    let dry_run = begin(&call, served, "patch", &name)?;
    let accepted = accept::negotiate(&call.headers, call.query.get("includeObject"))?;
    let (format, patch) = payload.patch()?;
    visible(call.view(), &state, &call, served, &name)?;
    let mut change =
        Change { state: &state, call: &call, served, name: &name, verb: "patch", dry_run, intended: false };
    // A patch that names the version it is for is tried once.
    let pinned = format == Format::MergePatch && patch["metadata"]["resourceVersion"].is_string();
    let mut tries = if pinned { 1 } else { PATCH_TRIES };
    let (object, revision) = loop {
        tries -= 1;
        match change.store(&|current| apply(format, &patch, current, served, &name)).await {
            Ok(done) => break done,
            Err(ChangeError::Raced(_)) if tries > 0 => {}
            Err(ChangeError::Raced(status) | ChangeError::Refused(status)) => return Err(status.into()),
        }
    };
    shown(&state, &call, served, accepted, StatusCode::OK, object, revision)
}

/// A kind that can be written, or 405.
pub(super) fn written(plural: &str, verb: &str) -> Result<&'static Served, Status> {
    let served = served(plural)?;
    if served.verbs.contains(&verb) { Ok(served) } else { Err(method_not_allowed()) }
}

/// 405.
pub(super) fn method_not_allowed() -> Status {
    let message = "the server does not allow this method on the requested resource";
    Status::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message)
}

fn begin(call: &Call, served: &Served, verb: &str, name: &str) -> Result<bool, Status> {
    let dry_run = call.query.dry_run()?;
    call.query.check_field_validation()?;
    describe(call, served, verb, name);
    call.describe(|what| what.dry_run = dry_run);
    Ok(dry_run)
}

/// Who is given what: the one thing of an object that the audit log must tell by itself.
pub(super) fn describe_grant(call: &Call, served: &Served, grant: &Value) {
    if served.kind != Kind::Grant {
        return;
    }
    let text = |pointer: &str| grant.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let target = text("/spec/target/name");
    call.describe(|what| {
        match text("/spec/target/kind") {
            "Project" => target.clone_into(&mut what.project),
            "Cluster" => target.clone_into(&mut what.cluster),
            _ => {}
        }
        let (role, kind, name) = (text("/spec/role"), text("/spec/subject/kind"), text("/spec/subject/name"));
        what.reason = format!("{role} on {} {target} to {kind} {name}", text("/spec/target/kind"));
    });
}

/// From what a client sent to what is stored, without looking at any other object.
fn canonical(call: &Call, served: &Served, old: Option<&Value>, input: Value) -> Result<Value, Status> {
    assemble::check_type(served, &input)?;
    let unknown = strict::unknown_fields(served, &input);
    if !unknown.is_empty() {
        let list = unknown.iter().map(|field| format!("unknown field {field:?}")).collect::<Vec<_>>().join(", ");
        return Err(Status::bad_request(format!(
            "{kind} in version \"v1alpha1\" cannot be handled as a {kind}: strict decoding error: {list}",
            kind = served.name()
        )));
    }
    let object = assemble(served, old, input, call.now)?;
    rules::decode(served, old, object, call.view())
}

/// One attempt to change a stored object.
struct Change<'a> {
    state: &'a ApiState,
    call: &'a Call,
    served: &'static Served,
    name: &'a str,
    verb: &'static str,
    dry_run: bool,
    intended: bool,
}

enum ChangeError {
    /// Somebody else was faster; the attempt may be made again on what is there now.
    Raced(Status),
    /// No other attempt will do better.
    Refused(Status),
}

impl From<Status> for ChangeError {
    fn from(status: Status) -> Self {
        Self::Refused(status)
    }
}

impl Change<'_> {
    /// Reads the object, lets `edit` say what it is to be, judges and stores that.
    async fn store(
        &mut self,
        edit: &(dyn Fn(&Value) -> Result<Value, Status> + Sync),
    ) -> Result<(Value, Revision), ChangeError> {
        let Self { state, call, served, name, verb, dry_run, .. } = *self;
        if !self.intended {
            // Who may change nothing here at all learns that first, and makes no intent.
            let (entry, old) = current(state, served, name).await?;
            let shown = call.view().stored(served.kind, old.clone(), entry.revision);
            let new = canonical(call, served, Some(&old), edit(&shown)?)?;
            Rights { view: call.view(), caller: &call.caller, access: &state.0.parts.access }.check_change(
                served.kind,
                verb,
                Some(&old),
                &new,
            )?;
            describe_grant(call, served, &new);
            call.intend(state).await?;
            self.intended = true;
        }
        let _one_writer = state.0.writes.lock().await;
        let (entry, old) = current(state, served, name).await?;
        let snapshot = state.0.parts.index.snapshot();
        let view = View { snapshot: &snapshot, now: call.now };
        let input = edit(&view.stored(served.kind, old.clone(), entry.revision))?;
        assemble::check_preconditions(served, &input, &old, entry.revision)?;
        let new = canonical(call, served, Some(&old), input)?;
        Rights { view, caller: &call.caller, access: &state.0.parts.access }.check_change(
            served.kind,
            verb,
            Some(&old),
            &new,
        )?;
        if old["metadata"]["deletionTimestamp"].is_string() && new != old {
            return Err(conflict(served, name, "it is being deleted").into());
        }
        rules::check(served, Some(&old), &new, view)?;
        let referred = references::referred(served.kind, &new);
        refuse_dying(served, name, view, &referred)?;
        let mut new = new;
        resolve::resolve(served.kind, &snapshot, &mut new);
        if new == old || dry_run {
            return Ok((new, entry.revision));
        }
        rules::before_update(state, served.kind, &old, &new).await?;
        let key = Key::new(served.kind, name);
        match state.0.parts.store.update(key, entry.revision, Bytes::from(new.to_string())).await {
            Ok(revision) => {
                applied(state, revision).await?;
                rules::after_update(state, served.kind, &old, &new).await?;
                Ok((new, revision))
            }
            Err(StoreError::Conflict { .. }) => Err(ChangeError::Raced(modified(served, name))),
            Err(other) => Err(store_status(served, name, other).into()),
        }
    }
}

/// What is stored now.
pub(super) async fn current(state: &ApiState, served: &Served, name: &str) -> Result<(Entry, Value), Status> {
    let entry = state.0.parts.store.get(&Key::new(served.kind, name)).await;
    let entry = entry.map_err(|e| store_status(served, name, e))?;
    let entry = entry.ok_or_else(|| Status::not_found(served.plural, name))?;
    let unreadable = |why: String| {
        tracing::error!(key = %entry.key, why, "a stored object cannot be read");
        Status::internal("the stored object cannot be read")
    };
    let value: Value = serde_json::from_slice(&entry.value).map_err(|e| unreadable(e.to_string()))?;
    let value = rules::whole(served.kind, &value).map_err(unreadable)?;
    Ok((entry, value))
}

/// Returns once everybody reads the change.
pub(super) async fn applied(state: &ApiState, revision: Revision) -> Result<(), Status> {
    state.0.parts.index.applied(revision).await.map_err(|_| Status::unavailable("the service is going down"))
}

fn apply(format: Format, patch: &Value, current: &Value, served: &Served, name: &str) -> Result<Value, Status> {
    let mut document = current.clone();
    if format == Format::MergePatch {
        if !patch.is_object() {
            return Err(Status::bad_request("a merge patch must be an object"));
        }
        json_patch::merge(&mut document, patch);
        return Ok(document);
    }
    let patch: json_patch::Patch =
        serde_json::from_value(patch.clone()).map_err(|e| Status::bad_request(format!("not a JSON patch: {e}")))?;
    if patch.0.len() > MAX_PATCH_OPERATIONS {
        return Err(Status::too_large(format!("a JSON patch may have at most {MAX_PATCH_OPERATIONS} operations")));
    }
    for operation in patch.0 {
        if deepened(&operation, &document) > MAX_DEPTH {
            return Err(Status::too_large(format!("the patched object is deeper than {MAX_DEPTH} levels")));
        }
        // Copies of copies grow without bound; the document is measured after each.
        let grows = matches!(operation, json_patch::PatchOperation::Copy(_));
        json_patch::patch(&mut document, &[operation]).map_err(|e| {
            let message = format!("the patch does not apply: {e}");
            Status::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message).about(served.plural, name)
        })?;
        if grows && document.to_string().len() > MAX_BODY {
            return Err(Status::too_large(format!("the patched object is larger than {MAX_BODY} bytes")));
        }
    }
    Ok(document)
}

/// How deep an operation makes the document where it puts something.
fn deepened(operation: &json_patch::PatchOperation, document: &Value) -> usize {
    use json_patch::PatchOperation::{Add, Copy, Move, Remove, Replace, Test};
    let moved = |from: &str| document.pointer(from).map_or(0, depth);
    let (path, below) = match operation {
        Add(add) => (add.path.as_str(), depth(&add.value)),
        Replace(replace) => (replace.path.as_str(), depth(&replace.value)),
        Copy(copy) => (copy.path.as_str(), moved(copy.from.as_str())),
        Move(moving) => (moving.path.as_str(), moved(moving.from.as_str())),
        Remove(_) | Test(_) => return 0,
    };
    path.matches('/').count() + below
}

/// Levels of a value, counted without going down into it: it may be deep.
fn depth(value: &Value) -> usize {
    let mut open = vec![(value, 0)];
    let mut most = 0;
    while let Some((value, level)) = open.pop() {
        most = most.max(level);
        match value {
            Value::Array(items) => open.extend(items.iter().map(|item| (item, level + 1))),
            Value::Object(members) => open.extend(members.values().map(|member| (member, level + 1))),
            _ => {}
        }
    }
    most
}

fn refuse_dying(served: &Served, name: &str, view: View<'_>, referred: &[(Kind, String)]) -> Result<(), Status> {
    match references::dying(view, referred) {
        None => Ok(()),
        Some((kind, other)) => {
            Err(conflict(served, name, &format!("it refers to {} {other:?}, which is being deleted", kind.as_str())))
        }
    }
}

/// Looks again after the write: whatever was deleted in the same moment must not leave a reference behind. The
/// deletion looks again too, after its mark; so one of the two sees the other.
async fn undo_if_orphaned(
    state: &ApiState,
    served: &Served,
    key: &Key,
    revision: Revision,
    referred: &[(Kind, String)],
) -> Result<(), Status> {
    let snapshot = state.0.parts.index.snapshot();
    let view = View { snapshot: &snapshot, now: state.0.parts.index.now() };
    let Err(refused) = refuse_dying(served, &key.name, view, referred) else { return Ok(()) };
    if let Ok(revision) = state.0.parts.store.delete(key.clone(), revision).await {
        applied(state, revision).await?;
    }
    Err(refused)
}

fn shown(
    state: &ApiState,
    call: &Call,
    served: &Served,
    accepted: accept::Accepted,
    status: StatusCode,
    object: Value,
    revision: Revision,
) -> Answer {
    let snapshot = state.0.parts.index.snapshot();
    let object = View { snapshot: &snapshot, now: call.now }.stored(served.kind, object, revision);
    let response: Response = respond(status, accepted, &table::single(served, accepted.shape, object, call.now))?;
    Ok(response)
}

/// 409 in the words of Kubernetes.
pub(super) fn conflict(served: &Served, name: &str, why: &str) -> Status {
    Status::conflict(format!("Operation cannot be fulfilled on {}.{GROUP} {name:?}: {why}", served.plural))
        .about(served.plural, name)
}

/// 409: somebody else was faster.
pub(super) fn modified(served: &Served, name: &str) -> Status {
    conflict(
        served,
        name,
        "the object has been modified; please apply your changes to the latest version and try again",
    )
}

/// What an error of the store means to a client.
pub(super) fn store_status(served: &Served, name: &str, error: StoreError) -> Status {
    match error {
        StoreError::AlreadyExists(_) => Status::already_exists(served.plural, name),
        StoreError::NotFound(_) => Status::not_found(served.plural, name),
        StoreError::Conflict { .. } => modified(served, name),
        StoreError::Compacted { .. } => Status::expired("too old resource version"),
        StoreError::Future { .. } => Status::timeout("Too large resource version"),
        StoreError::Unavailable(why) => {
            tracing::error!(%why, "the store failed");
            Status::unavailable("the store is not available; the outcome of a write is unknown")
        }
    }
}

#[cfg(test)]
#[path = "../../fuzz/targets/patch.rs"]
mod fuzz;
