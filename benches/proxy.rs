//! `make bench`: direct, nginx and the service against one real API server, interleaved in one run.
//!
//! nginx is a TLS-to-TLS reverse proxy with keep-alive, a client certificate and a fixed identity: it authenticates nobody,
//! decides nothing and records nothing. The service does all of that. Load, proxies, API server and etcd share the machine,
//! so ratios are what to read, not absolute figures. Prints a table and writes `target/bench/proxy.json`.
//!
//! `BENCH_ONLY=tenants` measures what several tenants do to each other, and needs no nginx; `BENCH_QUICK=1` makes everything
//! short, to see that it works. Either writes `target/bench/proxy-part.json`.

#[path = "proxy/cutoff.rs"]
mod cutoff;
#[path = "proxy/load.rs"]
mod load;
#[path = "proxy/logins.rs"]
mod logins;
#[path = "proxy/merged.rs"]
mod merged;
#[path = "proxy/neighbours.rs"]
mod neighbours;
#[path = "resident.rs"]
mod resident;
#[path = "proxy/stage.rs"]
mod stage;
#[path = "proxy/tenants.rs"]
mod tenants;

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};

use load::{Measured, Target};
use resident::resident_kib;
use stage::Stage;

/// The object of the small GET, some 1.3 kB.
const SMALL: &str = "/api/v1/namespaces/bench-web/configmaps/small";

/// What is to be reached, in the order in which it is printed.
const TARGETS: [(&str, &str); 23] = [
    ("small_get_vs_nginx", ">= 1.0"),
    ("cpu_per_request_vs_nginx", "<= 1.0"),
    ("list_3mb_vs_nginx", ">= 1.0"),
    ("list_3mb_gzip_vs_nginx", ">= 1.0"),
    ("get_p99_with_2000_watches_vs_none", "<= 2"),
    ("idle_watch_kib", "<= 40"),
    ("idle_rss_mib", "<= 35"),
    ("cutoff_ms_p99", "<= 200"),
    ("cutoff_ms_max", "<= 1000"),
    ("login_per_second", "(no target)"),
    ("login_peak_rss_mib", "<= before + 3 checks of 19 MiB"),
    ("login_before_rss_mib", ""),
    ("fanout_vs_direct", "<= 1.3"),
    ("fanout_table_vs_direct", "<= 1.3"),
    ("fanout_of_many_vs_of_few", "<= 1.1"),
    ("fanout_table_of_many_vs_of_few", "<= 1.1"),
    ("merged_watch_events_per_s", "(no target)"),
    ("merged_watch_cpu_us_per_event", "(no target)"),
    ("merged_watch_latency_vs_direct", "(no target)"),
    ("merged_watch_more_ms_p99", "(no target)"),
    ("merged_watch_kib", "(no target)"),
    ("neighbour_p99_ratio", "<= 2"),
    ("neighbour_of_unfinished_writes_p99_ratio", "(no target)"),
];

/// How long and how large.
#[derive(Clone, Copy)]
struct Scale {
    /// Rounds; each measures every way once.
    rounds: usize,
    /// Time of one measurement.
    span: Duration,
    /// Whether only to see that it works.
    quick: bool,
}

impl Scale {
    fn chosen() -> Self {
        match std::env::var_os("BENCH_QUICK").is_some() {
            true => Self { rounds: 1, span: Duration::from_secs(1), quick: true },
            false => Self { rounds: 3, span: Duration::from_secs(5), quick: false },
        }
    }
}

type Report = serde_json::Map<String, Value>;

fn main() -> anyhow::Result<()> {
    // `cargo test --benches` runs this too; there is nothing to test in it.
    if !std::env::args().any(|arg| arg == "--bench") {
        return Ok(());
    }
    rustls::crypto::aws_lc_rs::default_provider().install_default().ok();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(bench())
}

