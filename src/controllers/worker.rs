//! The task of one cluster.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use kube::{Client, ResourceExt as _};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::calls::{self, api};
use super::contest::{Contests, Object};
use super::desired;
use super::kinds::{ObjectKind, is_managed};
use super::observed::{Observed, Seen, Touched, kept_by_us, other_manager, watch_all};
use super::shared::{ClusterState, Phase, Shared};
use super::tend::{Outcome, Sight};
use crate::clusters::manifest::tenant_groups;
use crate::clusters::names::{GROUPS_POLICY, LEGACY_IMPERSONATE, ROLE_PREFIX};
use crate::clusters::probe::probe_role;
use crate::index::{Impersonation, Snapshot};
use crate::metrics::{ClusterLabel, ClusterResultLabel, Success};
use crate::store::Revision;

/// Namespaces that are worked on at the same time.
const WIDTH: usize = 8;
/// Namespaces of one batch, between two looks at what the watches brought.
const BATCH: usize = 64;
/// After this time everything is compared again, whether anything woke us or not.
const RESYNC: Duration = Duration::from_secs(60);
/// First and longest pause before a namespace that failed is tried again; doubled each time.
const RETRY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(60));

/// What a namespace's objects are computed from: revisions of claim and ledger, and what the project's spec says. Not the
/// project's revision, which each change of its status raises.
type Basis = (Revision, u64, Revision);

/// Failures of one namespace.
#[derive(Debug, Clone, Default)]
struct Trouble {
    failures: u32,
    // When to try again, where that is asked for.
    due: Option<Instant>,
}

pub(super) struct Worker {
    cluster: String,
    cluster_uid: String,
    client: Client,
    shared: Arc<Shared>,
    observed: Observed,
    dirty: BTreeSet<String>,
    roles_dirty: bool,
    roles_trouble: Vec<String>,
    roles_failures: u32,
    // When to try the roles again, where some failed.
    roles_due: Option<Instant>,
    // Of namespaces that were brought to what they must be.
    done: HashMap<String, Basis>,
    troubles: HashMap<String, Trouble>,
    contests: Contests,
    // What each project's spec says, as a hash, and the revision that it was read from.
    specs: HashMap<String, (Revision, u64)>,
    // The ClusterRoles as they were wanted last.
    roles_done: BTreeMap<String, serde_json::Value>,
    last: Option<Arc<Snapshot>>,
}

impl Worker {
    pub(super) fn new(cluster: String, cluster_uid: String, client: Client, shared: Arc<Shared>) -> Self {
        let contests = Contests::new(shared.pace);
        Self {
            cluster,
            cluster_uid,
            client,
            shared,
            observed: Observed::default(),
            dirty: BTreeSet::new(),
            roles_dirty: true,
            roles_trouble: vec![],
            roles_failures: 0,
            roles_due: None,
            done: HashMap::new(),
            troubles: HashMap::new(),
            contests,
            specs: HashMap::new(),
            roles_done: BTreeMap::new(),
            last: None,
        }
    }

