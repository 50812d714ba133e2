use std::io::Write as _;
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
    assert!(after.intact, "what went while fewer files were kept is no loss: {after:?}");
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

/// Files that went while fewer were kept are no loss when more are to be kept; those that go from then on are.
#[tokio::test]
async fn keeping_more_files_makes_no_loss_and_hides_none() {
    const MORE: usize = 2 * KEPT;
    let verified =
        |directory: &TempDir, seen: Head| verify(directory.path(), &AuditSettings::default().key, seen, MORE).unwrap();
    let (directory, mut head) = log().await;
    assert!(verified(&directory, head).intact);
    for removed in [false, true] {
        if removed {
            std::fs::remove_file(&files(&directory)[0]).unwrap();
            assert!(told(&verified(&directory, head)).contains("are missing"));
        }
        let before = files(&directory).len();
        let audit = Audit::open(directory.path(), AuditSettings { files: MORE, ..settings(head) }).unwrap();
        for n in 0.. {
            write(&audit, n, n + 1).await;
            if files(&directory).len() > before {
                break;
            }
        }
        head = audit.head();
        audit.close();
        assert_eq!(verified(&directory, head).intact, !removed, "a new file forgives nothing");
    }
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

/// Whoever can write to the folder, but has no key, does not say where the chain goes on.
#[tokio::test]
async fn forged_lines_at_the_end_are_found_and_not_gone_on_from() {
    for seq in [1, 1_000_000, u64::MAX] {
        let (directory, head) = log().await;
        let newest = files(&directory).pop().unwrap();
        let genuine = std::fs::read_to_string(&newest).unwrap().lines().count();
        let forged = format!("{{\"user\":\"x\",\"seq\":{seq},\"mac\":\"{}\"}}\n", Head::default().mac);
        std::fs::OpenOptions::new().append(true).open(&newest).unwrap().write_all(forged.as_bytes()).unwrap();
        let audit = Audit::open(directory.path(), settings(head)).unwrap();
        write(&audit, 60, 61).await;
        assert_eq!(audit.head().seq - head.seq, 1 + u64::from(files(&directory).last() != Some(&newest)), "{seq}");
        let found = told(&verified(&directory, audit.head()));
        assert!(found.contains(&format!(":{}: ", genuine + 1)), "{found}");
    }
    // A file that is forged whole is left as it is.
    let (directory, head) = log().await;
    let forged = directory.path().join("audit-20990101T000000Z-000099.jsonl");
    let line = format!("{{\"user\":\"x\",\"seq\":9,\"mac\":\"{}\"}}\n", Head::default().mac);
    std::fs::write(&forged, &line).unwrap();
    let audit = Audit::open(directory.path(), AuditSettings { files: 99, ..settings(head) }).unwrap();
    write(&audit, 60, 61).await;
    assert_eq!(std::fs::read_to_string(&forged).unwrap(), line);
    assert_eq!(audit.head().seq, head.seq + 2);
    assert!(told(&verified(&directory, audit.head())).contains("does not begin with its first line"));
}

/// A write may end before its last byte: then the line is whole, and its number is taken.
#[tokio::test]
async fn a_line_that_lacks_only_its_line_break_counts() {
    let (directory, head) = log().await;
    let newest = files(&directory).pop().unwrap();
    let text = std::fs::read(&newest).unwrap();
    std::fs::write(&newest, text.strip_suffix(b"\n").unwrap()).unwrap();
    let audit = Audit::open(directory.path(), settings(head)).unwrap();
    write(&audit, 60, 62).await;
    let after = verified(&directory, audit.head());
    assert!(after.intact && after.torn == 0, "{after:?}");
}

/// What is longer than any line is read without being held in memory, and does not hide where the chain ends.
#[tokio::test]
async fn a_line_without_end_is_told_and_skipped() {
    let (directory, head) = log().await;
    let newest = files(&directory).pop().unwrap();
    let mut text = std::fs::read(&newest).unwrap();
    text.resize(text.len() + (1 << 20), b'x');
    std::fs::write(&newest, text).unwrap();
    let found = told(&verified(&directory, head));
    assert!(found.contains("longer than any that is written"), "{found}");
    let audit = Audit::open(directory.path(), settings(head)).unwrap();
    write(&audit, 60, 61).await;
    let after = verified(&directory, audit.head());
    assert_eq!((after.problem_count, after.last), (1, audit.head().seq), "{after:?}");
}

#[tokio::test]
async fn text_that_is_no_text_is_told_or_is_no_record() {
    let (directory, head) = log().await;
    let file = &files(&directory)[1];
    let mut bytes = std::fs::read(file).unwrap();
    bytes.extend_from_slice(b"{\"user\":\"\xff\"}\n\xff\xfe\0\n");
    std::fs::write(file, bytes).unwrap();
    let after = verified(&directory, head);
    assert_eq!((after.problem_count, after.torn), (1, 1), "{after:?}");
    assert!(told(&after).contains("no part of the chain"));
}

/// Neither followed nor waited for: a link, a pipe, a folder under the name of a file.
#[tokio::test]
async fn what_is_no_regular_file_is_told() {
    for kind in ["link", "pipe", "folder"] {
        for name in ["audit-20990101T000000Z-000099.jsonl", "audit-20000101T000000Z-000001.jsonl"] {
            let (directory, head) = log().await;
            let path = directory.path().join(name);
            let elsewhere = directory.path().join("elsewhere");
            match kind {
                "link" => {
                    std::fs::write(&elsewhere, "untouched").unwrap();
                    std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
                }
                "pipe" => rustix::fs::mknodat(
                    rustix::fs::CWD,
                    &path,
                    rustix::fs::FileType::Fifo,
                    rustix::fs::Mode::from_raw_mode(0o600),
                    0,
                )
                .unwrap(),
                _ => std::fs::create_dir(&path).unwrap(),
            }
            let found = told(&verified(&directory, head));
            assert!(found.contains("is no regular file"), "{kind} {name}: {found}");
            let all = super::super::read(directory.path(), &super::super::Filter { limit: 9, ..Default::default() });
            assert_eq!(all.unwrap().len(), 9, "the others can be read");
            let opened = Audit::open(directory.path(), settings(head));
            assert_eq!(opened.is_ok(), name.ends_with("000001.jsonl"), "{kind} {name}");
            if kind == "link" {
                assert_eq!(std::fs::read_to_string(&elsewhere).unwrap(), "untouched");
            }
        }
    }
    // Nor is the space kept free in somebody else's file.
    let directory = tempfile::tempdir().unwrap();
    let elsewhere = directory.path().join("elsewhere");
    std::fs::write(&elsewhere, "untouched").unwrap();
    std::os::unix::fs::symlink(&elsewhere, directory.path().join("reserve")).unwrap();
    let mut reserve = super::super::files::Reserve::new(directory.path(), 1 << 20);
    assert!(!reserve.hold() && !reserve.release());
    assert_eq!(std::fs::read_to_string(&elsewhere).unwrap(), "untouched");
}

/// Files of the same log at another place, twice, or as they once were.
#[tokio::test]
async fn files_that_were_swapped_doubled_or_put_back_are_found() {
    let (directory, head) = log().await;
    let of = files(&directory);
    let texts: Vec<Vec<u8>> = of.iter().map(|file| std::fs::read(file).unwrap()).collect();
    std::fs::write(&of[0], &texts[1]).unwrap();
    std::fs::write(&of[1], &texts[0]).unwrap();
    let found = told(&verified(&directory, head));
    assert!(found.contains("under the number of another"), "{found}");

    let (directory, head) = log().await;
    let twice = directory.path().join("audit-20000101T000000Z-".to_owned() + number(&files(&directory)[1]));
    std::fs::copy(&files(&directory)[1], twice).unwrap();
    let found = told(&verified(&directory, head));
    assert!(found.contains("there is another file"), "{found}");

    // The newest file as it was a few lines ago.
    let (directory, head) = log().await;
    let newest = files(&directory).pop().unwrap();
    let older = std::fs::read(&newest).unwrap();
    let audit = Audit::open(directory.path(), AuditSettings { file_bytes: 1 << 20, ..settings(head) }).unwrap();
    write(&audit, 60, 63).await;
    let now = audit.head();
    audit.close();
    std::fs::write(&newest, older).unwrap();
    assert!(told(&verified(&directory, now)).contains("it was cut off"));
    // What stood noted before is good with any longer log.
    let (directory, head) = log().await;
    let audit = Audit::open(directory.path(), settings(head)).unwrap();
    write(&audit, 60, 90).await;
    assert!(verified(&directory, head).intact);

    // Names that are near to those of the log, and numbers that cannot be gone on from.
    let (directory, head) = log().await;
    for name in ["audit-x-+99.jsonl", "audit-x-99999999999999999999999.jsonl", "audit-99.jsonl", "audit-x-9.jsonl.gz"] {
        std::fs::write(directory.path().join(name), "").unwrap();
    }
    assert!(verified(&directory, head).intact);
    let last = directory.path().join(format!("audit-x-{}.jsonl", u64::MAX));
    std::fs::write(&last, "").unwrap();
    assert!(told(&verified(&directory, head)).contains("are missing"));
    let audit = Audit::open(directory.path(), settings(head)).unwrap();
    write(&audit, 60, 120).await;
    assert!(std::fs::metadata(last).unwrap().len() > 2_000, "it goes on where it is");
}

fn number(path: &std::path::Path) -> &str {
    path.file_name().unwrap().to_str().unwrap().rsplit('-').next().unwrap()
}

/// While others write and files go.
#[tokio::test(flavor = "multi_thread")]
async fn verifying_beside_writing_finds_nothing_wrong() {
    let directory = tempfile::tempdir().unwrap();
    let audit = open(&directory);
    write(&audit, 0, 30).await;
    let writing = tokio::spawn({
        let audit = audit.clone();
        async move { write(&audit, 30, 600).await }
    });
    let mut verified = 0;
    while !writing.is_finished() || verified < 3 {
        let found = audit.verify().await.unwrap();
        assert!(found.intact && found.torn == 0, "{found:?}");
        audit.noted(audit.head());
        verified += 1;
    }
    writing.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_is_verified_once_at_a_time() {
    let (directory, head) = log().await;
    let audit = Audit::open(directory.path(), AuditSettings { file_bytes: 64 << 20, ..settings(head) }).unwrap();
    let what = What { user: "u".repeat(500), reason: "r".repeat(2_000), ..What::default() };
    for _ in 0..8_000 {
        audit.note("x", super::super::Stage::Read, Surface::Api, what.clone());
    }
    audit.flush().await.unwrap();
    let all = futures::future::join_all((0..100).map(|_| audit.verify())).await;
    let done = all.iter().filter(|found| found.as_ref().is_ok_and(|found| found.intact)).count();
    let busy = all.iter().filter(|found| matches!(found, Err(super::super::ReadError::Busy))).count();
    assert!(done >= 1 && done + busy == 100 && busy > 90, "{done} {busy}");
    assert!(audit.verify().await.unwrap().intact, "the place came back");
    // Read by many at once: each waits for its turn.
    let filter = super::super::Filter { limit: 10_000, ..Default::default() };
    let all = futures::future::join_all((0..5).map(|_| audit.read(filter.clone()))).await;
    for records in all {
        let records = records.unwrap();
        assert!((5_000..6_500).contains(&records.len()), "16 MiB of them and no more: {}", records.len());
    }
}

/// The longest record there can be is far from what would be skipped.
#[tokio::test]
async fn the_longest_record_is_read_again() {
    let directory = tempfile::tempdir().unwrap();
    let audit = open(&directory);
    let text = || "\u{1}".repeat(9_000);
    let what = What {
        user: text(),
        user_uid: text(),
        token: text(),
        address: text(),
        cluster: text(),
        project: text(),
        verb: text(),
        group: text(),
        resource: text(),
        namespace: text(),
        name: text(),
        path: text(),
        grant: text(),
        role: text(),
        rule: text(),
        reason: text(),
        ..What::default()
    };
    audit.intent("1", Surface::Api, &what).await.unwrap();
    let filter = super::super::Filter { limit: 9, ..Default::default() };
    assert_eq!(audit.read(filter).await.unwrap().len(), 1);
    assert!(audit.verify().await.unwrap().intact);
}
