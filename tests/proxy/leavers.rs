//! Clients that leave in every way, or neither leave nor go on: what was begun for them ends, here and at the cluster.

use std::time::{Duration, Instant};

use bailiwick::listener::Limits;
use bailiwick::records::TokenScopes;
use bailiwick::resources::token::Audience;
use bailiwick::store::Kind;
use futures::future::join_all;
use serde_json::json;
use tokio::io::AsyncWriteExt as _;

use super::failing::{Asked, Failing};
use super::harness::DEADLINE;
use super::matrix::{Door, Site, guarded_routes};
use super::rough::Fault;
use super::wire::{Client, DATA, End, PROTOCOLS, Part, Protocol, RST_STREAM, Raw, frame};

const FOREVER: &str = "2100-01-01T00:00:00Z";

/// How a client leaves.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Leave {
    /// The connection closes.
    Closes,
    /// The connection is reset.
    Resets,
    /// It says that it has said all, and reads no more.
    SaysGoodbye,
    /// It neither reads nor answers pings, and the connection stays: the machine is gone, for whoever is in front of it.
    Vanishes,
}

async fn leave(mut client: Client, how: Leave) -> Option<Client> {
    match how {
        Leave::Closes => None,
        Leave::Resets => {
            socket2::SockRef::from(client.stream.get_ref().0).set_linger(Some(Duration::ZERO)).unwrap();
            None
        }
        Leave::SaysGoodbye => {
            let _ = client.stream.shutdown().await;
            Some(client)
        }
        Leave::Vanishes => Some(client),
    }
}

/// Before the answer and amid it, of each kind, over both protocols.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_leaves_takes_everything_along() {
    let limits = Limits { ping: Duration::from_millis(700), unread: Duration::from_millis(1500), ..Limits::default() };
    // So patient with the cluster that only the client's leaving can end what is asked.
    let failing = Failing::within(limits, 6 * DEADLINE).await;
    let mut requests = 0;
    for fault in [Fault::Silent, Fault::None, Fault::Drips, Fault::Pours] {
        for how in [Leave::Closes, Leave::Resets, Leave::SaysGoodbye, Leave::Vanishes] {
            failing.rough.behave(fault);
            let all: Vec<_> = failing
                .all()
                .into_iter()
                // On HTTP/1.1 nobody asks whether a client is there but the kernel, which answers itself here.
                .filter(|asked| how != Leave::Vanishes || asked.protocol == Protocol::Http2)
                // The end of one direction of a session is not its end, and its cluster here goes on.
                .filter(|asked| how != Leave::SaysGoodbye || !asked.upgrade)
                // What has been answered whole has ended.
                .filter(|asked| fault != Fault::None || asked.streams || asked.upgrade)
                .filter(|asked| {
                    fault == Fault::Silent || fault == Fault::None || asked.raw.method == "GET" || asked.upgrade
                })
                .collect();
            requests += all.len();
            failing.rough.targets();
            let opened = async |asked: &Asked| {
                let mut client = match fault {
                    Fault::Silent => {
                        let mut client = Client::dial(failing.site.address, &failing.site.pki, asked.protocol).await;
                        client.send(&asked.raw).await;
                        client
                    }
                    _ => failing.open(asked).await,
                };
                if matches!(fault, Fault::Drips | Fault::Pours) {
                    assert!(matches!(client.next().await, Part::Data(_)), "{asked:?}");
                }
                client
            };
            let clients = join_all(all.iter().map(&opened)).await;
            let deadline = Instant::now() + DEADLINE;
            let mut arrived = 0;
            while arrived < all.len() {
                arrived += failing.rough.targets().len();
                assert!(Instant::now() < deadline, "{fault:?} {how:?}: {arrived} of {} reached the cluster", all.len());
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let kept = join_all(clients.into_iter().map(|client| leave(client, how))).await;
            failing.all_is_as_before(&format!("{fault:?} {how:?}")).await;
            drop(kept);
            failing.rough.behave(Fault::None);
            failing.others_go_on(&format!("{fault:?} {how:?}")).await;
            failing.rough.targets();
        }
    }
    println!("clients that leave: {requests} requests");
}

