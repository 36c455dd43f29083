//! All plans along a rank, from everything resident to as little as possible.
//!
//! A **position** of the chain is a number of units streamed, always the first of the rank, and a ring for them. Along
//! the chain more and more is streamed and the total falls strictly. So plans nest, a budget is served by the first
//! position that fits, and when even the last does not fit, its total is the exact need.
//!
//! A ring has a preferred size, about three of the largest streamed units, and a minimum: as many copies as there are
//! queues for them, and one in use. A larger ring costs residents, so the preferred size is kept only as far down as it
//! pays; from the position with the least total on, the minimum takes over.

use std::cmp::Reverse;

use plimsoll_device::ByteCount;

use crate::profile::narrow;
use crate::window::WorstWindow;
use crate::{Rank, UnitProfile};

/// How many of the largest streamed units a ring preferably holds.
const PREFERRED_RING_UNITS: u128 = 3;

/// What a position needs beside its units.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChainOptions {
    pub(crate) offload_streams: usize,
    pub(crate) staging_bytes: ByteCount,
    pub(crate) min_resident_bytes: ByteCount,
}

/// The chain of one rank.
#[derive(Clone, Debug)]
pub(crate) struct Chain {
    positions: Vec<Position>,
    /// All that each position takes; strictly falling.
    totals: Vec<ByteCount>,
}

/// One plan of the chain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Position {
    /// How many units of the rank are streamed.
    pub(crate) streamed_count: usize,
    pub(crate) ring_bytes: ByteCount,
    /// The largest transient of any of them.
    pub(crate) transient_bytes: ByteCount,
}

impl Chain {
    /// The chain of these units along `rank`. What takes more bytes than can be counted is left out.
    pub(crate) fn new(units: &[UnitProfile], rank: &Rank, options: ChainOptions) -> Self {
        let candidates = candidates(units, rank, options);
        let least_preferred = candidates.iter().min_by_key(|candidate| candidate.preferred_total());
        let turn = least_preferred.map_or(0, |candidate| candidate.streamed_count);
        let preferred = candidates.iter().filter(|candidate| candidate.streamed_count <= turn);
        let preferred = preferred.map(|candidate| (candidate.preferred_total(), candidate.preferred_ring, candidate));
        let minimum = candidates.iter().filter(|candidate| candidate.streamed_count >= turn);
        let minimum = minimum.map(|candidate| (candidate.minimum_total(), candidate.minimum_ring, candidate));

        let mut chain = Self { positions: Vec::new(), totals: Vec::new() };
        let mut least: u128 = u128::from(u64::MAX) + 1;
        for (total, ring, candidate) in preferred.chain(minimum) {
            if total < least {
                least = total;
                chain.totals.push(narrow(total));
                chain.positions.push(Position {
                    streamed_count: candidate.streamed_count,
                    ring_bytes: narrow(ring),
                    transient_bytes: candidate.transient_bytes,
                });
            }
        }
        chain
    }

    /// What the last position takes.
    pub(crate) fn least_bytes(&self) -> ByteCount {
        self.totals.last().copied().unwrap_or(ByteCount::MAX)
    }

    /// What each position takes, strictly falling.
    pub(crate) fn totals(&self) -> &[ByteCount] {
        &self.totals
    }

    /// A position by its place in the chain.
    pub(crate) fn position(&self, idx: usize) -> Option<Position> {
        self.positions.get(idx).copied()
    }

    /// The first position that takes no more than `available`.
    pub(crate) fn first_within(&self, available: ByteCount) -> Option<Position> {
        self.position(self.totals.partition_point(|&total| total > available))
    }
}

/// A number of streamed units, with both rings.
struct Candidate {
    streamed_count: usize,
    /// All bytes but the ring's.
    other_bytes: u128,
    transient_bytes: ByteCount,
    preferred_ring: u128,
    minimum_ring: u128,
}

impl Candidate {
    fn preferred_total(&self) -> u128 {
        self.other_bytes + self.preferred_ring
    }

    fn minimum_total(&self) -> u128 {
        self.other_bytes + self.minimum_ring
    }
}

/// Every number of streamed units that leaves enough residents, from none up.
fn candidates(units: &[UnitProfile], rank: &Rank, options: ChainOptions) -> Vec<Candidate> {
    let mut window = streamed_window(units, options.offload_streams);
    let total = window.total();
    let resident_min = u128::from(options.min_resident_bytes.0).min(total);
    let largest_streamed = running_max(rank, |idx| units[idx].bytes);
    let transients = running_max(rank, |idx| units[idx].transient_bytes);

    let mut candidates = Vec::with_capacity(units.len() + 1);
    for streamed_count in (0..=units.len()).rev() {
        let streamed = window.total();
        let minimum_ring = window.worst();
        let preferred_ring = preferred_ring(&window, largest_streamed[streamed_count], options.offload_streams);
        let transient_bytes = transients[streamed_count];
        let other_bytes = total - streamed + u128::from(transient_bytes.0) + u128::from(options.staging_bytes.0);
        if total - streamed >= resident_min {
            candidates.push(Candidate { streamed_count, other_bytes, transient_bytes, preferred_ring, minimum_ring });
        }
        if streamed_count > 0 {
            window.remove(rank.order()[streamed_count - 1]);
        }
    }
    candidates.reverse();
    candidates
}

/// The ring that the streamed units of `window` had better have. Copies on the compute queue gain nothing by a ring of
/// more than one unit.
fn preferred_ring(window: &WorstWindow, largest: ByteCount, offload_streams: usize) -> u128 {
    match offload_streams {
        0 => window.worst(),
        _ => (PREFERRED_RING_UNITS * u128::from(largest.0)).clamp(window.worst(), window.total()),
    }
}

