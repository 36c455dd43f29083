//! A value in device memory.

use std::sync::Arc;

use plimsoll_device::{Buffer, DType, Operand};

use crate::OpError;
use crate::error::shape_error;

/// A row-major, contiguous value in device memory. Clones share the memory; it is freed with the last of them.
#[derive(Clone, Debug)]
pub struct Tensor {
    buffer: Arc<Buffer>,
    offset: usize,
    shape: Vec<usize>,
    dtype: DType,
}

impl Tensor {
    /// Takes over a buffer that holds the numbers from its start on.
    pub(crate) fn from_buffer(buffer: Buffer, shape: Vec<usize>, dtype: DType) -> Self {
        Self { buffer: Arc::new(buffer), offset: 0, shape, dtype }
    }

    /// The sizes, outermost first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The number format.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// How many numbers it has.
    pub fn element_count(&self) -> usize {
        self.shape.iter().product()
    }

    /// The size of the innermost axis: channels of an image, features of a token.
    pub fn columns(&self) -> usize {
        self.shape.last().copied().unwrap_or(1)
    }

    /// The product of all sizes but the innermost.
    pub fn row_count(&self) -> usize {
        self.element_count() / self.columns()
    }

    /// The same numbers under another shape of as many elements. Moves nothing.
    ///
    /// # Errors
    /// [`OpError::Shape`] if the element counts differ.
    pub fn reshape(mut self, shape: &[usize]) -> Result<Self, OpError> {
        if shape.iter().product::<usize>() != self.element_count() {
            return Err(shape_error("reshape", &[("x", &self.shape), ("to", shape)], "element counts must be equal"));
        }
        self.shape = shape.to_vec();
        Ok(self)
    }

    /// The entries `start .. start + len` of the outermost axis, sharing the memory.
    ///
    /// # Errors
    /// [`OpError::Shape`] if they reach beyond the axis.
    pub fn rows(&self, start: usize, len: usize) -> Result<Self, OpError> {
        let [outermost, inner @ ..] = self.shape.as_slice() else {
            return Err(shape_error("rows", &[("x", &self.shape)], "a scalar has no axis"));
        };
        if len == 0 || start.checked_add(len).is_none_or(|end| end > *outermost) {
            let rule = format!("rows {start} to {start} + {len} must be within the outermost axis");
            return Err(shape_error("rows", &[("x", &self.shape)], rule));
        }
        let row_bytes = inner.iter().product::<usize>() * self.dtype.size();
        let mut shape = self.shape.clone();
        shape[0] = len;
        Ok(Self { buffer: self.buffer.clone(), offset: self.offset + start * row_bytes, shape, dtype: self.dtype })
    }

    /// The numbers, for a kernel.
    pub(crate) fn operand(&self) -> Operand<'_> {
        Operand { buffer: &self.buffer, offset: self.offset, dtype: self.dtype }
    }

    /// The buffer for writing, if nobody else shares it and it begins with this tensor.
    pub(crate) fn exclusive(&mut self) -> Option<&mut Buffer> {
        if self.offset != 0 {
            return None;
        }
        Arc::get_mut(&mut self.buffer)
    }

    pub(crate) fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    pub(crate) fn offset(&self) -> usize {
        self.offset
    }
}
