//! Clusters that fail in every way that a network and a process can, before and amid an answer of every kind: only the
//! request concerned fails, its client is told or sees that something is missing, and nothing of it stays.

use std::time::{Duration, Instant};

use bailiwick::listener::Limits;
use futures::future::join_all;

use super::failing::{Asked, Failing};
use super::harness::DEADLINE;
use super::rough::Fault;
use super::wire::{Client, End, Part};

/// Killed, stopped, closing, talking nonsense, before the answer: each request of each kind is told so in a Status.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_fails_before_it_answers_is_told_in_a_status() {
    let failing = Failing::start().await;
    let mut requests = 0;
    for fault in
        [Fault::Silent, Fault::Gone, Fault::Closes, Fault::Nonsense, Fault::HalfHead, Fault::HangsUp, Fault::Mute]
    {
        failing.rough.behave(fault);
        let all = failing.all();
        let began = Instant::now();
        // At the same time: it is also a crowd.
        let replies = join_all(all.iter().map(|asked| failing.ask(asked))).await;
        for (asked, reply) in all.iter().zip(replies) {
            requests += 1;
            let name = format!("{fault:?}, {} {:?}", asked.name, asked.protocol);
            assert!(matches!(reply.code, 502..=504) && reply.is_status(), "{name}: {reply:?}");
            assert!(reply.body.contains("cluster"), "{name}: what is it about? {reply:?}");
        }
        assert!(began.elapsed() < 2 * DEADLINE, "{fault:?}");
        if !matches!(fault, Fault::HangsUp | Fault::Mute) {
            failing.others_go_on(&format!("{fault:?}, meanwhile")).await;
        }
        failing.rough.behave(Fault::None);
        failing.others_go_on(&format!("{fault:?}")).await;
        for asked in failing.all().iter().filter(|asked| !asked.upgrade && !asked.streams) {
            assert_eq!(failing.ask(asked).await.code, 200, "after {fault:?}: {asked:?}");
        }
        failing.all_is_as_before(&format!("{fault:?}")).await;
    }
    // Each was recorded with its outcome.
    let audit = failing.site.world.audit_text().await;
    assert!(audit.contains("\"reason\":\"upstream\"") && audit.contains("\"reason\":\"upstream-timeout\""));
    println!("failing before the answer: {requests} requests");
}

/// Killed, stopped, reset, ended, amid the answer: whoever reads it knows that it is not whole.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_ends_amid_itself_is_never_taken_for_whole() {
    // Nothing here ends because of time.
    let failing = Failing::within(Limits::default(), 6 * DEADLINE).await;
    let mut requests = 0;
    for fault in [
        Fault::CutByReset,
        Fault::CutByClose,
        Fault::CutStream(0),
        Fault::CutStream(2),
        Fault::CutStream(7),
        Fault::CutStream(8),
        Fault::CutByGoaway(0),
        Fault::CutByGoaway(11),
        Fault::PoursOverTheWindow,
    ] {
        failing.rough.behave(fault);
        // What has no HTTP/2 to the cluster has no window there.
        let all = failing.all().into_iter().filter(|asked| fault != Fault::PoursOverTheWindow || asked.streams);
        let all: Vec<_> = all.collect();
        let replies = join_all(all.iter().map(|asked| failing.ask(asked))).await;
        for (asked, reply) in all.iter().zip(replies) {
            requests += 1;
            let name = format!("{fault:?}, {} {:?}", asked.name, asked.protocol);
            if asked.upgrade {
                // Bytes that are copied have an end and no more; what they mean is between both ends.
                assert_eq!((reply.code, reply.body.as_str()), (101, "stump"), "{name}: {reply:?}");
                continue;
            }
            let told = matches!(reply.code, 502..=504) && reply.is_status();
            // Where all came at once, the head may not have gone yet.
            let cut = matches!(reply.code, 0 | 200) && matches!(reply.end, End::Cut(_));
            assert!(told || cut, "{name}: {reply:?}");
        }
        failing.others_go_on(&format!("{fault:?}, meanwhile")).await;
        failing.rough.behave(Fault::None);
        failing.all_is_as_before(&format!("{fault:?}")).await;
    }
    println!("failing amid the answer: {requests} requests");
}

