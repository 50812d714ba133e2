//! Mixed load, while accounts are suspended and resumed at random: nothing of a suspended account passes, every refusal
//! is explained, and nothing is left behind.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Seek as _, SeekFrom};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use http::Request;
use jiff::Timestamp;
use kube::client::Body;
use serde::Deserialize;

use super::load::{Account, BOUND, GONE, Load, Watcher};
use super::place::{Numbers, Place, number, place};
use super::process::*;

/// Seconds of load where nothing else is asked for; `make soak` asks for 15 minutes.
const SECONDS: u64 = 20;
/// Load before the measurement, after which memory and connections are what they are in use.
const WARM_UP: Duration = Duration::from_secs(4);
/// From so long on, everything that is left to chance happens.
const LONG: Duration = Duration::from_secs(120);
const ACCOUNTS: usize = 6;
/// Suspended accounts go on trying for so long.
const TRIES: Duration = Duration::from_millis(1_500);

/// What a process holds.
#[derive(Debug, Clone, Copy)]
struct Held {
    memory_mib: u64,
    files: usize,
    sockets: usize,
    threads: usize,
    tasks: u64,
    streams: u64,
}

impl Held {
    fn by_service(place: &Place) -> Self {
        let process = format!("/proc/{}", place.site.service_pid());
        let status = std::fs::read_to_string(format!("{process}/status")).unwrap();
        let kib = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
        };
        let open: Vec<_> = std::fs::read_dir(format!("{process}/fd")).unwrap().flatten().collect();
        let is_socket = |path| std::fs::read_link(path).is_ok_and(|to| to.to_string_lossy().starts_with("socket:"));
        let metrics = place.site.metrics();
        let sum = |name: &str| {
            let lines = metrics.lines().filter(|line| line.starts_with(name));
            lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
        };
        Self {
            memory_mib: kib("VmRSS:") / 1024,
            files: open.len(),
            sockets: open.iter().filter(|entry| is_socket(entry.path())).count(),
            threads: std::fs::read_dir(format!("{process}/task")).unwrap().count(),
            tasks: sum("bailiwick_tasks "),
            streams: sum("bailiwick_streams{"),
        }
    }

    /// After load, once what ends with it has ended.
    fn at_rest(place: &Place, than: Option<Self>) -> Self {
        until("everything of the load is given back", || {
            let now = Self::by_service(place);
            let more = than.is_some_and(|than| {
                // Connections to the cluster and idle ones of clients are kept for a while.
                now.files > than.files + 16
                    || now.sockets > than.sockets + 16
                    || now.tasks > than.tasks + 24
                    || now.threads > than.threads + 8
                    || now.memory_mib > than.memory_mib + 48
            });
            if now.streams == 0 && !more { Ok(now) } else { Err(format!("{now:?}, {than:?} before")) }
        })
    }
}

/// When an account could do nothing.
struct Suspended {
    account: String,
    from: Timestamp,
    until: Timestamp,
}

/// Suspends and resumes accounts of one part until the time is over.
fn suspend(place: &Place, accounts: &[Account], part: &[usize], end: Instant, seed: u64) -> Vec<Suspended> {
    let administrator = place.client(&place.site.folder.join("home/kubeconfig"), Some("bailiwick"));
    let act = |name: &str, act: &str, body: &str| {
        let path = format!("/apis/bailiwick.dev/v1alpha1/users/{name}/{act}");
        let request = Request::post(path).header("content-type", "application/json");
        let request = request.body(body.as_bytes().to_vec()).unwrap();
        let answer = place.runtime.block_on(administrator.request_text(request));
        answer.unwrap_or_else(|why| panic!("{act} {name}: {why}"));
    };
    let mut numbers = Numbers::new(seed);
    let mut suspended = vec![];
    while Instant::now() < end {
        pause(Duration::from_millis(200 + numbers.below(800) as u64));
        let account = &accounts[*numbers.one_of(part).unwrap()];
        let token = account.current();
        token.asked();
        act(&account.name, "suspend", r#"{"reason": "at random"}"#);
        token.acknowledged(Instant::now());
        let from = Timestamp::now();
        pause(TRIES);
        suspended.push(Suspended { account: account.name.clone(), from, until: Timestamp::now() });
        act(&account.name, "resume", "{}");
        let again = Request::get("/api/v1/namespaces/work-one/configmaps").body(Body::empty()).unwrap();
        let code = place.runtime.block_on(token.client.send(again)).unwrap().status();
        assert_eq!(code, 401, "no credential from before comes back to life");
        account.renew(place);
    }
    suspended
}

/// A line of the cluster's audit log, of those that come once it is known for whom a request is.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    #[serde(default)]
    impersonated_user: User,
    request_received_timestamp: Timestamp,
    stage_timestamp: Timestamp,
    #[serde(rename = "requestURI")]
    uri: String,
    verb: String,
}

#[derive(Deserialize, Default)]
struct User {
    username: String,
}

/// What the cluster itself says of suspended accounts.
#[derive(Debug, Default)]
struct Reached {
    lines: u64,
    /// After the acknowledgement: the latest request that it received, and the latest that was over for it.
    received: Duration,
    over: Duration,
    wrong: Vec<String>,
}

