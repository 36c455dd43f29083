//! How stored weights become device weights.

use std::sync::Arc;

use crate::{DType, HostBytes};

/// What a stored tensor becomes on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightForm {
    /// The right-hand side of a matrix product or convolution, in the backend's own packed layout.
    ///
    /// Stored as `[out, depth, taps]`, row-major: a linear layer has one tap; a convolution `[out, in, kh, kw]` has
    /// `depth = in` and `taps = kh * kw`.
    Matrix {
        /// Output features or channels.
        out: usize,
        /// Input features or channels.
        depth: usize,
        /// Kernel positions, 1 for a linear layer.
        taps: usize,
    },
    /// Row-major as stored, in the compute dtype: an embedding table, `[rows, columns]`.
    Table {
        /// Rows.
        rows: usize,
        /// Numbers in a row.
        columns: usize,
    },
    /// A vector, always kept as f32: a bias, a norm's scale or shift, a PReLU's slopes.
    Vector {
        /// Numbers.
        len: usize,
    },
}

impl WeightForm {
    /// Numbers in the stored tensor.
    pub fn element_count(&self) -> usize {
        match *self {
            Self::Matrix { out, depth, taps } => out * depth * taps,
            Self::Table { rows, columns } => rows * columns,
            Self::Vector { len } => len,
        }
    }
}

/// One stored tensor and where it goes.
#[derive(Clone)]
pub struct UploadPiece {
    /// The stored bytes: `form.element_count()` numbers of `source_dtype`, little-endian.
    pub source: Arc<dyn HostBytes>,
    /// How they are stored.
    pub source_dtype: DType,
    /// What they become.
    pub form: WeightForm,
    /// The compute dtype. A [`WeightForm::Vector`] becomes f32 whatever it says.
    pub dtype: DType,
    /// Where it goes, in bytes from the start of the destination; a multiple of 64.
    pub offset: usize,
}

/// The stored tensors of one unit, copied in together.
#[derive(Clone)]
pub struct Upload {
    /// The unit's name, for errors.
    pub name: String,
    /// Its tensors.
    pub pieces: Vec<UploadPiece>,
}
