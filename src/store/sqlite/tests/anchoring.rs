//! Older copies of the database do not open; newer programs take up older databases.

use rusqlite::named_params;

use super::super::super::anchor::Anchored;
use super::super::super::sealed::{Binding, Sealer};
use super::super::super::{EPOCH, Key, Kind};
use super::*;

fn sealer() -> Arc<Sealer> {
    Arc::new(Sealer::new("k1", &[7; 32]))
}

fn anchored(directory: &Path) -> Result<SqliteStore, OpenError> {
    let anchor = Anchor::open(directory, sealer())?;
    SqliteStore::open(directory, SqliteSettings { anchor: Some(Arc::new(anchor)), ..SqliteSettings::default() })
}

fn refused(directory: &Path) -> OpenError {
    anchored(directory).err().expect("the store opened")
}

fn anchor(directory: &Path) -> Anchored {
    Anchor::open(directory, sealer()).unwrap().anchored().unwrap()
}

fn account(content: u64) -> Bytes {
    sealer().seal(&account_key(), Binding { uid: "u", version: 1 }, &content).unwrap()
}

fn account_key() -> Key {
    Key::new(Kind::Account, "jane")
}

fn copy(directory: &Path) -> Vec<u8> {
    std::fs::read(directory.join(FILE)).unwrap()
}

#[tokio::test]
async fn an_older_copy_is_refused_and_the_newer_one_opens() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let store = anchored(path).unwrap();
    let first = store.create(account_key(), account(1)).await.unwrap();
    store.close().await;
    drop(store);
    let older = copy(path);
    let store = anchored(path).unwrap();
    let second = store.update(account_key(), first, account(2)).await.unwrap();
    assert_eq!(anchor(path).floor, second, "acknowledged before it was anchored");
    store.close().await;
    drop(store);
    let newer = copy(path);
    std::fs::write(path.join(FILE), &older).unwrap();
    let error = refused(path);
    assert!(matches!(error, OpenError::Anchor(AnchorError::Behind { .. })), "{error}");
    let text = error.to_string();
    assert!(text.contains("older copy") && text.contains("revision 1") && text.contains("bailiwick restore"), "{text}");
    assert_eq!(copy(path), older, "the refused file was changed");
    std::fs::write(path.join(FILE), &newer).unwrap();
    assert_eq!(anchored(path).unwrap().revision().await.unwrap(), second);
}

#[tokio::test]
async fn what_takes_from_nobody_is_not_anchored_until_the_next_start() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let store = anchored(path).unwrap();
    store.create(key("a"), Bytes::new()).await.unwrap();
    let used = Key::new(Kind::TokenUse, "t");
    let last = store.create(used, Bytes::new()).await.unwrap();
    assert_eq!(anchor(path).floor, Revision(0));
    drop(store);
    drop(anchored(path).unwrap());
    assert_eq!(anchor(path).floor, last);
    let store = anchored(path).unwrap();
    let deleted = store.delete(key("a"), Revision(1)).await.unwrap();
    assert_eq!(anchor(path).floor, deleted);
}

#[tokio::test]
async fn the_epoch_is_anchored_as_it_is_raised() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let store = anchored(path).unwrap();
    let epoch = Key::new(Kind::Platform, EPOCH);
    let seal = |value: u64| sealer().seal(&epoch, Binding { uid: EPOCH, version: value }, &value).unwrap();
    let first = store.create(epoch.clone(), seal(1)).await.unwrap();
    store.update(epoch.clone(), first, seal(4)).await.unwrap();
    assert_eq!(anchor(path).global_epoch, 4);
    drop(store);
    // The same revision with a lower epoch: not what was acknowledged.
    let sql = "UPDATE objects SET value = :value WHERE kind = 'Platform'";
    let connection = Connection::open(path.join(FILE)).unwrap();
    connection.execute(sql, named_params! { ":value": &*seal(1) }).unwrap();
    drop(connection);
    assert!(matches!(refused(path), OpenError::Anchor(AnchorError::Behind { epoch: 1, .. })));
}

