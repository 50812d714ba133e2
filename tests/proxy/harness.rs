//! One proxy on port 0, one recording cluster behind it, one small platform in the store.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bailiwick::audit::{Audit, AuditSettings};
use bailiwick::clock::Clock;
use bailiwick::clusters::endpoint::Endpoint;
use bailiwick::clusters::upstream::{Upstream, Upstreams};
use bailiwick::domain::names::uid8;
use bailiwick::identity::last_used::LastUsed;
use bailiwick::identity::tokens;
use bailiwick::index::{Index, Observation, ObservedCluster};
use bailiwick::listener::{self, Doors};
use bailiwick::metrics::Metrics;
use bailiwick::proxy::namespaces::{NewNamespace, OwnNamespaces};
use bailiwick::proxy::{Proxy, ProxyParts, ProxySettings};
use bailiwick::records::{Claim, ClaimOrigin, TokenRecord, TokenScopes};
use bailiwick::resources::cluster::DirectConnection;
use bailiwick::resources::token::Audience;
use bailiwick::store::sealed::{Binding, Sealer};
use bailiwick::store::sqlite::{SqliteSettings, SqliteStore};
use bailiwick::store::{Key, Kind, Revision, Store};
use bailiwick::tenancy::ActError;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use jiff::Timestamp;
use parking_lot::Mutex;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};
use tokio_util::sync::CancellationToken;

/// Longest that any test waits for anything.
pub const DEADLINE: Duration = Duration::from_secs(10);

/// A request as the cluster received it.
#[derive(Debug, Clone)]
pub struct Seen {
    pub target: String,
    pub headers: http::HeaderMap,
}

pub type Seens = Arc<Mutex<Vec<Seen>>>;

/// Lengths of the bodies that the cluster received to their end.
pub type Wholes = Arc<Mutex<Vec<usize>>>;

/// How the recording cluster answers, by path.
type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Everything of one test.
pub struct World {
    pub address: SocketAddr,
    pub store: Arc<dyn Store>,
    pub sealer: Arc<Sealer>,
    pub index: Arc<Index>,
    pub proxy: Arc<Proxy>,
    pub seen: Seens,
    pub wholes: Wholes,
    pub token: String,
    pub acts: Arc<Acts>,
    pub metrics: Arc<Metrics>,
    connector: TlsConnector,
    h2: TlsConnector,
    audit_dir: std::path::PathBuf,
    pub audit: Arc<Audit>,
    shutdown: CancellationToken,
    _dir: tempfile::TempDir,
}

/// Records which acts on namespaces would be done, and does none.
#[derive(Default)]
pub struct Acts {
    pub created: Mutex<Vec<NewNamespace>>,
    pub deleted: Mutex<Vec<String>>,
}

#[async_trait::async_trait]
impl OwnNamespaces for Acts {
    async fn check(&self, _: &NewNamespace, _: Timestamp) -> Result<(), ActError> {
        Ok(())
    }

    async fn create(&self, wanted: &NewNamespace, _: Timestamp) -> Result<(), ActError> {
        self.created.lock().push(wanted.clone());
        Err(ActError::NotYet("it is only recorded".to_owned()))
    }

    async fn delete(&self, _: &str, _: &str, namespace: &str, _: &str) -> Result<(), ActError> {
        self.deleted.lock().push(namespace.to_owned());
        Err(ActError::NotYet("it is only recorded".to_owned()))
    }
}

struct One(Arc<Upstream>);

impl Upstreams for One {
    fn upstream(&self, cluster: &str) -> Option<Arc<Upstream>> {
        (cluster == "demo").then(|| self.0.clone())
    }

    fn own(&self, cluster: &str) -> Option<Arc<Upstream>> {
        self.upstream(cluster)
    }
}

pub const BILLING_UID: &str = "2b3c4d5e-0000-4000-8000-000000000002";
pub const PROJECT_UID: &str = "1a2b3c4d-0000-4000-8000-000000000001";
pub const CLUSTER_UID: &str = "c0000000-0000-4000-8000-000000000001";