/// For each number of streamed units, the largest of something among them.
fn running_max(rank: &Rank, of: impl Fn(usize) -> ByteCount) -> Vec<ByteCount> {
    let mut largest = ByteCount::ZERO;
    let running = rank.order().iter().map(|&idx| {
        largest = largest.max(of(idx));
        largest
    });
    std::iter::once(ByteCount::ZERO).chain(running.collect::<Vec<_>>()).collect()
}

fn streamed_window(units: &[UnitProfile], offload_streams: usize) -> WorstWindow {
    WorstWindow::new(units.iter().map(UnitProfile::wide_bytes).collect(), offload_streams.saturating_add(1))
}

/// The size above which a unit is a giant: one that costs less kept than a ring for it would.
///
/// The size that minimises the giants' bytes and the preferred ring of all others together; of equals the largest. The
/// minimum ring would not do: it holds a giant once, so streaming one always costs less than keeping it.
pub(crate) fn giant_threshold(units: &[UnitProfile], offload_streams: usize) -> ByteCount {
    let mut by_size: Vec<usize> = (0..units.len()).collect();
    by_size.sort_by_key(|&idx| (Reverse(units[idx].bytes), idx));
    let mut window = streamed_window(units, offload_streams);
    let mut best = (u128::MAX, ByteCount::MAX);
    let mut giants: u128 = 0;
    for of_size in by_size.chunk_by(|&a, &b| units[a].bytes == units[b].bytes) {
        let largest = units[of_size[0]].bytes;
        let needed = giants + preferred_ring(&window, largest, offload_streams);
        if needed < best.0 {
            best = (needed, largest);
        }
        for &idx in of_size {
            window.remove(idx);
            giants += units[idx].wide_bytes();
        }
    }
    best.1
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::RankOrder;

    fn units(sizes: &[u64]) -> Vec<UnitProfile> {
        let unit = |(idx, &bytes): (usize, &u64)| UnitProfile {
            name: format!("unit.{idx}"),
            bytes: ByteCount(bytes),
            transient_bytes: ByteCount(bytes / 10),
            compute_seconds: 1.0,
            patched_elements: 0,
        };
        sizes.iter().enumerate().map(unit).collect()
    }

    fn check(sizes: &[u64], offload_streams: usize, min_resident: u64, expected: Expect) {
        let options = ChainOptions {
            offload_streams,
            staging_bytes: ByteCount(1000),
            min_resident_bytes: ByteCount(min_resident),
        };
        let units = units(sizes);
        let chain = Chain::new(&units, &Rank::new(&units, RankOrder::Spread), options);
        let shown: Vec<String> = std::iter::zip(&chain.positions, &chain.totals)
            .map(|(at, total)| format!("{} streamed, ring {}: {}\n", at.streamed_count, at.ring_bytes.0, total.0))
            .collect();
        expected.assert_eq(&shown.concat());
    }

    #[test]
    fn without_streams_a_ring_holds_one_unit() {
        check(
            &[100; 5],
            0,
            0,
            expect![[r#"
                0 streamed, ring 0: 1500
                2 streamed, ring 100: 1410
                3 streamed, ring 100: 1310
                4 streamed, ring 100: 1210
                5 streamed, ring 100: 1110
            "#]],
        );
    }

    #[test]
    fn the_preferred_ring_gives_way_to_the_minimum() {
        check(
            &[100; 8],
            1,
            0,
            expect![[r#"
                0 streamed, ring 0: 1800
                4 streamed, ring 300: 1710
                5 streamed, ring 300: 1610
                6 streamed, ring 300: 1510
                7 streamed, ring 300: 1410
                8 streamed, ring 300: 1310
                8 streamed, ring 200: 1210
            "#]],
        );
    }

    #[test]
    fn residents_stay_above_their_minimum() {
        check(
            &[100; 8],
            1,
            350,
            expect![[r#"
                0 streamed, ring 0: 1800
                4 streamed, ring 300: 1710
                4 streamed, ring 200: 1610
            "#]],
        );
    }

    #[test]
    fn a_component_smaller_than_the_minimum_stays_whole() {
        check(
            &[100; 8],
            1,
            900,
            expect![[r#"
                0 streamed, ring 0: 1800
            "#]],
        );
    }

    #[test]
    fn sizes_that_no_count_holds_are_left_out() {
        check(&[u64::MAX; 3], 1, 0, expect![""]);
        check(
            &[1 << 63, 1 << 63, 5],
            0,
            0,
            expect![[r#"
            3 streamed, ring 9223372036854775808: 10145709240540254388
        "#]],
        );
    }

    #[test]
    fn giants_are_what_costs_less_kept() {
        for (sizes, streams, threshold) in [
            (&[10u64, 10, 10, 10][..], 1, 10),
            (&[10, 100, 10, 10, 10], 0, 100), // a ring of 100 either way
            (&[10, 100, 10, 10, 10], 1, 10),  // 100 kept and a ring of 30, or all through a ring of 140
            (&[10, 100, 10], 1, 100),         // the ring holds all three
            (&[10, 100, 10, 100, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10], 1, 10),
            (&[50, 99, 50, 50, 50, 99, 50, 50], 2, 99),
            (&[], 2, u64::MAX),
        ] {
            assert_eq!(giant_threshold(&units(sizes), streams), ByteCount(threshold), "{sizes:?}, {streams} streams");
        }
    }
}
