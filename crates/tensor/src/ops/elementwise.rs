//! Ops on each number by itself. Those that take a tensor by value work in place when nobody else shares it.

use plimsoll_device::{Activation, DType, Operand};

use super::matrix::vector_operand;
use crate::error::shape_error;
use crate::{Compute, OpError, Tensor, Weight};

impl Compute {
    /// A function of each number.
    ///
    /// # Errors
    /// [`OpError::Device`] if `x` is shared and its copy is over budget.
    pub fn activate(&self, x: Tensor, activation: Activation) -> Result<Tensor, OpError> {
        let len = x.element_count();
        self.change(x, |kernels, y| Ok(kernels.activate(&**self.queue(), activation, len, y)?))
    }

    /// `x + y`, of one shape and dtype.
    ///
    /// # Errors
    /// [`OpError::Shape`] if they differ.
    pub fn add(&self, x: Tensor, y: &Tensor) -> Result<Tensor, OpError> {
        same("add", &[("x", &x), ("y", y)])?;
        let len = x.element_count();
        self.change(x, |kernels, output| Ok(kernels.add(&**self.queue(), len, y.operand(), output)?))
    }

    /// `x[b, .., c] + y[b, c]` for `x` `[batch, .., channels]` and `y` `[batch, channels]`.
    ///
    /// # Errors
    /// [`OpError::Shape`] if batch, channels or dtype differ.
    pub fn add_per_batch(&self, x: Tensor, y: &Tensor) -> Result<Tensor, OpError> {
        let fits = x.shape().len() >= 2 && y.shape() == [x.shape()[0], x.columns()] && x.dtype() == y.dtype();
        if !fits {
            let rule = "`y` must be `[batch, channels]` of `x` in its dtype";
            return Err(shape_error("add_per_batch", &[("x", x.shape()), ("y", y.shape())], rule));
        }
        let (batch, columns) = (x.shape()[0], x.columns());
        let rows = x.row_count() / batch;
        self.change(x, |kernels, output| {
            Ok(kernels.add_per_batch(&**self.queue(), batch, rows, columns, y.operand(), output)?)
        })
    }

    /// The sum of `factor * x` over the terms, which have one shape and dtype.
    ///
    /// # Errors
    /// [`OpError::Shape`] if they differ or there are none.
    pub fn combine(&self, terms: &[(f32, &Tensor)]) -> Result<Tensor, OpError> {
        let Some((_, first)) = terms.first() else {
            return Err(shape_error("combine", &[], "there must be a term"));
        };
        same("combine", &terms.iter().map(|(_, x)| ("x", *x)).collect::<Vec<_>>())?;
        let operands: Vec<(f32, Operand<'_>)> = terms.iter().map(|(factor, x)| (*factor, x.operand())).collect();
        self.produce("combine", first.shape(), first.dtype(), |kernels, y| {
            Ok(kernels.combine(&**self.queue(), first.element_count(), &operands, y)?)
        })
    }

    /// `a * gelu(b)` for `x = [a, b]` on the innermost axis, which it halves. (Shazeer 2020, GEGLU, with diffusers'
    /// order of the halves.)
    ///
    /// # Errors
    /// [`OpError::Shape`] if that axis is odd.
    pub fn geglu(&self, x: &Tensor) -> Result<Tensor, OpError> {
        let columns = x.columns() / 2;
        if !x.columns().is_multiple_of(2) || columns == 0 {
            return Err(shape_error("geglu", &[("x", x.shape())], "the innermost axis must be even"));
        }
        let mut shape = x.shape().to_vec();
        *shape.last_mut().expect("an even innermost axis exists") = columns;
        self.produce("geglu", &shape, x.dtype(), |kernels, y| {
            Ok(kernels.geglu(&**self.queue(), x.row_count(), columns, x.operand(), y)?)
        })
    }

    /// `x < 0 ? slope * x : x` with a slope for each channel. (He et al. 2015.)
    ///
    /// # Errors
    /// [`OpError::Shape`] if there are not as many slopes as channels.
    pub fn prelu(&self, x: Tensor, slope: Weight<'_>) -> Result<Tensor, OpError> {
        let (rows, columns) = (x.row_count(), x.columns());
        let slope = vector_operand("prelu", "slope", slope, columns)?;
        self.change(x, |kernels, y| Ok(kernels.prelu(&**self.queue(), rows, columns, slope, y)?))
    }

    /// A copy in that dtype; rounds to nearest even.
    ///
    /// # Errors
    /// [`OpError::Shape`] for f16, which occurs in files only.
    pub fn convert(&self, x: &Tensor, dtype: DType) -> Result<Tensor, OpError> {
        if dtype == DType::F16 {
            return Err(shape_error("convert", &[("x", x.shape())], "f16 occurs in files only; use f32 or bf16"));
        }
        self.produce("convert", x.shape(), dtype, |kernels, y| {
            Ok(kernels.convert(&**self.queue(), x.element_count(), x.operand(), y)?)
        })
    }
}

/// Refuses operands that differ in shape or dtype.
fn same(op: &'static str, operands: &[(&str, &Tensor)]) -> Result<(), OpError> {
    let first = operands[0].1;
    if operands.iter().all(|(_, x)| x.shape() == first.shape() && x.dtype() == first.dtype()) {
        return Ok(());
    }
    let shapes: Vec<_> = operands.iter().map(|(name, x)| (*name, x.shape())).collect();
    Err(shape_error(op, &shapes, "the operands must have one shape and one dtype"))
}
