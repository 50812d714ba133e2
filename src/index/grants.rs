//! Who holds which grants, so laid out that a request looks only at those on its own project and cluster.
//!
//! Grants are found by what they are on, and there by whom they are for. How many grants a caller has elsewhere, how
//! many others have here, and how large the fleet is, make no difference to a decision.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::ops::ControlFlow;
use std::sync::Arc;

use jiff::Timestamp;
use kube::Resource;

use super::snapshot::{Many, Map, ObservedCluster, Snapshot, Stored};
use crate::domain::names::{cluster_group, project_group};
use crate::domain::roles;
use crate::resources::grant::{SubjectKind, TargetKind};
use crate::resources::{Cluster, Grant, Project, Team, User};
use crate::store::Revision;

/// A grant, with what decisions need of it worked out: in a large fleet the time of a decision is that of reading memory
/// which nobody has read lately, so what they compare stands together.
#[derive(Debug, Clone)]
pub struct GrantEntry {
    /// `resourceVersion`.
    pub revision: Revision,
    /// The grant's name.
    pub name: Arc<str>,
    // Who is meant; `None` while that is not recorded.
    subject: Option<Identity>,
    // UID of what is meant.
    target_uid: Option<Box<str>>,
    /// When it ends.
    pub expires_at: Option<Timestamp>,
    /// The group that carries the role in a cluster while the grant is in force; `None` where there is none.
    pub group: Option<Arc<str>>,
    /// Whether its role is one of the three that exist everywhere.
    pub built_in: bool,
    /// The resource.
    pub object: Grant,
}

/// A user or a team by name and UID, in one piece of memory. It holds no line break otherwise: names are labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Identity(Box<str>);

impl Identity {
    fn new(name: &str, uid: &str) -> Self {
        Self(format!("{name}\n{uid}").into())
    }

    fn is(&self, name: &str, uid: &str) -> bool {
        self.0.strip_prefix(name).and_then(|rest| rest.strip_prefix('\n')) == Some(uid)
    }
}

impl GrantEntry {
    /// A grant with the end that was read from it.
    pub fn new(revision: Revision, name: Arc<str>, object: Grant, expires_at: Option<Timestamp>) -> Self {
        let spec = &object.spec;
        let target_uid = object.status.as_ref().and_then(|status| status.target_uid.as_deref());
        let group = target_uid.and_then(|uid| match spec.target.kind {
            TargetKind::Project => Some(project_group(&spec.target.name, uid, &spec.role)),
            TargetKind::Cluster => Some(cluster_group(&spec.target.name, uid, &spec.role)),
            TargetKind::Platform => None,
        });
        let subject_uid = object.status.as_ref().and_then(|status| status.subject_uid.as_deref());
        Self {
            revision,
            name,
            subject: subject_uid.map(|uid| Identity::new(&spec.subject.name, uid)),
            target_uid: target_uid.map(Box::from),
            expires_at,
            group: group.map(Arc::from),
            built_in: roles::BUILT_IN.contains(&spec.role.as_str()),
            object,
        }
    }

    fn is_for(&self, kind: SubjectKind, name: &str, uid: Option<&str>) -> bool {
        let meant = |subject: &Identity| uid.is_some_and(|uid| subject.is(name, uid));
        self.object.spec.subject.kind == kind && self.subject.as_ref().is_some_and(meant)
    }

    fn is_on(&self, uid: Option<&str>) -> bool {
        uid.is_some() && self.target_uid.as_deref() == uid
    }

    fn lasts(&self, now: Timestamp) -> bool {
        self.expires_at.is_none_or(|end| now < end)
    }
}

/// All grants on one target, ordered by the hash of their subjects and by name.
#[derive(Debug, Clone, Default)]
pub(super) struct GrantsOn(Vec<(u64, Arc<GrantEntry>)>);

impl GrantsOn {
    fn place(&self, grant: &GrantEntry) -> Result<usize, usize> {
        let subject = &grant.object.spec.subject;
        let place = (hash(subject.kind, &subject.name), &grant.name);
        self.0.binary_search_by(|(hash, other)| (*hash, &other.name).cmp(&place))
    }

