//! The stage: a real API server, the service imported into it through its own command line, and nginx beside it.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::Value;

use super::load::Target;
use super::resident::resident_kib;

const BAILIWICK: &str = env!("CARGO_BIN_EXE_bailiwick");
const PASSWORD: &str = "correct-Horse-battery-9";
const NEXT_PASSWORD: &str = "another-Horse-battery-7";

/// Everything that runs; stopped when dropped.
pub struct Stage {
    dir: tempfile::TempDir,
    children: Vec<Running>,
    kubectl: PathBuf,
    api: Api,
    port: u16,
    nginx_port: u16,
    nginx_pids: Vec<u32>,
    service_pid: u32,
    token: String,
    token_to_cut: String,
    /// Memory of the service before it had anything to do.
    pub idle_rss_mib: f64,
}

/// The API server as its administrator reaches it.
struct Api {
    port: u16,
    ca: String,
    cert: String,
    key: String,
}

/// A process that ends with this value.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Closing its input is how a local cluster is told to end; the others get a signal.
        drop(self.0.stdin.take());
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let deadline = Instant::now() + Duration::from_secs(10);
        while Instant::now() < deadline {
            if matches!(self.0.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::park_timeout(Duration::from_millis(20));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Stage {
    /// Sets the stage, with nginx on it or without; takes some ten seconds.
    pub async fn set(with_nginx: bool) -> anyhow::Result<Self> {
        let dir = tempfile::tempdir()?;
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let kube = output(Command::new(root.join("tests/kubernetes/build.sh")))?.trim().to_owned();
        let cluster_dir = dir.path().join("cluster");
        let cluster = Command::new(&kube)
            .args(["cluster", "--name", "bench", "--control-plane-only", "--exit-with-stdin", "--dir"])
            .arg(&cluster_dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let mut children = vec![Running(cluster)];
        let ready = cluster_dir.join("ready.json");
        wait("the cluster", || ready.exists())?;
        let ready: Value = serde_json::from_slice(&std::fs::read(ready)?)?;
        let text = |key: &str| ready[key].as_str().map(str::to_owned).with_context(|| format!("ready.json: {key}"));
        let (kubectl, kubeconfig, server) = (PathBuf::from(text("kubectl")?), text("kubeconfig")?, text("server")?);
        let api = read_api(&kubeconfig, &server)?;

        let port = free_port()?;
        let metrics_port = free_port()?;
        let url = format!("https://127.0.0.1:{port}");
        let data = dir.path().join("data");
        let first = dir.path().join("first-password");
        std::fs::write(&first, PASSWORD)?;
        let service = Command::new(BAILIWICK)
            .arg("serve")
            .arg("--data-dir")
            .arg(&data)
            .args(["--listen", &format!("127.0.0.1:{port}"), "--metrics-listen", &format!("127.0.0.1:{metrics_port}")])
            .args(["--public-url", &url, "--bootstrap-password-file"])
            .arg(&first)
            .env("BAILIWICK_LOG", "warn")
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(dir.path().join("service.log"))?)
            .spawn()?;
        let service_pid = service.id();
        children.push(Running(service));
        wait("the service", || {
            std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() && data.join("ca.crt").exists()
        })?;

        let idle_rss_mib = settled_mib(service_pid)?;

        let mut stage = Self {
            dir,
            children,
            kubectl,
            api,
            port,
            nginx_port: free_port()?,
            nginx_pids: vec![],
            service_pid,
            token: String::new(),
            token_to_cut: String::new(),
            idle_rss_mib,
        };
        stage.import(&url, &kubeconfig)?;
        stage.fill(&kubeconfig)?;
        if with_nginx {
            stage.start_nginx()?;
        }
        Ok(stage)
    }

    fn bailiwick_command(&self) -> Command {
        let mut command = Command::new(BAILIWICK);
        command
            .env("BAILIWICK_URL", format!("https://127.0.0.1:{}", self.port))
            .env("BAILIWICK_CA_FILE", self.dir.path().join("data/ca.crt"))
            .env("XDG_CONFIG_HOME", self.dir.path().join("home"))
            .env("HOME", self.dir.path().join("home"));
        command
    }

    fn import(&mut self, url: &str, kubeconfig: &str) -> anyhow::Result<()> {
        let mut login = self.bailiwick_command();
        login.args(["login", url, "--username", "admin", "--password-stdin", "--no-kubeconfig"]);
        feed(login, &format!("{PASSWORD}\n{NEXT_PASSWORD}\n"))?;
        let mut manifest = self.bailiwick_command();
        manifest.args(["cluster", "manifest", "bench", "--kubernetes-version", "1.36"]);
        let manifest = output(manifest)?;
        let mut apply = self.kubectl_command(kubeconfig);
        apply.args(["apply", "--server-side", "-f", "-"]);
        feed(apply, &manifest)?;
        let mut import = self.bailiwick_command();
        import.args(["cluster", "import", "bench", "--kubeconfig", kubeconfig]);
        output(import)?;
        self.apply(PLATFORM)?;
        self.token = self.issue("dev")?;
        self.token_to_cut = self.issue("cut")?;
        Ok(())
    }

    /// Applies resources of the service's own.
    pub fn apply(&self, documents: &str) -> anyhow::Result<()> {
        let platform = self.dir.path().join("platform.yaml");
        std::fs::write(&platform, documents)?;
        let mut apply = self.bailiwick_command();
        apply.args(["apply", "-f"]).arg(&platform);
        output(apply)?;
        Ok(())
    }

    /// A token of an account.
    pub fn issue(&self, user: &str) -> anyhow::Result<String> {
        let mut issue = self.bailiwick_command();
        issue.args(["token", "create", "--user", user, "--audience", "kube", "-o", "json"]);
        let issued: Value = serde_json::from_str(&output(issue)?)?;
        Ok(issued["token"].as_str().context("no token in the answer")?.to_owned())
    }

    /// The objects that are read: one small, and 3 MB of data that does not compress away.
    fn fill(&self, kubeconfig: &str) -> anyhow::Result<()> {
        let admin = || self.kubectl_command(kubeconfig);
        wait("the namespaces of the project", || {
            let mut get = admin();
            get.args(["get", "rolebindings", "-n", "bench-data", "-o", "name"]);
            output(get).is_ok_and(|text| text.contains("rolebinding"))
        })?;
        let mut documents = String::new();
        let object = |namespace: &str, name: &str, data: &str| {
            format!(
                "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{namespace: {namespace}, name: {name}}}\ndata: {{value: {data}}}\n"
            )
        };
        documents.push_str(&object("bench-web", "small", &random(640)?));
        for n in 0..2_000 {
            documents.push_str(&object("bench-data", &format!("c{n}"), &random(900)?));
        }
        let mut create = admin();
        create.args(["create", "-f", "-"]);
        feed(create, &documents)?;
        Ok(())
    }

    fn start_nginx(&mut self) -> anyhow::Result<()> {
        let dir = self.dir.path().join("nginx");
        std::fs::create_dir(&dir)?;
        for (name, text) in [("ca.pem", &self.api.ca), ("client.pem", &self.api.cert), ("client.key", &self.api.key)] {
            std::fs::write(dir.join(name), text)?;
        }
        let tls = self.dir.path().join("data/tls");
        let config = format!(
            "worker_processes 2; pid {d}/pid; error_log {d}/error.log; daemon off;\n\
             events {{ worker_connections 4096; }}\n\
             http {{ access_log off; client_body_temp_path {d}/b; proxy_temp_path {d}/p; fastcgi_temp_path {d}/f; uwsgi_temp_path {d}/u; scgi_temp_path {d}/s;\n\
             upstream api {{ server 127.0.0.1:{api}; keepalive 64; }}\n\
             server {{ listen 127.0.0.1:{port} ssl; keepalive_requests 1000000;\n\
             ssl_certificate {tls}/server.crt; ssl_certificate_key {tls}/server.key;\n\
             location / {{ proxy_pass https://api; proxy_http_version 1.1; proxy_set_header Connection \"\"; proxy_set_header Host 127.0.0.1:{api};\n\
             proxy_ssl_certificate {d}/client.pem; proxy_ssl_certificate_key {d}/client.key; proxy_ssl_trusted_certificate {d}/ca.pem; proxy_ssl_verify on; proxy_ssl_name localhost; proxy_buffering off;\n\
             proxy_set_header Impersonate-User bailiwick:user:dev; proxy_set_header Impersonate-Group system:masters; }} }} }}\n",
            d = dir.display(),
            api = self.api.port,
            port = self.nginx_port,
            tls = tls.display(),
        );
        let path = dir.join("nginx.conf");
        std::fs::write(&path, config)?;
        let nginx = Command::new("nginx")
            .args(["-p".as_ref(), dir.as_os_str(), "-c".as_ref(), path.as_os_str()])
            .stderr(Stdio::null())
            .spawn()
            .context("nginx is not installed (Debian: apt-get install nginx-light)")?;
        let master = nginx.id();
        self.children.push(Running(nginx));
        let port = self.nginx_port;
        wait("nginx", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok())?;
        let workers = output({
            let mut pgrep = Command::new("pgrep");
            pgrep.args(["-P", &master.to_string()]);
            pgrep
        })?;
        self.nginx_pids = workers.split_whitespace().filter_map(|pid| pid.parse().ok()).chain([master]).collect();
        Ok(())
    }

    fn kubectl_command(&self, kubeconfig: &str) -> Command {
        let mut command = Command::new(&self.kubectl);
        command.args(["--kubeconfig", kubeconfig]);
        command
    }

    pub fn direct(&self, path: &str) -> Target {
        let tls = client(&self.api.ca, Some((&self.api.cert, &self.api.key)));
        Target { port: self.api.port, path: path.to_owned(), token: None, tls, pids: vec![] }
    }

    pub fn nginx(&self, path: &str) -> Target {
        let tls = client(&self.own_ca(), None);
        Target { port: self.nginx_port, path: path.to_owned(), token: None, tls, pids: self.nginx_pids.clone() }
    }

    pub fn bailiwick(&self, path: &str) -> Target {
        Target {
            port: self.port,
            path: format!("/k8s/clusters/bench{path}"),
            token: Some(self.token.clone()),
            tls: client(&self.own_ca(), None),
            pids: vec![self.service_pid],
        }
    }

    fn own_ca(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("data/ca.crt")).unwrap_or_default()
    }

    /// Changes the small object again and again, with pauses, until the value is dropped.
    pub fn keep_changing(&self, pause: Duration) -> anyhow::Result<impl Drop + use<>> {
        let target = self.direct("/api/v1/namespaces/bench-web/configmaps/small");
        let task = tokio::spawn(async move {
            let connector = tokio_rustls::TlsConnector::from(target.tls.clone());
            let Ok(tcp) = tokio::net::TcpStream::connect(("127.0.0.1", target.port)).await else { return };
            let Ok(name) = rustls::pki_types::ServerName::try_from("127.0.0.1") else { return };
            let Ok(tls) = connector.connect(name, tcp).await else { return };
            let Ok((mut sender, connection)) = hyper::client::conn::http1::handshake::<
                _,
                http_body_util::Full<bytes::Bytes>,
            >(hyper_util::rt::TokioIo::new(tls))
            .await
            else {
                return;
            };
            tokio::spawn(connection);
            for n in 0u32..100_000 {
                let body = format!("{{\"metadata\":{{\"annotations\":{{\"n\":\"{n}\"}}}}}}");
                let request = http::Request::patch(&target.path)
                    .header("host", "127.0.0.1")
                    .header("content-type", "application/merge-patch+json")
                    .body(http_body_util::Full::new(bytes::Bytes::from(body)));
                let Ok(request) = request else { return };
                let Ok(response) = sender.send_request(request).await else { return };
                let _ = http_body_util::BodyExt::collect(response.into_body()).await;
                if sender.ready().await.is_err() {
                    return;
                }
                tokio::time::sleep(pause).await;
            }
        });
        Ok(Abort(task))
    }

    /// As [`Stage::bailiwick`], for the account that is there to be cut off.
    pub fn to_be_cut(&self, path: &str) -> Target {
        Target { token: Some(self.token_to_cut.clone()), ..self.bailiwick(path) }
    }

    /// As [`Stage::bailiwick`], with another token.
    pub fn bailiwick_as(&self, token: &str, path: &str) -> Target {
        Target { token: Some(token.to_owned()), ..self.bailiwick(path) }
    }

    /// A request to the service's own API with the administrator's session, as the command line sends it.
    pub fn api(&self, path: &str) -> anyhow::Result<Target> {
        let session = std::fs::read(self.dir.path().join("home/bailiwick/config.json"))?;
        let session: Value = serde_json::from_slice(&session)?;
        Ok(Target {
            port: self.port,
            path: path.to_owned(),
            token: Some(session["token"].as_str().context("no session")?.to_owned()),
            tls: client(&self.own_ca(), None),
            pids: vec![self.service_pid],
        })
    }
}

struct Abort(tokio::task::JoinHandle<()>);

impl Drop for Abort {
    fn drop(&mut self) {
        self.0.abort();
    }
}

const PLATFORM: &str = "\
apiVersion: bailiwick.dev/v1alpha1
kind: User
metadata: {name: dev}
spec: {type: Machine}
---
apiVersion: bailiwick.dev/v1alpha1
kind: User
metadata: {name: cut}
spec: {type: Machine}
---
apiVersion: bailiwick.dev/v1alpha1
kind: Project
metadata: {name: bench}
spec: {clusters: [{cluster: bench, namespaces: [bench-web, bench-data]}]}
---
apiVersion: bailiwick.dev/v1alpha1
kind: Grant
metadata: {name: bench-dev}
spec: {subject: {kind: User, name: dev}, role: member, target: {kind: Project, name: bench}}
---
apiVersion: bailiwick.dev/v1alpha1
kind: Grant
metadata: {name: bench-cut}
spec: {subject: {kind: User, name: cut}, role: member, target: {kind: Project, name: bench}}
";

fn read_api(kubeconfig: &str, server: &str) -> anyhow::Result<Api> {
    let parsed: Value = serde_saphyr::from_str(&std::fs::read_to_string(kubeconfig)?)?;
    let decode = |value: &Value, what: &str| -> anyhow::Result<String> {
        let text = value.as_str().with_context(|| format!("{kubeconfig}: {what}"))?;
        Ok(String::from_utf8(STANDARD.decode(text)?)?)
    };
    let user = &parsed["users"][0]["user"];
    Ok(Api {
        port: server.rsplit(':').next().and_then(|port| port.parse().ok()).context("server without a port")?,
        ca: decode(&parsed["clusters"][0]["cluster"]["certificate-authority-data"], "CA")?,
        cert: decode(&user["client-certificate-data"], "client certificate")?,
        key: decode(&user["client-key-data"], "client key")?,
    })
}

fn client(ca: &str, identity: Option<(&str, &str)>) -> Arc<rustls::ClientConfig> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(ca.as_bytes()).flatten() {
        let _ = roots.add(certificate);
    }
    let builder = rustls::ClientConfig::builder().with_root_certificates(roots);
    let with_identity = identity.and_then(|(cert, key)| {
        let chain: Vec<_> = CertificateDer::pem_slice_iter(cert.as_bytes()).flatten().collect();
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).ok()?;
        builder.clone().with_client_auth_cert(chain, key).ok()
    });
    Arc::new(with_identity.unwrap_or_else(|| builder.with_no_client_auth()))
}

