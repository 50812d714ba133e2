//! Cases about watches.

use std::sync::Arc;

use futures::future::join_all;
use futures::{FutureExt as _, StreamExt as _};

use super::super::{Entry, Event, Key, Kind, Revision, Store, StoreError};
use super::races::{CHURN, churn};
use super::{DEADLINE, key, next, take, value};

/// Kind of change, key, revision, value; a deletion carries the last value.
pub(super) async fn tells_what_happened(store: &dyn Store) {
    let mut events = store.watch(Revision(0)).await.expect("watch");
    assert!(events.next().now_or_never().is_none(), "an empty store had an event");
    let created = store.create(key("a"), value("1")).await.expect("create");
    let updated = store.update(key("a"), created, value("2")).await.expect("update");
    let other = Key::new(Kind::Claim, "demo/shop");
    let claimed = store.create(other.clone(), value("3")).await.expect("create");
    let deleted = store.delete(key("a"), updated).await.expect("delete");
    let again = store.create(key("a"), value("4")).await.expect("create");
    let put = |key: Key, revision, text: &str, created| Event::Put {
        entry: Entry { key, revision, value: value(text) },
        created,
    };
    let expected = [
        put(key("a"), created, "1", true),
        put(key("a"), updated, "2", false),
        put(other, claimed, "3", true),
        Event::Delete { key: key("a"), revision: deleted, previous: value("2") },
        put(key("a"), again, "4", true),
    ];
    for event in &expected {
        assert_eq!(next(&mut events).await, *event);
    }
    assert_eq!(take(store.watch(Revision(0)).await.expect("watch"), again).await, expected, "the replay differs");
}

/// A watch from any revision brings exactly what came after it.
pub(super) async fn replays_from_any_revision(store: Arc<dyn Store>) {
    churn(store.clone(), 0).await;
    let newest = store.revision().await.expect("revision");
    let all = take(store.watch(Revision(0)).await.expect("watch"), newest).await;
    for from in 0..newest.0 {
        let after = take(store.watch(Revision(from)).await.expect("watch"), newest).await;
        let expected = all.iter().filter(|event| event.revision().0 > from);
        assert!(after.iter().eq(expected), "the watch from {from} differs");
    }
    let mut latest = store.watch(newest).await.expect("watch");
    assert!(latest.next().now_or_never().is_none(), "a watch from the newest revision brought the past");
}

/// Watches opened before, amid and after concurrent writes all tell the same story.
pub(super) async fn follows_concurrent_writes(store: Arc<dyn Store>) {
    let writers: Vec<_> = (0..16).map(|writer| tokio::spawn(churn(store.clone(), writer))).collect();
    let total = 16 * CHURN;
    let mut watches = vec![];
    loop {
        let from = store.revision().await.expect("revision");
        let count = (total - from.0).min(8);
        if count == 0 {
            break;
        }
        let mut events = store.watch(from).await.expect("watch");
        watches.push(tokio::spawn(async move {
            let mut seen = vec![];
            for _ in 0..count {
                seen.push(next(&mut events).await);
            }
            (from, seen)
        }));
        // The next one starts elsewhere.
        store.barrier(Revision(from.0 + 1)).await.expect("barrier");
    }
    join_all(writers).await;
    let newest = store.revision().await.expect("revision");
    let all = take(store.watch(Revision(0)).await.expect("watch"), newest).await;
    for watch in join_all(watches).await {
        let (from, seen) = watch.expect("a watch panicked");
        let expected = all.iter().filter(|event| event.revision() > from).take(seen.len());
        assert!(seen.iter().eq(expected), "the watch from {from} has a gap, a duplicate or another order");
    }
}

/// Nobody may wait for a revision of another history.
pub(super) async fn refuses_the_future(store: &dyn Store) {
    let newest = store.create(key("a"), value("1")).await.expect("create");
    let asked = Revision(newest.0 + 1);
    let error = store.watch(asked).await.err().expect("watched from the future");
    assert!(matches!(error, StoreError::Future { asked: a, newest: n } if (a, n) == (asked, newest)), "{error}");
    drop(store.watch(newest).await.expect("watch from the present"));
}

/// A barrier returns when watches can take the revision, and not before.
pub(super) async fn barrier_waits(store: Arc<dyn Store>) {
    let first = store.create(key("a"), value("1")).await.expect("create");
    let mut events = store.watch(Revision(0)).await.expect("watch");
    store.barrier(first).await.expect("barrier");
    assert_eq!(next(&mut events).await.revision(), first);
    let second = Revision(first.0 + 1);
    let waiting = {
        let store = store.clone();
        tokio::spawn(async move { store.barrier(second).await })
    };
    assert!(store.barrier(second).now_or_never().is_none(), "a barrier did not wait for its revision");
    let written = store.update(key("a"), first, value("2")).await.expect("update");
    assert!(written >= second);
    let passed = tokio::time::timeout(DEADLINE, waiting).await.expect("the barrier did not return");
    passed.expect("the barrier panicked").expect("barrier");
    assert_eq!(next(&mut events).await.revision(), written);
}
