//! The process that is killed.

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

use bailiwick::audit::{Audit, AuditSettings, Surface, What};
use bailiwick::records::{Account, Suspension, TokenRecord, TokenScopes};
use bailiwick::resources::token::Audience;
use bailiwick::resources::{User, UserSpec};
use bailiwick::store::sealed::{Binding, Sealer};
use bailiwick::store::{Entry, Key, Kind, Revision, Store, StoreError};
use bytes::Bytes;

use super::{open, sealer};

/// Tasks that write, each with a user of its own.
pub const WRITERS: usize = 6;
/// Tokens a task keeps alive.
const TOKENS: usize = 12;

pub fn user(writer: usize) -> String {
    format!("user-{writer}")
}

fn uid(writer: usize) -> String {
    format!("uid-{writer}")
}

/// What is there before the first child: users with accounts, and an object that all tasks fight over.
pub async fn set_up(store: &dyn Store) {
    for writer in 0..WRITERS {
        let mut resource = User::new(&user(writer), UserSpec::default());
        resource.metadata.uid = Some(uid(writer));
        let value = serde_json::to_vec(&resource).unwrap();
        store.create(Key::new(Kind::User, user(writer)), value.into()).await.unwrap();
        store.create(account_key(writer), seal_account(&sealer(), writer, 0)).await.unwrap();
        store.create(plain_key(writer), plain(0)).await.unwrap();
    }
    store.create(shared_key(), plain(0)).await.unwrap();
}

/// Writes until it is killed.
pub fn run(directory: &Path) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let store = open(directory);
        // Small files, so that some deaths come at a rotation; none of them is removed.
        let settings = AuditSettings { file_bytes: 64 << 10, files: usize::MAX, ..AuditSettings::default() };
        let audit = Audit::open(&directory.join("audit"), settings).unwrap();
        let start = store.revision().await.unwrap();
        // The test harness has begun a line of its own.
        say("\nREADY".into());
        let mut tasks = tokio::task::JoinSet::new();
        for writer in 0..WRITERS {
            tasks.spawn(Writer::load(store.clone(), writer, start).await.work());
        }
        tasks.spawn(async move {
            loop {
                let id = audit.request_id();
                audit.intent(&id, Surface::Kube, &What { user: "jane".into(), ..What::default() }).await.unwrap();
                // The full stop tells a whole line from one that was cut.
                say(format!("INTENT {id}."));
            }
        });
        let ended = tasks.join_next().await;
        panic!("a task ended: {ended:?}");
    });
}

/// One write to the pipe, so that lines do not mix.
fn say(line: String) {
    std::io::stdout().lock().write_all(format!("{line}\n").as_bytes()).unwrap();
}

fn account_key(writer: usize) -> Key {
    Key::new(Kind::Account, user(writer))
}

fn plain_key(writer: usize) -> Key {
    Key::new(Kind::Team, format!("team-{writer}"))
}

fn shared_key() -> Key {
    Key::new(Kind::Team, "shared")
}

/// Every third change of an account suspends it, the next one ends that.
pub fn is_suspended(epoch: u64) -> bool {
    epoch % 3 == 1
}

fn seal_account(sealer: &Sealer, writer: usize, epoch: u64) -> Bytes {
    let mut account = Account::default();
    account.user_uid = uid(writer);
    account.epoch = epoch;
    if is_suspended(epoch) {
        let (at, by, reason) = ("2026-01-01T00:00:00Z".into(), "admin".into(), "test".into());
        account.suspended = Some(Suspension { at, by, reason });
    }
    sealer.seal(&account_key(writer), Binding { uid: &uid(writer), version: epoch + 1 }, &account).unwrap()
}

/// A resource whose size changes and whose parts agree, so that half of one is found out.
fn plain(number: u64) -> Bytes {
    let filler = "f".repeat((number * 7919 % 20_000) as usize);
    let spec = serde_json::json!({"displayName": format!("{number}-{}-{filler}", filler.len()), "users": []});
    let team = serde_json::json!({
        "apiVersion": "bailiwick.dev/v1alpha1", "kind": "Team", "metadata": {"name": "team"}, "spec": spec,
    });
    team.to_string().into()
}

struct Writer {
    store: Arc<dyn Store>,
    sealer: Arc<Sealer>,
    number: usize,
    start: Revision,
    count: u64,
    random: u64,
    account: Revision,
    epoch: u64,
    plain: Revision,
    /// Deleted and created again and again.
    flip: Option<Revision>,
    tokens: Vec<(String, Revision)>,
}

