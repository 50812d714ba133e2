//! Rewrite: the headers that go to a cluster, and those that come back.
//!
//! Outgoing headers start from an empty map: an allow-list is copied, then [`write_identity`] adds who asks. Nothing is
//! ever taken away from what a client sent, because nothing of it is there to begin with. This closes, as one class,
//! forged identity headers in every spelling, and hop-by-hop tricks (`Connection: Impersonate-User`).

use http::header::{self, HeaderMap, HeaderName, HeaderValue};

use crate::domain::names::{TOKEN_EXTRA, kubernetes_user};
use crate::index::Impersonation;
use crate::status::Status;

/// What passes from the client to the cluster. Everything else does not.
const TO_CLUSTER: [HeaderName; 8] = [
    header::ACCEPT,
    header::ACCEPT_ENCODING,
    header::CONTENT_ENCODING,
    header::CONTENT_TYPE,
    header::IF_MATCH,
    header::IF_NONE_MATCH,
    // The API server takes the default field manager of an update from it.
    header::USER_AGENT,
    header::CONTENT_LENGTH,
];

/// What passes besides on an upgrade: the negotiation of SPDY and WebSocket.
const TO_CLUSTER_UPGRADE: [HeaderName; 5] = [
    HeaderName::from_static("x-stream-protocol-version"),
    header::SEC_WEBSOCKET_EXTENSIONS,
    header::SEC_WEBSOCKET_KEY,
    header::SEC_WEBSOCKET_PROTOCOL,
    header::SEC_WEBSOCKET_VERSION,
];

/// What does not pass from the cluster to the client. `Warning`, `Retry-After`, the priority-and-fairness ids and the
/// rest do.
const NOT_TO_CLIENT: [HeaderName; 9] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    header::PROXY_AUTHENTICATE,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    // Nothing of a cluster may set state in a browser on our origin.
    header::SET_COOKIE,
    header::ALT_SVC,
];

/// Prefix of the WebSocket subprotocol that carries a bearer token where no header can be set.
pub const TOKEN_SUBPROTOCOL: &str = "base64url.bearer.authorization.k8s.io.";

/// Copies the allowed headers. On an upgrade the token subprotocol is taken out.
pub fn to_cluster(from: &HeaderMap, upgrade: bool) -> Result<HeaderMap, Status> {
    let mut to = HeaderMap::with_capacity(16);
    for name in &TO_CLUSTER {
        for value in from.get_all(name) {
            to.append(name, value.clone());
        }
    }
    if upgrade {
        for name in &TO_CLUSTER_UPGRADE {
            for value in from.get_all(name) {
                to.append(name, value.clone());
            }
        }
        remove_token_subprotocol(&mut to)?;
    }
    Ok(to)
}

fn remove_token_subprotocol(headers: &mut HeaderMap) -> Result<(), Status> {
    // A line with other bytes is skipped below, and would carry a token past us.
    let lines = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL);
    if lines.iter().any(|line| line.to_str().is_err()) {
        return Err(Status::bad_request("Sec-WebSocket-Protocol is malformed"));
    }
    let protocols = subprotocols(headers);
    if protocols.iter().all(|p| !p.starts_with(TOKEN_SUBPROTOCOL)) {
        return Ok(());
    }
    let rest = protocols.into_iter().filter(|p| !p.starts_with(TOKEN_SUBPROTOCOL)).collect::<Vec<_>>().join(", ");
    if rest.is_empty() {
        return Err(Status::bad_request("Sec-WebSocket-Protocol must name a protocol beside the token"));
    }
    let value = HeaderValue::from_str(&rest).map_err(|_| Status::bad_request("Sec-WebSocket-Protocol is malformed"))?;
    headers.insert(header::SEC_WEBSOCKET_PROTOCOL, value);
    Ok(())
}

/// The WebSocket subprotocols offered, over all lines of the header.
pub fn subprotocols(headers: &HeaderMap) -> Vec<String> {
    let lines = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter();
    let values = lines.filter_map(|value| value.to_str().ok()).flat_map(|line| line.split(','));
    values.map(|p| p.trim().to_owned()).filter(|p| !p.is_empty()).collect()
}

/// Who asks, as the cluster is to know it.
#[derive(Debug, Clone)]
pub struct Identity<'a> {
    /// Account.
    pub user: &'a str,
    /// UID of the account.
    pub uid: &'a str,
    /// Groups, from Resolve.
    pub groups: &'a [String],
    /// Id of the token.
    pub token: &'a str,
    /// How the cluster lets us write it.
    pub impersonation: Impersonation,
}

/// An identity that would be written as no identity. It must never be sent: without these headers the cluster would
/// answer with the rights of the service itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the identity is empty or not safe to write into a header")]
pub struct UnsafeIdentity;

