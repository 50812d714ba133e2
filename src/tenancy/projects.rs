//! The end of a project, and the name that stays reserved after it.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::shares::lost_race;
use super::{ATTEMPTS, Read, Tenancy, TenancyError, encode};
use crate::records::Reservation;
use crate::resources::Project;
use crate::store::{Key, Kind};

impl Tenancy {
    /// Deletes a project: marks it, marks all its claims as to be given up, reserves its name for as long as a cluster
    /// has something of it, and removes the resource. Each step may be repeated; a deletion that was interrupted is
    /// finished by [`Tenancy::run`].
    ///
    /// With `uid`, only the project of that UID.
    ///
    /// # Errors
    /// [`TenancyError::NoProject`] where there is none (of that UID).
    pub async fn delete_project(&self, name: &str, uid: Option<&str>, now: Timestamp) -> Result<(), TenancyError> {
        let key = Key::new(Kind::Project, name);
        let mut marked = false;
        for _ in 0..ATTEMPTS {
            let found = match self.read::<Project>(&key).await? {
                Some(found) if uid.is_none_or(|uid| found.object.metadata.uid.as_deref() == Some(uid)) => found,
                // Finished by somebody else.
                _ if marked => return self.settle_reservation(name).await,
                _ => return Err(TenancyError::NoProject(name.to_owned())),
            };
            let Read { revision, object: mut project } = found;
            if project.metadata.deletion_timestamp.is_none() {
                project.metadata.deletion_timestamp = Some(Time(now));
                match self.store.update(key.clone(), revision, encode(&key, &project)?).await {
                    Ok(_) => {}
                    Err(error) if lost_race(&error) => {}
                    Err(error) => return Err(error.into()),
                }
                continue;
            }
            marked = true;
            let uid = project.metadata.uid.as_deref().unwrap_or_default();
            // Creations look at the mark after they wrote their claim; so none is missed here.
            let claims = self.claims_where(|claim| claim.project_uid == uid).await?;
            let clusters: BTreeSet<String> = claims.iter().map(|claim| claim.object.cluster.clone()).collect();
            if !clusters.is_empty() {
                self.reserve_name(name, uid, clusters).await?;
            }
            for claim in claims {
                self.mark_releasing(&claim.object.cluster, &claim.object.namespace, uid).await?;
            }
            match self.store.delete(key.clone(), revision).await {
                Ok(_) => return self.settle_reservation(name).await,
                Err(error) if lost_race(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(TenancyError::Contended(key))
    }

    /// Whether a new project may not have this name: a cluster still has something of the one that had it before, or
    /// a claim of it is left.
    pub async fn name_is_reserved(&self, name: &str) -> Result<bool, TenancyError> {
        if self.store.get(&Key::new(Kind::Reservation, name)).await?.is_some() {
            return Ok(true);
        }
        let uid = match self.read::<Project>(&Key::new(Kind::Project, name)).await? {
            Some(project) => project.object.metadata.uid.unwrap_or_default(),
            None => String::new(),
        };
        let left = self.claims_where(|claim| claim.project == name && claim.project_uid != uid).await?;
        Ok(!left.is_empty())
    }

    async fn reserve_name(&self, name: &str, uid: &str, clusters: BTreeSet<String>) -> Result<(), TenancyError> {
        let key = Key::new(Kind::Reservation, name);
        for _ in 0..ATTEMPTS {
            let found = self.read::<Reservation>(&key).await?;
            let mut all = clusters.clone();
            let written = match found {
                None => {
                    let reservation = Reservation { project_uid: uid.to_owned(), clusters: all.into_iter().collect() };
                    self.store.create(key.clone(), encode(&key, &reservation)?).await
                }
                Some(found) => {
                    all.extend(found.object.clusters.iter().cloned());
                    let reservation = Reservation { project_uid: uid.to_owned(), clusters: all.into_iter().collect() };
                    if reservation == found.object {
                        return Ok(());
                    }
                    self.store.update(key.clone(), found.revision, encode(&key, &reservation)?).await
                }
            };
            match written {
                Ok(_) => return Ok(()),
                Err(error) if lost_race(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(TenancyError::Contended(key))
    }

    /// Takes the clusters that have nothing left of a deleted project out of its reservation, and frees the name when
    /// none is left.
    pub(super) async fn settle_reservation(&self, name: &str) -> Result<(), TenancyError> {
        let key = Key::new(Kind::Reservation, name);
        for _ in 0..ATTEMPTS {
            let Some(Read { revision, object: mut reservation }) = self.read::<Reservation>(&key).await? else {
                return Ok(());
            };
            let project = self.read::<Project>(&Key::new(Kind::Project, name)).await?;
            if project.is_some_and(|project| project.object.metadata.uid.as_deref() == Some(&reservation.project_uid)) {
                // Still being deleted; its end settles the rest.
                return Ok(());
            }
            let left = self.claims_where(|claim| claim.project_uid == reservation.project_uid).await?;
            let before = reservation.clusters.len();
            reservation.clusters.retain(|cluster| left.iter().any(|claim| claim.object.cluster == *cluster));
            let written = if reservation.clusters.is_empty() {
                self.store.delete(key.clone(), revision).await
            } else if reservation.clusters.len() < before {
                self.store.update(key.clone(), revision, encode(&key, &reservation)?).await
            } else {
                return Ok(());
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
