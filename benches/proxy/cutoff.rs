//! Cut-off: from the acknowledgement of a suspension to the end of every stream of the account, as its client sees it.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use http_body_util::BodyExt as _;
use serde_json::json;

use super::load;
use super::stage::Stage;

/// Pause between two changes, each of which goes to every stream.
const PAUSE: Duration = Duration::from_millis(250);
/// Longest wait for the last stream to end.
const LONGEST: Duration = Duration::from_secs(30);

/// Over all streams, in milliseconds.
pub struct CutOff {
    pub p99: f64,
    pub max: f64,
    /// Events that came within a second before the suspension: the data that was flowing.
    pub events_per_second: f64,
}

/// Opens watches on an object that changes, suspends the account and reads on until every stream has ended.
pub async fn measure(stage: &Stage, streams: usize) -> anyhow::Result<CutOff> {
    let target = stage.to_be_cut("/api/v1/namespaces/bench-web/configmaps?watch=1");
    let mut watches = load::open_watches(&target, streams).await?;
    let events = std::rc::Rc::new(std::cell::Cell::new(0u64));
    let local = tokio::task::LocalSet::new();
    let readers: Vec<_> = watches
        .responses
        .drain(..)
        .map(|response| {
            let events = events.clone();
            local.spawn_local(async move {
                let mut body = response.into_body();
                while let Some(Ok(_)) = body.frame().await {
                    events.set(events.get() + 1);
                }
                Instant::now()
            })
        })
        .collect();
    local
        .run_until(async {
            let changes = stage.keep_changing(PAUSE)?;
            tokio::time::sleep(Duration::from_secs(2)).await;
            let before = events.get();
            tokio::time::sleep(Duration::from_secs(1)).await;
            let events_per_second = (events.get() - before) as f64;
            let suspend = stage.api("/apis/bailiwick.dev/v1alpha1/users/cut/suspend")?;
            let status = load::post(&suspend, Ipv4Addr::LOCALHOST, &json!({"reason": "bench"})).await?;
            ensure!(status.is_success(), "suspend answered {status}");
            let acknowledged = Instant::now();
            let mut took = vec![];
            for reader in readers {
                let ended = tokio::time::timeout(LONGEST, reader).await.context("a stream was not cut")??;
                took.push(ended.saturating_duration_since(acknowledged).as_secs_f64() * 1000.0);
            }
            drop(changes);
            took.sort_by(f64::total_cmp);
            Ok(CutOff { p99: took[(took.len() - 1) * 99 / 100], max: took[took.len() - 1], events_per_second })
        })
        .await
}
