//! Issue, revocation and removal of tokens.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::scope::{check_shape, check_within, is_limited};
use super::{AccountError, Accounts, Inner};
use crate::clock::rfc3339;
use crate::identity::account_record::identity;
use crate::identity::tokens::{self, IssuedToken, NewToken};
use crate::index::{Snapshot, TokenEntry};
use crate::records::TokenRecord;
use crate::resources::token::Audience;
use crate::store::sealed::Binding;
use crate::store::{Key, Kind, StoreError};

/// A sign-in founds a family named by this and its own id. Tokens that continue the family are no sign-ins.
const SIGN_IN: &str = "login-";

/// How long ended tokens are kept before they are purged: a clock that jumped ahead must not take away for good what
/// a corrected one would still honour.
const KEEP_ENDED: SignedDuration = SignedDuration::from_hours(24);

/// How often ended tokens are looked for.
const PURGE_EVERY: Duration = Duration::from_secs(3600);

/// On what a token is issued; it must still hold in the snapshot that gives the epoch.
pub(super) enum Ground {
    /// The decision of the caller of this module.
    Trusted,
    /// A password was proven while the account had this UID and epoch: a new sign-in.
    SignIn { uid: String, epoch: u64 },
    /// A credential, whose limits are passed on.
    Token(Arc<TokenEntry>),
}

impl Accounts {
    /// Issues a token. Nothing limits it but the policy; requests of people come through [`Accounts::issue_for`].
    pub async fn issue(&self, user: &str, new: NewToken, now: Timestamp) -> Result<IssuedToken, AccountError> {
        self.inner.clone().issue(user, new, Ground::Trusted, now).await
    }

    /// Issues a token on behalf of whoever presented `caller`: it is not wider, and where `caller` has limits it does
    /// not live longer. Whether the caller may issue tokens for `user` at all is decided before.
    pub async fn issue_for(
        &self,
        caller: &Arc<TokenEntry>,
        user: &str,
        new: NewToken,
        now: Timestamp,
    ) -> Result<IssuedToken, AccountError> {
        self.inner.clone().issue(user, new, Ground::Token(caller.clone()), now).await
    }

    /// How long a token lives where nothing is asked for, within what `caller` may pass on.
    pub fn default_lifetime(&self, caller: Option<&TokenEntry>, audience: Audience, now: Timestamp) -> Duration {
        let default = self.inner.policy.lifetime(audience).default;
        match caller {
            Some(caller) if is_limited(&caller.record.scopes) => {
                let left = Duration::try_from(caller.expires_at.duration_since(now)).unwrap_or(Duration::ZERO);
                // Times are kept in whole seconds; rounded up the new token would outlive the old one.
                default.min(Duration::from_secs(left.as_secs()))
            }
            _ => default,
        }
    }

