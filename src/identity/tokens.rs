//! Tokens: their format, how they are made, and how a presented one is judged.
//!
//! `bwk_<id>_<secret>`: the id names the record, the secret proves possession. Both are lower-case base32 of random
//! bytes (RFC 4648 alphabet, no padding), so that a token is one word for a double click, survives every header and
//! file format, and its fixed shape can be found by secret scanners.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

use crate::index::{Snapshot, Stored, TokenEntry};
use crate::records::{TokenRecord, TokenScopes};
use crate::resources::User;
use crate::resources::token::Audience;

/// What every token begins with.
pub const PREFIX: &str = "bwk_";
/// Characters of an id: 80 bits. Ids are unique in the store; the length makes a clash a non-event.
pub const ID_LENGTH: usize = 16;
/// Characters of a secret: 256 bits.
pub const SECRET_LENGTH: usize = 52;
/// Bytes of a whole token.
pub const TOKEN_LENGTH: usize = PREFIX.len() + ID_LENGTH + 1 + SECRET_LENGTH;

const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// Who calls, and with which credential.
#[derive(Debug, Clone)]
pub struct Caller {
    /// The owner of the token.
    pub user: Arc<Stored<User>>,
    /// The token.
    pub token: Arc<TokenEntry>,
}

/// The credential is not good. Why is told to nobody: unknown, wrong, expired and suspended look the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the credential is not valid")]
pub struct Unauthenticated;

/// What a new token is to be.
#[derive(Debug, Clone)]
pub struct NewToken {
    /// Where it is accepted.
    pub audience: Audience,
    /// What it is limited to.
    pub scopes: TokenScopes,
    /// How long it lives.
    pub expires_in: Duration,
    /// What its owner calls it.
    pub description: String,
    /// Login family it continues; a new one where absent.
    pub family: Option<String>,
}

/// A token just made. The only moment at which it is known in full.
pub struct IssuedToken {
    /// Public part.
    pub id: String,
    /// The whole token, to be shown once.
    pub secret_token: Zeroizing<String>,
    /// What is kept of it.
    pub record: TokenRecord,
}

impl fmt::Debug for IssuedToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IssuedToken").field("id", &self.id).finish_non_exhaustive()
    }
}

/// A token taken apart. Nothing is known yet of its truth.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Parts<'a> {
    /// Public part.
    pub id: &'a str,
    secret: &'a str,
}

impl<'a> Parts<'a> {
    /// Takes a token apart; anything that [`generate`] could not have made is refused.
    pub fn parse(token: &'a str) -> Option<Self> {
        let (id, secret) = token.strip_prefix(PREFIX)?.split_once('_')?;
        let base32 = |part: &str| part.bytes().all(|b| matches!(b, b'a'..=b'z' | b'2'..=b'7'));
        let well_formed = id.len() == ID_LENGTH && secret.len() == SECRET_LENGTH && base32(id) && base32(secret);
        well_formed.then_some(Self { id, secret })
    }

    /// SHA-256 of the secret part as it is written.
    pub fn hash(&self) -> [u8; 32] {
        hash(self.secret)
    }
}

/// A fresh token that no record stands for yet.
pub struct Generated {
    /// Public part.
    pub id: String,
    /// The whole token.
    pub secret_token: Zeroizing<String>,
    /// SHA-256 of the secret part as it is written.
    pub hash: [u8; 32],
}

/// Makes a token of fresh random bytes.
pub fn generate() -> Result<Generated, getrandom::Error> {
    let mut id_bytes = [0u8; 10];
    let mut secret_bytes = Zeroizing::new([0u8; 32]);
    getrandom::fill(&mut id_bytes)?;
    getrandom::fill(&mut *secret_bytes)?;
    let mut id = String::with_capacity(ID_LENGTH);
    base32(&id_bytes, &mut id);
    // Filled within its capacity: growing would leave a copy of the secret behind in freed memory.
    let mut secret_token = Zeroizing::new(String::with_capacity(TOKEN_LENGTH));
    secret_token.push_str(PREFIX);
    secret_token.push_str(&id);
    secret_token.push('_');
    base32(&*secret_bytes, &mut secret_token);
    let hash = hash(&secret_token[TOKEN_LENGTH - SECRET_LENGTH..]);
    Ok(Generated { id, secret_token, hash })
}

