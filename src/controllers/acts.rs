//! What people do with namespaces through the API: create, move, delete. Creating and moving answer when access is
//! effective, not when the wish is recorded.

mod own;

use std::time::Duration;

use async_trait::async_trait;
use futures::{FutureExt as _, StreamExt as _};
use jiff::Timestamp;
use tokio::time::{Instant, timeout_at};

use kube::ResourceExt as _;

use super::Controllers;
use super::adoption;
use super::calls;
use super::desired::Place;
use super::kinds::ObjectKind;
use super::levels;
use super::shared::{NamespaceState, Phase, Shared};
use crate::clusters::names::PROJECT;
use crate::index::Snapshot;
use crate::records::Claim;
use crate::resources::project::{AdoptionReport, LevelReport, PodSecurityLevel};
pub use crate::tenancy::ActError;
use crate::tenancy::{TenancyError, ledger, names};

/// Namespaces in which a level is tried at a time.
const TRIED_AT_A_TIME: usize = 8;
/// Longest time that an act waits for the cluster. What was begun goes on after it.
const PATIENCE: Duration = Duration::from_secs(30);

/// Creating, moving and giving up namespaces, down to their effect in the cluster.
#[async_trait]
pub trait NamespaceActs: Send + Sync + 'static {
    /// Creates a namespace for a project, and answers once its members have access.
    ///
    /// # Errors
    /// [`ActError::Tenancy`] as [`crate::tenancy::Tenancy::create_namespace`] has it; [`ActError::Refused`];
    /// [`ActError::NotYet`] after 30 s.
    async fn create(
        &self,
        project: &str,
        cluster: &str,
        namespace: &str,
        by: &str,
        now: Timestamp,
    ) -> Result<NamespaceState, ActError>;

    /// Moves a namespace to another project, and answers once the former project has no right left in it and the new
    /// one has access.
    ///
    /// # Errors
    /// As [`crate::tenancy::Tenancy::move_namespace`], and [`ActError::NotYet`] after 30 s.
    async fn relocate(
        &self,
        cluster: &str,
        namespace: &str,
        from: &str,
        to: &str,
        by: &str,
        now: Timestamp,
    ) -> Result<NamespaceState, ActError>;

    /// Gives a namespace up: nobody has access to it any more, and it is being deleted when this returns.
    ///
    /// # Errors
    /// As [`crate::tenancy::Tenancy::release_namespace`]; [`ActError::Refused`] where it was adopted.
    async fn delete(&self, project: &str, cluster: &str, namespace: &str, by: &str) -> Result<(), ActError>;

    /// What it means that a project adopts a namespace. Changes nothing.
    ///
    /// # Errors
    /// As for creating a namespace of this name; [`ActError::Refused`] where the cluster's administrator does not let the
    /// project adopt it, with the same answer whether there is such a namespace or not; [`ActError::NotYet`] where the
    /// cluster does not answer.
    async fn adoption(&self, project: &str, cluster: &str, namespace: &str) -> Result<AdoptionReport, ActError>;

    /// Adopts a namespace, and answers with what it meant once the project's members have access.
    ///
    /// # Errors
    /// As [`NamespaceActs::adoption`], and [`ActError::NotYet`] after 30 s.
    async fn adopt(
        &self,
        project: &str,
        cluster: &str,
        namespace: &str,
        by: &str,
        now: Timestamp,
    ) -> Result<AdoptionReport, ActError>;

    /// What a Pod Security level would refuse of the Pods that are in a project's namespaces, by a dry run. Changes
    /// nothing. A namespace of which nothing can be known says why.
    ///
    /// # Errors
    /// [`TenancyError::NoProject`].
    async fn try_level(&self, project: &str, level: PodSecurityLevel) -> Result<Vec<LevelReport>, ActError>;

    /// Gives back a namespace that was adopted: nothing of ours stays in it, and all else does.
    ///
    /// # Errors
    /// As [`crate::tenancy::Tenancy::release_namespace`]; [`ActError::Refused`] where it was not adopted.
    async fn give_back(&self, project: &str, cluster: &str, namespace: &str, by: &str) -> Result<(), ActError>;
}

#[async_trait]
impl NamespaceActs for Controllers {
    async fn create(
        &self,
        project: &str,
        cluster: &str,
        namespace: &str,
        by: &str,
        now: Timestamp,
    ) -> Result<NamespaceState, ActError> {
        let claim = self.shared.tenancy.create_namespace(project, cluster, namespace, by, now).await?;
        match effective(&self.shared, &claim).await {
            Err(ActError::Refused(why)) => {
                // Nobody waits for it to become possible; a declared one would be.
                if let Err(error) = self.shared.tenancy.release_namespace(project, cluster, namespace, by).await {
                    tracing::warn!(project, cluster, namespace, %error, "a refused namespace stays claimed");
                }
                Err(ActError::Refused(why))
            }
            other => other,
        }
    }

