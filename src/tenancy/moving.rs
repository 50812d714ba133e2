//! Moving a namespace from one project to another.

use jiff::Timestamp;
use tracing::info;

use super::shares::lost_race;
use super::{ATTEMPTS, Tenancy, TenancyError, claim_key, encode, names};
use crate::records::{Claim, ClaimOrigin};

impl Tenancy {
    /// Gives a namespace of one project to another: reserves its share there, rewrites the claim, and takes its share
    /// out of the first project's ledger. From the moment the claim is written the first project has no right in it;
    /// the controllers then revoke and bind in the cluster.
    ///
    /// The prefix of the receiving project does not matter, its number of namespaces and quota do. Whether the caller
    /// may take from the one and give to the other is the API's question.
    ///
    /// # Errors
    /// As [`Tenancy::create_namespace`] for the receiving project, and [`TenancyError::NotOwned`] for the giving one.
    /// After any of them everything is as it was.
    pub async fn move_namespace(
        &self,
        cluster: &str,
        namespace: &str,
        from_project: &str,
        to_project: &str,
        by: &str,
        now: Timestamp,
    ) -> Result<Claim, TenancyError> {
        names::check(namespace)?;
        let from = self.living_project(from_project).await?;
        let to = self.living_project(to_project).await?;
        let place = to.place(cluster)?;
        let declared = place.declares(namespace);
        if !declared && place.max_namespaces.is_none() {
            names::origin(to_project, place, namespace)?;
        }
        if from.uid == to.uid {
            return Err(TenancyError::AlreadyOwned { cluster: cluster.to_owned(), namespace: namespace.to_owned() });
        }
        let not_owned = || TenancyError::NotOwned {
            project: from_project.to_owned(),
            cluster: cluster.to_owned(),
            namespace: namespace.to_owned(),
        };
        let key = claim_key(cluster, namespace);
        for _ in 0..ATTEMPTS {
            let Some(found) = self.claim(cluster, namespace).await? else { return Err(not_owned()) };
            let old = found.object;
            if old.project_uid != from.uid {
                return Err(not_owned());
            }
            if old.releasing {
                return Err(TenancyError::Releasing { cluster: cluster.to_owned(), namespace: namespace.to_owned() });
            }
            let moved = Claim {
                project: to.name.clone(),
                project_uid: to.uid.clone(),
                origin: if declared { ClaimOrigin::Declared } else { ClaimOrigin::Created },
                since: None,
                ..old.clone()
            };
            self.reserve(&to, cluster, &old.cluster_uid, namespace, now).await?;
            match self.store.update(key.clone(), found.revision, encode(&key, &moved)?).await {
                Ok(_) => {}
                Err(error) if lost_race(&error) => {
                    self.give_back(&to.name, &to.uid, cluster, namespace).await?;
                    continue;
                }
                Err(error) => {
                    self.give_back(&to.name, &to.uid, cluster, namespace).await?;
                    return Err(error.into());
                }
            }
            while !self.confirm(&to.name, &to.uid, cluster, namespace).await? {
                if let Err(refused) = self.reserve(&to, cluster, &old.cluster_uid, namespace, now).await {
                    self.move_back(&old, &moved).await?;
                    return Err(refused);
                }
            }
            // The receiving project may have been deleted meanwhile; its claims were listed before this one was.
            if let Err(gone) = self.living_project(to_project).await {
                self.move_back(&old, &moved).await?;
                self.give_back(&to.name, &to.uid, cluster, namespace).await?;
                return Err(gone);
            }
            self.give_back(&from.name, &from.uid, cluster, namespace).await?;
            info!(cluster, namespace, from = from.name, to = to.name, by, "namespace is moved");
            return Ok(moved);
        }
        Err(TenancyError::Contended(key))
    }

    /// Undoes a move whose receiving project turned out to have no place. Its first owner still has the share.
    async fn move_back(&self, old: &Claim, moved: &Claim) -> Result<(), TenancyError> {
        let key = claim_key(&old.cluster, &old.namespace);
        for _ in 0..ATTEMPTS {
            let Some(found) = self.claim(&old.cluster, &old.namespace).await? else { return Ok(()) };
            if found.object.project_uid != moved.project_uid {
                return Ok(());
            }
            match self.store.update(key.clone(), found.revision, encode(&key, old)?).await {
                Ok(_) => return Ok(()),
                Err(error) if lost_race(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(TenancyError::Contended(key))
    }
}
