//! Text to image and image to image, phase by phase.

use std::time::Instant;

use plimsoll_device::MemoryReport;
use plimsoll_models::unet::Unet;
use plimsoll_nn::Run;
use plimsoll_residency::{LoadError, Manager};
use plimsoll_sampling::{Guidance, NoiseRule, NoiseSource, Sampler, SeededNoise, SigmaSchedule};

use crate::denoise::DenoiseJob;
use crate::phase_component::PhasePlan;
use crate::pipeline::Pipeline;
use crate::start_image::StartPlan;
use crate::text::{Conditioning, Prompts};
use crate::{Image, Phase, PipelineError, Progress, Upscaler};

/// Most pixels of a side.
pub const SIDE_MAX: usize = 1 << 14;
/// Most pictures of a request.
pub const COUNT_MAX: usize = 1024;

/// What to draw.
#[derive(Clone, Debug)]
pub struct Request {
    /// What the picture shows.
    pub prompt: String,
    /// What it does not; used with guidance other than 1.
    pub negative: String,
    /// Denoise steps, 1 to 10,000.
    pub steps: usize,
    /// Classifier-free guidance; 1 draws without.
    pub guidance: f64,
    /// The sampler.
    pub sampler: Sampler,
    /// The sigma schedule.
    pub schedule: SigmaSchedule,
    /// Decides the noise. The pictures of one request get one batch of noise of it, as in ComfyUI and diffusers.
    pub seed: u64,
    /// Pixels, a multiple of [`Pipeline::pixel_factor`].
    pub width: usize,
    /// Pixels, a multiple of [`Pipeline::pixel_factor`].
    pub height: usize,
    /// How many pictures.
    pub count: usize,
    /// A picture of `width` x `height` to start from.
    pub image: Option<StartImage>,
}

/// Where image to image starts.
#[derive(Clone, Debug)]
pub struct StartImage {
    /// The picture.
    pub image: Image,
    /// How much of it is redrawn, above 0 and at most 1.
    pub strength: f64,
}

/// What was drawn.
#[derive(Debug)]
pub struct Generated {
    /// The pictures.
    pub images: Vec<Image>,
    /// Seconds of each phase, loading included, in the order they ran.
    pub seconds: Vec<(Phase, f64)>,
    /// The ledger after the run, with the peak of all of it.
    pub memory: MemoryReport,
}

impl Pipeline {
    /// Draws. With an upscaler, the pictures are enlarged by it.
    ///
    /// All phases are planned before the first one is loaded.
    ///
    /// # Errors
    /// [`PipelineError`]; [`is_usage`](PipelineError::is_usage) tells a wrong request from a failure.
    pub fn generate(
        &self,
        request: &Request,
        upscaler: Option<&Upscaler>,
        progress: &mut (dyn Progress + Send),
    ) -> Result<Generated, PipelineError> {
        let mut drawn = None;
        self.manager.device().install(&mut || drawn = Some(self.generate_here(request, upscaler, &mut *progress)));
        drawn.expect("the device has run it")
    }

