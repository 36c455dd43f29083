//! Ops that move pixels and channels.

use plimsoll_device::{Operand, ResizeShape};

use crate::error::shape_error;
use crate::{Compute, OpError, Tensor};

impl Compute {
    /// Joins along the innermost axis; all other sizes and the dtype are equal.
    ///
    /// # Errors
    /// [`OpError::Shape`] if they are not.
    pub fn concat(&self, parts: &[&Tensor]) -> Result<Tensor, OpError> {
        let shapes: Vec<_> = parts.iter().map(|part| ("part", part.shape())).collect();
        let error = || shape_error("concat", &shapes, "all sizes but the innermost must be equal, and the dtype");
        let first = parts.first().ok_or_else(error)?;
        let outer = |x: &Tensor| x.shape().split_last().map(|(_, outer)| outer.to_vec());
        if parts.iter().any(|part| outer(part) != outer(first) || part.dtype() != first.dtype()) {
            return Err(error());
        }
        let mut shape = outer(first).ok_or_else(error)?;
        shape.push(parts.iter().map(|part| part.columns()).sum());
        let operands: Vec<(usize, Operand<'_>)> = parts.iter().map(|part| (part.columns(), part.operand())).collect();
        self.produce("concat", &shape, first.dtype(), |kernels, y| {
            Ok(kernels.concat(&**self.queue(), first.row_count(), &operands, y)?)
        })
    }

    /// Nearest resize of `[batch, height, width, channels]` to `[height, width]`.
    ///
    /// # Errors
    /// [`OpError::Shape`] if `x` is no image or the size is zero.
    pub fn resize_nearest(&self, x: &Tensor, size: [usize; 2]) -> Result<Tensor, OpError> {
        let &[batch, height, width, channels] = x.shape() else {
            return Err(shape_error("resize_nearest", &[("x", x.shape())], "`x` must be an image"));
        };
        let shape = ResizeShape { batch, input: [height, width], output: size, channels };
        self.produce("resize_nearest", &[batch, size[0], size[1], channels], x.dtype(), |kernels, y| {
            Ok(kernels.resize_nearest(&**self.queue(), &shape, x.operand(), y)?)
        })
    }

    /// `[batch, h, w, channels * factor^2]` to `[batch, h * factor, w * factor, channels]`, as torch's `pixel_shuffle`
    /// (Shi et al. 2016).
    ///
    /// # Errors
    /// [`OpError::Shape`] if the channels are no multiple of `factor^2`.
    pub fn pixel_shuffle(&self, x: &Tensor, factor: usize) -> Result<Tensor, OpError> {
        let error = || {
            let rule = format!("`x` must be an image with a multiple of {factor} x {factor} channels");
            shape_error("pixel_shuffle", &[("x", x.shape())], rule)
        };
        let &[batch, height, width, stacked] = x.shape() else { return Err(error()) };
        if factor == 0 || !stacked.is_multiple_of(factor * factor) {
            return Err(error());
        }
        let channels = stacked / (factor * factor);
        let output = [height * factor, width * factor];
        let shape = ResizeShape { batch, input: [height, width], output, channels };
        self.produce("pixel_shuffle", &[batch, output[0], output[1], channels], x.dtype(), |kernels, y| {
            Ok(kernels.pixel_shuffle(&**self.queue(), &shape, x.operand(), y)?)
        })
    }
}
