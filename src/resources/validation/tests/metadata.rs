use serde_json::json;

use super::*;

const TEAM: ResourceKind = ResourceKind::Team;

fn team(metadata: Value) -> Value {
    json!({"apiVersion": "bailiwick.dev/v1alpha1", "kind": "Team", "metadata": metadata, "spec": {}})
}

fn found(new: &Value) -> Vec<String> {
    wrong(TEAM, None, new, &World::default())
}

#[test]
fn names_are_labels_and_for_users_and_grants_subdomains() {
    assert_eq!(found(&team(json!({"name": "web"}))), [""; 0]);
    for name in ["", "..", "Web", "a_b", "a.b", "system:masters", "🙂", "ѕhop", &"a".repeat(300)] {
        assert_eq!(found(&team(json!({ "name": name }))), ["metadata.name"], "{name:?}");
    }
    assert_eq!(found(&team(json!({}))), ["metadata.name"]);
    assert_eq!(found(&team(json!({"name": 7}))), ["metadata.name"]);
    let user =
        |name: &str| wrong(ResourceKind::User, None, &object(ResourceKind::User, name, json!({})), &World::default());
    assert_eq!(user("jane.doe"), [""; 0]);
    for name in ["jane..doe", "Jane.Doe", "jane/doe"] {
        assert_eq!(user(name), ["metadata.name"], "{name}");
    }
}

#[test]
fn reserved_names_are_refused_at_creation() {
    let named = |kind: ResourceKind, name: &str| wrong(kind, None, &object(kind, name, json!({})), &World::default());
    for (kind, name) in [
        (ResourceKind::User, "me"),
        (ResourceKind::User, "self"),
        (ResourceKind::Project, "me"),
        (ResourceKind::AccessRole, "owner"),
        (ResourceKind::AccessRole, "member"),
        (ResourceKind::AccessRole, "viewer"),
        (ResourceKind::AccessRole, "admin"),
        (ResourceKind::AccessRole, "auditor"),
    ] {
        assert_eq!(named(kind, name), ["metadata.name"], "{kind:?} {name}");
    }
    for (kind, name) in [(ResourceKind::User, "mel"), (ResourceKind::Team, "me"), (ResourceKind::AccessRole, "owners")]
    {
        assert_eq!(named(kind, name), [""; 0], "{kind:?} {name}");
    }
}

#[test]
fn the_name_cannot_change() {
    let old = object(TEAM, "web", json!({}));
    assert_eq!(wrong(TEAM, Some(&old), &old, &World::default()), [""; 0]);
    assert_eq!(wrong(TEAM, Some(&old), &object(TEAM, "web2", json!({})), &World::default()), ["metadata.name"]);
}

#[test]
fn api_version_and_kind_must_be_right() {
    let mut other = team(json!({"name": "web"}));
    other["apiVersion"] = json!("v1");
    other["kind"] = json!("User");
    assert_eq!(found(&other), ["apiVersion", "kind"]);
    assert_eq!(found(&json!([])), [""]);
}

#[test]
fn unknown_fields_are_refused_with_their_path() {
    let mut top = team(json!({"name": "web"}));
    top["extra"] = json!(1);
    assert_eq!(found(&top), ["extra"]);
    assert_eq!(found(&team(json!({"name": "web", "colour": "red"}))), ["metadata.colour"]);
    assert_eq!(found(&team(json!({"name": "web", "ownerReferences": []}))), ["metadata.ownerReferences"]);
    assert_eq!(found(&team(json!({"name": "web", "namespace": "x"}))), ["metadata.namespace"]);
    assert_eq!(found(&team(json!({"name": "web", "namespace": "", "resourceVersion": "4"}))), [""; 0]);
    refused(TEAM, &World::default(), json!({"groups": []}), &["spec.groups"]);
    refused(
        ResourceKind::Project,
        &World::default(),
        json!({"clusters": [{"cluster": "a"}, {"cluster": "b", "branches": "git"}]}),
        &["spec.clusters[1].branches"],
    );
    refused(ResourceKind::Project, &World::default(), json!({"podSecurity": {"en": "x"}}), &["spec.podSecurity.en"]);
}

