//! Who holds which grants, so laid out that a request looks only at those on its own project and cluster.
//!
//! Grants are found by what they are on, and there by whom they are for. How many grants a caller has elsewhere, how
//! many others have here, and how large the fleet is, make no difference to a decision.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::ops::ControlFlow;
use std::sync::Arc;

use jiff::Timestamp;
use kube::Resource;

use super::snapshot::{Many, Map, Snapshot, Stored};
use crate::domain::names::{cluster_group, project_group};
use crate::domain::roles;
use crate::resources::grant::{SubjectKind, TargetKind};
use crate::resources::{Cluster, Grant, Project, Team, User};
use crate::store::Revision;

/// A grant, with what decisions need of it worked out.
#[derive(Debug, Clone)]
pub struct GrantEntry {
    /// `resourceVersion`.
    pub revision: Revision,
    /// The grant's name.
    pub name: Arc<str>,
    /// The resource.
    pub object: Grant,
    /// When it ends.
    pub expires_at: Option<Timestamp>,
    /// Whether its role is one of the three that exist everywhere.
    pub built_in: bool,
    /// The group that carries the role in a cluster while the grant is in force; `None` where there is none.
    pub group: Option<Arc<str>>,
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
        let built_in = roles::BUILT_IN.contains(&spec.role.as_str());
        Self { revision, name, expires_at, built_in, group: group.map(Arc::from), object }
    }

    fn is_for(&self, kind: SubjectKind, name: &str, uid: Option<&str>) -> bool {
        let subject = &self.object.spec.subject;
        let recorded = self.object.status.as_ref().and_then(|status| status.subject_uid.as_deref());
        subject.kind == kind && subject.name == name && same(uid, recorded)
    }

    fn is_on(&self, uid: Option<&str>) -> bool {
        same(uid, self.object.status.as_ref().and_then(|status| status.target_uid.as_deref()))
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
    pub(super) team: Arc<Stored<Team>>,
    name: Arc<str>,
    hash: u64,
    // UID of the user who was meant.
    user_uid: Option<Box<str>>,
}

impl Membership {
    pub(super) fn new(name: Arc<str>, team: Arc<Stored<Team>>, user: &str) -> Self {
        let uids = team.object.status.as_ref().map(|status| &status.member_uids);
        let user_uid = uids.and_then(|uids| uids.get(user)).map(|uid| uid.as_str().into());
        Self { hash: hash(SubjectKind::Team, &name), team, name, user_uid }
    }

    fn is_of(&self, user_uid: &str) -> bool {
        !user_uid.is_empty() && self.user_uid.as_deref() == Some(user_uid)
    }

    fn receives(&self, grant: &GrantEntry) -> bool {
        grant.is_for(SubjectKind::Team, &self.name, self.team.object.metadata.uid.as_deref())
    }
}

/// What grants can be on, with those grants: found together, because they are needed together.
#[derive(Debug, Clone)]
pub(super) struct Target<T> {
    // Absent where grants wait for it.
    object: Option<Arc<Stored<T>>>,
    grants: GrantsOn,
}

// Not derived: `T` need not have a default.
impl<T> Default for Target<T> {
    fn default() -> Self {
        Self { object: None, grants: GrantsOn::default() }
    }
}

/// Targets by name.
pub(super) type Targets<T> = Map<Arc<Target<T>>>;

/// Puts an object that is there, or none, beside the grants on its name.
pub(super) fn place<T: Clone>(targets: &mut Targets<T>, name: &Arc<str>, object: Option<Arc<Stored<T>>>) {
    change(targets, name, |target| target.object = object);
}

fn change<T: Clone>(targets: &mut Targets<T>, name: &str, with: impl FnOnce(&mut Target<T>)) {
    let target = Arc::make_mut(targets.entry(name.into()).or_default());
    with(target);
    if target.object.is_none() && target.grants.0.is_empty() {
        targets.remove(name);
    }
}

/// A project or cluster that is there, and the grants on its name.
pub struct Granted<'a, T> {
    /// The project or cluster.
    pub object: &'a Arc<Stored<T>>,
    grants: &'a GrantsOn,
    uid: Option<&'a str>,
}

impl<T> Clone for Granted<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Granted<'_, T> {}

fn granted<'a, T: Resource>(targets: &'a Targets<T>, name: &str) -> Option<Granted<'a, T>> {
    let target = targets.get(name)?;
    let object = target.object.as_ref()?;
    Some(Granted { object, grants: &target.grants, uid: object.object.meta().uid.as_deref() })
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
        granted(&self.granted_projects, name)
    }

    /// A cluster with the grants on it.
    pub fn granted_cluster(&self, name: &str) -> Option<Granted<'_, Cluster>> {
        granted(&self.granted_clusters, name)
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

fn same(current: Option<&str>, recorded: Option<&str>) -> bool {
    matches!((current, recorded), (Some(current), Some(recorded)) if current == recorded)
}

/// Brings the grants of a subject together. Names are compared besides, so that a clash costs time and nothing else.
fn hash(kind: SubjectKind, name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (kind, name).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests;
