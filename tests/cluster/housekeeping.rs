//! What housekeeping may do with Namespaces, and what the guards keep from it.

use bailiwick::clusters::names::{ENFORCE_BEFORE, ENFORCE_VERSION, ENFORCE_VERSION_BEFORE};
use serde_json::{Value, json};

use super::ask::*;
use super::harness::*;

in_both_forms!(namespaces_that_are_not_ours, creating_namespaces, changing_our_namespaces, adoption);

const GUARD: &str = "bailiwick-housekeeping-namespaces";

fn path(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}")
}

fn labels(labels: Value) -> Value {
    json!({"metadata": {"labels": labels}})
}

fn annotations(annotations: Value) -> Value {
    json!({"metadata": {"annotations": annotations}})
}

async fn namespaces_that_are_not_ours(site: &Site) {
    let (admin, housekeeping) = (site.admin().await, site.housekeeping().await);
    admin.must(create("/api/v1/namespaces", plain_namespace("foreign"))).await;
    for namespace in ["kube-system", "kube-public", "kube-node-lease", "default", "bailiwick-system", "foreign"] {
        let path = path(namespace);
        let current = admin.must(get(&path)).await;
        let relabel = labels(json!({
            "bailiwick.dev/project": "bank",
            "bailiwick.dev/project-uid": uid_of("bank"),
            "pod-security.kubernetes.io/enforce": "baseline",
        }));
        housekeeping.refused_by_guard(GUARD, every_way(&path, &current, &relabel)).await;
        let level = labels(json!({"pod-security.kubernetes.io/enforce": "restricted"}));
        housekeeping.refused_by_guard(GUARD, every_way(&path, &current, &level)).await;
        housekeeping
            .refused(
                "cannot update resource \"namespaces/status\"",
                [replace(format!("{path}/status"), relabel.clone())],
            )
            .await;
        housekeeping
            .refused("cannot patch resource \"namespaces/status\"", [merge(format!("{path}/status"), relabel.clone())])
            .await;
        housekeeping
            .refused("cannot update resource \"namespaces/finalize\"", [replace(format!("{path}/finalize"), relabel)])
            .await;
        // The server itself keeps three of them from everybody.
        let by = if matches!(namespace, "kube-system" | "kube-public" | "default") { "forbidden" } else { GUARD };
        housekeeping.refused(by, both([delete(&path)])).await;
    }
    housekeeping.refused("cannot deletecollection", [delete("/api/v1/namespaces")]).await;
    admin.allowed([get(path("foreign")), get(path("kube-node-lease"))]).await;
}

async fn creating_namespaces(site: &Site) {
    let housekeeping = site.housekeeping().await;
    let new = |change: Value| {
        let mut namespace = namespace_of("shop", "shop-new");
        merged(&mut namespace, &change);
        create("/api/v1/namespaces", namespace)
    };
    let owner =
        json!([{"apiVersion": "v1", "kind": "Namespace", "name": "x", "uid": "00000000-0000-4000-8000-000000000000"}]);
    housekeeping
        .refused_by_guard(
            GUARD,
            both([
                new(labels(json!({"bailiwick.dev/project": null}))),
                new(labels(json!({"bailiwick.dev/project-uid": null}))),
                new(labels(json!({"pod-security.kubernetes.io/enforce": null}))),
                new(labels(json!({"pod-security.kubernetes.io/enforce": "privileged"}))),
                new(labels(json!({"pod-security.kubernetes.io/enforce-version": "v1.0"}))),
                new(labels(json!({"istio-injection": "enabled"}))),
                new(labels(json!({"bailiwick.dev/adopt": uid_of("shop")}))),
                new(annotations(json!({ENFORCE_BEFORE: ""}))),
                new(annotations(json!({ENFORCE_BEFORE: "privileged"}))),
                new(annotations(json!({ENFORCE_VERSION_BEFORE: "v1.0"}))),
                new(annotations(json!({"bailiwick.dev/adopt": uid_of("shop")}))),
                new(annotations(json!({"bailiwick.dev/allow-privileged": "true"}))),
                new(annotations(json!({"scheduler.alpha.kubernetes.io/node-selector": "role=db"}))),
                new(json!({"metadata": {"ownerReferences": owner}})),
                new(json!({"metadata": {"finalizers": ["example.com/stay"]}})),
                new(json!({"metadata": {"name": "kube-evil"}})),
                new(json!({"metadata": {"name": null, "generateName": "kube-"}})),
            ]),
        )
        .await;
    housekeeping
        .allowed([
            new(json!({})).dry(),
            new(json!({"metadata": {"name": "shop-restricted", "labels": {
                "pod-security.kubernetes.io/enforce": "restricted",
                "pod-security.kubernetes.io/enforce-version": "latest",
                "bailiwick.dev/isolation": "project",
            }}})),
            new(json!({"metadata": {"name": null, "generateName": "shop-x-", "annotations": {"tenant.bailiwick.dev/cost": "7"}}})),
            apply(path("shop-applied"), namespace_of("shop", "shop-applied")),
            delete(path("shop-restricted")),
        ])
        .await;
}

