//! The right to read a unit's weights.

use std::sync::Arc;

use plimsoll_device::{Buffer, DeviceError, Queue};

use crate::ring::Slot;
use crate::{Component, UnitId};

/// The right to read one unit's weights in work enqueued on the queues it was taken for. Ends on drop, which records on
/// each of them the event after which the memory may be used for something else.
///
/// Neither what is read through it nor the lease itself can outlive what it comes from: see `tests/compile_fail`.
pub struct Lease<'a> {
    component: &'a Component,
    unit: UnitId,
    queues: Vec<&'a Arc<dyn Queue>>,
    /// None only while the lease is dropped.
    held: Option<Held>,
    adapter: Option<Arc<Buffer>>,
}

pub(crate) enum Held {
    Resident(Arc<Buffer>),
    Streamed(Slot),
}

/// The unit's weights can't be had.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LeaseError {
    /// Copying failed. If the storage was at fault, the run can be repeated.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// All bytes of the ring that would do are leased: a layer holds more leases at once than the ring has room for. Drop
    /// a lease before taking the next, or use more offload streams.
    #[error(
        "`{unit}` of `{component}` can't be leased: the ring's bytes are leased already; drop a lease first, or use more offload streams"
    )]
    RingLeased {
        /// The component.
        component: String,
        /// The unit asked for.
        unit: String,
    },
    /// The component is a placeholder: it is on no device. Load it with [`Manager::load`](crate::Manager::load).
    #[error("`{component}` is not loaded; load it before it is used")]
    NotLoaded {
        /// The component.
        component: String,
    },
}

impl<'a> Lease<'a> {
    pub(crate) fn new(
        component: &'a Component,
        unit: UnitId,
        queue: &'a Arc<dyn Queue>,
        held: Held,
        adapter: Option<Arc<Buffer>>,
    ) -> Self {
        Self { component, unit, queues: vec![queue], held: Some(held), adapter }
    }

    /// The unit's device memory: its tensors, each at its piece's offset.
    pub fn buffer(&self) -> &Buffer {
        match self.held.as_ref().expect("a lease holds its weights until it is dropped") {
            Held::Resident(buffer) => buffer,
            Held::Streamed(slot) => &slot.buffer,
        }
    }

    /// What is read beside the weights: the unit's unmerged adapters.
    pub fn adapter(&self) -> Option<&Buffer> {
        self.adapter.as_deref()
    }

    /// Lets work on another queue of the device read the weights too, behind what made them ready.
    ///
    /// # Errors
    /// [`LeaseError::Device`] if what had been enqueued before has failed.
    pub fn also_on(&mut self, queue: &'a Arc<dyn Queue>) -> Result<&Buffer, LeaseError> {
        queue.wait(&self.queues[0].record())?;
        self.queues.push(queue);
        Ok(self.buffer())
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            self.component.release(held, self.adapter.take(), self.unit, &self.queues);
        }
    }
}

impl std::fmt::Debug for Lease<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lease").field("buffer", self.buffer()).finish()
    }
}
