//! Which weights are where, and who may use them.
//!
//! A component is a list of [`Unit`]s in visiting order. A [`Plan`] says, for one budget, which of them stay on the
//! device and how large the ring is that the others pass through; it is a value. A [`Component`] carries a plan out:
//! [`Component::lease`] gives the right to read one unit's weights on the compute queue, and ends on drop.
//!
//! What always holds:
//! - A weight is read only through a [`Lease`], which can't outlive its component.
//! - A slot of the ring is owned by the free list, by the copy that fills it, or by the lease that reads it, never by
//!   two of them; its next copy waits, on the copy queue, for the `consumed` event of its last lease.
//! - Host weights are immutable: giving device bytes back is a drop, never a copy.
//!
//! Knows no model, no adapter, no tensor: a unit is bytes and a way to copy them in.

#![forbid(unsafe_code)]

mod component;
mod lease;
mod plan;
mod ring;
mod unit;

pub use component::{Component, LoadError};
pub use lease::{Lease, LeaseError};
pub use plan::{DoesNotFit, Plan, plan};
pub use unit::{Unit, UnitId};
