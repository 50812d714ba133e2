//! Register: everything that goes on for a while, and the cut when its right ends.
//!
//! Long-running responses are entered, and writes for as long as they last: their client decides when the body is
//! complete, so one begun before a suspension could be finished after it. Other answers are entered once they linger.
//!
//! A stream is judged again with every version of the index and at the next expiry. It goes on only while the same
//! decision that admitted it would still admit it, so that suspension, revocation, an ended or narrowed grant or role, a
//! moved namespace and a removed cluster need no code of their own.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::across::{self, SetId};
use super::decide::{self, Asker, Context, Decide};
use super::resolve::Place;
use crate::domain::request::RequestInfo;
use crate::index::{Index, Snapshot, TokenEntry};

/// Longest time between two judgements while nothing changes: expiry is found within this.
const TICK: Duration = Duration::from_millis(500);

/// What a stream was admitted for.
#[derive(Debug, Clone)]
pub struct StreamKey {
    /// The credential.
    pub token: Arc<TokenEntry>,
    /// Cluster.
    pub cluster: String,
    /// Project that the URL narrowed to.
    pub narrowed: Option<String>,
    /// What was asked.
    pub request: RequestInfo,
    /// The namespaces it goes to, where it named none.
    pub across: Option<Across>,
}

/// What is remembered of a request that is spread over namespaces.
#[derive(Debug, Clone, Copy)]
pub struct Across {
    /// Which namespaces; nothing where it follows their changes itself.
    pub set: Option<SetId>,
    /// How many.
    pub width: usize,
}

/// What one judgement of all streams found already: the watches of one client often ask for the same.
#[derive(Default)]
struct Pass<'a> {
    standings: HashMap<Question<'a>, across::Standing>,
}

/// What a [`across::Standing`] follows from, within one version of everything. The credential is meant by where it lies:
/// one that was written anew under its id may have other limits.
#[derive(PartialEq, Eq, Hash)]
struct Question<'a> {
    token: *const TokenEntry,
    cluster: &'a str,
    narrowed: Option<&'a str>,
    request: &'a RequestInfo,
}

impl StreamKey {
    fn place(&self) -> Place<'_> {
        let namespace = match &self.request {
            RequestInfo::Resource(request) => request.namespace.as_str(),
            RequestInfo::Path(_) => "",
        };
        Place { cluster: &self.cluster, project: self.narrowed.as_deref(), namespace }
    }

    /// Why the stream must end, if it must.
    fn refused<'a>(
        &'a self,
        decider: &dyn Decide,
        snapshot: &Snapshot,
        now: Timestamp,
        pass: &mut Pass<'a>,
    ) -> Option<&'static str> {
        let known = snapshot.tokens.get(self.token.record.id.as_str()).filter(|t| t.hash == self.token.hash);
        let Some(token) = known else { return Some("token") };
        let Some(user) = snapshot.live_owner(token, now) else {
            return Some(if now < token.expires_at { "account" } else { "expired" });
        };
        let ctx = Context {
            snapshot,
            asker: Asker { user: &user.object, scopes: &self.token.record.scopes },
            place: self.place(),
            request: &self.request,
            now,
        };
        match self.across {
            Some(across) => {
                let question = Question {
                    token: Arc::as_ptr(&self.token),
                    cluster: &self.cluster,
                    narrowed: self.narrowed.as_deref(),
                    request: &self.request,
                };
                let standing = pass.standings.entry(question).or_insert_with(|| across::standing(decider, &ctx));
                across::refused(standing, &ctx, across.set)
            }
            None => decide::authorize(decider, &ctx).err().map(|refusal| refusal.reason),
        }
    }

    /// How much of its account's budget it takes: as many streams as are open at the cluster.
    pub fn weight(&self) -> usize {
        self.across.map_or(1, |across| across.width)
    }
}

/// The register of streams.
pub struct Streams {
    entries: Mutex<Entries>,
    next: AtomicU64,
    judged: watch::Sender<u64>,
}

#[derive(Default)]
struct Entries {
    by_id: HashMap<u64, Entry>,
    // How many each account has open.
    per_user: HashMap<String, usize>,
}

struct Entry {
    key: Arc<StreamKey>,
    cut: Arc<Cut>,
}

/// How a stream learns that it must end.
#[derive(Default)]
pub struct Cut {
    token: CancellationToken,
    cause: Mutex<Option<&'static str>>,
    then: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Cut {
    /// Ends the stream.
    fn now(&self, cause: &'static str) {
        self.cause.lock().get_or_insert(cause);
        self.token.cancel();
        self.run();
    }

    /// What is done at once when it is cut, or now if it was; nobody else may be waiting for it.
    pub fn then(&self, act: Box<dyn FnOnce() + Send>) {
        *self.then.lock() = Some(act);
        if self.token.is_cancelled() {
            self.run();
        }
    }

    fn run(&self) {
        let act = self.then.lock().take();
        if let Some(act) = act {
            act();
        }
    }

    /// Returns when the stream must end.
    pub fn cancelled(&self) -> tokio_util::sync::WaitForCancellationFuture<'_> {
        self.token.cancelled()
    }

    /// Cancelled when the stream must end.
    pub fn token(&self) -> CancellationToken {
        self.token.clone()
    }

    /// As [`Cut::cancelled`], owned.
    pub fn cancelled_owned(&self) -> tokio_util::sync::WaitForCancellationFutureOwned {
        self.token.clone().cancelled_owned()
    }