    /// Those whose subject has this hash: the subject's own, but for a clash.
    fn of(&self, hash: u64) -> impl Iterator<Item = &Arc<GrantEntry>> {
        let first = self.0.partition_point(|(other, _)| *other < hash);
        self.0[first..].iter().take_while(move |(other, _)| *other == hash).map(|(_, grant)| grant)
    }
}

/// That a team lists a user.
#[derive(Debug, Clone)]
pub(super) struct Membership {
    hash: u64,
    // The team that lists the user; none has no UID.
    team_is: Option<Identity>,
    // UID of the user who was meant.
    user_uid: Option<Box<str>>,
    name: Arc<str>,
    pub(super) team: Arc<Stored<Team>>,
}

impl Membership {
    pub(super) fn new(name: Arc<str>, team: Arc<Stored<Team>>, user: &str) -> Self {
        let uids = team.object.status.as_ref().map(|status| &status.member_uids);
        let user_uid = uids.and_then(|uids| uids.get(user)).map(|uid| uid.as_str().into());
        let team_is = team.object.metadata.uid.as_deref().map(|uid| Identity::new(&name, uid));
        Self { hash: hash(SubjectKind::Team, &name), team_is, user_uid, name, team }
    }

    fn is_of(&self, user_uid: &str) -> bool {
        !user_uid.is_empty() && self.user_uid.as_deref() == Some(user_uid)
    }

    fn receives(&self, grant: &GrantEntry) -> bool {
        grant.object.spec.subject.kind == SubjectKind::Team && self.team_is.is_some() && grant.subject == self.team_is
    }
}

/// What grants can be on, with those grants: found together, because they are needed together.
#[derive(Debug, Clone)]
pub(super) struct Target<T> {
    // Of the object.
    uid: Option<Box<str>>,
    stays: bool,
    grants: GrantsOn,
    // Absent where grants wait for it.
    object: Option<Arc<Stored<T>>>,
    // What is seen of a cluster.
    observed: Option<Arc<ObservedCluster>>,
}

// Not derived: `T` need not have a default.
impl<T> Default for Target<T> {
    fn default() -> Self {
        Self { uid: None, stays: false, grants: GrantsOn::default(), object: None, observed: None }
    }
}

/// Targets by name.
pub(super) type Targets<T> = Map<Arc<Target<T>>>;

/// Puts an object that is there, or none, beside the grants on its name.
pub(super) fn place<T: Resource + Clone>(targets: &mut Targets<T>, name: &Arc<str>, object: Option<Arc<Stored<T>>>) {
    change(targets, name, |target| {
        let metadata = object.as_ref().map(|object| object.object.meta());
        target.uid = metadata.and_then(|metadata| metadata.uid.as_deref()).map(Box::from);
        target.stays = metadata.is_some_and(|metadata| metadata.deletion_timestamp.is_none());
        target.object = object;
    });
}

fn change<T: Clone>(targets: &mut Targets<T>, name: &str, with: impl FnOnce(&mut Target<T>)) {
    let target = Arc::make_mut(targets.entry(name.into()).or_default());
    with(target);
    if target.object.is_none() && target.grants.0.is_empty() && target.observed.is_none() {
        targets.remove(name);
    }
}

/// A project or cluster that is there, and the grants on its name.
pub struct Granted<'a, T> {
    /// The project or cluster.
    pub object: &'a Arc<Stored<T>>,
    /// Its UID.
    pub uid: Option<&'a str>,
    /// Whether it is not being deleted.
    pub stays: bool,
    grants: &'a GrantsOn,
}

impl<T> Clone for Granted<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Granted<'_, T> {}

fn granted<T>(target: &Target<T>) -> Option<Granted<'_, T>> {
    let Target { uid, stays, grants, object, observed: _ } = target;
    Some(Granted { object: object.as_ref()?, uid: uid.as_deref(), stays: *stays, grants })
}

