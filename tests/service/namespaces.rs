//! Namespaces by kubectl: made, labelled and deleted as on a cluster of one's own, under the project's walls.

use serde_json::{Value, json};

use super::process::*;
use super::site::*;

const PRIVILEGED: &str = r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bad"}, "spec": {"containers": [
    {"name": "c", "image": "example.com/busy:1", "securityContext": {"privileged": true}}]}}"#;

/// A project for one test alone.
pub fn project(site: &Site, name: &str, quota: Value) {
    let object = json!({
        "apiVersion": "bailiwick.dev/v1alpha1", "kind": "Project", "metadata": {"name": name},
        "spec": {
            "containerDefaults": {"requests": {"cpu": "1m", "memory": "1Mi"}},
            "clusters": [{
                "cluster": CLUSTER, "namespaces": [format!("{name}-declared")], "prefix": format!("{name}-"),
                "maxNamespaces": 8, "quota": quota,
            }],
        },
    });
    site.apply(&object.to_string());
    site.project_ready(name);
}

fn object(site: &Site, person: &Person, context: &str, namespace: &str) -> Value {
    serde_json::from_str(&site.run(person, context, &["get", "namespace", namespace, "-o", "json"]).ok()).unwrap()
}

#[track_caller]
fn with_input(site: &Site, person: &Person, context: &str, args: &[&str], input: &str) -> Ran {
    run_with(site.command(person, context, args), input.as_bytes())
}

#[test]
fn a_member_makes_a_namespace_and_works_in_it_at_once() {
    let (site, _guard) = site();
    project(site, "nsmake", json!({"pods": "80"}));
    let member = site.machine("nsmake-member", &[("member", "nsmake")]);
    for n in 0..3 {
        let name = format!("nsmake-fresh{n}");
        has(&site.run(&member, CLUSTER, &["create", "namespace", &name]).ok(), &[&name, "created"]);
        // At once, without a second try: access, quota and Pod Security.
        site.run(&member, CLUSTER, &["-n", &name, "create", "configmap", "first"]).ok();
        site.run(&member, CLUSTER, &["-n", &name, "run", "web", "--image", "example.com/busy:1"]).ok();
        let refused = with_input(site, &member, CLUSTER, &["-n", &name, "create", "-f", "-"], PRIVILEGED);
        has(&refused.fails(), &["PodSecurity", "privileged"]);
        let quota = site.run(&member, CLUSTER, &["-n", &name, "get", "resourcequota", "bailiwick", "-o", "json"]).ok();
        let quota: Value = serde_json::from_str(&quota).unwrap();
        assert_eq!(quota["status"]["hard"]["pods"], "10", "{quota}");
        let there = object(site, &member, CLUSTER, &name);
        assert_eq!(there["metadata"]["labels"]["bailiwick.dev/project"], "nsmake");
        assert_eq!(there["metadata"]["labels"]["pod-security.kubernetes.io/enforce"], "baseline");
        has(&site.run(&member, CLUSTER, &["describe", "namespace", &name]).ok(), &["Resource Quotas", "pods"]);
    }
}

#[test]
fn a_manifest_is_applied_as_on_ones_own_cluster() {
    let (site, _guard) = site();
    project(site, "nsapply", json!({}));
    let owner = site.machine("nsapply-owner", &[("owner", "nsapply")]);
    let manifest = |tier: &str| {
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {
            "name": "nsapply-web",
            "labels": {"app.kubernetes.io/part-of": "web", "tenant.bailiwick.dev/tier": tier, "name": "nsapply-web"},
            "annotations": {"tenant.bailiwick.dev/contact": "crew@example.com"},
        }})
        .to_string()
    };
    for context in [CLUSTER, "nsapply@demo"] {
        has(&with_input(site, &owner, context, &["apply", "-f", "-"], &manifest("one")).ok(), &["created"]);
        let there = object(site, &owner, context, "nsapply-web");
        assert_eq!(there["metadata"]["labels"]["tenant.bailiwick.dev/tier"], "one", "{there}");
        assert_eq!(there["metadata"]["labels"]["name"], "nsapply-web", "{there}");
        assert_eq!(there["metadata"]["annotations"]["tenant.bailiwick.dev/contact"], "crew@example.com", "{there}");
        has(&with_input(site, &owner, context, &["apply", "-f", "-"], &manifest("one")).ok(), &["unchanged"]);
        has(&with_input(site, &owner, context, &["apply", "-f", "-"], &manifest("two")).ok(), &["configured"]);
        let there = object(site, &owner, context, "nsapply-web");
        assert_eq!(there["metadata"]["labels"]["tenant.bailiwick.dev/tier"], "two", "{there}");
        has(&site.run(&owner, context, &["delete", "namespace", "nsapply-web"]).ok(), &["deleted"]);
        has(&site.run(&owner, context, &["get", "namespace", "nsapply-web"]).fails(), &["NotFound"]);
        has(&site.run(&owner, context, &["delete", "namespace", "nsapply-web", "--ignore-not-found"]).ok(), &[]);
    }
}

