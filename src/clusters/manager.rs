//! One task for each cluster: who answers, is it as it must be, which namespaces are there.
//!
//! A cluster that hangs, lies or is gone affects nothing but itself: every call has a deadline, each cluster has its own
//! task, and attempts back off with jitter. What is learnt goes into the index, and into the Cluster's status when it
//! changed.

mod files;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::{StreamExt as _, pin_mut};
use k8s_openapi::api::core::v1::Namespace;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, ResourceExt as _};
use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::client::{Deadlines, client, explain};
use super::endpoint::{Endpoint, digest};
use super::health::{Contact, Health};
use super::probe::{Accounts, Aspect, PROBE_NAMESPACE, Report, identify, probe};
use super::upstream::{Upstream, Upstreams};
use super::version::check_upgrade;
use super::write_status::write_status;
use crate::index::{Index, Observation, Snapshot, Stored};
use crate::records::ClusterCredential;
use crate::resources::{Cluster, ClusterSpec};
use crate::store::sealed::Sealer;
use crate::store::{Revision, Store};

/// A Namespace without its spec and status: one of a fleet's many is a name, a UID and some labels.
type Meta = kube::core::PartialObjectMeta<Namespace>;

/// Seconds after which the watch of namespaces is opened anew. A connection that died without a word is noticed after this
/// time at the latest; until then a namespace that was made again would be taken for the one before it.
const WATCH_SECONDS: u32 = 60;

/// How often things are done.
#[derive(Debug, Clone)]
pub struct Timing {
    /// Between two looks at a cluster that answers. With the deadlines of the calls this bounds how long a cluster that
    /// vanished goes unnoticed.
    pub health: Duration,
    /// Between two looks at the files of credentials.
    pub files: Duration,
    /// Between two full probes.
    pub probe: Duration,
    /// How long what was known stays in use when a cluster does not answer. Longer than a restart of an API server.
    pub grace: Duration,
    /// First and longest pause after a failed attempt.
    pub backoff: (Duration, Duration),
    /// Deadline of a full probe; some hundred calls.
    pub probe_deadline: Duration,
    /// Deadlines of single calls.
    pub calls: Deadlines,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            health: Duration::from_secs(15),
            files: Duration::from_secs(10),
            probe: Duration::from_secs(300),
            grace: Duration::from_secs(60),
            backoff: (Duration::from_secs(1), Duration::from_secs(30)),
            probe_deadline: Duration::from_secs(120),
            calls: Deadlines::default(),
        }
    }
}

/// All clusters.
pub struct Clusters {
    index: Arc<Index>,
    store: Arc<dyn Store>,
    timing: Timing,
    links: RwLock<HashMap<String, Arc<Link>>>,
    /// What came of the files of credentials, by cluster.
    files: Mutex<files::Outcomes>,
}

/// The connection to one cluster.
struct Link {
    /// What the connection was made from; another key makes another connection.
    key: Key,
    name: String,
    spec: ClusterSpec,
    parts: Option<Parts>,
    /// UID of kube-system when the credential was given.
    expected_uid: Option<String>,
    health: Mutex<Health>,
    /// Whether the cluster that answers is the one that was imported, as far as is known through this connection.
    proven: AtomicBool,
    // One probe at a time: two would make the probe's namespace at once, and each would count the other's objects.
    probing: tokio::sync::Mutex<()>,
    /// Wakes the task for a probe out of turn: the cluster was upgraded.
    recheck: Notify,
    /// Told when a cluster that was lost answers again: its watch may have died without a word.
    regained: Notify,
    stop: CancellationToken,
}

struct Parts {
    accounts: Accounts,
    upstream: Arc<Upstream>,
    own: Arc<Upstream>,
}

#[derive(Debug, Clone, PartialEq)]
struct Key {
    uid: String,
    spec: ClusterSpec,
    credential: Option<Revision>,
}

