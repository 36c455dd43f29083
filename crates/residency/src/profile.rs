//! What the planner knows of a unit: sizes and a time, no tensors.

use plimsoll_device::ByteCount;

/// No copy and no unit is taken to last longer than this, so that sums of times stay finite.
pub(crate) const SECONDS_MAX: f64 = 1e12;

/// One unit as the planner sees it. Units are listed in visiting order.
#[derive(Clone, Debug, PartialEq)]
pub struct UnitProfile {
    /// Its layer's name. Decides between equals under `largest-first`, compared as a string.
    pub name: String,
    /// What it takes on the device.
    pub bytes: ByteCount,
    /// What using it streamed takes beside its copy: the temporaries of merging an adapter, a cast.
    pub transient_bytes: ByteCount,
    /// How long the device computes with it, seconds: estimated or measured. Not a number or negative counts as 0.
    pub compute_seconds: f64,
    /// Elements of its weights that an adapter is on; 0 without adapters. Only `largest-first` asks.
    pub patched_elements: u64,
}

impl UnitProfile {
    /// The compute time as a finite number of seconds, at least 0.
    pub(crate) fn compute(&self) -> f64 {
        finite_seconds(self.compute_seconds)
    }

    /// The size where sums may exceed 64 bits.
    pub(crate) fn wide_bytes(&self) -> u128 {
        u128::from(self.bytes.0)
    }
}

/// `seconds` as a finite number, at least 0.
pub(crate) fn finite_seconds(seconds: f64) -> f64 {
    if seconds > 0.0 { seconds.min(SECONDS_MAX) } else { 0.0 }
}

/// A sum as a count; the largest count if it exceeds 64 bits.
pub(crate) fn narrow(bytes: u128) -> ByteCount {
    ByteCount(u64::try_from(bytes).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_times_become_finite() {
        let odd = [f64::NAN, -1.0, -0.0, 2.5, f64::INFINITY, f64::NEG_INFINITY];
        assert_eq!(odd.map(finite_seconds), [0.0, 0.0, 0.0, 2.5, SECONDS_MAX, 0.0]);
    }

    #[test]
    fn sums_saturate() {
        assert_eq!(narrow(7), ByteCount(7));
        assert_eq!(narrow(u128::from(u64::MAX) + 1), ByteCount::MAX);
    }
}
