//! Watches across ten namespaces: how soon and how many events come through, and what an idle one costs.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde_json::json;
use tokio::task::{JoinHandle, LocalSet};

use super::load::{self, Writer};
use super::resident::resident_kib;
use super::stage::Stage;
use super::tenants::WATCHED;
use super::{Report, Scale, figure};

/// Merged watches that all see each change.
const WATCHES: usize = 20;
/// Connections that make changes.
const WRITERS: usize = 4;
/// Changes of which the way through is timed, and the pause between two.
const TIMED: usize = 400;
const PAUSE: Duration = Duration::from_millis(5);
/// Longest wait for the last event.
const LONGEST: Duration = Duration::from_secs(60);

const ALL: &str = "/api/v1/configmaps?watch=1";

/// Measures with a tenant of [`WATCHED`] namespaces `ten-0` on.
pub async fn measure(stage: &Stage, scale: Scale, token: &str, report: &mut Report) -> anyhow::Result<()> {
    let direct = stage.direct("");
    let mut writer = Writer::connect(&direct).await?;
    for n in 0..WATCHED {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "changing"}});
        let status =
            writer.send("POST", &format!("/api/v1/namespaces/ten-{n}/configmaps"), &object.to_string()).await?;
        ensure!(status.is_success(), "a ConfigMap: {status}");
    }
    drop(writer);
    println!("\nwatches across {WATCHED} namespaces");
    idle(stage, scale, token, report).await?;
    LocalSet::new().run_until(async { latency(stage, token, report).await }).await?;
    LocalSet::new().run_until(async { throughput(stage, scale, token, report).await }).await
}

/// Memory of each while nothing happens.
async fn idle(stage: &Stage, scale: Scale, token: &str, report: &mut Report) -> anyhow::Result<()> {
    // As many as one token may have.
    let count = if scale.quick { 20 } else { 2_000 / WATCHED };
    let target = stage.bailiwick_as(token, ALL);
    let pid = target.pids[0];
    let before = resident_kib(pid)?;
    let watches = load::open_watches(&target, count).await?;
    // What is there at the beginning has been passed on.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let each = (resident_kib(pid)? - before) / count as f64;
    drop(watches);
    println!("{each:.1} KiB each while idle ({count} of them)");
    report.insert("merged_watch_kib".into(), figure(each));
    Ok(())
}

