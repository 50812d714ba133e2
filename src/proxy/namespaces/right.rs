//! Who may make and delete namespaces, and in which projects.
//!
//! The right is the one that the API's acts demand, casbin's over our own resources; here it is asked grant by grant, so
//! that a permit can name the grant that it rests on.

use std::sync::Arc;

use crate::access::{Access, role_by};
use crate::domain::request::{ResourceRequest, Verb};
use crate::index::GrantEntry;
use crate::proxy::changes::{self, ByGit};
use crate::proxy::decide::Context;
use crate::proxy::resolve::{self, Place};
use crate::resources::grant::TargetKind;
use crate::resources::project::ProjectCluster;
use crate::tenancy::names;

/// A project where the caller may do an act on namespaces.
#[derive(Debug, Clone)]
pub struct Candidate<'a> {
    /// Its name.
    pub project: &'a str,
    /// Its place on the cluster.
    pub place: &'a ProjectCluster,
    /// The grant that gives the right.
    pub grant: Arc<GrantEntry>,
    /// The role that the grant gives.
    pub role: &'static str,
}

impl Candidate<'_> {
    /// The prefix under which the project's members make namespaces, where they make any.
    pub fn prefix(&self) -> Option<&str> {
        let prefix = self.place.prefix.as_deref().filter(|prefix| !prefix.is_empty());
        prefix.filter(|_| self.place.max_namespaces.is_some())
    }
}

/// The right to `create` or `delete` namespaces of one project on the cluster of the request.
pub fn candidate<'a>(ctx: &Context<'a>, project: &str, verb: &str) -> Option<Candidate<'a>> {
    looked_at(ctx, project, verb)?.ok()
}

/// Where only Git keeps the caller from the right to `create` or `delete` namespaces of a project.
pub fn held_back<'a>(ctx: &Context<'a>, project: &str, verb: &str) -> Option<ByGit<'a>> {
    looked_at(ctx, project, verb)?.err()
}

/// As [`held_back`], for a name of any project of the caller's; an empty one is of each.
pub fn creations_held_back<'a>(ctx: &Context<'a>, name: &str) -> Option<ByGit<'a>> {
    named(ctx).into_iter().find_map(|project| {
        let by_git = held_back(ctx, project, "create")?;
        let place = ctx.snapshot.projects.get(project)?.object.spec.on(ctx.place.cluster)?;
        (name.is_empty() || names::origin(project, place, name).is_ok()).then_some(by_git)
    })
}

/// The right, or what else it needs; `None` where there is none.
fn looked_at<'a>(ctx: &Context<'a>, project: &str, verb: &str) -> Option<Result<Candidate<'a>, ByGit<'a>>> {
    let (name, stored) = ctx.snapshot.projects.get_key_value(project)?;
    let metadata = &stored.object.metadata;
    let open = metadata.deletion_timestamp.is_none()
        && ctx.place.project.is_none_or(|narrow| narrow == project)
        && ctx.asker.scopes.project(metadata.uid.as_deref())
        && !ctx.asker.scopes.read_only;
    if !open {
        return None;
    }
    let place = stored.object.spec.on(ctx.place.cluster)?;
    // Without the rules nothing is allowed; the service does not start without them.
    let access = Access::shared().ok()?;
    let mut rights = ctx.snapshot.holdings(ctx.asker.user, ctx.now).filter_map(|grant| {
        let role = role_by(&grant.object.spec, project)?;
        access.allows(&[role], "Namespace", verb, "object").then_some((grant, role))
    });
    let by_git = changes::by_git(&stored.object, ctx.place.cluster, ctx.asker.user);
    let found = match by_git {
        None => rights.next(),
        Some(by_git) => {
            let mut some = false;
            let ending = rights.find(|(grant, _)| {
                some = true;
                grant.expires_at.is_some()
            });
            if ending.is_none() && some {
                return Some(Err(by_git));
            }
            ending
        }
    };
    found.map(|(grant, role)| Ok(Candidate { project: name, place, grant: grant.clone(), role }))
}

/// Every project in which the caller may make namespaces on the cluster of the request, sorted.
pub fn creators<'a>(ctx: &Context<'a>) -> Vec<Candidate<'a>> {
    named(ctx).into_iter().filter_map(|project| candidate(ctx, project, "create")).collect()
}

/// The projects that the caller's grants may give a right in, sorted.
fn named<'a>(ctx: &Context<'a>) -> Vec<&'a str> {
    let mut projects: Vec<&str> = vec![];
    for grant in ctx.snapshot.holdings(ctx.asker.user, ctx.now) {
        let target = &grant.object.spec.target;
        match target.kind {
            TargetKind::Project => projects.push(&target.name),
            // Who has the right everywhere has it in every project that lives there.
            TargetKind::Platform => projects.extend(ctx.snapshot.projects.keys().map(|name| &**name)),
            TargetKind::Cluster => {}
        }
    }
    projects.sort_unstable();
    projects.dedup();
    projects
}

/// Whether a namespace that the caller has no access to is one that only a project of theirs could make: its name begins
/// with the project's prefix, or the project is just giving it up. That it is not there may then be said, of itself and of
/// one object in it: Helm looks for what it is going to install before it makes the namespace. Whether somebody else has
/// it may not be said, and is not.
pub fn is_absent(ctx: &Context<'_>, request: &ResourceRequest) -> bool {
    let itself = request.group.is_empty() && request.resource == "namespaces";
    let object = request.verb == Verb::Get && request.subresource().is_empty() && !request.name.is_empty();
    if !(itself || object) || request.namespace != ctx.place.namespace {
        return false;
    }
    let name = request.namespace.as_str();
    let claim = ctx.snapshot.claim(ctx.place.cluster, name);
    ctx.snapshot.holdings(ctx.asker.user, ctx.now).any(|grant| {
        let target = &grant.object.spec.target;
        let Some(project) = ctx.snapshot.projects.get(target.name.as_str()) else { return false };
        let uid = project.object.metadata.uid.as_deref();
        let theirs = target.kind == TargetKind::Project
            && ctx.place.project.is_none_or(|narrow| narrow == target.name)
            && ctx.asker.scopes.project(uid);
        let place = project.object.spec.on(ctx.place.cluster);
        let prefixed = place
            .and_then(|place| place.prefix.as_deref())
            .is_some_and(|prefix| !prefix.is_empty() && name.strip_prefix(prefix).is_some_and(|rest| !rest.is_empty()));
        let leaving = claim.is_some_and(|claim| {
            claim.object.releasing && Some(claim.object.project_uid.as_str()) == uid && place.is_some()
        });
        theirs && (prefixed || leaving)
    }) && resolve::knows_cluster(ctx.snapshot, ctx.asker.user, ctx.asker.scopes, ctx.place, ctx.now)
}

/// Whether a name is that of a namespace that the caller has a role in already.
pub fn exists(ctx: &Context<'_>, name: &str) -> bool {
    let place = Place { namespace: name, ..ctx.place };
    resolve::namespace(ctx.snapshot, ctx.asker.user, ctx.asker.scopes, place, ctx.now).is_some()
}
