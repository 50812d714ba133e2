//! What a cluster may answer, and what of it reaches a client.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::harness::{DEADLINE, World};

const NS: &str = "/k8s/clusters/demo/api/v1/namespaces/shop-web";

#[tokio::test(flavor = "multi_thread")]
async fn redirects_and_401_are_not_passed_on() {
    let world = World::start().await;
    for code in [301, 302, 303, 307, 308, 401] {
        let answer = world.request("GET", &format!("{NS}/pods/status-{code}"), "").await;
        assert_eq!(answer.code, 502, "{code}: {}", answer.body);
        assert!(!answer.head.contains("location"), "{}", answer.head);
        assert_eq!(world.take_seen().len(), 1, "not followed, not repeated");
    }
    for code in [200, 404, 409, 422, 500, 503] {
        let answer = world.request("GET", &format!("{NS}/pods/status-{code}"), "").await;
        assert_eq!(answer.code, code);
        assert!(!answer.head.contains("set-cookie"), "{}", answer.head);
        assert!(answer.head.contains("warning: 299"), "warnings reach the user: {}", answer.head);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_hangs_is_given_up() {
    let world = World::start().await;
    let answer = world.request("GET", &format!("{NS}/pods/hangs"), "").await;
    assert_eq!(answer.code, 504);
    assert!(answer.body.contains("did not begin to answer"), "{}", answer.body);
    assert_eq!(world.request("GET", &format!("{NS}/pods"), "").await.code, 200, "others go on");
}

/// CVE-2018-1002105: after an upgrade that was not granted, what the client goes on writing must reach nobody.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_upgrade_leaves_no_pipe() {
    let world = World::start().await;
    for code in [200, 302, 400, 403, 500] {
        let mut stream = world.connect().await;
        let head = format!(
            "GET {NS}/pods/status-{code}/exec?command=sh HTTP/1.1\r\nHost: p\r\nAuthorization: Bearer {}\r\n\
             Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\nGET /api/v1/secrets HTTP/1.1\r\nHost: p\r\n\r\n",
            world.token
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = vec![0; 4096];
        let n = tokio::time::timeout(DEADLINE, stream.read(&mut answer)).await.unwrap().unwrap();
        let text = String::from_utf8_lossy(&answer[..n]).into_owned();
        let expected = if code == 302 { 502 } else { code };
        assert!(text.starts_with(&format!("HTTP/1.1 {expected}")), "{text}");
        // Until the connection ends, whatever was written is read as a request to us.
        let _ = stream.shutdown().await;
        let _ = tokio::time::timeout(DEADLINE, stream.read_to_end(&mut answer)).await.expect("the connection ends");
    }
    let seen = world.take_seen();
    assert_eq!(seen.len(), 5);
    assert!(seen.iter().all(|seen| seen.target.ends_with("/exec?command=sh")), "{seen:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_stream_both_ways_and_are_counted() {
    let world = World::start().await;
    let body = "x".repeat(3 * 1024 * 1024);
    let raw = format!(
        "POST {NS}/configmaps HTTP/1.1\r\nHost: p\r\nAuthorization: Bearer {}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        world.token,
        body.len()
    );
    let answer = world.raw(raw).await;
    assert!(answer.contains(&format!("\"received\":{}", body.len())), "{answer}");
    let audit = world.audit_text().await;
    assert!(audit.contains("\"stage\":\"intent\""), "{audit}");
    assert!(audit.contains(&format!("\"bytesIn\":{}", body.len())), "{audit}");
    assert!(!audit.contains("xxxxxxxx"), "no body in the audit log");
}
