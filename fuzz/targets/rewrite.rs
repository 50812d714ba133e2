//! Headers: whatever a client sends, the cluster hears of one identity, ours to write, and of no credential of the
//! client's; whatever a cluster sends, nothing of one hop goes on.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};

use super::*;
use crate::fuzz;

const WORDS: &[&str] = &[
    "Impersonate-User: ",
    "impersonate_group: ",
    "Impersonate-Extra-x: ",
    "Connection: ",
    "Authorization: Bearer ",
    "Sec-WebSocket-Protocol: ",
    "base64url.bearer.authorization.k8s.io.",
    "v5.channel.k8s.io",
    ", ",
    "Accept: ",
    "\r\n",
    "\n",
    "Upgrade: websocket\n",
    "X-Remote-User: ",
    "Cookie: ",
    "Warning: ",
    "Content-Length: ",
    "Transfer-Encoding: chunked\n",
    "X-Stream-Protocol-Version: ",
    "close",
    "keep-alive",
    "\u{80}",
    "\t",
];

/// Lines `name: value` as headers; what can be none is left out, as the server leaves it out by refusing.
pub(crate) fn headers(input: &[u8]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in input.split(|b| *b == b'\n').take(64) {
        let Some(colon) = line.iter().position(|b| *b == b':') else { continue };
        let value = line[colon + 1..].trim_ascii();
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(&line[..colon]), HeaderValue::from_bytes(value)) {
            headers.append(name, value);
        }
    }
    headers
}

/// Whether a subprotocol that carries a token is among those of any header, by bytes.
pub(crate) fn carries_token(headers: &HeaderMap) -> bool {
    let offered = headers.values().flat_map(|value| value.as_bytes().split(|b| *b == b','));
    offered.into_iter().any(|protocol| protocol.trim_ascii().starts_with(TOKEN_SUBPROTOCOL.as_bytes()))
}

#[test]
fn fuzz_headers() {
    let groups = ["bailiwick:project:shop:1a2b3c4d:member".to_owned()];
    let credential = HeaderValue::from_static("Bearer own");
    fuzz::run("headers", WORDS, |input| {
        let given = headers(input);
        let mut outcome = vec![];
        for upgrade in [false, true] {
            let Ok(mut sent) = to_cluster(&given, upgrade) else {
                outcome.push("refused".to_owned());
                continue;
            };
            for name in sent.keys() {
                let listed = TO_CLUSTER.contains(name) || (upgrade && TO_CLUSTER_UPGRADE.contains(name));
                assert!(listed, "{name}");
            }
            let elsewhere = [header::ACCEPT, header::USER_AGENT, header::CONTENT_TYPE];
            let mut protocols = sent.clone();
            elsewhere.iter().for_each(|name| drop(protocols.remove(name)));
            let named = protocols.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter();
            let kept: HeaderMap = named.map(|value| (header::SEC_WEBSOCKET_PROTOCOL, value.clone())).collect();
            assert!(!carries_token(&kept), "{kept:?}");
            let impersonation = if upgrade { Impersonation::Constrained } else { Impersonation::Limited };
            let identity = Identity { user: "jane", uid: "u-1", groups: &groups, token: "t1", impersonation };
            write_identity(&mut sent, &identity, &credential).unwrap();
            let all = |name: &str| sent.get_all(name).iter().collect::<Vec<_>>();
            assert_eq!(all("authorization"), [&credential]);
            assert_eq!((all("impersonate-user").len(), all("impersonate-group").len()), (1, 1));
            let identities = sent.keys().filter(|name| name.as_str().starts_with("impersonate")).count();
            assert_eq!(identities, 4);
            let mut names: Vec<&str> = sent.keys().map(HeaderName::as_str).collect();
            names.sort_unstable();
            outcome.push(names.join(" "));
        }
        let mut answer = given.clone();
        to_client(&mut answer);
        assert!(NOT_TO_CLIENT.iter().all(|name| !answer.contains_key(name)));
        outcome.push(format!("{} {}", asks_to_impersonate(&given), answer.len()));
        outcome
    });
}
