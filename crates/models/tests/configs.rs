//! Which configs are read, as what, and which are refused with which words.

use expect_test::{Expect, expect};
use plimsoll_models::ConfigError;
use plimsoll_models::clip::{ClipConfig, Pooling};
use plimsoll_models::unet::{BlockConfig, UnetConfig};
use plimsoll_models::vae::VaeConfig;
use serde_json::{Value, json};

/// One line for each config: the error it gives.
fn check<T>(parse: impl Fn(&str) -> Result<T, ConfigError>, configs: &[Value], expected: Expect) {
    let mut lines = String::new();
    for config in configs {
        let line = match parse(&config.to_string()) {
            Ok(_) => format!("{config} is accepted"),
            Err(error) => error.to_string(),
        };
        lines += &line;
        lines.push('\n');
    }
    expected.assert_eq(&lines);
}

fn block(block: &BlockConfig) -> String {
    let attention = block.attention.as_ref().map(|attention| {
        let only = if attention.only_cross_attention { " only" } else { "" };
        format!(" heads {} context {}{only} depths {:?}", attention.heads, attention.context_width, attention.depths)
    });
    format!("{} x {}{}", block.channels, block.layers, attention.unwrap_or_default())
}

fn blocks(config: &UnetConfig) -> String {
    let mut lines = String::new();
    for down in &config.down_blocks {
        lines += &format!("down {}\n", block(down));
    }
    lines += &format!("mid {}\n", config.mid_block.as_ref().map_or("none".to_owned(), block));
    for up in &config.up_blocks {
        lines += &format!("up {}\n", block(up));
    }
    lines
}

