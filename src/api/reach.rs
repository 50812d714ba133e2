//! Where an account gets to: its projects, and the clusters that these, and grants on clusters, open.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::view::View;
use crate::domain::roles;
use crate::resources::grant::TargetKind;
use crate::resources::{Project, User};

/// A project that an account has a role in.
pub(super) struct ProjectReach {
    pub(super) name: String,
    pub(super) uid: String,
    /// Sorted.
    pub(super) roles: BTreeSet<String>,
    /// In the order of the project's spec.
    pub(super) clusters: Vec<ClusterReach>,
}

/// A project's place on one cluster.
pub(super) struct ClusterReach {
    pub(super) name: String,
    /// Declared ones first, in their order, then those that members made, by name.
    pub(super) namespaces: Vec<String>,
    pub(super) prefix: Option<String>,
}

/// All of it.
pub(super) struct Reach {
    /// By name.
    pub(super) projects: Vec<ProjectReach>,
    /// By name.
    pub(super) clusters: BTreeSet<String>,
    /// Fixed platform roles.
    pub(super) platform: BTreeSet<String>,
    /// By name.
    pub(super) teams: BTreeSet<String>,
}

impl Reach {
    /// Of an account, at the moment of the view.
    pub(super) fn of(view: View<'_>, user: &User) -> Self {
        let snapshot = view.snapshot;
        let mut held: BTreeMap<&str, Held<'_>> = BTreeMap::new();
        let mut clusters = BTreeSet::new();
        let mut platform = BTreeSet::new();
        for grant in snapshot.holdings(user, view.now) {
            let spec = &grant.object.spec;
            match spec.target.kind {
                TargetKind::Project => {
                    let held = held.entry(&spec.target.name).or_default();
                    held.roles.insert(spec.role.clone());
                    match spec.namespaces.as_slice() {
                        [] => held.whole = true,
                        some => held.namespaces.extend(some.iter().map(String::as_str)),
                    }
                }
                TargetKind::Cluster => drop(clusters.insert(spec.target.name.clone())),
                TargetKind::Platform => {
                    if roles::PLATFORM.contains(&spec.role.as_str()) {
                        platform.insert(spec.role.clone());
                    }
                }
            }
        }
        let projects: Vec<ProjectReach> = held
            .into_iter()
            .filter_map(|(name, held)| Some(project(view, &snapshot.projects.get(name)?.object, held)))
            .collect();
        clusters.extend(projects.iter().flat_map(|p| p.clusters.iter().map(|c| c.name.clone())));
        let teams = snapshot.teams_of(user).map(|team| team.to_string()).collect();
        Self { projects, clusters, platform, teams }
    }

    /// The answer of `GET self`.
    pub(super) fn to_json(&self, user: &User) -> Value {
        let projects = self.projects.iter().map(|project| {
            let clusters = project.clusters.iter().map(
                |cluster| json!({"name": cluster.name, "namespaces": cluster.namespaces, "prefix": cluster.prefix}),
            );
            json!({
                "name": project.name,
                "uid": project.uid,
                "roles": project.roles,
                "clusters": clusters.collect::<Vec<_>>(),
            })
        });
        json!({
            "user": user.metadata.name,
            "uid": user.metadata.uid,
            "teams": self.teams,
            "platformRoles": self.platform,
            "projects": projects.collect::<Vec<_>>(),
            "clusters": self.clusters,
        })
    }
}

#[derive(Default)]
struct Held<'a> {
    roles: BTreeSet<String>,
    /// Whether a grant is on all namespaces.
    whole: bool,
    namespaces: BTreeSet<&'a str>,
}

fn project(view: View<'_>, project: &Project, held: Held<'_>) -> ProjectReach {
    let Held { roles, whole, namespaces } = held;
    let name = project.metadata.name.clone().unwrap_or_default();
    let uid = project.metadata.uid.clone().unwrap_or_default();
    let places =
        project.spec.clusters.iter().filter(|place| view.snapshot.clusters.contains_key(place.cluster.as_str()));
    let clusters = places.map(|place| {
        let mut all = place.namespaces.clone();
        for claim in view.snapshot.claims_on(&place.cluster).map(|claim| &claim.object) {
            if claim.project_uid == uid && !claim.releasing && !all.contains(&claim.namespace) {
                all.push(claim.namespace.clone());
            }
        }
        all.retain(|namespace| whole || namespaces.contains(namespace.as_str()));
        ClusterReach { name: place.cluster.clone(), namespaces: all, prefix: place.prefix.clone() }
    });
    ProjectReach { name, uid: uid.clone(), roles, clusters: clusters.collect() }
}
