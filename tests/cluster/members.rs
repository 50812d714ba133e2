//! What members, and everybody else, may do in project namespaces.

use bailiwick::clusters::names::*;
use serde_json::{Value, json};

use super::ask::*;
use super::harness::*;

in_both_forms!(
    roles_give_what_they_say,
    owners_are_held_by_the_guards,
    the_guards_alone_hold_everybody,
    administrators
);

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// A project namespace with a service account `app`, and the paths into it.
struct Place {
    core: String,
    rbac: String,
    networking: String,
}

impl Place {
    async fn new(site: &Site, project: &str, name: &str) -> Self {
        let namespace = site.project_namespace(project, &format!("{project}-{name}")).await;
        let place = Self {
            core: format!("/api/v1/namespaces/{namespace}"),
            rbac: format!("{RBAC}/namespaces/{namespace}"),
            networking: format!("/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies"),
        };
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "app"}});
        site.admin().await.must(create(place.at("serviceaccounts"), account)).await;
        place
    }

    fn at(&self, rest: &str) -> String {
        format!("{}/{rest}", self.core)
    }

    fn namespace(&self) -> &str {
        self.core.rsplit('/').next().unwrap()
    }

    fn token(&self, seconds: Option<u32>) -> Ask {
        let spec = seconds.map(|s| json!({"expirationSeconds": s})).unwrap_or_else(|| json!({}));
        let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
        create(self.at("serviceaccounts/app/token"), body)
    }

    fn bind(&self, name: &str, subjects: Value) -> Value {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "app"}, "subjects": subjects,
        })
    }

    /// Subjects that would let somebody in who is not of the namespace.
    fn strangers(&self) -> Vec<Value> {
        let named =
            |kind: &str, name: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name});
        let account =
            |name: &str, namespace: &str| json!({"kind": "ServiceAccount", "name": name, "namespace": namespace});
        vec![
            named("User", "bailiwick:user:eve"),
            named("User", &format!("system:serviceaccount:{}:app", self.namespace())),
            named("Group", "system:authenticated"),
            named("Group", &format!("system:serviceaccounts:{}", self.namespace())),
            named("Group", "bailiwick:project:shop:0a2b3c4d:owner"),
            account("default", STRANGERS),
            account(FORWARDING, SYSTEM_NAMESPACE),
            account(HOUSEKEEPING, SYSTEM_NAMESPACE),
        ]
    }
}

fn meta(kind: &str, name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}})
}

fn service(external: &[&str]) -> Value {
    let mut service = meta("Service", "web");
    service["spec"] = json!({"ports": [{"port": 80}], "externalIPs": external});
    service
}

fn network_policy(name: &str) -> Value {
    json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": name}, "spec": {"podSelector": {}}})
}

fn token_secret() -> Value {
    let mut secret = meta("Secret", "tok");
    secret["metadata"]["annotations"] = json!({"kubernetes.io/service-account.name": "app"});
    secret["type"] = json!("kubernetes.io/service-account-token");
    secret
}

fn role() -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "app"},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]})
}

