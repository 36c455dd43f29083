//! How components that are used together share what there is. Decides; moves nothing.

use std::sync::Arc;

use plimsoll_device::ByteCount;

use crate::{Plan, Planner};

/// What the device holds besides the components that are planned.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Occupancy {
    /// The budget.
    pub(crate) capacity: ByteCount,
    /// Reservations, adapters, and what others hold.
    pub(crate) fixed: ByteCount,
    /// Components in use that are left as they are.
    pub(crate) in_use: ByteCount,
    /// Components that nobody uses: what can be evicted.
    pub(crate) idle: ByteCount,
}

/// A plan for each component, and what has to be evicted for them.
pub(crate) struct Shared {
    pub(crate) plans: Vec<Plan>,
    pub(crate) to_evict: ByteCount,
}

/// Not even the smallest plans fit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shortfall {
    /// What everything would take with them.
    pub(crate) needed: ByteCount,
    /// The budget.
    pub(crate) budget: ByteCount,
}

/// Plans all components together, with as much evicted as their plans gain from.
///
/// For a single pass nothing is evicted beyond what the smallest plans need: a unit that is used once is copied once,
/// streamed or not, and what was evicted would have to be copied again.
pub(crate) fn share(
    occupancy: &Occupancy,
    planners: &[Arc<Planner>],
    is_single_pass: bool,
) -> Result<Shared, Shortfall> {
    let Occupancy { capacity, fixed, in_use, idle } = *occupancy;
    let taken = fixed.saturating_add(in_use);
    let least: ByteCount = planners.iter().map(|planner| planner.least_bytes()).sum();
    let shortfall = Shortfall { needed: taken.saturating_add(least), budget: capacity };
    let most = capacity.0.checked_sub(taken.0).map(ByteCount).ok_or(shortfall)?;
    let free = most.saturating_sub(idle);
    let room = if is_single_pass { free.max(least).min(most) } else { most };
    let plans = match plan_together(planners, free) {
        Some(plans) if is_single_pass || plans.iter().all(|plan| plan.streamed_bytes == ByteCount::ZERO) => plans,
        _ => plan_together(planners, room).ok_or(shortfall)?,
    };
    let total: ByteCount = plans.iter().map(Plan::total_bytes).sum();
    Ok(Shared { plans, to_evict: total.saturating_add(idle).saturating_sub(most) })
}

/// Smaller plans than `now`, by at least `to_free` together: one component after the other gives what it can, by its
/// policy's own rule or by its smallest plan. `None` where that makes too little room; then all have to be planned anew.
///
/// Policies with a chain have no use for it: to go down a chain is to plan anew.
pub(crate) fn shrink_in_turn(planners: &[Arc<Planner>], now: &[Plan], to_free: ByteCount) -> Option<Vec<Plan>> {
    let mut left = to_free;
    let mut plans = Vec::with_capacity(now.len());
    for (planner, plan) in std::iter::zip(planners, now) {
        if planner.positions().is_some() {
            return None;
        }
        let total = plan.total_bytes();
        let smaller = match planner.shrink(plan, left) {
            Ok(smaller) => smaller,
            Err(error) => {
                let by_rule = planner.shrink(plan, total.saturating_sub(error.needed)).ok();
                let all = [Some(plan.clone()), by_rule, Some(planner.least_plan())].into_iter().flatten();
                all.min_by_key(Plan::total_bytes)?
            }
        };
        left = left.saturating_sub(total.saturating_sub(smaller.total_bytes()));
        plans.push(smaller);
    }
    (left == ByteCount::ZERO).then_some(plans)
}

/// Plans within `room` for all of them: whichever has streamed the least of what it could goes down its chain next, so
/// that a larger room only adds residents. Policies without a chain are planned one after the other.
fn plan_together(planners: &[Arc<Planner>], room: ByteCount) -> Option<Vec<Plan>> {
    let chains: Option<Vec<_>> = planners.iter().map(|planner| planner.positions()).collect();
    let Some(chains) = chains else { return plan_in_turn(planners, room) };
    let mut at = vec![0; chains.len()];
    let mut total: ByteCount = chains.iter().map(|chain| chain[0]).sum();
    while total > room {
        let spread = |idx: usize| {
            let (most, least) = (chains[idx][0].0, chains[idx][chains[idx].len() - 1].0);
            (most - chains[idx][at[idx]].0) as f64 / (most - least).max(1) as f64
        };
        let next = (0..chains.len())
            .filter(|&idx| at[idx] + 1 < chains[idx].len())
            .min_by(|&a, &b| spread(a).total_cmp(&spread(b)))?;
        total -= chains[next][at[next]];
        at[next] += 1;
        total += chains[next][at[next]];
    }
    planners.iter().zip(at).map(|(planner, position)| planner.plan_at(position)).collect()
}

fn plan_in_turn(planners: &[Arc<Planner>], room: ByteCount) -> Option<Vec<Plan>> {
    let mut plans: Vec<Plan> = Vec::new();
    for (idx, planner) in planners.iter().enumerate() {
        let before: ByteCount = plans.iter().map(Plan::total_bytes).sum();
        let behind: ByteCount = planners[idx + 1..].iter().map(|planner| planner.least_bytes()).sum();
        let available = room.0.checked_sub((before + behind).0)?;
        plans.push(planner.plan(ByteCount(available)).ok()?);
    }
    Some(plans)
}