    fn generate_here(
        &self,
        request: &Request,
        upscaler: Option<&Upscaler>,
        progress: &mut dyn Progress,
    ) -> Result<Generated, PipelineError> {
        let guidance = self.check(request)?;
        let mut watch = Watch::new(self, progress);
        let prompts = self.prompts(request, guidance)?;
        let blank = self.blank_conditioning(&prompts);
        let mut job = self.denoise_job(request, guidance, &blank)?;

        let mut shortfall = Shortfall::default();
        let text_plans = self.plan_text(&prompts, &mut shortfall)?;
        let start = request.image.as_ref().map(|start| self.plan_start(start));
        let start = shortfall.note(start.transpose())?.flatten();
        let denoise_plan = shortfall.note(self.plan_denoise(&job, request.count))?;
        let decode_plan = shortfall.note(self.plan_decode(&job, request.count))?;
        let upscale_plan = upscaler.map(|upscaler| upscaler.plan(request.count, request.width, request.height));
        let upscale_plan = shortfall.note(upscale_plan.transpose())?.flatten();
        shortfall.check()?;
        let fits = "a phase without a plan is short of memory";
        let (denoise_plan, decode_plan) = (denoise_plan.expect(fits), decode_plan.expect(fits));

        self.expect_phases(start.as_ref(), upscaler);
        let conditioning = self.encode_text(&text_plans, &prompts, &mut watch)?;
        job.conditioning = &conditioning;
        let mut noise = SeededNoise::new(NoiseRule::of(request.schedule), request.seed);
        let start = start.map(|start| start.encode(self, request.count, &mut noise, &mut watch)).transpose()?;
        let latents = self.denoise(&denoise_plan, &job, request.count, start, noise, &mut watch)?;
        let mut images = self.decode(&decode_plan, &job, latents, &mut watch)?;
        if let (Some(upscaler), Some(plan)) = (upscaler, &upscale_plan) {
            images = upscaler.run(plan, &images, &mut watch)?;
        }
        Ok(Generated { images, seconds: watch.seconds, memory: self.manager.report().memory })
    }

    /// The prompts as tokens, the negative one first if the guidance needs it.
    pub(crate) fn prompts(&self, request: &Request, guidance: Guidance) -> Result<Prompts, PipelineError> {
        let negative = guidance.needs_unconditional().then_some(request.negative.as_str());
        self.tokenize(&request.prompt, negative)
    }

