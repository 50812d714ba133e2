//! What Kubernetes says when it refuses a Pod, taken apart: which limit, and what to change.
//!
//! Controllers of Kubernetes put the API server's refusal into an event. Its texts are no API, so what is not recognised
//! is kept as it is and nothing is made up. They are those of the quota, LimitRanger and PodSecurity admission plugins of
//! Kubernetes 1.30 to 1.36.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Why a Pod was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// A quota is used up.
    Quota(Vec<OverQuota>),
    /// The quota counts something that the Pod's containers do not state.
    Unstated(Vec<String>),
    /// The Pod Security level does not let it.
    PodSecurity {
        /// The level.
        level: String,
        /// What it does not let.
        findings: Vec<Finding>,
    },
    /// Anything else, in the cluster's own words.
    Other,
}

/// A resource of which too little is left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OverQuota {
    /// Key of the ResourceQuota.
    pub resource: String,
    /// What the Pod asks for.
    pub requested: String,
    /// What is used already.
    pub used: String,
    /// The most.
    pub hard: String,
}

/// A field that a Pod Security level does not let.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// The check, in the API server's words: `privileged`, `runAsNonRoot != true`.
    pub check: String,
    /// What of the Pod it is about, in the API server's words; may be empty.
    pub detail: String,
    /// The field to change.
    pub field: String,
    /// The section of `docs/deploying.md` that shows how.
    pub section: String,
}

/// Checks of the Pod Security Standards, by the beginning of what the API server calls them: the field to change, and
/// the section of `docs/deploying.md`.
/// <https://kubernetes.io/docs/concepts/security/pod-security-standards/>
const CHECKS: [(&str, &str, &str); 16] = [
    ("privileged", "spec.containers[*].securityContext.privileged", "privileged-containers"),
    ("host namespaces", "spec.hostNetwork, spec.hostPID, spec.hostIPC", "host-namespaces"),
    ("hostPath volumes", "spec.volumes[*].hostPath", "volumes"),
    ("hostPort", "spec.containers[*].ports[*].hostPort", "host-ports"),
    ("hostProbesAndHostLifecycle", "spec.containers[*].livenessProbe.httpGet.host", "probes"),
    ("non-default capabilities", "spec.containers[*].securityContext.capabilities.add", "capabilities"),
    ("unrestricted capabilities", "spec.containers[*].securityContext.capabilities.drop", "capabilities"),
    ("allowPrivilegeEscalation", "spec.containers[*].securityContext.allowPrivilegeEscalation", "privilege-escalation"),
    ("runAsNonRoot", "spec.securityContext.runAsNonRoot", "users"),
    ("runAsUser", "spec.securityContext.runAsUser", "users"),
    ("seccompProfile", "spec.securityContext.seccompProfile.type", "seccomp"),
    ("forbidden AppArmor profile", "spec.securityContext.appArmorProfile", "apparmor-and-selinux"),
    ("seLinuxOptions", "spec.securityContext.seLinuxOptions", "apparmor-and-selinux"),
    ("procMount", "spec.containers[*].securityContext.procMount", "proc-mounts"),
    ("forbidden sysctls", "spec.securityContext.sysctls", "sysctls"),
    ("restricted volume types", "spec.volumes", "volumes"),
];

/// Takes the text of a refusal apart.
pub fn cause(message: &str) -> Cause {
    if let Some(rest) = after(message, "exceeded quota: ") {
        return over_quota(rest).map_or(Cause::Other, Cause::Quota);
    }
    if let Some(rest) = after(message, "failed quota: ").and_then(|rest| after(rest, ": must specify ")) {
        return Cause::Unstated(unstated(rest));
    }
    if let Some(rest) = after(message, "violates PodSecurity \"") {
        let Some((level, findings)) = rest.split_once("\": ") else { return Cause::Other };
        let level = level.split(':').next().unwrap_or(level).to_owned();
        return Cause::PodSecurity { level, findings: self::findings(findings) };
    }
    Cause::Other
}

/// The checks that a list of violations names: `privileged (container "a" must not …), runAsNonRoot != true (…)`.
pub fn findings(text: &str) -> Vec<Finding> {
    outside_parentheses(text, ',')
        .into_iter()
        .map(|part| finding(part.trim()))
        .filter(|f| !f.check.is_empty())
        .collect()
}

fn finding(text: &str) -> Finding {
    let (check, detail) = match text.split_once(" (") {
        Some((check, detail)) => (check, detail.strip_suffix(')').unwrap_or(detail)),
        None => (text, ""),
    };
    let known = CHECKS.iter().find(|(name, ..)| check.starts_with(name));
    let (field, section) = known.map_or(("", ""), |(_, field, section)| (*field, *section));
    Finding { check: check.to_owned(), detail: detail.to_owned(), field: field.to_owned(), section: section.to_owned() }
}

