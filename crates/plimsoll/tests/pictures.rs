//! Pictures from end to end: what is written, what is told, and that the budget changes neither.
#![cfg(feature = "demo-model")]

mod common;

use common::{Bench, Png, repository};
use expect_test::expect;
use fs_err as fs;
use serde_json::{Value, json};

#[test]
fn writes_a_picture_named_after_prompt_and_seed_and_says_so() {
    let bench = Bench::new();
    let outcome = bench.generate(&[]);
    assert_eq!(outcome.stdout, "seed 42\nwrote red-heart-42.png\n");
    assert_eq!(outcome.stderr, "", "no progress bar without a terminal");
    let png = Png::read(&bench.path("red-heart-42.png"));
    assert_eq!((png.width, png.height), (64, 64));
    let again = bench.generate(&[]);
    assert_eq!(again.stdout, "seed 42\nwrote red-heart-42_2.png\n", "nothing is replaced without being asked");
    assert_eq!(bench.names(), ["red-heart-42.png", "red-heart-42_2.png"]);
}

#[test]
fn programs_that_run_at_once_take_different_names() {
    let bench = Bench::new();
    let args = ["generate", "red heart", "--steps", "1", "--seed", "42"];
    let start = |_| bench.command().args(args).stdout(std::process::Stdio::null()).spawn().unwrap();
    let programs: Vec<_> = (0..6).map(start).collect();
    for mut program in programs {
        assert!(program.wait().unwrap().success());
    }
    let numbered = (2..=6).map(|number| format!("red-heart-42_{number}.png"));
    let names: Vec<String> = std::iter::once("red-heart-42.png".to_owned()).chain(numbered).collect();
    assert_eq!(bench.names(), names);
}

#[test]
fn told_paths_cannot_steer_a_terminal() {
    let bench = Bench::new();
    let outcome = bench.generate(&["--out", "a\u{1b}[31m\nb.png"]);
    assert_eq!(outcome.stdout, "seed 42\nwrote a\\u{1b}[31m\\nb.png\n");
    assert_eq!(bench.names(), ["a\u{1b}[31m\nb.png"]);
}

/// Tolerance against goldens of `tools/reference/e2e_goldens.py` (torch 2.10.0, diffusers 0.42.1): one of 255 levels,
/// because a last bit of f32 can decide how a level is rounded.
#[track_caller]
fn assert_one_level_off(drawn: &Png, golden: &Png) {
    assert_eq!(drawn.rgb.len(), golden.rgb.len(), "pictures of different sizes");
    let farthest = drawn.rgb.iter().zip(&golden.rgb).map(|(a, b)| a.abs_diff(*b)).max().unwrap();
    assert!(farthest <= 1, "{farthest} levels off");
}

#[test]
fn the_picture_is_the_references() {
    let bench = Bench::new();
    let args = ["generate", "red heart", "--steps", "20", "--seed", "42", "--guidance", "7.5", "--out", "a.png"];
    assert_eq!(bench.run(&args).code, 0);
    let drawn = Png::read(&bench.path("a.png"));
    let golden = Png::read(&repository().join("fixtures/goldens/e2e/emoji64_ddim_heart_guidance_7_5.png"));
    assert_one_level_off(&drawn, &golden);
}

#[test]
fn json_tells_seed_files_bytes_seconds_and_accounts() {
    let bench = Bench::new();
    let json = bench.generate(&["--json", "--out", "a.png", "--budget", "64MiB"]).json();
    let fields: Vec<&str> = json.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(fields, ["seed", "files", "budget_bytes", "peak_bytes", "seconds", "accounts"]);
    assert_eq!((&json["seed"], &json["files"]), (&json!(42), &json!(["a.png"])));
    assert_eq!(json["budget_bytes"], json!(64 << 20));
    let peak = json["peak_bytes"].as_u64().unwrap();
    assert!(peak > 1 << 20 && peak <= 64 << 20, "{peak}");
    let phases: Vec<&str> = json["seconds"].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(phases, ["encode_text", "denoise", "decode"]);
    assert!(json["seconds"].as_object().unwrap().values().all(|seconds| seconds.as_f64().unwrap() >= 0.0));
    let accounts = json["accounts"].as_array().unwrap();
    assert!(accounts.iter().any(|account| account["name"] == "activations"));
    for account in accounts {
        let (bytes, peak_bytes) = (account["bytes"].as_u64().unwrap(), account["peak_bytes"].as_u64().unwrap());
        assert!(bytes <= peak_bytes && peak_bytes <= peak, "{account}");
        assert_eq!(bytes, 0, "everything is unloaded at the end: {account}");
    }
    let unlimited = bench.generate(&["--json", "--out", "a.png"]).json();
    assert_eq!(unlimited["budget_bytes"], Value::Null);
}

