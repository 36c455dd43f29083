//! The policy `largest-first`: what ComfyUI shipped in November 2025, kept to be measured against.
//!
//! Units are walked by falling **offload cost**, their bytes plus 12 for each element with an adapter (a merge in f32,
//! three times over). With `kept` the residents so far and `reserve` what streaming takes so far, a unit is resident if
//! `kept + bytes + max(reserve, cost * (streams + 1))` is less than the budget; if not, that maximum is the new reserve.
//! A component that is smaller than the budget is kept whole, without a walk.
//!
//! The rule knows of nothing else, the budget here does. Staging is set aside first. The reserve holds ring and
//! transients together: with side queues and no transient larger than the rule's 12 bytes an element it always can. Where
//! it might not, the largest transient is set aside as well.

use plimsoll_device::ByteCount;

use crate::plan::Fixed;
use crate::profile::narrow;
use crate::{DoesNotFit, Plan, UnitProfile};

/// Bytes that the rule counts for an element with an adapter.
const PATCHED_ELEMENT_BYTES: u128 = 4 * 3;

/// More than any budget, and small enough that sums of a few never overflow.
const RESERVE_MAX: u128 = 1 << 100;

/// The policy for one component.
#[derive(Clone, Debug)]
pub(crate) struct LargestFirst {
    /// Units by falling offload cost, then bytes, then name.
    order: Vec<usize>,
    /// By place in visiting order: bytes and reserve of a unit.
    costs: Vec<Cost>,
    min_resident_bytes: u128,
    /// Set aside whenever a unit is streamed.
    set_aside_bytes: u128,
    fixed: Fixed,
}

#[derive(Clone, Copy, Debug)]
struct Cost {
    bytes: u128,
    /// `offload cost * (streams + 1)`.
    reserve: u128,
}

/// A choice of residents, with what the rule adds up along the way.
#[derive(Clone, Debug)]
struct Choice {
    resident: Vec<bool>,
    kept: u128,
    streamed_count: usize,
    reserve: u128,
}

impl LargestFirst {
    pub(crate) fn new(units: &[UnitProfile], min_resident_bytes: ByteCount, fixed: Fixed) -> Self {
        let patch_extra = |unit: &UnitProfile| u128::from(unit.patched_elements) * PATCHED_ELEMENT_BYTES;
        let offload_cost = |unit: &UnitProfile| unit.wide_bytes() + patch_extra(unit);
        let slot_count = fixed.offload_streams as u128 + 1;
        let reserve = |unit| offload_cost(unit).saturating_mul(slot_count).min(RESERVE_MAX);
        let cost = |unit| Cost { bytes: UnitProfile::wide_bytes(unit), reserve: reserve(unit) };
        let mut order: Vec<usize> = (0..units.len()).collect();
        order.sort_by(|&a, &b| {
            let key = |idx: usize| (offload_cost(&units[idx]), units[idx].bytes, &units[idx].name);
            key(b).cmp(&key(a)).then(a.cmp(&b))
        });
        let is_covered = |unit: &UnitProfile| u128::from(unit.transient_bytes.0) <= patch_extra(unit);
        let covered = units.iter().all(is_covered) && fixed.offload_streams > 0;
        let no_transients = units.iter().all(|unit| unit.transient_bytes == ByteCount::ZERO);
        let largest_transient = units.iter().map(|unit| u128::from(unit.transient_bytes.0)).max().unwrap_or(0);
        Self {
            order,
            costs: units.iter().map(cost).collect(),
            min_resident_bytes: u128::from(min_resident_bytes.0),
            set_aside_bytes: if covered || no_transients { 0 } else { largest_transient },
            fixed,
        }
    }

    /// The order in which shrinking streams the units.
    pub(crate) fn shrink_order(&self) -> Vec<usize> {
        self.order.iter().rev().copied().collect()
    }

    /// The rule's plan for `available`.
    pub(crate) fn plan(&self, units: &[UnitProfile], available: ByteCount) -> Result<Plan, DoesNotFit> {
        let does_not_fit = || DoesNotFit { needed: self.least_bytes(), available };
        let budget = available.0.checked_sub(self.fixed.staging_bytes.0).ok_or_else(does_not_fit)?;
        let choice = self.choose(u128::from(budget));
        if self.total(&choice) > u128::from(available.0) {
            return Err(does_not_fit());
        }
        Ok(self.to_plan(units, choice))
    }