#[test]
fn a_manifest_is_applied_by_the_server_as_on_ones_own_cluster() {
    let (site, _guard) = site();
    project(site, "nsssa", json!({}));
    let owner = site.machine("nsssa-owner", &[("owner", "nsssa")]);
    let viewer = site.machine("nsssa-viewer", &[("viewer", "nsssa")]);
    let manifest = |name: &str, tier: &str| {
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {
            "name": name, "labels": {"tenant.bailiwick.dev/tier": tier},
        }})
        .to_string()
    };
    let apply = |person: &Person, context: &str, name: &str, tier: &str, more: &[&str]| {
        let args = [&["apply", "--server-side", "-f", "-"], more].concat();
        with_input(site, person, context, &args, &manifest(name, tier))
    };
    for (context, name) in [(CLUSTER, "nsssa-one"), ("nsssa@demo", "nsssa-two")] {
        has(&apply(&viewer, context, name, "one", &[]).fails(), &["Forbidden"]);
        apply(&owner, context, name, "one", &["--dry-run=server"]).ok();
        has(&site.run(&owner, context, &["get", "namespace", name]).fails(), &["NotFound"]);
        has(&apply(&owner, context, name, "one", &[]).ok(), &["serverside-applied"]);
        assert_eq!(object(site, &owner, context, name)["metadata"]["labels"]["tenant.bailiwick.dev/tier"], "one");
        site.run(&owner, context, &["-n", name, "create", "configmap", "first"]).ok();
        has(&apply(&owner, context, name, "two", &["--force-conflicts"]).ok(), &["serverside-applied"]);
        assert_eq!(object(site, &owner, context, name)["metadata"]["labels"]["tenant.bailiwick.dev/tier"], "two");
    }
    // Others' and nobody's names: as for any way to make one.
    for foreign in ["other-api", "other-new", "kube-system"] {
        has(&apply(&owner, CLUSTER, foreign, "one", &[]).fails(), &["Forbidden"]);
    }
    // In an editor.
    let editor = site.folder.join("editor.sh");
    std::fs::write(
        &editor,
        "#!/bin/sh\nsed -i 's,tenant.bailiwick.dev/tier: two,tenant.bailiwick.dev/tier: edited,' \"$1\"\n",
    )
    .unwrap();
    std::fs::set_permissions(&editor, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let mut edit = site.command(&owner, CLUSTER, &["edit", "namespace", "nsssa-one"]);
    edit.env("KUBE_EDITOR", &editor);
    has(&run(edit).ok(), &["edited"]);
    assert_eq!(object(site, &owner, CLUSTER, "nsssa-one")["metadata"]["labels"]["tenant.bailiwick.dev/tier"], "edited");
}