impl Clusters {
    /// Starts watching the index and, where credentials may come from files, their directory; ends when `shutdown` is
    /// cancelled.
    pub fn start(
        index: Arc<Index>,
        store: Arc<dyn Store>,
        sealer: Arc<Sealer>,
        credential_dir: Option<PathBuf>,
        shutdown: CancellationToken,
    ) -> Arc<Self> {
        let clusters = Self::start_with(index, store, Timing::default(), shutdown.clone());
        tokio::spawn(clusters.clone().keep_files(credential_dir, sealer, shutdown));
        clusters
    }

    /// As [`Clusters::start`], with other intervals.
    pub fn start_with(
        index: Arc<Index>,
        store: Arc<dyn Store>,
        timing: Timing,
        shutdown: CancellationToken,
    ) -> Arc<Self> {
        let clusters = Arc::new(Self { index, store, timing, links: RwLock::default(), files: Mutex::default() });
        tokio::spawn(clusters.clone().supervise(shutdown));
        clusters
    }

    /// The data path with the forwarding account; `None` where there is no cluster of this name or no credential, or
    /// where this very connection was not proven yet: what the index says of a cluster may still be of the last one.
    pub fn upstream(&self, cluster: &str) -> Option<Arc<Upstream>> {
        self.proven(cluster, |parts| parts.upstream.clone())
    }

    fn proven<T>(&self, cluster: &str, of: impl FnOnce(&Parts) -> T) -> Option<T> {
        let links = self.links.read();
        let link = links.get(cluster).filter(|link| link.proven.load(Ordering::Acquire))?;
        link.parts.as_ref().map(of)
    }

    /// A client with the housekeeping account, while the cluster is proven to be the one that was imported.
    pub fn housekeeping(&self, cluster: &str) -> Option<kube::Client> {
        let links = self.links.read();
        let link = links.get(cluster)?;
        let proven = link.proven.load(Ordering::Acquire);
        link.parts.as_ref().filter(|_| proven).map(|parts| parts.accounts.housekeeping.clone())
    }

    /// Probes a cluster now. `None` where there is none of this name; the error says why it cannot be probed.
    pub async fn check(&self, cluster: &str) -> Option<Result<Arc<Report>, String>> {
        let link = self.links.read().get(cluster)?.clone();
        let result = self.examine(&link).await;
        self.publish(&link).await;
        Some(result)
    }

    async fn supervise(self: Arc<Self>, shutdown: CancellationToken) {
        let mut state = self.index.subscribe();
        let mut seen: HashMap<String, (Revision, Option<Revision>)> = HashMap::new();
        loop {
            state.borrow_and_update();
            self.adjust(&self.index.snapshot(), &mut seen, &shutdown);
            tokio::select! {
                () = shutdown.cancelled() => break,
                changed = state.changed() => if changed.is_err() { break },
            }
        }
        self.links.write().clear();
    }

    /// Starts, replaces and ends connections after what the index says now.
    fn adjust(
        self: &Arc<Self>,
        snapshot: &Snapshot,
        seen: &mut HashMap<String, (Revision, Option<Revision>)>,
        shutdown: &CancellationToken,
    ) {
        for (name, cluster) in &snapshot.clusters {
            let credential = snapshot.credentials.get(name);
            let revisions = (cluster.revision, credential.map(|c| c.revision));
            if seen.insert(name.to_string(), revisions) == Some(revisions) {
                continue;
            }
            let key = Key {
                uid: cluster.object.metadata.uid.clone().unwrap_or_default(),
                spec: cluster.object.spec.clone(),
                credential: credential.map(|c| c.revision),
            };
            if self.links.read().get(&**name).is_some_and(|link| link.key == key) {
                continue;
            }
            let link = Arc::new(Link::new(
                name,
                key,
                cluster,
                credential.map(|c| &**c),
                self.timing.calls,
                shutdown.child_token(),
            ));
            let old = self.links.write().insert(name.to_string(), link.clone());
            if let Some(old) = old {
                old.stop.cancel();
            }
            info!(cluster = %name, "watching the cluster");
            tokio::spawn(self.clone().tend(link));
        }
        seen.retain(|name, _| snapshot.clusters.contains_key(name.as_str()));
        let mut links = self.links.write();
        links.retain(|name, link| {
            let keep = seen.contains_key(name);
            if !keep {
                link.stop.cancel();
                self.index.observe(Observation { cluster: name.clone(), seen: None });
            }
            keep
        });
    }

