//! `audit`: the log as the service lets one read it.

use http::Method;
use serde_json::Value;

use super::args::AuditArgs;
use super::client::encode;
use super::exit::{Failure, Outcome};
use super::output::{self, Format};
use super::session;
use crate::clock;

/// `bailiwick audit`.
pub async fn run(args: AuditArgs) -> Outcome {
    let AuditArgs { user, cluster, project, verb, refused, since, until, limit, output: format, connect } = args;
    let client = session::connect(&connect)?;
    let now = clock::now();
    let mut query = vec![("limit", limit.to_string())];
    let moments = [("since", since), ("until", until)];
    query.extend(moments.into_iter().filter_map(|(key, m)| Some((key, m?.at(now).to_string()))));
    let filters = [("user", user), ("cluster", cluster), ("project", project), ("verb", verb)];
    query.extend(filters.into_iter().filter_map(|(key, value)| Some((key, value?))));
    if refused {
        query.push(("refused", "true".to_owned()));
    }
    let query = query.iter().map(|(key, value)| format!("{key}={}", encode(value))).collect::<Vec<_>>().join("&");
    let reply = client.send(Method::GET, &format!("/audit?{query}"), "application/x-ndjson", None).await?;
    let text = String::from_utf8_lossy(&reply.body);
    if format == Format::Json {
        return output::print(&text);
    }
    let mut records = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let record: Value = serde_json::from_str(line)
            .map_err(|e| Failure::Failed(format!("a record of the server is no JSON: {e}")))?;
        records.push(record);
    }
    match format {
        Format::Yaml => output::print(&output::yaml(&Value::Array(records))?),
        Format::Name => output::print(&records.iter().map(|r| output::text(&r["id"]) + "\n").collect::<String>()),
        _ if records.is_empty() => {
            output::complain("No records found");
            Ok(())
        }
        _ => output::print(&table(&records)),
    }
}

fn table(records: &[Value]) -> String {
    let headers =
        ["Time", "Stage", "User", "Verb", "What", "Cluster", "Project", "Role", "Status", "Reason"].map(str::to_owned);
    let rows: Vec<Vec<String>> = records.iter().map(row).collect();
    output::table(&headers, &rows)
}

fn row(record: &Value) -> Vec<String> {
    let cell = |key: &str| match &record[key] {
        Value::Null => "-".to_owned(),
        value => output::text(value),
    };
    // Seconds suffice for people; `-o json` has the rest.
    let time = cell("time");
    let time = match time.split_once('.') {
        Some((seconds, _)) => format!("{seconds}Z"),
        None => time,
    };
    vec![
        time,
        cell("stage"),
        cell("user"),
        cell("verb"),
        what(record),
        cell("cluster"),
        cell("project"),
        cell("role"),
        cell("status"),
        cell("reason"),
    ]
}

/// `shop-web/pods/exec/web-1`: as much of it as there is.
fn what(record: &Value) -> String {
    let parts = ["namespace", "resource", "name"].iter().filter_map(|key| record[*key].as_str());
    let path = parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/");
    match (path.is_empty(), record["path"].as_str()) {
        (false, _) => path,
        (true, Some(path)) => path.to_owned(),
        (true, None) => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn records_become_rows() {
        let shown = table(&[
            json!({"time": "2026-01-01T10:00:00.123456Z", "stage": "outcome", "user": "shop-dev", "verb": "create",
                "namespace": "shop-web", "resource": "pods/exec", "name": "web-1", "cluster": "demo", "project": "shop",
                "role": "member", "status": 101}),
            json!({"time": "2026-01-01T10:00:01Z", "stage": "refused", "path": "/version", "reason": "no grant"}),
        ]);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(
            lines[1].split_whitespace().collect::<Vec<_>>(),
            [
                "2026-01-01T10:00:00Z",
                "outcome",
                "shop-dev",
                "create",
                "shop-web/pods/exec/web-1",
                "demo",
                "shop",
                "member",
                "101",
                "-"
            ]
        );
        assert!(lines[2].ends_with("no grant"), "{shown}");
        assert!(lines[2].contains("/version"), "{shown}");
    }
}
