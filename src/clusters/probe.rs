//! The self-test of a cluster: does it hold what the service needs, and does it refuse what it must?
//!
//! Asked live, with the two accounts' own tokens: every right by an access review or by using it, every guard by a dry
//! run of what it must refuse. A refusal counts only when it names the policy: RBAC refuses first, and would hide that
//! there is no guard. Each attack breaks one rule only, since of several policies that refuse the server names any one.

mod accounts;
mod guards;
pub(super) mod place;

use serde::Serialize;
use serde_json::Value;

use super::client::{Answer, Ask, ask};
use super::manifest::{Impersonation, ManifestOptions};
use super::version::{NoVersion, Version};

pub use place::{PROBE_NAMESPACE, role as probe_role};

/// One question and its answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What was asked.
    pub name: String,
    /// Whether it is as it must be.
    pub ok: bool,
    /// What was found, and what to do where it is wrong.
    pub message: String,
    /// What it counts for.
    #[serde(skip)]
    pub aspect: Aspect,
}

/// What a check counts for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aspect {
    /// A right that the service needs, or one that it must not have. Requests are refused while one is wrong.
    Right,
    /// A guard. Requests are refused while one is wrong.
    Guard,
    /// Something that some roles need; told, and nothing else is refused.
    Advice,
}

/// What a probe found.
#[derive(Debug, Clone)]
pub struct Report {
    /// Every check made.
    pub checks: Vec<Check>,
    /// How the forwarding account may act for people; `None` where it may not, or may do too much.
    pub impersonation: Option<Impersonation>,
}

impl Report {
    /// Checks of an aspect that failed.
    pub fn failed(&self, aspect: Aspect) -> impl Iterator<Item = &Check> {
        self.checks.iter().filter(move |check| check.aspect == aspect && !check.ok)
    }

    /// Whether nothing of an aspect failed.
    pub fn holds(&self, aspect: Aspect) -> bool {
        self.failed(aspect).next().is_none()
    }
}

/// The cluster gave no answer that can be understood, so that nothing is known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoAnswer(pub String);

/// The two accounts of a cluster.
#[derive(Clone)]
pub struct Accounts {
    /// As `bailiwick-system/housekeeping`.
    pub housekeeping: kube::Client,
    /// As `bailiwick-system/forwarding`.
    pub forwarding: kube::Client,
}

/// Who answers at an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// As the server writes it, `v1.36.3`.
    pub git_version: String,
    /// Its version.
    pub version: Version,
    /// UID of the namespace kube-system, which no two clusters share.
    pub kube_system_uid: String,
}

/// Asks who is there. As housekeeping, so that the token is proven at the same time.
pub async fn identify(housekeeping: &kube::Client) -> Result<Identity, NoAnswer> {
    let version = expect(ask(housekeeping, &[], &Ask::get("/version")).await, "GET /version")?;
    let git_version = version["gitVersion"].as_str().unwrap_or_default().to_owned();
    let parsed = Version::parse(&git_version)
        .map_err(|why: NoVersion| NoAnswer(format!("GET /version: {why}; is this a Kubernetes API server?")))?;
    let path = "/api/v1/namespaces/kube-system";
    let namespace = expect(ask(housekeeping, &[], &Ask::get(path)).await, "reading the namespace kube-system")?;
    let uid = namespace["metadata"]["uid"].as_str().filter(|uid| !uid.is_empty());
    let uid = uid.ok_or_else(|| NoAnswer("the namespace kube-system has no UID".into()))?;
    Ok(Identity { git_version, version: parsed, kube_system_uid: uid.to_owned() })
}

fn expect(answer: Result<Answer, String>, what: &str) -> Result<Value, NoAnswer> {
    let answer = answer.map_err(|why| NoAnswer(format!("{what}: {why}")))?;
    match answer.status {
        200..300 => Ok(answer.body),
        401 => Err(NoAnswer(format!(
            "{what}: the housekeeping token is not accepted (401); was the account or its token Secret deleted? Apply the \
             manifest and import the cluster again"
        ))),
        _ => Err(NoAnswer(format!("{what}: {}", answer.message()))),
    }
}

/// Probes everything. `wanted` are the API groups that the Cluster lets tenants reach.
pub async fn probe(
    accounts: &Accounts,
    cluster: &str,
    version: Version,
    wanted: &[String],
) -> Result<Report, NoAnswer> {
    let mut checks = vec![];
    let impersonation = accounts::forms(accounts, &mut checks).await?;
    accounts::rights(accounts, &mut checks).await?;
    accounts::stray_rights(accounts, &mut checks).await?;
    let options = ManifestOptions {
        impersonation: impersonation.unwrap_or(Impersonation::of(version)),
        tenant_api_groups: wanted.to_vec(),
        ..ManifestOptions::new(cluster, version)
    };
    accounts::reach(accounts, &options, &mut checks).await?;
    guards::present(accounts, &options, &mut checks).await?;
    let held = guards::hold_housekeeping(accounts, &mut checks).await?;
    // The place for members' attacks is made by housekeeping, so it must be held first.
    if held && let Some(form) = impersonation {
        guards::hold_members(accounts, form, &mut checks).await?;
    }
    Ok(Report { checks, impersonation })
}