    async fn relocate(
        &self,
        cluster: &str,
        namespace: &str,
        from: &str,
        to: &str,
        by: &str,
        now: Timestamp,
    ) -> Result<NamespaceState, ActError> {
        let claim = self.shared.tenancy.move_namespace(cluster, namespace, from, to, by, now).await?;
        effective(&self.shared, &claim).await
    }

    async fn delete(&self, project: &str, cluster: &str, namespace: &str, by: &str) -> Result<(), ActError> {
        if self.is_adopted(project, cluster, namespace) == Some(true) {
            return Err(ActError::Refused(format!(
                "namespace {namespace:?} on cluster {cluster:?} was adopted and is never deleted here; give it back with: \
                 bailiwick project release {project} {cluster}/{namespace}"
            )));
        }
        Ok(self.shared.tenancy.release_namespace(project, cluster, namespace, by).await?)
    }

    async fn adoption(&self, project: &str, cluster: &str, namespace: &str) -> Result<AdoptionReport, ActError> {
        let snapshot = self.shared.index.snapshot();
        let owner = snapshot.projects.get(project).ok_or_else(|| TenancyError::NoProject(project.to_owned()))?;
        let (spec, uid) = (&owner.object.spec, owner.object.metadata.uid.clone().unwrap_or_default());
        let there = spec.on(cluster);
        let there =
            there.ok_or_else(|| TenancyError::NotOnCluster { project: project.into(), cluster: cluster.into() })?;
        names::origin(project, there, namespace)?;
        let share = ledger::share_of(there, namespace).map_err(|why| TenancyError::BadQuota {
            project: project.to_owned(),
            cluster: cluster.to_owned(),
            why,
        })?;
        let usable = snapshot.observed(cluster).is_some_and(|seen| seen.usable);
        let client = self.clients.housekeeping(cluster).filter(|_| usable);
        let client = client.ok_or_else(|| ActError::NoAnswer("it cannot be worked on".to_owned()))?;
        let place = Place {
            cluster,
            cluster_uid: "",
            namespace,
            project,
            project_uid: &uid,
            spec,
            share: &share,
            roles: vec![],
        };
        let failed = |why: calls::CallError| ActError::NoAnswer(why.to_string());
        let seen = calls::get(&calls::api(&client, ObjectKind::Namespace, ""), namespace).await.map_err(failed)?;
        // Whether there is a namespace is not told: it may be another project's.
        let seen = seen.filter(|seen| adoption::consented(seen, &uid) && !seen.labels().contains_key(PROJECT));
        let Some(seen) = seen else {
            return Err(ActError::Refused(format!(
                "there is no namespace {namespace:?} on cluster {cluster:?} that the project may adopt; {}",
                adoption::how_to_consent(&uid, namespace)
            )));
        };
        adoption::report(&client, &place, &seen).await.map_err(failed)
    }

    async fn adopt(
        &self,
        project: &str,
        cluster: &str,
        namespace: &str,
        by: &str,
        now: Timestamp,
    ) -> Result<AdoptionReport, ActError> {
        let report = self.adoption(project, cluster, namespace).await?;
        let claim = self.shared.tenancy.adopt_namespace(project, cluster, namespace, by, now).await?;
        effective(&self.shared, &claim).await.map(|_| report)
    }

    async fn try_level(&self, project: &str, level: PodSecurityLevel) -> Result<Vec<LevelReport>, ActError> {
        let snapshot = self.shared.index.snapshot();
        let owner = snapshot.projects.get(project).ok_or_else(|| TenancyError::NoProject(project.to_owned()))?;
        let uid = owner.object.metadata.uid.as_deref().unwrap_or_default();
        let claims =
            snapshot.claims.values().filter(|claim| claim.object.project_uid == uid && !claim.object.releasing);
        let mut places: Vec<(String, String)> =
            claims.map(|claim| (claim.object.cluster.clone(), claim.object.namespace.clone())).collect();
        places.sort_unstable();
        let tried = places.into_iter().map(|(cluster, name)| {
            let usable = snapshot.observed(cluster.as_str()).is_some_and(|seen| seen.usable);
            let client = self.clients.housekeeping(&cluster).filter(|_| usable);
            levels::tried(client, cluster, name, level).boxed()
        });
        let tried: Vec<_> = tried.collect();
        Ok(futures::stream::iter(tried).buffered(TRIED_AT_A_TIME).collect().await)
    }

