//! What was acknowledged survives `kill -9`, and what was revoked or suspended stays so: no older copy of the database
//! opens. `BAILIWICK_LARGE=1` kills a thousand times.
//!
//! The test runs itself as a child that writes from several tasks and prints every acknowledgement. The parent kills it
//! at random moments, opens what is left, and holds it against what was printed. This does not show what the loss of
//! power does: the kernel still has every page.

#[path = "durability/child.rs"]
mod child;
#[path = "durability/model.rs"]
mod model;

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use bailiwick::audit::{self, Filter};
use bailiwick::index::Index;
use bailiwick::store::Store;
use bailiwick::store::anchor::{Anchor, AnchorError};
use bailiwick::store::sealed::Sealer;
use bailiwick::store::sqlite::{OpenError, SqliteSettings, SqliteStore};

use self::model::{Acknowledgement, Model};

/// Kills: about two minutes of them on two busy cores.
const KILLS: usize = 600;
/// Kills with `BAILIWICK_LARGE=1`.
const MANY_KILLS: usize = 1000;
/// Between two older copies that are tried, in kills.
const COPY_EVERY: usize = 20;
/// Tells the child its data directory.
const CHILD: &str = "BAILIWICK_TEST_DURABILITY_CHILD";

fn sealer() -> Arc<Sealer> {
    Arc::new(Sealer::new("test", &[7; 32]))
}

/// A history short enough to be compacted many times, and longer than one life of the child.
fn try_open(directory: &Path) -> Result<Arc<SqliteStore>, OpenError> {
    let anchor = if directory.exists() { anchor(directory) } else { Anchor::lost(directory, sealer()) };
    let settings = SqliteSettings { history_events: 3000, anchor: Some(Arc::new(anchor)), ..SqliteSettings::default() };
    SqliteStore::open(directory, settings).map(Arc::new)
}

fn open(directory: &Path) -> Arc<SqliteStore> {
    try_open(directory).unwrap()
}

fn anchor(directory: &Path) -> Anchor {
    Anchor::open(directory, sealer()).unwrap()
}

/// Puts an older database in the place of the one that is there, sees it refused, and puts everything back.
fn older_copy_is_refused(directory: &Path, older: &[u8]) {
    let aside = directory.join("aside");
    std::fs::create_dir(&aside).unwrap();
    let files = ["store.db", "store.db-wal", "store.db-shm"];
    let there: Vec<_> = files.into_iter().filter(|file| directory.join(file).exists()).collect();
    there.iter().for_each(|file| std::fs::rename(directory.join(file), aside.join(file)).unwrap());
    std::fs::write(directory.join("store.db"), older).unwrap();
    let error = try_open(directory).err().expect("an older copy opened");
    assert!(matches!(error, OpenError::Anchor(AnchorError::Behind { .. })), "{error}");
    for file in files {
        let _ = std::fs::remove_file(directory.join(file));
    }
    there.iter().for_each(|file| std::fs::rename(aside.join(file), directory.join(file)).unwrap());
    std::fs::remove_dir(&aside).unwrap();
}

