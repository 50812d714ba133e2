//! Continue tokens: where the next page of a list across namespaces begins.
//!
//! A cluster's own token holds the key at which it goes on, which may name an object of another tenant. Ours hold it
//! sealed, bound to who asks, for what, and among which namespaces. The key is made at start: a page asked for after a
//! restart is answered as one that is too old, and clients list anew.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use serde::{Deserialize, Serialize};

use super::members::SetId;

/// Longest token that is read, in bytes: a cluster's own is some hundred.
const LONGEST: usize = 8 * 1024;
const NONCE: usize = 24;

/// The place where a page ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Revision of the whole list.
    pub revision: String,
    /// The namespaces that it is of.
    pub set: SetId,
    /// Namespace in which it goes on.
    pub namespace: String,
    /// The cluster's own token, where it goes on within that namespace.
    pub inner: Option<String>,
}

/// Seals places to tokens.
pub struct Tokens {
    // None where the system gave no random bytes: then nothing is sealed, and nothing opens.
    cipher: Option<XChaCha20Poly1305>,
}

/// No token of ours, or one for another question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the continue token was not given for this list")]
pub struct ForeignToken;

impl Default for Tokens {
    /// With a fresh key.
    fn default() -> Self {
        let mut key = zeroize::Zeroizing::new([0; 32]);
        let filled = getrandom::fill(&mut *key);
        Self { cipher: filled.ok().map(|()| XChaCha20Poly1305::new((&*key).into())) }
    }
}

impl Tokens {
    /// A token for a place; `question` is who asks for what.
    pub fn seal(&self, place: &Place, question: &str) -> Option<String> {
        let mut nonce = [0; NONCE];
        getrandom::fill(&mut nonce).ok()?;
        let text = serde_json::to_vec(place).ok()?;
        let sealed = self
            .cipher
            .as_ref()?
            .encrypt(&XNonce::from(nonce), Payload { msg: &text, aad: question.as_bytes() })
            .ok()?;
        Some(URL_SAFE_NO_PAD.encode([&nonce[..], &sealed].concat()))
    }

    /// The place of a token that was given for the same question.
    pub fn open(&self, token: &str, question: &str) -> Result<Place, ForeignToken> {
        if token.len() > LONGEST {
            return Err(ForeignToken);
        }
        let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|_| ForeignToken)?;
        let (nonce, sealed) = bytes.split_first_chunk::<NONCE>().ok_or(ForeignToken)?;
        let payload = Payload { msg: sealed, aad: question.as_bytes() };
        let cipher = self.cipher.as_ref().ok_or(ForeignToken)?;
        let text = cipher.decrypt(&XNonce::from(*nonce), payload).map_err(|_| ForeignToken)?;
        serde_json::from_slice(&text).map_err(|_| ForeignToken)
    }
}

#[cfg(test)]
#[path = "../../../fuzz/targets/tokens.rs"]
mod fuzz;

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> Place {
        Place {
            revision: "17".into(),
            set: SetId::of_nothing(),
            namespace: "shop-web".into(),
            inner: Some("eyJ2IjoibWV0YS5rOHMuaW8vdjEifQ".into()),
        }
    }

    #[test]
    fn a_token_opens_for_its_question_only() {
        let tokens = Tokens::default();
        let token = tokens.seal(&place(), "jane pods").unwrap();
        assert_eq!(tokens.open(&token, "jane pods"), Ok(place()));
        assert_eq!(tokens.open(&token, "joe pods"), Err(ForeignToken));
        assert_eq!(tokens.open(&token, "jane secrets"), Err(ForeignToken));
        assert_eq!(Tokens::default().open(&token, "jane pods"), Err(ForeignToken), "of another start");
        assert!(!token.contains("shop-web") && !token.contains("eyJ2"));
    }

    #[test]
    fn anything_else_is_foreign() {
        let tokens = Tokens::default();
        let token = tokens.seal(&place(), "q").unwrap();
        let mut altered = token.clone().into_bytes();
        altered[40] = if altered[40] == b'A' { b'B' } else { b'A' };
        let altered = String::from_utf8(altered).unwrap();
        let upstream = "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MTAsInN0YXJ0Ijoic2hvcC9hXHUwMDAwIn0";
        for foreign in [altered.as_str(), upstream, "", "?", &token[1..], &"A".repeat(LONGEST + 1)] {
            assert_eq!(tokens.open(foreign, "q"), Err(ForeignToken), "{foreign}");
        }
    }
}
