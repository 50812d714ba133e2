//! What the two accounts may do, and what they must not.

use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use serde_json::{Value, json};

use super::{Accounts, Aspect, Check, NoAnswer};
use crate::clusters::client::{Answer, Ask, ask};
use crate::clusters::manifest::{Impersonation, ManifestOptions, forward_on_rules, tenant_groups};
use crate::clusters::names::*;
use crate::domain::names::{TENANT_GROUP, TOKEN_EXTRA};
use crate::domain::rbac::BUILT_IN_GROUPS;

/// Access reviews at a time.
const PARALLEL: usize = 8;
/// A user that nobody binds and no account can have, since names hold no dots before the first label.
const NOBODY: &str = "bailiwick:user:.probe";
const RBAC: &str = "rbac.authorization.k8s.io";

/// What housekeeping needs: group, resource, verbs.
const NEEDED: [(&str, &str, &[&str]); 9] = [
    ("", "namespaces", &["get", "list", "watch", "create", "update", "patch", "delete"]),
    ("", "resourcequotas", &["get", "list", "watch", "create", "update", "patch", "delete"]),
    ("", "limitranges", &["get", "list", "watch", "create", "update", "patch", "delete"]),
    ("networking.k8s.io", "networkpolicies", &["get", "list", "watch", "create", "update", "patch", "delete"]),
    (RBAC, "rolebindings", &["get", "list", "watch", "create", "update", "patch", "delete"]),
    (RBAC, "clusterroles", &["get", "list", "watch", "create", "update", "patch", "delete", "bind", "escalate"]),
    ("", "events", &["get", "list", "watch"]),
    ("admissionregistration.k8s.io", "validatingadmissionpolicies", &["get", "list", "watch"]),
    ("admissionregistration.k8s.io", "validatingadmissionpolicybindings", &["get", "list", "watch"]),
];

fn no_answer(what: &str) -> impl Fn(String) -> NoAnswer {
    move |why| NoAnswer(format!("{what}: {why}"))
}

fn right(name: impl Into<String>, ok: bool, message: impl Into<String>) -> Check {
    Check { name: name.into(), ok, message: message.into(), aspect: Aspect::Right }
}

/// Whether a refusal is of the forwarding account itself, not of the person that it spoke for.
fn names_forwarding(answer: &Answer) -> bool {
    let text = answer.body["message"].as_str().unwrap_or_default();
    answer.status == 403 && text.contains(&format!("User {FORWARDING_USER:?} cannot"))
}

/// Finds the form of impersonation by using it, and tries what neither form may do.
pub(super) async fn forms(accounts: &Accounts, checks: &mut Vec<Check>) -> Result<Option<Impersonation>, NoAnswer> {
    let forwarding = &accounts.forwarding;
    let fail = no_answer("asking as the forwarding account");
    let token = &format!("impersonate-extra-{}", TOKEN_EXTRA.replace('/', "%2F"));
    let person = &format!("impersonate-extra-{}", PERSON_EXTRA.replace('/', "%2F"));
    let constrained = [
        ("impersonate-user", NOBODY),
        ("impersonate-uid", "0"),
        ("impersonate-group", TENANT_GROUP),
        (token.as_str(), "probe"),
    ];
    let limited = [("impersonate-user", TENANT_GROUP), ("impersonate-group", TENANT_GROUP), (person.as_str(), "probe")];

    // Where nobody is bound and forwarding is not either, only a legacy grant gets past forwarding's own refusal.
    let elsewhere = Ask::get("/api/v1/namespaces/kube-system/configmaps?limit=1");
    let mut unlimited = false;
    for (name, user, group) in [
        ("forwarding cannot act for anybody outside of project namespaces", NOBODY, TENANT_GROUP),
        ("forwarding cannot act for system:masters", NOBODY, "system:masters"),
        ("forwarding cannot act for the controller manager", "system:kube-controller-manager", TENANT_GROUP),
        ("forwarding cannot act for service accounts", HOUSEKEEPING_USER, TENANT_GROUP),
    ] {
        let headers = [("impersonate-user", user), ("impersonate-group", group)];
        let answer = ask(forwarding, &headers, &elsewhere).await.map_err(&fail)?;
        let refused = names_forwarding(&answer);
        unlimited |= !refused;
        let message = if refused {
            "refused".to_owned()
        } else {
            format!(
                "{}: the account holds the verb impersonate without names; find and remove the binding that gives it",
                answer.message()
            )
        };
        checks.push(right(name, refused, message));
    }
    let discovery = Ask::get("/api");
    let by_constrained = ask(forwarding, &constrained, &discovery).await.map_err(&fail)?;
    let by_limited = ask(forwarding, &limited, &discovery).await.map_err(&fail)?;
    let form = match (unlimited, by_constrained.ok(), by_limited.ok()) {
        (true, _, _) => None,
        (false, true, _) => Some(Impersonation::Constrained),
        (false, false, true) => Some(Impersonation::Limited),
        (false, false, false) => None,
    };
    let message = match form {
        Some(form) => format!("in the {} form", form.as_str()),
        None if unlimited => "refused, because the account could act for too many".to_owned(),
        None => format!(
            "neither constrained ({}) nor limited ({}); apply the manifest for this version",
            by_constrained.message(),
            by_limited.message()
        ),
    };
    checks.push(right("forwarding can act for people", form.is_some(), message));
    if let Some(form) = form {
        let headers: &[(&str, &str)] = if form == Impersonation::Constrained { &constrained } else { &limited };
        for path in ["/version", "/apis", "/openapi/v3", "/apis/storage.k8s.io/v1/storageclasses?limit=1"] {
            let answer = ask(forwarding, headers, &Ask::get(path)).await.map_err(&fail)?;
            let message = if answer.ok() { "passes".to_owned() } else { answer.message() };
            checks.push(right(
                format!("tenants can GET {}", path.split('?').next().unwrap_or(path)),
                answer.ok(),
                message,
            ));
        }
    }
    Ok(form)
}

