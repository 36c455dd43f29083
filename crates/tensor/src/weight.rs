//! A weight, as long as somebody's lease on it lasts.

use plimsoll_device::{Buffer, DType, Operand, WeightForm};

/// A device weight borrowed from a lease: it can't outlive it.
#[derive(Clone, Copy)]
pub struct Weight<'lease> {
    buffer: &'lease Buffer,
    offset: usize,
    form: WeightForm,
    dtype: DType,
}

impl<'lease> Weight<'lease> {
    /// The weight of that form at byte `offset` of a leased unit.
    pub fn new(buffer: &'lease Buffer, offset: usize, form: WeightForm, dtype: DType) -> Self {
        let dtype = if matches!(form, WeightForm::Vector { .. }) { DType::F32 } else { dtype };
        Self { buffer, offset, form, dtype }
    }

    /// What it is.
    pub fn form(&self) -> WeightForm {
        self.form
    }

    /// Its number format; vectors are always f32.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The shape to name in an error.
    pub(crate) fn shape(&self) -> Vec<usize> {
        match self.form {
            WeightForm::Matrix { out, depth, taps: 1 } => vec![out, depth],
            WeightForm::Matrix { out, depth, taps } => vec![out, depth, taps],
            WeightForm::Table { rows, columns } => vec![rows, columns],
            WeightForm::Vector { len } => vec![len],
        }
    }

    pub(crate) fn operand(&self) -> Operand<'lease> {
        Operand { buffer: self.buffer, offset: self.offset, dtype: self.dtype }
    }
}
