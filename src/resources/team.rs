//! `Team`: a set of users.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Who belongs to a team.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "bailiwick.dev",
    version = "v1alpha1",
    kind = "Team",
    plural = "teams",
    category = "bailiwick",
    status = "TeamStatus",
    printcolumn = r#"{"name":"Display name","type":"string","jsonPath":".spec.displayName"}"#,
    printcolumn = r#"{"name":"Members","type":"integer","jsonPath":".status.memberCount"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TeamSpec {
    /// Name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub display_name: Option<String>,
    /// Names of users.
    #[serde(default)]
    #[schemars(
        length(max = 5_000),
        inner(regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"), length(max = 63))
    )]
    pub users: Vec<String>,
}

/// The team as it stands; filled in when it is read.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TeamStatus {
    /// Members that exist.
    #[serde(default)]
    pub members: Vec<String>,
    /// How many of them.
    #[serde(default)]
    pub member_count: u32,
    /// Names in the spec without an account; they get nothing until an administrator creates the account and touches
    /// the team again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<String>,
    /// UIDs of members, by name, as they were when the name was first resolved. A name that comes back is a stranger.
    #[serde(default, rename = "memberUIDs", skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    pub member_uids: std::collections::BTreeMap<String, String>,
}
