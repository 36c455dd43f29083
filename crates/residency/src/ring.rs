//! The slots that streamed units pass through.

use std::collections::VecDeque;
use std::sync::Arc;

use plimsoll_device::{Account, Buffer, ByteCount, Device, DeviceError, Event, Filling, Queue, Upload};

use crate::UnitId;

/// The ring's state: which slots are free, which are being filled with what, and what comes after what.
pub(crate) struct Ring {
    slot_count: usize,
    slot_bytes: ByteCount,
    account: Account,
    /// Slots allocated and not lost to a failed copy.
    slots_alive: usize,
    /// The one read longest ago first.
    free: VecDeque<FreeSlot>,
    in_flight: VecDeque<(UnitId, Filling)>,
    /// For each unit, the streamed unit that was visited after it the last time.
    successors: Vec<Option<UnitId>>,
    last_visited: Option<UnitId>,
    next_queue_idx: usize,
}

struct FreeSlot {
    buffer: Buffer,
    /// Completes when the last reader of the slot is done; none for a slot never read.
    consumed: Option<Arc<dyn Event>>,
}

/// What the ring works with, besides its own state.
pub(crate) struct RingQueues<'a> {
    pub(crate) device: &'a dyn Device,
    pub(crate) compute: &'a dyn Queue,
    /// Side queues; when there are none, copies run on the compute queue.
    pub(crate) copies: &'a [Arc<dyn Queue>],
    pub(crate) uploads: &'a dyn Fn(UnitId) -> Arc<Upload>,
}

impl Ring {
    /// A ring for the streamed units, which are expected to be visited in that order, again and again.
    pub(crate) fn new(
        slot_count: usize,
        slot_bytes: ByteCount,
        account: Account,
        unit_count: usize,
        streamed: &[UnitId],
    ) -> Self {
        let mut successors = vec![None; unit_count];
        for (position, unit) in streamed.iter().enumerate() {
            successors[unit.0] = Some(streamed[(position + 1) % streamed.len()]);
        }
        Self {
            slot_count,
            slot_bytes,
            account,
            slots_alive: 0,
            free: VecDeque::new(),
            in_flight: VecDeque::new(),
            successors,
            last_visited: None,
            next_queue_idx: 0,
        }
    }

    /// The slot with `unit` in it, for work on the compute queue from now on. Afterwards, copies of the units expected
    /// next are started, as far as there are free slots.
    pub(crate) fn acquire(&mut self, unit: UnitId, queues: &RingQueues<'_>) -> Result<Buffer, DeviceError> {
        let filling = match self.in_flight.iter().position(|(expected, _)| *expected == unit) {
            Some(position) => self.in_flight.remove(position).expect("the position was just found").1,
            None => self.start_copy(unit, queues)?.expect("a slot in flight can be taken back"),
        };
        let buffer = filling.acquire(queues.compute).inspect_err(|_| self.slots_alive -= 1)?;
        self.note_visit(unit);
        if !queues.copies.is_empty() {
            // A copy that can't be started now is started, and its failure told, when its unit is asked for.
            let _ = self.prefetch(unit, queues);
        }
        Ok(buffer)
    }

    /// Whether a slot can be had: one that is free, not yet allocated, or filled with what nobody has asked for yet.
    pub(crate) fn can_acquire(&self) -> bool {
        !self.free.is_empty() || self.slots_alive < self.slot_count || !self.in_flight.is_empty()
    }

    /// Takes a slot back whose reader's work on `queue` ends at `consumed`.
    pub(crate) fn release(&mut self, buffer: Buffer, consumed: Arc<dyn Event>) {
        self.free.push_back(FreeSlot { buffer, consumed: Some(consumed) });
    }

    fn note_visit(&mut self, unit: UnitId) {
        if let Some(last) = self.last_visited.replace(unit) {
            self.successors[last.0] = Some(unit);
        }
    }

    fn prefetch(&mut self, after: UnitId, queues: &RingQueues<'_>) -> Result<(), DeviceError> {
        let mut expected = after;
        for _ in 0..self.slot_count {
            let Some(next) = self.successors[expected.0].filter(|&next| next != after) else { return Ok(()) };
            expected = next;
            if self.in_flight.iter().any(|(unit, _)| *unit == expected) {
                continue;
            }
            if self.free.is_empty() && self.slots_alive == self.slot_count {
                return Ok(());
            }
            if let Some(filling) = self.start_copy(expected, queues)? {
                self.in_flight.push_back((expected, filling));
            }
        }
        Ok(())
    }

    /// Starts copying `unit` into a slot; none if every slot is leased.
    fn start_copy(&mut self, unit: UnitId, queues: &RingQueues<'_>) -> Result<Option<Filling>, DeviceError> {
        let copy_queue = match queues.copies.len() {
            0 => queues.compute,
            count => {
                self.next_queue_idx = (self.next_queue_idx + 1) % count;
                &*queues.copies[self.next_queue_idx]
            }
        };
        let Some(slot) = self.take_slot(queues)? else { return Ok(None) };
        if let Some(consumed) = &slot.consumed {
            copy_queue.wait(consumed).inspect_err(|_| self.slots_alive -= 1)?;
        }
        Ok(Some(copy_queue.upload(&(queues.uploads)(unit), slot.buffer)))
    }

    /// A free slot, a new one, or the one whose copy was expected last and has not been asked for.
    fn take_slot(&mut self, queues: &RingQueues<'_>) -> Result<Option<FreeSlot>, DeviceError> {
        if let Some(slot) = self.free.pop_front() {
            return Ok(Some(slot));
        }
        if self.slots_alive == self.slot_count {
            let Some((_, filling)) = self.in_flight.pop_back() else { return Ok(None) };
            let consumed = Some(filling.ready().clone());
            if let Ok(buffer) = filling.acquire(queues.compute) {
                return Ok(Some(FreeSlot { buffer, consumed }));
            }
            // That copy failed and its slot is gone. Nobody has asked for its unit; whoever does is told.
            self.slots_alive -= 1;
        }
        let buffer = queues.device.allocate(queues.compute, self.account, self.slot_bytes)?;
        self.slots_alive += 1;
        Ok(Some(FreeSlot { buffer, consumed: None }))
    }
}
