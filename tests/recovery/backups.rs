//! Backup and restore, as an operator does them.

use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use bailiwick::store::anchor::Anchor;
use bailiwick::store::sqlite::{SqliteSettings, SqliteStore};
use bailiwick::store::{Kind, Store as _, StoreError};

use super::host::*;
use super::process::*;

const JANE: &str = "jane-Pass-51ab-word";
const OTHER: &str = "other-Pass-88cd-word";

/// The store of a stopped service.
async fn store(host: &Host) -> SqliteStore {
    let anchor = Some(Arc::new(Anchor::open(&host.data(), host.sealer()).unwrap()));
    SqliteStore::open(&host.data(), SqliteSettings { anchor, ..SqliteSettings::default() }).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restore_brings_the_platform_back_and_nobody_who_was_put_out() {
    let host = Host::start();
    for who in ["jane", "early", "late", "gone", "off", "new-word"] {
        host.person(who, JANE);
    }
    host.run("admin", &["user", "suspend", "early"]).ok();
    let backup = host.path("backup");
    let file = backup.to_str().unwrap();
    let said = host.host(&["backup", file]).ok();
    has(&said, &["checked", "does not hold the master key"]);
    assert_eq!(backup.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    // Never overwrites, beside a running service and without one.
    has(&host.host(&["backup", file]).ends(1), &["exists already"]);

    // After the backup: one is suspended, one deleted, one disabled, one has a new password; one is new.
    host.run("admin", &["user", "suspend", "late"]).ok();
    host.run("admin", &["delete", "user", "gone"]).ok();
    host.set_password("new-word", OTHER);
    let disabled = r#"{"apiVersion": "bailiwick.dev/v1alpha1", "kind": "User", "metadata": {"name": "off"},
                       "spec": {"displayName": "off", "disabled": true}}"#;
    run_with(host.command("admin", &["apply", "-f", "-"]), disabled.as_bytes()).ok();
    host.person("fresh", OTHER);

    // Not beside a running service, which is none the worse.
    let said = host.host(&["restore", file]).ends(1);
    has(&said, &["must be stopped", &format!("process {}", host.pid())]);
    host.run("jane", &["whoami"]).ok();
    host.stop();
    let before = store(&host).await.revision().await.unwrap();
    assert!(backup.is_file());
    let second = host.path("second");
    host.host(&["backup", second.to_str().unwrap()]).ok();

    let said = host.host(&["restore", file]).ok();
    has(&said, &["from before the restore: late, new-word, off", "Disabled, as before the restore: off"]);
    has(&said, &["deleted after the backup: gone", "Every session and token is dead", "The old database is kept"]);
    let restored = store(&host).await;
    // Whoever watched before is told to list again.
    assert!(matches!(restored.watch(before).await.err(), Some(StoreError::Compacted { .. })));
    assert!(restored.revision().await.unwrap() > before);
    let (users, _) = restored.list(Kind::User).await.unwrap();
    assert!(users.iter().all(|user| &*user.key.name != "fresh"), "newer than the backup");
    drop(restored);

    host.serve();
    for who in ["jane", "early", "late", "gone", "off", "new-word", "fresh", "admin"] {
        host.whoami(who).ends(4);
    }
    host.login("jane", &[JANE]).ok();
    host.login("admin", &[ADMIN]).ok();
    host.login("new-word", &[OTHER]).ok();
    for (who, password) in [("early", JANE), ("late", JANE), ("gone", JANE), ("off", JANE), ("new-word", JANE)] {
        host.login(who, &[password]).ends(4);
    }
    // The old database, put back as a file, opens no more.
    host.stop();
    let kept = std::fs::read_dir(host.data()).unwrap().map(|entry| entry.unwrap().path());
    let kept = kept.into_iter().find(|path| path.to_string_lossy().contains("before-restore")).unwrap();
    let current = std::fs::read(host.data().join("store.db")).unwrap();
    std::fs::copy(kept, host.data().join("store.db")).unwrap();
    has(&host.refused_start(), &["is not the store", "bailiwick restore"]);
    std::fs::write(host.data().join("store.db"), current).unwrap();
    host.serve();
    host.whoami("jane").ok();
    // Two starts later it is recorded, once.
    let told = host.as_from_before("admin", &["audit", "--verb", "restore", "-o", "json"]).ok();
    assert_eq!(told.lines().count(), 1, "{told}");
    has(&told, &["the store was restored"]);
}

#[test]
fn an_older_database_is_refused_until_it_is_accepted_and_then_nobody_has_a_credential() {
    let host = Host::start();
    host.person("jane", JANE);
    host.stop();
    let older = std::fs::read(host.data().join("store.db")).unwrap();
    host.serve();
    host.as_from_before("admin", &["user", "suspend", "jane"]).ok();
    // However the service ends, what was acknowledged is anchored.
    host.kill();
    for leftover in ["store.db-wal", "store.db-shm"] {
        std::fs::remove_file(host.data().join(leftover)).unwrap();
    }
    std::fs::write(host.data().join("store.db"), &older).unwrap();
    let said = host.refused_start();
    has(&said, &["store.db is an older copy", "were acknowledged", "bailiwick restore", "--as-it-is"]);
    assert_eq!(std::fs::read(host.data().join("store.db")).unwrap(), older);
    let said = host.host(&["restore", "--as-it-is"]).ok();
    has(&said, &["is lost", "look through the accounts"]);
    host.serve();
    host.whoami("jane").ends(4);
    host.whoami("admin").ends(4);
    host.login("admin", &[ADMIN]).ok();
    host.run("admin", &["user", "suspend", "jane"]).ok();
    host.login("jane", &[JANE]).ends(4);
    host.run("admin", &["user", "resume", "jane"]).ok();
    host.login("jane", &[JANE]).ok();
}

#[test]
fn a_lost_anchor_and_a_lost_database_are_refused_and_have_a_way_back() {
    let host = Host::start();
    let backup = host.path("backup");
    host.host(&["backup", backup.to_str().unwrap()]).ok();
    host.stop();
    let anchor = host.data().join("anchor");
    std::fs::rename(&anchor, host.path("anchor")).unwrap();
    has(&host.refused_start(), &["anchor is missing", "--as-it-is"]);
    assert!(!anchor.exists());
    host.host(&["restore", "--as-it-is"]).ok();
    host.serve();
    host.login("admin", &[ADMIN]).ok();
    host.stop();
    std::fs::remove_file(host.data().join("store.db")).unwrap();
    has(&host.refused_start(), &["store.db is missing or empty", "bailiwick restore"]);
    assert!(!host.data().join("store.db").exists(), "a new store was made in place of the lost one");
    has(&host.host(&["restore", "--as-it-is"]).ends(1), &["holds no store"]);
    let said = host.host(&["restore", backup.to_str().unwrap()]).ok();
    has(&said, &["look through the accounts"]);
    host.serve();
    host.login("admin", &[ADMIN]).ok();
}

#[test]
fn what_is_no_whole_backup_of_this_key_changes_nothing() {
    let host = Host::start();
    let backup = host.path("backup");
    host.host(&["backup", backup.to_str().unwrap()]).ok();
    host.stop();
    let whole = std::fs::read(&backup).unwrap();
    let before = contents(&host.data());
    let refuses = |what: &str, bytes: &[u8], says: &str| {
        let file = host.path(what);
        std::fs::write(&file, bytes).unwrap();
        has(&host.host(&["restore", file.to_str().unwrap()]).ends(1), &[says]);
        assert!(contents(&host.data()) == before, "{what} changed something");
    };
    refuses("cut at its end", &whole[..whole.len() - 10], "no whole backup");
    refuses("cut in the middle", &whole[..whole.len() / 2], "no whole backup");
    refuses("empty", b"", "no whole backup");
    let line = whole.len() - whole[..whole.len() - 1].iter().rev().position(|byte| *byte == b'\n').unwrap() - 1;
    let mut part = whole.clone();
    part.drain(4096..8192);
    refuses("a page is missing", &part, "no whole backup");
    let mut part = whole.clone();
    part[line / 2] ^= 1;
    refuses("one bit is other", &part, "its content is not what it says");
    let text = String::from_utf8_lossy(&whole[line..]).into_owned();
    let with = |from: &str, to: &str| {
        assert!(text.contains(from), "{text}");
        [&whole[..line], text.replace(from, to).as_bytes()].concat()
    };
    refuses("newer schema", &with("\"schema\":2", "\"schema\":3"), "newer program");
    refuses("newer format", &with("\"format\":1", "\"format\":2"), "newer program");
    refuses("altered manifest", &with("\"objects\":", "\"objects\":1"), "altered");
    let key = std::fs::read(host.data().join("master.key")).unwrap();
    std::fs::write(host.data().join("master.key"), "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n").unwrap();
    has(&host.host(&["restore", backup.to_str().unwrap()]).ends(1), &["needs the master key"]);
    std::fs::remove_file(host.data().join("master.key")).unwrap();
    has(&host.host(&["restore", backup.to_str().unwrap()]).ends(1), &["master.key is missing"]);
    assert!(!host.data().join("master.key").exists());
    std::fs::write(host.data().join("master.key"), key).unwrap();
    assert!(contents(&host.data()) == before);
    // And the whole one is taken, on another host, too, once the key is there.
    host.host(&["restore", backup.to_str().unwrap()]).ok();
    let other = Host::stopped();
    std::fs::create_dir(other.data()).unwrap();
    std::fs::copy(host.data().join("master.key"), other.data().join("master.key")).unwrap();
    has(&other.host(&["restore", backup.to_str().unwrap()]).ok(), &["--accept-audit-loss"]);
}

#[test]
fn a_backup_under_load_is_of_one_moment() {
    let host = Host::start();
    for round in 0..3 {
        let load = Running::start({
            let mut load = std::process::Command::new("sh");
            let script = "i=0; while [ $i -lt 40 ]; do i=$((i+1)); \"$0\" token create --audience api >/dev/null || exit; \
                          done; echo loaded";
            load.args(["-c", script]).arg(env!("CARGO_BIN_EXE_bailiwick"));
            load.env_clear().env("HOME", host.path("home-admin")).env("PATH", "/usr/bin:/bin");
            load
        });
        let file = host.path(&format!("backup-{round}"));
        has(&host.host(&["backup", file.to_str().unwrap()]).ok(), &["checked"]);
        let other = Host::stopped();
        std::fs::create_dir(other.data()).unwrap();
        std::fs::copy(host.data().join("master.key"), other.data().join("master.key")).unwrap();
        other.host(&["restore", file.to_str().unwrap()]).ok();
        load.finish();
    }
}
