//! The header of a safetensors file: 8 bytes of length, then a JSON object that says what lies where.
//!
//! It is checked as a whole before anything is believed, by the format's rules: unique names, known number formats,
//! and data that the tensors cover without overlap, hole or rest. The `safetensors` crate checks most of that too, but
//! its errors name neither file nor numbers, duplicate names overwrite each other in its hash map, and it wants all
//! bytes of the file. So the header is parsed here, and the crate serves as the oracle in tests.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use plimsoll_device::ByteCount;
use serde::de::{Deserialize, Deserializer, IgnoredAny, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::file_bytes::FileBytes;
use crate::json_object::{ObjectFault, object_entries, value_reason, without_position};
use crate::printable::printable;
use crate::tensor_file::OpenError;
use crate::{HeaderFault, StoredDType};

/// The longest header that the format allows.
// Reference: safetensors 0.8, src/tensor.rs, `MAX_HEADER_SIZE`
pub const HEADER_BYTES_MAX: u64 = 100_000_000;

/// The most entries that are read from a header. Bounds what a header of many tiny entries can make us allocate.
pub const TENSOR_COUNT_MAX: usize = 1_000_000;

/// The most dimensions that are read from a shape; torch makes no more.
pub const SHAPE_RANK_MAX: usize = 64;

/// The bytes of the header's length.
const LENGTH_BYTES: u64 = 8;

/// What lies where in one safetensors file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    tensors: Vec<TensorInfo>,
    metadata: BTreeMap<String, String>,
}

/// One tensor of a file, without its numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// Its name, as stored: it may hold any character.
    pub name: String,
    /// The number format.
    pub dtype: StoredDType,
    /// Row-major. Empty for a single number. The product of the dimensions that are not zero is countable.
    pub shape: Vec<usize>,
    /// Where its bytes are, from the start of the file. Their number fits the address space.
    pub file_range: Range<u64>,
}

impl Header {
    /// Reads and checks the header, and nothing behind it.
    pub(crate) fn parse(file: &FileBytes) -> Result<Self, OpenError> {
        let fault = |fault| OpenError::Header { file: file.origin().to_owned(), fault };
        let header_size = read_length(file)?;
        let len = usize::try_from(header_size).expect("a header's length is bounded");
        let bytes = match file.as_slice(LENGTH_BYTES, len) {
            Some(in_memory) => Cow::Borrowed(in_memory),
            None => {
                let mut bytes = vec![0; len];
                file.read_at(LENGTH_BYTES, &mut bytes)?;
                Cow::Owned(bytes)
            }
        };
        let text = std::str::from_utf8(&bytes)
            .map_err(|error| fault(HeaderFault::NotUtf8 { position: error.valid_up_to() }))?;
        let data_start = LENGTH_BYTES + header_size;
        Self::from_text(text, data_start, file.len() - data_start).map_err(fault)
    }

    /// All tensors, in the order of their bytes.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// The file's `__metadata__`.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    fn from_text(text: &str, data_start: u64, data_size: u64) -> Result<Self, HeaderFault> {
        if !text.starts_with('{') {
            return Err(HeaderFault::NotAnObject);
        }
        let entries = object_entries(text, TENSOR_COUNT_MAX).map_err(|fault| match fault {
            ObjectFault::Malformed(reason) => HeaderFault::NotJson { reason },
            ObjectFault::TooManyEntries => HeaderFault::TooManyTensors { count_max: TENSOR_COUNT_MAX },
            ObjectFault::DuplicateKey(name) => HeaderFault::DuplicateName { name: printable(&name) },
        })?;
        let mut header = Self { tensors: Vec::with_capacity(entries.len()), metadata: BTreeMap::new() };
        for (name, value) in entries {
            if name == "__metadata__" {
                header.metadata = parse_metadata(value)?;
            } else {
                header.tensors.push(parse_entry(name, value, data_start, data_size)?);
            }
        }
        header.tensors.sort_by(|a, b| {
            let key = |tensor: &TensorInfo| (tensor.file_range.start, tensor.file_range.end);
            key(a).cmp(&key(b)).then_with(|| a.name.cmp(&b.name))
        });
        check_coverage(&header.tensors, data_start, data_size)?;
        Ok(header)
    }
}

