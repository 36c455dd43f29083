//! The simulated world: one clock of the host, the queues and the devices, and the one function that runs work.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use plimsoll_device::{ByteCount, DeviceError, DeviceId};

use crate::clock::{Stamp, VectorClock};
use crate::content::Content;
use crate::faults::{Fault, FaultSource};
use crate::history::{Access, AccessKind, Conflict, History, Operation};
use crate::pool::Pool;
use crate::trace::{MemoryChange, Span, Trace, WorkKind};
use crate::violation::{VIOLATIONS_MAX, Violation, ViolationKind};
use crate::{Seed, SimOptions};

/// The longest that one operation can take; it keeps sums of times within range.
const SECONDS_MAX: f64 = 1e9;

/// A world that devices, queues and events share.
pub(crate) type SharedWorld = Arc<Mutex<World>>;

/// The host, all queues, all devices.
#[derive(Default)]
pub(crate) struct World {
    /// What the host knows to have happened, and its time.
    pub(crate) host: Stamp,
    pub(crate) queues: Vec<QueueState>,
    pub(crate) devices: Vec<DeviceState>,
}

/// A queue: where its last operation left it. Its place among the queues is its component in vector clocks.
pub(crate) struct QueueState {
    pub(crate) name: Arc<str>,
    pub(crate) device: usize,
    pub(crate) last: Stamp,
    /// Whether nobody holds the queue, its events or its memory any more.
    pub(crate) retired: bool,
}

/// A device: its engines, its memory, what it does wrong and what it noticed.
pub(crate) struct DeviceState {
    pub(crate) id: DeviceId,
    pub(crate) options: SimOptions,
    pub(crate) lost: bool,
    /// When the copy engine, the compute engine and the engine for reading back are free.
    engines: [Duration; 3],
    pub(crate) pool: Pool,
    /// None where nothing is checked: in a rehearsal.
    pub(crate) history: Option<History>,
    pub(crate) live_bytes: ByteCount,
    pub(crate) foreign_bytes: ByteCount,
    pub(crate) copied_bytes: ByteCount,
    pub(crate) faults: FaultSource,
    jitter_seed: Seed,
    pub(crate) violations: Vec<Violation>,
    pub(crate) trace: Option<Trace>,
}

/// An operation to be enqueued.
pub(crate) struct Work<'a> {
    pub(crate) kind: WorkKind,
    pub(crate) name: &'a str,
    /// Bytes copied; the link decides how long that takes.
    pub(crate) bytes: ByteCount,
    /// How long a kernel takes.
    pub(crate) seconds: f64,
    pub(crate) reads: &'a [Area<'a>],
    pub(crate) writes: &'a [Area<'a>],
    /// What is written; none for what follows from the name and what is read.
    pub(crate) output: Option<Output>,
}

/// What an operation leaves behind.
pub(crate) enum Output {
    Content(Content),
    /// What was read first, with another adapter in it.
    Merged(u64),
}

/// A part of a buffer: bytes `range` of the memory that `extents` make up.
#[derive(Clone, Copy)]
pub(crate) struct Area<'a> {
    pub(crate) extents: &'a [Range<u64>],
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Where its buffer ends, in the same count as `end`.
    pub(crate) limit: u64,
}

impl Area<'_> {
    /// Its addresses; nothing beyond the limit.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = Range<u64>> {
        let end = self.end.min(self.limit);
        let mut base = 0;
        self.extents.iter().filter_map(move |extent| {
            let len = extent.end - extent.start;
            let (from, to) = (self.start.max(base), end.min(base + len));
            let offset = extent.start.wrapping_sub(base);
            base += len;
            (from < to).then(|| from.wrapping_add(offset)..to.wrapping_add(offset))
        })
    }
}

/// Locks the world. Its state is changed in one piece, so a panic elsewhere can't leave it halfway.
pub(crate) fn lock(world: &SharedWorld) -> MutexGuard<'_, World> {
    world.lock().unwrap_or_else(PoisonError::into_inner)
}

impl DeviceState {
    pub(crate) fn new(id: DeviceId, options: &SimOptions, checked: bool) -> Self {
        let seed = Seed::new(options.seed).derive(id.index as u64);
        let capacity = options.memory.0 / options.allocation_unit.0 * options.allocation_unit.0;
        Self {
            id,
            options: options.clone(),
            lost: false,
            engines: [Duration::ZERO; 3],
            pool: Pool::new(capacity),
            history: checked.then(History::default),
            live_bytes: ByteCount::ZERO,
            foreign_bytes: ByteCount::ZERO,
            copied_bytes: ByteCount::ZERO,
            faults: FaultSource::new(options.faults, &seed.derive(0)),
            jitter_seed: seed.derive(1),
            violations: Vec::new(),
            trace: options.trace.then(Trace::default),
        }
    }

