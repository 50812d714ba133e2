//! The `bailiwick` command: what it starts, in which order.

use std::process::ExitCode;

use bailiwick::cli::args::{Cli, Command};
use bailiwick::cli::exit::{self, Failure, Outcome};
use bailiwick::cli::{accounts, audit_log, clusters, explain, import, kubeconfig, login, projects, resources};
use bailiwick::serve;
use clap::Parser;

/// Faster and more even than the system's allocator under many short requests.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // Before anything else: two providers may be linked in, and the first use would have to guess.
    if rustls::crypto::aws_lc_rs::default_provider().install_default().is_err() {
        return exit::finish(Err(Failure::Failed("a crypto provider is installed already".to_owned())));
    }
    let Cli { command } = Cli::parse();
    exit::finish(run(command))
}

fn run(command: Command) -> Outcome {
    match command {
        Command::Serve(args) => serve::run(&args),
        Command::RecoverAdmin(args) => serve::recover_admin(&args),
        Command::Backup(args) => serve::backup(&args),
        Command::Restore(args) => serve::restore(&args),
        Command::Keys(args) => serve::keys(&args),
        Command::Login(args) => client(login::login(args)),
        Command::Logout(args) => client(login::logout(args)),
        Command::Whoami(args) => client(login::whoami(args)),
        Command::Get(args) => client(resources::get(args)),
        Command::Apply(args) => client(resources::apply(args)),
        Command::Delete(args) => client(resources::delete(args)),
        Command::User(args) => client(accounts::user(args)),
        Command::Token(args) => client(accounts::token(args)),
        Command::Kubeconfig(args) => client(kubeconfig::run(args)),
        Command::Cluster(args) => client(clusters::run(args)),
        Command::Project(args) => client(projects::run(args)),
        Command::Import(args) => import::run(args),
        Command::Audit(args) => client(audit_log::run(args)),
        Command::Why(args) => client(explain::why(args)),
        Command::WhoCan(args) => client(explain::who_can(args)),
    }
}

/// Runs a command that talks to a service: one thread is plenty.
fn client(command: impl Future<Output = Outcome>) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|e| Failure::Failed(format!("cannot start: {e}")))?.block_on(command)
}