/// Appends the base32 of `bytes`, lower-case, without padding.
pub(super) fn base32(bytes: &[u8], to: &mut String) {
    let (mut buffer, mut bits) = (0u32, 0u32);
    for &byte in bytes {
        buffer = (buffer << 8) | u32::from(byte);
        bits += 8;
        while bits >= 5 {
            bits -= 5;
            to.push(char::from(ALPHABET[(buffer >> bits) as usize & 31]));
        }
    }
    if bits > 0 {
        to.push(char::from(ALPHABET[(buffer << (5 - bits)) as usize & 31]));
    }
}

fn hash(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}

/// Judges a presented token: no I/O and no lock. An unknown id costs the same hash and comparison as a wrong secret,
/// so that time does not tell which ids exist.
pub fn authenticate(
    snapshot: &Snapshot,
    presented: &str,
    audience: Audience,
    now: Timestamp,
) -> Result<Caller, Unauthenticated> {
    let parts = Parts::parse(presented).ok_or(Unauthenticated)?;
    let hash = parts.hash();
    let token = snapshot.tokens.get(parts.id);
    let expected = token.map_or(&[0; 32], |token| &token.hash);
    let proven = bool::from(hash.ct_eq(expected));
    let token = token.filter(|_| proven).ok_or(Unauthenticated)?;
    if token.record.audience != audience {
        return Err(Unauthenticated);
    }
    let user = snapshot.live_owner(token, now).ok_or(Unauthenticated)?;
    Ok(Caller { user: user.clone(), token: token.clone() })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::index::AccountState;
    use crate::records::{Account, Suspension};
    use crate::resources::UserSpec;
    use crate::store::Revision;

    const UID: &str = "11111111-1111-4111-8111-111111111111";

    fn now() -> Timestamp {
        "2026-03-01T12:00:00Z".parse().unwrap()
    }

    fn user(name: &str, uid: &str) -> User {
        let mut user = User::new(name, UserSpec::default());
        user.metadata.uid = Some(uid.to_owned());
        user
    }

    /// A snapshot with the user jane, her account at epoch 3, and one token; whatever a test bends comes after.
    fn snapshot(audience: Audience) -> (Snapshot, Zeroizing<String>) {
        let mut snapshot = Snapshot::default();
        snapshot.global_epoch = 1;
        put_user(&mut snapshot, user("jane", UID));
        put_account(&mut snapshot, account(3));
        let token = put_token(&mut snapshot, "jane", UID, audience);
        (snapshot, token)
    }

    fn put_user(snapshot: &mut Snapshot, user: User) {
        let name = user.metadata.name.clone().unwrap();
        snapshot.users.insert(name.into(), Arc::new(Stored { revision: Revision(1), object: user }));
    }

    fn account(epoch: u64) -> Account {
        let mut account = Account::default();
        account.user_uid = UID.into();
        account.epoch = epoch;
        account
    }

    fn put_account(snapshot: &mut Snapshot, account: Account) {
        let state = AccountState::Known(Stored { revision: Revision(1), object: Arc::new(account) });
        snapshot.accounts.insert("jane".into(), state);
    }

    fn put_token(snapshot: &mut Snapshot, owner: &str, uid: &str, audience: Audience) -> Zeroizing<String> {
        let made = generate().unwrap();
        let record = TokenRecord {
            id: made.id.clone(),
            hash: String::new(),
            user: owner.into(),
            user_uid: uid.into(),
            epoch: 3,
            global_epoch: 1,
            audience,
            scopes: TokenScopes::default(),
            family: "f".into(),
            description: String::new(),
            created_at: "2026-03-01T00:00:00Z".into(),
            expires_at: "2026-03-02T00:00:00Z".into(),
        };
        let expires_at = record.expires_at.parse().unwrap();
        let entry = TokenEntry { revision: Revision(2), record, hash: made.hash, expires_at };
        snapshot.tokens.insert(made.id.as_str().into(), Arc::new(entry));
        made.secret_token
    }

    fn admitted(snapshot: &Snapshot, token: &str) -> bool {
        authenticate(snapshot, token, Audience::Kube, now()).is_ok()
    }

    #[test]
    fn a_live_token_names_its_owner() {
        let (snapshot, token) = snapshot(Audience::Kube);
        let caller = authenticate(&snapshot, &token, Audience::Kube, now()).unwrap();
        assert_eq!(caller.user.object.metadata.uid.as_deref(), Some(UID));
        assert!(token.contains(&caller.token.record.id));
    }

    #[test]
    fn audiences_never_mix() {
        for (made_for, presented_as) in [(Audience::Kube, Audience::Api), (Audience::Api, Audience::Kube)] {
            let (snapshot, token) = snapshot(made_for);
            assert!(authenticate(&snapshot, &token, made_for, now()).is_ok());
            assert_eq!(authenticate(&snapshot, &token, presented_as, now()).unwrap_err(), Unauthenticated);
        }
    }

    #[test]
    fn malformed_tokens_are_refused() {
        let (snapshot, token) = snapshot(Audience::Kube);
        assert!(admitted(&snapshot, &token));
        let (head, secret) = token.rsplit_once('_').unwrap();
        let bent = [
            String::new(),
            "bwk_".into(),
            "bwk__".into(),
            "garbage".into(),
            "🙂".repeat(20),
            head.to_owned(),
            format!("{head}_"),
            token[..token.len() - 1].to_owned(),
            token[1..].to_owned(),
            token.to_uppercase(),
            format!("{} ", *token),
            format!(" {}", *token),
            format!("{}\n", *token),
            format!("{}a", *token),
            format!("{head}_{secret}_{secret}"),
            format!("{head}__{}", &secret[1..]),
            format!("{head}_{}0", &secret[1..]),
            token.replacen("bwk_", "bwk-", 1),
        ];
        for token in bent {
            assert!(!admitted(&snapshot, &token), "{token:?} must be refused");
        }
    }

    #[test]
    fn secrets_are_not_interchangeable() {
        let (mut snapshot, janes) = snapshot(Audience::Kube);
        put_user(&mut snapshot, user("joe", "22222222-2222-4222-8222-222222222222"));
        let joes = put_token(&mut snapshot, "joe", "22222222-2222-4222-8222-222222222222", Audience::Kube);
        let (head, _) = janes.rsplit_once('_').unwrap();
        let (_, secret) = joes.rsplit_once('_').unwrap();
        assert!(!admitted(&snapshot, &format!("{head}_{secret}")));
        assert!(admitted(&snapshot, &janes));
    }

    #[test]
    fn unknown_tokens_are_refused_even_with_a_hash_of_zeros_in_mind() {
        let (snapshot, _) = snapshot(Audience::Kube);
        assert!(!admitted(&snapshot, &generate().unwrap().secret_token));
    }

    #[test]
    fn expiry_is_exclusive() {
        let (snapshot, token) = snapshot(Audience::Kube);
        let end: Timestamp = "2026-03-02T00:00:00Z".parse().unwrap();
        let just_before = end - jiff::SignedDuration::from_nanos(1);
        assert!(authenticate(&snapshot, &token, Audience::Kube, just_before).is_ok());
        assert!(authenticate(&snapshot, &token, Audience::Kube, end).is_err());
    }

    #[test]
    fn suspended_disabled_and_terminating_owners_are_refused() {
        let (base, token) = snapshot(Audience::Kube);

        let mut suspended = base.clone();
        let by = Suspension { at: "2026-03-01T00:00:00Z".into(), by: "root".into(), reason: String::new() };
        let mut with = account(3);
        with.suspended = Some(by);
        put_account(&mut suspended, with);
        assert!(!admitted(&suspended, &token));

        let mut disabled = base.clone();
        let mut jane = user("jane", UID);
        jane.spec.disabled = true;
        put_user(&mut disabled, jane);
        assert!(!admitted(&disabled, &token));

        let mut terminating = base.clone();
        let mut jane = user("jane", UID);
        jane.metadata.deletion_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time("2026-03-01T00:00:00Z".parse().unwrap()));
        put_user(&mut terminating, jane);
        assert!(!admitted(&terminating, &token));

        assert!(admitted(&base, &token));
    }

    #[test]
    fn deleted_and_recreated_owners_are_strangers() {
        let (mut snapshot, token) = snapshot(Audience::Kube);
        snapshot.users.remove("jane");
        assert!(!admitted(&snapshot, &token));
        put_user(&mut snapshot, user("jane", "33333333-3333-4333-8333-333333333333"));
        assert!(!admitted(&snapshot, &token));
        put_user(&mut snapshot, user("jane", UID));
        assert!(admitted(&snapshot, &token));
    }

    #[test]
    fn epochs_must_agree_exactly() {
        let (base, token) = snapshot(Audience::Kube);
        for (epoch, alive) in [(2, false), (3, true), (4, false)] {
            let mut snapshot = base.clone();
            put_account(&mut snapshot, account(epoch));
            assert_eq!(admitted(&snapshot, &token), alive, "account epoch {epoch}");
        }
        for (epoch, alive) in [(0, false), (1, true), (2, false)] {
            let mut snapshot = base.clone();
            snapshot.global_epoch = epoch;
            assert_eq!(admitted(&snapshot, &token), alive, "global epoch {epoch}");
        }
    }

    #[test]
    fn an_unreadable_account_refuses() {
        let (mut snapshot, token) = snapshot(Audience::Kube);
        snapshot.accounts.insert("jane".into(), AccountState::Unreadable(Revision(9)));
        assert!(!admitted(&snapshot, &token));
    }

    #[test]
    fn made_tokens_parse_and_differ() {
        let (a, b) = (generate().unwrap(), generate().unwrap());
        let parts = Parts::parse(&a.secret_token).unwrap();
        assert_eq!((parts.id, parts.hash()), (a.id.as_str(), a.hash));
        assert_eq!(a.secret_token.len(), TOKEN_LENGTH);
        assert!(crate::domain::names::check_label(&a.id).is_ok(), "an id is the name of a Token");
        assert!(a.id != b.id && a.hash != b.hash);
    }

    #[test]
    fn nothing_printable_shows_the_secret() {
        let (snapshot, token) = snapshot(Audience::Kube);
        let record = snapshot.tokens.values().next().unwrap().record.clone();
        let issued = IssuedToken { id: record.id.clone(), secret_token: token.clone(), record };
        assert!(!format!("{issued:?}").contains(&token[TOKEN_LENGTH - SECRET_LENGTH..]));
    }

    #[test]
    fn base32_follows_the_rfc() {
        // Vectors of RFC 4648, section 10, in lower case and without padding.
        for (plain, expected) in [("", ""), ("f", "my"), ("fo", "mzxq"), ("foob", "mzxw6yq"), ("foobar", "mzxw6ytboi")]
        {
            let mut text = String::new();
            base32(plain.as_bytes(), &mut text);
            assert_eq!(text, expected, "{plain}");
        }
    }

    proptest! {
        #[test]
        fn parsing_never_panics_and_accepts_only_the_shape(text in ".{0,90}") {
            if let Some(parts) = Parts::parse(&text) {
                prop_assert_eq!(text.len(), TOKEN_LENGTH);
                prop_assert!(text.contains(parts.id));
            }
        }

        #[test]
        fn a_changed_character_is_refused(at in 0..TOKEN_LENGTH, with in "[a-z2-7_]") {
            let (snapshot, token) = snapshot(Audience::Kube);
            let mut changed = token.to_string();
            changed.replace_range(at..=at, &with);
            prop_assert_eq!(admitted(&snapshot, &changed), changed == *token);
        }
    }
}
