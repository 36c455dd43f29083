//! The operations a device can run, as descriptions of raw memory.
//!
//! Shapes are checked by the tensor layer; a backend may assert them. Images are channels-last,
//! `[batch, height, width, channels]`; everything is row-major and contiguous. Inputs and outputs of one call have
//! one dtype, f32 or bf16, unless the method says otherwise; sums are accumulated in f32 or better. Scratch memory is
//! allocated from the same budget (account `workspace`) and freed on return.

use crate::{Buffer, DType, DeviceError, Queue};

/// Fewer numbers than this has every input and output of an operation: kernels may count them in 32 bits.
pub const OPERAND_LEN_LIMIT: usize = u32::MAX as usize;

/// Numbers that an operation reads: `buffer` from byte `offset` on.
#[derive(Clone, Copy)]
pub struct Operand<'a> {
    /// Where they are.
    pub buffer: &'a Buffer,
    /// First byte.
    pub offset: usize,
    /// Their format.
    pub dtype: DType,
}

/// Numbers that an operation writes: `buffer` from its start on.
pub struct Output<'a> {
    /// Where they go.
    pub buffer: &'a mut Buffer,
    /// Their format.
    pub dtype: DType,
}

/// `[rows, depth] x [depth, out] -> [rows, out]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatmulShape {
    /// Rows of the input.
    pub rows: usize,
    /// Features of the input.
    pub depth: usize,
    /// Features of the output.
    pub out: usize,
}

impl MatmulShape {
    /// Floating-point operations: a multiplication and an addition for each pair.
    pub fn flops(&self) -> f64 {
        2.0 * self.rows as f64 * self.depth as f64 * self.out as f64
    }
}

/// A two-dimensional convolution over `[batch, height, width, in_channels]`.
///
/// The input may be resized (nearest) to `resized` before the convolution without being stored in that size: source
/// row = `floor(row * (height / resized height))` in f32, at most `height - 1`, as torch's
/// `interpolate(mode="nearest")`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvShape {
    /// Images.
    pub batch: usize,
    /// `[height, width]` as stored.
    pub input: [usize; 2],
    /// `[height, width]` as seen by the kernel; equal to `input` when nothing is resized.
    pub resized: [usize; 2],
    /// Channels of the input.
    pub in_channels: usize,
    /// Channels of the output.
    pub out_channels: usize,
    /// `[height, width]` of the kernel.
    pub kernel: [usize; 2],
    /// Step between kernel positions, both ways.
    pub stride: usize,
    /// Step between taps, both ways.
    pub dilation: usize,
    /// Zeros added at `[top, bottom, left, right]`.
    pub padding: [usize; 4],
}

impl ConvShape {
    /// `[height, width]` of the output: `floor((size + padding - dilation * (kernel - 1) - 1) / stride) + 1`, or
    /// `None` if the kernel is larger than the padded input.
    pub fn output(&self) -> Option<[usize; 2]> {
        let [top, bottom, left, right] = self.padding;
        let along = |size: usize, padding: usize, kernel: usize| {
            let reach = self.dilation * kernel.checked_sub(1)? + 1;
            Some((size + padding).checked_sub(reach)?.checked_div(self.stride)? + 1)
        };
        Some([
            along(self.resized[0], top + bottom, self.kernel[0])?,
            along(self.resized[1], left + right, self.kernel[1])?,
        ])
    }

    /// Floating-point operations; none if the kernel does not fit.
    pub fn flops(&self) -> f64 {
        let [height, width] = self.output().unwrap_or_default();
        let pixels = self.batch as f64 * height as f64 * width as f64;
        let taps = self.kernel[0] as f64 * self.kernel[1] as f64;
        2.0 * pixels * taps * self.in_channels as f64 * self.out_channels as f64
    }
}

/// `softmax(scale * q k^T) v` per batch and head. `q` and the output are `[batch, q_len, heads * head_dim]`, `k` and
/// `v` are `[batch, kv_len, heads * head_dim]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionShape {
    /// Sequences.
    pub batch: usize,
    /// Heads.
    pub heads: usize,
    /// Features of a head.
    pub head_dim: usize,
    /// Queries.
    pub q_len: usize,
    /// Keys and values.
    pub kv_len: usize,
    /// Whether query `i` sees only keys `0..=i`.
    pub causal: bool,
    /// Factor on the scores.
    pub scale: f32,
}

impl AttentionShape {
    /// Floating-point operations of the two products; a causal mask saves none of them here.
    pub fn flops(&self) -> f64 {
        let width = self.heads as f64 * self.head_dim as f64;
        4.0 * self.batch as f64 * self.q_len as f64 * self.kv_len as f64 * width
    }
}

/// Group normalization over `[batch, pixels, channels]`, with SiLU behind it if asked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupNormShape {
    /// Images.
    pub batch: usize,
    /// Pixels or tokens of an image.
    pub pixels: usize,
    /// Channels, a multiple of `groups`.
    pub channels: usize,
    /// Groups of adjacent channels.
    pub groups: usize,
    /// Added to the variance.
    pub epsilon: f32,
    /// Whether `silu` is applied to the result.
    pub silu: bool,
}

/// A change of an image's size: `[batch, height, width, channels]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResizeShape {
    /// Images.
    pub batch: usize,
    /// `[height, width]` of the input.
    pub input: [usize; 2],
    /// `[height, width]` of the output.
    pub output: [usize; 2],
    /// Channels.
    pub channels: usize,
}