    pub(super) async fn run(mut self, stop: CancellationToken) {
        let mut events = watch_all(&self.client);
        let mut changes = self.shared.index.subscribe();
        let mut resync = tokio::time::interval(RESYNC);
        resync.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let (mut worked, mut lapsed) = (false, false);
        loop {
            let due = self.troubles.values().filter_map(|trouble| trouble.due).chain(self.roles_due);
            let due = due.chain(self.contests.due()).min();
            tokio::select! {
                () = stop.cancelled() => return,
                event = events.next() => match event {
                    Some(event) => self.take(event),
                    None => return,
                },
                changed = changes.changed() => if changed.is_err() { return },
                _ = resync.tick() => self.everything(),
                () = sleep_until(due), if due.is_some() => self.take_due(),
                // Work that is left from the last batch.
                () = std::future::ready(()), if self.may_work() => {}
            }
            while let Some(Some(event)) = futures::FutureExt::now_or_never(events.next()) {
                self.take(event);
            }
            let snapshot = self.shared.index.snapshot();
            self.compare(&snapshot);
            let usable = snapshot.observed(self.cluster.as_str()).is_some_and(|seen| seen.usable);
            if !self.observed.complete() || !usable || !self.shared.index.is_fresh() {
                // Nothing is done; what is dirty stays so until something wakes us.
                self.last = None;
                lapsed |= worked && !usable;
                continue;
            }
            if lapsed {
                // The connection may have been made anew, with another credential; a new worker takes its client.
                return;
            }
            worked = true;
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.work(&snapshot) => {}
            }
        }
    }

    /// Whether a batch may follow at once.
    fn may_work(&self) -> bool {
        self.last.is_some() && (!self.dirty.is_empty() || self.roles_dirty)
    }

    fn take(&mut self, (kind, event): Seen) {
        match event {
            Ok(event) => match self.observed.take(kind, event) {
                Touched::Nothing => {}
                Touched::Namespace(name) => self.touch(name),
                Touched::Roles => self.roles_dirty = true,
                Touched::Everything => self.everything(),
            },
            Err(error) => debug!(cluster = self.cluster, ?kind, %error, "a watch is opened again"),
        }
    }

    /// Something happened in a namespace. One that waits because it failed goes on waiting.
    fn touch(&mut self, namespace: String) {
        if self.troubles.get(&namespace).is_none_or(|trouble| trouble.due.is_none()) {
            self.dirty.insert(namespace);
        }
    }

    fn everything(&mut self) {
        self.roles_dirty = true;
        self.last = None;
        let inhabited: Vec<String> = self.observed.inhabited().cloned().collect();
        for namespace in inhabited {
            self.touch(namespace);
        }
        let snapshot = self.shared.index.snapshot();
        let claimed: Vec<String> =
            snapshot.claims_on(&self.cluster).map(|claim| claim.object.namespace.clone()).collect();
        for namespace in claimed {
            self.touch(namespace);
        }
    }

    fn take_due(&mut self) {
        let now = Instant::now();
        if self.roles_due.is_some_and(|due| due <= now) {
            self.roles_due = None;
            self.roles_dirty = true;
        }
        for namespace in self.contests.take_due(now) {
            match namespace.as_str() {
                "" => self.roles_dirty = true,
                _ => self.touch(namespace),
            }
        }
        for (namespace, trouble) in &mut self.troubles {
            if trouble.due.is_some_and(|due| due <= now) {
                trouble.due = None;
                self.dirty.insert(namespace.clone());
            }
        }
    }

    /// Marks what a new snapshot wants otherwise.
    fn compare(&mut self, snapshot: &Arc<Snapshot>) {
        if self.last.as_ref().is_some_and(|last| same(last, snapshot)) {
            return;
        }
        self.roles_dirty = true;
        self.read_specs(snapshot);
        let roles = self.last.as_ref().is_some_and(|last| last.roles.ptr_eq(&snapshot.roles));
        let mut claimed = HashSet::new();
        for claim in snapshot.claims_on(&self.cluster) {
            let namespace = &claim.object.namespace;
            claimed.insert(namespace.as_str());
            let basis = self.basis(snapshot, &claim.object.project, claim.revision);
            if self.done.get(namespace) != Some(&basis) {
                // What is wanted changed: no reason to wait any longer.
                self.troubles.remove(namespace);
                self.contests.forget(namespace);
                self.dirty.insert(namespace.clone());
            } else if !roles && self.troubles.get(namespace).is_none_or(|trouble| trouble.due.is_none()) {
                self.dirty.insert(namespace.clone());
            }
        }
        let unclaimed: Vec<String> =
            self.done.keys().filter(|namespace| !claimed.contains(namespace.as_str())).cloned().collect();
        for namespace in unclaimed {
            self.done.remove(&namespace);
            self.contests.forget(&namespace);
            self.dirty.insert(namespace);
        }
        self.last = Some(snapshot.clone());
    }

    /// One batch.
    async fn work(&mut self, snapshot: &Arc<Snapshot>) {
        if std::mem::take(&mut self.roles_dirty) {
            self.roles_trouble = self.keep_roles(snapshot).await;
            let failed = !self.roles_trouble.is_empty();
            self.roles_failures = if failed { self.roles_failures.saturating_add(1) } else { 0 };
            self.roles_due = failed.then(|| Instant::now() + jittered(backoff(self.roles_failures)));
        }
        let batch: Vec<String> = self.dirty.iter().take(BATCH).cloned().collect();
        for namespace in &batch {
            self.dirty.remove(namespace);
        }
        let outcomes: Vec<(String, Outcome)> = {
            let Self { client, observed, shared, contests, .. } = &*self;
            let sight = Sight { client, snapshot, observed, shared, contests };
            let cluster = self.cluster.as_str();
            futures::stream::iter(batch)
                .map(|namespace| async move {
                    let outcome = sight.tend(cluster, &namespace).await;
                    (namespace, outcome)
                })
                .buffer_unordered(WIDTH)
                .collect()
                .await
        };
        for (namespace, outcome) in outcomes {
            self.settle(snapshot, namespace, outcome);
        }
        self.report(snapshot);
    }

    fn settle(&mut self, snapshot: &Snapshot, namespace: String, outcome: Outcome) {
        let Outcome { written, deleted, righted, adoption: _, mut state, again } = outcome;
        let result = if again { Success::Error } else { Success::Ok };
        let label = ClusterResultLabel { cluster: self.cluster.as_str().into(), result };
        self.shared.metrics.reconciles.get_or_create(&label).inc();
        for (kind, object) in deleted {
            self.observed.remove(kind, &object);
        }
        for (kind, object) in written {
            self.observed.put(kind, object);
        }
        let now = Instant::now();
        let claim = snapshot.claim(&self.cluster, &namespace);
        let basis = claim.map(|claim| self.basis(snapshot, &claim.object.project, claim.revision));
        if again {
            let trouble = self.troubles.entry(namespace.clone()).or_default();
            trouble.failures = trouble.failures.saturating_add(1);
            trouble.due = Some(now + jittered(backoff(trouble.failures)));
        } else {
            self.troubles.remove(&namespace);
            // To put something right with nothing new to want is a revert.
            if basis.is_some() && self.done.get(&namespace) == basis.as_ref() {
                for (object, manager) in righted {
                    self.revert(object, manager, now);
                }
            }
            self.contests.looked(&namespace, now);
        }
        if let Some(state) = &mut state {
            state.contested = self.contests.of(&namespace);
            if state.phase == Phase::Ready && !state.contested.is_empty() {
                let who: Vec<String> = state.contested.iter().map(ToString::to_string).collect();
                state.message =
                    format!("contested: {}; it is put right ever more rarely until that stops", who.join(", "));
            }
        }
        match basis {
            Some(basis) => drop(self.done.insert(namespace.clone(), basis)),
            None => {
                self.done.remove(&namespace);
                if !again {
                    self.troubles.remove(&namespace);
                }
            }
        }
        self.shared.set_namespace(&self.cluster, &namespace, state);
    }

    fn revert(&mut self, object: Object, manager: Option<String>, now: Instant) {
        let (namespace, kind, name) = object.clone();
        if self.contests.reverted(object, manager.clone(), now) {
            warn!(cluster = self.cluster, namespace, ?kind, name, manager, "somebody else keeps changing what is ours");
        }
    }

    fn read_specs(&mut self, snapshot: &Snapshot) {
        let Self { specs, cluster, .. } = self;
        specs.retain(|project, _| snapshot.projects.contains_key(project.as_str()));
        for claim in snapshot.claims_on(cluster) {
            let Some(project) = snapshot.projects.get(claim.object.project.as_str()) else { continue };
            if specs.get(&claim.object.project).is_none_or(|(revision, _)| *revision != project.revision) {
                let metadata = &project.object.metadata;
                let going = metadata.deletion_timestamp.is_some();
                let mut hasher = DefaultHasher::new();
                // A spec always has a JSON form; without one its revision would have to do.
                match serde_json::to_vec(&project.object.spec) {
                    Ok(spec) => (&metadata.uid, going, spec).hash(&mut hasher),
                    Err(_) => project.revision.hash(&mut hasher),
                }
                specs.insert(claim.object.project.clone(), (project.revision, hasher.finish()));
            }
        }
    }

    fn basis(&self, snapshot: &Snapshot, project: &str, claim: Revision) -> Basis {
        let spec = self.specs.get(project).map(|(_, spec)| *spec).unwrap_or_default();
        let ledger = snapshot.ledgers.get(format!("{project}/{}", self.cluster).as_str());
        (claim, spec, ledger.map(|ledger| ledger.revision).unwrap_or_default())
    }

    /// Keeps the ClusterRoles; what failed, for people.
    async fn keep_roles(&mut self, snapshot: &Snapshot) -> Vec<String> {
        let roles = api(&self.client, ObjectKind::ClusterRole, "");
        let mut failures = vec![];
        let wanted = desired::roles::desired(snapshot, &self.cluster, &self.listed_groups().await);
        for (name, object) in &wanted {
            let seen = self.observed.get(ObjectKind::ClusterRole, "", name);
            let key = (String::new(), ObjectKind::ClusterRole, name.clone());
            if seen.is_some_and(|seen| ObjectKind::ClusterRole.agrees(seen, object)) || self.contests.held(&key) {
                continue;
            }
            if self.roles_done.get(name) == Some(object) {
                let manager = seen.and_then(|seen| other_manager(seen));
                self.revert(key, manager, Instant::now());
            }
            match calls::apply(&roles, ObjectKind::ClusterRole, name, object).await {
                Ok(applied) => self.observed.put(ObjectKind::ClusterRole, applied),
                Err(error) => failures.push(format!("ClusterRole {name}: {error}")),
            }
        }
        self.contests.looked("", Instant::now());
        failures.extend(self.contests.of("").iter().map(|contest| format!("contested: {contest}")));
        for seen in self.observed.ours(ObjectKind::ClusterRole, "") {
            let name = seen.name_any();
            let ours = name.starts_with(ROLE_PREFIX) && name != probe_role() && is_managed(&seen) && kept_by_us(&seen);
            if !ours || wanted.contains_key(&name) {
                continue;
            }
            match calls::delete(&roles, &seen).await {
                Ok(()) => self.observed.remove(ObjectKind::ClusterRole, &seen),
                Err(error) => failures.push(format!("ClusterRole {name}: {error}")),
            }
        }
        self.roles_done = wanted;
        let form = snapshot.observed(self.cluster.as_str()).map(|seen| seen.impersonation);
        if form == Some(Impersonation::Limited)
            && let Err(error) = self.keep_impersonation(snapshot).await
        {
            failures.push(format!("ClusterRole {LEGACY_IMPERSONATE}: {error}"));
        }
        failures
    }

    /// The list of whom forwarding may act for, on clusters that know only the older verb.
    async fn keep_impersonation(&self, snapshot: &Snapshot) -> Result<(), calls::CallError> {
        let roles = api(&self.client, ObjectKind::ClusterRole, "");
        let rules = desired::impersonation::rules(snapshot, &self.cluster);
        let wanted = serde_json::json!({"rules": rules});
        // It carries no label of ours, because the import manifest made it; so it is read, not watched.
        let seen = calls::get(&roles, LEGACY_IMPERSONATE).await?;
        if seen.is_some_and(|seen| ObjectKind::ClusterRole.agrees(&seen, &wanted)) {
            return Ok(());
        }
        calls::merge(&roles, LEGACY_IMPERSONATE, &wanted).await.map(|_| ())
    }

    /// API groups that the cluster's administrators let roles name. Where the list cannot be read it is empty.
    async fn listed_groups(&self) -> BTreeSet<String> {
        let resource = kube::api::ApiResource::erase::<ValidatingAdmissionPolicy>(&());
        match calls::get(&kube::Api::all_with(self.client.clone(), &resource), GROUPS_POLICY).await {
            Ok(policy) => {
                let policy = policy.and_then(|policy| policy.try_parse::<ValidatingAdmissionPolicy>().ok());
                policy.as_ref().and_then(tenant_groups).unwrap_or_default().into_iter().collect()
            }
            Err(error) => {
                warn!(cluster = self.cluster, %error, "the list of API groups cannot be read");
                BTreeSet::new()
            }
        }
    }

    /// Says how the cluster is doing.
    fn report(&self, snapshot: &Snapshot) {
        let mut failing = self.roles_trouble.clone();
        let mut count = 0;
        for claim in snapshot.claims_on(&self.cluster) {
            let state = self.shared.namespace(&self.cluster, &claim.object.namespace);
            if let Some(state) = state.filter(|state| state.phase == Phase::Pending && !state.message.is_empty()) {
                count += 1;
                if failing.len() < 3 {
                    failing.push(format!("{}: {}", claim.object.namespace, state.message));
                }
            }
        }
        let contested = i64::try_from(self.contests.count()).unwrap_or(i64::MAX);
        let label = ClusterLabel { cluster: self.cluster.as_str().into() };
        self.shared.metrics.contested.get_or_create(&label).set(contested);
        let (reason, message) = match failing.is_empty() {
            true => ("AsWanted", String::new()),
            false => ("Failing", format!("{} ({count} namespaces)", failing.join("; "))),
        };
        let cluster_uid = self.cluster_uid.clone();
        self.shared.set_cluster(&self.cluster, ClusterState { cluster_uid, reason, message });
    }
}

