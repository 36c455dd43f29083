//! Times of programs small enough to schedule by hand.

mod common;

use std::time::Duration;

use common::{allocate, filled, hollow_unit, slow_device, us};
use plimsoll_device::{ByteCount, DType, Device, MatmulShape, Operand, Output, Queue};
use plimsoll_sim::{SimDevice, SimOptions, Stall, WorkKind};

/// When the queue is done with everything enqueued so far.
fn now(queue: &dyn Queue) -> Duration {
    queue.record().passed_at().unwrap()
}

#[test]
fn a_copy_on_the_compute_queue_is_synchronous() {
    let device = SimDevice::new(&SimOptions { link_latency: us(10), ..slow_device() });
    let compute = device.compute_queue();
    for step in 1..=2 {
        let slot = allocate(&device, &*compute, 1024);
        let slot = compute.upload(&hollow_unit("block", 1024), slot).acquire(&*compute).unwrap();
        device.compute(&*compute, "block", 2e-3, &[&slot], &mut []).unwrap();
        assert_eq!(now(&*compute), us(step * (10 + 1024 + 2000)));
    }
    let trace = device.trace();
    assert_eq!(trace.busy(WorkKind::Copy), us(2 * (10 + 1024)));
    assert_eq!(trace.busy(WorkKind::Compute), us(2 * 2000));
    assert_eq!(trace.copied_bytes(), ByteCount(2048));
    assert_eq!(trace.stalls(), [Stall { before: "block".into(), start: us(3034), end: us(3034 + 1034) }]);
    assert_eq!(device.host_time(), Duration::ZERO);
    assert_eq!(device.violations(), []);
}

/// Copies of 1000 us beside compute of 2000 us, two slots: the third copy waits for the first slot's last use.
#[test]
fn copies_run_beside_compute_and_wait_for_consumed_slots() {
    let device = SimDevice::new(&slow_device());
    let (compute, copies) = (device.compute_queue(), device.copy_queue("copies").unwrap());
    let slots = [(); 2].map(|()| allocate(&device, &*compute, 1024));
    copies.wait(&compute.record()).unwrap();
    let mut fillings = slots.map(|slot| copies.upload(&hollow_unit("block", 1000), slot)).into_iter();
    let (first, second) = (fillings.next().unwrap(), fillings.next().unwrap());
    // What is copied is counted as it lies on the device.
    assert_eq!((first.ready().passed_at(), second.ready().passed_at()), (Some(us(1024)), Some(us(2048))));

    let slot = first.acquire(&*compute).unwrap();
    device.compute(&*compute, "first", 2e-3, &[&slot], &mut []).unwrap();
    let consumed = compute.record();
    assert_eq!(consumed.passed_at(), Some(us(1024 + 2000)));
    let second = second.acquire(&*compute).unwrap();
    device.compute(&*compute, "second", 2e-3, &[&second], &mut []).unwrap();
    assert_eq!(now(&*compute), us(1024 + 4000));

    copies.wait(&consumed).unwrap();
    let third = copies.upload(&hollow_unit("block", 1000), slot);
    assert_eq!(third.ready().passed_at(), Some(us(3024 + 1024)));
    let third = third.acquire(&*compute).unwrap();
    device.compute(&*compute, "third", 1e-3, &[&third], &mut []).unwrap();
    assert_eq!(now(&*compute), us(5024 + 1000));
    assert_eq!(device.trace().stalls(), []);
    assert_eq!(device.violations(), []);
}

/// One copy engine: a copy that waits holds up those enqueued after it, on other queues too.
#[test]
fn the_copy_engine_works_in_the_order_of_enqueueing() {
    let device = SimDevice::new(&slow_device());
    let compute = device.compute_queue();
    let queues = ["copies 1", "copies 2"].map(|name| device.copy_queue(name).unwrap());
    let slots = [(); 2].map(|()| allocate(&device, &*compute, 128));
    let allocated = compute.record();
    device.compute(&*compute, "long", 5e-3, &[], &mut []).unwrap();
    queues[0].wait(&compute.record()).unwrap();
    queues[1].wait(&allocated).unwrap();
    let [late, behind] = slots;
    let late = queues[0].upload(&hollow_unit("late", 128), late);
    let behind = queues[1].upload(&hollow_unit("behind", 128), behind);
    assert_eq!(late.ready().passed_at(), Some(us(5128)));
    assert_eq!(behind.ready().passed_at(), Some(us(5256)));
}

