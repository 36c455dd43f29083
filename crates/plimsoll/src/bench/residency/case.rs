//! One case, measured in this process.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, anyhow, ensure};
use plimsoll_cpu::{CpuDevice, CpuOptions};
use plimsoll_device::{ByteCount, DType, Device};
use plimsoll_models::unet::{AddedInput, Unet, UnetConfig, UnetInput};
use plimsoll_nn::{Builder, Run};
use plimsoll_residency::{
    Component, LoadError, LoadRequest, Loaded, Manager, ManagerOptions, PatchSet, Traffic, UnitId, Wanted,
};
use plimsoll_tensor::{Compute, Tensor};
use serde::{Deserialize, Serialize};

use super::{Case, PIXELS_PER_LATENT, ResidencyBenchArgs};
use crate::failure::Failure;
use crate::process_memory;

/// Tokens of a text.
pub(super) const TOKEN_COUNT: usize = 77;
/// Passes of leases alone; the median counts.
const LEASE_PASSES: usize = 201;

/// A case and its runs so far.
pub(super) struct Measured {
    pub(super) case: Case,
    pub(super) runs: Vec<CaseRun>,
}

/// What a process measured.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct CaseRun {
    pub(super) budget_bytes: u64,
    /// All weights on the device.
    pub(super) weight_bytes: u64,
    pub(super) activation_bytes: u64,
    pub(super) unit_count: usize,
    /// Why there is no plan for the budget; then nothing was measured.
    pub(super) refused: Option<String>,
    pub(super) resident_bytes: u64,
    /// What the plan has a step move.
    pub(super) streamed_bytes: u64,
    pub(super) ring_bytes: u64,
    pub(super) streamed_count: usize,
    pub(super) steps: Vec<Step>,
    /// The ledger's.
    pub(super) peak_bytes: u64,
    /// The process's, if the system tells.
    pub(super) process_peak_bytes: Option<u64>,
    /// Seconds of a pass that only leases; only where all is resident.
    pub(super) lease_seconds: Option<f64>,
    /// Of the prediction's bits.
    pub(super) checksum: u64,
}

/// A measured step.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(super) struct Step {
    pub(super) seconds: f64,
    /// Seconds that all threads of the process computed, if the system tells.
    pub(super) cpu_seconds: Option<f64>,
    pub(super) moved_bytes: u64,
    pub(super) stall_seconds: f64,
}

impl Measured {
    pub(super) fn new(case: Case) -> Self {
        Self { case, runs: Vec::new() }
    }

    pub(super) fn add(&mut self, run: CaseRun) {
        self.runs.push(run);
    }

    pub(super) fn is_refused(&self) -> bool {
        self.runs.iter().any(|run| run.refused.is_some())
    }
}

/// The UNet, and what it is run on.
struct Bench {
    config: UnetConfig,
    unet: Unet,
    component: Arc<Component>,
    dtype: DType,
    /// `[height, width]` of the latent.
    latent: [usize; 2],
}

