//! What was in a namespace before it was its project's: nobody's to read.
//!
//! A cluster answers from its history, too: a list at an old resource version, a watch from one, a page of a list that
//! was begun then. Its RBAC looks at the present only. So who has a namespace now could read what somebody else had in
//! it: one that was moved, adopted, or deleted and made again under its name. A claim therefore says from which resource
//! version on the namespace is its project's, and whatever reaches back further has expired.
//!
//! Resources with a revision counter of their own (events in an etcd of their own, aggregated APIs) are found out by
//! asking the cluster where it stands. For them the past ends where they stood when they were first asked about.
//! <https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions>

use std::num::NonZeroUsize;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use lru::LruCache;
use parking_lot::Mutex;
use serde::Deserialize;

use crate::domain::request::{ResourceRequest, Verb, pairs};
use crate::records::Claim;
use crate::status::Status;

/// Most counters that are remembered. Of one that is forgotten, clients list anew once.
const COUNTERS: NonZeroUsize = NonZeroUsize::new(10_000).unwrap();

/// How far back a request reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// To this resource version.
    To(u64),
    /// It says so in a way that is not understood here.
    Unknown,
}

/// How far back a request in a namespace reaches; `None` where it asks for the present.
pub fn reach(request: &ResourceRequest, query: &str) -> Option<Reach> {
    // The answer to a deletion of a collection is the list that it was made from.
    let history = matches!(request.verb, Verb::List | Verb::Watch | Verb::DeleteCollection);
    if query.is_empty() || !history || request.namespace.is_empty() {
        return None;
    }
    let Ok(pairs) = pairs(query) else { return Some(Reach::Unknown) };
    let reaches = pairs.iter().filter_map(|(key, value)| match key.as_str() {
        "resourceVersion" => version(value),
        "continue" => continued(value),
        _ => None,
    });
    reaches.reduce(|one, other| match (one, other) {
        (Reach::To(one), Reach::To(other)) => Reach::To(one.min(other)),
        _ => Reach::Unknown,
    })
}

fn version(text: &str) -> Option<Reach> {
    if text.is_empty() || text.bytes().all(|b| b == b'0') {
        return None;
    }
    let number = text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten();
    Some(number.map_or(Reach::Unknown, Reach::To))
}

/// A continue token of the API server, as `k8s.io/apiserver/pkg/storage` writes it.
#[derive(Deserialize)]
struct Continue {
    v: String,
    #[serde(default)]
    rv: i64,
}

fn continued(token: &str) -> Option<Reach> {
    if token.is_empty() {
        return None;
    }
    let read =
        BASE64_URL_SAFE_NO_PAD.decode(token).ok().and_then(|json| serde_json::from_slice::<Continue>(&json).ok());
    match read {
        // Of the newest, from a key on.
        Some(Continue { v, rv: -1 }) if v == "meta.k8s.io/v1" => None,
        Some(Continue { v, rv }) if v == "meta.k8s.io/v1" => {
            Some(u64::try_from(rv).ok().filter(|rv| *rv > 0).map_or(Reach::Unknown, Reach::To))
        }
        _ => Some(Reach::Unknown),
    }
}

/// What a client is told: it lists anew.
pub fn expired() -> Status {
    Status::expired("the resource version is from before the namespace was its project's; list again")
}

/// A resource in a namespace, in its project's time: UID of the namespace, UID of the project, `since`, group, resource.
type Stay = (String, String, u64, String, String);

/// Where counters of their own stood when they were first asked about.
pub struct Past {
    counters: Mutex<LruCache<Stay, u64>>,
}

/// What is known without asking the cluster.
#[derive(Debug, PartialEq, Eq)]
pub enum Known {
    /// The project's own time.
    Own,
    /// Somebody else's, or unknown whose.
    Past,
    /// To be settled by where the cluster stands, with [`Past::settle`].
    Ask(Question),
}

/// What is to be settled.
#[derive(Debug, PartialEq, Eq)]
pub struct Question {
    stay: Stay,
    from: u64,
}

impl Default for Past {
    fn default() -> Self {
        Self { counters: Mutex::new(LruCache::new(COUNTERS)) }
    }
}

impl Past {
    /// Judges by what is known.
    pub fn known(&self, claim: &Claim, request: &ResourceRequest, reach: Reach) -> Known {
        let (Some(since), Reach::To(from)) = (claim.since, reach) else { return Known::Past };
        if from >= since {
            return Known::Own;
        }
        let uid = claim.namespace_uid.clone().unwrap_or_default();
        let stay = (uid, claim.project_uid.clone(), since, request.group.clone(), request.resource.clone());
        match self.counters.lock().get(&stay) {
            Some(first) if from >= *first => Known::Own,
            Some(_) => Known::Past,
            None => Known::Ask(Question { stay, from }),
        }
    }

