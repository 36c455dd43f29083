//! Files to tensors: safetensors headers, indexes over files and folders, range reads.
//!
//! What always holds:
//! - Opening reads headers only. The numbers of a tensor are read when somebody asks for them, by position, so many
//!   threads may read one file at once.
//! - What is in the system's page cache is read from there. The rest is read past it, so that one model's weights
//!   don't push out everything else, unless they are read again and again and fit there (see `extents`).
//! - A file is hostile until its header has been checked as a whole. What is wrong is one typed error that names the
//!   file, the tensor and the numbers; nothing is allocated because a number in a file says so, only for bytes that
//!   the file has.
//! - Names are iterated in their own order, never in a hash map's.
//!
//! Deliberately maps no file into memory: a mapped file that another process cuts off kills the program with a signal,
//! where a read returns an error. It knows no model: what the tensors mean is the business of the model that asks for
//! them by name.

#![forbid(unsafe_code)]

mod aligned_buffer;
mod buffer_pool;
mod cache_room;
mod component_folder;
mod disk_file;
mod disk_reads;
#[cfg(test)]
mod disk_tests;
mod extents;
mod file_bytes;
mod header;
mod header_fault;
mod json_object;
mod printable;
mod raw_file;
mod read_ahead;
mod renames;
mod sharded;
mod stored_dtype;
mod stored_tensor;
mod tensor_file;
mod tensor_index;
mod window;

pub use component_folder::FolderError;
pub use disk_reads::DiskReads;
pub use header::{HEADER_BYTES_MAX, Header, SHAPE_RANK_MAX, TENSOR_COUNT_MAX, TensorInfo};
pub use header_fault::HeaderFault;
pub use printable::{printable, printable_path};
pub use renames::vae_attention_name;
pub use sharded::ShardError;
pub use stored_dtype::StoredDType;
pub use stored_tensor::StoredTensor;
pub use tensor_file::{OpenError, TensorFile};
pub use tensor_index::{IndexError, RenameError, TensorIndex, Totals, WeightError};
