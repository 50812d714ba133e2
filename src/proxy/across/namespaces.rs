//! The namespaces themselves: `kubectl get namespaces` shows one's own.
//!
//! Kubernetes has no right to list some namespaces and not others, so this cannot be asked for in the caller's name. The
//! service asks by its own account for what bears the labels of the caller's projects, which only that account may set,
//! and passes on those that are the caller's by name and UID: two walls here, too. This is the only thing that is
//! ever asked for a client without the client's identity, and nothing of it comes from the client but selectors.

use std::collections::{HashMap, HashSet};
use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::task::{Context as Polled, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::header::{self, HeaderMap, HeaderValue};
use http::uri::PathAndQuery;
use http::{Request, Response, StatusCode};
use hyper::body::Body as _;
use serde::Deserialize;
use tokio::sync::watch::Receiver;
use tokio::time::Sleep;

use super::frames::{self, Head, Kind, Lines};
use super::held_back::HeldBack;
use super::list::{Listed, unmergeable};
use super::members::Members;
use super::merge::{self, Document};
use super::query::{Match, Options, add, escape};
use super::spread::{self, Share, Taken};
use super::views::Viewed;
use super::watch::default_seconds;
use crate::clusters::names::PROJECT_UID;
use crate::clusters::outgoing::Outgoing;
use crate::clusters::upstream::{ClusterBody, Upstream, Way};
use crate::index::{Index, Snapshot, State};
use crate::proxy::rewrite;
use crate::proxy::service::answers::{refused_answer, unreachable};
use crate::status::Status;

/// Beyond so many projects all that are anybody's are asked for.
const PROJECTS: usize = 100;

/// An event of a namespace that was just made may be on its way when the namespace is already known.
const PATIENCE: Duration = Duration::from_secs(2);

/// Written at the latest when so much waits.
const FULL: usize = 64 * 1024;
/// So much is read at a time; then others have their turn.
const TURN: usize = 1024 * 1024;

/// Names and UIDs.
type Known = HashMap<String, String>;

/// What is asked of the cluster, and how.
pub struct Asking<'a> {
    /// The data path with the service's own account.
    pub own: &'a Upstream,
    /// What the client accepts.
    pub accept: HeaderValue,
    /// Memory.
    pub share: Share,
    /// Id of the records.
    pub id: &'a str,
}

/// Computes the caller's namespaces anew.
pub type Membership = Box<dyn Fn(&Snapshot) -> Option<Known> + Send + Sync>;

impl Members {
    /// Names and UIDs.
    pub fn known(&self) -> Known {
        self.permitted.iter().map(|member| (member.namespace.clone(), member.uid.clone())).collect()
    }

    fn selector(&self) -> String {
        match &self.projects {
            Some(uids) if (1..=PROJECTS).contains(&uids.len()) => {
                format!("{PROJECT_UID} in ({})", uids.iter().map(String::as_str).collect::<Vec<_>>().join(","))
            }
            _ => PROJECT_UID.to_owned(),
        }
    }
}

impl Asking<'_> {
    async fn ask(&self, way: Way, query: &str) -> Result<Response<ClusterBody>, Status> {
        let path = PathAndQuery::try_from(format!("/api/v1/namespaces?{query}"))
            .map_err(|_| Status::bad_request("the selectors cannot be forwarded"))?;
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, self.accept.clone());
        if let Ok(id) = HeaderValue::from_str(self.id) {
            headers.insert("audit-id", id);
        }
        rewrite::write_own(&mut headers, self.own.credential());
        let mut request = Request::new(Outgoing::Empty);
        *request.uri_mut() = path.into();
        *request.headers_mut() = headers;
        let mut response = self.own.send(way, request).await.map_err(|why| unreachable(&why))?;
        if let Some(status) = refused_answer(response.status(), way) {
            return Err(status);
        }
        match response.status() {
            StatusCode::OK => Ok(response),
            // Whose right is missing is nothing that the client could do anything about.
            StatusCode::FORBIDDEN => Err(Status::unavailable("the service may not list namespaces on this cluster")),
            code => Err(spread::refusal(code, &mut response, "").await),
        }
    }
}

