//! Clusters that hang, break, lie or send elsewhere: each says what is wrong, and stays without effect.

use std::time::Instant;

use bytes::Bytes;
use kube::core::ObjectMeta;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::index::ObservedCluster;
use crate::resources::ClusterStatus;
use crate::resources::cluster::{Connection, CredentialSource, DirectConnection};
use crate::store::Kind;
use crate::store::sealed::Binding;
use crate::store::sqlite::{SqliteSettings, SqliteStore};

/// What a fake API server does with each connection.
#[derive(Debug, Clone, PartialEq)]
enum Fake {
    HangsBeforeTls,
    HangsAfterTls,
    Resets,
    WrongCertificate,
    /// Answers every request with these bytes.
    Says(String),
    /// Begins an answer and never ends it.
    SaysAndHangs(String),
    /// Sends for ever.
    Floods,
}

/// A certificate authority and what it signed for the loopback address.
struct Trust {
    ca: String,
    server: Arc<rustls::ServerConfig>,
}

fn trust() -> Trust {
    let mut params = rcgen::CertificateParams::new(vec![]).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = rcgen::KeyPair::generate().unwrap();
    let ca = params.self_signed(&key).unwrap();
    let issuer = rcgen::Issuer::new(params, key);
    let server_key = rcgen::KeyPair::generate().unwrap();
    let server = rcgen::CertificateParams::new(vec!["127.0.0.1".into()]).unwrap();
    let certificate = server.signed_by(&server_key, &issuer).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], server_key.serialize_der().try_into().unwrap())
        .unwrap();
    Trust { ca: ca.pem(), server: Arc::new(config) }
}

async fn serve(fake: Fake) -> DirectConnection {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("https://{}", listener.local_addr().unwrap());
    let (here, other) = (trust(), trust());
    let presented = if fake == Fake::WrongCertificate { other.server } else { here.server };
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(behave(fake.clone(), stream, presented.clone()));
        }
    });
    DirectConnection { server, certificate_authority: here.ca, tls_server_name: None, credential_from: None }
}

async fn behave(fake: Fake, stream: TcpStream, config: Arc<rustls::ServerConfig>) {
    match fake {
        Fake::HangsBeforeTls => std::future::pending().await,
        Fake::Resets => drop(stream),
        _ => {
            let Ok(mut stream) = TlsAcceptor::from(config).accept(stream).await else { return };
            let mut buffer = [0u8; 8192];
            while let Ok(1..) = stream.read(&mut buffer).await {
                match &fake {
                    Fake::Says(text) => stream.write_all(text.as_bytes()).await.unwrap(),
                    Fake::SaysAndHangs(text) => {
                        stream.write_all(text.as_bytes()).await.unwrap();
                        stream.flush().await.unwrap();
                        std::future::pending().await
                    }
                    Fake::Floods => {
                        let head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n";
                        let _ = stream.write_all(head).await;
                        while stream.write_all(&[b' '; 4096]).await.is_ok() {}
                        return;
                    }
                    _ => std::future::pending().await,
                }
            }
        }
    }
}