#[test]
fn wrong_types_and_missing_fields_are_told_with_their_path() {
    refused(TEAM, &World::default(), json!({"users": "jane"}), &["spec.users"]);
    refused(TEAM, &World::default(), json!({"users": ["jane", 7]}), &["spec.users[1]"]);
    refused(TEAM, &World::default(), json!("x"), &["spec"]);
    refused(ResourceKind::Project, &World::default(), json!({"clusters": [{}]}), &["spec.clusters[0].cluster"]);
    refused(ResourceKind::Grant, &World::default(), json!({}), &["spec.subject"]);
    refused(ResourceKind::Cluster, &World::default(), json!({}), &["spec.connection"]);
    refused(ResourceKind::User, &World::default(), json!({"type": "Robot"}), &["spec.type"]);
    refused(
        ResourceKind::Project,
        &World::default(),
        json!({"podSecurity": {"enforce": "open"}}),
        &["spec.podSecurity.enforce"],
    );
}

#[test]
fn labels_and_annotations_must_be_legal() {
    let labelled = |labels: Value| found(&team(json!({"name": "web", "labels": labels})));
    assert_eq!(labelled(json!({"tier": "gold", "example.com/Cost_Centre": "", "a.b": "A-1_b.c"})), [""; 0]);
    for (labels, field) in [
        (json!({"tier": "-x"}), "metadata.labels[tier]"),
        (json!({"tier": "a b"}), "metadata.labels[tier]"),
        (json!({"tier": "x".repeat(64)}), "metadata.labels[tier]"),
        (json!({"tier": 1}), "metadata.labels[tier]"),
        (json!({"": "x"}), "metadata.labels[]"),
        (json!({"Example.com/x": "x"}), "metadata.labels[Example.com/x]"),
        (json!({"a/b/c": "x"}), "metadata.labels[a/b/c]"),
        (json!(["x"]), "metadata.labels"),
    ] {
        assert_eq!(labelled(labels.clone()), [field], "{labels}");
    }
    let annotated = |annotations: Value| found(&team(json!({"name": "web", "annotations": annotations})));
    assert_eq!(annotated(json!({"example.com/note": "any text, {}"})), [""; 0]);
    assert_eq!(annotated(json!({"a b": "x"})), ["metadata.annotations[a b]"]);
    assert_eq!(annotated(json!({"a": {}})), ["metadata.annotations[a]"]);
    assert_eq!(annotated(json!({"a": "x".repeat(70_000)})), ["metadata.annotations"]);
}

#[test]
fn a_status_cannot_be_written() {
    let mut new = team(json!({"name": "web"}));
    new["status"] = json!({"memberUIDs": {"jane": "1"}});
    assert_eq!(found(&new), ["status"]);
    // The stored one, put in place by the caller, is no change.
    assert_eq!(wrong(TEAM, Some(&new), &new, &World::default()), [""; 0]);
    let mut other = new.clone();
    other["status"]["memberUIDs"]["jane"] = json!("2");
    assert_eq!(wrong(TEAM, Some(&new), &other, &World::default()), ["status"]);
}

#[test]
fn a_spec_is_bounded() {
    let many: Vec<_> = (0..30_000).map(|i| format!("user-{i}")).collect();
    refused(TEAM, &World::default(), json!({ "users": many }), &["spec"]);
    let some: Vec<_> = (0..5_001).map(|i| format!("u{i}")).collect();
    refused(TEAM, &World::default(), json!({ "users": some }), &["spec.users"]);
    accepted(TEAM, &World::default(), json!({ "users": some[1..] }));
}

#[test]
fn kinds_that_the_service_makes_cannot_be_written() {
    let token = json!({"apiVersion": "bailiwick.dev/v1alpha1", "kind": "Token", "metadata": {"name": "x"}});
    let causes = validate(None, None, &token, &World::default()).unwrap_err();
    assert_eq!(causes[0].field, "kind");
}

#[test]
fn a_hostile_object_gets_a_bounded_answer() {
    let users: Vec<_> = (0..4_000).map(|i| format!("U{i}")).collect();
    let causes = validate(TEAM, None, &object(TEAM, "x", json!({ "users": users })), &World::default()).unwrap_err();
    assert_eq!(causes.len(), MOST_CAUSES);
}
