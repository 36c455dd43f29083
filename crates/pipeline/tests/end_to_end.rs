//! Whole pictures against diffusers.
//!
//! Goldens: `tools/reference/e2e_goldens.py` (torch 2.10.0, diffusers 0.42.1, transformers 5.24.0), f32 on the CPU.
//! Tolerance: 1 of 255 levels, because a last bit of f32 can decide how a level is rounded.

mod common;

use common::{device, opened, picture, with_scheduler};
use plimsoll_device::ByteCount;
use plimsoll_pipeline::{Request, Silent, StartImage};
use plimsoll_sampling::{Sampler, SigmaSchedule};
use plimsoll_testkit::fixture;
use serde_json::Value;

const LEVELS_APART_MAX: u8 = 1;

fn cases() -> Vec<Value> {
    let text = std::fs::read_to_string(fixture("goldens/e2e.json")).unwrap();
    let goldens: Value = serde_json::from_str(&text).unwrap();
    goldens["cases"].as_array().unwrap().clone()
}

/// The sampler with the formulas of the case's scheduler.
fn sampler(case: &Value, own: Sampler) -> Sampler {
    if case["overrides"]["algorithm_type"] == "sde-dpmsolver++" {
        return Sampler::Dpmpp2mSde;
    }
    case["scheduler"].as_str().map_or(own, |class| Sampler::of_diffusers_class(class).unwrap())
}

fn request(case: &Value, own: Sampler) -> Request {
    let size = |name: &str| case[name].as_u64().unwrap() as usize;
    let start = case["init_image"].as_str().map(|file| StartImage {
        image: picture(&format!("goldens/e2e/{file}")),
        strength: case["strength"].as_f64().unwrap(),
    });
    Request {
        prompt: case["prompt"].as_str().unwrap().to_owned(),
        negative: case["negative"].as_str().unwrap_or_default().to_owned(),
        steps: size("steps"),
        guidance: case["guidance"].as_f64().unwrap(),
        sampler: sampler(case, own),
        schedule: SigmaSchedule::Model,
        seed: case["seed"].as_u64().unwrap(),
        width: size("width"),
        height: size("height"),
        count: 1,
        image: start,
    }
}

#[test]
fn pictures_are_those_of_diffusers() {
    let mut failures = Vec::new();
    for case in cases() {
        let name = case["name"].as_str().unwrap();
        let folder = with_scheduler(case["model"].as_str().unwrap(), &case["scheduler"], &case["overrides"]);
        let pipeline = opened(folder.path(), device(ByteCount::MAX), 0);
        let request = request(&case, pipeline.defaults().sampler);
        let generated = pipeline.generate(&request, None, &mut Silent).unwrap_or_else(|e| panic!("{name}: {e}"));
        let expected = picture(&format!("goldens/{}", case["png"].as_str().unwrap()));
        let pairs = generated.images[0].rgb().iter().zip(expected.rgb());
        let apart = pairs.map(|(actual, expected)| actual.abs_diff(*expected)).max().unwrap();
        if apart > LEVELS_APART_MAX {
            failures.push(format!("{name}: {apart} levels apart"));
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}
