//! Refusals of clusters, in texts that are no API: whatever they say, nothing is made up.

use super::*;
use crate::fuzz;

const WORDS: &[&str] = &[
    "pods \"web-7\" is forbidden: ",
    "exceeded quota: bailiwick",
    ", requested: ",
    ", used: ",
    ", limited: ",
    "requests.cpu=500m",
    "pods=1",
    "failed quota: bailiwick: must specify ",
    "limits.cpu for: a,b",
    "; ",
    "violates PodSecurity \"",
    "restricted:latest",
    "\": ",
    "privileged (container \"a\" must not set securityContext.privileged=true)",
    "host namespaces (hostNetwork=true)",
    "(",
    ")",
    "\"",
    ",",
    ":",
    "=",
    "\u{e9}",
    "\0",
];

#[test]
fn fuzz_refusals() {
    fuzz::run("refusals", WORDS, |input| {
        let text = String::from_utf8_lossy(input);
        // Each word that is told stands in the text; beside it only our own list of fields.
        let stands = |word: &str| assert!(text.contains(word), "{word:?} is made up");
        match cause(&text) {
            Cause::Quota(over) => {
                assert!(!over.is_empty());
                for OverQuota { resource, requested, used, hard } in &over {
                    [resource, requested, used, hard].into_iter().for_each(|word| stands(word));
                }
                (1, over.len().min(4), over.iter().filter(|over| over.used.is_empty()).count().min(2))
            }
            Cause::Unstated(resources) => {
                assert!(resources.iter().all(|resource| !resource.is_empty()));
                resources.iter().for_each(|resource| stands(resource));
                (2, resources.len().min(4), 0)
            }
            Cause::PodSecurity { level, findings } => {
                stands(&level);
                for Finding { check, detail, field, section } in &findings {
                    stands(check);
                    stands(detail);
                    assert!(!check.is_empty());
                    let known =
                        CHECKS.iter().any(|(name, f, s)| check.starts_with(name) && (f, s) == (&&**field, &&**section));
                    assert!(known || (field.is_empty() && section.is_empty()), "{check}: {field}");
                }
                (3, findings.len().min(4), findings.iter().filter(|finding| !finding.field.is_empty()).count().min(4))
            }
            Cause::Other => (0, 0, 0),
        }
    });
}
