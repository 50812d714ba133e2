//! Lists in pages: every page of a list is of one version, and a continue token is good only for who was given it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chacha20poly1305::aead::{Aead as _, KeyInit as _, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::NoRandomness;
use crate::index::Snapshot;
use crate::status::Status;

/// How many versions are kept for lists that are under way. Versions share structure, so each costs what changed.
const MAX_KEPT: usize = 32;
/// How long a version is kept: as long as Kubernetes' etcd keeps one.
const KEEP: Duration = Duration::from_secs(300);

/// Versions that lists are under way on, and the key that continue tokens are sealed with.
pub(super) struct Pages {
    cipher: XChaCha20Poly1305,
    kept: Mutex<VecDeque<(Instant, Arc<Snapshot>)>>,
}

#[derive(Serialize, Deserialize)]
struct Position {
    revision: u64,
    after: String,
}

impl Pages {
    /// With a fresh key: tokens do not outlive the process, and neither do the versions.
    pub(super) fn new() -> Result<Self, NoRandomness> {
        let mut key = zeroize::Zeroizing::new([0u8; 32]);
        getrandom::fill(&mut *key)?;
        Ok(Self { cipher: XChaCha20Poly1305::new((&*key).into()), kept: Mutex::default() })
    }

    /// A token for the page after `after`, good for this caller and query only. Keeps the version.
    pub(super) fn token(&self, snapshot: &Arc<Snapshot>, query: &str, after: &str) -> Result<String, Status> {
        let unavailable = || Status::internal("no continue token could be made");
        let position = Position { revision: snapshot.revision.0, after: after.to_owned() };
        let plain = serde_json::to_vec(&position).map_err(|_| unavailable())?;
        let mut nonce = [0u8; 24];
        getrandom::fill(&mut nonce).map_err(|_| unavailable())?;
        let payload = Payload { msg: &plain, aad: query.as_bytes() };
        let sealed = self.cipher.encrypt(&XNonce::from(nonce), payload).map_err(|_| unavailable())?;
        let mut kept = self.kept.lock();
        kept.retain(|(since, _)| since.elapsed() < KEEP);
        if !kept.iter().any(|(_, k)| k.revision == snapshot.revision) {
            if kept.len() >= MAX_KEPT {
                kept.pop_front();
            }
            kept.push_back((Instant::now(), snapshot.clone()));
        }
        Ok(URL_SAFE_NO_PAD.encode([&nonce[..], &sealed].concat()))
    }

    /// The version of a token, and the name that its page begins after.
    pub(super) fn open(&self, token: &str, query: &str) -> Result<(Arc<Snapshot>, String), Status> {
        let invalid = || Status::bad_request("the continue token is not valid for this caller and query");
        let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|_| invalid())?;
        let (nonce, sealed) = bytes.split_at_checked(24).ok_or_else(invalid)?;
        let nonce: [u8; 24] = nonce.try_into().map_err(|_| invalid())?;
        let payload = Payload { msg: sealed, aad: query.as_bytes() };
        // Tokens of a process that is gone do not open either; they are as good as expired, and a client must learn
        // from the answer that it has to begin again.
        let gone =
            || Status::expired("The provided continue parameter is too old or not valid for this caller and query");
        let plain = self.cipher.decrypt(&XNonce::from(nonce), payload).map_err(|_| gone())?;
        let position: Position = serde_json::from_slice(&plain).map_err(|_| invalid())?;
        let kept = self.kept.lock();
        let found = kept.iter().find(|(since, k)| k.revision.0 == position.revision && since.elapsed() < KEEP);
        found.map(|(_, snapshot)| (snapshot.clone(), position.after)).ok_or_else(gone)
    }

    /// A version that lists are under way on.
    pub(super) fn at(&self, revision: u64) -> Option<Arc<Snapshot>> {
        let kept = self.kept.lock();
        kept.iter().find(|(since, k)| k.revision.0 == revision && since.elapsed() < KEEP).map(|(_, s)| s.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_bound_to_caller_and_query() {
        let pages = Pages::new().unwrap();
        let snapshot = Arc::new(Snapshot::default());
        let token = pages.token(&snapshot, "jane grants", "g-5").unwrap();
        assert_eq!(pages.open(&token, "jane grants").unwrap().1, "g-5");
        assert_eq!(pages.open(&token, "joe grants").err().unwrap().code, 410);
        assert_eq!(pages.open("x!", "jane grants").err().unwrap().code, 400);
        assert_eq!(Pages::new().unwrap().open(&token, "jane grants").err().unwrap().code, 410);
    }

    #[test]
    fn the_versions_kept_are_bounded() {
        let pages = Pages::new().unwrap();
        for revision in 0..100 {
            let mut snapshot = Snapshot::default();
            snapshot.revision = crate::store::Revision(revision);
            pages.token(&Arc::new(snapshot), "", "").unwrap();
        }
        assert_eq!(pages.kept.lock().len(), MAX_KEPT);
        assert!(pages.at(99).is_some() && pages.at(3).is_none());
    }
}
