//! A cluster by script: it lists and watches Pods as an API server does, except where a test says otherwise.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bailiwick::clock::Clock;
use bailiwick::domain::request::unescape;
use bailiwick::proxy::ProxySettings;
use bailiwick::records::{Claim, ClaimOrigin};
use bailiwick::store::{Key, Kind};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::harness::{CLUSTER_UID, DEADLINE, Pki, World, observe};

type Body = UnsyncBoxBody<Bytes, io::Error>;
type Events = mpsc::UnboundedSender<io::Result<Bytes>>;

/// A request as the cluster received it.
#[derive(Debug, Clone)]
pub struct Ask {
    pub method: String,
    pub path: String,
    pub query: BTreeMap<String, String>,
    pub namespace: String,
    pub headers: http::HeaderMap,
}

impl Ask {
    pub fn param(&self, key: &str) -> &str {
        self.query.get(key).map(String::as_str).unwrap_or_default()
    }

    pub fn is_watch(&self) -> bool {
        self.query.contains_key("watch")
    }

    /// All values of a header.
    pub fn all(&self, name: &str) -> Vec<&str> {
        self.headers.get_all(name).iter().map(|value| value.to_str().unwrap()).collect()
    }
}

/// How the script answers.
pub enum Reply {
    /// At once.
    Whole(u16, Vec<(&'static str, String)>, Bytes),
    /// The beginning, and then one piece again and again, each after a pause.
    Endless(Bytes, Bytes, Duration),
    /// After a while, whole.
    Late(Duration, Bytes),
    /// Not at all.
    Never,
}

impl Reply {
    pub fn json(value: &Value) -> Self {
        Self::text(value.to_string())
    }

    pub fn text(text: impl Into<String>) -> Self {
        Self::Whole(200, vec![("content-type", "application/json".into())], Bytes::from(text.into()))
    }

    pub fn code(code: u16) -> Self {
        Self::Whole(code, vec![], Bytes::from_static(b"canary"))
    }
}

type Rule = Arc<dyn Fn(&Ask) -> Option<Reply> + Send + Sync>;

#[derive(Default)]
struct State {
    asks: Mutex<Vec<Ask>>,
    rule: Mutex<Option<Rule>>,
    watches: Mutex<Vec<(String, Events)>>,
    // Answers that go on.
    open: AtomicUsize,
    goes: Mutex<CancellationToken>,
    dies: Mutex<CancellationToken>,
}

#[derive(Clone, Default)]
pub struct Cluster(Arc<State>);

struct Open(Arc<State>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A world in front of a cluster by script.
pub async fn start() -> (World, Cluster) {
    start_with(ProxySettings { response_timeout: Duration::from_secs(2), ..ProxySettings::default() }).await
}

pub async fn start_with(settings: ProxySettings) -> (World, Cluster) {
    let (pki, cluster) = (Pki::new(), Cluster::default());
    let address = cluster.listen(&pki).await;
    (World::start_before(settings, Arc::new(Clock::system()), pki, address).await, cluster)
}

impl Cluster {
    async fn listen(&self, pki: &Pki) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut config = pki.server();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let state = self.0.clone();
        tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                tcp.set_nodelay(true).unwrap();
                let (acceptor, state) = (acceptor.clone(), state.clone());
                tokio::spawn(async move {
                    let Ok(tls) = acceptor.accept(tcp).await else { return };
                    let (goes, dies) = (state.goes.lock().clone(), state.dies.lock().clone());
                    let service = service_fn(move |request| answer(request, state.clone()));
                    let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                    let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(tls), service));
                    tokio::select! {
                        _ = connection.as_mut() => {}
                        () = dies.cancelled() => {}
                        () = goes.cancelled() => {
                            connection.as_mut().graceful_shutdown();
                            let _ = connection.await;
                        }
                    }
                });
            }
        });
        address
    }

    /// From now on this is asked first; what it does not answer, is answered soundly.
    pub fn script(&self, rule: impl Fn(&Ask) -> Option<Reply> + Send + Sync + 'static) {
        *self.0.rule.lock() = Some(Arc::new(rule));
    }

    pub fn sound(&self) {
        *self.0.rule.lock() = None;
    }

    /// What came since the last call.
    pub fn take(&self) -> Vec<Ask> {
        std::mem::take(&mut self.0.asks.lock())
    }

    /// Answers that go on just now.
    pub fn open(&self) -> usize {
        self.0.open.load(Ordering::SeqCst)
    }

    /// Says something in all watches of a namespace that are open; how many heard it.
    pub fn say(&self, namespace: &str, text: impl Into<String>) -> usize {
        self.say_bytes(namespace, Bytes::from(text.into()))
    }

    pub fn say_bytes(&self, namespace: &str, bytes: Bytes) -> usize {
        self.each(namespace, || Ok(bytes.clone()))
    }

    /// Breaks off all watches of a namespace.
    pub fn reset(&self, namespace: &str) {
        self.each(namespace, || Err(io::Error::other("reset")));
    }

    /// Ends all watches of a namespace.
    pub fn close(&self, namespace: &str) {
        self.0.watches.lock().retain(|(name, _)| name != namespace);
    }

    fn each(&self, namespace: &str, text: impl Fn() -> io::Result<Bytes>) -> usize {
        let watches = self.0.watches.lock();
        watches.iter().filter(|(name, events)| name == namespace && events.send(text()).is_ok()).count()
    }

    /// GOAWAY on all connections there are, which live until what is under way is over.
    pub fn go_away(&self) {
        std::mem::take(&mut *self.0.goes.lock()).cancel();
    }

    /// All connections that there are break.
    pub fn die(&self) {
        std::mem::take(&mut *self.0.dies.lock()).cancel();
    }
}

