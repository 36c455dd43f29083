//! The order in which units become streamed as the budget shrinks.
//!
//! One rank serves every budget: a plan streams a prefix of it, so plans nest. Which units are streamed does not change
//! the bytes moved, only when they move. [`RankOrder::Spread`] spreads them over the compute time that hides them.
//!
//! Times are shares of the whole compute time here, and a link that delivers the streamed bytes `s` of a pass at a
//! constant rate has delivered `s * t` of them at time `t`. With `S_j` the streamed bytes up to and including unit j,
//! the **discrepancy** `max_j(S_j - s * start_j) - min_j(S_j - s * end_j)` is the smallest ring with which such a link
//! never waits. It does not depend on the link's rate.

use std::cmp::Reverse;
use std::fmt;

use serde::Serialize;

use crate::UnitProfile;

/// More units than this are ranked in bit-reversed order of their compute time: the greedy search is quadratic.
const GREEDY_UNITS_MAX: usize = 4096;

/// Units in the order in which they become streamed; each unit once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rank(Vec<usize>);

/// How a rank is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RankOrder {
    /// Repeatedly the unit that leaves the smallest discrepancy; of equals the first in visiting order.
    Spread,
    /// The largest first: the fewest copies.
    LargestFirst,
    /// The least compute time per byte first.
    LeastComputePerByte,
}

impl RankOrder {
    /// Every order.
    pub const ALL: [Self; 3] = [Self::Spread, Self::LargestFirst, Self::LeastComputePerByte];

    /// The order's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Spread => "spread",
            Self::LargestFirst => "largest-first",
            Self::LeastComputePerByte => "least-compute-per-byte",
        }
    }
}

impl fmt::Display for RankOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Rank {
    /// The rank of these units, which are in visiting order.
    pub fn new(units: &[UnitProfile], order: RankOrder) -> Self {
        let mut rank: Vec<usize> = (0..units.len()).collect();
        match order {
            RankOrder::Spread if units.len() > GREEDY_UNITS_MAX => {
                let times = Times::new(units);
                rank.sort_by_key(|&idx| (bit_reversed((times.starts[idx] + times.ends[idx]) / 2.0), idx));
            }
            RankOrder::Spread => rank = Greedy::new(units).rank(),
            RankOrder::LargestFirst => rank.sort_by_key(|&idx| (Reverse(units[idx].bytes), idx)),
            RankOrder::LeastComputePerByte => {
                let density = |idx: usize| units[idx].compute() / (units[idx].bytes.0 as f64).max(1.0);
                rank.sort_by(|&a, &b| density(a).total_cmp(&density(b)).then(a.cmp(&b)));
            }
        }
        Self(rank)
    }

    /// The given order, which must hold each unit once.
    pub(crate) fn from_order(order: Vec<usize>) -> Self {
        Self(order)
    }

    /// Moves these units behind all others, in the order they have.
    pub(crate) fn with_last(self, is_last: impl Fn(usize) -> bool) -> Self {
        let (last, mut rank): (Vec<usize>, Vec<usize>) = self.0.into_iter().partition(|&idx| is_last(idx));
        rank.extend(last);
        Self(rank)
    }

    /// The units' places in visiting order, the first to be streamed first.
    pub fn order(&self) -> &[usize] {
        &self.0
    }
}

/// When each unit starts and ends, as shares of the pass. Without any compute time every unit takes the same share.
struct Times {
    starts: Vec<f64>,
    ends: Vec<f64>,
}

impl Times {
    fn new(units: &[UnitProfile]) -> Self {
        let total: f64 = units.iter().map(UnitProfile::compute).sum();
        let mut elapsed = 0.0;
        let mut times = Self { starts: Vec::with_capacity(units.len()), ends: Vec::with_capacity(units.len()) };
        for unit in units {
            times.starts.push(elapsed);
            elapsed += if total > 0.0 { unit.compute() / total } else { 1.0 / units.len() as f64 };
            times.ends.push(elapsed);
        }
        times
    }
}

/// The binary digits of a share of 1, mirrored: the van der Corput sequence.
fn bit_reversed(share: f64) -> u32 {
    ((share * 4_294_967_296.0) as u32).reverse_bits()
}

/// The greedy search.
///
/// Between two streamed units `S` is constant, so only the first start and the last end of each such segment can be
/// extremes, and a candidate is judged from the extremes before and behind it. These depend on `s`, thus on the
/// candidate's size: they are computed once for each class of sizes.
struct Greedy {
    times: Times,
    sizes: Vec<f64>,
    classes: Vec<SizeClass>,
    segments: Vec<Segment>,
    streamed_bytes: f64,
    behind: Vec<Extremes>,
}

/// Candidates whose streamed bytes are close enough to share one `s`.
struct SizeClass {
    bytes: f64,
    /// In visiting order.
    candidates: Vec<usize>,
}

/// A streamed unit and the resident units up to the next streamed one; the first segment may lack the streamed unit.
#[derive(Clone, Copy)]
struct Segment {
    first: usize,
    /// `S` throughout.
    sum: f64,
    start: f64,
    end: f64,
}

