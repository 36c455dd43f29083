//! `plimsoll plan`: plans of known shapes, adapters, pictures, and what can't be planned. The device's time is simulated,
//! so every number is the same on every machine.
#![cfg(feature = "demo-model")]

mod common;

use common::{Bench, repository};
use expect_test::expect;
use fs_err as fs;
use plimsoll_testkit::CraftedFile;
use serde_json::Value;

const SHAPES: [&str; 4] = ["shape:sd15", "shape:sdxl", "shape:flux", "shape:wan14b"];
/// Weights of the shape `flux`: 1254 squares of 3072, two bytes each.
const FLUX_BYTES: u64 = 1254 * 3072 * 3072 * 2;

fn asset(path: &str) -> String {
    repository().join(path).to_str().unwrap().to_owned()
}

/// A plan as JSON; it must succeed.
fn plan(bench: &Bench, args: &[&str]) -> Value {
    let outcome = bench.run(&[&["plan", "--json"], args].concat());
    assert_eq!(outcome.code, 0, "{args:?}: {}", outcome.stderr);
    outcome.json()
}

fn number(json: &Value, key: &str) -> f64 {
    json[key].as_f64().unwrap_or_else(|| panic!("no number `{key}`"))
}

fn bytes(json: &Value, key: &str) -> u64 {
    json[key].as_u64().unwrap_or_else(|| panic!("no count `{key}`"))
}

/// Commands that must fail and leave the folder as it was, with exit codes and lines.
fn complaints(bench: &Bench, commands: &[&[&str]]) -> String {
    let mut text = String::new();
    for args in commands {
        let before = bench.names();
        let outcome = bench.run(&[&["plan"], *args].concat());
        assert_eq!((outcome.stdout.as_str(), outcome.stderr.lines().count()), ("", 1), "{args:?}: {}", outcome.stderr);
        assert_eq!(bench.names(), before, "{args:?} left something behind");
        text.push_str(&format!("> {}\n{}: {}", args.join(" "), outcome.code, outcome.stderr));
    }
    text
}

/// What holds for every plan.
fn check(json: &Value) {
    let units = json["units"].as_array().unwrap();
    let on =
        |tier: &str| units.iter().filter(|unit| unit["tier"] == tier).map(|unit| bytes(unit, "bytes")).sum::<u64>();
    assert_eq!((on("device"), on("host")), (bytes(json, "resident_bytes"), bytes(json, "streamed_bytes")));
    let streamed = units.iter().filter(|unit| unit["tier"] == "host");
    assert_eq!(streamed.clone().count() as u64, bytes(json, "streamed_count"));
    assert_eq!(bytes(json, "moved_bytes"), bytes(json, "streamed_bytes"), "a step moves what is streamed, once");
    assert_eq!(bytes(json, "copy_count"), bytes(json, "streamed_count"));
    let largest = streamed.map(|unit| bytes(unit, "bytes")).max().unwrap_or(0);
    assert!(bytes(json, "ring_bytes") >= largest, "the ring holds the largest streamed unit");

    let parts = ["resident", "ring", "transient", "staging", "adapter", "activation"];
    let total: u64 = parts.iter().map(|part| bytes(json, &format!("{part}_bytes"))).sum();
    assert_eq!(total, bytes(json, "total_bytes"));
    assert!(total <= bytes(json, "budget_bytes") && bytes(json, "peak_bytes") <= total, "{total}");

    let [step, bound, compute] = ["step_seconds", "bound_seconds", "compute_seconds"].map(|key| number(json, key));
    let link = bytes(json, "streamed_bytes") as f64 / number(&json["device"], "link_bytes_per_second");
    assert!((bound - compute.max(link)).abs() < 1e-12, "{bound} {compute} {link}");
    assert!(compute > 0.0 && step >= bound * (1.0 - 1e-6), "{step} {bound}");
    let idle = step - compute - number(json, "merge_seconds");
    assert!((idle - number(json, "stall_seconds")).abs() < 1e-6, "what is neither computing nor merging is a stall");
}

