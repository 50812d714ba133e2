use std::collections::BTreeSet;

use super::*;
use crate::domain::rbac::{BUILT_IN_GROUPS, VERBS};
use crate::domain::roles::{Base, base_rules};

fn options(minor: u32) -> ManifestOptions {
    ManifestOptions::new("demo", Version { major: 1, minor })
}

fn render(minor: u32) -> Manifest {
    Manifest::render(&options(minor)).unwrap()
}

fn find<'a>(manifest: &'a Manifest, kind: &str, name: &str) -> &'a Value {
    manifest.objects().find(|o| o["kind"] == kind && o["metadata"]["name"] == name).unwrap_or_else(|| panic!("{name}"))
}

fn strings(value: &Value) -> Vec<&str> {
    value.as_array().map(|all| all.iter().filter_map(Value::as_str).collect()).unwrap_or_default()
}

#[test]
fn no_right_comes_before_its_guard() {
    for minor in [29, 30, 32, 36] {
        let kinds = render(minor).objects().map(|o| o["kind"].as_str().unwrap().to_owned()).collect::<Vec<_>>();
        let first_right = kinds.iter().position(|k| k.contains("Role")).unwrap();
        let last_guard = kinds.iter().rposition(|k| k.contains("Admission")).unwrap_or(0);
        assert!(last_guard < first_right, "{kinds:?}");
        assert_eq!(kinds[0], "Namespace");
    }
}

#[test]
fn each_policy_has_its_binding_and_no_placeholder_is_left() {
    for minor in [30, 32, 36] {
        let guards = render(minor).guards;
        assert_eq!(guards.len(), 2 * 12);
        for pair in guards.chunks(2) {
            assert_eq!(pair[0]["metadata"]["name"], pair[1]["metadata"]["name"]);
            assert_eq!(pair[1]["spec"]["policyName"], pair[0]["metadata"]["name"]);
            assert_eq!(pair[0]["spec"]["failurePolicy"], "Fail");
            assert!(!pair[0].to_string().contains("${"), "{}", pair[0]["metadata"]["name"]);
        }
    }
}

#[test]
fn policies_survive_the_typed_form() {
    let raw = render(36).guards;
    let policies = expected_policies(&options(36)).unwrap();
    assert_eq!(policies.len(), 12);
    for (policy, raw) in policies.iter().zip(raw.iter().step_by(2)) {
        assert_eq!(serde_json::to_value(&policy.spec).unwrap(), raw["spec"]);
    }
    assert_eq!(expected_bindings(&options(36)).unwrap().len(), 12);
}

#[test]
fn guards_know_the_names() {
    let text = include_str!("policies.yaml");
    for name in [
        FORWARDING_USER,
        HOUSEKEEPING_USER,
        SYSTEM_NAMESPACE,
        PROJECT,
        PROJECT_UID,
        ISOLATION,
        MANAGED,
        ADOPT,
        ALLOW_PRIVILEGED,
        TENANT_PREFIX,
        ROLE_PREFIX,
        FORWARD_ON,
        LEGACY_IMPERSONATE,
        GROUPS_POLICY,
        GROUPS_VARIABLE,
        IMPORT,
        POD_SECURITY[0],
    ] {
        assert!(text.contains(&format!("'{name}'")) || text.contains(name), "{name}");
    }
    for verb in VERBS {
        assert!(text.contains(&format!("'{verb}'")), "{verb}");
    }
}

#[test]
fn exemptions_need_a_credential_where_the_cluster_has_one() {
    for (minor, needed) in [(30, false), (31, false), (32, true), (36, true)] {
        let policy = format!("{}{}", render(minor).guards[0], render(minor).guards[10]);
        assert_eq!(policy.contains("credential-id"), needed, "1.{minor}");
    }
}

#[test]
fn forwarding_reaches_all_that_a_role_can_grant() {
    let mut options = options(36);
    options.tenant_api_groups = vec!["example.com".into()];
    let manifest = Manifest::render(&options).unwrap();
    let rules = find(&manifest, "ClusterRole", FORWARD_ON)["rules"].as_array().unwrap().clone();
    let covered = |group: &str, resource: &str, verb: &str| {
        let verb = format!("impersonate-on:user-info:{verb}");
        rules.iter().any(|rule| {
            let resources = strings(&rule["resources"]);
            strings(&rule["apiGroups"]).contains(&group)
                && (resources.contains(&resource) || resources.contains(&"*"))
                && strings(&rule["verbs"]).contains(&verb.as_str())
        })
    };
    for rule in base_rules(Base::Admin) {
        for group in &rule.api_groups {
            for resource in &rule.resources {
                for verb in &rule.verbs {
                    assert!(covered(group, resource, verb), "{verb} {group}/{resource}");
                }
            }
        }
    }
    assert!(BUILT_IN_GROUPS.into_iter().all(|g| g.is_empty() || covered(g, "roles", "get")));
    assert!(covered("example.com", "widgets", "create"));
    for (group, resource, verb) in [
        ("", "pods/proxy", "get"),
        ("", "services/proxy", "create"),
        ("", "nodes/proxy", "get"),
        ("", "namespaces", "delete"),
        ("", "namespaces/status", "update"),
        ("", "namespaces/finalize", "update"),
        ("", "resourcequotas", "update"),
        ("", "limitranges", "delete"),
        ("rbac.authorization.k8s.io", "clusterroles", "get"),
        ("other.example.com", "widgets", "get"),
        ("admissionregistration.k8s.io", "validatingadmissionpolicies", "delete"),
    ] {
        assert!(!covered(group, resource, verb), "{verb} {group}/{resource}");
    }
}

