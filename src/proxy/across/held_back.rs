//! What a watch of namespaces holds back: events of those that are not the client's, because they may be so in a moment.

use std::collections::HashMap;

use bytes::Bytes;

use super::spread::{Share, Taken};

/// Most namespaces of which an event is held back, and the longest of these events.
const HELD_BACK: usize = 1_000;
const HELD_BACK_LENGTH: usize = 8 * 1024;

/// Events of namespaces that are not the client's (yet), by name: the last one of each, within the account's memory.
#[derive(Default)]
pub struct HeldBack {
    lines: HashMap<String, Bytes>,
    bytes: usize,
    taken: Taken,
}

impl HeldBack {
    /// Holds an event back, if there is memory for it. What is not held back and joins later is missed, and found to be.
    pub fn insert(&mut self, name: String, line: &Bytes, share: &Share) {
        drop(self.remove(&name));
        let fits = self.lines.len() < HELD_BACK && line.len() <= HELD_BACK_LENGTH;
        if fits && self.taken.grow(self.bytes + line.len(), share) {
            self.bytes += line.len();
            // Its own bytes: else it would hold all that arrived with it.
            self.lines.insert(name, Bytes::copy_from_slice(line));
        }
    }

    /// What is held back of a namespace; no more from now on.
    pub fn remove(&mut self, name: &str) -> Option<Bytes> {
        let line = self.lines.remove(name)?;
        self.bytes -= line.len();
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::super::spread::Room;
    use super::*;

    #[test]
    fn what_is_held_back_is_bounded_and_counted() {
        let room = Room::default();
        let share = room.of("jane");
        let mut held = HeldBack::default();
        let line = Bytes::from(vec![b'x'; HELD_BACK_LENGTH]);
        for round in 0..3 {
            for n in 0..HELD_BACK + 10 {
                held.insert(n.to_string(), &line, &share);
            }
            assert_eq!(held.lines.len(), HELD_BACK);
            assert_eq!(held.bytes, HELD_BACK * HELD_BACK_LENGTH);
            assert!((held.bytes..held.bytes + 65_536).contains(&room.taken()), "{round}: {}", room.taken());
        }
        held.insert("long".into(), &Bytes::from(vec![b'x'; HELD_BACK_LENGTH + 1]), &share);
        assert_eq!((held.remove("long"), held.remove("0")), (None, Some(line.clone())));
        assert_eq!(held.remove("0"), None);
        drop(held);
        assert_eq!(room.taken(), 0);
    }

    #[test]
    fn many_watches_of_one_account_hold_back_no_more_than_its_share() {
        let room = Room::default();
        let line = Bytes::from(vec![b'x'; HELD_BACK_LENGTH]);
        let mut all: Vec<HeldBack> = (0..100).map(|_| HeldBack::default()).collect();
        for held in &mut all {
            for n in 0..HELD_BACK {
                held.insert(n.to_string(), &line, &room.of("jane"));
            }
        }
        let bytes: usize = all.iter().map(|held| held.bytes).sum();
        assert!(bytes <= room.taken() && room.taken() <= 256 << 20, "{bytes} of {}", room.taken());
        let mut other = HeldBack::default();
        other.insert("a".into(), &line, &room.of("joe"));
        assert_eq!(other.lines.len(), 1, "another account's are its own");
    }
}
