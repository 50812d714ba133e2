//! The clusters: how they are reached, what the service may do there, whether they are as they must be.

mod client;
pub mod credential;
pub mod credential_file;
pub mod endpoint;
mod health;
pub mod import;
mod manager;
pub mod manifest;
pub mod names;
pub mod outgoing;
pub mod probe;
pub mod upstream;
pub mod version;
mod write_status;

pub use client::{Deadlines, client};
pub use manager::{Clusters, Timing};
