//! A token made with a token never reaches further than it.

use jiff::Timestamp;

use super::AccountError;
use crate::domain::names;
use crate::index::TokenEntry;
use crate::records::{Scoped, TokenScopes};

/// Most entries of one scope list.
const MAX_SCOPES: usize = 64;
/// Longest description, in characters.
const MAX_DESCRIPTION: usize = 256;

/// In what the new token would be wider than the one that asks for it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Wider {
    /// Clusters.
    #[error("the token in use is limited to the clusters {}; the new one must be limited to some of them", .0.join(", "))]
    Clusters(Vec<String>),
    /// Projects.
    #[error("the token in use is limited to the projects {}; the new one must be limited to some of them", .0.join(", "))]
    Projects(Vec<String>),
    /// Verbs.
    #[error("the token in use is read-only; the new one must be, too")]
    ReadOnly,
    /// Time.
    #[error("the token in use is limited and ends at {0}; the new one must not end later")]
    Expiry(Timestamp),
}

/// Whether scopes take anything away.
pub(super) fn is_limited(scopes: &TokenScopes) -> bool {
    let TokenScopes { clusters, projects, read_only } = scopes;
    !clusters.is_empty() || !projects.is_empty() || *read_only
}

/// Checks that `scopes` until `expires_at` are within `parent`.
///
/// A limited token passes on its limits and its end: with a later end it would renew itself for ever. A token without
/// limits, a sign-in of half a day, may make a kubeconfig that lives for weeks: that is what one signs in for.
pub(super) fn check_within(parent: &TokenEntry, scopes: &TokenScopes, expires_at: Timestamp) -> Result<(), Wider> {
    let limits = &parent.record.scopes;
    if !within(&scopes.clusters, &limits.clusters) {
        return Err(Wider::Clusters(limits.names().clusters));
    }
    if !within(&scopes.projects, &limits.projects) {
        return Err(Wider::Projects(limits.names().projects));
    }
    if limits.read_only && !scopes.read_only {
        return Err(Wider::ReadOnly);
    }
    if is_limited(limits) && expires_at > parent.expires_at {
        return Err(Wider::Expiry(parent.expires_at));
    }
    Ok(())
}

/// An empty list is no limit, on either side.
fn within(new: &[Scoped], limit: &[Scoped]) -> bool {
    limit.is_empty() || (!new.is_empty() && new.iter().all(|one| limit.iter().any(|own| own.uid == one.uid)))
}

/// Checks what a caller wrote.
pub(super) fn check_shape(scopes: &TokenScopes, description: &str) -> Result<(), AccountError> {
    for (field, list) in [("scopes.clusters", &scopes.clusters), ("scopes.projects", &scopes.projects)] {
        if list.len() > MAX_SCOPES {
            return Err(AccountError::Invalid { field, message: format!("must have at most {MAX_SCOPES} entries") });
        }
        for one in list {
            names::check_label(&one.name)
                .map_err(|error| AccountError::Invalid { field, message: error.to_string() })?;
        }
    }
    if description.chars().count() > MAX_DESCRIPTION || description.chars().any(char::is_control) {
        let message = format!("must have at most {MAX_DESCRIPTION} characters and no control characters");
        return Err(AccountError::Invalid { field: "description", message });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::TokenRecord;
    use crate::resources::token::Audience;
    use crate::store::Revision;

    fn scopes(clusters: &[&str], projects: &[&str], read_only: bool) -> TokenScopes {
        let one = |name: &&str| Scoped { name: name.to_string(), uid: format!("uid-{name}") };
        let owned = |list: &[&str]| list.iter().map(one).collect();
        TokenScopes { clusters: owned(clusters), projects: owned(projects), read_only }
    }

    fn end(hour: i8) -> Timestamp {
        format!("2026-03-01T{hour:02}:00:00Z").parse().unwrap()
    }

    fn parent(scopes: TokenScopes) -> TokenEntry {
        let record = TokenRecord {
            id: "parent".into(),
            hash: String::new(),
            user: "jane".into(),
            user_uid: "u".into(),
            epoch: 0,
            global_epoch: 0,
            audience: Audience::Api,
            scopes,
            family: "f".into(),
            description: String::new(),
            created_at: String::new(),
            expires_at: String::new(),
        };
        TokenEntry { revision: Revision(1), record, hash: [0; 32], expires_at: end(12) }
    }

    #[test]
    fn an_unlimited_token_makes_any() {
        for new in [scopes(&[], &[], false), scopes(&["a"], &["p"], true)] {
            assert_eq!(check_within(&parent(scopes(&[], &[], false)), &new, end(20)), Ok(()));
        }
    }

    #[test]
    fn limits_are_passed_on() {
        let wide = scopes(&["a", "b"], &["p"], true);
        for good in [scopes(&["a"], &["p"], true), scopes(&["b", "a"], &["p"], true)] {
            assert_eq!(check_within(&parent(wide.clone()), &good, end(12)), Ok(()), "{good:?}");
        }
        for bad in [
            scopes(&[], &["p"], true),
            scopes(&["a", "c"], &["p"], true),
            scopes(&["a"], &[], true),
            scopes(&["a"], &["q"], true),
            scopes(&["a"], &["p"], false),
            scopes(&[], &[], false),
        ] {
            assert!(check_within(&parent(wide.clone()), &bad, end(12)).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_name_that_came_back_is_not_what_the_limit_says() {
        let mut limits = scopes(&["a"], &["p"], false);
        let parent = parent(limits.clone());
        assert_eq!(check_within(&parent, &limits, end(12)), Ok(()));
        limits.projects[0].uid = "uid-another".into();
        assert_eq!(check_within(&parent, &limits, end(12)), Err(Wider::Projects(vec!["p".into()])));
    }

    #[test]
    fn a_limited_token_is_not_outlived() {
        for limits in [scopes(&["a"], &[], false), scopes(&[], &["p"], false), scopes(&[], &[], true)] {
            let parent = parent(limits.clone());
            assert_eq!(check_within(&parent, &limits, end(12)), Ok(()));
            assert_eq!(check_within(&parent, &limits, end(13)), Err(Wider::Expiry(end(12))));
        }
    }

    #[test]
    fn shapes() {
        assert!(check_shape(&scopes(&["demo"], &["shop"], false), "laptop").is_ok());
        assert!(check_shape(&scopes(&["Demo"], &[], false), "").is_err());
        assert!(check_shape(&scopes(&[], &["a/b"], false), "").is_err());
        assert!(check_shape(&scopes(&["a"; 65], &[], false), "").is_err());
        assert!(check_shape(&TokenScopes::default(), &"x".repeat(257)).is_err());
        assert!(check_shape(&TokenScopes::default(), "a\nb").is_err());
    }
}
