//! `Cluster`: an imported Kubernetes cluster.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Condition;

/// What the service needs to know to reach a cluster, and how far tenants may reach in it.
#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "bailiwick.dev",
    version = "v1alpha1",
    kind = "Cluster",
    plural = "clusters",
    category = "bailiwick",
    status = "ClusterStatus",
    printcolumn = r#"{"name":"Server","type":"string","jsonPath":".spec.connection.direct.server"}"#,
    printcolumn = r#"{"name":"Version","type":"string","jsonPath":".status.version"}"#,
    printcolumn = r#"{"name":"Reachable","type":"string","jsonPath":".status.reachable"}"#,
    printcolumn = r#"{"name":"Mode","type":"string","jsonPath":".status.impersonation"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClusterSpec {
    /// Name for people; the resource's name is used where this is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub display_name: Option<String>,
    /// How the service reaches the cluster's API server.
    pub connection: Connection,
    /// Kubernetes versions that are accepted; outside of it requests are refused. Absent: 1.30 and later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted_versions: Option<VersionRange>,
    /// API groups that tenants may reach beside the built-in ones, where a role grants them.
    #[serde(default, rename = "tenantAPIGroups", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 200), inner(length(max = 253)))]
    pub tenant_api_groups: Vec<String>,
}

/// How a cluster is reached. Exactly one member is set.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Connection {
    /// The service dials the API server itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direct: Option<DirectConnection>,
}

/// Address and trust of an API server. The credentials are not here: they come by `cluster import`, or from a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DirectConnection {
    /// `https://host:port`, without path, query or user.
    #[schemars(regex(pattern = r"^https://[^/?#@]+$"), length(max = 300))]
    pub server: String,
    /// The CA certificates that the API server's certificate must chain to, in PEM. Nothing else is trusted.
    #[schemars(length(max = 65_536))]
    pub certificate_authority: String,
    /// Name expected in the certificate where it differs from the host in `server`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_server_name: Option<String>,
    /// Where the tokens of the two accounts come from; absent: from `cluster import`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential_from: Option<CredentialSource>,
}

/// Where a credential comes from. It is read again when it changes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CredentialSource {
    /// Name of a file in the directory `credential_dir` of the service's configuration: JSON with `server`,
    /// `certificateAuthority` and, where it is given here, `tlsServerName`, equal to those of this connection, and with
    /// `kubeSystemUID`, `forwarding` and `housekeeping`.
    #[schemars(regex(pattern = r"^[A-Za-z0-9][-A-Za-z0-9._]*$"), length(max = 253))]
    pub file: String,
}

/// Whether a text is the plain name of a file: no path, no hidden file.
pub fn is_file_name(name: &str) -> bool {
    let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
    name.len() <= 253 && name.bytes().all(legal) && name.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric)
}

/// A range of Kubernetes minor versions, both ends included, written `1.30`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct VersionRange {
    /// Oldest accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[1-9][0-9]{0,3}\.(0|[1-9][0-9]{0,3})$"))]
    pub min: Option<String>,
    /// Newest accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[1-9][0-9]{0,3}\.(0|[1-9][0-9]{0,3})$"))]
    pub max: Option<String>,
}

/// What was last seen of a cluster.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStatus {
    /// `Reachable`, `VersionSupported`, `RightsComplete`, `GuardsInForce`, `Reconciled`; `CredentialFile` where the
    /// credential comes from a file.
    #[serde(default)]
    pub conditions: Vec<Condition>,
    /// The status of the condition `Reachable`, for columns.
    #[serde(default)]
    pub reachable: String,
    /// Version that the API server reports.
    #[serde(default)]
    pub version: String,
    /// `constrained` (Kubernetes 1.36 on), `limited` (legacy, by resource names) or `refused`.
    #[serde(default)]
    pub impersonation: String,
    /// UID of the namespace kube-system: the identity of the cluster behind the address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_uid: Option<String>,
}
