//! `make bench`: the index at the size of a large company, and at ten times that, to show the curve.
//!
//! 300 clusters, 2,000 users, 3,000 projects, 10,000 namespaces, 20,000 tokens. Each size runs in processes of its own:
//! one fills a store, another starts an index on it and measures, both bounded in time and memory. Prints a table with the
//! targets, which are for the first size, and writes `target/bench/scale.json`. `BAILIWICK_SCALE=0.01` makes it small.

#[path = "scale/fleet.rs"]
mod fleet;
#[path = "scale/measure.rs"]
mod measure;
#[path = "resident.rs"]
mod resident;

use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use serde_json::{Map, Value, json};

use fleet::Fleet;

/// The same as the service's: memory is measured.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Sizes, as multiples of the one that the targets are for.
const FACTORS: [f64; 2] = [1.0, 10.0];
/// Longest time that one of the processes may take.
const LONGEST: Duration = Duration::from_secs(600);
/// Most memory that one of them may use; ten times the size needs about a tenth of it.
const MOST_MIB: f64 = 6_144.0;
/// What is to be reached at the first size.
const TARGETS: [(&str, f64); 2] = [("decision_ns_p99", 2_000.0), ("index_mib", 100.0)];
/// What a process of its own is to do, and on which size and folder.
const TASK: &str = "BAILIWICK_SCALE_TASK";

fn main() -> anyhow::Result<()> {
    // `cargo test --benches` runs this too; there is nothing to test in it.
    if !std::env::args().any(|arg| arg == "--bench") {
        return Ok(());
    }
    if let Ok(task) = std::env::var(TASK) {
        let [what, factor, folder] = task.splitn(3, ' ').collect::<Vec<_>>()[..] else { bail!("{TASK}: {task}") };
        let fleet = Fleet::of(factor.parse()?);
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        return match what {
            "fill" => runtime.block_on(fleet.fill(Path::new(folder))),
            _ => {
                println!("{}", runtime.block_on(measure::measure(&fleet, Path::new(folder)))?);
                Ok(())
            }
        };
    }
    let scale: f64 = match std::env::var("BAILIWICK_SCALE") {
        Ok(text) => text.parse().context("BAILIWICK_SCALE")?,
        Err(_) => 1.0,
    };
    let mut sizes = vec![];
    for factor in FACTORS {
        let folder = tempfile::tempdir()?;
        run("fill", factor * scale, folder.path())?;
        let text = run("measure", factor * scale, folder.path())?;
        let measured: Map<String, Value> = serde_json::from_str(&text)?;
        sizes.push((factor * scale, measured));
    }
    print(&sizes);
    let report: Vec<Value> =
        sizes.into_iter().map(|(factor, measured)| json!({"factor": factor, "measured": measured})).collect();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/bench");
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join("scale.json"), serde_json::to_string_pretty(&report)?)?;
    println!("written: target/bench/scale.json");
    Ok(())
}

fn run(what: &str, factor: f64, folder: &Path) -> anyhow::Result<String> {
    let begun = Instant::now();
    eprintln!("{what} at {factor} x");
    let mut child = Command::new(std::env::current_exe()?)
        .arg("--bench")
        .env(TASK, format!("{what} {factor} {}", folder.display()))
        .stdout(Stdio::piped())
        .spawn()?;
    // What it prints fits into the pipe.
    let mut most: f64 = 0.0;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        most = most.max(resident::resident_kib(child.id()).unwrap_or_default() / 1024.0);
        if begun.elapsed() > LONGEST || most > MOST_MIB {
            child.kill()?;
            child.wait()?;
            bail!("{what} at {factor} x took more than {LONGEST:?} or {MOST_MIB} MiB");
        }
        std::thread::park_timeout(Duration::from_millis(20));
    };
    if !status.success() {
        bail!("{what} at {factor} x: {status}");
    }
    eprintln!("{what} at {factor} x: {:.1} s, at most {most:.0} MiB", begun.elapsed().as_secs_f64());
    let mut text = String::new();
    child.stdout.take().context("no output")?.read_to_string(&mut text)?;
    Ok(text)
}

fn print(sizes: &[(f64, Map<String, Value>)]) {
    print!("\n{:<34}{:>14}", "the index at scale", "target");
    for (factor, _) in sizes {
        print!("{:>14}", format!("{factor} x"));
    }
    println!();
    let Some((_, first)) = sizes.first() else { return };
    for key in first.keys() {
        let target = TARGETS.iter().find(|(name, _)| name == key).map(|(_, most)| format!("<= {most}"));
        print!("{key:<34}{:>14}", target.unwrap_or_default());
        for (_, measured) in sizes {
            print!("{:>14}", measured[key].to_string());
        }
        println!();
    }
}
