//! The simulated device, and what drivers of a scenario ask of it beside the traits.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_device::{
    Account, AllocError, Buffer, ByteCount, Charge, DType, Device, DeviceError, DeviceId, Kernels, Ledger, Queue,
    Region, Upload, WeightForm,
};

use crate::content::Content;
use crate::faults::{Fault, Faults};
use crate::memory::{Block, SimMemory, SimRegion, area};
use crate::options::SimOptions;
use crate::queue::{DeviceCore, QueueCore, SimEvent, SimQueue};
use crate::trace::{Trace, WorkKind};
use crate::violation::Violation;
use crate::world::{Area, DeviceState, Output, SharedWorld, Work, lock};

/// The kind in the [`DeviceId`] of simulated devices.
pub(crate) const KIND: &str = "sim";

/// What a rehearsal counts time by: the trait says a nanosecond for each thousand operations.
const REHEARSAL_FLOPS_PER_SECOND: f64 = 1e12;

/// A device in virtual time. See the [crate](crate) for what it simulates.
pub struct SimDevice {
    core: Arc<DeviceCore>,
    compute: Arc<SimQueue>,
}

impl SimDevice {
    /// A device in a world of its own.
    ///
    /// # Panics
    /// If an option is out of the range that its documentation states.
    pub fn new(options: &SimOptions) -> Self {
        Self::enter(SharedWorld::default(), options, true)
    }

    /// Another device in the same world: it shares the host and its clock, and events order the queues of both.
    ///
    /// # Panics
    /// As [`new`](Self::new).
    pub fn beside(&self, options: &SimOptions) -> Self {
        Self::enter(self.core.world.clone(), options, true)
    }

    fn enter(world: SharedWorld, options: &SimOptions, checked: bool) -> Self {
        options.assert_sound();
        let id = DeviceId { kind: KIND, index: options.index };
        let mut state = lock(&world);
        let place = state.devices.len();
        state.devices.push(DeviceState::new(id, options, checked));
        drop(state);
        let ledger = Ledger::new(options.budget.unwrap_or(options.memory));
        let core = Arc::new(DeviceCore { world, place, id, ledger, options: options.clone() });
        Self { compute: Arc::new(SimQueue::open(&core, "compute")), core }
    }

    /// What it was made with.
    pub fn options(&self) -> &SimOptions {
        &self.core.options
    }

    /// The host's clock: advanced by synchronizing and by reading back, by nothing else.
    pub fn host_time(&self) -> Duration {
        lock(&self.core.world).host.time
    }

    /// What the program did wrong so far, in the order of enqueueing; the first thousand.
    pub fn violations(&self) -> Vec<Violation> {
        self.state(|device| device.violations.clone())
    }

    /// Bytes of live allocations, as the allocator counts them: the ledger's bytes less the neighbour's.
    pub fn live_bytes(&self) -> ByteCount {
        self.state(|device| device.live_bytes)
    }

    /// Bytes copied to the device so far.
    pub fn copied_bytes(&self) -> ByteCount {
        self.state(|device| device.copied_bytes)
    }

    /// What ran so far; empty unless [`SimOptions::trace`] is set.
    pub fn trace(&self) -> Trace {
        self.state(|device| device.trace.clone().unwrap_or_default())
    }

    /// What ran since the last call; empty unless [`SimOptions::trace`] is set.
    pub fn take_trace(&self) -> Trace {
        self.state(|device| device.trace.as_mut().map(std::mem::take).unwrap_or_default())
    }

    /// Lets the next opportunity for `fault` fail, besides what chance does. May be called several times.
    pub fn fail_next(&self, fault: Fault) {
        self.state(|device| device.faults.order(fault));
    }

    /// Changes how often things go wrong.
    pub fn set_faults(&self, faults: Faults) {
        self.state(|device| device.faults.set_rates(faults));
    }

    /// Says how many bytes other programs hold from now on: booked on the ledger as foreign, and gone for the allocator.
    pub fn neighbour_takes(&self, size: ByteCount) {
        self.state(|device| device.foreign_bytes = size);
        self.core.ledger.set_foreign(size);
    }