impl World {
    /// The platform: cluster demo; project shop with namespace shop-web, where jane is member; project billing with
    /// billing-api, where joe is owner.
    pub async fn start() -> Self {
        Self::start_with(ProxySettings { response_timeout: Duration::from_secs(2), ..ProxySettings::default() }).await
    }

    pub async fn start_with(settings: ProxySettings) -> Self {
        Self::start_by(settings, Arc::new(Clock::system())).await
    }

    pub async fn start_by(settings: ProxySettings, clock: Arc<Clock>) -> Self {
        let (pki, seen, wholes) = (Pki::new(), Seens::default(), Wholes::default());
        let cluster = recording_cluster(&pki, seen.clone(), wholes.clone()).await;
        let mut world = Self::start_before(settings, clock, pki, cluster).await;
        (world.seen, world.wholes) = (seen, wholes);
        world
    }

    /// In front of a cluster of the test's own, which has its certificate from `pki`.
    pub async fn start_before(settings: ProxySettings, clock: Arc<Clock>, pki: Pki, cluster: SocketAddr) -> Self {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let dir = tempfile::tempdir().unwrap();
        let (seen, wholes) = (Seens::default(), Wholes::default());

        let store: Arc<dyn Store> =
            Arc::new(SqliteStore::open(&dir.path().join("data"), SqliteSettings::default()).unwrap());
        let sealer = Arc::new(Sealer::new("k", &[7; 32]));
        platform(&*store).await;
        let (index, _) = Index::start_with(store.clone(), sealer.clone(), clock).await.unwrap();
        observe(&index, true, &["shop-web", "shop-data", "billing-api", "default", "kube-system"]).await;

        let endpoint = Endpoint::from_direct(&DirectConnection {
            server: format!("https://{cluster}"),
            certificate_authority: pki.ca_pem.clone(),
            tls_server_name: None,
            credential_from: None,
        })
        .unwrap();
        let acts = Arc::new(Acts::default());
        let audit_dir = dir.path().join("audit");
        let metrics = Arc::new(Metrics::new());
        let audit = Audit::open(&audit_dir, AuditSettings::default()).unwrap();
        let proxy = Proxy::new(ProxyParts {
            index: index.clone(),
            upstreams: Arc::new(One(Arc::new(Upstream::new(&endpoint, "forwarding-secret").unwrap()))),
            audit: audit.clone(),
            metrics: metrics.clone(),
            last_used: Arc::new(LastUsed::new(store.clone(), index.clone())),
            settings,
            namespaces: Some(acts.clone()),
        });
        tokio::spawn(proxy.clone().judge());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = CancellationToken::new();
        let doors = Arc::new(Doors {
            proxy: proxy.clone(),
            api: axum::Router::new(),
            trusted_proxies: vec![],
            metrics: metrics.clone(),
        });
        let mut server = pki.server();
        server.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        tokio::spawn(listener::serve(listener, Arc::new(server), doors, shutdown.clone(), Duration::from_secs(1)));
        let mut world = Self {
            address,
            store,
            sealer,
            index,
            proxy,
            seen,
            wholes,
            token: String::new(),
            acts,
            metrics,
            connector: pki.connector(&[b"http/1.1"]),
            h2: pki.connector(&[b"h2"]),
            audit_dir,
            audit,
            shutdown,
            _dir: dir,
        };
        world.token = world.issue("jane", TokenScopes::default()).await;
        world
    }

    /// A token of audience `kube`.
    pub async fn issue(&self, user: &str, scopes: TokenScopes) -> String {
        self.issue_for(user, scopes, Audience::Kube, "2100-01-01T00:00:00Z").await
    }

    pub async fn issue_for(&self, user: &str, scopes: TokenScopes, audience: Audience, expires_at: &str) -> String {
        issue(&*self.store, &self.sealer, &self.index, user, &format!("uid-{user}"), |record| {
            record.audience = audience;
            record.scopes = scopes;
            record.expires_at = expires_at.into();
        })
        .await
    }

