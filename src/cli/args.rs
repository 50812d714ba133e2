//! The command line, as clap reads it. Help texts are the reference; examples stand at the end of each.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use super::exit;
use super::output::Format;
use super::time::{Lifetime, Moment};

mod clusters;
mod explain;
mod import;
mod projects;
mod serve;

pub use clusters::{ClusterArgs, ClusterCommand};
pub use explain::{AskArgs, WhoCanArgs, WhyArgs};
pub use import::{ImportArgs, ImportCommand, ImportFormat, RancherArgs};
pub use projects::{NamespaceCommand, ProjectArgs, ProjectCommand};
pub use serve::{BackupArgs, HostArgs, KeysArgs, KeysCommand, RecoverAdminArgs, RestoreArgs, ServeArgs};

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
    /// Copy the store into a file, on the host of the service, which may run.
    Backup(BackupArgs),
    /// Put a backup in the place of the store, on the host of the service, which must not run.
    Restore(RestoreArgs),
    /// Rotate the master key, on the host of the service.
    Keys(KeysArgs),
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
    /// Create, delete, move and adopt the namespaces of a project.
    Project(ProjectArgs),
    /// Translate what another platform exports into resources of this one. Needs no server.
    Import(ImportArgs),
    /// Read the audit log.
    Audit(AuditArgs),
    /// Why you may do something in a cluster, or what is missing and who can grant it.
    Why(WhyArgs),
    /// Who can do something in a namespace, and by which grant.
    WhoCan(WhoCanArgs),
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
  bailiwick login https://bailiwick.example.com -u jane --password-stdin < password-file

The sign-in is kept in $XDG_CONFIG_HOME/bailiwick/config.json (0600), the CA within it. \
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
What a file says replaces the whole spec of the object; labels and annotations that it does not name stay. \
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
For your own account the present password is asked first; with --password-stdin it is the first line, the new one the \
second. For another account standard input holds the new password only.

Examples:
  bailiwick user set-password
  bailiwick user set-password jane --must-change --password-stdin < password-file")]
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

With --merge everything else in the file stays as it is. Entries of the same name are replaced only where they are \
ours: a cluster whose server is at this service, a context on such a cluster, a user whose token is one of ours and \
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

/// Options of `audit`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bailiwick audit --user jane --since 1h
  bailiwick audit --refused --cluster demo --limit 20
  bailiwick audit --since 2026-01-01T00:00:00Z -o json | jq -r .verb | sort | uniq -c
  bailiwick audit verify")]
#[command(args_conflicts_with_subcommands = true)]
pub struct AuditArgs {
    /// What else can be done with the log.
    #[command(subcommand)]
    pub command: Option<AuditCommand>,
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
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: u32,
    /// `json` prints the records as they are, one a line.
    #[arg(long, short, value_enum, default_value_t = Format::Table)]
    pub output: Format,
    /// Server and credential.
    #[command(flatten)]
    pub connect: Connect,
}

/// Acts on the audit log.
#[derive(Debug, Subcommand)]
pub enum AuditCommand {
    /// Verify that every line of the log is as it was written, and that none is missing.
    ///
    /// Done by the service, which has the key. Exits 1 where something is wrong, and names the file and the line.
    Verify(VerifyArgs),
}

/// Options of `audit verify`.
#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// `json` prints the whole result.
    #[arg(long, short, value_enum, default_value_t = Format::Table)]
    pub output: Format,
    /// Server and credential.
    #[command(flatten)]
    pub connect: Connect,
}

#[cfg(test)]
mod tests;
