//! `Project`: what one team owns.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::domain::refusals::{Finding, OverQuota};

use super::Condition;

/// Namespaces on one or more clusters, and the walls around them.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "bailiwick.dev",
    version = "v1alpha1",
    kind = "Project",
    plural = "projects",
    category = "bailiwick",
    status = "ProjectStatus",
    printcolumn = r#"{"name":"Display name","type":"string","jsonPath":".spec.displayName"}"#,
    printcolumn = r#"{"name":"Namespaces","type":"integer","jsonPath":".status.namespaceCount"}"#,
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.ready"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProjectSpec {
    /// Name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub display_name: Option<String>,
    /// AccessRoles that the project uses beside owner, member and viewer; only these are bound in its namespaces.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50), inner(regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"), length(max = 63)))]
    pub roles: Vec<String>,
    /// Where the project lives.
    #[serde(default)]
    #[schemars(length(max = 500))]
    pub clusters: Vec<ProjectCluster>,
    /// Pod Security levels of its namespaces.
    #[serde(default)]
    pub pod_security: PodSecurity,
    /// Which traffic its Pods may send and receive.
    #[serde(default)]
    pub network_isolation: NetworkIsolation,
    /// Requests and limits of containers that name none (a LimitRange).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container_defaults: Option<ContainerDefaults>,
}

/// A project's place on one cluster.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProjectCluster {
    /// Name of the cluster.
    #[schemars(regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"), length(max = 63))]
    pub cluster: String,
    /// Declared namespaces; they exist as long as they stand here.
    #[serde(default)]
    #[schemars(length(max = 1_000), inner(regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"), length(max = 63)))]
    pub namespaces: Vec<String>,
    /// Prefix of the names that members may create, ending in `-`. No prefix may begin another project's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?-$"), length(max = 40))]
    pub prefix: Option<String>,
    /// Most namespaces the project may have here, declared ones included. Absent: the declared ones only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000))]
    pub max_namespaces: Option<u32>,
    /// By what the project's namespaces here are changed.
    #[serde(default, skip_serializing_if = "Changes::is_anyones")]
    pub changes: Changes,
    /// Where to change them instead; with `changes: git`, and only then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git: Option<GitSource>,
    /// Hard limits of the whole project on this cluster, in ResourceQuota's keys (`requests.cpu`, `pods`, …).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub quota: BTreeMap<String, String>,
    /// Shares of single namespaces, by namespace and key; what is absent gets limit ÷ `maxNamespaces`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub shares: BTreeMap<String, BTreeMap<String, String>>,
}

impl ProjectSpec {
    /// The project's place on a cluster; `None` where it has none.
    pub fn on(&self, cluster: &str) -> Option<&ProjectCluster> {
        self.clusters.iter().find(|place| place.cluster == cluster)
    }
}

impl ProjectCluster {
    /// Whether a namespace of this name is declared here.
    pub fn declares(&self, namespace: &str) -> bool {
        self.namespaces.iter().any(|declared| declared == namespace)
    }
}

/// By what a project's namespaces on a cluster are changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Changes {
    /// By everybody whose role permits it.
    #[default]
    Anyone,
    /// By machines. People read; to write, exec, attach or forward a port they need a grant with `expiresAt`.
    Git,
}

impl Changes {
    fn is_anyones(&self) -> bool {
        *self == Self::Anyone
    }
}

/// Where the manifests are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GitSource {
    /// Repository, as people find it; without a credential.
    #[schemars(length(min = 1, max = 256))]
    pub repository: String,
    /// Folder or file in it.
    #[schemars(length(min = 1, max = 256))]
    pub path: String,
}

/// Levels of <https://kubernetes.io/docs/concepts/security/pod-security-standards/>.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PodSecurity {
    /// Pods below this level are refused.
    #[serde(default = "baseline")]
    pub enforce: PodSecurityLevel,
    /// Pods below this level are recorded in the cluster's audit log.
    #[serde(default = "restricted")]
    pub audit: PodSecurityLevel,
    /// Pods below this level are accepted with a warning.
    #[serde(default = "restricted")]
    pub warn: PodSecurityLevel,
}

fn baseline() -> PodSecurityLevel {
    PodSecurityLevel::Baseline
}

fn restricted() -> PodSecurityLevel {
    PodSecurityLevel::Restricted
}

impl Default for PodSecurity {
    fn default() -> Self {
        Self { enforce: baseline(), audit: restricted(), warn: restricted() }
    }
}

/// A Pod Security level; `privileged` can only be enforced where the cluster's administrator allowed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PodSecurityLevel {
    /// No limits.
    Privileged,
    /// No known escalations.
    Baseline,
    /// Hardened.
    Restricted,
}

impl PodSecurityLevel {
    /// The level of a name.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Privileged, Self::Baseline, Self::Restricted].into_iter().find(|level| level.as_str() == name)
    }

    /// The value of the label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Privileged => "privileged",
            Self::Baseline => "baseline",
            Self::Restricted => "restricted",
        }
    }
}

