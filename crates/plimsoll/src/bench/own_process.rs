//! A run of this program in a process of its own, which prints JSON.

use std::process::{Command, Output};

use anyhow::{Context, anyhow};

use crate::failure::Failure;

/// This program, about to be run.
pub(super) fn command() -> anyhow::Result<Command> {
    Ok(Command::new(std::env::current_exe().context("this program's own path can't be found")?))
}

/// What it printed.
///
/// # Errors
/// What it said, if it failed.
pub(super) fn json(output: &Output) -> Result<serde_json::Value, Failure> {
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let line = said.trim().trim_start_matches("error: ");
        return Err(match output.status.code() {
            Some(2) => Failure::usage(line),
            _ => anyhow!("a run was refused: {line}").into(),
        });
    }
    Ok(serde_json::from_slice(&output.stdout).context("a run printed no JSON")?)
}
