//! Resolve: whose namespace this is, and which roles the caller holds there.
//!
//! The groups that a request carries into the cluster come from here and never from the permit, so that a forced permit
//! cannot forge them.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use jiff::Timestamp;

use crate::domain::names::is_system_namespace;
use crate::index::{CompiledRole, GrantEntry, Granted, Holder, ObservedCluster, Snapshot, Stored};
use crate::records::{Claim, TokenScopes};
use crate::resources::grant::TargetKind;
use crate::resources::{Cluster, Project, User};

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
    /// A grant of the role that ends by itself: this one, or another one beside it.
    pub temporary: Option<Arc<GrantEntry>>,
    /// The group that carries the role in the cluster.
    pub group: Arc<str>,
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
    /// Whether requests may be sent to the cluster.
    pub usable: bool,
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
    let ground = ground(snapshot, place, owned_claim(snapshot, place)?)?;
    held_on(snapshot, snapshot.holder(user, now), scopes, place.namespace, ground)
}

/// A claimed namespace with everything that means it.
#[derive(Clone, Copy)]
struct Ground<'a> {
    project: Granted<'a, Project>,
    cluster: Granted<'a, Cluster>,
    claim: &'a Arc<Stored<Claim>>,
    usable: bool,
}

/// The claim on a namespace that may be somebody's.
fn owned_claim<'a>(snapshot: &'a Snapshot, place: Place<'_>) -> Option<&'a Arc<Stored<Claim>>> {
    if is_system_namespace(place.namespace) {
        return None;
    }
    snapshot.claim(place.cluster, place.namespace)
}

/// What a claim means, within the narrowing of the URL, if project, cluster and the observed namespace agree with it.
fn ground<'a>(snapshot: &'a Snapshot, place: Place<'_>, claim: &'a Arc<Stored<Claim>>) -> Option<Ground<'a>> {
    if place.project.is_some_and(|narrow| narrow != claim.object.project) {
        return None;
    }
    let project = snapshot.granted_project(&claim.object.project)?;
    let (cluster, observed) = snapshot.observed_cluster(place.cluster)?;
    agree(&claim.object, project, cluster, observed).then_some(Ground {
        project,
        cluster,
        claim,
        usable: observed.usable,
    })
}

fn held_on(
    snapshot: &Snapshot,
    holder: Holder<'_>,
    scopes: &TokenScopes,
    namespace: &str,
    ground: Ground<'_>,
) -> Option<Resolved> {
    let Ground { project, cluster: _, claim, usable } = ground;
    // The UIDs of the claim are those of the project and the cluster that are there now.
    let Claim { project_uid, cluster_uid, .. } = &claim.object;
    if !scopes.cluster(Some(cluster_uid)) || !scopes.project(Some(project_uid)) {
        return None;
    }
    let held = roles_in(snapshot, holder, namespace, ground);
    (!held.is_empty()).then(|| Resolved { project: project.object.clone(), claim: claim.clone(), held, usable })
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
    own(snapshot, user, scopes, place, now, limit).into_iter().map(|own| own.claim.object.namespace.clone()).collect()
}

/// As [`own_namespaces`], with what was found of each.
pub fn own(
    snapshot: &Snapshot,
    user: &User,
    scopes: &TokenScopes,
    place: Place<'_>,
    now: Timestamp,
    limit: usize,
) -> Vec<Resolved> {
    let holder = snapshot.holder(user, now);
    let known = |claim: &Arc<Stored<Claim>>| {
        let at = Place { namespace: &claim.object.namespace, ..place };
        if is_system_namespace(at.namespace) {
            return None;
        }
        held_on(snapshot, holder, scopes, at.namespace, ground(snapshot, at, claim)?)
    };
    if snapshot.granted_cluster(place.cluster).is_some_and(|cluster| holder.has_any_on(cluster)) {
        return snapshot.claims_on(place.cluster).filter_map(known).take(limit).collect();
    }
    // What is held is few, and the claims of a cluster may be many.
    let projects: BTreeSet<&str> = holder
        .all()
        .map(|grant| &grant.object.spec.target)
        .filter(|target| target.kind == TargetKind::Project)
        .map(|target| target.name.as_str())
        .filter(|project| place.project.is_none_or(|narrow| narrow == *project))
        .collect();
    let claims = projects.into_iter().flat_map(|project| snapshot.claims_of(project));
    let mut own: Vec<Resolved> =
        claims.filter(|claim| claim.object.cluster == place.cluster).filter_map(known).collect();
    own.sort_unstable_by(|a, b| a.claim.object.namespace.cmp(&b.claim.object.namespace));
    own.truncate(limit);
    own
}

