//! `plimsoll inspect`, on folders and files whose contents are known from their configurations.

mod common;

use common::{Bench, repository};
use expect_test::expect;
use serde_json::json;

fn asset(path: &str) -> String {
    repository().join(path).to_str().unwrap().to_owned()
}

#[test]
fn a_model_folder_lists_its_components() {
    let outcome = Bench::new().run(&["inspect", &asset("assets/emoji64"), "--units", "2"]);
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    let text = outcome.stdout.replace(&asset("assets/emoji64"), "MODEL");
    expect![[r#"
        MODEL: StableDiffusionPipeline

        scheduler  DDIMScheduler

        text_encoder  CLIPTextModel
          782,080 parameters in 36 tensors, 19 units
          stored        1.49 MiB  F16
          as f32        2.98 MiB
          as bf16       1.50 MiB  (vectors stay f32)
          largest units
              990.25 KiB  embeddings.token_embedding  weight [3961, 128]
               64.50 KiB  encoder.layers.0.mlp.fc1  bias [256] weight [256, 128]

        tokenizer  CLIPTokenizer

        unet  UNet2DConditionModel
          3,221,572 parameters in 326 tensors, 184 units
          stored        6.14 MiB  F16
          as f32       12.29 MiB
          as bf16       6.18 MiB  (vectors stay f32)
          largest units
              576.25 KiB  up_blocks.0.resnets.0.conv1  bias [128] weight [128, 256, 3, 3]
              432.25 KiB  up_blocks.0.resnets.1.conv1  bias [128] weight [128, 192, 3, 3]

        vae  AutoencoderKL
          681,911 parameters in 156 tensors, 78 units
          stored        1.30 MiB  F16
          as f32        2.60 MiB
          as bf16       1.31 MiB  (vectors stay f32)
          largest units
               72.12 KiB  decoder.mid_block.resnets.0.conv1  bias [64] weight [64, 64, 3, 3]
               72.12 KiB  decoder.mid_block.resnets.0.conv2  bias [64] weight [64, 64, 3, 3]
    "#]]
    .assert_eq(&text);
}

#[test]
fn json_holds_the_same_facts() {
    let json = Bench::new().run(&["inspect", &asset("fixtures/models/sdxl"), "--json", "--units", "1"]).json();
    assert_eq!(json["class"], "StableDiffusionXLPipeline");
    let names: Vec<&str> =
        json["components"].as_array().unwrap().iter().map(|component| component["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["scheduler", "text_encoder", "text_encoder_2", "tokenizer", "tokenizer_2", "unet", "vae"]);
    for component in json["components"].as_array().unwrap() {
        let Some(weights) = component["weights"].as_object() else { continue };
        let stored: u64 =
            weights["stored_bytes"].as_object().unwrap().values().map(|bytes| bytes.as_u64().unwrap()).sum();
        assert!(stored > 0 && weights["unit_count"].as_u64().unwrap() > 1, "{component}");
        let (full, half) = (weights["f32_bytes"].as_u64().unwrap(), weights["bf16_bytes"].as_u64().unwrap());
        assert_eq!(full, weights["parameter_count"].as_u64().unwrap() * 4);
        assert!(half < full && half >= full / 2, "{component}");
        assert_eq!(weights["largest_units"].as_array().unwrap().len(), 1);
    }
}

/// The upscaler has 16 inner convolutions of 64 channels: 64 * 64 * 9 + 64 parameters each.
#[test]
fn a_file_is_one_component() {
    let file = asset("assets/realesr-animevideov3-x4/realesr-animevideov3-x4.safetensors");
    let json = Bench::new().run(&["inspect", &file, "--json", "--units", "1"]).json();
    assert_eq!(json["components"][0]["name"], "realesr-animevideov3-x4.safetensors");
    let unit = &json["components"][0]["weights"]["largest_units"][0];
    assert_eq!(unit["parameter_count"], json!(64 * 64 * 9 + 64));
    assert_eq!(unit["shapes"]["weight"], json!([64, 64, 3, 3]));
}
