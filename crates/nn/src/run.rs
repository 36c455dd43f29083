//! One pass through a model.

use plimsoll_residency::{Component, Lease, LeaseError, UnitId};
use plimsoll_tensor::{Compute, OpError};

/// What a forward pass works with: where ops run, and whose weights they may lease.
#[derive(Clone, Copy)]
pub struct Run<'a> {
    /// Where ops run.
    pub cx: &'a Compute,
    /// The loaded component the model's layers belong to.
    pub weights: &'a Component,
}

/// A layer could not be run.
#[derive(Clone, Debug, thiserror::Error)]
pub enum NnError {
    /// Its weights could not be had.
    #[error(transparent)]
    Lease(#[from] LeaseError),
    /// An op failed.
    #[error(transparent)]
    Op(#[from] OpError),
}

impl<'a> Run<'a> {
    /// The right to read a layer's weights while the lease lives.
    pub(crate) fn lease(&self, unit: UnitId) -> Result<Lease<'a>, LeaseError> {
        self.weights.lease(unit, self.cx.queue())
    }
}
