//! Doing what was planned with a namespace of a project, and answering when it is in effect.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use serde_json::{Value, json};
use tracing::warn;

use super::answers::{refusal, unauthenticated_or_forbidden};
use super::{Finish, Proxy, Seen};
use crate::audit::Surface;
use crate::clusters::names::PROJECT;
use crate::clusters::outgoing::Outgoing;
use crate::clusters::upstream::Way;
use crate::domain::request::{RequestInfo, ResourceRequest};
use crate::identity::tokens::Caller;
use crate::proxy::body::ProxyBody;
use crate::proxy::budget::InFlight;
use crate::proxy::decide::{self, Asker, Context, Refusal};
use crate::proxy::namespaces::{Creation, Deletion, NewNamespace, OwnNamespaces, Plan};
use crate::proxy::resolve::Place;
use crate::proxy::rewrite::{self, Identity};
use crate::proxy::streams::Registered;
use crate::proxy::target::Target;
use crate::status::Status;
use crate::tenancy::{ActError, TenancyError};

/// Longest time that the cluster may take to let the creator see a namespace once everything stands in it: what its
/// authorizer knows of RoleBindings follows within moments.
const SEEN_WITHIN: Duration = Duration::from_secs(10);
/// Pause between two looks.
const LOOK: Duration = Duration::from_millis(50);
/// Longest time that a deletion waits until the namespace is gone. What is deleted then goes on going.
const GONE_WITHIN: Duration = Duration::from_secs(25);
/// Most bytes of a Namespace.
const MAX_NAMESPACE: usize = 1024 * 1024;

/// What an act runs with.
pub(super) struct Run<'a> {
    pub(super) acts: &'a Arc<dyn OwnNamespaces>,
    pub(super) caller: &'a Caller,
    pub(super) registered: Registered,
    pub(super) in_flight: InFlight,
    pub(super) id: &'a str,
    pub(super) started: Instant,
}

impl Proxy {
    /// Makes or deletes a namespace, with its records.
    pub(super) async fn own_namespaces(
        self: &Arc<Self>,
        plan: Plan,
        run: Run<'_>,
        target: &Target,
        seen: &mut Seen,
    ) -> Result<Response<ProxyBody>, Refusal> {
        let Run { acts, caller, registered, in_flight, id, started } = run;
        let what = &mut seen.what;
        match &plan {
            Plan::Create(Creation { wanted, dry_run, grant, role }) => {
                what.name.clone_from(&wanted.name);
                what.namespace.clone_from(&wanted.name);
                what.project.clone_from(&wanted.project);
                what.grant.clone_from(grant);
                (*role).clone_into(&mut what.role);
                what.dry_run = *dry_run;
            }
            Plan::Delete(deletion) => what.dry_run = deletion.dry_run,
            Plan::Forward(_) => {}
        }
        self.audit.intent(id, Surface::Kube, what).await.map_err(|why| {
            warn!(%why, "audit intent not written");
            refusal("audit", Status::unavailable("the audit record cannot be written; nothing was changed"))
        })?;
        let what = std::mem::take(what);
        let finish = Finish::new(self.clone(), id.to_owned(), what, &target.request, started, false, in_flight);
        let cut = registered.cut.clone();
        let done = async {
            match plan {
                Plan::Create(creation) => self.make(creation, acts, caller, target).await,
                Plan::Delete(deletion) => self.unmake(deletion, acts, caller, target, registered).await,
                Plan::Forward(_) => Err(Status::internal("a change is forwarded")),
            }
        };
        // What was begun in the store goes on; the answer is no longer theirs.
        let done = tokio::select! {
            biased;
            () = cut.cancelled() => {
                let cause = cut.cause().unwrap_or("cut");
                return Ok(finish.fail(cause, unauthenticated_or_forbidden(cause)));
            }
            done = done => done,
        };
        Ok(match done {
            Ok((status, body)) => answer(status, body, finish),
            Err(status) => finish.fail("namespace", status),
        })
    }

    async fn make(
        &self,
        creation: Creation,
        acts: &Arc<dyn OwnNamespaces>,
        caller: &Caller,
        target: &Target,
    ) -> Result<(StatusCode, Bytes), Status> {
        let Creation { wanted, dry_run, grant: _, role: _ } = creation;
        let now = self.index.now();
        let told = |why| told(why, &wanted);
        if dry_run {
            acts.check(&wanted, now).await.map_err(told)?;
            return Ok((StatusCode::CREATED, Bytes::from(sketched(&wanted).to_string())));
        }
        acts.create(&wanted, now).await.map_err(told)?;
        let body = self.as_seen(&wanted.name, caller, target).await?;
        Ok((StatusCode::CREATED, body))
    }