impl Snapshot {
    /// Files a grant under its target. Those on the platform are found by their subjects alone.
    pub(super) fn file_grant(&mut self, grant: &Arc<GrantEntry>) {
        self.change_grants(grant, |there| {
            if let Err(at) = there.place(grant) {
                let subject = &grant.object.spec.subject;
                there.0.insert(at, (hash(subject.kind, &subject.name), grant.clone()));
            }
        });
    }

    /// Takes a grant out from under its target.
    pub(super) fn unfile_grant(&mut self, grant: &GrantEntry) {
        self.change_grants(grant, |there| {
            if let Ok(at) = there.place(grant) {
                there.0.remove(at);
            }
        });
    }

    fn change_grants(&mut self, grant: &GrantEntry, with: impl FnOnce(&mut GrantsOn)) {
        let target = &grant.object.spec.target;
        match target.kind {
            TargetKind::Project => change(&mut self.granted_projects, &target.name, |there| with(&mut there.grants)),
            TargetKind::Cluster => change(&mut self.granted_clusters, &target.name, |there| with(&mut there.grants)),
            TargetKind::Platform => {}
        }
    }

    /// A project with the grants on it.
    pub fn granted_project(&self, name: &str) -> Option<Granted<'_, Project>> {
        granted(self.granted_projects.get(name)?)
    }

    /// A cluster with the grants on it.
    pub fn granted_cluster(&self, name: &str) -> Option<Granted<'_, Cluster>> {
        granted(self.granted_clusters.get(name)?)
    }

    /// As [`Snapshot::granted_cluster`], with what is seen of the cluster just now.
    pub fn observed_cluster(&self, name: &str) -> Option<(Granted<'_, Cluster>, &Arc<ObservedCluster>)> {
        let target = self.granted_clusters.get(name)?;
        Some((granted(target)?, target.observed.as_ref()?))
    }

    /// What is seen of a cluster just now, be there a Cluster of that name or none.
    pub fn observed(&self, cluster: &str) -> Option<&Arc<ObservedCluster>> {
        self.granted_clusters.get(cluster)?.observed.as_ref()
    }

    /// Puts what is seen of a cluster into its place, or takes it out.
    pub fn observe(&mut self, cluster: &str, seen: Option<Arc<ObservedCluster>>) {
        change(&mut self.granted_clusters, cluster, |target| target.observed = seen);
    }

    /// All that is seen, by the names of the clusters, in no order.
    pub fn all_observed(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<ObservedCluster>)> {
        self.granted_clusters.iter().filter_map(|(name, target)| Some((name, target.observed.as_ref()?)))
    }

    /// Teams that list the user by name and UID.
    pub fn teams_of<'a>(&'a self, user: &User) -> impl Iterator<Item = &'a Arc<str>> + use<'a> {
        let uid = user.metadata.uid.clone().unwrap_or_default();
        let teams = self.memberships(user.metadata.name.as_deref().unwrap_or_default());
        teams.iter().filter(move |membership| membership.is_of(&uid)).map(|membership| &membership.name)
    }

    fn memberships(&self, user: &str) -> &[Membership] {
        self.teams_of_user.get(user).map_or(&[], |teams| teams)
    }

    /// A user as a holder of grants at a time.
    pub fn holder<'a>(&'a self, user: &'a User, now: Timestamp) -> Holder<'a> {
        let name = user.metadata.name.as_deref().unwrap_or_default();
        let uid = user.metadata.uid.as_deref().unwrap_or_default();
        let account_uid = self.users.get(name).and_then(|user| user.object.metadata.uid.as_deref());
        let hash = hash(SubjectKind::User, name);
        Holder { snapshot: self, name, uid, account_uid, hash, teams: self.memberships(name), now }
    }

    /// Every grant that the user holds now, directly or by a team: resolved, not expired, and given to exactly this
    /// user or team and on exactly this target, not on one that had the same name before.
    pub fn holdings<'a>(&'a self, user: &'a User, now: Timestamp) -> impl Iterator<Item = &'a Arc<GrantEntry>> {
        self.holder(user, now).all()
    }

    /// Whether a grant gives anything to anybody now.
    pub fn in_force(&self, grant: &GrantEntry, now: Timestamp) -> bool {
        let subject = &grant.object.spec.subject;
        let uid = match subject.kind {
            SubjectKind::User => self.users.get(subject.name.as_str()).map(|user| &user.object.metadata),
            SubjectKind::Team => self.teams.get(subject.name.as_str()).map(|team| &team.object.metadata),
        };
        let uid = uid.and_then(|metadata| metadata.uid.as_deref());
        grant.is_for(subject.kind, &subject.name, uid) && self.target_stands(grant) && grant.lasts(now)
    }

    /// Whether what a grant is on is there, and not something else of the same name.
    fn target_stands(&self, grant: &GrantEntry) -> bool {
        let target = &grant.object.spec.target;
        let metadata = match target.kind {
            TargetKind::Platform => return true,
            TargetKind::Project => self.projects.get(target.name.as_str()).map(|project| &project.object.metadata),
            TargetKind::Cluster => self.clusters.get(target.name.as_str()).map(|cluster| &cluster.object.metadata),
        };
        grant.is_on(metadata.and_then(|metadata| metadata.uid.as_deref()))
    }
}

