//! Watches: a stream of JSON events after a version.
//!
//! The history comes from the store, the judgement of who sees what from the index. A watch that can no longer be
//! trusted to show the whole picture ends with 410, so that its client lists again: when its caller comes to see
//! more or less than at the start. It ends without a word when its token dies.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http::header::{CONTENT_TYPE, HeaderValue};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::accept::{Accepted, Include, Shape};
use super::call::{Call, Opened};
use super::kinds::Served;
use super::params::ListOptions;
use super::rights::Rights;
use super::view::{View, token_object};
use super::{Answer, ApiState, table};
use crate::index::Snapshot;
use crate::records::TokenRecord;
use crate::resources::API_VERSION;
use crate::status::Status;
use crate::store::{Event, Events, Kind, Revision, StoreError};

/// Events that wait for a slow client before the watch stops reading the store.
const BUFFER: usize = 64;
/// Pause between bookmarks, as Kubernetes has it.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// Pause between looks at the clock: grants and tokens end by time, without any change.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A watch without `timeoutSeconds` ends after this; clients come again.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// Watches that one account may have open. Each looks at its whole kind once a second.
pub(super) const MAX_WATCHES: usize = 100;
/// The longest `timeoutSeconds` that is granted.
const MAX_TIMEOUT: u64 = 24 * 60 * 60;

/// Starts a watch.
pub(super) async fn start(
    state: &ApiState,
    call: &Call,
    served: &'static Served,
    options: ListOptions,
    accepted: Accepted,
) -> Answer {
    let parts = &state.0.parts;
    let Some(place) = state.0.watches.take(call.user()) else {
        let message =
            format!("you have {MAX_WATCHES} watches open, which is the most one account may have; close some");
        return Err(Status::too_many_requests(message, 10).into());
    };
    let snapshot = call.snapshot.clone();
    let initial = match (options.send_initial_events, options.resource_version) {
        (Some(wanted), _) => wanted,
        (None, None | Some(0)) => true,
        (None, Some(_)) => false,
    };
    let from = match options.resource_version {
        Some(version) if !initial && version != 0 => Revision(version),
        _ => snapshot.revision,
    };
    if from > snapshot.revision {
        return Err(
            Status::timeout(format!("Too large resource version: {from}, current: {}", snapshot.revision)).into()
        );
    }
    let events = match parts.store.watch(from).await {
        Ok(events) => events,
        // Kubernetes tells it as an event of a watch that began well.
        Err(StoreError::Compacted { .. }) => return Ok(only_expired()),
        Err(why) => {
            tracing::error!(%why, "a watch could not be started");
            return Err(Status::unavailable("the store is not available").into());
        }
    };
    let timeout = options
        .timeout_seconds
        .filter(|seconds| *seconds > 0)
        .map_or(DEFAULT_TIMEOUT, |seconds| Duration::from_secs(seconds.min(MAX_TIMEOUT)));
    let (out, received) = mpsc::channel(BUFFER);
    let watch = Watch {
        state: state.clone(),
        call: call.clone(),
        served,
        shape: accepted.shape,
        out,
        seen: BTreeMap::new(),
        replayed: snapshot.revision,
        last: from,
        initial_events_end: options.send_initial_events == Some(true),
        initial,
        options,
        closing: call.open(state),
        _place: place,
    };
    tokio::spawn(watch.run(events, snapshot, Instant::now() + timeout));
    let body = stream::unfold(received, |mut received| async move {
        let line: Bytes = received.recv().await?;
        Some((Ok::<_, std::convert::Infallible>(line), received))
    });
    let mut response = Response::new(Body::from_stream(body));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json;stream=watch"));
    Ok(response)
}

fn expired() -> Status {
    Status::expired("too old resource version: list again")
}

fn line(type_: &str, object: &Value) -> Bytes {
    let mut text = json!({"type": type_, "object": object}).to_string();
    text.push('\n');
    Bytes::from(text)
}

