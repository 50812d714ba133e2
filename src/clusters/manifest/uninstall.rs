//! How a cluster's administrator takes the manifest back.

use super::{ManifestError, check_label};
use crate::clusters::names::*;
use crate::clusters::probe::PROBE_NAMESPACE;

/// A POSIX shell script for the cluster's administrator, which removes the manifest and what housekeeping made. Our own
/// accounts could not: they hold no right on the manifest, and none to delete roles of strangers.
///
/// Rights go first, so that none outlives its guard; the namespace of the accounts goes last, so that the script can be
/// run again where it was cut off. What was made is found by its labels, since the names of roles are people's.
///
/// # Errors
///
/// [`ManifestError::Cluster`] where the name is none.
pub fn uninstall(cluster: &str) -> Result<String, ManifestError> {
    check_label(cluster).map_err(|why| ManifestError::Cluster(cluster.to_owned(), why))?;
    let dotted = IMPORT.replace('.', "\\.");
    Ok(format!(
        r#"#!/bin/sh
# Takes back what `bailiwick cluster manifest {cluster}` put into a cluster, and what the service made there since. First
# take the cluster out of every project and delete it from the service; then, as an administrator of the cluster:
#   bailiwick cluster manifest {cluster} --uninstall | KUBECTL='kubectl --context {cluster}-admin' sh
# Namespaces of projects that are still there stay with what their teams made in them; they lose their quotas, limits,
# network policies, role bindings and labels of the service.
set -eu
kubectl=${{KUBECTL:-kubectl}}
imported=$($kubectl get namespace {SYSTEM_NAMESPACE} --ignore-not-found -o 'jsonpath={{.metadata.labels.{dotted}}}')
if [ "$imported" != {cluster} ]; then
	echo 'this cluster was not imported as {cluster}; nothing is removed' >&2
	exit 1
fi
$kubectl delete clusterrolebindings -l {IMPORT}
$kubectl delete validatingadmissionpolicybindings,validatingadmissionpolicies -l {IMPORT}
$kubectl delete namespace {PROBE_NAMESPACE} --ignore-not-found
$kubectl delete rolebindings,resourcequotas,limitranges,networkpolicies --all-namespaces -l {MANAGED}
$kubectl delete clusterroles -l {MANAGED}
$kubectl delete clusterroles -l {IMPORT}
$kubectl label namespaces -l {PROJECT} {PROJECT}- {PROJECT_UID}- {ISOLATION}-
$kubectl delete namespace {SYSTEM_NAMESPACE}
"#
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_go_before_their_guards_and_the_accounts_last() {
        let script = uninstall("demo").unwrap();
        let at = |text: &str| script.find(text).unwrap_or_else(|| panic!("{text}"));
        assert!(at("delete clusterrolebindings") < at("delete validatingadmissionpolicybindings"));
        // The guards would refuse administrators whom they do not know what is managed.
        assert!(at("validatingadmissionpolicies -l") < at("--all-namespaces"));
        assert!(script.trim_end().ends_with("delete namespace bailiwick-system"));
    }

    #[test]
    fn a_name_that_is_none_reaches_no_shell() {
        for name in ["", "a b", "$(id)", "a;b", "A"] {
            assert!(matches!(uninstall(name), Err(ManifestError::Cluster(..))), "{name}");
        }
    }
}
