//! What is known of a cluster at the moment, and what it means for requests.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::client::shorten;
use super::manifest::Impersonation;
use super::probe::{Aspect, Report};
use super::version::Version;
use crate::index::{Map, ObservedCluster};
use crate::resources::condition::set_condition;
use crate::resources::{ClusterStatus, Condition};

/// Longest message of a condition.
const MAX_MESSAGE: usize = 1000;

/// Condition of a Cluster whose credential comes from a file.
const CREDENTIAL_FILE: &str = "CredentialFile";

/// How the last attempt to reach the cluster ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Contact {
    /// Not tried yet.
    Unknown,
    /// It answered, and is the cluster that was imported.
    Good,
    /// It does not answer, or not as a Kubernetes API server does. What was known stays in use for a grace.
    Lost {
        /// When the first attempt failed.
        since: Instant,
        /// Why, for people.
        why: String,
    },
    /// It must not be used, whoever answers there: no credential, another cluster.
    Refused {
        /// CamelCase.
        reason: &'static str,
        /// For people.
        message: String,
    },
}

/// State of one cluster.
#[derive(Debug, Clone)]
pub(super) struct Health {
    /// UID of the Cluster resource.
    pub uid: String,
    /// Where it is, for messages.
    pub server: String,
    pub contact: Contact,
    /// As the server writes it.
    pub git_version: String,
    pub version: Option<Version>,
    /// Why the version is not accepted.
    pub version_refused: Option<String>,
    pub kube_system_uid: Option<String>,
    pub report: Option<Arc<Report>>,
    pub namespaces: Map<Arc<str>>,
    /// Whether the namespaces have been listed.
    pub listed: bool,
    /// What came of the credential's file, where it comes from one: what it is, or reason and message.
    pub credential_file: Option<Result<String, (&'static str, String)>>,
}

impl Health {
    pub(super) fn new(uid: &str, server: &str) -> Self {
        Self {
            uid: uid.to_owned(),
            server: server.to_owned(),
            contact: Contact::Unknown,
            git_version: String::new(),
            version: None,
            version_refused: None,
            kube_system_uid: None,
            report: None,
            namespaces: Map::default(),
            listed: false,
            credential_file: None,
        }
    }

    /// Notes a failed attempt; the first one of a row starts the grace.
    pub(super) fn lost(&mut self, why: String) {
        let since = match &self.contact {
            Contact::Lost { since, .. } => *since,
            _ => Instant::now(),
        };
        self.contact = Contact::Lost { since, why };
    }

    /// Why requests are refused; `None` where they may be sent.
    fn refusal(&self, grace: Duration) -> Option<String> {
        match &self.contact {
            Contact::Unknown => return Some("the cluster has not been reached yet".into()),
            Contact::Refused { message, .. } => return Some(message.clone()),
            Contact::Lost { since, why } if since.elapsed() >= grace => {
                return Some(format!("the cluster cannot be reached: {why}"));
            }
            Contact::Lost { .. } | Contact::Good => {}
        }
        if let Some(why) = &self.version_refused {
            return Some(why.clone());
        }
        let Some(report) = &self.report else { return Some("rights and guards are being probed".into()) };
        for aspect in [Aspect::Right, Aspect::Guard] {
            if let Some(check) = report.failed(aspect).next() {
                return Some(format!("{}: {}", check.name, check.message));
            }
        }
        (!self.listed).then(|| "the namespaces of the cluster are being listed".into())
    }

    /// What the index is told.
    pub(super) fn observed(&self, grace: Duration) -> ObservedCluster {
        let refusal = self.refusal(grace);
        ObservedCluster {
            cluster_uid: self.uid.clone(),
            version: self.version.map(Version::pair),
            usable: refusal.is_none(),
            reason: refusal.unwrap_or_default(),
            impersonation: self.form().unwrap_or_default(),
            namespaces: self.namespaces.clone(),
        }
    }

    fn form(&self) -> Option<Impersonation> {
        self.report.as_ref().and_then(|report| report.impersonation)
    }

