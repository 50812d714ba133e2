use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use futures::future::join_all;
use serde_json::Value;
use tempfile::TempDir;

use super::super::files::segments;
use super::super::{Filter, Record, read};
use super::*;

fn open(directory: &TempDir, settings: AuditSettings) -> Arc<Audit> {
    Audit::open(directory.path(), settings).unwrap()
}

fn by(user: &str) -> What {
    What { user: user.to_owned(), ..What::default() }
}

fn all(directory: &TempDir) -> Vec<Record> {
    read(directory.path(), &Filter { limit: usize::MAX, ..Filter::default() }).unwrap()
}

fn files(directory: &TempDir) -> Vec<PathBuf> {
    segments(directory.path()).unwrap().into_iter().map(|segment| segment.path).collect()
}

/// Waits until something holds, without the log being asked to write.
async fn eventually(mut holds: impl FnMut() -> bool) {
    let waited = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), waited).await.expect("it never held");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_intent_is_in_the_file_when_it_returns() {
    let directory = tempfile::tempdir().unwrap();
    let audit = open(&directory, AuditSettings::default());
    let intents = (0..100).map(|i| {
        let (audit, directory) = (audit.clone(), directory.path().to_owned());
        tokio::spawn(async move {
            let user = format!("user-{i}");
            let id = audit.request_id();
            audit.intent(&id, Surface::Kube, &by(&user)).await.unwrap();
            let found = read(&directory, &Filter { user: Some(user), limit: 9, ..Filter::default() }).unwrap();
            assert_eq!(found.len(), 1);
            assert_eq!((&found[0].id, found[0].stage, found[0].surface), (&id, Stage::Intent, Surface::Kube));
        })
    });
    for intent in join_all(intents).await {
        intent.unwrap();
    }
    let ids: BTreeSet<String> = all(&directory).into_iter().map(|record| record.id).collect();
    assert_eq!(ids.len(), 100, "request ids are not unique");
}

#[tokio::test]
async fn a_note_is_written_within_a_second_and_by_flush_and_close_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let audit = open(&directory, AuditSettings::default());
    audit.note("1", Stage::Read, Surface::Kube, by("jane"));
    let start = Instant::now();
    eventually(|| all(&directory).len() == 1).await;
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    audit.note("2", Stage::Outcome, Surface::Kube, by("jane"));
    audit.flush().await.unwrap();
    assert_eq!(all(&directory).len(), 2);
    audit.note("3", Stage::Outcome, Surface::Kube, by("jane"));
    audit.close();
    assert_eq!(all(&directory).len(), 3);
    assert_eq!(audit.intent("4", Surface::Kube, &by("jane")).await, Err(AuditError::Closed));
    assert_eq!(audit.flush().await, Err(AuditError::Closed));
    assert_eq!(audit.dropped(), 0);
    audit.note("5", Stage::Outcome, Surface::Kube, by("jane"));
    assert_eq!(audit.dropped(), 1);
}

#[tokio::test]
async fn a_full_backlog_refuses_intents_and_counts_what_it_drops() {
    let directory = tempfile::tempdir().unwrap();
    let counters = AuditCounters::default();
    let settings = AuditSettings { backlog_bytes: 400, counters: counters.clone(), ..AuditSettings::default() };
    let audit = open(&directory, settings);
    let big = by(&"x".repeat(500));
    assert_eq!(audit.intent("1", Surface::Api, &big).await, Err(AuditError::Behind));
    audit.note("2", Stage::Outcome, Surface::Api, big);
    assert_eq!((audit.dropped(), counters.dropped.get()), (1, 1));
    // What fits is taken.
    audit.intent("3", Surface::Api, &by("jane")).await.unwrap();
    audit.note("4", Stage::Outcome, Surface::Api, by("jane"));
    audit.close();
    assert_eq!(all(&directory).into_iter().map(|record| record.id).collect::<Vec<_>>(), ["3", "4"]);
    let written = |stage: Stage| counters.records.get_or_create(&StageLabel { stage: stage.as_str() }).get();
    assert_eq!([Stage::Intent, Stage::Outcome, Stage::Read].map(written), [1, 1, 0]);
}

#[tokio::test]
async fn files_are_rotated_private_and_few() {
    let directory = tempfile::tempdir().unwrap();
    let audit = open(&directory, AuditSettings { file_bytes: 1000, files: 3, ..AuditSettings::default() });
    for i in 0..60 {
        audit.intent(&i.to_string(), Surface::Api, &by(&"x".repeat(100))).await.unwrap();
    }
    drop(audit);
    let written = files(&directory);
    assert_eq!(written.len(), 3);
    for path in &written {
        let metadata = path.metadata().unwrap();
        assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
        assert!(metadata.len() < 1500, "{}", metadata.len());
    }
    let ids: Vec<u32> = all(&directory).iter().map(|record| record.id.parse().unwrap()).collect();
    assert!(ids.is_sorted() && ids.last() == Some(&59), "{ids:?}");
    // A restart goes on with the newest file instead of pushing out an old one.
    let audit = open(&directory, AuditSettings::default());
    audit.intent("60", Surface::Api, &by("jane")).await.unwrap();
    assert_eq!(files(&directory), written);
}

