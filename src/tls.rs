//! The listener's certificate: given, or made by a CA of our own in the data directory.

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use arc_swap::ArcSwap;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tracing::{info, warn};

use crate::config::Tls;

/// Days that a certificate of ours lasts; it is made anew at a start within the last third of them.
const CERTIFICATE_DAYS: i64 = 397;
/// Days that the CA lasts.
const CA_DAYS: i64 = 3650;

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file is not what it should be.
    #[error("{path}: {why}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// A certificate could not be made.
    #[error("cannot make a certificate: {0}")]
    Make(#[from] rcgen::Error),
    /// TLS could not be set up.
    #[error("cannot set up TLS: {0}")]
    Setup(#[from] rustls::Error),
}

/// What the listener serves.
pub struct ServerTls {
    /// For the acceptor.
    pub config: Arc<ServerConfig>,
    /// The root that clients need, in PEM; none where the chain is public.
    pub ca: Option<String>,
    /// Reads changed files again.
    pub reloader: Reloader,
}

/// Keeps the served certificate current.
pub struct Reloader {
    files: (PathBuf, PathBuf),
    current: Arc<Current>,
    seen: Option<SystemTime>,
}

#[derive(Debug)]
struct Current(ArcSwap<CertifiedKey>);

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

impl ServerTls {
    /// Loads the given certificate, or makes one for `host` in the data directory.
    pub fn load(tls: &Tls, data_dir: &Path, host: &str) -> Result<Self, TlsError> {
        let Tls { cert_file, key_file, ca_file } = tls;
        let (cert, key, ca) = match (cert_file, key_file) {
            (Some(cert), Some(key)) => (cert.clone(), key.clone(), ca_file.as_deref().map(read).transpose()?),
            _ => {
                let made = ensure_own(data_dir, host)?;
                (made.cert, made.key, Some(read(&made.ca)?))
            }
        };
        let current = Arc::new(Current(ArcSwap::new(Arc::new(load_pair(&cert, &key)?))));
        let mut config = ServerConfig::builder().with_no_client_auth().with_cert_resolver(current.clone());
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        config.max_early_data_size = 0;
        let seen = modified(&cert);
        Ok(Self { config: Arc::new(config), ca, reloader: Reloader { files: (cert, key), current, seen } })
    }
}

impl Reloader {
    /// Reads the files again if they changed. A pair that cannot be used leaves the old one in place.
    pub fn reload(&mut self) {
        let seen = modified(&self.files.0);
        if seen == self.seen {
            return;
        }
        self.seen = seen;
        match load_pair(&self.files.0, &self.files.1) {
            Ok(pair) => {
                self.current.0.store(Arc::new(pair));
                info!(file = %self.files.0.display(), "certificate read again");
            }
            Err(why) => warn!(%why, "the changed certificate cannot be used; the old one stays"),
        }
    }
}

fn modified(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).and_then(|m| m.modified()).ok()
}

fn read(path: &Path) -> Result<String, TlsError> {
    std::fs::read_to_string(path).map_err(|source| TlsError::Io { path: path.to_owned(), source })
}

fn load_pair(cert: &Path, key: &Path) -> Result<CertifiedKey, TlsError> {
    let malformed = |path: &Path, why: String| TlsError::Malformed { path: path.to_owned(), why };
    let chain = CertificateDer::pem_slice_iter(read(cert)?.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|why| malformed(cert, format!("no certificate chain in PEM: {why}")))?;
    if chain.is_empty() {
        return Err(malformed(cert, "holds no certificate".to_owned()));
    }
    let private = PrivateKeyDer::from_pem_slice(read(key)?.as_bytes())
        .map_err(|why| malformed(key, format!("no private key in PEM: {why}")))?;
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    CertifiedKey::from_der(chain, private, &provider)
        .map_err(|why| malformed(key, format!("certificate and key do not fit: {why}")))
}

struct Own {
    ca: PathBuf,
    cert: PathBuf,
    key: PathBuf,
}

