//! Every route of the service in every form of its URL, and every protocol: what must fail must fail on all of them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bailiwick::access::Access;
use bailiwick::api::{self, ApiParts, ApiState, ClusterActs, ClusterCheck, PublicEndpoint};
use bailiwick::controllers::{ActError, NamespaceActs, NamespaceState};
use bailiwick::identity::accounts::{AccountPolicy, Accounts};
use bailiwick::identity::last_used::LastUsed;
use bailiwick::listener::{self, Doors, Limits};
use bailiwick::metrics::Metrics;
use bailiwick::records::TokenScopes;
use bailiwick::resources::project::{AdoptionReport, LevelReport, PodSecurityLevel};
use bailiwick::resources::token::Audience;
use bailiwick::serve::operations::{self, Operations};
use bailiwick::tenancy::Tenancy;
use jiff::Timestamp;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::harness::{Pki, World};
use super::wire::{Client, End, PROTOCOLS, Part, Protocol, Raw, Reply};

const BASE: &str = "/apis/bailiwick.dev/v1alpha1";

/// The platform of [`World`] with everything that the service listens with.
pub struct Site {
    pub world: World,
    /// Proxy and API.
    pub address: SocketAddr,
    pub pki: Pki,
    /// Metrics and health, in plain HTTP.
    pub pages: SocketAddr,
    /// jane's, for the API.
    pub api_token: String,
    shutdown: CancellationToken,
}

impl Drop for Site {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

/// There is nobody who could do anything in a cluster here.
struct Nobody;

const NOT_HERE: &str = "nothing is done here";

#[async_trait::async_trait]
impl ClusterActs for Nobody {
    async fn check(&self, _: &str) -> Vec<ClusterCheck> {
        vec![]
    }
}

type Acted<T> = Result<T, ActError>;

#[async_trait::async_trait]
impl NamespaceActs for Nobody {
    async fn create(&self, _: &str, _: &str, _: &str, _: &str, _: Timestamp) -> Acted<NamespaceState> {
        Err(ActError::NotYet(NOT_HERE.into()))
    }

    async fn relocate(&self, _: &str, _: &str, _: &str, _: &str, _: &str, _: Timestamp) -> Acted<NamespaceState> {
        Err(ActError::NotYet(NOT_HERE.into()))
    }

    async fn delete(&self, _: &str, _: &str, _: &str, _: &str) -> Acted<()> {
        Err(ActError::NotYet(NOT_HERE.into()))
    }

    async fn adoption(&self, _: &str, _: &str, _: &str) -> Acted<AdoptionReport> {
        Err(ActError::NotYet(NOT_HERE.into()))
    }

    async fn adopt(&self, _: &str, _: &str, _: &str, _: &str, _: Timestamp) -> Acted<AdoptionReport> {
        Err(ActError::NotYet(NOT_HERE.into()))
    }

    async fn try_level(&self, _: &str, _: PodSecurityLevel) -> Acted<Vec<LevelReport>> {
        Err(ActError::NotYet(NOT_HERE.into()))
    }

    async fn give_back(&self, _: &str, _: &str, _: &str, _: &str) -> Acted<()> {
        Err(ActError::NotYet(NOT_HERE.into()))
    }
}

impl Site {
    pub async fn start() -> Self {
        Self::around(World::start().await, Limits::default()).await
    }

    pub async fn around(world: World, limits: Limits) -> Self {
        let shutdown = CancellationToken::new();
        let pages_limits = Limits { connections: 12, per_address: 9, ..limits };
        let (store, index) = (world.store.clone(), world.index.clone());
        let api = ApiState::new(ApiParts {
            store: store.clone(),
            sealer: world.sealer.clone(),
            index: index.clone(),
            accounts: Accounts::new(store.clone(), world.sealer.clone(), index.clone(), AccountPolicy::default()),
            last_used: Arc::new(LastUsed::new(store.clone(), index.clone())),
            access: tokio::task::spawn_blocking(Access::shared).await.unwrap().unwrap(),
            tenancy: Arc::new(Tenancy::new(store, index.clone())),
            namespaces: Arc::new(Nobody),
            clusters: Arc::new(Nobody),
            audit: world.audit.clone(),
            public: PublicEndpoint { url: "https://bailiwick.example.com".into(), certificate_authority: None },
            shutdown: shutdown.child_token(),
        });
        let metrics = Arc::new(Metrics::new());
        let doors = Arc::new(Doors {
            proxy: world.proxy.clone(),
            api: api::router(api.unwrap()),
            trusted_proxies: vec![],
            metrics: metrics.clone(),
        });
        let pki = Pki::new();
        let mut tls = pki.server();
        tls.alpn_protocols = PROTOCOLS.iter().map(|protocol| protocol.alpn().to_vec()).collect();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let grace = Duration::from_secs(1);
        tokio::spawn(listener::serve_within(listener, Arc::new(tls), doors, shutdown.clone(), grace, limits));

        let shown = Operations { metrics, index, proxy: world.proxy.clone(), draining: AtomicBool::new(false) };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let pages = listener.local_addr().unwrap();
        let served =
            listener::serve_pages(listener, operations::router(Arc::new(shown)), shutdown.clone(), pages_limits);
        tokio::spawn(served);
        let forever = "2100-01-01T00:00:00Z";
        let api_token = world.issue_for("jane", TokenScopes::default(), Audience::Api, forever).await;
        Self { world, address, pki, pages, api_token, shutdown }
    }

