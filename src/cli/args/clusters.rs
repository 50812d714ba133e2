//! `bailiwick cluster`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::Connect;
use crate::cli::output::Format;

/// `cluster`.
#[derive(Debug, Args)]
pub struct ClusterArgs {
    /// Server and credential.
    #[command(flatten)]
    pub connect: Connect,
    /// What to do.
    #[command(subcommand)]
    pub command: ClusterCommand,
}

/// Commands on clusters.
#[derive(Debug, Subcommand)]
pub enum ClusterCommand {
    /// Print what the cluster's administrator applies before the import. Needs no server.
    #[command(after_help = "\
Example:
  bailiwick cluster manifest demo | kubectl --context demo-admin apply -f -
  bailiwick cluster manifest demo --uninstall | KUBECTL='kubectl --context demo-admin' sh")]
    Manifest {
        /// Name that the cluster will have.
        name: String,
        /// Kubernetes version of the cluster, 1.36 for example.
        #[arg(long, value_name = "VERSION", default_value = "1.36")]
        kubernetes_version: String,
        /// API group that tenants may reach beside the built-in ones; may be repeated.
        #[arg(long = "tenant-api-group", value_name = "GROUP")]
        tenant_api_groups: Vec<String>,
        /// Group of the cluster's administrators beside system:masters; the guards let its members adopt namespaces
        /// and touch what the service manages. May be repeated.
        #[arg(long = "administrators", value_name = "GROUP")]
        administrators: Vec<String>,
        /// Render the older form of impersonation: for a cluster of 1.36 or later that has the feature gate
        /// ConstrainedImpersonation turned off.
        #[arg(long)]
        legacy_impersonation: bool,
        /// Print instead the shell script with which the administrator takes the manifest back, and all that the
        /// service made in the cluster.
        #[arg(long, conflicts_with_all = ["kubernetes_version", "tenant_api_groups", "administrators", "legacy_impersonation"])]
        uninstall: bool,
    },
    /// Take a cluster in, after its administrator has applied the manifest.
    ///
    /// The kubeconfig is used on this machine, only to read the tokens of the two accounts that the manifest made;
    /// these are all that is sent. Then every right and guard is probed; each one that is missing is named.
    #[command(after_help = "\
Example:
  bailiwick cluster import demo --kubeconfig admin.yaml --context demo-admin")]
    Import {
        /// Name.
        name: String,
        /// Kubeconfig of the cluster's administrator.
        #[arg(long, value_name = "FILE")]
        kubeconfig: PathBuf,
        /// Context in it; its current one where absent.
        #[arg(long, value_name = "CONTEXT")]
        context: Option<String>,
        /// Name for people.
        #[arg(long, value_name = "TEXT")]
        display_name: Option<String>,
        /// API group that tenants may reach beside the built-in ones; may be repeated.
        #[arg(long = "tenant-api-group", value_name = "GROUP")]
        tenant_api_groups: Vec<String>,
    },
    /// Probe a cluster: reachability, version, rights and guards. Exit code 1 where something is missing.
    Check {
        /// Name.
        name: String,
        /// Output format.
        #[arg(long, short, value_enum, default_value_t = Format::Table)]
        output: Format,
    },
    /// Say whether a cluster may be upgraded to a Kubernetes version. Exit code 0 yes, 1 no: for pipelines.
    #[command(after_help = "\
Example:
  bailiwick cluster check-upgrade demo 1.37.0 && start-the-upgrade")]
    CheckUpgrade {
        /// Name.
        name: String,
        /// Kubernetes version, 1.37.0 for example.
        #[arg(id = "kubernetes-version", value_name = "VERSION")]
        version: String,
        /// Output format.
        #[arg(long, short, value_enum, default_value_t = Format::Table)]
        output: Format,
    },
    /// Declare that a cluster will never confirm a clean-up, so that the names waiting for it become free.
    Forget {
        /// Name.
        name: String,
        /// Only for this deleted project.
        #[arg(long, value_name = "PROJECT")]
        project: Option<String>,
    },
}
