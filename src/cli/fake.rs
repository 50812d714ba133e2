//! A service for tests: HTTPS on loopback, answers given by a function, requests remembered.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use parking_lot::Mutex;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use zeroize::Zeroizing;

use super::client::{BaseUrl, Client, Trust};

/// A CA of its own.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Trust in it and nothing else.
    pub fn trust(&self) -> Trust {
        Trust::Only(self.0.pem())
    }

    /// A server's end with a certificate for `name`.
    pub fn server(&self, name: &str) -> ServerConfig {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, &self.0).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        ServerConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap()
    }
}

/// What was asked: method, path with query, body.
pub type Asked = (String, String, Value);

/// A running fake. Ends on drop.
pub struct Fake {
    pub client: Client,
    asked: Arc<Mutex<Vec<Asked>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Fake {
    /// Answers every request with what `answer` makes of it: status and body.
    pub async fn start(answer: impl Fn(&Asked) -> (u16, Value) + Send + Sync + 'static) -> Self {
        let authority = Authority::new();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = BaseUrl::parse(&format!("https://{}", listener.local_addr().unwrap())).unwrap();
        let client = Client::new(base, &authority.trust(), Some(&Zeroizing::new("bwk_id_secret".to_owned()))).unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (log, answer) = (asked.clone(), Arc::new(answer));
        let router = Router::new().fallback(move |request: Request| {
            let (log, answer) = (log.clone(), answer.clone());
            async move {
                let (head, body) = request.into_parts();
                let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
                let path = head.uri.path_and_query().map(ToString::to_string).unwrap_or_default();
                let asked = (head.method.to_string(), path, serde_json::from_slice(&body).unwrap_or_default());
                let (status, body) = answer(&asked);
                log.lock().push(asked);
                Response::builder().status(status).body(Body::from(body.to_string())).unwrap()
            }
        });
        let acceptor = TlsAcceptor::from(Arc::new(authority.server("127.0.0.1")));
        let task = tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let (acceptor, router) = (acceptor.clone(), router.clone());
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(socket).await else { return };
                    let service = TowerToHyperService::new(router);
                    let server = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                    let _ = server.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Self { client, asked, task }
    }

    /// What was asked so far, as `METHOD path`.
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().iter().map(|(method, path, _)| format!("{method} {path}")).collect()
    }

    /// The body of the last request.
    pub fn last_body(&self) -> Value {
        self.asked.lock().last().map(|(_, _, body)| body.clone()).unwrap_or_default()
    }
}

/// A Status as the service writes it.
pub fn status(code: u16, reason: &str, message: &str) -> (u16, Value) {
    let body = serde_json::json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "code": code, "reason": reason, "message": message, "details": {}});
    (code, body)
}
