//! Bad input: one line that says what, where and what to do; 2 for usage, 1 for failure; nothing left behind.
#![cfg(feature = "demo-model")]

mod common;

use std::path::Path;

use common::{Bench, repository};
use expect_test::expect;
use fs_err as fs;

/// Commands, with the exit code and the one line of each.
struct Transcript<'a> {
    bench: &'a Bench,
    text: String,
}

impl<'a> Transcript<'a> {
    fn new(bench: &'a Bench) -> Self {
        Self { bench, text: String::new() }
    }

    /// Runs `plimsoll` with the words of `command`, which must fail and leave the folder as it was. The kernels are the same
    /// on every machine, because what scratch memory they need is told.
    fn run(&mut self, command: &str) {
        let args: Vec<&str> = command.split_whitespace().collect();
        let before = self.bench.names();
        let outcome = self.bench.run_with(&args, &[("PLIMSOLL_CPU", "portable")]);
        assert_eq!(outcome.stdout, "", "{command}");
        assert_eq!(outcome.stderr.lines().count(), 1, "{command}: {}", outcome.stderr);
        assert_eq!(self.bench.names(), before, "{command} left something behind");
        let command = format!("> plimsoll {command}");
        self.text.push_str(&format!("{}\n{}: {}", command.trim_end(), outcome.code, outcome.stderr));
    }

    fn run_all(mut self, commands: &[&str]) -> String {
        commands.iter().for_each(|command| self.run(command));
        self.text
    }
}

