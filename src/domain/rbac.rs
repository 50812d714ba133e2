//! Kubernetes RBAC semantics over rules without wildcards.
//!
//! Roles here name every API group, resource and verb. A wildcard would silently grant whatever a later Kubernetes
//! version or a custom resource adds, and a wildcard verb has matched custom verbs with dire effect elsewhere.
//! Matching follows <https://kubernetes.io/docs/reference/access-authn-authz/rbac/>: rules add up, nothing subtracts,
//! `resourceNames` limits a rule to requests that name one of them.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The eight verbs of resource requests; no other can stand in a role.
pub const VERBS: [&str; 8] = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"];

/// API groups that a role may reach on every cluster; a cluster adds its own by `tenantAPIGroups`.
pub const BUILT_IN_GROUPS: [&str; 11] = [
    "",
    "apps",
    "batch",
    "autoscaling",
    "policy",
    "networking.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "coordination.k8s.io",
    "rbac.authorization.k8s.io",
    "metrics.k8s.io",
];

/// One rule of a role: all combinations of its groups, resources and verbs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PolicyRule {
    /// API groups; `""` is the core group.
    pub api_groups: Vec<String>,
    /// Resources, with subresources written as `pods/log`.
    pub resources: Vec<String>,
    /// Verbs out of get, list, watch, create, update, patch, delete, deletecollection.
    pub verbs: Vec<String>,
    /// Where given, only objects of these names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resource_names: Vec<String>,
}

/// What a rule may not say, with the place inside the rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct RuleError {
    /// Path below the rule, for example `resources[1]`.
    pub field: String,
    /// The reason, and what to write instead.
    pub message: String,
}

impl PolicyRule {
    /// Checks that the rule may stand in a role that people write.
    ///
    /// Refused: wildcards; verbs outside [`VERBS`] (so `impersonate`, `bind`, `escalate`); namespaces, quotas and
    /// limit ranges, which are the project's; `*/proxy`, which reaches past RBAC into Pods and nodes; nodes and other
    /// kinds of the whole cluster.
    pub fn check(&self) -> Result<(), RuleError> {
        let fail = |field: String, message: &str| Err(RuleError { field, message: message.to_owned() });
        for (field, values) in [("apiGroups", &self.api_groups), ("resources", &self.resources), ("verbs", &self.verbs)]
        {
            if values.is_empty() {
                return fail(field.to_owned(), "must name at least one");
            }
            if let Some(at) = values.iter().position(|v| v.contains('*')) {
                return fail(format!("{field}[{at}]"), "wildcards are not allowed; name each one");
            }
        }
        for (at, resource) in self.resources.iter().enumerate() {
            let field = format!("resources[{at}]");
            let (main, sub) = resource.split_once('/').unwrap_or((resource, ""));
            let legal = |part: &str| {
                !part.is_empty() && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            };
            if !legal(main) || (resource.contains('/') && !legal(sub)) {
                return fail(field, "must be a lower-case plural name such as pods or pods/log");
            }
            if sub == "proxy" {
                return fail(field, "proxy subresources reach past RBAC and cannot be granted");
            }
            if main == "nodes" || NEVER.contains(&main) {
                return fail(field, "belongs to the whole cluster and cannot be granted in a namespace");
            }
            if matches!(main, "namespaces" | "resourcequotas" | "limitranges") {
                return fail(field, "is managed by the project; change the Project instead");
            }
        }
        for (at, verb) in self.verbs.iter().enumerate() {
            if !VERBS.contains(&verb.as_str()) {
                return fail(
                    format!("verbs[{at}]"),
                    "must be one of get, list, watch, create, update, patch, delete, deletecollection",
                );
            }
        }
        Ok(())
    }
}

/// Kinds of the whole cluster that a namespaced role must never name.
const NEVER: [&str; 4] = ["persistentvolumes", "clusterroles", "clusterrolebindings", "componentstatuses"];

/// What a request asks for, in RBAC's terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes<'a> {
    /// One of [`VERBS`].
    pub verb: &'a str,
    /// API group, `""` for core.
    pub group: &'a str,
    /// Resource with subresource, `pods/log`.
    pub resource: &'a str,
    /// Object name, empty for collections.
    pub name: &'a str,
}

/// The rules of one role, compiled for look-up.
#[derive(Debug, Clone, Default)]
pub struct RuleSet {
    rules: Arc<[PolicyRule]>,
    // In words, as each request's record has them.
    words: Arc<[Box<str>]>,
    // group -> resource[/subresource] -> lines
    lines: HashMap<Box<str>, HashMap<Box<str>, Vec<Line>>>,
}

#[derive(Debug, Clone, Copy)]
struct Line {
    verbs: u8,
    rule: u16,
    named: bool,
}

/// Position of the rule that permitted a request, to be shown with [`RuleSet::describe`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RuleId(u16);

impl RuleSet {
    /// Compiles rules; those beyond the 65,535th are ignored (validation allows far fewer).
    pub fn new(rules: Vec<PolicyRule>) -> Self {
        let mut lines: HashMap<Box<str>, HashMap<Box<str>, Vec<Line>>> = HashMap::new();
        for (at, rule) in rules.iter().enumerate().take(usize::from(u16::MAX)) {
            let verbs = rule.verbs.iter().filter_map(|v| verb_bit(v)).fold(0, |all, bit| all | bit);
            let line = Line { verbs, rule: at as u16, named: !rule.resource_names.is_empty() };
            for group in &rule.api_groups {
                let resources = lines.entry(group.as_str().into()).or_default();
                for resource in &rule.resources {
                    resources.entry(resource.as_str().into()).or_default().push(line);
                }
            }
        }
        let words = rules.iter().map(|rule| rule.to_string().into()).collect();
        Self { rules: rules.into(), words, lines }
    }

