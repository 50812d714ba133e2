//! The load: closed loops over kept connections, watches, and single requests.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Where a request goes, and which processes' CPU it is charged to.
pub struct Target {
    pub port: u16,
    pub path: String,
    pub token: Option<String>,
    pub tls: Arc<rustls::ClientConfig>,
    pub pids: Vec<u32>,
}

/// One measurement.
#[derive(Debug, Clone, Copy)]
pub struct Measured {
    pub per_second: f64,
    pub p50: f64,
    pub p99: f64,
    /// CPU of the proxy a request, in microseconds; 0 without a proxy.
    pub cpu_micros: f64,
}

/// Drives a target for a while.
pub async fn run(target: &Target, connections: usize, span: Duration, gzip: bool) -> anyhow::Result<Measured> {
    let mut senders = vec![];
    for _ in 0..connections {
        senders.push(connect(target).await?);
    }
    let cpu_before = cpu(&target.pids)?;
    let begun = Instant::now();
    let end = begun + span;
    let loops = senders.into_iter().map(|sender| drive(sender, target, end, gzip));
    let mut took: Vec<Duration> = futures::future::try_join_all(loops).await?.into_iter().flatten().collect();
    let seconds = begun.elapsed().as_secs_f64();
    let cpu_spent = cpu(&target.pids)? - cpu_before;
    took.sort_unstable();
    if took.is_empty() {
        bail!("no request was answered");
    }
    let at = |q: f64| took[((took.len() - 1) as f64 * q) as usize].as_secs_f64() * 1000.0;
    Ok(Measured {
        per_second: took.len() as f64 / seconds,
        p50: at(0.5),
        p99: at(0.99),
        cpu_micros: cpu_spent * 1_000_000.0 / took.len() as f64,
    })
}

type Sender = http1::SendRequest<Empty<Bytes>>;

async fn connect(target: &Target) -> anyhow::Result<Sender> {
    let tcp = TcpStream::connect(("127.0.0.1", target.port)).await?;
    tcp.set_nodelay(true)?;
    let tls = TlsConnector::from(target.tls.clone()).connect(ServerName::try_from("127.0.0.1")?, tcp).await?;
    let (sender, connection) = http1::handshake(TokioIo::new(tls)).await?;
    tokio::spawn(connection);
    Ok(sender)
}

async fn drive(mut sender: Sender, target: &Target, end: Instant, gzip: bool) -> anyhow::Result<Vec<Duration>> {
    let mut took = vec![];
    while Instant::now() < end {
        let mut request = http::Request::get(&target.path).header("host", "127.0.0.1");
        if let Some(token) = &target.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        if gzip {
            request = request.header("accept-encoding", "gzip");
        }
        let begun = Instant::now();
        let response = sender.send_request(request.body(Empty::new())?).await?;
        let status = response.status();
        let mut body = response.into_body();
        while let Some(frame) = body.frame().await {
            frame?;
        }
        if !status.is_success() {
            bail!("{} answered {status}", target.path);
        }
        took.push(begun.elapsed());
        sender.ready().await?;
    }
    Ok(took)
}

/// Asks for some paths one after the other, on one connection, again and again; how long each round of them took.
pub async fn rounds(target: &Target, paths: &[String], accept: &str, span: Duration) -> anyhow::Result<Vec<Duration>> {
    let mut sender = connect(target).await?;
    let end = Instant::now() + span;
    let mut took = vec![];
    while took.is_empty() || Instant::now() < end {
        let begun = Instant::now();
        for path in paths {
            let mut request = http::Request::get(path).header("host", "127.0.0.1").header("accept", accept);
            if let Some(token) = &target.token {
                request = request.header("authorization", format!("Bearer {token}"));
            }
            let response = sender.send_request(request.body(Empty::new())?).await?;
            let status = response.status();
            let mut body = response.into_body();
            while let Some(frame) = body.frame().await {
                frame?;
            }
            if !status.is_success() {
                bail!("{path} answered {status}");
            }
            sender.ready().await?;
        }
        took.push(begun.elapsed());
    }
    Ok(took)
}

/// A connection that writes JSON, one request after the other.
pub struct Writer<'a> {
    target: &'a Target,
    sender: http1::SendRequest<Full<Bytes>>,
}

