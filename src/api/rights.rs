//! What a caller may do with an object: the roles held for it, and what `policies/` gives them.

use std::sync::Arc;

use serde_json::{Value, json};

use super::view::View;
use crate::access::{Access, ObjectRef, field_classes, roles_held};
use crate::identity::tokens::Caller;
use crate::index::Stored;
use crate::resources::{Cluster, Project};
use crate::status::{Cause, Status};
use crate::store::{Kind, Revision};

/// Field class of reading and of acts that touch no field.
const WHOLE: &str = "object";

/// A caller, in one version of everything.
#[derive(Clone, Copy)]
pub(super) struct Rights<'a> {
    pub(super) view: View<'a>,
    pub(super) caller: &'a Caller,
    pub(super) access: &'a Access,
}

impl Rights<'_> {
    /// Whether the caller may `verb` every one of the field classes of an object.
    pub(super) fn may(&self, kind: Kind, object: &Value, verb: &str, classes: &[&str]) -> bool {
        if !self.within_scopes(kind, object, verb) {
            return false;
        }
        let held = self.held(ObjectRef::of(kind, object));
        classes.iter().all(|class| self.access.allows(&held, kind.as_str(), verb, class))
    }

    fn held(&self, object: ObjectRef<'_>) -> Vec<&'static str> {
        roles_held(self.view.snapshot, &self.caller.user.object, object, self.view.now)
    }

    /// Whether the caller may see an object.
    pub(super) fn sees(&self, kind: Kind, object: &Value) -> bool {
        self.may(kind, object, "get", &[WHOLE])
    }

    /// Whether the caller may see every object of a kind: already the roles that are held for none in particular do.
    pub(super) fn sees_all(&self, kind: Kind) -> bool {
        let limited = !self.within_scopes(kind, &Value::Null, "get");
        !limited && self.access.allows(&self.held(ObjectRef::Platform), kind.as_str(), "get", WHOLE)
    }

    /// Whether the caller sees every object of a kind by grants that have not changed since a revision.
    pub(super) fn saw_all_since(&self, kind: Kind, revision: Revision) -> bool {
        let View { snapshot, now } = self.view;
        let user = &self.caller.user.object;
        self.sees_all(kind) && snapshot.holdings(user, now).all(|grant| grant.revision <= revision)
    }

    /// Whether the caller may create, replace or patch, judged by what changes.
    pub(super) fn check_change(&self, kind: Kind, verb: &str, old: Option<&Value>, new: &Value) -> Result<(), Status> {
        self.check_alive()?;
        let classes = field_classes(kind, old, Some(new));
        // The roles held come from what is stored, where something is: a change must not give itself its right.
        let object = old.unwrap_or(new);
        if !self.may(kind, object, verb, &classes) {
            return Err(self.refusal(kind, verb, object, &classes));
        }
        if kind == Kind::Grant && old.is_none() { self.check_subject(new) } else { Ok(()) }
    }

    /// Whether the caller may name the team of a new grant: only one that may be seen anyway. The grant shows its team,
    /// and whether there is one, to everybody in the project. A team that does not exist gets the same answer.
    fn check_subject(&self, grant: &Value) -> Result<(), Status> {
        let subject = &grant["spec"]["subject"];
        let name = subject["name"].as_str().unwrap_or_default();
        let held = || self.held(ObjectRef::Team(name));
        if subject["kind"] != "Team" || self.access.allows(&held(), Kind::Team.as_str(), "get", WHOLE) {
            return Ok(());
        }
        let message = format!("there is no team {name:?} that you may see; an administrator can grant to any");
        let field = "spec.subject.name".to_owned();
        let cause = Cause { reason: "FieldValueInvalid".to_owned(), message, field };
        Err(Status::invalid("Grant", grant["metadata"]["name"].as_str().unwrap_or_default(), vec![cause]))
    }

    /// Whether the caller may delete an object.
    pub(super) fn check_delete(&self, kind: Kind, object: &Value) -> Result<(), Status> {
        self.check_alive()?;
        let classes = field_classes(kind, Some(object), None);
        if self.may(kind, object, "delete", &classes) {
            Ok(())
        } else {
            Err(self.refusal(kind, "delete", object, &classes))
        }
    }

    /// Whether the credential is still good in this version: a grant says nothing of whether its holder is suspended.
    fn check_alive(&self) -> Result<(), Status> {
        let View { snapshot, now } = self.view;
        snapshot.still_live(&self.caller.token, now).map(|_| ()).ok_or_else(Status::unauthorized)
    }

    /// Whether the caller may do an act on an object.
    pub(super) fn check_act(&self, kind: Kind, act: &str, object: &Value) -> Result<(), Status> {
        if self.may(kind, object, act, &[WHOLE]) { Ok(()) } else { Err(self.refusal(kind, act, object, &[])) }
    }

    /// Whether the caller may create, delete or move namespaces of a project.
    pub(super) fn check_namespace(&self, verb: &str, project: &Value) -> Result<(), Status> {
        let held = self.held(ObjectRef::of(Kind::Project, project));
        let allowed =
            self.within_scopes(Kind::Project, project, verb) && self.access.allows(&held, "Namespace", verb, WHOLE);
        if allowed { Ok(()) } else { Err(self.refusal(Kind::Project, &format!("{verb} namespaces of"), project, &[])) }
    }

    /// Whether the caller may read the audit log.
    pub(super) fn check_audit(&self) -> Result<(), Status> {
        let allowed = self.within_scopes(Kind::Platform, &Value::Null, "get")
            && self.access.allows(&self.held(ObjectRef::Platform), "Audit", "get", WHOLE);
        if allowed { Ok(()) } else { Err(Status::forbidden("only administrators and auditors read the audit log")) }
    }

    /// Whether the caller may ask why an account may do something or may not, wherever that is.
    pub(super) fn explains_account(&self, user: &str) -> bool {
        self.within_scopes(Kind::User, &Value::Null, "get") && self.explains(ObjectRef::User(user))
    }

    /// Whether the caller may ask about everything.
    pub(super) fn explains_everything(&self) -> bool {
        self.within_scopes(Kind::Platform, &Value::Null, "get") && self.explains(ObjectRef::Platform)
    }

    /// Whether the caller may ask what others may do in the namespaces that a project has on a cluster.
    pub(super) fn explains_project(&self, project: &Project, cluster: &str) -> bool {
        let limits = &self.caller.token.record.scopes;
        let uid = |stored: &Arc<Stored<Cluster>>| stored.object.metadata.uid.clone();
        let cluster = self.view.snapshot.clusters.get(cluster).and_then(uid);
        let name = project.metadata.name.as_deref().unwrap_or_default();
        let object = json!({"metadata": {"name": name, "uid": project.metadata.uid}});
        limits.cluster(cluster.as_deref())
            && self.within_scopes(Kind::Project, &object, "get")
            && self.explains(ObjectRef::Project(name))
    }

    fn explains(&self, object: ObjectRef<'_>) -> bool {
        self.access.allows(&self.held(object), "Explanation", "get", WHOLE)
    }

    /// What a token is limited to takes away from what its owner may do, never adds. Objects are known by their UIDs.
    fn within_scopes(&self, kind: Kind, object: &Value, verb: &str) -> bool {
        let scopes = &self.caller.token.record.scopes;
        if scopes.read_only && !matches!(verb, "get" | "list" | "watch") {
            return false;
        }
        if scopes.clusters.is_empty() && scopes.projects.is_empty() {
            return true;
        }
        // A token that is limited in the one only has nothing of the other here.
        let cluster = |uid: Option<&str>| !scopes.clusters.is_empty() && scopes.cluster(uid);
        let project = |uid: Option<&str>| !scopes.projects.is_empty() && scopes.project(uid);
        let snapshot = self.view.snapshot;
        let target = &object["spec"]["target"];
        let name = target["name"].as_str().unwrap_or_default();
        match (kind, target["kind"].as_str()) {
            (Kind::Cluster, _) => cluster(object["metadata"]["uid"].as_str()),
            (Kind::Project, _) => project(object["metadata"]["uid"].as_str()),
            (Kind::Grant, Some("Project")) => {
                project(snapshot.projects.get(name).and_then(|there| there.object.metadata.uid.as_deref()))
            }
            (Kind::Grant, Some("Cluster")) => {
                cluster(snapshot.clusters.get(name).and_then(|there| there.object.metadata.uid.as_deref()))
            }
            _ => false,
        }
    }

    fn refusal(&self, kind: Kind, verb: &str, object: &Value, classes: &[&str]) -> Status {
        let plural = super::kinds::by_kind(kind).map_or("objects", |served| served.plural);
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let user = self.caller.user.object.metadata.name.as_deref().unwrap_or_default();
        let parts = if classes.is_empty() { String::new() } else { format!(" ({})", classes.join(", ")) };
        Status::forbidden(format!(
            "{plural}.{} {name:?} is forbidden: User {user:?} cannot {verb} it{parts}",
            crate::resources::GROUP
        ))
        .about(plural, name)
    }
}
