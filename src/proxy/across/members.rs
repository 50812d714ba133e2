//! Members: the namespaces that a request without one is about.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::domain::request::{RequestInfo, ResourceRequest, Verb};
use crate::domain::roles::TENANT_READABLE;
use crate::proxy::decide::{self, Context, Decide, Decision, Refusal};
use crate::proxy::resolve::{self, Place};

/// A namespace in which the request is permitted.
#[derive(Debug, Clone)]
pub struct Member {
    /// Name.
    pub namespace: String,
    /// UID in the cluster.
    pub uid: String,
    /// From which resource version on it is its project's.
    pub since: Option<u64>,
    /// The permit and the groups.
    pub decision: Decision,
}

/// The namespaces of a request.
#[derive(Debug)]
pub struct Members {
    /// Those in which it is permitted, sorted by name; never empty.
    pub permitted: Vec<Member>,
    /// Those of the caller's own in which no role permits it.
    pub left_out: Vec<String>,
    /// Names the permitted ones, as a set.
    pub set: SetId,
    /// UIDs of the caller's projects on the cluster, with or without namespaces; nothing where that is all of them.
    pub projects: Option<BTreeSet<String>>,
}

/// A set of namespaces, by name, UID and the time from which on they are their projects'.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SetId([u8; 16]);

impl SetId {
    /// Of names, UIDs, and the resource versions from which on they are their projects', sorted by name. One that was
    /// somebody else's meanwhile is another one.
    pub(super) fn of<'a>(members: impl IntoIterator<Item = (&'a str, &'a str, Option<u64>)>) -> Self {
        let mut hash = Sha256::new();
        for (namespace, uid, since) in members {
            // Neither can hold a line feed, and what follows is of one length.
            hash.update(namespace.as_bytes());
            hash.update(b"\n");
            hash.update(uid.as_bytes());
            hash.update(b"\n");
            hash.update(since.unwrap_or_default().to_be_bytes());
        }
        let digest: [u8; 32] = hash.finalize().into();
        let mut id = [0; 16];
        id.copy_from_slice(&digest[..16]);
        Self(id)
    }

    /// The empty set.
    #[cfg(test)]
    pub fn of_nothing() -> Self {
        Self::of([])
    }
}

/// Whether a request is one for several namespaces at once: a list or watch that names none, of what is not readable by
/// all tenants anyway. Whether the resource is one of namespaces at all, the cluster knows.
pub fn concerns(request: &RequestInfo) -> Option<&ResourceRequest> {
    let RequestInfo::Resource(request) = request else { return None };
    let kind = (request.group.as_str(), request.resource.as_str());
    let across = request.namespace.is_empty()
        && matches!(request.verb, Verb::List | Verb::Watch)
        && request.subresource().is_empty()
        && !TENANT_READABLE.contains(&kind);
    across.then_some(request)
}

/// Whether the request is about the namespaces themselves.
pub fn of_namespaces(request: &ResourceRequest) -> bool {
    request.group.is_empty() && request.main_resource() == "namespaces"
}

/// The request as it is made in one namespace. The namespaces themselves are those that one may get.
pub fn within(request: &ResourceRequest, namespace: &str) -> ResourceRequest {
    let mut inner = request.clone();
    namespace.clone_into(&mut inner.namespace);
    if of_namespaces(request) {
        inner.verb = Verb::Get;
        namespace.clone_into(&mut inner.name);
    }
    inner
}

/// Finds the members. The refusal is that of the first namespace where there is none, or the general one where the
/// caller has no namespace, or no role of any kind would permit it.
pub fn members(decider: &dyn Decide, ctx: &Context<'_>, request: &ResourceRequest) -> Result<Option<Members>, Refusal> {
    let Context { snapshot, asker, place, now, .. } = *ctx;
    let own = resolve::own(snapshot, asker.user, asker.scopes, place, now, usize::MAX);
    let mut permitted = vec![];
    let mut left_out = vec![];
    let mut refused = None;
    for resolved in own {
        let claim = &resolved.claim.object;
        let namespace = claim.namespace.clone();
        let inner = RequestInfo::Resource(within(request, &namespace));
        let place = Place { namespace: &namespace, ..place };
        let ctx = Context { snapshot, asker, place, request: &inner, now };
        match decide::authorize_in(decider, &ctx, Some(&resolved)) {
            Ok(decision) => {
                let uid = claim.namespace_uid.clone().unwrap_or_default();
                permitted.push(Member { namespace, uid, since: claim.since, decision });
            }
            Err(why) => {
                refused.get_or_insert(why);
                left_out.push(namespace);
            }
        }
    }
    match (permitted.is_empty(), refused) {
        // Of what no role names at all (nodes), no owner could grant anything.
        (true, Some(_)) if !snapshot.roles.values().any(|role| role.rules.permits(request.attributes()).is_some()) => {
            Ok(None)
        }
        (true, Some(why)) => Err(why),
        (true, None) => Ok(None),
        (false, _) => {
            let set = SetId::of(permitted.iter().map(|at| (at.namespace.as_str(), at.uid.as_str(), at.since)));
            let projects = resolve::own_projects(snapshot, asker.user, asker.scopes, place, now);
            Ok(Some(Members { permitted, left_out, set, projects }))
        }
    }
}

/// How the namespaces of a request are shared between projects.
#[derive(Debug)]
pub struct Shares<'a> {
    by_project: BTreeMap<&'a str, usize>,
    namespaces: usize,
}

impl Shares<'_> {
    /// Number of namespaces.
    pub fn namespaces(&self) -> usize {
        self.namespaces
    }

    /// How many of each project may be asked at a time, where so many are asked at a time in all.
    pub fn at_a_time(&self, in_all: usize) -> Vec<(&str, usize)> {
        self.by_project.iter().map(|(project, count)| (*project, in_all.min(*count))).collect()
    }
}

impl Members {
    /// Which project has how many of them.
    pub fn shares(&self) -> Shares<'_> {
        let mut by_project = BTreeMap::new();
        for member in &self.permitted {
            *by_project.entry(member.decision.project.as_deref().unwrap_or_default()).or_default() += 1;
        }
        Shares { by_project, namespaces: self.permitted.len() }
    }

    /// Number of the caller's namespaces, all of which are judged for as long as a watch goes on.
    pub fn judged(&self) -> usize {
        self.permitted.len() + self.left_out.len()
    }

    /// For people: where it is permitted.
    pub fn in_words(&self) -> String {
        const NAMED: usize = 10;
        let named = self.permitted.iter().take(NAMED).map(|member| member.namespace.as_str()).collect::<Vec<_>>();
        let more = self.permitted.len() - named.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("answered from your namespaces {}{more}", named.join(", "))
    }
}