    /// Changes a stored object and waits until decisions see it.
    pub async fn change(&self, kind: Kind, name: &str, change: impl FnOnce(&mut Value)) {
        let key = Key::new(kind, name);
        let entry = self.store.get(&key).await.unwrap().unwrap();
        let mut value: Value = serde_json::from_slice(&entry.value).unwrap();
        change(&mut value);
        let revision = self.store.update(key, entry.revision, value.to_string().into()).await.unwrap();
        self.index.applied(revision).await.unwrap();
    }

    /// Creates a resource with the UID `uid-<name>` and waits until decisions see it.
    pub async fn create(&self, kind: Kind, name: &str, spec: Value, status: Value) {
        let object = json!({"apiVersion": "bailiwick.dev/v1alpha1", "kind": kind.as_str(),
            "metadata": {"name": name, "uid": format!("uid-{name}")}, "spec": spec, "status": status});
        let revision = self.store.create(Key::new(kind, name), object.to_string().into()).await.unwrap();
        self.index.applied(revision).await.unwrap();
    }

    pub async fn delete(&self, kind: Kind, name: &str) -> Revision {
        let key = Key::new(kind, name);
        let entry = self.store.get(&key).await.unwrap().unwrap();
        let revision = self.store.delete(key, entry.revision).await.unwrap();
        self.index.applied(revision).await.unwrap();
        revision
    }

    pub async fn connect(&self) -> TlsStream<TcpStream> {
        let tcp = TcpStream::connect(self.address).await.unwrap();
        self.connector.connect(ServerName::try_from("127.0.0.1").unwrap(), tcp).await.unwrap()
    }

    /// Sends raw bytes and reads until the server closes.
    pub async fn raw(&self, bytes: impl AsRef<[u8]>) -> String {
        let mut stream = self.connect().await;
        // A server that has read enough may close while we still write.
        let _ = stream.write_all(bytes.as_ref()).await;
        let mut answer = vec![];
        // A server that closes without close_notify is no failure of the test.
        let _ = tokio::time::timeout(DEADLINE, stream.read_to_end(&mut answer)).await.expect("an answer in time");
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// A request with further header lines; the connection closes after the answer.
    pub async fn request(&self, method: &str, target: &str, headers: &str) -> Answer {
        let token = &self.token;
        self.request_as(token, method, target, headers).await
    }

    pub async fn request_as(&self, token: &str, method: &str, target: &str, headers: &str) -> Answer {
        let raw = format!(
            "{method} {target} HTTP/1.1\r\nHost: proxy\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n{headers}\r\n"
        );
        Answer::read(&self.raw(raw).await)
    }

    /// The status of a GET over HTTP/2.
    pub async fn code_over_h2(&self, token: &str, target: &str) -> u16 {
        let tcp = TcpStream::connect(self.address).await.unwrap();
        let tls = self.h2.connect(ServerName::try_from("127.0.0.1").unwrap(), tcp).await.unwrap();
        let made = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(tls)).await;
        let (mut sender, connection) = made.unwrap();
        let connection = tokio::spawn(connection);
        let request =
            Request::get(format!("https://127.0.0.1{target}")).header("authorization", format!("Bearer {token}"));
        let answer = sender.send_request(request.body(Full::new(Bytes::new())).unwrap());
        let code = tokio::time::timeout(DEADLINE, answer).await.expect("an answer in time").unwrap().status().as_u16();
        connection.abort();
        code
    }

    /// Another user, with a role in a project.
    pub async fn join(&self, user: &str, project: &str, project_uid: &str) -> String {
        if self.index.snapshot().users.get(user).is_none() {
            self.create(Kind::User, user, json!({}), Value::Null).await;
        }
        let spec = json!({"subject": {"kind": "User", "name": user}, "role": "member",
            "target": {"kind": "Project", "name": project}});
        let status = json!({"state": "Active", "subjectUID": format!("uid-{user}"), "targetUID": project_uid});
        self.create(Kind::Grant, &format!("{user}-in-{project}"), spec, status).await;
        self.issue(user, TokenScopes::default()).await
    }

