//! The path: which segments it has, and which resource they name.

use super::query::Query;
use super::{MAX_TARGET, PathRequest, RequestInfo, ResourceRequest, TargetError, Verb};

/// Checks a path for everything that could be read in two ways and returns its segments, decoded.
pub fn segments(path: &str) -> Result<Vec<String>, TargetError> {
    if path.len() > MAX_TARGET {
        return Err(TargetError::TooLong);
    }
    let rest = path.strip_prefix('/').ok_or(TargetError::Unknown)?;
    rest.split('/').map(segment).collect()
}

fn segment(raw: &str) -> Result<String, TargetError> {
    use TargetError::Ambiguous;
    if raw.is_empty() {
        return Err(Ambiguous("an empty segment (`//` or a slash at the end)"));
    }
    let bytes = raw.as_bytes();
    let mut decoded = String::with_capacity(raw.len());
    let mut at = 0;
    while at < bytes.len() {
        let byte = match bytes[at] {
            b'%' => {
                let byte = escape(bytes, at).ok_or(Ambiguous("a malformed % escape"))?;
                at += 2;
                // Only what a name may contain and no parser treats specially.
                if !matches!(byte, b':' | b'@' | b'+' | b'=' | b',' | b'$' | b'!' | b'~' | b'_' | b'-' | b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9')
                {
                    return Err(Ambiguous("a % escape of a character that names do not have"));
                }
                byte
            }
            b';' => return Err(Ambiguous("a `;`")),
            b'\\' => return Err(Ambiguous("a backslash")),
            byte @ 0x21..=0x7e => byte,
            _ => return Err(Ambiguous("a control character, a blank or a byte outside ASCII")),
        };
        decoded.push(char::from(byte));
        at += 1;
    }
    if decoded == "." || decoded == ".." {
        return Err(Ambiguous("a dot segment"));
    }
    Ok(decoded)
}

/// The byte of the `%` escape that begins at `at`.
pub(super) fn escape(bytes: &[u8], at: usize) -> Option<u8> {
    let hex = bytes.get(at + 1..at + 3)?;
    let digit = |b: u8| char::from(b).to_digit(16);
    Some((digit(hex[0])? * 16 + digit(hex[1])?) as u8)
}

/// Reads a request by the API server's rules. `segments` are those below the cluster's root.
pub fn parse(method: &str, segments: &[String], query: Option<&str>) -> Result<RequestInfo, TargetError> {
    let query = Query::parse(query.unwrap_or_default())?;
    let parts: Vec<&str> = segments.iter().map(String::as_str).collect();
    let (group, version, rest) = match parts.as_slice() {
        ["api", version, rest @ ..] if !rest.is_empty() => ("", *version, rest),
        ["apis", group, version, rest @ ..] if !rest.is_empty() => (*group, *version, rest),
        _ => return path_request(method, &parts),
    };
    if matches!(rest[0], "watch" | "proxy") {
        // Deprecated since Kubernetes 1.11 and unused by its clients; two spellings of one request are one too many.
        return Err(TargetError::Ambiguous("the deprecated prefix /watch/ or /proxy/"));
    }
    let mut verb = match method {
        "GET" | "HEAD" => Verb::Get,
        "POST" => Verb::Create,
        "PUT" => Verb::Update,
        "PATCH" => Verb::Patch,
        "DELETE" => Verb::Delete,
        _ => return Err(TargetError::Method),
    };
    let (namespace, rest) = match rest {
        ["namespaces", namespace, sub, ..] if matches!(*sub, "status" | "finalize") => (*namespace, rest),
        ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
        ["namespaces", namespace] => (*namespace, rest),
        _ => ("", rest),
    };
    let (main, mut name, sub) = match rest {
        [main] => (*main, "", ""),
        [main, name] => (*main, *name, ""),
        [main, name, sub, tail @ ..] if tail.is_empty() || *sub == "proxy" => (*main, *name, *sub),
        _ => return Err(TargetError::Unknown),
    };
    if name.is_empty() {
        verb = match verb {
            Verb::Get if query.watch => Verb::Watch,
            Verb::Get => Verb::List,
            Verb::Delete => Verb::DeleteCollection,
            other => other,
        };
        if matches!(verb, Verb::List | Verb::Watch) {
            name = query.name.as_deref().unwrap_or_default();
        }
    } else if query.watch {
        // The API server ignores it here; a reader of the URL would not.
        return Err(TargetError::Query("asks to watch a single object; use a fieldSelector on the collection"));
    }
    let resource = if sub.is_empty() { main.to_owned() } else { format!("{main}/{sub}") };
    Ok(RequestInfo::Resource(ResourceRequest {
        verb,
        group: group.to_owned(),
        version: version.to_owned(),
        main: main.len(),
        follow: query.follow && sub == "log",
        resource,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        dry_run: query.dry_run,
    }))
}

fn path_request(method: &str, parts: &[&str]) -> Result<RequestInfo, TargetError> {
    let known = matches!(
        parts,
        ["api" | "apis" | "version"] | ["api" | "apis", _] | ["apis", _, _] | ["openapi", "v2"] | ["openapi", "v3", ..]
    );
    if !known {
        return Err(TargetError::Unknown);
    }
    Ok(RequestInfo::Path(PathRequest {
        path: format!("/{}", parts.join("/")),
        reads: matches!(method, "GET" | "HEAD"),
    }))
}