/// CVE-2023-44487 on every route, whatever is behind it.
#[tokio::test(flavor = "multi_thread")]
async fn rapid_resets_leave_nothing_on_any_route() {
    let failing = Failing::start().await;
    let site = &failing.site;
    let mut requests = 0;
    for fault in [Fault::None, Fault::Silent, Fault::Pours] {
        failing.rough.behave(fault);
        for route in guarded_routes() {
            if route.target.ends_with("/logout")
                || route.upgrade.is_some()
                || (fault != Fault::None && route.door == Door::Api)
            {
                continue;
            }
            let mut client = Client::dial(site.address, &site.pki, Protocol::Http2).await;
            let raw = route.raw().bearer(site.token(route.door));
            // Both those that have sent all and those whose body is still to come.
            let mut bytes = vec![];
            for n in 0..40 {
                let stream = 2 * n + 1;
                let asked = Raw { open: n % 2 == 1, ..raw.clone() };
                bytes.extend(asked.http2(stream));
                bytes.extend(frame(RST_STREAM, 0, stream, &[0, 0, 0, 8]));
                requests += 1;
            }
            client.write(route.method, &bytes).await;
            drop(client);
        }
        failing.rough.behave(Fault::None);
        failing.all_is_as_before(&format!("resets, {fault:?}")).await;
        failing.others_go_on(&format!("resets, {fault:?}")).await;
    }
    println!("rapid resets: {requests} requests");
}

/// Places where a body is read here, and those where it is passed on: none is waited for without end, none is taken for
/// whole before it is, and nothing of it happens.
#[tokio::test(flavor = "multi_thread")]
async fn a_body_by_drops_is_given_up_everywhere() {
    let failing = Failing::start().await;
    let site = &failing.site;
    let (cluster, api) = ("/k8s/clusters/demo", "/apis/bailiwick.dev/v1alpha1");
    let review = format!("{cluster}/apis/authorization.k8s.io/v1/selfsubjectaccessreviews");
    let narrowed = review.replace("/demo/", "/demo/projects/shop/");
    let namespaces = format!("{cluster}/api/v1/namespaces");
    let configmaps = format!("{cluster}/api/v1/namespaces/shop-web/configmaps");
    failing.rough.targets();
    let mut asked = vec![];
    for protocol in PROTOCOLS {
        for (target, token, within) in [
            (configmaps.as_str(), site.world.token.as_str(), 2),
            (&review, &site.world.token, 11),
            (&narrowed, &site.world.token, 11),
            (&namespaces, &site.world.token, 11),
            ("/auth/login", "none", 31),
            (&format!("{api}/teams"), &site.api_token, 31),
            (&format!("{api}/users/jane/tokens"), &site.api_token, 31),
        ] {
            let raw = Raw::new("POST", target).bearer(token).field("content-type", "application/json");
            asked.push((protocol, Raw { open: true, ..raw.field("content-length", "5000") }, within));
        }
    }
    let one = async |protocol: Protocol, raw: Raw, within: u64| {
        let began = Instant::now();
        let mut client = Client::dial(site.address, &site.pki, protocol).await;
        client.send(&raw).await;
        let mut ticks = tokio::time::interval(Duration::from_millis(50));
        let name = format!("{protocol:?} {}", raw.target);
        let end = Duration::from_secs(within) + DEADLINE / 2;
        loop {
            assert!(began.elapsed() < end, "{name}: it is still waited for");
            tokio::select! {
                part = client.part() => match part {
                    Part::Head(code, _) => {
                        assert!(matches!(code, 400..=504), "{name}: {code}");
                        return;
                    }
                    Part::Data(_) => {}
                    Part::End(end) => panic!("{name}: {end:?} and no word"),
                },
                _ = ticks.tick() => {
                    let byte = match protocol {
                        Protocol::Http1 => b" ".to_vec(),
                        Protocol::Http2 => frame(DATA, 0, 1, b" "),
                    };
                    let _ = client.stream.write_all(&byte).await;
                    let _ = client.stream.flush().await;
                }
            }
        }
    };
    join_all(asked.into_iter().map(|(protocol, raw, within)| one(protocol, raw, within))).await;
    assert!(failing.rough.targets().is_empty(), "a part was taken for the whole");
    failing.all_is_as_before("bodies by drops").await;
    failing.others_go_on("bodies by drops").await;
}

