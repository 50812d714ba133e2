//! Our reading of requests against the API server's own: `tests/requestinfo` has it from k8s.io/apiserver.
//!
//! Generated request lines, valid ones and mutations of them, go to both. What we let pass must be read there exactly
//! as here, from the bytes that would be forwarded; where the two could differ, we refuse. The seed is fixed, so a
//! failure comes again; `BAILIWICK_SEED` and `BAILIWICK_CASES` choose others.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, BufWriter, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use bailiwick::domain::request::RequestInfo;
use bailiwick::proxy::target;
use http::Uri;
use serde::{Deserialize, Serialize};

#[path = "request_info/generator.rs"]
mod generator;

use generator::Generator;

const CASES: usize = 300_000;
const CLUSTER: &str = "/k8s/clusters/demo";

/// A request line.
#[derive(Debug, Clone, Serialize)]
struct Question {
    method: String,
    target: String,
}

/// How a request is read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Reading {
    #[serde(default)]
    error: String,
    is_resource: bool,
    path: String,
    verb: String,
    group: String,
    version: String,
    namespace: String,
    resource: String,
    subresource: String,
    name: String,
}

/// What we make of a request line, and the target that would be forwarded; `None`: refused.
fn ours(question: &Question) -> Option<(Reading, String)> {
    // As it comes in: hyper has the target as a URI.
    let uri: Uri = format!("{CLUSTER}{}", question.target).parse().ok()?;
    let target = target::parse(&question.method, uri.path(), uri.query()).ok()?;
    let reading = match &target.request {
        RequestInfo::Resource(asked) => Reading {
            is_resource: true,
            verb: asked.verb.as_str().to_owned(),
            group: asked.group.clone(),
            version: asked.version.clone(),
            namespace: asked.namespace.clone(),
            resource: asked.main_resource().to_owned(),
            subresource: asked.subresource().to_owned(),
            name: asked.name.clone(),
            ..Reading::default()
        },
        RequestInfo::Path(asked) => {
            let reads = matches!(question.method.as_str(), "GET" | "HEAD");
            assert_eq!(asked.reads, reads, "{question:?}");
            Reading { path: asked.path.clone(), ..Reading::default() }
        }
    };
    Some((reading, target.forward))
}

/// What of the API server's reading ours speaks of.
fn comparable(theirs: Reading) -> Reading {
    match theirs.is_resource {
        // The path is in the other fields.
        true => Reading { path: String::new(), ..theirs },
        // The verb of a path is its method.
        false => Reading { verb: String::new(), ..theirs },
    }
}

/// Asks the API server's own code, in the order of the questions.
fn ask(questions: Vec<Question>) -> Vec<Reading> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/requestinfo");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("requestinfo");
    let mut build = Command::new("go");
    build.current_dir(root).env("CGO_ENABLED", "0").args(["build", "-trimpath", "-o"]).arg(&program).arg(".");
    assert!(build.status().expect("Go is installed").success(), "tests/requestinfo is built");
    let mut child = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = BufWriter::new(child.stdin.take().unwrap());
    let output = BufReader::new(child.stdout.take().unwrap());
    let count = questions.len();
    let writer = thread::spawn(move || {
        for question in questions {
            serde_json::to_writer(&mut input, &question).unwrap();
            input.write_all(b"\n").unwrap();
        }
        // Dropped here: its end is the program's.
        input.flush().unwrap();
    });
    let answers: Vec<Reading> = output.lines().map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
    writer.join().unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(answers.len(), count);
    answers
}

fn number(name: &str, otherwise: usize) -> usize {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap_or_else(|_| panic!("{name} must be a number")))
}

#[test]
fn what_the_api_server_reads_differently_is_refused() {
    let mut generator = Generator::new(number("BAILIWICK_SEED", 1) as u64);
    let cases = number("BAILIWICK_CASES", CASES);
    let (mut accepted, mut refused) = (vec![], vec![]);
    for _ in 0..cases {
        let (method, target) = generator.request();
        let question = Question { method, target };
        match ours(&question) {
            Some((reading, forward)) => {
                let sent = Question { method: question.method.clone(), target: forward };
                accepted.push((question, reading, sent));
            }
            None => refused.push(question),
        }
    }
    let theirs = ask(accepted.iter().map(|(_, _, sent)| sent.clone()).collect());
    let mut differences: BTreeMap<String, (usize, String)> = BTreeMap::new();
    let mut verbs: BTreeMap<String, usize> = BTreeMap::new();
    for ((question, ours, sent), theirs) in accepted.iter().zip(theirs) {
        let theirs = comparable(theirs);
        if *ours == theirs {
            *verbs.entry(if ours.is_resource { ours.verb.clone() } else { "path".to_owned() }).or_default() += 1;
            continue;
        }
        let field = if theirs.error.is_empty() { different(ours, &theirs) } else { "error".to_owned() };
        let example = format!("{question:?}\n  sent   {sent:?}\n  ours   {ours:?}\n  theirs {theirs:?}");
        differences.entry(field).or_insert((0, example)).0 += 1;
    }
    println!("{} accepted, {} refused; accepted by verb: {verbs:?}", accepted.len(), refused.len());
    for (field, (count, example)) in &differences {
        println!("{count} differ in {field}, the first: {example}");
    }
    assert!(differences.is_empty(), "see above");
    // Neither is agreement where nothing is let pass or nothing is refused.
    assert!(accepted.len() * 10 > cases * 3 && refused.len() * 10 > cases * 3, "{} of {cases}", accepted.len());
    let all = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "path"];
    for verb in all {
        assert!(verbs.get(verb).is_some_and(|count| count * 500 > cases), "{verb}: {verbs:?}");
    }
}

fn different(ours: &Reading, theirs: &Reading) -> String {
    let fields = [
        ("isResource", ours.is_resource == theirs.is_resource),
        ("path", ours.path == theirs.path),
        ("verb", ours.verb == theirs.verb),
        ("group", ours.group == theirs.group),
        ("version", ours.version == theirs.version),
        ("namespace", ours.namespace == theirs.namespace),
        ("resource", ours.resource == theirs.resource),
        ("subresource", ours.subresource == theirs.subresource),
        ("name", ours.name == theirs.name),
    ];
    fields.into_iter().filter(|(_, same)| !same).map(|(field, _)| field).collect::<Vec<_>>().join(" and ")
}

/// The oracle tells readings apart: it is no mirror.
#[test]
fn the_oracle_knows_what_the_api_server_does() {
    let read = |method: &str, target: &str| Question { method: method.to_owned(), target: target.to_owned() };
    let answers = ask(vec![
        read("GET", "/api/v1/watch/namespaces/a/pods"),
        read("GET", "/api/v1/namespaces/a//pods"),
        read("GET", "/api/v1/namespaces/a%2fpods"),
        read("GET", "/api/v1/namespaces/a/pods?watch=0&watch=1"),
        read("GET", "/healthz"),
        read("GE T", "/healthz"),
    ]);
    assert_eq!((answers[0].verb.as_str(), answers[0].resource.as_str()), ("watch", "pods"));
    assert_eq!((answers[1].resource.as_str(), answers[1].name.as_str()), ("", "pods"));
    assert_eq!((answers[2].namespace.as_str(), answers[2].resource.as_str()), ("a", "pods"), "it is decoded first");
    assert_eq!(answers[3].verb, "list", "the first counts");
    assert!(!answers[4].is_resource && answers[4].path == "/healthz");
    assert!(!answers[5].error.is_empty());
}
