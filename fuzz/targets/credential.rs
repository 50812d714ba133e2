//! Credentials: one bearer token from one place, and it never goes on.

use super::presented;
use crate::fuzz;
use crate::proxy::rewrite::fuzz::{carries_token, headers};
use crate::proxy::rewrite::to_cluster;

const WORDS: &[&str] = &[
    "Authorization: Bearer ",
    "authorization: ",
    "Sec-WebSocket-Protocol: ",
    "base64url.bearer.authorization.k8s.io.",
    "base64url.bearer.authorization.k8s.io.YWJj",
    ", ",
    ",",
    "\n",
    "v4.channel.k8s.io",
    "Cookie: token=",
    "Basic ",
    "=",
    "\u{80}",
];

#[test]
fn fuzz_credentials() {
    fuzz::run("credential", WORDS, |input| {
        let given = headers(input);
        let lines = given.get_all("authorization").iter().count();
        let found = presented(&given);
        assert!(found.is_none() || lines < 2, "which of two lines is meant?");
        if let Some(token) = &found {
            let in_header = given.get("authorization").is_some_and(|line| {
                line.to_str().is_ok_and(|line| line.split_once(' ').is_some_and(|(_, rest)| rest == token))
            });
            assert_eq!(in_header, lines == 1, "{token:?}");
        }
        let sent = to_cluster(&given, true);
        let protocols = |sent: &http::HeaderMap| {
            sent.get_all("sec-websocket-protocol").iter().map(|v| ("p".parse().unwrap(), v.clone())).collect()
        };
        assert!(sent.as_ref().map_or(true, |sent| !carries_token(&protocols(sent))));
        (found.map(|token| token.len()), lines, sent.map(|sent| sent.len()).ok())
    });
}