#[tokio::test]
async fn a_missing_half_and_another_stores_half_are_refused() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for directory in [&one, &other] {
        let store = anchored(directory.path()).unwrap();
        store.create(account_key(), account(1)).await.unwrap();
    }
    let path = one.path();
    let (database, anchor) = (copy(path), std::fs::read(path.join("anchor")).unwrap());
    std::fs::write(path.join(FILE), copy(other.path())).unwrap();
    assert!(matches!(refused(path), OpenError::Anchor(AnchorError::Foreign { .. })));
    // Nothing is made in place of what is missing.
    std::fs::remove_file(path.join(FILE)).unwrap();
    assert!(matches!(refused(path), OpenError::Anchor(AnchorError::NoStore { .. })));
    assert!(!path.join(FILE).exists());
    std::fs::write(path.join(FILE), "").unwrap();
    assert!(matches!(refused(path), OpenError::Anchor(AnchorError::NoStore { .. })));
    std::fs::write(path.join(FILE), &database).unwrap();
    std::fs::remove_file(path.join("anchor")).unwrap();
    assert!(matches!(refused(path), OpenError::Anchor(AnchorError::Missing { .. })));
    assert!(!path.join("anchor").exists());
    std::fs::write(path.join("anchor"), anchor).unwrap();
    anchored(path).unwrap();
}

#[tokio::test]
async fn a_start_that_was_cut_short_is_taken_up_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    drop(anchored(path).unwrap());
    let id = anchor(path).store_id;
    std::fs::remove_file(path.join(FILE)).unwrap();
    drop(anchored(path).unwrap());
    assert_eq!(anchor(path).store_id, id);
}

#[tokio::test]
async fn a_change_whose_anchor_cannot_be_written_is_not_acknowledged() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    drop(anchored(path).unwrap());
    // Takes no writes at all, as a failing disk would.
    let anchor = Anchor::open(path, sealer()).unwrap();
    anchor.break_for_tests();
    let settings = SqliteSettings { anchor: None, ..SqliteSettings::default() };
    let lock = lock(path).unwrap();
    let (connection, start) = schema::open(&path.join(FILE), None).unwrap();
    let SqliteSettings { history_events, history_bytes, .. } = settings;
    let history = Arc::new(History::new(start.newest));
    let (commands, received) = mpsc::channel(64);
    let mut writer = Writer::new(connection, lock, start, history.clone(), history_events, history_bytes);
    writer.anchor = Some(Arc::new(anchor));
    let thread = Mutex::new(Some(std::thread::spawn(move || writer.run(received))));
    let readers = Arc::new(Readers::new(path.join(FILE), 1));
    let store = SqliteStore { readers, history, commands, writes: Counter::default(), thread };
    store.create(key("a"), Bytes::new()).await.unwrap();
    let error = store.create(account_key(), account(1)).await.unwrap_err();
    assert!(error.to_string().contains("anchor"), "{error}");
    // It is there nevertheless, and is seen: the outcome was said to be unknown.
    assert!(store.get(&account_key()).await.unwrap().is_some());
    store.create(key("b"), Bytes::new()).await.unwrap();
}

#[tokio::test]
async fn a_lost_key_is_named_and_nothing_is_changed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let store = anchored(path).unwrap();
    store.create(account_key(), account(1)).await.unwrap();
    drop(store);
    let before = copy(path);
    // The anchor would say so first.
    let other = Arc::new(Anchor::lost(path, Arc::new(Sealer::new("k2", &[8; 32]))));
    let settings = SqliteSettings { anchor: Some(other), ..SqliteSettings::default() };
    let error = SqliteStore::open(path, settings).err().unwrap();
    assert!(matches!(&error, OpenError::LostKey { keys, records: 1, .. } if keys == "k1"), "{error}");
    assert_eq!(copy(path), before);
    anchored(path).unwrap();
}

