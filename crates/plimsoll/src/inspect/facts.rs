//! What there is to say about a model, as values.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{anyhow, ensure};
use fs_err as fs;
use plimsoll_device::{ByteCount, DType};
use plimsoll_weights::{StoredDType, StoredTensor, TensorIndex};
use serde::Serialize;
use serde_json::Value;

use super::listed_parts::{self, Part};
use super::part_files;
use crate::failure::file_failure;

/// What is at a path.
#[derive(Debug, Serialize)]
pub(super) struct ModelFacts {
    /// The path, as given.
    pub(super) path: String,
    /// The pipeline's class, of a model folder.
    pub(super) class: Option<String>,
    /// In the order of `model_index.json`.
    pub(super) components: Vec<ComponentFacts>,
}

/// A part of a model.
#[derive(Debug, Serialize)]
pub(super) struct ComponentFacts {
    /// The part's name in the model; of a single one, its file's or folder's.
    pub(super) name: String,
    /// The architecture's class, if a configuration tells it.
    pub(super) class: Option<String>,
    /// What it weighs; `None` of a part without weights (tokenizer, scheduler).
    pub(super) weights: Option<WeightFacts>,
}

/// What a component's weights are.
#[derive(Debug, Serialize)]
pub(super) struct WeightFacts {
    pub(super) parameter_count: u64,
    pub(super) tensor_count: usize,
    /// In the files, by number format.
    pub(super) stored_bytes: BTreeMap<StoredDType, ByteCount>,
    /// Computing in f32: 4 bytes a parameter, before the device rounds shapes up to its own layout.
    pub(super) f32_bytes: ByteCount,
    /// Computing in bf16: 2 bytes a parameter, and 4 in vectors (biases, scales), which stay f32.
    pub(super) bf16_bytes: ByteCount,
    pub(super) unit_count: usize,
    /// The largest units, largest first.
    pub(super) largest_units: Vec<UnitFacts>,
}

/// A layer's weights, which move together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct UnitFacts {
    pub(super) name: String,
    pub(super) parameter_count: u64,
    /// In the files.
    pub(super) stored_bytes: ByteCount,
    /// Of its tensors, by the last part of their names.
    pub(super) shapes: BTreeMap<String, Vec<usize>>,
}

/// Looks at a model folder, a component's folder, or a file; lists at most `unit_count_max` units of each component.
pub(super) fn collect(path: &Path, unit_count_max: usize) -> anyhow::Result<ModelFacts> {
    let shown = path.display().to_string();
    let found = fs::metadata(path);
    let found = found.map_err(|error| file_failure(path, "can't be inspected", &error, "check the path"))?;
    if found.is_dir() && is_there(&path.join("model_index.json")) {
        return model(path, shown, unit_count_max);
    }
    let name = path.file_name().map_or_else(|| shown.clone(), |name| name.to_string_lossy().into_owned());
    let has_config = found.is_dir() && is_there(&path.join("config.json"));
    let class = if has_config { class_of(&part_files::json(&path.join("config.json"))?) } else { None };
    let index = TensorIndex::open(path)?;
    let weights = Some(weight_facts(&index, unit_count_max));
    Ok(ModelFacts { path: shown, class: None, components: vec![ComponentFacts { name, class, weights }] })
}

fn model(path: &Path, shown: String, unit_count_max: usize) -> anyhow::Result<ModelFacts> {
    let index = part_files::json(&path.join("model_index.json"))?;
    let is_folder = |name: &str| path.join(name).is_dir();
    let parts = listed_parts::listed_parts(&index, is_folder);
    let parts =
        parts.map_err(|reason| anyhow!("`{shown}/model_index.json` is not usable: {reason}; fetch it again"))?;
    ensure!(!parts.is_empty(), "`{shown}/model_index.json` lists no component; it is no diffusers model");
    let class = text_of(&index, "_class_name");
    let parts = parts.into_iter().map(|part| component(&path.join(&part.name), part, unit_count_max));
    Ok(ModelFacts { path: shown, class, components: parts.collect::<anyhow::Result<_>>()? })
}

/// Whether something has that name, be it a link that leads nowhere.
fn is_there(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

fn component(folder: &Path, part: Part, unit_count_max: usize) -> anyhow::Result<ComponentFacts> {
    let shown = folder.display();
    ensure!(folder.is_dir(), "`{shown}` is missing, which `model_index.json` lists; fetch the model again");
    let weights = match part_files::check(folder, &part.class)? {
        true => Some(weight_facts(&TensorIndex::open(folder)?, unit_count_max)),
        false => None,
    };
    Ok(ComponentFacts { name: part.name, class: Some(part.class), weights })
}

fn weight_facts(index: &TensorIndex, unit_count_max: usize) -> WeightFacts {
    let totals = index.totals();
    let device_bytes = |dtype| {
        index.iter().filter(|tensor| tensor.dtype.is_float()).map(|tensor| on_device(tensor, dtype)).sum::<ByteCount>()
    };
    let mut units = units(index);
    let unit_count = units.len();
    units.sort_by(|a, b| (b.stored_bytes, &a.name).cmp(&(a.stored_bytes, &b.name)));
    units.truncate(unit_count_max);
    WeightFacts {
        parameter_count: totals.parameter_count,
        tensor_count: totals.tensor_count,
        stored_bytes: totals.bytes_by_dtype,
        f32_bytes: device_bytes(DType::F32),
        bf16_bytes: device_bytes(DType::BF16),
        unit_count,
        largest_units: units,
    }
}

fn on_device(tensor: &StoredTensor, dtype: DType) -> ByteCount {
    let dtype = if tensor.shape.len() < 2 { DType::F32 } else { dtype };
    ByteCount::of(tensor.element_count()) * dtype.size() as u64
}

/// The layers of an index: tensors whose names differ in the last part only. In the order of their names.
fn units(index: &TensorIndex) -> Vec<UnitFacts> {
    let mut units: BTreeMap<&str, UnitFacts> = BTreeMap::new();
    for tensor in index.iter().filter(|tensor| tensor.dtype.is_float()) {
        let (layer, last) = tensor.name.rsplit_once('.').unwrap_or((&tensor.name, &tensor.name));
        let unit = units.entry(layer).or_insert_with(|| UnitFacts {
            name: layer.to_owned(),
            parameter_count: 0,
            stored_bytes: ByteCount::ZERO,
            shapes: BTreeMap::new(),
        });
        unit.parameter_count += tensor.element_count() as u64;
        unit.stored_bytes += tensor.size();
        unit.shapes.insert(last.to_owned(), tensor.shape.clone());
    }
    units.into_values().collect()
}

/// The class that a component's `config.json` names: diffusers writes `_class_name`, transformers `architectures`.
fn class_of(config: &Value) -> Option<String> {
    text_of(config, "_class_name").or_else(|| config["architectures"][0].as_str().map(str::to_owned))
}

fn text_of(value: &Value, key: &str) -> Option<String> {
    value[key].as_str().map(str::to_owned)
}
