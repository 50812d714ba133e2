//! TCP and TLS to a cluster.

use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::{CONNECT, UpstreamError};
use crate::clusters::endpoint::Endpoint;

/// Opens connections that speak one protocol.
#[derive(Clone)]
pub(super) struct Dialer {
    host: Arc<str>,
    port: u16,
    server_name: ServerName<'static>,
    tls: TlsConnector,
}

impl Dialer {
    pub(super) fn new(endpoint: &Endpoint, alpn: &[u8]) -> Self {
        let mut tls = (*endpoint.tls).clone();
        tls.alpn_protocols = vec![alpn.to_vec()];
        Self {
            host: endpoint.host.as_str().into(),
            port: endpoint.port,
            server_name: endpoint.server_name.clone(),
            tls: TlsConnector::from(Arc::new(tls)),
        }
    }

    pub(super) async fn dial(&self) -> Result<TlsStream<TcpStream>, UpstreamError> {
        let connect = async {
            let tcp = TcpStream::connect((&*self.host, self.port)).await?;
            tcp.set_nodelay(true)?;
            let keepalive =
                socket2::TcpKeepalive::new().with_time(Duration::from_secs(30)).with_interval(Duration::from_secs(10));
            socket2::SockRef::from(&tcp).set_tcp_keepalive(&keepalive)?;
            self.tls.connect(self.server_name.clone(), tcp).await
        };
        match tokio::time::timeout(CONNECT, connect).await {
            Ok(Ok(io)) => Ok(io),
            Ok(Err(why)) => Err(UpstreamError::Connect(why.to_string())),
            Err(_) => Err(UpstreamError::ConnectTimeout),
        }
    }
}
