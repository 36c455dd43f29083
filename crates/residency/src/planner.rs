//! Plans for one component: made once from its units and times, asked for every budget.
//!
//! Under [`Policy::Spread`] the planner makes a rank by each of several [orders](RankOrder), simulates their plans at
//! several budgets and keeps the best. It is one rank for all budgets, so plans nest. Giants, which cost less kept than
//! a ring for them would, come last in every rank.

use std::fmt;
use std::str::FromStr;

use plimsoll_device::ByteCount;
use serde::Serialize;

use crate::chain::{Chain, ChainOptions, Position, giant_threshold};
use crate::largest_first::LargestFirst;
use crate::plan::Fixed;
use crate::predict::{self, Link};
use crate::{DoesNotFit, Lookahead, Plan, Rank, RankOrder, UnitProfile};

/// Budgets at which a rank is simulated: steps from the smallest plan to everything resident.
const BUDGET_STEPS: u64 = 8;

/// Which units stay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// Streamed units are spread over the compute time that hides them. Plans nest.
    #[default]
    Spread,
    /// What costs most to stream stays, by the rule that ComfyUI shipped in November 2025.
    LargestFirst,
}

impl Policy {
    /// Every policy.
    pub const ALL: [Self; 2] = [Self::Spread, Self::LargestFirst];

    /// The policy's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Spread => "spread",
            Self::LargestFirst => "largest-first",
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// There is no such policy. Use one of those listed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` is not a policy; there are {}", Policy::ALL.map(|policy| format!("`{policy}`")).join(" and "))]
pub struct UnknownPolicy {
    /// What was asked for.
    pub name: String,
}

impl FromStr for Policy {
    type Err = UnknownPolicy;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let policy = Self::ALL.into_iter().find(|policy| policy.name() == name);
        policy.ok_or_else(|| UnknownPolicy { name: name.to_owned() })
    }
}

/// What a component's plans have in common.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlanOptions {
    /// Which units stay.
    pub policy: Policy,
    /// Side queues for copies; 0 copies on the compute queue.
    pub offload_streams: usize,
    /// Units are kept while the residents are fewer bytes than this, whatever the reserve says, and shrinking stops
    /// there. A smaller component stays whole.
    pub min_resident_bytes: ByteCount,
    /// Scratch memory of the copies; part of every plan.
    pub staging_bytes: ByteCount,
}

/// How one order of streaming fared in simulation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RankCandidate {
    /// How its rank was made.
    pub order: RankOrder,
    /// Sum over the simulated budgets of a step's time, seconds.
    pub step_seconds_sum: f64,
    /// Mean over the simulated budgets of a step's time, in units of the time that no plan for that budget beats.
    /// The candidate with the least is taken, of equals the first.
    pub slowdown: f64,
}

/// Plans for one component under one policy. A pure value: it reads no clock and touches no device.
#[derive(Clone, Debug)]
pub struct Planner {
    units: Vec<UnitProfile>,
    fixed: Fixed,
    link: Link,
    rank: Rank,
    way: Way,
}

#[derive(Clone, Debug)]
enum Way {
    Spread { chain: Chain, chosen: RankOrder, candidates: Vec<RankCandidate> },
    LargestFirst(LargestFirst),
}

impl Planner {
    /// The planner of these units, which are in visiting order. `link` serves to choose between ranks.
    pub fn new(units: Vec<UnitProfile>, options: &PlanOptions, link: Link) -> Self {
        let lookahead = match (options.policy, options.offload_streams) {
            (Policy::Spread, 1..) => Lookahead::Ring,
            (_, streams) => Lookahead::Streams(streams),
        };
        let &PlanOptions { policy, offload_streams, min_resident_bytes, staging_bytes } = options;
        let fixed = Fixed { staging_bytes, offload_streams, lookahead };
        let (rank, way) = match policy {
            Policy::Spread => {
                spread(&units, ChainOptions { offload_streams, staging_bytes, min_resident_bytes }, fixed, link)
            }
            Policy::LargestFirst => {
                let rule = LargestFirst::new(&units, min_resident_bytes, fixed);
                (Rank::from_order(rule.shrink_order()), Way::LargestFirst(rule))
            }
        };
        Self { units, fixed, link, rank, way }
    }

    /// The plan for `available`, which covers residents and reserve.
    ///
    /// # Errors
    /// [`DoesNotFit`] when there is none; one for `needed` there is.
    pub fn plan(&self, available: ByteCount) -> Result<Plan, DoesNotFit> {
        match &self.way {
            Way::Spread { chain, .. } => match chain.first_within(available) {
                Some(position) => Ok(spread_plan(&self.units, &self.rank, position, self.fixed)),
                None => Err(DoesNotFit { needed: chain.least_bytes(), available }),
            },
            Way::LargestFirst(rule) => rule.plan(&self.units, available),
        }
    }

    /// The least for which there is a plan.
    pub fn least_bytes(&self) -> ByteCount {
        match &self.way {
            Way::Spread { chain, .. } => chain.least_bytes(),
            Way::LargestFirst(rule) => rule.least_bytes(),
        }
    }

    /// What each plan takes, from everything resident to the smallest, strictly falling. `None` under
    /// [`Policy::LargestFirst`], where a plan depends on more than a position.
    pub fn positions(&self) -> Option<&[ByteCount]> {
        match &self.way {
            Way::Spread { chain, .. } => Some(chain.totals()),
            Way::LargestFirst(_) => None,
        }
    }

    /// The plan at a place in [`Self::positions`]; `None` where there is no such place.
    pub fn plan_at(&self, position: usize) -> Option<Plan> {
        match &self.way {
            Way::Spread { chain, .. } => {
                Some(spread_plan(&self.units, &self.rank, chain.position(position)?, self.fixed))
            }
            Way::LargestFirst(_) => None,
        }
    }

