//! Queues of work, the events that order them, and the device they belong to.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::{
    Account, AllocError, Buffer, ByteCount, DType, DeviceId, Kernels, Ledger, ReadError, Region, Upload, WeightForm,
};

/// Work failed, perhaps work enqueued earlier that is found out only now.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DeviceError {
    /// Weights could not be read from their storage. The run can be repeated.
    #[error("uploading `{unit}` failed: {source}")]
    Upload {
        /// The unit that was being copied in.
        unit: String,
        /// What the storage said.
        source: ReadError,
    },
    /// There was no memory for an operation's output or scratch space.
    #[error(transparent)]
    Alloc(#[from] AllocError),
    /// The device or one of its threads is gone. Start again with a new device.
    #[error("the queue `{queue}` stopped working; start again")]
    Lost {
        /// The queue.
        queue: String,
    },
}

/// A device: memory with a budget, queues, kernels.
pub trait Device: Send + Sync {
    /// Its kind and index.
    fn id(&self) -> DeviceId;

    /// What decides how much memory an operation takes on it, such as its kernels and their threads.
    fn kernel_set(&self) -> String;

    /// The ledger of its memory.
    fn ledger(&self) -> &Ledger;

    /// Memory of at least `size` bytes with unspecified (but initialized) contents, booked on `account`; usable by
    /// work enqueued on `queue` from now on.
    ///
    /// # Errors
    /// [`AllocError`], and then nothing is booked.
    fn allocate(&self, queue: &dyn Queue, account: Account, size: ByteCount) -> Result<Buffer, AllocError>;

    /// Memory of exactly `size` bytes, which is a multiple of the allocation unit, to be handed out in parts.
    ///
    /// # Errors
    /// [`AllocError`], and then nothing is booked.
    fn region(&self, queue: &dyn Queue, account: Account, size: ByteCount) -> Result<Arc<dyn Region>, AllocError>;

    /// What [`allocate`](Self::allocate) books for `size` bytes: rounded up to the allocation unit.
    fn allocated_bytes(&self, size: ByteCount) -> ByteCount;

    /// The queue that computes on this device. The only getter of it: a device is always asked for by its index.
    fn compute_queue(&self) -> Arc<dyn Queue>;

    /// A new queue for copies beside the compute queue.
    ///
    /// # Errors
    /// [`DeviceError`] when there is no thread or handle for it.
    fn copy_queue(&self, name: &str) -> Result<Arc<dyn Queue>, DeviceError>;

    /// Bytes that a weight of this form takes on the device, packed. A multiple of 64.
    fn weight_bytes(&self, form: &WeightForm, dtype: DType) -> ByteCount;

    /// Scratch memory that copying `upload` in takes, booked on the account `staging` for the time of the copy; zero
    /// when the source is in memory already.
    fn staging_bytes(&self, upload: &Upload) -> ByteCount;

    /// The operations it can run.
    fn kernels(&self) -> &dyn Kernels;

    /// A stand-in with an empty, unlimited ledger, on which a pass is booked exactly as on this device but computes
    /// nothing: allocations are claims without memory, uploads and kernels do nothing. Its ledger's peak is this device's
    /// peak for the same calls. Its clock advances in proportion to what each kernel would take.
    fn rehearsal(&self) -> Arc<dyn Device>;

    /// Runs `work` where kernels start without a hand-over between threads.
    fn install(&self, work: &mut (dyn FnMut() + Send)) {
        work();
    }
}

/// A sequence of work that runs in order. Enqueueing does not wait for the work, except on a queue that runs inline.
pub trait Queue: Send + Sync {
    /// A name for logs and errors.
    fn name(&self) -> &str;

    /// The device it belongs to.
    fn device(&self) -> DeviceId;

    /// An event that completes when everything enqueued so far has.
    fn record(&self) -> Arc<dyn Event>;

    /// Makes later work of this queue wait for `event`. The host does not wait, unless this queue runs inline.
    ///
    /// # Errors
    /// What had failed before `event`, if that is known already.
    fn wait(&self, event: &Arc<dyn Event>) -> Result<(), DeviceError>;

    /// Enqueues the copy of `upload` into `slot`. The copy owns the slot until it is acquired from the [`Filling`].
    ///
    /// # Panics
    /// If the pieces do not fit the slot: a bug of the planner.
    fn upload(&self, upload: &Arc<Upload>, slot: Buffer) -> Filling;

    /// Enqueues a write of host bytes to the start of `buffer`.
    fn write(&self, bytes: &[u8], buffer: &mut Buffer) -> Result<(), DeviceError>;

    /// Waits for everything enqueued so far, then copies out `out.len()` bytes from `offset` on.
    fn read(&self, buffer: &Buffer, offset: usize, out: &mut [u8]) -> Result<(), DeviceError>;

    /// Blocks the host until everything enqueued so far has run.
    fn synchronize(&self) -> Result<(), DeviceError>;
}

/// A point in a queue's sequence of work.
pub trait Event: Any + Send + Sync {
    /// Whether the queue has passed it.
    fn is_complete(&self) -> bool;

    /// Blocks the host until the queue has passed it.
    ///
    /// # Errors
    /// What failed before it.
    fn synchronize(&self) -> Result<(), DeviceError>;

    /// When the queue passed it, on the device's own clock; none before that. Tells how long work took: the difference of
    /// two events of one device.
    fn passed_at(&self) -> Option<Duration>;
}

/// A buffer that a copy queue is filling. It can be had only through [`acquire`](Self::acquire), which orders the
/// user's queue behind the copy.
pub struct Filling {
    slot: Arc<Mutex<Option<Buffer>>>,
    ready: Arc<dyn Event>,
}

impl Filling {
    /// `slot` holds the buffer at the latest when `ready` completes, and nobody else holds it or the buffer then, unless
    /// the copy's queue is lost: then the buffer is freed before.
    pub fn new(slot: Arc<Mutex<Option<Buffer>>>, ready: Arc<dyn Event>) -> Self {
        Self { slot, ready }
    }

    /// The event that completes with the copy.
    pub fn ready(&self) -> &Arc<dyn Event> {
        &self.ready
    }

    /// The filled buffer, for work enqueued on `queue` from now on.
    ///
    /// # Errors
    /// What made the copy fail; the buffer is freed then.
    pub fn acquire(self, queue: &dyn Queue) -> Result<Buffer, DeviceError> {
        let outcome = queue.wait(&self.ready);
        let buffer = self.slot.lock().unwrap_or_else(PoisonError::into_inner).take();
        outcome.map(|()| buffer.expect("a copy hands its buffer back before its event completes"))
    }
}

impl fmt::Debug for Filling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Filling").field("complete", &self.ready.is_complete()).finish()
    }
}
