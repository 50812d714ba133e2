//! What is desired, kind by kind: what is there with a setting, and what is not without it.

use std::collections::{BTreeMap, BTreeSet};

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use super::*;
use crate::clusters::names::{ISOLATION, ROLE_BINDINGS_QUOTA_KEY};
use crate::index::Index;
use crate::resources::project::{ContainerDefaults, NetworkIsolation, PodSecurityLevel};
use crate::store::sealed::Sealer;
use crate::store::sqlite::{SqliteSettings, SqliteStore};
use crate::store::{Key, Kind, Store};

const UID: &str = "1a2b3c4d-0000-4000-8000-000000000000";

fn place<'a>(spec: &'a ProjectSpec, share: &'a Share) -> Place<'a> {
    Place {
        cluster: "demo",
        cluster_uid: "c1d2e3f4-0000",
        namespace: "shop-dev",
        project: "shop",
        project_uid: UID,
        spec,
        share,
        roles: vec!["owner", "member", "viewer", "deployer"],
    }
}

fn map(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    entries.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
}

#[test]
fn a_namespace_says_whose_it_is_and_how_secure() {
    let mut spec = ProjectSpec::default();
    let share = Share::new();
    let labels = namespace::labels(&place(&spec, &share));
    let value = |labels: &serde_json::Map<String, Value>, key: &str| labels[key].as_str().unwrap().to_owned();
    assert_eq!(value(&labels, "bailiwick.dev/project"), "shop");
    assert_eq!(value(&labels, "bailiwick.dev/project-uid"), UID);
    assert_eq!(value(&labels, ISOLATION), "none");
    assert_eq!(value(&labels, "pod-security.kubernetes.io/enforce"), "baseline");
    assert_eq!(value(&labels, "pod-security.kubernetes.io/warn"), "restricted");
    assert_eq!(value(&labels, "pod-security.kubernetes.io/enforce-version"), "latest");
    spec.pod_security.enforce = PodSecurityLevel::Restricted;
    spec.network_isolation = NetworkIsolation::Namespace;
    let labels = namespace::labels(&place(&spec, &share));
    assert_eq!(value(&labels, "pod-security.kubernetes.io/enforce"), "restricted");
    assert_eq!(value(&labels, ISOLATION), "namespace");
}

#[test]
fn bindings_name_groups_of_the_project_and_of_the_cluster_for_built_in_roles_only() {
    let (spec, share) = (ProjectSpec::default(), Share::new());
    let bindings: Vec<Value> = bindings::desired(&place(&spec, &share)).collect();
    let of = |name: &str| {
        let binding = bindings.iter().find(|binding| binding["metadata"]["name"] == name).unwrap();
        assert_eq!(binding["roleRef"]["name"], name);
        let subjects = binding["subjects"].as_array().unwrap().iter();
        subjects.map(|s| format!("{} {}", s["kind"].as_str().unwrap(), s["name"].as_str().unwrap())).collect::<Vec<_>>()
    };
    assert_eq!(
        of("bailiwick:role:member"),
        ["Group bailiwick:project:shop:1a2b3c4d:member", "Group bailiwick:cluster:demo:c1d2e3f4:member"]
    );
    assert_eq!(of("bailiwick:role:deployer"), ["Group bailiwick:project:shop:1a2b3c4d:deployer"]);
    assert_eq!(of("bailiwick:forward:on"), ["ServiceAccount forwarding"]);
    assert_eq!(bindings.len(), 5);
}

#[test]
fn the_quota_is_the_share_and_caps_bindings() {
    let spec = ProjectSpec::default();
    let share = map(&[("pods", "4")]);
    let hard = quota::desired(&place(&spec, &share))["spec"]["hard"].clone();
    assert_eq!(hard, json!({"pods": "4", ROLE_BINDINGS_QUOTA_KEY: "200"}));
    for (own, cap) in [("7", "7"), ("5000", "200")] {
        let share = map(&[(ROLE_BINDINGS_QUOTA_KEY, own)]);
        let hard = quota::desired(&place(&spec, &share))["spec"]["hard"].clone();
        assert_eq!(hard, json!({ROLE_BINDINGS_QUOTA_KEY: cap}));
    }
}

#[test]
fn limits_are_there_where_the_project_has_defaults() {
    let (mut spec, share) = (ProjectSpec::default(), Share::new());
    assert_eq!(limits::desired(&place(&spec, &share)), None);
    spec.container_defaults = Some(ContainerDefaults::default());
    assert_eq!(limits::desired(&place(&spec, &share)), None);
    spec.container_defaults =
        Some(ContainerDefaults { requests: map(&[("cpu", "100m")]), limits: map(&[("cpu", "1"), ("memory", "1Gi")]) });
    let limits = limits::desired(&place(&spec, &share)).unwrap()["spec"]["limits"][0].clone();
    assert_eq!(limits["default"], json!({"cpu": "1", "memory": "1Gi"}));
    assert_eq!(limits["defaultRequest"], json!({"cpu": "100m", "memory": "1Gi"}));
}

