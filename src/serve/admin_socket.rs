//! The socket in the data directory: what only the host may do beside a running service.
//!
//! Mode 0600; whoever may connect may also read the database and the master key.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};
use zeroize::Zeroizing;

use crate::config::Settings;
use crate::domain::roles::PLATFORM_ADMIN;
use crate::identity::bootstrap;
use crate::store::Store;
use crate::store::sealed::Sealer;
use crate::store::sqlite::SqliteSettings;

const NAME: &str = "admin.sock";
const RECOVER: &str = "recover-admin";
/// Time for one exchange.
const DEADLINE: Duration = Duration::from_secs(30);

/// Opens the socket and answers on it until `shutdown`.
pub fn start(
    data_dir: &Path,
    store: Arc<dyn Store>,
    sealer: Arc<Sealer>,
    shutdown: CancellationToken,
    tasks: &TaskTracker,
) -> anyhow::Result<()> {
    let path = data_dir.join(NAME);
    // Ours by the directory's lock; one that is there is left over from a crash.
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).with_context(|| format!("{}", path.display()))?;
    // The directory is 0700, so that nobody else gets here before this.
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
    tasks.spawn(async move {
        loop {
            let accepted = tokio::select! {
                () = shutdown.cancelled() => break,
                accepted = listener.accept() => accepted,
            };
            let Ok((stream, _)) = accepted else { continue };
            match tokio::time::timeout(DEADLINE, answer(stream, &*store, &sealer)).await {
                Ok(Ok(())) => {}
                Ok(Err(why)) => warn!(why = format!("{why:#}"), "admin socket"),
                Err(_) => warn!("admin socket: no exchange in time"),
            }
        }
        let _ = std::fs::remove_file(path);
    });
    Ok(())
}

async fn answer(stream: UnixStream, store: &dyn Store, sealer: &Sealer) -> anyhow::Result<()> {
    let (read, mut write) = stream.into_split();
    let mut line = String::new();
    BufReader::new(read.take(64)).read_line(&mut line).await?;
    let reply = match line.trim_end() {
        RECOVER => match bootstrap::recover_admin(store, sealer, PLATFORM_ADMIN).await {
            Ok(password) => {
                info!(user = PLATFORM_ADMIN, "administrator recovered from the host");
                Zeroizing::new(format!("ok {}\n", *password))
            }
            Err(why) => Zeroizing::new(format!("error {why}\n")),
        },
        _ => Zeroizing::new("error unknown request\n".to_owned()),
    };
    write.write_all(reply.as_bytes()).await?;
    Ok(())
}

/// Recovers the administrator: through the socket of a running service, else by opening the store.
pub async fn recover(settings: &Settings) -> anyhow::Result<Zeroizing<String>> {
    let path = settings.data_dir.join(NAME);
    if let Ok(stream) = UnixStream::connect(&path).await {
        return ask(stream, path).await;
    }
    if !settings.data_dir.join("store.db").exists() {
        bail!("{} holds no store of the service; is --data-dir right?", settings.data_dir.display());
    }
    let blocking = settings.clone();
    let opened = tokio::task::spawn_blocking(move || super::open(&blocking, SqliteSettings::default())).await??;
    let recovered = bootstrap::recover_admin(&*opened.store, &opened.sealer, PLATFORM_ADMIN).await;
    opened.store.close().await;
    Ok(recovered?)
}

async fn ask(stream: UnixStream, path: PathBuf) -> anyhow::Result<Zeroizing<String>> {
    let (read, mut write) = stream.into_split();
    let exchange = async {
        write.write_all(format!("{RECOVER}\n").as_bytes()).await?;
        let mut reply = Zeroizing::new(String::new());
        BufReader::new(read.take(4096)).read_line(&mut reply).await?;
        anyhow::Ok(reply)
    };
    let reply = tokio::time::timeout(DEADLINE, exchange)
        .await
        .map_err(|_| anyhow!("{}: the running service does not answer", path.display()))??;
    match reply.trim_end().split_once(' ') {
        Some(("ok", password)) => Ok(Zeroizing::new(password.to_owned())),
        Some(("error", why)) => bail!("the running service refused: {why}"),
        _ => bail!("{}: no answer of ours", path.display()),
    }
}
