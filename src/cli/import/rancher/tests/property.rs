//! Nothing is granted that Rancher did not grant: random exports, and every question about them, answered by what was
//! made of them and by a reading of Rancher of our own. Where the reading is open, Rancher grants nothing here.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};

use super::{done, from_values, object};
use crate::cli::import::rancher::Translation;
use crate::domain::rbac::{Attributes, RuleSet};
use crate::domain::roles::{RoleSpec, effective_rules};
use crate::resources::grant::{SubjectKind, TargetKind};
use crate::resources::validation::ResourceKind;
use crate::resources::{AccessRoleSpec, GrantSpec, ProjectSpec, TeamSpec};

const CLUSTERS: [&str; 2] = ["c-1", "c-2"];
/// Each with the cluster that it is on, most of the time.
const PROJECTS: [(&str, &str); 4] = [("c-1", "p-1"), ("c-1", "p-2"), ("c-2", "p-3"), ("c-2", "p-4")];
const USERS: [&str; 3] = ["u-1", "u-2", "u-3"];
const PRINCIPALS: [&str; 4] = ["local://u-1", "local://u-2", "github_user://1", "system://x"];
const GROUPS: [&str; 2] = ["g-1", "github_group://1"];
const TEMPLATES: [&str; 8] = ["rt-1", "rt-2", "rt-3", "rt-4", "view", "edit", "admin", "cluster-owner"];
const NAMESPACES: [&str; 4] = ["web", "db", "default", "cattle-x"];
const RESOURCES: [(&str, &str); 14] = [
    ("", "pods"),
    ("", "pods/exec"),
    ("", "pods/proxy"),
    ("", "pods/ephemeralcontainers"),
    ("", "secrets"),
    ("", "configmaps"),
    ("", "namespaces"),
    ("", "resourcequotas"),
    ("apps", "deployments"),
    ("apps", "deployments/scale"),
    ("rbac.authorization.k8s.io", "roles"),
    ("metrics.k8s.io", "pods"),
    ("coordination.k8s.io", "leases"),
    ("example.com", "widgets"),
];
const VERBS: [&str; 9] = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "bind"];
const NAMES: [&str; 3] = ["", "a", "b"];

fn some(words: &'static [&'static str], most: usize) -> impl Strategy<Value = Vec<&'static str>> {
    proptest::collection::vec(select(words), 0..=most)
}

fn rule() -> impl Strategy<Value = Value> {
    let groups = some(&["", "", "", "apps", "*", "*", "example.com", "rbac.authorization.k8s.io", "metrics.k8s.io"], 3);
    let resources = some(
        &[
            "pods",
            "pods/exec",
            "pods/proxy",
            "pods/*",
            "*",
            "*/scale",
            "secrets",
            "configmaps",
            "namespaces",
            "deployments",
            "roles",
            "widgets",
            "leases",
        ],
        4,
    );
    let verbs = some(&["get", "list", "create", "patch", "delete", "*", "bind", "impersonate", "deletecollection"], 4);
    let names = prop_oneof![4 => Just(vec![]), 1 => some(&["a", "b", "*", "a/b", ""], 2)];
    (groups, resources, verbs, names, prop::bool::weighted(0.1)).prop_map(|(groups, resources, verbs, names, paths)| {
        let urls: &[&str] = if paths { &["/metrics"] } else { &[] };
        json!({"apiGroups": groups, "resources": resources, "verbs": verbs, "resourceNames": names, "nonResourceURLs": urls})
    })
}

fn rules() -> impl Strategy<Value = Vec<Value>> {
    proptest::collection::vec(rule(), 1..5)
}

