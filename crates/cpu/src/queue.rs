//! The compute queue, which runs inline, and copy queues, which are threads.

use std::sync::{Arc, Mutex as PlainMutex, PoisonError};
use std::time::Duration;

use plimsoll_device::{Buffer, DeviceError, DeviceId, Event, Filling, Queue, Upload};

use crate::device::{DEVICE_ID, Shared};
use crate::storage::HostMemory;
use crate::sync::{Builder, Condvar, JoinHandle, Mutex, MutexGuard, Receiver, Sender, channel};
use crate::upload;

/// A point that a queue passes once, with or without a failure before it.
#[derive(Default)]
struct CpuEvent {
    passing: Mutex<Option<Passed>>,
    passed: Condvar,
}

#[derive(Clone)]
struct Passed {
    outcome: Result<(), DeviceError>,
    at: Duration,
}

impl CpuEvent {
    fn already_passed(shared: &Shared, outcome: Result<(), DeviceError>) -> Arc<Self> {
        let passed = Passed { outcome, at: shared.clock.now() };
        Arc::new(Self { passing: Mutex::new(Some(passed)), passed: Condvar::new() })
    }

    fn pass(&self, shared: &Shared, outcome: Result<(), DeviceError>) {
        lock(&self.passing).get_or_insert_with(|| Passed { outcome, at: shared.clock.now() });
        self.passed.notify_all();
    }
}

impl Event for CpuEvent {
    fn is_complete(&self) -> bool {
        lock(&self.passing).is_some()
    }

    fn synchronize(&self) -> Result<(), DeviceError> {
        let mut passing = lock(&self.passing);
        loop {
            if let Some(passed) = &*passing {
                return passed.outcome.clone();
            }
            passing = self.passed.wait(passing).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn passed_at(&self) -> Option<Duration> {
        lock(&self.passing).as_ref().map(|passed| passed.at)
    }
}

/// The compute queue: what is enqueued on it has happened when the call returns.
pub(crate) struct InlineQueue {
    shared: Arc<Shared>,
}

impl InlineQueue {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }
}

impl Queue for InlineQueue {
    fn name(&self) -> &str {
        "compute"
    }

    fn device(&self) -> DeviceId {
        DEVICE_ID
    }

    fn record(&self) -> Arc<dyn Event> {
        CpuEvent::already_passed(&self.shared, Ok(()))
    }

    fn wait(&self, event: &Arc<dyn Event>) -> Result<(), DeviceError> {
        event.synchronize()
    }

    fn upload(&self, upload: &Arc<Upload>, mut slot: Buffer) -> Filling {
        let outcome = upload::fill(&self.shared, upload, &mut slot);
        Filling::new(Arc::new(PlainMutex::new(Some(slot))), CpuEvent::already_passed(&self.shared, outcome))
    }

    fn write(&self, bytes: &[u8], buffer: &mut Buffer) -> Result<(), DeviceError> {
        if !self.shared.clock.is_rehearsing() {
            buffer.storage_mut::<HostMemory>().bytes_mut()[..bytes.len()].copy_from_slice(bytes);
        }
        Ok(())
    }

    fn read(&self, buffer: &Buffer, offset: usize, out: &mut [u8]) -> Result<(), DeviceError> {
        if !self.shared.clock.is_rehearsing() {
            out.copy_from_slice(&buffer.storage::<HostMemory>().bytes()[offset..][..out.len()]);
        }
        Ok(())
    }