    /// What `buffer` holds, if contents are simulated. Reads nothing, orders nothing: for assertions.
    ///
    /// # Panics
    /// If the buffer belongs to another backend.
    pub fn content(&self, buffer: &Buffer) -> Option<Content> {
        let whole = area(buffer, 0..buffer.size().0);
        let mut seen = Vec::new();
        self.state(|device| {
            let history = device.history.as_ref().filter(|_| device.options.contents)?;
            whole.addresses().for_each(|addresses| history.contents(addresses, &mut seen));
            (!seen.is_empty()).then(|| Content::together(&seen))
        })
    }

    /// Where `buffer` is; usually one range.
    ///
    /// # Panics
    /// If the buffer belongs to another backend.
    pub fn addresses(&self, buffer: &Buffer) -> Vec<Range<u64>> {
        area(buffer, 0..buffer.size().0).addresses().collect()
    }

    /// Enqueues an operation that takes `seconds` on the compute engine, reads all of `reads` and then writes all of
    /// `writes`. Returns what it saw of each of `reads`; nothing unless [`SimOptions::contents`] is set.
    ///
    /// # Errors
    /// [`DeviceError::Lost`].
    ///
    /// # Panics
    /// If the queue or a buffer belongs to another backend.
    pub fn compute(
        &self,
        queue: &dyn Queue,
        name: &str,
        seconds: f64,
        reads: &[&Buffer],
        writes: &mut [&mut Buffer],
    ) -> Result<Vec<Content>, DeviceError> {
        let reads: Vec<Area<'_>> = reads.iter().map(|buffer| self.whole(buffer)).collect();
        let writes: Vec<Area<'_>> = writes.iter().map(|buffer| self.whole(buffer)).collect();
        let (kind, bytes) = (WorkKind::Compute, ByteCount::ZERO);
        let work = Work { kind, name, bytes, seconds, reads: &reads, writes: &writes, output: None };
        self.enqueue(queue, &work)
    }

    /// Enqueues the merging of an adapter into the weights in `buffer`: reads and writes all of it, and appends `adapter`
    /// to its content.
    ///
    /// # Errors
    /// [`DeviceError::Lost`].
    ///
    /// # Panics
    /// If the queue or the buffer belongs to another backend.
    pub fn merge(&self, queue: &dyn Queue, buffer: &mut Buffer, adapter: u64, seconds: f64) -> Result<(), DeviceError> {
        let areas = [self.whole(buffer)];
        let work = Work {
            kind: WorkKind::Merge,
            name: &format!("merge adapter {adapter}"),
            bytes: ByteCount::ZERO,
            seconds,
            reads: &areas,
            writes: &areas,
            output: Some(Output::Merged(adapter)),
        };
        self.enqueue(queue, &work).map(drop)
    }

    pub(crate) fn enqueue(&self, queue: &dyn Queue, work: &Work<'_>) -> Result<Vec<Content>, DeviceError> {
        let queue = self.queue_core(queue);
        lock(&self.core.world).enqueue(queue.idx, work)
    }

    /// A part of a buffer of this device.
    pub(crate) fn area<'a>(&self, buffer: &'a Buffer, range: Range<u64>) -> Area<'a> {
        let memory = buffer.storage::<SimMemory>();
        assert!(
            Arc::ptr_eq(&memory.queue().device, &self.core),
            "a buffer of `{}` is used on `{}` or in another world",
            memory.queue().device.id,
            self.core.id
        );
        memory.area(range)
    }

    fn whole<'a>(&self, buffer: &'a Buffer) -> Area<'a> {
        self.area(buffer, 0..buffer.size().0)
    }

    /// This backend's handle on a queue. Its events tell which one it is.
    fn queue_core(&self, queue: &dyn Queue) -> Arc<QueueCore> {
        let event = queue.record();
        let core = SimEvent::of(&event).queue.clone();
        assert!(Arc::ptr_eq(&core.device, &self.core), "a queue of `{}` is used on `{}`", core.device.id, self.core.id);
        core
    }

    fn claim(&self, queue: &dyn Queue, account: Account, size: ByteCount) -> Result<(Block, Charge), AllocError> {
        let queue = self.queue_core(queue);
        let ledger = &self.core.ledger;
        let exhausted = || AllocError::Exhausted { account: ledger.account_name(account), needed: size };
        let mut world = lock(&self.core.world);
        let fits_budget = size <= ledger.available();
        let device = world.device_of(queue.idx);
        if fits_budget && (device.lost || device.faults.strikes(Fault::Allocation) || size > device.free_bytes()) {
            return Err(exhausted());
        }
        let charge = ledger.charge(account, size)?;
        let extents = world.allocate(queue.idx, size, || ledger.account_name(account)).ok_or_else(exhausted)?;
        drop(world);
        let unacquired = Default::default();
        Ok((Block { queue, account, size, extents, unacquired }, charge))
    }

    fn state<T>(&self, ask: impl FnOnce(&mut DeviceState) -> T) -> T {
        ask(&mut lock(&self.core.world).devices[self.core.place])
    }
}