    /// Whether it is the project's own time, by where the cluster stands with the resource. Below `since`, its counter is
    /// not the one of namespaces.
    pub fn settle(&self, question: Question, stands: u64) -> bool {
        let Question { stay, from } = question;
        if stands >= stay.2 {
            return false;
        }
        from >= *self.counters.lock().get_or_insert(stay, || stands)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reaches(verb: &str, query: &str) -> Option<Reach> {
        let request = ResourceRequest::asked(verb, "", "v1", "secrets", "", "shop-web", "").unwrap();
        reach(&request, query)
    }

    fn token(json: &str) -> String {
        format!("limit=5&continue={}", BASE64_URL_SAFE_NO_PAD.encode(json))
    }

    #[test]
    fn how_far_back_a_request_reaches() {
        for verb in ["list", "watch", "deletecollection"] {
            assert_eq!(reaches(verb, "resourceVersion=17"), Some(Reach::To(17)), "{verb}");
            assert_eq!(reaches(verb, "%72esourceVersion=1%37"), Some(Reach::To(17)), "{verb}");
            assert_eq!(reaches(verb, &token(r#"{"v":"meta.k8s.io/v1","rv":9,"start":"a"}"#)), Some(Reach::To(9)));
            for unknown in ["resourceVersion=%2b17", "resourceVersion=17a", "continue=abc", "resourceVersion=%zz"] {
                assert_eq!(reaches(verb, unknown), Some(Reach::Unknown), "{unknown}");
            }
            for rv in ["0", "-2"] {
                let json = format!(r#"{{"v":"meta.k8s.io/v1","rv":{rv},"start":"a"}}"#);
                assert_eq!(reaches(verb, &token(&json)), Some(Reach::Unknown), "{rv}");
            }
            for present in ["", "limit=500", "resourceVersion=", "resourceVersion=0", "continue="] {
                assert_eq!(reaches(verb, present), None, "{present}");
            }
            assert_eq!(reaches(verb, &token(r#"{"v":"meta.k8s.io/v1","rv":-1,"start":"a"}"#)), None);
        }
        // One object is answered at the version or a newer one.
        assert_eq!(reaches("get", "resourceVersion=17"), None);
    }

    fn claim(since: Option<u64>, project: &str) -> Claim {
        serde_json::from_value(serde_json::json!({
            "cluster": "demo", "cluster_uid": "c", "namespace": "shop-web", "namespace_uid": "n", "project": project,
            "project_uid": project, "origin": "created", "releasing": false, "since": since, "created_by": "jane",
            "created_at": "2026-01-01T00:00:00Z",
        }))
        .unwrap()
    }

    #[test]
    fn the_past_ends_where_the_project_began() {
        let past = Past::default();
        let of = |resource: &str| ResourceRequest::asked("list", "", "v1", resource, "", "shop-web", "").unwrap();
        let shop = claim(Some(20), "shop");
        let known = |claim: &Claim, resource: &str, from| past.known(claim, &of(resource), Reach::To(from));
        let settle = |claim: &Claim, resource: &str, from, stands| match known(claim, resource, from) {
            Known::Ask(question) => past.settle(question, stands),
            known => panic!("{known:?}"),
        };
        assert_eq!(known(&shop, "secrets", 20), Known::Own);
        assert_eq!(known(&claim(None, "shop"), "secrets", 30), Known::Past, "nothing is known yet");
        assert_eq!(past.known(&shop, &of("secrets"), Reach::Unknown), Known::Past);
        assert!(!settle(&shop, "secrets", 19, 25), "the counter of namespaces");
        assert!(matches!(known(&shop, "secrets", 19), Known::Ask(_)), "which is not remembered");
        // A counter of its own stands lower; from where it stood first, it is the project's.
        assert!(settle(&shop, "events", 5, 5));
        assert_eq!(known(&shop, "events", 6), Known::Own);
        assert_eq!(known(&shop, "events", 4), Known::Past);
        // Another project's time, and a later one of the same project, are others.
        for other in [claim(Some(20), "other"), claim(Some(40), "shop")] {
            assert!(!settle(&other, "events", 6, 9));
            assert_eq!(known(&other, "events", 8), Known::Past);
        }
    }
}
