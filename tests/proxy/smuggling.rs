//! Where a request ends and what is of it: nothing of one is taken for another, on any route.

use tokio::io::AsyncWriteExt as _;

use super::harness::DEADLINE;
use super::matrix::{Route, Site, guarded_routes};
use super::wire::{
    CONTINUATION, Client, DATA, END_HEADERS, END_STREAM, End, HEADERS, Part, Protocol, Raw, Reply, WINDOW_UPDATE, frame,
};

/// A request that is to be smuggled; it must never be asked, nor answered.
const SMUGGLED: &str = "GET /api/v1/namespaces/shop-web/secrets/smuggled HTTP/1.1\r\nHost: p\r\n\r\n";

fn smuggled(site: &Site) -> bool {
    site.world.take_seen().iter().any(|seen| seen.target.contains("smuggled") || seen.headers.contains_key("smuggled"))
}

/// Two lengths, a length and chunks, chunks that are none: on every route that has a body.
#[tokio::test(flavor = "multi_thread")]
async fn where_a_body_ends_is_never_in_doubt() {
    let site = Site::start().await;
    let mut requests = 0;
    let routes: Vec<Route> =
        guarded_routes().into_iter().filter(|route| route.body.is_some() || route.target.ends_with("/pods")).collect();
    let own = format!(
        "GET /k8s/clusters/demo/api/v1/namespaces/shop-web/pods/smuggled HTTP/1.1\r\nHost: p\r\nAuthorization: Bearer {}\r\n\r\n",
        site.world.token
    );
    for route in &routes {
        if route.target.ends_with("/logout") {
            continue;
        }
        for fields in [
            "Content-Length: 4\r\nContent-Length: 5\r\n",
            "Content-Length: 4, 5\r\n",
            "Content-Length: +4\r\n",
            "Content-Length: 0x4\r\n",
            "Content-Length: -1\r\n",
            "Content-Length : 4\r\n",
            "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n",
            "Transfer-Encoding: xchunked\r\n",
            "Transfer-Encoding: identity\r\n",
            "Transfer-Encoding: chunked, identity\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
            "Transfer-Encoding : chunked\r\n",
            "Transfer-Encoding:\x0bchunked\r\n",
            " Transfer-Encoding: chunked\r\n",
            "X: y\n Transfer-Encoding: chunked\r\n",
            "X: y\rTransfer-Encoding: chunked\r\n",
        ] {
            requests += 1;
            // Whoever reads the shortest body finds our own request behind it, with its credential.
            let raw = format!(
                "{} {} HTTP/1.1\r\nHost: p\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n{fields}\r\n\
                 0\r\n\r\n{own}{SMUGGLED}",
                route.method,
                route.target,
                site.token(route.door)
            );
            let mut client = Client::dial(site.address, &site.pki, Protocol::Http1).await;
            client.write(route.method, raw.as_bytes()).await;
            let _ = client.stream.shutdown().await;
            // All answers to the end of the connection.
            let mut codes = vec![];
            loop {
                let reply = client.reply().await;
                if reply.code == 0 {
                    break;
                }
                codes.push(reply.code);
                if matches!(reply.end, End::Cut(_)) || codes.len() > 4 {
                    break;
                }
                client.write("GET", b"").await;
            }
            let name = format!("{} with {fields:?}: {codes:?}", route.name());
            assert!(codes.len() <= 1, "{name}: one request, one answer");
            assert!(!smuggled(&site), "{name}");
        }
    }
    println!("bodies that end twice, HTTP/1.1: {requests} requests");
}

