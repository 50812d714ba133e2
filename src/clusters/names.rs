//! Names of everything that the service has or makes inside a cluster.
//!
//! The guard policies of the import manifest know the same names (`manifest/policies.yaml`); a test holds the two
//! against each other. What the guards demand of housekeeping's writes is said at each name.

use crate::domain::names::is_system_namespace;

/// Namespace of the two accounts. No project may own it.
pub const SYSTEM_NAMESPACE: &str = "bailiwick-system";
/// ServiceAccount that requests are forwarded with; it may do nothing as itself.
pub const FORWARDING: &str = "forwarding";
/// ServiceAccount that the controllers work with.
pub const HOUSEKEEPING: &str = "housekeeping";
/// Secret with the forwarding account's token.
pub const FORWARDING_SECRET: &str = "forwarding-token";
/// Secret with the housekeeping account's token.
pub const HOUSEKEEPING_SECRET: &str = "housekeeping-token";
/// User name of the forwarding account.
pub const FORWARDING_USER: &str = "system:serviceaccount:bailiwick-system:forwarding";
/// User name of the housekeeping account.
pub const HOUSEKEEPING_USER: &str = "system:serviceaccount:bailiwick-system:housekeeping";

/// Field manager of everything that the service applies.
pub const FIELD_MANAGER: &str = "bailiwick";

/// Namespace label: name of the project that owns it. The guards hold wherever it stands.
pub const PROJECT: &str = "bailiwick.dev/project";
/// Namespace label: UID of the project that owns it.
pub const PROJECT_UID: &str = "bailiwick.dev/project-uid";
/// Namespace label: `none`, `project` or `namespace`. Unless it is `none` or absent, members may not write
/// NetworkPolicies. Set it before the NetworkPolicies are written, take it away after they are gone.
pub const ISOLATION: &str = "bailiwick.dev/isolation";
/// Label of every object of ours but Namespaces, value [`MANAGED_VALUE`]. Housekeeping may write only ResourceQuotas,
/// LimitRanges, NetworkPolicies, RoleBindings and ClusterRoles that carry it (before and after the change) and have no
/// owner references; nobody else but the cluster's administrators and controllers may touch them.
pub const MANAGED: &str = "bailiwick.dev/managed";
/// Value of [`MANAGED`].
pub const MANAGED_VALUE: &str = "true";
/// Namespace annotation set by the cluster's administrator: UID of the project that may adopt the namespace. Adopting
/// means to set [`PROJECT`], [`PROJECT_UID`] and a Pod Security level in one change. Such a namespace is never deleted
/// by the service.
pub const ADOPT: &str = "bailiwick.dev/adopt";
/// Namespace annotation that housekeeping sets when it adopts: the Pod Security level that was enforced before, empty where
/// none was. The guards see to it that it says so, and let housekeeping put this level back when it gives the namespace up.
pub const ENFORCE_BEFORE: &str = "bailiwick.dev/enforce-before";
/// As [`ENFORCE_BEFORE`], of the version that the level was pinned to.
pub const ENFORCE_VERSION_BEFORE: &str = "bailiwick.dev/enforce-version-before";
/// Label key of the Kubernetes version whose rules the enforced Pod Security level means.
pub const ENFORCE_VERSION: &str = "pod-security.kubernetes.io/enforce-version";
/// Namespace annotation that housekeeping sets when it adopts: the other labels that stood in the place of ours, as JSON.
pub const LABELS_BEFORE: &str = "bailiwick.dev/labels-before";
/// ClusterRole of the import manifest, bound by nobody: to list Pods. Bound to housekeeping in a namespace by the cluster's
/// administrator, it lets us tell before an adoption what the Pods there use.
pub const ADOPTION_ROLE: &str = "bailiwick-adoption";
/// Namespace annotation set by the cluster's administrator: `true` where Pod Security `privileged` may be enforced.
pub const ALLOW_PRIVILEGED: &str = "bailiwick.dev/allow-privileged";
/// Prefix of the namespace labels and annotations that members may set.
pub const TENANT_PREFIX: &str = "tenant.bailiwick.dev/";
/// Label keys of Pod Security: enforce, audit, warn. A project namespace always enforces `baseline` or `restricted`
/// (or `privileged` where [`ALLOW_PRIVILEGED`] stands); a version other than `latest` is refused.
pub const POD_SECURITY: [&str; 3] =
    ["pod-security.kubernetes.io/enforce", "pod-security.kubernetes.io/audit", "pod-security.kubernetes.io/warn"];

