//! Words that are put wherever a secret may be: none may appear in a record, a log, a metric, a resource or an answer,
//! with the log at its most talkative.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::process::Command;
use std::sync::Arc;
use std::thread;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use rustls::{ServerConnection, StreamOwned};
use serde_json::{Value, json};

use super::process::*;
use super::served::*;
use crate::proxy_harness::Pki;

const API: &str = "/apis/bailiwick.dev/v1alpha1";

/// Where a word may be found, and why.
struct Allowed {
    word: &'static str,
    place: &'static str,
    why: &'static str,
}

/// Nothing else.
const ALLOWED: [Allowed; 3] = [
    Allowed { word: "canary-object-name", place: "answers", why: "whoever makes a team is answered with it" },
    Allowed {
        word: "canary-object-name",
        place: "audit",
        why: "names of objects and accounts are what the audit log is about",
    },
    Allowed {
        word: "canary-object-name",
        place: "store.db",
        why: "a team of this name is made: a resource has a name",
    },
];

/// A cluster that answers with the credential that it was asked with: in the status line, headers and body.
fn echoing_cluster(pki: &Pki) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let config = Arc::new(pki.server());
    thread::spawn(move || {
        for tcp in listener.incoming().flatten() {
            let config = config.clone();
            thread::spawn(move || {
                let tls = StreamOwned::new(ServerConnection::new(config).unwrap(), tcp);
                let mut reader = BufReader::new(tls);
                let mut bearer = String::new();
                loop {
                    let mut line = String::new();
                    match reader.read_line(&mut line) {
                        Ok(0) | Err(_) => return,
                        Ok(_) if line == "\r\n" => break,
                        Ok(_) => {}
                    }
                    if line.to_ascii_lowercase().starts_with("authorization:") {
                        bearer = line[14..].trim().to_owned();
                    }
                }
                let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": bearer,
                    "reason": bearer, "code": 403, "details": {"name": bearer, "causes": [{"message": bearer}]}});
                let content = status.to_string();
                let answer = format!(
                    "HTTP/1.1 403 {bearer}\r\nX-Echo: {bearer}\r\nWarning: 299 - \"{bearer}\"\r\n\
                     Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{content}",
                    content.len()
                );
                let _ = reader.get_mut().write_all(answer.as_bytes());
            });
        }
    });
    address
}

/// The forms in which a word could be written without being the same bytes.
fn forms(word: &str) -> Vec<String> {
    // Base64 has three forms, by where the word begins.
    let encoded = (0..3).map(|shift| {
        let text = STANDARD.encode(format!("{}{word}", "x".repeat(shift)));
        text[4..text.len() - 4].to_owned()
    });
    encoded.chain([word.to_owned()]).collect()
}

fn holds(text: &str, word: &str) -> bool {
    forms(word).iter().any(|form| text.contains(form))
}