/// What HTTP/2 does not allow, written by hand: given up, and nothing of it becomes a second request or a header on the
/// way to a cluster, which is spoken to in HTTP/1.1.
#[tokio::test(flavor = "multi_thread")]
async fn malformed_requests_of_http2_are_given_up() {
    let site = Site::start().await;
    let mut requests = 0;
    let routes: Vec<Route> = guarded_routes().into_iter().filter(|route| route.upgrade.is_none()).collect();
    type Fields = Vec<(Vec<u8>, Vec<u8>)>;
    let pair = |name: &str, value: &str| (name.as_bytes().to_vec(), value.as_bytes().to_vec());
    for route in routes.iter().filter(|route| !route.target.ends_with("/logout")) {
        let good: Fields = vec![
            pair(":method", route.method),
            pair(":scheme", "https"),
            pair(":authority", "proxy"),
            pair(":path", &route.target),
            pair("authorization", &format!("Bearer {}", site.token(route.door))),
            pair("content-type", route.body.as_ref().map_or("application/json", |(media_type, _)| media_type)),
        ];
        let with = |more: &[(&str, &str)]| [good.clone(), more.iter().map(|(n, v)| pair(n, v)).collect()].concat();
        let instead = |name: &str, value: &str| {
            let mut fields = good.clone();
            fields.iter_mut().filter(|(is, _)| is == name.as_bytes()).for_each(|(_, is)| *is = value.into());
            fields
        };
        let line = format!("x\r\n\r\n{SMUGGLED}");
        let mut late = good.clone();
        late.rotate_left(1);
        let body = SMUGGLED.as_bytes();
        let cases: Vec<(&str, Fields, &[u8])> = vec![
            ("a line break in a value", with(&[("accept", &line)]), b""),
            ("a line feed in a value", with(&[("user-agent", "x\nsmuggled: 1")]), b""),
            ("a carriage return in a value", with(&[("user-agent", "x\rsmuggled: 1")]), b""),
            ("nothing in a value", with(&[("user-agent", "x\0")]), b""),
            ("a line break in a name", with(&[("accept: x\r\nsmuggled", "1")]), b""),
            ("a colon in a name", with(&[("smuggled:", "1")]), b""),
            ("a blank in a name", with(&[("smug gled", "1")]), b""),
            ("an empty name", with(&[("", "1")]), b""),
            ("upper case in a name", with(&[("Smuggled", "1")]), b""),
            (
                "a line break in the path",
                instead(":path", &format!("{} HTTP/1.1\r\n\r\n{SMUGGLED}", route.target)),
                b"",
            ),
            ("a blank in the path", instead(":path", &format!("{} HTTP/1.1", route.target)), b""),
            ("an empty path", instead(":path", ""), b""),
            ("a path that is none", instead(":path", "k8s/clusters/demo/version"), b""),
            ("a line break in the method", instead(":method", &format!("GET / HTTP/1.1\r\n\r\n{SMUGGLED}")), b""),
            ("a blank in the method", instead(":method", "GET /api/v1/secrets"), b""),
            ("a strange authority", instead(":authority", "proxy\r\nsmuggled: 1"), b""),
            ("two paths", with(&[(":path", "/version")]), b""),
            ("two methods", with(&[(":method", "DELETE")]), b""),
            ("a late method", late, b""),
            ("an unknown pseudo field", with(&[(":smuggled", "1")]), b""),
            ("a status in a request", with(&[(":status", "200")]), b""),
            ("chunks", with(&[("transfer-encoding", "chunked")]), body),
            ("chunks and a length", with(&[("transfer-encoding", "chunked"), ("content-length", "3")]), body),
            ("a connection field", with(&[("connection", "impersonate-user, authorization")]), b""),
            ("an upgrade", with(&[("upgrade", "websocket"), ("connection", "upgrade")]), b""),
            ("a proxy's connection field", with(&[("proxy-connection", "keep-alive")]), b""),
            ("a kept connection", with(&[("keep-alive", "1")]), b""),
            ("a TE of more than trailers", with(&[("te", "gzip")]), b""),
            ("a length that is too short", with(&[("content-length", "3")]), body),
            ("a length that is too long", with(&[("content-length", "999")]), body),
            ("a length and nothing", with(&[("content-length", "5")]), b""),
            ("two lengths", with(&[("content-length", "3"), ("content-length", "5")]), body),
            ("a length that is none", with(&[("content-length", "+3")]), body),
        ];
        let mut client: Option<Client> = None;
        for (what, fields, body) in &cases {
            requests += 1;
            let mut used = match client.take() {
                Some(client) => client,
                None => Client::dial(site.address, &site.pki, Protocol::Http2).await,
            };
            let raw = Raw { body: body.to_vec(), ..Raw::default() };
            let bytes = raw.frames(used.next_id(), fields);
            used.write(route.method, &bytes).await;
            let reply = tokio::time::timeout(DEADLINE, first_of(&mut used)).await.expect("an end");
            let name = format!("{} with {what}", route.name());
            let seen = site.world.take_seen();
            assert!(
                !seen.iter().any(|seen| seen.target.contains("smuggled") || seen.headers.contains_key("smuggled")),
                "{name}: {seen:?}"
            );
            // Where a length is wrong, the request may have begun before it is known; it has not become whole.
            let begun = what.contains("length") && seen.len() <= 1;
            assert!(seen.is_empty() || begun, "{name}: {seen:?}");
            // Our API may refuse a route before it looks at the body.
            let early = what.contains("length") && reply.code >= 400;
            assert!(reply.code == 0 || reply.code == 400 || early || begun, "{name}: {reply:?}");
            assert!(reply.code < 200 || reply.code >= 400 || begun, "{name}: {reply:?}");
            if reply.code != 0 && reply.end == End::Whole {
                client = Some(used);
            }
        }
    }
    println!("malformed requests, HTTP/2: {requests} requests");
}

