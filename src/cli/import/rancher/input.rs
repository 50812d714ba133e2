//! Rancher's kinds as `kubectl get -o yaml` writes them. Unknown fields are let pass, wrong types are not.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Losses, What};

const MANAGEMENT: &str = "management.cattle.io/v3";
/// Annotation of a namespace that names its project, `cluster:project`.
pub const PROJECT_ID: &str = "field.cattle.io/projectId";
/// Most objects of an export.
const MAX_OBJECTS: usize = 200_000;

/// One object of an export.
#[derive(Debug, Clone)]
pub struct Document {
    /// `file:line`, and the position in a list.
    pub place: String,
    /// All of it.
    pub value: Value,
}

/// Why an export cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InputError {
    /// A field is missing or has the wrong type.
    #[error("{place}: {kind}: {field}: {why}")]
    Field {
        /// Document.
        place: String,
        /// Kind of the object.
        kind: String,
        /// Path.
        field: String,
        /// What is wrong.
        why: String,
    },
    /// One object stands there twice, and differently.
    #[error("{place}: {what} is described a second time and differently, first at {first}")]
    Twice {
        /// Document.
        place: String,
        /// The object.
        what: String,
        /// The other document.
        first: String,
    },
    /// More objects than can be handled.
    #[error("more than {MAX_OBJECTS} objects")]
    TooMany,
    /// Nothing of Rancher's is in it.
    #[error(
        "no object of Rancher's is in it; export with kubectl --context RANCHER get \
         clusters.management.cattle.io,projects.management.cattle.io,… -A -o yaml"
    )]
    Nothing,
}

/// Which object of the export something comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// Document.
    pub place: String,
    /// Kind.
    pub kind: &'static str,
    /// `namespace/name` or `name`.
    pub id: String,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.id)
    }
}

