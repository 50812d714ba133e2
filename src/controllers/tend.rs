//! Brings one claimed namespace to what it must be.

use std::collections::{BTreeMap, BTreeSet};

use kube::api::DynamicObject;
use kube::{Client, ResourceExt as _};

use super::adoption;
use super::calls::{self, CallError, api};
use super::contest::{Contests, Object};
use super::desired::{self, NotYet, Place};
use super::kinds::{ObjectKind, is_managed};
use super::observed::{Observed, kept_by_us, other_manager};
use super::shared::{NamespaceState, Phase, Shared};
use crate::clusters::names::{PROJECT, PROJECT_UID, ROLE_BINDINGS_QUOTA_KEY};
use crate::clusters::probe::PROBE_NAMESPACE;
use crate::index::{Snapshot, Stored};
use crate::records::Claim;
use crate::resources::project::{AdoptionReport, NetworkIsolation};

/// What came of one look at a namespace.
#[derive(Default)]
pub(super) struct Outcome {
    /// Objects as the API server has them after our writes.
    pub(super) written: Vec<(ObjectKind, DynamicObject)>,
    /// Objects that we deleted.
    pub(super) deleted: Vec<(ObjectKind, DynamicObject)>,
    /// Its state, for a claim.
    pub(super) state: Option<NamespaceState>,
    /// Objects that were not as they must be, and who changed them last.
    pub(super) righted: Vec<(Object, Option<String>)>,
    /// What adopting the namespace would mean.
    pub(super) adoption: Option<AdoptionReport>,
    /// Whether to try again by and by.
    pub(super) again: bool,
}

/// What a look needs.
#[derive(Clone, Copy)]
pub(super) struct Sight<'a> {
    pub(super) client: &'a Client,
    pub(super) snapshot: &'a Snapshot,
    pub(super) observed: &'a Observed,
    pub(super) shared: &'a Shared,
    pub(super) contests: &'a Contests,
}

/// Whose a namespace is, seen from a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ownership {
    /// The claim's: we made it for this project, or it was recorded as the claim's before.
    Ours,
    /// Somebody else's, or one that came after ours went.
    Stranger,
}

/// Whether a namespace says that it is the project's of this UID.
fn bears(namespace: &DynamicObject, project_uid: &str) -> bool {
    namespace.labels().get(PROJECT_UID).is_some_and(|uid| uid == project_uid)
}

/// Whose a namespace is. Its label alone suffices only with the claim's own project UID, which nobody but us sets. A
/// recorded UID suffices while any project's label stands: after a move it is still the former project's.
pub(super) fn ownership(claim: &Claim, namespace: &DynamicObject) -> Ownership {
    let labels = namespace.labels();
    let ours = bears(namespace, &claim.project_uid) && labels.contains_key(PROJECT);
    let recorded = claim.namespace_uid.is_some() && claim.namespace_uid == namespace.uid();
    match (ours, recorded, labels.contains_key(PROJECT)) {
        (true, ..) | (false, true, true) => Ownership::Ours,
        _ => Ownership::Stranger,
    }
}

