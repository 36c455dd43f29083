//! Things go wrong on order and by chance; one seed decides all of it.

mod common;

use common::{allocate, hollow_unit, slow_device, us};
use plimsoll_device::{AllocError, ByteCount, Device, DeviceError};
use plimsoll_sim::{Fault, Faults, Seed, SimDevice, SimOptions, Trace};

#[test]
fn an_allocation_fails_on_order_although_the_budget_allows_it() {
    let device = SimDevice::new(&slow_device());
    let compute = device.compute_queue();
    device.fail_next(Fault::Allocation);
    let account = device.ledger().account("ring");
    let error = device.allocate(&*compute, account, ByteCount(100)).unwrap_err();
    assert_eq!(error, AllocError::Exhausted { account: "ring".to_owned(), needed: ByteCount(128) });
    assert_eq!((device.live_bytes(), device.ledger().peak()), (ByteCount::ZERO, ByteCount::ZERO));
    device.allocate(&*compute, account, ByteCount(100)).unwrap();
    device.fail_next(Fault::Allocation);
    assert!(device.region(&*compute, account, ByteCount(128)).is_err());
    assert!(device.region(&*compute, account, ByteCount(128)).is_ok());
}

#[test]
fn memory_ends_at_the_budget_at_the_capacity_and_at_the_neighbour() {
    let budget = Some(ByteCount::mib(2));
    let device = SimDevice::new(&SimOptions { memory: ByteCount::mib(3), budget, ..slow_device() });
    let compute = device.compute_queue();
    let account = device.ledger().account("ring");
    assert!(matches!(
        device.allocate(&*compute, account, ByteCount::mib(2) + ByteCount(1)),
        Err(AllocError::OverBudget { .. })
    ));
    device.ledger().set_budget(ByteCount::mib(4));
    assert!(matches!(
        device.allocate(&*compute, account, ByteCount::mib(3) + ByteCount(1)),
        Err(AllocError::Exhausted { .. })
    ));
    let held = device.allocate(&*compute, account, ByteCount::mib(1)).unwrap();
    device.neighbour_takes(ByteCount::mib(2));
    assert_eq!(device.ledger().used(), ByteCount::mib(3));
    assert!(matches!(device.allocate(&*compute, account, ByteCount(1)), Err(AllocError::Exhausted { .. })));
    drop(held);
    device.allocate(&*compute, account, ByteCount::mib(1)).unwrap();
    device.neighbour_takes(ByteCount::ZERO);
    device.allocate(&*compute, account, ByteCount::mib(3)).unwrap();
}

#[test]
fn a_slow_copy_takes_ten_to_a_hundred_times_as_long() {
    for seed in 0..100 {
        let device = SimDevice::new(&SimOptions { seed, ..slow_device() });
        let compute = device.compute_queue();
        device.fail_next(Fault::SlowCopy);
        let slot = allocate(&device, &*compute, 1024);
        let slot = compute.upload(&hollow_unit("block", 1024), slot).acquire(&*compute).unwrap();
        let slow = compute.record().passed_at().unwrap();
        assert!((us(10_240)..us(102_400)).contains(&slow), "{slow:?}");
        let _slot = compute.upload(&hollow_unit("block", 1024), slot).acquire(&*compute).unwrap();
        assert_eq!(compute.record().passed_at(), Some(slow + us(1024)));
    }
}

#[test]
fn a_short_read_is_told_to_whoever_acquires_and_to_nobody_else() {
    let device = SimDevice::new(&slow_device());
    let (compute, copies) = (device.compute_queue(), device.copy_queue("copies").unwrap());
    let slot = allocate(&device, &*compute, 128);
    copies.wait(&compute.record()).unwrap();
    device.fail_next(Fault::ShortRead);
    let filling = copies.upload(&hollow_unit("block", 128), slot);
    compute.wait(&copies.record()).unwrap();
    copies.synchronize().unwrap();
    assert!(matches!(filling.ready().synchronize(), Err(DeviceError::Upload { .. })));
    let error = filling.acquire(&*compute).unwrap_err();
    assert_eq!(
        error.to_string(),
        "uploading `block` failed: reading 128 bytes at offset 0 of `block` failed: the storage gave fewer bytes (a simulated fault); run it again"
    );
    assert_eq!(device.live_bytes(), ByteCount::ZERO);
}

