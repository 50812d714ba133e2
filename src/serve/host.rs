//! What only the host of the service may do: beside a running service by its socket, or without one.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::bail;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tracing::info;
use zeroize::Zeroizing;

use super::keys::{KeyRing, Step};
use super::{Opened, master_key};
use crate::clock;
use crate::config::Settings;
use crate::domain::roles::PLATFORM_ADMIN;
use crate::identity::bootstrap;
use crate::store::sealed::Sealer;
use crate::store::sqlite::{self, SqliteSettings, SqliteStore, backup};

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "do", deny_unknown_fields)]
pub(super) enum Request {
    /// A new one-time password for the administrator.
    RecoverAdmin,
    /// A backup into a new file.
    Backup {
        /// Which; absolute.
        file: PathBuf,
    },
    /// A step of the rotation of the master key.
    Keys(Step),
}

/// Hears how far a request is.
pub(super) type Tell = mpsc::UnboundedSender<String>;

/// What the requests work on.
pub(super) struct Host {
    pub(super) data_dir: PathBuf,
    pub(super) store: Arc<SqliteStore>,
    pub(super) sealer: Arc<Sealer>,
    pub(super) keys: KeyRing,
}

impl Host {
    /// Over an open store.
    pub(super) fn new(settings: &Settings, opened: Opened) -> Self {
        let Opened { store, sealer, anchor } = opened;
        let file = master_key::path(settings.master_key.file.as_deref(), &settings.data_dir);
        let keys =
            KeyRing { file, store: store.clone(), sealer: sealer.clone(), anchor, turn: tokio::sync::Mutex::default() };
        Self { data_dir: settings.data_dir.clone(), store, sealer, keys }
    }

    /// Does what is asked for; what it gives is for the operator's eyes only.
    pub(super) async fn perform(&self, request: Request, tell: Tell) -> anyhow::Result<Zeroizing<String>> {
        match request {
            Request::RecoverAdmin => {
                let password = bootstrap::recover_admin(&*self.store, &self.sealer, PLATFORM_ADMIN).await?;
                info!(user = PLATFORM_ADMIN, "administrator recovered from the host");
                Ok(password)
            }
            Request::Backup { file } => {
                let (directory, sealer, to) = (self.data_dir.clone(), self.sealer.clone(), file.clone());
                let work = move || {
                    let now = clock::rfc3339(clock::now());
                    backup::backup(&directory, &to, &sealer, now, |bytes, of| {
                        // Whoever asked may have gone; the backup is finished nevertheless.
                        let _ = tell.send(format!("{} of about {} MiB copied", bytes >> 20, of >> 20));
                    })
                };
                let manifest = tokio::task::spawn_blocking(work).await??;
                info!(file = %file.display(), revision = %manifest.revision, "backup made");
                let backup::Manifest { revision, objects, bytes, keys, .. } = manifest;
                Ok(Zeroizing::new(format!(
                    "{}: revision {revision}, {objects} objects, {bytes} bytes, checked. It does not hold the master key; \
                     keep {} where the backup is not.",
                    file.display(),
                    keys.join(", "),
                )))
            }
            Request::Keys(step) => Ok(Zeroizing::new(self.keys.step(step, &tell).await?)),
        }
    }
}

/// Does it without a running service, by taking the lock of its data directory.
pub(super) async fn alone(settings: &Settings, request: Request, tell: Tell) -> anyhow::Result<Zeroizing<String>> {
    if !sqlite::exists(&settings.data_dir) {
        bail!("{} holds no store of the service; is --data-dir right?", settings.data_dir.display());
    }
    let blocking = settings.clone();
    let opened = tokio::task::spawn_blocking(move || super::open(&blocking, SqliteSettings::default())).await??;
    let host = Host::new(settings, opened);
    let done = host.perform(request, tell).await;
    host.store.close().await;
    done
}
