//! What can be wrong with a safetensors header.

use plimsoll_device::ByteCount;

use crate::StoredDType;

/// What is wrong with a file's header. It will never load as it is; the text says what to do about it. Names from the
/// file are escaped and cut to a printable length.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderFault {
    /// The file has no room for the header's length: it is empty, or something else. Fetch it again.
    #[error("it has {} bytes, and a safetensors file has at least 10; fetch it again", .file_size.0)]
    FileTooShort {
        /// The whole file.
        file_size: ByteCount,
    },
    /// The header's length exceeds what the format allows: not a safetensors file at all. Check the file's type.
    #[error(
        "its first 8 bytes claim a header of {} bytes, more than the {} that safetensors allows; it is no safetensors file",
        .header_size.0, .size_max.0
    )]
    HeaderTooLong {
        /// As the file claims.
        header_size: ByteCount,
        /// As the format allows.
        size_max: ByteCount,
    },
    /// The header is longer than the file: cut off, or not a safetensors file. Fetch it again.
    #[error(
        "its first 8 bytes claim a header of {} bytes, but only {} follow; it is cut off or no safetensors file, \
         fetch it again",
        .header_size.0, .available.0
    )]
    HeaderBeyondFile {
        /// As the file claims.
        header_size: ByteCount,
        /// What follows the first 8 bytes.
        available: ByteCount,
    },
    /// The header is no text. Fetch the file again.
    #[error("its header is not UTF-8 at byte {position}; it is damaged or no safetensors file, fetch it again")]
    NotUtf8 {
        /// From the start of the header.
        position: usize,
    },
    /// The header doesn't begin as the format demands. Check the file's type.
    #[error("its header does not begin with `{{`; it is damaged or no safetensors file, fetch it again")]
    NotAnObject,
    /// The header is no JSON. Fetch the file again.
    #[error("its header is not JSON: {reason}; it is damaged, fetch it again")]
    NotJson {
        /// The parser's words, with the position in the header.
        reason: String,
    },
    /// A name occurs twice, and which one is meant can't be known. Write the file anew.
    #[error("its header has `{name}` twice; write the file anew with unique names")]
    DuplicateName {
        /// A tensor's name or `__metadata__`.
        name: String,
    },
    /// No model has that many tensors.
    #[error("its header has more than {count_max} entries, the most that are read; it is no model")]
    TooManyTensors {
        /// The most that are read.
        count_max: usize,
    },
    /// `__metadata__` is no map from strings to strings. Write the file anew.
    #[error("its `__metadata__` is not an object of strings: {reason}; write the file anew")]
    BadMetadata {
        /// What it is instead.
        reason: String,
    },
    /// An entry lacks a field, has one twice, or is no object. Write the file anew.
    #[error("its entry for tensor `{tensor}` is malformed: {reason}; write the file anew")]
    BadEntry {
        /// Whose entry.
        tensor: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The number format is unknown, so nobody can tell how long the tensor is. Convert the file.
    #[error("tensor `{tensor}` has the unknown dtype `{dtype}`; known are {known}")]
    UnknownDType {
        /// Whose.
        tensor: String,
        /// As the file names it.
        dtype: String,
        /// All names.
        known: String,
    },
    /// The shape is no list of whole numbers. Write the file anew.
    #[error("the shape of tensor `{tensor}` is not a list of whole numbers: {reason}; write the file anew")]
    BadShape {
        /// Whose.
        tensor: String,
        /// What it is instead.
        reason: String,
    },
    /// The tensor has more dimensions than any library makes.
    #[error("tensor `{tensor}` has more than {rank_max} dimensions, the most that are read; it is no weight")]
    RankTooHigh {
        /// Whose.
        tensor: String,
        /// The most that are read.
        rank_max: usize,
    },
    /// The shape's product can't be counted.
    #[error("the shape {shape:?} of tensor `{tensor}` has more elements than can be counted; the file is damaged")]
    ShapeTooLarge {
        /// Whose.
        tensor: String,
        /// As the file gives it.
        shape: Vec<u64>,
    },
    /// Numbers smaller than a byte don't fill whole bytes. Write the file anew with padding.
    #[error("tensor `{tensor}` of {dtype} {shape:?} does not fill whole bytes; write the file anew")]
    PartialByte {
        /// Whose.
        tensor: String,
        /// A format of less than a byte.
        dtype: StoredDType,
        /// As the file gives it.
        shape: Vec<u64>,
    },
    /// The data offsets are no pair of whole numbers. Write the file anew.
    #[error("`data_offsets` of tensor `{tensor}` is not two whole numbers: {reason}; write the file anew")]
    BadOffsets {
        /// Whose.
        tensor: String,
        /// What it is instead.
        reason: String,
    },
    /// The tensor ends before it begins.
    #[error("tensor `{tensor}` begins at byte {begin} and ends before it, at {end}; write the file anew")]
    RangeReversed {
        /// Whose.
        tensor: String,
        /// In bytes from the start of the data.
        begin: u64,
        /// In bytes from the start of the data.
        end: u64,
    },
    /// Shape and dtype need another number of bytes than the tensor has.
    #[error(
        "tensor `{tensor}` of {dtype} {shape:?} needs {} bytes, but its `data_offsets` span {}; write the file anew",
        .needed.0, .stored.0
    )]
    SizeMismatch {
        /// Whose.
        tensor: String,
        /// As the file gives it.
        dtype: StoredDType,
        /// As the file gives it.
        shape: Vec<u64>,
        /// By shape and dtype.
        needed: ByteCount,
        /// By the data offsets.
        stored: ByteCount,
    },
    /// The tensor lies (partly) behind the end of the file, which was cut off. Fetch it again.
    #[error(
        "tensor `{tensor}` ends at byte {end} of the data, but the file has only {} bytes of data; it is cut off, \
         fetch it again",
        .data_size.0
    )]
    RangeBeyondFile {
        /// Whose.
        tensor: String,
        /// In bytes from the start of the data.
        end: u64,
        /// All that follows the header.
        data_size: ByteCount,
    },
    /// Two tensors share bytes, which the format forbids. Write the file anew.
    #[error(
        "tensor `{tensor}` begins at byte {begin} of the data, inside tensor `{earlier}`, which ends at {earlier_end}; \
         write the file anew"
    )]
    Overlap {
        /// The later one.
        tensor: String,
        /// In bytes from the start of the data.
        begin: u64,
        /// The one that begins before it.
        earlier: String,
        /// In bytes from the start of the data.
        earlier_end: u64,
    },
    /// Bytes before a tensor belong to none, which the format forbids. Write the file anew.
    #[error(
        "tensor `{tensor}` begins at byte {begin} of the data, but the tensors before it end at {earlier_end}: \
         a hole that safetensors forbids, write the file anew"
    )]
    Hole {
        /// The one behind the hole.
        tensor: String,
        /// In bytes from the start of the data.
        begin: u64,
        /// In bytes from the start of the data.
        earlier_end: u64,
    },
    /// Bytes at the end belong to no tensor, which the format forbids. Write the file anew.
    #[error("{} bytes follow the last tensor, which safetensors forbids; write the file anew", .excess.0)]
    TrailingBytes {
        /// How many.
        excess: ByteCount,
    },
}
