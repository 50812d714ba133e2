//! Explain: by which grant, role and rule somebody may do something, or what is missing; and who can.
//!
//! Nothing here decides. Every answer is that of [`decide::authorize`] or of the [`Rules`] behind it, so that what is
//! explained is what the proxy does; the rest is looking up what stands beside the answer.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use jiff::Timestamp;

use super::across;
pub use super::across::Members;
use super::decide::{self, Asker, Context, Decide, Decision, Refusal, Right, Rules};
use super::resolve::{self, Place};
use crate::access::{Access, role_by};
use crate::domain::request::{RequestInfo, ResourceRequest};
use crate::domain::roles;
use crate::index::{GrantEntry, Snapshot, Stored};
use crate::records::TokenScopes;
use crate::resources::grant::TargetKind;
use crate::resources::{Project, User, UserSpec};
use crate::status::Status;

/// What is permitted.
#[derive(Debug)]
pub enum Permitted {
    /// The request as it is.
    Once(Decision),
    /// A list or watch that names no namespace, answered from the account's own.
    Across(Members),
}

/// The proxy's decision on a request, spread over namespaces where the proxy would spread it.
pub fn ask(decider: &dyn Decide, ctx: &Context<'_>) -> Result<Permitted, Refusal> {
    if let Some(asked) = across::concerns(ctx.request)
        && let Some(members) = across::members(decider, ctx, asked)?
    {
        return Ok(Permitted::Across(members));
    }
    decide::authorize(decider, ctx).map(Permitted::Once)
}

/// What the proxy answers to a live credential of the account: its decision, and nothing for accounts that may not act.
pub fn why(ctx: &Context<'_>) -> Result<Permitted, Refusal> {
    let decision = ask(&Rules, ctx)?;
    if ctx.snapshot.account_may_act(ctx.asker.user) {
        return Ok(decision);
    }
    let name = ctx.asker.user.metadata.name.as_deref().unwrap_or_default();
    let status =
        Status::forbidden(format!("{name} is suspended or disabled: no credential of the account is accepted"));
    Err(Refusal { reason: "account-inactive", status })
}

/// An account that may do what is asked, with the first right that permits it.
#[derive(Debug, Clone)]
pub struct Holder {
    /// The account.
    pub user: Arc<Stored<User>>,
    /// By what.
    pub right: Right,
}

/// A grant that gives what is asked to its subject.
#[derive(Debug, Clone)]
pub struct Giving {
    /// The grant.
    pub grant: Arc<GrantEntry>,
    /// By what of it.
    pub right: Right,
}

/// Who can do something in a namespace.
#[derive(Debug, Clone, Default)]
pub struct WhoCan {
    /// Every account that the proxy would permit it now, by name.
    pub holders: Vec<Holder>,
    /// Every grant in force that gives it, by name; also where its team has no member.
    pub givings: Vec<Giving>,
    /// Why nobody can, where that has a reason beside roles: the cluster, the API group, the subresource.
    pub against: Option<Refusal>,
}

/// Asks the proxy's decision for every account and for every grant.
pub fn who_can(snapshot: &Snapshot, place: Place<'_>, request: &RequestInfo, now: Timestamp) -> WhoCan {
    let scopes = TokenScopes::default();
    let mut found = WhoCan::default();
    for user in snapshot.users.values() {
        // The first step of the decision, taken alone: its refusals cost more, for they help with lists of names.
        if resolve::namespace(snapshot, &user.object, &scopes, place, now).is_none() {
            continue;
        }
        let asker = Asker { user: &user.object, scopes: &scopes };
        match why(&Context { snapshot, asker, place, request, now }) {
            Ok(Permitted::Once(decision)) => {
                found.holders.push(Holder { user: user.clone(), right: decision.permit.right().clone() });
            }
            // A namespace is named.
            Ok(Permitted::Across(_)) => {}
            Err(refusal) if for_everybody(&refusal) => found.against = Some(refusal),
            Err(_) => {}
        }
    }
    // As somebody who holds nothing but the grant.
    let nobody = User::new("", UserSpec::default());
    let asker = Asker { user: &nobody, scopes: &scopes };
    for grant in snapshot.grants.values() {
        let Some(resolved) = resolve::by_grant(snapshot, grant, place, now) else { continue };
        match Rules.decide(&Context { snapshot, asker, place, request, now }, Some(&resolved)) {
            Ok(permit) => found.givings.push(Giving { grant: grant.clone(), right: permit.right().clone() }),
            Err(refusal) if for_everybody(&refusal) => found.against = Some(refusal),
            Err(_) => {}
        }
    }
    // The right to a namespace as a whole is not of a role in it, and rests on the account's grants: those of all who
    // have it.
    for holder in &found.holders {
        if let Right::Namespaces { grant, .. } = &holder.right
            && !found.givings.iter().any(|giving| giving.grant.name == grant.name)
        {
            found.givings.push(Giving { grant: grant.clone(), right: holder.right.clone() });
        }
    }
    found.holders.sort_by(|a, b| a.user.object.metadata.name.cmp(&b.user.object.metadata.name));
    found.givings.sort_by(|a, b| a.grant.name.cmp(&b.grant.name));
    found
}

