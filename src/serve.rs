//! `bailiwick serve`: what it starts, in which order, and how it ends.

mod admin_socket;
mod audit_chain;
mod host;
mod keys;
mod logs;
pub mod master_key;
pub mod operations;
mod platform_record;
mod restore;
mod timekeeper;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{error, info, warn};
use zeroize::Zeroizing;

use self::host::{Host, Request};
use self::keys::Step;
use crate::access::Access;
use crate::api::{self, ApiParts, ApiState, PublicEndpoint};
use crate::audit::{Audit, AuditSettings};
use crate::cli::args::{BackupArgs, HostArgs, KeysArgs, KeysCommand, RecoverAdminArgs, RestoreArgs, ServeArgs};
use crate::cli::exit::{Failure, Outcome};
use crate::clock::Clock;
use crate::clusters::Clusters;
use crate::config::Settings;
use crate::controllers::Controllers;
use crate::domain::roles::PLATFORM_ADMIN;
use crate::identity::accounts::{AccountPolicy, Accounts};
use crate::identity::bootstrap::Bootstrap;
use crate::identity::last_used::LastUsed;
use crate::index::Index;
use crate::listener::{self, Doors};
use crate::metrics::{ClusterLabel, Metrics};
use crate::proxy::{Proxy, ProxyParts};
use crate::store::Store;
use crate::store::anchor::{self, Anchor};
use crate::store::sealed::Sealer;
use crate::store::sqlite::{self, SqliteSettings, SqliteStore};
use crate::tenancy::Tenancy;
use crate::tls::ServerTls;

/// Time that requests in flight have to finish after a signal.
const GRACE: Duration = Duration::from_secs(10);
/// How often the files of certificate and master keys are looked at.
const RELOAD: Duration = Duration::from_secs(30);
/// How often tokens that ran out are removed.
const PURGE: Duration = Duration::from_secs(600);
/// Name of the file with the generated first password.
const FIRST_PASSWORD: &str = "admin-password";

/// Runs the service until a signal.
pub fn run(args: &ServeArgs) -> Outcome {
    let settings = Settings::load(args).map_err(|why| Failure::Usage(why.to_string()))?;
    logs::init();
    // The allocator would be given 2 MiB for each corner it begins to use: most of what an idle process holds.
    // Where the kernel knows no such pages, there is nothing to turn off.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
    let runtime = runtime()?;
    runtime.block_on(serve(settings)).map_err(|why| Failure::Failed(format!("{why:#}")))
}

/// Gives the administrator a new one-time password, beside a running service or without one.
pub fn recover_admin(args: &RecoverAdminArgs) -> Outcome {
    let RecoverAdminArgs { host } = args;
    let password = ask(host, Request::RecoverAdmin)?;
    println!("{}", *password);
    eprintln!("This is the new one-time password of {PLATFORM_ADMIN:?}; it must be changed at the next sign-in.");
    Ok(())
}

/// Copies the store into a file, beside a running service or without one.
pub fn backup(args: &BackupArgs) -> Outcome {
    let BackupArgs { file, host } = args;
    let file = admin_socket::absolute(file).map_err(|why| Failure::Usage(format!("{why:#}")))?;
    println!("{}", *ask(host, Request::Backup { file })?);
    Ok(())
}

/// Puts a backup, or the database that is there, in the place of the store. The service must not run.
pub fn restore(args: &RestoreArgs) -> Outcome {
    let RestoreArgs { file, as_it_is: _, host } = args;
    let settings = host_settings(host)?;
    let restored = runtime()?.block_on(restore::restore(&settings, file.as_deref()));
    println!("{}", restored.map_err(|why| Failure::Failed(format!("{why:#}")))?);
    Ok(())
}

/// A step of the rotation of the master key, beside a running service or without one.
pub fn keys(args: &KeysArgs) -> Outcome {
    let KeysArgs { command, host } = args;
    let step = match command.clone() {
        KeysCommand::List => Step::List,
        KeysCommand::Add => Step::Add,
        KeysCommand::Activate { id } => Step::Activate { id },
        KeysCommand::Rewrite => Step::Rewrite,
        KeysCommand::Retire { id } => Step::Retire { id },
    };
    println!("{}", *ask(host, Request::Keys(step))?);
    Ok(())
}