fn templates() -> impl Strategy<Value = Vec<Value>> {
    let one = |name: &'static str| {
        let stock = matches!(name, "view" | "edit" | "admin");
        let flags = (prop::bool::weighted(0.5), prop::bool::weighted(if stock { 0.9 } else { 0.15 }), any::<bool>());
        let home = if name == "cluster-owner" || name == "rt-4" { "cluster" } else { "project" };
        let context = prop_oneof![8 => Just(home), 1 => Just("cluster"), 1 => Just("")];
        let present = prop::bool::weighted(0.85);
        (rules(), flags, context, some(&TEMPLATES, 2), present).prop_map(
            move |(rules, flags, context, inherits, present)| {
                let (builtin, external, locked) = flags;
                // Rancher's own are what they are.
                let (builtin, external) = if stock { (true, external) } else { (builtin, external) };
                present.then(|| {
                object("RoleTemplate", name, json!({
                    "rules": rules, "builtin": builtin, "external": external, "locked": locked, "context": context,
                    "roleTemplateNames": inherits, "displayName": "Role",
                }))
            })
            },
        )
    };
    TEMPLATES.map(one).into_iter().collect::<Vec<_>>().prop_map(|all| all.into_iter().flatten().collect())
}

fn cluster_roles() -> impl Strategy<Value = Vec<Value>> {
    let one = (select(&TEMPLATES[..]), rules()).prop_map(|(name, rules)| {
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules})
    });
    proptest::collection::vec(one, 0..4)
}

fn users() -> impl Strategy<Value = Vec<Value>> {
    let one = |name: &'static str| {
        let called = select(&["jane", "Jane", "admin", "", "j.d", "日本"][..]);
        let enabled = prop_oneof![Just(Value::Null), Just(json!(true)), Just(json!(false))];
        (called, select(&["Jane", ""][..]), some(&PRINCIPALS, 2), enabled, prop::bool::weighted(0.9)).prop_map(
            move |(username, display, principals, enabled, present)| {
                present.then(|| {
                    object("User", name, json!({
                        "username": username, "displayName": display, "principalIds": principals, "enabled": enabled,
                    }))
                })
            },
        )
    };
    USERS.map(one).into_iter().collect::<Vec<_>>().prop_map(|all| all.into_iter().flatten().collect())
}

fn projects() -> impl Strategy<Value = Vec<Value>> {
    let one = |(home, name): (&'static str, &'static str)| {
        let cluster = prop_oneof![9 => Just(home), 1 => select(&CLUSTERS[..])];
        let called = select(&["Shop", "shop", "Cart", "self", "", "a\u{202e}b"][..]);
        (cluster, called, prop::bool::weighted(0.1), prop::bool::weighted(0.05)).prop_map(
            move |(cluster, called, system, deleted)| {
                let mut project =
                    object("Project", name, json!({"spec": {"clusterName": cluster, "displayName": called}}));
                project["metadata"]["namespace"] = json!(cluster);
                if system {
                    project["metadata"]["labels"] = json!({"authz.management.cattle.io/system-project": "true"});
                }
                if deleted {
                    project["metadata"]["deletionTimestamp"] = json!("2030-01-01T00:00:00Z");
                }
                project
            },
        )
    };
    PROJECTS.map(one).into_iter().collect::<Vec<_>>()
}

fn members() -> impl Strategy<Value = Vec<Value>> {
    let one = (select(&GROUPS[..]), select(&PRINCIPALS[..]));
    proptest::collection::vec(one, 0..4).prop_map(|all| {
        let placed = all.into_iter().enumerate();
        placed
            .map(|(at, (group, principal))| {
                object("GroupMember", &format!("m-{at}"), json!({"groupName": group, "principalId": principal}))
            })
            .collect()
    })
}

