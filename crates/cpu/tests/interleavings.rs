//! The ring, the copy queues and their events in thousands of interleavings: whatever runs first, a lease reads its own
//! unit, and all memory comes back.
//!
//! `cargo test -p plimsoll-cpu --features shuttle --test interleavings`

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use plimsoll_cpu::{CpuDevice, CpuOptions};
use plimsoll_device::{ByteCount, DType, Device, HostBytes, Queue, ReadError, Upload, UploadPiece, WeightForm};
use plimsoll_residency::{Component, LoadRequest, Loaded, Manager, ManagerOptions, Policy, Unit, UnitId, Wanted};

const INTERLEAVINGS: usize = 3000;

/// Numbers that are all alike, and fail to be read as often as told.
struct Storage {
    bytes: Vec<u8>,
    failing_reads: AtomicUsize,
}

impl HostBytes for Storage {
    fn len(&self) -> usize {
        self.bytes.len()
    }

    fn as_slice(&self) -> Option<&[u8]> {
        None
    }

    fn read_at(&self, range: Range<usize>, out: &mut [u8]) -> Result<(), ReadError> {
        let fails = self.failing_reads.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        if fails.is_ok() {
            let (offset, len) = (range.start as u64, range.len());
            return Err(ReadError { origin: "disk".to_owned(), offset, len, reason: "unplugged".to_owned() });
        }
        out.copy_from_slice(&self.bytes[range]);
        Ok(())
    }
}

fn device() -> Arc<dyn Device> {
    Arc::new(CpuDevice::new(&CpuOptions { budget: ByteCount::MAX, threads: Some(1) }).unwrap())
}

fn upload(value: f32, len: usize, failing_reads: usize) -> Upload {
    let bytes = std::iter::repeat_n(value.to_le_bytes(), len).flatten().collect();
    let source = Arc::new(Storage { bytes, failing_reads: AtomicUsize::new(failing_reads) });
    let form = WeightForm::Vector { len };
    let piece = UploadPiece { source, source_dtype: DType::F32, form, dtype: DType::F32, offset: 0 };
    Upload { name: format!("unit {value}"), pieces: vec![piece] }
}

/// A component with all units streamed, in the smallest ring there is.
fn streamed(
    device: &Arc<dyn Device>,
    policy: Policy,
    offload_streams: usize,
    failing_unit: Option<usize>,
) -> (Arc<Component>, Loaded) {
    let options = ManagerOptions { policy, offload_streams, keep_idle: false, ..ManagerOptions::default() };
    let manager = Manager::new(device, options);
    let unit = |(idx, len): (usize, &usize)| {
        Unit::new(&**device, upload(idx as f32, *len, usize::from(failing_unit == Some(idx))))
    };
    let component = manager.add("net", [16, 48, 16, 32].iter().enumerate().map(unit).collect());
    device.ledger().set_budget(manager.planner(&component).least_bytes());
    let patches = Arc::default();
    let wanted = [Wanted { component: &component, patches: &patches, passes: 9 }];
    let loaded = manager.load(&LoadRequest { holder: "test", wanted: &wanted, activation_bytes: ByteCount::ZERO });
    (component, loaded.unwrap())
}

/// The first number of a unit, if it can be had.
fn visit(component: &Component, unit: usize, queue: &Arc<dyn Queue>) -> Option<f32> {
    let lease = component.lease(UnitId(unit), queue).ok()?;
    let mut number = [0; 4];
    queue.read(lease.buffer(), 0, &mut number).unwrap();
    Some(f32::from_le_bytes(number))
}

#[test]
fn every_lease_reads_its_own_unit() {
    for policy in Policy::ALL {
        for streams in 1..=2 {
            let run = move || {
                let device = device();
                let (component, loaded) = streamed(&device, policy, streams, None);
                let queue = device.compute_queue();
                for unit in [0, 1, 2, 3, 0, 1, 3, 2, 0] {
                    assert_eq!(visit(&component, unit, &queue), Some(unit as f32));
                }
                drop(loaded);
                assert_eq!(device.ledger().used(), ByteCount::ZERO);
            };
            shuttle::check_random(run, INTERLEAVINGS / 4);
        }
    }
}

#[test]
fn a_failed_copy_fails_one_lease_at_most_and_loses_no_memory() {
    for failing_unit in [0, 2] {
        let run = move || {
            let device = device();
            let (component, loaded) = streamed(&device, Policy::Spread, 2, Some(failing_unit));
            let queue = device.compute_queue();
            let mut failures = 0;
            for unit in [0, 1, 2, 3, 0, 1, 2, 3] {
                match visit(&component, unit, &queue) {
                    Some(number) => assert_eq!(number, unit as f32),
                    None => {
                        assert_eq!(unit, failing_unit);
                        failures += 1;
                    }
                }
            }
            assert!(failures <= 1, "{failures}");
            drop(loaded);
            assert_eq!(device.ledger().used(), ByteCount::ZERO);
        };
        shuttle::check_random(run, INTERLEAVINGS / 2);
    }
}

#[test]
fn a_wait_orders_one_queue_behind_another() {
    let run = || {
        let device = device();
        let queues = ["a", "b"].map(|name| device.copy_queue(name).unwrap());
        let account = device.ledger().account("weights");
        let compute = device.compute_queue();
        let fill = |queue: &Arc<dyn Queue>, value| {
            let buffer = device.allocate(&*compute, account, ByteCount(64)).unwrap();
            queue.upload(&Arc::new(upload(value, 16, 0)), buffer)
        };
        let first = fill(&queues[0], 1.0);
        queues[1].wait(first.ready()).unwrap();
        let second = fill(&queues[1], 2.0);
        second.ready().synchronize().unwrap();
        assert!(first.ready().is_complete(), "what is waited for has passed");
        let passed = [first.ready(), second.ready()].map(|event| event.passed_at().unwrap());
        assert!(passed[0] <= passed[1]);
        drop(first);
        queues[0].synchronize().unwrap();
        drop((second.acquire(&*compute).unwrap(), queues));
        assert_eq!(device.ledger().used(), ByteCount::ZERO);
    };
    shuttle::check_random(run, INTERLEAVINGS);
    shuttle::check_dfs(run, Some(INTERLEAVINGS));
}