    /// Writes what is known into a status; other conditions stay. Returns whether anything changed.
    pub(super) fn write(&self, status: &mut ClusterStatus, now: &str) -> bool {
        // A restart of the service is no news about the cluster: what stands there is replaced by the first answer.
        if self.contact == Contact::Unknown && !status.conditions.is_empty() {
            return false;
        }
        let before = status.clone();
        for (type_, (state, reason, message)) in [
            ("Reachable", self.reachable()),
            ("VersionSupported", self.version_supported()),
            ("RightsComplete", self.aspect(&[Aspect::Right, Aspect::Advice], "Missing")),
            ("GuardsInForce", self.aspect(&[Aspect::Guard], "NotInForce")),
        ] {
            let condition = Condition {
                type_: type_.to_owned(),
                status: state.to_owned(),
                reason: reason.to_owned(),
                message: shorten(&message, MAX_MESSAGE),
                last_transition_time: now.to_owned(),
            };
            set_condition(&mut status.conditions, condition);
        }
        match self.credential_file() {
            Some((state, reason, message)) => {
                let condition = Condition {
                    type_: CREDENTIAL_FILE.to_owned(),
                    status: state.to_owned(),
                    reason: reason.to_owned(),
                    message: shorten(&message, MAX_MESSAGE),
                    last_transition_time: now.to_owned(),
                };
                set_condition(&mut status.conditions, condition);
            }
            None => status.conditions.retain(|condition| condition.type_ != CREDENTIAL_FILE),
        }
        status.reachable = self.reachable().0.to_owned();
        // What is not known now was true when it was last seen.
        if !self.git_version.is_empty() {
            status.version.clone_from(&self.git_version);
        }
        if self.report.is_some() {
            status.impersonation = self.form().map_or("refused", Impersonation::as_str).to_owned();
        }
        if self.kube_system_uid.is_some() {
            status.cluster_uid.clone_from(&self.kube_system_uid);
        }
        *status != before
    }

    fn credential_file(&self) -> Option<(&'static str, &'static str, String)> {
        Some(match self.credential_file.as_ref()? {
            Ok(message) => ("True", "Read", message.clone()),
            Err((reason, message)) => ("False", reason, message.clone()),
        })
    }

    fn reachable(&self) -> (&'static str, &'static str, String) {
        match &self.contact {
            Contact::Unknown => ("Unknown", "Connecting", format!("connecting to {}", self.server)),
            Contact::Good => ("True", "Answering", format!("Kubernetes {} at {}", self.git_version, self.server)),
            Contact::Lost { why, .. } => ("False", "Unreachable", format!("{}: {why}", self.server)),
            Contact::Refused { reason, message } => ("False", reason, message.clone()),
        }
    }

    fn version_supported(&self) -> (&'static str, &'static str, String) {
        match (self.version, &self.version_refused) {
            (None, _) => ("Unknown", "NotReached", "the version is not known yet".into()),
            (Some(_), Some(why)) => ("False", "OutsideRange", why.clone()),
            (Some(version), None) => ("True", "WithinRange", format!("Kubernetes {version} is accepted")),
        }
    }

