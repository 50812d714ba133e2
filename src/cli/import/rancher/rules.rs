//! What a role template permits, as single rights, and the rules of ours that say the same.
//!
//! A right is one verb on one resource of one group, on one name or on all. Taken apart so, a wildcard becomes what it
//! stands for among the things that our roles know, and what is beyond their reach falls away one by one.

use std::collections::{BTreeMap, BTreeSet};

use super::input::{Entry, Export, RoleTemplate, Rule, Source};
use super::verify::Alone;
use super::{Losses, What};
use crate::domain::rbac::{BUILT_IN_GROUPS, PolicyRule, VERBS};
use crate::domain::roles::{Base, base_rules};
use crate::resources::AccessRoleSpec;
use crate::resources::validation::{Causes, validate_access_role};

/// Most words of one list of a rule, and most rules of a role: those of our validation.
const MAX_WORDS: usize = 100;
const MAX_RULES: usize = 200;
/// API groups all of whose kinds belong to the whole cluster; a right on them in a namespace is none.
const CLUSTER_GROUPS: [&str; 4] =
    ["storage.k8s.io", "scheduling.k8s.io", "node.k8s.io", "flowcontrol.apiserver.k8s.io"];

/// One right.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    pub group: String,
    pub resource: String,
    /// Position in [`VERBS`].
    pub verb: usize,
    /// `None`: all objects.
    pub name: Option<String>,
}

/// Everything that a template gives in a namespace.
#[derive(Debug, Clone, Default)]
pub struct Effective {
    pub rights: BTreeSet<Right>,
    /// Whether it gives every verb on everything.
    pub everything: bool,
}

/// The role templates of an export, each looked at once.
pub struct Templates<'a> {
    export: &'a Export,
    own: BTreeMap<&'a str, Effective>,
}

impl<'a> Templates<'a> {
    pub fn new(export: &'a Export) -> Self {
        Self { export, own: BTreeMap::new() }
    }

    /// What a template and all that it inherits give.
    pub fn effective(&mut self, template: &'a Entry<RoleTemplate>, losses: &mut Losses) -> Effective {
        let mut all = Effective::default();
        let mut seen = BTreeSet::new();
        let mut open = vec![template];
        while let Some(next) = open.pop() {
            let name = next.object.metadata.name.as_str();
            if !seen.insert(name) {
                continue;
            }
            let own = match self.own.get(name) {
                Some(own) => own.clone(),
                None => {
                    let own = own_rights(self.export, next, losses);
                    self.own.insert(name, own.clone());
                    for missing in
                        next.object.role_template_names.iter().filter(|i| !self.export.templates.contains_key(*i))
                    {
                        let message =
                            format!("inherits {missing:?}, which is not in the export: nothing of it is given");
                        losses.note(What::Narrowed, &next.source, "roleTemplateNames", message);
                    }
                    own
                }
            };
            all.everything |= own.everything;
            all.rights.extend(own.rights);
            open.extend(next.object.role_template_names.iter().filter_map(|i| self.export.templates.get(i)));
        }
        all
    }

    /// The templates that were looked at.
    pub fn used(&self) -> BTreeSet<&str> {
        self.own.keys().copied().collect()
    }
}

fn own_rights(export: &Export, template: &Entry<RoleTemplate>, losses: &mut Losses) -> Effective {
    let RoleTemplate { metadata, rules, builtin, external, locked, context, .. } = &template.object;
    let source = &template.source;
    if *locked {
        let message = "is locked against new bindings; there is no such lock here, and those that exist are kept";
        losses.note(What::Dropped, source, "locked", message);
    }
    if !*external {
        return Reading::new(source).read(rules, losses);
    }
    if !rules.is_empty() {
        losses.note(What::Dropped, source, "rules", "an external template has its rules from a ClusterRole");
    }
    if context != "cluster" && !*builtin {
        let message = "external counts for cluster templates only; what this one gives can be read in two ways, and nothing is given";
        losses.note(What::Narrowed, source, "external", message);
        return Effective::default();
    }
    let name = metadata.name.as_str();
    match export.cluster_roles.get(name).map(Vec::as_slice) {
        Some([first, rest @ ..]) => {
            let mut all = Reading::new(&first.source).read(&first.object.rules, losses);
            for other in rest {
                let here = Reading::new(&other.source).read(&other.object.rules, losses);
                all.rights = all.rights.intersection(&here.rights).cloned().collect();
                all.everything &= here.everything;
            }
            let message = format!(
                "its rules are those of the ClusterRole {name:?} in the export; a cluster whose ClusterRole says less would get more than it had"
            );
            losses.note(What::Todo, source, "external", message);
            all
        }
        _ => match stock(name) {
            Some(rights) if *builtin => {
                let message = format!(
                    "the ClusterRole {name:?} is not in the export: what every Kubernetes has in it is given, and nothing that operators added"
                );
                losses.note(What::Narrowed, source, "external", message);
                Effective { rights, everything: false }
            }
            _ => {
                let message = format!(
                    "the ClusterRole {name:?} is not in the export: nothing is given; add kubectl get clusterrole {name} -o yaml"
                );
                losses.note(What::Narrowed, source, "external", message);
                Effective::default()
            }
        },
    }
}

