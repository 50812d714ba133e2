//! Views: from which revision on a caller's set of namespaces has been what it is.
//!
//! A watch goes on from a revision that a list or an earlier watch gave. What has joined the set since then would be
//! missed, and what has left it would stay in the client's memory as a ghost. So a watch may go on only from a revision
//! at which the set was the one that it is now; any other gets the answer for a revision that is too old, and the
//! client lists anew.
//!
//! Nothing of this survives a restart. So what a client may have seen before the view was known has to be older than
//! what it is known from: that is an answer of the cluster's newest, and none of a cache, which may be older.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lru::LruCache;
use parking_lot::Mutex;

use super::frames::Ahead;
use super::members::SetId;
use super::query::Options;

/// Most views that are remembered while nobody watches them. Beyond it, who has most of them loses the one used longest
/// ago.
const MOST: usize = 20_000;
/// Most of one account: so many kinds that it lists, in so many projects, with so many differently limited tokens.
const EACH: usize = 1_000;
/// Most ranges of revisions that went ahead, of one view. Beyond it older ones become coarser.
const RANGES: usize = 64;

/// What is remembered of one caller's view of one resource.
#[derive(Debug)]
pub struct View {
    set: SetId,
    /// The set is what it is at this revision and every later one.
    since: u64,
    /// The newest revision that a client with this view may have seen.
    handed: Arc<AtomicU64>,
    /// The same of the set before: its watches are cut within moments, and may say something until then.
    earlier: Option<Arc<AtomicU64>>,
    /// Events that went ahead, in the order in which they did.
    ahead: Mutex<VecDeque<Ahead>>,
}

impl View {
    /// A client has seen this revision.
    pub fn handed(&self, revision: u64) {
        self.handed.fetch_max(revision, Ordering::Relaxed);
    }

    /// Events went ahead of other members.
    fn goes_ahead(&self, new: Ahead) {
        let mut known = self.ahead.lock();
        known.push_back(new);
        if known.len() <= RANGES {
            return;
        }
        // Two neighbours become one: those of which it costs least to begin earlier, for their age. So whoever goes on
        // from long ago sees again a part of what happened since, and not all.
        let cost = |at: usize| {
            let both = known[at].with(known[at + 1]);
            (both.last - both.least) as f64 / (new.last.saturating_sub(both.last) + 1) as f64
        };
        let cheapest = (0..known.len() - 1).min_by(|a, b| cost(*a).total_cmp(&cost(*b))).unwrap_or_default();
        if let Some(later) = known.remove(cheapest + 1) {
            known[cheapest] = known[cheapest].with(later);
        }
    }

    /// Where all members have to begin for a client that remembers `revision`.
    fn start(&self, revision: u64) -> u64 {
        let known = self.ahead.lock();
        let within = known.iter().filter(|ahead| (ahead.first..=ahead.last).contains(&revision));
        within.map(|ahead| ahead.least).min().map_or(revision, |least| least.min(revision))
    }

    fn since(&self) -> u64 {
        self.earlier.as_ref().map_or(self.since, |handed| self.since.max(after(handed.load(Ordering::Relaxed))))
    }

    /// The newest revision that was handed out, with this set or with the one before.
    fn newest(&self) -> u64 {
        let earlier = self.earlier.as_ref().map_or(0, |handed| handed.load(Ordering::Relaxed));
        self.handed.load(Ordering::Relaxed).max(earlier)
    }
}

fn after(revision: u64) -> u64 {
    revision.saturating_add(1)
}

/// What a watch knows of its view.
pub enum Viewed {
    /// It goes on from what a list gave.
    Known(Arc<View>),
    /// It begins with what is there; from then on the view is known.
    Beginning {
        /// The memory.
        views: Arc<Views>,
        /// Name of the view.
        name: String,
        /// The namespaces.
        set: SetId,
        /// See [`Views::before`].
        before: Option<u64>,
    },
}

impl Viewed {
    /// The client has seen this revision.
    pub fn seen(&self, newest: u64) {
        if let Self::Known(view) = self {
            view.handed(newest);
        }
    }

    /// Some of what is written next goes ahead of other members.
    pub fn goes_ahead(&self, ahead: Ahead) {
        if let Self::Known(view) = self {
            view.goes_ahead(ahead);
        }
    }

    /// From where all members have to be watched for a client that goes on from `revision`.
    pub fn start(&self, revision: u64) -> u64 {
        match self {
            Self::Known(view) => view.start(revision),
            Self::Beginning { .. } => revision,
        }
    }

