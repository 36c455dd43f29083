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
/// What it may still find to keep: a third of what one cycle allocates.
const GROWTH_MAX: ByteCount = ByteCount::mib(1);

#[test]
fn a_thousand_cycles_leave_the_memory_of_the_process_flat() {
    let options = ManagerOptions { offload_streams: 2, ..ManagerOptions::default() };
    let bench = Bench::new(ByteCount::mib(2), options);
    let kept = bench.net("kept", &SIZES, 0);
    let mut after_warm_up = ByteCount::ZERO;
    for cycle in 0..WARM_UP + 1000 {
        if cycle == WARM_UP {
            after_warm_up = resident_set();
        }
        round(&bench, &kept);
        let replaced = bench.net("replaced", &SIZES, 50);
        round(&bench, &replaced);
        if cycle % 2 == 0 {
            bench.manager.unload(&kept.component).unwrap();
        }
        drop(replaced);
    }
    let grown = resident_set().saturating_sub(after_warm_up);
    assert!(grown < GROWTH_MAX, "a thousand cycles grew the process by {grown}, from {after_warm_up}");
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