#[test]
fn canaries_stay_where_they_were_put() {
    let pki = Pki::new();
    let cluster = echoing_cluster(&pki);
    let served = Served::start(4_096, |folder| {
        std::fs::create_dir(folder.join("credentials")).unwrap();
        format!("credential_dir = {:?}\n", folder.join("credentials"))
    });
    let mut answers = String::new();
    let mut ask = |method: &str, target: &str, headers: &str, content: &str| {
        let (code, answer) = served.ask(method, target, headers, content);
        answers.push_str(&answer);
        code
    };
    let bearer = format!("Authorization: Bearer {}\r\n", served.token);

    // Passwords: wrong, malformed, in the wrong place.
    let login = |password: &str| json!({"username": "admin", "password": password}).to_string();
    assert_eq!(ask("POST", "/auth/login", "", &login("canary-password-wrong-1")), 401);
    ask("POST", "/auth/login", "", r#"{"username":"admin","password":"canary-password-broken-1"#);
    ask("POST", "/auth/login", "", r#"{"username":"admin","password":{"a":"canary-password-typed-1"}}"#);
    ask("POST", "/auth/login", "", r#"{"username":"admin","passwort":"canary-password-field-1"}"#);
    ask("POST", "/auth/login", "", r#"{"username":"canary-password-as-name-1","password":"x"}"#);
    ask("POST", "/auth/login?password=canary-query-1", "", "");
    let change = json!({"password": "canary-password-short", "oldPassword": "canary-password-old-1"}).to_string();
    ask("POST", &format!("{API}/users/me/password"), &bearer, &change);

    // Tokens in every place, on every surface.
    let pods = "/k8s/clusters/demo/api/v1/namespaces/shop/pods";
    let subprotocol = URL_SAFE_NO_PAD.encode("bwk_canarytoken00subproto_canary-subprotocol-secret-1");
    for target in [pods, "/apis/bailiwick.dev/v1alpha1/users", "/nowhere", "/auth/logout", "/k8s/", "/audit"] {
        for header in [
            "Authorization: Bearer bwk_canarytoken_canary-bearer-secret-1".to_owned(),
            "Authorization: Basic Y2FuYXJ5OmNhbmFyeS1iYXNpYy1zZWNyZXQtMQ==".to_owned(),
            "Authorization: canary-scheme-secret-1".to_owned(),
            "Cookie: session=canary-cookie-secret-1".to_owned(),
            "X-Canary: canary-header-secret-1".to_owned(),
            "Proxy-Authorization: Bearer canary-proxy-secret-1".to_owned(),
            "Impersonate-Extra-canary: canary-extra-secret-1".to_owned(),
            "User-Agent: canary-agent-secret-1".to_owned(),
            "Referer: https://canary-referer-secret-1/".to_owned(),
            format!(
                "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: \
                 x\r\nSec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.{subprotocol}, v5.channel.k8s.io"
            ),
        ] {
            for method in ["GET", "POST", "PUT"] {
                let target = format!("{target}?access_token=canary-query-secret-1&token=canary-query-secret-1");
                ask(method, &target, &format!("{header}\r\n"), r#"{"data":{"k":"canary-body-secret-1"}}"#);
            }
        }
    }
    // The same with a credential that is good.
    for (target, content) in [
        (pods, r#"{"kind":"Secret","stringData":{"k":"canary-body-secret-2"}}"#),
        ("/apis/bailiwick.dev/v1alpha1/teams", r#"{"kind":"Team","data":{"k":"canary-body-secret-2"}}"#),
        ("/apis/bailiwick.dev/v1alpha1/teams", "canary-body-secret-2"),
        ("/apis/bailiwick.dev/v1alpha1/users", r#"{"spec":{"canary-body-secret-2":"#),
    ] {
        ask("POST", target, &format!("{bearer}X-Canary: canary-header-secret-2\r\n"), content);
    }
    // Requests that are none.
    for bytes in [
        &b"canary-garbage-secret-1\r\n\r\n"[..],
        b"GET /\x00canary-garbage-secret-1 HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: p\r\ncanary-garbage-secret-1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: p\r\nAuthorization: Bearer canary-garbage-secret-1\x01\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: p\r\nContent-Length: canary-garbage-secret-1\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\ncanary-garbage-secret-1canary-garbage-secret-1",
    ] {
        served.raw(bytes);
    }

    // A cluster whose credential comes from a file, and which tells it to everybody who asks.
    let ca = &pki.ca_pem;
    let file = json!({"server": format!("https://{cluster}"), "certificateAuthority": ca, "kubeSystemUID": "u",
        "forwarding": "canary-forwarding-secret-1", "housekeeping": "canary-housekeeping-secret-1"});
    let credentials = served.folder.path().join("credentials");
    for (name, content) in [
        ("good", file.to_string()),
        ("broken", "{\"forwarding\": \"canary-file-secret-1\" canary-file-secret-1".to_owned()),
        ("strange", file.to_string().replacen("\"server\"", "\"canary-file-secret-1\"", 1)),
        ("typed", json!({"server": ["canary-file-secret-1"]}).to_string()),
    ] {
        std::fs::write(credentials.join(name), content).unwrap();
        let made = json!({"apiVersion": "bailiwick.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": name}, "spec":
            {"connection": {"direct": {"server": format!("https://{cluster}"), "certificateAuthority": ca,
                "credentialFrom": {"file": name}}}}});
        assert_eq!(ask("POST", &format!("{API}/clusters"), &bearer, &made.to_string()), 201, "{name}");
    }
    let by_hand = json!({"apiVersion": "bailiwick.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": "by-hand"},
        "spec": {"connection": {"direct": {"server": format!("https://{cluster}"), "certificateAuthority": ca}}}});
    assert_eq!(ask("POST", &format!("{API}/clusters"), &bearer, &by_hand.to_string()), 201);
    let given = json!({"forwarding": "canary-forwarding-secret-2", "housekeeping": "canary-housekeeping-secret-2",
        "kubeSystemUID": "u"});
    ask("POST", &format!("{API}/clusters/by-hand/credential"), &bearer, &given.to_string());
    for name in ["good", "by-hand"] {
        until("the cluster was asked and refused", || {
            let (_, answer) = served.admin("GET", &format!("{API}/clusters/{name}"), "");
            let seen: Value = serde_json::from_str(&body(&answer)).map_err(|why| why.to_string())?;
            let conditions = seen["status"]["conditions"].as_array().map_or(0, Vec::len);
            if conditions > 0 { Ok(()) } else { Err(answer) }
        });
        ask("GET", &format!("{API}/clusters/{name}/check"), &bearer, "");
        ask("GET", &format!("/k8s/clusters/{name}/version"), &bearer, "");
    }

    // What may be seen, so that the search is known to find.
    let team = json!({"apiVersion": "bailiwick.dev/v1alpha1", "kind": "Team", "metadata": {"name": "canary-object-name"},
        "spec": {}});
    assert_eq!(ask("POST", &format!("{API}/teams"), &bearer, &team.to_string()), 201);
    let answers_to_writes = std::mem::take(&mut answers);
    let mut told = vec![("answers".to_owned(), answers_to_writes)];
    let mut read = String::new();
    for target in ["clusters", "users", "tokens", "projects", "grants"] {
        read.push_str(&served.admin("GET", &format!("{API}/{target}"), "").1);
    }
    until("what was done stands in the audit log", || {
        let (_, answer) = served.admin("GET", "/audit?limit=10000", "");
        if answer.contains("canary-object-name") { Ok(()) } else { Err("it is not there yet".to_owned()) }
    });
    let (_, audit) = served.admin("GET", "/audit?limit=10000", "");
    told.push(("resources".to_owned(), read));
    told.push(("audit answer".to_owned(), audit));
    told.push(("metrics".to_owned(), served.metrics()));

    // The command line, with passwords and kubeconfigs that are wrong.
    let home = served.folder.path().join("home");
    std::fs::create_dir(&home).unwrap();
    let kubeconfig = home.join("import");
    let mut shown = String::new();
    for content in [
        "users: [{name: a, user: {token: canary-kubeconfig-secret-1}}]\n: canary-kubeconfig-secret-1",
        "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{name: a, context: {cluster: a, user: a}}]\n\
         clusters: [{name: a, cluster: {server: 'https://127.0.0.1:1'}}]\n\
         users: [{name: a, user: {token: canary-kubeconfig-secret-1, password: canary-kubeconfig-secret-1}}]\n",
    ] {
        std::fs::write(&kubeconfig, content).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_bailiwick"));
        command.args(["cluster", "import", "by-hand", "--kubeconfig"]).arg(&kubeconfig);
        command.env("BAILIWICK_URL", format!("https://{}", served.address)).env("HOME", &home);
        command.env("BAILIWICK_CA_FILE", served.folder.path().join("data/ca.crt")).env("XDG_CONFIG_HOME", &home);
        command.env("BAILIWICK_LOG", "trace").env("RUST_LOG", "trace").env("KUBECONFIG", home.join("kubeconfig"));
        shown.push_str(&run(command).fails());
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_bailiwick"));
    command.args(["login", &format!("https://{}", served.address), "-u", "admin", "--password-stdin"]);
    command.env("BAILIWICK_CA_FILE", served.folder.path().join("data/ca.crt")).env("HOME", &home);
    command.env("XDG_CONFIG_HOME", &home).env("KUBECONFIG", home.join("kubeconfig")).env("RUST_LOG", "trace");
    shown.push_str(&run_with(command, b"canary-cli-secret-1\n").fails());
    told.push(("command line".to_owned(), shown));

    for (path, content) in served.written() {
        told.push((path.display().to_string(), String::from_utf8_lossy(&content).into_owned()));
    }
    let secret = served.token.rsplit('_').next().unwrap().to_owned();
    // By their beginnings, which are told apart.
    let words = [
        "canary-password",
        "canary-query",
        "canary-bearer",
        "canary-basic",
        "canary-scheme",
        "canary-cookie",
        "canary-header",
        "canary-proxy",
        "canary-extra",
        "canary-agent",
        "canary-referer",
        "canary-subprotocol",
        "canary-body",
        "canary-garbage",
        "canary-forwarding",
        "canary-housekeeping",
        "canary-file",
        "canary-kubeconfig",
        "canary-cli",
        "canary-object-name",
        PASSWORD,
        &secret,
    ];
    let mut found_allowed = 0;
    let mut wrong = vec![];
    for (place, content) in &told {
        for word in words {
            if !holds(content, word) {
                continue;
            }
            let allowed = ALLOWED.iter().find(|allowed| allowed.word == word && place.contains(allowed.place));
            match allowed {
                Some(Allowed { why, .. }) => {
                    assert!(!why.is_empty());
                    found_allowed += 1;
                }
                None => wrong.push(format!("{word} in {place}")),
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(found_allowed >= 2, "the search finds nothing at all");
    let (_, log) = told.last().unwrap();
    assert!(log.contains("\"DEBUG\"") || log.contains("\"TRACE\""), "the log is at its most talkative");
}