/// The rights in Kubernetes' own ClusterRoles `view`, `edit` and `admin` that our tables know. What differs between the
/// versions since 1.30, and what only add-ons put there, is left out.
fn stock(name: &str) -> Option<BTreeSet<Right>> {
    let base = match name {
        "view" => Base::View,
        "edit" => Base::Edit,
        "admin" => Base::Admin,
        _ => return None,
    };
    let ours_alone = |right: &Right| {
        let (group, resource) = (right.group.as_str(), right.resource.as_str());
        match group {
            "" => matches!(resource, "pods/resize" | "pods/ephemeralcontainers"),
            "metrics.k8s.io" | "events.k8s.io" => true,
            "rbac.authorization.k8s.io" => base < Base::Admin,
            "coordination.k8s.io" => base < Base::Edit,
            _ => false,
        }
    };
    // Namespaces, quotas and limit ranges are read by our base tables alone; a role that people write cannot name them.
    let mut reachable: BTreeMap<(String, String), bool> = BTreeMap::new();
    let mut reached = |right: &Right| {
        let kind = (right.group.clone(), right.resource.clone());
        *reachable.entry(kind).or_insert_with(|| beyond(&right.group, &right.resource, None).is_none())
    };
    Some(table_rights(base).into_iter().filter(|right| !ours_alone(right) && reached(right)).collect())
}

/// The rights of one of our own tables.
pub fn table_rights(base: Base) -> BTreeSet<Right> {
    base_rules(base).iter().flat_map(rights_of).collect()
}

/// A rule of ours, taken apart.
fn rights_of(rule: &PolicyRule) -> BTreeSet<Right> {
    let mut all = BTreeSet::new();
    let verbs = rule.verbs.iter().filter_map(|verb| VERBS.iter().position(|known| known == verb));
    let names: Vec<Option<&String>> =
        if rule.resource_names.is_empty() { vec![None] } else { rule.resource_names.iter().map(Some).collect() };
    for verb in verbs {
        for group in &rule.api_groups {
            for resource in &rule.resources {
                for name in &names {
                    all.insert(Right { group: group.clone(), resource: resource.clone(), verb, name: name.cloned() });
                }
            }
        }
    }
    all
}

/// Why our validation would refuse a rule on this, if it would.
fn beyond(group: &str, resource: &str, name: Option<&str>) -> Option<String> {
    let rule = PolicyRule {
        api_groups: vec![group.to_owned()],
        resources: vec![resource.to_owned()],
        verbs: vec!["get".to_owned()],
        resource_names: name.map(str::to_owned).into_iter().collect(),
    };
    let spec = AccessRoleSpec { base: None, rules: vec![rule], inherits: vec![] };
    let mut causes = Causes::default();
    validate_access_role("imported", &spec, &Alone, &mut causes);
    causes.finish().err()?.into_iter().next().map(|cause| cause.message)
}

/// Reading the rules of one object, with what is lost gathered by its reason.
struct Reading<'a> {
    source: &'a Source,
    lost: BTreeMap<(What, String), BTreeSet<String>>,
}

impl<'a> Reading<'a> {
    fn new(source: &'a Source) -> Self {
        Self { source, lost: BTreeMap::new() }
    }

    fn lose(&mut self, what: What, reason: impl Into<String>, item: impl Into<String>) {
        self.lost.entry((what, reason.into())).or_default().insert(item.into());
    }

    fn read(mut self, rules: &[Rule], losses: &mut Losses) -> Effective {
        let known = known_resources();
        let mut all = Effective::default();
        for rule in rules {
            self.rule(rule, &known, &mut all);
        }
        for ((what, reason), items) in self.lost {
            let items: Vec<String> = items.into_iter().collect();
            losses.note(what, self.source, "rules", format!("{}: {reason}", listed(&items)));
        }
        all
    }