/// The clusters where the caller has anything, sorted, at most `limit`: as [`own_namespaces`].
pub fn own_clusters<'a>(
    snapshot: &'a Snapshot,
    user: &'a User,
    scopes: &TokenScopes,
    now: Timestamp,
    limit: usize,
) -> Vec<&'a str> {
    // From what is held, which is little, and not from all clusters. What `knows_cluster` says, of all of them at once.
    let mut named = BTreeSet::new();
    for grant in snapshot.holdings(user, now) {
        let target = &grant.object.spec.target;
        match target.kind {
            TargetKind::Platform => {}
            TargetKind::Cluster => {
                if scopes.projects.is_empty() {
                    named.insert(target.name.as_str());
                }
            }
            TargetKind::Project => {
                let project = snapshot.projects.get(target.name.as_str()).map(|project| &project.object);
                let in_scope = project.filter(|project| scopes.project(project.metadata.uid.as_deref()));
                named.extend(in_scope.iter().flat_map(|project| &project.spec.clusters).map(|at| at.cluster.as_str()));
            }
        }
    }
    let stands = |name: &&str| snapshot.clusters.get(*name).is_some_and(|cluster| admits(scopes, &cluster.object));
    named.into_iter().filter(stands).take(limit).collect()
}

/// Whether a cluster is there to stay, and within the limits of a token.
fn admits(scopes: &TokenScopes, cluster: &Cluster) -> bool {
    cluster.metadata.deletion_timestamp.is_none() && scopes.cluster(cluster.metadata.uid.as_deref())
}

/// Whether the caller has anything at all on a cluster: a role in one of its projects, or one on the cluster.
pub fn knows_cluster(snapshot: &Snapshot, user: &User, scopes: &TokenScopes, place: Place<'_>, now: Timestamp) -> bool {
    let Some(cluster) = snapshot.granted_cluster(place.cluster) else { return false };
    if !admits(scopes, &cluster.object.object) {
        return false;
    }
    let holder = snapshot.holder(user, now);
    if scopes.projects.is_empty() && place.project.is_none() && holder.has_any_on(cluster) {
        return true;
    }
    let holds = |project: &str| {
        snapshot.granted_project(project).is_some_and(|project| {
            let Project { metadata, spec, .. } = &project.object.object;
            scopes.project(metadata.uid.as_deref()) && spec.on(place.cluster).is_some() && holder.has_any_on(project)
        })
    };
    let here = snapshot.projects_on(place.cluster);
    match place.project {
        Some(narrow) => holds(narrow),
        // Whichever is less: the projects of the cluster, or what the caller holds anywhere.
        None if here.len() <= holder.most() => here.iter().any(|project| holds(project)),
        None => holder.all().map(|grant| &grant.object.spec.target).any(|on| match on.kind {
            TargetKind::Project => holds(&on.name),
            TargetKind::Cluster | TargetKind::Platform => false,
        }),
    }
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
                let here = project.spec.on(place.cluster).is_some();
                let uid = project.metadata.uid.as_deref();
                if here && scopes.project(uid) {
                    uids.extend(uid.map(str::to_owned));
                }
            }
        }
    }
    Some(uids)
}

