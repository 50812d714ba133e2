//! Fights over what is ours: somebody else applies an object again and again, and we put it right each time.
//!
//! After a few reverts within some time the object is left alone for a while and counts as contested. When the while is
//! over it is put right once; if it is changed again the next while is twice as long, and if it is not for some time, the
//! fight is over. Everything else in the namespace is kept as ever.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::kinds::ObjectKind;

/// When an object counts as contested, and how long it is left alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// So many reverts …
    pub reverts: u32,
    /// … within this time are a fight. Appliers that look every three minutes are to be found as well.
    pub within: Duration,
    /// First and longest time that the object is left alone; doubled each time.
    pub pause: (Duration, Duration),
    /// A fight is over when the object stays right for so long.
    pub quiet: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        let minutes = |n: u64| Duration::from_secs(60 * n);
        Self { reverts: 5, within: minutes(20), pause: (Duration::from_secs(30), minutes(10)), quiet: minutes(5) }
    }
}

/// An object of ours: namespace ("" for those of the whole cluster), kind, name.
pub(super) type Object = (String, ObjectKind, String);

/// An object that somebody else keeps changing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contest {
    /// Kind.
    pub kind: ObjectKind,
    /// Name.
    pub name: String,
    /// Field manager that changed it last, where the cluster says so.
    pub manager: Option<String>,
}

impl std::fmt::Display for Contest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { kind, name, manager } = self;
        write!(f, "{} keeps changing {kind:?} {name}", manager.as_deref().unwrap_or("somebody"))
    }
}

#[derive(Debug)]
enum Stage {
    /// Reverts are counted.
    Counting,
    /// Left alone until then.
    Held(Instant),
    /// To be put right once.
    Probing,
    /// Was put right; over at that time if nobody changes it.
    Watching(Instant),
}

#[derive(Debug)]
struct Fight {
    reverts: u32,
    since: Instant,
    pauses: u32,
    manager: Option<String>,
    stage: Stage,
}

/// The fights in one cluster.
#[derive(Debug)]
pub(super) struct Contests {
    pace: Pace,
    fights: BTreeMap<Object, Fight>,
}

impl Contests {
    pub(super) fn new(pace: Pace) -> Self {
        Self { pace, fights: BTreeMap::new() }
    }

    /// Whether the object is to be left alone now.
    pub(super) fn held(&self, object: &Object) -> bool {
        self.fights.get(object).is_some_and(|fight| matches!(fight.stage, Stage::Held(_)))
    }

    /// An object was put right. Whether it is left alone from now on.
    pub(super) fn reverted(&mut self, object: Object, manager: Option<String>, now: Instant) -> bool {
        let new = Fight { reverts: 0, since: now, pauses: 0, manager: None, stage: Stage::Counting };
        let fight = self.fights.entry(object).or_insert(new);
        if manager.is_some() {
            fight.manager = manager;
        }
        match fight.stage {
            Stage::Counting => {
                if now.duration_since(fight.since) > self.pace.within {
                    (fight.since, fight.reverts) = (now, 0);
                }
                fight.reverts += 1;
                if fight.reverts < self.pace.reverts {
                    return false;
                }
            }
            Stage::Probing => {
                fight.stage = Stage::Watching(now + self.pace.quiet);
                return false;
            }
            Stage::Held(_) | Stage::Watching(_) => {}
        }
        let (first, longest) = self.pace.pause;
        let pause = first.saturating_mul(1 << fight.pauses.min(16)).min(longest);
        fight.pauses = fight.pauses.saturating_add(1);
        fight.stage = Stage::Held(now + super::worker::jittered(pause));
        true
    }

    /// A namespace was brought to what it must be: what nobody had changed meanwhile is watched, old counts are dropped.
    pub(super) fn looked(&mut self, namespace: &str, now: Instant) {
        let (within, quiet) = (self.pace.within, self.pace.quiet);
        self.fights.retain(|(place, ..), fight| {
            if place != namespace {
                return true;
            }
            if matches!(fight.stage, Stage::Probing) {
                fight.stage = Stage::Watching(now + quiet);
            }
            !matches!(fight.stage, Stage::Counting) || now.duration_since(fight.since) <= within
        });
    }

    /// When to look again.
    pub(super) fn due(&self) -> Option<Instant> {
        let times = self.fights.values().filter_map(|fight| match fight.stage {
            Stage::Held(at) | Stage::Watching(at) => Some(at),
            Stage::Counting | Stage::Probing => None,
        });
        times.min()
    }

