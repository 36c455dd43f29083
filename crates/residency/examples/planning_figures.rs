//! Prints what planning costs and what it gains: `cargo run --release -p plimsoll-residency --example planning_figures`.
//!
//! All step times are simulated. An argument sets the steps of the search that the plans for an uneven component are
//! compared with (20,000 without one).

#[path = "../tests/shapes/mod.rs"]
mod shapes;

use std::time::Instant;

use plimsoll_device::ByteCount;
use plimsoll_residency::{Link, Lookahead, PlanOptions, Planner, Policy, UnitProfile, predict};

fn main() {
    let search_steps = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(20_000);
    planning_cost();
    for (name, units) in
        [("flux", shapes::flux()), ("wan14b", shapes::wan14b()), ("audio/video", shapes::audio_video())]
    {
        for gb_per_second in [12.0, 25.0] {
            compare_policies(name, &units, gb_per_second);
        }
    }
    for gb_per_second in [12.0, 25.0] {
        compare_policies("sd15 unet", &shapes::sd15_unet(), gb_per_second);
        compare_with_search("sd15 unet", &shapes::sd15_unet(), gb_per_second, search_steps);
    }
}

fn link(gb_per_second: f64) -> Link {
    Link { bytes_per_second: gb_per_second * 1e9, latency_seconds: 15e-6 }
}

fn total(units: &[UnitProfile]) -> ByteCount {
    units.iter().map(|unit| unit.bytes).sum()
}

fn options(policy: Policy) -> PlanOptions {
    PlanOptions { policy, offload_streams: 2, ..PlanOptions::default() }
}

fn planning_cost() {
    println!("2,000 units, 2 streams");
    for distinct_count in [8, 2000] {
        let mut random = Random(7);
        let units: Vec<UnitProfile> = (0..2000)
            .map(|idx| {
                let bytes = 10_000 + 15_000 * (random.below(distinct_count) as u64);
                shapes::unit(format!("unit.{idx}"), bytes, random.share() * 1e-3)
            })
            .collect();
        let available = ByteCount(total(&units).0 / 2);
        let start = Instant::now();
        let rank = plimsoll_residency::Rank::new(&units, plimsoll_residency::RankOrder::Spread);
        let rank_seconds = start.elapsed().as_secs_f64();
        let start = Instant::now();
        let planner = Planner::new(units, &options(Policy::Spread), link(12.0));
        let planner_seconds = start.elapsed().as_secs_f64();
        let start = Instant::now();
        let plan = planner.plan(available).expect("half of the weights are enough");
        let plan_seconds = start.elapsed().as_secs_f64();
        println!(
            "  {distinct_count:4} sizes at most: rank of {} units {:.1} ms, planner (all ranks, simulated) {:.1} ms, plan {:.1} us ({} streamed)",
            rank.order().len(),
            rank_seconds * 1e3,
            planner_seconds * 1e3,
            plan_seconds * 1e6,
            plan.streamed_count(),
        );
    }
}

/// The bound is what no plan with a ring of the same size beats: all compute, or all bytes that the budget does not hold
/// beside the ring, over the link.
fn compare_policies(name: &str, units: &[UnitProfile], gb_per_second: f64) {
    let weights = total(units);
    let spread = Planner::new(units.to_vec(), &options(Policy::Spread), link(gb_per_second));
    let rule = Planner::new(units.to_vec(), &options(Policy::LargestFirst), link(gb_per_second));
    println!(
        "\n{name}: {} units, {weights}, compute {:.0} ms a step, {gb_per_second} GB/s; rank: {}",
        units.len(),
        predict::compute_seconds(units) * 1e3,
        spread.rank_name()
    );
    for candidate in spread.candidates() {
        println!(
            "  {:24} slowdown {:.4}, sum {:.1} ms",
            candidate.order.name(),
            candidate.slowdown,
            candidate.step_seconds_sum * 1e3
        );
    }
    println!("  share   spread   bound   ratio   largest-first");
    for percent in [20, 35, 50, 65, 80, 90] {
        let available = ByteCount((weights.0 as f64 * f64::from(percent) / 100.0) as u64);
        let spread_times = spread.plan(available).map(|plan| {
            let least_streamed = weights.saturating_sub(available.saturating_sub(plan.ring_bytes));
            let bound = predict::compute_seconds(units).max(least_streamed.0 as f64 / (gb_per_second * 1e9));
            (spread.step_seconds(&plan), bound)
        });
        let rule_time = rule.plan(available).map(|plan| rule.step_seconds(&plan) * 1e3);
        let rule_time = rule_time.map_or_else(|error| error.to_string(), |ms| format!("{ms:.1}"));
        match spread_times {
            Ok((seconds, bound)) => println!(
                "  {percent:3} % {:8.1} {:8.1}  {:.4}  {rule_time:>8}",
                seconds * 1e3,
                bound * 1e3,
                seconds / bound,
            ),
            Err(error) => println!("  {percent:3} % {error}  {rule_time}"),
        }
    }
}