    fn rule(&mut self, rule: &Rule, known: &BTreeMap<String, BTreeSet<String>>, all: &mut Effective) {
        let Rule { api_groups, resources, verbs, resource_names, non_resource_urls } = rule;
        if !non_resource_urls.is_empty() {
            let reason = "paths that name no resource cannot be granted; discovery is open to everybody with a role";
            self.lose(What::Dropped, reason, listed(non_resource_urls));
        }
        if api_groups.is_empty() || resources.is_empty() || verbs.is_empty() {
            return;
        }
        let star = |list: &[String]| list.iter().any(|word| word == "*");
        all.everything |= star(api_groups) && star(resources) && star(verbs) && resource_names.is_empty();
        let verbs = self.verbs(verbs);
        let names = self.names(resource_names);
        if verbs.is_empty() || names.is_empty() {
            return;
        }
        for (group, resource) in self.resources(api_groups, resources, known) {
            for name in &names {
                let right = |verb| Right { group: group.clone(), resource: resource.clone(), verb, name: name.clone() };
                all.rights.extend(verbs.iter().copied().map(right));
            }
        }
    }

    fn verbs(&mut self, verbs: &[String]) -> BTreeSet<usize> {
        let mut found = BTreeSet::new();
        for verb in verbs {
            if verb == "*" {
                let reason =
                    format!("the wildcard verb is dropped; these are written out in its place: {}", VERBS.join(", "));
                self.lose(What::Narrowed, reason, "*");
                found.extend(0..VERBS.len());
            } else if let Some(at) = VERBS.iter().position(|known| known == verb) {
                found.insert(at);
            } else {
                self.lose(What::Dropped, "this verb cannot be granted", verb.as_str());
            }
        }
        found
    }

    /// The names that a rule is limited to. Empty: it gives nothing, because none of its names can be written.
    fn names(&mut self, names: &[String]) -> Vec<Option<String>> {
        if names.is_empty() {
            return vec![None];
        }
        let mut found = vec![];
        for name in names {
            match beyond("", "pods", Some(name)) {
                None => found.push(Some(name.clone())),
                Some(why) => self.lose(What::Dropped, format!("as a resource name it {why}"), name.as_str()),
            }
        }
        found
    }

    fn resources(
        &mut self,
        groups: &[String],
        resources: &[String],
        known: &BTreeMap<String, BTreeSet<String>>,
    ) -> BTreeSet<(String, String)> {
        let mut found = BTreeSet::new();
        for group in groups {
            if group == "cattle.io" || group.ends_with(".cattle.io") {
                self.lose(What::Dropped, "rights on Rancher's own API have no counterpart", group.as_str());
                continue;
            }
            let every_group = group == "*";
            if every_group {
                let reason = "the wildcard group is dropped; the built-in groups are written out in its place";
                self.lose(What::Narrowed, reason, "*");
            }
            for resource in resources {
                let wide = resource == "*" || resource.starts_with("*/");
                if wide {
                    let reason =
                        "the wildcard resource is dropped; the kinds of our tables are written out in its place";
                    self.lose(What::Narrowed, reason, shown(resource, group));
                }
                let candidates: Vec<(&str, &str)> = match (every_group, wide) {
                    (false, false) => vec![(group.as_str(), resource.as_str())],
                    (false, true) => matching(known, group, resource),
                    (true, _) => BUILT_IN_GROUPS.iter().flat_map(|group| matching(known, group, resource)).collect(),
                };
                if candidates.is_empty() {
                    let reason =
                        "nothing of it is in our tables; name groups and resources in an AccessRole where it is wanted";
                    self.lose(What::Dropped, reason, shown(resource, group));
                }
                for (group, resource) in candidates {
                    if CLUSTER_GROUPS.contains(&group) || (group, resource) == ("networking.k8s.io", "ingressclasses") {
                        let reason = "kinds of the whole cluster cannot be granted in a namespace";
                        self.lose(What::Dropped, reason, shown(resource, group));
                        continue;
                    }
                    match beyond(group, resource, None) {
                        None => drop(found.insert((group.to_owned(), resource.to_owned()))),
                        Some(why) => self.lose(What::Dropped, why, shown(resource, group)),
                    }
                }
            }
        }
        found
    }
}

/// The resources of a group that a word of a rule means, by RBAC's rules: `*` is everything, `*/scale` one subresource
/// of everything, all else itself.
fn matching<'k>(known: &'k BTreeMap<String, BTreeSet<String>>, group: &str, word: &str) -> Vec<(&'k str, &'k str)> {
    let Some((group, resources)) = known.get_key_value(group) else { return vec![] };
    let subresource = word.strip_prefix("*/");
    let means = |resource: &str| match subresource {
        Some(sub) => resource.split_once('/').is_some_and(|(_, have)| have == sub),
        None => word == "*" || resource == word,
    };
    resources.iter().filter(|resource| means(resource)).map(|resource| (group.as_str(), resource.as_str())).collect()
}

/// Every resource that our tables name, by group.
fn known_resources() -> BTreeMap<String, BTreeSet<String>> {
    let mut known: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for rule in base_rules(Base::Admin) {
        for group in rule.api_groups {
            known.entry(group).or_default().extend(rule.resources.iter().cloned());
        }
    }
    known
}

