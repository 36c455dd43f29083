//! Files, shards and folders on disk: what is found, what is read, and what is said when something is wrong.

use std::fs::{self, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

use expect_test::{Expect, expect};
use plimsoll_device::{ByteCount, DType};
use plimsoll_testkit::{CraftedFile, asset, fixture, read_f32};
use plimsoll_weights::{StoredDType, TensorFile, TensorIndex, vae_attention_name};
use tempfile::TempDir;

fn folder(files: &[(&str, Vec<u8>)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        fs::write(folder.path().join(name), bytes).unwrap();
    }
    folder
}

fn one_tensor(name: &str) -> Vec<u8> {
    CraftedFile::new().tensor(name, "F32", &[2], &[0, 0, 128, 63, 0, 0, 0, 64]).bytes()
}

fn index(weight_map: &str) -> Vec<u8> {
    format!(r#"{{"metadata":{{"total_size":16}},"weight_map":{weight_map}}}"#).into_bytes()
}

/// What opening `path` in `folder` gives: the tensors' names, or the error, without the temporary folder's path.
fn outcome(folder: &Path, path: &str) -> String {
    let opened = TensorIndex::open(folder.join(path));
    let said = match opened {
        Ok(index) => index.iter().map(|tensor| tensor.name.clone()).collect::<Vec<_>>().join(" "),
        Err(error) => error.to_string(),
    };
    said.replace(folder.to_str().unwrap(), "FOLDER")
}

#[track_caller]
fn check_shards(shards: &[(&str, Vec<u8>)], weight_map: &str, expected: Expect) {
    let folder = folder(shards);
    fs::write(folder.path().join("model.safetensors.index.json"), index(weight_map)).unwrap();
    expected.assert_eq(&outcome(folder.path(), ""));
}

#[test]
fn opening_reads_no_data() {
    // 256 GiB that the disk doesn't have: all of it is a hole in the file.
    let size: u64 = 256 << 30;
    let header = CraftedFile::new()
        .entry("huge", &format!(r#"{{"dtype":"F32","shape":[{}],"data_offsets":[0,{size}]}}"#, size / 4))
        .bytes();
    let folder = folder(&[("huge.safetensors", header.clone())]);
    let path = folder.path().join("huge.safetensors");
    let mut file = OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(header.len() as u64 + size).unwrap();
    file.seek(SeekFrom::End(-4)).unwrap();
    file.write_all(&1.5f32.to_le_bytes()).unwrap();

    let index = TensorIndex::open(&path).unwrap();
    let (tensor, dtype) = index.weight("huge", &[(size / 4) as usize]).unwrap();
    assert_eq!((dtype, tensor.size()), (DType::F32, ByteCount(size)));
    let mut last = [0; 4];
    tensor.bytes.read_at(size as usize - 4..size as usize, &mut last).unwrap();
    assert_eq!(f32::from_le_bytes(last), 1.5);
}

#[cfg(unix)]
#[test]
fn what_is_no_readable_file_is_said_to_be_none() {
    let folder = folder(&[("plain", vec![])]);
    fs::create_dir(folder.path().join("sub.safetensors")).unwrap();
    let said = |path: &str| {
        let error = TensorFile::open(folder.path().join(path)).err().unwrap();
        error.to_string().replace(folder.path().to_str().unwrap(), "FOLDER")
    };
    expect!["`FOLDER/sub.safetensors` is a folder, and a safetensors file is expected; name a file in it"]
        .assert_eq(&said("sub.safetensors"));
    expect!["`FOLDER/absent.safetensors` can't be opened: No such file or directory (os error 2); check the path and its permissions"].assert_eq(&said("absent.safetensors"));
    expect![[r#"`FOLDER/absent\n\u{1b}.safetensors` can't be opened: No such file or directory (os error 2); check the path and its permissions"#]].assert_eq(&said("absent\n\u{1b}.safetensors"));
    expect!["`FOLDER/plain/below.safetensors` can't be opened: Not a directory (os error 20); check the path and its permissions"].assert_eq(&said("plain/below.safetensors"));
}

#[cfg(unix)]
#[test]
fn unreadable_files_are_errors() {
    use std::os::unix::fs::{PermissionsExt, symlink};

    let folder = folder(&[("secret.safetensors", one_tensor("a"))]);
    // A link to itself can't be read by anybody.
    symlink("loop.safetensors", folder.path().join("loop.safetensors")).unwrap();
    let said = outcome(folder.path(), "loop.safetensors");
    assert!(said.starts_with("`FOLDER/loop.safetensors` can't be opened: "), "{said}");

    let secret = folder.path().join("secret.safetensors");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o000)).unwrap();
    let said = outcome(folder.path(), "secret.safetensors");
    // The administrator may read it anyway.
    let refused = said.starts_with("`FOLDER/secret.safetensors` can't be opened: ");
    assert_eq!(refused, fs::File::open(&secret).is_err(), "{said}");
}

#[cfg(unix)]
#[test]
fn a_device_is_no_file() {
    let error = TensorFile::open("/dev/zero").err().unwrap();
    expect!["`/dev/zero` is no regular file, and weights are read by position; save it as a file"]
        .assert_eq(&error.to_string());
}

#[test]
fn a_file_that_is_cut_off_later_is_noticed() {
    let folder = folder(&[("a.safetensors", one_tensor("a"))]);
    let path = folder.path().join("a.safetensors");
    let index = TensorIndex::open(&path).unwrap();
    let tensor = index.get("a").unwrap();
    assert_eq!(read_f32(tensor), [1.0, 2.0]);

    let len = fs::metadata(&path).unwrap().len();
    OpenOptions::new().write(true).open(&path).unwrap().set_len(len - 5).unwrap();
    let error = tensor.read_all().unwrap_err();
    expect!["reading 8 bytes at offset 62 of `FOLDER/a.safetensors` failed: the file had 70 bytes when it was opened and has 65 now; something cut it off, restore it"].assert_eq(&error.to_string().replace(folder.path().to_str().unwrap(), "FOLDER"));
    // What is left can still be read.
    let mut first = [0; 3];
    tensor.bytes.read_at(0..3, &mut first).unwrap();
    assert_eq!(first, [0, 0, 128]);
}

#[cfg(unix)]
#[test]
fn a_file_that_is_replaced_keeps_its_bytes() {
    let folder = folder(&[("a.safetensors", one_tensor("a")), ("new.safetensors", one_tensor("other"))]);
    let path = folder.path().join("a.safetensors");
    let index = TensorIndex::open(&path).unwrap();
    fs::rename(folder.path().join("new.safetensors"), &path).unwrap();
    assert_eq!(read_f32(index.get("a").unwrap()), [1.0, 2.0]);
}

#[test]
fn shards_become_one_index() {
    check_shards(
        &[("1.safetensors", one_tensor("b")), ("2.safetensors", one_tensor("a"))],
        r#"{"a":"2.safetensors","b":"1.safetensors"}"#,
        expect!["a b"],
    );
}

#[test]
fn a_tensor_that_the_index_forgot_belongs_to_the_model() {
    let two = CraftedFile::new().tensor("a", "U8", &[1], &[0]).tensor("forgotten", "U8", &[1], &[0]).bytes();
    check_shards(&[("1.safetensors", two)], r#"{"a":"1.safetensors"}"#, expect!["a forgotten"]);
}

#[test]
fn shards_that_do_not_fit_are_errors() {
    let one = || ("1.safetensors", one_tensor("a"));
    check_shards(
        &[one()],
        r#"{"a":"1.safetensors","b":"2.safetensors"}"#,
        expect![
            "`FOLDER/model.safetensors.index.json` names the shard `2.safetensors`, which is missing beside it; fetch it"
        ],
    );
    check_shards(
        &[one()],
        r#"{"a":"1.safetensors","b":"1.safetensors"}"#,
        expect![
            "`FOLDER/model.safetensors.index.json` says that tensor `b` is in the shard `1.safetensors`, which has no such tensor; fetch both again"
        ],
    );
    check_shards(
        &[one(), ("2.safetensors", one_tensor("b"))],
        r#"{"a":"2.safetensors","b":"1.safetensors"}"#,
        expect![
            "`FOLDER/model.safetensors.index.json` says that tensor `a` is in the shard `2.safetensors`, which has no such tensor; fetch both again"
        ],
    );
    check_shards(
        &[one(), ("2.safetensors", one_tensor("a"))],
        r#"{"a":"1.safetensors","b":"2.safetensors"}"#,
        expect!["tensor `a` is in both `FOLDER/1.safetensors` and `FOLDER/2.safetensors`; fetch the shards again"],
    );
    check_shards(
        &[("1.safetensors", vec![1, 2, 3])],
        r#"{"a":"1.safetensors"}"#,
        expect![
            "`FOLDER/1.safetensors` can't be loaded: it has 3 bytes, and a safetensors file has at least 10; fetch it again"
        ],
    );
}

#[test]
fn shards_outside_of_the_folder_are_never_touched() {
    for shard in ["../1.safetensors", "/etc/passwd", "sub/../../1.safetensors", "", ".", "a\\u0000b"] {
        let folder = folder(&[("1.safetensors", one_tensor("a"))]);
        let sub = folder.path().join("sub");
        fs::create_dir(&sub).unwrap();
        fs::write(sub.join("model.safetensors.index.json"), index(&format!(r#"{{"a":"{shard}"}}"#))).unwrap();
        let said = outcome(folder.path(), "sub");
        assert!(said.ends_with("which is not inside the index's folder; do not use this model"), "{shard}: {said}");
    }
}

#[test]
fn an_index_that_is_none_is_an_error() {
    let cases: [&[u8]; 9] = [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        br#"{"weight_map":null}"#,
        br#"{"weight_map":{"a":1}}"#,
        br#"{"weight_map":{"a":"x","a":"y"}}"#,
        br#"{"weight_map":{},"weight_map":{}}"#,
        br#"{"weight_map":{}} trailing"#,
    ];
    let said = cases.map(|bytes| {
        let folder = folder(&[("model.safetensors.index.json", bytes.to_vec())]);
        outcome(folder.path(), "model.safetensors.index.json") + "\n"
    });
    expect![[r#"
        `FOLDER/model.safetensors.index.json` is no index of shards: its JSON: EOF while parsing a value; fetch it again
        `FOLDER/model.safetensors.index.json` is no index of shards: it is not UTF-8 at byte 0; fetch it again
        `FOLDER/model.safetensors.index.json` is no index of shards: its JSON: invalid type: sequence, expected an object; fetch it again
        `FOLDER/model.safetensors.index.json` is no index of shards: it has no `weight_map`; fetch it again
        `FOLDER/model.safetensors.index.json` is no index of shards: `weight_map`: invalid type: null, expected an object; fetch it again
        `FOLDER/model.safetensors.index.json` is no index of shards: `weight_map` for `a`: invalid type: integer `1`, expected a string; fetch it again
        `FOLDER/model.safetensors.index.json` is no index of shards: `weight_map` has `a` twice; fetch it again
        `FOLDER/model.safetensors.index.json` is no index of shards: its JSON has `weight_map` twice; fetch it again
        `FOLDER/model.safetensors.index.json` is no index of shards: its JSON: trailing characters; fetch it again
    "#]].assert_eq(&said.concat());
}

#[test]
fn a_component_folder_is_opened_by_its_known_names() {
    let tensor = || one_tensor("a");
    let cases: [&[(&str, Vec<u8>)]; 5] = [
        &[("model.safetensors", tensor()), ("model.fp16.safetensors", vec![])],
        &[("diffusion_pytorch_model.fp16.safetensors", tensor())],
        &[("diffusion_pytorch_model.bin", vec![])],
        &[("model.safetensors", tensor()), ("model.safetensors.index.json", index("{}"))],
        &[("config.json", vec![])],
    ];
    let said = cases.map(|files| outcome(folder(files).path(), "") + "\n");
    expect![[r#"
        a
        a
        `FOLDER/` has its weights as `diffusion_pytorch_model.bin` only, and only safetensors is read; convert it to safetensors
        `FOLDER/` has both `model.safetensors` and `model.safetensors.index.json`; name one of them instead of the folder, or remove one
        `FOLDER/` has no weights; fetch one of `diffusion_pytorch_model.safetensors`, `diffusion_pytorch_model.safetensors.index.json`, `model.safetensors`, `model.safetensors.index.json`
    "#]].assert_eq(&said.concat());
    let error = TensorIndex::open("no/such/folder").unwrap_err().to_string();
    assert!(error.starts_with("`no/such/folder` can't be opened: "), "{error}");
}

#[test]
fn a_weight_is_checked_against_the_model() {
    let file = CraftedFile::new().tensor("ids", "I64", &[1, 1], &[0; 8]).tensor("w", "F16", &[2, 1], &[0; 4]).bytes();
    let index = TensorIndex::from_file(&TensorFile::in_memory("x.safetensors", file).unwrap());
    assert_eq!(index.weight("w", &[2, 1]).unwrap().1, DType::F16);
    let said = [("w\n", &[2, 1][..]), ("w", &[1, 2]), ("ids", &[1, 1])]
        .map(|(name, shape)| index.weight(name, shape).unwrap_err().to_string() + "\n");
    expect![[r#"
        `x.safetensors` has no tensor `w\n`; its weights do not belong to its configuration
        tensor `w` of `x.safetensors` has the shape [2, 1], but the model needs [1, 2]; its weights do not belong to its configuration
        tensor `ids` of `x.safetensors` is stored as I64, and weights must be F32, F16 or BF16; convert the file
    "#]].assert_eq(&said.concat());
}

#[test]
fn renaming_refuses_collisions() {
    let file = CraftedFile::new()
        .tensor("mid.attentions.0.query.bias", "U8", &[1], &[1])
        .tensor("mid.attentions.0.proj_attn.bias", "U8", &[1], &[2])
        .tensor("mid.resnets.0.bias", "U8", &[1], &[3]);
    let open =
        |file: &CraftedFile| TensorIndex::from_file(&TensorFile::in_memory("vae.safetensors", file.bytes()).unwrap());
    let index = open(&file).renamed(vae_attention_name).unwrap();
    let names: Vec<&str> = index.iter().map(|tensor| tensor.name.as_str()).collect();
    assert_eq!(names, ["mid.attentions.0.to_out.0.bias", "mid.attentions.0.to_q.bias", "mid.resnets.0.bias"]);
    assert_eq!(index.get("mid.attentions.0.to_q.bias").unwrap().read_all().unwrap(), [1]);

    let error = open(&file.tensor("mid.attentions.0.to_q.bias", "U8", &[1], &[4])).renamed(vae_attention_name);
    expect!["`vae.safetensors` has both `mid.attentions.0.query.bias` and `mid.attentions.0.to_q.bias`, which are two names of one tensor; write the file anew with one"].assert_eq(&error.unwrap_err().to_string());
}

#[test]
fn the_bundled_model_has_its_tensors() {
    let unet = TensorIndex::open(asset("emoji64/unet")).unwrap();
    let totals = unet.totals();
    assert_eq!(totals.tensor_count, 326);
    assert_eq!(totals.bytes_by_dtype.keys().collect::<Vec<_>>(), [&StoredDType::F16]);
    let bytes: ByteCount = totals.bytes_by_dtype.values().copied().sum();
    assert_eq!(bytes, ByteCount(2 * totals.parameter_count));
    let (conv_in, _) = unet.weight("conv_in.bias", &unet.get("conv_in.bias").unwrap().shape).unwrap();
    assert!(read_f32(conv_in).iter().all(|value| value.is_finite()));
}

#[test]
fn every_fixture_opens() {
    for model in ["sd15", "sd2", "sdxl", "vae4", "groups"] {
        for component in ["unet", "vae", "text_encoder"] {
            let index = TensorIndex::open(fixture(&format!("models/{model}/{component}"))).unwrap();
            assert!(index.totals().parameter_count > 10_000, "{model}/{component}");
        }
    }
}
