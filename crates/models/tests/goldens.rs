//! Every model against what diffusers 0.42.1 and transformers 5.24.0 compute in f32 on torch 2.10.0
//! (tools/reference/module_goldens.py, upscaler_goldens.py).
//!
//! The tolerance is 2e-4 absolute at values of order 1: f32 sums over some thousand products differ in the last bits by
//! their order, and some sixty layers pass that on. What is streamed must equal what is resident bit by bit.

mod common;

use common::{Loaded, MODELS, STREAMED, Weights, config, has_part, index, part};
use plimsoll_device::DType;
use plimsoll_models::clip::{ClipConfig, ClipTextEncoder, TextEncoding, TextRequest};
use plimsoll_models::srvgg::{Srvgg, SrvggConfig};
use plimsoll_models::unet::{AddedInput, Stage, Unet, UnetConfig, UnetInput};
use plimsoll_models::vae::{VaeConfig, VaeDecoder, VaeEncoder};
use plimsoll_nn::Builder;
use plimsoll_testkit::{Golden, assert_close, asset};

const TOLERANCE: f32 = 2e-4;

fn load_unet(model: &str, dtype: DType, weights: Weights) -> Loaded<Unet> {
    let config = UnetConfig::parse(&config(model, "unet")).unwrap();
    Loaded::new(&index(part(model, "unet")), dtype, weights, |b| Unet::build(b, &config), Unet::ignores)
}

fn stage_name(stage: Stage) -> String {
    match stage {
        Stage::TimeEmbedding => "unet.temb".to_owned(),
        Stage::ConvIn => "unet.conv_in".to_owned(),
        Stage::Down(idx) => format!("unet.down.{idx}"),
        Stage::Mid => "unet.mid".to_owned(),
        Stage::Up(idx) => format!("unet.up.{idx}"),
    }
}

/// The output, and every stage's, by the goldens' names.
fn run_unet(loaded: &Loaded<Unet>, golden: &Golden) -> Vec<(String, Vec<f32>)> {
    let sample = loaded.upload_golden(golden, "unet.sample");
    let context = loaded.upload_golden(golden, "unet.encoder_hidden_states");
    let timesteps = golden.f32("unet.timestep").values;
    let has_added = golden.has("unet.text_embeds");
    let text_embeds = has_added.then(|| loaded.upload_golden(golden, "unet.text_embeds"));
    let time_ids = has_added.then(|| golden.f32("unet.time_ids").values);
    let added = text_embeds.as_ref().zip(time_ids.as_ref());
    let input = UnetInput {
        sample: &sample,
        timesteps: &timesteps,
        encoder_hidden_states: &context,
        added: added.map(|(text_embeds, time_ids)| AddedInput { text_embeds, time_ids }),
    };
    let mut seen = Vec::new();
    let mut observe = |stage, x: &_| seen.push((stage_name(stage), loaded.download(x)));
    let out = loaded.model.forward_observed(&loaded.run(), &input, &mut observe).unwrap();
    seen.push(("unet.out".to_owned(), loaded.download(&out)));
    seen
}

#[test]
fn unets_equal_the_reference_at_every_stage() {
    for model in MODELS {
        let golden = Golden::load(model);
        let loaded = load_unet(model, DType::F32, Weights::Resident);
        let seen = run_unet(&loaded, &golden);
        let config = UnetConfig::parse(&config(model, "unet")).unwrap();
        assert_eq!(seen.len(), 4 + 2 * config.down_blocks.len(), "{model}");
        for (name, numbers) in seen {
            assert_close(&format!("{model} {name}"), &numbers, &golden.f32(&name).channels_last().values, TOLERANCE);
        }
    }
}

#[test]
fn a_streamed_unet_gives_the_same_bits() {
    for model in MODELS {
        let golden = Golden::load(model);
        let resident = run_unet(&load_unet(model, DType::F32, Weights::Resident), &golden);
        for weights in STREAMED {
            let loaded = load_unet(model, DType::F32, weights);
            for pass in ["first", "second"] {
                assert!(run_unet(&loaded, &golden) == resident, "{model}, {weights:?}, {pass} pass");
            }
        }
    }
}

