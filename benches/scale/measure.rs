//! What is measured of an index: start, memory, decisions, and what one change costs.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use bailiwick::identity::tokens;
use bailiwick::index::{Index, Observation, Snapshot};
use bailiwick::proxy::decide::{self, Asker, Context, Rules};
use bailiwick::proxy::resolve::Place;
use bailiwick::proxy::target;
use bailiwick::resources::token::Audience;
use bailiwick::store::sqlite::{SqliteSettings, SqliteStore};
use bailiwick::store::{Key, Kind, Store};
use serde_json::{Map, Value, json};

use super::fleet::{self, Fleet};
use super::resident::resident_kib;

/// Rounds of decisions: the median of their figures is told, because others use the machine as well.
const ROUNDS: usize = 5;
/// Most decisions of each sort in a round; fewer in a small fleet, which is there to see that all of this works.
const DECISIONS: usize = 50_000;
/// Changes of each sort.
const CHANGES: usize = 200;

pub async fn measure(fleet: &Fleet, folder: &Path) -> anyhow::Result<Value> {
    let mut report = Map::new();
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(folder, SqliteSettings::default())?);
    store.revision().await?;
    let before = resident_kib("self")?;
    let begun = Instant::now();
    let (index, _writer) = Index::start(store.clone(), fleet::sealer()).await.context("index")?;
    report.insert("start_seconds".into(), figure(begun.elapsed().as_secs_f64()));
    for (n, seen) in fleet.observed().into_iter().enumerate() {
        index.observe_applied(Observation { cluster: format!("c{n}"), seen: Some(Arc::new(seen)) }).await?;
    }
    report.insert("index_mib".into(), figure((resident_kib("self")? - before) / 1024.0));

    let snapshot = index.snapshot();
    let sorts: [(&str, Sort); 3] =
        [("decision_ns", allowed), ("refusal_foreign_namespace_ns", foreign), ("refusal_unknown_cluster_ns", nowhere)];
    for (name, sort) in sorts {
        let passes = name == "decision_ns";
        let (mut authenticate, mut decision) = (vec![], vec![]);
        for _ in 0..ROUNDS {
            let (mut one, mut other) = (vec![], vec![]);
            for n in 0..DECISIONS.min(fleet.users * 25) {
                // Far apart, so that no cache helps more than it does a fleet's requests.
                let (authenticated, decided) = decide(&snapshot, &sort(fleet, n * 7919), passes)?;
                one.push(authenticated);
                other.push(decided);
            }
            authenticate.push(one);
            decision.push(other);
        }
        if passes {
            medians(&mut report, "authenticate_ns", authenticate);
        }
        medians(&mut report, name, decision);
    }
    drop(snapshot);
    changes(fleet, &index, &store, &mut report).await?;
    Ok(report.into())
}

/// Makes up the request of a number.
type Sort = fn(&Fleet, usize) -> Asked;

struct Asked {
    token: usize,
    path: String,
}

/// Somebody's own namespace, by way of a team.
fn allowed(fleet: &Fleet, n: usize) -> Asked {
    let namespace = n % fleet.namespaces;
    let members = fleet.members(fleet.team_of(fleet.project_of(namespace)));
    Asked { token: members[n % members.len()], path: path(fleet, namespace) }
}

/// A namespace of others on a cluster where one has something: the refusal lists one's own.
fn foreign(fleet: &Fleet, n: usize) -> Asked {
    let Asked { token, .. } = allowed(fleet, n);
    let cluster = fleet.cluster_of(fleet.project_of(n % fleet.namespaces));
    Asked { token, path: format!("/k8s/clusters/c{cluster}/api/v1/namespaces/somebody-elses/pods") }
}

/// A cluster that does not exist: the refusal lists one's own.
fn nowhere(fleet: &Fleet, n: usize) -> Asked {
    let Asked { token, .. } = allowed(fleet, n);
    Asked { token, path: "/k8s/clusters/nowhere/api/v1/pods".to_owned() }
}

fn path(fleet: &Fleet, namespace: usize) -> String {
    let cluster = fleet.cluster_of(fleet.project_of(namespace));
    format!("/k8s/clusters/c{cluster}/api/v1/namespaces/{}/pods", fleet.namespace(namespace))
}

