//! The suite that judges every engine: what [`Store`] promises, as cases that panic where a promise is broken.
//!
//! Test code, compiled always so that an engine outside of this crate's unit tests can be judged too. Nothing else
//! calls it.

mod races;
mod watches;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;

use super::{Entry, Event, Events, Freshness, Key, Kind, Revision, Store, StoreError};

/// Longest wait for anything in a case. Only a failure takes this long.
const DEADLINE: Duration = Duration::from_secs(30);

/// Runs every case, each on an empty store of its own.
pub async fn run<F, Made>(make: F)
where
    F: Fn() -> Made,
    Made: Future<Output = Arc<dyn Store>>,
{
    creates_reads_updates_deletes(&*make().await).await;
    refuses_and_changes_nothing(&*make().await).await;
    lists_one_kind_sorted(&*make().await).await;
    keeps_odd_names_and_large_values(&*make().await).await;
    races::one_of_each_wins(make().await).await;
    races::revisions_are_unique_and_rise(make().await).await;
    races::a_list_is_the_whole_truth(make().await).await;
    watches::tells_what_happened(&*make().await).await;
    watches::replays_from_any_revision(make().await).await;
    watches::follows_concurrent_writes(make().await).await;
    watches::refuses_the_future(&*make().await).await;
    watches::barrier_waits(make().await).await;
}

/// Runs the cases about a store that is closed and opened again. `reopen` gets the store and gives it back, opened anew.
pub async fn run_reopening<F, Made, R, Reopened>(make: F, reopen: R)
where
    F: Fn() -> Made,
    Made: Future<Output = Arc<dyn Store>>,
    R: Fn(Arc<dyn Store>) -> Reopened,
    Reopened: Future<Output = Arc<dyn Store>>,
{
    let store = make().await;
    let kept = store.create(key("kept"), value("1")).await.expect("create");
    let gone = store.create(key("gone"), value("2")).await.expect("create");
    let deleted = store.delete(key("gone"), gone).await.expect("delete");
    let store = reopen(store).await;
    assert_eq!(store.revision().await.expect("revision"), deleted, "the counter went back");
    assert_eq!(store.get(&key("kept")).await.expect("get").map(|entry| entry.revision), Some(kept));
    assert_eq!(store.get(&key("gone")).await.expect("get"), None, "a deletion was undone");
    // The deletion took the highest revision, which no object carries any more.
    let next = store.create(key("next"), value("3")).await.expect("create");
    assert!(next > deleted, "revision {next} was given out again");
    let events = take(store.watch(Revision(0)).await.expect("watch"), next).await;
    assert_eq!(events.iter().map(Event::revision).collect::<Vec<_>>(), [kept, gone, deleted, next]);
}

async fn creates_reads_updates_deletes(store: &dyn Store) {
    assert_eq!(store.freshness(), Freshness::Fresh);
    assert_eq!(store.get(&key("a")).await.expect("get"), None);
    let created = store.create(key("a"), value("1")).await.expect("create");
    let entry = Entry { key: key("a"), revision: created, value: value("1") };
    assert_eq!(store.get(&key("a")).await.expect("get"), Some(entry));
    let updated = store.update(key("a"), created, value("2")).await.expect("update");
    assert!(updated > created);
    let entry = Entry { key: key("a"), revision: updated, value: value("2") };
    assert_eq!(store.get(&key("a")).await.expect("get"), Some(entry));
    let deleted = store.delete(key("a"), updated).await.expect("delete");
    assert!(deleted > updated);
    assert_eq!(store.get(&key("a")).await.expect("get"), None);
    assert_eq!(store.revision().await.expect("revision"), deleted);
    assert!(store.create(key("a"), value("3")).await.expect("create again") > deleted);
}