/// bf16 keeps 8 bits, so one rounding is off by up to 2^-9 of a value; some hundred of them in a row, not all in one
/// direction, stay within 4 % of the output's size.
#[test]
fn a_unet_in_bf16_is_near_the_reference() {
    for model in MODELS {
        let golden = Golden::load(model);
        let seen = run_unet(&load_unet(model, DType::BF16, Weights::Resident), &golden);
        let (_, out) = seen.last().unwrap();
        let relative = relative_error(out, &golden.f32("unet.out").channels_last().values);
        assert!(relative < 0.04, "{model}: {relative}");
        assert!(relative > 1e-5, "{model}: {relative} is no error of bf16; was it computed in f32?");
    }
}

/// Root mean square of the difference, by that of the expected.
fn relative_error(found: &[f32], expected: &[f32]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let square = |x: f32| f64::from(x).powi(2);
    let error: f64 = found.iter().zip(expected).map(|(found, expected)| square(found - expected)).sum();
    (error / expected.iter().copied().map(square).sum::<f64>()).sqrt()
}

fn load_text(model: &str, name: &str, weights: Weights) -> Loaded<ClipTextEncoder> {
    let config = ClipConfig::parse(&config(model, name)).unwrap();
    let build = |b: &Builder<'_>| ClipTextEncoder::build(b, &config);
    Loaded::new(&index(part(model, name)), DType::F32, weights, build, ClipTextEncoder::ignores)
}

fn encode(loaded: &Loaded<ClipTextEncoder>, ids: &[Vec<u32>], request: TextRequest) -> TextEncoding {
    loaded.model.forward(&loaded.run(), ids, request).unwrap()
}

fn sequences(golden: &Golden, name: &str) -> Vec<Vec<u32>> {
    let ids = golden.i32(&format!("{name}.input_ids"));
    let [_, tokens] = ids.dims();
    ids.values.chunks(tokens).map(|ids| ids.iter().map(|&id| id as u32).collect()).collect()
}

/// The models' text encoders, by model and part.
fn text_encoders() -> impl Iterator<Item = (&'static str, &'static str)> {
    let parts = MODELS.into_iter().flat_map(|model| [(model, "text_encoder"), (model, "text_encoder_2")]);
    parts.filter(|(model, name)| has_part(model, name))
}

#[test]
fn text_encoders_equal_the_reference() {
    let mut count = 0;
    for (model, name) in text_encoders() {
        let golden = Golden::load(model);
        let ids = sequences(&golden, name);
        let loaded = load_text(model, name, Weights::Resident);
        let check = |what: &str, found: &[f32]| {
            let key = format!("{name}.{what}");
            assert_close(&format!("{model} {key}"), found, &golden.f32(&key).values, TOLERANCE);
        };
        let last = encode(&loaded, &ids, TextRequest::LAST);
        assert!(last.pooled.is_none());
        assert_eq!(last.hidden_state.shape(), golden.f32(&format!("{name}.last_hidden_state")).shape);
        check("last_hidden_state", &loaded.download(&last.hidden_state));

        let both = encode(&loaded, &ids, TextRequest::PENULTIMATE_AND_POOLED);
        check("penultimate", &loaded.download(&both.hidden_state));
        let pooled = loaded.download(&both.pooled.unwrap());
        let is_projected = golden.has(&format!("{name}.text_embeds"));
        check(if is_projected { "text_embeds" } else { "pooled" }, &pooled);

        // The state before the projection, found by the position that the encoder pools.
        let pooling = ClipConfig::parse(&config(model, name)).unwrap().pooling;
        let states = golden.f32(&format!("{name}.last_hidden_state"));
        let [_, tokens, width] = states.dims();
        let rows = ids.iter().enumerate().map(|(idx, ids)| idx * tokens + pooling.position(ids));
        let states: Vec<f32> = rows.flat_map(|row| states.values[row * width..][..width].to_vec()).collect();
        check("pooled", &states);
        count += 1;
    }
    assert_eq!(count, 7);
}

