mod property;

use std::path::PathBuf;

use serde_json::{Value, json};

use super::super::{as_json, as_text, as_yaml};
use super::*;
use crate::cli::documents;

fn from_text(text: &str) -> Vec<Document> {
    let objects = documents::objects("export.yaml", text).unwrap();
    objects.into_iter().map(|(place, value)| Document { place, value }).collect()
}

fn from_values(values: Vec<Value>) -> Vec<Document> {
    let placed = values.into_iter().enumerate();
    placed.map(|(at, value)| Document { place: format!("#{at}"), value }).collect()
}

fn sample() -> Vec<Document> {
    from_text(include_str!("tests/export.yaml"))
}

fn done(documents: Vec<Document>) -> Translation {
    translate(documents, &Options::default()).unwrap()
}

fn object(kind: &str, name: &str, more: Value) -> Value {
    let mut object = json!({
        "apiVersion": "management.cattle.io/v3", "kind": kind, "metadata": {"name": name},
    });
    object.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    object
}

fn resource<'a>(translation: &'a Translation, label: &str) -> &'a Value {
    let found = translation.resources.iter().find(|resource| resource.label() == label);
    &found.unwrap_or_else(|| panic!("no {label}")).value
}

/// After a change: `BAILIWICK_REGENERATE=1 cargo test --lib import::rancher`, then read the difference.
#[test]
fn the_sample_becomes_what_was_read_and_found_right() {
    let translation = done(sample());
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/cli/import/rancher/tests");
    for (file, text) in [("expected.yaml", as_yaml(&translation).unwrap()), ("losses.txt", as_text(&translation))] {
        let path = folder.join(file);
        if std::env::var_os("BAILIWICK_REGENERATE").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        assert!(std::fs::read_to_string(&path).unwrap_or_default() == text, "{file} is not what comes out; see above");
    }
}

#[test]
fn both_formats_are_read_back_as_the_same_objects() {
    let translation = done(sample());
    let values = |text: &str| -> Vec<(String, Value)> {
        documents::parse("out", text).unwrap().into_iter().map(|d| (d.name, d.object)).collect()
    };
    let from_yaml = values(&as_yaml(&translation).unwrap());
    let from_json = values(&as_json(&translation).to_string());
    assert_eq!(from_yaml.len(), translation.resources.len());
    assert_eq!(from_yaml, from_json, "no name for people escapes from a comment or a string");
    let losses = as_json(&translation)["losses"].as_array().unwrap().len();
    assert_eq!(losses, translation.losses.len());
}

#[test]
fn no_secret_and_no_wildcard_comes_out() {
    let translation = done(sample());
    let all = [as_yaml(&translation).unwrap(), as_text(&translation)].concat();
    assert!(!all.contains("never-to-be-seen"));
    for role in translation.resources.iter().filter(|r| r.kind == ResourceKind::AccessRole) {
        assert!(!role.value["spec"].to_string().contains('*'), "{}", role.value);
    }
}

#[test]
fn one_name_in_two_clusters_is_two_projects() {
    let translation = done(sample());
    assert_eq!(resource(&translation, "Project/shop-prod-east")["spec"]["clusters"][0]["cluster"], "prod-east");
    assert_eq!(resource(&translation, "Project/shop-west")["spec"]["clusters"][0]["cluster"], "west");
}

#[test]
fn two_persons_of_one_name_are_two_users_and_admin_is_not_ours() {
    let translation = done(sample());
    let users: Vec<&str> =
        translation.resources.iter().filter(|r| r.kind == ResourceKind::User).map(|r| r.name.as_str()).collect();
    assert_eq!(users, ["jane.doe-u-jane1", "jane.doe-u-jane2", "left", "admin-user-admin"]);
    assert_eq!(resource(&translation, "User/left")["spec"]["disabled"], true);
}

