//! Explanations: by which grant, role and rule somebody may do something in a cluster, or what is missing and who can
//! give it; and who can do something in a namespace. The answers are those of [`crate::proxy::explain`].
//!
//! Anybody may ask about oneself. About others: who `policies/` says. Everybody else gets the answer that a namespace
//! gets which does not exist.

mod told;

use axum::extract::State;
use http::StatusCode;

use super::super::call::Call;
use super::super::rights::Rights;
use super::super::{Answer, ApiState};
use super::json as answer;
use crate::domain::kinds::{self, Named};
use crate::domain::names::{check_label, check_subdomain};
use crate::domain::rbac::VERBS;
use crate::domain::request::{self, RequestInfo, ResourceRequest};
use crate::index::Snapshot;
use crate::proxy::decide::{self, Asker, Context, Refusal, Rules};
use crate::proxy::explain::{self, Permitted};
use crate::proxy::resolve::{self, Place};
use crate::records::TokenScopes;
use crate::resources::token::Audience;
use crate::resources::{User, UserSpec};
use crate::status::Status;
use crate::store::Kind;

/// Parameters of both questions.
const PARAMETERS: [&str; 8] = ["verb", "resource", "subresource", "name", "namespace", "cluster", "project", "pretty"];
/// Parameters of `why` alone.
const OF_WHY: [&str; 2] = ["user", "token"];
/// Longest name of an object that can be asked about: Kubernetes' own limit.
const MAX_OBJECT: usize = 253;

/// What is asked, understood.
struct Question {
    request: RequestInfo,
    cluster: String,
    project: Option<String>,
    namespace: String,
}

impl Question {
    fn place(&self) -> Place<'_> {
        Place { cluster: &self.cluster, project: self.project.as_deref(), namespace: &self.namespace }
    }
}

/// `GET explanations/why?verb=&resource=…`: about the caller, or `user`.
pub(in crate::api) async fn why(State(state): State<ApiState>, call: Call) -> Answer {
    let user = match call.query.get("user") {
        "" | "me" => call.user().to_owned(),
        user => user.to_owned(),
    };
    check_subdomain(&user).map_err(|why| Status::bad_request(format!("user: {why}")))?;
    let question = understand(&state, &call, &OF_WHY)?;
    describe(&call, "why", &user, &question);
    let place = question.place();
    let rights = rights(&state, &call);
    let owned = resolve::owned(&call.snapshot, place).map(|(project, _)| &project.object);
    let asks_of_self = user == call.user();
    if !asks_of_self {
        let of_account = rights.explains_account(&user);
        let of_project = owned.is_some_and(|project| rights.explains_project(project, &question.cluster));
        if !of_account && !of_project {
            return Err(not_yours(&call, &question, "about others").into());
        }
        if of_account && !call.snapshot.users.contains_key(user.as_str()) {
            return Err(Status::not_found("users", &user).into());
        }
    }
    // Who may not see accounts gets for one that does not exist what there is for one that holds nothing.
    let nobody = User::new(&user, UserSpec::default());
    let account = call.snapshot.users.get(user.as_str()).map_or(&nobody, |stored| &stored.object);
    let outcome = limited(&call, &rights, account, &question, asks_of_self)?;
    let told = told::Told { call: &call, rights, question: &question, owned, account, asks_of_self };
    Ok(answer(StatusCode::OK, &told.why(outcome)))
}

/// `GET explanations/who-can?verb=&resource=&namespace=…`.
pub(in crate::api) async fn who_can(State(state): State<ApiState>, call: Call) -> Answer {
    let question = understand(&state, &call, &[])?;
    describe(&call, "who-can", "", &question);
    if question.namespace.is_empty() {
        let text = "namespace: must be given; roles hold in namespaces (owners and members of a project make them)";
        return Err(Status::bad_request(text).into());
    }
    let rights = rights(&state, &call);
    let owned = resolve::owned(&call.snapshot, question.place()).map(|(project, _)| &project.object);
    let may = rights.explains_everything()
        || owned.is_some_and(|project| rights.explains_project(project, &question.cluster));
    if !may {
        return Err(not_yours(&call, &question, "who can").into());
    }
    let found = explain::who_can(&call.snapshot, question.place(), &question.request, call.now);
    let account = &call.caller.user.object;
    let told = told::Told { call: &call, rights, question: &question, owned, account, asks_of_self: false };
    Ok(answer(StatusCode::OK, &told.who_can(&found)))
}

fn rights<'a>(state: &'a ApiState, call: &'a Call) -> Rights<'a> {
    Rights { view: call.view(), caller: &call.caller, access: &state.0.parts.access }
}