    fn synchronize(&self) -> Result<(), DeviceError> {
        Ok(())
    }
}

/// A copy queue: a thread that works off its orders one by one.
pub(crate) struct ThreadQueue {
    name: String,
    shared: Arc<Shared>,
    orders: Mutex<Option<Sender<Order>>>,
    thread: Option<JoinHandle<()>>,
}

enum Order {
    Wait(Arc<dyn Event>),
    Upload(UploadOrder),
    Record(Passing),
}

/// A copy. The event comes last: whatever drops the order frees the buffer before the event passes.
struct UploadOrder {
    upload: Arc<Upload>,
    buffer: Buffer,
    slot: Arc<PlainMutex<Option<Buffer>>>,
    ready: Passing,
}

/// The duty to let an event pass. An order that is lost with its thread passes it as a failure.
struct Passing {
    event: Arc<CpuEvent>,
    shared: Arc<Shared>,
    queue: String,
}

impl Drop for Passing {
    fn drop(&mut self) {
        self.event.pass(&self.shared, Err(DeviceError::Lost { queue: self.queue.clone() }));
    }
}

impl ThreadQueue {
    pub(crate) fn start(name: &str, shared: Arc<Shared>) -> Result<Self, DeviceError> {
        let (sender, orders) = channel();
        let its_shared = shared.clone();
        let thread = Builder::new()
            .name(name.to_owned())
            .spawn(move || work_off(&its_shared, &orders))
            .map_err(|_| DeviceError::Lost { queue: name.to_owned() })?;
        Ok(Self { name: name.to_owned(), shared, orders: Mutex::new(Some(sender)), thread: Some(thread) })
    }

    fn order(&self, order: Order) -> Result<(), DeviceError> {
        let lost = || DeviceError::Lost { queue: self.name.clone() };
        lock(&self.orders).as_ref().ok_or_else(lost)?.send(order).map_err(|_| lost())
    }

    fn passing(&self) -> (Arc<CpuEvent>, Passing) {
        let event = Arc::new(CpuEvent::default());
        (event.clone(), Passing { event, shared: self.shared.clone(), queue: self.name.clone() })
    }
}

fn work_off(shared: &Shared, orders: &Receiver<Order>) {
    while let Ok(order) = orders.recv() {
        match order {
            // What failed before the event is its own queue's to report.
            Order::Wait(event) => drop(event.synchronize()),
            Order::Record(passing) => passing.event.pass(shared, Ok(())),
            Order::Upload(mut order) => {
                let outcome = upload::fill(shared, &order.upload, &mut order.buffer);
                let UploadOrder { buffer, slot, ready, .. } = order;
                *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(buffer);
                drop(slot);
                ready.event.pass(shared, outcome);
            }
        }
    }
}

impl Queue for ThreadQueue {
    fn name(&self) -> &str {
        &self.name
    }

    fn device(&self) -> DeviceId {
        DEVICE_ID
    }

    fn record(&self) -> Arc<dyn Event> {
        let (event, passing) = self.passing();
        // A lost order passes its event as a failure.
        let _ = self.order(Order::Record(passing));
        event
    }

    fn wait(&self, event: &Arc<dyn Event>) -> Result<(), DeviceError> {
        self.order(Order::Wait(event.clone()))
    }

    fn upload(&self, upload: &Arc<Upload>, buffer: Buffer) -> Filling {
        let (event, ready) = self.passing();
        let slot = Arc::new(PlainMutex::new(None));
        // A lost order passes its event as a failure.
        let _ = self.order(Order::Upload(UploadOrder { upload: upload.clone(), buffer, slot: slot.clone(), ready }));
        Filling::new(slot, event)
    }

    fn write(&self, bytes: &[u8], buffer: &mut Buffer) -> Result<(), DeviceError> {
        self.synchronize()?;
        buffer.storage_mut::<HostMemory>().bytes_mut()[..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn read(&self, buffer: &Buffer, offset: usize, out: &mut [u8]) -> Result<(), DeviceError> {
        self.synchronize()?;
        out.copy_from_slice(&buffer.storage::<HostMemory>().bytes()[offset..][..out.len()]);
        Ok(())
    }

    fn synchronize(&self) -> Result<(), DeviceError> {
        self.record().synchronize()
    }
}

impl Drop for ThreadQueue {
    fn drop(&mut self) {
        drop(lock(&self.orders).take());
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has passed its events as failures already.
            let _ = thread.join();
        }
    }
}

/// The data behind these locks is changed in one piece, so a panic elsewhere can't leave it halfway.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
