//! Damaged pages, a file system that takes no writes, a full disk: what the service says, and that it changes nothing.

use std::os::unix::fs::PermissionsExt as _;

use super::host::*;
use super::process::*;

const JANE: &str = "jane-Pass-51ab-word";

#[test]
fn a_damaged_page_is_refused_left_as_it_is_and_restored_over() {
    let host = Host::start();
    host.person("jane", JANE);
    let backup = host.path("backup");
    host.host(&["backup", backup.to_str().unwrap()]).ok();
    host.run("admin", &["user", "suspend", "jane"]).ok();
    host.stop();
    let database = host.data().join("store.db");
    let mut bytes = std::fs::read(&database).unwrap();
    let pages = bytes.len() / 4096;
    assert!(pages > 8, "too small to be damaged in the middle");
    for page in 3..pages {
        bytes[page * 4096..page * 4096 + 64].fill(0xa5);
    }
    std::fs::write(&database, &bytes).unwrap();
    has(&host.refused_start(), &["store.db is damaged", "Nothing was changed", "bailiwick restore"]);
    has(&host.host(&["backup", host.path("no").to_str().unwrap()]).ends(1), &["store.db is damaged"]);
    has(&host.host(&["restore", "--as-it-is"]).ends(1), &["store.db"]);
    assert!(std::fs::read(&database).unwrap() == bytes, "the evidence was changed");
    // What was done since the backup is not known then, and the operator is told.
    let said = host.host(&["restore", backup.to_str().unwrap()]).ok();
    has(&said, &["cannot be read", "look through the accounts", "The old database is kept"]);
    let kept = said.split("is kept: ").nth(1).unwrap().split(".db").next().unwrap().to_owned() + ".db";
    assert!(std::fs::read(kept).unwrap() == bytes, "the evidence was changed");
    host.serve();
    host.whoami("jane").ends(4);
    host.login("jane", &[JANE]).ok();
}

#[test]
fn a_data_directory_that_takes_no_writes_is_refused_and_left_as_it_is() {
    let host = Host::start();
    host.person("jane", JANE);
    host.stop();
    let before = contents(&host.data());
    let refuses = |host: &Host, says: &[&str]| {
        has(&host.refused_start(), says);
        assert!(contents(&host.data()) == before, "a refusal changed something");
    };
    let data = host.data();
    let data = data.to_str().unwrap();
    // A read-only file system, where this machine lets us make one; else a directory without the right to write.
    let mounted = |script: &str| {
        let mut sh = std::process::Command::new("unshare");
        sh.args(["--mount", "--map-root-user", "sh", "-c", script, "sh", data, env!("CARGO_BIN_EXE_bailiwick")]);
        run(sh)
    };
    let read_only = "mount --bind \"$1\" \"$1\" && mount -o remount,bind,ro \"$1\"";
    if mounted(&format!("{read_only} 2>/dev/null && echo mounted")).text().contains("mounted") {
        let serve = "exec \"$2\" serve --data-dir \"$1\" --listen 127.0.0.1:0 --metrics-listen 127.0.0.1:0";
        let said = mounted(&format!("{read_only} && {serve}")).ends(1);
        has(&said, &[data, "Read-only file system"]);
        assert!(contents(&host.data()) == before, "a refusal changed something");
    } else {
        assert!(!rustix::process::getuid().is_root(), "root that cannot mount needs another test");
        std::fs::set_permissions(data, std::fs::Permissions::from_mode(0o500)).unwrap();
        refuses(&host, &[data, "ermission denied"]);
        std::fs::set_permissions(data, std::fs::Permissions::from_mode(0o700)).unwrap();
    }
    host.serve();
    host.whoami("jane").ok();
}

#[test]
fn a_disk_without_room_for_a_backup_leaves_none_and_the_service_goes_on() {
    let host = Host::start();
    host.person("jane", JANE);
    for number in 0..8 {
        let user = serde_json::json!({
            "apiVersion": "bailiwick.dev/v1alpha1", "kind": "User", "spec": {},
            "metadata": {"name": format!("large-{number}"), "annotations": {"example.com/large": "x".repeat(20_000)}},
        });
        run_with(host.command("admin", &["apply", "-f", "-"]), user.to_string().as_bytes()).ok();
    }
    host.stop();
    let file = host.path("backup");
    // The limit on the size of files is the disk here; it holds for this command and what it starts.
    let mut limited = std::process::Command::new("sh");
    limited.args(["-c", "trap '' XFSZ; ulimit -f 128; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_bailiwick")]);
    limited.arg("backup").arg(&file).arg("--data-dir").arg(host.data());
    let said = run(limited).ends(1);
    has(&said, &[file.to_str().unwrap(), "the copy failed"]);
    assert!(!file.exists(), "half a backup was left");
    host.host(&["backup", file.to_str().unwrap()]).ok();
    host.serve();
    host.whoami("jane").ok();
}
