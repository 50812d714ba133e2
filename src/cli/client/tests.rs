//! Against real TLS servers on loopback, honest and hostile.

use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use rustls::ServerConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::cli::fake::Authority;

/// A server that answers every connection with the same bytes and remembers what it was sent.
struct Server {
    address: SocketAddr,
    heard: Arc<Mutex<Vec<String>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    async fn start(tls: ServerConfig, answer: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let (acceptor, log) = (TlsAcceptor::from(Arc::new(tls)), heard.clone());
        let task = tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let Ok(mut stream) = acceptor.accept(socket).await else { continue };
                let mut buffer = vec![0; 4096];
                let n = stream.read(&mut buffer).await.unwrap_or(0);
                log.lock().push(String::from_utf8_lossy(&buffer[..n]).into_owned());
                if !answer.is_empty() {
                    let _ = stream.write_all(answer.as_bytes()).await;
                    let _ = stream.shutdown().await;
                } else {
                    // Hangs until the client gives up.
                    let _ = stream.read(&mut buffer).await;
                }
            }
        });
        Self { address, heard, task }
    }

    fn client(&self, trust: &Trust) -> Client {
        let base = BaseUrl::parse(&format!("https://{}", self.address)).unwrap();
        Client::new(base, trust, Some(&Zeroizing::new("bwk_id_secret".to_owned()))).unwrap()
    }
}

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 11\r\nconnection: close\r\n\r\n{\"ok\":true}";

#[tokio::test]
async fn the_given_ca_is_trusted_and_the_token_is_sent() {
    let authority = Authority::new();
    let server = Server::start(authority.server("127.0.0.1"), OK).await;
    let value = server.client(&authority.trust()).get("/version").await.unwrap();
    assert_eq!(value, serde_json::json!({"ok": true}));
    let heard = server.heard.lock().clone();
    assert!(heard[0].starts_with("GET /version HTTP/1.1\r\n"), "{heard:?}");
    assert!(heard[0].contains("authorization: Bearer bwk_id_secret\r\n"), "{heard:?}");
}

#[tokio::test]
async fn a_foreign_certificate_is_refused_before_anything_is_sent() {
    let (ours, foreign) = (Authority::new(), Authority::new());
    let server = Server::start(foreign.server("127.0.0.1"), OK).await;
    for trust in [ours.trust(), Trust::System] {
        let failure = server.client(&trust).get("/version").await.unwrap_err();
        assert_eq!(failure.code(), 3, "{failure}");
        assert!(failure.to_string().contains("is not trusted"), "{failure}");
        assert!(failure.to_string().contains("--ca-file"), "{failure}");
    }
    assert!(server.heard.lock().is_empty(), "a token or path went to a stranger");
}

#[tokio::test]
async fn a_certificate_for_another_host_is_refused() {
    let authority = Authority::new();
    let server = Server::start(authority.server("other.example.com"), OK).await;
    let failure = server.client(&authority.trust()).get("/version").await.unwrap_err();
    assert_eq!(failure.code(), 3, "{failure}");
    assert!(failure.to_string().contains("is not trusted"), "{failure}");
    assert!(server.heard.lock().is_empty());
}

#[tokio::test]
async fn a_server_without_tls_is_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let task = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        socket.write_all(OK.as_bytes()).await.unwrap();
        let mut rest = Vec::new();
        let _ = socket.read_to_end(&mut rest).await;
        String::from_utf8_lossy(&rest).contains("bwk_")
    });
    let base = BaseUrl::parse(&format!("https://{address}")).unwrap();
    let token = Zeroizing::new("bwk_id_secret".to_owned());
    let client = Client::new(base, &Authority::new().trust(), Some(&token)).unwrap();
    let failure = client.get("/version").await.unwrap_err();
    assert_eq!(failure.code(), 3, "{failure}");
    drop(client);
    assert!(!task.await.unwrap(), "the token went out in the clear");
}

#[tokio::test]
async fn errors_of_the_server_are_told_as_they_are() {
    let authority = Authority::new();
    let answer = "HTTP/1.1 403 Forbidden\r\nconnection: close\r\n\r\n{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"code\":403,\
                  \"reason\":\"Forbidden\",\"message\":\"not yours\"}";
    let server = Server::start(authority.server("127.0.0.1"), answer).await;
    let failure = server.client(&authority.trust()).get("/x").await.unwrap_err();
    assert_eq!(failure.to_string(), "Error from server (Forbidden): not yours");
    assert_eq!(failure.code(), 1);
}