    /// All that was there has been said, and the client may go on from this revision.
    pub fn begins(&mut self, revision: u64) {
        if let Self::Beginning { views, name, set, before } = self {
            views.listed(name, *set, revision, before.take());
            // Also where the client may not go on from this very revision: what the watch says from here on is seen, and
            // what of it goes ahead is to be known.
            if let Some(view) = views.of(name, *set) {
                *self = Self::Known(view);
            }
        }
    }
}

/// The memory of views.
#[derive(Default)]
pub struct Views {
    known: Mutex<Known>,
}

/// By account, so that none makes others list anew by remembering much.
#[derive(Default)]
struct Known {
    by_account: HashMap<String, LruCache<String, Arc<View>>>,
    count: usize,
}

/// Names begin with the account.
fn account(view: &str) -> &str {
    view.split('\n').next().unwrap_or_default()
}

/// Forgets the view that was used longest ago. One that a watch holds stays, and the budget of streams bounds how many
/// these are: a new view in its place would not know what the watch has said, and what of it went ahead.
fn pop_unwatched(own: &mut LruCache<String, Arc<View>>, except: &str) -> bool {
    let mut oldest_first = own.iter().rev();
    let found = oldest_first.find(|(name, view)| *name != except && Arc::strong_count(view) == 1);
    let found = found.map(|(name, _)| name.clone());
    found.is_some_and(|name| own.pop(&name).is_some())
}

impl Known {
    fn peek(&self, view: &str) -> Option<&Arc<View>> {
        self.by_account.get(account(view))?.peek(view)
    }

    fn get(&mut self, view: &str) -> Option<&Arc<View>> {
        self.by_account.get_mut(account(view))?.get(view)
    }

    fn put(&mut self, view: &str, fresh: View) {
        let own = self.by_account.entry(account(view).to_owned()).or_insert_with(LruCache::unbounded);
        let before = own.len();
        own.put(view.to_owned(), Arc::new(fresh));
        if own.len() > EACH {
            pop_unwatched(own, view);
        }
        self.count += own.len() - before;
        if self.count > MOST {
            self.forget(view);
        }
    }

    fn forget(&mut self, except: &str) {
        let Some(most) = self.by_account.values_mut().max_by_key(|own| own.len()) else { return };
        if pop_unwatched(most, except) {
            self.count -= 1;
        }
        self.by_account.retain(|_, own| !own.is_empty());
    }
}

impl Views {
    /// The newest revision that was handed out before a question is asked that the cluster answers from its newest: an
    /// answer from before it shows that the cluster's revisions went back. `None` where a cache may answer.
    pub fn before(&self, view: &str, options: &Options) -> Option<u64> {
        let newest = options.revision.is_empty() && options.proceed.is_none();
        newest.then(|| self.known.lock().peek(view).map_or(0, |view| view.newest()))
    }

    /// The options of a list that may come from a cache. Where the view is not known, it is asked of the newest: else
    /// the client could not go on from it.
    pub fn known_from<'a>(&self, view: &str, options: &'a Options) -> Cow<'a, Options> {
        if options.revision != "0" || options.proceed.is_some() || self.known.lock().peek(view).is_some() {
            return Cow::Borrowed(options);
        }
        Cow::Owned(Options { revision: String::new(), matching: None, ..options.clone() })
    }

    /// A list of `set` was made at `revision`. Returns whether the client may go on from there: not if somebody with
    /// another set may have seen the same revision, because the two could not be told apart later. The cluster's
    /// revision moves on within seconds, and then the list is to be made again.
    ///
    /// `before` is what [`Views::before`] said. A cluster that was restored from a backup, or that once named an absurd
    /// revision, would else be waited for until it gets there again.
    pub fn listed(&self, view: &str, set: SetId, revision: u64, before: Option<u64>) -> bool {
        let mut known = self.known.lock();
        let old = known.get(view).filter(|_| before.is_none_or(|before| revision >= before));
        let (since, handed, earlier) = match old {
            Some(old) if old.set == set => {
                old.handed(revision);
                return revision >= old.since();
            }
            Some(old) => {
                let newest = old.newest();
                (revision.max(after(newest)), revision.max(newest), Some(old.handed.clone()))
            }
            // Somebody may remember a newer revision, seen before this was known.
            None if before.is_none() => return false,
            None => (revision, revision, None),
        };
        let fresh = View { set, since, handed: Arc::new(AtomicU64::new(handed)), earlier, ahead: Mutex::default() };
        known.put(view, fresh);
        revision >= since
    }

    /// The view, if it is of `set` now.
    fn of(&self, view: &str, set: SetId) -> Option<Arc<View>> {
        self.known.lock().get(view).filter(|view| view.set == set).cloned()
    }

    /// The view, if a watch of `set` may go on from `revision`.
    pub fn resumes(&self, view: &str, set: SetId, revision: u64) -> Option<Arc<View>> {
        self.of(view, set).filter(|view| revision >= view.since())
    }
}

