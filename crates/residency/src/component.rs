//! A component on the device: its plan, carried out.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plimsoll_device::{AllocError, Buffer, Device, DeviceError, Event, Queue};

use crate::lease::{Held, ring_leased};
use crate::ring::{Ring, RingQueues};
use crate::{Lease, LeaseError, Plan, Unit, UnitId};

/// A component whose weights can be leased. Dropping it frees all its device memory.
pub struct Component {
    name: String,
    device: Arc<dyn Device>,
    units: Vec<Unit>,
    plan: Plan,
    residents: Vec<Option<Buffer>>,
    copy_queues: Vec<Arc<dyn Queue>>,
    ring: Mutex<Ring>,
}

/// A component could not be loaded. Nothing of it is left on the device.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LoadError {
    /// The memory that the plan counts on is not there: somebody else took it meanwhile.
    #[error("loading `{component}` failed: {source}")]
    Alloc {
        /// The component.
        component: String,
        /// Which account is short of what.
        source: AllocError,
    },
    /// A copy failed. If the storage was at fault, loading can be repeated.
    #[error("loading `{component}` failed: {source}")]
    Device {
        /// The component.
        component: String,
        /// What failed.
        source: DeviceError,
    },
}

impl Component {
    /// Copies the resident units of `plan` in. Blocks until they are there. Residents are booked on `NAME.weights`, the
    /// ring's slots, which are allocated when first used, on `NAME.ring`.
    ///
    /// # Errors
    /// [`LoadError`], and then nothing is left on the device.
    ///
    /// # Panics
    /// If `plan` is not a plan of these units: a bug.
    pub fn load(device: &Arc<dyn Device>, name: &str, units: Vec<Unit>, plan: Plan) -> Result<Self, LoadError> {
        assert_eq!(plan.resident.len(), units.len(), "the plan of `{name}` is for other units");
        let failed = |source: DeviceError| match source {
            DeviceError::Alloc(source) => LoadError::Alloc { component: name.to_owned(), source },
            source => LoadError::Device { component: name.to_owned(), source },
        };
        let residents = load_residents(&**device, name, &units, &plan).map_err(failed)?;
        let stream_count = if plan.slot_count == 0 { 0 } else { plan.offload_streams };
        let copy_queues = (0..stream_count)
            .map(|idx| device.copy_queue(&format!("{name}.offload.{idx}")))
            .collect::<Result<Vec<_>, _>>()
            .map_err(failed)?;
        let streamed: Vec<UnitId> = (0..units.len()).filter(|&idx| !plan.resident[idx]).map(UnitId).collect();
        let account = device.ledger().account(&format!("{name}.ring"));
        let ring = Ring::new(plan.slot_count, plan.slot_bytes, account, units.len(), &streamed);
        let device = device.clone();
        Ok(Self { name: name.to_owned(), device, units, plan, residents, copy_queues, ring: Mutex::new(ring) })
    }

    /// The component's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its units, in visiting order.
    pub fn units(&self) -> &[Unit] {
        &self.units
    }

    /// What is resident, and the ring.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The right to read `unit` in work enqueued on `queue` while the lease lives.
    ///
    /// A visit in the expected order finds its copy under way; one out of order waits for a copy of its own, and is
    /// expected from then on.
    ///
    /// # Errors
    /// [`LeaseError`] when the copy failed, or no slot is free.
    pub fn lease<'a>(&'a self, unit: UnitId, queue: &'a dyn Queue) -> Result<Lease<'a>, LeaseError> {
        if let Some(buffer) = &self.residents[unit.0] {
            return Ok(Lease::new(self, queue, Held::Resident(buffer)));
        }
        let mut ring = self.lock_ring();
        if !ring.can_acquire() {
            return Err(ring_leased(self, unit, self.plan.slot_count));
        }
        let queues = RingQueues {
            device: &*self.device,
            compute: queue,
            copies: &self.copy_queues,
            uploads: &|unit| self.units[unit.0].upload.clone(),
        };
        let buffer = ring.acquire(unit, &queues)?;
        Ok(Lease::new(self, queue, Held::Streamed(Some(buffer))))
    }

    pub(crate) fn release(&self, buffer: Buffer, consumed: Arc<dyn Event>) {
        self.lock_ring().release(buffer, consumed);
    }

    fn lock_ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Component {
    /// Waits for copies under way, so that their slots are free when this returns.
    fn drop(&mut self) {
        for queue in &self.copy_queues {
            // A copy that failed has given its slot back too, and nobody needs its bytes any more.
            let _ = queue.synchronize();
        }
    }
}

fn load_residents(
    device: &dyn Device,
    name: &str,
    units: &[Unit],
    plan: &Plan,
) -> Result<Vec<Option<Buffer>>, DeviceError> {
    let queue = device.compute_queue();
    let account = device.ledger().account(&format!("{name}.weights"));
    let load = |(unit, resident): (&Unit, &bool)| {
        if !resident {
            return Ok(None);
        }
        let buffer = device.allocate(&*queue, account, unit.bytes)?;
        queue.upload(&unit.upload, buffer).acquire(&*queue).map(Some)
    };
    units.iter().zip(&plan.resident).map(load).collect()
}
