//! The kinds of the API, as the command line names them.

use serde_json::Value;

use super::exit::{Failure, Outcome};
use crate::resources;

/// What the command line knows of a kind.
#[derive(Debug)]
pub struct KindInfo {
    /// In manifests.
    pub kind: &'static str,
    /// In URLs.
    pub plural: &'static str,
    /// On the command line.
    pub singular: &'static str,
    /// Place in the order of dependencies.
    pub order: u8,
    /// Whether it can be applied.
    pub writable: bool,
    /// Writes defaults out, so that two specs can be compared.
    normal: fn(&Value) -> Option<Value>,
}

fn normal<T: serde::de::DeserializeOwned + serde::Serialize>(spec: &Value) -> Option<Value> {
    serde_json::to_value(serde_json::from_value::<T>(spec.clone()).ok()?).ok()
}

/// All kinds, in the order of their dependencies.
pub static KINDS: [KindInfo; 7] = [
    KindInfo {
        kind: "Cluster",
        plural: "clusters",
        singular: "cluster",
        order: 0,
        writable: true,
        normal: normal::<resources::ClusterSpec>,
    },
    KindInfo {
        kind: "User",
        plural: "users",
        singular: "user",
        order: 1,
        writable: true,
        normal: normal::<resources::UserSpec>,
    },
    KindInfo {
        kind: "Team",
        plural: "teams",
        singular: "team",
        order: 2,
        writable: true,
        normal: normal::<resources::TeamSpec>,
    },
    KindInfo {
        kind: "AccessRole",
        plural: "accessroles",
        singular: "accessrole",
        order: 3,
        writable: true,
        normal: normal::<resources::AccessRoleSpec>,
    },
    KindInfo {
        kind: "Project",
        plural: "projects",
        singular: "project",
        order: 4,
        writable: true,
        normal: normal::<resources::ProjectSpec>,
    },
    KindInfo {
        kind: "Grant",
        plural: "grants",
        singular: "grant",
        order: 5,
        writable: true,
        normal: normal::<resources::GrantSpec>,
    },
    KindInfo {
        kind: "Token",
        plural: "tokens",
        singular: "token",
        order: 6,
        writable: false,
        normal: normal::<resources::TokenSpec>,
    },
];

impl KindInfo {
    /// Finds a kind by what a person calls it: `project`, `projects`, `Project`, `projects.bailiwick.dev`.
    pub fn find(text: &str) -> Outcome<&'static Self> {
        let lower = text.to_lowercase();
        let short = lower.strip_suffix(".bailiwick.dev").unwrap_or(&lower);
        KINDS.iter().find(|k| k.singular == short || k.plural == short).ok_or_else(|| {
            let known = KINDS.iter().map(|k| k.plural).collect::<Vec<_>>().join(", ");
            Failure::Usage(format!("kind {text:?} is unknown; known are {known}"))
        })
    }

    /// `project.bailiwick.dev/shop`, as kubectl writes it.
    pub fn qualified(&self, name: &str) -> String {
        format!("{}.{}/{name}", self.singular, resources::GROUP)
    }

    /// Whether two specs say the same once defaults are written out. Specs that cannot be understood differ.
    pub fn same_spec(&self, one: &Value, other: &Value) -> bool {
        let empty = Value::Object(serde_json::Map::new());
        let known = |spec: &Value| (self.normal)(if spec.is_null() { &empty } else { spec });
        known(one).is_some_and(|one| known(other).is_some_and(|other| one == other))
    }
}

/// Takes `KIND NAME…`, `KIND/NAME` and `KIND` apart.
pub fn target(kind: &str, names: Vec<String>) -> Outcome<(&'static KindInfo, Vec<String>)> {
    match kind.split_once('/') {
        None => Ok((KindInfo::find(kind)?, names)),
        Some((kind, name)) if names.is_empty() && !name.is_empty() => {
            Ok((KindInfo::find(kind)?, vec![name.to_owned()]))
        }
        Some(_) => Err(Failure::Usage("write KIND NAME… or one KIND/NAME".to_owned())),
    }
}

/// Kinds that can be applied, for messages.
pub fn writable_names() -> String {
    KINDS.iter().filter(|k| k.writable).map(|k| k.kind).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn kinds_are_found_by_every_usual_name() {
        for name in ["project", "projects", "Project", "PROJECTS", "projects.bailiwick.dev"] {
            assert_eq!(KindInfo::find(name).unwrap().kind, "Project");
        }
        for name in ["", "pod", "projects.example.com", "projekt"] {
            assert_eq!(KindInfo::find(name).unwrap_err().code(), 2, "{name:?}");
        }
    }

    #[test]
    fn targets() {
        assert_eq!(target("project/shop", vec![]).unwrap().1, ["shop"]);
        assert_eq!(target("project", vec!["a".into(), "b".into()]).unwrap().1, ["a", "b"]);
        assert!(target("project/shop", vec!["x".into()]).is_err());
        assert!(target("project/", vec![]).is_err());
    }

    #[test]
    fn specs_are_compared_with_their_defaults() {
        let user = KindInfo::find("user").unwrap();
        assert!(user.same_spec(&json!({}), &json!({"type": "Human", "disabled": false})));
        assert!(user.same_spec(&Value::Null, &json!({})));
        assert!(!user.same_spec(&json!({}), &json!({"disabled": true})));
        // What the types do not know goes to the server, which refuses it by name.
        assert!(!user.same_spec(&json!({"unknown": 1}), &json!({"unknown": 1})));
    }

    #[test]
    fn the_table_agrees_with_the_types() {
        use kube::Resource as _;
        let types = [
            (resources::Cluster::kind(&()), resources::Cluster::plural(&())),
            (resources::User::kind(&()), resources::User::plural(&())),
            (resources::Team::kind(&()), resources::Team::plural(&())),
            (resources::AccessRole::kind(&()), resources::AccessRole::plural(&())),
            (resources::Project::kind(&()), resources::Project::plural(&())),
            (resources::Grant::kind(&()), resources::Grant::plural(&())),
            (resources::Token::kind(&()), resources::Token::plural(&())),
        ];
        for (at, (kind, plural)) in types.into_iter().enumerate() {
            assert_eq!((KINDS[at].kind, KINDS[at].plural), (kind.as_ref(), plural.as_ref()));
            assert_eq!(usize::from(KINDS[at].order), at);
        }
    }
}
