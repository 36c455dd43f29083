//! The right to read a unit's weights.

use plimsoll_device::{Buffer, DeviceError, Queue};

use crate::{Component, UnitId};

/// The right to read one unit's weights in work enqueued on one queue. Ends on drop, which records the event after
/// which the memory may be used for something else.
///
/// What is read through it can't outlive it:
///
/// ```compile_fail,E0505
/// # use plimsoll_residency::{Component, UnitId};
/// # use plimsoll_device::{Buffer, Queue};
/// fn read_after_drop(component: &Component, queue: &dyn Queue) -> usize {
///     let lease = component.lease(UnitId(0), queue).unwrap();
///     let weights: &Buffer = lease.buffer();
///     drop(lease);
///     weights.size().to_usize()
/// }
/// ```
///
/// nor can it outlive its component:
///
/// ```compile_fail,E0505
/// # use plimsoll_residency::{Component, UnitId};
/// # use plimsoll_device::Queue;
/// fn use_after_unload(component: Component, queue: &dyn Queue) -> usize {
///     let lease = component.lease(UnitId(0), queue).unwrap();
///     drop(component);
///     lease.buffer().size().to_usize()
/// }
/// ```
pub struct Lease<'a> {
    component: &'a Component,
    queue: &'a dyn Queue,
    held: Held<'a>,
}

pub(crate) enum Held<'a> {
    Resident(&'a Buffer),
    /// A slot of the ring; none only while the lease is dropped.
    Streamed(Option<Buffer>),
}

/// The unit's weights can't be had.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LeaseError {
    /// Copying failed. If the storage was at fault, the run can be repeated.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// All slots of the ring are leased: a layer holds more leases at once than the plan has slots. Drop a lease
    /// before taking the next, or use more offload streams.
    #[error(
        "`{unit}` of `{component}` can't be leased: all {slot_count} slots of the ring are leased already; drop one first, or use more offload streams"
    )]
    RingLeased {
        /// The component.
        component: String,
        /// The unit asked for.
        unit: String,
        /// How many slots there are.
        slot_count: usize,
    },
}

impl<'a> Lease<'a> {
    pub(crate) fn new(component: &'a Component, queue: &'a dyn Queue, held: Held<'a>) -> Self {
        Self { component, queue, held }
    }

    /// The unit's device memory: its tensors, each at its piece's offset.
    pub fn buffer(&self) -> &Buffer {
        match &self.held {
            Held::Resident(buffer) => buffer,
            Held::Streamed(buffer) => buffer.as_ref().expect("a lease holds its slot until it is dropped"),
        }
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        if let Held::Streamed(buffer) = &mut self.held
            && let Some(buffer) = buffer.take()
        {
            self.component.release(buffer, self.queue.record());
        }
    }
}

impl std::fmt::Debug for Lease<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lease").field("buffer", self.buffer()).finish()
    }
}

/// Names a unit of a component in an error.
pub(crate) fn ring_leased(component: &Component, unit: UnitId, slot_count: usize) -> LeaseError {
    LeaseError::RingLeased {
        component: component.name().to_owned(),
        unit: component.units()[unit.0].name().to_owned(),
        slot_count,
    }
}
