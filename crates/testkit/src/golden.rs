//! What a reference implementation computed, stored by a script of `tools/reference`.

use plimsoll_weights::{StoredDType, StoredTensor, TensorFile, TensorIndex};

use crate::{fixture, nchw_to_nhwc};

/// The tensors of one file of `fixtures/goldens`. They are in torch's layout: images are
/// `[batch, channels, height, width]`; see [`nchw_to_nhwc`](crate::nchw_to_nhwc).
pub struct Golden {
    name: String,
    file: TensorFile,
    tensors: TensorIndex,
}

/// One tensor, read.
#[derive(Clone, Debug, PartialEq)]
pub struct GoldenTensor<T> {
    /// Row-major; empty for a single number.
    pub shape: Vec<usize>,
    /// As many as the shape says.
    pub values: Vec<T>,
}

impl<T> GoldenTensor<T> {
    /// The shape, if it has `RANK` dimensions.
    ///
    /// # Panics
    /// If it has another number of dimensions.
    #[track_caller]
    pub fn dims<const RANK: usize>(&self) -> [usize; RANK] {
        match self.shape.as_slice().try_into() {
            Ok(dims) => dims,
            Err(_) => panic!("the golden has the shape {:?}, not {RANK} dimensions", self.shape),
        }
    }
}

impl<T: Copy> GoldenTensor<T> {
    /// In the device's layout: an image (four dimensions) as `[batch, height, width, channels]`, others as they are.
    #[must_use]
    pub fn channels_last(self) -> Self {
        match *self.shape.as_slice() {
            [batch, channels, height, width] => Self {
                values: nchw_to_nhwc(&self.values, [batch, channels, height, width]),
                shape: vec![batch, height, width, channels],
            },
            _ => self,
        }
    }
}

impl Golden {
    /// Opens `fixtures/goldens/NAME.safetensors`.
    ///
    /// # Panics
    /// If it isn't there or can't be read.
    #[track_caller]
    pub fn load(name: &str) -> Self {
        let path = fixture(&format!("goldens/{name}.safetensors"));
        let file = TensorFile::open(path).unwrap_or_else(|error| panic!("golden `{name}`: {error}"));
        let tensors = TensorIndex::from_file(&file);
        Self { name: name.to_owned(), file, tensors }
    }

    /// All tensors' names, in their order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.iter().map(|tensor| tensor.name.as_str())
    }

    /// All tensors, for building a model whose weights are in the golden itself.
    pub fn index(&self) -> &TensorIndex {
        &self.tensors
    }

    /// Whether it has a tensor of that name.
    pub fn has(&self, name: &str) -> bool {
        self.tensors.get(name).is_some()
    }

    /// A tensor of floats.
    ///
    /// # Panics
    /// If it isn't there or holds no floats.
    #[track_caller]
    pub fn f32(&self, name: &str) -> GoldenTensor<f32> {
        let tensor = self.tensor(name);
        GoldenTensor { shape: tensor.shape.clone(), values: read_f32(tensor) }
    }

    /// A tensor of integers, such as token ids.
    ///
    /// # Panics
    /// If it isn't there or isn't stored as 32-bit integers.
    #[track_caller]
    pub fn i32(&self, name: &str) -> GoldenTensor<i32> {
        let tensor = self.tensor(name);
        GoldenTensor { shape: tensor.shape.clone(), values: read_i32(tensor) }
    }

    /// A text that the script left beside the tensors.
    ///
    /// # Panics
    /// If there is none of that name.
    #[track_caller]
    pub fn metadata(&self, key: &str) -> &str {
        match self.file.header().metadata().get(key) {
            Some(text) => text,
            None => panic!("golden `{}` has no metadata `{key}`", self.name),
        }
    }

    #[track_caller]
    fn tensor(&self, name: &str) -> &StoredTensor {
        match self.tensors.get(name) {
            Some(tensor) => tensor,
            None => panic!(
                "golden `{}` has no tensor `{name}`; it has {}",
                self.name,
                self.names().collect::<Vec<_>>().join(", ")
            ),
        }
    }
}