fn bindings() -> impl Strategy<Value = Vec<Value>> {
    let subject = prop_oneof![
        6 => select(&USERS[..]).prop_map(|user| json!({"userName": user})),
        2 => select(&PRINCIPALS[..]).prop_map(|principal| json!({"userPrincipalName": principal})),
        2 => select(&GROUPS[..]).prop_map(|group| json!({"groupName": group})),
        1 => select(&GROUPS[..]).prop_map(|group| json!({"groupPrincipalName": group})),
        1 => Just(json!({"userName": "u-1", "groupName": "g-1"})),
        1 => Just(json!({"serviceAccount": "x:y", "userName": "u-1"})),
        1 => Just(json!({})),
    ];
    let target = prop_oneof![
        3 => select(&PROJECTS[..]).prop_map(|(c, p)| (true, format!("{c}:{p}"))),
        1 => select(&CLUSTERS[..]).prop_map(|c| (false, c.to_owned())),
    ];
    let one = (subject, target, select(&TEMPLATES[..]), prop::bool::weighted(0.05));
    proptest::collection::vec(one, 6..20).prop_map(|all| {
        let placed = all.into_iter().enumerate();
        placed
            .map(|(at, (mut body, (project, target), template, deleted))| {
                body["roleTemplateName"] = json!(template);
                body[if project { "projectName" } else { "clusterName" }] = json!(target);
                let kind = if project { "ProjectRoleTemplateBinding" } else { "ClusterRoleTemplateBinding" };
                let mut binding = object(kind, &format!("b-{at}"), body);
                if deleted {
                    binding["metadata"]["deletionTimestamp"] = json!("2030-01-01T00:00:00Z");
                }
                binding
            })
            .collect()
    })
}

fn namespaces() -> impl Strategy<Value = Vec<Value>> {
    let one = (select(&NAMESPACES[..]), select(&PROJECTS[..])).prop_map(|(name, (cluster, project))| {
        let annotations = json!({"field.cattle.io/projectId": format!("{cluster}:{project}")});
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "annotations": annotations}})
    });
    proptest::collection::vec(one, 3..8)
}

fn export() -> impl Strategy<Value = Vec<Value>> {
    (templates(), cluster_roles(), users(), projects(), members(), bindings(), namespaces()).prop_map(
        |(templates, cluster_roles, users, projects, members, bindings, namespaces)| {
            [templates, cluster_roles, users, projects, members, bindings, namespaces].concat()
        },
    )
}

/// A reading of Rancher, straight from the objects.
struct Rancher<'a>(&'a [Value]);

fn words(value: &Value) -> Vec<&str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