async fn answer(request: Request<Incoming>, state: Arc<State>) -> Result<Response<Body>, Infallible> {
    let query = request.uri().query().unwrap_or_default();
    let pair = |pair: &str| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (unescape(key).unwrap(), unescape(value).unwrap())
    };
    let path = request.uri().path().to_owned();
    let namespace = path.split("/namespaces/").nth(1).and_then(|rest| rest.split('/').next()).unwrap_or_default();
    let ask = Ask {
        method: request.method().to_string(),
        query: query.split('&').filter(|pair| !pair.is_empty()).map(pair).collect(),
        namespace: namespace.to_owned(),
        path,
        headers: request.headers().clone(),
    };
    state.asks.lock().push(ask.clone());
    let rule = state.rule.lock().clone();
    if let Some(reply) = rule.and_then(|rule| rule(&ask)) {
        return Ok(replied(reply, &state).await);
    }
    if ask.is_watch() {
        let (sender, events) = mpsc::unbounded_channel();
        let body = StreamBody::new(going(events, open(&state))).boxed_unsync();
        state.watches.lock().push((ask.namespace, sender));
        return Ok(json_response(body));
    }
    let list = sound_list(&ask);
    Ok(json_response(Full::new(Bytes::from(list.to_string())).map_err(|never| match never {}).boxed_unsync()))
}

fn open(state: &Arc<State>) -> Open {
    state.open.fetch_add(1, Ordering::SeqCst);
    Open(state.clone())
}

fn going(
    events: mpsc::UnboundedReceiver<io::Result<Bytes>>,
    open: Open,
) -> impl futures::Stream<Item = io::Result<Frame<Bytes>>> + Send {
    futures::stream::unfold((events, open), |(mut events, open)| async {
        let next = events.recv().await?;
        Some((next.map(Frame::data), (events, open)))
    })
}

fn json_response(body: Body) -> Response<Body> {
    Response::builder().header("content-type", "application/json").body(body).unwrap()
}

async fn replied(reply: Reply, state: &Arc<State>) -> Response<Body> {
    let full = |bytes: Bytes| Full::new(bytes).map_err(|never| match never {}).boxed_unsync();
    match reply {
        Reply::Whole(code, headers, bytes) => {
            let mut response = Response::builder().status(code);
            for (name, value) in headers {
                response = response.header(name, value);
            }
            response.body(full(bytes)).unwrap()
        }
        Reply::Endless(first, again, pause) => {
            let pieces = futures::stream::unfold((Some(first), open(state)), move |(first, open)| {
                let again = again.clone();
                async move {
                    if first.is_none() && !pause.is_zero() {
                        tokio::time::sleep(pause).await;
                    }
                    Some((Ok::<_, io::Error>(Frame::data(first.unwrap_or(again))), (None, open)))
                }
            });
            json_response(StreamBody::new(pieces).boxed_unsync())
        }
        Reply::Late(after, bytes) => {
            let _open = open(state);
            tokio::time::sleep(after).await;
            json_response(full(bytes))
        }
        Reply::Never => {
            let _open = open(state);
            std::future::pending().await
        }
    }
}

/// The revision of everything here.
pub const REVISION: &str = "100";
/// Pods of each namespace.
pub const PODS: usize = 3;

