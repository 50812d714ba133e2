//! The socket in the data directory: what only the host may do beside a running service.
//!
//! Mode 0600; whoever may connect may also read the database and the master key. One request a connection: a line of
//! JSON, answered by lines of JSON, the last of which is the outcome.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::warn;
use zeroize::{Zeroize as _, Zeroizing};

use super::host::{self, Host, Request, Tell};
use crate::config::Settings;

const NAME: &str = "admin.sock";
/// Time for a request to come, and for a word on its progress.
const DEADLINE: Duration = Duration::from_secs(30);
/// Between two words to whoever waits, so that silence means that nobody is there.
const ALIVE: Duration = Duration::from_secs(5);
/// Requests at the same time.
const AT_ONCE: usize = 4;
/// Longest request, and longest line of an answer.
const LINE: u64 = 64 << 10;

/// A line of an answer.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Reply {
    /// Still at it.
    Alive,
    /// How far it is.
    Progress(String),
    /// The outcome.
    Done(String),
    /// Why there is none.
    Refused(String),
}

/// Opens the socket and answers on it until `shutdown`.
pub(super) fn start(host: Arc<Host>, shutdown: CancellationToken, tasks: &TaskTracker) -> anyhow::Result<()> {
    let path = host.data_dir.join(NAME);
    // Ours by the directory's lock; one that is there is left over from a crash.
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).with_context(|| format!("{}", path.display()))?;
    // The directory is 0700, so that nobody else gets here before this.
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
    let (room, own) = (Arc::new(Semaphore::new(AT_ONCE)), tasks.clone());
    tasks.spawn(async move {
        while let Some(accepted) = shutdown.run_until_cancelled(listener.accept()).await {
            let Ok((stream, _)) = accepted else { continue };
            let Ok(place) = room.clone().acquire_owned().await else { break };
            let (host, shutdown) = (host.clone(), shutdown.clone());
            own.spawn(async move {
                if let Some(Err(why)) = shutdown.run_until_cancelled(answer(stream, &host)).await {
                    warn!(why = format!("{why:#}"), "admin socket");
                }
                drop(place);
            });
        }
        let _ = std::fs::remove_file(path);
    });
    Ok(())
}

async fn answer(stream: UnixStream, host: &Host) -> anyhow::Result<()> {
    let (read, mut write) = stream.into_split();
    let mut line = String::new();
    let mut read = BufReader::new(read.take(LINE));
    tokio::time::timeout(DEADLINE, read.read_line(&mut line)).await.context("no request in time")??;
    let request = match serde_json::from_str::<Request>(&line) {
        Ok(request) => request,
        Err(why) => return reply(&mut write, Reply::Refused(format!("unknown request: {why}"))).await,
    };
    let (tell, mut told) = mpsc::unbounded_channel();
    let work = host.perform(request, tell);
    tokio::pin!(work);
    let mut alive = tokio::time::interval(ALIVE);
    let outcome = loop {
        // A listener that went away ends nothing: half a rotation is worse than one that nobody saw end.
        let _ = tokio::select! {
            outcome = &mut work => break outcome,
            Some(text) = told.recv() => reply(&mut write, Reply::Progress(text)).await,
            _ = alive.tick() => reply(&mut write, Reply::Alive).await,
        };
    };
    while let Ok(text) = told.try_recv() {
        reply(&mut write, Reply::Progress(text)).await?;
    }
    match outcome {
        Ok(text) => reply(&mut write, Reply::Done(text.to_string())).await,
        Err(why) => reply(&mut write, Reply::Refused(format!("{why:#}"))).await,
    }
}

async fn reply(write: &mut (impl AsyncWrite + Unpin), mut reply: Reply) -> anyhow::Result<()> {
    let mut line = Zeroizing::new(serde_json::to_vec(&reply)?);
    line.push(b'\n');
    if let Reply::Done(text) = &mut reply {
        text.zeroize();
    }
    Ok(tokio::time::timeout(DEADLINE, write.write_all(&line)).await.context("nobody reads")??)
}

/// Asks for something: of a running service by its socket, else by opening the store. `say` hears how far it is.
pub(super) async fn ask(
    settings: &Settings,
    request: Request,
    mut say: impl FnMut(&str),
) -> anyhow::Result<Zeroizing<String>> {
    let path = settings.data_dir.join(NAME);
    if let Ok(stream) = UnixStream::connect(&path).await {
        return ask_service(stream, &path, &request, say).await;
    }
    let (tell, mut told): (Tell, _) = mpsc::unbounded_channel();
    let work = host::alone(settings, request, tell);
    tokio::pin!(work);
    loop {
        tokio::select! {
            outcome = &mut work => return outcome,
            Some(text) = told.recv() => say(&text),
        }
    }
}

async fn ask_service(
    stream: UnixStream,
    path: &Path,
    request: &Request,
    mut say: impl FnMut(&str),
) -> anyhow::Result<Zeroizing<String>> {
    let silent = || anyhow!("{}: the running service does not answer", path.display());
    let (read, mut write) = stream.into_split();
    let mut asked = serde_json::to_vec(request)?;
    asked.push(b'\n');
    tokio::time::timeout(DEADLINE, write.write_all(&asked)).await.map_err(|_| silent())??;
    let mut read = BufReader::new(read);
    loop {
        let mut line = Zeroizing::new(String::new());
        let mut one = (&mut read).take(LINE);
        tokio::time::timeout(DEADLINE, one.read_line(&mut line)).await.map_err(|_| silent())??;
        match serde_json::from_str(&line).with_context(|| format!("{}: no answer of ours", path.display()))? {
            Reply::Alive => {}
            Reply::Progress(text) => say(&text),
            Reply::Done(text) => return Ok(Zeroizing::new(text)),
            Reply::Refused(why) => bail!("the running service refused: {why}"),
        }
    }
}

/// A path as the service understands it, which has another working directory.
pub(super) fn absolute(path: &Path) -> anyhow::Result<PathBuf> {
    std::path::absolute(path).with_context(|| format!("{}", path.display()))
}
