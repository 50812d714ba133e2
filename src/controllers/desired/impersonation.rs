//! Clusters without constrained impersonation: whom the forwarding account may act for, by name.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::clusters::names::{legacy_cluster_user, legacy_user};
use crate::domain::names::{cluster_group, project_group};
use crate::domain::roles::BUILT_IN;
use crate::index::Snapshot;

/// Rules of `bailiwick:legacy-impersonate`: the users and groups of the projects that have namespaces on the cluster,
/// and those of grants on the cluster itself.
pub fn rules(snapshot: &Snapshot, cluster: &str) -> Value {
    let (mut users, mut groups) = (BTreeSet::new(), BTreeSet::new());
    for claim in snapshot.claims_on(cluster).filter(|claim| !claim.object.releasing) {
        let (project, uid) = (claim.object.project.as_str(), claim.object.project_uid.as_str());
        if !users.insert(legacy_user(project, uid)) {
            continue;
        }
        let own = snapshot.projects.get(project).map(|project| project.object.spec.roles.as_slice());
        let own = own.unwrap_or_default().iter().map(String::as_str);
        groups.extend(BUILT_IN.into_iter().chain(own).map(|role| project_group(project, uid, role)));
    }
    if users.is_empty() {
        return json!([]);
    }
    if let Some(uid) = snapshot.clusters.get(cluster).and_then(|cluster| cluster.object.metadata.uid.as_deref()) {
        // Whoever holds nothing but a grant on the cluster acts as its user.
        users.insert(legacy_cluster_user(cluster, uid));
        groups.extend(BUILT_IN.map(|role| cluster_group(cluster, uid, role)));
    }
    json!([
        {"apiGroups": [""], "resources": ["users"], "resourceNames": users, "verbs": ["impersonate"]},
        {"apiGroups": [""], "resources": ["groups"], "resourceNames": groups, "verbs": ["impersonate"]},
    ])
}
