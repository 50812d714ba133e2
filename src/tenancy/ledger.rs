//! The arithmetic of a ledger: what a namespace's share is, whether it fits, and what changes when limits do. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::Share;
use crate::domain::quantity::{Quantity, QuotaKey, check_quota};
use crate::records::Ledger;
use crate::resources::project::ProjectCluster;

/// Why a namespace does not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Misfit {
    /// The project has as many namespaces as it may.
    Full {
        /// Most it may have.
        max: u32,
    },
    /// The sum of the shares would exceed a limit.
    Short(Shortage),
    /// A limit or share is no quantity; which and why.
    Unreadable(String),
}

/// A share that does not fit: which resource, and by how much.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shortage {
    /// ResourceQuota key.
    pub resource: String,
    /// The namespace's share.
    pub asked: String,
    /// What other namespaces leave of the limit.
    pub free: String,
    /// Hard limit of the project on the cluster.
    pub limit: String,
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resource, asked, free, limit } = self;
        write!(f, "{resource}: {asked} asked, {free} free of {limit}")
    }
}

/// Most namespaces that a project may have on a cluster.
pub fn max_namespaces(place: &ProjectCluster) -> u32 {
    place.max_namespaces.unwrap_or(u32::try_from(place.namespaces.len()).unwrap_or(u32::MAX))
}

/// The share that the spec gives a namespace: the one written for it, else limit ÷ maximum number, key by key.
pub fn share_of(place: &ProjectCluster, namespace: &str) -> Result<Share, String> {
    let amounts = wanted(place, namespace)?;
    Ok(amounts.into_iter().map(|(key, amount)| (key, amount.to_string())).collect())
}

/// Reserves the share of a namespace, marked pending at `at` (RFC 3339). A namespace that has a share gets it anew.
/// Nothing is changed where it does not fit: it is refused whole.
pub fn reserve(ledger: &mut Ledger, place: &ProjectCluster, namespace: &str, at: &str) -> Result<(), Misfit> {
    if !ledger.shares.contains_key(namespace) {
        // Declared namespaces keep their places while they do not exist yet.
        let mut names: BTreeSet<&str> = ledger.shares.keys().map(String::as_str).collect();
        names.extend(place.namespaces.iter().map(String::as_str));
        names.insert(namespace);
        let max = max_namespaces(place);
        if names.len() > max as usize {
            return Err(Misfit::Full { max });
        }
    }
    let asked = wanted(place, namespace).map_err(Misfit::Unreadable)?;
    for (key, amount) in &asked {
        let free = free(ledger, place, key, Some(namespace)).map_err(Misfit::Unreadable)?;
        if *amount > free {
            return Err(Misfit::Short(shortage(place, key, *amount, free)));
        }
    }
    let share = asked.into_iter().map(|(key, amount)| (key, amount.to_string())).collect();
    ledger.shares.insert(namespace.to_owned(), share);
    ledger.pending.insert(namespace.to_owned(), at.to_owned());
    Ok(())
}

/// Brings the shares to what the spec gives now, and reports the namespaces that cannot have theirs.
///
/// The sum stays within every limit at all times. A lowered limit lowers shares, below what is in use if it must:
/// Kubernetes then refuses what is new and stops nothing that runs. What a namespace has comes before what another
/// would get more.
pub fn reshare(ledger: &mut Ledger, place: &ProjectCluster) -> Result<Vec<(String, Shortage)>, String> {
    let mut shares: BTreeMap<String, Share> = BTreeMap::new();
    let mut short = vec![];
    for namespace in ledger.shares.keys() {
        shares.insert(namespace.clone(), Share::new());
    }
    for (key, limit) in &place.quota {
        let limit = check_quota(key, limit).map_err(|why| format!("{key}: {why}"))?;
        let mut left = limit;
        let mut given: BTreeMap<&str, (Quantity, Quantity)> = BTreeMap::new();
        for (namespace, old) in &ledger.shares {
            let wanted = wanted_of(place, namespace, key, limit)?;
            // A record of another version may hold what is no quantity; it counts as nothing had.
            let had = old.get(key).and_then(|text| text.parse::<Quantity>().ok()).unwrap_or_default();
            let kept = wanted.min(had).min(left);
            left = left.checked_sub(kept).map_err(|why| format!("{key}: {why}"))?;
            given.insert(namespace, (wanted, kept));
        }
        for (namespace, (wanted, kept)) in given {
            let missing = wanted.checked_sub(kept).map_err(|why| format!("{key}: {why}"))?;
            let amount = if missing <= left {
                left = left.checked_sub(missing).map_err(|why| format!("{key}: {why}"))?;
                wanted
            } else {
                let free = kept.checked_add(left).map_err(|why| format!("{key}: {why}"))?;
                short.push((namespace.to_owned(), shortage(place, key, wanted, free)));
                kept
            };
            if let Some(share) = shares.get_mut(namespace) {
                share.insert(key.clone(), amount.to_string());
            }
        }
    }
    ledger.shares = shares;
    Ok(short)
}

