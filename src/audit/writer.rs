//! The writer of the audit log: one thread, a buffer that callers append to, and one sync for all who wait.

use std::borrow::Cow;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tracing::{error, info, warn};

use super::chain::{Chain, ChainKey, Head};
use super::files::{Log, Reserve};
use super::{Filter, Record, Stage, Surface, Verification, What};
use crate::clock;

/// Longest time that a record is only in memory.
const FLUSH: Duration = Duration::from_secs(1);
/// Bytes in the buffer that are written without waiting for [`FLUSH`].
const URGENT: usize = 256 << 10;

/// Longest wait for the disk. A mutation whose intent is not there by then is refused.
const PATIENCE: Duration = Duration::from_secs(10);

/// Who reads the log at the same time. Each reads whole files, and holds some 50 MiB of records at most.
const READERS: usize = 2;

/// Longest text in a record, in bytes; names of Kubernetes end at 253. Else a client could fill the log with the names
/// it asks for, and the files that are kept are few.
const MAX_TEXT: usize = 512;
/// As [`MAX_TEXT`], of a reason, which may be a whole message.
const MAX_REASON: usize = 2048;
/// Refusals of requests without a credential that are recorded of each surface: so many at once, and so many a second.
/// Beyond them they are only counted: whoever needs no account could otherwise push everybody's records out of the log.
const STRANGERS: (f64, f64) = (500.0, 50.0);

/// Settings of the audit log.
#[derive(Debug, Clone)]
pub struct AuditSettings {
    /// Bytes after which a new file is begun.
    pub file_bytes: u64,
    /// Files kept; the oldest ones are removed.
    pub files: usize,
    /// Bytes of records that may wait while the disk is slow or full. Beyond them intents fail, and other records are
    /// dropped and counted.
    pub backlog_bytes: usize,
    /// Bytes kept free on the disk: when it fills up, mutations are refused, and the outcomes of those under way are
    /// recorded in this space.
    pub reserve_bytes: u64,
    /// Key of the chain.
    pub key: ChainKey,
    /// Where the chain was when last it was looked at. A log that ends before it is not opened.
    pub head: Head,
    /// Goes on with a log that ends before `head`. The chain says for ever how much is lost.
    pub accept_loss: bool,
    /// Where to count.
    pub counters: AuditCounters,
}

/// For tests: the key of the chain is known to everybody.
impl Default for AuditSettings {
    fn default() -> Self {
        Self {
            file_bytes: 64 << 20,
            files: 64,
            backlog_bytes: 64 << 20,
            reserve_bytes: 4 << 20,
            key: ChainKey::new(&[0; 32]),
            head: Head::default(),
            accept_loss: false,
            counters: AuditCounters::default(),
        }
    }
}

/// What is counted of the audit log. Clones count together.
#[derive(Debug, Clone, Default)]
pub struct AuditCounters {
    /// Records written, by stage.
    pub records: Family<StageLabel, Counter>,
    /// Records lost because the disk did not take them in time.
    pub dropped: Counter,
    /// Refusals without a credential that were not recorded because there were too many.
    pub withheld: Counter,
}

/// Label of [`AuditCounters::records`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct StageLabel {
    /// [`Stage::as_str`].
    pub stage: &'static str,
}

/// Why the log was not opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The files cannot be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Lines are gone that were there before.
    #[error(
        "{path}: the audit log ends with line {found}, but line {expected} was written; files were removed or cut off. \
         Put them back, or start with --accept-audit-loss, which is recorded in the log for good"
    )]
    CutOff {
        /// The directory.
        path: PathBuf,
        /// Its last line.
        found: u64,
        /// The line known to have been written.
        expected: u64,
    },
}

/// Why the log was not read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Others read it: it is read from one end to the other, which is not done for many at once.
    #[error("the audit log is being read by others; try again in a moment")]
    Busy,
    /// The files cannot be read.
    #[error("the audit log cannot be read: {0}")]
    Io(#[from] io::Error),
}

