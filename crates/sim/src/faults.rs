//! What goes wrong, and when: by chance from the seed, or on order.

use crate::Seed;

/// Something that goes wrong once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// An allocation fails although the budget allows it ([`Exhausted`](plimsoll_device::AllocError::Exhausted)).
    Allocation,
    /// A copy to the device takes 10 to 100 times as long as it should.
    SlowCopy,
    /// The storage gives fewer bytes than asked for ([`Upload`](plimsoll_device::DeviceError::Upload)).
    ShortRead,
    /// The device is gone for good ([`Lost`](plimsoll_device::DeviceError::Lost)).
    DeviceLost,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Allocation, Self::SlowCopy, Self::ShortRead, Self::DeviceLost];
}

/// How often things go wrong: probabilities in `[0, 1]`. None by default.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    /// Of each allocation.
    pub allocation: f64,
    /// Of each copy to the device.
    pub slow_copy: f64,
    /// Of each copy of weights.
    pub short_read: f64,
    /// At each piece of work enqueued.
    pub device_lost: f64,
}

/// Decides at each opportunity whether a fault happens. Each kind draws from a stream of its own.
#[derive(Debug)]
pub(crate) struct FaultSource {
    rates: Faults,
    seeds: [Seed; 4],
    ordered: [u32; 4],
}

impl FaultSource {
    pub(crate) fn new(rates: Faults, seed: &Seed) -> Self {
        Self { rates, seeds: Fault::ALL.map(|fault| seed.derive(fault as u64)), ordered: [0; 4] }
    }

    pub(crate) fn set_rates(&mut self, rates: Faults) {
        self.rates = rates;
    }

    /// Lets the next opportunity for `fault` fail.
    pub(crate) fn order(&mut self, fault: Fault) {
        self.ordered[fault as usize] += 1;
    }

    /// Whether `fault` happens now.
    pub(crate) fn strikes(&mut self, fault: Fault) -> bool {
        let rate = match fault {
            Fault::Allocation => self.rates.allocation,
            Fault::SlowCopy => self.rates.slow_copy,
            Fault::ShortRead => self.rates.short_read,
            Fault::DeviceLost => self.rates.device_lost,
        };
        let by_chance = self.seeds[fault as usize].chance(rate);
        let ordered = &mut self.ordered[fault as usize];
        let on_order = *ordered > 0;
        *ordered = ordered.saturating_sub(1);
        by_chance || on_order
    }

    /// By how much a slow copy is slower.
    pub(crate) fn slowness(&mut self) -> f64 {
        10.0 + 90.0 * self.seeds[Fault::SlowCopy as usize].fraction()
    }
}
