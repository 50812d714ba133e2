//! `cluster import`: what is read with the administrator's kubeconfig, on this machine, and what is sent.

use std::path::Path;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{checks, checks_table};
use crate::cli::client::{Client, resource_path};
use crate::cli::exit::{Failure, Outcome};
use crate::cli::output;
use crate::clusters::import::{ImportError, Imported, read};
use crate::resources::API_VERSION;
use crate::resources::cluster::DirectConnection;

/// Longest wait until the service reaches the cluster and its probes pass. New policies and rights take the API server
/// some seconds.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two probes: each is some dozens of requests to the cluster.
const BETWEEN: Duration = Duration::from_secs(1);
/// What to import.
#[derive(Debug)]
pub struct Request<'a> {
    /// Name of the Cluster.
    pub name: &'a str,
    /// Kubeconfig of the cluster's administrator.
    pub kubeconfig: &'a Path,
    /// Context in it; its current one where absent.
    pub context: Option<String>,
    /// Name for people.
    pub display_name: Option<String>,
    /// API groups that tenants may reach beside the built-in ones.
    pub tenant_api_groups: Vec<String>,
}

/// Imports a cluster and says each step.
pub async fn run(client: &Client, request: &Request<'_>) -> Outcome {
    let name = request.name;
    let file = request.kubeconfig.display();
    output::complain(&format!("Reading the two accounts' tokens with {file} …"));
    let found = read(request.kubeconfig, request.context.as_deref()).await.map_err(|e| failure(&e))?;
    let Imported { connection, forwarding, housekeeping, kube_system_uid, version: _, git_version } = found;
    output::complain(&format!("Found them at {} ({git_version}).", connection.server));
    register(client, request, &connection).await?;
    output::complain(&format!("Cluster {name} is registered; handing over the tokens …"));
    let credential = json!({"forwarding": forwarding.as_str(), "housekeeping": housekeeping.as_str(),
        "kubeSystemUID": kube_system_uid});
    let path = resource_path("clusters", Some(name));
    client.call(Method::POST, &format!("{path}/credential"), Some(&credential)).await?;
    output::complain("Probing every right and guard …");
    let answer = probe(client, &format!("{path}/check")).await?;
    if answer["ok"] == true {
        output::complain(&format!("{} checks passed.", checks(&answer).count()));
        return output::line(&format!("cluster.bailiwick.dev/{name} imported"));
    }
    output::print(&checks_table(&answer))?;
    let missing: Vec<String> = checks(&answer).filter(|c| c["ok"] != true).map(|c| output::text(&c["name"])).collect();
    Err(Failure::Failed(format!(
        "cluster {name} is registered, but not usable: {}. Let its administrator apply `bailiwick cluster manifest \
         {name}` again, then run `bailiwick cluster check {name}`",
        if missing.is_empty() { "no check was made".to_owned() } else { missing.join("; ") }
    )))
}

/// Asks until everything passes or patience ends; the last answer.
async fn probe(client: &Client, path: &str) -> Outcome<Value> {
    let end = Instant::now() + PATIENCE;
    loop {
        let answer = client.get(path).await?;
        if answer["ok"] == true || Instant::now() + BETWEEN >= end {
            return Ok(answer);
        }
        tokio::time::sleep(BETWEEN).await;
    }
}

/// Creates the Cluster, or brings the connection of an existing one up to date.
async fn register(client: &Client, request: &Request<'_>, connection: &DirectConnection) -> Outcome {
    let Request { name, kubeconfig: _, context: _, display_name, tenant_api_groups } = request;
    let direct = serde_json::to_value(connection).map_err(|e| Failure::Failed(e.to_string()))?;
    let path = resource_path("clusters", Some(name));
    let (mut object, exists) = match client.get(&path).await {
        Ok(object) => (object, true),
        Err(failure) if failure.is_status(404) => {
            (json!({"apiVersion": API_VERSION, "kind": "Cluster", "metadata": {"name": name}, "spec": {}}), false)
        }
        Err(failure) => return Err(failure),
    };
    let before = object["spec"].clone();
    object["spec"]["connection"] = json!({"direct": direct});
    if let Some(display_name) = display_name {
        object["spec"]["displayName"] = json!(display_name);
    }
    if !tenant_api_groups.is_empty() {
        object["spec"]["tenantAPIGroups"] = json!(tenant_api_groups);
    }
    if exists && object["spec"] == before {
        return Ok(());
    }
    let (method, path) = if exists { (Method::PUT, path) } else { (Method::POST, resource_path("clusters", None)) };
    client.call(method, &path, Some(&object)).await.map(|_| ())
}

/// What went wrong on this side, with its exit code: the file or its use, or the way to the cluster.
fn failure(error: &ImportError) -> Failure {
    match error {
        ImportError::File { .. } | ImportError::Context { .. } | ImportError::Endpoint(_) => {
            Failure::Usage(error.to_string())
        }
        ImportError::Cluster { .. } | ImportError::NoSecret(_) | ImportError::NoToken(_) => {
            Failure::Failed(error.to_string())
        }
    }
}

#[cfg(test)]
mod tests;