#[test]
fn every_shape_is_planned_within_its_budget() {
    let bench = Bench::new();
    let model = asset("assets/emoji64");
    let budgets = [("shape:sd15", ["700MiB", "8GiB"]), ("shape:sdxl", ["1500MiB", "8GiB"])];
    let others =
        [("shape:flux", ["2GiB", "23.5GiB"]), ("shape:wan14b", ["4GiB", "23.9GiB"]), (&model, ["4MiB", "8MiB"])];
    for (model, budgets) in budgets.into_iter().chain(others) {
        for (budget, policy) in
            budgets.iter().flat_map(|budget| ["spread", "largest-first"].map(|policy| (budget, policy)))
        {
            for streams in ["0", "1", "4"] {
                let device = "sim:vram=24GiB,link=12GB/s,flops=40T";
                let args = ["--model", model, "--budget", budget, "--policy", policy, "--offload-streams", streams];
                let json = plan(&bench, &[&args[..], &["--device", device]].concat());
                check(&json);
                assert_eq!(
                    (json["policy"].as_str(), json["offload_streams"].as_u64()),
                    (Some(policy), streams.parse().ok())
                );
            }
        }
    }
}

#[test]
fn the_json_has_these_keys() {
    let json = plan(&Bench::new(), &["--model", "shape:sd15", "--budget", "1GiB"]);
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ");
    expect![[r#"
        model about component device budget_bytes policy offload_streams step_seconds bound_seconds compute_seconds predicted_seconds stall_seconds merge_seconds moved_bytes copy_count streamed_bytes resident_bytes ring_bytes transient_bytes staging_bytes adapter_bytes activation_bytes total_bytes peak_bytes streamed_count rank candidates adapters comparison why units
        name bytes tier
        policy offload_streams step_seconds bound_seconds ratio stall_seconds moved_bytes resident_bytes ring_bytes peak_bytes
    "#]]
    .assert_eq(&format!("{}\n{}\n{}\n", keys(&json), keys(&json["units"][0]), keys(&json["comparison"])));
}

/// The figures are those of an independent simulation: `largest-first` as ComfyUI has it with two streams, and a step of
/// at most 1.02 times the volume bound for `spread`.
#[test]
fn flux_takes_the_time_that_is_known_of_it() {
    let bench = Bench::new();
    for (percent, largest_first_ms) in [(35, 1505.0), (50, 1381.0), (65, 1256.0), (80, 1057.0)] {
        for (link, is_known) in [("12GB/s", true), ("25GB/s", false)] {
            let budget = (FLUX_BYTES * percent / 100).to_string();
            let device = format!("sim:vram=24GiB,link={link},flops=80T");
            let json = plan(
                &bench,
                &["--model", "shape:flux", "--activation-bytes", "0", "--budget", &budget, "--device", &device],
            );
            check(&json);
            assert!((number(&json, "compute_seconds") - 0.930).abs() < 0.001, "{}", json["compute_seconds"]);
            let ratio = number(&json, "step_seconds") / number(&json, "bound_seconds");
            assert!(ratio <= 1.02, "{percent} % at {link}: {ratio} times the bound");
            let other_ms = number(&json["comparison"], "step_seconds") * 1e3;
            assert!(!is_known || (other_ms - largest_first_ms).abs() < 1.0, "{percent} %: {other_ms} ms");
            assert!(number(&json["comparison"], "ratio") > 1.03);
        }
    }
}

#[test]
fn a_larger_budget_only_adds_residents() {
    let bench = Bench::new();
    let residents = |budget: &str| {
        let json = plan(&bench, &["--model", "shape:sd15", "--budget", budget]);
        let units = json["units"].as_array().unwrap().clone();
        units
            .into_iter()
            .filter(|unit| unit["tier"] == "device")
            .map(|unit| unit["name"].to_string())
            .collect::<Vec<_>>()
    };
    let (small, large) = (residents("900MiB"), residents("1200MiB"));
    assert!(small.len() < large.len() && small.iter().all(|name| large.contains(name)));
}

/// The rule of `largest-first` is settled, so its plan is too; the other policy's time is not.
#[test]
fn the_plan_says_why() {
    let budget = (FLUX_BYTES / 2).to_string();
    let device = "sim:vram=24GiB,link=12GB/s,flops=80T";
    let args = ["plan", "--model", "shape:flux", "--activation-bytes", "0", "--policy", "largest-first"];
    let outcome = Bench::new().run(&[&args[..], &["--budget", &budget, "--device", device]].concat());
    assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""));
    let settled: Vec<&str> = outcome.stdout.lines().filter(|line| !line.starts_with("  spread ")).collect();
    expect![[r#"
        shape:flux: Flux.1 at 1024 x 1024: 4096 image and 512 text tokens, in bf16
        on a device with 24.00 GiB, a link of 12 GB/s and 15 us a copy, 80 TFLOP/s
        policy largest-first, offload streams 2

          residents        10.74 GiB     11532238848  101 of 304 units
          ring            270.00 MiB       283115520  for 203 streamed units, 11.30 GiB together
          sum              11.00 GiB     11815354368
          budget           11.02 GiB     11834228736
          peak             11.00 GiB     11815354368  as booked in the simulation

          predicted step   1381.1 ms  1.366 times the bound
          bound            1011.4 ms  all computing, or all streamed bytes over the link
          computing         929.6 ms
          stalls            451.5 ms  nothing computes
          moved            11.30 GiB  in 203 copies

          streamed      203 of 304 units, for all of them take 11.02 GiB more than the budget
          order         what costs most to stream was kept first, by ComfyUI's rule of November 2025
          ring          by the rule: 2 copies and one unit in use, 90.00 MiB the largest; copies run 1 ahead
          activations   none, as asked for: weights only
          time          the link: 1011.4 ms for what is streamed, and 929.6 ms of computing

        largest units, where they are, and their place in the order of becoming streamed
            126.00 MiB  device      267 of 304  single_blocks.0.linear1
            126.00 MiB  device      268 of 304  single_blocks.1.linear1
            126.00 MiB  device      279 of 304  single_blocks.2.linear1
            126.00 MiB  device      290 of 304  single_blocks.3.linear1
            126.00 MiB  device      299 of 304  single_blocks.4.linear1
            126.00 MiB  device      300 of 304  single_blocks.5.linear1
            126.00 MiB  device      301 of 304  single_blocks.6.linear1
            126.00 MiB  device      302 of 304  single_blocks.7.linear1
    "#]]
    .assert_eq(&(settled.join("\n") + "\n"));
}

#[test]
fn residents_are_at_least_what_is_asked_for() {
    let bench = Bench::new();
    let residents = |budget: &str, min: u64| {
        let args = ["--model", "shape:flux", "--budget", budget, "--min-resident", &min.to_string()];
        let json = plan(&bench, &args);
        check(&json);
        bytes(&json, "resident_bytes")
    };
    let usual = residents("3GiB", 0);
    assert_eq!(residents("3GiB", usual), usual);
    let min = usual + (100 << 20);
    let refused = bench.run(&["plan", "--model", "shape:flux", "--budget", "3GiB", "--min-resident", &min.to_string()]);
    assert!(refused.code == 1 && refused.stderr.contains(" bytes short"), "{}", refused.stderr);
    assert!(residents("3300MiB", min) >= min);
}

#[test]
fn all_units_fit_a_large_budget() {
    let json = plan(&Bench::new(), &["--budget", "8MiB"]);
    assert_eq!((bytes(&json, "streamed_bytes"), bytes(&json, "ring_bytes"), bytes(&json, "copy_count")), (0, 0, 0));
    assert_eq!(number(&json, "stall_seconds"), 0.0);
}

#[test]
fn the_shortfall_is_exact() {
    let bench = Bench::new();
    for model in [&["--model", "shape:sdxl"][..], &["--model", "shape:flux", "--offload-streams", "4"], &[]] {
        let with = |budget: u64| bench.run(&[&["plan", "--budget", &budget.to_string()], model].concat());
        let refused = with(1000);
        assert_eq!(refused.code, 1, "{}", refused.stderr);
        let short = refused.stderr.split(" bytes short").next().unwrap().rsplit(' ').next().unwrap();
        let needed = 1000 + short.parse::<u64>().unwrap();
        assert!(refused.stderr.contains(&format!("at least {needed} bytes")), "{}", refused.stderr);
        assert_eq!(with(needed).code, 0);
        let one_less = with(needed - 1);
        assert!(one_less.code == 1 && one_less.stderr.contains(": 1 bytes short"), "{}", one_less.stderr);
    }
}

#[test]
fn what_cannot_be_planned() {
    let bench = Bench::new();
    let flux = ["--model", "shape:flux"];
    let lines = complaints(
        &bench,
        &[
            &["--model", "shape:sd9"],
            &["--model", "missing"],
            &["--device", "cuda:0"],
            &["--device", "sim:vram=8GiB,link=25GB/s"],
            &["--device", "sim:vram=8GiB,link=0GB/s,flops=80T"],
            &["--budget", "0"],
            &["--budget", "50%"],
            &["--budget", "9GiB"],
            &["--activation-bytes", "some"],
            &["--offload-streams", "17"],
            &["--policy", "smallest-first"],
            &["--width", "63"],
            &[&flux[..], &["--height", "1000"]].concat(),
            &["--model", "shape:sdxl", "--width", "16384", "--height", "16384"],
            &[&flux[..], &["--device", "sim:vram=8GiB,link=1KB/s,flops=80T"]].concat(),
            &[&flux[..], &["--budget", "1GiB"]].concat(),
            &["--plot", "missing/plan.svg"],
            &["--lora", "missing.safetensors"],
        ],
    );
    expect![[r#"
        > --model shape:sd9
        2: error: invalid value 'shape:sd9' for '--model <DIR|SHAPE>': there is no shape `sd9`; there are shape:sd15, shape:sdxl, shape:flux, shape:wan14b; see `plimsoll plan --help`
        > --model missing
        1: error: `missing` is no folder with a `model_index.json`; name a model in diffusers' layout, with `unet`, `vae`, `text_encoder`, `tokenizer` and `scheduler` beside that file
        > --device cuda:0
        2: error: invalid value 'cuda:0' for '--device <DEVICE>': `cuda:0` is not a simulated device; write for example sim:vram=8GiB,link=25GB/s,flops=80T; see `plimsoll plan --help`
        > --device sim:vram=8GiB,link=25GB/s
        2: error: invalid value 'sim:vram=8GiB,link=25GB/s' for '--device <DEVICE>': `flops` is missing; write for example sim:vram=8GiB,link=25GB/s,flops=80T; see `plimsoll plan --help`
        > --device sim:vram=8GiB,link=0GB/s,flops=80T
        2: error: invalid value 'sim:vram=8GiB,link=0GB/s,flops=80T' for '--device <DEVICE>': `0GB/s` is no value of `link`; write bytes a second above 0, for example 25GB/s; see `plimsoll plan --help`
        > --budget 0
        2: error: invalid value '0' for '--budget <BYTES>': a budget of 0 holds nothing; write at least 1 byte; see `plimsoll plan --help`
        > --budget 50%
        2: error: invalid value '50%' for '--budget <BYTES>': `50%` is not a number of bytes; write for example 4096, 3MiB or 1.5GB; see `plimsoll plan --help`
        > --budget 9GiB
        2: error: the budget of 9663676416 bytes (9.00 GiB) is more than the device has, 8589934592 bytes (8.00 GiB); lower --budget, or raise `vram` of --device
        > --activation-bytes some
        2: error: invalid value 'some' for '--activation-bytes <BYTES>': `some` is not a number of bytes; write for example 4096, 3MiB or 1.5GB; see `plimsoll plan --help`
        > --offload-streams 17
        2: error: invalid value '17' for '--offload-streams <N>': it must be a whole number from 0 to 16; see `plimsoll plan --help`
        > --policy smallest-first
        2: error: invalid value 'smallest-first' for '--policy <NAME>'; [possible values: spread, largest-first]; tip: a similar value exists: 'largest-first'; see `plimsoll plan --help`
        > --width 63
        2: error: the width 63 is not possible; it must be a multiple of 4 from 4 to 16384
        > --model shape:flux --height 1000
        2: error: the height 1000 is not possible; it must be a multiple of 16 from 16 to 16384
        > --model shape:sdxl --width 16384 --height 16384
        2: error: `linear` can't take `output` [2, 1048576, 5120]: a tensor must have from 1 to 4294967294 numbers; use smaller sizes
        > --model shape:flux --device sim:vram=8GiB,link=1KB/s,flops=80T
        2: error: a pass of shape:flux takes 23668458 seconds on this device; give it a faster `link` or more `flops`
        > --model shape:flux --budget 1GiB
        1: error: shape:flux needs a budget of at least 1404890560 bytes (1.31 GiB), 1015.81 MiB of it for activations, but the budget is 1073741824 bytes (1.00 GiB): 331148736 bytes short; raise --budget, or lower --activation-bytes, --min-resident or --offload-streams
        > --plot missing/plan.svg
        1: error: `missing/plan.svg` can't be written: no such file or folder; choose another place with --plot
        > --lora missing.safetensors
        1: error: `missing.safetensors` can't be opened: No such file or directory (os error 2); check the path and its permissions
    "#]].assert_eq(&lines);
}

const QUERY: &str = "down_blocks.0.attentions.0.transformer_blocks.0.attn1.to_q";
const CONVOLUTION: &str = "down_blocks.0.resnets.0.conv1";

fn halves(file: CraftedFile, [down, up]: [String; 2], down_shape: &[usize], up_shape: &[usize]) -> CraftedFile {
    let blank = |shape: &[usize]| vec![0; shape.iter().product::<usize>() * 2];
    file.tensor(&down, "F16", down_shape, &blank(down_shape)).tensor(&up, "F16", up_shape, &blank(up_shape))
}

fn kohya(module: &str) -> [String; 2] {
    let module = format!("lora_unet_{}", module.replace('.', "_"));
    [format!("{module}.lora_down.weight"), format!("{module}.lora_up.weight")]
}

fn peft(module: &str) -> [String; 2] {
    [format!("unet.{module}.lora_A.weight"), format!("unet.{module}.lora_B.weight")]
}

/// A pair of rank 4 for a linear layer, and one for a convolution.
fn adapter(names: fn(&str) -> [String; 2]) -> CraftedFile {
    let file = halves(CraftedFile::new(), names(QUERY), &[4, 320], &[320, 4]);
    halves(file, names(CONVOLUTION), &[4, 320, 3, 3], &[320, 4, 1, 1])
}

#[test]
fn adapters_are_beside_the_weights_or_merged() {
    let bench = Bench::new();
    let scaled = adapter(kohya).tensor("lora_unet_x.alpha", "F32", &[], &[0; 4]);
    fs::write(bench.path("kohya.safetensors"), scaled.bytes()).unwrap();
    fs::write(bench.path("peft.safetensors"), adapter(peft).bytes()).unwrap();
    let with = |loras: &[&str], policy: &str| {
        let loras = loras.iter().flat_map(|lora| ["--lora", lora]);
        let args = ["--model", "shape:sd15", "--budget", "1GiB", "--policy", policy];
        let json = plan(&bench, &args.into_iter().chain(loras).collect::<Vec<_>>());
        check(&json);
        json
    };
    let both = ["kohya.safetensors", "peft.safetensors"];
    // Two bytes a number: 4 x (320 + 320) and 4 x (9 x 320 + 320); twice the rank with both files.
    let expected = 2 * (4 * 640 + 4 * 3200);
    let plain = with(&[], "spread");
    assert_eq!(bytes(&plain, "adapter_bytes"), 0);
    for lora in both {
        let beside = with(&[lora], "spread");
        assert_eq!((bytes(&beside, "adapter_bytes"), &beside["adapters"][0]["unit_count"]), (expected, &2.into()));
        assert!(number(&beside, "compute_seconds") > number(&plain, "compute_seconds"));
        assert_eq!(number(&beside, "merge_seconds"), 0.0);
    }
    assert_eq!(bytes(&with(&both, "spread"), "adapter_bytes"), 2 * expected);

    let merged = with(&both, "largest-first");
    assert_eq!(bytes(&merged, "adapter_bytes"), 0);
    // The largest product, in f32.
    assert_eq!(bytes(&merged, "staging_bytes"), 320 * 320 * 9 * 4);
    assert!(number(&merged, "merge_seconds") > 0.0, "streamed weights are merged into in every pass");
}

/// The rule counts a weight with an adapter at seven times its size, so that it stays before others.
#[test]
fn what_has_an_adapter_costs_most_to_stream() {
    const UNIT: &str = "down_blocks.2.attentions.0.transformer_blocks.0.attn1.to_q";
    let bench = Bench::new();
    let file = halves(CraftedFile::new(), kohya(UNIT), &[4, 1280], &[1280, 4]);
    fs::write(bench.path("a.safetensors"), file.bytes()).unwrap();
    let tier = |more: &[&str]| {
        let args = ["--model", "shape:sd15", "--budget", "600MiB", "--policy", "largest-first"];
        let json = plan(&bench, &[&args[..], more].concat());
        check(&json);
        json["units"].as_array().unwrap().iter().find(|unit| unit["name"] == UNIT).unwrap()["tier"].clone()
    };
    assert_eq!((tier(&[]), tier(&["--lora", "a.safetensors"])), ("host".into(), "device".into()));
}

#[test]
fn the_text_encoders_part_is_left_out() {
    let bench = Bench::new();
    let text_encoder = ["lora_te_layer.lora_down.weight", "lora_te_layer.lora_up.weight"].map(str::to_owned);
    let strange =
        halves(adapter(kohya), text_encoder, &[4, 8], &[8, 4]).tensor("some\u{1b}[31mthing", "F16", &[1], &[0; 2]);
    let strange = halves(strange, kohya("another.layer"), &[4, 8], &[8, 4]);
    fs::write(bench.path("a.safetensors"), strange.bytes()).unwrap();
    let outcome = bench.run(&["plan", "--model", "shape:sd15", "--lora", "a.safetensors"]);
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    let told =
        &outcome.stdout[outcome.stdout.find("a.safetensors").unwrap()..outcome.stdout.find("\nlargest").unwrap()];
    expect![[r#"
        a.safetensors: on 2 units
          not counted: pairs for text encoders, outside this plan (1)
          not counted: layers that are no units here (1), such as lora_unet_another_layer
          not counted: tensors of no known kind (1), such as some\u{1b}[31mthing
    "#]]
    .assert_eq(told);
}

#[test]
fn adapters_that_do_not_fit() {
    let bench = Bench::new();
    let text_encoder = ["lora_te_layer.lora_down.weight", "lora_te_layer.lora_up.weight"].map(str::to_owned);
    let files = [
        ("other", halves(CraftedFile::new(), kohya("layers.0.to_q"), &[4, 8], &[8, 4])),
        ("text", halves(CraftedFile::new(), text_encoder, &[4, 8], &[8, 4])),
        ("weights", CraftedFile::new().tensor("a.weight", "F16", &[2], &[0; 4])),
        ("empty", CraftedFile::new()),
        ("depth", halves(CraftedFile::new(), kohya(QUERY), &[4, 640], &[320, 4])),
        ("out", halves(CraftedFile::new(), kohya(QUERY), &[4, 320], &[640, 4])),
        ("rank", halves(CraftedFile::new(), kohya(QUERY), &[4, 320], &[320, 8])),
        ("zero", halves(CraftedFile::new(), kohya(QUERY), &[0, 320], &[320, 0])),
        ("taps", halves(CraftedFile::new(), kohya(CONVOLUTION), &[4, 320, 1, 1], &[320, 4, 1, 1])),
        ("norm", halves(CraftedFile::new(), kohya("conv_norm_out"), &[4, 320], &[320, 4])),
        ("half", CraftedFile::new().tensor(&kohya(QUERY)[0], "F16", &[4, 320], &[0; 2560])),
        ("twice", halves(adapter(kohya), peft(QUERY), &[4, 320], &[320, 4])),
        ("long", CraftedFile::new().header_len(1 << 60)),
    ];
    let mut commands = Vec::new();
    for (name, file) in &files {
        fs::write(bench.path(&format!("{name}.safetensors")), file.bytes()).unwrap();
        commands.push(["--model", "shape:sd15", "--lora"].map(str::to_owned).to_vec());
        commands.last_mut().unwrap().push(format!("{name}.safetensors"));
    }
    let commands: Vec<Vec<&str>> = commands.iter().map(|args| args.iter().map(String::as_str).collect()).collect();
    expect![[r#"
        > --model shape:sd15 --lora other.safetensors
        1: error: `other.safetensors` changes nothing in shape:sd15: it is for layers such as `lora_unet_layers_0_to_q`; the model's layers are such as `time_embedding.linear_1`, `time_embedding.linear_2`; name an adapter of this model
        > --model shape:sd15 --lora text.safetensors
        1: error: `text.safetensors` changes nothing in shape:sd15: it is for text encoders alone, and the plan is about the denoiser; the model's layers are such as `time_embedding.linear_1`, `time_embedding.linear_2`; name an adapter of this model
        > --model shape:sd15 --lora weights.safetensors
        1: error: `weights.safetensors` changes nothing in shape:sd15: it has tensors such as `a.weight`, of no kind known here; the model's layers are such as `time_embedding.linear_1`, `time_embedding.linear_2`; name an adapter of this model
        > --model shape:sd15 --lora empty.safetensors
        1: error: `empty.safetensors` changes nothing in shape:sd15: it has no tensors of an adapter; the model's layers are such as `time_embedding.linear_1`, `time_embedding.linear_2`; name an adapter of this model
        > --model shape:sd15 --lora depth.safetensors
        1: error: `lora_unet_down_blocks_0_attentions_0_transformer_blocks_0_attn1_to_q` of `depth.safetensors` does not fit `down_blocks.0.attentions.0.transformer_blocks.0.attn1.to_q`: its matrices are [4, 640] and [320, 4], and the weight takes [rank, 320] and [320, rank]; name an adapter of this model
        > --model shape:sd15 --lora out.safetensors
        1: error: `lora_unet_down_blocks_0_attentions_0_transformer_blocks_0_attn1_to_q` of `out.safetensors` does not fit `down_blocks.0.attentions.0.transformer_blocks.0.attn1.to_q`: its matrices are [4, 320] and [640, 4], and the weight takes [rank, 320] and [320, rank]; name an adapter of this model
        > --model shape:sd15 --lora rank.safetensors
        1: error: `lora_unet_down_blocks_0_attentions_0_transformer_blocks_0_attn1_to_q` of `rank.safetensors` does not fit `down_blocks.0.attentions.0.transformer_blocks.0.attn1.to_q`: its matrices are [4, 320] and [320, 8], and the weight takes [rank, 320] and [320, rank]; name an adapter of this model
        > --model shape:sd15 --lora zero.safetensors
        1: error: `lora_unet_down_blocks_0_attentions_0_transformer_blocks_0_attn1_to_q` of `zero.safetensors` does not fit `down_blocks.0.attentions.0.transformer_blocks.0.attn1.to_q`: its matrices are [0, 320] and [320, 0], and the weight takes [rank, 320] and [320, rank]; name an adapter of this model
        > --model shape:sd15 --lora taps.safetensors
        1: error: `lora_unet_down_blocks_0_resnets_0_conv1` of `taps.safetensors` does not fit `down_blocks.0.resnets.0.conv1`: its matrices are [4, 320, 1, 1] and [320, 4, 1, 1], and the weight takes [rank, 320, 9 taps] and [320, rank]; name an adapter of this model
        > --model shape:sd15 --lora norm.safetensors
        1: error: `lora_unet_conv_norm_out` of `norm.safetensors` does not fit `conv_norm_out`: its weight is no matrix; name an adapter of this model
        > --model shape:sd15 --lora half.safetensors
        1: error: `half.safetensors` has only the first matrix for `lora_unet_down_blocks_0_attentions_0_transformer_blocks_0_attn1_to_q`, not the second; fetch it again
        > --model shape:sd15 --lora twice.safetensors
        1: error: `twice.safetensors` has both `lora_unet_down_blocks_0_attentions_0_transformer_blocks_0_attn1_to_q` and `unet.down_blocks.0.attentions.0.transformer_blocks.0.attn1.to_q`, which are for one layer; write it anew with one
        > --model shape:sd15 --lora long.safetensors
        1: error: `long.safetensors` can't be loaded: its first 8 bytes claim a header of 1152921504606846976 bytes, more than the 100000000 that safetensors allows; it is no safetensors file
    "#]].assert_eq(&complaints(&bench, &commands.iter().map(Vec::as_slice).collect::<Vec<_>>()));
}

#[test]
fn the_picture_is_whole() {
    let bench = Bench::new();
    for shape in SHAPES {
        fs::write(bench.path("plan.svg"), "old").unwrap();
        let device = "sim:vram=24GiB,link=12GB/s,flops=80T";
        plan(&bench, &["--model", shape, "--budget", "4GiB", "--device", device, "--plot", "plan.svg"]);
        assert_eq!(bench.names(), ["plan.svg"]);
        let svg = fs::read_to_string(bench.path("plan.svg")).unwrap();
        check_xml(&svg);
        assert!(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
        assert!(svg.len() < 250_000, "{} bytes", svg.len());
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{shape}");
    }
}

#[test]
#[cfg(unix)]
fn names_are_escaped_in_the_picture() {
    let bench = Bench::new();
    let name = "a<b&\"c\u{7}";
    std::os::unix::fs::symlink(repository().join("assets/emoji64").canonicalize().unwrap(), bench.path("link"))
        .unwrap();
    fs::create_dir(bench.path(name)).unwrap();
    for entry in fs::read_dir(bench.path("link")).unwrap() {
        let entry = entry.unwrap();
        std::os::unix::fs::symlink(entry.path(), bench.path(name).join(entry.file_name())).unwrap();
    }
    let json = plan(&bench, &["--model", name, "--budget", "3MiB", "--plot", "plan.svg"]);
    check(&json);
    assert_eq!(json["model"], name);
    let svg = fs::read_to_string(bench.path("plan.svg")).unwrap();
    check_xml(&svg);
    assert!(svg.contains("a&lt;b&amp;&quot;c\u{fffd}: its denoiser"), "{}", &svg[..2000]);
    let text = bench.run(&["plan", "--model", name]).stdout;
    assert!(text.starts_with("a<b&\"c\\u{7}: its denoiser"), "{text}");
}

/// Elements close in the order in which they open, attributes are quoted, and text holds no bare mark.
fn check_xml(text: &str) {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = text.trim_end();
    while let Some(start) = rest.find('<') {
        check_text(&rest[..start]);
        let end = start + rest[start..].find('>').expect("a tag ends");
        let tag = &rest[start + 1..end];
        rest = &rest[end + 1..];
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "a tag closes what is open");
            continue;
        }
        let (tag, is_closed) = tag.strip_suffix('/').map_or((tag, false), |tag| (tag, true));
        let (name, mut attributes) = tag.split_once(' ').unwrap_or((tag, ""));
        assert!(!name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric()), "`{name}`");
        while !attributes.trim().is_empty() {
            let (key, value) = attributes.split_once("=\"").expect("an attribute has a quoted value");
            assert!(key.trim().chars().all(|c| c.is_ascii_alphanumeric() || "-:".contains(c)), "`{key}`");
            let (value, after) = value.split_once('"').expect("a value ends");
            check_text(value);
            attributes = after;
        }
        if !is_closed {
            open.push(name);
        }
        assert!(!open.is_empty() || rest.is_empty(), "there is one root");
    }
    assert!(open.is_empty() && rest.is_empty(), "{open:?} {rest}");
}

fn check_text(text: &str) {
    for part in text.split('&').skip(1) {
        assert!(["amp;", "lt;", "gt;", "quot;"].iter().any(|entity| part.starts_with(entity)), "`&{part}`");
    }
    assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "`{text}`");
}

#[cfg(unix)]
#[test]
fn a_plot_replaces_no_device_and_no_input() {
    let bench = Bench::new();
    std::os::unix::fs::symlink("/dev/null", bench.path("device.svg")).unwrap();
    let shape =
        ["plan", "--model", "shape:sd15", "--budget", "1GiB", "--device", "sim:vram=4GiB,link=25GB/s,flops=80T"];
    let outcome = bench.run(&[&shape[..], &["--plot", "device.svg"]].concat());
    assert_eq!(outcome.code, 1, "{}", outcome.stderr);
    assert!(outcome.stderr.contains("`device.svg` can't be written: it is a device or a pipe"), "{}", outcome.stderr);
    fs::write(bench.path("a.safetensors"), adapter(kohya).bytes()).unwrap();
    let outcome = bench.run(&[&shape[..], &["--lora", "a.safetensors", "--plot", "./a.safetensors"]].concat());
    assert_eq!(outcome.code, 2, "{}", outcome.stderr);
    assert!(outcome.stderr.contains("is an adapter"), "{}", outcome.stderr);
    assert_eq!(fs::read(bench.path("a.safetensors")).unwrap(), adapter(kohya).bytes());
}