/// A cluster that stops amid an answer, as a process that is paused: a short answer is given up; what goes on for long
/// ends when pings stay unanswered; a session waits for as long as its client does.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_is_paused_amid_an_answer_is_given_up() {
    let failing = Failing::start().await;
    failing.rough.behave(Fault::CutBySilence);
    let (sessions, others): (Vec<_>, Vec<_>) = failing.all().into_iter().partition(|asked| asked.upgrade);
    let began = Instant::now();
    let patient = async |asked: &Asked| {
        let mut client = failing.open(asked).await;
        loop {
            // Three times as long as anything else: pings go every 15 s and are waited for 10 s.
            let part = tokio::time::timeout(4 * DEADLINE, client.part()).await.expect("it ends");
            if let Part::End(end) = part {
                return end;
            }
        }
    };
    let waiting = async {
        let mut clients = join_all(sessions.iter().map(|asked| failing.open(asked))).await;
        for client in &mut clients {
            assert!(matches!(client.next().await, Part::Data(_)));
        }
        clients
    };
    let (clients, ends) = tokio::join!(waiting, join_all(others.iter().map(&patient)));
    for (asked, end) in others.iter().zip(ends) {
        assert!(matches!(end, End::Cut(_)), "{asked:?}: {end:?}");
    }
    assert!(began.elapsed() < 4 * DEADLINE);
    assert_eq!(failing.site.world.proxy.streams().len(), sessions.len(), "the sessions are still there");
    drop(clients);
    failing.rough.behave(Fault::None);
    failing.others_go_on("a pause").await;
    failing.all_is_as_before("a pause").await;
}

/// A byte now and then: it goes on for as long as it is permitted, and ends with its reader.
#[tokio::test(flavor = "multi_thread")]
async fn what_comes_by_drops_goes_on_and_ends_with_its_right_or_its_reader() {
    let failing = Failing::within(Limits::default(), 6 * DEADLINE).await;
    failing.rough.behave(Fault::Drips);
    let all: Vec<_> = failing.all().into_iter().filter(|asked| asked.raw.method == "GET" || asked.upgrade).collect();
    let open = || async {
        let mut clients = join_all(all.iter().map(|asked| failing.open(asked))).await;
        for client in &mut clients {
            for _ in 0..5 {
                assert!(matches!(client.next().await, Part::Data(_)));
            }
        }
        clients
    };
    drop(open().await);
    failing.all_is_as_before("readers that left").await;
    let clients = open().await;
    failing
        .site
        .world
        .change(bailiwick::store::Kind::User, "jane", |user| user["spec"]["disabled"] = true.into())
        .await;
    let acknowledged = Instant::now();
    for (mut client, asked) in clients.into_iter().zip(&all) {
        loop {
            match client.next().await {
                Part::Data(_) => assert!(acknowledged.elapsed() < Duration::from_secs(2), "{asked:?} goes on"),
                Part::End(end) => {
                    assert!(matches!(end, End::Cut(_)) || asked.upgrade, "{asked:?}: {end:?}");
                    break;
                }
                Part::Head(..) => unreachable!("it was read"),
            }
        }
    }
    failing.all_is_as_before("a right that ended").await;
}

/// What never ends, and is not read: a bounded part of it is held, and others are served.
#[tokio::test(flavor = "multi_thread")]
async fn what_never_ends_and_is_not_read_is_held_in_part_only() {
    let failing = Failing::within(Limits::default(), 6 * DEADLINE).await;
    failing.rough.behave(Fault::Pours);
    let all: Vec<_> = failing.all().into_iter().filter(|asked| asked.raw.method == "GET" || asked.upgrade).collect();
    // Kernel buffers of two connections on this machine's loopback, and ours.
    let most_of_one = 24 << 20;
    for asked in &all {
        let before = failing.rough.sent();
        let client = failing.open(asked).await;
        let (mut last, mut still) = (0, 0);
        let deadline = Instant::now() + DEADLINE;
        // Until nothing more is taken for a while.
        while still < 10 {
            assert!(Instant::now() < deadline, "{asked:?}: it goes on, {last} bytes");
            tokio::time::sleep(Duration::from_millis(20)).await;
            let now = failing.rough.sent() - before;
            still = if now == last && now > 0 { still + 1 } else { 0 };
            last = now;
            assert!(now < most_of_one, "{asked:?}: {now} bytes");
        }
        failing.others_go_on("a client that does not read").await;
        drop(client);
    }
    failing.all_is_as_before("clients that did not read").await;
    // The pair: who reads gets on, and as much as wanted.
    for asked in &all {
        let mut client = failing.open(asked).await;
        let mut read = 0;
        while read < 2 * most_of_one {
            let Part::Data(data) = client.next().await else { panic!("{asked:?}: it ended after {read}") };
            read += data.len() as u64;
        }
    }
    failing.all_is_as_before("clients that read").await;
}

