//! Bad input: one line that says what, where and what to do; 2 for usage, 1 for failure; nothing left behind.

mod common;

use common::{Bench, repository};
use expect_test::{Expect, expect};
use fs_err as fs;

/// Runs the program, and compares `exit code: stderr`. The folder must hold what it held.
fn check(bench: &Bench, args: &[&str], expected: Expect) {
    let before = bench.names();
    let outcome = bench.run(args);
    assert_eq!(outcome.stdout, "", "{args:?}");
    assert_eq!(outcome.stderr.lines().count(), 1, "{args:?}: {}", outcome.stderr);
    assert_eq!(bench.names(), before, "{args:?} left something behind");
    let folder = bench.folder().display().to_string();
    expected.assert_eq(&format!("{}: {}", outcome.code, outcome.stderr.replace(&folder, "TMP")));
}

#[test]
fn wrong_command_lines() {
    let bench = Bench::new();
    check(&bench, &[], expect![[""]]);
    check(&bench, &["paint"], expect![[""]]);
    check(&bench, &["generate"], expect![[""]]);
    check(&bench, &["generate", "red heart", "--stepz", "3"], expect![[""]]);
    check(&bench, &["generate", "red heart", "--steps", "0"], expect![[""]]);
    check(&bench, &["generate", "red heart", "--steps", "many"], expect![[""]]);
    check(&bench, &["generate", "red heart", "--steps"], expect![[""]]);
    check(&bench, &["generate", "red heart", "--sampler", "eulr"], expect![[""]]);
    check(&bench, &["generate", "red heart", "--schedule", "linear"], expect![[""]]);
    check(&bench, &["generate", "red heart", "--dtype", "f16"], expect![[""]]);
    check(&bench, &["generate", "red heart", "--guidance", "nan"], expect![[""]]);
    check(&bench, &["generate", "red heart", "--seed", "-1"], expect![[""]]);
    check(&bench, &["generate", "red heart", "--width", "0"], expect![[""]]);
    check(&bench, &["generate", "red heart", "--height", "1000000000000000000000"], expect![[""]]);
    check(&bench, &["generate", "red heart", "--count", "0"], expect![[""]]);
    check(&bench, &["generate", "red heart", "--threads", "0"], expect![[""]]);
    check(&bench, &["generate", "red heart", "--offload-streams", "99"], expect![[""]]);
    check(&bench, &["generate", "red heart", "--report", "time"], expect![[""]]);
    check(&bench, &["generate", "red heart", "--strength", "0.5"], expect![[""]]);
    check(&bench, &["generate", "red heart", "--image", "a.png", "--strength", "0"], expect![[""]]);
}

#[test]
fn wrong_budgets() {
    let bench = Bench::new();
    check(&bench, &["generate", "red heart", "--budget", "0"], expect![[""]]);
    check(&bench, &["generate", "red heart", "--budget", "101%"], expect![[""]]);
    check(&bench, &["generate", "red heart", "--budget", "lots"], expect![[""]]);
    check(&bench, &["generate", "red heart", "--budget", "1"], expect![[""]]);
}

#[test]
fn wrong_requests() {
    let bench = Bench::new();
    check(&bench, &["generate", "red heart", "--width", "63"], expect![[""]]);
    check(&bench, &["generate", "red heart", "--out", "picture.jpg"], expect![[""]]);
    check(&bench, &["generate", "red heart", "--count", "2", "--out", "a.png"], expect![[""]]);
}

#[test]
fn outputs_that_cannot_be_written() {
    let bench = Bench::new();
    fs::write(bench.path("file"), "x").unwrap();
    fs::create_dir(bench.path("folder.png")).unwrap();
    check(&bench, &["generate", "red heart", "--out", "missing/a.png"], expect![[""]]);
    check(&bench, &["generate", "red heart", "--out", "file/a.png"], expect![[""]]);
    check(&bench, &["generate", "red heart", "--out", "missing/folder/", "--count", "2"], expect![[""]]);
    check(&bench, &["generate", "red heart", "--out", "file/", "--count", "2"], expect![[""]]);
}

