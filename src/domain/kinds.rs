//! The kinds that Kubernetes has itself, by the names that people give them: `po`, `pod`, `deployments.apps`.
//!
//! The names are those that `kubectl api-resources` shows on Kubernetes 1.36. What is not here (custom resources) is
//! named with its group, or found by whoever knows the roles of the platform.

/// A resource as RBAC names it, without a subresource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// API group, empty for core; `None` where nobody said it and no kind of Kubernetes has the name.
    pub group: Option<String>,
    /// Plural where the kind is known, else as given.
    pub resource: String,
    /// Subresource, empty where there is none.
    pub subresource: String,
}

/// Why a name of a resource cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Not of the form.
    #[error("write RESOURCE[.GROUP][/SUBRESOURCE], as in pods, deployments.apps or pods/exec")]
    Form,
    /// A wildcard.
    #[error("wildcards stand for nothing here; ask for one resource at a time")]
    Wildcard,
}

/// Group, plural, singular, short names.
type Kind = (&'static str, &'static str, &'static str, &'static [&'static str]);

/// In the order in which a name without a group is looked up: core first, as kubectl does.
const KINDS: [Kind; 64] = [
    ("", "bindings", "binding", &[]),
    ("", "componentstatuses", "componentstatus", &["cs"]),
    ("", "configmaps", "configmap", &["cm"]),
    ("", "endpoints", "endpoints", &["ep"]),
    ("", "events", "event", &["ev"]),
    ("", "limitranges", "limitrange", &["limits"]),
    ("", "namespaces", "namespace", &["ns"]),
    ("", "nodes", "node", &["no"]),
    ("", "persistentvolumeclaims", "persistentvolumeclaim", &["pvc"]),
    ("", "persistentvolumes", "persistentvolume", &["pv"]),
    ("", "pods", "pod", &["po"]),
    ("", "podtemplates", "podtemplate", &[]),
    ("", "replicationcontrollers", "replicationcontroller", &["rc"]),
    ("", "resourcequotas", "resourcequota", &["quota"]),
    ("", "secrets", "secret", &[]),
    ("", "serviceaccounts", "serviceaccount", &["sa"]),
    ("", "services", "service", &["svc"]),
    ("apps", "controllerrevisions", "controllerrevision", &[]),
    ("apps", "daemonsets", "daemonset", &["ds"]),
    ("apps", "deployments", "deployment", &["deploy"]),
    ("apps", "replicasets", "replicaset", &["rs"]),
    ("apps", "statefulsets", "statefulset", &["sts"]),
    ("autoscaling", "horizontalpodautoscalers", "horizontalpodautoscaler", &["hpa"]),
    ("batch", "cronjobs", "cronjob", &["cj"]),
    ("batch", "jobs", "job", &[]),
    ("coordination.k8s.io", "leases", "lease", &[]),
    ("discovery.k8s.io", "endpointslices", "endpointslice", &[]),
    ("events.k8s.io", "events", "event", &["ev"]),
    ("networking.k8s.io", "ingressclasses", "ingressclass", &[]),
    ("networking.k8s.io", "ingresses", "ingress", &["ing"]),
    ("networking.k8s.io", "ipaddresses", "ipaddress", &["ip"]),
    ("networking.k8s.io", "networkpolicies", "networkpolicy", &["netpol"]),
    ("networking.k8s.io", "servicecidrs", "servicecidr", &[]),
    ("policy", "poddisruptionbudgets", "poddisruptionbudget", &["pdb"]),
    ("rbac.authorization.k8s.io", "clusterrolebindings", "clusterrolebinding", &[]),
    ("rbac.authorization.k8s.io", "clusterroles", "clusterrole", &[]),
    ("rbac.authorization.k8s.io", "rolebindings", "rolebinding", &[]),
    ("rbac.authorization.k8s.io", "roles", "role", &[]),
    ("scheduling.k8s.io", "priorityclasses", "priorityclass", &["pc"]),
    ("storage.k8s.io", "csidrivers", "csidriver", &[]),
    ("storage.k8s.io", "csinodes", "csinode", &[]),
    ("storage.k8s.io", "csistoragecapacities", "csistoragecapacity", &[]),
    ("storage.k8s.io", "storageclasses", "storageclass", &["sc"]),
    ("storage.k8s.io", "volumeattachments", "volumeattachment", &[]),
    ("storage.k8s.io", "volumeattributesclasses", "volumeattributesclass", &["vac"]),
    ("admissionregistration.k8s.io", "mutatingadmissionpolicies", "mutatingadmissionpolicy", &[]),
    ("admissionregistration.k8s.io", "mutatingadmissionpolicybindings", "mutatingadmissionpolicybinding", &[]),
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations", "mutatingwebhookconfiguration", &[]),
    ("admissionregistration.k8s.io", "validatingadmissionpolicies", "validatingadmissionpolicy", &[]),
    ("admissionregistration.k8s.io", "validatingadmissionpolicybindings", "validatingadmissionpolicybinding", &[]),
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations", "validatingwebhookconfiguration", &[]),
    ("apiextensions.k8s.io", "customresourcedefinitions", "customresourcedefinition", &["crd", "crds"]),
    ("apiregistration.k8s.io", "apiservices", "apiservice", &[]),
    ("authentication.k8s.io", "selfsubjectreviews", "selfsubjectreview", &[]),
    ("authentication.k8s.io", "tokenreviews", "tokenreview", &[]),
    ("authorization.k8s.io", "localsubjectaccessreviews", "localsubjectaccessreview", &[]),
    ("authorization.k8s.io", "selfsubjectaccessreviews", "selfsubjectaccessreview", &[]),
    ("authorization.k8s.io", "selfsubjectrulesreviews", "selfsubjectrulesreview", &[]),
    ("authorization.k8s.io", "subjectaccessreviews", "subjectaccessreview", &[]),
    ("certificates.k8s.io", "certificatesigningrequests", "certificatesigningrequest", &["csr"]),
    ("flowcontrol.apiserver.k8s.io", "flowschemas", "flowschema", &[]),
    ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations", "prioritylevelconfiguration", &[]),
    ("node.k8s.io", "runtimeclasses", "runtimeclass", &[]),
    ("metrics.k8s.io", "pods", "pod", &[]),
];

/// Reads `RESOURCE[.GROUP][/SUBRESOURCE]` or `RESOURCE[/SUBRESOURCE][.GROUP]`; a version before the group
/// (`deployments.v1.apps`), as kubectl accepts it, is left out. Upper case is read as lower case, as kubectl does.
pub fn read(text: &str) -> Result<Named, NameError> {
    if text.contains('*') {
        return Err(NameError::Wildcard);
    }
    let text = text.to_ascii_lowercase();
    let (before, after) = text.split_once('/').map_or((text.as_str(), None), |(before, after)| (before, Some(after)));
    let (given, mut group) = split(before);
    let mut subresource = "";
    if let Some(after) = after {
        let (sub, late) = split(after);
        if late.is_some() && group.is_some() {
            return Err(NameError::Form);
        }
        (subresource, group) = (sub, group.or(late));
    }
    let part = |part: &str| {
        !part.is_empty() && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    };
    let groups = |group: &str| group.is_empty() || group.split('.').all(part);
    if !part(given) || (after.is_some() && !part(subresource)) || !group.is_none_or(groups) {
        return Err(NameError::Form);
    }
    let group = group.map(without_version);
    let known = KINDS.iter().find(|(of, plural, singular, short)| {
        group.is_none_or(|group| group == *of) && (*plural == given || *singular == given || short.contains(&given))
    });
    let subresource = subresource.to_owned();
    Ok(match known {
        Some((of, plural, ..)) => Named { group: Some((*of).to_owned()), resource: (*plural).to_owned(), subresource },
        None => Named { group: group.map(str::to_owned), resource: given.to_owned(), subresource },
    })
}

fn split(text: &str) -> (&str, Option<&str>) {
    text.split_once('.').map_or((text, None), |(name, group)| (name, Some(group)))
}

/// `v1.apps` is `apps`, and `v1` alone core: what looks like a version of Kubernetes is one.
fn without_version(group: &str) -> &str {
    let (first, rest) = group.split_once('.').unwrap_or((group, ""));
    let version = first.strip_prefix('v').is_some_and(|rest| {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let stage = rest[digits..].trim_start_matches("alpha").trim_start_matches("beta");
        digits > 0 && stage.bytes().all(|b| b.is_ascii_digit())
    });
    if version { rest } else { group }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::roles::{Base, TENANT_READABLE, base_rules};

    fn named(text: &str) -> (Option<String>, String) {
        let Named { group, resource, subresource } = read(text).unwrap();
        let sub = if subresource.is_empty() { String::new() } else { format!("/{subresource}") };
        (group, resource + sub.as_str())
    }

    #[test]
    fn names_are_read_as_kubectl_reads_them() {
        for (text, group, resource) in [
            ("pods", "", "pods"),
            ("po", "", "pods"),
            ("Pod", "", "pods"),
            ("pods.metrics.k8s.io", "metrics.k8s.io", "pods"),
            ("deploy", "apps", "deployments"),
            ("deployments.apps", "apps", "deployments"),
            ("deployment.v1.apps", "apps", "deployments"),
            ("pods.v1", "", "pods"),
            ("pods/exec", "", "pods/exec"),
            ("deployments/scale", "apps", "deployments/scale"),
            ("deployments.apps/scale", "apps", "deployments/scale"),
            ("deployments/scale.apps", "apps", "deployments/scale"),
            ("ev", "", "events"),
            ("events.events.k8s.io", "events.k8s.io", "events"),
            ("widgets.example.com", "example.com", "widgets"),
            ("widgets.v1beta2.example.com", "example.com", "widgets"),
            // A look-alike in another group is another resource.
            ("deployments.example.com", "example.com", "deployments"),
            ("widgets.vendor.example.com", "vendor.example.com", "widgets"),
        ] {
            assert_eq!(named(text), (Some(group.to_owned()), resource.to_owned()), "{text}");
        }
        assert_eq!(named("widgets"), (None, "widgets".to_owned()));
        assert_eq!(named("widgets/status"), (None, "widgets/status".to_owned()));
    }

    #[test]
    fn what_has_two_readings_or_none_is_refused() {
        for text in [
            "",
            "/",
            "pods/",
            "/exec",
            "a/b/c",
            "pods ",
            "pods%2fexec",
            "pods.apps/scale.apps",
            "a..b",
            ".apps",
            "pods/.apps",
            "ρods",
            "pods\n",
        ] {
            assert_eq!(read(text), Err(NameError::Form), "{text:?}");
        }
        for text in ["*", "pods/*", "*.apps", "pods.*"] {
            assert_eq!(read(text), Err(NameError::Wildcard), "{text:?}");
        }
    }

    #[test]
    fn whatever_a_built_in_role_names_is_known() {
        let readable = TENANT_READABLE.map(|(group, resource)| (group.to_owned(), resource.to_owned()));
        let ruled = base_rules(Base::Admin).into_iter().flat_map(|rule| {
            let groups = rule.api_groups.clone();
            rule.resources
                .into_iter()
                .flat_map(move |resource| groups.clone().into_iter().map(move |group| (group, resource.clone())))
        });
        for (group, resource) in ruled.chain(readable) {
            let (main, sub) =
                resource.split_once('/').map_or((&*resource, String::new()), |(m, s)| (m, format!("/{s}")));
            let text = format!("{main}.{group}{sub}");
            let text = text.replace("./", "/");
            assert_eq!(named(text.trim_end_matches('.')), (Some(group.clone()), resource.clone()), "{text}");
            assert!(KINDS.iter().any(|kind| kind.0 == group && kind.1 == main), "{resource} in {group:?}");
        }
    }

    #[test]
    fn no_name_means_two_kinds_of_one_group() {
        let mut seen = std::collections::BTreeSet::new();
        for (group, plural, singular, short) in KINDS {
            let names =
                [plural].into_iter().chain((singular != plural).then_some(singular)).chain(short.iter().copied());
            for name in names {
                assert!(seen.insert((group, name)), "{name} in {group:?} stands there twice");
            }
        }
    }
}
