//! A hundred thousand connections that ask nothing.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};

use super::process::*;
use super::served::*;

const ATTEMPTS: usize = 100_000;
/// What is held at a time, in this process: below any usual bound on open files.
const HELD: usize = 700;
const FILES: u32 = 1_000;

/// A connection that is begun from an address of the loopback, and not waited for.
fn begin(from: [u8; 4], to: SocketAddr) -> Option<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)).ok()?;
    socket.set_nonblocking(true).ok()?;
    // With a reset at the end, no port stays taken.
    socket.set_linger(Some(Duration::ZERO)).ok()?;
    socket.bind(&SocketAddr::from((Ipv4Addr::from(from), 0)).into()).ok()?;
    match socket.connect(&to.into()) {
        Ok(()) => Some(socket),
        Err(why) if why.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => Some(socket),
        Err(_) => None,
    }
}

fn request(stream: &mut Tls) -> std::io::Result<String> {
    stream.write_all(b"GET /version HTTP/1.1\r\nHost: p\r\n\r\n")?;
    let mut buffer = [0; 8192];
    let n = stream.read(&mut buffer)?;
    Ok(String::from_utf8_lossy(&buffer[..n]).into_owned())
}

#[test]
fn a_hundred_thousand_connections() {
    let served = Served::start(FILES, |_| String::new());
    let mut kept = served.connect().unwrap();
    assert!(request(&mut kept).unwrap().starts_with("HTTP/1.1 "));
    let (memory, files, threads) = (served.memory(), served.files(), served.threads());

    // Of three addresses, which together may not take all places.
    let began = Instant::now();
    let mut held = std::collections::VecDeque::new();
    let (mut attempts, mut most_files, mut most_memory, mut answered) = (0, 0, 0, 0);
    while attempts < ATTEMPTS && began.elapsed() < Duration::from_secs(15) {
        attempts += 1;
        held.extend(begin([127, 0, 0, 2 + (attempts % 3) as u8], served.address));
        if held.len() > HELD {
            held.pop_front();
        }
        if attempts % 2_000 == 0 {
            most_files = most_files.max(served.files());
            most_memory = most_memory.max(served.memory());
            assert!(request(&mut kept).unwrap().starts_with("HTTP/1.1 "), "who is there stays");
            // A new one of somebody else; the kernel's queue may be full for a moment.
            let mut new = served.connect().unwrap();
            assert!(request(&mut new).unwrap().starts_with("HTTP/1.1 "), "others come in");
            answered += 1;
        }
    }
    assert!(attempts >= ATTEMPTS / 10, "only {attempts} were begun");
    assert!(answered >= attempts / 2_000 && answered > 0);
    assert!(most_files < FILES as usize * 3 / 4, "{most_files} of {FILES} files are open");
    assert!(most_memory < memory + 64, "{most_memory} MiB, {memory} before");
    // The pool of threads for blocking work may have grown by a few; connections have none.
    assert!(served.threads() < threads + 32, "{} threads, {threads} before", served.threads());

    // Of so many that they may: who is there stays, and afterwards all is as it was.
    for n in 0..5_000_u32 {
        held.extend(begin([127, 0, 1, (n % 200) as u8 + 1], served.address));
        if held.len() > HELD {
            held.pop_front();
        }
    }
    assert!(request(&mut kept).unwrap().starts_with("HTTP/1.1 "));
    assert!(served.files() < FILES as usize * 3 / 4);
    drop(held);
    until("sockets are given back", || {
        let now = served.files();
        if now <= files + 2 { Ok(()) } else { Err(format!("{now} files, {files} before")) }
    });
    assert!(request(&mut served.connect().unwrap()).unwrap().starts_with("HTTP/1.1 "));
    assert!(served.memory() < memory + 64, "{} MiB, {memory} before", served.memory());
}

/// Bodies and heads that are larger than anything of use, without a credential: refused, and nothing is kept of them.
#[test]
fn bombs_leave_memory_flat() {
    let served = Served::start(FILES, |_| String::new());
    let memory = served.memory();
    let deep = "[".repeat(900_000);
    let wide = format!("{{\"username\":\"{}\"}}", "x".repeat(8 << 20));
    for _ in 0..10 {
        for (content, codes) in [(&deep, [400, 401]), (&wide, [413, 413])] {
            let (code, _) = served.ask("POST", "/auth/login", "", content);
            // Closed while we still write, the answer may be lost.
            assert!(code == 0 || codes.contains(&code), "{code}");
        }
        let mut head = format!("GET /version HTTP/1.1\r\nHost: p\r\nX-Big: {}\r\n\r\n", "x".repeat(1 << 20));
        let code = served.raw(head.as_bytes()).split(' ').nth(1).map(str::to_owned);
        assert!(code.is_none_or(|code| code == "431"), "a head is bounded");
        head = format!("GET /version HTTP/1.1\r\nHost: p\r\n{}\r\n", "X-Many: x\r\n".repeat(5_000));
        let code = served.raw(head.as_bytes()).split(' ').nth(1).map(str::to_owned);
        assert!(code.is_none_or(|code| code == "431"), "headers are few");
    }
    // Bytes that never become a head, or a body: chunk after chunk, to a target that needs a credential.
    for target in
        ["/auth/login", "/apis/bailiwick.dev/v1alpha1/users", "/k8s/clusters/x/api/v1/namespaces/y/configmaps"]
    {
        let head = format!("POST {target} HTTP/1.1\r\nHost: p\r\nTransfer-Encoding: chunked\r\n\r\n");
        let mut stream = served.connect().unwrap();
        stream.write_all(head.as_bytes()).unwrap();
        let chunk = format!("10000\r\n{}\r\n", "x".repeat(65_536));
        let mut sent = 0;
        // 64 MiB, or until it is closed.
        while sent < 1_000 && stream.write_all(chunk.as_bytes()).is_ok() {
            sent += 1;
        }
        assert!(sent < 1_000, "{target}: everything was taken");
    }
    let now = served.memory();
    assert!(now < memory + 64, "{now} MiB, {memory} before");
    assert_eq!(served.admin("GET", "/apis/bailiwick.dev/v1alpha1/users/admin", "").0, 200);
}
