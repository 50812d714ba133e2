//! The real `bailiwick serve` under attack, seen from outside: its memory, its sockets, and what it writes where.

#[allow(dead_code)]
#[path = "proxy/harness.rs"]
mod proxy_harness;

mod attacks {
    mod canaries;
    mod connections;
    #[path = "../support/process.rs"]
    #[allow(dead_code)]
    mod process;
    mod served;
}
