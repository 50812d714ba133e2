//! Every question that can be asked. What is not here cannot be allowed.

/// The roles that somebody can hold for an object.
pub const ROLES: [&str; 9] = [
    "platform:admin",
    "platform:auditor",
    "project:owner",
    "project:member",
    "project:viewer",
    "cluster:reader",
    "team:member",
    "self",
    "authenticated",
];

/// Stands for all roles, in denials only.
pub const EVERYBODY: &str = "everybody";

/// Class of reading, of acts, and of a change that changes nothing.
pub(super) const OBJECT: &str = "object";
/// Labels and annotations.
pub(super) const METADATA: &str = "metadata";
/// What the service alone writes.
pub(super) const STATUS: &str = "status";
/// A field that has no class of its own, so that a new field is the administrators' until it is given one.
pub(super) const UNKNOWN: &str = "unknown";

const READ: &[&str] = &["get", "list", "watch"];
const CHANGE: &[&str] = &["update", "patch"];
const CREATE: &[&str] = &["create"];
const DELETE: &[&str] = &["delete"];
const WHOLE: &[&str] = &[OBJECT];
const NEW: &[&str] = &[OBJECT, STATUS];

/// Verbs that a kind has, with the classes of fields that each can touch.
type Acts = &'static [(&'static [&'static str], &'static [&'static str])];

const ACTS: [(&str, Acts); 11] = [
    (
        "Cluster",
        &[
            (READ, WHOLE),
            (CREATE, NEW),
            (
                CHANGE,
                &[
                    OBJECT,
                    METADATA,
                    STATUS,
                    UNKNOWN,
                    "cluster.presentation",
                    "cluster.connection",
                    "cluster.versions",
                    "cluster.reach",
                ],
            ),
            (DELETE, WHOLE),
            (&["credential", "check", "check-upgrade", "forget"], WHOLE),
        ],
    ),
    (
        "User",
        &[
            (READ, WHOLE),
            (CREATE, NEW),
            (CHANGE, &[OBJECT, METADATA, STATUS, UNKNOWN, "user.presentation", "user.type", "user.disabled"]),
            (DELETE, WHOLE),
            (&["suspend", "resume", "password", "tokens", "kubeconfig"], WHOLE),
        ],
    ),
    (
        "Team",
        &[
            (READ, WHOLE),
            (CREATE, NEW),
            (CHANGE, &[OBJECT, METADATA, STATUS, UNKNOWN, "team.presentation", "team.members"]),
            (DELETE, WHOLE),
        ],
    ),
    (
        "AccessRole",
        &[(READ, WHOLE), (CREATE, NEW), (CHANGE, &[OBJECT, METADATA, STATUS, UNKNOWN, "role.rules"]), (DELETE, WHOLE)],
    ),
    (
        "Grant",
        &[
            (READ, WHOLE),
            (CREATE, &[UNKNOWN, STATUS, "grant.project", "grant.cluster", "grant.platform"]),
            (CHANGE, &[OBJECT, METADATA, STATUS, UNKNOWN, "grant.project", "grant.cluster", "grant.platform"]),
            (DELETE, &[UNKNOWN, "grant.project", "grant.cluster", "grant.platform"]),
        ],
    ),
    (
        "Project",
        &[
            (READ, WHOLE),
            (CREATE, NEW),
            (
                CHANGE,
                &[
                    OBJECT,
                    METADATA,
                    STATUS,
                    UNKNOWN,
                    "project.presentation",
                    "project.roles",
                    "project.placement",
                    "project.namespaces",
                    "project.quota",
                    "project.quota.lower",
                    "project.shares",
                    "project.defaults",
                    "project.security",
                    "project.security.tighten",
                ],
            ),
            (DELETE, WHOLE),
        ],
    ),
    ("Token", &[(READ, WHOLE), (DELETE, WHOLE)]),
    ("Namespace", &[(&["create", "delete", "move", "adopt"], WHOLE)]),
    ("Audit", &[(&["get"], WHOLE)]),
    ("Explanation", &[(&["get"], WHOLE)]),
    ("Self", &[(&["get"], WHOLE)]),
];

/// Every (kind, verb, class of fields) that exists; with each of [`ROLES`] it is a question.
pub fn questions() -> impl Iterator<Item = [&'static str; 3]> {
    ACTS.into_iter().flat_map(|(kind, acts)| {
        acts.iter().flat_map(move |(verbs, classes)| {
            verbs.iter().flat_map(move |verb| classes.iter().map(move |class| [kind, *verb, *class]))
        })
    })
}
