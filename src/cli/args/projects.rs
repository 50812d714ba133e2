//! `bailiwick project`.

use clap::{Args, Subcommand};

use super::Connect;
use crate::cli::output::Format;

/// `project`.
#[derive(Debug, Args)]
pub struct ProjectArgs {
    /// Server and credential.
    #[command(flatten)]
    pub connect: Connect,
    /// What to do.
    #[command(subcommand)]
    pub command: ProjectCommand,
}

/// Commands on projects.
#[derive(Debug, Subcommand)]
pub enum ProjectCommand {
    /// How a project is doing: its namespaces, their quota, Pods that were refused, and what to do about it.
    ///
    /// Refused Pods are told for as long as their clusters keep the events, which is an hour. What a stricter Pod Security
    /// level would refuse is the clusters' own answer to a dry run; nothing is changed.
    #[command(after_help = "\
Examples:
  bailiwick project status shop
  bailiwick project status shop --level restricted
  bailiwick project status shop -o json")]
    Status {
        /// Project.
        project: String,
        /// Pod Security level to try; otherwise the one above that which is enforced.
        #[arg(long, value_parser = ["privileged", "baseline", "restricted"])]
        level: Option<String>,
        /// Output format.
        #[arg(long, short, value_enum, default_value_t = Format::Table)]
        output: Format,
    },
    /// Namespaces of projects.
    #[command(visible_alias = "ns")]
    Namespace {
        /// What to do.
        #[command(subcommand)]
        command: NamespaceCommand,
    },
    /// Adopt a namespace that is there already, after telling what that means.
    ///
    /// The cluster's administrator consents first, by the annotation bailiwick.dev/adopt with the project's UID. What
    /// stands in the namespace stays: RoleBindings of others, running Pods.
    #[command(after_help = "\
Examples:
  bailiwick project adopt shop demo/shop-legacy --dry-run
  bailiwick project adopt shop demo/shop-legacy")]
    Adopt {
        /// Project.
        project: String,
        /// Cluster and namespace.
        #[arg(value_name = "CLUSTER/NAMESPACE")]
        place: String,
        /// Only tell what it means.
        #[arg(long)]
        dry_run: bool,
        /// Output format.
        #[arg(long, short, value_enum, default_value_t = Format::Table)]
        output: Format,
    },
    /// Give back a namespace that was adopted: nothing of the project stays in it, and all else does.
    Release {
        /// Project.
        project: String,
        /// Cluster and namespace.
        #[arg(value_name = "CLUSTER/NAMESPACE")]
        place: String,
    },
}

/// Commands on the namespaces of projects.
#[derive(Debug, Subcommand)]
pub enum NamespaceCommand {
    /// Create a namespace; answers when it can be used.
    #[command(after_help = "\
Example:
  bailiwick project namespace create shop shop-cart --cluster demo")]
    Create {
        /// Project.
        project: String,
        /// Namespace; begins with the project's prefix.
        name: String,
        /// Cluster.
        #[arg(long, value_name = "CLUSTER")]
        cluster: String,
        /// Output format.
        #[arg(long, short, value_enum, default_value_t = Format::Table)]
        output: Format,
    },
    /// Delete a namespace that was created so, with all that is in it.
    Delete {
        /// Project.
        project: String,
        /// Namespace.
        name: String,
        /// Cluster.
        #[arg(long, value_name = "CLUSTER")]
        cluster: String,
    },
    /// Move a namespace to another project, with all that is in it. Nobody of the old project keeps a right.
    Move {
        /// Namespace.
        name: String,
        /// Cluster.
        #[arg(long, value_name = "CLUSTER")]
        cluster: String,
        /// Project that has it.
        #[arg(long, value_name = "PROJECT")]
        from: String,
        /// Project that gets it.
        #[arg(long, value_name = "PROJECT")]
        to: String,
    },
}
