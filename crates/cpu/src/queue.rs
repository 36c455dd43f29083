//! The compute queue, which runs inline, and copy queues, which are threads.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use plimsoll_device::{Buffer, DeviceError, Event, Filling, Queue, Upload};

use crate::device::Shared;
use crate::storage::HostMemory;
use crate::upload;

/// A point that a queue passes once, with or without a failure before it.
#[derive(Default)]
struct CpuEvent {
    outcome: Mutex<Option<Result<(), DeviceError>>>,
    passed: Condvar,
}

impl CpuEvent {
    fn already_passed(outcome: Result<(), DeviceError>) -> Arc<Self> {
        Arc::new(Self { outcome: Mutex::new(Some(outcome)), passed: Condvar::new() })
    }

    fn pass(&self, outcome: Result<(), DeviceError>) {
        lock(&self.outcome).get_or_insert(outcome);
        self.passed.notify_all();
    }
}

impl Event for CpuEvent {
    fn is_complete(&self) -> bool {
        lock(&self.outcome).is_some()
    }

    fn synchronize(&self) -> Result<(), DeviceError> {
        let mut outcome = lock(&self.outcome);
        loop {
            if let Some(outcome) = &*outcome {
                return outcome.clone();
            }
            outcome = self.passed.wait(outcome).unwrap_or_else(PoisonError::into_inner);
        }
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

    fn record(&self) -> Arc<dyn Event> {
        CpuEvent::already_passed(Ok(()))
    }

    fn wait(&self, event: &Arc<dyn Event>) -> Result<(), DeviceError> {
        event.synchronize()
    }

    fn upload(&self, upload: &Arc<Upload>, mut slot: Buffer) -> Filling {
        let outcome = upload::fill(&self.shared, upload, &mut slot);
        Filling::new(Arc::new(Mutex::new(Some(slot))), CpuEvent::already_passed(outcome))
    }

    fn write(&self, bytes: &[u8], buffer: &mut Buffer) -> Result<(), DeviceError> {
        if !self.shared.rehearsing {
            buffer.storage_mut::<HostMemory>().bytes_mut()[..bytes.len()].copy_from_slice(bytes);
        }
        Ok(())
    }

    fn read(&self, buffer: &Buffer, offset: usize, out: &mut [u8]) -> Result<(), DeviceError> {
        if !self.shared.rehearsing {
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
    orders: Mutex<Option<Sender<Order>>>,
    thread: Option<JoinHandle<()>>,
}

enum Order {
    Wait(Arc<dyn Event>),
    Upload { upload: Arc<Upload>, buffer: Buffer, slot: Arc<Mutex<Option<Buffer>>>, ready: Passing },
    Record(Passing),
}

/// The duty to let an event pass. An order that is lost with its thread passes it as a failure.
struct Passing {
    event: Arc<CpuEvent>,
    queue: String,
}

impl Drop for Passing {
    fn drop(&mut self) {
        self.event.pass(Err(DeviceError::Lost { queue: self.queue.clone() }));
    }
}

impl ThreadQueue {
    pub(crate) fn start(name: &str, shared: Arc<Shared>) -> Result<Self, DeviceError> {
        let (sender, orders) = channel();
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || work_off(&shared, &orders))
            .map_err(|_| DeviceError::Lost { queue: name.to_owned() })?;
        Ok(Self { name: name.to_owned(), orders: Mutex::new(Some(sender)), thread: Some(thread) })
    }

    fn order(&self, order: Order) -> Result<(), DeviceError> {
        let lost = || DeviceError::Lost { queue: self.name.clone() };
        lock(&self.orders).as_ref().ok_or_else(lost)?.send(order).map_err(|_| lost())
    }

    fn passing(&self) -> (Arc<CpuEvent>, Passing) {
        let event = Arc::new(CpuEvent::default());
        (event.clone(), Passing { event, queue: self.name.clone() })
    }
}

fn work_off(shared: &Shared, orders: &Receiver<Order>) {
    while let Ok(order) = orders.recv() {
        match order {
            // What failed before the event is its own queue's to report.
            Order::Wait(event) => drop(event.synchronize()),
            Order::Record(passing) => passing.event.pass(Ok(())),
            Order::Upload { upload, mut buffer, slot, ready } => {
                let outcome = upload::fill(shared, &upload, &mut buffer);
                *lock(&slot) = Some(buffer);
                ready.event.pass(outcome);
            }
        }
    }
}

impl Queue for ThreadQueue {
    fn name(&self) -> &str {
        &self.name
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
        let slot = Arc::new(Mutex::new(None));
        // A lost order passes its event as a failure.
        let _ = self.order(Order::Upload { upload: upload.clone(), buffer, slot: slot.clone(), ready });
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