/// Prefix of the ClusterRoles that AccessRoles become, `bailiwick:role:<role>`. Housekeeping writes no other ones. Their
/// rules stay within the built-in API groups and [`GROUPS_VARIABLE`], without wildcards; label [`MANAGED`], no other
/// labels but `app.kubernetes.io/*`.
pub const ROLE_PREFIX: &str = "bailiwick:role:";
/// ClusterRole of the import manifest that lets forwarding act for others in a namespace; bound in every project
/// namespace to the forwarding account, under its own name.
pub const FORWARD_ON: &str = "bailiwick:forward:on";
/// ClusterRole of the import manifest, bound to the group `bailiwick:tenant`: the cluster-scoped kinds that tenants read.
pub const TENANT_READ: &str = "bailiwick:tenant-read";
/// ClusterRole of the import manifest: whom forwarding may act for (Kubernetes 1.36 on).
pub const WHO: &str = "bailiwick-who";
/// ClusterRole of the import manifest: what forwarding may do for others outside of namespaces.
pub const ON_CLUSTER: &str = "bailiwick-on-cluster";
/// ClusterRole of the import manifest: what housekeeping may do. Its name must not be one that housekeeping may write.
pub const HOUSEKEEPING_ROLE: &str = "bailiwick-housekeeping";
/// ClusterRole of the import manifest, limited form only: the users and groups of projects that forwarding may act for.
/// Housekeeping keeps its rules (update and patch, never create, bind or delete): verb `impersonate` only, rules
/// `{apiGroups: [""], resources: [users] or [groups], resourceNames: […]}` with users
/// `bailiwick:project:<name>:<uid8>` and `bailiwick:cluster:<name>:<uid8>` (a group's name without its role), and the
/// groups of projects and of this cluster with their roles.
pub const LEGACY_IMPERSONATE: &str = "bailiwick:legacy-impersonate";
/// ClusterRole of the import manifest, limited form only: the user and group `bailiwick:tenant`, and the extras.
pub const LEGACY_TENANT: &str = "bailiwick-legacy-tenant";
/// Key of the extra that carries the person in the limited form, where the user is the project's.
pub const PERSON_EXTRA: &str = "bailiwick.dev/user";

/// Label of every object of the import manifest; its value is the name of the cluster.
pub const IMPORT: &str = "bailiwick.dev/import";

/// Guard policy that holds the rules of roles to API groups.
pub const GROUPS_POLICY: &str = "bailiwick-housekeeping-groups";
/// Variable of [`GROUPS_POLICY`]: the API groups, beside the built-in ones, that roles may name on this cluster. Only the
/// cluster's administrators write it, by applying a manifest that was rendered with them.
pub const GROUPS_VARIABLE: &str = "tenantGroups";

/// Most RoleBindings a project namespace may have; goes into the namespace's ResourceQuota as
/// [`ROLE_BINDINGS_QUOTA_KEY`]. With some 10,000 of them each request costs the API server four times as much.
pub const MAX_ROLE_BINDINGS: u32 = 200;
/// ResourceQuota key that counts RoleBindings.
pub const ROLE_BINDINGS_QUOTA_KEY: &str = "count/rolebindings.rbac.authorization.k8s.io";

/// Name of the ClusterRole that a role becomes, and of the RoleBinding that binds it: the guards demand that a
/// RoleBinding of ours is named like the role it binds. Its subjects may be the project's group of this role
/// (`domain::names::project_group`) and the cluster's group of this role (`cluster_group`), and nobody else.
pub fn role_name(role: &str) -> String {
    format!("{ROLE_PREFIX}{role}")
}

/// User that forwarding acts as on behalf of a project in the limited form, `bailiwick:project:<name>:<uid8>`.
pub fn legacy_user(project: &str, uid: &str) -> String {
    format!("{}{project}:{}", crate::domain::names::PROJECT_GROUP_PREFIX, crate::domain::names::uid8(uid))
}

/// User that forwarding acts as on behalf of those who hold a grant on the whole cluster, in the limited form.
pub fn legacy_cluster_user(cluster: &str, uid: &str) -> String {
    format!("{}{cluster}:{}", crate::domain::names::CLUSTER_GROUP_PREFIX, crate::domain::names::uid8(uid))
}

/// Whether the guards let housekeeping touch a namespace of this name at all.
pub fn may_be_owned(namespace: &str) -> bool {
    !is_system_namespace(namespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn housekeepings_own_role_is_none_that_it_may_write() {
        for name in [HOUSEKEEPING_ROLE, ADOPTION_ROLE, WHO, ON_CLUSTER, TENANT_READ, LEGACY_TENANT, FORWARD_ON] {
            assert!(!name.starts_with(ROLE_PREFIX), "{name}");
        }
        assert_eq!(role_name("owner"), "bailiwick:role:owner");
    }

    #[test]
    fn a_projects_user_carries_the_uid() {
        assert_eq!(legacy_user("shop", "1a2b3c4d-0000"), "bailiwick:project:shop:1a2b3c4d");
    }

    #[test]
    fn the_services_own_namespace_is_never_owned() {
        assert!(!may_be_owned(SYSTEM_NAMESPACE));
        assert!(!may_be_owned("kube-system"));
        assert!(may_be_owned("shop-dev"));
    }
}