async fn roles_give_what_they_say(site: &Site) {
    let place = Place::new(site, "maps", "roles").await;
    let other = site.project_namespace("news", "news-roles").await;
    let (owner, member, viewer) =
        (site.member("maps", "owner").await, site.member("maps", "member").await, site.member("maps", "viewer").await);
    let deployments = format!("/apis/apps/v1/namespaces/{}/deployments", place.namespace());
    for actor in [&owner, &member, &viewer] {
        actor
            .allowed([
                get(&place.core),
                get(place.at("pods")),
                get(place.at("services")),
                get(place.at("resourcequotas")),
                get(&deployments),
                get(format!("{}/roles", place.rbac)),
                get(&place.networking),
            ])
            .await;
        actor
            .refused(
                "cannot",
                [
                    delete(&place.core),
                    create(place.at("resourcequotas"), meta("ResourceQuota", "x")),
                    create(place.at("limitranges"), meta("LimitRange", "x")),
                    create(place.at("endpoints"), meta("Endpoints", "x")),
                    get(place.at("pods/x/proxy/")),
                    get(format!("/api/v1/namespaces/{other}")),
                    get(format!("/api/v1/namespaces/{other}/pods")),
                    get("/api/v1/namespaces/kube-system/pods"),
                    get("/api/v1/namespaces/default/configmaps"),
                ],
            )
            .await;
    }
    // Labels of the namespace are the owner's to set, within the list of the guards.
    let label = |key: &str| merge(&place.core, json!({"metadata": {"labels": {key: "privileged"}}}));
    for actor in [&member, &viewer] {
        actor.refused("cannot", both([label("tenant.bailiwick.dev/x")])).await;
    }
    owner.allowed([label("tenant.bailiwick.dev/x").dry(), label("tenant.bailiwick.dev/x")]).await;
    let others = ["example.com/x", "pod-security.kubernetes.io/enforce", "bailiwick.dev/project"];
    owner.refused_by_guard("bailiwick-namespace-metadata", both(others.map(label))).await;
    viewer
        .refused(
            "cannot",
            both([
                create(place.at("configmaps"), meta("ConfigMap", "x")),
                place.token(None),
                delete(place.at("pods/x")),
            ]),
        )
        .await;
    viewer.refused("cannot", [get(place.at("secrets")), get(place.at("pods/x/exec?command=id"))]).await;
    for actor in [&owner, &member] {
        actor.allowed([get(place.at("secrets"))]).await;
        actor
            .allowed([
                create(place.at("configmaps"), meta("ConfigMap", "x")).dry(),
                create(place.at("configmaps"), meta("ConfigMap", "x")),
                merge(place.at("configmaps/x"), json!({"data": {"a": "b"}})),
                delete(place.at("configmaps/x")),
            ])
            .await;
    }
    member.refused("cannot", both([create(format!("{}/roles", place.rbac), role())])).await;
    owner.allowed([create(format!("{}/roles", place.rbac), role())]).await;
    // More than one has cannot be handed on.
    let mut wide = role();
    wide["metadata"]["name"] = json!("wide");
    wide["rules"][0]["resources"] = json!(["resourcequotas"]);
    wide["rules"][0]["verbs"] = json!(["update"]);
    owner
        .refused(
            "attempting to grant RBAC permissions not currently held",
            both([create(format!("{}/roles", place.rbac), wide)]),
        )
        .await;
}

async fn owners_are_held_by_the_guards(site: &Site) {
    let place = Place::new(site, "maps", "guards").await;
    let (owner, housekeeping) = (site.member("maps", "owner").await, site.housekeeping().await);
    let rolebindings = format!("{}/rolebindings", place.rbac);
    let own = json!([{"kind": "ServiceAccount", "name": "app", "namespace": place.namespace()}]);
    let mut opaque = meta("Secret", "plain");
    opaque["stringData"] = json!({"a": "b"});
    owner
        .allowed([
            create(format!("{}/roles", place.rbac), role()),
            create(&rolebindings, place.bind("app", own)),
            create(place.at("services"), service(&[])),
            create(place.at("secrets"), opaque),
            create(&place.networking, network_policy("mine")),
            place.token(None),
            place.token(None).dry(),
            place.token(Some(600)),
            place.token(Some(3600)),
        ])
        .await;
    let bound = owner.must(get(format!("{rolebindings}/app"))).await;
    for subject in place.strangers() {
        let change = json!({"subjects": [subject]});
        let path = format!("{rolebindings}/app");
        owner.refused_by_guard("bailiwick-tenant-bindings", every_way(&path, &bound, &change)).await;
        let new = create(&rolebindings, place.bind("new", json!([subject])));
        owner.refused_by_guard("bailiwick-tenant-bindings", both([new])).await;
    }
    owner
        .refused_by_guard(
            "bailiwick-tenant-tokens",
            both([place.token(Some(3601)), place.token(Some(3607)), place.token(Some(31_536_000))]),
        )
        .await;
    owner.refused_by_guard("bailiwick-tenant-secrets", both([create(place.at("secrets"), token_secret())])).await;
    let current = owner.must(get(place.at("services/web"))).await;
    let external = json!({"spec": {"externalIPs": ["192.0.2.1"]}});
    owner
        .refused_by_guard("bailiwick-tenant-services", every_way(&place.at("services/web"), &current, &external))
        .await;

    // Isolation closes NetworkPolicies and opens them again. The API server reads the label from a cache: on a busy
    // machine the change is there some milliseconds later.
    let probe = create(&place.networking, network_policy("probe")).dry();
    let answers = |status: u16| {
        let (owner, probe) = (&owner, &probe);
        until("the change of isolation is seen", move || async move {
            (owner.send(probe).await.status == status).then_some(())
        })
    };
    let isolation = |value: &str| merge(&place.core, json!({"metadata": {"labels": {ISOLATION: value}}}));
    housekeeping.allowed([isolation("project")]).await;
    answers(403).await;
    let mine = format!("{}/mine", place.networking);
    let policy = owner.must(get(&mine)).await;
    let guard = "bailiwick-tenant-networkpolicies";
    let change = json!({"spec": {"policyTypes": ["Ingress", "Egress"]}});
    owner.refused_by_guard(guard, every_way(&mine, &policy, &change)).await;
    owner
        .refused_by_guard(
            guard,
            both([create(&place.networking, network_policy("new")), delete(&mine), delete(&place.networking)]),
        )
        .await;
    housekeeping.allowed([isolation("none")]).await;
    answers(201).await;
    owner.allowed([delete(&mine)]).await;

    // What is managed is not theirs, nor can they pretend to it.
    let guard = "bailiwick-managed-objects";
    let members = format!("{rolebindings}/bailiwick:role:member");
    let current = owner.must(get(&members)).await;
    for change in [
        json!({"metadata": {"labels": {MANAGED: null}}}),
        json!({"metadata": {"annotations": {"a": "b"}}}),
        json!({"subjects": []}),
    ] {
        owner.refused("ValidatingAdmissionPolicy 'bailiwick-", every_way(&members, &current, &change)).await;
    }
    owner.refused_by_guard(guard, both([delete(&members), delete(&rolebindings)])).await;
    let mut forged = meta("ConfigMap", "forged");
    forged["metadata"]["labels"] = json!({MANAGED: "true"});
    owner.refused_by_guard(guard, both([create(place.at("configmaps"), forged)])).await;
    let secret = owner.must(get(place.at("secrets/plain"))).await;
    let mark = json!({"metadata": {"labels": {MANAGED: "true"}}});
    owner.refused_by_guard(guard, every_way(&place.at("secrets/plain"), &secret, &mark)).await;
}