#[test]
fn a_name_that_is_not_to_be_had_is_refused_with_what_is() {
    let (site, _guard) = site();
    project(site, "nsname", json!({}));
    project(site, "nsname2", json!({}));
    let member = site.machine("nsname-member", &[("member", "nsname"), ("member", "nsname2")]);
    let viewer = site.machine("nsname-viewer", &[("viewer", "nsname")]);
    let create = |context: &str, name: &str| site.run(&member, context, &["create", "namespace", name]);
    // Others' and nobody's: one answer.
    let answer = |name: &str| create(CLUSTER, name).fails().replace(name, "NAME");
    assert_eq!(answer("other-api"), answer("other-xyz"));
    assert_eq!(answer("other-api"), answer("web"));
    has(&answer("web"), &["Forbidden", "\"nsname-\" (project nsname)", "\"nsname2-\" (project nsname2)"]);
    for system in ["kube-system", "kube-other", "default", "bailiwick-system"] {
        assert_eq!(answer(system), answer("web"), "{system}");
    }
    // One's own, and what the project declares.
    for own in ["nsname-declared", "nsname-new"] {
        let _ = create(CLUSTER, own);
        has(&create(CLUSTER, own).fails(), &["AlreadyExists"]);
    }
    // The path narrows, and the label chooses within it.
    has(&create("nsname@demo", "nsname2-x").fails(), &["Forbidden", "\"nsname-\" (project nsname)"]);
    lacks(&create("nsname@demo", "nsname2-x").fails(), &["nsname2-\" (project"]);
    let labelled = |context: &str, name: &str, project: &str| {
        let manifest = json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": name, "labels": {"bailiwick.dev/project": project}}});
        with_input(site, &member, context, &["create", "-f", "-"], &manifest.to_string())
    };
    labelled(CLUSTER, "nsname-labelled", "nsname").ok();
    has(
        &labelled(CLUSTER, "nsname-x", "nsname2").fails(),
        &["names have to begin with \"nsname2-\" (project nsname2)"],
    );
    let unknown = labelled(CLUSTER, "nsname-x", "nobodys").fails().replace("nobodys", "PROJECT");
    assert_eq!(unknown, labelled(CLUSTER, "nsname-x", "other").fails().replace("\"other\"", "\"PROJECT\""));
    has(&labelled("nsname@demo", "nsname2-x", "nsname2").fails(), &["the context is that of project \"nsname\""]);
    // Who only looks.
    has(&site.run(&viewer, CLUSTER, &["create", "namespace", "nsname-v"]).fails(), &["may not make namespaces"]);
    has(&site.run(&viewer, CLUSTER, &["create", "namespace", "nsname-declared"]).fails(), &["AlreadyExists"]);
    for name in ["Nsname-X", "nsname-", "nsname-x_y", "nsname-x.y"] {
        has(&create(CLUSTER, name).fails(), &["nvalid"]);
    }
}

#[test]
fn a_dry_run_writes_nothing_and_says_what_would_be() {
    let (site, _guard) = site();
    project(site, "nsdry", json!({}));
    let owner = site.machine("nsdry-owner", &[("owner", "nsdry")]);
    let dry = |args: &[&str]| site.run(&owner, CLUSTER, &[args, &["--dry-run=server"]].concat());
    has(&dry(&["create", "namespace", "nsdry-web"]).ok(), &["created (server dry run)"]);
    has(&dry(&["create", "namespace", "nsdry-declared"]).fails(), &["AlreadyExists"]);
    has(&dry(&["create", "namespace", "other-web"]).fails(), &["Forbidden"]);
    has(&site.cluster_admin(&["get", "namespace", "nsdry-web"]).fails(), &["NotFound"]);
    has(&site.run(&owner, CLUSTER, &["get", "namespace", "nsdry-web"]).fails(), &["NotFound"]);
    site.run(&owner, CLUSTER, &["create", "namespace", "nsdry-web"]).ok();
    has(&dry(&["delete", "namespace", "nsdry-web"]).ok(), &["deleted (server dry run)"]);
    let label = ["label", "namespace", "nsdry-web", "tenant.bailiwick.dev/a=b"];
    has(&dry(&label).ok(), &["labeled (server dry run)"]);
    lacks(&object(site, &owner, CLUSTER, "nsdry-web").to_string(), &["tenant.bailiwick.dev/a"]);
    site.cluster_admin(&["get", "namespace", "nsdry-web"]).ok();
}

#[test]
fn owners_delete_what_was_made_so_and_nothing_else() {
    let (site, _guard) = site();
    project(site, "nsgone", json!({}));
    let owner = site.machine("nsgone-owner", &[("owner", "nsgone")]);
    let member = site.machine("nsgone-member", &[("member", "nsgone")]);
    site.run(&member, CLUSTER, &["create", "namespace", "nsgone-web"]).ok();
    site.run(&member, CLUSTER, &["-n", "nsgone-web", "create", "configmap", "x"]).ok();
    let delete = |person: &Person, name: &str| site.run(person, CLUSTER, &["delete", "namespace", name]);
    has(&delete(&member, "nsgone-web").fails(), &["Forbidden", "its owners may"]);
    has(&delete(&owner, "nsgone-declared").fails(), &["Forbidden", "declared by project", "spec.clusters"]);
    has(&delete(&owner, "other-api").fails(), &["Forbidden", "has no access to a namespace"]);
    has(&delete(&owner, "nsgone-never").fails(), &["NotFound"]);
    for resource in ["nsgone-web/finalize", "nsgone-web/status"] {
        let path = format!("/api/v1/namespaces/{resource}");
        has(&with_input(site, &owner, CLUSTER, &["replace", "--raw", &path, "-f", "-"], "{}").fails(), &["orbidden"]);
    }
    has(&site.run(&owner, CLUSTER, &["delete", "--raw", "/api/v1/namespaces"]).fails(), &["orbidden"]);
    let before = std::time::Instant::now();
    has(&delete(&owner, "nsgone-web").ok(), &["deleted"]);
    assert!(before.elapsed().as_secs() < 30, "{:?}", before.elapsed());
    has(&site.cluster_admin(&["get", "namespace", "nsgone-web"]).fails(), &["NotFound"]);
    // The name is free again at once.
    site.run(&member, CLUSTER, &["create", "namespace", "nsgone-web"]).ok();
    site.run(&member, CLUSTER, &["-n", "nsgone-web", "create", "configmap", "x"]).ok();
}

