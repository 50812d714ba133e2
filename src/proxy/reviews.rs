//! Self reviews: `kubectl auth can-i` answers what we will really do.
//!
//! They are resolved by the namespace in their body. An access review that we would refuse is answered here; one that
//! we would permit goes to the cluster with the groups of that namespace, so that a yes means both walls. A rules
//! review is answered from the roles held, which is what the cluster's bindings are projected from.

pub(super) mod protobuf;

use serde::Deserialize;
use serde_json::{Value, json};

use super::changes;
use super::decide::{Context, Decide, SELF_REVIEWS};
use super::explain::{self, Permitted};
use super::namespaces::right;
use super::resolve::{self, Held, Place, Resolved};
use crate::domain::rbac::{Attributes, PolicyRule};
use crate::domain::request::{self, INTERACTIVE, RequestInfo, ResourceRequest, Verb};
use crate::domain::roles::TENANT_READABLE;
use crate::status::Status;

/// Longest body of a self review that is read.
pub const MAX_BODY: usize = 64 * 1024;

/// In which encoding a review came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// `application/json`.
    Json,
    /// `application/vnd.kubernetes.protobuf`, which kubectl prefers.
    Protobuf,
}

impl Encoding {
    /// The encoding that a content type names.
    pub fn of(content_type: &str) -> Option<Self> {
        match content_type.split(';').next().unwrap_or_default().trim() {
            "application/json" => Some(Self::Json),
            "application/vnd.kubernetes.protobuf" => Some(Self::Protobuf),
            _ => None,
        }
    }
}

/// Which self review a request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Review {
    /// `selfsubjectaccessreviews`: may I do this?
    Access,
    /// `selfsubjectrulesreviews`: what may I do?
    Rules,
}

/// Whether a request is a self review whose answer depends on a namespace.
pub fn of(request: &RequestInfo) -> Option<Review> {
    let RequestInfo::Resource(r) = request else { return None };
    let kind = (r.group.as_str(), r.resource.as_str());
    if r.verb != Verb::Create || !r.namespace.is_empty() {
        return None;
    }
    match SELF_REVIEWS.iter().position(|k| *k == kind)? {
        0 => Some(Review::Access),
        1 => Some(Review::Rules),
        _ => None,
    }
}

