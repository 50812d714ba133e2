//! One service with a data directory of its own.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::Value;

use super::process::*;

pub type Tls = StreamOwned<ClientConnection, TcpStream>;

/// A service; it ends with this.
pub struct Served {
    pub folder: tempfile::TempDir,
    pub address: SocketAddr,
    pub metrics: SocketAddr,
    pub pid: u32,
    pub token: String,
    tls: Arc<ClientConfig>,
    _child: Child,
}

pub const PASSWORD: &str = "canary-password-right-5d1f";

impl Served {
    /// Starts it with these lines of configuration and so many files that it may open; the administrator signs in.
    pub fn start(files: u32, configuration: impl FnOnce(&Path) -> String) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let password = folder.path().join("password");
        std::fs::write(&password, "canary-password-first-5d1f\n").unwrap();
        let config = folder.path().join("config.toml");
        std::fs::write(&config, configuration(folder.path())).unwrap();
        let mut command = Command::new("sh");
        // Ends with the test process, however that ends: its standard input is a pipe from us.
        let script = format!("ulimit -n {files}; \"$@\" & echo $!; cat >/dev/null; kill -9 $!");
        command.args(["-c", &script, "sh", env!("CARGO_BIN_EXE_bailiwick"), "serve", "--config"]).arg(&config);
        command.arg("--data-dir").arg(folder.path().join("data")).arg("--bootstrap-password-file").arg(&password);
        command.args(["--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"]);
        let log = std::fs::File::create(folder.path().join("log")).unwrap();
        command.env("BAILIWICK_LOG", "trace").env("RUST_LOG", "trace");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let pid = lines.next().unwrap().unwrap().trim().parse().unwrap();
        let told = lines.next().expect("it starts").unwrap();
        let after = |word: &str| -> SocketAddr {
            let (_, rest) = told.split_once(word).unwrap_or_else(|| panic!("{told}"));
            rest.split([',', ')']).next().unwrap().trim().parse().unwrap()
        };
        let (address, metrics) = (after("listening on "), after("metrics on "));
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let mut roots = RootCertStore::empty();
        let ca = std::fs::read(folder.path().join("data/ca.crt")).unwrap();
        roots.add(CertificateDer::from_pem_slice(&ca).unwrap()).unwrap();
        let tls = Arc::new(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth());
        let mut served = Self { folder, address, metrics, pid, token: String::new(), tls, _child: child };
        let login =
            format!(r#"{{"username":"admin","password":"canary-password-first-5d1f","newPassword":"{PASSWORD}"}}"#);
        let (code, answer) = served.ask("POST", "/auth/login", "", &login);
        assert_eq!(code, 200, "{answer}");
        served.token = serde_json::from_str::<Value>(&body(&answer)).unwrap()["token"].as_str().unwrap().to_owned();
        served
    }

    pub fn connect(&self) -> std::io::Result<Tls> {
        let tcp = TcpStream::connect(self.address)?;
        tcp.set_read_timeout(Some(Duration::from_secs(20)))?;
        let name = ServerName::try_from("127.0.0.1").unwrap();
        Ok(StreamOwned::new(ClientConnection::new(self.tls.clone(), name).unwrap(), tcp))
    }

    /// All that comes back for these bytes until the connection ends.
    pub fn raw(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect().unwrap();
        let mut answer = vec![];
        // A server that has read enough closes while we still write, and without a farewell.
        let _ = stream.write_all(bytes);
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Code and whole answer.
    pub fn ask(&self, method: &str, target: &str, headers: &str, content: &str) -> (u16, String) {
        let answer = self.raw(
            format!(
                "{method} {target} HTTP/1.1\r\nHost: p\r\nConnection: close\r\nContent-Type: application/json\r\n\
                 {headers}Content-Length: {}\r\n\r\n{content}",
                content.len()
            )
            .as_bytes(),
        );
        (answer.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0), answer)
    }

    /// As the administrator.
    pub fn admin(&self, method: &str, target: &str, content: &str) -> (u16, String) {
        self.ask(method, target, &format!("Authorization: Bearer {}\r\n", self.token), content)
    }

    pub fn metrics(&self) -> String {
        let mut stream = TcpStream::connect(self.metrics).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: p\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// Resident memory, in MiB.
    pub fn memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
    }

    /// Open files, sockets among them.
    pub fn files(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid)).unwrap().count()
    }

    pub fn threads(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/task", self.pid)).unwrap().count()
    }

    /// Everything that it has written so far, by file.
    pub fn written(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let mut found = vec![];
        let mut folders = vec![self.folder.path().join("data")];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.is_file() {
                    let content = std::fs::read(&path).unwrap();
                    found.push((path, content));
                }
            }
        }
        let log = self.folder.path().join("log");
        let content = std::fs::read(&log).unwrap();
        found.push((log, content));
        found
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        kill(self.pid);
    }
}

/// The body of an answer.
pub fn body(answer: &str) -> String {
    answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default()
}
