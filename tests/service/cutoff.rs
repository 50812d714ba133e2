//! When a right ends, every session that rests on it ends within a second, whatever kubectl is doing.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::here::Protocol;
use super::process::*;
use super::sessions::{echo_server, forwarded_port};
use super::site::*;

/// From the acknowledgement to the end of the process.
const BOUND: Duration = Duration::from_secs(1);

/// Whose sessions, and where.
struct Open {
    site: &'static Site,
    person: Person,
    namespace: &'static str,
}

impl Open {
    fn start(&self, protocol: Protocol, args: &[&str]) -> Running {
        let mut command = self.site.command(&self.person, "demo", &[&["-n", self.namespace], args].concat());
        protocol.set(&mut command);
        Running::start(command)
    }

    /// Everything that kubectl keeps open, each proven to carry data.
    fn sessions(&self) -> Vec<Running> {
        let folder = self.site.folder.join(format!("cut-{}", self.person.name));
        std::fs::create_dir(&folder).unwrap();
        let large = folder.join("large");
        std::fs::File::create(&large).unwrap().set_len(64 << 20).unwrap();
        let port = format!(":{}", echo_server());
        let mut sessions = vec![
            self.start(Protocol::WebSocket, &["get", "configmaps", "-w"]),
            self.start(Protocol::WebSocket, &["logs", "-f", "--tail=1", "busy"]),
        ];
        let mut copies = vec![];
        for protocol in [Protocol::WebSocket, Protocol::Spdy] {
            sessions.push(
                self.start(protocol, &["exec", "busy", "--", "sh", "-c", "while :; do echo running; sleep 0.05; done"]),
            );
            sessions.push(self.start(protocol, &["attach", "busy"]));
            let down = folder.join(format!("down-{protocol:?}"));
            // kubectl takes what stands before a colon for a Pod: local files are named relative to here.
            let copy = |from: &str, to: &str| {
                let mut command = self.site.command(&self.person, "demo", &["-n", self.namespace, "cp", from, to]);
                protocol.set(command.current_dir(&folder));
                Running::start(command)
            };
            copies.push((copy("busy:slow-down", down.file_name().unwrap().to_str().unwrap()), Some(down)));
            copies.push((copy("large", &format!("busy:slow-up/{}-{protocol:?}", self.person.name)), None));
        }
        sessions[0].prints("kube-root-ca.crt");
        // Only what comes after the list proves the watch.
        let touch = ["label", "configmap", "kube-root-ca.crt", "--overwrite"];
        let touched = format!("{}=yes", self.person.name);
        let before = sessions[0].text().len();
        until("the watch is open", || {
            let value = Instant::now().elapsed().as_nanos();
            let mut all = vec!["-n", self.namespace];
            all.extend(touch);
            let label = format!("{touched}{value}");
            all.push(&label);
            self.site.cluster_admin(&all).ok();
            if sessions[0].text().len() > before { Ok(()) } else { Err(sessions[0].text()) }
        });
        for session in &sessions[1..] {
            session.prints("running");
        }
        for (copy, down) in copies {
            if let Some(down) = down {
                until("the copy has begun", || match std::fs::metadata(&down) {
                    Ok(found) if found.len() > 0 => Ok(()),
                    other => Err(format!("{other:?} {}", copy.text())),
                });
            }
            assert!(!copy.has_ended(), "{}", copy.text());
            sessions.push(copy);
        }
        for protocol in [Protocol::WebSocket, Protocol::Spdy] {
            let forward = self.start(protocol, &["port-forward", "busy", &port]);
            pump(forwarded_port(&forward));
            sessions.push(forward);
        }
        sessions
    }

    /// Opens everything, lets something happen, and measures.
    fn cut_by(&self, cause: &str, act: impl FnOnce()) {
        let sessions = self.sessions();
        for session in &sessions {
            assert!(!session.has_ended(), "{cause}: {} has ended before: {}", session.what, session.text());
        }
        let begun = Instant::now();
        act();
        let acknowledged = Instant::now();
        let mut worst = Duration::ZERO;
        for session in &sessions {
            let after = session.ended().saturating_duration_since(acknowledged);
            assert!(after < BOUND, "{cause}: {} went on for {after:?}: {}", session.what, session.text());
            // What was read may be noted a moment after the process is gone; what matters is that it is over.
            let last = session.last_byte().map_or(Duration::ZERO, |at| at.saturating_duration_since(acknowledged));
            assert!(last < BOUND, "{cause}: {} printed for {last:?}", session.what);
            worst = worst.max(after);
        }
        println!("{cause}: {} sessions, act {:?}, last end {worst:?} after it", sessions.len(), acknowledged - begun);
        self.site.run(&self.person, "demo", &["-n", self.namespace, "exec", "busy", "--", "true"]).ends(1);
    }
}

/// Keeps data flowing through a forwarded port; returns once it has come back.
fn pump(port: u16) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let mut once = move || {
        let mut back = [0; 5];
        stream.write_all(b"hello").and_then(|()| stream.read_exact(&mut back)).is_ok()
    };
    assert!(once(), "nothing comes back through the forwarded port");
    thread::spawn(move || {
        while once() {
            pause(Duration::from_millis(20));
        }
    });
}

