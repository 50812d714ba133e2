//! Refusals are real Status objects, and kubectl prints their text.

use super::process::*;
use super::site::*;

#[test]
fn refusals_say_what_is_missing() {
    let (site, _guard) = site();
    let member = site.machine("refused-member", &[("member", "work")]);
    let viewer = site.machine("refused-viewer", &[("viewer", "work")]);
    let ours = "; yours are: work-";
    let cases: [(&[&str], &[&str]); 9] = [
        (&["-n", "other-api", "get", "pods"], &["has no access to a namespace \"other-api\"", ours]),
        (&["-n", "kube-system", "get", "secrets"], &["has no access to a namespace \"kube-system\"", ours]),
        (&["-n", "other-api", "exec", "busy", "--", "true"], &["has no access to a namespace \"other-api\""]),
        (&["-n", "other-api", "create", "configmap", "x"], &["has no access to a namespace \"other-api\""]),
        (&["get", "nodes"], &["nodes is forbidden", "may not list"]),
        (&["get", "clusterroles"], &["clusterroles.rbac.authorization.k8s.io is forbidden"]),
        (&["-n", "work-pods", "get", "pods", "--as=system:admin"], &["acting as somebody else (kubectl --as) is not"]),
        (
            &["-n", "work-pods", "get", "pods", "--as=a", "--as-group=system:masters"],
            &["acting as somebody else (kubectl --as) is not"],
        ),
        (&["-n", "work-pods", "get", "--raw", "/api/v1/namespaces/work-pods/pods/busy/proxy"], &["use port-forward"]),
    ];
    for context in ["demo", "work@demo"] {
        for (args, needles) in cases {
            let text = site.run(&member, context, args).ends(1);
            has(&text.to_lowercase(), &["forbidden"]);
            has(&text, needles);
        }
    }
    let cases: [&[&str]; 7] = [
        &["delete", "pod", "busy"],
        &["delete", "pods", "--all"],
        &["create", "configmap", "x"],
        &["label", "pod", "busy", "a=b"],
        &["exec", "busy", "--", "true"],
        &["port-forward", "busy", ":80"],
        &["get", "secrets"],
    ];
    for args in cases {
        let text = site.run(&viewer, "demo", &[&["-n", "work-pods"], args].concat()).ends(1);
        has(
            &text,
            &["refused-viewer holds viewer in project \"work\"", "an owner of \"work\" can grant a role that does"],
        );
    }
    site.run(&viewer, "demo", &["-n", "work-pods", "logs", "--tail=1", "busy"]).ok();
    has(&site.run(&member, "demo", &["-n", "work-pods", "get", "--raw", "/k8s/clusters/prod"]).fails(), &["Error"]);
}

#[test]
fn a_foreign_namespace_cannot_be_told_from_a_missing_one() {
    let (site, _guard) = site();
    let member = site.machine("curious", &[("member", "work")]);
    let acts: [&[&str]; 7] = [
        &["get", "pods"],
        &["get", "pod", "busy"],
        &["create", "configmap", "x"],
        &["delete", "pods", "--all"],
        &["logs", "busy"],
        &["get", "resourcequota"],
        &["auth", "can-i", "get", "pods"],
    ];
    for context in ["demo", "work@demo"] {
        for act in acts {
            let answer = |namespace: &str| {
                let text = site.run(&member, context, &[&["-n", namespace], act].concat()).ends(1);
                text.replace(namespace, "NAMESPACE")
            };
            assert_eq!(answer("other-api"), answer("other-xyz"), "{act:?}");
        }
        let get = |namespace: &str| {
            site.run(&member, context, &["get", "namespace", namespace]).ends(1).replace(namespace, "NAMESPACE")
        };
        assert_eq!(get("other-api"), get("other-xyz"));
    }
    // A namespace of the same person's is no secret.
    site.run(&member, "demo", &["get", "namespace", "work-pods"]).ok();
}

#[test]
fn somebody_with_nothing_learns_nothing_of_the_cluster() {
    let (site, _guard) = site();
    site.apply(&user("newcomer").to_string());
    let member = site.machine("somebody", &[("member", "work")]);
    // The member's contexts with the token of a newcomer.
    let token = site.admin(&["token", "create", "--user", "newcomer"]).ok();
    let answer = |args: &[&str]| {
        let token = format!("--token={}", token.trim());
        site.run(&member, "demo", &[&[token.as_str()], args].concat()).ends(1)
    };
    has(&answer(&["get", "--raw", "/version"]), &["has no access to a cluster \"demo\"", "none is open to you"]);
    has(&answer(&["-n", "work-pods", "get", "pods"]), &["has no access to a cluster \"demo\"", "none is open to you"]);
}
