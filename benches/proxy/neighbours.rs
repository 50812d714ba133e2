//! Neighbours: a tenant's small GETs while another one has all that its budgets let it have, and asks for more.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::load::{self, Measured, Target, Writer};
use super::stage::Stage;
use super::{Report, SMALL, Scale, figure, median};

/// Requests that are begun and never finished: more than one token gets places for.
const BEGUN: usize = 400;
/// Connections that go on asking, and their pause: clients that do not wait as they are told to.
const ASKING: usize = 8;
const PAUSE: Duration = Duration::from_millis(5);
/// Pause before what ended is begun again.
const AGAIN: Duration = Duration::from_millis(500);
/// Longest wait until the other tenant is at its limits.
const LONGEST: Duration = Duration::from_secs(60);
/// Streams of one token.
const STREAMS: usize = 2_000;
/// Connections of the neighbour.
const CONNECTIONS: usize = 4;

/// What the other tenant begins and never finishes.
#[derive(Clone, Copy)]
enum Unfinished {
    /// Questions about itself, which are read whole before a cluster is asked: its places are taken, and nothing else.
    Reviews,
    /// Writes, which the API server waits for as well, in places that people share there. How many of them, is bounded by
    /// the shares of account and project; how many seats it counts for each, is the API server's to say.
    Writes,
}

/// Measures the member of project `bench` beside the one of project `hostile`, whose token this is.
pub async fn measure(stage: &Stage, scale: Scale, hostile: &str, report: &mut Report) -> anyhow::Result<()> {
    for (what, unfinished, key) in [
        ("reviews", Unfinished::Reviews, "neighbour_p99_ratio"),
        ("writes", Unfinished::Writes, "neighbour_of_unfinished_writes_p99_ratio"),
    ] {
        let target = stage.bailiwick(SMALL);
        let asks = async || load::run(&target, CONNECTIONS, scale.span, false).await;
        let mut alone = vec![asks().await?];
        let others = Others::start(stage, scale, hostile, unfinished).await?;
        let mut beside = vec![];
        for _ in 0..scale.rounds {
            beside.push(asks().await?);
        }
        let refused = others.stop()?;
        alone.push(asks().await?);
        let of = |rounds: &[Measured], figure: fn(&Measured) -> f64| median(rounds.iter().map(figure).collect());
        let (p99_alone, p99_beside) = (of(&alone, |m| m.p99), of(&beside, |m| m.p99));
        println!(
            "\nGET p99 {p99_alone:.2} ms alone, {p99_beside:.2} ms beside a tenant at all its limits with unfinished {what}, who was refused {refused} times; p50 {:.2} and {:.2} ms",
            of(&alone, |m| m.p50),
            of(&beside, |m| m.p50)
        );
        report.insert(key.into(), figure(p99_beside / p99_alone));
    }
    Ok(())
}

/// The tenant beside, on a thread of its own. It ends when this is dropped.
struct Others {
    over: Arc<AtomicBool>,
    refused: Arc<AtomicUsize>,
    thread: Option<std::thread::JoinHandle<anyhow::Result<()>>>,
}

impl Others {
    async fn start(stage: &Stage, scale: Scale, token: &str, unfinished: Unfinished) -> anyhow::Result<Self> {
        let (over, refused) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let namespace = "/api/v1/namespaces/hostile-0";
        let watch = stage.bailiwick_as(token, &format!("{namespace}/configmaps?watch=1"));
        let asked = match unfinished {
            Unfinished::Reviews => "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews".to_owned(),
            Unfinished::Writes => format!("{namespace}/configmaps?dryRun=All"),
        };
        let write = stage.bailiwick_as(token, &asked);
        let streams = if scale.quick { STREAMS / 10 } else { STREAMS };
        let (ended, counted) = (over.clone(), refused.clone());
        let (ready, is_ready) = tokio::sync::oneshot::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let _watches = load::open_watches(&watch, streams).await?;
                let begun = (0..BEGUN).map(|_| hold(&write, &counted));
                let asking = (0..ASKING).map(|_| ask(&write, &ended, &counted));
                let refused = async {
                    while counted.load(Ordering::Relaxed) == 0 {
                        tokio::time::sleep(PAUSE).await;
                    }
                };
                let until_over = async {
                    tokio::time::timeout(LONGEST, refused).await.context("the other tenant is not at its limits")?;
                    let _ = ready.send(());
                    futures::future::try_join_all(asking).await?;
                    anyhow::Ok(())
                };
                tokio::select! {
                    held = futures::future::try_join_all(begun) => held.map(drop),
                    over = until_over => over,
                }
            })
        });
        let others = Self { over, refused, thread: Some(thread) };
        match is_ready.await {
            Ok(()) => Ok(others),
            // Its error says why.
            Err(_) => others.stop().and(Err(anyhow::anyhow!("the other tenant did not begin"))),
        }
    }

    /// How often it was refused.
    fn stop(mut self) -> anyhow::Result<usize> {
        self.over.store(true, Ordering::Relaxed);
        let thread = self.thread.take().context("it was stopped already")?;
        thread.join().map_err(|_| anyhow::anyhow!("the other tenant panicked"))??;
        Ok(self.refused.load(Ordering::Relaxed))
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

type Begun = tokio_rustls::client::TlsStream<TcpStream>;

/// Begins a write of which most is missing.
async fn begin(target: &Target) -> anyhow::Result<Begun> {
    let tcp = TcpStream::connect(("127.0.0.1", target.port)).await?;
    let mut tls = TlsConnector::from(target.tls.clone()).connect(ServerName::try_from("127.0.0.1")?, tcp).await?;
    let head = format!(
        "POST {} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{{",
        target.path,
        target.token.as_deref().unwrap_or_default()
    );
    tls.write_all(head.as_bytes()).await?;
    Ok(tls)
}

/// Begins again and again what is never finished.
async fn hold(target: &Target, refused: &AtomicUsize) -> anyhow::Result<()> {
    loop {
        let mut begun = begin(target).await?;
        let mut head = [0; 12];
        let answered = begun.read_exact(&mut head).await;
        if answered.is_ok() && &head == b"HTTP/1.1 429" {
            refused.fetch_add(1, Ordering::Relaxed);
        }
        drop(begun);
        tokio::time::sleep(AGAIN).await;
    }
}

async fn ask(target: &Target, over: &AtomicBool, refused: &AtomicUsize) -> anyhow::Result<()> {
    let mut writer = Writer::connect(target).await?;
    while !over.load(Ordering::Relaxed) {
        if writer.send("POST", &target.path, "{}").await? == http::StatusCode::TOO_MANY_REQUESTS {
            refused.fetch_add(1, Ordering::Relaxed);
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}
