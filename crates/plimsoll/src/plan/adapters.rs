//! `--lora`: adapters' headers, matched to the units that they are for.
//!
//! Two ways to name a pair are known: kohya's (`lora_unet_a_b.lora_down.weight`) and PEFT's (`unet.a.b.lora_A.weight`).
//! Names are compared with dots as underscores and without what says which program wrote them. `alpha` only scales, so
//! it takes neither memory nor time.

mod names;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{anyhow, bail, ensure};
use plimsoll_device::{Buffer, ByteCount, DType, Device, DeviceError, Queue, Upload, UploadPiece, WeightForm};
use plimsoll_nn::BlankBytes;
use plimsoll_residency::{Merge, Patch, PatchSet, PatchSetId, Policy, Unit};
use plimsoll_sim::SimDevice;
use plimsoll_weights::{TensorFile, printable, printable_path};
use serde::Serialize;

use super::workload::Workload;
use names::{Half, Place, Side};

/// How many names an error shows.
const EXAMPLES: usize = 2;

/// All adapters on a workload.
pub(super) struct Adapters {
    /// For each unit the ranks of its adapters together.
    ranks: Vec<usize>,
    pub(super) files: Vec<AdapterFile>,
}

/// What a file is for.
#[derive(Debug, Serialize)]
pub(super) struct AdapterFile {
    pub(super) file: String,
    /// Units that it changes.
    pub(super) unit_count: usize,
    /// Pairs for text encoders, which this plan is not about.
    pub(super) text_encoder_count: usize,
    /// Pairs for layers that the model does not have, or that are no units of this plan.
    pub(super) unmatched: Vec<String>,
    /// Tensors of kinds that are not known, and not counted.
    pub(super) unknown: Vec<String>,
}

/// The two matrices for one layer: `[rank, in, ..]` and `[out, rank, ..]`.
#[derive(Default)]
struct Pair {
    down: Option<Vec<usize>>,
    up: Option<Vec<usize>>,
}

impl Adapters {
    /// Reads the files' headers.
    ///
    /// # Errors
    /// When a file can't be read, is no adapter, or not one for these units.
    pub(super) fn read(paths: &[PathBuf], workload: &Workload) -> anyhow::Result<Self> {
        let mut adapters = Self { ranks: vec![0; workload.units.len()], files: Vec::new() };
        for path in paths {
            let file = TensorFile::open(path)?;
            let facts = adapters.add(&printable_path(path), &file, workload)?;
            adapters.files.push(facts);
        }
        Ok(adapters)
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// What they do to the units under a policy.
    ///
    /// Spread keeps them beside the weights: all pairs of a unit as one pair of matrices, always resident. Largest-first
    /// is a rule for adapters that are merged into weights on arrival, so it gets them merged.
    pub(super) fn patches(
        &self,
        policy: Policy,
        workload: &Workload,
        dtype: DType,
        device: &Arc<SimDevice>,
    ) -> PatchSet {
        if self.is_empty() {
            return PatchSet::default();
        }
        let patch = |(unit, &rank): (&Unit, &usize)| -> Option<Patch> {
            let matrix = Matrix::of(unit).filter(|_| rank > 0)?;
            Some(match policy {
                Policy::Spread => Patch::Unmerged(matrix.adapter(unit, rank, dtype, &**device)),
                Policy::LargestFirst => Patch::Merged(Arc::new(matrix.merge(rank, device))),
            })
        };
        PatchSet { id: PatchSetId(1), patches: workload.units.iter().zip(&self.ranks).map(patch).collect() }
    }

    /// How long each unit computes with the adapters beside it: longer by the share that their products have of the
    /// layer's. Where a unit's time holds an attention too, that is a little too much.
    pub(super) fn seconds_beside(&self, workload: &Workload) -> Vec<f64> {
        let units = workload.units.iter().zip(&self.ranks).zip(&workload.seconds);
        let seconds = units.map(|((unit, &rank), &seconds)| match Matrix::of(unit) {
            Some(matrix) => seconds * (1.0 + matrix.pair_elements(rank) as f64 / matrix.elements() as f64),
            None => seconds,
        });
        seconds.collect()
    }

    fn add(&mut self, shown: &str, file: &TensorFile, workload: &Workload) -> anyhow::Result<AdapterFile> {
        let mut facts = AdapterFile {
            file: shown.to_owned(),
            unit_count: 0,
            text_encoder_count: 0,
            unmatched: Vec::new(),
            unknown: Vec::new(),
        };
        let mut pairs: BTreeMap<&str, Pair> = BTreeMap::new();
        for tensor in file.header().tensors() {
            match names::half(&tensor.name) {
                Some(Half { module, side: Side::Down }) => {
                    pairs.entry(module).or_default().down = Some(tensor.shape.clone())
                }
                Some(Half { module, side: Side::Up }) => {
                    pairs.entry(module).or_default().up = Some(tensor.shape.clone())
                }
                None if names::is_scale(&tensor.name) => {}
                None => facts.unknown.push(printable(&tensor.name)),
            }
        }
        let unit_names: BTreeMap<String, usize> =
            workload.units.iter().enumerate().map(|(idx, unit)| (names::plain(unit.name()), idx)).collect();
        let mut found = BTreeMap::new();
        for (module, pair) in pairs {
            let (Some(down), Some(up)) = (&pair.down, &pair.up) else {
                let (has, lacks) = if pair.down.is_some() { ("first", "second") } else { ("second", "first") };
                bail!(
                    "`{shown}` has only the {has} matrix for `{}`, not the {lacks}; fetch it again",
                    printable(module)
                );
            };
            let name = match names::place(module) {
                Place::TextEncoder => {
                    facts.text_encoder_count += 1;
                    continue;
                }
                Place::Denoiser(name) => name,
            };
            let Some(&unit_idx) = unit_names.get(&name) else {
                facts.unmatched.push(printable(module));
                continue;
            };
            if let Some(first) = found.insert(unit_idx, module) {
                let (first, second) = (printable(first), printable(module));
                bail!("`{shown}` has both `{first}` and `{second}`, which are for one layer; write it anew with one");
            }
            let unit = &workload.units[unit_idx];
            self.ranks[unit_idx] += rank(unit, down, up).map_err(|reason| {
                anyhow!("`{}` of `{shown}` does not fit `{}`: {reason}", printable(module), printable(unit.name()))
            })?;
            facts.unit_count += 1;
        }
        ensure!(facts.unit_count > 0, nothing_matches(&facts, workload));
        Ok(facts)
    }
}

fn nothing_matches(facts: &AdapterFile, workload: &Workload) -> String {
    let examples = |names: &[String]| {
        let shown: Vec<String> = names.iter().take(EXAMPLES).map(|name| format!("`{name}`")).collect();
        shown.join(", ")
    };
    let has = match (facts.unmatched.as_slice(), facts.unknown.as_slice()) {
        ([], []) if facts.text_encoder_count > 0 => {
            "it is for text encoders alone, and the plan is about the denoiser".to_owned()
        }
        ([], []) => "it has no tensors of an adapter".to_owned(),
        ([], unknown) => format!("it has tensors such as {}, of no kind known here", examples(unknown)),
        (unmatched, _) => format!("it is for layers such as {}", examples(unmatched)),
    };
    let units: Vec<String> =
        workload.units.iter().filter(|unit| Matrix::of(unit).is_some()).map(|unit| printable(unit.name())).collect();
    format!(
        "`{}` changes nothing in {}: {has}; the model's layers are such as {}; name an adapter of this model",
        facts.file,
        workload.name,
        examples(&units)
    )
}

/// The rank of a pair that fits the unit's weight.
fn rank(unit: &Unit, down: &[usize], up: &[usize]) -> Result<usize, String> {
    let Some(Matrix { out, depth, taps }) = Matrix::of(unit) else {
        return Err("its weight is no matrix; name an adapter of this model".to_owned());
    };
    let is_down = match *down {
        [_, columns] => columns == depth && taps == 1,
        [_, columns, height, width] => columns == depth && height.checked_mul(width) == Some(taps),
        _ => false,
    };
    let is_up = matches!(*up, [rows, _] | [rows, _, 1, 1] if rows == out);
    let ranks = [down.first().copied(), up.get(1).copied()];
    match ranks {
        [Some(rank), Some(other)] if is_down && is_up && rank == other && rank > 0 => Ok(rank),
        _ => Err(format!(
            "its matrices are {down:?} and {up:?}, and the weight takes [rank, {depth}{}] and [{out}, rank]; name an \
             adapter of this model",
            if taps == 1 { String::new() } else { format!(", {taps} taps") }
        )),
    }
}

/// A unit's weight.
#[derive(Clone, Copy)]
struct Matrix {
    out: usize,
    depth: usize,
    taps: usize,
}

impl Matrix {
    fn of(unit: &Unit) -> Option<Self> {
        match unit.upload.pieces.first()?.form {
            WeightForm::Matrix { out, depth, taps } => Some(Self { out, depth, taps }),
            WeightForm::Table { .. } | WeightForm::Vector { .. } => None,
        }
    }

