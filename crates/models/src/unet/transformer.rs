//! The attention of a UNet block: pixels look at each other and at the text.

use plimsoll_nn::{BuildError, Builder, GroupNorm, LayerNorm, Linear, NnError, Run};
use plimsoll_tensor::Tensor;

use super::AttentionConfig;

/// Added to the variance by the norms, whatever the config says for the residual layers.
const GROUP_NORM_EPSILON: f32 = 1e-6;
const LAYER_NORM_EPSILON: f32 = 1e-5;
/// Features inside a feed-forward layer for each of its input.
const FEED_FORWARD_FACTOR: usize = 4;

/// What all attention blocks of a model share.
#[derive(Clone, Copy, Debug)]
pub(super) struct TransformerSpec {
    pub(super) channels: usize,
    pub(super) groups: usize,
    pub(super) use_linear_projection: bool,
}

/// Transformer layers over the pixels of an image, between two projections, added to the image.
///
/// Source: diffusers 0.42.1, models/transformers/transformer_2d.py, `Transformer2DModel` with continuous input.
#[derive(Debug)]
pub(super) struct Transformer {
    norm: GroupNorm,
    proj_in: Linear,
    layers: Vec<TransformerLayer>,
    proj_out: Linear,
}

impl Transformer {
    pub(super) fn build(
        b: &Builder<'_>,
        spec: &TransformerSpec,
        attention: &AttentionConfig,
        depth: usize,
    ) -> Result<Self, BuildError> {
        let channels = spec.channels;
        // A 1x1 convolution and a linear layer are the same; they differ in the stored weight's shape.
        let projection = |name| match spec.use_linear_projection {
            true => b.linear(name, channels, channels, true),
            false => b.linear_as_conv(name, channels, channels, true),
        };
        let layer = |idx| TransformerLayer::build(&b.sub("transformer_blocks").sub(idx), channels, attention);
        Ok(Self {
            norm: b.group_norm("norm", channels, spec.groups, GROUP_NORM_EPSILON)?,
            proj_in: projection("proj_in")?,
            layers: (0..depth).map(layer).collect::<Result<_, _>>()?,
            proj_out: projection("proj_out")?,
        })
    }

    /// # Shapes
    /// - `x`: `[batch, height, width, channels]`
    /// - `context`: `[batch, tokens, context width]`
    /// - returns the shape of `x`
    pub(super) fn forward(&self, run: &Run<'_>, x: Tensor, context: &Tensor) -> Result<Tensor, NnError> {
        let image_shape = x.shape().to_vec();
        let token_shape = [image_shape[0], x.row_count() / image_shape[0], x.columns()];
        let mut h = self.norm.forward(run, &x)?;
        h = self.proj_in.forward(run, &h)?.reshape(&token_shape)?;
        for layer in &self.layers {
            h = layer.forward(run, h, context)?;
        }
        h = self.proj_out.forward(run, &h)?.reshape(&image_shape)?;
        Ok(run.cx.add(h, &x)?)
    }
}

/// Attention, attention to the text, and a gated feed-forward layer, each behind a norm and added to its input.
///
/// Source: diffusers 0.42.1, models/attention.py, `BasicTransformerBlock` with `norm_type` "layer_norm" and
/// `activation_fn` "geglu".
#[derive(Debug)]
struct TransformerLayer {
    norm1: LayerNorm,
    attn1: Attention,
    attn1_sees_text: bool,
    norm2: LayerNorm,
    attn2: Attention,
    norm3: LayerNorm,
    ff_in: Linear,
    ff_out: Linear,
}

impl TransformerLayer {
    fn build(b: &Builder<'_>, width: usize, attention: &AttentionConfig) -> Result<Self, BuildError> {
        let AttentionConfig { heads, context_width, only_cross_attention, .. } = *attention;
        let attn1_width = if only_cross_attention { context_width } else { width };
        let inner = width * FEED_FORWARD_FACTOR;
        let ff = b.sub("ff.net");
        Ok(Self {
            norm1: b.layer_norm("norm1", width, LAYER_NORM_EPSILON)?,
            attn1: Attention::build(&b.sub("attn1"), width, attn1_width, heads)?,
            attn1_sees_text: only_cross_attention,
            norm2: b.layer_norm("norm2", width, LAYER_NORM_EPSILON)?,
            attn2: Attention::build(&b.sub("attn2"), width, context_width, heads)?,
            norm3: b.layer_norm("norm3", width, LAYER_NORM_EPSILON)?,
            ff_in: ff.linear("0.proj", width, 2 * inner, true)?,
            ff_out: ff.linear("2", inner, width, true)?,
        })
    }

    /// `x` and the result: `[batch, pixels, width]`.
    fn forward(&self, run: &Run<'_>, mut x: Tensor, context: &Tensor) -> Result<Tensor, NnError> {
        let mut h = self.norm1.forward(run, &x)?;
        h = self.attn1.forward(run, h, self.attn1_sees_text.then_some(context))?;
        x = run.cx.add(h, &x)?;

        h = self.norm2.forward(run, &x)?;
        h = self.attn2.forward(run, h, Some(context))?;
        x = run.cx.add(h, &x)?;

        h = self.norm3.forward(run, &x)?;
        h = self.ff_in.forward(run, &h)?;
        h = run.cx.geglu(&h)?;
        h = self.ff_out.forward(run, &h)?;
        Ok(run.cx.add(h, &x)?)
    }
}

/// Multi-head attention.
///
/// Source: diffusers 0.42.1, models/attention_processor.py, `Attention` and `AttnProcessor2_0`; queries, keys and values
/// have no bias, the output has.
#[derive(Debug)]
struct Attention {
    to_q: Linear,
    to_k: Linear,
    to_v: Linear,
    to_out: Linear,
    heads: usize,
}

impl Attention {
    fn build(b: &Builder<'_>, width: usize, context_width: usize, heads: usize) -> Result<Self, BuildError> {
        Ok(Self {
            to_q: b.linear("to_q", width, width, false)?,
            to_k: b.linear("to_k", context_width, width, false)?,
            to_v: b.linear("to_v", context_width, width, false)?,
            to_out: b.linear("to_out.0", width, width, true)?,
            heads,
        })
    }

    /// `x` looks at `context`, or at itself if there is none.
    fn forward(&self, run: &Run<'_>, x: Tensor, context: Option<&Tensor>) -> Result<Tensor, NnError> {
        let q = self.to_q.forward(run, &x)?;
        let source = context.unwrap_or(&x);
        let k = self.to_k.forward(run, source)?;
        let v = self.to_v.forward(run, source)?;
        drop(x);
        let h = run.cx.attention(&q, &k, &v, self.heads, false)?;
        drop((q, k, v));
        self.to_out.forward(run, &h)
    }
}
