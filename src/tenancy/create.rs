//! Creating a namespace's claim.

use jiff::Timestamp;
use tracing::warn;

use super::shares::lost_race;
use super::{ATTEMPTS, Owner, Tenancy, TenancyError, claim_key, encode, names};
use crate::clock;
use crate::records::Claim;
use crate::store::StoreError;

impl Tenancy {
    /// Gives a namespace to a project: its share first, then the claim. What follows in the cluster is the
    /// controllers' work.
    ///
    /// # Errors
    /// [`TenancyError::NoProject`], [`TenancyError::ProjectDeleting`], [`TenancyError::NotOnCluster`],
    /// [`TenancyError::NoCluster`]; a name that is not the project's to have ([`TenancyError::BadName`],
    /// [`TenancyError::System`], [`TenancyError::NotAllowed`]) or not free ([`TenancyError::Taken`],
    /// [`TenancyError::AlreadyOwned`], [`TenancyError::Releasing`]); no place ([`TenancyError::Full`],
    /// [`TenancyError::Quota`]). After any of them the project has no more than before.
    pub async fn create_namespace(
        &self,
        project: &str,
        cluster: &str,
        namespace: &str,
        by: &str,
        now: Timestamp,
    ) -> Result<Claim, TenancyError> {
        self.claim_namespace(project, cluster, namespace, false, by, now).await
    }