    async fn tend(self: Arc<Self>, link: Arc<Link>) {
        // Published at once: what was seen through an older connection counts no more.
        self.publish(&link).await;
        tokio::select! {
            () = link.stop.cancelled() => {}
            () = self.look(&link) => {}
            () = self.watch_namespaces(&link) => {}
        }
    }

    /// Looks at the cluster again and again.
    async fn look(&self, link: &Link) {
        let (first, longest) = self.timing.backoff;
        let mut pause = first;
        let mut probed: Option<tokio::time::Instant> = None;
        loop {
            let was_good = matches!(link.health.lock().contact, Contact::Good);
            let due = probed.is_none_or(|at| at.elapsed() >= self.timing.probe);
            let result =
                if due || !was_good { self.examine(link).await.map(|_| true) } else { self.glance(link).await };
            self.publish(link).await;
            match result {
                Ok(full) => {
                    pause = first;
                    if full {
                        // What is missing is looked for sooner: somebody may be mending it.
                        let complete = link.holds();
                        let now = tokio::time::Instant::now();
                        probed = complete.then_some(now);
                    }
                }
                Err(why) => {
                    warn!(cluster = link.name, why, "the cluster cannot be used");
                    pause = (pause * 2).min(longest);
                }
            }
            let good = matches!(link.health.lock().contact, Contact::Good);
            let wait = jitter(if good { self.timing.health } else { pause });
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = link.recheck.notified() => probed = None,
            }
        }
    }

    /// Who is there? Identity and version only.
    async fn glance(&self, link: &Link) -> Result<bool, String> {
        let Some(parts) = &link.parts else { return Err(link.message()) };
        let identity = match identify(&parts.accounts.housekeeping).await {
            Ok(identity) => identity,
            Err(why) => {
                link.health.lock().lost(why.0.clone());
                return Err(why.0);
            }
        };
        let refused = check_upgrade(link.spec.accepted_versions.as_ref(), identity.version).err();
        let expected = link.expected_uid.as_deref();
        let mut health = link.health.lock();
        let is_it = expected.is_none_or(|expected| expected == identity.kube_system_uid);
        link.proven.store(is_it, Ordering::Release);
        if !is_it {
            health.contact = Contact::Refused {
                reason: "AnotherCluster",
                message: format!(
                    "{} is another cluster than the one imported (the UID of kube-system is {}, not {}); if it was \
                     rebuilt on purpose, import it again",
                    health.server,
                    identity.kube_system_uid,
                    expected.unwrap_or_default()
                ),
            };
            return Err(link_message(&health));
        }
        if matches!(health.contact, Contact::Lost { .. }) {
            link.regained.notify_one();
        }
        health.contact = Contact::Good;
        let upgraded = health.version.is_some_and(|version| version != identity.version);
        health.git_version = identity.git_version;
        health.version = Some(identity.version);
        health.version_refused = refused;
        health.kube_system_uid = Some(identity.kube_system_uid);
        if upgraded {
            link.recheck.notify_one();
        }
        Ok(false)
    }

    /// Identity, version, rights and guards.
    async fn examine(&self, link: &Link) -> Result<Arc<Report>, String> {
        let _one = link.probing.lock().await;
        self.glance(link).await?;
        let (Some(parts), Some(version)) = (&link.parts, link.health.lock().version) else {
            return Err(link.message());
        };
        let probing = probe(&parts.accounts, &link.name, version, &link.spec.tenant_api_groups);
        let report = match tokio::time::timeout(self.timing.probe_deadline, probing).await {
            Ok(Ok(report)) => Arc::new(report),
            Ok(Err(why)) => {
                link.health.lock().lost(why.0.clone());
                return Err(why.0);
            }
            Err(_) => {
                let why = format!("the probe was not done within {} s", self.timing.probe_deadline.as_secs());
                link.health.lock().lost(why.clone());
                return Err(why);
            }
        };
        for check in report.checks.iter().filter(|check| !check.ok) {
            warn!(cluster = link.name, check = check.name, message = check.message, "a check failed");
        }
        link.health.lock().report = Some(report.clone());
        Ok(report)
    }

    /// Keeps the list of namespaces, once the cluster is known to be the one imported.
    async fn watch_namespaces(&self, link: &Link) {
        let Some(parts) = &link.parts else { return std::future::pending().await };
        let (first, longest) = self.timing.backoff;
        while link.health.lock().kube_system_uid.is_none() {
            tokio::time::sleep(first.min(Duration::from_millis(100))).await;
        }
        let api: Api<Meta> = Api::all(parts.accounts.housekeeping.clone());
        let mut pause = first;
        loop {
            let events = watcher(api.clone(), watcher::Config::default().timeout(WATCH_SECONDS));
            pin_mut!(events);
            let mut listing = None;
            let why = loop {
                let event = tokio::select! {
                    event = events.next() => event,
                    () = link.regained.notified() => break "the cluster was lost meanwhile".to_owned(),
                };
                match event {
                    Some(Ok(event)) => {
                        pause = first;
                        if self.apply(link, event, &mut listing) {
                            self.publish(link).await;
                        }
                    }
                    Some(Err(why)) => break explain(&why),
                    None => break "the watch ended".to_owned(),
                }
            };
            // Whether the cluster is lost is judged by the looks at it; the last list stays.
            warn!(cluster = link.name, why, "the watch of namespaces broke; starting again");
            tokio::time::sleep(jitter(pause)).await;
            pause = (pause * 2).min(longest);
        }
    }

    /// Applies one change; returns whether it is worth telling.
    fn apply(&self, link: &Link, event: Event<Meta>, listing: &mut Option<crate::index::Map<Arc<str>>>) -> bool {
        let entry = |object: &Meta| -> (Arc<str>, Option<Arc<str>>) {
            let alive = object.metadata.deletion_timestamp.is_none() && object.name_any() != PROBE_NAMESPACE;
            (object.name_any().into(), object.uid().filter(|_| alive).map(Into::into))
        };
        let mut health = link.health.lock();
        match event {
            Event::Init => {
                *listing = Some(Default::default());
                false
            }
            Event::InitApply(object) => {
                if let (Some(list), (name, Some(uid))) = (listing.as_mut(), entry(&object)) {
                    list.insert(name, uid);
                }
                false
            }
            Event::InitDone => {
                health.namespaces = listing.take().unwrap_or_default();
                health.listed = true;
                true
            }
            Event::Apply(object) => match entry(&object) {
                (name, Some(uid)) => health.namespaces.insert(name, uid.clone()) != Some(uid),
                (name, None) => health.namespaces.remove(&name).is_some(),
            },
            Event::Delete(object) => health.namespaces.remove(object.name_any().as_str()).is_some(),
        }
    }

    /// Tells the index, and the Cluster's status where it changed.
    async fn publish(&self, link: &Link) {
        let current = self.links.read().get(&link.name).is_some_and(|current| std::ptr::eq(&**current, link));
        if !current || link.stop.is_cancelled() {
            return;
        }
        let mut health = link.health.lock().clone();
        health.credential_file = self.files.lock().get(&link.name).cloned();
        let seen = Arc::new(health.observed(self.timing.grace));
        self.index.observe(Observation { cluster: link.name.clone(), seen: Some(seen) });
        if let Err(why) = write_status(&*self.store, &link.name, &health).await {
            warn!(cluster = link.name, %why, "the status of the cluster was not written");
        }
    }
}

