mod anchoring;

use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::join_all;
use futures::{FutureExt as _, StreamExt as _};
use rusqlite::Connection;
use tempfile::TempDir;

use super::super::{Event, conformance};
use super::*;

fn key(name: &str) -> Key {
    Key::new(Kind::User, name)
}

fn open(directory: &TempDir) -> Result<SqliteStore, OpenError> {
    SqliteStore::open(directory.path(), SqliteSettings::default())
}

/// Opens a store whose open must fail.
fn refusal(directory: &TempDir) -> OpenError {
    open(directory).err().expect("the store opened")
}

fn with_history(directory: &TempDir, history_events: u64, history_bytes: u64) -> SqliteStore {
    let settings = SqliteSettings { history_events, history_bytes, ..SqliteSettings::default() };
    SqliteStore::open(directory.path(), settings).unwrap()
}

/// Deadline for what must come.
async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), future).await.expect("it did not come")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conforms() {
    let root = tempfile::tempdir().unwrap();
    let count = AtomicUsize::new(0);
    let make = || async {
        let directory = root.path().join(count.fetch_add(1, Ordering::Relaxed).to_string());
        Arc::new(SqliteStore::open(&directory, SqliteSettings::default()).unwrap()) as Arc<dyn Store>
    };
    conformance::run(make).await;
    let reopen = |store: Arc<dyn Store>| async {
        drop(store);
        let directory = root.path().join((count.load(Ordering::Relaxed) - 1).to_string());
        Arc::new(SqliteStore::open(&directory, SqliteSettings::default()).unwrap()) as Arc<dyn Store>
    };
    conformance::run_reopening(make, reopen).await;
}

#[tokio::test]
async fn history_is_bounded_and_the_counter_survives_it() {
    let directory = tempfile::tempdir().unwrap();
    let store = with_history(&directory, 10, 1 << 20);
    let mut lagging = store.watch(Revision(0)).await.unwrap();
    let mut last = Revision(0);
    for i in 0..2000 {
        last = store.create(key(&i.to_string()), Bytes::new()).await.unwrap();
    }
    let error = store.watch(Revision(0)).await.err().unwrap();
    let StoreError::Compacted { asked: Revision(0), oldest } = error else { panic!("{error}") };
    assert!(last.0 - oldest.0 <= 11, "{oldest}");
    // The reader that fell behind is told, and told once.
    let error = soon(lagging.next()).await.unwrap().unwrap_err();
    assert!(matches!(error, StoreError::Compacted { asked: Revision(0), .. }), "{error}");
    assert!(soon(lagging.next()).await.is_none());
    let mut kept = store.watch(oldest).await.unwrap();
    assert_eq!(soon(kept.next()).await.unwrap().unwrap().revision(), Revision(oldest.0 + 1));
    drop((kept, lagging, store));

    let store = with_history(&directory, 1, 1 << 20);
    assert_eq!(store.revision().await.unwrap(), last);
    assert_eq!(store.list(Kind::User).await.unwrap().0.len(), 2000);
    assert_eq!(store.create(key("next"), Bytes::new()).await.unwrap(), Revision(last.0 + 1));
    assert!(matches!(store.watch(Revision(last.0 - 1)).await.err(), Some(StoreError::Compacted { .. })));
}

#[tokio::test]
async fn large_values_shorten_the_history() {
    let directory = tempfile::tempdir().unwrap();
    let store = with_history(&directory, 1000, 100_000);
    let mut at = store.create(key("a"), Bytes::new()).await.unwrap();
    for _ in 0..30 {
        at = store.update(key("a"), at, vec![7; 10_000].into()).await.unwrap();
    }
    let error = store.watch(Revision(1)).await.err().unwrap();
    let StoreError::Compacted { oldest, .. } = error else { panic!("{error}") };
    assert!((9..=11).contains(&(at.0 - oldest.0)), "{oldest} of {at}");
}

#[tokio::test]
async fn a_watch_that_lags_behind_memory_reads_the_table() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory).unwrap();
    let events = store.watch(Revision(0)).await.unwrap();
    let writes = (0..3000).map(|i| store.create(key(&i.to_string()), Bytes::from_static(b"v")));
    for result in join_all(writes).await {
        result.unwrap();
    }
    let seen: Vec<Event> = soon(events.take(3000).map(Result::unwrap).collect()).await;
    assert!(seen.iter().map(|event| event.revision().0).eq(1..=3000));
}

#[tokio::test]
async fn files_are_private() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("data");
    let store = SqliteStore::open(&directory, SqliteSettings::default()).unwrap();
    store.create(key("a"), Bytes::new()).await.unwrap();
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&directory), 0o700);
    let files: Vec<_> = std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() >= 4, "{files:?}");
    for file in files {
        assert_eq!(mode(&file), 0o600, "{}", file.display());
    }
    // One that was opened to others is closed again.
    drop(store);
    let path = directory.join(FILE);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    let _store = SqliteStore::open(&directory, SqliteSettings::default()).unwrap();
    assert_eq!(mode(&path), 0o600);
}

#[tokio::test]
async fn a_second_process_is_told_who_holds_the_directory() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory).unwrap();
    let error = refusal(&directory).to_string();
    assert!(error.contains(&format!("in use by process {}", std::process::id())), "{error}");
    store.close().await;
    assert!(open(&directory).is_ok());
}

