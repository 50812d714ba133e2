//! The load: closed loops over kept connections, and readers that measure a cut.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::stage::Stage;

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

/// Watches that are open and idle; they end when this is dropped.
pub struct Watches {
    _tasks: Vec<tokio::task::JoinHandle<()>>,
    _responses: Vec<http::Response<hyper::body::Incoming>>,
}

/// Opens idle watches, as client-go does: many on one HTTP/2 connection.
pub async fn open_watches(stage: &Stage, count: usize) -> anyhow::Result<Watches> {
    const PER_CONNECTION: usize = 250;
    let target = stage.bailiwick("/api/v1/namespaces/bench-web/pods?watch=1");
    let mut tls = (*target.tls).clone();
    tls.alpn_protocols = vec![b"h2".to_vec()];
    let connector = TlsConnector::from(Arc::new(tls));
    let (mut tasks, mut responses) = (vec![], vec![]);
    for _ in 0..count.div_ceil(PER_CONNECTION) {
        let tcp = TcpStream::connect(("127.0.0.1", target.port)).await?;
        let tls = connector.connect(ServerName::try_from("127.0.0.1")?, tcp).await?;
        let executor = hyper_util::rt::TokioExecutor::new();
        let (sender, connection) = hyper::client::conn::http2::handshake(executor, TokioIo::new(tls)).await?;
        tasks.push(tokio::spawn(async move {
            let _ = connection.await;
        }));
        let opening = (0..PER_CONNECTION.min(count - responses.len())).map(|_| {
            let request = http::Request::get(format!("https://127.0.0.1:{}{}", target.port, target.path))
                .header("authorization", format!("Bearer {}", target.token.clone().unwrap_or_default()))
                .body(Empty::<Bytes>::new());
            let mut sender = sender.clone();
            async move { anyhow::Ok(sender.send_request(request?).await?) }
        });
        for response in futures::future::try_join_all(opening).await? {
            if !response.status().is_success() {
                bail!("watch answered {}", response.status());
            }
            responses.push(response);
        }
    }
    Ok(Watches { _tasks: tasks, _responses: responses })
}

/// CPU seconds that processes have used.
fn cpu(pids: &[u32]) -> anyhow::Result<f64> {
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

/// Posts and returns when the head of the answer came.
async fn post(target: &Target) -> anyhow::Result<Instant> {
    let mut sender = connect(target).await?;
    let token = target.token.as_deref().unwrap_or_default();
    let request = http::Request::post(&target.path)
        .header("host", "127.0.0.1")
        .header("authorization", format!("Bearer {token}"))
        .body(Empty::<Bytes>::new())?;
    let response = sender.send_request(request).await?;
    if !response.status().is_success() {
        bail!("{} answered {}", target.path, response.status());
    }
    Ok(Instant::now())
}

/// From acknowledgement to last byte, over all streams, in milliseconds.
pub struct CutOff {
    pub p99: f64,
    pub max: f64,
}

/// Opens watches on changing objects, suspends the account and reads on.
pub async fn cut_off(stage: &Stage, streams: usize) -> anyhow::Result<CutOff> {
    let target = stage.bailiwick("/api/v1/namespaces/bench-web/configmaps?watch=1");
    let mut readers = vec![];
    let (acknowledged, seen) = tokio::sync::watch::channel(None::<Instant>);
    for _ in 0..streams {
        let mut sender = connect(&target).await?;
        let token = target.token.clone().unwrap_or_default();
        let request = http::Request::get(&target.path)
            .header("host", "127.0.0.1")
            .header("authorization", format!("Bearer {token}"))
            .body(Empty::<Bytes>::new())?;
        let response = sender.send_request(request).await?;
        if !response.status().is_success() {
            bail!("watch answered {}", response.status());
        }
        let seen = seen.clone();
        readers.push(tokio::spawn(async move {
            let _sender = sender;
            let mut body = response.into_body();
            let mut last = Instant::now();
            while let Some(Ok(_)) = body.frame().await {
                last = Instant::now();
            }
            let acknowledged = seen.borrow().unwrap_or(last);
            last.saturating_duration_since(acknowledged).as_secs_f64() * 1000.0
        }));
    }
    let changes = stage.keep_changing()?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    acknowledged.send_replace(Some(post(&stage.suspend()?).await?));
    let mut took = vec![];
    for reader in readers {
        took.push(tokio::time::timeout(Duration::from_secs(20), reader).await.context("a stream was not cut")??);
    }
    drop(changes);
    took.sort_by(f64::total_cmp);
    Ok(CutOff { p99: took[(took.len() - 1) * 99 / 100], max: took[took.len() - 1] })
}
