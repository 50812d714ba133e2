//! `cluster`: the manifest, the import, and what one asks about clusters.

use http::Method;
use serde_json::{Value, json};

use super::args::{ClusterArgs, ClusterCommand};
use super::client::{Client, encode, resource_path};
use super::exit::{Failure, Outcome};
use super::output::{self, Format};
use super::session;
use crate::clusters::manifest::{self, Impersonation, Manifest, ManifestOptions};
use crate::clusters::version::Version;

mod import;

/// `bailiwick cluster`.
pub async fn run(args: ClusterArgs) -> Outcome {
    let ClusterArgs { connect, command } = args;
    let client = || session::connect(&connect);
    match command {
        ClusterCommand::Manifest {
            name,
            kubernetes_version,
            tenant_api_groups,
            administrators,
            legacy_impersonation,
            uninstall,
        } => {
            if uninstall {
                return output::print(&manifest::uninstall(&name).map_err(|e| Failure::Usage(e.to_string()))?);
            }
            let version = Version::parse(&kubernetes_version)
                .map_err(|e| Failure::Usage(format!("--kubernetes-version: {e}")))?;
            let mut options = ManifestOptions::new(&name, version);
            options.tenant_api_groups = tenant_api_groups;
            options.administrators = administrators;
            if legacy_impersonation {
                options.impersonation = Impersonation::Limited;
            }
            let manifest = Manifest::render(&options).map_err(|e| Failure::Usage(e.to_string()))?;
            output::print(&manifest.to_yaml().map_err(|e| Failure::Failed(format!("cannot write YAML: {e}")))?)
        }
        ClusterCommand::Import { name, kubeconfig, context, display_name, tenant_api_groups } => {
            let request =
                import::Request { name: &name, kubeconfig: &kubeconfig, context, display_name, tenant_api_groups };
            import::run(&client()?, &request).await
        }
        ClusterCommand::Check { name, output } => check(&client()?, &name, output).await,
        ClusterCommand::CheckUpgrade { name, version, output } => {
            Version::parse(&version).map_err(|e| Failure::Usage(e.to_string()))?;
            let path = format!("{}/check-upgrade?version={}", resource_path("clusters", Some(&name)), encode(&version));
            let answer = client()?.get(&path).await?;
            output::structured(output, &answer, || format!("{}\n", output::text(&answer["message"])))?;
            passed(&answer, &format!("cluster {name} should not be upgraded to {version}"))
        }
        ClusterCommand::Forget { name, project } => {
            let body = project.as_ref().map_or(json!({}), |project| json!({"project": project}));
            let path = resource_path("clusters", Some(&name)) + "/forget";
            client()?.call(Method::POST, &path, Some(&body)).await?;
            let what = project.map_or("all deleted projects".to_owned(), |p| format!("the deleted project {p}"));
            output::line(&format!("cluster {name} is no longer waited for by {what}"))
        }
    }
}

/// Probes a cluster and shows each check. What is missing makes exit code 1.
async fn check(client: &Client, name: &str, format: Format) -> Outcome {
    let answer = client.get(&(resource_path("clusters", Some(name)) + "/check")).await?;
    output::structured(format, &answer, || checks_table(&answer))?;
    passed(&answer, &format!("cluster {name} does not pass its checks"))
}

fn checks_table(answer: &Value) -> String {
    let headers = ["Check", "Result", "Message"].map(str::to_owned);
    let rows: Vec<Vec<String>> = checks(answer)
        .map(|check| {
            let result = if check["ok"] == true { "ok" } else { "MISSING" };
            vec![output::text(&check["name"]), result.to_owned(), output::text(&check["message"])]
        })
        .collect();
    output::table(&headers, &rows)
}

fn checks(answer: &Value) -> impl Iterator<Item = &Value> {
    answer["checks"].as_array().into_iter().flatten()
}

fn passed(answer: &Value, otherwise: &str) -> Outcome {
    if answer["ok"] == true { Ok(()) } else { Err(Failure::Failed(otherwise.to_owned())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_missing_right_is_named() {
        let answer = json!({"ok": false, "checks": [
            {"name": "reachable", "ok": true, "message": "1.36.3"},
            {"name": "housekeeping may create namespaces", "ok": false, "message": "forbidden"},
        ]});
        assert_eq!(
            checks_table(&answer),
            "CHECK                                RESULT    MESSAGE\n\
             reachable                            ok        1.36.3\n\
             housekeeping may create namespaces   MISSING   forbidden\n"
        );
        assert_eq!(passed(&answer, "no").unwrap_err().code(), 1);
        assert!(passed(&json!({"ok": true}), "no").is_ok());
        // An answer that says nothing is no consent.
        assert!(passed(&json!({}), "no").is_err());
    }
}