/// Lists. Pages are not made: the cluster's token would name a key of another tenant, and namespaces are few.
pub async fn list(asking: &Asking<'_>, members: &Members, options: &Options) -> Result<Listed, Status> {
    if options.proceed.is_some() {
        return Err(Status::expired("the continue token was not given for this list; list again"));
    }
    let mut query = selected(members, options);
    if !options.revision.is_empty() {
        add(&mut query, "resourceVersion", &options.revision);
    }
    match options.matching {
        Some(Match::Exact) => add(&mut query, "resourceVersionMatch", "Exact"),
        Some(Match::NotOlderThan) => add(&mut query, "resourceVersionMatch", "NotOlderThan"),
        None => {}
    }
    let response = asking.ask(Way::Short, &query).await?;
    let answer = spread::read(response, &asking.share, &AtomicUsize::new(0)).await?;
    let known = members.known();
    let document = Document::filtered(&answer.body, |object| named(object).is_some_and(|found| found.is_of(&known)))
        .map_err(|why| unmergeable(&why))?;
    let revision = document.revision.clone();
    let parts = merge::merged(&[document], &revision, "").map_err(|why| unmergeable(&why))?;
    Ok(Listed {
        parts,
        warnings: vec![],
        content_type: answer.headers.get(header::CONTENT_TYPE).cloned(),
        revision: revision.parse().ok(),
        first: true,
        taken: vec![answer.taken],
    })
}

/// Our selector and the client's. Ours stands first and is whole: nothing that comes after it can take it in.
fn selected(members: &Members, options: &Options) -> String {
    let mut query = String::new();
    let mut labels = members.selector();
    for (key, value) in &options.passed {
        match *key {
            "labelSelector" if value.is_empty() => {}
            "labelSelector" => labels = format!("{labels},{value}"),
            // Rows without their objects could not be told apart.
            "includeObject" if value != "Object" => {}
            key => add(&mut query, key, &escape(value)),
        }
    }
    add(&mut query, "labelSelector", &escape(&labels));
    query
}

/// Name and UID of a namespace, or of the one that a row is about.
#[derive(Deserialize)]
struct Named {
    metadata: Option<Metadata>,
    object: Option<Object>,
    rows: Option<Vec<Row>>,
}

#[derive(Deserialize)]
struct Row {
    object: Option<Object>,
}

#[derive(Deserialize)]
struct Object {
    metadata: Metadata,
}

#[derive(Deserialize, Clone, Default)]
#[serde(default)]
struct Metadata {
    name: String,
    uid: String,
}

impl Metadata {
    fn is_of(&self, known: &Known) -> bool {
        !self.uid.is_empty() && known.get(&self.name) == Some(&self.uid)
    }
}

fn named(object: &str) -> Option<Metadata> {
    let Named { metadata, object, rows } = serde_json::from_str(object).ok()?;
    match (object, rows) {
        (Some(object), _) => Some(object.metadata),
        // A Table in a watch has one row.
        (None, Some(rows)) => rows.into_iter().next()?.object.map(|object| object.metadata),
        (None, None) => metadata,
    }
}

/// A watch of one's own namespaces.
pub struct NamespacesWatch {
    body: ClusterBody,
    lines: Lines,
    share: Share,
    // For an event that is longer than most are, and for those of them that wait to be written.
    taken: Taken,
    waiting: Vec<Taken>,
    index: Arc<Index>,
    cluster: String,
    membership: Membership,
    only: Option<String>,
    changed: BoxFuture<'static, Option<Receiver<State>>>,
    allowed: Known,
    // Those that the client knows of.
    shown: Known,
    held_back: HeldBack,
    // Those that joined, and of which the cluster has said nothing yet.
    awaited: HashSet<String>,
    patience: Option<Pin<Box<Sleep>>>,
    end: Pin<Box<Sleep>>,
    view: Viewed,
    newest: u64,
    out: BytesMut,
    over: bool,
}

/// What a watch of namespaces is made of, besides what is asked.
pub struct Watching {
    /// Where changes come from.
    pub index: Arc<Index>,
    /// Which cluster.
    pub cluster: String,
    /// Computes what is the caller's.
    pub membership: Membership,
    /// The one namespace that the client selects by its name.
    pub only: Option<String>,
    /// What is remembered of the view.
    pub view: Viewed,
}

