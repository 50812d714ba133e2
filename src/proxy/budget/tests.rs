//! Budgets against a model that only adds up what is held, and by hand where they are shared.

use proptest::prelude::*;

use super::*;

const PLENTY: Most = Most { requests: 1_000_000, streams: 1_000_000 };
const UNBOUNDED: Limits = Limits { token: PLENTY, user: PLENTY, project: PLENTY, cluster: PLENTY };

fn most(n: usize) -> Most {
    Most { requests: n, streams: 2 * n }
}

fn enter(budget: &Budget, user: &str) -> Result<InFlight, Over> {
    budget.enter(&format!("token-of-{user}"), user, Kind::Requests, 1)
}

/// A request of somebody in a project on cluster `demo`.
fn go(budget: &Budget, user: &str, project: &str) -> Result<InFlight, Over> {
    let mut place = enter(budget, user)?;
    let ground = budget.ground(&place, "demo", Some(project).filter(|name| !name.is_empty()))?;
    place.stand_on(ground);
    Ok(place)
}

/// As many as there are places for.
fn all(budget: &Budget, user: &str, project: &str) -> (Vec<InFlight>, Over) {
    let mut held = vec![];
    loop {
        match go(budget, user, project) {
            Ok(place) => held.push(place),
            Err(over) => return (held, over),
        }
    }
}

#[test]
fn an_account_has_so_many_places_and_no_more_whatever_its_tokens() {
    let budget = Budget::new(Limits { user: most(3), token: most(2), ..UNBOUNDED });
    let of = |token: &str, user: &str| budget.enter(token, user, Kind::Requests, 1);
    let (first, second) = (of("a", "jane").unwrap(), of("a", "jane").unwrap());
    let over = of("a", "jane").unwrap_err();
    assert_eq!((over.scope, over.taken, over.most), (Scope::Token, 2, 2));
    let third = of("b", "jane").unwrap();
    for token in ["a", "b", "c"] {
        let over = of(token, "jane").unwrap_err();
        assert_eq!((over.scope, over.taken, over.most), (Scope::User, 3, 3), "{token}");
    }
    assert!(of("d", "joe").is_ok(), "another account has its own");
    let streams: Vec<_> = (0..4).map(|_| budget.enter("a", "jane", Kind::Streams, 1).unwrap()).collect();
    assert_eq!(
        budget.enter("a", "jane", Kind::Streams, 1).unwrap_err().scope,
        Scope::Token,
        "streams are counted apart"
    );
    drop(first);
    drop(of("a", "jane").unwrap());
    drop((second, third, streams));
    assert_eq!((0..9).map(|_| of("a", "jane")).filter(Result::is_ok).count(), 9, "nothing is held");
}

#[test]
fn one_member_gets_half_of_a_project_and_each_that_comes_a_part_of_the_rest() {
    let budget = Budget::new(Limits { project: most(24), ..UNBOUNDED });
    let (of_jane, over) = all(&budget, "jane", "shop");
    assert_eq!((of_jane.len(), over.scope, over.taken), (12, Scope::ProjectShare, 12));
    let mut others = vec![];
    for user in ["joe", "jill", "jack"] {
        let (held, over) = all(&budget, user, "shop");
        assert!(!held.is_empty(), "{user}");
        assert_eq!(over.scope, Scope::ProjectShare, "{user}");
        others.extend(held);
    }
    assert!(all(&budget, "jane", "shop").0.is_empty());
    assert_eq!(all(&budget, "jane", "billing").0.len(), 12, "another project has its own");
    // What is given back is shared anew.
    drop(of_jane);
    assert_eq!((others.len(), all(&budget, "jane", "shop").0.len()), (11, 7));
}

#[test]
fn a_project_gets_half_of_its_cluster_whoever_its_members_are() {
    let budget = Budget::new(Limits { cluster: most(100), project: most(100), ..UNBOUNDED });
    let mut hostile = vec![];
    let mut last = None;
    for n in 0..200 {
        let (held, over) = all(&budget, &format!("hostile-{n}"), "shop");
        hostile.extend(held);
        last = Some(over);
    }
    let last = last.unwrap();
    assert_eq!((hostile.len(), last.scope), (50, Scope::ClusterShare));
    assert!(last.status().message.contains("project \"shop\" has 50 "), "{}", last.status().message);
    // Three more projects do the same and give nothing back, and others still get something.
    for n in 0..3 {
        hostile.extend((0..200).flat_map(|m| all(&budget, &format!("hostile-{n}-{m}"), &format!("project-{n}")).0));
    }
    assert_eq!(hostile.len(), 50 + 25 + 13 + 6);
    assert_eq!(all(&budget, "joe", "billing").0.len(), 3);
    assert_eq!(all(&budget, "joe", "").0.len(), 3, "and so does who asks for something of no project");
    // With a bound of its own, it gets no more than that.
    let budget = Budget::new(Limits { cluster: most(100), project: most(10), ..UNBOUNDED });
    let held: Vec<_> = (0..50).flat_map(|n| all(&budget, &format!("hostile-{n}"), "shop").0).collect();
    assert!((9..=10).contains(&held.len()), "{}", held.len());
}