    fn aspect(&self, aspects: &[Aspect], reason: &'static str) -> (&'static str, &'static str, String) {
        let Some(report) = &self.report else {
            return ("Unknown", "NotProbed", "not probed yet".into());
        };
        let failed: Vec<String> = aspects
            .iter()
            .flat_map(|aspect| report.failed(*aspect))
            .map(|check| format!("{}: {}", check.name, check.message))
            .collect();
        if failed.is_empty() {
            let count = report.checks.iter().filter(|check| aspects.contains(&check.aspect)).count();
            return ("True", "Probed", format!("{count} checks passed"));
        }
        ("False", reason, failed.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::super::probe::Check;
    use super::*;

    const GRACE: Duration = Duration::from_secs(30);

    fn good() -> Health {
        let mut health = Health::new("u-1", "https://kube.example.com");
        health.contact = Contact::Good;
        health.git_version = "v1.36.3".into();
        health.version = Some(Version { major: 1, minor: 36 });
        health.kube_system_uid = Some("k-1".into());
        health.listed = true;
        health.namespaces.insert("shop-dev".into(), "n-1".into());
        health.report = Some(Arc::new(report(&[])));
        health
    }

    fn report(wrong: &[(Aspect, &str)]) -> Report {
        let check = |ok, name: &str, aspect| Check { name: name.into(), ok, message: "seen".into(), aspect };
        let mut checks = vec![check(true, "fine", Aspect::Right), check(true, "fine", Aspect::Guard)];
        checks.extend(wrong.iter().map(|(aspect, name)| check(false, name, *aspect)));
        Report { checks, impersonation: Some(Impersonation::Limited) }
    }

    #[test]
    fn usable_only_when_everything_is_as_it_must_be() {
        assert!(good().observed(GRACE).usable);
        let ways: [fn(&mut Health); 8] = [
            |h| h.contact = Contact::Unknown,
            |h| h.contact = Contact::Refused { reason: "AnotherCluster", message: "another".into() },
            |h| h.version_refused = Some("too old".into()),
            |h| h.report = None,
            |h| h.report = Some(Arc::new(report(&[(Aspect::Right, "a")]))),
            |h| h.report = Some(Arc::new(report(&[(Aspect::Guard, "b")]))),
            |h| h.listed = false,
            |h| h.contact = Contact::Lost { since: Instant::now() - 2 * GRACE, why: "refused".into() },
        ];
        for (at, spoil) in ways.into_iter().enumerate() {
            let mut health = good();
            spoil(&mut health);
            let seen = health.observed(GRACE);
            assert!(!seen.usable && !seen.reason.is_empty(), "way {at}");
            assert_eq!(seen.namespaces.len(), 1, "the last list is kept");
        }
    }

    #[test]
    fn advice_refuses_nothing() {
        let mut health = good();
        health.report = Some(Arc::new(report(&[(Aspect::Advice, "API group example.com")])));
        assert!(health.observed(GRACE).usable);
        let mut status = ClusterStatus::default();
        health.write(&mut status, "t1");
        let rights = status.conditions.iter().find(|c| c.type_ == "RightsComplete").unwrap();
        assert_eq!(rights.status, "False");
        assert!(rights.message.contains("example.com"));
    }

    #[test]
    fn a_short_loss_changes_nothing_and_its_beginning_counts() {
        let mut health = good();
        health.lost("reset".into());
        assert!(health.observed(GRACE).usable);
        let Contact::Lost { since, .. } = health.contact.clone() else { panic!() };
        health.lost("reset again".into());
        assert!(
            matches!(&health.contact, Contact::Lost { since: again, why } if *again == since && why == "reset again")
        );
        assert!(!health.observed(Duration::ZERO).usable);
    }

    #[test]
    fn status_changes_only_when_something_did() {
        let mut status = ClusterStatus::default();
        status.conditions.push(Condition {
            type_: "Reconciled".into(),
            status: "True".into(),
            reason: "Done".into(),
            message: String::new(),
            last_transition_time: "t0".into(),
        });
        let health = good();
        assert!(health.write(&mut status, "t1"));
        assert_eq!((status.reachable.as_str(), status.version.as_str()), ("True", "v1.36.3"));
        assert_eq!((status.impersonation.as_str(), status.cluster_uid.as_deref()), ("limited", Some("k-1")));
        assert_eq!(status.conditions.len(), 5);
        assert!(status.conditions.iter().any(|c| c.type_ == "Reconciled"));
        assert!(!health.write(&mut status, "t2"), "nothing changed");
        let mut lost = good();
        lost.lost("connection refused".into());
        assert!(lost.write(&mut status, "t3"));
        let reachable = status.conditions.iter().find(|c| c.type_ == "Reachable").unwrap();
        assert_eq!((reachable.status.as_str(), reachable.last_transition_time.as_str()), ("False", "t3"));
        assert!(reachable.message.contains("connection refused"));
        assert_eq!(status.version, "v1.36.3");
    }
}
