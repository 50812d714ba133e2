//! Pods that the cluster refused are told by `project status`, with what to do.

use serde_json::{Value, json};

use super::here::*;
use super::process::*;
use super::site::*;

const HERE: &str = "fill-refused";

fn deployment(name: &str, replicas: u32, spec: Value) -> String {
    let mut pod = json!({"automountServiceAccountToken": false,
                         "containers": [{"name": "main", "image": "registry.example.com/web:1"}]});
    pod.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}},
                 "template": {"metadata": {"labels": {"app": name}}, "spec": pod}},
    })
    .to_string()
}

fn project() -> String {
    json!({"apiVersion": "bailiwick.dev/v1alpha1", "kind": "Project", "metadata": {"name": "fill"}, "spec": {
        "containerDefaults": {"requests": {"cpu": "1m"}},
        "clusters": [{"cluster": CLUSTER, "namespaces": [HERE], "prefix": "fill-", "quota": {"pods": "2"}}],
    }})
    .to_string()
}

#[test]
fn refused_pods_are_told_with_what_to_do() {
    let (site, _guard) = site();
    site.apply(&project());
    site.project_ready("fill");
    let member = site.machine("refused-pods", &[("member", "fill")]);
    let here = Here::new(site, member, "fill@demo", HERE, Protocol::WebSocket);
    here.run_with(&["apply", "-f", "-"], deployment("many", 4, json!({}))).ok();
    here.run_with(&["apply", "-f", "-"], deployment("host", 1, json!({"hostNetwork": true}))).ok();
    let status = || {
        let text = site.admin(&["project", "status", "fill", "-o", "json"]).ok();
        serde_json::from_str::<Value>(&text).unwrap()
    };
    let refusals = until("both refusals are told", || {
        let value = status();
        let told = value["status"]["namespaces"][0]["refusals"].as_array().cloned().unwrap_or_default();
        let has = |reason: &str| told.iter().any(|refusal| refusal["reason"] == reason);
        if has("Quota") && has("PodSecurity") { Ok(told) } else { Err(value.to_string()) }
    });
    let of = |reason: &str| refusals.iter().find(|refusal| refusal["reason"] == reason).unwrap();
    assert_eq!(of("Quota")["over"][0], json!({"resource": "pods", "requested": "1", "used": "2", "hard": "2"}));
    assert!(of("Quota")["object"].as_str().unwrap().starts_with("ReplicaSet many-"));
    assert_eq!(of("PodSecurity")["findings"][0]["section"], "host-namespaces");
    // What runs would not pass the stricter level, and is told from the API server's dry run.
    let value = status();
    assert_eq!(value["level"], "restricted");
    assert!(!value["levels"][0]["pods"][0]["findings"].as_array().unwrap().is_empty(), "{value}");
    let text = site.admin(&["project", "status", "fill"]).ok();
    has(
        &text,
        &[
            "100 %   2 of 2",
            "an owner of fill can give fill-refused a larger share",
            "host namespaces (hostNetwork=true); change spec.hostNetwork",
            "docs/deploying.md#host-namespaces",
            "Pod Security level restricted would refuse:",
            "docs/deploying.md#privilege-escalation",
        ],
    );
    // A dry run changes nothing.
    let label = ["get", "namespace", HERE, "-o", "jsonpath={.metadata.labels.pod-security\\.kubernetes\\.io/enforce}"];
    assert_eq!(site.cluster_admin(&label).ok(), "baseline");
    // It is as visible as the project: to others there is none.
    has(&site.admin(&["project", "status", "nothing"]).ends(1), &["not found"]);
    has(&site.admin(&["project", "status", "fill", "--level", "none"]).ends(2), &["--level"]);
}