impl Device for SimDevice {
    fn id(&self) -> DeviceId {
        self.core.id
    }

    fn kernel_set(&self) -> String {
        "without scratch memory".to_owned()
    }

    fn ledger(&self) -> &Ledger {
        &self.core.ledger
    }

    /// A lost device says [`AllocError::Exhausted`]; there is no other word for it here.
    fn allocate(&self, queue: &dyn Queue, account: Account, size: ByteCount) -> Result<Buffer, AllocError> {
        let (block, charge) = self.claim(queue, account, self.allocated_bytes(size))?;
        Ok(Buffer::new(Box::new(SimMemory::of_block(block)), charge))
    }

    fn region(&self, queue: &dyn Queue, account: Account, size: ByteCount) -> Result<Arc<dyn Region>, AllocError> {
        assert_eq!(size, self.allocated_bytes(size), "a region's size is a multiple of the allocation unit");
        let (block, charge) = self.claim(queue, account, size)?;
        Ok(Arc::new(SimRegion::new(block, charge)))
    }

    fn allocated_bytes(&self, size: ByteCount) -> ByteCount {
        size.align_up(self.core.options.allocation_unit.0)
    }

    fn compute_queue(&self) -> Arc<dyn Queue> {
        self.compute.clone()
    }

    fn copy_queue(&self, name: &str) -> Result<Arc<dyn Queue>, DeviceError> {
        if self.state(|device| device.lost) {
            return Err(DeviceError::Lost { queue: name.to_owned() });
        }
        Ok(Arc::new(SimQueue::open(&self.core, name)))
    }

    fn weight_bytes(&self, form: &WeightForm, dtype: DType) -> ByteCount {
        weight_bytes(&self.core.options, form, dtype)
    }

    fn staging_bytes(&self, _upload: &Upload) -> ByteCount {
        ByteCount::ZERO
    }

    fn kernels(&self) -> &dyn Kernels {
        self
    }

    fn rehearsal(&self) -> Arc<dyn Device> {
        let options = SimOptions {
            memory: ByteCount::MAX,
            budget: None,
            link_bytes_per_second: f64::MAX,
            link_latency: Duration::ZERO,
            flops_per_second: REHEARSAL_FLOPS_PER_SECOND,
            memory_bytes_per_second: None,
            faults: Faults::default(),
            jitter: 0.0,
            contents: false,
            trace: false,
            ..self.core.options.clone()
        };
        Arc::new(Self::enter(SharedWorld::default(), &options, false))
    }
}

/// Not packed: the stored numbers in the compute dtype, rounded up to the allocation unit.
pub(crate) fn weight_bytes(options: &SimOptions, form: &WeightForm, dtype: DType) -> ByteCount {
    let dtype = if matches!(form, WeightForm::Vector { .. }) { DType::F32 } else { dtype };
    ByteCount::of(form.element_count() * dtype.size()).align_up(options.allocation_unit.0)
}

/// What a copy of `upload` moves: everything up to the end of its last piece.
pub(crate) fn upload_bytes(options: &SimOptions, upload: &Upload) -> ByteCount {
    let ends = upload.pieces.iter().map(|piece| {
        let offset = ByteCount::of(piece.offset);
        offset + weight_bytes(options, &piece.form, piece.dtype)
    });
    ends.max().unwrap_or_default()
}
