//! Pods that a cluster refused, from the events of what wanted to make them.
//!
//! A Deployment whose Pods are refused says so in an event that people seldom look for. Here it is taken apart and kept,
//! so that the project's status has it. Events go after an hour, and what they told goes with them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Event;
use kube::api::Api;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, ResourceExt as _};
use parking_lot::RwLock;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::clock;
use crate::domain::refusals;
use crate::resources::project::Refusal;

/// Reason of the events: every controller that makes Pods uses it.
const REASON: &str = "FailedCreate";
/// Most events that are kept of a namespace.
const KEPT: usize = 100;
/// Most refusals that a status shows of a namespace.
const SHOWN: usize = 5;
/// Longest text that is kept of one.
const LONGEST: usize = 1_000;
/// Seconds after which the watch is opened anew, as others.
const WATCH_SECONDS: u32 = 60;

/// Refusals by event, in a namespace.
type Events = BTreeMap<String, Refusal>;

/// What is known of all clusters.
#[derive(Default)]
pub(super) struct Refused {
    clusters: RwLock<HashMap<String, HashMap<String, Events>>>,
}

impl Refused {
    /// The newest refusals in a namespace, each cause of each object once.
    pub(super) fn of(&self, cluster: &str, namespace: &str) -> Vec<Refusal> {
        let clusters = self.clusters.read();
        let events = clusters.get(cluster).and_then(|namespaces| namespaces.get(namespace));
        let mut all: Vec<&Refusal> = events.into_iter().flat_map(BTreeMap::values).collect();
        all.sort_by(|a, b| b.last.cmp(&a.last).then_with(|| a.object.cmp(&b.object)));
        let mut shown: Vec<Refusal> = vec![];
        for refusal in all {
            let told = shown.iter().any(|s| s.object == refusal.object && s.reason == refusal.reason);
            if !told && shown.len() < SHOWN {
                shown.push(refusal.clone());
            }
        }
        shown
    }

    fn replace(&self, cluster: &str, namespaces: HashMap<String, Events>) {
        self.clusters.write().insert(cluster.to_owned(), namespaces);
    }

    fn put(&self, cluster: &str, event: &Event) {
        let mut clusters = self.clusters.write();
        add(clusters.entry(cluster.to_owned()).or_default(), event);
    }

    fn remove(&self, cluster: &str, event: &Event) {
        let mut clusters = self.clusters.write();
        let Some(namespaces) = clusters.get_mut(cluster) else { return };
        let namespace = event.namespace().unwrap_or_default();
        if let Some(events) = namespaces.get_mut(&namespace) {
            events.remove(&event.name_any());
            if events.is_empty() {
                namespaces.remove(&namespace);
            }
        }
    }

    /// Drops what is known of a cluster that is no longer worked on.
    pub(super) fn forget(&self, cluster: &str) {
        self.clusters.write().remove(cluster);
    }
}

fn add(namespaces: &mut HashMap<String, Events>, event: &Event) {
    let Some(refusal) = refusal(event) else { return };
    let events = namespaces.entry(event.namespace().unwrap_or_default()).or_default();
    events.insert(event.name_any(), refusal);
    if events.len() > KEPT {
        let oldest = events.iter().min_by(|a, b| a.1.last.cmp(&b.1.last)).map(|(name, _)| name.clone());
        oldest.map(|name| events.remove(&name));
    }
}

/// What an event tells, if it is of a refusal.
fn refusal(event: &Event) -> Option<Refusal> {
    let message: String = event.message.as_deref()?.chars().filter(|c| !c.is_control()).take(LONGEST).collect();
    let about = &event.involved_object;
    let object = format!("{} {}", about.kind.as_deref()?, about.name.as_deref()?);
    let series = event.series.as_ref();
    let last = series.and_then(|series| series.last_observed_time.as_ref()).map(|time| time.0);
    let last =
        last.or(event.event_time.as_ref().map(|time| time.0)).or(event.last_timestamp.as_ref().map(|time| time.0));
    let count = series.and_then(|series| series.count).or(event.count).unwrap_or(1);
    let mut refusal = Refusal {
        object,
        count: u32::try_from(count).unwrap_or(1),
        last: last.map(clock::rfc3339).unwrap_or_default(),
        ..Refusal::default()
    };
    match refusals::cause(&message) {
        refusals::Cause::Quota(over) => {
            "Quota".clone_into(&mut refusal.reason);
            refusal.over = over;
        }
        refusals::Cause::Unstated(unstated) => {
            "Unstated".clone_into(&mut refusal.reason);
            refusal.unstated = unstated;
        }
        refusals::Cause::PodSecurity { level, findings } => {
            "PodSecurity".clone_into(&mut refusal.reason);
            (refusal.level, refusal.findings) = (level, findings);
        }
        refusals::Cause::Other => "Other".clone_into(&mut refusal.reason),
    }
    refusal.message = message;
    Some(refusal)
}