    /// The least that [`Self::plan`] accepts.
    ///
    /// A walk that keeps anything for the budget's sake fits it, because later units have lower costs. So what counts is
    /// the walk that keeps nothing for the budget's sake, and being kept whole.
    pub(crate) fn least_bytes(&self) -> ByteCount {
        let whole = self.costs.iter().map(|cost| cost.bytes).sum::<u128>() + u128::from(self.fixed.staging_bytes.0) + 1;
        narrow(self.total(&self.walk(0)).min(whole))
    }

    /// Streams more of `plan`, by rising offload cost, until more than `to_free` is free; the whole plan is smaller then
    /// by that much, also where a larger reserve took some of what was freed. Stops where the residents would sink below
    /// `min_resident_bytes`.
    ///
    /// The rule's "stop once to_free + (reserve - reserve before) < freed" says the same of the totals.
    pub(crate) fn shrink(&self, units: &[UnitProfile], plan: &Plan, to_free: ByteCount) -> Result<Plan, DoesNotFit> {
        if to_free == ByteCount::ZERO {
            return Ok(plan.clone());
        }
        let mut choice = self.choice_of(plan);
        let component_bytes: u128 = self.costs.iter().map(|cost| cost.bytes).sum();
        let resident_min = self.min_resident_bytes.min(component_bytes);
        let before = self.total(&choice);
        let to_free = u128::from(to_free.0);
        // What it takes for the call to succeed: nothing to free, or any total on the way, strictly undercut.
        let mut needed = before;
        for &idx in self.order.iter().rev() {
            let total = self.total(&choice);
            if total + to_free < before {
                return Ok(self.to_plan(units, choice));
            }
            if !choice.resident[idx] {
                continue;
            }
            if choice.kept - self.costs[idx].bytes < resident_min {
                break;
            }
            needed = needed.min(total + 1);
            choice.resident[idx] = false;
            choice.kept -= self.costs[idx].bytes;
            choice.stream(self.costs[idx].reserve);
        }
        let total = self.total(&choice);
        let available = before.saturating_sub(to_free);
        if total <= available {
            return Ok(self.to_plan(units, choice));
        }
        Err(DoesNotFit { needed: narrow(needed.min(total)), available: narrow(available) })
    }

    fn choose(&self, budget: u128) -> Choice {
        if self.costs.iter().map(|cost| cost.bytes).sum::<u128>() < budget {
            return self.walk(u128::MAX);
        }
        self.walk(budget.saturating_sub(self.set_aside_bytes))
    }

    fn walk(&self, budget: u128) -> Choice {
        let mut choice = Choice { resident: vec![false; self.order.len()], kept: 0, streamed_count: 0, reserve: 0 };
        for &idx in &self.order {
            let Cost { bytes, reserve } = self.costs[idx];
            let fits = choice.kept + bytes + choice.reserve.max(reserve) < budget;
            if fits || choice.kept + bytes < self.min_resident_bytes {
                choice.resident[idx] = true;
                choice.kept += bytes;
            } else {
                choice.stream(reserve);
            }
        }
        choice
    }

    /// All that the choice takes.
    fn total(&self, choice: &Choice) -> u128 {
        let set_aside = if choice.streamed_count > 0 { self.set_aside_bytes } else { 0 };
        choice.kept + choice.reserve + set_aside + u128::from(self.fixed.staging_bytes.0)
    }

    fn to_plan(&self, units: &[UnitProfile], choice: Choice) -> Plan {
        let streamed = units.iter().zip(&choice.resident).filter(|(_, resident)| !**resident);
        let transient = streamed.map(|(unit, _)| unit.transient_bytes).max().unwrap_or(ByteCount::ZERO);
        let set_aside = if choice.streamed_count > 0 { self.set_aside_bytes } else { 0 };
        let ring = choice.reserve + set_aside - u128::from(transient.0);
        self.fixed.plan(units, choice.resident, narrow(ring), transient)
    }

    fn choice_of(&self, plan: &Plan) -> Choice {
        let kept = self.costs.iter().zip(&plan.resident).filter(|(_, resident)| **resident);
        let reserve = u128::from(plan.ring_bytes.0) + u128::from(plan.transient_bytes.0);
        let streamed_count = plan.streamed_count();
        Choice {
            kept: kept.map(|(cost, _)| cost.bytes).sum(),
            streamed_count,
            reserve: if streamed_count > 0 { reserve.saturating_sub(self.set_aside_bytes) } else { 0 },
            resident: plan.resident.clone(),
        }
    }
}

impl Choice {
    fn stream(&mut self, reserve: u128) {
        self.reserve = self.reserve.max(reserve);
        self.streamed_count += 1;
    }
}
