//! What lists and watches across namespaces are asked with: only what is known goes on, in one spelling, and means what it
//! meant.

use http::header::{self, HeaderMap, HeaderValue};

use super::*;
use crate::domain::request::pairs;
use crate::fuzz;
use crate::proxy::across::accept;

const WORDS: &[&str] = &[
    "limit=",
    "continue=",
    "resourceVersion=",
    "resourceVersionMatch=Exact",
    "resourceVersionMatch=NotOlderThan",
    "labelSelector=",
    "fieldSelector=metadata.name%3D",
    "includeObject=Metadata",
    "timeoutSeconds=",
    "allowWatchBookmarks=true",
    "sendInitialEvents=1",
    "shardSelector=",
    "&",
    "=",
    "%26",
    "%3d",
    "%25",
    "%",
    "+",
    "18446744073709551616",
    "0",
    "application/json",
    "application/vnd.kubernetes.protobuf",
    ";as=Table;v=v1;g=meta.k8s.io",
    ";as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    ";q=0",
    ";q=0.5",
    ";stream=watch",
    ",",
    "*/*",
    " ",
];

/// What the cluster may be asked for.
const FORMS: [&str; 4] = ["", ";as=Table", ";as=PartialObjectMetadataList", ";as=PartialObjectMetadata"];

#[test]
fn fuzz_queries() {
    fuzz::run("query", WORDS, |input| {
        let text = String::from_utf8_lossy(input);
        let (query, accepted) = text.split_once('\n').unwrap_or((&text, ""));
        (options(query), media(accepted))
    });
}

fn options(query: &str) -> Result<(bool, bool, usize), u16> {
    let options = Options::parse(query).map_err(|status| status.code)?;
    let passed = options.passed_query();
    assert!(passed.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._~%&=".contains(&b)), "{passed}");
    // As the API server reads it, it says for each key what the client said, and nothing else.
    let said = pairs(query).expect("what we read, everybody reads");
    let goes_on = pairs(&passed).unwrap();
    assert_eq!(goes_on.len(), options.passed.len());
    for (key, value) in &goes_on {
        assert!(PASSED.contains(&&**key), "{key}");
        assert_eq!(said.iter().filter(|(is, _)| is == key).collect::<Vec<_>>(), [&(key.clone(), value.clone())]);
    }
    // Nothing that selects is lost on the way.
    let selects = said.iter().filter(|(key, _)| PASSED.contains(&&**key)).count();
    assert_eq!(selects, goes_on.len());
    let again = Options::parse(&passed).unwrap();
    assert_eq!((again.passed, again.limit), (options.passed, None));
    assert!(options.revision.len() <= 20 && options.revision.bytes().all(|b| b.is_ascii_digit()));
    Ok((options.limit.is_some(), options.proceed.is_some(), goes_on.len()))
}

fn media(accepted: &str) -> Result<usize, u16> {
    let Ok(value) = HeaderValue::from_str(accepted) else { return Err(0) };
    let headers = HeaderMap::from_iter([(header::ACCEPT, value)]);
    let narrowed = accept::narrowed(&headers).map_err(|status| status.code)?;
    let ranges: Vec<&str> = narrowed.to_str().unwrap().split(',').collect();
    for range in &ranges {
        let rest = range.strip_prefix("application/json").expect("only what can be put together");
        let form = rest.split_once(";v=").map_or(rest, |(form, _)| form);
        assert!(FORMS.contains(&form), "{range}");
        let asked = form.strip_prefix(";as=").is_none_or(|name| accepted.contains(name));
        assert!(asked, "{range} was not asked for in {accepted}");
    }
    let again = accept::narrowed(&HeaderMap::from_iter([(header::ACCEPT, narrowed.clone())])).unwrap();
    assert_eq!(again, narrowed);
    Ok(ranges.len().min(4))
}
