//! The API in process: the real router, index and store, without sockets.

mod conventions;
mod harness;
mod watching;
mod writing;