/// Opens a watch.
pub async fn watch(
    asking: &Asking<'_>,
    members: &Members,
    options: &Options,
    watching: Watching,
) -> Result<(Option<HeaderValue>, NamespacesWatch), Status> {
    let seconds = options.timeout_seconds.unwrap_or_else(default_seconds);
    let mut query = selected(members, options);
    add(&mut query, "watch", "true");
    add(&mut query, "timeoutSeconds", &seconds.to_string());
    if options.bookmarks {
        add(&mut query, "allowWatchBookmarks", "true");
    }
    if !options.revision.is_empty() {
        add(&mut query, "resourceVersion", &options.revision);
    }
    if options.initial_events {
        add(&mut query, "sendInitialEvents", "true");
        add(&mut query, "resourceVersionMatch", "NotOlderThan");
    }
    let response = asking.ask(Way::Streaming, &query).await?;
    let content_type = response.headers().get(header::CONTENT_TYPE).cloned();
    let Watching { index, cluster, membership, only, view } = watching;
    let allowed = members.known();
    // What begins with what is there shows everything itself.
    let shown = if matches!(view, Viewed::Known(_)) { allowed.clone() } else { Known::new() };
    let changed = next_change(index.subscribe());
    let watch = NamespacesWatch {
        body: response.into_body(),
        lines: Lines::default(),
        share: asking.share.clone(),
        taken: Taken::default(),
        waiting: vec![],
        index,
        cluster,
        membership,
        only,
        changed,
        allowed,
        shown,
        held_back: HeldBack::default(),
        awaited: HashSet::new(),
        patience: None,
        end: Box::pin(tokio::time::sleep(Duration::from_secs(seconds))),
        view,
        newest: 0,
        out: BytesMut::new(),
        over: false,
    };
    Ok((content_type, watch))
}

fn next_change(mut state: Receiver<State>) -> BoxFuture<'static, Option<Receiver<State>>> {
    async move { state.changed().await.ok().map(|()| state) }.boxed()
}

impl NamespacesWatch {
    /// What is to be written next; nothing at the end.
    pub fn poll_next(&mut self, cx: &mut Polled<'_>) -> Poll<Option<Bytes>> {
        while let Poll::Ready(state) = self.changed.poll_unpin(cx) {
            let Some(state) = state else {
                self.over = true;
                break;
            };
            self.changed = next_change(state);
            self.judge();
        }
        self.read(cx);
        if !self.over && self.waits_in_vain(cx) {
            self.expire("your namespaces changed; list again");
        }
        self.view.seen(self.newest);
        if !self.out.is_empty() {
            let bytes = std::mem::take(&mut self.out).freeze();
            return Poll::Ready(Some(spread::counted(bytes, std::mem::take(&mut self.waiting))));
        }
        if self.over || self.end.as_mut().poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        Poll::Pending
    }

    fn read(&mut self, cx: &mut Polled<'_>) {
        let mut turn = 0;
        while !self.over {
            if turn > TURN {
                cx.waker().wake_by_ref();
                return;
            }
            // What is written wakes this again.
            if self.out.len() >= FULL {
                return;
            }
            match self.lines.next() {
                Ok(Some(line)) => {
                    turn += line.len();
                    let taken = (line.len() > FULL).then(|| std::mem::take(&mut self.taken));
                    let before = self.out.len();
                    self.take(line);
                    self.waiting.extend(taken.filter(|_| self.out.len() > before));
                }
                Err(_) => self.expire("the cluster sent an event without end; list again"),
                Ok(None) => match Pin::new(&mut self.body).poll_frame(cx) {
                    Poll::Ready(Some(Ok(frame))) => {
                        let Some(data) = frame.data_ref() else { continue };
                        turn += data.len();
                        self.lines.push(data);
                        match self.lines.len() {
                            0..=FULL => self.taken = Taken::default(),
                            long if self.taken.grow(long, &self.share) => {}
                            _ => self.expire("too many long events at a time; list again"),
                        }
                    }
                    Poll::Ready(Some(Err(_))) => self.expire("the cluster broke off the watch; list again"),
                    Poll::Ready(None) => self.over = true,
                    Poll::Pending => return,
                },
            }
        }
    }

    fn take(&mut self, line: Bytes) {
        let Ok(head) = Head::read(&line) else { return self.expire("the cluster sent no event; list again") };
        match head.kind {
            Kind::Bookmark(ends) => {
                self.newest = self.newest.max(head.revision.unwrap_or_default());
                if let Some(revision) = head.revision.filter(|_| ends) {
                    self.view.begins(revision);
                }
                self.out.extend_from_slice(&line);
            }
            Kind::Error => {
                self.out.extend_from_slice(&line);
                self.over = true;
            }
            Kind::Change => {
                let Ok(text) = std::str::from_utf8(&line) else { return };
                let Ok(event) = serde_json::from_str::<Event>(text) else { return };
                let deleted = event.r#type == "DELETED";
                let Some(about) = event.about() else { return };
                self.change(about, deleted, head.revision, line);
            }
        }
    }