impl Sight<'_> {
    /// Looks at a namespace, claimed or not.
    pub(super) async fn tend(&self, cluster: &str, namespace: &str) -> Outcome {
        let mut outcome = Outcome::default();
        if namespace == PROBE_NAMESPACE {
            // Nobody's, and bound like a project's on purpose: the self-test keeps it.
            return outcome;
        }
        let Some(claim) = self.snapshot.claim(cluster, namespace) else {
            if let Err(error) = self.revoke(namespace, &BTreeSet::new(), &mut outcome).await {
                tracing::warn!(cluster, namespace, %error, "bindings of a namespace that is no project's remain");
                outcome.again = true;
            }
            return outcome;
        };
        let done = if claim.object.releasing {
            self.release(&claim.object, &mut outcome).await
        } else {
            self.keep(claim, &mut outcome).await
        };
        let (phase, message) = match done {
            Ok((phase, message)) => (phase, message),
            Err(error) => {
                outcome.again = true;
                (if claim.object.releasing { Phase::Terminating } else { Phase::Pending }, error.to_string())
            }
        };
        let (hard, used) = self.quota(namespace);
        outcome.state = Some(NamespaceState {
            project_uid: claim.object.project_uid.clone(),
            claim: claim.revision,
            phase,
            message,
            hard,
            used,
            // Who else applies it is known when this is settled.
            contested: vec![],
            adoption: outcome.adoption.take(),
            opened_by: self.opened_by(&claim.object),
        });
        outcome
    }

    async fn keep(&self, claim: &Stored<Claim>, outcome: &mut Outcome) -> Result<(Phase, String), CallError> {
        let claim = &claim.object;
        let place = match Place::of(self.snapshot, claim) {
            Ok(place) => place,
            // The snapshot will change when there is more to see.
            Err(why @ (NotYet::NoShare | NotYet::NoProject | NotYet::OtherCluster)) => {
                return Ok((Phase::Pending, why.to_string()));
            }
        };
        let namespaces = api(self.client, ObjectKind::Namespace, "");
        let wanted = desired::namespace::desired(&place);
        let namespace = match self.observed.namespace(&claim.namespace) {
            Some(seen) => DynamicObject::clone(seen),
            None if claim.adopt => {
                let message = "there is no namespace of this name on the cluster that could be adopted; release it";
                return Ok((Phase::Refused, message.to_owned()));
            }
            None => match calls::create(&namespaces, &wanted).await? {
                Some(created) => {
                    outcome.written.push((ObjectKind::Namespace, created.clone()));
                    created
                }
                // The watch has not brought it yet.
                None => match calls::get(&namespaces, &claim.namespace).await? {
                    Some(there) => there,
                    None => {
                        outcome.again = true;
                        return Ok((Phase::Pending, "the namespace went while it was looked at".to_owned()));
                    }
                },
            },
        };
        let mut namespace = namespace;
        if ownership(claim, &namespace) == Ownership::Stranger && adoption::consented(&namespace, place.project_uid) {
            if !claim.adopt {
                let report = adoption::report(self.client, &place, &namespace).await?;
                let message = format!(
                    "a namespace of this name exists on the cluster, and the project may adopt it; what that means is in \
                     adoption. It is done with: bailiwick project adopt {} {}/{}",
                    claim.project, claim.cluster, claim.namespace
                );
                outcome.adoption = Some(report);
                return Ok((Phase::Refused, message));
            }
            namespace = adoption::adopt(self.client, &place, &namespace).await?;
            outcome.written.push((ObjectKind::Namespace, namespace.clone()));
        }
        if ownership(claim, &namespace) == Ownership::Stranger {
            // What is left there of a project that had the name before gives nobody any right.
            self.revoke(&claim.namespace, &BTreeSet::new(), outcome).await?;
            let message = format!(
                "a namespace of this name exists on the cluster and is not the project's; it is left alone. The cluster's \
                 administrator can delete it; {}",
                adoption::how_to_consent(place.project_uid, place.namespace)
            );
            return Ok((Phase::Refused, message));
        }
        if namespace.metadata.deletion_timestamp.is_some() {
            return Ok((
                Phase::Pending,
                "the namespace is being deleted in the cluster; it is made again after".into(),
            ));
        }
        let objects = place.objects();
        // Rights of a former owner go before the new one's come, and policies before their label changes.
        let names: BTreeSet<(ObjectKind, &str)> =
            objects.iter().filter_map(|(kind, object)| Some((*kind, object["metadata"]["name"].as_str()?))).collect();
        let moved = !bears(&namespace, place.project_uid);
        let kept = if moved { &BTreeSet::new() } else { &names };
        self.revoke(&claim.namespace, kept, outcome).await?;
        self.remove_others(&claim.namespace, &names, outcome).await?;
        let object = (claim.namespace.clone(), ObjectKind::Namespace, claim.namespace.clone());
        if !ObjectKind::Namespace.agrees(&namespace, &wanted) && !self.contests.held(&object) {
            outcome.righted.push((object, other_manager(&namespace)));
            let applied = calls::apply(&namespaces, ObjectKind::Namespace, &claim.namespace, &wanted).await?;
            outcome.written.push((ObjectKind::Namespace, applied.clone()));
            namespace = applied;
        }
        let mut failures = vec![];
        for (kind, object) in &objects {
            // One that fails does not keep the others from being right.
            if let Err(error) = self.keep_object(*kind, &claim.namespace, object, outcome).await {
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                failures.push(format!("{kind:?} {name}: {error}"));
            }
        }
        if !failures.is_empty() {
            outcome.again = true;
            return Ok((Phase::Pending, failures.join("; ")));
        }
        let uid = namespace.uid().unwrap_or_default();
        let unrecorded = claim.namespace_uid.as_ref() != Some(&uid) || claim.since.is_none();
        // Only what already bears the project's UID is of a time in which it was the project's.
        if unrecorded && bears(&namespace, place.project_uid) {
            // A cluster whose resource versions are no numbers has no order of them that could be held against it.
            let since = namespace.resource_version().and_then(|version| version.parse().ok()).unwrap_or_default();
            let tenancy = &self.shared.tenancy;
            let recorded =
                tenancy.record_namespace(&claim.cluster, &claim.namespace, &claim.project_uid, &uid, since).await;
            if let Err(error) = recorded {
                outcome.again = true;
                return Ok((Phase::Pending, error.to_string()));
            }
        }
        Ok((Phase::Ready, String::new()))
    }

    async fn keep_object(
        &self,
        kind: ObjectKind,
        namespace: &str,
        object: &serde_json::Value,
        outcome: &mut Outcome,
    ) -> Result<(), CallError> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let gone = outcome.deleted.iter().any(|(k, o)| *k == kind && o.name_any() == name);
        let seen = self.observed.get(kind, namespace, name).filter(|_| !gone);
        if seen.is_some_and(|seen| kind.agrees(seen, object)) {
            return Ok(());
        }
        let key = (namespace.to_owned(), kind, name.to_owned());
        if self.contests.held(&key) {
            return Ok(());
        }
        outcome.righted.push((key, seen.and_then(|seen| other_manager(seen))));
        let api = api(self.client, kind, namespace);
        if let Some(seen) = seen.filter(|seen| kind == ObjectKind::RoleBinding && other_role(seen, object)) {
            // A binding's role cannot be changed.
            calls::delete(&api, seen).await?;
        }
        let applied = calls::apply(&api, kind, name, object).await?;
        outcome.written.push((kind, applied));
        Ok(())
    }

    /// Deletes the RoleBindings of ours that are not among `kept`.
    pub(super) async fn revoke(
        &self,
        namespace: &str,
        kept: &BTreeSet<(ObjectKind, &str)>,
        outcome: &mut Outcome,
    ) -> Result<(), CallError> {
        self.remove(ObjectKind::RoleBinding, namespace, kept, outcome).await
    }

    pub(super) async fn remove_others(
        &self,
        namespace: &str,
        kept: &BTreeSet<(ObjectKind, &str)>,
        outcome: &mut Outcome,
    ) -> Result<(), CallError> {
        for kind in [ObjectKind::NetworkPolicy, ObjectKind::LimitRange, ObjectKind::ResourceQuota] {
            self.remove(kind, namespace, kept, outcome).await?;
        }
        Ok(())
    }

    async fn remove(
        &self,
        kind: ObjectKind,
        namespace: &str,
        kept: &BTreeSet<(ObjectKind, &str)>,
        outcome: &mut Outcome,
    ) -> Result<(), CallError> {
        for seen in self.observed.ours(kind, namespace) {
            let name = seen.name_any();
            if kept.contains(&(kind, name.as_str())) || !is_managed(&seen) || !kept_by_us(&seen) {
                continue;
            }
            calls::delete(&api(self.client, kind, namespace), &seen).await?;
            outcome.deleted.push((kind, DynamicObject::clone(&seen)));
        }
        Ok(())
    }

    fn opened_by(&self, claim: &Claim) -> Vec<String> {
        let project = self.snapshot.projects.get(claim.project.as_str()).map(|project| &project.object.spec);
        match project.map(|spec| spec.network_isolation) {
            None | Some(NetworkIsolation::None) => vec![],
            Some(NetworkIsolation::Project | NetworkIsolation::Namespace) => self.observed.opened_by(&claim.namespace),
        }
    }

    /// What the cluster says of the quota, without the cap that projects need not know of.
    fn quota(&self, namespace: &str) -> (BTreeMap<String, String>, BTreeMap<String, String>) {
        let quota = self.observed.get(ObjectKind::ResourceQuota, namespace, desired::quota::NAME);
        let read = |field: &str| {
            let map = quota.and_then(|quota| quota.data.get("status")?.get(field)?.as_object());
            let entries = map.into_iter().flatten().filter(|(key, _)| *key != ROLE_BINDINGS_QUOTA_KEY);
            entries.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
        };
        (read("hard"), read("used"))
    }
}

