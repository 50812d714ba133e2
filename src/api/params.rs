//! Query parameters of reads and writes. Unknown ones are tolerated, as Kubernetes does; absurd values are refused.

use super::selector::Selector;
use crate::status::Status;

/// A query string taken apart.
#[derive(Debug, Clone, Default)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    /// Splits and decodes. Bytes that are no UTF-8 are refused.
    pub(super) fn parse(query: Option<&str>) -> Result<Self, Status> {
        let pairs = query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        let pairs = pairs.map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((decode(key)?, decode(value)?))
        });
        match pairs.collect::<Option<Vec<_>>>() {
            Some(pairs) => Ok(Self(pairs)),
            None => Err(Status::bad_request("the query string is not valid")),
        }
    }

    /// The first value of a parameter; empty where absent.
    pub(super) fn get(&self, key: &str) -> &str {
        self.0.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str()).unwrap_or_default()
    }

    /// The names of all parameters, as often as they are given.
    pub(super) fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(key, _)| key.as_str())
    }

    /// All values of a parameter.
    pub(super) fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(k, _)| k == key).map(|(_, v)| v.as_str())
    }

    /// `true`, `1`, `false`, `0`; absent is `false`.
    pub(super) fn flag(&self, key: &str) -> Result<bool, Status> {
        match self.get(key) {
            "" | "false" | "0" => Ok(false),
            "true" | "1" => Ok(true),
            other => Err(Status::bad_request(format!("{key}: expected true or false, got {other:?}"))),
        }
    }

    /// A number; `None` where absent or empty.
    pub(super) fn number(&self, key: &str) -> Result<Option<u64>, Status> {
        match self.get(key) {
            "" => Ok(None),
            text => text.parse().map(Some).map_err(|_| {
                Status::bad_request(format!("{key}: expected a number that is not negative, got {text:?}"))
            }),
        }
    }

    /// Whether nothing is to be stored: `dryRun=All`.
    pub(super) fn dry_run(&self) -> Result<bool, Status> {
        let mut dry = false;
        for value in self.all("dryRun") {
            match value {
                "All" => dry = true,
                other => {
                    return Err(Status::bad_request(format!("dryRun: supported is \"All\", got {other:?}")));
                }
            }
        }
        Ok(dry)
    }

    /// Checks `fieldValidation`. Whatever it says, unknown fields are refused: one that is dropped without an error
    /// would be a wall that its author believes in.
    pub(super) fn check_field_validation(&self) -> Result<(), Status> {
        match self.get("fieldValidation") {
            "" | "Strict" | "Warn" | "Ignore" => Ok(()),
            other => {
                Err(Status::bad_request(format!("fieldValidation: expected Strict, Warn or Ignore, got {other:?}")))
            }
        }
    }
}

/// Undoes percent-encoding and `+`.
pub(super) fn decode(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut out = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        match byte {
            b'+' => out.push(b' '),
            b'%' => {
                let digit = |b: Option<u8>| char::from(b?).to_digit(16);
                let (high, low) = (digit(bytes.next())?, digit(bytes.next())?);
                out.push(u8::try_from(high * 16 + low).ok()?);
            }
            other => out.push(other),
        }
    }
    String::from_utf8(out).ok()
}

/// What a list or a watch asks for.
#[derive(Debug, Clone, Default)]
pub(super) struct ListOptions {
    /// Narrowing.
    pub(super) selector: Selector,
    /// At most so many objects; 0: all.
    pub(super) limit: usize,
    /// Continue token of the page before.
    pub(super) continue_token: String,
    /// `resourceVersion`; `None` where absent.
    pub(super) resource_version: Option<u64>,
    /// `resourceVersionMatch`.
    pub(super) version_match: VersionMatch,
    /// Whether this is a watch.
    pub(super) watch: bool,
    /// Whether bookmarks are wanted.
    pub(super) bookmarks: bool,
    /// Whether a watch begins with all objects.
    pub(super) send_initial_events: Option<bool>,
    /// Seconds after which a watch ends.
    pub(super) timeout_seconds: Option<u64>,
}

/// How `resourceVersion` is meant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum VersionMatch {
    /// Not said.
    #[default]
    Unset,
    /// That version or a newer one.
    NotOlderThan,
    /// Exactly that version.
    Exact,
}

impl ListOptions {
    /// Reads the options of a list or a watch.
    pub(super) fn parse(query: &Query) -> Result<Self, Status> {
        let selector = Selector::parse(query.get("labelSelector"), query.get("fieldSelector"))?;
        let version_match = match query.get("resourceVersionMatch") {
            "" => VersionMatch::Unset,
            "NotOlderThan" => VersionMatch::NotOlderThan,
            "Exact" => VersionMatch::Exact,
            other => {
                return Err(Status::bad_request(format!(
                    "resourceVersionMatch: expected NotOlderThan or Exact, got {other:?}"
                )));
            }
        };
        let watch = query.flag("watch")?;
        let resource_version = query.number("resourceVersion")?;
        let send_initial_events = match query.get("sendInitialEvents") {
            "" => None,
            _ => Some(query.flag("sendInitialEvents")?),
        };
        if send_initial_events.is_some() && !watch {
            return Err(Status::bad_request("sendInitialEvents is forbidden for list"));
        }
        if watch && version_match != VersionMatch::Unset && send_initial_events.is_none() {
            return Err(Status::bad_request(
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            ));
        }
        if send_initial_events.is_some() && version_match != VersionMatch::NotOlderThan {
            return Err(Status::bad_request("sendInitialEvents requires resourceVersionMatch=NotOlderThan"));
        }
        if !watch && version_match != VersionMatch::Unset && resource_version.is_none() {
            return Err(Status::bad_request("resourceVersionMatch is forbidden unless resourceVersion is provided"));
        }
        if version_match == VersionMatch::Exact && resource_version == Some(0) {
            return Err(Status::bad_request("resourceVersionMatch \"Exact\" is forbidden for resourceVersion \"0\""));
        }
        let limit = query.number("limit")?.unwrap_or(0);
        Ok(Self {
            selector,
            limit: usize::try_from(limit).unwrap_or(usize::MAX),
            continue_token: query.get("continue").to_owned(),
            resource_version,
            version_match,
            watch,
            bookmarks: query.flag("allowWatchBookmarks")?,
            send_initial_events,
            timeout_seconds: query.number("timeoutSeconds")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(query: &str) -> Result<ListOptions, Status> {
        ListOptions::parse(&Query::parse(Some(query))?)
    }

    #[test]
    fn unknown_parameters_are_tolerated_and_absurd_values_refused() {
        for good in ["", "pretty=true&foo=%20", "watch=1&limit=", "limit=500&continue=x", "timeoutSeconds=30"] {
            assert!(options(good).is_ok(), "{good}");
        }
        for bad in [
            "limit=-1",
            "limit=x",
            "watch=maybe",
            "resourceVersion=abc",
            "a=%zz",
            "a=%ff",
            "sendInitialEvents=true",
            "watch=true&sendInitialEvents=true",
            "resourceVersionMatch=Sometimes",
            "resourceVersionMatch=Exact",
            "resourceVersionMatch=Exact&resourceVersion=0",
        ] {
            assert_eq!(options(bad).unwrap_err().code, 400, "{bad}");
        }
        assert!(options("watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan").is_ok());
    }

    #[test]
    fn dry_run() {
        let dry = |query| Query::parse(Some(query)).unwrap().dry_run();
        assert!(!dry("").unwrap());
        assert!(dry("dryRun=All").unwrap());
        assert_eq!(dry("dryRun=Some").unwrap_err().code, 400);
    }
}
