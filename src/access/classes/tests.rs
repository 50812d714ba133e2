use serde_json::json;

use super::*;

/// Classes of a change of the spec from `old` to `new`.
fn spec_change(kind: Kind, old: Value, new: Value) -> Vec<&'static str> {
    let object = |spec| json!({"kind": kind.as_str(), "metadata": {"name": "x"}, "spec": spec});
    field_classes(kind, Some(&object(old)), Some(&object(new)))
}

fn project(old: Value, new: Value) -> Vec<&'static str> {
    spec_change(Kind::Project, old, new)
}

fn place(change: Value) -> Value {
    let mut place = json!({"cluster": "east", "quota": {"requests.cpu": "4", "pods": "10"}});
    for (key, value) in change.as_object().unwrap() {
        place[key] = value.clone();
    }
    json!({ "clusters": [place] })
}

#[test]
fn each_field_of_a_project_has_its_class() {
    for (change, class) in [
        (json!({"displayName": "X"}), "project.presentation"),
        (json!({"roles": ["ci"]}), "project.roles"),
        (json!({"clusters": [{"cluster": "east"}]}), "project.placement"),
        (json!({"containerDefaults": {"limits": {"cpu": "1"}}}), "project.defaults"),
        (json!({"podSecurity": {"enforce": "restricted"}}), "project.security.tighten"),
        (json!({"podSecurity": {"enforce": "privileged"}}), "project.security"),
        (json!({"podSecurity": {"warn": "baseline"}}), "project.security"),
        (json!({"networkIsolation": "Project"}), "project.security.tighten"),
        (json!({"unheard": 1}), "unknown"),
    ] {
        assert_eq!(project(json!({}), change.clone()), [class], "{change}");
    }
    assert_eq!(
        project(json!({"networkIsolation": "Namespace"}), json!({"networkIsolation": "Project"})),
        ["project.security"]
    );
    assert_eq!(
        project(
            json!({"podSecurity": {"enforce": "baseline"}, "networkIsolation": "Project"}),
            json!({"podSecurity": {"enforce": "restricted"}, "networkIsolation": "None", "displayName": "X"}),
        ),
        ["project.presentation", "project.security", "project.security.tighten"]
    );
}

#[test]
fn each_field_of_a_place_has_its_class() {
    for (change, class) in [
        (json!({"prefix": "x-"}), "project.placement"),
        (json!({"maxNamespaces": 3}), "project.placement"),
        (json!({"cluster": "west"}), "project.placement"),
        (json!({"namespaces": ["x"]}), "project.namespaces"),
        (json!({"shares": {"x": {"pods": "1"}}}), "project.shares"),
        (json!({"quota": {"requests.cpu": "2", "pods": "10"}}), "project.quota.lower"),
        (json!({"quota": {"requests.cpu": "4000m", "pods": "10"}}), "project.quota.lower"),
        (json!({"quota": {"requests.cpu": "4", "pods": "10", "services": "1"}}), "project.quota.lower"),
        (json!({"quota": {"requests.cpu": "4001m", "pods": "10"}}), "project.quota"),
        (json!({"quota": {"requests.cpu": "1", "pods": "11"}}), "project.quota"),
        (json!({"quota": {"requests.cpu": "4"}}), "project.quota"),
        (json!({"quota": {}}), "project.quota"),
        (json!({"quota": {"requests.cpu": "few", "pods": "10"}}), "project.quota"),
    ] {
        assert_eq!(project(place(json!({})), place(change.clone())), [class], "{change}");
    }
    let git = json!({"changes": "git", "git": {"repository": "https://git.example.com/shop", "path": "prod"}});
    let other = json!({"changes": "git", "git": {"repository": "https://git.example.com/shop", "path": "live"}});
    for (old, new, classes) in [
        (json!({}), git.clone(), &["project.presentation", "project.security.tighten"][..]),
        (git.clone(), json!({}), &["project.security"]),
        (git.clone(), other, &["project.presentation"]),
    ] {
        assert_eq!(project(place(old), place(new.clone())), classes, "{new}");
    }
    // A quota cannot be shed by moving its place about.
    let two = json!({"clusters": [{"cluster": "east", "quota": {"pods": "1"}}, {"cluster": "west"}]});
    let turned = json!({"clusters": [{"cluster": "west"}, {"cluster": "east"}]});
    assert_eq!(project(two, turned), ["project.placement"]);
}

