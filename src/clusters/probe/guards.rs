//! Whether the guards are there as shipped, and hold.

use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use kube::ResourceExt as _;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::place::{self, PROBE_NAMESPACE};
use super::{Accounts, Aspect, Check, NoAnswer};
use crate::clusters::client::{Answer, Ask, ask};
use crate::clusters::manifest::{
    Impersonation, ManifestOptions, expected_bindings, expected_policies, read_list, tenant_groups,
};
use crate::clusters::names::*;
use crate::clusters::version;

/// Policies are in force about a second after a change; bindings of the probe's namespace some milliseconds.
const SETTLE: Duration = Duration::from_secs(5);
/// Pause between two tries.
const PAUSE: Duration = Duration::from_millis(200);
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";

fn guard(name: impl Into<String>, wrong: Option<String>, fine: &str) -> Check {
    let (ok, message) = match wrong {
        None => (true, fine.to_owned()),
        Some(wrong) => (false, wrong),
    };
    Check { name: name.into(), ok, message, aspect: Aspect::Guard }
}

/// Compares every policy and binding with what the program ships.
pub(super) async fn present(
    accounts: &Accounts,
    options: &ManifestOptions,
    checks: &mut Vec<Check>,
) -> Result<(), NoAnswer> {
    if !options.guarded() {
        let wrong = format!("Kubernetes {} has no ValidatingAdmissionPolicy; it came with 1.30", options.version);
        checks.push(guard("guard policies", Some(wrong), ""));
        return Ok(());
    }
    let policies: Vec<ValidatingAdmissionPolicy> = match list(accounts, POLICIES).await? {
        Ok(items) => items,
        Err(why) => {
            checks.push(guard("guard policies", Some(why), ""));
            return Ok(());
        }
    };
    let bindings: Vec<ValidatingAdmissionPolicyBinding> = match list(accounts, BINDINGS).await? {
        Ok(items) => items,
        Err(why) => {
            checks.push(guard("guard policies", Some(why), ""));
            return Ok(());
        }
    };
    let variants = variants(options, &policies);
    let shipped = variants.iter().map(expected_policies).collect::<Result<Vec<_>, _>>();
    let shipped = shipped.map_err(|why| NoAnswer(why.to_string()))?;
    let shipped_bindings = expected_bindings(options).map_err(|why| NoAnswer(why.to_string()))?;
    for (at, expected) in shipped_bindings.iter().enumerate() {
        let name = expected.name_any();
        let found = policies.iter().find(|policy| policy.name_any() == name);
        let bound: Vec<_> = bindings
            .iter()
            .filter(|binding| binding.spec.as_ref().and_then(|spec| spec.policy_name.as_deref()) == Some(name.as_str()))
            .collect();
        let as_shipped = |policy: &ValidatingAdmissionPolicy| {
            shipped.iter().any(|variant| variant.get(at).is_some_and(|wanted| wanted.spec == policy.spec))
        };
        let wrong = match found {
            None => Some("missing; apply the manifest".to_owned()),
            Some(policy) if !as_shipped(policy) => {
                Some("not as shipped with this version of bailiwick; apply the manifest for this version".to_owned())
            }
            Some(policy) => unsettled(policy).or_else(|| {
                let right = bound.iter().any(|binding| binding.spec == expected.spec);
                (!right).then(|| "its binding is missing or changed; apply the manifest".to_owned())
            }),
        };
        checks.push(guard(format!("policy {name}"), wrong, "as shipped, and bound"));
    }
    Ok(())
}

async fn list<T: DeserializeOwned>(accounts: &Accounts, path: &str) -> Result<Result<Vec<T>, String>, NoAnswer> {
    let answer = ask(&accounts.housekeeping, &[], &Ask::get(path)).await;
    let answer = answer.map_err(|why| NoAnswer(format!("reading the guard policies: {why}")))?;
    if !answer.ok() {
        return Ok(Err(answer.message()));
    }
    let items = answer.body["items"].as_array().cloned().unwrap_or_default();
    // One that this version cannot read is none of ours; ours are compared as a whole.
    Ok(Ok(items.into_iter().filter_map(|item| serde_json::from_value(item).ok()).collect()))
}

