//! What every plan keeps to, for any sizes, times, adapters, streams and budgets.

use plimsoll_device::ByteCount;
use plimsoll_residency::{DoesNotFit, Link, Plan, PlanOptions, Planner, Policy, UnitProfile};
use proptest::prelude::*;

const LINK: Link = Link { bytes_per_second: 12e9, latency_seconds: 15e-6 };

fn any_unit(bytes: impl Strategy<Value = u64>) -> impl Strategy<Value = UnitProfile> {
    let seconds = prop_oneof![4 => 0.0..1e-3f64, 2 => Just(0.0), 1 => any::<f64>()];
    let transient = prop_oneof![2 => Just(0), 1 => 0u64..300];
    let patched = prop_oneof![2 => Just(0), 1 => 0u64..50];
    (bytes, transient, seconds, patched).prop_map(|(bytes, transient, compute_seconds, patched_elements)| UnitProfile {
        name: String::new(),
        bytes: ByteCount(bytes),
        transient_bytes: ByteCount(transient),
        compute_seconds,
        patched_elements,
    })
}

fn any_units() -> impl Strategy<Value = Vec<UnitProfile>> {
    let bytes = prop_oneof![3 => 0u64..1000, 2 => Just(100), 1 => 2000u64..8000];
    prop::collection::vec(any_unit(bytes), 0..40).prop_map(named)
}

/// Names that sort as strings, not as numbers.
fn named(mut units: Vec<UnitProfile>) -> Vec<UnitProfile> {
    for (idx, unit) in units.iter_mut().enumerate() {
        unit.name = format!("blocks.{idx}.linear");
    }
    units
}

fn any_options(policy: impl Strategy<Value = Policy>) -> impl Strategy<Value = PlanOptions> {
    let min_resident = prop_oneof![2 => Just(0), 1 => 0u64..5000];
    (policy, 0usize..6, min_resident, 0u64..200).prop_map(|(policy, offload_streams, min_resident, staging)| {
        PlanOptions {
            policy,
            offload_streams,
            min_resident_bytes: ByteCount(min_resident),
            staging_bytes: ByteCount(staging),
        }
    })
}

fn any_policy() -> impl Strategy<Value = Policy> {
    prop::sample::select(Policy::ALL.as_slice())
}

fn planner(units: &[UnitProfile], options: &PlanOptions) -> Planner {
    Planner::new(units.to_vec(), options, LINK)
}

fn streamed<'a>(units: &'a [UnitProfile], plan: &'a Plan) -> impl Iterator<Item = &'a UnitProfile> {
    units.iter().zip(&plan.resident).filter(|(_, resident)| !**resident).map(|(unit, _)| unit)
}

/// Bytes of the largest `width` streamed units in a row, around the cycle.
fn worst_window(sizes: &[u64], width: usize) -> u64 {
    let width = width.min(sizes.len());
    let run = |start: usize| (0..width).map(|step| sizes[(start + step) % sizes.len()]).sum();
    (0..sizes.len()).map(run).max().unwrap_or(0)
}