    /// Why it was cut, if it was.
    pub fn cause(&self) -> Option<&'static str> {
        *self.cause.lock()
    }
}

/// A place in the register; leaving it is dropping this.
pub struct Registered {
    streams: Arc<Streams>,
    id: u64,
    /// How the stream learns that it must end.
    pub cut: Arc<Cut>,
}

impl Registered {
    /// Judges what was entered a moment after it was admitted.
    pub fn judge(&self, key: &StreamKey, index: &Index, decider: &dyn Decide) {
        let refused = match index.is_fresh() {
            true => key.refused(decider, &index.snapshot(), index.now(), &mut Pass::default()),
            false => Some("stale"),
        };
        if let Some(cause) = refused {
            self.cut.now(cause);
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let mut entries = self.streams.entries.lock();
        let Some(entry) = entries.by_id.remove(&self.id) else { return };
        let user = &entry.key.token.record.user;
        if let Some(count) = entries.per_user.get_mut(user) {
            *count -= entry.key.weight();
            if *count == 0 {
                entries.per_user.remove(user);
            }
        }
    }
}

impl Streams {
    /// An empty register.
    pub fn new() -> Arc<Self> {
        Arc::new(Self { entries: Mutex::default(), next: AtomicU64::new(1), judged: watch::channel(0).0 })
    }

    /// Enters a stream. It must be entered before the last look at the index that admits it, or a change between the
    /// two would be missed; the caller decides again after this.
    pub fn register(self: &Arc<Self>, key: StreamKey) -> Registered {
        self.enter(key, &mut self.entries.lock())
    }

    /// As [`Streams::register`], if the account then has no more than `most`; else how many it has.
    pub fn register_within(self: &Arc<Self>, key: StreamKey, most: usize) -> Result<Registered, usize> {
        // Under one lock: of many that ask at a time, none gets in beside the count.
        let mut entries = self.entries.lock();
        let open = entries.per_user.get(&key.token.record.user).copied().unwrap_or_default();
        match open.saturating_add(key.weight()) > most {
            true => Err(open),
            false => Ok(self.enter(key, &mut entries)),
        }
    }

    fn enter(self: &Arc<Self>, key: StreamKey, entries: &mut Entries) -> Registered {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let cut = Arc::new(Cut::default());
        *entries.per_user.entry(key.token.record.user.clone()).or_default() += key.weight();
        entries.by_id.insert(id, Entry { key: Arc::new(key), cut: cut.clone() });
        Registered { streams: self.clone(), id, cut }
    }

    /// Enters what turned out to go on for longer than it seemed to, and judges it at once: what changed since it was
    /// admitted was not watched for.
    pub fn enter_late(self: &Arc<Self>, key: StreamKey, index: &Index, decider: &dyn Decide) -> Registered {
        let registered = self.register(key.clone());
        registered.judge(&key, index, decider);
        registered
    }

    /// Number of streams of an account; one across namespaces counts as many.
    pub fn count_of(&self, user: &str) -> usize {
        self.entries.lock().per_user.get(user).copied().unwrap_or_default()
    }

    /// Number of streams.
    pub fn len(&self) -> usize {
        self.entries.lock().by_id.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns once every stream was judged by a version of the index at least as new as the current one.
    pub async fn settled(&self, index: &Index) {
        let generation = index.subscribe().borrow().generation;
        let mut judged = self.judged.subscribe();
        // The judge only ends with the process.
        let _ = judged.wait_for(|seen| *seen >= generation).await;
    }

    /// Ends all streams of the process.
    pub fn cut_all(&self, cause: &'static str) {
        for entry in self.entries.lock().by_id.values() {
            entry.cut.now(cause);
        }
    }

    /// Judges all streams by one version of everything.
    fn judge_once(
        &self,
        decider: &dyn Decide,
        snapshot: &Snapshot,
        now: Timestamp,
        fresh: bool,
        on_cut: &impl Fn(&'static str),
    ) {
        // Judged outside of the lock: requests register meanwhile, and decide again themselves.
        let entries: Vec<(Arc<StreamKey>, Arc<Cut>)> =
            self.entries.lock().by_id.values().map(|e| (e.key.clone(), e.cut.clone())).collect();
        let mut pass = Pass::default();
        for (key, cut) in &entries {
            let cause = if fresh { key.refused(decider, snapshot, now, &mut pass) } else { Some("stale") };
            if let Some(cause) = cause
                && !cut.token.is_cancelled()
            {
                info!(cause, token = key.token.record.id, cluster = key.cluster, "stream cut");
                cut.now(cause);
                on_cut(cause);
            }
        }
    }

    /// Judges all streams with every version of the index, until the index ends.
    pub async fn judge(self: Arc<Self>, index: Arc<Index>, decider: Arc<dyn Decide>, on_cut: impl Fn(&'static str)) {
        let mut state = index.subscribe();
        loop {
            let seen = *state.borrow_and_update();
            let snapshot = index.snapshot();
            let now = index.now();
            self.judge_once(&*decider, &snapshot, now, seen.fresh, &on_cut);
            self.judged.send_replace(seen.generation);
            tokio::select! {
                changed = state.changed() => if changed.is_err() { return },
                // Also while there is none: the first to come may end by time before anything else changes.
                () = tokio::time::sleep(TICK) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests;
