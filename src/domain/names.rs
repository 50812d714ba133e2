//! Names: what a user, team, project or cluster may be called, and what the names become inside a cluster.
//!
//! A name ends up in URLs, HTTP header values, Kubernetes groups and object names. The grammar is therefore that of
//! Kubernetes object names (RFC 1123), which is ASCII and lower-case: two names cannot look alike by case or by
//! Unicode folding, and none can be mistaken for a group of the API server (`system:…`).

/// Longest name accepted, in bytes. A Kubernetes label value and a DNS label both end at 63.
pub const MAX_NAME: usize = 63;

/// Prefix of the Kubernetes user name that a person or machine has in a cluster.
pub const USER_PREFIX: &str = "bailiwick:user:";
/// Prefix of the groups that carry a project's roles.
pub const PROJECT_GROUP_PREFIX: &str = "bailiwick:project:";
/// Prefix of the groups that carry a cluster grant's roles.
pub const CLUSTER_GROUP_PREFIX: &str = "bailiwick:cluster:";
/// The only group on requests that name no namespace; bound to a read-only role by the import manifest.
pub const TENANT_GROUP: &str = "bailiwick:tenant";
/// Key of the extra that carries the token's id to the cluster's audit log.
pub const TOKEN_EXTRA: &str = "bailiwick.dev/token";

/// Why a name was refused. The message names the rule, not the caller's fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Nothing was given.
    #[error("must not be empty")]
    Empty,
    /// Longer than [`MAX_NAME`].
    #[error("must be at most {MAX_NAME} characters, got {0}")]
    TooLong(usize),
    /// A character outside the grammar, or one in the wrong place.
    #[error(
        "must consist of lower-case letters, digits and '-', and start and end with a letter or digit (RFC 1123 label)"
    )]
    Label,
    /// As [`NameError::Label`], where dots may separate labels.
    #[error(
        "must consist of lower-case letters, digits, '-' and '.', each part starting and ending with a letter or digit (RFC 1123 subdomain)"
    )]
    Subdomain,
}

/// Checks an RFC 1123 label: the names of clusters, teams, projects, roles and namespaces.
pub fn check_label(name: &str) -> Result<(), NameError> {
    check(name, false)
}

/// Checks an RFC 1123 subdomain: the names of users (`jane.doe`) and grants.
pub fn check_subdomain(name: &str) -> Result<(), NameError> {
    check(name, true)
}

fn check(name: &str, dots: bool) -> Result<(), NameError> {
    if name.is_empty() {
        return Err(NameError::Empty);
    }
    if name.len() > MAX_NAME {
        return Err(NameError::TooLong(name.chars().count()));
    }
    let label_ok = |label: &str| {
        let bytes = label.as_bytes();
        let alnum = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        !bytes.is_empty()
            && alnum(bytes[0])
            && alnum(bytes[bytes.len() - 1])
            && bytes.iter().all(|&b| alnum(b) || b == b'-')
    };
    let ok = if dots { name.split('.').all(label_ok) } else { label_ok(name) };
    match (ok, dots) {
        (true, _) => Ok(()),
        (false, false) => Err(NameError::Label),
        (false, true) => Err(NameError::Subdomain),
    }
}

/// The first eight characters of a UID: enough to tell a name that came back from the one that was deleted.
pub fn uid8(uid: &str) -> &str {
    uid.get(..8).unwrap_or(uid)
}

/// The Kubernetes group that carries `role` in every namespace of a project.
pub fn project_group(project: &str, uid: &str, role: &str) -> String {
    format!("{PROJECT_GROUP_PREFIX}{project}:{}:{role}", uid8(uid))
}

/// The Kubernetes group that carries `role` in every project namespace of a cluster.
pub fn cluster_group(cluster: &str, uid: &str, role: &str) -> String {
    format!("{CLUSTER_GROUP_PREFIX}{cluster}:{}:{role}", uid8(uid))
}

/// The Kubernetes user name of an account.
pub fn kubernetes_user(user: &str) -> String {
    format!("{USER_PREFIX}{user}")
}

/// Namespaces that belong to the cluster itself or to the service; no project may ever own one.
pub fn is_system_namespace(namespace: &str) -> bool {
    matches!(namespace, "default" | "bailiwick-system" | "bailiwick-probe") || namespace.starts_with("kube-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels() {
        for good in ["a", "shop", "shop-web", "0", "a1-b2"] {
            assert_eq!(check_label(good), Ok(()), "{good}");
        }
        for bad in [
            "",
            "..",
            ".",
            "A",
            "shop_web",
            "-a",
            "a-",
            "a.b",
            "system:masters",
            "ѕhop",
            "shop\u{200b}",
            "a/b",
            "a b",
            "🙂",
            "a\n",
        ] {
            assert!(check_label(bad).is_err(), "{bad:?} must be refused");
        }
        assert_eq!(check_label(&"a".repeat(63)), Ok(()));
        assert_eq!(check_label(&"a".repeat(300)), Err(NameError::TooLong(300)));
    }

    #[test]
    fn subdomains() {
        assert_eq!(check_subdomain("jane.doe"), Ok(()));
        for bad in ["jane..doe", ".jane", "jane.", "jane.-doe", "Jane.Doe", ".."] {
            assert!(check_subdomain(bad).is_err(), "{bad:?} must be refused");
        }
    }

    #[test]
    fn groups_carry_the_uid() {
        let group = project_group("shop", "1a2b3c4d-0000-0000-0000-000000000000", "member");
        assert_eq!(group, "bailiwick:project:shop:1a2b3c4d:member");
    }

    #[test]
    fn system_namespaces() {
        for ns in ["default", "kube-system", "kube-anything", "bailiwick-system"] {
            assert!(is_system_namespace(ns), "{ns}");
        }
        assert!(!is_system_namespace("shop-kube-x"));
    }
}
