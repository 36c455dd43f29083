//! Spreads independent tasks over the threads of the current rayon pool, each worker with its own scratch memory.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::prelude::*;

/// Multiply-adds below which a task is not worth another thread's wake-up.
pub(crate) const TASK_WORK_MIN: usize = 1 << 18;

/// Scratch numbers of one worker, rounded up so that two workers share no cache line for long.
pub(crate) const fn worker_scratch_len(len: usize) -> usize {
    if len == 0 { 16 } else { len.next_multiple_of(16) }
}

/// Scratch numbers that [`for_each_task`] needs for `task_count` tasks.
pub(crate) fn scratch_len(threads: usize, task_count: usize, worker_len: usize) -> usize {
    worker_scratch_len(worker_len) * threads.min(task_count).max(1)
}

/// Runs `task(task_idx, scratch)` for each index below `task_count`, on at most `threads` threads.
///
/// Which worker runs a task, and what its scratch contains, is unspecified; so a task's result must depend on its
/// index alone.
pub(crate) fn for_each_task<F>(threads: usize, task_count: usize, scratch: &mut [f32], worker_len: usize, task: F)
where
    F: Fn(usize, &mut [f32]) + Sync,
{
    let needed = scratch_len(threads, task_count, worker_len);
    assert!(scratch.len() >= needed, "scratch of {} numbers, {needed} needed", scratch.len());
    let worker_len = worker_scratch_len(worker_len);
    if threads.min(task_count) <= 1 {
        for task_idx in 0..task_count {
            task(task_idx, &mut scratch[..worker_len]);
        }
        return;
    }
    let next = AtomicUsize::new(0);
    scratch[..needed].par_chunks_exact_mut(worker_len).with_max_len(1).for_each(|scratch| {
        loop {
            let task_idx = next.fetch_add(1, Ordering::Relaxed);
            if task_idx >= task_count {
                break;
            }
            task(task_idx, scratch);
        }
    });
}

/// A slice that several tasks write, each its own part. Borrows the slice for as long as it lives.
pub(crate) struct SharedMut<'a, T> {
    start: *mut T,
    len: usize,
    slice: PhantomData<&'a mut [T]>,
}

// SAFETY: a pointer alone does nothing; whoever writes through `get` promises that the parts are disjoint.
unsafe impl<T: Send> Send for SharedMut<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for SharedMut<'_, T> {}

impl<'a, T> SharedMut<'a, T> {
    /// Takes the slice over.
    pub(crate) fn new(slice: &'a mut [T]) -> Self {
        Self { start: slice.as_mut_ptr(), len: slice.len(), slice: PhantomData }
    }

    /// A pointer to number `idx`, or to the slice's end.
    ///
    /// # Panics
    /// If `idx` is beyond that.
    #[inline(always)]
    pub(crate) fn get(&self, idx: usize) -> *mut T {
        assert!(idx <= self.len, "number {idx} of {}", self.len);
        self.start.wrapping_add(idx)
    }
}
