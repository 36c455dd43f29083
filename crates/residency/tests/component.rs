//! A component on the CPU device: whatever is resident, streamed, prefetched or failing, a lease reads its own unit.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use plimsoll_cpu::{CpuDevice, CpuOptions};
use plimsoll_device::{ByteCount, DType, Device, HostBytes, ReadError, Upload, UploadPiece, WeightForm};
use plimsoll_residency::{Component, LeaseError, LoadError, Unit, UnitId, plan};
use proptest::prelude::*;

/// As a number of failing reads: the reading thread panics.
const BREAKS_THE_QUEUE: usize = usize::MAX;

/// Stored numbers that count how often they are read, and fail the reads asked for.
struct Storage {
    bytes: Vec<u8>,
    reads: AtomicUsize,
    failing_reads: AtomicUsize,
}

impl Storage {
    fn new(len: usize, value: f32) -> Arc<Self> {
        let bytes = std::iter::repeat_n(value.to_le_bytes(), len).flatten().collect();
        Arc::new(Self { bytes, reads: AtomicUsize::new(0), failing_reads: AtomicUsize::new(0) })
    }

    fn fail_next(&self, reads: usize) {
        self.failing_reads.store(reads, Ordering::SeqCst);
    }

    fn reads(&self) -> usize {
        self.reads.load(Ordering::SeqCst)
    }
}

impl HostBytes for Storage {
    fn len(&self) -> usize {
        self.bytes.len()
    }

    fn as_slice(&self) -> Option<&[u8]> {
        None
    }

    fn read_at(&self, range: Range<usize>, out: &mut [u8]) -> Result<(), ReadError> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        assert!(self.failing_reads.load(Ordering::SeqCst) != BREAKS_THE_QUEUE, "told to break the queue");
        let fails = self.failing_reads.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        if fails.is_ok() {
            let (offset, len) = (range.start as u64, range.len());
            return Err(ReadError {
                origin: "disk".to_owned(),
                offset,
                len,
                reason: "unplugged; check the medium and run again".to_owned(),
            });
        }
        out.copy_from_slice(&self.bytes[range]);
        Ok(())
    }
}

struct Bench {
    device: Arc<dyn Device>,
    storages: Vec<Arc<Storage>>,
    units: Vec<Unit>,
}

impl Bench {
    /// Unit `i` has `sizes[i]` numbers, all of them `i`.
    fn new(sizes: &[usize], budget: ByteCount) -> Self {
        let device: Arc<dyn Device> = Arc::new(CpuDevice::new(&CpuOptions { budget, threads: Some(1) }).unwrap());
        let storages: Vec<_> = sizes.iter().enumerate().map(|(idx, &len)| Storage::new(len, idx as f32)).collect();
        let unit = |(idx, storage): (usize, &Arc<Storage>)| {
            let piece = UploadPiece {
                source: storage.clone(),
                source_dtype: DType::F32,
                form: WeightForm::Vector { len: sizes[idx] },
                dtype: DType::F32,
                offset: 0,
            };
            Unit::new(&*device, Upload { name: format!("layer.{idx}"), pieces: vec![piece] })
        };
        let units = storages.iter().enumerate().map(unit).collect();
        Self { device, storages, units }
    }

    fn load(&self, available: ByteCount, streams: usize) -> Result<Component, LoadError> {
        let plan = plan(&self.units, available, streams).expect("the plan fits");
        Component::load(&self.device, "net", self.units.clone(), plan)
    }

    /// All units streamed.
    fn load_streamed(&self, streams: usize) -> Component {
        let least = plan(&self.units, ByteCount::ZERO, streams).unwrap_err().needed;
        self.load(least, streams).unwrap()
    }

    /// Leases a unit and reads its numbers.
    fn visit(&self, component: &Component, unit: usize) -> Result<Vec<f32>, LeaseError> {
        let queue = self.device.compute_queue();
        let lease = component.lease(UnitId(unit), &*queue)?;
        let mut bytes = vec![0; self.storages[unit].bytes.len()];
        queue.read(lease.buffer(), 0, &mut bytes).unwrap();
        Ok(bytes.chunks_exact(4).map(|number| f32::from_le_bytes(number.try_into().unwrap())).collect())
    }

    fn used(&self) -> ByteCount {
        self.device.ledger().used()
    }
}

#[test]
fn streamed_units_are_fetched_ahead_as_far_as_there_are_slots() {
    let bench = Bench::new(&[64; 6], ByteCount::MAX);
    let component = bench.load_streamed(2);
    assert_eq!(component.plan().slot_count, 3);
    bench.visit(&component, 0).unwrap();
    drop(component);
    let reads: Vec<_> = bench.storages.iter().map(|storage| storage.reads()).collect();
    assert_eq!(reads, [1, 1, 1, 0, 0, 0], "unit 0 is leased; its slot and two others hold 0, 1, 2");
    assert_eq!(bench.used(), ByteCount::ZERO);
}

