//! Changing what a component has on the device.
//!
//! Everything here drops before it copies in, so that a change never needs more than the larger of the two states; and
//! whatever fails leaves the component at rest, with residents that are whole and booked.

use std::sync::Arc;

use plimsoll_device::{Account, Buffer, ByteCount, DeviceError};

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
        state.rest();
        for idx in 0..self.units.len() {
            if state.patches.merge_of(idx).is_some() || patches.merge_of(idx).is_some() {
                state.residents[idx] = None;
            }
        }
        state.adapters.fill(None);
        Ok(std::mem::replace(&mut state.patches, patches.clone()))
    }

    /// Whether [`carry_out`](Self::carry_out) is possible with the leases that are held now.
    ///
    /// # Errors
    /// [`ChangeError::Leased`].
    pub(crate) fn check(&self, plan: &Plan) -> Result<(), ChangeError> {
        self.lock().check(plan)
    }

    /// Drops what `plan` has no place for: residents, and a ring of another size, which leaves the component at rest.
    ///
    /// # Errors
    /// [`ChangeError::Leased`], and then nothing has changed.
    pub(crate) fn shed(&self, plan: &Plan) -> Result<(), ChangeError> {
        assert_eq!(plan.resident.len(), self.units.len(), "the plan of `{}` is for other units", self.name);
        let mut state = self.lock();
        let state = &mut *state;
        state.check(plan)?;
        if state.is_as(plan) {
            return Ok(());
        }
        if !state.loaded.as_ref().is_some_and(|active| active.has_ring_of(plan)) {
            state.rest();
        }
        for (buffer, resident) in state.residents.iter_mut().zip(&plan.resident) {
            if !resident {
                *buffer = None;
            }
        }
        // Until `carry_out` the ring, which is as large as both plans want it, serves what has yet to be copied in as well.
        let present: Vec<bool> = state.residents.iter().map(Option::is_some).collect();
        if let Some(active) = &mut state.loaded {
            let bytes = |kept: bool| {
                let units = self.units.iter().zip(&present).filter(|(_, present)| **present == kept);
                units.map(|(unit, _)| unit.bytes).sum()
            };
            let (resident_bytes, streamed_bytes) = (bytes(true), bytes(false));
            active.plan = Plan { resident: present, resident_bytes, streamed_bytes, ..plan.clone() };
            if let Some(ring) = &mut active.ring {
                ring.expect(&streamed(&active.plan));
            }
        }
        Ok(())
    }

    /// Makes the component's state that of `plan`: sheds, and then copies in.
    ///
    /// # Errors
    /// [`ChangeError::Leased`], and then nothing has changed; [`ChangeError::Device`], and then it is at rest.
    pub(crate) fn carry_out(&self, plan: &Plan) -> Result<(), ChangeError> {
        self.shed(plan)?;
        let mut state = self.lock();
        let state = &mut *state;
        if state.is_as(plan) {
            return Ok(());
        }
        state.timings.interrupt();
        let mut active = match state.loaded.take() {
            Some(active) => active,
            None => self.activate(plan)?,
        };
        active.plan = plan.clone();
        if let Some(ring) = &mut active.ring {
            ring.expect(&streamed(plan));
        }
        self.copy_in(state, plan)?;
        state.loaded = Some(active);
        Ok(())
    }

    /// Gives up ring and copy queues. Residents stay, for the next load. Blocks until copies under way have ended.
    pub(crate) fn rest(&self) -> Result<(), ChangeError> {
        let mut state = self.lock();
        if state.loaded.as_ref().and_then(|active| active.ring.as_ref()).is_some_and(Ring::is_leased) {
            return Err(ChangeError::Leased);
        }
        state.rest();
        Ok(())
    }

    /// Puts a component that nobody uses to rest and drops its residents, in the order in which units become streamed, and then adapters, until
    /// `to_free` bytes are free or none is left. What is leased is never dropped.
    pub(crate) fn reclaim(&self, to_free: ByteCount) -> ByteCount {
        let mut state = self.lock();
        let state = &mut *state;
        if state.loaded.as_ref().and_then(|active| active.ring.as_ref()).is_some_and(Ring::is_leased) {
            return ByteCount::ZERO;
        }
        // Its last holder may have gone while a lease was in the way of its rest.
        let mut freed = state.ring_bytes();
        state.rest();
        let Some(planned) = &state.planned else { return freed };
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
        state.rest();
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
        let ring = Ring::new(region, &self.compute, plan.lookahead, self.units.len(), &streamed, &copy_queues)?;
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

    /// Whether the leases that are held now allow a change to `plan`.
    fn check(&self, plan: &Plan) -> Result<(), ChangeError> {
        if self.is_as(plan) {
            return Ok(());
        }
        let is_leaving = |(idx, buffer): (usize, &Option<Arc<Buffer>>)| {
            !plan.resident[idx] && buffer.as_ref().is_some_and(|buffer| Arc::strong_count(buffer) > 1)
        };
        let keeps_ring = self.loaded.as_ref().is_some_and(|active| active.has_ring_of(plan));
        let ring_leased = self.loaded.as_ref().and_then(|active| active.ring.as_ref()).is_some_and(Ring::is_leased);
        // What copies in can fail and leave the component at rest, which a leased ring can't be.
        let can_keep_leases = keeps_ring && self.has_all_of(plan);
        let is_in_the_way = self.residents.iter().enumerate().any(is_leaving) || (ring_leased && !can_keep_leases);
        if is_in_the_way { Err(ChangeError::Leased) } else { Ok(()) }
    }

    /// Whether there is nothing to do for `plan`.
    fn is_as(&self, plan: &Plan) -> bool {
        self.loaded.as_ref().is_some_and(|active| active.plan == *plan) && self.has_all_of(plan)
    }

    /// Whether nothing is missing that the plan and the adapters want on the device.
    fn has_all_of(&self, plan: &Plan) -> bool {
        let is_there = |idx: usize| {
            (!plan.resident[idx] || self.residents[idx].is_some())
                && (self.patches.adapter_of(idx).is_none() || self.adapters[idx].is_some())
        };
        (0..plan.resident.len()).all(is_there)
    }

    fn rest(&mut self) {
        self.timings.interrupt();
        self.loaded = None;
    }
}

fn streamed(plan: &Plan) -> Vec<UnitId> {
    (0..plan.resident.len()).filter(|&idx| !plan.resident[idx]).map(UnitId).collect()
}
