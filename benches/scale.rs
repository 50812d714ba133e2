//! `make bench`: the index at the size of a large company, and at ten times that, to show the curve.
//!
//! 300 clusters, 2,000 users, 3,000 projects, 10,000 namespaces, 20,000 tokens. Each size runs in processes of its own:
//! one fills a store, another starts an index on it and measures. Prints a table and writes `target/bench/scale.json`.
//! `BAILIWICK_SCALE=0.01` makes it small.

#[path = "scale/fleet.rs"]
mod fleet;
#[path = "scale/measure.rs"]
mod measure;
#[path = "resident.rs"]
mod resident;

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use serde_json::{Map, Value, json};

use fleet::Fleet;

/// The same as the service's: memory is measured.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Sizes, as multiples of the one that the targets are for.
const FACTORS: [f64; 2] = [1.0, 10.0];
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
    let done = Command::new(std::env::current_exe()?)
        .arg("--bench")
        .env(TASK, format!("{what} {factor} {}", folder.display()))
        .stderr(Stdio::inherit())
        .output()?;
    if !done.status.success() {
        bail!("{what} at {factor}: {}", done.status);
    }
    Ok(String::from_utf8(done.stdout)?)
}

fn print(sizes: &[(f64, Map<String, Value>)]) {
    print!("\n{:<34}", "the index at scale");
    for (factor, _) in sizes {
        print!("{:>14}", format!("{factor} x"));
    }
    println!();
    let Some((_, first)) = sizes.first() else { return };
    for key in first.keys() {
        print!("{key:<34}");
        for (_, measured) in sizes {
            print!("{:>14}", measured[key].to_string());
        }
        println!();
    }
}