#[test]
fn other_kinds_have_their_classes() {
    let connection = |server: &str| json!({"direct": {"server": server, "certificateAuthority": ""}});
    let cluster = |change: Value| {
        let mut spec = json!({"connection": connection("https://a")});
        for (key, value) in change.as_object().unwrap() {
            spec[key] = value.clone();
        }
        spec
    };
    for (change, class) in [
        (json!({"displayName": "X"}), "cluster.presentation"),
        (json!({"connection": connection("https://b")}), "cluster.connection"),
        (json!({"acceptedVersions": {"min": "1.33"}}), "cluster.versions"),
        (json!({"tenantAPIGroups": ["example.com"]}), "cluster.reach"),
    ] {
        assert_eq!(spec_change(Kind::Cluster, cluster(json!({})), cluster(change.clone())), [class], "{change}");
    }
    for (kind, change, class) in [
        (Kind::User, json!({"displayName": "X"}), "user.presentation"),
        (Kind::User, json!({"email": "x@example.com"}), "user.presentation"),
        (Kind::User, json!({"type": "Machine"}), "user.type"),
        (Kind::User, json!({"disabled": true}), "user.disabled"),
        (Kind::Team, json!({"displayName": "X"}), "team.presentation"),
        (Kind::Team, json!({"users": ["x"]}), "team.members"),
        (Kind::AccessRole, json!({"base": "view"}), "role.rules"),
        (Kind::AccessRole, json!({"inherits": ["viewer"]}), "role.rules"),
        (Kind::Token, json!({"owner": "x"}), "unknown"),
    ] {
        assert_eq!(spec_change(kind, json!({}), change.clone()), [class], "{kind:?} {change}");
    }
}

#[test]
fn a_grant_has_the_class_of_its_target() {
    let on = |kind: &str, role: &str, reason: &str| {
        let target = if kind == "Platform" { json!({"kind": kind}) } else { json!({"kind": kind, "name": "x"}) };
        json!({"subject": {"kind": "User", "name": "jane"}, "role": role, "target": target, "reason": reason})
    };
    let object = |spec: Value| json!({"metadata": {"name": "g"}, "spec": spec});
    for (kind, class) in [("Project", "grant.project"), ("Cluster", "grant.cluster"), ("Platform", "grant.platform")] {
        let grant = object(on(kind, "owner", "a"));
        assert_eq!(field_classes(Kind::Grant, None, Some(&grant)), [class]);
        assert_eq!(field_classes(Kind::Grant, Some(&grant), None), [class]);
        assert_eq!(spec_change(Kind::Grant, on(kind, "owner", "a"), on(kind, "owner", "b")), [class]);
    }
    // Turning a grant on a project into one on the platform is both, and what cannot change.
    assert_eq!(
        spec_change(Kind::Grant, on("Project", "owner", "a"), on("Platform", "admin", "a")),
        ["grant.platform", "grant.project", "unknown"]
    );
    assert_eq!(
        spec_change(Kind::Grant, on("Project", "viewer", "a"), on("Project", "owner", "a")),
        ["grant.project", "unknown"]
    );
    assert_eq!(field_classes(Kind::Grant, None, Some(&object(json!({})))), ["unknown"]);
}

#[test]
fn no_change_is_still_a_question() {
    assert_eq!(project(json!({}), json!({})), ["object"]);
    // The same, written in another way.
    assert_eq!(project(json!({}), json!({"podSecurity": {"enforce": "baseline"}, "displayName": null})), ["object"]);
    for kind in Kind::ALL {
        assert!(!field_classes(kind, None, None).is_empty(), "{kind:?}");
    }
}

#[test]
fn everything_outside_the_spec_counts() {
    let base =
        json!({"apiVersion": "v", "kind": "Team", "metadata": {"name": "x", "uid": "1", "generation": 1}, "spec": {}});
    let changed = |pointer: &str, value: Value| {
        let mut new = base.clone();
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        new.pointer_mut(parent).unwrap()[key] = value;
        field_classes(Kind::Team, Some(&base), Some(&new))
    };
    for (pointer, value, class) in [
        ("/metadata/labels", json!({"a": "b"}), "metadata"),
        ("/metadata/annotations", json!({"a": "b"}), "metadata"),
        ("/metadata/name", json!("y"), "unknown"),
        ("/metadata/uid", json!("2"), "unknown"),
        ("/metadata/finalizers", json!(["x"]), "unknown"),
        ("/metadata/ownerReferences", json!([{}]), "unknown"),
        ("/kind", json!("User"), "unknown"),
        ("/extra", json!(1), "unknown"),
        ("/status", json!({"members": ["x"]}), "status"),
        ("/metadata/resourceVersion", json!("7"), "object"),
        ("/metadata/generation", json!(2), "object"),
        ("/metadata/labels", json!({}), "object"),
        ("/metadata/annotations", json!(null), "object"),
    ] {
        assert_eq!(changed(pointer, value.clone()), [class], "{pointer} {value}");
    }
    let mut new = base.clone();
    new["status"] = json!({"members": ["x"]});
    assert_eq!(field_classes(Kind::Team, None, Some(&new)), ["object", "status"]);
}

#[test]
fn every_class_is_known_to_the_rules() {
    let known: BTreeSet<_> = super::super::questions().map(|question| question[2]).collect();
    for class in ["object", "metadata", "status", "unknown", "project.quota.lower", "project.security.tighten"] {
        assert!(known.contains(class), "{class}");
    }
}