#[test]
fn a_skipped_layer_does_not_change_what_else_is_requested() {
    let golden = Golden::load("sdxl");
    let ids = sequences(&golden, "text_encoder_2");
    let loaded = load_text("sdxl", "text_encoder_2", Weights::Resident);
    let request = TextRequest { layers_skipped: 1, final_norm: true, pooled: false };
    let skipped = loaded.download(&encode(&loaded, &ids, request).hidden_state);
    let with_pooled = encode(&loaded, &ids, TextRequest { pooled: true, ..request });
    assert_eq!(loaded.download(&with_pooled.hidden_state), skipped);

    // The final norm of the reference's penultimate state, with the layer's own weights.
    let penultimate = golden.f32("text_encoder_2.penultimate");
    let tensors = index(part("sdxl", "text_encoder_2"));
    let read = |name| plimsoll_testkit::read_f32(tensors.get(name).unwrap());
    let (scale, shift) = (read("text_model.final_layer_norm.weight"), read("text_model.final_layer_norm.bias"));
    let expected: Vec<f32> = penultimate.values.chunks(scale.len()).flat_map(|x| norm(x, &scale, &shift)).collect();
    assert_close("penultimate with final norm", &skipped, &expected, TOLERANCE);
}

fn norm(x: &[f32], scale: &[f32], shift: &[f32]) -> Vec<f32> {
    let len = x.len() as f64;
    let mean = x.iter().map(|&x| f64::from(x)).sum::<f64>() / len;
    let variance = x.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / len;
    let norm = |x: f32| ((f64::from(x) - mean) / (variance + 1e-5).sqrt()) as f32;
    x.iter().zip(scale).zip(shift).map(|((&x, scale), shift)| norm(x) * scale + shift).collect()
}

#[test]
fn a_streamed_text_encoder_gives_the_same_bits() {
    for (model, name) in text_encoders() {
        let ids = sequences(&Golden::load(model), name);
        let result = |weights| {
            let loaded = load_text(model, name, weights);
            let both = encode(&loaded, &ids, TextRequest::PENULTIMATE_AND_POOLED);
            let last = encode(&loaded, &ids, TextRequest::LAST);
            [both.hidden_state, both.pooled.unwrap(), last.hidden_state].map(|x| loaded.download(&x))
        };
        let resident = result(Weights::Resident);
        for weights in STREAMED {
            assert!(result(weights) == resident, "{model} {name}, {weights:?}");
        }
    }
}

