//! The way in: what a client asks for, with which credential, and whether it asks for another protocol.

use std::borrow::Cow;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::header::{self, HeaderMap};
use http::{Method, Request, Version};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::{Body as _, Incoming};

use super::answers::refusal;
use crate::audit::What;
use crate::domain::request::{RequestInfo, Verb};
use crate::identity::tokens::Caller;
use crate::proxy::decide::{Decision, Refusal, Right};
use crate::proxy::namespaces::{self, Act, Asked};
use crate::proxy::resolve::Place;
use crate::proxy::reviews::{self, Encoding};
use crate::proxy::rewrite;
use crate::proxy::streams::StreamKey;
use crate::proxy::target::{self, Target};
use crate::status::Status;

pub(super) fn parse(request: &Request<Incoming>, what: &mut What) -> Result<Target, Refusal> {
    let uri = request.uri();
    let target = target::parse(request.method().as_str(), uri.path(), uri.query())
        .map_err(|why| refusal("malformed-target", Status::bad_request(why.to_string())))?;
    what.cluster.clone_from(&target.cluster);
    match &target.request {
        RequestInfo::Resource(r) => {
            r.verb.as_str().clone_into(&mut what.verb);
            what.group.clone_from(&r.group);
            what.resource.clone_from(&r.resource);
            what.namespace.clone_from(&r.namespace);
            what.name.clone_from(&r.name);
            what.dry_run = r.dry_run;
        }
        RequestInfo::Path(p) => {
            what.verb = request.method().as_str().to_ascii_lowercase();
            what.path.clone_from(&p.path);
        }
    }
    Ok(target)
}

pub(super) fn place(target: &Target) -> Place<'_> {
    let namespace = match &target.request {
        RequestInfo::Resource(r) => r.namespace.as_str(),
        RequestInfo::Path(_) => "",
    };
    Place { cluster: &target.cluster, project: target.project.as_deref(), namespace }
}

/// What a request is admitted for, to be judged again.
pub(super) fn key(caller: &Caller, target: Target) -> StreamKey {
    let Target { cluster, project, request, forward: _ } = target;
    StreamKey { token: caller.token.clone(), cluster, narrowed: project, request, across: None }
}

pub(super) fn describe(decision: &Decision, what: &mut What) {
    if let Some(project) = &decision.project {
        what.project.clone_from(project);
    }
    match decision.permit.right() {
        Right::Rule { grant, role, rule } => {
            what.grant = grant.name.to_string();
            what.role = role.name.to_string();
            role.rules.describe(*rule).clone_into(&mut what.rule);
        }
        Right::Namespaces { grant, role } => {
            what.grant = grant.name.to_string();
            (*role).clone_into(&mut what.role);
            what.rule = "namespaces".to_owned();
        }
        Right::Discovery => what.rule = "discovery".to_owned(),
        Right::TenantRead => what.rule = "tenant-read".to_owned(),
        Right::SelfReview => what.rule = "self-review".to_owned(),
        Right::Forced => what.rule = "forced".to_owned(),
    }
}

/// The credential: exactly one bearer token, in `Authorization` or as a WebSocket subprotocol. Never a cookie.
pub(super) fn presented(headers: &HeaderMap) -> Option<Cow<'_, str>> {
    let mut lines = headers.get_all(header::AUTHORIZATION).iter();
    match (lines.next(), lines.next()) {
        (Some(line), None) => {
            let (scheme, token) = line.to_str().ok()?.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then_some(Cow::Borrowed(token))
        }
        (None, _) => {
            let protocols = rewrite::subprotocols(headers);
            let mut tokens = protocols.iter().filter_map(|p| p.strip_prefix(rewrite::TOKEN_SUBPROTOCOL));
            let (Some(encoded), None) = (tokens.next(), tokens.next()) else { return None };
            Some(Cow::Owned(String::from_utf8(URL_SAFE_NO_PAD.decode(encoded).ok()?).ok()?))
        }
        _ => None,
    }
}