/// Names of a namespace's Pods.
pub fn names(namespace: &str) -> Vec<String> {
    (1..=PODS).map(|n| format!("{namespace}-{n}")).collect()
}

pub fn pod(namespace: &str, name: &str, revision: &str) -> Value {
    json!({"kind": "Pod", "apiVersion": "v1",
           "metadata": {"name": name, "namespace": namespace, "resourceVersion": revision}})
}

pub fn pod_list(revision: &str, proceed: &str, items: Vec<Value>) -> Value {
    json!({"kind": "PodList", "apiVersion": "v1",
           "metadata": {"resourceVersion": revision, "continue": proceed}, "items": items})
}

/// A list as an API server makes it, in pages where it is asked for them.
pub fn sound_list(ask: &Ask) -> Value {
    let all = names(&ask.namespace);
    let from: usize = ask.param("continue").strip_prefix("from-").map_or(0, |at| at.parse().unwrap());
    let to = ask.param("limit").parse().map_or(all.len(), |limit: usize| all.len().min(from + limit));
    let proceed = if to < all.len() { format!("from-{to}") } else { String::new() };
    let items = all[from..to].iter().map(|name| pod(&ask.namespace, name, "50")).collect();
    pod_list(REVISION, &proceed, items)
}

pub fn event(kind: &str, object: &Value) -> String {
    format!("{}\n", json!({"type": kind, "object": object}))
}

pub fn added(namespace: &str, name: &str, revision: u64) -> String {
    event("ADDED", &pod(namespace, name, &revision.to_string()))
}

pub fn bookmark(revision: &str) -> String {
    event("BOOKMARK", &json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"resourceVersion": revision}}))
}

/// The names in a list of Pods, as `namespace/name`.
pub fn listed(body: &str) -> Vec<String> {
    let list: Value = serde_json::from_str(body).unwrap_or_else(|why| panic!("{why}: {body}"));
    let name = |item: &Value| {
        format!("{}/{}", item["metadata"]["namespace"].as_str().unwrap(), item["metadata"]["name"].as_str().unwrap())
    };
    list["items"].as_array().unwrap_or_else(|| panic!("{body}")).iter().map(name).collect()
}

/// All Pods of several namespaces, as [`listed`] names them.
pub fn all_of(namespaces: &[&str]) -> Vec<String> {
    namespaces.iter().flat_map(|ns| names(ns).into_iter().map(move |name| format!("{ns}/{name}"))).collect()
}

/// Waits until nothing is left of what went on: at the cluster, in the register, in memory.
pub async fn nothing_is_left(world: &World, cluster: &Cluster, after: &str) {
    let left = || (cluster.open(), world.proxy.streams().len(), world.proxy.memory_of_lists());
    until(&format!("after {after}: nothing is left"), || left() == (0, 0, 0), || format!("{:?}", left())).await;
}

pub async fn until(what: &str, done: impl Fn() -> bool, now: impl Fn() -> String) {
    let deadline = Instant::now() + DEADLINE;
    while !done() {
        assert!(Instant::now() < deadline, "in vain: {what}: {}", now());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Gives project shop more namespaces, `shop-n<number>`; those before them are there already.
pub async fn widen(world: &World, numbers: std::ops::Range<usize>, project_uid: &str) {
    let name = |n: usize| format!("shop-n{n}");
    let mut last = None;
    for namespace in numbers.clone().map(name) {
        let claim = Claim {
            cluster: "demo".into(),
            cluster_uid: CLUSTER_UID.into(),
            since: Some(2),
            namespace_uid: Some(format!("ns-{namespace}")),
            project: "shop".into(),
            project_uid: project_uid.into(),
            origin: ClaimOrigin::Declared,
            releasing: false,
            adopt: false,
            created_by: "test".into(),
            created_at: "2026-01-01T00:00:00Z".into(),
            namespace: namespace.clone(),
        };
        let key = Key::new(Kind::Claim, Claim::key_name("demo", &namespace));
        last = Some(world.store.create(key, serde_json::to_vec(&claim).unwrap().into()).await.unwrap());
    }
    if let Some(revision) = last {
        world.index.applied(revision).await.unwrap();
    }
    let all: Vec<String> =
        ["shop-web", "shop-data"].map(str::to_owned).into_iter().chain((0..numbers.end).map(name)).collect();
    observe(&world.index, true, &all.iter().map(String::as_str).collect::<Vec<_>>()).await;
}
