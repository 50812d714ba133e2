//! Taking over a namespace that is there already, and giving it back.
//!
//! The cluster's administrator consents by an annotation that names the project's UID; the guards let us touch the
//! namespace for no other project. What stands in the namespace stays, so that first it is told what that means. Whether
//! Pods would be refused is the API server's own answer to the change that adopting is, as a dry run.

use std::collections::BTreeMap;

use http::Request;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::{Api, DynamicObject, ListParams};
use kube::client::Body;
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};

use super::calls::{self, CallError, api, bounded};
use super::desired::{self, Place};
use super::kinds::{ObjectKind, is_managed};
use super::observed::{kept_by_us, opens};
use crate::clusters::names::*;
use crate::domain::quantity::Quantity;
use crate::resources::project::{AdoptedBinding, AdoptedUse, AdoptionReport, NetworkIsolation};

/// Whether the cluster's administrator lets this project adopt the namespace.
pub(super) fn consented(namespace: &DynamicObject, project_uid: &str) -> bool {
    namespace.annotations().get(ADOPT).is_some_and(|uid| uid == project_uid)
}

/// What the administrator of the cluster has to do first.
pub(super) fn how_to_consent(project_uid: &str, namespace: &str) -> String {
    format!(
        "the cluster's administrator lets the project adopt it with: kubectl annotate namespace {namespace} {ADOPT}={project_uid}"
    )
}

/// Labels whose former value the guards check, with the annotation that records it; empty where there was none.
const GUARDED: [(&str, &str); 2] = [(POD_SECURITY[0], ENFORCE_BEFORE), (ENFORCE_VERSION, ENFORCE_VERSION_BEFORE)];

/// The change that adopting is: our labels, and what stood in their place.
pub(super) fn change(place: &Place<'_>, seen: &DynamicObject) -> Value {
    let label = |key: &str| seen.labels().get(key).cloned().unwrap_or_default();
    let ours = desired::namespace::labels(place);
    let guarded = |key: &str| GUARDED.iter().any(|(label, _)| *label == key);
    let before: BTreeMap<&String, &String> =
        seen.labels().iter().filter(|(key, _)| !guarded(key) && ours.contains_key(*key)).collect();
    let mut annotations = serde_json::Map::from_iter([(LABELS_BEFORE.to_owned(), json!(json!(before).to_string()))]);
    annotations.extend(GUARDED.map(|(key, annotation)| (annotation.to_owned(), json!(label(key)))));
    json!({"metadata": {
        // As it was looked at.
        "resourceVersion": seen.resource_version(),
        "labels": ours,
        "annotations": annotations,
    }})
}

/// The change that giving back is: none of our labels, and again what stood in their place.
pub(super) fn change_back(seen: &DynamicObject) -> Value {
    let annotations = seen.annotations();
    let before: BTreeMap<String, String> =
        annotations.get(LABELS_BEFORE).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let mut labels = serde_json::Map::new();
    for key in [PROJECT, PROJECT_UID, ISOLATION] {
        labels.insert(key.to_owned(), Value::Null);
    }
    for key in POD_SECURITY.into_iter().flat_map(|key| [key.to_owned(), format!("{key}-version")]) {
        let value = before.get(&key).map_or(Value::Null, |value| json!(value));
        labels.insert(key, value);
    }
    for (key, annotation) in GUARDED {
        match annotations.get(annotation).map(String::as_str) {
            Some("") => drop(labels.insert(key.to_owned(), Value::Null)),
            Some(value) => drop(labels.insert(key.to_owned(), json!(value))),
            // Not recorded: the guards let it only stay as it is.
            None => drop(labels.remove(key)),
        }
    }
    json!({"metadata": {
        "resourceVersion": seen.resource_version(),
        "labels": labels,
        "annotations": {ENFORCE_BEFORE: null, ENFORCE_VERSION_BEFORE: null, LABELS_BEFORE: null},
    }})
}

/// What adopting a namespace means. Changes nothing.
pub(super) async fn report(
    client: &Client,
    place: &Place<'_>,
    seen: &DynamicObject,
) -> Result<AdoptionReport, CallError> {
    let refused_pods = warnings(client, place, seen).await?;
    let bindings: Api<RoleBinding> = Api::namespaced(client.clone(), place.namespace);
    let bindings = bounded(bindings.list(&ListParams::default())).await?;
    let policies =
        bounded(api(client, ObjectKind::NetworkPolicy, place.namespace).list(&ListParams::default())).await?;
    let isolated = place.spec.network_isolation != NetworkIsolation::None;
    let counted = used(client, place.namespace).await?;
    let use_over_share = counted.as_ref().map(|used| over(used, place.share)).unwrap_or_default();
    Ok(AdoptionReport {
        cluster: place.cluster.to_owned(),
        name: place.namespace.to_owned(),
        enforce: place.spec.pod_security.enforce.as_str().to_owned(),
        role_bindings: bindings.items.into_iter().filter_map(foreign).collect(),
        refused_pods,
        opened_by: policies
            .iter()
            .filter(|policy| isolated && !(is_managed(policy) && kept_by_us(policy)) && opens(policy))
            .map(|policy| policy.name_any())
            .collect(),
        use_counted: counted.is_some(),
        use_over_share,
    })
}

