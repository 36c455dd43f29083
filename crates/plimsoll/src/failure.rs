//! How a command ends badly: one line, and an exit code.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::process::ExitCode;

use anyhow::anyhow;
use plimsoll_cpu::CpuError;

use crate::console::escaped;

/// Why a command ends without success.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line or the request is wrong: exit code 2.
    Usage(String),
    /// Something failed: exit code 1.
    Failed(anyhow::Error),
    /// What there is to say has been said (help, version).
    Shown(ExitCode),
}

impl Failure {
    /// A wrong request.
    pub(crate) fn usage(what: impl ToString) -> Self {
        Self::Usage(what.to_string())
    }

    /// What went wrong, with its causes, as one line that can't steer a terminal, whatever the causes hold.
    pub(crate) fn line(&self) -> String {
        let text = match self {
            Self::Usage(what) => what.clone(),
            Self::Failed(error) => with_causes(error),
            Self::Shown(_) => String::new(),
        };
        let lines = text.split(['\n', '\r']).map(str::trim).filter(|line| !line.is_empty());
        escaped(&lines.collect::<Vec<_>>().join(" "))
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::Usage(_) => ExitCode::from(2),
            Self::Failed(_) => ExitCode::FAILURE,
            Self::Shown(code) => *code,
        }
    }
}

/// An error's text and those of its causes that it does not hold already.
fn with_causes(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

/// A file system's failure: "`path` can't be read: no such file or directory; check the name".
pub(crate) fn file_failure(path: &Path, what: &str, error: &io::Error, advice: &str) -> anyhow::Error {
    anyhow!("`{}` {what}: {}; {advice}", path.display(), reason(error))
}

/// Why a file can't be had, in words that are the same on every system where there are such words.
pub(crate) fn reason(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::InvalidFilename => "the name is too long, or not possible here".to_owned(),
        ErrorKind::NotFound => "no such file or folder".to_owned(),
        ErrorKind::AlreadyExists => "it is there already".to_owned(),
        kind => match kind.to_string() {
            vague if ["other error", "uncategorized error"].contains(&vague.as_str()) => error.to_string(),
            text => text,
        },
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Failed(error)
    }
}

impl From<CpuError> for Failure {
    fn from(error: CpuError) -> Self {
        match error {
            CpuError::Isa(error) => Self::usage(error),
            CpuError::Threads { .. } => Self::Failed(error.into()),
        }
    }
}

impl From<plimsoll_pipeline::PipelineError> for Failure {
    fn from(error: plimsoll_pipeline::PipelineError) -> Self {
        if error.is_usage() { Self::usage(error) } else { Self::Failed(error.into()) }
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn causes_are_told_once_and_on_one_line() {
        let error = io::Error::other("bad\nthing \u{1b}[31m");
        let error = Err::<(), _>(error).context("told already: bad\nthing \u{1b}[31m").context("above").unwrap_err();
        assert_eq!(Failure::from(error).line(), r"above: told already: bad thing \u{1b}[31m");
    }

    #[test]
    fn files_are_named_with_a_reason_and_advice() {
        let line = |kind: ErrorKind| {
            file_failure(Path::new("a.png"), "can't be read", &kind.into(), "check --image").to_string()
        };
        assert_eq!(line(ErrorKind::NotFound), "`a.png` can't be read: no such file or folder; check --image");
        assert_eq!(line(ErrorKind::PermissionDenied), "`a.png` can't be read: permission denied; check --image");
        let unnamed = io::Error::other("the cable is out");
        let unnamed = file_failure(Path::new("a.png"), "can't be read", &unnamed, "check --image").to_string();
        assert_eq!(unnamed, "`a.png` can't be read: the cable is out; check --image");
    }
}