#[tokio::test]
async fn a_closed_store_refuses_and_ends_watches() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory).unwrap();
    let mut events = store.watch(Revision(0)).await.unwrap();
    store.close().await;
    assert_eq!(store.freshness(), Freshness::Stale);
    assert!(matches!(soon(events.next()).await, Some(Err(StoreError::Unavailable(_)))));
    assert!(matches!(store.create(key("a"), Bytes::new()).await, Err(StoreError::Unavailable(_))));
    assert!(matches!(store.get(&key("a")).await, Err(StoreError::Unavailable(_))));
    assert!(matches!(store.watch(Revision(0)).await.err(), Some(StoreError::Unavailable(_))));
    assert!(matches!(store.barrier(Revision(9)).await, Err(StoreError::Unavailable(_))));
}

#[tokio::test]
async fn refuses_a_newer_schema() {
    let directory = tempfile::tempdir().unwrap();
    drop(open(&directory).unwrap());
    let connection = Connection::open(directory.path().join(FILE)).unwrap();
    connection.execute("UPDATE meta SET value = 3 WHERE name = 'schema'", []).unwrap();
    drop(connection);
    assert!(matches!(refusal(&directory), OpenError::NewerSchema { found: 3, known: 2, .. }));
}

#[tokio::test]
async fn refuses_what_is_damaged_or_foreign() {
    // No database.
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join(FILE), vec![b'x'; 8192]).unwrap();
    assert!(matches!(refusal(&directory), OpenError::Corrupt { .. }));
    // Another program's.
    let directory = tempfile::tempdir().unwrap();
    Connection::open(directory.path().join(FILE)).unwrap().execute("CREATE TABLE t (x)", []).unwrap();
    assert!(matches!(refusal(&directory), OpenError::Corrupt { .. }));
    // Ours with every page but the first overwritten.
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory).unwrap();
    for i in 0..200 {
        store.create(key(&i.to_string()), vec![b'v'; 500].into()).await.unwrap();
    }
    drop(store);
    let path = directory.path().join(FILE);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[4096 * 3..].fill(0xa5);
    std::fs::write(&path, &bytes).unwrap();
    assert!(matches!(refusal(&directory), OpenError::Corrupt { .. }));
    assert_eq!(std::fs::read(&path).unwrap(), bytes, "the evidence was changed");
    // Objects whose history is missing.
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory).unwrap();
    store.create(key("a"), Bytes::new()).await.unwrap();
    drop(store);
    Connection::open(directory.path().join(FILE)).unwrap().execute("DELETE FROM events", []).unwrap();
    let error = refusal(&directory).to_string();
    assert!(error.contains("newer than the history"), "{error}");
}

#[test]
fn a_directory_that_cannot_be_written_is_an_error() {
    let error = SqliteStore::open(Path::new("/proc/bailiwick"), SqliteSettings::default()).err().unwrap();
    assert!(matches!(error, OpenError::Io { .. }), "{error}");
}

#[tokio::test]
async fn a_full_disk_refuses_whole_batches_and_recovers() {
    let directory = tempfile::tempdir().unwrap();
    // A writer of the test's own, whose connection cannot grow the file.
    let lock = DirectoryLock::acquire(directory.path()).unwrap();
    let path = directory.path().join(FILE);
    let (connection, start) = schema::open(&path, None).unwrap();
    connection.pragma_update_and_check(None, "max_page_count", 40, |_| Ok(())).unwrap();
    let history = Arc::new(History::new(start.newest));
    let (commands, received) = mpsc::channel(64);
    let writer = Writer::new(connection, lock, start, history.clone(), 1000, 1 << 30);
    let thread = std::thread::spawn(move || writer.run(received));
    let store = SqliteStore {
        readers: Arc::new(Readers::new(path, 1)),
        history,
        commands,
        writes: Counter::default(),
        thread: Mutex::new(Some(thread)),
    };
    let first = store.create(key("a"), Bytes::from_static(b"1")).await.unwrap();
    let too_large = store.create(key("b"), vec![0; 1 << 20].into());
    let (large, small) = futures::join!(too_large, store.update(key("a"), first, Bytes::from_static(b"2")));
    assert!(matches!(large, Err(StoreError::Unavailable(_))), "{large:?}");
    // Whether the small one shared the batch is not ours to say; what is acknowledged is there, the rest is not.
    let entry = store.get(&key("a")).await.unwrap().unwrap();
    match small {
        Ok(revision) => assert_eq!((entry.revision, &*entry.value), (revision, &b"2"[..])),
        Err(error) => {
            assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
            assert_eq!((entry.revision, &*entry.value), (first, &b"1"[..]));
        }
    }
    assert_eq!(store.get(&key("b")).await.unwrap(), None);
    let next = store.create(key("c"), Bytes::new()).await.unwrap();
    assert_eq!(next.0, entry.revision.0 + 1);
    let events = store.watch(Revision(0)).await.unwrap();
    let seen: Vec<u64> = events.take(next.0 as usize).map(|event| event.unwrap().revision().0).collect().await;
    assert!(seen.into_iter().eq(1..=next.0), "a refused write left an event");
}

#[tokio::test]
async fn nobody_reads_ahead_of_watches() {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(open(&directory).unwrap());
    let writer = {
        let store = store.clone();
        tokio::spawn(async move {
            for i in 0..200 {
                store.create(key(&i.to_string()), Bytes::new()).await.unwrap();
            }
        })
    };
    while !writer.is_finished() {
        let (_, revision) = store.list(Kind::User).await.unwrap();
        let barrier = store.barrier(revision).now_or_never();
        assert!(matches!(barrier, Some(Ok(()))), "{barrier:?}");
    }
    writer.await.unwrap();
}
