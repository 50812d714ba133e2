//! Decide: a permit that names grant, role and rule, or a refusal that names what is missing.

use std::sync::Arc;

use jiff::Timestamp;

use super::changes::{self, ByGit};
use super::namespaces::right;
use super::resolve::{self, Place, Resolved};
use crate::domain::names::TENANT_GROUP;
use crate::domain::rbac::{Attributes, RuleId};
use crate::domain::request::{PathRequest, RequestInfo, ResourceRequest, Verb};
use crate::domain::roles::TENANT_READABLE;
use crate::index::{CompiledRole, GrantEntry, Snapshot};
use crate::records::TokenScopes;
use crate::resources::User;
use crate::status::Status;

/// Most namespaces that a refusal lists.
const LISTED: usize = 20;

/// Who asks, for what the decision needs of them.
#[derive(Debug, Clone, Copy)]
pub struct Asker<'a> {
    /// The account.
    pub user: &'a User,
    /// Limits of the token.
    pub scopes: &'a TokenScopes,
}

impl Asker<'_> {
    fn name(&self) -> &str {
        self.user.metadata.name.as_deref().unwrap_or_default()
    }
}

/// What may be forwarded, and why. There is no other way to a cluster.
#[derive(Debug, Clone)]
pub struct Permit {
    // Private: only this module makes permits.
    right: Right,
}

impl Permit {
    /// By which right.
    pub fn right(&self) -> &Right {
        &self.right
    }
}

/// The right that a permit rests on.
#[derive(Debug, Clone)]
pub enum Right {
    /// A rule of a role held in the namespace.
    Rule {
        /// The grant that gives the role.
        grant: Arc<GrantEntry>,
        /// The role.
        role: Arc<CompiledRole>,
        /// The rule.
        rule: RuleId,
    },
    /// To make or delete namespaces of a project.
    Namespaces {
        /// The grant that gives the role.
        grant: Arc<GrantEntry>,
        /// The role on the project.
        role: &'static str,
    },
    /// What everybody with anything on the cluster may read: discovery, OpenAPI, version.
    Discovery,
    /// Kinds of the whole cluster that tenants may read.
    TenantRead,
    /// A question about oneself.
    SelfReview,
    /// Forced by a test.
    Forced,
}

/// A refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Machine-readable, bounded: for metrics and audit.
    pub reason: &'static str,
    /// What the client gets.
    pub status: Status,
}

/// A decision with what it found on the way: the namespace's owner and the groups, whatever the permit says.
#[derive(Debug, Clone)]
pub struct Decision {
    /// Name of the project that owns the namespace, where there is one.
    pub project: Option<String>,
    /// Groups for the cluster.
    pub groups: Vec<String>,
    /// The permit.
    pub permit: Permit,
}

/// Decides. The one real implementation is [`Rules`]; tests force permits through another one, handed over by a
/// constructor that no configuration reaches.
pub trait Decide: Send + Sync + 'static {
    /// Decides on a request whose place is resolved; `resolved` is `None` for requests without a namespace.
    fn decide(&self, ctx: &Context<'_>, resolved: Option<&Resolved>) -> Result<Permit, Refusal>;
}

/// Everything that a decision may look at.
pub struct Context<'a> {
    /// The version of everything.
    pub snapshot: &'a Snapshot,
    /// Who asks.
    pub asker: Asker<'a>,
    /// Cluster and narrowing of the URL.
    pub place: Place<'a>,
    /// What is asked.
    pub request: &'a RequestInfo,
    /// Now.
    pub now: Timestamp,
}

/// Authorises a request: resolves, decides, and names the groups.
pub fn authorize(decider: &dyn Decide, ctx: &Context<'_>) -> Result<Decision, Refusal> {
    let resolved = match ctx.place.namespace {
        "" => None,
        _ => resolve::namespace(ctx.snapshot, ctx.asker.user, ctx.asker.scopes, ctx.place, ctx.now),
    };
    authorize_in(decider, ctx, resolved.as_ref())
}

/// As [`authorize`], where the place was resolved already, in the same version of everything.
pub fn authorize_in(decider: &dyn Decide, ctx: &Context<'_>, resolved: Option<&Resolved>) -> Result<Decision, Refusal> {
    let permit = decider.decide(ctx, resolved)?;
    Ok(match resolved {
        Some(resolved) => Decision {
            project: Some(resolved.claim.object.project.clone()),
            groups: resolved.held.iter().map(|h| h.group.to_string()).collect(),
            permit,
        },
        None => {
            Decision { project: ctx.place.project.map(str::to_owned), groups: vec![TENANT_GROUP.to_owned()], permit }
        }
    })
}

