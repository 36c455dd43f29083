//! One simulated device with the real manager, and who uses it.

use std::sync::Arc;

use plimsoll_device::{AllocError, Buffer, ByteCount, Device, Queue};
use plimsoll_residency::{Component, Loaded, Manager, Policy};
use plimsoll_sim::{Fault, SimDevice, WorkKind};

use super::broken::{Checked, Invariant, broken, ensure};
use super::draw::Draw;
use super::invariants;
use super::model::Model;
use super::reference::Reference;
use super::scenario::Scenario;
use super::story::Story;

/// A device under test.
pub(crate) struct Rig {
    pub(crate) scenario: Scenario,
    pub(crate) device: Arc<SimDevice>,
    pub(crate) manager: Arc<Manager>,
    pub(crate) compute: Arc<dyn Queue>,
    /// A second queue that kernels run on.
    pub(crate) side: Arc<dyn Queue>,
    pub(crate) models: Vec<Model>,
    /// Who has something loaded, in the order of loading.
    pub(crate) runs: Vec<Run>,
    pub(crate) reference: Reference,
    /// How many leases are held.
    pub(crate) lease_count: usize,
    pub(crate) line: Line,
    /// Leases were held when the line was moved last.
    pub(crate) was_leased: bool,
    /// Components may be at rest although they are in use: something failed.
    pub(crate) may_rest: bool,
    pub(crate) is_lost: bool,
    /// The device will be lost at its next work.
    pub(crate) is_doomed: bool,
    /// The fault that was ordered and has perhaps not struck yet.
    pub(crate) armed: Option<Fault>,
    /// A copy has failed that nobody has asked for yet; whoever does is told.
    pub(crate) has_failed_ahead: bool,
    /// What is used next, in that order.
    pub(crate) upcoming: Vec<usize>,
    /// Bytes that were allocated at the last check.
    live_bytes: i64,
    /// Units copied, in order, while somebody wants to know.
    pub(crate) copies: Option<Vec<Arc<str>>>,
}

/// Something that is loaded and running.
pub(crate) struct Run {
    pub(crate) loaded: Loaded,
    /// Models, each with its set of adapters.
    pub(crate) members: Vec<(usize, usize)>,
    pub(crate) reserved: ByteCount,
    /// What of the reservation is in use.
    pub(crate) activations: Vec<Buffer>,
}

/// How the last move of the line went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// Everything is below it.
    Settled,
    /// Leases were in the way.
    Unsettled,
    /// What is in use is at rest, because its smallest plans don't fit.
    Starved,
    /// Something failed on the way.
    Disturbed,
}

impl Rig {
    pub(crate) fn new(scenario: Scenario, first: Option<&SimDevice>) -> Self {
        let device = match first {
            Some(first) => first.beside(&scenario.device),
            None => SimDevice::new(&scenario.device),
        };
        let device = Arc::new(device);
        let as_device: Arc<dyn Device> = device.clone();
        let manager = Manager::new(&as_device, scenario.manager);
        let models = scenario.models.iter().map(|shape| Model::new(shape, &device, &manager)).collect();
        let side = device.copy_queue("side compute").expect("a new device has queues");
        let reference = Reference::new(&scenario);
        Self {
            compute: device.compute_queue(),
            side,
            device,
            manager,
            models,
            runs: Vec::new(),
            reference,
            lease_count: 0,
            line: Line::Settled,
            was_leased: false,
            may_rest: false,
            is_lost: false,
            is_doomed: false,
            armed: None,
            has_failed_ahead: false,
            upcoming: Vec::new(),
            live_bytes: 0,
            copies: None,
            scenario,
        }
    }

    /// Whether things go wrong by chance.
    pub(crate) fn is_faulty(&self) -> bool {
        self.is_doomed || self.has_lost_device() || self.scenario.device.faults != plimsoll_sim::Faults::default()
    }

    /// Whether everything is as it should be, so that nothing is excused.
    pub(crate) fn is_calm(&self) -> bool {
        !self.is_faulty() && self.line == Line::Settled && self.lease_count == 0
    }

    /// Whether leases may have been in the way of the last move of the line, and no longer are.
    pub(crate) fn can_settle(&self) -> bool {
        self.was_leased && self.lease_count == 0 && self.line != Line::Settled
    }

    /// How exactly the least that is in use together is told. Under `largest-first` a component is kept whole only
    /// strictly below what it is given: a byte each that is needed and not used.
    pub(crate) fn shortfall_unit(&self) -> ByteCount {
        match self.scenario.manager.policy {
            Policy::Spread => ByteCount(1),
            Policy::LargestFirst => ByteCount::of(self.models.len()),
        }
    }

    pub(crate) fn budget(&self) -> ByteCount {
        self.device.ledger().budget()
    }

    pub(crate) fn component(&self, model: usize) -> &Arc<Component> {
        &self.models[model].component
    }

    /// Whether somebody has the model loaded.
    pub(crate) fn is_in_use(&self, model: usize) -> bool {
        self.set_in_use(model).is_some()
    }

