//! What kubectl asks before anything else: versions, groups, resources.
//!
//! <https://kubernetes.io/docs/concepts/overview/kubernetes-api/#discovery-api>

use http::HeaderMap;
use serde_json::{Value, json};

use super::accept;
use super::kinds::{self, Served};
use crate::resources::{API_VERSION, GROUP, VERSION};
use crate::status::Status;

/// `/version`: the level of the API machinery that this API keeps to, and our own version.
pub(super) fn version() -> Value {
    json!({
        "major": "1",
        "minor": "36",
        "gitVersion": concat!("v1.36.0+bailiwick.", env!("CARGO_PKG_VERSION")),
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    })
}

/// `/api`: the core group, of which nothing is served.
pub(super) fn core(headers: &HeaderMap) -> Result<(Value, bool), Status> {
    if accept::wants_aggregated_discovery(headers)? {
        return Ok((aggregated(vec![]), true));
    }
    Ok((json!({"kind": "APIVersions", "versions": [], "serverAddressByClientCIDRs": []}), false))
}

/// `/apis`: all groups, in the form that the client prefers, and whether that is the aggregated one.
pub(super) fn groups(headers: &HeaderMap) -> Result<(Value, bool), Status> {
    if accept::wants_aggregated_discovery(headers)? {
        let resources = kinds::all().iter().map(aggregated_resource).collect::<Vec<_>>();
        let group = json!({
            "metadata": {"name": GROUP, "creationTimestamp": null},
            "versions": [{"version": VERSION, "resources": resources, "freshness": "Current"}],
        });
        return Ok((aggregated(vec![group]), true));
    }
    let mut group = self::group();
    if let Some(group) = group.as_object_mut() {
        group.remove("kind");
        group.remove("apiVersion");
    }
    Ok((json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": [group]}), false))
}

/// `/apis/bailiwick.dev`.
pub(super) fn group() -> Value {
    let version = json!({"groupVersion": API_VERSION, "version": VERSION});
    json!({"kind": "APIGroup", "apiVersion": "v1", "name": GROUP, "versions": [version], "preferredVersion": version})
}

/// `/apis/bailiwick.dev/v1alpha1`.
pub(super) fn resources() -> Value {
    let resources = kinds::all().iter().flat_map(|served| {
        let main = json!({
            "name": served.plural,
            "singularName": served.singular,
            "namespaced": false,
            "kind": served.name(),
            "verbs": served.verbs,
            "shortNames": served.short_names,
            "categories": ["bailiwick"],
        });
        let below = served.subresources.iter().map(|(name, verbs)| {
            json!({
                "name": format!("{}/{name}", served.plural),
                "singularName": "",
                "namespaced": false,
                "kind": served.name(),
                "verbs": verbs,
            })
        });
        std::iter::once(main).chain(below).collect::<Vec<_>>()
    });
    json!({
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": API_VERSION,
        "resources": resources.collect::<Vec<_>>(),
    })
}

fn aggregated(groups: Vec<Value>) -> Value {
    json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": groups,
    })
}

fn aggregated_resource(served: &Served) -> Value {
    let kind = json!({"group": GROUP, "version": VERSION, "kind": served.name()});
    let below = served
        .subresources
        .iter()
        .map(|(name, verbs)| json!({"subresource": name, "responseKind": kind, "verbs": verbs}));
    json!({
        "resource": served.plural,
        "responseKind": kind,
        "scope": "Cluster",
        "singularResource": served.singular,
        "verbs": served.verbs,
        "shortNames": served.short_names,
        "categories": ["bailiwick"],
        "subresources": below.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_read_and_deleted_only() {
        let list = resources();
        let tokens = list["resources"].as_array().unwrap().iter().find(|r| r["name"] == "tokens").unwrap();
        assert_eq!(tokens["verbs"], json!(["delete", "get", "list", "watch"]));
    }

    #[test]
    fn short_names_are_unique() {
        let mut seen = std::collections::BTreeSet::new();
        for served in kinds::all() {
            for name in served.short_names.iter().chain([&served.plural, &served.singular]) {
                assert!(seen.insert(*name), "{name}");
            }
        }
    }
}