/// Whether claim, project, cluster and the namespace observed in the cluster all mean each other.
fn agree(
    claim: &Claim,
    project: Granted<'_, Project>,
    cluster: Granted<'_, Cluster>,
    observed: &ObservedCluster,
) -> bool {
    !claim.releasing
        && project.uid == Some(claim.project_uid.as_str())
        && project.stays
        && cluster.uid == Some(claim.cluster_uid.as_str())
        && cluster.stays
        && observed.cluster_uid == claim.cluster_uid
        && observed
            .namespaces
            .get(claim.namespace.as_str())
            .is_some_and(|seen| claim.namespace_uid.as_deref() == Some(&**seen))
}

/// The roles that the caller holds in a namespace of a project: from the grants on the project and on the cluster.
fn roles_in(snapshot: &Snapshot, holder: Holder<'_>, namespace: &str, ground: Ground<'_>) -> Vec<Held> {
    let mut held: Vec<Held> = vec![];
    let mut hold = |grant: &Arc<GrantEntry>| {
        if let Some(group) = group_of(grant, namespace, ground)
            && let Some(role) = snapshot.roles.get(grant.object.spec.role.as_str())
        {
            match held.iter_mut().find(|known| known.group == *group) {
                Some(known) if known.temporary.is_none() => known.temporary = temporary(grant),
                Some(_) => {}
                None => held.push(Held {
                    grant: grant.clone(),
                    role: role.clone(),
                    temporary: temporary(grant),
                    group: group.clone(),
                }),
            }
        }
        ControlFlow::Continue(())
    };
    holder.on(ground.project, &mut hold);
    holder.on(ground.cluster, &mut hold);
    held
}

fn temporary(grant: &Arc<GrantEntry>) -> Option<Arc<GrantEntry>> {
    grant.expires_at.is_some().then(|| grant.clone())
}

/// The group that carries a grant's role in a namespace; `None` where the grant does not reach there. The UID in it is
/// that of the target while the grant is in force.
fn group_of<'a>(grant: &'a GrantEntry, namespace: &str, ground: Ground<'_>) -> Option<&'a Arc<str>> {
    let spec = &grant.object.spec;
    let project = &ground.project.object.object;
    let reaches = match spec.target.kind {
        TargetKind::Project => {
            spec.target.name == ground.claim.object.project
                && (grant.built_in || project.spec.roles.contains(&spec.role))
                && (spec.namespaces.is_empty() || spec.namespaces.iter().any(|ns| ns == namespace))
        }
        TargetKind::Cluster => {
            spec.target.name == ground.claim.object.cluster && grant.built_in && spec.namespaces.is_empty()
        }
        TargetKind::Platform => false,
    };
    grant.group.as_ref().filter(|_| reaches)
}

/// A namespace's project and claim.
type Owned<'a> = (&'a Arc<Stored<Project>>, &'a Arc<Stored<Claim>>);

/// The project that owns a namespace and its claim, as decisions see them. Not for the eyes of everybody: callers of
/// their own may learn it by [`namespace`] only.
pub fn owned<'a>(snapshot: &'a Snapshot, place: Place<'_>) -> Option<Owned<'a>> {
    let ground = ground(snapshot, place, owned_claim(snapshot, place)?)?;
    Some((ground.project.object, ground.claim))
}

/// A namespace as it is for whoever holds this grant and nothing else; `None` where the grant gives nothing there now.
pub fn by_grant(snapshot: &Snapshot, grant: &Arc<GrantEntry>, place: Place<'_>, now: Timestamp) -> Option<Resolved> {
    let ground = ground(snapshot, place, owned_claim(snapshot, place)?)?;
    let group = group_of(grant, place.namespace, ground)?.clone();
    let role = snapshot.roles.get(grant.object.spec.role.as_str())?.clone();
    let held = vec![Held { grant: grant.clone(), role, temporary: temporary(grant), group }];
    let Ground { project, claim, usable, .. } = ground;
    let resolved = || Resolved { project: project.object.clone(), claim: claim.clone(), held, usable };
    snapshot.in_force(grant, now).then(resolved)
}
