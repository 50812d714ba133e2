//! Rotation of the master key and the loss of it, as an operator meets them.

use super::host::*;
use super::process::*;

const JANE: &str = "jane-Pass-51ab-word";

fn key_id(said: &str) -> String {
    said.split(' ').next().unwrap().to_owned()
}

#[test]
fn a_rotation_with_a_restart_after_each_step_costs_nobody_anything() {
    let host = Host::start();
    host.person("jane", JANE);
    let file = host.data().join("master.key");
    let old = key_id(&host.host(&["keys", "list"]).ok());
    let backup = host.path("backup");
    host.host(&["backup", backup.to_str().unwrap()]).ok();
    let restart = |kill: bool| {
        if kill {
            host.kill()
        } else {
            host.stop()
        }
        host.serve();
        host.whoami("jane").ok();
        host.whoami("admin").ok();
    };
    let new = key_id(&host.host(&["keys", "add"]).ok());
    restart(false);
    host.host(&["keys", "activate", &new]).ok();
    has(&host.host(&["keys", "retire", &old]).ends(1), &["still seals", "keys rewrite"]);
    restart(true);
    // Without a running service, too.
    host.stop();
    has(&host.host(&["keys", "rewrite"]).ok(), &["sealed anew", &new]);
    host.serve();
    host.whoami("jane").ok();
    host.host(&["keys", "rewrite"]).ok();
    restart(true);
    has(&host.host(&["keys", "retire", &old]).ok(), &["Backups from before need it"]);
    restart(true);
    host.login("jane", &[JANE]).ok();
    lacks(&host.host(&["keys", "list"]).ok(), &[&old]);
    assert_eq!(std::fs::read_to_string(&file).unwrap().lines().count(), 1);
    // An older backup asks for its key, and is taken with it.
    host.stop();
    has(&host.host(&["restore", backup.to_str().unwrap()]).ends(1), &["needs the master key", &old]);
    let retired = std::fs::read_to_string(host.data().join(format!("master.key.retired-{old}"))).unwrap();
    let both = std::fs::read_to_string(&file).unwrap() + retired.as_str();
    std::fs::write(&file, both).unwrap();
    host.host(&["restore", backup.to_str().unwrap()]).ok();
    host.serve();
    host.whoami("jane").ends(4);
    host.login("jane", &[JANE]).ok();
}

#[test]
fn a_lost_and_a_wrong_key_are_refused_and_nothing_is_made_in_its_place() {
    let host = Host::start();
    host.person("jane", JANE);
    host.stop();
    let file = host.data().join("master.key");
    let key = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    let before = contents(&host.data());
    has(&host.refused_start(), &["master.key is missing", "Put the key back"]);
    for command in [&["recover-admin"][..], &["backup", "b"], &["keys", "list"], &["keys", "add"]] {
        has(&host.host(command).ends(1), &["master.key is missing"]);
    }
    std::fs::write(&file, "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n").unwrap();
    has(&host.refused_start(), &["anchor cannot be read", "not in the key ring", "right master key"]);
    std::fs::write(&file, "no key\n").unwrap();
    has(&host.refused_start(), &["each line must be 32 bytes"]);
    std::fs::remove_file(&file).unwrap();
    assert!(contents(&host.data()) == before, "a refusal changed something");
    std::fs::write(&file, key).unwrap();
    host.serve();
    host.whoami("jane").ok();
}
