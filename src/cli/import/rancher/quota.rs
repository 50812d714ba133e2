//! Quotas and container defaults: Rancher's fields and Kubernetes' keys.

use std::collections::BTreeMap;

use serde_json::Value;

use super::input::Source;
use super::{Losses, What};
use crate::domain::quantity::{Quantity, Unit, check_quota};
use crate::resources::project::ContainerDefaults;

/// Rancher's fixed fields, and what they are called in a ResourceQuota.
const FIELDS: [(&str, &str); 13] = [
    ("pods", "pods"),
    ("services", "services"),
    ("replicationControllers", "replicationcontrollers"),
    ("secrets", "secrets"),
    ("configMaps", "configmaps"),
    ("persistentVolumeClaims", "persistentvolumeclaims"),
    ("servicesNodePorts", "services.nodeports"),
    ("servicesLoadBalancers", "services.loadbalancers"),
    ("requestsCpu", "requests.cpu"),
    ("requestsMemory", "requests.memory"),
    ("requestsStorage", "requests.storage"),
    ("limitsCpu", "limits.cpu"),
    ("limitsMemory", "limits.memory"),
];

/// Amounts by key of a ResourceQuota.
pub type Amounts = BTreeMap<String, String>;

/// A quota in Kubernetes' keys. What has no counterpart, or is no amount, is lost: there is no limit on it then.
pub fn limits(limit: &BTreeMap<String, Value>, source: &Source, field: &str, losses: &mut Losses) -> Amounts {
    let mut found = Amounts::new();
    let mut fixed = vec![];
    let mut extended = vec![];
    for (name, value) in limit {
        match FIELDS.iter().find(|(theirs, _)| theirs == name) {
            Some((_, ours)) => fixed.push((format!("{field}.{name}"), (*ours).to_owned(), value)),
            None if name == "extended" => {
                let entries = value.as_object().into_iter().flatten();
                extended.extend(entries.map(|(key, value)| (format!("{field}.extended[{key}]"), explicit(key), value)));
            }
            None => {
                let message = "has no counterpart: nothing limits it here";
                losses.note(What::Dropped, source, &format!("{field}.{name}"), message);
            }
        }
    }
    // Where both say something, Rancher heeds the fixed field.
    for (at, key, value) in extended.into_iter().chain(fixed) {
        let amount = text(value);
        match check_quota(&key, &amount) {
            Ok(_) => {
                if let Some(other) = found.insert(key.clone(), amount.clone()).filter(|other| *other != amount) {
                    let message = format!("{key} is given twice; {amount} counts and {other} does not");
                    losses.note(What::Dropped, source, &at, message);
                }
            }
            Err(why) => losses.note(What::Dropped, source, &at, format!("{amount:?}: {why}; nothing limits it here")),
        }
    }
    found
}

/// Of two spellings of one limit, ours is the explicit one.
fn explicit(key: &str) -> String {
    match key {
        "cpu" | "memory" | "ephemeral-storage" => format!("requests.{key}"),
        _ => key.to_owned(),
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The limit of a namespace's annotation, `{"limit": {"pods": "10"}}`.
pub fn annotated(annotation: &str) -> Option<BTreeMap<String, Value>> {
    let value: Value = serde_json::from_str(annotation).ok()?;
    match value.get("limit") {
        None | Some(Value::Null) => Some(BTreeMap::new()),
        Some(Value::Object(limit)) => Some(limit.iter().map(|(k, v)| (k.clone(), v.clone())).collect()),
        Some(_) => None,
    }
}

/// The shares of a project's namespaces, and the keys that have none, each with the reason. `wanted` holds what each
/// namespace had.
pub fn shares(
    quota: &Amounts,
    wanted: &BTreeMap<String, Amounts>,
) -> (BTreeMap<String, Amounts>, Vec<(String, String)>) {
    let mut kept: BTreeMap<String, Amounts> = BTreeMap::new();
    let mut equal = vec![];
    for (key, limit) in quota {
        let Ok(limit) = check_quota(key, limit) else { continue };
        let mut sum = Quantity::ZERO;
        let mut why = None;
        for (namespace, amounts) in wanted {
            let Some(amount) = amounts.get(key).and_then(|amount| check_quota(key, amount).ok()) else {
                why = Some(format!("namespace {namespace:?} had no share of its own"));
                break;
            };
            match sum.checked_add(amount) {
                Ok(total) if total <= limit => sum = total,
                _ => {
                    why = Some(format!("what the namespaces had adds up to more than {limit}"));
                    break;
                }
            }
        }
        match why {
            Some(why) => equal.push((key.clone(), why)),
            None => {
                for (namespace, amounts) in wanted {
                    let share = kept.entry(namespace.clone()).or_default();
                    share.extend(amounts.get_key_value(key).map(|(k, v)| (k.clone(), v.clone())));
                }
            }
        }
    }
    (kept, equal)
}

/// Requests and limits of containers that name none.
pub fn container_defaults(
    limit: &BTreeMap<String, Value>,
    source: &Source,
    field: &str,
    losses: &mut Losses,
) -> Option<ContainerDefaults> {
    let mut defaults = ContainerDefaults::default();
    for (name, value) in limit {
        let at = format!("{field}.{name}");
        let (list, key) = match name.as_str() {
            "requestsCpu" => (&mut defaults.requests, "cpu"),
            "requestsMemory" => (&mut defaults.requests, "memory"),
            "limitsCpu" => (&mut defaults.limits, "cpu"),
            "limitsMemory" => (&mut defaults.limits, "memory"),
            _ => {
                losses.note(What::Dropped, source, &at, "has no counterpart");
                continue;
            }
        };
        let amount = text(value);
        let unit = if key == "cpu" { Unit::Milli } else { Unit::One };
        match amount.parse::<Quantity>() {
            Ok(quantity) if !quantity.is_negative() && quantity.is_multiple_of(unit) => {
                list.insert(key.to_owned(), amount);
            }
            Ok(_) => losses.note(What::Dropped, source, &at, format!("{amount:?} is negative or too fine")),
            Err(why) => losses.note(What::Dropped, source, &at, format!("{amount:?} {why}")),
        }
    }
    let amount = |list: &Amounts, key: &str| list.get(key).and_then(|amount| amount.parse::<Quantity>().ok());
    for key in ["cpu", "memory"] {
        let (request, most) = (amount(&defaults.requests, key), amount(&defaults.limits, key));
        if let (Some(request), Some(most)) = (request, most)
            && request > most
        {
            defaults.requests.remove(key);
            let message =
                format!("the default request of {key}, {request}, is above the default limit, {most}, and is left out");
            losses.note(What::Dropped, source, field, message);
        }
    }
    (defaults != ContainerDefaults::default()).then_some(defaults)
}