fn answer(status: &str, extra: &str, body: &str) -> Fake {
    Fake::Says(format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n{extra}\r\n{body}", body.len()))
}

struct World {
    store: Arc<dyn Store>,
    index: Arc<Index>,
    sealer: Arc<Sealer>,
    clusters: Arc<Clusters>,
    shutdown: CancellationToken,
    folder: tempfile::TempDir,
}

impl World {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(folder.path(), SqliteSettings::default()).unwrap());
        let sealer = Arc::new(Sealer::new("k1", &[7; 32]));
        let (index, _writer) = Index::start(store.clone(), sealer.clone()).await.unwrap();
        let timing = Timing {
            health: Duration::from_millis(50),
            files: Duration::from_millis(50),
            probe: Duration::from_secs(60),
            grace: Duration::from_millis(200),
            backoff: (Duration::from_millis(20), Duration::from_millis(100)),
            probe_deadline: Duration::from_secs(5),
            calls: Deadlines { connect: Duration::from_millis(200), response: Duration::from_millis(600) },
        };
        let shutdown = CancellationToken::new();
        let clusters = Clusters::start_with(index.clone(), store.clone(), timing, shutdown.clone());
        let credentials = folder.path().join("credentials");
        std::fs::create_dir(&credentials).unwrap();
        tokio::spawn(clusters.clone().keep_files(Some(credentials), sealer.clone(), shutdown.clone()));
        Self { store, index, sealer, clusters, shutdown, folder }
    }

    async fn add(&self, name: &str, direct: &DirectConnection, credential_for: Option<&DirectConnection>) {
        let spec = ClusterSpec {
            display_name: None,
            connection: Connection { direct: Some(direct.clone()) },
            accepted_versions: None,
            tenant_api_groups: vec![],
        };
        let mut cluster = Cluster::new(name, spec);
        cluster.metadata = ObjectMeta { uid: Some(format!("uid-{name}")), ..cluster.metadata };
        let value = Bytes::from(serde_json::to_vec(&cluster).unwrap());
        self.store.create(crate::store::Key::new(Kind::Cluster, name), value).await.unwrap();
        if let Some(direct) = credential_for {
            self.credential(name, direct).await;
        }
    }

    async fn credential(&self, name: &str, direct: &DirectConnection) {
        let uid = format!("uid-{name}");
        let credential = ClusterCredential {
            cluster_uid: uid.clone(),
            endpoint_digest: digest(direct),
            kube_system_uid: "k-1".into(),
            forwarding: "f-token".into(),
            housekeeping: "h-token".into(),
        };
        let key = crate::store::Key::new(Kind::ClusterCredential, name);
        let sealed = self.sealer.seal(&key, Binding { uid: &uid, version: 1 }, &credential).unwrap();
        self.store.create(key, sealed).await.unwrap();
    }

    /// Changes the connection of a Cluster, whose status is written meanwhile.
    async fn point(&self, name: &str, change: impl Fn(&mut DirectConnection)) {
        let key = crate::store::Key::new(Kind::Cluster, name);
        loop {
            let entry = self.store.get(&key).await.unwrap().unwrap();
            let mut cluster: Cluster = serde_json::from_slice(&entry.value).unwrap();
            change(cluster.spec.connection.direct.as_mut().unwrap());
            let value = Bytes::from(serde_json::to_vec(&cluster).unwrap());
            if self.store.update(key.clone(), entry.revision, value).await.is_ok() {
                return;
            }
        }
    }

    async fn observed(&self, name: &str, is: impl Fn(&ObservedCluster) -> bool) -> Arc<ObservedCluster> {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let seen = self.index.snapshot().observed(name).cloned();
            if let Some(seen) = seen.clone().filter(|seen| is(seen)) {
                return seen;
            }
            assert!(Instant::now() < deadline, "{name}: {seen:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn status(&self, name: &str) -> ClusterStatus {
        let entry = self.store.get(&crate::store::Key::new(Kind::Cluster, name)).await.unwrap().unwrap();
        serde_json::from_slice::<Cluster>(&entry.value).unwrap().status.unwrap_or_default()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_kind_of_failure_says_what_is_wrong() {
    let version = r#"{"gitVersion":"v1.36.3"}"#;
    let cases = [
        ("hangs", Fake::HangsBeforeTls, "deadline"),
        ("hangs-tls", Fake::HangsAfterTls, "no response within"),
        ("resets", Fake::Resets, "GET /version"),
        ("certificate", Fake::WrongCertificate, "certificate"),
        ("redirects", answer("302 Found", "location: https://other.example.com/\r\n", ""), "redirect"),
        ("html", answer("200 OK", "content-type: text/html\r\n", "<html>"), "not JSON"),
        ("no-http", Fake::Says("SSH-2.0-OpenSSH_9\r\n".into()), "GET /version"),
        ("no-version", answer("200 OK", "", r#"{"gitVersion":"latest"}"#), "no Kubernetes version"),
        ("no-namespace", answer("200 OK", "", version), "no UID"),
        ("unauthorized", answer("401 Unauthorized", "", r#"{"message":"Unauthorized"}"#), "not accepted"),
        ("forbidden", answer("403 Forbidden", "", r#"{"message":"no such right"}"#), "no such right"),
        ("floods", Fake::Floods, "broke off"),
        ("half", Fake::SaysAndHangs("HTTP/1.1 200 OK\r\ncontent-le".into()), "no response within"),
    ];
    let world = World::new().await;
    for (name, fake, _) in &cases {
        let direct = serve(fake.clone()).await;
        world.add(name, &direct, Some(&direct)).await;
    }
    for (name, _, text) in &cases {
        let seen = world.observed(name, |seen| seen.reason.contains("cannot be reached")).await;
        assert!(!seen.usable && seen.reason.contains(text), "{name}: {}", seen.reason);
        let status = world.status(name).await;
        assert_eq!(status.reachable, "False", "{name}");
        let reachable = status.conditions.iter().find(|c| c.type_ == "Reachable").unwrap();
        assert!(reachable.message.contains(text), "{name}: {}", reachable.message);
        assert!(!serde_json::to_string(&status).unwrap().contains("-token"), "no secret in a status");
        assert!(world.clusters.housekeeping(name).is_none(), "{name}: nothing is sent to whom is not proven");
        assert!(world.clusters.upstream(name).is_none(), "{name}: nor is anything forwarded there");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_cluster_at_the_same_address_is_refused() {
    let world = World::new().await;
    let body = r#"{"gitVersion":"v1.36.3","metadata":{"uid":"k-2"}}"#;
    let direct = serve(answer("200 OK", "", body)).await;
    world.add("swapped", &direct, Some(&direct)).await;
    let seen = world.observed("swapped", |seen| seen.reason.contains("another cluster")).await;
    assert!(!seen.usable && seen.reason.contains("k-2"));
    assert!(world.clusters.housekeeping("swapped").is_none());
    assert!(world.clusters.upstream("swapped").is_none());
    let checked = world.clusters.check("swapped").await.unwrap();
    assert!(checked.unwrap_err().contains("another cluster"));
}

/// When a Cluster is pointed elsewhere, the index speaks of the old connection for a moment longer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_connection_carries_nothing_before_it_is_proven() {
    let world = World::new().await;
    let body = r#"{"gitVersion":"v1.36.3","metadata":{"uid":"k-1"}}"#;
    let direct = serve(answer("200 OK", "", body)).await;
    world.add("demo", &direct, Some(&direct)).await;
    let deadline = Instant::now() + Duration::from_secs(20);
    while world.clusters.upstream("demo").is_none() {
        assert!(Instant::now() < deadline, "the imported cluster is used");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let before = world.clusters.links.read()["demo"].clone();
    // The credential is given anew: another connection, to somebody who does not answer.
    let elsewhere = serve(Fake::HangsBeforeTls).await;
    let key = crate::store::Key::new(Kind::Cluster, "demo");
    loop {
        // The status is written meanwhile.
        let entry = world.store.get(&key).await.unwrap().unwrap();
        let mut cluster: Cluster = serde_json::from_slice(&entry.value).unwrap();
        cluster.spec.connection.direct = Some(elsewhere.clone());
        let value = Bytes::from(serde_json::to_vec(&cluster).unwrap());
        if world.store.update(key.clone(), entry.revision, value).await.is_ok() {
            break;
        }
    }
    let key = crate::store::Key::new(Kind::ClusterCredential, "demo");
    let entry = world.store.get(&key).await.unwrap().unwrap();
    world.store.delete(key, entry.revision).await.unwrap();
    world.credential("demo", &elsewhere).await;
    while world.clusters.links.read()["demo"].parts.is_none()
        || Arc::ptr_eq(&world.clusters.links.read()["demo"], &before)
    {
        assert!(Instant::now() < deadline, "a new connection is made");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(world.clusters.upstream("demo").is_none() && world.clusters.housekeeping("demo").is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_credential_goes_only_where_it_was_given_for() {
    let world = World::new().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut direct = serve(Fake::HangsBeforeTls).await;
    let given_for = direct.clone();
    direct.server = format!("https://{}", listener.local_addr().unwrap());
    world.add("moved", &direct, Some(&given_for)).await;
    let seen = world.observed("moved", |seen| seen.reason.contains("changed since the credential")).await;
    assert!(!seen.usable);
    assert!(world.clusters.upstream("moved").is_none());

    world.add("bare", &direct, None).await;
    world.observed("bare", |seen| seen.reason.contains("no credential")).await;
    assert!(world.clusters.upstream("bare").is_none());
    assert_eq!(
        world.clusters.check("bare").await.unwrap().unwrap_err(),
        world.status("bare").await.conditions[0].message
    );
    assert!(world.clusters.check("none").await.is_none());
    let nobody = tokio::time::timeout(Duration::from_millis(200), listener.accept()).await;
    assert!(nobody.is_err(), "something was dialled");

    // The credential arrives: the cluster is dialled without a restart.
    world.credential("bare", &direct).await;
    tokio::time::timeout(Duration::from_secs(10), listener.accept()).await.unwrap().unwrap();
}

/// From Git and files alone; then the tokens are rotated, the file is broken, and the Cluster is pointed elsewhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credentials_come_from_files_and_follow_them() {
    let world = World::new().await;
    let body = r#"{"gitVersion":"v1.36.3","metadata":{"uid":"k-1"}}"#;
    let mut direct = serve(answer("200 OK", "", body)).await;
    direct.credential_from = Some(CredentialSource { file: "demo.json".into() });
    let content = |forwarding: &str| {
        serde_json::json!({"server": direct.server, "certificateAuthority": direct.certificate_authority,
            "kubeSystemUID": "k-1", "forwarding": forwarding, "housekeeping": "h-token"})
        .to_string()
    };
    let file = world.folder.path().join("credentials/demo.json");
    let condition = async |reason: &str| {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let status = world.status("demo").await;
            let found = status.conditions.iter().find(|c| c.type_ == "CredentialFile").cloned();
            if let Some(found) = found.clone().filter(|found| found.reason == reason) {
                assert!(!found.message.contains("-token"), "{}", found.message);
                return found;
            }
            assert!(Instant::now() < deadline, "{reason}: {found:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let forwarding = async |token: Option<&str>| {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let snapshot = world.index.snapshot();
            let now = snapshot.credentials.get("demo").map(|known| known.object.forwarding.as_str());
            if now == token {
                return;
            }
            assert!(Instant::now() < deadline, "the file is not followed");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    world.add("demo", &direct, None).await;
    let missing = condition("Unreadable").await;
    assert!(missing.status == "False" && missing.message.contains("\"demo.json\" in credential_dir"), "{missing:?}");
    world.observed("demo", |seen| seen.reason.contains("comes from the file")).await;

    std::fs::write(&file, content("f-token")).unwrap();
    forwarding(Some("f-token")).await;
    assert_eq!(condition("Read").await.status, "True");
    let deadline = Instant::now() + Duration::from_secs(20);
    while world.clusters.upstream("demo").is_none() {
        assert!(Instant::now() < deadline, "the cluster is used");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    std::fs::write(&file, content("g-token")).unwrap();
    forwarding(Some("g-token")).await;

    // What was good last stays.
    std::fs::write(&file, "{").unwrap();
    condition("Malformed").await;
    forwarding(Some("g-token")).await;
    std::fs::write(&file, content("f-token")).unwrap();
    forwarding(Some("f-token")).await;

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let elsewhere = format!("https://{}", listener.local_addr().unwrap());
    world.point("demo", |direct| direct.server.clone_from(&elsewhere)).await;
    condition("ForAnotherAddress").await;
    world.observed("demo", |seen| seen.reason.contains("changed since the credential")).await;
    let nobody = tokio::time::timeout(Duration::from_millis(200), listener.accept()).await;
    assert!(nobody.is_err(), "the tokens were taken elsewhere");

    // Without the source there is no word of the file any more.
    world.point("demo", |direct| direct.credential_from = None).await;
    let deadline = Instant::now() + Duration::from_secs(20);
    while world.status("demo").await.conditions.iter().any(|c| c.type_ == "CredentialFile") {
        assert!(Instant::now() < deadline, "the condition stays");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_is_deleted_is_forgotten() {
    let world = World::new().await;
    let direct = serve(Fake::Resets).await;
    world.add("gone", &direct, Some(&direct)).await;
    world.observed("gone", |seen| !seen.usable).await;
    let key = crate::store::Key::new(Kind::Cluster, "gone");
    loop {
        // The status is written meanwhile.
        let entry = world.store.get(&key).await.unwrap().unwrap();
        if world.store.delete(key.clone(), entry.revision).await.is_ok() {
            break;
        }
    }
    let mut state = world.index.subscribe();
    let gone = state.wait_for(|_| world.index.snapshot().observed("gone").is_none());
    tokio::time::timeout(Duration::from_secs(10), gone).await.unwrap().unwrap();
    assert!(world.clusters.upstream("gone").is_none());
}

#[test]
fn pauses_differ_a_little() {
    for _ in 0..100 {
        let pause = jitter(Duration::from_secs(4));
        assert!((Duration::from_secs(3)..=Duration::from_secs(5)).contains(&pause), "{pause:?}");
    }
}
