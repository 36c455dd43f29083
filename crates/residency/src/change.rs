//! Changing what a component has on the device.
//!
//! Everything here drops before it copies in, so that a change never needs more than the larger of the two states; and
//! whatever fails leaves the component at rest, with residents that are whole and booked.

use std::sync::Arc;

use plimsoll_device::{Account, Buffer, ByteCount, DeviceError, Queue};

use crate::component::{Active, ChangeError, Component, State};
use crate::patch::PatchSet;
use crate::ring::Ring;
use crate::{Plan, Unit, UnitId};

impl Component {
    /// Puts other adapters on, and gives the ones it had. Residents that had adapters merged in, or will have, are dropped
    /// before anything else is decided: they are never used with the wrong ones.
    pub(crate) fn adopt(&self, patches: &Arc<PatchSet>) -> Result<Arc<PatchSet>, ChangeError> {
        let mut state = self.lock();
        if state.patches.id == patches.id {
            return Ok(state.patches.clone());
        }
        if state.is_leased() {
            return Err(ChangeError::Leased);
        }
        state.rest(&*self.compute);
        for idx in 0..self.units.len() {
            if state.patches.merge_of(idx).is_some() || patches.merge_of(idx).is_some() {
                state.residents[idx] = None;
            }
        }
        state.adapters.fill(None);
        Ok(std::mem::replace(&mut state.patches, patches.clone()))
    }

    /// Makes the component's state that of `plan`.
    ///
    /// # Errors
    /// [`ChangeError::Leased`], and then nothing has changed; [`ChangeError::Device`], and then it is at rest.
    pub(crate) fn carry_out(&self, plan: &Plan) -> Result<(), ChangeError> {
        assert_eq!(plan.resident.len(), self.units.len(), "the plan of `{}` is for other units", self.name);
        let mut state = self.lock();
        let state = &mut *state;
        let is_leaving = |(idx, buffer): (usize, &Option<Arc<Buffer>>)| {
            !plan.resident[idx] && buffer.as_ref().is_some_and(|buffer| Arc::strong_count(buffer) > 1)
        };
        let keeps_ring = state.loaded.as_ref().is_some_and(|active| active.has_ring_of(plan));
        let ring_leased = state.loaded.as_ref().and_then(|active| active.ring.as_ref()).is_some_and(Ring::is_leased);
        if state.residents.iter().enumerate().any(is_leaving) || (ring_leased && !keeps_ring) {
            return Err(ChangeError::Leased);
        }
        if state.loaded.as_ref().is_some_and(|active| active.plan == *plan) && state.has_residents_of(plan) {
            return Ok(());
        }
        state.timings.interrupt();
        for (buffer, resident) in state.residents.iter_mut().zip(&plan.resident) {
            if !resident {
                *buffer = None;
            }
        }
        let active = match state.loaded.take() {
            Some(mut active) if keeps_ring => {
                if let Some(ring) = &mut active.ring {
                    ring.expect(&streamed(plan), &*self.compute);
                }
                Active { plan: plan.clone(), ..active }
            }
            other => {
                if let Some(active) = other {
                    drop_active(active, &*self.compute);
                }
                self.activate(plan)?
            }
        };
        if let Err(error) = self.copy_in(state, plan) {
            drop_active(active, &*self.compute);
            return Err(error);
        }
        state.loaded = Some(active);
        Ok(())
    }

    /// Gives up ring and copy queues. Residents stay, for the next load. Blocks until copies under way have ended.
    pub(crate) fn rest(&self) -> Result<(), ChangeError> {
        let mut state = self.lock();
        if state.loaded.as_ref().and_then(|active| active.ring.as_ref()).is_some_and(Ring::is_leased) {
            return Err(ChangeError::Leased);
        }
        state.rest(&*self.compute);
        Ok(())
    }

    /// Drops residents of a component at rest, in the order in which units become streamed, and then adapters, until
    /// `to_free` bytes are free or none is left. What is leased is never dropped.
    pub(crate) fn reclaim(&self, to_free: ByteCount) -> ByteCount {
        let mut state = self.lock();
        let state = &mut *state;
        let Some(planned) = &state.planned else { return ByteCount::ZERO };
        let mut freed = ByteCount::ZERO;
        let rank = planned.planner.rank().order().to_vec();
        for buffers in [&mut state.residents, &mut state.adapters] {
            for &idx in &rank {
                if freed >= to_free {
                    return freed;
                }
                if let Some(buffer) = buffers[idx].take_if(|buffer| Arc::strong_count(buffer) == 1) {
                    freed += buffer.size();
                }
            }
        }
        freed
    }

