//! What a restored store takes over from the one whose place it takes: what was taken from people since the backup.
//!
//! Every token is dead by the epoch of the installation. What is left are passwords, suspensions and accounts that are
//! no more: none of them comes back by a restore.

use jiff::Timestamp;

use super::account_record::{self, Unreadable, identity};
use super::accounts::AccountError;
use crate::clock::rfc3339;
use crate::records::{Account, Suspension};
use crate::resources::User;
use crate::store::sealed::Sealer;
use crate::store::{EPOCH, Key, Kind, Store};

/// Names of users, by what was done with them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TakenOver {
    /// Password, suspension and epoch are as they were before the restore.
    pub accounts: Vec<String>,
    /// Disabled, as they were before the restore.
    pub disabled: Vec<String>,
    /// Suspended: they were deleted after the backup.
    pub suspended: Vec<String>,
}

/// Takes over from `present` to `restored`. `later` says that `present` is the same store at a later time, so that who is
/// missing there was deleted since.
pub async fn take_over(
    present: &dyn Store,
    restored: &dyn Store,
    sealer: &Sealer,
    later: bool,
    now: Timestamp,
) -> Result<TakenOver, AccountError> {
    let mut taken = TakenOver::default();
    for entry in restored.list(Kind::User).await?.0 {
        let name = &entry.key.name;
        let Ok(mut user) = serde_json::from_slice::<User>(&entry.value) else { continue };
        let Ok((_, uid)) = identity(&user) else { continue };
        let before = present.get(&entry.key).await?;
        let before = before.and_then(|entry| serde_json::from_slice::<User>(&entry.value).ok());
        let before = before.filter(|before| before.metadata.uid.as_deref() == Some(uid));
        let Some(before) = before else {
            if later {
                suspend(restored, sealer, &user, now).await?;
                taken.suspended.push(name.to_string());
            }
            continue;
        };
        if take_account(present, restored, sealer, name, uid).await? {
            taken.accounts.push(name.to_string());
        }
        if before.spec.disabled && !user.spec.disabled {
            user.spec.disabled = true;
            user.metadata.generation = user.metadata.generation.map(|generation| generation + 1);
            let value = serde_json::to_vec(&user).map_err(|error| AccountError::Failed(error.to_string()))?;
            restored.update(entry.key.clone(), entry.revision, value.into()).await?;
            taken.disabled.push(name.to_string());
        }
    }
    Ok(taken)
}

/// The epoch of the installation in a store, and the version of its record. Zero where there is none.
pub async fn global_epoch(store: &dyn Store, sealer: &Sealer) -> Result<(u64, u64), AccountError> {
    let key = Key::new(Kind::Platform, EPOCH);
    let Some(entry) = store.get(&key).await? else { return Ok((0, 0)) };
    let opened = sealer.open::<u64>(&key, &entry.value)?;
    Ok((opened.content, opened.version))
}

/// Takes the record of the same account where it is a later one. It is bound to name and owner, so that it opens in the
/// restored store as it did before.
async fn take_account(
    present: &dyn Store,
    restored: &dyn Store,
    sealer: &Sealer,
    name: &str,
    uid: &str,
) -> Result<bool, AccountError> {
    let key = Key::new(Kind::Account, name);
    let Some(before) = present.get(&key).await? else { return Ok(false) };
    let opened = sealer.open::<Account>(&key, &before.value)?;
    if opened.content.user_uid != uid {
        return Ok(false);
    }
    match restored.get(&key).await? {
        None => drop(restored.create(key, before.value).await?),
        Some(entry) => {
            if sealer.open::<Account>(&key, &entry.value)?.version >= opened.version {
                return Ok(false);
            }
            restored.update(key, entry.revision, before.value).await?;
        }
    }
    Ok(true)
}

async fn suspend(store: &dyn Store, sealer: &Sealer, user: &User, now: Timestamp) -> Result<(), AccountError> {
    let suspension = Suspension {
        at: rfc3339(now),
        by: "restore".to_owned(),
        reason: "the account was deleted after the backup".to_owned(),
    };
    let change = |account: &mut Account| {
        account.epoch += 1;
        account.suspended.get_or_insert_with(|| suspension.clone());
        Ok(true)
    };
    account_record::change(store, sealer, user, Unreadable::Refuse, change).await.map(|_| ())
}
