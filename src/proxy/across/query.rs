//! What a list or watch across namespaces was asked with. Only parameters whose meaning is known pass: one that a newer
//! API server understands could widen an answer that was put together by the rules of an older one.

use crate::domain::request::unescape;
use crate::status::Status;

/// Parameters that go to each namespace as they came.
const PASSED: [&str; 4] = ["fieldSelector", "includeObject", "labelSelector", "timeout"];

/// How `resourceVersion` is meant.
/// <https://kubernetes.io/docs/reference/using-api/api-concepts/#semantics-for-get-and-list>
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Match {
    /// At exactly this revision.
    Exact,
    /// At this revision or a newer one.
    NotOlderThan,
}

/// The options of a list or watch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// Most objects of one page; none is all of them.
    pub limit: Option<usize>,
    /// Where the next page begins, as we said it.
    pub proceed: Option<String>,
    /// `resourceVersion`, empty where there is none.
    pub revision: String,
    /// `resourceVersionMatch`.
    pub matching: Option<Match>,
    /// Seconds after which a watch ends.
    pub timeout_seconds: Option<u64>,
    /// Whether bookmarks may be sent.
    pub bookmarks: bool,
    /// Whether a watch begins with what is there.
    pub initial_events: bool,
    /// What goes to each namespace: parameters and their values.
    pub passed: Vec<(&'static str, String)>,
}

impl Options {
    /// Reads a raw query.
    pub fn parse(raw: &str) -> Result<Self, Status> {
        let mut options = Self::default();
        let mut seen: Vec<String> = vec![];
        for pair in raw.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let malformed = || Status::bad_request("the query contains a malformed % escape");
            let key = unescape(key).ok_or_else(malformed)?;
            let value = unescape(value).ok_or_else(malformed)?;
            if seen.contains(&key) {
                return Err(Status::bad_request(format!("the query gives {key} more than once")));
            }
            options.take(&key, value)?;
            seen.push(key);
        }
        options.check()
    }

    fn take(&mut self, key: &str, value: String) -> Result<(), Status> {
        match key {
            // Read already, or without effect on what is answered.
            "watch" | "pretty" => {}
            "limit" => self.limit = number(key, &value)?.map(|n| usize::try_from(n).unwrap_or(usize::MAX)),
            "continue" => self.proceed = Some(value).filter(|token| !token.is_empty()),
            "resourceVersion" => self.revision = value,
            "resourceVersionMatch" => {
                self.matching = match value.as_str() {
                    "" => None,
                    "Exact" => Some(Match::Exact),
                    "NotOlderThan" => Some(Match::NotOlderThan),
                    _ => return Err(Status::bad_request("resourceVersionMatch is Exact or NotOlderThan")),
                }
            }
            "timeoutSeconds" => self.timeout_seconds = number(key, &value)?,
            "allowWatchBookmarks" => self.bookmarks = boolean(key, &value)?,
            "sendInitialEvents" => self.initial_events = boolean(key, &value)?,
            key => match PASSED.into_iter().find(|known| *known == key) {
                Some(known) => self.passed.push((known, value)),
                None => {
                    let message = format!("{key} is not supported across namespaces; name a namespace with -n");
                    return Err(Status::bad_request(message));
                }
            },
        }
        Ok(())
    }

    fn check(self) -> Result<Self, Status> {
        let digits = self.revision.bytes().all(|b| b.is_ascii_digit());
        if !digits || self.revision.len() > 20 {
            return Err(Status::bad_request("resourceVersion is none that this service gave"));
        }
        if self.proceed.is_some() && (self.matching.is_some() || !matches!(self.revision.as_str(), "" | "0")) {
            return Err(Status::bad_request("continue excludes resourceVersion and resourceVersionMatch"));
        }
        if self.matching.is_some() && self.revision.is_empty() && !self.initial_events {
            return Err(Status::bad_request("resourceVersionMatch needs a resourceVersion"));
        }
        if self.matching == Some(Match::Exact) && self.revision == "0" {
            return Err(Status::bad_request("resourceVersionMatch=Exact needs a resourceVersion other than 0"));
        }
        Ok(self)
    }

    /// The query that goes to each namespace, escaped anew: one spelling of each key.
    pub fn passed_query(&self) -> String {
        let mut query = String::new();
        for (key, value) in &self.passed {
            add(&mut query, key, &escape(value));
        }
        query
    }

    /// The revision as a number; nothing where any is meant.
    pub fn revision_number(&self) -> Option<u64> {
        self.revision.parse().ok().filter(|n| *n > 0)
    }
}

/// Adds a parameter whose value needs no escaping.
pub fn add(query: &mut String, key: &str, value: &str) {
    if !query.is_empty() {
        query.push('&');
    }
    query.push_str(key);
    query.push('=');
    query.push_str(value);
}

/// Escapes everything but letters, digits, `-`, `.`, `_` and `~`.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

fn number(key: &str, value: &str) -> Result<Option<u64>, Status> {
    if value.is_empty() {
        return Ok(None);
    }
    let number: u64 = value.parse().map_err(|_| Status::bad_request(format!("{key} is not a number")))?;
    Ok((number > 0).then_some(number))
}

fn boolean(key: &str, value: &str) -> Result<bool, Status> {
    match value {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(Status::bad_request(format!("{key} is true or false"))),
    }
}

#[cfg(test)]
#[path = "../../../fuzz/targets/query.rs"]
mod fuzz;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_read_and_what_selects_is_passed_on() {
        let options = Options::parse(
            "limit=500&labelSelector=app%3Dweb&fieldSelector=spec.nodeName%3Dn1&resourceVersion=17\
             &resourceVersionMatch=Exact&watch=1",
        )
        .unwrap();
        assert_eq!(options.limit, Some(500));
        assert_eq!(options.revision_number(), Some(17));
        assert_eq!(options.matching, Some(Match::Exact));
        assert_eq!(options.passed_query(), "labelSelector=app%3Dweb&fieldSelector=spec.nodeName%3Dn1");
        let spelled = Options::parse("%6CabelSelector=a%3D%62").unwrap();
        assert_eq!(spelled.passed_query(), "labelSelector=a%3Db", "one spelling goes on");
        assert_eq!(Options::parse("limit=0&continue=&resourceVersion=0").unwrap().limit, None);
    }

    #[test]
    fn what_is_unknown_doubled_or_contradictory_is_refused() {
        for query in [
            "shardSelector=x",
            "limit=1&limit=2",
            "%6Cimit=1&limit=2",
            "limit=-1",
            "limit=x",
            "resourceVersion=abc",
            "resourceVersion=1%0a",
            "resourceVersion=999999999999999999999",
            "resourceVersionMatch=Newer&resourceVersion=1",
            "resourceVersionMatch=Exact",
            "resourceVersionMatch=Exact&resourceVersion=0",
            "continue=x&resourceVersion=5",
            "allowWatchBookmarks=maybe",
            "labelSelector=%zz",
        ] {
            assert_eq!(Options::parse(query).unwrap_err().code, 400, "{query}");
        }
    }

    #[test]
    fn escaping_is_undone_by_reading() {
        let text = "a in (b,c),!d&limit=1%";
        assert_eq!(unescape(&escape(text)).as_deref(), Some(text));
    }
}