#[test]
fn an_encoders_sequences_are_checked() {
    let loaded = load_text("sd15", "text_encoder", Weights::Resident);
    for (ids, layers_skipped, expected) in [
        (vec![], 0, "there is no sequence to encode; give one for each prompt"),
        (vec![vec![]], 0, "sequence 0 has 0 tokens, but all must have 0, from 1 to 77"),
        (vec![vec![0; 78]], 0, "sequence 0 has 78 tokens, but all must have 78, from 1 to 77"),
        (vec![vec![0; 5], vec![0; 6]], 0, "sequence 1 has 6 tokens, but all must have 5, from 1 to 77"),
        (
            vec![vec![0, 1414]],
            0,
            "the token id 1414 is beyond the text encoder's vocabulary of 1414; use the model's own tokenizer",
        ),
        (vec![vec![0]], 4, "4 layers can't be left out of a text encoder with 3; leave out at most 3"),
    ] {
        let request = TextRequest { layers_skipped, ..TextRequest::LAST };
        let error = loaded.model.forward(&loaded.run(), &ids, request).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
}

fn encode_images(model: &str, weights: Weights, golden: &Golden, prefix: &str) -> Vec<f32> {
    let config = VaeConfig::parse(&config(model, "vae")).unwrap();
    let build = |b: &Builder<'_>| VaeEncoder::build(b, &config);
    let loaded = Loaded::new(&index(part(model, "vae")), DType::F32, weights, build, VaeEncoder::ignores);
    let images = loaded.upload_golden(golden, &format!("{prefix}.image"));
    loaded.download(&loaded.model.forward(&loaded.run(), &images).unwrap())
}

fn decode_latents(model: &str, weights: Weights, golden: &Golden, prefix: &str) -> Vec<f32> {
    let config = VaeConfig::parse(&config(model, "vae")).unwrap();
    let build = |b: &Builder<'_>| VaeDecoder::build(b, &config);
    let loaded = Loaded::new(&index(part(model, "vae")), DType::F32, weights, build, VaeDecoder::ignores);
    let latents = loaded.upload_golden(golden, &format!("{prefix}.latent"));
    let images = loaded.model.forward(&loaded.run(), &latents).unwrap();
    let factor = config.factor();
    assert_eq!(images.shape()[1..3], [latents.shape()[1] * factor, latents.shape()[2] * factor]);
    loaded.download(&images)
}

#[test]
fn autoencoders_equal_the_reference() {
    for model in MODELS {
        let golden = Golden::load(model);
        for prefix in ["vae", "vae.odd"] {
            let moments = encode_images(model, Weights::Resident, &golden, prefix);
            let name = format!("{prefix}.moments");
            assert_close(&format!("{model} {name}"), &moments, &golden.f32(&name).channels_last().values, TOLERANCE);
            let decoded = decode_latents(model, Weights::Resident, &golden, prefix);
            let name = format!("{prefix}.decoded");
            assert_close(&format!("{model} {name}"), &decoded, &golden.f32(&name).channels_last().values, TOLERANCE);
        }
    }
}

#[test]
fn a_streamed_autoencoder_gives_the_same_bits() {
    for model in MODELS {
        let golden = Golden::load(model);
        let moments = encode_images(model, Weights::Resident, &golden, "vae");
        let decoded = decode_latents(model, Weights::Resident, &golden, "vae");
        for weights in STREAMED {
            assert!(encode_images(model, weights, &golden, "vae") == moments, "{model} encoder, {weights:?}");
            assert!(decode_latents(model, weights, &golden, "vae") == decoded, "{model} decoder, {weights:?}");
        }
    }
}

#[test]
fn the_upscaler_equals_the_reference_resident_and_streamed() {
    let file = index(asset("realesr-animevideov3-x4/realesr-animevideov3-x4.safetensors"));
    let config = SrvggConfig::detect(&file).unwrap();
    assert_eq!(config, SrvggConfig { image_channels: 3, channels: 64, conv_count: 16, upscale: 4 });
    let golden = Golden::load("upscaler");
    let load = |weights| Loaded::new(&file, DType::F32, weights, |b| Srvgg::build(b, &config), Srvgg::ignores);
    let (resident, streamed) = (load(Weights::Resident), load(Weights::Streamed(1)));
    for case in ["odd", "tiny", "square"] {
        let upscale = |loaded: &Loaded<Srvgg>| {
            let images = loaded.upload_golden(&golden, &format!("{case}.image"));
            loaded.download(&loaded.model.forward(&loaded.run(), &images).unwrap())
        };
        let out = upscale(&resident);
        assert_close(case, &out, &golden.f32(&format!("{case}.out")).channels_last().values, TOLERANCE);
        assert!(upscale(&streamed) == out, "{case}");
    }
}

#[test]
fn a_unets_inputs_are_checked() {
    let golden = Golden::load("sdxl");
    let loaded = load_unet("sdxl", DType::F32, Weights::Resident);
    let sample = loaded.upload_golden(&golden, "unet.sample");
    let context = loaded.upload_golden(&golden, "unet.encoder_hidden_states");
    let text_embeds = loaded.upload_golden(&golden, "unet.text_embeds");
    let error = |timesteps: &[f32], time_ids: Option<&[f32]>| {
        let added = time_ids.map(|time_ids| AddedInput { text_embeds: &text_embeds, time_ids });
        let input = UnetInput { sample: &sample, timesteps, encoder_hidden_states: &context, added };
        loaded.model.forward(&loaded.run(), &input).unwrap_err().to_string()
    };
    assert_eq!(
        error(&[1.0], Some(&[0.0; 12])),
        "the UNet can't take 1 timesteps for 2 samples: there must be one for each sample"
    );
    assert_eq!(
        error(&[1.0, 1.0], None),
        "the UNet can't take no `text_embeds` and `time_ids` for 2 samples: its `addition_embed_type` is `text_time`, \
         which needs both"
    );
    for time_ids in [&[0.0; 11][..], &[0.0; 10], &[]] {
        let len = time_ids.len();
        assert_eq!(
            error(&[1.0, 1.0], Some(time_ids)),
            format!(
                "the UNet can't take `text_embeds` [2, 20] and {len} `time_ids` for 2 samples: the width and 8 for each \
                 number must sum to 68 a sample"
            )
        );
    }
}