    /// The adapters with which somebody has it loaded.
    pub(crate) fn set_in_use(&self, model: usize) -> Option<usize> {
        let mut members = self.runs.iter().flat_map(|run| &run.members);
        members.find(|(member, _)| *member == model).map(|(_, set)| *set)
    }

    /// When the model is used next, as far as it was said.
    pub(crate) fn next_use(&self, model: usize) -> usize {
        self.upcoming.iter().position(|&upcoming| upcoming == model).unwrap_or(usize::MAX)
    }

    /// The models in use, each once.
    pub(crate) fn in_use(&self) -> Vec<usize> {
        (0..self.models.len()).filter(|&model| self.is_in_use(model)).collect()
    }

    /// Whether nothing that is in use is at rest.
    pub(crate) fn are_all_loaded(&self) -> bool {
        self.in_use().iter().all(|&model| self.component(model).plan().is_some())
    }

    /// Bytes of activations that are allocated now.
    pub(crate) fn activation_bytes(&self) -> ByteCount {
        self.runs.iter().flat_map(|run| &run.activations).map(Buffer::size).sum()
    }

    /// 12: allocates all that a run has reserved and not yet in use. Tells what was missing, if that may be.
    pub(crate) fn fill(&mut self, story: &mut Story, run: usize) -> Checked<Option<ByteCount>> {
        let unit = self.scenario.device.allocation_unit.0;
        let used: ByteCount = self.runs[run].activations.iter().map(Buffer::size).sum();
        let mut left = self.runs[run].reserved.saturating_sub(used).0 / unit * unit;
        while left > 0 {
            let size = if story.draw.chance(0.5) { left } else { story.draw.between(unit, left + 1) / unit * unit };
            let account = self.device.ledger().account("activations");
            match self.device.allocate(&*self.compute, account, ByteCount(size)) {
                Ok(buffer) => self.runs[run].activations.push(buffer),
                Err(error) => {
                    story.tell(format!("run {run} allocates {size}: {error}"));
                    let is_exhausted = matches!(error, AllocError::Exhausted { .. });
                    let is_excused = self.line != Line::Settled || (is_exhausted && self.may_fail(Fault::Allocation));
                    ensure(is_excused, Invariant::ReservationsHold, || error.to_string())?;
                    return Ok(Some(ByteCount(size)));
                }
            }
            left -= size;
        }
        self.check(story)?;
        Ok(None)
    }

    /// Ends an operation: whatever must hold is checked.
    pub(crate) fn check(&mut self, story: &mut Story) -> Checked {
        let trace = self.device.take_trace();
        story.count(&trace);
        self.live_bytes = invariants::allocations_are_below_the_line(self, &trace.memory, self.live_bytes)?;
        if let Some(copies) = &mut self.copies {
            copies.extend(trace.spans.iter().filter(|span| span.kind == WorkKind::Copy).map(|span| span.name.clone()));
        }
        invariants::check(self)
    }

    /// Lets the next opportunity for a fault fail.
    pub(crate) fn arm(&mut self, story: &mut Story, fault: Fault) {
        story.tell(format!("arm {fault:?}"));
        self.device.fail_next(fault);
        self.armed = Some(fault);
    }

    /// Whether something may go wrong with the device or the storage.
    pub(crate) fn may_fail(&self, fault: Fault) -> bool {
        self.is_faulty() || self.armed == Some(fault)
    }

    /// Whether the device is lost, said by the history or found out here: its events pass no more.
    pub(crate) fn has_lost_device(&self) -> bool {
        self.is_lost || self.compute.record().passed_at().is_none()
    }

    /// Whether an ordered fault has struck. It is taken back if not.
    pub(crate) fn disarm(&mut self) -> bool {
        let Some(fault) = self.armed.take() else { return false };
        let has_struck = self.has_struck(fault);
        self.has_failed_ahead |= has_struck && fault == Fault::ShortRead;
        has_struck
    }

    fn has_struck(&self, fault: Fault) -> bool {
        let account = self.device.ledger().account("nothing");
        let nothing = self.device.allocate(&*self.compute, account, ByteCount::ZERO);
        match (fault, nothing) {
            (Fault::Allocation, nothing) => nothing.is_ok(),
            (_, Ok(nothing)) => {
                let upload = plimsoll_device::Upload { name: "nothing".to_owned(), pieces: Vec::new() };
                self.compute.upload(&Arc::new(upload), nothing).acquire(&*self.compute).is_ok()
            }
            (_, Err(_)) => true,
        }
    }

    /// Ends a run: its activations, and its hold.
    pub(crate) fn end_run(&mut self, story: &mut Story, run: usize) -> Checked {
        let Run { loaded, members, activations, .. } = self.runs.remove(run);
        story.tell(format!("end run {run} of {members:?}"));
        drop(activations);
        drop(loaded);
        if !self.scenario.manager.keep_idle && self.lease_count == 0 {
            for (model, _) in members {
                let held = invariants::held_bytes(&self.component(model).report());
                if !self.is_in_use(model) && held > ByteCount::ZERO {
                    return broken(Invariant::CancelReturnsAll, format!("m{model} keeps {held} after its last holder"));
                }
            }
        }
        self.check(story)
    }
}