/// Writes the identity and our own credential: last, and nowhere else in the program.
pub fn write_identity(
    headers: &mut HeaderMap,
    identity: &Identity<'_>,
    credential: &HeaderValue,
) -> Result<(), UnsafeIdentity> {
    let Identity { user, uid, groups, token, impersonation } = identity;
    if user.is_empty() || uid.is_empty() || token.is_empty() || groups.is_empty() || groups.iter().any(String::is_empty)
    {
        return Err(UnsafeIdentity);
    }
    match impersonation {
        Impersonation::Constrained => {
            headers.insert("impersonate-user", value(&kubernetes_user(user))?);
            headers.insert("impersonate-uid", value(uid)?);
        }
        Impersonation::Limited => {
            // The group without its role is the name that the cluster's role lists: bailiwick:project:<name>:<uid8>.
            let named = groups[0].rsplit_once(':').filter(|(head, _)| head.matches(':').count() == 3);
            headers.insert("impersonate-user", value(named.map_or(&*groups[0], |(head, _)| head))?);
            headers.insert(extra("bailiwick.dev/user"), value(user)?);
        }
    }
    for (at, group) in groups.iter().enumerate() {
        let group = value(group)?;
        if at == 0 {
            headers.insert("impersonate-group", group);
        } else {
            headers.append("impersonate-group", group);
        }
    }
    headers.insert(extra(TOKEN_EXTRA), value(token)?);
    headers.insert(header::AUTHORIZATION, credential.clone());
    Ok(())
}

/// Writes the service's own credential on a request of which nothing but selectors came from a client: for the
/// namespaces, which nobody can list in a tenant's name.
pub fn write_own(headers: &mut HeaderMap, credential: &HeaderValue) {
    headers.insert(header::AUTHORIZATION, credential.clone());
}

/// Header of an extra: its key lower-case, with everything outside the token characters percent-encoded.
fn extra(key: &'static str) -> HeaderName {
    match key {
        TOKEN_EXTRA => HeaderName::from_static("impersonate-extra-bailiwick.dev%2ftoken"),
        _ => HeaderName::from_static("impersonate-extra-bailiwick.dev%2fuser"),
    }
}

/// A header value of plain visible ASCII. Blanks at the ends would be trimmed on the way and name somebody else.
fn value(text: &str) -> Result<HeaderValue, UnsafeIdentity> {
    let plain = !text.is_empty() && text.bytes().all(|b| (0x21..=0x7e).contains(&b));
    if !plain {
        return Err(UnsafeIdentity);
    }
    HeaderValue::from_str(text).map_err(|_| UnsafeIdentity)
}

/// What is said to whoever asks to act as somebody else.
pub const NO_IMPERSONATION: &str =
    "acting as somebody else (kubectl --as) is not offered here; ask for a grant instead";

/// Whether the client tries to act as somebody else (`kubectl --as`), in any spelling that a server may read so.
pub fn asks_to_impersonate(headers: &HeaderMap) -> bool {
    let begins = |name: &HeaderName| {
        let name = name.as_str().as_bytes();
        let mut pairs = name.iter().zip(b"impersonate-");
        name.len() >= "impersonate-".len() && pairs.all(|(is, wanted)| is == wanted || (*is == b'_' && *wanted == b'-'))
    };
    headers.keys().any(begins)
}

/// Takes out of a cluster's response what belongs to one connection only, its own `Connection` fields included.
pub fn to_client(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|v| v.to_str().ok())
        .flat_map(|v| v.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named.iter().chain(&NOT_TO_CLIENT) {
        headers.remove(name);
    }
}

