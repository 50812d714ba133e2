use serde_json::json;

use super::*;
use crate::index::testing::{resource, snapshot};

/// A grant with its UIDs resolved; `subject` and `target` are `Kind/name`.
fn grant<'a>(name: &'a str, subject: &str, role: &str, target: &str, more: Value) -> (Kind, &'a str, Value) {
    let (subject_kind, subject) = subject.split_once('/').unwrap();
    let (target_kind, target) = target.split_once('/').unwrap_or((target, ""));
    let mut spec = json!({"subject": {"kind": subject_kind, "name": subject}, "role": role,
        "target": {"kind": target_kind, "name": target}});
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    let status =
        json!({"state": "Active", "subjectUID": format!("uid-{subject}"), "targetUID": format!("uid-{target}")});
    resource(Kind::Grant, name, spec, status)
}

fn world() -> Snapshot {
    let user = |name| resource(Kind::User, name, json!({}), json!(null));
    let connection = json!({"connection": {"direct": {"server": "https://a.example.com", "certificateAuthority": ""}}});
    let members = json!({"memberUIDs": {"tess": "uid-tess"}});
    snapshot(&[
        user("root"),
        user("audrey"),
        user("olga"),
        user("max"),
        user("vera"),
        user("part"),
        user("carl"),
        user("tess"),
        user("late"),
        user("nobody"),
        resource(Kind::Team, "web", json!({"users": ["tess", "nobody"]}), members),
        resource(Kind::Team, "other", json!({}), json!(null)),
        resource(Kind::Cluster, "east", connection.clone(), json!(null)),
        resource(Kind::Cluster, "west", connection, json!(null)),
        resource(Kind::Project, "shop", json!({"roles": ["ci"], "clusters": [{"cluster": "east"}]}), json!(null)),
        resource(Kind::Project, "books", json!({"clusters": [{"cluster": "west"}]}), json!(null)),
        grant("g1", "User/root", "admin", "Platform", json!({})),
        grant("g2", "User/audrey", "auditor", "Platform", json!({})),
        grant("g3", "User/olga", "owner", "Project/shop", json!({})),
        grant("g4", "User/max", "member", "Project/shop", json!({})),
        grant("g5", "User/vera", "viewer", "Project/shop", json!({})),
        grant("g6", "User/part", "owner", "Project/shop", json!({"namespaces": ["shop-a"]})),
        grant("g7", "User/carl", "owner", "Cluster/east", json!({})),
        grant("g8", "Team/web", "ci", "Project/shop", json!({})),
        grant("g9", "User/late", "owner", "Project/shop", json!({"expiresAt": "2029-12-31T00:00:00Z"})),
        grant("g10", "User/late", "admin", "Platform", json!({"expiresAt": "2029-12-31T00:00:00Z"})),
    ])
}

