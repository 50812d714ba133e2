//! `bailiwick why` and `bailiwick who-can`.

use clap::Args;

use super::Connect;
use crate::cli::output::Format;

/// Where, and how it is shown: of both questions.
#[derive(Debug, Args)]
pub struct AskArgs {
    /// Cluster; not needed where only one is open to you.
    #[arg(long, value_name = "CLUSTER")]
    pub cluster: Option<String>,
    /// As in the context of this project, `<project>@<cluster>`.
    #[arg(long, value_name = "PROJECT")]
    pub project: Option<String>,
    /// Subresource, as in pods/log.
    #[arg(long, value_name = "SUBRESOURCE")]
    pub subresource: Option<String>,
    /// Output format.
    #[arg(long, short, value_enum, default_value_t = Format::Table)]
    pub output: Format,
    /// Server and credential.
    #[command(flatten)]
    pub connect: Connect,
}

/// Options of `why`.
#[derive(Debug, Args)]
#[command(after_help = "\
The answer is the proxy's own decision. It names the grant, the role and its rule; or what is missing, which grants of \
yours fall short and why, which role would do, and who can grant it, by name where you may see the names. \
What the cluster itself refuses afterwards (quota, Pod Security, its guard policies) is no matter of rights and not asked.

VERB is one of get, list, watch, create, update, patch, delete, deletecollection. RESOURCE is written as for kubectl: \
pods, po, deployments.apps, widgets.example.com; a subresource is written pods/exec. A path such as /version is asked \
about with get. About others: platform administrators and auditors anywhere, owners in the namespaces of their project.

Exit codes: 0 permitted; 1 refused (the answer is on standard output), or not answered (the reason is on standard \
error); 2 used wrongly; 3 the server is not reached or not trusted; 4 not signed in.

Examples:
  bailiwick why create deployments -n shop-dev
  bailiwick why get pods/exec web-0 -n shop-dev --cluster demo
  bailiwick why jane delete secrets -n shop-prod
  bailiwick why ci-shop patch deployments.apps -n shop-prod --by k3v9x2q7m1ab4c8d -o json")]
pub struct WhyArgs {
    /// Account, if it is not your own; then verb, resource and, if it is about one object, its name.
    #[arg(required = true, num_args = 2..=4, value_names = ["[USER] VERB", "RESOURCE", "NAME"])]
    pub question: Vec<String>,
    /// Namespace; none: the whole cluster.
    #[arg(long, short, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// By this token of the account, with its limits: an id from `bailiwick token list`.
    #[arg(long, value_name = "ID")]
    pub by: Option<String>,
    /// Where, and how it is shown.
    #[command(flatten)]
    pub ask: AskArgs,
}

/// Options of `who-can`.
#[derive(Debug, Args)]
#[command(after_help = "\
Lists every account that the proxy would permit it now, with the grant, role and rule that do, and every grant that \
gives it, teams without members included. For owners of the project that has the namespace, platform administrators \
and auditors. Who has access to the cluster past this service is not listed.

Examples:
  bailiwick who-can get secrets -n shop-prod
  bailiwick who-can create pods/exec -n shop-prod --cluster demo -o json | jq -r '.users[].name'")]
pub struct WhoCanArgs {
    /// One of get, list, watch, create, update, patch, delete, deletecollection.
    #[arg(value_name = "VERB")]
    pub verb: String,
    /// Resource, as for kubectl, or RESOURCE/SUBRESOURCE.
    #[arg(value_name = "RESOURCE")]
    pub resource: String,
    /// One object; none: as for a collection, or an object that no rule names.
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// Namespace.
    #[arg(long, short, value_name = "NAMESPACE")]
    pub namespace: String,
    /// Where, and how it is shown.
    #[command(flatten)]
    pub ask: AskArgs,
}
