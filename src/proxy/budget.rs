//! Budgets: how much of the service and of a cluster one token, one account and one project may have at a time.
//!
//! Requests are counted while they are in flight, streams (long-running responses) while they are open, and what is spread
//! over namespaces as often as a cluster is asked at a time. Account and token are counted before anything is done for a
//! request; project and cluster once it is permitted, so that nobody learns from a refusal how busy others are where they
//! have nothing.
//!
//! A bound that several share is shared without knowing how many they are: nobody may come to have more places than are
//! free (dynamic thresholds: Choudhury and Hahne, IEEE/ACM Transactions on Networking 6(2), 1998). Who wants all of them
//! gets half, the next one half of the rest; as they come and go, n of them get one (n+1)th each, and as much stays free
//! for whoever comes next. So share accounts and projects their cluster, and accounts their project.

mod over;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

pub use self::over::Over;
use crate::metrics::{BudgetKind as Kind, BudgetScope as Scope};

/// Shards, so that requests seldom wait for one another. A power of two.
const SHARDS: usize = 32;

/// Where fewer counters are known than this, nothing is tidied.
const TIDY_FROM: usize = 64;

/// So many of each kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Most {
    /// Requests in flight.
    pub requests: usize,
    /// Streams.
    pub streams: usize,
}

impl Most {
    fn of(self, kind: Kind) -> usize {
        match kind {
            Kind::Requests => self.requests,
            Kind::Streams => self.streams,
        }
    }
}

/// The bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Of one token.
    pub token: Most,
    /// Of one account, all its tokens and all clusters together.
    pub user: Most,
    /// Of one project on one cluster, all its members together.
    pub project: Most,
    /// Of one cluster.
    pub cluster: Most,
}

/// Counts places that are taken.
#[derive(Debug, Default)]
struct Count(AtomicUsize);

impl Count {
    fn now(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Takes places that are nobody else's, and says how many that makes.
    fn add(&self, places: usize) -> usize {
        self.0.fetch_add(places, Ordering::Relaxed) + places
    }

    fn give_back(&self, places: usize) {
        self.0.fetch_sub(places, Ordering::Relaxed);
    }

    /// Takes places of `most`, for one that then has `standing` of them: if so many are free, also where they are taken
    /// one after the other. Says how many are taken then; where it takes none, how many are.
    fn take(&self, places: usize, most: usize, standing: usize) -> Result<usize, usize> {
        let with_these = |used: usize| {
            let free = most.checked_sub(used)?;
            // The last one of them finds so many less.
            (places <= free && standing + places <= free + 1).then_some(used + places)
        };
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, with_these).map(|before| before + places)
    }
}

/// The counts of one token, account, project or cluster.
#[derive(Debug, Default)]
struct Used {
    requests: Count,
    streams: Count,
}

impl Used {
    fn of(&self, kind: Kind) -> &Count {
        match kind {
            Kind::Requests => &self.requests,
            Kind::Streams => &self.streams,
        }
    }
}

/// A token that is used.
#[derive(Debug)]
struct Credential {
    used: Used,
    account: Arc<Account>,
}

/// An account that is used.
#[derive(Debug, Default)]
struct Account {
    used: Used,
    /// By cluster.
    here: Mutex<Known<Here>>,
}

/// An account on a cluster.
#[derive(Debug)]
struct Here {
    used: Used,
    cluster: Arc<Cluster>,
    /// By project.
    members: Mutex<Known<Member>>,
}

/// An account in a project on a cluster.
#[derive(Debug)]
struct Member {
    used: Used,
    project: Arc<Used>,
}

#[derive(Debug, Default)]
struct Cluster {
    used: Used,
    projects: Mutex<Known<Used>>,
}

/// Counters by name. They stay when nobody holds them, so that the next request allocates nothing, but not for ever.
#[derive(Debug)]
struct Known<T> {
    by_name: HashMap<Box<str>, Arc<T>>,
    tidy_at: usize,
}

impl<T> Default for Known<T> {
    fn default() -> Self {
        Self { by_name: HashMap::new(), tidy_at: TIDY_FROM }
    }
}

