//! A server without sockets, and clients of it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use axum::Router;
use axum::body::Body;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tower::ServiceExt as _;

use crate::access::Access;
use crate::api::{ApiParts, ApiState, ClusterActs, ClusterCheck, PublicEndpoint, router};
use crate::audit::{self, Audit, AuditSettings, Filter, Record};
use crate::controllers::{ActError, NamespaceActs, NamespaceState, Phase};
use crate::identity::accounts::{AccountPolicy, Accounts};
use crate::identity::last_used::LastUsed;
use crate::index::Index;
use crate::records::{Claim, TokenRecord, TokenScopes};
use crate::resources::project::{AdoptionReport, LevelReport, PodSecurityLevel};
use crate::resources::token::Audience;
use crate::store::sealed::{Binding, Sealer};
use crate::store::sqlite::{SqliteSettings, SqliteStore};
use crate::store::{Key, Kind, Store};
use crate::tenancy::Tenancy;

pub(super) const BASE: &str = "/apis/bailiwick.dev/v1alpha1";

/// Tabulating takes longer than most tests.
static ACCESS: LazyLock<Arc<Access>> = LazyLock::new(|| Arc::new(Access::load().unwrap()));

/// Clusters that answer as they are told.
struct Checked;

#[async_trait::async_trait]
impl ClusterActs for Checked {
    async fn check(&self, cluster: &str) -> Vec<ClusterCheck> {
        let ok = cluster != "broken";
        let check = |name: &str, ok, required| ClusterCheck {
            name: name.to_owned(),
            ok,
            message: "1.36.3".to_owned(),
            required,
        };
        vec![check("reachable", ok, true), check("advice", false, false)]
    }
}

/// Does at once what takes controllers a moment; a namespace whose name ends in `slow` stays behind.
struct AtOnce {
    tenancy: Arc<Tenancy>,
    index: Arc<Index>,
    store: Arc<dyn Store>,
}

impl AtOnce {
    async fn settled(&self, claim: Claim) -> Result<NamespaceState, ActError> {
        let newest = self.store.revision().await.unwrap();
        self.index.applied(newest).await.unwrap();
        if claim.namespace.ends_with("slow") {
            return Err(ActError::NotYet("the cluster is slow".to_owned()));
        }
        Ok(NamespaceState {
            project_uid: claim.project_uid,
            claim: newest,
            phase: Phase::Ready,
            message: String::new(),
            hard: BTreeMap::new(),
            used: BTreeMap::new(),
            contested: vec![],
            adoption: None,
            opened_by: vec![],
        })
    }
}

#[async_trait::async_trait]
impl NamespaceActs for AtOnce {
    async fn create(
        &self,
        project: &str,
        cluster: &str,
        namespace: &str,
        by: &str,
        now: Timestamp,
    ) -> Result<NamespaceState, ActError> {
        self.settled(self.tenancy.create_namespace(project, cluster, namespace, by, now).await?).await
    }

    async fn relocate(
        &self,
        cluster: &str,
        namespace: &str,
        from: &str,
        to: &str,
        by: &str,
        now: Timestamp,
    ) -> Result<NamespaceState, ActError> {
        self.settled(self.tenancy.move_namespace(cluster, namespace, from, to, by, now).await?).await
    }

    async fn delete(&self, project: &str, cluster: &str, namespace: &str, by: &str) -> Result<(), ActError> {
        self.tenancy.release_namespace(project, cluster, namespace, by).await?;
        self.index.applied(self.store.revision().await.unwrap()).await.unwrap();
        Ok(())
    }

    async fn adoption(&self, _: &str, cluster: &str, namespace: &str) -> Result<AdoptionReport, ActError> {
        Ok(AdoptionReport { cluster: cluster.into(), name: namespace.into(), ..AdoptionReport::default() })
    }

    async fn adopt(
        &self,
        project: &str,
        cluster: &str,
        namespace: &str,
        by: &str,
        now: Timestamp,
    ) -> Result<AdoptionReport, ActError> {
        self.settled(self.tenancy.adopt_namespace(project, cluster, namespace, by, now).await?).await?;
        self.adoption(project, cluster, namespace).await
    }

    async fn try_level(&self, _: &str, _: PodSecurityLevel) -> Result<Vec<LevelReport>, ActError> {
        Ok(vec![])
    }

    async fn give_back(&self, project: &str, cluster: &str, namespace: &str, by: &str) -> Result<(), ActError> {
        self.delete(project, cluster, namespace, by).await
    }
}

/// The server.
pub(super) struct Server {
    pub(super) router: Router,
    pub(super) store: Arc<dyn Store>,
    pub(super) index: Arc<Index>,
    pub(super) sealer: Arc<Sealer>,
    pub(super) accounts: Accounts,
    pub(super) tenancy: Arc<Tenancy>,
    pub(super) audit: Arc<Audit>,
    tokens: AtomicUsize,
    directory: tempfile::TempDir,
}

/// Somebody with a token.
#[derive(Clone)]
pub(super) struct Client {
    router: Router,
    token: String,
}