    /// Gives a namespace that is there already to a project, under the rules of [`Tenancy::create_namespace`]; where the
    /// project's claim stands already, it is now one to adopt.
    ///
    /// # Errors
    /// As [`Tenancy::create_namespace`]; [`TenancyError::AlreadyOwned`] where the project has the namespace in the cluster.
    pub async fn adopt_namespace(
        &self,
        project: &str,
        cluster: &str,
        namespace: &str,
        by: &str,
        now: Timestamp,
    ) -> Result<Claim, TenancyError> {
        let owner = self.living_project(project).await?;
        let key = claim_key(cluster, namespace);
        for _ in 0..ATTEMPTS {
            let Some(mut found) = self.claim(cluster, namespace).await? else {
                match self.claim_namespace(project, cluster, namespace, true, by, now).await {
                    // The project's spec was faster.
                    Err(TenancyError::AlreadyOwned { .. }) => continue,
                    other => return other,
                }
            };
            let waiting = !found.object.releasing && (found.object.adopt || found.object.namespace_uid.is_none());
            if found.object.project_uid != owner.uid || !waiting {
                return Err(occupied(&found.object, &owner));
            }
            if found.object.adopt {
                return Ok(found.object);
            }
            found.object.adopt = true;
            match self.store.update(key.clone(), found.revision, encode(&key, &found.object)?).await {
                Ok(_) => return Ok(found.object),
                Err(error) if lost_race(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(TenancyError::Contended(key))
    }

    async fn claim_namespace(
        &self,
        project: &str,
        cluster: &str,
        namespace: &str,
        adopt: bool,
        by: &str,
        now: Timestamp,
    ) -> Result<Claim, TenancyError> {
        let (owner, claim) = self.admissible(project, cluster, namespace, adopt, by, now).await?;
        self.write_claim(&owner, &claim, now).await?;
        // Deleting a project marks it first and lists its claims then. Either that list had this claim, or the mark
        // is seen here.
        match self.living_project(project).await {
            Ok(again) if again.uid == owner.uid => Ok(claim),
            Ok(_) => self.abandon(&claim, TenancyError::NoProject(project.to_owned())).await,
            Err(error) => self.abandon(&claim, error).await,
        }
    }

    /// Whether [`Tenancy::create_namespace`] would succeed now. Writes nothing.
    ///
    /// # Errors
    /// As [`Tenancy::create_namespace`].
    pub async fn check_namespace(
        &self,
        project: &str,
        cluster: &str,
        namespace: &str,
        by: &str,
        now: Timestamp,
    ) -> Result<(), TenancyError> {
        let (owner, claim) = self.admissible(project, cluster, namespace, false, by, now).await?;
        self.fits(&owner, cluster, &claim.cluster_uid, namespace, now).await
    }

    /// The claim that is to be written, where nothing but the quota may stand in its way.
    async fn admissible(
        &self,
        project: &str,
        cluster: &str,
        namespace: &str,
        adopt: bool,
        by: &str,
        now: Timestamp,
    ) -> Result<(Owner, Claim), TenancyError> {
        let owner = self.living_project(project).await?;
        let origin = names::origin(project, owner.place(cluster)?, namespace)?;
        let cluster_uid = self.cluster_uid(cluster).await?;
        if names::declared_elsewhere(&self.index.snapshot(), project, cluster, namespace) {
            return Err(taken(cluster, namespace));
        }
        let claim = Claim {
            cluster: cluster.to_owned(),
            cluster_uid,
            namespace: namespace.to_owned(),
            since: None,
            namespace_uid: None,
            project: owner.name.clone(),
            project_uid: owner.uid.clone(),
            origin,
            releasing: false,
            adopt,
            created_by: by.to_owned(),
            created_at: clock::rfc3339(now),
        };
        if let Some(there) = self.claim(cluster, namespace).await? {
            return Err(occupied(&there.object, &owner));
        }
        Ok((owner, claim))
    }

    /// Steps 1 to 3 of the module's description.
    async fn write_claim(&self, owner: &Owner, claim: &Claim, now: Timestamp) -> Result<(), TenancyError> {
        let Claim { cluster, cluster_uid, namespace, .. } = claim;
        let key = claim_key(cluster, namespace);
        for _ in 0..ATTEMPTS {
            self.reserve(owner, cluster, cluster_uid, namespace, now).await?;
            match self.store.create(key.clone(), encode(&key, claim)?).await {
                Ok(_) => return self.secure(owner, claim, now).await,
                Err(StoreError::AlreadyExists(_)) => {
                    let Some(there) = self.claim(cluster, namespace).await? else { continue };
                    if there.object.project_uid == owner.uid {
                        // Another creation of the same namespace won; the share is marked pending by us again.
                        self.confirm(&owner.name, &owner.uid, cluster, namespace).await?;
                    } else {
                        self.give_back(&owner.name, &owner.uid, cluster, namespace).await?;
                    }
                    return Err(occupied(&there.object, owner));
                }
                Err(error) => {
                    // The claim may or may not be there; giving back looks first. Repair does it where this fails.
                    if let Err(why) = self.give_back(&owner.name, &owner.uid, cluster, namespace).await {
                        warn!(project = owner.name, cluster, namespace, %why, "a share stays reserved for now");
                    }
                    return Err(error.into());
                }
            }
        }
        Err(TenancyError::Contended(key))
    }

    /// Makes sure that the share stands behind a claim that is written, or takes the claim back.
    pub(super) async fn secure(&self, owner: &Owner, claim: &Claim, now: Timestamp) -> Result<(), TenancyError> {
        let Claim { cluster, cluster_uid, namespace, .. } = claim;
        for _ in 0..ATTEMPTS {
            if self.confirm(&owner.name, &owner.uid, cluster, namespace).await? {
                return Ok(());
            }
            if let Err(refused) = self.reserve(owner, cluster, cluster_uid, namespace, now).await {
                return self.abandon(claim, refused).await.map(|_| ());
            }
        }
        Err(TenancyError::Contended(claim_key(cluster, namespace)))
    }

    /// Gives up a claim that turned out not to be the project's to have, for the given reason. A namespace may have
    /// been made from it already, so it goes the way of every released one.
    async fn abandon(&self, claim: &Claim, why: TenancyError) -> Result<Claim, TenancyError> {
        self.mark_releasing(&claim.cluster, &claim.namespace, &claim.project_uid).await?;
        Err(why)
    }

    /// Marks the claim as to be given up, where it is still this project's. Whether it was.
    pub(super) async fn mark_releasing(
        &self,
        cluster: &str,
        namespace: &str,
        project_uid: &str,
    ) -> Result<bool, TenancyError> {
        let key = claim_key(cluster, namespace);
        for _ in 0..ATTEMPTS {
            let Some(mut found) = self.claim(cluster, namespace).await? else { return Ok(false) };
            if found.object.project_uid != project_uid {
                return Ok(false);
            }
            if found.object.releasing {
                return Ok(true);
            }
            found.object.releasing = true;
            match self.store.update(key.clone(), found.revision, encode(&key, &found.object)?).await {
                Ok(_) => return Ok(true),
                Err(error) if lost_race(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(TenancyError::Contended(key))
    }
}

pub(super) fn taken(cluster: &str, namespace: &str) -> TenancyError {
    TenancyError::Taken { cluster: cluster.to_owned(), namespace: namespace.to_owned() }
}

fn occupied(there: &Claim, owner: &Owner) -> TenancyError {
    let (cluster, namespace) = (there.cluster.clone(), there.namespace.clone());
    match (there.project_uid == owner.uid, there.releasing) {
        (false, _) => TenancyError::Taken { cluster, namespace },
        (true, false) => TenancyError::AlreadyOwned { cluster, namespace },
        (true, true) => TenancyError::Releasing { cluster, namespace },
    }
}