    /// The rule that permits the request, if one does. No allocation.
    pub fn permits(&self, asked: Attributes<'_>) -> Option<RuleId> {
        let bit = verb_bit(asked.verb)?;
        let lines = self.lines.get(asked.group)?.get(asked.resource)?;
        lines
            .iter()
            .find(|line| line.verbs & bit != 0 && (!line.named || self.names(line, asked.name)))
            .map(|line| RuleId(line.rule))
    }

    fn names(&self, line: &Line, name: &str) -> bool {
        !name.is_empty() && self.rules[usize::from(line.rule)].resource_names.iter().any(|n| n == name)
    }

    /// The rules as written.
    pub fn rules(&self) -> &[PolicyRule] {
        &self.rules
    }

    /// The rule that permitted a request.
    pub fn rule(&self, rule: RuleId) -> Option<&PolicyRule> {
        self.rules.get(usize::from(rule.0))
    }

    /// A rule in one line, for audit records and explanations.
    pub fn describe(&self, rule: RuleId) -> &str {
        self.words.get(usize::from(rule.0)).map(|words| &**words).unwrap_or_default()
    }
}

fn verb_bit(verb: &str) -> Option<u8> {
    VERBS.iter().position(|v| *v == verb).map(|at| 1 << at)
}

impl fmt::Display for PolicyRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let groups = self.api_groups.iter().map(|g| if g.is_empty() { "core" } else { g }).collect::<Vec<_>>();
        write!(f, "{} on {} in {}", self.verbs.join(","), self.resources.join(","), groups.join(","))?;
        if !self.resource_names.is_empty() {
            write!(f, " named {}", self.resource_names.join(","))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(groups: &[&str], resources: &[&str], verbs: &[&str]) -> PolicyRule {
        let own = |v: &[&str]| v.iter().map(|s| s.to_string()).collect();
        PolicyRule { api_groups: own(groups), resources: own(resources), verbs: own(verbs), resource_names: vec![] }
    }

    fn ask<'a>(verb: &'a str, group: &'a str, resource: &'a str, name: &'a str) -> Attributes<'a> {
        Attributes { verb, group, resource, name }
    }

    #[test]
    fn group_resource_and_verb_must_all_match() {
        let set = RuleSet::new(vec![rule(&[""], &["pods", "pods/log"], &["get", "list"])]);
        assert!(set.permits(ask("get", "", "pods", "a")).is_some());
        assert!(set.permits(ask("get", "", "pods/log", "a")).is_some());
        for refused in [
            ask("create", "", "pods", ""),
            ask("get", "", "pods/exec", "a"),
            // The same resource name in another group is another resource (a look-alike CRD).
            ask("get", "example.com", "pods", "a"),
            ask("*", "", "pods", "a"),
            ask("", "", "pods", "a"),
            ask("get", "", "*", "a"),
        ] {
            assert_eq!(set.permits(refused), None, "{refused:?}");
        }
    }

    #[test]
    fn resource_names_limit_and_never_match_collections() {
        let mut named = rule(&[""], &["secrets"], &["get", "list"]);
        named.resource_names = vec!["tls".into()];
        let set = RuleSet::new(vec![named]);
        assert!(set.permits(ask("get", "", "secrets", "tls")).is_some());
        assert_eq!(set.permits(ask("get", "", "secrets", "db")), None);
        assert_eq!(set.permits(ask("list", "", "secrets", "")), None);
    }

    #[test]
    fn written_rules_are_checked() {
        let ok = rule(&["example.com"], &["widgets", "widgets/status"], &["get", "patch"]);
        assert_eq!(ok.check(), Ok(()));
        for (bad, field) in [
            (rule(&["*"], &["pods"], &["get"]), "apiGroups[0]"),
            (rule(&[""], &["*"], &["get"]), "resources[0]"),
            (rule(&[""], &["pods"], &["*"]), "verbs[0]"),
            (rule(&[""], &["pods"], &["get", "impersonate"]), "verbs[1]"),
            (rule(&["rbac.authorization.k8s.io"], &["roles"], &["escalate"]), "verbs[0]"),
            (rule(&["rbac.authorization.k8s.io"], &["clusterroles"], &["get"]), "resources[0]"),
            (rule(&[""], &["pods/proxy"], &["get"]), "resources[0]"),
            (rule(&[""], &["nodes"], &["get"]), "resources[0]"),
            (rule(&[""], &["nodes/metrics"], &["get"]), "resources[0]"),
            (rule(&[""], &["namespaces"], &["update"]), "resources[0]"),
            (rule(&["example.com"], &["namespaces"], &["create"]), "resources[0]"),
            (rule(&[""], &["resourcequotas/status"], &["patch"]), "resources[0]"),
            (rule(&[""], &["limitranges"], &["delete"]), "resources[0]"),
            (rule(&[""], &["Pods"], &["get"]), "resources[0]"),
            (rule(&[""], &["pods/"], &["get"]), "resources[0]"),
            (rule(&[], &["pods"], &["get"]), "apiGroups"),
            (rule(&[""], &[], &["get"]), "resources"),
            (rule(&[""], &["pods"], &[]), "verbs"),
        ] {
            assert_eq!(bad.check().map_err(|e| e.field), Err(field.to_owned()), "{bad}");
        }
    }

    #[test]
    fn rules_explain_themselves() {
        let set = RuleSet::new(vec![rule(&[""], &["pods/exec"], &["create"])]);
        let id = set.permits(ask("create", "", "pods/exec", "a")).unwrap();
        assert_eq!(set.describe(id), "create on pods/exec in core");
    }
}
