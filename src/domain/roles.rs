//! The roles that come with the service, and how a role's effective rules are found.
//!
//! The tables are our own. The stock ClusterRole `edit` of Kubernetes 1.36 would hand out impersonation of service
//! accounts and `pods/proxy`, and cluster operators may aggregate anything into it.

use std::collections::{BTreeMap, BTreeSet};

use super::rbac::PolicyRule;
use super::request::INTERACTIVE;

/// The role of a project's owner: members, quota shares, and the whole of `admin` in its namespaces.
pub const OWNER: &str = "owner";
/// The role of those who work in a project.
pub const MEMBER: &str = "member";
/// The role of those who look.
pub const VIEWER: &str = "viewer";
/// The roles bound in every project namespace.
pub const BUILT_IN: [&str; 3] = [OWNER, MEMBER, VIEWER];

/// Kinds of the whole cluster, with their API group, that every tenant may read: the proxy permits it, and the import
/// manifest binds it to the group of all tenants.
pub const TENANT_READABLE: [(&str, &str); 3] = [
    ("storage.k8s.io", "storageclasses"),
    ("networking.k8s.io", "ingressclasses"),
    ("scheduling.k8s.io", "priorityclasses"),
];

/// Platform role with every right on our own resources, and none in any cluster.
pub const PLATFORM_ADMIN: &str = "admin";
/// Platform role that reads everything and changes nothing.
pub const PLATFORM_AUDITOR: &str = "auditor";
/// The fixed platform roles; their rights are in `policies/`.
pub const PLATFORM: [&str; 2] = [PLATFORM_ADMIN, PLATFORM_AUDITOR];

/// A table of rules that a role starts from.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Base {
    /// Reading, without Secrets.
    View,
    /// Reading and writing workloads, Secrets and service accounts; exec, attach and port-forward.
    Edit,
    /// As `edit`, Roles and RoleBindings for the project's own service accounts, and labels and annotations of the namespace.
    Admin,
}

const READ: &[&str] = &["get", "list", "watch"];
const WRITE: &[&str] = &["create", "update", "patch", "delete", "deletecollection"];

fn rule(group: &str, resources: &[&str], verbs: &[&[&str]]) -> PolicyRule {
    PolicyRule {
        api_groups: vec![group.to_owned()],
        resources: resources.iter().map(|r| r.to_string()).collect(),
        verbs: verbs.iter().flat_map(|v| v.iter()).map(|v| v.to_string()).collect(),
        resource_names: vec![],
    }
}

const CORE: &[&str] = &[
    "pods",
    "services",
    "endpoints",
    "configmaps",
    "persistentvolumeclaims",
    "serviceaccounts",
    "replicationcontrollers",
];
const APPS: &[&str] = &["deployments", "statefulsets", "daemonsets", "replicasets"];
const SCALES: &[&str] = &["deployments/scale", "statefulsets/scale", "replicasets/scale"];
const NETWORKING: &[&str] = &["ingresses", "networkpolicies"];
const RBAC: &str = "rbac.authorization.k8s.io";

/// The rules of a base table. Each table contains the one before it.
pub fn base_rules(base: Base) -> Vec<PolicyRule> {
    let mut rules = view();
    if base >= Base::Edit {
        rules.extend(edit());
    }
    if base >= Base::Admin {
        rules.push(rule(RBAC, &["roles", "rolebindings"], &[WRITE]));
        // Labels and annotations, of which the proxy and the guards let through those that members may set.
        rules.push(rule("", &["namespaces"], &[&["update", "patch"]]));
    }
    rules
}

fn view() -> Vec<PolicyRule> {
    vec![
        rule("", &["namespaces"], &[&["get"]]),
        rule("", CORE, &[READ]),
        rule("", &["pods/log", "pods/status", "services/status", "persistentvolumeclaims/status"], &[READ]),
        rule("", &["replicationcontrollers/scale", "replicationcontrollers/status", "pods/resize"], &[READ]),
        rule("", &["events", "resourcequotas", "resourcequotas/status", "limitranges"], &[READ]),
        rule("apps", APPS, &[READ]),
        rule("apps", SCALES, &[READ]),
        rule(
            "apps",
            &["deployments/status", "statefulsets/status", "daemonsets/status", "replicasets/status"],
            &[READ],
        ),
        rule("apps", &["controllerrevisions"], &[READ]),
        rule("batch", &["jobs", "cronjobs", "jobs/status", "cronjobs/status"], &[READ]),
        rule("autoscaling", &["horizontalpodautoscalers", "horizontalpodautoscalers/status"], &[READ]),
        rule("policy", &["poddisruptionbudgets", "poddisruptionbudgets/status"], &[READ]),
        rule("networking.k8s.io", NETWORKING, &[READ]),
        rule("networking.k8s.io", &["ingresses/status"], &[READ]),
        rule("discovery.k8s.io", &["endpointslices"], &[READ]),
        rule("events.k8s.io", &["events"], &[READ]),
        rule("coordination.k8s.io", &["leases"], &[READ]),
        rule(RBAC, &["roles", "rolebindings"], &[READ]),
        rule("metrics.k8s.io", &["pods"], &[READ]),
    ]
}

