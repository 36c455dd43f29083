//! Simulated device memory: buffers, and regions handed out in parts.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plimsoll_device::{Account, Buffer, ByteCount, Charge, Region, Storage};

use crate::clock::Stamp;
use crate::queue::{QueueCore, SimEvent};
use crate::world::{Area, lock, signed};

/// Addresses that are taken from a device until this is dropped.
///
/// They are freed in the order of the queue they were allocated for. A copy that nobody has acquired yet owns what it
/// fills, so memory with such a copy in it is freed behind the copy.
pub(crate) struct Block {
    pub(crate) queue: Arc<QueueCore>,
    pub(crate) account: Account,
    pub(crate) size: ByteCount,
    pub(crate) extents: Vec<Range<u64>>,
    /// Ends of copies that were never acquired.
    pub(crate) unacquired: Mutex<Option<Stamp>>,
}

impl Drop for Block {
    fn drop(&mut self) {
        let mut world = lock(&self.queue.device.world);
        let mut freed = world.point(self.queue.idx).clone();
        if let Some(unacquired) = lock_state(&self.unacquired).take() {
            freed.join(&unacquired);
        }
        let device = world.device_of(self.queue.idx);
        device.pool.give_back(&self.extents, &freed);
        device.live_bytes -= self.size;
        let ledger = &self.queue.device.ledger;
        device.note_memory(freed.time, || ledger.account_name(self.account), -signed(self.size));
    }
}

/// The backend's handle on a buffer.
pub(crate) struct SimMemory {
    home: Home,
    /// The last copy into it.
    filling: Option<Arc<SimEvent>>,
}

enum Home {
    Block(Block),
    Part { region: Arc<SimRegion>, range: Range<u64> },
}

impl Storage for SimMemory {}

impl SimMemory {
    pub(crate) fn of_block(block: Block) -> Self {
        Self { home: Home::Block(block), filling: None }
    }

    /// Says that the copy which ends at `ready` owns the memory until somebody waits for it.
    pub(crate) fn set_filling(&mut self, ready: Arc<SimEvent>) {
        self.filling = Some(ready);
    }

    /// Bytes `range` of it.
    pub(crate) fn area(&self, range: Range<u64>) -> Area<'_> {
        let (block, base, limit) = match &self.home {
            Home::Block(block) => (block, 0, block.size.0),
            Home::Part { region, range } => (&region.block, range.start, range.end),
        };
        let (start, end) = (base.saturating_add(range.start), base.saturating_add(range.end));
        Area { extents: &block.extents, start, end, limit }
    }

    /// The queue it was allocated for.
    pub(crate) fn queue(&self) -> &Arc<QueueCore> {
        match &self.home {
            Home::Block(block) => &block.queue,
            Home::Part { region, .. } => &region.block.queue,
        }
    }
}

impl Drop for SimMemory {
    fn drop(&mut self) {
        let unacquired = self.filling.take().filter(|ready| !ready.was_waited_for());
        let block = match &self.home {
            Home::Block(block) => block,
            Home::Part { region, range } => {
                lock_state(&region.taken).remove(&range.start);
                &region.block
            }
        };
        if let Some(ready) = unacquired {
            lock_state(&block.unacquired).get_or_insert_default().join(ready.stamp());
        }
    }
}

/// One allocation that is handed out in parts.
pub(crate) struct SimRegion {
    block: Block,
    /// The parts handed out: first byte, byte behind the last.
    taken: Mutex<BTreeMap<u64, u64>>,
    // Dropped after the block, as a buffer's charge is.
    _charge: Charge,
}

impl SimRegion {
    pub(crate) fn new(block: Block, charge: Charge) -> Self {
        Self { block, taken: Mutex::default(), _charge: charge }
    }
}

impl Region for SimRegion {
    fn size(&self) -> ByteCount {
        self.block.size
    }

    fn take(self: Arc<Self>, range: Range<u64>) -> Option<Buffer> {
        let unit = self.block.queue.device.options.allocation_unit.0;
        assert!(
            range.start <= range.end && range.end <= self.block.size.0,
            "bytes {range:?} of a region of {}",
            self.block.size
        );
        assert!(
            range.start.is_multiple_of(unit) && range.end.is_multiple_of(unit),
            "bytes {range:?} do not begin and end at the allocation unit of {unit}"
        );
        if !range.is_empty() {
            let mut taken = lock_state(&self.taken);
            if taken.range(..range.end).next_back().is_some_and(|(_, &end)| end > range.start) {
                return None;
            }
            taken.insert(range.start, range.end);
        }
        let size = ByteCount(range.end - range.start);
        let memory = SimMemory { home: Home::Part { region: self.clone(), range }, filling: None };
        let mut world = lock(&self.block.queue.device.world);
        if let Some(history) = &mut world.device_of(self.block.queue.idx).history {
            memory.area(0..size.0).addresses().for_each(|addresses| history.hand_over(addresses));
        }
        drop(world);
        Some(Buffer::part(Box::new(memory), size))
    }
}

/// A buffer's part, as an [`Area`].
///
/// # Panics
/// If the buffer belongs to another backend.
pub(crate) fn area(buffer: &Buffer, range: Range<u64>) -> Area<'_> {
    buffer.storage::<SimMemory>().area(range)
}

/// The data behind these locks is changed in one piece, so a panic elsewhere can't leave it halfway.
fn lock_state<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
