//! Many creations at once for few places.

use super::process::*;
use super::site::*;

#[test]
fn fifty_at_once_for_three_places_give_three() {
    let (site, _guard) = site();
    site.apply(
        &[user("few-owner"), grant("few-owner", "owner", "few")].map(|object| object.to_string()).join("\n---\n"),
    );
    let token = site.folder.join("few-owner.token");
    let made = site.admin(&["token", "create", "--user", "few-owner", "--audience", "api"]).ok();
    std::fs::write(&token, made).unwrap();
    let creations: Vec<_> = (0..50)
        .map(|n| {
            let name = format!("few-{n}");
            let mut command = site.bailiwick();
            command.env("BAILIWICK_TOKEN_FILE", &token);
            command.args(["project", "namespace", "create", "few", &name, "--cluster", CLUSTER]);
            (name, Running::start(command))
        })
        .collect();
    let mut created = vec![];
    for (name, creation) in creations {
        let ended = creation.finish();
        if ended.code == Some(0) {
            created.push(name);
        } else {
            has(&ended.ends(1), &["Error from server", "3"]);
        }
    }
    assert_eq!(created.len(), 3, "{created:?}");
    // The kubeconfig is made after them: the project had no namespace before.
    let owner = site.kubeconfig_of("few-owner");
    for name in &created {
        has(&site.run(&owner, "few@demo", &["-n", name, "create", "configmap", "first"]).ok(), &["created"]);
    }
    let there = site.cluster_admin(&["get", "namespaces", "-l", "bailiwick.dev/project=few", "-o", "name"]).ok();
    assert_eq!(there.lines().count(), 3, "{there}");
}
