//! Components of the size and rhythm of real models: bytes from their dimensions, times from FLOPs at a rate of 80
//! TFLOP/s. Shared by the tests and the example that prints figures.

use plimsoll_device::ByteCount;
use plimsoll_residency::UnitProfile;

/// Multiply-adds count twice.
const FLOPS: f64 = 80e12;
/// bf16 or f16 weights.
const ELEMENT_BYTES: u64 = 2;
const MIB: u64 = 1 << 20;

/// A unit without adapters or transients.
pub(crate) fn unit(name: String, bytes: u64, compute_seconds: f64) -> UnitProfile {
    let bytes = ByteCount(bytes);
    UnitProfile { name, bytes, transient_bytes: ByteCount::ZERO, compute_seconds, patched_elements: 0 }
}

fn linear(name: String, inputs: u64, outputs: u64, tokens: u64) -> UnitProfile {
    let elements = inputs * outputs;
    unit(name, elements * ELEMENT_BYTES, (2 * elements * tokens) as f64 / FLOPS)
}

fn attention_seconds(tokens: u64, keys: u64, width: u64) -> f64 {
    (4 * tokens * keys * width) as f64 / FLOPS
}

/// Flux.1 at 1024 x 1024: 19 double and 38 single blocks, 22 GiB.
pub(crate) fn flux() -> Vec<UnitProfile> {
    let (width, image, text) = (3072, 4096, 512);
    let all = image + text;
    let mut units = Vec::new();
    for block in 0..19 {
        let name = |layer: &str| format!("double_blocks.{block}.{layer}");
        let mut projection = linear(name("img_attn.proj"), width, width, image);
        projection.compute_seconds += attention_seconds(all, all, width);
        units.extend([
            linear(name("img_mod.lin"), width, 6 * width, 1),
            linear(name("txt_mod.lin"), width, 6 * width, 1),
            linear(name("img_attn.qkv"), width, 3 * width, image),
            linear(name("txt_attn.qkv"), width, 3 * width, text),
            projection,
            linear(name("img_mlp.0"), width, 4 * width, image),
            linear(name("img_mlp.2"), 4 * width, width, image),
            linear(name("txt_attn.proj"), width, width, text),
            linear(name("txt_mlp.0"), width, 4 * width, text),
            linear(name("txt_mlp.2"), 4 * width, width, text),
        ]);
    }
    for block in 0..38 {
        let name = |layer: &str| format!("single_blocks.{block}.{layer}");
        let mut output = linear(name("linear2"), 5 * width, width, all);
        output.compute_seconds += attention_seconds(all, all, width);
        units.extend([
            linear(name("modulation.lin"), width, 3 * width, 1),
            linear(name("linear1"), width, 7 * width, all),
            output,
        ]);
    }
    units
}

/// Wan 14B at 8,400 tokens: 40 blocks.
pub(crate) fn wan14b() -> Vec<UnitProfile> {
    let (width, hidden, tokens, text) = (5120, 13824, 8400, 512);
    let mut units = Vec::new();
    for block in 0..40 {
        let name = |layer: &str| format!("blocks.{block}.{layer}");
        let mut self_output = linear(name("self_attn.o"), width, width, tokens);
        self_output.compute_seconds += attention_seconds(tokens, tokens, width);
        let mut cross_output = linear(name("cross_attn.o"), width, width, tokens);
        cross_output.compute_seconds += attention_seconds(tokens, text, width);
        units.extend([
            linear(name("self_attn.q"), width, width, tokens),
            linear(name("self_attn.k"), width, width, tokens),
            linear(name("self_attn.v"), width, width, tokens),
            self_output,
            linear(name("cross_attn.q"), width, width, tokens),
            linear(name("cross_attn.k"), width, width, text),
            linear(name("cross_attn.v"), width, width, text),
            cross_output,
            linear(name("ffn.0"), width, hidden, tokens),
            linear(name("ffn.2"), hidden, width, tokens),
        ]);
    }
    units
}

/// Blocks with a dear video half and a cheap audio half of some 40 % of their bytes.
pub(crate) fn audio_video() -> Vec<UnitProfile> {
    let half = |block: usize, half: &'static str, mib: u64, seconds: f64| {
        (0..3).map(move |layer| unit(format!("blk.{block}.{half}.{layer}"), mib * MIB, seconds))
    };
    (0..48).flat_map(|block| half(block, "video", 100, 0.0045).chain(half(block, "audio", 66, 0.0002))).collect()
}

