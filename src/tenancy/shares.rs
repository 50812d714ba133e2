//! Reserving, confirming and giving back shares: the compare-and-swap loops around a ledger.

use jiff::Timestamp;

use super::ledger::{self, Misfit};
use super::{ATTEMPTS, Owner, Read, Tenancy, TenancyError, encode, ledger_key};
use crate::clock;
use crate::records::Ledger;
use crate::store::{Key, Revision, StoreError};

impl Tenancy {
    /// Reserves the share of a namespace, marked pending. Always writes, so that whoever is about to take out a share
    /// that seemed unused finds the ledger changed.
    pub(super) async fn reserve(
        &self,
        owner: &Owner,
        cluster: &str,
        cluster_uid: &str,
        namespace: &str,
        now: Timestamp,
    ) -> Result<(), TenancyError> {
        let place = owner.place(cluster)?;
        let key = ledger_key(&owner.name, cluster);
        for _ in 0..ATTEMPTS {
            let (revision, mut ledger) = self.ledger(&key, owner, cluster_uid).await?;
            ledger::reserve(&mut ledger, place, namespace, &clock::rfc3339(now))
                .map_err(|misfit| refuse(misfit, &owner.name, cluster, namespace))?;
            let value = encode(&key, &ledger)?;
            let written = match revision {
                Some(revision) => self.store.update(key.clone(), revision, value).await,
                None => self.store.create(key.clone(), value).await,
            };
            match written {
                Ok(_) => return Ok(()),
                Err(error) if lost_race(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(TenancyError::Contended(key))
    }

    /// Whether a share for the namespace would be reserved now.
    pub(super) async fn fits(
        &self,
        owner: &Owner,
        cluster: &str,
        cluster_uid: &str,
        namespace: &str,
        now: Timestamp,
    ) -> Result<(), TenancyError> {
        let place = owner.place(cluster)?;
        let (_, mut ledger) = self.ledger(&ledger_key(&owner.name, cluster), owner, cluster_uid).await?;
        ledger::reserve(&mut ledger, place, namespace, &clock::rfc3339(now))
            .map_err(|misfit| refuse(misfit, &owner.name, cluster, namespace))
    }

    /// The ledger as it stands, a blank one where there is none of this very project and cluster.
    async fn ledger(
        &self,
        key: &Key,
        owner: &Owner,
        cluster_uid: &str,
    ) -> Result<(Option<Revision>, Ledger), TenancyError> {
        let blank =
            || Ledger { project_uid: owner.uid.clone(), cluster_uid: cluster_uid.to_owned(), ..Ledger::default() };
        Ok(match self.read::<Ledger>(key).await? {
            // Of a project or cluster that had the name before: nothing of it holds any more.
            Some(old) if old.object.project_uid != owner.uid || old.object.cluster_uid != cluster_uid => {
                (Some(old.revision), blank())
            }
            Some(found) => (Some(found.revision), found.object),
            None => (None, blank()),
        })
    }

    /// Confirms a share after its claim was written. False where the share is gone and must be reserved again.
    pub(super) async fn confirm(
        &self,
        project: &str,
        project_uid: &str,
        cluster: &str,
        namespace: &str,
    ) -> Result<bool, TenancyError> {
        let key = ledger_key(project, cluster);
        for _ in 0..ATTEMPTS {
            let Some(Read { revision, object: mut ledger }) = self.read::<Ledger>(&key).await? else {
                return Ok(false);
            };
            if ledger.project_uid != project_uid || !ledger.shares.contains_key(namespace) {
                return Ok(false);
            }
            if ledger.pending.remove(namespace).is_none() {
                // Another creation of the same namespace confirmed it, after it saw the same claim.
                return Ok(true);
            }
            match self.store.update(key.clone(), revision, encode(&key, &ledger)?).await {
                Ok(_) => return Ok(true),
                Err(error) if lost_race(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(TenancyError::Contended(key))
    }

    /// Takes the share of a namespace out of a ledger unless a claim of the same project stands behind it. The claim
    /// is read after the ledger, and the write fails if the ledger changed since.
    pub(super) async fn give_back(
        &self,
        project: &str,
        project_uid: &str,
        cluster: &str,
        namespace: &str,
    ) -> Result<(), TenancyError> {
        let key = ledger_key(project, cluster);
        for _ in 0..ATTEMPTS {
            let Some(Read { revision, object: mut ledger }) = self.read::<Ledger>(&key).await? else { return Ok(()) };
            if ledger.project_uid != project_uid || !ledger.shares.contains_key(namespace) {
                return Ok(());
            }
            if self.claim(cluster, namespace).await?.is_some_and(|claim| claim.object.project_uid == project_uid) {
                return Ok(());
            }
            ledger.shares.remove(namespace);
            ledger.pending.remove(namespace);
            // An empty ledger is no ledger: nothing stays behind for projects that come and go.
            let written = if ledger.shares.is_empty() {
                self.store.delete(key.clone(), revision).await
            } else {
                self.store.update(key.clone(), revision, encode(&key, &ledger)?).await
            };
            match written {
                Ok(_) => return Ok(()),
                Err(error) if lost_race(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(TenancyError::Contended(key))
    }
}

/// Whether a write failed because somebody else was faster, so that it is to be tried again from a new read.
pub(super) fn lost_race(error: &StoreError) -> bool {
    matches!(error, StoreError::AlreadyExists(_) | StoreError::NotFound(_) | StoreError::Conflict { .. })
}

fn refuse(misfit: Misfit, project: &str, cluster: &str, namespace: &str) -> TenancyError {
    let (project, cluster, namespace) = (project.to_owned(), cluster.to_owned(), namespace.to_owned());
    match misfit {
        Misfit::Full { max } => TenancyError::Full { project, cluster, max },
        Misfit::Short(shortage) => TenancyError::Quota { project, cluster, namespace, shortage: Box::new(shortage) },
        Misfit::Unreadable(why) => TenancyError::BadQuota { project, cluster, why },
    }
}