#[test]
fn names_that_cannot_be_written_leave_a_rule_nothing_and_never_everything() {
    let translation = done(sample());
    let rules = resource(&translation, "AccessRole/rancher-owner")["spec"]["rules"].to_string();
    assert!(!rules.contains("configmaps"), "both its names are none: {rules}");
    assert!(rules.contains(r#""resourceNames":["tls"],"resources":["secrets"]"#), "{rules}");
}

#[test]
fn quotas_and_shares() {
    let translation = done(sample());
    let place = &resource(&translation, "Project/shop-prod-east")["spec"]["clusters"][0];
    assert_eq!(
        place["quota"],
        json!({"pods": "40", "requests.cpu": "8000m", "limits.memory": "32Gi", "services.nodeports": "0",
            "requests.example.com/gpu": "4", "count/deployments.apps": "20"})
    );
    // limits.memory would be 20Gi twice, above 32Gi; of the extended ones nobody has a share.
    assert_eq!(
        place["shares"],
        json!({"shop-db": {"pods": "10", "requests.cpu": "2000m", "services.nodeports": "0"},
            "shop-web": {"pods": "25", "requests.cpu": "3", "services.nodeports": "0"}})
    );
    assert_eq!(resource(&translation, "Project/shop-prod-east")["spec"]["podSecurity"]["enforce"], "restricted");
}

#[test]
fn built_in_roles_are_taken_only_when_asked_for_and_what_they_add_is_said() {
    let options = Options { roles: RoleStyle::BuiltIn, ..Options::default() };
    let translation = translate(sample(), &options).unwrap();
    let grant = resource(&translation, "Grant/shop-prod-east-jane.doe-u-jane1-owner");
    assert_eq!(grant["spec"]["role"], "owner");
    let widened: Vec<&Loss> = translation.losses.iter().filter(|loss| loss.what == What::Widened).collect();
    assert_eq!(widened.len(), 3, "owner, member, viewer: {widened:?}");
    assert!(widened[0].message.contains("get,update,patch on pods/ephemeralcontainers (core)"), "{}", widened[0]);
    assert!(!done(sample()).losses.iter().any(|loss| loss.what == What::Widened));
}

#[test]
fn a_template_that_calls_itself_the_clusters_owner_is_none() {
    let documents = |builtin: bool| {
        let everything = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
        let template = json!({"builtin": builtin, "context": "cluster", "rules": everything});
        let binding = json!({"clusterName": "c-1", "roleTemplateName": "cluster-owner", "userName": "u-1"});
        from_values(vec![
            object("RoleTemplate", "cluster-owner", template),
            object("User", "u-1", json!({"username": "jane"})),
            object("Project", "p-1", json!({"spec": {"clusterName": "c-1", "displayName": "Shop"}})),
            object("ClusterRoleTemplateBinding", "b", binding),
        ])
    };
    let role = |translation: &Translation| {
        translation.resources.iter().find(|r| r.kind == ResourceKind::Grant).unwrap().value["spec"].clone()
    };
    assert_eq!(role(&done(documents(true)))["target"], json!({"kind": "Cluster", "name": "c-1"}));
    let own = done(documents(false));
    assert_eq!(role(&own)["target"], json!({"kind": "Project", "name": "shop"}));
    assert_eq!(role(&own)["role"], "rancher-cluster-owner");
}

#[test]
fn a_principal_is_not_a_group_of_the_same_name() {
    let template =
        json!({"context": "project", "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]});
    let binding = |subject: &str| json!({"projectName": "c-1:p-1", "roleTemplateName": "rt", subject: "g-1"});
    let members = |subject: &str| {
        let translation = done(from_values(vec![
            object("RoleTemplate", "rt", template.clone()),
            object("User", "u-1", json!({"username": "jane", "principalIds": ["local://u-1"]})),
            object("GroupMember", "m", json!({"groupName": "g-1", "principalId": "local://u-1"})),
            object("Project", "p-1", json!({"spec": {"clusterName": "c-1", "displayName": "Shop"}})),
            object("ProjectRoleTemplateBinding", "b", binding(subject)),
        ]));
        resource(&translation, "Team/g-1")["spec"]["users"].clone()
    };
    assert_eq!(members("groupName"), json!(["jane"]));
    assert_eq!(members("groupPrincipalName"), json!([]));
}

#[test]
fn what_cannot_be_read_is_named_with_document_and_field() {
    let project = |spec: Value| object("Project", "p-1", json!({"spec": spec}));
    for (values, expected) in [
        (vec![project(json!({"displayName": "x"}))], "#0: Project: spec: missing field `clusterName`"),
        (
            vec![project(json!({"clusterName": 7}))],
            "#0: Project: spec.clusterName: invalid type: integer `7`, expected a string",
        ),
        (
            vec![object("RoleTemplate", "r", json!({"rules": [{"verbs": "get"}]}))],
            "#0: RoleTemplate: rules[0].verbs: invalid type: string \"get\", expected a sequence",
        ),
        (vec![json!({"kind": "Project"})], "#0: object: apiVersion: is missing"),
        (vec![json!(["x"])], "#0: object: apiVersion: is missing"),
        (vec![object("User", "", json!({}))], "#0: User: metadata.name: is missing"),
        (
            vec![object("User", "u", json!({})), object("User", "u", json!({"username": "x"}))],
            "#1: User u is described a second time and differently, first at #0",
        ),
        (vec![json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}})], "no object of Rancher's"),
        (vec![], "no object of Rancher's"),
    ] {
        let refused = translate(from_values(values), &Options::default()).unwrap_err().to_string();
        assert!(refused.starts_with(expected), "{refused}\n{expected}");
    }
    let again = vec![object("User", "u", json!({})), object("User", "u", json!({}))];
    assert_eq!(done(from_values(again)).resources.len(), 1, "one file given twice is no contradiction");
}

#[test]
fn clusters_are_called_as_asked_and_never_two_alike() {
    let mapped = |pairs: &[(&str, &str)]| {
        let clusters = pairs.iter().map(|(id, name)| (id.to_string(), name.to_string())).collect();
        translate(sample(), &Options { clusters, ..Options::default() })
    };
    let translation = mapped(&[("c-m-east1", "east")]).unwrap();
    assert_eq!(resource(&translation, "Project/shop-east")["spec"]["clusters"][0]["cluster"], "east");
    // The name is taken from the one that would have it.
    let taken = mapped(&[("c-m-east1", "west")]).unwrap();
    let names: Vec<&str> = taken.clusters.iter().map(|cluster| cluster.name.as_str()).collect();
    assert_eq!(names, ["west", "west-c-m-west2"]);
    for (pairs, expected) in [
        (&[("c-m-none", "east")][..], "no cluster"),
        (&[("c-m-east1", "East")], "lower-case"),
        (&[("c-m-east1", "one"), ("c-m-west2", "one")], "cannot be one of ours"),
    ] {
        assert!(mapped(pairs).unwrap_err().to_string().contains(expected), "{pairs:?}");
    }
}

#[test]
fn a_large_export_is_read() {
    let mut text = String::from("apiVersion: v1\nkind: List\nitems:\n");
    for at in 0..20_000 {
        text.push_str(&format!(
            "- apiVersion: management.cattle.io/v3\n  kind: User\n  metadata:\n    name: u-{at:05}\n    labels:\n      a: b\n      c: d\n  username: user{at}\n  principalIds:\n  - local://u-{at}\n"
        ));
    }
    assert_eq!(done(from_text(&text)).resources.len(), 20_000);
}
