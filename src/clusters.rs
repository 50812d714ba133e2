//! The clusters: how they are reached, what the service may do there, whether they are as they must be.

mod client;
pub mod endpoint;
pub mod manifest;
pub mod names;
pub mod outgoing;
pub mod probe;
pub mod upstream;
pub mod version;