/// The header's length, at most what the file has and the format allows.
fn read_length(file: &FileBytes) -> Result<u64, OpenError> {
    let fault = |fault| OpenError::Header { file: file.origin().to_owned(), fault };
    let Some(available) = file.len().checked_sub(LENGTH_BYTES) else {
        return Err(fault(HeaderFault::FileTooShort { file_size: ByteCount(file.len()) }));
    };
    let mut length = [0; LENGTH_BYTES as usize];
    file.read_at(0, &mut length)?;
    let header_size = u64::from_le_bytes(length);
    if header_size > HEADER_BYTES_MAX {
        let (header_size, size_max) = (ByteCount(header_size), ByteCount(HEADER_BYTES_MAX));
        return Err(fault(HeaderFault::HeaderTooLong { header_size, size_max }));
    }
    if header_size > available {
        let (header_size, available) = (ByteCount(header_size), ByteCount(available));
        return Err(fault(HeaderFault::HeaderBeyondFile { header_size, available }));
    }
    Ok(header_size)
}

fn parse_metadata(value: &RawValue) -> Result<BTreeMap<String, String>, HeaderFault> {
    let bad = |reason| HeaderFault::BadMetadata { reason };
    if value.get() == "null" {
        return Ok(BTreeMap::new());
    }
    let entries = object_entries(value.get(), TENSOR_COUNT_MAX).map_err(|fault| match fault {
        ObjectFault::Malformed(reason) => bad(without_position(&reason).to_owned()),
        ObjectFault::TooManyEntries => bad(format!("it has more than {TENSOR_COUNT_MAX} entries")),
        ObjectFault::DuplicateKey(key) => bad(format!("it has `{}` twice", printable(&key))),
    })?;
    entries
        .into_iter()
        .map(|(key, value)| match serde_json::from_str(value.get()) {
            Ok(text) => Ok((key, text)),
            Err(error) => Err(bad(format!("`{}`: {}", printable(&key), value_reason(&error)))),
        })
        .collect()
}

/// The fields of a tensor's entry; others are ignored, as the format's own reader does.
#[derive(serde::Deserialize)]
#[serde(expecting = "an object with `dtype`, `shape` and `data_offsets`")]
struct RawEntry<'a> {
    #[serde(borrow)]
    dtype: &'a RawValue,
    #[serde(borrow)]
    shape: &'a RawValue,
    #[serde(borrow)]
    data_offsets: &'a RawValue,
}

