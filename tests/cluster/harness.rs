//! Real clusters with the import manifest applied, and actors that ask them.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bailiwick::clusters::manifest::{Impersonation, Manifest, ManifestOptions};
use bailiwick::clusters::names::*;
use bailiwick::clusters::probe::Accounts;
use bailiwick::clusters::version::Version;
use bailiwick::domain::names::{TENANT_GROUP, kubernetes_user, project_group};
use bailiwick::domain::roles::{BUILT_IN, base_rules, built_in};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use super::ask::*;
use super::kubernetes::{Kubernetes, kubectl, own_folder};

/// The same test on both clusters.
macro_rules! in_both_forms {
    ($($test:ident),* $(,)?) => {
        mod constrained {
            $(#[tokio::test]
            async fn $test() {
                super::$test(super::Site::constrained().await).await;
            })*
        }
        mod limited {
            $(#[tokio::test]
            async fn $test() {
                super::$test(super::Site::limited().await).await;
            })*
        }
    };
}

/// Name of the clusters in the service.
pub const CLUSTER: &str = "demo";
/// Namespace whose service accounts count as administrators of the cluster.
pub const OPERATORS: &str = "ops";
/// Namespace of service accounts that are nobody's members.
pub const STRANGERS: &str = "strangers";
/// API group within tenant reach beside the built-in ones.
pub const TENANT_API_GROUP: &str = "example.com";

/// A cluster that was imported.
pub struct Site {
    /// Its name in the service.
    name: &'static str,
    pub form: Impersonation,
    pub folder: PathBuf,
    pub server: String,
    pub ca: String,
    forwarding: String,
    housekeeping: String,
    kubernetes: Mutex<Kubernetes>,
}

static CONSTRAINED: OnceCell<Site> = OnceCell::const_new();
static LIMITED: OnceCell<Site> = OnceCell::const_new();
static STARTED: AtomicUsize = AtomicUsize::new(0);

/// The projects of the tests; known beforehand, because the limited form lists them by name.
pub const PROJECTS: [&str; 8] = ["shop", "bank", "games", "maps", "mail", "news", "music", "gone"];

/// UID of a test's project, and its first eight characters.
pub fn uid_of(project: &str) -> String {
    let at = PROJECTS.iter().position(|p| *p == project).unwrap();
    format!("{at}a2b3c4d-0000-4000-8000-000000000000")
}

