//! Across namespaces: lists and watches that name no namespace, answered from those that are the caller's.
//!
//! Such a request is made in each of the caller's namespaces, under the caller's identity there, so that both walls hold
//! for each part: our decision, and the cluster's own. No answer for the whole cluster is ever asked for and filtered.
//! What is put together is what an API server would have answered in a cluster that has these namespaces only.

mod accept;
mod frames;
mod held_back;
mod list;
mod members;
mod merge;
mod namespaces;
mod query;
mod spread;
mod tokens;
mod views;
mod watch;

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Instant;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, Response, StatusCode};

pub use self::frames::expired;
use self::members::{Member, of_namespaces};
pub use self::members::{Members, SetId, Shares, concerns, members};
use self::merge::Document;
pub use self::namespaces::NamespacesWatch;
use self::namespaces::{Asking, Watching};
use self::query::Options;
use self::spread::{Room, Spread, Taken, WAVE};
use self::tokens::Tokens;
use self::views::Views;
pub use self::watch::MergedWatch;
use super::body::{ProxyBody, Relayed, Source, Watched};
use super::budget::InFlight;
use super::decide::{Asker, Context, Decide, Decision, Refusal, Right};
use super::resolve::{Place, knows_cluster};
use super::rewrite;
use super::service::answers::{refusal, unauthenticated, unauthenticated_or_forbidden};
use super::service::{Finish, Proxy};
use super::streams::{Across as Spanned, StreamKey};
use super::target::Target;
use crate::audit::What;
use crate::clusters::upstream::Upstream;
use crate::domain::request::{RequestInfo, ResourceRequest, Verb};
use crate::identity::tokens::Caller;
use crate::index::Impersonation;
use crate::status::Status;

/// The cause of a cut: the caller's set of namespaces changed, and a merged watch begins anew.
pub const MEMBERSHIP: &str = "membership";
/// Most namespaces that a warning names.
const NAMED: usize = 10;

/// What outlives a request. At the beginning nothing is known.
#[derive(Default)]
pub struct Across {
    tokens: Tokens,
    views: Arc<Views>,
    room: Room,
}

impl Across {
    /// Bytes that are taken.
    pub fn memory(&self) -> usize {
        self.room.taken()
    }
}

/// The memory that an answer takes for as long as it is written.
pub struct Held(#[allow(dead_code, reason = "held until it is dropped")] Vec<Taken>);

/// A request, as far as it has been read.
pub struct Asked<'a> {
    /// Method.
    pub method: &'a Method,
    /// Headers.
    pub headers: &'a HeaderMap,
    /// Target.
    pub target: &'a Target,
    /// Who asks.
    pub caller: &'a Caller,
    /// Id of its records.
    pub id: &'a str,
    /// When it came.
    pub started: Instant,
}

