//! Which weights are where, and who may use them.
//!
//! A [`Component`] is a list of [`Unit`]s in visiting order, with one owner. A [`Planner`] ranks its units once, in the
//! order in which they become streamed as the budget shrinks, and has a [`Plan`] for every budget: which units stay on
//! the device, and how large the ring is that the others pass through. Both are values. The [`Manager`] carries plans
//! out: it loads components together, lets them grow and shrink with the budget, and evicts what is used last.
//! [`Component::lease`] gives the right to read one unit's weights, and ends on drop.
//!
//! What always holds:
//! - A weight is read only through a [`Lease`], which can't outlive its component.
//! - A byte of the ring is owned by the copy that fills it or by the lease that reads it, never by two of them; its next
//!   copy waits, on the copy queue, for the events of its last readers.
//! - Host weights are immutable: giving device bytes back is a drop, never a copy.
//! - Whatever fails, each component is as a plan says or at rest, and all its bytes are booked.
//!
//! Knows no model, no adapter, no tensor: a unit is bytes and a way to copy them in.

#![forbid(unsafe_code)]

mod activation_peaks;
mod chain;
mod change;
mod component;
mod largest_first;
mod lease;
mod load_error;
mod manager;
mod patch;
mod plan;
mod planner;
pub mod predict;
mod profile;
mod rank;
mod registry;
mod ring;
mod share;
mod timings;
mod unit;
mod window;

pub use activation_peaks::{ActivationPeaks, PeakKey};
pub use component::{Component, ComponentReport};
pub use lease::{Lease, LeaseError};
pub use load_error::LoadError;
pub use manager::{HoldReport, LoadRequest, Loaded, Manager, ManagerOptions, ManagerReport, Wanted};
pub use patch::{Merge, Patch, PatchSet, PatchSetId};
pub use plan::{DoesNotFit, Lookahead, Plan};
pub use planner::{PlanOptions, Planner, Policy, RankCandidate, UnknownPolicy};
pub use predict::Link;
pub use profile::UnitProfile;
pub use rank::{Rank, RankOrder};
pub use registry::Registry;
pub use timings::Traffic;
pub use unit::{Unit, UnitId};
