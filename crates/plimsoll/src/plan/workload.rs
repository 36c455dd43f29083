//! What is to be run: units with sizes and times, and the memory that is needed beside them.

use std::sync::Arc;

use plimsoll_device::{ByteCount, DType, Device};
use plimsoll_pipeline::{ModelSource, Pipeline, PipelineOptions, Request};
use plimsoll_residency::{Manager, ManagerOptions, Unit};
use plimsoll_sim::{SimDevice, SimOptions};

use crate::failure::Failure;

/// What a rehearsal counts operations by: see `Device::rehearsal`.
const REHEARSAL_FLOPS_PER_SECOND: f64 = 1e12;

/// One component's pass, to be repeated.
pub(super) struct Workload {
    /// The model.
    pub(super) name: String,
    /// What is drawn with it, in a few words.
    pub(super) about: String,
    /// The component that is planned.
    pub(super) component: &'static str,
    /// In visiting order.
    pub(super) units: Vec<Unit>,
    /// How long each unit computes.
    pub(super) seconds: Vec<f64>,
    /// The most that is needed beside the weights.
    pub(super) activation_bytes: ByteCount,
    /// Where that number comes from.
    pub(super) activation_source: String,
}

/// What is drawn, and on what.
pub(super) struct Demand<'a> {
    /// Pixels, if the caller says.
    pub(super) width: Option<usize>,
    /// Pixels, if the caller says.
    pub(super) height: Option<usize>,
    pub(super) dtype: DType,
    pub(super) card: &'a SimOptions,
}

impl Demand<'_> {
    /// A device that units are measured for. Nothing is allocated on it.
    pub(super) fn yardstick(&self) -> Arc<dyn Device> {
        Arc::new(SimDevice::new(self.card))
    }

    /// Times of a rehearsal as times on the card.
    pub(super) fn on_card(&self, rehearsed: Vec<f64>) -> Vec<f64> {
        let pace = REHEARSAL_FLOPS_PER_SECOND / self.card.flops_per_second;
        rehearsed.into_iter().map(|seconds| seconds * pace).collect()
    }
}

/// A model folder's denoiser, as `generate` runs it when only a size is given.
pub(super) fn of_model(source: &ModelSource, demand: &Demand<'_>) -> Result<Workload, Failure> {
    let manager = Manager::new(&demand.yardstick(), ManagerOptions::default());
    let pipeline = Pipeline::open(source, manager, PipelineOptions { dtype: demand.dtype })?;
    let defaults = pipeline.defaults();
    let request = Request {
        prompt: String::new(),
        negative: String::new(),
        steps: defaults.steps,
        guidance: defaults.guidance,
        sampler: defaults.sampler,
        schedule: defaults.schedule,
        seed: 0,
        width: demand.width.unwrap_or(defaults.width),
        height: demand.height.unwrap_or(defaults.height),
        count: 1,
        image: None,
    };
    let preview = pipeline.preview(&request)?;
    let prompts = if defaults.guidance == 1.0 { "without guidance" } else { "with guidance" };
    Ok(Workload {
        name: pipeline.name().to_owned(),
        about: format!("its denoiser at {} x {}, {prompts}, in {}", request.width, request.height, demand.dtype),
        component: "unet",
        units: preview.component.units().to_vec(),
        seconds: demand.on_card(preview.component.compute_seconds()),
        activation_bytes: preview.activation_bytes,
        activation_source: "counted in a rehearsal of the denoiser".to_owned(),
    })
}
