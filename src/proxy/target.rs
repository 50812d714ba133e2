//! The two forms of URL: `/k8s/clusters/<cluster>/…` and `/k8s/clusters/<cluster>/projects/<project>/…`.

use crate::domain::names;
use crate::domain::request::{self, RequestInfo, TargetError};

/// Where the proxy lives. Everything below belongs to it, everything else to our own API.
pub const ROOT: &str = "/k8s/";

/// A parsed target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Cluster asked for; whether it exists is not known yet.
    pub cluster: String,
    /// Project that the URL narrows everything to.
    pub project: Option<String>,
    /// What is asked of the API server.
    pub request: RequestInfo,
    /// Path and query for the API server: the bytes that were parsed, unchanged.
    pub forward: String,
}

/// Parses a target. Only what was parsed is forwarded.
pub fn parse(method: &str, path: &str, query: Option<&str>) -> Result<Target, TargetError> {
    let segments = request::segments(path)?;
    let (cluster, project, consumed) = match segments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["k8s", "clusters", cluster, "projects", project, ..] => (cluster.to_string(), Some(project.to_string()), 5),
        ["k8s", "clusters", cluster, ..] => (cluster.to_string(), None, 3),
        _ => return Err(TargetError::Unknown),
    };
    let names_ok =
        names::check_label(&cluster).is_ok() && project.as_deref().is_none_or(|p| names::check_label(p).is_ok());
    if !names_ok {
        return Err(TargetError::Ambiguous("a cluster or project name that no cluster or project can have"));
    }
    let request = request::parse(method, &segments[consumed..], query)?;
    // Each consumed segment is one slash and its raw text; names are checked above, so raw and decoded are the same
    // unless somebody escaped a plain letter.
    let mut forward = raw_tail(path, consumed).to_owned();
    if let Some(query) = query {
        forward.push('?');
        forward.push_str(query);
    }
    Ok(Target { cluster, project, request, forward })
}

fn raw_tail(path: &str, consumed: usize) -> &str {
    let mut at = 0;
    for _ in 0..consumed {
        at = path[at + 1..].find('/').map_or(path.len(), |next| at + 1 + next);
    }
    &path[at..]
}

#[cfg(test)]
#[path = "../../fuzz/targets/target.rs"]
mod fuzz;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms() {
        let plain = parse("GET", "/k8s/clusters/demo/api/v1/namespaces/a/pods", Some("limit=5")).unwrap();
        assert_eq!(
            (plain.cluster.as_str(), plain.project, plain.forward.as_str()),
            ("demo", None, "/api/v1/namespaces/a/pods?limit=5")
        );
        let narrow = parse("GET", "/k8s/clusters/demo/projects/shop/api/v1/namespaces/a/pods", None).unwrap();
        assert_eq!((narrow.project.as_deref(), narrow.forward.as_str()), (Some("shop"), "/api/v1/namespaces/a/pods"));
        // A resource called projects is not confused with the form of the URL: it would stand below /apis.
        let escaped = parse("GET", "/k8s/clusters/%64emo/version", None).unwrap();
        assert_eq!((escaped.cluster.as_str(), escaped.forward.as_str()), ("demo", "/version"));
    }

    #[test]
    fn refuses_the_rest() {
        for path in [
            "/k8s/clusters",
            "/k8s/clusters/",
            "/k8s/clusters/demo",
            "/k8s/clusters/demo/",
            "/k8s/clusters/Demo/api/v1/pods",
            "/k8s/clusters/demo.x/api/v1/pods",
            "/k8s/clusters/../api/v1/pods",
            "/k8s/clusters/demo/projects/shop",
            "/k8s/clusters/demo/projects/SHOP/api/v1/pods",
            "/k8s/clusters/demo//api/v1/pods",
            "/k8s/proxy/demo/api/v1/pods",
            "/apis/bailiwick.dev/v1alpha1/users",
        ] {
            assert!(parse("GET", path, None).is_err(), "{path} must be refused");
        }
    }
}