#[test]
fn isolation_closes_both_directions_and_leaves_dns() {
    let (mut spec, share) = (ProjectSpec::default(), Share::new());
    assert_eq!(network::desired(&place(&spec, &share)), None);
    for (isolation, peer) in [
        (
            NetworkIsolation::Project,
            json!({"namespaceSelector": {"matchLabels": {
                "bailiwick.dev/project": "shop", "bailiwick.dev/project-uid": UID,
            }}}),
        ),
        (NetworkIsolation::Namespace, json!({"podSelector": {}})),
    ] {
        spec.network_isolation = isolation;
        let policy = network::desired(&place(&spec, &share)).unwrap();
        assert_eq!(policy["spec"]["policyTypes"], json!(["Ingress", "Egress"]));
        assert_eq!(policy["spec"]["ingress"], json!([{"from": [peer]}]));
        assert_eq!(policy["spec"]["egress"][0], json!({"to": [peer]}));
        assert_eq!(policy["spec"]["egress"][1]["ports"][0], json!({"port": 53, "protocol": "UDP"}));
        assert_eq!(policy["spec"]["egress"].as_array().unwrap().len(), 2);
    }
}

/// What a network policy simulator judges in `tests/network`. After a change:
/// `BAILIWICK_REGENERATE=1 cargo test --lib desired`, then look at the difference and commit it.
#[test]
fn the_policies_that_are_judged_are_those_that_are_written() {
    let share = Share::new();
    let folder = std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/network/generated");
    for (level, isolation) in [
        ("none", NetworkIsolation::None),
        ("project", NetworkIsolation::Project),
        ("namespace", NetworkIsolation::Namespace),
    ] {
        let isolated = ProjectSpec { network_isolation: isolation, ..ProjectSpec::default() };
        let open = ProjectSpec::default();
        let other = "99999999-0000-4000-8000-000000000000";
        let mut items = vec![];
        for (namespace, project, project_uid, spec) in [
            ("shop-dev", "shop", UID, &isolated),
            ("shop-test", "shop", UID, &isolated),
            // Of a project that had the name before.
            ("shop-old", "shop", other, &open),
            ("bank-dev", "bank", other, &open),
        ] {
            let place = Place { namespace, project, project_uid, ..place(spec, &share) };
            items.push(namespace::desired(&place));
            items.extend(network::desired(&place));
        }
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
        let (path, text) = (folder.join(format!("{level}.json")), format!("{list:#}\n"));
        if std::env::var_os("BAILIWICK_REGENERATE").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(found == text, "{} is not what is written; see this test", path.display());
    }
}

#[test]
fn everything_in_a_namespace_is_labelled_as_ours_and_walls_come_first() {
    let (mut spec, share) = (ProjectSpec::default(), Share::new());
    spec.network_isolation = NetworkIsolation::Project;
    let objects = place(&spec, &share).objects();
    for (_, object) in &objects {
        assert_eq!(object["metadata"]["labels"], json!({"bailiwick.dev/managed": "true"}));
        assert_eq!(object["metadata"]["namespace"], "shop-dev");
        assert!(object["metadata"]["ownerReferences"].is_null());
    }
    let first_binding = objects.iter().position(|(kind, _)| *kind == ObjectKind::RoleBinding).unwrap();
    assert!(objects[..first_binding].iter().any(|(kind, _)| *kind == ObjectKind::NetworkPolicy));
    assert!(objects[first_binding..].iter().all(|(kind, _)| *kind == ObjectKind::RoleBinding));
}

#[test]
fn an_empty_fleet_has_no_impersonation_and_no_strange_roles() {
    let snapshot = Snapshot::default();
    assert_eq!(impersonation::rules(&snapshot, "demo"), json!([]));
    assert!(roles::desired(&snapshot, "demo", &BTreeSet::new()).is_empty());
}