impl<'a> Rancher<'a> {
    fn of_kind(&self, kind: &'static str) -> impl Iterator<Item = &'a Value> {
        let live = |o: &&Value| o["metadata"]["deletionTimestamp"].is_null();
        self.0.iter().filter(move |o| o["kind"] == kind).filter(live)
    }

    fn named(&self, kind: &'static str, name: &str) -> Option<&'a Value> {
        self.of_kind(kind).find(|o| o["metadata"]["name"] == name)
    }

    fn permits(&self, user: &Value, cluster: &str, namespace: &str, asked: Attributes<'_>) -> bool {
        if user["enabled"] == false {
            return false;
        }
        let here = |o: &&Value| {
            let id = o["metadata"]["annotations"]["field.cattle.io/projectId"].as_str().unwrap_or_default();
            o["metadata"]["name"] == namespace && id.split_once(':').is_some_and(|(at, _)| at == cluster)
        };
        let owners: BTreeSet<&str> = self
            .of_kind("Namespace")
            .filter(here)
            .filter_map(|o| o["metadata"]["annotations"]["field.cattle.io/projectId"].as_str())
            .collect();
        let in_project = |id: &str| owners.len() == 1 && owners.contains(id);
        let by_project = self
            .of_kind("ProjectRoleTemplateBinding")
            .filter(|b| in_project(b["projectName"].as_str().unwrap_or_default()))
            .map(|b| ("project", b));
        let by_cluster =
            self.of_kind("ClusterRoleTemplateBinding").filter(|b| b["clusterName"] == cluster).map(|b| ("cluster", b));
        by_project.chain(by_cluster).any(|(context, binding)| {
            self.binds(binding, user) && self.template_permits(&binding["roleTemplateName"], Some(context), asked, 0)
        })
    }

    fn binds(&self, binding: &Value, user: &Value) -> bool {
        let given = ["userName", "userPrincipalName", "groupName", "groupPrincipalName", "serviceAccount"];
        let given: Vec<&str> = given.into_iter().filter(|field| binding[*field].is_string()).collect();
        let principals = words(&user["principalIds"]);
        match given.as_slice() {
            ["userName"] => binding["userName"] == user["metadata"]["name"],
            ["userPrincipalName"] => principals.iter().any(|p| binding["userPrincipalName"] == *p),
            ["groupName"] => self.of_kind("GroupMember").any(|member| {
                member["groupName"] == binding["groupName"] && principals.iter().any(|p| member["principalId"] == *p)
            }),
            // Who is in a group of a provider is not in the export.
            _ => false,
        }
    }

    fn template_permits(&self, name: &Value, context: Option<&str>, asked: Attributes<'_>, depth: usize) -> bool {
        let Some(template) = self.named("RoleTemplate", name.as_str().unwrap_or_default()) else { return false };
        if depth > TEMPLATES.len() || context.is_some_and(|context| template["context"] != context) {
            return false;
        }
        let own = if template["external"] == true {
            let counts = template["context"] == "cluster" || template["builtin"] == true;
            let roles: Vec<&Value> =
                self.of_kind("ClusterRole").filter(|role| role["metadata"]["name"] == *name).collect();
            counts
                && match roles.as_slice() {
                    [] => template["builtin"] == true && stock(name.as_str().unwrap_or_default(), asked),
                    roles => roles.iter().all(|role| rules_permit(&role["rules"], asked)),
                }
        } else {
            rules_permit(&template["rules"], asked)
        };
        let inherited = template["roleTemplateNames"].as_array().into_iter().flatten();
        own || inherited.into_iter().any(|name| self.template_permits(name, None, asked, depth + 1))
    }
}

/// What every Kubernetes has had in these since 1.30, of the resources asked for.
fn stock(name: &str, asked: Attributes<'_>) -> bool {
    let read = matches!(asked.verb, "get" | "list" | "watch");
    let known = asked.verb != "bind";
    let view = read
        && match asked.group {
            "" => matches!(asked.resource, "pods" | "configmaps" | "namespaces" | "resourcequotas"),
            "apps" => true,
            _ => false,
        };
    let edit = known
        && match asked.group {
            "" => matches!(asked.resource, "pods" | "configmaps" | "secrets" | "pods/exec" | "pods/proxy"),
            "apps" => true,
            "coordination.k8s.io" => true,
            _ => false,
        };
    let admin = known && asked.group == "rbac.authorization.k8s.io";
    match name {
        "view" => view,
        "edit" => view || edit,
        "admin" => view || edit || admin,
        _ => false,
    }
}

/// RBAC, with its wildcards.
fn rules_permit(rules: &Value, asked: Attributes<'_>) -> bool {
    let subresource = asked.resource.split_once('/').map(|(_, sub)| format!("*/{sub}"));
    rules.as_array().into_iter().flatten().any(|rule| {
        let names = words(&rule["resourceNames"]);
        words(&rule["verbs"]).iter().any(|verb| *verb == "*" || *verb == asked.verb)
            && words(&rule["apiGroups"]).iter().any(|group| *group == "*" || *group == asked.group)
            && words(&rule["resources"]).iter().any(|resource| {
                *resource == "*" || *resource == asked.resource || Some(*resource) == subresource.as_deref()
            })
            && (names.is_empty() || names.contains(&asked.name))
    })
}

/// What was made, read as the service does.
struct Ours {
    grants: Vec<GrantSpec>,
    teams: BTreeMap<String, TeamSpec>,
    projects: BTreeMap<String, ProjectSpec>,
    roles: BTreeMap<String, RuleSet>,
    /// Users that may act, by Rancher's id.
    users: BTreeMap<String, String>,
    clusters: BTreeMap<String, String>,
}

impl Ours {
    fn new(translation: &Translation) -> Self {
        fn specs<T: serde::de::DeserializeOwned>(translation: &Translation, kind: ResourceKind) -> BTreeMap<String, T> {
            let of_kind = translation.resources.iter().filter(|resource| resource.kind == kind);
            of_kind.map(|r| (r.name.clone(), serde_json::from_value(r.value["spec"].clone()).unwrap())).collect()
        }
        let written: BTreeMap<String, AccessRoleSpec> = specs(translation, ResourceKind::AccessRole);
        let written: BTreeMap<String, RoleSpec> =
            written.iter().map(|(name, spec)| (name.clone(), spec.into())).collect();
        let names = written.keys().map(String::as_str).chain(["owner", "member", "viewer"]);
        let roles = names.map(|n| (n.to_owned(), RuleSet::new(effective_rules(n, &written).unwrap()))).collect();
        let users = translation.resources.iter().filter(|r| r.kind == ResourceKind::User);
        let may_act = users.filter(|user| user.value["spec"]["disabled"] != true);
        Self {
            grants: specs::<GrantSpec>(translation, ResourceKind::Grant).into_values().collect(),
            teams: specs(translation, ResourceKind::Team),
            projects: specs(translation, ResourceKind::Project),
            roles,
            users: may_act.map(|r| (r.sources[0].trim_start_matches("User ").to_owned(), r.name.clone())).collect(),
            clusters: translation.clusters.iter().map(|c| (c.id.clone(), c.name.clone())).collect(),
        }
    }

    fn permits(&self, user: &str, cluster: &str, namespace: &str, asked: Attributes<'_>) -> bool {
        let (Some(user), Some(cluster)) = (self.users.get(user), self.clusters.get(cluster)) else { return false };
        let owner = self.projects.iter().find(|(_, spec)| {
            spec.clusters.iter().any(|at| at.cluster == *cluster && at.namespaces.iter().any(|have| have == namespace))
        });
        let Some((project, _)) = owner else { return false };
        self.grants.iter().any(|grant| {
            let subject = match grant.subject.kind {
                SubjectKind::User => grant.subject.name == *user,
                SubjectKind::Team => self.teams[&grant.subject.name].users.contains(user),
            };
            let target = match grant.target.kind {
                TargetKind::Project => grant.target.name == *project,
                TargetKind::Cluster => grant.target.name == *cluster,
                TargetKind::Platform => panic!("nobody gets power over the platform"),
            };
            subject && target && self.roles[&grant.role].permits(asked).is_some()
        })
    }
}

#[test]
fn nothing_is_granted_that_rancher_did_not_grant() {
    let (both, rancher_alone) = (Cell::new(0_usize), Cell::new(0_usize));
    let mut runner = TestRunner::new(Config { cases: 150, failure_persistence: None, ..Config::default() });
    let result = runner.run(&export(), |values| {
        let translation = done(from_values(values.clone()));
        let (rancher, ours) = (Rancher(&values), Ours::new(&translation));
        for id in USERS {
            let Some(user) = rancher.named("User", id) else { continue };
            for (cluster, namespace) in CLUSTERS.iter().flat_map(|c| NAMESPACES.iter().map(move |n| (c, n))) {
                for (group, resource) in RESOURCES {
                    for (verb, name) in VERBS.iter().flat_map(|v| NAMES.iter().map(move |n| (*v, *n))) {
                        let asked = Attributes { verb, group, resource, name };
                        if ours.permits(id, cluster, namespace, asked) {
                            let theirs = rancher.permits(user, cluster, namespace, asked);
                            prop_assert!(theirs, "{id} on {cluster}/{namespace}: {asked:?}");
                            both.set(both.get() + 1);
                        } else if verb == "get" && name == "a" && rancher.permits(user, cluster, namespace, asked) {
                            rancher_alone.set(rancher_alone.get() + 1);
                        }
                    }
                }
            }
        }
        Ok(())
    });
    if let Err(failure) = result {
        panic!("{failure}");
    }
    // The property would hold if nothing were ever granted.
    assert!(both.get() > 1_000, "{} rights came through; Rancher alone gave {}", both.get(), rancher_alone.get());
    assert!(rancher_alone.get() > 200, "there was something to lose: {}", rancher_alone.get());
}
