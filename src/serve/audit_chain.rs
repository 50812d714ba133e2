//! The key of the audit log's chain, and where the chain ended when last it was noted: one sealed record.
//!
//! Whoever can write the log's files but not the store, or has no master key, can neither forge a line nor cut lines off
//! without being found. What is written after the last note can still be cut off; that is a minute at most.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tracing::warn;
use zeroize::Zeroizing;

use super::platform_record;
use crate::audit::{Audit, ChainKey, Head, Surface, What};
use crate::store::Store;
use crate::store::sealed::Sealer;

/// Name of the record.
const NAME: &str = "audit-chain";
/// How often the end of the chain is noted, where it moved.
const INTERVAL: Duration = Duration::from_secs(60);

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    key: Zeroizing<String>,
    head: Head,
    /// Epoch of the installation of which the log tells. It goes back with the store, so that a restore is seen.
    #[serde(default)]
    epoch: u64,
}

impl Record {
    fn new(key: &[u8; 32], Noted { head, epoch }: Noted) -> Self {
        Self { key: Zeroizing::new(STANDARD.encode(key)), head, epoch }
    }
}

/// What is noted beside the key.
#[derive(Clone, Copy, Default)]
struct Noted {
    head: Head,
    epoch: u64,
}

/// The record and what it said.
pub(super) struct AuditChain {
    store: Arc<dyn Store>,
    sealer: Arc<Sealer>,
    bytes: Zeroizing<[u8; 32]>,
    noted: Mutex<Noted>,
}

/// Reads the record; makes it, with a key of random bytes, at the first start.
pub(super) async fn load(store: Arc<dyn Store>, sealer: Arc<Sealer>) -> anyhow::Result<Arc<AuditChain>> {
    let mut bytes = Zeroizing::new([0; 32]);
    let noted = match platform_record::read::<Record>(&*store, &sealer, NAME).await? {
        Some(known) => {
            let Record { key: text, head, epoch } = known.content;
            let decoded = Zeroizing::new(STANDARD.decode(text.as_bytes()).context("key of the audit log")?);
            *bytes = decoded.as_slice().try_into().context("key of the audit log: not 32 bytes")?;
            Noted { head, epoch }
        }
        None => {
            getrandom::fill(&mut *bytes).map_err(|why| anyhow::anyhow!("no random bytes: {why}"))?;
            let record = Record::new(&bytes, Noted::default());
            platform_record::write(&*store, &sealer, NAME, None, &record).await?;
            Noted::default()
        }
    };
    Ok(Arc::new(AuditChain { store, sealer, bytes, noted: Mutex::new(noted) }))
}

impl AuditChain {
    /// The key.
    pub(super) fn key(&self) -> ChainKey {
        ChainKey::new(&self.bytes)
    }

    /// Where the chain ended when last it was noted.
    pub(super) fn seen(&self) -> Head {
        self.noted.lock().head
    }

    /// Records that the store was restored since the log last told of it: every restore raises the epoch.
    pub(super) async fn tell_restore(&self, audit: &Audit, epoch: u64) -> anyhow::Result<()> {
        let noted = *self.noted.lock();
        if epoch <= noted.epoch {
            return Ok(());
        }
        // The first epoch is nobody's act.
        if epoch > noted.epoch.max(1) {
            let reason = format!("the store was restored (epoch {epoch}): every session and token from before is dead");
            let what = What { verb: "restore".to_owned(), reason, ..What::default() };
            audit.intent(&audit.request_id(), Surface::Api, &what).await?;
        }
        let noted = Noted { epoch, ..noted };
        self.write(noted).await?;
        *self.noted.lock() = noted;
        Ok(())
    }

