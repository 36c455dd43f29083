//! How many bytes of weights the system's page cache has room for.
//!
//! A page cache that is streamed through in a circle keeps nothing once the circle is larger than memory: each page
//! goes shortly before it is wanted. So what is put there on purpose is counted, and never more than fits.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Memory is looked at again after so many questions.
const QUESTIONS_PER_LOOK: u32 = 64;

/// Least bytes that are left to others.
const MARGIN_BYTES_MIN: u64 = 1 << 30;

/// What the system says about its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Memory {
    pub(crate) total: u64,
    /// What programs could take without swapping; holds the page cache that can be given up, so also what is counted
    /// here.
    pub(crate) available: u64,
}

/// Says what memory there is; `None` if the system doesn't tell.
pub(crate) type MemoryMeter = Box<dyn Fn() -> Option<Memory> + Send + Sync>;

/// Counts the bytes that were put into the page cache on purpose.
pub(crate) struct CacheRoom {
    meter: MemoryMeter,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    kept: u64,
    capacity: u64,
    question_count: u32,
}

impl CacheRoom {
    pub(crate) fn new(meter: MemoryMeter) -> Self {
        Self { meter, state: Mutex::default() }
    }

    /// Books `len` bytes if there is room for them.
    pub(crate) fn book(&self, len: u64) -> bool {
        let mut state = self.lock();
        if state.question_count.is_multiple_of(QUESTIONS_PER_LOOK) {
            state.capacity = (self.meter)().map_or(0, capacity);
        }
        state.question_count = state.question_count.wrapping_add(1);
        let fits = state.kept.saturating_add(len) <= state.capacity;
        if fits {
            state.kept += len;
        }
        fits
    }

    /// Gives booked bytes back.
    pub(crate) fn give_back(&self, len: u64) {
        let mut state = self.lock();
        state.kept = state.kept.checked_sub(len).expect("only what was booked is given back");
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All that is available but an eighth of the memory, and at least [`MARGIN_BYTES_MIN`], for others.
fn capacity(memory: Memory) -> u64 {
    memory.available.saturating_sub(MARGIN_BYTES_MIN.max(memory.total / 8))
}

/// The system's memory.
pub(crate) fn system_memory() -> Option<Memory> {
    if cfg!(target_os = "linux") { parse_meminfo(&std::fs::read_to_string("/proc/meminfo").ok()?) } else { None }
}

fn parse_meminfo(text: &str) -> Option<Memory> {
    let bytes = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
        let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        kib.checked_mul(1024)
    };
    Some(Memory { total: bytes("MemTotal")?, available: bytes("MemAvailable")? })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn books_what_fits_and_no_more() {
        let available = Arc::new(AtomicU64::new(4 * GIB));
        let meter = available.clone();
        let room =
            CacheRoom::new(Box::new(move || Some(Memory { total: 8 * GIB, available: meter.load(Ordering::Relaxed) })));
        assert!(room.book(2 * GIB) && !room.book(2 * GIB) && room.book(GIB) && !room.book(1));
        room.give_back(GIB);
        assert!(room.book(GIB));
        room.give_back(3 * GIB);

        // Another program takes memory: noticed by the next look, not by each question.
        available.store(GIB, Ordering::Relaxed);
        let booked = (0..2 * QUESTIONS_PER_LOOK).filter(|_| room.book(1)).count();
        assert!(booked > 0 && booked < QUESTIONS_PER_LOOK as usize, "{booked}");
    }

    #[test]
    fn without_a_word_from_the_system_there_is_no_room() {
        assert!(!CacheRoom::new(Box::new(|| None)).book(1));
    }

    #[test]
    fn meminfo_is_read() {
        let text = "MemTotal:       24684092 kB\nMemFree:        23138552 kB\nMemAvailable:   24231540 kB\n";
        assert_eq!(parse_meminfo(text), Some(Memory { total: 24_684_092 << 10, available: 24_231_540 << 10 }));
        for text in ["", "MemTotal: 1 kB\nMemAvailable: x kB", "MemTotal: 1 kB\nMemAvailable: 99999999999999999999 kB"]
        {
            assert_eq!(parse_meminfo(text), None);
        }
    }
}
