//! Caches of real client libraries converge: after whatever happened, each holds what the tenant may see, at its last
//! revision, and nothing else.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Api, ListParams};

use super::informer::{FORMS, Informer, Objects, Report, difference};
use super::place::{Numbers, Place, number, place};
use super::process::*;
use super::schedule::{Act, World, acts};

/// Schedules where nothing else is asked for, with restarts and without: short ones. `make informers` runs twenty.
const SEEDS: [u64; 2] = [3, 10];
/// client-go waits up to 30 s before it tries again, after several failures in a row.
const CONVERGED: Duration = Duration::from_secs(90);

/// What the cluster's administrator sees of the namespaces that are seen, as a form keeps it.
fn truth(place: &Place, client: &kube::Client, form: &str, namespaces: &BTreeSet<String>) -> Objects {
    if form == "namespaces" {
        let api: Api<Namespace> = Api::all(client.clone());
        let list = place.runtime.block_on(api.list(&ListParams::default())).unwrap();
        let items = list.items.into_iter().filter_map(|item| {
            let name = item.metadata.name.filter(|name| namespaces.contains(name))?;
            Some((name, item.metadata.resource_version?))
        });
        return items.collect();
    }
    let api: Api<ConfigMap> = Api::all(client.clone());
    let list = place.runtime.block_on(api.list(&ListParams::default())).unwrap();
    let items = list.items.into_iter().filter_map(|item| {
        let metadata = item.metadata;
        let namespace = metadata.namespace.filter(|namespace| namespaces.contains(namespace))?;
        Some((format!("{namespace}/{}", metadata.name?), metadata.resource_version?))
    });
    items.collect()
}

fn differences(informer: &Informer, report: &Report, truth: &Objects) -> Vec<String> {
    let found = [
        difference(&format!("{}: its cache", informer.form), &report.cache, truth),
        difference(&format!("{}: its events", informer.form), &report.told, truth),
        (!report.synced).then(|| format!("{}: not synced", informer.form)),
    ];
    found.into_iter().flatten().collect()
}

/// Runs one. Returns how many watches went on from where one before had ended.
fn schedule(place: &'static Place, seed: u64, away: Option<Duration>) -> u64 {
    let mut numbers = Numbers::new(seed);
    let mut world = World::new(place, seed);
    let folder = place.site.folder.join(format!("schedule-{seed}"));
    std::fs::create_dir(&folder).unwrap();
    let server = format!("https://{}/k8s/clusters/{}", world.way.address, super::site::CLUSTER);
    let mut informers = FORMS.map(|form| Informer::start(form, &world.tenant().kubeconfig, &server, &folder));
    for informer in &mut informers {
        until(&format!("{} has begun", informer.form), || {
            if informer.report().synced { Ok(()) } else { Err("not synced".to_owned()) }
        });
    }
    for act in acts(seed, &mut numbers) {
        world.act(act, &mut numbers, None);
    }
    if away.is_some() {
        world.act(Act::Disconnect, &mut numbers, away);
    }
    let ((calm, (changes, took)), begun) = (world.calm(), Instant::now());
    let client = place.cluster_admin();
    let (mut reports, mut resumed) = (vec![], 0);
    for mut informer in informers {
        let report = loop {
            let should = truth(place, &client, informer.form, &calm.seen);
            assert!(!should.is_empty(), "there is something to be seen");
            let report = informer.report();
            let wrong = differences(&informer, &report, &should);
            if wrong.is_empty() {
                break report;
            }
            assert!(begun.elapsed() < CONVERGED, "seed {seed}:\n{}\n{}", calm.story, wrong.join("\n"));
            pause(Duration::from_millis(100));
        };
        // Each keeps its cache the way that it is here for.
        match informer.form {
            "list-watch" => assert!(report.lists > 0 && report.watches > 0 && report.streams == 0, "{report:?}"),
            form => assert!(report.streams > 0, "{form}: {report:?}"),
        }
        if report.streams > 0 {
            resumed += report.watches - report.streams;
        }
        let Report { lists, watches, streams, .. } = report;
        reports.push(format!("{} {lists}/{watches}/{streams}", informer.form));
    }
    let rate = changes as f64 / took.as_secs_f64();
    println!(
        "seed {seed}: {changes} changes in {took:.1?} ({rate:.0} a second), converged after {:.1?}; \
         lists/watches/with initial events: {}",
        begun.elapsed(),
        reports.join(", "),
    );
    assert!(rate > 20.0, "seed {seed}: too little changed for this to say anything: {rate} a second");
    resumed
}

#[test]
fn caches_of_real_clients_converge() {
    let (place, _alone) = place();
    let first = number("BAILIWICK_SEED", 1);
    let seeds: Vec<u64> = match number("BAILIWICK_SCHEDULES", 0) {
        0 => SEEDS.to_vec(),
        schedules => (first..first + schedules).collect(),
    };
    let resumed: u64 = seeds.iter().map(|seed| schedule(place, *seed, None)).sum();
    assert!(resumed > 0, "some go on without a list");
    if std::env::var_os("BAILIWICK_LONG").is_some() {
        let seed = seeds.iter().max().map_or(1, |last| last + 1);
        schedule(place, seed, Some(Duration::from_secs(60)));
    }
}
