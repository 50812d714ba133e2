//! The index: everything a decision needs, in memory.
//!
//! One writer task applies the store's watch; readers take an immutable [`Snapshot`] and hold it for as long as they
//! like. Versions share structure, so that a change does not copy the fleet. Every request is decided from a snapshot:
//! no store access and no lock on the way.

mod apply;
mod grants;
mod references;
mod snapshot;
#[cfg(test)]
pub(crate) mod testing;
mod writer;

pub use apply::Unreadable;
pub use grants::{GrantEntry, Granted, Holder};
pub use references::references_to;
pub use snapshot::{AccountState, CompiledRole, Impersonation, Map, ObservedCluster, Snapshot, Stored, TokenEntry};
pub use writer::{Index, IndexError, Observation, State};

#[cfg(test)]
mod tests;
