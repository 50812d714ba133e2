//! One request through all stages.

pub(in crate::proxy) mod answers;
mod finish;
mod intake;
mod own_namespaces;
mod places;
mod reach_back;

use std::net::IpAddr;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::uri::PathAndQuery;
use http::{Request, Response, StatusCode, Version};
use hyper::body::{Body as _, Incoming};
use hyper::upgrade::OnUpgrade;
use tracing::warn;

use self::answers::{millis, own, refusal, refused_answer, unauthenticated, unauthenticated_or_forbidden, unreachable};
pub use self::finish::Finish;
use self::intake::{asks_to_upgrade, describe, key, namespace_act, parse, place, presented, review_body};
use super::across::{self, Across, Asked};
use super::body::{Gathered, ProxyBody, Relayed, Source, Watched, gather};
use super::budget::{Budget, Limits, Most};
use super::decide::{self, Asker, Context, Decide, Decision, Refusal, Rules};
use super::meters;
use super::namespaces::{self, Act, OwnNamespaces, Plan};
use super::past::Past;
use super::reviews::{self, Answer, Encoding, Review};
use super::rewrite::{self, Identity};
use super::streams::{Registered, StreamKey, Streams};
use super::target::Target;
use super::upgrade;
use crate::audit::{Audit, Stage, Surface, What};
use crate::clusters::outgoing::Outgoing;
use crate::clusters::upstream::{ClusterBody, MOST_STREAMS, Upstream, UpstreamError, Upstreams, Way};
use crate::domain::request::{RequestInfo, Verb};
use crate::identity::last_used::LastUsed;
use crate::identity::tokens::{self, Caller};
use crate::index::{Impersonation, Index};
use crate::metrics::{Metrics, VerbClass};
use crate::resources::token::Audience;
use crate::status::Status;

/// What can be set.
#[derive(Debug, Clone, Copy)]
pub struct ProxySettings {
    /// Time until a cluster must begin its answer to a short request. The API server gives itself 60 s.
    pub response_timeout: Duration,
    /// A short response that brings nothing for this long is given up: the cluster hangs.
    pub stall: Duration,
    /// Most long-running responses of one token; those across namespaces count once for each.
    pub max_streams_per_token: usize,
    /// Most other requests of one token at a time.
    pub max_requests_per_token: usize,
    /// Most long-running responses of one user.
    pub max_streams_per_user: usize,
    /// Most other requests of one user at a time.
    pub max_requests_per_user: usize,
    /// Most long-running responses of one project on one cluster.
    pub max_streams_per_project: usize,
    /// Most other requests of one project on one cluster at a time.
    pub max_requests_per_project: usize,
    /// Most long-running responses of one cluster.
    pub max_streams_per_cluster: usize,
    /// Most other requests to one cluster at a time.
    pub max_requests_per_cluster: usize,
    /// Most namespaces that one request is spread over. A wider one is refused, and never cut short.
    pub max_namespaces_per_request: usize,
}

impl ProxySettings {
    /// What one token may have of its account's budget: never all of it, so that another one can still find out what
    /// the matter is.
    pub fn of_one_token(user: usize) -> usize {
        (user - user / 5).max(1)
    }

    /// What one project may have of its cluster's budget.
    pub fn of_one_project(cluster: usize) -> usize {
        cluster.div_ceil(2)
    }

    fn limits(&self) -> Limits {
        Limits {
            token: Most { requests: self.max_requests_per_token, streams: self.max_streams_per_token },
            user: Most { requests: self.max_requests_per_user, streams: self.max_streams_per_user },
            project: Most { requests: self.max_requests_per_project, streams: self.max_streams_per_project },
            cluster: Most { requests: self.max_requests_per_cluster, streams: self.max_streams_per_cluster },
        }
    }
}

