//! `project status`: what stands in the way, and what to do about it.

use http::Method;
use serde_json::{Value, json};

use crate::cli::client::{Client, resource_path};
use crate::cli::exit::Outcome;
use crate::cli::output::{self, Format};

/// Cells of a bar.
const BAR: usize = 20;

/// `bailiwick project status`.
pub(super) async fn run(client: &Client, project: &str, level: Option<String>, format: Format) -> Outcome {
    let path = resource_path("projects", Some(project));
    let resource = client.call(Method::GET, &path, None).await?;
    let level = level.unwrap_or_else(|| stricter(text(&resource["spec"]["podSecurity"]["enforce"])).to_owned());
    let tried = client.call(Method::GET, &format!("{path}/levels/{level}"), None).await?;
    let value =
        json!({"project": project, "status": resource["status"], "level": level, "levels": tried["namespaces"]});
    output::structured(format, &value, || match format {
        Format::Name => format!("project.bailiwick.dev/{project}\n"),
        _ => told(&value),
    })
}

fn stricter(enforced: &str) -> &'static str {
    match enforced {
        "privileged" => "baseline",
        _ => "restricted",
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// For people: first what is wrong, then how full things are, then what a stricter level would mean.
fn told(value: &Value) -> String {
    let project = text(&value["project"]);
    let status = &value["status"];
    let mut out = format!("Project {project}: ");
    let ready = items(&status["conditions"]).find(|c| c["type"] == "Ready");
    match ready {
        Some(condition) if condition["status"] == "True" => out.push_str("ready\n"),
        Some(condition) => out.push_str(&format!("not ready: {}\n", text(&condition["message"]))),
        None => out.push_str("not looked at yet\n"),
    }
    for condition in items(&status["conditions"]).filter(|c| stands_out(c)) {
        out.push_str(&format!("  {}: {}\n", text(&condition["type"]), text(&condition["message"])));
    }
    for namespace in items(&status["namespaces"]) {
        out.push_str(&namespace_told(project, namespace));
    }
    out.push_str(&levels_told(text(&value["level"]), &value["levels"]));
    // What comes from clusters must not drive the terminal.
    out.split('\n').map(output::disarmed).collect::<Vec<_>>().join("\n")
}

fn stands_out(condition: &Value) -> bool {
    match text(&condition["type"]) {
        "Ready" => false,
        "Contested" => condition["status"] == "True",
        _ => condition["status"] == "False",
    }
}

fn namespace_told(project: &str, namespace: &Value) -> String {
    let mut out =
        format!("\n{} on {}: {}\n", text(&namespace["name"]), text(&namespace["cluster"]), text(&namespace["state"]));
    if !text(&namespace["message"]).is_empty() {
        out.push_str(&format!("  {}\n", text(&namespace["message"])));
    }
    let rows: Vec<Vec<String>> = namespace["hard"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(resource, hard)| {
            let used = text(&namespace["used"][resource]);
            let used = if used.is_empty() { "0" } else { used };
            vec![format!("  {resource}"), bar(used, text(hard)), format!("{used} of {}", text(hard))]
        })
        .collect();
    if !rows.is_empty() {
        let table = output::table(&["  quota".to_owned(), String::new(), "used".to_owned()], &rows);
        out.push_str(&table);
    }
    for refusal in items(&namespace["refusals"]) {
        out.push_str(&refusal_told(project, text(&namespace["name"]), refusal));
    }
    out
}

/// How much of a quota is used, as a picture.
fn bar(used: &str, hard: &str) -> String {
    let number = |text: &str| text.parse::<crate::domain::quantity::Quantity>().ok().map(|q| q.nanos() as f64);
    let share = match (number(used), number(hard)) {
        (Some(used), Some(hard)) if hard > 0.0 => (used / hard).clamp(0.0, 1.0),
        (Some(_), Some(_)) => 1.0,
        _ => return String::new(),
    };
    let full = (share * BAR as f64).round() as usize;
    format!("[{}{}] {:>3.0} %", "#".repeat(full), ".".repeat(BAR - full), share * 100.0)
}

fn refusal_told(project: &str, namespace: &str, refusal: &Value) -> String {
    let mut out = format!(
        "  Pods of {} were refused ({} times, last {})\n",
        text(&refusal["object"]),
        refusal["count"],
        text(&refusal["last"])
    );
    match text(&refusal["reason"]) {
        "Quota" => {
            for over in items(&refusal["over"]) {
                out.push_str(&format!(
                    "    {}: {} more asked for, {} of {} used\n",
                    text(&over["resource"]),
                    text(&over["requested"]),
                    text(&over["used"]),
                    text(&over["hard"])
                ));
            }
            out.push_str(&format!(
                "    an owner of {project} can give {namespace} a larger share; more for the whole project, an administrator of the platform (docs/deploying.md#quota)\n"
            ));
        }
        "Unstated" => {
            let all = items(&refusal["unstated"]).map(text).collect::<Vec<_>>().join(", ");
            out.push_str(&format!("    each container must state {all} (docs/deploying.md#quota)\n"));
        }
        "PodSecurity" => {
            out.push_str(&format!("    Pod Security level {} does not let:\n", text(&refusal["level"])));
            out.push_str(&findings_told(&refusal["findings"], "    "));
        }
        _ => out.push_str(&format!("    {}\n", text(&refusal["message"]))),
    }
    out
}

fn findings_told(findings: &Value, indent: &str) -> String {
    let line = |finding: &Value| {
        let detail = match text(&finding["detail"]) {
            "" => String::new(),
            detail => format!(" ({detail})"),
        };
        let how = match (text(&finding["field"]), text(&finding["section"])) {
            ("", _) => String::new(),
            (field, section) => format!("; change {field}, see docs/deploying.md#{section}"),
        };
        format!("{indent}- {}{detail}{how}\n", text(&finding["check"]))
    };
    items(findings).map(line).collect()
}

fn levels_told(level: &str, levels: &Value) -> String {
    let mut out = String::new();
    for namespace in items(levels) {
        let place = format!("{} on {}", text(&namespace["name"]), text(&namespace["cluster"]));
        if !text(&namespace["message"]).is_empty() {
            out.push_str(&format!("  {place}: not known: {}\n", text(&namespace["message"])));
        }
        for pods in items(&namespace["pods"]) {
            out.push_str(&format!("  {place}: {}\n", text(&pods["pods"])));
            out.push_str(&findings_told(&pods["findings"], "    "));
        }
    }
    match out.is_empty() {
        true => format!("\nPod Security level {level} would refuse none of the Pods that run.\n"),
        false => format!("\nPod Security level {level} would refuse:\n{out}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_in_the_way_is_told_with_what_to_do() {
        let value = json!({
            "project": "shop", "level": "restricted",
            "status": {
                "conditions": [{"type": "Ready", "status": "True"},
                               {"type": "Isolated", "status": "False", "message": "opened by allow-all"}],
                "namespaces": [{
                    "cluster": "demo", "name": "shop-web", "state": "Ready",
                    "hard": {"pods": "4", "requests.cpu": "2"}, "used": {"pods": "4", "requests.cpu": "500m"},
                    "refusals": [
                        {"object": "ReplicaSet web-1", "reason": "Quota", "count": 3, "last": "2026-01-01T00:00:00Z",
                         "over": [{"resource": "pods", "requested": "1", "used": "4", "hard": "4"}]},
                        {"object": "Job once", "reason": "PodSecurity", "level": "baseline", "count": 1, "last": "x",
                         "findings": [{"check": "host namespaces", "detail": "hostNetwork=true",
                                       "field": "spec.hostNetwork", "section": "host-namespaces"}]},
                        {"object": "Job odd\u{1b}[31m\u{202e}", "reason": "Other", "count": 1, "last": "x", "message": "denied"},
                    ],
                }],
            },
            "levels": [{"cluster": "demo", "name": "shop-web", "pods": [
                {"pods": "web-7 (and 2 other pods)",
                 "findings": [{"check": "seccompProfile", "detail": "", "field": "spec.securityContext", "section": "seccomp"}]}]}],
        });
        let told = told(&value);
        for line in [
            "Project shop: ready\n",
            "  Isolated: opened by allow-all\n",
            "[####################] 100 %   4 of 4",
            "[#####...............]  25 %   500m of 2",
            "Pods of ReplicaSet web-1 were refused (3 times, last 2026-01-01T00:00:00Z)",
            "    pods: 1 more asked for, 4 of 4 used",
            "an owner of shop can give shop-web a larger share",
            "    - host namespaces (hostNetwork=true); change spec.hostNetwork, see docs/deploying.md#host-namespaces",
            "    denied",
            "Pod Security level restricted would refuse:\n  shop-web on demo: web-7 (and 2 other pods)\n    - seccompProfile; change",
        ] {
            assert!(told.contains(line), "{line:?} in\n{told}");
        }
        assert!(!told.contains('\u{1b}'));
        assert!(levels_told("restricted", &json!([])).contains("would refuse none"));
    }
}
