//! What the tests of this module stand on: a real store, the index over it, and accounts with cheap passwords.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tempfile::TempDir;

use super::accounts::{AccountPolicy, Accounts};
use super::metadata::new_metadata;
use super::passwords::PasswordPolicy;
use super::tokens::{self, Caller, NewToken, Unauthenticated};
use crate::clock::Clock;
use crate::index::Index;
use crate::records::Account;
use crate::records::TokenScopes;
use crate::resources::token::Audience;
use crate::resources::user::UserType;
use crate::resources::{User, UserSpec};
use crate::store::sealed::{Opened, Sealer};
use crate::store::sqlite::{SqliteSettings, SqliteStore};
use crate::store::{Key, Kind, Store, StoreError};

/// A strong password.
pub const GOOD: &str = "walrus ticket orbit 61";
/// Another one.
pub const BETTER: &str = "teapot giraffe unbolts 29";
/// Where everybody comes from unless a test says otherwise.
pub const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

/// A moment of the tests' day, in seconds.
pub fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

/// An installation without users.
pub struct World {
    pub store: Arc<dyn Store>,
    engine: Arc<SqliteStore>,
    pub sealer: Arc<Sealer>,
    pub index: Arc<Index>,
    pub accounts: Accounts,
    _directory: TempDir,
}

/// The cheapest passwords that there are.
pub fn policy() -> AccountPolicy {
    let passwords = PasswordPolicy { memory_kib: 8, passes: 1, ..PasswordPolicy::default() };
    AccountPolicy { passwords, ..AccountPolicy::default() }
}

impl World {
    pub async fn new() -> Self {
        Self::with(policy()).await
    }

    pub async fn with(policy: AccountPolicy) -> Self {
        // The tests say what time it is; whatever they say has proven itself.
        Self::by(policy, Arc::new(Clock::of_machine("2100-01-01T00:00:00Z".parse().ok()))).await
    }

    pub async fn by(policy: AccountPolicy, clock: Arc<Clock>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let engine = Arc::new(SqliteStore::open(directory.path(), SqliteSettings::default()).unwrap());
        let store: Arc<dyn Store> = engine.clone();
        let sealer = Arc::new(Sealer::new("k1", &[7; 32]));
        let (index, _) = Index::start_with(store.clone(), sealer.clone(), clock).await.unwrap();
        let accounts = Accounts::new(store.clone(), sealer.clone(), index.clone(), policy);
        Self { store, engine, sealer, index, accounts, _directory: directory }
    }

    /// The same installation after a restart with other settings.
    pub fn accounts_with(&self, policy: AccountPolicy) -> Accounts {
        Accounts::new(self.store.clone(), self.sealer.clone(), self.index.clone(), policy)
    }

    /// Creates a person.
    pub async fn user(&self, name: &str) -> User {
        self.create_user(name, UserSpec::default()).await
    }

    /// Creates a machine.
    pub async fn machine(&self, name: &str) -> User {
        self.create_user(name, UserSpec { type_: UserType::Machine, ..UserSpec::default() }).await
    }

    pub async fn create_user(&self, name: &str, spec: UserSpec) -> User {
        let mut user = User::new(name, spec);
        user.metadata = new_metadata(name, at(0));
        self.put(Kind::User, name, &user).await;
        user
    }

    /// Creates a person with the password [`GOOD`].
    pub async fn person(&self, name: &str) -> User {
        let user = self.user(name).await;
        self.accounts.set_password(name, GOOD, false).await.unwrap();
        user
    }

    /// Writes a resource, over whatever is there.
    pub async fn put(&self, kind: Kind, name: &str, object: &impl serde::Serialize) {
        let value = serde_json::to_vec(object).unwrap();
        self.put_bytes(kind, name, value).await;
    }

    pub async fn put_bytes(&self, kind: Kind, name: &str, value: Vec<u8>) {
        let key = Key::new(kind, name);
        match self.store.get(&key).await.unwrap() {
            Some(entry) => self.store.update(key, entry.revision, value.into()).await.unwrap(),
            None => self.store.create(key, value.into()).await.unwrap(),
        };
        self.settle().await;
    }

    pub async fn delete(&self, kind: Kind, name: &str) {
        let key = Key::new(kind, name);
        match self.store.get(&key).await.unwrap() {
            Some(entry) => drop(self.store.delete(key, entry.revision).await.unwrap()),
            None => panic!("{} does not exist", StoreError::NotFound(key)),
        }
        self.settle().await;
    }

    /// Until the index has everything that is in the store.
    pub async fn settle(&self) {
        let revision = self.store.revision().await.unwrap();
        tokio::time::timeout(Duration::from_secs(20), self.index.applied(revision)).await.unwrap().unwrap();
    }

    /// Closes the store and returns once the index knows that nothing reaches it any more.
    pub async fn lose_store(&self) {
        self.engine.close().await;
        let mut state = self.index.subscribe();
        let stale = state.wait_for(|state| !state.fresh);
        drop(tokio::time::timeout(Duration::from_secs(20), stale).await.unwrap().unwrap());
    }

    /// The sealed record of an account.
    pub async fn account(&self, name: &str) -> Option<Opened<Account>> {
        let key = Key::new(Kind::Account, name);
        let entry = self.store.get(&key).await.unwrap()?;
        Some(self.sealer.open(&key, &entry.value).unwrap())
    }

    pub fn new_token(&self, audience: Audience) -> NewToken {
        NewToken {
            audience,
            scopes: TokenScopes::default(),
            expires_in: Duration::from_secs(3600),
            description: "test".into(),
            family: None,
        }
    }

    pub fn authenticate(&self, token: &str, audience: Audience, now: Timestamp) -> Result<Caller, Unauthenticated> {
        tokens::authenticate(&self.index.snapshot(), token, audience, now)
    }

    /// Whether a token is let in where it was made for.
    pub fn lives(&self, token: &tokens::IssuedToken, now: Timestamp) -> bool {
        self.authenticate(&token.secret_token, token.record.audience, now).is_ok()
    }
}
