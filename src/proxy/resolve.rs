//! Resolve: whose namespace this is, and which roles the caller holds there.
//!
//! The groups that a request carries into the cluster come from here and never from the permit, so that a forced permit
//! cannot forge them.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;

use crate::domain::names::{cluster_group, is_system_namespace, project_group};
use crate::domain::roles;
use crate::index::{CompiledRole, GrantEntry, Snapshot, Stored};
use crate::records::{Claim, TokenScopes};
use crate::resources::grant::TargetKind;
use crate::resources::{Project, User};

/// The place that a request is about.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// Cluster.
    pub cluster: &'a str,
    /// Project that the URL narrows to.
    pub project: Option<&'a str>,
    /// Namespace; empty for the whole cluster.
    pub namespace: &'a str,
}

/// A role held where the request goes, and the grant that gives it.
#[derive(Debug, Clone)]
pub struct Held {
    /// The grant.
    pub grant: Arc<GrantEntry>,
    /// The role.
    pub role: Arc<CompiledRole>,
    /// The group that carries the role in the cluster.
    pub group: String,
}

/// A namespace that is somebody's, as the caller may know it.
#[derive(Debug, Clone)]
pub struct Resolved {
    /// The project that owns it.
    pub project: Arc<Stored<Project>>,
    /// The claim.
    pub claim: Arc<Stored<Claim>>,
    /// Roles the caller holds there; never empty.
    pub held: Vec<Held>,
}

/// Looks up a namespace for a caller. `None` where it does not exist, is nobody's, or is another's: the caller cannot
/// tell these apart.
pub fn namespace(
    snapshot: &Snapshot,
    user: &User,
    scopes: &TokenScopes,
    place: Place<'_>,
    now: Timestamp,
) -> Option<Resolved> {
    let (project, claim) = owned(snapshot, place)?;
    // The UIDs of the claim are those of the project and the cluster that are there now.
    let Claim { project_uid, cluster_uid, .. } = &claim.object;
    if !scopes.cluster(Some(cluster_uid)) || !scopes.project(Some(project_uid)) {
        return None;
    }
    let held = roles_in(snapshot, user, place.cluster, place.namespace, project, now);
    (!held.is_empty()).then(|| Resolved { project: project.clone(), claim: claim.clone(), held })
}

/// The namespaces on a cluster that the caller has a role in, sorted, at most `limit`: for refusals that help.
pub fn own_namespaces(
    snapshot: &Snapshot,
    user: &User,
    scopes: &TokenScopes,
    place: Place<'_>,
    now: Timestamp,
    limit: usize,
) -> Vec<String> {
    // What is held is few; the claims of a cluster may be many, and most are ruled out by the project's name alone.
    let held: Vec<(TargetKind, &str)> = snapshot
        .holdings(user, now)
        .map(|grant| (grant.object.spec.target.kind, grant.object.spec.target.name.as_str()))
        .collect();
    let whole_cluster = held.contains(&(TargetKind::Cluster, place.cluster));
    snapshot
        .claims_on(place.cluster)
        .filter(|claim| whole_cluster || held.contains(&(TargetKind::Project, claim.object.project.as_str())))
        .map(|claim| claim.object.namespace.as_str())
        .filter(|ns| namespace(snapshot, user, scopes, Place { namespace: ns, ..place }, now).is_some())
        .take(limit)
        .map(str::to_owned)
        .collect()
}

/// The clusters where the caller has anything, sorted, at most `limit`: as [`own_namespaces`].
pub fn own_clusters<'a>(
    snapshot: &'a Snapshot,
    user: &'a User,
    scopes: &TokenScopes,
    now: Timestamp,
    limit: usize,
) -> Vec<&'a str> {
    // From what is held, which is little, and not from all clusters.
    let mut named = BTreeSet::new();
    for grant in snapshot.holdings(user, now) {
        let target = &grant.object.spec.target;
        match target.kind {
            TargetKind::Platform => {}
            TargetKind::Cluster => drop(named.insert(target.name.as_str())),
            TargetKind::Project => {
                let project = snapshot.projects.get(target.name.as_str());
                named.extend(project.iter().flat_map(|p| &p.object.spec.clusters).map(|at| at.cluster.as_str()));
            }
        }
    }
    let known =
        |name: &&str| knows_cluster(snapshot, user, scopes, Place { cluster: name, project: None, namespace: "" }, now);
    named.into_iter().filter(known).take(limit).collect()
}

/// Whether the caller has anything at all on a cluster: a role in one of its projects, or one on the cluster.
pub fn knows_cluster(snapshot: &Snapshot, user: &User, scopes: &TokenScopes, place: Place<'_>, now: Timestamp) -> bool {
    let Some(cluster) = snapshot.clusters.get(place.cluster) else { return false };
    let metadata = &cluster.object.metadata;
    if metadata.deletion_timestamp.is_some() || !scopes.cluster(metadata.uid.as_deref()) {
        return false;
    }
    snapshot.holdings(user, now).any(|grant| {
        let target = &grant.object.spec.target;
        match target.kind {
            TargetKind::Platform => false,
            TargetKind::Cluster => {
                target.name == place.cluster && scopes.projects.is_empty() && place.project.is_none()
            }
            TargetKind::Project => {
                place.project.is_none_or(|narrow| narrow == target.name)
                    && snapshot.projects.get(target.name.as_str()).is_some_and(|project| {
                        scopes.project(project.object.metadata.uid.as_deref())
                            && project.object.spec.clusters.iter().any(|at| at.cluster == place.cluster)
                    })
            }
        }
    })
}

