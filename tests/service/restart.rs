//! The service is killed and comes back; a second one finds the folder taken.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use super::process::*;
use super::site::*;

#[test]
fn a_killed_service_comes_back_as_it_was() {
    let (site, _guard) = site_alone();
    let keeps = Arc::new(site.machine("restart-keeps", &[("member", "work")]));
    let suspended = site.machine("restart-suspended", &[("member", "work")]);
    let get = ["-n", "work-restart", "get", "configmaps"];
    site.run(&suspended, "demo", &get).ok();
    site.admin(&["user", "suspend", "restart-suspended"]).ok();

    // Load: reads and writes through the proxy, and changes of our own resources.
    let stop = Arc::new(AtomicBool::new(false));
    let acknowledged = Arc::new(AtomicU32::new(0));
    let load = thread::spawn({
        let (keeps, stop, acknowledged) = (keeps.clone(), stop.clone(), acknowledged.clone());
        move || {
            let mut n = 0;
            while !stop.load(Ordering::Relaxed) {
                n += 1;
                let mut create = site.bailiwick();
                create.args(["apply", "-f", "-"]);
                if run_with(create, user(&format!("made-{n}")).to_string().as_bytes()).code == Some(0) {
                    acknowledged.store(n, Ordering::Relaxed);
                }
                site.run(&keeps, "demo", &["-n", "work-restart", "create", "configmap", &format!("load-{n}")]);
            }
        }
    });
    let watch = Running::start(site.command(&keeps, "work@demo", &["-n", "work-restart", "get", "configmaps", "-w"]));
    watch.prints("load-");
    until("something is acknowledged", || match acknowledged.load(Ordering::Relaxed) {
        0..3 => Err("too little".to_owned()),
        _ => Ok(()),
    });
    site.kill_service();
    // The stream ends with the service; the client opens it anew.
    watch.ended();
    stop.store(true, Ordering::Relaxed);
    load.join().unwrap();
    let made = acknowledged.load(Ordering::Relaxed);
    site.start_service();

    // The same token works as soon as the cluster has been seen again.
    until("the same token works", || {
        let ran = site.run(&keeps, "demo", &get);
        if ran.code == Some(0) { Ok(()) } else { Err(ran.text()) }
    });
    has(&site.run(&suspended, "demo", &get).ends(1), &["nauthorized"]);
    let users = site.admin(&["get", "users", "-o", "name"]).ok();
    has(&users, &[&format!("made-{made}")]);
    let watch = Running::start(site.command(&keeps, "work@demo", &["-n", "work-restart", "get", "configmaps", "-w"]));
    watch.prints("kube-root-ca.crt");
    site.run(&keeps, "demo", &["-n", "work-restart", "create", "configmap", "after"]).ok();
    watch.prints("after");
    site.admin(&["whoami"]).ok();
    site.project_ready("work");
}

#[test]
fn a_second_service_finds_the_folder_taken() {
    let (site, _guard) = site();
    let mut second = Command::new(env!("CARGO_BIN_EXE_bailiwick"));
    second.args(["serve", "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0", "--data-dir"]);
    second.arg(site.folder.join("data"));
    let text = run(second).ends(1);
    has(&text, &["is in use by", &format!("process {}", site.service_pid())]);
    // The first one is none the worse.
    site.admin(&["whoami"]).ok();
}
