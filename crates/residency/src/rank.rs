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

/// The share of the bytes that the large units of [`RankOrder::SpreadLarge`] hold.
const LARGE_SHARE_PERCENT: u128 = 95;

/// The discrepancy, in largest units, that [`RankOrder::SpreadCoarse`] leaves to the ring.
const COARSE_UNITS: f64 = 2.0;

/// Units in the order in which they become streamed; each unit once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rank(Vec<usize>);

/// How a rank is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RankOrder {
    /// Repeatedly the unit that leaves the smallest discrepancy; of equals the first in visiting order.
    Spread,
    /// The same, but first among the largest units, which hold 95 % of the bytes, then among the others. Where many
    /// units are small, streaming those frees little and costs a copy's latency each.
    SpreadLarge,
    /// As [`Self::SpreadLarge`], but discrepancies of up to two of the largest units count alike, as a ring holds more
    /// than that anyway; of those the unit with the least discrepancy per byte. Fewer and larger copies.
    SpreadCoarse,
    /// The largest first: the fewest copies.
    LargestFirst,
    /// The least compute time per byte first.
    LeastComputePerByte,
}

impl RankOrder {
    /// Every order.
    pub const ALL: [Self; 5] =
        [Self::Spread, Self::SpreadLarge, Self::SpreadCoarse, Self::LargestFirst, Self::LeastComputePerByte];

