//! The API in process: the real router, index and store, without sockets.

mod acts;
mod conventions;
mod explaining;
mod harness;
mod held_back;
mod watching;
mod writing;