    pub(crate) fn note_memory(&mut self, time: Duration, account: impl FnOnce() -> String, bytes: i64) {
        if let Some(trace) = &mut self.trace {
            trace.memory.push(MemoryChange { time, account: account(), bytes });
        }
    }

    /// Bytes that neither this program nor a neighbour holds.
    pub(crate) fn free_bytes(&self) -> ByteCount {
        ByteCount(self.pool.free_bytes()).saturating_sub(self.foreign_bytes)
    }

    fn duration(&mut self, work: &Work<'_>) -> Duration {
        let options = &self.options;
        let mut seconds = match work.kind {
            WorkKind::Compute | WorkKind::Merge => work.seconds,
            WorkKind::Copy | WorkKind::Read => {
                options.link_latency.as_secs_f64() + work.bytes.0 as f64 / options.link_bytes_per_second
            }
        };
        if work.kind == WorkKind::Copy && self.faults.strikes(Fault::SlowCopy) {
            seconds *= self.faults.slowness();
        }
        if options.jitter > 0.0 {
            seconds *= 1.0 + options.jitter * (2.0 * self.jitter_seed.fraction() - 1.0);
        }
        Duration::try_from_secs_f64(seconds.clamp(0.0, SECONDS_MAX)).unwrap_or_default()
    }

    fn engine(&mut self, kind: WorkKind) -> &mut Duration {
        match kind {
            WorkKind::Copy => &mut self.engines[0],
            WorkKind::Compute | WorkKind::Merge => &mut self.engines[1],
            WorkKind::Read => &mut self.engines[2],
        }
    }
}

impl World {
    /// A new queue of a device. It takes the component of a retired queue if the host has seen all of that one's work:
    /// then everything the new queue does is behind it anyway.
    pub(crate) fn open_queue(&mut self, name: &str, device: usize) -> usize {
        let name = Arc::from(name);
        let clock = &self.host.clock;
        let reusable =
            |(idx, queue): (usize, &QueueState)| queue.retired && queue.last.clock.get(idx) <= clock.get(idx);
        let mut queue = QueueState { name, device, last: Stamp::default(), retired: false };
        match self.queues.iter().enumerate().position(reusable) {
            Some(idx) => {
                let tick = self.queues[idx].last.clock.get(idx);
                Arc::make_mut(&mut queue.last.clock).advance(idx, tick);
                self.queues[idx] = queue;
                idx
            }
            None => {
                self.queues.push(queue);
                self.queues.len() - 1
            }
        }
    }

    pub(crate) fn device_of(&mut self, queue: usize) -> &mut DeviceState {
        &mut self.devices[self.queues[queue].device]
    }

    /// The point in a queue's order that the host is at.
    pub(crate) fn point(&mut self, queue: usize) -> &mut Stamp {
        let last = &mut self.queues[queue].last;
        last.join(&self.host);
        last
    }

    /// Whether the queue's device is gone.
    pub(crate) fn check_alive(&mut self, queue: usize) -> Result<(), DeviceError> {
        if self.device_of(queue).lost {
            return Err(DeviceError::Lost { queue: self.queues[queue].name.to_string() });
        }
        Ok(())
    }

    /// Takes memory, usable behind the point in the queue's order that the host is at; none if there is too little.
    pub(crate) fn allocate(
        &mut self,
        queue: usize,
        size: ByteCount,
        account: impl Fn() -> String,
    ) -> Option<Vec<Range<u64>>> {
        let taken = self.device_of(queue).pool.take(size.0)?;
        let device = self.queues[queue].device;
        if let Some(freed) = &taken.freed {
            self.queues[queue].last.join(freed);
        }
        let point = self.point(queue);
        let tick = Arc::make_mut(&mut point.clock).tick(queue);
        let time = point.time;
        let device = &mut self.devices[device];
        device.live_bytes += size;
        device.note_memory(time, &account, signed(size));
        if let Some(history) = &mut device.history {
            let (name, queue_name) = (format!("allocate {}", account()), self.queues[queue].name.clone());
            let operation = Operation { name: name.into(), queue: queue_name, start: time, end: time };
            let (kind, operation) = (AccessKind::Allocate, Arc::new(operation));
            let allocation = Access { queue, tick, kind, former_owner: false, operation };
            taken.extents.iter().for_each(|extent| history.allocate(extent.clone(), &allocation));
        }
        Some(taken.extents)
    }