/// `NAME, requested: a=1,b=2, used: a=1,b=2, limited: a=1,b=2`
fn over_quota(text: &str) -> Option<Vec<OverQuota>> {
    let (_, rest) = text.split_once(", requested: ")?;
    let (requested, rest) = rest.split_once(", used: ")?;
    let (used, limited) = rest.split_once(", limited: ")?;
    let (requested, used, limited) = (amounts(requested), amounts(used), amounts(limited));
    let all = requested.into_iter().map(|(resource, amount)| {
        let of = |amounts: &BTreeMap<&str, &str>| amounts.get(resource).map(|a| (*a).to_owned()).unwrap_or_default();
        OverQuota { resource: resource.to_owned(), requested: amount.to_owned(), used: of(&used), hard: of(&limited) }
    });
    let all: Vec<OverQuota> = all.collect();
    (!all.is_empty()).then_some(all)
}

fn amounts(text: &str) -> BTreeMap<&str, &str> {
    text.split(',').filter_map(|pair| pair.trim().split_once('=')).collect()
}

/// `limits.cpu for: a,b; limits.memory for: a`
fn unstated(text: &str) -> Vec<String> {
    let resources = text.split(';').flat_map(|part| part.split(" for: ").next().unwrap_or_default().split(','));
    resources.map(|resource| resource.trim().to_owned()).filter(|resource| !resource.is_empty()).collect()
}

fn after<'a>(text: &'a str, mark: &str) -> Option<&'a str> {
    text.split_once(mark).map(|(_, rest)| rest)
}

/// Splits where a character stands outside of parentheses and quotes.
fn outside_parentheses(text: &str, at: char) -> Vec<&str> {
    let (mut depth, mut quoted, mut begin, mut parts) = (0usize, false, 0, vec![]);
    for (index, character) in text.char_indices() {
        match character {
            '"' => quoted = !quoted,
            '(' if !quoted => depth += 1,
            ')' if !quoted => depth = depth.saturating_sub(1),
            _ if character == at && depth == 0 && !quoted => {
                parts.push(&text[begin..index]);
                begin = index + at.len_utf8();
            }
            _ => {}
        }
    }
    parts.push(&text[begin..]);
    parts
}

#[cfg(test)]
#[path = "../../fuzz/targets/refusals.rs"]
mod fuzz;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_that_is_used_up() {
        let text = "Error creating: pods \"web-7\" is forbidden: exceeded quota: bailiwick, \
                    requested: pods=1,requests.cpu=500m, used: pods=2,requests.cpu=1, limited: pods=2,requests.cpu=1200m";
        let Cause::Quota(over) = cause(text) else { panic!("{:?}", cause(text)) };
        assert_eq!(over.len(), 2);
        let pods = OverQuota { resource: "pods".into(), requested: "1".into(), used: "2".into(), hard: "2".into() };
        assert_eq!(over[0], pods);
        assert_eq!((over[1].resource.as_str(), over[1].hard.as_str()), ("requests.cpu", "1200m"));
    }

    #[test]
    fn a_container_that_states_nothing() {
        let text =
            "pods \"a\" is forbidden: failed quota: bailiwick: must specify limits.cpu for: a,b; limits.memory for: a";
        assert_eq!(cause(text), Cause::Unstated(vec!["limits.cpu".into(), "limits.memory".into()]));
    }

    #[test]
    fn a_level_that_does_not_let_it() {
        let text = "pods \"web\" is forbidden: violates PodSecurity \"restricted:latest\": host namespaces (hostNetwork=true), \
                    allowPrivilegeEscalation != false (container \"web\" must set securityContext.allowPrivilegeEscalation=false), \
                    unrestricted capabilities (container \"a, (b\" must set securityContext.capabilities.drop=[\"ALL\"]), \
                    runAsNonRoot != true (pod or container \"web\" must set securityContext.runAsNonRoot=true), \
                    seccompProfile (pod or container \"web\" must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\")";
        let Cause::PodSecurity { level, findings } = cause(text) else { panic!("{:?}", cause(text)) };
        assert_eq!(level, "restricted");
        let told: Vec<(&str, &str)> = findings.iter().map(|f| (f.check.as_str(), f.section.as_str())).collect();
        assert_eq!(
            told,
            [
                ("host namespaces", "host-namespaces"),
                ("allowPrivilegeEscalation != false", "privilege-escalation"),
                ("unrestricted capabilities", "capabilities"),
                ("runAsNonRoot != true", "users"),
                ("seccompProfile", "seccomp"),
            ]
        );
        assert_eq!(findings[0].detail, "hostNetwork=true");
        assert_eq!(findings[0].field, "spec.hostNetwork, spec.hostPID, spec.hostIPC");
    }

    #[test]
    fn what_is_not_recognised_stays_what_it_is() {
        for text in [
            "",
            "denied by a webhook",
            "exceeded quota: x",
            "violates PodSecurity \"x",
            "exceeded quota: x, requested: , used: , limited: ",
        ] {
            assert_eq!(cause(text), Cause::Other, "{text}");
        }
        let unknown = findings("something new (container \"a\")");
        assert_eq!((unknown[0].check.as_str(), unknown[0].section.as_str()), ("something new", ""));
    }

    #[test]
    fn every_section_is_in_the_document() {
        let document = include_str!("../../docs/deploying.md");
        let anchors: Vec<String> = document
            .lines()
            .filter_map(|line| line.strip_prefix("## "))
            .map(|title| title.to_lowercase().replace(' ', "-"))
            .collect();
        for (_, _, section) in CHECKS {
            assert!(anchors.iter().any(|anchor| anchor == section), "{section} is no section of docs/deploying.md");
        }
    }
}
