//! What must be there.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bailiwick::clock;
use bailiwick::index::{AccountState, Snapshot};
use bailiwick::store::{Entry, Event, Key, Kind, Revision, Store};
use futures::StreamExt as _;

use super::child::{WRITERS, is_suspended, user};

/// One line of the child.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acknowledgement {
    what: What,
    key: Key,
    pub revision: Revision,
    epoch: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Create,
    Update,
    Delete,
}

impl Acknowledgement {
    /// Whether going back behind it would give somebody what was taken.
    pub fn takes_away(&self) -> bool {
        self.what != What::Create || self.key.kind == Kind::Account
    }

    /// Nothing for a line that was cut.
    pub fn parse(line: &str) -> Option<Self> {
        let mut words = line.strip_suffix('.')?.split(' ');
        let what = match words.next()? {
            "create" => What::Create,
            "update" => What::Update,
            "delete" => What::Delete,
            other => panic!("{other:?}"),
        };
        let key = Key::new(Kind::parse(words.next()?)?, words.next()?);
        let revision = Revision(words.next()?.parse().ok()?);
        Some(Self { what, key, revision, epoch: words.next()?.parse().ok()? })
    }
}

/// The store as the history tells it, and what was promised about credentials.
#[derive(Default)]
pub struct Model {
    truth: BTreeMap<Key, Entry>,
    newest: Revision,
    /// Tokens whose revocation was acknowledged.
    revoked: BTreeSet<String>,
    /// Highest acknowledged epoch of each user.
    epochs: BTreeMap<String, u64>,
    acknowledged: usize,
    unheard: usize,
    dead_by_epoch: usize,
    /// Suspended accounts seen, over all checks.
    suspended: usize,
}

impl Model {
    /// Holds a store against its own history and against what was acknowledged since the last check.
    pub async fn check(&mut self, store: &dyn Store, acknowledged: &[Acknowledgement]) {
        let newest = store.revision().await.unwrap();
        assert!(newest >= self.newest, "the revision went back from {} to {newest}", self.newest);
        let mut events = BTreeMap::new();
        let mut watch = store.watch(self.newest).await.unwrap();
        for revision in self.newest.0 + 1..=newest.0 {
            let event = tokio::time::timeout(Duration::from_secs(30), watch.next()).await.expect("an event is missing");
            let event = event.unwrap().unwrap();
            assert_eq!(event.revision().0, revision, "the history has a gap");
            self.apply(&event);
            events.insert(event.revision(), event);
        }
        self.newest = newest;
        let mut found = BTreeMap::new();
        for kind in Kind::ALL {
            let (entries, revision) = store.list(kind).await.unwrap();
            assert_eq!(revision, newest);
            found.extend(entries.into_iter().map(|entry| (entry.key.clone(), entry)));
        }
        assert!(found == self.truth, "objects and history differ");
        found.values().for_each(assert_whole);
        for promise in acknowledged {
            self.keep(promise, events.get(&promise.revision));
        }
        let unheard = events.len() - acknowledged.len();
        // Every task has at most one write whose acknowledgement it could not print any more.
        assert!(self.acknowledged == 0 || unheard <= WRITERS, "{unheard} writes that nobody waited for");
        self.acknowledged += acknowledged.len();
        self.unheard += unheard;
    }

    fn apply(&mut self, event: &Event) {
        match event {
            Event::Put { entry, created } => {
                let previous = self.truth.insert(entry.key.clone(), entry.clone());
                assert_eq!(previous.is_none(), *created, "{}", entry.key);
            }
            Event::Delete { key, previous, .. } => {
                let removed = self.truth.remove(key).expect("what is not there was deleted");
                assert_eq!(removed.value, previous, "{key} was deleted with another value");
            }
        }
    }