impl Default for ProxySettings {
    fn default() -> Self {
        // kubectl and controllers keep themselves to 50 requests a second and fewer; 400 at a time is a flood. With default
        // flags, an API server has 49 seats for the requests of people, all together (the nominal ones of its priority level
        // `global-default`), and takes ten seconds to lend them more. Of 160, one account gets 40.
        // <https://kubernetes.io/docs/concepts/cluster-administration/flow-control/>
        let (requests_of_user, requests_of_cluster) = (400, 160);
        let (streams_of_user, streams_of_cluster) = (2_500, MOST_STREAMS);
        Self {
            response_timeout: Duration::from_secs(65),
            stall: Duration::from_secs(90),
            max_streams_per_token: Self::of_one_token(streams_of_user),
            max_requests_per_token: Self::of_one_token(requests_of_user),
            max_streams_per_user: streams_of_user,
            max_requests_per_user: requests_of_user,
            max_streams_per_project: Self::of_one_project(streams_of_cluster),
            max_requests_per_project: Self::of_one_project(requests_of_cluster),
            max_streams_per_cluster: streams_of_cluster,
            max_requests_per_cluster: requests_of_cluster,
            // More answers than a client waits for.
            max_namespaces_per_request: 500,
        }
    }
}

/// The proxy.
pub struct Proxy {
    pub(super) index: Arc<Index>,
    upstreams: Arc<dyn Upstreams>,
    audit: Arc<Audit>,
    metrics: Arc<Metrics>,
    last_used: Arc<LastUsed>,
    streams: Arc<Streams>,
    budget: Budget,
    pub(super) across: Across,
    past: Past,
    pub(super) decider: Arc<dyn Decide>,
    pub(super) settings: ProxySettings,
    namespaces: Option<Arc<dyn OwnNamespaces>>,
}

/// What a request needs to be served; see [`Proxy::new`].
pub struct ProxyParts {
    /// Decisions rest on it.
    pub index: Arc<Index>,
    /// Ways to the clusters.
    pub upstreams: Arc<dyn Upstreams>,
    /// Where it is recorded.
    pub audit: Arc<Audit>,
    /// Where it is counted.
    pub metrics: Arc<Metrics>,
    /// Where the use of tokens is noted.
    pub last_used: Arc<LastUsed>,
    /// What can be set.
    pub settings: ProxySettings,
    /// Makes and deletes namespaces of projects. Without it such requests go to the cluster, which refuses them.
    pub namespaces: Option<Arc<dyn OwnNamespaces>>,
}

impl Proxy {
    /// The proxy with the real rules.
    pub fn new(parts: ProxyParts) -> Arc<Self> {
        Self::with_decider(parts, Arc::new(Rules))
    }

    /// The proxy with another decider: for tests that prove the second wall. No configuration reaches this.
    #[doc(hidden)]
    pub fn with_decider(parts: ProxyParts, decider: Arc<dyn Decide>) -> Arc<Self> {
        let ProxyParts { index, upstreams, audit, metrics, last_used, settings, namespaces } = parts;
        let streams = Streams::new();
        let budget = Budget::new(settings.limits());
        let across = Across::default();
        Arc::new(Self {
            index,
            upstreams,
            audit,
            metrics,
            last_used,
            streams,
            budget,
            across,
            past: Past::default(),
            decider,
            settings,
            namespaces,
        })
    }

    /// The register of streams.
    pub fn streams(&self) -> &Arc<Streams> {
        &self.streams
    }

    /// Bytes of memory that lists and long events across namespaces take just now, in whole pieces of 64 KiB.
    pub fn memory_of_lists(&self) -> usize {
        self.across.memory()
    }

    /// Judges the streams with every change until the index ends.
    pub async fn judge(self: Arc<Self>) {
        let metrics = self.metrics.clone();
        let cut = move |cause: &'static str| meters::cut(&metrics, cause);
        self.streams.clone().judge(self.index.clone(), self.decider.clone(), cut).await;
    }

    /// Serves one request.
    pub async fn handle(self: Arc<Self>, request: Request<Incoming>, address: IpAddr) -> Response<ProxyBody> {
        let started = Instant::now();
        let id = self.audit.request_id();
        let what = What { address: address.to_string(), ..What::default() };
        let mut seen = Seen { what, address, class: meters::class(None) };
        match self.serve(request, &id, &mut seen, started).await {
            Ok(response) => response,
            Err(refusal) => self.refuse(refusal, &id, seen, started),
        }
    }