/// Answers a request that [`concerns`] several namespaces. A list has a place, to which others are added; a watch has none
/// yet, because it takes as many as it needs or none. What it has is given back where the caller has no namespace:
/// it is then decided on as any request for the whole cluster.
pub async fn serve(
    proxy: &Arc<Proxy>,
    asked: Asked<'_>,
    request: &ResourceRequest,
    what: &mut What,
    place: Option<InFlight>,
) -> Result<ControlFlow<Response<ProxyBody>, Option<InFlight>>, Refusal> {
    let Asked { method, headers, target, caller, id, started } = asked;
    let now = proxy.index.now();
    let snapshot = proxy.index.snapshot();
    let owner = snapshot.still_live(&caller.token, now).ok_or_else(unauthenticated)?;
    let record = &caller.token.record;
    let ctx = Context {
        snapshot: &snapshot,
        asker: Asker { user: &owner.object, scopes: &record.scopes },
        place: Place { cluster: &target.cluster, project: target.project.as_deref(), namespace: "" },
        request: &target.request,
        now,
    };
    let Some(members) = members(&*proxy.decider, &ctx, request)? else { return Ok(ControlFlow::Continue(place)) };
    describe(&members, what);
    let malformed = |status| refusal("malformed", status);
    if *method != Method::GET {
        let message = "a list or watch across namespaces is asked for with GET";
        return Err(malformed(Status::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message)));
    }
    let (wide, widest) = (members.permitted.len(), proxy.settings.max_namespaces_per_request);
    if wide > widest {
        // No 429: clients would ask the same again and again.
        let message = format!(
            "this would be spread over {wide} namespaces, and the most is {widest}; use the context of a project, name a \
             namespace with -n, or ask an administrator of the platform to raise proxy.max_namespaces_per_request"
        );
        return Err(refusal("too-wide", Status::too_large(message)));
    }
    let (path, query) = target.forward.split_once('?').unwrap_or((&target.forward, ""));
    let options = Options::parse(query).map_err(malformed)?;
    let long = request.verb == Verb::Watch;
    if long {
        watch::check(&options).map_err(malformed)?;
    }
    let mut allowed = rewrite::to_cluster(headers, false).map_err(malformed)?;
    // What is put together must be readable here, and there is no body.
    for name in [header::ACCEPT_ENCODING, header::CONTENT_ENCODING, header::CONTENT_TYPE, header::CONTENT_LENGTH] {
        allowed.remove(name);
    }
    // An answer is of several: none of them may say that nothing has changed.
    allowed.remove(header::IF_NONE_MATCH);
    allowed.remove(header::IF_MATCH);
    allowed.insert(header::ACCEPT, accept::narrowed(headers).map_err(malformed)?);

    let upstream = proxy.upstream(&target.cluster)?;
    let impersonation = snapshot.observed(target.cluster.as_str()).map(|o| o.impersonation).unwrap_or_default();
    // A cluster that came back under its name counts its revisions anew.
    let registered = snapshot.clusters.get(target.cluster.as_str());
    let cluster_uid = registered.and_then(|cluster| cluster.object.metadata.uid.clone()).unwrap_or_default();
    drop(snapshot);

    let key = StreamKey {
        token: caller.token.clone(),
        cluster: target.cluster.clone(),
        narrowed: target.project.clone(),
        request: target.request.clone(),
        across: Some(spanned(request, &members)),
    };
    let mut in_flight = match place {
        Some(place) => place,
        // The namespaces themselves are watched once, but each is judged here for as long as it goes on.
        None => proxy.enter(caller, long, members.judged())?,
    };
    let parts = match (long, of_namespaces(request)) {
        (_, true) => {
            proxy.ground(&mut in_flight, &target.cluster, target.project.as_deref())?;
            None
        }
        (true, false) => {
            proxy.ground_across(&mut in_flight, &target.cluster, &members.shares())?;
            None
        }
        // Each part that is asked for at a time counts; the first is counted already.
        (false, false) => Some(proxy.parts(&in_flight, &target.cluster, &members.shares(), WAVE)?),
    };
    let watched = match long {
        true => Watched::Entered(proxy.register_late(key)),
        false => Watched::Later(Box::new(key)),
    };
    let what = std::mem::take(what);
    let mut finish = Finish::new(proxy.clone(), id.to_owned(), what, &target.request, started, long, in_flight);
    let spread = Spread {
        upstream: &upstream,
        share: proxy.across.room.of(&record.user_uid),
        at_a_time: parts.as_ref().map_or(WAVE, |parts| parts.at_a_time),
        user: &record.user,
        uid: &record.user_uid,
        token: &record.id,
        impersonation,
        headers: allowed,
        path: path.split_at(path.rfind('/').unwrap_or(0)),
        id,
        read: AtomicUsize::new(0),
    };
    let view = view_name(caller, &cluster_uid, target, request);
    let answer = async {
        if of_namespaces(request) {
            let own = proxy.own(&target.cluster)?;
            let accept =
                spread.headers.get(header::ACCEPT).cloned().unwrap_or(HeaderValue::from_static("application/json"));
            let asking = Asking { own: &own, accept, share: spread.share.clone(), id };
            return namespaces_of(proxy, &asking, &members, &options, (caller, target, request, view)).await;
        }
        Ok(match long {
            true => watched_across(proxy, &spread, &members, &options, view).await?,
            false => listed_across(proxy, &spread, &members, &options, &view, request).await?,
        })
    };
    let cut = async {
        match &watched {
            Watched::Entered(registered) => registered.cut.cancelled().await,
            Watched::Later(_) => std::future::pending().await,
        }
    };
    let answer: Result<Result<Parts, Status>, _> = tokio::select! {
        biased;
        () = cut => {
            let cause = watched.cause();
            return Ok(ControlFlow::Break(finish.fail(cause, ended(cause))));
        }
        answer = tokio::time::timeout(proxy.settings.response_timeout, answer) => answer,
    };
    let made = match answer {
        Ok(Ok(made)) => made,
        Ok(Err(status)) => return Ok(ControlFlow::Break(finish.fail("upstream-answer", status))),
        Err(_) => {
            let seconds = proxy.settings.response_timeout.as_secs();
            let message = format!("the cluster did not answer for all namespaces within {seconds} s");
            return Ok(ControlFlow::Break(finish.fail("upstream-timeout", Status::timeout(message))));
        }
    };
    if let Some(cause) = watched.ended(&finish) {
        return Ok(ControlFlow::Break(finish.fail(cause, ended(cause))));
    }
    // All has been asked for.
    drop(parts);
    finish.answered(StatusCode::OK);
    let Parts { ahead, source, content_type, warnings } = made;
    let mut response = Response::new(ProxyBody::Relayed(Box::new(Relayed::new(ahead, source, finish, watched))));
    let head = response.headers_mut();
    let json = HeaderValue::from_static("application/json");
    head.insert(
        header::CONTENT_TYPE,
        content_type.filter(|of| of.as_bytes().starts_with(b"application/json")).unwrap_or(json),
    );
    head.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    for warning in warnings.into_iter().chain(not_listed(&members)) {
        head.append(header::WARNING, warning);
    }
    Ok(ControlFlow::Break(response))
}

