//! Queues and events in virtual time.

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use plimsoll_device::{Buffer, ByteCount, DeviceError, DeviceId, Event, Filling, Ledger, Queue, ReadError, Upload};

use crate::clock::Stamp;
use crate::content::Content;
use crate::faults::Fault;
use crate::memory::{SimMemory, area};
use crate::trace::WorkKind;
use crate::world::{Output, SharedWorld, Work, lock};
use crate::{SimOptions, device};

/// What a device, its queues, its events and its memory have in common.
pub(crate) struct DeviceCore {
    pub(crate) world: SharedWorld,
    /// Its place in the world.
    pub(crate) place: usize,
    pub(crate) id: DeviceId,
    pub(crate) ledger: Ledger,
    pub(crate) options: SimOptions,
}

/// A queue's place in the world, for as long as anybody names it.
pub(crate) struct QueueCore {
    pub(crate) device: Arc<DeviceCore>,
    pub(crate) idx: usize,
    name: Arc<str>,
}

impl Drop for QueueCore {
    fn drop(&mut self) {
        lock(&self.device.world).queues[self.idx].retired = true;
    }
}

/// A queue.
pub(crate) struct SimQueue {
    pub(crate) core: Arc<QueueCore>,
}

impl SimQueue {
    pub(crate) fn open(device: &Arc<DeviceCore>, name: &str) -> Self {
        let idx = lock(&device.world).open_queue(name, device.place);
        Self { core: Arc::new(QueueCore { device: device.clone(), idx, name: name.into() }) }
    }

    fn event(&self, stamp: Stamp, failure: Option<DeviceError>) -> Arc<SimEvent> {
        Arc::new(SimEvent { queue: self.core.clone(), stamp, failure, waited_for: AtomicBool::new(false) })
    }

    /// The failure that the copy of `upload` will end with, or what it will leave behind.
    fn outcome(&self, upload: &Upload) -> Result<Content, ReadError> {
        if !self.core.device.options.contents {
            return Ok(Content::default());
        }
        Content::of_upload(upload)
    }
}

impl Queue for SimQueue {
    fn name(&self) -> &str {
        &self.core.name
    }

    fn device(&self) -> DeviceId {
        self.core.device.id
    }

    fn record(&self) -> Arc<dyn Event> {
        let stamp = lock(&self.core.device.world).point(self.core.idx).clone();
        self.event(stamp, None)
    }

    fn wait(&self, event: &Arc<dyn Event>) -> Result<(), DeviceError> {
        let event = SimEvent::of(event);
        assert!(
            Arc::ptr_eq(&event.queue.device.world, &self.core.device.world),
            "an event is waited for in the world it was recorded in"
        );
        let mut world = lock(&self.core.device.world);
        world.check_alive(self.core.idx)?;
        world.check_alive(event.queue.idx)?;
        world.point(self.core.idx).join(&event.stamp);
        drop(world);
        event.outcome()
    }

    fn upload(&self, upload: &Arc<Upload>, mut slot: Buffer) -> Filling {
        let outcome = self.outcome(upload);
        let device = &self.core.device;
        let bytes = device::upload_bytes(&device.options, upload);
        assert!(bytes <= slot.size(), "the pieces of `{}` take {bytes}, its slot has {}", upload.name, slot.size());
        let mut world = lock(&device.world);
        let short = world.device_of(self.core.idx).faults.strikes(Fault::ShortRead);
        let outcome = if short { Err(short_read(upload, bytes)) } else { outcome };
        let failure = outcome.as_ref().err().map(|source| device_error(upload, source));
        let work = Work {
            kind: WorkKind::Copy,
            name: &upload.name,
            bytes,
            seconds: 0.0,
            reads: &[],
            writes: &[area(&slot, 0..bytes.0)],
            output: Some(Output::Content(outcome.unwrap_or_default())),
        };
        let failure = world.enqueue(self.core.idx, &work).err().or(failure);
        let ready = self.event(world.point(self.core.idx).clone(), failure);
        drop(world);
        slot.storage_mut::<SimMemory>().set_filling(ready.clone());
        Filling::new(Arc::new(Mutex::new(Some(slot))), ready)
    }