    /// The value of a metric, as it is scraped.
    pub fn metric(&self, name: &str) -> Option<u64> {
        self.proxy.report();
        let text = self.metrics.encode();
        text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
    }

    /// What the cluster received since the last call.
    pub fn take_seen(&self) -> Vec<Seen> {
        std::mem::take(&mut self.seen.lock())
    }

    /// From now on no audit record can be written.
    pub fn close_audit(&self) {
        self.audit.close();
    }

    /// All audit records so far, as text.
    pub async fn audit_text(&self) -> String {
        self.audit.flush().await.unwrap();
        let mut text = String::new();
        for entry in std::fs::read_dir(&self.audit_dir).unwrap() {
            text.push_str(&std::fs::read_to_string(entry.unwrap().path()).unwrap());
        }
        text
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

/// A parsed answer.
#[derive(Debug)]
pub struct Answer {
    pub code: u16,
    pub head: String,
    pub body: String,
}

impl Answer {
    pub fn read(raw: &str) -> Self {
        let (head, body) = raw.split_once("\r\n\r\n").unwrap_or((raw, ""));
        let code = head.split(' ').nth(1).and_then(|c| c.parse().ok()).unwrap_or(0);
        Self { code, head: head.to_ascii_lowercase(), body: body.to_owned() }
    }
}

/// What is seen of the cluster: its namespaces, each with a UID made from its name.
pub async fn observe(index: &Index, usable: bool, namespaces: &[&str]) {
    observe_as(index, CLUSTER_UID, usable, namespaces).await;
}

/// As [`observe`], for a Cluster of another UID.
pub async fn observe_as(index: &Index, cluster_uid: &str, usable: bool, namespaces: &[&str]) {
    let namespaces = namespaces.iter().map(|ns| (Arc::from(*ns), Arc::from(format!("ns-{ns}")))).collect();
    let observed = ObservedCluster {
        cluster_uid: cluster_uid.into(),
        usable,
        reason: if usable { String::new() } else { "its guards are not in force".into() },
        namespaces,
        ..ObservedCluster::default()
    };
    let seen = Some(Arc::new(observed));
    index.observe_applied(Observation { cluster: "demo".into(), seen }).await.unwrap();
}

async fn platform(store: &dyn Store) {
    let put = async |kind: Kind, name: &str, value: Value| {
        store.create(Key::new(kind, name), value.to_string().into()).await.unwrap();
    };
    let meta = |name: &str, uid: &str| json!({"name": name, "uid": uid});
    let api = "bailiwick.dev/v1alpha1";
    put(
        Kind::Cluster,
        "demo",
        json!({"apiVersion": api, "kind": "Cluster", "metadata": meta("demo", CLUSTER_UID),
        "spec": {"connection": {}, "tenantAPIGroups": ["example.com"]}}),
    )
    .await;
    for user in ["jane", "joe", "nobody"] {
        put(
            Kind::User,
            user,
            json!({"apiVersion": api, "kind": "User", "metadata": meta(user, &format!("uid-{user}")), "spec": {}}),
        )
        .await;
    }
    for (project, uid, namespaces) in
        [("shop", PROJECT_UID, vec!["shop-web", "shop-data"]), ("billing", BILLING_UID, vec!["billing-api"])]
    {
        put(
            Kind::Project,
            project,
            json!({"apiVersion": api, "kind": "Project", "metadata": meta(project, uid),
            "spec": {"clusters": [{"cluster": "demo", "namespaces": namespaces}]}}),
        )
        .await;
        for namespace in namespaces {
            let claim = Claim {
                cluster: "demo".into(),
                cluster_uid: CLUSTER_UID.into(),
                namespace: namespace.into(),
                since: Some(2),
                namespace_uid: Some(format!("ns-{namespace}")),
                project: project.into(),
                project_uid: uid.into(),
                origin: ClaimOrigin::Declared,
                releasing: false,
                adopt: false,
                created_by: "test".into(),
                created_at: "2026-01-01T00:00:00Z".into(),
            };
            put(Kind::Claim, &Claim::key_name("demo", namespace), serde_json::to_value(claim).unwrap()).await;
        }
    }
    for (name, user, role, project, uid) in
        [("jane-shop", "jane", "member", "shop", PROJECT_UID), ("joe-billing", "joe", "owner", "billing", BILLING_UID)]
    {
        put(Kind::Grant, name, json!({"apiVersion": api, "kind": "Grant", "metadata": meta(name, name),
            "spec": {"subject": {"kind": "User", "name": user}, "role": role, "target": {"kind": "Project", "name": project}},
            "status": {"state": "Active", "subjectUID": format!("uid-{user}"), "targetUID": uid}}))
        .await;
    }
}

/// The group that jane's requests must carry.
pub fn shop_member() -> String {
    format!("bailiwick:project:shop:{}:member", uid8(PROJECT_UID))
}

// ===== certificates =====

pub struct Pki {
    pub ca_pem: String,
    cert_pem: String,
    key_pem: String,
}

impl Pki {
    pub fn new() -> Self {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca_key = KeyPair::generate().unwrap();
        let ca_pem = params.self_signed(&ca_key).unwrap().pem();
        let issuer = Issuer::new(params, ca_key);
        let key = KeyPair::generate().unwrap();
        let leaf = CertificateParams::new(vec!["127.0.0.1".into()]).unwrap().signed_by(&key, &issuer).unwrap();
        Self { ca_pem, cert_pem: leaf.pem(), key_pem: key.serialize_pem() }
    }

    pub fn server(&self) -> rustls::ServerConfig {
        let chain = vec![CertificateDer::from_pem_slice(self.cert_pem.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(self.key_pem.as_bytes()).unwrap();
        rustls::ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key).unwrap()
    }

    pub fn connector(&self, alpn: &[&[u8]]) -> TlsConnector {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.ca_pem.as_bytes()).unwrap()).unwrap();
        let mut config = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = alpn.iter().map(|p| p.to_vec()).collect();
        TlsConnector::from(Arc::new(config))
    }
}

// ===== the recording cluster =====

async fn recording_cluster(pki: &Pki, seen: Seens, wholes: Wholes) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut config = pki.server();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let (acceptor, seen, wholes) = (acceptor.clone(), seen.clone(), wholes.clone());
            tokio::spawn(async move {
                let Ok(tls) = acceptor.accept(tcp).await else { return };
                let service = service_fn(move |request| answer(request, seen.clone(), wholes.clone()));
                let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                let _ = builder.serve_connection_with_upgrades(TokioIo::new(tls), service).await;
            });
        }
    });
    address
}

