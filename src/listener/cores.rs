//! Runtimes of one thread each, for the connections of clients.
//!
//! A request, its connection to the client and the one to the cluster stay on one thread: nothing is woken across
//! threads, and no idle worker looks for work in the queues of others. What the service does by itself (controllers,
//! index, store) has the process's own runtime and takes no turn here.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

use tokio::runtime::{Builder, Handle};
use tokio_util::sync::{CancellationToken, DropGuard};

/// The runtimes. They end, with all that runs on them, when this is dropped.
pub(super) struct Cores {
    handles: Vec<Handle>,
    next: AtomicUsize,
    // Before the threads, which wait for it.
    _stop: DropGuard,
    _threads: Vec<JoinHandle<()>>,
}

impl Cores {
    pub(super) fn start(count: usize) -> io::Result<Self> {
        let stop = CancellationToken::new();
        let (mut handles, mut threads) = (vec![], vec![]);
        for n in 0..count {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            handles.push(runtime.handle().clone());
            let stop = stop.clone();
            let thread = std::thread::Builder::new().name(format!("clients-{n}"));
            threads.push(thread.spawn(move || runtime.block_on(stop.cancelled()))?);
        }
        Ok(Self { handles, next: AtomicUsize::new(0), _stop: stop.drop_guard(), _threads: threads })
    }

    /// The one whose turn it is.
    pub(super) fn next(&self) -> &Handle {
        &self.handles[self.next.fetch_add(1, Ordering::Relaxed) % self.handles.len()]
    }
}
