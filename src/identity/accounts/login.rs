//! Signing in with a password.

use std::net::IpAddr;

use jiff::Timestamp;
use zeroize::Zeroizing;

use super::issue::Ground;
use super::{AccountError, Accounts, Inner};
use crate::clock::rfc3339;
use crate::identity::account_record::put_password;
use crate::identity::backoff::BackingOff;
use crate::identity::passwords::{Verdict, Weakness};
use crate::identity::tokens::{IssuedToken, NewToken};
use crate::index::{AccountState, Snapshot};
use crate::records::{Account, TokenScopes};
use crate::resources::User;
use crate::resources::token::Audience;
use crate::resources::user::UserType;

/// Why somebody was not signed in.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LoginError {
    /// No such user, a machine, suspended, disabled, or the wrong password: which of them is told to nobody.
    #[error("user name or password is wrong")]
    Refused,
    /// The password is right and must be changed: sign in again and give a new one.
    #[error("the password must be changed; give a new one")]
    PasswordChangeRequired,
    /// Too many failures; nothing was looked at.
    #[error(transparent)]
    BackingOff(#[from] BackingOff),
    /// The new password is not good enough.
    #[error(transparent)]
    Weak(#[from] Weakness),
    /// Too many passwords are being hashed; nothing was looked at.
    #[error("too many sign-ins at the same time; try again in a few seconds")]
    Busy,
    /// We failed.
    #[error("signing in failed: {0}")]
    Failed(#[source] AccountError),
}

impl From<AccountError> for LoginError {
    fn from(error: AccountError) -> Self {
        match error {
            // What became of the account between the proof and the token is no different from what was before.
            AccountError::MayNotAct | AccountError::UserNotFound(_) | AccountError::Machine => Self::Refused,
            AccountError::Weak(weakness) => Self::Weak(weakness),
            AccountError::Busy => Self::Busy,
            error => Self::Failed(error),
        }
    }
}

/// A password was right for this user while the account had this epoch. Nothing was written yet but the back-off.
pub struct Proof {
    user: User,
    pub(super) uid: String,
    epoch: u64,
    must_change: bool,
    outdated: bool,
}

impl Accounts {
    /// Signs in: [`Accounts::prove`] and [`Accounts::sign_in`].
    pub async fn login(
        &self,
        user: &str,
        password: &str,
        new_password: Option<&str>,
        address: IpAddr,
        now: Timestamp,
    ) -> Result<IssuedToken, LoginError> {
        let proof = self.prove(user, password, address, now).await?;
        self.sign_in(proof, password, new_password, address, now).await
    }

    /// The first half of signing in: the password is right. It writes nothing, so that whoever has none can make us
    /// compute, within bounds, but not write.
    pub async fn prove(
        &self,
        user: &str,
        password: &str,
        address: IpAddr,
        now: Timestamp,
    ) -> Result<Proof, LoginError> {
        self.inner.prove(user, password, address, now).await
    }

    /// The second half: a token of audience `api` in a family of its own. A new password is set first where one is
    /// given, which ends everything that was issued before. `password` is the proven one.
    pub async fn sign_in(
        &self,
        proof: Proof,
        password: &str,
        new_password: Option<&str>,
        address: IpAddr,
        now: Timestamp,
    ) -> Result<IssuedToken, LoginError> {
        let inner = &self.inner;
        if proof.must_change && new_password.is_none() {
            return Err(LoginError::PasswordChangeRequired);
        }
        let epoch = inner.record_login(&proof, password, new_password, now).await?;
        let new = NewToken {
            audience: Audience::Api,
            scopes: TokenScopes::default(),
            expires_in: inner.policy.api.default,
            description: format!("signed in from {address}"),
            family: None,
        };
        let ground = Ground::SignIn { uid: proof.uid, epoch };
        let user = proof.user.metadata.name.as_deref().unwrap_or_default();
        Ok(inner.clone().issue(user, new, ground, now).await?)
    }

    /// Changes one's own password. Everything that was issued before ends, the credential of this request included.
    pub async fn change_password(
        &self,
        user: &str,
        old: &str,
        new: &str,
        address: IpAddr,
        now: Timestamp,
    ) -> Result<(), LoginError> {
        let proof = self.inner.prove(user, old, address, now).await?;
        let hash = self.inner.hash_changed(&proof.user, old, new).await?;
        let change = |account: &mut Account| {
            proof.check(account)?;
            put_password(account, &hash, false);
            Ok(true)
        };
        self.inner.change(user, change).await?;
        Ok(())
    }
}

impl Proof {
    /// Whether nothing comes of it without a new password.
    pub fn must_change(&self) -> bool {
        self.must_change
    }

    /// Whether what was proven is still so. Whatever matters raises the epoch.
    fn check(&self, account: &Account) -> Result<(), AccountError> {
        let holds = account.user_uid == self.uid && account.epoch == self.epoch && account.suspended.is_none();
        holds.then_some(()).ok_or(AccountError::MayNotAct)
    }
}

impl Inner {
    /// Proves a password, at the price that the back-off asks. All refusals cost one hash.
    pub(super) async fn prove(
        &self,
        user: &str,
        password: &str,
        address: IpAddr,
        now: Timestamp,
    ) -> Result<Proof, LoginError> {
        let attempt = self.backoff.begin(user, address, now)?;
        if !attempt.pause.is_zero() {
            tokio::time::sleep(attempt.pause).await;
        }
        let snapshot = match self.fresh_snapshot() {
            Ok(snapshot) => snapshot,
            Err(error) => {
                attempt.void();
                return Err(error.into());
            }
        };
        let candidate = candidate(&snapshot, user);
        let stored = candidate.and_then(|(_, account)| account.password.as_deref());
        let verdict = match self.passwords.verify(password, stored).await {
            Ok(verdict) => verdict,
            Err(error) => {
                attempt.void();
                return Err(AccountError::from(error).into());
            }
        };
        let (Verdict::Right { outdated }, Some((user, account))) = (verdict, candidate) else {
            return Err(LoginError::Refused);
        };
        attempt.succeeded(now);
        Ok(Proof {
            user: user.clone(),
            uid: account.user_uid.clone(),
            epoch: account.epoch,
            must_change: account.must_change,
            outdated,
        })
    }

    /// Writes down the sign-in, with a new password or a better hash of the old one. Returns the epoch after it.
    pub(super) async fn record_login(
        &self,
        proof: &Proof,
        password: &str,
        new_password: Option<&str>,
        now: Timestamp,
    ) -> Result<u64, LoginError> {
        let new_hash = match new_password {
            Some(new) => Some(self.hash_changed(&proof.user, password, new).await?),
            None => None,
        };
        let better_hash = if proof.outdated && new_hash.is_none() {
            Some(self.passwords.hash(password).await.map_err(AccountError::from)?)
        } else {
            None
        };
        let name = proof.user.metadata.name.as_deref().unwrap_or_default();
        let record = |account: &mut Account| {
            proof.check(account)?;
            if let Some(hash) = &new_hash {
                put_password(account, hash, false);
            } else if let Some(hash) = &better_hash {
                account.password = Some(hash.to_string());
            }
            account.last_login = Some(rfc3339(now));
            Ok(true)
        };
        Ok(self.change(name, record).await?.epoch)
    }

    async fn hash_changed(&self, user: &User, old: &str, new: &str) -> Result<Zeroizing<String>, AccountError> {
        if old == new {
            return Err(Weakness::Unchanged.into());
        }
        Ok(self.passwords.hash_new(new, user).await?)
    }
}

/// The user and account behind a name, if it may sign in with a password at all.
fn candidate<'a>(snapshot: &'a Snapshot, name: &str) -> Option<(&'a User, &'a Account)> {
    let user = &snapshot.users.get(name)?.object;
    let Some(AccountState::Known(account)) = snapshot.accounts.get(name) else { return None };
    let same = user.metadata.uid.as_ref() == Some(&account.object.user_uid);
    let person = user.spec.type_ == UserType::Human;
    (same && person && snapshot.account_may_act(user)).then_some((user, &account.object))
}