/// Answers by the name of the object asked for.
async fn answer(mut request: Request<Incoming>, seen: Seens, wholes: Wholes) -> Result<Response<Body>, hyper::Error> {
    seen.lock()
        .push(Seen { target: request.uri().path_and_query().unwrap().to_string(), headers: request.headers().clone() });
    let whole = |text: &str| Full::new(Bytes::from(text.to_owned())).boxed_unsync();
    let path = request.uri().path().to_owned();
    let query = request.uri().query().unwrap_or_default().to_owned();
    let status = |code: u16, body: Body| Response::builder().status(code).body(body).unwrap();
    if let Some(code) = path.split('/').find_map(|segment| segment.strip_prefix("status-")) {
        let mut response = status(code.parse().unwrap(), whole("from the cluster"));
        response.headers_mut().insert("location", "https://elsewhere.example.com/".parse().unwrap());
        response.headers_mut().insert("set-cookie", "a=b".parse().unwrap());
        response.headers_mut().insert("warning", "299 - \"deprecated\"".parse().unwrap());
        return Ok(response);
    }
    if path.ends_with("/pours") {
        let parts =
            futures::stream::repeat_with(|| Ok::<_, Infallible>(Frame::data(Bytes::from_static(&[b'x'; 65536]))));
        return Ok(status(200, http_body_util::BodyExt::boxed_unsync(StreamBody::new(parts))));
    }
    if query == "limit=1" {
        // Where the counter of revisions stands: events have one of their own.
        let stands = if path.ends_with("/events") { 5 } else { 25 };
        let list =
            format!(r#"{{"kind":"List","apiVersion":"v1","metadata":{{"resourceVersion":"{stands}"}},"items":[]}}"#);
        return Ok(status(200, whole(&list)));
    }
    if query.contains("labelSelector=lists") {
        let list = r#"{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[]}"#;
        return Ok(status(200, whole(list)));
    }
    if query.contains("labelSelector=quiet") {
        // A watch of what never changes.
        let events = futures::stream::pending::<Result<Frame<Bytes>, Infallible>>();
        return Ok(status(200, http_body_util::BodyExt::boxed_unsync(StreamBody::new(events))));
    }
    if path.ends_with("/hangs") || query.contains("labelSelector=hangs") {
        std::future::pending::<()>().await;
    }
    if query.contains("watch=") || query.contains("follow=") || path.ends_with("/drips") {
        // An event every 10 ms, without end.
        let events = futures::stream::unfold((), |()| async {
            tokio::time::sleep(Duration::from_millis(10)).await;
            Some((Ok::<_, Infallible>(Frame::data(Bytes::from("{\"type\":\"ADDED\"}\n"))), ()))
        });
        return Ok(status(200, http_body_util::BodyExt::boxed_unsync(StreamBody::new(events))));
    }
    if request.headers().contains_key("upgrade") {
        let upgraded = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let mut io = TokioIo::new(upgraded.await.unwrap());
            let (mut read, mut write) = tokio::io::split(&mut io);
            let _ = tokio::io::copy(&mut read, &mut write).await;
        });
        let mut response = status(101, whole(""));
        response.headers_mut().insert("connection", "Upgrade".parse().unwrap());
        response.headers_mut().insert("upgrade", request.headers()["upgrade"].clone());
        return Ok(response);
    }
    if request.method() == "GET" && (path.ends_with("/pods") || path.ends_with("/namespaces")) {
        let list = json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}, "items": []});
        return Ok(status(200, whole(&list.to_string())));
    }
    let sent = request.into_body().collect().await?.to_bytes();
    wholes.lock().push(sent.len());
    let echo = BTreeMap::from([("received", sent.len())]);
    Ok(status(200, whole(&serde_json::to_string(&echo).unwrap())))
}

/// Issues a token for the proxy and waits until it counts. `change` makes it another one: unlimited, and without an end
/// that a test sees, where it does nothing.
pub async fn issue(
    store: &dyn Store,
    sealer: &Sealer,
    index: &Index,
    user: &str,
    uid: &str,
    change: impl FnOnce(&mut TokenRecord),
) -> String {
    let made = tokens::generate().unwrap();
    let mut record = TokenRecord {
        id: made.id.clone(),
        hash: STANDARD.encode(made.hash),
        user: user.into(),
        user_uid: uid.into(),
        epoch: 0,
        global_epoch: 0,
        audience: Audience::Kube,
        scopes: TokenScopes::default(),
        family: made.id.clone(),
        description: String::new(),
        created_at: "2026-01-01T00:00:00Z".into(),
        expires_at: "2100-01-01T00:00:00Z".into(),
    };
    change(&mut record);
    let key = Key::new(Kind::Token, made.id.as_str());
    let sealed = sealer.seal(&key, Binding { uid: &made.id, version: 1 }, &record).unwrap();
    let revision = store.create(key, sealed).await.unwrap();
    index.applied(revision).await.unwrap();
    made.secret_token.to_string()
}