fn describe(call: &Call, verb: &str, user: &str, question: &Question) {
    call.describe(|what| {
        verb.clone_into(&mut what.verb);
        crate::resources::GROUP.clone_into(&mut what.group);
        "explanations".clone_into(&mut what.resource);
        user.clone_into(&mut what.name);
        question.cluster.clone_into(&mut what.cluster);
        question.namespace.clone_into(&mut what.namespace);
    });
}

/// The refusal for who may not ask. Whoever holds something in the namespace knows it, and is told who may ask; for
/// all others it is as if they had gone there: not to be told from a namespace or cluster that does not exist.
fn not_yours(call: &Call, question: &Question, what: &str) -> Status {
    let scopes = reading(call);
    let asker = Asker { user: &call.caller.user.object, scopes: &scopes };
    let place = question.place();
    let known = !place.namespace.is_empty()
        && resolve::namespace(&call.snapshot, asker.user, asker.scopes, place, call.now).is_some();
    let ctx = Context { snapshot: &call.snapshot, asker, place, request: &question.request, now: call.now };
    if !known
        && !place.namespace.is_empty()
        && let Err(refusal) = decide::authorize(&Rules, &ctx)
    {
        return refusal.status;
    }
    Status::forbidden(format!(
        "asking {what} is for owners of the project that has the namespace, platform administrators and auditors"
    ))
}

/// The limits of the caller's own token on where it reaches. That it may only read does not matter to what is asked
/// here: the credential that is asked about is another one.
fn reading(call: &Call) -> TokenScopes {
    let TokenScopes { clusters, projects, read_only: _ } = call.caller.token.record.scopes.clone();
    TokenScopes { clusters, projects, read_only: false }
}

/// The proxy's answer for the account, by a token without limits, or by the named one.
fn limited(
    call: &Call,
    rights: &Rights<'_>,
    account: &User,
    question: &Question,
    asks_of_self: bool,
) -> Result<Result<Permitted, Refusal>, Status> {
    let ask = |scopes: &TokenScopes| {
        let asker = Asker { user: account, scopes };
        let place = question.place();
        explain::why(&Context { snapshot: &call.snapshot, asker, place, request: &question.request, now: call.now })
    };
    // Beyond the limits of the caller's own token everything is as if it were not there.
    let first = ask(&if asks_of_self { reading(call) } else { TokenScopes::default() });
    let id = call.query.get("token");
    if id.is_empty() || first.is_err() {
        return Ok(first);
    }
    let name = account.metadata.name.as_deref().unwrap_or_default();
    let object = call.view().object(Kind::Token, id).filter(|object| rights.sees(Kind::Token, object));
    let entry = call.snapshot.tokens.get(id).filter(|token| object.is_some() && token.record.user == name);
    let Some(token) = entry else { return Err(Status::not_found("tokens", id)) };
    let refuse = |reason: &'static str, text: &str| Refusal { reason, status: Status::forbidden(text.to_owned()) };
    if token.record.audience != Audience::Kube {
        return Ok(Err(refuse("token-audience", "the token is for the service's own API, and no cluster accepts it")));
    }
    if call.snapshot.live_owner(token, call.now).is_none() {
        return Ok(Err(refuse("token-dead", "the token has ended, or was ended with others of its account")));
    }
    Ok(ask(&token.record.scopes))
}

/// Reads the parameters. Unknown ones are refused: a misspelt one would be the answer to another question.
fn understand(state: &ApiState, call: &Call, more: &[&str]) -> Result<Question, Status> {
    let query = &call.query;
    let known = |key: &str| PARAMETERS.contains(&key) || more.contains(&key);
    let mut keys: Vec<&str> = query.keys().collect();
    if let Some(unknown) = keys.iter().find(|key| !known(key)) {
        return Err(Status::bad_request(format!("there is no parameter {unknown:?}")));
    }
    keys.sort_unstable();
    if let Some(twice) = keys.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(Status::bad_request(format!("the parameter {:?} is given twice", twice[0])));
    }
    let label = |key: &str| {
        let text = query.get(key);
        if !text.is_empty() {
            check_label(text).map_err(|why| Status::bad_request(format!("{key}: {why}")))?;
        }
        Ok::<_, Status>(text)
    };
    let project = Some(label("project")?.to_owned()).filter(|project| !project.is_empty());
    let mut namespace = label("namespace")?.to_owned();
    let cluster = match label("cluster")? {
        "" => only_cluster(state, call)?,
        cluster => cluster.to_owned(),
    };
    let name = query.get("name");
    if name.len() > MAX_OBJECT || name.contains(['/', '%']) || name.chars().any(char::is_control) {
        return Err(Status::bad_request("name: must be the name of an object"));
    }
    let (verb, resource) = (query.get("verb"), query.get("resource"));
    if resource.starts_with('/') {
        let request = path(verb, resource)?;
        return Ok(Question { request, cluster, project, namespace: String::new() });
    }
    if !VERBS.contains(&verb) {
        return Err(Status::bad_request(format!("verb: must be one of {}, not {verb:?}", VERBS.join(", "))));
    }
    let mut named =
        kinds::read(resource).map_err(|why| Status::bad_request(format!("resource {resource:?}: {why}")))?;
    match query.get("subresource") {
        "" => {}
        more if named.subresource.is_empty() || named.subresource == more => {
            named.subresource = kinds::read(&format!("x/{more}"))
                .map_err(|why| Status::bad_request(format!("subresource {more:?}: {why}")))?
                .subresource;
        }
        _ => return Err(Status::bad_request("the subresource is given twice, and not the same")),
    }
    let group = group(&call.snapshot, &named)?;
    let Named { resource, subresource, .. } = &named;
    let mut name = name.to_owned();
    if group.is_empty() && resource == "namespaces" {
        as_in_the_url(verb, &mut name, &mut namespace)?;
    }
    let asked = ResourceRequest::asked(verb, &group, "", resource, subresource, &namespace, &name);
    let asked = asked.ok_or_else(|| Status::bad_request("verb: unknown"))?;
    Ok(Question { request: RequestInfo::Resource(asked), cluster, project, namespace })
}

