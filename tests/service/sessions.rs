//! Sessions in Pods: logs, exec, attach, cp, port-forward, debug and run, over WebSocket and over SPDY.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use super::here::*;
use super::process::*;
use super::site::*;

#[test]
fn over_websocket() {
    let (site, _guard) = site();
    let person = site.machine("sessions-websocket", &[("member", "work")]);
    all(&Here::new(site, person, "work@demo", "work-pods", Protocol::WebSocket), "50M", 50 << 20);
}

#[test]
fn over_spdy() {
    let (site, _guard) = site();
    let person = site.machine("sessions-spdy", &[("member", "work")]);
    all(&Here::new(site, person, "demo", "work-pods", Protocol::Spdy), "50M", 50 << 20);
}

/// All kinds of sessions, and copies of this size.
pub fn all(here: &Here, size: &str, bytes: usize) {
    exec(here);
    attach(here);
    port_forward(here);
    debug_and_run(here);
    copy(here, size, bytes);
}

/// Far more than any buffer holds, both ways; a whole gigabyte where BAILIWICK_LARGE asks for it.
#[test]
fn a_large_copy() {
    let (size, bytes) = match std::env::var_os("BAILIWICK_LARGE") {
        Some(_) => ("1G", 1 << 30),
        None => ("200M", 200 << 20),
    };
    let (site, _guard) = site();
    for (name, protocol) in [("large-websocket", Protocol::WebSocket), ("large-spdy", Protocol::Spdy)] {
        let person = site.machine(name, &[("member", "work")]);
        let begun = Instant::now();
        copy(&Here::new(site, person, "work@demo", "work-pods", protocol), size, bytes);
        println!("{size} both ways, {protocol:?}: {:?}", begun.elapsed());
    }
}

fn exec(here: &Here) {
    let exit = here.run(&["exec", "busy", "--", "sh", "-c", "echo out; echo err >&2; exit 7"]);
    assert_eq!((exit.out.as_slice(), exit.code), (b"out\n".as_slice(), Some(7)));
    has(&exit.err, &["err\n", "exit code 7"]);
    assert_eq!(here.run_with(&["exec", "-i", "busy", "--", "wc", "-c"], [b'x'; 300_000]).ok().trim(), "300000");
    let mut open = here.start(&["exec", "-i", "busy", "--", "cat"]);
    open.stdin().write_all(b"first\n").unwrap();
    open.prints("first");
    open.stdin().write_all(b"second\n").unwrap();
    open.prints("second");
    open.close_stdin();
    assert_eq!(open.finish().ok(), "first\nsecond\n");
    if Path::new("/usr/bin/script").exists() {
        let kubectl =
            here.command(&["exec", "-it", "busy", "--", "sh", "-c", "test -t 0 && test -t 1 && echo terminal"]);
        let words: Vec<_> = kubectl.get_args().map(|word| format!("'{}'", word.to_str().unwrap())).collect();
        let line = format!("{} {}", kubectl.get_program().to_str().unwrap(), words.join(" "));
        let mut script = Command::new("script");
        script.args(["-qec", &line, "/dev/null"]).envs(kubectl.get_envs().filter_map(|(k, v)| Some((k, v?))));
        has(&run(script).ok(), &["terminal"]);
    }
}

fn attach(here: &Here) {
    let mut attached = here.start(&["attach", "-i", "busy"]);
    attached.prints("running");
    let line = format!("{:?}", here.protocol);
    attached.stdin().write_all(format!("{line}\n").as_bytes()).unwrap();
    attached.prints(&format!("got {line}"));
    has(&here.run(&["logs", "--tail=200", "busy"]).ok(), &["running"]);
}

fn port_forward(here: &Here) {
    let port = echo_server();
    let forward = here.start(&["port-forward", "busy", &format!(":{port}")]);
    let local = forwarded_port(&forward);
    let clients: Vec<_> = (0..5)
        .map(|n| {
            thread::spawn(move || {
                let sent = noise(n, 1 << 20);
                let mut stream = TcpStream::connect(("127.0.0.1", local)).unwrap();
                stream.set_read_timeout(Some(DEADLINE)).unwrap();
                let mut writer = stream.try_clone().unwrap();
                let data = sent.clone();
                let writing = thread::spawn(move || writer.write_all(&data).unwrap());
                let mut back = vec![0; sent.len()];
                stream.read_exact(&mut back).unwrap();
                writing.join().unwrap();
                assert!(back == sent, "connection {n}: other bytes came back");
            })
        })
        .collect();
    for client in clients {
        client.join().unwrap();
    }
}

fn debug_and_run(here: &Here) {
    let name = format!("once-{:?}", here.protocol).to_lowercase();
    let command = [
        "--image=busybox",
        "--restart=Never",
        "-i",
        "--rm",
        "--command",
        "--",
        "sh",
        "-c",
        "read a; echo got $a; sleep 1",
    ];
    let once = here.run_with(&[&["run", name.as_str()], command.as_slice()].concat(), "input\n").ok();
    has(&once, &["got input", "deleted"]);
    has(&here.run(&["get", "pod", &name]).fails(), &["NotFound"]);
    let debugged = here.start(&[
        "debug",
        "busy",
        "-i",
        "--image=busybox",
        "--profile=restricted",
        "--",
        "sh",
        "-c",
        "while :; do echo debugged; sleep 0.1; done",
    ]);
    debugged.prints("debugged\ndebugged");
}

fn copy(here: &Here, size: &str, bytes: usize) {
    let folder = here.folder(&format!("copy-{size}"));
    let mut file = std::io::BufWriter::new(std::fs::File::create(folder.join("there")).unwrap());
    let block = noise(bytes as u64, 1 << 20);
    for n in 0..bytes >> 20 {
        file.write_all(&n.to_le_bytes()).unwrap();
        file.write_all(&block[8..]).unwrap();
    }
    file.into_inner().unwrap();
    let remote = format!("busy:{size}-{:?}", here.protocol);
    let copy = |from: &str, to: &str| {
        let mut command = here.command(&["cp", "-c", "main", from, to]);
        // kubectl takes what stands before a colon for a Pod, so the local files are named relative to here.
        command.current_dir(&folder);
        let copying = Running::start(command);
        // Ten megabytes a second at the least.
        copying.ended_within(DEADLINE + Duration::from_millis(bytes as u64 / 10_000));
        copying.finish().ok();
    };
    copy("there", &remote);
    copy(&remote, "back");
    let mut compare = Command::new("cmp");
    compare.arg(folder.join("there")).arg(folder.join("back"));
    run(compare).ok();
    std::fs::remove_dir_all(folder).unwrap();
    here.run(&["exec", "busy", "-c", "main", "--", "rm", remote.strip_prefix("busy:").unwrap()]).ok();
}

/// Bytes that do not compress, the same for the same seed.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..length.div_ceil(8)).flat_map(|_| next().to_le_bytes()).take(length).collect()
}

/// What listens behind the port of a Pod: Pods share this machine's loopback.
pub fn echo_server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || std::io::copy(&mut &stream, &mut &stream));
        }
    });
    port
}

/// The local port of a `port-forward`, once it listens.
pub fn forwarded_port(forward: &Running) -> u16 {
    let text = forward.prints("Forwarding from 127.0.0.1:");
    let (_, rest) = text.split_once("127.0.0.1:").unwrap();
    rest.split(' ').next().unwrap().parse().unwrap()
}