#[test]
fn an_account_outside_of_projects_has_its_share_of_the_cluster_too() {
    let budget = Budget::new(Limits { cluster: most(10), ..UNBOUNDED });
    let (held, over) = all(&budget, "jane", "");
    assert_eq!((held.len(), over.scope, over.taken), (5, Scope::ClusterShare, 5));
    assert!(over.status().message.contains("which is your share of it"), "{}", over.status().message);
    assert!(go(&budget, "joe", "").is_ok());
}

#[test]
fn an_account_in_many_projects_has_no_more_than_its_share_of_the_cluster() {
    let budget = Budget::new(Limits { cluster: most(40), project: most(20), ..UNBOUNDED });
    let held: Vec<_> = (0..30).flat_map(|n| all(&budget, "jane", &format!("project-{n}")).0).collect();
    assert_eq!(held.len(), 20);
    let over = go(&budget, "jane", "another").unwrap_err();
    assert_eq!((over.scope, over.project, over.taken), (Scope::ClusterShare, None, 20));
    assert!(go(&budget, "joe", "project-0").is_ok());
}

#[test]
fn what_is_spread_counts_for_each_project_its_own() {
    let budget = Budget::new(Limits { project: most(8), cluster: most(20), ..UNBOUNDED });
    let place = enter(&budget, "jane").unwrap();
    let wide = budget.across(&place, "demo", &[("shop", 3), ("billing", 1)], 4).unwrap();
    let over = budget.across(&place, "demo", &[("billing", 1), ("shop", 3)], 4).unwrap_err();
    assert_eq!((over.scope, over.project.as_deref(), over.taken), (Scope::ProjectShare, Some("shop"), 3));
    // What was taken of billing until shop refused was given back.
    assert_eq!(all(&budget, "jane", "billing").0.len(), 3);
    assert_eq!(all(&budget, "jane", "shop").0.len(), 1);
    drop(wide);
    assert_eq!(all(&budget, "jane", "shop").0.len(), 4);
    let over = budget.across(&place, "demo", &[("shop", 1)], 21).unwrap_err();
    assert_eq!((over.scope, over.most), (Scope::Cluster, 20));
    budget.taken(|_, _, taken| assert_eq!(taken, 0));
}

#[test]
fn each_refusal_names_the_budget_and_its_setting() {
    for (limits, named, setting) in [
        (Limits { token: most(1), ..UNBOUNDED }, "this token has 1 ", "proxy.max_requests_per_token"),
        (Limits { user: most(1), ..UNBOUNDED }, "you have 1 ", "proxy.max_requests_per_user"),
        (Limits { project: most(1), ..UNBOUNDED }, "project \"shop\" has 1 ", "proxy.max_requests_per_project"),
        (Limits { project: most(2), ..UNBOUNDED }, "your share of the 2 ", "proxy.max_requests_per_project"),
        (Limits { cluster: most(1), ..UNBOUNDED }, "cluster \"demo\" is busy", "proxy.max_requests_per_cluster"),
        (Limits { cluster: most(2), ..UNBOUNDED }, "which is your share of it", "proxy.max_requests_per_cluster"),
    ] {
        let budget = Budget::new(limits);
        let _held = go(&budget, "jane", "shop").unwrap();
        let over = go(&budget, "jane", "shop").unwrap_err();
        let status = over.status();
        assert_eq!((status.code, status.details.retry_after_seconds), (429, Some(1)));
        assert!(status.message.contains(named) && status.message.contains(setting), "{}", status.message);
        assert!(status.message.contains("an administrator of the platform"), "{}", status.message);
    }
}

#[test]
fn counters_in_use_survive_the_tidying_and_others_do_not_pile_up() {
    let budget = Budget::new(Limits { user: most(1), ..UNBOUNDED });
    let held = go(&budget, "jane", "shop").unwrap();
    for n in 0..10 * SHARDS * TIDY_FROM {
        let (user, project) = (format!("user-{n}"), format!("project-{n}"));
        assert!(go(&budget, &user, &project).is_ok());
    }
    assert_eq!(budget.enter("another", "jane", Kind::Requests, 1).unwrap_err().scope, Scope::User);
    drop(held);
    assert!(go(&budget, "jane", "shop").is_ok());
    let tokens: usize = budget.credentials.iter().map(|shard| shard.lock().by_name.len()).sum();
    // Each is tidied when there are twice as many as were left the last time.
    let few = 8 * SHARDS * TIDY_FROM;
    assert!(tokens <= few, "{tokens}");
    let accounts = budget.accounts.lock().by_name.len();
    assert!(accounts <= few, "{accounts}");
    let projects = budget.clusters.lock().by_name["demo"].projects.lock().by_name.len();
    assert!(projects <= few, "{projects}");
    // Of one account, too.
    let place = enter(&budget, "joe").unwrap();
    for n in 0..10 * TIDY_FROM {
        assert!(budget.ground(&place, "demo", Some(&format!("project-{n}"))).is_ok());
    }
    let here = place.credential.account.here.lock().by_name["demo"].members.lock().by_name.len();
    assert!(here <= TIDY_FROM + 1, "{here}");
}