/// The head of an answer, or its end; of a stream no more is waited for.
async fn first_of(client: &mut Client) -> Reply {
    let mut reply = Reply { code: 0, fields: vec![], body: String::new(), end: End::Cut("not read to its end".into()) };
    match client.part().await {
        Part::Head(code, fields) => (reply.code, reply.fields) = (code, fields),
        Part::Data(_) => {}
        Part::End(end) => reply.end = end,
    }
    reply
}

/// A head that is interrupted by another frame, and data before a head: errors of the connection, not of somebody else.
#[tokio::test(flavor = "multi_thread")]
async fn frames_out_of_order_end_their_own_connection_only() {
    let site = Site::start().await;
    let pods = Raw::new("GET", "/k8s/clusters/demo/api/v1/namespaces/shop-web/pods").bearer(&site.world.token);
    let head = pods.http2(1);
    let block = &head[9..];
    let mut beside = Client::dial(site.address, &site.pki, Protocol::Http2).await;
    for (what, bytes) in [
        ("data of no stream", frame(DATA, 0, 1, b"x")),
        ("a part of no head", frame(CONTINUATION, END_HEADERS, 1, block)),
        ("data amid a head", [frame(HEADERS, 0, 1, &block[..8]), frame(DATA, 0, 1, b"x")].concat()),
        (
            "another's head amid a head",
            [frame(HEADERS, 0, 1, &block[..8]), frame(HEADERS, END_HEADERS, 3, block)].concat(),
        ),
        ("a head of stream 0", frame(HEADERS, END_HEADERS | END_STREAM, 0, block)),
        ("an even stream", frame(HEADERS, END_HEADERS | END_STREAM, 2, block)),
        ("an older stream", [pods.http2(5), pods.http2(3)].concat()),
        ("a head that is no head", frame(HEADERS, END_HEADERS | END_STREAM, 1, &[0xff; 64])),
        ("a frame that is too long", frame(DATA, 0, 1, &[0; 70_000])),
        ("a window that overflows", frame(WINDOW_UPDATE, 0, 0, &0x7fff_ffff_u32.to_be_bytes()).repeat(2)),
    ] {
        let mut client = Client::dial(site.address, &site.pki, Protocol::Http2).await;
        client.write("GET", &bytes).await;
        client.id = 1_001;
        let reply = client.reply().await;
        assert!(reply.code == 0 && matches!(reply.end, End::Cut(_)), "{what}: {reply:?}");
        beside.send(&pods).await;
        assert_eq!(beside.reply().await.code, 200, "after {what}");
    }
}
