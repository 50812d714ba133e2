//! Rotation of the master key: distribute, activate, rewrite, retire. The key file is the truth at every step, so that
//! the service may be killed between any two.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use tracing::{error, info};

use super::host::Tell;
use super::master_key::{self, Keys};
use crate::store::anchor::Anchor;
use crate::store::sealed::{Sealer, key_id_of};
use crate::store::sqlite::SqliteStore;
use crate::store::{Entry, Kind, Store as _, StoreError};

/// Records that are sealed anew at the same time, so that they share transactions and leave room for others.
const AT_ONCE: usize = 32;
/// Between two words on the progress, in records.
const TELL_EVERY: u64 = 1000;

/// A step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "step", deny_unknown_fields)]
pub(super) enum Step {
    /// Which keys there are and what they seal.
    List,
    /// A new key, which opens.
    Add,
    /// A key seals from now on.
    Activate {
        /// Which.
        id: String,
    },
    /// Everything is sealed by the active key.
    Rewrite,
    /// A key goes.
    Retire {
        /// Which.
        id: String,
    },
}

/// The keys of a running service.
pub(super) struct KeyRing {
    pub(super) file: PathBuf,
    pub(super) store: Arc<SqliteStore>,
    pub(super) sealer: Arc<Sealer>,
    pub(super) anchor: Arc<Anchor>,
    /// One step at a time.
    pub(super) turn: Mutex<()>,
}

impl KeyRing {
    pub(super) async fn step(&self, step: Step, tell: &Tell) -> anyhow::Result<String> {
        let _turn = self.turn.lock().await;
        self.follow_file().await?;
        match step {
            Step::List => self.list().await,
            Step::Add => self.add(),
            Step::Activate { id } => self.activate(&id),
            Step::Rewrite => self.rewrite(tell).await,
            Step::Retire { id } => self.retire(&id).await,
        }
    }

    /// Takes up what was changed in the file by another hand.
    pub(super) async fn reload(&self) {
        let _turn = self.turn.lock().await;
        if let Err(why) = self.follow_file().await {
            error!(
                why = format!("{why:#}"),
                "the key file is not followed; the keys that were read before stay in use"
            );
        }
    }

    async fn follow_file(&self) -> anyhow::Result<()> {
        let keys = Keys::read(&self.file)?;
        let (old, new) = (self.sealer.ring(), keys.ring());
        if old.active() == new.active() && old.ids().eq(new.ids()) {
            return Ok(());
        }
        let gone: Vec<String> = old.ids().filter(|id| !new.has(id)).map(str::to_owned).collect();
        if !gone.is_empty() {
            self.let_go(&gone).await.with_context(|| format!("{}", self.file.display()))?;
        }
        self.use_keys(&keys)?;
        info!(file = %self.file.display(), active = self.sealer.ring().active(), "key file read again");
        Ok(())
    }

    fn use_keys(&self, keys: &Keys) -> anyhow::Result<()> {
        self.sealer.replace(keys.ring());
        Ok(self.anchor.renew()?)
    }

    /// How many records each key seals.
    async fn used(&self) -> Result<BTreeMap<String, u64>, StoreError> {
        let mut used = BTreeMap::new();
        for kind in Kind::ALL.into_iter().filter(|kind| kind.is_sealed()) {
            for entry in self.store.list(kind).await?.0 {
                *used.entry(key_id_of(&entry.value).unwrap_or_default()).or_default() += 1;
            }
        }
        Ok(used)
    }

    async fn list(&self) -> anyhow::Result<String> {
        let used = self.used().await?;
        let keys = Keys::read(&self.file)?;
        let lines = keys.0.iter().enumerate().map(|(at, (id, _))| {
            let does = if at == 0 { "seals and opens" } else { "opens" };
            format!("{id}  {does}, {} records", used.get(id).copied().unwrap_or_default())
        });
        Ok(lines.collect::<Vec<_>>().join("\n"))
    }

    fn add(&self) -> anyhow::Result<String> {
        let mut keys = Keys::read(&self.file)?;
        let key = master_key::new_key()?;
        let id = key.0.clone();
        keys.0.push(key);
        keys.write(&self.file)?;
        self.use_keys(&keys)?;
        info!(key = id, "master key added");
        let file = self.file.display();
        Ok(format!(
            "{id} opens from now on. Keep a copy of {file} where the backups are not, then: bailiwick keys activate {id}"
        ))
    }