/// The forms in which policies may stand there: with the groups of administrators and the API groups that they name
/// themselves, which only whoever rendered the manifest knew; and with the stricter form of exemption, where the cluster
/// was upgraded since.
fn variants(options: &ManifestOptions, policies: &[ValidatingAdmissionPolicy]) -> Vec<ManifestOptions> {
    let bare = ManifestOptions { administrators: vec![], tenant_api_groups: vec![], ..options.clone() };
    let read = ManifestOptions {
        administrators: policies.iter().find_map(administrators).unwrap_or_default(),
        tenant_api_groups: policies.iter().find_map(tenant_groups).unwrap_or_default(),
        ..bare.clone()
    };
    let here = read.checked().unwrap_or(bare);
    let strict = ManifestOptions { version: options.version.max(version::CREDENTIAL_ID), ..here.clone() };
    vec![here, strict]
}

/// The groups that a policy of ours exempts.
fn administrators(policy: &ValidatingAdmissionPolicy) -> Option<Vec<String>> {
    let conditions = policy.spec.as_ref()?.match_conditions.as_ref()?;
    let condition = conditions.iter().find(|condition| condition.name == "not-administrator")?;
    let (_, rest) = condition.expression.split_once("exists(g, g in [")?;
    read_list(rest)
}

fn unsettled(policy: &ValidatingAdmissionPolicy) -> Option<String> {
    let status = policy.status.as_ref();
    let warnings = status
        .and_then(|status| status.type_checking.as_ref())
        .and_then(|checking| checking.expression_warnings.as_ref())
        .is_some_and(|warnings| !warnings.is_empty());
    warnings.then(|| "the API server warns about its expressions; bailiwick does not fit this version".to_owned())
}

/// Attacks with the housekeeping account's token. Returns whether all of them were refused by the right guard.
pub(super) async fn hold_housekeeping(accounts: &Accounts, checks: &mut Vec<Check>) -> Result<bool, NoAnswer> {
    let role = |rules: Value| {
        let name = role_name("probe.bailiwick.attack");
        Ask::create(
            format!("{RBAC}/clusterroles"),
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
                "metadata": {"name": name, "labels": {MANAGED: MANAGED_VALUE}}, "rules": rules,
            }),
        )
    };
    let bound = role_name("probe.bailiwick");
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": bound, "labels": {MANAGED: MANAGED_VALUE}},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": bound},
    });
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota",
        "metadata": {"name": "probe", "labels": {MANAGED: MANAGED_VALUE}}, "spec": {"hard": {"pods": "0"}},
    });
    let label = json!({"metadata": {"labels": {
        PROJECT: "probe.bailiwick", PROJECT_UID: "0", POD_SECURITY[0]: "baseline",
    }}});
    let attacks = [
        (
            "bailiwick-housekeeping-namespaces",
            "labelling kube-public",
            Ask::merge("/api/v1/namespaces/kube-public", label),
        ),
        (
            "bailiwick-housekeeping-bindings",
            "binding a role in kube-system",
            Ask::create(format!("{RBAC}/namespaces/kube-system/rolebindings"), binding),
        ),
        (
            "bailiwick-housekeeping-roles",
            "a role with wildcards",
            role(json!([{"apiGroups": ["apps"], "resources": ["*"], "verbs": ["get"]}])),
        ),
        (
            "bailiwick-housekeeping-groups",
            "a role in an API group that is not listed",
            role(json!([{"apiGroups": ["probe.bailiwick.invalid"], "resources": ["x"], "verbs": ["get"]}])),
        ),
        (
            "bailiwick-accounts-scope",
            "a quota in kube-system",
            Ask::create("/api/v1/namespaces/kube-system/resourcequotas", quota),
        ),
    ];
    let mut held = true;
    for (policy, what, attack) in attacks {
        let wrong = refused_by(&accounts.housekeeping, &[], policy, &attack.dry()).await?;
        held &= wrong.is_none();
        checks.push(guard(format!("{policy} refuses housekeeping {what}"), wrong, "refused"));
    }
    Ok(held)
}