#[cfg(test)]
#[path = "../../fuzz/targets/rewrite.rs"]
pub(crate) mod fuzz;

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    fn identity<'a>(groups: &'a [String]) -> Identity<'a> {
        Identity { user: "jane", uid: "u-1", groups, token: "t1", impersonation: Impersonation::Constrained }
    }

    const CREDENTIAL: HeaderValue = HeaderValue::from_static("Bearer own");

    #[test]
    fn only_what_is_listed_passes() {
        let hostile = map(&[
            ("accept", "application/json"),
            ("user-agent", "kubectl"),
            ("authorization", "Bearer bwk_x"),
            ("cookie", "a=b"),
            ("connection", "Authorization, Impersonate-User, X-Remote-User"),
            ("impersonate-user", "admin"),
            ("impersonate-group", "system:masters"),
            ("impersonate_group", "system:masters"),
            ("impersonate-uid", "1"),
            ("impersonate-extra-scopes", "all"),
            ("x-remote-user", "admin"),
            ("x-remote-group", "system:masters"),
            ("x-remote-extra-a", "b"),
            ("x-forwarded-for", "192.0.2.1"),
            ("x-forwarded-uri", "/api/v1/secrets"),
            ("forwarded", "for=192.0.2.1"),
            ("x-original-url", "/"),
            ("x-http-method-override", "DELETE"),
            ("proxy-authorization", "Basic x"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "websocket"),
            ("host", "elsewhere"),
            ("audit-id", "forged"),
        ]);
        for upgrade in [false, true] {
            let sent = to_cluster(&hostile, upgrade).unwrap();
            let mut names: Vec<&str> = sent.keys().map(HeaderName::as_str).collect();
            names.sort_unstable();
            assert_eq!(names, ["accept", "user-agent"]);
        }
    }

    #[test]
    fn identity_is_one_line_a_group_and_replaces() {
        let groups =
            ["bailiwick:project:shop:1a2b3c4d:member".to_owned(), "bailiwick:project:shop:1a2b3c4d:viewer".to_owned()];
        let mut headers = HeaderMap::new();
        write_identity(&mut headers, &identity(&groups), &CREDENTIAL).unwrap();
        assert_eq!(headers.get_all("impersonate-user").iter().collect::<Vec<_>>(), ["bailiwick:user:jane"]);
        assert_eq!(headers.get_all("impersonate-group").iter().collect::<Vec<_>>(), groups.iter().collect::<Vec<_>>());
        assert_eq!(headers["impersonate-uid"], "u-1");
        assert_eq!(headers["impersonate-extra-bailiwick.dev%2ftoken"], "t1");
        assert_eq!(headers["authorization"], "Bearer own");
    }

    #[test]
    fn the_limited_form_names_the_project_and_carries_the_person() {
        let groups = ["bailiwick:project:shop:1a2b3c4d:member".to_owned()];
        let mut headers = HeaderMap::new();
        let limited = Identity { impersonation: Impersonation::Limited, ..identity(&groups) };
        write_identity(&mut headers, &limited, &CREDENTIAL).unwrap();
        assert_eq!(headers["impersonate-user"], "bailiwick:project:shop:1a2b3c4d");
        assert_eq!(headers["impersonate-extra-bailiwick.dev%2fuser"], "jane");
        assert!(!headers.contains_key("impersonate-uid"));
        let tenant = ["bailiwick:tenant".to_owned()];
        let limited = Identity { impersonation: Impersonation::Limited, ..identity(&tenant) };
        let mut headers = HeaderMap::new();
        write_identity(&mut headers, &limited, &CREDENTIAL).unwrap();
        assert_eq!(headers["impersonate-user"], "bailiwick:tenant");
    }

    #[test]
    fn an_empty_or_unsafe_identity_is_an_error() {
        let good = ["g".to_owned()];
        let cases: [Identity<'_>; 6] = [
            Identity { user: "", ..identity(&good) },
            Identity { uid: "", ..identity(&good) },
            Identity { token: "", ..identity(&good) },
            Identity { groups: &[], ..identity(&good) },
            Identity { user: "jane\r\nimpersonate-group: system:masters", ..identity(&good) },
            Identity { user: " jane", ..identity(&good) },
        ];
        for case in cases {
            assert_eq!(write_identity(&mut HeaderMap::new(), &case, &CREDENTIAL), Err(UnsafeIdentity), "{case:?}");
        }
        let with_empty = ["g".to_owned(), String::new()];
        assert_eq!(write_identity(&mut HeaderMap::new(), &identity(&with_empty), &CREDENTIAL), Err(UnsafeIdentity));
    }

    #[test]
    fn every_spelling_of_impersonation_is_seen() {
        for name in
            ["Impersonate-User", "impersonate-group", "IMPERSONATE_USER", "impersonate_extra_x", "Impersonate-Anything"]
        {
            assert!(asks_to_impersonate(&map(&[(name, "x")])), "{name}");
        }
        assert!(!asks_to_impersonate(&map(&[("accept", "x")])));
    }

    #[test]
    fn the_token_leaves_the_subprotocols() {
        let token = format!("{TOKEN_SUBPROTOCOL}YWJj");
        let offered = map(&[
            ("sec-websocket-protocol", &format!("{token}, v5.channel.k8s.io")),
            ("sec-websocket-protocol", "v4.channel.k8s.io"),
        ]);
        assert_eq!(
            to_cluster(&offered, true).unwrap()["sec-websocket-protocol"],
            "v5.channel.k8s.io, v4.channel.k8s.io"
        );
        assert!(to_cluster(&map(&[("sec-websocket-protocol", &token)]), true).is_err());
        // Nor does it slip by beside bytes that are no text.
        let mut hidden = map(&[("sec-websocket-protocol", "v5.channel.k8s.io")]);
        let line = HeaderValue::from_bytes(&[token.as_bytes(), b", \xff"].concat()).unwrap();
        hidden.append("sec-websocket-protocol", line);
        assert!(to_cluster(&hidden, true).is_err());
    }

    #[test]
    fn responses_lose_what_is_of_one_hop() {
        let mut headers = map(&[
            ("connection", "close, X-Secret"),
            ("x-secret", "1"),
            ("warning", "299 - \"old\""),
            ("set-cookie", "a=b"),
            ("retry-after", "1"),
        ]);
        to_client(&mut headers);
        let mut names: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["retry-after", "warning"]);
    }
}
