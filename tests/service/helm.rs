//! Helm as on a cluster of one's own: `--create-namespace`, waiting, upgrades, rollbacks and lists across namespaces.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::here::helm_program;
use super::namespaces::project;
use super::process::*;
use super::site::*;

const VALUES: &str = "color: green\nclusterRole: false\n";

const TEMPLATES: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}, namespace: {{ .Release.Namespace }}}
data: {color: {{ .Values.color }}, version: {{ .Capabilities.KubeVersion.Minor | quote }}}
---
{{- if .Capabilities.APIVersions.Has "apps/v1/Deployment" }}
apiVersion: apps/v1
kind: Deployment
metadata: {name: {{ .Release.Name }}}
spec:
  selector: {matchLabels: {app: {{ .Release.Name }}}}
  template:
    metadata: {labels: {app: {{ .Release.Name }}}}
    spec:
      terminationGracePeriodSeconds: 0
      automountServiceAccountToken: false
      containers:
      - {name: web, image: "busybox:1.37", command: [sleep, "3600"], env: [{name: COLOR, value: {{ .Values.color }}}]}
{{- end }}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .Release.Name }}-hook
  annotations: {helm.sh/hook: "pre-install,pre-upgrade", helm.sh/hook-delete-policy: before-hook-creation}
{{- if .Values.clusterRole }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: {{ .Release.Name }}}
{{- end }}
"#;

fn chart(folder: &Path) {
    std::fs::create_dir_all(folder.join("templates")).unwrap();
    std::fs::write(folder.join("Chart.yaml"), "apiVersion: v2\nname: web\nversion: 1.2.3\n").unwrap();
    std::fs::write(folder.join("values.yaml"), VALUES).unwrap();
    std::fs::write(folder.join("templates/all.yaml"), TEMPLATES).unwrap();
}

struct Helm<'a> {
    site: &'a Site,
    person: &'a Person,
    context: &'a str,
}

impl Helm<'_> {
    #[track_caller]
    fn run(&self, args: &[&str]) -> Ran {
        let mut command = Command::new(helm_program());
        command.env("KUBECONFIG", &self.person.kubeconfig).env("HOME", self.site.folder.join("home"));
        command.current_dir(&self.site.folder).args(["--kube-context", self.context]).args(args);
        run(command)
    }

    /// Names and namespaces of all releases that are seen.
    #[track_caller]
    fn releases(&self) -> Vec<(String, String)> {
        let all: Vec<Value> = serde_json::from_str(&self.run(&["list", "-A", "-o", "json"]).ok()).unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        all.iter().map(|release| (text(&release["name"]), text(&release["namespace"]))).collect()
    }

    #[track_caller]
    fn color(&self, namespace: &str) -> String {
        let args = ["-n", namespace, "get", "configmap", "web", "-o", "jsonpath={.data.color}"];
        self.site.run(self.person, self.context, &args).ok()
    }
}

#[test]
fn a_release_is_installed_upgraded_rolled_back_and_removed() {
    let (site, _guard) = site();
    project(site, "helm", json!({"pods": "80"}));
    project(site, "helmother", json!({}));
    let chart_folder = site.folder.join("chart");
    chart(&chart_folder);
    let chart = chart_folder.to_str().unwrap();
    let member = site.machine("helm-member", &[("member", "helm")]);
    let stranger = site.machine("helm-stranger", &[("member", "helmother")]);
    let by_stranger = Helm { site, person: &stranger, context: CLUSTER };
    for (context, namespace) in [(CLUSTER, "helm-one"), ("helm@demo", "helm-two")] {
        let helm = Helm { site, person: &member, context };
        let install = ["install", "web", chart, "-n", namespace, "--create-namespace", "--wait", "--timeout", "90s"];
        has(&helm.run(&install).ok(), &["STATUS: deployed"]);
        assert_eq!(helm.color(namespace), "green");
        assert_eq!(helm.releases(), [("web".to_owned(), namespace.to_owned())]);
        has(&helm.run(&["status", "web", "-n", namespace]).ok(), &["STATUS: deployed", "REVISION: 1"]);
        let upgrade = ["upgrade", "web", chart, "-n", namespace, "--set", "color=blue", "--wait", "--timeout", "90s"];
        has(&helm.run(&upgrade).ok(), &["REVISION: 2"]);
        assert_eq!(helm.color(namespace), "blue");
        has(&helm.run(&["rollback", "web", "1", "-n", namespace, "--wait", "--timeout", "90s"]).ok(), &["success"]);
        assert_eq!(helm.color(namespace), "green");
        has(&helm.run(&["history", "web", "-n", namespace]).ok(), &["superseded", "Rollback to 1"]);
        // Another project's people see nothing of it and touch nothing of it.
        assert_eq!(by_stranger.releases(), []);
        has(&by_stranger.run(&["uninstall", "web", "-n", namespace]).fails(), &["forbidden"]);
        has(&by_stranger.run(&upgrade).fails(), &["forbidden"]);
        has(&helm.run(&["uninstall", "web", "-n", namespace, "--wait", "--timeout", "90s"]).ok(), &["uninstalled"]);
        assert_eq!(helm.releases(), []);
        has(&site.run(&member, context, &["-n", namespace, "get", "deployment", "web"]).fails(), &["NotFound"]);
        // The namespace is there, and Helm takes it as it is.
        has(&helm.run(&install).ok(), &["STATUS: deployed"]);
        has(&helm.run(&["uninstall", "web", "-n", namespace]).ok(), &["uninstalled"]);
    }
}

#[test]
fn what_is_not_the_projects_is_refused_and_leaves_nothing() {
    let (site, _guard) = site();
    project(site, "helmref", json!({}));
    let chart_folder = site.folder.join("chart-refused");
    chart(&chart_folder);
    let chart = chart_folder.to_str().unwrap();
    let member = site.machine("helmref-member", &[("member", "helmref")]);
    let viewer = site.machine("helmref-viewer", &[("viewer", "helmref")]);
    let helm = Helm { site, person: &member, context: CLUSTER };
    let foreign = helm.run(&["install", "web", chart, "-n", "other-new", "--create-namespace"]).fails();
    has(&foreign, &["forbidden", "no access to a namespace \"other-new\"", "yours are: helmref-declared"]);
    let system = helm.run(&["install", "web", chart, "-n", "kube-system"]).fails();
    has(&system, &["forbidden"]);
    let view = Helm { site, person: &viewer, context: CLUSTER };
    has(&view.run(&["install", "web", chart, "-n", "helmref-new", "--create-namespace"]).fails(), &["forbidden"]);
    has(&view.run(&["install", "web", chart, "-n", "helmref-declared"]).fails(), &["forbidden"]);
    // A chart that wants something of the whole cluster fails with the kind, and an atomic one takes all of it back.
    let wide = ["install", "web", chart, "-n", "helmref-declared", "--set", "clusterRole=true", "--atomic"];
    has(&helm.run(&wide).fails(), &["clusterroles", "forbidden"]);
    assert_eq!(helm.releases(), []);
    let left = site.run(&member, CLUSTER, &["-n", "helmref-declared", "get", "deployments", "-o", "name"]).ok();
    assert_eq!(left, "");
}