/// Attacks as a member, through forwarding, in a namespace that is made for it.
pub(super) async fn hold_members(
    accounts: &Accounts,
    form: Impersonation,
    checks: &mut Vec<Check>,
) -> Result<(), NoAnswer> {
    if let Err(why) = place::make(accounts).await? {
        checks.push(place::missing(why));
        return Ok(());
    }
    let core = format!("/api/v1/namespaces/{PROBE_NAMESPACE}");
    let meta = json!({"name": "probe"});
    let rbac = "rbac.authorization.k8s.io";
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": meta,
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": place::role()},
        "subjects": [{"apiGroup": rbac, "kind": "User", "name": "probe"}],
    });
    let network = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": meta, "spec": {"podSelector": {}},
    });
    let service = |metadata: Value, external: Value| {
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": metadata,
            "spec": {"ports": [{"port": 80}], "externalIPs": external},
        })
    };
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
        "metadata": {"name": "probe", "annotations": {"kubernetes.io/service-account.name": "default"}},
    });
    let token =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3601}});
    let managed = json!({"name": "probe", "labels": {MANAGED: MANAGED_VALUE}});
    let attacks = [
        (
            "bailiwick-tenant-bindings",
            "a RoleBinding to a user",
            Ask::create(format!("{RBAC}/namespaces/{PROBE_NAMESPACE}/rolebindings"), binding),
        ),
        (
            "bailiwick-tenant-networkpolicies",
            "a NetworkPolicy",
            Ask::create(format!("/apis/networking.k8s.io/v1/namespaces/{PROBE_NAMESPACE}/networkpolicies"), network),
        ),
        (
            "bailiwick-tenant-services",
            "external IPs",
            Ask::create(format!("{core}/services"), service(meta.clone(), json!(["192.0.2.1"]))),
        ),
        ("bailiwick-tenant-secrets", "a Secret with a token", Ask::create(format!("{core}/secrets"), secret)),
        (
            "bailiwick-tenant-tokens",
            "a token of more than an hour",
            Ask::create(format!("{core}/serviceaccounts/default/token"), token),
        ),
        (
            "bailiwick-managed-objects",
            "a managed object",
            Ask::create(format!("{core}/services"), service(managed, json!([]))),
        ),
    ];
    let member = place::member(form);
    let headers: Vec<(&str, &str)> = member.iter().map(|(name, value)| (*name, value.as_str())).collect();
    for (policy, what, attack) in attacks {
        let wrong = refused_by(&accounts.forwarding, &headers, policy, &attack.dry()).await?;
        checks.push(guard(format!("{policy} refuses members {what}"), wrong, "refused"));
    }
    Ok(())
}