    /// Ends a token. When this returns it is good for nothing.
    pub async fn revoke(&self, token_id: &str) -> Result<(), AccountError> {
        let inner = &self.inner;
        let key = Key::new(Kind::Token, token_id);
        loop {
            let entry = inner.store.get(&key).await?;
            let entry = entry.ok_or_else(|| AccountError::TokenNotFound(token_id.to_owned()))?;
            match inner.store.delete(key.clone(), entry.revision).await {
                Ok(revision) => {
                    inner.forget_use(token_id).await;
                    return inner.applied(revision).await;
                }
                // Records of tokens do not change; somebody else deleted it or is about to.
                Err(StoreError::Conflict { .. }) => {}
                Err(StoreError::NotFound(_)) => return Err(AccountError::TokenNotFound(token_id.to_owned())),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Deletes tokens that ended a day ago or longer, those whose owner is gone, and records of use without a token.
    /// Returns how many tokens. `now` is a time that has proven itself ([`crate::clock::Clock::steady`]).
    pub async fn purge_expired(&self, now: Timestamp) -> Result<usize, AccountError> {
        let snapshot = self.inner.index.snapshot();
        let ended = |token: &TokenEntry| now.duration_since(token.expires_at) >= KEEP_ENDED;
        let orphaned = |token: &TokenEntry| match snapshot.users.get(token.record.user.as_str()) {
            None => true,
            Some(user) => user.object.metadata.uid.as_ref() != Some(&token.record.user_uid),
        };
        let mut purged = 0;
        for token in snapshot.tokens.values().filter(|token| ended(token) || orphaned(token)) {
            purged += usize::from(self.inner.remove(token).await?);
        }
        for id in snapshot.token_uses.keys().filter(|id| !snapshot.tokens.contains_key(*id)) {
            self.inner.forget_use(id).await;
        }
        Ok(purged)
    }

    /// Purges once an hour, until the end.
    pub async fn run_purge(self, shutdown: CancellationToken) {
        let mut ticks = tokio::time::interval(PURGE_EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                _ = ticks.tick() => {}
            }
            if let Err(error) = self.purge_expired(self.inner.index.clock().steady()).await {
                warn!(%error, "ended tokens could not be purged; trying again in an hour");
            }
        }
    }
}

fn is_sign_in(token: &TokenEntry) -> bool {
    token.record.family.strip_prefix(SIGN_IN) == Some(token.record.id.as_str())
}

impl Inner {
    /// Runs to its end even if the caller goes away: the number of tokens is counted under the user's lock, and a
    /// write that is still under way when the lock is given up would not be counted.
    pub(super) async fn issue(
        self: Arc<Self>,
        user: &str,
        new: NewToken,
        ground: Ground,
        now: Timestamp,
    ) -> Result<IssuedToken, AccountError> {
        check_shape(&new.scopes, &new.description)?;
        let max = self.policy.lifetime(new.audience).max;
        if new.expires_in < Duration::from_secs(1) || new.expires_in > max {
            return Err(AccountError::Lifetime { max });
        }
        let user = user.to_owned();
        let task = tokio::spawn(async move {
            let _issuing = self.lock(&user).await;
            self.issue_locked(&user, new, ground, now).await
        });
        task.await.map_err(|error| AccountError::Failed(error.to_string()))?
    }

    async fn issue_locked(
        &self,
        user: &str,
        new: NewToken,
        ground: Ground,
        now: Timestamp,
    ) -> Result<IssuedToken, AccountError> {
        let NewToken { audience, scopes, expires_in, description, family } = new;
        // In whole seconds, rounded down.
        let seconds = i64::try_from(expires_in.as_secs()).unwrap_or(i64::MAX);
        let expires_at = Timestamp::from_second(now.as_second().saturating_add(seconds))
            .map_err(|error| AccountError::Failed(error.to_string()))?;
        // Everything is read from one snapshot. What happens later raises the epoch, and the token is dead.
        let snapshot = self.fresh_snapshot()?;
        let owner = snapshot.users.get(user).ok_or_else(|| AccountError::UserNotFound(user.to_owned()))?;
        let (_, uid) = identity(&owner.object)?;
        let epoch = snapshot.epoch_of(&owner.object).filter(|_| snapshot.account_may_act(&owner.object));
        let epoch = epoch.ok_or(AccountError::MayNotAct)?;
        match &ground {
            Ground::Trusted => {}
            Ground::SignIn { uid: proven, epoch: at } => {
                if proven != uid || *at != epoch {
                    return Err(AccountError::MayNotAct);
                }
            }
            Ground::Token(caller) => {
                let current = snapshot.tokens.get(caller.record.id.as_str());
                let lives = current.is_some_and(|token| token.hash == caller.hash)
                    && snapshot.live_owner(caller, now).is_some();
                if !lives {
                    return Err(AccountError::CallerEnded);
                }
                check_within(caller, &scopes, expires_at)?;
            }
        }
        let signing_in = matches!(ground, Ground::SignIn { .. });
        self.make_room(&snapshot, user, signing_in, now).await?;

        let made = tokens::generate()?;
        let own = if signing_in { format!("{SIGN_IN}{}", made.id) } else { made.id.clone() };
        let family = family.unwrap_or(own);
        let record = TokenRecord {
            id: made.id.clone(),
            hash: STANDARD.encode(made.hash),
            user: user.to_owned(),
            user_uid: uid.to_owned(),
            epoch,
            global_epoch: snapshot.global_epoch,
            audience,
            scopes,
            family,
            description,
            created_at: rfc3339(now),
            expires_at: expires_at.to_string(),
        };
        let key = Key::new(Kind::Token, made.id.as_str());
        let sealed = self.sealer.seal(&key, Binding { uid, version: 1 }, &record)?;
        let revision = self.store.create(key, sealed).await?;
        self.applied(revision).await?;
        Ok(IssuedToken { id: made.id, secret_token: made.secret_token, record })
    }

    /// Removes the user's tokens that are dead, and sees that there is room for one more. The lock of the user is
    /// held, and whoever held it before waited until the index had the token: the snapshot counts all.
    async fn make_room(
        &self,
        snapshot: &Snapshot,
        user: &str,
        signing_in: bool,
        now: Timestamp,
    ) -> Result<(), AccountError> {
        // A clock that has just jumped forward may return; what was removed would not.
        let proven = now.min(self.index.clock().steady());
        let (live, dead): (Vec<_>, Vec<_>) =
            snapshot.tokens_of(user).partition(|token| snapshot.live_owner(token, proven).is_some());
        // The owner may act, so that what is dead is dead for good: ended, of an older epoch or of a stranger.
        for token in dead {
            self.remove(token).await?;
        }
        let mut alike: Vec<_> = live.into_iter().filter(|token| is_sign_in(token) == signing_in).collect();
        if signing_in {
            // By age; a record that was sealed anew has a new revision.
            alike.sort_by(|a, b| (&a.record.created_at, a.revision).cmp(&(&b.record.created_at, b.revision)));
            let too_many = (alike.len() + 1).saturating_sub(self.policy.max_sign_ins.max(1));
            for token in &alike[..too_many] {
                self.remove(token).await?;
            }
        } else if alike.len() >= self.policy.max_tokens {
            return Err(AccountError::TooManyTokens { max: self.policy.max_tokens });
        }
        Ok(())
    }

    /// Removes a token and says whether it was there. Does not wait for the index.
    async fn remove(&self, token: &TokenEntry) -> Result<bool, AccountError> {
        let id = token.record.id.as_str();
        let removed = match self.store.delete(Key::new(Kind::Token, id), token.revision).await {
            Ok(_) => true,
            Err(StoreError::NotFound(_) | StoreError::Conflict { .. }) => false,
            Err(error) => return Err(error.into()),
        };
        self.forget_use(id).await;
        Ok(removed)
    }

    /// Removes the record of a token's use. One that is left over is found by the purge.
    async fn forget_use(&self, token_id: &str) {
        let key = Key::new(Kind::TokenUse, token_id);
        let result = match self.store.get(&key).await {
            Ok(Some(entry)) => self.store.delete(key, entry.revision).await.map(|_| ()),
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = result {
            warn!(%error, "the record of a token's use is left over");
        }
    }
}