/// Compares the plan with the best resident set that a long local search finds. The searched sets have all that
/// residents leave as their ring.
fn compare_with_search(name: &str, units: &[UnitProfile], gb_per_second: f64, steps: usize) {
    let planner = Planner::new(units.to_vec(), &options(Policy::Spread), link(gb_per_second));
    for percent in [25, 50, 75] {
        let available = ByteCount(total(units).0 * percent / 100);
        let Ok(plan) = planner.plan(available) else { continue };
        let planned = planner.step_seconds(&plan);
        let mut search = Search { units, link: link(gb_per_second), available, random: Random(percent) };
        let from_plan = search.best_from(plan.resident.clone(), steps);
        let from_random = (0..3)
            .map(|_| {
                let start = search.random_set();
                search.best_from(start, steps)
            })
            .fold(f64::INFINITY, f64::min);
        let best = from_plan.min(from_random);
        println!(
            "  {name} at {percent} %: planned {:.2} ms; {steps} steps of search: from the plan {:.2}, from random sets {:.2}; planned / best = {:.4} (bound {:.2})",
            planned * 1e3,
            from_plan * 1e3,
            from_random * 1e3,
            planned / best,
            planner.bound_seconds(&plan) * 1e3,
        );
    }
}

/// Annealed local search over resident sets.
struct Search<'a> {
    units: &'a [UnitProfile],
    link: Link,
    available: ByteCount,
    random: Random,
}

impl Search<'_> {
    /// A step's time, or `None` when residents and the smallest ring don't fit.
    fn seconds(&self, resident: &[bool]) -> Option<f64> {
        let of = |kept: bool| {
            self.units.iter().zip(resident).filter(move |(_, is)| **is == kept).map(|(unit, _)| unit.bytes.0)
        };
        let ring = self.available.0.checked_sub(of(true).sum())?;
        let streamed: Vec<u64> = of(false).collect();
        let width = 3.min(streamed.len());
        let worst = (0..streamed.len())
            .map(|start| (0..width).map(|step| streamed[(start + step) % streamed.len()]).sum::<u64>());
        if worst.max().unwrap_or(0) > ring {
            return None;
        }
        Some(predict::step_seconds(self.units, resident, ByteCount(ring), Lookahead::Ring, self.link))
    }

    fn random_set(&mut self) -> Vec<bool> {
        let mut resident = vec![false; self.units.len()];
        for _ in 0..4 * self.units.len() {
            let idx = self.random.below(self.units.len());
            resident[idx] = true;
            if self.seconds(&resident).is_none() {
                resident[idx] = false;
            }
        }
        resident
    }

    fn best_from(&mut self, mut resident: Vec<bool>, steps: usize) -> f64 {
        let mut current = self.seconds(&resident).unwrap_or(f64::INFINITY);
        let mut best = current;
        for step in 0..steps {
            let mut next = resident.clone();
            for _ in 0..1 + self.random.below(4) {
                let idx = self.random.below(next.len());
                next[idx] = !next[idx];
            }
            let Some(seconds) = self.seconds(&next) else { continue };
            let warmth = 0.002 * best * (1.0 - step as f64 / steps as f64);
            if seconds < current + warmth * self.random.share() {
                current = seconds;
                resident = next;
                best = best.min(current);
            }
        }
        best
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, count: usize) -> usize {
        (self.next() % count.max(1) as u64) as usize
    }

    fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}