    fn elements(self) -> usize {
        self.out * self.depth * self.taps
    }

    /// Numbers of both matrices of a pair.
    fn pair_elements(self, rank: usize) -> usize {
        rank * (self.depth * self.taps + self.out)
    }

    fn adapter(self, unit: &Unit, rank: usize, dtype: DType, device: &dyn Device) -> Unit {
        let down = WeightForm::Matrix { out: rank, depth: self.depth, taps: self.taps };
        let up = WeightForm::Matrix { out: self.out, depth: rank, taps: 1 };
        let piece = |form: WeightForm| UploadPiece {
            source: Arc::new(BlankBytes::new(form.element_count() * dtype.size())),
            source_dtype: dtype,
            form,
            dtype,
            offset: 0,
        };
        Unit::new(device, Upload { name: format!("{} (adapter)", unit.name()), pieces: vec![piece(down), piece(up)] })
    }

    fn merge(self, rank: usize, device: &Arc<SimDevice>) -> SimMerge {
        let flops = 2.0 * rank as f64 * self.elements() as f64;
        SimMerge {
            device: device.clone(),
            elements: self.elements() as u64,
            seconds: flops / device.options().flops_per_second,
        }
    }
}

/// Merging on the simulated device: the product of the pair in f32, then added to the weight. What fetching the pair
/// itself takes is left out.
struct SimMerge {
    device: Arc<SimDevice>,
    elements: u64,
    seconds: f64,
}

impl Merge for SimMerge {
    /// The product. (The rule of largest-first reserves three times as much, by itself.)
    fn transient_bytes(&self) -> ByteCount {
        self.device.allocated_bytes(ByteCount(self.elements * DType::F32.size() as u64))
    }

    fn patched_elements(&self) -> u64 {
        self.elements
    }

    fn merge(&self, device: &dyn Device, queue: &dyn Queue, weights: &mut Buffer) -> Result<(), DeviceError> {
        let account = device.ledger().account("merging");
        let _product = device.allocate(queue, account, self.transient_bytes())?;
        self.device.merge(queue, weights, 1, self.seconds)
    }
}
