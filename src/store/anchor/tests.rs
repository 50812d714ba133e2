use super::*;

fn sealer() -> Arc<Sealer> {
    Arc::new(Sealer::new("k1", &[7; 32]))
}

fn state(floor: u64) -> Anchored {
    Anchored { store_id: 9, global_epoch: 1, floor: Revision(floor) }
}

fn made(directory: &Path) -> Anchor {
    let anchor = Anchor::open(directory, sealer()).unwrap();
    assert_eq!(anchor.anchored(), None);
    anchor.make(state(5)).unwrap();
    anchor
}

fn read(directory: &Path) -> Anchored {
    Anchor::open(directory, sealer()).unwrap().anchored().unwrap()
}

#[test]
fn only_ever_rises() {
    let directory = tempfile::tempdir().unwrap();
    let anchor = made(directory.path());
    assert_eq!(read(directory.path()), state(5));
    anchor.raise(Revision(8), Some(2)).unwrap();
    anchor.raise(Revision(3), Some(1)).unwrap();
    anchor.raise(Revision(7), None).unwrap();
    assert_eq!(read(directory.path()), Anchored { global_epoch: 2, ..state(8) });
}

#[test]
fn a_write_that_was_cut_leaves_the_state_before_it() {
    let directory = tempfile::tempdir().unwrap();
    let anchor = made(directory.path());
    anchor.raise(Revision(6), None).unwrap();
    anchor.raise(Revision(7), None).unwrap();
    let path = directory.path().join(FILE);
    let whole = std::fs::read(&path).unwrap();
    let newer = if String::from_utf8_lossy(&whole[..SLOT]).contains("\"version\":3") { 0 } else { 1 };
    for cut in [0, 1, 100, 300] {
        let mut torn = whole.clone();
        torn[newer * SLOT + cut..(newer + 1) * SLOT].fill(b'x');
        std::fs::write(&path, torn).unwrap();
        assert_eq!(read(directory.path()), state(6), "{cut}");
    }
}

#[test]
fn what_was_altered_or_is_of_another_key_does_not_open() {
    let directory = tempfile::tempdir().unwrap();
    made(directory.path());
    let path = directory.path().join(FILE);
    let whole = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, whole.replace("\"version\":1", "\"version\":2")).unwrap();
    let refused = Anchor::open(directory.path(), sealer()).err().unwrap();
    assert!(matches!(&refused, AnchorError::Unreadable { why: SealError::DoesNotOpen(_), .. }), "{refused}");
    assert!(refused.to_string().contains("bailiwick restore"), "{refused}");
    std::fs::write(&path, &whole).unwrap();
    let other = Arc::new(Sealer::new("k2", &[8; 32]));
    let refused = Anchor::open(directory.path(), other).err().unwrap();
    assert!(matches!(&refused, AnchorError::Unreadable { why: SealError::UnknownKey { .. }, .. }), "{refused}");
    std::fs::write(&path, "").unwrap();
    assert!(matches!(Anchor::open(directory.path(), sealer()), Err(AnchorError::Unreadable { .. })));
    std::fs::write(&path, &whole).unwrap();
    assert_eq!(read(directory.path()), state(5));
}

#[test]
fn renewed_by_the_active_key_it_needs_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let sealer = sealer();
    let anchor = Anchor::open(directory.path(), sealer.clone()).unwrap();
    anchor.make(state(5)).unwrap();
    let mut ring = super::super::sealed::Ring::new("k2", &[8; 32]);
    ring.add("k1", &[7; 32]);
    sealer.replace(ring);
    anchor.renew().unwrap();
    let alone = Anchor::open(directory.path(), Arc::new(Sealer::new("k2", &[8; 32]))).unwrap();
    assert_eq!(alone.anchored(), Some(state(5)));
}
