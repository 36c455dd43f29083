//! Files that are wrong in every way one header can be, and what is said about each.

use std::time::{Duration, Instant};

use expect_test::{Expect, expect};
use plimsoll_testkit::CraftedFile;
use plimsoll_weights::{TENSOR_COUNT_MAX, TensorFile};

/// Opens each case from memory and from disk, which must agree, and compares what is said about them all.
#[track_caller]
fn check(cases: &[(&str, Vec<u8>)], expected: Expect) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.safetensors");
    let mut said = String::new();
    for (case, bytes) in cases {
        let outcome = outcome(TensorFile::in_memory("x.safetensors", bytes.clone()));
        std::fs::write(&path, bytes).unwrap();
        let outcome_on_disk = self::outcome(TensorFile::open(&path)).replace(path.to_str().unwrap(), "x.safetensors");
        assert_eq!(outcome, outcome_on_disk, "{case}");
        said += &format!("{case}:\n    {outcome}\n");
    }
    expected.assert_eq(&said);
}

fn outcome(opened: Result<TensorFile, plimsoll_weights::OpenError>) -> String {
    match opened {
        Ok(file) => format!("opens, {} tensors", file.header().tensors().len()),
        Err(error) => error.to_string(),
    }
}

/// A file whose header is `text`, with 16 bytes of data.
fn with_header(text: &str) -> Vec<u8> {
    CraftedFile::new().header(text).data(&[0; 16]).bytes()
}

/// A file with one tensor `a`, whose entry is `entry`, and 16 bytes of data.
fn with_entry(entry: &str) -> Vec<u8> {
    CraftedFile::new().entry("a", entry).data(&[0; 16]).bytes()
}

fn valid() -> CraftedFile {
    CraftedFile::new().tensor("a", "F32", &[2, 2], &[1; 16]).tensor("b", "BF16", &[3], &[2; 6])
}

