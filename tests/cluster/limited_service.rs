//! The whole service on a cluster in the limited form of impersonation, with real kubectl and Pods that run.

use bailiwick::clock;
use bailiwick::clusters::manifest::Impersonation;
use bailiwick::clusters::names::*;
use bailiwick::controllers::NamespaceActs as _;
use bailiwick::domain::names::{cluster_group, project_group};
use serde_json::json;

use super::ask::*;
use super::harness::*;
use super::platform::*;
use super::process::{has, lacks, run, run_with};

const BUSY: &str = include_str!("../service/data/pods.yaml");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_main_job_in_the_limited_form() {
    let site = Site::with_node(Impersonation::Limited).await;
    let admin = site.admin().await;
    // What the harness listed for projects of its own is the controllers' to remove.
    let platform = Platform::start().await;
    platform.world.import(CLUSTER, &site, None).await;
    // The cluster is used as soon as it is proven; its status is written a moment later.
    until("the status says the form", || async {
        (platform.world.status(CLUSTER).await.impersonation == "limited").then_some(())
    })
    .await;
    platform.project("farm", CLUSTER, &["farm-one", "farm-two"]).await;
    platform.project("mill", CLUSTER, &["mill-one"]).await;

    let quota = admin.must(get("/api/v1/namespaces/farm-one/resourcequotas/bailiwick")).await;
    assert_eq!(quota["spec"]["hard"]["pods"], "2", "eight Pods for four namespaces");
    let bindings = admin.must(get("/apis/rbac.authorization.k8s.io/v1/namespaces/farm-two/rolebindings")).await;
    assert_eq!(bindings["items"].as_array().unwrap().len(), 4);
    the_role_lists_exactly_these(&site, &["farm", "mill"]).await;

    let member = platform.person("mara", "member", ("Project", "farm")).await;
    let viewer = platform.person("vito", "viewer", ("Project", "farm")).await;
    let steward = platform.person("stan", "member", ("Cluster", CLUSTER)).await;
    let run_as = |person: &std::path::Path, args: &str| {
        tokio::task::block_in_place(|| run(through(&site, person, CLUSTER, args)))
    };

    let create = through(&site, &member, CLUSTER, "-n farm-one apply -f -");
    tokio::task::block_in_place(|| run_with(create, BUSY.as_bytes()).ok());
    run_as(&member, "-n farm-one wait --for=condition=Ready pod/busy --timeout=30s").ok();
    has(&run_as(&member, "-n farm-one get pods").ok(), &["busy"]);
    has(&run_as(&member, "-n farm-one exec busy -- echo from-inside").ok(), &["from-inside"]);
    has(&run_as(&member, "-n farm-one logs busy --tail=1").ok(), &["running"]);
    run_as(&member, "-n farm-two create configmap mine").ok();
    has(&run_as(&member, "-n farm-one auth can-i create pods").ok(), &["yes"]);
    has(&run_as(&viewer, "-n farm-one get pods").ok(), &["busy"]);
    has(&run_as(&viewer, "-n farm-one exec busy -- true").fails(), &["orbidden"]);
    run_as(&viewer, "-n farm-one create configmap mine").fails();

    // A grant on the cluster gives its role in every project's namespace, and in no other.
    has(&run_as(&steward, "-n farm-one exec busy -- echo steward").ok(), &["steward"]);
    run_as(&steward, "-n mill-one create configmap stewards").ok();
    run_as(&steward, "get storageclasses").ok();
    for (person, namespaces) in [(&member, &["mill-one", "kube-system", "default"][..]), (&steward, &["kube-system"])] {
        for namespace in namespaces {
            for act in ["get pods", "get secrets", "create configmap x"] {
                has(&run_as(person, &format!("-n {namespace} {act}")).fails(), &["orbidden"]);
            }
        }
        lacks(&run_as(person, "get pods -A").ok(), &["kube-system"]);
        for act in ["get nodes", "-n farm-one get pods --as=root --as-group=system:masters"] {
            has(&run_as(person, act).fails(), &["orbidden"]);
        }
    }

    // A new namespace and a new project are reached at once: the list of names is written before it is answered.
    let state = platform.controllers.create("farm", CLUSTER, "farm-three", "mara", clock::now()).await.unwrap();
    assert_eq!(state.message, "");
    run_as(&member, "-n farm-three get pods").ok();
    platform.project("dairy", CLUSTER, &["dairy-one"]).await;
    let newcomer = platform.person("dora", "owner", ("Project", "dairy")).await;
    run_as(&newcomer, "-n dairy-one get secrets").ok();
    the_role_lists_exactly_these(&site, &["dairy", "farm", "mill"]).await;

    forwarding_acts_for_nobody_else(&site).await;
    platform.world.shutdown.cancel();
    platform.controllers.stop().await;
}

/// The users and groups of these projects and of grants on the cluster; nothing of what the harness wrote.
async fn the_role_lists_exactly_these(site: &Site, projects: &[&str]) {
    let path = format!("/apis/rbac.authorization.k8s.io/v1/clusterroles/{LEGACY_IMPERSONATE}");
    let rules = site.admin().await.must(get(path)).await["rules"].clone();
    let roles = ["member", "owner", "viewer"];
    let mut users = vec![legacy_cluster_user(CLUSTER, &uid(CLUSTER))];
    users.extend(projects.iter().map(|project| legacy_user(project, &uid(project))));
    let mut groups: Vec<String> = roles.map(|role| cluster_group(CLUSTER, &uid(CLUSTER), role)).into();
    groups.extend(projects.iter().flat_map(|p| roles.map(|role| project_group(p, &uid(p), role))));
    let rule = |resource: &str, names: Vec<String>| json!({"apiGroups": [""], "resources": [resource], "resourceNames": names, "verbs": ["impersonate"]});
    assert_eq!(rules, json!([rule("users", users), rule("groups", groups)]));
}

/// With the forwarding account's token in hand.
async fn forwarding_acts_for_nobody_else(site: &Site) {
    let pods = [get("/api/v1/namespaces/farm-one/pods")];
    let (user, steward) = (legacy_user("farm", &uid("farm")), legacy_cluster_user(CLUSTER, &uid(CLUSTER)));
    let (member, of_cluster) =
        (project_group("farm", &uid("farm"), "member"), cluster_group(CLUSTER, &uid(CLUSTER), "member"));
    site.impersonating(&user, &[&member]).await.allowed(pods.clone()).await;
    site.impersonating(&steward, &[&of_cluster]).await.allowed(pods.clone()).await;
    for (user, group) in [
        (user.as_str(), "system:masters"),
        (&steward, "system:masters"),
        (&steward, "cluster-ops"),
        (&user, "bailiwick:cluster:other:0a2b3c4d:member"),
        ("bailiwick:cluster:other:0a2b3c4d", &of_cluster),
        ("bailiwick:cluster:demo:00000000", &of_cluster),
        ("bailiwick:user:mara", &member),
        ("kubernetes-admin", &member),
        ("system:kube-controller-manager", &member),
        (HOUSEKEEPING_USER, &member),
    ] {
        let actor = site.impersonating(user, &[group]).await;
        actor.refused("cannot impersonate resource", pods.clone()).await;
    }
}
