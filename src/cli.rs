//! The command line for people and pipelines: everything but the service itself.
//!
//! Results go to standard output, everything else to standard error; [`exit`] says what the exit codes mean. The
//! commands know the service only by its HTTP API.

pub mod args;
pub mod client;
pub mod exit;
pub mod files;
pub mod output;
pub mod session;
pub mod time;