async fn bench() -> anyhow::Result<()> {
    let scale = Scale::chosen();
    let only = std::env::var("BENCH_ONLY").ok();
    anyhow::ensure!(only.as_deref().is_none_or(|part| part == "tenants"), "BENCH_ONLY is tenants, or nothing");
    let stage = Stage::set(only.is_none()).await?;
    if let Some(file) = std::env::var_os("BENCH_PROFILE") {
        return profile(&stage, file.as_ref()).await;
    }
    let mut report = Report::new();
    if only.is_none() {
        single(&stage, scale, &mut report).await?;
    }
    tenants::measure(&stage, scale, &mut report).await?;

    println!("\n{:<42} {:>10}   target", "figure", "measured");
    for (key, target) in TARGETS {
        if let Some(measured) = report.get(key) {
            println!("{key:<42} {:>10}   {target}", measured.to_string());
        }
    }
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("target/bench");
    std::fs::create_dir_all(&folder)?;
    let name = if only.is_none() && !scale.quick { "proxy.json" } else { "proxy-part.json" };
    std::fs::write(folder.join(name), serde_json::to_string_pretty(&Value::Object(report))?)?;
    println!("written: target/bench/{name}");
    Ok(())
}

/// What one tenant sees, beside nginx.
async fn single(stage: &Stage, scale: Scale, report: &mut Report) -> anyhow::Result<()> {
    let small = compare(stage, scale, "small GET", SMALL, 16, false).await?;
    report.insert("small_get_vs_nginx".into(), ratio(&small, |m| m.per_second));
    report.insert("cpu_per_request_vs_nginx".into(), ratio(&small, |m| m.cpu_micros));
    report.insert("small_get".into(), rows(&small));
    let list = "/api/v1/namespaces/bench-data/configmaps";
    let plain = compare(stage, scale, "3 MB list", list, 4, false).await?;
    report.insert("list_3mb_vs_nginx".into(), ratio(&plain, |m| m.per_second));
    report.insert("list_3mb".into(), rows(&plain));
    let gzip = compare(stage, scale, "3 MB list, gzip asked for", list, 4, true).await?;
    report.insert("list_3mb_gzip_vs_nginx".into(), ratio(&gzip, |m| m.per_second));
    report.insert("list_3mb_gzip".into(), rows(&gzip));

    idle_watches(stage, scale, report).await?;
    cut_off(stage, report).await?;
    sign_ins(stage, report).await?;
    report.insert("idle_rss_mib".into(), figure(stage.idle_rss_mib));
    Ok(())
}

/// `make profile`: samples the service under small GETs, and nothing else, into a file of perf's.
async fn profile(stage: &Stage, file: &Path) -> anyhow::Result<()> {
    const SPAN: Duration = Duration::from_secs(5);
    let target = stage.bailiwick(SMALL);
    load::run(&target, 16, Duration::from_secs(1), false).await?;
    let mut perf = tokio::process::Command::new("perf");
    perf.args(["record", "--freq", "997", "--event", "cpu-clock", "--call-graph", "dwarf,16384", "--output"]).arg(file);
    perf.args(["--pid", &target.pids[0].to_string(), "--", "sleep", &SPAN.as_secs().to_string()]);
    let mut perf = perf.stdout(Stdio::null()).spawn().context("perf is not installed (Debian: linux-perf)")?;
    let measured = load::run(&target, 16, SPAN + Duration::from_secs(1), false).await?;
    anyhow::ensure!(perf.wait().await?.success(), "perf failed");
    println!("{:.0} requests/s, {:.0} us of CPU each, under the profiler", measured.per_second, measured.cpu_micros);
    Ok(())
}

/// A GET beside 2,000 idle watches, and what each of them costs.
async fn idle_watches(stage: &Stage, scale: Scale, report: &mut Report) -> anyhow::Result<()> {
    const WATCHES: usize = 2_000;
    let target = stage.bailiwick(SMALL);
    let pid = target.pids[0];
    let alone = load::run(&target, 4, scale.span, false).await?;
    let before = resident_kib(pid)?;
    let watches = load::open_watches(&stage.bailiwick("/api/v1/namespaces/bench-web/pods?watch=1"), WATCHES).await?;
    let each = (resident_kib(pid)? - before) / WATCHES as f64;
    let beside = load::run(&target, 4, scale.span, false).await?;
    drop(watches);
    println!(
        "\nGET p99 {:.2} ms alone, {:.2} ms beside {WATCHES} watches ({:.2} x); {each:.1} KiB a watch; {:.1} MiB before",
        alone.p99,
        beside.p99,
        beside.p99 / alone.p99,
        before / 1024.0
    );
    report.insert("get_p99_with_2000_watches_vs_none".into(), figure(beside.p99 / alone.p99));
    report.insert("idle_watch_kib".into(), figure(each));
    Ok(())
}