async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

/// Whether two snapshots want the same of every cluster.
fn same(a: &Snapshot, b: &Snapshot) -> bool {
    a.claims.ptr_eq(&b.claims)
        && a.projects.ptr_eq(&b.projects)
        && a.ledgers.ptr_eq(&b.ledgers)
        && a.roles.ptr_eq(&b.roles)
        && a.clusters.ptr_eq(&b.clusters)
}

fn backoff(failures: u32) -> Duration {
    let (first, longest) = RETRY;
    first.saturating_mul(1 << failures.saturating_sub(1).min(10)).min(longest)
}

/// Between three quarters and the whole of a time, so that what failed together does not come back together.
pub(super) fn jittered(time: Duration) -> Duration {
    let mut byte = [0u8; 1];
    // Without random bytes the pause is simply the whole.
    if getrandom::fill(&mut byte).is_err() {
        return time;
    }
    time.mul_f64(0.75 + f64::from(byte[0]) / 1020.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound() {
        let pauses: Vec<_> = [1, 2, 3, 8, 1000].map(|n| backoff(n).as_millis()).into();
        assert_eq!(pauses, [500, 1000, 2000, 60_000, 60_000]);
        for _ in 0..100 {
            let pause = jittered(Duration::from_secs(4));
            assert!((3..=4).contains(&pause.as_secs()), "{pause:?}");
        }
    }
}
