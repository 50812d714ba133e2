//! A disk that takes no more: nothing is acknowledged that is not there, and everything goes on once there is room.
//!
//! The limit on file sizes of a process is the disk here. It holds for a whole process, so that the test runs itself as
//! a child.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use bailiwick::audit::{self, Audit, AuditError, AuditSettings, Filter, Stage, Surface, What};
use bailiwick::store::sqlite::{SqliteSettings, SqliteStore};
use bailiwick::store::{Freshness, Key, Kind, Revision, Store, StoreError};
use bytes::Bytes;
use futures::StreamExt as _;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};

/// Tells the child its directory.
const CHILD: &str = "BAILIWICK_TEST_FULL_DISK_CHILD";
/// `SIGXFSZ`, which would end the process instead of failing the write.
const FILE_TOO_LARGE: i32 = 25;

#[test]
fn a_full_disk_refuses_and_recovers() {
    if let Some(directory) = std::env::var_os(CHILD) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let _handled = signal(SignalKind::from_raw(FILE_TOO_LARGE)).unwrap();
            store_refuses_and_recovers(&Path::new(&directory).join("store")).await;
            audit_refuses_and_recovers(&Path::new(&directory).join("audit")).await;
        });
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_full_disk_refuses_and_recovers", "--nocapture"])
        .env(CHILD, directory.path())
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
}

/// Files may grow to so many bytes and no further; nothing lifts the limit.
fn limit(bytes: Option<u64>) {
    let Rlimit { maximum, .. } = getrlimit(Resource::Fsize);
    setrlimit(Resource::Fsize, Rlimit { current: bytes.or(maximum), maximum }).unwrap();
}

/// Size of the largest file, which is the one that cannot grow.
fn largest(directory: &Path) -> u64 {
    std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).max().unwrap()
}

async fn store_refuses_and_recovers(directory: &Path) {
    let key = |i: u64| Key::new(Kind::Team, format!("team-{i}"));
    let value = Bytes::from(vec![b'v'; 10_000]);
    let store = Arc::new(SqliteStore::open(directory, SqliteSettings::default()).unwrap());
    let mut newest = Revision(0);
    for i in 0..20 {
        newest = store.create(key(i), value.clone()).await.unwrap();
    }
    limit(Some(largest(directory) + 30_000));
    let mut refused = 0;
    for i in 20..60 {
        match store.create(key(i), value.clone()).await {
            Ok(revision) => {
                assert_eq!(revision.0, newest.0 + 1);
                newest = revision;
            }
            Err(StoreError::Unavailable(_)) => refused += 1,
            Err(other) => panic!("{other}"),
        }
    }
    assert!(refused > 10, "the disk was not full");
    // What is there can be read, and is exactly what was acknowledged.
    assert_eq!(store.freshness(), Freshness::Fresh);
    let (entries, revision) = store.list(Kind::Team).await.unwrap();
    assert_eq!((entries.len() as u64, revision), (newest.0, newest));
    limit(None);
    let next = store.create(key(100), value.clone()).await.unwrap();
    assert_eq!(next.0, newest.0 + 1);
    drop(store);
    let store = SqliteStore::open(directory, SqliteSettings::default()).unwrap();
    assert_eq!(store.revision().await.unwrap(), next);
    let events = store.watch(Revision(0)).await.unwrap().take(next.0 as usize);
    let revisions: Vec<u64> = events.map(|event| event.unwrap().revision().0).collect().await;
    assert!(revisions.into_iter().eq(1..=next.0), "a refused write left an event");
}

async fn audit_refuses_and_recovers(directory: &Path) {
    let what = |user: &str| What { user: user.to_owned(), ..What::default() };
    let audit = Audit::open(directory, AuditSettings::default()).unwrap();
    audit.intent("before", Surface::Kube, &what("jane")).await.unwrap();
    // In the middle of the next line.
    limit(Some(largest(directory) + 40));
    for _ in 0..3 {
        let error = audit.intent("refused", Surface::Kube, &what("jane")).await.unwrap_err();
        assert!(matches!(error, AuditError::Unwritable(_)), "{error}");
    }
    // What has happened is kept until there is room.
    audit.note("outcome", Stage::Outcome, Surface::Kube, what("jane"));
    assert!(audit.flush().await.is_err());
    limit(None);
    let read = || -> Vec<String> {
        let filter = Filter { limit: 100, ..Filter::default() };
        audit::read(directory, &filter).unwrap().into_iter().map(|record| record.id).collect()
    };
    // By itself, without anybody asking for it.
    let written = async {
        while read().len() < 2 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), written).await.expect("the log did not recover");
    audit.intent("after", Surface::Kube, &what("jane")).await.unwrap();
    assert_eq!(read(), ["before", "outcome", "after"]);
    assert_eq!(audit.dropped(), 0);
    let file = std::fs::read_dir(directory).unwrap().next().unwrap().unwrap().path();
    let text = std::fs::read_to_string(file).unwrap();
    assert!(text.lines().count() == 3 && text.ends_with('\n'), "half a line was left: {text:?}");
}
