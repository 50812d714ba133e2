use serde_json::json;

use super::*;

const GRANT: ResourceKind = ResourceKind::Grant;

fn world() -> World {
    World::default().role("ci", &[]).role("unused", &[]).project("shop", json!({"roles": ["ci", "gone"]}))
}

fn on(kind: &str, name: &str, role: &str) -> Value {
    json!({"subject": {"kind": "User", "name": "jane.doe"}, "role": role, "target": {"kind": kind, "name": name}})
}

#[test]
fn the_role_fits_the_target() {
    for (kind, name, role) in [
        ("Project", "shop", "owner"),
        ("Project", "shop", "ci"),
        // A grant may wait for its project, with a role that every project has.
        ("Project", "later", "member"),
        ("Cluster", "east", "viewer"),
        ("Platform", "", "admin"),
        ("Platform", "", "auditor"),
    ] {
        accepted(GRANT, &world(), on(kind, name, role));
    }
    for (kind, name, role) in [
        ("Project", "shop", "admin"),
        ("Project", "shop", "unused"),
        ("Project", "shop", "gone"),
        ("Project", "shop", ""),
        ("Project", "later", "ci"),
        ("Cluster", "east", "ci"),
        ("Cluster", "east", "admin"),
        ("Platform", "", "owner"),
        ("Platform", "", "ci"),
    ] {
        refused(GRANT, &world(), on(kind, name, role), &["spec.role"]);
    }
}

#[test]
fn subject_and_target_are_well_formed() {
    accepted(
        GRANT,
        &world(),
        with(&on("Project", "shop", "owner"), "/subject", json!({"kind": "Team", "name": "web"})),
    );
    refused(
        GRANT,
        &world(),
        with(&on("Project", "shop", "owner"), "/subject", json!({"kind": "Team", "name": "a.b"})),
        &["spec.subject.name"],
    );
    refused(GRANT, &world(), with(&on("Project", "shop", "owner"), "/subject/name", json!("")), &["spec.subject.name"]);
    refused(
        GRANT,
        &world(),
        with(&on("Project", "shop", "owner"), "/subject/kind", json!("Group")),
        &["spec.subject.kind"],
    );
    refused(GRANT, &world(), on("Platform", "x", "admin"), &["spec.target.name"]);
    refused(GRANT, &world(), on("Cluster", "", "owner"), &["spec.target.name"]);
    refused(GRANT, &world(), on("Project", "..", "owner"), &["spec.target.name"]);
}

#[test]
fn the_three_parts_of_the_sentence_cannot_change() {
    let spec = on("Project", "shop", "owner");
    let old = object(GRANT, "g", spec.clone());
    let to = |pointer: &str, value: Value| {
        wrong(GRANT, Some(&old), &object(GRANT, "g", with(&spec, pointer, value)), &world())
    };
    assert_eq!(to("/reason", json!("on call")), [""; 0]);
    assert_eq!(to("/role", json!("viewer")), ["spec.role"]);
    assert_eq!(to("/subject/name", json!("john")), ["spec.subject"]);
    assert_eq!(to("/subject/kind", json!("Team")), ["spec.subject"]);
    assert_eq!(to("/target/name", json!("other")), ["spec.target"]);
    assert_eq!(to("/target", json!({"kind": "Platform"})), ["spec.target"]);
    let unreadable = object(GRANT, "g", json!({"who": "jane"}));
    assert_eq!(wrong(GRANT, Some(&unreadable), &old, &world()), ["spec"]);
}

#[test]
fn a_grant_whose_role_the_project_dropped_can_still_be_ended() {
    let spec = on("Project", "shop", "unused");
    let ended = with(&spec, "/expiresAt", json!("2020-01-01T00:00:00Z"));
    assert_eq!(wrong(GRANT, Some(&object(GRANT, "g", spec)), &object(GRANT, "g", ended), &world()), [""; 0]);
}

#[test]
fn namespaces_belong_to_project_grants() {
    let limited = |kind, name, namespaces: Value| with(&on(kind, name, "owner"), "/namespaces", namespaces);
    accepted(GRANT, &world(), limited("Project", "shop", json!(["shop-web", "shop-db"])));
    refused(GRANT, &world(), limited("Cluster", "east", json!(["shop-web"])), &["spec.namespaces"]);
    refused(GRANT, &world(), limited("Project", "shop", json!(["a", "kube-system"])), &["spec.namespaces[1]"]);
    refused(GRANT, &world(), limited("Project", "shop", json!(["a", "A"])), &["spec.namespaces[1]"]);
    refused(GRANT, &world(), limited("Project", "shop", json!(["a", "a"])), &["spec.namespaces[1]"]);
}

#[test]
fn an_expiry_is_a_time_and_at_first_in_the_future() {
    let until = |time: &str| with(&on("Project", "shop", "owner"), "/expiresAt", json!(time));
    for time in ["2030-01-01T00:00:01Z", "2031-06-01T12:00:00.5Z", "2030-01-01T01:00:00-05:00"] {
        accepted(GRANT, &world(), until(time));
    }
    for time in [
        "2030-01-01T00:00:00Z",
        "2029-12-31T23:59:59Z",
        "2030-01-01T00:30:00+01:00",
        "tomorrow",
        "2031-01-01",
        "2031-01-01T00:00:00",
        "2031-01-01 00:00:00Z",
        "2031-02-30T00:00:00Z",
        "2031-01-01T00:00:00Z[Europe/Rome]",
        "",
    ] {
        refused(GRANT, &world(), until(time), &["spec.expiresAt"]);
    }
    refused(GRANT, &world(), with(&on("Project", "shop", "owner"), "/reason", json!("a\u{202e}")), &["spec.reason"]);
}
