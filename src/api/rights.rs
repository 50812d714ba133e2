//! What a caller may do with an object: the roles held for it, and what `policies/` gives them.

use serde_json::Value;

use super::view::View;
use crate::domain::roles;
use crate::identity::tokens::Caller;
use crate::resources::User;
use crate::resources::grant::TargetKind;
use crate::status::Status;
use crate::store::{Kind, Revision};

/// Field class of reading and of acts that touch no field.
const WHOLE: &str = "object";

/// A caller, in one version of everything.
#[derive(Clone, Copy)]
pub(super) struct Rights<'a> {
    pub(super) view: View<'a>,
    pub(super) caller: &'a Caller,
}

impl Rights<'_> {
    /// Whether the caller may `verb` every one of the field classes of an object.
    pub(super) fn may(&self, kind: Kind, object: &Value, verb: &str, classes: &[&str]) -> bool {
        if !within_scopes(self.caller, kind, object, verb) {
            return false;
        }
        let held = roles_held(self.view, &self.caller.user.object, kind, object);
        classes.iter().all(|class| allows(&held, kind, verb, class))
    }

    /// Whether the caller may see an object.
    pub(super) fn sees(&self, kind: Kind, object: &Value) -> bool {
        self.may(kind, object, "get", &[WHOLE])
    }

    /// Whether the caller may see every object of a kind: already the roles that are held for none in particular do.
    pub(super) fn sees_all(&self, kind: Kind) -> bool {
        self.sees(kind, &serde_json::json!({"metadata": {"name": ""}, "spec": {}}))
    }

    /// Whether the caller sees every object of a kind by grants that have not changed since a revision.
    pub(super) fn saw_all_since(&self, kind: Kind, revision: Revision) -> bool {
        let View { snapshot, now } = self.view;
        let user = &self.caller.user.object;
        self.sees_all(kind) && snapshot.holdings(user, now).all(|grant| grant.revision <= revision)
    }

    /// Whether the caller may create, replace or patch, judged by what changes.
    pub(super) fn check_change(&self, kind: Kind, verb: &str, old: Option<&Value>, new: &Value) -> Result<(), Status> {
        let classes = field_classes(kind, old, Some(new));
        // The roles held come from what is stored, where something is: a change must not give itself its right.
        let object = old.unwrap_or(new);
        if self.may(kind, object, verb, &classes) { Ok(()) } else { Err(self.refusal(kind, verb, object, &classes)) }
    }

    /// Whether the caller may delete an object.
    pub(super) fn check_delete(&self, kind: Kind, object: &Value) -> Result<(), Status> {
        let classes = field_classes(kind, Some(object), None);
        if self.may(kind, object, "delete", &classes) {
            Ok(())
        } else {
            Err(self.refusal(kind, "delete", object, &classes))
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

/// What a token is limited to takes away from what its owner may do, never adds.
fn within_scopes(caller: &Caller, kind: Kind, object: &Value, verb: &str) -> bool {
    let scopes = &caller.token.record.scopes;
    if scopes.read_only && !matches!(verb, "get" | "list" | "watch") {
        return false;
    }
    if scopes.clusters.is_empty() && scopes.projects.is_empty() {
        return true;
    }
    let among = |names: &[String], name: &Value| names.iter().any(|n| Some(n.as_str()) == name.as_str());
    let target = &object["spec"]["target"];
    match (kind, target["kind"].as_str()) {
        (Kind::Cluster, _) => among(&scopes.clusters, &object["metadata"]["name"]),
        (Kind::Project, _) => among(&scopes.projects, &object["metadata"]["name"]),
        (Kind::Grant, Some("Project")) => among(&scopes.projects, &target["name"]),
        (Kind::Grant, Some("Cluster")) => among(&scopes.clusters, &target["name"]),
        _ => false,
    }
}

fn roles_held(view: View<'_>, user: &User, kind: Kind, object: &Value) -> Vec<&'static str> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let mut held = vec!["authenticated"];
    for grant in view.snapshot.holdings(user, view.now) {
        let spec = &grant.object.spec;
        match (spec.target.kind, spec.role.as_str()) {
            (TargetKind::Platform, roles::PLATFORM_ADMIN) => held.push("platform:admin"),
            (TargetKind::Platform, roles::PLATFORM_AUDITOR) => held.push("platform:auditor"),
            (TargetKind::Project, "owner") if kind == Kind::Project && spec.target.name == name => {
                held.push("project:owner");
            }
            (TargetKind::Project, _) if kind == Kind::Project && spec.target.name == name => {
                held.push("project:member")
            }
            _ => {}
        }
    }
    if kind == Kind::User && user.metadata.name.as_deref() == Some(name) {
        held.push("self");
    }
    held
}

fn allows(held: &[&str], _kind: Kind, verb: &str, _class: &str) -> bool {
    let reads = matches!(verb, "get" | "list" | "watch");
    held.contains(&"platform:admin") || (reads && held.iter().any(|role| *role != "authenticated"))
}

fn field_classes(_kind: Kind, _old: Option<&Value>, _new: Option<&Value>) -> Vec<&'static str> {
    vec![WHOLE]
}
