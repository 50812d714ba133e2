//! Accounts: signing in, suspension, passwords, and the issue and revocation of tokens.
//!
//! Everything writes through the store and returns only when the index has applied it. What makes races harmless is
//! the epoch: a token carries the epoch of the snapshot that showed its owner in good standing. Suspension, disabling
//! and password changes raise the epoch, so a token that was being issued meanwhile is dead before it is shown.

mod issue;
mod login;
mod scope;

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::account_record::{self, Unreadable, put_password, read_user};
use super::backoff::{Backoff, BackoffPolicy};
use super::passwords::{PasswordError, PasswordPolicy, Passwords, Weakness};
use crate::clock::rfc3339;
use crate::index::{Index, IndexError, Snapshot};
use crate::records::{Account, Suspension};
use crate::resources::User;
use crate::resources::token::Audience;
use crate::resources::user::UserType;
use crate::store::sealed::{SealError, Sealer};
use crate::store::{Revision, Store, StoreError};

pub use login::{LoginError, Proof};
pub use scope::Wider;

/// Longest wait until the index has applied what was written.
const APPLY_DEADLINE: Duration = Duration::from_secs(10);

/// Locks that writers of accounts share. A user has always the same one; that two users share one costs a little
/// waiting and nothing else, since nobody ever holds two.
const LOCKS: usize = 256;

/// How long tokens of an audience live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetime {
    /// Where nothing is asked for.
    pub default: Duration,
    /// At most.
    pub max: Duration,
}

/// Limits and costs of accounts.
#[derive(Debug, Clone)]
pub struct AccountPolicy {
    /// Live tokens that an account may have issued; sign-ins are counted apart.
    pub max_tokens: usize,
    /// Live sign-ins of an account. One more ends the oldest: who has used up all tokens can still sign in and revoke.
    pub max_sign_ins: usize,
    /// Life of tokens for the proxy.
    pub kube: Lifetime,
    /// Life of tokens for our own API; a sign-in has the default.
    pub api: Lifetime,
    /// Passwords.
    pub passwords: PasswordPolicy,
    /// What guessing costs.
    pub backoff: BackoffPolicy,
    /// Whether a bootstrap password given by the operator must be changed at the first sign-in. A generated one must.
    pub bootstrap_must_change: bool,
}

impl Default for AccountPolicy {
    fn default() -> Self {
        let day = Duration::from_secs(24 * 3600);
        Self {
            max_tokens: 50,
            max_sign_ins: 10,
            kube: Lifetime { default: 30 * day, max: 90 * day },
            api: Lifetime { default: day / 2, max: 30 * day },
            passwords: PasswordPolicy::default(),
            backoff: BackoffPolicy::default(),
            bootstrap_must_change: true,
        }
    }
}

impl AccountPolicy {
    /// Life of the tokens of an audience.
    pub fn lifetime(&self, audience: Audience) -> Lifetime {
        match audience {
            Audience::Kube => self.kube,
            Audience::Api => self.api,
        }
    }
}