/// A cluster is used only while it is known to be the right one with its guards in force.
fn usable(ctx: &Context<'_>) -> Result<(), Refusal> {
    match ctx.snapshot.observed(ctx.place.cluster) {
        Some(observed) if observed.usable => Ok(()),
        Some(observed) => Err(unusable(ctx, &observed.reason)),
        None => Err(unusable(ctx, "it has not been reached yet")),
    }
}

/// Those who have nothing on a cluster learn nothing of it, not even whether it exists.
fn known(ctx: &Context<'_>) -> Result<(), Refusal> {
    if resolve::knows_cluster(ctx.snapshot, ctx.asker.user, ctx.asker.scopes, ctx.place, ctx.now) {
        Ok(())
    } else {
        Err(unknown_cluster(ctx))
    }
}

fn unusable(ctx: &Context<'_>, why: &str) -> Refusal {
    let message = format!("cluster {:?} cannot be used now: {why}", ctx.place.cluster);
    Refusal { reason: "cluster-unusable", status: Status::unavailable(message) }
}

/// The real rules.
pub struct Rules;

impl Decide for Rules {
    fn decide(&self, ctx: &Context<'_>, resolved: Option<&Resolved>) -> Result<Permit, Refusal> {
        match resolved {
            // Whoever holds a role in a namespace of the cluster knows the cluster.
            Some(resolved) if resolved.usable => {}
            Some(_) => usable(ctx)?,
            None => {
                known(ctx)?;
                usable(ctx)?;
            }
        }
        let right = match (ctx.request, resolved) {
            (RequestInfo::Path(path), _) => discovery(path)?,
            (RequestInfo::Resource(request), Some(resolved)) => namespaced(ctx, request, resolved)?,
            (RequestInfo::Resource(request), None) if ctx.place.namespace.is_empty() => cluster_scoped(ctx, request)?,
            (RequestInfo::Resource(request), None) if right::is_absent(ctx, request) => return Err(absent(request)),
            (RequestInfo::Resource(_), None) => return Err(no_namespace(ctx)),
        };
        Ok(Permit { right })
    }
}

fn discovery(path: &PathRequest) -> Result<Right, Refusal> {
    if path.reads {
        return Ok(Right::Discovery);
    }
    let message = format!("{} may only be read", path.path);
    Err(Refusal {
        reason: "method",
        status: Status::new(http::StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message),
    })
}

/// Questions about oneself.
pub const SELF_REVIEWS: [(&str, &str); 3] = [
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
    ("authentication.k8s.io", "selfsubjectreviews"),
];

fn cluster_scoped(ctx: &Context<'_>, request: &ResourceRequest) -> Result<Right, Refusal> {
    let kind = (request.group.as_str(), request.resource.as_str());
    if SELF_REVIEWS.contains(&kind) && request.verb == Verb::Create {
        return Ok(Right::SelfReview);
    }
    if TENANT_READABLE.contains(&kind) && request.verb.reads() {
        return Ok(Right::TenantRead);
    }
    if kind == ("", "namespaces") && request.verb == Verb::Create {
        return create_namespace(ctx, request);
    }
    let across = namespaces_hint(ctx);
    let message = if request.resource == "namespaces" {
        format!(
            "{}: {} may not {} namespaces of the whole cluster {:?}; {across}",
            forbidden(request),
            ctx.asker.name(),
            request.verb.as_str(),
            ctx.place.cluster
        )
    } else {
        format!(
            "{}: {} may not {} this resource across all namespaces of cluster {:?}; name one with -n; {across}",
            forbidden(request),
            ctx.asker.name(),
            request.verb.as_str(),
            ctx.place.cluster
        )
    };
    Err(Refusal { reason: "across-namespaces", status: refused(request, message) })
}

/// For which project is chosen from what is sent; here it is enough that there is one.
fn create_namespace(ctx: &Context<'_>, request: &ResourceRequest) -> Result<Right, Refusal> {
    if ctx.asker.scopes.read_only {
        return Err(read_only(request));
    }
    if let Some(right::Candidate { grant, role, .. }) = right::creators(ctx).into_iter().next() {
        return Ok(Right::Namespaces { grant, role });
    }
    if right::exists(ctx, &request.name) {
        let message = format!("namespaces {:?} already exists", request.name);
        let status = Status::new(http::StatusCode::CONFLICT, "AlreadyExists", message);
        return Err(Refusal { reason: "namespace-exists", status: about(request, status) });
    }
    if let Some(by_git) = right::creations_held_back(ctx, &request.name) {
        return Err(changed_by_git(ctx, request, by_git));
    }
    let message = format!(
        "{}: {} may not make namespaces on cluster {:?}{}; owners and members of a whole project may, and its owner can \
         grant that; {}",
        forbidden(request),
        ctx.asker.name(),
        ctx.place.cluster,
        ctx.place.project.map(|p| format!(" in project {p:?}")).unwrap_or_default(),
        namespaces_hint(ctx)
    );
    Err(Refusal { reason: "no-namespace-right", status: refused(request, message) })
}