#[test]
fn a_pass_in_order_reads_each_streamed_unit_once() {
    for streams in 0..4 {
        let bench = Bench::new(&[64; 6], ByteCount::MAX);
        let component = bench.load_streamed(streams);
        for unit in 0..6 {
            assert_eq!(bench.visit(&component, unit).unwrap(), vec![unit as f32; 64]);
        }
        drop(component);
        let reads: usize = bench.storages.iter().map(|storage| storage.reads()).sum();
        assert!((6..=6 + streams).contains(&reads), "{streams} streams: {reads} reads");
    }
}

#[test]
fn a_failed_read_names_unit_and_storage_and_can_be_repeated() {
    for streams in [0, 2] {
        let bench = Bench::new(&[64; 6], ByteCount::MAX);
        let component = bench.load_streamed(streams);
        bench.storages[3].fail_next(1);
        let mut failures = Vec::new();
        for unit in [0, 1, 2, 3, 3, 4, 5, 0] {
            match bench.visit(&component, unit) {
                Ok(numbers) => assert_eq!(numbers, vec![unit as f32; 64]),
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
        drop(component);
        assert_eq!(bench.used(), ByteCount::ZERO);
    }
}

#[test]
fn a_failed_copy_that_nobody_asked_for_costs_no_slot_and_fails_nobody_else() {
    let bench = Bench::new(&[64; 6], ByteCount::MAX);
    let component = bench.load_streamed(1);
    bench.storages[1].fail_next(1);
    assert_eq!(bench.visit(&component, 0).unwrap(), vec![0.0; 64]);
    let queue = bench.device.compute_queue();
    let held = component.lease(UnitId(3), &*queue).unwrap();
    assert_eq!(bench.visit(&component, 5).unwrap(), vec![5.0; 64], "in the slot of the failed copy of unit 1");
    drop(held);
    assert_eq!(bench.visit(&component, 1).unwrap(), vec![1.0; 64]);
}

#[test]
fn a_lost_copy_queue_is_told_by_each_lease_and_loses_no_memory() {
    let bench = Bench::new(&[64; 6], ByteCount::MAX);
    let component = bench.load_streamed(1);
    bench.storages[1].fail_next(BREAKS_THE_QUEUE);
    assert_eq!(bench.visit(&component, 0).unwrap(), vec![0.0; 64]);
    for unit in [1, 2, 3, 1, 0, 5] {
        let error = bench.visit(&component, unit).unwrap_err().to_string();
        assert_eq!(error, "the queue `net.offload.0` stopped working; start again", "unit {unit}");
    }
    drop(component);
    assert_eq!(bench.used(), ByteCount::ZERO);
}

#[test]
fn a_second_lease_without_a_second_slot_is_refused_until_the_first_is_dropped() {
    let bench = Bench::new(&[64; 3], ByteCount::MAX);
    let component = bench.load_streamed(0);
    let queue = bench.device.compute_queue();
    let first = component.lease(UnitId(0), &*queue).unwrap();
    let error = component.lease(UnitId(1), &*queue).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`layer.1` of `net` can't be leased: all 1 slots of the ring are leased already; drop one first, or use more offload streams"
    );
    drop(first);
    assert_eq!(bench.visit(&component, 1).unwrap(), vec![1.0; 64]);
}

#[test]
fn a_failed_load_leaves_nothing_on_the_device() {
    let bench = Bench::new(&[64; 6], ByteCount::MAX);
    bench.storages[4].fail_next(1);
    let error = bench.load(ByteCount::MAX, 0).err().unwrap();
    assert!(matches!(error, LoadError::Device { .. }), "{error}");
    assert_eq!(bench.used(), ByteCount::ZERO);

    let small = Bench::new(&[64; 6], ByteCount(600));
    let error = small.load(ByteCount::MAX, 0).err().unwrap();
    assert!(matches!(error, LoadError::Alloc { .. }), "{error}");
    assert_eq!(small.used(), ByteCount::ZERO);
}

#[test]
fn a_thousand_loads_leave_the_books_as_they_were() {
    let bench = Bench::new(&[64, 32, 200, 8], ByteCount::MAX);
    for round in 0..1000 {
        let component = bench.load_streamed(round % 3);
        bench.visit(&component, round % 4).unwrap();
        drop(component);
        assert_eq!(bench.used(), ByteCount::ZERO, "after {round} rounds");
    }
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
        let measured = Bench::new(&sizes, ByteCount::MAX);
        let all: ByteCount = measured.units.iter().map(|unit| unit.bytes).sum();
        let least = plan(&measured.units, ByteCount::ZERO, streams).map_or_else(|error| error.needed, |_| ByteCount::ZERO);
        let available = least + ByteCount(all.0 * generosity / 100);
        let bench = Bench::new(&sizes, available);
        let component = bench.load(available, streams).unwrap();
        for (unit, reads) in failures {
            bench.storages[unit % sizes.len()].fail_next(reads);
        }
        for unit in visits.into_iter().map(|unit| unit % sizes.len()) {
            if let Ok(numbers) = bench.visit(&component, unit) {
                prop_assert_eq!(numbers, vec![unit as f32; sizes[unit]]);
            }
            prop_assert!(bench.used() <= available);
        }
        drop(component);
        prop_assert_eq!(bench.used(), ByteCount::ZERO);
        prop_assert!(bench.device.ledger().peak() <= available);
    }
}