#[test]
fn forwarding_holds_no_plain_verb_and_one_form_of_impersonation() {
    for (minor, verb) in [(36, "impersonate:user-info"), (35, "impersonate")] {
        let manifest = render(minor);
        let bound: Vec<&str> = manifest
            .rights
            .iter()
            .filter(|o| o["kind"] == "ClusterRoleBinding" && o["subjects"][0]["name"] == FORWARDING)
            .map(|o| o["roleRef"]["name"].as_str().unwrap())
            .chain([FORWARD_ON])
            .collect();
        let mut verbs = BTreeSet::new();
        for name in bound {
            let role = find(&manifest, "ClusterRole", name);
            for rule in role["rules"].as_array().into_iter().flatten() {
                verbs.extend(strings(&rule["verbs"]).into_iter().map(str::to_owned));
                if strings(&rule["verbs"]) == ["impersonate"] && strings(&rule["apiGroups"]) == [""] {
                    assert!(!strings(&rule["resourceNames"]).is_empty(), "legacy impersonation is always by name");
                }
            }
        }
        verbs.retain(|v| !v.starts_with("impersonate-on:user-info:"));
        assert_eq!(verbs.into_iter().collect::<Vec<_>>(), [verb]);
    }
}

#[test]
fn without_guards_housekeeping_only_reads() {
    for (minor, reads) in [(29, true), (30, false)] {
        let manifest = render(minor);
        let role = find(&manifest, "ClusterRole", HOUSEKEEPING_ROLE);
        let verbs = role["rules"].as_array().unwrap().iter().flat_map(|r| strings(&r["verbs"]));
        let verbs = verbs.collect::<BTreeSet<_>>();
        assert_eq!(verbs.into_iter().eq(["get", "list", "watch"]), reads, "1.{minor}");
        assert_eq!(manifest.guards.is_empty(), reads);
    }
}

#[test]
fn neither_account_may_write_policies_or_read_secrets() {
    for minor in [29, 30, 36] {
        for object in render(minor).rights {
            for rule in object["rules"].as_array().into_iter().flatten() {
                let (resources, verbs) = (strings(&rule["resources"]), strings(&rule["verbs"]));
                let plain = verbs.iter().any(|v| !v.starts_with("impersonate"));
                assert!(!plain || !resources.iter().any(|r| r.contains('*') || *r == "secrets"), "{object}");
                assert!(!verbs.iter().any(|v| v.contains('*')), "{object}");
                if strings(&rule["apiGroups"]).contains(&"admissionregistration.k8s.io") {
                    assert_eq!(verbs, ["get", "list", "watch"]);
                }
            }
        }
    }
}

#[test]
fn what_is_written_into_expressions_is_checked() {
    let with = |change: &dyn Fn(&mut ManifestOptions)| {
        let mut options = options(36);
        change(&mut options);
        Manifest::render(&options)
    };
    assert!(with(&|o| o.administrators = vec!["cluster-ops".into(), "oidc:ops@example.com".into()]).is_ok());
    for group in ["", "a'b", "a\\b", "a b", "system:authenticated", "bailiwick:project:shop:1a2b3c4d:owner"] {
        let refused = with(&|o| o.administrators = vec![group.into()]);
        assert!(matches!(refused, Err(ManifestError::Administrators(_))), "{group:?}");
    }
    assert!(matches!(with(&|o| o.cluster = "a.b".into()), Err(ManifestError::Cluster(..))));
    assert!(with(&|o| o.tenant_api_groups = vec!["example.com".into()]).is_ok());
    assert!(matches!(with(&|o| o.tenant_api_groups = vec!["*".into()]), Err(ManifestError::Group(..))));
    let control = with(&|o| o.tenant_api_groups = vec!["admissionregistration.k8s.io".into()]);
    assert!(matches!(control, Err(ManifestError::Control(_))));
    let mut old = options(35);
    old.impersonation = Impersonation::Constrained;
    assert!(matches!(Manifest::render(&old), Err(ManifestError::NoConstrained(_))));
}

#[test]
fn the_yaml_says_the_same_as_the_objects() {
    for minor in [29, 35, 36] {
        let manifest = render(minor);
        let yaml = manifest.to_yaml().unwrap();
        let read: Vec<Value> = serde_saphyr::from_multiple(&yaml).unwrap();
        assert_eq!(read, manifest.objects().cloned().collect::<Vec<_>>());
    }
}
