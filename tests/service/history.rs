//! What was in a namespace before it was its project's: the cluster's history has it, and nobody reads it there.

use serde_json::{Value, json};

use super::namespaces::project;
use super::process::*;
use super::site::*;

/// The resource version of a list.
fn version(list: &str) -> String {
    serde_json::from_str::<Value>(list).unwrap()["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
}

#[test]
fn a_moved_namespace_shows_nothing_of_its_former_owner() {
    let (site, _guard) = site();
    project(site, "before", json!({"pods": "20"}));
    project(site, "after", json!({"pods": "20"}));
    let giver = site.machine("history-giver", &[("owner", "before")]);
    let taker = site.machine("history-taker", &[("owner", "after")]);
    site.run(&giver, "before@demo", &["create", "namespace", "before-web"]).ok();
    let secret = ["-n", "before-web", "create", "secret", "generic", "of-the-giver", "--from-literal=word=mine"];
    site.run(&giver, "demo", &secret).ok();
    let path = "/api/v1/namespaces/before-web/secrets";
    let version_then = version(&site.run(&giver, "demo", &["get", "--raw", path]).ok());
    site.run(&giver, "demo", &["-n", "before-web", "delete", "secret", "of-the-giver"]).ok();
    let to = ["--cluster", CLUSTER, "--from", "before", "--to", "after"];
    site.admin(&[&["project", "namespace", "move", "before-web"], to.as_slice()].concat()).ok();
    until("the taker has it", || {
        let got = site.run(&taker, "after@demo", &["-n", "before-web", "get", "secrets"]);
        if got.code == Some(0) { Ok(()) } else { Err(got.text()) }
    });

    let exact = format!("{path}?resourceVersion={version_then}&resourceVersionMatch=Exact");
    has(&site.cluster_admin(&["get", "--raw", &exact]).ok(), &["of-the-giver"]);
    let watch = format!("{path}?watch=1&resourceVersion={version_then}&timeoutSeconds=2");
    has(&site.cluster_admin(&["get", "--raw", &watch]).ok(), &["DELETED", "of-the-giver"]);
    for context in ["demo", "after@demo"] {
        for back in [&exact, &watch] {
            has(&site.run(&taker, context, &["get", "--raw", back]).fails(), &["is from before the namespace"]);
        }
        // From what is theirs, they go on.
        let list = site.run(&taker, context, &["get", "--raw", path]).ok();
        lacks(&list, &["of-the-giver"]);
        let on = format!("{path}?watch=1&resourceVersion={}&timeoutSeconds=1", version(&list));
        lacks(&site.run(&taker, context, &["get", "--raw", &on]).ok(), &["of-the-giver", "Expired"]);
    }
}
