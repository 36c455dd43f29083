//! A component on the CPU device: whatever is resident, streamed, prefetched or failing, a lease reads its own unit.

mod common;

use common::{BREAKS_THE_QUEUE, Bench, Net};
use plimsoll_device::ByteCount;
use plimsoll_residency::{LeaseError, LoadError, ManagerOptions, UnitId};
use proptest::prelude::*;

/// Six units of 256 bytes, all streamed.
fn streamed(streams: usize) -> (Bench, Net, plimsoll_residency::Loaded) {
    let bench = Bench::streaming(streams);
    let net = bench.net("net", &[64; 6], 0);
    let loaded = bench.load_streamed(&net);
    (bench, net, loaded)
}

#[test]
fn streamed_units_are_fetched_ahead_as_far_as_the_ring_holds() {
    let (bench, net, loaded) = streamed(2);
    assert_eq!(net.component.plan().unwrap().ring_bytes, ByteCount(3 * 256));
    bench.visit(&net, 0).unwrap();
    drop(loaded);
    assert_eq!(net.reads(), [1, 1, 1, 0, 0, 0], "unit 0 is leased; behind it the ring holds 1 and 2");
    assert_eq!(bench.used(), ByteCount::ZERO);
}

#[test]
fn a_pass_in_order_reads_each_streamed_unit_once() {
    for streams in 0..4 {
        let (bench, net, loaded) = streamed(streams);
        bench.pass(&net);
        drop(loaded);
        let reads: usize = net.reads().iter().sum();
        assert!((6..=6 + 3).contains(&reads), "{streams} streams: {reads} reads");
    }
}

#[test]
fn units_of_any_size_pass_through_the_ring_again_and_again() {
    for streams in 0..4 {
        let bench = Bench::streaming(streams);
        let net = bench.net("net", &[64, 16, 300, 16, 16, 120, 48, 300, 80], 0);
        let loaded = bench.load_streamed(&net);
        for _ in 0..5 {
            bench.pass(&net);
        }
        let traffic = net.component.traffic();
        let plan = net.component.plan().unwrap();
        assert_eq!(traffic.streamed_bytes, ByteCount(plan.streamed_bytes.0 * 5), "{streams} streams");
        drop(loaded);
    }
}

#[test]
fn a_failed_read_names_unit_and_storage_and_can_be_repeated() {
    for streams in [0, 2] {
        let (bench, net, loaded) = streamed(streams);
        net.storages[3].fail_next(1);
        let mut failures = Vec::new();
        for unit in [0, 1, 2, 3, 3, 4, 5, 0] {
            match bench.visit(&net, unit) {
                Ok(numbers) => assert_eq!(numbers, net.numbers(unit)),
                Err(error) => failures.push(error.to_string()),
            }
        }
        assert_eq!(
            failures,
            [
                "uploading `layer.3` failed: reading 256 bytes at offset 0 of `disk` failed: unplugged; check the medium and run again"
            ],
            "{streams} streams"
        );
        drop(loaded);
        assert_eq!(bench.used(), ByteCount::ZERO);
    }
}

#[test]
fn a_failed_copy_that_nobody_asked_for_costs_no_room_and_fails_nobody_else() {
    let (bench, net, _loaded) = streamed(1);
    net.storages[1].fail_next(1);
    assert_eq!(bench.visit(&net, 0).unwrap(), net.numbers(0));
    let queue = bench.device.compute_queue();
    let held = net.component.lease(UnitId(3), &queue).unwrap();
    assert_eq!(bench.visit(&net, 5).unwrap(), net.numbers(5), "where the failed copy of unit 1 went");
    drop(held);
    assert_eq!(bench.visit(&net, 1).unwrap(), net.numbers(1));
}

#[test]
fn a_lost_copy_queue_is_told_by_each_lease_and_loses_no_memory() {
    let (bench, net, loaded) = streamed(1);
    net.storages[1].fail_next(BREAKS_THE_QUEUE);
    assert_eq!(bench.visit(&net, 0).unwrap(), net.numbers(0));
    for unit in [1, 2, 3, 1, 0, 5] {
        let error = bench.visit(&net, unit).unwrap_err().to_string();
        assert_eq!(error, "the queue `net.offload.0` stopped working; start again", "unit {unit}");
    }
    drop(loaded);
    assert_eq!(bench.used(), ByteCount::ZERO);
}

#[test]
fn a_lease_that_the_ring_has_no_room_for_is_refused_until_one_is_dropped() {
    let bench = Bench::streaming(0);
    let net = bench.net("net", &[64; 3], 0);
    let _loaded = bench.load_streamed(&net);
    let queue = bench.device.compute_queue();
    let first = net.component.lease(UnitId(0), &queue).unwrap();
    let error = net.component.lease(UnitId(1), &queue).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`layer.1` of `net` can't be leased: the ring's bytes are leased already; drop a lease first, or use more offload streams"
    );
    drop(first);
    assert_eq!(bench.visit(&net, 1).unwrap(), net.numbers(1));
}

#[test]
fn a_placeholder_refuses_leases_and_says_what_to_do() {
    let bench = Bench::streaming(0);
    let net = bench.net("net", &[64; 3], 0);
    let error = bench.visit(&net, 0).unwrap_err();
    assert!(matches!(error, LeaseError::NotLoaded { .. }));
    assert_eq!(error.to_string(), "`net` is not loaded; load it before it is used");
    drop(bench.load(&[&net]).unwrap());
    assert!(matches!(bench.visit(&net, 0), Err(LeaseError::NotLoaded { .. })), "after its last holder");
}

#[test]
fn a_failed_load_leaves_nothing_loaded() {
    let bench = Bench::new(ByteCount::MAX, ManagerOptions { keep_idle: false, ..ManagerOptions::default() });
    let net = bench.net("net", &[64; 6], 0);
    net.storages[4].fail_next(1);
    let error = bench.load(&[&net]).unwrap_err();
    assert!(matches!(error, LoadError::Device { .. }), "{error}");
    assert_eq!(net.residents(), None);
    bench.manager.unload(&net.component).unwrap();
    assert_eq!(bench.used(), ByteCount::ZERO);
    let _loaded = bench.load(&[&net]).unwrap();
    bench.pass(&net);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_visits_at_any_budget_read_the_right_numbers_below_the_line(
        sizes in prop::collection::vec(1usize..400, 1..12),
        visits in prop::collection::vec(0usize..12, 1..60),
        streams in 0usize..4,
        generosity in 0u64..101,
        failures in prop::collection::vec((0usize..12, 0usize..3), 0..3),
    ) {
        let bench = Bench::streaming(streams);
        let net = bench.net("net", &sizes, 0);
        let available = bench.least(&net) + ByteCount(net.bytes().0 * generosity / 100);
        bench.device.ledger().set_budget(available);
        let loaded = bench.load(&[&net]).unwrap();
        for (unit, reads) in failures {
            net.storages[unit % sizes.len()].fail_next(reads);
        }
        for unit in visits.into_iter().map(|unit| unit % sizes.len()) {
            if let Ok(numbers) = bench.visit(&net, unit) {
                prop_assert_eq!(numbers, net.numbers(unit));
            }
            prop_assert!(bench.used() <= available);
        }
        drop(loaded);
        bench.manager.unload(&net.component).unwrap();
        prop_assert_eq!(bench.used(), ByteCount::ZERO);
        prop_assert!(bench.device.ledger().peak() <= available);
    }
}
