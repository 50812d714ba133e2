//! What a decision sees: one version of everything.

use std::sync::Arc;

use jiff::Timestamp;

use super::grants::{GrantEntry, Membership, Targets};
use crate::domain::names::MAX_NAME;
use crate::domain::rbac::{BUILT_IN_GROUPS, RuleSet};
use crate::records::{Account, Claim, ClusterCredential, Ledger, Reservation, TokenRecord, TokenUse};
use crate::resources::{AccessRole, Cluster, Project, Team, User};
use crate::store::Revision;

/// A persistent map: cloning is cheap, and versions share structure. Its hash is keyed by the process, because tenants
/// choose some of the names.
pub type Map<V> = imbl::GenericHashMap<Arc<str>, V, ahash::RandomState, imbl::shared_ptr::DefaultSharedPtr>;

/// Several of one key. Shared, because a change of one key copies the values of some others beside it.
pub(super) type Many<T> = Arc<Vec<T>>;

/// A resource and the revision of its last change.
#[derive(Debug, Clone)]
pub struct Stored<T> {
    /// `resourceVersion`.
    pub revision: Revision,
    /// The resource.
    pub object: T,
}

/// The secret side of an account as the index knows it.
#[derive(Debug, Clone)]
pub enum AccountState {
    /// The record opened.
    Known(Stored<Arc<Account>>),
    /// The record is there and does not open. The account is refused: it may be suspended.
    Unreadable(Revision),
}

/// A role with its effective rules.
#[derive(Debug, Clone)]
pub struct CompiledRole {
    /// Name of the role.
    pub name: Arc<str>,
    /// Effective rules, inheritance resolved; empty where `error` is set.
    pub rules: RuleSet,
    /// Why the role gives nothing, where it does not.
    pub error: Option<String>,
}

/// A token with its hash and times parsed.
#[derive(Debug, Clone)]
pub struct TokenEntry {
    /// Revision of the record.
    pub revision: Revision,
    /// The record.
    pub record: TokenRecord,
    /// SHA-256 of the secret.
    pub hash: [u8; 32],
    /// When it ends.
    pub expires_at: Timestamp,
}

/// What is seen of a cluster just now. Kept in memory only: after a restart nothing is known, and refused, until the
/// cluster has been seen again.
#[derive(Debug, Clone, Default)]
pub struct ObservedCluster {
    /// UID of the Cluster resource that was observed.
    pub cluster_uid: String,
    /// Kubernetes version as (major, minor).
    pub version: Option<(u32, u32)>,
    /// Whether requests may be sent: identity proven, version accepted, rights and guards as they must be.
    pub usable: bool,
    /// Why not, for people.
    pub reason: String,
    /// How identities are written on requests to it.
    pub impersonation: Impersonation,
    /// UIDs of the namespaces that exist and are not being deleted.
    pub namespaces: Map<Arc<str>>,
}

/// How the forwarding account may act for people in a cluster.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Impersonation {
    /// Constrained impersonation (KEP-5284, Kubernetes 1.36 on): the person is the user.
    #[default]
    Constrained,
    /// The older verb, limited by resource names: the project is the user, the person an extra.
    Limited,
}

/// One version of everything.
#[derive(Clone, Default)]
pub struct Snapshot {
    /// Revision of the store that this is the truth of.
    pub revision: Revision,
    /// Epoch of the installation; tokens of another one are dead.
    pub global_epoch: u64,
    /// Clusters by name.
    pub clusters: Map<Arc<Stored<Cluster>>>,
    /// Users by name.
    pub users: Map<Arc<Stored<User>>>,
    /// Accounts by user name.
    pub accounts: Map<AccountState>,
    /// Teams by name.
    pub teams: Map<Arc<Stored<Team>>>,
    /// AccessRoles as written, by name.
    pub access_roles: Map<Arc<Stored<AccessRole>>>,
    /// All roles, built-in ones included, compiled.
    pub roles: Map<Arc<CompiledRole>>,
    /// Projects by name.
    pub projects: Map<Arc<Stored<Project>>>,
    /// Grants by name.
    pub grants: Map<Arc<GrantEntry>>,
    /// Claims by `<cluster>/<namespace>`.
    pub claims: Map<Arc<Stored<Claim>>>,
    /// Ledgers by `<project>/<cluster>`.
    pub ledgers: Map<Arc<Stored<Ledger>>>,
    /// Reserved project names.
    pub reservations: Map<Arc<Stored<Reservation>>>,
    /// Tokens by id.
    pub tokens: Map<Arc<TokenEntry>>,
    /// Use of tokens by id.
    pub token_uses: Map<Arc<Stored<TokenUse>>>,
    /// Cluster credentials by cluster name.
    pub credentials: Map<Arc<Stored<ClusterCredential>>>,

