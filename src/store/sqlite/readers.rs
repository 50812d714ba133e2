//! Read-only connections. SQLite's write-ahead log lets them read beside the writer without waiting for it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rusqlite::{Connection, OpenFlags};
use tokio::sync::Semaphore;

use super::super::StoreError;
use super::schema::unavailable;

/// The pool.
pub(super) struct Readers {
    path: PathBuf,
    permits: Arc<Semaphore>,
    idle: Mutex<Vec<Connection>>,
}

impl Readers {
    /// A pool of at most `most` connections, opened when they are first needed.
    pub(super) fn new(path: PathBuf, most: usize) -> Self {
        Self { path, permits: Arc::new(Semaphore::new(most.max(1))), idle: Mutex::new(vec![]) }
    }

    /// Runs a query on one of the connections, off the async threads.
    pub(super) async fn read<T, F>(self: &Arc<Self>, query: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        let permit = self.permits.clone().acquire_owned().await.map_err(|_| super::closed())?;
        let readers = self.clone();
        let task = tokio::task::spawn_blocking(move || {
            let idle = readers.idle.lock().pop();
            let connection = match idle {
                Some(connection) => connection,
                None => readers.open()?,
            };
            let result = query(&connection);
            if result.is_ok() && !readers.permits.is_closed() {
                readers.idle.lock().push(connection);
            }
            // Given back after the connection, so that the next one finds it.
            drop(permit);
            result
        });
        match task.await {
            Ok(result) => result.map_err(|error| unavailable(&error)),
            Err(ended) => Err(StoreError::Unavailable(format!("a read was cut short: {ended}"))),
        }
    }

    /// Refuses further reads and closes what is idle.
    pub(super) fn close(&self) {
        self.permits.close();
        self.idle.lock().clear();
    }

    fn open(&self) -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.path, flags)?;
        // Readers meet the writer's locks only while the log is being reset.
        connection.busy_timeout(Duration::from_secs(5))?;
        connection.pragma_update(None, "trusted_schema", false)?;
        Ok(connection)
    }
}
