//! Clusters that misbehave after they were imported: only they suffer, their conditions say why, nothing accumulates.

use std::path::Path;
use std::time::{Duration, Instant};

use bailiwick::clusters::import;
use bailiwick::clusters::manifest::Impersonation;
use bailiwick::resources::cluster::VersionRange;

use super::ask::*;
use super::harness::*;
use super::impostor::{Impostor, Manner};
use super::platform::*;
use super::process::{Running, has, run};

const BESIDE: &str = "steady";
/// Longest that a request to the cluster beside may take meanwhile, kubectl's own start included, on a loaded machine.
const PROMPT: Duration = Duration::from_secs(5);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_cluster_that_misbehaves_suffers() {
    let (site, other) = tokio::join!(Site::alone(Impersonation::Constrained), Site::beside(BESIDE));
    let impostor = Impostor::before(&site).await;
    let platform = Platform::start().await;
    let imported = import::read(&site.folder.join("admin.kubeconfig"), None).await.unwrap();
    platform.world.add(CLUSTER, &impostor.connection(), &imported.kube_system_uid, site.tokens()).await;
    let range = VersionRange { min: None, max: Some("1.36".into()) };
    platform.world.change(CLUSTER, |spec| spec.accepted_versions = Some(range.clone())).await;
    platform.world.observed("usable", CLUSTER, |seen| seen.usable).await;
    platform.world.import(BESIDE, &other, None).await;
    platform.project("farm", CLUSTER, &["farm-one"]).await;
    platform.project("mill", BESIDE, &["mill-one"]).await;
    let farmer = platform.person("mara", "owner", ("Project", "farm")).await;
    let miller = platform.person("mike", "owner", ("Project", "mill")).await;
    let ask = |person: &Path, cluster: &str, args: &str| {
        tokio::task::block_in_place(|| run(through(&site, person, cluster, args)))
    };
    let admin = site.admin().await;
    let binding = "/apis/rbac.authorization.k8s.io/v1/namespaces/farm-one/rolebindings/bailiwick:role:viewer";
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let mut most = 0;

    let reachable = ("Reachable", "Unreachable");
    for (manner, (type_, reason), text) in [
        (Manner::OtherCluster("0a2b3c4d-other"), ("Reachable", "AnotherCluster"), "0a2b3c4d-other"),
        (Manner::OtherVersion("v1.99.1"), ("VersionSupported", "OutsideRange"), "newer than 1.36"),
        (Manner::OtherVersion("v1.12.0"), ("VersionSupported", "OutsideRange"), "older than 1.30"),
        (Manner::Nonsense, reachable, ""),
        (Manner::EndlessHeaders, reachable, ""),
        (Manner::EndlessBody, reachable, "broke off"),
        (Manner::OtherCertificate, reachable, "certificate"),
        (Manner::Restarts, reachable, ""),
        (Manner::Silence, reachable, ""),
        (Manner::Drip, reachable, "no response within"),
    ] {
        let started = Instant::now();
        // It must not outlive what it was permitted for, whatever the cluster keeps open.
        let watch = Running::start(through(&site, &farmer, CLUSTER, "-n farm-one get configmaps --watch-only"));
        until("the watch goes through the proxy", || async { (!platform.proxy.streams().is_empty()).then_some(()) })
            .await;
        impostor.behave(manner.clone());
        let found = platform.world.condition(CLUSTER, type_, "False").await;
        assert_eq!(found.reason, reason, "{manner:?}: {}", found.message);
        // A probe that was under way says first that it was broken off.
        until(&format!("{manner:?} is told, after {:?}", found.message), || async {
            platform.world.condition(CLUSTER, type_, "False").await.message.contains(text).then_some(())
        })
        .await;
        platform.world.observed("refused", CLUSTER, |seen| !seen.usable).await;
        tokio::task::block_in_place(|| watch.ended());
        if reason == "AnotherCluster" {
            assert!(platform.world.clusters.upstream(CLUSTER).is_none(), "nothing is forwarded there");
            assert!(platform.world.clusters.housekeeping(CLUSTER).is_none(), "and nothing written");
        }
        // Nothing is kept true where it is not known who answers.
        admin.must(delete(binding)).await;
        let asked = Instant::now();
        let refused = ask(&farmer, CLUSTER, "-n farm-one get configmaps").fails();
        has(&refused, &["Error from server (ServiceUnavailable)"]);
        assert!(asked.elapsed() < PROMPT, "{manner:?}: {:?}", asked.elapsed());

        let asked = Instant::now();
        ask(&miller, BESIDE, "-n mill-one get configmaps").ok();
        assert!(asked.elapsed() < PROMPT, "{manner:?}: the cluster beside took {:?}", asked.elapsed());
        assert!(platform.world.index.snapshot().observed(BESIDE).unwrap().usable, "{manner:?}");
        assert_eq!(admin.send(&get(binding)).await.status, 404, "{manner:?}: written without knowing to whom");

        impostor.behave(Manner::Honest);
        platform.world.condition(CLUSTER, type_, "True").await;
        platform.world.observed("usable again", CLUSTER, |seen| seen.usable).await;
        until("what went meanwhile is back", || async {
            (admin.send(&get(binding)).await.status == 200).then_some(())
        })
        .await;
        ask(&farmer, CLUSTER, "-n farm-one get configmaps").ok();
        println!("{manner:?}: {:?}, {} tasks: {}", started.elapsed(), tasks(), found.message);
        if matches!(manner, Manner::OtherCluster(_) | Manner::OtherVersion(_)) {
            most = most.max(tasks());
        }
    }
    until_within(Duration::from_secs(150), "nothing has accumulated", || async { (tasks() <= most).then_some(()) })
        .await;
    assert!(platform.proxy.streams().is_empty());
    platform.world.shutdown.cancel();
    platform.controllers.stop().await;
}
