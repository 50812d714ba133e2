//! `User`: an account of a person or a machine.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An account. Passwords, factors and suspension are sealed records, never here.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "bailiwick.dev",
    version = "v1alpha1",
    kind = "User",
    plural = "users",
    category = "bailiwick",
    status = "UserStatus",
    printcolumn = r#"{"name":"Display name","type":"string","jsonPath":".spec.displayName"}"#,
    printcolumn = r#"{"name":"Type","type":"string","jsonPath":".spec.type"}"#,
    printcolumn = r#"{"name":"State","type":"string","jsonPath":".status.state"}"#,
    printcolumn = r#"{"name":"Tokens","type":"integer","jsonPath":".status.tokens"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UserSpec {
    /// Name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub display_name: Option<String>,
    /// E-mail address; shown, never used to identify.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 254))]
    pub email: Option<String>,
    /// A machine cannot sign in; it has tokens only.
    #[serde(default, rename = "type")]
    pub type_: UserType,
    /// A disabled account can do nothing, and what it was issued before is dead for good.
    #[serde(default)]
    pub disabled: bool,
}

/// Who is behind an account.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum UserType {
    /// A person.
    #[default]
    Human,
    /// A program.
    Machine,
}

/// What is known of an account; filled in when it is read.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UserStatus {
    /// `Active`, `Suspended` or `Disabled`.
    #[serde(default)]
    pub state: String,
    /// Whether a password is set.
    #[serde(default)]
    pub password_set: bool,
    /// Number of live tokens.
    #[serde(default)]
    pub tokens: u32,
    /// Since when the account is suspended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspended_at: Option<String>,
    /// When the account last signed in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_login: Option<String>,
}