    fn refuse(&self, refusal: Refusal, id: &str, seen: Seen, started: Instant) -> Response<ProxyBody> {
        let Refusal { reason, status } = refusal;
        let Seen { mut what, address: _, class } = seen;
        what.status = Some(status.code);
        what.reason = reason.to_owned();
        what.duration_ms = Some(millis(started));
        meters::refused(&self.metrics, reason);
        meters::answered(&self.metrics, class, &what, false, started);
        self.audit.note(id, Stage::Refused, Surface::Kube, what);
        own(status)
    }

    async fn serve(
        self: &Arc<Self>,
        mut request: Request<Incoming>,
        id: &str,
        seen: &mut Seen,
        started: Instant,
    ) -> Result<Response<ProxyBody>, Refusal> {
        let mut target = parse(&request, &mut seen.what)?;
        seen.class = meters::class(Some(&target.request));
        let caller = self.authenticate(request.headers(), &mut seen.what)?;
        let now = self.index.now();
        self.last_used.record(&caller.token.record.id, seen.address, now);
        if !self.index.is_fresh() {
            return Err(refusal("stale", Status::unavailable("the service has lost its store and decides nothing")));
        }
        if rewrite::asks_to_impersonate(request.headers()) {
            return Err(refusal("impersonation", Status::forbidden(rewrite::NO_IMPERSONATION)));
        }
        let upgrade = asks_to_upgrade(&request)?;
        let long = upgrade || matches!(&target.request, RequestInfo::Resource(r) if r.is_long_running());
        let across = across::concerns(&target.request).filter(|_| !upgrade);
        let mut taken = match across {
            Some(_) if long => None,
            _ => Some(self.enter(&caller, long, 1)?),
        };
        if let Some(asked) = across {
            let (method, headers) = (request.method(), request.headers());
            let parts = Asked { method, headers, target: &target, caller: &caller, id, started };
            match across::serve(self, parts, asked, &mut seen.what, taken).await? {
                ControlFlow::Break(response) => return Ok(response),
                ControlFlow::Continue(back) => taken = back,
            }
        }
        let mut in_flight = match taken {
            Some(place) => place,
            None => self.enter(&caller, long, 1)?,
        };
        let review = reviews::of(&target.request);
        let review = match review {
            Some(review) => Some((review, review_body(&mut request).await?)),
            None => None,
        };
        let own = match &self.namespaces {
            Some(acts) => {
                if matches!(namespaces::of(&target.request), Some(Act::Change | Act::Delete)) {
                    // Whoever may not touch the namespace is told so, and not how to write what they may not send.
                    match self.foresee(&caller, &target) {
                        // Not found is said only of names that a project of the caller's could have.
                        Err(why) if why.status.code == 404 && intake::applies(&request) => {
                            intake::make_of_applied(&mut target);
                        }
                        foreseen => foreseen?,
                    }
                }
                namespace_act(&mut request, &mut target).await?.map(|asked| (acts, asked))
            }
            None => None,
        };
        // What goes on is entered before the index is looked at, so that no change falls between the two.
        let mutates = matches!(&target.request, RequestInfo::Resource(r) if r.mutates());
        let registered = match long || mutates || !request.body().is_end_stream() {
            true => Some(self.streams.register(key(&caller, target.clone()))),
            false => None,
        };

        let now = self.index.now();
        let snapshot = self.index.snapshot();
        let owner = snapshot.still_live(&caller.token, now).ok_or_else(unauthenticated)?;
        let ctx = Context {
            snapshot: &snapshot,
            asker: Asker { user: &owner.object, scopes: &caller.token.record.scopes },
            place: place(&target),
            request: &target.request,
            now,
        };
        let mut decision = decide::authorize(&*self.decider, &ctx)?;
        describe(&decision, &mut seen.what);
        let mut body = None;
        if let Some((review, (bytes, encoding))) = review {
            match self.review(review, &ctx, &bytes, encoding)? {
                Reviewed::Answered(answer) => return Ok(self.answered(answer, id, &seen.what, started)),
                Reviewed::AskCluster(groups) => decision.groups = groups,
            }
            body = Some(bytes);
        }
        self.ground(&mut in_flight, &target.cluster, decision.project.as_deref())?;
        if let Some((acts, asked)) = own {
            match namespaces::plan(&asked, &ctx)? {
                Plan::Forward(bytes) => body = Some(bytes),
                plan => {
                    let registered = registered.ok_or_else(|| refusal("malformed", Status::internal("not entered")))?;
                    let run = own_namespaces::Run { acts, caller: &caller, registered, in_flight, id, started };
                    return self.own_namespaces(plan, run, &target, seen).await;
                }
            }
        }
        if upgrade
            && !matches!(&target.request, RequestInfo::Resource(r) if r.is_interactive() || r.verb == Verb::Watch)
        {
            return Err(refusal("upgrade", Status::bad_request("this resource cannot be asked for with Upgrade")));
        }

        let upstream = self.upstream(&target.cluster)?;
        let impersonation = snapshot.observed(target.cluster.as_str()).map(|o| o.impersonation).unwrap_or_default();
        self.reach_back(&ctx, &target, &upstream, &caller, impersonation, id).await?;
        let mut head = self.head(&request, &target, &upstream, &caller, &decision, impersonation, upgrade, id)?;
        drop(snapshot);
        if body.is_some() {
            // What was read here goes on in its own length, which need not be the one that the client said.
            head.headers_mut().remove(header::CONTENT_LENGTH);
            head.headers_mut().remove(header::CONTENT_ENCODING);
        }

        if mutates {
            self.audit.intent(id, Surface::Kube, &seen.what).await.map_err(|why| {
                warn!(%why, "audit intent not written");
                refusal("audit", Status::unavailable("the audit record cannot be written; nothing was changed"))
            })?;
        }
        let what = std::mem::take(&mut seen.what);
        let finish = Finish::new(self.clone(), id.to_owned(), what, &target.request, started, long, in_flight);
        let way = match (upgrade, long) {
            (true, _) => Way::Upgrade,
            (false, true) => Way::Streaming,
            (false, false) => Way::Short,
        };
        let right = match registered {
            Some(registered) => Watched::Entered(registered),
            None => Watched::Later(Box::new(key(&caller, target))),
        };
        Ok(self.forward(request, head, body, &upstream, way, right, finish).await)
    }