#[test]
fn text_chunks_tell_how_the_picture_was_made() {
    let bench = Bench::new();
    bench.generate(&[
        "--out",
        "a.png",
        "--negative",
        "blue",
        "--sampler",
        "euler",
        "--schedule",
        "karras",
        "--guidance",
        "4",
    ]);
    let png = Png::read(&bench.path("a.png"));
    let version = concat!("plimsoll ", env!("CARGO_PKG_VERSION"));
    expect![[r#"
        red heart
        Negative prompt: blue
        Steps: 2, Sampler: euler, Schedule type: karras, CFG scale: 4, Seed: 42, Size: 64x64, Model: emoji64, Version: VERSION"#]]
    .assert_eq(&png.chunk("parameters").replace(version, "VERSION"));
    let request: Value = serde_json::from_str(png.chunk("plimsoll")).unwrap();
    for (key, value) in [
        ("prompt", json!("red heart")),
        ("negative", json!("blue")),
        ("sampler", json!("euler")),
        ("schedule", json!("karras")),
        ("steps", json!(2)),
        ("guidance", json!(4.0)),
        ("seed", json!(42)),
        ("width", json!(64)),
        ("dtype", json!("f32")),
        ("image", Value::Null),
    ] {
        assert_eq!(request[key], value, "{key}");
    }
}

#[test]
fn any_script_survives_in_the_text_chunks() {
    let bench = Bench::new();
    let prompt = "красное сердце ❤\nsecond line";
    let outcome = bench.run(&["generate", prompt, "--steps", "1", "--seed", "1"]);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (0, "seed 1\nwrote красное-сердце-second-line-1.png\n"));
    let png = Png::read(&bench.path("красное-сердце-second-line-1.png"));
    assert!(png.chunk("parameters").starts_with(&format!("{prompt}\nSteps: 1, ")), "{}", png.chunk("parameters"));
    let request: Value = serde_json::from_str(png.chunk("plimsoll")).unwrap();
    assert_eq!(request["prompt"], prompt);
}

#[test]
fn the_file_is_the_same_at_every_budget_stream_count_and_thread_count() {
    let bench = Bench::new();
    let peak = bench.generate(&["--json", "--out", "whole.png"]).json()["peak_bytes"].as_u64().unwrap();
    let whole = fs::read(bench.path("whole.png")).unwrap();
    let needed = least_budget(&bench);
    assert!(needed < peak, "the smallest plan ({needed}) is smaller than everything resident ({peak})");
    for (budget, streams, threads) in [
        (peak, "0", "1"),
        ((needed + peak) / 2, "0", "2"),
        (needed, "0", "1"),
        (peak * 3 / 4, "1", "1"),
        (peak, "3", "2"),
    ] {
        let budget_text = budget.to_string();
        let args = ["--json", "--out", "a.png", "--budget", &budget_text, "--offload-streams", streams];
        let args: Vec<&str> = ["generate", "red heart", "--steps", "2", "--seed", "42", "--threads", threads]
            .into_iter()
            .chain(args)
            .collect();
        let outcome = bench.run(&args);
        assert_eq!(outcome.code, 0, "{args:?}: {}", outcome.stderr);
        assert!(outcome.json()["peak_bytes"].as_u64().unwrap() <= budget, "{args:?}");
        assert!(fs::read(bench.path("a.png")).unwrap() == whole, "{args:?} drew another picture");
    }
    let refused = bench.run(&["generate", "red heart", "--budget", &(needed - 1).to_string(), "--out", "b.png"]);
    assert_eq!(refused.code, 1);
    assert!(
        refused.stderr.contains(&needed.to_string()) && refused.stderr.contains("1 bytes short"),
        "{}",
        refused.stderr
    );
    assert!(!bench.path("b.png").exists());
}

/// The budget that the program itself says it needs, raised until no phase needs more.
fn least_budget(bench: &Bench) -> u64 {
    let mut budget = 1;
    for _ in 0..8 {
        let outcome =
            bench.run(&["generate", "red heart", "--steps", "2", "--budget", &budget.to_string(), "--out", "b.png"]);
        if outcome.code == 0 {
            fs::remove_file(bench.path("b.png")).unwrap();
            return budget;
        }
        let (_, rest) = outcome.stderr.split_once("at least ").expect(&outcome.stderr);
        budget = rest.split_once(" bytes").unwrap().0.parse().unwrap();
    }
    panic!("no phase is satisfied with {budget}");
}

#[test]
fn several_pictures_go_into_a_folder() {
    let bench = Bench::new();
    let json = bench.generate(&["--count", "2", "--out", "folder", "--json"]).json();
    assert_eq!(json["files"], json!(["folder/red-heart-42-1.png", "folder/red-heart-42-2.png"]));
    let pictures = ["1", "2"].map(|idx| Png::read(&bench.path(&format!("folder/red-heart-42-{idx}.png"))));
    assert!(pictures[0].rgb != pictures[1].rgb, "each has its own noise");
    bench.generate(&["--out", "one.png"]);
    assert!(Png::read(&bench.path("one.png")).rgb == pictures[0].rgb, "the first one is the one drawn alone");
    assert!(pictures[1].chunk("parameters").contains("Batch size: 2, Batch pos: 1"));
}

#[test]
fn the_report_s_rows_sum_to_the_total_and_stay_under_the_budget() {
    let bench = Bench::new();
    let outcome = bench.generate(&["--report", "memory", "--budget", "20MB", "--out", "a.png"]);
    let tables = check_tables(&outcome.stdout, 20_000_000);
    assert_eq!(tables, ["encode_text", "denoise", "decode"]);
    assert!(outcome.stdout.lines().any(|line| line.starts_with("peak ")), "{}", outcome.stdout);
    let outcome = bench.generate(&["--report", "memory", "--budget", "20MB", "--out", "a.png", "--json"]);
    outcome.json();
    assert_eq!(check_tables(&outcome.stderr, 20_000_000), tables);
}

/// The phases of the tables in `text`, each of which must add up.
fn check_tables(text: &str, budget: u64) -> Vec<String> {
    let mut phases = Vec::new();
    let mut sum = 0;
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let Some(rest) = line.strip_prefix("memory at the end of ") {
            phases.push(rest.split_whitespace().next().unwrap().to_owned());
            sum = 0;
        } else if line.starts_with("  total") {
            assert_eq!(words[1].parse::<u64>().unwrap(), sum, "{text}");
            assert!(sum > 0 && words[2].parse::<u64>().unwrap() <= budget, "{text}");
        } else if line.starts_with("  budget") {
            assert_eq!(words[1].parse::<u64>().unwrap(), budget);
        } else if line.starts_with("  ") {
            sum += words[1].parse::<u64>().unwrap();
        }
    }
    phases
}