    /// jane's token for what is behind a route.
    pub fn token(&self, door: Door) -> &str {
        if door == Door::Cluster { &self.world.token } else { &self.api_token }
    }

    /// Connections of one protocol, each used for as long as it lasts.
    pub fn asker(&self, protocol: Protocol) -> Asker<'_> {
        Asker { site: self, protocol, client: None }
    }
}

/// Asks over one connection while it lasts, and then over another.
pub struct Asker<'a> {
    pub site: &'a Site,
    pub protocol: Protocol,
    client: Option<Client>,
}

impl Asker<'_> {
    /// The answer; of one that goes on for long the head.
    pub async fn ask(&mut self, raw: &Raw) -> Reply {
        let long = ["watch=1", "follow=true"].iter().any(|word| raw.target.contains(word));
        // A connection that was kept may have been closed meanwhile, so that it is tried once more on a new one.
        for kept in [true, false] {
            let mut client = match self.client.take() {
                Some(client) if kept => client,
                _ => Client::dial(self.site.address, &self.site.pki, self.protocol).await,
            };
            client.send(raw).await;
            let mut reply = Reply { code: 0, fields: vec![], body: String::new(), end: End::Whole };
            loop {
                match client.next().await {
                    Part::Head(code, fields) => (reply.code, reply.fields) = (code, fields),
                    Part::Data(data) => reply.body += &String::from_utf8_lossy(&data),
                    Part::End(end) => {
                        reply.end = end;
                        break;
                    }
                }
                if reply.code == 101 || (long && reply.code == 200) {
                    return reply;
                }
            }
            let lasts = reply.end == End::Whole && reply.all("connection") != ["close"];
            if lasts {
                self.client = Some(client);
            }
            if reply.code != 0 || !kept {
                return reply;
            }
        }
        unreachable!("the second answer is returned, whatever it is")
    }
}

/// What is behind a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Door {
    /// A cluster: an answer needs a token of audience `kube`.
    Cluster,
    /// Our own API, with a token of audience `api`.
    Api,
    /// Our own API, without a credential.
    Public,
}

/// A route with a request for it that is as good as any.
#[derive(Debug, Clone)]
pub struct Route {
    pub door: Door,
    pub method: &'static str,
    pub target: String,
    pub body: Option<(&'static str, String)>,
    /// Protocol to switch to; needs HTTP/1.1.
    pub upgrade: Option<&'static str>,
}

impl Route {
    /// The request without a credential.
    pub fn raw(&self) -> Raw {
        let mut raw = Raw::new(self.method, &self.target);
        if let Some((media_type, body)) = &self.body {
            raw = raw.body(media_type, body);
        }
        if let Some(protocol) = self.upgrade {
            raw = raw.field("connection", "Upgrade").field("upgrade", protocol);
            if protocol == "websocket" {
                raw = raw
                    .field("sec-websocket-version", "13")
                    .field("sec-websocket-key", "AAAAAAAAAAAAAAAAAAAAAA==")
                    .field("sec-websocket-protocol", "v5.channel.k8s.io");
            }
        }
        raw
    }

    /// The protocols that can carry it.
    pub fn protocols(&self) -> &'static [Protocol] {
        if self.upgrade.is_some() { &PROTOCOLS[..1] } else { &PROTOCOLS }
    }

    /// Whether it changes something, or is as good as a change.
    pub fn mutates(&self) -> bool {
        let interactive = ["/exec?", "/attach?", "/portforward?"].iter().any(|word| self.target.contains(word));
        interactive || (self.method != "GET" && !self.target.contains("selfsubject"))
    }

