//! The command line for people and pipelines: everything but the service itself.
//!
//! Results go to standard output, everything else to standard error; [`exit`] says what the exit codes mean. The
//! commands know the service only by its HTTP API.

pub mod accounts;
pub mod args;
pub mod audit_log;
pub mod client;
pub mod clusters;
pub mod documents;
pub mod exit;
pub mod explain;
#[cfg(test)]
mod fake;
pub mod files;
pub mod import;
pub mod kinds;
pub mod kubeconfig;
pub mod login;
pub mod output;
pub mod projects;
pub mod resources;
pub mod secrets;
pub mod session;
pub mod time;
