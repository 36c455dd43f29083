//! The shapes of two diffusion transformers, as lists of their blocks' linear layers in the order of execution.
//!
//! Deliberately without embeddings, norms and the last layer: less than one part in a hundred of bytes and time. An
//! attention's operations count for the projection behind it.

use std::sync::Arc;

use plimsoll_device::{ByteCount, DType, Device, Upload, UploadPiece, WeightForm};
use plimsoll_nn::BlankBytes;
use plimsoll_residency::Unit;

use super::shape::Shape;
use super::workload::{Demand, Workload};

/// Pixels of a side for one latent.
const LATENT_PIXELS: usize = 8;
/// Pixels of a side for one token: two latents.
const TOKEN_PIXELS: usize = 16;
/// Tokens of a text.
const TEXT_TOKENS: usize = 512;

/// A linear layer without bias.
struct Layer {
    name: String,
    depth: usize,
    out: usize,
    flops: f64,
}

impl Layer {
    fn new(name: String, depth: usize, out: usize, tokens: usize) -> Self {
        Self { name, depth, out, flops: 2.0 * depth as f64 * out as f64 * tokens as f64 }
    }

    /// Behind an attention of `width` features over all heads.
    fn behind_attention(mut self, q_tokens: usize, kv_tokens: usize, width: usize) -> Self {
        self.flops += 4.0 * q_tokens as f64 * kv_tokens as f64 * width as f64;
        self
    }

    fn unit(self, device: &dyn Device, dtype: DType) -> Unit {
        let form = WeightForm::Matrix { out: self.out, depth: self.depth, taps: 1 };
        let source = Arc::new(BlankBytes::new(form.element_count() * dtype.size()));
        let piece = UploadPiece { source, source_dtype: dtype, form, dtype, offset: 0 };
        Unit::new(device, Upload { name: self.name, pieces: vec![piece] })
    }
}

/// Flux.1: 19 double and 38 single blocks.
///
/// Source: black-forest-labs/flux, src/flux/util.py (the configuration) and src/flux/modules/layers.py (the blocks).
pub(super) fn flux(shape: Shape, [width, height]: [usize; 2], demand: &Demand<'_>) -> Workload {
    const WIDTH: usize = 3072;
    let image_tokens = (width / TOKEN_PIXELS) * (height / TOKEN_PIXELS);
    let tokens = image_tokens + TEXT_TOKENS;
    let mut layers = Vec::new();
    for block in 0..19 {
        let layer = |name: &str, depth: usize, out: usize| {
            let own_tokens = match name {
                "img_mod.lin" | "txt_mod.lin" => 1,
                _ if name.starts_with("img") => image_tokens,
                _ => TEXT_TOKENS,
            };
            Layer::new(format!("double_blocks.{block}.{name}"), depth * WIDTH, out * WIDTH, own_tokens)
        };
        layers.extend([
            layer("img_mod.lin", 1, 6),
            layer("txt_mod.lin", 1, 6),
            layer("img_attn.qkv", 1, 3),
            layer("txt_attn.qkv", 1, 3),
            layer("img_attn.proj", 1, 1).behind_attention(tokens, tokens, WIDTH),
            layer("img_mlp.0", 1, 4),
            layer("img_mlp.2", 4, 1),
            layer("txt_attn.proj", 1, 1),
            layer("txt_mlp.0", 1, 4),
            layer("txt_mlp.2", 4, 1),
        ]);
    }
    for block in 0..38 {
        let name = |name: &str| format!("single_blocks.{block}.{name}");
        layers.extend([
            Layer::new(name("modulation.lin"), WIDTH, 3 * WIDTH, 1),
            Layer::new(name("linear1"), WIDTH, 7 * WIDTH, tokens),
            Layer::new(name("linear2"), 5 * WIDTH, WIDTH, tokens).behind_attention(tokens, tokens, WIDTH),
        ]);
    }
    let about = format!("Flux.1 at {width} x {height}: {image_tokens} image and {TEXT_TOKENS} text tokens");
    let latents = (width / LATENT_PIXELS) * (height / LATENT_PIXELS);
    workload(shape, about, layers, activations(latents, 3.1, demand.dtype), demand)
}

