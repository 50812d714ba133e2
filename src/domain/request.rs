//! What a request to a Kubernetes API server asks for, read by the API server's own rules.
//!
//! The rules are those of `RequestInfoFactory` in k8s.io/apiserver. Where the API server would clean, guess or take the
//! first of several, we refuse: a request that two parsers could read differently is not decided on.

use super::rbac::Attributes;

/// Longest target accepted, in bytes. The API server itself reads about 1 MiB of header; selectors stay far below this.
pub const MAX_TARGET: usize = 16 * 1024;

/// A request for the API server, parsed once from the raw path and query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestInfo {
    /// A resource of the API.
    Resource(ResourceRequest),
    /// Discovery, OpenAPI, version: a path that names no resource.
    Path(PathRequest),
}

/// A request for a path that names no resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathRequest {
    /// The path.
    pub path: String,
    /// Whether the method only reads.
    pub reads: bool,
}

/// A request for a resource.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResourceRequest {
    /// RBAC verb.
    pub verb: Verb,
    /// API group, empty for core.
    pub group: String,
    /// API version.
    pub version: String,
    /// Resource and subresource as RBAC writes them, `pods/log`.
    pub resource: String,
    /// Length of the resource's own name in `resource`.
    main: usize,
    /// Namespace; empty for the whole cluster.
    pub namespace: String,
    /// Object; empty for a collection.
    pub name: String,
    /// Whether the API server is asked to change nothing.
    pub dry_run: bool,
    /// Whether the response goes on (`logs -f`).
    pub follow: bool,
}

/// RBAC verbs of resource requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Verb {
    /// One object.
    #[default]
    Get,
    /// A collection.
    List,
    /// Changes of a collection.
    Watch,
    /// POST.
    Create,
    /// PUT.
    Update,
    /// PATCH.
    Patch,
    /// DELETE of one object.
    Delete,
    /// DELETE of a collection.
    DeleteCollection,
}

impl Verb {
    /// The name in RBAC.
    pub fn as_str(self) -> &'static str {
        match self {
            Verb::Get => "get",
            Verb::List => "list",
            Verb::Watch => "watch",
            Verb::Create => "create",
            Verb::Update => "update",
            Verb::Patch => "patch",
            Verb::Delete => "delete",
            Verb::DeleteCollection => "deletecollection",
        }
    }

    /// The verb of a name in RBAC.
    pub fn parse(name: &str) -> Option<Self> {
        const ALL: [Verb; 8] = [
            Verb::Get,
            Verb::List,
            Verb::Watch,
            Verb::Create,
            Verb::Update,
            Verb::Patch,
            Verb::Delete,
            Verb::DeleteCollection,
        ];
        ALL.into_iter().find(|verb| verb.as_str() == name)
    }

    /// Whether it leaves everything as it is.
    pub fn reads(self) -> bool {
        matches!(self, Verb::Get | Verb::List | Verb::Watch)
    }
}

impl ResourceRequest {
    /// A request as an access review describes it. `None` where the verb is none of ours.
    pub fn asked(
        verb: &str,
        group: &str,
        version: &str,
        main: &str,
        subresource: &str,
        namespace: &str,
        name: &str,
    ) -> Option<Self> {
        let verb = Verb::parse(verb)?;
        let resource = if subresource.is_empty() { main.to_owned() } else { format!("{main}/{subresource}") };
        let own = str::to_owned;
        Some(Self {
            verb,
            group: own(group),
            version: own(version),
            main: main.len(),
            resource,
            namespace: own(namespace),
            name: own(name),
            dry_run: false,
            follow: false,
        })
    }

    /// The resource without its subresource.
    pub fn main_resource(&self) -> &str {
        &self.resource[..self.main]
    }

    /// The subresource, empty where there is none.
    pub fn subresource(&self) -> &str {
        self.resource.get(self.main + 1..).unwrap_or_default()
    }

    /// What RBAC is asked, in RBAC's terms.
    pub fn attributes(&self) -> Attributes<'_> {
        Attributes { verb: self.verb.as_str(), group: &self.group, resource: &self.resource, name: &self.name }
    }

    /// Exec, attach and port-forward: streams both ways into a Pod, whatever the HTTP method.
    pub fn is_interactive(&self) -> bool {
        self.group.is_empty() && matches!(self.resource.as_str(), "pods/exec" | "pods/attach" | "pods/portforward")
    }

    /// Whether the API server treats the response as long-running (its own test: watch, and these subresources).
    pub fn is_long_running(&self) -> bool {
        self.verb == Verb::Watch || self.is_interactive() || self.follow || self.subresource() == "proxy"
    }

    /// Whether it changes something, or hands out something as good as a change: an interactive session, or a token
    /// (a dry run of which returns a real one).
    pub fn mutates(&self) -> bool {
        !self.verb.reads() || self.is_interactive()
    }
}