/// Measures a case.
///
/// # Errors
/// [`Failure`] if the model can't be built, loaded or run.
pub(super) fn measure(args: &ResidencyBenchArgs, case: Case) -> Result<CaseRun, Failure> {
    let source = args.model.source()?;
    let json = source.text("unet/config.json").map_err(anyhow::Error::new)?;
    let config = UnetConfig::parse(&json).map_err(anyhow::Error::new)?;
    let tensors = source.tensors("unet").map_err(anyhow::Error::new)?;
    let device = CpuDevice::new(&CpuOptions { budget: ByteCount::MAX, threads: args.threads })?;
    let device: Arc<dyn Device> = Arc::new(device);
    let options = ManagerOptions {
        policy: case.policy,
        offload_streams: args.offload_streams,
        keep_idle: false,
        ..ManagerOptions::default()
    };
    let manager = Manager::new(&device, options);
    let dtype = args.dtype.into();
    let builder = Builder::new(&tensors, &*device, dtype);
    let unet = Unet::build(&builder, &config).map_err(anyhow::Error::new)?;
    let component = manager.add("unet", builder.finish(Unet::ignores).map_err(anyhow::Error::new)?);
    let bench = Bench { config, unet, component, dtype, latent: [args.size / PIXELS_PER_LATENT; 2] };

    let activation_bytes = bench.rehearse(&*device)?;
    let planner = manager.planner(&bench.component);
    // One byte more, because one policy keeps a component whole only if it is smaller than the budget.
    let whole = planner.plan(ByteCount::MAX).map_err(anyhow::Error::new)?.total_bytes() + ByteCount(1);
    let budget = activation_bytes + ByteCount((whole.0 as f64 * case.percent / 100.0).ceil() as u64);
    device.ledger().set_budget(budget);
    let units = bench.component.units();
    let mut run = CaseRun {
        budget_bytes: budget.0,
        weight_bytes: units.iter().map(|unit| unit.bytes).sum::<ByteCount>().0,
        activation_bytes: activation_bytes.0,
        unit_count: units.len(),
        refused: None,
        resident_bytes: 0,
        streamed_bytes: 0,
        ring_bytes: 0,
        streamed_count: 0,
        steps: Vec::new(),
        peak_bytes: 0,
        process_peak_bytes: None,
        lease_seconds: None,
        checksum: 0,
    };
    let _loaded = match load(&manager, &bench.component, activation_bytes, args.steps) {
        Ok(loaded) => loaded,
        Err(error @ LoadError::DoesNotFit { .. }) => return Ok(CaseRun { refused: Some(error.to_string()), ..run }),
        Err(error) => return Err(anyhow::Error::new(error).into()),
    };
    let plan = bench.component.plan().context("a loaded component has a plan")?;
    (run.resident_bytes, run.streamed_bytes) = (plan.resident_bytes.0, plan.streamed_bytes.0);
    (run.ring_bytes, run.streamed_count) = (plan.ring_bytes.0, plan.streamed_count());
    let cx = Compute::new(device.clone(), "activations");
    bench.steps(&cx, args.steps, &mut run)?;
    if run.streamed_count == 0 {
        run.lease_seconds = Some(bench.lease_pass_seconds(&cx)?);
    }
    run.peak_bytes = device.ledger().peak().0;
    run.process_peak_bytes = process_memory::peak_bytes().map(|bytes| bytes.0);
    Ok(run)
}

fn load(
    manager: &Arc<Manager>,
    component: &Arc<Component>,
    activation_bytes: ByteCount,
    passes: usize,
) -> Result<Loaded, LoadError> {
    let patches = Arc::new(PatchSet::default());
    // With the unmeasured one.
    let wanted = [Wanted { component, patches: &patches, passes: passes + 1 }];
    manager.load(&LoadRequest { holder: "bench", wanted: &wanted, activation_bytes })
}

impl Bench {
    /// The most that a forward pass allocates at once, its inputs among it. What the units compute meanwhile becomes the
    /// component's estimate.
    fn rehearse(&self, device: &dyn Device) -> anyhow::Result<ByteCount> {
        let device = device.rehearsal();
        let manager = Manager::new(&device, ManagerOptions::default());
        let component = manager.add("unet", self.component.units().to_vec());
        let _loaded = load(&manager, &component, ByteCount::ZERO, 1)?;
        let cx = Compute::new(device.clone(), "activations");
        let inputs = self.inputs(&cx)?;
        self.forward(&Run { cx: &cx, weights: &component }, &inputs)?;
        self.component.estimate(component.compute_seconds());
        Ok(device.ledger().arena_peak())
    }