#[test]
fn lengths() {
    check(
        &[
            ("empty", vec![]),
            ("7 bytes", vec![2, 0, 0, 0, 0, 0, 0]),
            ("8 bytes, no header", vec![0; 8]),
            ("header longer than the file", valid().header_len(10_000).bytes()),
            ("header one byte longer than the file", CraftedFile::new().header_len(3).bytes()),
            ("header longer than the format allows", valid().header_len(100_000_001).bytes()),
            ("header of u64::MAX", valid().header_len(u64::MAX).bytes()),
            ("header of u64::MAX - 7, whose end wraps around", valid().header_len(u64::MAX - 7).bytes()),
            ("header cut short by its length", valid().header_len(20).bytes()),
            ("header reaches into the data", valid().header_len(130).bytes()),
            ("data cut off", valid().bytes_cut_by(1)),
            ("all data cut off", valid().bytes_cut_by(22)),
            ("header cut off", valid().bytes_cut_by(50)),
            ("trailing bytes", valid().data(&[0; 5]).bytes()),
            ("data without a tensor", CraftedFile::new().data(&[0]).bytes()),
            ("no tensors, no data", CraftedFile::new().bytes()),
        ],
        expect![[r#"
            empty:
                `x.safetensors` can't be loaded: it has 0 bytes, and a safetensors file has at least 10; fetch it again
            7 bytes:
                `x.safetensors` can't be loaded: it has 7 bytes, and a safetensors file has at least 10; fetch it again
            8 bytes, no header:
                `x.safetensors` can't be loaded: its header does not begin with `{`; it is damaged or no safetensors file, fetch it again
            header longer than the file:
                `x.safetensors` can't be loaded: its first 8 bytes claim a header of 10000 bytes, but only 135 follow; it is cut off or no safetensors file, fetch it again
            header one byte longer than the file:
                `x.safetensors` can't be loaded: its first 8 bytes claim a header of 3 bytes, but only 2 follow; it is cut off or no safetensors file, fetch it again
            header longer than the format allows:
                `x.safetensors` can't be loaded: its first 8 bytes claim a header of 100000001 bytes, more than the 100000000 that safetensors allows; it is no safetensors file
            header of u64::MAX:
                `x.safetensors` can't be loaded: its first 8 bytes claim a header of 18446744073709551615 bytes, more than the 100000000 that safetensors allows; it is no safetensors file
            header of u64::MAX - 7, whose end wraps around:
                `x.safetensors` can't be loaded: its first 8 bytes claim a header of 18446744073709551608 bytes, more than the 100000000 that safetensors allows; it is no safetensors file
            header cut short by its length:
                `x.safetensors` can't be loaded: its header is not JSON: EOF while parsing an object at line 1 column 20; it is damaged, fetch it again
            header reaches into the data:
                `x.safetensors` can't be loaded: its header is not JSON: trailing characters at line 1 column 114; it is damaged, fetch it again
            data cut off:
                `x.safetensors` can't be loaded: tensor `b` ends at byte 22 of the data, but the file has only 21 bytes of data; it is cut off, fetch it again
            all data cut off:
                `x.safetensors` can't be loaded: tensor `a` ends at byte 16 of the data, but the file has only 0 bytes of data; it is cut off, fetch it again
            header cut off:
                `x.safetensors` can't be loaded: its first 8 bytes claim a header of 113 bytes, but only 85 follow; it is cut off or no safetensors file, fetch it again
            trailing bytes:
                `x.safetensors` can't be loaded: 5 bytes follow the last tensor, which safetensors forbids; write the file anew
            data without a tensor:
                `x.safetensors` can't be loaded: 1 bytes follow the last tensor, which safetensors forbids; write the file anew
            no tensors, no data:
                opens, 0 tensors
        "#]],
    );
}

#[test]
fn texts() {
    check(
        &[
            ("a PNG", b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR".to_vec()),
            ("a zip (a torch pickle)", b"PK\x03\x04\x00\x00\x08\x08\x00\x00".to_vec()),
            ("not UTF-8", CraftedFile::new().header(b"{\"\xff\xfe\":1}").bytes()),
            ("not JSON", with_header("{weights}")),
            ("JSON cut off", with_header(r#"{"a":{"dtype":"F32","sha"#)),
            ("two JSON values", with_header("{}{}")),
            ("trailing zeros", with_header("{}\0\0")),
            ("padding with blanks is allowed", CraftedFile::new().header("{}      ").bytes()),
            ("blanks in front", with_header("  {}")),
            ("an array", with_header("[]")),
            ("a string", with_header(r#""{}""#)),
            ("a lone surrogate in a name", with_header(r#"{"\ud800":1}"#)),
            ("an entry that is a number", with_entry("17")),
            (
                "an entry that is nested garbage",
                with_entry(r#"{"dtype":{"a":[{"b":null}]},"shape":{},"data_offsets":""}"#),
            ),
            ("an empty entry", with_entry("{}")),
            ("an entry without offsets", with_entry(r#"{"dtype":"F32","shape":[4]}"#)),
            ("a field twice", with_entry(r#"{"dtype":"F32","dtype":"F16","shape":[4],"data_offsets":[0,16]}"#)),
            (
                "an unknown field is ignored",
                with_entry(r#"{"dtype":"F32","shape":[4],"data_offsets":[0,16],"note":[1,{"x":2}]}"#),
            ),
            (
                "a tensor twice",
                with_header(
                    r#"{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]},"\u0061":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}"#,
                ),
            ),
            ("metadata twice", with_header(r#"{"__metadata__":{},"__metadata__":{}}"#)),
            ("a key twice in the metadata", with_header(r#"{"__metadata__":{"k":"1","k":"2"}}"#)),
            ("metadata that is no object", with_header(r#"{"__metadata__":["x"]}"#)),
            ("metadata that is no text", with_header(r#"{"__metadata__":{"k":1}}"#)),
            ("metadata that is null", CraftedFile::new().entry("__metadata__", "null").bytes()),
        ],
        expect![[r#"
            a PNG:
                `x.safetensors` can't be loaded: its first 8 bytes claim a header of 727905341920923785 bytes, more than the 100000000 that safetensors allows; it is no safetensors file
            a zip (a torch pickle):
                `x.safetensors` can't be loaded: its first 8 bytes claim a header of 578712552184433488 bytes, more than the 100000000 that safetensors allows; it is no safetensors file
            not UTF-8:
                `x.safetensors` can't be loaded: its header is not UTF-8 at byte 2; it is damaged or no safetensors file, fetch it again
            not JSON:
                `x.safetensors` can't be loaded: its header is not JSON: key must be a string at line 1 column 2; it is damaged, fetch it again
            JSON cut off:
                `x.safetensors` can't be loaded: its header is not JSON: EOF while parsing a string at line 1 column 24; it is damaged, fetch it again
            two JSON values:
                `x.safetensors` can't be loaded: its header is not JSON: trailing characters at line 1 column 3; it is damaged, fetch it again
            trailing zeros:
                `x.safetensors` can't be loaded: its header is not JSON: trailing characters at line 1 column 3; it is damaged, fetch it again
            padding with blanks is allowed:
                opens, 0 tensors
            blanks in front:
                `x.safetensors` can't be loaded: its header does not begin with `{`; it is damaged or no safetensors file, fetch it again
            an array:
                `x.safetensors` can't be loaded: its header does not begin with `{`; it is damaged or no safetensors file, fetch it again
            a string:
                `x.safetensors` can't be loaded: its header does not begin with `{`; it is damaged or no safetensors file, fetch it again
            a lone surrogate in a name:
                `x.safetensors` can't be loaded: its header is not JSON: unexpected end of hex escape at line 1 column 9; it is damaged, fetch it again
            an entry that is a number:
                `x.safetensors` can't be loaded: its entry for tensor `a` is malformed: invalid type: integer `17`, expected an object with `dtype`, `shape` and `data_offsets`; write the file anew
            an entry that is nested garbage:
                `x.safetensors` can't be loaded: its entry for tensor `a` is malformed: invalid type: map, expected a string; write the file anew
            an empty entry:
                `x.safetensors` can't be loaded: its entry for tensor `a` is malformed: missing field `dtype`; write the file anew
            an entry without offsets:
                `x.safetensors` can't be loaded: its entry for tensor `a` is malformed: missing field `data_offsets`; write the file anew
            a field twice:
                `x.safetensors` can't be loaded: its entry for tensor `a` is malformed: duplicate field `dtype`; write the file anew
            an unknown field is ignored:
                opens, 1 tensors
            a tensor twice:
                `x.safetensors` can't be loaded: its header has `a` twice; write the file anew with unique names
            metadata twice:
                `x.safetensors` can't be loaded: its header has `__metadata__` twice; write the file anew with unique names
            a key twice in the metadata:
                `x.safetensors` can't be loaded: its `__metadata__` is not an object of strings: it has `k` twice; write the file anew
            metadata that is no object:
                `x.safetensors` can't be loaded: its `__metadata__` is not an object of strings: invalid type: sequence, expected an object; write the file anew
            metadata that is no text:
                `x.safetensors` can't be loaded: its `__metadata__` is not an object of strings: `k`: invalid type: integer `1`, expected a string; write the file anew
            metadata that is null:
                opens, 0 tensors
        "#]],
    );
}

#[test]
fn dtypes_and_shapes() {
    let shape = |shape: &str| with_entry(&format!(r#"{{"dtype":"F32","shape":{shape},"data_offsets":[0,16]}}"#));
    let dtype = |dtype: &str| with_entry(&format!(r#"{{"dtype":{dtype},"shape":[4],"data_offsets":[0,16]}}"#));
    check(
        &[
            ("unknown dtype", dtype(r#""F31""#)),
            ("dtype in lower case", dtype(r#""f32""#)),
            ("dtype that is a number", dtype("32")),
            ("dtype that is null", dtype("null")),
            ("too small dtype", dtype(r#""F16""#)),
            ("too large dtype", dtype(r#""F64""#)),
            ("negative dimension", shape("[-4]")),
            ("fraction", shape("[4.5]")),
            ("whole number written as a float", shape("[4.0]")),
            ("exponent", shape("[4e0]")),
            ("huge exponent", shape("[1e999]")),
            ("dimension of u64::MAX", shape("[18446744073709551615]")),
            ("dimension above u64::MAX", shape("[18446744073709551616]")),
            ("dimension of a thousand digits", shape(&format!("[{}]", "9".repeat(1000)))),
            ("dimension that is text", shape(r#"["4"]"#)),
            ("shape that is a number", shape("4")),
            ("shape that is null", shape("null")),
            ("product overflows", shape("[4294967296,4294967296]")),
            ("product times the dtype's size overflows", shape("[4611686018427387904]")),
            ("product overflows beside a zero", shape("[0,4294967296,4294967296]")),
            ("65 dimensions", shape(&format!("[4{}]", ",1".repeat(64)))),
            ("64 dimensions are allowed", shape(&format!("[4{}]", ",1".repeat(63)))),
            ("another size", shape("[3]")),
            ("a zero that has bytes", shape("[4,0]")),
            ("a single number with bytes of four", shape("[]")),
            (
                "half a byte",
                CraftedFile::new().entry("a", r#"{"dtype":"F4","shape":[3],"data_offsets":[0,1]}"#).data(&[0]).bytes(),
            ),
            ("two to a byte", CraftedFile::new().tensor("a", "F4", &[4], &[0; 2]).bytes()),
            (
                "tensors of nothing",
                CraftedFile::new().tensor("a", "F32", &[0, 7], &[]).tensor("b", "I64", &[0], &[]).bytes(),
            ),
            ("a single number", CraftedFile::new().tensor("a", "I64", &[], &[0; 8]).bytes()),
        ],
        expect![[r#"
            unknown dtype:
                `x.safetensors` can't be loaded: tensor `a` has the unknown dtype `F31`; known are BOOL, F4, F6_E2M3, F6_E3M2, U8, I8, F8_E5M2, F8_E4M3, F8_E8M0, F8_E4M3FNUZ, F8_E5M2FNUZ, I16, U16, F16, BF16, I32, U32, F32, C64, F64, I64, U64
            dtype in lower case:
                `x.safetensors` can't be loaded: tensor `a` has the unknown dtype `f32`; known are BOOL, F4, F6_E2M3, F6_E3M2, U8, I8, F8_E5M2, F8_E4M3, F8_E8M0, F8_E4M3FNUZ, F8_E5M2FNUZ, I16, U16, F16, BF16, I32, U32, F32, C64, F64, I64, U64
            dtype that is a number:
                `x.safetensors` can't be loaded: its entry for tensor `a` is malformed: invalid type: integer `32`, expected a string; write the file anew
            dtype that is null:
                `x.safetensors` can't be loaded: its entry for tensor `a` is malformed: invalid type: null, expected a string; write the file anew
            too small dtype:
                `x.safetensors` can't be loaded: tensor `a` of F16 [4] needs 8 bytes, but its `data_offsets` span 16; write the file anew
            too large dtype:
                `x.safetensors` can't be loaded: tensor `a` of F64 [4] needs 32 bytes, but its `data_offsets` span 16; write the file anew
            negative dimension:
                `x.safetensors` can't be loaded: the shape of tensor `a` is not a list of whole numbers: invalid value: integer `-4`, expected u64; write the file anew
            fraction:
                `x.safetensors` can't be loaded: the shape of tensor `a` is not a list of whole numbers: invalid type: floating point `4.5`, expected u64; write the file anew
            whole number written as a float:
                `x.safetensors` can't be loaded: the shape of tensor `a` is not a list of whole numbers: invalid type: floating point `4.0`, expected u64; write the file anew
            exponent:
                `x.safetensors` can't be loaded: the shape of tensor `a` is not a list of whole numbers: invalid type: floating point `4.0`, expected u64; write the file anew
            huge exponent:
                `x.safetensors` can't be loaded: the shape of tensor `a` is not a list of whole numbers: number out of range; write the file anew
            dimension of u64::MAX:
                `x.safetensors` can't be loaded: the shape [18446744073709551615] of tensor `a` has more elements than can be counted; the file is damaged
            dimension above u64::MAX:
                `x.safetensors` can't be loaded: the shape of tensor `a` is not a list of whole numbers: invalid type: floating point `1.8446744073709552e+19`, expected u64; write the file anew
            dimension of a thousand digits:
                `x.safetensors` can't be loaded: the shape of tensor `a` is not a list of whole numbers: number out of range; write the file anew
            dimension that is text:
                `x.safetensors` can't be loaded: the shape of tensor `a` is not a list of whole numbers: invalid type: string "4", expected u64; write the file anew
            shape that is a number:
                `x.safetensors` can't be loaded: the shape of tensor `a` is not a list of whole numbers: invalid type: integer `4`, expected a list of whole numbers; write the file anew
            shape that is null:
                `x.safetensors` can't be loaded: the shape of tensor `a` is not a list of whole numbers: invalid type: null, expected a list of whole numbers; write the file anew
            product overflows:
                `x.safetensors` can't be loaded: the shape [4294967296, 4294967296] of tensor `a` has more elements than can be counted; the file is damaged
            product times the dtype's size overflows:
                `x.safetensors` can't be loaded: the shape [4611686018427387904] of tensor `a` has more elements than can be counted; the file is damaged
            product overflows beside a zero:
                `x.safetensors` can't be loaded: the shape [0, 4294967296, 4294967296] of tensor `a` has more elements than can be counted; the file is damaged
            65 dimensions:
                `x.safetensors` can't be loaded: tensor `a` has more than 64 dimensions, the most that are read; it is no weight
            64 dimensions are allowed:
                opens, 1 tensors
            another size:
                `x.safetensors` can't be loaded: tensor `a` of F32 [3] needs 12 bytes, but its `data_offsets` span 16; write the file anew
            a zero that has bytes:
                `x.safetensors` can't be loaded: tensor `a` of F32 [4, 0] needs 0 bytes, but its `data_offsets` span 16; write the file anew
            a single number with bytes of four:
                `x.safetensors` can't be loaded: tensor `a` of F32 [] needs 4 bytes, but its `data_offsets` span 16; write the file anew
            half a byte:
                `x.safetensors` can't be loaded: tensor `a` of F4 [3] does not fill whole bytes; write the file anew
            two to a byte:
                opens, 1 tensors
            tensors of nothing:
                opens, 2 tensors
            a single number:
                opens, 1 tensors
        "#]],
    );
}

#[test]
fn ranges() {
    let offsets = |offsets: &str| with_entry(&format!(r#"{{"dtype":"F32","shape":[4],"data_offsets":{offsets}}}"#));
    let two = |first: &str, second: &str| {
        CraftedFile::new()
            .entry("first", &format!(r#"{{"dtype":"U8","shape":[8],"data_offsets":{first}}}"#))
            .entry("second", &format!(r#"{{"dtype":"U8","shape":[8],"data_offsets":{second}}}"#))
            .data(&[0; 16])
            .bytes()
    };
    check(
        &[
            ("ends before it begins", offsets("[16,0]")),
            ("beyond the file", offsets("[16,32]")),
            ("far beyond the file", offsets("[18446744073709551599,18446744073709551615]")),
            ("longer than its shape", offsets("[0,17]")),
            ("negative", offsets("[-16,0]")),
            ("float", offsets("[0.0,16.0]")),
            ("above u64::MAX", offsets("[0,99999999999999999999]")),
            ("one offset", offsets("[0]")),
            ("three offsets", offsets("[0,16,16]")),
            ("no list", offsets(r#""0-16""#)),
            ("two in order", two("[0,8]", "[8,16]")),
            ("two in reverse order", two("[8,16]", "[0,8]")),
            ("two overlap by a byte", two("[0,8]", "[7,15]")),
            ("two share all", two("[0,8]", "[0,8]")),
            ("a hole at the start", CraftedFile::new().data(&[0; 3]).tensor("a", "U8", &[1], &[0]).bytes()),
            (
                "a hole in the middle",
                CraftedFile::new().tensor("a", "U8", &[2], &[0; 2]).data(&[0; 3]).tensor("b", "U8", &[1], &[0]).bytes(),
            ),
            ("a tensor of nothing in a hole", CraftedFile::new().data(&[0; 4]).tensor("a", "U8", &[0], &[]).bytes()),
            (
                "a tensor of nothing inside another",
                CraftedFile::new()
                    .tensor("a", "U8", &[2], &[0; 2])
                    .entry("b", r#"{"dtype":"U8","shape":[0],"data_offsets":[1,1]}"#)
                    .bytes(),
            ),
        ],
        expect![[r#"
            ends before it begins:
                `x.safetensors` can't be loaded: tensor `a` begins at byte 16 and ends before it, at 0; write the file anew
            beyond the file:
                `x.safetensors` can't be loaded: tensor `a` ends at byte 32 of the data, but the file has only 16 bytes of data; it is cut off, fetch it again
            far beyond the file:
                `x.safetensors` can't be loaded: tensor `a` ends at byte 18446744073709551615 of the data, but the file has only 16 bytes of data; it is cut off, fetch it again
            longer than its shape:
                `x.safetensors` can't be loaded: tensor `a` of F32 [4] needs 16 bytes, but its `data_offsets` span 17; write the file anew
            negative:
                `x.safetensors` can't be loaded: `data_offsets` of tensor `a` is not two whole numbers: invalid value: integer `-16`, expected u64; write the file anew
            float:
                `x.safetensors` can't be loaded: `data_offsets` of tensor `a` is not two whole numbers: invalid type: floating point `0.0`, expected u64; write the file anew
            above u64::MAX:
                `x.safetensors` can't be loaded: `data_offsets` of tensor `a` is not two whole numbers: invalid type: floating point `1e+20`, expected u64; write the file anew
            one offset:
                `x.safetensors` can't be loaded: `data_offsets` of tensor `a` is not two whole numbers: invalid length 1, expected a tuple of size 2; write the file anew
            three offsets:
                `x.safetensors` can't be loaded: `data_offsets` of tensor `a` is not two whole numbers: trailing characters; write the file anew
            no list:
                `x.safetensors` can't be loaded: `data_offsets` of tensor `a` is not two whole numbers: invalid type: string "0-16", expected a tuple of size 2; write the file anew
            two in order:
                opens, 2 tensors
            two in reverse order:
                opens, 2 tensors
            two overlap by a byte:
                `x.safetensors` can't be loaded: tensor `second` begins at byte 7 of the data, inside tensor `first`, which ends at 8; write the file anew
            two share all:
                `x.safetensors` can't be loaded: tensor `second` begins at byte 0 of the data, inside tensor `first`, which ends at 8; write the file anew
            a hole at the start:
                `x.safetensors` can't be loaded: tensor `a` begins at byte 3 of the data, but the tensors before it end at 0: a hole that safetensors forbids, write the file anew
            a hole in the middle:
                `x.safetensors` can't be loaded: tensor `b` begins at byte 5 of the data, but the tensors before it end at 2: a hole that safetensors forbids, write the file anew
            a tensor of nothing in a hole:
                `x.safetensors` can't be loaded: tensor `a` begins at byte 4 of the data, but the tensors before it end at 0: a hole that safetensors forbids, write the file anew
            a tensor of nothing inside another:
                `x.safetensors` can't be loaded: tensor `b` begins at byte 1 of the data, inside tensor `a`, which ends at 2; write the file anew
        "#]],
    );
}

#[test]
fn names_are_fit_to_print() {
    let entry = r#"{"dtype":"F31","shape":[4],"data_offsets":[0,16]}"#;
    let named = |name: &str| CraftedFile::new().entry(name, entry).data(&[0; 16]).bytes();
    check(
        &[
            ("control characters", named("a\n`x` is fine\u{1b}[2J\0\u{7f}")),
            ("right to left", named("\u{202e}thgiew")),
            ("very long", named(&"n".repeat(10_000))),
            ("empty", named("")),
            (
                "a long dtype with control characters",
                with_entry(&format!(r#"{{"dtype":"\u001b{}","shape":[],"data_offsets":[0,0]}}"#, "d".repeat(5000))),
            ),
            (
                "a shape that is a long text",
                with_entry(&format!(r#"{{"dtype":"F32","shape":"\n{}","data_offsets":[0,0]}}"#, "s".repeat(5000))),
            ),
        ],
        expect![[r#"
            control characters:
                `x.safetensors` can't be loaded: tensor `a\n`x` is fine\u{1b}[2J\0\u{7f}` has the unknown dtype `F31`; known are BOOL, F4, F6_E2M3, F6_E3M2, U8, I8, F8_E5M2, F8_E4M3, F8_E8M0, F8_E4M3FNUZ, F8_E5M2FNUZ, I16, U16, F16, BF16, I32, U32, F32, C64, F64, I64, U64
            right to left:
                `x.safetensors` can't be loaded: tensor `\u{202e}thgiew` has the unknown dtype `F31`; known are BOOL, F4, F6_E2M3, F6_E3M2, U8, I8, F8_E5M2, F8_E4M3, F8_E8M0, F8_E4M3FNUZ, F8_E5M2FNUZ, I16, U16, F16, BF16, I32, U32, F32, C64, F64, I64, U64
            very long:
                `x.safetensors` can't be loaded: tensor `nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn…` has the unknown dtype `F31`; known are BOOL, F4, F6_E2M3, F6_E3M2, U8, I8, F8_E5M2, F8_E4M3, F8_E8M0, F8_E4M3FNUZ, F8_E5M2FNUZ, I16, U16, F16, BF16, I32, U32, F32, C64, F64, I64, U64
            empty:
                `x.safetensors` can't be loaded: tensor `` has the unknown dtype `F31`; known are BOOL, F4, F6_E2M3, F6_E3M2, U8, I8, F8_E5M2, F8_E4M3, F8_E8M0, F8_E4M3FNUZ, F8_E5M2FNUZ, I16, U16, F16, BF16, I32, U32, F32, C64, F64, I64, U64
            a long dtype with control characters:
                `x.safetensors` can't be loaded: tensor `a` has the unknown dtype `\u{1b}ddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd…`; known are BOOL, F4, F6_E2M3, F6_E3M2, U8, I8, F8_E5M2, F8_E4M3, F8_E8M0, F8_E4M3FNUZ, F8_E5M2FNUZ, I16, U16, F16, BF16, I32, U32, F32, C64, F64, I64, U64
            a shape that is a long text:
                `x.safetensors` can't be loaded: the shape of tensor `a` is not a list of whole numbers: invalid type: string "\nssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssss…; write the file anew
        "#]],
    );
}

#[test]
fn deep_nesting_needs_no_stack() {
    let deep = "[".repeat(1_000_000);
    let closed = format!("{deep}{}", "]".repeat(1_000_000));
    let on_a_small_stack = std::thread::Builder::new().stack_size(128 << 10).spawn(move || {
        check(
            &[
                ("nested and cut off", with_header(&format!(r#"{{"a":{deep}"#))),
                ("nested as entry", with_entry(&closed)),
                ("nested as dtype", with_entry(&format!(r#"{{"dtype":{closed},"shape":[],"data_offsets":[0,0]}}"#))),
                ("nested as shape", with_entry(&format!(r#"{{"dtype":"U8","shape":{closed},"data_offsets":[0,0]}}"#))),
                ("nested as offsets", with_entry(&format!(r#"{{"dtype":"U8","shape":[],"data_offsets":{closed}}}"#))),
                ("nested in the metadata", with_header(&format!(r#"{{"__metadata__":{{"k":{closed}}}}}"#))),
                (
                    "nested behind too many dimensions",
                    with_entry(&format!(
                        r#"{{"dtype":"U8","shape":[{}{closed}],"data_offsets":[0,0]}}"#,
                        "1,".repeat(65)
                    )),
                ),
            ],
            expect![[r#"
                nested and cut off:
                    `x.safetensors` can't be loaded: its header is not JSON: EOF while parsing a list at line 1 column 1000005; it is damaged, fetch it again
                nested as entry:
                    `x.safetensors` can't be loaded: its entry for tensor `a` is malformed: invalid length 1, expected an object with `dtype`, `shape` and `data_offsets`; write the file anew
                nested as dtype:
                    `x.safetensors` can't be loaded: its entry for tensor `a` is malformed: invalid type: sequence, expected a string; write the file anew
                nested as shape:
                    `x.safetensors` can't be loaded: the shape of tensor `a` is not a list of whole numbers: invalid type: sequence, expected u64; write the file anew
                nested as offsets:
                    `x.safetensors` can't be loaded: `data_offsets` of tensor `a` is not two whole numbers: invalid type: sequence, expected u64; write the file anew
                nested in the metadata:
                    `x.safetensors` can't be loaded: its `__metadata__` is not an object of strings: `k`: invalid type: sequence, expected a string; write the file anew
                nested behind too many dimensions:
                    `x.safetensors` can't be loaded: tensor `a` has more than 64 dimensions, the most that are read; it is no weight
            "#]],
        );
    });
    on_a_small_stack.unwrap().join().unwrap();
}

#[test]
fn a_hundred_thousand_tensors_open_fast() {
    let mut file = CraftedFile::new();
    for idx in 0..100_000 {
        file = file.tensor(&format!("layers.{idx}.weight"), "F32", &[1], &[0; 4]);
    }
    let bytes = file.bytes();
    let start = Instant::now();
    let file = TensorFile::in_memory("many", bytes).unwrap();
    assert_eq!(file.header().tensors().len(), 100_000);
    assert_eq!(file.header().tensors()[99_999].name, "layers.99999.weight");
    // Generous: a shared machine in a debug build. Quadratic work would take minutes.
    assert!(start.elapsed() < Duration::from_secs(10), "took {:?}", start.elapsed());
}

#[test]
fn more_tensors_than_any_model_has_are_refused() {
    let entries = vec![r#""":0"#; TENSOR_COUNT_MAX + 1].join(",");
    check(
        &[
            ("too many entries", with_header(&format!("{{{entries}}}"))),
            ("too many entries of metadata", with_header(&format!(r#"{{"__metadata__":{{{entries}}}}}"#))),
        ],
        expect![[r#"
            too many entries:
                `x.safetensors` can't be loaded: its header has more than 1000000 entries, the most that are read; it is no model
            too many entries of metadata:
                `x.safetensors` can't be loaded: its `__metadata__` is not an object of strings: it has more than 1000000 entries; write the file anew
        "#]],
    );
}
