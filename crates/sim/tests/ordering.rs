//! Every way to touch memory out of order is found, and programs that wait where they must have none.

// A list of one range of addresses is what is meant.
#![allow(clippy::single_range_in_vec_init)]

mod common;

use common::{allocate, filled, hollow_unit, slow_device, violations};
use expect_test::expect;
use plimsoll_device::{Buffer, ByteCount, DType, Device, Event, Operand, Output, Queue};
use plimsoll_sim::{Seed, SimDevice, ViolationKind};
use std::sync::Arc;

fn kinds(device: &SimDevice) -> Vec<ViolationKind> {
    device.violations().iter().map(|violation| violation.kind).collect()
}

struct Stage {
    device: SimDevice,
    compute: Arc<dyn Queue>,
    copies: Arc<dyn Queue>,
}

fn stage() -> Stage {
    let device = SimDevice::new(&slow_device());
    Stage { compute: device.compute_queue(), copies: device.copy_queue("copies").unwrap(), device }
}

#[test]
fn a_copy_must_wait_for_the_last_reader() {
    let Stage { device, compute, copies } = stage();
    let slot = allocate(&device, &*compute, 128);
    copies.wait(&compute.record()).unwrap();
    let slot = copies.upload(&hollow_unit("block.0", 128), slot).acquire(&*compute).unwrap();
    device.compute(&*compute, "attention", 1e-3, &[&slot], &mut []).unwrap();
    let _filling = copies.upload(&hollow_unit("block.1", 128), slot);
    expect![[r#"
        [
            "sim:0: `block.1` on `copies` (128µs to 256µs) writes bytes 0x0..0x80 without waiting for `attention` on `compute` (128µs to 1.128ms), which reads them",
        ]
    "#]]
    .assert_debug_eq(&violations(&device));
}

#[test]
fn a_reader_must_wait_for_the_copy() {
    let Stage { device, compute, copies } = stage();
    let slot = allocate(&device, &*compute, 128);
    copies.wait(&compute.record()).unwrap();
    // Acquired for the copy queue itself, which makes nobody else wait.
    let slot = copies.upload(&hollow_unit("block.0", 128), slot).acquire(&*copies).unwrap();
    device.compute(&*compute, "attention", 1e-3, &[&slot], &mut []).unwrap();
    expect![[r#"
        [
            "sim:0: `attention` on `compute` (0ns to 1ms) reads bytes 0x0..0x80 without waiting for `block.0` on `copies` (0ns to 128µs), which writes them",
        ]
    "#]]
    .assert_debug_eq(&violations(&device));
}

/// Virtual time alone does not order: here the copy is long done when the kernel runs.
#[test]
fn being_late_is_not_waiting() {
    let Stage { device, compute, copies } = stage();
    let slot = allocate(&device, &*compute, 128);
    copies.wait(&compute.record()).unwrap();
    let slot = copies.upload(&hollow_unit("block.0", 128), slot).acquire(&*copies).unwrap();
    device.compute(&*compute, "long", 1.0, &[], &mut []).unwrap();
    device.compute(&*compute, "attention", 1e-3, &[&slot], &mut []).unwrap();
    assert_eq!(kinds(&device), [ViolationKind::ReadUnordered]);
}

#[test]
fn the_host_orders_what_it_has_seen_complete() {
    for synchronize in [true, false] {
        let Stage { device, compute, copies } = stage();
        let slot = allocate(&device, &*compute, 128);
        copies.wait(&compute.record()).unwrap();
        let slot = copies.upload(&hollow_unit("block.0", 128), slot).acquire(&*copies).unwrap();
        let copied = copies.record();
        if synchronize {
            copied.synchronize().unwrap();
        } else {
            // Another queue's work takes the host past the copy; only the query tells the host so.
            device.compute(&*compute, "long", 1.0, &[], &mut []).unwrap();
            compute.synchronize().unwrap();
            assert!(copied.is_complete());
        }
        device.compute(&*compute, "attention", 1e-3, &[&slot], &mut []).unwrap();
        compute.synchronize().unwrap();
        let _filling = device.copy_queue("another").unwrap().upload(&hollow_unit("block.1", 128), slot);
        assert_eq!(violations(&device), [""; 0]);
    }
}

#[test]
fn a_copy_must_wait_for_the_last_of_several_readers() {
    for waits_for in [0, 1] {
        let Stage { device, compute, copies } = stage();
        let slot = filled(&device, &*compute, 128);
        let read = |name| {
            device.compute(&*compute, name, 1e-3, &[&slot], &mut []).unwrap();
            compute.record()
        };
        let consumed = ["first", "last"].map(read);
        copies.wait(&consumed[waits_for]).unwrap();
        let _filling = copies.upload(&hollow_unit("block.1", 128), slot);
        let expected = if waits_for == 1 { &[][..] } else { &[ViolationKind::WriteUnorderedAfterRead] };
        assert_eq!(kinds(&device), expected);
    }
}

#[test]
fn writes_on_two_queues_must_be_ordered() {
    let Stage { device, compute, copies } = stage();
    let mut slot = filled(&device, &*compute, 128);
    copies.write(&[0; 64], &mut slot).unwrap();
    assert_eq!(kinds(&device), [ViolationKind::WriteUnorderedAfterWrite]);
    copies.wait(&compute.record()).unwrap();
    copies.write(&[0; 128], &mut slot).unwrap();
    assert_eq!(kinds(&device).len(), 1);
}

#[test]
fn memory_is_not_there_before_its_allocation() {
    let Stage { device, compute, copies } = stage();
    let slot = allocate(&device, &*compute, 128);
    let _filling = copies.upload(&hollow_unit("block.0", 128), slot);
    assert_eq!(kinds(&device), [ViolationKind::WriteBeforeAllocation]);
}

#[test]
fn what_was_freed_is_poison_and_reused_at_once() {
    let Stage { device, compute, .. } = stage();
    let first = filled(&device, &*compute, 128);
    let addresses = device.addresses(&first);
    device.compute(&*compute, "use", 1e-3, &[&first], &mut []).unwrap();
    drop(first);
    let mut second = allocate(&device, &*compute, 128);
    assert_eq!(device.addresses(&second), addresses);
    device.compute(&*compute, "too early", 1e-3, &[&second], &mut []).unwrap();
    device.compute(&*compute, "fill", 1e-3, &[], &mut [&mut second]).unwrap();
    device.compute(&*compute, "use", 1e-3, &[&second], &mut []).unwrap();
    expect![[r#"
        [
            "sim:0: `too early` on `compute` (1ms to 2ms) reads bytes 0x0..0x80, which their owner has not written",
        ]
    "#]]
    .assert_debug_eq(&violations(&device));
}

/// A buffer is freed in the order of the queue it was allocated for. Whoever reads it on another queue must make that
/// queue wait before dropping it.
#[test]
fn memory_freed_before_its_reader_is_done_is_found_by_the_next_owner() {
    for waits in [true, false] {
        let Stage { device, compute, copies } = stage();
        let first = filled(&device, &*compute, 128);
        copies.wait(&compute.record()).unwrap();
        let mut out = [0; 128];
        device.compute(&*copies, "preview", 1e-3, &[&first], &mut []).unwrap();
        if waits {
            compute.wait(&copies.record()).unwrap();
        }
        drop(first);
        let mut second = allocate(&device, &*compute, 64);
        compute.write(&[0; 64], &mut second).unwrap();
        compute.read(&second, 0, &mut out[..64]).unwrap();
        if waits {
            assert_eq!(violations(&device), [""; 0]);
        } else {
            assert_eq!(kinds(&device), [ViolationKind::WriteUnorderedAfterRead]);
            assert!(violations(&device)[0].contains("`preview` on `copies` (0ns to 1ms) of a former owner"));
        }
    }
}

#[test]
fn memory_freed_before_its_writer_is_done_is_found_by_the_next_owner() {
    let Stage { device, compute, copies } = stage();
    let first = allocate(&device, &*compute, 128);
    copies.wait(&compute.record()).unwrap();
    drop(copies.upload(&hollow_unit("block.0", 128), first).acquire(&*copies).unwrap());
    let _second = filled(&device, &*compute, 128);
    assert_eq!(kinds(&device), [ViolationKind::WriteUnorderedAfterWrite]);
    assert!(violations(&device)[0].contains("`block.0` on `copies` (0ns to 128µs) of a former owner"));
}

/// The device's 1 MiB in four buffers; two that do not touch are freed, and one buffer gets the memory of both.
#[test]
fn scattered_memory_serves_as_one_buffer() {
    let Stage { device, compute, copies } = stage();
    let quarter = 256 << 10;
    let mut quarters: Vec<_> = (0..4).map(|_| Some(filled(&device, &*compute, quarter))).collect();
    quarters[3] = None;
    quarters[1] = None;
    let buffer = allocate(&device, &*compute, 2 * quarter);
    assert_eq!(device.addresses(&buffer), [quarter..2 * quarter, 3 * quarter..4 * quarter]);
    copies.wait(&compute.record()).unwrap();
    let buffer = copies.upload(&hollow_unit("block", 2 * quarter as usize), buffer).acquire(&*copies).unwrap();
    let mut out = [0; 64];
    copies.read(&buffer, quarter as usize - 32, &mut out).unwrap();
    assert_eq!(violations(&device), [""; 0]);
    let late = copies.upload(&hollow_unit("block", 2 * quarter as usize), buffer).acquire(&*copies).unwrap();
    let mut y = quarters[0].take().unwrap();
    let x = Operand { buffer: &late, offset: quarter as usize, dtype: DType::F32 };
    device.kernels().convert(&*compute, 16, x, Output { buffer: &mut y, dtype: DType::F32 }).unwrap();
    assert_eq!(kinds(&device), [ViolationKind::ReadUnordered]);
    assert_eq!(device.violations()[0].bytes, 3 * quarter..3 * quarter + 64);
}

/// A queue is not ordered behind one that was closed before it was opened.
#[test]
fn a_new_queue_does_not_wait_for_a_closed_one() {
    for synchronize in [true, false] {
        let Stage { device, compute, copies } = stage();
        let mut buffer = filled(&device, &*compute, 128);
        copies.wait(&compute.record()).unwrap();
        device.compute(&*copies, "preview", 1e-3, &[&buffer], &mut []).unwrap();
        if synchronize {
            copies.synchronize().unwrap();
        }
        drop(copies);
        let copies = device.copy_queue("copies").unwrap();
        copies.wait(&compute.record()).unwrap();
        copies.write(&[0; 4], &mut buffer).unwrap();
        let expected = if synchronize { &[][..] } else { &[ViolationKind::WriteUnorderedAfterRead] };
        assert_eq!(kinds(&device), expected);
    }
}

/// The copy owns what it fills: nobody is given its memory while it runs.
#[test]
fn a_filling_that_nobody_acquires_is_freed_behind_its_copy() {
    let Stage { device, compute, copies } = stage();
    let slot = allocate(&device, &*compute, 128);
    copies.wait(&compute.record()).unwrap();
    let filling = copies.upload(&hollow_unit("block.0", 128), slot);
    let ready = filling.ready().passed_at().unwrap();
    drop(filling);
    let mut second = allocate(&device, &*compute, 128);
    device.compute(&*compute, "fill", 0.0, &[], &mut [&mut second]).unwrap();
    assert_eq!(compute.record().passed_at(), Some(ready));
    assert_eq!(violations(&device), [""; 0]);
}

#[test]
fn memory_freed_for_one_queue_is_ordered_when_another_allocates_it() {
    let Stage { device, compute, copies } = stage();
    drop(filled(&device, &*compute, 128));
    let second = filled(&device, &*copies, 128);
    assert_eq!(device.addresses(&second), [0..128]);
    assert_eq!(violations(&device), [""; 0]);
}

#[test]
fn kernels_that_reach_beyond_their_buffer_are_found() {
    let Stage { device, compute, .. } = stage();
    let x = filled(&device, &*compute, 128);
    let mut y = allocate(&device, &*compute, 128);
    let x = Operand { buffer: &x, offset: 64, dtype: DType::F32 };
    device.kernels().add(&*compute, 16, x, Output { buffer: &mut y, dtype: DType::F32 }).unwrap();
    assert_eq!(kinds(&device), [ViolationKind::ReadOfPoison]);
    device.kernels().convert(&*compute, 17, x, Output { buffer: &mut y, dtype: DType::F32 }).unwrap();
    assert_eq!(kinds(&device)[1..], [ViolationKind::OutOfBounds]);
    assert_eq!(device.violations()[1].bytes, 128..132);
}

#[test]
fn a_part_of_a_region_is_refused_while_a_part_of_it_is_handed_out() {
    let Stage { device, compute, .. } = stage();
    let region = device.region(&*compute, device.ledger().account("ring"), ByteCount(512)).unwrap();
    let part = region.clone().take(128..256).unwrap();
    for range in [128..256, 64..192, 192..320, 0..512, 128..192] {
        assert!(region.clone().take(range).is_none());
    }
    let (before, after) = (region.clone().take(0..128).unwrap(), region.clone().take(256..512).unwrap());
    assert_eq!((device.addresses(&before), device.addresses(&after)), (vec![0..128], vec![256..512]));
    drop(part);
    assert!(region.clone().take(192..256).is_some());
    drop((before, region));
    assert_eq!((device.live_bytes(), device.ledger().used()), (ByteCount(512), ByteCount(512)));
    drop(after);
    assert_eq!((device.live_bytes(), device.ledger().used()), (ByteCount::ZERO, ByteCount::ZERO));
}

/// The next owner of a part orders itself behind the last one; the region does not do it for him.
#[test]
fn parts_of_a_region_are_tracked_by_address() {
    for waits in [true, false] {
        let Stage { device, compute, copies } = stage();
        let region = device.region(&*compute, device.ledger().account("ring"), ByteCount(512)).unwrap();
        copies.wait(&compute.record()).unwrap();
        let part = region.clone().take(0..256).unwrap();
        let part = copies.upload(&hollow_unit("block.0", 256), part).acquire(&*compute).unwrap();
        device.compute(&*compute, "block.0", 1e-3, &[&part], &mut []).unwrap();
        drop(part);
        if waits {
            copies.wait(&compute.record()).unwrap();
        }
        let part = region.clone().take(128..384).unwrap();
        let part = copies.upload(&hollow_unit("block.1", 256), part).acquire(&*compute).unwrap();
        device.compute(&*compute, "block.1", 1e-3, &[&part], &mut []).unwrap();
        let found = device.violations();
        if waits {
            assert_eq!(found, []);
        } else {
            assert_eq!(found.len(), 1);
            assert_eq!((found[0].kind, found[0].bytes.clone()), (ViolationKind::WriteUnorderedAfterRead, 128..256));
        }
        let part = region.take(0..128).unwrap();
        device.compute(&*compute, "poison", 1e-3, &[&part], &mut []).unwrap();
        assert_eq!(device.violations().last().unwrap().kind, ViolationKind::ReadOfPoison);
    }
}

/// What a slot of a ring goes through, on random queues with random sizes. `waits` is the protocol's one wait.
fn ring(seed: u64, waits: bool) -> usize {
    let mut seed = Seed::new(seed);
    let device = SimDevice::new(&slow_device());
    let compute = device.compute_queue();
    let queues: Vec<_> =
        (0..1 + seed.below(4)).map(|idx| device.copy_queue(&format!("copies {idx}")).unwrap()).collect();
    let mut free: Vec<(Buffer, Arc<dyn Event>)> =
        (0..2 + seed.below(3)).map(|_| (allocate(&device, &*compute, 1024), compute.record())).collect();
    let allocated = compute.record();
    queues.iter().for_each(|queue| queue.wait(&allocated).unwrap());
    for op in 0..30 {
        let copies = &queues[seed.below(queues.len() as u64) as usize];
        let (slot, consumed) = free.remove(0);
        if waits {
            copies.wait(&consumed).unwrap();
        }
        let bytes = 4 * (1 + seed.below(256)) as usize;
        let slot = copies.upload(&hollow_unit(&format!("unit {op}"), bytes), slot).acquire(&*compute).unwrap();
        let x = Operand { buffer: &slot, offset: 0, dtype: DType::F32 };
        let mut y = allocate(&device, &*compute, 1024);
        let output = Output { buffer: &mut y, dtype: DType::F32 };
        device.kernels().convert(&*compute, bytes / 4, x, output).unwrap();
        free.push((slot, compute.record()));
    }
    device.violations().len()
}

#[test]
fn a_ring_that_waits_for_consumed_is_clean_and_one_that_does_not_is_found_at_every_seed() {
    for seed in 0..300 {
        assert_eq!(ring(seed, true), 0, "seed {seed}");
        assert!(ring(seed, false) > 0, "seed {seed}");
    }
}
