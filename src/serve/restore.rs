//! `bailiwick restore`: offline, with the lock of the data directory.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail};

use super::master_key;
use crate::clock;
use crate::config::Settings;
use crate::identity::restoring::{self, TakenOver};
use crate::store::anchor::{Anchor, AnchorError};
use crate::store::sealed::{Binding, Sealer};
use crate::store::sqlite::restore::Restoring;
use crate::store::sqlite::{self, SqliteSettings, SqliteStore};
use crate::store::{EPOCH, Key, Kind};

/// Restores a backup, or with none the database that is there, and says what that means. Nothing of the store is
/// touched before all of it is checked.
pub(super) async fn restore(settings: &Settings, backup: Option<&Path>) -> anyhow::Result<String> {
    let directory = &settings.data_dir;
    if backup.is_none() && !sqlite::exists(directory) {
        bail!("{} holds no store of the service; is --data-dir right?", directory.display());
    }
    let lock = sqlite::lock(directory).context("the service must be stopped first")?;
    let sealer = Arc::new(master_key::load(settings.master_key.file.as_deref(), directory, false)?);
    let mut said = String::new();
    let anchor = match Anchor::open(directory, sealer.clone()) {
        Ok(anchor) => anchor,
        Err(why @ AnchorError::Unreadable { .. }) => {
            writeln!(said, "The anchor is made anew: {why}.")?;
            Anchor::lost(directory, sealer.clone())
        }
        Err(why) => return Err(why.into()),
    };
    let restoring = Restoring::begin(directory)?;
    let mut present = false;
    match backup {
        Some(file) => {
            let manifest = restoring.take_backup(file, &sealer)?;
            writeln!(
                said,
                "Restored the backup of {}, revision {}, {} objects.",
                manifest.created_at, manifest.revision, manifest.objects
            )?;
            match restoring.look_at_present(&sealer) {
                Ok(there) => present = there,
                Err(why) => writeln!(said, "The database that was there cannot be read: {why}.")?,
            }
        }
        None => {
            restoring.take_present(&sealer)?;
            writeln!(said, "Accepted the database that was there.")?;
        }
    }
    let (id, mut seen) = restoring.position(&restoring.restored())?;
    let store = open(restoring.restored()).await?;
    let (mut epoch, version) = restoring::global_epoch(&*store, &sealer).await?;
    if let Some(anchored) = anchor.anchored() {
        epoch = epoch.max(anchored.global_epoch);
        if backup.is_none() && seen < anchored.floor {
            let (newest, floor) = (seen, anchored.floor);
            writeln!(said, "It ends at revision {newest}; what was changed after it, up to {floor}, is lost.")?;
        }
    }
    if present {
        let (present_id, present_seen) = restoring.position(&restoring.present())?;
        let later = id.is_some() && id == present_id && present_seen >= seen;
        let old = open(restoring.present()).await?;
        epoch = epoch.max(restoring::global_epoch(&*old, &sealer).await?.0);
        seen = seen.max(present_seen);
        let taken = restoring::take_over(&*old, &*store, &sealer, later, clock::now()).await?;
        old.close().await;
        tell_taken(&mut said, &taken)?;
    } else {
        let known = if backup.is_some() { "in the backup" } else { "in that database" };
        writeln!(
            said,
            "Passwords and suspensions are as they were {known}: look through the accounts, the audit log has what was \
             done since (`bailiwick audit --verb suspend`)."
        )?;
    }
    epoch += 1;
    let sealed = seal_epoch(&sealer, epoch, version)?;
    store.close().await;
    drop(store);
    let stamp = clock::now().strftime("%Y%m%dT%H%M%SZ").to_string();
    let (newest, kept) = restoring.finish(&anchor, seen, epoch, &sealed, &stamp)?;
    drop(lock);
    if let Some(kept) = kept {
        writeln!(said, "The old database is kept: {}.", kept.display())?;
    }
    writeln!(said, "Every session and token is dead (epoch {epoch}); revisions go on from {newest}.")?;
    if !directory.join("audit").exists() {
        writeln!(
            said,
            "There is no audit log here: put it back too, or start once with --accept-audit-loss, which notes the loss."
        )?;
    }
    write!(said, "Start the service; people sign in again, and machines need new tokens.")?;
    Ok(said)
}

async fn open(directory: std::path::PathBuf) -> anyhow::Result<Arc<SqliteStore>> {
    let opened = move || SqliteStore::open(&directory, SqliteSettings::default());
    Ok(Arc::new(tokio::task::spawn_blocking(opened).await??))
}

fn seal_epoch(sealer: &Sealer, epoch: u64, version: u64) -> anyhow::Result<bytes::Bytes> {
    let key = Key::new(Kind::Platform, EPOCH);
    Ok(sealer.seal(&key, Binding { uid: EPOCH, version: version + 1 }, &epoch)?)
}

fn tell_taken(said: &mut String, taken: &TakenOver) -> std::fmt::Result {
    let TakenOver { accounts, disabled, suspended } = taken;
    for (names, what) in [
        (accounts, "Password, suspension and epoch are the later ones, from before the restore"),
        (disabled, "Disabled, as before the restore"),
        (suspended, "Suspended, because they were deleted after the backup"),
    ] {
        if !names.is_empty() {
            writeln!(said, "{what}: {}.", names.join(", "))?;
        }
    }
    Ok(())
}
