//! The manager on real clusters, and the import.

use bailiwick::clusters::import;
use bailiwick::resources::cluster::VersionRange;
use bailiwick::resources::{ClusterSpec, Condition};
use tokio::net::TcpListener;

use super::ask::*;
use super::harness::*;
use super::platform::World;

in_both_forms!(imported_observed_and_kept_current);

async fn imported_observed_and_kept_current(site: &Site) {
    let imported = import::read(&site.folder.join("admin.kubeconfig"), None).await.unwrap();
    let (forwarding, housekeeping) = site.tokens();
    assert_eq!((imported.forwarding.as_str(), imported.housekeeping.as_str()), (forwarding, housekeeping));
    assert_eq!(imported.connection.server, site.server);
    assert_eq!(imported.git_version, "v1.36.3");

    let world = World::new().await;
    // A cluster that accepts connections and never speaks stands beside it.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut beside = imported.connection.clone();
    beside.server = format!("https://{}", silent.local_addr().unwrap());
    world.add("silent", &beside, &imported.kube_system_uid, ("f", "h")).await;
    world.add(CLUSTER, &imported.connection, &imported.kube_system_uid, site.tokens()).await;
    let seen = world.observed("usable", CLUSTER, |seen| seen.usable).await;
    assert_eq!((seen.version, seen.impersonation), (Some((1, 36)), site.form));
    assert!(seen.namespaces.contains_key("kube-system") && !seen.namespaces.contains_key("bailiwick-probe"));
    world.observed("unusable", "silent", |seen| seen.reason.contains("cannot be reached")).await;

    let status = until("the status is written", || async {
        // Of the index and the status, which is written after it, one may be read before the other is there.
        let all = |conditions: &[Condition]| conditions.len() >= 4 && conditions.iter().all(|c| c.status == "True");
        Some(world.status(CLUSTER).await).filter(|status| all(&status.conditions))
    })
    .await;
    let types: Vec<&str> = status.conditions.iter().map(|c| c.type_.as_str()).collect();
    assert_eq!(types, ["Reachable", "VersionSupported", "RightsComplete", "GuardsInForce"]);
    assert_eq!((status.version.as_str(), status.impersonation.as_str()), ("v1.36.3", site.form.as_str()));
    assert_eq!(status.cluster_uid.as_deref(), Some(imported.kube_system_uid.as_str()));
    assert!(world.clusters.housekeeping(CLUSTER).is_some() && world.clusters.upstream(CLUSTER).is_some());
    // Tests beside this one probe the same cluster: for a moment each counts the objects of the other's probe.
    until("every check passes", || async {
        let report = world.clusters.check(CLUSTER).await.unwrap().unwrap();
        report.checks.iter().all(|check| check.ok).then_some(())
    })
    .await;

    // Namespaces come and go.
    let admin = site.admin().await;
    let name = format!("seen-{}", site.form.as_str());
    let made = admin.must(create("/api/v1/namespaces", plain_namespace(&name))).await;
    let seen =
        world.observed("the namespace is seen", CLUSTER, |seen| seen.namespaces.contains_key(name.as_str())).await;
    assert_eq!(made["metadata"]["uid"].as_str(), seen.namespaces.get(name.as_str()).map(|uid| &**uid));
    admin.must(delete(format!("/api/v1/namespaces/{name}"))).await;
    world.observed("the namespace is gone", CLUSTER, |seen| !seen.namespaces.contains_key(name.as_str())).await;

    // Versions outside of the range are refused, and accepted again.
    let range = |max: &str| Some(VersionRange { min: None, max: Some(max.into()) });
    world.change(CLUSTER, |spec| spec.accepted_versions = range("1.35")).await;
    world.observed("too new", CLUSTER, |seen| !seen.usable && seen.reason.contains("newer than 1.35")).await;
    world.change(CLUSTER, |spec| spec.accepted_versions = range("1.36")).await;
    world.observed("usable again", CLUSTER, |seen| seen.usable).await;

    // The credential is not sent to another address, and comes back with the old one.
    let server = imported.connection.server.clone();
    let move_to = |server: String| {
        move |spec: &mut ClusterSpec| spec.connection.direct.as_mut().unwrap().server.clone_from(&server)
    };
    world.change(CLUSTER, move_to(beside.server.clone())).await;
    world.observed("moved", CLUSTER, |seen| !seen.usable && seen.reason.contains("changed since the credential")).await;
    assert!(world.clusters.housekeeping(CLUSTER).is_none());
    world.change(CLUSTER, move_to(server)).await;
    world.observed("back", CLUSTER, |seen| seen.usable).await;
}

#[tokio::test]
async fn an_import_that_fails_says_why() {
    let site = Site::constrained().await;
    let file = site.folder.join("admin.kubeconfig");
    let other = import::read(&file, Some("other")).await.err().unwrap().to_string();
    assert!(other.contains("context \"other\"") && other.contains("constrained"), "{other}");
    let text = std::fs::read_to_string(&file).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let nobody = folder.path().join("config");
    // A port on which nobody listens.
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    std::fs::write(&nobody, text.replace(&site.server, &format!("https://{closed}"))).unwrap();
    let refused = import::read(&nobody, None).await.err().unwrap().to_string();
    assert!(refused.contains("asking for the version"), "{refused}");
}
