//! The `bailiwick` command: what it starts, in which order.

use std::process::ExitCode;

use bailiwick::cli::args::{Cli, Command};
use bailiwick::cli::exit::{self, Failure};
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

fn run(command: Command) -> exit::Outcome {
    match command {
        Command::Serve(_) | Command::RecoverAdmin(_) => {
            Err(Failure::Failed("this build has no service yet".to_owned()))
        }
        _ => Err(Failure::Failed("this build has no such command yet".to_owned())),
    }
}
