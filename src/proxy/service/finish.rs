//! The end of a request: its record and what is counted of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use http::{Response, StatusCode};

use super::Proxy;
use super::answers::{millis, own};
use crate::audit::{Stage, Surface, What};
use crate::domain::request::RequestInfo;
use crate::metrics::{StreamKind, VerbClass};
use crate::proxy::body::ProxyBody;
use crate::proxy::budget::InFlight;
use crate::proxy::meters;
use crate::proxy::streams::{Registered, StreamKey};
use crate::status::Status;

/// A short read that lasts longer than this is watched over like a stream from then on.
const LINGERS: Duration = Duration::from_secs(1);

/// Completes the record of a forwarded request, however it ends; dropped early, the client went away.
pub struct Finish {
    proxy: Arc<Proxy>,
    id: String,
    pub(super) what: What,
    class: VerbClass,
    kind: StreamKind,
    started: Instant,
    mutates: bool,
    pub(super) long: bool,
    opened: bool,
    // Counted by the body of the request, where there is one.
    sent: Option<Arc<AtomicU64>>,
    received: u64,
    open: bool,
    // Its places in the budgets, held to the end.
    _in_flight: InFlight,
}

impl Finish {
    pub(in crate::proxy) fn new(
        proxy: Arc<Proxy>,
        id: String,
        what: What,
        request: &RequestInfo,
        started: Instant,
        long: bool,
        in_flight: InFlight,
    ) -> Self {
        Self {
            proxy,
            id,
            what,
            class: meters::class(Some(request)),
            kind: meters::stream(request),
            started,
            mutates: matches!(request, RequestInfo::Resource(r) if r.mutates()),
            long,
            opened: false,
            sent: None,
            received: 0,
            open: true,
            _in_flight: in_flight,
        }
    }

    /// The cluster answered.
    pub(in crate::proxy) fn answered(&mut self, status: StatusCode) {
        self.what.status = Some(status.as_u16());
        if self.long {
            self.opened = true;
            meters::streams(&self.proxy.metrics, self.kind, 1);
            self.proxy.audit.note(&self.id, Stage::Opened, Surface::Kube, self.what.clone());
        }
    }

    /// Where the bytes from the client are counted.
    pub(super) fn sent(&mut self) -> Arc<AtomicU64> {
        self.sent.get_or_insert_default().clone()
    }

    /// Whether the response goes on until somebody ends it.
    pub fn is_long(&self) -> bool {
        self.long
    }

    /// How long a cluster may be silent amid a short answer.
    pub fn longest_silence(&self) -> Duration {
        self.proxy.settings.stall
    }

    /// Whether the request is so old that its right is no longer taken for granted.
    pub fn lingers(&self) -> bool {
        self.started.elapsed() >= LINGERS
    }

    /// Enters what lingers in the register, where it is judged at once.
    pub fn enter(&self, key: StreamKey) -> Registered {
        let Proxy { streams, index, decider, .. } = &*self.proxy;
        streams.enter_late(key, index, &**decider)
    }

    /// Bytes went to the client.
    pub fn count(&mut self, bytes: usize) {
        self.received += bytes as u64;
    }

    /// Bytes went both ways.
    pub fn count_both(&mut self, from_client: u64, from_cluster: u64) {
        self.sent().store(from_client, Ordering::Relaxed);
        self.received = from_cluster;
    }

    /// All of the response was passed on.
    pub fn complete(&mut self) {
        self.close("");
    }

    /// The right ended.
    pub fn cut(&mut self, cause: &'static str) {
        self.close(cause);
    }

    /// A connection broke.
    pub fn broke(&mut self, why: &'static str) {
        self.close(why);
    }

    /// There is no response of the cluster to pass on.
    pub(in crate::proxy) fn fail(mut self, reason: &'static str, status: Status) -> Response<ProxyBody> {
        self.what.status = Some(status.code);
        self.close(reason);
        own(status)
    }

    fn close(&mut self, reason: &str) {
        if !std::mem::replace(&mut self.open, false) {
            return;
        }
        let mut what = std::mem::take(&mut self.what);
        reason.clone_into(&mut what.reason);
        what.bytes_in = Some(self.sent.as_ref().map_or(0, |sent| sent.load(Ordering::Relaxed)));
        what.bytes_out = Some(self.received);
        what.duration_ms = Some(millis(self.started));
        meters::answered(&self.proxy.metrics, self.class, &what, self.long, self.started);
        if self.opened {
            meters::streams(&self.proxy.metrics, self.kind, -1);
        }
        let stage = match (self.opened, self.mutates) {
            (true, _) => Stage::Closed,
            (false, true) => Stage::Outcome,
            (false, false) => Stage::Read,
        };
        self.proxy.audit.note(&self.id, stage, Surface::Kube, what);
    }
}

impl Drop for Finish {
    fn drop(&mut self) {
        self.close("the client went away");
    }
}
