//! Taking the manifest back leaves nothing, and it can be applied and imported again on the same API server.

use std::process::Command;

use bailiwick::clusters::import;
use bailiwick::clusters::manifest::{Impersonation, Manifest, uninstall};
use bailiwick::clusters::names::*;
use bailiwick::clusters::probe::{Accounts, probe};
use bailiwick::clusters::version::Version;
use serde_json::{Value, json};

use super::ask::*;
use super::harness::*;
use super::process::{Ran, has, run_with};

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
    has(&shell(&site, &uninstall("other").unwrap()).fails(), &["was not imported as other"]);
    assert_eq!(ours(&admin).await, before);
    assert!(before.len() > 40, "{before:?}");

    let said = shell(&site, &uninstall(CLUSTER).unwrap()).ok();
    assert_eq!(ours(&admin).await, [""; 0], "{said}");
    admin.allowed([get(format!("/api/v1/namespaces/{left}/configmaps/theirs"))]).await;
    // Neither is there anything left to take back.
    has(&shell(&site, &uninstall(CLUSTER).unwrap()).fails(), &["nothing is removed"]);

    let manifest = Manifest::render(&site.options()).unwrap().to_yaml().unwrap();
    kubectl(&site, &["apply", "--server-side", "-f", "-"], &manifest);
    imported(&site, &[TENANT_API_GROUP]).await;

    // What an administrator does who knows no script. The guards hold what was applied last, not what stood there once.
    kubectl(&site, &["delete", "--ignore-not-found", "-f", "-"], &manifest);
    let narrower = bailiwick::clusters::manifest::ManifestOptions { tenant_api_groups: vec![], ..site.options() };
    let narrower = Manifest::render(&narrower).unwrap().to_yaml().unwrap();
    kubectl(&site, &["apply", "-f", "-"], &narrower);
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
fn kubectl(site: &Site, args: &[&str], input: &str) {
    let mut command = site.kubectl();
    command.args(args);
    tokio::task::block_in_place(|| run_with(command, input.as_bytes()).ok());
}

/// Runs a script of the administrator's; whether it succeeded, and what it said.
fn shell(site: &Site, script: &str) -> Ran {
    let mut command = Command::new("sh");
    let (kubectl, file) = (site.folder.join("bin/kubectl"), site.folder.join("admin.kubeconfig"));
    command.env("KUBECTL", format!("{} --kubeconfig {}", kubectl.display(), file.display())).env("HOME", &site.folder);
    tokio::task::block_in_place(|| run_with(command, script.as_bytes()))
}
