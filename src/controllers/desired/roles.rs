//! ClusterRoles: the rules of the roles that a cluster's projects use, cut to what tenants reach there.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::clusters::names::{MANAGED, MANAGED_VALUE, role_name};
use crate::domain::rbac::{BUILT_IN_GROUPS, PolicyRule};
use crate::domain::roles::BUILT_IN;
use crate::index::Snapshot;

/// The ClusterRoles by name. `listed` are the API groups that the cluster's own administrators let roles name.
pub fn desired(snapshot: &Snapshot, cluster: &str, listed: &BTreeSet<String>) -> BTreeMap<String, Value> {
    let mut names: BTreeSet<&str> = BUILT_IN.into_iter().collect();
    for project in snapshot.projects.values() {
        if project.object.spec.on(cluster).is_some() {
            names.extend(project.object.spec.roles.iter().map(String::as_str));
        }
    }
    // Projects that left the cluster and still have namespaces there.
    for claim in snapshot.claims_on(cluster) {
        if let Some(project) = snapshot.projects.get(claim.object.project.as_str()) {
            names.extend(project.object.spec.roles.iter().map(String::as_str));
        }
    }
    let reach = |group: &str| {
        snapshot.within_reach(cluster, group) && (BUILT_IN_GROUPS.contains(&group) || listed.contains(group))
    };
    let roles = names.into_iter().filter_map(|name| {
        let rules = snapshot.roles.get(name)?.rules.rules();
        Some((role_name(name), object(name, within(rules, &reach))))
    });
    roles.collect()
}

fn object(role: &str, rules: Vec<PolicyRule>) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": role_name(role), "labels": {MANAGED: MANAGED_VALUE}},
        "rules": rules,
    })
}

/// The rules without the API groups that are out of reach.
fn within(rules: &[PolicyRule], reach: &dyn Fn(&str) -> bool) -> Vec<PolicyRule> {
    let mut kept = vec![];
    for rule in rules {
        let mut rule = rule.clone();
        rule.api_groups.retain(|group| reach(group));
        if !rule.api_groups.is_empty() {
            kept.push(rule);
        }
    }
    kept
}
