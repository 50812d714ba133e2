//! `project`.

mod status;

use http::Method;
use serde_json::{Value, json};

use super::args::{NamespaceCommand, ProjectArgs, ProjectCommand};
use super::client::{encode, resource_path};
use super::exit::{Failure, Outcome};
use super::{output, session};

/// `bailiwick project`.
pub async fn run(args: ProjectArgs) -> Outcome {
    let ProjectArgs { connect, command } = args;
    let namespaces = |project: &str| resource_path("projects", Some(project)) + "/namespaces";
    let adoption = |project: &str, place: &str| {
        let (cluster, namespace) =
            place.split_once('/').ok_or_else(|| Failure::Usage("write CLUSTER/NAMESPACE".to_owned()))?;
        Ok::<_, Failure>(format!("{}/{}/{}/adoption", namespaces(project), encode(cluster), encode(namespace)))
    };
    let command = match command {
        ProjectCommand::Namespace { command } => command,
        ProjectCommand::Adopt { project, place, dry_run, output: format } => {
            let path = adoption(&project, &place)?;
            let client = session::connect(&connect)?;
            let method = if dry_run { Method::GET } else { Method::POST };
            let report = client.call(method, &path, None).await?;
            return output::structured(format, &report, || match format {
                output::Format::Name => format!("{place}\n"),
                _ if dry_run => told_adoption(&report),
                _ => format!("{}{place} is adopted by project {project}\n", told_adoption(&report)),
            });
        }
        ProjectCommand::Status { project, level, output: format } => {
            return status::run(&session::connect(&connect)?, &project, level, format).await;
        }
        ProjectCommand::Release { project, place } => {
            let path = adoption(&project, &place)?;
            session::connect(&connect)?.call(Method::DELETE, &path, None).await?;
            return output::line(&format!("{place} is given back by project {project}"));
        }
    };
    let client = session::connect(&connect)?;
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

/// What adopting means, as a table: what stays or is over, and which.
fn told_adoption(report: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let items = |key: &str| report[key].as_array().cloned().unwrap_or_default();
    let mut rows = vec![];
    for binding in items("roleBindings") {
        let what = format!(
            "{} gives {} to {}",
            text(&binding["name"]),
            text(&binding["role"]),
            output::text(&binding["subjects"])
        );
        rows.push(vec!["RoleBinding stays in force".to_owned(), what]);
    }
    for warning in items("refusedPods") {
        rows.push(vec![format!("Pods below {}", text(&report["enforce"])), text(&warning)]);
    }
    for policy in items("openedBy") {
        rows.push(vec!["NetworkPolicy opens isolation".to_owned(), text(&policy)]);
    }
    for over in items("useOverShare") {
        let what = format!("{}: {} used, share {}", text(&over["resource"]), text(&over["used"]), text(&over["share"]));
        rows.push(vec!["Use over quota".to_owned(), what]);
    }
    if report["useCounted"] != true {
        let how = format!(
            "the cluster's administrator lets it be counted with: kubectl create rolebinding bailiwick-adoption -n {} \
             --clusterrole=bailiwick-adoption --serviceaccount=bailiwick-system:housekeeping",
            text(&report["name"])
        );
        rows.push(vec!["Use not counted".to_owned(), how]);
    }
    if rows.is_empty() {
        return "nothing in it stands against the project\n".to_owned();
    }
    output::table(&["what".to_owned(), "which".to_owned()], &rows)
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
    fn what_adopting_means_is_told_line_by_line() {
        let mut report = json!({"name": "old", "enforce": "baseline", "useCounted": true});
        assert_eq!(told_adoption(&report), "nothing in it stands against the project\n");
        report["roleBindings"] =
            json!([{"name": "ops", "role": "ClusterRole edit", "subjects": ["Group ops", "User x"]}]);
        report["refusedPods"] = json!(["debug: host namespaces"]);
        report["useOverShare"] = json!([{"resource": "pods", "used": "5", "share": "4"}]);
        report["useCounted"] = json!(false);
        let told = told_adoption(&report);
        for line in [
            "RoleBinding stays in force   ops gives ClusterRole edit to Group ops,User x",
            "Pods below baseline          debug: host namespaces",
            "Use over quota               pods: 5 used, share 4",
            "Use not counted              the cluster's administrator lets it be counted with: kubectl create rolebinding",
        ] {
            assert!(told.contains(line), "{line} in\n{told}");
        }
    }

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
