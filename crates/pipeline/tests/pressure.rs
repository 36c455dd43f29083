//! Memory that gets scarce while a picture is drawn: the line holds, and the picture is the same.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{device, manager, open_with};
use plimsoll_device::{
    Account, AllocError, Buffer, ByteCount, DType, Device, DeviceError, DeviceId, Kernels, Ledger, MemoryReport, Queue,
    Region, Upload, WeightForm,
};
use plimsoll_pipeline::{Image, Phase, Pipeline, PipelineError, Progress, Request, Silent};
use plimsoll_residency::{Manager, ManagerOptions, Policy};
use plimsoll_sampling::{Sampler, SigmaSchedule};
use plimsoll_testkit::asset;

fn request(steps: usize) -> Request {
    Request {
        prompt: "red heart".to_owned(),
        negative: String::new(),
        steps,
        guidance: 4.0,
        sampler: Sampler::Dpmpp2mSde,
        schedule: SigmaSchedule::Karras,
        seed: 5,
        width: 64,
        height: 64,
        count: 1,
        image: None,
    }
}

/// The built-in model on a device of that budget.
fn emoji64(budget: ByteCount, options: ManagerOptions) -> Pipeline {
    let device: Arc<dyn Device> = device(budget);
    open_with(&asset("emoji64"), Manager::new(&device, options))
}

fn drawn(pipeline: &Pipeline, steps: usize, progress: &mut (dyn Progress + Send)) -> Vec<Image> {
    pipeline.generate(&request(steps), None, progress).unwrap().images
}

/// What the model needs at least, and what it takes when nothing is short.
fn smallest_and_largest(options: ManagerOptions) -> (ByteCount, ByteCount) {
    let refused = emoji64(ByteCount(1), options).generate(&request(2), None, &mut Silent);
    let Err(PipelineError::OverBudget { needed, .. }) = refused else { panic!("{refused:?}") };
    let unlimited = emoji64(ByteCount::MAX, options);
    drawn(&unlimited, 2, &mut Silent);
    (needed, unlimited.manager().report().memory.peak_bytes)
}

#[test]
fn twenty_random_budgets_with_any_streams_and_either_policy_draw_the_same_bits() {
    let reference = drawn(&emoji64(ByteCount::MAX, ManagerOptions::default()), 2, &mut Silent);
    // Random, and the same in every run: a linear congruential generator (Knuth, MMIX).
    let mut random = 1u64;
    let mut next = || {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (random >> 33) as f64 / (1u64 << 31) as f64
    };
    for offload_streams in [0, 1, 2, 4] {
        for policy in Policy::ALL {
            let options = ManagerOptions { offload_streams, policy, keep_idle: false, ..ManagerOptions::default() };
            let (smallest, largest) = smallest_and_largest(options);
            for _ in 0..10 {
                let budget = ByteCount(smallest.0 + ((largest.0 - smallest.0) as f64 * next()) as u64);
                let pipeline = emoji64(budget, options);
                let images = drawn(&pipeline, 2, &mut Silent);
                assert!(images == reference, "{policy}, {offload_streams} streams at {budget}: another picture");
                let peak = pipeline.manager().report().memory.peak_bytes;
                assert!(
                    peak <= budget,
                    "{policy}, {offload_streams} streams: the peak {peak} crosses the line at {budget}"
                );
            }
        }
    }
}

/// Moves the budget to and fro between denoise steps.
struct Squeeze {
    manager: Arc<Manager>,
    budgets: Vec<ByteCount>,
    step: usize,
    denoising: bool,
}

impl Progress for Squeeze {
    fn begin(&mut self, phase: Phase, _step_count: usize) {
        self.denoising = phase == Phase::Denoise;
    }

    fn step(&mut self) -> bool {
        if self.denoising {
            let budget = self.budgets[self.step % self.budgets.len()];
            self.step += 1;
            self.manager.set_budget(budget).unwrap();
            assert!(self.manager.device().ledger().used() <= budget, "the line is followed at once");
        }
        true
    }

    fn end(&mut self, _memory: &MemoryReport) {}
}

#[test]
fn a_budget_that_moves_between_steps_changes_no_bit() {
    for offload_streams in [0, 2] {
        let options = ManagerOptions { offload_streams, keep_idle: false, ..ManagerOptions::default() };
        let (smallest, largest) = smallest_and_largest(options);
        let reference = drawn(&emoji64(ByteCount::MAX, options), 8, &mut Silent);
        let pipeline = emoji64(largest, options);
        let part = |part: u64| ByteCount(smallest.0 + (largest.0 - smallest.0) * part / 100);
        let budgets = vec![part(50), part(5), part(100), part(0), part(30), part(100)];
        let mut squeeze = Squeeze { manager: pipeline.manager().clone(), budgets, step: 0, denoising: false };
        assert!(drawn(&pipeline, 8, &mut squeeze) == reference);
        assert_eq!(squeeze.step, 8);
    }
}