    fn authenticate(&self, headers: &HeaderMap, what: &mut What) -> Result<Caller, Refusal> {
        let token = presented(headers).ok_or_else(unauthenticated)?;
        let snapshot = self.index.load();
        let caller =
            tokens::authenticate(&snapshot, &token, Audience::Kube, self.index.now()).map_err(|_| unauthenticated())?;
        what.user.clone_from(&caller.token.record.user);
        what.user_uid.clone_from(&caller.token.record.user_uid);
        what.token.clone_from(&caller.token.record.id);
        Ok(caller)
    }

    pub(super) fn upstream(&self, cluster: &str) -> Result<Arc<Upstream>, Refusal> {
        self.upstreams.upstream(cluster).ok_or_else(|| {
            let message = "the cluster has no credential, or is just being contacted";
            refusal("cluster-unusable", Status::unavailable(message))
        })
    }

    /// The way for what the service asks by itself.
    pub(super) fn own(&self, cluster: &str) -> Result<Arc<Upstream>, Status> {
        let own = self.upstreams.own(cluster);
        own.ok_or_else(|| Status::unavailable("the cluster has no credential, or is just being contacted"))
    }

    /// Decides on what is known before a body is read. It is decided again, on the truth of that time, when it is.
    fn foresee(&self, caller: &Caller, target: &Target) -> Result<(), Refusal> {
        let now = self.index.now();
        let snapshot = self.index.load();
        let owner = snapshot.still_live(&caller.token, now).ok_or_else(unauthenticated)?;
        let asker = Asker { user: &owner.object, scopes: &caller.token.record.scopes };
        let ctx = Context { snapshot: &snapshot, asker, place: place(target), request: &target.request, now };
        decide::authorize(&*self.decider, &ctx).map(|_| ())
    }