/// An answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: http::HeaderMap,
    pub(super) bytes: Bytes,
    pub(super) body: Value,
}

impl Answer {
    pub(super) fn message(&self) -> &str {
        self.body["message"].as_str().unwrap_or_default()
    }

    #[track_caller]
    pub(super) fn ok(self) -> Value {
        assert!(self.status.is_success(), "{} {}", self.status, String::from_utf8_lossy(&self.bytes));
        self.body
    }

    #[track_caller]
    pub(super) fn refused(self, code: u16) -> String {
        assert_eq!(self.status.as_u16(), code, "{}", String::from_utf8_lossy(&self.bytes));
        assert_eq!((self.body["kind"].as_str(), self.body["code"].as_u64()), (Some("Status"), Some(code.into())));
        self.message().to_owned()
    }
}

impl Server {
    /// A server with an administrator `root`.
    pub(super) async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(directory.path(), SqliteSettings::default()).unwrap());
        let sealer = Arc::new(Sealer::new("k1", &[7; 32]));
        let (index, _writer) = Index::start(store.clone(), sealer.clone()).await.unwrap();
        let audit_directory = directory.path().join("audit");
        let audit = Audit::open(&audit_directory, AuditSettings::default()).unwrap();
        let accounts = Accounts::new(store.clone(), sealer.clone(), index.clone(), AccountPolicy::default());
        let tenancy = Arc::new(Tenancy::new(store.clone(), index.clone()));
        let parts = ApiParts {
            store: store.clone(),
            sealer: sealer.clone(),
            index: index.clone(),
            accounts: accounts.clone(),
            last_used: Arc::new(LastUsed::new(store.clone(), index.clone())),
            access: ACCESS.clone(),
            tenancy: tenancy.clone(),
            namespaces: Arc::new(AtOnce { tenancy: tenancy.clone(), index: index.clone(), store: store.clone() }),
            clusters: Arc::new(Checked),
            audit: audit.clone(),
            public: PublicEndpoint { url: "https://bailiwick.example.com".to_owned(), certificate_authority: None },
            shutdown: tokio_util::sync::CancellationToken::new(),
        };
        let router = router(ApiState::new(parts).unwrap());
        let server =
            Self { router, store, index, sealer, accounts, tenancy, audit, tokens: AtomicUsize::new(0), directory };
        server.user("root").await;
        server.grant("root", "User", "root", "admin", "Platform", "").await;
        server
    }

    /// All audit records so far.
    pub(super) async fn records(&self) -> Vec<Record> {
        self.audit.flush().await.unwrap();
        audit::read(&self.directory.path().join("audit"), &Filter { limit: 1000, ..Filter::default() }).unwrap()
    }

    pub(super) fn uid(name: &str) -> String {
        format!("{name}-0000-uid")
    }

    /// Puts a record into the store past the API.
    pub(super) async fn put(&self, kind: Kind, name: &str, value: Value) {
        let revision = self.store.create(Key::new(kind, name), Bytes::from(value.to_string())).await.unwrap();
        self.index.applied(revision).await.unwrap();
    }

    /// Changes an object in the store past the API.
    pub(super) async fn change(&self, kind: Kind, name: &str, change: impl FnOnce(&mut Value)) {
        let key = Key::new(kind, name);
        let entry = self.store.get(&key).await.unwrap().unwrap();
        let mut value = serde_json::from_slice(&entry.value).unwrap();
        change(&mut value);
        let revision = self.store.update(key, entry.revision, Bytes::from(value.to_string())).await.unwrap();
        self.index.applied(revision).await.unwrap();
    }

    /// Puts an object into the store past the API.
    pub(super) async fn seed(&self, kind: Kind, name: &str, spec: Value, status: Value) {
        let value = json!({
            "apiVersion": "bailiwick.dev/v1alpha1",
            "kind": kind.as_str(),
            "metadata": {"name": name, "uid": Self::uid(name), "creationTimestamp": "2030-01-01T00:00:00Z", "generation": 1},
            "spec": spec,
            "status": status,
        });
        self.put(kind, name, value).await;
    }

    pub(super) async fn user(&self, name: &str) {
        self.seed(Kind::User, name, json!({}), json!({})).await;
    }

    /// A cluster that nothing listens at.
    pub(super) async fn cluster(&self, name: &str) {
        let ca = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n";
        let direct = json!({"server": "https://east.example.com:6443", "certificateAuthority": ca});
        self.seed(Kind::Cluster, name, json!({"connection": {"direct": direct}}), Value::Null).await;
    }

    /// A grant that is in force.
    pub(super) async fn grant(
        &self,
        name: &str,
        subject_kind: &str,
        subject: &str,
        role: &str,
        on: &str,
        target: &str,
    ) {
        let target_ref = if on == "Platform" { json!({"kind": on}) } else { json!({"kind": on, "name": target}) };
        let mut status = json!({"subjectUID": Self::uid(subject)});
        if on != "Platform" {
            status["targetUID"] = Value::String(Self::uid(target));
        }
        let spec = json!({"subject": {"kind": subject_kind, "name": subject}, "role": role, "target": target_ref});
        self.seed(Kind::Grant, &format!("{name}-grant"), spec, status).await;
    }

    /// A client with a fresh token of audience `api`.
    pub(super) async fn client(&self, user: &str) -> Client {
        self.client_with(user, Audience::Api, TokenScopes::default()).await
    }

    pub(super) async fn client_with(&self, user: &str, audience: Audience, scopes: TokenScopes) -> Client {
        self.issue(user, audience, scopes, 0).await
    }

    /// A client whose token is of a later epoch of the account.
    pub(super) async fn client_with_epoch(&self, user: &str, epoch: u64) -> Client {
        self.issue(user, Audience::Api, TokenScopes::default(), epoch).await
    }

    async fn issue(&self, user: &str, audience: Audience, scopes: TokenScopes, epoch: u64) -> Client {
        let count = self.tokens.fetch_add(1, Ordering::SeqCst);
        let letter = |n: usize| char::from(b'a' + u8::try_from(n % 26).unwrap());
        let id: String = [letter(count / 26), letter(count)].into_iter().cycle().take(16).collect();
        let secret = "s".repeat(52);
        let uid = self.index.snapshot().users.get(user).unwrap().object.metadata.uid.clone().unwrap();
        let record = TokenRecord {
            id: id.clone(),
            hash: STANDARD.encode(Sha256::digest(secret.as_bytes())),
            user: user.to_owned(),
            user_uid: uid.clone(),
            epoch,
            global_epoch: 0,
            audience,
            scopes,
            family: id.clone(),
            description: "test".to_owned(),
            created_at: "2030-01-01T00:00:00Z".to_owned(),
            expires_at: "2999-01-01T00:00:00Z".to_owned(),
        };
        let key = Key::new(Kind::Token, id.as_str());
        let sealed = self.sealer.seal(&key, Binding { uid: &uid, version: 1 }, &record).unwrap();
        let revision = self.store.create(key, sealed).await.unwrap();
        self.index.applied(revision).await.unwrap();
        Client { router: self.router.clone(), token: format!("bwk_{id}_{secret}") }
    }

    pub(super) fn anonymous(&self) -> Client {
        Client { router: self.router.clone(), token: String::new() }
    }
}