    fn steps(&self, cx: &Compute, count: usize, run: &mut CaseRun) -> anyhow::Result<()> {
        let inputs = self.inputs(cx)?;
        let pass = Run { cx, weights: &self.component };
        // The unmeasured one: what is streamed is in the page cache afterwards.
        run.checksum = checksum(&cx.download(&self.forward(&pass, &inputs)?)?)?;
        for _ in 0..count {
            let (before, cpu_before) = (self.component.traffic(), process_memory::cpu_seconds());
            let began = Instant::now();
            let prediction = self.forward(&pass, &inputs)?;
            cx.queue().synchronize()?;
            let seconds = began.elapsed().as_secs_f64();
            let cpu_seconds = process_memory::cpu_seconds().zip(cpu_before).map(|(now, before)| now - before);
            let Traffic { streamed_bytes, stall_seconds, .. } = self.component.traffic();
            run.steps.push(Step {
                seconds,
                cpu_seconds,
                moved_bytes: (streamed_bytes - before.streamed_bytes).0,
                stall_seconds: stall_seconds - before.stall_seconds,
            });
            let again = checksum(&cx.download(&prediction)?)?;
            ensure!(again == run.checksum, "two passes over the same input gave different predictions");
        }
        Ok(())
    }

    fn lease_pass_seconds(&self, cx: &Compute) -> anyhow::Result<f64> {
        let mut seconds = Vec::with_capacity(LEASE_PASSES);
        for _ in 0..LEASE_PASSES {
            let began = Instant::now();
            for idx in 0..self.component.units().len() {
                drop(self.component.lease(UnitId(idx), cx.queue())?);
            }
            seconds.push(began.elapsed().as_secs_f64());
        }
        Ok(crate::bench::median(&seconds))
    }

    fn forward(&self, run: &Run<'_>, inputs: &Inputs) -> anyhow::Result<Tensor> {
        let added = inputs.pooled.as_ref();
        let added = added.map(|pooled| AddedInput { text_embeds: pooled, time_ids: &inputs.time_ids });
        let Inputs { sample, text, .. } = inputs;
        Ok(self.unet.forward(run, &UnetInput { sample, timesteps: &[500.0], encoder_hidden_states: text, added })?)
    }

    /// Made-up inputs, the same each time.
    fn inputs(&self, cx: &Compute) -> anyhow::Result<Inputs> {
        let UnetConfig { in_channels, down_blocks, mid_block, up_blocks, added, .. } = &self.config;
        let mut blocks = down_blocks.iter().chain(mid_block).chain(up_blocks);
        let text_width =
            blocks.find_map(|block| block.attention.as_ref()).map_or(1, |attention| attention.context_width);
        let tensor = |shape: &[usize]| cx.upload(&waves(shape.iter().product()), shape, self.dtype);
        let [height, width] = self.latent;
        let [tall, wide] = self.latent.map(|side| (side * PIXELS_PER_LATENT) as f32);
        let time_ids = vec![tall, wide, 0.0, 0.0, tall, wide];
        let pooled = added.map(|added| {
            let pooled_width = added.input_width.checked_sub(time_ids.len() * added.time_channels);
            let pooled_width = pooled_width.filter(|width| *width > 0);
            let pooled_width = pooled_width.ok_or_else(|| anyhow!("the UNet's added input has no room for a text"))?;
            anyhow::Ok(tensor(&[1, pooled_width])?)
        });
        Ok(Inputs {
            sample: tensor(&[1, height, width, *in_channels])?,
            text: tensor(&[1, TOKEN_COUNT, text_width])?,
            pooled: pooled.transpose()?,
            time_ids,
        })
    }
}

struct Inputs {
    sample: Tensor,
    text: Tensor,
    pooled: Option<Tensor>,
    time_ids: Vec<f32>,
}

/// Numbers from -1 to 1.
fn waves(len: usize) -> Vec<f32> {
    (0..len).map(|idx| (idx as f32 * 0.7).sin()).collect()
}

/// FNV-1a of the bits of a prediction, which must be finite.
fn checksum(prediction: &[f32]) -> anyhow::Result<u64> {
    ensure!(
        prediction.iter().all(|number| number.is_finite()),
        "the prediction is not finite; the weights are no model's"
    );
    let fold = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    Ok(prediction.iter().flat_map(|number| number.to_le_bytes()).fold(0xcbf2_9ce4_8422_2325, fold))
}
