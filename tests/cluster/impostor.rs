//! Stands before a real API server under its own certificate, and misbehaves on command.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bailiwick::resources::cluster::DirectConnection;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full, combinators::UnsyncBoxBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use kube::client::Body;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::harness::Site;
use crate::proxy_harness::Pki;

/// How it answers.
#[derive(Debug, Clone, PartialEq)]
pub enum Manner {
    /// Passes everything on.
    Honest,
    /// As [`Manner::Honest`], but kube-system has this UID.
    OtherCluster(&'static str),
    /// As [`Manner::Honest`], but of this version.
    OtherVersion(&'static str),
    /// Answers, over TLS, with what is no HTTP.
    Nonsense,
    /// Begins an answer whose headers never end.
    EndlessHeaders,
    /// Begins an answer whose body never ends.
    EndlessBody,
    /// Answers a byte at a time.
    Drip,
    /// Accepts and says nothing.
    Silence,
    /// Presents a certificate of another authority.
    OtherCertificate,
    /// Each connection lasts a moment.
    Restarts,
}

/// A running one.
pub struct Impostor {
    pub address: SocketAddr,
    ca: String,
    manner: watch::Sender<(Manner, CancellationToken)>,
}

type Answer = Response<UnsyncBoxBody<Bytes, tower::BoxError>>;

impl Impostor {
    pub async fn before(site: &Site) -> Self {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let (here, other) = (Pki::new(), Pki::new());
        let acceptors = [&here, &other].map(|pki| TlsAcceptor::from(Arc::new(pki.server())));
        let target = site.anonymous();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (manner, now) = watch::channel((Manner::Honest, CancellationToken::new()));
        tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                let (acceptors, target, now) = (acceptors.clone(), target.clone(), now.clone());
                if now.has_changed().is_err() {
                    return;
                }
                let end = now.borrow().1.clone();
                tokio::spawn(end.run_until_cancelled_owned(connection(tcp, acceptors, target, now)));
            }
        });
        Self { address, ca: here.ca_pem, manner }
    }

    /// Where it is, as an import would have it.
    pub fn connection(&self) -> DirectConnection {
        DirectConnection {
            server: format!("https://{}", self.address),
            certificate_authority: self.ca.clone(),
            tls_server_name: None,
            credential_from: None,
        }
    }

    /// Changes its manner. Connections that stand are ended, as by a restart, unless it goes on speaking HTTP.
    pub fn behave(&self, manner: Manner) {
        let speaks = |manner: &Manner| matches!(manner, Manner::OtherCluster(_) | Manner::OtherVersion(_));
        let old = self.manner.borrow().1.clone();
        if speaks(&manner) {
            self.manner.send_replace((manner, old));
        } else {
            self.manner.send_replace((manner, CancellationToken::new()));
            old.cancel();
        }
    }
}

async fn connection(
    tcp: TcpStream,
    acceptors: [TlsAcceptor; 2],
    target: kube::Client,
    now: watch::Receiver<(Manner, CancellationToken)>,
) {
    let manner = now.borrow().0.clone();
    if manner == Manner::Silence {
        return std::future::pending().await;
    }
    let [here, other] = acceptors;
    let acceptor = if manner == Manner::OtherCertificate { other } else { here };
    let Ok(mut stream) = acceptor.accept(tcp).await else { return };
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n";
    match manner {
        Manner::Nonsense => repeat(&mut stream, "", "\u{1}\u{2}no http at all\n", Duration::from_millis(1)).await,
        Manner::EndlessHeaders => repeat(&mut stream, head, "x-more: and more\r\n", Duration::ZERO).await,
        Manner::EndlessBody => repeat(&mut stream, &format!("{head}\r\n"), &" ".repeat(4096), Duration::ZERO).await,
        Manner::Drip => {
            let answer = format!("{head}content-length: 100\r\n\r\n{}", " ".repeat(100));
            for byte in answer.bytes() {
                tokio::time::sleep(Duration::from_millis(300)).await;
                if stream.write_all(&[byte]).await.is_err() || stream.flush().await.is_err() {
                    return;
                }
            }
        }
        Manner::Restarts => {
            let _ = tokio::time::timeout(Duration::from_millis(30), serve(stream, target, now)).await;
        }
        _ => serve(stream, target, now).await,
    }
}

/// Reads a request, then writes the same again and again.
async fn repeat(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), first: &str, again: &str, pause: Duration) {
    let _ = stream.read(&mut [0; 8192]).await;
    let mut bytes = first.to_owned();
    while stream.write_all(bytes.as_bytes()).await.is_ok() && stream.flush().await.is_ok() {
        again.clone_into(&mut bytes);
        tokio::time::sleep(pause).await;
    }
}

async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    target: kube::Client,
    now: watch::Receiver<(Manner, CancellationToken)>,
) {
    let service = service_fn(move |request| pass(request, target.clone(), now.borrow().0.clone()));
    let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
}

async fn pass(request: Request<Incoming>, target: kube::Client, manner: Manner) -> Result<Answer, kube::Error> {
    let (mut head, body) = request.into_parts();
    let path = head.uri.path().to_owned();
    head.uri = head.uri.path_and_query().unwrap().as_str().parse().unwrap();
    head.version = http::Version::HTTP_11;
    head.headers.remove("host");
    let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let answer = target.send(Request::from_parts(head, Body::from(body))).await?;
    let forged = match (&manner, path.as_str()) {
        (Manner::OtherCluster(uid), "/api/v1/namespaces/kube-system") => Some((&["metadata", "uid"][..], *uid)),
        (Manner::OtherVersion(version), "/version") => Some((&["gitVersion"][..], *version)),
        _ => None,
    };
    let Some((field, value)) = forged else {
        return Ok(answer.map(|body| body.map_err(Into::into).boxed_unsync()));
    };
    let (mut head, body) = answer.into_parts();
    let bytes = body.collect().await.map_err(|why| kube::Error::Service(Box::new(why)))?.to_bytes();
    let mut object: Value = serde_json::from_slice(&bytes).unwrap();
    *field.iter().fold(&mut object, |object, key| &mut object[*key]) = value.into();
    head.headers.remove("content-length");
    let whole = Full::new(Bytes::from(object.to_string())).map_err(|never| match never {});
    Ok(Response::from_parts(head, whole.boxed_unsync()))
}
