mod access_role;
mod accounts;
mod cluster;
mod grant;
mod metadata;
mod project;

use serde_json::json;

use super::*;

/// Everything else, as a test wants it.
#[derive(Default)]
struct World {
    clusters: Vec<&'static str>,
    roles: BTreeMap<String, RoleSpec>,
    projects: BTreeMap<&'static str, ProjectSpec>,
    /// (cluster, namespace, project, project UID)
    claims: Vec<[&'static str; 4]>,
    reserved: Vec<&'static str>,
}

impl World {
    fn role(mut self, name: &str, inherits: &[&str]) -> Self {
        let inherits = inherits.iter().map(|s| s.to_string()).collect();
        self.roles.insert(name.to_owned(), RoleSpec { inherits, ..RoleSpec::default() });
        self
    }

    fn project(mut self, name: &'static str, spec: Value) -> Self {
        self.projects.insert(name, serde_json::from_value(spec).unwrap());
        self
    }
}

impl References for World {
    fn now(&self) -> Timestamp {
        "2030-01-01T00:00:00Z".parse().unwrap()
    }

    fn cluster_exists(&self, name: &str) -> bool {
        self.clusters.contains(&name)
    }

    fn access_roles(&self) -> BTreeMap<String, RoleSpec> {
        self.roles.clone()
    }

    fn project(&self, name: &str) -> Option<&ProjectSpec> {
        self.projects.get(name)
    }

    fn projects(&self) -> Vec<(&str, &ProjectSpec)> {
        self.projects.iter().map(|(name, spec)| (*name, spec)).collect()
    }

    fn claims_on(&self, cluster: &str) -> Vec<ClaimedNamespace<'_>> {
        let here = self.claims.iter().filter(|claim| claim[0] == cluster);
        here.map(|[_, namespace, project, project_uid]| ClaimedNamespace { namespace, project, project_uid }).collect()
    }

    fn is_reserved(&self, project: &str) -> bool {
        self.reserved.contains(&project)
    }
}

fn object(kind: ResourceKind, name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "bailiwick.dev/v1alpha1", "kind": kind.as_str(),
        "metadata": {"name": name, "uid": format!("uid-{name}")}, "spec": spec,
    })
}

/// The fields that are wrong, sorted.
fn wrong(kind: ResourceKind, old: Option<&Value>, new: &Value, world: &World) -> Vec<String> {
    let mut fields: Vec<_> =
        validate(kind, old, new, world).err().unwrap_or_default().into_iter().map(|cause| cause.field).collect();
    fields.sort();
    fields
}

/// Creating `spec` must be refused for exactly these fields.
#[track_caller]
fn refused(kind: ResourceKind, world: &World, spec: Value, fields: &[&str]) {
    assert_eq!(wrong(kind, None, &object(kind, "x", spec.clone()), world), fields, "{spec}");
}

/// Creating `spec` must be accepted.
#[track_caller]
fn accepted(kind: ResourceKind, world: &World, spec: Value) {
    assert_eq!(validate(kind, None, &object(kind, "x", spec.clone()), world), Ok(()), "{spec}");
}

/// `base` with the member at a JSON pointer replaced.
fn with(base: &Value, pointer: &str, value: Value) -> Value {
    let mut changed = base.clone();
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    match changed.pointer_mut(parent).unwrap() {
        Value::Array(items) => items[key.parse::<usize>().unwrap()] = value,
        parent => parent[key] = value,
    }
    changed
}
