//! What is seen of a cluster: its namespaces, and the objects of ours.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use futures::StreamExt as _;
use futures::stream::{BoxStream, SelectAll, select_all};
use kube::api::{Api, DynamicObject};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as watch};
use kube::{Client, ResourceExt as _};

use super::kinds::{ObjectKind, is_managed};
use crate::clusters::names::{FIELD_MANAGER, MANAGED, MANAGED_VALUE};

/// Seconds after which a watch is opened anew. A connection that died without a word is noticed after this time.
const WATCH_SECONDS: u32 = 60;

/// One event of one kind.
pub(super) type Seen = (ObjectKind, Result<Event<DynamicObject>, watcher::Error>);

/// Opens all watches of a cluster. They are tried again with growing pauses for as long as the stream is held.
pub(super) fn watch_all(client: &Client) -> SelectAll<BoxStream<'static, Seen>> {
    select_all(ObjectKind::ALL.into_iter().map(|kind| {
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &kind.resource());
        let config = watcher::Config::default().timeout(WATCH_SECONDS);
        let config = match kind {
            // NetworkPolicies of others can open what is isolated.
            ObjectKind::Namespace | ObjectKind::NetworkPolicy => config,
            _ => config.labels(&format!("{MANAGED}={MANAGED_VALUE}")),
        };
        watch(api, config).default_backoff().map(move |event| (kind, event)).boxed()
    }))
}

type Objects = HashMap<String, BTreeMap<String, Arc<DynamicObject>>>;

/// The objects of one kind, by namespace ("" for those of the whole cluster) and name.
#[derive(Default)]
struct Kept {
    objects: Objects,
    // Being listed; takes the place of `objects` when it is complete.
    coming: Option<Objects>,
    complete: bool,
}

/// Everything that is watched in a cluster.
#[derive(Default)]
pub(super) struct Observed {
    kinds: HashMap<ObjectKind, Kept>,
}

/// What an event touched.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Touched {
    Nothing,
    Namespace(String),
    Roles,
    /// A kind was listed anew.
    Everything,
}

impl Observed {
    /// Takes in an event.
    pub(super) fn take(&mut self, kind: ObjectKind, event: Event<DynamicObject>) -> Touched {
        let kept = self.kinds.entry(kind).or_default();
        match event {
            Event::Init => {
                kept.coming = Some(Objects::new());
                Touched::Nothing
            }
            Event::InitApply(object) => {
                let (namespace, name) = place(kind, &object);
                if let Some(coming) = &mut kept.coming {
                    coming.entry(namespace).or_default().insert(name, Arc::new(trim(object)));
                }
                Touched::Nothing
            }
            Event::InitDone => {
                kept.objects = kept.coming.take().unwrap_or_default();
                kept.complete = true;
                Touched::Everything
            }
            Event::Apply(object) => {
                let touched = touched(kind, &object);
                self.put(kind, object);
                touched
            }
            Event::Delete(object) => {
                let touched = touched(kind, &object);
                self.remove(kind, &object);
                touched
            }
        }
    }

    /// Keeps an object, as a watch or the answer to a write brought it.
    pub(super) fn put(&mut self, kind: ObjectKind, object: DynamicObject) {
        let (namespace, name) = place(kind, &object);
        let kept = self.kinds.entry(kind).or_default();
        kept.objects.entry(namespace).or_default().insert(name, Arc::new(trim(object)));
    }

    /// Drops an object that is gone.
    pub(super) fn remove(&mut self, kind: ObjectKind, object: &DynamicObject) {
        let (namespace, name) = place(kind, object);
        let kept = self.kinds.entry(kind).or_default();
        if let Some(objects) = kept.objects.get_mut(&namespace) {
            objects.remove(&name);
            if objects.is_empty() {
                kept.objects.remove(&namespace);
            }
        }
    }

    /// Whether every kind was listed at least once.
    pub(super) fn complete(&self) -> bool {
        ObjectKind::ALL.iter().all(|kind| self.kinds.get(kind).is_some_and(|kept| kept.complete))
    }