/// 2,000 streams with data flowing, and the account suspended.
async fn cut_off(stage: &Stage, report: &mut Report) -> anyhow::Result<()> {
    const STREAMS: usize = 2_000;
    let cutoff::CutOff { p99, max, events_per_second } = cutoff::measure(stage, STREAMS).await?;
    println!("\ncut-off, {STREAMS} streams, {events_per_second:.0} events/s: p99 {p99:.1} ms, worst {max:.1} ms");
    report.insert("cutoff_ms_p99".into(), figure(p99));
    report.insert("cutoff_ms_max".into(), figure(max));
    Ok(())
}

/// 200 sign-ins at once.
async fn sign_ins(stage: &Stage, report: &mut Report) -> anyhow::Result<()> {
    const SIGN_INS: usize = 200;
    let logins::Logins { per_second, peak_rss_mib, before_mib, put_off } = logins::measure(stage, SIGN_INS).await?;
    println!(
        "\n{SIGN_INS} sign-ins at once: {per_second:.1}/s, {put_off} answers to come again; {before_mib:.1} MiB before, {peak_rss_mib:.1} MiB at most"
    );
    report.insert("login_per_second".into(), figure(per_second));
    report.insert("login_peak_rss_mib".into(), figure(peak_rss_mib));
    report.insert("login_before_rss_mib".into(), figure(before_mib));
    Ok(())
}

/// Two digits behind the point.
fn figure(value: f64) -> Value {
    json!((value * 100.0).round() / 100.0)
}

/// One way and what was measured on it, round by round.
struct Way {
    name: &'static str,
    rounds: Vec<Measured>,
}

async fn compare(
    stage: &Stage,
    scale: Scale,
    what: &str,
    path: &str,
    connections: usize,
    gzip: bool,
) -> anyhow::Result<Vec<Way>> {
    println!("\n{what}, {connections} connections, {} s a round", scale.span.as_secs());
    println!("{:<10} {:>10} {:>9} {:>9} {:>13}", "way", "requests/s", "p50 ms", "p99 ms", "proxy us/req");
    let targets: [(&'static str, Target); 3] =
        [("direct", stage.direct(path)), ("nginx", stage.nginx(path)), ("bailiwick", stage.bailiwick(path))];
    let mut ways: Vec<Way> = targets.iter().map(|(name, _)| Way { name, rounds: vec![] }).collect();
    for _ in 0..scale.rounds {
        for ((_, target), way) in targets.iter().zip(&mut ways) {
            let measured = load::run(target, connections, scale.span, gzip).await?;
            let Measured { per_second, p50, p99, cpu_micros } = measured;
            println!("{:<10} {per_second:>10.0} {p50:>9.2} {p99:>9.2} {cpu_micros:>13.0}", way.name);
            way.rounds.push(measured);
        }
    }
    Ok(ways)
}

/// The service to nginx, by the medians of the rounds.
fn ratio(ways: &[Way], figure: impl Fn(&Measured) -> f64) -> Value {
    let of = |name: &str| {
        let way = ways.iter().find(|way| way.name == name);
        median(way.into_iter().flat_map(|way| way.rounds.iter().map(&figure)).collect())
    };
    json!((of("bailiwick") / of("nginx") * 100.0).round() / 100.0)
}

fn rows(ways: &[Way]) -> Value {
    ways.iter()
        .map(|way| {
            let rounds: Vec<Value> = way
                .rounds
                .iter()
                .map(|m| json!({"per_second": m.per_second, "p50_ms": m.p50, "p99_ms": m.p99, "proxy_cpu_us": m.cpu_micros}))
                .collect();
            (way.name.to_owned(), Value::from(rounds))
        })
        .collect::<serde_json::Map<_, _>>()
        .into()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