#[test]
fn labels_and_annotations_within_the_list_are_the_owners() {
    let (site, _guard) = site();
    project(site, "nslabel", json!({}));
    let owner = site.machine("nslabel-owner", &[("owner", "nslabel")]);
    let member = site.machine("nslabel-member", &[("member", "nslabel")]);
    let ns = "nslabel-declared";
    let run = |args: &[&str]| site.run(&owner, CLUSTER, args);
    run(&["label", "namespace", ns, "tenant.bailiwick.dev/tier=web", "app.kubernetes.io/part-of=shop"]).ok();
    run(&["label", "namespace", ns, "tenant.bailiwick.dev/tier=api", "--overwrite"]).ok();
    run(&["annotate", "namespace", ns, "tenant.bailiwick.dev/contact=crew@example.com"]).ok();
    run(&["label", "namespace", ns, "app.kubernetes.io/part-of-"]).ok();
    let step = r#"[{"op": "add", "path": "/metadata/labels/tenant.bailiwick.dev~1step", "value": "x"}]"#;
    run(&["patch", "namespace", ns, "--type=json", "-p", step]).ok();
    let there = object(site, &owner, CLUSTER, ns);
    assert_eq!(there["metadata"]["labels"]["tenant.bailiwick.dev/tier"], "api", "{there}");
    assert_eq!(there["metadata"]["labels"]["tenant.bailiwick.dev/step"], "x", "{there}");
    assert_eq!(there["metadata"]["labels"]["app.kubernetes.io/part-of"], Value::Null, "{there}");
    assert_eq!(there["metadata"]["annotations"]["tenant.bailiwick.dev/contact"], "crew@example.com", "{there}");
    for label in [
        "pod-security.kubernetes.io/enforce=privileged",
        "pod-security.kubernetes.io/enforce-",
        "bailiwick.dev/project=other",
        "bailiwick.dev/project-uid-",
        "bailiwick.dev/isolation=project",
        "istio-injection=enabled",
        "name=kube-system",
        "kubernetes.io/metadata.name=kube-system",
    ] {
        let key = label.split(['=', '-']).next().unwrap();
        has(&run(&["label", "namespace", ns, label, "--overwrite"]).fails(), &["orbidden", "begin with", key]);
    }
    for annotation in ["bailiwick.dev/adopt=x", "scheduler.alpha.kubernetes.io/node-selector=a=b"] {
        has(&run(&["annotate", "namespace", ns, annotation]).fails(), &["orbidden", "begin with"]);
    }
    for patch in [
        r#"{"metadata": {"labels": null}}"#,
        r#"{"metadata": {"finalizers": ["example.com/x"]}}"#,
        r#"{"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "y"}]}}"#,
        r#"{"metadata": {"labels": {"$patch": "replace"}}}"#,
        r#"{"metadata": {"$patch": "replace"}}"#,
        r#"{"spec": {"finalizers": []}}"#,
        r#"{"$patch": "delete"}"#,
    ] {
        for kind in ["--type=merge", "--type=strategic"] {
            let text = run(&["patch", "namespace", ns, kind, "-p", patch]).fails();
            assert!(text.contains("orbidden") || text.contains("nvalid"), "{patch}: {text}");
        }
    }
    has(
        &site.run(&member, CLUSTER, &["label", "namespace", ns, "tenant.bailiwick.dev/tier=x", "--overwrite"]).fails(),
        &["orbidden", "holds member"],
    );
    let after = object(site, &owner, CLUSTER, ns);
    assert_eq!(after["metadata"]["labels"], there["metadata"]["labels"]);
}