impl<T> Known<T> {
    fn find(&mut self, name: &str, make: impl FnOnce() -> T) -> Arc<T> {
        if let Some(found) = self.by_name.get(name) {
            return found.clone();
        }
        if self.by_name.len() >= self.tidy_at {
            // References are handed out here only: what nobody else holds, nobody comes to hold meanwhile.
            self.by_name.retain(|_, counter| Arc::strong_count(counter) > 1);
            self.tidy_at = TIDY_FROM.max(2 * self.by_name.len());
        }
        let made = Arc::new(make());
        self.by_name.insert(name.into(), made.clone());
        made
    }
}

/// Counts what is in flight, and bounds it.
pub struct Budget {
    limits: Limits,
    hasher: RandomState,
    credentials: [Mutex<Known<Credential>>; SHARDS],
    accounts: Mutex<Known<Account>>,
    clusters: Mutex<Known<Cluster>>,
}

/// Places of a request; dropping it gives them back.
#[derive(Debug)]
pub struct InFlight {
    credential: Arc<Credential>,
    kind: Kind,
    places: usize,
    ground: Option<Ground>,
}

impl InFlight {
    /// Holds the places in project and cluster for as long as its own.
    pub fn stand_on(&mut self, ground: Ground) {
        self.ground = Some(ground);
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let Self { credential, kind, places, ground: _ } = self;
        credential.used.of(*kind).give_back(*places);
        credential.account.used.of(*kind).give_back(*places);
    }
}

/// Places on a cluster and in projects there; dropping it gives them back.
#[derive(Debug)]
pub struct Ground {
    kind: Kind,
    here: Arc<Here>,
    /// Of the account on the cluster.
    in_all: usize,
    /// Of the cluster: as many, or none while they are being taken.
    of_cluster: usize,
    // Nearly always there is one project at most.
    first: Option<Held>,
    others: Vec<Held>,
}

/// An account's places in a project.
#[derive(Debug)]
struct Held {
    member: Arc<Member>,
    places: usize,
}

impl Drop for Ground {
    fn drop(&mut self) {
        let Self { kind, here, in_all, of_cluster, first, others } = self;
        for Held { member, places } in first.iter().chain(&*others) {
            member.used.of(*kind).give_back(*places);
            member.project.of(*kind).give_back(*places);
        }
        here.used.of(*kind).give_back(*in_all);
        here.cluster.used.of(*kind).give_back(*of_cluster);
    }
}

impl Member {
    /// Takes places of the project, of which it has `most`. Says how many it uses then.
    fn enter(&self, kind: Kind, places: usize, most: usize) -> Result<usize, (Scope, usize)> {
        // Counted first, so that requests of one account that come at the same time see each other.
        let mine = self.used.of(kind).add(places);
        self.project.of(kind).take(places, most, mine).map_err(|taken| {
            self.used.of(kind).give_back(places);
            match taken.saturating_add(places) > most {
                true => (Scope::Project, taken),
                false => (Scope::ProjectShare, mine - places),
            }
        })
    }
}

