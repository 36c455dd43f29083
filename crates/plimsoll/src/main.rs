//! The program: draws pictures with diffusion models inside a hard memory budget.
//!
//! What always holds: an error is one line on stderr that says what, where and what to do; the exit code is 2 for a
//! wrong command line or request, and 1 for a failure, whatever stdout and stderr are; no file is ever half-written under its final name.

mod args;
mod bench;
mod budget;
mod built_in;
mod cache_folder;
mod console;
mod demand;
mod failure;
mod file_name;
mod generate;
mod inspect;
mod interrupt;
mod memory_table;
mod output;
mod picture_metadata;
mod plan;
mod png_reader;
mod png_writer;
mod process_memory;
mod progress;
mod regular_file;
mod unfinished;

use std::process::ExitCode;

use crate::args::{Cli, Command};
use crate::failure::Failure;

fn main() -> ExitCode {
    let outcome = Cli::from_command_line().and_then(|cli| {
        interrupt::watch();
        match cli.command {
            Command::Generate(args) => generate::run(&args),
            Command::Inspect(args) => inspect::run(&args),
            Command::Plan(args) => plan::run(&args),
            Command::Bench(args) => bench::run(&args),
        }
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Shown(code)) => code,
        Err(failure) => {
            console::complain(&failure.line());
            failure.exit_code()
        }
    }
}