    // Derived.
    pub(super) teams_of_user: Map<Many<Membership>>,
    pub(super) grants_of_user: Map<Many<Arc<GrantEntry>>>,
    pub(super) grants_of_team: Map<Many<Arc<GrantEntry>>>,
    pub(super) granted_projects: Targets<Project>,
    pub(super) granted_clusters: Targets<Cluster>,
    pub(super) projects_of_cluster: Map<Many<Arc<str>>>,
    pub(super) claims_of_cluster: Map<imbl::OrdMap<Arc<str>, Arc<Stored<Claim>>>>,
    pub(super) claims_of_project: Map<Many<Arc<Stored<Claim>>>>,
    pub(super) tokens_of_user: Map<Many<Arc<str>>>,
}

impl Snapshot {
    /// The claim on a namespace.
    pub fn claim(&self, cluster: &str, namespace: &str) -> Option<&Arc<Stored<Claim>>> {
        // `Claim::key_name`, without an allocation. Nothing longer than two labels can have been claimed.
        let mut key = [0; 2 * MAX_NAME + 1];
        let length = cluster.len() + 1 + namespace.len();
        let (head, tail) = key.get_mut(..length)?.split_at_mut(cluster.len());
        head.copy_from_slice(cluster.as_bytes());
        tail[0] = b'/';
        tail[1..].copy_from_slice(namespace.as_bytes());
        let claim = self.claims.get(std::str::from_utf8(&key[..length]).ok()?)?;
        (claim.object.cluster == cluster && claim.object.namespace == namespace).then_some(claim)
    }

    /// All claims of a project on all its clusters, by cluster and namespace.
    pub fn claims_of(&self, project: &str) -> impl Iterator<Item = &Arc<Stored<Claim>>> {
        self.claims_of_project.get(project).into_iter().flat_map(|claims| &**claims)
    }

    /// Names of the projects whose spec names a cluster, in no order.
    pub fn projects_on(&self, cluster: &str) -> &[Arc<str>] {
        self.projects_of_cluster.get(cluster).map_or(&[], |projects| projects)
    }

    /// All claims on a cluster, sorted by namespace.
    pub fn claims_on(&self, cluster: &str) -> impl Iterator<Item = &Arc<Stored<Claim>>> {
        self.claims_of_cluster.get(cluster).into_iter().flat_map(|claims| claims.values())
    }

    /// Whether tenants may reach an API group on a cluster at all.
    pub fn within_reach(&self, cluster: &str, group: &str) -> bool {
        BUILT_IN_GROUPS.contains(&group)
            || self
                .clusters
                .get(cluster)
                .is_some_and(|cluster| cluster.object.spec.tenant_api_groups.iter().any(|open| open == group))
    }

    /// Ids of the tokens of a user, live or not.
    pub fn tokens_of(&self, user: &str) -> impl Iterator<Item = &Arc<TokenEntry>> {
        self.tokens_of_user.get(user).into_iter().flat_map(|ids| &**ids).filter_map(|id| self.tokens.get(id))
    }

    /// Whether the account may act at all. A record that does not open counts as suspended.
    pub fn account_may_act(&self, user: &User) -> bool {
        let name = user.metadata.name.as_deref().unwrap_or_default();
        let alive = user.metadata.deletion_timestamp.is_none() && !user.spec.disabled;
        let not_suspended = match self.accounts.get(name) {
            None => true,
            Some(AccountState::Unreadable(_)) => false,
            Some(AccountState::Known(account)) => {
                account.object.suspended.is_none() || Some(&account.object.user_uid) != user.metadata.uid.as_ref()
            }
        };
        alive && not_suspended
    }

    /// Epoch that credentials of the account must carry; `None` where it cannot be known.
    pub fn epoch_of(&self, user: &User) -> Option<u64> {
        let name = user.metadata.name.as_deref().unwrap_or_default();
        match self.accounts.get(name) {
            None => Some(0),
            Some(AccountState::Unreadable(_)) => None,
            Some(AccountState::Known(account)) if Some(&account.object.user_uid) == user.metadata.uid.as_ref() => {
                Some(account.object.epoch)
            }
            // The record is of an account that had the name before.
            Some(AccountState::Known(_)) => Some(0),
        }
    }

    /// Whether a token is alive, and whose it is: owner of the same UID that may act, same epochs, not expired.
    pub fn live_owner(&self, token: &TokenEntry, now: Timestamp) -> Option<&Arc<Stored<User>>> {
        let user = self.users.get(token.record.user.as_str())?;
        let same_uid = user.object.metadata.uid.as_deref() == Some(token.record.user_uid.as_str());
        let epochs =
            token.record.global_epoch == self.global_epoch && self.epoch_of(&user.object) == Some(token.record.epoch);
        (same_uid && epochs && now < token.expires_at && self.account_may_act(&user.object)).then_some(user)
    }
}

impl Snapshot {
    /// As [`Snapshot::live_owner`], for a token that was found in an older version: it must still be the one of its id.
    pub fn still_live(&self, token: &TokenEntry, now: Timestamp) -> Option<&Arc<Stored<User>>> {
        let there = self.tokens.get(token.record.id.as_str()).is_some_and(|known| known.hash == token.hash);
        self.live_owner(token, now).filter(|_| there)
    }
}
