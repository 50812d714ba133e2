//! Bailiwick: access and project isolation for fleets of Kubernetes clusters.
//!
//! The modules are listed in the order of their dependencies: a module uses only those above it.
//! `tests/architecture.rs` holds the code against this order; ARCHITECTURE.md says what each is for.

pub mod domain;
pub mod resources;

pub mod audit;
pub mod clock;
pub mod metrics;
pub mod records;
pub mod status;

pub mod store;

pub mod index;

pub mod identity;

pub mod access;

pub mod clusters;

pub mod tenancy;

pub mod proxy;

pub mod controllers;

pub mod api;

pub mod cli;

pub mod config;
pub mod listener;
pub mod serve;
pub mod tls;

/// What the fuzz targets run on; see `fuzz/README.md`.
#[cfg(test)]
#[path = "../fuzz/driver.rs"]
mod fuzz;
