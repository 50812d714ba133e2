//! Metrics, in Prometheus' text format.
//!
//! No label value comes from a caller: surfaces, verb classes and reasons are fixed, clusters are those that an
//! administrator registered. A user, a namespace or a path is never a label. What the hot path counts is looked up once.

mod labels;

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tracing::error;

pub use self::labels::{
    BudgetKind, BudgetLabel, BudgetScope, CauseLabel, ClusterErrorLabel, ClusterKindLabel, ClusterLabel,
    ClusterResultLabel, CutCause, LoginResult, LoginResultLabel, ReasonLabel, Refusal, RequestLabel, StreamKind,
    StreamLabel, Success, SurfaceLabel, UpstreamError, VerbClass,
};
use crate::audit::{AuditCounters, Surface};

/// Upper bounds of the duration histogram in seconds: 0.5 ms, where a small read from a near cluster ends, to 10 s, where
/// a request is broken or long-running.
const SECONDS: [f64; 14] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// A value that only rises or falls as a whole: revisions, generations, counts.
pub type Level = Gauge<u64, AtomicU64>;

/// All metrics of the process. Share it by `Arc`.
pub struct Metrics {
    registry: Registry,
    hot: [Hot; Surface::ALL.len()],
    /// Requests answered.
    pub requests: Family<RequestLabel, Counter>,
    /// Seconds from a request's head to the end of its response; long-running responses are not in it.
    pub request_seconds: Family<SurfaceLabel, Histogram, fn() -> Histogram>,
    /// Requests that we refused.
    pub refusals: Family<ReasonLabel, Counter>,
    /// Requests that we refused because a budget was used up.
    pub budget_refusals: Family<BudgetLabel, Counter>,
    /// Places of a cluster's budget that are taken now; set when it is read.
    pub cluster_in_flight: Family<ClusterKindLabel, Gauge>,
    /// Long-running responses that are open now.
    pub streams: Family<StreamLabel, Gauge>,
    /// Long-running responses that we ended.
    pub streams_cut: Family<CauseLabel, Counter>,
    /// Requests that a cluster did not answer.
    pub upstream_errors: Family<ClusterErrorLabel, Counter>,
    /// Audit; given to [`crate::audit::AuditSettings`].
    pub audit: AuditCounters,
    /// Writes acknowledged by the store; given to the engine's settings.
    pub store_writes: Counter,
    /// Revision of the store that decisions rest on.
    pub index_revision: Level,
    /// Number of versions of the index so far.
    pub index_generation: Level,
    /// Tasks of the runtime that have not ended, when the page is asked for.
    pub tasks: Level,
    /// 1 where requests to the cluster may be sent.
    pub cluster_usable: Family<ClusterLabel, Gauge>,
    /// Rounds of the controllers.
    pub reconciles: Family<ClusterResultLabel, Counter>,
    /// Objects of ours in the cluster that somebody else keeps changing.
    pub contested: Family<ClusterLabel, Gauge>,
    /// Attempts to sign in.
    pub logins: Family<LoginResultLabel, Counter>,
}

/// What nearly every request counts, looked up once.
struct Hot {
    ok: [Counter; VerbClass::ALL.len()],
    seconds: Histogram,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// All metrics at zero.
    pub fn new() -> Self {
        let requests = Family::<RequestLabel, Counter>::default();
        let request_seconds =
            Family::<SurfaceLabel, Histogram, fn() -> Histogram>::new_with_constructor(|| Histogram::new(SECONDS));
        let hot = Surface::ALL.map(|surface| Hot {
            ok: VerbClass::ALL
                .map(|verb| requests.get_or_create_owned(&RequestLabel { surface: surface.as_str(), verb, code: 200 })),
            seconds: request_seconds.get_or_create_owned(&SurfaceLabel { surface: surface.as_str() }),
        });
        let mut metrics = Self {
            registry: Registry::with_prefix("bailiwick"),
            hot,
            requests,
            request_seconds,
            refusals: Family::default(),
            budget_refusals: Family::default(),
            cluster_in_flight: Family::default(),
            streams: Family::default(),
            streams_cut: Family::default(),
            upstream_errors: Family::default(),
            audit: AuditCounters::default(),
            store_writes: Counter::default(),
            index_revision: Level::default(),
            index_generation: Level::default(),
            tasks: Level::default(),
            cluster_usable: Family::default(),
            reconciles: Family::default(),
            contested: Family::default(),
            logins: Family::default(),
        };
        metrics.register();
        metrics
    }

