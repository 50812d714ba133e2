//! What a request to a Kubernetes API server asks for, read by the API server's own rules.
//!
//! The rules are those of `RequestInfoFactory` in k8s.io/apiserver. Where the API server would clean, guess or take the
//! first of several, we refuse: a request that two parsers could read differently is not decided on.

mod path;
mod query;
#[cfg(test)]
mod tests;

pub use path::{parse, segments};
pub use query::{pairs, unescape};

use super::rbac::Attributes;

/// Longest target accepted, in bytes. The API server itself reads about 1 MiB of header; selectors stay far below this.
pub const MAX_TARGET: usize = 16 * 1024;

/// Streams both ways into a Pod, as RBAC writes them.
pub const INTERACTIVE: [&str; 3] = ["pods/exec", "pods/attach", "pods/portforward"];

/// A request for the API server, parsed once from the raw path and query.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum RequestInfo {
    /// A resource of the API.
    Resource(ResourceRequest),
    /// Discovery, OpenAPI, version: a path that names no resource.
    Path(PathRequest),
}

/// A request for a path that names no resource.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PathRequest {
    /// The path.
    pub path: String,
    /// Whether the method only reads.
    pub reads: bool,
}

/// A request for a resource.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct ResourceRequest {
    /// RBAC verb.
    pub verb: Verb,
    /// API group, empty for core.
    pub group: String,
    /// API version.
    pub version: String,
    /// Resource and subresource as RBAC writes them, `pods/log`.
    pub resource: String,
    /// Length of the resource's own name in `resource`.
    main: usize,
    /// Namespace; empty for the whole cluster.
    pub namespace: String,
    /// Object; empty for a collection.
    pub name: String,
    /// Whether the API server is asked to change nothing.
    pub dry_run: bool,
    /// Whether the response goes on (`logs -f`).
    pub follow: bool,
}

/// RBAC verbs of resource requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Verb {
    /// One object.
    #[default]
    Get,
    /// A collection.
    List,
    /// Changes of a collection.
    Watch,
    /// POST.
    Create,
    /// PUT.
    Update,
    /// PATCH.
    Patch,
    /// DELETE of one object.
    Delete,
    /// DELETE of a collection.
    DeleteCollection,
}

impl Verb {
    /// The name in RBAC.
    pub fn as_str(self) -> &'static str {
        match self {
            Verb::Get => "get",
            Verb::List => "list",
            Verb::Watch => "watch",
            Verb::Create => "create",
            Verb::Update => "update",
            Verb::Patch => "patch",
            Verb::Delete => "delete",
            Verb::DeleteCollection => "deletecollection",
        }
    }

    /// The verb of a name in RBAC.
    pub fn parse(name: &str) -> Option<Self> {
        const ALL: [Verb; 8] = [
            Verb::Get,
            Verb::List,
            Verb::Watch,
            Verb::Create,
            Verb::Update,
            Verb::Patch,
            Verb::Delete,
            Verb::DeleteCollection,
        ];
        ALL.into_iter().find(|verb| verb.as_str() == name)
    }

    /// Whether it leaves everything as it is.
    pub fn reads(self) -> bool {
        matches!(self, Verb::Get | Verb::List | Verb::Watch)
    }
}

impl ResourceRequest {
    /// A request as an access review describes it. `None` where the verb is none of ours.
    pub fn asked(
        verb: &str,
        group: &str,
        version: &str,
        main: &str,
        subresource: &str,
        namespace: &str,
        name: &str,
    ) -> Option<Self> {
        let verb = Verb::parse(verb)?;
        let resource = if subresource.is_empty() { main.to_owned() } else { format!("{main}/{subresource}") };
        let own = str::to_owned;
        Some(Self {
            verb,
            group: own(group),
            version: own(version),
            main: main.len(),
            resource,
            namespace: own(namespace),
            name: own(name),
            dry_run: false,
            follow: false,
        })
    }

    /// The resource without its subresource.
    pub fn main_resource(&self) -> &str {
        &self.resource[..self.main]
    }

    /// The subresource, empty where there is none.
    pub fn subresource(&self) -> &str {
        self.resource.get(self.main + 1..).unwrap_or_default()
    }

    /// What RBAC is asked, in RBAC's terms.
    pub fn attributes(&self) -> Attributes<'_> {
        Attributes { verb: self.verb.as_str(), group: &self.group, resource: &self.resource, name: &self.name }
    }

    /// Exec, attach and port-forward: streams both ways into a Pod, whatever the HTTP method.
    pub fn is_interactive(&self) -> bool {
        self.group.is_empty() && INTERACTIVE.contains(&self.resource.as_str())
    }

    /// Whether the API server treats the response as long-running (its own test: watch, and these subresources).
    pub fn is_long_running(&self) -> bool {
        self.verb == Verb::Watch || self.is_interactive() || self.follow || self.subresource() == "proxy"
    }

    /// Whether it changes something, or hands out something as good as a change: an interactive session, or a token
    /// (a dry run of which returns a real one).
    pub fn mutates(&self) -> bool {
        !self.verb.reads() || self.is_interactive()
    }
}

/// Why a target was refused. Each is a 400; the message says what to send instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// Longer than [`MAX_TARGET`].
    #[error("the path and query are longer than {MAX_TARGET} bytes")]
    TooLong,
    /// A byte or an escape that two parsers may read differently.
    #[error("the path contains {0}; send the plain path, it is not cleaned up here")]
    Ambiguous(&'static str),
    /// The query cannot be read in one way only.
    #[error("the query {0}")]
    Query(&'static str),
    /// Not a path of the Kubernetes API.
    #[error("the path is not one of the Kubernetes API that this service forwards")]
    Unknown,
    /// A method that the API server does not know for resources.
    #[error("the method is not one of GET, HEAD, POST, PUT, PATCH, DELETE")]
    Method,
}
