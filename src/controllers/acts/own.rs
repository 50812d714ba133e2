//! Namespaces by kubectl: the same acts, with what their makers put on them.

use async_trait::async_trait;
use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::super::Controllers;
use super::super::calls::{self, CallError};
use super::super::kinds::ObjectKind;
use super::{ActError, NamespaceActs};
use crate::clusters::names::FIELD_MANAGER;
use crate::proxy::namespaces::{GivenMetadata, NewNamespace, OwnNamespaces};

/// Manager of the fields of clients that name none.
const UNNAMED: &str = "bailiwick-member";

#[async_trait]
impl OwnNamespaces for Controllers {
    async fn check(&self, wanted: &NewNamespace, now: Timestamp) -> Result<(), ActError> {
        let NewNamespace { project, cluster, name, metadata: _, by } = wanted;
        Ok(self.shared.tenancy.check_namespace(project, cluster, name, by, now).await?)
    }

    async fn create(&self, wanted: &NewNamespace, now: Timestamp) -> Result<(), ActError> {
        let NewNamespace { project, cluster, name, metadata, by } = wanted;
        NamespaceActs::create(self, project, cluster, name, by, now).await?;
        if metadata.is_empty() {
            return Ok(());
        }
        let client = self.clients.housekeeping(cluster);
        let client = client.ok_or_else(|| ActError::NotYet("the cluster cannot be worked on".to_owned()))?;
        let failed = |why: CallError| ActError::NotYet(format!("its labels and annotations are not set: {why}"));
        self.put_on(&client, name, metadata).await.map_err(failed)
    }

    async fn delete(&self, project: &str, cluster: &str, namespace: &str, by: &str) -> Result<(), ActError> {
        NamespaceActs::delete(self, project, cluster, namespace, by).await
    }
}

impl Controllers {
    /// Sets what a member gives with a new namespace, under the name that their client uses.
    async fn put_on(&self, client: &kube::Client, namespace: &str, given: &GivenMetadata) -> Result<(), CallError> {
        let GivenMetadata { labels, annotations, manager } = given;
        // What bears our name is ours to change.
        let manager = if manager.is_empty() || manager == FIELD_MANAGER { UNNAMED } else { manager };
        let parameters = PatchParams { field_manager: Some(manager.to_owned()), ..PatchParams::default() };
        let patch = json!({"metadata": {"labels": labels, "annotations": annotations}});
        let namespaces = calls::api(client, ObjectKind::Namespace, "");
        calls::bounded(namespaces.patch(namespace, &parameters, &Patch::Merge(&patch))).await.map(|_| ())
    }
}
