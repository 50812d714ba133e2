use super::*;

const BASE: &str = "https://bailiwick.example.com";

fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap()
}

/// What the service hands out.
fn ours() -> Value {
    yaml(
        "apiVersion: v1
kind: Config
current-context: demo
clusters:
- {name: demo, cluster: {server: 'https://bailiwick.example.com/k8s/clusters/demo'}}
- {name: shop@demo, cluster: {server: 'https://bailiwick.example.com/k8s/clusters/demo/projects/shop'}}
users:
- {name: bailiwick-bailiwick.example.com, user: {token: bwk_new_secret}}
contexts:
- {name: demo, context: {cluster: demo, user: bailiwick-bailiwick.example.com}}
- {name: shop@demo, context: {cluster: shop@demo, user: bailiwick-bailiwick.example.com, namespace: shop-web}}
",
    )
}

/// A file with somebody else's cluster, extensions, and things that we do not know.
fn theirs() -> Value {
    yaml(
        "apiVersion: v1
kind: Config
preferences: {colors: true}
current-context: minikube
clusters:
- name: minikube
  cluster:
    server: https://192.0.2.1:8443
    extensions: [{name: minikube.sigs.k8s.io, extension: {version: '1.30'}}]
users:
- name: minikube
  user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: get-token, args: ['0123', 'yes'], future: 1}}
contexts:
- {name: minikube, context: {cluster: minikube, user: minikube, namespace: kube-system}}
future-field: [1, {x: null}]
",
    )
}

#[test]
fn into_nothing_it_is_what_the_service_gave() {
    assert_eq!(merge(Value::Null, &ours(), BASE), Ok(ours()));
}

#[test]
fn everything_else_stays() {
    let merged = merge(theirs(), &ours(), BASE).unwrap();
    let before = theirs();
    for key in ["preferences", "current-context", "future-field", "apiVersion", "kind"] {
        assert_eq!(merged[key], before[key], "{key}");
    }
    for (list, kept) in [("clusters", 1), ("users", 1), ("contexts", 1)] {
        assert_eq!(merged[list][0], before[list][0]);
        assert_eq!(
            merged[list].as_array().unwrap()[kept..],
            ours()[list].as_array().unwrap()[..],
            "ours follow in {list}"
        );
    }
    let text = crate::cli::output::yaml(&merged).unwrap();
    assert_eq!(yaml(&text), merged, "and survives being written");
}

#[test]
fn merging_twice_changes_nothing_and_a_new_token_replaces_the_old() {
    let once = merge(theirs(), &ours(), BASE).unwrap();
    assert_eq!(merge(once.clone(), &ours(), BASE), Ok(once.clone()));
    let mut newer = ours();
    newer["users"][0]["user"]["token"] = json!("bwk_newer_secret");
    let twice = merge(once.clone(), &newer, BASE).unwrap();
    assert_eq!(twice["users"][1]["user"]["token"], "bwk_newer_secret");
    assert_eq!(twice["users"].as_array().map(Vec::len), Some(2));
}

#[test]
fn foreign_entries_of_the_same_name_are_refused_by_name() {
    let refused = |file: &str| match merge(yaml(file), &ours(), BASE) {
        Err(MergeError::Foreign(names)) => names.join(" "),
        other => panic!("{file}: {other:?}"),
    };
    assert_eq!(refused("clusters: [{name: demo, cluster: {server: 'https://192.0.2.1'}}]"), "cluster \"demo\"");
    // A host that only begins like ours, and another installation.
    for server in [
        "https://bailiwick.example.com.evil.example.org/k8s/clusters/demo",
        "https://other.example.com/k8s/clusters/demo",
    ] {
        assert_eq!(
            refused(&format!("clusters: [{{name: demo, cluster: {{server: '{server}'}}}}]")),
            "cluster \"demo\""
        );
    }
    // A context of our name on somebody's cluster, on none, or on one that is not in the file.
    for cluster in ["{cluster: x, user: y}", "{user: y}", "{cluster: gone}", "null"] {
        let file = format!(
            "clusters: [{{name: x, cluster: {{server: 'https://192.0.2.1'}}}}]\ncontexts: [{{name: shop@demo, context: {cluster}}}]"
        );
        assert_eq!(refused(&file), "context \"shop@demo\"");
    }
    // A user of our name with another kind of credential, or used with another server.
    let user = "\"bailiwick-bailiwick.example.com\"";
    for credential in ["{token: abc}", "{client-key-data: abc}", "{exec: {command: x}}", "null"] {
        let file = format!("users: [{{name: {user}, user: {credential}}}]");
        assert_eq!(refused(&file), format!("user {user}"));
    }
    let file = format!(
        "users: [{{name: {user}, user: {{token: bwk_a_b}}}}]
clusters: [{{name: x, cluster: {{server: 'https://other.example.com'}}}}]
contexts: [{{name: x, context: {{cluster: x, user: {user}}}}}]"
    );
    assert_eq!(refused(&file), format!("user {user}"));
    // All of them are named at once.
    assert_eq!(
        refused(
            "clusters: [{name: demo, cluster: {server: 'https://192.0.2.1'}}]\ncontexts: [{name: demo, context: {cluster: demo}}]"
        ),
        "cluster \"demo\" context \"demo\""
    );
}

#[test]
fn a_name_that_occurs_twice_is_ours_only_if_both_are() {
    let foreign = "clusters:
- {name: demo, cluster: {server: 'https://bailiwick.example.com/k8s/clusters/demo'}}
- {name: demo, cluster: {server: 'https://192.0.2.1'}}";
    assert!(matches!(merge(yaml(foreign), &ours(), BASE), Err(MergeError::Foreign(_))));
    let both = foreign.replace("https://192.0.2.1", "https://bailiwick.example.com/k8s/clusters/old");
    let merged = merge(yaml(&both), &ours(), BASE).unwrap();
    assert_eq!(merged["clusters"], ours()["clusters"]);
}

#[test]
fn what_is_no_kubeconfig_is_left_alone() {
    for file in ["[]", "text", "kind: Pod", "clusters: {}", "users: [1]", "contexts: [{context: {}}]"] {
        assert!(matches!(merge(yaml(file), &ours(), BASE), Err(MergeError::NoKubeconfig(_))), "{file}");
    }
    for file in ["{}", "clusters: null", "current-context: ''", "users: []"] {
        assert!(merge(yaml(file), &ours(), BASE).is_ok(), "{file}");
    }
}

#[test]
fn removal_takes_ours_and_nothing_else() {
    let own = yaml(
        "clusters: [{name: bailiwick, cluster: {server: 'https://bailiwick.example.com'}}]
users: [{name: bailiwick, user: {token: bwk_a_b}}]
contexts: [{name: bailiwick, context: {cluster: bailiwick, user: bailiwick}}]",
    );
    let with = merge(theirs(), &own, BASE).unwrap();
    assert_ne!(with, theirs());
    assert_eq!(remove(with.clone(), "bailiwick", BASE), Ok(theirs()));
    assert_eq!(remove(with.clone(), "bailiwick", "https://other.example.com"), Ok(with));
    assert_eq!(remove(theirs(), "minikube", BASE), Ok(theirs()));
}
