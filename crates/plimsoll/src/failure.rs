//! How a command ends badly: one line, and an exit code.

use std::process::ExitCode;

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

    /// What went wrong, with its causes, as one line whatever the causes hold.
    pub(crate) fn line(&self) -> String {
        let text = match self {
            Self::Usage(what) => what.clone(),
            Self::Failed(error) => format!("{error:#}"),
            Self::Shown(_) => String::new(),
        };
        text.split(['\n', '\r']).map(str::trim).filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::Usage(_) => ExitCode::from(2),
            Self::Failed(_) => ExitCode::FAILURE,
            Self::Shown(code) => *code,
        }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Failed(error)
    }
}

impl From<plimsoll_pipeline::PipelineError> for Failure {
    fn from(error: plimsoll_pipeline::PipelineError) -> Self {
        if error.is_usage() { Self::usage(error) } else { Self::Failed(error.into()) }
    }
}
