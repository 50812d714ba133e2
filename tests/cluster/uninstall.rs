//! Taking the manifest back leaves nothing, and it can be applied and imported again on the same API server.

use std::io::Write as _;
use std::process::{Command, Stdio};

use bailiwick::clusters::import;
use bailiwick::clusters::manifest::{Impersonation, Manifest, uninstall};
use bailiwick::clusters::names::*;
use bailiwick::clusters::probe::{Accounts, probe};
use bailiwick::clusters::version::Version;
use serde_json::{Value, json};

use super::ask::*;
use super::harness::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_and_the_next_import_succeeds_constrained() {
    taken_back(Impersonation::Constrained).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_and_the_next_import_succeeds_limited() {
    taken_back(Impersonation::Limited).await;
}

async fn taken_back(form: Impersonation) {
    let site = Site::alone(form).await;
    let admin = site.admin().await;
    imported(&site, &[TENANT_API_GROUP]).await;
    // A namespace that is still a project's, with one object of each kind.
    let left = site.project_namespace("shop", "shop-left").await;
    let housekeeping = site.housekeeping().await;
    for (kind, group, spec) in [
        ("ResourceQuota", "v1", json!({"hard": {"pods": "5"}})),
        ("LimitRange", "v1", json!({"limits": [{"type": "Container", "default": {"cpu": "1"}}]})),
        ("NetworkPolicy", "networking.k8s.io/v1", json!({"podSelector": {}})),
    ] {
        let mut object = json!({
            "apiVersion": group, "kind": kind, "spec": spec,
            "metadata": {"name": "bailiwick", "namespace": left, "labels": {MANAGED: MANAGED_VALUE}},
        });
        let path = path_of(&object).replace("networkpolicys", "networkpolicies");
        object["metadata"].as_object_mut().unwrap().remove("namespace");
        housekeeping.must(apply(path, object)).await;
    }
    let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "theirs"}});
    admin.must(create(format!("/api/v1/namespaces/{left}/configmaps"), config)).await;

    // The script of another cluster touches nothing.
    let before = ours(&admin).await;
    let (ok, text) = shell(&site, &uninstall("other").unwrap()).await;
    assert!(!ok && text.contains("was not imported as other"), "{text}");
    assert_eq!(ours(&admin).await, before);
    assert!(before.len() > 40, "{before:?}");

    let (ok, text) = shell(&site, &uninstall(CLUSTER).unwrap()).await;
    assert!(ok, "{text}");
    assert_eq!(ours(&admin).await, [""; 0], "{text}");
    admin.allowed([get(format!("/api/v1/namespaces/{left}/configmaps/theirs"))]).await;
    // Neither is there anything left to take back.
    let (ok, text) = shell(&site, &uninstall(CLUSTER).unwrap()).await;
    assert!(!ok && text.contains("nothing is removed"), "{text}");

    let manifest = Manifest::render(&site.options()).unwrap().to_yaml().unwrap();
    kubectl(&site, &["apply", "--server-side", "-f", "-"], &manifest).await;
    imported(&site, &[TENANT_API_GROUP]).await;

    // What an administrator does who knows no script. The guards hold what was applied last, not what stood there once.
    kubectl(&site, &["delete", "--ignore-not-found", "-f", "-"], &manifest).await;
    let narrower = bailiwick::clusters::manifest::ManifestOptions { tenant_api_groups: vec![], ..site.options() };
    let narrower = Manifest::render(&narrower).unwrap().to_yaml().unwrap();
    kubectl(&site, &["apply", "-f", "-"], &narrower).await;
    let accounts = imported(&site, &[]).await;
    let housekeeping = Actor { client: accounts.housekeeping, ..housekeeping };
    let role = |group: &str| {
        let rules = json!([{"apiGroups": [group], "resources": ["widgets"], "verbs": ["get"]}]);
        create("/apis/rbac.authorization.k8s.io/v1/clusterroles", cluster_role("widgets", rules)).dry()
    };
    housekeeping.allowed([role("apps")]).await;
    housekeeping.refused_by_guard(GROUPS_POLICY, [role(TENANT_API_GROUP)]).await;
}

/// Reads the tokens as `cluster import` does and probes until everything is as it must be.
async fn imported(site: &Site, groups: &[&str]) -> Accounts {
    let groups: Vec<String> = groups.iter().map(|group| group.to_string()).collect();
    let file = site.folder.join("admin.kubeconfig");
    until("every check passes", || async {
        // The controller needs a moment for the tokens.
        let found = import::read(&file, None).await.ok()?;
        let accounts =
            Accounts { housekeeping: site.client(&found.housekeeping), forwarding: site.client(&found.forwarding) };
        let report = probe(&accounts, CLUSTER, Version { major: 1, minor: 36 }, &groups).await.ok()?;
        let wrong: Vec<_> = report.checks.iter().filter(|check| !check.ok).collect();
        println!("{wrong:#?}");
        (wrong.is_empty() && report.impersonation == Some(site.form)).then_some(accounts)
    })
    .await
}

/// Everything in the cluster that bears a name or a label of the service.
async fn ours(admin: &Actor) -> Vec<String> {
    let mut found = vec![];
    for path in [
        "/api/v1/namespaces",
        "/api/v1/serviceaccounts",
        "/api/v1/secrets",
        "/api/v1/configmaps",
        "/api/v1/resourcequotas",
        "/api/v1/limitranges",
        "/apis/networking.k8s.io/v1/networkpolicies",
        "/apis/rbac.authorization.k8s.io/v1/roles",
        "/apis/rbac.authorization.k8s.io/v1/rolebindings",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
    ] {
        for item in admin.must(get(path)).await["items"].as_array().unwrap() {
            let meta = &item["metadata"];
            let name = meta["name"].as_str().unwrap();
            let within = meta["namespace"].as_str().unwrap_or_default();
            let labelled = |labels: &Value| {
                labels.as_object().is_some_and(|all| all.keys().any(|key| key.starts_with("bailiwick.dev/")))
            };
            if name.starts_with("bailiwick") || within.starts_with("bailiwick") || labelled(&meta["labels"]) {
                found.push(format!("{path} {within}/{name}"));
            }
        }
    }
    found
}

/// kubectl of the cluster's administrator, which must succeed.
async fn kubectl(site: &Site, args: &[&str], input: &str) {
    let mut command = Command::new(site.folder.join("bin/kubectl"));
    command.arg("--kubeconfig").arg(site.folder.join("admin.kubeconfig")).args(args);
    let (ok, text) = run(command, input.to_owned()).await;
    assert!(ok, "kubectl {args:?}: {text}");
}

/// Runs a script of the administrator's; whether it succeeded, and what it said.
async fn shell(site: &Site, script: &str) -> (bool, String) {
    let mut command = Command::new("sh");
    let (kubectl, file) = (site.folder.join("bin/kubectl"), site.folder.join("admin.kubeconfig"));
    command.env("KUBECTL", format!("{} --kubeconfig {}", kubectl.display(), file.display()));
    run(command, script.to_owned()).await
}

async fn run(mut command: Command, input: String) -> (bool, String) {
    let ended = tokio::task::spawn_blocking(move || {
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = spawned.unwrap();
        // A script may end without reading all of itself.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        child.wait_with_output().unwrap()
    });
    let output = tokio::time::timeout(std::time::Duration::from_secs(60), ended).await.unwrap().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}
