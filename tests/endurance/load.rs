//! Load of several accounts through the service, and what is seen of it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use kube::client::Body;
use parking_lot::{Mutex, RwLock};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::place::{Numbers, Place};
use super::process::*;
use super::site::*;

/// Nothing of a suspended account goes on for longer after the acknowledgement.
pub const BOUND: Duration = Duration::from_secs(1);
/// Whatever nothing comes through any more has time to end: on a busy machine kubectl and the API server take a while to
/// notice.
pub const GONE: Duration = Duration::from_secs(10);
/// Between two looks at a silent stream.
const LOOK: Duration = Duration::from_millis(200);
/// Between two requests of one worker, in milliseconds, at most.
const PAUSE: usize = 120;

/// One credential of an account.
pub struct Token {
    pub kubeconfig: PathBuf,
    pub client: kube::Client,
    suspension: Mutex<Suspension>,
}

#[derive(Default, Clone, Copy)]
struct Suspension {
    asked: bool,
    acknowledged: Option<Instant>,
}

impl Token {
    /// A suspension is about to be asked for: refusals are due from now on.
    pub fn asked(&self) {
        self.suspension.lock().asked = true;
    }

    /// It was acknowledged.
    pub fn acknowledged(&self, at: Instant) {
        self.suspension.lock().acknowledged = Some(at);
    }

    fn suspension(&self) -> Suspension {
        *self.suspension.lock()
    }
}

/// An account whose credential is replaced after each suspension.
pub struct Account {
    pub name: String,
    current: RwLock<Arc<Token>>,
    made: Mutex<usize>,
}

impl Account {
    pub fn new(place: &Place, name: &str, grants: &[(&str, &str)]) -> Self {
        let person = place.site.machine(name, grants);
        let current = RwLock::new(token(place, person.kubeconfig));
        Self { name: name.to_owned(), current, made: Mutex::new(0) }
    }

    pub fn current(&self) -> Arc<Token> {
        self.current.read().clone()
    }

    /// From now on everything is done with a new credential. Not for a task of the runtime.
    pub fn renew(&self, place: &Place) {
        let number = {
            let mut made = self.made.lock();
            *made += 1;
            *made
        };
        let file = place.site.folder.join(format!("{}-{number}.kubeconfig", self.name));
        place.site.admin(&["kubeconfig", "--user", &self.name, "--output", file.to_str().unwrap()]).ok();
        *self.current.write() = token(place, file);
    }
}

fn token(place: &Place, kubeconfig: PathBuf) -> Arc<Token> {
    let client = place.client(&kubeconfig, Some(CLUSTER));
    Arc::new(Token { kubeconfig, client, suspension: Mutex::default() })
}

/// What was seen.
#[derive(Default)]
pub struct Seen {
    /// Answers, by what was asked and what came of it.
    pub counts: BTreeMap<String, u64>,
    /// The latest that something came after an acknowledged suspension.
    pub latest: BTreeMap<&'static str, Duration>,
    /// What must not be.
    pub wrong: Vec<String>,
}

/// Shared by all workers.
#[derive(Clone, Default)]
pub struct Watcher(Arc<Mutex<Seen>>);

impl Watcher {
    pub fn take(&self) -> Seen {
        std::mem::take(&mut self.0.lock())
    }

    fn count(&self, what: &str, came: &str) {
        *self.0.lock().counts.entry(format!("{what}: {came}")).or_default() += 1;
    }

    pub fn wrong(&self, what: String) {
        let mut seen = self.0.lock();
        if seen.wrong.len() < 20 {
            seen.wrong.push(what);
        }
    }

    /// Something came for this credential, of a request that began then.
    fn came(&self, what: &'static str, token: &Token, began: Instant) {
        let Some(acknowledged) = token.suspension().acknowledged else { return };
        let late = Instant::now().saturating_duration_since(acknowledged);
        let mut seen = self.0.lock();
        let latest = seen.latest.entry(what).or_default();
        *latest = late.max(*latest);
        drop(seen);
        if began > acknowledged {
            self.wrong(format!("{what} began {:?} after the acknowledgement, and passed", began - acknowledged));
        }
        if late > BOUND {
            self.wrong(format!("{what} brought something {late:?} after the acknowledgement"));
        }
    }