/// Roles beside `authenticated`.
fn held(snapshot: &Snapshot, user: &str, object: ObjectRef<'_>) -> Vec<&'static str> {
    let now = "2030-01-01T00:00:00Z".parse().unwrap();
    let roles = roles_held(snapshot, &snapshot.users[user].object, object, now);
    let (first, rest) = roles.split_first().unwrap();
    assert_eq!(*first, "authenticated");
    rest.to_vec()
}

#[test]
fn roles_on_the_platform_count_for_every_object() {
    let s = world();
    for object in [ObjectRef::Platform, ObjectRef::User("olga"), ObjectRef::Project("shop"), ObjectRef::Team("gone")] {
        assert_eq!(held(&s, "root", object), ["platform:admin"], "{object:?}");
        assert_eq!(held(&s, "audrey", object), ["platform:auditor"], "{object:?}");
        assert_eq!(held(&s, "nobody", object), [""; 0], "{object:?}");
    }
}

#[test]
fn roles_in_a_project_count_for_it_and_no_other() {
    let s = world();
    for (user, roles) in [
        ("olga", &["project:owner"][..]),
        ("max", &["project:member"]),
        ("vera", &["project:viewer"]),
        // A part of the project, another role, a cluster it lives on: these show it and give no say.
        ("part", &["project:viewer"]),
        ("tess", &["project:viewer"]),
        ("carl", &["project:viewer"]),
        ("nobody", &[]),
    ] {
        assert_eq!(held(&s, user, ObjectRef::Project("shop")), roles, "{user}");
        assert_eq!(held(&s, user, ObjectRef::Project("books")), [""; 0], "{user}");
        assert_eq!(held(&s, user, ObjectRef::Project("gone")), [""; 0], "{user}");
    }
}

#[test]
fn what_expired_gives_nothing() {
    let s = world();
    assert_eq!(held(&s, "late", ObjectRef::Project("shop")), [""; 0]);
    assert_eq!(held(&s, "late", ObjectRef::Platform), [""; 0]);
}

#[test]
fn a_project_that_came_back_under_its_name_is_a_stranger() {
    let mut objects = vec![
        resource(Kind::User, "olga", json!({}), json!(null)),
        grant("g", "User/olga", "owner", "Project/shop", json!({})),
        resource(Kind::Project, "shop", json!({}), json!(null)),
    ];
    assert_eq!(held(&snapshot(&objects), "olga", ObjectRef::Project("shop")), ["project:owner"]);
    objects[2].2["metadata"]["uid"] = json!("another");
    assert_eq!(held(&snapshot(&objects), "olga", ObjectRef::Project("shop")), [""; 0]);
    objects[2].2["metadata"]["uid"] = json!("uid-shop");
    objects[0].2["metadata"]["uid"] = json!("another");
    assert_eq!(held(&snapshot(&objects), "olga", ObjectRef::Project("shop")), [""; 0]);
}

#[test]
fn a_cluster_is_read_by_those_with_a_grant_on_it() {
    let s = world();
    assert_eq!(held(&s, "carl", ObjectRef::Cluster("east")), ["cluster:reader"]);
    assert_eq!(held(&s, "carl", ObjectRef::Cluster("west")), [""; 0]);
    // Owning a project on it is not enough.
    assert_eq!(held(&s, "olga", ObjectRef::Cluster("east")), [""; 0]);
}

#[test]
fn teams_are_seen_by_members_and_where_they_are_named() {
    let s = world();
    assert_eq!(held(&s, "tess", ObjectRef::Team("web")), ["team:member", "project:viewer"]);
    assert_eq!(held(&s, "olga", ObjectRef::Team("web")), ["project:owner"]);
    // Listed by name, and not resolved: no member.
    assert_eq!(held(&s, "nobody", ObjectRef::Team("web")), [""; 0]);
    assert_eq!(held(&s, "olga", ObjectRef::Team("other")), [""; 0]);
}

#[test]
fn ones_own_account_tokens_and_grants() {
    let s = world();
    assert_eq!(held(&s, "max", ObjectRef::User("max")), ["self"]);
    assert_eq!(held(&s, "max", ObjectRef::User("olga")), [""; 0]);
    assert_eq!(held(&s, "max", ObjectRef::User("")), [""; 0]);
    assert_eq!(held(&s, "max", ObjectRef::Token("max")), ["self"]);
    assert_eq!(held(&s, "max", ObjectRef::Token("olga")), [""; 0]);
    let on =
        |subject_kind, subject, target_kind, target| ObjectRef::Grant { subject_kind, subject, target_kind, target };
    let user = SubjectKind::User;
    assert_eq!(held(&s, "max", on(user, "max", TargetKind::Platform, "")), ["self"]);
    assert_eq!(held(&s, "max", on(user, "olga", TargetKind::Platform, "")), [""; 0]);
    assert_eq!(held(&s, "tess", on(SubjectKind::Team, "web", TargetKind::Cluster, "east")), ["self"]);
    // A user who is called like a team is not that team.
    assert_eq!(held(&s, "tess", on(user, "web", TargetKind::Platform, "")), [""; 0]);
}

#[test]
fn grants_are_judged_by_their_target() {
    let s = world();
    let on =
        |target_kind, target| ObjectRef::Grant { subject_kind: SubjectKind::User, subject: "x", target_kind, target };
    assert_eq!(held(&s, "olga", on(TargetKind::Project, "shop")), ["project:owner"]);
    assert_eq!(held(&s, "olga", on(TargetKind::Project, "books")), [""; 0]);
    assert_eq!(held(&s, "olga", on(TargetKind::Platform, "")), [""; 0]);
    // A cluster of the same name as the project is no project.
    assert_eq!(held(&s, "olga", on(TargetKind::Cluster, "shop")), [""; 0]);
    assert_eq!(held(&s, "carl", on(TargetKind::Cluster, "east")), ["cluster:reader"]);
}

#[test]
fn references_are_read_from_objects_and_a_broken_one_gives_nobody_anything() {
    let s = world();
    let (_, _, g3) = grant("g3", "User/olga", "owner", "Project/shop", json!({}));
    let found = ObjectRef::of(Kind::Grant, &g3);
    assert_eq!(found, ObjectRef::grant(&s.grants["g3"].object.spec));
    assert_eq!(held(&s, "olga", found), ["self", "project:owner"]);
    let named = json!({"metadata": {"name": "x"}, "spec": {"owner": "max"}});
    for (kind, object) in [
        (Kind::User, ObjectRef::User("x")),
        (Kind::Team, ObjectRef::Team("x")),
        (Kind::Cluster, ObjectRef::Cluster("x")),
        (Kind::Project, ObjectRef::Project("x")),
        (Kind::Token, ObjectRef::Token("max")),
        (Kind::AccessRole, ObjectRef::Platform),
        (Kind::Grant, ObjectRef::Platform),
        (Kind::Account, ObjectRef::Platform),
    ] {
        assert_eq!(ObjectRef::of(kind, &named), object, "{kind:?}");
    }
    for broken in
        [json!({}), json!(null), json!({"metadata": {"name": 7}}), json!({"spec": {"target": {"kind": "All"}}})]
    {
        for kind in Kind::ALL {
            assert_eq!(ObjectRef::of(kind, &broken), ObjectRef::Platform, "{kind:?} {broken}");
        }
    }
}
