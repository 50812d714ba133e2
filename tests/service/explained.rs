//! `bailiwick why` and `who-can`, beside what kubectl is answered about the same.

use serde_json::Value;

use super::process::*;
use super::site::*;

/// `bailiwick` of somebody, by a token for the service's own API.
fn command_of(site: &Site, name: &str) -> impl Fn(&[&str]) -> Ran {
    let token = site.admin(&["token", "create", "--user", name, "--audience", "api"]).ok();
    let file = site.folder.join(format!("{name}.api-token"));
    std::fs::write(&file, token).unwrap();
    move |args: &[&str]| {
        let mut command = site.bailiwick();
        command.args(args).env("BAILIWICK_TOKEN_FILE", &file);
        run(command)
    }
}

/// The same questions to `why`, to `kubectl auth can-i` and to the cluster itself.
#[test]
fn why_agrees_with_kubectl() {
    let (site, _guard) = site();
    for role in ["viewer", "member", "owner"] {
        let person = site.machine(&format!("asking-{role}"), &[(role, "work")]);
        let bailiwick = command_of(site, &person.name);
        let listed = site.run(&person, "demo", &["-n", "work-pods", "auth", "can-i", "--list"]).ok();
        // As kubectl knows it, as the list knows it.
        for (verb, resource, subresource, in_list) in [
            ("get", "pods", "", "pods "),
            ("list", "deploy", "", "deployments.apps "),
            ("delete", "configmaps", "", "configmaps "),
            ("list", "secrets", "", "secrets "),
            ("create", "pods", "exec", "pods/exec "),
            ("get", "pods", "log", "pods/log "),
            ("create", "rolebindings", "", "rolebindings.rbac.authorization.k8s.io "),
            ("update", "resourcequotas", "", "resourcequotas "),
            ("get", "pods", "proxy", "pods/proxy "),
            ("create", "networkpolicies.networking.k8s.io", "", "networkpolicies.networking.k8s.io "),
            ("create", "deployments.apps", "scale", "deployments.apps/scale "),
        ] {
            let mut asked = vec![verb, resource, "-n", "work-pods"];
            if !subresource.is_empty() {
                asked.extend(["--subresource", subresource]);
            }
            let told = bailiwick(&[&["why"], asked.as_slice()].concat());
            let can_i = site.run(&person, "demo", &[&["auth", "can-i"], asked.as_slice()].concat());
            let permitted = can_i.code == Some(0);
            assert_eq!(told.code, Some(if permitted { 0 } else { 1 }), "{role} {asked:?}: {}", told.text());
            has(&told.text(), &[if permitted { "yes: asking-" } else { "no: asking-" }]);
            if permitted {
                has(&told.text(), &[&format!("asking-{role}-{role}-work"), "rule "]);
            }
            let listed = listed.lines().any(|line| line.starts_with(in_list) && line.contains(verb));
            assert_eq!(listed, permitted, "{role} {asked:?}");
        }
        has(&bailiwick(&["why", "get", "pods", "-n", "other-api"]).ends(1), &["no: ", "has no access to a namespace"]);
    }
}

#[test]
fn refusals_lead_to_the_explanation() {
    let (site, _guard) = site();
    let viewer = site.machine("lost-viewer", &[("viewer", "work")]);
    site.machine("found-owner", &[("owner", "work")]);
    let refused = site.run(&viewer, "demo", &["-n", "work-pods", "delete", "pod", "busy"]).ends(1);
    let (_, hint) = refused.split_once("see: bailiwick ").expect("the refusal names the command");
    assert!(hint.starts_with("why delete pods -n work-pods --cluster demo"), "{hint}");
    let bailiwick = command_of(site, "lost-viewer");
    let words: Vec<&str> = hint.lines().next().unwrap().split(' ').collect();
    let told = bailiwick(&words).ends(1);
    has(&told, &["a grant of member or owner", "on project \"work\"", "User found-owner, owner"]);
    lacks(&told, &["see: bailiwick"]);
    let told = bailiwick(&[&words[..], &["-o", "json"]].concat());
    let answer: Value = serde_json::from_slice(&told.out).unwrap();
    assert_eq!((told.code, &answer["reason"]), (Some(1), &Value::from("no-rule")));
    assert_eq!(told.err, "", "the answer says it all");

    // Who can: for owners and administrators, and nobody else.
    let question = ["who-can", "delete", "pods", "-n", "work-pods"];
    bailiwick(&question).ends(1);
    for listed in [command_of(site, "found-owner")(&question).ok(), site.admin(&question).ok()] {
        has(&listed, &["found-owner", "found-owner-owner-work"]);
        lacks(&listed, &["lost-viewer"]);
    }
    has(&site.admin(&["why", "lost-viewer", "get", "pods", "busy", "-n", "work-pods"]).ok(), &["yes: lost-viewer"]);
    for wrong in [&["why", "use", "pods"][..], &["why", "get"], &["why", "get", "gadgets"], &["why", "get", "*"]] {
        bailiwick(wrong).ends(2);
    }
}
