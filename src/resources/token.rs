//! `Token`: what is known of a credential. Read and delete only; the credential itself is shown once, when it is made.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whose a token is and what it is good for.
#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "bailiwick.dev",
    version = "v1alpha1",
    kind = "Token",
    plural = "tokens",
    category = "bailiwick",
    status = "TokenStatus",
    printcolumn = r#"{"name":"Owner","type":"string","jsonPath":".spec.owner"}"#,
    printcolumn = r#"{"name":"Audience","type":"string","jsonPath":".spec.audience"}"#,
    printcolumn = r#"{"name":"Description","type":"string","jsonPath":".spec.description"}"#,
    printcolumn = r#"{"name":"Last used","type":"string","jsonPath":".status.lastUsed"}"#,
    printcolumn = r#"{"name":"Expires","type":"string","jsonPath":".spec.expiresAt"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TokenSpec {
    /// Name of the account.
    pub owner: String,
    /// Where it is accepted.
    pub audience: Audience,
    /// What it is limited to.
    #[serde(default)]
    pub scopes: Scopes,
    /// When it ends (RFC 3339).
    pub expires_at: String,
    /// What its owner calls it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
}

/// Where a token is accepted: never both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Audience {
    /// The proxy only.
    Kube,
    /// Our own API only.
    Api,
}

/// Limits of a token; they only take away from what its owner may do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Scopes {
    /// Only these clusters; empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clusters: Vec<String>,
    /// Only these projects; empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub projects: Vec<String>,
    /// Only get, list and watch.
    #[serde(default)]
    pub read_only: bool,
}

/// Use of a token.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TokenStatus {
    /// When it was last used, to the minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_used: Option<String>,
}
