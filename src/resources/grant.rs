//! `Grant`: one sentence of authority.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// *subject* has *role* on *target*, in some of its namespaces perhaps, until a time perhaps.
#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "bailiwick.dev",
    version = "v1alpha1",
    kind = "Grant",
    plural = "grants",
    category = "bailiwick",
    status = "GrantStatus",
    printcolumn = r#"{"name":"Subject","type":"string","jsonPath":".spec.subject.name"}"#,
    printcolumn = r#"{"name":"Role","type":"string","jsonPath":".spec.role"}"#,
    printcolumn = r#"{"name":"On","type":"string","jsonPath":".spec.target.kind"}"#,
    printcolumn = r#"{"name":"Target","type":"string","jsonPath":".spec.target.name"}"#,
    printcolumn = r#"{"name":"State","type":"string","jsonPath":".status.state"}"#,
    printcolumn = r#"{"name":"Until","type":"string","jsonPath":".spec.expiresAt"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GrantSpec {
    /// Who receives it. Immutable.
    #[schemars(extend("x-kubernetes-validations" = [{"rule": "self == oldSelf", "message": "cannot be changed; delete the grant and write a new one"}]))]
    pub subject: Subject,
    /// A built-in role, an AccessRole that the project uses, or a platform role. Immutable.
    #[schemars(regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"), length(max = 63), extend("x-kubernetes-validations" = [{"rule": "self == oldSelf", "message": "cannot be changed; delete the grant and write a new one"}]))]
    pub role: String,
    /// What it is on. Immutable.
    #[schemars(extend("x-kubernetes-validations" = [{"rule": "self == oldSelf", "message": "cannot be changed; delete the grant and write a new one"}]))]
    pub target: Target,
    /// Only these namespaces of the project; empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 200), inner(regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"), length(max = 63)))]
    pub namespaces: Vec<String>,
    /// Time at which it ends (RFC 3339).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 40))]
    pub expires_at: Option<String>,
    /// Why it was given; shown in audit and explanations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub reason: Option<String>,
}

/// Receiver of a grant.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Subject {
    /// User or Team.
    pub kind: SubjectKind,
    /// Its name.
    #[schemars(
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"),
        length(max = 63)
    )]
    pub name: String,
}

/// Kinds of subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum SubjectKind {
    /// One account.
    User,
    /// Every member of a team.
    Team,
}

/// Object of a grant.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Target {
    /// Project, Cluster or Platform.
    pub kind: TargetKind,
    /// Its name; absent for the platform.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 63))]
    pub name: String,
}

/// Kinds of target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum TargetKind {
    /// The namespaces of a project, on all its clusters.
    Project,
    /// Every project namespace of a cluster.
    Cluster,
    /// Our own resources; no right in any cluster.
    Platform,
}

/// State of a grant. The UIDs are written once, when subject and target are first resolved.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GrantStatus {
    /// `Active`, `Waiting` (subject or target does not exist), `Expired` or `Stale` (a name came back as a stranger).
    #[serde(default)]
    pub state: String,
    /// UID of the subject that the grant was given to.
    #[serde(default, rename = "subjectUID", skip_serializing_if = "Option::is_none")]
    pub subject_uid: Option<String>,
    /// UID of the target that the grant was given on; absent for the platform.
    #[serde(default, rename = "targetUID", skip_serializing_if = "Option::is_none")]
    pub target_uid: Option<String>,
}
