//! `audit`: the log as the service lets one read it.

use http::Method;
use serde_json::Value;

use super::args::{AuditArgs, AuditCommand, VerifyArgs};
use super::client::encode;
use super::exit::{Failure, Outcome};
use super::output::{self, Format};
use super::session;
use crate::clock;

/// `bailiwick audit`.
pub async fn run(args: AuditArgs) -> Outcome {
    let AuditArgs { command, user, cluster, project, verb, refused, since, until, limit, output: format, connect } =
        args;
    if let Some(AuditCommand::Verify(args)) = command {
        return verify(args).await;
    }
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

/// `bailiwick audit verify`.
async fn verify(args: VerifyArgs) -> Outcome {
    let VerifyArgs { output: format, connect } = args;
    let client = session::connect(&connect)?;
    let found = client.call(Method::GET, "/audit/verify", None).await?;
    match format {
        Format::Json => output::print(&(found.to_string() + "\n"))?,
        Format::Yaml => output::print(&output::yaml(&found)?)?,
        _ => output::print(&told(&found))?,
    }
    match found["intact"].as_bool() {
        Some(true) => Ok(()),
        _ => Err(Failure::Failed("the audit log is not as it was written".to_owned())),
    }
}

/// A verification in words.
fn told(found: &Value) -> String {
    let mut text =
        format!("{} lines in {} files, {} to {}\n", found["lines"], found["files"], found["first"], found["last"]);
    if found["torn"].as_u64().is_some_and(|torn| torn > 0) {
        text +=
            &format!("{} cut in half when the process was killed; they were acknowledged to nobody\n", found["torn"]);
    }
    for loss in found["acceptedLosses"].as_array().into_iter().flatten() {
        text += &format!("lines {} to {} are lost, which was accepted\n", loss[0], loss[1]);
    }
    let problems = found["problems"].as_array();
    for problem in problems.into_iter().flatten() {
        let place = match (problem["file"].as_str(), problem["line"].as_u64()) {
            (Some(file), Some(line)) if !file.is_empty() => format!("{file}:{line}: "),
            _ => String::new(),
        };
        text += &format!("{place}{}\n", output::text(&problem["what"]));
    }
    let shown = problems.map_or(0, Vec::len) as u64;
    if let Some(more) = found["problemCount"].as_u64().and_then(|all| all.checked_sub(shown)).filter(|more| *more > 0) {
        text += &format!("and {more} more\n");
    }
    text + if found["intact"] == true { "intact\n" } else { "NOT intact\n" }
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
    fn a_verification_says_what_is_wrong_and_where() {
        let good = json!({"intact": true, "files": 2, "lines": 30, "first": 5, "last": 34, "torn": 0,
            "acceptedLosses": [], "problems": [], "problemCount": 0});
        assert_eq!(told(&good), "30 lines in 2 files, 5 to 34\nintact\n");
        let bad = json!({"intact": false, "files": 1, "lines": 3, "first": 1, "last": 3, "torn": 1,
            "acceptedLosses": [[7, 9]], "problemCount": 3, "problems": [
                {"file": "audit-1.jsonl", "line": 2, "what": "line 2 was changed"},
                {"file": "", "line": 0, "what": "it was cut off"}]});
        let told = told(&bad);
        for part in [
            "audit-1.jsonl:2: line 2 was changed\n",
            "\nit was cut off\n",
            "and 1 more",
            "lines 7 to 9 are lost",
            "NOT intact",
        ] {
            assert!(told.contains(part), "{part}: {told}");
        }
    }

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