    fn change(&mut self, about: Metadata, deleted: bool, revision: Option<u64>, line: Bytes) {
        let shown = about.is_of(&self.shown);
        let passes = if deleted { shown } else { about.is_of(&self.allowed) };
        if passes {
            self.out.extend_from_slice(&line);
            self.newest = self.newest.max(revision.unwrap_or_default());
        }
        match (deleted, passes) {
            (true, _) => {
                drop(self.held_back.remove(&about.name));
                if shown {
                    self.shown.remove(&about.name);
                }
            }
            (false, true) => {
                self.awaited.remove(&about.name);
                self.shown.insert(about.name, about.uid);
            }
            // What is not held back and joins later is missed, and found to be.
            (false, false) => self.held_back.insert(about.name, &line, &self.share),
        }
    }

    /// What is the client's now.
    fn judge(&mut self) {
        let snapshot = self.index.snapshot();
        let Some(allowed) = (self.membership)(&snapshot) else { return };
        if allowed == self.allowed {
            return;
        }
        let old = std::mem::replace(&mut self.allowed, allowed);
        let wanted = |name: &String| self.only.as_ref().is_none_or(|only| only == name);
        let is_new = |name: &String, uid: &_| old.get(name) != Some(uid) && wanted(name);
        let joined: Vec<String> =
            self.allowed.iter().filter(|(name, uid)| is_new(name, *uid)).map(|(name, _)| name.clone()).collect();
        let there = snapshot.observed(self.cluster.as_str());
        let exists = |name: &str, uid: &str| there.is_some_and(|o| o.namespaces.get(name).is_some_and(|u| **u == *uid));
        // On its way out: deleted in a moment, or given back without our labels.
        let leaving = |name: &str| snapshot.claim(&self.cluster, name).is_some_and(|claim| claim.object.releasing);
        // What is gone is told by the cluster in a moment. What is there and no longer the client's, nobody would tell.
        // One that was made again under its name is another one.
        let lost = |name: &str, uid: &str| {
            self.allowed.get(name).is_none_or(|now| *now != *uid) && exists(name, uid) && !leaving(name)
        };
        if self.shown.iter().any(|(name, uid)| lost(name, uid)) {
            return self.expire("your namespaces changed; list again");
        }
        for name in joined {
            match self.held_back.remove(&name) {
                Some(line) => self.join(&line),
                None => drop(self.awaited.insert(name)),
            }
        }
        if !self.awaited.is_empty() {
            self.patience = Some(Box::pin(tokio::time::sleep(PATIENCE)));
        }
    }

    /// Whether the cluster has said nothing of what joined: it was granted, which is no event there. Only a new list
    /// tells.
    fn waits_in_vain(&mut self, cx: &mut Polled<'_>) -> bool {
        if self.awaited.is_empty() {
            self.patience = None;
        }
        self.patience.as_mut().is_some_and(|patience| patience.as_mut().poll(cx).is_ready())
    }

    /// What was held back is the client's now: to them it is new.
    fn join(&mut self, line: &Bytes) {
        let read = std::str::from_utf8(line).ok().and_then(|text| serde_json::from_str::<Event>(text).ok()?.about());
        let Some(about) = read.filter(|about| about.is_of(&self.allowed)) else { return };
        let Ok(mut event) = serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(line) else { return };
        event.insert("type".into(), "ADDED".into());
        self.out.extend_from_slice(serde_json::Value::from(event).to_string().as_bytes());
        self.out.extend_from_slice(b"\n");
        self.shown.insert(about.name, about.uid);
    }

    fn expire(&mut self, why: &str) {
        self.out.extend_from_slice(&frames::expired(why));
        self.over = true;
    }
}

#[derive(Deserialize)]
struct Event {
    r#type: String,
    object: Named,
}

impl Event {
    fn about(self) -> Option<Metadata> {
        match (self.object.rows, self.object.metadata) {
            (Some(rows), _) => rows.into_iter().next()?.object.map(|object| object.metadata),
            (None, metadata) => metadata,
        }
    }
}
