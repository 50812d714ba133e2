//! The self-test: passes on a cluster that is as it must be, and names whatever is not.

use bailiwick::clusters::manifest::{Impersonation, Manifest};
use bailiwick::clusters::names::*;
use bailiwick::clusters::probe::{Aspect, Report, identify, probe};
use bailiwick::clusters::version::Version;
use serde_json::{Value, json};

use super::ask::*;
use super::harness::*;

in_both_forms!(a_cluster_as_it_must_be);

const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

async fn run(site: &Site, groups: &[&str]) -> Report {
    let groups: Vec<String> = groups.iter().map(|g| g.to_string()).collect();
    let version = identify(&site.accounts().housekeeping).await.unwrap().version;
    probe(&site.accounts(), CLUSTER, version, &groups).await.unwrap()
}

async fn a_cluster_as_it_must_be(site: &Site) {
    let identity = identify(&site.accounts().housekeeping).await.unwrap();
    assert_eq!((identity.git_version.as_str(), identity.version), ("v1.36.3", Version { major: 1, minor: 36 }));
    // Tests beside this one probe the same cluster: for a moment each counts the objects of the other's probe.
    let report = until("every check passes", || async {
        let report = run(site, &[TENANT_API_GROUP]).await;
        println!("{:#?}", report.checks.iter().filter(|check| !check.ok).collect::<Vec<_>>());
        report.checks.iter().all(|check| check.ok).then_some(report)
    })
    .await;
    assert_eq!(report.impersonation, Some(site.form));
    // Nothing but the namespace is left of the attacks.
    let admin = site.admin().await;
    let services = admin.must(get("/api/v1/namespaces/bailiwick-probe/services")).await;
    assert_eq!(services["items"], json!([]));
    let attack = admin.send(&get(format!("{RBAC}/clusterroles/bailiwick:role:probe.bailiwick.attack"))).await;
    assert_eq!(attack.status, 404);
}

/// What is broken, and by whom it must be named.
struct Damage {
    what: &'static str,
    by: Ask,
    repair: Ask,
    aspect: Aspect,
    check: &'static str,
}

#[tokio::test]
async fn whatever_is_missing_or_too_much_is_named_constrained() {
    damages(Impersonation::Constrained).await;
}

#[tokio::test]
async fn whatever_is_missing_or_too_much_is_named_limited() {
    damages(Impersonation::Limited).await;
}

