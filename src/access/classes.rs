//! Which classes of fields a change touches: from the old and the new object, never from the patch.

use std::collections::{BTreeMap, BTreeSet};

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::questions::{METADATA, OBJECT, STATUS, UNKNOWN};
use crate::domain::quantity::check_quota;
use crate::resources::project::{Changes, NetworkIsolation, PodSecurity, ProjectCluster};
use crate::resources::{AccessRoleSpec, ClusterSpec, GrantSpec, ProjectSpec, TeamSpec, UserSpec};
use crate::store::Kind;

/// Metadata that the service keeps itself; a difference in it is no change by the caller.
const KEPT: [&str; 7] = [
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generateName",
    "generation",
    "managedFields",
    "resourceVersion",
];

/// Field classes of a change, sorted; never empty. `old` is absent at creation, `new` at deletion.
///
/// A field without a class of its own, and a spec that cannot be read, are of class `unknown`, which only
/// administrators may touch. Creation and deletion have the class `object`, for a grant that of its target.
pub fn field_classes(kind: Kind, old: Option<&Value>, new: Option<&Value>) -> Vec<&'static str> {
    let mut classes = BTreeSet::new();
    match (old, new) {
        (Some(old), Some(new)) => {
            compare_envelopes(old, new, &mut classes);
            if spec_of(old) != spec_of(new) {
                compare_specs(kind, old, new, &mut classes);
            }
        }
        (None, Some(one)) | (Some(one), None) => {
            classes.insert(if kind == Kind::Grant { target_class(one) } else { OBJECT });
            if old.is_none() && one.get("status").is_some_and(|status| !status.is_null()) {
                classes.insert(STATUS);
            }
        }
        (None, None) => {}
    }
    if classes.is_empty() {
        classes.insert(OBJECT);
    }
    classes.into_iter().collect()
}

fn spec_of(object: &Value) -> &Value {
    object.get("spec").unwrap_or(&Value::Null)
}

fn target_class(grant: &Value) -> &'static str {
    match grant.pointer("/spec/target/kind").and_then(Value::as_str) {
        Some("Project") => "grant.project",
        Some("Cluster") => "grant.cluster",
        Some("Platform") => "grant.platform",
        _ => UNKNOWN,
    }
}

/// Everything outside the spec.
fn compare_envelopes(old: &Value, new: &Value, classes: &mut BTreeSet<&'static str>) {
    for field in fields(old, new) {
        let (old, new) = (old.get(field), new.get(field));
        if absent(old) == absent(new) {
            continue;
        }
        match field {
            "spec" => {}
            "status" => drop(classes.insert(STATUS)),
            "metadata" => {
                let (old, new) = (old.unwrap_or(&Value::Null), new.unwrap_or(&Value::Null));
                for field in fields(old, new).filter(|field| !KEPT.contains(field)) {
                    if absent(old.get(field)) != absent(new.get(field)) {
                        classes.insert(if matches!(field, "labels" | "annotations") { METADATA } else { UNKNOWN });
                    }
                }
            }
            _ => drop(classes.insert(UNKNOWN)),
        }
    }
}

/// Null, and an empty map or list, say no more than nothing.
fn absent(value: Option<&Value>) -> Option<&Value> {
    value.filter(|value| match value {
        Value::Null => false,
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        _ => true,
    })
}

fn fields<'a>(old: &'a Value, new: &'a Value) -> impl Iterator<Item = &'a str> {
    let names = |value: &'a Value| value.as_object().into_iter().flatten().map(|(name, _)| name.as_str());
    names(old).chain(names(new)).collect::<BTreeSet<_>>().into_iter()
}

fn compare_specs(kind: Kind, old: &Value, new: &Value, classes: &mut BTreeSet<&'static str>) {
    let readable = match kind {
        Kind::Cluster => both(old, new, cluster, classes),
        Kind::User => both(old, new, user, classes),
        Kind::Team => both(old, new, team, classes),
        Kind::AccessRole => both(old, new, access_role, classes),
        Kind::Grant => {
            classes.extend([target_class(old), target_class(new)]);
            both(old, new, grant, classes)
        }
        Kind::Project => both(old, new, project, classes),
        _ => None,
    };
    if readable.is_none() {
        classes.insert(UNKNOWN);
    }
}

type Classes = BTreeSet<&'static str>;

/// Compares two specs that can both be read; `None` where one cannot.
fn both<T: DeserializeOwned>(
    old: &Value,
    new: &Value,
    compare: fn(&T, &T, &mut Classes),
    classes: &mut Classes,
) -> Option<()> {
    let read = |object| T::deserialize(spec_of(object)).ok();
    compare(&read(old)?, &read(new)?, classes);
    Some(())
}

fn touch(class: &'static str, touched: bool, classes: &mut Classes) {
    if touched {
        classes.insert(class);
    }
}