/// A user, and by which teams, as a holder of grants at a time.
#[derive(Clone, Copy)]
pub struct Holder<'a> {
    snapshot: &'a Snapshot,
    name: &'a str,
    uid: &'a str,
    // Of the account that has the name now.
    account_uid: Option<&'a str>,
    hash: u64,
    teams: &'a [Membership],
    now: Timestamp,
}

impl<'a> Holder<'a> {
    /// All of [`Snapshot::holdings`].
    pub fn all(self) -> impl Iterator<Item = &'a Arc<GrantEntry>> {
        let Self { snapshot, name, uid, account_uid, teams, now, .. } = self;
        let own = snapshot.grants_of_user.get(name).into_iter().flat_map(|all| &**all);
        let own = own.filter(move |grant| grant.is_for(SubjectKind::User, name, account_uid));
        let by_teams = teams.iter().filter(move |membership| membership.is_of(uid)).flat_map(|membership| {
            let all = snapshot.grants_of_team.get(&membership.name).into_iter().flat_map(|all| &**all);
            all.filter(|grant| membership.receives(grant))
        });
        own.chain(by_teams).filter(move |grant| snapshot.target_stands(grant) && grant.lasts(now))
    }

    /// Most grants that [`Holder::all`] can give.
    pub fn most(self) -> usize {
        let count = |all: Option<&Many<_>>| all.map_or(0, |all| all.len());
        let by_teams = self.teams.iter().map(|membership| count(self.snapshot.grants_of_team.get(&membership.name)));
        count(self.snapshot.grants_of_user.get(self.name)) + by_teams.sum::<usize>()
    }

    /// Those of [`Holder::all`] that are on one target of the same snapshot, until the visitor has seen enough.
    pub fn on<T>(self, target: Granted<'a, T>, mut visit: impl FnMut(&'a Arc<GrantEntry>) -> ControlFlow<()>) {
        let Self { name, uid, account_uid, hash, teams, now, .. } = self;
        if target.grants.0.is_empty() {
            return;
        }
        let mut given = |grant: &'a Arc<GrantEntry>| match grant.is_on(target.uid) && grant.lasts(now) {
            true => visit(grant),
            false => ControlFlow::Continue(()),
        };
        for grant in target.grants.of(hash) {
            if grant.is_for(SubjectKind::User, name, account_uid) && given(grant).is_break() {
                return;
            }
        }
        for membership in teams.iter().filter(|membership| membership.is_of(uid)) {
            for grant in target.grants.of(membership.hash) {
                if membership.receives(grant) && given(grant).is_break() {
                    return;
                }
            }
        }
    }

    /// Whether there is any grant on a target.
    pub fn has_any_on<T>(self, target: Granted<'a, T>) -> bool {
        let mut any = false;
        self.on(target, |_| {
            any = true;
            ControlFlow::Break(())
        });
        any
    }
}

/// Brings the grants of a subject together. Names are compared besides, so that a clash costs time and nothing else.
fn hash(kind: SubjectKind, name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (kind, name).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests;