/// Tries until the policy refuses, or time is up; then what was wrong last.
async fn refused_by(
    client: &kube::Client,
    headers: &[(&str, &str)],
    policy: &str,
    attack: &Ask,
) -> Result<Option<String>, NoAnswer> {
    let deadline = Instant::now() + SETTLE;
    loop {
        let answer = ask(client, headers, attack).await.map_err(|why| NoAnswer(format!("trying {policy}: {why}")))?;
        let Some(wrong) = verdict(&answer, policy) else { return Ok(None) };
        if Instant::now() >= deadline {
            return Ok(Some(wrong));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn verdict(answer: &Answer, policy: &str) -> Option<String> {
    let text = answer.body["message"].as_str().unwrap_or_default();
    if !answer.ok() && text.contains(&format!("ValidatingAdmissionPolicy '{policy}'")) {
        return None;
    }
    Some(match answer.status {
        200..300 => "passed: the policy is not in force".to_owned(),
        _ => format!("not refused by the policy, but: {}", answer.message()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clusters::version::Version;

    fn options(minor: u32) -> ManifestOptions {
        ManifestOptions::new("demo", Version { major: 1, minor })
    }

    fn answer(status: u16, message: &str) -> Answer {
        Answer { status, body: json!({"message": message}) }
    }

    #[test]
    fn only_the_policys_own_refusal_counts() {
        let text = "x is forbidden: ValidatingAdmissionPolicy 'a' with binding 'a' denied request: no";
        assert_eq!(verdict(&answer(403, text), "a"), None);
        assert_eq!(verdict(&answer(422, text), "a"), None);
        for (status, message, policy) in [
            (201, text, "a"),
            (201, "", "a"),
            (403, "cannot create resource", "a"),
            (403, text, "b"),
            (404, "not found", "a"),
        ] {
            assert!(verdict(&answer(status, message), policy).is_some(), "{status} {message} {policy}");
        }
    }

    #[test]
    fn administrators_are_read_from_the_policies() {
        for groups in [vec![], vec!["cluster-ops".to_owned(), "oidc:ops@example.com".to_owned()]] {
            let options = ManifestOptions { administrators: groups.clone(), ..options(36) };
            let policies = expected_policies(&options).unwrap();
            assert_eq!(policies.iter().find_map(administrators), Some(groups.clone()));
            let variants = variants(&ManifestOptions { administrators: vec![], ..options.clone() }, &policies);
            assert_eq!(variants[0].administrators, groups);
        }
    }

    #[test]
    fn api_groups_are_read_from_the_policies_and_those_of_control_are_not_as_shipped() {
        let with = |groups: &[&str]| ManifestOptions {
            tenant_api_groups: groups.iter().map(|g| g.to_string()).collect(),
            ..options(36)
        };
        for groups in [&[][..], &["example.com"], &["example.com", "a.example.com"]] {
            let there = expected_policies(&with(groups)).unwrap();
            let read: Vec<_> = there.iter().filter_map(tenant_groups).collect();
            assert_eq!(read, [groups]);
            let wanted = expected_policies(&variants(&with(&["other.example.com"]), &there)[0]).unwrap();
            assert!(wanted.iter().zip(&there).all(|(wanted, there)| wanted.spec == there.spec), "{groups:?}");
        }
        let mut there = expected_policies(&with(&["example.com"])).unwrap();
        for policy in &mut there {
            for variable in policy.spec.as_mut().unwrap().variables.iter_mut().flatten() {
                variable.expression = variable.expression.replace("'example.com'", "'apiextensions.k8s.io'");
            }
        }
        let wanted = expected_policies(&variants(&options(36), &there)[0]).unwrap();
        assert!(wanted.iter().zip(&there).any(|(wanted, there)| wanted.spec != there.spec));
    }

    #[test]
    fn a_policy_that_exempts_everybody_is_not_as_shipped() {
        let mut policies = expected_policies(&options(36)).unwrap();
        for policy in &mut policies {
            for condition in policy.spec.as_mut().unwrap().match_conditions.as_mut().unwrap() {
                condition.expression = condition.expression.replace("g in []", "g in ['system:authenticated']");
            }
        }
        let shipped = expected_policies(&variants(&options(36), &policies)[0]).unwrap();
        assert!(policies.iter().zip(&shipped).any(|(there, wanted)| there.spec != wanted.spec));
    }

    #[test]
    fn the_stricter_exemption_is_accepted_on_older_clusters_and_not_the_other_way_round() {
        let strict = expected_policies(&options(36)).unwrap();
        let old = expected_policies(&options(31)).unwrap();
        let accepted = |minor: u32, there: &[ValidatingAdmissionPolicy]| {
            variants(&options(minor), there).iter().any(|variant| {
                let wanted = expected_policies(variant).unwrap();
                wanted.iter().zip(there).all(|(wanted, there)| wanted.spec == there.spec)
            })
        };
        assert!(accepted(31, &strict) && accepted(31, &old) && accepted(36, &strict));
        assert!(!accepted(36, &old));
    }
}
