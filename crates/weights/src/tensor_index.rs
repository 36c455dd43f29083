//! All tensors of a model component, by name.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use plimsoll_device::{ByteCount, DType};

use crate::component_folder::find_weights;
use crate::file_bytes::FileBytes;
use crate::printable::{printable, printable_path};
use crate::sharded::{Fault, Shards, open_shards};
use crate::{DiskReads, FolderError, OpenError, ShardError, StoredDType, StoredTensor, TensorFile};

/// All tensors of a model component, by name, from one file or several. Holds headers, no numbers.
#[derive(Clone, Debug)]
pub struct TensorIndex {
    origin: String,
    tensors: BTreeMap<String, StoredTensor>,
    files: Vec<Arc<FileBytes>>,
}

/// A component's weights can't be opened.
#[derive(Clone, Debug, thiserror::Error)]
pub enum IndexError {
    /// A file can't be opened, or its header is wrong.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The folder has no weights that can be used.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The shards don't fit together.
    #[error(transparent)]
    Shard(#[from] ShardError),
}

/// A tensor isn't what the model needs. The weights and the configuration are of different models: fetch both again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WeightError {
    /// There is no such tensor.
    #[error("`{origin}` has no tensor `{tensor}`; its weights do not belong to its configuration")]
    Missing {
        /// The file or folder.
        origin: String,
        /// The name that was asked for.
        tensor: String,
    },
    /// The tensor has another shape.
    #[error(
        "tensor `{tensor}` of `{file}` has the shape {stored:?}, but the model needs {expected:?}; its weights do not \
         belong to its configuration"
    )]
    WrongShape {
        /// The file.
        file: String,
        /// The name that was asked for.
        tensor: String,
        /// In the file.
        stored: Vec<usize>,
        /// By the configuration.
        expected: Vec<usize>,
    },
    /// The number format is known, but weights can't be uploaded from it. Convert the file.
    #[error(
        "tensor `{tensor}` of `{file}` is stored as {dtype}, and weights must be F32, F16 or BF16; convert the file"
    )]
    UnsupportedDType {
        /// The file.
        file: String,
        /// The name that was asked for.
        tensor: String,
        /// In the file.
        dtype: StoredDType,
    },
}

/// Two tensors would get one name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{origin}` has both `{first}` and `{second}`, which are two names of one tensor; write the file anew with one"
)]
pub struct RenameError {
    /// The file or folder.
    pub origin: String,
    /// A name in the file.
    pub first: String,
    /// Another name in the file.
    pub second: String,
}

/// How much there is in an index.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Totals {
    /// Tensors of any format.
    pub tensor_count: usize,
    /// Numbers in tensors of floats; integers (position ids) and flags are no parameters.
    pub parameter_count: u64,
    /// Bytes in files, by number format; these sum to all the data there is.
    pub bytes_by_dtype: BTreeMap<StoredDType, ByteCount>,
}

impl TensorIndex {
    /// Opens a file, an index of shards (`*.json`), or a component's folder. Reads headers only; blocks meanwhile.
    ///
    /// In a folder it takes `diffusion_pytorch_model` or `model`, as one `.safetensors` or sharded with an
    /// `.index.json`; half precision (`fp16`) only when there is no plain file.
    ///
    /// # Errors
    /// [`IndexError`] when anything is missing, ambiguous or wrong.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, IndexError> {
        let path = path.as_ref();
        if path.is_dir() { Self::open_file(&find_weights(path)??) } else { Self::open_file(path) }
    }

    /// The tensors of one file.
    pub fn from_file(file: &TensorFile) -> Self {
        let tensors = file.tensors().map(|tensor| (tensor.name.clone(), tensor)).collect();
        Self { origin: file.origin().to_owned(), tensors, files: vec![file.bytes().clone()] }
    }

    fn open_file(path: &Path) -> Result<Self, IndexError> {
        if path.extension().is_none_or(|extension| extension != "json") {
            return Ok(Self::from_file(&TensorFile::open(path)?));
        }
        let Shards { tensors, files } = open_shards(path).map_err(|fault| match fault {
            Fault::Shard(error) => IndexError::Shard(error),
            Fault::Open(error) => IndexError::Open(error),
        })?;
        Ok(Self { origin: printable_path(path), tensors, files })
    }

    /// The file that was opened, for messages, fit to print.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// The tensor of that name.
    pub fn get(&self, name: &str) -> Option<&StoredTensor> {
        self.tensors.get(name)
    }

    /// The tensor of that name, which must have that shape and a number format that can be uploaded.
    ///
    /// # Errors
    /// [`WeightError`] when it isn't there, or isn't that.
    pub fn weight(&self, name: &str, shape: &[usize]) -> Result<(&StoredTensor, DType), WeightError> {
        let Some(tensor) = self.tensors.get(name) else {
            return Err(WeightError::Missing { origin: self.origin.clone(), tensor: printable(name) });
        };
        let (file, name) = (|| tensor.file.to_string(), || printable(name));
        if tensor.shape != shape {
            let (stored, expected) = (tensor.shape.clone(), shape.to_vec());
            return Err(WeightError::WrongShape { file: file(), tensor: name(), stored, expected });
        }
        let dtype = tensor.dtype.weight_dtype().ok_or_else(|| WeightError::UnsupportedDType {
            file: file(),
            tensor: name(),
            dtype: tensor.dtype,
        })?;
        Ok((tensor, dtype))
    }

    /// All tensors, in the order of their names.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &StoredTensor> + '_ {
        self.tensors.values()
    }

    /// How many tensors there are.
    pub fn len(&self) -> usize {
        self.tensors.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.tensors.is_empty()
    }

    /// How the bytes of its files came from disk so far, whichever index of them asked.
    pub fn disk_reads(&self) -> DiskReads {
        let mut reads = DiskReads::default();
        self.files.iter().for_each(|file| reads += file.reads());
        reads
    }

    /// How much there is.
    pub fn totals(&self) -> Totals {
        let mut totals = Totals { tensor_count: self.len(), ..Totals::default() };
        for tensor in self.iter() {
            if tensor.dtype.is_float() {
                totals.parameter_count += tensor.element_count() as u64;
            }
            *totals.bytes_by_dtype.entry(tensor.dtype).or_default() += tensor.size();
        }
        totals
    }

    /// The same tensors under new names; those for which `new_name` returns `None` keep theirs.
    ///
    /// # Errors
    /// [`RenameError`] when two tensors would get one name.
    pub fn renamed(self, mut new_name: impl FnMut(&str) -> Option<String>) -> Result<Self, RenameError> {
        let mut renamed: BTreeMap<String, (String, StoredTensor)> = BTreeMap::new();
        for (old, mut tensor) in self.tensors {
            let new = new_name(&old).unwrap_or_else(|| old.clone());
            tensor.name.clone_from(&new);
            let second = printable(&old);
            if let Some((first, _)) = renamed.insert(new, (old, tensor)) {
                return Err(RenameError { origin: self.origin, first: printable(&first), second });
            }
        }
        let tensors = renamed.into_iter().map(|(name, (_, tensor))| (name, tensor)).collect();
        Ok(Self { origin: self.origin, tensors, files: self.files })
    }
}