/// Wan 2.1 14B: 40 blocks, over 21 latent frames, which are 81 frames of a film.
///
/// Source: Wan-Video/Wan2.1, wan/configs/wan_t2v_14B.py (the configuration) and wan/modules/model.py (the blocks).
pub(super) fn wan14b(shape: Shape, [width, height]: [usize; 2], demand: &Demand<'_>) -> Workload {
    const WIDTH: usize = 5120;
    const INNER: usize = 13824;
    const LATENT_FRAMES: usize = 21;
    let tokens = LATENT_FRAMES * (width / TOKEN_PIXELS) * (height / TOKEN_PIXELS);
    let mut layers = Vec::new();
    for block in 0..40 {
        let name = |name: &str| format!("blocks.{block}.{name}");
        let square = |layer: &str, tokens: usize| Layer::new(name(layer), WIDTH, WIDTH, tokens);
        layers.extend([
            square("self_attn.q", tokens),
            square("self_attn.k", tokens),
            square("self_attn.v", tokens),
            square("self_attn.o", tokens).behind_attention(tokens, tokens, WIDTH),
            square("cross_attn.q", tokens),
            square("cross_attn.k", TEXT_TOKENS),
            square("cross_attn.v", TEXT_TOKENS),
            square("cross_attn.o", tokens).behind_attention(tokens, TEXT_TOKENS, WIDTH),
            Layer::new(name("ffn.0"), WIDTH, INNER, tokens),
            Layer::new(name("ffn.2"), INNER, WIDTH, tokens),
        ]);
    }
    let about = format!("Wan 2.1 14B, 81 frames of {width} x {height}: {tokens} tokens, {TEXT_TOKENS} text tokens");
    let latents = LATENT_FRAMES * (width / LATENT_PIXELS) * (height / LATENT_PIXELS);
    workload(shape, about, layers, activations(latents, WIDTH as f64 / 2222.0, demand.dtype), demand)
}

fn workload(
    shape: Shape,
    about: String,
    layers: Vec<Layer>,
    (activation_bytes, activation_source): (ByteCount, String),
    demand: &Demand<'_>,
) -> Workload {
    let device = demand.yardstick();
    let seconds = layers.iter().map(|layer| layer.flops / demand.card.flops_per_second).collect();
    Workload {
        name: format!("shape:{}", shape.name()),
        about: format!("{about}, in {}", demand.dtype),
        component: "transformer",
        units: layers.into_iter().map(|layer| layer.unit(&*device, demand.dtype)).collect(),
        seconds,
        activation_bytes,
        activation_source,
    }
}

/// ComfyUI's estimate with memory-efficient attention, for one picture: `latents x bytes of a number x 0.01 x factor`
/// MiB. An estimate tuned by hand there, and no measurement here.
///
/// Source of the formula and its factors: comfyanonymous/ComfyUI, comfy/model_base.py `memory_required` and
/// comfy/supported_models.py `memory_usage_factor`.
fn activations(latents: usize, factor: f64, dtype: DType) -> (ByteCount, String) {
    let mebibytes = latents as f64 * dtype.size() as f64 * 0.01 * factor;
    let source = format!(
        "ComfyUI's estimate for one picture: {latents} latents x {} bytes x 0.01 x {factor:.2} MiB",
        dtype.size()
    );
    (ByteCount((mebibytes * 1024.0 * 1024.0).ceil() as u64), source)
}

#[cfg(test)]
mod tests {
    use plimsoll_sim::SimOptions;

    use super::*;

    fn demand(card: &SimOptions) -> Demand<'_> {
        Demand { width: None, height: None, dtype: DType::BF16, card }
    }

    fn mebibytes(bytes: ByteCount) -> u64 {
        (bytes.0 + (1 << 19)) >> 20
    }

    /// 19 double blocks of 2 x 18 and 38 single blocks of 15 squares of the width, 2 bytes each.
    #[test]
    fn flux_has_its_size() {
        let card = SimOptions::default();
        let flux = flux(Shape::Flux, [1024, 1024], &demand(&card));
        assert_eq!(flux.units.len(), 19 * 10 + 38 * 3);
        let bytes: ByteCount = flux.units.iter().map(|unit| unit.bytes).sum();
        assert_eq!(bytes.0, (19 * 36 + 38 * 15) * 3072 * 3072 * 2);
        // As in ComfyUI for 1024 x 1024, one picture.
        assert_eq!(mebibytes(flux.activation_bytes), 1016);
    }

    /// 40 blocks of 8 squares and a feed-forward layer.
    #[test]
    fn wan_has_its_size() {
        let card = SimOptions::default();
        let wan = wan14b(Shape::Wan14b, [832, 480], &demand(&card));
        let bytes: ByteCount = wan.units.iter().map(|unit| unit.bytes).sum();
        assert_eq!((wan.units.len(), bytes.0), (400, 40 * (8 * 5120 * 5120 + 2 * 5120 * 13824) * 2));
        // As in ComfyUI for 832 x 480 x 81, one picture.
        assert_eq!(mebibytes(wan.activation_bytes), 6039);
    }
}