#[derive(Deserialize, Default)]
struct AccessReview {
    spec: AccessSpec,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct AccessSpec {
    resource_attributes: Option<ResourceAttributes>,
    non_resource_attributes: Option<NonResourceAttributes>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ResourceAttributes {
    namespace: String,
    verb: String,
    group: String,
    version: String,
    resource: String,
    subresource: String,
    name: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct NonResourceAttributes {
    path: String,
    verb: String,
}

/// The answer to an access review.
pub enum Answer {
    /// No, and why.
    No(String),
    /// Yes, by what is done here, where the cluster itself would say no; and why.
    Yes(String),
    /// Yes as far as we are concerned: the cluster is asked too, with these groups.
    AskCluster(Vec<String>),
}

/// Answers an access review as the proxy would decide on the request itself.
pub fn access(decider: &dyn Decide, ctx: &Context<'_>, body: &[u8], encoding: Encoding) -> Result<Answer, Status> {
    let review: AccessReview = match encoding {
        Encoding::Json => serde_json::from_slice(body).map_err(|why| why.to_string()),
        Encoding::Protobuf => protobuf::access(body),
    }
    .map_err(|why| Status::bad_request(format!("the SelfSubjectAccessReview cannot be read: {why}")))?;
    let mut of_a_namespace = false;
    let (request, namespace) = match (review.spec.resource_attributes, review.spec.non_resource_attributes) {
        (Some(mut asked), None) => {
            of_a_namespace = as_in_the_url(&mut asked);
            let Some(request) = resource_request(&asked) else {
                return Ok(Answer::No(format!("the verb {:?} is not one that this service forwards", asked.verb)));
            };
            (RequestInfo::Resource(request), asked.namespace)
        }
        (None, Some(asked)) => {
            let segments = request::segments(&asked.path).map_err(|why| Status::bad_request(why.to_string()))?;
            match request::parse(&asked.verb.to_ascii_uppercase(), &segments, None) {
                Ok(request @ RequestInfo::Path(_)) => (request, String::new()),
                _ => return Ok(Answer::No("the path is not one that this service forwards".to_owned())),
            }
        }
        _ => {
            return Err(Status::bad_request(
                "exactly one of resourceAttributes and nonResourceAttributes must be given",
            ));
        }
    };
    let place = Place { namespace: &namespace, ..ctx.place };
    let inner = Context { snapshot: ctx.snapshot, asker: ctx.asker, place, request: &request, now: ctx.now };
    Ok(match explain::ask(decider, &inner) {
        // The bindings that the cluster would look at are projected from the roles held.
        Ok(Permitted::Once(_)) if of_a_namespace => Answer::Yes(String::new()),
        Ok(Permitted::Once(decision)) => Answer::AskCluster(decision.groups),
        // Nobody may list all of a cluster, and the cluster would say so. Here one lists one's own.
        Ok(Permitted::Across(members)) => Answer::Yes(members.in_words()),
        Err(refusal) => Answer::No(refusal.status.message),
    })
}

/// A namespace is asked about with the namespace that the context happens to name, or with none. In the URL of the request
/// itself there is its own, or none where one is made. Whether it was so named; what the body says the cluster would then
/// read otherwise.
fn as_in_the_url(asked: &mut ResourceAttributes) -> bool {
    if !asked.group.is_empty() || asked.resource != "namespaces" {
        return false;
    }
    match (asked.verb.as_str(), asked.name.as_str()) {
        ("create", _) => asked.namespace.clear(),
        (_, "") => return false,
        _ => asked.namespace.clone_from(&asked.name),
    }
    true
}

fn resource_request(asked: &ResourceAttributes) -> Option<ResourceRequest> {
    ResourceRequest::asked(
        &asked.verb,
        &asked.group,
        &asked.version,
        &asked.resource,
        &asked.subresource,
        &asked.namespace,
        &asked.name,
    )
}

/// A `SelfSubjectAccessReview` with our answer.
pub fn answer(allowed: bool, reason: &str) -> Value {
    json!({
        "kind": "SelfSubjectAccessReview",
        "apiVersion": "authorization.k8s.io/v1",
        "metadata": {},
        "spec": {},
        "status": {"allowed": allowed, "reason": reason},
    })
}

#[derive(Deserialize, Default)]
struct RulesReview {
    spec: RulesSpec,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RulesSpec {
    namespace: String,
}

/// The `SelfSubjectRulesReview` with what the caller may do in the namespace of the body.
pub fn rules(ctx: &Context<'_>, body: &[u8], encoding: Encoding) -> Result<Value, Status> {
    let review: RulesReview = match encoding {
        Encoding::Json => serde_json::from_slice(body).map_err(|why| why.to_string()),
        Encoding::Protobuf => protobuf::rules(body),
    }
    .map_err(|why| Status::bad_request(format!("the SelfSubjectRulesReview cannot be read: {why}")))?;
    let namespace = review.spec.namespace;
    let place = Place { namespace: &namespace, ..ctx.place };
    let resolved = resolve::namespace(ctx.snapshot, ctx.asker.user, ctx.asker.scopes, place, ctx.now);
    let reach = |group: &str| ctx.snapshot.within_reach(ctx.place.cluster, group);
    let mut rules: Vec<Value> = vec![];
    let by_git = |r: &Resolved| changes::by_git(&r.project.object, ctx.place.cluster, ctx.asker.user).is_some();
    for (resolved, held) in resolved.iter().flat_map(|r| r.held.iter().map(move |held| (r, held))) {
        let read_only = ctx.asker.scopes.read_only || (held.temporary.is_none() && by_git(resolved));
        rules.extend(held.role.rules.rules().iter().filter_map(|rule| rendered(held, rule, read_only, &reach)));
    }
    let mut own = |verb: &str, names: Value| {
        let rule = json!({"apiGroups": [""], "resources": ["namespaces"], "verbs": [verb], "resourceNames": names});
        rules.push(rule);
    };
    if !right::creators(ctx).is_empty() {
        own("create", json!([]));
    }
    if resolved.is_some_and(|r| right::candidate(ctx, &r.claim.object.project, "delete").is_some()) {
        own("delete", json!([namespace]));
    }
    for (group, resource) in TENANT_READABLE {
        rules.push(json!({"apiGroups": [group], "resources": [resource], "verbs": ["get", "list", "watch"]}));
    }
    for (group, resource) in SELF_REVIEWS {
        rules.push(json!({"apiGroups": [group], "resources": [resource], "verbs": ["create"]}));
    }
    let paths = ["/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*", "/version"];
    Ok(json!({
        "kind": "SelfSubjectRulesReview",
        "apiVersion": "authorization.k8s.io/v1",
        "metadata": {},
        "spec": {},
        "status": {
            "resourceRules": rules,
            "nonResourceRules": [{"nonResourceURLs": paths, "verbs": ["get"]}],
            "incomplete": false,
        },
    }))
}

fn rendered(held: &Held, rule: &PolicyRule, read_only: bool, reach: &dyn Fn(&str) -> bool) -> Option<Value> {
    let groups: Vec<&String> = rule.api_groups.iter().filter(|g| reach(g)).collect();
    let interactive = |resource: &str| INTERACTIVE.contains(&resource);
    // A right to get a session is none without the right to create it.
    let opens = |resource: &str| {
        let may =
            |name: &str| held.role.rules.permits(Attributes { verb: "create", group: "", resource, name }).is_some();
        may("") || rule.resource_names.iter().any(|name| may(name))
    };
    // Nor are proxy subresources offered, even where a role of the store names them.
    let offered =
        |resource: &str| !resource.ends_with("/proxy") && (!interactive(resource) || (!read_only && opens(resource)));
    let resources: Vec<&String> = rule.resources.iter().filter(|r| offered(r)).collect();
    let verbs: Vec<&String> =
        rule.verbs.iter().filter(|v| !read_only || Verb::parse(v).is_some_and(Verb::reads)).collect();
    if groups.is_empty() || resources.is_empty() || verbs.is_empty() {
        return None;
    }
    Some(json!({"apiGroups": groups, "resources": resources, "verbs": verbs, "resourceNames": rule.resource_names}))
}

#[cfg(test)]
#[path = "../../fuzz/targets/reviews.rs"]
mod fuzz;
