//! The index over the embedded engine.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;

use super::*;
use crate::records::Account;
use crate::resources::{User, UserSpec};
use crate::store::sealed::{Binding, Sealer};
use crate::store::sqlite::{SqliteSettings, SqliteStore};
use crate::store::{Key, Kind, Revision, Store};

fn sealer() -> Arc<Sealer> {
    Arc::new(Sealer::new("test", &[7; 32]))
}

fn user(name: &str) -> bytes::Bytes {
    let mut user = User::new(name, UserSpec::default());
    user.metadata.uid = Some(format!("uid-{name}"));
    serde_json::to_vec(&user).unwrap().into()
}

fn account(sealer: &Sealer, name: &str, epoch: u64) -> bytes::Bytes {
    let mut account = Account::default();
    account.user_uid = format!("uid-{name}");
    account.epoch = epoch;
    let uid = account.user_uid.clone();
    sealer.seal(&Key::new(Kind::Account, name), Binding { uid: &uid, version: epoch + 1 }, &account).unwrap()
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), future).await.expect("it did not come")
}

#[tokio::test]
async fn loads_what_is_there_and_follows_what_comes() {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(SqliteStore::open(directory.path(), SqliteSettings::default()).unwrap());
    let before = store.create(Key::new(Kind::User, "jane"), user("jane")).await.unwrap();
    let (index, _writer) = Index::start(store.clone(), sealer()).await.unwrap();
    assert!(index.is_fresh());
    assert_eq!(index.snapshot().revision, before);
    assert!(index.snapshot().users.contains_key("jane"));

    let held = index.snapshot();
    let created = store.create(Key::new(Kind::User, "joe"), user("joe")).await.unwrap();
    soon(index.applied(created)).await.unwrap();
    assert!(index.snapshot().users.contains_key("joe"));
    assert!(!held.users.contains_key("joe"), "a snapshot changed under its reader");

    let sealed = account(&sealer(), "jane", 4);
    let raised = store.create(Key::new(Kind::Account, "jane"), sealed).await.unwrap();
    soon(index.applied(raised)).await.unwrap();
    let snapshot = index.snapshot();
    assert_eq!(snapshot.epoch_of(&snapshot.users["jane"].object), Some(4));

    let deleted = store.delete(Key::new(Kind::User, "joe"), created).await.unwrap();
    soon(index.applied(deleted)).await.unwrap();
    assert!(!index.snapshot().users.contains_key("joe"));
}

#[tokio::test]
async fn an_account_that_does_not_open_may_not_act() {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(SqliteStore::open(directory.path(), SqliteSettings::default()).unwrap());
    store.create(Key::new(Kind::User, "jane"), user("jane")).await.unwrap();
    let sealed = account(&Sealer::new("test", &[8; 32]), "jane", 0);
    let revision = store.create(Key::new(Kind::Account, "jane"), sealed).await.unwrap();
    let (index, _writer) = Index::start(store.clone(), sealer()).await.unwrap();
    let jane = index.snapshot().users["jane"].clone();
    assert!(!index.snapshot().account_may_act(&jane.object));
    assert_eq!(index.snapshot().epoch_of(&jane.object), None);
    // One that opens may.
    let key = Key::new(Kind::Account, "jane");
    let revision = store.update(key, revision, account(&sealer(), "jane", 0)).await.unwrap();
    soon(index.applied(revision)).await.unwrap();
    assert!(index.snapshot().account_may_act(&jane.object));
}

/// What it says is not known: it may have been raised.
#[tokio::test]
async fn an_epoch_that_does_not_open_lets_nobody_in() {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(SqliteStore::open(directory.path(), SqliteSettings::default()).unwrap());
    let key = Key::new(Kind::Platform, "epoch");
    let epoch = |sealer: &Sealer| sealer.seal(&key, Binding { uid: "epoch", version: 1 }, &3u64).unwrap();
    let revision = store.create(key.clone(), epoch(&sealer())).await.unwrap();
    let (index, _writer) = Index::start(store.clone(), sealer()).await.unwrap();
    assert_eq!(index.snapshot().global_epoch, 3);
    let revision = store.update(key.clone(), revision, epoch(&Sealer::new("test", &[8; 32]))).await.unwrap();
    soon(index.applied(revision)).await.unwrap();
    assert_eq!(index.snapshot().global_epoch, 0);
}

/// Loads amid writes, again and again: nothing falls between the lists and the watch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loading_amid_writes_misses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(SqliteStore::open(directory.path(), SqliteSettings::default()).unwrap());
    let writers = (0..4).map(|writer| {
        let store = store.clone();
        tokio::spawn(async move {
            let mut last = Revision(0);
            for i in 0..50 {
                let name = format!("user-{writer}-{i}");
                last = store.create(Key::new(Kind::User, &*name), user(&name)).await.unwrap();
            }
            last
        })
    });
    let writers: Vec<_> = writers.collect();
    let mut indices = vec![];
    while !writers.iter().all(|writer| writer.is_finished()) {
        indices.push(Index::start(store.clone(), sealer()).await.unwrap());
    }
    let last = join_all(writers).await.into_iter().map(Result::unwrap).max().unwrap();
    assert!(!indices.is_empty());
    for (index, writer) in indices {
        soon(index.applied(last)).await.unwrap();
        assert_eq!(index.snapshot().users.len(), 200);
        writer.abort();
    }
}

#[tokio::test]
async fn a_store_that_ends_makes_the_index_stale() {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(SqliteStore::open(directory.path(), SqliteSettings::default()).unwrap());
    let (index, _writer) = Index::start(store.clone(), sealer()).await.unwrap();
    let mut state = index.subscribe();
    assert!(index.is_fresh());
    store.close().await;
    soon(state.wait_for(|state| !state.fresh)).await.unwrap();
    assert!(!index.is_fresh());
}
