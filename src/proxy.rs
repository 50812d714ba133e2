//! The auth proxy: kubectl in, one cluster's API server out.
//!
//! Stages, each a small function over plain values: parse the target ([`crate::domain::request`]), authenticate,
//! resolve claim, project and roles held ([`resolve`]), decide ([`decide`]), rewrite the headers ([`rewrite`]), forward
//! ([`service`]), and register what goes on for long ([`streams`]). A request passes only with a [`decide::Permit`].

mod across;
pub mod body;
mod budget;
pub mod changes;
pub mod decide;
pub mod explain;
#[cfg(test)]
mod histories;
mod meters;
pub mod namespaces;
mod past;
pub mod resolve;
pub mod reviews;
pub mod rewrite;
pub mod service;
pub mod streams;
pub mod target;
pub mod upgrade;

pub use service::{Proxy, ProxyParts, ProxySettings};
