//! The kinds that are served, with what discovery, schemas and columns say of them.

use std::sync::LazyLock;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;
use serde_json::Value;

use crate::resources::{AccessRole, Cluster, Grant, Project, Team, Token, User};
use crate::store::Kind;

/// Verbs of the kinds that people write.
const ALL_VERBS: &[&str] = &["create", "delete", "get", "list", "patch", "update", "watch"];
/// Verbs of what is made by acts only.
const READ_AND_DELETE: &[&str] = &["delete", "get", "list", "watch"];

/// One kind of the API.
pub(super) struct Served {
    /// Kind in the store.
    pub(super) kind: Kind,
    /// Plural, as in paths.
    pub(super) plural: &'static str,
    /// Singular, for kubectl.
    pub(super) singular: &'static str,
    /// Abbreviations for kubectl.
    pub(super) short_names: &'static [&'static str],
    /// What can be done.
    pub(super) verbs: &'static [&'static str],
    /// Acts and parts below an object, with their verbs.
    pub(super) subresources: &'static [(&'static str, &'static [&'static str])],
    /// Table columns beside the name.
    pub(super) columns: Vec<Column>,
    /// Structural schema of the whole object, without metadata.
    pub(super) schema: Value,
}

/// A column of `kubectl get`.
pub(super) struct Column {
    /// Heading.
    pub(super) name: String,
    /// `string`, `integer` or `date`.
    pub(super) type_: String,
    /// For people.
    pub(super) description: String,
    /// Above 0: only with `-o wide`.
    pub(super) priority: i32,
    /// Members to walk to the value.
    pub(super) path: Vec<String>,
}

impl Served {
    /// Name of the kind, `User`.
    pub(super) fn name(&self) -> &'static str {
        self.kind.as_str()
    }

    /// Whether objects are written by people (and not projected from records).
    pub(super) fn is_written(&self) -> bool {
        self.verbs.contains(&"create")
    }
}

static SERVED: LazyLock<Vec<Served>> = LazyLock::new(|| {
    const CREATE: &[&str] = &["create"];
    const GET: &[&str] = &["get"];
    vec![
        served(Kind::AccessRole, AccessRole::crd(), "accessroles", "accessrole", &["ar"], ALL_VERBS, &[]),
        served(
            Kind::Cluster,
            Cluster::crd(),
            "clusters",
            "cluster",
            &["cl"],
            ALL_VERBS,
            &[("check", GET), ("check-upgrade", GET), ("credential", CREATE), ("forget", CREATE)],
        ),
        served(Kind::Grant, Grant::crd(), "grants", "grant", &["gr"], ALL_VERBS, &[]),
        served(
            Kind::Project,
            Project::crd(),
            "projects",
            "project",
            &["proj"],
            ALL_VERBS,
            &[("namespaces", &["create", "delete"])],
        ),
        served(Kind::Team, Team::crd(), "teams", "team", &[], ALL_VERBS, &[]),
        served(Kind::Token, Token::crd(), "tokens", "token", &[], READ_AND_DELETE, &[]),
        served(
            Kind::User,
            User::crd(),
            "users",
            "user",
            &[],
            ALL_VERBS,
            &[
                ("kubeconfig", CREATE),
                ("password", CREATE),
                ("resume", CREATE),
                ("suspend", CREATE),
                ("tokens", CREATE),
            ],
        ),
    ]
});

fn served(
    kind: Kind,
    crd: CustomResourceDefinition,
    plural: &'static str,
    singular: &'static str,
    short_names: &'static [&'static str],
    verbs: &'static [&'static str],
    subresources: &'static [(&'static str, &'static [&'static str])],
) -> Served {
    let version = crd.spec.versions.into_iter().next();
    let (schema, columns) = match version {
        Some(version) => (
            version.schema.and_then(|s| s.open_api_v3_schema).and_then(|s| serde_json::to_value(s).ok()),
            version.additional_printer_columns.unwrap_or_default(),
        ),
        None => (None, vec![]),
    };
    let columns = columns
        .into_iter()
        .map(|column| Column {
            name: column.name,
            type_: column.type_,
            description: column.description.unwrap_or_default(),
            priority: column.priority.unwrap_or(0),
            path: column.json_path.split('.').filter(|part| !part.is_empty()).map(str::to_owned).collect(),
        })
        .collect();
    Served { kind, plural, singular, short_names, verbs, subresources, columns, schema: schema.unwrap_or(Value::Null) }
}

/// All kinds, sorted by plural.
pub(super) fn all() -> &'static [Served] {
    &SERVED
}

/// The kind of a path segment. Sealed kinds and records have none, so no path reaches them.
pub(super) fn by_plural(plural: &str) -> Option<&'static Served> {
    SERVED.iter().find(|served| served.plural == plural)
}

/// What is served of a kind of the store.
pub(super) fn by_kind(kind: Kind) -> Option<&'static Served> {
    SERVED.iter().find(|served| served.kind == kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_reach_resources_and_nothing_sealed() {
        for plural in ["clusters", "users", "teams", "accessroles", "grants", "projects", "tokens"] {
            assert!(by_plural(plural).is_some(), "{plural}");
        }
        for plural in ["accounts", "Account", "claims", "ledgers", "platforms", "clustercredentials", "user", ""] {
            assert!(by_plural(plural).is_none(), "{plural}");
        }
    }

    #[test]
    fn every_kind_has_schema_and_columns_and_matches_its_crd() {
        for (served, crd) in [("users", User::crd()), ("tokens", Token::crd()), ("grants", Grant::crd())] {
            let names = crd.spec.names;
            let served = by_plural(served).unwrap();
            assert_eq!((names.plural.as_str(), names.kind.as_str()), (served.plural, served.name()));
        }
        for served in all() {
            assert!(served.schema["properties"]["spec"]["properties"].is_object(), "{}", served.plural);
            assert_eq!(served.columns.last().map(|c| c.name.as_str()), Some("Age"), "{}", served.plural);
        }
    }
}
