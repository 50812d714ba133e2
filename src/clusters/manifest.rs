//! The import manifest: what the administrator of a cluster applies to let the service work there.
//!
//! In this order, so that no right exists before its guard: namespace, accounts without rights and their tokens, guard
//! policies with their bindings, rights. The accounts hold no right on any of it: policies
//! cannot guard policies, only RBAC does.

mod guards;
mod rights;
mod uninstall;

use serde_json::{Value, json};

pub(super) use guards::read_list;
pub use guards::{GuardError, expected_bindings, expected_policies, tenant_groups};
pub use uninstall::uninstall;

use super::names::*;
use super::version::{self, Version};
use crate::domain::names::{NameError, check_label, check_subdomain};
pub use crate::index::Impersonation;

impl Impersonation {
    /// The form that a version has by default.
    pub fn of(version: Version) -> Self {
        if version >= version::CONSTRAINED { Self::Constrained } else { Self::Limited }
    }

    /// As shown in `Cluster.status.impersonation`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Constrained => "constrained",
            Self::Limited => "limited",
        }
    }
}

/// What a manifest is rendered for.
#[derive(Debug, Clone)]
pub struct ManifestOptions {
    /// Name of the Cluster.
    pub cluster: String,
    /// Version of the cluster.
    pub version: Version,
    /// Form of impersonation; [`Impersonation::of`] the version unless the cluster has the feature turned off.
    pub impersonation: Impersonation,
    /// API groups within tenant reach beside the built-in ones.
    pub tenant_api_groups: Vec<String>,
    /// Groups of the cluster's administrators beside `system:masters`: the guards let them adopt namespaces and touch
    /// managed objects, when they come with a credential of their own.
    pub administrators: Vec<String>,
}

/// Why a manifest is not rendered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// The cluster's name.
    #[error("cluster {0:?}: {1}")]
    Cluster(String, NameError),
    /// An API group.
    #[error("API group {0:?}: {1}")]
    Group(String, NameError),
    /// An API group that nobody may be let into.
    #[error("API group {0:?} holds the cluster's own controls and cannot be within tenant reach")]
    Control(String),
    /// A group of administrators.
    #[error(
        "administrators' group {0:?}: letters, digits and . _ - : / @ only, and neither a group that everybody has nor one of the service"
    )]
    Administrators(String),
    /// Constrained impersonation was asked for where it does not exist.
    #[error("Kubernetes {0} has no constrained impersonation; it came with 1.36")]
    NoConstrained(Version),
    /// The policies that the program carries cannot be read.
    #[error(transparent)]
    Guards(GuardError),
}

/// API groups whose objects decide over the cluster itself.
const CONTROL_GROUPS: [&str; 5] = [
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "authentication.k8s.io",
    "certificates.k8s.io",
];

impl ManifestOptions {
    /// The form that a cluster of this version has by default, without tenant groups or administrators' groups.
    pub fn new(cluster: &str, version: Version) -> Self {
        Self {
            cluster: cluster.to_owned(),
            version,
            impersonation: Impersonation::of(version),
            tenant_api_groups: vec![],
            administrators: vec![],
        }
    }

    /// Whether the cluster can have guards. Where not, housekeeping only reads.
    pub fn guarded(&self) -> bool {
        self.version >= version::DEFAULT_MIN
    }

    /// The same, where all of it may stand in a manifest.
    pub(super) fn checked(self) -> Option<Self> {
        self.check().is_ok().then_some(self)
    }

    fn check(&self) -> Result<(), ManifestError> {
        let Self { cluster, version, impersonation, tenant_api_groups, administrators } = self;
        check_label(cluster).map_err(|why| ManifestError::Cluster(cluster.clone(), why))?;
        for group in tenant_api_groups {
            check_subdomain(group).map_err(|why| ManifestError::Group(group.clone(), why))?;
            if CONTROL_GROUPS.contains(&group.as_str()) {
                return Err(ManifestError::Control(group.clone()));
            }
        }
        for group in administrators {
            let legal = |b: u8| b.is_ascii_alphanumeric() || b"._-:/@".contains(&b);
            let everybody = ["system:authenticated", "system:unauthenticated", "system:serviceaccounts"];
            if group.is_empty()
                || !group.bytes().all(legal)
                || everybody.contains(&group.as_str())
                || group.starts_with("bailiwick:")
            {
                return Err(ManifestError::Administrators(group.clone()));
            }
        }
        if *impersonation == Impersonation::Constrained && *version < version::CONSTRAINED {
            return Err(ManifestError::NoConstrained(*version));
        }
        Ok(())
    }
}