fn host_settings(args: &HostArgs) -> Outcome<Settings> {
    let HostArgs { config, data_dir } = args.clone();
    let serve_args = ServeArgs { config, data_dir, ..ServeArgs::default() };
    Settings::load(&serve_args).map_err(|why| Failure::Usage(why.to_string()))
}

/// Asks for what only the host may do; progress goes to standard error.
fn ask(args: &HostArgs, request: Request) -> Outcome<Zeroizing<String>> {
    let settings = host_settings(args)?;
    let asked = runtime()?.block_on(admin_socket::ask(&settings, request, |text| eprintln!("{text}")));
    asked.map_err(|why| Failure::Failed(format!("{why:#}")))
}

fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    let built = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    built.map_err(|why| Failure::Failed(format!("the runtime cannot be started: {why}")))
}

/// How many files this process may have open: as many as it is let.
fn open_files() -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // What this machine does not grant is not had, and the bound is what was there.
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    (if raised.is_ok() { maximum } else { current }).unwrap_or(u64::MAX)
}

/// The store and what opens it.
pub struct Opened {
    /// The engine.
    pub store: Arc<SqliteStore>,
    /// Seals and opens records.
    pub sealer: Arc<Sealer>,
    /// What the store must not be behind.
    pub anchor: Arc<Anchor>,
}

/// Opens the embedded store with its master key and its anchor. Blocks.
///
/// The key comes first: a store without one would never open again.
pub fn open(settings: &Settings, engine: SqliteSettings) -> anyhow::Result<Opened> {
    let directory = &settings.data_dir;
    let lock = sqlite::lock(directory)?;
    let is_new = !sqlite::exists(directory) && !anchor::exists(directory);
    let sealer = Arc::new(master_key::load(settings.master_key.file.as_deref(), directory, is_new)?);
    let anchor = Arc::new(Anchor::open(directory, sealer.clone())?);
    let engine = SqliteSettings { anchor: Some(anchor.clone()), ..engine };
    let store = SqliteStore::open_locked(directory, lock, engine)?;
    Ok(Opened { store: Arc::new(store), sealer, anchor })
}