/// From sending a change to its event, in a watch of the namespace made directly and in a merged one, at the same time.
async fn latency(stage: &Stage, token: &str, report: &mut Report) -> anyhow::Result<()> {
    let direct = stage.direct("/api/v1/namespaces/ten-3/configmaps?watch=1");
    let mut plain = load::open_watches(&direct, 1).await?;
    let mut merged = load::open_watches(&stage.bailiwick_as(token, ALL), 1).await?;
    let seen = [&mut plain, &mut merged].map(|watches| {
        let seen = Rc::new(RefCell::new(HashMap::new()));
        let into = seen.clone();
        let response = watches.responses.remove(0);
        let reader = read(response, move |number| {
            into.borrow_mut().entry(number).or_insert_with(Instant::now);
        });
        (seen, reader)
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut writer = Writer::connect(&direct).await?;
    let mut sent = vec![];
    for number in 0..TIMED {
        sent.push(Instant::now());
        change(&mut writer, 3, number).await?;
        tokio::time::sleep(PAUSE).await;
    }
    let mut ways = vec![];
    for (seen, reader) in &seen {
        until(|| seen.borrow().len() >= TIMED).await?;
        reader.abort();
        let seen = seen.borrow();
        let mut took: Vec<f64> = sent
            .iter()
            .enumerate()
            .filter_map(|(number, sent)| Some((*seen.get(&number)? - *sent).as_secs_f64() * 1000.0))
            .collect();
        took.sort_by(f64::total_cmp);
        ways.push((took[took.len() / 2], took[took.len() * 99 / 100]));
    }
    let [(plain, plain_p99), (merged, merged_p99)] = [ways[0], ways[1]];
    println!(
        "an event comes after {plain:.2} ms directly (p99 {plain_p99:.2}), {merged:.2} ms merged (p99 {merged_p99:.2})"
    );
    report.insert("merged_watch_latency_vs_direct".into(), figure(merged / plain));
    report.insert("merged_watch_more_ms_p99".into(), figure(merged_p99 - plain_p99));
    let told =
        json!({"direct_ms": plain, "direct_ms_p99": plain_p99, "merged_ms": merged, "merged_ms_p99": merged_p99});
    report.insert("merged_watch_latency".into(), told);
    Ok(())
}

/// Changes as fast as the cluster takes them, each seen by all watches.
async fn throughput(stage: &Stage, scale: Scale, token: &str, report: &mut Report) -> anyhow::Result<()> {
    let target = stage.bailiwick_as(token, ALL);
    let mut watches = load::open_watches(&target, WATCHES).await?;
    let events = Rc::new(Cell::new(0usize));
    let readers: Vec<JoinHandle<()>> = watches
        .responses
        .drain(..)
        .map(|response| {
            let events = events.clone();
            read(response, move |_| events.set(events.get() + 1))
        })
        .collect();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let direct = stage.direct("");
    let cpu_before = load::cpu(&target.pids)?;
    let begun = Instant::now();
    let end = begun + scale.span;
    let writers = (0..WRITERS).map(|own| {
        let direct = &direct;
        async move {
            let mut writer = Writer::connect(direct).await?;
            let mut made = 0;
            while Instant::now() < end {
                // Each has its own objects.
                change(&mut writer, (own + WRITERS * made) % WATCHED, TIMED + made).await?;
                made += 1;
            }
            anyhow::Ok(made)
        }
    });
    let made: usize = futures::future::try_join_all(writers).await?.into_iter().sum();
    until(|| events.get() >= made * WATCHES).await?;
    let seconds = begun.elapsed().as_secs_f64();
    let cpu_spent = load::cpu(&target.pids)? - cpu_before;
    let all = events.get();
    for reader in readers {
        reader.abort();
    }
    ensure!(all == made * WATCHES, "{made} changes became {all} events in {WATCHES} watches");
    let (per_second, cpu_micros) = (all as f64 / seconds, cpu_spent * 1_000_000.0 / all as f64);
    println!("{per_second:.0} events/s in {WATCHES} of them, all there, {cpu_micros:.0} us of CPU each");
    report.insert("merged_watch_events_per_s".into(), figure(per_second));
    report.insert("merged_watch_cpu_us_per_event".into(), figure(cpu_micros));
    Ok(())
}

async fn change(writer: &mut Writer<'_>, namespace: usize, number: usize) -> anyhow::Result<()> {
    let path = format!("/api/v1/namespaces/ten-{namespace}/configmaps/changing");
    let status = writer.send("PATCH", &path, &format!("{{\"data\":{{\"n\":\"{number}\"}}}}")).await?;
    ensure!(status.is_success(), "a change answered {status}");
    Ok(())
}

/// Reads a watch, and tells the number of each change.
fn read(response: http::Response<Incoming>, mut told: impl FnMut(usize) + 'static) -> JoinHandle<()> {
    tokio::task::spawn_local(async move {
        let mut body = response.into_body();
        let mut waiting: Vec<u8> = vec![];
        while let Some(Ok(frame)) = body.frame().await {
            let Some(data) = frame.data_ref() else { continue };
            waiting.extend_from_slice(data);
            let Some(end) = waiting.iter().rposition(|byte| *byte == b'\n') else { continue };
            for line in waiting[..end].split(|byte| *byte == b'\n') {
                if let Some(number) = number(line) {
                    told(number);
                }
            }
            waiting.drain(..=end);
        }
    })
}

fn number(line: &[u8]) -> Option<usize> {
    let text = std::str::from_utf8(line).ok().filter(|text| text.starts_with("{\"type\":\"MODIFIED\""))?;
    let (_, after) = text.split_once("\"data\":{\"n\":\"")?;
    after.split('"').next()?.parse().ok()
}

async fn until(mut done: impl FnMut() -> bool) -> anyhow::Result<()> {
    let waiting = async {
        while !done() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(LONGEST, waiting).await.context("events are missing")
}