#[test]
fn starts_from_a_picture() {
    let bench = Bench::new();
    let start = repository().join("fixtures/goldens/e2e/emoji64_ddim_pizza.png");
    let args = ["--image", start.to_str().unwrap(), "--strength", "0.6", "--guidance", "7.5", "--seed", "9"];
    let args: Vec<&str> =
        ["generate", "red heart", "--steps", "20", "--out", "a.png", "--json"].into_iter().chain(args).collect();
    let outcome = bench.run(&args);
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    let phases: Vec<String> = outcome.json()["seconds"].as_object().unwrap().keys().cloned().collect();
    assert_eq!(phases, ["encode_text", "encode_image", "denoise", "decode"]);
    let drawn = Png::read(&bench.path("a.png"));
    let golden = Png::read(&repository().join("fixtures/goldens/e2e/emoji64_img2img.png"));
    assert_one_level_off(&drawn, &golden);
    assert!(drawn.chunk("parameters").contains("Denoising strength: 0.6"));
    let request: Value = serde_json::from_str(drawn.chunk("plimsoll")).unwrap();
    assert_eq!(request["image"], "emoji64_ddim_pizza.png", "the file's name, not the path to it");
}

#[test]
fn upscales_four_times() {
    let bench = Bench::new();
    bench.generate(&["--upscale", "--out", "a.png"]);
    bench.generate(&["--out", "small.png"]);
    let (large, small) = (Png::read(&bench.path("a.png")), Png::read(&bench.path("small.png")));
    assert_eq!((large.width, large.height), (256, 256));
    assert!(large.chunk("parameters").contains("Size: 64x64"));
    assert!(large.chunk("parameters").contains("Postprocess upscaler: realesr-animevideov3-x4"));
    // A picture enlarged shows the same: its 4 x 4 means are near the small one's pixels.
    let mean = |x: usize, y: usize, channel: usize| {
        let at = |dx: usize, dy: usize| u32::from(large.rgb[((y * 4 + dy) * 256 + x * 4 + dx) * 3 + channel]);
        (0..16).map(|idx| at(idx % 4, idx / 4)).sum::<u32>() / 16
    };
    let mut difference = 0;
    for idx in 0..64 * 64 * 3 {
        let (pixel, channel) = (idx / 3, idx % 3);
        difference += mean(pixel % 64, pixel / 64, channel).abs_diff(small.rgb[idx].into());
    }
    let average = f64::from(difference) / (64.0 * 64.0 * 3.0);
    assert!(average < 12.0, "{average} levels apart on average");
}

#[test]
fn draws_in_bf16_much_the_same() {
    let bench = Bench::new();
    bench.generate(&["--out", "f32.png"]);
    bench.generate(&["--out", "bf16.png", "--dtype", "bf16"]);
    let (full, half) = (Png::read(&bench.path("f32.png")), Png::read(&bench.path("bf16.png")));
    let sum: f64 = full.rgb.iter().zip(&half.rgb).map(|(a, b)| f64::from(a.abs_diff(*b))).sum();
    let average = sum / full.rgb.len() as f64;
    assert!(average < 8.0, "{average} levels apart on average");
    let request: Value = serde_json::from_str(half.chunk("plimsoll")).unwrap();
    assert_eq!(request["dtype"], "bf16");
}