fn total(units: &[UnitProfile]) -> u64 {
    units.iter().map(|unit| unit.bytes.0).sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn a_larger_budget_only_adds_residents(
        units in any_units(),
        options in any_options(Just(Policy::Spread)),
        budgets in (0u64..40_000, 0u64..40_000),
    ) {
        let planner = planner(&units, &options);
        let (smaller, larger) = (budgets.0.min(budgets.1), budgets.0.max(budgets.1));
        if let Ok(below) = planner.plan(ByteCount(smaller)) {
            let above = planner.plan(ByteCount(larger)).expect("a plan for less exists");
            prop_assert!(below.resident.iter().zip(&above.resident).all(|(below, above)| above >= below));
        }
    }

    #[test]
    fn a_plan_fits_and_has_room_for_what_it_streams(
        units in any_units(),
        options in any_options(any_policy()),
        available in prop_oneof![0u64..40_000, Just(u64::MAX)],
    ) {
        let planner = planner(&units, &options);
        let Ok(plan) = planner.plan(ByteCount(available)) else { return Ok(()) };
        prop_assert!(plan.total_bytes() <= ByteCount(available));
        let kept: u64 = units.iter().zip(&plan.resident).filter(|(_, kept)| **kept).map(|(unit, _)| unit.bytes.0).sum();
        prop_assert_eq!(plan.resident_bytes.0, kept);
        prop_assert_eq!(plan.resident_bytes.0 + plan.streamed_bytes.0, total(&units));
        prop_assert_eq!(plan.reserve_bytes(), plan.ring_bytes + plan.transient_bytes + plan.staging_bytes);
        prop_assert_eq!(plan.staging_bytes, options.staging_bytes);

        let sizes: Vec<u64> = streamed(&units, &plan).map(|unit| unit.bytes.0).collect();
        let transient = streamed(&units, &plan).map(|unit| unit.transient_bytes).max();
        prop_assert_eq!(plan.transient_bytes, transient.unwrap_or(ByteCount::ZERO));
        prop_assert!(plan.ring_bytes.0 >= sizes.iter().copied().max().unwrap_or(0));
        if options.policy == Policy::Spread {
            prop_assert!(plan.ring_bytes.0 >= worst_window(&sizes, options.offload_streams + 1));
            prop_assert!(plan.ring_bytes.0 <= sizes.iter().sum());
            prop_assert!(kept >= total(&units).min(options.min_resident_bytes.0));
        }
    }

    #[test]
    fn there_is_a_plan_from_the_least_on_and_the_shortfall_is_exact(
        units in any_units(),
        options in any_options(any_policy()),
        available in 0u64..40_000,
    ) {
        let planner = planner(&units, &options);
        let needed = planner.least_bytes();
        let at_least = planner.plan(needed);
        prop_assert!(at_least.is_ok());
        match planner.plan(ByteCount(available)) {
            Ok(_) => prop_assert!(ByteCount(available) >= needed),
            Err(error) => {
                prop_assert_eq!(&error, &DoesNotFit { needed, available: ByteCount(available) });
                prop_assert!(ByteCount(available) < needed);
            }
        }
        if let Some(below) = needed.0.checked_sub(1) {
            prop_assert!(planner.plan(ByteCount(below)).is_err());
        }
    }

    #[test]
    fn the_smallest_plan_is_no_larger_than_streaming_everything(
        units in any_units(),
        options in any_options(Just(Policy::Spread)),
    ) {
        let options = PlanOptions { min_resident_bytes: ByteCount::ZERO, ..options };
        let sizes: Vec<u64> = units.iter().map(|unit| unit.bytes.0).collect();
        let transient = units.iter().map(|unit| unit.transient_bytes.0).max().unwrap_or(0);
        let all_streamed = worst_window(&sizes, options.offload_streams + 1) + transient + options.staging_bytes.0;
        prop_assert!(planner(&units, &options).least_bytes().0 <= all_streamed);
    }

    #[test]
    fn positions_fall_and_each_is_the_plan_for_its_bytes(
        units in any_units(),
        options in any_options(Just(Policy::Spread)),
    ) {
        let planner = planner(&units, &options);
        let positions = planner.positions().expect("spread has positions");
        prop_assert!(positions.windows(2).all(|pair| pair[0] > pair[1]));
        prop_assert_eq!(positions[0].0, total(&units) + options.staging_bytes.0);
        prop_assert_eq!(positions.last().copied(), Some(planner.least_bytes()));
        for (idx, &bytes) in positions.iter().enumerate() {
            let plan = planner.plan_at(idx).expect("it is a position");
            prop_assert_eq!(plan.total_bytes(), bytes);
            prop_assert_eq!(Ok(plan), planner.plan(bytes));
        }
        prop_assert_eq!(planner.plan_at(positions.len()), None);
    }

    #[test]
    fn a_rank_holds_each_unit_once(units in any_units(), options in any_options(any_policy())) {
        let mut rank = planner(&units, &options).rank().order().to_vec();
        rank.sort_unstable();
        prop_assert_eq!(rank, (0..units.len()).collect::<Vec<_>>());
    }

    #[test]
    fn shrinking_spread_is_planning_for_less(
        units in any_units(),
        options in any_options(Just(Policy::Spread)),
        available in 0u64..40_000,
        to_free in 0u64..10_000,
    ) {
        let planner = planner(&units, &options);
        let Ok(plan) = planner.plan(ByteCount(available)) else { return Ok(()) };
        let shrunk = planner.shrink(&plan, ByteCount(to_free));
        prop_assert_eq!(&shrunk, &planner.plan(plan.total_bytes().saturating_sub(ByteCount(to_free))));
        if let Ok(shrunk) = shrunk {
            prop_assert!(shrunk.total_bytes().0 + to_free.min(plan.total_bytes().0) <= plan.total_bytes().0);
        }
        prop_assert_eq!(planner.shrink(&plan, ByteCount::ZERO), Ok(plan));
    }

    #[test]
    fn sizes_and_streams_of_any_magnitude_are_planned(
        units in prop::collection::vec(any_unit(prop_oneof![any::<u64>(), Just(u64::MAX), 0u64..10]), 0..12),
        patched_elements in any::<u64>(),
        policy in any_policy(),
        offload_streams in prop_oneof![0usize..4, Just(usize::MAX)],
        min_resident in prop_oneof![Just(0), any::<u64>()],
        available in any::<u64>(),
    ) {
        let mut units = named(units);
        for unit in &mut units {
            unit.patched_elements = patched_elements;
        }
        let min_resident_bytes = ByteCount(min_resident);
        let options = PlanOptions { policy, offload_streams, min_resident_bytes, staging_bytes: ByteCount(7) };
        let planner = planner(&units, &options);
        if let Ok(plan) = planner.plan(ByteCount(available)) {
            prop_assert!(plan.total_bytes() <= ByteCount(available));
            prop_assert!(planner.step_seconds(&plan).is_finite());
            let _ = planner.shrink(&plan, ByteCount(available / 2));
        }
    }
}