    fn write(&self, bytes: &[u8], buffer: &mut Buffer) -> Result<(), DeviceError> {
        let size = ByteCount::of(bytes.len());
        let contents = self.core.device.options.contents;
        let work = Work {
            kind: WorkKind::Copy,
            name: "write",
            bytes: size,
            seconds: 0.0,
            reads: &[],
            writes: &[area(buffer, 0..size.0)],
            output: contents.then(|| Output::Content(Content::of_bytes(bytes))),
        };
        lock(&self.core.device.world).enqueue(self.core.idx, &work).map(drop)
    }

    fn read(&self, buffer: &Buffer, offset: usize, out: &mut [u8]) -> Result<(), DeviceError> {
        let (offset, size) = (offset as u64, ByteCount::of(out.len()));
        let work = Work {
            kind: WorkKind::Read,
            name: "read",
            bytes: size,
            seconds: 0.0,
            reads: &[area(buffer, offset..offset.saturating_add(size.0))],
            writes: &[],
            output: None,
        };
        lock(&self.core.device.world).enqueue(self.core.idx, &work)?;
        out.fill(0);
        self.synchronize()
    }

    fn synchronize(&self) -> Result<(), DeviceError> {
        let mut world = lock(&self.core.device.world);
        world.check_alive(self.core.idx)?;
        let point = world.point(self.core.idx).clone();
        world.host.join(&point);
        Ok(())
    }
}

/// A point in a queue's order. Its time is known from the start.
pub(crate) struct SimEvent {
    pub(crate) queue: Arc<QueueCore>,
    stamp: Stamp,
    failure: Option<DeviceError>,
    waited_for: AtomicBool,
}

impl SimEvent {
    /// An event of this backend.
    ///
    /// # Panics
    /// If it is another backend's.
    pub(crate) fn of(event: &Arc<dyn Event>) -> &Self {
        let any: &dyn Any = &**event;
        any.downcast_ref().expect("an event is used on the backend that recorded it")
    }

    pub(crate) fn stamp(&self) -> &Stamp {
        &self.stamp
    }

    /// Whether a queue or the host has waited for it.
    pub(crate) fn was_waited_for(&self) -> bool {
        self.waited_for.load(Ordering::Relaxed)
    }

    fn outcome(&self) -> Result<(), DeviceError> {
        self.waited_for.store(true, Ordering::Relaxed);
        self.failure.clone().map_or(Ok(()), Err)
    }
}

impl Event for SimEvent {
    /// Whether the host's clock has reached it. Asking does not advance that clock; synchronizing does. A host that has
    /// seen it complete may count on it, as with CUDA's query.
    fn is_complete(&self) -> bool {
        let mut world = lock(&self.queue.device.world);
        let passed = world.host.time >= self.stamp.time;
        if passed {
            world.host.join(&self.stamp);
        }
        passed || world.device_of(self.queue.idx).lost
    }

    fn synchronize(&self) -> Result<(), DeviceError> {
        let mut world = lock(&self.queue.device.world);
        world.check_alive(self.queue.idx)?;
        world.host.join(&self.stamp);
        drop(world);
        self.outcome()
    }

    /// Known from the start, also while the host's clock has not reached it; none when the device was lost meanwhile.
    fn passed_at(&self) -> Option<Duration> {
        let mut world = lock(&self.queue.device.world);
        (!world.device_of(self.queue.idx).lost).then_some(self.stamp.time)
    }
}

fn device_error(upload: &Upload, source: &ReadError) -> DeviceError {
    DeviceError::Upload { unit: upload.name.clone(), source: source.clone() }
}

fn short_read(upload: &Upload, bytes: ByteCount) -> ReadError {
    ReadError {
        origin: upload.name.clone(),
        offset: 0,
        len: bytes.to_usize(),
        reason: "the storage gave fewer bytes (a simulated fault); run it again".to_owned(),
    }
}