#[tokio::test]
async fn an_error_of_something_in_between_is_disarmed_and_shortened() {
    let authority = Authority::new();
    let answer = "HTTP/1.1 502 Bad Gateway\r\nconnection: close\r\n\r\n<html>\u{1b}[2Jgateway</html>";
    let server = Server::start(authority.server("127.0.0.1"), answer).await;
    let failure = server.client(&authority.trust()).get("/x").await.unwrap_err();
    assert_eq!(failure.to_string(), "Error from server (HTTP 502): <html>[2Jgateway</html>");
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let authority = Authority::new();
    let answer =
        "HTTP/1.1 302 Found\r\nlocation: https://evil.example.com/\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    let server = Server::start(authority.server("127.0.0.1"), answer).await;
    let failure = server.client(&authority.trust()).get("/x").await.unwrap_err();
    assert_eq!(failure.code(), 3);
    assert!(failure.to_string().contains("redirect"), "{failure}");
    assert_eq!(server.heard.lock().len(), 1);
}

#[tokio::test]
async fn a_server_that_hangs_is_given_up() {
    let authority = Authority::new();
    let server = Server::start(authority.server("127.0.0.1"), "").await;
    let client = server.client(&authority.trust()).with_deadline(Duration::from_millis(200));
    let failure = client.get("/x").await.unwrap_err();
    assert_eq!(failure.code(), 3);
    assert!(failure.to_string().contains("did not answer"), "{failure}");
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_an_error() {
    let authority = Authority::new();
    let answer = "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"ok\":";
    let server = Server::start(authority.server("127.0.0.1"), answer).await;
    let failure = server.client(&authority.trust()).get("/x").await.unwrap_err();
    assert_eq!(failure.code(), 3, "{failure}");
}

#[tokio::test]
async fn nobody_listening_is_told_with_the_address() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let base = BaseUrl::parse(&format!("https://{address}")).unwrap();
    let failure = Client::new(base, &Authority::new().trust(), None).unwrap().get("/x").await.unwrap_err();
    assert_eq!(failure.code(), 3);
    assert!(failure.to_string().contains(&address.to_string()), "{failure}");
}

#[test]
fn ca_files_must_hold_certificates() {
    let base = BaseUrl::parse("https://x.example.com").unwrap();
    for pem in ["", "hello", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        let Err(failure) = Client::new(base.clone(), &Trust::Only(pem.to_owned()), None) else {
            panic!("{pem:?} was accepted")
        };
        assert_eq!(failure.code(), 2, "{failure}");
        assert!(failure.to_string().contains("CA file"), "{failure}");
    }
}

#[test]
fn addresses() {
    for (given, kept) in [
        ("https://x.example.com", "https://x.example.com"),
        ("https://X.example.com/", "https://x.example.com"),
        ("https://x.example.com:443", "https://x.example.com"),
        ("https://127.0.0.1:8443", "https://127.0.0.1:8443"),
        ("https://[::1]:8443/", "https://[::1]:8443"),
    ] {
        assert_eq!(BaseUrl::parse(given).unwrap().as_str(), kept);
    }
    for bad in [
        "",
        "x.example.com",
        "http://x.example.com",
        "https://",
        "https://user@x.example.com",
        "https://u:p@x.example.com",
        "https://x.example.com/path",
        "https://x.example.com?x",
        "ftp://x.example.com",
        "https://x example.com",
    ] {
        assert_eq!(BaseUrl::parse(bad).unwrap_err().code(), 2, "{bad:?}");
    }
}

#[test]
fn names_are_encoded_whole() {
    assert_eq!(resource_path("users", Some("jane.doe")), "/apis/bailiwick.dev/v1alpha1/users/jane.doe");
    assert_eq!(
        resource_path("users", Some("../x?a#b c/é")),
        "/apis/bailiwick.dev/v1alpha1/users/..%2Fx%3Fa%23b%20c%2F%C3%A9"
    );
    assert_eq!(resource_path("users", None), "/apis/bailiwick.dev/v1alpha1/users");
}
