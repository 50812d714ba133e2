//! Views: from which revision on a caller's set of namespaces has been what it is.
//!
//! A watch goes on from a revision that a list or an earlier watch gave. What has joined the set since then would be
//! missed, and what has left it would stay in the client's memory as a ghost. So a watch may go on only from a revision
//! at which the set was the one that it is now; any other gets the answer for a revision that is too old, and the
//! client lists anew. Nothing of this survives a restart: everybody lists anew once.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::members::SetId;

/// Most views that are remembered; the one used longest ago is forgotten first.
const MOST: NonZeroUsize = NonZeroUsize::new(20_000).unwrap();

/// What is remembered of one caller's view of one resource.
#[derive(Debug)]
pub struct View {
    set: SetId,
    /// The set is what it is at this revision and every later one.
    since: u64,
    /// The newest revision that a client with this view may have seen.
    handed: AtomicU64,
}

impl View {
    /// A client has seen this revision.
    pub fn handed(&self, revision: u64) {
        self.handed.fetch_max(revision, Ordering::Relaxed);
    }
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
    },
}

impl Viewed {
    /// The client has seen this revision.
    pub fn seen(&self, newest: u64) {
        if let Self::Known(view) = self {
            view.handed(newest);
        }
    }

    /// All that was there has been said, and the client may go on from this revision.
    pub fn begins(&mut self, revision: u64) {
        if let Self::Beginning { views, name, set } = self {
            views.listed(name, *set, revision);
            if let Some(view) = views.resumes(name, *set, revision) {
                *self = Self::Known(view);
            }
        }
    }
}

/// The memory of views.
pub struct Views {
    known: Mutex<lru::LruCache<String, Arc<View>>>,
}

impl Default for Views {
    fn default() -> Self {
        Self { known: Mutex::new(lru::LruCache::new(MOST)) }
    }
}

impl Views {
    /// A list of `set` was made at `revision`. Returns whether the client may go on from there: not if somebody with
    /// another set may have seen the same revision, because the two could not be told apart later. The cluster's
    /// revision moves on within seconds, and then the list is to be made again.
    pub fn listed(&self, view: &str, set: SetId, revision: u64) -> bool {
        let mut known = self.known.lock();
        let since = match known.get(view) {
            Some(old) if old.set == set => {
                old.handed(revision);
                return revision >= old.since;
            }
            Some(old) => revision.max(old.handed.load(Ordering::Relaxed).saturating_add(1)),
            None => revision,
        };
        let fresh = View { set, since, handed: AtomicU64::new(revision) };
        known.put(view.to_owned(), Arc::new(fresh));
        revision >= since
    }

    /// The view, if a watch of `set` may go on from `revision`.
    pub fn resumes(&self, view: &str, set: SetId, revision: u64) -> Option<Arc<View>> {
        let mut known = self.known.lock();
        let view = known.get(view)?;
        (view.set == set && revision >= view.since).then(|| view.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::super::members::SetId;
    use super::*;

    fn set(name: u8) -> SetId {
        serde_json::from_value(serde_json::json!([name, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])).unwrap()
    }

    #[test]
    fn a_watch_goes_on_from_where_the_set_was_the_same() {
        let views = Views::default();
        assert!(views.resumes("v", set(1), 10).is_none(), "unknown");
        assert!(views.listed("v", set(1), 10));
        assert!(views.resumes("v", set(1), 10).is_some());
        assert!(views.resumes("v", set(1), 12).is_some());
        assert!(views.resumes("v", set(1), 9).is_none(), "from before");
        assert!(views.resumes("v", set(2), 12).is_none(), "another set");
        assert!(views.resumes("w", set(1), 12).is_none(), "somebody else's");
    }

    #[test]
    fn a_revision_seen_with_another_set_is_not_gone_on_from() {
        let views = Views::default();
        assert!(views.listed("v", set(1), 10));
        views.resumes("v", set(1), 10).unwrap().handed(20);
        // The cluster stands still: who has seen 20 with the smaller set cannot be told from who sees it now.
        assert!(!views.listed("v", set(2), 20));
        assert!(views.resumes("v", set(2), 20).is_none());
        assert!(!views.listed("v", set(2), 20));
        assert!(views.listed("v", set(2), 21));
        assert!(views.resumes("v", set(2), 21).is_some());
        // And back: what was seen with the first set is too old by now.
        assert!(views.listed("v", set(1), 30));
        assert!(views.resumes("v", set(1), 20).is_none());
    }
}