impl Writer {
    /// Finds what its predecessors left.
    async fn load(store: Arc<dyn Store>, number: usize, start: Revision) -> Self {
        let sealer = sealer();
        let get = async |key: Key| -> Option<Entry> { store.get(&key).await.unwrap() };
        let account = get(account_key(number)).await.unwrap();
        let opened = sealer.open::<Account>(&account.key, &account.value).unwrap();
        let plain = get(plain_key(number)).await.unwrap().revision;
        let flip = get(flip_key(number)).await.map(|entry| entry.revision);
        let prefix = format!("token-{number}-");
        let (tokens, _) = store.list(Kind::Token).await.unwrap();
        let tokens = tokens.into_iter().filter(|entry| entry.key.name.starts_with(&prefix));
        let tokens = tokens.map(|entry| (entry.key.name.to_string(), entry.revision)).collect();
        let random = start.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (number as u64 + 1);
        Self {
            store,
            sealer,
            number,
            start,
            count: 0,
            random,
            account: account.revision,
            epoch: opened.content.epoch,
            plain,
            flip,
            tokens,
        }
    }

    async fn work(mut self) {
        loop {
            self.count += 1;
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            match self.random % 10 {
                0..=3 if self.tokens.len() < TOKENS => self.issue().await,
                0..=4 if !self.tokens.is_empty() => self.revoke().await,
                5 => self.raise_epoch().await,
                6 | 7 => self.change_plain().await,
                8 => self.flip().await,
                _ => self.fight().await,
            }
        }
    }

    async fn issue(&mut self) {
        let id = format!("token-{}-{}-{}", self.number, self.start, self.count);
        let record = TokenRecord {
            id: id.clone(),
            hash: "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=".into(),
            user: user(self.number),
            user_uid: uid(self.number),
            epoch: self.epoch,
            global_epoch: 0,
            audience: Audience::Kube,
            scopes: TokenScopes::default(),
            family: id.clone(),
            description: String::new(),
            created_at: "2026-01-01T00:00:00Z".into(),
            expires_at: "2999-01-01T00:00:00Z".into(),
        };
        let key = Key::new(Kind::Token, id.as_str());
        let value = self.sealer.seal(&key, Binding { uid: &id, version: 1 }, &record).unwrap();
        let revision = self.store.create(key.clone(), value).await.unwrap();
        acknowledged("create", &key, revision, self.epoch);
        self.tokens.push((id, revision));
    }

    async fn revoke(&mut self) {
        let (id, expected) = self.tokens.swap_remove(self.random as usize % self.tokens.len());
        let key = Key::new(Kind::Token, id);
        let revision = self.store.delete(key.clone(), expected).await.unwrap();
        acknowledged("delete", &key, revision, 0);
    }

    async fn raise_epoch(&mut self) {
        let value = seal_account(&self.sealer, self.number, self.epoch + 1);
        self.account = self.store.update(account_key(self.number), self.account, value).await.unwrap();
        self.epoch += 1;
        acknowledged("update", &account_key(self.number), self.account, self.epoch);
    }

    async fn change_plain(&mut self) {
        self.plain = self.store.update(plain_key(self.number), self.plain, plain(self.random % 1000)).await.unwrap();
        acknowledged("update", &plain_key(self.number), self.plain, 0);
    }

    async fn flip(&mut self) {
        let key = flip_key(self.number);
        match self.flip.take() {
            Some(expected) => {
                let revision = self.store.delete(key.clone(), expected).await.unwrap();
                acknowledged("delete", &key, revision, 0);
            }
            None => {
                let revision = self.store.create(key.clone(), plain(self.random % 1000)).await.unwrap();
                acknowledged("create", &key, revision, 0);
                self.flip = Some(revision);
            }
        }
    }

    async fn fight(&mut self) {
        let current = self.store.get(&shared_key()).await.unwrap().unwrap();
        match self.store.update(shared_key(), current.revision, plain(self.random % 1000)).await {
            Ok(revision) => acknowledged("update", &shared_key(), revision, 0),
            Err(StoreError::Conflict { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

fn flip_key(writer: usize) -> Key {
    Key::new(Kind::Team, format!("flip-{writer}"))
}

fn acknowledged(what: &str, key: &Key, revision: Revision, epoch: u64) {
    say(format!("ACK {what} {} {} {revision} {epoch}.", key.kind.as_str(), key.name));
}
