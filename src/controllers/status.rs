//! Writes what was seen into Project and Cluster statuses, by compare-and-swap and only on change.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::shared::{Phase, Shared};
use crate::clock;
use crate::index::Snapshot;
use crate::records::Claim;
use crate::resources::condition::set_condition;
use crate::resources::project::{ContestedObject, NamespaceStatus, NetworkIsolation};
use crate::resources::{Cluster, Condition, Project, ProjectStatus};
use crate::store::{Key, Kind, Revision, StoreError};

/// Changes are gathered for so long before they are written.
const PAUSE: Duration = Duration::from_millis(200);
/// Looks at everything again after this time, for what could not be written.
const RESYNC: Duration = Duration::from_secs(30);
/// Use of quotas changes with every Pod; written at most so often per project.
const USE_EVERY: Duration = Duration::from_secs(10);

pub(super) async fn run(shared: Arc<Shared>, shutdown: CancellationToken) {
    let mut states = shared.subscribe();
    let mut changes = shared.index.subscribe();
    let mut written: HashMap<String, Instant> = HashMap::new();
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            changed = states.changed() => if changed.is_err() { return },
            changed = changes.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(RESYNC) => {}
        }
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(PAUSE) => {}
        }
        states.mark_unchanged();
        changes.mark_unchanged();
        write_all(&shared, &mut written).await;
    }
}

async fn write_all(shared: &Shared, written: &mut HashMap<String, Instant>) {
    let snapshot = shared.index.snapshot();
    let mut claims: HashMap<&str, Vec<(&Claim, Revision)>> = HashMap::new();
    for claim in snapshot.claims.values() {
        claims.entry(claim.object.project_uid.as_str()).or_default().push((&claim.object, claim.revision));
    }
    let now = shared.index.now();
    written.retain(|name, _| snapshot.projects.contains_key(name.as_str()));
    for (name, project) in &snapshot.projects {
        let uid = project.object.metadata.uid.as_deref().unwrap_or_default();
        let own = claims.remove(uid).unwrap_or_default();
        let old = project.object.status.clone().unwrap_or_default();
        let new = project_status(shared, &snapshot, name, &old, &own, now);
        if new == old {
            continue;
        }
        let only_use = without_use(&new) == without_use(&old);
        if only_use && written.get(&**name).is_some_and(|at| at.elapsed() < USE_EVERY) {
            continue;
        }
        written.insert(name.to_string(), Instant::now());
        let uid = project.object.metadata.uid.clone();
        let change = |project: &mut Project| {
            let same = project.metadata.uid == uid;
            if same {
                project.status = Some(new.clone());
            }
            same
        };
        report(name, write(shared, Kind::Project, name, change).await);
    }
    for (name, cluster) in &snapshot.clusters {
        let Some(state) = shared.cluster(name) else { continue };
        if cluster.object.metadata.uid.as_ref() != Some(&state.cluster_uid) {
            continue;
        }
        let ok = if state.message.is_empty() { "True" } else { "False" };
        let condition = condition("Reconciled", ok, state.reason, &state.message, now);
        let mut conditions = cluster.object.status.clone().unwrap_or_default().conditions;
        if !set_condition(&mut conditions, condition.clone()) {
            continue;
        }
        let change = |cluster: &mut Cluster| {
            let same = cluster.metadata.uid.as_ref() == Some(&state.cluster_uid);
            same && set_condition(&mut cluster.status.get_or_insert_default().conditions, condition.clone())
        };
        report(name, write(shared, Kind::Cluster, name, change).await);
    }
}

/// What is known of a project's namespaces.
fn project_status(
    shared: &Shared,
    snapshot: &Snapshot,
    name: &str,
    old: &ProjectStatus,
    claims: &[(&Claim, Revision)],
    now: Timestamp,
) -> ProjectStatus {
    let mut namespaces: BTreeMap<(&str, &str), NamespaceStatus> = BTreeMap::new();
    for (claim, _) in claims {
        let state = shared.namespace(&claim.cluster, &claim.namespace);
        let state = state.filter(|state| state.project_uid == claim.project_uid);
        let mut status = NamespaceStatus {
            cluster: claim.cluster.clone(),
            name: claim.namespace.clone(),
            ..NamespaceStatus::default()
        };
        (status.state, status.message) = match &state {
            _ if claim.releasing => {
                let message = state.as_ref().map(|state| state.message.clone());
                (Phase::Terminating.as_str().to_owned(), message.unwrap_or_else(|| waiting(snapshot, claim)))
            }
            Some(state) => (state.phase.as_str().to_owned(), state.message.clone()),
            None => (Phase::Pending.as_str().to_owned(), waiting(snapshot, claim)),
        };
        if let Some(state) = state {
            (status.hard, status.used, status.opened_by) = (state.hard, state.used, state.opened_by);
            status.adoption = state.adoption;
            status.refusals = shared.refused.of(&claim.cluster, &claim.namespace);
            let contested = state.contested.into_iter();
            status.contested = contested
                .map(|contest| ContestedObject {
                    kind: format!("{:?}", contest.kind),
                    name: contest.name,
                    manager: contest.manager,
                })
                .collect();
        }
        namespaces.insert((&claim.cluster, &claim.namespace), status);
    }
    let problems = shared.tenancy.problems(name);
    for problem in problems.iter().filter(|problem| !problem.namespace.is_empty()) {
        let status = namespaces.entry((&problem.cluster, &problem.namespace)).or_insert_with(|| NamespaceStatus {
            cluster: problem.cluster.clone(),
            name: problem.namespace.clone(),
            state: Phase::Refused.as_str().to_owned(),
            ..NamespaceStatus::default()
        });
        if status.message.is_empty() {
            status.message.clone_from(&problem.message);
        }
    }
    let not_ready: Vec<&NamespaceStatus> =
        namespaces.values().filter(|status| status.state != Phase::Ready.as_str()).collect();
    let general = problems.iter().find(|problem| problem.namespace.is_empty()).map(|problem| problem.message.clone());
    let (status, reason, message) = match (not_ready.first(), general.or(problems.first().map(|p| p.message.clone()))) {
        (None, None) => ("True", "AsWanted", String::new()),
        (None, Some(problem)) => ("False", "NotAsWanted", problem),
        (Some(first), _) => {
            let message = format!(
                "{} of {} namespaces are not ready; {} on {}: {}",
                not_ready.len(),
                namespaces.len(),
                first.name,
                first.cluster,
                first.message
            );
            ("False", "NamespacesNotReady", message)
        }
    };
    let mut conditions = old.conditions.clone();
    set_condition(&mut conditions, condition("Ready", status, reason, &message, now));
    let isolated =
        snapshot.projects.get(name).is_some_and(|p| p.object.spec.network_isolation != NetworkIsolation::None);
    special_conditions(&mut conditions, &namespaces.values().collect::<Vec<_>>(), isolated, now);
    ProjectStatus {
        conditions,
        ready: status.to_owned(),
        namespace_count: u32::try_from(claims.iter().filter(|(claim, _)| !claim.releasing).count()).unwrap_or(u32::MAX),
        namespaces: namespaces.into_values().collect(),
    }
}

