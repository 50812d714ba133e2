//! Configuration of `bailiwick serve`: a TOML file, overridden by environment and command line.
//!
//! Everything is typed and checked before anything is opened. Unknown keys are refused, with the line they stand on.

mod budgets;
#[cfg(test)]
mod documented;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use serde::Deserialize;

pub use self::budgets::Proxy;
use crate::cli::args::ServeArgs;
use crate::proxy::ProxySettings;

/// The configuration file. `docs/configuration.md` explains it to people.
#[derive(Debug, Clone, Default, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(deny_unknown_fields, default)]
pub struct File {
    /// Directory of the embedded store, the audit log and generated certificates.
    pub data_dir: Option<PathBuf>,
    /// Address of proxy and API (TLS).
    pub listen: Option<SocketAddr>,
    /// Address of /metrics, /healthz and /readyz (plain HTTP).
    pub metrics_listen: Option<SocketAddr>,
    /// Address under which people reach the service.
    pub public_url: Option<String>,
    /// Proxies in front of us whose `X-Forwarded-For` is believed, as networks.
    pub trusted_proxies: Vec<IpNet>,
    /// File with the first password of the administrator.
    pub bootstrap_password_file: Option<PathBuf>,
    /// Directory in which Clusters may name files with their credentials; without it they may not.
    pub credential_dir: Option<PathBuf>,
    /// Certificate of the listener.
    pub tls: Tls,
    /// Key that the sealed records are encrypted with.
    pub master_key: MasterKey,
    /// Budgets: how much may be asked of the proxy at a time.
    pub proxy: Proxy,
}

/// Certificate of the listener. Without one, the service makes a CA and a certificate in its data directory.
#[derive(Debug, Clone, Default, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(deny_unknown_fields, default)]
pub struct Tls {
    /// Certificate chain (PEM), read again when it changes.
    pub cert_file: Option<PathBuf>,
    /// Its key (PEM).
    pub key_file: Option<PathBuf>,
    /// The root (PEM) that the public address chains to, for kubeconfigs. Leave it out for a public CA.
    pub ca_file: Option<PathBuf>,
}

/// Where the master key comes from. Without this, it is made at the first start and kept in the data directory.
#[derive(Debug, Clone, Default, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(deny_unknown_fields, default)]
pub struct MasterKey {
    /// File with 32 bytes in base64 a line: the first line seals, all of them open. Read again when it changes.
    pub file: Option<PathBuf>,
}

/// What `serve` works with, defaults filled in.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Data directory.
    pub data_dir: PathBuf,
    /// Address of the TLS listener.
    pub listen: SocketAddr,
    /// Address of the metrics listener.
    pub metrics_listen: SocketAddr,
    /// Public URL; the listener's own address where none is given.
    pub public_url: Option<String>,
    /// Trusted proxies.
    pub trusted_proxies: Vec<IpNet>,
    /// First password of the administrator.
    pub bootstrap_password_file: Option<PathBuf>,
    /// Directory of credentials.
    pub credential_dir: Option<PathBuf>,
    /// Certificate of the listener.
    pub tls: Tls,
    /// Master key.
    pub master_key: MasterKey,
    /// What is set of the proxy.
    pub proxy: ProxySettings,
    /// Whether to start with an audit log that was cut off.
    pub accept_audit_loss: bool,
    /// Whether to forget the time that was kept, and start by the wall clock.
    pub accept_clock: bool,
}

/// What is wrong with the configuration. Each message names the file or the key.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is no TOML of ours; the message has line and column.
    #[error("{path}: {why}")]
    Parse {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// A value that cannot be.
    #[error("{key}: {why}")]
    Value {
        /// Which setting.
        key: &'static str,
        /// Why.
        why: String,
    },
}

/// Where everything is kept when nothing else is said.
const DATA_DIR: &str = "/var/lib/bailiwick";

