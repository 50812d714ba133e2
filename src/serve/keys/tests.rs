use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::mpsc;

use super::*;
use crate::config::Settings;
use crate::store::Key;
use crate::store::sealed::Binding;
use crate::store::sqlite::SqliteSettings;

fn open(directory: &Path) -> KeyRing {
    let args = crate::cli::args::ServeArgs { data_dir: Some(directory.to_owned()), ..Default::default() };
    let settings = Settings::load(&args).unwrap();
    let opened = super::super::open(&settings, SqliteSettings::default()).unwrap();
    super::super::host::Host::new(&settings, opened).keys
}

async fn step(ring: &KeyRing, step: Step) -> anyhow::Result<String> {
    let (tell, _told) = mpsc::unbounded_channel();
    ring.step(step, &tell).await
}

/// Id at the beginning of what was said.
fn id(said: &str) -> String {
    said.split(' ').next().unwrap().to_owned()
}

fn seal(ring: &KeyRing, key: &Key, version: u64) -> bytes::Bytes {
    ring.sealer.seal(key, Binding { uid: "u", version }, &version).unwrap()
}

fn records(ring: &KeyRing, text: &str) -> u64 {
    let line = text.lines().find(|line| line.contains("seals and opens")).unwrap();
    assert!(line.starts_with(ring.sealer.ring().active()), "{text}");
    line.split(", ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rotation_under_load_loses_nothing_and_leaves_nothing_of_the_old_key() {
    let directory = tempfile::tempdir().unwrap();
    let ring = Arc::new(open(directory.path()));
    let stop = Arc::new(AtomicBool::new(false));
    let written = Arc::new(AtomicU64::new(0));
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let (ring, stop, written) = (ring.clone(), stop.clone(), written.clone());
            tokio::spawn(async move {
                let account = Key::new(Kind::Account, format!("user-{writer}"));
                let mut revision = ring.store.create(account.clone(), seal(&ring, &account, 1)).await.unwrap();
                let (mut version, mut tokens) = (1, vec![]);
                while !stop.load(Ordering::Relaxed) {
                    let token = Key::new(Kind::Token, format!("token-{writer}-{}", tokens.len()));
                    match ring.store.create(token.clone(), seal(&ring, &token, 1)).await {
                        Ok(_) => tokens.push(token),
                        // Sealed before the key was retired: said, and tried again with another name.
                        Err(StoreError::Unavailable(why)) => assert!(why.contains("try again"), "{why}"),
                        Err(error) => panic!("{error}"),
                    }
                    match ring.store.update(account.clone(), revision, seal(&ring, &account, version + 1)).await {
                        Ok(at) => (revision, version) = (at, version + 1),
                        Err(StoreError::Conflict { .. }) => {
                            let entry = ring.store.get(&account).await.unwrap().unwrap();
                            let opened = ring.sealer.open::<u64>(&account, &entry.value).unwrap();
                            assert_eq!(opened.content, version, "a change was lost");
                            (revision, version) = (entry.revision, opened.version.max(version));
                        }
                        Err(StoreError::Unavailable(why)) => assert!(why.contains("try again"), "{why}"),
                        Err(error) => panic!("{error}"),
                    }
                    written.fetch_add(1, Ordering::Relaxed);
                }
                (account, version, tokens)
            })
        })
        .collect();
    let some_writes = async || {
        let from = written.load(Ordering::Relaxed);
        while written.load(Ordering::Relaxed) < from + 40 {
            tokio::task::yield_now().await;
        }
    };
    some_writes().await;
    let old = ring.sealer.ring().active().to_owned();
    let new = id(&step(&ring, Step::Add).await.unwrap());
    some_writes().await;
    assert_eq!(ring.sealer.ring().active(), old);
    step(&ring, Step::Activate { id: new.clone() }).await.unwrap();
    let refused = step(&ring, Step::Retire { id: old.clone() }).await.unwrap_err().to_string();
    assert!(refused.contains("still seals"), "{refused}");
    some_writes().await;
    step(&ring, Step::Rewrite).await.unwrap();
    some_writes().await;
    step(&ring, Step::Retire { id: old.clone() }).await.unwrap();
    some_writes().await;
    stop.store(true, Ordering::Relaxed);
    let mut ended = vec![];
    for writer in writers {
        ended.push(writer.await.unwrap());
    }
    let listed = step(&ring, Step::List).await.unwrap();
    assert!(!listed.contains(&old), "{listed}");
    ring.store.close().await;
    drop(ring);
    let ring = open(directory.path());
    assert!(!ring.sealer.ring().has(&old));
    let mut all = 0;
    for (account, version, tokens) in &ended {
        let entry = ring.store.get(account).await.unwrap().unwrap();
        assert_eq!(ring.sealer.open::<u64>(account, &entry.value).unwrap().content, *version);
        for token in tokens {
            let entry = ring.store.get(token).await.unwrap().expect("an acknowledged record is lost");
            ring.sealer.open::<u64>(token, &entry.value).unwrap();
        }
        all += 1 + tokens.len() as u64;
    }
    assert_eq!(records(&ring, &step(&ring, Step::List).await.unwrap()), all);
    ring.store.close().await;
}

