//! A long life in a process of its own: its memory stays as it is.
#![cfg(target_os = "linux")]

mod common;

use common::{Bench, Net};
use plimsoll_device::ByteCount;
use plimsoll_residency::ManagerOptions;

/// Numbers of the units: 3.2 MiB, in sizes that no allocator has a class for.
const SIZES: [usize; 12] = [100_003, 3, 50_021, 100_003, 77_777, 100_003, 17, 50_021, 90_001, 100_003, 77_777, 60_013];
/// By then the allocator has seen every size.
const WARM_UP: usize = 100;
/// Cycles between two looks at the memory.
const BLOCK: usize = 250;
/// Threads begin and end, and the allocator keeps some memory for each that ever lived at once: growth in steps, seldom.
/// What leaks grows in every block, and at least this much if it is 256 bytes a cycle.
const GROWTH_OF_A_LEAK: ByteCount = ByteCount(256 * BLOCK as u64);
/// The most of those steps together.
const GROWTH_MAX: ByteCount = ByteCount::mib(8);

#[test]
fn a_thousand_cycles_leave_the_memory_of_the_process_flat() {
    let options = ManagerOptions { offload_streams: 2, ..ManagerOptions::default() };
    let bench = Bench::new(ByteCount::mib(2), options);
    let kept = bench.net("kept", &SIZES, 0);
    cycles(&bench, &kept, WARM_UP);
    let mut looks = vec![resident_set()];
    for _ in 0..4 {
        cycles(&bench, &kept, BLOCK);
        looks.push(resident_set());
    }
    let growths = looks.windows(2).map(|pair| pair[1].saturating_sub(pair[0]));
    let least = growths.min().expect("there are blocks");
    assert!(least < GROWTH_OF_A_LEAK, "the process grows all the time: {looks:?}");
    assert!(looks[4].saturating_sub(looks[0]) < GROWTH_MAX, "the process has grown: {looks:?}");
}

/// Loads, switches and unloads: one component stays, another is made anew each time.
fn cycles(bench: &Bench, kept: &Net, count: usize) {
    for cycle in 0..count {
        round(bench, kept);
        let replaced = bench.net("replaced", &SIZES, 50);
        round(bench, &replaced);
        if cycle % 2 == 0 {
            bench.manager.unload(&kept.component).unwrap();
        }
    }
}

/// A load, a few leases of streamed and of resident units, and the end of it.
fn round(bench: &Bench, net: &Net) {
    let loaded = bench.load(&[net]).unwrap();
    for unit in [0, 1, 5, 6, 11] {
        assert_eq!(bench.visit(net, unit).unwrap(), net.numbers(unit), "unit {unit}");
    }
    drop(loaded);
}

/// Bytes of this process that are in memory now.
fn resident_set() -> ByteCount {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    ByteCount::kib(line.trim().strip_suffix(" kB").unwrap().parse().unwrap())
}
