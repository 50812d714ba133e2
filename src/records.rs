//! Records of the store that are no resources: claims, quota ledgers, and the contents of sealed records.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::resources::token::{Audience, Scopes};

/// Which project owns a namespace. The namespace's label in the cluster is only the projection of this record.
/// Kept under the name `<cluster>/<namespace>`, so that a namespace can have only one owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Cluster.
    pub cluster: String,
    /// UID of the Cluster resource.
    pub cluster_uid: String,
    /// Namespace.
    pub namespace: String,
    /// UID of the namespace in the cluster, once it exists. A permit needs this to agree with what is observed.
    pub namespace_uid: Option<String>,
    /// Owning project.
    pub project: String,
    /// UID of the owning project.
    pub project_uid: String,
    /// Where the wish for this namespace is recorded.
    pub origin: ClaimOrigin,
    /// Whether the namespace is to be given up: deleted from the cluster, then forgotten.
    pub releasing: bool,
    /// Whether the namespace was there before: it is taken over where the cluster's administrator lets the project, and
    /// given back, not deleted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub adopt: bool,
    /// Resource version of the cluster from which on the namespace is this project's: what it held before is not the
    /// project's to read. Unknown until the namespace is prepared there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<u64>,
    /// Who asked for it.
    pub created_by: String,
    /// When (RFC 3339).
    pub created_at: String,
}

impl Claim {
    /// Name of the record.
    pub fn key_name(cluster: &str, namespace: &str) -> String {
        format!("{cluster}/{namespace}")
    }
}

/// Who wants a claimed namespace to exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ClaimOrigin {
    /// It stands in the Project's spec.
    Declared,
    /// A member created it; the claim itself is the desired state.
    Created,
}

/// Shares of a project's quota on one cluster, reserved by compare-and-swap so that parallel creations cannot
/// oversubscribe. Kept under the name `<project>/<cluster>`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ledger {
    /// UID of the project.
    pub project_uid: String,
    /// UID of the Cluster resource.
    pub cluster_uid: String,
    /// Hard limits by namespace and ResourceQuota key, as canonical quantities. A namespace without limits has an
    /// empty share, so that the shares also count the namespaces.
    pub shares: BTreeMap<String, BTreeMap<String, String>>,
    /// Shares that are reserved while their claim is still being written: namespace and time (RFC 3339). What a crash
    /// leaves here is given back after a while.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pending: BTreeMap<String, String>,
}

/// When a token was last used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenUse {
    /// RFC 3339.
    pub last_used: String,
    /// Client address.
    pub address: String,
}

/// A project's name that nobody else may take yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reservation {
    /// UID of the project that had the name.
    pub project_uid: String,
    /// Clusters that have not confirmed the clean-up.
    pub clusters: Vec<String>,
}

/// Sealed: the secret side of an account.
#[derive(Debug, Clone, Default, Serialize, Deserialize, Zeroize, ZeroizeOnDrop)]
#[serde(deny_unknown_fields)]
pub struct Account {
    /// UID of the User resource. A user of another UID has no account here.
    #[zeroize(skip)]
    pub user_uid: String,
    /// Raised by suspension, disabling and password changes; credentials of an older epoch are dead for good.
    #[zeroize(skip)]
    pub epoch: u64,
    /// Argon2id hash in PHC format.
    pub password: Option<String>,
    /// Whether the password must be changed at the next sign-in.
    #[zeroize(skip)]
    pub must_change: bool,
    /// Present while the account is suspended.
    #[zeroize(skip)]
    pub suspended: Option<Suspension>,
    /// When the account last signed in (RFC 3339).
    #[zeroize(skip)]
    pub last_login: Option<String>,
}

/// Who suspended an account, when and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Suspension {
    /// RFC 3339.
    pub at: String,
    /// Account that did it.
    pub by: String,
    /// Reason given.
    pub reason: String,
}

/// Something a token is limited to: exactly this object, not another one that takes its name later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scoped {
    /// Name, for people.
    pub name: String,
    /// UID when the token was made.
    pub uid: String,
}

/// What a token is limited to. Shown as [`Scopes`], which has the names only.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct TokenScopes {
    /// Only these clusters; empty: all.
    pub clusters: Vec<Scoped>,
    /// Only these projects; empty: all.
    pub projects: Vec<Scoped>,
    /// Only get, list and watch.
    pub read_only: bool,
}

impl TokenScopes {
    /// Whether a cluster is within the limits, by the UID that it has now.
    pub fn cluster(&self, uid: Option<&str>) -> bool {
        among(&self.clusters, uid)
    }

    /// Whether a project is within the limits, by the UID that it has now.
    pub fn project(&self, uid: Option<&str>) -> bool {
        among(&self.projects, uid)
    }

    /// As people see them.
    pub fn names(&self) -> Scopes {
        let Self { clusters, projects, read_only } = self;
        let names = |list: &[Scoped]| list.iter().map(|one| one.name.clone()).collect();
        Scopes { clusters: names(clusters), projects: names(projects), read_only: *read_only }
    }
}

fn among(limit: &[Scoped], uid: Option<&str>) -> bool {
    limit.is_empty() || uid.is_some_and(|uid| limit.iter().any(|one| one.uid == uid))
}

/// Sealed: a token without its secret. The secret is 256 random bits, so a plain SHA-256 keeps it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenRecord {
    /// Public part of the token.
    pub id: String,
    /// SHA-256 of the secret part, base64.
    pub hash: String,
    /// Owner.
    pub user: String,
    /// UID of the owner.
    pub user_uid: String,
    /// Epoch of the owner's account at issue.
    pub epoch: u64,
    /// Epoch of the installation at issue.
    pub global_epoch: u64,
    /// Where it is accepted.
    pub audience: Audience,
    /// What it is limited to.
    pub scopes: TokenScopes,
    /// Login family: streams belong to the family, not to one short token.
    pub family: String,
    /// What its owner calls it.
    pub description: String,
    /// RFC 3339.
    pub created_at: String,
    /// RFC 3339.
    pub expires_at: String,
}

/// Sealed: the tokens of the two accounts that the service has in a cluster.
#[derive(Debug, Clone, Serialize, Deserialize, Zeroize, ZeroizeOnDrop)]
#[serde(deny_unknown_fields)]
pub struct ClusterCredential {
    /// UID of the Cluster resource.
    #[zeroize(skip)]
    pub cluster_uid: String,
    /// SHA-256 over server, CA and TLS name that the credential was given for: it is not sent anywhere else.
    #[zeroize(skip)]
    pub endpoint_digest: String,
    /// UID of kube-system when the credential was given: another cluster at the same address is refused.
    #[zeroize(skip)]
    pub kube_system_uid: String,
    /// Bearer token of `bailiwick-system/forwarding`.
    pub forwarding: String,
    /// Bearer token of `bailiwick-system/housekeeping`.
    pub housekeeping: String,
}

impl ClusterCredential {
    /// Whether both say the same.
    pub fn same(&self, other: &Self) -> bool {
        let Self { cluster_uid, endpoint_digest, kube_system_uid, forwarding, housekeeping } = self;
        *cluster_uid == other.cluster_uid
            && *endpoint_digest == other.endpoint_digest
            && *kube_system_uid == other.kube_system_uid
            && *forwarding == other.forwarding
            && *housekeeping == other.housekeeping
    }
}
