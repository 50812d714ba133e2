//! Sealed records of the service itself: read at the start, and replaced now and then.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::store::sealed::{Binding, Sealer};
use crate::store::{Key, Kind, Revision, Store, StoreError};

/// A record as it stands in the store.
pub(super) struct Known<T> {
    revision: Revision,
    version: u64,
    pub(super) content: T,
}

/// Reads a record; none is no error, one that does not open is.
pub(super) async fn read<T: DeserializeOwned>(
    store: &dyn Store,
    sealer: &Sealer,
    name: &str,
) -> anyhow::Result<Option<Known<T>>> {
    let key = Key::new(Kind::Platform, name);
    let Some(entry) = store.get(&key).await? else { return Ok(None) };
    let opened = sealer.open::<T>(&key, &entry.value)?;
    Ok(Some(Known { revision: entry.revision, version: opened.version, content: opened.content }))
}

/// Writes a record in the place of what was read, or where there was none.
pub(super) async fn write<T: Serialize>(
    store: &dyn Store,
    sealer: &Sealer,
    name: &str,
    known: Option<Known<T>>,
    content: &T,
) -> anyhow::Result<()> {
    let key = Key::new(Kind::Platform, name);
    let version = known.as_ref().map_or(1, |known| known.version + 1);
    let sealed = sealer.seal(&key, Binding { uid: name, version }, content)?;
    let written: Result<Revision, StoreError> = match known {
        Some(known) => store.update(key, known.revision, sealed).await,
        None => store.create(key, sealed).await,
    };
    written?;
    Ok(())
}
