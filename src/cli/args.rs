//! The command line, as clap reads it. Help texts are the reference; examples stand at the end of each.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use super::exit;
use super::output::Format;
use super::time::{Lifetime, Moment};

mod serve;

pub use serve::{RecoverAdminArgs, ServeArgs};

/// Access and project isolation for fleets of Kubernetes clusters.
#[derive(Debug, Parser)]
#[command(name = "bailiwick", version, propagate_version = true, arg_required_else_help = true, after_help = exit::HELP)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the service.
    Serve(Box<ServeArgs>),
    /// Give the administrator a new password, on the host of the service.
    RecoverAdmin(RecoverAdminArgs),
    /// Sign in and remember it; adds the context `bailiwick` to the kubeconfig.
    Login(LoginArgs),
    /// Sign out: the token is revoked and forgotten.
    Logout(LogoutArgs),
    /// Show who you are and what is yours.
    Whoami(WhoamiArgs),
    /// Show resources of the service.
    Get(GetArgs),
    /// Create or change resources from files.
    Apply(ApplyArgs),
    /// Delete resources.
    Delete(DeleteArgs),
    /// Suspend and resume accounts, set passwords.
    User(UserArgs),
    /// List, make and revoke tokens.
    Token(TokenArgs),
    /// Get a kubeconfig for your clusters and projects.
    Kubeconfig(KubeconfigArgs),
    /// Import, check and forget clusters.
    Cluster(ClusterArgs),
    /// Create, delete and move the namespaces of a project.
    Project(ProjectArgs),
    /// Read the audit log.
    Audit(AuditArgs),
}

/// Which server, and as whom. Without any of these: the one that `bailiwick login` remembered.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Connection")]
pub struct Connect {
    /// Address of the service, https://HOST[:PORT].
    #[arg(long, env = "BAILIWICK_URL", value_name = "URL", global = true)]
    pub url: Option<String>,
    /// CA certificates (PEM) that the service's certificate must chain to; nothing else is trusted then.
    ///
    /// Without it: what was given at `login`, or the system's certificates. An unknown certificate is never accepted.
    #[arg(long, env = "BAILIWICK_CA_FILE", value_name = "FILE", global = true)]
    pub ca_file: Option<PathBuf>,
    /// File with a token of audience `api`, used in place of the remembered sign-in.
    #[arg(long, env = "BAILIWICK_TOKEN_FILE", value_name = "FILE", global = true)]
    pub token_file: Option<PathBuf>,
}

/// Options of `login`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bailiwick login https://bailiwick.example.com
  bailiwick login https://bailiwick.example.com --ca-file company-ca.pem --username jane
  printf '%s\\n' \"$PASSWORD\" | bailiwick login https://bailiwick.example.com --username jane --password-stdin

The sign-in is kept in $XDG_CONFIG_HOME/bailiwick/config.json (0600), the CA within it.
Get the CA file from your administrator: it is never fetched from an address that cannot be verified yet.")]
pub struct LoginArgs {
    /// Address of the service, https://HOST[:PORT].
    #[arg(env = "BAILIWICK_URL", value_name = "URL")]
    pub url: String,
    /// CA certificates (PEM) that the service's certificate must chain to. Default: the system's.
    #[arg(long, env = "BAILIWICK_CA_FILE", value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
    /// Account; asked for where it is absent.
    #[arg(long, short, value_name = "NAME")]
    pub username: Option<String>,
    /// Read the password from the first line of standard input; a second line is the new password, used only where
    /// the password must be changed.
    #[arg(long, requires = "username")]
    pub password_stdin: bool,
    /// Leave the kubeconfig alone.
    #[arg(long)]
    pub no_kubeconfig: bool,
}

/// Options of `logout`.
#[derive(Debug, Args)]
pub struct LogoutArgs {
    /// Leave the kubeconfig alone.
    #[arg(long)]
    pub no_kubeconfig: bool,
}

/// Options of `whoami`.
#[derive(Debug, Args)]
pub struct WhoamiArgs {
    /// Server and credential.
    #[command(flatten)]
    pub connect: Connect,
    /// Output format.
    #[arg(long, short, value_enum, default_value_t = Format::Table)]
    pub output: Format,
}

/// Options of `get`.
#[derive(Debug, Args)]
#[command(after_help = "\
Kinds: cluster, user, team, accessrole, grant, project, token; singular or plural.

Examples:
  bailiwick get projects
  bailiwick get project shop -o yaml
  bailiwick get grants -o json | jq '.items[].spec'")]
