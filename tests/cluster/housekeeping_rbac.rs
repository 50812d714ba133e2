//! What housekeeping may do with roles, bindings and the objects of project namespaces.

use bailiwick::clusters::names::*;
use bailiwick::domain::names::{cluster_group, project_group};
use serde_json::{Value, json};

use super::ask::*;
use super::harness::*;

in_both_forms!(roles, bindings, objects_of_project_namespaces, kinds_that_are_not_housekeepings);

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const ANY_GUARD: &str = "ValidatingAdmissionPolicy 'bailiwick-";
const ROLES: &str = "ValidatingAdmissionPolicy 'bailiwick-housekeeping-";
const BINDINGS: &str = "bailiwick-housekeeping-bindings";
const SCOPE: &str = "bailiwick-accounts-scope";

/// Namespaces in which housekeeping has no business.
const ELSEWHERE: [&str; 5] = ["kube-system", "kube-node-lease", "default", "bailiwick-system", STRANGERS];

fn owner() -> Value {
    json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "00000000-0000-4000-8000-000000000000"}])
}

async fn roles(site: &Site) {
    let (admin, housekeeping) = (site.admin().await, site.housekeeping().await);
    let path = format!("{RBAC}/clusterroles");
    let rule = |groups: Value, resources: Value, verbs: Value| json!([{"apiGroups": groups, "resources": resources, "verbs": verbs}]);
    let harmless = rule(json!(["apps"]), json!(["deployments"]), json!(["get"]));

    let current = housekeeping.must(create(&path, cluster_role("changing", harmless.clone()))).await;
    let changing = format!("{path}/bailiwick:role:changing");
    let wide = json!({"rules": rule(json!(["", "example.com"]), json!(["secrets", "pods/exec", "widgets"]), json!(["get", "create", "deletecollection"]))});
    let label = json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": "bailiwick"}}});
    housekeeping.allowed(every_way(&changing, &current, &wide)).await;
    housekeeping.allowed(every_way(&changing, &current, &label)).await;
    housekeeping
        .allowed([
            create(&path, cluster_role("fresh", harmless.clone())).dry(),
            create(&path, cluster_role("fresh", harmless.clone())),
            create(&path, cluster_role("empty", Value::Null)),
            merge(format!("{path}/bailiwick:role:empty"), label.clone()),
            apply(format!("{path}/bailiwick:role:applied"), cluster_role("applied", harmless.clone())),
            delete(format!("{path}/bailiwick:role:fresh")),
            get(&path),
        ])
        .await;

    // Rules beyond tenant reach, in a role that housekeeping may write.
    for rules in [
        rule(json!(["*"]), json!(["pods"]), json!(["get"])),
        rule(json!([""]), json!(["*"]), json!(["get"])),
        rule(json!([""]), json!(["pods"]), json!(["*"])),
        rule(json!([""]), json!(["*/status"]), json!(["get"])),
        rule(json!([""]), json!(["serviceaccounts"]), json!(["impersonate"])),
        rule(json!(["authentication.k8s.io"]), json!(["users"]), json!(["impersonate:user-info"])),
        rule(json!([""]), json!(["pods"]), json!(["impersonate-on:user-info:get"])),
        rule(json!(["rbac.authorization.k8s.io"]), json!(["roles"]), json!(["bind"])),
        rule(json!(["rbac.authorization.k8s.io"]), json!(["roles"]), json!(["escalate"])),
        rule(json!(["rbac.authorization.k8s.io"]), json!(["clusterroles"]), json!(["get"])),
        rule(json!(["rbac.authorization.k8s.io"]), json!(["clusterrolebindings"]), json!(["create"])),
        rule(json!([""]), json!(["nodes"]), json!(["get"])),
        rule(json!([""]), json!(["nodes/proxy"]), json!(["get"])),
        rule(json!([""]), json!(["pods/proxy"]), json!(["get"])),
        rule(json!([""]), json!(["services/proxy"]), json!(["create"])),
        rule(json!([""]), json!(["persistentvolumes"]), json!(["get"])),
        rule(json!([""]), json!(["namespaces"]), json!(["delete"])),
        rule(json!([""]), json!(["namespaces"]), json!(["create"])),
        rule(json!([""]), json!(["namespaces/status"]), json!(["patch"])),
        rule(json!([""]), json!(["namespaces"]), json!(["list"])),
        rule(json!([""]), json!(["namespaces/finalize"]), json!(["update"])),
        rule(json!([""]), json!(["resourcequotas"]), json!(["update"])),
        rule(json!([""]), json!(["resourcequotas/status"]), json!(["patch"])),
        rule(json!([""]), json!(["limitranges"]), json!(["delete"])),
        rule(json!(["other.example.com"]), json!(["widgets"]), json!(["get"])),
        rule(json!(["certificates.k8s.io"]), json!(["certificatesigningrequests/approval"]), json!(["update"])),
        rule(json!(["admissionregistration.k8s.io"]), json!(["validatingadmissionpolicies"]), json!(["delete"])),
        rule(json!(["admissionregistration.k8s.io"]), json!(["mutatingwebhookconfigurations"]), json!(["create"])),
        json!([{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]),
    ] {
        let role = cluster_role("bad", rules.clone());
        housekeeping
            .refused(ROLES, both([create(&path, role.clone()), apply(format!("{path}/bailiwick:role:bad"), role)]))
            .await;
        housekeeping.refused(ROLES, every_way(&changing, &current, &json!({"rules": rules}))).await;
    }

    // Forms that would widen it later, or take it out of the guards' sight.
    let with = |change: Value| {
        let mut role = cluster_role("bad", harmless.clone());
        merged(&mut role, &change);
        create(&path, role)
    };
    housekeeping
        .refused(
            ANY_GUARD,
            both([
                with(
                    json!({"rules": null, "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}}),
                ),
                with(json!({"metadata": {"labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}}})),
                with(json!({"metadata": {"labels": {MANAGED: null}}})),
                with(json!({"metadata": {"ownerReferences": owner()}})),
                with(json!({"metadata": {"name": "bailiwick:role:"}})),
                with(json!({"metadata": {"name": "bailiwick:roles"}})),
                with(json!({"metadata": {"name": "bailiwick:forward:mine"}})),
                with(json!({"metadata": {"name": "bailiwick:cluster:view"}})),
                with(json!({"metadata": {"name": "mine"}})),
                with(json!({"metadata": {"name": "bailiwick:legacy-impersonate2"}})),
            ]),
        )
        .await;
    let unlabel = json!({"metadata": {"labels": {MANAGED: null}}});
    housekeeping.refused(ANY_GUARD, every_way(&changing, &current, &unlabel)).await;

    // Roles that are not ours, its own among them.
    for name in ["cluster-admin", "view", "edit", HOUSEKEEPING_ROLE, FORWARD_ON, ON_CLUSTER, TENANT_READ] {
        let path = format!("{path}/{name}");
        let current = admin.must(get(&path)).await;
        let label = json!({"metadata": {"labels": {MANAGED: "true"}}});
        housekeeping.refused(ANY_GUARD, every_way(&path, &current, &label)).await;
        housekeeping.refused(ANY_GUARD, every_way(&path, &current, &json!({"rules": harmless}))).await;
        housekeeping.refused(ANY_GUARD, both([delete(&path)])).await;
    }
    housekeeping.refused("cannot deletecollection", [delete(&path)]).await;
}

async fn bindings(site: &Site) {
    let (admin, housekeeping) = (site.admin().await, site.housekeeping().await);
    housekeeping.must(create("/api/v1/namespaces", namespace_of("bank", "bank-rbac"))).await;
    let path = format!("{RBAC}/namespaces/bank-rbac/rolebindings");
    let group = |role: &str| group_subject(&project_group("bank", &uid_of("bank"), role));
    let of_cluster = |cluster: &str, role: &str| group_subject(&cluster_group(cluster, "9f8e7d6c-1", role));
    let account = |name: &str, namespace: &str| json!({"kind": "ServiceAccount", "name": name, "namespace": namespace});
    let user = |name: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name});

    housekeeping
        .allowed([
            create(&path, role_binding("owner", json!([group("owner")]))).dry(),
            create(&path, role_binding("owner", json!([group("owner"), of_cluster(CLUSTER, "owner")]))),
            apply(format!("{path}/bailiwick:role:member"), role_binding("member", json!([group("member")]))),
            create(&path, forward_binding()),
            create(&path, role_binding("custom", json!([]))),
            delete(format!("{path}/bailiwick:role:custom")),
        ])
        .await;
    let owners = format!("{path}/bailiwick:role:owner");
    let current = admin.must(get(&owners)).await;
    housekeeping.allowed(every_way(&owners, &current, &json!({"subjects": [group("owner")]}))).await;

    let uid = uid_of("bank");
    for subject in [
        user("bailiwick:user:eve"),
        user(HOUSEKEEPING_USER),
        account(HOUSEKEEPING, SYSTEM_NAMESPACE),
        account(FORWARDING, SYSTEM_NAMESPACE),
        account("default", "bank-rbac"),
        group("member"),
        group_subject(&project_group("shop", &uid_of("shop"), "owner")),
        group_subject(&project_group("bank", "deadbeef-0000", "owner")),
        group_subject(&format!("bailiwick:project:bank:{}x:owner", &uid[..8])),
        group_subject(&format!("bailiwick:project:bank:{}:owner:owner", &uid[..8])),
        group_subject("bailiwick:project:bank:owner"),
        of_cluster(CLUSTER, "member"),
        of_cluster("other", "owner"),
        group_subject("bailiwick:cluster:demo:owner"),
        group_subject("bailiwick:cluster:demo:9f8e7d6c:x:owner"),
        group_subject("bailiwick:tenant"),
        group_subject("system:authenticated"),
        group_subject("system:masters"),
        group_subject("system:serviceaccounts"),
    ] {
        housekeeping.refused_by_guard(BINDINGS, every_way(&owners, &current, &json!({"subjects": [subject]}))).await;
        let mixed = role_binding("viewer", json!([group("viewer"), subject]));
        housekeeping.refused_by_guard(BINDINGS, both([create(&path, mixed)])).await;
    }
    let forward = |subjects: Value| create(&path, binding(FORWARD_ON, subjects));
    let named = |name: &str, mut object: Value| {
        object["metadata"]["name"] = json!(name);
        create(&path, object)
    };
    let to = |kind: &str, role: &str| {
        let mut object = binding(role, json!([group("owner")]));
        object["roleRef"]["kind"] = json!(kind);
        create(&path, object)
    };
    let forwarding = json!([account(FORWARDING, SYSTEM_NAMESPACE)]);
    // A Role that looks like one of ours by its name.
    let lookalike = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "rules": [],
        "metadata": {"name": "bailiwick:role:owner", "namespace": "bank-rbac"}});
    admin.must(apply(path_of(&lookalike), lookalike)).await;
    housekeeping.allowed([delete(format!("{path}/{FORWARD_ON}"))]).await;
    housekeeping
        .refused_by_guard(
            BINDINGS,
            both([
                forward(json!([group("owner")])),
                forward(json!([account(HOUSEKEEPING, SYSTEM_NAMESPACE)])),
                forward(json!([account(FORWARDING, "bank-rbac")])),
                forward(json!([account(FORWARDING, SYSTEM_NAMESPACE), group("owner")])),
                create(&path, binding("bailiwick:forward:off", forwarding.clone())),
                to("ClusterRole", "cluster-admin"),
                to("ClusterRole", "edit"),
                to("ClusterRole", "view"),
                to("ClusterRole", HOUSEKEEPING_ROLE),
                to("ClusterRole", "bailiwick:roles"),
                to("Role", "bailiwick:role:owner"),
                named("another", role_binding("viewer", json!([group("viewer")]))),
                named("bailiwick:role:owner2", role_binding("viewer", json!([group("viewer")]))),
            ]),
        )
        .await;
    let with = |change: Value| {
        let mut object = role_binding("viewer", json!([group("viewer")]));
        merged(&mut object, &change);
        create(&path, object)
    };
    housekeeping
        .refused_by_guard(
            SCOPE,
            both([
                with(json!({"metadata": {"labels": {MANAGED: null}}})),
                with(json!({"metadata": {"ownerReferences": owner()}})),
            ]),
        )
        .await;
    let unlabel = json!({"metadata": {"labels": {MANAGED: null}}});
    housekeeping.refused_by_guard(SCOPE, every_way(&owners, &current, &unlabel)).await;
    let owned = json!({"metadata": {"ownerReferences": owner()}});
    housekeeping.refused_by_guard(SCOPE, every_way(&owners, &current, &owned)).await;

    for namespace in ELSEWHERE {
        let path = format!("{RBAC}/namespaces/{namespace}/rolebindings");
        housekeeping
            .refused_by_guard(
                BINDINGS,
                both([
                    create(&path, role_binding("owner", json!([]))),
                    create(&path, role_binding("owner", json!([group("owner")]))),
                    create(&path, forward_binding()),
                    apply(format!("{path}/{FORWARD_ON}"), forward_binding()),
                ]),
            )
            .await;
    }
    // Somebody else's binding, even one that looks like ours.
    let mut foreign = role_binding("viewer", json!([user("somebody")]));
    foreign["metadata"]["labels"] = json!({});
    foreign["metadata"]["name"] = json!("foreign");
    let foreign = admin.must(create(&path, foreign)).await;
    let at = format!("{path}/foreign");
    housekeeping.refused(ANY_GUARD, both([delete(&at)])).await;
    housekeeping
        .refused(ANY_GUARD, every_way(&at, &foreign, &json!({"metadata": {"labels": {MANAGED: "true"}}})))
        .await;
    housekeeping.refused("cannot deletecollection", [delete(&path)]).await;

    let everywhere = format!("{RBAC}/clusterrolebindings");
    let mut object = role_binding("owner", json!([group("owner")]));
    object["kind"] = json!("ClusterRoleBinding");
    housekeeping.refused("cannot create resource \"clusterrolebindings\"", both([create(&everywhere, object)])).await;
    for name in [HOUSEKEEPING_ROLE, ON_CLUSTER, TENANT_READ, "cluster-admin"] {
        let path = format!("{everywhere}/{name}");
        let current = admin.must(get(&path)).await;
        let subjects = json!({"subjects": [group("owner")]});
        housekeeping.refused("resource \"clusterrolebindings\"", every_way(&path, &current, &subjects)).await;
        housekeeping.refused("cannot delete resource \"clusterrolebindings\"", both([delete(&path)])).await;
    }
}

async fn objects_of_project_namespaces(site: &Site) {
    let (admin, housekeeping) = (site.admin().await, site.housekeeping().await);
    housekeeping.must(create("/api/v1/namespaces", namespace_of("bank", "bank-objects"))).await;
    let kinds = [
        ("v1", "ResourceQuota", json!({"hard": {"pods": "5"}}), json!({"spec": {"hard": {"pods": "6"}}})),
        (
            "v1",
            "LimitRange",
            json!({"limits": [{"type": "Container", "default": {"cpu": "1"}}]}),
            json!({"spec": {"limits": [{"type": "Container", "default": {"cpu": "2"}}]}}),
        ),
        (
            "networking.k8s.io/v1",
            "NetworkPolicy",
            json!({"podSelector": {}, "policyTypes": ["Ingress"]}),
            json!({"spec": {"policyTypes": ["Ingress", "Egress"]}}),
        ),
    ];
    for (version, kind, spec, change) in kinds {
        let object = |namespace: &str, name: &str| {
            json!({
                "apiVersion": version, "kind": kind, "spec": spec,
                "metadata": {"name": name, "namespace": namespace, "labels": {MANAGED: MANAGED_VALUE}},
            })
        };
        let collection = |object: &Value| path_of(object).rsplit_once('/').unwrap().0.to_owned();
        let ours = object("bank-objects", "bailiwick");
        let current = housekeeping.must(create(collection(&ours), ours.clone())).await;
        let path = path_of(&ours);
        housekeeping.allowed(every_way(&path, &current, &change)).await;
        let fresh = object("bank-objects", "fresh");
        housekeeping.allowed([create(collection(&fresh), fresh.clone()), delete(path_of(&fresh))]).await;

        for change in
            [json!({"metadata": {"labels": {MANAGED: null}}}), json!({"metadata": {"ownerReferences": owner()}})]
        {
            housekeeping.refused_by_guard(SCOPE, every_way(&path, &current, &change)).await;
            let mut bad = fresh.clone();
            merged(&mut bad, &change);
            housekeeping.refused_by_guard(SCOPE, both([create(collection(&fresh), bad)])).await;
        }
        // Written by somebody else in the same namespace.
        let mut foreign = object("bank-objects", "foreign");
        foreign["metadata"]["labels"] = json!({});
        let foreign = admin.must(create(collection(&foreign), foreign)).await;
        let at = format!("{}/foreign", collection(&fresh));
        housekeeping.refused_by_guard(SCOPE, both([delete(&at)])).await;
        let claim = json!({"metadata": {"labels": {MANAGED: "true"}}});
        housekeeping.refused_by_guard(SCOPE, every_way(&at, &foreign, &claim)).await;
        for namespace in ELSEWHERE {
            let object = object(namespace, "bailiwick");
            let asks = [create(collection(&object), object.clone()), apply(path_of(&object), object.clone())];
            housekeeping.refused_by_guard(SCOPE, both(asks)).await;
        }
        housekeeping.refused("cannot deletecollection", [delete(collection(&fresh))]).await;
    }
    let status = "/api/v1/namespaces/bank-objects/resourcequotas/bailiwick/status";
    let used = json!({"status": {"used": {"pods": "0"}}});
    housekeeping.refused("cannot patch resource \"resourcequotas/status\"", both([merge(status, used)])).await;
}

async fn kinds_that_are_not_housekeepings(site: &Site) {
    let (admin, housekeeping) = (site.admin().await, site.housekeeping().await);
    housekeeping.must(create("/api/v1/namespaces", namespace_of("bank", "bank-kinds"))).await;
    let ns = "/api/v1/namespaces/bank-kinds";
    let meta = json!({"name": "x"});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [{"name": "c", "image": "x"}]}});
    let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": meta});
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": meta, "rules": []});
    let token = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let policies = "/apis/admissionregistration.k8s.io/v1";
    let writes = |as_is: bool| {
        let mark = |mut object: Value| {
            if !as_is {
                object["metadata"]["labels"] = json!({MANAGED: "true"});
            }
            object
        };
        vec![
            create(format!("{ns}/pods"), mark(pod.clone())),
            create(format!("{ns}/configmaps"), mark(config.clone())),
            create(format!("{ns}/secrets"), mark(secret.clone())),
            create(format!("{RBAC}/namespaces/bank-kinds/roles"), mark(role.clone())),
        ]
    };
    housekeeping.refused("cannot", both(writes(true))).await;
    housekeeping
        .refused(
            "cannot",
            [
                get("/api/v1/secrets"),
                get(format!("{ns}/secrets")),
                get(format!("{ns}/pods")),
                get("/api/v1/namespaces/bailiwick-system/secrets/forwarding-token"),
                get("/api/v1/nodes"),
                get("/api/v1/namespaces/kube-system/configmaps"),
                create("/api/v1/namespaces/bailiwick-system/serviceaccounts/forwarding/token", token.clone()),
                create("/api/v1/namespaces/kube-system/serviceaccounts/default/token", token),
                merge(
                    format!("{policies}/validatingadmissionpolicies/{GROUPS_POLICY}"),
                    json!({"spec": {"variables": [{"name": GROUPS_VARIABLE, "expression": "['example.com', 'x.example.com']"}]}}),
                ),
                get("/api/v1/namespaces/bailiwick-system/configmaps"),
                delete(format!("{policies}/validatingadmissionpolicies/bailiwick-accounts-scope")),
                merge(
                    format!("{policies}/validatingadmissionpolicies/bailiwick-accounts-scope"),
                    json!({"spec": {"failurePolicy": "Ignore"}}),
                ),
                delete(format!("{policies}/validatingadmissionpolicybindings/bailiwick-accounts-scope")),
                merge(
                    format!("{policies}/validatingadmissionpolicybindings/bailiwick-accounts-scope"),
                    json!({"spec": {"validationActions": ["Audit"]}}),
                ),
                create(
                    format!("{policies}/mutatingwebhookconfigurations"),
                    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration", "metadata": meta}),
                ),
                get("/metrics"),
            ],
        )
        .await;
    for name in ["system:masters", "cluster-ops"] {
        let claiming = housekeeping.with("impersonate-user", "bailiwick:user:root").with("impersonate-group", name);
        claiming.refused("cannot impersonate", [get("/api/v1/namespaces")]).await;
    }
    housekeeping
        .allowed([
            get("/api/v1/namespaces"),
            get("/api/v1/resourcequotas"),
            get(format!("{RBAC}/rolebindings")),
            get(format!("{policies}/validatingadmissionpolicies")),
            get(format!("{policies}/validatingadmissionpolicybindings")),
        ])
        .await;

    // With the whole of RBAC in its hands, in one namespace, the guards alone hold both accounts.
    for (actor, name) in [(housekeeping, HOUSEKEEPING), (site.forwarding().await, FORWARDING)] {
        site.make_mighty("bank-kinds", json!({"kind": "ServiceAccount", "name": name, "namespace": SYSTEM_NAMESPACE}))
            .await;
        until("the right is in force", || async {
            (actor.send(&get(format!("{ns}/pods"))).await.status == 200).then_some(())
        })
        .await;
        actor.refused_by_guard(SCOPE, both(writes(true))).await;
        actor.refused(ANY_GUARD, both(writes(false))).await;
        let status = merge(format!("{ns}/status"), json!({"metadata": {"labels": {"tenant.bailiwick.dev/x": "1"}}}));
        let finalize = replace(format!("{ns}/finalize"), json!({"spec": {"finalizers": []}}));
        actor.refused(ANY_GUARD, both([status, finalize])).await;
        let binding = format!("{RBAC}/namespaces/bank-kinds/rolebindings/mighty-{name}");
        admin.must(delete(binding)).await;
    }
}