/// SD 1.5's UNet at 512 x 512, two images a step: convolutions, norms and attention over four resolutions; 1.6 GiB.
pub(crate) fn sd15_unet() -> Vec<UnitProfile> {
    let mut unet = Unet { units: Vec::new(), batch: 2 };
    unet.conv("conv_in", 4, 320, 64, 3);
    unet.linear("time_embedding.linear_1", 320, 1280, 1);
    unet.linear("time_embedding.linear_2", 1280, 1280, 1);
    let widths = [320, 640, 1280, 1280];
    let mut skips = vec![320];
    let mut inputs = 320;
    for (level, &width) in widths.iter().enumerate() {
        let side = 64 >> level;
        for layer in 0..2 {
            unet.resnet(&format!("down_blocks.{level}.resnets.{layer}"), inputs, width, side);
            if level < 3 {
                unet.transformer(&format!("down_blocks.{level}.attentions.{layer}"), width, side);
            }
            inputs = width;
            skips.push(width);
        }
        if level < 3 {
            unet.conv(&format!("down_blocks.{level}.downsamplers.0.conv"), width, width, side / 2, 3);
            skips.push(width);
        }
    }
    unet.resnet("mid_block.resnets.0", 1280, 1280, 8);
    unet.transformer("mid_block.attentions.0", 1280, 8);
    unet.resnet("mid_block.resnets.1", 1280, 1280, 8);
    for (level, &width) in widths.iter().rev().enumerate() {
        let side = 8 << level;
        for layer in 0..3 {
            let skip = skips.pop().unwrap_or(0);
            unet.resnet(&format!("up_blocks.{level}.resnets.{layer}"), inputs + skip, width, side);
            if level > 0 {
                unet.transformer(&format!("up_blocks.{level}.attentions.{layer}"), width, side);
            }
            inputs = width;
        }
        if level < 3 {
            unet.conv(&format!("up_blocks.{level}.upsamplers.0.conv"), width, width, side * 2, 3);
        }
    }
    unet.norm("conv_norm_out", 320);
    unet.conv("conv_out", 320, 4, 64, 3);
    unet.units
}

struct Unet {
    units: Vec<UnitProfile>,
    batch: u64,
}

impl Unet {
    fn conv(&mut self, name: &str, inputs: u64, outputs: u64, side: u64, kernel: u64) {
        let unit = linear(name.to_owned(), inputs * kernel * kernel, outputs, self.batch * side * side);
        self.units.push(unit);
    }

    fn linear(&mut self, name: &str, inputs: u64, outputs: u64, tokens: u64) {
        self.units.push(linear(name.to_owned(), inputs, outputs, self.batch * tokens));
    }

    fn norm(&mut self, name: &str, width: u64) {
        self.units.push(unit(name.to_owned(), 2 * width * ELEMENT_BYTES, 1e-6));
    }

    fn resnet(&mut self, name: &str, inputs: u64, outputs: u64, side: u64) {
        self.norm(&format!("{name}.norm1"), inputs);
        self.conv(&format!("{name}.conv1"), inputs, outputs, side, 3);
        self.linear(&format!("{name}.time_emb_proj"), 1280, outputs, 1);
        self.norm(&format!("{name}.norm2"), outputs);
        self.conv(&format!("{name}.conv2"), outputs, outputs, side, 3);
        if inputs != outputs {
            self.conv(&format!("{name}.conv_shortcut"), inputs, outputs, side, 1);
        }
    }

    fn transformer(&mut self, name: &str, width: u64, side: u64) {
        let (tokens, text) = (side * side, 77);
        self.norm(&format!("{name}.norm"), width);
        self.linear(&format!("{name}.proj_in"), width, width, tokens);
        for (attention, keys_width, keys) in [("attn1", width, tokens), ("attn2", 768, text)] {
            self.norm(&format!("{name}.{attention}.norm"), width);
            self.linear(&format!("{name}.{attention}.to_q"), width, width, tokens);
            self.linear(&format!("{name}.{attention}.to_k"), keys_width, width, keys);
            self.linear(&format!("{name}.{attention}.to_v"), keys_width, width, keys);
            self.linear(&format!("{name}.{attention}.to_out"), width, width, tokens);
            let last = self.units.len() - 1;
            self.units[last].compute_seconds += self.batch as f64 * attention_seconds(tokens, keys, width);
        }
        self.norm(&format!("{name}.norm3"), width);
        self.linear(&format!("{name}.ff.net.0.proj"), width, 8 * width, tokens);
        self.linear(&format!("{name}.ff.net.2"), 4 * width, width, tokens);
        self.linear(&format!("{name}.proj_out"), width, width, tokens);
    }
}