async fn changing_our_namespaces(site: &Site) {
    let (admin, housekeeping) = (site.admin().await, site.housekeeping().await);
    let path = path("shop-owned");
    let current = housekeeping.must(create("/api/v1/namespaces", namespace_of("shop", "shop-owned"))).await;
    let owner =
        json!([{"apiVersion": "v1", "kind": "Namespace", "name": "x", "uid": "00000000-0000-4000-8000-000000000000"}]);
    for change in [
        labels(json!({"pod-security.kubernetes.io/enforce": null})),
        labels(json!({"pod-security.kubernetes.io/enforce": "privileged"})),
        labels(json!({"pod-security.kubernetes.io/enforce-version": "v1.0"})),
        labels(json!({"bailiwick.dev/project": null, "pod-security.kubernetes.io/enforce": "privileged"})),
        labels(json!({"istio-injection": "enabled"})),
        labels(json!({"bailiwick.dev/adopt": uid_of("shop")})),
        annotations(json!({"bailiwick.dev/adopt": uid_of("shop")})),
        annotations(json!({"bailiwick.dev/allow-privileged": "true"})),
        annotations(json!({"scheduler.alpha.kubernetes.io/node-selector": "role=db"})),
        json!({"metadata": {"ownerReferences": owner}}),
        json!({"metadata": {"finalizers": ["example.com/stay"]}}),
    ] {
        housekeeping.refused_by_guard(GUARD, every_way(&path, &current, &change)).await;
    }
    for change in [
        labels(json!({"pod-security.kubernetes.io/enforce": "restricted"})),
        labels(json!({"bailiwick.dev/isolation": "namespace"})),
        labels(json!({"tenant.bailiwick.dev/tier": "gold", "app.kubernetes.io/managed-by": "bailiwick"})),
        annotations(json!({"tenant.bailiwick.dev/contact": "shop@example.com"})),
        labels(json!({"pod-security.kubernetes.io/warn": "restricted"})),
    ] {
        housekeeping.allowed(every_way(&path, &current, &change)).await;
    }
    admin.allowed([merge(&path, annotations(json!({"bailiwick.dev/allow-privileged": "true"})))]).await;
    housekeeping.allowed([merge(&path, labels(json!({"pod-security.kubernetes.io/enforce": "privileged"})))]).await;
    // Moved to another project, then released.
    let moved = json!({"bailiwick.dev/project": "bank", "bailiwick.dev/project-uid": uid_of("bank")});
    let released = json!({"bailiwick.dev/project": null, "bailiwick.dev/project-uid": null});
    housekeeping.allowed([merge(&path, labels(moved)), merge(&path, labels(released))]).await;
    housekeeping.refused_by_guard(GUARD, [merge(&path, labels(project_labels("shop"))), delete(&path)]).await;
}