/// A RoleBinding that stays in force, as it is told. The one that lets us count is the administrator's, for this.
fn foreign(binding: RoleBinding) -> Option<AdoptedBinding> {
    let subjects: Vec<String> = binding
        .subjects
        .iter()
        .flatten()
        .map(|subject| match &subject.namespace {
            Some(namespace) => format!("{} {namespace}/{}", subject.kind, subject.name),
            None => format!("{} {}", subject.kind, subject.name),
        })
        .collect();
    let counting = binding.role_ref.name == ADOPTION_ROLE
        && subjects == [format!("ServiceAccount {SYSTEM_NAMESPACE}/{HOUSEKEEPING}")];
    (!counting).then(|| AdoptedBinding {
        role: format!("{} {}", binding.role_ref.kind, binding.role_ref.name),
        name: binding.name_any(),
        subjects,
    })
}

/// What the API server says of the change, as a dry run: among it the Pods that the level would refuse.
async fn warnings(client: &Client, place: &Place<'_>, seen: &DynamicObject) -> Result<Vec<String>, CallError> {
    dry_run(client, place.namespace, &change(place, seen)).await
}

/// The warnings of the API server about a change of a namespace that is not made.
pub(super) async fn dry_run(client: &Client, namespace: &str, change: &Value) -> Result<Vec<String>, CallError> {
    let uri = format!("/api/v1/namespaces/{namespace}?dryRun=All&fieldManager={FIELD_MANAGER}");
    let body = change.to_string().into_bytes();
    let request = Request::patch(uri)
        .header("content-type", "application/merge-patch+json")
        .body(Body::from(body))
        .map_err(|why| CallError::Kube(Box::new(kube::Error::HttpError(why))))?;
    let answer = bounded(async {
        let answer = client.send(request).await?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        let bytes = answer.into_body().collect_bytes().await?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let status = serde_json::from_str(&text).unwrap_or_else(|_| kube::core::Status::failure(&text, "Unknown"));
        Err(kube::Error::Api(Box::new(status)))
    })
    .await?;
    let texts = answer.headers().get_all("warning").iter().filter_map(|value| value.to_str().ok());
    Ok(texts.filter_map(warn_text).collect())
}

/// The text of `299 - "text"` (RFC 7234, section 5.5).
fn warn_text(header: &str) -> Option<String> {
    let quoted = header.splitn(3, ' ').nth(2)?.strip_prefix('"')?;
    let (mut text, mut escaped) = (String::new(), false);
    for character in quoted.chars() {
        match character {
            '\\' if !escaped => escaped = true,
            '"' if !escaped => return Some(text),
            _ => {
                text.push(character);
                escaped = false;
            }
        }
    }
    None
}

type Used = BTreeMap<String, Quantity>;

/// What the Pods that are there use of the resources that quotas count; `None` where we may not see them.
async fn used(client: &Client, namespace: &str) -> Result<Option<Used>, CallError> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    match bounded(pods.list(&ListParams::default())).await {
        Ok(pods) => Ok(Some(sum(&pods.items))),
        Err(error) if error.code() == Some(403) => Ok(None),
        Err(error) => Err(error),
    }
}

fn sum(pods: &[Pod]) -> Used {
    let mut used = Used::new();
    let alive = |pod: &&Pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        !matches!(phase, Some("Succeeded" | "Failed"))
    };
    for pod in pods.iter().filter(alive) {
        add(&mut used, "pods", Quantity::whole(1));
        add(&mut used, "count/pods", Quantity::whole(1));
        for container in pod.spec.iter().flat_map(|spec| &spec.containers) {
            let Some(resources) = &container.resources else { continue };
            for (prefix, amounts) in [("requests.", &resources.requests), ("limits.", &resources.limits)] {
                for (resource, amount) in amounts.iter().flatten() {
                    let Ok(amount) = amount.0.parse::<Quantity>() else { continue };
                    add(&mut used, &format!("{prefix}{resource}"), amount);
                    // Short for the requests of it.
                    if prefix == "requests." && matches!(resource.as_str(), "cpu" | "memory" | "ephemeral-storage") {
                        add(&mut used, resource, amount);
                    }
                }
            }
        }
    }
    used
}

