//! Options of the commands that run on the service's host. Each is also a key of the configuration file and an
//! environment variable; the command line wins over the environment, the environment over the file.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};

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

/// Which service, for commands on its host.
#[derive(Debug, Clone, Default, Args)]
pub struct HostArgs {
    /// Configuration file (TOML) of the service.
    #[arg(long, env = "BAILIWICK_SERVE_CONFIG", value_name = "FILE", global = true)]
    pub config: Option<PathBuf>,
    /// Data directory of the service.
    #[arg(long, env = "BAILIWICK_SERVE_DATA_DIR", value_name = "DIR", global = true)]
    pub data_dir: Option<PathBuf>,
}

/// Options of `recover-admin`.
#[derive(Debug, Clone, Default, Args)]
#[command(after_help = "\
Prints a one-time password, to be changed at the next sign-in. Works beside a running service and without one. Only who may write to the data directory can do it.

Example:
  sudo -u bailiwick bailiwick recover-admin --data-dir /var/lib/bailiwick")]
pub struct RecoverAdminArgs {
    /// Which service.
    #[command(flatten)]
    pub host: HostArgs,
}

/// Options of `backup`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
The backup is of one moment, checked, and of mode 0600; nothing is ever overwritten. It works beside a running service, which \
goes on meanwhile and writes the file itself, and without one. It holds the store only: the master key, which it takes to \
restore it, and the audit log are kept apart.

Example:
  sudo -u bailiwick bailiwick backup /backup/bailiwick-$(date +%F) --data-dir /var/lib/bailiwick")]
pub struct BackupArgs {
    /// File to be made.
    pub file: PathBuf,
    /// Which service.
    #[command(flatten)]
    pub host: HostArgs,
}

/// Options of `restore`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
The service must be stopped. Everything is checked first; the database that was there is kept beside the new one. Every \
session and token is dead afterwards, those in the backup included, and clients list everything anew. Where the database \
that was there can still be read, passwords, suspensions and disabled accounts are taken over from it, and accounts that \
were deleted since the backup come back suspended: a restore lets nobody in who was put out.

Cut short, the same command begins anew.

Examples:
  bailiwick restore /backup/bailiwick-2026-01-01 --data-dir /var/lib/bailiwick
  bailiwick restore --as-it-is --data-dir /var/lib/bailiwick     # an older database file was put back, or the anchor is lost")]
pub struct RestoreArgs {
    /// A file that `bailiwick backup` made.
    #[arg(required_unless_present = "as_it_is", conflicts_with = "as_it_is")]
    pub file: Option<PathBuf>,
    /// Accept the database that is in the data directory, although it is older than what was acknowledged, or nobody can
    /// tell.
    #[arg(long)]
    pub as_it_is: bool,
    /// Which service.
    #[command(flatten)]
    pub host: HostArgs,
}

/// `keys`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
The key file has one key a line: the first one seals, all of them open. Where another hand maintains the file (a mounted \
Secret), do the same there; the service follows it within half a minute. People notice nothing, and the service may be \
restarted between any two steps.

Examples, in this order:
  bailiwick keys add
  bailiwick keys activate 5f3a90c1
  bailiwick keys rewrite
  bailiwick keys retire 08bb1e72")]
pub struct KeysArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: KeysCommand,
    /// Which service.
    #[command(flatten)]
    pub host: HostArgs,
}

/// Steps of the rotation of the master key.
#[derive(Debug, Clone, Subcommand)]
pub enum KeysCommand {
    /// Show the keys by their ids, and how many records each seals.
    List,
    /// Make a new key, which opens and does not seal yet.
    Add,
    /// Let a key seal from now on.
    Activate {
        /// Its id.
        id: String,
    },
    /// Seal everything anew that another key sealed, beside all other work.
    Rewrite,
    /// Remove a key that seals nothing any more; refused while it does.
    Retire {
        /// Its id.
        id: String,
    },
}