    pub fn name(&self) -> String {
        format!("{} {}{}", self.method, self.target, self.upgrade.map(|p| format!(" to {p}")).unwrap_or_default())
    }
}

fn route(door: Door, request: &str, body: Option<(&'static str, &str)>, upgrade: Option<&'static str>) -> Route {
    let (method, target) = request.split_once(' ').unwrap();
    let method = ["GET", "POST", "PUT", "PATCH", "DELETE"].into_iter().find(|known| *known == method).unwrap();
    let body = body.map(|(media_type, body)| (media_type, body.to_owned()));
    Route { door, method, target: target.into(), body, upgrade }
}

const JSON: &str = "application/json";

/// Everything that leads to a cluster, in both forms of the URL.
pub fn cluster_routes() -> Vec<Route> {
    let ns = "/api/v1/namespaces/shop-web";
    let review = |kind: &str| {
        format!(
            r#"{{"apiVersion":"authorization.k8s.io/v1","kind":"{kind}","spec":{{"namespace":"shop-web","resourceAttributes":{{"namespace":"shop-web","verb":"get","resource":"pods"}}}}}}"#
        )
    };
    let access = review("SelfSubjectAccessReview");
    let rules =
        r#"{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectRulesReview","spec":{"namespace":"shop-web"}}"#;
    let namespace = r#"{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop-new"}}"#;
    let (plain, merge) = (Some((JSON, "{}")), Some(("application/merge-patch+json", "{}")));
    let mut routes = vec![];
    for form in ["/k8s/clusters/demo", "/k8s/clusters/demo/projects/shop"] {
        let mut add = |request: &str, body: Option<(&'static str, &str)>, upgrade: Option<&'static str>| {
            let (method, rest) = request.split_once(' ').unwrap();
            routes.push(route(Door::Cluster, &format!("{method} {form}{rest}"), body, upgrade));
        };
        add(&format!("GET {ns}/pods"), None, None);
        add(&format!("GET {ns}/pods/p"), None, None);
        add(&format!("GET {ns}/pods/p/log"), None, None);
        add(&format!("GET {ns}/pods/p/log?follow=true"), None, None);
        add(&format!("GET {ns}/pods?watch=1"), None, None);
        add(&format!("GET {ns}/pods?watch=1"), None, Some("websocket"));
        add(&format!("POST {ns}/configmaps"), plain, None);
        add(&format!("PUT {ns}/configmaps/c"), plain, None);
        add(&format!("PATCH {ns}/configmaps/c"), merge, None);
        add(&format!("DELETE {ns}/configmaps/c"), None, None);
        add(&format!("DELETE {ns}/configmaps?labelSelector=a"), None, None);
        add(&format!("POST {ns}/pods/p/eviction"), plain, None);
        add(&format!("GET {ns}/pods/p/exec?command=sh"), None, None);
        add(&format!("POST {ns}/pods/p/exec?command=sh"), plain, None);
        for session in ["exec?command=sh", "attach?stdin=1", "portforward?ports=1"] {
            add(&format!("GET {ns}/pods/p/{session}"), None, Some("websocket"));
            add(&format!("POST {ns}/pods/p/{session}"), None, Some("SPDY/3.1"));
        }
        add("GET /version", None, None);
        add("GET /apis", None, None);
        add("GET /apis/apps/v1", None, None);
        add("GET /openapi/v3", None, None);
        add("GET /apis/storage.k8s.io/v1/storageclasses", None, None);
        add("POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews", Some((JSON, &access)), None);
        add("POST /apis/authorization.k8s.io/v1/selfsubjectrulesreviews", Some((JSON, rules)), None);
        add("GET /api/v1/pods", None, None);
        add("GET /api/v1/pods?watch=1&resourceVersion=7", None, None);
        add("GET /api/v1/namespaces", None, None);
        add("POST /api/v1/namespaces", Some((JSON, namespace)), None);
        add("DELETE /api/v1/namespaces/shop-web", None, None);
    }
    routes
}

/// Everything of our own API, as it stands in its routers.
pub fn api_routes() -> Vec<Route> {
    let mut routes = vec![];
    let mut add = |request: &str| {
        let body = match request.split(' ').next().unwrap() {
            "GET" | "DELETE" => None,
            "PATCH" => Some(("application/merge-patch+json", "{}")),
            _ => Some((JSON, "{}")),
        };
        routes.push(route(Door::Api, request, body, None));
    };
    for path in ["/api", "/apis", "/apis/bailiwick.dev", BASE, "/openapi/v3"] {
        add(&format!("GET {path}"));
    }
    add(&format!("GET /openapi/v3{BASE}"));
    add("POST /auth/logout");
    add("GET /audit");
    add("GET /audit/verify");
    add(&format!("GET {BASE}/self"));
    add(&format!("GET {BASE}/explanations/why?verb=get&resource=pods&cluster=demo&namespace=shop-web"));
    add(&format!("GET {BASE}/explanations/who-can?verb=get&resource=pods&cluster=demo&namespace=shop-web"));
    for kind in ["accessroles", "clusters", "grants", "projects", "teams", "tokens", "users"] {
        add(&format!("GET {BASE}/{kind}"));
        add(&format!("GET {BASE}/{kind}?watch=1"));
        add(&format!("POST {BASE}/{kind}"));
        for method in ["GET", "PUT", "PATCH", "DELETE"] {
            add(&format!("{method} {BASE}/{kind}/joe"));
        }
    }
    for act in ["suspend", "resume", "password", "tokens", "kubeconfig"] {
        add(&format!("POST {BASE}/users/joe/{act}"));
    }
    for act in ["credential", "forget"] {
        add(&format!("POST {BASE}/clusters/demo/{act}"));
    }
    for act in ["check", "check-upgrade"] {
        add(&format!("GET {BASE}/clusters/demo/{act}"));
    }
    add(&format!("POST {BASE}/projects/billing/namespaces"));
    add(&format!("DELETE {BASE}/projects/billing/namespaces/demo/billing-api"));
    for method in ["GET", "POST", "DELETE"] {
        add(&format!("{method} {BASE}/projects/billing/namespaces/demo/billing-api/adoption"));
    }
    add(&format!("GET {BASE}/projects/billing/levels/restricted"));
    // Nothing is here.
    add("GET /");
    add("GET /nothing/here");
    add("POST /openapi/v2");
    routes
}

/// What may be had without a credential.
pub fn public_routes() -> Vec<Route> {
    let wrong = r#"{"username":"jane","password":"not-the-password-1"}"#;
    vec![
        route(Door::Public, "GET /version", None, None),
        route(Door::Public, "GET /healthz", None, None),
        route(Door::Public, "POST /auth/login", Some((JSON, wrong)), None),
    ]
}

/// All that needs a credential.
pub fn guarded_routes() -> Vec<Route> {
    [cluster_routes(), api_routes()].concat()
}

/// So many routes, by protocol.
pub fn count(routes: &[Route]) -> BTreeMap<Protocol, usize> {
    let mut counts = BTreeMap::new();
    for protocol in routes.iter().flat_map(|route| route.protocols()) {
        *counts.entry(*protocol).or_default() += 1;
    }
    counts
}

/// Paths of the routers of the API, as its sources have them.
fn paths_in_the_sources() -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/api");
    let mut paths = vec![];
    for file in ["routes.rs", "acts.rs"] {
        let text = std::fs::read_to_string(root.join(file)).unwrap();
        for after in text.split(".route(").skip(1) {
            let call = &after[..after.find("get(").or_else(|| after.find(')')).unwrap_or(after.len())];
            let literal = call.split('"').nth(1);
            let path = match literal {
                Some(path) if call.contains("under(") => format!("{BASE}/{path}"),
                Some(path) => path.replace("{BASE}", BASE),
                None => BASE.to_owned(),
            };
            paths.push(path);
        }
    }
    paths
}

/// What is not in the table is not attacked.
#[test]
fn the_table_has_every_route_of_the_sources() {
    let known: Vec<Vec<String>> = [api_routes(), public_routes()]
        .concat()
        .iter()
        .map(|route| route.target.split('?').next().unwrap().split('/').map(str::to_owned).collect())
        .collect();
    let paths = paths_in_the_sources();
    assert!(paths.len() > 25, "{paths:?}");
    for path in paths {
        let segments: Vec<&str> = path.split('/').collect();
        let is = |route: &Vec<String>| {
            route.len() == segments.len()
                && route.iter().zip(&segments).all(|(is, wanted)| wanted.starts_with('{') || is == wanted)
        };
        assert!(known.iter().any(is), "{path} is not in the table");
    }
    let (clusters, ours) = (count(&cluster_routes()), count(&api_routes()));
    assert!(clusters[&Protocol::Http1] >= 60 && clusters[&Protocol::Http2] >= 46, "{clusters:?}");
    assert!(ours[&Protocol::Http1] >= 70, "{ours:?}");
}
