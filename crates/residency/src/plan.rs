//! Which units stay on the device under a budget. Decides; moves nothing.

use std::cmp::Reverse;

use plimsoll_device::ByteCount;
use serde::Serialize;

use crate::Unit;

/// For one budget: which units are resident, and the ring for the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// For each unit, in visiting order, whether it stays on the device.
    pub resident: Vec<bool>,
    /// Bytes of the resident units.
    pub resident_bytes: ByteCount,
    /// Bytes of the streamed units: what one pass moves.
    pub streamed_bytes: ByteCount,
    /// Slots of the ring; none when all units are resident.
    pub slot_count: usize,
    /// Size of a slot: the largest streamed unit.
    pub slot_bytes: ByteCount,
    /// Scratch memory of the copies.
    pub staging_bytes: ByteCount,
    /// Side queues for copies; 0 copies on the compute queue.
    pub offload_streams: usize,
}

impl Plan {
    /// All that the component will take on the device: residents, ring and staging.
    pub fn total_bytes(&self) -> ByteCount {
        self.resident_bytes + self.ring_bytes() + self.staging_bytes
    }

    /// The ring's bytes.
    pub fn ring_bytes(&self) -> ByteCount {
        self.slot_bytes * self.slot_count as u64
    }
}

/// Not even the smallest plan fits. Raise the budget by the shortfall, or use fewer offload streams.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the smallest plan needs {needed}, but only {available} is available: {} short", *.needed - *.available)]
pub struct DoesNotFit {
    /// What the smallest plan takes.
    pub needed: ByteCount,
    /// What there is.
    pub available: ByteCount,
}

/// The plan that keeps the most bytes resident within `available`, which covers residents, ring and staging.
///
/// The ring has `offload_streams + 1` slots of the largest streamed unit. So every unit size is tried as the largest
/// streamed one: all larger units are resident then, and the room that is left is filled by size, largest first. Of
/// equal plans the one with the smaller ring is taken.
///
/// # Errors
/// [`DoesNotFit`] when no plan fits.
pub fn plan(units: &[Unit], available: ByteCount, offload_streams: usize) -> Result<Plan, DoesNotFit> {
    let staging = units.iter().map(|unit| unit.staging_bytes).max().unwrap_or(ByteCount::ZERO);
    let staging = staging * offload_streams.max(1) as u64;
    let sizes: Vec<ByteCount> = units.iter().map(|unit| unit.bytes).collect();
    let mut by_size: Vec<usize> = (0..sizes.len()).collect();
    by_size.sort_by_key(|&idx| (Reverse(sizes[idx]), idx));

    let mut least_needed = ByteCount::MAX;
    let mut best: Option<Plan> = None;
    for largest_streamed in (0..=by_size.len()).rev() {
        let candidate = Candidate { by_size: &by_size, sizes: &sizes, offload_streams, staging };
        let smallest = candidate.smallest(largest_streamed);
        least_needed = least_needed.min(smallest.total_bytes());
        if smallest.total_bytes() > available {
            continue;
        }
        let filled = candidate.fill(smallest, largest_streamed, available);
        if best.as_ref().is_none_or(|best| filled.resident_bytes > best.resident_bytes) {
            best = Some(filled);
        }
    }
    best.ok_or(DoesNotFit { needed: least_needed, available })
}

struct Candidate<'a> {
    by_size: &'a [usize],
    sizes: &'a [ByteCount],
    offload_streams: usize,
    staging: ByteCount,
}