/// With cluster-admin in the namespace, by a credential of its own.
async fn the_guards_alone_hold_everybody(site: &Site) {
    let place = Place::new(site, "music", "mighty").await;
    let housekeeping = site.housekeeping().await;
    let mighty = site.service_account(STRANGERS, "mighty", None).await;
    site.make_mighty(place.namespace(), json!({"kind": "ServiceAccount", "name": "mighty", "namespace": STRANGERS}))
        .await;
    let quota = |name: &str| {
        let mut quota = meta("ResourceQuota", name);
        quota["spec"] = json!({"hard": {"pods": "5"}});
        quota
    };
    let mut ours = quota("bailiwick");
    ours["metadata"]["labels"] = json!({MANAGED: "true"});
    housekeeping.must(create(place.at("resourcequotas"), ours)).await;

    mighty
        .allowed([
            create(place.at("resourcequotas"), quota("own")),
            create(place.at("services"), service(&[])),
            create(&place.networking, network_policy("own")),
            merge(
                &place.core,
                json!({"metadata": {"labels": {"tenant.bailiwick.dev/x": "1", "app.kubernetes.io/name": "x"}}}),
            ),
            merge(&place.core, json!({"metadata": {"annotations": {"argocd.argoproj.io/x": "1"}}})),
            // Overwritten by the server: answered well, nothing changes.
            merge(&place.core, json!({"metadata": {"labels": {"kubernetes.io/metadata.name": "kube-system"}}})),
        ])
        .await;
    let managed = place.at("resourcequotas/bailiwick");
    let current = mighty.must(get(&managed)).await;
    let guard = "bailiwick-managed-objects";
    for change in [
        json!({"spec": {"hard": {"pods": "500"}}}),
        json!({"metadata": {"labels": {MANAGED: null}}}),
        json!({"metadata": {"finalizers": ["example.com/stay"]}}),
        json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Service", "name": "web", "uid": "00000000-0000-4000-8000-000000000000"}]}}),
    ] {
        mighty.refused_by_guard(guard, every_way(&managed, &current, &change)).await;
    }
    mighty
        .refused_by_guard(
            guard,
            both([
                delete(&managed),
                delete(place.at("resourcequotas")),
                merge(place.at("resourcequotas/bailiwick/status"), json!({"status": {"used": {"pods": "0"}}})),
                merge(place.at("resourcequotas/own"), json!({"metadata": {"labels": {MANAGED: "true"}}})),
            ]),
        )
        .await;
    let mut lb = service(&[]);
    lb["metadata"]["name"] = json!("lb");
    lb["spec"]["type"] = json!("LoadBalancer");
    mighty.allowed([create(place.at("services"), lb)]).await;
    let balancer = json!({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}});
    mighty
        .refused_by_guard(
            "bailiwick-tenant-services",
            both([
                merge(place.at("services/lb/status"), balancer.clone()),
                strategic(place.at("services/lb/status"), balancer),
                merge(place.at("services/web"), json!({"spec": {"externalIPs": ["192.0.2.1"]}})),
            ]),
        )
        .await;
    mighty.refused_by_guard("bailiwick-tenant-tokens", both([place.token(Some(3601))])).await;
    mighty.refused_by_guard("bailiwick-tenant-secrets", both([create(place.at("secrets"), token_secret())])).await;
    for subject in place.strangers() {
        let new = create(format!("{}/rolebindings", place.rbac), place.bind("new", json!([subject])));
        mighty.refused_by_guard("bailiwick-tenant-bindings", both([new])).await;
    }

    let current = mighty.must(get(&place.core)).await;
    let guard = "bailiwick-namespace-metadata";
    let labels = |labels: Value| json!({"metadata": {"labels": labels}});
    let annotations = |annotations: Value| json!({"metadata": {"annotations": annotations}});
    for change in [
        labels(json!({PROJECT: "shop"})),
        labels(json!({PROJECT: null})),
        labels(json!({PROJECT_UID: null})),
        labels(json!({ISOLATION: "none"})),
        labels(json!({MANAGED: "true"})),
        labels(json!({"pod-security.kubernetes.io/enforce": "privileged"})),
        labels(json!({"pod-security.kubernetes.io/enforce": null})),
        labels(json!({"istio-injection": "enabled"})),
        annotations(json!({ADOPT: uid_of("music")})),
        annotations(json!({ALLOW_PRIVILEGED: "true"})),
        annotations(json!({"scheduler.alpha.kubernetes.io/node-selector": "role=db"})),
        json!({"metadata": {"finalizers": ["example.com/stay"]}}),
        json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Namespace", "name": "x", "uid": "00000000-0000-4000-8000-000000000000"}]}}),
    ] {
        if change["metadata"]["labels"].get(MANAGED).is_some() {
            mighty.refused("ValidatingAdmissionPolicy 'bailiwick-", every_way(&place.core, &current, &change)).await;
        } else {
            mighty.refused_by_guard(guard, every_way(&place.core, &current, &change)).await;
        }
        let status = merge(place.at("status"), change.clone());
        if change["metadata"].get("labels").is_some() {
            mighty.refused("ValidatingAdmissionPolicy 'bailiwick-", both([status])).await;
        }
    }
    mighty
        .refused_by_guard(
            guard,
            both([
                replace(place.at("finalize"), json!({"spec": {"finalizers": []}})),
                merge(place.at("status"), json!({"status": {"conditions": [{"type": "X", "status": "True"}]}})),
            ]),
        )
        .await;
}