#[tokio::test]
async fn the_file_is_followed_but_a_key_in_use_is_not_let_go() {
    let directory = tempfile::tempdir().unwrap();
    let ring = open(directory.path());
    let key = Key::new(Kind::Account, "jane");
    ring.store.create(key.clone(), seal(&ring, &key, 1)).await.unwrap();
    let old = ring.sealer.ring().active().to_owned();
    let mut keys = Keys::read(&ring.file).unwrap();
    // Replaced by another hand, without the old one: the store goes on with what it has.
    let new = master_key::new_key().unwrap();
    Keys(vec![new.clone()]).write(&ring.file).unwrap();
    ring.reload().await;
    assert_eq!(ring.sealer.ring().active(), old);
    let refused = step(&ring, Step::List).await.unwrap_err();
    assert!(format!("{refused:#}").contains("still seals 1 records"), "{refused:#}");
    // With the old one behind it, it is followed; and the old one goes once nothing needs it.
    keys.0.insert(0, new.clone());
    keys.write(&ring.file).unwrap();
    ring.reload().await;
    assert_eq!(ring.sealer.ring().active(), new.0);
    step(&ring, Step::Rewrite).await.unwrap();
    Keys(vec![new.clone()]).write(&ring.file).unwrap();
    ring.reload().await;
    assert!(!ring.sealer.ring().has(&old));
    let entry = ring.store.get(&key).await.unwrap().unwrap();
    assert_eq!(ring.sealer.open::<u64>(&key, &entry.value).unwrap().version, 2);
}

#[tokio::test]
async fn what_a_retired_key_sealed_is_not_stored_any_more() {
    let directory = tempfile::tempdir().unwrap();
    let ring = open(directory.path());
    let key = Key::new(Kind::Account, "jane");
    let late = seal(&ring, &key, 1);
    let old = ring.sealer.ring().active().to_owned();
    let new = id(&step(&ring, Step::Add).await.unwrap());
    let refused = step(&ring, Step::Retire { id: old.clone() }).await.unwrap_err().to_string();
    assert!(refused.contains("activate another one"), "{refused}");
    step(&ring, Step::Activate { id: new }).await.unwrap();
    step(&ring, Step::Rewrite).await.unwrap();
    let said = step(&ring, Step::Retire { id: old.clone() }).await.unwrap();
    assert!(said.contains(&format!("retired-{old}")), "{said}");
    assert!(matches!(ring.store.create(key.clone(), late).await, Err(StoreError::Unavailable(_))));
    ring.store.create(key.clone(), seal(&ring, &key, 1)).await.unwrap();
    assert!(step(&ring, Step::Activate { id: old }).await.is_err());
    // What should be sealed and is not is refused by the store itself.
    let plain = Key::new(Kind::Account, "joe");
    assert!(ring.store.create(plain, bytes::Bytes::from_static(b"{}")).await.is_err());
}