    /// The namespaces to look at now.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<String> {
        let mut due = vec![];
        self.fights.retain(|(namespace, ..), fight| match fight.stage {
            Stage::Held(at) if at <= now => {
                fight.stage = Stage::Probing;
                due.push(namespace.clone());
                true
            }
            Stage::Watching(at) if at <= now => {
                due.push(namespace.clone());
                false
            }
            _ => true,
        });
        due
    }

    /// What is contested in a namespace.
    pub(super) fn of(&self, namespace: &str) -> Vec<Contest> {
        let here = self.fights.iter().filter(|((place, ..), fight)| place == namespace && fight.pauses > 0);
        here.map(|((_, kind, name), fight)| Contest { kind: *kind, name: name.clone(), manager: fight.manager.clone() })
            .collect()
    }

    /// Number of contested objects.
    pub(super) fn count(&self) -> usize {
        self.fights.values().filter(|fight| fight.pauses > 0).count()
    }

    /// What is wanted of a namespace changed, or it is nobody's any more: whatever was fought over is past.
    pub(super) fn forget(&mut self, namespace: &str) {
        self.fights.retain(|(place, ..), _| place != namespace);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn quota() -> Object {
        ("shop-dev".into(), ObjectKind::ResourceQuota, "bailiwick".into())
    }

    fn other() -> Option<String> {
        Some("another-applier".to_owned())
    }

    #[tokio::test]
    async fn the_fifth_revert_is_the_last_for_a_while_that_grows() {
        let pace = Pace::default();
        let (mut contests, mut now) = (Contests::new(pace), Instant::now());
        for _ in 1..5 {
            assert!(!contests.reverted(quota(), other(), now));
            now += SECOND;
        }
        assert_eq!((contests.count(), contests.of("shop-dev"), contests.due()), (0, vec![], None));
        assert!(contests.reverted(quota(), None, now));
        let contest = contests.of("shop-dev");
        assert_eq!(contest[0].to_string(), "another-applier keeps changing ResourceQuota bailiwick");
        assert!(contests.of("shop-test").is_empty());
        let mut longest = Duration::ZERO;
        for round in 0..8 {
            assert!(contests.held(&quota()));
            assert!(!contests.held(&("shop-dev".into(), ObjectKind::LimitRange, "bailiwick".into())));
            let pause = contests.due().unwrap() - now;
            let whole = (Duration::from_secs(30) * (1 << round)).min(pace.pause.1);
            assert!(pause <= whole && pause >= whole.mul_f64(0.74), "{pause:?} of {whole:?}");
            longest = longest.max(pause);
            assert!(contests.take_due(now).is_empty());
            now += pause;
            assert_eq!(contests.take_due(now), ["shop-dev"]);
            // Put right once, and changed again.
            assert!(!contests.held(&quota()));
            assert!(!contests.reverted(quota(), other(), now));
            now += SECOND;
            assert!(contests.reverted(quota(), other(), now));
        }
        assert!(longest <= pace.pause.1);
    }

    #[tokio::test]
    async fn a_fight_is_over_when_the_other_side_stops() {
        let (mut contests, mut now) = (Contests::new(Pace::default()), Instant::now());
        for _ in 0..5 {
            contests.reverted(quota(), other(), now);
        }
        now = contests.due().unwrap();
        assert_eq!(contests.take_due(now), ["shop-dev"]);
        // Nothing was to be put right any more.
        contests.looked("shop-test", now);
        assert_eq!(contests.due(), None);
        contests.looked("shop-dev", now);
        assert_eq!(contests.due(), Some(now + Pace::default().quiet));
        assert_eq!(contests.count(), 1);
        now = contests.due().unwrap();
        assert_eq!(contests.take_due(now), ["shop-dev"]);
        assert_eq!((contests.count(), contests.due()), (0, None));
    }

    #[tokio::test]
    async fn edits_now_and_then_are_no_fight() {
        let (mut contests, mut now) = (Contests::new(Pace::default()), Instant::now());
        for _ in 0..50 {
            assert!(!contests.reverted(quota(), other(), now));
            now += Duration::from_secs(6 * 60);
        }
        contests.looked("shop-dev", now + Duration::from_secs(3600));
        assert!(contests.fights.is_empty());
    }
}