async fn damages(form: Impersonation) {
    let site = Site::alone(form).await;
    let admin = site.admin().await;
    assert!(run(&site, &[]).await.checks.iter().all(|check| check.ok));
    let manifest = Manifest::render(&site.options()).unwrap();
    let shipped = |kind: &str, name: &str| -> Value {
        let object = manifest.objects().find(|o| o["kind"] == kind && o["metadata"]["name"] == name);
        object.unwrap_or_else(|| panic!("{kind} {name}")).clone()
    };
    let restore = |kind: &str, name: &str| {
        let object = shipped(kind, name);
        apply(path_of(&object), object)
    };
    let bound = |name: &str, role: &str, account: &str| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": SYSTEM_NAMESPACE}],
        })
    };
    let legacy = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "legacy"},
        "rules": [{"apiGroups": [""], "resources": ["users", "groups", "serviceaccounts"], "verbs": ["impersonate"]}],
    });
    admin.must(apply(path_of(&legacy), legacy)).await;
    let stray = |role: &str, account: &str| {
        let object = bound("stray", role, account);
        (apply(path_of(&object), object), delete(format!("{RBAC}/clusterrolebindings/stray")))
    };
    let mut weaker = shipped("ClusterRole", HOUSEKEEPING_ROLE);
    weaker["rules"].as_array_mut().unwrap().retain(|rule| rule["resources"][0] != "clusterroles");
    let policy = |name: &str| format!("{ADMISSION}/validatingadmissionpolicies/{name}");
    let binding = |name: &str| format!("{ADMISSION}/validatingadmissionpolicybindings/{name}");
    let (legacy_on, legacy_off) = stray("legacy", FORWARDING);
    let (view_on, view_off) = stray("view", FORWARDING);
    let (admin_on, admin_off) = stray("cluster-admin", HOUSEKEEPING);
    let damages = [
        Damage {
            what: "a binding deleted",
            by: delete(binding("bailiwick-accounts-scope")),
            repair: restore("ValidatingAdmissionPolicyBinding", "bailiwick-accounts-scope"),
            aspect: Aspect::Guard,
            check: "bailiwick-accounts-scope refuses housekeeping a quota in kube-system",
        },
        Damage {
            what: "a binding that only records",
            by: merge(binding("bailiwick-tenant-secrets"), json!({"spec": {"validationActions": ["Audit"]}})),
            repair: restore("ValidatingAdmissionPolicyBinding", "bailiwick-tenant-secrets"),
            aspect: Aspect::Guard,
            check: "policy bailiwick-tenant-secrets",
        },
        Damage {
            what: "a policy deleted",
            by: delete(policy("bailiwick-tenant-tokens")),
            repair: restore("ValidatingAdmissionPolicy", "bailiwick-tenant-tokens"),
            aspect: Aspect::Guard,
            check: "bailiwick-tenant-tokens refuses members a token of more than an hour",
        },
        Damage {
            what: "a policy that lets through what it cannot judge",
            by: merge(policy("bailiwick-namespace-metadata"), json!({"spec": {"failurePolicy": "Ignore"}})),
            repair: restore("ValidatingAdmissionPolicy", "bailiwick-namespace-metadata"),
            aspect: Aspect::Guard,
            check: "policy bailiwick-namespace-metadata",
        },
        Damage {
            what: "a legacy grant",
            by: legacy_on,
            repair: legacy_off,
            aspect: Aspect::Right,
            check: "forwarding cannot act for system:masters",
        },
        Damage {
            what: "forwarding may read as itself",
            by: view_on,
            repair: view_off,
            aspect: Aspect::Right,
            check: "forwarding has no right beyond the manifest",
        },
        Damage {
            what: "housekeeping is an administrator",
            by: admin_on,
            repair: admin_off,
            aspect: Aspect::Right,
            check: "housekeeping has no right beyond the manifest",
        },
        Damage {
            what: "housekeeping lacks a right",
            by: replace(path_of(&weaker), json!({"rules": weaker["rules"]})),
            repair: restore("ClusterRole", HOUSEKEEPING_ROLE),
            aspect: Aspect::Right,
            check: "housekeeping can escalate clusterroles.rbac.authorization.k8s.io",
        },
        Damage {
            what: "forwarding may not discover",
            by: delete(format!("{RBAC}/clusterroles/{TENANT_READ}")),
            repair: restore("ClusterRole", TENANT_READ),
            aspect: Aspect::Right,
            check: "tenants can GET /apis/storage.k8s.io/v1/storageclasses",
        },
        Damage {
            what: "forwarding reaches too little in namespaces",
            by: replace(format!("{RBAC}/clusterroles/{FORWARD_ON}"), json!({"rules": []})),
            repair: restore("ClusterRole", FORWARD_ON),
            aspect: Aspect::Right,
            check: "ClusterRole bailiwick:forward:on",
        },
    ];
    for Damage { what, by, repair, aspect, check } in damages {
        admin.must(by).await;
        until(&format!("{what}: named"), || async {
            run(&site, &[]).await.failed(aspect).any(|failed| failed.name == check).then_some(())
        })
        .await;
        admin.must(repair).await;
        until(&format!("{what}: mended"), || async { run(&site, &[]).await.checks.iter().all(|c| c.ok).then_some(()) })
            .await;
    }

    let report = run(&site, &[TENANT_API_GROUP, "late.example.com"]).await;
    let advice: Vec<&str> = report.failed(Aspect::Advice).map(|check| check.name.as_str()).collect();
    assert_eq!(advice, ["API group late.example.com"]);
    assert!(report.holds(Aspect::Right) && report.holds(Aspect::Guard));
    // Another name of the cluster makes other policies.
    let other = probe(&site.accounts(), "other", Version { major: 1, minor: 36 }, &[]).await.unwrap();
    assert!(other.failed(Aspect::Guard).any(|check| check.name == "policy bailiwick-housekeeping-bindings"));
}