fn only_expired() -> Response {
    let mut response = Response::new(Body::from(line("ERROR", &expired().to_json())));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json;stream=watch"));
    response
}

struct Watch {
    state: ApiState,
    call: Call,
    served: &'static Served,
    shape: Shape,
    options: ListOptions,
    out: mpsc::Sender<Bytes>,
    /// What the client has, by name, with the revision that it has.
    seen: BTreeMap<Arc<str>, Seen>,
    /// Up to here events are of the past; the visibility of then is not known any more.
    replayed: Revision,
    /// Everything up to here has been told.
    last: Revision,
    initial: bool,
    initial_events_end: bool,
    closing: Opened,
    _place: WatchPlace,
}

/// How many watches each account has open.
#[derive(Clone, Default)]
pub(super) struct Watches(Arc<Mutex<HashMap<String, usize>>>);

/// One of the watches of an account; given back when dropped.
struct WatchPlace {
    watches: Watches,
    user: String,
}

impl Watches {
    fn take(&self, user: &str) -> Option<WatchPlace> {
        let mut open = self.0.lock();
        let count = open.entry(user.to_owned()).or_default();
        if *count >= MAX_WATCHES {
            return None;
        }
        *count += 1;
        Some(WatchPlace { watches: self.clone(), user: user.to_owned() })
    }
}

impl Drop for WatchPlace {
    fn drop(&mut self) {
        let mut open = self.watches.0.lock();
        if let Some(count) = open.get_mut(&self.user) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.user);
            }
        }
    }
}

#[derive(Clone, Copy)]
struct Seen {
    revision: Revision,
    /// Whether the selector takes it; what it does not take is remembered for the visibility alone.
    selected: bool,
}