    async fn give_back(&self, project: &str, cluster: &str, namespace: &str, by: &str) -> Result<(), ActError> {
        if self.is_adopted(project, cluster, namespace) == Some(false) {
            return Err(ActError::Refused(format!(
                "namespace {namespace:?} on cluster {cluster:?} was made for the project, not adopted; it can only be deleted"
            )));
        }
        Ok(self.shared.tenancy.release_namespace(project, cluster, namespace, by).await?)
    }
}

impl Controllers {
    /// Whether a project's namespace was adopted, or else made for it; `None` where it is not the project's.
    fn is_adopted(&self, project: &str, cluster: &str, namespace: &str) -> Option<bool> {
        let snapshot = self.shared.index.snapshot();
        let claim = snapshot.claim(cluster, namespace).filter(|claim| claim.object.project == project);
        claim.map(|claim| claim.object.adopt)
    }
}

/// Waits until access to a claimed namespace is effective.
async fn effective(shared: &Shared, claim: &Claim) -> Result<NamespaceState, ActError> {
    let deadline = Instant::now() + PATIENCE;
    let mut states = shared.subscribe();
    let mut changes = shared.index.subscribe();
    loop {
        let snapshot = shared.index.snapshot();
        let state = shared.namespace(&claim.cluster, &claim.namespace);
        let state = state.filter(|state| state.project_uid == claim.project_uid);
        let missing = match missing(&snapshot, claim, state.as_ref()) {
            Ok(state) => return Ok(state),
            Err(Missing::Never(why)) => return Err(ActError::Refused(why)),
            Err(Missing::Yet(why)) => why,
        };
        let woken = async {
            tokio::select! {
                changed = states.changed() => changed.is_ok(),
                changed = changes.changed() => changed.is_ok(),
            }
        };
        match timeout_at(deadline, woken).await {
            Ok(true) => {}
            Ok(false) => return Err(ActError::NotYet("the service is going down".to_owned())),
            Err(_) => return Err(ActError::NotYet(missing)),
        }
    }
}

enum Missing {
    Yet(String),
    Never(String),
}

/// What keeps a permit from being given and honoured; the state where nothing does.
fn missing(snapshot: &Snapshot, claim: &Claim, state: Option<&NamespaceState>) -> Result<NamespaceState, Missing> {
    let yet = |why: &str| Err(Missing::Yet(why.to_owned()));
    let observed = snapshot.observed(claim.cluster.as_str());
    let Some(observed) = observed.filter(|seen| seen.cluster_uid == claim.cluster_uid) else {
        return yet("the cluster has not been reached");
    };
    if !observed.usable {
        return Err(Missing::Yet(format!("the cluster cannot be worked on: {}", observed.reason)));
    }
    let known = snapshot.claim(&claim.cluster, &claim.namespace);
    let Some(known) =
        known.filter(|known| known.object.project_uid == claim.project_uid && known.object.adopt == claim.adopt)
    else {
        // Not in the snapshot yet, or taken away again by somebody else.
        return yet("the claim is not in effect");
    };
    let Some(state) = state else { return yet("the cluster's controllers have not looked at it") };
    match state.phase {
        // Until the cluster counts a limit, it refuses whatever the limit is about.
        Phase::Ready if !counted(snapshot, claim, state) => return yet("the cluster does not count the quota yet"),
        Phase::Ready => {}
        // What was refused before the claim became what it is may be possible now.
        Phase::Refused if state.claim != known.revision => {
            return yet("the cluster's controllers have not looked at it");
        }
        Phase::Refused => return Err(Missing::Never(state.message.clone())),
        Phase::Pending | Phase::Terminating => return Err(Missing::Yet(state.message.clone())),
    }
    let uid = known.object.namespace_uid.as_deref();
    match (uid, observed.namespaces.get(claim.namespace.as_str())) {
        (Some(uid), Some(seen)) if **seen == *uid => Ok(state.clone()),
        (None, _) => yet("the namespace's identity is not recorded"),
        _ => yet("the namespace has not been observed"),
    }
}

fn counted(snapshot: &Snapshot, claim: &Claim, state: &NamespaceState) -> bool {
    let ledger = snapshot.ledgers.get(format!("{}/{}", claim.project, claim.cluster).as_str());
    let share = ledger.and_then(|ledger| ledger.object.shares.get(&claim.namespace));
    share.into_iter().flatten().all(|(key, _)| state.hard.contains_key(key))
}