fn delete_namespace(ctx: &Context<'_>, request: &ResourceRequest, resolved: &Resolved) -> Result<Right, Refusal> {
    let project = &resolved.claim.object.project;
    if let Some(right::Candidate { grant, role, .. }) = right::candidate(ctx, project, "delete") {
        return Ok(Right::Namespaces { grant, role });
    }
    if let Some(by_git) = right::held_back(ctx, project, "delete") {
        return Err(changed_by_git(ctx, request, by_git));
    }
    let message = format!(
        "{}: {} may not delete namespaces of project {project:?}; its owners may",
        forbidden(request),
        ctx.asker.name()
    );
    Err(Refusal { reason: "no-namespace-right", status: refused(request, message) })
}

fn changed_by_git(ctx: &Context<'_>, request: &ResourceRequest, by_git: ByGit<'_>) -> Refusal {
    let message = format!(
        "{}: {} may not {} it by hand; {}",
        forbidden(request),
        ctx.asker.name(),
        request.verb.as_str(),
        by_git.instead()
    );
    Refusal { reason: "changes-by-git", status: refused(request, message) }
}

fn read_only(request: &ResourceRequest) -> Refusal {
    let message = format!("{}: the token is limited to reading", forbidden(request));
    Refusal { reason: "token-read-only", status: refused(request, message) }
}

fn namespaced(ctx: &Context<'_>, request: &ResourceRequest, resolved: &Resolved) -> Result<Right, Refusal> {
    if request.subresource() == "proxy" {
        let message = format!(
            "{}: proxy subresources reach past access control and are not offered; use port-forward",
            forbidden(request)
        );
        return Err(Refusal { reason: "proxy-subresource", status: refused(request, message) });
    }
    if ctx.asker.scopes.read_only && request.mutates() {
        return Err(read_only(request));
    }
    let whole = request.group.is_empty() && request.resource == "namespaces" && request.name == ctx.place.namespace;
    if whole && request.verb == Verb::Delete {
        return delete_namespace(ctx, request, resolved);
    }
    if !ctx.snapshot.within_reach(ctx.place.cluster, &request.group) {
        let message = format!(
            "{}: API group {:?} is not open to tenants on cluster {:?}; an administrator can add it to tenantAPIGroups of the Cluster",
            forbidden(request),
            request.group,
            ctx.place.cluster
        );
        return Err(Refusal { reason: "group-out-of-reach", status: refused(request, message) });
    }
    let by_git = match request.mutates() {
        true => changes::by_git(&resolved.project.object, ctx.place.cluster, ctx.asker.user),
        false => None,
    };
    let mut held_back = None;
    for held in &resolved.held {
        let Some(rule) = role_permits(&held.role, request) else { continue };
        let grant = match by_git {
            None => Some(&held.grant),
            Some(_) => held.temporary.as_ref(),
        };
        match grant {
            Some(grant) => return Ok(Right::Rule { grant: grant.clone(), role: held.role.clone(), rule }),
            None => held_back = by_git,
        }
    }
    if let Some(by_git) = held_back {
        return Err(changed_by_git(ctx, request, by_git));
    }
    let roles = resolved.held.iter().map(|h| &*h.role.name).collect::<Vec<_>>().join(", ");
    let project = &resolved.claim.object.project;
    let message = format!(
        "{}: {} holds {roles} in project {project:?}, which does not {} {} in API group {:?}; an owner of {project:?} can grant a role that does{SEE}{}",
        forbidden(request),
        ctx.asker.name(),
        request.verb.as_str(),
        request.resource,
        request.group,
        question(ctx, request)
    );
    Err(Refusal { reason: "no-rule", status: refused(request, message) })
}

