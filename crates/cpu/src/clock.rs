//! The device's clock: the wall clock's, or, in a rehearsal, one that counts what would have been computed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Whether the device computes or only rehearses, and the time either way.
pub(crate) enum Clock {
    /// Kernels run; time began then.
    Computing(Instant),
    /// Memory is only claimed and kernels don't run; so many thousands of floating-point operations would have.
    Rehearsing(AtomicU64),
}

impl Clock {
    pub(crate) fn computing() -> Self {
        Self::Computing(Instant::now())
    }

    pub(crate) fn rehearsing() -> Self {
        Self::Rehearsing(AtomicU64::new(0))
    }

    pub(crate) fn is_rehearsing(&self) -> bool {
        matches!(self, Self::Rehearsing(_))
    }

    /// Time since the clock began; a rehearsal's advances by a nanosecond each thousand operations.
    pub(crate) fn now(&self) -> Duration {
        match self {
            Self::Computing(began) => began.elapsed(),
            Self::Rehearsing(thousands) => Duration::from_nanos(thousands.load(Ordering::Relaxed)),
        }
    }

    /// Counts what a kernel would have computed in a rehearsal.
    pub(crate) fn rehearse(&self, flops: f64) {
        if let Self::Rehearsing(thousands) = self {
            thousands.fetch_add((flops / 1e3) as u64, Ordering::Relaxed);
        }
    }
}