/// The objects of a manifest, in the order in which they are applied.
#[derive(Debug, Clone)]
pub struct Manifest {
    cluster: String,
    version: Version,
    /// Namespace, accounts, tokens.
    pub accounts: Vec<Value>,
    /// Guard policies, each followed by its binding.
    pub guards: Vec<Value>,
    /// Roles and their bindings.
    pub rights: Vec<Value>,
}

impl Manifest {
    /// Renders a manifest.
    pub fn render(options: &ManifestOptions) -> Result<Self, ManifestError> {
        options.check()?;
        let guards = if options.guarded() { guards::objects(options).map_err(ManifestError::Guards)? } else { vec![] };
        let mut manifest = Self {
            cluster: options.cluster.clone(),
            version: options.version,
            accounts: accounts(),
            guards,
            rights: rights::objects(options),
        };
        let Self { cluster, version: _, accounts, guards, rights } = &mut manifest;
        // By this label everything is found again when the cluster's administrator takes it back.
        for object in accounts.iter_mut().chain(guards).chain(rights) {
            object["metadata"]["labels"][IMPORT] = json!(cluster);
        }
        Ok(manifest)
    }

    /// All objects, in order.
    pub fn objects(&self) -> impl Iterator<Item = &Value> {
        self.accounts.iter().chain(&self.guards).chain(&self.rights)
    }

    /// As YAML for `kubectl apply -f -`.
    pub fn to_yaml(&self) -> Result<String, serde_saphyr::SerializeError> {
        let mut text = format!(
            "# Lets bailiwick work in the cluster {:?} (Kubernetes {}). Apply it as an administrator of the cluster\n\
             # (kubectl apply --server-side -f FILE), then import the cluster.\n\
             # Applying it again changes nothing; a newer bailiwick may render a newer one.\n\
             # To take it back: bailiwick cluster manifest {} --uninstall\n",
            self.cluster, self.version, self.cluster
        );
        if self.guards.is_empty() {
            text.push_str(
                "# This version has no ValidatingAdmissionPolicy, so nothing could guard housekeeping: it only reads. You \
                 label and bind\n# project namespaces yourself, and members get no right there that needs a guard.\n",
            );
        }
        for object in self.objects() {
            text.push_str("---\n");
            text.push_str(&serde_saphyr::to_string(object)?);
            if !text.ends_with('\n') {
                text.push('\n');
            }
        }
        Ok(text)
    }
}

/// The rules of [`FORWARD_ON`].
pub(super) fn forward_on_rules(options: &ManifestOptions) -> Vec<Value> {
    rights::forward_on(options).as_array().cloned().unwrap_or_default()
}

/// Labels of everything in the manifest. Never [`MANAGED`]: these are the administrator's objects.
fn labels() -> Value {
    json!({"app.kubernetes.io/part-of": "bailiwick"})
}

fn accounts() -> Vec<Value> {
    let account = |name: &str| {
        json!({
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": name, "namespace": SYSTEM_NAMESPACE, "labels": labels()},
            "automountServiceAccountToken": false,
        })
    };
    let token = |account: &str, secret: &str| {
        json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": secret,
                "namespace": SYSTEM_NAMESPACE,
                "labels": labels(),
                "annotations": {"kubernetes.io/service-account.name": account},
            },
            "type": "kubernetes.io/service-account-token",
        })
    };
    vec![
        json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {
                "name": SYSTEM_NAMESPACE,
                "labels": {
                    "app.kubernetes.io/part-of": "bailiwick",
                    "pod-security.kubernetes.io/enforce": "restricted",
                },
            },
        }),
        account(FORWARDING),
        account(HOUSEKEEPING),
        token(FORWARDING, FORWARDING_SECRET),
        token(HOUSEKEEPING, HOUSEKEEPING_SECRET),
    ]
}

#[cfg(test)]
mod tests;