    /// Enters what was admitted a moment ago, and judges it at once: what changed since was not watched for.
    pub(super) fn register_late(&self, key: StreamKey) -> Registered {
        self.streams.enter_late(key, &self.index, &*self.decider)
    }

    fn review(&self, review: Review, ctx: &Context<'_>, body: &[u8], encoding: Encoding) -> Result<Reviewed, Refusal> {
        let malformed = |status| refusal("malformed-review", status);
        Ok(match review {
            Review::Rules => Reviewed::Answered(reviews::rules(ctx, body, encoding).map_err(malformed)?),
            Review::Access => match reviews::access(&*self.decider, ctx, body, encoding).map_err(malformed)? {
                Answer::No(reason) => Reviewed::Answered(reviews::answer(false, &reason)),
                Answer::Yes(reason) => Reviewed::Answered(reviews::answer(true, &reason)),
                Answer::AskCluster(groups) => Reviewed::AskCluster(groups),
            },
        })
    }

    /// An answer of our own to a self review.
    fn answered(&self, answer: serde_json::Value, id: &str, what: &What, started: Instant) -> Response<ProxyBody> {
        let mut what = what.clone();
        what.status = Some(201);
        what.duration_ms = Some(millis(started));
        meters::answered(&self.metrics, VerbClass::Other, &what, false, started);
        self.audit.note(id, Stage::Read, Surface::Kube, what);
        let mut response = Response::new(ProxyBody::Whole(Some(Bytes::from(answer.to_string()))));
        *response.status_mut() = StatusCode::CREATED;
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response
    }

    /// The head of the request to the cluster: from an empty map, identity last.
    #[allow(clippy::too_many_arguments)]
    fn head(
        &self,
        request: &Request<Incoming>,
        target: &Target,
        upstream: &Upstream,
        caller: &Caller,
        decision: &Decision,
        impersonation: Impersonation,
        upgrade: bool,
        id: &str,
    ) -> Result<Request<()>, Refusal> {
        let malformed = |status| refusal("malformed", status);
        let mut headers = rewrite::to_cluster(request.headers(), upgrade).map_err(malformed)?;
        if upgrade {
            headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
            if let Some(protocol) = request.headers().get(header::UPGRADE) {
                headers.insert(header::UPGRADE, protocol.clone());
            }
        }
        if let Ok(value) = HeaderValue::from_str(id) {
            headers.insert("audit-id", value);
        }
        let identity = Identity {
            user: &caller.token.record.user,
            uid: &caller.token.record.user_uid,
            groups: &decision.groups,
            token: &caller.token.record.id,
            impersonation,
        };
        rewrite::write_identity(&mut headers, &identity, upstream.credential()).map_err(|why| {
            warn!(%why, user = caller.token.record.user, "identity not written");
            refusal("identity", Status::internal("the identity cannot be written safely"))
        })?;
        let path = PathAndQuery::try_from(target.forward.as_str())
            .map_err(|_| malformed(Status::bad_request("the path or query cannot be forwarded")))?;
        let mut head = Request::new(());
        *head.method_mut() = request.method().clone();
        *head.uri_mut() = path.into();
        *head.headers_mut() = headers;
        Ok(head)
    }

