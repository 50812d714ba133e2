//! What people do with namespaces through the API: create, move, delete. Creating and moving answer when access is
//! effective, not when the wish is recorded.

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use tokio::time::{Instant, timeout_at};

use super::Controllers;
use super::shared::{NamespaceState, Phase, Shared};
use crate::index::Snapshot;
use crate::records::Claim;
use crate::tenancy::TenancyError;

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
    /// As [`crate::tenancy::Tenancy::release_namespace`].
    async fn delete(&self, project: &str, cluster: &str, namespace: &str, by: &str) -> Result<(), ActError>;
}

/// Why an act did not succeed, or not yet.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ActError {
    /// It was refused; nothing has changed.
    #[error(transparent)]
    Tenancy(#[from] TenancyError),
    /// The cluster has a namespace of this name that is not the project's. The claim was given up again.
    #[error("{0}")]
    Refused(String),
    /// It is recorded and will be done; the cluster has not come so far in time. What is missing.
    #[error(
        "the namespace is the project's, and access to it is not effective yet: {0}; it will be as soon as the cluster is done"
    )]
    NotYet(String),
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
        Ok(self.shared.tenancy.release_namespace(project, cluster, namespace, by).await?)
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
    let observed = snapshot.observed.get(claim.cluster.as_str());
    let Some(observed) = observed.filter(|seen| seen.cluster_uid == claim.cluster_uid) else {
        return yet("the cluster has not been reached");
    };
    if !observed.usable {
        return Err(Missing::Yet(format!("the cluster cannot be worked on: {}", observed.reason)));
    }
    let known = snapshot.claim(&claim.cluster, &claim.namespace);
    let Some(known) = known.filter(|known| known.object.project_uid == claim.project_uid) else {
        // Not in the snapshot yet, or taken away again by somebody else.
        return yet("the claim is not in effect");
    };
    let Some(state) = state else { return yet("the cluster's controllers have not looked at it") };
    match state.phase {
        Phase::Ready => {}
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
