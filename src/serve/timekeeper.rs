//! Keeps the time over restarts: a sealed record with the steady time, so that a clock that was set back while the
//! service was down revives nothing.
//!
//! It is written once a minute, at once when the clock was set back, and at the end. After a crash, what ended within
//! the last minute before it may therefore come back for as long as that if the clock is set back as well.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use tracing::{info, warn};

use super::platform_record;
use crate::clock::{Clock, STABLE, Step};
use crate::store::Store;
use crate::store::sealed::Sealer;

/// Name of the record.
const NAME: &str = "clock";
/// How often the clocks are compared.
const TICK: Duration = Duration::from_millis(500);
/// How often the time is written.
const INTERVAL: Duration = Duration::from_secs(60);

/// The clock and where its time is kept.
pub(super) struct Timekeeper {
    store: Arc<dyn Store>,
    sealer: Arc<Sealer>,
    clock: Arc<Clock>,
    noted: Mutex<Option<Timestamp>>,
}

/// Reads the record and makes the clock. With `accept` the record is replaced by what the wall clock shows.
pub(super) async fn load(store: Arc<dyn Store>, sealer: Arc<Sealer>, accept: bool) -> anyhow::Result<Arc<Timekeeper>> {
    load_with(store, sealer, accept, |mark| Arc::new(Clock::of_machine(mark))).await
}

async fn load_with(
    store: Arc<dyn Store>,
    sealer: Arc<Sealer>,
    accept: bool,
    clock: impl FnOnce(Option<Timestamp>) -> Arc<Clock>,
) -> anyhow::Result<Arc<Timekeeper>> {
    let mark = match accept {
        true => None,
        false => platform_record::read(&*store, &sealer, NAME).await?.map(|known| known.content),
    };
    let keeper = Timekeeper { store, sealer, clock: clock(mark), noted: Mutex::new(mark) };
    if accept {
        keeper.write(keeper.clock.steady()).await?;
    }
    Ok(Arc::new(keeper))
}

impl Timekeeper {
    /// The clock.
    pub(super) fn clock(&self) -> &Arc<Clock> {
        &self.clock
    }

    /// Compares the clocks and writes the time now and then, for ever.
    pub(super) async fn keep(self: Arc<Self>) {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut written = None::<tokio::time::Instant>;
        loop {
            ticks.tick().await;
            let step = self.clock.tick();
            // At first, being ahead of the mark is only the time that the service was down.
            if written.is_some() || !matches!(step, Some(Step::Forward(_))) {
                report(step);
            }
            let due = written.is_none_or(|at| at.elapsed() >= INTERVAL);
            if due || matches!(step, Some(Step::Back(_) | Step::Believed)) {
                self.note().await;
                written = Some(tokio::time::Instant::now());
            }
        }
    }

    /// Writes the steady time where it is later than what was written.
    pub(super) async fn note(&self) {
        let steady = self.clock.steady();
        if self.noted.lock().is_some_and(|noted| noted >= steady) {
            return;
        }
        if let Err(why) = self.write(steady).await {
            warn!(%why, "the time was not kept; trying again");
        }
    }

    async fn write(&self, steady: Timestamp) -> anyhow::Result<()> {
        let known = platform_record::read(&*self.store, &self.sealer, NAME).await?;
        platform_record::write(&*self.store, &self.sealer, NAME, known, &steady).await?;
        *self.noted.lock() = Some(steady);
        Ok(())
    }
}