impl Site {
    /// Constrained impersonation, as Kubernetes 1.36 has it by default.
    pub async fn constrained() -> &'static Self {
        CONSTRAINED.get_or_init(|| Self::start(Impersonation::Constrained)).await
    }

    /// The gate off: the limited legacy form.
    pub async fn limited() -> &'static Self {
        LIMITED.get_or_init(|| Self::start(Impersonation::Limited)).await
    }

    /// A cluster of a test's own, for what would disturb others.
    pub async fn alone(form: Impersonation) -> Self {
        Self::start(form).await
    }

    /// As [`Site::alone`], with a node that runs Pods.
    pub async fn with_node(form: Impersonation) -> Self {
        Self::launch(CLUSTER, form, true).await
    }

    async fn start(form: Impersonation) -> Self {
        Self::launch(CLUSTER, form, false).await
    }

    /// A cluster of a test's own with another name in the service, to stand beside one of [`CLUSTER`].
    pub async fn beside(name: &'static str) -> Self {
        Self::launch(name, Impersonation::Constrained, false).await
    }

    async fn launch(name: &'static str, form: Impersonation, node: bool) -> Self {
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let start = move || {
            let folder = own_folder("clusters", &format!("{}-{number}", form.as_str()));
            let mut more = vec![];
            if !node {
                more.push("--control-plane-only");
            }
            if form == Impersonation::Limited {
                more.extend(["--feature-gates", "ConstrainedImpersonation=false"]);
            }
            Kubernetes::start(form.as_str(), &folder, &more)
        };
        let kubernetes = tokio::task::spawn_blocking(start).await.unwrap();
        let folder = kubernetes.folder.clone();
        let ready: Value = serde_json::from_slice(&std::fs::read(folder.join("ready.json")).unwrap()).unwrap();
        let mut site = Self {
            name,
            form,
            server: ready["server"].as_str().unwrap().to_owned(),
            ca: std::fs::read_to_string(ready["ca_file"].as_str().unwrap()).unwrap(),
            folder,
            forwarding: String::new(),
            housekeeping: String::new(),
            kubernetes: Mutex::new(kubernetes),
        };
        site.import().await;
        site
    }

    /// What the manifest of this cluster is rendered for.
    pub fn options(&self) -> ManifestOptions {
        ManifestOptions {
            cluster: self.name.into(),
            version: Version { major: 1, minor: 36 },
            impersonation: self.form,
            tenant_api_groups: vec![TENANT_API_GROUP.into()],
            administrators: vec!["cluster-ops".into(), format!("system:serviceaccounts:{OPERATORS}")],
        }
    }

    async fn import(&mut self) {
        let admin = self.admin().await;
        for object in Manifest::render(&self.options()).unwrap().objects() {
            admin.must(apply(path_of(object), object.clone())).await;
        }
        for (account, secret) in [(FORWARDING, FORWARDING_SECRET), (HOUSEKEEPING, HOUSEKEEPING_SECRET)] {
            let path = format!("/api/v1/namespaces/{SYSTEM_NAMESPACE}/secrets/{secret}");
            let read = until("the token is there", || async {
                admin.must(get(&path)).await["data"]["token"].as_str().map(str::to_owned)
            });
            use base64::Engine as _;
            let token = base64::engine::general_purpose::STANDARD.decode(read.await).unwrap();
            let token = String::from_utf8(token).unwrap();
            if account == FORWARDING { self.forwarding = token } else { self.housekeeping = token }
        }
        for namespace in [OPERATORS, STRANGERS] {
            admin.must(apply(format!("/api/v1/namespaces/{namespace}"), plain_namespace(namespace))).await;
        }
        // A system namespace that somebody labelled as a project's.
        let labels = json!({"metadata": {"labels": project_labels("shop")}});
        admin.must(merge("/api/v1/namespaces/kube-node-lease", labels)).await;
        self.wait_for_guards().await;
        let housekeeping = self.housekeeping().await;
        for role in BUILT_IN {
            let rules = base_rules(built_in(role).unwrap().base.unwrap());
            housekeeping.must(apply(path_of(&cluster_role(role, json!([]))), cluster_role(role, json!(rules)))).await;
        }
        if self.form == Impersonation::Limited {
            let groups = PROJECTS.iter().flat_map(|p| BUILT_IN.map(|role| project_group(p, &uid_of(p), role)));
            let rules = json!([
                {"apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"],
                 "resourceNames": PROJECTS.map(|p| legacy_user(p, &uid_of(p)))},
                {"apiGroups": [""], "resources": ["groups"], "verbs": ["impersonate"],
                 "resourceNames": groups.collect::<Vec<_>>()},
            ]);
            let path = format!("/apis/rbac.authorization.k8s.io/v1/clusterroles/{LEGACY_IMPERSONATE}");
            housekeeping.must(merge(path, json!({"rules": rules}))).await;
        }
    }

    /// Policies are in force about a second after they were created.
    async fn wait_for_guards(&self) {
        let housekeeping = self.housekeeping().await;
        let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "x"}, "spec": {}});
        let label = json!({"metadata": {"labels": project_labels("shop")}});
        let binding = role_binding("owner", json!([]));
        // Each breaks one rule only: of several policies that refuse, the server names any one.
        let probes = [
            ("bailiwick-housekeeping-namespaces", merge("/api/v1/namespaces/kube-public", label).dry()),
            (
                "bailiwick-housekeeping-bindings",
                create("/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/rolebindings", binding).dry(),
            ),
            ("bailiwick-accounts-scope", create("/api/v1/namespaces/kube-system/resourcequotas", quota).dry()),
            (
                "bailiwick-housekeeping-roles",
                create(
                    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
                    cluster_role("x", json!([{"apiGroups": ["apps"], "resources": ["*"], "verbs": ["*"]}])),
                )
                .dry(),
            ),
            (
                "bailiwick-housekeeping-groups",
                create(
                    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
                    cluster_role("x", json!([{"apiGroups": ["no"], "resources": ["x"], "verbs": ["get"]}])),
                )
                .dry(),
            ),
        ];
        for (policy, probe) in probes {
            until(&format!("{policy} is in force"), || async {
                housekeeping.send(&probe).await.text.contains(policy).then_some(())
            })
            .await;
        }
        // The members' policies came later in the same manifest: wait for the last of them.
        let stranger = self.service_account(STRANGERS, "early", Some("cluster-admin")).await;
        let label = json!({"metadata": {"labels": {"bailiwick.dev/project": "x"}}});
        let probe = merge(format!("/api/v1/namespaces/{STRANGERS}"), label).dry();
        until("the guards are in force", || async {
            stranger.send(&probe).await.text.contains("bailiwick-namespace-metadata").then_some(())
        })
        .await;
        let admin = self.admin().await;
        admin.must(delete("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/strangers-early")).await;
    }

    /// Stops the API server; etcd keeps everything.
    pub fn stop_api_server(&self) {
        tokio::task::block_in_place(|| self.kubernetes.lock().stop_api_server());
    }

    /// Starts it again; returns once it is ready.
    pub fn start_api_server(&self) {
        tokio::task::block_in_place(|| self.kubernetes.lock().start_api_server());
    }

    /// kubectl of the cluster's administrator.
    pub fn kubectl(&self) -> Command {
        kubectl(&self.folder, &self.folder.join("admin.kubeconfig"))
    }

    /// The cluster's administrator, by certificate, in `system:masters`.
    pub async fn admin(&self) -> Actor {
        let file = kube::config::Kubeconfig::read_from(self.folder.join("admin.kubeconfig")).unwrap();
        let config = kube::Config::from_custom_kubeconfig(file, &Default::default()).await.unwrap();
        let client = kube::Client::try_from(config).unwrap();
        Actor { name: "administrator".into(), admin: client.clone(), client, headers: vec![] }
    }

    async fn by_token(&self, name: &str, token: &str) -> Actor {
        Actor { name: name.to_owned(), client: self.client(token), admin: self.admin().await.client, headers: vec![] }
    }

    /// A client with a bearer token.
    pub fn client(&self, token: &str) -> kube::Client {
        let mut config = self.config();
        config.auth_info.token = Some(token.to_owned().into());
        kube::Client::try_from(config).unwrap()
    }

    /// A client that adds no credential.
    pub fn anonymous(&self) -> kube::Client {
        kube::Client::try_from(self.config()).unwrap()
    }

    fn config(&self) -> kube::Config {
        let mut config = kube::Config::new(self.server.parse().unwrap());
        use rustls::pki_types::pem::PemObject as _;
        let ca = rustls::pki_types::CertificateDer::from_pem_slice(self.ca.as_bytes()).unwrap();
        config.root_cert = Some(vec![ca.to_vec()]);
        config
    }

    /// The housekeeping account.
    pub async fn housekeeping(&self) -> Actor {
        self.by_token("housekeeping", &self.housekeeping).await
    }

    /// Both accounts, as the service has them.
    pub fn accounts(&self) -> Accounts {
        Accounts { housekeeping: self.client(&self.housekeeping), forwarding: self.client(&self.forwarding) }
    }

    /// The tokens of forwarding and housekeeping.
    pub fn tokens(&self) -> (&str, &str) {
        (&self.forwarding, &self.housekeeping)
    }

    /// The forwarding account as itself.
    pub async fn forwarding(&self) -> Actor {
        self.by_token("forwarding", &self.forwarding).await
    }

    /// The forwarding account, speaking for somebody.
    pub async fn impersonating(&self, user: &str, groups: &[&str]) -> Actor {
        let mut actor = self.forwarding().await;
        actor.name = format!("forwarding as {user:?} {groups:?}");
        actor.headers.push(("impersonate-user".into(), user.into()));
        actor.headers.extend(groups.iter().map(|g| ("impersonate-group".into(), g.to_string())));
        actor
    }

    /// A person with a role in a project, as the service forwards.
    pub async fn member(&self, project: &str, role: &str) -> Actor {
        let group = project_group(project, &uid_of(project), role);
        self.person(&legacy_user(project, &uid_of(project)), &group).await
    }

    /// A person on a request that names no namespace.
    pub async fn tenant(&self) -> Actor {
        self.person(TENANT_GROUP, TENANT_GROUP).await
    }

    async fn person(&self, legacy: &str, group: &str) -> Actor {
        match self.form {
            Impersonation::Constrained => {
                let actor = self.impersonating(&kubernetes_user("jane"), &[group]).await;
                actor.with("impersonate-uid", "7d2c").with("impersonate-extra-bailiwick.dev%2Ftoken", "tok-1")
            }
            Impersonation::Limited => {
                let actor = self.impersonating(legacy, &[group]).await;
                actor.with("impersonate-extra-bailiwick.dev%2Fuser", "jane")
            }
        }
    }

    /// A service account with its own token; bound to a ClusterRole everywhere where one is given.
    pub async fn service_account(&self, namespace: &str, name: &str, role: Option<&str>) -> Actor {
        let admin = self.admin().await;
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}");
        let object = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}});
        admin.must(apply(&path, object)).await;
        if let Some(role) = role {
            let name = format!("{namespace}-{name}");
            let object = json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
                "subjects": [{"kind": "ServiceAccount", "name": path.rsplit('/').next().unwrap(), "namespace": namespace}],
            });
            admin.must(apply(path_of(&object), object)).await;
        }
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
        let token = admin.must(create(format!("{path}/token"), request)).await;
        let token = token["status"]["token"].as_str().unwrap();
        self.by_token(&format!("service account {namespace}/{name}"), token).await
    }

    /// A namespace of a project as the controllers make it: labelled, with its roles and forwarding bound.
    pub async fn project_namespace(&self, project: &str, namespace: &str) -> String {
        let housekeeping = self.housekeeping().await;
        housekeeping.must(create("/api/v1/namespaces", namespace_of(project, namespace))).await;
        let path = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings");
        for role in BUILT_IN {
            let subjects = json!([group_subject(&project_group(project, &uid_of(project), role))]);
            housekeeping.must(create(&path, role_binding(role, subjects))).await;
        }
        housekeeping.must(create(&path, forward_binding())).await;
        namespace.to_owned()
    }

    /// Binds somebody's service account to cluster-admin in one namespace, so that only the guards are left.
    pub async fn make_mighty(&self, namespace: &str, subject: Value) {
        let object = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": format!("mighty-{}", subject["name"].as_str().unwrap()), "namespace": namespace},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [subject],
        });
        self.admin().await.must(apply(path_of(&object), object)).await;
    }
}