/// Why an intent is not on the disk. The mutation must not happen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AuditError {
    /// The disk is full, read-only or broken.
    #[error("the audit log cannot be written: {0}")]
    Unwritable(String),
    /// Too many records wait for the disk.
    #[error("the audit log is behind")]
    Behind,
    /// The process is going down.
    #[error("the audit log is closed")]
    Closed,
}

/// The audit log. Cheap to share by `Arc`; dropping it writes what waits.
pub struct Audit {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
    backlog_bytes: usize,
    dropped: Counter,
    withheld: Counter,
    strangers: [Mutex<Bucket>; Surface::ALL.len()],
    records: [Counter; Stage::ALL.len()],
    directory: PathBuf,
    files: usize,
    readers: Arc<Semaphore>,
    verifiers: Arc<Semaphore>,
    key: ChainKey,
    seen: Mutex<Head>,
    /// Random for the process, then counted.
    request_prefix: String,
    requests: AtomicU64,
}

/// What may still be recorded of strangers.
struct Bucket {
    left: f64,
    at: Instant,
}

impl Bucket {
    fn take(&mut self, now: Instant) -> bool {
        let (most, each_second) = STRANGERS;
        let refilled = self.left + now.saturating_duration_since(self.at).as_secs_f64() * each_second;
        (self.left, self.at) = (refilled.min(most), now);
        let any = self.left >= 1.0;
        if any {
            self.left -= 1.0;
        }
        any
    }
}

struct Shared {
    queue: Mutex<Queue>,
    wake: Condvar,
    /// The end of what is on the disk for good.
    synced: Mutex<Head>,
}

/// What waits for the writer.
#[derive(Default)]
struct Queue {
    /// Lines that nobody waits for.
    notes: Vec<u8>,
    note_count: u64,
    /// Lines whose writers wait for the disk.
    intents: Vec<u8>,
    waiting: Vec<oneshot::Sender<Result<(), AuditError>>>,
    /// Bytes of notes that the writer could not write and will try again.
    stuck: usize,
    closing: bool,
}

/// A record on its way to JSON; the fields of [`super::Record`] in its order.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    time: String,
    id: &'a str,
    stage: Stage,
    surface: Surface,
    #[serde(flatten)]
    what: &'a What,
}

impl Audit {
    /// Opens the log in the directory of its files (`<data>/audit`), which is made where it is missing.
    pub fn open(directory: &Path, settings: AuditSettings) -> Result<Arc<Self>, OpenError> {
        let AuditSettings { file_bytes, files, backlog_bytes, reserve_bytes, key, head, accept_loss, counters } =
            settings;
        let AuditCounters { records, dropped, withheld } = counters;
        let failed = |source| OpenError::Io { path: directory.to_owned(), source };
        let (mut log, found) = Log::open(directory, file_bytes, files, &key).map_err(failed)?;
        let found = found.unwrap_or_default();
        let lost = found.seq < head.seq;
        if lost && !accept_loss {
            let path = directory.to_owned();
            return Err(OpenError::CutOff { path, found: found.seq, expected: head.seq });
        }
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(|why| failed(why.into()))?;
        if lost {
            warn!(found = found.seq, expected = head.seq, "the audit log goes on without lines that are lost");
            log.begin_file().map_err(failed)?;
        }
        let synced = Mutex::new(Head::default());
        let shared = Arc::new(Shared { queue: Mutex::new(Queue::default()), wake: Condvar::new(), synced });
        let writer = Writer {
            shared: shared.clone(),
            log,
            chain: Chain::new(key.clone(), found),
            lost_up_to: lost.then_some(head.seq),
            reserve: Reserve::new(directory, reserve_bytes),
            unwritten: vec![],
            unwritten_count: 0,
            dropped: dropped.clone(),
            failing: false,
        };
        let thread =
            std::thread::Builder::new().name("audit-writer".into()).spawn(move || writer.run()).map_err(failed)?;
        Ok(Arc::new(Self {
            shared,
            thread: Mutex::new(Some(thread)),
            backlog_bytes,
            dropped,
            withheld,
            strangers: Surface::ALL.map(|_| Mutex::new(Bucket { left: STRANGERS.0, at: Instant::now() })),
            records: Stage::ALL.map(|stage| records.get_or_create_owned(&StageLabel { stage: stage.as_str() })),
            directory: directory.to_owned(),
            files,
            readers: Arc::new(Semaphore::new(READERS)),
            verifiers: Arc::new(Semaphore::new(1)),
            key,
            seen: Mutex::new(if lost { Head::default() } else { head }),
            request_prefix: format!("{:016x}", u64::from_be_bytes(random)),
            requests: AtomicU64::new(0),
        }))
    }

