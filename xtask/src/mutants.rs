//! `cargo xtask mutants`: whether the simulation notices the faults that it is there for.
//!
//! Each of a table of faults is put into a copy of the workspace, one at a time, and what is to notice it is run: the
//! simulation, or a package's tests. The unchanged copy must pass first, a copy that does not compile is an error, and
//! the command fails if a fault goes unnoticed.
//!
//! Deliberately not a tool that makes up mutations: the table lists faults that have been made, here or elsewhere.

mod table;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output};
use std::time::Instant;

use anyhow::{Context, bail, ensure};

use table::{Check, Edit, MUTATIONS, Mutation};

/// What of the workspace is copied.
const COPIED: [&str; 5] = ["Cargo.toml", "Cargo.lock", ".cargo", "crates", "xtask"];
/// Seconds after which a run that does not end is ended.
const SECONDS_MAX: u64 = 300;

/// Which faults.
#[derive(clap::Args)]
pub(crate) struct MutantsArgs {
    /// Only this one
    #[arg(long)]
    only: Option<String>,
    /// Prints the table and runs nothing
    #[arg(long)]
    list: bool,
}

/// What became of a fault.
enum Verdict {
    /// The line that tells what noticed it.
    Caught(String),
    Survived,
}

/// Runs the faults; the exit code tells whether all were noticed.
pub(crate) fn main(args: &MutantsArgs) -> anyhow::Result<ExitCode> {
    let is_meant = |mutation: &&Mutation| args.only.as_ref().is_none_or(|only| only == mutation.name);
    let mutations: Vec<&Mutation> = MUTATIONS.iter().filter(is_meant).collect();
    ensure!(!mutations.is_empty(), "no such fault; see `cargo xtask mutants --list`");
    if args.list {
        mutations.iter().for_each(|mutation| println!("{}: {}", mutation.name, mutation.fault));
        return Ok(ExitCode::SUCCESS);
    }
    let copy = Copy::new()?;
    let begun = Instant::now();
    for check in [Check::Seeds(1000), Check::TestsOf("plimsoll-device")] {
        if let Verdict::Caught(by) = copy.verdict(check)? {
            bail!("the unchanged code fails already: {by}");
        }
    }
    let mut survivors = Vec::new();
    for mutation in &mutations {
        let verdict = copy.mutated(mutation).with_context(|| format!("the fault `{}`", mutation.name))?;
        match verdict {
            Verdict::Caught(by) => println!("{}: {by}", mutation.name),
            Verdict::Survived => {
                println!("{}: SURVIVED. {}", mutation.name, mutation.fault);
                survivors.push(mutation.name);
            }
        }
    }
    println!(
        "{} of {} faults were noticed, in {} s",
        mutations.len() - survivors.len(),
        mutations.len(),
        begun.elapsed().as_secs()
    );
    Ok(if survivors.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A copy of the workspace, with a build folder of its own.
struct Copy {
    tree: PathBuf,
    build: PathBuf,
}

impl Copy {
    fn new() -> anyhow::Result<Self> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the workspace")?.to_owned();
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| source.join("target"), PathBuf::from);
        let target = std::path::absolute(target)?;
        let (tree, build) = (target.join("mutants/tree"), target.join("mutants/build"));
        if tree.exists() {
            std::fs::remove_dir_all(&tree)?;
        }
        std::fs::create_dir_all(&tree)?;
        for name in COPIED {
            copy_all(&source.join(name), &tree.join(name)).with_context(|| format!("copying {name}"))?;
        }
        Ok(Self { tree, build })
    }

    /// Makes a fault, asks what is to notice it, and takes the fault back.
    fn mutated(&self, mutation: &Mutation) -> anyhow::Result<Verdict> {
        let mut true_texts = Vec::new();
        for Edit { file, find, replace } in mutation.edits {
            let path = self.tree.join(file);
            let text = std::fs::read_to_string(&path)?;
            ensure!(text.matches(find).count() == 1, "{find:?} does not occur once in {file}; mend the table");
            std::fs::write(&path, text.replace(find, replace))?;
            true_texts.push((path, text));
        }
        let verdict = self.verdict(mutation.caught_by);
        for (path, text) in true_texts.into_iter().rev() {
            std::fs::write(path, text)?;
        }
        verdict
    }

    fn verdict(&self, check: Check) -> anyhow::Result<Verdict> {
        match check {
            Check::Seeds(seeds) => {
                self.built(&["build", "--package", "xtask"])?;
                let mut simulation = Command::new("timeout");
                simulation.arg(SECONDS_MAX.to_string()).arg(self.build.join("debug/xtask"));
                let output = simulation.args(["sim", "--seeds", &seeds.to_string()]).output()?;
                verdict(&output, |line| line.starts_with("seed "))
            }
            Check::TestsOf(package) => {
                self.built(&["test", "--package", package, "--lib", "--tests", "--no-run"])?;
                let output =
                    self.cargo(&["test", "--package", package, "--lib", "--tests", "--no-fail-fast"]).output()?;
                verdict(&output, |line| line.starts_with("---- "))
            }
        }
    }

    /// Builds; that must succeed, or the table is wrong.
    fn built(&self, args: &[&str]) -> anyhow::Result<()> {
        let output = self.cargo(args).output().context("cargo can't be started")?;
        ensure!(output.status.success(), "it does not compile:\n{}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }

    fn cargo(&self, args: &[&str]) -> Command {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        // A backtrace for every panic that a fault causes would take most of the time.
        cargo.current_dir(&self.tree).env("CARGO_TARGET_DIR", &self.build).env("RUST_BACKTRACE", "0");
        cargo.args(args).args(["--locked", "--quiet"]);
        cargo
    }
}

/// What the exit status and the telling lines say. A run that ends for another reason than a check has told nothing.
fn verdict(output: &Output, tells: impl Fn(&str) -> bool) -> anyhow::Result<Verdict> {
    if output.status.success() {
        return Ok(Verdict::Survived);
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find(|line| tells(line));
    let line = line.with_context(|| format!("no check failed, but it ends with {}", output.status))?;
    Ok(Verdict::Caught(line.chars().take(200).collect()))
}

fn copy_all(from: &Path, to: &Path) -> std::io::Result<()> {
    if !from.is_dir() {
        return std::fs::copy(from, to).map(drop);
    }
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        copy_all(&entry.path(), &to.join(entry.file_name()))?;
    }
    Ok(())
}