#[test]
fn wrong_command_lines() {
    let bench = Bench::new();
    let transcript = Transcript::new(&bench).run_all(&[
        "",
        "paint",
        "generate",
        "generate heart --stepz 3",
        "generate heart --steps 0",
        "generate heart --steps many",
        "generate heart --steps",
        "generate heart --sampler eulr",
        "generate heart --schedule linear",
        "generate heart --dtype f16",
        "generate heart --guidance nan",
        "generate heart --guidance 1e39",
        "generate heart --guidance -1e39",
        "generate heart --seed -1",
        "generate heart --width 0",
        "generate heart --height 1000000000000000000000",
        "generate heart --count 0",
        "generate heart --threads 0",
        "generate heart --threads 257",
        "bench --threads 257",
        "bench residency --budgets 0",
        "bench residency --budgets 50,half",
        "bench residency --size 100",
        "bench residency --model shape:flux",
        "bench residency --model nowhere",
        "bench residency --case 50",
        "generate heart --offload-streams 99",
        "generate heart --report time",
        "generate heart --strength 0.5",
        "generate heart --image a.png --strength 0",
    ]);
    expect![[r#"
        > plimsoll
        2: error: no command is given; see `plimsoll --help`
        > plimsoll paint
        2: error: unrecognized subcommand 'paint'; tip: a similar subcommand exists: 'plan'; see `plimsoll --help`
        > plimsoll generate
        2: error: the following required arguments were not provided: <PROMPT>; see `plimsoll generate --help`
        > plimsoll generate heart --stepz 3
        2: error: unexpected argument '--stepz' found; tip: a similar argument exists: '--steps'; see `plimsoll generate --help`
        > plimsoll generate heart --steps 0
        2: error: invalid value '0' for '--steps <N>': it must be a whole number from 1 to 10000; see `plimsoll generate --help`
        > plimsoll generate heart --steps many
        2: error: invalid value 'many' for '--steps <N>': it must be a whole number from 1 to 10000; see `plimsoll generate --help`
        > plimsoll generate heart --steps
        2: error: a value is required for '--steps <N>' but none was supplied; see `plimsoll generate --help`
        > plimsoll generate heart --sampler eulr
        2: error: invalid value 'eulr' for '--sampler <NAME>'; [possible values: euler, euler_ancestral, ddim, dpmpp_2m, dpmpp_2m_sde, heun, lcm]; tip: a similar value exists: 'euler'; see `plimsoll generate --help`
        > plimsoll generate heart --schedule linear
        2: error: invalid value 'linear' for '--schedule <NAME>'; [possible values: model, normal, karras, simple, sgm_uniform, ddim_uniform, exponential]; see `plimsoll generate --help`
        > plimsoll generate heart --dtype f16
        2: error: invalid value 'f16' for '--dtype <DTYPE>'; [possible values: f32, bf16]; tip: a similar value exists: 'bf16'; see `plimsoll generate --help`
        > plimsoll generate heart --guidance nan
        2: error: invalid value 'nan' for '--guidance <X>': it must be a number from -3.4e38 to 3.4e38; see `plimsoll generate --help`
        > plimsoll generate heart --guidance 1e39
        2: error: invalid value '1e39' for '--guidance <X>': it must be a number from -3.4e38 to 3.4e38; see `plimsoll generate --help`
        > plimsoll generate heart --guidance -1e39
        2: error: invalid value '-1e39' for '--guidance <X>': it must be a number from -3.4e38 to 3.4e38; see `plimsoll generate --help`
        > plimsoll generate heart --seed -1
        2: error: invalid value '-1' for '--seed <N>': it must be a whole number from 0 to 18446744073709551615; see `plimsoll generate --help`
        > plimsoll generate heart --width 0
        2: error: invalid value '0' for '--width <PIXELS>': it must be a whole number from 1 to 16384; see `plimsoll generate --help`
        > plimsoll generate heart --height 1000000000000000000000
        2: error: invalid value '1000000000000000000000' for '--height <PIXELS>': it must be a whole number from 1 to 16384; see `plimsoll generate --help`
        > plimsoll generate heart --count 0
        2: error: invalid value '0' for '--count <N>': it must be a whole number from 1 to 1024; see `plimsoll generate --help`
        > plimsoll generate heart --threads 0
        2: error: invalid value '0' for '--threads <N>': it must be a whole number from 1 to 256; see `plimsoll generate --help`
        > plimsoll generate heart --threads 257
        2: error: invalid value '257' for '--threads <N>': it must be a whole number from 1 to 256; see `plimsoll generate --help`
        > plimsoll bench --threads 257
        2: error: invalid value '257' for '--threads <N>': it must be a whole number from 1 to 256; see `plimsoll bench --help`
        > plimsoll bench residency --budgets 0
        2: error: invalid value '0' for '--budgets <X,..>': each must be a number above 0 and at most 100; see `plimsoll bench residency --help`
        > plimsoll bench residency --budgets 50,half
        2: error: invalid value 'half' for '--budgets <X,..>': each must be a number above 0 and at most 100; see `plimsoll bench residency --help`
        > plimsoll bench residency --size 100
        2: error: invalid value '100' for '--size <PIXELS>': it must be a multiple of 8 up to 4096; see `plimsoll bench residency --help`
        > plimsoll bench residency --model shape:flux
        2: error: invalid value 'shape:flux' for '--model <NAME|DIR>': there is one such shape here, shape:sd15; see `plimsoll bench residency --help`
        > plimsoll bench residency --model nowhere
        1: error: a run was refused: `nowhere` is no folder with a `model_index.json`; name a model in diffusers' layout, with `unet`, `vae`, `text_encoder`, `tokenizer` and `scheduler` beside that file
        > plimsoll bench residency --case 50
        2: error: invalid value '50' for '--case <PERCENT:POLICY>': a case is a percentage and a policy: 50:spread; see `plimsoll bench residency --help`
        > plimsoll generate heart --offload-streams 99
        2: error: invalid value '99' for '--offload-streams <N>': it must be a whole number from 0 to 16; see `plimsoll generate --help`
        > plimsoll generate heart --report time
        2: error: invalid value 'time' for '--report <WHAT>'; [possible values: memory]; see `plimsoll generate --help`
        > plimsoll generate heart --strength 0.5
        2: error: the following required arguments were not provided: --image <FILE.png>; see `plimsoll generate --help`
        > plimsoll generate heart --image a.png --strength 0
        2: error: invalid value '0' for '--strength <X>': it must be a number above 0 and at most 1; see `plimsoll generate --help`
    "#]].assert_eq(&transcript);
}

#[test]
fn wrong_budgets() {
    let bench = Bench::new();
    let transcript = Transcript::new(&bench).run_all(&[
        "generate heart --budget 0",
        "generate heart --budget 101%",
        "generate heart --budget lots",
        "generate heart --budget 1 --threads 1",
    ]);
    expect![[r#"
        > plimsoll generate heart --budget 0
        2: error: invalid value '0' for '--budget <BYTES>': a budget of 0 holds nothing; write at least 1 byte, or `unlimited`; see `plimsoll generate --help`
        > plimsoll generate heart --budget 101%
        2: error: invalid value '101%' for '--budget <BYTES>': `101%` is more than the whole machine; write at most 100%, or `unlimited`; see `plimsoll generate --help`
        > plimsoll generate heart --budget lots
        2: error: invalid value 'lots' for '--budget <BYTES>': `lots` is no budget; write bytes (3MiB), a percentage of this machine's memory (60%), or `unlimited`; see `plimsoll generate --help`
        > plimsoll generate heart --budget 1 --threads 1
        1: error: `text_encoder` needs a budget of at least 2547200 bytes (2.43 MiB), 507.00 KiB of it for activations and workspace, but the budget is 1 bytes (1 B): 2547199 bytes short; raise the budget, draw a smaller picture, or use --dtype bf16 or fewer --offload-streams
    "#]].assert_eq(&transcript);
}

#[test]
fn wrong_requests() {
    let bench = Bench::new();
    let transcript = Transcript::new(&bench).run_all(&[
        "generate heart --width 63",
        "generate heart --steps 1001",
        "generate heart --width 16384 --height 16384 --budget 1GB",
        "generate heart --out picture.jpg",
        "generate heart --out a.png --count 2",
    ]);
    expect![[r#"
        > plimsoll generate heart --width 63
        2: error: the width 63 is not possible; it must be a multiple of 4 from 4 to 16384
        > plimsoll generate heart --steps 1001
        2: error: 1001 steps are too many for schedule `model`, which has 1000 timesteps for them; take fewer steps or another schedule
        > plimsoll generate heart --width 16384 --height 16384 --budget 1GB
        1: error: `linear` can't take `output` [2, 16777216, 256]: a tensor must have from 1 to 4294967294 numbers; use smaller sizes
        > plimsoll generate heart --out picture.jpg
        2: error: `--out picture.jpg` is neither a folder nor a file name ending in .png, the one format that is written
        > plimsoll generate heart --out a.png --count 2
        2: error: `--out a.png` names one file, but 2 pictures are to be drawn; name a folder
    "#]].assert_eq(&transcript);
}

#[test]
fn outputs_that_cannot_be_written() {
    let bench = Bench::new();
    fs::write(bench.path("file"), "x").unwrap();
    let transcript = Transcript::new(&bench).run_all(&[
        "generate heart --out missing/a.png",
        "generate heart --out file/a.png",
        "generate heart --out missing/folder/ --count 2",
        "generate heart --out file/ --count 2",
    ]);
    expect![[r#"
        > plimsoll generate heart --out missing/a.png
        1: error: `missing` takes no file: no such file or folder; choose another place with --out
        > plimsoll generate heart --out file/a.png
        1: error: `file` takes no file: not a directory; choose another place with --out
        > plimsoll generate heart --out missing/folder/ --count 2
        1: error: `missing/folder/` can't be made: no such file or folder; choose another place with --out
        > plimsoll generate heart --out file/ --count 2
        1: error: `file/` can't be made: it is there already; choose another place with --out
    "#]]
    .assert_eq(&transcript);
}

#[test]
fn start_pictures_that_cannot_be_used() {
    let bench = Bench::new();
    let golden = fs::read(repository().join("fixtures/goldens/e2e/emoji64_ddim_heart.png")).unwrap();
    fs::write(bench.path("good.png"), &golden).unwrap();
    fs::write(bench.path("cut.png"), &golden[..golden.len() / 2]).unwrap();
    fs::write(bench.path("photo.png"), b"\xff\xd8\xff\xe0 a JPEG by content").unwrap();
    fs::create_dir(bench.path("folder.png")).unwrap();
    let transcript = Transcript::new(&bench).run_all(&[
        "generate heart --image missing.png",
        "generate heart --image folder.png",
        "generate heart --image photo.png",
        "generate heart --image cut.png",
        "generate heart --image good.png --width 128",
    ]);
    expect![[r#"
        > plimsoll generate heart --image missing.png
        1: error: `missing.png` can't be read: no such file or folder; check --image
        > plimsoll generate heart --image folder.png
        1: error: `folder.png` can't be read: it is no regular file; check --image
        > plimsoll generate heart --image photo.png
        1: error: `photo.png` can't be used as start picture: it is a JPEG, not PNG; convert it to PNG
        > plimsoll generate heart --image cut.png
        1: error: `cut.png` can't be used as start picture: it is cut off; export it again
        > plimsoll generate heart --image good.png --width 128
        2: error: the start image has 64 x 64 pixels; it must have the size drawn, 128 x 64
    "#]]
    .assert_eq(&transcript);
}

#[test]
fn models_that_are_none() {
    let bench = Bench::new();
    fs::create_dir(bench.path("empty")).unwrap();
    let transcript =
        Transcript::new(&bench).run_all(&["generate heart --model missing", "generate heart --model empty"]);
    expect![[r#"
        > plimsoll generate heart --model missing
        1: error: `missing` is no folder with a `model_index.json`; name a model in diffusers' layout, with `unet`, `vae`, `text_encoder`, `tokenizer` and `scheduler` beside that file
        > plimsoll generate heart --model empty
        1: error: `empty` is no folder with a `model_index.json`; name a model in diffusers' layout, with `unet`, `vae`, `text_encoder`, `tokenizer` and `scheduler` beside that file
    "#]]
    .assert_eq(&transcript);
}

#[test]
fn damaged_models() {
    let bench = Bench::new();
    let model = bench.path("model");
    copy_folder(&repository().join("fixtures/models/sd15"), &model);
    let mut transcript = Transcript::new(&bench);
    let mut damage = |file: &str, damage: Damage| {
        let path = model.join(file);
        let whole = fs::read(&path).unwrap();
        match damage.of(&whole) {
            Some(bytes) => fs::write(&path, bytes).unwrap(),
            None => fs::remove_file(&path).unwrap(),
        }
        transcript.text.push_str(&format!("{file}: {damage:?}\n"));
        transcript.run("generate heart --model model");
        fs::write(&path, whole).unwrap();
    };
    damage("unet/diffusion_pytorch_model.safetensors", Damage::CutBytes(100));
    damage("unet/diffusion_pytorch_model.safetensors", Damage::Content("x"));
    damage("unet/diffusion_pytorch_model.safetensors", Damage::Removed);
    damage("unet/config.json", Damage::Content("{"));
    damage("unet/config.json", Damage::Removed);
    damage("unet/config.json", Damage::Replaced("\"cross_attention_dim\": 16", "\"cross_attention_dim\": 24"));
    damage("vae/config.json", Damage::Replaced("\"silu\"", "\"mish\""));
    damage("text_encoder/config.json", Damage::Replaced("\"quick_gelu\"", "\"relu6\""));
    damage("tokenizer/vocab.json", Damage::Removed);
    damage("tokenizer/merges.txt", Damage::Content("a\n"));
    damage("scheduler/scheduler_config.json", Damage::Content("{"));
    damage("scheduler/scheduler_config.json", Damage::Replaced("\"epsilon\"", "\"flow\""));
    damage("model_index.json", Damage::Replaced("StableDiffusionPipeline", "FluxPipeline"));
    expect![[r#"
        unet/diffusion_pytorch_model.safetensors: CutBytes(100)
        > plimsoll generate heart --model model
        1: error: `model/unet/diffusion_pytorch_model.safetensors` can't be loaded: tensor `up_blocks.3.resnets.2.time_emb_proj.weight` ends at byte 643280 of the data, but the file has only 643180 bytes of data; it is cut off, fetch it again
        unet/diffusion_pytorch_model.safetensors: Content("x")
        > plimsoll generate heart --model model
        1: error: `model/unet/diffusion_pytorch_model.safetensors` can't be loaded: it has 1 bytes, and a safetensors file has at least 10; fetch it again
        unet/diffusion_pytorch_model.safetensors: Removed
        > plimsoll generate heart --model model
        1: error: `model/unet` has no weights; fetch one of `diffusion_pytorch_model.safetensors`, `diffusion_pytorch_model.safetensors.index.json`, `model.safetensors`, `model.safetensors.index.json`
        unet/config.json: Content("{")
        > plimsoll generate heart --model model
        1: error: `model/unet/config.json`: the UNet config can't be read: EOF while parsing an object at line 1 column 1
        unet/config.json: Removed
        > plimsoll generate heart --model model
        1: error: `model/unet/config.json` of the model can't be read: no such file; fetch the model again
        unet/config.json: Replaced("\"cross_attention_dim\": 16", "\"cross_attention_dim\": 24")
        > plimsoll generate heart --model model
        1: error: tensor `down_blocks.0.attentions.0.transformer_blocks.0.attn2.to_k.weight` of `model/unet/diffusion_pytorch_model.safetensors` has the shape [8, 16], but the model needs [8, 24]; its weights do not belong to its configuration
        vae/config.json: Replaced("\"silu\"", "\"mish\"")
        > plimsoll generate heart --model model
        1: error: `model/vae/config.json`: in the VAE config, `act_fn` is `"mish"`, but it must be `"silu"` or `"swish"` or null
        text_encoder/config.json: Replaced("\"quick_gelu\"", "\"relu6\"")
        > plimsoll generate heart --model model
        1: error: `model/text_encoder/config.json`: in the text encoder config, `hidden_act` is `"relu6"`, but it must be `quick_gelu` or `gelu` or `gelu_new` or `gelu_pytorch_tanh`
        tokenizer/vocab.json: Removed
        > plimsoll generate heart --model model
        1: error: `tokenizer` has no `vocab.json`; a tokenizer folder needs `vocab.json` and `merges.txt`, or `tokenizer.json`
        tokenizer/merges.txt: Content("a\n")
        > plimsoll generate heart --model model
        1: error: `tokenizer/merges.txt` is not usable: line 1 is not a pair of tokens; fetch it again
        scheduler/scheduler_config.json: Content("{")
        > plimsoll generate heart --model model
        1: error: `model/scheduler/scheduler_config.json`: the scheduler config can't be read: EOF while parsing an object at line 1 column 1
        scheduler/scheduler_config.json: Replaced("\"epsilon\"", "\"flow\"")
        > plimsoll generate heart --model model
        1: error: `model/scheduler/scheduler_config.json`: the scheduler config can't be read: unknown variant `flow`, expected one of `epsilon`, `v_prediction`, `original_sample`, `sample`
        model_index.json: Replaced("StableDiffusionPipeline", "FluxPipeline")
        > plimsoll generate heart --model model
        1: error: `model/model_index.json`: the pipeline `FluxPipeline` is not supported; supported are `StableDiffusionPipeline`, `StableDiffusionImg2ImgPipeline`, `StableDiffusionXLPipeline`, `StableDiffusionXLImg2ImgPipeline`
    "#]].assert_eq(&transcript.text);
}

/// What happens to a file.
#[derive(Clone, Copy, Debug)]
enum Damage {
    Removed,
    CutBytes(usize),
    Content(&'static str),
    Replaced(&'static str, &'static str),
}

impl Damage {
    fn of(self, whole: &[u8]) -> Option<Vec<u8>> {
        match self {
            Self::Removed => None,
            Self::CutBytes(count) => Some(whole[..whole.len() - count].to_vec()),
            Self::Content(content) => Some(content.as_bytes().to_vec()),
            Self::Replaced(from, to) => {
                let text = std::str::from_utf8(whole).unwrap();
                assert!(text.contains(from), "nothing to replace: {from}");
                Some(text.replace(from, to).into_bytes())
            }
        }
    }
}

#[test]
fn nothing_to_inspect() {
    let bench = Bench::new();
    fs::write(bench.path("long.safetensors"), b"\xff\xff\xff\xff\xff\xff\xff\x7f{}").unwrap();
    fs::write(bench.path("empty.safetensors"), b"").unwrap();
    let transcript = Transcript::new(&bench).run_all(&[
        "inspect missing",
        "inspect .",
        "inspect long.safetensors",
        "inspect empty.safetensors",
    ]);
    expect![[r#"
        > plimsoll inspect missing
        1: error: `missing` can't be inspected: no such file or folder; check the path
        > plimsoll inspect .
        1: error: `.` has no weights; fetch one of `diffusion_pytorch_model.safetensors`, `diffusion_pytorch_model.safetensors.index.json`, `model.safetensors`, `model.safetensors.index.json`
        > plimsoll inspect long.safetensors
        1: error: `long.safetensors` can't be loaded: its first 8 bytes claim a header of 9223372036854775807 bytes, more than the 100000000 that safetensors allows; it is no safetensors file
        > plimsoll inspect empty.safetensors
        1: error: `empty.safetensors` can't be loaded: it has 0 bytes, and a safetensors file has at least 10; fetch it again
    "#]].assert_eq(&transcript);
}

#[test]
fn broken_parts_are_not_passed_over_by_inspect() {
    let bench = Bench::new();
    let model = bench.path("model");
    copy_folder(&repository().join("fixtures/models/sd15"), &model);
    let mut transcript = Transcript::new(&bench);
    let mut damage = |file: &str, damage: Damage| {
        let path = model.join(file);
        let whole = fs::read(&path).unwrap();
        match damage.of(&whole) {
            Some(bytes) => fs::write(&path, bytes).unwrap(),
            None => fs::remove_file(&path).unwrap(),
        }
        transcript.text.push_str(&format!("{file}: {damage:?}\n"));
        transcript.run("inspect model");
        fs::write(&path, whole).unwrap();
    };
    damage("unet/config.json", Damage::Removed);
    damage("unet/config.json", Damage::Content("{"));
    damage("unet/config.json", Damage::Content("[]"));
    damage("vae/diffusion_pytorch_model.safetensors", Damage::Removed);
    damage("vae/diffusion_pytorch_model.safetensors", Damage::Content("x"));
    damage("tokenizer/vocab.json", Damage::Removed);
    damage("tokenizer/merges.txt", Damage::Content("a\n"));
    damage("scheduler/scheduler_config.json", Damage::Removed);
    damage("scheduler/scheduler_config.json", Damage::Content("x"));
    damage("model_index.json", Damage::Content("x"));
    damage("model_index.json", Damage::Content(r#"{"unet": ["diffusers"]}"#));
    expect![[r#"
        unet/config.json: Removed
        > plimsoll inspect model
        1: error: `model/unet/config.json` can't be read: no such file or folder; fetch the model again
        unet/config.json: Content("{")
        > plimsoll inspect model
        1: error: `model/unet/config.json` is no JSON: EOF while parsing an object at line 1 column 1; fetch it again
        unet/config.json: Content("[]")
        > plimsoll inspect model
        1: error: `model/unet/config.json` is no configuration: it must be a JSON object; fetch it again
        vae/diffusion_pytorch_model.safetensors: Removed
        > plimsoll inspect model
        1: error: `model/vae` has no weights; fetch one of `diffusion_pytorch_model.safetensors`, `diffusion_pytorch_model.safetensors.index.json`, `model.safetensors`, `model.safetensors.index.json`
        vae/diffusion_pytorch_model.safetensors: Content("x")
        > plimsoll inspect model
        1: error: `model/vae/diffusion_pytorch_model.safetensors` can't be loaded: it has 1 bytes, and a safetensors file has at least 10; fetch it again
        tokenizer/vocab.json: Removed
        > plimsoll inspect model
        1: error: `model/tokenizer` has no `vocab.json`; a tokenizer folder needs `vocab.json` and `merges.txt`, or `tokenizer.json`
        tokenizer/merges.txt: Content("a\n")
        > plimsoll inspect model
        1: error: `model/tokenizer/merges.txt` is not usable: line 1 is not a pair of tokens; fetch it again
        scheduler/scheduler_config.json: Removed
        > plimsoll inspect model
        1: error: `model/scheduler/scheduler_config.json` can't be read: no such file or folder; fetch the model again
        scheduler/scheduler_config.json: Content("x")
        > plimsoll inspect model
        1: error: `model/scheduler/scheduler_config.json` is no JSON: expected value at line 1 column 1; fetch it again
        model_index.json: Content("x")
        > plimsoll inspect model
        1: error: `model/model_index.json` is no JSON: expected value at line 1 column 1; fetch it again
        model_index.json: Content("{\"unet\": [\"diffusers\"]}")
        > plimsoll inspect model
        1: error: `model/model_index.json` is not usable: `unet` must be a pair of a library and a class; fetch it again
    "#]].assert_eq(&transcript.text);
}

#[test]
fn a_wrong_instruction_set_is_a_wrong_request() {
    let bench = Bench::new();
    let with = |value: &str| bench.run_with(&["generate", "red heart", "--steps", "1"], &[("PLIMSOLL_CPU", value)]);
    let wrong = with("bad");
    let line = "error: `PLIMSOLL_CPU` is `bad`; it must be one of `portable`, `avx2`, `avx512`, or unset\n";
    assert_eq!((wrong.code, wrong.stderr.as_str()), (2, line));
    assert_eq!(with("").code, 0, "empty is unset");
}

fn copy_folder(from: &Path, to: &Path) {
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