fn add(used: &mut Used, key: &str, amount: Quantity) {
    let sum = used.entry(key.to_owned()).or_insert_with(|| Quantity::whole(0));
    // What does not fit into a number is over every share.
    *sum = sum.checked_add(amount).unwrap_or(Quantity::whole(i64::MAX));
}

fn over(used: &Used, share: &crate::tenancy::Share) -> Vec<AdoptedUse> {
    let over = share.iter().filter_map(|(resource, share)| {
        let (used, most) = (used.get(resource)?, share.parse::<Quantity>().ok()?);
        (*used > most).then(|| AdoptedUse { resource: resource.clone(), used: used.to_string(), share: share.clone() })
    });
    over.collect()
}

/// Adopts: one change, of what was looked at.
pub(super) async fn adopt(
    client: &Client,
    place: &Place<'_>,
    seen: &DynamicObject,
) -> Result<DynamicObject, CallError> {
    calls::merge(&api(client, ObjectKind::Namespace, ""), place.namespace, &change(place, seen)).await
}

/// Gives back: one change, of what was looked at.
pub(super) async fn give_back(client: &Client, seen: &DynamicObject) -> Result<DynamicObject, CallError> {
    calls::merge(&api(client, ObjectKind::Namespace, ""), &seen.name_any(), &change_back(seen)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_read_from_their_headers() {
        assert_eq!(warn_text(r#"299 - "a: host \"x\" \\ y""#).as_deref(), Some(r#"a: host "x" \ y"#));
        for other in ["", "299", "299 -", "299 - text", r#"299 - "open"#] {
            assert_eq!(warn_text(other), None, "{other}");
        }
    }

    #[test]
    fn use_is_that_of_pods_which_run_and_told_where_it_is_over() {
        let pod = |phase: &str, cpu: &str| -> Pod {
            serde_json::from_value(json!({"status": {"phase": phase}, "spec": {"containers": [
                {"name": "a", "resources": {"requests": {"cpu": cpu}, "limits": {"memory": "1Gi"}}}, {"name": "b"},
            ]}}))
            .unwrap()
        };
        let used = sum(&[pod("Running", "600m"), pod("Pending", "500m"), pod("Succeeded", "9"), pod("Failed", "9")]);
        let share = |entries: &[(&str, &str)]| {
            entries.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
        };
        assert_eq!(
            over(&used, &share(&[("pods", "2"), ("cpu", "1100m"), ("limits.memory", "2Gi"), ("secrets", "0")])),
            []
        );
        let told = over(&used, &share(&[("requests.cpu", "1"), ("pods", "1"), ("cpu", "1")]));
        let told: Vec<_> = told.iter().map(|over| (over.resource.as_str(), over.used.as_str())).collect();
        assert_eq!(told, [("cpu", "1100m"), ("pods", "2"), ("requests.cpu", "1100m")]);
    }

    #[test]
    fn what_stood_in_the_place_of_our_labels_comes_back() {
        let namespace = |labels: Value, annotations: Value| -> DynamicObject {
            serde_json::from_value(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {
                "name": "old", "resourceVersion": "7", "labels": labels, "annotations": annotations,
            }}))
            .unwrap()
        };
        let adopted = json!({ENFORCE_BEFORE: "", LABELS_BEFORE: "{\"pod-security.kubernetes.io/warn\":\"baseline\"}"});
        let back = change_back(&namespace(json!({}), adopted));
        let labels = &back["metadata"]["labels"];
        assert_eq!(labels["pod-security.kubernetes.io/warn"], "baseline");
        assert!(labels.as_object().unwrap().contains_key(POD_SECURITY[0]) && labels[POD_SECURITY[0]].is_null());
        assert_eq!(back["metadata"]["resourceVersion"], "7");
        let pinned = json!({ENFORCE_BEFORE: "privileged", ENFORCE_VERSION_BEFORE: "v1.30"});
        let back = change_back(&namespace(json!({}), pinned));
        assert_eq!(back["metadata"]["labels"][POD_SECURITY[0]], "privileged");
        assert_eq!(back["metadata"]["labels"][ENFORCE_VERSION], "v1.30");
        assert!(back["metadata"]["annotations"].as_object().unwrap().values().all(Value::is_null), "{back}");
        let back = change_back(&namespace(json!({}), json!({})));
        assert!(!back["metadata"]["labels"].as_object().unwrap().contains_key(POD_SECURITY[0]));
    }
}