impl Upstreams for Clusters {
    fn upstream(&self, cluster: &str) -> Option<Arc<Upstream>> {
        Clusters::upstream(self, cluster)
    }

    fn own(&self, cluster: &str) -> Option<Arc<Upstream>> {
        self.proven(cluster, |parts| parts.own.clone())
    }
}

impl Link {
    fn new(
        name: &str,
        key: Key,
        cluster: &Stored<Cluster>,
        credential: Option<&Stored<ClusterCredential>>,
        calls: Deadlines,
        stop: CancellationToken,
    ) -> Self {
        let spec = cluster.object.spec.clone();
        let server = spec.connection.direct.as_ref().map(|direct| direct.server.clone()).unwrap_or_default();
        let mut health = Health::new(&key.uid, &server);
        let (parts, expected_uid) = match connect(&key.uid, &spec, credential.map(|c| &c.object), calls) {
            Ok(parts) => (Some(parts), credential.map(|c| c.object.kube_system_uid.clone())),
            Err((reason, message)) => {
                health.contact = Contact::Refused { reason, message };
                (None, None)
            }
        };
        Self {
            key,
            name: name.to_owned(),
            spec,
            parts,
            expected_uid,
            health: Mutex::new(health),
            proven: AtomicBool::new(false),
            probing: tokio::sync::Mutex::default(),
            recheck: Notify::new(),
            regained: Notify::new(),
            stop,
        }
    }

