//! A model in several files, listed by a `*.safetensors.index.json`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path};
use std::sync::Arc;

use serde_json::value::RawValue;

use crate::file_bytes::FileBytes;
use crate::header::{HEADER_BYTES_MAX, TENSOR_COUNT_MAX};
use crate::json_object::{ObjectFault, object_entries, value_reason, without_position};
use crate::printable::{printable, printable_path};
use crate::{OpenError, StoredTensor, TensorFile};

/// A sharded model can't be used as it is. Fetch the missing or damaged file again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShardError {
    /// The index is no JSON with a `weight_map` from names to files. Fetch it again.
    #[error("`{index}` is no index of shards: {reason}; fetch it again")]
    BadIndex {
        /// The index.
        index: String,
        /// What is wrong.
        reason: String,
    },
    /// The index names a file outside of its own folder, as no honest one does. Don't use the model.
    #[error("`{index}` names the shard `{shard}`, which is not inside the index's folder; do not use this model")]
    Outside {
        /// The index.
        index: String,
        /// As it names the file.
        shard: String,
    },
    /// A file that the index names isn't there. Fetch it.
    #[error("`{index}` names the shard `{shard}`, which is missing beside it; fetch it")]
    Missing {
        /// The index.
        index: String,
        /// As it names the file.
        shard: String,
    },
    /// A shard lacks a tensor that the index says is in it: they are of different models. Fetch both again.
    #[error(
        "`{index}` says that tensor `{tensor}` is in the shard `{shard}`, which has no such tensor; fetch both again"
    )]
    NotInShard {
        /// The index.
        index: String,
        /// As it names the file.
        shard: String,
        /// Whose.
        tensor: String,
    },
    /// Two shards have a tensor of one name, and which is meant can't be known. Fetch them again.
    #[error("tensor `{tensor}` is in both `{first}` and `{second}`; fetch the shards again")]
    Twice {
        /// Whose.
        tensor: String,
        /// A shard's path.
        first: String,
        /// Another shard's path.
        second: String,
    },
}

/// Either the index or a file that it names is wrong.
pub(crate) enum Fault {
    Shard(ShardError),
    Open(OpenError),
}

impl From<ShardError> for Fault {
    fn from(error: ShardError) -> Self {
        Self::Shard(error)
    }
}

impl From<OpenError> for Fault {
    fn from(error: OpenError) -> Self {
        Self::Open(error)
    }
}

/// A model that was opened from its index.
pub(crate) struct Shards {
    pub(crate) tensors: BTreeMap<String, StoredTensor>,
    pub(crate) files: Vec<Arc<FileBytes>>,
}

/// All tensors of all shards that `index_path` names.
///
/// A tensor that is in a shard but not in the index belongs to the model too, as in diffusers and transformers, which
/// use the index only to find the files.
pub(crate) fn open_shards(index_path: &Path) -> Result<Shards, Fault> {
    let index = printable_path(index_path);
    let weight_map = read_weight_map(index_path)?;
    let folder = index_path.parent().unwrap_or(Path::new(""));
    let mut tensors: BTreeMap<String, StoredTensor> = BTreeMap::new();
    let mut files = Vec::new();
    for shard in weight_map.values().collect::<BTreeSet<_>>() {
        if !stays_inside(shard) {
            return Err(ShardError::Outside { index, shard: printable(shard) }.into());
        }
        let path = folder.join(shard);
        if !path.exists() {
            return Err(ShardError::Missing { index, shard: printable(shard) }.into());
        }
        let file = TensorFile::open(path)?;
        files.push(file.bytes().clone());
        for tensor in file.tensors() {
            let second = tensor.file.clone();
            if let Some(first) = tensors.insert(tensor.name.clone(), tensor) {
                let (tensor, first, second) = (printable(&first.name), first.file.to_string(), second.to_string());
                return Err(ShardError::Twice { tensor, first, second }.into());
            }
        }
    }
    for (name, shard) in &weight_map {
        let path = printable_path(&folder.join(shard));
        if tensors.get(name).is_none_or(|tensor| *tensor.file != *path) {
            return Err(ShardError::NotInShard { index, shard: printable(shard), tensor: printable(name) }.into());
        }
    }
    Ok(Shards { tensors, files })
}

/// Whether joining `shard` to a folder stays below it. Links are followed: a model cache may hold the files elsewhere.
fn stays_inside(shard: &str) -> bool {
    let path = Path::new(shard);
    !shard.is_empty() && !shard.contains('\0') && path.components().all(|part| matches!(part, Component::Normal(_)))
}

fn read_weight_map(index_path: &Path) -> Result<BTreeMap<String, String>, Fault> {
    let file = FileBytes::open(index_path)?;
    let bad = |reason| Fault::Shard(ShardError::BadIndex { index: file.origin().to_owned(), reason });
    if file.len() > HEADER_BYTES_MAX {
        return Err(bad(format!("it has {} bytes, and at most {HEADER_BYTES_MAX} are read", file.len())));
    }
    let mut bytes = vec![0; usize::try_from(file.len()).expect("an index's length is bounded")];
    file.read_at(0, &mut bytes).map_err(OpenError::Read)?;
    let text =
        std::str::from_utf8(&bytes).map_err(|error| bad(format!("it is not UTF-8 at byte {}", error.valid_up_to())))?;
    let entries = entries_of("its JSON", text).map_err(bad)?;
    let Some((_, weight_map)) = entries.iter().find(|(key, _)| key == "weight_map") else {
        return Err(bad("it has no `weight_map`".to_owned()));
    };
    let mut shards = BTreeMap::new();
    for (name, value) in entries_of("`weight_map`", weight_map.get()).map_err(bad)? {
        let shard = serde_json::from_str(value.get())
            .map_err(|error| bad(format!("`weight_map` for `{}`: {}", printable(&name), value_reason(&error))))?;
        shards.insert(name, shard);
    }
    Ok(shards)
}

fn entries_of<'a>(what: &str, text: &'a str) -> Result<Vec<(String, &'a RawValue)>, String> {
    object_entries(text, TENSOR_COUNT_MAX).map_err(|fault| match fault {
        ObjectFault::Malformed(reason) => format!("{what}: {}", without_position(&reason)),
        ObjectFault::TooManyEntries => format!("{what} has more than {TENSOR_COUNT_MAX} entries"),
        ObjectFault::DuplicateKey(key) => format!("{what} has `{}` twice", printable(&key)),
    })
}