fn reached(log: &mut BufReader<File>, suspended: &[Suspended]) -> Reached {
    let mut by_account: BTreeMap<String, Vec<&Suspended>> = BTreeMap::new();
    for one in suspended {
        by_account.entry(format!("bailiwick:user:{}", one.account)).or_default().push(one);
    }
    let mut reached = Reached::default();
    let mut text = String::new();
    while log.read_line(&mut text).unwrap() > 0 {
        let line = Some(&text).filter(|text| text.contains("bailiwick:user:soak-"));
        let line: Option<Line> = line.map(|text| serde_json::from_str(text).unwrap());
        text.clear();
        let Some(line) = line else { continue };
        for one in by_account.get(&line.impersonated_user.username).into_iter().flatten() {
            reached.lines += 1;
            let (began, last) = (line.request_received_timestamp, line.stage_timestamp);
            // Before it, or resumed already when it began.
            if last <= one.from || began >= one.until {
                continue;
            }
            let after = |at: Timestamp| Duration::try_from(at.duration_since(one.from)).unwrap_or_default();
            reached.received = reached.received.max(after(began));
            reached.over = reached.over.max(after(last));
            // What it received before is over for the client, and the cluster notes it in its own time.
            if after(began) > BOUND || after(last) > GONE {
                let (verb, uri) = (&line.verb, &line.uri);
                reached.wrong.push(format!(
                    "{verb} {uri}, received {:?} and over {:?} after",
                    after(began),
                    after(last)
                ));
            }
        }
    }
    reached
}

#[test]
fn suspended_accounts_get_nothing_under_load_and_nothing_leaks() {
    let (place, _alone) = place();
    let seconds = Duration::from_secs(number("BAILIWICK_SOAK_SECONDS", SECONDS));
    let seed = number("BAILIWICK_SEED", 1);
    let account = |n| Account::new(place, &format!("soak-{n}"), &[("member", "work"), ("viewer", "other")]);
    let accounts: Arc<Vec<Account>> = Arc::new((0..ACCOUNTS).map(account).collect());
    let mut log = BufReader::new(File::open(place.site.folder.join("cluster/audit.log")).unwrap());

    let watcher = Watcher::default();
    let load = Load::start(place, &accounts, &watcher, seed);
    pause(WARM_UP);
    load.stop(place);
    assert_eq!(watcher.take().wrong, Vec::<String>::new(), "while nobody was suspended");
    let before = Held::at_rest(place, None);

    log.seek(SeekFrom::End(0)).unwrap();
    let end = Instant::now() + seconds;
    let load = Load::start(place, &accounts, &watcher, seed + 1);
    let halves: Vec<usize> = (0..ACCOUNTS).collect();
    let suspended: Vec<Suspended> = thread::scope(|scope| {
        let of = |part, seed| {
            scope.spawn({
                let accounts = &accounts;
                move || suspend(place, accounts, part, end, seed)
            })
        };
        // So that what grows without end is seen to.
        let sampled = scope.spawn(move || {
            let mut memory = vec![];
            while Instant::now() < end {
                memory.push(Held::by_service(place).memory_mib);
                pause((seconds / 10).min(end.saturating_duration_since(Instant::now())));
            }
            println!("memory in MiB, every tenth of the time: {memory:?}");
        });
        let both = [of(&halves[..ACCOUNTS / 2], seed), of(&halves[ACCOUNTS / 2..], seed + 1)];
        let suspended = both.into_iter().flat_map(|one| one.join().unwrap()).collect();
        sampled.join().unwrap();
        suspended
    });
    let during = Held::by_service(place);
    load.stop(place);
    let seen = watcher.take();
    let after = Held::at_rest(place, Some(before));

    let Reached { lines, received, over, wrong } = reached(&mut log, &suspended);
    println!("{} suspensions in {seconds:?}; latest after the acknowledgement:", suspended.len());
    for (what, late) in &seen.latest {
        println!("  {what}: {late:?}");
    }
    println!("  the cluster received a request: {received:?}, and noted the end of one: {over:?}");
    for (what, count) in &seen.counts {
        println!("  {what}: {count}");
    }
    println!("before: {before:?}\nduring: {during:?}\nafter:  {after:?}");
    assert_eq!(seen.wrong, Vec::<String>::new());
    assert_eq!(wrong, Vec::<String>::new(), "reached the cluster");

    // It was as mixed as it is meant to be.
    assert!(suspended.len() as u64 >= seconds.as_secs() / 5, "{} suspensions", suspended.len());
    for what in ["get", "list", "list of all", "list of all in pages", "namespaces"] {
        assert!(seen.counts.contains_key(&format!("{what}: 200")), "{what}: {:?}", seen.counts);
        assert!(seen.counts.contains_key(&format!("{what}: 401 Unauthorized")), "{what}: {:?}", seen.counts);
    }
    assert!(seen.counts.contains_key("create: 201") && seen.counts.contains_key("delete: 200"), "{:?}", seen.counts);
    for what in ["watch", "merged watch", "merged streaming list", "logs"] {
        assert!(seen.counts.contains_key(&format!("{what}: brought something")), "{what}: {:?}", seen.counts);
    }
    assert!(seen.counts.contains_key("exec: ended"), "{:?}", seen.counts);
    // A suspension meets an open session by chance, which the short form may not have.
    assert!(seconds < LONG || seen.latest.contains_key("exec"), "{:?}", seen.latest);
    assert!(lines > 0 && during.streams > 0);
}