/// A body of another coding or type than was asked for goes on as it is, with what says so; it is not read here.
#[tokio::test(flavor = "multi_thread")]
async fn strange_bodies_pass_as_they_are() {
    let failing = Failing::within(Limits::default(), 6 * DEADLINE).await;
    // gzip of 10 MiB of zeros would be 10 kB: what is not decoded cannot swell. These are the first bytes of one.
    const GZIP: &[u8] = &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 0xed, 0xc1, 1, 0xff];
    for (media_type, coding, body) in [
        ("application/json", "gzip", GZIP),
        ("application/json", "br, gzip", GZIP),
        ("text/html", "", &b"<script>alert(1)</script>"[..]),
        ("", "", b"\xff\xfe\x00"),
        ("application/vnd.kubernetes.protobuf", "", b"k8s\x00\x0a\x00"),
        ("application/json", "", b""),
    ] {
        failing.rough.behave(Fault::Says(media_type, coding, body));
        for asked in failing.all().iter().filter(|asked| !asked.upgrade) {
            let mut client = Client::dial(failing.site.address, &failing.site.pki, asked.protocol).await;
            client.send(&asked.raw.clone().field("accept-encoding", "identity")).await;
            let Part::Head(200, fields) = client.next().await else { panic!("{asked:?}") };
            let all =
                |name: &str| fields.iter().filter(|(is, _)| is == name).map(|(_, v)| v.as_str()).collect::<Vec<_>>();
            let told = |value: &'static str| if value.is_empty() { vec![] } else { vec![value] };
            assert_eq!(all("content-encoding"), told(coding), "{asked:?}");
            assert_eq!(all("content-type"), told(media_type), "{asked:?}");
            let mut got = vec![];
            let end = loop {
                match client.next().await {
                    Part::Data(data) => got.extend(data),
                    Part::End(end) => break end,
                    Part::Head(..) => panic!("two heads"),
                }
            };
            assert_eq!((end, got.as_slice()), (End::Whole, body), "{asked:?}");
        }
    }
    failing.all_is_as_before("strange bodies").await;
}

/// CVE-2025-48865, CVE-2026-55458: what is of one hop, and what would set state in a browser, ends here; on every way,
/// the change of protocol too.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_cluster_says_to_one_hop_stays_there() {
    let failing = Failing::within(Limits::default(), 6 * DEADLINE).await;
    failing.rough.behave(Fault::SaysTooMuch);
    for asked in &failing.all() {
        let mut client = Client::dial(failing.site.address, &failing.site.pki, asked.protocol).await;
        client.send(&asked.raw).await;
        let Part::Head(code, fields) = client.next().await else { panic!("{asked:?}") };
        assert_eq!(code, if asked.upgrade { 101 } else { 200 });
        let text = format!("{fields:?}");
        assert!(!text.contains("too-much") && !text.contains("too=much"), "{asked:?}: {text}");
        assert!(text.contains("299 -"), "{asked:?}: what is the client's arrives: {text}");
        if asked.upgrade {
            let lines = fields.iter().filter(|(name, _)| name == "connection").collect::<Vec<_>>();
            assert_eq!(lines, [&("connection".to_owned(), "Upgrade".to_owned())], "{asked:?}");
            continue;
        }
        loop {
            match client.next().await {
                Part::Data(_) => {}
                Part::End(end) => break assert_eq!(end, End::Whole, "{asked:?}"),
                Part::Head(..) => panic!("two heads"),
            }
        }
    }
}

/// CVE-2018-1002105 and its kin: only the protocol that was asked for opens a way, and whatever is written on after
/// another answer reaches nobody.
#[tokio::test(flavor = "multi_thread")]
async fn another_protocol_than_was_asked_for_is_no_answer() {
    use tokio::io::AsyncWriteExt as _;
    let failing = Failing::start().await;
    for protocol in ["h2c", "websocket", "SPDY/3.1", "websocket, SPDY/3.1", ""] {
        failing.rough.behave(Fault::Switches(protocol));
        let one = async |asked: &Asked| {
            let is = asked.raw.fields.iter().any(|(name, value)| name == b"upgrade" && value == protocol.as_bytes());
            let mut client = Client::dial(failing.site.address, &failing.site.pki, asked.protocol).await;
            client.send(&asked.raw).await;
            if is {
                let head = client.next().await;
                assert!(matches!(head, Part::Head(101, _)), "{protocol:?}, {asked:?}: {head:?}");
                return;
            }
            let reply = client.reply().await;
            assert!(matches!(reply.code, 502 | 504) && reply.is_status(), "{protocol:?}, {asked:?}: {reply:?}");
            let _ = client.stream.write_all(b"GET /api/v1/secrets HTTP/1.1\r\nHost: p\r\n\r\n").await;
            let _ = client.stream.flush().await;
            let _ = client.stream.shutdown().await;
            while !matches!(client.part().await, Part::End(_)) {}
        };
        join_all(failing.all().iter().map(&one)).await;
        assert_eq!(failing.rough.received(), 0, "{protocol:?}: it reached the cluster");
        failing.rough.behave(Fault::None);
        failing.all_is_as_before(protocol).await;
    }
}

