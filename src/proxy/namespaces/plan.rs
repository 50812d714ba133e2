//! From what was sent to what is done: chosen by the rights in one snapshot, and refused with what would be possible.

mod change;
mod choice;

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::{Map, Value};

use super::metadata::{Part, about, invalid, shown, texts};
use super::{Act, Asked, GivenMetadata, NewNamespace, right};
use crate::clusters::names::PROJECT;
use crate::domain::names::check_label;
use crate::proxy::decide::{Context, Refusal};
use crate::status::Status;

/// What is to be done.
#[derive(Debug, Clone)]
pub enum Plan {
    /// Make a namespace.
    Create(Creation),
    /// Delete one.
    Delete(Deletion),
    /// Forward this body in the place of the client's.
    Forward(Bytes),
}

/// A namespace to be made.
#[derive(Debug, Clone)]
pub struct Creation {
    /// It.
    pub wanted: NewNamespace,
    /// Whether nothing is to be written.
    pub dry_run: bool,
    /// Grant that gives the right.
    pub grant: String,
    /// Role that the grant gives.
    pub role: &'static str,
}

/// A namespace to be deleted.
#[derive(Debug, Clone)]
pub struct Deletion {
    /// Project that has it.
    pub project: String,
    /// Namespace.
    pub name: String,
    /// UID of the namespace in the cluster.
    pub uid: String,
    /// Whether nothing is to be written.
    pub dry_run: bool,
}

/// Plans an act that the decision permitted.
pub fn plan(asked: &Asked, ctx: &Context<'_>) -> Result<Plan, Refusal> {
    match asked.act {
        Act::Create => create(asked, ctx).map(Plan::Create),
        Act::Delete => delete(asked, ctx).map(Plan::Delete),
        Act::Change => change(asked, ctx).map(Plan::Forward).map_err(refused),
    }
}

fn refused(status: Status) -> Refusal {
    let reason = match status.code {
        403 => "namespace-refused",
        409 => "namespace-exists",
        _ => "malformed-namespace",
    };
    Refusal { reason, status }
}

fn create(asked: &Asked, ctx: &Context<'_>) -> Result<Creation, Refusal> {
    let (name, mut labels, annotations) = new_namespace(&asked.object).map_err(refused)?;
    let label = labels.remove(PROJECT);
    if right::exists(ctx, &name) {
        let message = format!("namespaces {name:?} already exists");
        let status = Status::new(http::StatusCode::CONFLICT, "AlreadyExists", message);
        return Err(refused(about(status, &name)));
    }
    let chosen = choice::choose(ctx, &name, label.as_deref()).map_err(refused)?;
    let metadata = GivenMetadata { labels, annotations, manager: asked.options.manager.clone() };
    Ok(Creation {
        wanted: NewNamespace {
            project: chosen.project.to_owned(),
            cluster: ctx.place.cluster.to_owned(),
            name,
            metadata,
            by: ctx.asker.user.metadata.name.clone().unwrap_or_default(),
        },
        dry_run: asked.options.dry_run,
        grant: chosen.grant.name.to_string(),
        role: chosen.role,
    })
}

fn change(asked: &Asked, ctx: &Context<'_>) -> Result<Bytes, Status> {
    let claim = ctx.snapshot.claim(ctx.place.cluster, ctx.place.namespace);
    let project = claim.map(|claim| claim.object.project.as_str()).unwrap_or_default();
    change::checked(asked, ctx.place.namespace, project)
}

type Texts = BTreeMap<String, String>;

/// Name, labels and annotations of a namespace as it may be sent.
fn new_namespace(object: &Value) -> Result<(String, Texts, Texts), Status> {
    let empty = Map::new();
    let fields = object.as_object().ok_or_else(|| Status::bad_request("a Namespace is an object"))?;
    let metadata = match fields.get("metadata") {
        None => &empty,
        Some(metadata) => metadata.as_object().ok_or_else(|| Status::bad_request("metadata is an object"))?,
    };
    let text = |field: &str| metadata.get(field).and_then(Value::as_str).unwrap_or_default();
    let name = text("name");
    if name.is_empty() {
        let message = match text("generateName") {
            "" => "a name is needed",
            _ => "generateName is not offered: a namespace's name is part of the project's quota and rights; name it",
        };
        return Err(invalid("", "metadata.name", message));
    }
    if let Err(why) = check_label(name) {
        return Err(invalid(&shown(name), "metadata.name", why.to_string()));
    }
    for (field, wanted) in [("apiVersion", "v1"), ("kind", "Namespace")] {
        if fields.get(field).is_some_and(|given| given != wanted) {
            return Err(Status::bad_request(format!("{field} must be {wanted}")));
        }
    }
    for (field, value) in fields {
        let known = match field.as_str() {
            "apiVersion" | "kind" | "metadata" => true,
            "spec" => is_empty(value) || *value == serde_json::json!({"finalizers": ["kubernetes"]}),
            "status" => is_empty(value) || *value == serde_json::json!({"phase": "Active"}),
            _ => is_empty(value),
        };
        if !known {
            return Err(invalid(name, &shown(field), "is not for members to give; leave it out"));
        }
    }
    for (field, value) in metadata {
        let known = matches!(field.as_str(), "name" | "labels" | "annotations") || is_empty(value);
        if !known {
            let field = format!("metadata.{}", shown(field));
            return Err(invalid(name, &field, "is not for members to give; leave it out"));
        }
    }
    let labels = texts(name, Part::Labels, metadata.get("labels"))?;
    let annotations = texts(name, Part::Annotations, metadata.get("annotations"))?;
    Ok((name.to_owned(), labels, annotations))
}

