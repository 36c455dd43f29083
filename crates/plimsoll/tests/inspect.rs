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
    expect![[""]].assert_eq(&text);
}

#[test]
fn json_holds_the_same_facts() {
    let json = Bench::new().run(&["inspect", &asset("fixtures/models/sdxl"), "--json", "--units", "1"]).json();
    assert_eq!(json["class"], "StableDiffusionXLPipeline");
    let names: Vec<&str> =
        json["components"].as_array().unwrap().iter().map(|component| component["name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        ["scheduler", "text_encoder", "text_encoder_2", "tokenizer", "tokenizer_2", "unet", "vae"]
    );
    for component in json["components"].as_array().unwrap() {
        let Some(weights) = component["weights"].as_object() else { continue };
        let stored: u64 = weights["stored_bytes"].as_object().unwrap().values().map(|bytes| bytes.as_u64().unwrap()).sum();
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
