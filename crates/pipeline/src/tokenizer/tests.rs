//! Against transformers' `CLIPTokenizer` (tools/reference/tokenizer_goldens.py), and with damaged files.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{TextLimits, Tokenizer, TokenizerError};

const ANY: TextLimits = TextLimits { vocab_size: 1 << 20, positions: 77 };

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read_folder(folder: &Path) -> Vec<(&'static str, Vec<u8>)> {
    Tokenizer::FILES.iter().filter_map(|name| Some((*name, fs_err::read(folder.join(name)).ok()?))).collect()
}

fn open(files: &[(&str, Vec<u8>)], limits: TextLimits) -> Result<Tokenizer, TokenizerError> {
    let files: Vec<(&str, &[u8])> = files.iter().map(|(name, bytes)| (*name, bytes.as_slice())).collect();
    Tokenizer::new("tokenizer", &files, limits)
}

fn check_golden(name: &str, folder: &str) {
    let golden = repository().join(format!("fixtures/goldens/tokenizer_{name}.json"));
    let golden: Value = serde_json::from_slice(&fs_err::read(golden).unwrap()).unwrap();
    let tokenizer = open(&read_folder(&repository().join(folder)), ANY).unwrap();
    let length = golden["max_length"].as_u64().unwrap() as usize;
    let pad = golden["pad_id"].as_u64().unwrap() as u32;
    assert_eq!(tokenizer.length(), length);
    assert_eq!(u64::from(tokenizer.end_id()), golden["eos_id"].as_u64().unwrap());
    let cases = golden["cases"].as_array().unwrap();
    assert!(cases.len() > 20, "a golden with {} cases", cases.len());
    for case in cases {
        let text = case["text"].as_str().unwrap();
        let mut ids: Vec<u32> = case["ids"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect();
        ids.resize(length, pad);
        assert_eq!(tokenizer.encode(text).unwrap(), ids, "{name}: {text:?}");
    }
}

#[test]
fn equals_transformers_for_the_demo_model() {
    check_golden("emoji64", "assets/emoji64/tokenizer");
}

#[test]
fn equals_transformers_for_the_tiny_models() {
    for name in ["sd15", "sd2", "sdxl", "vae4", "groups"] {
        check_golden(name, &format!("fixtures/models/{name}/tokenizer"));
    }
    check_golden("sdxl_2", "fixtures/models/sdxl/tokenizer_2");
}

/// The same vocabulary written as a `tokenizer.json`, with merges as texts and as pairs.
#[test]
fn reads_a_tokenizer_json_like_the_pair_of_files() {
    let folder = repository().join("fixtures/models/sd2/tokenizer");
    let files = read_folder(&folder);
    let plain = open(&files, ANY).unwrap();
    let vocab: Value = serde_json::from_slice(&fs_err::read(folder.join("vocab.json")).unwrap()).unwrap();
    let merges = fs_err::read_to_string(folder.join("merges.txt")).unwrap();
    let texts: Vec<&str> = merges.lines().skip(1).collect();
    let pairs: Vec<Vec<&str>> = texts.iter().map(|line| line.split(' ').collect()).collect();
    let end_id = &vocab["<|endoftext|>"];
    for merges in [json!(texts), json!(pairs)] {
        let backend = json!({
            "added_tokens": [{"id": end_id, "content": "<|endoftext|>", "special": true, "normalized": false}],
            "model": {"type": "BPE", "vocab": vocab, "merges": merges},
        });
        let mut files: Vec<_> =
            files.iter().filter(|(name, _)| !["vocab.json", "merges.txt"].contains(name)).cloned().collect();
        files.push(("tokenizer.json", backend.to_string().into_bytes()));
        let tokenizer = open(&files, ANY).unwrap();
        for text in ["red heart", "hello! world", "a <|endoftext|> b", "Straße 12"] {
            assert_eq!(tokenizer.encode(text), plain.encode(text), "{text}");
        }
    }
}

/// Stable Diffusion 2's files disagree about the pad token; SDXL's second tokenizer lists its tokens in the config.
#[test]
fn special_tokens_come_from_the_file_that_transformers_believes() {
    let folder = repository().join("fixtures/models/sd2/tokenizer");
    let vocab: Value = serde_json::from_slice(&fs_err::read(folder.join("vocab.json")).unwrap()).unwrap();
    let end_id = vocab["<|endoftext|>"].as_u64().unwrap() as u32;
    let pad_of = |config: Value, map: Value| {
        let mut files: Vec<_> = read_folder(&folder);
        files.retain(|(name, _)| ["vocab.json", "merges.txt"].contains(name));
        files.push(("tokenizer_config.json", config.to_string().into_bytes()));
        files.push(("special_tokens_map.json", map.to_string().into_bytes()));
        *open(&files, ANY).unwrap().encode("a").unwrap().last().unwrap()
    };
    assert_eq!(pad_of(json!({"pad_token": "<|endoftext|>"}), json!({"pad_token": "!"})), 0);
    assert_eq!(pad_of(json!({"pad_token": "!"}), json!({})), 0);
    assert_eq!(pad_of(json!({}), json!({})), end_id);
    assert_eq!(pad_of(json!({}), json!({"pad_token": {"content": "!", "normalized": true, "lstrip": false}})), 0);
    let decoder = json!({"0": {"content": "!", "special": true, "normalized": false}});
    assert_eq!(
        pad_of(json!({"added_tokens_decoder": decoder, "pad_token": "<|endoftext|>"}), json!({"pad_token": "!"})),
        end_id
    );
}

#[test]
fn a_prompt_of_a_megabyte_is_truncated_like_any_other() {
    let tokenizer = open(&read_folder(&repository().join("assets/emoji64/tokenizer")), ANY).unwrap();
    let long = |part: &str| tokenizer.encode(&part.repeat((1 << 20) / part.len())).unwrap();
    assert_eq!(long("red heart, "), tokenizer.encode(&"red heart, ".repeat(100)).unwrap());
    assert_eq!(long("\u{1f355}"), tokenizer.encode(&"\u{1f355}".repeat(300)).unwrap());
    assert_eq!(long(" "), tokenizer.encode("").unwrap());
    assert_eq!(long("a").len(), 77);
}

/// A small folder that works, with one file replaced (or removed).
fn damaged(name: &str, content: Option<&str>) -> Result<Tokenizer, TokenizerError> {
    let mut files = vec![
        ("vocab.json", br#"{"a": 0, "b</w>": 1, "ab</w>": 2, "<|startoftext|>": 3, "<|endoftext|>": 4}"#.to_vec()),
        ("merges.txt", b"#version: 0.2\na b</w>\n".to_vec()),
        ("tokenizer_config.json", br#"{"model_max_length": 5}"#.to_vec()),
    ];
    files.retain(|(file, _)| *file != name);
    let name = *Tokenizer::FILES.iter().find(|file| **file == name).unwrap();
    files.extend(content.map(|content| (name, content.as_bytes().to_vec())));
    open(&files, TextLimits { vocab_size: 5, positions: 8 })
}

#[test]
fn the_small_folder_works() {
    let tokenizer = damaged("added_tokens.json", None).unwrap();
    assert_eq!(tokenizer.encode("AB ab AB ab").unwrap(), [3, 2, 2, 2, 4]);
    assert_eq!(tokenizer.encode("").unwrap(), [3, 4, 4, 4, 4]);
    let unknown = tokenizer.encode("z").unwrap();
    assert_eq!(unknown, [3, 4, 4, 4, 4], "an unknown byte is the unknown token");
}

#[test]
fn merges_may_be_none() {
    let tokenizer = damaged("merges.txt", Some("#version: 0.2\n")).unwrap();
    assert_eq!(tokenizer.encode("ab").unwrap(), [3, 0, 1, 4, 4]);
}

#[test]
fn damaged_files_are_named() {
    let cases = [
        (
            "vocab.json",
            None,
            "`tokenizer` has no `vocab.json`; a tokenizer folder needs `vocab.json` and `merges.txt`, or `tokenizer.json`",
        ),
        (
            "merges.txt",
            None,
            "`tokenizer` has no `merges.txt`; a tokenizer folder needs `vocab.json` and `merges.txt`, or `tokenizer.json`",
        ),
        (
            "vocab.json",
            Some("{\"a\": 0"),
            "`tokenizer/vocab.json` is not usable: EOF while parsing an object at line 1 column 7; fetch it again",
        ),
        (
            "vocab.json",
            Some("[1]"),
            "`tokenizer/vocab.json` is not usable: invalid type: sequence, expected a map at line 1 column 0; fetch it again",
        ),
        (
            "vocab.json",
            Some("{\"a\": -1}"),
            "`tokenizer/vocab.json` is not usable: the id of `a` is -1; fetch it again",
        ),
        (
            "vocab.json",
            Some("{\"a\": 5}"),
            "`tokenizer/vocab.json` gives `a` the id 5, but the text encoder knows 5 tokens; use its own tokenizer",
        ),
        (
            "vocab.json",
            Some("{\"a\": 18446744073709551615}"),
            "`tokenizer/vocab.json` gives `a` the id 18446744073709551615, but the text encoder knows 5 tokens; use its own tokenizer",
        ),
        (
            "vocab.json",
            Some(r#"{"a": 0, "b</w>": 1, "ab</w>": 2, "<|endoftext|>": 4}"#),
            "`tokenizer/vocab.json` has no token `<|startoftext|>`, which is the begin token; use the vocabulary that came with the model",
        ),
        (
            "vocab.json",
            Some(r#"{"a": 0, "b</w>": 1, "ab</w>": 1, "<|startoftext|>": 3, "<|endoftext|>": 4}"#),
            "`tokenizer/vocab.json` gives the id 1 to both `b</w>` and `ab</w>`; use the vocabulary that came with the model",
        ),
        (
            "added_tokens.json",
            Some("{\"a\": 0, \"c\": 0}"),
            "`tokenizer/added_tokens.json` is not usable: the added token `c` is not in the vocabulary; fetch it again",
        ),
        (
            "merges.txt",
            Some("a\n"),
            "`tokenizer/merges.txt` is not usable: line 1 is not a pair of tokens; fetch it again",
        ),
        (
            "merges.txt",
            Some("a b</w> c\n"),
            "`tokenizer/merges.txt` is not usable: line 1 is not a pair of tokens; fetch it again",
        ),
        (
            "merges.txt",
            Some("#version: 0.2\nb</w> a\n"),
            "`tokenizer/merges.txt` is not usable: line 2 needs the token `b</w>a`, which is not in the vocabulary; fetch it again",
        ),
        (
            "tokenizer_config.json",
            Some("{\"model_max_length\": 1}"),
            "`tokenizer/tokenizer_config.json` asks for 1 ids, but the text encoder takes 2 to 8; correct `model_max_length`",
        ),
        (
            "tokenizer_config.json",
            Some("{\"model_max_length\": 1e30}"),
            "`tokenizer/tokenizer_config.json` asks for 1e+30 ids, but the text encoder takes 2 to 8; correct `model_max_length`",
        ),
        (
            "tokenizer_config.json",
            Some("{\"pad_token\": \"!\"}"),
            "`tokenizer/vocab.json` has no token `!`, which is the pad token; use the vocabulary that came with the model",
        ),
        (
            "tokenizer_config.json",
            Some("{\"bos_token\": 3}"),
            "`tokenizer/tokenizer_config.json` is not usable: `bos_token` is neither a text nor an object with the text `content`; fetch it again",
        ),
        (
            "tokenizer_config.json",
            Some("{\"padding_side\": \"left\"}"),
            "`tokenizer/tokenizer_config.json` is not usable: `padding_side` is \"left\"; known: \"right\"; fetch it again",
        ),
        (
            "tokenizer_config.json",
            Some("{\"added_tokens_decoder\": {\"9\": {\"content\": \"a\"}}}"),
            "`tokenizer/tokenizer_config.json` is not usable: the added token `a` has the id 9, but 0 in the vocabulary; fetch it again",
        ),
        (
            "tokenizer.json",
            Some("{}"),
            "`tokenizer/tokenizer.json` is not usable: `model` is not an object; fetch it again",
        ),
        (
            "tokenizer.json",
            Some("{\"model\": {\"type\": \"Unigram\"}}"),
            "`tokenizer/tokenizer.json` is not usable: `model.type` is `Unigram`; CLIP's is `BPE`; fetch it again",
        ),
        (
            "tokenizer.json",
            Some("{\"model\": {\"vocab\": {\"a\": 0, \"b\": 0}, \"merges\": []}}"),
            "`tokenizer/tokenizer.json` gives the id 0 to both `a` and `b`; use the vocabulary that came with the model",
        ),
        (
            "tokenizer.json",
            Some("{\"model\": {\"vocab\": {\"a\": 0}, \"merges\": [7]}}"),
            "`tokenizer/tokenizer.json` is not usable: `model.merges[0]` is not a pair of tokens; fetch it again",
        ),
    ];
    for (name, content, message) in cases {
        match damaged(name, content) {
            Ok(_) => panic!("{name} with {content:?} was accepted"),
            Err(error) => assert_eq!(error.to_string(), message),
        }
    }
}

#[test]
fn a_file_that_is_too_large_is_not_parsed() {
    let error = damaged("vocab.json", Some(&" ".repeat(17 << 20))).err().unwrap();
    assert_eq!(
        error.to_string(),
        "`tokenizer/vocab.json` has 17.00 MiB, more than the 16.00 MiB that a tokenizer file may have; fetch it again"
    );
}
