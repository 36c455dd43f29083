//! Products with weights, and attention.

use plimsoll_device::{AttentionShape, ConvShape, DType, MatmulShape, Operand, WeightForm};

use crate::error::shape_error;
use crate::{Compute, OpError, Tensor, Weight};

/// The geometry of a convolution beside its weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conv2dSpec {
    /// Channels of the input.
    pub in_channels: usize,
    /// Channels of the output.
    pub out_channels: usize,
    /// `[height, width]` of the kernel.
    pub kernel: [usize; 2],
    /// Step between kernel positions, both ways.
    pub stride: usize,
    /// Zeros added at `[top, bottom, left, right]`.
    pub padding: [usize; 4],
}

impl Compute {
    /// `x w^T + bias` over the innermost axis: `[.., depth]` to `[.., out]`.
    ///
    /// # Errors
    /// [`OpError::Shape`] if `w` is no `[out, depth]` matrix of `x`'s dtype, or `bias` no `[out]`.
    pub fn linear(&self, x: &Tensor, w: Weight<'_>, bias: Option<Weight<'_>>) -> Result<Tensor, OpError> {
        let (out, depth) = match w.form() {
            WeightForm::Matrix { out, depth, taps: 1 } if depth == x.columns() && w.dtype() == x.dtype() => {
                (out, depth)
            }
            _ => return Err(weight_error("linear", x, w, "`w` must be `[out, columns of x]` of the same dtype")),
        };
        let bias = bias_operand("linear", bias, out)?;
        let shape = MatmulShape { rows: x.row_count(), depth, out };
        let mut output_shape = x.shape().to_vec();
        *output_shape.last_mut().expect("`x` has a column axis, for its columns equal `depth`") = out;
        self.produce("linear", &output_shape, x.dtype(), |kernels, y| {
            Ok(kernels.matmul(&**self.queue(), &shape, x.operand(), w.operand(), bias, y)?)
        })
    }

    /// Convolution of `[batch, height, width, in_channels]`, seen as resized (nearest) to `resized` if given.
    ///
    /// # Errors
    /// [`OpError::Shape`] if `x`, `w`, `bias` don't fit `spec`, or the kernel is larger than the padded input.
    pub fn conv2d(
        &self,
        x: &Tensor,
        spec: &Conv2dSpec,
        resized: Option<[usize; 2]>,
        w: Weight<'_>,
        bias: Option<Weight<'_>>,
    ) -> Result<Tensor, OpError> {
        let form = WeightForm::Matrix {
            out: spec.out_channels,
            depth: spec.in_channels,
            taps: spec.kernel[0] * spec.kernel[1],
        };
        let &[batch, height, width, channels] = x.shape() else {
            return Err(weight_error("conv2d", x, w, "`x` must be `[batch, height, width, channels]`"));
        };
        if channels != spec.in_channels || w.form() != form || w.dtype() != x.dtype() {
            return Err(weight_error("conv2d", x, w, format!("both must have one dtype and fit {spec:?}")));
        }
        let shape = ConvShape {
            batch,
            input: [height, width],
            resized: resized.unwrap_or([height, width]),
            in_channels: spec.in_channels,
            out_channels: spec.out_channels,
            kernel: spec.kernel,
            stride: spec.stride,
            dilation: 1,
            padding: spec.padding,
        };
        let Some([out_height, out_width]) = shape.output() else {
            return Err(weight_error("conv2d", x, w, format!("the kernel exceeds the padded input of {spec:?}")));
        };
        let bias = bias_operand("conv2d", bias, spec.out_channels)?;
        let output_shape = [batch, out_height, out_width, spec.out_channels];
        self.produce("conv2d", &output_shape, x.dtype(), |kernels, y| {
            Ok(kernels.conv2d(&**self.queue(), &shape, x.operand(), w.operand(), bias, y)?)
        })
    }

