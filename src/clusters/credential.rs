//! How a cluster's credential is kept: sealed, one for each Cluster.

use crate::records::ClusterCredential;
use crate::store::sealed::{Binding, SealError, Sealer};
use crate::store::{Key, Kind, Revision, Store, StoreError};

/// How often a credential is written again when somebody else was faster.
const TRIES: usize = 5;

/// Why a credential was not kept.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// It cannot be sealed.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// Others were always faster.
    #[error("others keep changing the credential; try again")]
    Contended,
}

/// Writes the credential of a cluster over the one that is there. Returns the revision.
pub async fn keep(
    store: &dyn Store,
    sealer: &Sealer,
    cluster: &str,
    record: &ClusterCredential,
) -> Result<Revision, KeepError> {
    let key = Key::new(Kind::ClusterCredential, cluster);
    for _ in 0..TRIES {
        let entry = store.get(&key).await?;
        let version = match &entry {
            None => 1,
            // One that does not open is replaced: nobody can use it any more.
            Some(entry) => sealer.open::<ClusterCredential>(&key, &entry.value).map_or(1, |opened| opened.version + 1),
        };
        let sealed = sealer.seal(&key, Binding { uid: &record.cluster_uid, version }, record)?;
        let written = match entry {
            None => store.create(key.clone(), sealed).await,
            Some(entry) => store.update(key.clone(), entry.revision, sealed).await,
        };
        match written {
            Ok(revision) => return Ok(revision),
            Err(StoreError::Conflict { .. } | StoreError::AlreadyExists(_) | StoreError::NotFound(_)) => {}
            Err(why) => return Err(why.into()),
        }
    }
    Err(KeepError::Contended)
}
