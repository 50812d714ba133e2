//! Kubernetes versions: which are accepted, and what a cluster of a version can do.

use std::fmt;

use crate::resources::cluster::VersionRange;

/// Oldest version accepted where a Cluster says nothing: ValidatingAdmissionPolicy is stable from here on.
pub const DEFAULT_MIN: Version = Version { major: 1, minor: 30 };
/// From here on certificates and service account tokens leave a credential-id that impersonated users lack.
pub const CREDENTIAL_ID: Version = Version { major: 1, minor: 32 };
/// From here on constrained impersonation is there by default.
pub const CONSTRAINED: Version = Version { major: 1, minor: 36 };

/// A Kubernetes minor version. Patch releases do not change what the service relies on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// Major.
    pub major: u32,
    /// Minor.
    pub minor: u32,
}

/// A text that is no Kubernetes version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no Kubernetes version; write it like 1.36 or 1.36.3")]
pub struct NoVersion(String);

impl Version {
    /// Reads `1.36`, `v1.36.3`, `1.36+` and what vendors append (`v1.33.1-eks-1234`, `v1.34.2+k3s1`).
    pub fn parse(text: &str) -> Result<Self, NoVersion> {
        let fail = || NoVersion(text.chars().take(64).collect());
        let bare = text.strip_prefix('v').unwrap_or(text);
        let mut parts = bare.splitn(3, '.');
        let number = |part: Option<&str>| part.and_then(|p| p.parse::<u16>().ok()).map(u32::from);
        let major = number(parts.next()).ok_or_else(fail)?;
        let minor = parts.next().ok_or_else(fail)?;
        let (digits, tail) = minor.split_at(minor.find(|c: char| !c.is_ascii_digit()).unwrap_or(minor.len()));
        let minor = number(Some(digits)).ok_or_else(fail)?;
        if !tail.is_empty() && !tail.starts_with(['+', '-']) {
            return Err(fail());
        }
        if parts.next().is_some_and(|patch| !patch.starts_with(|c: char| c.is_ascii_digit())) {
            return Err(fail());
        }
        Ok(Self { major, minor })
    }

    /// As the index keeps it.
    pub fn pair(self) -> (u32, u32) {
        (self.major, self.minor)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Whether a cluster with this accepted range may run `version`. The error says what to change.
pub fn check_upgrade(range: Option<&VersionRange>, version: Version) -> Result<(), String> {
    let VersionRange { min, max } = range.cloned().unwrap_or(VersionRange { min: None, max: None });
    let bound = |field: &str, text: Option<String>| match text {
        None => Ok(None),
        Some(text) => Version::parse(&text).map(Some).map_err(|why| format!("spec.acceptedVersions.{field}: {why}")),
    };
    let min = bound("min", min)?.unwrap_or(DEFAULT_MIN);
    let max = bound("max", max)?;
    if version < min {
        return Err(format!(
            "Kubernetes {version} is older than {min}, the oldest accepted version of this cluster \
             (spec.acceptedVersions.min); requests would be refused"
        ));
    }
    if let Some(max) = max.filter(|max| version > *max) {
        return Err(format!(
            "Kubernetes {version} is newer than {max}, the newest accepted version of this cluster \
             (spec.acceptedVersions.max); requests would be refused after the upgrade until the range is widened"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn v(minor: u32) -> Version {
        Version { major: 1, minor }
    }

    #[test]
    fn versions_as_servers_and_people_write_them() {
        for text in ["1.36", "v1.36", "1.36.3", "v1.36.3", "1.36+", "v1.36.1-eks-1a2b", "v1.36.2+k3s1"] {
            assert_eq!(Version::parse(text), Ok(v(36)), "{text}");
        }
        for text in ["", "1", "v", "1.x", "one.36", "1.36x", "1..3", "1.36.", "-1.36", "1.999999", "latest", "1.36 "] {
            assert!(Version::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn minor_versions_compare_as_numbers() {
        assert!(v(9) < v(30));
        assert!(Version { major: 2, minor: 0 } > v(99));
    }

    #[test]
    fn the_default_range_is_1_30_and_later() {
        assert!(check_upgrade(None, v(29)).unwrap_err().contains("older than 1.30"));
        for minor in [30, 36, 50] {
            assert_eq!(check_upgrade(None, v(minor)), Ok(()));
        }
    }

    #[test]
    fn both_ends_are_included() {
        let range = VersionRange { min: Some("1.32".into()), max: Some("1.36.9".into()) };
        for (minor, ok) in [(31, false), (32, true), (36, true), (37, false)] {
            assert_eq!(check_upgrade(Some(&range), v(minor)).is_ok(), ok, "1.{minor}");
        }
        assert!(check_upgrade(Some(&range), v(37)).unwrap_err().contains("acceptedVersions.max"));
    }

    #[test]
    fn a_range_that_cannot_be_read_accepts_nothing() {
        let range = VersionRange { min: None, max: Some("newest".into()) };
        assert!(check_upgrade(Some(&range), v(36)).is_err());
    }
}