impl Candidate<'_> {
    /// The plan that streams everything from `by_size[largest_streamed]` on.
    fn smallest(&self, largest_streamed: usize) -> Plan {
        let (kept, streamed) = self.by_size.split_at(largest_streamed);
        let mut resident = vec![false; self.sizes.len()];
        for &idx in kept {
            resident[idx] = true;
        }
        Plan {
            resident,
            resident_bytes: kept.iter().map(|&idx| self.sizes[idx]).sum(),
            streamed_bytes: streamed.iter().map(|&idx| self.sizes[idx]).sum(),
            slot_count: streamed.len().min(self.offload_streams + 1),
            slot_bytes: streamed.first().map_or(ByteCount::ZERO, |&idx| self.sizes[idx]),
            staging_bytes: self.staging,
            offload_streams: self.offload_streams,
        }
    }

    /// Keeps more units, largest first, while the plan stays within `available`. The largest streamed unit stays
    /// streamed: keeping it too is another candidate.
    fn fill(&self, mut plan: Plan, largest_streamed: usize, available: ByteCount) -> Plan {
        for &idx in self.by_size.iter().skip(largest_streamed + 1) {
            let size = self.sizes[idx];
            if plan.total_bytes() + size <= available {
                plan.resident[idx] = true;
                plan.resident_bytes += size;
                plan.streamed_bytes -= size;
            }
        }
        plan
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use expect_test::{Expect, expect};
    use plimsoll_device::Upload;
    use proptest::prelude::*;

    use super::*;

    fn units(sizes: &[u64]) -> Vec<Unit> {
        let upload = Arc::new(Upload { name: String::new(), pieces: Vec::new() });
        let unit =
            |&size: &u64| Unit { upload: upload.clone(), bytes: ByteCount(size), staging_bytes: ByteCount(size / 10) };
        sizes.iter().map(unit).collect()
    }

    fn check(sizes: &[u64], available: u64, offload_streams: usize, expected: Expect) {
        let shown = match plan(&units(sizes), ByteCount(available), offload_streams) {
            Err(error) => error.to_string(),
            Ok(plan) => {
                let kept: Vec<u64> = sizes.iter().zip(&plan.resident).filter(|(_, r)| **r).map(|(s, _)| *s).collect();
                format!(
                    "keeps {kept:?}, ring {} x {}, staging {}",
                    plan.slot_count, plan.slot_bytes, plan.staging_bytes
                )
            }
        };
        expected.assert_eq(&shown);
    }

    #[test]
    fn all_resident_needs_no_ring() {
        check(&[40, 10, 30, 20], 104, 0, expect!["keeps [40, 10, 30, 20], ring 0 x 0 B, staging 4 B"]);
    }

    #[test]
    fn one_byte_less_than_all_costs_a_ring() {
        check(&[40, 10, 30, 20], 103, 0, expect!["keeps [40, 30], ring 1 x 20 B, staging 4 B"]);
    }

    #[test]
    fn the_smallest_plan_streams_all() {
        check(&[40, 10, 30, 20], 44, 0, expect!["keeps [], ring 1 x 40 B, staging 4 B"]);
        check(&[40, 10, 30, 20], 43, 0, expect!["the smallest plan needs 44 B, but only 43 B is available: 1 B short"]);
    }

    #[test]
    fn a_giant_is_kept_when_a_ring_of_it_would_cost_more() {
        check(&[100, 10, 10, 10], 135, 1, expect!["keeps [100], ring 2 x 10 B, staging 10 B"]);
    }

    #[test]
    fn nothing_to_plan_fits_nowhere_and_anywhere() {
        check(&[], 0, 2, expect!["keeps [], ring 0 x 0 B, staging 0 B"]);
    }

    proptest! {
        #[test]
        fn a_plan_stays_within_what_is_available(
            sizes in prop::collection::vec(1u64..1000, 0..40),
            available in 0u64..20_000,
            streams in 0usize..4,
        ) {
            let units = units(&sizes);
            match plan(&units, ByteCount(available), streams) {
                Ok(plan) => {
                    prop_assert!(plan.total_bytes() <= ByteCount(available));
                    let total: ByteCount = units.iter().map(|unit| unit.bytes).sum();
                    prop_assert_eq!(plan.resident_bytes + plan.streamed_bytes, total);
                    let streamed = units.iter().zip(&plan.resident).filter(|(_, resident)| !**resident);
                    let largest = streamed.map(|(unit, _)| unit.bytes).max().unwrap_or(ByteCount::ZERO);
                    prop_assert_eq!(plan.slot_bytes, largest);
                }
                Err(error) => {
                    prop_assert!(error.needed > error.available);
                    prop_assert!(plan(&units, error.needed, streams).is_ok());
                }
            }
        }
    }
}