    /// What each picture's denoising depends on.
    pub(crate) fn denoise_job<'a>(
        &'a self,
        request: &Request,
        guidance: Guidance,
        conditioning: &'a Conditioning,
    ) -> Result<DenoiseJob<'a>, PipelineError> {
        let strength = request.image.as_ref().map_or(1.0, |start| start.strength);
        let factor = self.pixel_factor();
        Ok(DenoiseJob {
            conditioning,
            noise_config: &self.noise,
            steps: request.schedule.steps(&self.noise, request.sampler, request.steps, strength)?,
            sampler: request.sampler,
            guidance,
            dtype: self.options.dtype,
            size: [request.height / factor, request.width / factor],
            pixels: [request.height, request.width],
            channels: self.vae_config.latent_channels,
            manager: &self.manager,
        })
    }

    /// Tells the manager in which order the phases will want their components.
    fn expect_phases(&self, start: Option<&StartPlan<'_>>, upscaler: Option<&Upscaler>) {
        let texts = self.texts.iter().map(|text| &text.encoder.component);
        let start = start.map(StartPlan::component);
        let upscaler = upscaler.map(Upscaler::component);
        let phases = texts.chain(start).chain([&self.unet.component, &self.vae.component]).chain(upscaler);
        self.manager.expect(&phases.collect::<Vec<_>>());
    }

    /// Refuses a request that can't be, and gives its guidance.
    pub(crate) fn check(&self, request: &Request) -> Result<Guidance, PipelineError> {
        let wrong = |what: String| Err(PipelineError::Request(what));
        let factor = self.pixel_factor();
        for (name, size) in [("width", request.width), ("height", request.height)] {
            if size == 0 || size > SIDE_MAX || !size.is_multiple_of(factor) {
                return wrong(format!(
                    "the {name} {size} is not possible; it must be a multiple of {factor} from {factor} to {SIDE_MAX}"
                ));
            }
        }
        if request.count == 0 || request.count > COUNT_MAX {
            return wrong(format!("the count {} is not possible; it must be from 1 to {COUNT_MAX}", request.count));
        }
        if let Some(StartImage { image, .. }) = &request.image
            && (image.width(), image.height()) != (request.width, request.height)
        {
            return wrong(format!(
                "the start image has {} x {} pixels; it must have the size drawn, {} x {}",
                image.width(),
                image.height(),
                request.width,
                request.height
            ));
        }
        Ok(Guidance::new(request.guidance)?)
    }

    fn plan_denoise(&self, job: &DenoiseJob<'_>, count: usize) -> Result<PhasePlan, PipelineError> {
        self.unet.plan(
            &[job.conditioning.prompts, job.size[0], job.size[1]],
            count * job.steps.steps.len(),
            |unet, run| rehearse_denoise(job, unet, run),
        )
    }

    fn denoise(
        &self,
        plan: &PhasePlan,
        job: &DenoiseJob<'_>,
        count: usize,
        start: Option<Vec<f32>>,
        mut noise: SeededNoise,
        watch: &mut Watch<'_>,
    ) -> Result<Vec<Vec<f32>>, PipelineError> {
        let [height, width] = job.size;
        let shape = [count, job.channels, height, width];
        let latent_len = job.channels * height * width;
        let drawn = noise.draw(shape);
        let scale = if start.is_some() { job.steps.noise_scale_on_image } else { job.steps.noise_scale } as f32;
        let mut begun: Vec<f32> = drawn.iter().map(|number| number * scale).collect();
        for (number, start) in begun.iter_mut().zip(start.iter().flatten()) {
            *number += start;
        }
        watch.begin(Phase::Denoise, count * job.steps.steps.len());
        let latents = self.unet.run(plan, |unet, run| {
            let one = |(image_idx, start): (usize, &[f32])| {
                // Each picture's run draws the whole batch's noise again and takes its own part.
                let mut noise = PartOfBatch {
                    batch: noise.clone().into_sampler_noise(job.sampler, &job.steps, shape),
                    range: image_idx * latent_len..(image_idx + 1) * latent_len,
                };
                job.run(unet, run, start, &mut noise, &mut || watch.step())
            };
            let latents = begun.chunks(latent_len).enumerate().map(one).collect::<Result<Vec<_>, _>>()?;
            watch.note_memory();
            Ok(latents)
        })?;
        watch.end();
        if latents.iter().flatten().any(|number| !number.is_finite()) {
            return Err(PipelineError::NotFinite { phase: Phase::Denoise });
        }
        Ok(latents)
    }

    fn plan_decode(&self, job: &DenoiseJob<'_>, count: usize) -> Result<PhasePlan, PipelineError> {
        let blank = vec![0.0; job.size[0] * job.size[1] * job.channels];
        self.vae.plan(&job.size, count, |_, run| self.decode_one(run, job, &blank).map(drop))
    }

    fn decode(
        &self,
        plan: &PhasePlan,
        job: &DenoiseJob<'_>,
        latents: Vec<Vec<f32>>,
        watch: &mut Watch<'_>,
    ) -> Result<Vec<Image>, PipelineError> {
        watch.begin(Phase::Decode, latents.len());
        let images = self.vae.run(plan, |_, run| {
            let one = |mut latent: Vec<f32>| {
                self.vae_config.latent_scale.to_latents(&mut latent);
                let pixels = self.decode_one(run, job, &latent)?;
                if pixels.iter().any(|number| !number.is_finite()) {
                    return Err(PipelineError::NotFinite { phase: Phase::Decode });
                }
                watch.step()?;
                Ok(Image::from_signed(job.pixels[1], job.pixels[0], &pixels))
            };
            let images = latents.into_iter().map(one).collect::<Result<Vec<_>, _>>()?;
            watch.note_memory();
            Ok(images)
        })?;
        watch.end();
        Ok(images)
    }

    fn decode_one(&self, run: &Run<'_>, job: &DenoiseJob<'_>, latent: &[f32]) -> Result<Vec<f32>, PipelineError> {
        let latent = run.cx.upload(latent, &[1, job.size[0], job.size[1], job.channels], self.options.dtype)?;
        let pixels = self.vae.model.forward(run, &latent)?;
        drop(latent);
        Ok(run.cx.download(&pixels)?)
    }
}

