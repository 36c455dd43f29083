//! The layers. Each leases its unit for the duration of its call.

use plimsoll_device::{DType, UploadPiece, WeightForm};
use plimsoll_residency::{Lease, UnitId};
use plimsoll_tensor::{Conv2dSpec, Tensor, Weight};

use crate::{NnError, Run};

/// Where in its unit a tensor lies, and what it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Param {
    offset: usize,
    form: WeightForm,
    dtype: DType,
}

impl Param {
    pub(crate) fn of(piece: &UploadPiece) -> Self {
        Self { offset: piece.offset, form: piece.form, dtype: piece.dtype }
    }

    fn of_lease<'lease>(&self, lease: &'lease Lease<'_>) -> Weight<'lease> {
        Weight::new(lease.buffer(), self.offset, self.form, self.dtype)
    }
}

/// `y = x w^T + bias` over the innermost axis.
#[derive(Debug)]
pub struct Linear {
    pub(crate) unit: UnitId,
    pub(crate) weight: Param,
    pub(crate) bias: Option<Param>,
}

impl Linear {
    /// # Shapes
    /// - `x`: `[.., depth]`
    /// - returns `[.., out]`
    ///
    /// # Errors
    /// [`NnError`] if the weights can't be had or the shapes don't fit.
    pub fn forward(&self, run: &Run<'_>, x: &Tensor) -> Result<Tensor, NnError> {
        let lease = run.lease(self.unit)?;
        let bias = self.bias.map(|bias| bias.of_lease(&lease));
        Ok(run.cx.linear(x, self.weight.of_lease(&lease), bias)?)
    }
}

/// A two-dimensional convolution.
#[derive(Debug)]
pub struct Conv2d {
    linear: Linear,
    spec: Conv2dSpec,
}

impl Conv2d {
    pub(crate) fn new(linear: Linear, spec: Conv2dSpec) -> Self {
        Self { linear, spec }
    }

    /// # Shapes
    /// - `x`: `[batch, height, width, in_channels]`
    /// - returns `[batch, out height, out width, out_channels]`
    ///
    /// # Errors
    /// [`NnError`] if the weights can't be had or the shapes don't fit.
    pub fn forward(&self, run: &Run<'_>, x: &Tensor) -> Result<Tensor, NnError> {
        self.forward_as(run, x, None)
    }

    /// The same on `x` resized (nearest) to `size`, which is never stored.
    ///
    /// # Errors
    /// [`NnError`] if the weights can't be had or the shapes don't fit.
    pub fn forward_resized(&self, run: &Run<'_>, x: &Tensor, size: [usize; 2]) -> Result<Tensor, NnError> {
        self.forward_as(run, x, Some(size))
    }

    fn forward_as(&self, run: &Run<'_>, x: &Tensor, size: Option<[usize; 2]>) -> Result<Tensor, NnError> {
        let lease = run.lease(self.linear.unit)?;
        let bias = self.linear.bias.map(|bias| bias.of_lease(&lease));
        Ok(run.cx.conv2d(x, &self.spec, size, self.linear.weight.of_lease(&lease), bias)?)
    }
}

/// Group normalization.
#[derive(Debug)]
pub struct GroupNorm {
    pub(crate) unit: UnitId,
    pub(crate) scale: Param,
    pub(crate) shift: Param,
    pub(crate) groups: usize,
    pub(crate) epsilon: f32,
}

impl GroupNorm {
    /// # Shapes
    /// - `x`: `[batch, .., channels]`
    /// - returns the same
    ///
    /// # Errors
    /// [`NnError`] if the weights can't be had or the shapes don't fit.
    pub fn forward(&self, run: &Run<'_>, x: &Tensor) -> Result<Tensor, NnError> {
        self.forward_as(run, x, false)
    }

    /// The same, then `silu`.
    ///
    /// # Errors
    /// [`NnError`] if the weights can't be had or the shapes don't fit.
    pub fn forward_silu(&self, run: &Run<'_>, x: &Tensor) -> Result<Tensor, NnError> {
        self.forward_as(run, x, true)
    }

    fn forward_as(&self, run: &Run<'_>, x: &Tensor, silu: bool) -> Result<Tensor, NnError> {
        let lease = run.lease(self.unit)?;
        let (scale, shift) = (self.scale.of_lease(&lease), self.shift.of_lease(&lease));
        Ok(run.cx.group_norm(x, self.groups, self.epsilon, silu, scale, shift)?)
    }
}

/// Layer normalization over the innermost axis.
#[derive(Debug)]
pub struct LayerNorm {
    pub(crate) unit: UnitId,
    pub(crate) scale: Param,
    pub(crate) shift: Param,
    pub(crate) epsilon: f32,
}

impl LayerNorm {
    /// # Shapes
    /// - `x`: `[.., width]`
    /// - returns the same
    ///
    /// # Errors
    /// [`NnError`] if the weights can't be had or the shapes don't fit.
    pub fn forward(&self, run: &Run<'_>, x: &Tensor) -> Result<Tensor, NnError> {
        let lease = run.lease(self.unit)?;
        Ok(run.cx.layer_norm(x, self.epsilon, self.scale.of_lease(&lease), self.shift.of_lease(&lease))?)
    }
}

/// A table of embeddings.
#[derive(Debug)]
pub struct Embedding {
    pub(crate) unit: UnitId,
    pub(crate) table: Param,
}

impl Embedding {
    /// The rows `row_idxs` of the table: `[row_idxs.len(), columns]`.
    ///
    /// # Errors
    /// [`NnError`] if the weights can't be had or an index is beyond the table.
    pub fn forward(&self, run: &Run<'_>, row_idxs: &[u32]) -> Result<Tensor, NnError> {
        let lease = run.lease(self.unit)?;
        Ok(run.cx.gather(self.table.of_lease(&lease), row_idxs)?)
    }
}

/// PReLU with a slope for each channel.
#[derive(Debug)]
pub struct PRelu {
    pub(crate) unit: UnitId,
    pub(crate) slope: Param,
}

impl PRelu {
    /// # Shapes
    /// - `x`: `[.., channels]`
    /// - returns the same, in place when nobody shares `x`
    ///
    /// # Errors
    /// [`NnError`] if the weights can't be had or the shapes don't fit.
    pub fn forward(&self, run: &Run<'_>, x: Tensor) -> Result<Tensor, NnError> {
        let lease = run.lease(self.unit)?;
        Ok(run.cx.prelu(x, self.slope.of_lease(&lease))?)
    }
}
