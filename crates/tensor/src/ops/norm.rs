//! Normalizations.

use plimsoll_device::GroupNormShape;

use super::matrix::vector_operand;
use crate::error::shape_error;
use crate::{Compute, OpError, Tensor, Weight};

impl Compute {
    /// Group normalization of `[batch, .., channels]` over groups of adjacent channels and all axes between, then
    /// `silu` if asked. (Wu and He 2018; torch's `group_norm`.)
    ///
    /// # Errors
    /// [`OpError::Shape`] if the channels are no multiple of `groups`, or `scale` and `shift` not as many.
    pub fn group_norm(
        &self,
        x: &Tensor,
        groups: usize,
        epsilon: f32,
        silu: bool,
        scale: Weight<'_>,
        shift: Weight<'_>,
    ) -> Result<Tensor, OpError> {
        let channels = x.columns();
        if x.shape().len() < 2 || groups == 0 || !channels.is_multiple_of(groups) {
            let rule = format!("`x` must be `[batch, .., channels]` with a multiple of {groups} channels");
            return Err(shape_error("group_norm", &[("x", x.shape())], rule));
        }
        let scale = vector_operand("group_norm", "scale", scale, channels)?;
        let shift = vector_operand("group_norm", "shift", shift, channels)?;
        let batch = x.shape()[0];
        let shape = GroupNormShape { batch, pixels: x.row_count() / batch, channels, groups, epsilon, silu };
        self.produce("group_norm", x.shape(), x.dtype(), |kernels, y| {
            Ok(kernels.group_norm(&**self.queue(), &shape, x.operand(), scale, shift, y)?)
        })
    }

    /// Layer normalization over the innermost axis. (Ba, Kiros, Hinton 2016; torch's `layer_norm`.)
    ///
    /// # Errors
    /// [`OpError::Shape`] if `scale` and `shift` don't have as many numbers as that axis.
    pub fn layer_norm(
        &self,
        x: &Tensor,
        epsilon: f32,
        scale: Weight<'_>,
        shift: Weight<'_>,
    ) -> Result<Tensor, OpError> {
        let columns = x.columns();
        let scale = vector_operand("layer_norm", "scale", scale, columns)?;
        let shift = vector_operand("layer_norm", "shift", shift, columns)?;
        self.produce("layer_norm", x.shape(), x.dtype(), |kernels, y| {
            let (rows, queue) = (x.row_count(), &**self.queue());
            Ok(kernels.layer_norm(queue, rows, columns, epsilon, x.operand(), scale, shift, y)?)
        })
    }
}