fn other_role(seen: &DynamicObject, object: &serde_json::Value) -> bool {
    seen.data.get("roleRef") != object.get("roleRef")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_namespace_is_ours_by_label_or_by_recorded_uid_with_a_label_and_else_a_strangers() {
        let claim = |recorded: Option<&str>| -> Claim {
            serde_json::from_value(json!({
                "cluster": "demo", "cluster_uid": "c", "namespace": "shop-dev", "namespace_uid": recorded,
                "project": "shop", "project_uid": "shop-uid", "origin": "created", "releasing": false,
                "created_by": "jane", "created_at": "2026-01-01T00:00:00Z",
            }))
            .unwrap()
        };
        let namespace = |labels: Value| -> DynamicObject {
            let metadata = json!({"name": "shop-dev", "uid": "ns-uid", "labels": labels});
            serde_json::from_value(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})).unwrap()
        };
        let ours = json!({PROJECT: "shop", PROJECT_UID: "shop-uid"});
        let former = json!({PROJECT: "web", PROJECT_UID: "web-uid"});
        let by_name_only = json!({PROJECT: "shop", PROJECT_UID: "an older shop"});
        for (recorded, labels, whose) in [
            (None, ours.clone(), Ownership::Ours),
            (Some("ns-uid"), ours.clone(), Ownership::Ours),
            // Made anew by us after somebody deleted it.
            (Some("an older one"), ours, Ownership::Ours),
            // Moved: the label is still the former project's.
            (Some("ns-uid"), former.clone(), Ownership::Ours),
            (None, former.clone(), Ownership::Stranger),
            (Some("an older one"), former, Ownership::Stranger),
            (None, by_name_only, Ownership::Stranger),
            (None, json!({}), Ownership::Stranger),
            // Its administrator took it over.
            (Some("ns-uid"), json!({}), Ownership::Stranger),
        ] {
            assert_eq!(ownership(&claim(recorded), &namespace(labels.clone())), whose, "{recorded:?} {labels}");
        }
    }
}