/// Every right that housekeeping needs.
pub(super) async fn rights(accounts: &Accounts, checks: &mut Vec<Check>) -> Result<(), NoAnswer> {
    let mut questions: Vec<(&'static str, &'static str, &'static str)> = vec![];
    for (group, resource, verbs) in NEEDED {
        questions.extend(verbs.iter().map(|verb| (group, resource, *verb)));
    }
    let reviews: Vec<_> = questions.into_iter().map(|question| review(&accounts.housekeeping, question)).collect();
    checks.extend(stream::iter(reviews).buffered(PARALLEL).try_collect::<Vec<_>>().await?);
    Ok(())
}

async fn review(client: &kube::Client, question: (&str, &str, &str)) -> Result<Check, NoAnswer> {
    let (group, resource, verb) = question;
    let spec = json!({"resourceAttributes": {"group": group, "resource": resource, "verb": verb}});
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": spec});
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let answer = ask(client, &[], &Ask::create(path, review)).await.map_err(no_answer("an access review"))?;
    let allowed = answer.ok() && answer.body["status"]["allowed"] == json!(true);
    let name = if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") };
    let message = if allowed { "allowed" } else { "missing; apply the manifest for this version" };
    Ok(right(format!("housekeeping can {verb} {name}"), allowed, message))
}

/// Rights beyond the manifest: somebody bound the accounts to more.
pub(super) async fn stray_rights(accounts: &Accounts, checks: &mut Vec<Check>) -> Result<(), NoAnswer> {
    for (account, client) in [(FORWARDING, &accounts.forwarding), (HOUSEKEEPING, &accounts.housekeeping)] {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview",
            "spec": {"namespace": "kube-system"},
        });
        let path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
        let answer = ask(client, &[], &Ask::create(path, review)).await.map_err(no_answer("a rules review"))?;
        if answer.status == 401 {
            return Err(NoAnswer(format!("the {account} token is not accepted (401); import the cluster again")));
        }
        let rules = answer.body["status"]["resourceRules"].as_array().cloned().unwrap_or_default();
        let stray: Vec<String> = rules.iter().filter(|rule| is_stray(account, rule)).map(Value::to_string).collect();
        let ok = answer.ok() && stray.is_empty();
        let message = match (answer.ok(), stray.is_empty()) {
            (false, _) => answer.message(),
            (true, true) => "none found".to_owned(),
            (true, false) => {
                crate::clusters::client::shorten(&format!("find and remove what gives {}", stray.join(", ")), 600)
            }
        };
        checks.push(right(format!("{account} has no right beyond the manifest"), ok, message));
    }
    Ok(())
}

fn is_stray(account: &str, rule: &Value) -> bool {
    let list = |key: &str| {
        let values = rule[key].as_array().map(Vec::as_slice).unwrap_or_default();
        values.iter().filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>()
    };
    let (groups, resources, verbs) = (list("apiGroups"), list("resources"), list("verbs"));
    // Every authenticated account may review itself, and read what clusters publish to all.
    let review = groups.iter().all(|g| g == "authorization.k8s.io" || g == "authentication.k8s.io")
        && resources.iter().all(|r| r.starts_with("selfsubject"));
    let published = verbs.iter().all(|v| matches!(v.as_str(), "get" | "list" | "watch"))
        && groups.iter().all(|g| g == "certificates.k8s.io")
        && resources.iter().all(|r| r == "clustertrustbundles");
    if review || published {
        return false;
    }
    let wild = groups.iter().chain(&resources).chain(&verbs).any(|value| value == "*");
    if account == FORWARDING {
        let unnamed = verbs.iter().any(|v| v == "impersonate")
            && groups.iter().any(String::is_empty)
            && list("resourceNames").is_empty();
        return wild || unnamed || !verbs.iter().all(|verb| verb.starts_with("impersonate"));
    }
    let needed = |group: &String, resource: &String, verb: &String| {
        NEEDED.iter().any(|(g, r, verbs)| g == group && r == resource && verbs.contains(&verb.as_str()))
    };
    let all = groups.iter().all(|g| resources.iter().all(|r| verbs.iter().all(|v| needed(g, r, v))));
    wild || !all
}