impl Budget {
    /// Nothing is in flight yet.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            hasher: RandomState::new(),
            credentials: std::array::from_fn(|_| Mutex::default()),
            accounts: Mutex::default(),
            clusters: Mutex::default(),
        }
    }

    /// Places for a request with a token (its id) of an account (its UID).
    pub fn enter(&self, token: &str, user_uid: &str, kind: Kind, places: usize) -> Result<InFlight, Over> {
        let shard = &self.credentials[self.hasher.hash_one(token) as usize % SHARDS];
        let credential = shard.lock().find(token, || Credential {
            used: Used::default(),
            account: self.accounts.lock().find(user_uid, Account::default),
        });
        self.take(&credential, kind, places)?;
        Ok(InFlight { credential, kind, places, ground: None })
    }

    /// More places beside those of a request, to be given back before.
    pub fn beside(&self, place: &InFlight, more: usize) -> Result<InFlight, Over> {
        let InFlight { credential, kind, .. } = place;
        self.take(credential, *kind, more)?;
        Ok(InFlight { credential: credential.clone(), kind: *kind, places: more, ground: None })
    }

    fn take(&self, credential: &Credential, kind: Kind, places: usize) -> Result<(), Over> {
        let Limits { token, user, .. } = self.limits;
        let over = |scope, taken, most| Over { scope, kind, taken, most, places, project: None, cluster: None };
        let (of_user, of_token) = (user.of(kind), token.of(kind));
        let account = credential.account.used.of(kind);
        account.take(places, of_user, 0).map_err(|taken| over(Scope::User, taken, of_user))?;
        credential.used.of(kind).take(places, of_token, 0).map_err(|taken| {
            account.give_back(places);
            over(Scope::Token, taken, of_token)
        })?;
        Ok(())
    }

    /// A place in a project on a cluster, or on the cluster only, for a request that is permitted there.
    pub fn ground(&self, place: &InFlight, cluster: &str, project: Option<&str>) -> Result<Ground, Over> {
        self.spread(place, cluster, project.map(|project| (project, 1)), 1)
    }

    /// Places in several projects on a cluster, in each so many, and `in_all` on the cluster, for a request that is
    /// spread over their namespaces.
    pub fn across(
        &self,
        place: &InFlight,
        cluster: &str,
        shares: &[(&str, usize)],
        in_all: usize,
    ) -> Result<Ground, Over> {
        self.spread(place, cluster, shares.iter().copied(), in_all)
    }

    fn spread<'a>(
        &self,
        place: &InFlight,
        cluster: &str,
        shares: impl IntoIterator<Item = (&'a str, usize)>,
        in_all: usize,
    ) -> Result<Ground, Over> {
        let kind = place.kind;
        let (of_project, of_cluster) = (self.limits.project.of(kind), self.limits.cluster.of(kind));
        let over = |scope, taken, most, project: Option<&str>, places| Over {
            scope,
            kind,
            taken,
            most,
            places,
            project: project.map(str::to_owned),
            cluster: Some(cluster.to_owned()),
        };
        let here = self.here(&place.credential.account, cluster);
        let mine = here.used.of(kind).add(in_all);
        let mut ground = Ground { kind, here, in_all, of_cluster: 0, first: None, others: vec![] };
        // Account and projects share the cluster. They have their share if the one of them that has most has not more.
        let (mut foremost, mut standing) = ((None, in_all), mine);
        for (project, places) in shares {
            let member = self.member(&ground.here, project);
            let entered = member.enter(kind, places, of_project);
            let used = entered.map_err(|(scope, taken)| over(scope, taken, of_project, Some(project), places))?;
            if used > standing {
                (foremost, standing) = ((Some(project), places), used);
            }
            let held = Held { member, places };
            match &ground.first {
                None => ground.first = Some(held),
                Some(_) => ground.others.push(held),
            }
        }
        ground.here.cluster.used.of(kind).take(in_all, of_cluster, standing).map_err(|taken| {
            match taken.saturating_add(in_all) > of_cluster {
                true => over(Scope::Cluster, taken, of_cluster, None, in_all),
                false => over(Scope::ClusterShare, standing - foremost.1, of_cluster, foremost.0, foremost.1),
            }
        })?;
        ground.of_cluster = in_all;
        Ok(ground)
    }

    fn here(&self, account: &Account, cluster: &str) -> Arc<Here> {
        account.here.lock().find(cluster, || Here {
            used: Used::default(),
            cluster: self.clusters.lock().find(cluster, Cluster::default),
            members: Mutex::default(),
        })
    }

    fn member(&self, here: &Here, project: &str) -> Arc<Member> {
        here.members.lock().find(project, || Member {
            used: Used::default(),
            project: here.cluster.projects.lock().find(project, Used::default),
        })
    }

    /// How many places of each cluster are taken, for metrics.
    pub fn taken(&self, mut told: impl FnMut(&str, Kind, usize)) {
        for (name, cluster) in &self.clusters.lock().by_name {
            for kind in Kind::ALL {
                told(name, kind, cluster.used.of(kind).now());
            }
        }
    }
}