impl<'a> Writer<'a> {
    pub async fn connect(target: &'a Target) -> anyhow::Result<Self> {
        let tcp = TcpStream::connect(("127.0.0.1", target.port)).await?;
        tcp.set_nodelay(true)?;
        let tls = TlsConnector::from(target.tls.clone()).connect(ServerName::try_from("127.0.0.1")?, tcp).await?;
        let (sender, connection) = http1::handshake(TokioIo::new(tls)).await?;
        tokio::spawn(connection);
        Ok(Self { target, sender })
    }

    /// Sends a body, or asks where there is none.
    pub async fn send(&mut self, method: &str, path: &str, body: &str) -> anyhow::Result<http::StatusCode> {
        let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let mut request = http::Request::builder().method(method).uri(path).header("host", "127.0.0.1");
        if let Some(token) = &self.target.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let request = request.header("content-type", kind).body(Full::new(Bytes::from(body.to_owned())))?;
        let response = self.sender.send_request(request).await?;
        let status = response.status();
        let mut body = response.into_body();
        while let Some(frame) = body.frame().await {
            frame?;
        }
        self.sender.ready().await?;
        Ok(status)
    }
}

/// Watches that are open; they end when this is dropped.
pub struct Watches {
    tasks: Vec<tokio::task::JoinHandle<()>>,
    pub responses: Vec<http::Response<hyper::body::Incoming>>,
}

impl Drop for Watches {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// Opens watches, as client-go does: many on one HTTP/2 connection.
pub async fn open_watches(target: &Target, count: usize) -> anyhow::Result<Watches> {
    const PER_CONNECTION: usize = 100;
    let mut tls = (*target.tls).clone();
    tls.alpn_protocols = vec![b"h2".to_vec()];
    let connector = TlsConnector::from(Arc::new(tls));
    let mut watches = Watches { tasks: vec![], responses: vec![] };
    for _ in 0..count.div_ceil(PER_CONNECTION) {
        let tcp = TcpStream::connect(("127.0.0.1", target.port)).await?;
        let tls = connector.connect(ServerName::try_from("127.0.0.1")?, tcp).await?;
        let executor = hyper_util::rt::TokioExecutor::new();
        let (sender, connection) = hyper::client::conn::http2::handshake(executor, TokioIo::new(tls)).await?;
        watches.tasks.push(tokio::spawn(async move {
            let _ = connection.await;
        }));
        let opening = (0..PER_CONNECTION.min(count - watches.responses.len())).map(|_| {
            let mut request = http::Request::get(format!("https://127.0.0.1:{}{}", target.port, target.path));
            if let Some(token) = &target.token {
                request = request.header("authorization", format!("Bearer {token}"));
            }
            let request = request.body(Empty::<Bytes>::new());
            let mut sender = sender.clone();
            async move { anyhow::Ok(sender.send_request(request?).await?) }
        });
        for response in futures::future::try_join_all(opening).await? {
            if !response.status().is_success() {
                bail!("watch answered {}", response.status());
            }
            watches.responses.push(response);
        }
    }
    Ok(watches)
}

/// CPU seconds that processes have used.
pub fn cpu(pids: &[u32]) -> anyhow::Result<f64> {
    let mut ticks = 0u64;
    for pid in pids {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).with_context(|| format!("process {pid}"))?;
        let after = stat.rsplit_once(')').map(|(_, rest)| rest).unwrap_or_default();
        let fields: Vec<&str> = after.split_whitespace().collect();
        ticks += fields[11].parse::<u64>()? + fields[12].parse::<u64>()?;
    }
    // USER_HZ is 100 on every Linux that this runs on.
    Ok(ticks as f64 / 100.0)
}

/// Posts JSON from a loopback address and returns the status when the head of the answer came.
pub async fn post(target: &Target, from: Ipv4Addr, body: &Value) -> anyhow::Result<http::StatusCode> {
    let socket = tokio::net::TcpSocket::new_v4()?;
    socket.bind((from, 0).into())?;
    let tcp = socket.connect((Ipv4Addr::LOCALHOST, target.port).into()).await?;
    let tls = TlsConnector::from(target.tls.clone()).connect(ServerName::try_from("127.0.0.1")?, tcp).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(tls)).await?;
    tokio::spawn(connection);
    let mut request = http::Request::post(&target.path).header("host", "127.0.0.1");
    if let Some(token) = &target.token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let request = request.header("content-type", "application/json");
    let response = sender.send_request(request.body(Full::new(Bytes::from(body.to_string())))?).await?;
    Ok(response.status())
}
