//! Keeps the credentials that come from files: what a file says now is sealed into the store, from where everything else
//! takes it. A file that is gone or broken leaves the last good credential in force, and says so on the Cluster.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::Clusters;
use crate::clusters::{credential, credential_file};
use crate::index::{Snapshot, Stored};
use crate::resources::Cluster;
use crate::resources::cluster::DirectConnection;
use crate::store::sealed::Sealer;

/// What a file was, or reason and message of what is wrong with it; by cluster.
pub(super) type Outcomes = HashMap<String, Result<String, (&'static str, String)>>;

impl Clusters {
    /// Looks at the files again and again, and whenever a Cluster changed.
    pub(super) async fn keep_files(
        self: Arc<Self>,
        directory: Option<PathBuf>,
        sealer: Arc<Sealer>,
        shutdown: CancellationToken,
    ) {
        let mut state = self.index.subscribe();
        loop {
            state.borrow_and_update();
            let snapshot = self.index.snapshot();
            let mut outcomes = Outcomes::new();
            for (name, cluster) in &snapshot.clusters {
                if let Some(outcome) = self.keep_file(directory.as_ref(), &sealer, name, cluster).await {
                    outcomes.insert(name.to_string(), outcome);
                }
            }
            self.tell(outcomes).await;
            // What a person writes of it; statuses change all the time.
            let wanted = |snapshot: &Snapshot| -> HashMap<Arc<str>, DirectConnection> {
                let of = |(name, cluster): (&Arc<str>, &Arc<Stored<Cluster>>)| {
                    let direct = cluster.object.spec.connection.direct.as_ref()?;
                    direct.credential_from.as_ref().map(|_| (name.clone(), direct.clone()))
                };
                snapshot.clusters.iter().filter_map(of).collect()
            };
            let before = wanted(&snapshot);
            let changed = async {
                while state.changed().await.is_ok() {
                    if wanted(&self.index.snapshot()) != before {
                        return;
                    }
                }
                std::future::pending().await
            };
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = changed => {}
                () = tokio::time::sleep(self.timing.files) => {}
            }
        }
    }

    /// `None` where the credential comes from no file.
    async fn keep_file(
        &self,
        directory: Option<&PathBuf>,
        sealer: &Sealer,
        name: &str,
        cluster: &Stored<Cluster>,
    ) -> Option<Result<String, (&'static str, String)>> {
        let direct = cluster.object.spec.connection.direct.clone()?;
        let file = direct.credential_from.as_ref()?.file.clone();
        if cluster.object.metadata.deletion_timestamp.is_some() {
            return None;
        }
        let uid = cluster.object.metadata.uid.clone()?;
        let (directory, wanted) = (directory.cloned(), file.clone());
        let read =
            tokio::task::spawn_blocking(move || credential_file::read(directory.as_deref(), &wanted, &uid, &direct));
        let record = match read.await {
            Ok(Ok(record)) => record,
            Ok(Err(why)) => return Some(Err((why.reason(), why.to_string()))),
            Err(why) => return Some(Err(("Unreadable", why.to_string()))),
        };
        let told = Ok(format!("the credential is that of the file {file:?} in credential_dir"));
        if self.index.snapshot().credentials.get(name).is_some_and(|known| known.object.same(&record)) {
            return Some(told);
        }
        match credential::keep(&*self.store, sealer, name, &record).await {
            Ok(revision) => {
                info!(cluster = name, file, "the credential was taken from its file");
                // The next look must see it, or it would write again.
                let _ = self.index.applied(revision).await;
                Some(told)
            }
            Err(why) => Some(Err(("NotStored", why.to_string()))),
        }
    }

    /// Writes the conditions that changed.
    async fn tell(&self, outcomes: Outcomes) {
        let before = std::mem::replace(&mut *self.files.lock(), outcomes.clone());
        for name in before.keys().chain(outcomes.keys()) {
            let now = outcomes.get(name);
            if before.get(name) == now {
                continue;
            }
            if let Some(Err((_, message))) = now {
                warn!(cluster = name, message, "the file of the credential is not taken");
            }
            let link = self.links.read().get(name).cloned();
            if let Some(link) = link {
                self.publish(&link).await;
            }
        }
    }
}
