//! Merged watches: whatever clusters send, and in whichever order, what is written is events, and the client may go on
//! from what it remembers.

use std::collections::HashSet;

use super::*;
use crate::fuzz;

const WORDS: &[&str] = &[
    "0{\"type\":\"ADDED\",\"object\":{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":\"5\"}}}\n",
    "1{\"type\":\"BOOKMARK\",\"object\":{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":\"9\"}}}\n",
    "2{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"7\",\"annotations\":{\"k8s.io/initial-events-end\":\"true\"}}}}\n",
    "\"type\":\"ERROR\"",
    "\"DELETED\"",
    "\"MODIFIED\"",
    "\"resourceVersion\":\"",
    "\"annotations\":{",
    "\n",
    "{",
    "}",
    "null",
    "18446744073709551615",
    "18446744073709551616",
    "-1",
    "\"Table\"",
    "\\n",
    "0",
    "1",
    "2",
    "f",
];

#[test]
fn fuzz_watches() {
    fuzz::run("watch", WORDS, |input| {
        let (settings, stream) = input.split_first().map_or((0, input), |(first, rest)| (*first, rest));
        let wishes = Wishes {
            from: (settings & 1 == 0).then_some(4),
            initial_events: settings & 2 != 0,
            bookmarks: settings & 4 != 0,
        };
        let mut merge = Merge::new(3, wishes);
        let mut seen = HashSet::new();
        let (mut whole, mut cut) = (Lines::default(), Lines::default());
        whole.push(stream);
        let mut lines = vec![];
        while let Some(line) = whole.next().unwrap() {
            lines.push(line);
        }
        // The same in pieces.
        let mut pieces = vec![];
        for piece in stream.chunks(usize::from(settings % 7) + 1) {
            cut.push(piece);
            while let Some(line) = cut.next().unwrap() {
                pieces.push(line);
            }
        }
        assert_eq!(lines, pieces);
        for line in lines {
            // A flush at any time.
            if line[0] == b'f' {
                written(&mut merge, wishes);
                continue;
            }
            let member = usize::from(line[0]) % 3;
            if merge.is_over() || merge.take(member, &line.slice(1..)).is_err() {
                break;
            }
            seen.insert((member, merge.settled(), merge.is_over(), merge.least().is_some()));
        }
        written(&mut merge, wishes);
        let mut seen: Vec<_> = seen.into_iter().collect();
        seen.sort_unstable();
        (seen, merge.resumable(), settings & 7)
    });
}

/// Flushes, and checks what was written and where the client stands then.
fn written(merge: &mut Merge, wishes: Wishes) {
    let bytes = merge.flush().unwrap_or_default();
    assert!(bytes.is_empty() || bytes.ends_with(b"\n"));
    for line in bytes.split(|b| *b == b'\n').filter(|line| !line.is_empty()) {
        Head::read(line).expect("an event");
    }
    assert_eq!(merge.waiting(), 0);
    if merge.is_over() {
        return;
    }
    if let (true, true, Some(least)) = (wishes.bookmarks, merge.settled(), merge.least()) {
        assert!(merge.resumable() || merge.form.is_none(), "stands at {:?}, least {least}", merge.remembers);
    }
    if merge.resumable() {
        assert!(merge.members.iter().all(|member| member.passed >= merge.remembers), "{merge:?}");
    }
}