/// A namespace is in itself, as its URL says; one that is made is nowhere yet.
fn as_in_the_url(verb: &str, name: &mut String, namespace: &mut String) -> Result<(), Status> {
    if !name.is_empty() {
        check_label(name).map_err(|why| Status::bad_request(format!("name: {why}")))?;
    }
    match (verb, name.as_str(), namespace.as_str()) {
        ("create", ..) => namespace.clear(),
        ("list" | "watch" | "deletecollection", ..) | (_, "", "") => {}
        (_, "", _) => name.clone_from(namespace),
        (_, _, "") => namespace.clone_from(name),
        (_, of, place) if of == place => {}
        _ => return Err(Status::bad_request("a namespace is asked about by its name alone")),
    }
    Ok(())
}

fn path(verb: &str, path: &str) -> Result<RequestInfo, Status> {
    let segments = request::segments(path).map_err(|why| Status::bad_request(format!("resource: {why}")))?;
    match request::parse(&verb.to_ascii_uppercase(), &segments, None) {
        Ok(request @ RequestInfo::Path(_)) => Ok(request),
        _ => Err(Status::bad_request("resource: a path that names a resource is asked about by the resource's name")),
    }
}

/// The group of a resource: said, Kubernetes' own, or the one that the roles of the platform name it with.
fn group(snapshot: &Snapshot, named: &Named) -> Result<String, Status> {
    if let Some(group) = &named.group {
        return Ok(group.clone());
    }
    let mut groups = std::collections::BTreeSet::new();
    for role in snapshot.access_roles.values() {
        for rule in &role.object.spec.rules {
            let main = |resource: &String| resource.split('/').next() == Some(named.resource.as_str());
            if rule.resources.iter().any(main) {
                groups.extend(rule.api_groups.iter().map(String::as_str));
            }
        }
    }
    let all: Vec<&str> = groups.into_iter().collect();
    let resource = &named.resource;
    match all.as_slice() {
        [only] => Ok((*only).to_owned()),
        [] => Err(Status::bad_request(format!(
            "resource: no kind of Kubernetes and no AccessRole has the name {resource:?}; write it with its group, as in widgets.example.com"
        ))),
        several => Err(Status::bad_request(format!(
            "resource: {resource:?} is in several groups ({}); write it with its group, as in {resource}.{}",
            several.join(", "),
            several[0]
        ))),
    }
}

/// The cluster where the caller has anything, if it is one; for those who see all clusters the only one there is.
fn only_cluster(state: &ApiState, call: &Call) -> Result<String, Status> {
    const LISTED: usize = 20;
    let open: Vec<&str> = if rights(state, call).sees_all(Kind::Cluster) {
        let mut all: Vec<&str> = call.snapshot.clusters.keys().map(|name| &**name).collect();
        all.sort_unstable();
        all
    } else {
        let user = &call.caller.user.object;
        resolve::own_clusters(&call.snapshot, user, &reading(call), call.now, LISTED)
    };
    match open.as_slice() {
        [only] => Ok((*only).to_owned()),
        [] => Err(Status::bad_request("cluster: must be given; none is open to you")),
        several => {
            let some = several.iter().take(LISTED).copied().collect::<Vec<_>>().join(", ");
            Err(Status::bad_request(format!("cluster: must be given; open to you: {some}")))
        }
    }
}
