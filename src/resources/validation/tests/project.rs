use serde_json::json;

use super::*;

const PROJECT: ResourceKind = ResourceKind::Project;

/// Project `books` has the prefix `books-` and declares `library` and `shelf-one` on cluster east.
fn world() -> World {
    let mut world = World::default().role("ci", &[]).project(
        "books",
        json!({"clusters": [{"cluster": "east", "prefix": "books-", "namespaces": ["library", "shelf-one"]}]}),
    );
    world.clusters = vec!["east", "west"];
    world
}

fn place(change: Value) -> Value {
    let mut place = json!({"cluster": "east"});
    for (key, value) in change.as_object().unwrap() {
        place[key] = value.clone();
    }
    json!({ "clusters": [place] })
}

#[track_caller]
fn ok(change: Value) {
    accepted(PROJECT, &world(), place(change));
}

#[track_caller]
fn bad(change: Value, below: &[&str]) {
    let fields: Vec<_> = below.iter().map(|field| format!("spec.clusters[0].{field}")).collect();
    refused(PROJECT, &world(), place(change), &fields.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn clusters_are_distinct_and_exist() {
    accepted(PROJECT, &world(), json!({"clusters": [{"cluster": "east"}, {"cluster": "west"}]}));
    refused(
        PROJECT,
        &world(),
        json!({"clusters": [{"cluster": "east"}, {"cluster": "west"}, {"cluster": "east"}]}),
        &["spec.clusters[2].cluster"],
    );
    refused(PROJECT, &world(), json!({"clusters": [{"cluster": "north"}]}), &["spec.clusters[0].cluster"]);
    refused(PROJECT, &world(), json!({"clusters": [{"cluster": ""}]}), &["spec.clusters[0].cluster"]);
    // What stood there before is no reason to refuse a change.
    let old = object(PROJECT, "x", json!({"clusters": [{"cluster": "north"}]}));
    let new = object(PROJECT, "x", json!({"clusters": [{"cluster": "north"}], "displayName": "X"}));
    assert_eq!(wrong(PROJECT, Some(&old), &new, &world()), [""; 0]);
}

#[test]
fn namespaces_are_well_formed_distinct_and_few_enough() {
    ok(json!({"namespaces": ["shop-web", "shop-db"], "maxNamespaces": 2}));
    bad(json!({"namespaces": ["shop-web", "Shop"]}), &["namespaces[1]"]);
    bad(json!({"namespaces": ["a.b"]}), &["namespaces[0]"]);
    bad(json!({"namespaces": ["shop", "shop"]}), &["namespaces[1]"]);
    bad(json!({"namespaces": ["a", "b", "c"], "maxNamespaces": 2}), &["namespaces"]);
    bad(json!({"maxNamespaces": 0}), &["maxNamespaces"]);
    bad(json!({"maxNamespaces": 1_001}), &["maxNamespaces"]);
    for system in ["default", "kube-system", "kube-public", "bailiwick-system"] {
        bad(json!({"namespaces": [system]}), &["namespaces[0]"]);
    }
}

#[test]
fn a_prefix_ends_in_a_dash_and_covers_nothing_of_the_cluster() {
    for prefix in ["shop-", "s-", "0-", "shop-a-", "kubernetes-"] {
        ok(json!({ "prefix": prefix }));
    }
    for prefix in [
        "",
        "-",
        "shop",
        "Shop-",
        "-shop-",
        "shop--",
        "a.b-",
        "kube-",
        "kube-x-",
        "bailiwick-",
        &format!("{}-", "a".repeat(40)),
    ] {
        bad(json!({ "prefix": prefix }), &["prefix"]);
    }
}

#[test]
fn no_prefix_begins_another_in_either_direction() {
    ok(json!({"prefix": "bookstore-"}));
    for prefix in ["books-", "books-a-"] {
        bad(json!({ "prefix": prefix }), &["prefix"]);
    }
    let world = world().project("wide", json!({"clusters": [{"cluster": "east", "prefix": "team-a-b-"}]}));
    for prefix in ["team-", "team-a-", "team-a-b-", "team-a-b-c-"] {
        refused(PROJECT, &world, place(json!({ "prefix": prefix })), &["spec.clusters[0].prefix"]);
    }
    // Elsewhere is elsewhere.
    accepted(PROJECT, &world, json!({"clusters": [{"cluster": "west", "prefix": "team-"}]}));
    // And a project is no stranger to itself.
    let own = object(
        PROJECT,
        "books",
        json!({"clusters": [{"cluster": "east", "prefix": "books-", "namespaces": ["library"]}]}),
    );
    assert_eq!(wrong(PROJECT, Some(&own), &own, &world), [""; 0]);
}

#[test]
fn prefixes_and_declared_namespaces_of_others_do_not_meet() {
    bad(json!({"prefix": "shelf-"}), &["prefix"]);
    ok(json!({"prefix": "shelf-two-"}));
    bad(json!({"namespaces": ["books-mine"]}), &["namespaces[0]"]);
    bad(json!({"namespaces": ["ok", "library"]}), &["namespaces[1]"]);
    ok(json!({"namespaces": ["books"]}));
}

#[test]
fn a_namespace_that_another_project_has_claimed_is_taken() {
    let mut world = world();
    world.claims = vec![["east", "moved-1", "books", "uid-books"], ["east", "mine-1", "x", "uid-x"]];
    refused(PROJECT, &world, place(json!({"namespaces": ["moved-1"]})), &["spec.clusters[0].namespaces[0]"]);
    refused(PROJECT, &world, place(json!({"prefix": "moved-"})), &["spec.clusters[0].prefix"]);
    // At creation nothing is ours yet: a claim under our name is of a project that had the name before.
    refused(PROJECT, &world, place(json!({"namespaces": ["mine-1"]})), &["spec.clusters[0].namespaces[0]"]);
    let stored = |spec: Value| object(PROJECT, "x", spec);
    let (old, new) = (stored(json!({})), stored(place(json!({"namespaces": ["mine-1"], "prefix": "mine-"}))));
    assert_eq!(wrong(PROJECT, Some(&old), &new, &world), [""; 0]);
    let mut stranger = old.clone();
    stranger["metadata"]["uid"] = json!("another");
    assert_eq!(
        wrong(PROJECT, Some(&stranger), &new, &world),
        ["spec.clusters[0].namespaces[0]", "spec.clusters[0].prefix"]
    );
    // A namespace that was moved away under a prefix that is kept is in nobody's way.
    let kept = stored(place(json!({"prefix": "moved-"})));
    assert_eq!(wrong(PROJECT, Some(&kept), &kept, &world), [""; 0]);
}

#[test]
fn a_reserved_name_cannot_be_taken() {
    let mut world = world();
    world.reserved = vec!["x"];
    refused(PROJECT, &world, json!({}), &["metadata.name"]);
    let there = object(PROJECT, "x", json!({}));
    assert_eq!(wrong(PROJECT, Some(&there), &there, &world), [""; 0]);
}

#[test]
fn quota_keys_and_amounts_are_those_of_kubernetes() {
    ok(json!({"quota": {"requests.cpu": "10", "limits.memory": "20Gi", "pods": "50", "count/jobs.batch": "5"}}));
    bad(json!({"quota": {"cpu": "10"}}), &["quota[cpu]"]);
    bad(json!({"quota": {"gold": "1"}}), &["quota[gold]"]);
    bad(json!({"quota": {"pods": "-1"}}), &["quota[pods]"]);
    bad(json!({"quota": {"pods": "1.5"}}), &["quota[pods]"]);
    bad(json!({"quota": {"limits.memory": "20 GB"}}), &["quota[limits.memory]"]);
    bad(json!({"quota": {"pods": 5}}), &["quota.pods"]);
}

#[test]
fn shares_are_of_our_namespaces_and_within_the_quota() {
    let shared = |shares: Value| json!({"namespaces": ["shop"], "prefix": "shop-", "quota": {"requests.cpu": "4", "pods": "10"}, "shares": shares});
    ok(shared(json!({"shop": {"requests.cpu": "2500m", "pods": "4"}, "shop-x": {"requests.cpu": "1500m"}})));
    bad(shared(json!({"shop": {"requests.cpu": "2501m"}, "shop-x": {"requests.cpu": "1500m"}})), &["shares"]);
    bad(shared(json!({"other": {"pods": "1"}})), &["shares[other]"]);
    bad(shared(json!({"kube-system": {"pods": "1"}})), &["shares[kube-system]"]);
    bad(shared(json!({"shop": {"services": "1"}})), &["shares[shop][services]"]);
    bad(shared(json!({"shop": {"pods": "-1"}})), &["shares[shop][pods]"]);
    bad(shared(json!({"shop": {"pods": "many"}})), &["shares[shop][pods]"]);
    // A moved namespace keeps a name outside the prefix, and may have a share.
    let mut world = world();
    world.claims = vec![["east", "other", "x", "uid-x"]];
    let (old, new) =
        (object(PROJECT, "x", json!({})), object(PROJECT, "x", place(shared(json!({"other": {"pods": "1"}})))));
    assert_eq!(wrong(PROJECT, Some(&old), &new, &world), [""; 0]);
}

#[test]
fn roles_exist_and_are_not_built_in() {
    accepted(PROJECT, &world(), json!({"roles": ["ci"]}));
    refused(PROJECT, &world(), json!({"roles": ["ci", "nobody"]}), &["spec.roles[1]"]);
    refused(PROJECT, &world(), json!({"roles": ["owner"]}), &["spec.roles[0]"]);
    refused(PROJECT, &world(), json!({"roles": ["admin"]}), &["spec.roles[0]"]);
    refused(PROJECT, &world(), json!({"roles": ["ci", "ci"]}), &["spec.roles[1]"]);
}

#[test]
fn container_defaults_are_consistent() {
    let defaults =
        |requests: Value, limits: Value| json!({"containerDefaults": {"requests": requests, "limits": limits}});
    accepted(
        PROJECT,
        &world(),
        defaults(json!({"cpu": "100m", "memory": "64Mi"}), json!({"cpu": "0.1", "ephemeral-storage": "1Gi"})),
    );
    for (requests, limits, field) in [
        (json!({"cpu": "2"}), json!({"cpu": "1"}), "requests[cpu]"),
        (json!({"memory": "1Gi"}), json!({"memory": "1G"}), "requests[memory]"),
        (json!({"example.com/gpu": "1"}), json!({}), "requests[example.com/gpu]"),
        (json!({}), json!({"pods": "1"}), "limits[pods]"),
        (json!({"cpu": "-1"}), json!({}), "requests[cpu]"),
        (json!({"cpu": "1u"}), json!({}), "requests[cpu]"),
        (json!({"memory": "1m"}), json!({}), "requests[memory]"),
        (json!({"memory": "x"}), json!({}), "requests[memory]"),
    ] {
        refused(PROJECT, &world(), defaults(requests, limits), &[&format!("spec.containerDefaults.{field}")]);
    }
}

#[test]
fn walls_of_any_level_are_accepted_and_others_refused() {
    accepted(
        PROJECT,
        &world(),
        json!({"podSecurity": {"enforce": "privileged", "warn": "baseline"}, "networkIsolation": "Namespace"}),
    );
    refused(PROJECT, &world(), json!({"networkIsolation": "Everything"}), &["spec.networkIsolation"]);
}

#[test]
fn changes_by_git_say_where_and_nothing_else_does() {
    let git = |repository: &str, path: &str| json!({"changes": "git", "git": {"repository": repository, "path": path}});
    ok(json!({"changes": "anyone"}));
    ok(git("https://git.example.com/shop", "prod"));
    ok(git("ssh://git@git.example.com/shop", "prod/web"));
    ok(git("git@git.example.com:shop", "."));
    bad(json!({"changes": "git"}), &["git"]);
    bad(json!({"git": {"repository": "https://git.example.com/shop", "path": "prod"}}), &["git"]);
    bad(git("", "prod"), &["git.repository"]);
    bad(git("https://git.example.com/shop", " "), &["git.path"]);
    bad(git("https://jane:word@git.example.com/shop", "prod"), &["git.repository"]);
    bad(git("https://git.example.com/shop\nx", "prod"), &["git.repository"]);
    bad(git(&"x".repeat(257), "prod"), &["git.repository"]);
}
