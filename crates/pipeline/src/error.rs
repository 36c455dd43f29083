//! What can go wrong with a pipeline.

use plimsoll_device::{AllocError, ByteCount, DeviceError};
use plimsoll_models::ConfigError;
use plimsoll_models::clip::ClipError;
use plimsoll_models::srvgg::SrvggConfigError;
use plimsoll_models::unet::UnetError;
use plimsoll_nn::{BuildError, NnError};
use plimsoll_residency::{LeaseError, LoadError};
use plimsoll_sampling::{GuidanceError, NoiseConfigError, SampleError, ScheduleError};
use plimsoll_tensor::OpError;
use plimsoll_weights::RenameError;

use crate::source::SourceError;
use crate::tokenizer::{EncodeError, TokenizerError};

/// A model can't be opened, or a request can't be done.
#[derive(Debug, thiserror::Error)]
pub enum PipelineError {
    /// A file of the model can't be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A configuration is not supported.
    #[error("`{file}`: {source}")]
    Config {
        /// The file.
        file: String,
        /// What is wrong with it.
        source: ConfigError,
    },
    /// `model_index.json` describes no pipeline that is known here.
    #[error("`{file}`: {reason}")]
    ModelIndex {
        /// The file.
        file: String,
        /// What is wrong with it.
        reason: String,
    },
    /// `scheduler_config.json` can't be used.
    #[error("`{file}`: {source}")]
    Noise {
        /// The file.
        file: String,
        /// What is wrong with it.
        source: NoiseConfigError,
    },
    /// The tokenizer's files can't be used.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// A prompt can't be encoded.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// The weights are not of the model that the configuration describes.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// Two tensors have the name of one.
    #[error(transparent)]
    Rename(#[from] RenameError),
    /// A file is no upscaler of a known kind.
    #[error(transparent)]
    Upscaler(#[from] SrvggConfigError),
    /// The components don't fit together. They were taken from different models.
    #[error("the model's parts do not fit together: {0}; use the parts of one model")]
    Mismatch(String),
    /// The request asks for what can't be. Correct it.
    #[error("{0}")]
    Request(String),
    /// The steps can't be scheduled. Correct the request.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// The guidance is no number. Correct the request.
    #[error(transparent)]
    Guidance(#[from] GuidanceError),
    /// Not even the smallest plan of a phase fits; of several such phases, the one that needs most. Raise the budget to
    /// `needed`, draw a smaller picture, or use a smaller dtype or fewer offload streams.
    #[error(
        "`{component}` needs a budget of at least {} bytes ({needed}), {activation_bytes} of it for activations and \
         workspace, but the budget is {} bytes ({budget}): {} bytes short; raise the budget, draw a smaller picture, or \
         use --dtype bf16 or fewer --offload-streams",
        needed.0, budget.0, needed.saturating_sub(*budget).0
    )]
    OverBudget {
        /// The phase's component.
        component: String,
        /// What its smallest plan takes, activations included.
        needed: ByteCount,
        /// The line.
        budget: ByteCount,
        /// What activations and scratch memory take of it.
        activation_bytes: ByteCount,
    },
    /// A component can't be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A layer failed.
    #[error(transparent)]
    Nn(#[from] NnError),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The denoiser failed.
    #[error(transparent)]
    Unet(#[from] UnetError),
    /// The text encoder failed.
    #[error(transparent)]
    Clip(#[from] ClipError),
    /// The model gave numbers that are none. Use `--dtype f32`, or another model.
    #[error("{phase} gave values that are not finite numbers; use --dtype f32, or check the model's weights")]
    NotFinite {
        /// Where they came up.
        phase: crate::Phase,
    },
    /// The caller stopped the run.
    #[error("cancelled")]
    Cancelled,
}

impl PipelineError {
    /// Whether the request was wrong, rather than something having failed.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Request(_) | Self::Schedule(_) | Self::Guidance(_))
    }

    /// How many bytes an operation was short of, if that is what failed.
    pub(crate) fn missing_bytes(&self) -> Option<ByteCount> {
        let device = match self {
            Self::Device(error) => error,
            Self::Nn(error) | Self::Unet(UnetError::Nn(error)) => match error {
                NnError::Lease(LeaseError::Device(error)) | NnError::Op(OpError::Device(error)) => error,
                _ => return None,
            },
            _ => return None,
        };
        match device {
            DeviceError::Alloc(AllocError::OverBudget { needed, available, .. }) => Some(*needed - *available),
            DeviceError::Alloc(AllocError::Exhausted { needed, .. }) => Some(*needed),
            _ => None,
        }
    }
}

impl From<OpError> for PipelineError {
    fn from(error: OpError) -> Self {
        Self::Nn(error.into())
    }
}

impl From<SampleError<PipelineError>> for PipelineError {
    fn from(error: SampleError<PipelineError>) -> Self {
        match error {
            SampleError::Cancelled { .. } => Self::Cancelled,
            SampleError::Failed(error) => error,
        }
    }
}
