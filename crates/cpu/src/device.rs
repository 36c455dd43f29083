//! The CPU as a device.

use std::sync::Arc;

use plimsoll_device::{
    Account, AllocError, Buffer, ByteCount, DType, Device, DeviceError, DeviceId, Kernels, Ledger, Queue, Region,
    Upload, WeightForm,
};

use crate::clock::Clock;
use crate::isa::{Isa, IsaError};
use crate::queue::{InlineQueue, ThreadQueue};
use crate::storage::{HostMemory, HostRegion, LINE_BYTES};
use crate::upload;

/// There is one CPU.
pub(crate) const DEVICE_ID: DeviceId = DeviceId { kind: "cpu", index: 0 };

/// How to set up the CPU device.
#[derive(Clone, Copy, Debug)]
pub struct CpuOptions {
    /// The line.
    pub budget: ByteCount,
    /// Threads that compute; `None` for one per core.
    pub threads: Option<usize>,
}

/// The CPU device can't be set up.
#[derive(Debug, thiserror::Error)]
pub enum CpuError {
    /// `PLIMSOLL_CPU` asks for what isn't there.
    #[error(transparent)]
    Isa(#[from] IsaError),
    /// The threads can't be started. Ask for fewer.
    #[error("starting {threads} compute threads failed: {reason}; ask for fewer (--threads)")]
    Threads {
        /// How many were wanted.
        threads: usize,
        /// What the system said.
        reason: String,
    },
}

/// The CPU: RAM under a budget, one pool of threads that computes, kernels for the instruction set it has.
pub struct CpuDevice {
    pub(crate) shared: Arc<Shared>,
    compute: Arc<InlineQueue>,
}

/// What the device and its queues have in common.
pub(crate) struct Shared {
    pub(crate) ledger: Ledger,
    pub(crate) isa: Isa,
    pub(crate) pool: Arc<rayon::ThreadPool>,
    pub(crate) clock: Clock,
}

impl CpuDevice {
    /// Starts the threads.
    ///
    /// # Errors
    /// [`CpuError`] if `PLIMSOLL_CPU` is not to be had, or the system gives no threads.
    pub fn new(options: &CpuOptions) -> Result<Self, CpuError> {
        let isa = Isa::detect()?;
        let threads = options.threads.unwrap_or_else(default_thread_count);
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|idx| format!("plimsoll-compute-{idx}"))
            .build()
            .map_err(|error| CpuError::Threads { threads, reason: error.to_string() })?;
        let ledger = Ledger::new(options.budget);
        Ok(Self::of(Shared { ledger, isa, pool: Arc::new(pool), clock: Clock::computing() }))
    }

    /// How many threads compute.
    pub fn thread_count(&self) -> usize {
        self.shared.pool.current_num_threads()
    }

    fn of(shared: Shared) -> Self {
        let shared = Arc::new(shared);
        Self { compute: Arc::new(InlineQueue::new(shared.clone())), shared }
    }
}

impl Device for CpuDevice {
    fn id(&self) -> DeviceId {
        DEVICE_ID
    }

    fn kernel_set(&self) -> String {
        format!("{:?}, threads {}", self.shared.isa, self.thread_count())
    }

    fn ledger(&self) -> &Ledger {
        &self.shared.ledger
    }

    fn allocate(&self, _queue: &dyn Queue, account: Account, size: ByteCount) -> Result<Buffer, AllocError> {
        self.shared.allocate(account, size)
    }

    fn region(&self, _queue: &dyn Queue, account: Account, size: ByteCount) -> Result<Arc<dyn Region>, AllocError> {
        assert!(size.0.is_multiple_of(LINE_BYTES as u64), "a region of {} bytes", size.0);
        let charge = self.shared.ledger.charge(account, size)?;
        let region = if self.shared.clock.is_rehearsing() {
            HostRegion::claim(size, charge)
        } else {
            HostRegion::allocate(size, charge).ok_or_else(|| self.shared.exhausted(account, size))?
        };
        Ok(Arc::new(region))
    }

    fn allocated_bytes(&self, size: ByteCount) -> ByteCount {
        size.align_up(LINE_BYTES as u64)
    }

    fn compute_queue(&self) -> Arc<dyn Queue> {
        self.compute.clone()
    }

    fn copy_queue(&self, name: &str) -> Result<Arc<dyn Queue>, DeviceError> {
        if self.shared.clock.is_rehearsing() {
            return Ok(self.compute.clone());
        }
        Ok(Arc::new(ThreadQueue::start(name, self.shared.clone())?))
    }

    fn weight_bytes(&self, form: &WeightForm, dtype: DType) -> ByteCount {
        upload::weight_bytes(self.shared.isa, form, dtype)
    }

    fn staging_bytes(&self, upload: &Upload) -> ByteCount {
        upload::staging_bytes(self.shared.isa, upload)
    }

    fn kernels(&self) -> &dyn Kernels {
        self
    }

    fn rehearsal(&self) -> Arc<dyn Device> {
        let Shared { isa, pool, .. } = &*self.shared;
        let ledger = Ledger::new(ByteCount::MAX);
        Arc::new(Self::of(Shared { ledger, isa: *isa, pool: pool.clone(), clock: Clock::rehearsing() }))
    }

    fn install(&self, work: &mut (dyn FnMut() + Send)) {
        self.shared.pool.install(work);
    }
}

impl Shared {
    pub(crate) fn allocate(&self, account: Account, size: ByteCount) -> Result<Buffer, AllocError> {
        let size = size.align_up(LINE_BYTES as u64);
        let charge = self.ledger.charge(account, size)?;
        let storage = if self.clock.is_rehearsing() {
            HostMemory::Claim
        } else {
            HostMemory::allocate(size.to_usize()).ok_or_else(|| self.exhausted(account, size))?
        };
        Ok(Buffer::new(Box::new(storage), charge))
    }

    fn exhausted(&self, account: Account, needed: ByteCount) -> AllocError {
        AllocError::Exhausted { account: self.ledger.account_name(account), needed }
    }
}

fn default_thread_count() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