#[test]
fn what_kubectl_says_of_the_right_is_what_is_done() {
    let (site, _guard) = site();
    project(site, "nscan", json!({}));
    let owner = site.machine("nscan-owner", &[("owner", "nscan")]);
    let member = site.machine("nscan-member", &[("member", "nscan")]);
    let viewer = site.machine("nscan-viewer", &[("viewer", "nscan")]);
    let can = |person: &Person, args: &[&str]| {
        site.run(person, CLUSTER, &[&["auth", "can-i"], args].concat()).text().contains("yes")
    };
    let answers = |args: &[&str]| [&owner, &member, &viewer].map(|person| can(person, args));
    assert_eq!(answers(&["create", "namespaces"]), [true, true, false]);
    assert_eq!(answers(&["create", "namespaces", "-n", "nscan-declared"]), [true, true, false]);
    assert_eq!(answers(&["delete", "namespaces/nscan-declared"]), [true, false, false]);
    assert_eq!(answers(&["patch", "namespaces/nscan-declared"]), [true, false, false]);
    assert_eq!(answers(&["get", "namespaces/nscan-declared", "-n", "nscan-declared"]), [true, true, true]);
    assert_eq!(answers(&["get", "namespaces/other-api"]), [false, false, false]);
    assert_eq!(answers(&["delete", "namespaces/other-api"]), [false, false, false]);
    assert_eq!(answers(&["delete", "namespaces"]), [false, false, false]);
    assert_eq!(answers(&["update", "namespaces/nscan-declared", "--subresource=finalize"]), [false, false, false]);
    let list = site.run(&member, CLUSTER, &["auth", "can-i", "--list", "-n", "nscan-declared"]).ok();
    assert!(list.lines().any(|line| line.starts_with("namespaces") && line.contains("create")), "{list}");
}

/// The same through kubectl: who works by hand needs a grant that ends.
#[test]
fn where_git_changes_things_people_read() {
    let (site, _guard) = site();
    let object = json!({
        "apiVersion": "bailiwick.dev/v1alpha1", "kind": "Project", "metadata": {"name": "nsgit"},
        "spec": {"clusters": [{
            "cluster": CLUSTER, "namespaces": ["nsgit-live"], "prefix": "nsgit-", "maxNamespaces": 4, "changes": "git",
            "git": {"repository": "https://git.example.com/nsgit", "path": "live/"},
        }]},
    });
    site.apply(&object.to_string());
    site.project_ready("nsgit");
    let person = |name: &str, role: &str| {
        let user =
            json!({"apiVersion": "bailiwick.dev/v1alpha1", "kind": "User", "metadata": {"name": name}, "spec": {}});
        site.apply(&format!("{user}\n---\n{}", grant(name, role, "nsgit")));
        site.kubeconfig_of(name)
    };
    let owner = person("nsgit-owner", "owner");
    let machine = site.machine("nsgit-argo", &[("member", "nsgit")]);
    let live = ["-n", "nsgit-live"];
    let run = |person: &Person, args: &[&str]| site.run(person, CLUSTER, &[&live, args].concat());
    site.busy_pod("nsgit-live");
    let instead = ["changed by Git", "live/ in https://git.example.com/nsgit", "spec.expiresAt"];
    run(&owner, &["get", "pods,secrets"]).ok();
    for args in [
        &["create", "configmap", "x"][..],
        &["delete", "pod", "busy"],
        &["exec", "busy", "--", "true"],
        &["port-forward", "pod/busy", ":80"],
        &["create", "namespace", "nsgit-new"],
        &["label", "namespace", "nsgit-live", "tenant.bailiwick.dev/a=b"],
        &["run", "x", "--image", "example.com/busy:1", "--dry-run=server"],
    ] {
        has(&run(&owner, args).fails(), &instead);
    }
    has(&run(&owner, &["auth", "can-i", "create", "configmaps"]).text(), &["no"]);
    has(&run(&owner, &["auth", "can-i", "create", "namespaces"]).text(), &["no"]);
    has(&run(&owner, &["auth", "can-i", "list", "configmaps"]).text(), &["yes"]);
    run(&machine, &["create", "configmap", "from-git"]).ok();
    run(&machine, &["create", "namespace", "nsgit-argo"]).ok();
    let mut ending = grant("nsgit-owner", "owner", "nsgit");
    ending["metadata"]["name"] = json!("nsgit-owner-today");
    ending["spec"]["expiresAt"] = json!("2099-01-01T00:00:00Z");
    ending["spec"]["reason"] = json!("an incident");
    site.apply(&ending.to_string());
    run(&owner, &["create", "configmap", "by-hand"]).ok();
    has(&run(&owner, &["auth", "can-i", "create", "configmaps"]).text(), &["yes"]);
    run(&owner, &["create", "namespace", "nsgit-new"]).ok();
    site.admin(&["delete", "grant", "nsgit-owner-today"]).ok();
    has(&run(&owner, &["delete", "configmap", "by-hand"]).fails(), &instead);
    has(&run(&owner, &["delete", "namespace", "nsgit-new"]).fails(), &instead);
}
