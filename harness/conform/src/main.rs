//! The command.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use pmi_conform::serve::{self, ServeOptions};
use pmi_reference::Config;

#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a program under the reference process manager.
    Serve(Serve),
}

#[derive(Args)]
struct Serve {
    /// Number of processes.
    #[arg(short = 'n', long = "ranks", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    ranks: u32,
    /// Number of nodes that the processes are told they are on.
    #[arg(long, default_value_t = 1)]
    nodes: u32,
    /// Log what is started and what ends.
    #[arg(short, long)]
    verbose: bool,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true)]
    command: Vec<OsString>,
}

fn main() -> ExitCode {
    let Command::Serve(Serve { ranks, nodes, verbose, command }) = Cli::parse().command;
    let config = Config { nodes, ..Config::default() };
    match serve::run(ServeOptions { ranks, config, command, verbose }) {
        Ok(status) => ExitCode::from(status as u8),
        Err(error) => {
            eprintln!("pmi-conform serve: {error}");
            ExitCode::from(2)
        }
    }
}
