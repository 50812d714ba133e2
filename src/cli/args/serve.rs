//! Options of the commands that run on the service's host. Each is also a key of the configuration file and an
//! environment variable; the command line wins over the environment, the environment over the file.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

/// Options of `serve`.
#[derive(Debug, Clone, Default, Args)]
#[command(after_help = "\
Examples:
  bailiwick serve --config /etc/bailiwick/config.toml
  bailiwick serve --data-dir ./data --listen 127.0.0.1:8443 --public-url https://127.0.0.1:8443

Without a certificate of its own the service makes a CA and a certificate in its data directory; people get the CA file \
from there (ca.crt), by a way they trust.")]
pub struct ServeArgs {
    /// Configuration file (TOML); unknown keys are refused.
    #[arg(long, env = "BAILIWICK_SERVE_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Directory of the embedded store, the audit log and generated certificates.
    #[arg(long, env = "BAILIWICK_SERVE_DATA_DIR", value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Address of proxy and API (TLS); port 0 takes a free one.
    #[arg(long, env = "BAILIWICK_SERVE_LISTEN", value_name = "ADDRESS:PORT")]
    pub listen: Option<SocketAddr>,
    /// Address of /metrics, /healthz and /readyz (plain HTTP).
    #[arg(long, env = "BAILIWICK_SERVE_METRICS_LISTEN", value_name = "ADDRESS:PORT")]
    pub metrics_listen: Option<SocketAddr>,
    /// Address under which people reach the service; stands in kubeconfigs.
    #[arg(long, env = "BAILIWICK_SERVE_PUBLIC_URL", value_name = "URL")]
    pub public_url: Option<String>,
    /// Certificate chain (PEM) for the listener.
    #[arg(long, env = "BAILIWICK_SERVE_TLS_CERT_FILE", value_name = "FILE", requires = "tls_key_file")]
    pub tls_cert_file: Option<PathBuf>,
    /// Key (PEM) of that certificate.
    #[arg(long, env = "BAILIWICK_SERVE_TLS_KEY_FILE", value_name = "FILE", requires = "tls_cert_file")]
    pub tls_key_file: Option<PathBuf>,
    /// File with the first password of the administrator, to be changed at the first sign-in. Without it one is made
    /// up and written to the data directory. Used only while no administrator exists.
    #[arg(long, env = "BAILIWICK_SERVE_BOOTSTRAP_PASSWORD_FILE", value_name = "FILE")]
    pub bootstrap_password_file: Option<PathBuf>,
    /// Directory in which Clusters may name files with their credentials (credentialFrom). Without it they may not.
    #[arg(long, env = "BAILIWICK_SERVE_CREDENTIAL_DIR", value_name = "DIR")]
    pub credential_dir: Option<PathBuf>,
    /// Start although the audit log ends before what was written: files of it were removed or cut off, and cannot be put
    /// back. The log says so for good.
    #[arg(long)]
    pub accept_audit_loss: bool,
    /// Start by the clock as it shows now, although the service has known a later time: for a clock that was ahead for
    /// long and was set right. Tokens and grants that ended by the wrong time and are still stored live again.
    #[arg(long)]
    pub accept_clock: bool,
}

/// Options of `recover-admin`.
#[derive(Debug, Clone, Default, Args)]
#[command(after_help = "\
Prints a one-time password, to be changed at the next sign-in. Works beside a running service and without one. Only who may write to the data directory can do it.

Example:
  sudo -u bailiwick bailiwick recover-admin --data-dir /var/lib/bailiwick")]
pub struct RecoverAdminArgs {
    /// Configuration file (TOML).
    #[arg(long, env = "BAILIWICK_SERVE_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Data directory of the service.
    #[arg(long, env = "BAILIWICK_SERVE_DATA_DIR", value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
}
