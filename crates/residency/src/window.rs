//! The largest run of consecutive streamed units: what a ring must hold so that `width` copies fit at any moment.
//!
//! The visiting order is a cycle, so runs wrap around. Units are only ever removed; each removal costs `width` updates
//! of a tournament tree instead of a walk over all units.

/// The streamed units in visiting order, and the bytes of every run of `width` of them.
pub(crate) struct WorstWindow {
    sizes: Vec<u128>,
    width: usize,
    count: usize,
    total: u128,
    next: Vec<usize>,
    previous: Vec<usize>,
    /// The bytes of the run that starts at each unit, in a tree of maxima: leaves from `leaf_start` on, root at 1.
    runs: Vec<u128>,
    leaf_start: usize,
}

impl WorstWindow {
    /// All units streamed.
    pub(crate) fn new(sizes: Vec<u128>, width: usize) -> Self {
        let count = sizes.len();
        let width = width.clamp(1, count.max(1));
        let leaf_start = count.next_power_of_two();
        let mut runs = vec![0; 2 * leaf_start];
        if count > 0 {
            let mut run: u128 = sizes[..width].iter().sum();
            for start in 0..count {
                runs[leaf_start + start] = run;
                run = run - sizes[start] + sizes[(start + width) % count];
            }
        }
        for node in (1..leaf_start).rev() {
            runs[node] = runs[2 * node].max(runs[2 * node + 1]);
        }
        Self {
            width,
            count,
            total: sizes.iter().sum(),
            next: (0..count).map(|idx| (idx + 1) % count).collect(),
            previous: (0..count).map(|idx| (idx + count - 1) % count).collect(),
            runs,
            leaf_start,
            sizes,
        }
    }

    /// Bytes of the largest run; of all streamed units when they are no more than `width`.
    pub(crate) fn worst(&self) -> u128 {
        if self.count <= self.width { self.total } else { self.runs[1] }
    }

    /// Bytes of all streamed units.
    pub(crate) fn total(&self) -> u128 {
        self.total
    }

    /// `unit` is resident from now on. It must have been streamed.
    pub(crate) fn remove(&mut self, unit: usize) {
        self.count -= 1;
        self.total -= self.sizes[unit];
        let (before, after) = (self.previous[unit], self.next[unit]);
        // From here on the total is the answer, and the runs are of no more use.
        if self.count > self.width {
            // The run that starts m units before `unit` loses it and gains the unit (width - m) behind it.
            let mut gained = unit;
            for _ in 1..self.width {
                gained = self.next[gained];
            }
            let mut start = unit;
            for _ in 1..self.width {
                start = self.previous[start];
                let run = self.runs[self.leaf_start + start] + self.sizes[gained] - self.sizes[unit];
                self.set_run(start, run);
                gained = self.previous[gained];
            }
            self.set_run(unit, 0);
        }
        self.next[before] = after;
        self.previous[after] = before;
    }

    fn set_run(&mut self, start: usize, run: u128) {
        let mut node = self.leaf_start + start;
        self.runs[node] = run;
        while node > 1 {
            node /= 2;
            self.runs[node] = self.runs[2 * node].max(self.runs[2 * node + 1]);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn literal_worst(streamed: &[u128], width: usize) -> u128 {
        let count = streamed.len();
        if count <= width {
            return streamed.iter().sum();
        }
        (0..count).map(|start| (0..width).map(|step| streamed[(start + step) % count]).sum()).max().unwrap_or(0)
    }

    proptest! {
        #[test]
        fn follows_the_literal_definition(
            sizes in prop::collection::vec(0u64..100, 0..30),
            width in 1usize..8,
            keys in prop::collection::vec(any::<u64>(), 30),
        ) {
            let sizes: Vec<u128> = sizes.into_iter().map(u128::from).collect();
            let mut order: Vec<usize> = (0..sizes.len()).collect();
            order.sort_by_key(|&idx| (keys[idx], idx));
            let mut window = WorstWindow::new(sizes.clone(), width);
            let mut streamed: Vec<usize> = (0..sizes.len()).collect();
            for unit in order {
                let left: Vec<u128> = streamed.iter().map(|&idx| sizes[idx]).collect();
                prop_assert_eq!(window.worst(), literal_worst(&left, width));
                window.remove(unit);
                streamed.retain(|&idx| idx != unit);
            }
            prop_assert_eq!(window.worst(), 0);
        }
    }
}
