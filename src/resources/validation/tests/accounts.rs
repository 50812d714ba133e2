use serde_json::json;

use super::*;

#[test]
fn users() {
    let world = World::default();
    for spec in [
        json!({}),
        json!({"displayName": "Jané Döe 👩‍💻", "email": "jane@example.com"}),
        json!({"type": "Machine", "disabled": true}),
        json!({"displayName": "<script>alert(1)</script>"}),
    ] {
        accepted(ResourceKind::User, &world, spec);
    }
    for (spec, field) in [
        (json!({"displayName": "x".repeat(129)}), "spec.displayName"),
        (json!({"displayName": " "}), "spec.displayName"),
        (json!({"displayName": "a\nb"}), "spec.displayName"),
        (json!({"displayName": "a\u{1b}[31m"}), "spec.displayName"),
        (json!({"displayName": "a\u{202e}b"}), "spec.displayName"),
        (json!({"displayName": "a\u{2066}b"}), "spec.displayName"),
        (json!({"displayName": "a\u{200b}b"}), "spec.displayName"),
        (json!({"email": "jane"}), "spec.email"),
        (json!({"email": "jane@"}), "spec.email"),
        (json!({"email": "a@b@c"}), "spec.email"),
        (json!({"email": "Jane <jane@example.com>"}), "spec.email"),
    ] {
        refused(ResourceKind::User, &world, spec, &[field]);
    }
}

#[test]
fn teams() {
    let world = World::default();
    accepted(ResourceKind::Team, &world, json!({"displayName": "Web", "users": ["jane.doe", "john"]}));
    refused(ResourceKind::Team, &world, json!({"users": ["jane", "john", "jane"]}), &["spec.users[2]"]);
    refused(ResourceKind::Team, &world, json!({"users": ["Jane", ""]}), &["spec.users[0]", "spec.users[1]"]);
    refused(ResourceKind::Team, &world, json!({"displayName": "a\u{202e}b"}), &["spec.displayName"]);
}