    /// Names end as Prometheus wants them; `_total` is added to counters when they are written.
    fn register(&mut self) {
        let Self {
            registry,
            hot: _,
            requests,
            request_seconds,
            refusals,
            budget_refusals,
            cluster_in_flight,
            streams,
            streams_cut,
            upstream_errors,
            audit: AuditCounters { records, dropped, withheld },
            store_writes,
            index_revision,
            index_generation,
            tasks,
            cluster_usable,
            reconciles,
            contested,
            logins,
        } = self;
        registry.register("requests", "Requests answered", requests.clone());
        registry.register("request_duration_seconds", "Seconds to answer short requests", request_seconds.clone());
        registry.register("refusals", "Requests refused by us", refusals.clone());
        registry.register("budget_refusals", "Requests refused because a budget was used up", budget_refusals.clone());
        registry.register("cluster_in_flight", "Places of a cluster's budget taken", cluster_in_flight.clone());
        registry.register("streams", "Long-running responses open", streams.clone());
        registry.register("streams_cut", "Long-running responses ended by us", streams_cut.clone());
        registry.register("upstream_errors", "Requests that a cluster did not answer", upstream_errors.clone());
        registry.register("audit_records", "Audit records", records.clone());
        registry.register("audit_dropped", "Audit records lost", dropped.clone());
        registry.register("audit_withheld", "Refusals without a credential not recorded", withheld.clone());
        registry.register("store_writes", "Writes acknowledged by the store", store_writes.clone());
        registry.register("index_revision", "Revision that decisions rest on", index_revision.clone());
        registry.register("index_generation", "Versions of the index so far", index_generation.clone());
        registry.register("tasks", "Tasks of the runtime", tasks.clone());
        registry.register("cluster_usable", "Whether requests to the cluster may be sent", cluster_usable.clone());
        registry.register("reconcile", "Rounds of the controllers", reconciles.clone());
        registry.register("contested", "Objects of ours that somebody else keeps changing", contested.clone());
        registry.register("logins", "Attempts to sign in", logins.clone());
    }

    /// Counts an answered request. `seconds` is absent for long-running responses, whose length says nothing about us.
    pub fn request(&self, surface: Surface, verb: VerbClass, code: u16, seconds: Option<f64>) {
        let hot = &self.hot[surface as usize];
        if code == 200 {
            hot.ok[verb as usize].inc();
        } else {
            self.requests.get_or_create(&RequestLabel { surface: surface.as_str(), verb, code: bounded(code) }).inc();
        }
        if let Some(seconds) = seconds {
            hot.seconds.observe(seconds);
        }
    }

    /// Forgets a cluster that was removed, so that its last values are not reported for ever. Its counters
    /// count from zero should it come back.
    pub fn forget_cluster(&self, cluster: &str) {
        let cluster: std::sync::Arc<str> = cluster.into();
        self.cluster_usable.remove(&ClusterLabel { cluster: cluster.clone() });
        self.contested.remove(&ClusterLabel { cluster: cluster.clone() });
        for kind in BudgetKind::ALL {
            self.cluster_in_flight.remove(&ClusterKindLabel { cluster: cluster.clone(), kind });
        }
        for kind in UpstreamError::ALL {
            self.upstream_errors.remove(&ClusterErrorLabel { cluster: cluster.clone(), kind });
        }
        for result in Success::ALL {
            self.reconciles.remove(&ClusterResultLabel { cluster: cluster.clone(), result });
        }
    }

    /// The text that is scraped.
    pub fn encode(&self) -> String {
        let mut text = String::with_capacity(16 << 10);
        // Writing to a string fails only where a metric does not encode itself.
        if let Err(why) = text::encode(&mut text, &self.registry) {
            error!(%why, "metrics were not encoded");
        }
        text
    }
}

/// Upstream servers may answer with any number; those that HTTP does not know are one.
fn bounded(code: u16) -> u16 {
    if (100..600).contains(&code) { code } else { 0 }
}

#[cfg(test)]
mod tests;
