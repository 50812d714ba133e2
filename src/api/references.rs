//! Nothing new may refer to what is being deleted.

use serde_json::Value;

use super::view::View;
use crate::domain::roles;
use crate::store::Kind;

/// What an object refers to.
pub(super) fn referred(kind: Kind, object: &Value) -> Vec<(Kind, String)> {
    let spec = &object["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let texts = |value: &Value| value.as_array().into_iter().flatten().map(text).collect::<Vec<_>>();
    match kind {
        Kind::Grant => {
            let subject = if spec["subject"]["kind"] == "Team" { Kind::Team } else { Kind::User };
            let mut all = vec![(subject, text(&spec["subject"]["name"]))];
            match spec["target"]["kind"].as_str() {
                Some("Project") => all.push((Kind::Project, text(&spec["target"]["name"]))),
                Some("Cluster") => all.push((Kind::Cluster, text(&spec["target"]["name"]))),
                _ => return all,
            }
            let role = text(&spec["role"]);
            if roles::built_in(&role).is_none() {
                all.push((Kind::AccessRole, role));
            }
            all
        }
        Kind::Team => texts(&spec["users"]).into_iter().map(|user| (Kind::User, user)).collect(),
        Kind::AccessRole => texts(&spec["inherits"]).into_iter().map(|role| (Kind::AccessRole, role)).collect(),
        Kind::Project => {
            let clusters = spec["clusters"].as_array().into_iter().flatten();
            let clusters = clusters.map(|c| (Kind::Cluster, text(&c["cluster"])));
            clusters.chain(texts(&spec["roles"]).into_iter().map(|role| (Kind::AccessRole, role))).collect()
        }
        _ => vec![],
    }
}

/// The first of the objects referred to that is being deleted.
pub(super) fn dying<'a>(view: View<'_>, referred: &'a [(Kind, String)]) -> Option<&'a (Kind, String)> {
    let snapshot = view.snapshot;
    referred.iter().find(|(kind, name)| {
        let name = name.as_str();
        let metadata = match kind {
            Kind::Cluster => snapshot.clusters.get(name).map(|s| &s.object.metadata),
            Kind::User => snapshot.users.get(name).map(|s| &s.object.metadata),
            Kind::Team => snapshot.teams.get(name).map(|s| &s.object.metadata),
            Kind::AccessRole => snapshot.access_roles.get(name).map(|s| &s.object.metadata),
            Kind::Project => snapshot.projects.get(name).map(|s| &s.object.metadata),
            _ => None,
        };
        metadata.is_some_and(|m| m.deletion_timestamp.is_some())
    })
}
