//! What refers to what: the snapshot as validation sees it, and what stands in the way of a deletion.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::grants::GrantEntry;
use super::snapshot::Snapshot;
use crate::domain::roles::RoleSpec;
use crate::records::ClaimOrigin;
use crate::resources::grant::{SubjectKind, TargetKind};
use crate::resources::validation::{ClaimedNamespace, References, ResourceKind};
use crate::resources::{ProjectSpec, User};
use crate::store::Kind;

impl References for Snapshot {
    fn now(&self) -> Timestamp {
        crate::clock::now()
    }

    fn cluster_exists(&self, name: &str) -> bool {
        self.clusters.contains_key(name)
    }

    fn access_roles(&self) -> BTreeMap<String, RoleSpec> {
        self.access_roles.iter().map(|(name, role)| (name.to_string(), (&role.object.spec).into())).collect()
    }

    fn project(&self, name: &str) -> Option<&ProjectSpec> {
        self.projects.get(name).map(|project| &project.object.spec)
    }

    fn projects(&self) -> Vec<(&str, &ProjectSpec)> {
        self.projects.iter().map(|(name, project)| (&**name, &project.object.spec)).collect()
    }

    fn claims_on(&self, cluster: &str) -> Vec<ClaimedNamespace<'_>> {
        Snapshot::claims_on(self, cluster)
            .map(|claim| ClaimedNamespace {
                namespace: &claim.object.namespace,
                project: &claim.object.project,
                project_uid: &claim.object.project_uid,
            })
            .collect()
    }

    fn is_reserved(&self, project: &str) -> bool {
        self.reservations.contains_key(project)
    }
}

impl Snapshot {
    /// Every grant whose subject is a team of this name, in force or not.
    pub fn grants_to_team(&self, team: &str) -> impl Iterator<Item = &Arc<GrantEntry>> {
        self.grants_of_team.get(team).into_iter().flat_map(|grants| &**grants)
    }

    /// Every grant to a user, or to a team that the user is in, in force or not.
    pub fn grants_to<'a>(&'a self, user: &'a User) -> impl Iterator<Item = &'a Arc<GrantEntry>> {
        let own = self.grants_of_user.get(user.metadata.name.as_deref().unwrap_or_default());
        own.into_iter()
            .flat_map(|grants| &**grants)
            .chain(self.teams_of(user).flat_map(|team| self.grants_to_team(team)))
    }
}

impl From<Kind> for Option<ResourceKind> {
    /// The kinds of the store that people write.
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Cluster => Some(ResourceKind::Cluster),
            Kind::User => Some(ResourceKind::User),
            Kind::Team => Some(ResourceKind::Team),
            Kind::AccessRole => Some(ResourceKind::AccessRole),
            Kind::Grant => Some(ResourceKind::Grant),
            Kind::Project => Some(ResourceKind::Project),
            Kind::Claim
            | Kind::Ledger
            | Kind::TokenUse
            | Kind::Reservation
            | Kind::Account
            | Kind::Token
            | Kind::ClusterCredential
            | Kind::Platform => None,
        }
    }
}

