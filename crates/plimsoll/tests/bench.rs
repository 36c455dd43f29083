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

#[test]
fn streaming_is_measured_at_each_budget_under_both_policies_within_the_line() {
    let args = ["bench", "residency", "--model", "emoji64", "--size", "64", "--dtype", "f32", "--budgets", "80%,60"];
    let outcome = Bench::new().run(&[&args[..], &["--runs", "1", "--steps", "2", "--threads", "1", "--json"]].concat());
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    let report = outcome.json();
    let cases = report["cases"].as_array().unwrap();
    let name = |case: &Value| format!("{} {}", case["budget_percent"], case["policy"].as_str().unwrap());
    let names: Vec<String> = cases.iter().map(name).collect();
    let expected = ["100.0 spread", "100.0 largest-first", "80.0 spread", "80.0 largest-first", "60.0 spread"];
    assert_eq!(names[..5], expected, "{report}");
    let weights = report["weight_bytes"].as_u64().unwrap();
    for case in cases {
        let bytes = |key: &str| case[key].as_u64().unwrap();
        assert_eq!(bytes("resident_bytes") + bytes("streamed_bytes"), weights, "{case}");
        assert_eq!(bytes("moved_bytes"), bytes("streamed_bytes"), "a step moves what the plan says: {case}");
        assert!(bytes("peak_bytes") <= bytes("budget_bytes"), "{case}");
        assert!(bytes("process_peak_bytes") > bytes("peak_bytes"), "{case}");
        let seconds = case["seconds"].as_f64().unwrap();
        assert!(seconds > 0.0 && case["stall_seconds"].as_f64().unwrap() <= seconds, "{case}");
        let is_whole = case["budget_percent"] == 100.0;
        assert_eq!(is_whole, bytes("streamed_bytes") == 0, "{case}");
    }
    assert_eq!(cases[0]["ratio"], 1.0);
    assert!(report["leases"]["seconds"].as_f64().unwrap() > 0.0);
}

#[test]
fn a_budget_that_no_plan_fits_is_told_in_its_row() {
    let args = ["bench", "residency", "--model", "emoji64", "--size", "64", "--dtype", "f32", "--budgets", "1"];
    let outcome = Bench::new().run(&[&args[..], &["--runs", "1", "--steps", "1"]].concat());
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    let row = outcome.stdout.lines().find(|line| line.trim_start().starts_with("1% spread"));
    assert!(row.is_some_and(|row| row.contains("needs at least")), "{}", outcome.stdout);
}
