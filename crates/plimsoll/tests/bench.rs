//! `plimsoll bench` measures what it says.

mod common;

use common::{Bench, repository};
use serde_json::Value;

#[test]
fn every_case_is_run_and_half_is_half() {
    let outcome = Bench::new().run(&["bench", "--runs", "1", "--steps", "2", "--threads", "1", "--json"]);
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    let cases = outcome.json();
    let cases = cases.as_array().unwrap();
    let names: Vec<&str> = cases.iter().map(|case| case["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["unlimited", "half the unlimited peak", "half, 1 offload stream", "unlimited, 1 denoise step"]);
    assert!(cases.iter().all(|case| case["seconds"].as_f64().unwrap() > 0.0 && case["refused"].is_null()));
    let peak = |idx: usize| cases[idx]["peak_bytes"].as_u64().unwrap();
    assert!(peak(1) <= peak(0) / 2 && peak(2) <= peak(0) / 2, "{} {} {}", peak(0), peak(1), peak(2));
    assert_eq!(cases[0]["ratio"], 1.0);
}

#[test]
fn a_model_with_no_plan_at_half_of_its_peak_is_measured_without_it() {
    let model = repository().join("fixtures/models/sdxl");
    let args = ["bench", "--runs", "1", "--steps", "1", "--json", "--model", model.to_str().unwrap()];
    let outcome = Bench::new().run(&args);
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    let cases = outcome.json();
    assert!(cases[0]["seconds"].is_f64());
    assert_eq!(cases[1]["seconds"], Value::Null);
    assert!(cases[1]["refused"].as_str().unwrap().contains("needs a budget of at least"), "{}", cases[1]);
}
