//! The operations listener: metrics, health and readiness in plain HTTP, on an address of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use crate::index::Index;
use crate::metrics::Metrics;
use crate::proxy::Proxy;

/// What the pages show.
pub struct Operations {
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// Readiness rests on it.
    pub index: Arc<Index>,
    /// Tells how much of its budgets is taken.
    pub proxy: Arc<Proxy>,
    /// Set once the process is on its way down.
    pub draining: AtomicBool,
}

/// The pages.
pub fn router(operations: Arc<Operations>) -> axum::Router {
    axum::Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .with_state(operations)
}

async fn metrics(State(operations): State<Arc<Operations>>) -> Response {
    operations.proxy.report();
    let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    operations.metrics.tasks.set(tasks as u64);
    let text = operations.metrics.encode();
    ([(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text).into_response()
}

async fn ready(State(operations): State<Arc<Operations>>) -> Response {
    if operations.draining.load(Ordering::Relaxed) {
        return (StatusCode::SERVICE_UNAVAILABLE, "going down\n").into_response();
    }
    if !operations.index.is_fresh() {
        return (StatusCode::SERVICE_UNAVAILABLE, "the store's changes do not reach the index\n").into_response();
    }
    "ok\n".into_response()
}