    /// Runs `work` at its place in the order: when its queue, its engine and the host have come to it. Returns what it
    /// saw of each of its inputs, if contents are simulated.
    ///
    /// # Errors
    /// [`DeviceError::Lost`] only.
    pub(crate) fn enqueue(&mut self, queue: usize, work: &Work<'_>) -> Result<Vec<Content>, DeviceError> {
        if self.device_of(queue).faults.strikes(Fault::DeviceLost) {
            self.device_of(queue).lost = true;
        }
        self.check_alive(queue)?;
        let device = &mut self.devices[self.queues[queue].device];
        let QueueState { name: queue_name, last, .. } = &mut self.queues[queue];
        last.join(&self.host);
        let tick = Arc::make_mut(&mut last.clock).tick(queue);
        let duration = device.duration(work);
        let start = last.time.max(*device.engine(work.kind));
        let end = start.saturating_add(duration);
        last.time = end;
        *device.engine(work.kind) = end;
        if work.kind == WorkKind::Copy {
            device.copied_bytes += work.bytes;
        }
        if device.history.is_none() && device.trace.is_none() {
            return Ok(Vec::new());
        }
        let name: Arc<str> = Arc::from(work.name);
        if let Some(trace) = &mut device.trace {
            let Work { kind, bytes, .. } = *work;
            trace.spans.push(Span { queue: queue_name.clone(), kind, name: name.clone(), bytes, start, end });
        }
        let operation = Arc::new(Operation { name, queue: queue_name.clone(), start, end });
        let access = Access { queue, tick, kind: AccessKind::Read, former_owner: false, operation };
        Ok(device.touch(work, access, &last.clock))
    }
}

impl DeviceState {
    /// Checks and remembers what an operation reads and writes.
    fn touch(&mut self, work: &Work<'_>, mut access: Access, clock: &VectorClock) -> Vec<Content> {
        let Self { id, options, history, violations, .. } = self;
        let Some(history) = history else { return Vec::new() };
        let operation = access.operation.clone();
        let mut found = |conflict: Conflict<'_>| note(violations, *id, &operation, &conflict);
        for area in work.reads.iter().chain(work.writes).filter(|area| area.end > area.limit) {
            let addresses = area.limit.max(area.start)..area.end;
            found(Conflict { kind: ViolationKind::OutOfBounds, addresses, other: None });
        }
        let mut seen = Vec::new();
        let mut inputs = Vec::new();
        for area in work.reads {
            seen.clear();
            area.addresses().for_each(|addresses| history.read(addresses, &access, clock, &mut seen, &mut found));
            if options.contents {
                inputs.push(Content::together(&seen));
            }
        }
        let output = options.contents.then(|| Arc::new(output_content(work, &inputs)));
        access.kind = AccessKind::Write;
        for area in work.writes {
            let addresses = area.addresses();
            addresses.for_each(|addresses| history.write(addresses, &access, clock, output.as_ref(), &mut found));
        }
        inputs
    }
}

fn output_content(work: &Work<'_>, inputs: &[Content]) -> Content {
    match &work.output {
        Some(Output::Content(content)) => content.clone(),
        Some(Output::Merged(adapter)) => {
            let mut content = inputs.first().cloned().unwrap_or_default();
            content.adapters.push(*adapter);
            content
        }
        None => Content::of_output(work.name, inputs),
    }
}

/// Keeps a violation; one that continues the last one's bytes is joined with it.
fn note(violations: &mut Vec<Violation>, device: DeviceId, operation: &Operation, conflict: &Conflict<'_>) {
    let access = describe(operation);
    let other = conflict.other.map(|other| {
        let owner = if other.former_owner { " of a former owner" } else { "" };
        format!("{}{owner}", describe(&other.operation))
    });
    let Conflict { kind, addresses: bytes, .. } = conflict;
    if let Some(last) = violations.last_mut()
        && (last.kind, last.bytes.end, &last.access, &last.other) == (*kind, bytes.start, &access, &other)
    {
        last.bytes.end = bytes.end;
    } else if violations.len() < VIOLATIONS_MAX {
        let (bytes, time) = (bytes.clone(), operation.start);
        violations.push(Violation { kind: *kind, device, bytes, access, other, time });
    }
}

/// A size as a change of memory in use.
pub(crate) fn signed(size: ByteCount) -> i64 {
    i64::try_from(size.0).unwrap_or(i64::MAX)
}

fn describe(operation: &Operation) -> String {
    let Operation { name, queue, start, end } = operation;
    format!("`{name}` on `{queue}` ({start:?} to {end:?})")
}
