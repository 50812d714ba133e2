//! Tenants: what lists and watches across namespaces cost, and what one tenant does to another.

use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use futures::StreamExt as _;
use serde_json::json;

use super::load::{self, Target, Writer};
use super::stage::Stage;
use super::{Report, Scale, figure, median, merged, neighbours};

/// Namespaces of the tenant who lists, and Pods in each namespace.
const FEW: usize = 3;
const PODS: usize = 30;
/// Namespaces of the others.
const REST: usize = 297;
/// Namespaces of the tenant who watches.
pub const WATCHED: usize = 10;
/// Requests that fill the cluster at a time.
const FILLING: usize = 8;
/// Longest wait until namespaces are in effect.
const LONGEST: Duration = Duration::from_secs(600);

const JSON: &str = "application/json";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

/// Measures all of it.
pub async fn measure(stage: &Stage, scale: Scale, report: &mut Report) -> anyhow::Result<()> {
    let few = tenant(stage, "few", FEW).await?;
    let of_few = lists(stage, scale, &few, "3 namespaces of 3").await?;
    let ten = tenant(stage, "ten", WATCHED).await?;
    merged::measure(stage, scale, &ten, report).await?;
    let neighbour = tenant(stage, "hostile", 1).await?;
    neighbours::measure(stage, scale, &neighbour, report).await?;

    let rest = if scale.quick { REST / 10 } else { REST };
    tenant(stage, "rest", rest).await?;
    let of_many = lists(stage, scale, &few, &format!("3 namespaces of {}", FEW + rest)).await?;
    for (form, few, many) in [("", of_few[0], of_many[0]), ("_table", of_few[1], of_many[1])] {
        report.insert(format!("fanout{form}_vs_direct"), figure(many.across / many.direct));
        report.insert(format!("fanout{form}_of_many_vs_of_few"), figure(many.across / few.across));
        let told = |lists: Lists| json!({"direct_ms": lists.direct, "across_ms": lists.across});
        report.insert(format!("fanout{form}"), json!({"of_few": told(few), "of_many": told(many)}));
    }
    Ok(())
}

/// Medians of the rounds' medians, in milliseconds.
#[derive(Clone, Copy)]
struct Lists {
    /// One list after the other, made directly by the cluster's administrator.
    direct: f64,
    /// One list across namespaces.
    across: f64,
}

/// The tenant's Pods as JSON and as a Table.
async fn lists(stage: &Stage, scale: Scale, token: &str, what: &str) -> anyhow::Result<[Lists; 2]> {
    let direct = stage.direct("");
    let each: Vec<String> = (0..FEW).map(|n| format!("/api/v1/namespaces/few-{n}/pods")).collect();
    let across = stage.bailiwick_as(token, "/api/v1/pods");
    let all = [across.path.clone()];
    let mut measured = vec![];
    println!("\nlists across namespaces, {what}, {PODS} Pods each");
    for (form, accept) in [("JSON", JSON), ("Table", TABLE)] {
        let mut ways = [vec![], vec![]];
        for _ in 0..scale.rounds {
            ways[0].push(middle(load::rounds(&direct, &each, accept, scale.span).await?));
            ways[1].push(middle(load::rounds(&across, &all, accept, scale.span).await?));
        }
        let [direct, across] = ways.map(median);
        println!("{form:<6} directly {direct:.2} ms, across {across:.2} ms ({:.2} x)", across / direct);
        measured.push(Lists { direct, across });
    }
    Ok([measured[0], measured[1]])
}

fn middle(took: Vec<Duration>) -> f64 {
    median(took.iter().map(|took| took.as_secs_f64() * 1000.0).collect())
}

/// A project with so many namespaces, an account of the same name in it, and Pods in each of them. The account's token.
async fn tenant(stage: &Stage, name: &str, namespaces: usize) -> anyhow::Result<String> {
    let begun = Instant::now();
    let names: Vec<String> = (0..namespaces).map(|n| format!("{name}-{n}")).collect();
    stage.apply(&format!(
        "apiVersion: bailiwick.dev/v1alpha1\nkind: User\nmetadata: {{name: {name}}}\nspec: {{type: Machine}}\n---\n\
         apiVersion: bailiwick.dev/v1alpha1\nkind: Project\nmetadata: {{name: {name}}}\n\
         spec: {{clusters: [{{cluster: bench, namespaces: [{}]}}]}}\n---\n\
         apiVersion: bailiwick.dev/v1alpha1\nkind: Grant\nmetadata: {{name: {name}}}\n\
         spec: {{subject: {{kind: User, name: {name}}}, role: member, target: {{kind: Project, name: {name}}}}}\n",
        names.join(", ")
    ))?;
    let token = stage.issue(name)?;
    let direct = stage.direct("");
    let own = stage.bailiwick_as(&token, "");
    let filled = futures::stream::iter(names.iter().map(|namespace| fill(&direct, &own, namespace)));
    for done in filled.buffer_unordered(FILLING).collect::<Vec<_>>().await {
        done?;
    }
    println!("{name}: {namespaces} namespaces in {:.0} s", begun.elapsed().as_secs_f64());
    Ok(token)
}

/// Waits until a namespace is its tenant's, and puts Pods there, as the cluster's administrator.
async fn fill(direct: &Target, own: &Target, namespace: &str) -> anyhow::Result<()> {
    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    let begun = Instant::now();
    let mut tenant = Writer::connect(own).await?;
    while !tenant.send("GET", &format!("{}{pods}?limit=1", own.path), "").await?.is_success() {
        ensure!(begun.elapsed() < LONGEST, "{namespace} is not in effect");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let mut writer = Writer::connect(direct).await?;
    for n in 0..PODS {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": format!("web-{n}"), "labels": {"app": "web", "tier": "front"}},
            "spec": {
                "automountServiceAccountToken": false,
                "containers": [{
                    "name": "web", "image": "registry.example.com/web:1.4.2", "ports": [{"containerPort": 8080}],
                    "env": [{"name": "LOG_LEVEL", "value": "info"}],
                    "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "64Mi"}},
                }],
            },
        });
        loop {
            match writer.send("POST", &pods, &pod.to_string()).await? {
                status if status.is_success() => break,
                // Its default ServiceAccount follows in a moment.
                http::StatusCode::FORBIDDEN if begun.elapsed() < LONGEST => {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                status => bail!("a Pod in {namespace}: {status}"),
            }
        }
    }
    Ok(())
}