/// The rule of `largest-first` word by word, without staging and transients.
mod literal {
    use plimsoll_residency::UnitProfile;

    pub(crate) struct Loaded {
        pub(crate) resident: Vec<bool>,
        pub(crate) buffer: u64,
        pub(crate) memory: u64,
    }

    type Entry = (u64, u64, String, usize);

    fn list(units: &[UnitProfile]) -> Vec<Entry> {
        let entry = |(idx, unit): (usize, &UnitProfile)| {
            (unit.bytes.0 + unit.patched_elements * 4 * 3, unit.bytes.0, unit.name.clone(), idx)
        };
        units.iter().enumerate().map(entry).collect()
    }

    pub(crate) fn load(units: &[UnitProfile], budget: u64, streams: u64, min_resident: u64) -> Loaded {
        let mut loaded = Loaded { resident: vec![false; units.len()], buffer: 0, memory: 0 };
        let full_load = units.iter().map(|unit| unit.bytes.0).sum::<u64>() < budget;
        let mut list = list(units);
        list.sort();
        list.reverse();
        for (offload_mem, module_mem, _, idx) in list {
            let potential = loaded.buffer.max(offload_mem * (streams + 1));
            if full_load || loaded.memory + module_mem + potential < budget || loaded.memory + module_mem < min_resident
            {
                loaded.memory += module_mem;
                loaded.resident[idx] = true;
            } else {
                loaded.buffer = potential;
            }
        }
        loaded
    }

    /// Unloads, and returns the bytes freed.
    pub(crate) fn unload(units: &[UnitProfile], loaded: &mut Loaded, to_free: u64, streams: u64) -> u64 {
        let saved = loaded.buffer;
        let mut freed = 0;
        let mut list = list(units);
        list.sort();
        for (offload_mem, module_mem, _, idx) in list {
            if to_free + (loaded.buffer - saved) < freed {
                break;
            }
            if loaded.resident[idx] {
                loaded.resident[idx] = false;
                loaded.memory -= module_mem;
                freed += module_mem;
                loaded.buffer = loaded.buffer.max(offload_mem * (streams + 1));
            }
        }
        freed
    }
}

fn without_transients(mut units: Vec<UnitProfile>) -> Vec<UnitProfile> {
    for unit in &mut units {
        unit.transient_bytes = ByteCount::ZERO;
    }
    units
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn largest_first_is_the_rule_word_by_word(
        units in any_units().prop_map(without_transients),
        options in any_options(Just(Policy::LargestFirst)),
        available in 0u64..60_000,
    ) {
        let options = PlanOptions { staging_bytes: ByteCount::ZERO, ..options };
        let streams = options.offload_streams as u64;
        let literal = literal::load(&units, available, streams, options.min_resident_bytes.0);
        match planner(&units, &options).plan(ByteCount(available)) {
            Ok(plan) => {
                prop_assert_eq!(plan.resident_bytes.0, literal.memory);
                prop_assert_eq!(plan.resident, literal.resident);
                prop_assert_eq!(plan.ring_bytes.0, literal.buffer);
            }
            Err(_) => prop_assert!(literal.memory + literal.buffer > available),
        }
    }

    #[test]
    fn shrinking_largest_first_is_the_rule_word_by_word(
        units in any_units().prop_map(without_transients),
        streams in 0usize..4,
        available in 0u64..60_000,
        to_free in 1u64..10_000,
    ) {
        let policy = Policy::LargestFirst;
        let options = PlanOptions { policy, offload_streams: streams, ..PlanOptions::default() };
        let planner = planner(&units, &options);
        let Ok(plan) = planner.plan(ByteCount(available)) else { return Ok(()) };
        let mut literal = literal::load(&units, available, streams as u64, 0);
        let before = literal.memory + literal.buffer;
        let to_free = to_free.min(before);
        prop_assume!(to_free > 0);
        let freed = literal::unload(&units, &mut literal, to_free, streams as u64);
        match planner.shrink(&plan, ByteCount(to_free)) {
            Ok(shrunk) => {
                prop_assert_eq!(shrunk.resident, literal.resident);
                prop_assert_eq!(shrunk.ring_bytes.0, literal.buffer);
                prop_assert!(freed >= to_free + (shrunk.ring_bytes.0 - plan.ring_bytes.0));
            }
            Err(error) => {
                prop_assert!(literal.memory + literal.buffer > before - to_free);
                prop_assert_eq!(error.available.0, before - to_free);
            }
        }
    }

    #[test]
    fn shrinking_largest_first_frees_what_was_asked_or_names_the_exact_need(
        units in any_units(),
        options in any_options(Just(Policy::LargestFirst)),
        available in 0u64..60_000,
        to_free in 0u64..10_000,
    ) {
        let planner = planner(&units, &options);
        let Ok(plan) = planner.plan(ByteCount(available)) else { return Ok(()) };
        let before = plan.total_bytes().0;
        match planner.shrink(&plan, ByteCount(to_free)) {
            Ok(shrunk) => {
                let to_free = to_free.min(before);
                prop_assert!(shrunk.total_bytes().0 + to_free <= before);
                let raise = shrunk.reserve_bytes().0 - plan.reserve_bytes().0;
                prop_assert!(plan.resident_bytes.0 - shrunk.resident_bytes.0 >= to_free + raise);
                prop_assert!(shrunk.resident.iter().zip(&plan.resident).all(|(after, before)| before >= after));
                if shrunk != plan {
                    prop_assert!(shrunk.resident_bytes.0 >= total(&units).min(options.min_resident_bytes.0));
                }
            }
            Err(DoesNotFit { needed, available }) => {
                prop_assert!(available < needed && needed.0 <= before);
                prop_assert!(planner.shrink(&plan, ByteCount(before - needed.0)).is_ok());
                prop_assert!(planner.shrink(&plan, ByteCount(before - needed.0 + 1)).is_err());
            }
        }
    }
}

