//! Giving namespaces up, and what the controllers report of them.

use jiff::Timestamp;
use tracing::info;

use super::shares::lost_race;
use super::{ATTEMPTS, Tenancy, TenancyError, claim_key, encode};
use crate::records::Claim;

impl Tenancy {
    /// Gives a namespace up. The controllers delete it from the cluster and call [`Tenancy::released`]; until then
    /// the name and the share stay taken.
    ///
    /// # Errors
    /// [`TenancyError::NotOwned`]; [`TenancyError::Declared`] while the Project's spec wants the namespace.
    pub async fn release_namespace(
        &self,
        project: &str,
        cluster: &str,
        namespace: &str,
        by: &str,
    ) -> Result<(), TenancyError> {
        let owner = self.living_project(project).await?;
        let not_owned = || TenancyError::NotOwned {
            project: project.to_owned(),
            cluster: cluster.to_owned(),
            namespace: namespace.to_owned(),
        };
        let declared = owner.project.spec.on(cluster).is_some_and(|place| place.declares(namespace));
        let found = self.claim(cluster, namespace).await?.ok_or_else(not_owned)?;
        if found.object.project_uid != owner.uid {
            return Err(not_owned());
        }
        if declared {
            return Err(TenancyError::Declared {
                project: project.to_owned(),
                cluster: cluster.to_owned(),
                namespace: namespace.to_owned(),
            });
        }
        if !self.mark_releasing(cluster, namespace, &owner.uid).await? {
            return Err(not_owned());
        }
        info!(project, cluster, namespace, by, "namespace is given up");
        Ok(())
    }

    /// Records the UID of a namespace that now exists for the project, so that permits may rest on it, and the cluster's
    /// resource version at which it was the project's, unless an earlier one is recorded for it. False where the claim
    /// is no longer the project's, or is being given up.
    pub async fn record_namespace(
        &self,
        cluster: &str,
        namespace: &str,
        project_uid: &str,
        namespace_uid: &str,
        since: u64,
    ) -> Result<bool, TenancyError> {
        let key = claim_key(cluster, namespace);
        for _ in 0..ATTEMPTS {
            let Some(mut found) = self.claim(cluster, namespace).await? else { return Ok(false) };
            if found.object.project_uid != project_uid || found.object.releasing {
                return Ok(false);
            }
            let same = found.object.namespace_uid.as_deref() == Some(namespace_uid);
            if same && found.object.since.is_some() {
                return Ok(true);
            }
            found.object.namespace_uid = Some(namespace_uid.to_owned());
            found.object.since = Some(since);
            match self.store.update(key.clone(), found.revision, encode(&key, &found.object)?).await {
                Ok(_) => return Ok(true),
                Err(error) if lost_race(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(TenancyError::Contended(key))
    }

    /// The namespace is gone from the cluster, or never was the project's there: the claim goes, then its share, then
    /// what is reserved for the clean-up.
    pub async fn released(&self, claim: &Claim) -> Result<(), TenancyError> {
        let Claim { cluster, namespace, project, project_uid, .. } = claim;
        let key = claim_key(cluster, namespace);
        for _ in 0..ATTEMPTS {
            let Some(found) = self.claim(cluster, namespace).await? else { break };
            if found.object.project_uid != *project_uid || !found.object.releasing {
                break;
            }
            match self.store.delete(key.clone(), found.revision).await {
                Ok(_) => break,
                Err(error) if lost_race(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.give_back(project, project_uid, cluster, namespace).await?;
        self.settle_reservation(project).await
    }

    /// Drops what waits for the clean-up of a cluster that will not come back: claims that are being given up, their
    /// shares, and the cluster in reservations; of one project or of all. What is in use stays. Returns the
    /// namespaces that were dropped; should the cluster come back, they are strangers to it.
    pub async fn forget(
        &self,
        cluster: &str,
        project: Option<&str>,
        by: &str,
        now: Timestamp,
    ) -> Result<Vec<String>, TenancyError> {
        let dropped = self
            .claims_where(|claim| {
                claim.cluster == cluster && claim.releasing && project.is_none_or(|name| claim.project == name)
            })
            .await?;
        let mut names = vec![];
        for found in dropped {
            self.released(&found.object).await?;
            info!(cluster, project = found.object.project, namespace = found.object.namespace, by, %now, "namespace is forgotten");
            names.push(found.object.namespace);
        }
        Ok(names)
    }
}
