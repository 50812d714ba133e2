//! Gives up a namespace: deletes it where it is ours, waits until it is gone, and forgets the claim.

use std::collections::BTreeSet;

use kube::ResourceExt as _;
use kube::api::DynamicObject;

use super::adoption;
use super::calls::{self, CallError, api};
use super::kinds::ObjectKind;
use super::shared::Phase;
use super::tend::{Outcome, Ownership, Sight, ownership};
use crate::clusters::names::{PROJECT, PROJECT_UID};
use crate::records::Claim;

impl Sight<'_> {
    pub(super) async fn release(&self, claim: &Claim, outcome: &mut Outcome) -> Result<(Phase, String), CallError> {
        let namespaces = api(self.client, ObjectKind::Namespace, "");
        // Asked anew: what was watched may be a moment old, and the claim goes for good.
        let Some(seen) = calls::get(&namespaces, &claim.namespace).await? else {
            return self.let_go(claim, outcome).await;
        };
        if ownership(claim, &seen) == Ownership::Stranger {
            // Where the cluster's administrator took it over by removing our labels, our bindings still stand in it.
            if claim.namespace_uid.is_some() && claim.namespace_uid == seen.uid() {
                self.revoke(&claim.namespace, &BTreeSet::new(), outcome).await?;
            }
            return self.let_go(claim, outcome).await;
        }
        if seen.metadata.deletion_timestamp.is_some() {
            return Ok((Phase::Terminating, "the cluster is deleting it".to_owned()));
        }
        // Rights go at once; deletion takes its time.
        self.revoke(&claim.namespace, &BTreeSet::new(), outcome).await?;
        if claim.adopt {
            // It was there before us: nothing of ours stays, and all else does.
            self.remove_others(&claim.namespace, &BTreeSet::new(), outcome).await?;
            let given = adoption::give_back(self.client, &seen).await?;
            outcome.written.push((ObjectKind::Namespace, given));
            return self.let_go(claim, outcome).await;
        }
        if seen.labels().get(PROJECT_UID) != Some(&claim.project_uid) {
            // Moved and given up before it was labelled anew. Only what carries the claim's own label is deleted.
            let labels = serde_json::json!({
                "metadata": {"labels": {PROJECT: claim.project, PROJECT_UID: claim.project_uid}},
            });
            let labelled = calls::merge(&namespaces, &claim.namespace, &labels).await?;
            outcome.written.push((ObjectKind::Namespace, DynamicObject::clone(&labelled)));
        }
        if claim.namespace_uid.is_some() && claim.namespace_uid != seen.uid() {
            // Ours by label, and another one than was recorded: made anew by us and not recorded yet.
            tracing::info!(cluster = claim.cluster, namespace = claim.namespace, "a namespace made anew is deleted");
        }
        calls::delete(&namespaces, &seen).await?;
        Ok((Phase::Terminating, "its deletion was asked for".to_owned()))
    }

    async fn let_go(&self, claim: &Claim, outcome: &mut Outcome) -> Result<(Phase, String), CallError> {
        if let Err(error) = self.shared.tenancy.released(claim).await {
            outcome.again = true;
            return Ok((Phase::Terminating, error.to_string()));
        }
        Ok((Phase::Terminating, "it is gone".to_owned()))
    }
}
