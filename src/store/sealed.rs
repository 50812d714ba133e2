//! Sealed records: what no resource may hold, encrypted at rest.
//!
//! XChaCha20-Poly1305 with random nonces (<https://datatracker.ietf.org/doc/html/draft-irtf-cfrg-xchacha>). The
//! associated data binds kind, name, UID of the owner and version, so that a record that is swapped with another one,
//! or moved to another name or owner, does not open. Keys have ids, so that they can be rotated.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arc_swap::ArcSwap;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::Key;

/// Why a record was not sealed or does not open.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// The record was sealed with a key that is not in the ring.
    #[error("{key}: sealed with key {key_id:?}, which is not in the key ring")]
    UnknownKey {
        /// Which record.
        key: String,
        /// Id of the missing key.
        key_id: String,
    },
    /// Altered, moved from another record, or of another master key.
    #[error("{0}: does not open; it was altered, moved, or sealed with another master key")]
    DoesNotOpen(String),
    /// The envelope or the content is not what this version writes.
    #[error("{0}: malformed")]
    Malformed(String),
    /// The system gave no random bytes.
    #[error("no random bytes: {0}")]
    Random(String),
}

/// A sealed record as stored.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Envelope {
    key_id: String,
    uid: String,
    version: u64,
    nonce: String,
    ciphertext: String,
}

/// Seals and opens records with the keys of its ring, which may be replaced at any time.
pub struct Sealer {
    ring: ArcSwap<Ring>,
}

/// Keys by their ids. One is active for sealing; all open.
#[derive(Clone)]
pub struct Ring {
    active: String,
    keys: BTreeMap<String, XChaCha20Poly1305>,
    /// Still open, but the store takes nothing more that they sealed.
    retiring: BTreeSet<String>,
}

impl Ring {
    /// A ring of one key, which is active.
    pub fn new(key_id: &str, key: &[u8; 32]) -> Self {
        let mut ring = Self { active: key_id.to_owned(), keys: BTreeMap::new(), retiring: BTreeSet::new() };
        ring.add(key_id, key);
        ring
    }

    /// Adds a key that opens.
    pub fn add(&mut self, key_id: &str, key: &[u8; 32]) {
        self.keys.insert(key_id.to_owned(), XChaCha20Poly1305::new(key.into()));
    }

    /// Id of the key that seals.
    pub fn active(&self) -> &str {
        &self.active
    }

    /// Ids of all keys.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.keys.keys().map(String::as_str)
    }

    /// Whether the ring has this key.
    pub fn has(&self, key_id: &str) -> bool {
        self.keys.contains_key(key_id)
    }
}

/// What a record is bound to besides its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Binding<'a> {
    /// UID of the owner: the user, the cluster, the token itself.
    pub uid: &'a str,
    /// Counts the changes of the record.
    pub version: u64,
}

/// An opened record.
#[derive(Debug, Clone)]
pub struct Opened<T> {
    /// Owner it is bound to.
    pub uid: String,
    /// Its version; the next one is sealed with a higher one.
    pub version: u64,
    /// Its content.
    pub content: T,
}

impl Sealer {
    /// With a ring of one key.
    pub fn new(key_id: &str, key: &[u8; 32]) -> Self {
        Ring::new(key_id, key).into()
    }

    /// The ring in force.
    pub fn ring(&self) -> Arc<Ring> {
        self.ring.load_full()
    }

    /// Seals with the active key of another ring, and opens with its keys, from now on.
    pub fn replace(&self, ring: Ring) {
        self.ring.store(Arc::new(ring));
    }

    /// From now on the store takes nothing more that this key sealed; it goes on opening. Refused for the active key.
    pub fn begin_retiring(&self, key_id: &str) -> bool {
        let mut ring = Ring::clone(&self.ring());
        let may = ring.active != key_id && ring.has(key_id);
        if may {
            ring.retiring.insert(key_id.to_owned());
            self.replace(ring);
        }
        may
    }

    /// Whether the store may take a record sealed so: by a key that is there to stay.
    pub fn may_be_stored(&self, sealed: &[u8]) -> bool {
        let ring = self.ring.load();
        key_id_of(sealed).is_some_and(|id| ring.has(&id) && !ring.retiring.contains(&id))
    }

    /// Seals a record.
    pub fn seal<T: Serialize>(&self, key: &Key, binding: Binding<'_>, content: &T) -> Result<Bytes, SealError> {
        let plain = Zeroizing::new(serde_json::to_vec(content).map_err(|_| SealError::Malformed(key.to_string()))?);
        self.seal_bytes(key, binding, &plain)
    }

    /// Seals an opened record anew with the active key, as its next version. Nothing where that key sealed it already.
    pub fn reseal(&self, key: &Key, sealed: &[u8]) -> Result<Option<Bytes>, SealError> {
        if key_id_of(sealed).as_deref() == Some(self.ring.load().active()) {
            return Ok(None);
        }
        let (envelope, plain) = self.open_bytes(key, sealed)?;
        let binding = Binding { uid: &envelope.uid, version: envelope.version + 1 };
        self.seal_bytes(key, binding, &plain).map(Some)
    }

    /// Whether a record opens, without looking at what is in it.
    pub fn check(&self, key: &Key, sealed: &[u8]) -> Result<(), SealError> {
        self.open_bytes(key, sealed).map(|_| ())
    }

