//! The query: only what changes what a request is.

use super::TargetError;
use super::path::escape;

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
        let mut seen = [false; 4];
        if raw.bytes().any(|b| b == b';' || b == b'\\' || !(0x21..=0x7e).contains(&b)) {
            return Err(Refused("contains `;`, a backslash, a blank or a byte outside ASCII; escape it"));
        }
        for pair in raw.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let key = unescape(key).ok_or(Refused("contains a malformed % escape"))?;
            let value = unescape(value).ok_or(Refused("contains a malformed % escape"))?;
            let slot = match key.as_str() {
                "watch" => 0,
                "follow" => 1,
                "dryRun" => 2,
                "fieldSelector" => 3,
                _ => continue,
            };
            if std::mem::replace(&mut seen[slot], true) {
                return Err(Refused("gives watch, follow, dryRun or fieldSelector more than once"));
            }
            match slot {
                0 => query.watch = go_bool(&value),
                1 => query.follow = go_bool(&value),
                2 => query.dry_run = value == "All",
                _ => query.name = exact_name(&value),
            }
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

/// How the API server reads a boolean: everything but `false` and `0` is true, the empty text too.
fn go_bool(value: &str) -> bool {
    !matches!(value.to_ascii_lowercase().as_str(), "false" | "0")
}

/// The name that a field selector requires, where it says so plainly. Otherwise none: then only rules without
/// `resourceNames` match, which is the stricter reading.
fn exact_name(selector: &str) -> Option<String> {
    if selector.contains('\\') {
        return None;
    }
    let name = selector.split(',').find_map(|term| {
        let value = term.strip_prefix("metadata.name=")?;
        Some(value.strip_prefix('=').unwrap_or(value))
    })?;
    let legal = !name.is_empty() && !matches!(name, "." | "..") && !name.contains(['/', '%', '=', '!']);
    legal.then(|| name.to_owned())
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