    /// The order's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Spread => "spread",
            Self::SpreadLarge => "spread-large",
            Self::SpreadCoarse => "spread-coarse",
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
            RankOrder::Spread => rank = spread(units, vec![rank], 0.0),
            RankOrder::SpreadLarge => rank = spread(units, split_by_size(units), 0.0),
            RankOrder::SpreadCoarse => rank = spread(units, split_by_size(units), COARSE_UNITS),
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

/// Spreads the units of each tier in turn. Discrepancies of up to `alike_units` of the largest unit count alike.
fn spread(units: &[UnitProfile], tiers: Vec<Vec<usize>>, alike_units: f64) -> Vec<usize> {
    let mut rank = Vec::with_capacity(units.len());
    if units.len() > GREEDY_UNITS_MAX {
        let times = Times::new(units);
        for mut tier in tiers {
            tier.sort_by_key(|&idx| (bit_reversed((times.starts[idx] + times.ends[idx]) / 2.0), idx));
            rank.extend(tier);
        }
        return rank;
    }
    let mut search = Greedy::new(units, alike_units);
    for tier in tiers {
        search.stream_all(size_classes(units, tier), &mut rank);
    }
    rank
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
/// candidate's size: they are computed once for each class of sizes, a few classes side by side.
struct Greedy {
    times: Times,
    sizes: Vec<f64>,
    classes: Vec<SizeClass>,
    segments: Vec<Segment>,
    /// The segment that each unit is in.
    segment_of: Vec<usize>,
    streamed_bytes: f64,
    /// Discrepancies of up to so many bytes count alike.
    alike_bytes: f64,
    /// By segment: the extremes up to its start and from its end on.
    before: Vec<Extremes>,
    behind: Vec<Extremes>,
}

/// Classes that are computed side by side.
const LANES: usize = 4;

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

/// The largest `S - s * start` and the smallest `S - s * end` of some segments, for the `s` of each lane.
#[derive(Clone, Copy)]
struct Extremes {
    highest: [f64; LANES],
    lowest: [f64; LANES],
}

impl Extremes {
    const NONE: Self = Self { highest: [f64::NEG_INFINITY; LANES], lowest: [f64::INFINITY; LANES] };

    fn include_start(&mut self, segment: &Segment, streamed: &[f64; LANES]) {
        for (highest, streamed) in self.highest.iter_mut().zip(streamed) {
            *highest = larger(*highest, segment.sum - streamed * segment.start);
        }
    }

    fn include_end(&mut self, segment: &Segment, streamed: &[f64; LANES]) {
        for (lowest, streamed) in self.lowest.iter_mut().zip(streamed) {
            *lowest = smaller(*lowest, segment.sum - streamed * segment.end);
        }
    }
}

/// A unit, and what it is judged by: the discrepancy it would leave, but what counts alike, and that per byte where
/// anything does.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
struct Best {
    discrepancy: f64,
    discrepancy_per_byte: f64,
    unit: usize,
    class_idx: usize,
}

impl Greedy {
    fn new(units: &[UnitProfile], alike_units: f64) -> Self {
        let times = Times::new(units);
        let sizes: Vec<f64> = units.iter().map(|unit| unit.bytes.0 as f64).collect();
        let segments = match units.len() {
            0 => Vec::new(),
            count => vec![Segment { first: 0, sum: 0.0, start: 0.0, end: times.ends[count - 1] }],
        };
        Self {
            times,
            classes: Vec::new(),
            before: vec![Extremes::NONE; segments.len()],
            behind: vec![Extremes::NONE; segments.len()],
            segments,
            segment_of: vec![0; units.len()],
            streamed_bytes: 0.0,
            alike_bytes: alike_units * sizes.iter().copied().fold(0.0, larger),
            sizes,
        }
    }

    /// Streams these units, and appends them to the rank in the order found.
    fn stream_all(&mut self, classes: Vec<SizeClass>, rank: &mut Vec<usize>) {
        self.classes = classes;
        while let Some(best) = self.best() {
            let candidates = &mut self.classes[best.class_idx].candidates;
            candidates.retain(|&candidate| candidate != best.unit);
            if candidates.is_empty() {
                self.classes.remove(best.class_idx);
            }
            self.stream(best.unit);
            rank.push(best.unit);
        }
    }

    /// The unit judged best; of equals the first.
    fn best(&mut self) -> Option<Best> {
        let mut best: Option<Best> = None;
        for first_class in (0..self.classes.len()).step_by(LANES) {
            let mut streamed = [0.0; LANES];
            for (streamed, class) in streamed.iter_mut().zip(&self.classes[first_class..]) {
                *streamed = self.streamed_bytes + class.bytes;
            }
            self.find_extremes(&streamed);
            for (lane, class) in self.classes[first_class..].iter().take(LANES).enumerate() {
                for &unit in &class.candidates {
                    let discrepancy = self.discrepancy(unit, lane, streamed[lane]);
                    let counted = larger(discrepancy, self.alike_bytes);
                    if best.is_some_and(|best| best.discrepancy < counted) {
                        continue;
                    }
                    let per_byte =
                        if self.alike_bytes > 0.0 { discrepancy / larger(self.sizes[unit], 1.0) } else { 0.0 };
                    let class_idx = first_class + lane;
                    let judged = Best { discrepancy: counted, discrepancy_per_byte: per_byte, unit, class_idx };
                    if best.is_none_or(|best| judged < best) {
                        best = Some(judged);
                    }
                }
            }
        }
        best
    }

    fn find_extremes(&mut self, streamed: &[f64; LANES]) {
        let mut extremes = Extremes::NONE;
        for (segment, before) in self.segments.iter().zip(&mut self.before) {
            extremes.include_start(segment, streamed);
            *before = extremes;
            extremes.include_end(segment, streamed);
        }
        let mut extremes = Extremes::NONE;
        for (segment, behind) in self.segments.iter().zip(&mut self.behind).rev() {
            extremes.include_end(segment, streamed);
            *behind = extremes;
            extremes.include_start(segment, streamed);
        }
    }

    /// The discrepancy once `unit` is streamed too and `streamed` bytes pass in all: what lies behind it is lifted by
    /// its bytes.
    fn discrepancy(&self, unit: usize, lane: usize, streamed: f64) -> f64 {
        let segment_idx = self.segment_of[unit];
        let (before, behind) = (&self.before[segment_idx], &self.behind[segment_idx]);
        let bytes = self.sizes[unit];
        // The start of `unit`, and the end of the resident unit before it.
        let here = self.segments[segment_idx].sum - streamed * self.times.starts[unit];
        let mut highest = larger(here, behind.highest[lane]) + bytes;
        let mut lowest = behind.lowest[lane] + bytes;
        if unit > 0 {
            highest = larger(highest, before.highest[lane]);
            lowest = smaller(lowest, smaller(before.lowest[lane], here));
        }
        highest - lowest
    }

    /// `unit` is streamed from now on: it begins a segment.
    fn stream(&mut self, unit: usize) {
        let bytes = self.sizes[unit];
        let at = self.segment_of[unit];
        for segment in &mut self.segments[at + 1..] {
            segment.sum += bytes;
        }
        let start = self.times.starts[unit];
        let cut = &mut self.segments[at];
        let new = Segment { first: unit, sum: cut.sum + bytes, start, end: cut.end };
        if cut.first == unit {
            *cut = new;
        } else {
            cut.end = start;
            self.segments.insert(at + 1, new);
            for segment in &mut self.segment_of[unit..] {
                *segment += 1;
            }
        }
        self.before.resize(self.segments.len(), Extremes::NONE);
        self.behind.resize(self.segments.len(), Extremes::NONE);
        self.streamed_bytes += bytes;
    }
}

/// One class for each distinct size while that takes some 40 million evaluations at most (430 units of any sizes, 2,000
/// units of 20 sizes). With more sizes, equal ranges of size: the shared `s` is then off by half a range at most, and so is a
/// discrepancy by half a range, 1/40 of the largest unit for 2,000 units, where a ring holds three such units.
fn size_classes(units: &[UnitProfile], mut of: Vec<usize>) -> Vec<SizeClass> {
    of.sort_by_key(|&idx| (units[idx].bytes, idx));
    let distinct_count = of.chunk_by(|&a, &b| units[a].bytes == units[b].bytes).count();
    let class_count_max = (80_000_000 / units.len().pow(2).max(1)).max(8);
    let largest = of.last().map_or(0, |&idx| units[idx].wide_bytes());
    let class_of = |idx: usize| match distinct_count <= class_count_max {
        true => units[idx].wide_bytes(),
        false => units[idx].wide_bytes() * class_count_max as u128 / (largest + 1),
    };
    of.chunk_by(|&a, &b| class_of(a) == class_of(b))
        .map(|class| {
            let mut candidates = class.to_vec();
            candidates.sort_unstable();
            let (smallest, largest) = (units[class[0]].bytes.0, units[class[class.len() - 1]].bytes.0);
            SizeClass { bytes: smallest.midpoint(largest) as f64, candidates }
        })
        .collect()
}

/// The largest units that hold [`LARGE_SHARE_PERCENT`] of the bytes, with all of the same size, and the others.
fn split_by_size(units: &[UnitProfile]) -> Vec<Vec<usize>> {
    let mut by_size: Vec<usize> = (0..units.len()).collect();
    by_size.sort_by_key(|&idx| (Reverse(units[idx].bytes), idx));
    let total: u128 = units.iter().map(UnitProfile::wide_bytes).sum();
    let wanted = total * LARGE_SHARE_PERCENT / 100;
    let mut held: u128 = 0;
    let mut large_count = 0;
    for of_size in by_size.chunk_by(|&a, &b| units[a].bytes == units[b].bytes) {
        if held >= wanted {
            break;
        }
        held += units[of_size[0]].wide_bytes() * of_size.len() as u128;
        large_count += of_size.len();
    }
    let small = by_size.split_off(large_count);
    vec![by_size, small]
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
    fn large_units_come_first_where_they_hold_most() {
        let mut of = vec![(100, 1.0); 10];
        of.extend([(1, 1.0); 20]);
        let rank = Rank::new(&units(&of), RankOrder::SpreadLarge);
        assert!(rank.order()[..10].iter().all(|&idx| idx < 10));
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