async fn serve(settings: Settings) -> anyhow::Result<()> {
    let shutdown = CancellationToken::new();
    let tasks = TaskTracker::new();

    let listener = TcpListener::bind(settings.listen).await.with_context(|| format!("listen {}", settings.listen))?;
    let operations_listener = TcpListener::bind(settings.metrics_listen)
        .await
        .with_context(|| format!("metrics_listen {}", settings.metrics_listen))?;
    let (address, operations_address) = (listener.local_addr()?, operations_listener.local_addr()?);

    let metrics = Arc::new(Metrics::new());
    let blocking = settings.clone();
    let counted = SqliteSettings { writes: metrics.store_writes.clone(), ..SqliteSettings::default() };
    let opened = tokio::task::spawn_blocking(move || open(&blocking, counted)).await??;
    let acts = Arc::new(Host::new(&settings, opened));
    let (store, sealer) = (acts.store.clone(), acts.sealer.clone());
    let dyn_store: Arc<dyn Store> = store.clone();
    let chain = audit_chain::load(dyn_store.clone(), sealer.clone()).await?;
    let audit_settings = AuditSettings {
        key: chain.key(),
        head: chain.seen(),
        accept_loss: settings.accept_audit_loss,
        counters: metrics.audit.clone(),
        ..AuditSettings::default()
    };
    let audit = Audit::open(&settings.data_dir.join("audit"), audit_settings).context("audit log")?;
    let timekeeper = timekeeper::load(dyn_store.clone(), sealer.clone(), settings.accept_clock).await?;
    let (index, index_task) = Index::start_with(dyn_store.clone(), sealer.clone(), timekeeper.clock().clone()).await?;

    let accounts = Accounts::new(dyn_store.clone(), sealer.clone(), index.clone(), AccountPolicy::default());
    first_administrator(&accounts, &settings).await?;
    if let Err(why) = chain.tell_restore(&audit, index.snapshot().global_epoch).await {
        // Where the disk is full, one can still look; it is told at a later start.
        warn!(%why, "that the store was restored is not in the audit log yet");
    }

    let public = public_url(&settings, address);
    let host = public.parse::<http::Uri>().ok().and_then(|u| u.host().map(|h| h.trim_matches(['[', ']']).to_owned()));
    let tls = ServerTls::load(&settings.tls, &settings.data_dir, host.as_deref().unwrap_or("localhost"))?;

    let credential_dir = settings.credential_dir.clone();
    let clusters =
        Clusters::start(index.clone(), dyn_store.clone(), sealer.clone(), credential_dir, shutdown.child_token());
    let tenancy = Arc::new(Tenancy::new(dyn_store.clone(), index.clone()));
    let controllers = Controllers::start(
        index.clone(),
        dyn_store.clone(),
        clusters.clone(),
        tenancy.clone(),
        metrics.clone(),
        shutdown.child_token(),
    );
    // Before anything is decided: the proxy and the API look it up.
    let access = tokio::task::spawn_blocking(Access::shared).await??;
    let last_used = Arc::new(LastUsed::new(dyn_store.clone(), index.clone()));
    tasks.spawn(last_used.clone().run(shutdown.child_token()));
    let proxy = Proxy::new(ProxyParts {
        index: index.clone(),
        upstreams: clusters.clone(),
        audit: audit.clone(),
        metrics: metrics.clone(),
        last_used: last_used.clone(),
        settings: settings.proxy,
        namespaces: Some(controllers.clone()),
    });
    let judge = tasks.spawn(until(shutdown.child_token(), proxy.clone().judge()));
    let api = ApiState::new(ApiParts {
        store: dyn_store.clone(),
        sealer: sealer.clone(),
        index: index.clone(),
        accounts: accounts.clone(),
        last_used,
        access,
        tenancy,
        namespaces: controllers.clone(),
        clusters: clusters.clone(),
        audit: audit.clone(),
        public: PublicEndpoint { url: public.clone(), certificate_authority: tls.ca.clone().map(String::into_bytes) },
        shutdown: shutdown.child_token(),
    })?;

    let operations = Arc::new(operations::Operations {
        metrics: metrics.clone(),
        index: index.clone(),
        proxy: proxy.clone(),
        draining: AtomicBool::new(false),
    });
    let pages = operations::router(operations.clone());
    tasks.spawn(listener::serve_pages(
        operations_listener,
        pages,
        shutdown.child_token(),
        listener::Limits::of_pages(),
    ));
    tasks.spawn(until(shutdown.child_token(), keep_certificate(tls.reloader)));
    tasks.spawn(until(shutdown.child_token(), purge(accounts.clone(), index.clock().clone())));
    tasks.spawn(until(shutdown.child_token(), chain.clone().keep(audit.clone())));
    tasks.spawn(until(shutdown.child_token(), timekeeper.clone().keep()));
    tasks.spawn(until(shutdown.child_token(), follow_index(index.clone(), metrics.clone())));
    tasks.spawn(until(shutdown.child_token(), keep_keys(acts.clone())));
    admin_socket::start(acts, shutdown.child_token(), &tasks)?;

    let doors = Arc::new(Doors {
        proxy: proxy.clone(),
        api: api::router(api),
        metrics,
        trusted_proxies: settings.trusted_proxies.clone(),
    });
    let limits = listener::Limits::within(open_files());
    let accepting = tokio::spawn(listener::serve_within(listener, tls.config, doors, shutdown.clone(), GRACE, limits));
    info!(%address, operations = %operations_address, url = public, data_dir = %settings.data_dir.display(), "serving");
    // One line for people and scripts that started us, whatever the log level.
    println!("serving on {public} (listening on {address}, metrics on {operations_address})");

    tokio::select! {
        signal = wait_for_signal() => info!(signal = signal?, "going down"),
        ended = index_task => error!(?ended, "the index ended; going down"),
        // Without it nothing is cut any more.
        ended = judge => error!(?ended, "the judge of streams ended; going down"),
    }
    operations.draining.store(true, Ordering::Relaxed);
    shutdown.cancel();
    proxy.streams().cut_all("shutdown");
    if let Err(why) = accepting.await {
        error!(%why, "listener");
    }
    tasks.close();
    if tokio::time::timeout(GRACE, tasks.wait()).await.is_err() {
        warn!("some tasks did not end in time");
    }
    audit.close();
    chain.note(audit.head()).await;
    timekeeper.note().await;
    store.close().await;
    info!("ended");
    Ok(())
}

