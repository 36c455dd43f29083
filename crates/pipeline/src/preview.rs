//! What denoising would take, found out without doing it.

use std::sync::Arc;

use plimsoll_device::ByteCount;
use plimsoll_residency::Component;

use crate::generate::rehearse_denoise;
use crate::{Pipeline, PipelineError, Request};

/// What denoising would take. No weight is read for it.
pub struct Preview {
    /// The denoiser, with its units, and with each unit's floating-point operations in a pass as its compute time: a
    /// nanosecond for each thousand, until a pass is measured.
    pub component: Arc<Component>,
    /// The most that its activations and workspaces take at once.
    pub activation_bytes: ByteCount,
}

impl Pipeline {
    /// What denoising for `request` would take.
    ///
    /// # Errors
    /// [`PipelineError`] for a request that can't be. Memory is not asked for: any amount will do.
    pub fn preview(&self, request: &Request) -> Result<Preview, PipelineError> {
        let guidance = self.check(request)?;
        let blank = self.blank_conditioning(&self.prompts(request, guidance)?);
        let job = self.denoise_job(request, guidance, &blank)?;
        let activation_bytes = self.unet.rehearse(|unet, run| rehearse_denoise(&job, unet, run))?;
        Ok(Preview { component: self.unet.component.clone(), activation_bytes })
    }
}