/// A function of one number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Activation {
    /// `x * sigmoid(x)`.
    Silu,
    /// `x * sigmoid(1.702 x)`.
    QuickGelu,
    /// `x * (1 + erf(x / sqrt 2)) / 2`.
    Gelu,
    /// `x * (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2`.
    GeluTanh,
    /// `scale * x + shift`.
    Affine {
        /// Factor.
        scale: f32,
        /// Summand.
        shift: f32,
    },
}

/// The operations. Each enqueues on `queue` and fails only for want of memory or when the device is lost.
#[allow(clippy::too_many_arguments)]
pub trait Kernels: Send + Sync {
    /// `y = x w + bias`; `w` is a packed [`WeightForm::Matrix`](crate::WeightForm::Matrix) of `x`'s dtype, `bias` f32.
    fn matmul(
        &self,
        queue: &dyn Queue,
        shape: &MatmulShape,
        x: Operand<'_>,
        w: Operand<'_>,
        bias: Option<Operand<'_>>,
        y: Output<'_>,
    ) -> Result<(), DeviceError>;

    /// Convolution; `w` packed, `bias` f32.
    fn conv2d(
        &self,
        queue: &dyn Queue,
        shape: &ConvShape,
        x: Operand<'_>,
        w: Operand<'_>,
        bias: Option<Operand<'_>>,
        y: Output<'_>,
    ) -> Result<(), DeviceError>;

    /// Attention.
    fn attention(
        &self,
        queue: &dyn Queue,
        shape: &AttentionShape,
        q: Operand<'_>,
        k: Operand<'_>,
        v: Operand<'_>,
        y: Output<'_>,
    ) -> Result<(), DeviceError>;

    /// Group normalization; `scale` and `shift` are f32 `[channels]`.
    fn group_norm(
        &self,
        queue: &dyn Queue,
        shape: &GroupNormShape,
        x: Operand<'_>,
        scale: Operand<'_>,
        shift: Operand<'_>,
        y: Output<'_>,
    ) -> Result<(), DeviceError>;

    /// Layer normalization of each of `rows` rows of `columns` numbers; `scale` and `shift` are f32 `[columns]`.
    fn layer_norm(
        &self,
        queue: &dyn Queue,
        rows: usize,
        columns: usize,
        epsilon: f32,
        x: Operand<'_>,
        scale: Operand<'_>,
        shift: Operand<'_>,
        y: Output<'_>,
    ) -> Result<(), DeviceError>;

    /// Applies a function to `len` numbers in place.
    fn activate(&self, queue: &dyn Queue, activation: Activation, len: usize, y: Output<'_>)
    -> Result<(), DeviceError>;

    /// `y += x`, `len` numbers.
    fn add(&self, queue: &dyn Queue, len: usize, x: Operand<'_>, y: Output<'_>) -> Result<(), DeviceError>;

    /// `y[b, r, c] += x[b, c]` for `[batch, rows, columns]`.
    fn add_per_batch(
        &self,
        queue: &dyn Queue,
        batch: usize,
        rows: usize,
        columns: usize,
        x: Operand<'_>,
        y: Output<'_>,
    ) -> Result<(), DeviceError>;

    /// `y = sum of factor * x` over the terms, `len` numbers; at least one term.
    fn combine(
        &self,
        queue: &dyn Queue,
        len: usize,
        terms: &[(f32, Operand<'_>)],
        y: Output<'_>,
    ) -> Result<(), DeviceError>;

    /// `y[r, c] = x[r, c] * gelu(x[r, columns + c])` for `x` of `[rows, 2 * columns]`.
    fn geglu(
        &self,
        queue: &dyn Queue,
        rows: usize,
        columns: usize,
        x: Operand<'_>,
        y: Output<'_>,
    ) -> Result<(), DeviceError>;

    /// `y[r, c] = x[r, c] < 0 ? slope[c] * x[r, c] : x[r, c]` in place; `slope` is f32 `[columns]`.
    fn prelu(
        &self,
        queue: &dyn Queue,
        rows: usize,
        columns: usize,
        slope: Operand<'_>,
        y: Output<'_>,
    ) -> Result<(), DeviceError>;

    /// Nearest resize, as torch's `interpolate(mode="nearest")`.
    fn resize_nearest(
        &self,
        queue: &dyn Queue,
        shape: &ResizeShape,
        x: Operand<'_>,
        y: Output<'_>,
    ) -> Result<(), DeviceError>;

    /// torch's `pixel_shuffle` in channels-last: `[batch, h, w, channels * factor^2]` to
    /// `[batch, h * factor, w * factor, channels]`; input channel `c * factor^2 + dy * factor + dx`. `shape.output` is
    /// `factor * shape.input`, `shape.channels` are the output's.
    fn pixel_shuffle(
        &self,
        queue: &dyn Queue,
        shape: &ResizeShape,
        x: Operand<'_>,
        y: Output<'_>,
    ) -> Result<(), DeviceError>;

    /// Joins rows: `y[r] = [parts[0][r], parts[1][r], ..]`, each part given with its columns.
    fn concat(
        &self,
        queue: &dyn Queue,
        rows: usize,
        parts: &[(usize, Operand<'_>)],
        y: Output<'_>,
    ) -> Result<(), DeviceError>;

    /// `y[i] = table[row_idxs[i]]`; `table` is a [`WeightForm::Table`](crate::WeightForm::Table). The indexes are in
    /// range.
    fn gather(
        &self,
        queue: &dyn Queue,
        columns: usize,
        row_idxs: &[u32],
        table: Operand<'_>,
        y: Output<'_>,
    ) -> Result<(), DeviceError>;

    /// Copies `len` numbers, converting between f32 and bf16 (round to nearest even) where the dtypes differ.
    fn convert(&self, queue: &dyn Queue, len: usize, x: Operand<'_>, y: Output<'_>) -> Result<(), DeviceError>;
}
