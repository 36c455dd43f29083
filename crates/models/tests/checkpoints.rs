//! A config and a checkpoint that don't belong together are told apart before anything is loaded.

mod common;

use common::{config, index, part};
use expect_test::{Expect, expect};
use plimsoll_cpu::{CpuDevice, CpuOptions};
use plimsoll_device::{ByteCount, DType};
use plimsoll_models::clip::{ClipConfig, ClipTextEncoder};
use plimsoll_models::srvgg::SrvggConfig;
use plimsoll_models::unet::{Unet, UnetConfig};
use plimsoll_models::vae::{VaeConfig, VaeDecoder, VaeEncoder};
use plimsoll_nn::{BuildError, Builder};
use plimsoll_testkit::CraftedFile;
use plimsoll_weights::{TensorFile, TensorIndex, vae_attention_name};
use serde_json::{Value, json};

fn device() -> CpuDevice {
    CpuDevice::new(&CpuOptions { budget: ByteCount::MAX, threads: Some(1) }).unwrap()
}

/// The error of building, without the folder's name.
fn build<M>(
    tensors: &TensorIndex,
    model: impl FnOnce(&Builder<'_>) -> Result<M, BuildError>,
    ignores: impl Fn(&str) -> bool,
) -> String {
    let device = device();
    let builder = Builder::new(tensors, &device, DType::F32);
    match model(&builder).and_then(|_| builder.finish(ignores)) {
        Ok(units) => format!("{} units", units.len()),
        Err(error) => error.to_string().replace(tensors.origin(), "FILE"),
    }
}

/// The error of building the `groups` UNet with a config changed in one field.
fn check_unet(field: &str, value: Value, expected: Expect) {
    let mut config: Value = serde_json::from_str(&config("groups", "unet")).unwrap();
    config[field] = value;
    let config = UnetConfig::parse(&config.to_string()).unwrap();
    expected.assert_eq(&build(&index(part("groups", "unet")), |b| Unet::build(b, &config), Unet::ignores));
}

#[test]
fn a_unets_config_and_checkpoint_must_fit() {
    check_unet("sample_size", json!(20), expect!["312 units"]);
    check_unet(
        "in_channels",
        json!(5),
        expect![
            "tensor `conv_in.weight` of `FILE` has the shape [12, 4, 3, 3], but the model needs [12, 5, 3, 3]; its weights do not belong to its configuration"
        ],
    );
    check_unet(
        "layers_per_block",
        json!([1, 2, 1, 2]),
        expect![
            "tensor `up_blocks.0.resnets.2.norm1.weight` of `FILE` has the shape [24], but the model needs [36]; its weights do not belong to its configuration"
        ],
    );
    check_unet(
        "layers_per_block",
        json!([1, 2, 1, 4]),
        expect![
            "`FILE` has no tensor `down_blocks.3.resnets.3.norm1.weight`; its weights do not belong to its configuration"
        ],
    );
    check_unet(
        "mid_block_type",
        Value::Null,
        expect![
            "`FILE` has tensors that its configuration has no place for, 10 in all, such as `mid_block.resnets.0.conv1.bias`; its weights do not belong to its configuration"
        ],
    );
    check_unet(
        "transformer_layers_per_block",
        json!(2),
        expect![
            "`FILE` has no tensor `down_blocks.1.attentions.0.transformer_blocks.1.norm1.weight`; its weights do not belong to its configuration"
        ],
    );
    check_unet(
        "use_linear_projection",
        json!(true),
        expect![
            "tensor `down_blocks.1.attentions.0.proj_in.weight` of `FILE` has the shape [18, 18, 1, 1], but the model needs [18, 18]; its weights do not belong to its configuration"
        ],
    );
    check_unet(
        "time_embedding_dim",
        json!(96),
        expect![
            "tensor `time_embedding.linear_1.weight` of `FILE` has the shape [48, 12], but the model needs [96, 12]; its weights do not belong to its configuration"
        ],
    );
}

#[test]
fn the_halves_of_an_autoencoder_ignore_each_other_and_nothing_else() {
    let config = VaeConfig::parse(&config("sd15", "vae")).unwrap();
    let tensors = index(part("sd15", "vae"));
    let decoder = |b: &Builder<'_>| VaeDecoder::build(b, &config);
    let encoder = |b: &Builder<'_>| VaeEncoder::build(b, &config);
    expect!["54 units"].assert_eq(&build(&tensors, decoder, VaeDecoder::ignores));
    expect!["38 units"].assert_eq(&build(&tensors, encoder, VaeEncoder::ignores));
    expect!["`FILE` has tensors that its configuration has no place for, 76 in all, such as `encoder.conv_in.bias`; its weights do not belong to its configuration"]
        .assert_eq(&build(&tensors, decoder, |_| false));
    expect!["`FILE` has tensors that its configuration has no place for, 108 in all, such as `decoder.conv_in.bias`; its weights do not belong to its configuration"]
        .assert_eq(&build(&tensors, encoder, VaeDecoder::ignores));
}

#[test]
fn an_autoencoder_with_the_old_attention_names_is_read_after_renaming() {
    let config = VaeConfig::parse(&config("sd15", "vae")).unwrap();
    let old_name = |name: &str| {
        let names = [(".to_q.", ".query."), (".to_k.", ".key."), (".to_v.", ".value."), (".to_out.0.", ".proj_attn.")];
        names.iter().find(|(new, _)| name.contains(new)).map(|(new, old)| name.replace(new, old))
    };
    let old = TensorIndex::open(part("sd15", "vae")).unwrap().renamed(old_name).unwrap();
    let decoder = |b: &Builder<'_>| VaeDecoder::build(b, &config);
    expect!["`FILE` has no tensor `decoder.mid_block.attentions.0.to_q.weight`; its weights do not belong to its configuration"].assert_eq(&build(&old, decoder, VaeDecoder::ignores));
    let renamed = old.renamed(vae_attention_name).unwrap();
    expect!["54 units"].assert_eq(&build(&renamed, decoder, VaeDecoder::ignores));
}

#[test]
fn a_text_encoder_must_fit_and_ignores_only_the_list_of_positions() {
    let config = ClipConfig::parse(&config("sd15", "text_encoder")).unwrap();
    let tensors = index(part("sd15", "text_encoder"));
    let check = |config: &ClipConfig, ignores: fn(&str) -> bool, expected: Expect| {
        expected.assert_eq(&build(&tensors, |b| ClipTextEncoder::build(b, config), ignores));
    };
    check(&config, ClipTextEncoder::ignores, expect!["27 units"]);
    check(
        &config,
        |_| false,
        expect![
            "`FILE` has tensors that its configuration has no place for, 1 in all, such as `text_model.embeddings.position_ids`; its weights do not belong to its configuration"
        ],
    );
    let projecting = ClipConfig { projection_dim: Some(16), ..config.clone() };
    check(
        &projecting,
        ClipTextEncoder::ignores,
        expect!["`FILE` has no tensor `text_projection.weight`; its weights do not belong to its configuration"],
    );
    let shorter = ClipConfig { num_hidden_layers: 2, ..config };
    check(
        &shorter,
        ClipTextEncoder::ignores,
        expect![
            "`FILE` has tensors that its configuration has no place for, 16 in all, such as `text_model.encoder.layers.2.layer_norm1.bias`; its weights do not belong to its configuration"
        ],
    );
}

/// Every field of a real config with values that make no sense: each is an error, or describes a model that the
/// checkpoint holds or does not hold. None panics or allocates for what it claims.
#[test]
fn hostile_values_end_in_an_error_or_a_model() {
    let mut refused_count = 0;
    let mut built_count = 0;
    for (model, name) in [("groups", "unet"), ("sdxl", "unet"), ("sd15", "vae"), ("sdxl", "text_encoder_2")] {
        let plain: Value = serde_json::from_str(&config(model, name)).unwrap();
        let tensors = index(part(model, name));
        let fields: Vec<String> = plain.as_object().unwrap().keys().cloned().collect();
        for field in &fields {
            for value in [
                json!(null),
                json!(true),
                json!(0),
                json!(-1),
                json!(1),
                json!(2),
                json!(7),
                json!(65536),
                json!(u64::MAX),
                json!(0.5),
                json!(1e300),
                json!(""),
                json!([]),
                json!([1]),
                json!([1, 1, 1, 1]),
                json!([[], [], [], []]),
                json!(vec![65536; 16]),
                json!({}),
            ] {
                let mut changed = plain.clone();
                changed[field.as_str()] = value;
                let changed = changed.to_string();
                let units = match name {
                    "unet" => UnetConfig::parse(&changed)
                        .map(|config| build(&tensors, |b| Unet::build(b, &config), Unet::ignores)),
                    "vae" => VaeConfig::parse(&changed)
                        .map(|config| build(&tensors, |b| VaeDecoder::build(b, &config), VaeDecoder::ignores)),
                    _ => ClipConfig::parse(&changed).map(|config| {
                        build(&tensors, |b| ClipTextEncoder::build(b, &config), ClipTextEncoder::ignores)
                    }),
                };
                match units {
                    Ok(units) if units.ends_with(" units") => built_count += 1,
                    Ok(_) => refused_count += 1,
                    Err(error) => {
                        assert!(error.to_string().contains(&format!("`{field}`")) || depends_on(field), "{error}");
                        refused_count += 1;
                    }
                }
            }
        }
    }
    assert!(refused_count > 1000 && built_count > 300, "{refused_count} refused, {built_count} built");
}

/// Fields whose values others must fit, so that the error may name another field.
fn depends_on(field: &str) -> bool {
    ["block_out_channels", "hidden_size", "addition_embed_type", "latent_channels"].contains(&field)
        || field == "transformer_layers_per_block"
}

#[test]
fn what_is_no_upscaler_is_refused() {
    let check = |shapes: &[&[usize]], expected: Expect| {
        let mut file = CraftedFile::new();
        for (idx, shape) in shapes.iter().enumerate() {
            let bytes = vec![0; 2 * shape.iter().product::<usize>()];
            file = file.tensor(&format!("body.{idx}.weight"), "F16", shape, &bytes);
        }
        let index = TensorIndex::from_file(&TensorFile::in_memory("x.safetensors", file.bytes()).unwrap());
        let shown = match SrvggConfig::detect(&index) {
            Ok(config) => format!("{config:?}"),
            Err(error) => error.to_string(),
        };
        expected.assert_eq(&shown);
    };
    check(&[], expect!["`x.safetensors` is no SRVGGNetCompact upscaler: it has no 3x3 convolution `body.0.weight`"]);
    check(
        &[&[8, 3, 1, 1]],
        expect!["`x.safetensors` is no SRVGGNetCompact upscaler: it has no 3x3 convolution `body.0.weight`"],
    );
    check(
        &[&[8, 3, 3, 3], &[8]],
        expect![
            "`x.safetensors` is no SRVGGNetCompact upscaler: `body` has 2 layers, but it must have an odd number from 3 to 512"
        ],
    );
    check(
        &[&[8, 3, 3, 3], &[8], &[8]],
        expect!["`x.safetensors` is no SRVGGNetCompact upscaler: its last layer `body.2.weight` is no 3x3 convolution"],
    );
    check(
        &[&[8, 3, 3, 3], &[8], &[13, 8, 3, 3]],
        expect![
            "`x.safetensors` is no SRVGGNetCompact upscaler: its last layer gives 13 channels, not 3 times a square up to 8^2"
        ],
    );
    check(
        &[&[8, 9, 3, 3], &[8], &[36, 8, 3, 3]],
        expect![
            "`x.safetensors` is no SRVGGNetCompact upscaler: it has 9 image channels and 8 inside, but there must be up to 4 and up to 4096"
        ],
    );
    check(
        &[&[8, 3, 3, 3], &[8], &[12, 8, 3, 3]],
        expect!["SrvggConfig { image_channels: 3, channels: 8, conv_count: 0, upscale: 2 }"],
    );
}
