//! The query: only what changes what a request is.

use super::TargetError;
use super::path::escape;
use crate::domain::names::check_label;

/// The parameters that change what a request is.
#[derive(Default)]
pub(super) struct Query {
    pub(super) watch: bool,
    pub(super) follow: bool,
    pub(super) dry_run: bool,
    pub(super) name: Option<String>,
}

impl Query {
    pub(super) fn parse(raw: &str) -> Result<Self, TargetError> {
        use TargetError::Query as Refused;
        let mut query = Self::default();
        let mut seen = [false; SINGLE.len()];
        let mut readable = true;
        if raw.bytes().any(|b| b == b';' || b == b'\\' || !(0x21..=0x7e).contains(&b)) {
            return Err(Refused("contains `;`, a backslash, a blank or a byte outside ASCII; escape it"));
        }
        for pair in raw.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let key = unescape(key).ok_or(Refused("contains a malformed % escape"))?;
            let value = unescape(value).ok_or(Refused("contains a malformed % escape"))?;
            let Some(slot) = SINGLE.iter().position(|single| *single == key) else { continue };
            if std::mem::replace(&mut seen[slot], true) {
                return Err(Refused(
                    "gives a parameter more than once that may stand only once (watch, follow, dryRun, fieldSelector, \
                     labelSelector, shardSelector, limit, timeoutSeconds, resourceVersion, resourceVersionMatch, \
                     continue, sendInitialEvents, fieldManager)",
                ));
            }
            match key.as_str() {
                "watch" => query.watch = go_bool(&value),
                "follow" => query.follow = go_bool(&value),
                "dryRun" => query.dry_run = value == "All",
                "fieldSelector" => query.name = exact_name(&value)?,
                "limit" | "timeoutSeconds" => readable &= value.parse::<i64>().is_ok(),
                // Anything else than the plain form is judged by the API server alone.
                "labelSelector" => readable &= is_plain_label_selector(&value),
                "shardSelector" => readable = false,
                // Read elsewhere; the API server forgets no name for them.
                _ => {}
            }
        }
        if query.name.is_some() && !readable {
            // The API server forgets the name where it cannot read the rest.
            return Err(Refused(
                "has a fieldSelector on metadata.name beside a limit, timeoutSeconds, labelSelector or shardSelector \
                 that may not be read; use whole numbers, and key=value,… for labels",
            ));
        }
        Ok(query)
    }
}

/// The parameters of a query that was parsed before, in their order.
///
/// # Errors
/// [`TargetError::Query`] for a malformed escape.
pub fn pairs(raw: &str) -> Result<Vec<(String, String)>, TargetError> {
    let decoded = |text| unescape(text).ok_or(TargetError::Query("contains a malformed % escape"));
    let pairs = raw.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            Ok((decoded(key)?, decoded(value)?))
        })
        .collect()
}

/// Parameters that may stand only once: the API server takes the first, other readers the last.
const SINGLE: [&str; 13] = [
    "watch",
    "follow",
    "dryRun",
    "fieldSelector",
    "labelSelector",
    "shardSelector",
    "limit",
    "timeoutSeconds",
    "resourceVersion",
    "resourceVersionMatch",
    "continue",
    "sendInitialEvents",
    "fieldManager",
];

/// How the API server reads a boolean: everything but `false` and `0` is true, the empty text too.
fn go_bool(value: &str) -> bool {
    !matches!(value.to_ascii_lowercase().as_str(), "false" | "0")
}

/// The name that a field selector requires, as `fields.ParseSelector` of k8s.io/apimachinery reads it: terms between
/// commas, the first operator in each. A selector that it refuses requires nothing.
fn exact_name(selector: &str) -> Result<Option<String>, TargetError> {
    if selector.contains('\\') {
        return Err(TargetError::Query("has a fieldSelector with a backslash, which escapes what separates its terms"));
    }
    let mut name = None;
    for term in selector.split(',').filter(|term| !term.is_empty()) {
        // `!` begins an operator only before `=`.
        let Some(at) = term.find('=') else { return Ok(None) };
        let (field, value) = (&term[..at], &term[at + 1..]);
        let (field, differs) = match field.strip_suffix('!') {
            Some(field) => (field, true),
            None => (field, false),
        };
        let value = if differs { value } else { value.strip_prefix('=').unwrap_or(value) };
        if value.contains('=') {
            return Ok(None);
        }
        if field == "metadata.name" && !differs && name.is_none() {
            name = Some(value);
        }
    }
    let legal = |name: &&str| !name.is_empty() && !matches!(*name, "." | "..") && !name.contains(['/', '%']);
    Ok(name.filter(legal).map(str::to_owned))
}

/// Whether a label selector is of the form `key=value,…`, with keys and values that no reader refuses.
fn is_plain_label_selector(selector: &str) -> bool {
    let word = |text: &str| {
        let bytes = text.as_bytes();
        bytes.len() <= 63
            && bytes.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
            && bytes.first().is_none_or(u8::is_ascii_alphanumeric)
            && bytes.last().is_none_or(u8::is_ascii_alphanumeric)
    };
    // Words that the grammar of set-based requirements knows.
    let operator = |text: &str| matches!(text, "in" | "notin" | "exists");
    selector.is_empty()
        || selector.split(',').all(|term| {
            let Some((key, value)) = term.split_once('=') else { return false };
            let value = value.strip_prefix('=').unwrap_or(value);
            let (prefix, name) = key.split_once('/').unwrap_or(("example.com", key));
            let prefixed = prefix.len() <= 253 && prefix.split('.').all(|label| check_label(label).is_ok());
            prefixed && !name.is_empty() && word(name) && word(value) && !operator(name) && !operator(value)
        })
}

/// Undoes the escapes of a key or value in a query. `None` where one is malformed, or the text is not UTF-8.
pub fn unescape(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'%' => {
                out.push(escape(bytes, at)?);
                at += 3;
            }
            b'+' => {
                out.push(b' ');
                at += 1;
            }
            byte => {
                out.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8(out).ok()
}
