//! The disk tier of a process: the window that its files share, and the threads that read ahead into it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use crate::cache_room::{CacheRoom, MemoryMeter, system_memory};
use crate::window::{FileId, Window};

/// Two requests at once keep a disk busy while one is handed over.
const THREAD_COUNT: usize = 2;

/// The bytes of the window.
const WINDOW_BYTES: usize = 32 << 20;

/// What open files share. Its threads begin with the first hint and end with the last file.
pub(crate) struct DiskTier {
    pub(crate) window: Arc<Window>,
    pub(crate) room: CacheRoom,
    next_file: AtomicU64,
    /// Whether there are threads that read ahead.
    reads_ahead: OnceLock<bool>,
}

impl DiskTier {
    pub(crate) fn new(window_bytes: usize, meter: MemoryMeter) -> Arc<Self> {
        Arc::new(Self {
            window: Arc::new(Window::new(window_bytes)),
            room: CacheRoom::new(meter),
            next_file: AtomicU64::new(0),
            reads_ahead: OnceLock::new(),
        })
    }

    /// The process's own, kept alive by its files only.
    pub(crate) fn of_process() -> Arc<Self> {
        static TIER: Mutex<Weak<DiskTier>> = Mutex::new(Weak::new());

        let mut tier = TIER.lock().unwrap_or_else(PoisonError::into_inner);
        tier.upgrade().unwrap_or_else(|| {
            let new = Self::new(WINDOW_BYTES, Box::new(system_memory));
            *tier = Arc::downgrade(&new);
            new
        })
    }

    pub(crate) fn new_file_id(&self) -> FileId {
        self.next_file.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether hints are followed; starts the threads that do.
    pub(crate) fn reads_ahead(&self) -> bool {
        *self.reads_ahead.get_or_init(|| (0..THREAD_COUNT).filter(|_| self.start_thread()).count() > 0)
    }

    /// A thread that can't be started is one less: hints are hints.
    fn start_thread(&self) -> bool {
        let window = self.window.clone();
        let read_ahead = move || {
            while let Some((file, claim)) = window.next_ahead() {
                file.follow(claim);
            }
        };
        std::thread::Builder::new().name("read-ahead".to_owned()).spawn(read_ahead).is_ok()
    }
}

impl Drop for DiskTier {
    fn drop(&mut self) {
        self.window.close();
    }
}