/// Whether the client asks for another protocol on this connection: SPDY or WebSocket, nothing else.
pub(super) fn asks_to_upgrade(request: &Request<Incoming>) -> Result<bool, Refusal> {
    let headers = request.headers();
    let mut wanted = headers.get_all(header::UPGRADE).iter();
    let Some(protocol) = wanted.next() else { return Ok(false) };
    let named = headers.get_all(header::CONNECTION).iter().filter_map(|v| v.to_str().ok()).flat_map(|v| v.split(','));
    let connection = named.into_iter().any(|token| token.trim().eq_ignore_ascii_case("upgrade"));
    let known =
        protocol.to_str().is_ok_and(|p| p.eq_ignore_ascii_case("websocket") || p.eq_ignore_ascii_case("spdy/3.1"));
    let method = matches!(*request.method(), Method::GET | Method::POST);
    if connection && known && method && wanted.next().is_none() && request.version() == Version::HTTP_11 {
        return Ok(true);
    }
    let message = "Upgrade is accepted for websocket and SPDY/3.1 over HTTP/1.1, with Connection: Upgrade";
    Err(refusal("upgrade", Status::bad_request(message)))
}

pub(super) async fn review_body(request: &mut Request<Incoming>) -> Result<(Bytes, Encoding), Refusal> {
    let Some(encoding) = Encoding::of(content_type(request)) else {
        let message = "self reviews are read as JSON or Kubernetes protobuf";
        return Err(refusal("malformed-review", Status::unsupported_media_type(message)));
    };
    Ok((whole_body(request, reviews::MAX_BODY, "malformed-review", "review").await?, encoding))
}

fn content_type(request: &Request<Incoming>) -> &str {
    request.headers().get(header::CONTENT_TYPE).and_then(|named| named.to_str().ok()).unwrap_or_default()
}

/// Whether a request is a server-side apply (`kubectl apply --server-side`), which makes what is not there.
pub(super) fn applies(request: &Request<Incoming>) -> bool {
    let encoding = namespaces::Encoding::of(Act::Change, request.method() == Method::PATCH, content_type(request));
    encoding == Some(namespaces::Encoding::Apply)
}

/// Makes the creation of a namespace out of its server-side apply.
pub(super) fn make_of_applied(target: &mut Target) {
    if let RequestInfo::Resource(resource) = &mut target.request {
        resource.verb = Verb::Create;
        resource.namespace.clear();
    }
}

/// Reads an act on a namespace, where the request is one.
pub(super) async fn namespace_act(
    request: &mut Request<Incoming>,
    target: &mut Target,
) -> Result<Option<Asked>, Refusal> {
    const REASON: &str = "malformed-namespace";
    let Some(act) = namespaces::of(&target.request) else { return Ok(None) };
    let patches = request.method() == Method::PATCH;
    let Some(encoding) = namespaces::Encoding::of(act, patches, content_type(request)) else {
        let message =
            "namespaces are read as JSON (a new one also as Kubernetes protobuf), their changes as patches in JSON";
        return Err(refusal(REASON, Status::unsupported_media_type(message)));
    };
    let query = target.forward.split_once('?').map_or("", |(_, query)| query);
    let options = namespaces::Options::read(query).map_err(|status| refusal(REASON, status))?;
    let body = whole_body(request, namespaces::MAX_BODY, REASON, "body").await?;
    let asked = Asked::read(act, encoding, options, &body).map_err(|status| refusal(REASON, status))?;
    if let (Act::Create, RequestInfo::Resource(resource)) = (act, &mut target.request) {
        // As the API server's admission knows it: the name is in what is sent. What is applied names it twice.
        if patches && asked.name() != resource.name {
            let message = format!("metadata.name is {:?}, and the URL names {:?}", asked.name(), resource.name);
            return Err(refusal(REASON, Status::bad_request(message)));
        }
        asked.name().clone_into(&mut resource.name);
    }
    Ok(Some(asked))
}

async fn whole_body(
    request: &mut Request<Incoming>,
    most: usize,
    reason: &'static str,
    what: &str,
) -> Result<Bytes, Refusal> {
    let body = Limited::new(request.body_mut(), most).collect();
    match tokio::time::timeout(Duration::from_secs(10), body).await {
        // hyper takes a stream that is given up without an error for one that has ended.
        Ok(Ok(_)) if request.version() == Version::HTTP_2 && !request.body().is_end_stream() => {
            Err(refusal(reason, Status::bad_request(format!("the {what} was given up before its end"))))
        }
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(_)) => Err(refusal(reason, Status::too_large(format!("the {what} is too large, or broke off")))),
        Err(_) => Err(refusal(reason, Status::timeout(format!("the {what} did not arrive in time")))),
    }
}

#[cfg(test)]
#[path = "../../../fuzz/targets/credential.rs"]
mod fuzz;