impl Settings {
    /// Puts command line (with the environment) over file over defaults.
    pub fn load(args: &ServeArgs) -> Result<Self, ConfigError> {
        let ServeArgs {
            config,
            data_dir,
            listen,
            metrics_listen,
            public_url,
            tls_cert_file,
            tls_key_file,
            bootstrap_password_file,
            credential_dir,
            accept_audit_loss,
            accept_clock,
        } = args.clone();
        let file = config.as_deref().map(read).transpose()?.unwrap_or_default();
        let File {
            data_dir: file_data_dir,
            listen: file_listen,
            metrics_listen: file_metrics_listen,
            public_url: file_public_url,
            trusted_proxies,
            bootstrap_password_file: file_bootstrap,
            credential_dir: file_credential_dir,
            tls,
            master_key,
            proxy,
        } = file;
        let tls = Tls {
            cert_file: tls_cert_file.or(tls.cert_file),
            key_file: tls_key_file.or(tls.key_file),
            ca_file: tls.ca_file,
        };
        if tls.cert_file.is_some() != tls.key_file.is_some() {
            let why = "cert_file and key_file belong together; one of them is missing".to_owned();
            return Err(ConfigError::Value { key: "tls", why });
        }
        let public_url = public_url.or(file_public_url).map(|url| check_public_url(&url)).transpose()?;
        Ok(Self {
            data_dir: data_dir.or(file_data_dir).unwrap_or_else(|| DATA_DIR.into()),
            listen: listen.or(file_listen).unwrap_or_else(|| SocketAddr::from(([0, 0, 0, 0], 8443))),
            metrics_listen: metrics_listen
                .or(file_metrics_listen)
                .unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 9443))),
            public_url,
            trusted_proxies,
            bootstrap_password_file: bootstrap_password_file.or(file_bootstrap),
            credential_dir: credential_dir.or(file_credential_dir),
            tls,
            master_key,
            proxy: proxy.settings()?,
            accept_audit_loss,
            accept_clock,
        })
    }
}

/// Reads a configuration file.
pub fn read(path: &Path) -> Result<File, ConfigError> {
    let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
    toml::from_str(&text).map_err(|why| ConfigError::Parse { path: path.to_owned(), why: why.to_string() })
}

fn check_public_url(url: &str) -> Result<String, ConfigError> {
    let fail = |why: &str| ConfigError::Value { key: "public_url", why: format!("{url:?} {why}") };
    let parsed: http::Uri = url.parse().map_err(|_| fail("is no URL"))?;
    if parsed.scheme_str() != Some("https") || parsed.host().is_none() {
        return Err(fail("must be https://host[:port]"));
    }
    if !matches!(parsed.path(), "" | "/") || parsed.query().is_some() || url.contains(['@', '#']) {
        return Err(fail("must have no user, path, query or fragment"));
    }
    Ok(url.trim_end_matches('/').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(toml: &str, args: ServeArgs) -> Result<Settings, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.toml");
        std::fs::write(&path, toml).unwrap();
        Settings::load(&ServeArgs { config: Some(path), ..args }).map_err(|e| e.to_string())
    }

    #[test]
    fn the_command_line_wins_over_the_file() {
        let args = ServeArgs { data_dir: Some("/a".into()), ..ServeArgs::default() };
        let settings = load(
            "data_dir = '/b'\ncredential_dir = '/c'\nlisten = '127.0.0.1:1'\npublic_url = 'https://x.example.com/'",
            args,
        )
        .unwrap();
        assert_eq!(settings.data_dir, Path::new("/a"));
        assert_eq!(settings.listen.port(), 1);
        assert_eq!(settings.credential_dir.as_deref(), Some(Path::new("/c")));
        assert_eq!(settings.public_url.as_deref(), Some("https://x.example.com"));
    }

    #[test]
    fn mistakes_are_named() {
        for (toml, named) in [
            ("data_dirr = '/b'", "line 1"),
            ("listen = 'here'", "listen"),
            ("[tls]\ncert_file = 'a'", "key_file"),
            ("public_url = 'http://x'", "public_url"),
            ("public_url = 'https://u@x'", "public_url"),
            ("public_url = 'https://x/path'", "public_url"),
            ("[proxy]\nmax_requests_per_user = 0", "max_requests_per_user"),
            ("trusted_proxies = ['10.0.0.0/99']", "trusted_proxies"),
        ] {
            let error = load(toml, ServeArgs::default()).unwrap_err();
            assert!(error.contains(named), "{toml}: {error}");
        }
    }
}