/// Null, and what clients write where there is nothing.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

fn delete(asked: &Asked, ctx: &Context<'_>) -> Result<Deletion, Refusal> {
    let name = ctx.place.namespace;
    let dry_run = deletion_options(&asked.object, name).map_err(refused)?;
    // The permit says so already; what is done here with our own rights does not rest on it alone.
    let claim = ctx.snapshot.claim(ctx.place.cluster, name).map(|claim| &claim.object);
    let claim =
        claim.filter(|claim| right::exists(ctx, name) && right::candidate(ctx, &claim.project, "delete").is_some());
    let Some(claim) = claim else {
        return Err(refused(about(Status::forbidden(format!("namespaces {name:?} is forbidden")), name)));
    };
    let uid = claim.namespace_uid.clone().unwrap_or_default();
    let precondition = |field: &str| asked.object.pointer(&format!("/preconditions/{field}")).and_then(Value::as_str);
    if precondition("uid").is_some_and(|wanted| wanted != uid) {
        return Err(refused(about(Status::conflict(format!("namespace {name:?} has another UID: {uid}")), name)));
    }
    if precondition("resourceVersion").is_some() {
        let message = "a namespace is deleted here by its UID, not by its resourceVersion; leave the precondition out";
        return Err(refused(about(Status::bad_request(message), name)));
    }
    let (project, cluster) = (&claim.project, ctx.place.cluster);
    if claim.adopt {
        let message = format!(
            "namespaces {name:?} is forbidden: it was adopted by project {project:?} and is never deleted by it; give it back \
             with: bailiwick project release {project} {cluster}/{name}"
        );
        return Err(refused(about(Status::forbidden(message), name)));
    }
    let owner = ctx.snapshot.projects.get(project.as_str());
    if owner.and_then(|owner| owner.object.spec.on(cluster)).is_some_and(|place| place.declares(name)) {
        let message = format!(
            "namespaces {name:?} is forbidden: it is declared by project {project:?}; remove it from spec.clusters of the \
             project to delete it"
        );
        return Err(refused(about(Status::forbidden(message), name)));
    }
    Ok(Deletion { project: project.clone(), name: name.to_owned(), uid, dry_run: dry_run || asked.options.dry_run })
}

/// Whether `DeleteOptions` ask for a dry run. What is unknown is refused.
fn deletion_options(options: &Value, name: &str) -> Result<bool, Status> {
    let fields = options.as_object().ok_or_else(|| Status::bad_request("DeleteOptions are an object"))?;
    let mut dry_run = false;
    for (field, value) in fields {
        match field.as_str() {
            "kind" if value == "DeleteOptions" => {}
            "apiVersion" | "gracePeriodSeconds" => {}
            "propagationPolicy" if value == "Background" || value == "Foreground" || value.is_null() => {}
            "propagationPolicy" => {
                return Err(invalid(name, "propagationPolicy", "all that is in a namespace goes with it"));
            }
            "orphanDependents" if value.is_null() || value == false => {}
            "preconditions" => {
                let known = |field: &str| matches!(field, "uid" | "resourceVersion");
                let text = |value: &Value| value.is_string() || value.is_null();
                let read = value.is_null()
                    || value.as_object().is_some_and(|map| map.iter().all(|(k, v)| known(k) && text(v)));
                if !read {
                    return Err(invalid(name, "preconditions", "can be uid and resourceVersion"));
                }
            }
            "dryRun" if is_empty(value) => {}
            "dryRun" if *value == serde_json::json!(["All"]) => dry_run = true,
            "dryRun" => return Err(invalid(name, "dryRun", "can only be All")),
            other => return Err(invalid(name, &shown(other), "is not known for the deletion of a namespace")),
        }
    }
    Ok(dry_run)
}

#[cfg(test)]
#[path = "../../../fuzz/targets/namespace.rs"]
mod fuzz;
