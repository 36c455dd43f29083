//! A component: which of its units are on the device, and who may use them.
//!
//! It is a placeholder until the [`Manager`](crate::Manager) loads it: it knows its units, and refuses leases. What is
//! on the device is one state per component, changed as a whole by [`carry_out`](Component::carry_out): either all that
//! a plan says is there, or the component is at rest with whatever residents are left, no ring, and no leases.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plimsoll_device::{Account, Buffer, ByteCount, Device, DeviceError, Queue};
use serde::Serialize;

use crate::lease::Held;
use crate::patch::{PatchSet, PatchSetId};
use crate::ring::{Ring, RingError, RingQueues};
use crate::timings::{Timings, Traffic, has_drifted};
use crate::{Lease, LeaseError, Link, Plan, PlanOptions, Planner, Unit, UnitId, UnitProfile};

/// A model's weights with one owner. Dropping it frees all its device memory.
pub struct Component {
    pub(crate) name: String,
    pub(crate) device: Arc<dyn Device>,
    pub(crate) compute: Arc<dyn Queue>,
    pub(crate) units: Vec<Unit>,
    pub(crate) accounts: Accounts,
    state: Mutex<State>,
}

pub(crate) struct Accounts {
    pub(crate) weights: Account,
    pub(crate) ring: Account,
    pub(crate) adapters: Account,
}

pub(crate) struct State {
    pub(crate) patches: Arc<PatchSet>,
    /// The units that are on the device for good, adapters merged in where `patches` say so.
    pub(crate) residents: Vec<Option<Arc<Buffer>>>,
    /// The units' unmerged adapters.
    pub(crate) adapters: Vec<Option<Arc<Buffer>>>,
    /// None while the component is at rest.
    pub(crate) loaded: Option<Active>,
    pub(crate) planned: Option<Planned>,
    /// Seconds of each unit as estimated before any measurement.
    estimates: Vec<f64>,
    pub(crate) timings: Timings,
}

/// What a loaded component has besides residents.
pub(crate) struct Active {
    pub(crate) plan: Plan,
    /// The ring before its queues: dropping a queue waits for its copies.
    pub(crate) ring: Option<Ring>,
    pub(crate) copy_queues: Vec<Arc<dyn Queue>>,
}

/// A planner and what it was made of.
pub(crate) struct Planned {
    pub(crate) planner: Arc<Planner>,
    options: PlanOptions,
    link: Option<Link>,
    patches: PatchSetId,
    seconds: Vec<f64>,
}

/// A component can't be changed as wanted.
#[derive(Debug)]
pub(crate) enum ChangeError {
    /// Leases hold what would have to go.
    Leased,
    /// The device, or the storage.
    Device(DeviceError),
}

impl From<DeviceError> for ChangeError {
    fn from(error: DeviceError) -> Self {
        Self::Device(error)
    }
}

impl From<plimsoll_device::AllocError> for ChangeError {
    fn from(error: plimsoll_device::AllocError) -> Self {
        Self::Device(error.into())
    }
}

/// What a component has on the device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ComponentReport {
    /// The component.
    pub name: String,
    /// Whether it can be used now.
    pub loaded: bool,
    /// Bytes of residents.
    pub resident_bytes: ByteCount,
    /// The ring.
    pub ring_bytes: ByteCount,
    /// Bytes of unmerged adapters.
    pub adapter_bytes: ByteCount,
}

impl Component {
    /// A placeholder of that name. Residents are booked on `NAME.weights`, the ring on `NAME.ring`, unmerged adapters on
    /// `NAME.adapters`.
    pub(crate) fn new(device: &Arc<dyn Device>, name: &str, units: Vec<Unit>) -> Self {
        let ledger = device.ledger();
        let account = |kind: &str| ledger.account(&format!("{name}.{kind}"));
        let accounts = Accounts { weights: account("weights"), ring: account("ring"), adapters: account("adapters") };
        let state = State {
            patches: Arc::default(),
            residents: vec![None; units.len()],
            adapters: vec![None; units.len()],
            loaded: None,
            planned: None,
            estimates: vec![0.0; units.len()],
            timings: Timings::new(units.len()),
        };
        let (device, compute) = (device.clone(), device.compute_queue());
        Self { name: name.to_owned(), device, compute, units, accounts, state: Mutex::new(state) }
    }