/// Reach of a project's Pods on the network. DNS is always allowed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum NetworkIsolation {
    /// No NetworkPolicies of ours; members may write their own.
    #[default]
    None,
    /// Traffic within the project only, both directions.
    Project,
    /// Traffic within each namespace only, both directions.
    Namespace,
}

/// Defaults of a LimitRange of type Container.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ContainerDefaults {
    /// `defaultRequest`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub requests: BTreeMap<String, String>,
    /// `default`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, String>,
}

/// What was last seen of a project's namespaces.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProjectStatus {
    /// `Ready`; `Isolated` where network isolation is asked for; `Contested` once another applier was fought.
    #[serde(default)]
    pub conditions: Vec<Condition>,
    /// The status of the condition `Ready`, for columns.
    #[serde(default)]
    pub ready: String,
    /// Number of namespaces, on all clusters.
    #[serde(default)]
    pub namespace_count: u32,
    /// Each namespace.
    #[serde(default)]
    pub namespaces: Vec<NamespaceStatus>,
}

/// One namespace of a project.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NamespaceStatus {
    /// Cluster.
    pub cluster: String,
    /// Namespace.
    pub name: String,
    /// `Ready`, `Pending`, `Refused` or `Terminating`.
    pub state: String,
    /// What stands in the way, where something does.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Hard limits of its ResourceQuota.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub hard: BTreeMap<String, String>,
    /// Use against them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub used: BTreeMap<String, String>,
    /// Pods that the cluster refused within the last hour, newest first, each cause of each object once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refusals: Vec<Refusal>,
    /// Objects of ours in it that another applier keeps changing; they are put right ever more rarely until that stops.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub contested: Vec<ContestedObject>,
    /// What adopting it would mean, where it is another's namespace that the project may adopt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adoption: Option<AdoptionReport>,
    /// Where the project is isolated: NetworkPolicies of others that stand there and let more through.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub opened_by: Vec<String>,
}

/// Pods that a cluster refused, as the event of what wanted to make them tells it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Refusal {
    /// Kind and name of what wanted to make them: `ReplicaSet web-7d4b9c`.
    pub object: String,
    /// `Quota`: used up; `Unstated`: the quota counts what containers do not state; `PodSecurity`; `Other`.
    pub reason: String,
    /// The resources of which too little is left.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub over: Vec<OverQuota>,
    /// The resources that containers must state.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unstated: Vec<String>,
    /// The Pod Security level.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub level: String,
    /// What the level does not let.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Finding>,
    /// How often.
    pub count: u32,
    /// When last, RFC 3339.
    pub last: String,
    /// The cluster's own words.
    pub message: String,
}

/// What a stricter Pod Security level would refuse in a namespace, by the API server's own dry run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LevelReport {
    /// Cluster.
    pub cluster: String,
    /// Namespace.
    pub name: String,
    /// The level that was tried.
    pub level: String,
    /// Pods of each kind that it would refuse.
    #[serde(default)]
    pub pods: Vec<LevelFindings>,
    /// Why nothing is known, where it could not be tried.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// What a level would refuse of some Pods.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LevelFindings {
    /// The Pods, in the API server's words: `web-7d4b9c (and 2 other pods)`.
    pub pods: String,
    /// What of them.
    pub findings: Vec<Finding>,
}

/// What adopting a namespace that is there already means. What stands in it stays.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdoptionReport {
    /// Cluster.
    pub cluster: String,
    /// Namespace.
    pub name: String,
    /// Pod Security level that will be enforced.
    pub enforce: String,
    /// RoleBindings of others: they stay in force, beside the project's grants.
    #[serde(default)]
    pub role_bindings: Vec<AdoptedBinding>,
    /// The API server's own words on the Pods that the level would refuse; they run on, and do not start again.
    #[serde(default)]
    pub refused_pods: Vec<String>,
    /// Where the project is isolated: NetworkPolicies of others that let more through.
    #[serde(default)]
    pub opened_by: Vec<String>,
    /// Whether the Pods' use was counted; it is where the cluster's administrator lets us list them.
    pub use_counted: bool,
    /// Use over the namespace's share of the quota: nothing more starts until it is below.
    #[serde(default)]
    pub use_over_share: Vec<AdoptedUse>,
}

/// A RoleBinding of others in a namespace that is adopted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdoptedBinding {
    /// Name.
    pub name: String,
    /// Kind and name of the role.
    pub role: String,
    /// Kind and name of each subject.
    pub subjects: Vec<String>,
}

/// A resource of which more is used than the share allows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdoptedUse {
    /// Key of the ResourceQuota.
    pub resource: String,
    /// Used by the Pods that are there.
    pub used: String,
    /// Share of the namespace.
    pub share: String,
}

/// An object of ours that another applier keeps changing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContestedObject {
    /// Kind of the object.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Field manager of the other applier, where the cluster says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manager: Option<String>,
}
