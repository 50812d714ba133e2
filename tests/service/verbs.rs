//! Every verb of kubectl with `-n`, at both forms of the URL.

use std::time::Instant;

use serde_json::Value;

use super::process::*;
use super::site::*;

const WEB: &str = include_str!("../../deploy/demo/workloads/web.yaml");

/// kubectl of one person in one context and namespace.
struct Here {
    site: &'static Site,
    person: Person,
    context: &'static str,
    namespace: &'static str,
}

impl Here {
    #[track_caller]
    fn run(&self, args: &[&str]) -> Ran {
        self.run_with(args, "")
    }

    #[track_caller]
    fn run_with(&self, args: &[&str], input: &str) -> Ran {
        self.site.run_with(&self.person, self.context, &[&["-n", self.namespace], args].concat(), input)
    }

    #[track_caller]
    fn ok(&self, args: &[&str]) -> String {
        self.run(args).ok()
    }

    fn start(&self, args: &[&str]) -> Running {
        Running::start(self.site.command(&self.person, self.context, &[&["-n", self.namespace], args].concat()))
    }

    #[track_caller]
    fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.ok(&[args, &["-o", "json"]].concat())).unwrap()
    }
}

#[test]
fn at_the_cluster_url() {
    let (site, _guard) = site();
    let person = site.machine("verbs-cluster", &[("member", "work")]);
    all(Here { site, person, context: "demo", namespace: "work-one" });
}

#[test]
fn at_the_project_url() {
    let (site, _guard) = site();
    let person = site.machine("verbs-project", &[("member", "work")]);
    all(Here { site, person, context: "work@demo", namespace: "work-two" });
}

fn all(here: Here) {
    config_maps(&here);
    reading(&here);
    watching(&here);
    workloads(&here);
    about_the_api(&here);
    rights(&here);
}