fn blocks(count: usize, bytes: u64) -> Vec<UnitProfile> {
    let unit = UnitProfile {
        name: String::new(),
        bytes: ByteCount(bytes),
        transient_bytes: ByteCount::ZERO,
        compute_seconds: 1e-3,
        patched_elements: 0,
    };
    named(vec![unit; count])
}

#[test]
fn largest_first_breaks_ties_by_name_as_a_string() {
    let policy = Policy::LargestFirst;
    let planner = planner(&blocks(12, 100), &PlanOptions { policy, offload_streams: 1, ..PlanOptions::default() });
    // As strings: 9, 8, 7, 6, 5, 4, 3, 2, 11, 10, 1, 0. The ring takes two units, and the rule is strict.
    assert_eq!(planner.rank().order(), [0, 1, 10, 11, 2, 3, 4, 5, 6, 7, 8, 9]);
    let plan = planner.plan(ByteCount(1101)).unwrap();
    let kept: Vec<usize> = (0..12).filter(|&idx| plan.resident[idx]).collect();
    assert_eq!(kept, [2, 3, 4, 5, 6, 7, 8, 9, 11]);
    assert_eq!(planner.plan(ByteCount(1100)).unwrap().resident_bytes, ByteCount(800));
}

#[test]
fn largest_first_keeps_what_adapters_make_dear() {
    let mut units = blocks(4, 100);
    units[1].bytes = ByteCount(20);
    units[1].patched_elements = 10;
    let policy = Policy::LargestFirst;
    let planner = planner(&units, &PlanOptions { policy, offload_streams: 1, ..PlanOptions::default() });
    // 20 + 10 * 12 = 140 comes first, and is kept: 20 + 280 < 301. Then 20 + 100 + 200 is too much.
    let plan = planner.plan(ByteCount(301)).unwrap();
    assert_eq!(plan.resident, [false, true, false, false]);
    assert_eq!((plan.ring_bytes, plan.transient_bytes), (ByteCount(200), ByteCount::ZERO));
}

#[test]
fn giants_are_streamed_last() {
    let mut units = blocks(10, 10);
    units[4].bytes = ByteCount(1000);
    let options = PlanOptions { offload_streams: 2, ..PlanOptions::default() };
    let planner = planner(&units, &options);
    assert_eq!(planner.rank().order().last(), Some(&4));
    // Kept, it leaves a ring of three small units; a ring that holds it holds two small ones beside it.
    assert!(planner.plan(ByteCount(1030)).unwrap().resident[4]);
    assert_eq!(planner.plan(ByteCount(1029)).unwrap().ring_bytes, ByteCount(1020));
    assert_eq!(planner.least_bytes(), ByteCount(1020));
}

#[test]
fn a_planner_says_why_it_took_its_rank() {
    let planner = planner(&blocks(20, 50 << 20), &PlanOptions { offload_streams: 2, ..PlanOptions::default() });
    let least = planner.candidates().iter().min_by(|a, b| a.slowdown.total_cmp(&b.slowdown)).unwrap();
    assert_eq!(planner.rank_name(), least.order.name());
    assert!(least.slowdown >= 1.0 && least.step_seconds_sum > 0.0);
}