    /// The component's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its name and a hash of its units' names and sizes: the same for the same layers in every run.
    pub fn fingerprint(&self) -> String {
        // FNV-1a: http://www.isthe.com/chongo/tech/comp/fnv/
        let mut hash = 0xcbf2_9ce4_8422_2325u64;
        for unit in &self.units {
            for byte in unit.name().bytes().chain(unit.bytes.0.to_le_bytes()) {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
        }
        format!("{}-{hash:016x}", self.name)
    }

    /// Its units, in visiting order.
    pub fn units(&self) -> &[Unit] {
        &self.units
    }

    /// What is resident, and the ring; none while it is at rest.
    pub fn plan(&self) -> Option<Plan> {
        self.lock().loaded.as_ref().map(|active| active.plan.clone())
    }

    /// The adapters on it.
    pub fn patches(&self) -> PatchSetId {
        self.lock().patches.id
    }

    /// What it has copied and waited for so far.
    pub fn traffic(&self) -> Traffic {
        self.lock().timings.traffic()
    }

    /// Says how long each unit computes, in seconds by visiting order: an estimate that holds until it is measured.
    ///
    /// # Panics
    /// If there are not as many as units: a bug.
    pub fn estimate(&self, seconds: Vec<f64>) {
        assert_eq!(seconds.len(), self.units.len(), "estimates for `{}`", self.name);
        self.lock().estimates = seconds;
    }

    /// How long each unit computes, in seconds by visiting order: measured, or else estimated.
    pub fn compute_seconds(&self) -> Vec<f64> {
        self.lock().compute_seconds()
    }

    /// What it has on the device.
    pub fn report(&self) -> ComponentReport {
        let state = self.lock();
        ComponentReport {
            name: self.name.clone(),
            loaded: state.loaded.is_some(),
            resident_bytes: state.resident_bytes(),
            ring_bytes: state.ring_bytes(),
            adapter_bytes: state.adapter_bytes(),
        }
    }

    /// Bytes that its unmerged adapters take once it is loaded.
    pub(crate) fn adapter_bytes_wanted(&self) -> ByteCount {
        self.lock().patches.adapter_bytes()
    }

    /// The adapters on it.
    pub(crate) fn patch_set(&self) -> Arc<PatchSet> {
        self.lock().patches.clone()
    }

    /// All its bytes on the device.
    pub(crate) fn held_bytes(&self) -> ByteCount {
        let state = self.lock();
        state.resident_bytes() + state.ring_bytes() + state.adapter_bytes()
    }

    /// The right to read `unit` in work enqueued on `queue` while the lease lives.
    ///
    /// A visit in the expected order finds its copy under way; one out of order waits for a copy of its own, and is
    /// expected from then on.
    ///
    /// # Errors
    /// [`LeaseError`] when the component is at rest, the copy failed, or the ring has no room.
    ///
    /// # Panics
    /// If `queue` is another device's: a bug.
    pub fn lease<'a>(&'a self, unit: UnitId, queue: &'a Arc<dyn Queue>) -> Result<Lease<'a>, LeaseError> {
        assert_eq!(queue.device(), self.device.id(), "`{}` is used on its own device", self.name);
        let mut state = self.lock();
        let state = &mut *state;
        let Some(active) = &mut state.loaded else {
            return Err(LeaseError::NotLoaded { component: self.name.clone() });
        };
        let adapter = state.adapters[unit.0].clone();
        if !Arc::ptr_eq(queue, &self.compute) {
            // Whatever is on the device was allocated, and residents were copied in, for the compute queue.
            queue.wait(&self.compute.record())?;
        }
        let asked = queue.record();
        if let Some(buffer) = state.residents[unit.0].clone() {
            state.timings.begin(unit, asked.clone(), asked);
            return Ok(Lease::new(self, unit, queue, Held::Resident(buffer), adapter));
        }
        let ring = active.ring.as_mut().expect("a unit that is not resident has a ring");
        let queues = self.ring_queues(&**queue, &active.copy_queues);
        let mut slot = ring.acquire(unit, &queues).map_err(|error| self.lease_error(unit, error))?;
        state.timings.count_copy(self.units[unit.0].bytes);
        if let Some(merge) = state.patches.merge_of(unit.0)
            && let Err(error) = merge.merge(&*self.device, &**queue, &mut slot.buffer)
        {
            ring.release(slot, vec![queue.record()]);
            return Err(error.into());
        }
        state.timings.begin(unit, asked, queue.record());
        Ok(Lease::new(self, unit, queue, Held::Streamed(slot), adapter))
    }

    /// Ends a lease: orders whatever becomes of the memory behind the readers' work.
    pub(crate) fn release(&self, held: Held, adapter: Option<Arc<Buffer>>, unit: UnitId, queues: &[&Arc<dyn Queue>]) {
        let mut state = self.lock();
        let is_last = unit.0 + 1 == self.units.len();
        if is_last {
            state.timings.end_pass(unit, queues[0].record());
        }
        if adapter.is_some() || matches!(held, Held::Resident(_)) {
            // What stays is freed in the order of the compute queue.
            for queue in queues.iter().filter(|queue| !Arc::ptr_eq(queue, &self.compute)) {
                // What the queue failed with is told to those who enqueue on it.
                let _ = self.compute.wait(&queue.record());
            }
        }
        if let Held::Streamed(slot) = held {
            let consumed = queues.iter().map(|queue| queue.record()).collect();
            let ring = state.loaded.as_mut().and_then(|active| active.ring.as_mut());
            ring.expect("a ring with leases is kept").release(slot, consumed);
        }
    }

    pub(crate) fn ring_queues<'a>(&'a self, compute: &'a dyn Queue, copies: &'a [Arc<dyn Queue>]) -> RingQueues<'a> {
        RingQueues { compute, copies, units: &self.units }
    }

    fn lease_error(&self, unit: UnitId, error: RingError) -> LeaseError {
        match error {
            RingError::Device(error) => LeaseError::Device(error),
            RingError::Leased => {
                LeaseError::RingLeased { component: self.name.clone(), unit: self.units[unit.0].name().to_owned() }
            }
        }
    }

    /// The planner for the component as it is: its adapters, its measured times. Made anew when they have changed; for times
    /// only while it is at rest, because plans of two ranks don't nest.
    pub(crate) fn planner(&self, options: &PlanOptions, link: Option<Link>) -> Arc<Planner> {
        let mut state = self.lock();
        let seconds = state.compute_seconds();
        let options =
            &PlanOptions { staging_bytes: self.staging_bytes(&state.patches, options.offload_streams), ..*options };
        if let Some(planned) = &state.planned
            && planned.options == *options
            && planned.link == link
            && planned.patches == state.patches.id
            && (state.loaded.is_some() || !has_drifted(&planned.seconds, &seconds))
        {
            return planned.planner.clone();
        }
        let profiles = self.profiles(&state.patches, &seconds);
        let balanced = link.unwrap_or_else(|| Link::balanced(&profiles));
        let planner = Arc::new(Planner::new(profiles, options, balanced));
        let patches = state.patches.id;
        state.planned = Some(Planned { planner: planner.clone(), options: *options, link, patches, seconds });
        planner
    }

    fn profiles(&self, patches: &PatchSet, seconds: &[f64]) -> Vec<UnitProfile> {
        let profile = |(idx, unit): (usize, &Unit)| {
            let merge = patches.merge_of(idx);
            UnitProfile {
                name: unit.name().to_owned(),
                bytes: unit.bytes,
                transient_bytes: ByteCount::ZERO,
                compute_seconds: seconds[idx],
                patched_elements: merge.map_or(0, |merge| merge.patched_elements()),
            }
        };
        self.units.iter().enumerate().map(profile).collect()
    }

    /// Scratch memory of its copies: that of the largest, on each queue that copies. Merging adapters takes its temporary
    /// for units that come to stay as well as for those that are streamed, so the largest of all is part of it.
    fn staging_bytes(&self, patches: &PatchSet, offload_streams: usize) -> ByteCount {
        let largest = self.units.iter().map(|unit| unit.staging_bytes).max().unwrap_or(ByteCount::ZERO);
        let merges = (0..self.units.len()).filter_map(|idx| patches.merge_of(idx));
        let merging = merges.map(|merge| merge.transient_bytes()).max().unwrap_or(ByteCount::ZERO);
        largest * offload_streams.max(1) as u64 + merging
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // Whatever panics leaves a state whose bytes are owned by it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn resident_bytes(&self) -> ByteCount {
        self.residents.iter().flatten().map(|buffer| buffer.size()).sum()
    }

    fn adapter_bytes(&self) -> ByteCount {
        self.adapters.iter().flatten().map(|buffer| buffer.size()).sum()
    }

    pub(crate) fn ring_bytes(&self) -> ByteCount {
        let ring = self.loaded.as_ref().and_then(|active| active.ring.as_ref());
        ring.map_or(ByteCount::ZERO, Ring::size)
    }

    fn compute_seconds(&mut self) -> Vec<f64> {
        let measured = self.timings.seconds();
        let (mut known, mut estimated) = (0.0, 0.0);
        for (measured, estimate) in measured.iter().zip(&self.estimates) {
            known += measured.unwrap_or(0.0);
            estimated += if measured.is_some() { *estimate } else { 0.0 };
        }
        // An estimate counts in the pace of what was measured beside it.
        let pace = if known > 0.0 && estimated > 0.0 { known / estimated } else { 1.0 };
        measured.iter().zip(&self.estimates).map(|(measured, estimate)| measured.unwrap_or(estimate * pace)).collect()
    }
}