    /// Writes the record of a mutation that is about to happen. It is on the disk when this returns `Ok`; after an
    /// error the mutation must be refused. All who wait at the same time share one sync.
    pub async fn intent(&self, id: &str, surface: Surface, what: &What) -> Result<(), AuditError> {
        let line = line(id, Stage::Intent, surface, what);
        let written = self.wait_for(&line)?;
        // One that comes too late stands in the log without an outcome; the refusal is recorded beside it.
        let written = tokio::time::timeout(PATIENCE, written).await.map_err(|_| AuditError::Behind)?;
        written.map_err(|_| AuditError::Closed)??;
        self.records[Stage::Intent as usize].inc();
        Ok(())
    }

    /// Writes a record within a second, and never waits. A record that finds the backlog full is dropped and counted,
    /// and one of too many refusals without a credential is withheld and counted.
    pub fn note(&self, id: &str, stage: Stage, surface: Surface, what: What) {
        let stranger = stage == Stage::Refused && what.token.is_empty();
        if stranger && !self.strangers[surface as usize].lock().take(Instant::now()) {
            self.withheld.inc();
            return;
        }
        let line = line(id, stage, surface, &what);
        let mut queue = self.shared.queue.lock();
        if queue.closing || queue.bytes() + line.len() > self.backlog_bytes {
            drop(queue);
            self.dropped.inc();
            return;
        }
        let before = queue.notes.len();
        queue.notes.extend_from_slice(&line);
        queue.note_count += 1;
        // The first one starts the clock, a full buffer ends the wait; the ones between need nobody.
        if before == 0 || (before < URGENT && queue.notes.len() >= URGENT) {
            self.shared.wake.notify_one();
        }
        drop(queue);
        self.records[stage as usize].inc();
    }

    /// Writes and syncs every record given so far, so that [`super::read`] finds them.
    pub async fn flush(&self) -> Result<(), AuditError> {
        self.wait_for(&[])?.await.map_err(|_| AuditError::Closed)?
    }

    /// Reads the newest records that meet a filter, beside all other work; see [`super::read`]. Two do so at a time.
    pub async fn read(&self, filter: Filter) -> Result<Vec<Record>, ReadError> {
        let place = tokio::time::timeout(PATIENCE, self.readers.clone().acquire_owned()).await;
        let Ok(Ok(place)) = place else { return Err(ReadError::Busy) };
        let directory = self.directory.clone();
        apart(place, move || super::read(&directory, &filter)).await
    }

    /// The end of the chain as it is on the disk for good.
    pub fn head(&self) -> Head {
        *self.shared.synced.lock()
    }

    /// The end of the chain is noted elsewhere.
    pub fn noted(&self, head: Head) {
        *self.seen.lock() = head;
    }

    /// Verifies the whole log, up to where its end was noted last, beside all other work; see [`super::verify`]. One
    /// does so at a time.
    pub async fn verify(&self) -> Result<Verification, ReadError> {
        let place = self.verifiers.clone().try_acquire_owned().map_err(|_| ReadError::Busy)?;
        let (directory, key, files) = (self.directory.clone(), self.key.clone(), self.files);
        // Taken before the files are read: what is written meanwhile comes after it.
        let seen = *self.seen.lock();
        apart(place, move || super::verify(&directory, &key, seen, files)).await
    }

    /// An id that ties the records of one request together: unique over processes and restarts, and not secret.
    pub fn request_id(&self) -> String {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        format!("{}-{number:x}", self.request_prefix)
    }

    /// Number of records lost so far because the disk did not take them in time.
    pub fn dropped(&self) -> u64 {
        self.dropped.get()
    }

