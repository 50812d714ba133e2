use serde_json::json;

use super::*;

const ROLE: ResourceKind = ResourceKind::AccessRole;

fn rule(change: Value) -> Value {
    let mut rule = json!({"apiGroups": ["example.com"], "resources": ["widgets"], "verbs": ["get"]});
    for (key, value) in change.as_object().unwrap() {
        rule[key] = value.clone();
    }
    json!({ "rules": [rule] })
}

#[test]
fn rules_are_checked_one_by_one() {
    let world = World::default();
    accepted(ROLE, &world, json!({"base": "view"}));
    accepted(ROLE, &world, rule(json!({"apiGroups": ["", "apps"], "resourceNames": ["a"]})));
    for (change, field) in [
        (json!({"verbs": ["*"]}), "spec.rules[0].verbs[0]"),
        (json!({"verbs": ["impersonate"]}), "spec.rules[0].verbs[0]"),
        (json!({"resources": ["nodes"]}), "spec.rules[0].resources[0]"),
        (json!({"apiGroups": ["*"]}), "spec.rules[0].apiGroups[0]"),
        (json!({"apiGroups": ["Example.com"]}), "spec.rules[0].apiGroups[0]"),
        (json!({"apiGroups": ["a", "authentication.k8s.io"]}), "spec.rules[0].apiGroups[1]"),
        (json!({"apiGroups": ["bailiwick.dev"]}), "spec.rules[0].apiGroups[0]"),
        (json!({"resourceNames": [""]}), "spec.rules[0].resourceNames[0]"),
        (json!({"resourceNames": ["*"]}), "spec.rules[0].resourceNames[0]"),
        (json!({"resourceNames": ["a/b"]}), "spec.rules[0].resourceNames[0]"),
        (json!({"resourceNames": vec!["a"; 101]}), "spec.rules[0].resourceNames"),
        (json!({"nonResourceURLs": ["/"]}), "spec.rules[0].nonResourceURLs"),
    ] {
        refused(ROLE, &world, rule(change), &[field]);
    }
    refused(ROLE, &world, json!({"base": "cluster-admin"}), &["spec.base"]);
    let one = rule(json!({}))["rules"][0].clone();
    refused(ROLE, &world, json!({"rules": vec![one; 201]}), &["spec.rules"]);
}

#[test]
fn inherited_roles_exist_and_form_no_circle() {
    let world = World::default().role("a", &["viewer"]).role("b", &["x"]).role("broken", &["gone"]);
    accepted(ROLE, &world, json!({"inherits": ["viewer", "a"]}));
    refused(ROLE, &world, json!({"inherits": ["a", "nobody"]}), &["spec.inherits[1]"]);
    refused(ROLE, &world, json!({"inherits": ["broken"]}), &["spec.inherits[0]"]);
    refused(ROLE, &world, json!({"inherits": ["x"]}), &["spec.inherits[0]"]);
    refused(ROLE, &world, json!({"inherits": ["b"]}), &["spec.inherits[0]"]);
    refused(ROLE, &world, json!({"inherits": ["a", "a"]}), &["spec.inherits[1]"]);
    refused(ROLE, &world, json!({"inherits": ["admin"]}), &["spec.inherits[0]"]);
}
