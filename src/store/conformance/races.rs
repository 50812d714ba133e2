//! Cases about many writers at once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::future::join_all;

use super::super::{Event, Key, Kind, Revision, Store, StoreError};
use super::{key, take, value};

/// Of 64 that want the same, one gets it, and the others learn who was faster.
pub(super) async fn one_of_each_wins(store: Arc<dyn Store>) {
    let created = winner(&store, |store, i| async move { store.create(key("a"), value(&i.to_string())).await }).await;
    let updated =
        winner(&store, move |store, i| async move { store.update(key("a"), created, value(&i.to_string())).await })
            .await;
    let deleted = winner(&store, move |store, _| async move { store.delete(key("a"), updated).await }).await;
    assert!(created < updated && updated < deleted);
    assert_eq!(store.revision().await.expect("revision"), deleted, "a loser took a revision");
}

async fn winner<F, Done>(store: &Arc<dyn Store>, attempt: F) -> Revision
where
    F: Fn(Arc<dyn Store>, usize) -> Done,
    Done: Future<Output = Result<Revision, StoreError>> + Send + 'static,
{
    let attempts = (0..64).map(|i| tokio::spawn(attempt(store.clone(), i)));
    let mut winners = vec![];
    for result in join_all(attempts).await {
        match result.expect("a writer panicked") {
            Ok(revision) => winners.push(revision),
            Err(StoreError::AlreadyExists(_) | StoreError::Conflict { .. } | StoreError::NotFound(_)) => {}
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(winners.len(), 1, "winners at {winners:?}");
    winners[0]
}

/// Each writer sees its own revisions rise; nobody gets one that another got.
pub(super) async fn revisions_are_unique_and_rise(store: Arc<dyn Store>) {
    let mut given = BTreeSet::new();
    for revisions in join_all((0..16).map(|writer| tokio::spawn(churn(store.clone(), writer)))).await {
        let revisions = revisions.expect("a writer panicked");
        assert!(revisions.is_sorted_by(|a, b| a < b), "revisions fell: {revisions:?}");
        let count = revisions.len();
        assert_eq!(revisions.into_iter().filter(|revision| given.insert(*revision)).count(), count, "given twice");
    }
    let newest = store.revision().await.expect("revision");
    assert_eq!(given.last(), Some(&newest));
    let events = take(store.watch(Revision(0)).await.expect("watch"), newest).await;
    assert!(events.iter().map(Event::revision).eq(given), "history and acknowledgements differ");
}

/// Writes of one [`churn`].
pub(super) const CHURN: u64 = 24;

/// Creates, updates and deletes on a key of its own.
pub(super) async fn churn(store: Arc<dyn Store>, writer: usize) -> Vec<Revision> {
    let key = Key::new(Kind::Team, format!("writer-{writer}"));
    let mut revisions = vec![];
    for round in 0..CHURN / 3 {
        let created = store.create(key.clone(), value(&format!("{writer} {round} new"))).await.expect("create");
        let updated = store.update(key.clone(), created, value(&format!("{writer} {round}"))).await.expect("update");
        let deleted = store.delete(key.clone(), updated).await.expect("delete");
        revisions.extend([created, updated, deleted]);
    }
    revisions
}

/// What is listed at a revision is exactly what the history up to it gives, while others write.
pub(super) async fn a_list_is_the_whole_truth(store: Arc<dyn Store>) {
    let writers: Vec<_> = (0..8).map(|writer| tokio::spawn(churn(store.clone(), writer))).collect();
    let mut lists = vec![];
    while !writers.iter().all(|writer| writer.is_finished()) {
        let (entries, revision) = store.list(Kind::Team).await.expect("list");
        // Whoever lists may watch from there at once.
        drop(store.watch(revision).await.expect("watch from a list"));
        lists.push((entries, revision));
    }
    lists.push(store.list(Kind::Team).await.expect("list"));
    let newest = store.revision().await.expect("revision");
    let events = take(store.watch(Revision(0)).await.expect("watch"), newest).await;
    for (entries, revision) in lists {
        let mut truth = BTreeMap::new();
        for event in events.iter().filter(|event| event.revision() <= revision) {
            match event {
                Event::Put { entry, .. } => truth.insert(entry.key.clone(), entry.clone()),
                Event::Delete { key, .. } => truth.remove(key),
            };
        }
        assert!(entries.iter().eq(truth.values()), "the list at {revision} is not the truth");
    }
}