    /// A refusal says why, and is due.
    fn refused(&self, what: &'static str, token: &Token, code: StatusCode, text: &[u8]) {
        let status: Value = serde_json::from_slice(text).unwrap_or_default();
        let (reason, message) = (status["reason"].as_str().unwrap_or(""), status["message"].as_str().unwrap_or(""));
        self.count(what, &format!("{} {reason}", code.as_u16()));
        let explained = status["kind"] == "Status" && !reason.is_empty() && !message.is_empty();
        let known = matches!(code.as_u16(), 401 | 403 | 429 | 503) && status["code"] == code.as_u16();
        let due = code != StatusCode::UNAUTHORIZED || token.suspension().asked;
        if !explained || !known || !due {
            self.wrong(format!("{what}: {code}: {}", String::from_utf8_lossy(text)));
        }
    }

    /// A connection broke: only where a right ended.
    fn broke(&self, what: &'static str, token: &Token, why: &dyn std::fmt::Display) {
        self.count(what, "broke off");
        if !token.suspension().asked {
            self.wrong(format!("{what} broke off: {why}"));
        }
    }
}

/// Everything that goes on until it is stopped.
pub struct Load {
    stop: CancellationToken,
    tasks: JoinSet<()>,
    sessions: Vec<std::thread::JoinHandle<()>>,
}

impl Load {
    pub fn start(place: &'static Place, accounts: &Arc<Vec<Account>>, watcher: &Watcher, seed: u64) -> Self {
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let mut sessions = vec![];
        for at in 0..accounts.len() {
            let worker = |seed| Worker {
                accounts: accounts.clone(),
                at,
                watcher: watcher.clone(),
                stop: stop.clone(),
                numbers: Numbers::new(seed),
            };
            let handle = place.runtime.handle();
            for nth in 0..2 {
                tasks.spawn_on(worker(seed + (at * 10 + nth) as u64).requests(), handle);
            }
            for stream in STREAMS {
                tasks.spawn_on(worker(seed).streams(stream), handle);
            }
            let worker = worker(seed);
            sessions.push(std::thread::spawn(move || worker.sessions(place)));
        }
        Self { stop, tasks, sessions }
    }

    /// Ends everything, and waits for it.
    pub fn stop(mut self, place: &Place) {
        self.stop.cancel();
        place.runtime.block_on(async { while self.tasks.join_next().await.transpose().unwrap().is_some() {} });
        self.sessions.into_iter().for_each(|session| session.join().unwrap());
    }
}

/// Streams of each account: what, and how it is asked for.
const STREAMS: [(&str, &str); 4] = [
    ("watch", "/api/v1/namespaces/work-one/configmaps?watch=true&allowWatchBookmarks=true"),
    ("merged watch", "/api/v1/configmaps?watch=true&allowWatchBookmarks=true"),
    (
        "merged streaming list",
        "/api/v1/configmaps?watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
    ),
    ("logs", "/api/v1/namespaces/work-pods/pods/busy/log?follow=true&tailLines=1"),
];

struct Worker {
    accounts: Arc<Vec<Account>>,
    at: usize,
    watcher: Watcher,
    stop: CancellationToken,
    numbers: Numbers,
}

impl Worker {
    fn token(&self) -> Arc<Token> {
        self.accounts[self.at].current()
    }

    /// Whether it goes on, after a while.
    async fn goes_on(&mut self) -> bool {
        let pause = Duration::from_millis(self.numbers.below(PAUSE) as u64);
        self.stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_some()
    }

    async fn requests(mut self) {
        let mut made: Vec<String> = vec![];
        while self.goes_on().await {
            let token = self.token();
            let configmaps = "/api/v1/namespaces/work-one/configmaps";
            let (what, method, path, body) = match self.numbers.below(10) {
                0..3 => ("get", Method::GET, format!("{configmaps}/kube-root-ca.crt"), None),
                3 => ("list", Method::GET, configmaps.to_owned(), None),
                4 => ("list of all", Method::GET, "/api/v1/configmaps".to_owned(), None),
                5 => ("list of all in pages", Method::GET, "/api/v1/pods?limit=1".to_owned(), None),
                6 => ("namespaces", Method::GET, "/api/v1/namespaces".to_owned(), None),
                _ if made.len() > 3 => {
                    ("delete", Method::DELETE, format!("{configmaps}/{}", made.swap_remove(0)), None)
                }
                _ => {
                    let metadata = json!({"generateName": format!("{}-", self.accounts[self.at].name)});
                    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
                    ("create", Method::POST, configmaps.to_owned(), Some(object))
                }
            };
            let answer = self.request(what, &token, method, &path, body).await;
            if let ("create", Some(object)) = (what, answer) {
                made.extend(object["metadata"]["name"].as_str().map(str::to_owned));
            }
        }
    }

