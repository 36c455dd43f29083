//! Passes of a workload by the real engine on the simulated device.

use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use plimsoll_device::{ByteCount, DType, Device, Queue};
use plimsoll_residency::{
    Component, Link, LoadError, LoadRequest, Loaded, Manager, ManagerOptions, Plan, Planner, Policy, UnitId, Wanted,
};
use plimsoll_sim::{SimDevice, SimOptions, Span, Stall, WorkKind};

use super::adapters::Adapters;
use super::workload::Workload;

/// Passes that are run; the last one is told. Its ring begins as the pass before left it.
const PASS_COUNT: usize = 5;

/// What is simulated, and on what.
pub(super) struct Setting<'a> {
    pub(super) workload: &'a Workload,
    pub(super) adapters: &'a Adapters,
    pub(super) dtype: DType,
    /// The card; its budget is the line.
    pub(super) card: &'a SimOptions,
    pub(super) offload_streams: usize,
    pub(super) min_resident_bytes: ByteCount,
}

/// A plan, and how its last pass went.
pub(super) struct Simulated {
    pub(super) policy: Policy,
    pub(super) planner: Arc<Planner>,
    pub(super) plan: Plan,
    pub(super) step_seconds: f64,
    /// What no order of copies could beat with these units streamed.
    pub(super) bound_seconds: f64,
    /// All that computes, merging apart.
    pub(super) compute_seconds: f64,
    pub(super) merge_seconds: f64,
    pub(super) moved_bytes: ByteCount,
    pub(super) copy_count: u64,
    pub(super) adapter_bytes: ByteCount,
    /// Reserved for activations.
    pub(super) activation_bytes: ByteCount,
    /// The most that the ledger had booked at once, loading included.
    pub(super) peak_bytes: ByteCount,
    /// The last pass on the device's clock.
    pub(super) pass: [Duration; 2],
    /// What ran in the last pass, also in part.
    pub(super) spans: Vec<Span>,
    /// When nothing computed in the last pass.
    pub(super) stalls: Vec<Stall>,
}

impl Simulated {
    /// All that the plan takes, which is at most the budget.
    pub(super) fn total_bytes(&self) -> ByteCount {
        self.plan.total_bytes() + self.adapter_bytes + self.activation_bytes
    }

    pub(super) fn stall_seconds(&self) -> f64 {
        self.stalls.iter().map(|stall| stall.end - stall.start).sum::<Duration>().as_secs_f64()
    }
}

/// Runs the workload under `policy`.
///
/// # Errors
/// When there is no plan for the budget, with what is missing.
pub(super) fn simulate(setting: &Setting<'_>, policy: Policy) -> anyhow::Result<Simulated> {
    let engine = Engine::load(setting, policy)?;
    let mut last = [engine.pass()?, engine.pass()?];
    for _ in 2..PASS_COUNT {
        last = [last[1].clone(), engine.pass()?];
    }
    Ok(engine.finish(setting, policy, last))
}

/// The engine, loaded.
struct Engine {
    sim: Arc<SimDevice>,
    compute: Arc<dyn Queue>,
    component: Arc<Component>,
    planner: Arc<Planner>,
    plan: Plan,
    seconds: Vec<f64>,
    activation_bytes: ByteCount,
    adapter_bytes: ByteCount,
    _loaded: Loaded,
}

/// The end of a pass, and what had been copied until then.
#[derive(Clone)]
struct PassEnd {
    time: Duration,
    moved_bytes: ByteCount,
    copy_count: u64,
}