/// Whether a refusal is the same whoever asks, and whatever they hold.
fn for_everybody(refusal: &Refusal) -> bool {
    matches!(refusal.reason, "cluster-unusable" | "group-out-of-reach" | "proxy-subresource")
}

/// The roles that a grant on the project can give and that permit what is asked, least first.
pub fn roles_that_would(snapshot: &Snapshot, project: &Project, request: &ResourceRequest) -> Vec<String> {
    let built_in = [roles::VIEWER, roles::MEMBER, roles::OWNER];
    let names = built_in.into_iter().chain(project.spec.roles.iter().map(String::as_str));
    names
        .filter(|name| snapshot.roles.get(*name).is_some_and(|role| decide::role_permits(role, request).is_some()))
        .map(str::to_owned)
        .collect()
}

/// A grant to the account, or to one of its teams, that does not reach what is asked.
#[derive(Debug, Clone)]
pub struct Short {
    /// The grant.
    pub grant: Arc<GrantEntry>,
    /// What stands in its way, for people.
    pub why: String,
}

/// The account's grants that give nothing at the place, and why, by name. What is said comes from the grants, roles and
/// projects that they name, never from the claims, so that nothing can be learnt of a namespace from it.
pub fn short(snapshot: &Snapshot, user: &User, place: Place<'_>, now: Timestamp) -> Vec<Short> {
    let mut found: Vec<Short> = vec![];
    for grant in snapshot.grants_to(user) {
        if let Some(why) = shortcoming(snapshot, grant, place, now) {
            found.push(Short { grant: grant.clone(), why });
        }
    }
    found.sort_by(|a, b| a.grant.name.cmp(&b.grant.name));
    found.dedup_by(|a, b| a.grant.name == b.grant.name);
    found
}

fn shortcoming(snapshot: &Snapshot, grant: &GrantEntry, place: Place<'_>, now: Timestamp) -> Option<String> {
    let spec = &grant.object.spec;
    if let Some(end) = grant.expires_at.filter(|end| *end <= now) {
        return Some(format!("ended at {end}"));
    }
    if !snapshot.in_force(grant, now) {
        return Some(
            "is not in force: its subject or target does not exist, or is a stranger of the same name".to_owned(),
        );
    }
    match spec.target.kind {
        TargetKind::Platform => None,
        TargetKind::Cluster => {
            (spec.target.name != place.cluster).then(|| format!("is on cluster {} only", spec.target.name))
        }
        TargetKind::Project => {
            let project = &snapshot.projects.get(spec.target.name.as_str())?.object;
            let built_in = roles::BUILT_IN.contains(&spec.role.as_str());
            let broken = snapshot.roles.get(spec.role.as_str()).map(|role| role.error.clone());
            if let Some(narrow) = place.project.filter(|narrow| *narrow != spec.target.name) {
                Some(format!("is on project {}, and the question on {narrow}", spec.target.name))
            } else if !built_in && !project.spec.roles.contains(&spec.role) {
                Some(format!("project {} does not use the role {}", spec.target.name, spec.role))
            } else if let Some(Some(why)) = broken {
                Some(format!("the role {} gives nothing: {why}", spec.role))
            } else if broken.is_none() {
                Some(format!("there is no role {}", spec.role))
            } else if !spec.namespaces.is_empty() && !spec.namespaces.iter().any(|ns| ns == place.namespace) {
                Some(format!("is on the namespaces {} only", spec.namespaces.join(", ")))
            } else {
                None
            }
        }
    }
}

/// The grants in force by which somebody can grant roles on a project, its own and those on the platform; by name. With
/// no project: only the latter. That a grant's role may is said by `policies/`.
pub fn granters(snapshot: &Snapshot, project: Option<&str>, now: Timestamp) -> Vec<Arc<GrantEntry>> {
    // Without the rules nobody may; the service does not start without them.
    let Ok(access) = Access::shared() else { return vec![] };
    let may = |grant: &GrantEntry| {
        let role = role_by(&grant.object.spec, project.unwrap_or_default());
        role.is_some_and(|role| access.allows(&[role], "Grant", "create", "grant.project"))
    };
    let mut found: Vec<_> =
        snapshot.grants.values().filter(|grant| may(grant) && snapshot.in_force(grant, now)).cloned().collect();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}