/// The resource version at which the cluster stands with a resource, asked in one namespace under the caller's identity;
/// `None` where it does not say.
pub async fn stands(
    proxy: &Proxy,
    request: &ResourceRequest,
    decision: Decision,
    upstream: &Upstream,
    caller: &Caller,
    impersonation: Impersonation,
    id: &str,
) -> Option<u64> {
    let record = &caller.token.record;
    let before = match request.group.as_str() {
        "" => format!("/api/{}", request.version),
        group => format!("/apis/{group}/{}", request.version),
    };
    let after = format!("/{}", request.resource);
    let mut headers = HeaderMap::new();
    let metadata = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
    headers.insert(header::ACCEPT, HeaderValue::from_static(metadata));
    let spread = Spread {
        upstream,
        share: proxy.across.room.of(&record.user_uid),
        at_a_time: 1,
        user: &record.user,
        uid: &record.user_uid,
        token: &record.id,
        impersonation,
        headers,
        path: (&before, &after),
        id,
        read: AtomicUsize::new(0),
    };
    let namespace = request.namespace.clone();
    let member = Member { namespace, uid: String::new(), since: None, decision };
    let answer = tokio::time::timeout(proxy.settings.response_timeout, spread.answer(&member, "limit=1")).await;
    Document::cut(&answer.ok()?.ok()?.body).ok()?.revision.parse().ok()
}

fn spanned(request: &ResourceRequest, members: &Members) -> Spanned {
    match of_namespaces(request) {
        true => Spanned { set: None, width: 1 },
        false => Spanned { set: Some(members.set), width: members.judged() },
    }
}

/// What is answered.
struct Parts {
    ahead: Vec<Bytes>,
    source: Source,
    content_type: Option<HeaderValue>,
    warnings: Vec<HeaderValue>,
}

async fn listed_across(
    proxy: &Proxy,
    spread: &Spread<'_>,
    members: &Members,
    options: &Options,
    view: &str,
    request: &ResourceRequest,
) -> Result<Parts, Status> {
    let options = &*proxy.across.views.known_from(view, options);
    let question = format!("{view}\n{}\n{}", request.version, options.passed_query());
    let pages = list::Pages { tokens: &proxy.across.tokens, question: &question };
    let before = proxy.across.views.before(view, options);
    let list::Listed { parts, warnings, content_type, revision, first, taken } =
        list::list(spread, members, options, &pages).await?;
    if let (Some(revision), true) = (revision, first) {
        // Where the client may not go on from it, its watch is told so, and it lists anew.
        let _ = proxy.across.views.listed(view, members.set, revision, before);
    }
    Ok(Parts { ahead: parts, source: Source::Nothing(Some(Held(taken))), content_type, warnings })
}

async fn watched_across(
    proxy: &Proxy,
    spread: &Spread<'_>,
    members: &Members,
    options: &Options,
    view: String,
) -> Result<Parts, Status> {
    Ok(match watch::open(spread, members, options, &proxy.across.views, view).await? {
        Some(watch::Opened { content_type, watch }) => {
            Parts { ahead: vec![], source: Source::Merged(Box::new(watch)), content_type, warnings: vec![] }
        }
        None => too_old(),
    })
}

/// A list or watch of the namespaces themselves.
async fn namespaces_of(
    proxy: &Arc<Proxy>,
    asking: &Asking<'_>,
    members: &Members,
    options: &Options,
    (caller, target, request, view): (&Caller, &Target, &ResourceRequest, String),
) -> Result<Parts, Status> {
    if request.verb == Verb::List {
        let options = &*proxy.across.views.known_from(&view, options);
        let before = proxy.across.views.before(&view, options);
        let listed = namespaces::list(asking, members, options).await?;
        if let Some(revision) = listed.revision {
            let _ = proxy.across.views.listed(&view, members.set, revision, before);
        }
        let list::Listed { parts, warnings, content_type, taken, .. } = listed;
        return Ok(Parts { ahead: parts, source: Source::Nothing(Some(Held(taken))), content_type, warnings });
    }
    let Some(view) = watch::viewed(options, &proxy.across.views, view, members.set) else { return Ok(too_old()) };
    let watching = Watching {
        index: proxy.index.clone(),
        cluster: target.cluster.clone(),
        membership: membership(proxy, caller, target),
        only: Some(request.name.clone()).filter(|name| !name.is_empty()),
        view,
    };
    let (content_type, watch) = namespaces::watch(asking, members, options, watching).await?;
    Ok(Parts { ahead: vec![], source: Source::Namespaces(Box::new(watch)), content_type, warnings: vec![] })
}