async fn first_administrator(accounts: &Accounts, settings: &Settings) -> anyhow::Result<()> {
    let given = match &settings.bootstrap_password_file {
        // It has done its work and may be gone.
        _ if accounts.has_administrator() => None,
        Some(path) => {
            let text = Zeroizing::new(
                std::fs::read_to_string(path).with_context(|| format!("bootstrap_password_file {}", path.display()))?,
            );
            Some(Zeroizing::new(text.trim_end_matches(['\r', '\n']).to_owned()))
        }
        None => None,
    };
    match accounts.ensure_bootstrap(PLATFORM_ADMIN, given).await? {
        Bootstrap::Exists => {}
        Bootstrap::NameTaken => warn!(
            "there is no administrator, and the user {PLATFORM_ADMIN:?} is somebody; `bailiwick recover-admin` makes them one"
        ),
        Bootstrap::Created { generated: None } => info!("administrator made, with the given password"),
        Bootstrap::Created { generated: Some(password) } => {
            let path = settings.data_dir.join(FIRST_PASSWORD);
            write_secret(&path, &password.0).with_context(|| format!("{}", path.display()))?;
            info!(file = %path.display(), "administrator made; the one-time password is in the file");
        }
    }
    Ok(())
}

/// Writes a secret for the operator's eyes, 0600, replacing what was there.
fn write_secret(path: &Path, secret: &str) -> std::io::Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    match std::fs::remove_file(path) {
        Ok(()) => {}
        Err(why) if why.kind() == std::io::ErrorKind::NotFound => {}
        Err(why) => return Err(why),
    }
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    writeln!(file, "{secret}")?;
    file.sync_all()
}

/// The address for people: as configured, or the listener's own on this host.
fn public_url(settings: &Settings, address: SocketAddr) -> String {
    settings.public_url.clone().unwrap_or_else(|| {
        let shown =
            if address.ip().is_unspecified() { SocketAddr::from(([127, 0, 0, 1], address.port())) } else { address };
        format!("https://{shown}")
    })
}

async fn keep_certificate(mut reloader: crate::tls::Reloader) {
    let mut ticks = tokio::time::interval(RELOAD);
    loop {
        ticks.tick().await;
        reloader.reload();
    }
}

async fn keep_keys(host: Arc<Host>) {
    let mut ticks = tokio::time::interval(RELOAD);
    loop {
        ticks.tick().await;
        host.keys.reload().await;
    }
}

async fn purge(accounts: Accounts, clock: Arc<Clock>) {
    let mut ticks = tokio::time::interval(PURGE);
    loop {
        ticks.tick().await;
        let steady = clock.steady();
        if let Err(why) = accounts.purge_expired(steady).await {
            warn!(%why, "tokens that ran out were not removed");
        }
    }
}

async fn follow_index(index: Arc<Index>, metrics: Arc<Metrics>) {
    let mut state = index.subscribe();
    let mut known = std::collections::BTreeSet::new();
    loop {
        let seen = *state.borrow_and_update();
        metrics.index_revision.set(seen.applied.0);
        metrics.index_generation.set(seen.generation);
        let snapshot = index.snapshot();
        for (name, observed) in snapshot.all_observed() {
            known.insert(name.clone());
            let label = ClusterLabel { cluster: name.clone() };
            metrics.cluster_usable.get_or_create(&label).set(i64::from(observed.usable));
        }
        known.retain(|name| {
            let kept = snapshot.clusters.contains_key(name);
            if !kept {
                metrics.forget_cluster(name);
            }
            kept
        });
        if state.changed().await.is_err() {
            return;
        }
    }
}

async fn until(shutdown: CancellationToken, work: impl Future<Output = ()>) {
    tokio::select! {
        () = shutdown.cancelled() => {}
        () = work => {}
    }
}

async fn wait_for_signal() -> anyhow::Result<&'static str> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    })
}