impl Client {
    pub(super) fn token_id(&self) -> &str {
        self.token.split('_').nth(1).unwrap()
    }

    pub(super) fn request(&self, method: Method, path: &str) -> http::request::Builder {
        let path = if path.starts_with('/') { path.to_owned() } else { format!("{BASE}/{path}") };
        let builder = Request::builder().method(method).uri(path);
        if self.token.is_empty() { builder } else { builder.header("authorization", format!("Bearer {}", self.token)) }
    }

    pub(super) async fn raw(&self, request: Request<Body>) -> Response<Body> {
        self.router.clone().oneshot(request).await.unwrap()
    }

    pub(super) async fn send(&self, request: Request<Body>) -> Answer {
        let (parts, body) = self.raw(request).await.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        Answer { status: parts.status, headers: parts.headers, bytes, body }
    }

    pub(super) async fn get(&self, path: &str) -> Answer {
        self.send(self.request(Method::GET, path).body(Body::empty()).unwrap()).await
    }

    pub(super) async fn get_as(&self, path: &str, accept: &str) -> Answer {
        self.send(self.request(Method::GET, path).header("accept", accept).body(Body::empty()).unwrap()).await
    }

    pub(super) async fn with_body(&self, method: Method, path: &str, media_type: &str, body: &str) -> Answer {
        let request = self.request(method, path).header("content-type", media_type);
        self.send(request.body(Body::from(body.to_owned())).unwrap()).await
    }

    pub(super) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.with_body(Method::POST, path, "application/json", &body.to_string()).await
    }

    pub(super) async fn put(&self, path: &str, body: &Value) -> Answer {
        self.with_body(Method::PUT, path, "application/json", &body.to_string()).await
    }

    pub(super) async fn merge(&self, path: &str, patch: &Value) -> Answer {
        self.with_body(Method::PATCH, path, "application/merge-patch+json", &patch.to_string()).await
    }

    /// An act.
    pub(super) async fn act(&self, path: &str, request: Value) -> Answer {
        self.post(path, &request).await
    }

    pub(super) fn with_token(&self, token: &str) -> Self {
        Self { router: self.router.clone(), token: token.to_owned() }
    }

    pub(super) async fn delete(&self, path: &str) -> Answer {
        self.send(self.request(Method::DELETE, path).body(Body::empty()).unwrap()).await
    }
}

/// An object as a client sends it.
pub(super) fn object(kind: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": "bailiwick.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

/// Spec of a grant of `member` on a project.
pub(super) fn grant(user: &str, project: &str) -> Value {
    let target = json!({"kind": "Project", "name": project});
    json!({"subject": {"kind": "User", "name": user}, "role": "member", "target": target})
}