fn decide(snapshot: &Snapshot, asked: &Asked, passes: bool) -> anyhow::Result<(Duration, Duration)> {
    let (_, token) = fleet::token(asked.token);
    let target = target::parse("GET", &asked.path, None).map_err(|why| anyhow::anyhow!("{}: {why}", asked.path))?;
    let now = bailiwick::clock::now();
    let begun = Instant::now();
    let caller = tokens::authenticate(snapshot, &token, Audience::Kube, now)?;
    let authenticated = begun.elapsed();
    let namespace = asked.path.split("/namespaces/").nth(1).and_then(|rest| rest.split('/').next()).unwrap_or_default();
    let place = Place { cluster: &target.cluster, project: None, namespace };
    let asker = Asker { user: &caller.user.object, scopes: &caller.token.record.scopes };
    let ctx = Context { snapshot, asker, place, request: &target.request, now };
    let begun = Instant::now();
    let decided = decide::authorize(&Rules, &ctx);
    let took = begun.elapsed();
    if decided.is_ok() != passes {
        bail!("{}: {:?}", asked.path, decided.map(|_| ()).map_err(|refusal| refusal.status.message));
    }
    Ok((authenticated, took))
}

/// One grant, one user, one claim, one cluster observed: from the call to its being in force, and what a version that
/// somebody holds costs beside the next one.
async fn changes(
    fleet: &Fleet,
    index: &Arc<Index>,
    store: &Arc<dyn Store>,
    report: &mut Map<String, Value>,
) -> anyhow::Result<()> {
    let sorts: [(&str, Kind); 3] = [("grant", Kind::Grant), ("user", Kind::User), ("claim", Kind::Claim)];
    let mut held = vec![];
    let mut before = resident_kib("self")?;
    for (sort, kind) in sorts {
        let (mut written, mut in_force) = (vec![], vec![]);
        for n in 0..CHANGES {
            let note = format!("change {n}");
            let (name, value) = match kind {
                Kind::Grant => {
                    let project = (n * 31) % fleet.projects;
                    let name = format!("team-p{project}");
                    let team = format!("t{}", fleet.team_of(project));
                    (
                        name.clone(),
                        fleet::grant(&name, "Team", &team, "member", "Project", &format!("p{project}"), &note),
                    )
                }
                Kind::User => (format!("u{}", (n * 31) % fleet.users), fleet::user((n * 31) % fleet.users, &note)),
                _ => {
                    let namespace = (n * 31) % fleet.namespaces;
                    (fleet.claim_name(namespace), fleet.claim(namespace, &note))
                }
            };
            let key = Key::new(kind, name);
            let entry = store.get(&key).await?.with_context(|| key.to_string())?;
            let begun = Instant::now();
            let revision = store.update(key, entry.revision, value.to_string().into()).await?;
            written.push(begun.elapsed());
            index.applied(revision).await?;
            in_force.push(begun.elapsed());
            held.push(index.snapshot());
        }
        quantiles(report, &format!("{sort}_written_ms"), written, 1e3);
        quantiles(report, &format!("{sort}_in_force_ms"), in_force, 1e3);
    }
    report.insert("version_held_kib".into(), figure((resident_kib("self")? - before) / held.len() as f64));
    drop(held);
    let mut in_force = vec![];
    let mut held = vec![];
    before = resident_kib("self")?;
    for n in 0..CHANGES {
        let cluster = format!("c{}", n % fleet.clusters);
        let snapshot = index.snapshot();
        let mut seen = (**snapshot.observed(cluster.as_str()).context("not observed")?).clone();
        seen.namespaces.insert(format!("new-{n}").into(), format!("uid-new-{n}").into());
        let begun = Instant::now();
        index.observe_applied(Observation { cluster, seen: Some(Arc::new(seen)) }).await?;
        in_force.push(begun.elapsed());
        held.push(snapshot);
    }
    quantiles(report, "observation_in_force_ms", in_force, 1e3);
    report.insert("observation_held_kib".into(), figure((resident_kib("self")? - before) / held.len() as f64));
    Ok(())
}

/// Quantiles in nanoseconds, each the median of the rounds.
fn medians(report: &mut Map<String, Value>, name: &str, rounds: Vec<Vec<Duration>>) {
    let sorted: Vec<Vec<Duration>> = rounds
        .into_iter()
        .map(|mut round| {
            round.sort_unstable();
            round
        })
        .collect();
    for (suffix, q) in [("p50", 0.5), ("p99", 0.99)] {
        let mut figures: Vec<u128> =
            sorted.iter().map(|round| round[((round.len() - 1) as f64 * q) as usize].as_nanos()).collect();
        figures.sort_unstable();
        report.insert(format!("{name}_{suffix}"), json!(figures[figures.len() / 2] as u64));
    }
}

fn quantiles(report: &mut Map<String, Value>, name: &str, mut took: Vec<Duration>, unit: f64) {
    took.sort_unstable();
    for (suffix, q) in [("p50", 0.5), ("p99", 0.99)] {
        let at = took[((took.len() - 1) as f64 * q) as usize];
        report.insert(format!("{name}_{suffix}"), figure(at.as_secs_f64() * unit));
    }
}

/// Three digits behind the point.
fn figure(value: f64) -> Value {
    json!((value * 1000.0).round() / 1000.0)
}
