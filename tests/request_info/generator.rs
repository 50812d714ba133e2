//! Request lines: what clients of Kubernetes send, what they might, and what an attacker would.

/// Draws from a seed.
pub struct Generator(u64);

const METHODS: [&str; 24] = [
    "GET", "GET", "GET", "GET", "GET", "GET", "HEAD", "POST", "POST", "PUT", "PUT", "PATCH", "PATCH", "DELETE",
    "DELETE", "DELETE", "OPTIONS", "TRACE", "CONNECT", "LIST", "WATCH", "get", "Get", "M-SEARCH",
];
const NAMES: [&str; 16] = [
    "a",
    "web",
    "shop-web",
    "kube-system",
    "pods",
    "namespaces",
    "status",
    "finalize",
    "watch",
    "proxy",
    "api",
    "apis",
    "system:masters",
    "a.b",
    "x@y",
    "0",
];
const RESOURCES: [&str; 12] = [
    "pods",
    "pods",
    "services",
    "secrets",
    "configmaps",
    "deployments",
    "nodes",
    "namespaces",
    "status",
    "widgets",
    "serviceaccounts",
    "events",
];
const SUBRESOURCES: [&str; 14] = [
    "log",
    "exec",
    "attach",
    "portforward",
    "proxy",
    "status",
    "scale",
    "eviction",
    "token",
    "finalize",
    "binding",
    "ephemeralcontainers",
    "watch",
    "namespaces",
];
const GROUPS: [&str; 8] =
    ["apps", "batch", "example.com", "metrics.k8s.io", "v1", "namespaces", "watch", "rbac.authorization.k8s.io"];
const VERSIONS: [&str; 5] = ["v1", "v1", "v1beta1", "v2", "namespaces"];
const PATHS: [&str; 26] = [
    "/",
    "/api",
    "/api/",
    "/api/v1",
    "/apis",
    "/apis/apps",
    "/apis/apps/v1",
    "/apis/apps/v1/",
    "/version",
    "/version/",
    "/openapi",
    "/openapi/v2",
    "/openapi/v3",
    "/openapi/v3/apis/apps/v1",
    "/openapi/v3/api/v1",
    "/healthz",
    "/livez/ping",
    "/metrics",
    "/logs/x",
    "/debug/pprof",
    "/.well-known/openid-configuration",
    "/apis/example.com/v1/namespaces",
    "/api/v1/namespaces",
    "/apis/watch/v1",
    "/api/v1/watch",
    "/api/v1/proxy",
];
/// What is put between two bytes of a path.
const SPLINTERS: [&str; 46] = [
    "/", "//", "/.", "/..", "/./", "/../", ".", "..", "%2f", "%2F", "%5c", "\\", "%2e", "%2e%2e", "%252f", "%00",
    "%0a", "%09", "%20", " ", "+", "%2b", ";", "%3b", ";a=b", "%", "%z", "%zz", "%4", "%41", "%61", "#", "%23", "?",
    "%3f", "&", ":", "%3A", "@", "*", "$", "~", "é", "%c3%a9", "\u{202e}", "|",
];
const KEYS: [&str; 22] = [
    "watch",
    "watch",
    "watch",
    "w%61tch",
    "Watch",
    "fieldSelector",
    "fieldSelector",
    "fieldSelector",
    "labelSelector",
    "limit",
    "timeoutSeconds",
    "resourceVersion",
    "resourceVersionMatch",
    "continue",
    "allowWatchBookmarks",
    "sendInitialEvents",
    "dryRun",
    "follow",
    "pretty",
    "gracePeriodSeconds",
    "shardSelector",
    "",
];
const BOOLEANS: [&str; 14] =
    ["1", "true", "True", "0", "false", "False", "FALSE", "", "no", "t", "%30", "f%61lse", "+false", "0x0"];
const SELECTORS: [&str; 34] = [
    "metadata.name=a",
    "metadata.name%3Da",
    "metadata.name==a",
    "metadata.name%3D%3Da",
    "metadata.name!=a",
    "metadata.name%21%3Da",
    "metadata.name=",
    "metadata.name",
    "metadata.name=.",
    "metadata.name=..",
    "metadata.name=a/b",
    "metadata.name=a%2Fb",
    "metadata.name=a%2525",
    "metadata.name=a,metadata.name=b",
    "metadata.name=a%2Cmetadata.namespace=b",
    "metadata.namespace=b,metadata.name=a",
    "status.phase!=Running",
    "status.phase=Running,metadata.name=a",
    "metadata.name=a,",
    ",metadata.name=a",
    ",",
    "%20metadata.name=a",
    "metadata.name%20=a",
    "metadata.name=%20a",
    "metadata.name=a\\",
    "metadata.name=a%5C%2Cb",
    "metadata.name=a%5C",
    "metadata.name=a%3Db",
    "metadata.name=a,=b",
    "metadata.name=a,b",
    "Metadata.name=a",
    "metadata.name=a,status.phase",
    "spec.nodeName=n,metadata.name!=b",
    "metadata.name===a",
];
const VALUES: [&str; 22] = [
    "",
    "1",
    "0",
    "-1",
    "500",
    "abc",
    "9223372036854775807",
    "9223372036854775808",
    "1_000",
    "0x10",
    "+5",
    "1e3",
    "All",
    "app=web",
    "app+in+(a,b)",
    "app%20in%20(a)",
    "!app",
    "a=b=c",
    "=(",
    "Exact",
    "NotOlderThan",
    "NotOlderThan2",
];