/// Why a watch ends.
enum End {
    /// The client is gone.
    Left,
    /// The client must list again.
    Expired(&'static str),
    /// Nothing more is said.
    Quiet(&'static str),
}

impl Watch {
    async fn run(mut self, events: Events, snapshot: Arc<Snapshot>, deadline: Instant) {
        let end = match self.begin(&snapshot).await {
            Ok(()) => self.follow(events, deadline).await,
            Err(end) => end,
        };
        match end {
            End::Left => self.closing.because("the client left"),
            End::Quiet(why) => self.closing.because(why),
            End::Expired(why) => {
                self.closing.because(why);
                // The client may be slow or gone; the stream ends either way.
                let _ = self.out.send(line("ERROR", &expired().to_json())).await;
            }
        }
    }

    async fn begin(&mut self, snapshot: &Arc<Snapshot>) -> Result<(), End> {
        let view = View { snapshot, now: self.state.0.parts.index.now() };
        let mut first = vec![];
        for (name, object) in self.visible(view) {
            let selected = self.options.selector.matches(&object);
            // Of a watch from the past, what is newer than its start comes as events.
            let revision = view.revision(self.served.kind, &name).unwrap_or_default();
            if self.initial || revision <= self.last {
                self.seen.insert(name, Seen { revision, selected });
            }
            if self.initial && selected {
                first.push(object);
            }
        }
        for object in first {
            self.send("ADDED", object).await?;
        }
        if self.initial_events_end && self.options.bookmarks {
            self.bookmark(true).await?;
        }
        Ok(())
    }

    fn rights<'a>(&'a self, view: View<'a>) -> Rights<'a> {
        Rights { view, caller: &self.call.caller, access: &self.state.0.parts.access }
    }

    fn visible(&self, view: View<'_>) -> Vec<(Arc<str>, Value)> {
        let rights = self.rights(view);
        let objects = view.names(self.served.kind).into_iter().filter_map(|name| {
            let object = view.object(self.served.kind, &name)?;
            rights.sees(self.served.kind, &object).then_some((name, object))
        });
        objects.collect()
    }

    async fn follow(&mut self, mut events: Events, deadline: Instant) -> End {
        let index = self.state.0.parts.index.clone();
        let shutdown = self.state.0.parts.shutdown.clone();
        let out = self.out.clone();
        let mut versions = index.subscribe();
        let mut looks = tokio::time::interval(LOOK_EVERY);
        let mut bookmarks = tokio::time::interval_at(Instant::now() + BOOKMARK_EVERY, BOOKMARK_EVERY);
        loop {
            let step = tokio::select! {
                biased;
                () = shutdown.cancelled() => return End::Quiet("the service is going down"),
                () = out.closed() => return End::Left,
                () = tokio::time::sleep_until(deadline) => return End::Quiet("its time is over"),
                changed = versions.changed() => match changed {
                    Ok(()) => self.check_token(&index.snapshot()),
                    Err(_) => return End::Quiet("the service is going down"),
                },
                _ = looks.tick() => self.look(&index.snapshot()),
                event = events.next() => match event {
                    Some(Ok(event)) => {
                        if index.applied(event.revision()).await.is_err() {
                            return End::Quiet("the service is going down");
                        }
                        self.tell(event).await
                    }
                    Some(Err(StoreError::Compacted { .. })) => return End::Expired("it fell behind the history"),
                    Some(Err(_)) | None => return End::Quiet("the store's watch ended"),
                },
                _ = bookmarks.tick(), if self.options.bookmarks => self.bookmark(false).await,
            };
            if let Err(end) = step {
                return end;
            }
        }
    }

    fn check_token(&self, snapshot: &Snapshot) -> Result<(), End> {
        if !self.state.0.parts.index.is_fresh() {
            return Err(End::Quiet("the store cannot be reached"));
        }
        let id = self.call.caller.token.record.id.as_str();
        let alive =
            snapshot.tokens.get(id).and_then(|token| snapshot.live_owner(token, self.state.0.parts.index.now()));
        if alive.is_none() { Err(End::Quiet("the token is no longer valid")) } else { Ok(()) }
    }

    /// Whether the caller still is who it was, and sees what it saw.
    fn look(&mut self, snapshot: &Arc<Snapshot>) -> Result<(), End> {
        self.check_token(snapshot)?;
        let view = View { snapshot, now: self.state.0.parts.index.now() };
        if self.rights(view).sees_all(self.served.kind) {
            // There is nothing more to see. Who saw less before has fewer objects than there are, and is told below
            // once it loses sight again; the events in between are complete only from a new list.
            let complete = view.names(self.served.kind).into_iter().all(|name| {
                let newer = view.revision(self.served.kind, &name).is_none_or(|revision| revision > self.last);
                newer || self.seen.contains_key(&name)
            });
            return if complete { Ok(()) } else { Err(End::Expired("the caller sees more than before")) };
        }
        let visible = self.visible(view);
        for (name, _) in &visible {
            let unchanged = view.revision(self.served.kind, name).is_some_and(|revision| revision <= self.last);
            if unchanged && !self.seen.contains_key(name) {
                return Err(End::Expired("the caller sees more than before"));
            }
        }
        for (name, seen) in &self.seen {
            let still = view.revision(self.served.kind, name) == Some(seen.revision);
            if still && visible.binary_search_by(|(other, _)| other.cmp(name)).is_err() {
                return Err(End::Expired("the caller sees less than before"));
            }
        }
        Ok(())
    }

    async fn tell(&mut self, event: Event) -> Result<(), End> {
        let revision = event.revision();
        let kind = event.key().kind;
        let past = revision <= self.replayed;
        if past && self.may_have_changed_sight(kind) {
            return Err(End::Expired("what the caller sees may have changed meanwhile"));
        }
        if kind == self.served.kind && revision > self.last {
            let snapshot = self.state.0.parts.index.snapshot();
            let view = View { snapshot: &snapshot, now: self.state.0.parts.index.now() };
            match event {
                Event::Put { entry, created } => {
                    let object = self.object(view, &entry.key.name, &entry.value, entry.revision);
                    let existed = past && !created;
                    self.put(view, entry.key.name.clone(), object, revision, existed).await?;
                }
                Event::Delete { key, previous, .. } => {
                    let known = self.seen.remove(&key.name);
                    let object = self.object(view, &key.name, &previous, revision);
                    let told = |object: &Value| match known {
                        Some(seen) => seen.selected,
                        None => {
                            let rights = self.rights(view);
                            past && rights.sees(self.served.kind, object) && self.options.selector.matches(object)
                        }
                    };
                    if let Some(object) = object.filter(told) {
                        self.send("DELETED", object).await?;
                    }
                }
            }
        }
        self.last = self.last.max(revision);
        Ok(())
    }

    /// Whether a change of the past may have changed what the caller sees. Who sees the whole kind by a grant that
    /// has not changed since is not touched by anybody else's.
    fn may_have_changed_sight(&self, changed: Kind) -> bool {
        let decides = match self.served.kind {
            Kind::Cluster => matches!(changed, Kind::Grant | Kind::Team | Kind::Project),
            _ => matches!(changed, Kind::Grant | Kind::Team),
        };
        if !decides {
            return false;
        }
        let snapshot = self.state.0.parts.index.snapshot();
        let view = View { snapshot: &snapshot, now: self.state.0.parts.index.now() };
        !self.rights(view).saw_all_since(self.served.kind, self.last)
    }

    async fn put(
        &mut self,
        view: View<'_>,
        name: Arc<str>,
        object: Option<Value>,
        revision: Revision,
        existed: bool,
    ) -> Result<(), End> {
        let rights = self.rights(view);
        let Some(object) = object.filter(|object| rights.sees(self.served.kind, object)) else {
            // It changed out of sight: for this caller it is gone.
            return match self.seen.remove(&name) {
                Some(Seen { selected: true, .. }) => Err(End::Expired("the caller sees less than before")),
                _ => Ok(()),
            };
        };
        let selected = self.options.selector.matches(&object);
        let before = self.seen.insert(name, Seen { revision, selected });
        // Of the past it is not known what the selector made of it; a client takes either word for an object it has.
        let was = before.map_or(existed, |seen| seen.selected);
        match (was, selected) {
            (false, false) => Ok(()),
            (false, true) => self.send("ADDED", object).await,
            (true, true) => self.send("MODIFIED", object).await,
            (true, false) => self.send("DELETED", object).await,
        }
    }

    /// The object of an event as it is read.
    fn object(&self, view: View<'_>, name: &str, value: &[u8], revision: Revision) -> Option<Value> {
        if self.served.kind == Kind::Token {
            let known = view.object(Kind::Token, name);
            let opened = || {
                let key = crate::store::Key::new(Kind::Token, name);
                let record = self.state.0.parts.sealer.open::<TokenRecord>(&key, value).ok()?;
                Some(token_object(&record.content, revision, None))
            };
            return known.or_else(opened);
        }
        let stored = serde_json::from_slice::<Value>(value).ok()?;
        Some(view.stored(self.served.kind, stored, revision))
    }

    async fn send(&self, type_: &str, object: Value) -> Result<(), End> {
        let object = table::single(self.served, self.shape, object, self.state.0.parts.index.now());
        self.out.send(line(type_, &object)).await.map_err(|_| End::Left)
    }

    async fn bookmark(&self, initial_events_end: bool) -> Result<(), End> {
        let mut metadata = json!({"resourceVersion": self.last.to_string()});
        if initial_events_end {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let object = json!({"apiVersion": API_VERSION, "kind": self.served.name(), "metadata": metadata});
        let shape = match self.shape {
            // A row made of nothing but a version has no cells worth showing.
            Shape::Table(_) => Shape::Table(Include::Metadata),
            other => other,
        };
        let object = table::single(self.served, shape, object, self.state.0.parts.index.now());
        self.out.send(line("BOOKMARK", &object)).await.map_err(|_| End::Left)
    }
}
