//! Memory of a process, as the kernel counts it.

use anyhow::Context as _;

/// Resident memory of a process (a number, or `self`) in KiB.
pub fn resident_kib(process: impl std::fmt::Display) -> anyhow::Result<f64> {
    figure(process, "VmRSS:")
}

/// Most resident memory of a process so far, or since [`forget_peak`], in KiB.
#[allow(dead_code, reason = "used by one of the two that share this file")]
pub fn peak_kib(process: impl std::fmt::Display) -> anyhow::Result<f64> {
    figure(process, "VmHWM:")
}

/// Begins the peak of a process anew.
#[allow(dead_code, reason = "used by one of the two that share this file")]
pub fn forget_peak(process: impl std::fmt::Display) -> anyhow::Result<()> {
    // See proc_pid_clear_refs(5).
    std::fs::write(format!("/proc/{process}/clear_refs"), "5").context("clear_refs")
}

fn figure(process: impl std::fmt::Display, name: &str) -> anyhow::Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)).with_context(|| name.to_owned())?;
    Ok(line.trim().trim_end_matches("kB").trim().parse()?)
}
