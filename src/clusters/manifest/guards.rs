//! The guard policies as Kubernetes objects.

use std::collections::BTreeMap;

use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{ManifestOptions, labels};
use crate::clusters::names::{GROUPS_POLICY, GROUPS_VARIABLE};
use crate::clusters::version;
use crate::domain::rbac::BUILT_IN_GROUPS;

const POLICIES: &str = include_str!("policies.yaml");

/// The policies that the program carries cannot be read: a fault of the build.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the guard policies cannot be read: {0}")]
pub struct GuardError(String);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Guards {
    conditions: BTreeMap<String, Vec<Named>>,
    policies: Vec<Policy>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    name: String,
    expression: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Policy {
    name: String,
    conditions: String,
    #[serde(rename = "match")]
    matches: Match,
    #[serde(default)]
    variables: Vec<Named>,
    validations: Vec<Validation>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Match {
    namespace_selector: Option<Value>,
    object_selector: Option<Value>,
    resource_rules: Vec<Rule>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Rule {
    api_groups: Vec<String>,
    operations: Vec<String>,
    resources: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Validation {
    message: Option<String>,
    message_expression: Option<String>,
    expression: String,
}

/// Policies and bindings, each policy followed by its binding.
pub(super) fn objects(options: &ManifestOptions) -> Result<Vec<Value>, GuardError> {
    let Guards { conditions, policies } =
        serde_saphyr::from_str(POLICIES).map_err(|why| GuardError(why.to_string()))?;
    let fill = Fill::new(options);
    let mut objects = vec![];
    for policy in policies {
        let Some(conditions) = conditions.get(&policy.conditions) else {
            return Err(GuardError(format!("{}: no conditions {:?}", policy.name, policy.conditions)));
        };
        objects.push(expand(&policy, conditions, &fill));
        objects.push(binding(&policy));
    }
    Ok(objects)
}

/// The policies as they must stand in the cluster.
pub fn expected_policies(options: &ManifestOptions) -> Result<Vec<ValidatingAdmissionPolicy>, GuardError> {
    typed(options, "ValidatingAdmissionPolicy")
}

/// The bindings as they must stand in the cluster.
pub fn expected_bindings(options: &ManifestOptions) -> Result<Vec<ValidatingAdmissionPolicyBinding>, GuardError> {
    typed(options, "ValidatingAdmissionPolicyBinding")
}

fn typed<T: serde::de::DeserializeOwned>(options: &ManifestOptions, kind: &str) -> Result<Vec<T>, GuardError> {
    let objects = objects(options)?.into_iter().filter(|object| object["kind"] == kind);
    objects.map(|object| serde_json::from_value(object).map_err(|why| GuardError(why.to_string()))).collect()
}

/// The API groups beside the built-in ones that the guards of a cluster let roles name; `None` where the policy is
/// another one.
pub fn tenant_groups(policy: &ValidatingAdmissionPolicy) -> Option<Vec<String>> {
    if policy.metadata.name.as_deref() != Some(GROUPS_POLICY) {
        return None;
    }
    let variables = policy.spec.as_ref()?.variables.as_ref()?;
    let variable = variables.iter().find(|variable| variable.name == GROUPS_VARIABLE)?;
    read_list(variable.expression.strip_prefix('[')?)
}

/// The values of a list that [`list`] wrote, from behind its opening bracket on.
pub(in crate::clusters) fn read_list(text: &str) -> Option<Vec<String>> {
    let (list, _) = text.split_once(']')?;
    Some(list.split(',').map(|v| v.trim().trim_matches('\'').to_owned()).filter(|v| !v.is_empty()).collect())
}

/// What the placeholders stand for.
struct Fill {
    credential: &'static str,
    administrators: String,
    cluster: String,
    groups: String,
    tenant_groups: String,
}

impl Fill {
    fn new(options: &ManifestOptions) -> Self {
        // Before 1.32 nothing tells a credential from a claimed name. The limited form, which is the only one there,
        // cannot claim the names that the exemptions rest on.
        let credential = if options.version >= version::CREDENTIAL_ID {
            "('authentication.kubernetes.io/credential-id' in request.userInfo.?extra.orValue({}))"
        } else {
            "true"
        };
        Self {
            credential,
            administrators: list(options.administrators.iter().map(String::as_str)),
            cluster: options.cluster.clone(),
            groups: list(BUILT_IN_GROUPS),
            tenant_groups: list(options.tenant_api_groups.iter().map(String::as_str)),
        }
    }

    fn apply(&self, expression: &str) -> String {
        expression
            .replace("${CREDENTIAL}", self.credential)
            .replace("${ADMINISTRATORS}", &self.administrators)
            .replace("${CLUSTER}", &self.cluster)
            .replace("${GROUPS}", &self.groups)
            .replace("${TENANT_GROUPS}", &self.tenant_groups)
    }

    fn named(&self, all: &[Named]) -> Value {
        let named = |n: &Named| json!({"name": n.name, "expression": self.apply(&n.expression)});
        all.iter().map(named).collect()
    }
}

/// A CEL list of strings. The values were checked: none holds a quote or a backslash.
fn list<'a>(values: impl IntoIterator<Item = &'a str>) -> String {
    format!("[{}]", values.into_iter().map(|v| format!("'{v}'")).collect::<Vec<_>>().join(", "))
}

/// Everything that the API server would fill in is written out, so that what stands there can be compared.
fn expand(policy: &Policy, conditions: &[Named], fill: &Fill) -> Value {
    let rules = policy.matches.resource_rules.iter().map(|rule| {
        json!({
            "apiGroups": rule.api_groups,
            "apiVersions": ["*"],
            "operations": rule.operations,
            "resources": rule.resources,
            "scope": "*",
        })
    });
    let validations = policy.validations.iter().map(|validation| {
        let mut object = json!({"expression": fill.apply(&validation.expression), "reason": "Forbidden"});
        if let Some(message) = &validation.message {
            object["message"] = json!(message);
        }
        if let Some(expression) = &validation.message_expression {
            object["messageExpression"] = json!(fill.apply(expression));
        }
        object
    });
    let mut spec = json!({
        "failurePolicy": "Fail",
        "matchConstraints": {
            "matchPolicy": "Equivalent",
            "namespaceSelector": policy.matches.namespace_selector.clone().unwrap_or_else(|| json!({})),
            "objectSelector": policy.matches.object_selector.clone().unwrap_or_else(|| json!({})),
            "resourceRules": rules.collect::<Vec<_>>(),
        },
        "matchConditions": fill.named(conditions),
        "validations": validations.collect::<Vec<_>>(),
    });
    if !policy.variables.is_empty() {
        spec["variables"] = fill.named(&policy.variables);
    }
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": policy.name, "labels": labels()},
        "spec": spec,
    })
}

fn binding(policy: &Policy) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": policy.name, "labels": labels()},
        "spec": {"policyName": policy.name, "validationActions": ["Deny", "Audit"]},
    })
}
