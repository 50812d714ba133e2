//! What must stand in a cluster, computed from plain values. One file per kind of object.

pub mod bindings;
pub mod impersonation;
pub mod limits;
pub mod namespace;
pub mod network;
pub mod quota;
pub mod roles;

#[cfg(test)]
mod tests;

use serde_json::{Value, json};

use super::kinds::ObjectKind;
use crate::clusters::names::{MANAGED, MANAGED_VALUE};
use crate::domain::roles::BUILT_IN;
use crate::index::Snapshot;
use crate::records::Claim;
use crate::resources::ProjectSpec;
use crate::tenancy::Share;

/// One namespace of a project on a cluster, with all that its objects depend on.
#[derive(Debug, Clone)]
pub struct Place<'a> {
    /// Cluster.
    pub cluster: &'a str,
    /// UID of the Cluster resource.
    pub cluster_uid: &'a str,
    /// Namespace.
    pub namespace: &'a str,
    /// Owning project.
    pub project: &'a str,
    /// Its UID.
    pub project_uid: &'a str,
    /// Its spec.
    pub spec: &'a ProjectSpec,
    /// The namespace's share of the project's quota.
    pub share: &'a Share,
    /// Roles to be bound: the built-in ones and those of the project that exist.
    pub roles: Vec<&'a str>,
}

/// Why nothing is done for a claim yet.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotYet {
    /// The project is gone, or one of the same name has come; the claim will be given up.
    #[error("the project is being deleted")]
    NoProject,
    /// The Cluster resource is not the one that the claim is about.
    #[error("the cluster was replaced")]
    OtherCluster,
    /// The claim has no share behind it.
    #[error("its share of the project's quota is not reserved")]
    NoShare,
}

impl<'a> Place<'a> {
    /// The place of a claim, as far as the snapshot has everything for it.
    pub fn of(snapshot: &'a Snapshot, claim: &'a Claim) -> Result<Self, NotYet> {
        let project = snapshot.projects.get(claim.project.as_str()).map(|project| &project.object);
        let project = project.filter(|project| {
            project.metadata.uid.as_ref() == Some(&claim.project_uid) && project.metadata.deletion_timestamp.is_none()
        });
        let project = project.ok_or(NotYet::NoProject)?;
        let cluster = snapshot.clusters.get(claim.cluster.as_str()).and_then(|c| c.object.metadata.uid.as_ref());
        if cluster != Some(&claim.cluster_uid) {
            return Err(NotYet::OtherCluster);
        }
        let ledger = snapshot.ledgers.get(format!("{}/{}", claim.project, claim.cluster).as_str());
        let ledger = ledger
            .map(|ledger| &ledger.object)
            .filter(|ledger| ledger.project_uid == claim.project_uid && !ledger.pending.contains_key(&claim.namespace));
        let share = ledger.and_then(|ledger| ledger.shares.get(&claim.namespace)).ok_or(NotYet::NoShare)?;
        let own = project.spec.roles.iter().map(String::as_str);
        let own = own.filter(|role| !BUILT_IN.contains(role) && snapshot.roles.contains_key(*role));
        Ok(Self {
            cluster: &claim.cluster,
            cluster_uid: &claim.cluster_uid,
            namespace: &claim.namespace,
            project: &claim.project,
            project_uid: &claim.project_uid,
            spec: &project.spec,
            share,
            roles: BUILT_IN.into_iter().chain(own).collect(),
        })
    }

    /// Everything of ours inside the namespace: first what walls it in, then what opens it.
    pub fn objects(&self) -> Vec<(ObjectKind, Value)> {
        let mut objects = vec![(ObjectKind::ResourceQuota, quota::desired(self))];
        objects.extend(limits::desired(self).map(|object| (ObjectKind::LimitRange, object)));
        objects.extend(network::desired(self).map(|object| (ObjectKind::NetworkPolicy, object)));
        objects.extend(bindings::desired(self).map(|object| (ObjectKind::RoleBinding, object)));
        objects
    }
}

/// Metadata of an object of ours in a namespace.
fn metadata(name: &str, namespace: &str) -> Value {
    json!({"name": name, "namespace": namespace, "labels": {MANAGED: MANAGED_VALUE}})
}
