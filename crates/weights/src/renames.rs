//! Names that have changed since files were written.

/// The current name of a parameter in an attention block of a VAE that an early diffusers wrote, or `None` if the name
/// is current: `query`, `key`, `value`, `proj_attn` are now `to_q`, `to_k`, `to_v`, `to_out.0`.
///
/// To be used with [`TensorIndex::renamed`](crate::TensorIndex::renamed) on VAEs only: elsewhere the old names are
/// names like any other.
// Reference: diffusers 0.42.1, models/modeling_utils.py, `_fix_state_dict_keys_on_load`
pub fn vae_attention_name(name: &str) -> Option<String> {
    let (layer_path, parameter) = name.rsplit_once('.')?;
    let (block_path, layer) = layer_path.rsplit_once('.')?;
    let (parent_path, block_idx) = block_path.rsplit_once('.')?;
    let parent = parent_path.rsplit('.').next()?;
    let is_attention = parent == "attentions" && block_idx.bytes().all(|b| b.is_ascii_digit());
    if !is_attention || !matches!(parameter, "weight" | "bias") {
        return None;
    }
    let layer = match layer {
        "query" => "to_q",
        "key" => "to_k",
        "value" => "to_v",
        "proj_attn" => "to_out.0",
        _ => return None,
    };
    Some(format!("{block_path}.{layer}.{parameter}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renames_the_old_attention_and_nothing_else() {
        for (old, new) in [
            ("decoder.mid_block.attentions.0.query.weight", Some("decoder.mid_block.attentions.0.to_q.weight")),
            ("encoder.mid_block.attentions.0.key.bias", Some("encoder.mid_block.attentions.0.to_k.bias")),
            ("encoder.mid_block.attentions.0.value.weight", Some("encoder.mid_block.attentions.0.to_v.weight")),
            ("encoder.mid_block.attentions.0.proj_attn.bias", Some("encoder.mid_block.attentions.0.to_out.0.bias")),
            ("decoder.up_blocks.1.attentions.12.query.bias", Some("decoder.up_blocks.1.attentions.12.to_q.bias")),
            ("encoder.mid_block.attentions.0.group_norm.weight", None),
            ("encoder.mid_block.attentions.0.to_q.weight", None),
            ("encoder.mid_block.attentions.0.to_out.0.weight", None),
            ("encoder.mid_block.resnets.0.query.weight", None),
            ("query.weight", None),
            ("key", None),
            ("", None),
        ] {
            assert_eq!(vae_attention_name(old).as_deref(), new, "{old}");
        }
    }
}