    /// The answer where it is good.
    async fn request(
        &self,
        what: &'static str,
        token: &Token,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Option<Value> {
        let began = Instant::now();
        let body = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
        let answer = async {
            let response = token.client.send(request.body(Body::from(body)).unwrap()).await?;
            let code = response.status();
            Ok::<_, Box<dyn std::error::Error>>((code, response.into_body().collect().await?.to_bytes()))
        };
        match answer.await {
            Ok((code, text)) if code.is_success() => {
                self.watcher.came(what, token, began);
                self.watcher.count(what, code.as_str());
                serde_json::from_slice(&text).ok()
            }
            Ok((code, text)) => {
                self.watcher.refused(what, token, code, &text);
                None
            }
            Err(why) => {
                self.watcher.broke(what, token, &why);
                None
            }
        }
    }

    async fn streams(mut self, (what, path): (&'static str, &'static str)) {
        while self.goes_on().await {
            let token = self.token();
            let (watcher, stop) = (self.watcher.clone(), self.stop.clone());
            // Dropped with everything that it holds.
            stop.run_until_cancelled(stream(watcher, &token, what, path)).await;
        }
    }

    /// Sessions of kubectl in a Pod, one after another.
    fn sessions(self, place: &Place) {
        let loops = "while :; do echo running; sleep 0.05; done";
        while !self.stop.is_cancelled() {
            let token = self.token();
            let person = Person { name: self.accounts[self.at].name.clone(), kubeconfig: token.kubeconfig.clone() };
            let args = ["-n", "work-pods", "exec", "busy", "--", "sh", "-c", loops];
            let session = Running::start(place.site.command(&person, CLUSTER, &args));
            let began = Instant::now();
            let mut seen = None;
            let mut look = || {
                let last = session.last_byte();
                if last != seen {
                    seen = last;
                    self.watcher.came("exec", &token, began);
                }
            };
            while !session.has_ended() && !self.stop.is_cancelled() {
                look();
                // What begins after it needs its time to be refused.
                let open = token.suspension().acknowledged.map_or(Duration::ZERO, |at| at.max(began).elapsed());
                if open > GONE {
                    self.watcher.wrong(format!("exec is open {open:?} after the acknowledgement"));
                    break;
                }
                pause(Duration::from_millis(10));
            }
            look();
            if session.has_ended() {
                let suspended = token.suspension().asked;
                self.watcher.count("exec", if suspended { "ended" } else { "broke off" });
                if !suspended {
                    self.watcher.wrong(format!("exec ended: {}", session.text()));
                }
                // What a suspended account would try again at once, it tries a few times a second.
                pause(LOOK);
            }
        }
    }
}

async fn stream(watcher: Watcher, token: &Token, what: &'static str, path: &str) {
    let began = Instant::now();
    let mut response = match token.client.send(Request::get(path).body(Body::empty()).unwrap()).await {
        Ok(response) => response,
        Err(why) => return watcher.broke(what, token, &why),
    };
    let code = response.status();
    if !code.is_success() {
        return match response.into_body().collect().await {
            Ok(text) => watcher.refused(what, token, code, &text.to_bytes()),
            Err(why) => watcher.broke(what, token, &why),
        };
    }
    watcher.came(what, token, began);
    let mut pieces = 0;
    loop {
        match tokio::time::timeout(LOOK, response.body_mut().frame()).await {
            Ok(Some(Ok(frame))) => {
                if frame.data_ref().is_some_and(|data| !data.is_empty()) {
                    pieces += 1;
                    watcher.came(what, token, began);
                }
            }
            Ok(Some(Err(why))) => {
                watcher.broke(what, token, &why);
                break;
            }
            Ok(None) => {
                watcher.count(what, "ended");
                break;
            }
            Err(_) => {
                let open = token.suspension().acknowledged.map(|at| at.elapsed()).filter(|open| *open > BOUND);
                if let Some(open) = open {
                    watcher.wrong(format!("{what} is open {open:?} after the acknowledgement"));
                    break;
                }
            }
        }
    }
    watcher.count(what, if pieces > 0 { "brought something" } else { "brought nothing" });
}
