//! Keeping claims and ledgers true to the projects' specs, and repairing what a crash left.
//!
//! What is to be done is planned from a snapshot, which may be a moment old; every act looks at the store again.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::create::taken;
use super::shares::lost_race;
use super::{ATTEMPTS, Owner, Read, Tenancy, TenancyError, claim_key, encode, ledger, ledger_key};
use crate::index::Snapshot;
use crate::records::{Claim, ClaimOrigin, Ledger};
use crate::resources::Project;
use crate::resources::project::ProjectCluster;
use crate::store::{Key, Kind};

/// Shortest time between two passes, so that a burst of changes is one pass.
const PAUSE: Duration = Duration::from_millis(100);
/// Longest time between two passes: what only time changes, and what failed.
const RESYNC: Duration = Duration::from_secs(30);
/// Age at which a pending share without claim counts as left behind by a crash. A creation takes milliseconds.
const LEFT_BEHIND: jiff::SignedDuration = jiff::SignedDuration::from_secs(60);

/// Something that a project's spec wants and cannot have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Cluster.
    pub cluster: String,
    /// Namespace.
    pub namespace: String,
    /// For people: what stands in the way, and who can change it.
    pub message: String,
}

/// One thing to do for a project.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Act {
    /// Claim a declared namespace.
    Claim { cluster: String, namespace: String },
    /// Give up a namespace that is no longer declared.
    Release { cluster: String, namespace: String },
    /// The spec declares a namespace that a member had made.
    Adopt { cluster: String, namespace: String },
    /// Put the share behind a claim.
    Secure { cluster: String, namespace: String },
    /// Take out a share without claim.
    GiveBack { cluster: String, namespace: String },
    /// Bring the shares to what the spec gives.
    Reshare { cluster: String },
}

type Claims<'a> = Vec<&'a Claim>;