/// What is the caller's in a later version of everything; nothing where they are not to be asked for any more.
fn membership(proxy: &Arc<Proxy>, caller: &Caller, target: &Target) -> namespaces::Membership {
    let (proxy, token, target) = (proxy.clone(), caller.token.clone(), target.clone());
    Box::new(move |snapshot| {
        let now = proxy.index.now();
        let owner = snapshot.still_live(&token, now)?;
        let ctx = Context {
            snapshot,
            asker: Asker { user: &owner.object, scopes: &token.record.scopes },
            place: Place { cluster: &target.cluster, project: target.project.as_deref(), namespace: "" },
            request: &target.request,
            now,
        };
        let RequestInfo::Resource(request) = &target.request else { return None };
        let members = members(&*proxy.decider, &ctx, request).ok()?;
        Some(members.map(|members| members.known()).unwrap_or_default())
    })
}

/// A watch that cannot go on from its revision: the API server says it this way, too.
fn too_old() -> Parts {
    let told = expired("your namespaces changed since this resourceVersion, or it is too old; list again");
    Parts { ahead: vec![told], source: Source::Nothing(None), content_type: None, warnings: vec![] }
}

/// The answer where the right ended before there was one.
fn ended(cause: &str) -> Status {
    match cause {
        MEMBERSHIP => Status::expired("your namespaces changed meanwhile; list again"),
        cause => unauthenticated_or_forbidden(cause),
    }
}

/// Names a caller's view of a resource. Two tokens with different limits see different sets and have a view each.
fn view_name(caller: &Caller, cluster_uid: &str, target: &Target, request: &ResourceRequest) -> String {
    let record = &caller.token.record;
    let scopes = serde_json::to_string(&record.scopes).unwrap_or_default();
    let project = target.project.as_deref().unwrap_or_default();
    // None of these can hold a line feed; what could, is JSON.
    [&record.user_uid, cluster_uid, project, &request.group, &request.resource, &scopes]
        .map(|part| part as &str)
        .join("\n")
}

/// A namespace that is missing from a list must not go unnoticed: what it holds would seem to be gone.
fn not_listed(members: &Members) -> Option<HeaderValue> {
    let left_out = &members.left_out;
    if left_out.is_empty() {
        return None;
    }
    let named = left_out.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    let more = left_out.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    HeaderValue::from_str(&format!("299 - \"left out, because your role there does not permit it: {named}{more}\""))
        .ok()
}

/// The record names what all parts rest on.
fn describe(members: &Members, what: &mut What) {
    let (mut grants, mut roles, mut projects) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for member in &members.permitted {
        if let Right::Rule { grant, role, .. } = member.decision.permit.right() {
            grants.insert(&*grant.name);
            roles.insert(&*role.name);
        }
        projects.extend(member.decision.project.as_deref());
    }
    let joined = |names: BTreeSet<&str>| names.into_iter().take(NAMED).collect::<Vec<_>>().join(",");
    (what.grant, what.role, what.project) = (joined(grants), joined(roles), joined(projects));
    what.rule = format!("across {} namespaces", members.permitted.len());
}

/// What of a request across namespaces is permitted now: which set, none, or the reason why not.
pub type Standing = Result<Option<SetId>, &'static str>;

/// Finds the [`Standing`] of a stream that was admitted across namespaces.
pub fn standing(decider: &dyn Decide, ctx: &Context<'_>) -> Standing {
    let RequestInfo::Resource(request) = ctx.request else { return Err(MEMBERSHIP) };
    let members = members(decider, ctx, request).map_err(|refusal| refusal.reason)?;
    Ok(members.map(|members| members.set))
}

/// Why a stream may not go on, if it may not: only with the same set, unless it follows changes itself.
pub fn refused(standing: &Standing, ctx: &Context<'_>, set: Option<SetId>) -> Option<&'static str> {
    match (standing, set) {
        (Ok(Some(now)), Some(set)) if *now != set => Some(MEMBERSHIP),
        (Ok(Some(_)), _) => None,
        // Its last namespace may be about to go, and it tells of that.
        (Ok(None), None) if knows_cluster(ctx.snapshot, ctx.asker.user, ctx.asker.scopes, ctx.place, ctx.now) => None,
        (Ok(None), _) => Some("no-namespace"),
        (Err(reason), _) => Some(reason),
    }
}