    fn seal_bytes(&self, key: &Key, binding: Binding<'_>, plain: &[u8]) -> Result<Bytes, SealError> {
        let ring = self.ring.load();
        let mut nonce = [0u8; 24];
        getrandom::fill(&mut nonce).map_err(|e| SealError::Random(e.to_string()))?;
        let aad = associated_data(&ring.active, key, binding);
        let cipher = &ring.keys[&ring.active];
        let ciphertext = cipher
            .encrypt(&XNonce::from(nonce), Payload { msg: plain, aad: &aad })
            .map_err(|_| SealError::Malformed(key.to_string()))?;
        let envelope = Envelope {
            key_id: ring.active.clone(),
            uid: binding.uid.to_owned(),
            version: binding.version,
            nonce: STANDARD.encode(nonce),
            ciphertext: STANDARD.encode(ciphertext),
        };
        serde_json::to_vec(&envelope).map(Bytes::from).map_err(|_| SealError::Malformed(key.to_string()))
    }

    /// Opens a record that was sealed for exactly this key.
    pub fn open<T: DeserializeOwned>(&self, key: &Key, sealed: &[u8]) -> Result<Opened<T>, SealError> {
        let (envelope, plain) = self.open_bytes(key, sealed)?;
        let content = serde_json::from_slice(&plain).map_err(|_| SealError::Malformed(key.to_string()))?;
        Ok(Opened { uid: envelope.uid, version: envelope.version, content })
    }

    fn open_bytes(&self, key: &Key, sealed: &[u8]) -> Result<(Envelope, Zeroizing<Vec<u8>>), SealError> {
        let malformed = || SealError::Malformed(key.to_string());
        let envelope: Envelope = serde_json::from_slice(sealed).map_err(|_| malformed())?;
        let ring = self.ring.load();
        let cipher = ring
            .keys
            .get(&envelope.key_id)
            .ok_or_else(|| SealError::UnknownKey { key: key.to_string(), key_id: envelope.key_id.clone() })?;
        let nonce: [u8; 24] =
            STANDARD.decode(&envelope.nonce).ok().and_then(|n| n.try_into().ok()).ok_or_else(malformed)?;
        let ciphertext = STANDARD.decode(&envelope.ciphertext).map_err(|_| malformed())?;
        let binding = Binding { uid: &envelope.uid, version: envelope.version };
        let aad = associated_data(&envelope.key_id, key, binding);
        let plain = cipher
            .decrypt(&XNonce::from(nonce), Payload { msg: &ciphertext, aad: &aad })
            .map(Zeroizing::new)
            .map_err(|_| SealError::DoesNotOpen(key.to_string()))?;
        Ok((envelope, plain))
    }
}

impl From<Ring> for Sealer {
    fn from(ring: Ring) -> Self {
        Self { ring: ArcSwap::from_pointee(ring) }
    }
}

/// Id of the key that sealed a record; nothing where it is no sealed record.
pub fn key_id_of(sealed: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Head {
        key_id: String,
    }
    serde_json::from_slice::<Head>(sealed).ok().map(|head| head.key_id)
}

/// Length-prefixed, so that no two bindings give the same bytes.
fn associated_data(key_id: &str, key: &Key, binding: Binding<'_>) -> Vec<u8> {
    let mut aad = b"bailiwick sealed record 1".to_vec();
    for part in [key_id, key.kind.as_str(), &key.name, binding.uid] {
        aad.extend_from_slice(&(part.len() as u64).to_be_bytes());
        aad.extend_from_slice(part.as_bytes());
    }
    aad.extend_from_slice(&binding.version.to_be_bytes());
    aad
}

#[cfg(test)]
mod tests {
    use super::super::Kind;
    use super::*;

    fn sealer() -> Sealer {
        Sealer::new("k1", &[7; 32])
    }

    fn key(name: &str) -> Key {
        Key::new(Kind::Account, name)
    }

    const BINDING: Binding<'static> = Binding { uid: "u-1", version: 3 };

    #[test]
    fn opens_where_it_was_sealed_for() {
        let sealed = sealer().seal(&key("jane"), BINDING, &"secret").unwrap();
        let opened: Opened<String> = sealer().open(&key("jane"), &sealed).unwrap();
        assert_eq!((opened.uid.as_str(), opened.version, opened.content.as_str()), ("u-1", 3, "secret"));
        assert!(!sealed.windows(6).any(|w| w == b"secret"));
    }

    #[test]
    fn does_not_open_elsewhere() {
        let sealed = sealer().seal(&key("jane"), BINDING, &"secret").unwrap();
        assert!(matches!(sealer().open::<String>(&key("joe"), &sealed), Err(SealError::DoesNotOpen(_))));
        let other_kind = Key::new(Kind::Token, "jane");
        assert!(matches!(sealer().open::<String>(&other_kind, &sealed), Err(SealError::DoesNotOpen(_))));
        assert!(matches!(
            Sealer::new("k1", &[8; 32]).open::<String>(&key("jane"), &sealed),
            Err(SealError::DoesNotOpen(_))
        ));
        assert!(matches!(
            Sealer::new("k2", &[7; 32]).open::<String>(&key("jane"), &sealed),
            Err(SealError::UnknownKey { .. })
        ));
    }

    #[test]
    fn does_not_open_altered() {
        let sealed = sealer().seal(&key("jane"), BINDING, &"secret").unwrap();
        for (from, to) in [("u-1", "u-2"), ("\"version\":3", "\"version\":4")] {
            let altered = String::from_utf8(sealed.to_vec()).unwrap().replace(from, to);
            assert!(matches!(
                sealer().open::<String>(&key("jane"), altered.as_bytes()),
                Err(SealError::DoesNotOpen(_))
            ));
        }
        assert!(matches!(sealer().open::<String>(&key("jane"), b"{}"), Err(SealError::Malformed(_))));
    }
}
