//! Which namespace names a project may have.

use super::TenancyError;
use crate::domain::names::{check_label, is_system_namespace};
use crate::index::Snapshot;
use crate::records::ClaimOrigin;
use crate::resources::project::{ProjectCluster, ProjectSpec};

/// Checks a name for its form: an RFC 1123 label, and none of the cluster's own namespaces.
pub fn check(namespace: &str) -> Result<(), TenancyError> {
    check_label(namespace).map_err(|why| TenancyError::BadName { name: namespace.to_owned(), why })?;
    if is_system_namespace(namespace) {
        return Err(TenancyError::System(namespace.to_owned()));
    }
    Ok(())
}

/// Whether the project may have a namespace of this name on the cluster, and where the wish for it then stands.
pub fn origin(project: &str, place: &ProjectCluster, namespace: &str) -> Result<ClaimOrigin, TenancyError> {
    check(namespace)?;
    if place.declares(namespace) {
        return Ok(ClaimOrigin::Declared);
    }
    let prefix = place.prefix.as_deref().filter(|prefix| !prefix.is_empty());
    let allowed = match (prefix, place.max_namespaces) {
        (Some(prefix), Some(_)) => {
            if namespace.strip_prefix(prefix).is_some_and(|rest| !rest.is_empty()) {
                return Ok(ClaimOrigin::Created);
            }
            format!("names must begin with {prefix:?}")
        }
        _ => "only the namespaces declared in the project exist there; a platform administrator can set prefix and \
              maxNamespaces"
            .to_owned(),
    };
    Err(TenancyError::NotAllowed {
        name: namespace.to_owned(),
        project: project.to_owned(),
        cluster: place.cluster.clone(),
        allowed,
    })
}

/// Whether another project's spec declares the name on the cluster.
pub fn declared_elsewhere(snapshot: &Snapshot, project: &str, cluster: &str, namespace: &str) -> bool {
    let declares = |spec: &ProjectSpec| spec.on(cluster).is_some_and(|place| place.declares(namespace));
    snapshot.projects.iter().any(|(name, other)| **name != *project && declares(&other.object.spec))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(prefix: Option<&str>, max: Option<u32>) -> ProjectCluster {
        ProjectCluster {
            cluster: "demo".into(),
            namespaces: vec!["shop".into()],
            prefix: prefix.map(str::to_owned),
            max_namespaces: max,
            ..ProjectCluster::default()
        }
    }

    #[test]
    fn declared_names_and_the_prefix_are_the_projects() {
        let both = place(Some("shop-"), Some(3));
        assert_eq!(origin("shop", &both, "shop").unwrap(), ClaimOrigin::Declared);
        assert_eq!(origin("shop", &both, "shop-web").unwrap(), ClaimOrigin::Created);
        for refused in ["web", "shopx", "shop-", "xshop-web"] {
            assert!(origin("shop", &both, refused).is_err(), "{refused}");
        }
    }

    #[test]
    fn without_prefix_or_maximum_only_declared_names_exist() {
        for place in [place(None, Some(3)), place(Some("shop-"), None), place(Some(""), Some(3))] {
            assert_eq!(origin("shop", &place, "shop").unwrap(), ClaimOrigin::Declared);
            let refused = origin("shop", &place, "shop-web").unwrap_err();
            assert!(matches!(refused, TenancyError::NotAllowed { .. }), "{refused}");
        }
    }

    #[test]
    fn system_namespaces_are_never_a_projects() {
        let mut greedy = place(Some("kube-"), Some(9));
        greedy.namespaces.push("default".into());
        for name in ["default", "kube-system", "kube-new", "bailiwick-system"] {
            assert!(matches!(origin("shop", &greedy, name), Err(TenancyError::System(_))), "{name}");
        }
    }
}
