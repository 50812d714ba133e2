//! Where a cluster's API server is, and what proves that it is the one.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use sha2::{Digest as _, Sha256};

use crate::resources::ClusterSpec;
use crate::resources::cluster::DirectConnection;

/// The API server of a cluster, ready to be dialled.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// Host name or address, an IPv6 address without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
    /// `Host` header and authority of requests: host and port as in the URL.
    pub authority: http::uri::Authority,
    /// Trusts the cluster's CA and nothing else, offers no client certificate and no ALPN protocol: who dials adds what
    /// it speaks to a copy.
    pub tls: Arc<ClientConfig>,
    /// Name that the server's certificate must carry.
    pub server_name: ServerName<'static>,
    /// The CA certificates, DER.
    pub roots: Vec<CertificateDer<'static>>,
}

/// Why an address cannot be used. The messages are for the person who wrote the Cluster.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// `spec.connection` names no way to reach the cluster.
    #[error("spec.connection.direct is missing: there is no address to dial")]
    NoConnection,
    /// The URL is not `https://host[:port]`.
    #[error("spec.connection.direct.server {server:?}: {why}; write https://host:port")]
    Server {
        /// As written.
        server: String,
        /// What is wrong.
        why: &'static str,
    },
    /// The CA bundle cannot be read.
    #[error("spec.connection.direct.certificateAuthority: {0}")]
    Ca(String),
    /// The name is no DNS name or address.
    #[error("spec.connection.direct.tlsServerName {0:?} is no host name")]
    ServerName(String),
}

impl Endpoint {
    /// The endpoint that a Cluster describes.
    pub fn from_spec(spec: &ClusterSpec) -> Result<Self, EndpointError> {
        let direct = spec.connection.direct.as_ref().ok_or(EndpointError::NoConnection)?;
        Self::from_direct(direct)
    }

    /// As [`Endpoint::from_spec`].
    pub fn from_direct(direct: &DirectConnection) -> Result<Self, EndpointError> {
        let DirectConnection { server, certificate_authority, tls_server_name, credential_from: _ } = direct;
        let (host, port, authority) = parse_server(server)?;
        let roots = read_roots(certificate_authority)?;
        let mut store = RootCertStore::empty();
        for root in &roots {
            store.add(root.clone()).map_err(|why| EndpointError::Ca(format!("not a CA certificate: {why}")))?;
        }
        let name = tls_server_name.clone().unwrap_or_else(|| host.clone());
        let server_name = ServerName::try_from(name.clone()).map_err(|_| EndpointError::ServerName(name))?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|why| EndpointError::Ca(why.to_string()))?
            .with_root_certificates(store)
            .with_no_client_auth();
        Ok(Self { host, port, authority, tls: Arc::new(tls), server_name, roots })
    }
}

/// SHA-256 over server, CA and TLS name, base64: what a credential is bound to. Length-prefixed, so that no two
/// connections give the same bytes.
pub fn digest(direct: &DirectConnection) -> String {
    let DirectConnection { server, certificate_authority, tls_server_name, credential_from: _ } = direct;
    let mut hash = Sha256::new();
    for part in [server.as_str(), certificate_authority, tls_server_name.as_deref().unwrap_or_default()] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    STANDARD.encode(hash.finalize())
}

fn parse_server(server: &str) -> Result<(String, u16, http::uri::Authority), EndpointError> {
    let fail = |why| EndpointError::Server { server: server.to_owned(), why };
    let uri: http::Uri = server.parse().map_err(|_| fail("is no URL"))?;
    if uri.scheme_str() != Some("https") {
        return Err(fail("must begin with https://"));
    }
    if !matches!(uri.path(), "" | "/") || uri.query().is_some() || server.contains('#') {
        return Err(fail("must have no path, query or fragment"));
    }
    let authority = uri.authority().ok_or_else(|| fail("names no host"))?.clone();
    if authority.as_str().contains('@') {
        return Err(fail("must not contain a user or password"));
    }
    // `http` drops a port that is no number; what was written must not be quietly replaced by 443.
    let port = match authority.as_str().strip_prefix(authority.host()).unwrap_or_default() {
        "" => 443,
        rest => rest
            .strip_prefix(':')
            .and_then(|port| port.parse::<u16>().ok())
            .filter(|port| *port != 0)
            .ok_or_else(|| fail("has no valid port"))?,
    };
    let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
    if host.is_empty() {
        return Err(fail("names no host"));
    }
    Ok((host, port, authority))
}