/// What the other namespaces leave of a limit.
fn free(ledger: &Ledger, place: &ProjectCluster, key: &str, except: Option<&str>) -> Result<Quantity, String> {
    let limit = place.quota.get(key).ok_or_else(|| format!("{key}: no limit"))?;
    let mut free = check_quota(key, limit).map_err(|why| format!("{key}: {why}"))?;
    for (namespace, share) in &ledger.shares {
        if Some(namespace.as_str()) == except {
            continue;
        }
        let Some(text) = share.get(key) else { continue };
        let amount: Quantity = text.parse().map_err(|why| format!("share of {namespace}, {key}: {why}"))?;
        free = free.checked_sub(amount).map_err(|why| format!("{key}: {why}"))?;
    }
    Ok(free.max(Quantity::default()))
}

fn wanted(place: &ProjectCluster, namespace: &str) -> Result<BTreeMap<String, Quantity>, String> {
    let mut amounts = BTreeMap::new();
    for (key, limit) in &place.quota {
        let limit = check_quota(key, limit).map_err(|why| format!("{key}: {why}"))?;
        amounts.insert(key.clone(), wanted_of(place, namespace, key, limit)?);
    }
    Ok(amounts)
}

fn wanted_of(place: &ProjectCluster, namespace: &str, key: &str, limit: Quantity) -> Result<Quantity, String> {
    match place.shares.get(namespace).and_then(|share| share.get(key)) {
        Some(text) => check_quota(key, text).map_err(|why| format!("share of {namespace}, {key}: {why}")),
        None => {
            let key = QuotaKey::parse(key).map_err(|why| why.to_string())?;
            Ok(key.share(limit, max_namespaces(place).max(1)))
        }
    }
}

