//! Memory of a process, as the kernel counts it.

use anyhow::Context as _;

/// Resident memory of a process (a number, or `self`) in KiB.
pub fn resident_kib(process: impl std::fmt::Display) -> anyhow::Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("VmRSS")?;
    Ok(line.trim().trim_end_matches("kB").trim().parse()?)
}
