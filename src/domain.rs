//! The rules of the service as plain values and functions: no I/O, no clock, no randomness, no HTTP.
//!
//! Everything here can be read, tested and fuzzed alone. Time and random bytes come in as parameters.

pub mod kinds;
pub mod names;
pub mod quantity;
pub mod rbac;
pub mod refusals;
pub mod request;
pub mod roles;
