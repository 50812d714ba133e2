//! What the proxy counts: its reasons and requests, as the few values that metrics know.

use std::time::Instant;

use super::budget::{Budget, Over};
use crate::audit::{Surface, What};
use crate::clusters::upstream::UpstreamError;
use crate::domain::request::{RequestInfo, Verb};
use crate::metrics::{
    BudgetLabel, CauseLabel, ClusterErrorLabel, ClusterKindLabel, CutCause, Metrics, ReasonLabel, Refusal, StreamKind,
    StreamLabel, UpstreamError as UpstreamLabel, VerbClass,
};

/// What kind of request it is.
pub fn class(request: Option<&RequestInfo>) -> VerbClass {
    match request {
        Some(RequestInfo::Resource(r)) if r.is_interactive() => VerbClass::Session,
        Some(RequestInfo::Resource(r)) if r.verb == Verb::Watch || r.follow => VerbClass::Watch,
        Some(RequestInfo::Resource(r)) if r.verb.reads() => VerbClass::Read,
        Some(RequestInfo::Resource(_)) => VerbClass::Write,
        Some(RequestInfo::Path(_)) | None => VerbClass::Other,
    }
}

/// What kind of stream it is.
pub fn stream(request: &RequestInfo) -> StreamKind {
    match request {
        RequestInfo::Resource(r) if r.is_interactive() => StreamKind::Upgrade,
        RequestInfo::Resource(r) if r.verb == Verb::Watch => StreamKind::Watch,
        RequestInfo::Resource(r) if r.follow => StreamKind::Log,
        _ => StreamKind::Other,
    }
}

/// Counts a refusal.
pub fn refused(metrics: &Metrics, reason: &str) {
    let reason = match reason {
        "unauthenticated" => Refusal::Unauthenticated,
        "malformed-target" | "malformed-review" | "malformed" | "upgrade" | "method" => Refusal::Malformed,
        "too-many-streams" | "too-many-requests" => Refusal::Budget,
        "audit" => Refusal::Audit,
        "stale" => Refusal::Stale,
        "cluster-unusable" | "no-cluster" => Refusal::Cluster,
        "identity" => Refusal::Other,
        _ => Refusal::Forbidden,
    };
    metrics.refusals.get_or_create(&ReasonLabel { reason }).inc();
}

/// Counts a budget that was used up.
pub fn over(metrics: &Metrics, over: &Over) {
    metrics.budget_refusals.get_or_create(&BudgetLabel { budget: over.scope, kind: over.kind }).inc();
}

/// Tells how many places are taken of the clusters that are there.
pub fn taken(metrics: &Metrics, budget: &Budget, is_there: impl Fn(&str) -> bool) {
    budget.taken(|cluster, kind, taken| {
        if !is_there(cluster) {
            return;
        }
        let gauge = metrics.cluster_in_flight.get_or_create_owned(&ClusterKindLabel { cluster: cluster.into(), kind });
        gauge.set(i64::try_from(taken).unwrap_or(i64::MAX));
    });
}

/// Counts a cut.
pub fn cut(metrics: &Metrics, cause: &str) {
    let cause = match cause {
        "account" => CutCause::Account,
        "token" => CutCause::Token,
        "expired" => CutCause::Expired,
        "no-namespace" => CutCause::Namespace,
        "no-cluster" | "cluster-unusable" => CutCause::Cluster,
        "shutdown" => CutCause::Shutdown,
        "no-rule" | "token-read-only" | "group-out-of-reach" => CutCause::Authority,
        _ => CutCause::Other,
    };
    metrics.streams_cut.get_or_create(&CauseLabel { cause }).inc();
}

/// Counts a stream in or out.
pub fn streams(metrics: &Metrics, kind: StreamKind, by: i64) {
    metrics.streams.get_or_create(&StreamLabel { kind }).inc_by(by);
}

/// Counts an answered request; long-running ones without their length.
pub fn answered(metrics: &Metrics, class: VerbClass, what: &What, long: bool, started: Instant) {
    let seconds = (!long).then(|| started.elapsed().as_secs_f64());
    metrics.request(Surface::Kube, class, what.status.unwrap_or_default(), seconds);
}

/// Counts a cluster that did not answer.
pub fn unanswered(metrics: &Metrics, cluster: &str, why: Option<&UpstreamError>) {
    let kind = match why {
        Some(UpstreamError::Connect(_)) => UpstreamLabel::Connect,
        Some(UpstreamError::ConnectTimeout) | None => UpstreamLabel::Timeout,
        Some(_) => UpstreamLabel::Broken,
    };
    metrics.upstream_errors.get_or_create(&ClusterErrorLabel { cluster: cluster.into(), kind }).inc();
}
