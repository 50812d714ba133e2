//! `project namespace`.

use http::Method;
use serde_json::json;

use super::args::{NamespaceCommand, ProjectArgs, ProjectCommand};
use super::client::{encode, resource_path};
use super::exit::Outcome;
use super::{output, session};

/// `bailiwick project`.
pub async fn run(args: ProjectArgs) -> Outcome {
    let ProjectArgs { connect, command } = args;
    let ProjectCommand::Namespace { command } = command;
    let client = session::connect(&connect)?;
    let namespaces = |project: &str| resource_path("projects", Some(project)) + "/namespaces";
    match command {
        NamespaceCommand::Create { project, name, cluster, output: format } => {
            let body = json!({"cluster": cluster, "name": name});
            let status = client.call(Method::POST, &namespaces(&project), Some(&body)).await?;
            output::structured(format, &status, || match format {
                output::Format::Name => format!("{name}\n"),
                _ => format!("namespace {name} created on {cluster} for project {project}\n"),
            })
        }
        NamespaceCommand::Delete { project, name, cluster } => {
            let path = format!("{}/{}/{}", namespaces(&project), encode(&cluster), encode(&name));
            client.call(Method::DELETE, &path, None).await?;
            output::line(&format!("namespace {name} on {cluster} is being deleted"))
        }
        NamespaceCommand::Move { name, cluster, from, to } => {
            let body = json!({"cluster": cluster, "name": name, "from": from});
            client.call(Method::POST, &namespaces(&to), Some(&body)).await?;
            output::line(&format!("namespace {name} on {cluster} moved from project {from} to {to}"))
        }
    }
}