    /// `softmax(q k^T / sqrt(head_dim)) v` for `heads` heads: `q` `[batch, q_len, width]`, `k` and `v`
    /// `[batch, kv_len, width]`, to `[batch, q_len, width]`. With `causal`, query `i` sees keys `0..=i`.
    ///
    /// # Errors
    /// [`OpError::Shape`] if the shapes disagree, or `width` is no multiple of `heads`.
    pub fn attention(&self, q: &Tensor, k: &Tensor, v: &Tensor, heads: usize, causal: bool) -> Result<Tensor, OpError> {
        let error = |rule: &str| {
            shape_error("attention", &[("q", q.shape()), ("k", k.shape()), ("v", v.shape())], rule.to_owned())
        };
        let (&[batch, q_len, width], &[kv_batch, kv_len, kv_width]) = (q.shape(), k.shape()) else {
            return Err(error("each must be `[batch, length, width]`"));
        };
        if k.shape() != v.shape() || kv_batch != batch || kv_width != width {
            return Err(error("batch and width must agree, and `k` and `v` be alike"));
        }
        if q.dtype() != k.dtype() || k.dtype() != v.dtype() {
            return Err(error("the dtypes must agree"));
        }
        if heads == 0 || !width.is_multiple_of(heads) {
            return Err(error(&format!("the width must be a multiple of {heads} heads")));
        }
        let head_dim = width / heads;
        let scale = 1.0 / (head_dim as f32).sqrt();
        let shape = AttentionShape { batch, heads, head_dim, q_len, kv_len, causal, scale };
        self.produce("attention", q.shape(), q.dtype(), |kernels, y| {
            Ok(kernels.attention(&**self.queue(), &shape, q.operand(), k.operand(), v.operand(), y)?)
        })
    }

    /// The rows of an embedding table, `[.., rows]` indexes to `[row_idxs.len(), columns]`.
    ///
    /// # Errors
    /// [`OpError::Shape`] if `table` is no table, or an index is beyond its rows.
    pub fn gather(&self, table: Weight<'_>, row_idxs: &[u32]) -> Result<Tensor, OpError> {
        let operands_error =
            |rule: String| shape_error("gather", &[("table", &table.shape()), ("row_idxs", &[row_idxs.len()])], rule);
        let WeightForm::Table { rows, columns } = table.form() else {
            return Err(operands_error("`table` must be a table".to_owned()));
        };
        if let Some(beyond) = row_idxs.iter().find(|&&idx| idx as usize >= rows) {
            return Err(operands_error(format!("index {beyond} is beyond the table's {rows} rows")));
        }
        self.produce("gather", &[row_idxs.len(), columns], table.dtype(), |kernels, y| {
            Ok(kernels.gather(&**self.queue(), columns, row_idxs, table.operand(), y)?)
        })
    }
}

fn bias_operand<'lease>(
    op: &'static str,
    bias: Option<Weight<'lease>>,
    out: usize,
) -> Result<Option<Operand<'lease>>, OpError> {
    match bias {
        Some(bias) if bias.form() != (WeightForm::Vector { len: out }) => {
            Err(shape_error(op, &[("bias", &bias.shape())], format!("`bias` must be a vector of {out}")))
        }
        bias => Ok(bias.map(|bias| bias.operand())),
    }
}

fn weight_error(op: &'static str, x: &Tensor, w: Weight<'_>, rule: impl Into<String>) -> OpError {
    let rule = format!("{} (`x` is {}, `w` is {})", rule.into(), x.dtype(), w.dtype());
    shape_error(op, &[("x", x.shape()), ("w", &w.shape())], rule)
}

/// The f32 operand of a vector of `len`, or why it isn't one.
pub(super) fn vector_operand<'lease>(
    op: &'static str,
    name: &str,
    vector: Weight<'lease>,
    len: usize,
) -> Result<Operand<'lease>, OpError> {
    debug_assert_eq!(vector.operand().dtype, DType::F32);
    if vector.form() != (WeightForm::Vector { len }) {
        return Err(shape_error(op, &[(name, &vector.shape())], format!("`{name}` must be a vector of {len}")));
    }
    Ok(vector.operand())
}