pub struct GetArgs {
    /// Kind, singular or plural, or KIND/NAME.
    pub kind: String,
    /// Names; none: all that you may see.
    pub names: Vec<String>,
    /// Only objects with these labels, `key=value[,key=value…]`.
    #[arg(long, short = 'l', value_name = "LABELS")]
    pub selector: Option<String>,
    /// Output format.
    #[arg(long, short, value_enum, default_value_t = Format::Table)]
    pub output: Format,
    /// Server and credential.
    #[command(flatten)]
    pub connect: Connect,
}

/// Options of `apply`.
#[derive(Debug, Args)]
#[command(after_help = "\
What a file says replaces the whole spec of the object; labels and annotations that it does not name stay.
Objects are applied in the order of their dependencies, whatever their order in the files.

Examples:
  bailiwick apply -f platform/
  bailiwick apply -f shop.yaml --dry-run
  kustomize build platform | bailiwick apply -f -")]
pub struct ApplyArgs {
    /// File, directory (its *.yaml, *.yml and *.json) or `-` for standard input; may be repeated.
    #[arg(long, short, required = true, value_name = "FILE|DIR|-")]
    pub filename: Vec<PathBuf>,
    /// Let the server check everything and change nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// `name` prints no more than the names, `json` the objects as the server has them now.
    #[arg(long, short, value_enum, default_value_t = Format::Table)]
    pub output: Format,
    /// Server and credential.
    #[command(flatten)]
    pub connect: Connect,
}

/// Options of `delete`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bailiwick delete grant shop-dev-member
  bailiwick delete -f shop.yaml --ignore-not-found")]
pub struct DeleteArgs {
    /// Kind, singular or plural, or KIND/NAME.
    #[arg(required_unless_present = "filename", conflicts_with = "filename")]
    pub kind: Option<String>,
    /// Names.
    pub names: Vec<String>,
    /// Delete what these files describe, in reverse order of dependencies.
    #[arg(long, short, value_name = "FILE|DIR|-")]
    pub filename: Vec<PathBuf>,
    /// An object that is not there is no error.
    #[arg(long)]
    pub ignore_not_found: bool,
    /// Let the server check and delete nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Server and credential.
    #[command(flatten)]
    pub connect: Connect,
}

/// `user`.
#[derive(Debug, Args)]
pub struct UserArgs {
    /// Server and credential.
    #[command(flatten)]
    pub connect: Connect,
    /// What to do.
    #[command(subcommand)]
    pub command: UserCommand,
}

/// Commands on accounts.
#[derive(Debug, Subcommand)]
pub enum UserCommand {
    /// Cut an account off, open sessions included. Its tokens are dead for good.
    #[command(
        visible_alias = "disable",
        after_help = "\
Suspension is no desired state: applying a manifest again revives nobody, only `bailiwick user resume` does.

Example:
  bailiwick user suspend jane --reason 'laptop lost'"
    )]
    Suspend {
        /// Account.
        name: String,
        /// Why; goes into the audit log.
        #[arg(long, default_value = "")]
        reason: String,
    },
    /// Let a suspended account sign in again. No old token comes back to life.
    Resume {
        /// Account.
        name: String,
    },
    /// Set a password. All tokens of the account die.
    #[command(after_help = "\
For your own account the present password is asked first; with --password-stdin it is the first line, the new one the
second. For another account standard input holds the new password only.

Examples:
  bailiwick user set-password
  openssl rand -base64 18 | tee /dev/tty | bailiwick user set-password jane --password-stdin --must-change")]
    SetPassword {
        /// Account; your own where it is absent.
        name: Option<String>,
        /// Read passwords from standard input.
        #[arg(long)]
        password_stdin: bool,
        /// The account must choose another one at its next sign-in.
        #[arg(long, requires = "name")]
        must_change: bool,
    },
}

/// `token`.
#[derive(Debug, Args)]
pub struct TokenArgs {
    /// Server and credential.
    #[command(flatten)]
    pub connect: Connect,
    /// What to do.
    #[command(subcommand)]
    pub command: TokenCommand,
}

/// Commands on tokens.
#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Show tokens: whose, what for, last used.
    List {
        /// Only this account's.
        #[arg(long, value_name = "NAME")]
        user: Option<String>,
        /// Output format.
        #[arg(long, short, value_enum, default_value_t = Format::Table)]
        output: Format,
    },
    /// Make a token. It is shown once, alone on standard output.
    #[command(after_help = "\