    /// The namespace as its creator sees it in the cluster: that they do is the proof that their access is in effect.
    async fn as_seen(&self, name: &str, caller: &Caller, target: &Target) -> Result<Bytes, Status> {
        let late = || Status::timeout(format!("namespace {name:?} was made, and access to it is not effective yet"));
        let look = async {
            loop {
                if let Some(body) = self.look(name, caller, target).await? {
                    return Ok(body);
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::time::timeout(SEEN_WITHIN, look).await.unwrap_or_else(|_| Err(late()))
    }

    /// One look, as the caller. `None` where it may succeed later.
    async fn look(&self, name: &str, caller: &Caller, target: &Target) -> Result<Option<Bytes>, Status> {
        let request = ResourceRequest::asked("get", "", "v1", "namespaces", "", name, name);
        let request = RequestInfo::Resource(request.unwrap_or_default());
        let (groups, impersonation) = {
            let now = self.index.now();
            let snapshot = self.index.snapshot();
            let owner = snapshot.still_live(&caller.token, now).ok_or_else(Status::unauthorized)?;
            let ctx = Context {
                snapshot: &snapshot,
                asker: Asker { user: &owner.object, scopes: &caller.token.record.scopes },
                place: Place { cluster: &target.cluster, project: target.project.as_deref(), namespace: name },
                request: &request,
                now,
            };
            // Not in effect in this version: another one may follow.
            let Ok(decision) = decide::authorize(&*self.decider, &ctx) else { return Ok(None) };
            let seen = snapshot.observed(target.cluster.as_str());
            (decision.groups, seen.map(|seen| seen.impersonation).unwrap_or_default())
        };
        let Some(upstream) = self.upstreams.upstream(&target.cluster) else { return Ok(None) };
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        let identity = Identity {
            user: &caller.token.record.user,
            uid: &caller.token.record.user_uid,
            groups: &groups,
            token: &caller.token.record.id,
            impersonation,
        };
        rewrite::write_identity(&mut headers, &identity, upstream.credential())
            .map_err(|_| Status::internal("the identity cannot be written safely"))?;
        let mut request = Request::new(Outgoing::Empty);
        *request.headers_mut() = headers;
        *request.uri_mut() = http::Uri::try_from(format!("/api/v1/namespaces/{name}"))
            .map_err(|_| Status::internal("the name cannot be asked for"))?;
        let Ok(response) = upstream.send(Way::Short, request).await else { return Ok(None) };
        if response.status() != StatusCode::OK {
            return Ok(None);
        }
        Ok(Limited::new(response.into_body(), MAX_NAMESPACE).collect().await.ok().map(|body| body.to_bytes()))
    }

    async fn unmake(
        &self,
        deletion: Deletion,
        acts: &Arc<dyn OwnNamespaces>,
        caller: &Caller,
        target: &Target,
        registered: Registered,
    ) -> Result<(StatusCode, Bytes), Status> {
        let Deletion { project, name, uid, dry_run } = deletion;
        let cluster = target.cluster.as_str();
        if !dry_run {
            let told = |why: ActError| about(why.status(), &name);
            // What is done now ends the caller's own right in it, which is no reason to break off. All was sent, and what
            // was decided on is one write.
            drop(registered);
            acts.delete(&project, cluster, &name, &caller.token.record.user).await.map_err(told)?;
            self.until_gone(cluster, &name, &uid).await;
        }
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
            "details": {"name": name, "kind": "namespaces", "uid": uid},
        });
        Ok((StatusCode::OK, Bytes::from(status.to_string())))
    }

    /// Waits until the namespace is gone from the cluster, and its claim with it.
    async fn until_gone(&self, cluster: &str, name: &str, uid: &str) {
        let mut changes = self.index.subscribe();
        let gone = async {
            loop {
                let snapshot = self.index.snapshot();
                let claim = snapshot.claim(cluster, name);
                let still = claim.is_some_and(|claim| claim.object.namespace_uid.as_deref().unwrap_or_default() == uid);
                if !still || changes.changed().await.is_err() {
                    return;
                }
            }
        };
        let _ = tokio::time::timeout(GONE_WITHIN, gone).await;
    }
}

fn answer(status: StatusCode, body: Bytes, mut finish: Finish) -> Response<ProxyBody> {
    finish.answered(status);
    finish.count(body.len());
    finish.complete();
    let mut response = Response::new(ProxyBody::Whole(Some(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

fn about(mut status: Status, name: &str) -> Status {
    status.details.group.clear();
    status.details.kind = "namespaces".to_owned();
    status.details.name = name.to_owned();
    status
}

/// What kept a namespace from being made, as its creator may know it. Only one's own namespace "already exists". One that
/// another project has, or the cluster itself, cannot be had, and the answer is the same.
fn told(why: ActError, wanted: &NewNamespace) -> Status {
    let NewNamespace { project, cluster, name, .. } = wanted;
    let status = match why {
        ActError::Tenancy(TenancyError::Taken { .. }) | ActError::Refused(_) => Status::forbidden(format!(
            "namespaces {name:?} is forbidden: the name cannot be had on cluster {cluster:?} by project {project:?}; choose another one"
        )),
        ActError::Tenancy(TenancyError::AlreadyOwned { .. }) => {
            let message = format!("namespaces {name:?} already exists, in project {project:?}");
            Status::new(StatusCode::CONFLICT, "AlreadyExists", message)
        }
        ActError::Tenancy(TenancyError::Releasing { .. }) => {
            let message =
                format!("object is being deleted: namespaces {name:?} already exists; try again when it is gone");
            Status::new(StatusCode::CONFLICT, "AlreadyExists", message)
        }
        other => other.status(),
    };
    about(status, name)
}

/// What a dry run answers: the namespace as it would be asked for.
fn sketched(wanted: &NewNamespace) -> Value {
    let mut labels = json!(wanted.metadata.labels);
    labels[PROJECT] = json!(wanted.project);
    labels["kubernetes.io/metadata.name"] = json!(wanted.name);
    json!({
        "kind": "Namespace", "apiVersion": "v1",
        "metadata": {
            "name": wanted.name, "creationTimestamp": null, "labels": labels, "annotations": wanted.metadata.annotations,
        },
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Active"},
    })
}
