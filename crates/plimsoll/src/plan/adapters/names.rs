//! What the names in an adapter's file say.

/// One of a pair's two matrices.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Half<'a> {
    /// The layer, as the file calls it.
    pub(super) module: &'a str,
    pub(super) side: Side,
}

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// From the layer's input to the rank.
    Down,
    /// From the rank to the layer's output.
    Up,
}

/// Where a layer is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The layer of that plain name.
    Denoiser(String),
    TextEncoder,
}

const ENDINGS: [(&str, Side); 6] = [
    (".lora_down.weight", Side::Down),
    (".lora_up.weight", Side::Up),
    (".lora_A.weight", Side::Down),
    (".lora_B.weight", Side::Up),
    (".lora_A.default.weight", Side::Down),
    (".lora_B.default.weight", Side::Up),
];

/// What programs put before the names of a denoiser's layers.
const PREFIXES: [&str; 5] = ["lora_unet_", "lora_transformer_", "unet.", "transformer.", "diffusion_model."];
const WRAPPER: &str = "base_model.model.";
const TEXT_ENCODER_PREFIXES: [&str; 2] = ["lora_te", "text_encoder"];

/// The tensor as a half of a pair, if its name says so.
pub(super) fn half(tensor: &str) -> Option<Half<'_>> {
    ENDINGS.iter().find_map(|&(ending, side)| Some(Half { module: tensor.strip_suffix(ending)?, side }))
}

/// Whether the tensor is a number that scales a pair.
pub(super) fn is_scale(tensor: &str) -> bool {
    tensor.ends_with(".alpha")
}

/// Which layer the file means.
pub(super) fn place(module: &str) -> Place {
    let module = module.strip_prefix(WRAPPER).unwrap_or(module);
    if TEXT_ENCODER_PREFIXES.iter().any(|prefix| module.starts_with(prefix)) {
        return Place::TextEncoder;
    }
    let layer = PREFIXES.iter().find_map(|prefix| module.strip_prefix(prefix)).unwrap_or(module);
    Place::Denoiser(plain(layer))
}

/// A layer's name in the form in which names are compared.
pub(super) fn plain(layer: &str) -> String {
    layer.replace('.', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_of_naming_mean_one_layer() {
        for tensor in [
            "lora_unet_blocks_0_attn1_to_out_0.lora_down.weight",
            "unet.blocks.0.attn1.to_out.0.lora_A.weight",
            "transformer.blocks.0.attn1.to_out.0.lora_A.weight",
            "diffusion_model.blocks.0.attn1.to_out.0.lora_A.weight",
            "base_model.model.blocks.0.attn1.to_out.0.lora_A.default.weight",
            "blocks.0.attn1.to_out.0.lora_A.weight",
        ] {
            let half = half(tensor).unwrap();
            assert_eq!(half.side, Side::Down, "{tensor}");
            assert_eq!(place(half.module), Place::Denoiser("blocks_0_attn1_to_out_0".to_owned()), "{tensor}");
        }
    }

    #[test]
    fn text_encoders_scales_and_other_kinds_are_told_apart() {
        for module in ["lora_te_text_model_x", "lora_te2_text_model_x", "text_encoder.x", "text_encoder_2.x"] {
            assert_eq!(place(module), Place::TextEncoder, "{module}");
        }
        assert!(is_scale("lora_unet_x.alpha"));
        assert_eq!(half("lora_unet_x.lora_mid.weight"), None);
        assert_eq!(half("x.lora_B.weight"), Some(Half { module: "x", side: Side::Up }));
    }
}
