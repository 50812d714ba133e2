//! The resources of group `bailiwick.dev/v1alpha1`: desired state that people write, with Kubernetes' conventions.
//!
//! All kinds are cluster-scoped, in category `bailiwick`. The Rust types are the single source: `crds/`, the OpenAPI
//! documents and the Table columns derive from them. A field exists only once it is enforced; until then it is unknown
//! and refused (`deny_unknown_fields`). No type here ever holds a secret: those are sealed records of the store.

pub mod access_role;
pub mod cluster;
pub mod condition;
pub mod grant;
pub mod project;
pub mod team;
pub mod token;
pub mod user;
pub mod validation;

pub use access_role::{AccessRole, AccessRoleSpec, AccessRoleStatus};
pub use cluster::{Cluster, ClusterSpec, ClusterStatus};
pub use condition::Condition;
pub use grant::{Grant, GrantSpec, GrantStatus};
pub use project::{Project, ProjectSpec, ProjectStatus};
pub use team::{Team, TeamSpec, TeamStatus};
pub use token::{Token, TokenSpec, TokenStatus};
pub use user::{User, UserSpec, UserStatus};

/// API group of all resources.
pub const GROUP: &str = "bailiwick.dev";
/// Served version.
pub const VERSION: &str = "v1alpha1";
/// `apiVersion` of all resources.
pub const API_VERSION: &str = "bailiwick.dev/v1alpha1";
