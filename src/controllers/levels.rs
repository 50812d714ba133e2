//! What a stricter Pod Security level would refuse: the API server's own answer to a change of the label, as a dry run.
//! <https://kubernetes.io/docs/tasks/configure-pod-container/enforce-standards-namespace-labels/>

use kube::Client;
use serde_json::json;

use super::adoption::dry_run;
use crate::clusters::names::POD_SECURITY;
use crate::domain::refusals;
use crate::resources::project::{LevelFindings, LevelReport, PodSecurityLevel};

/// Tries a level in a namespace.
pub(super) async fn tried(
    client: Option<Client>,
    cluster: String,
    name: String,
    level: PodSecurityLevel,
) -> LevelReport {
    let mut report = LevelReport { cluster, name, level: level.as_str().to_owned(), ..LevelReport::default() };
    let Some(client) = client else {
        "the cluster cannot be worked on now".clone_into(&mut report.message);
        return report;
    };
    let change = json!({"metadata": {"labels": {POD_SECURITY[0]: level.as_str()}}});
    match dry_run(&client, &report.name, &change).await {
        Ok(warnings) => report.pods = warnings.iter().filter_map(|warning| found(warning)).collect(),
        Err(why) => report.message = why.to_string(),
    }
    report
}

/// A warning about Pods: `web-7d4b9c (and 2 other pods): runAsNonRoot != true, seccompProfile`. The one before it, which
/// says that there are such, tells nothing more.
fn found(warning: &str) -> Option<LevelFindings> {
    if warning.starts_with("existing pods in namespace ") {
        return None;
    }
    let (pods, checks) = warning.split_once(": ")?;
    let findings = refusals::findings(checks);
    (!findings.is_empty()).then(|| LevelFindings { pods: pods.to_owned(), findings })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_taken_apart() {
        let heading =
            "existing pods in namespace \"shop-web\" violate the new PodSecurity enforce level \"restricted:latest\"";
        assert_eq!(found(heading), None);
        let found =
            found("web-7d4b9c (and 2 other pods): allowPrivilegeEscalation != false, runAsNonRoot != true").unwrap();
        assert_eq!(found.pods, "web-7d4b9c (and 2 other pods)");
        assert_eq!(
            found.findings.iter().map(|f| f.section.as_str()).collect::<Vec<_>>(),
            ["privilege-escalation", "users"]
        );
    }
}
