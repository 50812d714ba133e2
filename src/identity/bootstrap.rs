//! The first administrator, and the way back in for one who is locked out.

use jiff::Timestamp;
use serde::Serialize;
use zeroize::Zeroizing;

use super::account_record::{self, Unreadable, put_password};
use super::accounts::{AccountError, Accounts};
use super::metadata::new_metadata;
use super::passwords::{PasswordPolicy, Passwords, one_time_password};
use crate::domain::{names, roles};
use crate::index::Snapshot;
use crate::records::Account;
use crate::resources::grant::{Subject, SubjectKind, Target, TargetKind};
use crate::resources::user::UserType;
use crate::resources::{Grant, GrantSpec, GrantStatus, User, UserSpec};
use crate::store::sealed::{Binding, Sealer};
use crate::store::{Key, Kind, Revision, Store, StoreError};

pub use crate::store::EPOCH;

/// Name of the first administrator's grant.
pub const PLATFORM_GRANT: &str = "platform-admin";

/// What came of the attempt to make a first administrator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bootstrap {
    /// There is an administrator already.
    Exists,
    /// There is none, but a user of that name, who may be anybody. `recover-admin` on the host makes them one.
    NameTaken,
    /// Made.
    Created {
        /// The password, where it was generated; to be shown to the operator once and never logged.
        generated: Option<Generated>,
    },
}

/// A generated password, which does not print itself.
#[derive(Clone, PartialEq, Eq)]
pub struct Generated(pub Zeroizing<String>);

impl std::fmt::Debug for Generated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Generated(…)")
    }
}

impl Accounts {
    /// Whether somebody administers the platform, so that [`Accounts::ensure_bootstrap`] has nobody to make.
    pub fn has_administrator(&self) -> bool {
        has_administrator(&self.snapshot(), self.now())
    }

    /// Makes what a new installation needs: its epoch, and an administrator where nobody is one.
    ///
    /// The user is written last. Until then the grant and the account are of nobody, so that a crash in between leaves
    /// nothing that counts, and the next start begins anew.
    pub async fn ensure_bootstrap(
        &self,
        admin: &str,
        password: Option<Zeroizing<String>>,
    ) -> Result<Bootstrap, AccountError> {
        let (store, sealer) = (self.store(), self.sealer());
        if let Some(revision) = ensure_epoch(store, sealer).await? {
            self.applied(revision).await?;
        }
        let now = self.now();
        let snapshot = self.snapshot();
        if has_administrator(&snapshot, now) {
            return Ok(Bootstrap::Exists);
        }
        if snapshot.users.contains_key(admin) {
            return Ok(Bootstrap::NameTaken);
        }
        let must_change = password.is_none() || self.policy().bootstrap_must_change;
        let (password, generated) = match password {
            Some(given) => (given, None),
            None => {
                let made = one_time_password()?;
                (made.clone(), Some(Generated(made)))
            }
        };
        let hash = self.passwords().hash(&password).await?;
        let user = new_administrator(admin, now)?;
        let set = |account: &mut Account| {
            put_password(account, &hash, must_change);
            Ok(true)
        };
        account_record::change(store, sealer, &user, Unreadable::Refuse, set).await?;
        put_grant(store, &user, now).await?;
        let revision = store.create(Key::new(Kind::User, admin), json(&user)?).await?;
        self.applied(revision).await?;
        Ok(Bootstrap::Created { generated })
    }
}