// Each spec is taken apart whole, so that a new field does not compile until it has a class.

fn cluster(old: &ClusterSpec, new: &ClusterSpec, classes: &mut Classes) {
    let ClusterSpec { display_name, connection, accepted_versions, tenant_api_groups } = new;
    touch("cluster.presentation", old.display_name != *display_name, classes);
    touch("cluster.connection", old.connection != *connection, classes);
    touch("cluster.versions", old.accepted_versions != *accepted_versions, classes);
    touch("cluster.reach", old.tenant_api_groups != *tenant_api_groups, classes);
}

fn user(old: &UserSpec, new: &UserSpec, classes: &mut Classes) {
    let UserSpec { display_name, email, type_, disabled } = new;
    touch("user.presentation", old.display_name != *display_name || old.email != *email, classes);
    touch("user.type", old.type_ != *type_, classes);
    touch("user.disabled", old.disabled != *disabled, classes);
}

fn team(old: &TeamSpec, new: &TeamSpec, classes: &mut Classes) {
    let TeamSpec { display_name, users } = new;
    touch("team.presentation", old.display_name != *display_name, classes);
    touch("team.members", old.users != *users, classes);
}

fn access_role(old: &AccessRoleSpec, new: &AccessRoleSpec, classes: &mut Classes) {
    let AccessRoleSpec { base, rules, inherits } = new;
    touch("role.rules", old.base != *base || old.rules != *rules || old.inherits != *inherits, classes);
}

/// The class of the target is there already. What cannot change at all is no owner's to try.
fn grant(old: &GrantSpec, new: &GrantSpec, classes: &mut Classes) {
    let GrantSpec { subject, role, target, namespaces: _, expires_at: _, reason: _ } = new;
    touch(UNKNOWN, old.subject != *subject || old.role != *role || old.target != *target, classes);
}

fn project(old: &ProjectSpec, new: &ProjectSpec, classes: &mut Classes) {
    let ProjectSpec { display_name, roles, clusters, pod_security, network_isolation, container_defaults } = new;
    touch("project.presentation", old.display_name != *display_name, classes);
    touch("project.roles", old.roles != *roles, classes);
    touch("project.defaults", old.container_defaults != *container_defaults, classes);
    pod_security_change(&old.pod_security, pod_security, classes);
    let height = |isolation| match isolation {
        NetworkIsolation::None => 0,
        NetworkIsolation::Project => 1,
        NetworkIsolation::Namespace => 2,
    };
    wall(height(old.network_isolation), height(*network_isolation), classes);
    let names = |places: &[ProjectCluster]| places.iter().map(|place| place.cluster.clone()).collect::<Vec<_>>();
    if names(&old.clusters) != names(clusters) {
        // Places came, went or moved: whatever else changed in them is part of that.
        classes.insert("project.placement");
        return;
    }
    for (old, new) in old.clusters.iter().zip(clusters) {
        place_change(old, new, classes);
    }
}

fn pod_security_change(old: &PodSecurity, new: &PodSecurity, classes: &mut Classes) {
    let PodSecurity { enforce, audit, warn } = new;
    for (old, new) in [(old.enforce, *enforce), (old.audit, *audit), (old.warn, *warn)] {
        wall(old, new, classes);
    }
}

/// A wall that gets higher or lower.
fn wall<T: Ord>(old: T, new: T, classes: &mut Classes) {
    touch("project.security", new < old, classes);
    touch("project.security.tighten", new > old, classes);
}

fn place_change(old: &ProjectCluster, new: &ProjectCluster, classes: &mut Classes) {
    let ProjectCluster { cluster, namespaces, prefix, max_namespaces, changes, git, quota, shares } = new;
    let moved = old.cluster != *cluster || old.prefix != *prefix || old.max_namespaces != *max_namespaces;
    touch("project.placement", moved, classes);
    touch("project.namespaces", old.namespaces != *namespaces, classes);
    touch("project.shares", old.shares != *shares, classes);
    wall(old.changes, *changes, classes);
    touch("project.presentation", old.git != *git && *changes == Changes::Git, classes);
    if old.quota != *quota {
        touch("project.quota", !is_lower(&old.quota, quota), classes);
        touch("project.quota.lower", is_lower(&old.quota, quota), classes);
    }
}

/// Whether every limit of the old quota still stands, none of them higher.
fn is_lower(old: &BTreeMap<String, String>, new: &BTreeMap<String, String>) -> bool {
    old.iter().all(|(key, before)| {
        let limit = |amount: &String| check_quota(key, amount).ok();
        let now = new.get(key).and_then(limit);
        matches!((limit(before), now), (Some(before), Some(now)) if now <= before)
    })
}

#[cfg(test)]
mod tests;