    fn activate(&self, id: &str) -> anyhow::Result<String> {
        let mut keys = Keys::read(&self.file)?;
        let at = keys.0.iter().position(|(known, _)| known == id).with_context(|| self.unknown(id))?;
        let key = keys.0.remove(at);
        keys.0.insert(0, key);
        keys.write(&self.file)?;
        self.use_keys(&keys)?;
        info!(key = id, "master key activated");
        Ok(format!("{id} seals from now on. What older keys sealed: bailiwick keys rewrite"))
    }

    async fn rewrite(&self, tell: &Tell) -> anyhow::Result<String> {
        let mut done: u64 = 0;
        // Writers that had sealed before the key became active may come after the list; one more round finds them.
        for _ in 0..10 {
            let before = done;
            for kind in Kind::ALL.into_iter().filter(|kind| kind.is_sealed()) {
                let entries = self.store.list(kind).await?.0;
                let mut rewritten =
                    stream::iter(entries).map(|entry| self.rewrite_one(entry)).buffer_unordered(AT_ONCE);
                while let Some(changed) = rewritten.try_next().await? {
                    done += u64::from(changed);
                    if changed && done.is_multiple_of(TELL_EVERY) {
                        // Whoever asked may have gone.
                        let _ = tell.send(format!("{done} records sealed anew"));
                    }
                }
            }
            if done == before {
                self.anchor.renew()?;
                info!(records = done, "records sealed anew");
                return Ok(format!("{done} records sealed anew; all are sealed by {}", self.sealer.ring().active()));
            }
        }
        bail!("records keep coming that another key sealed; is another process at work with an older key file?")
    }

    async fn rewrite_one(&self, mut entry: Entry) -> anyhow::Result<bool> {
        loop {
            let Some(value) = self.sealer.reseal(&entry.key, &entry.value)? else { return Ok(false) };
            match self.store.update(entry.key.clone(), entry.revision, value).await {
                Ok(_) => return Ok(true),
                Err(StoreError::NotFound(_)) => return Ok(false),
                // Somebody was faster; theirs may be of the active key already.
                Err(StoreError::Conflict { .. }) => match self.store.get(&entry.key).await? {
                    Some(current) => entry = current,
                    None => return Ok(false),
                },
                Err(error) => return Err(error.into()),
            }
        }
    }

    async fn retire(&self, id: &str) -> anyhow::Result<String> {
        let mut keys = Keys::read(&self.file)?;
        let at = keys.0.iter().position(|(known, _)| known == id).with_context(|| self.unknown(id))?;
        if at == 0 {
            bail!("{id} is the key that seals; activate another one first");
        }
        self.let_go(&[id.to_owned()]).await?;
        let key = keys.0.remove(at);
        let mut kept = self.file.as_os_str().to_owned();
        kept.push(format!(".retired-{id}"));
        let kept = PathBuf::from(kept);
        let written = Keys(vec![key]).create_beside(&kept).and_then(|()| keys.write(&self.file));
        if let Err(why) = written {
            // It is in the file and stays in use.
            self.use_keys(&Keys::read(&self.file)?)?;
            return Err(why.into());
        }
        self.use_keys(&keys)?;
        info!(key = id, "master key retired");
        Ok(format!(
            "{id} is retired. Backups from before need it: it is in {}; take it to where such keys are kept, or destroy it \
             with those backups.",
            kept.display()
        ))
    }

    /// Makes sure that nothing needs these keys and nothing will. Where something does, they stay.
    async fn let_go(&self, ids: &[String]) -> anyhow::Result<()> {
        self.check_unused(ids).await?;
        let before = (*self.sealer.ring()).clone();
        let outcome = async {
            for id in ids {
                self.sealer.begin_retiring(id);
            }
            // What was on its way is stored or refused after this, and the history needs no key.
            self.store.forget_history().await?;
            self.check_unused(ids).await?;
            Ok(self.anchor.renew()?)
        };
        let outcome = outcome.await;
        if outcome.is_err() {
            self.sealer.replace(before);
        }
        outcome
    }

    async fn check_unused(&self, ids: &[String]) -> anyhow::Result<()> {
        let used = self.used().await?;
        for id in ids {
            if let Some(records) = used.get(id) {
                bail!("{id} still seals {records} records; nothing was changed: bailiwick keys rewrite");
            }
        }
        Ok(())
    }

    fn unknown(&self, id: &str) -> String {
        format!("{id:?} is no key of {}; `bailiwick keys list` shows them", self.file.display())
    }
}

#[cfg(test)]
mod tests;
