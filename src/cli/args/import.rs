//! `bailiwick import`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use crate::cli::import::rancher::RoleStyle;

/// `import`.
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// What to read.
    #[command(subcommand)]
    pub command: ImportCommand,
}

/// The platforms that can be read.
#[derive(Debug, Subcommand)]
pub enum ImportCommand {
    /// Read projects, members, role templates, quotas and namespaces of a Rancher.
    ///
    /// Nothing is changed anywhere: the resources are printed, and every loss is named on standard error and beside the
    /// resource. Nothing is granted that Rancher did not grant; what cannot be told for certain is left out, and said.
    Rancher(RancherArgs),
}

/// Options of `import rancher`.
#[derive(Debug, Args)]
#[command(after_help = "\
Export from Rancher's own cluster, and the namespaces from each cluster that it manages:
  kubectl --context rancher get -A -o yaml clusters.management.cattle.io,projects.management.cattle.io,\
users.management.cattle.io,roletemplates.management.cattle.io,projectroletemplatebindings.management.cattle.io,\
clusterroletemplatebindings.management.cattle.io,globalrolebindings.management.cattle.io > rancher.yaml
  kubectl --context demo-admin get namespaces -o yaml > demo.yaml

Then translate, read what is lost, see what would change, apply:
  bailiwick import rancher -f rancher.yaml -f demo.yaml --cluster c-m-abc12=demo > platform.yaml
  bailiwick apply -f platform.yaml --dry-run
  bailiwick apply -f platform.yaml

`created` in the dry run is new; `configured` is there already, and would be overwritten. The clusters come first, by \
`bailiwick cluster import`. With -o json the list has a member `losses`: what, source, place, field, resource, message.

What becomes of what:
  Project           a Project on one cluster; two of one name in two clusters become two, told apart by the cluster
  RoleTemplate      an AccessRole rancher-<name> with single rights, without wildcards, and without what no role can \
have here: namespaces, quotas, */proxy, impersonate, bind, escalate, Rancher's own API
  member of project a Grant on the Project; cluster-owner: owner on the Cluster; another role on a cluster: the same \
role in each project there
  user              a User without password; what a provider knows of them is not linked
  group             a Team; its members are known to the provider only, and are added by hand
  quota, defaults   quota and shares of the Project; containerDefaults
Roles of external templates are in ClusterRoles: add `kubectl get clusterrole NAME -o yaml` to the export. Of view, \
edit and admin it is known what every Kubernetes has in them.")]
pub struct RancherArgs {
    /// File, directory (its *.yaml, *.yml and *.json) or `-` for standard input; may be repeated.
    #[arg(long, short, required = true, value_name = "FILE|DIR|-")]
    pub filename: Vec<PathBuf>,
    /// Name that a cluster has here, by Rancher's id; may be repeated. Without it: made from its display name.
    #[arg(long = "cluster", value_name = "ID=NAME")]
    pub clusters: Vec<String>,
    /// `built-in` grants owner, member and viewer to owners, members and readers of projects: owners manage their
    /// project then. What these roles give beyond Rancher's is reported.
    #[arg(long, value_enum, default_value_t = RoleStyle::Exact)]
    pub roles: RoleStyle,
    /// Output format.
    #[arg(long, short, value_enum, default_value_t = ImportFormat::Yaml)]
    pub output: ImportFormat,
}

/// How resources are printed that are to be applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ImportFormat {
    /// A document for each, with its losses in comments.
    Yaml,
    /// A List, with all losses in the member `losses`.
    Json,
}