fn report(step: Option<Step>) {
    match step {
        None => {}
        Some(Step::Back(by)) => warn!(
            seconds = by.as_secs(),
            "the clock is behind the time that was known; tokens and grants go on by the later time"
        ),
        Some(Step::Forward(by)) => warn!(
            seconds = by.as_secs(),
            "the clock jumped forward; what ends by it is refused, and final in {} s",
            STABLE.as_secs()
        ),
        Some(Step::Returned) => info!("the clock returned from where it had jumped to"),
        Some(Step::Believed) => info!("the clock's new time is taken"),
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde_json::json;

    use super::*;
    use crate::clock::by_hand::Hands;
    use crate::identity::tokens;
    use crate::index::Index;
    use crate::records::{TokenRecord, TokenScopes};
    use crate::resources::token::Audience;
    use crate::store::sealed::Binding;
    use crate::store::sqlite::{SqliteSettings, SqliteStore};
    use crate::store::{Key, Kind};

    const HOUR: Duration = Duration::from_secs(3600);

    fn noon() -> Timestamp {
        "2030-03-01T12:00:00Z".parse().unwrap()
    }

    struct World {
        store: Arc<dyn Store>,
        sealer: Arc<Sealer>,
        token: String,
        _directory: tempfile::TempDir,
    }

    impl World {
        /// jane, with a token and a grant that both end at one, written in the time of other places.
        async fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let store: Arc<dyn Store> =
                Arc::new(SqliteStore::open(directory.path(), SqliteSettings::default()).unwrap());
            let sealer = Arc::new(Sealer::new("k", &[7; 32]));
            let api = "bailiwick.dev/v1alpha1";
            for (kind, name, value) in [
                (
                    Kind::User,
                    "jane",
                    json!({"apiVersion": api, "kind": "User", "metadata": {"name": "jane", "uid": "u"}, "spec": {}}),
                ),
                (
                    Kind::Grant,
                    "g",
                    json!({"apiVersion": api, "kind": "Grant", "metadata": {"name": "g", "uid": "g"},
                        "spec": {"subject": {"kind": "User", "name": "jane"}, "role": "auditor",
                            "target": {"kind": "Platform", "name": "platform"}, "expiresAt": "2030-03-01T18:30:00+05:30"},
                        "status": {"state": "Active", "subjectUID": "u"}}),
                ),
            ] {
                store.create(Key::new(kind, name), value.to_string().into()).await.unwrap();
            }
            let made = tokens::generate().unwrap();
            let record = TokenRecord {
                id: made.id.clone(),
                hash: STANDARD.encode(made.hash),
                user: "jane".into(),
                user_uid: "u".into(),
                epoch: 0,
                global_epoch: 0,
                audience: Audience::Kube,
                scopes: TokenScopes::default(),
                family: made.id.clone(),
                description: String::new(),
                created_at: "2030-03-01T00:00:00Z".into(),
                expires_at: "2030-03-01T08:00:00-05:00".into(),
            };
            let key = Key::new(Kind::Token, made.id.as_str());
            let sealed = sealer.seal(&key, Binding { uid: "u", version: 1 }, &record).unwrap();
            store.create(key, sealed).await.unwrap();
            Self { store, sealer, token: made.secret_token.to_string(), _directory: directory }
        }

        /// Starts as the service does, on these clocks.
        async fn start(&self, hands: &Hands, accept: bool) -> (Arc<Timekeeper>, Arc<Index>) {
            let clock = |mark| hands.clock(mark);
            let keeper = load_with(self.store.clone(), self.sealer.clone(), accept, clock).await.unwrap();
            let started = Index::start_with(self.store.clone(), self.sealer.clone(), keeper.clock().clone()).await;
            (keeper, started.unwrap().0)
        }

        /// Whether the token and the grant live; always both or none.
        fn alive(&self, index: &Index) -> bool {
            let (snapshot, now) = (index.snapshot(), index.now());
            let token = tokens::authenticate(&snapshot, &self.token, Audience::Kube, now).is_ok();
            let grant = snapshot.holdings(&snapshot.users["jane"].object, now).count() == 1;
            assert_eq!(token, grant, "at {now}");
            token
        }
    }

    /// Passes time as the service does, and returns what the clocks were found to have done.
    fn pass(hands: &Hands, keeper: &Timekeeper, seconds: u64) -> Vec<Step> {
        let mut found = vec![];
        for _ in 0..seconds {
            hands.pass(Duration::from_secs(1));
            found.extend(keeper.clock().tick());
        }
        found
    }

    #[tokio::test]
    async fn what_ended_stays_dead_when_the_clock_is_set_back_also_over_restarts() {
        let world = World::new().await;
        let hands = Hands::at(noon());
        let (keeper, index) = world.start(&hands, false).await;
        pass(&hands, &keeper, HOUR.as_secs() - 1);
        assert!(world.alive(&index), "a second before the end, whatever the time zone");
        pass(&hands, &keeper, 1);
        assert!(!world.alive(&index), "expiry is exclusive");
        hands.set(noon());
        assert!(!world.alive(&index), "set back");
        assert!(matches!(pass(&hands, &keeper, 1)[..], [Step::Back(_)]));
        keeper.note().await;

        for day in 0..3 {
            // Down for a while, and the clock shows an even earlier time.
            hands.set(noon() - HOUR * 24 * day);
            let (_, index) = world.start(&hands, false).await;
            assert!(!world.alive(&index), "after a restart {day} days earlier");
        }
        // Who says that the clock is right now has it so, and it is kept.
        hands.set(noon());
        let (_, index) = world.start(&hands, true).await;
        assert!(world.alive(&index));
        let (_, index) = world.start(&hands, false).await;
        assert!(world.alive(&index));
    }

    #[tokio::test]
    async fn a_leap_of_a_day_refuses_and_is_final_only_once_it_has_lasted() {
        let world = World::new().await;
        let hands = Hands::at(noon());
        let (keeper, index) = world.start(&hands, false).await;
        hands.set(noon() + HOUR * 24);
        assert!(!world.alive(&index), "refused at once");
        pass(&hands, &keeper, 120);
        assert!(!world.alive(&index));
        keeper.note().await;
        hands.set(noon() + Duration::from_secs(120));
        assert!(world.alive(&index), "it came back in time");
        assert_eq!(pass(&hands, &keeper, 1), [Step::Returned]);
        let (keeper, index) = world.start(&hands, false).await;
        assert!(world.alive(&index), "and nothing of it was kept");

        hands.set(noon() + HOUR * 24);
        pass(&hands, &keeper, STABLE.as_secs() + 2);
        hands.set(noon());
        assert!(!world.alive(&index), "it lasted");
        keeper.note().await;
        let (_, index) = world.start(&hands, false).await;
        assert!(!world.alive(&index), "and is kept");
    }

    #[tokio::test]
    async fn a_record_that_does_not_open_stops_the_start() {
        let world = World::new().await;
        let (keeper, _) = world.start(&Hands::at(noon()), false).await;
        keeper.note().await;
        let other = Arc::new(Sealer::new("k", &[8; 32]));
        assert!(load(world.store.clone(), other, false).await.is_err());
        assert!(load(world.store.clone(), world.sealer.clone(), false).await.is_ok());
    }
}
