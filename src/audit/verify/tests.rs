use std::path::PathBuf;
use std::sync::Arc;

use tempfile::TempDir;

use super::super::{Audit, AuditSettings, OpenError, Surface, What};
use super::*;

const KEPT: usize = 3;

fn settings(head: Head) -> AuditSettings {
    AuditSettings { file_bytes: 2_000, files: KEPT, reserve_bytes: 0, head, ..AuditSettings::default() }
}

fn open(directory: &TempDir) -> Arc<Audit> {
    Audit::open(directory.path(), settings(Head::default())).unwrap()
}

async fn write(audit: &Audit, from: u32, to: u32) {
    for n in from..to {
        audit.intent(&n.to_string(), Surface::Api, &What { user: "jane".into(), ..What::default() }).await.unwrap();
    }
}

fn files(directory: &TempDir) -> Vec<PathBuf> {
    segments(directory.path()).unwrap().into_iter().map(|segment| segment.path).collect()
}

fn verified(directory: &TempDir, seen: Head) -> Verification {
    let key = AuditSettings::default().key;
    verify(directory.path(), &key, seen, KEPT).unwrap()
}

/// A log of several files, of which the oldest went, and its end.
async fn log() -> (TempDir, Head) {
    let directory = tempfile::tempdir().unwrap();
    let audit = open(&directory);
    write(&audit, 0, 60).await;
    let head = audit.head();
    audit.close();
    assert_eq!(files(&directory).len(), KEPT);
    (directory, head)
}

fn change(path: &PathBuf, change: impl FnOnce(&mut Vec<String>)) {
    let text = std::fs::read_to_string(path).unwrap();
    let mut lines = text.lines().map(str::to_owned).collect();
    change(&mut lines);
    std::fs::write(path, lines.into_iter().map(|line| line + "\n").collect::<String>()).unwrap();
}

fn told(verification: &Verification) -> String {
    assert!(!verification.intact);
    verification.problems.iter().map(|p| format!("{}:{}: {}\n", p.file, p.line, p.what)).collect()
}

#[tokio::test]
async fn a_log_as_it_was_written_is_intact_over_restarts() {
    let (directory, head) = log().await;
    let before = verified(&directory, head);
    assert!(before.intact, "{before:?}");
    assert_eq!((before.files, before.last, before.torn), (KEPT, head.seq, 0));
    assert!(before.first > 1, "the oldest file went");
    // Killed amid a line.
    let newest = files(&directory).pop().unwrap();
    let mut text = std::fs::read(&newest).unwrap();
    text.extend_from_slice(b"{\"time\":\"2026-01-0");
    std::fs::write(&newest, text).unwrap();
    let audit = Audit::open(directory.path(), settings(head)).unwrap();
    write(&audit, 60, 63).await;
    let after = verified(&directory, audit.head());
    assert!(after.intact, "{after:?}");
    assert!(after.torn <= 1 && after.last >= head.seq + 3, "{after:?}");
}

#[tokio::test]
async fn a_changed_line_is_found() {
    let (directory, head) = log().await;
    change(&files(&directory)[1], |lines| lines[2] = lines[2].replace("jane", "joan"));
    let found = told(&verified(&directory, head));
    assert!(found.contains(":3: line") && found.contains("was changed"), "{found}");
    assert_eq!(found.lines().count(), 1, "{found}");
}

#[tokio::test]
async fn a_missing_a_doubled_and_a_foreign_line_are_found() {
    for (act, expected) in [
        ("remove", "are missing before this one"),
        ("double", "stands where line"),
        ("forge", "no part of the chain"),
        ("swap", "stands where line"),
        ("open", "does not begin with its first line"),
    ] {
        let (directory, head) = log().await;
        change(&files(&directory)[1], |lines| match act {
            "remove" => drop(lines.remove(3)),
            "double" => lines.insert(3, lines[3].clone()),
            "swap" => lines.swap(2, 3),
            "open" => drop(lines.remove(0)),
            _ => lines.insert(3, "{\"time\":\"2026-01-01T00:00:00Z\",\"user\":\"forged\"}".to_owned()),
        });
        let found = told(&verified(&directory, head));
        assert!(found.contains(expected), "{act}: {found}");
    }
}

#[tokio::test]
async fn a_log_that_was_cut_off_is_found_and_not_gone_on_with() {
    let (directory, head) = log().await;
    change(files(&directory).last().unwrap(), |lines| drop(lines.pop()));
    let found = told(&verified(&directory, head));
    assert!(found.contains("it was cut off"), "{found}");
    let refused = Audit::open(directory.path(), settings(head)).err().unwrap();
    assert!(matches!(refused, OpenError::CutOff { .. }) && refused.to_string().contains("--accept-audit-loss"));
    // Accepted, it is said for ever, and what follows is good.
    let audit = Audit::open(directory.path(), AuditSettings { accept_loss: true, files: 9, ..settings(head) }).unwrap();
    write(&audit, 60, 62).await;
    let after = verify(directory.path(), &AuditSettings::default().key, audit.head(), 9).unwrap();
    assert_eq!(after.accepted_losses, [(head.seq, head.seq)]);
    assert_eq!(after.last, head.seq + 3, "its first line and two records");
    let of_chain = told(&after);
    assert!(of_chain.lines().all(|line| line.contains("files 1 to")), "only what went before: {of_chain}");
}

#[tokio::test]
async fn missing_files_are_found() {
    for (at, expected) in [(0, "are missing"), (1, "are missing"), (2, "it was cut off")] {
        let (directory, head) = log().await;
        std::fs::remove_file(&files(&directory)[at]).unwrap();
        let found = told(&verified(&directory, head));
        assert!(found.contains(expected), "{at}: {found}");
    }
    let (directory, head) = log().await;
    for file in files(&directory) {
        std::fs::remove_file(file).unwrap();
    }
    assert!(told(&verified(&directory, head)).contains("ends with line 0"));
}

#[tokio::test]
async fn a_log_written_with_another_key_is_found() {
    let (directory, head) = log().await;
    let other = verify(directory.path(), &ChainKey::new(&[9; 32]), head, KEPT).unwrap();
    assert!(!other.intact && other.problem_count as u64 == other.lines, "{other:?}");
}

#[tokio::test]
async fn nothing_written_is_intact_where_nothing_was_seen() {
    let directory = tempfile::tempdir().unwrap();
    let audit = open(&directory);
    assert!(verified(&directory, audit.head()).intact);
}
