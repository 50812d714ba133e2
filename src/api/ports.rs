//! What the API needs from parts beside it.

use async_trait::async_trait;

use crate::audit::{Stage, Surface, What};

/// Where audit records go.
#[async_trait]
pub trait AuditSink: Send + Sync + 'static {
    /// Writes the record of a mutation that is about to happen. Durable when it returns; nothing may happen on error.
    async fn intent(&self, id: &str, surface: Surface, what: &What) -> Result<(), String>;
    /// Writes a record without waiting.
    fn note(&self, id: &str, stage: Stage, surface: Surface, what: What);
    /// An id that ties the records of one request together.
    fn request_id(&self) -> String;
}
