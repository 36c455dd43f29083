//! Chores of the workspace: `cargo xtask sim`, `cargo xtask mutants`.

#![forbid(unsafe_code)]

mod mutants;
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
    /// Makes faults in a copy of the engine, and checks that the simulation notices each
    Mutants(mutants::MutantsArgs),
}

fn main() -> anyhow::Result<ExitCode> {
    match Args::parse().chore {
        Chore::Sim(args) => Ok(sim::main(&args)),
        Chore::Mutants(args) => mutants::main(&args),
    }
}