/// What still refers to an object, so that it must not be deleted: `grant "jane-shop"`, sorted, each thing once.
///
/// Grants refer even after they expired, for they may be prolonged. A project's declared namespaces go with the
/// project; those that people created there stand in its way, for nobody said that they are wanted no more.
pub fn references_to(kind: Kind, name: &str, snapshot: &Snapshot) -> Vec<String> {
    let mut found = vec![];
    let mut grants = |refers: &dyn Fn(&crate::resources::GrantSpec) -> bool| {
        let referring = snapshot.grants.iter().filter(|(_, grant)| refers(&grant.object.spec));
        found.extend(referring.map(|(name, _)| format!("grant {name:?}")));
    };
    match kind {
        Kind::User => {
            grants(&|g| g.subject.kind == SubjectKind::User && g.subject.name == name);
            let teams = snapshot.teams.iter().filter(|(_, team)| team.object.spec.users.iter().any(|u| u == name));
            found.extend(teams.map(|(team, _)| format!("team {team:?}")));
        }
        Kind::Team => grants(&|g| g.subject.kind == SubjectKind::Team && g.subject.name == name),
        Kind::AccessRole => {
            grants(&|g| g.target.kind != TargetKind::Platform && g.role == name);
            let roles = snapshot.access_roles.iter().filter(|(heir, role)| {
                &***heir != name && role.object.spec.inherits.iter().any(|inherited| inherited == name)
            });
            found.extend(roles.map(|(role, _)| format!("role {role:?}")));
            let projects =
                snapshot.projects.iter().filter(|(_, p)| p.object.spec.roles.iter().any(|used| used == name));
            found.extend(projects.map(|(project, _)| format!("project {project:?}")));
        }
        Kind::Project => {
            grants(&|g| g.target.kind == TargetKind::Project && g.target.name == name);
            let created = snapshot
                .claims
                .values()
                .map(|claim| &claim.object)
                .filter(|claim| claim.project == name && claim.origin == ClaimOrigin::Created && !claim.releasing);
            found.extend(created.map(|c| format!("namespace {:?} on cluster {:?}", c.namespace, c.cluster)));
        }
        Kind::Cluster => {
            grants(&|g| g.target.kind == TargetKind::Cluster && g.target.name == name);
            let projects = snapshot.projects.iter().filter(|(_, project)| project.object.spec.on(name).is_some());
            found.extend(projects.map(|(project, _)| format!("project {project:?}")));
            let claims = snapshot.claims_on(name).map(|claim| &claim.object);
            found.extend(claims.map(|c| format!("namespace {:?} of project {:?}", c.namespace, c.project)));
            let waiting = snapshot.reservations.iter().filter(|(_, r)| r.object.clusters.iter().any(|c| c == name));
            found.extend(waiting.map(|(project, _)| format!("clean-up after deleted project {project:?}")));
        }
        Kind::Grant
        | Kind::Claim
        | Kind::Ledger
        | Kind::TokenUse
        | Kind::Reservation
        | Kind::Account
        | Kind::Token
        | Kind::ClusterCredential
        | Kind::Platform => {}
    }
    found.sort();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::index::Stored;
    use crate::records::{Claim, Reservation};
    use crate::store::Revision;

    fn stored<T: serde::de::DeserializeOwned>(kind: &str, name: &str, spec: serde_json::Value) -> Arc<Stored<T>> {
        let object = json!({"apiVersion": "bailiwick.dev/v1alpha1", "kind": kind,
            "metadata": {"name": name, "uid": format!("uid-{name}")}, "spec": spec});
        Arc::new(Stored { revision: Revision(1), object: serde_json::from_value(object).unwrap() })
    }

    fn grant(name: &str, subject: (&str, &str), role: &str, target: (&str, &str)) -> Arc<GrantEntry> {
        let spec = json!({"subject": {"kind": subject.0, "name": subject.1}, "role": role,
            "target": {"kind": target.0, "name": target.1}});
        let Stored { revision, object } = Arc::unwrap_or_clone(stored("Grant", name, spec));
        Arc::new(GrantEntry::new(revision, name.into(), object, None))
    }

    fn claim(namespace: &str, project: &str, origin: ClaimOrigin, releasing: bool) -> Arc<Stored<Claim>> {
        let object = Claim {
            cluster: "east".into(),
            cluster_uid: "uid-east".into(),
            namespace: namespace.into(),
            since: None,
            namespace_uid: None,
            project: project.into(),
            project_uid: format!("uid-{project}"),
            origin,
            releasing,
            adopt: false,
            created_by: "jane".into(),
            created_at: "2030-01-01T00:00:00Z".into(),
        };
        Arc::new(Stored { revision: Revision(1), object })
    }

    fn world() -> Snapshot {
        let mut s = Snapshot::default();
        for name in ["jane", "john"] {
            s.users.insert(name.into(), stored("User", name, json!({})));
        }
        s.teams.insert("web".into(), stored("Team", "web", json!({"users": ["jane"]})));
        s.access_roles.insert("ci".into(), stored("AccessRole", "ci", json!({"base": "view"})));
        s.access_roles.insert("ci-plus".into(), stored("AccessRole", "ci-plus", json!({"inherits": ["ci"]})));
        s.projects.insert(
            "shop".into(),
            stored("Project", "shop", json!({"roles": ["ci"], "clusters": [{"cluster": "east"}]})),
        );
        s.grants.insert("a".into(), grant("a", ("User", "jane"), "ci", ("Project", "shop")));
        s.grants.insert("b".into(), grant("b", ("Team", "web"), "viewer", ("Cluster", "east")));
        for claim in [
            claim("shop-x", "shop", ClaimOrigin::Created, false),
            claim("shop-old", "shop", ClaimOrigin::Created, true),
            claim("shop-web", "shop", ClaimOrigin::Declared, false),
        ] {
            let namespace: Arc<str> = claim.object.namespace.as_str().into();
            s.claims.insert(format!("east/{namespace}").into(), claim.clone());
            s.claims_of_cluster.entry("east".into()).or_default().insert(namespace, claim);
        }
        let gone = Reservation { project_uid: "x".into(), clusters: vec!["east".into()] };
        s.reservations.insert("gone".into(), Arc::new(Stored { revision: Revision(1), object: gone }));
        s
    }

    #[test]
    fn what_is_referred_to_names_its_references() {
        let s = world();
        assert_eq!(references_to(Kind::User, "jane", &s), [r#"grant "a""#, r#"team "web""#]);
        assert_eq!(references_to(Kind::Team, "web", &s), [r#"grant "b""#]);
        assert_eq!(
            references_to(Kind::AccessRole, "ci", &s),
            [r#"grant "a""#, r#"project "shop""#, r#"role "ci-plus""#]
        );
        assert_eq!(
            references_to(Kind::Project, "shop", &s),
            [r#"grant "a""#, r#"namespace "shop-x" on cluster "east""#]
        );
        assert_eq!(
            references_to(Kind::Cluster, "east", &s),
            [
                r#"clean-up after deleted project "gone""#,
                r#"grant "b""#,
                r#"namespace "shop-old" of project "shop""#,
                r#"namespace "shop-web" of project "shop""#,
                r#"namespace "shop-x" of project "shop""#,
                r#"project "shop""#,
            ]
        );
    }

    #[test]
    fn what_nothing_refers_to_may_go() {
        let s = world();
        // `john` is no subject; the names of others' kinds do not count.
        for (kind, name) in [
            (Kind::User, "john"),
            (Kind::User, "web"),
            (Kind::Team, "jane"),
            (Kind::AccessRole, "ci-plus"),
            (Kind::AccessRole, "viewer-x"),
            (Kind::Project, "east"),
            (Kind::Cluster, "shop"),
            (Kind::Grant, "a"),
        ] {
            assert_eq!(references_to(kind, name, &s), [""; 0], "{kind:?} {name}");
        }
    }
}