/// Whether forwarding reaches all that a role can grant, and roles may name all that the Cluster lets tenants reach.
pub(super) async fn reach(
    accounts: &Accounts,
    options: &ManifestOptions,
    checks: &mut Vec<Check>,
) -> Result<(), NoAnswer> {
    let housekeeping = &accounts.housekeeping;
    let path = format!("/apis/{RBAC}/v1/clusterroles/{FORWARD_ON}");
    let answer = ask(housekeeping, &[], &Ask::get(path)).await.map_err(no_answer("reading a role"))?;
    let rules = answer.body["rules"].as_array().cloned().unwrap_or_default();
    let groups = |rules: &[Value]| {
        let of = |rule: &Value| rule["apiGroups"].as_array().cloned().unwrap_or_default();
        rules.iter().flat_map(of).filter_map(|g| g.as_str().map(str::to_owned)).collect::<Vec<_>>()
    };
    let shipped = forward_on_rules(&ManifestOptions { tenant_api_groups: vec![], ..options.clone() });
    let (shipped, there) = (groups(&shipped), groups(&rules));
    let missing: Vec<&String> = shipped.iter().filter(|group| !there.contains(group)).collect();
    let message = match (answer.ok(), missing.is_empty()) {
        (false, _) => answer.message(),
        (true, true) => "complete".to_owned(),
        (true, false) => format!("API groups {missing:?} are missing; apply the manifest for this version"),
    };
    checks.push(right(format!("ClusterRole {FORWARD_ON}"), answer.ok() && missing.is_empty(), message));

    let path = format!("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/{GROUPS_POLICY}");
    let answer = ask(housekeeping, &[], &Ask::get(path)).await.map_err(no_answer("reading the API groups"))?;
    // Where it is missing or cannot be read, the guards' own check says so.
    let policy = serde_json::from_value::<ValidatingAdmissionPolicy>(answer.body).ok();
    let listed = policy.as_ref().and_then(tenant_groups).unwrap_or_default();
    for group in options.tenant_api_groups.iter().filter(|group| !BUILT_IN_GROUPS.contains(&group.as_str())) {
        let (named, reached) = (listed.contains(group), there.contains(group));
        let message = match (named, reached) {
            (true, true) => "within tenant reach".to_owned(),
            (false, _) => format!(
                "not in the policy {GROUPS_POLICY}: no role may name it until the cluster's administrator applies a \
                 manifest rendered with this group"
            ),
            (true, false) => {
                format!("not in the ClusterRole {FORWARD_ON}: apply the manifest rendered with this group")
            }
        };
        checks.push(Check {
            name: format!("API group {group}"),
            ok: named && reached,
            message,
            aspect: Aspect::Advice,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(group: &str, resource: &str, verbs: &[&str], names: &[&str]) -> Value {
        json!({"apiGroups": [group], "resources": [resource], "verbs": verbs, "resourceNames": names})
    }

    #[test]
    fn what_the_manifest_gives_is_not_stray() {
        for rule in [
            rule("authorization.k8s.io", "selfsubjectaccessreviews", &["create"], &[]),
            rule("authentication.k8s.io", "users", &["impersonate:user-info"], &[]),
            rule("storage.k8s.io", "storageclasses", &["impersonate-on:user-info:get"], &[]),
            rule("", "users", &["impersonate"], &["bailiwick:tenant"]),
        ] {
            assert!(!is_stray(FORWARDING, &rule), "{rule}");
        }
        for (group, resource, verbs) in NEEDED {
            assert!(!is_stray(HOUSEKEEPING, &rule(group, resource, verbs, &[])), "{resource}");
        }
    }

    #[test]
    fn more_is_stray() {
        for rule in [
            rule("", "secrets", &["get"], &[]),
            rule("", "users", &["impersonate"], &[]),
            rule("", "groups", &["impersonate", "get"], &["x"]),
            rule("*", "*", &["impersonate"], &[]),
            rule("*", "*", &["*"], &[]),
        ] {
            assert!(is_stray(FORWARDING, &rule), "{rule}");
        }
        for rule in [
            rule("", "secrets", &["get"], &[]),
            rule("", "namespaces", &["get", "deletecollection"], &[]),
            rule("", "users", &["impersonate"], &["x"]),
            rule(RBAC, "clusterrolebindings", &["create"], &[]),
            rule("admissionregistration.k8s.io", "validatingadmissionpolicies", &["get", "delete"], &[]),
            rule("*", "*", &["*"], &[]),
        ] {
            assert!(is_stray(HOUSEKEEPING, &rule), "{rule}");
        }
    }
}