/// What version 1 of the schema was, and a store of it.
fn version_1(path: &Path) {
    let connection = Connection::open(path.join(FILE)).unwrap();
    connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(())).unwrap();
    let tables = "
        CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT;
        CREATE TABLE objects (
            kind TEXT NOT NULL, name TEXT NOT NULL, revision INTEGER NOT NULL UNIQUE, value BLOB NOT NULL,
            PRIMARY KEY (kind, name)
        ) STRICT;
        CREATE TABLE events (
            revision INTEGER PRIMARY KEY, kind TEXT NOT NULL, name TEXT NOT NULL, type TEXT NOT NULL,
            value BLOB, previous BLOB
        ) STRICT;
        INSERT INTO meta (name, value) VALUES ('schema', 1), ('compacted', 0);
        INSERT INTO objects VALUES ('User', 'jane', 1, 'a value');
        INSERT INTO events VALUES (1, 'User', 'jane', 'created', 'a value', NULL);";
    // STRICT columns take blobs only as blobs.
    connection.execute_batch(&tables.replace("'a value'", "x'612076616c7565'")).unwrap();
    let insert = "INSERT INTO objects VALUES ('Account', 'jane', 2, :value)";
    connection.execute(insert, named_params! { ":value": &*account(1) }).unwrap();
    let insert = "INSERT INTO events VALUES (2, 'Account', 'jane', 'created', :value, NULL)";
    connection.execute(insert, named_params! { ":value": &*account(1) }).unwrap();
}

#[tokio::test]
async fn version_1_is_taken_up_with_all_that_it_has() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    version_1(path);
    let store = anchored(path).unwrap();
    assert_eq!(&*store.get(&key("jane")).await.unwrap().unwrap().value, b"a value");
    assert_eq!(store.revision().await.unwrap(), Revision(2));
    let events = store.watch(Revision(0)).await.unwrap();
    let seen: Vec<u64> = events.take(2).map(|event| event.unwrap().revision().0).collect().await;
    assert_eq!(seen, [1, 2]);
    let last = store.update(account_key(), Revision(2), account(2)).await.unwrap();
    assert_eq!(anchor(path).floor, last);
    drop(store);
    assert_eq!(anchored(path).unwrap().revision().await.unwrap(), last);
    // The copy from before is one that the older program takes, and that this one takes for what it is.
    let kept = path.join("store.schema-1.db");
    let version: i64 = Connection::open(&kept)
        .unwrap()
        .query_row("SELECT value FROM meta WHERE name = 'schema'", [], |row| row.get(0))
        .unwrap();
    assert_eq!(version, 1);
    std::fs::copy(&kept, path.join(FILE)).unwrap();
    for leftover in ["store.db-wal", "store.db-shm"] {
        let _ = std::fs::remove_file(path.join(leftover));
    }
    let error = refused(path);
    assert!(matches!(error, OpenError::Anchor(AnchorError::Behind { .. })), "{error}");
}

#[tokio::test]
async fn a_migration_that_was_cut_short_is_taken_up_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    version_1(path);
    // Died after the anchor and before the commit.
    let anchor_file = Anchor::open(path, sealer()).unwrap();
    anchor_file.make(Anchored { store_id: 77, global_epoch: 0, floor: Revision(2) }).unwrap();
    drop(anchor_file);
    let store = anchored(path).unwrap();
    assert_eq!(store.revision().await.unwrap(), Revision(2));
    assert_eq!(anchor(path).store_id, 77);
}

#[tokio::test]
async fn a_version_that_was_never_released_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    version_1(path);
    Connection::open(path.join(FILE)).unwrap().execute("UPDATE meta SET value = 0 WHERE name = 'schema'", []).unwrap();
    let error = open(&directory).err().unwrap().to_string();
    assert!(error.contains("never released"), "{error}");
    let version: i64 = Connection::open(path.join(FILE))
        .unwrap()
        .query_row("SELECT value FROM meta WHERE name = 'schema'", [], |row| row.get(0))
        .unwrap();
    assert_eq!(version, 0, "half a migration was left");
}
