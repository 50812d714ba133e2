//! The keys that a project's quota may have, and what their amounts must be.
//!
//! <https://kubernetes.io/docs/concepts/policy/resource-quotas/>. Of two spellings of one limit (`cpu` and
//! `requests.cpu`) only the explicit one is accepted, so that no two entries can contradict each other.

use super::{Quantity, QuantityError, Unit};
use crate::domain::names;

/// A key that a quota may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuotaKey {
    /// The step in which the limit is split: thousandths for CPU, bytes (from 1Mi on whole Mi) and counts for the rest.
    pub unit: Unit,
}

/// Why an entry of a quota was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuotaKeyError {
    /// No key of this list.
    #[error(
        "{0:?} is not a quota key that is accepted; use requests.cpu, requests.memory, limits.cpu, limits.memory, \
         requests.storage, pods, services, count/<resource>.<group> and the like"
    )]
    Unknown(String),
    /// A second spelling of a limit.
    #[error("write {0} instead")]
    Alias(&'static str),
    /// The amount is no quantity.
    #[error(transparent)]
    Quantity(#[from] QuantityError),
    /// Below zero.
    #[error("must not be negative")]
    Negative,
    /// A fraction where the unit is one.
    #[error("must be a whole number")]
    Fraction,
    /// CPU finer than a thousandth.
    #[error("must not be finer than 1m")]
    TooFine,
}

const STORAGE_CLASS: &str = ".storageclass.storage.k8s.io/";

impl QuotaKey {
    /// Looks a key up.
    pub fn parse(key: &str) -> Result<Self, QuotaKeyError> {
        let unit = match key {
            "requests.cpu" | "limits.cpu" => Unit::Milli,
            "requests.memory"
            | "limits.memory"
            | "requests.storage"
            | "requests.ephemeral-storage"
            | "limits.ephemeral-storage" => Unit::Byte,
            "pods"
            | "services"
            | "services.nodeports"
            | "services.loadbalancers"
            | "configmaps"
            | "secrets"
            | "persistentvolumeclaims"
            | "replicationcontrollers" => Unit::One,
            "cpu" => return Err(QuotaKeyError::Alias("requests.cpu")),
            "memory" => return Err(QuotaKeyError::Alias("requests.memory")),
            "ephemeral-storage" => return Err(QuotaKeyError::Alias("requests.ephemeral-storage")),
            _ if is_storage_class(key) && key.ends_with("/requests.storage") => Unit::Byte,
            _ if is_storage_class(key) || is_count(key) || is_extended(key) => Unit::One,
            _ => return Err(QuotaKeyError::Unknown(key.chars().take(100).collect())),
        };
        Ok(Self { unit })
    }

    /// The share of one of `count` namespaces in a limit, rounded down to the key's unit.
    pub fn share(self, limit: Quantity, count: u32) -> Quantity {
        limit.divide(count, self.unit)
    }
}

/// Checks one entry of a quota: key and amount.
pub fn check_quota(key: &str, amount: &str) -> Result<Quantity, QuotaKeyError> {
    let QuotaKey { unit } = QuotaKey::parse(key)?;
    let quantity: Quantity = amount.parse()?;
    if quantity.is_negative() {
        return Err(QuotaKeyError::Negative);
    }
    match unit {
        Unit::One | Unit::Byte if !quantity.is_multiple_of(unit) => Err(QuotaKeyError::Fraction),
        Unit::Milli if !quantity.is_multiple_of(unit) => Err(QuotaKeyError::TooFine),
        _ => Ok(quantity),
    }
}

fn is_storage_class(key: &str) -> bool {
    key.split_once(STORAGE_CLASS).is_some_and(|(class, what)| {
        is_subdomain(class) && matches!(what, "requests.storage" | "persistentvolumeclaims")
    })
}

/// `count/pods`, `count/deployments.apps`. Kinds that the project itself manages cannot be counted.
fn is_count(key: &str) -> bool {
    let Some(name) = key.strip_prefix("count/") else { return false };
    let (resource, group) = name.split_once('.').unwrap_or((name, ""));
    let managed = group.is_empty() && matches!(resource, "resourcequotas" | "limitranges" | "namespaces" | "nodes");
    names::check_label(resource).is_ok() && (!name.contains('.') || is_subdomain(group)) && !managed
}

/// `requests.example.com/gpu` and `requests.hugepages-2Mi`: extended resources are limited by their requests only.
fn is_extended(key: &str) -> bool {
    let Some(name) = key.strip_prefix("requests.") else { return false };
    if let Some(size) = name.strip_prefix("hugepages-") {
        return size.parse::<Quantity>().is_ok_and(|q| !q.is_negative() && !q.is_zero());
    }
    let Some((domain, resource)) = name.split_once('/') else { return false };
    let native = domain == "kubernetes.io" || domain.ends_with(".kubernetes.io") || domain.starts_with("requests.");
    let bytes = resource.as_bytes();
    let legal = !bytes.is_empty()
        && bytes.len() <= names::MAX_NAME
        && bytes[0].is_ascii_alphanumeric()
        && bytes[bytes.len() - 1].is_ascii_alphanumeric()
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
    is_subdomain(domain) && !native && legal
}

fn is_subdomain(name: &str) -> bool {
    name.len() <= 253 && name.split('.').all(|label| names::check_label(label).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_kubernetes_are_known_with_their_unit() {
        for key in ["requests.cpu", "limits.cpu"] {
            assert_eq!(QuotaKey::parse(key), Ok(QuotaKey { unit: Unit::Milli }), "{key}");
        }
        for key in [
            "requests.memory",
            "limits.memory",
            "requests.storage",
            "requests.ephemeral-storage",
            "limits.ephemeral-storage",
            "fast.storageclass.storage.k8s.io/requests.storage",
        ] {
            assert_eq!(QuotaKey::parse(key), Ok(QuotaKey { unit: Unit::Byte }), "{key}");
        }
        for key in [
            "fast.ssd.storageclass.storage.k8s.io/persistentvolumeclaims",
            "pods",
            "services",
            "services.nodeports",
            "services.loadbalancers",
            "configmaps",
            "secrets",
            "persistentvolumeclaims",
            "replicationcontrollers",
            "count/pods",
            "count/deployments.apps",
            "count/widgets.example.com",
            "requests.example.com/gpu",
            "requests.example.com/mig-1g.5gb",
            "requests.hugepages-2Mi",
        ] {
            assert_eq!(QuotaKey::parse(key), Ok(QuotaKey { unit: Unit::One }), "{key}");
        }
    }

    #[test]
    fn other_keys_are_refused() {
        for key in [
            "",
            "*",
            "Pods",
            "nodes",
            "resourcequotas",
            "requests.",
            "requests.gpu",
            "limits.example.com/gpu",
            "requests.kubernetes.io/gpu",
            "requests.sub.kubernetes.io/gpu",
            "requests.example.com/",
            "requests.example.com/g/u",
            "requests.hugepages-",
            "requests.hugepages--2Mi",
            ".storageclass.storage.k8s.io/requests.storage",
            "fast.storageclass.storage.k8s.io/requests.cpu",
            "count/",
            "count/*",
            "count/deployments.",
            "count/.apps",
            "count/Deployments.apps",
            "count/resourcequotas",
            "count/limitranges",
            "pods ",
        ] {
            assert_eq!(QuotaKey::parse(key), Err(QuotaKeyError::Unknown(key.to_owned())), "{key:?}");
        }
        assert_eq!(QuotaKey::parse("cpu"), Err(QuotaKeyError::Alias("requests.cpu")));
        assert_eq!(QuotaKey::parse("memory"), Err(QuotaKeyError::Alias("requests.memory")));
        assert_eq!(QuotaKey::parse("ephemeral-storage"), Err(QuotaKeyError::Alias("requests.ephemeral-storage")));
    }

    #[test]
    fn amounts_must_fit_the_key() {
        for (key, amount) in
            [("requests.cpu", "1500m"), ("requests.cpu", "0"), ("requests.memory", "1.5Gi"), ("pods", "1e2")]
        {
            assert!(check_quota(key, amount).is_ok(), "{key}={amount}");
        }
        for (key, amount, error) in [
            ("requests.cpu", "-1", QuotaKeyError::Negative),
            ("requests.cpu", "100u", QuotaKeyError::TooFine),
            ("pods", "1500m", QuotaKeyError::Fraction),
            ("pods", "-3", QuotaKeyError::Negative),
            ("requests.memory", "100m", QuotaKeyError::Fraction),
            ("requests.memory", "lots", QuotaKeyError::Quantity(QuantityError::Syntax)),
            ("requests.memory", "8Ei", QuotaKeyError::Quantity(QuantityError::Overflow)),
        ] {
            assert_eq!(check_quota(key, amount), Err(error), "{key}={amount}");
        }
    }

    #[test]
    fn shares_round_down_to_the_unit() {
        let share = |key: &str, limit: &str, count| {
            QuotaKey::parse(key).unwrap().share(limit.parse().unwrap(), count).to_string()
        };
        assert_eq!(share("requests.cpu", "4", 3), "1333m");
        assert_eq!(share("requests.memory", "1Gi", 4), "256Mi");
        assert_eq!(share("requests.memory", "4Gi", 3), "1365Mi");
        assert_eq!(share("limits.ephemeral-storage", "4G", 3), "1271Mi");
        assert_eq!(share("gold.storageclass.storage.k8s.io/requests.storage", "3Mi", 2), "1Mi");
        assert_eq!(share("requests.storage", "3Gi", 1), "3Gi");
        // Below 1Mi every byte counts.
        assert_eq!(share("requests.memory", "1Mi", 3), "349525");
        assert_eq!(share("requests.memory", "10", 3), "3");
        assert_eq!(share("pods", "5000000", 2), "2500k");
        assert_eq!(share("pods", "10", 4), "2");
    }
}