fn random(bytes: usize) -> anyhow::Result<String> {
    let mut raw = vec![0; bytes];
    getrandom::fill(&mut raw)?;
    Ok(STANDARD.encode(raw))
}

/// Memory of a process once it has stopped growing, within a few seconds.
fn settled_mib(pid: u32) -> anyhow::Result<f64> {
    let mut last = resident_kib(pid)?;
    for _ in 0..10 {
        std::thread::park_timeout(Duration::from_millis(500));
        let now = resident_kib(pid)?;
        if now <= last {
            return Ok(now / 1024.0);
        }
        last = now;
    }
    Ok(last / 1024.0)
}

fn free_port() -> anyhow::Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

fn wait(what: &str, mut done: impl FnMut() -> bool) -> anyhow::Result<()> {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !done() {
        if Instant::now() > deadline {
            bail!("{what} was not ready in time");
        }
        std::thread::park_timeout(Duration::from_millis(50));
    }
    Ok(())
}

fn output(mut command: Command) -> anyhow::Result<String> {
    let done = command.stdin(Stdio::null()).output()?;
    if !done.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&done.stderr));
    }
    Ok(String::from_utf8(done.stdout)?)
}

fn feed(mut command: Command, text: &str) -> anyhow::Result<()> {
    use std::io::Write as _;
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    child.stdin.take().context("no input")?.write_all(text.as_bytes())?;
    let done = child.wait_with_output()?;
    if !done.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&done.stderr));
    }
    Ok(())
}