/// A stream of HTTP/2 that is given up amid its body, with an error or without one, has no body: nothing is done for it.
/// The bytes that came would be good ones.
#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_is_given_up_is_no_body() {
    let site = Site::start().await;
    let prefixed = |project: &mut serde_json::Value| {
        project["spec"]["clusters"][0]["prefix"] = json!("shop-");
        project["spec"]["clusters"][0]["maxNamespaces"] = json!(9);
    };
    site.world.change(Kind::Project, "shop", prefixed).await;
    site.world.change(Kind::Grant, "jane-shop", |grant| grant["spec"]["role"] = json!("owner")).await;
    let target = json!({"kind": "Platform"});
    let spec = json!({"subject": {"kind": "User", "name": "jane"}, "role": "admin", "target": target});
    let status = json!({"state": "Active", "subjectUID": "uid-jane"});
    site.world.create(Kind::Grant, "jane-admin", spec, status).await;
    let token = site.world.issue_for("jane", TokenScopes::default(), Audience::Api, FOREVER).await;
    let team = |name: &str| {
        json!({"apiVersion": "bailiwick.dev/v1alpha1", "kind": "Team", "metadata": {"name": name}, "spec": {}})
            .to_string()
    };
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop-new"}}).to_string();
    let (api, ns) = ("/apis/bailiwick.dev/v1alpha1/teams", "/k8s/clusters/demo/api/v1/namespaces");
    let asks = |n: u32| {
        [
            (api.to_owned(), token.clone(), team(&format!("team-{n}"))),
            (format!("{ns}/shop-web/configmaps"), site.world.token.clone(), "{}".to_owned()),
            (format!("{ns}/shop-web/pods/p/eviction"), site.world.token.clone(), "{}".to_owned()),
            (ns.to_owned(), site.world.token.clone(), namespace.clone()),
            (format!("{ns}/shop-web/pods/p/exec?command=sh"), site.world.token.clone(), "{}".to_owned()),
        ]
    };
    let pods = Raw::new("GET", &format!("{ns}/shop-web/pods")).bearer(&site.world.token);
    for error in [0_u32, 1, 2, 5, 7, 8, 11] {
        for (target, token, body) in asks(error) {
            // A connection to the cluster waits, so that the request could be written at once.
            let mut client = Client::dial(site.address, &site.pki, Protocol::Http2).await;
            client.send(&pods).await;
            assert_eq!(client.reply().await.code, 200);
            site.world.take_seen();
            let raw = Raw::new("POST", &target).bearer(&token).field("content-type", "application/json");
            let raw = Raw { open: true, body: body.into(), ..raw };
            let bytes = [raw.http2(3), frame(RST_STREAM, 0, 3, &error.to_be_bytes())].concat();
            client.write("POST", &bytes).await;
            // The same connection, so that what came before has been looked at.
            client.send(&pods).await;
            assert_eq!(client.reply().await.code, 200, "{target} {error}");
            drop(client);
        }
    }
    let deadline = Instant::now() + DEADLINE;
    while !site.world.proxy.streams().is_empty() {
        assert!(Instant::now() < deadline, "streams are left");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let wholes = std::mem::take(&mut *site.world.wholes.lock());
    assert!(wholes.is_empty(), "{wholes:?} bodies became whole at the cluster");
    assert!(site.world.acts.created.lock().is_empty(), "a namespace was made");
    let teams: Vec<String> = site.world.index.snapshot().teams.keys().map(|name| name.to_string()).collect();
    assert!(teams.is_empty(), "{teams:?} were made");
    // The pair: ended in good order, they are done.
    for (target, token, body) in asks(100) {
        let raw = Raw::new("POST", &target).bearer(&token).body("application/json", &body);
        let mut client = Client::dial(site.address, &site.pki, Protocol::Http2).await;
        client.send(&raw).await;
        client.reply().await;
    }
    assert_eq!(site.world.wholes.lock().len(), 3);
    assert_eq!(site.world.acts.created.lock().len(), 1);
    assert!(site.world.index.snapshot().teams.contains_key("team-100"));
}

/// A head by drops, as the first of a connection and as a later one: the connection is given up.
#[tokio::test(flavor = "multi_thread")]
async fn a_head_by_drops_is_given_up() {
    let short = Duration::from_millis(600);
    let failing = Failing::within(Limits { head: short, idle: short, ..Limits::default() }, DEADLINE).await;
    let site = &failing.site;
    let pods = Raw::new("GET", "/k8s/clusters/demo/api/v1/namespaces/shop-web/pods").bearer(&site.world.token);
    let one = async |protocol: Protocol, later: bool| {
        let mut client = Client::dial(site.address, &site.pki, protocol).await;
        if later {
            client.send(&pods).await;
            assert_eq!(client.reply().await.code, 200);
        }
        let bytes = match protocol {
            Protocol::Http1 => pods.http1(),
            Protocol::Http2 => pods.http2(client.next_id()),
        };
        let name = format!("{protocol:?}, later: {later}");
        let began = Instant::now();
        // So slowly that it would take a minute.
        let mut ticks = tokio::time::interval(Duration::from_millis(300));
        client.write("GET", &bytes[..1]).await;
        for byte in &bytes[1..bytes.len() - 1] {
            assert!(began.elapsed() < DEADLINE, "{name}: it is still waited for");
            let gone = tokio::select! {
                part = client.part() => matches!(part, Part::End(End::Cut(_)) | Part::Head(408, _)),
                _ = ticks.tick() => client.stream.write_all(&[*byte]).await.is_err() || client.stream.flush().await.is_err(),
            };
            if gone {
                return;
            }
        }
        panic!("{name}: all of it was taken");
    };
    let each = PROTOCOLS.iter().flat_map(|protocol| [(*protocol, false), (*protocol, true)]);
    join_all(each.map(|(protocol, later)| one(protocol, later))).await;
    failing.all_is_as_before("heads by drops").await;
}