    /// Writes and syncs what waits, then refuses everything. Blocks for as long as the disk does.
    pub fn close(&self) {
        self.shared.queue.lock().closing = true;
        self.shared.wake.notify_one();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            error!("the audit writer panicked");
        }
    }

    /// Queues lines that somebody waits for.
    fn wait_for(&self, lines: &[u8]) -> Result<oneshot::Receiver<Result<(), AuditError>>, AuditError> {
        let (written, wait) = oneshot::channel();
        let mut queue = self.shared.queue.lock();
        if queue.closing {
            return Err(AuditError::Closed);
        }
        // An empty wait is let in: it adds nothing.
        if !lines.is_empty() && queue.bytes() + lines.len() > self.backlog_bytes {
            return Err(AuditError::Behind);
        }
        queue.intents.extend_from_slice(lines);
        queue.waiting.push(written);
        if queue.waiting.len() == 1 {
            self.shared.wake.notify_one();
        }
        Ok(wait)
    }
}

/// Reads where blocking is no harm. The place is given back when that has ended, not when somebody stops waiting for it.
async fn apart<T: Send + 'static>(
    place: OwnedSemaphorePermit,
    read: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, ReadError> {
    let read = tokio::task::spawn_blocking(move || {
        let _place = place;
        read()
    });
    Ok(read.await.map_err(io::Error::other)??)
}

impl Drop for Audit {
    fn drop(&mut self) {
        self.close();
    }
}

impl Queue {
    fn bytes(&self) -> usize {
        self.notes.len() + self.intents.len() + self.stuck
    }

    fn is_urgent(&self) -> bool {
        !self.waiting.is_empty() || self.closing || self.notes.len() >= URGENT
    }
}

fn line(id: &str, stage: Stage, surface: Surface, what: &What) -> Vec<u8> {
    let mut line = Vec::with_capacity(512);
    let what = &*clipped(what);
    let record = Line { time: format!("{:.6}", clock::now()), id, stage, surface, what };
    // Writing to memory fails only where a map key is no string, and there is no map with other keys.
    if let Err(why) = serde_json::to_writer(&mut line, &record) {
        error!(%why, "an audit record was not written");
        line.clear();
    }
    line.push(b'\n');
    line
}

/// The same with no text longer than it may be.
fn clipped(what: &What) -> Cow<'_, What> {
    let What { user, user_uid, token, address, cluster, project, verb, group, resource, .. } = what;
    let What { namespace, name, path, grant, role, rule, reason, .. } = what;
    let most = [user, user_uid, token, address, cluster, project, verb, group, resource];
    let more = [namespace, name, path, grant, role, rule];
    if most.into_iter().chain(more).all(|text| text.len() <= MAX_TEXT) && reason.len() <= MAX_REASON {
        return Cow::Borrowed(what);
    }
    let mut clipped = what.clone();
    let What { user, user_uid, token, address, cluster, project, verb, group, resource, .. } = &mut clipped;
    let most = [user, user_uid, token, address, cluster, project, verb, group, resource];
    most.into_iter().for_each(|text| clip(text, MAX_TEXT));
    let What { namespace, name, path, grant, role, rule, reason, .. } = &mut clipped;
    [namespace, name, path, grant, role, rule].into_iter().for_each(|text| clip(text, MAX_TEXT));
    clip(reason, MAX_REASON);
    Cow::Owned(clipped)
}

fn clip(text: &mut String, most: usize) {
    if text.len() > most {
        text.truncate(text.floor_char_boundary(most));
        text.push('…');
    }
}

/// The thread's side.
struct Writer {
    shared: Arc<Shared>,
    log: Log,
    chain: Chain,
    /// Lines that are lost, to be said in the next file's first line.
    lost_up_to: Option<u64>,
    reserve: Reserve,
    /// Notes that the disk did not take yet.
    unwritten: Vec<u8>,
    unwritten_count: u64,
    dropped: Counter,
    /// Whether the last attempt failed; told once, not with every record.
    failing: bool,
}

