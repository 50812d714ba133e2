//! Targets: what is let pass is what was parsed, and parses again to the same.

use http::Uri;

use crate::domain::request::RequestInfo;
use crate::fuzz;

const WORDS: &[&str] = &[
    "GET ",
    "POST ",
    "DELETE ",
    "/api/v1",
    "/apis/apps/v1",
    "/namespaces/",
    "/pods",
    "/status",
    "/finalize",
    "/proxy",
    "/watch",
    "/exec",
    "/projects/",
    "//",
    "/../",
    "/./",
    "%2f",
    "%2e",
    "%",
    "%25",
    ";",
    "?",
    "&",
    "#",
    "watch=",
    "watch=0",
    "fieldSelector=metadata.name=",
    "dryRun=All",
    "limit=",
    "labelSelector=",
    "\\",
    "@",
    ":",
];

#[test]
fn fuzz_targets() {
    fuzz::run("target", WORDS, |input| {
        let text = String::from_utf8_lossy(input);
        let (method, target) = text.split_once(' ').unwrap_or(("GET", &text));
        let Ok(uri) = target.parse::<Uri>() else { return Err("no URI".to_owned()) };
        let parsed = super::parse(method, uri.path(), uri.query()).map_err(|why| why.to_string())?;
        let (path, query) = parsed.forward.split_once('?').map_or((&*parsed.forward, None), |(p, q)| (p, Some(q)));
        assert!(uri.path().ends_with(path) && uri.query() == query, "only what was parsed goes on");
        assert!(path.starts_with('/') && !path.contains("//") && !path.contains("/../") && !path.contains('\\'));
        assert!(path.bytes().chain(query.unwrap_or_default().bytes()).all(|b| (0x21..=0x7e).contains(&b)));
        let again = super::parse(method, &format!("/k8s/clusters/x{path}"), query).unwrap();
        assert_eq!((&again.request, &again.forward), (&parsed.request, &parsed.forward));
        match &parsed.request {
            RequestInfo::Path(asked) => Ok(format!("{} {}", asked.reads, asked.path.matches('/').count())),
            RequestInfo::Resource(asked) => {
                assert!(!asked.main_resource().is_empty());
                for part in [&asked.group, &asked.version, &asked.namespace, &asked.resource] {
                    assert!(!part.contains("..") || part.len() > 2, "{asked:?}");
                }
                let is_empty = [asked.group.is_empty(), asked.namespace.is_empty(), asked.name.is_empty()];
                Ok(format!("{:?} {} {is_empty:?} {}", asked.verb, asked.subresource(), parsed.project.is_some()))
            }
        }
    });
}