fn edit() -> Vec<PolicyRule> {
    vec![
        // Endpoints stay read-only: written by hand they may point into other namespaces (CVE-2021-25740).
        rule(
            "",
            &["pods", "services", "configmaps", "persistentvolumeclaims", "serviceaccounts", "replicationcontrollers"],
            &[WRITE],
        ),
        rule("", &["secrets"], &[READ, WRITE]),
        // get and create: a WebSocket exec is a GET whose create right is checked too (Kubernetes 1.35 on).
        rule("", &INTERACTIVE, &[&["get", "create"]]),
        rule("", &["pods/ephemeralcontainers", "pods/resize"], &[&["get", "update", "patch"]]),
        rule("", &["pods/eviction", "serviceaccounts/token"], &[&["create"]]),
        rule("", &["replicationcontrollers/scale"], &[&["update", "patch"]]),
        rule("", &["events"], &[&["create", "update", "patch"]]),
        rule("events.k8s.io", &["events"], &[&["create", "update", "patch"]]),
        rule("apps", APPS, &[WRITE]),
        rule("apps", SCALES, &[&["update", "patch"]]),
        rule("batch", &["jobs", "cronjobs"], &[WRITE]),
        rule("autoscaling", &["horizontalpodautoscalers"], &[WRITE]),
        rule("policy", &["poddisruptionbudgets"], &[WRITE]),
        rule("networking.k8s.io", NETWORKING, &[WRITE]),
        rule("coordination.k8s.io", &["leases"], &[WRITE]),
    ]
}

/// What a role says of itself: its base, its own rules, the roles that it inherits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RoleSpec {
    /// Table that the role starts from.
    pub base: Option<Base>,
    /// Rules beyond the base.
    pub rules: Vec<PolicyRule>,
    /// Roles whose effective rules are added.
    pub inherits: Vec<String>,
}

/// The three built-in roles, ready to stand beside those that people write.
pub fn built_in(name: &str) -> Option<RoleSpec> {
    let base = match name {
        OWNER => Base::Admin,
        MEMBER => Base::Edit,
        VIEWER => Base::View,
        _ => return None,
    };
    Some(RoleSpec { base: Some(base), ..RoleSpec::default() })
}

/// Why a role has no effective rules.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RoleError {
    /// The role, or one that it inherits, does not exist.
    #[error("role {0:?} does not exist")]
    Unknown(String),
    /// The role inherits itself by way of these.
    #[error("roles inherit each other in a circle: {}", .0.join(" -> "))]
    Cycle(Vec<String>),
}

/// The rules that `name` gives in the end, with inheritance resolved. A broken link gives nothing at all rather than
/// less than was written: a role that cannot be explained should not be used.
pub fn effective_rules(name: &str, roles: &BTreeMap<String, RoleSpec>) -> Result<Vec<PolicyRule>, RoleError> {
    let mut path = vec![];
    let mut done = BTreeSet::new();
    let mut rules = vec![];
    collect(name, roles, &mut path, &mut done, &mut rules)?;
    Ok(rules)
}

