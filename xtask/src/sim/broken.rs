//! The invariants, by number, and how a broken one is told.

use std::fmt;

/// What must always hold. The numbers are those of the list of invariants in the engine's reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Invariant {
    /// 1. No kernel reads bytes before their copy has completed, nor after a later write began.
    ReadsAreOrdered,
    /// 2. No bytes are freed or reused before the last reader's event.
    ReuseIsOrdered,
    /// 3. Accounts sum to the live allocations, also after failures, and components are as their plans say.
    AccountsAreExact,
    /// 4. What is in use stays below the line.
    BelowTheLine,
    /// 5. Each operation sees the unit with every active adapter exactly once.
    AdaptersApplyOnce,
    /// 6. Every component that holds bytes is reached by eviction.
    EverythingIsEvictable,
    /// 7. Plans nest, and fit what they were made for.
    PlansNest,
    /// 8. A constant workload copies each streamed unit once a pass, and residency recovers.
    NoThrash,
    /// 9. Work goes on to its end, or is refused with the exact shortfall.
    Progress,
    /// 10. What is computed does not depend on budget, ring, streams, policy or tier.
    SameBits,
    /// 11. Cancellation gives everything back.
    CancelReturnsAll,
    /// 12. What is reserved can be had.
    ReservationsHold,
    /// 13. The same seed gives the same history.
    Replays,
    /// Nothing panics. Without a number: it goes without saying.
    NoPanic,
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPanic => write!(f, "no panic"),
            numbered => write!(f, "{} {numbered:?}", *numbered as u8 + 1),
        }
    }
}

/// An invariant does not hold.
#[derive(Clone, Debug)]
pub(crate) struct Broken {
    pub(crate) invariant: Invariant,
    pub(crate) message: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invariant {}: {}", self.invariant, self.message)
    }
}

/// The outcome of something that was checked.
pub(crate) type Checked<T = ()> = Result<T, Broken>;

/// Says that `invariant` is broken unless `holds`.
pub(crate) fn ensure(holds: bool, invariant: Invariant, message: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { broken(invariant, message()) }
}

pub(crate) fn broken<T>(invariant: Invariant, message: impl Into<String>) -> Checked<T> {
    Err(Broken { invariant, message: message.into() })
}