#[tokio::test]
async fn half_a_line_of_a_killed_process_costs_only_itself() {
    let directory = tempfile::tempdir().unwrap();
    let audit = open(&directory, AuditSettings::default());
    audit.intent("1", Surface::Api, &by("jane")).await.unwrap();
    audit.intent("2", Surface::Api, &by("jane")).await.unwrap();
    drop(audit);
    let path = &files(&directory)[0];
    let whole = std::fs::read(path).unwrap();
    std::fs::write(path, &whole[..whole.len() - 20]).unwrap();
    assert_eq!(all(&directory).len(), 1);
    let audit = open(&directory, AuditSettings::default());
    audit.intent("3", Surface::Api, &by("jane")).await.unwrap();
    assert_eq!(all(&directory).into_iter().map(|record| record.id).collect::<Vec<_>>(), ["1", "3"]);
}

#[test]
fn a_directory_that_cannot_be_written_is_an_error() {
    assert!(Audit::open(Path::new("/proc/bailiwick/audit"), AuditSettings::default()).is_err());
}

/// Every text in a record is one that the caller gave, a time or a name of ours: nothing else finds its way in.
#[tokio::test]
async fn a_record_holds_what_it_was_given_and_nothing_else() {
    let text = |field: &str| format!("canary-{field}");
    let what = What {
        user: text("user"),
        user_uid: text("userUid"),
        token: text("token"),
        address: text("address"),
        cluster: text("cluster"),
        project: text("project"),
        verb: text("verb"),
        group: text("group"),
        resource: text("resource"),
        namespace: text("namespace"),
        name: text("name"),
        path: text("path"),
        grant: text("grant"),
        role: text("role"),
        rule: text("rule"),
        reason: "canary-reason \"quoted\"\n{\"stage\":\"refused\"}".to_owned(),
        dry_run: true,
        status: Some(201),
        bytes_in: Some(1),
        bytes_out: Some(2),
        duration_ms: Some(3),
    };
    let directory = tempfile::tempdir().unwrap();
    let audit = open(&directory, AuditSettings::default());
    audit.intent("canary-id", Surface::Kube, &what).await.unwrap();
    for stage in Stage::ALL {
        audit.note("canary-id", stage, Surface::Auth, what.clone());
    }
    audit.note("canary-id", Stage::Read, Surface::Api, What::default());
    audit.close();
    let written = std::fs::read_to_string(&files(&directory)[0]).unwrap();
    assert_eq!(written.lines().count(), Stage::ALL.len() + 3, "a value broke a line");
    for line in written.lines().skip(1) {
        let object: serde_json::Map<String, Value> = serde_json::from_str(line).unwrap();
        for (field, value) in &object {
            match (field.as_str(), value) {
                ("time", Value::String(time)) => {
                    assert!(time.parse::<jiff::Timestamp>().is_ok() && time.len() == 27, "{time}");
                }
                ("stage", value) => assert!(Stage::ALL.iter().any(|stage| value == stage.as_str()), "{value}"),
                ("surface", value) => assert!(Surface::ALL.iter().any(|surface| value == surface.as_str()), "{value}"),
                ("reason", value) => assert_eq!(value, &what.reason),
                ("dryRun", value) => assert_eq!(value, true),
                ("mac", Value::String(mac)) => assert_eq!(mac.len(), 22, "{mac}"),
                ("status" | "bytesIn" | "bytesOut" | "durationMs" | "seq", value) => assert!(value.is_u64()),
                (field, value) => assert_eq!(value, &text(field)),
            }
        }
    }
    let records = all(&directory);
    assert_eq!(records[0].what, what, "a record does not come back as it was given");
    assert_eq!(records.last().map(|record| &record.what), Some(&What::default()));
}

/// Whoever needs no account must not be able to push the records of others out of the log.
#[tokio::test]
async fn strangers_fill_neither_the_log_nor_a_record() {
    let directory = tempfile::tempdir().unwrap();
    let audit = open(&directory, AuditSettings::default());
    let long = What { name: "ä".repeat(8_000), reason: "r".repeat(16_000), ..What::default() };
    for _ in 0..5_000 {
        audit.note("x", Stage::Refused, Surface::Kube, long.clone());
    }
    audit.note("y", Stage::Refused, Surface::Auth, What::default());
    audit.note("z", Stage::Refused, Surface::Kube, What { token: "t".to_owned(), ..What::default() });
    audit.intent("w", Surface::Kube, &What { token: "t".to_owned(), ..long }).await.unwrap();
    let records = all(&directory);
    let of = |id: &str| records.iter().filter(|record| record.id == id).count();
    assert!((500..1_000).contains(&of("x")), "{}", of("x"));
    assert_eq!((of("y"), of("z"), of("w")), (1, 1, 1), "other surfaces and known callers are not concerned");
    assert!(records.iter().all(|record| record.what.name.len() <= MAX_TEXT + 3), "names are cut");
    assert!(records.iter().all(|record| record.what.reason.len() <= MAX_REASON + 3), "messages are cut");
    assert_eq!(audit.withheld.get(), 5_000 - of("x") as u64);
}