/// `Isolated` and `Contested`.
fn special_conditions(
    conditions: &mut Vec<Condition>,
    namespaces: &[&NamespaceStatus],
    isolated: bool,
    now: Timestamp,
) {
    let opened: Vec<String> = namespaces
        .iter()
        .filter(|status| !status.opened_by.is_empty())
        .map(|status| format!("{} on {}: {}", status.name, status.cluster, status.opened_by.join(", ")))
        .collect();
    if !isolated {
        conditions.retain(|condition| condition.type_ != "Isolated");
    } else if opened.is_empty() {
        set_condition(conditions, condition("Isolated", "True", "AsWanted", "", now));
    } else {
        let message = format!(
            "NetworkPolicies of others let more through than the project's isolation: {}; the cluster's administrator \
             can delete them, or members while networkIsolation is None",
            some(&opened)
        );
        set_condition(conditions, condition("Isolated", "False", "OtherPolicies", &message, now));
    }
    let contested: Vec<String> = namespaces
        .iter()
        .flat_map(|status| status.contested.iter().map(move |object| (status, object)))
        .map(|(status, object)| {
            let ContestedObject { kind, name, manager } = object;
            let who = manager.as_deref().map_or("somebody".to_owned(), |manager| format!("field manager {manager:?}"));
            format!("{who} keeps changing {kind} {name} in namespace {} on {}", status.name, status.cluster)
        })
        .collect();
    if !contested.is_empty() {
        let message = format!("{}; it is put right ever more rarely until that stops", some(&contested));
        set_condition(conditions, condition("Contested", "True", "AnotherApplier", &message, now));
    } else if conditions.iter().any(|condition| condition.type_ == "Contested") {
        set_condition(conditions, condition("Contested", "False", "Settled", "", now));
    }
}

/// The first few of a list.
fn some(list: &[String]) -> String {
    match list.len().saturating_sub(3) {
        0 => list.join("; "),
        more => format!("{}; and {more} more", list[..3].join("; ")),
    }
}

fn waiting(snapshot: &Snapshot, claim: &Claim) -> String {
    match snapshot.observed(claim.cluster.as_str()) {
        None => format!("cluster {:?} has not been reached", claim.cluster),
        Some(seen) if !seen.usable => format!("cluster {:?} cannot be worked on: {}", claim.cluster, seen.reason),
        Some(_) => "being set up".to_owned(),
    }
}

fn condition(type_: &str, status: &str, reason: &str, message: &str, now: Timestamp) -> Condition {
    Condition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        last_transition_time: clock::rfc3339(now),
    }
}

fn without_use(status: &ProjectStatus) -> ProjectStatus {
    let mut status = status.clone();
    for namespace in &mut status.namespaces {
        namespace.used.clear();
        namespace.refusals.clear();
    }
    status
}

/// Reads, changes and writes a resource; nothing where `change` says so, or the resource is gone.
async fn write<T: DeserializeOwned + Serialize>(
    shared: &Shared,
    kind: Kind,
    name: &str,
    change: impl Fn(&mut T) -> bool,
) -> Result<(), String> {
    let key = Key::new(kind, name);
    for _ in 0..100 {
        let Some(entry) = shared.store.get(&key).await.map_err(|e| e.to_string())? else { return Ok(()) };
        let mut object: T = serde_json::from_slice(&entry.value).map_err(|e| e.to_string())?;
        if !change(&mut object) {
            return Ok(());
        }
        let value = Bytes::from(serde_json::to_vec(&object).map_err(|e| e.to_string())?);
        match shared.store.update(key.clone(), entry.revision, value).await {
            Ok(_) | Err(StoreError::NotFound(_)) => return Ok(()),
            Err(StoreError::Conflict { .. }) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    Err("changed too often".to_owned())
}

fn report(name: &str, result: Result<(), String>) {
    if let Err(why) = result {
        warn!(name, why, "a status is written later");
    }
}