/// Asks until there is an answer; fails after half a minute.
pub async fn until<T, F: Future<Output = Option<T>>>(what: &str, ask: impl FnMut() -> F) -> T {
    until_within(Duration::from_secs(30), what, ask).await
}

/// As [`until`], with another limit.
pub async fn until_within<T, F: Future<Output = Option<T>>>(
    limit: Duration,
    what: &str,
    mut ask: impl FnMut() -> F,
) -> T {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(found) = ask().await {
            return found;
        }
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// URL path of an object.
pub fn path_of(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let version = text(&object["apiVersion"]);
    let root = if version.contains('/') { format!("/apis/{version}") } else { format!("/api/{version}") };
    let kind = text(&object["kind"]).to_lowercase();
    let plural = match kind.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None => format!("{kind}s"),
    };
    let name = text(&object["metadata"]["name"]);
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("{root}/namespaces/{namespace}/{plural}/{name}"),
        None => format!("{root}/{plural}/{name}"),
    }
}

pub fn plain_namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

/// Labels of a project's namespace.
pub fn project_labels(project: &str) -> Value {
    json!({PROJECT: project, PROJECT_UID: uid_of(project), POD_SECURITY[0]: "baseline"})
}

pub fn namespace_of(project: &str, name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": project_labels(project)}})
}

pub fn cluster_role(role: &str, rules: Value) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": role_name(role), "labels": {MANAGED: MANAGED_VALUE}},
        "rules": rules,
    })
}

pub fn role_binding(role: &str, subjects: Value) -> Value {
    binding(&role_name(role), subjects)
}

pub fn forward_binding() -> Value {
    binding(FORWARD_ON, json!([{"kind": "ServiceAccount", "name": FORWARDING, "namespace": SYSTEM_NAMESPACE}]))
}

/// A RoleBinding of ours, named like its role.
pub fn binding(role: &str, subjects: Value) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": role, "labels": {MANAGED: MANAGED_VALUE}},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": subjects,
    })
}

pub fn group_subject(group: &str) -> Value {
    json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group})
}
