//! Every verb of kubectl with `-n`, at both forms of the URL.

use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use serde_json::{Value, json};

use super::here::*;
use super::process::*;
use super::site::*;

const WEB: &str = include_str!("../../deploy/demo/workloads/web.yaml");

#[test]
fn at_the_cluster_url() {
    let (site, _guard) = site();
    let person = site.machine("verbs-cluster", &[("member", "work")]);
    all(&Here::new(site, person, "demo", "work-one", Protocol::WebSocket));
}

#[test]
fn at_the_project_url() {
    let (site, _guard) = site();
    let person = site.machine("verbs-project", &[("member", "work")]);
    all(&Here::new(site, person, "work@demo", "work-two", Protocol::WebSocket));
}

pub fn all(here: &Here) {
    config_maps(here);
    other_kinds(here);
    reading(here);
    watching(here);
    workloads(here);
    about_the_api(here);
    rights(here);
}

fn config_maps(here: &Here) {
    let color = || here.json(&["get", "configmap", "settings"])["data"].clone();
    // JSON: kubectl before 1.33 takes what begins with a brace for that.
    let manifest = |value: &str| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"color": value}})
            .to_string()
    };
    has(&here.ok(&["create", "configmap", "settings", "--from-literal=color=red"]), &["created"]);
    here.run(&["create", "configmap", "settings"]).fails();
    // Client-side, twice: the second one computes a patch from the first.
    here.run_with(&["apply", "-f", "-"], manifest("green")).ok();
    has(&here.run_with(&["apply", "-f", "-"], manifest("blue")).ok(), &["configured"]);
    assert_eq!(color()["color"], "blue");
    has(&here.run_with(&["diff", "-f", "-"], manifest("white")).ends(1), &["color: white"]);
    let conflict = here.run_with(&["apply", "--server-side", "--field-manager=other", "-f", "-"], manifest("pink"));
    has(&conflict.fails(), &["conflict"]);
    let force = ["apply", "--server-side", "--force-conflicts", "--field-manager=other", "-f", "-"];
    has(&here.run_with(&force, manifest("black")).ok(), &["serverside-applied"]);
    assert_eq!(color()["color"], "black");
    has(&here.run_with(&["apply", "--dry-run=server", "-f", "-"], manifest("dry")).ok(), &["server dry run"]);
    assert_eq!(color()["color"], "black");

    for (kind, patch) in [
        ("strategic", r#"{"data":{"color":"strategic"}}"#),
        ("merge", r#"{"data":{"color":"merge"}}"#),
        ("json", r#"[{"op":"replace","path":"/data/color","value":"json"}]"#),
    ] {
        here.ok(&["patch", "configmap", "settings", "--type", kind, "-p", patch]);
        assert_eq!(color()["color"], kind);
    }
    has(&here.run_with(&["replace", "-f", "-"], manifest("replaced")).ok(), &["replaced"]);
    let mut edit = here.command(&["edit", "configmap/settings"]);
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
    here.run_with(
        &["create", "-f", "-"],
        r#"{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"a": "b"}}"#,
    )
    .ok();
    assert_eq!(here.ok(&["get", "secret", "s", "-o", "jsonpath={.data.a}"]), "Yg==");
    here.ok(&["delete", "secret", "s"]);
    // What is no longer among the manifests goes.
    let labelled = |names: &[&str]| {
        let one = |name| {
            let metadata = json!({"name": name, "labels": {"set": "one"}});
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
        };
        let items: Vec<Value> = names.iter().map(one).collect();
        json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()
    };
    here.run_with(&["apply", "-f", "-"], labelled(&["first", "second"])).ok();
    let prune = ["apply", "--prune", "-l", "set=one", "--prune-allowlist=core/v1/ConfigMap", "-f", "-"];
    has(&here.run_with(&prune, labelled(&["second"])).ok(), &["configmap/first pruned"]);
    let replace = ["replace", "--force", "-f", "-"];
    has(&here.run_with(&replace, labelled(&["second"])).ok(), &["deleted", "replaced"]);
}

/// What the generators of `kubectl create` and `expose` make.
fn other_kinds(here: &Here) {
    here.ok(&["create", "serviceaccount", "robot"]);
    let token = here.ok(&["create", "token", "robot", "--duration=10m"]);
    let claims = STANDARD_NO_PAD.decode(token.trim().split('.').nth(1).unwrap().replace('-', "+").replace('_', "/"));
    let subject = format!("system:serviceaccount:{}:robot", here.namespace);
    assert_eq!(serde_json::from_slice::<Value>(&claims.unwrap()).unwrap()["sub"], subject);
    here.ok(&["create", "secret", "generic", "words", "--from-literal=a=b"]);
    here.ok(&["create", "service", "clusterip", "plain", "--tcp=80:8080"]);
    here.ok(&["create", "ingress", "door", "--rule=shop.example.com/*=plain:80"]);
    has(&here.ok(&["describe", "ingress", "door"]), &["shop.example.com", "plain:80"]);
    here.ok(&["create", "poddisruptionbudget", "some", "--selector=app=none", "--min-available=1"]);
    here.ok(&["create", "cronjob", "nightly", "--image=busybox", "--schedule=0 0 1 1 *", "--", "true"]);
    here.ok(&["create", "job", "now", "--from=cronjob/nightly"]);
    here.ok(&["wait", "--for=condition=complete", "job/now", "--timeout=30s"]);
    has(&here.ok(&["get", "all"]), &["service/plain", "cronjob.batch/nightly", "job.batch/now"]);
    here.ok(&[
        "delete",
        "serviceaccount/robot",
        "secret/words",
        "service/plain",
        "ingress/door",
        "poddisruptionbudget/some",
        "cronjob/nightly",
        "--wait=true",
    ]);
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
    assert_eq!(here.ok(&["get", "configmap", "settings", "-o", "go-template={{.data.color}}"]), "edited");
    let columns =
        ["get", "configmap", "settings", "--no-headers", "-o", "custom-columns=A:.metadata.name,B:.data.color"];
    assert_eq!(here.ok(&columns).split_whitespace().collect::<Vec<_>>(), ["settings", "edited"]);
    let sorted = here.ok(&["get", "configmaps", "-l", "page=yes", "--sort-by=.metadata.name", "-o", "wide"]);
    assert_eq!(sorted.lines().count(), 3, "{sorted}");
    // Two a page: continue tokens go both ways.
    let names = |size: &str| here.ok(&["get", "configmaps", "-o", "name", "--chunk-size", size]);
    assert_eq!(names("2"), names("500"));
    let path = format!("/api/v1/namespaces/{}/configmaps?limit=2", here.namespace);
    let page: Value = serde_json::from_str(&here.ok(&["get", "--raw", &here.raw(&path)])).unwrap();
    assert_eq!(page["items"].as_array().unwrap().len(), 2);
    assert!(page["metadata"]["continue"].is_string(), "{}", page["metadata"]);
    has(&here.ok(&["describe", "configmap", "settings"]), &["edited", "example.com/note"]);
    has(&here.run(&["get", "configmap", "none"]).fails(), &["(NotFound)", "\"none\" not found"]);
    // One call removes what the selector matches, another one each by its own.
    let path = format!("/api/v1/namespaces/{}/configmaps?labelSelector=page%3Dyes", here.namespace);
    here.ok(&["delete", "--raw", &here.raw(&path)]);
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
    let path = format!(
        "/api/v1/namespaces/{}/configmaps?watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=1",
        here.namespace
    );
    let stream = here.ok(&["get", "--raw", &here.raw(&path)]);
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
    let pod = here.ok(&["get", "pods", "-l", "app=web", "-o", "jsonpath={.items[0].metadata.name}"]);
    has(&here.run(&["logs", "--previous", &pod]).ends(1), &["previous terminated container", "not found"]);
    has(&here.ok(&["logs", "-l", "app=web", "--all-containers", "--prefix", "--timestamps", "--tail=1"]), &[&pod, "T"]);
    has(&here.ok(&["events", "--for", &format!("pod/{pod}")]), &["Scheduled"]);
    // There are no metrics in this cluster: what kubectl says to that is its own.
    has(&here.run(&["top", "pods"]).ends(1), &["Metrics API not available"]);
    let follow = here.start(&["logs", "-f", "--tail=1", "deployment/web"]);
    let begun = follow.prints("line ");
    until("another line comes", || if follow.text().len() > begun.len() { Ok(()) } else { Err(follow.text()) });
    drop(follow);
    here.ok(&["scale", "deployment", "web", "--replicas=2"]);
    here.ok(&["wait", "--for=jsonpath={.status.readyReplicas}=2", "deployment/web", "--timeout=30s"]);
    here.ok(&["scale", "deployment", "web", "--replicas=1"]);
    has(&here.ok(&["get", "deployment", "web", "--subresource=scale"]), &["DESIRED", "AVAILABLE"]);
    here.ok(&["patch", "deployment", "web", "--subresource=scale", "--type=merge", "-p", r#"{"spec":{"replicas":1}}"#]);
    here.ok(&["set", "image", "deployment/web", "web=busybox:1.36"]);
    here.ok(&["set", "env", "deployment/web", "COLOR=red"]);
    here.ok(&["set", "resources", "deployment/web", "-c=web", "--limits=cpu=100m"]);
    let container = here.json(&["get", "deployment", "web"])["spec"]["template"]["spec"]["containers"][0].clone();
    assert_eq!(
        (&container["image"], &container["env"][1]["value"], &container["resources"]["limits"]["cpu"]),
        (&"busybox:1.36".into(), &"red".into(), &"100m".into())
    );
    here.ok(&["rollout", "status", "deployment/web", "--timeout=60s"]);
    here.ok(&["expose", "deployment", "web", "--port=80", "--target-port=8080"]);
    assert_eq!(here.ok(&["get", "service", "web", "-o", "jsonpath={.spec.selector.app}"]), "web");
    here.ok(&["autoscale", "deployment", "web", "--min=1", "--max=2", "--cpu-percent=80"]);
    here.ok(&["delete", "service/web", "horizontalpodautoscaler/web"]);
    here.ok(&["rollout", "pause", "deployment/web"]);
    here.ok(&["rollout", "resume", "deployment/web"]);
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
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "host"},
            "spec": {"hostNetwork": true, "containers": [{"name": "a", "image": "busybox"}]},
        })
        .to_string(),
    );
    has(&host.fails(), &["violates PodSecurity \"baseline"]);
    let begun = Instant::now();
    here.ok(&["delete", "pods", "--all", "--grace-period=1"]);
    assert!(begun.elapsed() < DEADLINE);
    here.ok(&["delete", "deployment", "web"]);
}

fn about_the_api(here: &Here) {
    has(&here.ok(&["explain", "deployment.spec.replicas"]), &["FIELD: replicas", "Number of desired pods"]);
    let openapi2 = ["explain", "deployment.spec.replicas", "--output=plaintext-openapiv2"];
    has(&here.ok(&openapi2), &["Number of desired pods"]);
    has(&here.ok(&["api-resources"]), &["deployments", "configmaps"]);
    has(&here.ok(&["api-resources", "--namespaced", "--verbs=list", "-o", "wide"]), &["deletecollection"]);
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
