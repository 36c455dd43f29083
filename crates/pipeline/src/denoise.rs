//! Noise to latents.

use std::ops::ControlFlow;

use plimsoll_models::unet::{AddedInput, Unet, UnetInput};
use plimsoll_nn::Run;
use plimsoll_residency::Manager;
use plimsoll_sampling::{
    Guidance, LatentMath, NoiseConfig, NoiseLevel, NoiseSource, Sampler, SamplerParts, SigmaSteps, model_input_scale,
    sample,
};
use plimsoll_tensor::{Compute, DType, Tensor};

use crate::PipelineError;
use crate::phase_component::with_room;
use crate::text::Conditioning;

/// Everything that one picture's denoising depends on, but its noise.
pub(crate) struct DenoiseJob<'a> {
    pub(crate) conditioning: &'a Conditioning,
    pub(crate) noise_config: &'a NoiseConfig,
    pub(crate) steps: SigmaSteps,
    pub(crate) sampler: Sampler,
    pub(crate) guidance: Guidance,
    pub(crate) dtype: DType,
    /// `[height, width]` of the latent.
    pub(crate) size: [usize; 2],
    /// `[height, width]` of the picture: SDXL is told.
    pub(crate) pixels: [usize; 2],
    pub(crate) channels: usize,
    /// Makes room when the device has no memory for a step.
    pub(crate) manager: &'a Manager,
}

impl DenoiseJob<'_> {
    /// The same job with at most three steps, first, second and last: what a rehearsal needs to see.
    pub(crate) fn shortened(&self) -> Self {
        let steps = &self.steps.steps;
        let kept = match steps.len() {
            0..=3 => steps.clone(),
            count => vec![steps[0], steps[1], steps[count - 1]],
        };
        Self { steps: SigmaSteps { steps: kept, ..self.steps.clone() }, ..*self }
    }

    /// Denoises `start` (channels-last numbers of one latent, noised as the steps say).
    pub(crate) fn run(
        &self,
        unet: &Unet,
        run: &Run<'_>,
        start: &[f32],
        noise: &mut dyn NoiseSource,
        on_step: &mut dyn FnMut() -> Result<(), PipelineError>,
    ) -> Result<Vec<f32>, PipelineError> {
        let cx = run.cx;
        let hidden = self.conditioning.upload_hidden(cx, self.dtype)?;
        let pooled = self.conditioning.upload_pooled(cx, self.dtype)?;
        let [height, width] = self.pixels.map(|size| size as f32);
        let time_ids = [height, width, 0.0, 0.0, height, width].repeat(self.conditioning.prompts);
        let denoise_once = |x: &Tensor, level: NoiseLevel| -> Result<Tensor, PipelineError> {
            let sample = self.network_input(cx, x, level)?;
            let timesteps = vec![level.timestep as f32; self.conditioning.prompts];
            let added = pooled.as_ref().map(|pooled| AddedInput { text_embeds: pooled, time_ids: &time_ids });
            let input = UnetInput { sample: &sample, timesteps: &timesteps, encoder_hidden_states: &hidden, added };
            let output = unet.forward(run, &input)?;
            drop(sample);
            self.denoised(cx, x, output, level)
        };
        // The latents and the noise are the sampler's; a prediction that is repeated changes neither.
        let mut denoise = |x: &Tensor, level: NoiseLevel| with_room(self.manager, || denoise_once(x, level));
        let mut stopped = None;
        let mut observer = |_: &plimsoll_sampling::StepReport<'_, Tensor>| match on_step() {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                stopped = Some(error);
                ControlFlow::Break(())
            }
        };
        let [latent_height, latent_width] = self.size;
        let x = cx.upload(start, &[1, latent_height, latent_width, self.channels], DType::F32)?;
        let math = Latents(cx);
        let parts = SamplerParts { math: &math, denoiser: &mut denoise, noise, observer: &mut observer };
        let sampled = sample(self.sampler, &self.steps, x, parts);
        if let Some(error) = stopped {
            return Err(error);
        }
        Ok(cx.download(&sampled?)?)
    }

    /// The sample as the network takes it: scaled, in its dtype, once for each prompt.
    fn network_input(&self, cx: &Compute, x: &Tensor, level: NoiseLevel) -> Result<Tensor, PipelineError> {
        let mut sample = cx.combine(&[(model_input_scale(level.sigma) as f32, x)])?;
        if self.dtype != DType::F32 {
            sample = cx.convert(&sample, self.dtype)?;
        }
        if self.conditioning.prompts == 2 {
            let row = sample.clone().reshape(&[1, x.element_count()])?;
            let mut shape = x.shape().to_vec();
            shape[0] = 2;
            sample = cx.concat(&[&row, &row])?.reshape(&shape)?;
        }
        Ok(sample)
    }

    /// The clean picture that the network's output stands for, guided if there are two prompts.
    fn denoised(&self, cx: &Compute, x: &Tensor, output: Tensor, level: NoiseLevel) -> Result<Tensor, PipelineError> {
        let output = if self.dtype == DType::F32 { output } else { cx.convert(&output, DType::F32)? };
        let terms = self.noise_config.prediction.denoised(level.sigma);
        let (of_x, of_output) = (terms.of_x as f32, terms.of_output);
        if self.conditioning.prompts == 1 {
            return Ok(cx.combine(&[(of_x, x), (of_output as f32, &output)])?);
        }
        let scale = self.guidance.scale();
        let (unconditional, conditional) = (output.rows(0, 1)?, output.rows(1, 1)?);
        Ok(cx.combine(&[
            (of_x, x),
            ((of_output * (1.0 - scale)) as f32, &unconditional),
            ((of_output * scale) as f32, &conditional),
        ])?)
    }
}

/// The device's arithmetic on latents, with the pipeline's error.
struct Latents<'a>(&'a Compute);

impl LatentMath for Latents<'_> {
    type Latent = Tensor;
    type Error = PipelineError;

    fn combine(&self, terms: &[(f64, &Tensor)]) -> Result<Tensor, PipelineError> {
        Ok(LatentMath::combine(self.0, terms)?)
    }

    fn upload_like(&self, numbers: &[f32], like: &Tensor) -> Result<Tensor, PipelineError> {
        Ok(LatentMath::upload_like(self.0, numbers, like)?)
    }
}