fn read_roots(pem: &str) -> Result<Vec<CertificateDer<'static>>, EndpointError> {
    let roots = CertificateDer::pem_slice_iter(pem.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|why| EndpointError::Ca(format!("not PEM: {why}")))?;
    if roots.is_empty() {
        return Err(EndpointError::Ca("holds no certificate; without one the server cannot be proven".into()));
    }
    Ok(roots)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ca() -> String {
        let mut params = rcgen::CertificateParams::new(vec![]).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().pem()
    }

    fn direct(server: &str) -> DirectConnection {
        DirectConnection {
            server: server.into(),
            certificate_authority: ca(),
            tls_server_name: None,
            credential_from: None,
        }
    }

    #[test]
    fn an_https_url_gives_host_port_and_name() {
        for (server, host, port) in [
            ("https://kube.example.com:6443", "kube.example.com", 6443),
            ("https://kube.example.com", "kube.example.com", 443),
            ("https://kube.example.com/", "kube.example.com", 443),
            ("https://192.0.2.7:6443", "192.0.2.7", 6443),
            ("https://[2001:db8::1]:6443", "2001:db8::1", 6443),
        ] {
            let endpoint = Endpoint::from_direct(&direct(server)).unwrap();
            assert_eq!((endpoint.host.as_str(), endpoint.port), (host, port), "{server}");
            assert_eq!(endpoint.server_name, ServerName::try_from(host.to_owned()).unwrap());
            assert!(endpoint.tls.alpn_protocols.is_empty());
        }
    }

    #[test]
    fn other_urls_are_refused() {
        for server in [
            "",
            "kube.example.com:6443",
            "http://kube.example.com",
            "https://",
            "https://user:pw@kube.example.com",
            "https://kube.example.com/k8s",
            "https://kube.example.com?x=1",
            "https://kube.example.com#x",
            "https://kube.example.com:0",
            "https://kube.example.com:99999",
            "https://kube.example.com:",
        ] {
            let error = Endpoint::from_direct(&direct(server)).unwrap_err();
            assert!(matches!(error, EndpointError::Server { .. }), "{server:?}: {error}");
        }
    }

    #[test]
    fn the_ca_is_needed_and_must_be_one() {
        let mut wrong = direct("https://kube.example.com");
        for pem in ["", "nonsense", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
            wrong.certificate_authority = pem.into();
            assert!(matches!(Endpoint::from_direct(&wrong), Err(EndpointError::Ca(_))), "{pem:?}");
        }
    }

    #[test]
    fn another_name_in_the_certificate() {
        let mut other = direct("https://192.0.2.7:6443");
        other.tls_server_name = Some("kubernetes.default.svc".into());
        let endpoint = Endpoint::from_direct(&other).unwrap();
        assert_eq!(endpoint.server_name, ServerName::try_from("kubernetes.default.svc").unwrap());
        other.tls_server_name = Some("no name".into());
        assert!(matches!(Endpoint::from_direct(&other), Err(EndpointError::ServerName(_))));
    }

    #[test]
    fn the_digest_binds_each_part() {
        let base = direct("https://kube.example.com");
        let mut seen = vec![digest(&base)];
        for change in 0..3 {
            let mut other = base.clone();
            match change {
                0 => other.server = "https://kube.example.com:443".into(),
                1 => other.certificate_authority = ca(),
                _ => other.tls_server_name = Some("kube.example.com".into()),
            }
            assert!(!seen.contains(&digest(&other)), "change {change}");
            seen.push(digest(&other));
        }
        assert_eq!(digest(&base), digest(&base.clone()));
    }
}
