//! Processes with deadlines: what they print, how they end, and when.

use std::io::{Read, Write as _};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Longest that a command may take.
pub const DEADLINE: Duration = Duration::from_secs(30);
/// Between two looks at a condition.
const TICK: Duration = Duration::from_millis(20);

/// A command that has ended.
pub struct Ran {
    what: String,
    pub code: Option<i32>,
    pub out: Vec<u8>,
    pub err: String,
}

impl Ran {
    /// Both streams.
    pub fn text(&self) -> String {
        format!("{}{}", String::from_utf8_lossy(&self.out), self.err)
    }

    /// It must have ended with 0; what it printed.
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{}\n{}", self.what, self.text());
        String::from_utf8_lossy(&self.out).into_owned()
    }

    /// It must have ended with this code; both streams.
    #[track_caller]
    pub fn ends(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{}\n{}", self.what, self.text());
        self.text()
    }

    /// It must have failed; both streams.
    #[track_caller]
    pub fn fails(self) -> String {
        assert!(self.code.is_some_and(|code| code != 0), "must fail: {}\n{}", self.what, self.text());
        self.text()
    }
}

/// Runs a command to its end.
#[track_caller]
pub fn run(command: Command) -> Ran {
    run_with(command, b"")
}

/// Runs a command to its end with this standard input.
#[track_caller]
pub fn run_with(command: Command, input: &[u8]) -> Ran {
    let mut running = Running::start(command);
    // A command may end without reading all.
    let _ = running.stdin().write_all(input);
    running.close_stdin();
    running.finish()
}

/// A command that goes on for long. It is killed when this is dropped.
pub struct Running {
    pub what: String,
    pid: u32,
    stdin: Option<ChildStdin>,
    seen: Arc<Mutex<Seen>>,
    waiting: Option<thread::JoinHandle<()>>,
}

#[derive(Default)]
struct Seen {
    out: Vec<u8>,
    err: Vec<u8>,
    last_byte: Option<Instant>,
    ended: Option<(ExitStatus, Instant)>,
}

impl Running {
    pub fn start(mut command: Command) -> Self {
        let what = format!("{:?} {:?}", command.get_program(), command.get_args().collect::<Vec<_>>());
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = spawned.unwrap_or_else(|why| panic!("{what}: {why}"));
        let seen = Arc::new(Mutex::new(Seen::default()));
        let out = follow(child.stdout.take().unwrap(), seen.clone(), |seen, bytes| {
            seen.out.extend_from_slice(bytes);
            seen.last_byte = Some(Instant::now());
        });
        let err = follow(child.stderr.take().unwrap(), seen.clone(), |seen, bytes| seen.err.extend_from_slice(bytes));
        let (pid, stdin) = (child.id(), child.stdin.take());
        let waiting = Some(thread::spawn({
            let seen = seen.clone();
            move || wait(child, [out, err], &seen)
        }));
        Self { what, pid, stdin, seen, waiting }
    }

    pub fn stdin(&mut self) -> &mut ChildStdin {
        self.stdin.as_mut().expect("closed only once")
    }

    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }

    pub fn text(&self) -> String {
        let seen = self.seen.lock();
        format!("{}{}", String::from_utf8_lossy(&seen.out), String::from_utf8_lossy(&seen.err))
    }

    /// Waits until it has printed this.
    #[track_caller]
    pub fn prints(&self, needle: &str) -> String {
        until(&format!("{} prints {needle:?}", self.what), || {
            let text = self.text();
            if text.contains(needle) {
                return Ok(text);
            }
            assert!(self.seen.lock().ended.is_none(), "{} has ended without {needle:?}: {text}", self.what);
            Err(text)
        })
    }

    pub fn last_byte(&self) -> Option<Instant> {
        self.seen.lock().last_byte
    }

    pub fn has_ended(&self) -> bool {
        self.seen.lock().ended.is_some()
    }

    /// When it ended; waits for it.
    #[track_caller]
    pub fn ended(&self) -> Instant {
        self.ended_within(DEADLINE)
    }

    #[track_caller]
    pub fn ended_within(&self, limit: Duration) -> Instant {
        until_within(limit, &format!("{} ends", self.what), || {
            let ended = self.seen.lock().ended;
            ended.map(|(_, at)| at).ok_or_else(|| self.text())
        })
    }

    /// Waits for the end and for all that it printed.
    #[track_caller]
    pub fn finish(mut self) -> Ran {
        self.ended();
        self.waiting.take().unwrap().join().unwrap();
        let mut seen = self.seen.lock();
        Ran {
            what: self.what.clone(),
            code: seen.ended.and_then(|(status, _)| status.code()),
            out: std::mem::take(&mut seen.out),
            err: String::from_utf8_lossy(&seen.err).into_owned(),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.has_ended() {
            kill(self.pid);
        }
    }
}

/// SIGKILL.
pub fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
    // It may have ended meanwhile.
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
}

fn follow(
    mut from: impl Read + Send + 'static,
    seen: Arc<Mutex<Seen>>,
    note: fn(&mut Seen, &[u8]),
) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(n @ 1..) = from.read(&mut buffer) {
            note(&mut seen.lock(), &buffer[..n]);
        }
    })
}

fn wait(mut child: Child, readers: [thread::JoinHandle<()>; 2], seen: &Mutex<Seen>) {
    let status = child.wait().unwrap();
    seen.lock().ended = Some((status, Instant::now()));
    for reader in readers {
        reader.join().unwrap();
    }
}

/// Waits for a condition; the error is told when it never comes.
#[track_caller]
pub fn until<T>(what: &str, ask: impl FnMut() -> Result<T, String>) -> T {
    until_within(DEADLINE, what, ask)
}

#[track_caller]
fn until_within<T>(limit: Duration, what: &str, mut ask: impl FnMut() -> Result<T, String>) -> T {
    let deadline = Instant::now() + limit;
    loop {
        match ask() {
            Ok(found) => return found,
            Err(why) => assert!(Instant::now() < deadline, "waited in vain until {what}; last: {why}"),
        }
        pause(TICK);
    }
}

/// The step between two looks, or between two sends.
#[expect(clippy::disallowed_methods, reason = "a thread of a test's own; what is waited for has a deadline")]
pub fn pause(time: Duration) {
    thread::sleep(time);
}

/// The text must have each of these.
#[track_caller]
pub fn has(text: &str, needles: &[&str]) {
    for needle in needles {
        assert!(text.contains(needle), "no {needle:?} in: {text}");
    }
}

/// The text must have none of these.
#[track_caller]
pub fn lacks(text: &str, needles: &[&str]) {
    for needle in needles {
        assert!(!text.contains(needle), "{needle:?} in: {text}");
    }
}
