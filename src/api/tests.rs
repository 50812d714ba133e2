//! The API in process: the real router, index and store, without sockets.

mod acts;
mod conventions;
mod harness;
mod watching;
mod writing;
