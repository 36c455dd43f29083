//! Chores of the workspace: `cargo xtask sim`.

#![forbid(unsafe_code)]

mod sim;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Chores of the workspace")]
struct Args {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Runs the engine on simulated devices through random histories, and checks its invariants after every operation
    Sim(sim::SimArgs),
}

fn main() -> anyhow::Result<ExitCode> {
    match Args::parse().chore {
        Chore::Sim(args) => Ok(sim::main(&args)),
    }
}
