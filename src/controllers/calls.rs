//! Calls to a cluster's API server, each with a deadline.

use std::time::Duration;

use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client};
use serde_json::Value;
use tokio::time::timeout;

use super::kinds::ObjectKind;
use crate::clusters::names::FIELD_MANAGER;

/// Longest time that one call may take. A cluster that answers slower counts as failing, and is tried again.
const DEADLINE: Duration = Duration::from_secs(15);

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    /// No answer in time.
    #[error("the cluster did not answer within {} s", DEADLINE.as_secs())]
    Deadline,
    /// The API server refused, or could not be reached.
    #[error(transparent)]
    Kube(Box<kube::Error>),
    /// An object of ours is no object; a mistake of this program.
    #[error("an object cannot be written: {0}")]
    Malformed(#[from] serde_json::Error),
}

impl CallError {
    /// HTTP status that the API server answered.
    pub(super) fn code(&self) -> Option<u16> {
        match self {
            Self::Kube(error) => match &**error {
                kube::Error::Api(status) => Some(status.code),
                _ => None,
            },
            _ => None,
        }
    }
}

/// The API of a kind, in a namespace where the kind has namespaces.
pub(super) fn api(client: &Client, kind: ObjectKind, namespace: &str) -> Api<DynamicObject> {
    let resource = kind.resource();
    if ObjectKind::NAMESPACED.contains(&kind) {
        Api::namespaced_with(client.clone(), namespace, &resource)
    } else {
        Api::all_with(client.clone(), &resource)
    }
}

pub(super) async fn bounded<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T, CallError> {
    match timeout(DEADLINE, call).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) => Err(CallError::Kube(Box::new(error))),
        Err(_) => Err(CallError::Deadline),
    }
}

/// Reads an object; `None` where there is none.
pub(super) async fn get(api: &Api<DynamicObject>, name: &str) -> Result<Option<DynamicObject>, CallError> {
    bounded(api.get_opt(name)).await
}

/// Creates an object; `None` where the name is taken.
pub(super) async fn create(api: &Api<DynamicObject>, object: &Value) -> Result<Option<DynamicObject>, CallError> {
    let object = DynamicObject::deserialize(object)?;
    let parameters = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
    match bounded(api.create(&parameters, &object)).await {
        Ok(object) => Ok(Some(object)),
        Err(error) if error.code() == Some(409) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Applies an object, over the edits of anybody else. Fields that others added and that apply leaves alone are removed
/// by replacing the whole.
pub(super) async fn apply(
    api: &Api<DynamicObject>,
    kind: ObjectKind,
    name: &str,
    object: &Value,
) -> Result<DynamicObject, CallError> {
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    let applied = bounded(api.patch(name, &parameters, &Patch::Apply(object))).await?;
    if kind.agrees(&applied, object) {
        return Ok(applied);
    }
    let mut whole = DynamicObject::deserialize(object)?;
    whole.metadata.resource_version = applied.metadata.resource_version;
    let parameters = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
    bounded(api.replace(name, &parameters, &whole)).await
}

/// Replaces some fields of an object.
pub(super) async fn merge(api: &Api<DynamicObject>, name: &str, patch: &Value) -> Result<DynamicObject, CallError> {
    let parameters = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    bounded(api.patch(name, &parameters, &Patch::Merge(patch))).await
}

/// Deletes exactly the object that was seen; fine where it is gone.
pub(super) async fn delete(api: &Api<DynamicObject>, seen: &DynamicObject) -> Result<(), CallError> {
    let name = seen.metadata.name.as_deref().unwrap_or_default();
    let exactly = Preconditions { uid: seen.metadata.uid.clone(), resource_version: None };
    let parameters = DeleteParams { preconditions: Some(exactly), ..DeleteParams::default() };
    match bounded(api.delete(name, &parameters)).await {
        Ok(_) => Ok(()),
        Err(error) if error.code() == Some(404) => Ok(()),
        Err(error) => Err(error),
    }
}

use serde::Deserialize as _;