#[test]
fn acknowledged_writes_survive_being_killed() {
    if let Some(directory) = std::env::var_os(CHILD) {
        child::run(Path::new(&directory));
        return;
    }
    let kills = if std::env::var_os("BAILIWICK_LARGE").is_some_and(|large| large == "1") { MANY_KILLS } else { KILLS };
    let directory = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut model = Model::default();
    runtime.block_on(async {
        let store = open(directory.path());
        child::set_up(&*store).await;
        model.check(&*store, &[]).await;
    });
    let start = Instant::now();
    let mut intents = vec![];
    let mut at_work = 0;
    let mut lived = 0;
    let mut older: Option<Vec<u8>> = None;
    let mut refused = 0;
    for kill in 0..kills {
        let life = live_and_die(directory.path(), kill);
        at_work += usize::from(life.was_ready);
        intents.extend(life.intents);
        let floor = anchor(directory.path()).anchored().unwrap().floor;
        let taken = life.acknowledged.iter().filter(|promise| promise.takes_away()).map(|promise| promise.revision);
        if let Some(newest) = taken.max() {
            assert!(floor >= newest, "{newest} was acknowledged, and the anchor is at {floor}");
            if let Some(older) = older.take() {
                older_copy_is_refused(directory.path(), &older);
                refused += 1;
            }
        }
        lived += runtime.block_on(async {
            let store = open(directory.path());
            model.check(&*store, &life.acknowledged).await;
            let (index, writer) = Index::start(store.clone(), sealer()).await.unwrap();
            index.applied(store.revision().await.unwrap()).await.unwrap();
            let lived = model.check_credentials(&index.snapshot());
            writer.abort();
            // The aborted task holds the store until it is gone.
            let _ = writer.await;
            store.close().await;
            lived
        });
        if kill % COPY_EVERY == 0 {
            older = Some(std::fs::read(directory.path().join("store.db")).unwrap());
        }
    }
    let written =
        audit::read(&directory.path().join("audit"), &Filter { limit: usize::MAX, ..Filter::default() }).unwrap();
    let mut written = written.into_iter().map(|record| record.id);
    for id in &intents {
        assert!(written.any(|found| found == *id), "intent {id} was acknowledged and is lost, or out of order");
    }
    println!(
        "{kills} kills in {:?}, {at_work} of them under load: {}, {} intents, {lived} live tokens seen, {refused} older copies refused",
        start.elapsed(),
        model.summary(),
        intents.len(),
    );
    // The run proves nothing unless all of this happened, and often.
    assert!(at_work >= kills / 2, "the child was under load at {at_work} of {kills} kills only");
    assert!(
        lived > kills && intents.len() > kills && refused >= kills / COPY_EVERY / 2,
        "{lived} live tokens, {} intents, {refused} copies",
        intents.len()
    );
    model.assert_exercised();
}

/// What a child said before it was killed.
struct Life {
    was_ready: bool,
    acknowledged: Vec<Acknowledgement>,
    intents: Vec<String>,
}

fn live_and_die(directory: &Path, kill: usize) -> Life {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "acknowledged_writes_survive_being_killed", "--nocapture", "--test-threads=1"])
        .env(CHILD, directory)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let pipe = BufReader::new(child.stdout.take().unwrap());
    let (lines, received) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        for line in pipe.split(b'\n') {
            if lines.send(String::from_utf8(line.unwrap()).unwrap()).is_err() {
                break;
            }
        }
    });
    let mut random = [0; 2];
    getrandom::fill(&mut random).unwrap();
    let random = u64::from(u16::from_be_bytes(random));
    let mut said = vec![];
    // Every tenth is killed while it starts, which is when the last death is being repaired.
    let ends = if kill % 10 == 9 {
        Instant::now() + Duration::from_micros(random)
    } else {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let line = received.recv_timeout(left).expect("the child does not start");
            if line == "READY" {
                break Instant::now() + Duration::from_micros(5_000 + random * 55_000 / 65_536);
            }
        }
    };
    let was_ready = kill % 10 != 9;
    loop {
        match received.recv_timeout(ends.saturating_duration_since(Instant::now())) {
            Ok(line) => said.push(line),
            Err(RecvTimeoutError::Timeout) => break,
            Err(RecvTimeoutError::Disconnected) => panic!("the child ended by itself: {said:?}"),
        }
        if Instant::now() >= ends {
            break;
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    reader.join().unwrap();
    said.extend(received.try_iter());
    let acknowledged = said.iter().filter_map(|line| Acknowledgement::parse(line.strip_prefix("ACK ")?)).collect();
    let intents =
        said.iter().filter_map(|line| line.strip_prefix("INTENT ")?.strip_suffix('.')).map(str::to_owned).collect();
    Life { was_ready, acknowledged, intents }
}
