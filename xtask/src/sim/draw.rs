//! Drawing from a seed.

use plimsoll_sim::Seed;

/// What histories are drawn with.
pub(crate) trait Draw {
    /// A number in `start..end`; `start` if that is empty.
    fn between(&mut self, start: u64, end: u64) -> u64;

    /// One of several.
    fn one_of<T: Copy>(&mut self, choices: &[T]) -> T;

    /// Numbers below `end` in random order.
    fn shuffled(&mut self, end: usize) -> Vec<usize>;
}

impl Draw for Seed {
    fn between(&mut self, start: u64, end: u64) -> u64 {
        start + self.below(end.saturating_sub(start))
    }

    fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    fn shuffled(&mut self, end: usize) -> Vec<usize> {
        let mut numbers: Vec<usize> = (0..end).collect();
        for idx in (1..end).rev() {
            numbers.swap(idx, self.below(idx as u64 + 1) as usize);
        }
        numbers
    }
}