impl Generator {
    /// The same seed draws the same requests.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// SplitMix64.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.next() % 100 < percent
    }

    fn one(&mut self, of: &[&'static str]) -> &'static str {
        of[self.below(of.len())]
    }

    /// A method and a target.
    pub fn request(&mut self) -> (String, String) {
        let method = self.one(&METHODS).to_owned();
        let mut path = if self.chance(12) { self.one(&PATHS).to_owned() } else { self.resource() };
        let mutations = [0, 0, 0, 0, 1, 1, 2, 3][self.below(8)];
        for _ in 0..mutations {
            path = self.mutated(path);
        }
        let mut target = path;
        if self.chance(45) {
            target.push('?');
            target.push_str(&self.query());
        }
        (method, target)
    }

    /// A path that names a resource.
    fn resource(&mut self) -> String {
        let mut segments = vec![];
        if self.chance(50) {
            segments.extend(["api", self.one(&VERSIONS)]);
        } else {
            segments.extend(["apis", self.one(&GROUPS), self.one(&VERSIONS)]);
        }
        if self.chance(4) {
            segments.push(if self.chance(50) { "watch" } else { "proxy" });
        }
        if self.chance(15) {
            // Namespaces themselves.
            segments.push("namespaces");
            if self.chance(80) {
                segments.push(self.one(&NAMES));
            }
            if self.chance(50) {
                segments.push(if self.chance(70) { self.one(&["status", "finalize"]) } else { self.one(&NAMES) });
            }
            if self.chance(10) {
                segments.push(self.one(&NAMES));
            }
        } else {
            if self.chance(70) {
                segments.extend(["namespaces", self.one(&NAMES)]);
            }
            segments.push(self.one(&RESOURCES));
            if self.chance(50) {
                segments.push(self.one(&NAMES));
                if self.chance(40) {
                    segments.push(self.one(&SUBRESOURCES));
                    while self.chance(15) {
                        segments.push(self.one(&NAMES));
                    }
                }
            }
        }
        format!("/{}", segments.join("/"))
    }

    fn query(&mut self) -> String {
        let mut pairs = vec![];
        for _ in 0..=self.below(3) {
            let key = self.one(&KEYS);
            let value = match key {
                "watch" | "w%61tch" | "Watch" | "follow" | "allowWatchBookmarks" | "sendInitialEvents" => {
                    self.one(&BOOLEANS)
                }
                "fieldSelector" => self.one(&SELECTORS),
                _ => self.one(&VALUES),
            };
            pairs.push(if self.chance(4) { key.to_owned() } else { format!("{key}={value}") });
        }
        if self.chance(8) {
            let again = pairs[self.below(pairs.len())].clone();
            pairs.push(again);
        }
        let mut query = pairs.join("&");
        if self.chance(5) {
            query = self.mutated(query);
        }
        query
    }

    /// The text with one thing changed.
    fn mutated(&mut self, text: String) -> String {
        let at = self.boundary(&text);
        match self.below(7) {
            0 | 1 => format!("{}{}{}", &text[..at], self.one(&SPLINTERS), &text[at..]),
            2 => {
                // One character less.
                let rest = text[at..].chars().next().map_or(0, char::len_utf8);
                format!("{}{}", &text[..at], &text[at + rest..])
            }
            3 => {
                // One character escaped.
                match text[at..].chars().next() {
                    Some(c) if c.is_ascii() => format!("{}%{:02X}{}", &text[..at], c as u32, &text[at + 1..]),
                    _ => text,
                }
            }
            4 => {
                // A segment more, less or twice.
                let mut segments: Vec<&str> = text.split('/').collect();
                let at = self.below(segments.len());
                match self.below(3) {
                    0 => segments.insert(at, self.one(&["watch", "proxy", "namespaces", "status", "", ".", "..", "a"])),
                    1 => drop(segments.remove(at)),
                    _ => segments.insert(at, segments[at]),
                }
                segments.join("/")
            }
            5 => text[..at].to_owned(),
            _ => {
                let changed: String = text[at..].chars().take(1).flat_map(char::to_uppercase).collect();
                let rest = text[at..].chars().next().map_or(0, char::len_utf8);
                format!("{}{changed}{}", &text[..at], &text[at + rest..])
            }
        }
    }

    fn boundary(&mut self, text: &str) -> usize {
        let mut at = self.below(text.len() + 1);
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        at
    }
}