fn collect(
    name: &str,
    roles: &BTreeMap<String, RoleSpec>,
    path: &mut Vec<String>,
    done: &mut BTreeSet<String>,
    rules: &mut Vec<PolicyRule>,
) -> Result<(), RoleError> {
    if path.iter().any(|p| p == name) {
        path.push(name.to_owned());
        return Err(RoleError::Cycle(path.clone()));
    }
    if done.contains(name) {
        return Ok(());
    }
    let spec = match built_in(name) {
        Some(spec) => spec,
        None => roles.get(name).cloned().ok_or_else(|| RoleError::Unknown(name.to_owned()))?,
    };
    path.push(name.to_owned());
    if let Some(base) = spec.base {
        rules.extend(base_rules(base));
    }
    rules.extend(spec.rules);
    for inherited in &spec.inherits {
        collect(inherited, roles, path, done, rules)?;
    }
    path.pop();
    done.insert(name.to_owned());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::rbac::{Attributes, RuleSet};
    use super::*;

    fn may(base: Base, verb: &str, group: &str, resource: &str) -> bool {
        RuleSet::new(base_rules(base)).permits(Attributes { verb, group, resource, name: "x" }).is_some()
    }

    #[test]
    fn viewers_read_but_no_secrets_and_no_exec() {
        assert!(may(Base::View, "list", "apps", "deployments"));
        assert!(may(Base::View, "get", "", "pods/log"));
        for (verb, resource) in [
            ("get", "secrets"),
            ("list", "secrets"),
            ("create", "pods/exec"),
            ("get", "pods/exec"),
            ("get", "pods/portforward"),
            ("create", "pods"),
            ("update", "namespaces"),
        ] {
            assert!(!may(Base::View, verb, "", resource), "viewer must not {verb} {resource}");
        }
    }

    #[test]
    fn members_work_but_cannot_grant() {
        for (verb, group, resource) in [
            ("create", "", "pods/exec"),
            ("get", "", "pods/exec"),
            ("patch", "", "pods/ephemeralcontainers"),
            ("delete", "apps", "deployments"),
            ("get", "", "secrets"),
            ("create", "", "serviceaccounts/token"),
        ] {
            assert!(may(Base::Edit, verb, group, resource), "member must be able to {verb} {resource}");
        }
        for (verb, group, resource) in [
            ("create", RBAC, "rolebindings"),
            ("update", "", "resourcequotas"),
            ("delete", "", "limitranges"),
            ("patch", "", "namespaces"),
            ("get", "", "pods/proxy"),
            ("create", "", "services/proxy"),
            ("get", "", "nodes/proxy"),
            ("impersonate", "", "serviceaccounts"),
            ("create", "", "endpoints"),
            ("create", "discovery.k8s.io", "endpointslices"),
        ] {
            assert!(!may(Base::Edit, verb, group, resource), "member must not {verb} {resource}");
        }
    }

    #[test]
    fn owners_bind_roles_but_never_bind_or_escalate() {
        assert!(may(Base::Admin, "create", RBAC, "rolebindings"));
        for verb in ["bind", "escalate", "*"] {
            assert!(!may(Base::Admin, verb, RBAC, "roles"), "{verb}");
        }
        assert!(!may(Base::Admin, "update", "", "resourcequotas"));
    }

    #[test]
    fn no_base_has_a_wildcard_or_a_strange_verb() {
        for rule in base_rules(Base::Admin) {
            for value in rule.api_groups.iter().chain(&rule.resources).chain(&rule.verbs) {
                assert!(!value.contains('*'), "{rule}");
            }
            assert!(rule.verbs.iter().all(|v| super::super::rbac::VERBS.contains(&v.as_str())), "{rule}");
        }
    }

    #[test]
    fn inheritance_adds_up_and_circles_are_refused() {
        let spec = |inherits: &[&str]| RoleSpec {
            inherits: inherits.iter().map(|s| s.to_string()).collect(),
            ..RoleSpec::default()
        };
        let mut roles = BTreeMap::new();
        roles.insert("a".to_owned(), spec(&["b", "viewer"]));
        roles.insert("b".to_owned(), spec(&["viewer"]));
        assert_eq!(effective_rules("a", &roles).unwrap(), base_rules(Base::View));
        roles.insert("b".to_owned(), spec(&["a"]));
        assert_eq!(effective_rules("a", &roles), Err(RoleError::Cycle(vec!["a".into(), "b".into(), "a".into()])));
        roles.insert("b".to_owned(), spec(&["gone"]));
        assert_eq!(effective_rules("a", &roles), Err(RoleError::Unknown("gone".into())));
    }

    #[test]
    fn a_diamond_is_no_circle_and_holds_by_either_side() {
        let spec = |inherits: &[&str]| RoleSpec {
            inherits: inherits.iter().map(|s| s.to_string()).collect(),
            ..RoleSpec::default()
        };
        let mut roles: BTreeMap<String, RoleSpec> = [
            ("top", spec(&["left", "right"])),
            ("left", spec(&["bottom"])),
            ("right", spec(&["bottom"])),
            ("bottom", spec(&["viewer"])),
        ]
        .map(|(name, spec)| (name.to_owned(), spec))
        .into();
        let view = base_rules(Base::View);
        assert_eq!(effective_rules("top", &roles).unwrap(), view, "each rule once");
        roles.insert("left".to_owned(), spec(&[]));
        assert_eq!(effective_rules("top", &roles).unwrap(), view, "by the other side");
        roles.insert("right".to_owned(), spec(&[]));
        assert_eq!(effective_rules("top", &roles).unwrap(), [], "by neither");
        roles.insert("bottom".to_owned(), spec(&["top"]));
        roles.insert("right".to_owned(), spec(&["bottom"]));
        assert!(matches!(effective_rules("top", &roles), Err(RoleError::Cycle(_))));
    }
}