/// The phase that is shortest of memory, found by planning all of them: what is missing is told once, and in full.
#[derive(Default)]
pub(crate) struct Shortfall {
    worst: Option<PipelineError>,
}

impl Shortfall {
    /// A phase's plan, or none if it does not fit, which is remembered. Other failures are passed on.
    pub(crate) fn note<P>(&mut self, planned: Result<P, PipelineError>) -> Result<Option<P>, PipelineError> {
        let needed_by = |error: &PipelineError| match error {
            PipelineError::OverBudget { needed, .. } => Some(*needed),
            _ => None,
        };
        match planned {
            Ok(plan) => Ok(Some(plan)),
            Err(error) if needed_by(&error).is_some() => {
                if self.worst.as_ref().is_none_or(|worst| needed_by(worst) < needed_by(&error)) {
                    self.worst = Some(error);
                }
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn check(self) -> Result<(), PipelineError> {
        self.worst.map_or(Ok(()), Err)
    }
}

/// Denoises nothing, as a run would do it.
pub(crate) fn rehearse_denoise(job: &DenoiseJob<'_>, unet: &Unet, run: &Run<'_>) -> Result<(), PipelineError> {
    let blank = vec![0.0; job.size[0] * job.size[1] * job.channels];
    let mut noise = BlankNoise(blank.len());
    job.shortened().run(unet, run, &blank, &mut noise, &mut || Ok(())).map(drop)
}

/// Zeros for a rehearsal.
struct BlankNoise(usize);

impl NoiseSource for BlankNoise {
    fn next(&mut self, _sigma_from: f64, _sigma_to: f64) -> Vec<f32> {
        vec![0.0; self.0]
    }
}

/// One picture's part of a batch's noise.
struct PartOfBatch {
    batch: Box<dyn NoiseSource>,
    range: std::ops::Range<usize>,
}

impl NoiseSource for PartOfBatch {
    fn next(&mut self, sigma_from: f64, sigma_to: f64) -> Vec<f32> {
        self.batch.next(sigma_from, sigma_to)[self.range.clone()].to_vec()
    }
}

/// Tells the caller how a run goes on, and takes its time.
pub(crate) struct Watch<'a> {
    manager: &'a Manager,
    progress: &'a mut dyn Progress,
    seconds: Vec<(Phase, f64)>,
    began: Option<(Phase, Instant)>,
    memory: Option<MemoryReport>,
}

impl<'a> Watch<'a> {
    fn new(pipeline: &'a Pipeline, progress: &'a mut dyn Progress) -> Self {
        Self { manager: &pipeline.manager, progress, seconds: Vec::new(), began: None, memory: None }
    }

    pub(crate) fn begin(&mut self, phase: Phase, step_count: usize) {
        self.began = Some((phase, Instant::now()));
        self.progress.begin(phase, step_count);
    }

    /// A step is done, and no lease is held: the moment to follow a change of the budget.
    pub(crate) fn step(&mut self) -> Result<(), PipelineError> {
        // Not to have grown fails nobody, and a lease in the way is gone at the next step.
        if let Err(error @ LoadError::DoesNotFit { .. }) = self.manager.settle() {
            return Err(error.into());
        }
        if self.progress.step() { Ok(()) } else { Err(PipelineError::Cancelled) }
    }

    /// Keeps the ledger as it stands, with the phase's component loaded, for its end.
    pub(crate) fn note_memory(&mut self) {
        self.memory = Some(self.manager.device().ledger().report());
    }

    pub(crate) fn end(&mut self) {
        if let Some((phase, began)) = self.began.take() {
            self.seconds.push((phase, began.elapsed().as_secs_f64()));
        }
        let memory = self.memory.take().unwrap_or_else(|| self.manager.device().ledger().report());
        self.progress.end(&memory);
    }
}