async fn refuses_and_changes_nothing(store: &dyn Store) {
    let first = store.create(key("a"), value("1")).await.expect("create");
    let second = store.update(key("a"), first, value("2")).await.expect("update");
    let error = store.create(key("a"), value("x")).await.expect_err("created twice");
    assert!(matches!(&error, StoreError::AlreadyExists(k) if *k == key("a")), "{error}");
    for error in [
        store.update(key("a"), first, value("x")).await.expect_err("updated an older version"),
        store.delete(key("a"), first).await.expect_err("deleted an older version"),
    ] {
        let StoreError::Conflict { key: of, expected, current } = error else { panic!("{error}") };
        assert_eq!((of, expected, current), (key("a"), first, second));
    }
    for error in [
        store.update(key("b"), first, value("x")).await.expect_err("updated what is not there"),
        store.delete(key("b"), first).await.expect_err("deleted what is not there"),
    ] {
        assert!(matches!(&error, StoreError::NotFound(k) if *k == key("b")), "{error}");
    }
    // The same name in another kind is another object.
    let other = Key::new(Kind::Team, "a");
    let error = store.update(other, second, value("x")).await.expect_err("updated another kind");
    assert!(matches!(error, StoreError::NotFound(_)), "{error}");
    let entry = Entry { key: key("a"), revision: second, value: value("2") };
    assert_eq!(store.get(&key("a")).await.expect("get"), Some(entry));
    assert_eq!(store.revision().await.expect("revision"), second, "a refused write took a revision");
}

async fn lists_one_kind_sorted(store: &dyn Store) {
    assert_eq!(store.list(Kind::Project).await.expect("list").0, []);
    // In the order of bytes, which is what clients page by.
    for name in ["b", "a", "a-b", "a/b", "B", "ä", "a0"] {
        store.create(Key::new(Kind::Project, name), value(name)).await.expect("create");
    }
    let newest = store.create(Key::new(Kind::Team, "c"), value("c")).await.expect("create");
    let (entries, revision) = store.list(Kind::Project).await.expect("list");
    let names: Vec<&str> = entries.iter().map(|entry| &*entry.key.name).collect();
    assert_eq!(names, ["B", "a", "a-b", "a/b", "a0", "b", "ä"]);
    assert!(entries.iter().all(|entry| entry.key.kind == Kind::Project && entry.value == value(&entry.key.name)));
    assert_eq!(revision, newest, "a list is as new as the store, whatever changed last");
}

async fn keeps_odd_names_and_large_values(store: &dyn Store) {
    let long = "n".repeat(253 * 2);
    let names =
        ["demo/shop-1", "o'hara", "50%_", "\"quoted\"", "a b", "é", "e\u{301}", "日本", "-- x;", "\\", "*", &long];
    for name in names {
        let revision = store.create(key(name), value(name)).await.expect("create");
        let entry = Entry { key: key(name), revision, value: value(name) };
        assert_eq!(store.get(&key(name)).await.expect("get"), Some(entry), "{name:?}");
    }
    assert_eq!(store.list(Kind::User).await.expect("list").0.len(), names.len(), "two names were taken for one");
    // Every byte, so that no engine takes values for text.
    let large: Bytes = (0..1 << 20).map(|i: u32| (i % 251) as u8).collect();
    let revision = store.create(key("large"), large.clone()).await.expect("create");
    assert_eq!(store.get(&key("large")).await.expect("get").map(|entry| entry.value), Some(large.clone()));
    let deleted = store.delete(key("large"), revision).await.expect("delete");
    let events = take(store.watch(revision).await.expect("watch"), deleted).await;
    assert_eq!(events, [Event::Delete { key: key("large"), revision: deleted, previous: large }]);
    let empty = store.create(key("empty"), Bytes::new()).await.expect("create");
    let entry = Entry { key: key("empty"), revision: empty, value: Bytes::new() };
    assert_eq!(store.get(&key("empty")).await.expect("get"), Some(entry));
}

fn key(name: &str) -> Key {
    Key::new(Kind::User, name)
}

fn value(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

/// The next event of a watch.
async fn next(events: &mut Events) -> Event {
    let event = tokio::time::timeout(DEADLINE, events.next()).await.expect("no event came");
    event.expect("the watch ended").expect("the watch failed")
}

/// The events of a watch up to a revision.
async fn take(mut events: Events, until: Revision) -> Vec<Event> {
    let mut taken = vec![];
    while taken.last().is_none_or(|event: &Event| event.revision() < until) {
        taken.push(next(&mut events).await);
    }
    taken
}