/// A snapshot with one project, `shop`, that has a custom role and one namespace on cluster `demo`.
async fn snapshot(claim: Value, ledger: Value) -> Arc<Snapshot> {
    let rule = |group: &str| json!({"apiGroups": [group], "resources": ["widgets"], "verbs": ["get"]});
    let objects = [
        (
            Kind::Cluster,
            "demo",
            json!({
                "apiVersion": "bailiwick.dev/v1alpha1", "kind": "Cluster",
                "metadata": {"name": "demo", "uid": "c1d2e3f4-0000"},
                "spec": {
                    "connection": {"direct": {"server": "https://demo.example.com", "certificateAuthority": "none"}},
                    "tenantAPIGroups": ["example.com", "unlisted.example.com"],
                },
            }),
        ),
        (
            Kind::AccessRole,
            "deployer",
            json!({
                "apiVersion": "bailiwick.dev/v1alpha1", "kind": "AccessRole", "metadata": {"name": "deployer"},
                "spec": {"rules": [rule("apps"), rule("example.com"), rule("unlisted.example.com"), rule("other.example.com")]},
            }),
        ),
        (
            Kind::Project,
            "shop",
            json!({
                "apiVersion": "bailiwick.dev/v1alpha1", "kind": "Project", "metadata": {"name": "shop", "uid": UID},
                "spec": {"roles": ["deployer", "unknown"], "clusters": [{"cluster": "demo"}]},
            }),
        ),
        (Kind::Claim, "demo/shop-dev", claim),
        (Kind::Ledger, "shop/demo", ledger),
    ];
    let directory = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(directory.path(), SqliteSettings::default()).unwrap());
    for (kind, name, object) in objects {
        store.create(Key::new(kind, name), Bytes::from(object.to_string())).await.unwrap();
    }
    let (index, writer) = Index::start(store, Arc::new(Sealer::new("test", &[7; 32]))).await.unwrap();
    writer.abort();
    index.snapshot()
}

fn claim() -> Value {
    json!({
        "cluster": "demo", "cluster_uid": "c1d2e3f4-0000", "namespace": "shop-dev", "namespace_uid": null,
        "project": "shop", "project_uid": UID, "origin": "declared", "releasing": false,
        "created_by": "root", "created_at": "2026-01-01T00:00:00Z",
    })
}

fn ledger() -> Value {
    json!({"project_uid": UID, "cluster_uid": "c1d2e3f4-0000", "shares": {"shop-dev": {"pods": "4"}}})
}

fn with(mut value: Value, field: &str, other: Value) -> Value {
    value[field] = other;
    value
}

#[tokio::test]
async fn a_claim_is_acted_upon_once_its_share_is_confirmed_and_its_project_and_cluster_are_those() {
    let whole = snapshot(claim(), ledger()).await;
    let found = &whole.claim("demo", "shop-dev").unwrap().object;
    let place = Place::of(&whole, found).unwrap();
    assert_eq!(place.roles, ["owner", "member", "viewer", "deployer"]);
    assert_eq!(place.share["pods"], "4");
    for (claim, ledger, why) in [
        (claim(), with(ledger(), "pending", json!({"shop-dev": "2026-01-01T00:00:00Z"})), NotYet::NoShare),
        (claim(), with(ledger(), "shares", json!({})), NotYet::NoShare),
        (claim(), with(ledger(), "project_uid", json!("another")), NotYet::NoShare),
        (with(claim(), "project_uid", json!("another")), ledger(), NotYet::NoProject),
        (with(claim(), "cluster_uid", json!("another")), ledger(), NotYet::OtherCluster),
    ] {
        let snapshot = snapshot(claim, ledger).await;
        let found = &snapshot.claim("demo", "shop-dev").unwrap().object;
        assert_eq!(Place::of(&snapshot, found).map(|_| ()), Err(why));
    }
}

#[tokio::test]
async fn roles_are_cut_to_what_both_the_resource_and_the_cluster_list() {
    let snapshot = snapshot(claim(), ledger()).await;
    let groups = |listed: &[&str]| {
        let listed = listed.iter().map(|group| group.to_string()).collect();
        let roles = roles::desired(&snapshot, "demo", &listed);
        let names: Vec<&str> = roles.keys().map(String::as_str).collect();
        assert_eq!(
            names,
            ["bailiwick:role:deployer", "bailiwick:role:member", "bailiwick:role:owner", "bailiwick:role:viewer"]
        );
        let rules = roles["bailiwick:role:deployer"]["rules"].as_array().unwrap().clone();
        rules.iter().map(|rule| rule["apiGroups"][0].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(groups(&["example.com", "other.example.com"]), ["apps", "example.com"]);
    assert_eq!(groups(&[]), ["apps"]);
}

#[tokio::test]
async fn the_older_impersonation_names_projects_with_namespaces_there_and_no_others() {
    let here = snapshot(claim(), ledger()).await;
    let rules = impersonation::rules(&here, "demo");
    let users = ["bailiwick:cluster:demo:c1d2e3f4", "bailiwick:project:shop:1a2b3c4d"];
    assert_eq!(rules[0]["resourceNames"], json!(users));
    let groups: Vec<&str> = rules[1]["resourceNames"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(groups.contains(&"bailiwick:project:shop:1a2b3c4d:deployer"), "{groups:?}");
    assert!(groups.contains(&"bailiwick:cluster:demo:c1d2e3f4:member"), "{groups:?}");
    assert_eq!(impersonation::rules(&here, "elsewhere"), json!([]));
    let going = snapshot(with(claim(), "releasing", json!(true)), ledger()).await;
    assert_eq!(impersonation::rules(&going, "demo"), json!([]));
}
