//! Mutants.
#[derive(clap::Args)]
pub(crate) struct MutantsArgs {}
pub(crate) fn main(_args: &MutantsArgs) -> anyhow::Result<std::process::ExitCode> {
    anyhow::bail!("later")
}