impl Engine {
    fn load(setting: &Setting<'_>, policy: Policy) -> anyhow::Result<Self> {
        let Setting { workload, adapters, card, offload_streams, min_resident_bytes, dtype } = *setting;
        let sim = Arc::new(SimDevice::new(&SimOptions { trace: true, ..card.clone() }));
        let device: Arc<dyn Device> = sim.clone();
        let link =
            Link { bytes_per_second: card.link_bytes_per_second, latency_seconds: card.link_latency.as_secs_f64() };
        let options =
            ManagerOptions { policy, offload_streams, min_resident_bytes, link: Some(link), keep_idle: false };
        let manager = Manager::new(&device, options);
        let component = manager.add(workload.component, workload.units.clone());
        let seconds = match policy {
            Policy::Spread => adapters.seconds_beside(workload),
            Policy::LargestFirst => workload.seconds.clone(),
        };
        component.estimate(seconds.clone());
        let patches = Arc::new(adapters.patches(policy, workload, dtype, &sim));
        let wanted = [Wanted { component: &component, patches: &patches, passes: PASS_COUNT }];
        let activation_bytes = device.allocated_bytes(workload.activation_bytes);
        let request = LoadRequest { holder: "plan", wanted: &wanted, activation_bytes };
        let loaded = manager.load(&request).map_err(|error| refused(setting, error))?;
        Ok(Self {
            compute: device.compute_queue(),
            planner: manager.planner(&component),
            plan: component.plan().expect("what is loaded has a plan"),
            adapter_bytes: patches.adapter_bytes(),
            sim,
            component,
            seconds,
            activation_bytes,
            _loaded: loaded,
        })
    }

    /// One pass over all units, with the activations' memory taken meanwhile.
    fn pass(&self) -> anyhow::Result<PassEnd> {
        let account = self.sim.ledger().account("activations");
        let mut activations = match self.activation_bytes {
            ByteCount::ZERO => None,
            size => Some(self.sim.allocate(&*self.compute, account, size)?),
        };
        for (idx, unit) in self.component.units().iter().enumerate() {
            let lease = self.component.lease(UnitId(idx), &self.compute)?;
            let reads: Vec<_> = std::iter::once(lease.buffer()).chain(lease.adapter()).collect();
            let mut writes: Vec<_> = activations.iter_mut().collect();
            self.sim.compute(&*self.compute, unit.name(), self.seconds[idx], &reads, &mut writes)?;
        }
        let traffic = self.component.traffic();
        let time = self.compute.record().passed_at().expect("a simulated device is not lost by chance");
        Ok(PassEnd { time, moved_bytes: traffic.streamed_bytes, copy_count: traffic.copy_count })
    }

    fn finish(self, setting: &Setting<'_>, policy: Policy, [before, last]: [PassEnd; 2]) -> Simulated {
        let violations = self.sim.violations();
        assert!(violations.is_empty(), "the engine broke a rule on the simulated device: {}", violations[0]);
        let trace = self.sim.trace();
        let pass = [before.time, last.time];
        let is_in_pass = |start: Duration, end: Duration| start < pass[1] && end > pass[0];
        let stalls = trace.stalls().into_iter().filter(|stall| is_in_pass(stall.start, stall.end));
        let clipped = |stall: Stall| Stall { start: stall.start.max(pass[0]), end: stall.end.min(pass[1]), ..stall };
        let stalls = stalls.map(clipped).collect();
        let spans: Vec<Span> = trace.spans.into_iter().filter(|span| is_in_pass(span.start, span.end)).collect();
        let busy = |kind: WorkKind| {
            let spans = spans.iter().filter(|span| span.kind == kind);
            spans.map(|span| span.end - span.start).sum::<Duration>().as_secs_f64()
        };
        let compute_seconds = busy(WorkKind::Compute);
        let link_seconds = self.plan.streamed_bytes.0 as f64 / setting.card.link_bytes_per_second;
        Simulated {
            policy,
            step_seconds: (last.time - before.time).as_secs_f64(),
            bound_seconds: compute_seconds.max(link_seconds),
            compute_seconds,
            merge_seconds: busy(WorkKind::Merge),
            moved_bytes: last.moved_bytes - before.moved_bytes,
            copy_count: last.copy_count - before.copy_count,
            peak_bytes: self.sim.ledger().peak(),
            planner: self.planner,
            plan: self.plan,
            adapter_bytes: self.adapter_bytes,
            activation_bytes: self.activation_bytes,
            pass,
            spans,
            stalls,
        }
    }
}

fn refused(setting: &Setting<'_>, error: LoadError) -> anyhow::Error {
    let LoadError::DoesNotFit { needed, budget, activation_bytes, .. } = error else { return error.into() };
    anyhow!(
        "{} needs a budget of at least {} bytes ({needed}), {activation_bytes} of it for activations, but the budget is \
         {} bytes ({budget}): {} bytes short; raise --budget, or lower --activation-bytes, --min-resident or \
         --offload-streams",
        setting.workload.name,
        needed.0,
        budget.0,
        needed.saturating_sub(budget).0
    )
}