/// Why a target was refused. Each is a 400; the message says what to send instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// Longer than [`MAX_TARGET`].
    #[error("the path and query are longer than {MAX_TARGET} bytes")]
    TooLong,
    /// A byte or an escape that two parsers may read differently.
    #[error("the path contains {0}; send the plain path, it is not cleaned up here")]
    Ambiguous(&'static str),
    /// The query cannot be read in one way only.
    #[error("the query {0}")]
    Query(&'static str),
    /// Not a path of the Kubernetes API.
    #[error("the path is not one of the Kubernetes API that this service forwards")]
    Unknown,
    /// A method that the API server does not know for resources.
    #[error("the method is not one of GET, HEAD, POST, PUT, PATCH, DELETE")]
    Method,
}

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

fn escape(bytes: &[u8], at: usize) -> Option<u8> {
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

/// The parameters that change what a request is.
#[derive(Default)]
struct Query {
    watch: bool,
    follow: bool,
    dry_run: bool,
    name: Option<String>,
}

impl Query {
    fn parse(raw: &str) -> Result<Self, TargetError> {
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

fn unescape(text: &str) -> Option<String> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn read(method: &str, target: &str) -> Result<RequestInfo, TargetError> {
        let (path, query) = target.split_once('?').map_or((target, None), |(p, q)| (p, Some(q)));
        parse(method, &segments(path)?, query)
    }

    fn resource(method: &str, target: &str) -> String {
        match read(method, target) {
            Ok(RequestInfo::Resource(r)) => {
                format!("{} {}|{} ns={} name={}", r.verb.as_str(), r.group, r.resource, r.namespace, r.name)
            }
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn reads_as_the_api_server_does() {
        for (method, target, expected) in [
            ("GET", "/api/v1/namespaces/a/pods", "list |pods ns=a name="),
            ("GET", "/api/v1/namespaces/a/pods?watch=1", "watch |pods ns=a name="),
            ("GET", "/api/v1/namespaces/a/pods?watch=true", "watch |pods ns=a name="),
            ("GET", "/api/v1/namespaces/a/pods?watch=", "watch |pods ns=a name="),
            ("GET", "/api/v1/namespaces/a/pods?watch=nonsense", "watch |pods ns=a name="),
            ("GET", "/api/v1/namespaces/a/pods?watch=False", "list |pods ns=a name="),
            ("GET", "/api/v1/namespaces/a/pods?w%61tch=1", "watch |pods ns=a name="),
            ("GET", "/api/v1/namespaces/a/pods?fieldSelector=metadata.name%3Dp", "list |pods ns=a name=p"),
            ("GET", "/api/v1/namespaces/a/pods?fieldSelector=metadata.name%21%3Dp", "list |pods ns=a name="),
            ("HEAD", "/api/v1/namespaces/a/pods/p", "get |pods ns=a name=p"),
            ("GET", "/api/v1/namespaces/a/pods/p/log", "get |pods/log ns=a name=p"),
            ("POST", "/api/v1/namespaces/a/pods/p/exec", "create |pods/exec ns=a name=p"),
            ("GET", "/api/v1/namespaces/a", "get |namespaces ns=a name=a"),
            ("PUT", "/api/v1/namespaces/a/finalize", "update |namespaces/finalize ns=a name=a"),
            ("GET", "/api/v1/namespaces/a/status", "get |namespaces/status ns=a name=a"),
            ("GET", "/api/v1/namespaces", "list |namespaces ns= name="),
            ("DELETE", "/apis/apps/v1/namespaces/a/deployments", "deletecollection apps|deployments ns=a name="),
            ("DELETE", "/apis/apps/v1/namespaces/a/deployments/d", "delete apps|deployments ns=a name=d"),
            ("PATCH", "/apis/apps/v1/namespaces/a/deployments/d/scale", "patch apps|deployments/scale ns=a name=d"),
            ("GET", "/apis/apps/v1/deployments", "list apps|deployments ns= name="),
            ("GET", "/apis/apps/v1/namespaces/a/namespaces/b", "get apps|namespaces ns=a name=b"),
            ("GET", "/api/v1/namespaces/a/pods/p/proxy/x/y", "get |pods/proxy ns=a name=p"),
            ("GET", "/api/v1/namespaces/a/roles/a%3Ab", "get |roles ns=a name=a:b"),
        ] {
            assert_eq!(resource(method, target), expected, "{method} {target}");
        }
    }

    #[test]
    fn reads_paths() {
        for path in [
            "/api",
            "/apis",
            "/api/v1",
            "/apis/apps",
            "/apis/apps/v1",
            "/version",
            "/openapi/v2",
            "/openapi/v3",
            "/openapi/v3/apis/apps/v1",
        ] {
            assert!(matches!(read("GET", path), Ok(RequestInfo::Path(PathRequest { reads: true, .. }))), "{path}");
        }
        for path in
            ["/metrics", "/healthz", "/logs/x", "/", "/debug/pprof", "/.well-known/openid-configuration", "/openapi"]
        {
            assert!(read("GET", path).is_err(), "{path}");
        }
    }

    #[test]
    fn refuses_what_can_be_read_in_two_ways() {
        for target in [
            "/api/v1//namespaces/a/pods",
            "/api/v1/namespaces/a/pods/",
            "/api/v1/namespaces/a/../b/pods",
            "/api/v1/namespaces/a/./pods",
            "/api/v1/namespaces/a/%2e%2e/pods",
            "/api/v1/namespaces/a/%2E/pods",
            "/api/v1/namespaces/a%2fb/pods",
            "/api/v1/namespaces/a%5cb/pods",
            "/api/v1/namespaces/a\\b/pods",
            "/api/v1/namespaces/a;b/pods",
            "/api/v1/namespaces/a%3Bb/pods",
            "/api/v1/namespaces/a%00/pods",
            "/api/v1/namespaces/a%0a/pods",
            "/api/v1/namespaces/a%25/pods",
            "/api/v1/namespaces/a%zz/pods",
            "/api/v1/namespaces/a%2/pods",
            "/api/v1/namespaces/a%23/pods",
            "/api/v1/namespaces/a%3fwatch/pods",
            "/api/v1/namespaces/ä/pods",
            "/api/v1/namespaces/a b/pods",
            "/api/v1/watch/namespaces/a/pods",
            "/api/v1/proxy/namespaces/a/pods/p",
            "/api/v1/namespaces/a/pods/p/log/more",
            "/api/v1/namespaces/a/pods?watch=0&watch=1",
            "/api/v1/namespaces/a/pods?w%61tch=0&watch=1",
            "/api/v1/namespaces/a/pods?a;watch=1",
            "/api/v1/namespaces/a/pods?a=%zz",
            "/api/v1/namespaces/a/pods/p?watch=1",
        ] {
            assert!(read("GET", target).is_err(), "{target} must be refused");
        }
        assert_eq!(read("TRACE", "/api/v1/namespaces/a/pods"), Err(TargetError::Method));
        assert_eq!(read("CONNECT", "/api/v1/namespaces/a/pods"), Err(TargetError::Method));
        assert_eq!(segments(&format!("/{}", "a".repeat(MAX_TARGET))), Err(TargetError::TooLong));
    }

    #[test]
    fn knows_streams_and_mutations() {
        let get = |method: &str, target: &str| match read(method, target) {
            Ok(RequestInfo::Resource(r)) => r,
            other => panic!("{other:?}"),
        };
        let exec = get("GET", "/api/v1/namespaces/a/pods/p/exec?command=sh");
        assert!(exec.is_interactive() && exec.is_long_running() && exec.mutates());
        let logs = get("GET", "/api/v1/namespaces/a/pods/p/log?follow=true");
        assert!(logs.is_long_running() && !logs.mutates());
        assert!(!get("GET", "/api/v1/namespaces/a/pods/p/log").is_long_running());
        assert!(get("GET", "/api/v1/namespaces/a/pods?watch=1").is_long_running());
        // A look-alike in another group is no exec.
        assert!(!get("GET", "/apis/example.com/v1/namespaces/a/pods/p/exec").is_interactive());
        let dry = get("POST", "/api/v1/namespaces/a/serviceaccounts/s/token?dryRun=All");
        assert!(dry.dry_run && dry.mutates());
    }
}