/// Why nothing was done to an account, or why it is not known whether it was.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AccountError {
    /// There is no such user.
    #[error("user {0:?} does not exist")]
    UserNotFound(String),
    /// There is no such token.
    #[error("token {0:?} does not exist")]
    TokenNotFound(String),
    /// Suspended, disabled, being deleted, or not what it was a moment ago.
    #[error("the account may not act")]
    MayNotAct,
    /// The credential that the request came with has ended meanwhile.
    #[error("the credential has ended")]
    CallerEnded,
    /// The account has as many live tokens as it may.
    #[error("the account has {max} live tokens, as many as it may; revoke one first")]
    TooManyTokens {
        /// How many it may have.
        max: usize,
    },
    /// A token may not live that long, or not at all.
    #[error("a token of this audience must live at least a second and at most {} s", .max.as_secs())]
    Lifetime {
        /// Longest life.
        max: Duration,
    },
    /// The new token would reach further than the one that asks for it.
    #[error(transparent)]
    Wider(#[from] Wider),
    /// A field is not as it must be.
    #[error("{field}: {message}")]
    Invalid {
        /// Which.
        field: &'static str,
        /// Why.
        message: String,
    },
    /// A machine has tokens only.
    #[error("a machine has no password; issue a token for it")]
    Machine,
    /// The password is not good enough.
    #[error(transparent)]
    Weak(#[from] Weakness),
    /// Too many passwords are being hashed.
    #[error("too many sign-ins at the same time; try again in a few seconds")]
    Busy,
    /// Others kept changing the account.
    #[error("the account is being changed by others; try again")]
    Contended,
    /// The store failed; the outcome of a write is unknown.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A record does not open, or cannot be sealed.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// Written, but not known to be in force.
    #[error("the change is stored but not yet in force")]
    NotInForce,
    /// The store's changes do not reach us: who has been suspended meanwhile is not known.
    #[error("the state of accounts is not current; try again")]
    Stale,
    /// The index has ended.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// Hashing failed, or there were no random bytes, or the process is going down.
    #[error("{0}")]
    Failed(String),
}

impl From<PasswordError> for AccountError {
    fn from(error: PasswordError) -> Self {
        match error {
            PasswordError::Weak(weakness) => Self::Weak(weakness),
            PasswordError::Busy => Self::Busy,
            PasswordError::Failed(why) => Self::Failed(why),
        }
    }
}

impl From<getrandom::Error> for AccountError {
    fn from(error: getrandom::Error) -> Self {
        Self::Failed(format!("no random bytes: {error}"))
    }
}

/// All that can be done with accounts. Cheap to clone.
#[derive(Clone)]
pub struct Accounts {
    inner: Arc<Inner>,
}

struct Inner {
    store: Arc<dyn Store>,
    sealer: Arc<Sealer>,
    index: Arc<Index>,
    policy: AccountPolicy,
    passwords: Passwords,
    backoff: Backoff,
    hasher: RandomState,
    locks: Vec<Arc<Mutex<()>>>,
}

impl Accounts {
    /// Over a store and the index that follows it.
    pub fn new(store: Arc<dyn Store>, sealer: Arc<Sealer>, index: Arc<Index>, policy: AccountPolicy) -> Self {
        let inner = Inner {
            store,
            sealer,
            index,
            passwords: Passwords::new(policy.passwords.clone()),
            backoff: Backoff::new(policy.backoff.clone()),
            policy,
            hasher: RandomState::new(),
            locks: (0..LOCKS).map(|_| Arc::default()).collect(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// The limits in force.
    pub fn policy(&self) -> &AccountPolicy {
        &self.inner.policy
    }

    pub(super) fn store(&self) -> &dyn Store {
        &*self.inner.store
    }

    pub(super) fn sealer(&self) -> &Sealer {
        &self.inner.sealer
    }

    pub(super) fn passwords(&self) -> &Passwords {
        &self.inner.passwords
    }

    pub(super) fn now(&self) -> Timestamp {
        self.inner.index.now()
    }

    pub(super) fn snapshot(&self) -> Arc<Snapshot> {
        self.inner.index.snapshot()
    }

    pub(super) async fn applied(&self, revision: Revision) -> Result<(), AccountError> {
        self.inner.applied(revision).await
    }

    /// Suspends an account: from the moment this returns nothing that it was ever issued is good for anything, now or
    /// after it is resumed. Suspending again keeps the first record of who, when and why.
    pub async fn suspend(&self, user: &str, by: &str, reason: &str, now: Timestamp) -> Result<(), AccountError> {
        let suspension = Suspension { at: rfc3339(now), by: by.to_owned(), reason: reason.to_owned() };
        let suspend = |account: &mut Account| {
            if account.suspended.is_some() {
                return Ok(false);
            }
            account.suspended = Some(suspension.clone());
            account.epoch += 1;
            Ok(true)
        };
        self.inner.change(user, suspend).await.map(|_| ())
    }

    /// Ends a suspension. What was issued before it stays dead.
    pub async fn resume(&self, user: &str, _now: Timestamp) -> Result<(), AccountError> {
        self.inner.change(user, |account| Ok(account.suspended.take().is_some())).await.map(|_| ())
    }

    /// Kills everything that the account was issued before. Called after `spec.disabled` has become true.
    pub async fn raise_epoch(&self, user: &str) -> Result<(), AccountError> {
        let raise = |account: &mut Account| {
            account.epoch += 1;
            Ok(true)
        };
        self.inner.change(user, raise).await.map(|_| ())
    }

    /// Sets a password and kills everything that the account was issued before. The password must be strong, and the
    /// account a person's.
    pub async fn set_password(&self, user: &str, password: &str, must_change: bool) -> Result<(), AccountError> {
        let (user, _) = read_user(&*self.inner.store, user).await?;
        if user.spec.type_ == UserType::Machine {
            return Err(AccountError::Machine);
        }
        let hash = self.inner.passwords.hash_new(password, &user).await?;
        self.inner.set_hash(&user, &hash, must_change).await
    }
}

impl Inner {
    /// Changes the record of a user and returns when the change is in force. Where there is nothing to change, returns
    /// when what was found is in force.
    async fn change(
        &self,
        user: &str,
        change: impl FnMut(&mut Account) -> Result<bool, AccountError>,
    ) -> Result<account_record::Changed, AccountError> {
        let _writing = self.lock(user).await;
        let (user, _) = read_user(&*self.store, user).await?;
        let changed = account_record::change(&*self.store, &self.sealer, &user, Unreadable::Refuse, change).await?;
        self.applied(changed.revision).await?;
        Ok(changed)
    }

    /// Puts the hash of a password into the record of exactly this user, who may have been replaced meanwhile.
    async fn set_hash(
        &self,
        user: &User,
        hash: &zeroize::Zeroizing<String>,
        must_change: bool,
    ) -> Result<(), AccountError> {
        let (name, uid) = account_record::identity(user)?;
        let set = |account: &mut Account| {
            if account.user_uid != uid {
                return Err(AccountError::UserNotFound(name.to_owned()));
            }
            put_password(account, hash, must_change);
            Ok(true)
        };
        self.change(name, set).await.map(|_| ())
    }

    /// Writers of one account, one after the other.
    async fn lock(&self, user: &str) -> OwnedMutexGuard<()> {
        let at = self.hasher.hash_one(user) as usize % self.locks.len();
        self.locks[at].clone().lock_owned().await
    }

    /// The current version of everything, where decisions may rest on it.
    fn fresh_snapshot(&self) -> Result<Arc<Snapshot>, AccountError> {
        let snapshot = self.index.snapshot();
        self.index.is_fresh().then_some(snapshot).ok_or(AccountError::Stale)
    }

    async fn applied(&self, revision: Revision) -> Result<(), AccountError> {
        match tokio::time::timeout(APPLY_DEADLINE, self.index.applied(revision)).await {
            Ok(result) => Ok(result?),
            Err(_) => Err(AccountError::NotInForce),
        }
    }
}

#[cfg(test)]
mod tests;