#[derive(Clone, Copy)]
struct Extremes {
    highest: f64,
    lowest: f64,
}

impl Greedy {
    fn new(units: &[UnitProfile]) -> Self {
        let times = Times::new(units);
        let sizes: Vec<f64> = units.iter().map(|unit| unit.bytes.0 as f64).collect();
        let segments = match units.len() {
            0 => Vec::new(),
            count => vec![Segment { first: 0, sum: 0.0, start: 0.0, end: times.ends[count - 1] }],
        };
        Self { classes: size_classes(units), times, sizes, segments, streamed_bytes: 0.0, behind: Vec::new() }
    }

    fn rank(mut self) -> Vec<usize> {
        let mut rank = Vec::with_capacity(self.sizes.len());
        while let Some((class_idx, unit)) = self.best() {
            self.classes[class_idx].candidates.retain(|&candidate| candidate != unit);
            self.stream(unit);
            rank.push(unit);
        }
        rank
    }

    /// The class and place of the unit with the smallest discrepancy.
    fn best(&mut self) -> Option<(usize, usize)> {
        let mut best: Option<(f64, usize, usize)> = None;
        for (class_idx, class) in self.classes.iter().enumerate() {
            if class.candidates.is_empty() {
                continue;
            }
            let (discrepancy, unit) = best_of_class(
                class,
                &self.segments,
                self.streamed_bytes + class.bytes,
                &self.sizes,
                &self.times.starts,
                &mut self.behind,
            );
            let smaller = |best: (f64, usize, usize)| (discrepancy, unit) < (best.0, best.2);
            if best.is_none_or(smaller) {
                best = Some((discrepancy, class_idx, unit));
            }
        }
        best.map(|(_, class_idx, unit)| (class_idx, unit))
    }

    /// `unit` is streamed from now on: it begins a segment.
    fn stream(&mut self, unit: usize) {
        let bytes = self.sizes[unit];
        let at = self.segments.partition_point(|segment| segment.first <= unit);
        let cut = self.segments[at - 1];
        let new = Segment { first: unit, sum: cut.sum + bytes, start: self.times.starts[unit], end: cut.end };
        for segment in &mut self.segments[at..] {
            segment.sum += bytes;
        }
        if cut.first == unit {
            self.segments[at - 1] = new;
        } else {
            self.segments[at - 1].end = self.times.starts[unit];
            self.segments.insert(at, new);
        }
        self.streamed_bytes += bytes;
    }
}

/// The candidate with the smallest discrepancy, of equals the first, when `streamed` bytes pass in all.
fn best_of_class(
    class: &SizeClass,
    segments: &[Segment],
    streamed: f64,
    sizes: &[f64],
    starts: &[f64],
    behind: &mut Vec<Extremes>,
) -> (f64, usize) {
    let mut extremes = Extremes { highest: f64::NEG_INFINITY, lowest: f64::INFINITY };
    behind.clear();
    for segment in segments.iter().rev() {
        behind.push(extremes);
        extremes.highest = larger(extremes.highest, segment.sum - streamed * segment.start);
        extremes.lowest = smaller(extremes.lowest, segment.sum - streamed * segment.end);
    }

    let mut best = (f64::INFINITY, class.candidates[0]);
    let mut candidates = class.candidates.iter().copied().peekable();
    let mut before = Extremes { highest: f64::NEG_INFINITY, lowest: f64::INFINITY };
    for (idx, segment) in segments.iter().enumerate() {
        let segment_start = segment.sum - streamed * segment.start;
        let segment_end = segment.sum - streamed * segment.end;
        let behind = behind[segments.len() - 1 - idx];
        let highest_behind = behind.highest;
        let lowest_behind = smaller(behind.lowest, segment_end);
        let next_first = segments.get(idx + 1).map_or(usize::MAX, |next| next.first);
        while let Some(unit) = candidates.next_if(|&unit| unit < next_first) {
            let bytes = sizes[unit];
            // The start of `unit` is the end of the resident unit before it.
            let here = segment.sum - streamed * starts[unit];
            let mut highest = larger(here, highest_behind) + bytes;
            let mut lowest = lowest_behind + bytes;
            if unit > 0 {
                highest = larger(highest, before.highest);
                lowest = smaller(lowest, before.lowest);
            }
            if unit > segment.first {
                highest = larger(highest, segment_start);
                lowest = smaller(lowest, here);
            }
            let discrepancy = highest - lowest;
            if discrepancy < best.0 {
                best = (discrepancy, unit);
            }
        }
        before.highest = larger(before.highest, segment_start);
        before.lowest = smaller(before.lowest, segment_end);
    }
    best
}