async fn administrators(site: &Site) {
    let place = Place::new(site, "music", "admins").await;
    let masters = site.admin().await;
    let operator = site.service_account(OPERATORS, "operator", Some("cluster-admin")).await;
    let meddler = site.service_account(STRANGERS, "meddler", Some("cluster-admin")).await;
    let mut quota = meta("ResourceQuota", "bailiwick");
    quota["metadata"]["labels"] = json!({MANAGED: "true"});
    site.housekeeping().await.must(create(place.at("resourcequotas"), quota)).await;
    let plain = format!("plain-{}", site.form.as_str());
    masters.must(create("/api/v1/namespaces", plain_namespace(&plain))).await;
    let plain = format!("/api/v1/namespaces/{plain}");
    let adopt = json!({"metadata": {"annotations": {ADOPT: uid_of("music")}}});
    let note = json!({"metadata": {"annotations": {"a": "b"}}});
    for actor in [&masters, &operator] {
        actor
            .allowed([
                merge(&plain, adopt.clone()),
                merge(&plain, json!({"metadata": {"annotations": {ADOPT: null}}})),
                merge(&place.core, json!({"metadata": {"annotations": {ALLOW_PRIVILEGED: "true"}}})),
                merge(place.at("resourcequotas/bailiwick"), note.clone()),
                merge(&plain, json!({"metadata": {"labels": project_labels("music")}})).dry(),
            ])
            .await;
    }
    // Every right in RBAC, and no administrator by the manifest.
    let current = masters.must(get(&plain)).await;
    meddler.refused_by_guard("bailiwick-namespace-metadata", every_way(&plain, &current, &adopt)).await;
    let label = json!({"metadata": {"labels": project_labels("music")}});
    meddler.refused_by_guard("bailiwick-namespace-metadata", every_way(&plain, &current, &label)).await;
    meddler
        .refused_by_guard(
            "bailiwick-namespace-metadata",
            both([create("/api/v1/namespaces", namespace_of("music", "music-forged"))]),
        )
        .await;
    meddler
        .refused_by_guard(
            "bailiwick-managed-objects",
            both([merge(place.at("resourcequotas/bailiwick"), note.clone())]),
        )
        .await;
    let role = format!("{RBAC}/clusterroles/bailiwick:role:owner");
    meddler.refused_by_guard("bailiwick-managed-objects", both([merge(&role, note), delete(&role)])).await;
    meddler.allowed([merge(&plain, json!({"metadata": {"labels": {"istio-injection": "enabled"}}}))]).await;
}
