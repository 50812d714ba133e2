//! The same as with the newest kubectl, with older ones that people have.

use std::thread;
use std::time::Instant;

use serde_json::json;

use super::here::*;
use super::process::*;
use super::site::*;
use super::{sessions, verbs};

/// Those that are tried; the oldest where nothing is said.
const VERSIONS: &str = "BAILIWICK_KUBECTLS";

#[test]
fn older_kubectls() {
    let versions = std::env::var(VERSIONS).unwrap_or_else(|_| "1.32".to_owned());
    for version in versions.split_whitespace() {
        let begun = Instant::now();
        all(version);
        println!("kubectl {version}: {:?}", begun.elapsed());
    }
}

/// Everything, at both forms of the URL and by both protocols.
fn all(version: &str) {
    let (site, _guard) = site();
    let program = older_kubectl(version);
    let project = format!("kubectl-{}", version.replace('.', "-"));
    let namespaces = [format!("{project}-cluster"), format!("{project}-project")];
    let spec = json!({"clusters": [{"cluster": CLUSTER, "namespaces": namespaces, "prefix": format!("{project}-"), "maxNamespaces": 2}],
                      "containerDefaults": {"requests": {"cpu": "1m", "memory": "1Mi"}}});
    site.apply(
        &json!({"apiVersion": "bailiwick.dev/v1alpha1", "kind": "Project", "metadata": {"name": project}, "spec": spec})
            .to_string(),
    );
    site.project_ready(&project);
    let contexts = [(CLUSTER.to_owned(), Protocol::Spdy), (format!("{project}@{CLUSTER}"), Protocol::WebSocket)];
    thread::scope(|scope| {
        for (namespace, (context, protocol)) in namespaces.iter().zip(contexts) {
            let (version, program, project) = (version.to_owned(), program.clone(), &project);
            scope.spawn(move || {
                site.busy_pod(namespace);
                let person = site.machine(namespace, &[("member", project)]);
                let here =
                    Here { kubectl: (version, program), ..Here::new(site, person, &context, namespace, protocol) };
                let client = format!("Client Version: v{}.", here.kubectl.0);
                has(&here.ok(&["version"]), &[&client]);
                if here.raw("/version") != "/version" {
                    let text = here.run(&["get", "--raw", "/api/v1/namespaces"]).ends(1);
                    has(&text, &["begin with /k8s/clusters/CLUSTER", "before 1.34"]);
                }
                sessions::all(&here, "10M", 10 << 20);
                verbs::all(&here);
            });
        }
    });
}