    /// A plan that takes at least `to_free` less than `plan`, one of this planner's. To free one byte is to go one
    /// position down the rank; to free none gives the same plan; to free more than it takes is to ask for a plan
    /// that takes nothing.
    ///
    /// # Errors
    /// [`DoesNotFit`] when `plan` can't be made that much smaller; down to `needed` it can.
    pub fn shrink(&self, plan: &Plan, to_free: ByteCount) -> Result<Plan, DoesNotFit> {
        match &self.way {
            Way::Spread { .. } => self.plan(plan.total_bytes().saturating_sub(to_free)),
            Way::LargestFirst(rule) => rule.shrink(&self.units, plan, to_free),
        }
    }

    /// The smallest plan.
    pub fn least_plan(&self) -> Plan {
        self.plan(self.least_bytes()).expect("the least for which there is a plan has one")
    }

    /// The order in which units become streamed.
    pub fn rank(&self) -> &Rank {
        &self.rank
    }

    /// How the rank was made.
    pub fn rank_name(&self) -> &'static str {
        match &self.way {
            Way::Spread { chosen, .. } => chosen.name(),
            Way::LargestFirst(_) => Policy::LargestFirst.name(),
        }
    }

    /// How each order of streaming fared; the reason for [`Self::rank_name`]. Empty under [`Policy::LargestFirst`].
    pub fn candidates(&self) -> &[RankCandidate] {
        match &self.way {
            Way::Spread { candidates, .. } => candidates,
            Way::LargestFirst(_) => &[],
        }
    }

    /// The units, in visiting order.
    pub fn units(&self) -> &[UnitProfile] {
        &self.units
    }

    /// Predicted time of a step under `plan`, seconds.
    pub fn step_seconds(&self, plan: &Plan) -> f64 {
        step_seconds(&self.units, plan, self.link)
    }

    /// What no order of copies could beat under `plan`, seconds.
    pub fn bound_seconds(&self, plan: &Plan) -> f64 {
        predict::bound_seconds(&self.units, &plan.resident, self.link)
    }
}

/// The best of all ranks, and its chain.
fn spread(units: &[UnitProfile], options: ChainOptions, fixed: Fixed, link: Link) -> (Rank, Way) {
    let giant_above = giant_threshold(units, options.offload_streams);
    let ranks = RankOrder::ALL.map(|order| {
        let rank = Rank::new(units, order).with_last(|idx| units[idx].bytes > giant_above);
        let chain = Chain::new(units, &rank, options);
        (order, rank, chain)
    });
    let least_bytes = ranks.iter().map(|(_, _, chain)| chain.least_bytes()).max().unwrap_or(ByteCount::ZERO);
    let whole_bytes = ranks.iter().filter_map(|(_, _, chain)| chain.totals().first()).max().copied();
    let budgets = simulated_budgets(least_bytes, whole_bytes.unwrap_or(ByteCount::ZERO));
    let candidates: Vec<RankCandidate> = ranks
        .iter()
        .map(|(order, rank, chain)| {
            let times = budgets.iter().filter_map(|&budget| {
                let plan = spread_plan(units, rank, chain.first_within(budget)?, fixed);
                Some((budget, step_seconds(units, &plan, link)))
            });
            judge(units, *order, &times.collect::<Vec<_>>(), link)
        })
        .collect();
    let best = std::iter::zip(ranks, &candidates).min_by(|(_, a), (_, b)| a.slowdown.total_cmp(&b.slowdown));
    let ((chosen, rank, chain), _) = best.expect("there is more than one order");
    (rank, Way::Spread { chain, chosen, candidates })
}

/// Budgets from the smallest plan up to, without, everything resident.
fn simulated_budgets(least: ByteCount, whole: ByteCount) -> Vec<ByteCount> {
    let span = u128::from(whole.saturating_sub(least).0);
    let budget = |step: u64| ByteCount(least.0 + (span * u128::from(step) / u128::from(BUDGET_STEPS)) as u64);
    (0..BUDGET_STEPS).map(budget).collect()
}

fn judge(units: &[UnitProfile], order: RankOrder, times: &[(ByteCount, f64)], link: Link) -> RankCandidate {
    let total: u128 = units.iter().map(UnitProfile::wide_bytes).sum();
    let compute = predict::compute_seconds(units);
    let slowdowns = times.iter().map(|&(budget, seconds)| {
        let ideal = compute.max(link.transfer_seconds(total.saturating_sub(u128::from(budget.0))));
        if ideal > 0.0 { seconds / ideal } else { 1.0 + seconds }
    });
    RankCandidate {
        order,
        step_seconds_sum: times.iter().map(|&(_, seconds)| seconds).sum(),
        slowdown: slowdowns.sum::<f64>() / times.len().max(1) as f64,
    }
}

fn spread_plan(units: &[UnitProfile], rank: &Rank, position: Position, fixed: Fixed) -> Plan {
    let mut resident = vec![true; units.len()];
    for &idx in &rank.order()[..position.streamed_count] {
        resident[idx] = false;
    }
    fixed.plan(units, resident, position.ring_bytes, position.transient_bytes)
}

fn step_seconds(units: &[UnitProfile], plan: &Plan, link: Link) -> f64 {
    predict::step_seconds(units, &plan.resident, plan.ring_bytes, plan.lookahead, link)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_have_names() {
        for policy in Policy::ALL {
            assert_eq!(policy.to_string().parse(), Ok(policy));
        }
        let error = "smallest-first".parse::<Policy>().unwrap_err();
        assert_eq!(error.to_string(), "`smallest-first` is not a policy; there are `spread` and `largest-first`");
    }
}