#[test]
fn threads_never_exceed_any_of_them_together() {
    let limits = Limits { token: most(5), user: most(7), project: most(9), cluster: most(11) };
    let budget = Budget::new(limits);
    let seen = Used::default();
    let highest = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (budget, seen, highest) = (&budget, &seen, &highest);
            scope.spawn(move || {
                for n in 0..2_000 {
                    let user = ["jane", "joe", "jill"][(thread + n) % 3];
                    let Ok(place) = go(budget, user, ["shop", "billing"][n % 2]) else { continue };
                    highest.fetch_max(seen.requests.add(1), Ordering::Relaxed);
                    seen.requests.give_back(1);
                    drop(place);
                }
            });
        }
    });
    assert!((1..=11).contains(&highest.into_inner()));
    budget.taken(|_, _, taken| assert_eq!(taken, 0));
    assert_eq!(all(&budget, "jane", "shop").0.len(), 5, "all places came back");
}

/// What is held, as the model knows it.
struct Have {
    place: InFlight,
    user: usize,
    token: usize,
    kind: Kind,
    places: usize,
    shares: Vec<(usize, usize)>,
    in_all: usize,
}

fn sum<'a>(held: impl Iterator<Item = &'a Have>, of: impl Fn(&Have) -> usize) -> usize {
    held.map(of).sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Three accounts with two tokens each, three projects, one cluster; any order of coming and going.
    #[test]
    fn it_decides_as_one_that_adds_up_what_is_held(
        bounds in prop::array::uniform4(1usize..12),
        steps in prop::collection::vec((0usize..3, 0usize..2, 0usize..8, 1usize..4, any::<bool>(), any::<prop::sample::Index>()), 1..120),
    ) {
        let [token, user, project, cluster] = bounds.map(most);
        let budget = Budget::new(Limits { token, user, project, cluster });
        let mut held: Vec<Have> = vec![];
        for (who, credential, projects, wide, streams, gone) in steps {
            if projects == 0 {
                if !held.is_empty() {
                    held.swap_remove(gone.index(held.len()));
                }
                continue;
            }
            let kind = if streams { Kind::Streams } else { Kind::Requests };
            // A bit for each project: one of them, or several of which each is asked `wide` times.
            let named: Vec<usize> = (0..3).filter(|bit| projects & (1 << bit) != 0).collect();
            let shares: Vec<(usize, usize)> = named.into_iter().map(|project| (project, wide)).collect();
            let in_all = sum_of(&shares);
            let of_kind = || held.iter().filter(|have| have.kind == kind);
            let fits = {
                let of_user = sum(of_kind().filter(|have| have.user == who), |have| have.places);
                let of_token =
                    sum(of_kind().filter(|have| have.user == who && have.token == credential), |have| have.places);
                let within = of_user + in_all <= user.of(kind) && of_token + in_all <= token.of(kind);
                let in_project = |have: &Have, project: usize| -> usize {
                    have.shares.iter().filter(|(of, _)| *of == project).map(|(_, places)| places).sum()
                };
                let on_cluster = sum(of_kind(), |have| have.in_all);
                let here = sum(of_kind().filter(|have| have.user == who), |have| have.in_all);
                let free = cluster.of(kind) - on_cluster;
                let shared = shares.iter().all(|&(at, places)| {
                    let all = sum(of_kind(), |have| in_project(have, at));
                    let mine = sum(of_kind().filter(|have| have.user == who), |have| in_project(have, at));
                    let left = project.of(kind) - all;
                    let fair = mine + 2 * places <= left + 1 && all + places + in_all <= free + 1;
                    places <= left && fair
                });
                within && shared && in_all <= free && here + 2 * in_all <= free + 1
            };
            let (token_id, user_uid) = (format!("{who}-{credential}"), format!("user-{who}"));
            let names: Vec<(String, usize)> = shares.iter().map(|(at, places)| (format!("p{at}"), *places)).collect();
            let borrowed: Vec<(&str, usize)> = names.iter().map(|(name, places)| (name.as_str(), *places)).collect();
            let entered = budget.enter(&token_id, &user_uid, kind, in_all).and_then(|mut place| {
                let ground = budget.across(&place, "demo", &borrowed, in_all)?;
                place.stand_on(ground);
                Ok(place)
            });
            prop_assert_eq!(entered.is_ok(), fits, "{:?}", entered.err());
            if let Ok(place) = entered {
                held.push(Have { place, user: who, token: credential, kind, places: in_all, shares, in_all });
            }
        }
        let counted = |kind: Kind| -> usize { held.iter().filter(|have| have.kind == kind).map(|have| have.place.places).sum() };
        let expected = Kind::ALL.map(counted);
        budget.taken(|_, kind, taken| assert_eq!(taken, expected[kind as usize]));
        drop(held);
        budget.taken(|_, _, taken| assert_eq!(taken, 0));
    }
}

fn sum_of(shares: &[(usize, usize)]) -> usize {
    shares.iter().map(|(_, places)| places).sum()
}