#[test]
fn a_lost_device_stays_lost_and_gives_all_memory_back() {
    let device = SimDevice::new(&slow_device());
    let (compute, copies) = (device.compute_queue(), device.copy_queue("copies").unwrap());
    let [mut held, slot, late] = [(); 3].map(|()| allocate(&device, &*compute, 128));
    let region = device.region(&*compute, device.ledger().account("ring"), ByteCount(128)).unwrap();
    let part = region.take(0..64).unwrap();
    let event = compute.record();
    copies.wait(&event).unwrap();
    let filling = copies.upload(&hollow_unit("block", 128), slot);
    device.fail_next(Fault::DeviceLost);
    let late = copies.upload(&hollow_unit("block", 128), late);

    let lost = |result: Result<(), DeviceError>| matches!(result, Err(DeviceError::Lost { .. }));
    assert!(late.ready().is_complete() && event.is_complete() && event.passed_at().is_none());
    for queue in [&compute, &copies] {
        assert!(lost(queue.synchronize()) && lost(queue.wait(&event)) && lost(queue.record().synchronize()));
        assert!(lost(queue.write(&[0; 4], &mut held)) && lost(queue.read(&held, 0, &mut [0; 4])));
        assert!(lost(device.compute(&**queue, "kernel", 0.0, &[], &mut []).map(drop)));
    }
    assert!(lost(device.copy_queue("another").map(drop)));
    assert!(matches!(
        device.allocate(&*compute, device.ledger().account("test"), ByteCount(1)),
        Err(AllocError::Exhausted { .. })
    ));
    assert!(lost(late.acquire(&*compute).map(drop)));
    assert!(lost(filling.acquire(&*compute).map(drop)));
    drop((held, part));
    assert_eq!((device.live_bytes(), device.ledger().used()), (ByteCount::ZERO, ByteCount::ZERO));
}

/// What a program of random copies, kernels and allocations leaves: what ran, what went wrong, how much is left.
fn history(program: u64, seed: u64) -> (Trace, Vec<String>, u64) {
    let faults = Faults { allocation: 0.1, slow_copy: 0.1, short_read: 0.1, device_lost: 0.002 };
    let device = SimDevice::new(&SimOptions { seed, faults, jitter: 0.3, ..slow_device() });
    let (compute, copies) = (device.compute_queue(), device.copy_queue("copies").unwrap());
    let account = device.ledger().account("test");
    let mut program = Seed::new(program);
    let mut errors = Vec::new();
    for op in 0..100 {
        let result = device.allocate(&*compute, account, ByteCount(4096)).map_err(DeviceError::from).and_then(|slot| {
            copies.wait(&compute.record())?;
            let bytes = 4 * (1 + program.below(1000)) as usize;
            let slot = copies.upload(&hollow_unit("block", bytes), slot).acquire(&*compute)?;
            device.compute(&*compute, "block", 1e-3, &[], &mut [])?;
            drop(slot);
            Ok(())
        });
        errors.extend(result.err().map(|error| format!("{op}: {error}")));
    }
    (device.take_trace(), errors, device.copied_bytes().0)
}

#[test]
fn the_same_seed_gives_the_same_history_and_another_seed_another() {
    let mut lost = 0;
    for seed in 0..50 {
        let first = history(1, seed);
        assert_eq!(first, history(1, seed), "seed {seed}");
        assert_ne!(first.0, history(1, seed + 1000).0, "seed {seed}");
        assert!(!first.1.is_empty(), "seed {seed}");
        lost += usize::from(first.1.iter().any(|error| error.contains("stopped working")));
    }
    assert!((1..50).contains(&lost), "{lost} of 50 devices were lost");
}

#[test]
fn durations_vary_within_the_jitter() {
    let device = SimDevice::new(&SimOptions { jitter: 0.25, ..slow_device() });
    let compute = device.compute_queue();
    for _ in 0..200 {
        device.compute(&*compute, "kernel", 1e-3, &[], &mut []).unwrap();
    }
    let spans = device.trace().spans;
    let durations: Vec<_> = spans.iter().map(|span| span.end - span.start).collect();
    assert!(durations.iter().all(|duration| (us(750)..=us(1250)).contains(duration)));
    assert!(
        durations.iter().any(|&duration| duration < us(800)) && durations.iter().any(|&duration| duration > us(1200))
    );
}

#[test]
fn devices_beside_each_other_have_chances_of_their_own() {
    let faults = Faults { allocation: 0.5, ..Faults::default() };
    let first = SimDevice::new(&SimOptions { faults, ..slow_device() });
    let second = first.beside(&SimOptions { index: 1, faults, ..slow_device() });
    let outcomes = [&first, &second].map(|device| {
        let (compute, account) = (device.compute_queue(), device.ledger().account("test"));
        (0..64).map(|_| device.allocate(&*compute, account, ByteCount(64)).is_ok()).collect::<Vec<_>>()
    });
    assert_ne!(outcomes[0], outcomes[1]);
    second.fail_next(Fault::DeviceLost);
    assert!(second.compute(&*second.compute_queue(), "kernel", 0.0, &[], &mut []).is_err());
    assert!(first.compute(&*first.compute_queue(), "kernel", 0.0, &[], &mut []).is_ok());
    let event = second.compute_queue().record();
    assert!(first.compute_queue().wait(&event).is_err());
}