    fn keep(&mut self, promise: &Acknowledgement, event: Option<&Event>) {
        let kept = event.is_some_and(|event| {
            let same = match event {
                Event::Put { created: true, .. } => What::Create,
                Event::Put { created: false, .. } => What::Update,
                Event::Delete { .. } => What::Delete,
            };
            *event.key() == promise.key && same == promise.what
        });
        assert!(kept, "{promise:?} was acknowledged, and {event:?} is there");
        let name = promise.key.name.to_string();
        match (promise.key.kind, promise.what) {
            (Kind::Token, What::Delete) => assert!(self.revoked.insert(name), "a token was revoked twice"),
            (Kind::Account, _) => {
                let epoch = self.epochs.entry(name).or_default();
                assert!(promise.epoch > *epoch, "an epoch was given twice");
                *epoch = promise.epoch;
            }
            _ => {}
        }
    }

    /// Holds the credentials that decisions would accept against what was promised. Gives the number of live ones.
    pub fn check_credentials(&mut self, snapshot: &Snapshot) -> usize {
        assert_eq!(snapshot.revision, self.newest);
        let tokens = self.truth.keys().filter(|key| key.kind == Kind::Token).count();
        assert_eq!(snapshot.tokens.len(), tokens, "a token's record does not open");
        for (name, promised) in &self.epochs {
            let Some(AccountState::Known(account)) = snapshot.accounts.get(name.as_str()) else {
                panic!("the account of {name} does not open")
            };
            let (account, user) = (&account.object, &snapshot.users[name.as_str()].object);
            assert!(account.epoch >= *promised, "{name} has an epoch that was ended");
            assert_eq!(account.suspended.is_some(), is_suspended(account.epoch), "{name} was revived");
            assert_eq!(snapshot.account_may_act(user), !is_suspended(account.epoch));
            self.suspended += usize::from(is_suspended(account.epoch));
        }
        let mut live = 0;
        for (id, token) in &snapshot.tokens {
            assert!(!self.revoked.contains(&**id), "revoked token {id} is back");
            let promised = self.epochs.get(&token.record.user).copied().unwrap_or_default();
            match snapshot.live_owner(token, clock::now()) {
                Some(_) => {
                    assert!(token.record.epoch >= promised, "{id} lives with an epoch that was ended");
                    live += 1;
                }
                None => {
                    let account = self.truth.get(&Key::new(Kind::Account, token.record.user.as_str()));
                    assert!(
                        account.is_some()
                            && (token.record.epoch < epoch_of(snapshot, token)
                                || is_suspended(epoch_of(snapshot, token))),
                        "{id} is dead for no reason"
                    );
                    self.dead_by_epoch += 1;
                }
            }
        }
        live
    }

    pub fn summary(&self) -> String {
        format!(
            "{} acknowledged writes, {} unheard, {} revocations, epochs {:?}, {} tokens dead by epoch, {} times suspended, revision {}",
            self.acknowledged,
            self.unheard,
            self.revoked.len(),
            self.epochs.values().collect::<Vec<_>>(),
            self.dead_by_epoch,
            self.suspended,
            self.newest,
        )
    }

    /// That the run was worth something.
    pub fn assert_exercised(&self) {
        assert!(self.acknowledged > 800, "{}", self.summary());
        assert!(self.revoked.len() > 50 && self.dead_by_epoch > 50 && self.suspended > 50, "{}", self.summary());
        assert!((0..WRITERS).all(|writer| self.epochs.contains_key(&user(writer))), "{}", self.summary());
    }
}

fn epoch_of(snapshot: &Snapshot, token: &bailiwick::index::TokenEntry) -> u64 {
    let user = &snapshot.users.get(token.record.user.as_str()).expect("the owner is gone").object;
    snapshot.epoch_of(user).expect("the account does not open")
}

/// Values tell their own length; sealed ones are opened by the index.
fn assert_whole(entry: &Entry) {
    if entry.key.kind == Kind::Team {
        let value: serde_json::Value = serde_json::from_slice(&entry.value).expect("half a value");
        let text = value["spec"]["displayName"].as_str().unwrap();
        let [_, length, filler] = text.splitn(3, '-').collect::<Vec<_>>()[..] else { panic!("{text:?}") };
        assert_eq!(filler.len().to_string(), length, "{} is not whole", entry.key);
    }
}