fn shown(resource: &str, group: &str) -> String {
    if group.is_empty() { format!("{resource} (core)") } else { format!("{resource} ({group})") }
}

/// A list in words, bounded.
pub fn listed(items: &[String]) -> String {
    const MOST: usize = 12;
    let shown = items.iter().take(MOST).map(String::as_str).collect::<Vec<_>>().join(", ");
    match items.len().saturating_sub(MOST) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// Group, verbs and names of a rule.
type Terms<'a> = (&'a str, BTreeSet<usize>, BTreeSet<&'a str>);

/// Rules that give exactly these rights. `None` where they are more than a role can hold.
pub fn rules_of(rights: &BTreeSet<Right>) -> Option<Vec<PolicyRule>> {
    // What is given on all objects needs no names.
    let mut verbs_of: BTreeMap<(&str, &str, Option<&str>), BTreeSet<usize>> = BTreeMap::new();
    for Right { group, resource, verb, name } in rights {
        let on_all = Right { group: group.clone(), resource: resource.clone(), verb: *verb, name: None };
        if name.is_none() || !rights.contains(&on_all) {
            verbs_of.entry((group, resource, name.as_deref())).or_default().insert(*verb);
        }
    }
    let mut names_of: BTreeMap<(&str, BTreeSet<usize>, &str), BTreeSet<&str>> = BTreeMap::new();
    for ((group, resource, name), verbs) in verbs_of {
        names_of.entry((group, verbs, resource)).or_default().extend(name);
    }
    // One (group, verbs, resource) may stand for all objects and for some: the former has no names, and then verbs of
    // the latter are others, because what is given on all was left out above.
    let mut resources_of: BTreeMap<Terms<'_>, Vec<&str>> = BTreeMap::new();
    for ((group, verbs, resource), names) in names_of {
        resources_of.entry((group, verbs, names)).or_default().push(resource);
    }
    let mut rules = vec![];
    for ((group, verbs, names), resources) in resources_of {
        let names: Vec<&str> = names.into_iter().collect();
        let chunks: Vec<&[&str]> = if names.is_empty() { vec![&[]] } else { names.chunks(MAX_WORDS).collect() };
        for resources in resources.chunks(MAX_WORDS) {
            for names in &chunks {
                rules.push(PolicyRule {
                    api_groups: vec![group.to_owned()],
                    resources: resources.iter().map(|r| r.to_string()).collect(),
                    verbs: verbs.iter().map(|verb| VERBS[*verb].to_owned()).collect(),
                    resource_names: names.iter().map(|n| n.to_string()).collect(),
                });
            }
        }
    }
    (rules.len() <= MAX_RULES).then_some(rules)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn right() -> impl Strategy<Value = Right> {
        let word = |words: &'static [&'static str]| proptest::sample::select(words).prop_map(str::to_owned);
        (word(&["", "apps"]), word(&["pods", "secrets", "jobs"]), 0..3_usize, proptest::option::of(word(&["a", "b"])))
            .prop_map(|(group, resource, verb, name)| Right { group, resource, verb, name })
    }

    proptest! {
        #[test]
        fn rules_give_exactly_the_rights(rights in proptest::collection::btree_set(right(), 0..20)) {
            let rules = rules_of(&rights).unwrap();
            let back: BTreeSet<Right> = rules.iter().flat_map(rights_of).collect();
            for right in &back {
                prop_assert!(rights.contains(right), "{:?} was not given", right);
            }
            for right in &rights {
                let on_all = Right { name: None, ..right.clone() };
                prop_assert!(back.contains(right) || back.contains(&on_all), "{:?} is lost", right);
            }
        }
    }

    #[test]
    fn stock_tables_are_within_ours_and_hold_nothing_beyond_reach() {
        for (name, base) in [("view", Base::View), ("edit", Base::Edit), ("admin", Base::Admin)] {
            let rights = stock(name).unwrap();
            assert!(rights.is_subset(&table_rights(base)) && rights.len() > 50, "{name}");
            assert!(rights.iter().all(|right| beyond(&right.group, &right.resource, None).is_none()), "{name}");
        }
        assert!(stock("cluster-admin").is_none());
        let verb = |v: &str| VERBS.iter().position(|k| *k == v).unwrap();
        let has = |name: &str, group: &str, resource: &str, v: &str| {
            let right = Right { group: group.into(), resource: resource.into(), verb: verb(v), name: None };
            stock(name).unwrap().contains(&right)
        };
        assert!(has("view", "", "pods", "list") && !has("view", "", "secrets", "get"));
        assert!(!has("view", "rbac.authorization.k8s.io", "roles", "get"));
        assert!(!has("edit", "", "pods/ephemeralcontainers", "patch") && has("edit", "", "pods/exec", "create"));
        assert!(has("admin", "rbac.authorization.k8s.io", "roles", "create"));
    }
}