/// Checks all that can be said about one tensor alone.
fn parse_entry(name: String, value: &RawValue, data_start: u64, data_size: u64) -> Result<TensorInfo, HeaderFault> {
    let tensor = || printable(&name);
    let bad_entry = |error: serde_json::Error| HeaderFault::BadEntry { tensor: tensor(), reason: value_reason(&error) };
    let entry: RawEntry<'_> = serde_json::from_str(value.get()).map_err(bad_entry)?;

    let dtype_name: String = serde_json::from_str(entry.dtype.get()).map_err(bad_entry)?;
    let dtype = StoredDType::from_name(&dtype_name).ok_or_else(|| HeaderFault::UnknownDType {
        tensor: tensor(),
        dtype: printable(&dtype_name),
        known: StoredDType::names(),
    })?;

    let shape: Vec<u64> = match serde_json::from_str(entry.shape.get()) {
        Ok(RawShape::Dimensions(shape)) => shape,
        Ok(RawShape::TooMany) => {
            return Err(HeaderFault::RankTooHigh { tensor: tensor(), rank_max: SHAPE_RANK_MAX });
        }
        Err(error) => return Err(HeaderFault::BadShape { tensor: tensor(), reason: value_reason(&error) }),
    };

    let (begin, end): (u64, u64) = serde_json::from_str(entry.data_offsets.get())
        .map_err(|error| HeaderFault::BadOffsets { tensor: tensor(), reason: value_reason(&error) })?;
    let Some(stored) = end.checked_sub(begin) else {
        return Err(HeaderFault::RangeReversed { tensor: tensor(), begin, end });
    };

    let Some((shape_usize, bit_count)) = bits_of(&shape, dtype) else {
        return Err(HeaderFault::ShapeTooLarge { tensor: tensor(), shape });
    };
    if bit_count % 8 != 0 {
        return Err(HeaderFault::PartialByte { tensor: tensor(), dtype, shape });
    }
    let needed = bit_count / 8;
    if needed != stored {
        let (needed, stored) = (ByteCount(needed), ByteCount(stored));
        return Err(HeaderFault::SizeMismatch { tensor: tensor(), dtype, shape, needed, stored });
    }
    if end > data_size {
        return Err(HeaderFault::RangeBeyondFile { tensor: tensor(), end, data_size: ByteCount(data_size) });
    }
    Ok(TensorInfo { name, dtype, shape: shape_usize, file_range: data_start + begin..data_start + end })
}

/// The shape in the machine's words and the bits that it needs; `None` if something can't be counted.
///
/// The product of the dimensions that are not zero must be countable too, so that no order of multiplying a shape
/// with a zero in it overflows later.
fn bits_of(shape: &[u64], dtype: StoredDType) -> Option<(Vec<usize>, u64)> {
    let bits_without_zeros =
        shape.iter().filter(|&&dim| dim != 0).try_fold(dtype.bit_count(), |bits, &dim| bits.checked_mul(dim))?;
    usize::try_from(bits_without_zeros / 8).ok()?;
    let shape_usize = shape.iter().map(|&dim| usize::try_from(dim).ok()).collect::<Option<Vec<_>>>()?;
    let bit_count = if shape.contains(&0) { 0 } else { bits_without_zeros };
    Some((shape_usize, bit_count))
}

/// Checks that the tensors, in the order of their bytes, cover the data without overlap, hole or rest.
fn check_coverage(tensors: &[TensorInfo], data_start: u64, data_size: u64) -> Result<(), HeaderFault> {
    let mut covered_end = data_start;
    let mut earlier = "";
    for tensor in tensors {
        let start = tensor.file_range.start;
        let (begin, earlier_end) = (start - data_start, covered_end - data_start);
        if start < covered_end {
            let (tensor, earlier) = (printable(&tensor.name), printable(earlier));
            return Err(HeaderFault::Overlap { tensor, begin, earlier, earlier_end });
        }
        if start > covered_end {
            return Err(HeaderFault::Hole { tensor: printable(&tensor.name), begin, earlier_end });
        }
        covered_end = tensor.file_range.end;
        earlier = &tensor.name;
    }
    match data_size - (covered_end - data_start) {
        0 => Ok(()),
        excess => Err(HeaderFault::TrailingBytes { excess: ByteCount(excess) }),
    }
}

/// A shape that stops growing where no shape goes.
enum RawShape {
    Dimensions(Vec<u64>),
    TooMany,
}

impl<'de> Deserialize<'de> for RawShape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(ShapeVisitor)
    }
}

struct ShapeVisitor;

impl<'de> Visitor<'de> for ShapeVisitor {
    type Value = RawShape;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of whole numbers")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<RawShape, A::Error> {
        let mut shape = Vec::new();
        while let Some(dim) = seq.next_element::<u64>()? {
            if shape.len() == SHAPE_RANK_MAX {
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                return Ok(RawShape::TooMany);
            }
            shape.push(dim);
        }
        Ok(RawShape::Dimensions(shape))
    }
}