    /// The units that somebody leases, by name.
    pub(crate) fn leased_units(&self) -> Vec<String> {
        let state = self.lock();
        let is_leased =
            |buffer: &Option<Arc<Buffer>>| buffer.as_ref().is_some_and(|buffer| Arc::strong_count(buffer) > 1);
        let residents = (0..self.units.len()).filter(|&idx| is_leased(&state.residents[idx]));
        let mut names: Vec<String> = residents.map(|idx| self.units[idx].name().to_owned()).collect();
        if state.loaded.as_ref().and_then(|active| active.ring.as_ref()).is_some_and(Ring::is_leased) {
            names.push("a streamed unit".to_owned());
        }
        names
    }

    /// Drops all that it has on the device.
    pub(crate) fn unload(&self) -> Result<(), ChangeError> {
        let mut state = self.lock();
        if state.is_leased() {
            return Err(ChangeError::Leased);
        }
        state.rest(&*self.compute);
        state.residents.fill(None);
        state.adapters.fill(None);
        Ok(())
    }

    fn activate(&self, plan: &Plan) -> Result<Active, ChangeError> {
        let streamed = streamed(plan);
        if streamed.is_empty() {
            return Ok(Active { plan: plan.clone(), copy_queues: Vec::new(), ring: None });
        }
        let copy_queue = |idx| self.device.copy_queue(&format!("{}.offload.{idx}", self.name));
        let copy_queues = (0..plan.offload_streams).map(copy_queue).collect::<Result<Vec<_>, _>>()?;
        let region = self.device.region(&*self.compute, self.accounts.ring, plan.ring_bytes)?;
        let queues = self.ring_queues(&*self.compute, &copy_queues);
        let ring = Ring::new(region, plan.lookahead, self.units.len(), &streamed, &queues)?;
        Ok(Active { plan: plan.clone(), copy_queues, ring: Some(ring) })
    }

    /// Copies in what the plan has resident and the device has not.
    fn copy_in(&self, state: &mut State, plan: &Plan) -> Result<(), ChangeError> {
        let patches = state.patches.clone();
        for idx in 0..self.units.len() {
            if let Some(adapter) = patches.adapter_of(idx)
                && state.adapters[idx].is_none()
            {
                state.adapters[idx] = Some(Arc::new(self.fetch(adapter, self.accounts.adapters)?));
            }
        }
        let missing: Vec<usize> =
            (0..self.units.len()).filter(|&idx| plan.resident[idx] && state.residents[idx].is_none()).collect();
        for (position, &idx) in missing.iter().enumerate() {
            if let Some(next) = missing.get(position + 1) {
                self.units[*next].upload.pieces.iter().for_each(|piece| piece.source.read_ahead());
            }
            let mut buffer = self.fetch(&self.units[idx], self.accounts.weights)?;
            if let Some(merge) = patches.merge_of(idx) {
                merge.merge(&*self.device, &*self.compute, &mut buffer)?;
            }
            state.timings.count_load(self.units[idx].bytes);
            state.residents[idx] = Some(Arc::new(buffer));
        }
        Ok(())
    }

    fn fetch(&self, unit: &Unit, account: Account) -> Result<Buffer, DeviceError> {
        let buffer = self.device.allocate(&*self.compute, account, unit.bytes)?;
        self.compute.upload(&unit.upload, buffer).acquire(&*self.compute)
    }
}

impl Active {
    /// Whether its ring serves that plan too.
    fn has_ring_of(&self, plan: &Plan) -> bool {
        let Plan { ring_bytes, offload_streams, lookahead, .. } = &self.plan;
        (ring_bytes, offload_streams, lookahead) == (&plan.ring_bytes, &plan.offload_streams, &plan.lookahead)
            && self.ring.is_some() == plan.resident.contains(&false)
    }
}

impl State {
    /// Whether somebody holds a lease.
    fn is_leased(&self) -> bool {
        let ring = self.loaded.as_ref().and_then(|active| active.ring.as_ref());
        let mut buffers = self.residents.iter().chain(&self.adapters).flatten();
        ring.is_some_and(Ring::is_leased) || buffers.any(|buffer| Arc::strong_count(buffer) > 1)
    }

    fn has_residents_of(&self, plan: &Plan) -> bool {
        self.residents.iter().zip(&plan.resident).all(|(buffer, &resident)| buffer.is_some() == resident)
    }

    fn rest(&mut self, compute: &dyn Queue) {
        self.timings.interrupt();
        if let Some(active) = self.loaded.take() {
            drop_active(active, compute);
        }
    }
}

/// Frees a ring in the order of the queue it was allocated for, behind the copies under way.
fn drop_active(mut active: Active, compute: &dyn Queue) {
    if let Some(ring) = &mut active.ring {
        ring.cancel(compute);
    }
}

fn streamed(plan: &Plan) -> Vec<UnitId> {
    (0..plan.resident.len()).filter(|&idx| !plan.resident[idx]).map(UnitId).collect()
}
