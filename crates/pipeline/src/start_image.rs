//! A picture to latents: where image to image starts.

use std::sync::Arc;

use plimsoll_models::vae::VaeEncoder;
use plimsoll_nn::Run;
use plimsoll_residency::Component;
use plimsoll_sampling::SeededNoise;

use crate::generate::{StartImage, Watch};
use crate::phase_component::{PhaseComponent, PhasePlan};
use crate::pipeline::Pipeline;
use crate::{Phase, PipelineError};

/// A start picture with its encoder's phase planned.
pub(crate) struct StartPlan<'a> {
    start: &'a StartImage,
    encoder: PhaseComponent<VaeEncoder>,
    phase: PhasePlan,
}

impl Pipeline {
    pub(crate) fn plan_start<'a>(&self, start: &'a StartImage) -> Result<StartPlan<'a>, PipelineError> {
        let encoder = self.vae_encoder()?;
        let size = [start.image.height(), start.image.width()];
        let phase = encoder.plan(&size, 1, |encoder, run| self.moments(encoder, run, start).map(drop))?;
        Ok(StartPlan { start, encoder, phase })
    }

    /// `[height, width, 2 * latent channels]`: means, then logarithms of variances.
    fn moments(&self, encoder: &VaeEncoder, run: &Run<'_>, start: &StartImage) -> Result<Vec<f32>, PipelineError> {
        let image = &start.image;
        let pixels = run.cx.upload(&image.to_signed(), &[1, image.height(), image.width(), 3], self.options.dtype)?;
        let moments = encoder.forward(run, &pixels)?;
        drop(pixels);
        Ok(run.cx.download(&moments)?)
    }
}

impl StartPlan<'_> {
    pub(crate) fn component(&self) -> &Arc<Component> {
        &self.encoder.component
    }

    /// The picture's latents, `count` times: samples of the encoder's distribution with noise drawn before the
    /// sampler's, as diffusers' image to image does, in the denoiser's scale.
    pub(crate) fn encode(
        &self,
        pipeline: &Pipeline,
        count: usize,
        noise: &mut SeededNoise,
        watch: &mut Watch<'_>,
    ) -> Result<Vec<f32>, PipelineError> {
        watch.begin(Phase::EncodeImage, 1);
        let moments = self.encoder.run(&self.phase, |encoder, run| {
            let moments = pipeline.moments(encoder, run, self.start)?;
            watch.step()?;
            watch.note_memory();
            Ok(moments)
        })?;
        watch.end();
        let channels = pipeline.vae_config.latent_channels;
        let factor = pipeline.pixel_factor();
        let (height, width) = (self.start.image.height() / factor, self.start.image.width() / factor);
        let drawn = noise.draw([1, channels, height, width]);
        let mut latent: Vec<f32> = moments
            .chunks_exact(2 * channels)
            .zip(drawn.chunks_exact(channels))
            .flat_map(|(moments, drawn)| {
                let (means, log_variances) = moments.split_at(channels);
                (0..channels).map(move |idx| means[idx] + deviation(log_variances[idx]) * drawn[idx])
            })
            .collect();
        if latent.iter().any(|number| !number.is_finite()) {
            return Err(PipelineError::NotFinite { phase: Phase::EncodeImage });
        }
        pipeline.vae_config.latent_scale.to_samples(&mut latent);
        Ok(latent.repeat(count))
    }
}

/// The standard deviation, with the bounds of diffusers' `DiagonalGaussianDistribution`.
fn deviation(log_variance: f32) -> f32 {
    (0.5 * log_variance.clamp(-30.0, 20.0)).exp()
}