Examples:
  bailiwick token create --project shop --expires 12h
  bailiwick token create --user ci-shop --cluster demo --read-only --expires 90d > token
  bailiwick token create --audience api --description pipeline -o json")]
    Create {
        /// Account; your own where it is absent.
        #[arg(long, value_name = "NAME")]
        user: Option<String>,
        /// Where it is accepted: at the clusters or at the service's own API, never both.
        #[arg(long, value_enum, default_value_t = TokenAudience::Kube)]
        audience: TokenAudience,
        /// What it is limited to.
        #[command(flatten)]
        scopes: ScopeArgs,
        /// What you call it.
        #[arg(long, default_value = "")]
        description: String,
        /// `json` prints the token with its resource.
        #[arg(long, short, value_enum, default_value_t = Format::Table)]
        output: Format,
    },
    /// Revoke tokens by their ids, at once.
    Revoke {
        /// Ids, from `bailiwick token list`.
        #[arg(required = true)]
        ids: Vec<String>,
    },
}

/// Where a token is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TokenAudience {
    /// Only at the clusters.
    Kube,
    /// Only at the service's own API.
    Api,
}

/// What a token is limited to.
#[derive(Debug, Clone, Default, Args)]
pub struct ScopeArgs {
    /// Only this cluster; may be repeated.
    #[arg(long = "cluster", value_name = "CLUSTER")]
    pub clusters: Vec<String>,
    /// Only this project; may be repeated.
    #[arg(long = "project", value_name = "PROJECT")]
    pub projects: Vec<String>,
    /// Only reading.
    #[arg(long)]
    pub read_only: bool,
    /// How long it lives: 30d, 12h, 45m, 90s. Default and maximum are the server's.
    #[arg(long, value_name = "DURATION")]
    pub expires: Option<Lifetime>,
}

/// Options of `kubeconfig`.
#[derive(Debug, Args)]
#[command(after_help = "\
Contexts are named <cluster>, for all that is yours on a cluster, and <project>@<cluster>, for one project.

With --merge everything else in the file stays as it is. Entries of the same name are replaced only where they are
ours: a cluster whose server is at this service, a context on such a cluster, a user whose token is one of ours and
that no context of another server uses. Anything else is refused, naming the entries, and the file stays unchanged.

Examples:
  bailiwick kubeconfig -o shop.yaml
  bailiwick kubeconfig --project shop --expires 12h --merge ~/.kube/config
  KUBECONFIG=shop.yaml kubectl --context shop@demo get pods")]
pub struct KubeconfigArgs {
    /// What the token in it is limited to.
    #[command(flatten)]
    pub scopes: ScopeArgs,
    /// For another account (administrators, for machines).
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// What you call its token.
    #[arg(long, default_value = "kubeconfig")]
    pub description: String,
    /// Write it to this file (0600) instead of standard output.
    #[arg(long, short, value_name = "FILE", conflicts_with = "merge")]
    pub output: Option<PathBuf>,
    /// Add it to this kubeconfig (0600), made if it does not exist.
    #[arg(long, value_name = "FILE")]
    pub merge: Option<PathBuf>,
    /// Server and credential.
    #[command(flatten)]
    pub connect: Connect,
}

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
  bailiwick cluster manifest demo | kubectl --context demo-admin apply -f -")]
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
    /// Namespaces of projects.
    #[command(visible_alias = "ns")]
    Namespace {
        /// What to do.
        #[command(subcommand)]
        command: NamespaceCommand,
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

/// Options of `audit`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bailiwick audit --user jane --since 1h
  bailiwick audit --refused --cluster demo --limit 20
  bailiwick audit --since 2026-01-01T00:00:00Z -o json | jq -r .verb | sort | uniq -c")]
pub struct AuditArgs {
    /// Only this account's acts.
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// Only on this cluster.
    #[arg(long, value_name = "CLUSTER")]
    pub cluster: Option<String>,
    /// Only in this project.
    #[arg(long, value_name = "PROJECT")]
    pub project: Option<String>,
    /// Only this verb: get, create, login, suspend, …
    #[arg(long, value_name = "VERB")]
    pub verb: Option<String>,
    /// Only what was refused.
    #[arg(long)]
    pub refused: bool,
    /// Only since then: a time (RFC 3339) or an age such as 1h or 7d.
    #[arg(long, value_name = "TIME")]
    pub since: Option<Moment>,
    /// Only until then, written likewise.
    #[arg(long, value_name = "TIME")]
    pub until: Option<Moment>,
    /// At most so many records, the latest.
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub limit: u32,
    /// `json` prints the records as they are, one a line.
    #[arg(long, short, value_enum, default_value_t = Format::Table)]
    pub output: Format,
    /// Server and credential.
    #[command(flatten)]
    pub connect: Connect,
}

#[cfg(test)]
mod tests;