/// Makes what is missing or about to end. The CA stays the same, so that the kubeconfigs handed out stay good.
fn ensure_own(data_dir: &Path, host: &str) -> Result<Own, TlsError> {
    let dir = data_dir.join("tls");
    std::fs::create_dir_all(&dir).map_err(|source| TlsError::Io { path: dir.clone(), source })?;
    let ca_key_path = dir.join("ca.key");
    // The CA's certificate is for people: it stands where they look for it.
    let own = Own { ca: data_dir.join("ca.crt"), cert: dir.join("server.crt"), key: dir.join("server.key") };
    let ca_params = ca_params();
    let ca_key = match ca_key_path.exists() && own.ca.exists() {
        true => KeyPair::from_pem(&read(&ca_key_path)?)?,
        false => {
            let key = KeyPair::generate()?;
            write(&ca_key_path, &key.serialize_pem(), 0o600)?;
            write(&own.ca, &ca_params.self_signed(&key)?.pem(), 0o644)?;
            key
        }
    };
    if !still_good(&own.cert, host) {
        let issuer = Issuer::new(ca_params, ca_key);
        let key = KeyPair::generate()?;
        let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
        if !names.iter().any(|n| n == host) {
            names.push(host.to_owned());
        }
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name.push(DnType::CommonName, "bailiwick");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        (params.not_before, params.not_after) = valid_for(CERTIFICATE_DAYS);
        let cert = params.signed_by(&key, &issuer)?;
        write(&own.key, &key.serialize_pem(), 0o600)?;
        write(&own.cert, &cert.pem(), 0o644)?;
    }
    Ok(own)
}

fn ca_params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "bailiwick CA");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    (params.not_before, params.not_after) = valid_for(CA_DAYS);
    params
}

fn valid_for(days: i64) -> (time::OffsetDateTime, time::OffsetDateTime) {
    let now = time::OffsetDateTime::now_utc();
    // Clocks of clients may be a little behind ours.
    (now - time::Duration::hours(1), now + time::Duration::days(days))
}

/// Whether a certificate names the host and has more than a third of its time left.
fn still_good(cert: &Path, host: &str) -> bool {
    let Ok(pem) = std::fs::read_to_string(cert) else { return false };
    let Ok(der) = CertificateDer::from_pem_slice(pem.as_bytes()) else { return false };
    let Ok((_, parsed)) = x509_parser::parse_x509_certificate(&der) else { return false };
    let left = parsed.validity().time_to_expiration().map_or(0, |left| left.whole_days());
    let names = parsed.subject_alternative_name().ok().flatten();
    let named = names.is_some_and(|san| {
        san.value.general_names.iter().any(|name| match name {
            x509_parser::extensions::GeneralName::DNSName(dns) => *dns == host,
            x509_parser::extensions::GeneralName::IPAddress(bytes) => host.parse::<IpAddr>().is_ok_and(|ip| match ip {
                IpAddr::V4(ip) => ip.octets() == **bytes,
                IpAddr::V6(ip) => ip.octets() == **bytes,
            }),
            _ => false,
        })
    });
    left > CERTIFICATE_DAYS / 3 && named
}

fn write(path: &Path, text: &str, mode: u32) -> Result<(), TlsError> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let io = |source| TlsError::Io { path: path.to_owned(), source };
    // A half-written key would be read at the next start: write beside it, then rename.
    let beside = path.with_extension("new");
    let _ = std::fs::remove_file(&beside);
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&beside).map_err(io)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(io)?;
    std::fs::rename(&beside, path).map_err(io)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_ca_stays_and_the_certificate_follows_the_host() {
        let dir = tempfile::tempdir().unwrap();
        let first = ensure_own(dir.path(), "a.example.com").unwrap();
        let ca = read(&first.ca).unwrap();
        let cert = read(&first.cert).unwrap();
        ensure_own(dir.path(), "a.example.com").unwrap();
        assert_eq!(read(&first.cert).unwrap(), cert, "nothing changes without a reason");
        ensure_own(dir.path(), "192.0.2.7").unwrap();
        assert_ne!(read(&first.cert).unwrap(), cert, "another host needs another certificate");
        assert_eq!(read(&first.ca).unwrap(), ca);
        for secret in [dir.path().join("tls/ca.key"), first.key] {
            assert_eq!(std::fs::metadata(secret).unwrap().permissions().mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn a_key_of_another_certificate_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let own = ensure_own(dir.path(), "a.example.com").unwrap();
        write(&own.key, &KeyPair::generate().unwrap().serialize_pem(), 0o600).unwrap();
        assert!(matches!(load_pair(&own.cert, &own.key), Err(TlsError::Malformed { .. })));
        write(&own.cert, "", 0o644).unwrap();
        assert!(matches!(load_pair(&own.cert, &own.key), Err(TlsError::Malformed { .. })));
    }
}