/// Writes the installation's epoch where there is none. Epochs begin at 1, so that a record that cannot be read, which
/// counts as 0, lets nobody in. Returns the revision where it was written.
pub async fn ensure_epoch(store: &dyn Store, sealer: &Sealer) -> Result<Option<Revision>, AccountError> {
    let key = Key::new(Kind::Platform, EPOCH);
    if let Some(entry) = store.get(&key).await? {
        // One that does not open is not ours to replace: it may have been raised.
        sealer.open::<u64>(&key, &entry.value)?;
        return Ok(None);
    }
    let sealed = sealer.seal(&key, Binding { uid: EPOCH, version: 1 }, &1u64)?;
    match store.create(key, sealed).await {
        Ok(revision) => Ok(Some(revision)),
        Err(StoreError::AlreadyExists(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Lets the administrator in again: a one-time password, no suspension, not disabled, a platform grant. Whoever held
/// credentials of the account has them no more. Works on the store alone; a server that runs on it follows by its watch,
/// and who needs the effect waits until its index has the store's newest revision.
pub async fn recover_admin(store: &dyn Store, sealer: &Sealer, user: &str) -> Result<Zeroizing<String>, AccountError> {
    let now = crate::clock::now();
    ensure_epoch(store, sealer).await?;
    let (mut user, revision) = match account_record::read_user(store, user).await {
        Ok((user, revision)) => (user, Some(revision)),
        Err(AccountError::UserNotFound(_)) => (new_administrator(user, now)?, None),
        Err(error) => return Err(error),
    };
    if user.spec.type_ == UserType::Machine {
        return Err(AccountError::Machine);
    }
    if user.metadata.deletion_timestamp.is_some() {
        let message = "the user is being deleted; choose another name".to_owned();
        return Err(AccountError::Invalid { field: "user", message });
    }
    let password = one_time_password()?;
    let hash = Passwords::new(PasswordPolicy::default()).hash(&password).await?;
    // A record of another master key tells nothing of its epoch. Seconds since 1970 are beyond any count of changes.
    let unreadable = Unreadable::Replace { epoch: u64::try_from(now.as_second()).unwrap_or_default() };
    let recover = |account: &mut Account| {
        put_password(account, &hash, true);
        account.suspended = None;
        Ok(true)
    };
    account_record::change(store, sealer, &user, unreadable, recover).await?;
    put_grant(store, &user, now).await?;
    let key = Key::new(Kind::User, user.metadata.name.as_deref().unwrap_or_default());
    match revision {
        None => drop(store.create(key, json(&user)?).await?),
        Some(revision) if user.spec.disabled => {
            user.spec.disabled = false;
            user.metadata.generation = user.metadata.generation.map(|generation| generation + 1);
            store.update(key, revision, json(&user)?).await?;
        }
        Some(_) => {}
    }
    Ok(password)
}

/// Whether anybody holds the administrator's role. A suspended or disabled one counts: to be made anew at every start
/// would undo the suspension of the last administrator.
fn has_administrator(snapshot: &Snapshot, now: Timestamp) -> bool {
    snapshot
        .users
        .values()
        .any(|user| snapshot.holdings(&user.object, now).any(|grant| is_administration(&grant.object.spec)))
}

fn is_administration(spec: &GrantSpec) -> bool {
    spec.target.kind == TargetKind::Platform && spec.role == roles::PLATFORM_ADMIN
}

fn new_administrator(name: &str, now: Timestamp) -> Result<User, AccountError> {
    names::check_subdomain(name)
        .map_err(|error| AccountError::Invalid { field: "metadata.name", message: error.to_string() })?;
    let spec = UserSpec { display_name: Some("Administrator".to_owned()), ..UserSpec::default() };
    let mut user = User::new(name, spec);
    user.metadata = new_metadata(name, now);
    Ok(user)
}

/// Gives the user the administrator's role on the platform, if no grant in force does already. A grant that stands in
/// the way under the usual name is replaced where it was of the same name's former owner, and left alone otherwise.
async fn put_grant(store: &dyn Store, user: &User, now: Timestamp) -> Result<(), AccountError> {
    let (name, uid) = account_record::identity(user)?;
    let mut standing = None;
    for entry in store.list(Kind::Grant).await?.0 {
        let Ok(grant) = serde_json::from_slice::<Grant>(&entry.value) else { continue };
        let subject = &grant.spec.subject;
        if !is_administration(&grant.spec) || subject.kind != SubjectKind::User || subject.name != name {
            continue;
        }
        let same = grant.status.as_ref().and_then(|status| status.subject_uid.as_deref()) == Some(uid);
        let lasting = grant.spec.expires_at.is_none() && grant.metadata.deletion_timestamp.is_none();
        if same && lasting {
            return Ok(());
        }
        if &*entry.key.name == PLATFORM_GRANT {
            standing = Some(entry.revision);
        }
    }
    let spec = GrantSpec {
        subject: Subject { kind: SubjectKind::User, name: name.to_owned() },
        role: roles::PLATFORM_ADMIN.to_owned(),
        target: Target { kind: TargetKind::Platform, name: String::new() },
        namespaces: vec![],
        expires_at: None,
        reason: Some("made on the host of the service".to_owned()),
    };
    let status = GrantStatus { state: "Active".to_owned(), subject_uid: Some(uid.to_owned()), target_uid: None };
    let grant = |grant_name: &str| {
        let mut grant = Grant::new(grant_name, spec.clone());
        grant.metadata = new_metadata(grant_name, now);
        grant.status = Some(status.clone());
        json(&grant)
    };
    let key = Key::new(Kind::Grant, PLATFORM_GRANT);
    let written = match standing {
        Some(revision) => store.update(key, revision, grant(PLATFORM_GRANT)?).await,
        None => store.create(key, grant(PLATFORM_GRANT)?).await,
    };
    match written {
        Err(StoreError::AlreadyExists(_)) => {
            let other = format!("{PLATFORM_GRANT}-{}", names::uid8(uid));
            store.create(Key::new(Kind::Grant, other.as_str()), grant(&other)?).await?;
        }
        other => drop(other?),
    }
    Ok(())
}

fn json(resource: &impl Serialize) -> Result<bytes::Bytes, AccountError> {
    serde_json::to_vec(resource).map(Into::into).map_err(|error| AccountError::Failed(error.to_string()))
}

#[cfg(test)]
mod tests;