async fn adoption(site: &Site) {
    let (admin, housekeeping) = (site.admin().await, site.housekeeping().await);
    let path = path("adopted");
    let mut namespace = plain_namespace("adopted");
    merged(&mut namespace, &annotations(json!({"bailiwick.dev/adopt": uid_of("shop")})));
    let current = admin.must(create("/api/v1/namespaces", namespace)).await;
    let owner =
        json!([{"apiVersion": "v1", "kind": "Namespace", "name": "x", "uid": "00000000-0000-4000-8000-000000000000"}]);
    let mut with_owner = labels(project_labels("shop"));
    with_owner["metadata"]["ownerReferences"] = owner;
    let mut rewritten = labels(project_labels("bank"));
    rewritten["metadata"]["annotations"] = json!({"bailiwick.dev/adopt": uid_of("bank")});
    for change in [
        labels(project_labels("bank")),
        rewritten,
        // An owner that does not exist would make the garbage collector delete the namespace.
        with_owner,
        labels(json!({"bailiwick.dev/project": "shop", "bailiwick.dev/project-uid": uid_of("shop")})),
        annotations(json!({"bailiwick.dev/adopt": null})),
    ] {
        housekeeping.refused_by_guard(GUARD, every_way(&path, &current, &change)).await;
    }
    housekeeping.refused_by_guard(GUARD, both([delete(&path)])).await;
    housekeeping.allowed(every_way(&path, &current, &labels(project_labels("shop")))).await;
    let adopted = admin.must(get(&path)).await;
    housekeeping.refused_by_guard(GUARD, both([delete(&path)])).await;
    for change in [labels(project_labels("bank")), annotations(json!({"bailiwick.dev/adopt": null}))] {
        housekeeping.refused_by_guard(GUARD, every_way(&path, &adopted, &change)).await;
    }
    // What was enforced before is recorded in the change that adopts, and only there.
    let recorded = json!({ENFORCE_BEFORE: "privileged"});
    housekeeping.refused_by_guard(GUARD, every_way(&path, &adopted, &annotations(recorded))).await;
    let enforce = "pod-security.kubernetes.io/enforce";
    let released = json!({"bailiwick.dev/project": null, "bailiwick.dev/project-uid": null});
    let mut weaker = labels(released.clone());
    weaker["metadata"]["labels"][enforce] = Value::Null;
    housekeeping.refused_by_guard(GUARD, every_way(&path, &adopted, &weaker)).await;
    housekeeping.allowed([merge(&path, labels(released.clone()))]).await;
    // The level stayed; now it is the administrator's, and this time it is recorded.
    for level in ["privileged", ""] {
        let before = if level.is_empty() { Value::Null } else { json!(level) };
        admin.must(merge(&path, labels(json!({enforce: before})))).await;
        let current = admin.must(get(&path)).await;
        let mut adopts = labels(project_labels("shop"));
        for wrong in ["restricted", "baseline", if level.is_empty() { "privileged" } else { "" }] {
            adopts["metadata"]["annotations"] = json!({ENFORCE_BEFORE: wrong});
            housekeeping.refused_by_guard(GUARD, every_way(&path, &current, &adopts)).await;
        }
        adopts["metadata"]["annotations"] = json!({ENFORCE_BEFORE: level});
        housekeeping.allowed([merge(&path, adopts)]).await;
        let adopted = admin.must(get(&path)).await;
        for change in [json!({ENFORCE_BEFORE: null}), json!({ENFORCE_BEFORE: "baseline"})] {
            housekeeping.refused_by_guard(GUARD, every_way(&path, &adopted, &annotations(change))).await;
        }
        // Weaker while it is a project's, or at the end than before it was one.
        let back = if level.is_empty() { Value::Null } else { json!(level) };
        housekeeping.refused_by_guard(GUARD, every_way(&path, &adopted, &labels(json!({enforce: back})))).await;
        let mut given = labels(released.clone());
        given["metadata"]["annotations"] = json!({ENFORCE_BEFORE: null});
        let mut other = given.clone();
        other["metadata"]["labels"][enforce] = if level.is_empty() { json!("privileged") } else { Value::Null };
        housekeeping.refused_by_guard(GUARD, every_way(&path, &adopted, &other)).await;
        given["metadata"]["labels"][enforce] = back;
        housekeeping.allowed([merge(&path, given)]).await;
    }
    // So is the version that the level is pinned to.
    for pinned in ["v1.30", ""] {
        let before = if pinned.is_empty() { Value::Null } else { json!(pinned) };
        admin.must(merge(&path, labels(json!({enforce: "baseline", ENFORCE_VERSION: before})))).await;
        let current = admin.must(get(&path)).await;
        let mut adopts = labels(project_labels("shop"));
        adopts["metadata"]["labels"][ENFORCE_VERSION] = json!("latest");
        for wrong in ["v1.0", "latest", if pinned.is_empty() { "v1.30" } else { "" }] {
            adopts["metadata"]["annotations"] = json!({ENFORCE_VERSION_BEFORE: wrong});
            housekeeping.refused_by_guard(GUARD, every_way(&path, &current, &adopts)).await;
        }
        adopts["metadata"]["annotations"] = json!({ENFORCE_VERSION_BEFORE: pinned});
        housekeeping.allowed([merge(&path, adopts)]).await;
        let adopted = admin.must(get(&path)).await;
        for change in [json!({ENFORCE_VERSION_BEFORE: null}), json!({ENFORCE_VERSION_BEFORE: "v1.0"})] {
            housekeeping.refused_by_guard(GUARD, every_way(&path, &adopted, &annotations(change))).await;
        }
        // Older while it is a project's, or at the end than before it was one.
        housekeeping
            .refused_by_guard(GUARD, every_way(&path, &adopted, &labels(json!({ENFORCE_VERSION: "v1.30"}))))
            .await;
        let mut given = labels(released.clone());
        given["metadata"]["annotations"] = json!({ENFORCE_VERSION_BEFORE: null});
        let mut other = given.clone();
        other["metadata"]["labels"][ENFORCE_VERSION] = json!(if pinned.is_empty() { "v1.30" } else { "v1.0" });
        housekeeping.refused_by_guard(GUARD, every_way(&path, &adopted, &other)).await;
        given["metadata"]["labels"][ENFORCE_VERSION] = before;
        housekeeping.allowed([merge(&path, given)]).await;
    }
    // To count Pods is the administrator's to give, namespace by namespace.
    housekeeping.refused("cannot list resource", [get(format!("{path}/pods")), get("/api/v1/pods")]).await;
    admin.allowed([delete(&path)]).await;
}
