//! Made-up weights as a safetensors file: of no use but for measuring, and written without being held in memory.
//!
//! Matrices keep the spread of what they multiply (uniform, variance 1 over the depth), norms scale by 1 and biases are
//! small, so that a network of any depth gives finite numbers. All numbers come from one block that repeats; its length is
//! prime, so that no two rows of a matrix are the same.

use std::collections::BTreeMap;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::Context;
use fs_err::File;
use half::bf16;
use plimsoll_device::DType;
use serde_json::json;

/// Numbers of the block: a prime.
const BLOCK_LEN: usize = 65_521;

/// Writes tensors of those names and shapes to a new file, through to the disk: what the system still had to write would
/// disturb a measurement.
pub(super) fn write(path: &Path, tensors: &BTreeMap<String, Vec<usize>>, dtype: DType) -> anyhow::Result<()> {
    const CONTEXT: &str = "the made-up weights can't be written; free some disk space, or set TMPDIR to another disk";
    let file = File::create_new(path).context(CONTEXT)?;
    let mut writer = BufWriter::new(file);
    writer.write_all(&header(tensors, dtype)).context(CONTEXT)?;
    let noise = noise();
    let mut start = 0;
    for (name, shape) in tensors {
        let len: usize = shape.iter().product();
        let block = stored_block(&noise, name, shape, dtype);
        let mut left = len;
        while left > 0 {
            let end = BLOCK_LEN.min(start + left);
            writer.write_all(&block[start * dtype.size()..end * dtype.size()]).context(CONTEXT)?;
            left -= end - start;
            start = end % BLOCK_LEN;
        }
    }
    writer.into_inner().map_err(|error| error.into_error()).and_then(|file| file.sync_all()).context(CONTEXT)
}

/// The length, the JSON, and spaces up to a multiple of 8.
fn header(tensors: &BTreeMap<String, Vec<usize>>, dtype: DType) -> Vec<u8> {
    let mut entries = serde_json::Map::new();
    let mut end = 0;
    for (name, shape) in tensors {
        let start = end;
        end += shape.iter().product::<usize>() * dtype.size();
        let entry = json!({ "dtype": dtype.to_string().to_uppercase(), "shape": shape, "data_offsets": [start, end] });
        entries.insert(name.clone(), entry);
    }
    let mut text = serde_json::Value::Object(entries).to_string();
    text.extend(std::iter::repeat_n(' ', text.len().next_multiple_of(8) - text.len()));
    let mut bytes = (text.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(text.as_bytes());
    bytes
}

/// Numbers from -1 to 1.
fn noise() -> Vec<f32> {
    let mut state = 0x9e37_79b9_u32;
    let next = |_| {
        // Marsaglia 2003, "Xorshift RNGs", the triple (13, 17, 5).
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        f64::from(state) / f64::from(u32::MAX) * 2.0 - 1.0
    };
    (0..BLOCK_LEN).map(next).map(|number| number as f32).collect()
}

/// The block as it is stored for a tensor.
fn stored_block(noise: &[f32], name: &str, shape: &[usize], dtype: DType) -> Vec<u8> {
    let depth: usize = shape[1..].iter().product();
    let (offset, scale) = match shape.len() {
        1 if name.ends_with(".weight") => (1.0, 0.01),
        1 => (0.0, 0.01),
        _ => (0.0, (3.0 / depth as f32).sqrt()),
    };
    let numbers = noise.iter().map(|number| offset + scale * number);
    match dtype {
        DType::F32 => numbers.flat_map(f32::to_le_bytes).collect(),
        DType::BF16 => numbers.flat_map(|number| bf16::from_f32(number).to_le_bytes()).collect(),
        DType::F16 => numbers.flat_map(|number| half::f16::from_f32(number).to_le_bytes()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_weights::TensorIndex;

    use super::*;

    #[test]
    fn the_file_holds_what_was_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.safetensors");
        let shapes = [("conv.weight", vec![300, 300, 3, 3]), ("norm.bias", vec![5]), ("norm.weight", vec![5])];
        let tensors = shapes.into_iter().map(|(name, shape)| (name.to_owned(), shape)).collect();
        for dtype in [DType::BF16, DType::F32, DType::F16] {
            write(&path, &tensors, dtype).unwrap();
            let index = TensorIndex::open(&path).unwrap();
            let numbers = |name: &str, shape: &[usize]| -> Vec<f32> {
                let (stored, stored_dtype) = index.weight(name, shape).unwrap();
                assert_eq!(stored_dtype, dtype);
                let bytes = stored.read_all().unwrap();
                let number = |bytes: &[u8]| match dtype {
                    DType::F32 => f32::from_le_bytes(bytes.try_into().unwrap()),
                    DType::BF16 => bf16::from_le_bytes(bytes.try_into().unwrap()).to_f32(),
                    DType::F16 => half::f16::from_le_bytes(bytes.try_into().unwrap()).to_f32(),
                };
                bytes.chunks(dtype.size()).map(number).collect()
            };
            let weights = numbers("conv.weight", &[300, 300, 3, 3]);
            let variance = weights.iter().map(|number| number * number).sum::<f32>() / weights.len() as f32;
            assert!((variance * 2700.0 - 1.0).abs() < 0.02, "{variance}");
            assert!(weights.chunks(2700).collect::<Vec<_>>().windows(2).all(|rows| rows[0] != rows[1]));
            assert!(numbers("norm.weight", &[5]).iter().all(|number| (0.98..1.02).contains(number)));
            assert!(numbers("norm.bias", &[5]).iter().all(|number| number.abs() <= 0.0101));
            std::fs::remove_file(&path).unwrap();
        }
    }
}
