//! The sealed record of an account, and the one way in which it changes: read, change, seal anew, compare-and-swap.

use zeroize::Zeroizing;

use super::accounts::AccountError;
use crate::records::Account;
use crate::resources::User;
use crate::store::sealed::{Binding, SealError, Sealer};
use crate::store::{Key, Kind, Revision, Store, StoreError};

/// Rounds before we give up. Writers of one account wait for each other, so that even one conflict is rare.
const ROUNDS: usize = 16;

/// What to do with a record that does not open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unreadable {
    /// Leave it: the account stays refused.
    Refuse,
    /// Write a new one, with this epoch. Only for recovery on the host.
    Replace {
        /// Higher than any that the lost record can have had.
        epoch: u64,
    },
}

/// Where the record stands after a change.
pub(super) struct Changed {
    /// Revision of the record; zero where there is none and none was written.
    pub(super) revision: Revision,
    /// Epoch of the account.
    pub(super) epoch: u64,
}

/// Changes the record of `user`, creating it where none exists. `change` says whether there is something to write; it
/// is asked again after a conflict.
///
/// A record that another user of this name left behind is replaced, with a higher epoch: nothing that the stranger was
/// issued can match it, whatever else goes wrong.
pub(super) async fn change(
    store: &dyn Store,
    sealer: &Sealer,
    user: &User,
    unreadable: Unreadable,
    mut change: impl FnMut(&mut Account) -> Result<bool, AccountError>,
) -> Result<Changed, AccountError> {
    let (name, uid) = identity(user)?;
    let key = Key::new(Kind::Account, name);
    for _ in 0..ROUNDS {
        let current = store.get(&key).await?;
        let mut account = Account::default();
        account.user_uid = uid.to_owned();
        let mut version = 0;
        if let Some(entry) = &current {
            match (sealer.open::<Account>(&key, &entry.value), unreadable) {
                (Ok(opened), _) => {
                    version = opened.version;
                    if opened.content.user_uid == uid {
                        account = opened.content;
                    } else {
                        account.epoch = opened.content.epoch + 1;
                    }
                }
                (Err(error), Unreadable::Refuse) => return Err(error.into()),
                (Err(error), Unreadable::Replace { epoch }) => {
                    tracing::warn!(%error, "the record of the account is replaced");
                    (account.epoch, version) = (epoch, epoch);
                }
            }
        }
        let epoch_before = account.epoch;
        if !change(&mut account)? {
            return Ok(Changed { revision: current.map_or(Revision(0), |entry| entry.revision), epoch: account.epoch });
        }
        debug_assert!(account.epoch >= epoch_before, "an epoch is never lowered");
        let sealed = sealer.seal(&key, Binding { uid, version: version + 1 }, &account)?;
        let written = match current {
            Some(entry) => store.update(key.clone(), entry.revision, sealed).await,
            None => store.create(key.clone(), sealed).await,
        };
        match written {
            Ok(revision) => return Ok(Changed { revision, epoch: account.epoch }),
            Err(StoreError::Conflict { .. } | StoreError::AlreadyExists(_) | StoreError::NotFound(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(AccountError::Contended)
}

/// Name and UID of a user; one without a UID is nobody.
pub(super) fn identity(user: &User) -> Result<(&str, &str), AccountError> {
    match (&user.metadata.name, &user.metadata.uid) {
        (Some(name), Some(uid)) if !uid.is_empty() => Ok((name, uid)),
        (name, _) => Err(AccountError::UserNotFound(name.clone().unwrap_or_default())),
    }
}

/// Reads a user from the store itself, for writes that must not rest on an older version.
pub(super) async fn read_user(store: &dyn Store, name: &str) -> Result<(User, Revision), AccountError> {
    let key = Key::new(Kind::User, name);
    let entry = store.get(&key).await?.ok_or_else(|| AccountError::UserNotFound(name.to_owned()))?;
    let user = serde_json::from_slice(&entry.value).map_err(|_| SealError::Malformed(key.to_string()))?;
    Ok((user, entry.revision))
}

/// Puts a password into a record. What was issued before is dead.
pub(super) fn put_password(account: &mut Account, hash: &Zeroizing<String>, must_change: bool) {
    account.password = Some(hash.to_string());
    account.must_change = must_change;
    account.epoch += 1;
}
