//! Vector clocks: what has happened before what.

use std::sync::Arc;
use std::time::Duration;

/// For each queue, how many of its operations have happened before this point.
///
/// The host has a clock too, but no component of its own: it touches no device memory itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct VectorClock(Vec<u64>);

impl VectorClock {
    /// Operations of `queue` that have happened before.
    pub(crate) fn get(&self, queue: usize) -> u64 {
        self.0.get(queue).copied().unwrap_or(0)
    }

    /// Counts one more operation of `queue`, and returns its number.
    pub(crate) fn tick(&mut self, queue: usize) -> u64 {
        if self.0.len() <= queue {
            self.0.resize(queue + 1, 0);
        }
        self.0[queue] += 1;
        self.0[queue]
    }

    /// Sets the count of `queue`, which must not fall.
    pub(crate) fn advance(&mut self, queue: usize, tick: u64) {
        if self.0.len() <= queue {
            self.0.resize(queue + 1, 0);
        }
        self.0[queue] = self.0[queue].max(tick);
    }

    /// Whether everything before `other` is before this point.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        other.0.iter().enumerate().all(|(queue, &tick)| tick <= self.get(queue))
    }

    /// Puts this point behind `other`.
    pub(crate) fn join(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (tick, other) in self.0.iter_mut().zip(&other.0) {
            *tick = (*tick).max(*other);
        }
    }
}

/// A point in the world: what has happened before it, and when it is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stamp {
    pub(crate) clock: Arc<VectorClock>,
    pub(crate) time: Duration,
}

impl Stamp {
    /// Puts this point behind `other`.
    pub(crate) fn join(&mut self, other: &Self) {
        self.time = self.time.max(other.time);
        if !self.clock.covers(&other.clock) {
            Arc::make_mut(&mut self.clock).join(&other.clock);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_join_covers_both_and_a_tick_only_one() {
        let (mut left, mut right) = (VectorClock::default(), VectorClock::default());
        assert_eq!((left.tick(0), left.tick(0), right.tick(2)), (1, 2, 1));
        assert!(!left.covers(&right) && !right.covers(&left));
        right.join(&left);
        assert!(right.covers(&left) && !left.covers(&right));
        assert_eq!((right.get(0), right.get(1), right.get(2), right.get(7)), (2, 0, 1, 0));
    }
}
