//! Which roles somebody holds for an object: from the snapshot, never from the rules.

use jiff::Timestamp;
use serde_json::Value;

use crate::domain::roles;
use crate::index::Snapshot;
use crate::resources::grant::{SubjectKind, TargetKind};
use crate::resources::{GrantSpec, User};
use crate::store::Kind;

/// An object of ours, as far as the roles held for it depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectRef<'a> {
    /// A cluster.
    Cluster(&'a str),
    /// A user.
    User(&'a str),
    /// A team.
    Team(&'a str),
    /// A grant, by what it says.
    Grant {
        /// Kind of its subject.
        subject_kind: SubjectKind,
        /// Name of its subject.
        subject: &'a str,
        /// Kind of its target.
        target_kind: TargetKind,
        /// Name of its target.
        target: &'a str,
    },
    /// A project, or its namespaces.
    Project(&'a str),
    /// A token, by its owner.
    Token(&'a str),
    /// Anything for which only roles on the platform count: access roles, the audit log, what cannot be read.
    Platform,
}

impl<'a> ObjectRef<'a> {
    /// The reference to an object as JSON. One that lacks what decides is [`ObjectRef::Platform`].
    pub fn of(kind: Kind, object: &'a Value) -> Self {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
        let name = text("/metadata/name");
        let found = match kind {
            Kind::Cluster => name.map(Self::Cluster),
            Kind::User => name.map(Self::User),
            Kind::Team => name.map(Self::Team),
            Kind::Project => name.map(Self::Project),
            Kind::Token => text("/spec/owner").map(Self::Token),
            Kind::Grant => (|| {
                Some(Self::Grant {
                    subject_kind: match text("/spec/subject/kind")? {
                        "User" => SubjectKind::User,
                        "Team" => SubjectKind::Team,
                        _ => return None,
                    },
                    subject: text("/spec/subject/name")?,
                    target_kind: match text("/spec/target/kind")? {
                        "Project" => TargetKind::Project,
                        "Cluster" => TargetKind::Cluster,
                        "Platform" => TargetKind::Platform,
                        _ => return None,
                    },
                    target: text("/spec/target/name").unwrap_or_default(),
                })
            })(),
            _ => None,
        };
        found.unwrap_or(Self::Platform)
    }

    /// The reference to a grant.
    pub fn grant(spec: &'a GrantSpec) -> Self {
        Self::Grant {
            subject_kind: spec.subject.kind,
            subject: &spec.subject.name,
            target_kind: spec.target.kind,
            target: &spec.target.name,
        }
    }
}

/// Roles that the caller holds for an object of ours, each once.
///
/// - `platform:admin`, `platform:auditor`: by a grant on the platform; for every object.
/// - `project:owner`, `project:member`: by a grant of the built-in role on the whole project; for the project, the
///   grants on it and the teams named in them.
/// - `project:viewer`: by any other grant on the project (another role, or limited to some namespaces), and by a grant
///   on a cluster where the project has a place.
/// - `cluster:reader`: by any grant on the cluster; for the cluster and the grants on it.
/// - `team:member`: for one's teams. `self`: for one's account, tokens, and the grants to oneself or one's teams.
/// - `authenticated`: always.
pub fn roles_held(snapshot: &Snapshot, caller: &User, object: ObjectRef<'_>, now: Timestamp) -> Vec<&'static str> {
    let mut held = Held { snapshot, caller, now, roles: vec!["authenticated"] };
    held.on_platform();
    match object {
        ObjectRef::Platform => {}
        ObjectRef::User(name) | ObjectRef::Token(name) => {
            if held.is_caller(name) {
                held.add("self");
            }
        }
        ObjectRef::Cluster(name) => held.on_cluster(name),
        ObjectRef::Project(name) => held.on_project(name),
        ObjectRef::Team(name) => held.on_team(name),
        ObjectRef::Grant { subject_kind, subject, target_kind, target } => {
            let mine = match subject_kind {
                SubjectKind::User => held.is_caller(subject),
                SubjectKind::Team => held.is_member(subject),
            };
            if mine {
                held.add("self");
            }
            match target_kind {
                TargetKind::Project => held.on_project(target),
                TargetKind::Cluster => held.on_cluster(target),
                TargetKind::Platform => {}
            }
        }
    }
    held.roles
}

/// The role on a project that one grant gives, on the project itself or on the platform; that the grant is in force is
/// the caller's to know.
pub fn role_by(grant: &GrantSpec, project: &str) -> Option<&'static str> {
    match grant.target.kind {
        TargetKind::Platform => match grant.role.as_str() {
            roles::PLATFORM_ADMIN => Some("platform:admin"),
            roles::PLATFORM_AUDITOR => Some("platform:auditor"),
            _ => None,
        },
        // A part of a project gives no say over the whole.
        TargetKind::Project if grant.target.name == project => Some(match grant.role.as_str() {
            roles::OWNER if grant.namespaces.is_empty() => "project:owner",
            roles::MEMBER if grant.namespaces.is_empty() => "project:member",
            _ => "project:viewer",
        }),
        TargetKind::Project | TargetKind::Cluster => None,
    }
}

struct Held<'a> {
    snapshot: &'a Snapshot,
    caller: &'a User,
    now: Timestamp,
    roles: Vec<&'static str>,
}

impl<'a> Held<'a> {
    fn add(&mut self, role: &'static str) {
        if !self.roles.contains(&role) {
            self.roles.push(role);
        }
    }

    /// What the caller's grants say, each while it is in force and on this very target.
    fn grants(&self) -> impl Iterator<Item = &'a GrantSpec> + use<'a> {
        self.snapshot.holdings(self.caller, self.now).map(|grant| &grant.object.spec)
    }

    fn is_caller(&self, name: &str) -> bool {
        !name.is_empty() && self.caller.metadata.name.as_deref() == Some(name)
    }

    fn is_member(&self, team: &str) -> bool {
        self.snapshot.teams_of(self.caller).any(|own| &**own == team)
    }

    fn on_platform(&mut self) {
        for grant in self.grants().filter(|grant| grant.target.kind == TargetKind::Platform) {
            role_by(grant, "").into_iter().for_each(|role| self.add(role));
        }
    }

    fn on_cluster(&mut self, cluster: &str) {
        if self.grants().any(|grant| grant.target.kind == TargetKind::Cluster && grant.target.name == cluster) {
            self.add("cluster:reader");
        }
    }

    fn on_project(&mut self, project: &str) {
        let Some(stored) = self.snapshot.projects.get(project) else { return };
        for grant in self.grants() {
            match grant.target.kind {
                TargetKind::Platform => {}
                TargetKind::Project => role_by(grant, project).into_iter().for_each(|role| self.add(role)),
                TargetKind::Cluster => {
                    if stored.object.spec.on(&grant.target.name).is_some() {
                        self.add("project:viewer");
                    }
                }
            }
        }
    }

    fn on_team(&mut self, team: &str) {
        if self.is_member(team) {
            self.add("team:member");
        }
        let (snapshot, now) = (self.snapshot, self.now);
        for grant in snapshot.grants_to_team(team).filter(|grant| snapshot.in_force(grant, now)) {
            if grant.object.spec.target.kind == TargetKind::Project {
                self.on_project(&grant.object.spec.target.name);
            }
        }
    }
}

#[cfg(test)]
mod tests;
