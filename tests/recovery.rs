//! What goes wrong with a store, and the way back: backups, restores, keys, damaged and missing files. Each test has a
//! service of its own, without any cluster.

#[path = "recovery/backups.rs"]
mod backups;
#[path = "recovery/faults.rs"]
mod faults;
#[path = "recovery/host.rs"]
mod host;
#[path = "recovery/keys.rs"]
mod keys;
#[path = "support/process.rs"]
#[allow(dead_code, reason = "shared with tests that need other parts of it")]
mod process;