#[test]
fn a_unet_config_without_fields_is_stable_diffusion_1() {
    let config =
        UnetConfig::parse(r#"{"_class_name": "UNet2DConditionModel", "_diffusers_version": "0.2.2"}"#).unwrap();
    assert_eq!((config.time.channels, config.time.width, config.norm_num_groups), (320, 1280, 32));
    expect![[r#"
        down 320 x 2 heads 8 context 1280 depths [1, 1]
        down 640 x 2 heads 8 context 1280 depths [1, 1]
        down 1280 x 2 heads 8 context 1280 depths [1, 1]
        down 1280 x 2
        mid 1280 x 2 heads 8 context 1280 depths [1]
        up 1280 x 3
        up 1280 x 3 heads 8 context 1280 depths [1, 1, 1]
        up 640 x 3 heads 8 context 1280 depths [1, 1, 1]
        up 320 x 3 heads 8 context 1280 depths [1, 1, 1]
    "#]]
    .assert_eq(&blocks(&config));
}

#[test]
fn attention_head_dim_is_the_number_of_heads_unless_num_attention_heads_is_given() {
    let heads = |json: Value| -> Vec<usize> {
        let config = UnetConfig::parse(&json.to_string()).unwrap();
        config.down_blocks.iter().filter_map(|block| Some(block.attention.as_ref()?.heads)).collect()
    };
    assert_eq!(heads(json!({"attention_head_dim": 4})), [4, 4, 4]);
    assert_eq!(heads(json!({"attention_head_dim": [5, 10, 20, 20], "num_attention_heads": null})), [5, 10, 20]);
    assert_eq!(heads(json!({"attention_head_dim": 64, "num_attention_heads": [5, 10, 20, 20]})), [5, 10, 20]);
}

#[test]
fn transformer_depths_per_block_are_reversed_for_the_up_blocks() {
    let config = json!({
        "block_out_channels": [320, 640, 1280],
        "down_block_types": ["DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"],
        "up_block_types": ["CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"],
        "attention_head_dim": [5, 10, 20],
        "transformer_layers_per_block": [1, 2, 10],
        "cross_attention_dim": 2048,
        "addition_embed_type": "text_time",
        "addition_time_embed_dim": 256,
        "projection_class_embeddings_input_dim": 2816,
    });
    let config = UnetConfig::parse(&config.to_string()).unwrap();
    assert_eq!(config.added.map(|added| (added.time_channels, added.input_width)), Some((256, 2816)));
    expect![[r#"
        down 320 x 2
        down 640 x 2 heads 10 context 2048 depths [2, 2]
        down 1280 x 2 heads 20 context 2048 depths [10, 10]
        mid 1280 x 2 heads 20 context 2048 depths [10]
        up 1280 x 3 heads 20 context 2048 depths [10, 10, 10]
        up 640 x 3 heads 10 context 2048 depths [2, 2, 2]
        up 320 x 3
    "#]]
    .assert_eq(&blocks(&config));
}

#[test]
fn nested_transformer_depths_and_lists_per_block() {
    let config = json!({
        "block_out_channels": [32, 64, 128],
        "down_block_types": ["DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"],
        "up_block_types": ["CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"],
        "layers_per_block": [1, 2, 2],
        "cross_attention_dim": [8, 16, 24],
        "only_cross_attention": [false, true, false],
        "transformer_layers_per_block": [0, [2, 2], [4, 3]],
        "reverse_transformer_layers_per_block": [[4, 4, 10], [2, 1, 1], 1],
        "mid_block_type": "UNetMidBlock2D",
    });
    let config = UnetConfig::parse(&config.to_string()).unwrap();
    expect![[r#"
        down 32 x 1
        down 64 x 2 heads 8 context 16 only depths [2, 2]
        down 128 x 2 heads 8 context 24 depths [4, 3]
        mid 128 x 1
        up 128 x 3 heads 8 context 24 depths [4, 4, 10]
        up 64 x 3 heads 8 context 16 only depths [2, 1, 1]
        up 32 x 2
    "#]]
    .assert_eq(&blocks(&config));
}

#[test]
fn the_mid_block_is_left_out_only_when_the_config_says_null() {
    let mid = |json: &str| UnetConfig::parse(json).unwrap().mid_block.is_some();
    assert!(mid("{}"));
    assert!(!mid(r#"{"mid_block_type": null}"#));
}

#[test]
fn a_unet_of_another_kind_is_refused_by_the_name_of_the_field() {
    let configs = [
        json!({"_class_name": "UNet2DModel"}),
        json!({"act_fn": "mish"}),
        json!({"addition_embed_type": "image_hint"}),
        json!({"attention_type": "gated"}),
        json!({"class_embed_type": "projection"}),
        json!({"class_embeddings_concat": true}),
        json!({"cross_attention_norm": "layer_norm"}),
        json!({"dual_cross_attention": true}),
        json!({"encoder_hid_dim": 768}),
        json!({"encoder_hid_dim_type": "text_proj"}),
        json!({"mid_block_only_cross_attention": true}),
        json!({"mid_block_type": "UNetMidBlock2DSimpleCrossAttn"}),
        json!({"num_class_embeds": 1000}),
        json!({"resnet_out_scale_factor": 1.4}),
        json!({"resnet_skip_time_act": true}),
        json!({"resnet_time_scale_shift": "scale_shift"}),
        json!({"time_cond_proj_dim": 256}),
        json!({"time_embedding_act_fn": "silu"}),
        json!({"time_embedding_type": "fourier"}),
        json!({"timestep_post_act": "silu"}),
        json!({"down_block_types": ["DownBlock2D", "AttnDownBlock2D", "DownBlock2D", "DownBlock2D"]}),
        json!({"up_block_types": ["KUpBlock2D", "UpBlock2D", "UpBlock2D", "UpBlock2D"]}),
    ];
    check(
        UnetConfig::parse,
        &configs,
        expect![[r#"
            in the UNet config, `_class_name` is `"UNet2DModel"`, but it must be `UNet2DConditionModel`
            in the UNet config, `act_fn` is `"mish"`, but it must be `"silu"` or `"swish"` or null
            in the UNet config, `addition_embed_type` is `"image_hint"`, but it must be `"text_time"` or null
            in the UNet config, `attention_type` is `"gated"`, but it must be `"default"` or null
            in the UNet config, `class_embed_type` is `"projection"`, but it must be null
            in the UNet config, `class_embeddings_concat` is `true`, but it must be `false` or null
            in the UNet config, `cross_attention_norm` is `"layer_norm"`, but it must be null
            in the UNet config, `dual_cross_attention` is `true`, but it must be `false` or null
            in the UNet config, `encoder_hid_dim` is `768`, but it must be null
            in the UNet config, `encoder_hid_dim_type` is `"text_proj"`, but it must be null
            in the UNet config, `mid_block_only_cross_attention` is `true`, but it must be `false` or null
            in the UNet config, `mid_block_type` is `"UNetMidBlock2DSimpleCrossAttn"`, but it must be `UNetMidBlock2DCrossAttn` or `UNetMidBlock2D`
            in the UNet config, `num_class_embeds` is `1000`, but it must be null
            in the UNet config, `resnet_out_scale_factor` is `1.4`, but it must be `1.0` or null
            in the UNet config, `resnet_skip_time_act` is `true`, but it must be `false` or null
            in the UNet config, `resnet_time_scale_shift` is `"scale_shift"`, but it must be `"default"` or null
            in the UNet config, `time_cond_proj_dim` is `256`, but it must be null
            in the UNet config, `time_embedding_act_fn` is `"silu"`, but it must be null
            in the UNet config, `time_embedding_type` is `"fourier"`, but it must be `"positional"` or null
            in the UNet config, `timestep_post_act` is `"silu"`, but it must be null
            in the UNet config, `down_block_types` is `["DownBlock2D","AttnDownBlock2D","DownBlock2D","DownBlock2D"]`, but it must be a list of 4 of `DownBlock2D` or `CrossAttnDownBlock2D`
            in the UNet config, `up_block_types` is `["KUpBlock2D","UpBlock2D","UpBlock2D","UpBlock2D"]`, but it must be a list of 4 of `UpBlock2D` or `CrossAttnUpBlock2D`
        "#]],
    );
}

#[test]
fn hostile_unet_values_are_refused() {
    let configs = [
        json!([]),
        json!({"in_channels": 0}),
        json!({"in_channels": -4}),
        json!({"in_channels": 4.5}),
        json!({"in_channels": "4"}),
        json!({"out_channels": 1u64 << 40}),
        json!({"block_out_channels": []}),
        json!({"block_out_channels": 320}),
        json!({"block_out_channels": vec![32; 17]}),
        json!({"block_out_channels": [320, 640, 1280, u64::MAX]}),
        json!({"block_out_channels": [320, 640, 1280]}),
        json!({"norm_num_groups": 48}),
        json!({"norm_num_groups": 0}),
        json!({"norm_num_groups": "a".repeat(1000)}),
        json!({"layers_per_block": [2, 2, 2]}),
        json!({"layers_per_block": 1_000_000_000}),
        json!({"attention_head_dim": 7}),
        json!({"attention_head_dim": [8, 8, null, 8]}),
        json!({"cross_attention_dim": [768]}),
        json!({"transformer_layers_per_block": [1, 1]}),
        json!({"transformer_layers_per_block": [[1, 1], [1, 1], [1, 1], 1]}),
        json!({"transformer_layers_per_block": 1e9}),
        json!({"reverse_transformer_layers_per_block": [[1, 1], 1, 1, 1]}),
        json!({"only_cross_attention": [true]}),
        json!({"freq_shift": 160}),
        json!({"freq_shift": -1}),
        json!({"conv_in_kernel": 4}),
        json!({"conv_out_kernel": 99}),
        json!({"downsample_padding": 2}),
        json!({"mid_block_scale_factor": 0}),
        json!({"norm_eps": 0}),
        json!({"sample_size": [64, 64, 64]}),
        json!({"flip_sin_to_cos": 1}),
        json!({"addition_embed_type": "text_time", "addition_time_embed_dim": 256}),
        json!({"addition_embed_type": "text_time", "projection_class_embeddings_input_dim": 2816}),
    ];
    check(
        UnetConfig::parse,
        &configs,
        expect![[r#"
        the UNet config can't be read: it is `[]`, not an object
        in the UNet config, `in_channels` is `0`, but it must be a whole number from 1 to 65536
        in the UNet config, `in_channels` is `-4`, but it must be a whole number from 1 to 65536
        in the UNet config, `in_channels` is `4.5`, but it must be a whole number from 1 to 65536
        in the UNet config, `in_channels` is `"4"`, but it must be a whole number from 1 to 65536
        in the UNet config, `out_channels` is `1099511627776`, but it must be a whole number from 1 to 65536
        in the UNet config, `block_out_channels` is `[]`, but it must be a list of 1 to 16 whole numbers from 1 to 65536
        in the UNet config, `block_out_channels` is `320`, but it must be a list of 1 to 16 whole numbers from 1 to 65536
        in the UNet config, `block_out_channels` is `[32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32]`, but it must be a list of 1 to 16 whole numbers from 1 to 65536
        in the UNet config, `block_out_channels` is `[320,640,1280,18446744073709551615]`, but it must be a list of 1 to 16 whole numbers from 1 to 65536
        in the UNet config, `down_block_types` is `null`, but it must be a list of 3 of `DownBlock2D` or `CrossAttnDownBlock2D`
        in the UNet config, `norm_num_groups` is `48`, but it must be a divisor of all `block_out_channels`, of which one is 320
        in the UNet config, `norm_num_groups` is `0`, but it must be a whole number from 1 to 65536
        in the UNet config, `norm_num_groups` is `"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa…`, but it must be a whole number from 1 to 65536
        in the UNet config, `layers_per_block` is `[2,2,2]`, but it must be a whole number from 1 to 64, or a list of 4 of them
        in the UNet config, `layers_per_block` is `1000000000`, but it must be a whole number from 1 to 64, or a list of 4 of them
        in the UNet config, `attention_head_dim` is `7`, but it must be a number of heads that divides the 320 channels of block 0
        in the UNet config, `attention_head_dim` is `[8,8,null,8]`, but it must be a whole number from 1 to 65536, or a list of 4 of them
        in the UNet config, `cross_attention_dim` is `[768]`, but it must be a whole number from 1 to 65536, or a list of 4 of them
        in the UNet config, `transformer_layers_per_block` is `[1,1]`, but it must be a whole number up to 128, or for each of 4 blocks a number or a list of one for each layer
        in the UNet config, `reverse_transformer_layers_per_block` is `null`, but it must be given, for `transformer_layers_per_block` has a list for a block
        in the UNet config, `transformer_layers_per_block` is `1000000000.0`, but it must be a whole number up to 128, or for each of 4 blocks a number or a list of one for each layer
        in the UNet config, `reverse_transformer_layers_per_block` is `[[1,1],1,1,1]`, but it must be a whole number up to 128, or for each of 4 blocks a number or a list of one for each layer
        in the UNet config, `only_cross_attention` is `[true]`, but it must be true, false, or a list of 4 of them
        in the UNet config, `freq_shift` is `160`, but it must be a number from 0 to below 160, the frequencies of the embedding
        in the UNet config, `freq_shift` is `-1`, but it must be a number from 0 to below 160, the frequencies of the embedding
        in the UNet config, `conv_in_kernel` is `4`, but it must be odd, so that the size of the image is kept
        in the UNet config, `conv_out_kernel` is `99`, but it must be a whole number from 1 to 15
        in the UNet config, `downsample_padding` is `2`, but it must be 0 or 1
        in the UNet config, `mid_block_scale_factor` is `0`, but it must be a positive number
        in the UNet config, `norm_eps` is `0`, but it must be a number between 0 and 1
        in the UNet config, `sample_size` is `[64,64,64]`, but it must be a whole number, two of them, or null
        in the UNet config, `flip_sin_to_cos` is `1`, but it must be true or false
        in the UNet config, `projection_class_embeddings_input_dim` is `null`, but it must be given, for `addition_embed_type` is `text_time`
        in the UNet config, `addition_time_embed_dim` is `null`, but it must be given, for `addition_embed_type` is `text_time`
    "#]],
    );
}

#[test]
fn an_unknown_field_is_named_and_the_known_ones_listed() {
    check(
        UnetConfig::parse,
        &[json!({"_private": 1, "in_chanels": 4})],
        expect![[r#"
            the UNet config has an unknown field `in_chanels` with the value `4`; the known ones are `act_fn`, `addition_embed_type`, `addition_embed_type_num_heads`, `addition_time_embed_dim`, `attention_head_dim`, `attention_type`, `block_out_channels`, `center_input_sample`, `class_embed_type`, `class_embeddings_concat`, `conv_in_kernel`, `conv_out_kernel`, `cross_attention_dim`, `cross_attention_norm`, `down_block_types`, `downsample_padding`, `dropout`, `dual_cross_attention`, `encoder_hid_dim`, `encoder_hid_dim_type`, `flip_sin_to_cos`, `freq_shift`, `in_channels`, `layers_per_block`, `mid_block_only_cross_attention`, `mid_block_scale_factor`, `mid_block_type`, `norm_eps`, `norm_num_groups`, `num_attention_heads`, `num_class_embeds`, `only_cross_attention`, `out_channels`, `projection_class_embeddings_input_dim`, `resnet_out_scale_factor`, `resnet_skip_time_act`, `resnet_time_scale_shift`, `reverse_transformer_layers_per_block`, `sample_size`, `time_cond_proj_dim`, `time_embedding_act_fn`, `time_embedding_dim`, `time_embedding_type`, `timestep_post_act`, `transformer_layers_per_block`, `up_block_types`, `upcast_attention`, `use_linear_projection`
        "#]],
    );
    check(
        VaeConfig::parse,
        &[json!({"scale": {"deep": [1, 2]}})],
        expect![[r#"
            the VAE config has an unknown field `scale` with the value `{"deep":[1,2]}`; the known ones are `act_fn`, `block_out_channels`, `down_block_types`, `force_upcast`, `in_channels`, `latent_channels`, `latents_mean`, `latents_std`, `layers_per_block`, `mid_block_add_attention`, `norm_num_groups`, `out_channels`, `sample_size`, `scaling_factor`, `shift_factor`, `up_block_types`, `use_post_quant_conv`, `use_quant_conv`
        "#]],
    );
    check(
        ClipConfig::parse,
        &[json!({"hidden": 4})],
        expect![[r#"
            the text encoder config has an unknown field `hidden` with the value `4`; the known ones are `add_cross_attention`, `architectures`, `attention_dropout`, `bos_token_id`, `chunk_size_feed_forward`, `dropout`, `dtype`, `eos_token_id`, `finetuning_task`, `gradient_checkpointing`, `hidden_act`, `hidden_size`, `id2label`, `initializer_factor`, `initializer_range`, `intermediate_size`, `is_decoder`, `is_encoder_decoder`, `label2id`, `layer_norm_eps`, `max_position_embeddings`, `model_type`, `num_attention_heads`, `num_hidden_layers`, `num_labels`, `output_attentions`, `output_hidden_states`, `pad_token_id`, `problem_type`, `projection_dim`, `return_dict`, `task_specific_params`, `tie_word_embeddings`, `torch_dtype`, `torchscript`, `transformers_version`, `use_bfloat16`, `use_cache`, `vocab_size`
        "#]],
    );
}

#[test]
fn text_that_is_no_config_is_refused() {
    for (json, part) in [
        ("", "EOF"),
        ("{", "EOF"),
        ("null", "it is `null`, not an object"),
        (&"[".repeat(100_000), "recursion limit"),
        (&format!("{{\"a\": \"{}\"}}", "x".repeat(1 << 20)), "more than 1048576"),
    ] {
        let error = VaeConfig::parse(json).unwrap_err().to_string();
        assert!(error.starts_with("the VAE config can't be read: ") && error.contains(part), "{error}");
    }
}

#[test]
fn a_vae_config_without_fields_has_one_block() {
    let config = VaeConfig::parse("{}").unwrap();
    assert_eq!((config.block_out_channels.as_slice(), config.factor()), ([64].as_slice(), 1));
    assert_eq!(config.latent_scale.scale, [0.18215; 4]);
    assert_eq!(config.latent_scale.shift, [0.0; 4]);
}

#[test]
fn a_vae_scales_latents_as_a_whole_or_per_channel() {
    let scale = |json: Value| VaeConfig::parse(&json.to_string()).unwrap().latent_scale;
    let whole = scale(json!({"latent_channels": 2, "scaling_factor": 0.5, "shift_factor": 0.25}));
    assert_eq!((whole.scale, whole.shift), (vec![0.5, 0.5], vec![0.25, 0.25]));
    let each = json!({"latent_channels": 2, "scaling_factor": 0.5, "latents_mean": [1, -1], "latents_std": [2, 0.25]});
    let each = scale(each);
    assert_eq!((each.scale, each.shift), (vec![0.25, 2.0], vec![1.0, -1.0]));
}

#[test]
fn hostile_vae_values_are_refused() {
    let configs = [
        json!({"_class_name": "AsymmetricAutoencoderKL"}),
        json!({"act_fn": "gelu"}),
        json!({"block_out_channels": [64, 100]}),
        json!({"block_out_channels": [64, 128]}),
        json!({"down_block_types": ["AttnDownEncoderBlock2D"]}),
        json!({"down_block_types": "DownEncoderBlock2D"}),
        json!({"up_block_types": ["UpDecoderBlock2D", "UpDecoderBlock2D"]}),
        json!({"norm_num_groups": 48}),
        json!({"latent_channels": 0}),
        json!({"layers_per_block": [2]}),
        json!({"scaling_factor": 0}),
        json!({"scaling_factor": "0.18215"}),
        json!({"latents_mean": [0, 0, 0, 0]}),
        json!({"latents_std": [1, 1, 1, 1]}),
        json!({"latents_mean": [0, 0, 0], "latents_std": [1, 1, 1]}),
        json!({"latents_mean": [0, 0, 0, 0], "latents_std": [1, 0, 1, 1]}),
        json!({"latents_mean": [0, 0, 0, 0], "latents_std": [1, 1, 1, 1], "shift_factor": 0.1}),
        json!({"use_quant_conv": "no"}),
        json!({"force_upcast": 1}),
    ];
    check(
        VaeConfig::parse,
        &configs,
        expect![[r#"
        in the VAE config, `_class_name` is `"AsymmetricAutoencoderKL"`, but it must be `AutoencoderKL`
        in the VAE config, `act_fn` is `"gelu"`, but it must be `"silu"` or `"swish"` or null
        in the VAE config, `down_block_types` is `null`, but it must be a list of 2 of `DownEncoderBlock2D`
        in the VAE config, `down_block_types` is `null`, but it must be a list of 2 of `DownEncoderBlock2D`
        in the VAE config, `down_block_types` is `["AttnDownEncoderBlock2D"]`, but it must be a list of 1 of `DownEncoderBlock2D`
        in the VAE config, `down_block_types` is `"DownEncoderBlock2D"`, but it must be a list of 1 of `DownEncoderBlock2D`
        in the VAE config, `up_block_types` is `["UpDecoderBlock2D","UpDecoderBlock2D"]`, but it must be a list of 1 of `UpDecoderBlock2D`
        in the VAE config, `norm_num_groups` is `48`, but it must be a divisor of all `block_out_channels`, of which one is 64
        in the VAE config, `latent_channels` is `0`, but it must be a whole number from 1 to 65536
        in the VAE config, `layers_per_block` is `[2]`, but it must be a whole number from 1 to 64
        in the VAE config, `scaling_factor` is `0`, but it must be a number other than 0
        in the VAE config, `scaling_factor` is `"0.18215"`, but it must be a number other than 0
        in the VAE config, `latents_std` is `null`, but it must be given too, for `latents_mean` and `latents_std` go together
        in the VAE config, `latents_mean` is `null`, but it must be given too, for `latents_mean` and `latents_std` go together
        in the VAE config, `latents_mean` is `[0,0,0]`, but it must be a list of 4 numbers
        in the VAE config, `latents_std` is `[1.0,0.0,1.0,1.0]`, but it must be a list of 4 positive numbers
        in the VAE config, `shift_factor` is `0.1`, but it must be null beside `latents_mean`, which is a shift too
        in the VAE config, `use_quant_conv` is `"no"`, but it must be true or false
        in the VAE config, `force_upcast` is `1`, but it must be true or false
    "#]],
    );
}

#[test]
fn a_text_config_says_projection_and_pooling() {
    let parse = |json: Value| ClipConfig::parse(&json.to_string()).unwrap();
    let old = parse(json!({"architectures": ["CLIPTextModel"], "eos_token_id": 2, "torch_dtype": "float32"}));
    assert_eq!((old.projection_dim, old.pooling), (None, Pooling::LargestId));
    let new = parse(json!({"architectures": ["CLIPTextModelWithProjection"], "projection_dim": 1280}));
    assert_eq!((new.projection_dim, new.pooling), (Some(1280), Pooling::FirstOf(49407)));
}

#[test]
fn hostile_text_values_are_refused() {
    let configs = [
        json!({"model_type": "t5"}),
        json!({"architectures": ["CLIPModel"]}),
        json!({"architectures": "CLIPTextModel"}),
        json!({"hidden_act": "relu"}),
        json!({"num_attention_heads": 7}),
        json!({"num_hidden_layers": 0}),
        json!({"num_hidden_layers": 1e6}),
        json!({"vocab_size": u64::MAX}),
        json!({"layer_norm_eps": -1}),
        json!({"eos_token_id": [1, 2]}),
        json!({"eos_token_id": -1}),
        json!({"text_config": {}}),
    ];
    check(
        ClipConfig::parse,
        &configs,
        expect![[r#"
            in the text encoder config, `model_type` is `"t5"`, but it must be `"clip_text_model"` or null
            in the text encoder config, `architectures` is `["CLIPModel"]`, but it must be ["CLIPTextModel"] or ["CLIPTextModelWithProjection"]
            in the text encoder config, `architectures` is `"CLIPTextModel"`, but it must be ["CLIPTextModel"] or ["CLIPTextModelWithProjection"]
            in the text encoder config, `hidden_act` is `"relu"`, but it must be `quick_gelu` or `gelu` or `gelu_new` or `gelu_pytorch_tanh`
            in the text encoder config, `num_attention_heads` is `7`, but it must be a divisor of `hidden_size`, which is 512
            in the text encoder config, `num_hidden_layers` is `0`, but it must be a whole number from 1 to 512
            in the text encoder config, `num_hidden_layers` is `1000000.0`, but it must be a whole number from 1 to 512
            in the text encoder config, `vocab_size` is `18446744073709551615`, but it must be a whole number from 1 to 16777216
            in the text encoder config, `layer_norm_eps` is `-1`, but it must be a number between 0 and 1
            in the text encoder config, `eos_token_id` is `[1,2]`, but it must be one token id
            in the text encoder config, `eos_token_id` is `-1`, but it must be one token id
            the text encoder config has an unknown field `text_config` with the value `{}`; the known ones are `add_cross_attention`, `architectures`, `attention_dropout`, `bos_token_id`, `chunk_size_feed_forward`, `dropout`, `dtype`, `eos_token_id`, `finetuning_task`, `gradient_checkpointing`, `hidden_act`, `hidden_size`, `id2label`, `initializer_factor`, `initializer_range`, `intermediate_size`, `is_decoder`, `is_encoder_decoder`, `label2id`, `layer_norm_eps`, `max_position_embeddings`, `model_type`, `num_attention_heads`, `num_hidden_layers`, `num_labels`, `output_attentions`, `output_hidden_states`, `pad_token_id`, `problem_type`, `projection_dim`, `return_dict`, `task_specific_params`, `tie_word_embeddings`, `torch_dtype`, `torchscript`, `transformers_version`, `use_bfloat16`, `use_cache`, `vocab_size`
        "#]],
    );
}

#[test]
fn all_fixture_configs_are_read() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let read = |path: &str| std::fs::read_to_string(format!("{root}/{path}/config.json")).unwrap();
    for model in [
        "fixtures/models/sd15",
        "fixtures/models/sd2",
        "fixtures/models/sdxl",
        "fixtures/models/vae4",
        "fixtures/models/groups",
        "assets/emoji64",
    ] {
        UnetConfig::parse(&read(&format!("{model}/unet"))).unwrap();
        VaeConfig::parse(&read(&format!("{model}/vae"))).unwrap();
        ClipConfig::parse(&read(&format!("{model}/text_encoder"))).unwrap();
    }
    let second = ClipConfig::parse(&read("fixtures/models/sdxl/text_encoder_2")).unwrap();
    assert_eq!(second.projection_dim, Some(20));
    let groups = UnetConfig::parse(&read("fixtures/models/groups/unet")).unwrap();
    expect![[r#"
        down 12 x 1
        down 18 x 2 heads 1 context 24 depths [1, 1]
        down 24 x 1
        down 12 x 3 heads 4 context 24 depths [1, 1, 1]
        mid 12 x 1
        up 12 x 4 heads 4 context 24 depths [1, 1, 1, 1]
        up 24 x 2
        up 18 x 3 heads 1 context 24 depths [1, 1, 1]
        up 12 x 2
    "#]]
    .assert_eq(&blocks(&groups));
}