/// One class for each distinct size while that takes some 40 million evaluations at most (all of 650 units, 20 sizes of
/// 2,000). With more sizes, equal ranges of size: the shared `s` is then off by half a range at most, and so is a
/// discrepancy by half a range, 1/40 of the largest unit for 2,000 units, where a ring holds three such units.
fn size_classes(units: &[UnitProfile]) -> Vec<SizeClass> {
    let mut by_size: Vec<usize> = (0..units.len()).collect();
    by_size.sort_by_key(|&idx| (units[idx].bytes, idx));
    let distinct_count = by_size.chunk_by(|&a, &b| units[a].bytes == units[b].bytes).count();
    let class_count_max = (80_000_000 / units.len().pow(2).max(1)).max(8);
    let largest = by_size.last().map_or(0, |&idx| units[idx].wide_bytes());
    let class_of = |idx: usize| match distinct_count <= class_count_max {
        true => units[idx].wide_bytes(),
        false => units[idx].wide_bytes() * class_count_max as u128 / (largest + 1),
    };
    by_size
        .chunk_by(|&a, &b| class_of(a) == class_of(b))
        .map(|class| {
            let mut candidates = class.to_vec();
            candidates.sort_unstable();
            let (smallest, largest) = (units[class[0]].bytes.0, units[class[class.len() - 1]].bytes.0);
            SizeClass { bytes: smallest.midpoint(largest) as f64, candidates }
        })
        .collect()
}

// Nothing here is ever not a number, and these compile to one instruction.
fn larger(a: f64, b: f64) -> f64 {
    if a > b { a } else { b }
}

fn smaller(a: f64, b: f64) -> f64 {
    if a < b { a } else { b }
}

#[cfg(test)]
mod tests {
    use plimsoll_device::ByteCount;
    use proptest::prelude::*;

    use super::*;

    fn units(of: &[(u64, f64)]) -> Vec<UnitProfile> {
        let unit = |(idx, &(bytes, compute_seconds)): (usize, &(u64, f64))| UnitProfile {
            name: format!("unit.{idx}"),
            bytes: ByteCount(bytes),
            transient_bytes: ByteCount::ZERO,
            compute_seconds,
            patched_elements: 0,
        };
        of.iter().enumerate().map(unit).collect()
    }

    /// The definition, unit by unit.
    fn discrepancy(units: &[UnitProfile], streamed: &[bool]) -> f64 {
        let times = Times::new(units);
        let bytes = |idx: usize| if streamed[idx] { units[idx].bytes.0 as f64 } else { 0.0 };
        let rate: f64 = (0..units.len()).map(bytes).sum();
        let (mut sum, mut highest, mut lowest) = (0.0, f64::NEG_INFINITY, f64::INFINITY);
        for idx in 0..units.len() {
            sum += bytes(idx);
            highest = f64::max(highest, sum - rate * times.starts[idx]);
            lowest = f64::min(lowest, sum - rate * times.ends[idx]);
        }
        highest - lowest
    }

    proptest! {
        #[test]
        fn each_step_takes_a_unit_with_the_smallest_discrepancy(
            of in prop::collection::vec((prop_oneof![Just(7u64), 0u64..1000], prop_oneof![Just(0.0), 0.0..10.0f64]), 1..24),
        ) {
            let units = units(&of);
            let rank = Rank::new(&units, RankOrder::Spread);
            let mut streamed = vec![false; units.len()];
            for &chosen in rank.order() {
                let with = |idx: usize| {
                    let mut streamed = streamed.clone();
                    streamed[idx] = true;
                    discrepancy(&units, &streamed)
                };
                let least = (0..units.len()).filter(|&idx| !streamed[idx]).map(with).fold(f64::INFINITY, f64::min);
                prop_assert!(with(chosen) <= least + 1e-7, "{chosen}: {} against {least}", with(chosen));
                streamed[chosen] = true;
            }
        }

        #[test]
        fn every_rank_holds_each_unit_once(
            of in prop::collection::vec((any::<u64>(), any::<f64>()), 0..60),
        ) {
            for order in RankOrder::ALL {
                let mut rank = Rank::new(&units(&of), order).0;
                rank.sort_unstable();
                prop_assert_eq!(rank, (0..of.len()).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn equal_units_are_halved_again_and_again() {
        let rank = Rank::new(&units(&[(10, 1.0); 8]), RankOrder::Spread);
        assert_eq!(rank.order()[0], 0);
        assert_eq!(rank.order()[1], 4);
        let mut quarters = rank.order()[..4].to_vec();
        quarters.sort_unstable();
        assert_eq!(quarters, [0, 2, 4, 6]);
    }

    #[test]
    fn without_compute_times_the_place_is_the_time() {
        let timed = Rank::new(&units(&[(10, 1.0); 32]), RankOrder::Spread);
        assert_eq!(Rank::new(&units(&[(10, 0.0); 32]), RankOrder::Spread), timed);
    }

    #[test]
    fn a_great_many_units_are_ranked_by_bit_reversal() {
        let count = 8192;
        let rank = Rank::new(&units(&vec![(1, 1.0); count]), RankOrder::Spread);
        assert_eq!(&rank.order()[..4], [0, count / 2, count / 4, count / 4 * 3]);
        let mut sorted = rank.0;
        sorted.sort_unstable();
        assert_eq!(sorted, (0..count).collect::<Vec<_>>());
    }
}
