//! `AccessRole`: what a grant lets its subject do in namespaces.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::domain::rbac::PolicyRule;
use crate::domain::roles::{Base, RoleSpec};

/// A role that people write beside the built-in `owner`, `member` and `viewer`.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "bailiwick.dev",
    version = "v1alpha1",
    kind = "AccessRole",
    plural = "accessroles",
    category = "bailiwick",
    status = "AccessRoleStatus",
    printcolumn = r#"{"name":"Base","type":"string","jsonPath":".spec.base"}"#,
    printcolumn = r#"{"name":"Rules","type":"integer","jsonPath":".status.ruleCount"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AccessRoleSpec {
    /// Table that the role starts from; absent: nothing but `rules` and `inherits`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<Base>,
    /// Rules beyond the base. No wildcards.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 200))]
    pub rules: Vec<PolicyRule>,
    /// Roles whose rules are added.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20), inner(regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"), length(max = 63)))]
    pub inherits: Vec<String>,
}

impl From<&AccessRoleSpec> for RoleSpec {
    fn from(spec: &AccessRoleSpec) -> Self {
        let AccessRoleSpec { base, rules, inherits } = spec.clone();
        Self { base, rules, inherits }
    }
}

/// The role in effect; filled in when it is read.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AccessRoleStatus {
    /// All rules, inherited ones included.
    #[serde(default)]
    pub effective_rules: Vec<PolicyRule>,
    /// How many of them.
    #[serde(default)]
    pub rule_count: u32,
    /// Why the role gives nothing, where it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}