#[cfg(test)]
mod tests {
    use super::super::members::SetId;
    use super::super::query::Match;
    use super::*;

    fn set(name: u8) -> SetId {
        serde_json::from_value(serde_json::json!([name, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])).unwrap()
    }

    #[test]
    fn a_watch_goes_on_from_where_the_set_was_the_same() {
        let views = Views::default();
        assert!(views.resumes("v", set(1), 10).is_none(), "unknown");
        assert!(views.listed("v", set(1), 10, Some(0)));
        assert!(views.resumes("v", set(1), 10).is_some());
        assert!(views.resumes("v", set(1), 12).is_some());
        assert!(views.resumes("v", set(1), 9).is_none(), "from before");
        assert!(views.resumes("v", set(2), 12).is_none(), "another set");
        assert!(views.resumes("w", set(1), 12).is_none(), "somebody else's");
    }

    #[test]
    fn a_revision_seen_with_another_set_is_not_gone_on_from() {
        let views = Views::default();
        assert!(views.listed("v", set(1), 10, Some(0)));
        views.resumes("v", set(1), 10).unwrap().handed(20);
        // The cluster stands still: who has seen 20 with the smaller set cannot be told from who sees it now.
        assert!(!views.listed("v", set(2), 20, Some(0)));
        assert!(views.resumes("v", set(2), 20).is_none());
        assert!(!views.listed("v", set(2), 20, Some(0)));
        assert!(views.listed("v", set(2), 21, Some(0)));
        assert!(views.resumes("v", set(2), 21).is_some());
        // And back: what was seen with the first set is too old by now.
        assert!(views.listed("v", set(1), 30, Some(0)));
        assert!(views.resumes("v", set(1), 20).is_none());
    }

    #[test]
    fn what_is_said_with_the_old_set_after_the_change_is_not_gone_on_from() {
        let views = Views::default();
        views.listed("v", set(1), 10, Some(0));
        let old = views.resumes("v", set(1), 10).unwrap();
        assert!(views.listed("v", set(2), 20, Some(0)));
        assert!(views.resumes("v", set(2), 20).is_some());
        // A watch of the old set has not been cut yet.
        old.handed(25);
        assert!(views.resumes("v", set(2), 25).is_none());
        assert!(!views.listed("v", set(2), 25, Some(0)));
        assert!(views.listed("v", set(2), 26, Some(0)));
        assert!(views.resumes("v", set(2), 26).is_some());
    }

    #[test]
    fn an_old_list_from_a_cache_does_not_take_back_what_was_seen() {
        let views = Views::default();
        views.listed("v", set(1), 30, Some(0));
        assert!(!views.listed("v", set(2), 20, Some(0)));
        assert!(!views.listed("v", set(1), 25, Some(0)), "seen at 30 with other sets");
        assert!(views.resumes("v", set(1), 30).is_none());
    }

    #[test]
    fn one_account_makes_no_other_list_anew() {
        let views = Views::default();
        let knows = |name: &str| views.resumes(name, set(1), 10).is_some();
        views.listed("jane\npods", set(1), 10, Some(0));
        for n in 0..MOST + 10 {
            views.listed(&format!("joe\n{n}"), set(1), 10, Some(0));
        }
        assert!(knows("jane\npods"));
        assert!(knows(&format!("joe\n{}", MOST + 9)) && !knows(&format!("joe\n{}", MOST + 9 - EACH)));
        assert_eq!(views.known.lock().count, EACH + 1);
        // Also many together forget their own first.
        for n in 0..MOST + 10 {
            views.listed(&format!("joe-{}\n{n}", n % 30), set(1), 10, Some(0));
        }
        assert!(knows("jane\npods"));
        let known = views.known.lock();
        assert_eq!(known.count, MOST);
        assert_eq!(known.by_account.values().map(LruCache::len).sum::<usize>(), MOST);
        assert!(known.by_account.values().all(|own| !own.is_empty()));
    }