/// The rule by which a role permits a request, where the role is held and nothing else stands against it.
pub fn role_permits(role: &CompiledRole, request: &ResourceRequest) -> Option<RuleId> {
    let asked = request.attributes();
    let rule = role.rules.permits(asked)?;
    if request.is_interactive() {
        // A WebSocket exec is a GET. Whatever the method, it is a session, and those are created.
        role.rules.permits(Attributes { verb: "create", ..asked })?;
    }
    Some(rule)
}

// ===== texts =====

/// The beginning of Kubernetes' own refusals: `pods "web" is forbidden`.
fn forbidden(request: &ResourceRequest) -> String {
    let group = if request.group.is_empty() { String::new() } else { format!(".{}", request.group) };
    let name = if request.name.is_empty() { String::new() } else { format!(" {:?}", request.name) };
    format!("{}{group}{name} is forbidden", request.main_resource())
}

fn refused(request: &ResourceRequest, message: String) -> Status {
    about(request, Status::forbidden(message))
}

fn about(request: &ResourceRequest, mut status: Status) -> Status {
    status.details.name.clone_from(&request.name);
    status.details.group.clone_from(&request.group);
    status.details.kind = request.main_resource().to_owned();
    status
}

/// Between a refusal and the command that explains it.
pub const SEE: &str = "; see: bailiwick why ";

/// The command that explains a refusal in full, from where it names the verb.
fn question(ctx: &Context<'_>, request: &ResourceRequest) -> String {
    let group = if request.group.is_empty() { String::new() } else { format!(".{}", request.group) };
    let sub = if request.subresource().is_empty() { String::new() } else { format!("/{}", request.subresource()) };
    let Place { cluster, namespace, .. } = ctx.place;
    let (verb, main) = (request.verb.as_str(), request.main_resource());
    format!("{verb} {main}{group}{sub} -n {namespace} --cluster {cluster}")
}

fn namespaces_hint(ctx: &Context<'_>) -> String {
    let own = resolve::own_namespaces(ctx.snapshot, ctx.asker.user, ctx.asker.scopes, ctx.place, ctx.now, LISTED);
    match own.as_slice() {
        [] => "you have no namespace there yet".to_owned(),
        own => format!("yours are: {}", own.join(", ")),
    }
}

/// A namespace that only the caller's project could have, or something in it: what asks before it creates learns that it
/// may.
fn absent(request: &ResourceRequest) -> Refusal {
    let namespace = &request.namespace;
    let message = if request.group.is_empty() && request.resource == "namespaces" {
        format!("namespaces {namespace:?} not found")
    } else {
        let group = if request.group.is_empty() { String::new() } else { format!(".{}", request.group) };
        let (main, name) = (request.main_resource(), &request.name);
        format!("{main}{group} {name:?} not found: you have no namespace {namespace:?}")
    };
    let status = Status::new(http::StatusCode::NOT_FOUND, "NotFound", message);
    Refusal { reason: "no-namespace", status: about(request, status) }
}

/// The same answer for a namespace that does not exist and for one that is another's.
fn no_namespace(ctx: &Context<'_>) -> Refusal {
    let RequestInfo::Resource(request) = ctx.request else { return unknown_cluster(ctx) };
    let message = format!(
        "{}: {} has no access to a namespace {:?} on cluster {:?}{}; {}",
        forbidden(request),
        ctx.asker.name(),
        ctx.place.namespace,
        ctx.place.cluster,
        ctx.place.project.map(|p| format!(" in project {p:?}")).unwrap_or_default(),
        namespaces_hint(ctx)
    );
    Refusal { reason: "no-namespace", status: refused(request, message) }
}

/// The same answer for a cluster that does not exist and for one where the caller has nothing.
fn unknown_cluster(ctx: &Context<'_>) -> Refusal {
    let own = resolve::own_clusters(ctx.snapshot, ctx.asker.user, ctx.asker.scopes, ctx.now, LISTED);
    let narrowed = ctx.place.project.map(|p| format!(" in project {p:?}")).unwrap_or_default();
    let hint =
        if own.is_empty() { "none is open to you".to_owned() } else { format!("open to you: {}", own.join(", ")) };
    let message = format!("{} has no access to a cluster {:?}{narrowed}; {hint}", ctx.asker.name(), ctx.place.cluster);
    Refusal { reason: "no-cluster", status: Status::forbidden(message) }
}

/// Permits everything, to prove that the cluster's own wall holds without ours. Reached by a constructor of tests only.
#[doc(hidden)]
pub struct PermitEverything;

impl Decide for PermitEverything {
    fn decide(&self, _: &Context<'_>, _: Option<&Resolved>) -> Result<Permit, Refusal> {
        Ok(Permit { right: Right::Forced })
    }
}