/// A JSON file of `fixtures/goldens`, by its name without the ending.
///
/// # Panics
/// If it isn't there or isn't JSON.
#[track_caller]
pub fn golden_json(name: &str) -> serde_json::Value {
    let path = fixture(&format!("goldens/{name}.json"));
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("golden `{name}`: {error}"));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("golden `{name}`: {error}"))
}

/// The numbers of a tensor of floats, widened to f32 exactly.
///
/// # Panics
/// If it isn't stored as F32, F16 or BF16, or can't be read.
#[track_caller]
pub fn read_f32(tensor: &StoredTensor) -> Vec<f32> {
    let bytes = read(tensor);
    match tensor.dtype {
        StoredDType::F32 => chunks(&bytes).map(f32::from_le_bytes).collect(),
        StoredDType::F16 => chunks(&bytes).map(|bytes| half::f16::from_le_bytes(bytes).to_f32()).collect(),
        StoredDType::BF16 => chunks(&bytes).map(|bytes| half::bf16::from_le_bytes(bytes).to_f32()).collect(),
        dtype => panic!("`{}` holds {dtype}, not floats", tensor.name),
    }
}

/// The numbers of a tensor of 32-bit integers.
///
/// # Panics
/// If it isn't stored as I32, or can't be read.
#[track_caller]
pub fn read_i32(tensor: &StoredTensor) -> Vec<i32> {
    assert_eq!(tensor.dtype, StoredDType::I32, "`{}` holds no 32-bit integers", tensor.name);
    chunks(&read(tensor)).map(i32::from_le_bytes).collect()
}

#[track_caller]
fn read(tensor: &StoredTensor) -> Vec<u8> {
    tensor.read_all().unwrap_or_else(|error| panic!("`{}`: {error}", tensor.name))
}

fn chunks<const SIZE: usize>(bytes: &[u8]) -> impl Iterator<Item = [u8; SIZE]> {
    bytes.as_chunks().0.iter().copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CraftedFile;

    fn tensor(dtype: &str, bytes: &[u8]) -> StoredTensor {
        let count = bytes.len() / if dtype.ends_with("32") { 4 } else { 2 };
        let file = CraftedFile::new().tensor("x", dtype, &[count], bytes).bytes();
        TensorFile::in_memory("crafted", file).unwrap().tensors().next().unwrap()
    }

    #[test]
    fn widens_every_float_format() {
        assert_eq!(read_f32(&tensor("F32", &1.5f32.to_le_bytes())), [1.5]);
        // IEEE half: sign 1, exponent 15 + 1, mantissa 0.5; bfloat16: the upper half of f32's 0x3fc00000.
        assert_eq!(read_f32(&tensor("F16", &[0x00, 0xc2, 0x00, 0x3c])), [-3.0, 1.0]);
        assert_eq!(read_f32(&tensor("BF16", &[0xc0, 0x3f])), [1.5]);
        assert_eq!(read_i32(&tensor("I32", &[0xff, 0xff, 0xff, 0xff, 7, 0, 0, 0])), [-1, 7]);
    }

    #[test]
    #[should_panic(expected = "`x` holds I32, not floats")]
    fn integers_are_no_floats() {
        read_f32(&tensor("I32", &[0; 4]));
    }

    #[test]
    fn reads_a_golden_of_the_repository() {
        let golden = Golden::load("sd15");
        let ids = golden.i32("text_encoder.input_ids");
        assert_eq!(ids.dims::<2>()[1], 77);
        assert_eq!(ids.values.len(), ids.shape.iter().product::<usize>());
        let sample = golden.f32("unet.sample");
        assert_eq!(sample.values.len(), sample.dims::<4>().iter().product::<usize>());
        assert!(sample.values.iter().all(|value| value.is_finite()));
        assert_eq!(golden.metadata("model"), "sd15");
    }

    #[test]
    fn an_image_goes_to_channels_last_and_nothing_else_does() {
        let values: Vec<u8> = (0..12).collect();
        let image = GoldenTensor { shape: vec![1, 2, 3, 2], values: values.clone() }.channels_last();
        assert_eq!(image.shape, [1, 3, 2, 2]);
        assert_eq!(image.values, [0, 6, 1, 7, 2, 8, 3, 9, 4, 10, 5, 11]);
        let tokens = GoldenTensor { shape: vec![2, 3, 2], values };
        assert_eq!(tokens.clone().channels_last(), tokens);
    }
}