/// UIDs of the projects on a cluster that the caller has a role in, with or without namespaces there; `None` for all of
/// them.
pub fn own_projects(
    snapshot: &Snapshot,
    user: &User,
    scopes: &TokenScopes,
    place: Place<'_>,
    now: Timestamp,
) -> Option<BTreeSet<String>> {
    let mut uids = BTreeSet::new();
    for grant in snapshot.holdings(user, now) {
        let target = &grant.object.spec.target;
        match target.kind {
            TargetKind::Platform => {}
            TargetKind::Cluster if target.name == place.cluster && place.project.is_none() => return None,
            TargetKind::Cluster => {}
            TargetKind::Project => {
                let project = snapshot.projects.get(target.name.as_str()).map(|project| &project.object);
                let Some(project) = project.filter(|_| place.project.is_none_or(|narrow| narrow == target.name)) else {
                    continue;
                };
                let here = project.spec.clusters.iter().any(|at| at.cluster == place.cluster);
                let uid = project.metadata.uid.as_deref();
                if here && scopes.project(uid) {
                    uids.extend(uid.map(str::to_owned));
                }
            }
        }
    }
    Some(uids)
}

/// The project of a claim, if claim, project, cluster and the namespace observed in the cluster all agree.
fn owner<'a>(snapshot: &'a Snapshot, cluster: &str, claim: &Claim) -> Option<&'a Arc<Stored<Project>>> {
    let project = snapshot.projects.get(claim.project.as_str())?;
    let registered = snapshot.clusters.get(cluster)?;
    let observed = snapshot.observed.get(cluster)?;
    let seen = observed.namespaces.get(claim.namespace.as_str())?;
    let agree = project.object.metadata.uid.as_deref() == Some(claim.project_uid.as_str())
        && project.object.metadata.deletion_timestamp.is_none()
        && registered.object.metadata.uid.as_deref() == Some(claim.cluster_uid.as_str())
        && registered.object.metadata.deletion_timestamp.is_none()
        && observed.cluster_uid == claim.cluster_uid
        && claim.namespace_uid.as_deref() == Some(&**seen)
        && !claim.releasing;
    agree.then_some(project)
}

fn roles_in(
    snapshot: &Snapshot,
    user: &User,
    cluster: &str,
    namespace: &str,
    project: &Arc<Stored<Project>>,
    now: Timestamp,
) -> Vec<Held> {
    let mut held: Vec<Held> = vec![];
    for grant in snapshot.holdings(user, now) {
        let Some(group) = group_of(snapshot, grant, cluster, namespace, project) else { continue };
        if held.iter().any(|h| h.group == group) {
            continue;
        }
        if let Some(role) = snapshot.roles.get(grant.object.spec.role.as_str()) {
            held.push(Held { grant: grant.clone(), role: role.clone(), group });
        }
    }
    held
}

/// The group that carries a grant's role in a namespace of the project; `None` where the grant does not reach there.
fn group_of(
    snapshot: &Snapshot,
    grant: &GrantEntry,
    cluster: &str,
    namespace: &str,
    project: &Stored<Project>,
) -> Option<String> {
    let spec = &grant.object.spec;
    let metadata = &project.object.metadata;
    let name = metadata.name.as_deref().unwrap_or_default();
    let built_in = roles::BUILT_IN.contains(&spec.role.as_str());
    match spec.target.kind {
        TargetKind::Project
            if spec.target.name == name
                && (built_in || project.object.spec.roles.contains(&spec.role))
                && (spec.namespaces.is_empty() || spec.namespaces.iter().any(|ns| ns == namespace)) =>
        {
            Some(project_group(name, metadata.uid.as_deref().unwrap_or_default(), &spec.role))
        }
        TargetKind::Cluster if spec.target.name == cluster && built_in && spec.namespaces.is_empty() => {
            let cluster_uid = snapshot.clusters.get(cluster).and_then(|c| c.object.metadata.uid.as_deref())?;
            Some(cluster_group(cluster, cluster_uid, &spec.role))
        }
        _ => None,
    }
}

/// A namespace's project and claim.
type Owned<'a> = (&'a Arc<Stored<Project>>, &'a Arc<Stored<Claim>>);

/// The project that owns a namespace and its claim, as decisions see them. Not for the eyes of everybody: callers of
/// their own may learn it by [`namespace`] only.
pub fn owned<'a>(snapshot: &'a Snapshot, place: Place<'_>) -> Option<Owned<'a>> {
    if is_system_namespace(place.namespace) {
        return None;
    }
    let claim = snapshot.claim(place.cluster, place.namespace)?;
    let project = owner(snapshot, place.cluster, &claim.object)?;
    place.project.is_none_or(|narrow| narrow == claim.object.project).then_some((project, claim))
}

/// A namespace as it is for whoever holds this grant and nothing else; `None` where the grant gives nothing there now.
pub fn by_grant(snapshot: &Snapshot, grant: &Arc<GrantEntry>, place: Place<'_>, now: Timestamp) -> Option<Resolved> {
    let (project, claim) = owned(snapshot, place)?;
    let group = group_of(snapshot, grant, place.cluster, place.namespace, project)?;
    let role = snapshot.roles.get(grant.object.spec.role.as_str())?;
    let held = vec![Held { grant: grant.clone(), role: role.clone(), group }];
    snapshot.in_force(grant, now).then(|| Resolved { project: project.clone(), claim: claim.clone(), held })
}