fn config_maps(here: &Here) {
    let color = || here.json(&["get", "configmap", "settings"])["data"].clone();
    let manifest = |value: &str| {
        format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: settings}}, data: {{color: {value}}}}}")
    };
    has(&here.ok(&["create", "configmap", "settings", "--from-literal=color=red"]), &["created"]);
    here.run(&["create", "configmap", "settings"]).fails();
    // Client-side, twice: the second one computes a patch from the first.
    here.run_with(&["apply", "-f", "-"], &manifest("green")).ok();
    has(&here.run_with(&["apply", "-f", "-"], &manifest("blue")).ok(), &["configured"]);
    assert_eq!(color()["color"], "blue");
    has(&here.run_with(&["diff", "-f", "-"], &manifest("white")).ends(1), &["color: white"]);
    let conflict = here.run_with(&["apply", "--server-side", "--field-manager=other", "-f", "-"], &manifest("pink"));
    has(&conflict.fails(), &["conflict"]);
    let force = ["apply", "--server-side", "--force-conflicts", "--field-manager=other", "-f", "-"];
    has(&here.run_with(&force, &manifest("black")).ok(), &["serverside-applied"]);
    assert_eq!(color()["color"], "black");
    has(&here.run_with(&["apply", "--dry-run=server", "-f", "-"], &manifest("dry")).ok(), &["server dry run"]);
    assert_eq!(color()["color"], "black");

    for (kind, patch) in [
        ("strategic", r#"{"data":{"color":"strategic"}}"#),
        ("merge", r#"{"data":{"color":"merge"}}"#),
        ("json", r#"[{"op":"replace","path":"/data/color","value":"json"}]"#),
    ] {
        here.ok(&["patch", "configmap", "settings", "--type", kind, "-p", patch]);
        assert_eq!(color()["color"], kind);
    }
    has(&here.run_with(&["replace", "-f", "-"], &manifest("replaced")).ok(), &["replaced"]);
    let mut edit = here.site.command(&here.person, here.context, &["-n", here.namespace, "edit", "configmap/settings"]);
    edit.env("KUBE_EDITOR", "sed -i s/replaced/edited/");
    has(&run(edit).ok(), &["edited"]);
    assert_eq!(color()["color"], "edited");
    here.ok(&["label", "configmap", "settings", "tier=front"]);
    here.ok(&["annotate", "configmap", "settings", "example.com/note=hello"]);
    let metadata = here.json(&["get", "configmap", "settings"])["metadata"].clone();
    assert_eq!(
        (&metadata["labels"]["tier"], &metadata["annotations"]["example.com/note"]),
        (&"front".into(), &"hello".into())
    );
    here.run_with(&["create", "-f", "-"], "{apiVersion: v1, kind: Secret, metadata: {name: s}, stringData: {a: b}}")
        .ok();
    assert_eq!(here.ok(&["get", "secret", "s", "-o", "jsonpath={.data.a}"]), "Yg==");
    here.ok(&["delete", "secret", "s"]);
}

fn reading(here: &Here) {
    for n in 0..5 {
        here.ok(&["create", "configmap", &format!("many-{n}"), "--from-literal=a=b"]);
    }
    here.ok(&["label", "configmap", "many-0", "many-1", "page=yes"]);
    has(&here.ok(&["get", "configmaps"]), &["NAME", "DATA", "AGE", "settings"]);
    has(&here.ok(&["get", "configmap", "settings", "-o", "yaml"]), &["kind: ConfigMap", "color: edited"]);
    has(&here.ok(&["get", "configmaps", "--show-labels"]), &["tier=front"]);
    let selected = here.ok(&["get", "configmaps", "-l", "page=yes", "-o", "name"]);
    assert_eq!(selected, "configmap/many-0\nconfigmap/many-1\n");
    let field = here.ok(&["get", "configmaps", "--field-selector=metadata.name=many-3", "-o", "name"]);
    assert_eq!(field, "configmap/many-3\n");
    // Two a page: continue tokens go both ways.
    let names = |size: &str| here.ok(&["get", "configmaps", "-o", "name", "--chunk-size", size]);
    assert_eq!(names("2"), names("500"));
    let path = format!("/api/v1/namespaces/{}/configmaps?limit=2", here.namespace);
    let page: Value = serde_json::from_str(&here.ok(&["get", "--raw", &path])).unwrap();
    assert_eq!(page["items"].as_array().unwrap().len(), 2);
    assert!(page["metadata"]["continue"].is_string(), "{}", page["metadata"]);
    has(&here.ok(&["describe", "configmap", "settings"]), &["edited", "example.com/note"]);
    has(&here.run(&["get", "configmap", "none"]).fails(), &["(NotFound)", "\"none\" not found"]);
    // One call removes what the selector matches, another one each by its own.
    here.ok(&[
        "delete",
        "--raw",
        &format!("/api/v1/namespaces/{}/configmaps?labelSelector=page%3Dyes", here.namespace),
    ]);
    lacks(&names("500"), &["many-0", "many-1"]);
    has(&here.ok(&["delete", "configmaps", "--field-selector=metadata.name!=kube-root-ca.crt"]), &["many-4"]);
    lacks(&names("500"), &["many"]);
}

fn watching(here: &Here) {
    let watch = here.start(&["get", "configmaps", "-w", "--output-watch-events"]);
    watch.prints("kube-root-ca.crt");
    here.ok(&["create", "configmap", "seen"]);
    watch.prints("ADDED      seen");
    here.ok(&["label", "configmap", "seen", "a=b"]);
    watch.prints("MODIFIED   seen");
    let wait = here.start(&["wait", "--for=delete", "configmap/seen", "--timeout=30s"]);
    here.ok(&["delete", "configmap", "seen"]);
    watch.prints("DELETED    seen");
    wait.finish().ok();

    // A list as a watch, as client-go opens it, and bookmarks after it.
    let stream = here.ok(&["get", "--raw", &format!(
        "/api/v1/namespaces/{}/configmaps?watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=1",
        here.namespace
    )]);
    let events: Vec<Value> = stream.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(events[0]["type"], "ADDED");
    let bookmark = events.iter().find(|event| event["type"] == "BOOKMARK").expect(&stream);
    assert_eq!(bookmark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
}

fn workloads(here: &Here) {
    here.run_with(&["apply", "-f", "-"], WEB).ok();
    here.ok(&["rollout", "status", "deployment/web", "--timeout=60s"]);
    has(&here.ok(&["get", "pods", "-o", "wide"]), &["NODE", "demo-node", "Running"]);
    has(&here.ok(&["describe", "deployment", "web"]), &["StrategyType", "web-"]);
    has(&here.ok(&["describe", "pod", "-l", "app=web"]), &["Containers:", "Events:"]);
    has(&here.ok(&["logs", "deployment/web"]), &["line 1 from"]);
    let follow = here.start(&["logs", "-f", "--tail=1", "deployment/web"]);
    let begun = follow.prints("line ");
    until("another line comes", || if follow.text().len() > begun.len() { Ok(()) } else { Err(follow.text()) });
    drop(follow);
    here.ok(&["scale", "deployment", "web", "--replicas=2"]);
    here.ok(&["wait", "--for=jsonpath={.status.readyReplicas}=2", "deployment/web", "--timeout=30s"]);
    here.ok(&["scale", "deployment", "web", "--replicas=1"]);
    here.ok(&["rollout", "restart", "deployment/web"]);
    here.ok(&["rollout", "status", "deployment/web", "--timeout=60s"]);
    has(&here.ok(&["rollout", "history", "deployment/web"]), &["REVISION", "2"]);
    here.ok(&["rollout", "undo", "deployment/web"]);
    here.ok(&["rollout", "status", "deployment/web", "--timeout=60s"]);
    has(&here.ok(&["events"]), &["Created pod"]);
    has(&here.ok(&["get", "events", "--field-selector=involvedObject.kind=ReplicaSet"]), &["SuccessfulCreate"]);
    // Below the level that is warned of: the cluster's own words reach the user, and the Pod is made.
    let once = here.run(&["run", "warned", "--image=busybox", "--restart=Never", "--command", "--", "true"]);
    has(&once.err, &["Warning: would violate PodSecurity"]);
    once.ok();
    // Below the level that is enforced: refused.
    let host = here.run_with(
        &["apply", "-f", "-"],
        "{apiVersion: v1, kind: Pod, metadata: {name: host}, spec: {hostNetwork: true, containers: [{name: a, image: busybox}]}}",
    );
    has(&host.fails(), &["violates PodSecurity \"baseline"]);
    let begun = Instant::now();
    here.ok(&["delete", "pods", "--all", "--grace-period=1"]);
    assert!(begun.elapsed() < DEADLINE);
    here.ok(&["delete", "deployment", "web"]);
}

fn about_the_api(here: &Here) {
    has(&here.ok(&["explain", "deployment.spec.replicas"]), &["FIELD: replicas", "Number of desired pods"]);
    has(&here.ok(&["api-resources"]), &["deployments", "configmaps"]);
    has(&here.ok(&["api-versions"]), &["apps/v1"]);
    has(&here.ok(&["version"]), &["Server Version: v1.36.3"]);
    has(&here.ok(&["auth", "whoami"]), &[&format!("bailiwick:user:{}", here.person.name)]);
    here.ok(&["get", "storageclasses"]);
}

/// What is said about rights is what then happens.
fn rights(here: &Here) {
    let yes: [(&[&str], &[&str]); 4] = [
        (&["create", "configmaps"], &["create", "configmap", "can", "--dry-run=server"]),
        (&["list", "secrets"], &["get", "secrets"]),
        (&["get", "pods", "--subresource=log"], &["get", "pods"]),
        (&["delete", "configmaps"], &["delete", "configmap", "kube-root-ca.crt", "--dry-run=server"]),
    ];
    for (question, act) in yes {
        assert_eq!(here.ok(&[&["auth", "can-i"], question].concat()), "yes\n", "{question:?}");
        here.ok(act);
    }
    let no: [(&[&str], &[&str]); 4] = [
        (&["create", "rolebindings"], &["create", "rolebinding", "mine", "--clusterrole=view", "--user=me"]),
        (&["create", "resourcequotas"], &["create", "quota", "more", "--hard=pods=1"]),
        (&["list", "nodes"], &["get", "nodes"]),
        (&["list", "pods", "-n", "other-api"], &["get", "pods", "-n", "other-api"]),
    ];
    for (question, act) in no {
        has(&here.run(&[&["auth", "can-i"], question].concat()).ends(1), &["no"]);
        has(&here.run(act).fails().to_lowercase(), &["forbidden"]);
    }
    let listed = here.ok(&["auth", "can-i", "--list"]);
    has(&listed, &["deployments.apps", "pods/exec", "secrets"]);
    lacks(&listed, &["nodes", "clusterroles", "*.*"]);
}