fn open(site: &'static Site, name: &str, grants: &[(&str, &str)]) -> Open {
    prepare(site, "work-pods");
    Open { site, person: site.machine(name, grants), namespace: "work-pods" }
}

/// What is copied slowly: a sparse file in the Pod, and a folder.
fn prepare(site: &Site, namespace: &str) {
    let words = "truncate -s 1G slow-down; mkdir -p slow-up";
    site.cluster_admin(&["-n", namespace, "exec", "busy", "--", "sh", "-c", words]).ok();
}

/// The token is dead, and a new one is needed.
fn refused(open: &Open) {
    has(&open.site.run(&open.person, "demo", &["-n", open.namespace, "get", "pods"]).ends(1), &["nauthorized"]);
}

#[test]
fn suspension() {
    let (site, _guard) = site();
    let open = open(site, "cut-suspended", &[("member", "work")]);
    open.cut_by("suspension", || {
        site.admin(&["user", "suspend", "cut-suspended", "--reason", "test"]).ok();
    });
    refused(&open);
    // Whatever Git says, again and again.
    for _ in 0..5 {
        let mut again = user("cut-suspended");
        again["spec"]["disabled"] = json!(false);
        site.apply(&again.to_string());
        refused(&open);
    }
    let state = site.admin(&["get", "user", "cut-suspended", "-o", "json"]).ok();
    assert_eq!(serde_json::from_str::<Value>(&state).unwrap()["status"]["state"], "Suspended");
    site.admin(&["user", "resume", "cut-suspended"]).ok();
    refused(&open);
    std::fs::remove_file(&open.person.kubeconfig).unwrap();
    let renewed = site.kubeconfig_of("cut-suspended");
    site.run(&renewed, "demo", &["-n", open.namespace, "get", "pods"]).ok();
}

#[test]
fn a_revoked_token() {
    let (site, _guard) = site();
    let open = open(site, "cut-revoked", &[("member", "work")]);
    let kubeconfig = std::fs::read_to_string(&open.person.kubeconfig).unwrap();
    let (_, token) = kubeconfig.split_once("bwk_").unwrap();
    let id = token.split('_').next().unwrap();
    open.cut_by("token", || {
        site.admin(&["token", "revoke", id]).ok();
    });
    refused(&open);
}

#[test]
fn a_deleted_grant() {
    let (site, _guard) = site();
    open(site, "cut-grant", &[("member", "work")]).cut_by("grant", || {
        site.admin(&["delete", "grant", "cut-grant-member-work"]).ok();
    });
}

#[test]
fn an_ended_membership() {
    let (site, _guard) = site();
    open(site, "cut-membership", &[]).cut_by("membership", || {
        site.api(&["patch", "team", "crew", "--type=merge", "-p", r#"{"spec":{"users":[]}}"#]).ok();
    });
}

#[test]
fn a_narrowed_grant() {
    let (site, _guard) = site();
    open(site, "cut-narrowed", &[("member", "work")]).cut_by("narrowed grant", || {
        let patch = r#"{"spec":{"namespaces":["work-one"]}}"#;
        site.api(&["patch", "grant", "cut-narrowed-member-work", "--type=merge", "-p", patch]).ok();
    });
}

#[test]
fn a_narrowed_role() {
    let (site, _guard) = site();
    open(site, "cut-role", &[("operator", "work")]).cut_by("narrowed role", || {
        let patch = r#"{"spec":{"base":null,"rules":[{"apiGroups":[""],"resources":["services"],"verbs":["get"]}]}}"#;
        site.api(&["patch", "accessrole", "operator", "--type=merge", "-p", patch]).ok();
    });
}

#[test]
fn a_disabled_account() {
    let (site, _guard) = site();
    let open = open(site, "cut-disabled", &[("member", "work")]);
    open.cut_by("disabled", || {
        let mut manifest = user("cut-disabled");
        manifest["spec"]["disabled"] = json!(true);
        let file = site.folder.join("disabled.json");
        std::fs::write(&file, manifest.to_string()).unwrap();
        site.api(&["apply", "-f", file.to_str().unwrap()]).ok();
    });
    refused(&open);
    // Enabling it again revives no token that was issued before.
    site.apply(&user("cut-disabled").to_string());
    refused(&open);
}

#[test]
fn a_moved_namespace() {
    let (site, _guard) = site();
    site.admin(&["project", "namespace", "create", "work", "work-moving", "--cluster", CLUSTER]).ok();
    site.busy_pod("work-moving");
    prepare(site, "work-moving");
    let person = site.machine("cut-moved", &[("member", "work")]);
    Open { site, person, namespace: "work-moving" }.cut_by("moved namespace", || {
        let to = ["--cluster", CLUSTER, "--from", "work", "--to", "other"];
        site.admin(&[&["project", "namespace", "move", "work-moving"], to.as_slice()].concat()).ok();
    });
    // Those of the receiving project have it.
    let receiver = site.machine("cut-receiver", &[("member", "other")]);
    site.run(&receiver, "demo", &["-n", "work-moving", "get", "pods"]).ok();
}