/// An object and where it comes from.
#[derive(Debug, Clone)]
pub struct Entry<T> {
    /// Where from.
    pub source: Source,
    /// The object.
    pub object: T,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metadata {
    pub name: String,
    pub namespace: String,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub deletion_timestamp: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Cluster {
    pub metadata: Metadata,
    #[serde(default)]
    pub spec: ClusterSpec,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterSpec {
    pub display_name: String,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Project {
    pub metadata: Metadata,
    pub spec: ProjectSpec,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProjectSpec {
    #[serde(default)]
    pub display_name: String,
    #[serde(default)]
    pub description: String,
    pub cluster_name: String,
    #[serde(default)]
    pub resource_quota: Quota,
    #[serde(default)]
    pub namespace_default_resource_quota: Quota,
    #[serde(default)]
    pub container_default_resource_limit: BTreeMap<String, Value>,
}

/// Any of Rancher's quotas: what is beside `limit` is only what is in use.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Quota {
    pub limit: BTreeMap<String, Value>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct User {
    pub metadata: Metadata,
    #[serde(default)]
    pub display_name: String,
    #[serde(default)]
    pub username: String,
    #[serde(default)]
    pub principal_ids: Vec<String>,
    /// Absent: yes.
    pub enabled: Option<bool>,
}

impl User {
    /// Whether the account is one that Rancher made for itself.
    pub fn is_system(&self) -> bool {
        self.principal_ids.iter().any(|id| id.starts_with("system:"))
    }
}

/// A `ProjectRoleTemplateBinding`, a `ClusterRoleTemplateBinding` or a `GlobalRoleBinding`.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Binding {
    pub metadata: Metadata,
    #[serde(default)]
    pub user_name: String,
    #[serde(default)]
    pub user_principal_name: String,
    #[serde(default)]
    pub group_name: String,
    #[serde(default)]
    pub group_principal_name: String,
    #[serde(default)]
    pub service_account: String,
    #[serde(default)]
    pub project_name: String,
    #[serde(default)]
    pub cluster_name: String,
    #[serde(default)]
    pub role_template_name: String,
    #[serde(default)]
    pub global_role_name: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RoleTemplate {
    pub metadata: Metadata,
    #[serde(default)]
    pub display_name: String,
    #[serde(default)]
    pub rules: Vec<Rule>,
    #[serde(default)]
    pub builtin: bool,
    #[serde(default)]
    pub external: bool,
    #[serde(default)]
    pub locked: bool,
    #[serde(default)]
    pub context: String,
    #[serde(default)]
    pub role_template_names: Vec<String>,
}

/// A rule of Kubernetes' RBAC.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rule {
    pub api_groups: Vec<String>,
    pub resources: Vec<String>,
    pub verbs: Vec<String>,
    pub resource_names: Vec<String>,
    #[serde(rename = "nonResourceURLs")]
    pub non_resource_urls: Vec<String>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct ClusterRole {
    pub metadata: Metadata,
    #[serde(default)]
    pub rules: Vec<Rule>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GlobalRole {
    pub metadata: Metadata,
    #[serde(default)]
    pub inherited_cluster_roles: Vec<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Group {
    pub metadata: Metadata,
    #[serde(default)]
    pub display_name: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupMember {
    pub metadata: Metadata,
    #[serde(default)]
    pub group_name: String,
    #[serde(default)]
    pub principal_id: String,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Namespace {
    pub metadata: Metadata,
}

/// All that is read of an export, by ids.
#[derive(Debug, Default)]
pub struct Export {
    pub clusters: BTreeMap<String, Entry<Cluster>>,
    /// By `cluster:project`.
    pub projects: BTreeMap<String, Entry<Project>>,
    pub users: BTreeMap<String, Entry<User>>,
    pub templates: BTreeMap<String, Entry<RoleTemplate>>,
    pub project_bindings: BTreeMap<String, Entry<Binding>>,
    pub cluster_bindings: BTreeMap<String, Entry<Binding>>,
    pub global_bindings: BTreeMap<String, Entry<Binding>>,
    pub global_roles: BTreeMap<String, Entry<GlobalRole>>,
    pub groups: BTreeMap<String, Entry<Group>>,
    pub members: BTreeMap<String, Entry<GroupMember>>,
    /// In the order of the export: each cluster may have one of a name.
    pub namespaces: Vec<Entry<Namespace>>,
    /// Each cluster may have one of a name.
    pub cluster_roles: BTreeMap<String, Vec<Entry<ClusterRole>>>,
}

impl Export {
    /// Every cluster that something refers to.
    pub fn cluster_ids(&self) -> BTreeSet<&str> {
        let named = self.clusters.keys().map(String::as_str);
        let of_projects = self.projects.values().map(|p| p.object.spec.cluster_name.as_str());
        let of_bindings = self.cluster_bindings.values().map(|b| b.object.cluster_name.as_str());
        named.chain(of_projects).chain(of_bindings).filter(|id| !id.is_empty()).collect()
    }
}

/// Reads the objects of an export.
pub fn read(documents: Vec<Document>, losses: &mut Losses) -> Result<Export, InputError> {
    if documents.len() > MAX_OBJECTS {
        return Err(InputError::TooMany);
    }
    let mut reader = Reader { losses, seen: BTreeMap::new(), other: BTreeMap::new() };
    let mut export = Export::default();
    for document in documents {
        reader.one(document, &mut export)?;
    }
    for (kind, (count, place)) in reader.other {
        let source = Source { place, kind: "kind", id: kind };
        losses.note(What::Skipped, &source, "", format!("is not read; {count} of it are left out"));
    }
    let anything = !export.projects.is_empty()
        || !export.users.is_empty()
        || !export.templates.is_empty()
        || !export.clusters.is_empty()
        || !export.project_bindings.is_empty()
        || !export.cluster_bindings.is_empty();
    if anything { Ok(export) } else { Err(InputError::Nothing) }
}

struct Reader<'a> {
    losses: &'a mut Losses,
    /// What was read under a kind and id, with its place.
    seen: BTreeMap<(&'static str, String), (Value, String)>,
    /// Kinds that are not read: how many, and where the first stands.
    other: BTreeMap<String, (usize, String)>,
}

impl Reader<'_> {
    fn one(&mut self, document: Document, export: &mut Export) -> Result<(), InputError> {
        let api_version = document.value["apiVersion"].as_str().unwrap_or_default().to_owned();
        let kind = document.value["kind"].as_str().unwrap_or_default().to_owned();
        let named = |o: &Value| o["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        match (api_version.as_str(), kind.as_str()) {
            (MANAGEMENT, "Cluster") => self.keep("Cluster", document, &mut export.clusters, |_, id| id),
            (MANAGEMENT, "Project") => {
                let key = |project: &Project, _| format!("{}:{}", project.spec.cluster_name, project.metadata.name);
                self.keep("Project", document, &mut export.projects, key)
            }
            (MANAGEMENT, "User") => self.keep("User", document, &mut export.users, |_, id| id),
            (MANAGEMENT, "RoleTemplate") => self.keep("RoleTemplate", document, &mut export.templates, |_, id| id),
            (MANAGEMENT, "ProjectRoleTemplateBinding") => {
                self.keep("ProjectRoleTemplateBinding", document, &mut export.project_bindings, |_, id| id)
            }
            (MANAGEMENT, "ClusterRoleTemplateBinding") => {
                self.keep("ClusterRoleTemplateBinding", document, &mut export.cluster_bindings, |_, id| id)
            }
            (MANAGEMENT, "GlobalRoleBinding") => {
                self.keep("GlobalRoleBinding", document, &mut export.global_bindings, |_, id| id)
            }
            (MANAGEMENT, "GlobalRole") => self.keep("GlobalRole", document, &mut export.global_roles, |_, id| id),
            (MANAGEMENT, "Group") => self.keep("Group", document, &mut export.groups, |_, id| id),
            (MANAGEMENT, "GroupMember") => self.keep("GroupMember", document, &mut export.members, |_, id| id),
            ("v1", "Namespace") => {
                let mut one = BTreeMap::new();
                // Each cluster has its own namespaces, and only the project's id tells which cluster this is.
                self.decode("Namespace", document, &mut one, |_, id| id)?;
                export.namespaces.extend(one.into_values().map(|mut namespace: Entry<Namespace>| {
                    let Metadata { name, annotations, .. } = &namespace.object.metadata;
                    if let Some((cluster, _)) = annotations.get(PROJECT_ID).and_then(|id| id.split_once(':')) {
                        namespace.source.id = format!("{cluster}/{name}");
                    }
                    namespace
                }));
                Ok(())
            }
            ("rbac.authorization.k8s.io/v1", "ClusterRole") => {
                let name = named(&document.value);
                let mut one = BTreeMap::new();
                self.decode("ClusterRole", document, &mut one, |_, id| id)?;
                export.cluster_roles.entry(name).or_default().extend(one.into_values());
                Ok(())
            }
            ("", _) | (_, "") => Err(InputError::Field {
                place: super::disarmed(&document.place),
                kind: "object".to_owned(),
                field: if api_version.is_empty() { "apiVersion" } else { "kind" }.to_owned(),
                why: "is missing".to_owned(),
            }),
            _ => {
                let kind = super::disarmed(&format!("{kind} ({api_version})"));
                self.other.entry(kind).or_insert((0, document.place)).0 += 1;
                Ok(())
            }
        }
    }

    /// As [`Reader::decode`], where an id can stand only once.
    fn keep<T: DeserializeOwned + HasMetadata>(
        &mut self,
        kind: &'static str,
        document: Document,
        into: &mut BTreeMap<String, Entry<T>>,
        key: impl Fn(&T, String) -> String,
    ) -> Result<(), InputError> {
        let metadata = &document.value["metadata"];
        let text = |field: &str| metadata[field].as_str().unwrap_or_default();
        let id = (kind, format!("{}/{}", text("namespace"), text("name")));
        if let Some((first, place)) = self.seen.get(&id) {
            if *first == document.value {
                return Ok(());
            }
            let (place, first) = (super::disarmed(&document.place), super::disarmed(place));
            return Err(InputError::Twice {
                place,
                what: super::disarmed(&format!("{kind} {}", id.1.trim_start_matches('/'))),
                first,
            });
        }
        self.seen.insert(id, (document.value.clone(), document.place.clone()));
        self.decode(kind, document, into, key)
    }

    fn decode<T: DeserializeOwned + HasMetadata>(
        &mut self,
        kind: &'static str,
        document: Document,
        into: &mut BTreeMap<String, Entry<T>>,
        key: impl Fn(&T, String) -> String,
    ) -> Result<(), InputError> {
        let Document { place, mut value } = document;
        without_nulls(&mut value);
        let fail = |field: String, why: &str| InputError::Field {
            place: super::disarmed(&place),
            kind: kind.to_owned(),
            field: super::disarmed(&field),
            why: super::disarmed(why),
        };
        let object: T = serde_path_to_error::deserialize(&value).map_err(|e| {
            let path = e.path().to_string();
            fail(if path == "." { "object".to_owned() } else { path }, &e.inner().to_string())
        })?;
        let metadata = object.metadata();
        if metadata.name.is_empty() {
            return Err(fail("metadata.name".to_owned(), "is missing"));
        }
        let id = match metadata.namespace.as_str() {
            "" => metadata.name.clone(),
            namespace => format!("{namespace}/{}", metadata.name),
        };
        let source = Source { place, kind, id: id.clone() };
        if metadata.deletion_timestamp.is_some() {
            self.losses.note(What::Skipped, &source, "metadata.deletionTimestamp", "is being deleted");
            return Ok(());
        }
        let key = key(&object, id);
        if let Some(Entry { source: first, .. }) = into.get(&key) {
            let what = super::disarmed(&format!("{kind} {key}"));
            return Err(InputError::Twice {
                place: super::disarmed(&source.place),
                what,
                first: super::disarmed(&first.place),
            });
        }
        into.insert(key, Entry { source, object });
        Ok(())
    }
}

/// kubectl writes what is absent as null in places.
fn without_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(without_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(without_nulls),
        _ => {}
    }
}

pub trait HasMetadata {
    fn metadata(&self) -> &Metadata;
}

macro_rules! has_metadata {
    ($($kind:ty),*) => {
        $(impl HasMetadata for $kind {
            fn metadata(&self) -> &Metadata {
                &self.metadata
            }
        })*
    };
}

has_metadata!(Cluster, Project, User, Binding, RoleTemplate, ClusterRole, GlobalRole, Group, GroupMember, Namespace);
