//! A namespace that is there already: taken over and given back by the command line, and used with kubectl between.

use serde_json::Value;

use super::process::*;
use super::site::*;

const NAMESPACE: &str = "late-legacy";
const PLACE: &str = "demo/late-legacy";
/// What the namespace bears before anybody adopts it: levels of its own, and a version that they are pinned to.
const LABELS: [&str; 4] = [
    "team.example.com/name=old",
    "pod-security.kubernetes.io/enforce=privileged",
    "pod-security.kubernetes.io/enforce-version=v1.30",
    "pod-security.kubernetes.io/warn=baseline",
];

/// Labels and annotations; what is none of ours in particular.
fn metadata(site: &Site) -> Value {
    let text = site.cluster_admin(&["get", "namespace", NAMESPACE, "-o", "json"]).ok();
    let namespace: Value = serde_json::from_str(&text).unwrap();
    assert!(namespace["metadata"]["deletionTimestamp"].is_null(), "{text}");
    serde_json::json!([namespace["metadata"]["labels"], namespace["metadata"]["annotations"]])
}

fn json_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|why| panic!("{why}: {text}"))
}

#[test]
fn a_namespace_is_adopted_used_and_given_back_by_the_command_line() {
    let (site, _guard) = site();
    let project = r#"{"apiVersion": "bailiwick.dev/v1alpha1", "kind": "Project", "metadata": {"name": "late"},
        "spec": {"clusters": [{"cluster": "demo", "namespaces": [], "prefix": "late-", "maxNamespaces": 3}]}}"#;
    site.apply(&format!("{project}\n---\n{}\n---\n{}", user("late-dev"), grant("late-dev", "member", "late")));
    site.project_ready("late");
    let uid = site.uid("project", "late");
    site.cluster_admin(&["create", "namespace", NAMESPACE]).ok();
    site.cluster_admin(&[&["label", "namespace", NAMESPACE][..], &LABELS].concat()).ok();
    site.cluster_admin(&["-n", NAMESPACE, "create", "configmap", "from-before"]).ok();
    site.cluster_admin(&["-n", NAMESPACE, "create", "rolebinding", "ops", "--clusterrole=edit", "--group=ops"]).ok();

    // Not without the cluster's administrator; what they have to do is said, and nothing of what is there.
    for name in [PLACE, "demo/late-absent"] {
        for more in [&["--dry-run"][..], &[]] {
            let refused = site.admin(&[&["project", "adopt", "late", name][..], more].concat()).ends(1);
            let bare = name.split_once('/').unwrap().1;
            has(&refused, &[&format!("kubectl annotate namespace {bare} bailiwick.dev/adopt={uid}"), "no namespace"]);
            assert!(!refused.contains("ops"), "{refused}");
        }
    }
    has(&site.admin(&["project", "adopt", "late", NAMESPACE]).ends(2), &["write CLUSTER/NAMESPACE"]);
    has(&site.admin(&["project", "release", "late", PLACE]).ends(1), &["Error from server"]);
    site.cluster_admin(&["annotate", "namespace", NAMESPACE, &format!("bailiwick.dev/adopt={uid}")]).ok();

    // What it would mean, for people and for programs; nothing changes by asking.
    let before = metadata(site);
    let told = site.admin(&["project", "adopt", "late", PLACE, "--dry-run"]).ok();
    has(&told, &["RoleBinding stays in force", "ops gives ClusterRole edit to Group ops", "Use not counted"]);
    let report = json_of(&site.admin(&["project", "adopt", "late", PLACE, "--dry-run", "-o", "json"]).ok());
    assert_eq!(report["roleBindings"][0]["name"], "ops", "{report}");
    assert_eq!(metadata(site), before, "a report changes nothing");

    // Members and strangers do not adopt.
    let token = |name: &str| {
        let file = site.folder.join(format!("{name}.token"));
        std::fs::write(&file, site.admin(&["token", "create", "--user", name, "--audience", "api"]).ok()).unwrap();
        file
    };
    let member = token("late-dev");
    let by_member = |args: &[&str]| {
        let mut command = site.bailiwick();
        command.env("BAILIWICK_TOKEN_FILE", &member).args(args);
        run(command)
    };
    has(&by_member(&["project", "adopt", "late", PLACE]).ends(1), &["Error from server"]);
    assert_eq!(metadata(site), before, "a refused adoption changes nothing");

    // Adopted, it is like any other namespace of the project.
    let adopted = json_of(&site.admin(&["project", "adopt", "late", PLACE, "-o", "json"]).ok());
    assert_eq!(adopted, report);
    let labels = metadata(site)[0].clone();
    assert_eq!(labels["pod-security.kubernetes.io/enforce"], "baseline", "{labels}");
    assert_eq!(labels["pod-security.kubernetes.io/enforce-version"], "latest", "{labels}");
    has(&site.admin(&["project", "adopt", "late", PLACE]).ends(1), &["Error from server"]);
    let person = site.kubeconfig_of("late-dev");
    let kubectl = |args: &[&str]| site.run(&person, "late@demo", &[&["-n", NAMESPACE][..], args].concat());
    has(&kubectl(&["get", "configmaps"]).ok(), &["from-before"]);
    has(&kubectl(&["create", "configmap", "from-the-project"]).ok(), &["created"]);
    let root = ["run", "root", "--image=app:1", "--privileged"];
    has(&kubectl(&root).fails(), &["violates PodSecurity"]);
    has(&by_member(&["project", "release", "late", PLACE]).ends(1), &["Error from server"]);
    // It is nobody's to delete through us: neither by name nor with what declares it.
    has(
        &site.admin(&["project", "namespace", "delete", "late", NAMESPACE, "--cluster", CLUSTER]).ends(1),
        &["was adopted and is never deleted here", "bailiwick project release late demo/late-legacy"],
    );

    // Given back as it was, with all that is in it.
    has(&site.admin(&["project", "release", "late", PLACE]).ok(), &["is given back by project late"]);
    until("it is given back", || if metadata(site) == before { Ok(()) } else { Err(metadata(site).to_string()) });
    let left = site.cluster_admin(&["-n", NAMESPACE, "get", "configmaps,rolebindings,quota,limits", "-o", "name"]).ok();
    has(&left, &["configmap/from-before", "configmap/from-the-project", "rolebinding.rbac.authorization.k8s.io/ops"]);
    assert_eq!(left.matches("bailiwick").count(), 0, "nothing of ours stays: {left}");
    kubectl(&["get", "configmaps"]).fails();

    // Adopted again, it holds its project; declared by it, it outlives it.
    until("it can be adopted again", || {
        let again = site.admin(&["project", "adopt", "late", PLACE, "-o", "name"]);
        if again.code == Some(0) { Ok(()) } else { Err(again.text()) }
    });
    site.admin(&["delete", "grant", "late-dev-member-late"]).ok();
    has(&site.admin(&["delete", "project", "late"]).ends(1), &["namespace \"late-legacy\" on cluster \"demo\""]);
    site.apply(&project.replace("\"namespaces\": []", "\"namespaces\": [\"late-legacy\"]"));
    // The project's own record that it declares the namespace follows its spec.
    until("the project declares it", || {
        let deleted = site.admin(&["delete", "project", "late"]);
        if deleted.code == Some(0) { Ok(()) } else { Err(deleted.text()) }
    });
    until(
        "the project has left it",
        || if metadata(site) == before { Ok(()) } else { Err(metadata(site).to_string()) },
    );
    has(&site.cluster_admin(&["-n", NAMESPACE, "get", "configmaps"]).ok(), &["from-before", "from-the-project"]);
}