/// Watches the events of a cluster until `stop`.
pub(super) async fn watch(cluster: String, client: Client, refused: Arc<Refused>, stop: CancellationToken) {
    let config = watcher::Config::default().fields(&format!("reason={REASON}")).timeout(WATCH_SECONDS);
    let mut events = watcher(Api::<Event>::all(client), config).default_backoff().boxed();
    let mut coming = HashMap::new();
    loop {
        let event = tokio::select! {
            () = stop.cancelled() => return,
            event = events.next() => event,
        };
        match event {
            None => return,
            Some(Ok(watcher::Event::Init)) => coming = HashMap::new(),
            Some(Ok(watcher::Event::InitApply(event))) => add(&mut coming, &event),
            Some(Ok(watcher::Event::InitDone)) => refused.replace(&cluster, std::mem::take(&mut coming)),
            Some(Ok(watcher::Event::Apply(event))) => refused.put(&cluster, &event),
            Some(Ok(watcher::Event::Delete(event))) => refused.remove(&cluster, &event),
            // Tried again, more and more seldom: a cluster that is away says so elsewhere.
            Some(Err(why)) => warn!(cluster, %why, "events of refused Pods are not seen"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(name: &str, object: &str, message: &str, last: &str) -> Event {
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "shop-web"},
            "involvedObject": {"kind": "ReplicaSet", "name": object},
            "message": message, "reason": REASON, "count": 3, "lastTimestamp": last,
        }))
        .unwrap()
    }

    const QUOTA: &str = "Error creating: pods \"web-1\" is forbidden: exceeded quota: bailiwick, requested: pods=1, used: pods=2, limited: pods=2";

    #[test]
    fn the_newest_of_each_object_and_cause_is_shown() {
        let refused = Refused::default();
        refused.put("demo", &event("a", "web-1", QUOTA, "2026-01-01T00:00:00Z"));
        refused.put("demo", &event("b", "web-1", QUOTA, "2026-01-01T00:00:05Z"));
        refused.put("demo", &event("c", "web-1", "denied by a webhook", "2026-01-01T00:00:01Z"));
        let shown = refused.of("demo", "shop-web");
        let told: Vec<_> = shown.iter().map(|r| (r.reason.as_str(), r.last.as_str(), r.count)).collect();
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].0 == "Quota" && told[0].1.starts_with("2026-01-01T00:00:05") && told[0].2 == 3, "{told:?}");
        assert_eq!(shown[0].over[0].hard, "2");
        assert_eq!(refused.of("demo", "shop-data"), []);
        assert_eq!(refused.of("prod", "shop-web"), []);
        refused.remove("demo", &event("b", "web-1", QUOTA, "2026-01-01T00:00:05Z"));
        refused.remove("demo", &event("a", "web-1", QUOTA, "2026-01-01T00:00:05Z"));
        assert_eq!(refused.of("demo", "shop-web").len(), 1);
        refused.forget("demo");
        assert_eq!(refused.of("demo", "shop-web"), []);
    }

    #[test]
    fn memory_is_bounded_and_texts_cannot_drive_a_terminal() {
        let refused = Refused::default();
        for n in 0..3 * KEPT {
            let text = format!("\u{1b}[31m{}", "x".repeat(2 * LONGEST));
            refused.put("demo", &event(&format!("e{n}"), &format!("web-{n}"), &text, "2026-01-01T00:00:00Z"));
        }
        let shown = refused.of("demo", "shop-web");
        assert_eq!(shown.len(), SHOWN);
        assert!(shown.iter().all(|r| r.message.len() <= LONGEST && !r.message.contains('\u{1b}')));
        assert_eq!(refused.clusters.read()["demo"]["shop-web"].len(), KEPT);
    }
}