#[test]
fn start_pictures_that_cannot_be_read() {
    let bench = Bench::new();
    let golden = fs::read(repository().join("fixtures/goldens/e2e/emoji64_ddim_heart.png")).unwrap();
    fs::write(bench.path("cut.png"), &golden[..golden.len() / 2]).unwrap();
    fs::write(bench.path("photo.png"), b"\xff\xd8\xff\xe0 a JPEG by content").unwrap();
    check(&bench, &["generate", "red heart", "--image", "missing.png"], expect![[""]]);
    check(&bench, &["generate", "red heart", "--image", "photo.png"], expect![[""]]);
    check(&bench, &["generate", "red heart", "--image", "cut.png"], expect![[""]]);
    fs::write(bench.path("good.png"), &golden).unwrap();
    check(&bench, &["generate", "red heart", "--image", "good.png", "--width", "128"], expect![[""]]);
}

#[test]
fn damaged_models() {
    let bench = Bench::new();
    check(&bench, &["generate", "red heart", "--model", "missing"], expect![[""]]);
    fs::create_dir(bench.path("empty")).unwrap();
    check(&bench, &["generate", "red heart", "--model", "empty"], expect![[""]]);

    let model = bench.path("model");
    copy_folder(&repository().join("fixtures/models/sd15"), &model);
    let damage = |file: &str, change: &dyn Fn(Vec<u8>) -> Option<Vec<u8>>, expected: Expect| {
        let path = model.join(file);
        let whole = fs::read(&path).unwrap();
        match change(whole.clone()) {
            Some(bytes) => fs::write(&path, bytes).unwrap(),
            None => fs::remove_file(&path).unwrap(),
        }
        check(&bench, &["generate", "red heart", "--model", "model"], expected);
        fs::write(&path, whole).unwrap();
    };
    damage("unet/diffusion_pytorch_model.safetensors", &|bytes| Some(bytes[..bytes.len() - 100].to_vec()), expect![[""]]);
    damage("unet/diffusion_pytorch_model.safetensors", &|bytes| Some(bytes[..4].to_vec()), expect![[""]]);
    damage("unet/diffusion_pytorch_model.safetensors", &|_| None, expect![[""]]);
    damage("unet/config.json", &|_| Some(b"{".to_vec()), expect![[""]]);
    damage("unet/config.json", &|_| None, expect![[""]]);
    damage("vae/config.json", &replaced("\"silu\"", "\"mish\""), expect![[""]]);
    damage("text_encoder/config.json", &replaced("\"hidden_act\": \"quick_gelu\"", "\"hidden_act\": \"relu6\""), expect![[""]]);
    damage("tokenizer/vocab.json", &|_| None, expect![[""]]);
    damage("tokenizer/merges.txt", &|_| Some(b"a\n".to_vec()), expect![[""]]);
    damage("scheduler/scheduler_config.json", &|_| Some(b"[]".to_vec()), expect![[""]]);
    damage("model_index.json", &replaced("StableDiffusionPipeline", "FluxPipeline"), expect![[""]]);
}

#[test]
fn nothing_to_inspect() {
    let bench = Bench::new();
    check(&bench, &["inspect", "missing"], expect![[""]]);
    check(&bench, &["inspect", "."], expect![[""]]);
    fs::write(bench.path("a.safetensors"), b"\xff\xff\xff\xff\xff\xff\xff\x7f{}").unwrap();
    check(&bench, &["inspect", "a.safetensors"], expect![[""]]);
    fs::write(bench.path("b.safetensors"), b"").unwrap();
    check(&bench, &["inspect", "b.safetensors"], expect![[""]]);
}

fn replaced(from: &'static str, to: &'static str) -> impl Fn(Vec<u8>) -> Option<Vec<u8>> {
    move |bytes| {
        let text = String::from_utf8(bytes).unwrap();
        assert!(text.contains(from), "nothing to replace: {from}");
        Some(text.replace(from, to).into_bytes())
    }
}

fn copy_folder(from: &std::path::Path, to: &std::path::Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}
