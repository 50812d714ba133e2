use std::sync::Arc;

use tempfile::TempDir;

use super::super::{Audit, AuditSettings, Surface, What};
use super::*;

/// A log of `count` records in files of a few records each; record `i` has the id `i`.
async fn log(count: usize, what: impl Fn(usize) -> (Stage, What)) -> (TempDir, Arc<Audit>) {
    let directory = tempfile::tempdir().unwrap();
    let audit = Audit::open(directory.path(), AuditSettings { file_bytes: 600, ..AuditSettings::default() }).unwrap();
    for i in 0..count {
        let (stage, what) = what(i);
        audit.note(&i.to_string(), stage, Surface::Kube, what);
        audit.flush().await.unwrap();
    }
    (directory, audit)
}

fn ids(directory: &TempDir, filter: Filter) -> Vec<usize> {
    let records = read(directory.path(), &Filter { limit: filter.limit.max(1), ..filter }).unwrap();
    records.into_iter().map(|record| record.id.parse().unwrap()).collect()
}

const MANY: Filter = Filter {
    user: None,
    cluster: None,
    project: None,
    verb: None,
    namespace: None,
    refused: false,
    since: None,
    until: None,
    limit: 1000,
};

#[tokio::test]
async fn the_newest_come_last_and_the_limit_takes_the_oldest_away() {
    let (directory, _audit) = log(50, |_| (Stage::Read, What::default())).await;
    assert!(segments(directory.path()).unwrap().len() > 5, "the log is in one file");
    assert_eq!(ids(&directory, MANY), (0..50).collect::<Vec<_>>());
    assert_eq!(ids(&directory, Filter { limit: 7, ..MANY }), (43..50).collect::<Vec<_>>());
    assert!(read(directory.path(), &Filter { limit: 0, ..MANY }).unwrap().is_empty());
}

#[tokio::test]
async fn each_condition_lets_its_own_through_and_nothing_else() {
    let (directory, _audit) = log(5, |i| {
        let mut what = What {
            user: "jane".into(),
            cluster: "demo".into(),
            project: "shop".into(),
            verb: "create".into(),
            namespace: "shop-1".into(),
            // A text that looks like another field must not match.
            reason: "\"user\":\"joe\"".into(),
            ..What::default()
        };
        let field = [&mut what.user, &mut what.cluster, &mut what.project, &mut what.verb, &mut what.namespace];
        *field.into_iter().nth(i).unwrap() = format!("other \"{i}\"");
        (if i == 3 { Stage::Refused } else { Stage::Outcome }, what)
    })
    .await;
    let some = |text: &str| Some(text.to_owned());
    let cases = [
        (Filter { user: some("jane"), ..MANY }, vec![1, 2, 3, 4]),
        (Filter { user: some("other \"0\""), ..MANY }, vec![0]),
        (Filter { user: some("joe"), ..MANY }, vec![]),
        (Filter { cluster: some("demo"), ..MANY }, vec![0, 2, 3, 4]),
        (Filter { project: some("shop"), ..MANY }, vec![0, 1, 3, 4]),
        (Filter { verb: some("create"), ..MANY }, vec![0, 1, 2, 4]),
        (Filter { namespace: some("shop-1"), ..MANY }, vec![0, 1, 2, 3]),
        (Filter { namespace: some("shop"), ..MANY }, vec![]),
        (Filter { refused: true, ..MANY }, vec![3]),
        (Filter { user: some("jane"), cluster: some("demo"), verb: some("create"), ..MANY }, vec![2, 4]),
    ];
    for (filter, expected) in cases {
        assert_eq!(ids(&directory, filter.clone()), expected, "{filter:?}");
    }
}

#[tokio::test]
async fn times_bound_what_is_read() {
    let (directory, _audit) = log(30, |_| (Stage::Read, What::default())).await;
    let records = read(directory.path(), &MANY).unwrap();
    let time = |i: usize| Some(records[i].time.parse::<Timestamp>().unwrap());
    assert_eq!(ids(&directory, Filter { since: time(10), ..MANY }), (10..30).collect::<Vec<_>>());
    assert_eq!(ids(&directory, Filter { until: time(10), ..MANY }), (0..10).collect::<Vec<_>>());
    assert_eq!(ids(&directory, Filter { since: time(10), until: time(20), ..MANY }), (10..20).collect::<Vec<_>>());
}

#[tokio::test]
async fn what_is_no_record_is_skipped() {
    let (directory, _audit) = log(2, |_| (Stage::Read, What::default())).await;
    let path = &segments(directory.path()).unwrap()[0].path;
    let mut bytes = std::fs::read(path).unwrap();
    bytes.splice(0..0, *b"{\"half\n\xff\xfe\n\n[]\n");
    bytes.extend_from_slice(b"{\"time\":\"2026-01-01T00:0");
    std::fs::write(path, bytes).unwrap();
    std::fs::write(directory.path().join("notes.txt"), "not ours").unwrap();
    assert_eq!(ids(&directory, MANY), [0, 1]);
    assert!(read(&directory.path().join("missing"), &MANY).is_err());
}