/// Connections of HTTP/2 that end in good order, at once, or before anything: what is under way is finished, nothing is
/// asked twice, and no more connections are opened than requests need.
#[tokio::test(flavor = "multi_thread")]
async fn goaway_ends_connections_and_no_request_that_it_does_not_concern() {
    let failing = Failing::within(Limits::default(), 6 * DEADLINE).await;
    let mut streams: Vec<_> = failing.all().into_iter().filter(|asked| asked.streams).collect();
    // Connections are opened one after another: a crowd would only wait.
    streams.truncate(4);
    failing.rough.targets();
    // An answer goes on after the connection took its leave.
    failing.rough.behave(Fault::LastOne);
    for _ in 0..5 {
        let before = failing.rough.accepted();
        let replies = join_all(streams.iter().map(|asked| failing.ask(asked))).await;
        for (asked, reply) in streams.iter().zip(replies) {
            assert_eq!((reply.code, &reply.end), (200, &End::Whole), "{asked:?}: {reply:?}");
            assert_eq!(reply.body.matches("ADDED").count(), 2, "{asked:?}: {reply:?}");
        }
        let dialled = failing.rough.accepted() - before;
        assert!(dialled <= 2 * streams.len(), "{dialled} connections for {} streams", streams.len());
    }
    let asked = failing.rough.targets().len();
    assert_eq!(asked, 5 * streams.len(), "each was asked once");
    // A stream that was there before outlives it.
    failing.rough.behave(Fault::None);
    let mut kept = failing.open(&streams[0]).await;
    assert!(matches!(kept.next().await, Part::Data(_)));
    for (fault, told) in [(Fault::NotSeen, "not seen"), (Fault::Storm, "storm")] {
        failing.rough.behave(fault);
        let before = failing.rough.accepted();
        const ROUNDS: usize = 10;
        for _ in 0..ROUNDS {
            let replies = join_all(streams.iter().map(|asked| failing.begin(asked))).await;
            for (asked, reply) in streams.iter().zip(replies) {
                let good = matches!(reply.code, 502 | 503) && reply.is_status();
                // On the kept connection of before it may still go well, up to its end.
                assert!(good || reply.code == 200, "{told}, {asked:?}: {reply:?}");
            }
        }
        let dialled = failing.rough.accepted() - before;
        assert!(dialled <= 2 * ROUNDS * streams.len(), "{told}: {dialled} connections");
        failing.rough.behave(Fault::None);
        failing.others_go_on(told).await;
    }
    drop(kept);
    failing.all_is_as_before("connections that ended").await;
}

/// Each direction of a session ends by itself: what is said after the other's end still arrives.
#[tokio::test(flavor = "multi_thread")]
async fn each_direction_of_a_session_ends_by_itself() {
    use tokio::io::AsyncWriteExt as _;
    let failing = Failing::within(Limits::default(), 6 * DEADLINE).await;
    let sessions: Vec<_> = failing.all().into_iter().filter(|asked| asked.upgrade).collect();
    let read_to_end = async |client: &mut Client| {
        let mut text = String::new();
        loop {
            match client.next().await {
                Part::Data(data) => text += &String::from_utf8_lossy(&data),
                Part::End(_) => return text,
                Part::Head(..) => panic!("two heads"),
            }
        }
    };
    for asked in &sessions {
        // The client says that it has said all; the cluster answers to the end.
        let mut client = failing.open(asked).await;
        client.stream.write_all(b"all of it").await.unwrap();
        client.stream.shutdown().await.unwrap();
        assert_eq!(read_to_end(&mut client).await, "all of itlast word", "{asked:?}");
        // The cluster has said all, and still hears.
        let mut client = failing.open(asked).await;
        client.stream.write_all(b"FIN").await.unwrap();
        assert_eq!(read_to_end(&mut client).await, "", "{asked:?}");
        let heard = failing.rough.received();
        client.stream.write_all(&[b'x'; 1000]).await.unwrap();
        client.stream.flush().await.unwrap();
        let deadline = Instant::now() + DEADLINE;
        while failing.rough.received() < heard + 1000 {
            assert!(Instant::now() < deadline, "{asked:?}: it no longer hears");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(failing.site.world.proxy.streams().len(), 1, "{asked:?}: half of it is open");
        drop(client);
        failing.all_is_as_before("a session in halves").await;
    }
}