impl Writer {
    fn run(mut self) {
        // However this thread ends, nobody waits for it in vain.
        struct Ending(Arc<Shared>);
        impl Drop for Ending {
            fn drop(&mut self) {
                let mut queue = self.0.queue.lock();
                queue.closing = true;
                queue.waiting.clear();
            }
        }
        let _ending = Ending(self.shared.clone());
        loop {
            let batch = self.wait();
            let closing = batch.closing;
            self.write(batch);
            if closing {
                break;
            }
        }
        if self.unwritten_count > 0 {
            error!(records = self.unwritten_count, "audit records are lost: the disk did not take them");
            self.dropped.inc_by(self.unwritten_count);
        }
    }

    /// Waits until something must be written and takes it.
    fn wait(&self) -> Queue {
        let mut queue = self.shared.queue.lock();
        let mut deadline = None;
        while !queue.is_urgent() {
            if queue.notes.is_empty() && queue.stuck == 0 {
                self.shared.wake.wait(&mut queue);
                continue;
            }
            let deadline = *deadline.get_or_insert_with(|| Instant::now() + FLUSH);
            if self.shared.wake.wait_until(&mut queue, deadline).timed_out() {
                break;
            }
        }
        let Queue { stuck, closing, .. } = *queue;
        std::mem::replace(&mut *queue, Queue { stuck, closing, ..Queue::default() })
    }

    fn write(&mut self, batch: Queue) {
        let Queue { notes, note_count, intents, waiting, stuck: _, closing } = batch;
        let mut lines = std::mem::take(&mut self.unwritten);
        lines.extend_from_slice(&notes);
        let count = self.unwritten_count + note_count;
        let sync = closing || !waiting.is_empty();
        // Nothing new is begun in the space that is kept for ending what was begun.
        let room = intents.is_empty() || self.reserve.hold();
        let mut result = match room {
            true => self.append(&[&lines, &intents], sync),
            false => Err(io::ErrorKind::StorageFull.into()),
        };
        // Intents that are not there are refused and forgotten. What has happened is written nevertheless.
        let mut ended = match &result {
            Err(_) if !intents.is_empty() => self.append(&[&lines], true),
            Err(why) => Err(why.kind().into()),
            Ok(()) => Ok(()),
        };
        let full = matches!(&ended, Err(why) if why.kind() == io::ErrorKind::StorageFull);
        if full && !lines.is_empty() && self.reserve.release() {
            ended = self.append(&[&lines], true);
        }
        if ended.is_ok() {
            self.unwritten_count = 0;
        } else {
            self.unwritten = lines;
            self.unwritten_count = count;
        }
        if intents.is_empty() {
            result = ended;
        }
        match &result {
            Ok(()) => {
                if std::mem::take(&mut self.failing) {
                    info!("the audit log can be written again");
                }
            }
            Err(why) => {
                if !std::mem::replace(&mut self.failing, true) {
                    error!(%why, "the audit log cannot be written; mutations are refused");
                }
            }
        }
        self.shared.queue.lock().stuck = self.unwritten.len();
        let result = result.map_err(|why| AuditError::Unwritable(why.to_string()));
        for written in waiting {
            // Whoever stopped waiting does not act on the answer.
            let _ = written.send(result.clone());
        }
    }

    /// Appends lines with their places in the chain, all or none.
    fn append(&mut self, parts: &[&[u8]], sync: bool) -> io::Result<()> {
        if let Err(why) = self.log.make_room() {
            warn!(%why, "the audit log goes on in a file that is already full");
        }
        let mut chain = self.chain.clone();
        let mut chained = Vec::with_capacity(parts.iter().map(|part| part.len() + part.len() / 4).sum());
        let lines = parts.iter().flat_map(|part| part.split(|b| *b == b'\n')).filter(|line| !line.is_empty());
        let mut lines = lines.peekable();
        if let (Some((number, oldest)), Some(_)) = (self.log.unopened(), lines.peek()) {
            chain.open_file(number, oldest, self.lost_up_to, &mut chained);
        }
        lines.for_each(|line| chain.append(line, &mut chained));
        self.log.append(&chained, sync)?;
        if !chained.is_empty() {
            self.lost_up_to = None;
        }
        self.chain = chain;
        if sync {
            *self.shared.synced.lock() = self.chain.head;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
