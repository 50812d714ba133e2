//! `project namespace`.

use http::Method;
use serde_json::{Value, json};

use super::args::{NamespaceCommand, ProjectArgs, ProjectCommand};
use super::client::{encode, resource_path};
use super::exit::{Failure, Outcome};
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
                _ => told(&status, &format!("namespace {name} created on {cluster} for project {project}")),
            })?;
            usable(&status)
        }
        NamespaceCommand::Delete { project, name, cluster } => {
            let path = format!("{}/{}/{}", namespaces(&project), encode(&cluster), encode(&name));
            client.call(Method::DELETE, &path, None).await?;
            output::line(&format!("namespace {name} on {cluster} is being deleted"))
        }
        NamespaceCommand::Move { name, cluster, from, to } => {
            let body = json!({"cluster": cluster, "name": name, "from": from});
            let status = client.call(Method::POST, &namespaces(&to), Some(&body)).await?;
            output::print(&told(&status, &format!("namespace {name} on {cluster} moved from project {from} to {to}")))?;
            usable(&status)
        }
    }
}

/// What is said of a namespace that can be used; of another one [`usable`] says it.
fn told(status: &Value, done: &str) -> String {
    if usable(status).is_ok() { format!("{done}\n") } else { String::new() }
}

/// The service answers when the namespace can be used, or, after a while, with what it still waits for.
fn usable(status: &Value) -> Outcome {
    let text = |key: &str| status[key].as_str().unwrap_or_default();
    match text("state") {
        "Ready" => Ok(()),
        state => Err(Failure::Failed(format!(
            "namespace {} on {} is the project's, but cannot be used yet ({state}): {}",
            text("name"),
            text("cluster"),
            text("message")
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn done_means_that_it_can_be_used() {
        let ready = json!({"cluster": "demo", "name": "shop-x", "state": "Ready"});
        assert_eq!(told(&ready, "created"), "created\n");
        let pending = json!({"cluster": "demo", "name": "shop-x", "state": "Pending", "message": "cluster is down"});
        assert_eq!(told(&pending, "created"), "");
        let failure = usable(&pending).unwrap_err();
        assert_eq!(failure.code(), 1);
        assert!(failure.to_string().contains("shop-x on demo is the project's, but"), "{failure}");
        assert!(failure.to_string().ends_with("(Pending): cluster is down"), "{failure}");
    }
}