fn shortage(place: &ProjectCluster, key: &str, asked: Quantity, free: Quantity) -> Shortage {
    let limit = place.quota.get(key).cloned().unwrap_or_default();
    Shortage { resource: key.to_owned(), asked: asked.to_string(), free: free.to_string(), limit }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn place(quota: &[(&str, &str)], shares: &[(&str, &str, &str)], max: u32) -> ProjectCluster {
        let mut place = ProjectCluster {
            cluster: "demo".into(),
            prefix: Some("shop-".into()),
            max_namespaces: Some(max),
            quota: quota.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect(),
            ..ProjectCluster::default()
        };
        for (namespace, key, amount) in shares {
            place.shares.entry(namespace.to_string()).or_default().insert(key.to_string(), amount.to_string());
        }
        place
    }

    fn take(ledger: &mut Ledger, place: &ProjectCluster, namespace: &str) -> Result<(), Misfit> {
        reserve(ledger, place, namespace, "2026-01-01T00:00:00Z")
    }

    #[test]
    fn the_default_share_is_the_limit_by_the_maximum_number_rounded_down() {
        let place = place(&[("requests.cpu", "10"), ("requests.memory", "10Gi"), ("pods", "10")], &[], 3);
        let share = share_of(&place, "shop-a").unwrap();
        assert_eq!(share["requests.cpu"], "3333m");
        assert_eq!(share["requests.memory"], "3413Mi");
        assert_eq!(share["pods"], "3");
    }

    #[test]
    fn a_written_share_comes_before_the_default() {
        let place = place(&[("pods", "10")], &[("shop-a", "pods", "7")], 2);
        assert_eq!(share_of(&place, "shop-a").unwrap()["pods"], "7");
        assert_eq!(share_of(&place, "shop-b").unwrap()["pods"], "5");
    }

    #[test]
    fn a_namespace_that_does_not_fit_is_refused_whole_and_named() {
        let place = place(&[("pods", "10"), ("requests.cpu", "4")], &[("shop-a", "pods", "7")], 2);
        let mut ledger = Ledger::default();
        take(&mut ledger, &place, "shop-a").unwrap();
        let before = ledger.clone();
        let short = Shortage { resource: "pods".into(), asked: "5".into(), free: "3".into(), limit: "10".into() };
        assert_eq!(take(&mut ledger, &place, "shop-b"), Err(Misfit::Short(short)));
        assert_eq!(ledger, before);
    }

    #[test]
    fn the_number_is_limited_and_declared_names_keep_their_places() {
        let mut place = place(&[], &[], 2);
        place.namespaces = vec!["shop".into()];
        let mut ledger = Ledger::default();
        take(&mut ledger, &place, "shop-a").unwrap();
        assert_eq!(take(&mut ledger, &place, "shop-b"), Err(Misfit::Full { max: 2 }));
        take(&mut ledger, &place, "shop").unwrap();
        // What is there already may be reserved again.
        take(&mut ledger, &place, "shop-a").unwrap();
    }

    #[test]
    fn lowered_limits_lower_shares_and_raised_ones_raise_them() {
        let wide = place(&[("pods", "10")], &[], 2);
        let mut ledger = Ledger::default();
        take(&mut ledger, &wide, "shop-a").unwrap();
        take(&mut ledger, &wide, "shop-b").unwrap();
        let narrow = place(&[("pods", "4")], &[], 2);
        assert_eq!(reshare(&mut ledger, &narrow), Ok(vec![]));
        assert_eq!((&*ledger.shares["shop-a"]["pods"], &*ledger.shares["shop-b"]["pods"]), ("2", "2"));
        let greedy = place(&[("pods", "4")], &[("shop-a", "pods", "3")], 2);
        let short = reshare(&mut ledger, &greedy).unwrap();
        assert_eq!(short.iter().map(|(n, s)| (&**n, &*s.asked, &*s.free)).collect::<Vec<_>>(), [("shop-a", "3", "2")]);
        assert_eq!(reshare(&mut ledger, &wide), Ok(vec![]));
        assert_eq!(ledger.shares["shop-a"]["pods"], "5");
        // A limit that is gone leaves no share; a new one gives its share to everybody.
        let other = place(&[("services", "6")], &[], 2);
        assert_eq!(reshare(&mut ledger, &other), Ok(vec![]));
        assert_eq!(ledger.shares["shop-b"], Share::from([("services".into(), "3".into())]));
    }

    proptest! {
        #[test]
        fn the_sum_never_exceeds_the_limit(
            steps in prop::collection::vec((0..6usize, 0..4u8, 1..20i64, 1..6u32, prop::option::of(0..15i64)), 1..40)
        ) {
            let mut ledger = Ledger::default();
            for (who, what, limit, max, share) in steps {
                let namespace = format!("shop-{who}");
                let mut place = place(&[("pods", &limit.to_string())], &[], max);
                if let Some(share) = share {
                    place.shares.insert(namespace.clone(), [("pods".to_owned(), share.to_string())].into());
                }
                // Limits change only by way of reshare, as they do in the service.
                reshare(&mut ledger, &place).unwrap();
                let count = ledger.shares.len();
                match what {
                    0 => drop(ledger.shares.remove(&namespace)),
                    _ => drop(take(&mut ledger, &place, &namespace)),
                }
                let sum: i64 = ledger.shares.values().filter_map(|s| s.get("pods")).map(|s| s.parse::<i64>().unwrap()).sum();
                prop_assert!(sum <= limit, "{sum} of {limit}");
                prop_assert!(ledger.shares.len() <= count.max(max as usize));
            }
        }
    }
}