    #[test]
    fn a_watch_that_begins_where_another_set_was_seen_is_remembered_all_the_same() {
        let views = Arc::new(Views::default());
        views.listed("v", set(1), 10, Some(0));
        let mut viewed = Viewed::Beginning { views: views.clone(), name: "v".into(), set: set(2), before: None };
        viewed.begins(10);
        assert!(views.resumes("v", set(2), 10).is_none(), "the first set was seen there");
        let Viewed::Known(view) = viewed else { panic!("the watch writes into no view") };
        assert!(Arc::ptr_eq(&view, &views.resumes("v", set(2), 11).unwrap()));
    }

    #[test]
    fn what_is_watched_is_not_forgotten() {
        let views = Views::default();
        views.listed("joe\npods", set(1), 10, Some(0));
        let watched = views.resumes("joe\npods", set(1), 10).unwrap();
        for n in 0..EACH + 10 {
            views.listed(&format!("joe\n{n}"), set(1), 10, Some(0));
        }
        watched.handed(30);
        // What the watch has said counts still: with another set it is not gone on from.
        assert!(!views.listed("joe\npods", set(2), 30, Some(30)));
        assert!(views.resumes("joe\npods", set(2), 30).is_none());
        drop(watched);
        for n in 0..EACH + 10 {
            views.listed(&format!("joe\n{n}"), set(1), 11, Some(0));
        }
        assert!(views.resumes("joe\npods", set(2), 40).is_none(), "forgotten, once nobody watches");
        assert_eq!(views.known.lock().count, EACH);
    }

    #[test]
    fn a_cluster_that_went_back_is_not_waited_for() {
        let views = Views::default();
        let newest = Options::default();
        let cached = Options { revision: "0".into(), ..Options::default() };
        assert!(views.listed("v", set(1), u64::MAX, Some(0)));
        assert!(views.resumes("v", set(1), u64::MAX).is_some());
        // From a cache an older answer is nothing strange.
        assert_eq!(views.before("v", &cached), None);
        assert!(!views.listed("v", set(1), 40, views.before("v", &cached)));
        assert!(!views.listed("v", set(2), 40, Some(0)));
        // From the newest it is: everything counts anew, with the set of now.
        let before = views.before("v", &newest);
        assert_eq!(before, Some(u64::MAX));
        assert!(views.listed("v", set(2), 41, before));
        assert!(views.resumes("v", set(2), 41).is_some());
        assert!(views.resumes("v", set(1), 41).is_none());
        // What stands still has not gone back.
        let before = views.before("v", &newest);
        assert!(!views.listed("v", set(3), 41, before));
        assert_eq!(views.before("w", &newest), Some(0));
    }

    #[test]
    fn what_may_come_from_a_cache_makes_no_view_known() {
        let views = Views::default();
        let cached = Options { revision: "0".into(), matching: Some(Match::NotOlderThan), ..Options::default() };
        // Before a restart somebody has seen 20 with another set.
        assert!(!views.listed("v", set(2), 10, views.before("v", &cached)));
        assert!(views.resumes("v", set(2), 20).is_none());
        // So the first list is one of the newest; later ones may come from a cache again.
        assert_eq!(*views.known_from("v", &cached), Options::default());
        assert!(views.listed("v", set(2), 30, views.before("v", &Options::default())));
        assert_eq!(*views.known_from("v", &cached), cached);
    }

    #[test]
    fn whoever_goes_on_from_an_event_that_went_ahead_begins_earlier() {
        let views = Views::default();
        views.listed("v", set(1), 10, Some(0));
        let view = views.resumes("v", set(1), 10).unwrap();
        view.goes_ahead(Ahead { first: 15, last: 15, least: 10 });
        assert_eq!([10, 14, 15, 16].map(|revision| view.start(revision)), [10, 14, 10, 16]);
        // However many there are, memory is bounded, nobody begins too late, and nobody much too early.
        for event in 16..10_000 {
            view.goes_ahead(Ahead { first: event, last: event, least: event - 3 });
        }
        assert_eq!(view.ahead.lock().len(), RANGES);
        for event in 16..10_000 {
            let start = view.start(event);
            assert!(start <= event - 3 && event - start <= 8 + (10_000 - event) / 2, "{event} begins at {start}");
        }
    }
}
