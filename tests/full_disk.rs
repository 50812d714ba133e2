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

/// The disk is a small file system of its own, in a namespace that only the child sees.
const SMALL: &str = "BAILIWICK_TEST_SMALL_DISK_CHILD";

/// When the disk is full, what is under way is still recorded, in space that was kept for it; nothing new is begun.
#[test]
fn a_full_disk_leaves_room_for_what_is_under_way() {
    if let Some(directory) = std::env::var_os(SMALL) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        return runtime.block_on(outcomes_find_room(Path::new(&directory)));
    }
    let directory = tempfile::tempdir().unwrap();
    let status = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c"])
        .arg("mount -t tmpfs -o size=8m none \"$1\" && exec \"$2\" --exact \"$3\" --nocapture")
        .arg("sh")
        .arg(directory.path())
        .arg(std::env::current_exe().unwrap())
        .arg("a_full_disk_leaves_room_for_what_is_under_way")
        .env(SMALL, directory.path())
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
}

async fn outcomes_find_room(directory: &Path) {
    let what = |user: &str| What { user: user.to_owned(), ..What::default() };
    let log = directory.join("audit");
    let settings = || AuditSettings { reserve_bytes: 1 << 20, ..AuditSettings::default() };
    let audit = Audit::open(&log, settings()).unwrap();
    audit.intent("begun", Surface::Kube, &what("jane")).await.unwrap();
    let filler = directory.join("filler");
    let mut file = std::fs::File::create(&filler).unwrap();
    while std::io::Write::write(&mut file, &[1; 4096]).is_ok() {}
    // Until the page that the log has begun is full too.
    let mut last = Ok(());
    for n in 0..100 {
        last = audit.intent(&format!("i{n}"), Surface::Kube, &what("jane")).await;
        if last.is_err() {
            break;
        }
    }
    let refused = last.unwrap_err();
    assert!(matches!(&refused, AuditError::Unwritable(why) if why.contains("space")), "{refused}");
    for n in 0..1_000 {
        audit.note(&format!("o{n}"), Stage::Outcome, Surface::Kube, what("jane"));
    }
    audit.flush().await.unwrap();
    let read = |id: &str| {
        let filter = Filter { limit: 10_000, ..Filter::default() };
        audit::read(&log, &filter).unwrap().into_iter().any(|record| record.id == id)
    };
    assert!(read("begun") && read("o999"), "outcomes are recorded in the space that was kept");
    assert!(audit.intent("new", Surface::Kube, &what("jane")).await.is_err(), "nothing new is begun in it");
    drop(file);
    std::fs::remove_file(&filler).unwrap();
    audit.intent("after", Surface::Kube, &what("jane")).await.unwrap();
    assert!(!read("new") && read("after"));
    assert!(audit.verify().await.unwrap().intact);
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

/// The files of the log.
fn files(directory: &Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.extension().is_some_and(|end| end == "jsonl")).collect()
}

async fn audit_refuses_and_recovers(directory: &Path) {
    let what = |user: &str| What { user: user.to_owned(), ..What::default() };
    let audit = Audit::open(directory, AuditSettings::default()).unwrap();
    audit.intent("before", Surface::Kube, &what("jane")).await.unwrap();
    // In the middle of the next line.
    limit(Some(files(directory)[0].metadata().unwrap().len() + 40));
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
    assert!(audit.verify().await.unwrap().intact);
    let file = files(directory).pop().unwrap();
    let text = std::fs::read_to_string(file).unwrap();
    assert!(text.lines().count() == 4 && text.ends_with('\n'), "half a line was left: {text:?}");
}