    #[allow(clippy::too_many_arguments)]
    async fn forward(
        self: &Arc<Self>,
        mut request: Request<Incoming>,
        head: Request<()>,
        whole: Option<Bytes>,
        upstream: &Upstream,
        way: Way,
        watched: Watched,
        mut finish: Finish,
    ) -> Response<ProxyBody> {
        let client = (way == Way::Upgrade).then(|| hyper::upgrade::on(&mut request));
        let body = match whole {
            Some(bytes) => Outgoing::Whole(Some(bytes)),
            None if request.body().is_end_stream() => Outgoing::Empty,
            None => {
                let multiplexed = request.version() == Version::HTTP_2;
                Outgoing::Streamed { body: request.into_body(), multiplexed, sent: finish.sent() }
            }
        };
        let protocol = head.headers().get(header::UPGRADE).cloned();
        let request = head.map(|()| body);
        let deadline = self.settings.response_timeout;
        let answer = async {
            let mut response = upstream.send(way, request).await?;
            let gathered = match way {
                Way::Short => gather(response.body_mut()).await?,
                Way::Streaming | Way::Upgrade => Gathered::NOTHING,
            };
            Ok((response, gathered))
        };
        // The right may end while the request is still being sent, or while the cluster has not answered yet. With the
        // answer's future the connection goes, so that a request of which a part is missing never becomes whole.
        let cut = async {
            match &watched {
                Watched::Entered(registered) => registered.cut.cancelled().await,
                Watched::Later(_) => std::future::pending().await,
            }
        };
        let answer: Result<Result<_, UpstreamError>, _> = tokio::select! {
            biased;
            () = cut => {
                let cause = watched.cause();
                return finish.fail(cause, unauthenticated_or_forbidden(cause));
            }
            answer = tokio::time::timeout(deadline, answer) => answer,
        };
        let (response, gathered) = match answer {
            Ok(Ok(answer)) => answer,
            Ok(Err(why)) => {
                meters::unanswered(&self.metrics, &finish.what.cluster, Some(&why));
                return finish.fail("upstream", unreachable(&why));
            }
            Err(_) => {
                meters::unanswered(&self.metrics, &finish.what.cluster, None);
                let message = format!("the cluster did not begin to answer within {} s", deadline.as_secs());
                return finish.fail("upstream-timeout", Status::timeout(message));
            }
        };
        if let Some(status) = refused_answer(response.status(), way) {
            return finish.fail("upstream-answer", status);
        }
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return switched(client, protocol, response, watched, finish);
        }
        finish.answered(response.status());
        let (mut parts, body) = response.into_parts();
        rewrite::to_client(&mut parts.headers);
        parts.version = Version::default();
        let body = match gathered {
            Gathered::Whole(bytes) => {
                if let Some(cause) = watched.ended(&finish) {
                    return finish.fail(cause, unauthenticated_or_forbidden(cause));
                }
                finish.count(bytes.len());
                finish.complete();
                ProxyBody::Whole((!bytes.is_empty()).then_some(bytes))
            }
            Gathered::Part(ahead) => {
                let source = Source::Cluster(body);
                ProxyBody::Relayed(Box::new(Relayed::new(ahead, source, finish, watched)))
            }
        };
        Response::from_parts(parts, body)
    }
}

/// Passes a change to the protocol that was asked for on, and then the bytes.
fn switched(
    client: Option<OnUpgrade>,
    asked: Option<HeaderValue>,
    mut response: Response<ClusterBody>,
    watched: Watched,
    mut finish: Finish,
) -> Response<ProxyBody> {
    let (Some(client), Watched::Entered(registered)) = (client, watched) else {
        return finish.fail("upstream-answer", Status::bad_gateway("the cluster switched protocols unasked"));
    };
    let protocol = response.headers().get(header::UPGRADE).cloned();
    let (Some(asked), Some(protocol)) = (asked, protocol) else {
        return finish.fail("upstream-answer", Status::bad_gateway("the cluster switched to no protocol"));
    };
    if !asked.as_bytes().eq_ignore_ascii_case(protocol.as_bytes()) {
        let message = "the cluster switched to another protocol than was asked for";
        return finish.fail("upstream-answer", Status::bad_gateway(message));
    }
    finish.answered(response.status());
    let cluster = hyper::upgrade::on(&mut response);
    let mut answer = Response::new(ProxyBody::Whole(None));
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *answer.headers_mut() = std::mem::take(response.headers_mut());
    rewrite::to_client(answer.headers_mut());
    answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    answer.headers_mut().insert(header::UPGRADE, protocol);
    tokio::spawn(upgrade::relay(client, cluster, registered, finish));
    answer
}

enum Reviewed {
    Answered(serde_json::Value),
    AskCluster(Vec<String>),
}

/// What is known of a request so far; a refusal records it.
struct Seen {
    what: What,
    address: IpAddr,
    class: VerbClass,
}