    /// Notes the end of the chain now and then, for ever.
    pub(super) async fn keep(self: Arc<Self>, audit: Arc<Audit>) {
        let mut ticks = tokio::time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            // Where the disk takes nothing, the end is where it was.
            let _ = audit.flush().await;
            let head = audit.head();
            if self.note(head).await {
                audit.noted(head);
            }
        }
    }

    /// Notes where the chain ends; returns whether it is noted.
    pub(super) async fn note(&self, head: Head) -> bool {
        let noted = *self.noted.lock();
        if head.seq <= noted.head.seq {
            return false;
        }
        let noted = Noted { head, ..noted };
        match self.write(noted).await {
            Ok(()) => {
                *self.noted.lock() = noted;
                true
            }
            Err(why) => {
                warn!(%why, "the end of the audit log was not noted; trying again");
                false
            }
        }
    }

    async fn write(&self, noted: Noted) -> anyhow::Result<()> {
        let known = platform_record::read::<Record>(&*self.store, &self.sealer, NAME).await?;
        let known = known.context("the record of the audit log is gone")?;
        let record = Record::new(&self.bytes, noted);
        platform_record::write(&*self.store, &self.sealer, NAME, Some(known), &record).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::{AuditSettings, Filter};
    use crate::store::sqlite::{SqliteSettings, SqliteStore};

    #[tokio::test]
    async fn key_and_end_are_kept_over_restarts_and_an_older_log_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let sealer = Arc::new(Sealer::new("k", &[7; 32]));
        let store: Arc<dyn Store> =
            Arc::new(SqliteStore::open(&directory.path().join("store"), SqliteSettings::default()).unwrap());
        let log = directory.path().join("audit");
        let copy = directory.path().join("older");
        let open = |chain: &AuditChain, path: &std::path::Path| {
            let settings = AuditSettings { key: chain.key(), head: chain.seen(), ..AuditSettings::default() };
            Audit::open(path, settings)
        };

        let chain = load(store.clone(), sealer.clone()).await.unwrap();
        let audit = open(&chain, &log).unwrap();
        audit.intent("1", Surface::Api, &What::default()).await.unwrap();
        std::fs::create_dir(&copy).unwrap();
        for file in std::fs::read_dir(&log).unwrap().map(|file| file.unwrap()) {
            std::fs::copy(file.path(), copy.join(file.file_name())).unwrap();
        }
        audit.intent("2", Surface::Api, &What::default()).await.unwrap();
        assert!(chain.note(audit.head()).await);
        assert!(!chain.note(audit.head()).await, "nothing new");
        audit.close();

        let chain = load(store, sealer).await.unwrap();
        assert_eq!(chain.seen(), audit.head());
        assert!(open(&chain, &log).unwrap().verify().await.unwrap().intact, "the same key");
        assert!(open(&chain, &copy).is_err(), "an older copy of the log");
    }

    #[tokio::test]
    async fn a_restore_is_recorded_once() {
        let directory = tempfile::tempdir().unwrap();
        let sealer = Arc::new(Sealer::new("k", &[7; 32]));
        let store: Arc<dyn Store> =
            Arc::new(SqliteStore::open(&directory.path().join("store"), SqliteSettings::default()).unwrap());
        let restores = async |audit: &Audit| {
            audit.flush().await.unwrap();
            audit.read(Filter { limit: 9, ..Filter::default() }).await.unwrap().len()
        };
        let audit = Audit::open(&directory.path().join("audit"), AuditSettings::default()).unwrap();
        // At each start, the epoch as it is then; the first one is nobody's act.
        for (epoch, recorded) in [(1, 0), (1, 0), (2, 1), (2, 1), (5, 2), (5, 2)] {
            let chain = load(store.clone(), sealer.clone()).await.unwrap();
            chain.tell_restore(&audit, epoch).await.unwrap();
            assert_eq!(restores(&audit).await, recorded, "{epoch}");
            chain.note(audit.head()).await;
        }
        let last = audit.read(Filter { limit: 1, ..Filter::default() }).await.unwrap().remove(0);
        assert_eq!(last.what.verb, "restore");
        assert!(last.what.reason.contains("epoch 5"), "{}", last.what.reason);
    }
}
