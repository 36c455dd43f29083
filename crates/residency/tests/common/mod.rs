//! Components of numbers that tell which unit they are, on the CPU device.
#![allow(dead_code, reason = "each test file uses its part")]

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use plimsoll_cpu::{CpuDevice, CpuOptions};
use plimsoll_device::{ByteCount, DType, Device, HostBytes, ReadError, Upload, UploadPiece, WeightForm};
use plimsoll_residency::{
    Component, LeaseError, LoadError, LoadRequest, Loaded, Manager, ManagerOptions, PatchSet, Unit, UnitId, Wanted,
};

/// As a number of failing reads: the reading thread panics.
pub(crate) const BREAKS_THE_QUEUE: usize = usize::MAX;

/// Stored numbers that count how often they are read, and fail the reads asked for.
pub(crate) struct Storage {
    bytes: Vec<u8>,
    reads: AtomicUsize,
    failing_reads: AtomicUsize,
}

impl Storage {
    fn new(len: usize, value: f32) -> Arc<Self> {
        let bytes = std::iter::repeat_n(value.to_le_bytes(), len).flatten().collect();
        Arc::new(Self { bytes, reads: AtomicUsize::new(0), failing_reads: AtomicUsize::new(0) })
    }

    pub(crate) fn fail_next(&self, reads: usize) {
        self.failing_reads.store(reads, Ordering::SeqCst);
    }

    pub(crate) fn reads(&self) -> usize {
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

/// A device with its manager.
pub(crate) struct Bench {
    pub(crate) device: Arc<dyn Device>,
    pub(crate) manager: Arc<Manager>,
}

/// A component whose unit `i` holds only the number `first + i`.
pub(crate) struct Net {
    pub(crate) component: Arc<Component>,
    pub(crate) storages: Vec<Arc<Storage>>,
    first: usize,
}

impl Bench {
    pub(crate) fn new(budget: ByteCount, options: ManagerOptions) -> Self {
        let device: Arc<dyn Device> = Arc::new(CpuDevice::new(&CpuOptions { budget, threads: Some(1) }).unwrap());
        Self { manager: Manager::new(&device, options), device }
    }

    /// An unlimited device, with so many offload streams.
    pub(crate) fn streaming(offload_streams: usize) -> Self {
        Self::new(ByteCount::MAX, ManagerOptions { offload_streams, ..ManagerOptions::default() })
    }

    /// A component whose unit `i` has `sizes[i]` numbers, all of them `first + i`.
    pub(crate) fn net(&self, name: &str, sizes: &[usize], first: usize) -> Net {
        let storages: Vec<_> =
            sizes.iter().enumerate().map(|(idx, &len)| Storage::new(len, (first + idx) as f32)).collect();
        let unit = |(idx, storage): (usize, &Arc<Storage>)| self.unit(&format!("layer.{idx}"), storage.clone());
        let units = storages.iter().enumerate().map(unit).collect();
        Net { component: self.manager.add(name, units), storages, first }
    }

    fn unit(&self, name: &str, source: Arc<Storage>) -> Unit {
        let len = source.bytes.len() / 4;
        let form = WeightForm::Vector { len };
        let piece = UploadPiece { source, source_dtype: DType::F32, form, dtype: DType::F32, offset: 0 };
        Unit::new(&*self.device, Upload { name: name.to_owned(), pieces: vec![piece] })
    }

    /// A unit of one number, for an adapter.
    pub(crate) fn adapter(&self, value: f32) -> Unit {
        self.unit("adapter", Storage::new(1, value))
    }

    pub(crate) fn load(&self, nets: &[&Net]) -> Result<Loaded, LoadError> {
        self.load_for(nets, ByteCount::ZERO, 2)
    }

    pub(crate) fn load_for(
        &self,
        nets: &[&Net],
        activation_bytes: ByteCount,
        passes: usize,
    ) -> Result<Loaded, LoadError> {
        self.load_patched(nets, &Arc::default(), activation_bytes, passes)
    }

    pub(crate) fn load_patched(
        &self,
        nets: &[&Net],
        patches: &Arc<PatchSet>,
        activation_bytes: ByteCount,
        passes: usize,
    ) -> Result<Loaded, LoadError> {
        let wanted: Vec<_> = nets.iter().map(|net| Wanted { component: &net.component, patches, passes }).collect();
        self.manager.load(&LoadRequest { holder: "the test", wanted: &wanted, activation_bytes })
    }

    /// Loads with all units streamed: what the smallest plan takes is all there is.
    pub(crate) fn load_streamed(&self, net: &Net) -> Loaded {
        self.device.ledger().set_budget(self.least(net));
        self.load(&[net]).unwrap()
    }

    pub(crate) fn least(&self, net: &Net) -> ByteCount {
        self.manager.planner(&net.component).least_bytes()
    }

    /// Leases a unit and reads its numbers.
    pub(crate) fn visit(&self, net: &Net, unit: usize) -> Result<Vec<f32>, LeaseError> {
        let queue = self.device.compute_queue();
        let lease = net.component.lease(UnitId(unit), &queue)?;
        let mut bytes = vec![0; net.storages[unit].bytes.len()];
        queue.read(lease.buffer(), 0, &mut bytes).unwrap();
        Ok(bytes.chunks_exact(4).map(|number| f32::from_le_bytes(number.try_into().unwrap())).collect())
    }

    /// One pass over all units, each of which must hold its own numbers.
    #[track_caller]
    pub(crate) fn pass(&self, net: &Net) {
        for unit in 0..net.storages.len() {
            assert_eq!(self.visit(net, unit).unwrap(), net.numbers(unit), "unit {unit}");
        }
    }

    pub(crate) fn used(&self) -> ByteCount {
        self.device.ledger().used()
    }
}

impl Net {
    /// What unit `unit` holds.
    pub(crate) fn numbers(&self, unit: usize) -> Vec<f32> {
        vec![(self.first + unit) as f32; self.storages[unit].bytes.len() / 4]
    }

    /// Bytes of all units.
    pub(crate) fn bytes(&self) -> ByteCount {
        self.component.units().iter().map(|unit| unit.bytes).sum()
    }

    /// How many units are resident; none while it is at rest.
    pub(crate) fn residents(&self) -> Option<usize> {
        self.component.plan().map(|plan| plan.resident.iter().filter(|resident| **resident).count())
    }

    pub(crate) fn reads(&self) -> Vec<usize> {
        self.storages.iter().map(|storage| storage.reads()).collect()
    }
}