    /// A namespace.
    pub(super) fn namespace(&self, name: &str) -> Option<&Arc<DynamicObject>> {
        self.kinds.get(&ObjectKind::Namespace)?.objects.get("")?.get(name)
    }

    /// Names of all namespaces in which something of ours stands.
    pub(super) fn inhabited(&self) -> impl Iterator<Item = &String> {
        ObjectKind::NAMESPACED.iter().filter_map(|kind| self.kinds.get(kind)).flat_map(|kept| kept.objects.keys())
    }

    /// The objects of ours of a kind in a namespace.
    pub(super) fn ours(&self, kind: ObjectKind, namespace: &str) -> Vec<Arc<DynamicObject>> {
        self.all(kind, namespace).filter(|object| is_managed(object)).cloned().collect()
    }

    /// Names of the NetworkPolicies of others in a namespace that let something through. One without rules lets nothing
    /// through that is not let through anyway.
    pub(super) fn opened_by(&self, namespace: &str) -> Vec<String> {
        let others = self.all(ObjectKind::NetworkPolicy, namespace).filter(|policy| !is_managed(policy));
        others.filter(|policy| opens(policy)).map(|policy| policy.name_any()).collect()
    }

    fn all(&self, kind: ObjectKind, namespace: &str) -> impl Iterator<Item = &Arc<DynamicObject>> {
        let objects = self.kinds.get(&kind).and_then(|kept| kept.objects.get(namespace));
        objects.into_iter().flat_map(BTreeMap::values)
    }

    /// One object.
    pub(super) fn get(&self, kind: ObjectKind, namespace: &str, name: &str) -> Option<&Arc<DynamicObject>> {
        self.kinds.get(&kind)?.objects.get(namespace)?.get(name)
    }
}

fn place(kind: ObjectKind, object: &DynamicObject) -> (String, String) {
    let namespace = match kind {
        ObjectKind::Namespace | ObjectKind::ClusterRole => String::new(),
        _ => object.namespace().unwrap_or_default(),
    };
    (namespace, object.name_any())
}

fn touched(kind: ObjectKind, object: &DynamicObject) -> Touched {
    match kind {
        ObjectKind::Namespace => Touched::Namespace(object.name_any()),
        ObjectKind::ClusterRole => Touched::Roles,
        _ => Touched::Namespace(object.namespace().unwrap_or_default()),
    }
}

/// Keeps of the field managers who they are, not what is theirs: that is most of the object's size.
fn trim(mut object: DynamicObject) -> DynamicObject {
    for entry in object.metadata.managed_fields.iter_mut().flatten() {
        entry.fields_v1 = None;
    }
    object
}

/// The field manager beside us that changed the object last.
pub(super) fn other_manager(object: &DynamicObject) -> Option<String> {
    let managers = object.metadata.managed_fields.iter().flatten();
    let others = managers.filter(|entry| {
        entry.manager.as_deref().is_some_and(|name| name != FIELD_MANAGER)
            && entry.subresource.as_deref().unwrap_or_default().is_empty()
    });
    others.max_by_key(|entry| entry.time.as_ref().map(|time| time.0)).and_then(|entry| entry.manager.clone())
}

/// Whether a NetworkPolicy has rules, so that it lets something through.
pub(super) fn opens(policy: &DynamicObject) -> bool {
    let rules = |direction| policy.data.get("spec").and_then(|spec| spec.get(direction)?.as_array());
    ["ingress", "egress"].into_iter().filter_map(rules).any(|rules| !rules.is_empty())
}

/// Whether we are a field manager of the object: it was made or kept by us, not only labelled like ours.
pub(super) fn kept_by_us(object: &DynamicObject) -> bool {
    let managers = object.metadata.managed_fields.as_ref();
    managers.is_some_and(|managers| managers.iter().any(|entry| entry.manager.as_deref() == Some(FIELD_MANAGER)))
}