/// The CPU, whose memory fails to come for some activations.
struct Scarce {
    cpu: Arc<dyn Device>,
    activations: Account,
    /// Counts down with each activation allocated; those at the marks fail.
    countdown: AtomicUsize,
    marks: Vec<usize>,
    failures: AtomicUsize,
}

impl Device for Scarce {
    fn id(&self) -> DeviceId {
        self.cpu.id()
    }

    fn kernel_set(&self) -> String {
        self.cpu.kernel_set()
    }

    fn ledger(&self) -> &Ledger {
        self.cpu.ledger()
    }

    fn allocate(&self, queue: &dyn Queue, account: Account, size: ByteCount) -> Result<Buffer, AllocError> {
        if account == self.activations {
            let count = self.countdown.fetch_add(1, Ordering::SeqCst);
            if self.marks.contains(&count) {
                self.failures.fetch_add(1, Ordering::SeqCst);
                return Err(AllocError::Exhausted { account: "activations".to_owned(), needed: size });
            }
        }
        self.cpu.allocate(queue, account, size)
    }

    fn region(&self, queue: &dyn Queue, account: Account, size: ByteCount) -> Result<Arc<dyn Region>, AllocError> {
        self.cpu.region(queue, account, size)
    }

    fn allocated_bytes(&self, size: ByteCount) -> ByteCount {
        self.cpu.allocated_bytes(size)
    }

    fn compute_queue(&self) -> Arc<dyn Queue> {
        self.cpu.compute_queue()
    }

    fn copy_queue(&self, name: &str) -> Result<Arc<dyn Queue>, DeviceError> {
        self.cpu.copy_queue(name)
    }

    fn weight_bytes(&self, form: &WeightForm, dtype: DType) -> ByteCount {
        self.cpu.weight_bytes(form, dtype)
    }

    fn staging_bytes(&self, upload: &Upload) -> ByteCount {
        self.cpu.staging_bytes(upload)
    }

    fn kernels(&self) -> &dyn Kernels {
        self.cpu.kernels()
    }

    fn rehearsal(&self) -> Arc<dyn Device> {
        self.cpu.rehearsal()
    }
}

#[test]
fn a_step_for_which_memory_is_missing_is_repeated_one_rank_lower() {
    let options = ManagerOptions { keep_idle: false, ..ManagerOptions::default() };
    let reference = drawn(&emoji64(ByteCount::MAX, options), 4, &mut Silent);
    let draw = |marks: Vec<usize>| {
        let cpu: Arc<dyn Device> = device(ByteCount::MAX);
        let activations = cpu.ledger().account("activations");
        let scarce =
            Arc::new(Scarce { cpu, activations, countdown: AtomicUsize::new(0), marks, failures: AtomicUsize::new(0) });
        let device: Arc<dyn Device> = scarce.clone();
        let pipeline = open_with(&asset("emoji64"), Manager::new(&device, options));
        let images = pipeline.generate(&request(4), None, &mut Silent).map(|generated| generated.images);
        (images, scarce.failures.load(Ordering::SeqCst), scarce.countdown.load(Ordering::SeqCst))
    };
    let (images, _, allocations) = draw(Vec::new());
    assert!(images.unwrap() == reference);
    let middle = allocations / 2;
    let (images, failures, _) = draw(vec![middle, middle + 1, middle + 40, middle + 200]);
    assert_eq!(failures, 4);
    assert!(images.unwrap() == reference, "latents and noise are kept");
    let (images, failures, _) = draw((middle..middle + 100_000).collect());
    let error = images.unwrap_err().to_string();
    assert!(error.contains("the machine does not have"), "{error}");
    assert!(failures > 10, "{failures} ranks were tried before giving up");
}

#[test]
fn a_kept_model_is_not_loaded_again() {
    let pipeline = emoji64(ByteCount::MAX, ManagerOptions::default());
    let first = drawn(&pipeline, 2, &mut Silent);
    let loaded = |pipeline: &Pipeline| {
        let components = pipeline.manager().components();
        components.iter().map(|component| component.traffic().loaded_bytes).sum::<ByteCount>()
    };
    let once = loaded(&pipeline);
    assert!(drawn(&pipeline, 2, &mut Silent) == first);
    assert_eq!(loaded(&pipeline), once);
    for component in pipeline.manager().components() {
        pipeline.manager().unload(&component).unwrap();
    }
    assert_eq!(pipeline.manager().report().memory.used_bytes, ByteCount::ZERO);
}

#[test]
fn components_of_several_pipelines_share_one_budget() {
    let options = ManagerOptions::default();
    let (smallest, largest) = smallest_and_largest(options);
    let manager = manager(device(ByteCount((smallest.0 + largest.0) / 2)), 0);
    let pipelines = [open_with(&asset("emoji64"), manager.clone()), open_with(&asset("emoji64"), manager.clone())];
    let reference = drawn(&pipelines[0], 2, &mut Silent);
    assert!(drawn(&pipelines[1], 2, &mut Silent) == reference);
    let peak = manager.report().memory.peak_bytes;
    assert!(peak <= manager.report().memory.budget_bytes);
}