    fn message(&self) -> String {
        link_message(&self.health.lock())
    }

    fn holds(&self) -> bool {
        let health = self.health.lock();
        health.report.as_ref().is_some_and(|report| report.holds(Aspect::Right) && report.holds(Aspect::Guard))
    }
}

fn link_message(health: &Health) -> String {
    match &health.contact {
        Contact::Refused { message, .. } => message.clone(),
        Contact::Lost { why, .. } => why.clone(),
        Contact::Unknown | Contact::Good => "the cluster has not been reached yet".into(),
    }
}

/// Builds the clients. A credential is used only at the address, and with the CA, that it was given for.
fn connect(
    uid: &str,
    spec: &ClusterSpec,
    credential: Option<&ClusterCredential>,
    calls: Deadlines,
) -> Result<Parts, (&'static str, String)> {
    let endpoint = Endpoint::from_spec(spec).map_err(|why| ("BadConnection", why.to_string()))?;
    let Some(credential) = credential else {
        let from = spec.connection.direct.as_ref().and_then(|direct| direct.credential_from.as_ref());
        let message = match from {
            None => "there is no credential for this cluster; run `bailiwick cluster import`".to_owned(),
            Some(from) => {
                format!(
                    "there is no credential for this cluster yet; it comes from the file {:?} in credential_dir",
                    from.file
                )
            }
        };
        return Err(("NoCredential", message));
    };
    let here = spec.connection.direct.as_ref().map(digest);
    if credential.cluster_uid != uid || here.as_ref() != Some(&credential.endpoint_digest) {
        let message = "server, CA or TLS name changed since the credential was given, and it is sent nowhere else; run \
                       `bailiwick cluster import` again";
        return Err(("CredentialForAnotherAddress", message.into()));
    }
    let unusable = |why: String| ("BadCredential", format!("the credential cannot be used: {why}"));
    let accounts = Accounts {
        housekeeping: client(&endpoint, &credential.housekeeping, calls).map_err(|why| unusable(explain(&why)))?,
        forwarding: client(&endpoint, &credential.forwarding, calls).map_err(|why| unusable(explain(&why)))?,
    };
    let upstream = Upstream::new(&endpoint, &credential.forwarding).map_err(|why| unusable(why.to_string()))?;
    let own = Upstream::new(&endpoint, &credential.housekeeping).map_err(|why| unusable(why.to_string()))?;
    Ok(Parts { accounts, upstream: Arc::new(upstream), own: Arc::new(own) })
}

/// Between three quarters and five quarters, so that a fleet that failed together does not come back together.
fn jitter(pause: Duration) -> Duration {
    let mut byte = [128u8];
    // Without randomness all wait alike, which is only less kind.
    let _ = getrandom::fill(&mut byte);
    pause.mul_f64(0.75 + f64::from(byte[0]) / 510.0)
}

#[cfg(test)]
mod tests;