impl Tenancy {
    /// Keeps claims and ledgers true until shutdown.
    pub async fn run(self: Arc<Self>, shutdown: CancellationToken) {
        let mut changes = self.index.subscribe();
        let mut resync = tokio::time::interval(RESYNC);
        resync.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut last: Option<Arc<Snapshot>> = None;
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                changed = changes.changed() => if changed.is_err() { return },
                _ = resync.tick() => last = None,
            }
            let snapshot = self.index.snapshot();
            if last.as_ref().is_some_and(|last| same_tenancy(last, &snapshot)) {
                continue;
            }
            self.pass(&snapshot, self.index.clock().steady()).await;
            last = Some(snapshot);
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(PAUSE) => {}
            }
        }
    }

    /// One pass over all projects.
    pub async fn pass(&self, snapshot: &Snapshot, now: Timestamp) {
        let mut by_project: HashMap<&str, Claims<'_>> = HashMap::new();
        for claim in snapshot.claims.values() {
            let cluster = snapshot.clusters.get(claim.object.cluster.as_str());
            let cluster_uid = cluster.and_then(|cluster| cluster.object.metadata.uid.as_ref());
            if cluster_uid != Some(&claim.object.cluster_uid) {
                // The cluster's resource is gone, perhaps replaced by one of the same name: nothing can be cleaned up.
                report(&claim.object.project, self.drop_claim(&claim.object).await);
                continue;
            }
            by_project.entry(claim.object.project_uid.as_str()).or_default().push(&claim.object);
        }
        let mut problems = HashMap::new();
        for (name, project) in &snapshot.projects {
            let uid = project.object.metadata.uid.as_deref().unwrap_or_default();
            let claims = by_project.remove(uid).unwrap_or_default();
            if project.object.metadata.deletion_timestamp.is_some() {
                report(name, self.delete_project(name, Some(uid), now).await);
                continue;
            }
            let found = self.reconcile_project(snapshot, name, &project.object, &claims, now).await;
            if !found.is_empty() {
                problems.insert(name.to_string(), found);
            }
        }
        *self.problems.lock() = problems;
        // Claims of projects that are gone: a creation that raced with the deletion, or a crash in it.
        for claim in by_project.into_values().flatten().filter(|claim| !claim.releasing) {
            report(&claim.project, self.release_orphan(claim).await);
        }
        for (key, ledger) in &snapshot.ledgers {
            report(key, self.empty_orphan(snapshot, key, &ledger.object).await);
        }
        for name in snapshot.reservations.keys() {
            report(name, self.settle_reservation(name).await);
        }
    }

    async fn reconcile_project(
        &self,
        snapshot: &Snapshot,
        name: &str,
        project: &Project,
        claims: &[&Claim],
        now: Timestamp,
    ) -> Vec<Problem> {
        let (acts, mut problems) = plan(snapshot, name, project, claims, now);
        for act in acts {
            debug!(project = name, ?act, "reconciling");
            let (cluster, namespace) = match &act {
                Act::Claim { cluster, namespace }
                | Act::Release { cluster, namespace }
                | Act::Adopt { cluster, namespace }
                | Act::Secure { cluster, namespace }
                | Act::GiveBack { cluster, namespace } => (cluster.clone(), namespace.clone()),
                Act::Reshare { cluster } => (cluster.clone(), String::new()),
            };
            match self.perform(name, project, act, now).await {
                Ok(more) => problems.extend(more),
                Err(error) => problems.push(Problem { cluster, namespace, message: error.to_string() }),
            }
        }
        problems
    }

    async fn perform(
        &self,
        name: &str,
        project: &Project,
        act: Act,
        now: Timestamp,
    ) -> Result<Vec<Problem>, TenancyError> {
        let uid = project.metadata.uid.clone().unwrap_or_default();
        match act {
            Act::Claim { cluster, namespace } => {
                match self.create_namespace(name, &cluster, &namespace, "the project's spec", now).await {
                    // Somebody was faster, which is as good.
                    Ok(_) | Err(TenancyError::AlreadyOwned { .. }) => Ok(vec![]),
                    Err(error) => Err(error),
                }
            }
            Act::Release { cluster, namespace } => {
                match self.release_namespace(name, &cluster, &namespace, "the project's spec").await {
                    // Declared again, or gone: the next pass sees it.
                    Ok(()) | Err(TenancyError::Declared { .. } | TenancyError::NotOwned { .. }) => Ok(vec![]),
                    Err(error) => Err(error),
                }
            }
            Act::Adopt { cluster, namespace } => self.set_declared(&cluster, &namespace, &uid).await.map(|()| vec![]),
            Act::Secure { cluster, namespace } => {
                if !self.confirm(name, &uid, &cluster, &namespace).await? {
                    let owner = self.living_project(name).await?;
                    let cluster_uid = self.cluster_uid(&cluster).await?;
                    self.reserve(&owner, &cluster, &cluster_uid, &namespace, now).await?;
                    self.confirm(name, &uid, &cluster, &namespace).await?;
                }
                // Where the claim went meanwhile, the share is without one and goes too.
                self.give_back(name, &uid, &cluster, &namespace).await.map(|()| vec![])
            }
            Act::GiveBack { cluster, namespace } => {
                self.give_back(name, &uid, &cluster, &namespace).await.map(|()| vec![])
            }
            Act::Reshare { cluster } => {
                let owner = self.living_project(name).await?;
                self.reshare(&owner, &cluster).await
            }
        }
    }

    async fn set_declared(&self, cluster: &str, namespace: &str, project_uid: &str) -> Result<(), TenancyError> {
        let key = claim_key(cluster, namespace);
        for _ in 0..ATTEMPTS {
            let Some(mut found) = self.claim(cluster, namespace).await? else { return Ok(()) };
            if found.object.project_uid != project_uid || found.object.origin == ClaimOrigin::Declared {
                return Ok(());
            }
            found.object.origin = ClaimOrigin::Declared;
            match self.store.update(key.clone(), found.revision, encode(&key, &found.object)?).await {
                Ok(_) => return Ok(()),
                Err(error) if lost_race(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(TenancyError::Contended(key))
    }

    async fn reshare(&self, owner: &Owner, cluster: &str) -> Result<Vec<Problem>, TenancyError> {
        let place = owner.place(cluster)?;
        let key = ledger_key(&owner.name, cluster);
        for _ in 0..ATTEMPTS {
            let Some(Read { revision, object: mut ledger }) = self.read::<Ledger>(&key).await? else {
                return Ok(vec![]);
            };
            if ledger.project_uid != owner.uid {
                return Ok(vec![]);
            }
            let before = ledger.shares.clone();
            let short = ledger::reshare(&mut ledger, place).map_err(|why| TenancyError::BadQuota {
                project: owner.name.clone(),
                cluster: cluster.to_owned(),
                why,
            })?;
            if ledger.shares != before {
                match self.store.update(key.clone(), revision, encode(&key, &ledger)?).await {
                    Ok(_) => {}
                    Err(error) if lost_race(&error) => continue,
                    Err(error) => return Err(error.into()),
                }
            }
            let problem = |(namespace, shortage): (String, ledger::Shortage)| Problem {
                cluster: cluster.to_owned(),
                namespace,
                message: format!(
                    "its share does not fit into the project's quota: {shortage}; a platform administrator can raise \
                     the quota or lower other shares"
                ),
            };
            return Ok(short.into_iter().map(problem).collect());
        }
        Err(TenancyError::Contended(key))
    }

    async fn release_orphan(&self, claim: &Claim) -> Result<(), TenancyError> {
        let project = self.read::<Project>(&Key::new(Kind::Project, claim.project.as_str())).await?;
        if project.is_some_and(|found| found.object.metadata.uid.as_ref() == Some(&claim.project_uid)) {
            return Ok(());
        }
        self.mark_releasing(&claim.cluster, &claim.namespace, &claim.project_uid).await.map(|_| ())
    }

    async fn drop_claim(&self, claim: &Claim) -> Result<(), TenancyError> {
        // Looked up again: a resource that this version cannot read is missing in the index and is an error here.
        match self.cluster_uid(&claim.cluster).await {
            Ok(uid) if uid == claim.cluster_uid => return Ok(()),
            Ok(_) | Err(TenancyError::NoCluster(_)) => {}
            Err(error) => return Err(error),
        }
        if self.mark_releasing(&claim.cluster, &claim.namespace, &claim.project_uid).await? {
            self.released(claim).await?;
        }
        Ok(())
    }

    /// Takes out of the ledger of a project that is gone what no claim stands behind.
    async fn empty_orphan(&self, snapshot: &Snapshot, key: &str, ledger: &Ledger) -> Result<(), TenancyError> {
        let Some((project, cluster)) = key.split_once('/') else { return Ok(()) };
        let alive = snapshot.projects.get(project).and_then(|project| project.object.metadata.uid.as_ref());
        if alive == Some(&ledger.project_uid) {
            return Ok(());
        }
        for namespace in ledger.shares.keys() {
            self.give_back(project, &ledger.project_uid, cluster, namespace).await?;
        }
        Ok(())
    }
}

/// What is to be done for a project, and what cannot be.
fn plan(
    snapshot: &Snapshot,
    name: &str,
    project: &Project,
    claims: &[&Claim],
    now: Timestamp,
) -> (Vec<Act>, Vec<Problem>) {
    let uid = project.metadata.uid.as_deref().unwrap_or_default();
    let (mut acts, mut problems) = (vec![], vec![]);
    let mut releases = vec![];
    for claim in claims.iter().filter(|claim| !claim.releasing) {
        let (cluster, namespace) = (claim.cluster.clone(), claim.namespace.clone());
        let place = project.spec.on(&cluster);
        let declared = place.is_some_and(|place| place.declares(&namespace));
        match (claim.origin, declared, place) {
            (ClaimOrigin::Declared, false, _) => releases.push(Act::Release { cluster, namespace }),
            (ClaimOrigin::Created, true, _) => acts.push(Act::Adopt { cluster, namespace }),
            (ClaimOrigin::Created, false, None) => problems.push(Problem {
                cluster,
                namespace,
                message: "the project no longer lists this cluster; list it again, or delete the namespace".to_owned(),
            }),
            _ => {}
        }
    }
    // What is given up makes place for what comes.
    acts.extend(releases);
    for place in &project.spec.clusters {
        let ledger = snapshot.ledgers.get(format!("{name}/{}", place.cluster).as_str());
        let ledger = ledger.map(|ledger| &ledger.object).filter(|ledger| ledger.project_uid == uid);
        plan_ledger(place, ledger, claims, now, &mut acts);
        for namespace in &place.namespaces {
            match snapshot.claim(&place.cluster, namespace) {
                None => acts.push(Act::Claim { cluster: place.cluster.clone(), namespace: namespace.clone() }),
                Some(claim) if claim.object.project_uid == uid => {}
                Some(_) => problems.push(Problem {
                    cluster: place.cluster.clone(),
                    namespace: namespace.clone(),
                    message: taken(&place.cluster, namespace).to_string(),
                }),
            }
        }
    }
    (acts, problems)
}

fn plan_ledger(
    place: &ProjectCluster,
    ledger: Option<&Ledger>,
    claims: &[&Claim],
    now: Timestamp,
    acts: &mut Vec<Act>,
) {
    let cluster = &place.cluster;
    let claimed = |namespace: &str| claims.iter().any(|c| c.cluster == *cluster && c.namespace == namespace);
    if let Some(ledger) = ledger {
        for namespace in ledger.shares.keys().filter(|namespace| !claimed(namespace)) {
            let fresh = ledger.pending.get(namespace).and_then(|at| at.parse::<Timestamp>().ok());
            if fresh.is_none_or(|at| now.duration_since(at) >= LEFT_BEHIND) {
                acts.push(Act::GiveBack { cluster: cluster.clone(), namespace: namespace.clone() });
            }
        }
        let mut wanted = ledger.clone();
        // A quota that cannot be read is reported by the act.
        let short = ledger::reshare(&mut wanted, place);
        if wanted.shares != ledger.shares || !short.is_ok_and(|short| short.is_empty()) {
            acts.push(Act::Reshare { cluster: cluster.clone() });
        }
    }
    for claim in claims.iter().filter(|claim| claim.cluster == *cluster && !claim.releasing) {
        let share = ledger.is_some_and(|l| l.shares.contains_key(&claim.namespace));
        let pending = ledger.is_some_and(|l| l.pending.contains_key(&claim.namespace));
        if !share || pending {
            acts.push(Act::Secure { cluster: cluster.clone(), namespace: claim.namespace.clone() });
        }
    }
}

/// Whether nothing that is planned from differs between two snapshots.
fn same_tenancy(a: &Snapshot, b: &Snapshot) -> bool {
    a.projects.ptr_eq(&b.projects)
        && a.claims.ptr_eq(&b.claims)
        && a.ledgers.ptr_eq(&b.ledgers)
        && a.clusters.ptr_eq(&b.clusters)
        && a.reservations.ptr_eq(&b.reservations)
}

fn report(what: &str, result: Result<(), TenancyError>) {
    if let Err(why) = result {
        warn!(what, %why, "tenancy is repaired later");
    }
}