#[test]
fn only_synchronizing_and_reading_back_move_the_host() {
    let device = SimDevice::new(&slow_device());
    let (compute, copies) = (device.compute_queue(), device.copy_queue("copies").unwrap());
    let buffer = filled(&device, &*compute, 64);
    device.compute(&*compute, "first", 1e-3, &[], &mut []).unwrap();
    let event = compute.record();
    assert!(!event.is_complete() && event.passed_at() == Some(us(1000)));
    assert_eq!(device.host_time(), us(0));
    event.synchronize().unwrap();
    assert!(event.is_complete() && device.host_time() == us(1000));
    // An idle queue starts when the host enqueues.
    assert_eq!(now(&*copies), us(1000));
    let mut out = [1; 16];
    compute.read(&buffer, 16, &mut out).unwrap();
    assert_eq!((out, device.host_time()), ([0; 16], us(1016)));
    copies.synchronize().unwrap();
    assert_eq!(device.host_time(), us(1016));
    assert_eq!(device.violations(), []);
}

#[test]
fn kernels_take_their_operations_or_their_bytes() {
    let shape = MatmulShape { rows: 4, depth: 8, out: 16 };
    for (memory_bytes_per_second, expected) in [(None, us(1024)), (Some(1e5), us((128 + 512 + 64 + 256) * 10))] {
        let device = SimDevice::new(&SimOptions { memory_bytes_per_second, ..slow_device() });
        let compute = device.compute_queue();
        let [x, w, bias] = [128, 512, 64].map(|bytes| filled(&device, &*compute, bytes));
        let mut y = allocate(&device, &*compute, 256);
        let operand = |buffer| Operand { buffer, offset: 0, dtype: DType::F32 };
        let output = Output { buffer: &mut y, dtype: DType::F32 };
        let kernels = device.kernels();
        kernels.matmul(&*compute, &shape, operand(&x), operand(&w), Some(operand(&bias)), output).unwrap();
        assert_eq!(now(&*compute), expected);
        assert_eq!(device.violations(), []);
    }
}

#[test]
fn devices_side_by_side_share_a_clock_but_no_engine() {
    let first = SimDevice::new(&slow_device());
    let second = first.beside(&SimOptions { index: 1, ..slow_device() });
    let (a, b) = (first.compute_queue(), second.compute_queue());
    assert_eq!((first.id().to_string(), b.device().to_string()), ("sim:0".to_owned(), "sim:1".to_owned()));
    first.compute(&*a, "a", 1e-3, &[], &mut []).unwrap();
    second.compute(&*b, "b", 1e-3, &[], &mut []).unwrap();
    assert_eq!((now(&*a), now(&*b)), (us(1000), us(1000)));
    b.wait(&a.record()).unwrap();
    second.compute(&*b, "b", 1e-3, &[], &mut []).unwrap();
    b.synchronize().unwrap();
    assert_eq!((first.host_time(), now(&*b)), (us(2000), us(2000)));
}

#[test]
fn a_rehearsal_books_the_same_and_has_its_own_clock() {
    let device = SimDevice::new(&SimOptions { allocation_unit: ByteCount(512), ..slow_device() });
    let rehearsal = device.rehearsal();
    let compute = rehearsal.compute_queue();
    let account = rehearsal.ledger().account("test");
    let slot = rehearsal.allocate(&*compute, account, ByteCount(1 << 40)).unwrap();
    let slot = compute.upload(&hollow_unit("block", 1000), slot).acquire(&*compute).unwrap();
    assert_eq!(compute.record().passed_at(), Some(Duration::ZERO));
    let mut y = rehearsal.allocate(&*compute, account, ByteCount(1)).unwrap();
    let shape = MatmulShape { rows: 100, depth: 100, out: 100 };
    let x = Operand { buffer: &slot, offset: 0, dtype: DType::F32 };
    let y = Output { buffer: &mut y, dtype: DType::F32 };
    rehearsal.kernels().matmul(&*compute, &shape, x, x, None, y).unwrap();
    // Two million operations, a nanosecond each thousand.
    assert_eq!(compute.record().passed_at(), Some(us(2)));
    assert_eq!(rehearsal.ledger().peak(), ByteCount((1 << 40) + 512));
    assert_eq!((device.ledger().peak(), device.host_time()), (ByteCount::ZERO, Duration::ZERO));
}
